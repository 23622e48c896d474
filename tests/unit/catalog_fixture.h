// SPDX-License-Identifier: GPL-2.0-or-later
/* catalog_fixture.h - an empty catalog in a directory of its own, and rows to put into it. */
#ifndef HYBRIDFS_TESTS_UNIT_CATALOG_FIXTURE_H
#define HYBRIDFS_TESTS_UNIT_CATALOG_FIXTURE_H

#include <fcntl.h>

#include "db/catalog_internal.h"
#include "tests/unit/unit.h"

#define NAME "catalog.db"

struct fixture {
	char *dir;
	int dir_fd;
	struct catalog *c;
};

/* Where fsync costs nothing; what is tested here does not depend on a disk. */
static inline const char *fast_base(void)
{
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : NULL;
}

static inline void fixture_dir(struct fixture *f, const char *base)
{
	f->c = NULL;
	f->dir = unit_tmpdir(base);
	f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(f->dir_fd >= 0);
}

static inline void fixture_open(struct fixture *f)
{
	int r = catalog_open(f->dir_fd, NAME, false, &f->c);

	if (!CHECK_EQ(r, 0))
		abort();
}

static inline void fixture_close(struct fixture *f)
{
	catalog_close(f->c);
	f->c = NULL;
}

static inline struct fixture fixture_new(void)
{
	struct fixture f;

	fixture_dir(&f, fast_base());
	fixture_open(&f);
	return f;
}

static inline void fixture_release(struct fixture *f)
{
	catalog_close(f->c);
	close(f->dir_fd);
	unit_remove_tree(f->dir);
	free(f->dir);
}

/* Fixed seeds: xorshift64*. */
static inline uint64_t rnd(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

/* A row as it looks on ext4; the path is borrowed. */
static inline struct cat_file file_of(uint64_t id, const char *path)
{
	struct cat_file f = { .id = id,
			      .key_len = 24,
			      .size_bytes = 1000 * id,
			      .mtime_ns = 1700000000000000000 + (int64_t)id,
			      .src_size_bytes = 1000 * id,
			      .src_mtime_ns = 1700000000000000000 + (int64_t)id,
			      .src_ctime_ns = 1700000000500000000 + (int64_t)id,
			      .path = (char *)path };

	memcpy(f.key, "sixteen bytes...", 16);
	memcpy(f.key + 16, &id, 8);
	return f;
}

/* The first `present` blocks, the first `dirty` of them dirty. */
static inline struct cat_group group_of(uint64_t index, unsigned int present, unsigned int dirty)
{
	struct cat_group g = { .index = index };

	for (unsigned int i = 0; i < present; i++)
		g.present[i / 8] |= (uint8_t)(1u << i % 8);
	for (unsigned int i = 0; i < dirty; i++)
		g.dirty[i / 8] |= (uint8_t)(1u << i % 8);
	return g;
}

static inline void put_file(struct catalog *c, uint64_t id, uint32_t flags, const char *path)
{
	struct cat_file f = file_of(id, path);

	f.flags = flags;
	CHECK_EQ(catalog_put_file(c, &f), 0);
}

static inline void put_group(struct catalog *c, uint64_t id, uint64_t index, unsigned int present,
			     unsigned int dirty)
{
	struct cat_group g = group_of(index, present, dirty);

	CHECK_EQ(catalog_put_group(c, id, &g), 0);
}

static inline bool has_file(struct catalog *c, uint64_t id)
{
	struct cat_file f;
	int r = catalog_find_id(c, id, &f);

	if (r == 0)
		cat_file_release(&f);
	else
		CHECK_EQ(r, -ENOENT);
	return r == 0;
}

/* One transaction of many rows, also beyond an error; the first error, from whichever call. */
static inline int put_many(struct catalog *c, uint64_t first, uint64_t n)
{
	int r = catalog_begin(c), r_put = 0;

	if (r < 0)
		return r;
	for (uint64_t id = first; id < first + n; id++) {
		struct cat_file f = file_of(id, "a/name/of/some/length/that/fills/pages");

		r = catalog_put_file(c, &f);
		CHECK(r_put == 0 || r == r_put);
		r_put = r;
	}
	r = catalog_commit(c);
	CHECK(r_put == 0 || r == r_put);
	return r;
}

/* For unit_child(): ends like a crash, with file 1 committed and file 2 not. */
static inline void commit_and_leave(void *arg)
{
	struct fixture *x = arg;

	fixture_open(x);
	CHECK_EQ(catalog_begin(x->c), 0);
	put_file(x->c, 1, CAT_F_PINNED, "a");
	put_group(x->c, 1, 7, 9, 3);
	CHECK_EQ(catalog_commit(x->c), 0);
	CHECK_EQ(catalog_begin(x->c), 0);
	put_file(x->c, 2, 0, "b");
	/* no commit, no close */
}

/* What another program does to the file: through sqlite, but not through the catalog. */
static inline void inject(struct fixture *f, const char *name, const char *sql)
{
	_cleanup_(cleanup_sql) sqlite3 *db = NULL;
	int r = sql_open(f->dir_fd, name, SQL_WRITE, &db);

	if (CHECK_EQ(r, 0) && !CHECK_EQ(sql_exec(db, sql), 0))
		printf("# %s: %s\n", sql, sqlite3_errmsg(db));
}

#endif
