// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine under failing system calls, forced interleavings and crashes at chosen points. The
 * system calls are replaced in this program: a thread can be told to stop at its next call of one
 * kind until it is released, and the next call of a kind can be made to fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "tests/unit/unit.h"
#include "tier/internal.h"

/* ---- system calls ------------------------------------------------------------------------- */
enum call { C_PWRITE, C_FSTAT, C_FTRUNCATE, C_SYNC, C_PREAD, C_COUNT };

struct gate {
	_Atomic bool reached, open;
};

static _Thread_local struct gate *gates[C_COUNT]; /* of this thread; one stop each */
static _Atomic int fail_next[C_COUNT];		  /* errno for the next call on fail_ino */
static ino_t fail_ino;				  /* 0: any regular file outside of the catalog */
static _Atomic unsigned syncs_of_src;
static ino_t src_ino;

static ino_t ino_of(int fd)
{
	struct stat st;

	return syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) < 0 ? 0 : st.st_ino;
}

/* At most two seconds: an engine without the bug may never get there. */
static bool wait_for(_Atomic bool *b)
{
	for (unsigned i = 0; i < 10000 && !atomic_load(b); i++)
		usleep(200);
	return atomic_load(b);
}

static bool is_object(int fd)
{
	char link[64], path[512];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	return strstr(path, "/objects/") != NULL;
}

static bool call_fails(enum call c, int fd)
{
	struct gate *g = gates[c];

	if (g && (c != C_PREAD || is_object(fd))) {
		gates[c] = NULL;
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

int fstat(int fd, struct stat *st)
{
	return call_fails(C_FSTAT, fd) ? -1
				       : (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

int ftruncate(int fd, off_t len)
{
	return call_fails(C_FTRUNCATE, fd) ? -1 : (int)syscall(SYS_ftruncate, fd, len);
}

static int sync_fd(int fd, long nr)
{
	if (src_ino && ino_of(fd) == src_ino)
		atomic_fetch_add(&syncs_of_src, 1);
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

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t env_wall(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_REALTIME_COARSE);
}

static int64_t env_mono(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_MONOTONIC) + atomic_load(&skew_ns);
}

static void env_log(void *ctx, int level, const char *line)
{
	(void)ctx;
	if (getenv("VERBOSE"))
		printf("# log %d: %s\n", level, line);
}

static const struct volume_env env = { .wall_ns = env_wall,
				       .monotonic_ns = env_mono,
				       .log = env_log };

static void put_src(const char *path, int c, uint64_t off, size_t len)
{
	char *buf = malloc(len);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	memset(buf, c, len);
	if (fd < 0 || syscall(SYS_pwrite64, fd, buf, len, off) != (ssize_t)len)
		abort();
	close(fd);
	free(buf);
}

static void begin(size_t size)
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

static void end(void)
{
	unit_remove_tree(base);
	free(base);
}

static bool open_volume(void)
{
	char error[256];

	if (!CHECK_EQ(src_init(&src, src_dir), 0))
		return false;
	if (CHECK_EQ(volume_open(&src, ssd_dir, &opt, &env, &v, error, sizeof(error)), 0))
		return true;
	printf("# %s\n", error);
	return false;
}

static struct tfile *get(const char *path)
{
	struct src_key key;
	struct tfile *f = NULL;
	int fd = open(path, O_PATH | O_CLOEXEC);

	CHECK_EQ(src_key_of_fd(&src, fd, &key), 0);
	close(fd);
	CHECK_EQ(tfile_get(v, &key, "f", &f), 0);
	return f;
}

static struct tfile *use(void)
{
	struct tfile *f = get(src_file);

	CHECK_EQ(tfile_use(f, true), 0);
	return f;
}

static void unuse(struct tfile *f)
{
	tfile_unuse(f);
	tfile_put(f);
}

static void close_volume(void)
{
	CHECK_EQ(volume_close(v), 0);
	src_release(&src);
}

static void write_at(struct tfile *f, int c, uint64_t off, size_t len)
{
	struct tier_stream s = { 0 };
	char *buf = malloc(len);

	memset(buf, c, len);
	CHECK_EQ(tfile_write(f, &s, buf, len, off), len);
	free(buf);
}

static int byte_at(struct tfile *f, uint64_t off)
{
	struct tier_stream s = { 0 };
	unsigned char c = 0;
	ssize_t n = tfile_read(f, &s, &c, 1, off);

	return n == 1 ? c : -1;
}

static int src_byte(uint64_t off)
{
	unsigned char c;
	int fd = open(src_file, O_RDONLY | O_CLOEXEC);
	ssize_t n = syscall(SYS_pread64, fd, &c, 1, off);

	close(fd);
	return n == 1 ? c : -1;
}

static int flush(struct tfile *f, bool force)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_flush_step(f, 1u << 20, force, &next, &bytes);
	return r;
}

static void promote(struct tfile *f, uint64_t len)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_promote_step(f, 0, len, 1u << 20, &next, &bytes);
	CHECK_EQ(r, 0);
}

static int demote(struct tfile *f)
{
	uint64_t next = 0, bytes;
	int r = 0;

	while (r == 0 && next != UINT64_MAX)
		r = tfile_demote_step(f, 1u << 20, false, &next, &bytes);
	return r;
}

static uint64_t dirty_bytes(void)
{
	struct volume_status s;

	volume_status(v, &s);
	return s.dirty_bytes;
}

static void step(unsigned n)
{
	int64_t wait;

	while (n--) {
		atomic_fetch_add(&skew_ns, 6 * 1000000000ll);
		(void)volume_step(v, &wait);
	}
}

static pthread_t start(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, fn, arg))
		abort();
	return t;
}

#define CRASHED 7
static void crash(void)
{
	fflush(stdout);
	_exit(unit_failures ? 1 : CRASHED);
}

/* ---- opening ------------------------------------------------------------------------------ */
static struct gate gate;

static void *open_slowly(void *arg)
{
	gates[C_FSTAT] = &gate;
	CHECK_EQ(tfile_use(arg, true), 0);
	return NULL;
}

/* The second opener of a cold file must not see it before its size is known. */
static void second_open_knows_the_size(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		gate = (struct gate){ 0 };
		pthread_t t = start(open_slowly, f);

		for (int i = 0; i < 1000 && !atomic_load(&gate.reached); i++)
			usleep(1000);
		if (f->load_mutex.__data.__lock == 0) { /* else: a second opener waits; fine */
			CHECK_EQ(tfile_use(f, true), 0);
			CHECK_EQ(byte_at(f, 10), 'A');
			write_at(f, 'B', 0, 10);
			atomic_store(&gate.open, true);
			pthread_join(t, NULL);
			CHECK_EQ(byte_at(f, 10), 'A');
			CHECK_EQ(tfile_size(f), 8192);
			tfile_unuse(f);
		} else {
			atomic_store(&gate.open, true);
			pthread_join(t, NULL);
		}
		unuse(f);
		close_volume();
	}
	end();
}

/* The same when a chmod is under way. */
static void open_during_chmod_knows_the_size(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_change_begin(f), 0);
		CHECK_EQ(tfile_use(f, true), 0);
		CHECK_EQ(byte_at(f, 10), 'A');
		write_at(f, 'B', 0, 10);
		tfile_change_end(f);
		CHECK_EQ(byte_at(f, 10), 'A');
		CHECK_EQ(tfile_size(f), 8192);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- fsync -------------------------------------------------------------------------------- */
static void fsync_after_unload_syncs_src(void)
{
	begin(8192);
	opt.mode = MODE_WRITEAROUND;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		unuse(f);
		volume_drop_idle(v, 0); /* 1024 other files came and went */
		f = use();
		src_ino = ino_of(tfile_src_fd(f));
		CHECK_EQ(tfile_fsync(f, false), 0);
		CHECK(atomic_load(&syncs_of_src) > 0);
		unuse(f);
		close_volume();
	}
	end();
}

/* The kernel reports a failed sync once; the second sync returns 0 and the data is gone. */
static void background_sync_error_reaches_fsync(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		fail_ino = ino_of(f->obj_fd);
		fail_next[C_SYNC] = EIO;
		CHECK_EQ(volume_commit(v), -EIO);
		CHECK(tfile_fsync(f, false) < 0);
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void writeback_sync_error_reaches_fsync(void)
{
	begin(1u << 20);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'D', 0, 4096);
		write_at(f, 'B', 1u << 19, 256 << 10); /* bypasses */
		CHECK_EQ(src_byte(1u << 19), 'B');
		fail_ino = ino_of(tfile_src_fd(f));
		fail_next[C_SYNC] = EIO;
		CHECK(flush(f, false) < 0);
		CHECK(tfile_fsync(f, false) < 0);
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void read_error_is_no_short_read(void)
{
	struct tier_stream s = { 0 };
	char buf[16384];

	begin(16384);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 4096);
		s.atime_touched = true;
		fail_ino = ino_of(tfile_src_fd(f));
		fail_next[C_PREAD] = EIO;
		/* FUSE takes a short read for the end of the file and cuts its idea of the size. */
		CHECK_EQ(tfile_read(f, &s, buf, sizeof(buf), 0), -EIO);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- a cut that SRC has still to follow --------------------------------------------------- */
static struct tfile *pending_cut(void)
{
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0);
	fail_ino = ino_of(tfile_src_fd(f));
	fail_next[C_FTRUNCATE] = EIO; /* or a crash right here */
	CHECK_EQ(tfile_truncate(f, 100), -EIO);
	CHECK_EQ(tfile_size(f), 100);
	return f;
}

static void pending_cut_then_write_far(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		write_at(f, 'C', 1u << 19, 4096);
		CHECK_EQ(byte_at(f, 8192), 0);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(byte_at(f, 8192), 0);
		CHECK_EQ(src_byte(8192), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void pending_cut_then_truncate_up(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		CHECK_EQ(tfile_truncate(f, 1u << 19), 0);
		CHECK_EQ(byte_at(f, 8192), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void pending_cut_then_punch(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10), 0);
		CHECK_EQ(tfile_size(f), 100);
		unuse(f);
		close_volume();
	}
	end();
}

static void *flush_stopping_at_ftruncate(void *arg)
{
	gates[C_FTRUNCATE] = &gate;
	(void)flush(arg, false);
	return NULL;
}

static uint64_t bypass_off;

static void *bypass_write(void *arg)
{
	write_at(arg, 'C', bypass_off, 256 << 10);
	return NULL;
}

/* Write-back stands before its ftruncate() of SRC when a bypassing write comes. */
static void write_during_ftruncate(struct tfile *f, uint64_t off)
{
	gate = (struct gate){ 0 };
	bypass_off = off;
	pthread_t t = start(flush_stopping_at_ftruncate, f);

	(void)wait_for(&gate.reached);
	pthread_t w = start(bypass_write, f);

	usleep(200000);
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	pthread_join(w, NULL);
	CHECK_EQ(byte_at(f, off + 12000), 'C');
	CHECK(tfile_size(f) >= off + (256 << 10));
}

static void bypass_write_meets_redone_cut(void)
{
	begin(1u << 20);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = pending_cut();

		write_during_ftruncate(f, 8192);
		unuse(f);
		close_volume();
	}
	end();
}

static void bypass_write_meets_growing_src(void)
{
	begin(0);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 1u << 20, 4096);
		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1u << 20,
					 4096), 0);
		write_during_ftruncate(f, (1u << 20) + 4096);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- crashes ------------------------------------------------------------------------------ */
static void *fsync_stopping_at_sync(void *arg)
{
	gates[C_SYNC] = &gate;
	CHECK_EQ(tfile_fsync(arg, false), 0);
	return NULL;
}

static void *flush_once(void *arg)
{
	uint64_t next = 0, bytes;

	CHECK_EQ(tfile_flush_step(arg, 1u << 20, false, &next, &bytes), 0);
	return NULL;
}

/* First commit of a dirty period under way while write-back starts: no busy mark; crash. */
static void crash_false_conflict(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	gate = (struct gate){ 0 };
	pthread_t t = start(fsync_stopping_at_sync, f);

	(void)wait_for(&gate.reached);
	usleep(20000); /* another mtime */
	pthread_t w = start(flush_once, f);

	usleep(200000);
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	crash();
	pthread_join(w, NULL);
}

static void no_false_conflict_after_crash(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_false_conflict, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(v->conflicts, 0);
		CHECK_EQ(flush(f, false), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void *overwrite_stopping_at_pwrite(void *arg)
{
	struct tier_stream s = { 0 };
	static char buf[4096];

	memset(buf, 'C', sizeof(buf));
	gates[C_PWRITE] = &gate;
	(void)tfile_write(arg, &s, buf, sizeof(buf), 0);
	return NULL;
}

static struct gate sync_gate;

static void *writeback_stopping_at_sync(void *arg)
{
	uint64_t bytes;

	/* The commit of the busy mark syncs too: it comes before, with nothing else in it. */
	CHECK_EQ(src_change_begin(arg), 0);
	src_change_end(arg);
	gates[C_SYNC] = &sync_gate;
	(void)writeback_file(arg, 1u << 20, false, &bytes);
	return NULL;
}

/*
 * A write into a dirty block is in progress - begin_ssd_write() is done, the data is not there -
 * when write-back, which has read the block before, declares it clean. The clean state is
 * committed without an intent (I2), the write ends, crash.
 */
static void crash_unmarked_overwrite(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0);
	gate = sync_gate = (struct gate){ 0 };
	pthread_t t = start(writeback_stopping_at_sync, f);

	(void)wait_for(&sync_gate.reached);
	pthread_t w = start(overwrite_stopping_at_pwrite, f);

	(void)wait_for(&gate.reached);
	atomic_store(&sync_gate.open, true);
	usleep(200000);
	CHECK_EQ(volume_commit(v), 0); /* by age, in the background */
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	pthread_join(w, NULL);
	CHECK_EQ(byte_at(f, 0), 'C');
	crash();
}

static void no_time_travel_after_crash(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_unmarked_overwrite, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		int first = byte_at(f, 0);

		CHECK_EQ(demote(f), 0);
		CHECK_EQ(byte_at(f, 0), first); /* I6: what was read does not go back */
		unuse(f);
		close_volume();
	}
	end();
}

/* A group's first commit is under way, its blocks are evicted, and reclaimed before the catalog
 * knows (I4). */
static void crash_early_punch(void *arg)
{
	int64_t wait;

	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 8192);
	write_at(f, 'D', 1u << 20, 4096); /* keeps the object from being empty */
	tfile_set_path(f, "f");
	gate = (struct gate){ 0 };
	pthread_t t = start(fsync_stopping_at_sync, f);

	(void)wait_for(&gate.reached);
	uint64_t bytes;

	CHECK_EQ(evict_range(f, 0, 8192, &bytes), 0); /* (1) of the eviction of another thread */
	CHECK_EQ(bytes, 8192);
	(void)volume_step(v, &wait); /* reclaim is due */
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	crash();
}

static void no_punch_before_the_catalog_knows(void)
{
	begin(2u << 20);
	CHECK_EQ(unit_child(crash_early_punch, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 10), 'A');
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_overwriting_clean(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 512 << 10);
	CHECK_EQ(volume_commit(v), 0);
	write_at(f, 'B', 256 << 10, 4096); /* makes the intent durable; itself not committed */
	crash();
}

static void *use_stopping_at_object_read(void *arg)
{
	gates[C_PREAD] = &gate;
	CHECK_EQ(tfile_use(arg, true), 0);
	return NULL;
}

/* A commit of the file (its path changed) while its suspect extents are being settled (I6). */
static void commit_while_settling(void)
{
	begin(512 << 10);
	CHECK_EQ(unit_child(crash_overwriting_clean, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		gate = (struct gate){ 0 };
		pthread_t t = start(use_stopping_at_object_read, f);

		CHECK(wait_for(&gate.reached));
		tfile_set_path(f, "f");
		CHECK_EQ(volume_commit(v), 0);
		atomic_store(&gate.open, true);
		pthread_join(t, NULL);
		int first = byte_at(f, 256 << 10);

		CHECK_EQ(demote(f), 0);
		CHECK_EQ(byte_at(f, 256 << 10), first);
		unuse(f);
		close_volume();
	}
	end();
}

/*
 * Durably dirty data gives way to a change of SRC. Until SRC's change is durable too the catalog
 * must go on having the one or the other, or a power cut leaves SRC's still older content.
 */
static uint64_t catalog_dirty(void)
{
	struct cat_totals t = { 0 };

	CHECK_EQ(catalog_totals(v->cat, &t), 0);
	return t.dirty_bytes;
}

static struct tfile *durably_dirty(void)
{
	struct tfile *f = use();

	write_at(f, 'B', 0, 8192);
	CHECK_EQ(tfile_fsync(f, false), 0);
	CHECK_EQ(volume_commit(v), 0); /* to the catalog */
	CHECK_EQ(catalog_dirty(), 8192);
	src_ino = ino_of(tfile_src_fd(f));
	syncs_of_src = 0;
	return f;
}

static void punch_syncs_src_before_dirty_goes(void)
{
	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192), 0);
		CHECK_EQ(volume_commit(v), 0);
		CHECK(catalog_dirty() == 8192 || syncs_of_src > 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void write_around_syncs_src_before_dirty_goes(void)
{
	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		fail_ino = ino_of(f->obj_fd);
		fail_next[C_PWRITE] = EIO;
		write_at(f, 'C', 0, 8192);
		CHECK_EQ(volume_commit(v), 0);
		CHECK(catalog_dirty() == 8192 || syncs_of_src > 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void cut_syncs_src_before_its_mark_goes(void)
{
	struct cat_file row;

	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		CHECK_EQ(tfile_truncate(f, 100), 0);
		CHECK_EQ(volume_commit(v), 0);
		if (CHECK_EQ(catalog_find_id(v->cat, f->id, &row), 0)) {
			CHECK(row.flags & CAT_F_TRUNCATE || syncs_of_src > 0);
			cat_file_release(&row);
		}
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_append(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 5000);
	CHECK_EQ(tfile_fsync(f, false), 0);
	write_at(f, 'C', 5000, 1000); /* not synced */
	crash();
}

static void tail_is_zero_after_crash(void)
{
	begin(0);
	CHECK_EQ(unit_child(crash_append, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		if (tfile_size(f) == 5000) {
			CHECK_EQ(tfile_truncate(f, 8192), 0);
			CHECK_EQ(byte_at(f, 5500), 0);
		}
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_unlinked(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(volume_commit(v), 0);
	unlink(src_file); /* an open temporary file without a name */
	crash();
}

static void orphan_of_a_crash_goes_away(void)
{
	uint64_t bytes, left = 0;
	int r, n = 0;

	begin(8192);
	CHECK_EQ(unit_child(crash_unlinked, NULL), CRASHED);
	if (open_volume()) {
		step(50);
		CHECK_EQ(dirty_bytes(), 0);
		while ((r = volume_flush_step(v, 1u << 20, &bytes, &left)) > 0 && n++ < 100)
			;
		CHECK_EQ(r, 0);
		close_volume();
	}
	end();
}

/* ---- foreign changes ---------------------------------------------------------------------- */
static void chmod_through_mount(struct tfile *f, mode_t mode)
{
	CHECK_EQ(tfile_change_begin(f), 0);
	CHECK_EQ(chmod(src_file, mode), 0);
	tfile_change_end(f);
}

static void change_while_unmounted_is_seen(void)
{
	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		chmod_through_mount(f, 0600);
		unuse(f);
		close_volume();
	}
	usleep(20000);
	put_src(src_file, 'Z', 128 << 10, 4096);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 128 << 10), 'Z');
		unuse(f);
		close_volume();
	}
	end();
}

static void dirty_change_while_unmounted_is_a_conflict(void)
{
	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 4096);
		CHECK_EQ(tfile_fsync(f, false), 0);
		chmod_through_mount(f, 0600);
		unuse(f);
		close_volume(); /* unmount without flush */
	}
	usleep(20000);
	put_src(src_file, 'Z', 0, 4096);
	if (open_volume()) {
		struct tfile *f = use();

		(void)flush(f, false);
		CHECK_EQ(v->conflicts, 1);
		CHECK_EQ(src_byte(0), 'Z'); /* not overwritten silently */
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void own_change_does_not_hide_a_foreign_one(void)
{
	struct stat st;

	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		usleep(20000);
		put_src(src_file, 'Z', 128 << 10, 4096);
		chmod_through_mount(f, 0600);
		uint64_t token = tfile_stat_begin(f);

		CHECK_EQ(stat(src_file, &st), 0);
		(void)tfile_stat_end(f, token, &st);
		CHECK_EQ(byte_at(f, 128 << 10), 'Z');
		unuse(f);
		close_volume();
	}
	end();
}

static void forced_flush_leaves_one_version(void)
{
	struct stat st;

	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		write_at(f, 'B', 0, 4096);
		usleep(20000);
		put_src(src_file, 'Z', 128 << 10, 4096);
		put_src(src_file, 'Z', 256 << 10, 4096); /* longer */
		CHECK_EQ(flush(f, false), -EBUSY);
		CHECK_EQ(flush(f, true), 0);
		CHECK_EQ(byte_at(f, 128 << 10), src_byte(128 << 10));
		CHECK_EQ(stat(src_file, &st), 0);
		CHECK_EQ(tfile_size(f), st.st_size);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- a clean mount ------------------------------------------------------------------------ */
static void clean_remount_changes_nothing(void)
{
	struct stat before, after;

	begin(512 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 512 << 10);
		/* A hole in the second extent: its checksum is unknown now. */
		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 300 << 10,
					 4096), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	CHECK_EQ(stat(src_file, &before), 0);
	if (open_volume()) {
		struct tfile *f = use();
		uint64_t token = tfile_stat_begin(f);

		CHECK_EQ(dirty_bytes(), 0);
		CHECK_EQ(stat(src_file, &after), 0);
		(void)tfile_stat_end(f, token, &after);
		CHECK_EQ(timespec_ns(after.st_mtim), timespec_ns(before.st_mtim));
		unuse(f);
		close_volume();
	}
	end();
}

/* Unlinked without its map having been loaded in this mount. */
static void unlink_returns_the_space(void)
{
	struct volume_status s;

	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 1u << 20);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	if (open_volume()) {
		struct tfile *f = get(src_file);

		unlink(src_file);
		tfile_dead(f);
		tfile_put(f);
		step(3);
		volume_status(v, &s);
		CHECK_EQ(s.ssd_used_bytes, 0);
		CHECK_EQ(s.dirty_bytes, 0);
		close_volume();
	}
	end();
}

static void full_of_pins_does_not_spin(void)
{
	unsigned busy = 0;
	int64_t wait;

	begin(2u << 20);
	opt.size_bytes = 2u << 20;
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 2u << 20);
		CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
		for (int i = 0; i < 2000; i++)
			busy += volume_step(v, &wait) > 0;
		CHECK(busy < 1000);
		unuse(f);
		close_volume();
	}
	end();
}

static void pin_of_a_closed_file_pins(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_pin(f, false, 0, 256 << 10), 0);
		CHECK(f->pin_ranges);
		tfile_put(f);
		close_volume();
	}
	end();
}

/* ---- a lost object ------------------------------------------------------------------------ */
static void lost_object_does_not_zero_src(void)
{
	char cmd[600];

	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	snprintf(cmd, sizeof(cmd), "find %s/volumes/*/objects -type f -delete", ssd_dir);
	CHECK_EQ(system(cmd), 0);
	if (open_volume()) {
		struct tfile *f = use();
		struct tier_stream s = { 0 };
		char c;

		CHECK_EQ(tfile_read(f, &s, &c, 1, 0), -EIO);
		write_at(f, 'C', 1u << 19, 4096);
		CHECK_EQ(tfile_read(f, &s, &c, 1, 0), -EIO);
		(void)flush(f, false);
		CHECK_EQ(src_byte(0), 'A');
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

UNIT_MAIN({ "second_open_knows_the_size", second_open_knows_the_size },
	  { "open_during_chmod_knows_the_size", open_during_chmod_knows_the_size },
	  { "fsync_after_unload_syncs_src", fsync_after_unload_syncs_src },
	  { "background_sync_error_reaches_fsync", background_sync_error_reaches_fsync },
	  { "writeback_sync_error_reaches_fsync", writeback_sync_error_reaches_fsync },
	  { "read_error_is_no_short_read", read_error_is_no_short_read },
	  { "pending_cut_then_write_far", pending_cut_then_write_far },
	  { "pending_cut_then_truncate_up", pending_cut_then_truncate_up },
	  { "pending_cut_then_punch", pending_cut_then_punch },
	  { "bypass_write_meets_redone_cut", bypass_write_meets_redone_cut },
	  { "bypass_write_meets_growing_src", bypass_write_meets_growing_src },
	  { "commit_while_settling", commit_while_settling },
	  { "punch_syncs_src_before_dirty_goes", punch_syncs_src_before_dirty_goes },
	  { "write_around_syncs_src_before_dirty_goes", write_around_syncs_src_before_dirty_goes },
	  { "cut_syncs_src_before_its_mark_goes", cut_syncs_src_before_its_mark_goes },
	  { "no_false_conflict_after_crash", no_false_conflict_after_crash },
	  { "no_time_travel_after_crash", no_time_travel_after_crash },
	  { "no_punch_before_the_catalog_knows", no_punch_before_the_catalog_knows },
	  { "tail_is_zero_after_crash", tail_is_zero_after_crash },
	  { "orphan_of_a_crash_goes_away", orphan_of_a_crash_goes_away },
	  { "change_while_unmounted_is_seen", change_while_unmounted_is_seen },
	  { "dirty_change_while_unmounted_is_a_conflict", dirty_change_while_unmounted_is_a_conflict },
	  { "own_change_does_not_hide_a_foreign_one", own_change_does_not_hide_a_foreign_one },
	  { "forced_flush_leaves_one_version", forced_flush_leaves_one_version },
	  { "clean_remount_changes_nothing", clean_remount_changes_nothing },
	  { "unlink_returns_the_space", unlink_returns_the_space },
	  { "full_of_pins_does_not_spin", full_of_pins_does_not_spin },
	  { "pin_of_a_closed_file_pins", pin_of_a_closed_file_pins },
	  { "lost_object_does_not_zero_src", lost_object_does_not_zero_src })
