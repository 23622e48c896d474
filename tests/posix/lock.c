// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lock.c - flock, record locks of processes and of open files, between processes
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

/* What another process is asked to try. */
struct attempt {
	int cmd;  /* F_SETLK, F_OFD_SETLK, or 0 for flock() */
	int type; /* F_RDLCK ..., or LOCK_SH ... */
	off_t start, len;
};

static int lock_fd(int fd, int cmd, int type, off_t start, off_t len)
{
	struct flock fl = {
		.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len
	};

	return fcntl(fd, cmd, &fl);
}

static int attempt_in_child(void *arg)
{
	const struct attempt *a = arg;
	int fd = open("f", O_RDWR), ret;

	if (fd < 0)
		return 127;
	if (a->cmd == 0)
		ret = flock(fd, a->type | LOCK_NB);
	else
		ret = lock_fd(fd, a->cmd, a->type, a->start, a->len);
	return ret == 0 ? 0 : errno;
}

/* 0, or the errno that another process gets. */
static int other_gets(int cmd, int type, off_t start, off_t len)
{
	struct attempt a = { cmd, type, start, len };

	return in_child(attempt_in_child, &a);
}

static int other_flocks(int type)
{
	return other_gets(0, type, 0, 0);
}

static void test_flock(void)
{
	int a, b;

	make_file("f", 0644);
	a = (int)MUST(open("f", O_RDONLY));
	b = (int)MUST(open("f", O_RDWR));
	EXPECT(0, flock(a, LOCK_EX));
	EXPECT(EWOULDBLOCK, flock(b, LOCK_EX | LOCK_NB));
	EXPECT(EWOULDBLOCK, flock(b, LOCK_SH | LOCK_NB));
	EXPECT_EQ(EWOULDBLOCK, other_flocks(LOCK_SH));
	EXPECT(0, flock(a, LOCK_SH));
	EXPECT(0, flock(b, LOCK_SH | LOCK_NB));
	EXPECT_EQ(0, other_flocks(LOCK_SH));
	EXPECT_EQ(EWOULDBLOCK, other_flocks(LOCK_EX));
	EXPECT(0, flock(a, LOCK_UN));
	EXPECT_EQ(EWOULDBLOCK, other_flocks(LOCK_EX));
	EXPECT(0, close(b));
	EXPECT_EQ(0, other_flocks(LOCK_EX));
	EXPECT(EINVAL, flock(a, 0x40));
	EXPECT(EBADF, flock(1000, LOCK_SH));
	EXPECT(0, flock((int)MUST(open(".", O_RDONLY)), LOCK_EX | LOCK_NB));
}

/* The lock belongs to the open file, which dup() and fork() share. */
static int unlock_inherited(void *arg)
{
	return flock(*(const int *)arg, LOCK_UN) == 0 ? 0 : errno;
}

static void test_flock_shared(void)
{
	int a, b;

	make_file("f", 0644);
	a = (int)MUST(open("f", O_RDWR));
	b = (int)MUST(dup(a));
	EXPECT(0, flock(a, LOCK_EX));
	EXPECT(0, flock(b, LOCK_EX | LOCK_NB));
	EXPECT(0, close(a));
	EXPECT_EQ(EWOULDBLOCK, other_flocks(LOCK_EX));
	EXPECT_EQ(0, in_child(unlock_inherited, &b));
	EXPECT_EQ(0, other_flocks(LOCK_EX));
	EXPECT(0, flock(b, LOCK_EX));
	EXPECT(0, close(b));
	EXPECT_EQ(0, other_flocks(LOCK_EX));
}

/* Every pair of lock types, over ranges that meet, touch, and do not. */
static void test_ranges(void)
{
	static const struct {
		off_t start, len;
		bool meets; /* the range 100 to 199 */
	} ranges[] = {
		{ 100, 100, true }, { 0, 0, true },    { 0, 100, false },     { 0, 101, true },
		{ 199, 1, true },   { 200, 0, false }, { 150, 10, true },     { 199, 0, true },
		{ 50, 1000, true }, { 200, 1, false }, { 1000000, 5, false }, { 99, 1, false },
	};
	static const int types[] = { F_RDLCK, F_WRLCK };
	static const int cmds[] = { F_SETLK, F_OFD_SETLK };

	make_file("f", 0644);
	for (size_t i = 0; i < ARRAY_SIZE(ranges) * 8; i++) {
		size_t r = i / 8;
		int mine = types[i & 1], theirs = types[i >> 1 & 1], cmd = cmds[i >> 2 & 1];
		bool conflict = ranges[r].meets && (mine == F_WRLCK || theirs == F_WRLCK);
		int fd = (int)MUST(open("f", O_RDWR));

		ctx("%s%s against %s at %lld+%lld", cmd == F_SETLK ? "" : "OFD ",
		    mine == F_RDLCK ? "read" : "write", theirs == F_RDLCK ? "read" : "write",
		    (long long)ranges[r].start, (long long)ranges[r].len);
		MUST(lock_fd(fd, cmd, mine, 100, 100));
		EXPECT_EQ(conflict ? EAGAIN : 0,
			  other_gets(F_SETLK, theirs, ranges[r].start, ranges[r].len));
		EXPECT_EQ(conflict ? EAGAIN : 0,
			  other_gets(F_OFD_SETLK, theirs, ranges[r].start, ranges[r].len));
		MUST(close(fd));
	}
}

/* F_GETLK names the lock in the way, and its holder. */
static int get_lock(void *arg)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
	int fd = (int)MUST(open("f", O_RDWR));

	EXPECT(0, fcntl(fd, F_GETLK, &fl));
	EXPECT_EQ(F_RDLCK, fl.l_type);
	EXPECT_EQ(10, fl.l_start);
	EXPECT_EQ(20, fl.l_len);
	EXPECT_TRUE(fl.l_pid == *(const pid_t *)arg);
	fl = (struct flock){ .l_type = F_RDLCK, .l_whence = SEEK_SET };
	EXPECT(0, fcntl(fd, F_GETLK, &fl));
	EXPECT_EQ(F_UNLCK, fl.l_type);
	fl = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 30 };
	EXPECT(0, fcntl(fd, F_GETLK, &fl));
	EXPECT_EQ(F_UNLCK, fl.l_type);
	return 0;
}

static void test_getlk(void)
{
	pid_t me = getpid();
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_SETLK, F_RDLCK, 10, 20));
	EXPECT_EQ(0, in_child(get_lock, &me));
}

/* Locking part of a range otherwise, or unlocking it, splits it. */
static void test_split(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT(0, lock_fd(fd, F_SETLK, F_WRLCK, 0, 100));
	EXPECT(0, lock_fd(fd, F_SETLK, F_UNLCK, 40, 20));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 40, 20));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_WRLCK, 39, 1));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_WRLCK, 60, 1));
	EXPECT(0, lock_fd(fd, F_SETLK, F_RDLCK, 0, 10));
	EXPECT_EQ(0, other_gets(F_SETLK, F_RDLCK, 0, 10));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_RDLCK, 10, 1));
	EXPECT(0, lock_fd(fd, F_SETLK, F_WRLCK, 40, 20));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_RDLCK, 50, 1));
	EXPECT(0, lock_fd(fd, F_SETLK, F_UNLCK, 0, 0));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
}

/* A process loses all its record locks with the first descriptor of the file that it closes. */
static void test_close_drops(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 0));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_RDLCK, 0, 0));
	MUST(closing(open("f", O_RDONLY)));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
	MUST(lock_fd(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
	MUST(closing(open("f", O_RDONLY)));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_RDLCK, 0, 0));
	MUST(close(fd));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
}

/* A child does not inherit record locks, but it does share those of open files. */
static int try_inherited(void *arg)
{
	int fd = *(const int *)arg;
	int posix = lock_fd(fd, F_SETLK, F_WRLCK, 0, 10) == 0 ? 0 : errno;
	int ofd = lock_fd(fd, F_OFD_SETLK, F_WRLCK, 100, 10) == 0 ? 0 : errno;

	return posix == EAGAIN && ofd == 0 ? 0 : 1;
}

static void test_fork(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 10));
	MUST(lock_fd(fd, F_OFD_SETLK, F_WRLCK, 100, 10));
	EXPECT_EQ(0, in_child(try_inherited, &fd));
}

/* Two open files of one process: record locks do not keep them apart, OFD locks do. */
static void test_same_process(void)
{
	int a, b;

	make_file("f", 0644);
	a = (int)MUST(open("f", O_RDWR));
	b = (int)MUST(open("f", O_RDWR));
	EXPECT(0, lock_fd(a, F_SETLK, F_WRLCK, 0, 10));
	EXPECT(0, lock_fd(b, F_SETLK, F_WRLCK, 0, 10));
	EXPECT(0, lock_fd(a, F_SETLK, F_UNLCK, 0, 0));
	EXPECT(0, lock_fd(a, F_OFD_SETLK, F_WRLCK, 0, 10));
	EXPECT(EAGAIN, lock_fd(b, F_OFD_SETLK, F_WRLCK, 0, 10));
	EXPECT(EAGAIN, lock_fd(b, F_OFD_SETLK, F_RDLCK, 5, 1));
	EXPECT(EAGAIN, lock_fd(b, F_SETLK, F_RDLCK, 5, 1));
	EXPECT(0, lock_fd(b, F_OFD_SETLK, F_WRLCK, 10, 10));
	EXPECT(0, lock_fd(a, F_OFD_SETLK, F_UNLCK, 0, 0));
	EXPECT(0, lock_fd(b, F_OFD_SETLK, F_RDLCK, 5, 1));
}

/* The two families do not know of each other. */
static void test_families(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(flock(fd, LOCK_EX));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
	EXPECT_EQ(0, other_gets(F_OFD_SETLK, F_WRLCK, 0, 0));
	MUST(flock(fd, LOCK_UN));
	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 0));
	EXPECT_EQ(0, other_flocks(LOCK_EX));
}

static void test_errors(void)
{
	int r, w;

	make_file("f", 0644);
	r = (int)MUST(open("f", O_RDONLY));
	w = (int)MUST(open("f", O_WRONLY));
	EXPECT(EBADF, lock_fd(r, F_SETLK, F_WRLCK, 0, 0));
	EXPECT(EBADF, lock_fd(w, F_SETLK, F_RDLCK, 0, 0));
	EXPECT(EBADF, lock_fd(r, F_OFD_SETLK, F_WRLCK, 0, 0));
	EXPECT(0, lock_fd(r, F_SETLK, F_RDLCK, 0, 0));
	EXPECT(0, lock_fd(w, F_SETLK, F_WRLCK, 0, 0));
	EXPECT(EINVAL, lock_fd(r, F_SETLK, 77, 0, 0));
	EXPECT(EINVAL, lock_fd(r, F_SETLK, F_RDLCK, -1, 1));
	EXPECT(EINVAL, lock_fd(r, F_SETLK, F_RDLCK, 5, -10));
	EXPECT(0, lock_fd(r, F_SETLK, F_RDLCK, 10, -5));
	EXPECT(EBADF, lock_fd(1000, F_SETLK, F_RDLCK, 0, 0));
}

/* Waiters get the lock when it is given up, not before. */
static int wait_for_lock(void *arg)
{
	volatile int *released = arg;
	int fd = open("f", O_RDWR);

	if (fd < 0 || lock_fd(fd, F_SETLKW, F_WRLCK, 0, 0) != 0)
		return 1;
	return *released ? 0 : 2;
}

static int wait_for_flock(void *arg)
{
	volatile int *released = arg;
	int fd = open("f", O_RDWR);

	if (fd < 0 || flock(fd, LOCK_EX) != 0)
		return 1;
	return *released ? 0 : 2;
}

static int wait_for_ofd_lock(void *arg)
{
	volatile int *released = arg;
	int fd = open("f", O_RDWR);

	if (fd < 0 || lock_fd(fd, F_OFD_SETLKW, F_RDLCK, 10, 5) != 0)
		return 1;
	return *released ? 0 : 2;
}

static void test_waiting(void)
{
	int (*const waiters[])(void *) = { wait_for_lock, wait_for_flock, wait_for_ofd_lock };
	volatile int *released = shared_int();
	pid_t pids[ARRAY_SIZE(waiters)];
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
	MUST(flock(fd, LOCK_EX));
	for (size_t i = 0; i < ARRAY_SIZE(waiters); i++)
		pids[i] = spawn(waiters[i], (void *)released);
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_RDLCK, 0, 1));
	*released = 1;
	MUST(flock(fd, LOCK_UN));
	MUST(lock_fd(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
	for (size_t i = 0; i < ARRAY_SIZE(waiters); i++)
		EXPECT_EQ(0, reap(pids[i]));
}

/* A holder that is killed leaves nothing locked. */
struct holder {
	struct gate ready, never;
};

static int hold_locks(void *arg)
{
	struct holder *h = arg;
	int fd = (int)MUST(open("f", O_RDWR));

	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 10));
	MUST(lock_fd(fd, F_OFD_SETLK, F_WRLCK, 20, 10));
	MUST(flock(fd, LOCK_EX));
	gate_open(&h->ready);
	gate_wait(&h->never);
	return 0;
}

static void test_killed(void)
{
	struct holder h;
	pid_t pid;

	make_file("f", 0644);
	gate_init(&h.ready);
	gate_init(&h.never);
	pid = spawn(hold_locks, &h);
	gate_wait(&h.ready);
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_WRLCK, 5, 1));
	EXPECT_EQ(EAGAIN, other_gets(F_SETLK, F_WRLCK, 25, 1));
	EXPECT_EQ(EWOULDBLOCK, other_flocks(LOCK_EX));
	MUST(kill(pid, SIGKILL));
	EXPECT_EQ(1000 + SIGKILL, reap(pid));
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
	EXPECT_EQ(0, other_flocks(LOCK_EX));
}

/* Two processes, each waiting for the other's lock: one of them is told so. */
static int lock_crosswise(void *arg)
{
	struct gate *gates = arg;
	int fd = (int)MUST(open("f", O_RDWR));

	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 10, 1));
	gate_open(&gates[0]);
	gate_wait(&gates[1]);
	return lock_fd(fd, F_SETLKW, F_WRLCK, 0, 1) == 0 ? 0 : errno;
}

static void test_deadlock(void)
{
	struct gate gates[2];
	int fd, mine;
	pid_t pid;

	make_file("f", 0644);
	gate_init(&gates[0]);
	gate_init(&gates[1]);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 1));
	pid = spawn(lock_crosswise, gates);
	gate_wait(&gates[0]);
	gate_open(&gates[1]);
	mine = lock_fd(fd, F_SETLKW, F_WRLCK, 10, 1) == 0 ? 0 : errno;
	MUST(lock_fd(fd, F_SETLK, F_UNLCK, 0, 0));
	EXPECT_TRUE((mine == EDEADLK) != (reap(pid) == EDEADLK));
}

/* Locks are the object's: a rename, a second name, and unlinking change nothing. */
static int lock_g(void *arg)
{
	int fd = open("g", O_RDWR);

	(void)arg;
	return fd < 0 ? 127 : lock_fd(fd, F_SETLK, F_RDLCK, 0, 0) == 0 ? 0 : errno;
}

static void test_names(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(lock_fd(fd, F_SETLK, F_WRLCK, 0, 0));
	MUST(link("f", "g"));
	EXPECT_EQ(EAGAIN, in_child(lock_g, NULL));
	MUST(unlink("f"));
	EXPECT_EQ(EAGAIN, in_child(lock_g, NULL));
	make_file("f", 0644);
	EXPECT_EQ(0, other_gets(F_SETLK, F_WRLCK, 0, 0));
}

/* A counter in a file that several processes increase under a lock. */
static int count_up(void *arg)
{
	int fd = open("f", O_RDWR), value;

	(void)arg;
	for (int i = 0; i < 200; i++) {
		if (lock_fd(fd, F_SETLKW, F_WRLCK, 0, 0) != 0 ||
		    pread(fd, &value, sizeof(value), 0) != sizeof(value))
			return 1;
		value++;
		if (pwrite(fd, &value, sizeof(value), 0) != sizeof(value) ||
		    lock_fd(fd, F_SETLK, F_UNLCK, 0, 0) != 0)
			return 2;
	}
	return 0;
}

static void test_counter(void)
{
	int value = 0, fd;
	pid_t pids[3];

	make_content("f", &value, sizeof(value));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = spawn(count_up, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		EXPECT_EQ(0, reap(pids[i]));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT_EQ(sizeof(value), read(fd, &value, sizeof(value)));
	EXPECT_EQ(200 * ARRAY_SIZE(pids), value);
}

/* Leases are optional; where there are any, they behave. */
static void test_lease(void)
{
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDONLY));
	if (RECORD(fcntl(fd, F_SETLEASE, F_RDLCK)) != 0)
		return;
	EXPECT_EQ(F_RDLCK, fcntl(fd, F_GETLEASE));
	EXPECT(0, fcntl(fd, F_SETLEASE, F_UNLCK));
	EXPECT_EQ(F_UNLCK, fcntl(fd, F_GETLEASE));
}

static const struct test tests[] = {
	{ "flock", test_flock, 0 },	  { "flock_shared", test_flock_shared, 0 },
	{ "ranges", test_ranges, 0 },	  { "getlk", test_getlk, 0 },
	{ "split", test_split, 0 },	  { "close_drops", test_close_drops, 0 },
	{ "fork", test_fork, 0 },	  { "same_process", test_same_process, 0 },
	{ "families", test_families, 0 }, { "errors", test_errors, 0 },
	{ "waiting", test_waiting, 0 },	  { "killed", test_killed, 0 },
	{ "deadlock", test_deadlock, 0 }, { "names", test_names, 0 },
	{ "counter", test_counter, 0 },	  { "lease", test_lease, 0 },
};

AREA(lock);
