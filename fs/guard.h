// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guard.h - a small process that ends the FUSE connection when the daemon dies without doing so.
 *
 * A killed process is gone when its last thread is. A thread that tells the kernel to drop pages
 * waits, even against SIGKILL, for a page that a READ has locked; the READ waits for an answer; the
 * kernel ends it when /dev/fuse is closed, which it is when the process is gone. Only somebody else
 * can cut that circle. See README.md.
 */
#ifndef HYBRIDFS_FS_GUARD_H
#define HYBRIDFS_FS_GUARD_H

#include <sys/types.h>

struct guard {
	pid_t pid; /* 0: there is none */
	int fd;	   /* owned, its life line; or -1 */
};

/*
 * Before the caller has threads or opens anything that the guard must not hold. What it watches is
 * the death of the calling thread, which has to be the process's first. 0 or -errno.
 */
int guard_start(struct guard *g);
/* From now on it guards the connection of the mount with this st_dev. -errno: it can not, and is
 * gone. */
int guard_watch(struct guard *g, dev_t dev);
/* It goes, without doing anything. Also when there is none. */
void guard_stop(struct guard *g);

#endif
