// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "db/base.h"

/* What a filesystem that does not know the request may say. */
static bool is_unknown_request(int err)
{
	return err == -ENOTTY || err == -EINVAL || err == -ENOSYS || err == -EOPNOTSUPP;
}

static int request(const struct client *c, unsigned long code, void *arg)
{
	return ioctl(c->fd, code, arg) < 0 ? neg_errno() : 0;
}

static int verify(struct client *c)
{
	struct hfs_version v = { 0 };
	int err = request(c, HFS_IOC_VERSION, &v);

	if (is_unknown_request(err))
		return -ENOTTY;
	if (err < 0)
		return err;
	if (v.magic != HFS_PROTO_MAGIC)
		return -ENOTTY;
	c->pid = v.pid;
	return v.version == HFS_PROTO_VERSION ? 0 : -EPROTO;
}

static bool is_openable(mode_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode);
}

/* A FIFO, a device...: ioctls go elsewhere, so the filesystem's type has to tell whose it is. */
static int refuse_special(const char *path)
{
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		return neg_errno();
	return fs.f_type == FUSE_SUPER_MAGIC ? -EMEDIUMTYPE : -ENOTTY;
}

#define OPEN_TRIES 5u

/* Open `path`, of which `before` is the stat; it must still be the same file. */
static int open_same(const char *path, const struct stat *before, int flags, struct client *ret)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	/* These two tell the daemon that nobody is going to read (fs/passthrough.c). A program that
	 * gets the file for itself at the same moment makes the open fail. */
	if (S_ISREG(before->st_mode))
		flags |= O_DIRECT;
	for (unsigned i = 0; fd < 0 && i < OPEN_TRIES; i++) {
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
		if (fd < 0 && errno != EIO)
			break;
	}
	if (fd < 0)
		return errno == ELOOP && (flags & O_NOFOLLOW) ? -ESTALE : neg_errno();
	if (fstat(fd, &st) < 0)
		return neg_errno();
	if (st.st_dev != before->st_dev || st.st_ino != before->st_ino || !is_openable(st.st_mode))
		return -ESTALE;
	*ret = (struct client){ .fd = TAKE_FD(fd), .st = st };
	return 0;
}

int client_open(const char *path, struct client *ret)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	struct stat st;
	int err;

	if (stat(path, &st) < 0)
		return neg_errno();
	if (!is_openable(st.st_mode))
		return refuse_special(path);
	err = open_same(path, &st, 0, &c);
	if (err == 0)
		err = verify(&c);
	if (err == -EPROTO)
		ret->pid = c.pid;
	if (err < 0)
		return err;
	*ret = c;
	c.fd = -1;
	return 0;
}

int client_open_below(const char *path, dev_t dev, struct client *ret)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return neg_errno();
	if (!is_openable(st.st_mode) || st.st_dev != dev)
		return -ESTALE;
	return open_same(path, &st, O_NOFOLLOW, ret);
}

const char *client_strerror(int err)
{
	switch (err) {
	case -ENOTTY:
		return "not on a hybridfs mount";
	case -EPROTO:
		return "the daemon of this mount speaks another protocol version than this "
		       "program: use the hybridfs it was mounted with, or remount";
	case -EMEDIUMTYPE:
		return "neither a regular file nor a directory";
	case -ESTALE:
		return "was replaced or removed meanwhile";
	case -ETIME:
		return "the daemon does not answer";
	case -ENOTCONN:
		return "the daemon of this mount is dead (Transport endpoint is not connected); "
		       "`hybridfs umount` it and mount again";
	default:
		return strerror(-err);
	}
}

bool client_is_dead(int err)
{
	return err == -ENOTCONN || err == -ECONNABORTED || err == -ENODEV;
}

bool client_is_mount_root(const struct client *c)
{
	struct statx sx;

	return statx(c->fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) == 0 &&
	       (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* Whatever the daemon sent, it is a string. */
#define TERMINATE(array) ((array)[sizeof(array) - 1] = '\0')

int client_file_stat(const struct client *c, struct hfs_file_stat *ret)
{
	int err = request(c, HFS_IOC_FILE_STAT, ret);

	if (err < 0)
		return err;
	TERMINATE(ret->why_not_passthrough);
	ret->ssd_bytes = min_u64(ret->ssd_bytes, ret->size_bytes);
	ret->dirty_bytes = min_u64(ret->dirty_bytes, ret->size_bytes);
	ret->pinned_bytes = min_u64(ret->pinned_bytes, ret->size_bytes);
	return 0;
}

int client_status(const struct client *c, struct hfs_status *ret)
{
	int err = request(c, HFS_IOC_STATUS, ret);

	TERMINATE(ret->source);
	TERMINATE(ret->ssd);
	TERMINATE(ret->mountpoint);
	TERMINATE(ret->mode);
	TERMINATE(ret->volume_id);
	TERMINATE(ret->health_reason);
	TERMINATE(ret->why_not_passthrough);
	return err;
}

int client_step(const struct client *c, struct hfs_step *s)
{
	return request(c, HFS_IOC_STEP, s);
}

int client_each_extent(const struct client *c, bool include_absent, client_extent_fn fn, void *arg)
{
	struct hfs_extents x;
	uint64_t start = 0;

	while (start != UINT64_MAX) {
		memset(&x, 0, sizeof(x));
		x.start = start;
		x.include_absent = include_absent;
		int err = request(c, HFS_IOC_EXTENTS, &x);

		if (err < 0)
			return err;
		if (x.count > HFS_EXTENTS_PER_CALL || x.start <= start)
			return -EIO; /* would never end */
		for (uint32_t i = 0; i < x.count; i++) {
			err = fn(&x.rows[i], arg);
			if (err != 0)
				return err;
		}
		start = x.start;
	}
	return 0;
}
