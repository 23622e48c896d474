// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mounts.h - /proc/self/mountinfo, as far as hybridfs is concerned.
 */
#ifndef HYBRIDFS_FS_CMD_MOUNTS_H
#define HYBRIDFS_FS_CMD_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MOUNTS_FSTYPE "fuse.hybridfs"

struct mount {
	int id, parent; /* parent: id of the mount this one lies on */
	dev_t dev;
	bool is_part;			    /* a bind mount of a subdirectory */
	char *mountpoint, *fstype, *source; /* owned */
};

struct mounts {
	struct mount *items; /* owned; in order of mounting */
	size_t n;
};

#define _cleanup_mounts_ __attribute__((cleanup(mounts_release)))

/* Every mount this process sees. 0 or -errno. */
int mounts_read(struct mounts *ret);
void mounts_release(struct mounts *m);
bool mount_is_ours(const struct mount *m);
const struct mount *mounts_find_id(const struct mounts *m, int id); /* or NULL */

/*
 * Which mount a path is on, and the path's canonical name (to free; ret_name may be NULL). Goes by
 * what the kernel knows (O_PATH, fdinfo) and asks no filesystem, so the top of a mount whose daemon
 * is dead or hangs is found too.
 */
int mounts_locate(const char *path, int *ret_id, char **ret_name);

/* Undo the kernel's \040-like octal escapes, in place. */
void mount_unescape(char *s);
/* One line of mountinfo, which is cut to pieces. -EINVAL when it is none, -ENOMEM. */
int mount_parse(char *line, struct mount *ret);
void mount_release(struct mount *m);

#endif
