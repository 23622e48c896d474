// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Making, moving and removing names. SRC does all of it; the tier has to know which of its files
 * is touched: changes of SRC are bracketed, and a file without a name is dead.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

#include "db/base.h"
#include "fs/creds.h"
#include "fs/ops.h"

#define FLUSH_STEP_BYTES (8u << 20)

/* ---- the inode behind a name --------------------------------------------------------------- */
struct subject {
	int fd; /* owned, O_PATH; -1: there is no such name */
	struct stat st;
	struct inode *inode; /* a reference; NULL: the kernel does not know it */
	struct tfile *file;  /* a reference; NULL unless it is a regular file */
	bool begun;
};
#define SUBJECT_INIT     \
	{                \
		.fd = -1 \
	}

static int subject_tfile(struct fs *fs, struct subject *s, const struct src_key *key)
{
	if (!S_ISREG(s->st.st_mode))
		return 0;
	if (s->inode)
		return file_get(fs, s->inode, s->fd, &s->file);
	return tfile_get(fs->volume, key, NULL, &s->file);
}

/* Release it in any case. */
static int subject_open(struct fs *fs, int dir_fd, const char *name, struct subject *s)
{
	struct src_key key;
	int r;

	*s = (struct subject){ .fd = open_name(fs, dir_fd, name) };
	if (s->fd < 0)
		return s->fd;
	if (fstatat(s->fd, "", &s->st, AT_EMPTY_PATH) < 0)
		return neg_errno();
	r = src_key_of_fd(&fs->src, s->fd, &key);
	if (r < 0)
		return r;
	s->inode = inode_find(&fs->inodes, &key);
	return subject_tfile(fs, s, &key);
}

static void subject_release(struct fs *fs, struct subject *s)
{
	if (s->begun)
		tfile_change_end(s->file);
	tfile_put(s->file);
	inode_put(&fs->inodes, s->inode);
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct subject)SUBJECT_INIT;
}

static int subject_begin(struct subject *s)
{
	int r = s->file ? tfile_change_begin(s->file) : 0;

	s->begun = s->file && r == 0;
	return r;
}

static void subject_end(struct subject *s)
{
	if (s->begun)
		tfile_change_end(s->file);
	s->begun = false;
	attr_unsynced(s->inode, s->file);
}

/* One of its names was taken away. Whoever still knows a file without a name may use it, until the
 * kernel forgets it (file_gone()). */
static void subject_unlinked(struct fs *fs, struct subject *s, struct inode *dir, const char *name)
{
	struct stat st;
	bool gone = fstatat(s->fd, "", &st, AT_EMPTY_PATH) < 0 || st.st_nlink == 0 ||
		    S_ISDIR(s->st.st_mode);

	if (s->inode)
		inode_drop_name(&fs->inodes, s->inode, dir, name);
	if (!gone)
		return;
	if (s->inode) {
		inode_set(s->inode, INODE_DELETED);
		fd_adopt(&fs->fds, s->inode, TAKE_FD(s->fd), true);
	} else if (s->file) {
		tfile_dead(s->file);
	}
}

/* Somebody may have wanted it durable; if so its name matters too, see order.h. */
static bool is_wanted(const struct subject *s)
{
	return !s->inode || !inode_has(s->inode, INODE_FRESH);
}

/* ---- removing ------------------------------------------------------------------------------ */
/*
 * Without file handles a file is reached by its names only, and those of a hard link that nobody
 * looked up are not known: its dirty data goes to SRC while it still can. If it does not (SRC may
 * be full), the name goes all the same.
 */
static void flush_before_unlink(struct fs *fs, struct subject *s)
{
	struct tfile_figures figures;
	uint64_t next = 0, done;

	if (fs->src.by_handle || !s->file || s->st.st_nlink < 2)
		return;
	tfile_figures(s->file, &figures);
	while (figures.dirty_bytes > 0 && next != UINT64_MAX)
		if (tfile_flush_step(s->file, FLUSH_STEP_BYTES, false, &next, &done) < 0)
			break;
}

/*
 * Once the last name of a file that nobody has open is gone nothing of it counts any more, whatever
 * the removal did to its ctime. Should somebody open it meanwhile, the tier takes the change for a
 * foreign one and drops clean copies of a file that is about to vanish.
 */
static bool is_its_end(struct fs *fs, const struct subject *s)
{
	return s->st.st_nlink == 1 && (!s->inode || !inode_is_open(&fs->inodes, s->inode));
}

static int remove_subject(struct fs *fs, struct inode *dir, int dir_fd, const char *name, int flags,
			  struct subject *s)
{
	int r = subject_open(fs, dir_fd, name, s);

	/* A mount point below SRC, when we see one, is SRC's to refuse. */
	if (r == -EXDEV)
		return -EBUSY;
	if (r < 0)
		return r;
	flush_before_unlink(fs, s);
	if (!is_its_end(fs, s))
		r = subject_begin(s);
	if (r < 0)
		return r;
	if (unlinkat(dir_fd, name, flags) < 0)
		r = neg_errno();
	subject_end(s);
	if (r == 0)
		subject_unlinked(fs, s, dir, name);
	return r;
}

static int do_remove(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct fs *fs = fs_of(req);
	struct subject s = SUBJECT_INIT;
	struct inode *dir = inode_get(&fs->inodes, parent);

	if (!dir)
		return -ESTALE;
	int r = fd_get(fs, dir, &ref);

	if (r == 0)
		r = remove_subject(fs, dir, ref.fd, name, flags, &s);
	if (r == 0 && is_wanted(&s))
		order_changed(fs, fuse_req_ctx(req)->uid, dir);
	subject_release(fs, &s);
	inode_put(&fs->inodes, dir);
	return r;
}

/* ---- renaming ------------------------------------------------------------------------------ */
struct move {
	fuse_req_t req;
	struct fs *fs;
	struct inode *from_dir, *to_dir; /* borrowed */
	int from_fd, to_fd;		 /* borrowed */
	const char *from, *to;
	unsigned flags;
	struct subject source, target; /* target.fd -1: nothing is replaced */
};

static int move_open(struct move *m)
{
	int r = subject_open(m->fs, m->from_fd, m->from, &m->source);

	if (r < 0)
		return r == -EXDEV ? -EBUSY : r;
	r = subject_open(m->fs, m->to_fd, m->to, &m->target);
	if (r == -ENOENT && m->target.fd < 0)
		return 0; /* nothing there; SRC says what it thinks of the name itself */
	if (m->target.fd < 0 && r == -ENAMETOOLONG)
		return 0;
	return r == -EXDEV ? -EBUSY : r;
}

/*
 * Programs that replace a file by rename() expect the old or the new content after a crash even if
 * they do not fsync. ext4 cares for that; so do we: what is only in memory or in an unsynced object
 * is made durable before the name points to it.
 */
static int sync_replacement(struct move *m)
{
	struct tfile_figures figures;
	struct tfile *f = m->source.file;

	if (!f || !m->target.file || (m->flags & RENAME_EXCHANGE))
		return 0;
	tfile_figures(f, &figures);
	if (figures.dirty_bytes == 0)
		return 0;
	int r = tfile_use(f, false);

	if (r < 0)
		return r == -ESTALE ? 0 : r;
	r = tfile_fsync(f, true);
	tfile_unuse(f);
	return r;
}

static int move_begin(struct move *m)
{
	int r = subject_begin(&m->source);

	if (r == 0 && m->target.file != m->source.file)
		r = subject_begin(&m->target);
	return r;
}

/* The path of a directory, for the hints of what is below it; NULL when nobody needs it. */
static char *dir_path(struct move *m)
{
	struct inode *i = m->source.inode;

	return i && inode_is_dir(i) ? inode_path(&m->fs->inodes, i) : NULL;
}

struct place {
	struct inode *dir;
	const char *name;
};

static void renamed(struct move *m, struct subject *s, struct place old, struct place new)
{
	struct fs *fs = m->fs;
	_cleanup_free_ char *path = NULL;

	if (s->inode) {
		inode_drop_name(&fs->inodes, s->inode, old.dir, old.name);
		inode_add_name(&fs->inodes, s->inode, new.dir, new.name);
	}
	if (!s->file || !s->inode)
		return;
	path = path_hint(fs, s->inode, s->fd);
	if (path)
		tfile_set_path(s->file, path);
}

static void remember_move(struct move *m)
{
	uid_t uid = fuse_req_ctx(m->req)->uid;

	if (!is_wanted(&m->source) && (m->target.fd < 0 || !is_wanted(&m->target)))
		return;
	order_changed(m->fs, uid, m->from_dir);
	if (m->to_dir != m->from_dir)
		order_changed(m->fs, uid, m->to_dir);
}

static void after_move(struct move *m, const char *old_path)
{
	struct fs *fs = m->fs;
	bool same = m->target.fd >= 0 && m->source.st.st_ino == m->target.st.st_ino &&
		    m->source.st.st_dev == m->target.st.st_dev;

	struct place from = { m->from_dir, m->from }, to = { m->to_dir, m->to };

	if (same)
		return; /* two names of one file: rename(2) does nothing then */
	remember_move(m);
	renamed(m, &m->source, from, to);
	if (m->flags & RENAME_EXCHANGE)
		renamed(m, &m->target, to, from);
	else if (m->target.fd >= 0)
		subject_unlinked(fs, &m->target, m->to_dir, m->to);
	_cleanup_free_ char *new_path = old_path ? dir_path(m) : NULL;

	if (new_path)
		volume_paths_renamed(fs->volume, old_path, new_path);
}

/* The whiteout that is left at the old name belongs to the caller. */
static int move_in_src(struct move *m)
{
	bool makes = m->flags & RENAME_WHITEOUT;
	struct creds creds;
	int r = makes ? creds_enter(m->req, 0, 0, &creds) : 0;

	if (r < 0)
		return r;
	if (renameat2(m->from_fd, m->from, m->to_fd, m->to, m->flags) < 0)
		r = neg_errno();
	if (makes)
		creds_leave(&creds);
	return r;
}

static int move_open_dirs(struct move *m)
{
	int r = move_open(m);

	if (r == 0 && !(m->flags & RENAME_EXCHANGE))
		flush_before_unlink(m->fs, &m->target);
	if (r == 0)
		r = sync_replacement(m);
	if (r < 0)
		return r;
	_cleanup_free_ char *old_path = m->fs->src.by_handle ? NULL : dir_path(m);

	r = move_begin(m);
	if (r == 0)
		r = move_in_src(m);
	subject_end(&m->source);
	subject_end(&m->target);
	if (r == 0)
		after_move(m, old_path);
	return r;
}

static int move_in(struct move *m)
{
	_cleanup_fd_ struct fd_ref from = FD_REF_INIT, to = FD_REF_INIT;
	int r = fd_get(m->fs, m->from_dir, &from);

	if (r == 0)
		r = fd_get(m->fs, m->to_dir, &to);
	if (r < 0)
		return r;
	m->from_fd = from.fd;
	m->to_fd = to.fd;
	r = move_open_dirs(m);
	subject_release(m->fs, &m->source);
	subject_release(m->fs, &m->target);
	return r;
}

static int do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		     const char *new_name, unsigned flags)
{
	struct fs *fs = fs_of(req);
	struct move m = { .req = req,
			  .fs = fs,
			  .from = name,
			  .to = new_name,
			  .flags = flags,
			  .source = SUBJECT_INIT,
			  .target = SUBJECT_INIT };
	int r = -ESTALE;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	m.from_dir = inode_get(&fs->inodes, parent);
	m.to_dir = inode_get(&fs->inodes, new_parent);
	if (m.from_dir && m.to_dir)
		r = move_in(&m);
	inode_put(&fs->inodes, m.from_dir);
	inode_put(&fs->inodes, m.to_dir);
	return r;
}

/* ---- linking ------------------------------------------------------------------------------- */
static int link_fd(struct fs *fs, int fd, int dir_fd, const char *name)
{
	char path[FD_PROC_PATH_MAX];

	if (fs->privileged)
		return linkat(fd, "", dir_fd, name, AT_EMPTY_PATH) < 0 ? neg_errno() : 0;
	return linkat(AT_FDCWD, fd_proc_path(fd, path), dir_fd, name, AT_SYMLINK_FOLLOW) < 0 ?
		       neg_errno() :
		       0;
}

static int link_inode(struct fs *fs, struct inode *i, struct inode *dir, const char *name,
		      struct fuse_entry_param *ret)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT, dir_ref = FD_REF_INIT;
	struct tfile *f = NULL;
	int r = fd_get(fs, i, &ref);

	if (r == 0)
		r = fd_get(fs, dir, &dir_ref);
	if (r == 0 && inode_is_reg(i))
		r = file_get(fs, i, ref.fd, &f);
	if (r == 0 && f)
		r = tfile_change_begin(f);
	if (r == 0) {
		r = link_fd(fs, ref.fd, dir_ref.fd, name);
		if (f)
			tfile_change_end(f);
	}
	attr_unsynced(i, f);
	tfile_put(f);
	return r < 0 ? r : lookup_fd(fs, ref.fd, dir, name, ret);
}

static int do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name,
		   struct fuse_entry_param *ret)
{
	struct fs *fs = fs_of(req);
	struct inode *i = inode_get(&fs->inodes, ino);
	struct inode *dir = inode_get(&fs->inodes, parent);
	int r = i && dir ? link_inode(fs, i, dir, name, ret) : -ESTALE;

	inode_put(&fs->inodes, i);
	inode_put(&fs->inodes, dir);
	return r;
}

/* ---- making -------------------------------------------------------------------------------- */
struct making {
	const char *name, *target; /* target: of a symbolic link */
	mode_t mode;		   /* with its type */
	dev_t rdev;
};

static int make_at(int dir_fd, const struct making *m, mode_t mode)
{
	int r;

	if (S_ISDIR(m->mode))
		r = mkdirat(dir_fd, m->name, mode & 07777);
	else if (S_ISLNK(m->mode))
		r = symlinkat(m->target, dir_fd, m->name);
	else
		r = mknodat(dir_fd, m->name, mode, m->rdev);
	return r < 0 ? neg_errno() : 0;
}

static int make_as_caller(fuse_req_t req, struct inode *dir, const struct making *m)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct creds creds;
	int r = fd_get(fs_of(req), dir, &ref);

	if (r == 0)
		r = creds_enter(req, m->mode, fuse_req_ctx(req)->umask, &creds);
	if (r < 0)
		return r;
	r = make_at(ref.fd, m, creds.mode);
	creds_leave(&creds);
	return r;
}

/* In a pinned directory, new directories and files are pinned as well. */
static void inherit_pin(struct fs *fs, struct inode *dir, struct inode *made)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	_cleanup_free_ char *path = NULL;
	struct src_key dir_key, key;
	struct tfile *f;

	inode_key(dir, &dir_key);
	if (!volume_dir_pinned(fs->volume, &dir_key) || fd_get(fs, made, &ref) < 0)
		return;
	inode_key(made, &key);
	if (inode_is_dir(made)) {
		path = path_hint(fs, made, ref.fd);
		(void)volume_pin_dir(fs->volume, &key, path);
	} else if (inode_is_reg(made) && file_get(fs, made, ref.fd, &f) == 0) {
		(void)tfile_pin(f, true, 0, 0);
		tfile_put(f);
	}
}

static int make_in(fuse_req_t req, struct inode *dir, const struct making *m,
		   struct fuse_entry_param *ret)
{
	struct fs *fs = fs_of(req);
	int r = make_as_caller(req, dir, m);

	if (r == 0)
		r = lookup_name(fs, dir, m->name, ret);
	if (r < 0)
		return r;
	struct inode *made = inode_get(&fs->inodes, ret->ino);

	inherit_pin(fs, dir, made);
	inode_put(&fs->inodes, made);
	return 0;
}

static void make(fuse_req_t req, fuse_ino_t parent, const struct making *m)
{
	struct fs *fs = fs_of(req);
	struct inode *dir = inode_get(&fs->inodes, parent);
	struct fuse_entry_param e;
	int r = dir ? make_in(req, dir, m, &e) : -ESTALE;

	inode_put(&fs->inodes, dir);
	reply_entry(req, r, &e, false);
}

/* ---- requests ------------------------------------------------------------------------------ */
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct making m = { .name = name, .mode = mode, .rdev = rdev };

	make(req, parent, &m);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct making m = { .name = name, .mode = S_IFDIR | (mode & 07777) };

	make(req, parent, &m);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct making m = { .name = name, .target = target, .mode = S_IFLNK | 0777 };

	make(req, parent, &m);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct fuse_entry_param e;
	int r = do_link(req, ino, new_parent, new_name, &e);

	reply_entry(req, r, &e, false);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_result(req, do_remove(req, parent, name, 0));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_result(req, do_remove(req, parent, name, AT_REMOVEDIR));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags)
{
	reply_result(req, do_rename(req, parent, name, new_parent, new_name, flags));
}
