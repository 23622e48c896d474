// SPDX-License-Identifier: GPL-2.0-or-later
/* The stress mode: processes, the shared file, tier commands beside them. See stress.h. */
#include "stress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_BYTES ((size_t)RECORDS * RECORD)
#define TICK_MS	     20
#define GRACE_S	     60 /* for the last operation of each process */

static volatile sig_atomic_t interrupted;

void *stress_buffer(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for buffers");
	return p;
}

_Noreturn void stress_fail(struct actor *a, const char *fmt, ...)
{
	va_list ap;
	char text[1024];

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!atomic_exchange(&a->sh->failed, 1)) /* what the others find then is no news */
		fprintf(stderr, "modeltest: stress: process %u: VIOLATION: %s\n", a->me, text);
	atomic_store(&a->sh->stop, 1);
	if (a->me == PARENT)
		finish(1);
	_exit(1);
}

static void file_path(const struct actor *a, int file, char *path)
{
	snprintf(path, PATH_BYTES, "%s/shared-%s", a->dir, file == MAPPED ? "mapped" : "direct");
}

/* ---- reading ------------------------------------------------------------------------------- */

enum way { BY_PREAD, BY_MAP, BY_DIRECT };
static const char *const way_names[] = { "pread", "mmap", "O_DIRECT" };

static void get(struct actor *a, int file, enum way way, unsigned int first, unsigned int count)
{
	size_t len = (size_t)count * RECORD;
	int fd = way == BY_DIRECT ? a->direct[file] : a->fd[file];
	ssize_t n;

	if (way == BY_MAP) {
		memcpy(a->buf, a->map[file] + (size_t)first * RECORD, len);
		return;
	}
	n = pread(fd, a->buf, len, (off_t)first * RECORD);
	if (n != (ssize_t)len)
		stress_fail(a, "%s of %zu bytes at record %u of file %d returns %zd (%s)",
			    way_names[way], len, first, file, n,
			    n < 0 ? strerror(errno) : "no error");
}

static void check_one(struct actor *a, int file, enum way way, unsigned int rec,
		      const unsigned char *data, uint64_t min, uint64_t max)
{
	const char *wrong;
	char text[200];
	bool mixed;

	wrong = record_check(data, (uint64_t)rec * RECORD, min, max, &mixed);
	if (mixed)
		atomic_fetch_add(&a->sh->mixtures, 1);
	if (!wrong)
		return;
	record_describe(data, text, sizeof(text));
	stress_fail(
		a,
		"shared-%s record %u (offset %llu, writer %u) by %s: %s; versions %llu..%llu; %s",
		file == MAPPED ? "mapped" : "direct", rec, (unsigned long long)rec * RECORD,
		rec / STRIPE % a->procs, way_names[way], wrong, (unsigned long long)min,
		(unsigned long long)max, text);
}

static void read_some(struct actor *a)
{
	int file = (int)rng_below(&a->rng, NFILES);
	unsigned int count = rng_one_in(&a->rng, 3) ? 1 + rng_below(&a->rng, RUN_MAX) : 1;
	unsigned int first = rng_below(&a->rng, RECORDS - count + 1);
	enum way way = (enum way)rng_below(&a->rng, a->direct[file] >= 0 ? 3 : 2);
	uint64_t min[RUN_MAX];

	for (unsigned int i = 0; i < count; i++)
		min[i] = atomic_load(&a->sh->complete[file][first + i]);
	get(a, file, way, first, count);
	for (unsigned int i = 0; i < count; i++)
		check_one(a, file, way, first + i, a->buf + (size_t)i * RECORD, min[i],
			  atomic_load(&a->sh->started[file][first + i]));
	atomic_fetch_add(&a->sh->reads, count);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* The first record of a random stripe of this process. */
static unsigned int pick_stripe(struct actor *a)
{
	unsigned int stripes = RECORDS / STRIPE;
	unsigned int mine = (stripes - a->me + a->procs - 1) / a->procs;

	return (rng_below(&a->rng, mine) * a->procs + a->me) * STRIPE;
}

static void put(struct actor *a, int file, enum way way, unsigned int first, unsigned int count)
{
	size_t len = (size_t)count * RECORD, off = (size_t)first * RECORD;
	int fd = way == BY_DIRECT ? a->direct[file] : a->fd[file];

	if (way == BY_MAP) {
		memcpy(a->map[file] + off, a->buf, len);
		if (rng_one_in(&a->rng, 3) && msync(a->map[file] + off, len, MS_SYNC) < 0)
			stress_fail(a, "msync: %s", strerror(errno));
		return;
	}
	if (pwrite(fd, a->buf, len, (off_t)off) != (ssize_t)len)
		stress_fail(a, "%s write of record %u: %s", way_names[way], first, strerror(errno));
}

static enum way pick_way_to_write(struct actor *a, int file)
{
	if (rng_one_in(&a->rng, 2))
		return BY_PREAD;
	if (file == MAPPED)
		return BY_MAP;
	return a->direct[file] >= 0 ? BY_DIRECT : BY_PREAD;
}

static void write_some(struct actor *a)
{
	int file = (int)rng_below(&a->rng, NFILES);
	unsigned int first = pick_stripe(a) + rng_below(&a->rng, STRIPE);
	unsigned int count = 1 + rng_below(&a->rng, STRIPE - first % STRIPE);
	atomic_ullong *started = a->sh->started[file], *complete = a->sh->complete[file];

	for (unsigned int i = first; i < first + count; i++) {
		uint64_t version = atomic_load(&complete[i]) + 1;

		record_make(a->buf + (size_t)(i - first) * RECORD, (uint64_t)i * RECORD, version);
		atomic_store(&started[i], version);
	}
	put(a, file, pick_way_to_write(a, file), first, count);
	for (unsigned int i = first; i < first + count; i++)
		atomic_store(&complete[i], atomic_load(&started[i]));
	atomic_fetch_add(&a->sh->writes, count);
}

static void sync_some(struct actor *a)
{
	int fd = a->fd[rng_below(&a->rng, NFILES)];
	int err = rng_one_in(&a->rng, 2) ? fsync(fd) : fdatasync(fd);

	/* The size stays; the filesystem must not touch content either. */
	if (err == 0 && rng_one_in(&a->rng, 4))
		err = ftruncate(fd, (off_t)SHARED_BYTES);
	if (err < 0)
		stress_fail(a, "fsync or ftruncate of a shared file: %s", strerror(errno));
	atomic_fetch_add(&a->sh->syncs, 1);
}

/* ---- processes ----------------------------------------------------------------------------- */

static void close_shared(struct actor *a, int file)
{
	if (a->map[file])
		munmap(a->map[file], SHARED_BYTES);
	if (a->fd[file] >= 0)
		close(a->fd[file]);
	if (a->direct[file] >= 0)
		close(a->direct[file]);
}

static void open_shared(struct actor *a, int file)
{
	char path[PATH_BYTES];

	close_shared(a, file);
	file_path(a, file, path);
	a->fd[file] = open(path, O_RDWR | O_CLOEXEC);
	if (a->fd[file] < 0)
		stress_fail(a, "open %s: %s", path, strerror(errno));
	a->direct[file] = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	a->map[file] = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd[file], 0);
	if (a->map[file] == MAP_FAILED)
		stress_fail(a, "mmap of %s: %s", path, strerror(errno));
}

static void act_once(struct actor *a, struct own *o)
{
	uint32_t r = rng_below(&a->rng, 100);

	if (r < 40)
		read_some(a);
	else if (r < 75)
		write_some(a);
	else if (r < 79)
		sync_some(a);
	else if (r < 80)
		open_shared(a, (int)rng_below(&a->rng, NFILES));
	else
		own_step(a, o);
}

static _Noreturn void act(struct actor *a)
{
	struct own *o;

	report_init(NULL, NULL); /* the mount is the parent's */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	a->buf = stress_buffer((size_t)RUN_MAX * RECORD);
	for (int file = 0; file < NFILES; file++) {
		a->fd[file] = a->direct[file] = -1;
		open_shared(a, file);
	}
	o = own_new(a);
	while (!atomic_load(&a->sh->stop))
		act_once(a, o);
	own_free(o);
	_exit(0);
}

/* After the end every record must be the last one that was written. */
static void check_final(struct actor *a, int file)
{
	char path[PATH_BYTES];

	file_path(a, file, path);
	a->fd[file] = open(path, O_RDONLY | O_CLOEXEC);
	if (a->fd[file] < 0)
		stress_fail(a, "open %s: %s", path, strerror(errno));
	for (unsigned int i = 0; i < RECORDS; i++) {
		uint64_t version = atomic_load(&a->sh->complete[file][i]);

		get(a, file, BY_PREAD, i, 1);
		check_one(a, file, BY_PREAD, i, a->buf, version, version);
	}
	close(a->fd[file]);
}

static pid_t start(struct actor *a)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0)
		act(a);
	return pid;
}

/* ---- the parent ---------------------------------------------------------------------------- */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_tier(struct actor *a, const struct config *c, unsigned int *runs,
		     unsigned int *refused)
{
	static const char *const commands[] = { "promote", "demote", "flush", "demote",
						"promote", "pin",    "unpin" };
	const char *args[TOOL_ARGS + 1] = { commands[rng_below(&a->rng, 7)] };
	char path[PATH_BYTES], out[200];
	int status;

	if (rng_one_in(&a->rng, 3))
		snprintf(path, sizeof(path), "%s/own-%u", a->dir, rng_below(&a->rng, a->procs));
	else
		file_path(a, (int)rng_below(&a->rng, NFILES), path);
	args[1] = path;
	status = tool_run(c, args, out, sizeof(out));
	(*runs)++;
	*refused += status != 0; /* an own file may just have been replaced */
	if (status == TOOL_TIMEOUT || WIFSIGNALED(status))
		stress_fail(a, "'%s %s' crashed or did not end: %s", args[0], path, out);
}

/* Returns how many are left. */
static unsigned int reap_some(struct actor *a, pid_t *pids)
{
	unsigned int left = 0;
	int status;

	for (unsigned int i = 0; i < a->procs; i++) {
		if (!pids[i] || waitpid(pids[i], &status, WNOHANG) <= 0) {
			left += pids[i] != 0;
			continue;
		}
		pids[i] = 0;
		if (status == 0)
			continue;
		if (WIFSIGNALED(status))
			fprintf(stderr, "modeltest: stress: process %u was ended by signal %d\n", i,
				WTERMSIG(status));
		atomic_store(&a->sh->failed, 1);
		atomic_store(&a->sh->stop, 1);
	}
	return left;
}

static void watch_processes(struct actor *a, const struct config *c, pid_t *pids)
{
	double end = now_s() + c->stress_s;
	unsigned int left = a->procs, runs = 0, refused = 0;

	while (left) {
		if (now_s() >= end || interrupted)
			atomic_store(&a->sh->stop, 1);
		if (now_s() >= end + GRACE_S)
			break;
		left = reap_some(a, pids);
		if (c->tool && c->tier_ops && !atomic_load(&a->sh->stop))
			run_tier(a, c, &runs, &refused);
		poll(NULL, 0, TICK_MS);
	}
	if (left) {
		fprintf(stderr, "modeltest: stress: %u processes hang\n", left);
		mount_abort(c);
		atomic_store(&a->sh->failed, 1);
		for (unsigned int i = 0; i < a->procs; i++)
			if (pids[i])
				kill(pids[i], SIGKILL);
	}
	if (c->tier_ops)
		printf("modeltest: stress: %u tier commands, %u refused\n", runs, refused);
}

/*
 * The files have no holes: ext4 and xfs answer EIO to an O_DIRECT read that meets a block which a
 * store through a mapping has just reserved.
 */
static bool fill_with_zeros(const struct actor *a, int fd)
{
	size_t len = (size_t)RUN_MAX * RECORD;

	memset(a->buf, 0, len);
	for (size_t off = 0; off < SHARED_BYTES; off += len)
		if (pwrite(fd, a->buf, len, (off_t)off) != (ssize_t)len)
			return false;
	return fsync(fd) == 0;
}

static void make_shared_files(const struct actor *a)
{
	char path[PATH_BYTES];
	int fd;

	if (mkdir(a->dir, 0755) < 0)
		die("mkdir %s: %s", a->dir, strerror(errno));
	for (int file = 0; file < NFILES; file++) {
		file_path(a, file, path);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0 || !fill_with_zeros(a, fd))
			die("%s: %s", path, strerror(errno));
		close(fd);
	}
}

static void remove_files(const struct actor *a)
{
	char path[PATH_BYTES];

	for (unsigned int i = 0; i < a->procs; i++) {
		snprintf(path, sizeof(path), "%s/own-%u", a->dir, i);
		unlink(path);
	}
	for (int file = 0; file < NFILES; file++) {
		file_path(a, file, path);
		unlink(path);
	}
	rmdir(a->dir);
}

static void summary(const struct shared *sh, const struct config *c)
{
	printf("modeltest: stress: %u processes, %u s: %llu records read (%llu mixed), "
	       "%llu written, %llu fsyncs, %llu steps on own files: %s\n",
	       c->stress_procs, c->stress_s, (unsigned long long)sh->reads,
	       (unsigned long long)sh->mixtures, (unsigned long long)sh->writes,
	       (unsigned long long)sh->syncs, (unsigned long long)sh->own_ops,
	       sh->failed ? "FAILED" : "no violation");
}

static const struct config *cleanup_config;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static void clean_up(void)
{
	mount_cleanup(cleanup_config);
}

/* With a mount of its own: SRC must hold the last records too. */
static void check_source(struct actor *a, const struct config *c, const char *name)
{
	char dir[PATH_BYTES], why[256];

	if (!mount_stop(c, why, sizeof(why)))
		stress_fail(a, "unmounting: %s", why);
	snprintf(dir, sizeof(dir), "%s/%s", c->src, name);
	a->dir = dir;
	for (int file = 0; file < NFILES; file++)
		check_final(a, file);
	remove_files(a);
}

static void run_processes(struct actor *a, const struct config *c)
{
	pid_t pids[STRESS_PROCS];

	for (unsigned int i = 0; i < a->procs; i++) {
		struct actor child = *a;

		child.me = i;
		child.rng.state = c->seed * 1000 + i;
		pids[i] = start(&child);
	}
	watch_processes(a, c, pids);
}

int stress_main(const struct config *c)
{
	char dir[PATH_BYTES], name[32];
	struct actor a = { .dir = dir, .procs = c->stress_procs, .me = PARENT };
	bool own_mount = c->tool && c->src;

	if (a.procs > STRESS_PROCS)
		die("at most %d processes", STRESS_PROCS);
	cleanup_config = c;
	report_init(NULL, clean_up);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	if (own_mount)
		mount_start(c);
	a.sh = mmap(NULL, sizeof(*a.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (a.sh == MAP_FAILED)
		die("no shared memory");
	a.rng.state = c->seed;
	a.buf = stress_buffer((size_t)RUN_MAX * RECORD);
	snprintf(name, sizeof(name), "stress.%d", (int)getpid());
	snprintf(dir, sizeof(dir), "%s/%s", c->mnt, name);
	make_shared_files(&a);
	run_processes(&a, c);
	for (int file = 0; file < NFILES && !a.sh->failed; file++)
		check_final(&a, file);
	if (!a.sh->failed && own_mount)
		check_source(&a, c, name);
	else if (!a.sh->failed)
		remove_files(&a);
	summary(a.sh, c);
	finish(a.sh->failed ? 1 : 0);
}
