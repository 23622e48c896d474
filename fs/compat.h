// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * compat.h - kernel features that an old libfuse does not know how to ask for.
 *
 * libfuse before 3.17 can not negotiate FUSE_HANDLE_KILLPRIV_V2 nor passthrough, and 3.14 loses
 * FUSE_PARALLEL_DIROPS. The INIT reply is patched on its way to the kernel instead.
 */
#ifndef HYBRIDFS_FS_COMPAT_H
#define HYBRIDFS_FS_COMPAT_H

#include <stdbool.h>

struct fuse_session;

struct compat {
	bool parallel_dirops, killpriv_v2, passthrough; /* what the kernel granted */
};

/*
 * Answer the kernel's INIT request. Once, after fuse_session_mount() and in the process that will
 * serve the mount, before the loop. Where the trick does not work the mount goes on with what
 * libfuse negotiates by itself. -errno: the connection is unusable.
 */
int compat_init(struct fuse_session *session, bool want_passthrough, struct compat *ret);

#endif
