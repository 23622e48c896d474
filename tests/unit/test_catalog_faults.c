// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * test_catalog_faults.c - the catalog in bad times: killed at every system call, a full disk, write
 * errors.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/unit/catalog_fixture.h"

/* ---- killed ------------------------------------------------------------------------------- */
static void trace_me(void (*fn)(void *), void *arg)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(99);
	raise(SIGSTOP);
	fn(arg);
	_exit(0);
}

/*
 * Runs fn in a child and kills it when it is about to make its n-th system call. 1: killed; 0: it
 * ended before; -1: the child failed, or there is no ptrace here.
 */
static int kill_at_call(void (*fn)(void *), void *arg, int n)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		trace_me(fn, arg);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return -1;
	/* two stops per call: on the way in, on the way out */
	for (int stop = 1; stop < 2 * n; stop++) {
		ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
		if (waitpid(pid, &status, 0) != pid)
			return -1;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return 1;
}

static void create_and_exit(void *arg)
{
	struct catalog *c;
	struct fixture *x = arg;

	if (catalog_open(x->dir_fd, NAME, false, &c) < 0)
		_exit(1);
}

/* Creation is atomic: whatever is left, the next open has a good, empty catalog. */
static void killed_in_creation(void)
{
	struct fixture x;
	int r = 1, n;

	for (n = 1; r == 1; n++) {
		fixture_dir(&x, fast_base());
		r = kill_at_call(create_and_exit, &x, n);
		if (r < 0 && n == 1) {
			fixture_release(&x);
			SKIP("no ptrace");
		}
		CHECK(r >= 0);
		fixture_open(&x);
		CHECK(!has_file(x.c, 1));
		CHECK_EQ(catalog_integrity_check(x.c), 0);
		CHECK_EQ(faccessat(x.dir_fd, NAME ".new", F_OK, 0), -1);
		fixture_release(&x);
	}
	printf("# killed at %d points\n", n - 2);
}

/* Files 1..n and their groups belong to one transaction; then file 1000 in one of its own. */
static void commit_twice(void *arg)
{
	struct fixture *x = arg;

	fixture_open(x);
	CHECK_EQ(catalog_begin(x->c), 0);
	for (uint64_t id = 1; id <= 60; id++) {
		put_file(x->c, id, 0, "name");
		put_group(x->c, id, 0, 4000, 10);
	}
	CHECK_EQ(catalog_commit(x->c), 0);
	CHECK_EQ(catalog_begin(x->c), 0);
	put_file(x->c, 1000, 0, "last");
	CHECK_EQ(catalog_commit(x->c), 0);
	catalog_close(x->c);
	if (unit_failures)
		_exit(1);
}

static void killed_in_commit(void)
{
	int r = 1, n, all = 0, none = 0;

	for (n = 1; r == 1; n++) {
		struct fixture x = fixture_new();
		struct cat_totals t;

		fixture_close(&x);
		r = kill_at_call(commit_twice, &x, n);
		if (r < 0 && n == 1) {
			fixture_release(&x);
			SKIP("no ptrace");
		}
		CHECK(r >= 0);
		fixture_open(&x);
		CHECK_EQ(catalog_totals(x.c, &t), 0);
		if (has_file(x.c, 1))
			all += CHECK_EQ(t.dirty_files, 60);
		else
			none += CHECK_EQ(t.files, 0);
		if (has_file(x.c, 1000))
			CHECK_EQ(t.files, 61);
		if (r == 0)
			CHECK(has_file(x.c, 1000));
		CHECK_EQ(catalog_integrity_check(x.c), 0);
		fixture_release(&x);
	}
	CHECK(all > 0 && none > 0);
	printf("# killed at %d points: %d before, %d after the commit\n", n - 2, none, all);
}

static void committed_survives_exit(void)
{
	struct fixture x;
	struct cat_group g;

	fixture_dir(&x, NULL);
	CHECK_EQ(unit_child(commit_and_leave, &x), 0);
	fixture_open(&x);
	CHECK(has_file(x.c, 1) && !has_file(x.c, 2));
	CHECK_EQ(catalog_next_group(x.c, 1, 0, &g), 0);
	CHECK_EQ(g.index, 7);
	fixture_release(&x);
}

struct acknowledged {
	struct fixture *x;
	int fd; /* one byte per commit that returned */
};

static void commit_forever(void *arg)
{
	struct acknowledged *a = arg;

	fixture_open(a->x);
	for (uint64_t id = 1;; id++) {
		CHECK_EQ(catalog_begin(a->x->c), 0);
		put_file(a->x->c, id, 0, "x");
		put_group(a->x->c, id, 0, 1, 1);
		CHECK_EQ(catalog_commit(a->x->c), 0);
		if (write(a->fd, "", 1) != 1)
			_exit(1);
	}
}

/* SIGKILL between any two instructions: what was acknowledged is there, in order, without gaps. */
static void acknowledged_survives_kill(void)
{
	for (int round = 0; round < 5; round++) {
		struct fixture x = fixture_new();
		struct acknowledged a = { .x = &x };
		struct cat_totals t;
		uint64_t n = 0;
		int fds[2];
		char byte;
		pid_t pid;

		fixture_close(&x);
		CHECK_EQ(pipe(fds), 0);
		a.fd = fds[1];
		pid = fork();
		if (pid == 0)
			commit_forever(&a);
		close(fds[1]);
		while (n < 20 + 37 * (uint64_t)round && read(fds[0], &byte, 1) == 1)
			n++;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		while (read(fds[0], &byte, 1) == 1)
			n++;
		close(fds[0]);
		fixture_open(&x);
		CHECK_EQ(catalog_totals(x.c, &t), 0);
		CHECK(t.files == n || t.files == n + 1);
		CHECK(has_file(x.c, t.files));
		CHECK_EQ(catalog_integrity_check(x.c), 0);
		fixture_release(&x);
	}
}

/* ---- a full disk -------------------------------------------------------------------------- */
static int fill(int dir_fd)
{
	static char zeros[4096];
	int fd = openat(dir_fd, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	return fd;
}

static void on_tiny_disk(void *arg)
{
	struct fixture *x = arg;
	struct cat_totals t;
	int fd;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", x->dir, "tmpfs", 0, "size=3m") < 0)
		_exit(77);
	x->dir_fd = open(x->dir, O_RDONLY | O_DIRECTORY);
	fixture_open(x);
	CHECK_EQ(sql_exec(x->c->writer, "PRAGMA cache_size = -256"), 0);
	CHECK_EQ(put_many(x->c, 1, 100), 0);
	fd = fill(x->dir_fd);
	CHECK(fd >= 0);
	/* small and large transactions, again and again: refused, and nothing is changed */
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(put_many(x->c, 1000, i & 1 ? 20000 : 2000), -ENOSPC);
		CHECK(strstr(catalog_error(x->c), "full"));
		CHECK_EQ(catalog_totals(x->c, &t), 0);
		CHECK_EQ(t.files, 100);
		CHECK(has_file(x->c, 100) && !has_file(x->c, 1000));
	}
	CHECK_EQ(ftruncate(fd, 0), 0);
	CHECK_EQ(put_many(x->c, 1000, 2000), 0);
	CHECK_EQ(catalog_integrity_check(x->c), 0);
	CHECK_EQ(catalog_totals(x->c, &t), 0);
	CHECK_EQ(t.files, 2100);
	/* full while closed: the checkpoint at close has no room, and that loses nothing */
	CHECK_EQ(put_many(x->c, 5000, 2000), 0);
	close(fd);
	close(fill(x->dir_fd));
	fixture_close(x);
	CHECK_EQ(catalog_open(x->dir_fd, "other.db", false, &x->c), -ENOSPC);
	CHECK_EQ(faccessat(x->dir_fd, "other.db", F_OK, 0), -1);
	CHECK_EQ(faccessat(x->dir_fd, "other.db.new", F_OK, 0), -1);
	CHECK_EQ(unlinkat(x->dir_fd, "filler", 0), 0);
	fixture_open(x);
	CHECK_EQ(catalog_totals(x->c, &t), 0);
	CHECK_EQ(t.files, 4100);
	CHECK_EQ(catalog_integrity_check(x->c), 0);
	fixture_close(x);
}

static void full_disk(void)
{
	struct fixture x;
	int r;

	fixture_dir(&x, NULL);
	r = unit_child(on_tiny_disk, &x);
	fixture_release(&x);
	if (r == 77)
		SKIP("may not mount a tmpfs");
	CHECK_EQ(r, 0);
}

/* sqlite answers an I/O error with a rollback of its own; the rows after it must not get in. */
static void write_error(void)
{
	struct fixture x = fixture_new();
	struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY };
	struct cat_totals t;

	/* so that rows are written to the WAL before the commit, too */
	CHECK_EQ(sql_exec(x.c->writer, "PRAGMA cache_size = -256"), 0);
	CHECK_EQ(put_many(x.c, 1, 100), 0);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_EQ(put_many(x.c, 1000, 30000), -EIO);
	CHECK_EQ(put_many(x.c, 1000, 10000), -EIO);
	limit.rlim_cur = RLIM_INFINITY;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_EQ(catalog_totals(x.c, &t), 0);
	CHECK_EQ(t.files, 100);
	CHECK_EQ(put_many(x.c, 1000, 10000), 0);
	CHECK_EQ(catalog_totals(x.c, &t), 0);
	CHECK_EQ(t.files, 10100);
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

UNIT_MAIN({ "killed_in_creation", killed_in_creation }, { "killed_in_commit", killed_in_commit },
	  { "committed_survives_exit", committed_survives_exit },
	  { "acknowledged_survives_kill", acknowledged_survives_kill }, { "full_disk", full_disk },
	  { "write_error", write_error })
