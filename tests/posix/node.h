// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * node.h - making and looking at files of every type
 *
 * The makers end the test when they fail. The lookers follow no symlink and return -errno when they
 * fail, so that EXPECT_EQ(-ENOENT, size_of("f")) can be written.
 */
#ifndef POSIXTEST_NODE_H
#define POSIXTEST_NODE_H

#include "harness.h"

#include <sys/stat.h>

enum node_type {
	NODE_REG,
	NODE_DIR,
	NODE_FIFO,
	NODE_SOCK,
	NODE_LNK,
	NODE_CHR,
	NODE_BLK,
	NODE_TYPES
};

#define LONG_NAME_MAX 255

/* For all types that we may create: as an ordinary user there are no devices. */
#define for_each_type(t) for (enum node_type t = 0; t < node_type_end(); t++)

enum node_type node_type_end(void);
const char *node_name(enum node_type type);
mode_t node_ifmt(enum node_type type); /* S_IFREG and so on */

/* Makes path with these permissions whatever the umask is; a symlink points to "nowhere". */
void node_make(enum node_type type, const char *path, mode_t mode);

/* The same call for every type, as the program would make it; 0 or -1 and errno. */
int node_create(enum node_type type, const char *path, mode_t mode);

/* unlink() or rmdir(), whatever path is now. */
int node_remove(const char *path);

void make_file(const char *path, mode_t mode);
void make_dir(const char *path, mode_t mode);
void make_content(const char *path, const void *data, size_t size);

/* An empty file with a size. */
void make_sized(const char *path, off_t size);

/* Makes actor_owner the owner of path (of a symlink itself); nothing to do for ordinary users. */
void give(const char *path);
void give_to(const char *path, uid_t uid, gid_t gid);

/* What everybody may use, and actor_owner owns. */
void make_given(enum node_type type, const char *path);

/* A new empty directory that becomes the current one, for the next round of a loop. */
void fresh(void);

int exists(const char *path);	     /* 0, or -1 and errno, for EXPECT() */
long long mode_of(const char *path); /* permission bits, 07777 */
long long type_of(const char *path); /* S_IFMT bits */
long long size_of(const char *path);
long long nlink_of(const char *path);
long long ino_of(const char *path);
long long uid_of(const char *path);
long long gid_of(const char *path);
long long blocks_of(const char *path);

/* How many entries a directory has, without "." and "..". */
long long count_entries(const char *path);

/* Do the size bytes at off of path (all of them: file size matters, too) equal data? */
bool content_is(const char *path, const void *data, size_t size);
bool fd_content_is(int fd, off_t off, const void *data, size_t size);
bool fd_is_zero(int fd, off_t off, size_t size);

/* A pattern that differs at every offset and seed. */
void fill_pattern(void *buf, size_t size, unsigned int seed);

/* Closes fd and returns 0, or -1 with errno kept for a failed open(); fd is an open()'s result. */
int closing(int fd);

/* Where no system call may read or write. */
void *bad_address(void);

/* A name of length bytes, in one of two static buffers. */
const char *long_name(size_t length, char fill);

/* A relative path of exactly length bytes that leads to name: "././" in front of it. */
const char *long_path(size_t length, const char *name);

#endif
