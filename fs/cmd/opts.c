// SPDX-License-Identifier: GPL-2.0-or-later
/* The options of the commands; one table for all, so that a name means the same everywhere. */
#include "fs/cmd/cmd.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "db/base.h"

static const struct {
	const char *name;
	unsigned opt;
	char letter; /* '\0' = none */
	int has_arg;
} known[] = {
	{ "json", OPT_JSON, '\0', no_argument },
	{ "verbose", OPT_VERBOSE, 'v', no_argument },
	{ "quiet", OPT_QUIET, 'q', no_argument },
	{ "range", OPT_RANGE, '\0', required_argument },
	{ "no-wait", OPT_NO_WAIT, '\0', no_argument },
	{ "force", OPT_FORCE, '\0', no_argument },
	{ "prometheus", OPT_PROMETHEUS, '\0', no_argument },
	{ "no-flush", OPT_NO_FLUSH, '\0', no_argument },
	{ "repair", OPT_REPAIR, '\0', no_argument },
	{ "scrub", OPT_SCRUB, '\0', no_argument },
};

#define LONG_BASE 256 /* getopt values of known[i] are LONG_BASE + i, above every letter */

struct getopt_tables {
	struct option longs[ARRAY_SIZE(known) + 2];
	char letters[2 * ARRAY_SIZE(known) + 4];
};

static void fill_tables(struct getopt_tables *t, unsigned allowed)
{
	struct option *o = t->longs;
	char *c = stpcpy(t->letters, ":h");

	*o++ = (struct option){ "help", no_argument, NULL, 'h' };
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!(known[i].opt & allowed))
			continue;
		*o++ = (struct option){ known[i].name, known[i].has_arg, NULL, LONG_BASE + (int)i };
		if (known[i].letter)
			*c++ = known[i].letter;
	}
	if (allowed & OPT_NO_FLUSH)
		c = stpcpy(c, "o:");
	*o = (struct option){ NULL, 0, NULL, 0 };
	*c = '\0';
}

static unsigned opt_of(int value)
{
	if (value >= LONG_BASE)
		return known[value - LONG_BASE].opt;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].letter == value)
			return known[i].opt;
	return 0;
}

static int take_range(const char *command, const char *text, struct byte_range *ret)
{
	int err = parse_range(text, ret);

	if (err == -ERANGE)
		return cmd_usage_error(command, "--range %s: beyond the largest file", text);
	if (err < 0)
		return cmd_usage_error(command, "--range %s: not OFFSET:LENGTH", text);
	return CMD_OK;
}

static int report_bad_option(const char *command, int what, char *const *argv)
{
	const char *word = optind > 0 ? argv[optind - 1] : "";

	if (what == ':')
		return cmd_usage_error(command, "option '%s' needs a value", word);
	if (optopt > 0 && optopt < LONG_BASE && strncmp(word, "--", 2) != 0)
		return cmd_usage_error(command, "unknown option '-%c'", optopt);
	return cmd_usage_error(command, "unknown option '%s'", word);
}

static int take_option(const char *command, int value, char *const *argv, struct cmd_opts *o)
{
	if (value == '?' || value == ':')
		return report_bad_option(command, value, argv);
	if (value == 'o') {
		if (strcmp(optarg, "no_flush") != 0)
			return cmd_usage_error(command, "unknown option '-o %s'", optarg);
		o->given |= OPT_NO_FLUSH;
		return CMD_OK;
	}
	o->given |= opt_of(value);
	if (opt_of(value) == OPT_RANGE)
		return take_range(command, optarg, &o->range);
	return CMD_OK;
}

bool cmd_parse(int argc, char **argv, unsigned allowed, struct cmd_opts *ret, int *ret_exit)
{
	char *help[] = { (char *)"--help", argv[0], NULL };
	struct getopt_tables t;
	int value;

	*ret = (struct cmd_opts){ .range = { 0, UINT64_MAX } };
	fill_tables(&t, allowed);
	opterr = 0;
	optind = 0; /* main() may have used getopt */
	while ((value = getopt_long(argc, argv, t.letters, t.longs, NULL)) != -1) {
		if (value == 'h') {
			*ret_exit = cmd_find("--help")->run(2, help);
			return false;
		}
		*ret_exit = take_option(argv[0], value, argv, ret);
		if (*ret_exit != CMD_OK)
			return false;
	}
	ret->operands = argv + optind;
	ret->n_operands = argc - optind;
	return true;
}
