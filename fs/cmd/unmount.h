// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * unmount.h - taking a FUSE filesystem out of the tree, by the system call or by fusermount3.
 */
#ifndef HYBRIDFS_FS_CMD_UNMOUNT_H
#define HYBRIDFS_FS_CMD_UNMOUNT_H

/*
 * Unmount what is on top of `mountpoint` (canonical). 0; -EBUSY when it is in use; another -errno,
 * then *ret_text may be fusermount3's own words (to free), else NULL.
 */
int unmount_path(const char *mountpoint, char **ret_text);

#endif
