// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * session.h - the FUSE session: mounting it, and taking it away again without touching a mount that
 * is not ours (MNT may be SRC's own mount point: one umount(2) too many would unmount SRC).
 */
#ifndef HYBRIDFS_FS_SESSION_H
#define HYBRIDFS_FS_SESSION_H

#include <stdbool.h>
#include <sys/types.h>

struct fs;

/* Make fs->session and mount it, `ret_dev` is the new st_dev. 0 or an exit code, with a line on
 * stderr. */
int session_open(struct fs *fs, bool privileged, dev_t *ret_dev);
/*
 * Unmount, if `dev` is still what is mounted there. A busy mount has its mapped pages written and
 * is detached, its connection aborted: programs that have files open there get ENOTCONN. Needs a
 * running loop, unless `now`, which skips everything that the loop would have to answer.
 */
void session_unmount(struct fs *fs, dev_t dev, bool now);
/* The kernel has ended the connection: somebody unmounted us. */
bool session_gone(const struct fs *fs);
/* A descriptor of the caller's: a byte written to it ends the connection of the mount with this
 * st_dev, whatever has become of its mount points. It holds neither. -errno: there is no way. */
int session_abort_fd(dev_t dev);
/* Cut the connection, if unmounting did not. False: it can not be done from here. */
bool session_abort(dev_t dev);
/*
 * Let go of the connection; the descriptor stays valid, and dead, for threads that may still use
 * it. Then, when there are none, close it and free the session. Neither unmounts anything.
 */
void session_cut(struct fs *fs);
void session_close(struct fs *fs);
/* Lift limits of the kernel for filesystems in user space; needs root, else nothing happens. */
void session_tune(dev_t dev);

#endif
