// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fs.h - the state of one mount, which every request handler gets as its user data.
 *
 * Everything here is set up before the first request and constant while requests are served; what
 * changes sits behind the objects it points to, each with its own lock (fs/README.md).
 */
#ifndef HYBRIDFS_FS_FS_H
#define HYBRIDFS_FS_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/fdcache.h"
#include "fs/handle.h"
#include "fs/inode.h"
#include "fs/options.h"
#include "fs/order.h"
#include "tier/src.h"
#include "tier/tfile.h"
#include "tier/volume.h"

struct fuse_session;
struct loop;
struct notifier;
struct passthrough;
struct watch;

struct fs {
	const struct mount_options *opt; /* borrowed */
	struct src src;
	struct volume *volume;	      /* owned */
	struct fuse_session *session; /* owned */
	struct inode_table inodes;
	struct fd_cache fds;
	struct handle_list handles;
	struct order order;
	struct notifier *notifier; /* owned; NULL before the mount */
	struct loop *loop;	   /* owned; NULL with -s, and while nothing is served */
	struct passthrough *pass;  /* owned; NULL: the kernel has to ask us for everything */
	struct watch *watch;	   /* owned; NULL: changes made in SRC are found by asking */
	double attr_timeout_s, entry_timeout_s, negative_timeout_s; /* for the kernel's caches */
	bool privileged;	   /* we may act as the caller, and around permissions */
	bool watchable;		   /* others' changes of SRC can be heard of */
	int fd_limit;		   /* open files may use descriptors below it: the rest is for us */
	size_t src_link_len;	   /* of SRC's path in /proc/self/fd, 0 for "/" */
	int64_t start_ns;	   /* CLOCK_MONOTONIC */
};

#endif
