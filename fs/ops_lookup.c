// SPDX-License-Identifier: GPL-2.0-or-later
/* LOOKUP, FORGET, and the way from a name to an inode that the other requests share. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

#include "db/base.h"
#include "fs/ops.h"

/* SRC's inode number of the root of ext4 and its kin: then every handle is inside of SRC. */
#define FILESYSTEM_ROOT_INO 2

/*
 * Without the privilege to clone SRC's mount, filesystems mounted below SRC (maybe this very one)
 * are in the way: their files would have keys that mean nothing here.
 */
int open_name(struct fs *fs, int dir_fd, const char *name)
{
	int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;

	if (fs->privileged) {
		int fd = openat(dir_fd, name, flags);

		return fd >= 0 ? fd : neg_errno();
	}
	struct open_how how = { .flags = (uint64_t)flags, .resolve = RESOLVE_NO_XDEV };
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

	return fd >= 0 ? (int)fd : neg_errno();
}

static void fill_entry(struct fs *fs, struct inode *i, const struct stat *st,
		       struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){ .ino = i->nodeid,
					  .generation = inode_generation(&fs->inodes, i),
					  .attr = *st,
					  .attr_timeout = attr_seconds(fs, i),
					  .entry_timeout = fs->entry_timeout_s };
	attr_show(fs, &ret->attr);
}

/* What is looked up: a key and a stat of SRC, and the descriptor they are from, or -1. */
struct found {
	struct src_key key;
	struct stat st;
	int fd; /* borrowed */
};

static int attr_of_inode(struct fs *fs, struct inode *i, struct stat *ret)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	int r = fd_get(fs, i, &ref);

	return r < 0 ? r : attr_of_fd(fs, i, ref.fd, ret);
}

static int attr_of_found(struct fs *fs, struct inode *i, struct found *f)
{
	if (attr_is_srcs(fs, i, &f->st))
		return 0;
	return f->fd < 0 ? attr_of_inode(fs, i, &f->st) : attr_of_fd(fs, i, f->fd, &f->st);
}

static int enter(struct fs *fs, struct found *f, struct inode *parent, const char *name,
		 struct fuse_entry_param *ret)
{
	struct inode *i = inode_lookup(&fs->inodes, &f->key, f->st.st_mode);

	if (!i)
		return -ENOMEM;
	if (parent && name)
		inode_add_name(&fs->inodes, i, parent, name);
	int r = attr_of_found(fs, i, f);

	if (r == 0)
		fill_entry(fs, i, &f->st, ret);
	else
		inode_forget(&fs->inodes, i->nodeid, 1);
	inode_put(&fs->inodes, i);
	return r;
}

int lookup_fd(struct fs *fs, int fd, struct inode *parent, const char *name,
	      struct fuse_entry_param *ret)
{
	struct found f = { .fd = fd };
	int r = src_key_of_fd(&fs->src, fd, &f.key);

	if (r < 0)
		return r;
	if (fstatat(fd, "", &f.st, AT_EMPTY_PATH) < 0)
		return neg_errno();
	return enter(fs, &f, parent, name, ret);
}

/* As lookup_fd(), and leaves the descriptor to the cache: what was looked up is used next. */
static int lookup_and_keep(struct fs *fs, int fd, struct inode *parent, const char *name,
			   struct fuse_entry_param *ret)
{
	int r = lookup_fd(fs, fd, parent, name, ret);
	struct inode *i = r == 0 ? inode_get(&fs->inodes, ret->ino) : NULL;

	if (i)
		fd_adopt(&fs->fds, i, fd, false);
	else
		close(fd);
	inode_put(&fs->inodes, i);
	return r;
}

/* Most names are looked up for their attributes only: two calls, no descriptor, where possible. */
int lookup_at(struct fs *fs, struct inode *parent, int dir_fd, const char *name,
	      struct fuse_entry_param *ret)
{
	struct found f = { .fd = -1 };
	int r = fs->privileged ? src_key_of_name(&fs->src, dir_fd, name, &f.key, &f.st) : -EAGAIN;

	if (r == 0)
		return enter(fs, &f, parent, name, ret);
	if (r != -EAGAIN)
		return r;
	int fd = open_name(fs, dir_fd, name);

	return fd < 0 ? fd : lookup_and_keep(fs, fd, parent, name, ret);
}

int lookup_name(struct fs *fs, struct inode *parent, const char *name, struct fuse_entry_param *ret)
{
	_cleanup_fd_ struct fd_ref dir = FD_REF_INIT;
	int r = fd_get(fs, parent, &dir);

	return r < 0 ? r : lookup_at(fs, parent, dir.fd, name, ret);
}

/* ---- "." and "..": asked for by NFS servers only, for nodes that may be forgotten ---------- */
static bool same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* A handle can name any file of SRC's filesystem; only what is below SRC is served. */
static bool is_below_src(struct fs *fs, int fd)
{
	struct stat st;

	if (fstat(fs->src.root_fd, &st) == 0 && st.st_ino == FILESYSTEM_ROOT_INO)
		return true;
	if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return false;
	_cleanup_close_ int at = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	while (at >= 0 && !same_file(at, fs->src.root_fd)) {
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		bool top = up < 0 || same_file(up, at);

		close(at);
		at = up;
		if (top)
			return false;
	}
	return at >= 0;
}

static int lookup_forgotten(struct fs *fs, fuse_ino_t ino, struct fuse_entry_param *ret)
{
	struct src_key key;

	if (!inode_key_of_id(&fs->inodes, ino, &key))
		return -ESTALE;
	_cleanup_close_ int fd = src_open(&fs->src, &key, NULL, O_PATH);

	if (fd < 0)
		return -ESTALE;
	if (!is_below_src(fs, fd))
		return -ESTALE;
	return lookup_fd(fs, fd, NULL, NULL, ret);
}

static int lookup_self(struct fs *fs, fuse_ino_t ino, struct fuse_entry_param *ret)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i)
		return lookup_forgotten(fs, ino, ret);
	int r = fd_get(fs, i, &ref);

	if (r == 0)
		r = lookup_fd(fs, ref.fd, NULL, NULL, ret);
	inode_put(&fs->inodes, i);
	return r;
}

static int lookup_parent(struct fs *fs, struct inode *i, struct fuse_entry_param *ret)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	int r = i == fs->inodes.root ? -ENOENT : fd_get(fs, i, &ref);

	if (r < 0)
		return r;
	_cleanup_close_ int up = open_name(fs, ref.fd, "..");

	return up < 0 ? up : lookup_fd(fs, up, NULL, NULL, ret);
}

/* ---- requests ------------------------------------------------------------------------------ */
static int do_lookup(struct fs *fs, fuse_ino_t parent, const char *name,
		     struct fuse_entry_param *ret)
{
	if (strcmp(name, ".") == 0)
		return lookup_self(fs, parent, ret);
	struct inode *dir = inode_get(&fs->inodes, parent);
	int r;

	if (!dir)
		return -ESTALE;
	if (strcmp(name, "..") == 0)
		r = lookup_parent(fs, dir, ret);
	else
		r = lookup_name(fs, dir, name, ret);
	inode_put(&fs->inodes, dir);
	return r;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int r = do_lookup(fs_of(req), parent, name, &e);

	reply_entry(req, r, &e, true);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	inode_forget(&fs_of(req)->inodes, ino, nlookup);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *fs = fs_of(req);

	for (size_t i = 0; i < count; i++)
		inode_forget(&fs->inodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}
