// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Extended attributes are SRC's, reached through /proc/self/fd (the *at calls of Linux 6.13 do not
 * take O_PATH descriptors). user.hybridfs.* is ours: made up when it is read, never listed, never
 * written, so that copies of a file do not carry it along.
 */
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/creds.h"
#include "fs/ops.h"

#define VIRTUAL_PREFIX	  "user.hybridfs."
#define TRUSTED_PREFIX	  "trusted."
#define XATTR_SELINUX	  "security.selinux"
#define XATTR_ACL_ACCESS  "system.posix_acl_access"
#define VIRTUAL_VALUE_MAX 32

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- the virtual ones ---------------------------------------------------------------------- */
#define ROWS 64u

/* Is something on the slow side only? Holes are nowhere. */
static bool misses_data(struct tfile *f)
{
	struct tfile_extent rows[ROWS];
	uint64_t start = 0;
	unsigned n;

	while (start != UINT64_MAX) {
		if (tfile_extents(f, &start, true, rows, ROWS, &n) < 0)
			return true;
		for (unsigned i = 0; i < n; i++)
			if (rows[i].state == 0 && !rows[i].hole)
				return true;
	}
	return false;
}

static const char *tier_of(struct tfile *f, const struct tfile_figures *figures)
{
	if (figures->ssd_bytes == 0)
		return "hdd";
	return figures->ssd_bytes >= figures->size_bytes || !misses_data(f) ? "ssd" : "mixed";
}

static int print_figure(const struct tfile_figures *f, const char *name, char *buf)
{
	if (strcmp(name, "ssd_bytes") == 0)
		return snprintf(buf, VIRTUAL_VALUE_MAX, "%llu", (unsigned long long)f->ssd_bytes);
	if (strcmp(name, "dirty_bytes") == 0)
		return snprintf(buf, VIRTUAL_VALUE_MAX, "%llu", (unsigned long long)f->dirty_bytes);
	if (strcmp(name, "pinned") == 0)
		return snprintf(buf, VIRTUAL_VALUE_MAX, "%d", f->pinned);
	return -ENODATA;
}

static int get_virtual(struct fs *fs, struct inode *i, int fd, const char *name, char *buf)
{
	struct tfile_figures figures = { 0 };
	struct src_key key;
	struct tfile *f;

	name += strlen(VIRTUAL_PREFIX);
	if (inode_is_dir(i) && strcmp(name, "pinned") == 0) {
		inode_key(i, &key);
		figures.pinned = volume_dir_pinned(fs->volume, &key);
		return print_figure(&figures, name, buf);
	}
	if (!inode_is_reg(i))
		return -ENODATA;
	int r = file_get(fs, i, fd, &f);

	if (r < 0)
		return r;
	tfile_figures(f, &figures);
	r = strcmp(name, "tier") == 0
		    ? snprintf(buf, VIRTUAL_VALUE_MAX, "%s", tier_of(f, &figures))
		    : print_figure(&figures, name, buf);
	tfile_put(f);
	return r;
}

/* Labels that were stored are shown all the same. */
static bool has_selinux(void)
{
	static _Atomic int known; /* 1: no, 2: yes */

	if (!known)
		known = access("/sys/fs/selinux/enforce", F_OK) == 0 ? 2 : 1;
	return known == 2;
}

/* ---- reading ------------------------------------------------------------------------------- */
static ssize_t get_value(struct fs *fs, struct inode *i, int fd, const char *name, char *buf)
{
	char path[FD_PROC_PATH_MAX];

	if (has_prefix(name, VIRTUAL_PREFIX))
		return get_virtual(fs, i, fd, name, buf);
	ssize_t n = getxattr(fd_proc_path(fd, path), name, buf, XATTR_SIZE_MAX);

	/* `ls -l` asks for the label of each file, until it is told that there are none. */
	if (n < 0 && errno == ENODATA && strcmp(name, XATTR_SELINUX) == 0 && !has_selinux())
		return -EOPNOTSUPP;
	return n >= 0 ? n : neg_errno();
}

/* trusted.* is for root's eyes, as on other filesystems; the daemon would see it for everybody. */
static bool shown(const char *name, bool is_root)
{
	return !has_prefix(name, VIRTUAL_PREFIX) && (is_root || !has_prefix(name, TRUSTED_PREFIX));
}

static ssize_t list_names(int fd, bool is_root, char *buf)
{
	char path[FD_PROC_PATH_MAX];
	ssize_t n = listxattr(fd_proc_path(fd, path), buf, XATTR_LIST_MAX), kept = 0;

	if (n < 0)
		return neg_errno();
	for (ssize_t at = 0, len; at < n; at += len) {
		len = (ssize_t)strlen(buf + at) + 1;
		if (!shown(buf + at, is_root))
			continue;
		memmove(buf + kept, buf + at, (size_t)len);
		kept += len;
	}
	return kept;
}

/* name NULL: the list of names. */
static ssize_t do_read(fuse_req_t req, fuse_ino_t ino, const char *name, char *buf)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct fs *fs = fs_of(req);
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i || !buf) {
		inode_put(&fs->inodes, i);
		return i ? -ENOMEM : -ESTALE;
	}
	/* The kernel asks for them before the first write to a file. */
	bool no_caps = name && strcmp(name, XATTR_FILE_CAPS) == 0 && inode_has(i, INODE_FRESH) &&
		       inode_has(i, INODE_NO_PRIVS);
	ssize_t n = no_caps ? -ENODATA : fd_get(fs, i, &ref);

	if (n == 0)
		n = name ? get_value(fs, i, ref.fd, name, buf) :
			   list_names(ref.fd, fuse_req_ctx(req)->uid == 0, buf);
	inode_put(&fs->inodes, i);
	return n;
}

static void reply_bytes(fuse_req_t req, ssize_t n, const char *buf, size_t size)
{
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

/* ---- writing ------------------------------------------------------------------------------- */
struct change {
	const char *name, *value; /* value NULL: remove it */
	size_t size;
	int flags;
};

static int set_in_src(int fd, const struct change *c)
{
	char path[FD_PROC_PATH_MAX];
	int r;

	fd_proc_path(fd, path);
	if (c->value)
		r = setxattr(path, c->name, c->value, c->size, c->flags);
	else
		r = removexattr(path, c->name);
	return r < 0 ? neg_errno() : 0;
}

/* A caller outside of the file's group loses its setgid bit by setting an ACL, as with chmod. */
static int drop_setgid(fuse_req_t req, int fd)
{
	char path[FD_PROC_PATH_MAX];
	struct stat st;

	if (fstatat(fd, "", &st, AT_EMPTY_PATH) < 0)
		return neg_errno();
	if (!(st.st_mode & S_ISGID) || creds_in_group(req, st.st_gid))
		return 0;
	return chmod(fd_proc_path(fd, path), st.st_mode & 05777) < 0 ? neg_errno() : 0;
}

static int change_xattr(fuse_req_t req, struct inode *i, int fd, const struct change *c)
{
	struct tfile *f = NULL;
	int r = inode_is_reg(i) ? file_get(fs_of(req), i, fd, &f) : 0;

	if (r == 0 && f)
		r = tfile_change_begin(f);
	if (r < 0) {
		tfile_put(f);
		return r;
	}
	r = set_in_src(fd, c);
	if (r == 0 && strcmp(c->name, XATTR_ACL_ACCESS) == 0 && fuse_req_ctx(req)->uid != 0)
		r = drop_setgid(req, fd);
	inode_clear(i, INODE_NO_PRIVS);
	if (f)
		tfile_change_end(f);
	attr_unsynced(i, f);
	tfile_put(f);
	return r;
}

static int do_change(fuse_req_t req, fuse_ino_t ino, const struct change *c)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct fs *fs = fs_of(req);
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i)
		return -ESTALE;
	int r = has_prefix(c->name, VIRTUAL_PREFIX) ? -EPERM : fd_get(fs, i, &ref);

	if (r == 0)
		r = change_xattr(req, i, ref.fd, c);
	inode_put(&fs->inodes, i);
	return r;
}

/* ---- requests ------------------------------------------------------------------------------ */
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char *buf = io_buffer();

	reply_bytes(req, do_read(req, ino, name, buf), buf, size);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char *buf = io_buffer();

	reply_bytes(req, do_read(req, ino, NULL, buf), buf, size);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct change c = { .name = name, .value = value, .size = size, .flags = flags };

	reply_result(req, do_change(req, ino, &c));
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct change c = { .name = name };

	reply_result(req, do_change(req, ino, &c));
}
