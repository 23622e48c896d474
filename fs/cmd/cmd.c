// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/cmd.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "db/base.h"
#include "tier/sabotage.h"

#ifndef HYBRIDFS_VERSION
#define HYBRIDFS_VERSION "unknown"
#endif

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

#define HELP_RANGE "  --range OFF:LEN  only these bytes (K, M, G, T; empty LEN = to the end)\n"
#define HELP_QUIET "  -q, --quiet      print nothing but errors\n"
#define HELP_JSON  "  --json           one JSON object for programs\n"

static const struct cmd commands[] = {
	{ "stat", "[--json] [-v] PATH...", "show where the bytes of files are",
	  "  -v, --verbose    a row per extent: where it is, and why; explains the map\n" HELP_JSON,
	  cmd_stat },
	{ "promote", "[--range OFF:LEN] [--no-wait] [-q] [--json] PATH...", "copy to the SSD now",
	  HELP_RANGE "  --no-wait        only queue it\n" HELP_QUIET HELP_JSON, cmd_promote },
	{ "demote", "[--force] [-q] [--json] PATH...",
	  "write back what is dirty, then drop the SSD copy",
	  "  --force          where SRC was changed behind the mount, overwrite it with the\n"
	  "                   mount's version\n" HELP_QUIET HELP_JSON,
	  cmd_demote },
	{ "pin", "[--range OFF:LEN] [-q] [--json] PATH...",
	  "keep on the SSD whatever the policy says", HELP_RANGE HELP_QUIET HELP_JSON, cmd_pin },
	{ "unpin", "[--range OFF:LEN] [-q] [--json] PATH...", "take a pin back",
	  HELP_RANGE HELP_QUIET HELP_JSON, cmd_unpin },
	{ "flush", "[--force] [-q] [--json] PATH...",
	  "write dirty data back to SRC, keep it on the SSD",
	  "  --force          where SRC was changed behind the mount, overwrite it with the\n"
	  "                   mount's version\n" HELP_QUIET HELP_JSON,
	  cmd_flush },
	{ "sync", "[--force] [-q] [--json] PATH...", "the same as flush", "", cmd_flush },
	{ "status", "[--json | --prometheus] [MNT...]", "show every mount, or one, and its health",
	  HELP_JSON "  --prometheus     metrics in the Prometheus text format\n"
		    "Exit code 0: healthy, 1: degraded or not answering.\n",
	  cmd_status },
	{ "top", "[--once] MNT", "live view of the hottest files and of the traffic", "", cmd_top },
	{ "umount", "[--no-flush] [-q] MNT", "flush, unmount, and return when the daemon is gone",
	  "  --no-flush       do not write dirty data back first; -o no_flush is the same\n"
	  "  -q, --quiet      print nothing but errors\n",
	  cmd_umount },
	{ "check", "[--repair] [--scrub] [--json] SRC SSD", "check an unmounted volume",
	  "  --repair         repair what can be repaired; without, nothing is changed\n"
	  "  --scrub          also read what is clean from both sides and compare it\n" HELP_JSON
	  "Exit code as fsck: 0 clean, 1 repaired, 4 errors left, 8 failed, 16 wrong use.\n",
	  cmd_check },
};

static const struct cmd switches[] = {
	{ "--help", "", "", "", cmd_help },
	{ "-h", "", "", "", cmd_help },
	{ "--version", "", "", "", cmd_version },
	{ "-V", "", "", "", cmd_version },
};

static const struct cmd *find_in(const struct cmd *table, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(table[i].name, name) == 0 && table[i].run)
			return &table[i];
	return NULL;
}

const struct cmd *cmd_find(const char *name)
{
	const struct cmd *c;

	if (!name)
		return NULL;
	c = find_in(commands, ARRAY_SIZE(commands), name);
	return c ? c : find_in(switches, ARRAY_SIZE(switches), name);
}

/* ---- help ---------------------------------------------------------------------------------- */

void cmd_mount_usage(FILE *f)
{
	fputs("Usage: hybridfs SRC SSD MNT [-o OPTION,...] [-f] [-d] [-s]\n"
	      "       mount -t hybridfs SRC MNT -o ssd=SSD[,OPTION...]\n"
	      "\n"
	      "  SRC  directory on the big slow filesystem; stays complete and usable without us\n"
	      "  SSD  directory on the fast one; created on first use, serves several SRC\n"
	      "  MNT  where to mount; may be SRC itself\n"
	      "  -f   stay in the foreground     -d  the same, with debug messages\n"
	      "  -s   single thread\n"
	      "\n"
	      "Options [default]; sizes take K, M, G, T:\n"
	      "  size=BYTES               cap on the SSD bytes of this mount [90% of the SSD]\n"
	      "  mode=writeback|writethrough|writearound       [writeback]\n"
	      "  dirty_ratio=%            dirty part of the cap that slows writers [60]\n"
	      "  dirty_background_ratio=% dirty part that starts write-back at once [20]\n"
	      "  dirty_expire=SECONDS     how long an extent may stay dirty [30]\n"
	      "  high_watermark=%         how full the SSD gets before clean data leave [90]\n"
	      "  low_watermark=%          and down to what [85]\n"
	      "  seq_cutoff=BYTES         longer sequential runs bypass the SSD; 0 = never [4M]\n"
	      "  promote_hits=N           touches before an extent is promoted [2]\n"
	      "  passthrough=auto|off     kernel I/O on files that are all on the SSD [auto]\n"
	      "  [no_]flush_on_unmount    write dirty data back at unmount, or not [flush]\n"
	      "  stripe=BYTES             full RAID stripe of SRC [from the block device]\n"
	      "  allow_other, ro, uid=... as for every FUSE filesystem\n",
	      f);
}

static void print_overview(void)
{
	cmd_mount_usage(stdout);
	printf("\nCommands (hybridfs COMMAND --help tells more):\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].run)
			printf("  %-8s %s\n", commands[i].name, commands[i].summary);
	printf("\nA SRC that is named like a command is written ./NAME. See hybridfs(8).\n");
}

static void print_help(const struct cmd *c)
{
	if (c->run == cmd_flush)
		c = find_in(commands, ARRAY_SIZE(commands), "flush");
	printf("Usage: hybridfs %s %s\n\n%c%s.%s\n", c->name, c->args,
	       toupper((unsigned char)c->summary[0]), c->summary + 1,
	       c->run == cmd_flush ? " `sync` is another name of it." : "");
	if (*c->options)
		printf("\n%s", c->options);
}

static int cmd_help(int argc, char **argv)
{
	const struct cmd *c = argc > 1 ? cmd_find(argv[1]) : NULL;

	if (argc > 1 && !c)
		return cmd_usage_error(argv[0], "there is no command '%s'", argv[1]);
	if (c && c->run != cmd_help)
		print_help(c);
	else
		print_overview();
	return cmd_finish(CMD_OK);
}

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("hybridfs %s\n", HYBRIDFS_VERSION);
	if (HFS_SABOTAGE)
		printf("SABOTAGED: invariant I%d is broken on purpose; it loses data\n",
		       HFS_SABOTAGE);
	return cmd_finish(CMD_OK);
}

/* ---- messages ------------------------------------------------------------------------------ */

void cmd_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fflush(stdout);
	fputs("hybridfs: ", stderr);
	vfprintf(stderr, fmt, ap);
	putc('\n', stderr);
	va_end(ap);
}

void cmd_path_error(const char *path, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fflush(stdout);
	fputs("hybridfs: ", stderr);
	fmt_put_escaped(stderr, path);
	fputs(": ", stderr);
	vfprintf(stderr, fmt, ap);
	putc('\n', stderr);
	va_end(ap);
}

int cmd_usage_error(const char *command, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "hybridfs: %s: ", command);
	vfprintf(stderr, fmt, ap);
	putc('\n', stderr);
	va_end(ap);
	if (find_in(commands, ARRAY_SIZE(commands), command))
		fprintf(stderr, "Try 'hybridfs %s --help'.\n", command);
	else
		fprintf(stderr, "Try 'hybridfs --help'.\n");
	return CMD_FAILED;
}

int cmd_finish(int exit_code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return exit_code;
	cmd_error("cannot write the output: %s", strerror(errno));
	return exit_code == CMD_OK ? CMD_FAILED : exit_code;
}
