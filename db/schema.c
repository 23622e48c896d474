// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * schema.c - the schema of version 2 (db/README.md explains it), how a catalog comes into being,
 * and how one is recognized.
 *
 * Creation: the catalog is made complete under the name NAME.new, closed, synced, and renamed. A
 * crash before the rename leaves at most NAME.new (and its rollback journal), which the next
 * creation removes; after it, a good catalog.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "db/catalog_internal.h"

_Static_assert(CAT_F_PINNED == 1 && CAT_F_DIR == 2 && CAT_F_ATTR_OWNED == 4 &&
		       CAT_F_SRC_BUSY == 8 && CAT_F_TRUNCATE == 16 && CAT_F_CONFLICT == 32 &&
		       CAT_F_PIN_RANGES == 64 && CAT_F_ALL == 127,
	       "the partial indexes name the bits");
_Static_assert(CAT_G_INTENT == 1, "so does groups_intent");

#define FLAG_INDEX(name, bit)                                                           \
	{                                                                               \
		name, "CREATE INDEX " name " ON files(id) WHERE (flags & " bit ") <> 0" \
	}

/* 1 when this is the only dirty group of its file, else 0; then the rest of the trigger. */
#define ONLY_DIRTY(row, rest)                                        \
	"NOT EXISTS (SELECT 1 FROM groups INDEXED BY groups_dirty\n" \
	"      WHERE dirty_n > 0 AND file_id = " row ".file_id AND idx <> " row ".idx)" rest

/* sqlite keeps the text as it is written here, which is what schema_check_objects() compares. */
static const struct schema_object {
	const char *name, *sql;
} schema[] = {
	{ "meta", "CREATE TABLE meta(\n"
		  "  key TEXT PRIMARY KEY,\n"
		  "  value TEXT NOT NULL\n"
		  ") STRICT, WITHOUT ROWID" },
	{ "files", "CREATE TABLE files(\n"
		   "  id INTEGER PRIMARY KEY,\n"
		   "  flags INTEGER NOT NULL,\n"
		   "  key BLOB NOT NULL UNIQUE,\n"
		   "  size INTEGER, -- NULL: src_size\n"
		   "  mtime_ns INTEGER, -- NULL: src_mtime_ns\n"
		   "  src_size INTEGER NOT NULL,\n"
		   "  src_mtime_ns INTEGER NOT NULL,\n"
		   "  src_ctime_ns INTEGER NOT NULL,\n"
		   "  path BLOB\n"
		   ") STRICT" },
	{ "groups", "CREATE TABLE groups(\n"
		    "  file_id INTEGER NOT NULL REFERENCES files(id) ON DELETE CASCADE,\n"
		    "  idx INTEGER NOT NULL, -- byte offset / 16 MiB\n"
		    "  flags INTEGER NOT NULL,\n"
		    "  present BLOB, -- bitmaps: NULL: no block, x'': every block\n"
		    "  dirty BLOB,\n"
		    "  sum_valid INTEGER NOT NULL, -- bit n: extent n has a sum\n"
		    "  sums BLOB, -- 8 bytes for each bit set, in order\n"
		    "  pinned INTEGER NOT NULL,\n"
		    "  heat BLOB, -- 1 byte per extent\n"
		    "  present_n INTEGER NOT NULL,\n"
		    "  dirty_n INTEGER NOT NULL,\n"
		    "  PRIMARY KEY(file_id, idx)\n"
		    ") STRICT, WITHOUT ROWID" },
	{ "totals", "CREATE TABLE totals(\n"
		    "  one INTEGER PRIMARY KEY CHECK(one = 1),\n"
		    "  files INTEGER NOT NULL,\n"
		    "  dirty_files INTEGER NOT NULL,\n"
		    "  present_n INTEGER NOT NULL,\n"
		    "  dirty_n INTEGER NOT NULL,\n"
		    "  max_id INTEGER NOT NULL\n"
		    ") STRICT" },
	{ "files_path", "CREATE INDEX files_path ON files(path) WHERE path IS NOT NULL" },
	FLAG_INDEX("files_pinned", "1"),
	FLAG_INDEX("files_dir", "2"),
	FLAG_INDEX("files_attr_owned", "4"),
	FLAG_INDEX("files_src_busy", "8"),
	FLAG_INDEX("files_truncate", "16"),
	FLAG_INDEX("files_conflict", "32"),
	FLAG_INDEX("files_pin_ranges", "64"),
	{ "groups_dirty", "CREATE INDEX groups_dirty ON groups(file_id, idx) WHERE dirty_n > 0" },
	{ "groups_intent",
	  "CREATE INDEX groups_intent ON groups(file_id, idx) WHERE (flags & 1) <> 0" },
	{ "files_added", "CREATE TRIGGER files_added AFTER INSERT ON files BEGIN\n"
			 "  UPDATE totals SET files = files + 1, max_id = max(max_id, new.id);\n"
			 "END" },
	{ "files_removed", "CREATE TRIGGER files_removed AFTER DELETE ON files BEGIN\n"
			   "  UPDATE totals SET files = files - 1;\n"
			   "END" },
	{ "groups_added", "CREATE TRIGGER groups_added AFTER INSERT ON groups BEGIN\n"
			  "  UPDATE totals SET present_n = present_n + new.present_n,\n"
			  "    dirty_n = dirty_n + new.dirty_n,\n"
			  "    dirty_files = dirty_files + (new.dirty_n > 0 AND\n"
			  "      " ONLY_DIRTY("new", ");\nEND") },
	{ "groups_changed",
	  "CREATE TRIGGER groups_changed AFTER UPDATE OF present_n, dirty_n ON groups\n"
	  "WHEN old.present_n <> new.present_n OR old.dirty_n <> new.dirty_n BEGIN\n"
	  "  UPDATE totals SET present_n = present_n + new.present_n - old.present_n,\n"
	  "    dirty_n = dirty_n + new.dirty_n - old.dirty_n,\n"
	  "    dirty_files = dirty_files + ((new.dirty_n > 0) - (old.dirty_n > 0)) *\n"
	  "      " ONLY_DIRTY("new", ";\nEND") },
	{ "groups_removed", "CREATE TRIGGER groups_removed AFTER DELETE ON groups BEGIN\n"
			    "  UPDATE totals SET present_n = present_n - old.present_n,\n"
			    "    dirty_n = dirty_n - old.dirty_n,\n"
			    "    dirty_files = dirty_files - (old.dirty_n > 0 AND\n"
			    "      " ONLY_DIRTY("old", ");\nEND") },
};

/* ---- recognition -------------------------------------------------------------------------- */
static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * Page 1 of any version but the first has its checksum where ours has it: so a damaged version
 * number is no other version. (Of our own version the page may be torn, with the WAL to mend it.)
 */
static int judge_version(const uint8_t *page)
{
	uint32_t version = get_be32(page + 60);
	bool sealed = page[20] == PAGE_RESERVED && vfs_page_is_good(page, 1);

	if (version == CATALOG_SCHEMA_VERSION)
		return 0;
	if (version == 1 && page[20] == 0)
		return -EOPNOTSUPP;
	return sealed && version > CATALOG_SCHEMA_VERSION ? -EPROTONOSUPPORT : -EUCLEAN;
}

int schema_check_header(int dir_fd, const char *name)
{
	char path[SQL_PATH_MAX];
	uint8_t page[PAGE_BYTES];
	struct stat st;
	int rc;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return neg_errno();
	if (!S_ISREG(st.st_mode))
		return -EUCLEAN;
	vfs_path(dir_fd, name, path);
	errno = 0;
	rc = vfs_read_first_page(path, page);
	if (rc != SQLITE_OK)
		return sql_errno(NULL, rc);
	/* https://www.sqlite.org/fileformat.html: magic, user version, application id */
	if (memcmp(page, "SQLite format 3", 16) != 0 ||
	    get_be32(page + 68) != CATALOG_APPLICATION_ID)
		return -EUCLEAN;
	return judge_version(page);
}

int schema_check_version(sqlite3 *db)
{
	int64_t id, version;
	int r = sql_get_int(db, "PRAGMA application_id", &id);

	if (r == 0)
		r = sql_get_int(db, "PRAGMA user_version", &version);
	if (r < 0)
		return r;
	if (id != CATALOG_APPLICATION_ID || version < CATALOG_SCHEMA_VERSION)
		return -EUCLEAN;
	return version > CATALOG_SCHEMA_VERSION ? -EPROTONOSUPPORT : 0;
}

static bool is_ours(sqlite3_stmt *s)
{
	const char *name = (const char *)sqlite3_column_text(s, 0);
	const char *sql = (const char *)sqlite3_column_text(s, 1);

	for (size_t i = 0; name && sql && i < ARRAY_SIZE(schema); i++)
		if (strcmp(name, schema[i].name) == 0)
			return strcmp(sql, schema[i].sql) == 0;
	return false;
}

int schema_check_objects(sqlite3 *db)
{
	_cleanup_(cleanup_stmt) sqlite3_stmt *s = NULL;
	size_t n = 0;
	int r;

	/* sqlite_*: its own, for example the statistics of ANALYZE. */
	r = sql_prepare(db, "SELECT name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'",
			&s);
	if (r < 0)
		return r;
	while ((r = sql_step(s)) > 0) {
		if (!is_ours(s))
			return -EUCLEAN;
		n++;
	}
	return r == 0 && n != ARRAY_SIZE(schema) ? -EUCLEAN : r;
}

/* ---- creation ----------------------------------------------------------------------------- */
static int create_objects(sqlite3 *db)
{
	char pragmas[128];
	int r;

	r = sql_exec(db, "PRAGMA page_size = 4096; PRAGMA temp_store = MEMORY;"
			 " PRAGMA synchronous = FULL; BEGIN IMMEDIATE");
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(schema); i++)
		r = sql_exec(db, schema[i].sql);
	if (r < 0)
		return r;
	snprintf(pragmas, sizeof(pragmas), "PRAGMA application_id = %d; PRAGMA user_version = %d;",
		 CATALOG_APPLICATION_ID, CATALOG_SCHEMA_VERSION);
	r = sql_exec(db, pragmas);
	if (r == 0)
		r = sql_exec(db, "INSERT INTO totals VALUES(1, 0, 0, 0, 0, 0); COMMIT;"
				 " PRAGMA journal_mode = WAL");
	return r;
}

/* What stands beside a database; a -wal left by one that is gone must not be applied to ours. */
static int remove_companions(int dir_fd, const char *name)
{
	static const char *const suffix[] = { "-wal", "-shm", "-journal" };
	char path[NAME_MAX + 16];

	for (size_t i = 0; i < ARRAY_SIZE(suffix); i++) {
		snprintf(path, sizeof(path), "%s%s", name, suffix[i]);
		if (unlinkat(dir_fd, path, 0) < 0 && errno != ENOENT)
			return neg_errno();
	}
	return 0;
}

static int create_empty_file(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = -1;

	if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
		return neg_errno();
	/* It names the files of all users; sqlite gives -wal and -shm the same mode. */
	fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? neg_errno() : 0;
}

static int sync_file(int dir_fd, const char *name, int flags)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags);

	if (fd < 0 || fsync(fd) < 0)
		return neg_errno();
	return 0;
}

static int fill_new_file(int dir_fd, const char *name)
{
	_cleanup_(cleanup_sql) sqlite3 *db = NULL;
	int r = sql_open(dir_fd, name, SQL_CREATE, &db);

	return r < 0 ? r : create_objects(db);
}

static int make_complete(int dir_fd, const char *name)
{
	int r = remove_companions(dir_fd, name);

	if (r == 0)
		r = create_empty_file(dir_fd, name);
	if (r == 0)
		r = fill_new_file(dir_fd, name);
	if (r == 0)
		r = sync_file(dir_fd, name, 0);
	return r;
}

int schema_create(int dir_fd, const char *name)
{
	char new_name[NAME_MAX + 1];
	int r;

	snprintf(new_name, sizeof(new_name), "%s.new", name);
	r = make_complete(dir_fd, new_name);
	if (r == 0)
		r = remove_companions(dir_fd, name);
	if (r == 0)
		r = sync_file(dir_fd, ".", O_DIRECTORY);
	if (r == 0 && renameat(dir_fd, new_name, dir_fd, name) < 0)
		r = neg_errno();
	if (r == 0)
		return sync_file(dir_fd, ".", O_DIRECTORY);
	unlinkat(dir_fd, new_name, 0);
	remove_companions(dir_fd, new_name);
	return r;
}
