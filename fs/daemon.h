// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon.h - one mount from beginning to end.
 *
 * The calling process forks (unless o->foreground), and returns when the mount answers requests or
 * could not be made. Threads of the daemon: FUSE workers; one for background work
 * (background.h); one that notifies the kernel (notify.h); one that waits for signals. Its one
 * child watches over its death (guard.h). SIGTERM, SIGINT and SIGHUP unmount and flush; a second
 * one stops the flush and leaves dirty data on the SSD for the next mount.
 */
#ifndef HYBRIDFS_FS_DAEMON_H
#define HYBRIDFS_FS_DAEMON_H

#include "fs/options.h"

/* Paths in `o` are resolved. Returns an exit code (enum mount_exit); failures before the mount
 * answered were told on stderr, in one line. */
int daemon_run(const struct mount_options *o);

#endif
