// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workload DIR CTL NAME SECONDS SEED [PROCS] - follow the plan of a workload (plan.h, or mixed) in
 * DIR with PROCS processes, and mark in CTL, once fsync has returned, what is promised now:
 *
 *	A NAME PROC STEP	all up to this step of that process is durable
 *
 * cold also reads, past the page cache, and ends with an error when it does not find what it wrote.
 *
 * HFS_CRASH_MARK_EARLY=1 makes it a liar, which marks before it syncs: verify has to notice.
 *
 * When the daemon below is killed it ends, with 0: nothing more is promised then.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plan.h"

#define PROCS_MAX     16
#define SQL_BUSY_MS   20000
#define SQL_WAL_PAGES 60 /* small, so that checkpoints happen */

struct writer {
	struct actor actor;
	int dir_fd, ctl_fd;
	const char *dir;
	struct timespec end;
	bool mark_early;
};

static int watched_fd = -1; /* a directory of the mount */

static bool mount_is_gone(void)
{
	return watched_fd >= 0 && fsync(watched_fd) < 0 &&
	       (errno == ENOTCONN || errno == ECONNABORTED);
}

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	int err = errno;
	va_list args;

	if (err == ENOTCONN || err == ECONNABORTED || mount_is_gone())
		exit(0);
	fputs("workload: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(err));
	exit(1);
}

/* A page of a mapped file that nobody can bring any more. */
static void on_bus_error(int number)
{
	_exit(mount_is_gone() ? 0 : 128 + number);
}

static bool time_is_up(const struct writer *w)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > w->end.tv_sec ||
	       (now.tv_sec == w->end.tv_sec && now.tv_nsec >= w->end.tv_nsec);
}

static void mark(const struct writer *w, uint64_t step)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "A %s %u %llu\n", plan_names[w->actor.workload],
			 w->actor.proc, (unsigned long long)step);

	if (write(w->ctl_fd, line, (size_t)n) != n)
		die("cannot write a mark");
}

static void sync_dir(const struct writer *w)
{
	if (fsync(w->dir_fd) < 0)
		die("fsync of the directory");
}

/* fsync, at every other step fdatasync: then it is promised. */
static void sync_and_mark(const struct writer *w, int fd, uint64_t step)
{
	if (w->mark_early)
		mark(w, step);
	if ((step % 2 ? fdatasync(fd) : fsync(fd)) < 0)
		die("fsync in step %llu", (unsigned long long)step);
	if (step == 0)
		sync_dir(w);
	if (!w->mark_early)
		mark(w, step);
}

static void write_all(int fd, const void *buf, size_t len, size_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n <= 0)
			die("write of %zu bytes", len);
		p += n;
		off += (size_t)n;
		len -= (size_t)n;
	}
}

static int open_file(const struct writer *w, const char *name, int flags)
{
	int fd = openat(w->dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0644);

	if (fd < 0)
		die("%s", name);
	return fd;
}

/* Programs open their files again from time to time; a filesystem may serve them otherwise then. */
#define SYNCS_PER_OPEN 12

static void open_again(const struct writer *w, int *fd, const char *name, int flags)
{
	close(*fd);
	*fd = open_file(w, name, flags);
}

static void *allocate(size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		die("malloc");
	return p;
}

static void run_append(struct writer *w)
{
	unsigned char *buf = allocate(APPEND_RECORD_MAX);
	uint64_t step = 0;
	size_t off = 0;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "append.%u", w->actor.proc);
	fd = open_file(w, name, O_EXCL);
	sync_and_mark(w, fd, 0);
	while (!time_is_up(w) && off < APPEND_FILE_MAX) {
		size_t len = plan_append_len(&w->actor, ++step);

		plan_fill(&w->actor, step, off, buf, len);
		write_all(fd, buf, len, off);
		off += len;
		if (plan_syncs(&w->actor, step))
			sync_and_mark(w, fd, step);
	}
	close(fd);
	free(buf);
}

static void over_write(const struct writer *w, int fd, uint64_t step, unsigned int first,
		       unsigned int count, unsigned char *buf)
{
	uint64_t start = plan_over_start(&w->actor) + first;
	unsigned int i;

	for (i = 0; i < count; i++)
		plan_fill(&w->actor, step, start + i, buf + (size_t)i * PLAN_BLOCK, PLAN_BLOCK);
	write_all(fd, buf, (size_t)count * PLAN_BLOCK, start * PLAN_BLOCK);
}

/* All processes in one file, each in its own part. */
static void run_overwrite(struct writer *w)
{
	unsigned char *buf = allocate((size_t)OVER_BLOCKS * PLAN_BLOCK);
	unsigned int first, count, syncs = 0;
	uint64_t step = 0;
	int fd;

	fd = open_file(w, "overwrite", 0);
	over_write(w, fd, 0, 0, OVER_BLOCKS, buf);
	sync_and_mark(w, fd, 0);
	while (!time_is_up(w)) {
		plan_over(&w->actor, ++step, &first, &count);
		over_write(w, fd, step, first, count, buf);
		if (!plan_syncs(&w->actor, step))
			continue;
		sync_and_mark(w, fd, step);
		if (++syncs % SYNCS_PER_OPEN == 0)
			open_again(w, &fd, "overwrite", 0);
	}
	close(fd);
	free(buf);
}

static void cold_read(const struct writer *w, int fd, uint64_t step, const uint64_t *versions,
		      unsigned char *buf)
{
	unsigned char want[PLAN_BLOCK];
	unsigned int n, first, count, i;

	for (n = 0; n < COLD_READS; n++) {
		plan_cold_read(&w->actor, step, n, &first, &count);
		if (pread(fd, buf, (size_t)count * PLAN_BLOCK, (off_t)first * PLAN_BLOCK) !=
		    (ssize_t)count * PLAN_BLOCK)
			die("read in step %llu", (unsigned long long)step);
		for (i = 0; i < count; i++) {
			plan_fill(&w->actor, versions[first + i], first + i, want, sizeof(want));
			if (memcmp(buf + (size_t)i * PLAN_BLOCK, want, sizeof(want)) != 0)
				die("cold.%u: in step %llu block %u is not what step %llu wrote",
				    w->actor.proc, (unsigned long long)step, first + i,
				    (unsigned long long)versions[first + i]);
		}
	}
}

/* A file of its own, with more than its share of the SSD; what is read is checked at once. */
static void run_cold(struct writer *w)
{
	unsigned char *buf = aligned_alloc(PLAN_BLOCK, (size_t)COLD_BLOCKS * PLAN_BLOCK);
	uint64_t versions[COLD_BLOCKS] = { 0 }, step = 0;
	unsigned int first, count, i, syncs = 0;
	int fd, direct_fd;
	char name[32];

	if (!buf)
		die("malloc");
	snprintf(name, sizeof(name), "cold.%u", w->actor.proc);
	fd = open_file(w, name, O_EXCL);
	over_write(w, fd, 0, 0, COLD_BLOCKS, buf);
	sync_and_mark(w, fd, 0);
	direct_fd = open_file(w, name, O_DIRECT);
	while (!time_is_up(w)) {
		cold_read(w, direct_fd, ++step, versions, buf);
		plan_over(&w->actor, step, &first, &count);
		over_write(w, fd, step, first, count, buf);
		for (i = first; i < first + count; i++)
			versions[i] = step;
		if (!plan_syncs(&w->actor, step))
			continue;
		sync_and_mark(w, fd, step);
		if (++syncs % SYNCS_PER_OPEN == 0) {
			close(direct_fd);
			open_again(w, &fd, name, 0);
			direct_fd = open_file(w, name, O_DIRECT);
		}
	}
	close(direct_fd);
	close(fd);
	free(buf);
}

static void rename_replace(const struct writer *w, uint64_t step, const char *name, size_t len,
			   unsigned char *buf)
{
	char temp[32];
	int fd;

	snprintf(temp, sizeof(temp), "temp.%u", w->actor.proc);
	fd = open_file(w, temp, O_TRUNC);
	plan_fill(&w->actor, step, 0, buf, len);
	write_all(fd, buf, len, 0);
	if (!w->mark_early && fsync(fd) < 0)
		die("fsync of %s", temp);
	close(fd);
	if (renameat(w->dir_fd, temp, w->dir_fd, name) < 0)
		die("rename to %s", name);
}

/* Each step is durable by the fsync of the directory. */
static void run_rename(struct writer *w)
{
	unsigned char *buf = allocate(RENAME_BYTES_MAX);
	uint64_t step = 0;

	mark(w, 0);
	while (!time_is_up(w)) {
		unsigned int number;
		bool is_unlink;
		char name[32];
		size_t len;

		plan_rename(&w->actor, ++step, &number, &is_unlink, &len);
		snprintf(name, sizeof(name), "rename.%u.%u", w->actor.proc, number);
		if (is_unlink) {
			if (unlinkat(w->dir_fd, name, 0) < 0 && errno != ENOENT)
				die("unlink of %s", name);
		} else {
			rename_replace(w, step, name, len, buf);
		}
		if (w->mark_early)
			mark(w, step);
		sync_dir(w);
		if (!w->mark_early)
			mark(w, step);
	}
	free(buf);
}

static void sql(sqlite3 *db, const char *format, ...)
{
	char *text, *message = NULL;
	va_list args;

	va_start(args, format);
	text = sqlite3_vmprintf(format, args);
	va_end(args);
	if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
		die("%s: %s", text, message);
	sqlite3_free(text);
}

static void sql_insert(struct writer *w, sqlite3 *db, uint64_t step, unsigned char *buf)
{
	size_t len = plan_sql_len(&w->actor, step);
	sqlite3_stmt *stmt = NULL;

	plan_fill(&w->actor, step, 0, buf, len);
	if (sqlite3_prepare_v2(db, "INSERT INTO log VALUES(?, ?)", -1, &stmt, NULL) != SQLITE_OK ||
	    sqlite3_bind_int64(stmt, 1, (sqlite3_int64)step) != SQLITE_OK ||
	    sqlite3_bind_blob(stmt, 2, buf, (int)len, SQLITE_STATIC) != SQLITE_OK ||
	    sqlite3_step(stmt) != SQLITE_DONE)
		die("insert: %s", sqlite3_errmsg(db));
	sqlite3_finalize(stmt);
}

/* A path may by now lead to a new mount in the place of the one that we work on. */
static bool is_same_mount(const struct writer *w, const char *path)
{
	struct stat ours, there;

	return fstat(w->dir_fd, &ours) == 0 && stat(path, &there) == 0 &&
	       ours.st_dev == there.st_dev;
}

/*
 * WAL where the process is even, DELETE where it is odd. Synchronous is EXTRA: with FULL the unlink
 * of a rollback journal is not durable, and sqlite itself does not promise the transaction.
 */
static void run_sqlite(struct writer *w)
{
	unsigned char *buf = allocate(SQL_BODY_MAX);
	uint64_t step = 0;
	char path[4096];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/sqlite.%u.db", w->dir, w->actor.proc);
	if (sqlite3_open(path, &db) != SQLITE_OK)
		die("%s", path);
	if (!is_same_mount(w, path))
		exit(0);
	sqlite3_busy_timeout(db, SQL_BUSY_MS);
	sql(db, "PRAGMA journal_mode=%s; PRAGMA synchronous=%s; PRAGMA wal_autocheckpoint=%d;",
	    w->actor.proc % 2 ? "DELETE" : "WAL", w->mark_early ? "OFF" : "EXTRA", SQL_WAL_PAGES);
	sql(db, "BEGIN; CREATE TABLE counter(n INTEGER); INSERT INTO counter VALUES(0);"
		"CREATE TABLE log(n INTEGER PRIMARY KEY, body BLOB); COMMIT;");
	sync_dir(w);
	mark(w, 0);
	while (!time_is_up(w)) {
		step++;
		sql(db, "BEGIN IMMEDIATE; UPDATE counter SET n = n + 1;");
		sql_insert(w, db, step, buf);
		sql(db, "DELETE FROM log WHERE n <= %lld - %d", (long long)step, SQL_ROWS);
		if (w->mark_early)
			mark(w, step);
		sql(db, "COMMIT");
		if (!w->mark_early)
			mark(w, step);
	}
	sqlite3_close(db);
	free(buf);
}

static int trunc_do(int fd, const struct trunc_op *op, const struct trunc_state *after)
{
	off_t off = (off_t)op->off, len = (off_t)op->len;

	switch (op->kind) {
	case T_TRUNCATE:
		return ftruncate(fd, off);
	case T_PUNCH:
		return fallocate(fd, 3 /* PUNCH_HOLE | KEEP_SIZE */, off, len);
	case T_ZERO:
		return fallocate(fd, 0x10 /* ZERO_RANGE */, off, len);
	case T_EXTEND:
		return fallocate(fd, 0, off, len);
	case T_WRITE:
	case T_APPEND:
		write_all(fd, after->data + op->off, op->len, op->off);
	}
	return 0;
}

static void run_truncate(struct writer *w)
{
	struct trunc_state *state = calloc(1, sizeof(*state));
	unsigned int syncs = 0;
	uint64_t step = 0;
	char name[32];
	int fd;

	if (!state)
		die("calloc");
	snprintf(name, sizeof(name), "truncate.%u", w->actor.proc);
	fd = open_file(w, name, O_EXCL);
	sync_and_mark(w, fd, 0);
	while (!time_is_up(w)) {
		struct trunc_op op = plan_trunc(&w->actor, ++step, state);

		plan_trunc_apply(&w->actor, step, &op, state);
		if (trunc_do(fd, &op, state) < 0)
			die("operation %d in step %llu", op.kind, (unsigned long long)step);
		if (!plan_syncs(&w->actor, step))
			continue;
		sync_and_mark(w, fd, step);
		if (++syncs % SYNCS_PER_OPEN == 0)
			open_again(w, &fd, name, 0);
	}
	close(fd);
	free(state);
}

static void run(struct writer *w)
{
	static void (*const runs[W_COUNT])(struct writer *) = {
		run_append, run_overwrite, run_rename, run_sqlite, run_truncate, run_cold,
	};

	runs[w->actor.workload](w);
	exit(0);
}

static void setup(struct writer *w, char **argv)
{
	const char *early = getenv("HFS_CRASH_MARK_EARLY");

	w->dir = argv[1];
	w->dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->dir_fd < 0)
		die("%s", argv[1]);
	watched_fd = w->dir_fd;
	signal(SIGBUS, on_bus_error);
	w->ctl_fd = open(argv[2], O_WRONLY | O_CLOEXEC);
	if (w->ctl_fd < 0)
		die("%s", argv[2]);
	clock_gettime(CLOCK_MONOTONIC, &w->end);
	w->end.tv_sec += atoi(argv[4]);
	w->actor.seed = strtoull(argv[5], NULL, 0);
	w->mark_early = early && *early == '1';
}

int main(int argc, char **argv)
{
	unsigned int procs = argc > 6 ? (unsigned int)atoi(argv[6]) : 1, i;
	int fixed = -1, status, failed = 0;
	struct writer w;

	if (argc < 6 || procs < 1 || procs > PROCS_MAX) {
		fprintf(stderr, "Usage: workload DIR CTL NAME SECONDS SEED [PROCS]\n");
		return 2;
	}
	for (i = 0; i < W_COUNT; i++)
		if (!strcmp(argv[3], plan_names[i]))
			fixed = (int)i;
	if (fixed < 0 && strcmp(argv[3], "mixed") != 0) {
		fprintf(stderr, "workload: what is %s?\n", argv[3]);
		return 2;
	}
	setup(&w, argv);
	for (i = 0; i < procs; i++) {
		w.actor.workload = fixed < 0 ? i % W_COUNT : (enum workload)fixed;
		w.actor.proc = fixed < 0 ? i / W_COUNT : i;
		switch (fork()) {
		case -1:
			die("fork");
		case 0:
			run(&w);
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
