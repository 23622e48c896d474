// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The check under stress: volumes that were never closed, repairs that are killed before each of
 * their system calls, what the engine leaves after random work, and random corruption.
 */
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/unit/check_fixture.h"

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
	unsigned rounds = getenv("SCALE") ? 40 * (unsigned)atoi(getenv("SCALE")) : 40;

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
	unsigned rounds = getenv("SCALE") ? 150 * (unsigned)atoi(getenv("SCALE")) : 150;
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

UNIT_MAIN({ "killed_while_rebuilding", killed_while_rebuilding },
	  { "killed_while_replacing", killed_while_replacing },
	  { "killed_while_repairing", killed_while_repairing },
	  { "after_random_work", after_random_work }, { "random_corruption", random_corruption },
	  { "random_corruption_after_a_crash", random_corruption_after_a_crash })
