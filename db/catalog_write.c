// SPDX-License-Identifier: GPL-2.0-or-later
/* catalog_write.c - the functions of catalog.h that change rows, inside a transaction. */
#include <assert.h>
#include <string.h>

#include "db/catalog_internal.h"

/*
 * A refused row (-EINVAL, -EEXIST, -ENOENT) undoes its statement only. After any other failure
 * sqlite may have rolled back everything, so the transaction can not be committed any more.
 */
static int note(struct catalog *c, int r)
{
	if (r == -EINVAL || r == -EEXIST || r == -ENOENT || r == -ENAMETOOLONG)
		return r;
	if (r < 0 && c->transaction_error == 0)
		c->transaction_error = r;
	return r;
}

static int refuse(struct catalog *c, int error, const char *what)
{
	return catalog_fail(c, error, "refused: %s breaks the rules of catalog.h", what);
}

static sqlite3_stmt *write_begin(struct catalog *c, enum stmt_id id)
{
	assert(c->in_transaction);
	return c->stmt[id];
}

/* Steps the bound statement; `rc` is what binding returned. */
static int write_end(struct catalog *c, sqlite3_stmt *s, int rc)
{
	int r = c->transaction_error;

	if (r == 0) {
		r = rc == SQLITE_OK ? sql_step(s) : sql_errno(c->writer, rc);
		if (r < 0)
			r = note(c, catalog_fail_sql(c, c->writer, r));
	}
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return r;
}

/* ---- files -------------------------------------------------------------------------------- */
int catalog_put_file(struct catalog *c, const struct cat_file *f)
{
	sqlite3_stmt *s = write_begin(c, W_UPDATE_FILE);
	int r = blob_check_file(f);

	if (r < 0)
		return refuse(c, r, "the file row");
	/* The row mostly exists with this key and path, and then their indexes stay untouched. */
	r = write_end(c, s, blob_bind_file(s, f));
	if (r < 0 || sqlite3_changes(c->writer) > 0)
		return r;
	s = write_begin(c, W_PUT_FILE);
	return write_end(c, s, blob_bind_file(s, f));
}

static int run_with_ids(struct catalog *c, enum stmt_id id, uint64_t a, uint64_t b)
{
	sqlite3_stmt *s = write_begin(c, id);
	int rc;

	if (a > INT64_MAX || b > INT64_MAX)
		return 0; /* there is no such row */
	rc = sqlite3_bind_int64(s, 1, (sqlite3_int64)a);
	if (rc == SQLITE_OK && sqlite3_bind_parameter_count(s) > 1)
		rc = sqlite3_bind_int64(s, 2, (sqlite3_int64)b);
	return write_end(c, s, rc);
}

int catalog_delete_file(struct catalog *c, uint64_t id)
{
	return run_with_ids(c, W_DELETE_FILE, id, 0);
}

/* ---- groups ------------------------------------------------------------------------------- */
int catalog_put_group(struct catalog *c, uint64_t file_id, const struct cat_group *g)
{
	sqlite3_stmt *s = write_begin(c, W_PUT_GROUP);
	int r = blob_check_group(file_id, g);

	if (r < 0)
		return refuse(c, r, "the group row");
	if (g->flags == 0 && g->pinned == 0 && blob_count_bits(g->present, CAT_BITMAP_BYTES) == 0)
		return run_with_ids(c, W_DELETE_GROUP, file_id, g->index);
	return write_end(c, s, blob_bind_group(s, file_id, g));
}

int catalog_delete_groups_from(struct catalog *c, uint64_t file_id, uint64_t first_index)
{
	return run_with_ids(c, W_DELETE_GROUPS_FROM, file_id, first_index);
}

/* ---- settings and paths ------------------------------------------------------------------- */
static int bind_string(sqlite3_stmt *s, int n, const char *text)
{
	return sqlite3_bind_text(s, n, text, -1, SQLITE_STATIC);
}

int catalog_put_meta(struct catalog *c, const char *key, const char *value)
{
	sqlite3_stmt *s = write_begin(c, value ? W_PUT_META : W_DELETE_META);
	int rc;

	if (strlen(key) > CAT_META_MAX || (value && strlen(value) > CAT_META_MAX))
		return refuse(c, -ENAMETOOLONG, "the setting");
	rc = bind_string(s, 1, key);
	if (rc == SQLITE_OK && value)
		rc = bind_string(s, 2, value);
	return write_end(c, s, rc);
}

static int bind_bytes(sqlite3_stmt *s, int n, const char *text)
{
	return sqlite3_bind_blob(s, n, text, (int)strlen(text), SQLITE_TRANSIENT);
}

static int rename_one(struct catalog *c, const char *from, const char *to)
{
	sqlite3_stmt *s = write_begin(c, W_RENAME_ONE);
	int rc = bind_bytes(s, 1, from);

	return write_end(c, s, rc ?: bind_bytes(s, 2, to));
}

/* "from/..." is what sorts between "from/" and "from0", bytes compared; '0' follows '/'. */
static int rename_below(struct catalog *c, const char *from, const char *to)
{
	_cleanup_free_ char *bound = NULL;
	sqlite3_stmt *s = write_begin(c, W_RENAME_BELOW);
	size_t len = strlen(from);
	int rc;

	bound = malloc(len + 2);
	if (!bound)
		return note(c, catalog_fail(c, -ENOMEM, "out of memory"));
	memcpy(bound, from, len);
	memcpy(bound + len, "/", 2);
	rc = bind_bytes(s, 1, from);
	rc = rc ?: bind_bytes(s, 2, to);
	rc = rc ?: bind_bytes(s, 3, bound);
	bound[len] = '/' + 1;
	rc = rc ?: bind_bytes(s, 4, bound);
	return write_end(c, s, rc);
}

int catalog_rename_paths(struct catalog *c, const char *from, const char *to)
{
	size_t len = strlen(from);
	int r;

	if (len == 0 || from[len - 1] == '/')
		return refuse(c, -EINVAL, "the path");
	if (len > CAT_PATH_MAX || strlen(to) > CAT_PATH_MAX)
		return refuse(c, -ENAMETOOLONG, "the path");
	r = rename_one(c, from, to);
	return r < 0 ? r : rename_below(c, from, to);
}
