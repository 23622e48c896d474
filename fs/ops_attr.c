// SPDX-License-Identifier: GPL-2.0-or-later
/* Attributes: showing them, setting them, and what a write takes away (setuid and the like). */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/xattr.h>

#include "db/base.h"
#include "fs/creds.h"
#include "fs/log.h"
#include "fs/notify.h"
#include "fs/ops.h"
#include "fs/passthrough.h"
#include "fs/watch.h"
#include "tier/crash_point.h"

/* ---- showing ------------------------------------------------------------------------------- */
static int stat_fd(int fd, struct stat *ret)
{
	return fstatat(fd, "", ret, AT_EMPTY_PATH) < 0 ? neg_errno() : 0;
}

static void note_privs(struct inode *i, const struct stat *st)
{
	if (st->st_mode & (S_ISUID | S_ISGID))
		inode_clear(i, INODE_NO_PRIVS);
}

/* Size and times of a file the tier knows: SRC's are only good if read between the two calls. */
static int stat_tracked(struct fs *fs, struct inode *i, struct tfile *f, int fd, struct stat *ret)
{
	uint64_t token = tfile_stat_begin(f);
	int r = stat_fd(fd, ret);

	if (r == 0 && tfile_stat_end(f, token, ret))
		notify_pages(fs, i);
	return r;
}

static struct tfile *tracked(struct fs *fs, const struct inode *i)
{
	struct src_key key;

	if (!inode_is_reg(i))
		return NULL;
	inode_key(i, &key);
	return tfile_peek(fs->volume, &key);
}

bool attr_is_srcs(struct fs *fs, struct inode *i, const struct stat *st)
{
	struct tfile *f = tracked(fs, i);

	if (f)
		tfile_put(f);
	else
		note_privs(i, st);
	return !f;
}

int attr_of_fd(struct fs *fs, struct inode *i, int fd, struct stat *ret)
{
	struct tfile *f = tracked(fs, i);
	int r = f ? stat_tracked(fs, i, f, fd, ret) : stat_fd(fd, ret);

	if (r == 0)
		note_privs(i, ret);
	tfile_put(f);
	return r;
}

double attr_seconds(struct fs *fs, const struct inode *i)
{
	struct tfile *f = fs->attr_timeout_s > PLAIN_TIMEOUT_S ? tracked(fs, i) : NULL;

	tfile_put(f);
	return f ? PLAIN_TIMEOUT_S : fs->attr_timeout_s;
}

void attr_show(const struct fs *fs, struct stat *st)
{
	const struct mount_options *o = fs->opt;

	if (o->set_uid)
		st->st_uid = o->uid;
	if (o->set_gid)
		st->st_gid = o->gid;
	if (o->set_umask)
		st->st_mode = (st->st_mode & S_IFMT) | (0777 & ~o->umask);
}

uint32_t attr_stamp(const struct stat *st)
{
	uint64_t n = (uint64_t)st->st_size;

	n = (n ^ (uint64_t)st->st_mtim.tv_sec) * 0x9e3779b97f4a7c15u;
	n = (n ^ n >> 29 ^ (uint64_t)st->st_mtim.tv_nsec) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(n >> 32) | 1;
}

void attr_unsynced(struct inode *i, struct tfile *f)
{
	if (i)
		inode_clear(i, INODE_SYNCED);
	if (f)
		tfile_src_unsynced(f);
}

/* ---- the tier's file ----------------------------------------------------------------------- */
char *path_hint(struct fs *fs, struct inode *i, int fd)
{
	static const char deleted[] = " (deleted)";
	char proc[FD_PROC_PATH_MAX], link[PATH_MAX];

	if (!fs->src.by_handle)
		return inode_path(&fs->inodes, i);
	ssize_t n = readlink(fd_proc_path(fd, proc), link, sizeof(link));
	size_t skip = fs->src_link_len + 1, tail = sizeof(deleted) - 1;

	if (n < (ssize_t)skip || (size_t)n >= sizeof(link) || link[skip - 1] != '/')
		return NULL;
	if ((size_t)n > tail && memcmp(link + n - tail, deleted, tail) == 0)
		return NULL;
	return strndup(link + skip, (size_t)n - skip);
}

int file_get(struct fs *fs, struct inode *i, int fd, struct tfile **ret)
{
	struct src_key key;

	inode_key(i, &key);
	*ret = tfile_peek(fs->volume, &key);
	if (*ret)
		return 0;
	_cleanup_free_ char *path = path_hint(fs, i, fd);

	return tfile_get(fs->volume, &key, path, ret);
}

void file_gone(void *ctx, const struct src_key *key)
{
	struct fs *fs = ctx;
	struct tfile *f;

	if (tfile_get(fs->volume, key, NULL, &f) < 0)
		return; /* its data on the SSD is found by the next mount's sweep */
	tfile_dead(f);
	tfile_put(f);
}

/* ---- setuid, setgid, file capabilities ----------------------------------------------------- */
/* The rule of the kernel's setattr_should_drop_suidgid(). */
static mode_t privs_to_drop(fuse_req_t req, const struct stat *st)
{
	mode_t drop = st->st_mode & S_ISUID;

	if ((st->st_mode & S_ISGID) &&
	    ((st->st_mode & S_IXGRP) || !creds_in_group(req, st->st_gid)))
		drop |= S_ISGID;
	return drop;
}

static int drop_privs(const char *path, mode_t mode, mode_t drop, bool caps)
{
	if (drop && chmod(path, mode & 07777 & ~drop) < 0)
		return neg_errno();
	if (caps && removexattr(path, XATTR_FILE_CAPS) < 0 && errno != ENODATA)
		return neg_errno();
	return 0;
}

/* ... in SRC, and known to everybody who has to know. */
static int take_privs(struct fs *fs, struct inode *i, struct tfile *f, const char *path,
		      mode_t mode, mode_t drop, bool caps)
{
	int r = tfile_change_begin(f);

	if (r < 0)
		return r;
	r = drop_privs(path, mode, drop, caps);
	tfile_change_end(f);
	attr_unsynced(i, f);
	notify_attributes(fs, i->nodeid);
	return r;
}

static bool has_caps(const char *path)
{
	return getxattr(path, XATTR_FILE_CAPS, NULL, 0) > 0;
}

static int clear_privs_of_fd(fuse_req_t req, struct inode *i, struct tfile *f, int fd)
{
	struct fs *fs = fs_of(req);
	char path[FD_PROC_PATH_MAX];
	struct stat st;
	int r = stat_fd(fd, &st);

	if (r < 0)
		return r;
	mode_t drop = privs_to_drop(req, &st);
	bool caps = has_caps(fd_proc_path(fd, path));

	if (drop || caps) {
		r = take_privs(fs, i, f, path, st.st_mode, drop, caps);
		if (r == -EPERM && !fs->privileged)
			return 0; /* not our file: nothing we could do about it */
	}
	/* A setgid bit that stays for this caller may have to go for the next one. */
	if (r == 0 && !(st.st_mode & S_ISGID & ~drop))
		inode_set(i, INODE_NO_PRIVS);
	return r;
}

int clear_privs(fuse_req_t req, struct inode *i, struct tfile *f)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;

	if (inode_has(i, INODE_NO_PRIVS))
		return 0;
	int r = fd_get(fs_of(req), i, &ref);

	return r < 0 ? r : clear_privs_of_fd(req, i, f, ref.fd);
}

bool attr_has_privs(struct inode *i, int fd)
{
	char path[FD_PROC_PATH_MAX];
	struct stat st;

	if (inode_has(i, INODE_NO_PRIVS))
		return false;
	if (stat_fd(fd, &st) < 0 || (st.st_mode & (S_ISUID | S_ISGID)) ||
	    has_caps(fd_proc_path(fd, path)))
		return true;
	inode_set(i, INODE_NO_PRIVS);
	return false;
}

void attr_drop_all_privs(struct fs *fs, struct inode *i, struct tfile *f)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	char path[FD_PROC_PATH_MAX];
	struct stat st;

	if (fd_get(fs, i, &ref) < 0 || stat_fd(ref.fd, &st) < 0)
		return;
	mode_t drop = S_ISUID | (st.st_mode & S_IXGRP ? S_ISGID : 0);
	int r = take_privs(fs, i, f, fd_proc_path(ref.fd, path), st.st_mode, drop, true);

	if (r < 0)
		log_line(LOG_WARNING, "cannot take setuid away: %s", strerror(-r));
}

/* ---- setting ------------------------------------------------------------------------------- */
struct change {
	fuse_req_t req;
	struct inode *inode;
	struct tfile *file; /* NULL unless it is a regular file */
	int fd;
	const struct stat *attr;
	int to_set;
};

/*
 * Also asked for nothing at all (to_set is 0): that is how chown(2) with two -1 arrives, and the
 * kernel's wish that a write clears setuid. The same call in SRC does what either should.
 */
static int change_owner(const struct change *c)
{
	uid_t uid = c->to_set & FUSE_SET_ATTR_UID ? c->attr->st_uid : (uid_t)-1;
	gid_t gid = c->to_set & FUSE_SET_ATTR_GID ? c->attr->st_gid : (gid_t)-1;
	char path[FD_PROC_PATH_MAX];
	struct stat before;

	if (stat_fd(c->fd, &before) < 0 || fchownat(c->fd, "", uid, gid, AT_EMPTY_PATH) < 0)
		return neg_errno();
	/* SRC's kernel cleared what it would for us; a caller outside of the group loses more. */
	bool more = c->file && (before.st_mode & S_ISGID) && !(before.st_mode & S_IXGRP) &&
		    fuse_req_ctx(c->req)->uid != 0 && !creds_in_group(c->req, before.st_gid);

	if (more && chmod(fd_proc_path(c->fd, path), before.st_mode & 01777) < 0)
		return neg_errno();
	return 0;
}

static int change_owner_and_mode(const struct change *c)
{
	char path[FD_PROC_PATH_MAX];
	int r = c->file ? tfile_change_begin(c->file) : 0;

	if (r < 0)
		return r;
	if (c->to_set == 0 || (c->to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)))
		r = change_owner(c);
	if (r == 0 && (c->to_set & FUSE_SET_ATTR_MODE) &&
	    chmod(fd_proc_path(c->fd, path), c->attr->st_mode & 07777) < 0)
		r = neg_errno();
	inode_clear(c->inode, INODE_NO_PRIVS);
	if (c->file)
		tfile_change_end(c->file);
	if (c->file && (c->to_set & FUSE_SET_ATTR_MODE) &&
	    (c->attr->st_mode & (S_ISUID | S_ISGID)))
		passthrough_got_privs(fs_of(c->req), c->inode, c->file);
	return r;
}

static int truncate_in_use(const struct change *c)
{
	bool kill = (c->to_set & FUSE_SET_ATTR_KILL_SUID) || fuse_req_ctx(c->req)->uid != 0;
	int r = kill ? clear_privs(c->req, c->inode, c->file) : 0;

	return r < 0 ? r : tfile_truncate(c->file, (uint64_t)c->attr->st_size);
}

static int change_size(const struct change *c)
{
	if (!c->file)
		return -EINVAL;
	int r = tfile_use(c->file, true);

	if (r < 0)
		return r;
	r = truncate_in_use(c);
	tfile_unuse(c->file);
	return r;
}

static int change_times(const struct change *c)
{
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_OMIT } };

	if (c->to_set & FUSE_SET_ATTR_ATIME)
		tv[0] = c->attr->st_atim;
	if (c->to_set & FUSE_SET_ATTR_ATIME_NOW)
		tv[0].tv_nsec = UTIME_NOW;
	if (c->to_set & FUSE_SET_ATTR_MTIME)
		tv[1] = c->attr->st_mtim;
	if (c->to_set & FUSE_SET_ATTR_MTIME_NOW)
		tv[1].tv_nsec = UTIME_NOW;
	/* A truncation brings the time by itself. */
	if ((c->to_set & FUSE_SET_ATTR_SIZE) && tv[1].tv_nsec == UTIME_NOW)
		tv[1].tv_nsec = UTIME_OMIT;
	if (tv[0].tv_nsec == UTIME_OMIT && tv[1].tv_nsec == UTIME_OMIT)
		return 0;
	if (c->file)
		return tfile_set_times(c->file, tv);
	return utimensat(c->fd, "", tv, AT_EMPTY_PATH) < 0 ? neg_errno() : 0;
}

static int change_all(const struct change *c)
{
	int r = 0;

	if (c->to_set == 0 ||
	    (c->to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)))
		r = change_owner_and_mode(c);
	if (r == 0 && (c->to_set & FUSE_SET_ATTR_SIZE))
		r = change_size(c);
	if (r == 0)
		r = change_times(c);
	attr_unsynced(c->inode, c->file);
	return r;
}

/* Does what page caches hold still have the stamp that it had when the file was last closed? */
static bool stamp_fits(struct fs *fs, const struct change *c)
{
	struct stat st;
	uint32_t stamp = atomic_load(&c->inode->stamp);

	return stamp && attr_of_fd(fs, c->inode, c->fd, &st) == 0 && stamp == attr_stamp(&st);
}

static int set_attributes(struct fs *fs, struct change *c, struct stat *ret)
{
	int r = inode_is_reg(c->inode) ? file_get(fs, c->inode, c->fd, &c->file) : 0;

	if (r < 0)
		return r;
	bool fits = c->file && stamp_fits(fs, c);

	r = change_all(c);
	if (r == 0)
		r = attr_of_fd(fs, c->inode, c->fd, ret);
	if (r == 0 && fits)
		atomic_store(&c->inode->stamp, attr_stamp(ret));
	tfile_put(c->file);
	return r;
}

static int do_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat *attr, int to_set,
		      struct stat *ret, double *ret_seconds)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct fs *fs = fs_of(req);
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i)
		return -ESTALE;
	int r = fd_get(fs, i, &ref);

	if (r == 0) {
		struct change c = {
			.req = req, .inode = i, .fd = ref.fd, .attr = attr, .to_set = to_set
		};

		r = set_attributes(fs, &c, ret);
		*ret_seconds = attr_seconds(fs, i);
	}
	inode_put(&fs->inodes, i);
	return r;
}

static int do_getattr(struct fs *fs, fuse_ino_t ino, struct stat *ret, double *ret_seconds)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i)
		return -ESTALE;
	crash_point(CP_REQUEST_TAKEN);
	int r = fd_get(fs, i, &ref);

	if (r == 0)
		r = attr_of_fd(fs, i, ref.fd, ret);
	*ret_seconds = attr_seconds(fs, i);
	inode_put(&fs->inodes, i);
	return r;
}

static int do_readlink(struct fs *fs, fuse_ino_t ino, char *buf, size_t size)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct inode *i = inode_get(&fs->inodes, ino);
	ssize_t n = -1;

	if (!i)
		return -ESTALE;
	int r = fd_get(fs, i, &ref);

	if (r == 0) {
		n = readlinkat(ref.fd, "", buf, size - 1);
		r = n < 0 ? neg_errno() : 0;
	}
	inode_put(&fs->inodes, i);
	if (r == 0)
		buf[n] = '\0';
	return r;
}

/* ---- requests ------------------------------------------------------------------------------ */
static void reply_attr(fuse_req_t req, int r, struct stat *st, double seconds)
{
	struct fs *fs = fs_of(req);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	attr_show(fs, st);
	fuse_reply_attr(req, st, seconds);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	double seconds = 0;

	(void)fi;
	int r = do_getattr(fs_of(req), ino, &st, &seconds);

	reply_attr(req, r, &st, seconds);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct stat st;
	double seconds = 0;

	(void)fi; /* an open file is found by its inode as well: it is in memory */
	int r = do_setattr(req, ino, attr, to_set, &st, &seconds);

	reply_attr(req, r, &st, seconds);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	int r = do_readlink(fs_of(req), ino, target, sizeof(target));

	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_readlink(req, target);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int r = volume_statvfs(fs_of(req)->volume, &st);

	(void)ino;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_statfs(req, &st);
}
