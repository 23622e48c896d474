// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * check_fixture.h - a small volume with every kind of content, and the check on it.
 *
 * The engine itself fills it; it is closed without a flush, so that dirty data stays. What a mount
 * must show is kept in memory.
 */
#ifndef HYBRIDFS_TESTS_UNIT_CHECK_FIXTURE_H
#define HYBRIDFS_TESTS_UNIT_CHECK_FIXTURE_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "db/catalog_internal.h"
#include "tests/unit/unit.h"
#include "tier/check.h"
#include "tier/tfile.h"
#include "tier/volume.h"

#define MAX_FOUND   400
#define FILES	    7
#define DESCRIPTION "user.hybridfs.object"

struct found {
	char kind[32], path[64], object[64];
	enum check_outcome outcome;
	bool note;
};

struct content {
	const char *name;
	uint8_t *data;
	uint64_t size;
	bool in_src; /* SRC alone has it */
};

struct world {
	char *dir, *src_path, *ssd_path, *saved_path;
	struct src src;
	struct volume *v;
	struct content files[FILES];
	struct found found[MAX_FOUND];
	unsigned n_found;
	struct check_result result;
	char error[512];
	unsigned log_errors;
	int stop_after; /* calls of progress; < 0: never */
	uint64_t seed;
};

static struct world w;

static uint64_t rnd(void)
{
	w.seed ^= w.seed >> 12;
	w.seed ^= w.seed << 25;
	w.seed ^= w.seed >> 27;
	return w.seed * 0x2545f4914f6cdd1dull >> 8;
}

static inline uint64_t below(uint64_t n)
{
	return n ? rnd() % n : 0;
}

/* ---- environment of the engine ------------------------------------------------------------ */
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
	return clock_ns(CLOCK_MONOTONIC);
}

static void env_log(void *ctx, int level, const char *line)
{
	(void)ctx;
	if (level <= 3) {
		w.log_errors++;
		if (getenv("VERBOSE"))
			printf("# log: %s\n", line);
	}
}

static const struct volume_env env = { .wall_ns = env_wall,
				       .monotonic_ns = env_mono,
				       .log = env_log };

/* ---- paths -------------------------------------------------------------------------------- */
static inline char *path_of(const char *base, const char *name)
{
	static char path[4][2048];
	static unsigned next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", base, name);
	return p;
}

/* SSD/volumes/<id> */
static inline const char *volume_path(void)
{
	static char path[512];
	char *volumes = path_of(w.ssd_path, "volumes");
	DIR *dir = opendir(volumes);
	struct dirent *e;

	*path = '\0';
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			snprintf(path, sizeof(path), "%s/%s", volumes, e->d_name);
	if (dir)
		closedir(dir);
	return path;
}

static inline void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void shell(const char *fmt, ...)
{
	char cmd[1600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	if (!CHECK_EQ(system(cmd), 0))
		printf("# %s\n", cmd);
}

/* ---- the engine --------------------------------------------------------------------------- */
static inline bool engine_open(uint64_t cap)
{
	struct volume_options o;

	volume_options_init(&o);
	o.size_bytes = cap;
	o.dirty_expire_s = 1000;
	o.seq_cutoff_bytes = 0;
	if (!CHECK_EQ(src_init(&w.src, w.src_path), 0))
		return false;
	int r = volume_open(&w.src, w.ssd_path, &o, &env, &w.v, w.error, sizeof(w.error));

	if (!CHECK_EQ(r, 0)) {
		printf("# %s\n", w.error);
		src_release(&w.src);
		return false;
	}
	return true;
}

static inline void engine_close(void)
{
	CHECK_EQ(volume_close(w.v), 0);
	src_release(&w.src);
}

static inline struct tfile *engine_use(const char *name)
{
	int fd = openat(w.src.root_fd, name, O_PATH | O_CLOEXEC);
	struct tfile *f = NULL;
	struct src_key key;

	if (fd >= 0 && CHECK_EQ(src_key_of_fd(&w.src, fd, &key), 0) &&
	    CHECK_EQ(tfile_get(w.v, &key, name, &f), 0) && !CHECK_EQ(tfile_use(f, true), 0)) {
		tfile_put(f);
		f = NULL;
	}
	if (fd >= 0)
		close(fd);
	return f;
}

static inline void engine_unuse(struct tfile *f)
{
	tfile_unuse(f);
	tfile_put(f);
}

static inline void engine_promote(struct tfile *f, uint64_t off, uint64_t len)
{
	uint64_t next = 0, bytes;

	while (next != UINT64_MAX)
		if (!CHECK_EQ(tfile_promote_step(f, off, len, 1u << 20, &next, &bytes), 0))
			return;
}

static inline void engine_write(struct tfile *f, struct content *x, uint64_t off, uint64_t len)
{
	struct tier_stream stream = { 0 };

	if (off + len > x->size) {
		x->data = realloc(x->data, off + len);
		memset(x->data + x->size, 0, off + len - x->size);
		x->size = off + len;
	}
	for (uint64_t i = 0; i < len; i++)
		x->data[off + i] = (uint8_t)(rnd() | 1);
	CHECK_EQ(tfile_write(f, &stream, x->data + off, len, off), (ssize_t)len);
	x->in_src = false;
}

/* What the mount shows of a file, compared in pieces (fresh memory is what costs most here): 1 if
 * it is the same, 0 if not, or the error of a read. */
static inline int engine_compare(struct tfile *f, const struct content *x)
{
	static uint8_t buf[256u << 10];
	struct tier_stream stream = { 0 };
	uint64_t at = 0;
	ssize_t n;

	while ((n = tfile_read(f, &stream, buf, sizeof(buf), at)) > 0) {
		if ((uint64_t)n > x->size - at || memcmp(buf, x->data + at, (size_t)n) != 0) {
			if (getenv("VERBOSE"))
				printf("# %s differs in %zd bytes at %ju of %ju\n", x->name, n,
				       (uintmax_t)at, (uintmax_t)x->size);
			return 0;
		}
		at += (uint64_t)n;
	}
	if (n == 0 && at != x->size && getenv("VERBOSE"))
		printf("# %s: %ju of %ju bytes\n", x->name, (uintmax_t)at, (uintmax_t)x->size);
	return n < 0 ? (int)n : at == x->size;
}

static inline bool engine_same(struct tfile *f, const struct content *x)
{
	return engine_compare(f, x) == 1;
}

/* ---- content ------------------------------------------------------------------------------ */
static inline void make_src_file(struct content *x, const char *name, uint64_t size)
{
	int fd = open(path_of(w.src_path, name), O_RDWR | O_CREAT | O_TRUNC, 0644);

	*x = (struct content){
		.name = name, .data = malloc(size + 1), .size = size, .in_src = true
	};
	for (uint64_t i = 0; i < size; i++)
		x->data[i] = (uint8_t)(rnd() | 1);
	CHECK_EQ(write(fd, x->data, size), (ssize_t)size);
	close(fd);
}

#define SPARSE_DATA (33u << 20)

/* 34 MiB, data only in the third group. */
static inline void make_sparse_file(struct content *x)
{
	const uint64_t size = 34u << 20, from = SPARSE_DATA, len = 100000;
	int fd = open(path_of(w.src_path, "sparse"), O_RDWR | O_CREAT | O_TRUNC, 0644);

	*x = (struct content){
		.name = "sparse", .data = calloc(1, size), .size = size, .in_src = true
	};
	for (uint64_t i = 0; i < len; i++)
		x->data[from + i] = (uint8_t)(rnd() | 1);
	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	CHECK_EQ(pwrite(fd, x->data + from, len, (off_t)from), (ssize_t)len);
	close(fd);
}

enum { CLEAN, PART, DIRTY, GROWN, NEW, DEEP, SPARSE };

static inline void fill_volume(void)
{
	struct tfile *f[FILES];

	for (int i = 0; i < FILES; i++)
		f[i] = engine_use(w.files[i].name);
	engine_promote(f[CLEAN], 0, UINT64_MAX);
	engine_promote(f[PART], 300000, 300000);
	engine_promote(f[DIRTY], 0, UINT64_MAX);
	engine_promote(f[DEEP], 0, UINT64_MAX);
	engine_promote(f[SPARSE], 0, UINT64_MAX);
	engine_write(f[DIRTY], &w.files[DIRTY], 100000, 100000);
	engine_write(f[GROWN], &w.files[GROWN], 5000, 15000);
	engine_write(f[NEW], &w.files[NEW], 0, 10000);
	CHECK_EQ(tfile_pin(f[PART], false, 300000, 1000), 0);
	CHECK_EQ(tfile_pin(f[DEEP], true, 0, 0), 0);
	for (int i = 0; i < FILES; i++)
		engine_unuse(f[i]);
}

static inline void pin_dir(const char *name)
{
	int fd = openat(w.src.root_fd, name, O_PATH);
	struct src_key key;

	CHECK_EQ(src_key_of_fd(&w.src, fd, &key), 0);
	CHECK_EQ(volume_pin_dir(w.v, &key, name), 0);
	close(fd);
}

static inline void world_dirs(void)
{
	const char *base = getenv("HFS_TEST_DIR");

	memset(&w, 0, sizeof(w));
	w.seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 16) : 0x9e3779b97f4a7c15;
	w.stop_after = -1;
	w.dir = unit_tmpdir(base ? base : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : NULL);
	w.src_path = strdup(path_of(w.dir, "src"));
	w.ssd_path = strdup(path_of(w.dir, "ssd"));
	w.saved_path = strdup(path_of(w.dir, "saved"));
	mkdir(w.src_path, 0755);
}

static inline void world_files(void)
{
	mkdir(path_of(w.src_path, "dir"), 0755);
	make_src_file(&w.files[CLEAN], "clean", 700000);
	make_src_file(&w.files[PART], "part", 1u << 20);
	make_src_file(&w.files[DIRTY], "dirty", 600000);
	make_src_file(&w.files[GROWN], "grown", 5000);
	make_src_file(&w.files[NEW], "new", 0);
	make_src_file(&w.files[DEEP], "dir/deep", 300u << 10);
	make_sparse_file(&w.files[SPARSE]);
}

/* Sizes that only an object tells are known to the block. */
static inline void round_up_sizes(void)
{
	for (int i = GROWN; i <= NEW; i++) {
		uint64_t size = (w.files[i].size + 4095) / 4096 * 4096;

		w.files[i].data = realloc(w.files[i].data, size);
		memset(w.files[i].data + w.files[i].size, 0, size - w.files[i].size);
		w.files[i].size = size;
	}
}

/* An open volume with some of everything. */
static inline void world_open(void)
{
	world_dirs();
	world_files();
	if (!engine_open(64u << 20))
		abort();
	fill_volume();
	pin_dir("dir");
}

/* A closed volume with dirty data. */
static inline void world_new(void)
{
	world_open();
	engine_close();
}

static inline void save_ssd(void);
static inline void restore_ssd(void);

/* The same, but as a crash leaves it after an fsync of everything; saved, too. */
static inline void world_crashed(void)
{
	world_open();
	for (int i = 0; i < FILES; i++) {
		struct tfile *f = engine_use(w.files[i].name);

		CHECK_EQ(tfile_fsync(f, false), 0);
		engine_unuse(f);
	}
	save_ssd();
	engine_close();
	restore_ssd();
}

static inline void world_release(void)
{
	for (int i = 0; i < FILES; i++)
		free(w.files[i].data);
	unit_remove_tree(w.dir);
	free(w.dir);
	free(w.src_path);
	free(w.ssd_path);
	free(w.saved_path);
}

/* Holes must stay holes (cp takes a file of few blocks for one without), and no block of our files
 * is all zeros. */
static inline void save_ssd(void)
{
	shell("rm -rf '%s' && cp -a --sparse=always '%s' '%s'", w.saved_path, w.ssd_path,
	      w.saved_path);
}

static inline void restore_ssd(void)
{
	shell("rm -rf '%s' && cp -a --sparse=always '%s' '%s'", w.ssd_path, w.saved_path,
	      w.ssd_path);
}

/* ---- the check ---------------------------------------------------------------------------- */
static void on_finding(void *ctx, const struct check_finding *f)
{
	(void)ctx;
	if (getenv("VERBOSE"))
		printf("# %s%s: %s (%s): %s -> %s\n", f->note ? "note " : "", f->kind,
		       f->path ?: "-", f->object, f->detail, f->action ?: "-");
	if (w.n_found == MAX_FOUND)
		return;
	struct found *x = &w.found[w.n_found++];

	snprintf(x->kind, sizeof(x->kind), "%s", f->kind);
	snprintf(x->path, sizeof(x->path), "%s", f->path ?: "");
	snprintf(x->object, sizeof(x->object), "%s", f->object);
	x->outcome = f->outcome;
	x->note = f->note;
}

static bool on_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	(void)ctx;
	(void)done_bytes;
	(void)total_bytes;
	return w.stop_after < 0 || w.stop_after-- > 0;
}

#define REPAIR	  1u
#define SCRUB	  2u
#define BY_PATH	  4u /* as if SRC's handles could not be opened */
#define READ_ONLY 8u

static inline int run_check(unsigned flags)
{
	const struct check_options o = { .repair = flags & REPAIR,
					 .scrub = flags & SCRUB,
					 .now_s = 1796000000,
					 .tmp_dir = w.dir };
	const struct check_env e = { .finding = on_finding, .progress = on_progress };
	struct src src;

	w.n_found = 0;
	if (!CHECK_EQ(src_init(&src, w.src_path), 0))
		return -1;
	src.by_handle &= !(flags & BY_PATH);
	src.read_only |= flags & READ_ONLY;
	int r = check_run(&src, w.ssd_path, &o, &e, &w.result, w.error, sizeof(w.error));

	CHECK_EQ(r < 0, *w.error != '\0');
	src_release(&src);
	return r;
}

/* The finding of that kind about that path (NULL: any), or NULL. */
static inline const struct found *find(const char *kind, const char *path)
{
	for (unsigned i = 0; i < w.n_found; i++)
		if (strcmp(w.found[i].kind, kind) == 0 &&
		    (!path || strcmp(w.found[i].path, path) == 0))
			return &w.found[i];
	return NULL;
}

static inline void print_found(void)
{
	for (unsigned i = 0; i < w.n_found; i++)
		printf("# found %s%s: %s %s, outcome %d\n", w.found[i].note ? "note " : "",
		       w.found[i].kind, w.found[i].path, w.found[i].object, w.found[i].outcome);
}

/* ---- nothing on disk changed -------------------------------------------------------------- */
static uint64_t tree_hash;

static void mix(const void *data, size_t len)
{
	const char *p = data;
	uint64_t word = 0;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&word, p, 8);
		tree_hash = (tree_hash ^ word) * 0x9e3779b97f4a7c15;
		tree_hash ^= tree_hash >> 29;
	}
	word = 0;
	memcpy(&word, p, len);
	tree_hash = (tree_hash ^ word ^ len << 56) * 0x9e3779b97f4a7c15;
}

static void mix_content(const char *path)
{
	static const char zeros[4096];
	static char buf[4096];
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	off_t at = 0;
	ssize_t n;

	/* Holes are skipped, sizes up to 2^60 occur. And zeros: a filesystem may change its mind
	 * about where there are holes. */
	while (fd >= 0 && (at = lseek(fd, at, SEEK_DATA)) >= 0 &&
	       (n = pread(fd, buf, sizeof(buf), at & ~4095l)) > 0) {
		at &= ~4095l;
		if (memcmp(buf, zeros, (size_t)n) != 0) {
			mix(&at, sizeof(at));
			mix(buf, (size_t)n);
		}
		at += n;
	}
	if (fd >= 0)
		close(fd);
}

static int mix_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char value[4096];
	ssize_t n = lgetxattr(path, DESCRIPTION, value, sizeof(value));

	(void)ftw;
	mix(path, strlen(path));
	mix(&st->st_size, sizeof(st->st_size));
	mix(&st->st_mtim, sizeof(st->st_mtim));
	mix(&st->st_ctim, sizeof(st->st_ctim));
	mix(&st->st_nlink, sizeof(st->st_nlink));
	if (n > 0)
		mix(value, (size_t)n);
	if (type == FTW_F)
		mix_content(path);
	return 0;
}

static inline uint64_t hash_of(const char *path)
{
	tree_hash = 14695981039346656037u;
	nftw(path, mix_entry, 16, FTW_PHYS);
	return tree_hash;
}

/* ---- looking at the volume by a mount ----------------------------------------------------- */
static inline void look_by_mount(void)
{
	if (!engine_open(64u << 20))
		return;
	for (int i = 0; i < FILES; i++) {
		struct tfile *f = engine_use(w.files[i].name);

		if (!f)
			continue;
		if (!CHECK(engine_same(f, &w.files[i])))
			printf("# %s differs\n", w.files[i].name);
		engine_unuse(f);
	}
	engine_close();
}

/* ---- making it wrong ---------------------------------------------------------------------- */
static inline void sql(const char *text)
{
	_cleanup_close_ int dir = open(volume_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(cleanup_sql) sqlite3 *db = NULL; /* closed before dir is */
	int r = sql_open(dir, "catalog.db", SQL_WRITE, &db);

	if (CHECK_EQ(r, 0) && !CHECK_EQ(sql_exec(db, text), 0))
		printf("# %s: %s\n", text, sqlite3_errmsg(db));
}

#define ID_OF(path) "(SELECT id FROM files WHERE path = CAST('" path "' AS BLOB))"

static inline struct catalog *catalog_of_volume(void)
{
	struct catalog *c = NULL;
	int dir = open(volume_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!CHECK_EQ(catalog_open(dir, "catalog.db", false, &c), 0))
		abort();
	close(dir);
	return c;
}

/* False: there is no row of that path. The path of *ret is not valid. */
static inline bool row_of(struct catalog *c, const char *path, struct cat_file *ret)
{
	uint64_t id = 0;

	while (catalog_next_file(c, id, 0, ret) == 0) {
		bool same = ret->path && strcmp(ret->path, path) == 0;

		id = ret->id;
		cat_file_release(ret);
		if (same)
			return true;
	}
	return false;
}

static inline uint64_t id_of(const char *path)
{
	struct catalog *c = catalog_of_volume();
	struct cat_file row = { .id = 0 };

	if (!row_of(c, path, &row))
		row.id = 0;
	catalog_close(c);
	return row.id;
}

static inline uint32_t flags_of(const char *path)
{
	struct catalog *c = catalog_of_volume();
	struct cat_file row;
	uint32_t flags = row_of(c, path, &row) ? row.flags : ~0u;

	catalog_close(c);
	return flags;
}

static inline const char *object_of(const char *path)
{
	static char object[600];
	uint64_t id = id_of(path);

	snprintf(object, sizeof(object), "%s/objects/%02x/%016" PRIx64, volume_path(),
		 (unsigned)(id % 256), id);
	return object;
}

static inline void edit_group(const char *path, uint64_t index, void (*change)(struct cat_group *g))
{
	struct catalog *c = catalog_of_volume();
	struct cat_group g = { .index = index };
	struct cat_file row;

	if (CHECK(row_of(c, path, &row)) &&
	    (catalog_next_group(c, row.id, index, &g) < 0 || g.index != index))
		g = (struct cat_group){ .index = index };
	change(&g);
	CHECK_EQ(catalog_begin(c), 0);
	CHECK_EQ(catalog_put_group(c, row.id, &g), 0);
	CHECK_EQ(catalog_commit(c), 0);
	catalog_close(c);
}

static inline void scribble(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	char byte = 'X';

	for (uint64_t i = 0; i < len; i++)
		if (!CHECK_EQ(pwrite(fd, &byte, 1, (off_t)(off + i)), 1))
			break;
	close(fd);
}

/* ---- dry, repair, again ------------------------------------------------------------------- */
#define NOTE 16u /* expected as a note */
#define LEFT 32u /* cannot be repaired */

/* The dry run finds exactly this, and changes nothing. */
static inline void expect_dry(unsigned flags, const char *kind, const char *path)
{
	uint64_t src = hash_of(w.src_path), ssd = hash_of(w.ssd_path);
	unsigned failures = (unsigned)unit_failures;

	CHECK_EQ(run_check(flags & (SCRUB | BY_PATH | READ_ONLY)), 0);
	const struct found *f = find(kind, path);

	if (CHECK(f)) {
		CHECK_EQ(f->note, (flags & NOTE) != 0);
		if (!(flags & NOTE))
			CHECK_EQ(f->outcome, flags & LEFT ? CHECK_LEFT : CHECK_WOULD);
	}
	CHECK_EQ(w.result.findings, (flags & NOTE) ? 0 : 1);
	CHECK_EQ(w.result.left, w.result.findings);
	CHECK_EQ(w.result.repaired, 0);
	CHECK(hash_of(w.src_path) == src);
	CHECK(hash_of(w.ssd_path) == ssd);
	if (failures != (unsigned)unit_failures)
		print_found();
}

/* Repaired; not found again. SRC is as it was. */
static inline void expect_repair(unsigned flags, const char *kind, const char *path)
{
	uint64_t src = hash_of(w.src_path);
	unsigned checks = flags & (SCRUB | BY_PATH | READ_ONLY), left = flags & LEFT ? 1 : 0;
	unsigned failures = (unsigned)unit_failures;

	CHECK_EQ(run_check(REPAIR | checks), 0);
	const struct found *f = find(kind, path);

	if (CHECK(f) && f->outcome != CHECK_NOTED)
		CHECK_EQ(f->outcome, left ? CHECK_LEFT : CHECK_DONE);
	CHECK_EQ(w.result.left, left);
	CHECK_EQ(w.result.findings, w.result.left + w.result.repaired);
	CHECK(hash_of(w.src_path) == src);
	if (failures != (unsigned)unit_failures)
		print_found();
	CHECK_EQ(run_check(checks), 0);
	if (!CHECK_EQ(w.result.findings, left))
		print_found();
}

static inline void expect(unsigned flags, const char *kind, const char *path)
{
	expect_dry(flags, kind, path);
	expect_repair(flags, kind, path);
}

/* One file of lost+found whose name has this in it: its size, or -1. */
static inline off_t lost_size(const char *part)
{
	char *lost = path_of(volume_path(), "lost+found");
	DIR *dir = opendir(lost);
	struct dirent *e;
	off_t size = -1;

	while (dir && (e = readdir(dir))) {
		struct stat st;

		if (strstr(e->d_name, part) && !strstr(e->d_name, ".txt") &&
		    fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
			size = st.st_size;
	}
	if (dir)
		closedir(dir);
	return size;
}

/* Bytes of that file at an offset. */
static inline void lost_read(const char *part, void *buf, size_t len, off_t off)
{
	char *lost = path_of(volume_path(), "lost+found");
	DIR *dir = opendir(lost);
	struct dirent *e;

	memset(buf, 0, len);
	while (dir && (e = readdir(dir)))
		if (strstr(e->d_name, part) && !strstr(e->d_name, ".txt")) {
			int fd = openat(dirfd(dir), e->d_name, O_RDONLY);

			(void)!pread(fd, buf, len, off);
			close(fd);
		}
	if (dir)
		closedir(dir);
}

#endif
