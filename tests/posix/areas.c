// SPDX-License-Identifier: GPL-2.0-or-later
#include "areas.h"

/* clang-format off */
const struct area *const areas[] = {
	&area_path,
	&area_perm,
	&area_object,
	&area_sticky,
	&area_chmod,
	&area_chown,
	&area_truncate,
	&area_link,
	&area_mkdir,
	&area_mknod,
	&area_open,
	&area_tmpfile,
	&area_unlink,
	&area_symlink,
	&area_rename,
	&area_utimens,
	&area_times,
	&area_times_file,
	&area_times_failed,
	&area_suid,
	&area_inherit,
	&area_acl,
	&area_xattr,
	&area_io,
	&area_seek,
	&area_fallocate,
	&area_copy,
	&area_map,
	&area_lock,
	&area_dir,
	&area_exec,
	&area_fs,
};
/* clang-format on */

const size_t area_count = ARRAY_SIZE(areas);
