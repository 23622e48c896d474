// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog_read.c - the functions of catalog.h that read, from any thread.
 *
 * Each is one statement, so it sees one committed state. A row must also answer the question that
 * was asked (the key, an id larger than the last): in a damaged tree a search can end anywhere, and
 * a caller that walks on from such a row would walk in circles.
 */
#include <string.h>

#include "db/catalog_internal.h"

sqlite3_stmt *catalog_read_begin(struct catalog *c, enum stmt_id id)
{
	pthread_mutex_lock(&c->read_lock);
	return c->stmt[id];
}

int catalog_read_end(struct catalog *c, sqlite3_stmt *s, int r)
{
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	pthread_mutex_unlock(&c->read_lock);
	return r;
}

/* 0 with the statement on its row, -ENOENT, or another error. */
static int first_row(struct catalog *c, sqlite3_stmt *s)
{
	int r = sql_step(s);

	if (r < 0)
		return catalog_fail_sql(c, c->reader, r);
	return r > 0 ? 0 : catalog_fail(c, -ENOENT, "no such row");
}

void cat_file_release(struct cat_file *f)
{
	free(f->path);
	f->path = NULL;
}

/* ---- files -------------------------------------------------------------------------------- */
static int file_row(struct catalog *c, sqlite3_stmt *s, struct cat_file *ret_f)
{
	const char *why = NULL;
	int r = blob_get_file(s, ret_f, &why);

	if (r < 0)
		catalog_fail(c, r, "file row %lld: %s", sqlite3_column_int64(s, 0), why);
	return r;
}

int catalog_find_file(struct catalog *c, const void *key, size_t key_len, struct cat_file *ret_f)
{
	sqlite3_stmt *s;
	struct cat_file f;
	int r;

	if (key_len == 0 || key_len > CAT_KEY_MAX)
		return catalog_fail(c, -EINVAL, "length of the key");
	s = catalog_read_begin(c, R_FIND_KEY);
	sqlite3_bind_blob(s, 1, key, (int)key_len, SQLITE_STATIC);
	r = first_row(c, s);
	if (r == 0)
		r = file_row(c, s, &f);
	if (r == 0 && (f.key_len != key_len || memcmp(f.key, key, key_len) != 0)) {
		cat_file_release(&f);
		r = catalog_fail(c, -EUCLEAN, "the index of keys leads to another file");
	}
	if (r == 0)
		*ret_f = f;
	return catalog_read_end(c, s, r);
}

/*
 * The row of an id in first..last. With `joined`, the column after it says which id was looked up
 * (NULL: there is none), so that a missing row is told from the end.
 */
static int file_between(struct catalog *c, sqlite3_stmt *s, bool joined, uint64_t first,
			uint64_t last, struct cat_file *ret_f)
{
	struct cat_file f;
	int r = first_row(c, s);

	if (r == 0 && joined && sqlite3_column_type(s, FILE_COLUMN_COUNT) == SQLITE_NULL)
		r = catalog_fail(c, -ENOENT, "no such row");
	if (r == 0)
		r = file_row(c, s, &f);
	if (r < 0)
		return r;
	if (f.id < first || f.id > last) {
		cat_file_release(&f);
		return catalog_fail(c, -EUCLEAN, "a search by id leads to another file");
	}
	*ret_f = f;
	return 0;
}

int catalog_find_id(struct catalog *c, uint64_t id, struct cat_file *ret_f)
{
	sqlite3_stmt *s;

	if (id == 0 || id > INT64_MAX)
		return catalog_fail(c, -ENOENT, "no such row");
	s = catalog_read_begin(c, R_FIND_ID);
	sqlite3_bind_int64(s, 1, (sqlite3_int64)id);
	return catalog_read_end(c, s, file_between(c, s, false, id, id, ret_f));
}

int catalog_next_file(struct catalog *c, uint64_t after, uint32_t any_flags, struct cat_file *ret_f)
{
	sqlite3_stmt *s;

	if (after >= INT64_MAX)
		return catalog_fail(c, -ENOENT, "no such row");
	s = catalog_read_begin(c, any_flags ? R_NEXT_FLAGGED : R_NEXT_FILE);
	sqlite3_bind_int64(s, 1, (sqlite3_int64)after);
	if (any_flags)
		sqlite3_bind_int64(s, 2, any_flags);
	return catalog_read_end(c, s,
				file_between(c, s, any_flags != 0, after + 1, INT64_MAX, ret_f));
}

int catalog_next_unsettled(struct catalog *c, uint64_t after, struct cat_file *ret_f)
{
	sqlite3_stmt *s;

	if (after >= INT64_MAX)
		return catalog_fail(c, -ENOENT, "no such row");
	s = catalog_read_begin(c, R_NEXT_UNSETTLED);
	sqlite3_bind_int64(s, 1, (sqlite3_int64)after);
	return catalog_read_end(c, s, file_between(c, s, true, after + 1, INT64_MAX, ret_f));
}

/* ---- groups ------------------------------------------------------------------------------- */
static int group_row(struct catalog *c, sqlite3_stmt *s, uint64_t file_id, uint64_t from,
		     struct cat_group *ret_g)
{
	struct cat_group g;
	const char *why = NULL;
	uint64_t found_id;
	int r = blob_get_group(s, &found_id, &g, &why);

	if (r == 0 && (found_id != file_id || g.index < from)) {
		why = "found in a search for another";
		r = -EUCLEAN;
	}
	if (r < 0)
		return catalog_fail(c, r, "group row %lld of file %lld: %s",
				    sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 0), why);
	*ret_g = g;
	return 0;
}

int catalog_next_group(struct catalog *c, uint64_t file_id, uint64_t from, struct cat_group *ret_g)
{
	sqlite3_stmt *s;
	int r;

	if (file_id == 0 || file_id > INT64_MAX || from > CAT_INDEX_MAX)
		return catalog_fail(c, -ENOENT, "no such row");
	s = catalog_read_begin(c, R_NEXT_GROUP);
	sqlite3_bind_int64(s, 1, (sqlite3_int64)file_id);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)from);
	r = first_row(c, s);
	return catalog_read_end(c, s, r < 0 ? r : group_row(c, s, file_id, from, ret_g));
}

/* ---- settings and sums -------------------------------------------------------------------- */
int catalog_get_meta(struct catalog *c, const char *key, char **ret_value)
{
	sqlite3_stmt *s = catalog_read_begin(c, R_GET_META);
	int r;

	sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
	r = first_row(c, s);
	if (r == 0) {
		r = blob_get_text(s, 0, CAT_META_MAX, ret_value);
		if (r < 0)
			catalog_fail(c, r, "setting %s: damaged", key);
	}
	return catalog_read_end(c, s, r);
}

/* The five columns of R_TOTALS and R_RECOUNT. */
static int read_totals(struct catalog *c, enum stmt_id id, struct cat_totals *ret_t,
		       uint64_t *ret_max_id)
{
	sqlite3_stmt *s = catalog_read_begin(c, id);
	uint64_t v[5] = { 0 };
	int r = first_row(c, s);

	if (r == -ENOENT)
		r = catalog_fail(c, -EUCLEAN, "the row of totals is missing");
	for (int i = 0; r == 0 && i < 5; i++) {
		v[i] = (uint64_t)sqlite3_column_int64(s, i);
		if (sqlite3_column_type(s, i) != SQLITE_INTEGER || v[i] > INT64_MAX)
			r = catalog_fail(c, -EUCLEAN, "a total is out of range");
	}
	if (r == 0) {
		*ret_t = (struct cat_totals){ v[0], v[1], v[2] * CAT_BLOCK_BYTES,
					      v[3] * CAT_BLOCK_BYTES };
		*ret_max_id = v[4];
	}
	return catalog_read_end(c, s, r);
}

int catalog_totals(struct catalog *c, struct cat_totals *ret_t)
{
	uint64_t max_id;

	return read_totals(c, R_TOTALS, ret_t, &max_id);
}

int catalog_recount(struct catalog *c, struct cat_totals *ret_t)
{
	uint64_t max_id;

	return read_totals(c, R_RECOUNT, ret_t, &max_id);
}

int catalog_max_id(struct catalog *c, uint64_t *ret_id)
{
	struct cat_totals t;

	return read_totals(c, R_TOTALS, &t, ret_id);
}
