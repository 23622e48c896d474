// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * src.h - the slow filesystem: identity of its files, and opening them by identity.
 *
 * A file is known by a `struct src_key`: its SRC file handle (name_to_handle_at(2): inode number
 * and generation), or, where there are no handles, its inode number and birth time. With handles
 * and CAP_DAC_READ_SEARCH (`by_handle`) a key alone opens the file whatever its name is now.
 * Without, a path relative to SRC has to be supplied, and what it leads to is checked to have the
 * right key. Keys are stored in the catalog, so their bytes never change meaning:
 *   data[0] = 1: file handle; data[1..4] handle type, little-endian; then the handle bytes
 *   data[0] = 2: inode number; data[1..8] st_ino, data[9..16] birth time ns (0 = unknown), LE
 *
 * Threads: everything here may be called from any thread; `struct src` is constant after init.
 */
#ifndef HYBRIDFS_TIER_SRC_H
#define HYBRIDFS_TIER_SRC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define SRC_KEY_MAX 144

struct src_key {
	uint32_t len; /* bytes used of data; 0 = no key */
	uint8_t data[SRC_KEY_MAX];
};

struct src {
	int root_fd;	 /* owned; O_RDONLY|O_DIRECTORY on SRC, opened before MNT covers it */
	char *path;	 /* owned; absolute, for messages only */
	dev_t dev;	 /* st_dev of SRC */
	bool by_handle;	 /* keys open files without a path */
	bool has_handles; /* keys are handles (maybe not openable by us) */
	bool ino_gen;	 /* they are inode number and generation, 32 bits each (ext4 and its kin) */
	bool read_only;	 /* SRC is mounted read-only */
	bool no_seek_data; /* SEEK_DATA/HOLE is not exact there */
	uint8_t uuid[16]; /* of the filesystem that holds SRC; from the best source available */
};

/*
 * Open SRC. Where we may (CAP_SYS_ADMIN), root_fd is on a private, non-recursive clone of SRC's
 * mount: a filesystem mounted below SRC is not entered, its mount point shows as the directory it
 * covers. -errno as open(2); -ENOTDIR.
 */
int src_init(struct src *s, const char *path);
void src_release(struct src *s);

/* Key of an open file (O_PATH is enough). -errno. */
int src_key_of_fd(const struct src *s, int fd, struct src_key *ret_key);
struct file_handle; /* of <fcntl.h> */
/* Key of what a handle of the kernel's names. -EINVAL: no handle. */
int src_key_of_handle(const struct file_handle *fh, struct src_key *ret_key);
/*
 * Key and stat of a name in a directory without opening it; not a symbolic link's target. -EAGAIN:
 * it has to be opened, because the two could not be proven to be of one file (keys here say
 * nothing, or the name changed hands meanwhile).
 */
int src_key_of_name(const struct src *s, int dir_fd, const char *name, struct src_key *ret_key,
		    struct stat *ret_stat);
uint64_t src_key_hash(const struct src_key *key);
bool src_key_equal(const struct src_key *a, const struct src_key *b);

/*
 * Open the file `key` with open(2) flags (O_CLOEXEC|O_NOFOLLOW are added). `path` is used only
 * when !by_handle and may be NULL. -ESTALE: there is no such file any more (or none at `path`).
 */
/* Does -ESTALE from src_open() mean that the file is gone? By path it may have been renamed. */
bool src_tells_gone(const struct src *s, const struct src_key *key);
int src_open(const struct src *s, const struct src_key *key, const char *path, int flags);

#endif
