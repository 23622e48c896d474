// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * test_catalog_damage.c - files that are no catalogs, read-only opens, odd names and directories
 * that move, damaged rows and files.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "tests/unit/catalog_fixture.h"

/* ---- what is not a catalog ---------------------------------------------------------------- */
static void write_file(struct fixture *x, const char *name, const void *data, size_t len)
{
	_cleanup_close_ int fd = openat(x->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK_EQ(write(fd, data, len), (ssize_t)len);
}

static void poke(struct fixture *x, const char *name, off_t at, uint8_t byte)
{
	_cleanup_close_ int fd = openat(x->dir_fd, name, O_WRONLY | O_CLOEXEC);

	CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
}

static int open_result(struct fixture *x, const char *name, bool read_only)
{
	struct catalog *c = NULL;
	int r = catalog_open(x->dir_fd, name, read_only, &c);

	if (r == 0)
		catalog_close(c);
	return r;
}

static uint64_t content_hash(struct fixture *x, const char *name)
{
	_cleanup_close_ int fd = openat(x->dir_fd, name, O_RDONLY | O_CLOEXEC);
	uint64_t h = 14695981039346656037u;
	uint8_t buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++)
			h = (h ^ buf[i]) * 1099511628211u;
	return h;
}

struct listing {
	char text[2048];
};

/* Name, size and content of all files; without the content of -shm, which is memory. */
static struct listing list_dir(struct fixture *x)
{
	struct listing l = { .text = "" };
	struct dirent **list;
	int n = scandir(x->dir, &list, NULL, alphasort), at = 0;

	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		uint64_t hash = 0;
		struct stat st;

		CHECK_EQ(fstatat(x->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISREG(st.st_mode) && !strstr(name, "-shm"))
			hash = content_hash(x, name);
		if (name[0] != '.')
			at += snprintf(l.text + at, sizeof(l.text) - (size_t)at,
				       "%s %jd %016" PRIx64 "\n", name, (intmax_t)st.st_size, hash);
		free(list[i]);
	}
	free(list);
	return l;
}

static void make_foreign(struct fixture *x, const char *name, const char *sql)
{
	write_file(x, name, "", 0);
	inject(x, name, sql);
}

/* Refused, and not touched in any way. */
static void foreign_files(void)
{
	static const char *const names[] = { "empty",	    "text",	  "short", "foreign",
					     "foreign-wal", "renamed-id", "fifo",  "dir",
					     "link",	    NULL };
	struct fixture x = fixture_new();
	char garbage[8192];
	struct listing before;
	uint64_t seed = 3;

	fixture_close(&x);
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)rnd(&seed);
	write_file(&x, "empty", "", 0);
	write_file(&x, "text", garbage, sizeof(garbage));
	write_file(&x, "short", "SQLite format 3", 16);
	make_foreign(&x, "foreign", "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
	make_foreign(&x, "foreign-wal", "PRAGMA journal_mode = WAL; CREATE TABLE files(a)");
	make_foreign(&x, "renamed-id",
		     "PRAGMA application_id = 1213810259; CREATE TABLE files(a);"
		     "PRAGMA user_version = 0");
	CHECK_EQ(mkfifoat(x.dir_fd, "fifo", 0600), 0);
	CHECK_EQ(mkdirat(x.dir_fd, "dir", 0700), 0);
	CHECK_EQ(symlinkat(NAME, x.dir_fd, "link"), 0);
	before = list_dir(&x);
	for (int i = 0; names[i]; i++)
		for (int read_only = 0; read_only < 2; read_only++)
			if (!CHECK_EQ(open_result(&x, names[i], read_only), -EUCLEAN))
				printf("# %s\n", names[i]);
	CHECK_STR(before.text, list_dir(&x).text);
	CHECK_EQ(open_result(&x, "a/b", false), -EINVAL);
	CHECK_EQ(open_result(&x, "", false), -EINVAL);
	fixture_release(&x);
}

static void other_versions(void)
{
	struct fixture x = fixture_new();
	sqlite3 *db;

	fixture_close(&x);
	inject(&x, NAME, "PRAGMA user_version = 3");
	CHECK_EQ(open_result(&x, NAME, false), -EPROTONOSUPPORT);
	CHECK_EQ(open_result(&x, NAME, true), -EPROTONOSUPPORT);
	poke(&x, NAME, 63, 6); /* which is no other version, but a damaged page */
	CHECK_EQ(open_result(&x, NAME, false), -EUCLEAN);
	poke(&x, NAME, 63, 3);
	inject(&x, NAME, "PRAGMA user_version = 2");
	CHECK_EQ(open_result(&x, NAME, false), 0);
	/* said in the WAL only, by a program that still has it open */
	CHECK_EQ(sql_open(x.dir_fd, NAME, SQL_WRITE, &db), 0);
	CHECK_EQ(sql_exec(db, "PRAGMA user_version = 3"), 0);
	CHECK_EQ(open_result(&x, NAME, false), -EPROTONOSUPPORT);
	CHECK_EQ(open_result(&x, NAME, true), -EPROTONOSUPPORT);
	CHECK_EQ(sql_exec(db, "PRAGMA user_version = 0"), 0);
	CHECK_EQ(open_result(&x, NAME, false), -EUCLEAN);
	sql_close(db);
	fixture_release(&x);
}

/* Version 1 had pages without checksums. */
static void first_version(void)
{
	struct fixture x = fixture_new();

	fixture_close(&x);
	poke(&x, NAME, 63, 1);
	CHECK_EQ(open_result(&x, NAME, false), -EUCLEAN);
	poke(&x, NAME, 20, 0);
	CHECK_EQ(open_result(&x, NAME, false), -EOPNOTSUPP);
	CHECK_EQ(open_result(&x, NAME, true), -EOPNOTSUPP);
	fixture_release(&x);
}

static void other_schemas(void)
{
	static const char *const damage[] = {
		"DROP TRIGGER groups_removed",
		"DROP INDEX groups_dirty",
		"DROP TABLE meta",
		"ALTER TABLE files ADD COLUMN more INTEGER",
		"ALTER TABLE groups DROP COLUMN heat",
		"CREATE TABLE mine(a)",
		"CREATE TRIGGER t AFTER INSERT ON files BEGIN DELETE FROM groups; END",
		"CREATE VIEW v AS SELECT * FROM files",
		"DROP INDEX files_dir; CREATE INDEX files_dir ON files(id) WHERE (flags & 1) <> 0",
	};

	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		struct fixture x = fixture_new();

		fixture_close(&x);
		inject(&x, NAME, damage[i]);
		if (!CHECK_EQ(open_result(&x, NAME, false), -EUCLEAN) ||
		    !CHECK_EQ(open_result(&x, NAME, true), -EUCLEAN))
			printf("# %s\n", damage[i]);
		fixture_release(&x);
	}
}

/* What people do with sqlite's shell, and what it does by itself. */
static void shell_maintenance_is_harmless(void)
{
	struct fixture x = fixture_new();

	CHECK_EQ(put_many(x.c, 1, 500), 0);
	fixture_close(&x);
	inject(&x, NAME, "ANALYZE; VACUUM; PRAGMA optimize; PRAGMA journal_mode = DELETE");
	fixture_open(&x);
	CHECK(has_file(x.c, 500));
	CHECK_EQ(put_many(x.c, 501, 10), 0);
	CHECK_EQ(faccessat(x.dir_fd, NAME "-wal", F_OK, 0), 0);
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

/* ---- read-only ---------------------------------------------------------------------------- */
static void read_only(void)
{
	struct fixture x;
	struct catalog *c = NULL;
	struct listing before;

	fixture_dir(&x, fast_base());
	CHECK_EQ(open_result(&x, NAME, true), -ENOENT);
	CHECK_STR(list_dir(&x).text, "");
	CHECK_EQ(unit_child(commit_and_leave, &x), 0); /* with a WAL, as after a crash */
	before = list_dir(&x);
	CHECK_EQ(catalog_open(x.dir_fd, NAME, true, &c), 0);
	CHECK(has_file(c, 1) && !has_file(c, 2));
	CHECK_EQ(catalog_begin(c), -EROFS);
	CHECK_EQ(catalog_integrity_check(c), 0);
	catalog_close(c);
	CHECK_STR(before.text, list_dir(&x).text);
	fixture_open(&x);
	CHECK_EQ(catalog_open(x.dir_fd, NAME, true, &c), 0); /* beside the writer */
	CHECK_EQ(put_many(x.c, 10, 1), 0);
	CHECK(has_file(c, 10));
	catalog_close(c);
	CHECK_EQ(put_many(x.c, 11, 1), 0);
	fixture_close(&x); /* cleanly: without a WAL */
	before = list_dir(&x);
	CHECK_EQ(catalog_open(x.dir_fd, NAME, true, &c), 0);
	CHECK(has_file(c, 11));
	CHECK_EQ(catalog_integrity_check(c), 0);
	catalog_close(c);
	CHECK_STR(before.text, list_dir(&x).text);
	fixture_release(&x);
}

/* ---- names and directories ---------------------------------------------------------------- */
static void odd_names(void)
{
	static const char *const names[] = { "a?mode=memory", "file:x",	   "a\nb",
					     "%00",	      "\xff\xfe#", "-",
					     ":memory:",      "'; --",	   " " };
	struct fixture x;

	fixture_dir(&x, fast_base());
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		CHECK_EQ(catalog_open(x.dir_fd, names[i], false, &x.c), 0);
		CHECK_EQ(put_many(x.c, 1 + i, 1), 0);
		fixture_close(&x);
		CHECK_EQ(catalog_open(x.dir_fd, names[i], true, &x.c), 0);
		CHECK(has_file(x.c, 1 + i));
		CHECK_EQ(catalog_integrity_check(x.c), 0);
		fixture_close(&x);
		CHECK_EQ(unlinkat(x.dir_fd, names[i], 0), 0);
	}
	CHECK_STR(list_dir(&x).text, "");
	fixture_release(&x);
}

/* The directory's path changes, and leads somewhere else, while the catalog is open. */
static void directory_moves(void)
{
	struct fixture x;
	_cleanup_free_ char *sub = NULL, *moved = NULL;
	int sub_fd;

	fixture_dir(&x, fast_base());
	CHECK(asprintf(&sub, "%s/odd\n?%%\xff", x.dir) > 0);
	CHECK(asprintf(&moved, "%s/moved", x.dir) > 0);
	CHECK_EQ(mkdir(sub, 0700), 0);
	sub_fd = open(sub, O_PATH | O_DIRECTORY);
	CHECK_EQ(catalog_open(sub_fd, NAME, false, &x.c), 0);
	close(sub_fd);
	CHECK_EQ(rename(sub, moved), 0);
	CHECK_EQ(mkdir(sub, 0700), 0);
	CHECK_EQ(put_many(x.c, 1, 10), 0);
	CHECK_EQ(catalog_integrity_check(x.c), 0); /* opens by path */
	fixture_close(&x);
	CHECK_EQ(rmdir(sub), 0); /* nothing went there */
	sub_fd = open(moved, O_RDONLY | O_DIRECTORY);
	CHECK_EQ(faccessat(sub_fd, NAME "-wal", F_OK, 0), -1); /* the close found its files */
	CHECK_EQ(catalog_open(sub_fd, NAME, false, &x.c), 0);
	CHECK(has_file(x.c, 10));
	close(sub_fd);
	fixture_release(&x);
}

/* Longer than the 512 bytes sqlite allows for a path. */
static void long_path(void)
{
	struct fixture x;
	char name[NAME_MAX + 1];
	int fd, next;

	fixture_dir(&x, fast_base());
	memset(name, 'n', sizeof(name));
	name[200] = '\0';
	fd = dup(x.dir_fd);
	for (int i = 0; i < 15; i++) {
		CHECK_EQ(mkdirat(fd, name, 0700), 0);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	name[200] = 'n';
	name[243] = '\0';
	CHECK_EQ(catalog_open(fd, name, false, &x.c), 0);
	CHECK_EQ(put_many(x.c, 1, 10), 0);
	fixture_close(&x);
	CHECK_EQ(catalog_open(fd, name, true, &x.c), 0);
	CHECK(has_file(x.c, 10));
	fixture_close(&x);
	name[243] = 'n';
	name[244] = '\0';
	CHECK_EQ(catalog_open(fd, name, false, &x.c), -ENAMETOOLONG);
	close(fd);
	fixture_release(&x);
}

/* What another catalog of that name has left is not applied to a new one. */
static void stale_companions(void)
{
	struct fixture x;
	struct listing files;

	fixture_dir(&x, fast_base());
	CHECK_EQ(unit_child(commit_and_leave, &x), 0);
	CHECK_EQ(unlinkat(x.dir_fd, NAME, 0), 0);
	write_file(&x, NAME ".new", "half a file", 11);
	write_file(&x, NAME ".new-journal", "half a journal", 14);
	CHECK_EQ(faccessat(x.dir_fd, NAME "-wal", F_OK, 0), 0);
	fixture_open(&x);
	CHECK(!has_file(x.c, 1));
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_close(&x);
	files = list_dir(&x);
	CHECK(strchr(files.text, '\n') == strrchr(files.text, '\n')); /* one file */
	fixture_release(&x);
}

/* ---- damaged rows ------------------------------------------------------------------------- */
static int read_group_1(struct catalog *c)
{
	struct cat_group g;

	return catalog_next_group(c, 1, 0, &g);
}

static int read_file_1(struct catalog *c)
{
	struct cat_file f;
	int r = catalog_next_file(c, 0, 0, &f);

	if (r == 0)
		cat_file_release(&f);
	return r;
}

static int read_file_key(struct catalog *c)
{
	struct cat_file f = file_of(1, NULL), got;
	int r = catalog_find_file(c, f.key, f.key_len, &got);

	if (r == 0)
		cat_file_release(&got);
	return r;
}

static int read_unsettled(struct catalog *c)
{
	struct cat_file f;
	int r = catalog_next_unsettled(c, 0, &f);

	if (r == 0)
		cat_file_release(&f);
	return r;
}

static int read_totals(struct catalog *c)
{
	struct cat_totals t;

	return catalog_totals(c, &t);
}

static int read_setting(struct catalog *c)
{
	char *value;
	int r = catalog_get_meta(c, "k", &value);

	if (r == 0)
		free(value);
	return r;
}

static int read_nothing(struct catalog *c)
{
	(void)c;
	return -EUCLEAN;
}

static const struct damage {
	int (*read)(struct catalog *c);
	const char *sql;
} damages[] = {
	{ read_group_1, "UPDATE groups SET present = zeroblob(513)" },
	{ read_group_1, "UPDATE groups SET present = NULL" },
	{ read_group_1, "UPDATE groups SET present = x''" },
	{ read_group_1, "UPDATE groups SET dirty = zeroblob(513)" },
	{ read_group_1, "UPDATE groups SET dirty = zeroblob(1000000)" },
	{ read_group_1, "UPDATE groups SET dirty = x'80'" },
	{ read_group_1, "UPDATE groups SET dirty = x'0080', dirty_n = 1" },
	{ read_group_1, "UPDATE groups SET dirty = x'0000000080', dirty_n = 1" },
	{ read_group_1, "UPDATE groups SET dirty = x'', dirty_n = 4096" },
	{ read_group_1, "UPDATE groups SET present_n = 11" },
	{ read_group_1, "UPDATE groups SET present_n = -1" },
	{ read_group_1, "UPDATE groups SET dirty_n = 4294967297" },
	{ read_group_1, "UPDATE groups SET sums = x'00'" },
	{ read_group_1, "UPDATE groups SET sums = NULL" },
	{ read_group_1, "UPDATE groups SET sums = zeroblob(520)" },
	{ read_group_1, "UPDATE groups SET sum_valid = -1" },
	{ read_group_1, "UPDATE groups SET heat = zeroblob(65)" },
	{ read_group_1, "UPDATE groups SET flags = 2" },
	{ read_group_1, "UPDATE groups SET flags = -1" },
	{ read_group_1, "UPDATE groups SET flags = 4294967296" },
	{ read_group_1, "UPDATE groups SET idx = 549755813888" },
	{ read_nothing, "UPDATE groups SET idx = -1" },
	{ read_file_1, "UPDATE files SET flags = 4096" },
	{ read_file_1, "UPDATE files SET flags = -1" },
	{ read_file_1, "UPDATE files SET flags = 4294967296" },
	{ read_file_1, "UPDATE files SET key = x''" },
	{ read_file_1, "UPDATE files SET key = zeroblob(145)" },
	{ read_file_1, "UPDATE files SET path = x'610062'" },
	{ read_file_1, "UPDATE files SET path = zeroblob(1)" },
	{ read_file_1, "UPDATE files SET path = CAST(printf('%.*c', 65537, 'x') AS BLOB)" },
	{ read_file_1, "UPDATE files SET path = zeroblob(1000000)" },
	{ read_file_key, "PRAGMA foreign_keys = 0; UPDATE files SET id = -5" },
	{ read_unsettled, "PRAGMA foreign_keys = 0; DELETE FROM files" },
	{ read_totals, "UPDATE totals SET files = -1" },
	{ read_totals, "UPDATE totals SET dirty_n = -9223372036854775807" },
	{ read_totals, "DELETE FROM totals" },
	{ read_nothing, "UPDATE totals SET files = files + 1" },
	{ read_nothing, "UPDATE totals SET dirty_files = 7" },
	{ read_nothing, "UPDATE totals SET present_n = 7" },
	{ read_nothing, "UPDATE totals SET dirty_n = 7" },
	{ read_nothing, "UPDATE totals SET max_id = 0" },
	{ read_setting, "UPDATE meta SET value = CAST(x'610062' AS TEXT)" },
	{ read_setting, "UPDATE meta SET value = printf('%.*c', 65537, 'x')" },
};

static void put_sample(struct catalog *c)
{
	struct cat_group g = group_of(0, 10, 5);

	g.sum_valid = 1;
	CHECK_EQ(catalog_begin(c), 0);
	put_file(c, 1, 0, "name");
	CHECK_EQ(catalog_put_group(c, 1, &g), 0);
	CHECK_EQ(catalog_put_meta(c, "k", "v"), 0);
	CHECK_EQ(catalog_commit(c), 0);
}

static void damaged_rows(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(damages); i++) {
		const struct damage *d = &damages[i];
		struct fixture x = fixture_new();

		put_sample(x.c);
		CHECK(d->read == read_nothing || d->read(x.c) == 0);
		CHECK_EQ(catalog_integrity_check(x.c), 0);
		inject(&x, NAME, d->sql);
		if (!CHECK_EQ(d->read(x.c), -EUCLEAN))
			printf("# read: %s\n", d->sql);
		CHECK(d->read == read_nothing || strlen(catalog_error(x.c)) > 10);
		/* a setting is nobody's business but its owner's */
		if (d->read != read_setting && !CHECK_EQ(catalog_integrity_check(x.c), -EUCLEAN))
			printf("# check: %s\n", d->sql);
		fixture_release(&x);
	}
}

/* Cells of a b-tree page in the wrong order: a search for the next id comes back to an old one. */
static void search_in_circles(void)
{
	struct fixture x = fixture_new();
	uint8_t bytes[PAGE_BYTES], *cells = bytes + 8, last[2];
	struct cat_file f;
	int64_t page = 0;
	int fd;

	CHECK_EQ(catalog_begin(x.c), 0);
	for (uint64_t id = 1; id <= 4; id += id)
		put_file(x.c, id, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(sql_get_int(x.c->reader, "SELECT rootpage FROM sqlite_master WHERE name = 'files'",
			     &page),
		 0);
	fixture_close(&x);
	fd = openat(x.dir_fd, NAME, O_RDWR);
	CHECK_EQ(pread(fd, bytes, sizeof(bytes), (page - 1) * PAGE_BYTES), PAGE_BYTES);
	memcpy(last, cells + 4, 2);
	memcpy(cells + 4, cells + 2, 2); /* 1, 4, 2 */
	memcpy(cells + 2, last, 2);
	vfs_seal_page(bytes, (uint64_t)page);
	CHECK_EQ(pwrite(fd, bytes, sizeof(bytes), (page - 1) * PAGE_BYTES), PAGE_BYTES);
	close(fd);
	fixture_open(&x);
	CHECK_EQ(catalog_next_file(x.c, 4, 0, &f), -EUCLEAN);
	CHECK_EQ(catalog_integrity_check(x.c), -EUCLEAN);
	fixture_release(&x);
}

/* ---- damaged files ------------------------------------------------------------------------ */
#define WALK_MAX 5000 /* rows; the sample has 300 */

static void walk_files(struct catalog *c, uint32_t flags)
{
	uint64_t at = 0;
	struct cat_file f;

	for (int n = 0; catalog_next_file(c, at, flags, &f) == 0 && CHECK(n < WALK_MAX); n++) {
		struct cat_group g;
		uint64_t from = 0;

		CHECK(f.id > at);
		at = f.id;
		while (catalog_next_group(c, f.id, from, &g) == 0) {
			CHECK(g.index >= from);
			from = g.index + 1;
		}
		cat_file_release(&f);
	}
}

/* Every function once; anything but a crash or an endless walk will do. */
static void use_everything(struct catalog *c)
{
	struct cat_file f = file_of(77, "p/77"), got;
	struct cat_group g = group_of(0, 5000 % 4097, 3);
	struct cat_totals t;
	uint64_t id = 0;
	char *value;

	walk_files(c, 0);
	walk_files(c, CAT_F_PINNED | CAT_F_ATTR_OWNED);
	for (int n = 0; n < WALK_MAX && catalog_next_unsettled(c, id, &got) == 0; n++) {
		id = got.id;
		cat_file_release(&got);
	}
	if (catalog_find_file(c, f.key, f.key_len, &got) == 0)
		cat_file_release(&got);
	if (catalog_get_meta(c, "k", &value) == 0)
		free(value);
	catalog_max_id(c, &id);
	catalog_totals(c, &t);
	catalog_recount(c, &t);
	catalog_integrity_check(c);
	if (catalog_begin(c) < 0)
		return;
	catalog_put_file(c, &f);
	catalog_put_group(c, 77, &g);
	catalog_delete_file(c, 5);
	catalog_delete_groups_from(c, 9, 0);
	catalog_rename_paths(c, "p", "q");
	catalog_put_meta(c, "k", "w");
	catalog_commit(c);
	catalog_integrity_check(c);
}

#define SNAPSHOT 1u
#define SEALED	 2u

struct image {
	uint8_t *data[2]; /* the database, the WAL */
	size_t size[2];
};

static const char *const image_names[2] = { NAME, NAME "-wal" };

static struct image read_image(struct fixture *x)
{
	struct image im;

	for (int i = 0; i < 2; i++) {
		int fd = openat(x->dir_fd, image_names[i], O_RDONLY);

		im.data[i] = malloc(1 << 22);
		im.size[i] = fd < 0 ? 0 : (size_t)read(fd, im.data[i], 1 << 22);
		if (fd >= 0)
			close(fd);
	}
	return im;
}

static void free_image(struct image *im)
{
	free(im->data[0]);
	free(im->data[1]);
}

static void fill_sample(struct catalog *c, uint64_t first)
{
	CHECK_EQ(catalog_begin(c), 0);
	for (uint64_t id = first; id < first + 150; id++) {
		char path[32];

		snprintf(path, sizeof(path), "p/%u", (unsigned int)id);
		put_file(c, id, (uint32_t)id & CAT_F_ALL, path);
		put_group(c, id, id % 3, (unsigned int)(id * 13), id & 1 ? 1 : 0);
	}
	CHECK_EQ(catalog_put_meta(c, "k", "v"), 0);
	CHECK_EQ(catalog_commit(c), 0);
}

static void flip_bytes(struct image *im, int n, uint64_t *seed)
{
	for (int i = 0; i < n; i++) {
		int file = im->size[1] ? (int)(rnd(seed) & 1) : 0;
		/* half of them where the header and the schema are */
		size_t span = rnd(seed) & 1 ? im->size[file] : min_u64(16384, im->size[file]);

		im->data[file][rnd(seed) % span] ^=
			(uint8_t)(1u << rnd(seed) % 8 | rnd(seed) % 256);
	}
}

/* As if what was damaged had been so when it was written. */
static void seal_pages(struct image *im)
{
	for (uint64_t i = 0; i < im->size[0] / PAGE_BYTES; i++)
		vfs_seal_page(im->data[0] + i * PAGE_BYTES, i + 1);
}

/* Returns what opening it gave. */
static int try_damaged(const struct image *base, int n, unsigned how, uint64_t *seed)
{
	struct fixture x;
	struct image im;
	int r;

	fixture_dir(&x, fast_base());
	for (int i = 0; i < 2; i++) {
		im.size[i] = base->size[i];
		im.data[i] = malloc(1 << 22);
		memcpy(im.data[i], base->data[i], base->size[i]);
	}
	flip_bytes(&im, n, seed);
	if (how & SEALED)
		seal_pages(&im);
	for (int i = 0; i < 2; i++)
		if (im.size[i])
			write_file(&x, image_names[i], im.data[i], im.size[i]);
	r = catalog_open(x.dir_fd, NAME, how & SNAPSHOT, &x.c);
	if (r == 0)
		use_everything(x.c);
	free_image(&im);
	fixture_release(&x);
	return r;
}

static void damaged_files(void)
{
	struct fixture x = fixture_new();
	struct image with_wal, closed;
	int opened = 0, unclean = 0;
	uint64_t seed = 42;

	fill_sample(x.c, 1);
	fixture_close(&x);
	closed = read_image(&x);
	fixture_open(&x);
	fill_sample(x.c, 151);
	with_wal = read_image(&x);
	CHECK(closed.size[1] == 0 && with_wal.size[1] > 0);
	fixture_release(&x);
	CHECK_EQ(try_damaged(&closed, 0, 0, &seed), 0);
	CHECK_EQ(try_damaged(&with_wal, 0, 0, &seed), 0);
	for (int i = 0; i < 600; i++) {
		int n = i % 10 == 0 ? 300 : 1 + i % 8;
		int r = try_damaged(i & 1 ? &closed : &with_wal, n,
				    (i % 7 == 0 ? SNAPSHOT : 0) | (i % 3 ? SEALED : 0), &seed);

		opened += r == 0;
		unclean += r == -EUCLEAN;
		if (!CHECK(r == 0 || r == -EUCLEAN || r == -EPROTONOSUPPORT || r == -EROFS))
			printf("# round %d: %d\n", i, r);
	}
	printf("# 600 damaged files: %d opened, %d refused as damaged\n", opened, unclean);
	free_image(&closed);
	free_image(&with_wal);
}

/* All rows of the sample as they were stored, or an error: how many were right. */
static unsigned read_sample(struct catalog *c)
{
	unsigned right = 0;
	uint64_t id = 0;
	struct cat_file f;
	int r;

	while ((r = catalog_next_file(c, id, 0, &f)) == 0) {
		struct cat_group want =
			group_of(f.id % 3, (unsigned int)(f.id * 13), f.id & 1 ? 1 : 0);
		struct cat_group g = { .index = 0 };

		CHECK_EQ(f.id, ++id);
		CHECK_EQ(f.flags, id & CAT_F_ALL);
		r = catalog_next_group(c, id, 0, &g);
		CHECK(r == -EUCLEAN || (r == 0 && memcmp(&g, &want, sizeof(g)) == 0));
		right += r == 0;
		cat_file_release(&f);
	}
	CHECK(r == -EUCLEAN || (r == -ENOENT && id == 150));
	return right;
}

/* Every bit of every page counts: nothing is read wrongly, and nothing is missing. */
static void flipped_bits(void)
{
	struct fixture x = fixture_new();
	unsigned refused = 0, partly = 0;
	struct image im;
	uint64_t seed = 17;

	fill_sample(x.c, 1);
	fixture_close(&x);
	im = read_image(&x);
	for (int i = 0; i < 400; i++) {
		size_t at = rnd(&seed) % im.size[0];
		unsigned right = 0;

		im.data[0][at] ^= (uint8_t)(1u << i % 8);
		write_file(&x, NAME, im.data[0], im.size[0]);
		int r = catalog_open(x.dir_fd, NAME, false, &x.c);

		CHECK(r == 0 || r == -EUCLEAN);
		if (r == 0)
			right = read_sample(x.c);
		CHECK(r < 0 || right == 150 || catalog_is_damaged(x.c));
		refused += r < 0;
		partly += r == 0 && right < 150;
		fixture_close(&x);
		im.data[0][at] ^= (uint8_t)(1u << i % 8);
	}
	printf("# of 400: %u refused, %u read in part\n", refused, partly);
	CHECK(refused > 0 && partly > 0);
	free_image(&im);
	fixture_release(&x);
}

UNIT_MAIN({ "foreign_files", foreign_files }, { "other_versions", other_versions },
	  { "first_version", first_version },
	  { "other_schemas", other_schemas },
	  { "shell_maintenance_is_harmless", shell_maintenance_is_harmless },
	  { "read_only", read_only }, { "odd_names", odd_names },
	  { "directory_moves", directory_moves }, { "long_path", long_path },
	  { "stale_companions", stale_companions }, { "damaged_rows", damaged_rows },
	  { "search_in_circles", search_in_circles }, { "damaged_files", damaged_files },
	  { "flipped_bits", flipped_bits })
