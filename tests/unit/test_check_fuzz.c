// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The check under stress: volumes that were never closed, repairs that are killed before each of
 * their system calls, what the engine leaves after random work, and random corruption; and a mount
 * of what was corrupted, without a check before.
 */
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/unit/check_fixture.h"

/* SCALE=n: n times as many rounds as a quick run has. */
static unsigned rounds_of(unsigned quick)
{
	const char *scale = getenv("SCALE");

	return quick * (scale ? (unsigned)atoi(scale) : 1);
}

/* ---- dying in the middle ------------------------------------------------------------------ */
static int calls_left = -1; /* before this process ends; < 0: it does not */

static void maybe_die(void)
{
	if (calls_left >= 0 && calls_left-- == 0)
		_exit(77);
}

/* Every call that changes a directory or makes something durable, sqlite's too. */
int my_fsync(int fd) __asm__("fsync");
int my_fsync(int fd)
{
	maybe_die();
	return (int)syscall(SYS_fsync, fd);
}

int my_fdatasync(int fd) __asm__("fdatasync");
int my_fdatasync(int fd)
{
	maybe_die();
	return (int)syscall(SYS_fdatasync, fd);
}

int my_renameat(int from, const char *old, int to, const char *new) __asm__("renameat");
int my_renameat(int from, const char *old, int to, const char *new)
{
	maybe_die();
	return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int my_linkat(int from, const char *old, int to, const char *new, int flags) __asm__("linkat");
int my_linkat(int from, const char *old, int to, const char *new, int flags)
{
	maybe_die();
	return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

int my_unlinkat(int dir, const char *name, int flags) __asm__("unlinkat");
int my_unlinkat(int dir, const char *name, int flags)
{
	maybe_die();
	return (int)syscall(SYS_unlinkat, dir, name, flags);
}

static void repair_and_die(void *arg)
{
	calls_left = *(int *)arg;
	(void)run_check(REPAIR);
	calls_left = -1;
}

/* From the saved SSD, killed before the n-th call; false when it was not: n was beyond the last. */
static bool repair_killed_at(int n)
{
	restore_ssd();
	int status = unit_child(repair_and_die, &n);

	CHECK(status == 0 || status == 77);
	return status == 77;
}

static bool in_lost_and_found(const struct content *x, uint64_t off, uint64_t len)
{
	char *lost = path_of(volume_path(), "lost+found");
	DIR *dir = opendir(lost);
	uint8_t *buf = malloc(len);
	bool found = false;
	struct dirent *e;

	while (dir && !found && (e = readdir(dir))) {
		int fd = openat(dirfd(dir), e->d_name, O_RDONLY);

		found = pread(fd, buf, len, (off_t)off) == (ssize_t)len &&
			memcmp(buf, x->data + off, len) == 0;
		close(fd);
	}
	if (dir)
		closedir(dir);
	free(buf);
	return found;
}

static void killed_while_rebuilding(void)
{
	int n = 0;

	world_new();
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	save_ssd();
	round_up_sizes();
	uint64_t src = hash_of(w.src_path);

	for (bool more = true; more; n++) {
		more = repair_killed_at(n);
		CHECK_EQ(run_check(REPAIR), 0);
		CHECK_EQ(w.result.left, 0);
		CHECK(hash_of(w.src_path) == src);
		look_by_mount();
	}
	printf("# killed at %d places\n", n - 1);
	world_release();
}

/* With a damaged catalog that has a WAL: it is never applied to the new one. */
static void killed_while_replacing(void)
{
	int n = 0;

	world_new();
	sql("UPDATE totals SET present_n = present_n + 1");
	shell("head -c 100000 /dev/urandom >'%s/catalog.db-wal'", volume_path());
	save_ssd();
	for (bool more = true; more; n++) {
		more = repair_killed_at(n);
		CHECK_EQ(run_check(REPAIR), 0);
		CHECK_EQ(w.result.left, 0);
		CHECK_EQ(run_check(SCRUB), 0);
		CHECK_EQ(w.result.findings, 0);
		look_by_mount();
	}
	printf("# killed at %d places\n", n - 1);
	world_release();
}

static void killed_while_repairing(void)
{
	int n = 0;

	world_new();
	CHECK_EQ(unlink(path_of(w.src_path, "dirty")), 0);
	CHECK_EQ(unlink(path_of(w.src_path, "clean")), 0);
	CHECK_EQ(chmod(path_of(w.src_path, "sparse"), 0600), 0);
	shell("printf x | dd of='%s' conv=notrunc status=none", object_of("part"));
	save_ssd();
	for (bool more = true; more; n++) {
		more = repair_killed_at(n);
		CHECK_EQ(run_check(REPAIR), 0);
		CHECK_EQ(w.result.left, 0);
		CHECK(in_lost_and_found(&w.files[DIRTY], 100000, 100000));
		CHECK_EQ(run_check(SCRUB), 0);
		CHECK_EQ(w.n_found, 0);
		look_by_mount();
	}
	printf("# killed at %d places\n", n - 1);
	world_release();
}

/* ---- what the engine leaves --------------------------------------------------------------- */
#define WORK_FILES 3
#define WORK_MAX   (900u << 10)

static struct content *shared; /* WORK_FILES, in memory that a child shares */

static void work_write(struct tfile *f, struct content *x)
{
	struct tier_stream stream = { 0 };
	uint64_t off = below(WORK_MAX), len = 1 + below(below(4) ? 20000 : 400000);

	if (len > WORK_MAX - off)
		len = WORK_MAX - off;
	for (uint64_t i = 0; i < len; i++)
		x->data[off + i] = (uint8_t)rnd();
	CHECK_EQ(tfile_write(f, &stream, x->data + off, len, off), (ssize_t)len);
	if (off + len > x->size)
		x->size = off + len;
}

static void work_truncate(struct tfile *f, struct content *x)
{
	uint64_t size = below(WORK_MAX);

	CHECK_EQ(tfile_truncate(f, size), 0);
	if (size < x->size)
		memset(x->data + size, 0, x->size - size);
	x->size = size;
}

static void work_punch(struct tfile *f, struct content *x)
{
	uint64_t off = below(WORK_MAX), len = 1 + below(200000);

	if (len > WORK_MAX - off)
		len = WORK_MAX - off;
	CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len), 0);
	memset(x->data + off, 0, len);
}

static void work_steer(struct tfile *f)
{
	uint64_t next = 0, bytes, what = below(5), off = below(WORK_MAX), len = 1 + below(500000);

	if (what == 3)
		CHECK_EQ(tfile_pin(f, below(2), off, len), 0);
	else if (what == 4)
		CHECK_EQ(tfile_unpin(f, below(2), off, len), 0);
	for (int i = 0; what < 3 && i < 20 && next != UINT64_MAX; i++)
		(void)(what == 0 ? tfile_promote_step(f, off, len, 1u << 20, &next, &bytes) :
		       what == 1 ? tfile_demote_step(f, 1u << 20, false, &next, &bytes) :
				   tfile_flush_step(f, 1u << 20, false, &next, &bytes));
}

static void work_one(struct tfile *f, struct content *x)
{
	int64_t wait;

	switch (below(12)) {
	case 0:
		work_truncate(f, x);
		break;
	case 1:
		work_punch(f, x);
		break;
	case 2:
	case 3:
		work_steer(f);
		break;
	case 4:
		CHECK_EQ(tfile_fsync(f, below(2)), 0);
		break;
	case 5:
	case 6:
		for (uint64_t n = below(10); n && volume_step(w.v, &wait) > 0; n--)
			;
		break;
	default:
		work_write(f, x);
	}
}

struct shift {
	bool crash, flush;
};

static void work(void *arg)
{
	static const char *const names[] = { "w0", "w1", "w2" };
	const struct shift *s = arg;
	struct tfile *f[WORK_FILES];
	uint64_t bytes, left;

	if (!engine_open(below(2) ? 2u << 20 : 64u << 20))
		return;
	for (int i = 0; i < WORK_FILES; i++) {
		f[i] = engine_use(names[i]);
		if (!CHECK(engine_same(f[i], &shared[i])))
			return;
	}
	for (int n = 0; n < 150; n++) {
		int i = (int)below(WORK_FILES);

		work_one(f[i], &shared[i]);
	}
	for (int i = 0; i < WORK_FILES && s->crash; i++)
		CHECK_EQ(tfile_fsync(f[i], false), 0);
	if (s->crash) {
		fflush(stdout);
		_exit(unit_failures ? 1 : 0);
	}
	for (int i = 0; i < WORK_FILES; i++)
		engine_unuse(f[i]);
	while (s->flush && volume_flush_step(w.v, 1u << 20, &bytes, &left) > 0)
		;
	engine_close();
}

static void work_files(void)
{
	static const char *const names[] = { "w0", "w1", "w2" };
	size_t room = sizeof(*shared) * WORK_FILES;
	char *p = mmap(NULL, room + WORK_FILES * WORK_MAX, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	shared = (struct content *)p;
	for (int i = 0; i < WORK_FILES; i++) {
		shared[i] = (struct content){ .name = names[i],
					      .data = (uint8_t *)p + room + (size_t)i * WORK_MAX };
		close(open(path_of(w.src_path, names[i]), O_RDWR | O_CREAT, 0644));
	}
}

/* A clean shutdown leaves nothing that the check finds; a crash nothing that it cannot repair. */
static void after_random_work(void)
{
	unsigned rounds = rounds_of(40);

	world_dirs();
	work_files();
	for (unsigned i = 0; i < rounds; i++) {
		struct shift s = { .crash = below(2), .flush = below(2) };
		uint64_t seed = w.seed;

		if (!CHECK_EQ(unit_child(work, &s), 0))
			break;
		uint64_t src = hash_of(w.src_path), ssd = hash_of(w.ssd_path);

		CHECK_EQ(run_check(SCRUB), 0);
		if (!s.crash && !CHECK_EQ(w.result.findings, 0)) {
			print_found();
			printf("# round %u, seed %" PRIx64 ", flush %d\n", i, seed, s.flush);
		}
		CHECK(hash_of(w.ssd_path) == ssd);
		if (s.crash && below(2)) {
			CHECK_EQ(run_check(REPAIR | (below(2) ? SCRUB : 0)), 0);
			if (!CHECK_EQ(w.result.left, 0))
				print_found();
			CHECK_EQ(run_check(SCRUB), 0);
			if (!CHECK_EQ(w.result.findings, 0))
				print_found();
		}
		CHECK(hash_of(w.src_path) == src);
		rnd(); /* the child went on from the same seed */
	}
	munmap(shared, sizeof(*shared) * WORK_FILES + WORK_FILES * WORK_MAX);
	world_release();
}

/* ---- random corruption -------------------------------------------------------------------- */
static void flip_bits(const char *path, off_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	for (uint64_t n = 1 + below(8); n && size; n--) {
		off_t at = (off_t)below((uint64_t)size);
		uint8_t byte = 0;

		(void)!pread(fd, &byte, 1, at);
		byte ^= (uint8_t)(1u << below(8));
		(void)!pwrite(fd, &byte, 1, at);
	}
	close(fd);
}

static void overwrite_page(const char *path, off_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t page[4096] = { 0 };

	if (below(2))
		for (size_t i = 0; i < sizeof(page); i++)
			page[i] = (uint8_t)rnd();
	(void)!pwrite(fd, page, sizeof(page), (off_t)below((uint64_t)size / 4096) * 4096);
	close(fd);
}

static void damage_description(const char *path)
{
	char text[4096];
	ssize_t n = getxattr(path, DESCRIPTION, text, sizeof(text));

	if (n > 0)
		text[below((uint64_t)n)] = (char)rnd();
	if (below(3))
		(void)setxattr(path, DESCRIPTION, text, n > 0 ? (size_t)n : 0, 0);
	else
		(void)removexattr(path, DESCRIPTION);
}

static void corrupt(const char *path, bool object)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return;
	switch (below(object ? 6 : 4)) {
	case 0:
	case 1:
		flip_bits(path, st.st_size);
		break;
	case 2:
		(void)!truncate(path, (off_t)below((uint64_t)st.st_size * 5 / 4));
		break;
	case 3:
		overwrite_page(path, st.st_size);
		break;
	case 4:
		damage_description(path);
		break;
	default:
		(void)!unlink(path);
	}
}

/* Files that were all in SRC show SRC's content, unless two versions are kept. */
static void look_after_repair(void)
{
	w.log_errors = 0;
	if (!engine_open(64u << 20))
		return;
	for (int i = 0; i < FILES; i++) {
		struct tfile *f = engine_use(w.files[i].name);
		struct tfile_figures figures;

		if (!f)
			continue;
		tfile_figures(f, &figures);
		bool same = engine_same(f, &w.files[i]);

		if (w.files[i].in_src && !figures.conflict && !CHECK(same))
			printf("# %s differs\n", w.files[i].name);
		engine_unuse(f);
	}
	engine_close();
}

static unsigned outcomes(enum check_outcome outcome)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w.n_found; i++)
		n += w.found[i].outcome == outcome && !w.found[i].note;
	return n;
}

static void corrupt_state(bool crashed)
{
	static const char *const names[] = { "catalog.db", "catalog.db-wal", "journal.1" };

	corrupt(path_of(volume_path(), names[crashed ? below(3) : 0]), false);
}

static void fuzz_one(char objects[][600], bool crashed, bool *ret_repaired)
{
	bool hurt_objects = below(2), hurt_state = !hurt_objects || below(3) == 0;
	uint64_t src = hash_of(w.src_path);

	if (hurt_state)
		corrupt_state(crashed);
	for (uint64_t n = hurt_objects ? 1 + below(3) : 0; n; n--)
		corrupt(objects[below(FILES)], true);
	uint64_t ssd = hash_of(w.ssd_path);
	int dry = run_check(SCRUB);

	CHECK(hash_of(w.ssd_path) == ssd);
	int r = run_check(REPAIR | SCRUB);

	CHECK(hash_of(w.src_path) == src);
	if (r == -EPROTONOSUPPORT) /* a version of 1 with a bit flipped is a newer one */
		return;
	if (!CHECK_EQ(r, 0) || !CHECK_EQ(dry, 0))
		printf("# %s\n", w.error);
	*ret_repaired = outcomes(CHECK_DONE) > 0;
	CHECK_EQ(run_check(SCRUB), 0);
	if (!CHECK_EQ(outcomes(CHECK_WOULD), 0))
		print_found();
	look_after_repair();
}

static void corrupt_at_random(bool crashed)
{
	unsigned rounds = rounds_of(150);
	char objects[FILES][600];
	unsigned repaired = 0;

	/* In this order the engine numbers them. */
	for (int i = 0; i < FILES; i++)
		snprintf(objects[i], sizeof(objects[i]), "%s/objects/%02d/%016d", volume_path(),
			 i + 1, i + 1);
	w.seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 16) : 0x12345;
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t seed = w.seed;
		int failures = unit_failures;
		bool any = false;

		restore_ssd();
		fuzz_one(objects, crashed, &any);
		repaired += any;
		if (unit_failures != failures)
			printf("# round %u: SEED=%" PRIx64 "\n", i, seed);
	}
	printf("# %u of %u rounds had something to repair\n", repaired, rounds);
}

static void random_corruption(void)
{
	world_new();
	for (int i = 0; i < FILES; i++)
		CHECK(id_of(w.files[i].name) <= FILES);
	save_ssd();
	corrupt_at_random(false);
	world_release();
}

static void random_corruption_after_a_crash(void)
{
	world_crashed();
	corrupt_at_random(true);
	world_release();
}

/* ---- a mount of it ------------------------------------------------------------------------ */
static struct content before[FILES]; /* what SRC alone has */

static void read_src(int i, struct content *ret)
{
	int fd = openat(w.src.root_fd, w.files[i].name, O_RDONLY | O_CLOEXEC);
	struct stat st = { .st_size = 0 };

	fstat(fd, &st);
	*ret = (struct content){ .data = malloc((size_t)st.st_size + 1),
				 .size = (uint64_t)st.st_size };
	CHECK_EQ(pread(fd, ret->data, ret->size, 0), (ssize_t)ret->size);
	close(fd);
}

static uint8_t byte_of(const struct content *x, uint64_t at)
{
	return at < x->size ? x->data[at] : 0;
}

static bool same_block(const struct content *x, const struct content *y, uint64_t at)
{
	const uint64_t len = 4096;

	return at + len <= x->size && at + len <= y->size &&
		memcmp(x->data + at, y->data + at, len) == 0;
}

/* Old bytes or new ones; with `all`, new ones. */
static void check_src(bool all)
{
	for (int i = 0; i < FILES; i++) {
		const struct content *old = &before[i], *new = &w.files[i];
		struct content now;
		uint64_t at = 0;

		read_src(i, &now);
		while (at < now.size) {
			if (same_block(&now, new, at))
				at += 4096;
			else if ((!all && now.data[at] == byte_of(old, at)) ||
				 now.data[at] == byte_of(new, at))
				at++;
			else
				break;
		}
		if (!CHECK_EQ(at, now.size) || !CHECK(!all || now.size == new->size) ||
		    !CHECK(now.size <= old->size || now.size <= new->size))
			printf("# SRC of %s\n", new->name);
		free(now.data);
	}
}

/* What is shown is right, or the reader is told. */
static bool read_files(bool may_be_wrong)
{
	bool all = true;

	for (int i = 0; i < FILES; i++) {
		const struct content *x = &w.files[i];
		int fd = openat(w.src.root_fd, x->name, O_PATH | O_CLOEXEC);
		struct tfile *f = NULL;
		struct src_key key;
		int r;

		CHECK_EQ(src_key_of_fd(&w.src, fd, &key), 0);
		close(fd);
		r = tfile_get(w.v, &key, x->name, &f);
		if (r == 0)
			r = tfile_use(f, false);
		if (r == 0) {
			r = engine_compare(f, x);
			tfile_unuse(f);
		}
		if (!CHECK(r != 0 || may_be_wrong))
			printf("# %s differs\n", x->name);
		all &= r == 1;
		tfile_put(f);
	}
	return all;
}

static bool flush_all(void)
{
	struct volume_status status;
	uint64_t bytes, left = 0;
	int64_t wait;
	int r = 1;

	for (int i = 0; i < 40; i++)
		(void)volume_step(w.v, &wait);
	for (int i = 0; i < 100 && r > 0; i++)
		r = volume_flush_step(w.v, 1u << 20, &bytes, &left);
	volume_status(w.v, &status);
	return r == 0 && left == 0 && status.healthy;
}

enum { REFUSED = 2, TROUBLED = 4 }; /* bits of a child's exit status, besides 1 for a failure */

/* `objects`: one of them was damaged too, and what was in it may be lost. */
static void mount_and_use(void *arg)
{
	bool objects = *(bool *)arg;
	struct volume_options o;

	volume_options_init(&o);
	o.size_bytes = 64u << 20;
	o.seq_cutoff_bytes = 0;
	CHECK_EQ(src_init(&w.src, w.src_path), 0);
	w.log_errors = 0;
	*w.error = '\0';
	int r = volume_open(&w.src, w.ssd_path, &o, &env, &w.v, w.error, sizeof(w.error)), said = 0;

	if (r < 0) {
		said = REFUSED;
		if (!CHECK(strstr(w.error, "hybridfs check --repair")))
			printf("# refused (%d): %s\n", r, w.error);
	} else {
		bool right = read_files(objects), flushed = flush_all();

		right &= read_files(objects);
		r = volume_close(w.v);
		said = right && flushed && r == 0 ? 0 : TROUBLED;
		CHECK(!said || objects || w.log_errors || r < 0);
	}
	if (!objects)
		check_src(!said);
	fflush(stdout);
	_exit(said | (unit_failures ? 1 : 0));
}

static void damage_state(bool crashed, bool *ret_needed)
{
	static const char *const names[] = { "catalog.db", "catalog.db-wal", "journal.0",
					     "journal.1" };
	uint64_t n = below(crashed ? 4 : 3);
	char *path = path_of(volume_path(), names[n]);

	if (n == 2 && access(path, F_OK) < 0)
		path = path_of(volume_path(), names[3]);
	*ret_needed = crashed || n < 2;
	if (below(20) == 0 && n != 1)
		(void)!unlink(path);
	else
		corrupt(path, false);
}

struct tally {
	unsigned refused, troubled, rounds;
};

static void mount_one(void (*make)(void), bool crashed, struct tally *t)
{
	static uint64_t src;
	bool objects = below(5) == 0, needed;
	uint64_t seed = w.seed;

	/* A ctime can not be put back: when SRC was written to, another world is needed. */
	if (t->rounds && hash_of(w.src_path) != src) {
		for (int i = 0; i < FILES; i++)
			free(before[i].data);
		world_release();
		t->rounds = 0;
	}
	if (t->rounds++ == 0) {
		make();
		w.seed = seed;
		src = hash_of(w.src_path);
		CHECK_EQ(src_init(&w.src, w.src_path), 0);
		for (int i = 0; i < FILES; i++)
			read_src(i, &before[i]);
		src_release(&w.src);
	}
	restore_ssd();
	damage_state(crashed, &needed);
	if (objects)
		corrupt(path_of(volume_path(), below(2) ? "objects/03/0000000000000003" :
							  "objects/01/0000000000000001"),
			true);
	int status = unit_child(mount_and_use, &objects);

	if (!CHECK(status >= 0 && !(status & 1)) || !CHECK(needed || !(status & REFUSED)))
		printf("# status %d: SEED=%" PRIx64 "\n", status, seed);
	t->refused += status == REFUSED;
	t->troubled += status == TROUBLED;
}

static void mount_many(void (*make)(void), bool crashed)
{
	unsigned rounds = rounds_of(60);
	struct tally t = { .refused = 0 };

	w.seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 16) : 0x54321;
	for (unsigned i = 0; i < rounds; i++)
		mount_one(make, crashed, &t);
	printf("# %u mounts: %u refused, %u with errors that were told\n", rounds, t.refused,
	       t.troubled);
	CHECK(t.refused > 0);
	for (int i = 0; i < FILES; i++)
		free(before[i].data);
	world_release();
}

static void world_closed(void)
{
	world_new();
	save_ssd();
}

/* Space that a checkpoint gave up is released; then more of everything. */
static void world_crashed_late(void)
{
	struct tfile *f[FILES];
	uint64_t next = 0, bytes;
	int64_t wait;

	world_open();
	for (int i = 0; i < FILES; i++)
		f[i] = engine_use(w.files[i].name);
	CHECK_EQ(volume_commit(w.v), 0);
	while (next != UINT64_MAX &&
	       CHECK_EQ(tfile_demote_step(f[CLEAN], 1u << 20, false, &next, &bytes), 0))
		;
	CHECK_EQ(volume_commit(w.v), 0);
	engine_write(f[GROWN], &w.files[GROWN], 30000, 10000);
	CHECK_EQ(tfile_fsync(f[GROWN], false), 0);
	for (int i = 0; i < 20; i++)
		(void)volume_step(w.v, &wait);
	CHECK_EQ(volume_commit(w.v), 0);
	engine_write(f[DIRTY], &w.files[DIRTY], 400000, 5000);
	engine_promote(f[PART], 0, 200000);
	for (int i = 0; i < FILES; i++)
		CHECK_EQ(tfile_fsync(f[i], false), 0);
	save_ssd();
	for (int i = 0; i < FILES; i++)
		engine_unuse(f[i]);
	engine_close();
}

static void mount_of_damage(void)
{
	mount_many(world_closed, false);
}

static void mount_of_damage_after_a_crash(void)
{
	mount_many(world_crashed, true);
}

static void mount_of_damage_after_checkpoints(void)
{
	mount_many(world_crashed_late, true);
}

UNIT_MAIN({ "killed_while_rebuilding", killed_while_rebuilding },
	  { "killed_while_replacing", killed_while_replacing },
	  { "killed_while_repairing", killed_while_repairing },
	  { "after_random_work", after_random_work }, { "random_corruption", random_corruption },
	  { "random_corruption_after_a_crash", random_corruption_after_a_crash },
	  { "mount_of_damage", mount_of_damage },
	  { "mount_of_damage_after_a_crash", mount_of_damage_after_a_crash },
	  { "mount_of_damage_after_checkpoints", mount_of_damage_after_checkpoints })
