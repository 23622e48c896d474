// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * option_table.h - the -o options one by one: their names, values, and what they set. Only for
 * options.c, which takes the command line apart.
 */
#ifndef HYBRIDFS_FS_OPTION_TABLE_H
#define HYBRIDFS_FS_OPTION_TABLE_H

#include "fs/options.h"

/* "hybridfs: MESSAGE" and a hint on stderr; MOUNT_USAGE, to be returned. */
int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr; MOUNT_SYSTEM. */
int out_of_memory(void);

/* Set NAME=VALUE, or NAME alone when value is NULL. 0 or an exit code, after a message. */
int option_apply(struct mount_options *o, const char *name, const char *value);

#endif
