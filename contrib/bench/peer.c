// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * peer DIR MNT - the plainest filesystem with kernel passthrough: the regular files of one
 * directory, each opened with the file itself behind it. What it costs no filesystem of this kind
 * can save, so it is the bound that hybridfs is measured against. Stays in the foreground, ends
 * when MNT is unmounted; ends with 3 where the kernel has no passthrough.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/compat.h"

#define FILES_MAX 64
#define FOREVER_S 1e6
#define NO_PASSTHROUGH 3

struct file {
	char *name;
	int fd, backing_id;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* files, n_files */
static struct file files[FILES_MAX];			 /* its place + 2 is the node id */
static unsigned n_files;
static int dir_fd;
static struct fuse_session *session;

static int add_file_locked(const char *name)
{
	struct file *f = &files[n_files];

	if (n_files == FILES_MAX)
		return -ENFILE;
	f->fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (f->fd < 0)
		return -errno;
	f->backing_id = compat_backing_open(session, f->fd);
	f->name = strdup(name);
	if (f->backing_id > 0 && f->name)
		return (int)n_files++;
	close(f->fd);
	return -EOPNOTSUPP;
}

static int find_file(const char *name)
{
	int at = -1;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; at < 0 && i < n_files; i++)
		if (strcmp(files[i].name, name) == 0)
			at = (int)i;
	if (at < 0)
		at = add_file_locked(name);
	pthread_mutex_unlock(&lock);
	return at;
}

static int fill_stat(fuse_ino_t ino, struct stat *st)
{
	int r = fstat(ino == FUSE_ROOT_ID ? dir_fd : files[ino - 2].fd, st);

	st->st_ino = ino;
	return r < 0 ? errno : 0;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = 1, .entry_timeout = FOREVER_S };
	int at = parent == FUSE_ROOT_ID ? find_file(name) : -ENOTDIR, err;

	if (at < 0) {
		fuse_reply_err(req, -at);
		return;
	}
	e.ino = (fuse_ino_t)at + 2;
	err = fill_stat(e.ino, &e.attr);
	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int err = fill_stat(ino, &st);

	(void)fi;
	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, 1);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	compat_reply_open(req, fi, files[ino - 2].backing_id, false);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	int fd = files[ino - 2].fd;

	(void)fi;
	fuse_reply_err(req, (datasync ? fdatasync(fd) : fsync(fd)) < 0 ? errno : 0);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = op_lookup, .getattr = op_getattr, .open = op_open, .fsync = op_fsync
};

static int fail(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	char name[] = "peer", option[] = "-oallow_other,default_permissions,fsname=hfsbench";
	char *fuse_argv[] = { name, option, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	struct compat compat;

	if (argc != 3) {
		fprintf(stderr, "usage: peer DIR MNT\n");
		return 2;
	}
	dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return fail(argv[1]);
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || !config || fuse_session_mount(session, argv[2]) < 0)
		return fail(argv[2]);
	int r = compat_init(session, true, &compat);

	if (r == 0 && !compat.passthrough)
		r = NO_PASSTHROUGH;
	if (r == 0)
		r = fuse_session_loop_mt(session, config);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	fuse_loop_cfg_destroy(config);
	return r < 0 ? 1 : r;
}
