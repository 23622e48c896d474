// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/src.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <xxhash.h>

#include "db/base.h"

#define KEY_HANDLE 1
#define KEY_INODE 2
#define INO32_GEN 1 /* FILEID_INO32_GEN of the kernel */
#define HANDLE_MAX (SRC_KEY_MAX - 5)
#define HANDLE_TRIES 50u
#define HANDLE_PAUSE_NS 1000000l

_Static_assert(HANDLE_MAX >= MAX_HANDLE_SZ, "every kernel handle fits into a key");

struct handle {
	struct file_handle fh;
	unsigned char bytes[MAX_HANDLE_SZ];
};

/* FS_IOC_GETFSUUID of Linux 6.9, for older headers. */
struct fsuuid {
	uint8_t len;
	uint8_t uuid[16];
};
#define IOC_GETFSUUID _IOR(0x15, 0, struct fsuuid)

/* ---- opening SRC -------------------------------------------------------------------------- */
static int open_root(const char *path)
{
#ifdef SYS_open_tree
	_cleanup_close_ int tree =
		(int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (tree >= 0) {
		int fd = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (errno == ENOTDIR)
			return -ENOTDIR;
	}
#endif
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 ? fd : neg_errno();
}

static void read_uuid(int fd, uint8_t ret_uuid[16])
{
	struct fsuuid u = { 0 };
	struct statfs fs;

	memset(ret_uuid, 0, 16);
	if (ioctl(fd, IOC_GETFSUUID, &u) == 0 && u.len > 0) {
		memcpy(ret_uuid, u.uuid, 16);
	} else if (fstatfs(fd, &fs) == 0) {
		memcpy(ret_uuid, &fs.f_fsid, sizeof(fs.f_fsid));
		memcpy(ret_uuid + 8, &fs.f_type, 4);
	}
}

static int get_handle_at(int dir_fd, const char *name, int flags, struct handle *h)
{
	int mount_id;

	h->fh.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(dir_fd, name, &h->fh, &mount_id, flags) < 0)
		return neg_errno();
	return 0;
}

static int get_handle(int fd, struct handle *h)
{
	return get_handle_at(fd, "", AT_EMPTY_PATH, h);
}

static bool is_ino_gen(const struct handle *h)
{
	return h->fh.handle_type == INO32_GEN && h->fh.handle_bytes == 8;
}

static void probe_handles(struct src *s)
{
	struct handle h;

	s->has_handles = get_handle(s->root_fd, &h) == 0;
	if (!s->has_handles)
		return;
	_cleanup_close_ int fd = open_by_handle_at(s->root_fd, &h.fh, O_PATH | O_CLOEXEC);

	s->by_handle = fd >= 0;
	s->ino_gen = s->by_handle && is_ino_gen(&h);
}

int src_init(struct src *s, const char *path)
{
	struct stat st;
	struct statvfs vfs;

	*s = (struct src){ .root_fd = open_root(path) };
	if (s->root_fd < 0)
		return s->root_fd;
	s->path = realpath(path, NULL);
	if (!s->path || fstat(s->root_fd, &st) < 0 || fstatvfs(s->root_fd, &vfs) < 0) {
		int r = neg_errno();

		src_release(s);
		return r;
	}
	s->dev = st.st_dev;
	s->read_only = vfs.f_flag & ST_RDONLY;
	read_uuid(s->root_fd, s->uuid);
	probe_handles(s);
	return 0;
}

void src_release(struct src *s)
{
	if (s->root_fd >= 0)
		close(s->root_fd);
	free(s->path);
	*s = (struct src){ .root_fd = -1 };
}

/* ---- keys --------------------------------------------------------------------------------- */
static void put_le(uint8_t *p, uint64_t n, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(n >> (8 * i));
}

static uint64_t get_le(const uint8_t *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint64_t)p[i] << (8 * i);
	return n;
}

static int inode_key(int fd, struct src_key *ret_key)
{
	struct statx stx;
	uint64_t birth = 0;

	if (statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &stx) < 0)
		return neg_errno();
	if (stx.stx_mask & STATX_BTIME)
		birth = (uint64_t)stx.stx_btime.tv_sec * 1000000000u + stx.stx_btime.tv_nsec;
	*ret_key = (struct src_key){ .len = 17 };
	ret_key->data[0] = KEY_INODE;
	put_le(ret_key->data + 1, stx.stx_ino, 8);
	put_le(ret_key->data + 9, birth, 8);
	return 0;
}

int src_key_of_handle(const struct file_handle *fh, struct src_key *ret_key)
{
	if (fh->handle_bytes == 0 || fh->handle_bytes > HANDLE_MAX)
		return -EINVAL;
	*ret_key = (struct src_key){ .len = 5 + fh->handle_bytes };
	ret_key->data[0] = KEY_HANDLE;
	put_le(ret_key->data + 1, (uint32_t)fh->handle_type, 4);
	memcpy(ret_key->data + 5, fh->f_handle, fh->handle_bytes);
	return 0;
}

int src_key_of_fd(const struct src *s, int fd, struct src_key *ret_key)
{
	struct handle h;

	if (!s->has_handles)
		return inode_key(fd, ret_key);
	int r = get_handle(fd, &h);

	if (r < 0)
		return r;
	(void)src_key_of_handle(&h.fh, ret_key);
	return 0;
}

static bool handle_is_of(const struct handle *h, const struct stat *st)
{
	uint32_t ino;

	memcpy(&ino, h->fh.f_handle, sizeof(ino));
	return is_ino_gen(h) && ino == st->st_ino;
}

/*
 * Between the two calls the name may come to mean another file; only if that one got the inode
 * number of the first is it not seen. Then the first is deleted, its handle says ESTALE, and
 * whoever asked looks again, as if the name had changed hands just after the lookup.
 */
int src_key_of_name(const struct src *s, int dir_fd, const char *name, struct src_key *ret_key,
		    struct stat *ret_stat)
{
	struct handle h;
	struct stat st;

	if (!s->ino_gen)
		return -EAGAIN;
	int r = get_handle_at(dir_fd, name, 0, &h);

	if (r < 0)
		return r;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return neg_errno();
	if (st.st_dev != s->dev || !handle_is_of(&h, &st))
		return -EAGAIN;
	(void)src_key_of_handle(&h.fh, ret_key);
	*ret_stat = st;
	return 0;
}

uint64_t src_key_hash(const struct src_key *key)
{
	return XXH3_64bits(key->data, key->len);
}

bool src_key_equal(const struct src_key *a, const struct src_key *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* ---- opening by key ----------------------------------------------------------------------- */
static int open_handle(const struct src *s, const struct src_key *key, int flags)
{
	struct handle h;

	h.fh.handle_bytes = key->len - 5;
	h.fh.handle_type = (int)get_le(key->data + 1, 4);
	memcpy(h.fh.f_handle, key->data + 5, h.fh.handle_bytes);
	int fd = open_by_handle_at(s->root_fd, &h.fh, flags);

	/* Not for want of memory: the inode's number is just being given to a new file (ext4). A
	 * moment later the kernel can tell that the handle means another one. */
	for (unsigned i = 0; fd < 0 && errno == ENOMEM && i < HANDLE_TRIES; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = HANDLE_PAUSE_NS }, NULL);
		fd = open_by_handle_at(s->root_fd, &h.fh, flags);
	}
	return fd >= 0 ? fd : neg_errno();
}

/*
 * Walk to `path` without symlinks and check who is there. First as O_PATH, so that nothing but the
 * right file is ever really opened.
 */
static int open_path(const struct src *s, const struct src_key *key, const char *path, int flags)
{
	struct src_key found;
	char proc[32];

	if (!path)
		return -ESTALE;
	if (!*path)
		path = ".";
	_cleanup_close_ int fd = openat(s->root_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ESTALE
									     : neg_errno();
	int r = src_key_of_fd(s, fd, &found);

	if (r < 0)
		return r;
	if (!src_key_equal(key, &found))
		return -ESTALE;
	if (flags & O_PATH)
		return TAKE_FD(fd);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	int real = open(proc, flags & ~O_NOFOLLOW);

	return real >= 0 ? real : neg_errno();
}

bool src_tells_gone(const struct src *s, const struct src_key *key)
{
	return s->by_handle && key->len > 5 && key->data[0] == KEY_HANDLE;
}

int src_open(const struct src *s, const struct src_key *key, const char *path, int flags)
{
	flags |= O_CLOEXEC | O_NOFOLLOW;
	if (src_tells_gone(s, key))
		return open_handle(s, key, flags);
	return open_path(s, key, path, flags);
}
