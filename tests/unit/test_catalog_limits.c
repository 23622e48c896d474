// SPDX-License-Identifier: GPL-2.0-or-later
/* test_catalog_limits.c - settings of the connections, the size of the WAL, and figures. */
#include <poll.h>

#include "tests/unit/catalog_fixture.h"

#define RESTART_PAGES (WAL_CHECKPOINT_PAGES * WAL_RESTART_FACTOR)

static void put_random_groups(struct catalog *c, uint64_t n, uint64_t *seed)
{
	struct cat_group g = { .index = 0 };

	CHECK_EQ(catalog_begin(c), 0);
	for (uint64_t i = 0; i < n; i++) {
		g.index = rnd(seed) % 100000;
		g.sum_valid = UINT64_MAX;
		for (int k = 0; k < 512; k++)
			g.present[k] = (uint8_t)rnd(seed);
		CHECK_EQ(catalog_put_group(c, 1, &g), 0);
	}
	CHECK_EQ(catalog_commit(c), 0);
}

static off_t size_of(struct fixture *x, const char *name)
{
	struct stat st;

	return fstatat(x->dir_fd, name, &st, 0) < 0 ? 0 : st.st_size;
}

/* fsync is what commit is for. */
static void connection_settings(void)
{
	struct fixture x = fixture_new();
	int64_t v = 0;

	CHECK_EQ(sql_get_int(x.c->writer, "PRAGMA synchronous", &v), 0);
	CHECK_EQ(v, 2);
	CHECK_EQ(sql_get_int(x.c->writer, "PRAGMA foreign_keys", &v), 0);
	CHECK_EQ(v, 1);
	CHECK_EQ(sql_get_int(x.c->writer, "PRAGMA page_size", &v), 0);
	CHECK_EQ(v, 4096);
	CHECK_EQ(sql_get_int(x.c->reader, "PRAGMA temp_store", &v), 0);
	CHECK_EQ(v, 2);
	CHECK_EQ(size_of(&x, NAME "-shm"), 32768); /* WAL mode */
	fixture_release(&x);
}

struct holder {
	struct catalog *c;
	int holding[2], release[2]; /* pipes */
};

/* Stays in the middle of a read until told that the last commit comes, and then until told that it
 * is over, or the writer must be waiting. */
static void *hold_a_read(void *arg)
{
	struct holder *h = arg;
	struct pollfd told = { .fd = h->release[0], .events = POLLIN };
	sqlite3_stmt *s = catalog_read_begin(h->c, R_FIND_ID);
	char byte;

	sqlite3_bind_int64(s, 1, 1);
	CHECK_EQ(sql_step(s), 1);
	CHECK_EQ(write(h->holding[1], "", 1), 1);
	CHECK_EQ(poll(&told, 1, -1), 1);
	CHECK_EQ(read(h->release[0], &byte, 1), 1);
	poll(&told, 1, 300);
	catalog_read_end(h->c, s, 0);
	return NULL;
}

/* Readers of this process can not hold the WAL back: at the limit a commit shuts them out. */
static void wal_starts_over_beside_readers(void)
{
	struct fixture x = fixture_new();
	struct holder h = { .c = x.c };
	uint64_t seed = 6;
	pthread_t thread;
	char byte;

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(pipe(h.holding) | pipe(h.release), 0);
	CHECK_EQ(pthread_create(&thread, NULL, hold_a_read, &h), 0);
	CHECK_EQ(read(h.holding[0], &byte, 1), 1);
	while (x.c->wal_pages < RESTART_PAGES - 400)
		put_random_groups(x.c, 40, &seed); /* at most 8 pages each */
	CHECK_EQ(write(h.release[1], "", 1), 1);
	while (x.c->wal_pages < RESTART_PAGES)
		put_random_groups(x.c, 40, &seed);
	put_random_groups(x.c, 1, &seed);
	CHECK(x.c->wal_pages < 20);
	CHECK_EQ(write(h.release[1], "", 1), 1);
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(h.holding[i]);
		close(h.release[i]);
	}
	fixture_release(&x);
}

/* A reader of another process can hold the WAL back, and then it grows; not any longer. */
static void wal_starts_over(void)
{
	struct fixture x = fixture_new();
	sqlite3 *other = NULL;
	uint64_t seed = 5;
	off_t grown;

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(sql_open(x.dir_fd, NAME, SQL_READ, &other), 0);
	CHECK_EQ(sql_exec(other, "BEGIN; SELECT count(*) FROM files"), 0);
	while (x.c->wal_pages < RESTART_PAGES)
		put_random_groups(x.c, 2000, &seed);
	put_random_groups(x.c, 10, &seed);
	CHECK(x.c->wal_pages > RESTART_PAGES);
	sql_close(other);
	put_random_groups(x.c, 2000, &seed); /* copies the WAL into the database */
	grown = size_of(&x, NAME "-wal");
	put_random_groups(x.c, 1, &seed); /* starts at its beginning, and cuts it */
	CHECK(x.c->wal_pages < 20);
	CHECK(size_of(&x, NAME "-wal") <= (off_t)RESTART_PAGES * PAGE_BYTES);
	printf("# WAL %jd MiB, cut to %jd MiB\n", (intmax_t)grown >> 20,
	       (intmax_t)size_of(&x, NAME "-wal") >> 20);
	fixture_release(&x);
}

/* A small disk: the WAL stays small, whatever is written, and can be told so at any time. */
static void wal_keeps_to_its_limit(void)
{
	struct fixture x = fixture_new();
	uint64_t seed = 7;

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(catalog_limit_wal(x.c, 64 * PAGE_BYTES), 0);
	for (int i = 0; i < 500; i++) {
		put_random_groups(x.c, 10, &seed);
		CHECK(x.c->wal_pages < 64 + 160);
	}
	CHECK(size_of(&x, NAME "-wal") <= (off_t)64 * WAL_RESTART_FACTOR * PAGE_BYTES);
	fixture_release(&x);
}

static void put_numbered(struct catalog *c, uint64_t id, uint8_t heat)
{
	struct cat_group g = group_of(0, 1 + (unsigned int)(id % 64), 0);
	char path[64];

	snprintf(path, sizeof(path), "some/where/in/a/tree/%03u/file-%06u.dat",
		 (unsigned int)(id / 1000), (unsigned int)id);
	put_file(c, id, 0, path);
	g.sum_valid = 1;
	g.sum[0] = id * 0x9e3779b97f4a7c15;
	g.heat[0] = heat;
	CHECK_EQ(catalog_put_group(c, id, &g), 0);
}

static double time_bulk(struct catalog *c, uint64_t files, uint64_t per_commit)
{
	double start = unit_now_s();

	for (uint64_t id = 1; id <= files;) {
		CHECK_EQ(catalog_begin(c), 0);
		for (uint64_t i = 0; i < per_commit; i++)
			put_numbered(c, id++, 1);
		CHECK_EQ(catalog_commit(c), 0);
	}
	return unit_now_s() - start;
}

static double time_single(struct catalog *c, uint64_t id, int n)
{
	double start = unit_now_s();

	for (int i = 0; i < n; i++) {
		CHECK_EQ(catalog_begin(c), 0);
		put_numbered(c, id + (uint64_t)i, 2);
		CHECK_EQ(catalog_commit(c), 0);
	}
	return (unit_now_s() - start) / n;
}

/* Prints, on a real disk; nothing depends on how fast it is. */
static void figures(void)
{
	const uint64_t files = 100000;
	struct cat_totals t;
	struct fixture x;
	double s;

	fixture_dir(&x, NULL);
	fixture_open(&x);
	s = time_bulk(x.c, files, 1000);
	printf("# %" PRIu64 " files and groups: %.2f s\n", files, s);
	s = time_single(x.c, files + 1, 200);
	printf("# put_file, put_group, commit: new rows %.0f us, ", 1e6 * s);
	printf("changed rows %.0f us\n", 1e6 * time_single(x.c, 5000, 200));
	s = unit_now_s();
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(catalog_totals(x.c, &t), 0);
	printf("# totals: %.1f us\n", 1e3 * (unit_now_s() - s));
	CHECK_EQ(t.files, files + 200);
	s = unit_now_s();
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_rename_paths(x.c, "some/where/in/a/tree/042", "elsewhere"), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	printf("# rename of a directory of 1000 files: %.1f ms\n", 1e3 * (unit_now_s() - s));
	s = unit_now_s();
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	printf("# integrity check: %.2f s\n", unit_now_s() - s);
	fixture_close(&x);
	printf("# bytes per small file, path of 40 bytes: %.0f\n",
	       (double)size_of(&x, NAME) / (double)(files + 200));
	fixture_release(&x);
}

UNIT_MAIN({ "connection_settings", connection_settings },
	  { "wal_starts_over_beside_readers", wal_starts_over_beside_readers },
	  { "wal_starts_over", wal_starts_over },
	  { "wal_keeps_to_its_limit", wal_keeps_to_its_limit }, { "figures", figures })
