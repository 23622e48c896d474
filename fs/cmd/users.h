// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * users.h - who keeps a mount busy: processes with an open file, a working directory, a root, a
 * program or a mapping on it, and mounts below it. As an ordinary user only one's own processes
 * can be looked into.
 */
#ifndef HYBRIDFS_FS_CMD_USERS_H
#define HYBRIDFS_FS_CMD_USERS_H

#include <stdio.h>

#include "fs/cmd/mounts.h"

#define USERS_LISTED_MAX 5

/* Write "bash (pid 12, working directory), ..." to f; at most USERS_LISTED_MAX of them. `daemon`
 * is left out. Returns how many were written: 0 = nobody could be found. */
unsigned users_put(FILE *f, const struct mount *m, pid_t daemon);

#endif
