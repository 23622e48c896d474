// SPDX-License-Identifier: GPL-2.0-or-later
/* test_catalog.c - the catalog in good times: rows, searches, totals, transactions, threads. */
#include "tests/unit/catalog_fixture.h"

/* ---- rows --------------------------------------------------------------------------------- */
static bool same_file(const struct cat_file *a, const struct cat_file *b)
{
	return a->id == b->id && a->flags == b->flags && a->key_len == b->key_len &&
	       memcmp(a->key, b->key, a->key_len) == 0 && a->size_bytes == b->size_bytes &&
	       a->mtime_ns == b->mtime_ns && a->src_size_bytes == b->src_size_bytes &&
	       a->src_mtime_ns == b->src_mtime_ns && a->src_ctime_ns == b->src_ctime_ns &&
	       !a->path == !b->path && (!a->path || strcmp(a->path, b->path) == 0);
}

/* Through a transaction and back, by id and by key. */
static void check_file(struct catalog *c, const struct cat_file *f)
{
	struct cat_file got;

	CHECK_EQ(catalog_begin(c), 0);
	CHECK_EQ(catalog_put_file(c, f), 0);
	CHECK_EQ(catalog_commit(c), 0);
	if (!CHECK_EQ(catalog_find_id(c, f->id, &got), 0))
		return;
	CHECK(same_file(f, &got));
	cat_file_release(&got);
	if (!CHECK_EQ(catalog_find_file(c, f->key, f->key_len, &got), 0))
		return;
	CHECK(same_file(f, &got));
	cat_file_release(&got);
}

static void file_rows(void)
{
	struct fixture x = fixture_new();
	struct cat_file f = file_of(1, "dir/name"), got;
	_cleanup_free_ char *longest = malloc(CAT_PATH_MAX + 2);

	check_file(x.c, &f);
	f.path = NULL;
	f.flags = CAT_F_ATTR_OWNED | CAT_F_TRUNCATE;
	f.size_bytes = 0;
	f.mtime_ns = -1;
	check_file(x.c, &f); /* replaced: other path, size and mtime differ from SRC's */
	memset(longest, 'x', CAT_PATH_MAX + 1);
	longest[CAT_PATH_MAX] = '\0';
	f = (struct cat_file){ .id = INT64_MAX,
			       .flags = CAT_F_ALL,
			       .key_len = CAT_KEY_MAX,
			       .size_bytes = UINT64_MAX,
			       .mtime_ns = INT64_MIN,
			       .src_size_bytes = UINT64_MAX - 1,
			       .src_mtime_ns = INT64_MAX,
			       .src_ctime_ns = INT64_MIN,
			       .path = longest };
	memset(f.key, 0xff, sizeof(f.key));
	check_file(x.c, &f);
	f = (struct cat_file){ .id = 2, .key_len = 1, .path = (char *)"" };
	check_file(x.c, &f);
	f = (struct cat_file){ .id = 3, .key_len = 2, .path = (char *)"a\n\xff\xfe%_\\'\"" };
	check_file(x.c, &f);
	CHECK_EQ(catalog_find_file(x.c, "none", 4, &got), -ENOENT);
	CHECK_EQ(catalog_find_file(x.c, "", 0, &got), -EINVAL);
	CHECK_EQ(catalog_find_id(x.c, 4, &got), -ENOENT);
	CHECK_EQ(catalog_find_id(x.c, UINT64_MAX, &got), -ENOENT);
	fixture_release(&x);
}

static bool same_group(const struct cat_group *a, const struct cat_group *b)
{
	return a->index == b->index && a->flags == b->flags &&
	       memcmp(a->present, b->present, sizeof(a->present)) == 0 &&
	       memcmp(a->dirty, b->dirty, sizeof(a->dirty)) == 0 && a->sum_valid == b->sum_valid &&
	       memcmp(a->sum, b->sum, sizeof(a->sum)) == 0 && a->pinned == b->pinned &&
	       memcmp(a->heat, b->heat, sizeof(a->heat)) == 0;
}

static void check_group(struct catalog *c, uint64_t id, const struct cat_group *g)
{
	struct cat_group got;

	CHECK_EQ(catalog_begin(c), 0);
	CHECK_EQ(catalog_put_group(c, id, g), 0);
	CHECK_EQ(catalog_commit(c), 0);
	if (CHECK_EQ(catalog_next_group(c, id, g->index, &got), 0))
		CHECK(same_group(g, &got));
}

static void group_rows(void)
{
	struct fixture x = fixture_new();
	struct cat_group g;
	uint64_t seed = 7;

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	/* every number of blocks around the edges of bytes and of the bitmap */
	for (unsigned int n = 1; n <= 4096; n += n > 20 && n < 4090 ? 407 : 1) {
		g = group_of(3, n, n / 2);
		check_group(x.c, 1, &g);
	}
	/* nothing but a flag; nothing but a pin; everything */
	g = group_of(0, 0, 0);
	g.flags = CAT_G_INTENT;
	check_group(x.c, 1, &g);
	g = group_of(0, 0, 0);
	g.pinned = UINT64_MAX;
	check_group(x.c, 1, &g);
	memset(&g, 0xff, sizeof(g));
	g.flags = CAT_G_ALL;
	g.index = CAT_INDEX_MAX;
	check_group(x.c, 1, &g);
	for (int i = 0; i < 200; i++) {
		g = group_of(rnd(&seed) % 5, 0, 0);
		g.sum_valid = rnd(&seed) & rnd(&seed);
		g.pinned = rnd(&seed);
		for (int k = 0; k < 64; k++)
			g.sum[k] = g.sum_valid >> k & 1 ? rnd(&seed) : 0;
		for (int k = 0; k < 64; k++)
			g.heat[k] = rnd(&seed) % 3 ? (uint8_t)rnd(&seed) : 0;
		for (int k = 0; k < 512; k++)
			g.present[k] = (uint8_t)rnd(&seed);
		for (int k = 0; k < 512; k++)
			g.dirty[k] = g.present[k] & (uint8_t)rnd(&seed);
		check_group(x.c, 1, &g);
	}
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

/* A row that breaks the rules is refused, and the transaction goes on. */
static void refused_rows(void)
{
	struct fixture x = fixture_new();
	struct cat_file f = file_of(1, NULL);
	struct cat_group g = group_of(0, 1, 0);
	_cleanup_free_ char *too_long = calloc(1, CAT_PATH_MAX + 2);

	memset(too_long, 'x', CAT_PATH_MAX + 1);
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_put_file(x.c, &f), 0);
	f.id = 2;
	CHECK_EQ(catalog_put_file(x.c, &f), -EEXIST); /* the key of file 1 */
	f = file_of(0, NULL);
	CHECK_EQ(catalog_put_file(x.c, &f), -EINVAL);
	f = file_of(1ULL << 63, NULL);
	CHECK_EQ(catalog_put_file(x.c, &f), -EINVAL);
	f = file_of(2, NULL);
	f.key_len = 0;
	CHECK_EQ(catalog_put_file(x.c, &f), -EINVAL);
	f.key_len = CAT_KEY_MAX + 1;
	CHECK_EQ(catalog_put_file(x.c, &f), -EINVAL);
	f = file_of(2, too_long);
	CHECK_EQ(catalog_put_file(x.c, &f), -ENAMETOOLONG);
	f = file_of(2, NULL);
	f.flags = CAT_F_ALL + 1;
	CHECK_EQ(catalog_put_file(x.c, &f), -EINVAL);
	CHECK_EQ(catalog_put_group(x.c, 2, &g), -ENOENT); /* no such file */
	g.dirty[1] = 1;
	CHECK_EQ(catalog_put_group(x.c, 1, &g), -EINVAL);
	g = group_of(CAT_INDEX_MAX + 1, 1, 0);
	CHECK_EQ(catalog_put_group(x.c, 1, &g), -EINVAL);
	CHECK_EQ(catalog_put_meta(x.c, "k", too_long), -ENAMETOOLONG);
	CHECK_EQ(catalog_rename_paths(x.c, "", "x"), -EINVAL);
	CHECK_EQ(catalog_rename_paths(x.c, "a/", "x"), -EINVAL);
	put_file(x.c, 3, 0, NULL);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK(has_file(x.c, 1) && !has_file(x.c, 2) && has_file(x.c, 3));
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

static void settings(void)
{
	struct fixture x = fixture_new();
	_cleanup_free_ char *a = NULL, *b = NULL, *none = NULL;

	CHECK_EQ(catalog_get_meta(x.c, "clean", &none), -ENOENT);
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_put_meta(x.c, "clean", "no"), 0);
	CHECK_EQ(catalog_put_meta(x.c, "clean", "y\xff\n"), 0);
	CHECK_EQ(catalog_put_meta(x.c, "", ""), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(catalog_get_meta(x.c, "clean", &a), 0);
	CHECK_STR(a, "y\xff\n");
	CHECK_EQ(catalog_get_meta(x.c, "", &b), 0);
	CHECK_STR(b, "");
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_put_meta(x.c, "clean", NULL), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(catalog_get_meta(x.c, "clean", &none), -ENOENT);
	CHECK(!none);
	fixture_release(&x);
}

/* ---- searches ----------------------------------------------------------------------------- */
static uint64_t next_id(struct catalog *c, uint64_t after, uint32_t flags)
{
	struct cat_file f;
	int r = catalog_next_file(c, after, flags, &f);

	if (r == -ENOENT || !CHECK_EQ(r, 0))
		return 0;
	cat_file_release(&f);
	return f.id;
}

static uint64_t next_unsettled(struct catalog *c, uint64_t after)
{
	struct cat_file f;
	int r = catalog_next_unsettled(c, after, &f);

	if (r == -ENOENT || !CHECK_EQ(r, 0))
		return 0;
	cat_file_release(&f);
	return f.id;
}

static void iteration(void)
{
	struct fixture x = fixture_new();
	struct cat_group g = { .index = 9, .flags = CAT_G_INTENT };
	struct cat_file f;

	CHECK_EQ(next_id(x.c, 0, 0), 0);
	CHECK_EQ(next_id(x.c, 0, CAT_F_ALL), 0);
	CHECK_EQ(next_unsettled(x.c, 0), 0);
	CHECK_EQ(catalog_begin(x.c), 0);
	for (uint64_t id = 10; id <= 70; id += 10)
		put_file(x.c, id, 0, NULL);
	for (uint32_t bit = 0; CAT_F_ALL >> bit; bit++)
		put_file(x.c, 100 + bit, 1u << bit, NULL);
	put_file(x.c, 30, CAT_F_PINNED | CAT_F_DIR, NULL);
	put_group(x.c, 10, 0, 1, 0);
	put_group(x.c, 20, 5, 1, 1);
	put_group(x.c, 20, 6, 9, 0);
	CHECK_EQ(catalog_put_group(x.c, 40, &g), 0);
	g.present[0] = g.dirty[0] = 1;
	CHECK_EQ(catalog_put_group(x.c, 70, &g), 0);
	CHECK_EQ(catalog_commit(x.c), 0);

	CHECK_EQ(next_id(x.c, 0, 0), 10);
	CHECK_EQ(next_id(x.c, 10, 0), 20);
	CHECK_EQ(next_id(x.c, 19, 0), 20);
	CHECK_EQ(next_id(x.c, 106, 0), 0);
	CHECK_EQ(next_id(x.c, UINT64_MAX, 0), 0);
	for (uint32_t bit = 0; CAT_F_ALL >> bit; bit++) {
		CHECK_EQ(next_id(x.c, 30, 1u << bit), 100 + bit);
		CHECK_EQ(next_id(x.c, 100 + bit, 1u << bit), 0);
	}
	CHECK_EQ(next_id(x.c, 0, CAT_F_PINNED), 30);
	CHECK_EQ(next_id(x.c, 0, CAT_F_ALL), 30);
	CHECK_EQ(next_id(x.c, 102, CAT_F_PINNED | CAT_F_SRC_BUSY | CAT_F_CONFLICT), 103);
	CHECK_EQ(next_id(x.c, 103, CAT_F_PINNED | CAT_F_SRC_BUSY | CAT_F_CONFLICT), 105);
	CHECK_EQ(next_id(x.c, 0, CAT_F_ALL + 1), 0);
	CHECK_EQ(next_unsettled(x.c, 0), 20);
	CHECK_EQ(next_unsettled(x.c, 20), 40);
	CHECK_EQ(next_unsettled(x.c, 40), 70);
	CHECK_EQ(next_unsettled(x.c, 70), 0);

	CHECK_EQ(catalog_next_group(x.c, 20, 0, &g), 0);
	CHECK_EQ(g.index, 5);
	CHECK_EQ(catalog_next_group(x.c, 20, 6, &g), 0);
	CHECK_EQ(g.index, 6);
	CHECK_EQ(catalog_next_group(x.c, 20, 7, &g), -ENOENT);
	CHECK_EQ(catalog_next_group(x.c, 30, 0, &g), -ENOENT);
	CHECK_EQ(catalog_next_group(x.c, 20, UINT64_MAX, &g), -ENOENT);
	CHECK_EQ(catalog_find_id(x.c, 99, &f), -ENOENT);
	fixture_release(&x);
}

static void delete_cascades(void)
{
	struct fixture x = fixture_new();
	struct cat_totals t;
	struct cat_group g;
	uint64_t max_id = 1;

	CHECK_EQ(catalog_max_id(x.c, &max_id), 0);
	CHECK_EQ(max_id, 0);
	CHECK_EQ(catalog_begin(x.c), 0);
	for (uint64_t id = 1; id <= 2; id++) {
		put_file(x.c, id, 0, NULL);
		for (uint64_t i = 0; i < 10; i++)
			put_group(x.c, id, i, 100, 10);
	}
	CHECK_EQ(catalog_delete_groups_from(x.c, 1, 4), 0);
	CHECK_EQ(catalog_delete_file(x.c, 2), 0);
	CHECK_EQ(catalog_delete_file(x.c, 77), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(catalog_totals(x.c, &t), 0);
	CHECK_EQ(t.files, 1);
	CHECK_EQ(t.dirty_files, 1);
	CHECK_EQ(t.present_bytes, 4 * 100 * 4096);
	CHECK_EQ(t.dirty_bytes, 4 * 10 * 4096);
	CHECK_EQ(catalog_next_group(x.c, 2, 0, &g), -ENOENT);
	CHECK_EQ(catalog_max_id(x.c, &max_id), 0);
	CHECK_EQ(max_id, 2); /* an id is not given twice */
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

/* A group with nothing in it has no row; heat and sums do not keep one. */
static void empty_group_is_deleted(void)
{
	struct fixture x = fixture_new();
	struct cat_group g = group_of(0, 0, 0), got;

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, NULL);
	put_group(x.c, 1, 0, 5, 5);
	put_group(x.c, 1, 1, 5, 5);
	g.heat[3] = 200;
	g.sum_valid = 1;
	CHECK_EQ(catalog_put_group(x.c, 1, &g), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_EQ(catalog_next_group(x.c, 1, 0, &got), 0);
	CHECK_EQ(got.index, 1);
	fixture_release(&x);
}

/* ---- totals against a model --------------------------------------------------------------- */
#define M_FILES	 40
#define M_GROUPS 6

struct model {
	bool file[M_FILES + 1];
	unsigned int present[M_FILES + 1][M_GROUPS], dirty[M_FILES + 1][M_GROUPS];
	bool intent[M_FILES + 1][M_GROUPS];
};

static void model_op(struct catalog *c, struct model *m, uint64_t *seed)
{
	uint64_t id = 1 + rnd(seed) % M_FILES, i = rnd(seed) % M_GROUPS;
	unsigned int present, dirty, op = (unsigned int)(rnd(seed) % 16);
	struct cat_group g;

	if (op == 0) {
		CHECK_EQ(catalog_delete_file(c, id), 0);
		m->file[id] = false;
		i = 0;
	}
	if (op == 1)
		CHECK_EQ(catalog_delete_groups_from(c, id, i), 0);
	if (op < 2) {
		for (; i < M_GROUPS; i++)
			m->present[id][i] = m->dirty[id][i] = m->intent[id][i] = 0;
		return;
	}
	if (op < 6 || !m->file[id]) {
		put_file(c, id, (uint32_t)rnd(seed) & CAT_F_ALL, op & 1 ? "p" : NULL);
		m->file[id] = true;
		return;
	}
	present = op < 8 ? 0 : op < 9 ? 4096 : (unsigned int)(rnd(seed) % 4097);
	dirty = op < 12 ? 0 : (unsigned int)(rnd(seed) % (present + 1));
	g = group_of(i, present, dirty);
	g.flags = op == 13 ? CAT_G_INTENT : 0;
	CHECK_EQ(catalog_put_group(c, id, &g), 0);
	m->present[id][i] = present;
	m->dirty[id][i] = dirty;
	m->intent[id][i] = g.flags != 0;
}

static struct cat_totals model_totals(const struct model *m)
{
	struct cat_totals t = { 0 };

	for (int id = 1; id <= M_FILES; id++) {
		unsigned int dirty = 0;

		for (int i = 0; i < M_GROUPS; i++) {
			t.present_bytes += m->present[id][i] * 4096;
			dirty += m->dirty[id][i];
		}
		t.files += m->file[id];
		t.dirty_files += dirty > 0;
		t.dirty_bytes += dirty * 4096;
	}
	return t;
}

static void check_unsettled(struct catalog *c, const struct model *m)
{
	uint64_t at = 0;

	for (uint64_t id = 1; id <= M_FILES; id++)
		for (int i = 0; i < M_GROUPS; i++)
			if (m->dirty[id][i] || m->intent[id][i]) {
				CHECK_EQ(next_unsettled(c, at), id);
				at = id;
				break;
			}
	CHECK_EQ(next_unsettled(c, at), 0);
}

static void totals_match_a_model(void)
{
	struct fixture x = fixture_new();
	struct model m = { 0 }, before;
	uint64_t seed = 20261130;

	for (int tx = 0; tx < 1000; tx++) {
		struct cat_totals want, kept, counted;

		before = m;
		CHECK_EQ(catalog_begin(x.c), 0);
		for (int i = 0; i < 20; i++)
			model_op(x.c, &m, &seed);
		if (rnd(&seed) % 5 == 0) {
			catalog_rollback(x.c);
			m = before;
		} else {
			CHECK_EQ(catalog_commit(x.c), 0);
		}
		want = model_totals(&m);
		CHECK_EQ(catalog_totals(x.c, &kept), 0);
		CHECK_EQ(catalog_recount(x.c, &counted), 0);
		CHECK(memcmp(&want, &kept, sizeof(want)) == 0);
		if (!CHECK(memcmp(&want, &counted, sizeof(want)) == 0))
			break;
		if (tx % 50 == 0) {
			check_unsettled(x.c, &m);
			CHECK_EQ(catalog_integrity_check(x.c), 0);
		}
	}
	fixture_release(&x);
}

/* ---- transactions ------------------------------------------------------------------------- */
static void rollback_and_reopen(void)
{
	struct fixture x = fixture_new();

	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, "a");
	CHECK(!has_file(x.c, 1)); /* readers do not see half transactions */
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK(has_file(x.c, 1));
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_delete_file(x.c, 1), 0);
	put_file(x.c, 2, 0, "b");
	catalog_rollback(x.c);
	CHECK(has_file(x.c, 1) && !has_file(x.c, 2));
	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 3, 0, "c");
	fixture_close(&x); /* rolls back */
	CHECK_EQ(faccessat(x.dir_fd, NAME "-wal", F_OK, 0), -1);
	CHECK_EQ(faccessat(x.dir_fd, NAME "-shm", F_OK, 0), -1);
	fixture_open(&x);
	CHECK(has_file(x.c, 1) && !has_file(x.c, 2) && !has_file(x.c, 3));
	fixture_release(&x);
}

/* The path of a row, or "-" without one; valid until the next call. */
static const char *path_of(struct catalog *c, uint64_t id)
{
	static char text[64];
	struct cat_file f;

	if (!CHECK_EQ(catalog_find_id(c, id, &f), 0))
		return "";
	snprintf(text, sizeof(text), "%.60s", f.path ?: "-");
	cat_file_release(&f);
	return text;
}

static void rename_paths(void)
{
	static const struct {
		const char *from, *to, *before, *after;
	} cases[] = {
		{ "a", "x", "a", "x" },
		{ "a", "x", "a/b", "x/b" },
		{ "a", "x", "a/b/c", "x/b/c" },
		{ "a", "x", "ab", "ab" },
		{ "a", "x", "a.b", "a.b" }, /* '.' sorts just below '/', '0' just above */
		{ "a", "x", "a0", "a0" },
		{ "a", "x", "b/a", "b/a" },
		{ "a", "x", "A/b", "A/b" },
		{ "a%", "x", "a%/b", "x/b" },
		{ "a%", "x", "ab/b", "ab/b" },
		{ "a_", "x", "ab/c", "ab/c" },
		{ "a_", "x", "a_", "x" },
		{ "a\\", "x", "a\\/c", "x/c" },
		{ "a\\", "x", "a/c", "a/c" },
		{ "a", "a/b", "a/c", "a/b/c" },
		{ "a/b/c", "a", "a/b/c/d", "a/d" },
		{ "a", "", "a/b", "/b" },
		{ "\xff", "\xc3", "\xff/\xfe", "\xc3/\xfe" },
		{ "\xc3", "x", "\xc3\xa9/b", "\xc3\xa9/b" },
		{ "\xc3\xa9", "\xe2\x82\xac", "\xc3\xa9/\xc3", "\xe2\x82\xac/\xc3" },
		{ "a\nb", "'; --", "a\nb/\n", "'; --/\n" },
	};
	struct fixture x = fixture_new();

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CHECK_EQ(catalog_begin(x.c), 0);
		put_file(x.c, 1, 0, cases[i].before);
		put_file(x.c, 2, 0, NULL);
		put_file(x.c, 3, 0, "other");
		CHECK_EQ(catalog_rename_paths(x.c, cases[i].from, cases[i].to), 0);
		CHECK_EQ(catalog_commit(x.c), 0);
		if (!CHECK_STR(path_of(x.c, 1), cases[i].after))
			printf("# case %zu: %s\n", i, path_of(x.c, 1));
		CHECK_STR(path_of(x.c, 2), "-");
		CHECK_STR(path_of(x.c, 3), "other");
	}
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

static void rename_drops_a_hint_that_grows_too_long(void)
{
	struct fixture x = fixture_new();
	_cleanup_free_ char *longest = calloc(1, CAT_PATH_MAX + 1);

	memset(longest, 'x', CAT_PATH_MAX);
	longest[1] = '/';
	CHECK_EQ(catalog_begin(x.c), 0);
	put_file(x.c, 1, 0, longest);
	CHECK_EQ(catalog_rename_paths(x.c, "x", "y"), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK(strncmp(path_of(x.c, 1), "y/xxx", 5) == 0);
	CHECK_EQ(catalog_begin(x.c), 0);
	CHECK_EQ(catalog_rename_paths(x.c, "y", "yy"), 0);
	CHECK_EQ(catalog_commit(x.c), 0);
	CHECK_STR(path_of(x.c, 1), "-");
	fixture_release(&x);
}

/* ---- threads ------------------------------------------------------------------------------ */
struct reader {
	struct catalog *c;
	bool stop; /* atomic */
	uint64_t reads;
};

/* Every transaction of the writer keeps: all files dirty, and file 1 as large as in SRC. */
static void *read_on(void *arg)
{
	struct reader *t = arg;
	uint64_t last = 0;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		struct cat_totals totals;
		struct cat_file f;

		CHECK_EQ(catalog_totals(t->c, &totals), 0);
		CHECK_EQ(totals.files, totals.dirty_files);
		if (!CHECK_EQ(catalog_find_id(t->c, 1, &f), 0))
			break;
		CHECK_EQ(f.size_bytes, f.src_size_bytes);
		CHECK(f.size_bytes >= last);
		last = f.size_bytes;
		cat_file_release(&f);
		CHECK_EQ(catalog_find_id(t->c, 999999, &f), -ENOENT);
		CHECK_STR(catalog_error(t->c), "no such row");
		t->reads++;
	}
	return NULL;
}

static void write_once(struct catalog *c, uint64_t n)
{
	struct cat_file f = file_of(1, "a/path/that/changes/not");

	f.size_bytes = f.src_size_bytes = n;
	CHECK_EQ(catalog_begin(c), 0);
	CHECK_EQ(catalog_put_file(c, &f), 0);
	put_group(c, 1, 0, 64, (unsigned int)(1 + n % 64));
	put_file(c, 1 + n, 0, NULL);
	put_group(c, 1 + n, 0, 64, 64);
	CHECK_EQ(catalog_commit(c), 0);
	CHECK(has_file(c, 1 + n)); /* committed is visible at once */
}

static void two_readers_and_a_writer(void)
{
	struct fixture x = fixture_new();
	struct reader r[2] = { { .c = x.c }, { .c = x.c } };
	pthread_t thread[2];

	write_once(x.c, 1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, read_on, &r[i]), 0);
	for (uint64_t n = 2; n <= 500; n++)
		write_once(x.c, n);
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&r[i].stop, true, __ATOMIC_RELEASE);
		pthread_join(thread[i], NULL);
		CHECK(r[i].reads > 0);
	}
	printf("# 499 commits beside %" PRIu64 " + %" PRIu64 " reads\n", r[0].reads, r[1].reads);
	CHECK_EQ(catalog_integrity_check(x.c), 0);
	fixture_release(&x);
}

UNIT_MAIN({ "file_rows", file_rows }, { "group_rows", group_rows },
	  { "refused_rows", refused_rows }, { "settings", settings }, { "iteration", iteration },
	  { "delete_cascades", delete_cascades },
	  { "empty_group_is_deleted", empty_group_is_deleted },
	  { "totals_match_a_model", totals_match_a_model },
	  { "rollback_and_reopen", rollback_and_reopen }, { "rename_paths", rename_paths },
	  { "rename_drops_a_hint_that_grows_too_long", rename_drops_a_hint_that_grows_too_long },
	  { "two_readers_and_a_writer", two_readers_and_a_writer })
