// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ops.h - the FUSE requests. op_x() decodes a request, do_x() does it and returns -errno, op_x()
 * replies: one place to reply per request.
 *
 * The files: ops.c (table, negotiation, shared helpers), ops_lookup.c, ops_attr.c, ops_dir.c,
 * ops_file.c, ops_name.c (making, moving and removing names), ops_xattr.c, ops_ioctl.c.
 *
 * Not implemented on purpose, so that the kernel does it by itself: access (default_permissions),
 * flush (nothing to do), getlk, setlk, flock (local locks are right: all users share this mount).
 */
#ifndef HYBRIDFS_FS_OPS_H
#define HYBRIDFS_FS_OPS_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "fs/fs.h"

extern const struct fuse_lowlevel_ops fs_operations;

/* The largest READ, WRITE or directory listing of one request. */
#define IO_BYTES (1u << 20)

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- shared by the files ------------------------------------------------------------------- */
/* This thread's own buffer of IO_BYTES, or NULL; freed when the thread ends. */
void *io_buffer(void);

/* One reply for everything that has no result. r: 0 or -errno. */
void reply_result(fuse_req_t req, int r);
/* LOOKUP and everything that makes a name. -ENOENT of a lookup becomes a cached negative entry when
 * `negative`. Takes the lookup back if the kernel did not take the reply. */
void reply_entry(fuse_req_t req, int r, const struct fuse_entry_param *e, bool negative);

/* ---- ops_lookup.c -------------------------------------------------------------------------- */
/* The entry `name` of the directory, as a lookup the kernel may count. */
int lookup_name(struct fs *fs, struct inode *parent, const char *name,
		struct fuse_entry_param *ret);
/* The same for a file that is open as `fd`. `parent` may be NULL: the name is not known. */
int lookup_fd(struct fs *fs, int fd, struct inode *parent, const char *name,
	      struct fuse_entry_param *ret);
/* The same when the directory is open as `dir_fd`. */
int lookup_at(struct fs *fs, struct inode *parent, int dir_fd, const char *name,
	      struct fuse_entry_param *ret);
/* An O_PATH descriptor of a name in a directory; never leaves SRC's filesystem. */
int open_name(struct fs *fs, int dir_fd, const char *name);

/* ---- ops_attr.c ---------------------------------------------------------------------------- */
#define XATTR_FILE_CAPS "security.capability"

/* SRC's stat of an open (O_PATH) file with what is newer on the SSD. */
int attr_of_fd(struct fs *fs, struct inode *i, int fd, struct stat *ret);
/* Is SRC's stat, read just now, all there is to say? False: the tier knows the file, use
 * attr_of_fd(). */
bool attr_is_srcs(struct fs *fs, struct inode *i, const struct stat *st);
/* How long the kernel may keep them. Those of a file in the tier's memory can change here. */
double attr_seconds(struct fs *fs, const struct inode *i);
/* What the mount shows instead (uid=, gid=, umask=). */
void attr_show(const struct fs *fs, struct stat *st);
/* A word for the content that page caches hold: changes when size or mtime do; never 0. */
uint32_t attr_stamp(const struct stat *st);
/* The inode's metadata or a name of it was changed in SRC: an fsync must reach SRC. `f` may be
 * NULL. */
void attr_unsynced(struct inode *i, struct tfile *f);
/*
 * A write, truncation or allocation by this caller: clear setuid, setgid and file capabilities as
 * the kernel does on other filesystems. `f` is the file's, for bracketing.
 */
int clear_privs(fuse_req_t req, struct inode *i, struct tfile *f);

/* Has the file anything that a write may take away? `fd` is O_PATH. */
bool attr_has_privs(struct inode *i, int fd);
/* Take it away, as the write of somebody who is not root does. */
void attr_drop_all_privs(struct fs *fs, struct inode *i, struct tfile *f);

/* Path relative to SRC of an inode that is open as `fd`, malloc'ed; NULL: not known. Only a hint
 * where handles open files. */
char *path_hint(struct fs *fs, struct inode *i, int fd);
/* The tier's file of a regular file, a reference. */
int file_get(struct fs *fs, struct inode *i, int fd, struct tfile **ret);
/* An inode_gone_fn; ctx is the struct fs. */
void file_gone(void *ctx, const struct src_key *key);

/* ---- the requests -------------------------------------------------------------------------- */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags);

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags);

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
	      size_t out_size);

#endif
