// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog.c - open, close, and the life of a transaction.
 *
 * Two connections: the writer belongs to whoever holds the volume's commit lock, the reader is
 * shared under read_lock. A reader's statement is stepped and reset under the lock, so no read
 * transaction outlives a call: the next call sees what has been committed since, and a checkpoint
 * is never kept from reusing the WAL.
 *
 * A transaction that failed in a way that leaves nothing to commit (disk full, I/O error, memory:
 * sqlite may or may not have rolled it back itself) is remembered in transaction_error. Without
 * that, the writes after it would each commit on their own.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "db/catalog_internal.h"

#define SUFFIX_ROOM 12 /* for ".new-journal" */
#define FILES_OF_CATALOG 4

/* ---- errors ------------------------------------------------------------------------------- */
int catalog_fail(struct catalog *c, int error, const char *format, ...)
{
	va_list ap;

	if (error == -EUCLEAN)
		atomic_store(&c->damaged, true);
	pthread_mutex_lock(&c->error_lock);
	va_start(ap, format);
	vsnprintf(c->error, sizeof(c->error), format, ap);
	va_end(ap);
	pthread_mutex_unlock(&c->error_lock);
	return error;
}

int catalog_fail_sql(struct catalog *c, sqlite3 *db, int error)
{
	int rc = sqlite3_extended_errcode(db);

	if (rc == SQLITE_IOERR_DATA)
		return catalog_fail(c, error, "page %llu does not match its checksum",
				    (unsigned long long)vfs_bad_page());
	return catalog_fail(c, error, "%s (sqlite %d, errno %d)", sqlite3_errmsg(db), rc,
			    sqlite3_system_errno(db));
}

bool catalog_is_damaged(struct catalog *c)
{
	return atomic_load(&c->damaged);
}

const char *catalog_error(struct catalog *c)
{
	static _Thread_local char text[sizeof(c->error)];

	pthread_mutex_lock(&c->error_lock);
	memcpy(text, c->error, sizeof(text));
	pthread_mutex_unlock(&c->error_lock);
	return text;
}

/* ---- open and close ----------------------------------------------------------------------- */
static int catalog_new(int dir_fd, const char *name, struct catalog **ret_catalog)
{
	_cleanup_free_ struct catalog *c = NULL;
	size_t len = strlen(name);

	if (len == 0 || strchr(name, '/'))
		return -EINVAL;
	if (len > NAME_MAX - SUFFIX_ROOM)
		return -ENAMETOOLONG;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	memcpy(c->name, name, len + 1);
	/* Not a duplicate: the caller's may be an O_PATH descriptor, which can not be synced. */
	c->dir_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir_fd < 0)
		return neg_errno();
	pthread_mutex_init(&c->read_lock, NULL);
	pthread_mutex_init(&c->error_lock, NULL);
	*ret_catalog = TAKE_PTR(c);
	return 0;
}

void catalog_close(struct catalog *c)
{
	if (!c)
		return;
	if (c->in_transaction)
		catalog_rollback(c);
	for (size_t i = 0; i < STMT_COUNT; i++)
		sqlite3_finalize(c->stmt[i]);
	/* The writer last: the last connection checkpoints the WAL and removes it. */
	sql_close(c->reader);
	sql_close(c->writer);
	pthread_mutex_destroy(&c->error_lock);
	pthread_mutex_destroy(&c->read_lock);
	close(c->dir_fd);
	free(c);
}

static void cleanup_catalog(struct catalog **c)
{
	catalog_close(*c);
}

static bool has_wal(const struct catalog *c)
{
	char wal[NAME_MAX + 8];

	snprintf(wal, sizeof(wal), "%s-wal", c->name);
	return faccessat(c->dir_fd, wal, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int count_wal_pages(void *arg, sqlite3 *db, const char *schema_name, int pages)
{
	struct catalog *c = arg;

	(void)db;
	(void)schema_name;
	c->wal_pages = pages;
	return SQLITE_OK;
}

static int set_pragmas(sqlite3 *db, int cache_kib)
{
	char sql[160];

	snprintf(sql, sizeof(sql),
		 "PRAGMA cell_size_check = 1; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;"
		 " PRAGMA cache_size = -%d",
		 cache_kib);
	return sql_exec(db, sql);
}

/* Once sqlite has read the header through the WAL: nothing is changed before this has passed. */
static int check_connection(sqlite3 *db, int cache_kib)
{
	int r = schema_check_version(db);

	if (r == 0)
		r = set_pragmas(db, cache_kib);
	return r == 0 ? schema_check_objects(db) : r;
}

/* The file is cut to what the WAL may need before it starts over. */
int catalog_limit_wal(struct catalog *c, uint64_t bytes)
{
	char sql[64];
	uint64_t pages = bytes / PAGE_BYTES;

	if (!c->writer)
		return -EROFS;
	c->wal_limit_pages = pages < 1 ? 1 : (int)min_u64(pages, WAL_CHECKPOINT_PAGES);
	snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit = %lld",
		 (long long)c->wal_limit_pages * WAL_RESTART_FACTOR * PAGE_BYTES);
	return sql_exec(c->writer, sql);
}

static int open_writer(struct catalog *c)
{
	int r = sql_open(c->dir_fd, c->name, SQL_WRITE, &c->writer);

	if (r == 0)
		r = check_connection(c->writer, SQL_WRITER_CACHE_KIB);
	if (r == 0)
		r = sql_exec(c->writer, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
					" PRAGMA foreign_keys = 1");
	if (r == 0)
		r = catalog_limit_wal(c, (uint64_t)WAL_CHECKPOINT_PAGES * PAGE_BYTES);
	if (r < 0)
		return r;
	/* Instead of sqlite's automatic checkpoint; see checkpoint(). */
	sqlite3_wal_hook(c->writer, count_wal_pages, c);
	return r;
}

static int open_reader(struct catalog *c, bool read_only)
{
	int r;

	c->snapshot = read_only && !has_wal(c);
	r = sql_open(c->dir_fd, c->name, c->snapshot ? SQL_SNAPSHOT : SQL_READ, &c->reader);
	return r == 0 ? check_connection(c->reader, SQL_READER_CACHE_KIB) : r;
}

static int prepare_all(struct catalog *c)
{
	int r = 0;

	for (int i = 0; r == 0 && i < STMT_FIRST_WRITE; i++)
		r = sql_prepare(c->reader, sql_text[i], &c->stmt[i]);
	for (int i = STMT_FIRST_WRITE; r == 0 && c->writer && i < STMT_COUNT; i++)
		r = sql_prepare(c->writer, sql_text[i], &c->stmt[i]);
	return r;
}

/* A file that sqlite could not create it tries to open for reading, and tells of that only:
 * ENOENT. */
static int why_not_created(int dir_fd)
{
	_cleanup_close_ int fd = openat(dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	struct statvfs fs;

	if (fd < 0 && (errno == ENOSPC || errno == EDQUOT))
		return -ENOSPC;
	/* What had been created before is removed again by now. */
	return fstatvfs(dir_fd, &fs) == 0 && fs.f_files > 0 && fs.f_favail < FILES_OF_CATALOG ?
		       -ENOSPC :
		       -EIO;
}

int catalog_open(int dir_fd, const char *name, bool read_only, struct catalog **ret_catalog)
{
	_cleanup_(cleanup_catalog) struct catalog *c = NULL;
	int r = catalog_new(dir_fd, name, &c);

	if (r < 0)
		return r;
	r = schema_check_header(c->dir_fd, c->name);
	if (r == -ENOENT && !read_only)
		r = schema_create(c->dir_fd, c->name);
	if (r == 0 && !read_only)
		r = open_writer(c);
	if (r == 0)
		r = open_reader(c, read_only);
	if (r == 0)
		r = prepare_all(c);
	if (r == -ENOENT && !read_only)
		r = why_not_created(dir_fd);
	if (r == 0)
		*ret_catalog = TAKE_PTR(c);
	return r;
}

/* ---- transactions ------------------------------------------------------------------------- */
static int run(struct catalog *c, enum stmt_id id)
{
	int r = sql_step(c->stmt[id]);

	if (r < 0)
		r = catalog_fail_sql(c, c->writer, r);
	sqlite3_reset(c->stmt[id]);
	return r;
}

int catalog_begin(struct catalog *c)
{
	int r;

	if (!c->writer)
		return catalog_fail(c, -EROFS, "opened read-only");
	assert(!c->in_transaction);
	r = run(c, W_BEGIN);
	c->in_transaction = r == 0;
	c->transaction_error = 0;
	return r;
}

void catalog_rollback(struct catalog *c)
{
	assert(c->in_transaction);
	c->in_transaction = false;
	/* sqlite has already rolled back after some failures. One of ROLLBACK itself (pages can
	 * not be read again) still ends the transaction. */
	if (!sqlite3_get_autocommit(c->writer)) {
		sqlite3_step(c->stmt[W_ROLLBACK]);
		sqlite3_reset(c->stmt[W_ROLLBACK]);
	}
}

/* Keep our readers out, so that the WAL starts over; other processes' are not waited for. */
static void restart_wal(struct catalog *c)
{
	pthread_mutex_lock(&c->read_lock);
	sqlite3_busy_timeout(c->writer, 0);
	sqlite3_wal_checkpoint_v2(c->writer, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	sqlite3_busy_timeout(c->writer, SQL_BUSY_TIMEOUT_MS);
	pthread_mutex_unlock(&c->read_lock);
}

/*
 * Copies the WAL into the database. A failure (no space for the database to grow) is no failure
 * of the commit, which is durable; the next commit tries again.
 */
static void checkpoint(struct catalog *c)
{
	if (c->wal_pages < c->wal_limit_pages)
		return;
	if (c->wal_pages < c->wal_limit_pages * WAL_RESTART_FACTOR)
		sqlite3_wal_checkpoint_v2(c->writer, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	else
		restart_wal(c);
}

int catalog_commit(struct catalog *c)
{
	int r;

	assert(c->in_transaction);
	r = c->transaction_error;
	if (r == 0)
		r = run(c, W_COMMIT);
	if (r < 0) {
		catalog_rollback(c);
		/* What the WAL has can make room for the next try. */
		if (r == -ENOSPC)
			restart_wal(c);
		return r;
	}
	c->in_transaction = false;
	checkpoint(c);
	return 0;
}
