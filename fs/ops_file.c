// SPDX-License-Identifier: GPL-2.0-or-later
/* Open files: their data, and making it durable. */
#include <fcntl.h>
#include <string.h>

#include "db/base.h"
#include "fs/creds.h"
#include "fs/log.h"
#include "fs/loop.h"
#include "fs/notify.h"
#include "fs/ops.h"
#include "fs/passthrough.h"

/* One COPY_FILE_RANGE request copies so much at most; the caller goes on from there. */
#define COPY_BYTES (16u << 20)

/* ---- opening ------------------------------------------------------------------------------- */
static bool wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

static int truncate_at_open(fuse_req_t req, struct inode *i, struct tfile *f)
{
	int r = fuse_req_ctx(req)->uid ? clear_privs(req, i, f) : 0;

	return r < 0 ? r : tfile_truncate(f, 0);
}

/*
 * May the kernel keep the pages it has? While the file was open, the tier noticed foreign changes
 * (INODE_STALE); while it was not, size and mtime tell.
 */
static bool keep_cache(struct fs *fs, struct inode *i, int fd, bool first)
{
	struct stat st;
	int r = attr_of_fd(fs, i, fd, &st);
	bool stale = inode_clear(i, INODE_STALE);

	if (r < 0)
		return false;
	uint32_t now = attr_stamp(&st), before = atomic_exchange(&i->stamp, now);

	bool changed = first && before && before != now;

	if (changed && fs->watch) /* unheard: the kernel's size may be the old one */
		notify_attributes(fs, i->nodeid);
	return !stale && !changed;
}

static struct open_file *open_file_new(struct inode *i, struct tfile *f, int flags, uid_t uid)
{
	struct open_file *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->head.kind = HANDLE_FILE;
	h->head.inode = i;
	h->file = f;
	h->flags = flags;
	h->uid = uid;
	return h;
}

/* The file is counted as open, `f` referenced. On success both are the handle's. */
static int open_counted(fuse_req_t req, struct inode *i, struct tfile *f, int fd, bool first,
			bool made, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	int r = made ? tfile_use_made(f, fd)
		     : tfile_use(f, wants_write(fi->flags) || (fi->flags & O_TRUNC));

	if (r < 0)
		return r;
	/* The lowest free descriptor is given out, so its number tells how many are in use. */
	if (tfile_src_fd(f) >= fs->fd_limit)
		r = -ENFILE;
	else
		fi->keep_cache = keep_cache(fs, i, fd, first);
	if (r == 0 && (fi->flags & O_TRUNC))
		r = truncate_at_open(req, i, f);
	struct open_file *h =
		r == 0 ? open_file_new(i, f, fi->flags, fuse_req_ctx(req)->uid) : NULL;

	if (r == 0)
		r = h ? passthrough_open(req, h, fd) : -ENOMEM;
	if (r < 0) {
		free(h);
		tfile_unuse(f);
		return r;
	}
	/* Stores past us move its times: attributes with a long time to live are not right then. */
	if ((h->pass == PASS_PLAIN || h->pass == PASS_ASKED) && wants_write(fi->flags) && fs->watch)
		notify_attributes(fs, i->nodeid);
	inode_ref(&fs->inodes, i);
	handle_add(fs, &h->head);
	fi->fh = (uintptr_t)h;
	return 0;
}

/* made: it is new, and fd open for both. Else fd may be a mere place (O_PATH). */
static int file_open(fuse_req_t req, struct inode *i, int fd, bool made, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	bool first = inode_open_begin(&fs->inodes, i) == 0;
	struct tfile *f = NULL;
	int r = file_get(fs, i, fd, &f);

	if (r == 0)
		r = open_counted(req, i, f, fd, first, made, fi);
	if (r < 0) {
		inode_open_end(&fs->inodes, i);
		tfile_put(f);
	}
	return r;
}

static int do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct fs *fs = fs_of(req);
	struct inode *i = inode_get(&fs->inodes, ino);

	if (!i)
		return -ESTALE;
	int r = inode_is_reg(i) ? fd_get(fs, i, &ref) : -ENXIO;

	if (r == 0)
		r = file_open(req, i, ref.fd, false, fi);
	inode_put(&fs->inodes, i);
	return r;
}

/* The content that the kernel caches from here on is that of now. Before the file counts as closed:
 * a later open compares. */
static void remember_stamp(struct fs *fs, const struct open_file *h)
{
	struct inode *i = h->head.inode;
	struct stat st;

	if (attr_of_fd(fs, i, tfile_src_fd(h->file), &st) == 0)
		atomic_store(&i->stamp, attr_stamp(&st));
}

static void close_file(struct fs *fs, struct open_file *h)
{
	if (wants_write(h->flags))
		remember_stamp(fs, h);
	handle_remove(fs, &h->head);
	open_file_close(fs, h);
}

/* ---- creating ------------------------------------------------------------------------------- */
static int create_name(fuse_req_t req, struct inode *dir, const char *name, mode_t mode)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct creds creds;
	int r = fd_get(fs_of(req), dir, &ref);

	if (r < 0)
		return r;
	r = creds_enter(req, mode, fuse_req_ctx(req)->umask, &creds);
	if (r < 0)
		return r;
	int fd = openat(ref.fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			creds.mode);

	creds_leave(&creds);
	return fd >= 0 ? fd : neg_errno();
}

static void pin_if_wanted(struct fs *fs, struct inode *dir, struct tfile *f)
{
	struct src_key key;

	inode_key(dir, &key);
	if (volume_dir_pinned(fs->volume, &key))
		(void)tfile_pin(f, true, 0, 0); /* the file is there; a pin can be set again */
}

/* The new file is `fd`; entry and handle for it. */
static int open_created(fuse_req_t req, struct inode *dir, const char *name, int fd,
			struct fuse_file_info *fi, struct fuse_entry_param *ret)
{
	struct fs *fs = fs_of(req);
	int r = lookup_fd(fs, fd, dir, name, ret);

	if (r < 0)
		return r;
	struct inode *i = inode_get(&fs->inodes, ret->ino);

	fi->flags &= ~(O_TRUNC | O_CREAT | O_EXCL);
	r = file_open(req, i, fd, true, fi);
	if (r == 0) {
		struct tfile *f = open_file_of(fi->fh)->file;

		if (!fs->opt->set_umask && !(ret->attr.st_mode & (S_ISUID | S_ISGID)))
			inode_set(i, INODE_NO_PRIVS);
		inode_set(i, INODE_FRESH);
		attr_unsynced(i, f);
		pin_if_wanted(fs, dir, f);
	} else {
		inode_forget(&fs->inodes, ret->ino, 1);
	}
	inode_put(&fs->inodes, i);
	return r;
}

/* It is there, but can not be opened (no descriptors, no memory): as if it had never been made. */
static void unmake(struct fs *fs, struct inode *dir, const char *name)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;

	if (fd_get(fs, dir, &ref) < 0 || unlinkat(ref.fd, name, 0) < 0)
		log_line(LOG_WARNING, "%s: cannot remove it after a failed create: %s", name,
			 strerror(errno));
}

static int create_in(fuse_req_t req, struct inode *dir, const char *name, mode_t mode,
		     struct fuse_file_info *fi, struct fuse_entry_param *ret)
{
	_cleanup_close_ int fd = create_name(req, dir, name, mode);

	/* Somebody made it behind the mount's back: the kernel shall look again, and check the
	 * permissions of what is there. */
	if (fd == -EEXIST && !(fi->flags & O_EXCL))
		return -ESTALE;
	if (fd < 0)
		return fd;
	int r = open_created(req, dir, name, fd, fi, ret);

	if (r < 0)
		unmake(fs_of(req), dir, name);
	return r;
}

static int do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi, struct fuse_entry_param *ret)
{
	struct fs *fs = fs_of(req);
	struct inode *dir = inode_get(&fs->inodes, parent);

	if (!dir)
		return -ESTALE;
	int r = create_in(req, dir, name, mode, fi, ret);

	inode_put(&fs->inodes, dir);
	return r;
}

/* ---- durability ---------------------------------------------------------------------------- */
/*
 * SRC needs syncing too unless we know that nothing about this inode is pending there: the tier
 * forgets a file that is clean, the inode table one that the kernel forgot, and both then err on
 * the safe side. The tier is told before the flag is cleared, so that a second fsync at the
 * same time waits for the same sync.
 */
static int sync_file(struct inode *i, struct tfile *f, bool data_only)
{
	bool unsynced = !inode_has(i, INODE_SYNCED);

	inode_clear(i, INODE_FRESH);
	if (unsynced) {
		tfile_src_unsynced(f);
		inode_set(i, INODE_SYNCED);
	}
	int r = tfile_fsync(f, data_only);

	if (r < 0 && unsynced)
		inode_clear(i, INODE_SYNCED);
	return r;
}

/* ---- data ---------------------------------------------------------------------------------- */
static ssize_t do_read(struct open_file *h, char *buf, size_t size, off_t off)
{
	return buf ? tfile_read(h->file, &h->stream, buf, min_u64(size, IO_BYTES), (uint64_t)off) :
		     -ENOMEM;
}

/* `paged`: the kernel writes a page that was changed through a mapping, in nobody's name. */
static ssize_t do_write(fuse_req_t req, struct open_file *h, const char *buf, size_t size,
			off_t off, bool paged)
{
	int r = 0;

	if (!paged && fuse_req_ctx(req)->uid != 0)
		r = clear_privs(req, h->head.inode, h->file);
	return r < 0 ? r : tfile_write(h->file, &h->stream, buf, size, (uint64_t)off);
}

static int do_fallocate(fuse_req_t req, struct open_file *h, int mode, off_t off, off_t len)
{
	int r = fuse_req_ctx(req)->uid ? clear_privs(req, h->head.inode, h->file) : 0;

	return r < 0 ? r : tfile_fallocate(h->file, mode, (uint64_t)off, (uint64_t)len);
}

/* One buffer full. Returns bytes written; 0 at the end of the source. */
static ssize_t copy_some(struct open_file *in, uint64_t off_in, struct open_file *out,
			 uint64_t off_out, char *buf, size_t len)
{
	ssize_t n = tfile_read(in->file, &in->stream, buf, min_u64(len, IO_BYTES), off_in);

	return n <= 0 ? n : tfile_write(out->file, &out->stream, buf, (size_t)n, off_out);
}

static ssize_t do_copy(fuse_req_t req, struct open_file *in, off_t off_in, struct open_file *out,
		       off_t off_out, size_t len)
{
	char *buf = io_buffer();
	size_t done = 0;
	ssize_t n = fuse_req_ctx(req)->uid ? clear_privs(req, out->head.inode, out->file) : 0;

	if (!buf)
		return -ENOMEM;
	len = min_u64(len, COPY_BYTES);
	while (n >= 0 && done < len && !fuse_req_interrupted(req)) {
		n = copy_some(in, (uint64_t)off_in + done, out, (uint64_t)off_out + done, buf,
			      len - done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done > 0 ? (ssize_t)done : n;
}

/* ---- requests ------------------------------------------------------------------------------ */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int r = do_open(req, ino, fi);

	if (r < 0)
		fuse_reply_err(req, -r);
	else if (passthrough_reply_open(req, open_file_of(fi->fh), fi) < 0)
		close_file(fs_of(req), open_file_of(fi->fh));
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e;
	int r = do_create(req, parent, name, mode, fi, &e);

	if (r < 0) {
		fuse_reply_err(req, -r);
	} else if (fuse_reply_create(req, &e, fi) < 0) {
		close_file(fs, open_file_of(fi->fh));
		inode_forget(&fs->inodes, e.ino, 1);
	}
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close_file(fs_of(req), open_file_of(fi->fh));
	reply_result(req, 0);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	char *buf = io_buffer();
	ssize_t n = do_read(open_file_of(fi->fh), buf, size, off);

	(void)ino;
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	ssize_t n = do_write(req, open_file_of(fi->fh), buf, size, off, fi->writepage);
	struct fs *fs = fs_of(req);
	bool mapped = fi->writepage;

	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
	/* For these the kernel does not see that the answer to a getattr beside it is outdated. */
	if (mapped && n > 0)
		notify_attributes(fs, ino);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct open_file *h = open_file_of(fi->fh);

	(void)ino;
	loop_hand_over(fs_of(req)->loop);
	int r = order_sync(fs_of(req), fuse_req_ctx(req)->uid);

	reply_result(req, r < 0 ? r : sync_file(h->head.inode, h->file, datasync));
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	(void)ino;
	reply_result(req, do_fallocate(req, open_file_of(fi->fh), mode, off, len));
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	off_t to = tfile_seek(open_file_of(fi->fh)->file, off, whence);

	(void)ino;
	if (to < 0)
		fuse_reply_err(req, (int)-to);
	else
		fuse_reply_lseek(req, to);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	ssize_t n = -EINVAL;

	(void)ino_in;
	(void)ino_out;
	if (flags == 0)
		n = do_copy(req, open_file_of(fi_in->fh), off_in, open_file_of(fi_out->fh), off_out,
			    len);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}
