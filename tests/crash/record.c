// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * record IMAGES MNT LOG - serve IMAGES/src.img and IMAGES/ssd.img below MNT, and log what reaches
 * them.
 *
 * Loop devices with direct I/O on the two files pass writes, zero-outs and flushes of the
 * filesystem above on to us. One thread handles them all, so the order of the log is the order of
 * events. MNT/ctl takes a mark with each write(2): whoever writes "fsync returned" there has it
 * in the log behind the flushes that made it true.
 *
 * Stays in the foreground; ends, with the log complete, when MNT is unmounted.
 */
#define FUSE_USE_VERSION 312
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/falloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crashlog.h"

#define INO_DEVICE 2 /* and following */
#define INO_CTL	   (INO_DEVICE + LOG_DEVICES)
#define INO_END	   (INO_CTL + 1)
#define READ_MAX   (1u << 20)
#define FOREVER_S  1e6
#define LOG_BUFFER (4u << 20)

static int device_fds[LOG_DEVICES];
static FILE *log_file;

static bool is_device(fuse_ino_t ino)
{
	return ino >= INO_DEVICE && ino < INO_DEVICE + LOG_DEVICES;
}

static int fd_of(fuse_ino_t ino)
{
	assert(is_device(ino));
	return device_fds[ino - INO_DEVICE];
}

static const char *name_of(fuse_ino_t ino)
{
	return is_device(ino) ? log_device_names[ino - INO_DEVICE] : "ctl";
}

/* A log with a gap would make every later verdict wrong: better none. */
static void log_append(enum log_type type, fuse_ino_t ino, uint64_t off, uint64_t len,
		       const void *data)
{
	struct log_record r = {
		.magic = LOG_MAGIC, .type = (uint8_t)type, .off_bytes = off, .len_bytes = len
	};

	if (is_device(ino))
		r.dev = (uint8_t)(ino - INO_DEVICE);
	if (fwrite(&r, sizeof(r), 1, log_file) != 1 ||
	    (data && len && fwrite(data, len, 1, log_file) != 1)) {
		perror("record: cannot write the log");
		_exit(1);
	}
}

static int do_stat(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (is_device(ino) && fstat(fd_of(ino), st) < 0)
		return -errno;
	if (ino == FUSE_ROOT_ID)
		st->st_mode = S_IFDIR | 0700;
	else
		st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	st->st_ino = ino;
	return ino == FUSE_ROOT_ID || (ino >= INO_DEVICE && ino < INO_END) ? 0 : -ENOENT;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S };

	for (e.ino = INO_DEVICE; e.ino < INO_END; e.ino++)
		if (parent == FUSE_ROOT_ID && !strcmp(name, name_of(e.ino)))
			break;
	if (e.ino == INO_END || do_stat(e.ino, &e.attr) < 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;
	int rc = do_stat(ino, &st);

	(void)fi;
	if (rc < 0)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_attr(req, &st, FOREVER_S);
}

/* Sizes and modes are fixed; O_TRUNC on ctl is harmless. */
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

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static char buf[READ_MAX];
	ssize_t n;

	(void)fi;
	if (!is_device(ino) || size > sizeof(buf)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	n = pread(fd_of(ino), buf, size, off);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	ssize_t n = (ssize_t)size;

	(void)fi;
	if (is_device(ino))
		n = pwrite(fd_of(ino), buf, size, off);
	if (n < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	if (is_device(ino))
		log_append(LOG_WRITE, ino, (uint64_t)off, (uint64_t)n, buf);
	else
		log_append(LOG_MARK, ino, 0, size, buf);
	fuse_reply_write(req, (size_t)n);
}

/* The images themselves need no sync: a cut is made from the log. */
static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	if (is_device(ino))
		log_append(LOG_FLUSH, ino, 0, 0, NULL);
	fuse_reply_err(req, 0);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	(void)fi;
	if (!is_device(ino) || !(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (fallocate(fd_of(ino), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len) < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	log_append(LOG_ZERO, ino, (uint64_t)off, (uint64_t)len, NULL);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = op_lookup,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
};

static void open_all(const char *dir, const char *log_path)
{
	char path[4096];
	int i;

	for (i = 0; i < LOG_DEVICES; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, log_device_names[i]);
		device_fds[i] = open(path, O_RDWR | O_CLOEXEC);
		if (device_fds[i] < 0) {
			perror(path);
			exit(1);
		}
	}
	log_file = fopen(log_path, "we");
	if (!log_file) {
		perror(log_path);
		exit(1);
	}
	setvbuf(log_file, NULL, _IOFBF, LOG_BUFFER);
}

int main(int argc, char **argv)
{
	char *fuse_argv[] = { argv[0], (char[]){ "-ofsname=crashrecord" }, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct fuse_session *se;
	int rc = 1;

	if (argc != 4) {
		fprintf(stderr, "Usage: record IMAGES MNT LOG\n");
		return 2;
	}
	open_all(argv[1], argv[3]);
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_set_signal_handlers(se) < 0 || fuse_session_mount(se, argv[2]) < 0)
		return 1;
	rc = fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	return fclose(log_file) == 0 && rc == 0 ? 0 : 1;
}
