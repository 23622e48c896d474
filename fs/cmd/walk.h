// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * walk.h - recursion over what the user named.
 *
 * Every regular file and directory below each path is visited, a directory before its content (so
 * that a pin of it covers files created meanwhile), names in order. A symlink that the user named
 * is followed, those met on the way are not; neither are other filesystems mounted below. Special
 * files are passed over. Memory: the names of one directory per level, and 16 to 48 bytes per inode
 * that may be met twice (several names, or several paths given).
 */
#ifndef HYBRIDFS_FS_CMD_WALK_H
#define HYBRIDFS_FS_CMD_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct walk_entry {
	const char *path; /* borrowed */
	const struct stat *st;
	bool is_root; /* named by the user; may be anything that exists */
	bool is_dir;
	bool repeated; /* another name of an inode that was visited before */
};

enum walk_result {
	WALK_ON,
	WALK_NEXT_PATH, /* leave the tree of this path */
	WALK_STOP,
};

typedef enum walk_result (*walk_visit_fn)(const struct walk_entry *e, void *arg);
/* A path that could not be visited; err is -errno. */
typedef void (*walk_error_fn)(const char *path, int err, void *arg);

void walk_paths(char *const *paths, size_t n, walk_visit_fn visit, walk_error_fn error, void *arg);

#endif
