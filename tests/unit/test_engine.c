// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine against a shadow in memory: random operations on a few files, each followed by a look
 * at the bytes concerned, with background steps in between (single-threaded) or all the while
 * (threaded), on an SSD that is too small for the data. Generations end by close (SRC alone must
 * then be the shadow) or by _exit() right after an fsync (I5, I6: nothing may be missing).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/unit/unit.h"
#include "tier/tfile.h"
#include "tier/volume.h"

#define FILES 4
#define FILE_MAX (1400u << 10)
#define SPARSE_OFF (3ull << 30)

struct shadow {
	uint8_t data[FILE_MAX];
	uint64_t size;
};

struct world {
	struct shadow files[FILES]; /* shared with the children */
	uint64_t seed;
	int failed;
	char src_path[256], ssd_path[256];
};

static struct world *w;

/* ---- environment -------------------------------------------------------------------------- */
static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static _Atomic int64_t skew_ns; /* lets the tests make time pass */

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
	if (level <= 3) {
		printf("# log: %s\n", line);
		w->failed++;
	}
}

static const struct volume_env env = { .wall_ns = env_wall,
				       .monotonic_ns = env_mono,
				       .log = env_log };

static uint64_t rnd(void)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed * 0x2545F4914F6CDD1Dull >> 16;
}

static uint64_t below(uint64_t n)
{
	return n ? rnd() % n : 0;
}

/* ---- one generation ----------------------------------------------------------------------- */
struct gen {
	struct src src;
	struct volume *v;
	struct tfile *f[FILES];
	struct tier_stream streams[FILES];
};

static void complain(const char *what, int i, uint64_t off, uint64_t len)
{
	printf("# %s: file %d at %llu+%llu\n", what, i, (unsigned long long)off,
	       (unsigned long long)len);
	fflush(stdout);
	w->failed++;
}

static bool gen_open(struct gen *g, uint64_t cap)
{
	struct volume_options o;
	char error[256];

	memset(g, 0, sizeof(*g));
	volume_options_init(&o);
	o.size_bytes = cap;
	o.dirty_expire_s = 1;
	o.seq_cutoff_bytes = 1u << 20;
	if (src_init(&g->src, w->src_path) < 0)
		return false;
	int r = volume_open(&g->src, w->ssd_path, &o, &env, &g->v, error, sizeof(error));

	if (r < 0) {
		printf("# volume_open: %s\n", error);
		return false;
	}
	for (int i = 0; i < FILES; i++) {
		char name[16];
		struct src_key key;

		snprintf(name, sizeof(name), "f%d", i);
		int fd = openat(g->src.root_fd, name, O_PATH);

		if (fd < 0 || src_key_of_fd(&g->src, fd, &key) < 0)
			return false;
		close(fd);
		if (tfile_get(g->v, &key, name, &g->f[i]) < 0 || tfile_use(g->f[i], true) < 0)
			return false;
	}
	return true;
}

static void gen_close(struct gen *g)
{
	uint64_t bytes, left;
	int r;

	for (int i = 0; i < FILES; i++) {
		tfile_unuse(g->f[i]);
		tfile_put(g->f[i]);
	}
	while ((r = volume_flush_step(g->v, 1u << 20, &bytes, &left)) > 0)
		;
	if (r < 0 || left)
		complain("flush", -1, 0, left);
	if (volume_close(g->v) < 0)
		complain("close", -1, 0, 0);
	src_release(&g->src);
}

static void compare(struct gen *g, int i, uint64_t off, uint64_t len)
{
	static _Thread_local uint8_t buf[FILE_MAX];
	struct shadow *s = &w->files[i];

	len = off >= s->size ? 0 : len < s->size - off ? len : s->size - off;
	ssize_t n = tfile_read(g->f[i], &g->streams[i], buf, len, off);

	if (n != (ssize_t)len || memcmp(buf, s->data + off, len)) {
		uint64_t at = 0;

		while (at < len && n == (ssize_t)len && buf[at] == s->data[off + at])
			at++;
		complain("bytes differ", i, off + at, len - at);
	}
	if (tfile_size(g->f[i]) != s->size)
		complain("size differs", i, tfile_size(g->f[i]), s->size);
}

static uint64_t edge(uint64_t max)
{
	static const uint64_t steps[] = { 512, 4096, 4096, 65536, 262144 };
	uint64_t n = below(max);

	if (below(3)) {
		uint64_t step = steps[below(5)];

		n = n / step * step + below(3) - 1;
	}
	return n > max ? 0 : n;
}

static void do_write(struct gen *g, int i)
{
	static _Thread_local uint8_t buf[1u << 20];
	uint64_t off = edge(FILE_MAX - 1), len = 1 + edge(below(8) ? 20000 : 600000);
	struct shadow *s = &w->files[i];

	if (len > FILE_MAX - off)
		len = FILE_MAX - off;
	for (uint64_t k = 0; k < len; k++)
		buf[k] = (uint8_t)(rnd() >> 8);
	if (tfile_write(g->f[i], &g->streams[i], buf, len, off) != (ssize_t)len)
		complain("short write", i, off, len);
	memcpy(s->data + off, buf, len);
	if (off + len > s->size)
		s->size = off + len;
}

static void do_truncate(struct gen *g, int i)
{
	struct shadow *s = &w->files[i];
	uint64_t size = edge(FILE_MAX);

	if (tfile_truncate(g->f[i], size) < 0)
		complain("truncate", i, size, 0);
	if (size < s->size)
		memset(s->data + size, 0, s->size - size);
	s->size = size;
}

static void do_fallocate(struct gen *g, int i)
{
	static const int modes[] = { 0, FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
	struct shadow *s = &w->files[i];
	int mode = modes[below(5)];
	uint64_t off = edge(FILE_MAX - 1), len = 1 + edge(300000);

	if (len > FILE_MAX - off)
		len = FILE_MAX - off;
	int r = tfile_fallocate(g->f[i], mode, off, len);

	if (r == -EOPNOTSUPP)
		return;
	if (r < 0)
		complain("fallocate", i, off, len);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(s->data + off, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > s->size)
		s->size = off + len;
}

static void do_seek(struct gen *g, int i)
{
	struct shadow *s = &w->files[i];
	uint64_t off = edge(FILE_MAX);
	off_t hole = tfile_seek(g->f[i], (off_t)off, SEEK_HOLE);
	off_t data = tfile_seek(g->f[i], (off_t)off, SEEK_DATA);

	if (off >= s->size) {
		if (hole != -ENXIO || data != -ENXIO)
			complain("seek past the end", i, off, s->size);
		return;
	}
	/* Between off and the next data there are only zeros. */
	uint64_t until = data < 0 ? s->size : (uint64_t)data;

	for (uint64_t k = off; k < until; k++)
		if (s->data[k]) {
			complain("SEEK_DATA skips data", i, k, 0);
			return;
		}
	if (hole < (off_t)off || (uint64_t)hole > s->size)
		complain("SEEK_HOLE", i, off, (uint64_t)hole);
}

static void do_steer(struct gen *g, int i)
{
	uint64_t next = 0, bytes, off = edge(FILE_MAX), len = 1 + edge(600000);
	unsigned what = (unsigned)below(5);
	int r = 0;

	if (what == 3)
		r = tfile_pin(g->f[i], below(2), off, len);
	else if (what == 4)
		r = tfile_unpin(g->f[i], below(2), off, len);
	else
		do
			r = what == 0	? tfile_promote_step(g->f[i], off, len, 1u << 20, &next,
							     &bytes)
			    : what == 1 ? tfile_demote_step(g->f[i], 1u << 20, false, &next, &bytes)
					: tfile_flush_step(g->f[i], 1u << 20, false, &next, &bytes);
		while (r == 0 && next != UINT64_MAX);
	if (r < 0 && !(what == 0 && (r == -ENOSPC || r == -EAGAIN)))
		complain("steering", i, what, (uint64_t)-r);
}

static void steps(struct gen *g, unsigned n)
{
	int64_t wait;

	atomic_fetch_add(&skew_ns, (int64_t)below(3000) * 1000000);
	while (n-- && volume_step(g->v, &wait) > 0)
		;
}

static void one_op(struct gen *g, bool may_step)
{
	int i = (int)below(FILES);

	switch (below(20)) {
	case 0:
		do_truncate(g, i);
		break;
	case 1:
	case 2:
		do_fallocate(g, i);
		break;
	case 3:
		do_seek(g, i);
		break;
	case 4:
	case 5:
		do_steer(g, i);
		break;
	case 6:
		if (tfile_fsync(g->f[i], below(2)) < 0)
			complain("fsync", i, 0, 0);
		break;
	case 7:
	case 8:
	case 9:
		if (may_step)
			steps(g, (unsigned)below(20));
		break;
	case 10:
	case 11:
	case 12:
		compare(g, i, edge(FILE_MAX), edge(FILE_MAX));
		return;
	default:
		do_write(g, i);
	}
	compare(g, i, edge(FILE_MAX), edge(100000));
	if (below(10) == 0)
		compare(g, i, 0, FILE_MAX);
}

/* ---- the run of a child ------------------------------------------------------------------- */
static _Atomic bool stop;

static void *stepper(void *arg)
{
	struct gen *g = arg;
	int64_t wait;

	while (!atomic_load(&stop)) {
		atomic_fetch_add(&skew_ns, 200 * 1000000ll);
		(void)volume_step(g->v, &wait);
	}
	return NULL;
}

static void check_src(void)
{
	static uint8_t buf[FILE_MAX + 1];

	for (int i = 0; i < FILES; i++) {
		char path[300];

		snprintf(path, sizeof(path), "%s/f%d", w->src_path, i);
		int fd = open(path, O_RDONLY);
		ssize_t n = pread(fd, buf, sizeof(buf), 0);

		if (n != (ssize_t)w->files[i].size || memcmp(buf, w->files[i].data, (size_t)n))
			complain("SRC differs after close", i, (uint64_t)n, w->files[i].size);
		close(fd);
	}
}

static void generation(unsigned ops, bool threaded, bool crash, uint64_t cap)
{
	struct gen g;
	pthread_t t;

	if (!gen_open(&g, cap)) {
		complain("open", -1, 0, 0);
		return;
	}
	for (int i = 0; i < FILES; i++)
		compare(&g, i, 0, FILE_MAX);
	if (threaded)
		pthread_create(&t, NULL, stepper, &g);
	while (ops-- && !w->failed)
		one_op(&g, !threaded);
	for (int i = 0; crash && i < FILES; i++)
		if (tfile_fsync(g.f[i], false) < 0)
			complain("fsync", i, 0, 0);
	if (crash)
		_exit(0); /* the stepper is stopped wherever it is */
	if (threaded) {
		atomic_store(&stop, true);
		pthread_join(t, NULL);
	}
	gen_close(&g);
	check_src();
}

static void run_generations(unsigned n, unsigned ops, bool threaded)
{
	for (unsigned i = 0; i < n && !w->failed; i++) {
		uint64_t seed = w->seed;
		bool crash = below(2);
		uint64_t cap = below(3) ? 2u << 20 : 64u << 20;
		pid_t pid = fork();

		if (pid == 0) {
			generation(ops, threaded, crash, cap);
			fflush(stdout);
			exit(0);
		}
		int status;

		waitpid(pid, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			w->failed++;
		if (w->failed)
			printf("# generation %u, seed %llx, threaded %d, crash %d\n", i,
			       (unsigned long long)seed, threaded, crash);
		rnd();
	}
	CHECK_EQ(w->failed, 0);
}

static void set_up(void)
{
	char dir[] = "/tmp/hfs-engine-XXXXXX";
	const char *base = getenv("HFS_TEST_DIR");

	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!base)
		base = mkdtemp(dir);
	w->seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 16) : 0x9e3779b97f4a7c15;
	snprintf(w->src_path, sizeof(w->src_path), "%s/src", base);
	snprintf(w->ssd_path, sizeof(w->ssd_path), "%s/ssd", base);
	(void)mkdir(base, 0755);
	mkdir(w->src_path, 0755);
	for (int i = 0; i < FILES; i++) {
		char path[300];

		snprintf(path, sizeof(path), "%s/f%d", w->src_path, i);
		close(open(path, O_RDWR | O_CREAT | O_TRUNC, 0644));
	}
}

static void tear_down(void)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s' '%s'", w->src_path, w->ssd_path);
	CHECK_EQ(system(cmd), 0);
	w->src_path[strlen(w->src_path) - 4] = '\0';
	(void)!rmdir(w->src_path);
	munmap(w, sizeof(*w));
}

static unsigned scale(void)
{
	return getenv("SCALE") ? (unsigned)atoi(getenv("SCALE")) : 1;
}

static void shadow_with_steps_between(void)
{
	set_up();
	run_generations(20 * scale(), 400, false);
	tear_down();
}

static void shadow_with_steps_meanwhile(void)
{
	set_up();
	run_generations(20 * scale(), 400, true);
	tear_down();
}

UNIT_MAIN({ "shadow_with_steps_between", shadow_with_steps_between },
	  { "shadow_with_steps_meanwhile", shadow_with_steps_meanwhile })
