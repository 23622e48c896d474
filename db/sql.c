// SPDX-License-Identifier: GPL-2.0-or-later
/* sql.c - sqlite as db/ uses it: connections, error numbers, stepping, and all statements. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "db/catalog_internal.h"

/* ---- statements --------------------------------------------------------------------------- */
/* The WHERE terms repeat those of the partial indexes word for word; sqlite needs that. */
#define FLAGGED(index, bit)                                                       \
	"SELECT min(id) AS n FROM files INDEXED BY " index " WHERE (flags & " bit \
	") <> 0 AND id > ?1 AND (?2 & " bit ") <> 0"

/* A group whose file is missing must not look like the end: u.n is the column after the row. */
#define FILE_OF(ids)                                                       \
	"SELECT " FILE_COLUMNS ", u.n FROM (SELECT min(n) AS n FROM (" ids \
	")) AS u LEFT JOIN files ON files.id = u.n"

/* A hint that would grow past what catalog_put_file() takes (CAT_PATH_MAX) is dropped. */
#define RENAMED                                                     \
	"CASE WHEN length(?2) + length(path) - length(?1) <= 65536" \
	" THEN CAST(?2 || substr(path, length(?1) + 1) AS BLOB) END"

const char *const sql_text[STMT_COUNT] = {
	[R_GET_META] = "SELECT value FROM meta WHERE key = ?1",
	[R_FIND_KEY] = "SELECT " FILE_COLUMNS " FROM files WHERE key = ?1",
	[R_FIND_ID] = "SELECT " FILE_COLUMNS " FROM files WHERE id = ?1",
	[R_NEXT_FILE] = "SELECT " FILE_COLUMNS " FROM files WHERE id > ?1 ORDER BY id LIMIT 1",
	/* clang-format off */
	[R_NEXT_FLAGGED] = FILE_OF(FLAGGED("files_pinned", "1")
				   " UNION ALL " FLAGGED("files_dir", "2")
				   " UNION ALL " FLAGGED("files_attr_owned", "4")
				   " UNION ALL " FLAGGED("files_src_busy", "8")
				   " UNION ALL " FLAGGED("files_truncate", "16")
				   " UNION ALL " FLAGGED("files_conflict", "32")
				   " UNION ALL " FLAGGED("files_pin_ranges", "64")),
	/* clang-format on */
	[R_NEXT_UNSETTLED] =
		FILE_OF("SELECT min(file_id) AS n FROM groups INDEXED BY groups_dirty"
			" WHERE dirty_n > 0 AND file_id > ?1"
			" UNION ALL SELECT min(file_id) FROM groups INDEXED BY groups_intent"
			" WHERE (flags & 1) <> 0 AND file_id > ?1"),
	[R_NEXT_GROUP] = "SELECT " GROUP_COLUMNS " FROM groups WHERE file_id = ?1 AND idx >= ?2"
			 " ORDER BY idx LIMIT 1",
	[R_TOTALS] = "SELECT files, dirty_files, present_n, dirty_n, max_id FROM totals"
		     " WHERE one = 1",
	[R_RECOUNT] = "SELECT (SELECT count(*) FROM files),"
		      " (SELECT count(DISTINCT file_id) FROM groups INDEXED BY groups_dirty"
		      "  WHERE dirty_n > 0),"
		      " ifnull(sum(present_n), 0), ifnull(sum(dirty_n), 0),"
		      " (SELECT ifnull(max(id), 0) FROM files) FROM groups",
	[W_BEGIN] = "BEGIN IMMEDIATE",
	[W_COMMIT] = "COMMIT",
	[W_ROLLBACK] = "ROLLBACK",
	[W_UPDATE_FILE] = "UPDATE files SET flags = ?2, size = nullif(?4, ?6),"
			  " mtime_ns = nullif(?5, ?7), src_size = ?6, src_mtime_ns = ?7,"
			  " src_ctime_ns = ?8 WHERE id = ?1 AND key = ?3 AND path IS ?9",
	[W_PUT_FILE] = "INSERT INTO files(id, flags, key, size, mtime_ns, src_size, src_mtime_ns,"
		       " src_ctime_ns, path)"
		       " VALUES(?1, ?2, ?3, nullif(?4, ?6), nullif(?5, ?7), ?6, ?7, ?8, ?9)"
		       " ON CONFLICT(id) DO UPDATE SET flags = excluded.flags, key = excluded.key,"
		       " size = excluded.size, mtime_ns = excluded.mtime_ns,"
		       " src_size = excluded.src_size, src_mtime_ns = excluded.src_mtime_ns,"
		       " src_ctime_ns = excluded.src_ctime_ns, path = excluded.path",
	[W_DELETE_FILE] = "DELETE FROM files WHERE id = ?1",
	[W_PUT_GROUP] = "INSERT INTO groups(" GROUP_COLUMNS ")"
			" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
			" ON CONFLICT(file_id, idx) DO UPDATE SET flags = excluded.flags,"
			" present = excluded.present, dirty = excluded.dirty,"
			" sum_valid = excluded.sum_valid, sums = excluded.sums,"
			" pinned = excluded.pinned, heat = excluded.heat,"
			" present_n = excluded.present_n, dirty_n = excluded.dirty_n",
	[W_DELETE_GROUP] = "DELETE FROM groups WHERE file_id = ?1 AND idx = ?2",
	[W_DELETE_GROUPS_FROM] = "DELETE FROM groups WHERE file_id = ?1 AND idx >= ?2",
	[W_PUT_META] = "INSERT INTO meta(key, value) VALUES(?1, ?2)"
		       " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
	[W_DELETE_META] = "DELETE FROM meta WHERE key = ?1",
	[W_RENAME_ONE] = "UPDATE files SET path = ?2 WHERE path = ?1",
	[W_RENAME_BELOW] = "UPDATE files SET path = " RENAMED " WHERE path > ?3 AND path < ?4",
};

/* ---- errors ------------------------------------------------------------------------------- */
static int io_errno(sqlite3 *db, int rc)
{
	int e = db ? sqlite3_system_errno(db) : errno;

	if (rc == SQLITE_IOERR_NOMEM)
		return -ENOMEM;
	if (rc == SQLITE_IOERR_SHORT_READ || rc == SQLITE_IOERR_CORRUPTFS ||
	    rc == SQLITE_IOERR_DATA)
		return -EUCLEAN;
	if (e == ENOSPC || e == EDQUOT)
		return -ENOSPC;
	if ((rc & 0xff) == SQLITE_CANTOPEN && e > 0)
		return -e;
	return -EIO;
}

int sql_errno(sqlite3 *db, int rc)
{
	switch (rc) {
	case SQLITE_CONSTRAINT_UNIQUE:
	case SQLITE_CONSTRAINT_PRIMARYKEY:
		return -EEXIST;
	case SQLITE_CONSTRAINT_FOREIGNKEY:
		return -ENOENT;
	}
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return io_errno(db, rc);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return -EACCES;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_INTERRUPT:
		return -EINTR;
	case SQLITE_MISUSE:
	case SQLITE_RANGE:
		return -EINVAL;
	}
	/* CORRUPT, NOTADB, MISMATCH, CONSTRAINT; ERROR too: our statements are fixed, so what does
	 * not fit them is the file. */
	return -EUCLEAN;
}

/* ---- connections -------------------------------------------------------------------------- */
/*
 * immutable=1 can be said only in a URI: no locks, no WAL, no files created. All but letters and
 * digits of the name is escaped.
 */
static void snapshot_uri(int dir_fd, const char *name, char *ret_uri, size_t size)
{
	int n = snprintf(ret_uri, size, "file:/proc/self/fd/%d/", dir_fd);

	for (; *name; name++)
		n += snprintf(ret_uri + n, size - (size_t)n, "%%%02x", (unsigned char)*name);
	n += snprintf(ret_uri + n, size - (size_t)n, "?immutable=1");
	assert((size_t)n < size);
}

static void configure(sqlite3 *db)
{
	sqlite3_extended_result_codes(db, 1);
	sqlite3_busy_timeout(db, SQL_BUSY_TIMEOUT_MS);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, SQL_VALUE_MAX_BYTES);
	/* What is in the file may not make sqlite do more than read and write tables. */
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
}

int sql_open(int dir_fd, const char *name, enum sql_mode mode, sqlite3 **ret_db)
{
	_cleanup_(cleanup_sql) sqlite3 *db = NULL;
	char path[SQL_PATH_MAX + 3 * NAME_MAX];
	int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, reserved = PAGE_RESERVED, rc;

	if (!vfs_name() || !sqlite3_threadsafe())
		return -ENOSYS;
	if (mode == SQL_SNAPSHOT) {
		flags |= SQLITE_OPEN_URI;
		snapshot_uri(dir_fd, name, path, sizeof(path));
	} else {
		vfs_path(dir_fd, name, path);
	}
	if (mode == SQL_CREATE || mode == SQL_WRITE)
		flags |= SQLITE_OPEN_READWRITE;
	else
		flags |= SQLITE_OPEN_READONLY;
	rc = sqlite3_open_v2(path, &db, flags, vfs_name());
	if (rc != SQLITE_OK)
		return sql_errno(db, db ? sqlite3_extended_errcode(db) : rc);
	/* For a database that comes into being; others have it in their header. */
	rc = sqlite3_file_control(db, NULL, SQLITE_FCNTL_RESERVE_BYTES, &reserved);
	if (rc != SQLITE_OK)
		return sql_errno(db, rc);
	configure(db);
	*ret_db = TAKE_PTR(db);
	return 0;
}

void sql_close(sqlite3 *db)
{
	int rc = sqlite3_close(db);

	assert(rc == SQLITE_OK); /* else a statement was not finalized */
	(void)rc;
}

int sql_exec(sqlite3 *db, const char *sql)
{
	return sql_errno(db, sqlite3_exec(db, sql, NULL, NULL, NULL));
}

int sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret_stmt)
{
	return sql_errno(db, sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret_stmt,
						NULL));
}

int sql_step(sqlite3_stmt *s)
{
	int rc = sqlite3_step(s);

	return rc == SQLITE_ROW ? 1 : sql_errno(sqlite3_db_handle(s), rc);
}

int sql_get_int(sqlite3 *db, const char *sql, int64_t *ret_value)
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	int r = sql_prepare(db, sql, &s);

	if (r == 0)
		r = sql_step(s);
	if (r < 0)
		return r;
	if (r == 0 || sqlite3_column_type(s, 0) != SQLITE_INTEGER)
		return -EUCLEAN;
	*ret_value = sqlite3_column_int64(s, 0);
	return 0;
}
