// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * engine_fixture.h - a volume with one file, driven through the public API of tier/, with system
 * calls that can be stopped at a gate, or made to fail, at a chosen moment.
 */
#ifndef HYBRIDFS_TESTS_ENGINE_FIXTURE_H
#define HYBRIDFS_TESTS_ENGINE_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/syscall.h>

#include "tests/unit/unit.h"
#include "tier/internal.h"

/* The headers declare pread() inline when fortified; ours replaces it. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wstatic-in-inline"
#endif

/* ---- system calls ------------------------------------------------------------------------- */
enum call { C_PWRITE, C_FSTAT, C_FTRUNCATE, C_SYNC, C_PREAD, C_COUNT };

struct gate {
	_Atomic bool reached, open;
	struct gate *next; /* stops at the call after this one */
};

static _Thread_local struct gate *gates[C_COUNT]; /* of this thread; one stop each */
static _Thread_local unsigned gate_skips[C_COUNT]; /* calls that pass before it */
static _Atomic int fail_next[C_COUNT];		  /* errno for the next call on fail_ino */
static ino_t fail_ino;				  /* 0: any regular file outside of the catalog */
static _Atomic unsigned syncs_of_src;
static bool crash_at_sync_of_src; /* of src_ino */
#define CRASHED 7
static ino_t src_ino;

__attribute__((unused)) static ino_t ino_of(int fd)
{
	struct stat st;

	return syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) < 0 ? 0 : st.st_ino;
}

/* At most two seconds: an engine without the bug may never get there. */
__attribute__((unused)) static bool wait_for(_Atomic bool *b)
{
	for (unsigned i = 0; i < 10000 && !atomic_load(b); i++)
		usleep(200);
	return atomic_load(b);
}

__attribute__((unused)) static bool is_object(int fd)
{
	char link[64], path[512];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	return strstr(path, "/objects/") != NULL;
}

__attribute__((unused)) static bool call_fails(enum call c, int fd)
{
	struct gate *g = gates[c];

	if (g && (c != C_PREAD || is_object(fd)) && (!gate_skips[c] || !gate_skips[c]--)) {
		gates[c] = g->next;
		atomic_store(&g->reached, true);
		(void)wait_for(&g->open);
	}
	if (!atomic_load(&fail_next[c]) || (fail_ino && ino_of(fd) != fail_ino))
		return false;
	errno = atomic_exchange(&fail_next[c], 0);
	return errno != 0;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t off)
{
	return call_fails(C_PWRITE, fd) ? -1 : syscall(SYS_pwrite64, fd, buf, n, off);
}

ssize_t pread(int fd, void *buf, size_t n, off_t off)
{
	return call_fails(C_PREAD, fd) ? -1 : syscall(SYS_pread64, fd, buf, n, off);
}

/* Asked for what is in memory: nothing is, so all reads are those above. */
ssize_t preadv2(int fd, const struct iovec *parts, int n, off_t off, int flags)
{
	(void)fd, (void)parts, (void)n, (void)off, (void)flags;
	errno = EAGAIN;
	return -1;
}

int fstat(int fd, struct stat *st)
{
	return call_fails(C_FSTAT, fd) ? -1
				       : (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

int ftruncate(int fd, off_t len)
{
	return call_fails(C_FTRUNCATE, fd) ? -1 : (int)syscall(SYS_ftruncate, fd, len);
}

__attribute__((unused)) static int sync_fd(int fd, long nr)
{
	if (src_ino && ino_of(fd) == src_ino) {
		atomic_fetch_add(&syncs_of_src, 1);
		if (crash_at_sync_of_src)
			_exit(unit_failures ? 1 : CRASHED);
	}
	return call_fails(C_SYNC, fd) ? -1 : (int)syscall(nr, fd);
}

int fsync(int fd)
{
	return sync_fd(fd, SYS_fsync);
}

int fdatasync(int fd)
{
	return sync_fd(fd, SYS_fdatasync);
}

/* ---- the world ---------------------------------------------------------------------------- */
static _Atomic int64_t skew_ns;
static char *base;
static char src_dir[256], ssd_dir[256], src_file[300];
static struct src src;
static struct volume *v;
static struct volume_options opt;

__attribute__((unused)) static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((unused)) static int64_t env_wall(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_REALTIME_COARSE);
}

__attribute__((unused)) static int64_t env_mono(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_MONOTONIC) + atomic_load(&skew_ns);
}

__attribute__((unused)) static void env_log(void *ctx, int level, const char *line)
{
	(void)ctx;
	if (getenv("VERBOSE"))
		printf("# log %d: %s\n", level, line);
}

static const struct volume_env env = { .wall_ns = env_wall,
				       .monotonic_ns = env_mono,
				       .log = env_log };

__attribute__((unused)) static void put_src(const char *path, int c, uint64_t off, size_t len)
{
	char *buf = malloc(len);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	memset(buf, c, len);
	if (fd < 0 || syscall(SYS_pwrite64, fd, buf, len, off) != (ssize_t)len)
		abort();
	close(fd);
	free(buf);
}

__attribute__((unused)) static void begin(size_t size)
{
	base = unit_tmpdir(getenv("HFS_TEST_DIR"));
	snprintf(src_dir, sizeof(src_dir), "%s/src", base);
	snprintf(ssd_dir, sizeof(ssd_dir), "%s/ssd", base);
	snprintf(src_file, sizeof(src_file), "%s/f", src_dir);
	mkdir(src_dir, 0755);
	put_src(src_file, 'A', 0, size);
	volume_options_init(&opt);
	opt.size_bytes = 64u << 20;
	src_ino = fail_ino = 0;
	syncs_of_src = 0;
	skew_ns = 0;
}

__attribute__((unused)) static void end(void)
{
	unit_remove_tree(base);
	free(base);
}

__attribute__((unused)) static bool open_volume(void)
{
	char error[256];

	if (!CHECK_EQ(src_init(&src, src_dir), 0))
		return false;
	if (CHECK_EQ(volume_open(&src, ssd_dir, &opt, &env, &v, error, sizeof(error)), 0))
		return true;
	printf("# %s\n", error);
	return false;
}

__attribute__((unused)) static struct tfile *get(const char *path)
{
	struct src_key key;
	struct tfile *f = NULL;
	int fd = open(path, O_PATH | O_CLOEXEC);

	CHECK_EQ(src_key_of_fd(&src, fd, &key), 0);
	close(fd);
	CHECK_EQ(tfile_get(v, &key, "f", &f), 0);
	return f;
}

__attribute__((unused)) static struct tfile *use(void)
{
	struct tfile *f = get(src_file);

	CHECK_EQ(tfile_use(f, true), 0);
	return f;
}

__attribute__((unused)) static void unuse(struct tfile *f)
{
	tfile_unuse(f);
	tfile_put(f);
}

__attribute__((unused)) static void close_volume(void)
{
	CHECK_EQ(volume_close(v), 0);
	src_release(&src);
}

__attribute__((unused)) static void write_at(struct tfile *f, int c, uint64_t off, size_t len)
{
	struct tier_stream s = { 0 };
	char *buf = malloc(len);

	memset(buf, c, len);
	CHECK_EQ(tfile_write(f, &s, buf, len, off), len);
	free(buf);
}

__attribute__((unused)) static int byte_at(struct tfile *f, uint64_t off)
{
	struct tier_stream s = { 0 };
	unsigned char c = 0;
	ssize_t n = tfile_read(f, &s, &c, 1, off);

	return n == 1 ? c : -1;
}

__attribute__((unused)) static int src_byte(uint64_t off)
{
	unsigned char c;
	int fd = open(src_file, O_RDONLY | O_CLOEXEC);
	ssize_t n = syscall(SYS_pread64, fd, &c, 1, off);

	close(fd);
	return n == 1 ? c : -1;
}

__attribute__((unused)) static int flush(struct tfile *f, bool force)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_flush_step(f, 1u << 20, force, &next, &bytes);
	return r;
}

__attribute__((unused)) static void promote(struct tfile *f, uint64_t len)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_promote_step(f, 0, len, 1u << 20, &next, &bytes);
	CHECK_EQ(r, 0);
}

__attribute__((unused)) static int demote(struct tfile *f)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_demote_step(f, 1u << 20, false, &next, &bytes);
	return r;
}

__attribute__((unused)) static uint64_t dirty_bytes(void)
{
	struct volume_status s;

	volume_status(v, &s);
	return s.dirty_bytes;
}

__attribute__((unused)) static void step(unsigned n)
{
	int64_t wait;

	while (n--) {
		atomic_fetch_add(&skew_ns, 6 * 1000000000ll);
		(void)volume_step(v, &wait);
	}
}

__attribute__((unused)) static pthread_t start(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, arg))
		abort();
	return t;
}

__attribute__((unused)) static void crash(void)
{
	fflush(stdout);
	_exit(unit_failures ? 1 : CRASHED);
}

#endif
