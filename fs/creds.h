// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * creds.h - creating as the caller, and what belongs to the caller's identity.
 *
 * New inodes are created with the caller's fsuid, fsgid and umask, so that SRC's filesystem itself
 * decides owner, group of setgid directories, quota, and default ACL or umask. The kernel checked
 * the permissions on the mount before it asked us (default_permissions), so the capabilities that
 * a change of fsuid drops are raised again: a caller's supplementary groups need not be known.
 *
 * All of it is per thread: raw system calls (glibc's setxid would change every thread), and each
 * worker thread unshares its umask from the process the first time it needs another one.
 */
#ifndef HYBRIDFS_FS_CREDS_H
#define HYBRIDFS_FS_CREDS_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <sys/stat.h>

/* The umask that every thread has outside of creds_enter()/creds_leave(). */
#define DAEMON_UMASK 022

/*
 * Before any thread is started. True: we may act for others. False: everything is done as the user
 * we are; `ret_missing` (if not NULL) says in words what a privileged mount has that this has not.
 */
bool creds_init(const char **ret_missing);

struct creds {
	bool switched;
	mode_t mode; /* what to create with: the caller's, less an umask we could not set */
};

/*
 * Become the caller of `req` for creating something with `mode`, under the umask `mask` (usually
 * the caller's). -EPERM: his ids do not exist for us (user namespaces). After success
 * creds_leave() on the same thread, before anything else.
 */
int creds_enter(fuse_req_t req, mode_t mode, mode_t mask, struct creds *ret);
void creds_leave(const struct creds *c);

/* Is the caller in this group, by its gid or a supplementary one? Reads /proc. */
bool creds_in_group(fuse_req_t req, gid_t gid);

#endif
