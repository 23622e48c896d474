// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog_check.c - catalog_integrity_check(): what sqlite can say about its file, and then our own
 * invariants (D4-D8 of db/README.md), row by row.
 *
 * It has a connection of its own, with one read transaction over everything: the check sees one
 * state, and other readers are not kept waiting. Meanwhile the WAL can not start over.
 */
#include <string.h>

#include "db/catalog_internal.h"

/* The first row of a PRAGMA that lists findings is one; `good` (or no row at all) is none. */
static int check_pragma(struct catalog *c, sqlite3 *db, const char *pragma, const char *good)
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	const char *text;
	int r = sql_prepare(db, pragma, &s);

	if (r == 0)
		r = sql_step(s);
	if (r < 0)
		return catalog_fail_sql(c, db, r);
	if (r == 0)
		return 0;
	text = (const char *)sqlite3_column_text(s, 0);
	if (text && strcmp(text, good) == 0)
		return 0;
	return catalog_fail(c, -EUCLEAN, "%s: %s", pragma, text ?: "out of memory");
}

static int check_files(struct catalog *c, sqlite3 *db)
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	const char *why = NULL;
	struct cat_file f;
	int r = sql_prepare(db, "SELECT " FILE_COLUMNS " FROM files", &s);

	while (r == 0 && (r = sql_step(s)) > 0) {
		r = blob_get_file(s, &f, &why);
		if (r < 0)
			return catalog_fail(c, r, "file row %lld: %s", sqlite3_column_int64(s, 0),
					    why);
		cat_file_release(&f);
	}
	return r < 0 ? catalog_fail_sql(c, db, r) : 0;
}

static int check_groups(struct catalog *c, sqlite3 *db)
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	const char *why = NULL;
	struct cat_group g;
	uint64_t id;
	int r = sql_prepare(db, "SELECT " GROUP_COLUMNS " FROM groups", &s);

	while (r == 0 && (r = sql_step(s)) > 0) {
		r = blob_get_group(s, &id, &g, &why);
		if (r < 0)
			return catalog_fail(c, r, "group row %lld of file %lld: %s",
					    sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 0),
					    why);
	}
	return r < 0 ? catalog_fail_sql(c, db, r) : 0;
}

static int read_five(struct catalog *c, sqlite3 *db, enum stmt_id id, int64_t ret_v[5])
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	int r = sql_prepare(db, sql_text[id], &s);

	if (r == 0)
		r = sql_step(s);
	if (r < 0)
		return catalog_fail_sql(c, db, r);
	for (int i = 0; i < 5; i++) /* no row: zeros */
		ret_v[i] = sqlite3_column_int64(s, i);
	return r > 0 ? 0 : catalog_fail(c, -EUCLEAN, "the row of totals is missing");
}

static int check_totals(struct catalog *c, sqlite3 *db)
{
	static const char *const what[] = { "files", "dirty files", "present blocks",
					    "dirty blocks" };
	int64_t kept[5], counted[5];
	int r = read_five(c, db, R_TOTALS, kept);

	if (r == 0)
		r = read_five(c, db, R_RECOUNT, counted);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(what); i++)
		if (kept[i] != counted[i])
			return catalog_fail(c, -EUCLEAN, "totals: %lld %s, but there are %lld",
					    (long long)kept[i], what[i], (long long)counted[i]);
	/* The highest id ever may be gone. */
	if (kept[4] < counted[4])
		return catalog_fail(c, -EUCLEAN, "totals: highest id %lld, but there is %lld",
				    (long long)kept[4], (long long)counted[4]);
	return 0;
}

static int check_all(struct catalog *c, sqlite3 *db)
{
	int r = sql_exec(db, "PRAGMA cell_size_check = 1; PRAGMA temp_store = MEMORY; BEGIN");

	if (r < 0)
		return catalog_fail_sql(c, db, r);
	r = check_pragma(c, db, "PRAGMA integrity_check(1)", "ok");
	if (r == 0)
		r = check_pragma(c, db, "PRAGMA foreign_key_check", "");
	if (r == 0)
		r = check_files(c, db);
	if (r == 0)
		r = check_groups(c, db);
	return r == 0 ? check_totals(c, db) : r;
}

int catalog_integrity_check(struct catalog *c)
{
	_cleanup_(cleanup_sql) sqlite3 *db = NULL;
	int r = sql_open(c->dir_fd, c->name, c->snapshot ? SQL_SNAPSHOT : SQL_READ, &db);

	return r < 0 ? catalog_fail(c, r, "can not open another connection") : check_all(c, db);
}
