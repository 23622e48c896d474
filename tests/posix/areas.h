// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * areas.h - all areas of checks, in the order in which they run
 */
#ifndef POSIXTEST_AREAS_H
#define POSIXTEST_AREAS_H

#include "harness.h"

extern const struct area area_path;
extern const struct area area_perm;
extern const struct area area_object;
extern const struct area area_sticky;
extern const struct area area_chmod;
extern const struct area area_chown;
extern const struct area area_truncate;
extern const struct area area_link;
extern const struct area area_mkdir;
extern const struct area area_mknod;
extern const struct area area_open;
extern const struct area area_tmpfile;
extern const struct area area_unlink;
extern const struct area area_symlink;
extern const struct area area_rename;
extern const struct area area_utimens;
extern const struct area area_times;
extern const struct area area_times_file;
extern const struct area area_times_failed;
extern const struct area area_suid;
extern const struct area area_inherit;
extern const struct area area_acl;
extern const struct area area_xattr;
extern const struct area area_io;
extern const struct area area_seek;
extern const struct area area_fallocate;
extern const struct area area_copy;
extern const struct area area_map;
extern const struct area area_lock;
extern const struct area area_dir;
extern const struct area area_exec;
extern const struct area area_fs;

extern const struct area *const areas[];
extern const size_t area_count;

#endif
