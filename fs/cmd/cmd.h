// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cmd.h - the commands of the hybridfs program: finding one, its help, its options, and the errors
 * that all of them report in the same words.
 *
 * main() asks cmd_find(argv[1]); what it finds it runs with argc - 1 and argv + 1, so that argv[0]
 * is the command's name, and exits with what it returns. Anything else is a mount. Commands use
 * no threads and may be run once per process. A running daemon is reached through ioctls on a path
 * of its mount only (fs/proto.h, client.h).
 */
#ifndef HYBRIDFS_FS_CMD_CMD_H
#define HYBRIDFS_FS_CMD_CMD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fs/cmd/format.h"

/* Exit codes of the commands; check has its own. */
#define CMD_OK	   0
#define CMD_FAILED 1 /* wrong use, no permission, or something could not be done */

struct cmd {
	const char *name;
	const char *args;    /* for the usage line */
	const char *summary; /* one line, no full stop */
	const char *options; /* lines for --help, each with its newline; "" when there are none */
	int (*run)(int argc, char **argv);
};

/* The command of this name (also "--help", "--version"), or NULL: then it is a mount. */
const struct cmd *cmd_find(const char *name);

int cmd_stat(int argc, char **argv);
int cmd_promote(int argc, char **argv);
int cmd_demote(int argc, char **argv);
int cmd_pin(int argc, char **argv);
int cmd_unpin(int argc, char **argv);
int cmd_flush(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_umount(int argc, char **argv);
/* Written elsewhere and optional: a program linked without one does not know that command. */
__attribute__((weak)) int cmd_check(int argc, char **argv);
__attribute__((weak)) int cmd_top(int argc, char **argv);

/* ---- help ---------------------------------------------------------------------------------- */
/* The usage of mounting, with its options: what main() prints for a mount with wrong arguments. */
void cmd_mount_usage(FILE *f);

/* ---- options ------------------------------------------------------------------------------- */
/* What a command accepts; -h and --help always. */
#define OPT_JSON       (1u << 0)
#define OPT_VERBOSE    (1u << 1)
#define OPT_QUIET      (1u << 2)
#define OPT_RANGE      (1u << 3)
#define OPT_NO_WAIT    (1u << 4)
#define OPT_FORCE      (1u << 5)
#define OPT_PROMETHEUS (1u << 6)
#define OPT_NO_FLUSH   (1u << 7) /* --no-flush, -o no_flush */
#define OPT_REPAIR     (1u << 8)
#define OPT_SCRUB      (1u << 9)

struct cmd_opts {
	unsigned given;		 /* OPT_*, those that were used */
	struct byte_range range; /* everything, unless OPT_RANGE was given */
	char **operands;	 /* borrowed from argv (which is reordered) */
	int n_operands;
};

/*
 * Parse the options of argv[0] against `allowed`. True: go on. False: the command ends here with
 * *ret_exit, everything (help, or the error and a hint) has been printed.
 */
bool cmd_parse(int argc, char **argv, unsigned allowed, struct cmd_opts *ret, int *ret_exit);

/* ---- messages ------------------------------------------------------------------------------ */
/* "hybridfs: MESSAGE" on stderr. */
void cmd_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "hybridfs: PATH: MESSAGE" on stderr, the path escaped. */
void cmd_path_error(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Wrong use of a command: the message, a hint, and CMD_FAILED to return. */
int cmd_usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The exit code, after making sure that stdout took everything: a full disk must not read as
 * success. */
int cmd_finish(int exit_code);

#endif
