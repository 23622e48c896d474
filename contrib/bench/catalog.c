// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog SRC SSD N - make N small files in SRC, each with a clean copy on the SSD: a volume with N
 * tracked files, filled by the engine itself, as a user's promotions would have.
 * catalog SRC SSD N BYTES - a daemon of that volume that dies with a journal as full as it gets:
 * BYTES are written to one file after the other, scattered over all of them, each followed by
 * fsync, until the next commit would have to empty the journal first. Prints how many files.
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

#include "tier/internal.h"

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

static void file_path(unsigned n, char *ret_path, size_t size)
{
	snprintf(ret_path, size, "%04u/%03u", n / FILES_PER_DIR, n % FILES_PER_DIR);
}

static int make_file(int root_fd, unsigned n, char *ret_path, size_t size)
{
	char data[FILE_BYTES];

	snprintf(ret_path, size, "%04u", n / FILES_PER_DIR);
	if (n % FILES_PER_DIR == 0 && mkdirat(root_fd, ret_path, 0755) < 0 && errno != EEXIST)
		return neg_errno();
	file_path(n, ret_path, size);
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

/* ---- a crash ------------------------------------------------------------------------------ */
/* Coprime to any number of files that is not a multiple of it, and far from the last one. */
#define STRIDE 7368787u
/* What the committer wants for a file with its data, and some more. */
#define COMMIT_BYTES (256u << 10)

static int write_and_sync(struct volume *v, const char *path, const void *data, size_t len)
{
	struct tier_stream s = { 0 };
	struct src_key key;
	struct tfile *f;
	int fd = openat(volume_src(v)->root_fd, path, O_PATH | O_CLOEXEC);
	int r = fd < 0 ? neg_errno() : src_key_of_fd(volume_src(v), fd, &key);

	if (fd >= 0)
		close(fd);
	if (r == 0)
		r = tfile_get(v, &key, path, &f);
	if (r < 0)
		return r;
	r = tfile_use(f, true);
	if (r == 0) {
		ssize_t n = tfile_write(f, &s, data, len, 0);

		r = n < 0 ? (int)n : tfile_fsync(f, false);
		tfile_unuse(f);
	}
	tfile_put(f);
	return r;
}

static bool room_in_journal(struct volume *v)
{
	return journal_room(v->journal) > COMMIT_BYTES &&
	       file_list_count(v, &v->uncheckpointed) + 2 <= JOURNAL_FILES_MAX;
}

/* Without background steps nothing empties the journal. */
static int fill_journal(struct volume *v, unsigned n, size_t len)
{
	_cleanup_free_ void *data = malloc(len);
	unsigned i = 0;
	char path[32];
	int r = data ? 0 : -ENOMEM;

	if (data)
		memset(data, 'J', len);
	for (; r == 0 && i < n && room_in_journal(v); i++) {
		file_path((unsigned)((uint64_t)i * STRIDE % n), path, sizeof(path));
		r = write_and_sync(v, path, data, len);
	}
	printf("%u\n", i);
	fprintf(stderr, "catalog: %.1f MiB of %.1f in the journal, %u files\n",
		(double)journal_used(v->journal) / (1 << 20),
		(double)journal_size(v->journal) / (1 << 20), i);
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

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: catalog SRC SSD N [BYTES]\n");
		return 2;
	}
	unsigned n = (unsigned)strtoul(argv[3], NULL, 10);
	volume_options_init(&options);
	int r = src_init(&src, argv[1]);

	if (r == 0)
		r = volume_open(&src, argv[2], &options, &env, &v, error, sizeof(error));
	if (r == 0 && argc == 5) {
		r = fill_journal(v, n, strtoul(argv[4], NULL, 10));
		if (r < 0)
			fprintf(stderr, "catalog: %s\n", strerror(-r));
		fflush(stdout);
		_exit(r < 0 ? 1 : 0);
	}
	if (r == 0) {
		r = fill(v, n);
		int closed = volume_close(v);

		r = r < 0 ? r : closed;
	}
	if (r < 0)
		fprintf(stderr, "catalog: %s\n", *error ? error : strerror(-r));
	src_release(&src);
	return r < 0;
}
