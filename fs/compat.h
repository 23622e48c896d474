// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * compat.h - kernel features that an old libfuse does not know how to ask for.
 *
 * libfuse before 3.17 can not negotiate FUSE_HANDLE_KILLPRIV_V2 nor passthrough, and 3.14 loses
 * FUSE_PARALLEL_DIROPS. The INIT reply is patched on its way to the kernel instead.
 */
#ifndef HYBRIDFS_FS_COMPAT_H
#define HYBRIDFS_FS_COMPAT_H

#include <fuse_lowlevel.h>
#include <stdbool.h>

struct compat {
	bool parallel_dirops, killpriv_v2, passthrough; /* what the kernel granted */
};

/*
 * Answer the kernel's INIT request. Once, after fuse_session_mount() and in the process that will
 * serve the mount, before the loop. Where the trick does not work the mount goes on with what
 * libfuse negotiates by itself. -errno: the connection is unusable.
 */
int compat_init(struct fuse_session *session, bool want_passthrough, struct compat *ret);

/* Passthrough. The object by which the kernel serves a file; `fd` may be O_PATH. An id > 0, or
 * -errno (-EPERM: not negotiated, or we are not privileged). */
int compat_backing_open(struct fuse_session *session, int fd);
void compat_backing_close(struct fuse_session *session, int id);
/* asked: read(2) and write(2) come to us, mappings go to the object. As fuse_reply_open(). */
int compat_reply_open(fuse_req_t req, const struct fuse_file_info *fi, int backing_id, bool asked);

#endif
