// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * disk hdd|ssd IMAGE MNT [KEY=VALUE...] - serve IMAGE as MNT/disk with the timing of a device.
 *
 * A loop device with direct I/O on that file passes reads, writes, flushes and zero-outs on to us;
 * a request is answered when the modelled device would have. MNT/ctl: write "on" or "off" to
 * switch the delays; reading gives the counters. Stays in the foreground, ends when MNT is
 * unmounted.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contrib/bench/disk.h"

#define INO_DISK  2
#define INO_CTL	  3
#define FOREVER_S 1e6
#define THREADS	  48
/* <linux/prctl.h> of older headers: we are below a block device, never wait for its write-out. */
#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

static int image_fd;
static uint64_t image_size;

static void fill_stat(fuse_ino_t ino, struct stat *st)
{
	*st = (struct stat){ .st_ino = ino, .st_nlink = 1, .st_blksize = 4096 };
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0600;
	st->st_size = ino == INO_DISK ? (off_t)image_size : 4096;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S };

	if (parent == FUSE_ROOT_ID)
		e.ino = !strcmp(name, "disk") ? INO_DISK : !strcmp(name, "ctl") ? INO_CTL : 0;
	if (!e.ino) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill_stat(e.ino, &e.attr);
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	fill_stat(ino, &st);
	fuse_reply_attr(req, &st, FOREVER_S);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	(void)attr;
	(void)to_set;
	op_getattr(req, ino, fi);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = ino == INO_CTL;
	fuse_reply_open(req, fi);
}

static void reply_counts(fuse_req_t req, size_t size, off_t off)
{
	struct disk_counts c;
	char text[256];

	disk_count(&c);
	int n = snprintf(text, sizeof(text),
			 "reads %llu\nread_bytes %llu\nwrites %llu\nwritten_bytes %llu\n"
			 "flushes %llu\n",
			 (unsigned long long)c.reads, (unsigned long long)c.read_bytes,
			 (unsigned long long)c.writes, (unsigned long long)c.written_bytes,
			 (unsigned long long)c.flushes);
	size_t left = off < n ? (size_t)(n - off) : 0;

	fuse_reply_buf(req, left ? text + off : NULL, left < size ? left : size);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	(void)fi;
	if (ino == INO_CTL) {
		reply_counts(req, size, off);
		return;
	}
	char *buf = malloc(size);
	ssize_t n = buf ? pread(image_fd, buf, size, off) : -1;

	disk_read((uint64_t)off, size);
	if (n < 0)
		fuse_reply_err(req, EIO);
	else
		fuse_reply_buf(req, buf, (size_t)n);
	free(buf);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	(void)fi;
	if (ino == INO_CTL) {
		disk_delays(strncmp(buf, "off", size < 3 ? size : 3) != 0);
		fuse_reply_write(req, size);
		return;
	}
	ssize_t n = pwrite(image_fd, buf, size, off);

	disk_write((uint64_t)off, size);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	if (ino == INO_DISK)
		disk_flush();
	fuse_reply_err(req, 0);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	(void)fi;
	if (ino != INO_DISK || !(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)))
		fuse_reply_err(req, EOPNOTSUPP);
	else if (fallocate(image_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_err(req, 0);
}

static void op_init(void *user, struct fuse_conn_info *conn)
{
	(void)user;
	conn->max_background = conn->congestion_threshold = THREADS;
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,   .lookup = op_lookup, .getattr = op_getattr, .setattr = op_setattr,
	.open = op_open,   .read = op_read,	.write = op_write,     .fsync = op_fsync,
	.flush = op_flush, .release = op_flush, .fallocate = op_fallocate,
};

static int fail(const char *what)
{
	fprintf(stderr, "disk: %s: %s\n", what, strerror(errno));
	return 1;
}

static int serve(const char *mnt)
{
	char name[] = "disk", option[] = "-oallow_other,fsname=hfsbench";
	char *argv[] = { name, option, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse_session *session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (!session || !config || fuse_session_mount(session, mnt) < 0)
		return fail(mnt);
	fuse_loop_cfg_set_max_threads(config, THREADS);
	fuse_loop_cfg_set_idle_threads(config, THREADS);
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* threads inherit it */
	int r = fuse_session_loop_mt(session, config);

	fuse_session_unmount(session);
	fuse_session_destroy(session);
	fuse_loop_cfg_destroy(config);
	return r ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct disk_model model;
	bool hdd = argc > 3 && strcmp(argv[1], "hdd") == 0;

	if (argc < 4 || (!hdd && strcmp(argv[1], "ssd") != 0)) {
		fprintf(stderr, "usage: disk hdd|ssd IMAGE MNT [KEY=VALUE...]\n");
		return 2;
	}
	image_fd = open(argv[2], O_RDWR | O_CLOEXEC);
	if (image_fd < 0)
		return fail(argv[2]);
	image_size = (uint64_t)lseek(image_fd, 0, SEEK_END);
	disk_defaults(&model, hdd ? DISK_HDD : DISK_SSD, image_size);
	for (int i = 4; i < argc; i++)
		if (!disk_option(&model, argv[i])) {
			fprintf(stderr, "disk: no such option: %s\n", argv[i]);
			return 2;
		}
	disk_start(&model);
	return serve(argv[3]);
}
