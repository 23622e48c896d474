// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog SRC SSD N - make N small files in SRC, each with a clean copy on the SSD: a volume with N
 * tracked files, filled by the engine itself, as a user's promotions would have.
 *
 * Files are SRC/DDDD/FFF, 4 KiB each, a thousand to a directory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "db/base.h"
#include "tier/tfile.h"
#include "tier/volume.h"

#define FILE_BYTES    4096
#define FILES_PER_DIR 1000
#define STEP_EVERY    1000

/* Nothing here has to survive a power cut, and a million syncs take an hour. */
int fsync(int fd)
{
	(void)fd;
	return 0;
}

int fdatasync(int fd)
{
	return fsync(fd);
}

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t wall_ns(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_REALTIME_COARSE);
}

static int64_t monotonic_ns(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_MONOTONIC);
}

static void print_log(void *ctx, int level, const char *line)
{
	(void)ctx;
	if (level <= 4)
		fprintf(stderr, "catalog: %s\n", line);
}

static int make_file(int root_fd, unsigned n, char *ret_path, size_t size)
{
	char data[FILE_BYTES];

	snprintf(ret_path, size, "%04u", n / FILES_PER_DIR);
	if (n % FILES_PER_DIR == 0 && mkdirat(root_fd, ret_path, 0755) < 0 && errno != EEXIST)
		return neg_errno();
	snprintf(ret_path, size, "%04u/%03u", n / FILES_PER_DIR, n % FILES_PER_DIR);
	int fd = openat(root_fd, ret_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return neg_errno();
	memset(data, (int)n, sizeof(data));
	if (write(fd, data, sizeof(data)) != (ssize_t)sizeof(data)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

static int promote(struct volume *v, const struct src_key *key, const char *path)
{
	uint64_t next = 0, bytes;
	struct tfile *f;
	int r = tfile_get(v, key, path, &f);

	if (r < 0)
		return r;
	while (r == 0 && next != UINT64_MAX)
		r = tfile_promote_step(f, 0, FILE_BYTES, FILE_BYTES, &next, &bytes);
	tfile_put(f);
	return r;
}

static int fill(struct volume *v, unsigned n)
{
	struct src *src = volume_src(v);
	struct src_key key;
	char path[32];
	int64_t wait;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		int fd = make_file(src->root_fd, i, path, sizeof(path));

		r = fd < 0 ? fd : src_key_of_fd(src, fd, &key);
		if (fd >= 0)
			close(fd);
		if (r == 0)
			r = promote(v, &key, path);
		if (i % STEP_EVERY == 0)
			(void)volume_step(v, &wait);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct volume_env env = { .wall_ns = wall_ns, .monotonic_ns = monotonic_ns,
				  .log = print_log };
	struct volume_options options;
	struct src src;
	struct volume *v;
	char error[512] = "";

	if (argc != 4) {
		fprintf(stderr, "usage: catalog SRC SSD N\n");
		return 2;
	}
	volume_options_init(&options);
	int r = src_init(&src, argv[1]);

	if (r == 0)
		r = volume_open(&src, argv[2], &options, &env, &v, error, sizeof(error));
	if (r == 0) {
		r = fill(v, (unsigned)strtoul(argv[3], NULL, 10));
		int closed = volume_close(v);

		r = r < 0 ? r : closed;
	}
	if (r < 0)
		fprintf(stderr, "catalog: %s\n", *error ? error : strerror(-r));
	src_release(&src);
	return r < 0;
}
