// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Directories. A listing is SRC's own, entry by entry with SRC's cookies (d_off), so it stays right
 * while names come and go, and a position from telldir() or an NFS client means the same later.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "db/base.h"
#include "fs/loop.h"
#include "fs/ops.h"
#include "fs/watch.h"

struct kernel_dirent {
	uint64_t d_ino;
	int64_t d_off;
	uint16_t d_reclen;
	uint8_t d_type;
	char d_name[];
};

/* ---- reading ------------------------------------------------------------------------------- */
static int fill_locked(struct open_dir *h)
{
	if (!h->buffer) {
		h->buffer = malloc(DIR_BUFFER_BYTES);
		if (!h->buffer)
			return -ENOMEM;
	}
	long n = syscall(SYS_getdents64, h->fd, h->buffer, DIR_BUFFER_BYTES);

	if (n < 0)
		return neg_errno();
	h->at = 0;
	h->filled = (size_t)n;
	return 0;
}

static int seek_locked(struct open_dir *h, off_t to)
{
	if (h->buffer && to == h->cookie)
		return 0;
	if (lseek(h->fd, to, SEEK_SET) < 0)
		return neg_errno();
	h->at = h->filled = 0;
	h->cookie = to;
	return 0;
}

/* The next entry, or NULL at the end. It is taken by take_locked(). */
static int next_locked(struct open_dir *h, const struct kernel_dirent **ret)
{
	if (h->at >= h->filled) {
		int r = fill_locked(h);

		if (r < 0)
			return r;
	}
	*ret = h->at < h->filled ? (const struct kernel_dirent *)(h->buffer + h->at) : NULL;
	return 0;
}

static void take_locked(struct open_dir *h, const struct kernel_dirent *d)
{
	h->cookie = d->d_off;
	h->at += d->d_reclen;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* What READDIR shows of an entry. The parent of SRC's root is outside: its ".." is itself. */
static void describe(struct fs *fs, const struct open_dir *h, const struct kernel_dirent *d,
		     struct stat *ret)
{
	struct stat st;

	*ret = (struct stat){ .st_ino = d->d_ino, .st_mode = DTTOIF(d->d_type) };
	if (h->head.inode == fs->inodes.root && strcmp(d->d_name, "..") == 0 &&
	    fstat(fs->src.root_fd, &st) == 0)
		ret->st_ino = st.st_ino;
}

static size_t put_plain(fuse_req_t req, struct open_dir *h, const struct kernel_dirent *d,
			char *buf, size_t room)
{
	struct stat st;

	describe(fs_of(req), h, d, &st);
	return fuse_add_direntry(req, buf, room, d->d_name, &st, d->d_off);
}

/* With attributes, which counts as a lookup. An entry that went away meanwhile is listed without:
 * the kernel looks it up when it is asked for. */
static size_t put_plus(fuse_req_t req, struct open_dir *h, const struct kernel_dirent *d, char *buf,
		       size_t room)
{
	struct fuse_entry_param e = { 0 };
	struct fs *fs = fs_of(req);
	bool looked_up = false;

	/* Is there room at all? Otherwise the lookup would be in vain. */
	if (fuse_add_direntry_plus(req, NULL, 0, d->d_name, NULL, 0) > room)
		return room + 1;
	if (!is_dots(d->d_name))
		looked_up = lookup_at(fs, h->head.inode, h->fd, d->d_name, &e) == 0;
	if (!looked_up) {
		e = (struct fuse_entry_param){ 0 };
		describe(fs, h, d, &e.attr);
	}
	return fuse_add_direntry_plus(req, buf, room, d->d_name, &e, d->d_off);
}

static int list_locked(fuse_req_t req, struct open_dir *h, off_t off, char *buf, size_t size,
		       bool plus, size_t *ret_size)
{
	const struct kernel_dirent *d;
	size_t used = 0;
	int r = seek_locked(h, off);

	while (r == 0) {
		r = next_locked(h, &d);
		if (r < 0 || !d)
			break;
		size_t n = plus ? put_plus(req, h, d, buf + used, size - used) :
				  put_plain(req, h, d, buf + used, size - used);

		if (n > size - used)
			break;
		used += n;
		take_locked(h, d);
	}
	*ret_size = used;
	return used > 0 ? 0 : r;
}

/* The reply was not taken: take back the lookups in it. */
static void forget_listed(struct fs *fs, const char *buf, size_t size)
{
	struct plus {
		uint64_t nodeid;
		char entry_rest[120], ino_off[16];
		uint32_t namelen, type;
		char name[];
	};

	for (size_t at = 0; at + sizeof(struct plus) <= size;) {
		struct plus p;

		memcpy(&p, buf + at, sizeof(p));
		if (p.nodeid)
			inode_forget(&fs->inodes, p.nodeid, 1);
		at += round_up_u64(sizeof(p) + p.namelen, 8);
	}
}

static void list(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
	struct open_dir *h = open_dir_of(fi->fh);
	char *buf = io_buffer();
	size_t n = 0;
	int r = -ENOMEM;

	if (buf) {
		pthread_mutex_lock(&h->lock);
		r = list_locked(req, h, off, buf, min_u64(size, IO_BYTES), plus, &n);
		pthread_mutex_unlock(&h->lock);
	}
	if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_buf(req, buf, n) < 0 && plus)
		forget_listed(fs_of(req), buf, n);
}

/* ---- opening, syncing ---------------------------------------------------------------------- */
static int open_dir(struct fs *fs, struct inode *i, struct open_dir **ret)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct open_dir *h;
	int r = fd_get(fs, i, &ref);

	if (r < 0)
		return r;
	/* Not openat("."), which needs permission to search it as well. */
	_cleanup_close_ int fd = fd_reopen(ref.fd, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return fd;
	if (fd >= fs->fd_limit)
		return -ENFILE;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->head.kind = HANDLE_DIR;
	h->fd = TAKE_FD(fd);
	pthread_mutex_init(&h->lock, NULL);
	*ret = h;
	return 0;
}

/* Where attributes do not live long, a listing that brings both is better. */
static bool keeps_lists(const struct fs *fs)
{
	return fs->watch && fs->attr_timeout_s > PLAIN_TIMEOUT_S;
}

/* May the kernel keep the names it has? It drops them by itself when they change here. */
static bool keep_names(struct inode *i, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	uint32_t now = attr_stamp(&st);

	return atomic_exchange(&i->stamp, now) == now;
}

static int do_opendir(struct fs *fs, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_get(&fs->inodes, ino);
	struct open_dir *h = NULL;

	if (!i)
		return -ESTALE;
	int r = open_dir(fs, i, &h);

	if (r < 0) {
		inode_put(&fs->inodes, i);
		return r;
	}
	h->head.inode = i;
	fi->cache_readdir = keeps_lists(fs);
	fi->keep_cache = fi->cache_readdir && keep_names(i, h->fd);
	handle_add(fs, &h->head);
	fi->fh = (uintptr_t)h;
	return 0;
}

static void close_dir(struct fs *fs, struct open_dir *h)
{
	handle_remove(fs, &h->head);
	open_dir_close(fs, h);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int r = do_opendir(fs_of(req), ino, fi);

	if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_open(req, fi) < 0)
		close_dir(fs_of(req), open_dir_of(fi->fh));
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close_dir(fs_of(req), open_dir_of(fi->fh));
	reply_result(req, 0);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	list(req, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	(void)ino;
	list(req, size, off, fi, true);
}

/* Names live in SRC only, so SRC is synced. */
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct open_dir *dir = open_dir_of(fi->fh);
	struct fs *fs = fs_of(req);
	uint64_t renames = order_now(fs);

	(void)ino;
	loop_hand_over(fs->loop);
	int r = (datasync ? fdatasync(dir->fd) : fsync(dir->fd)) < 0 ? neg_errno() : 0;

	if (r == 0)
		order_synced(fs, dir->head.inode, renames);
	reply_result(req, r);
}
