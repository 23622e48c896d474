// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/options.h"

#include <getopt.h>
#include <string.h>

#include "db/base.h"
#include "fs/option_table.h"

#define DEFAULT_THREADS	  64

/* ---- option lists -------------------------------------------------------------------------- */
static int one_option(struct mount_options *o, char *option)
{
	char *value = strchr(option, '=');

	if (!*option || strncmp(option, "x-", 2) == 0 || strncmp(option, "X-", 2) == 0)
		return 0;
	if (value)
		*value++ = '\0';
	return option_apply(o, option, value);
}

/* Take the first option off *rest: up to a comma that has no backslash, backslashes removed. */
static char *next_option(char **rest)
{
	char *start = *rest, *from = start, *to = start;

	while (*from && *from != ',') {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from++;
	}
	*rest = *from ? from + 1 : NULL;
	*to = '\0';
	return start;
}

static int option_list(struct mount_options *o, const char *list)
{
	_cleanup_free_ char *copy = strdup(list);
	char *rest = copy;
	int r = 0;

	if (!copy)
		return out_of_memory();
	while (rest && r == 0)
		r = one_option(o, next_option(&rest));
	return r;
}

/* ---- the command line ---------------------------------------------------------------------- */
static const struct option long_flags[] = {
	{ "foreground", no_argument, NULL, 'f' },    { "debug", no_argument, NULL, 'd' },
	{ "single-thread", no_argument, NULL, 's' }, { "options", required_argument, NULL, 'o' },
	{ "read-only", no_argument, NULL, 'r' },     { NULL, 0, NULL, 0 },
};

static bool is_mount_helper(const char *program)
{
	const char *slash = strrchr(program, '/');

	return strncmp(slash ? slash + 1 : program, "mount.", 6) == 0;
}

/* -s and -f mean something else when mount(8) says them: sloppy, and fake. */
static int flag(struct mount_options *o, int c, bool helper)
{
	switch (c) {
	case 'o':
		return option_list(o, optarg);
	case 'f':
		if (helper)
			o->fake = true;
		else
			o->foreground = true;
		return 0;
	case 'd':
		o->debug = o->foreground = true;
		return 0;
	case 's':
		o->single_thread = !helper;
		return 0;
	case 'r':
		o->read_only = true;
		return 0;
	default:
		return 0; /* -n, -v, -w, -t TYPE, -N NAMESPACE of mount(8) */
	}
}

static int bad_flag(int c, char **argv)
{
	if (c == ':')
		return usage_error("option '-%c' needs an argument", optopt);
	if (optopt)
		return usage_error("unknown option '-%c'", optopt);
	return usage_error("unknown option '%s'", argv[optind - 1]);
}

static int operands(struct mount_options *o, char **argv, int n)
{
	if (n == 3 && o->ssd)
		return usage_error("SSD is given twice: '%s' and ssd=%s", argv[1], o->ssd);
	if (n > 3)
		return usage_error("unexpected operand '%s'", argv[3]);
	if (n > 0 && n < 3 && !o->ssd && !strchr(argv[0], '/') && access(argv[0], F_OK) < 0)
		return usage_error("there is no command '%s'", argv[0]);
	if (n < 2 || (n == 2 && !o->ssd))
		return usage_error("missing operand: usage is hybridfs SRC SSD MNT [-o OPTIONS]");
	for (int i = 0; i < n; i++)
		if (!argv[i][0])
			return usage_error("an operand is empty");
	o->src = strdup(argv[0]);
	o->mnt = strdup(argv[n - 1]);
	if (n == 3)
		o->ssd = strdup(argv[1]);
	return o->src && o->mnt && o->ssd ? 0 : out_of_memory();
}

/* A default gives way to what was asked for; two wishes must fit. */
static int check_together(struct mount_options *o)
{
	struct volume_options *v = &o->volume;

	if (!o->low_given && v->low_percent >= v->high_percent)
		v->low_percent = v->high_percent > 5 ? v->high_percent - 5 : 0;
	if (v->low_percent >= v->high_percent)
		return usage_error("low_watermark (%u%%) must be below high_watermark (%u%%)",
				   v->low_percent, v->high_percent);
	if (v->dirty_background_percent > v->dirty_percent)
		v->dirty_background_percent = v->dirty_percent;
	return 0;
}

int options_parse(struct mount_options *o, int argc, char **argv)
{
	bool helper = is_mount_helper(argv[0]);
	int c, r = 0;

	*o = (struct mount_options){ .flush_on_unmount = true,
				     .passthrough = true,
				     .attr_timeout_s = NO_TIMEOUT_S,
				     .entry_timeout_s = NO_TIMEOUT_S,
				     .negative_timeout_s = NO_TIMEOUT_S,
				     .max_threads = DEFAULT_THREADS };
	volume_options_init(&o->volume);
	opterr = 0;
	optind = 1;
	while (r == 0 && (c = getopt_long(argc, argv, helper ? ":o:t:N:fdsnvrw" : ":o:fdsr",
					  long_flags, NULL)) != -1)
		r = c == '?' || c == ':' ? bad_flag(c, argv) : flag(o, c, helper);
	if (r == 0)
		r = operands(o, argv + optind, argc - optind);
	return r ? r : check_together(o);
}

void options_release(struct mount_options *o)
{
	free(o->src);
	free(o->ssd);
	free(o->mnt);
	free(o->fsname);
	free(o->fuse_opts);
	*o = (struct mount_options){ 0 };
}
