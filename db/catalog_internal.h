// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog_internal.h - what the files of db/ share. Nobody outside db/ includes it, except the unit
 * test, which damages catalogs with it.
 *
 *   vfs.c            sqlite's file layer, relative to a directory descriptor
 *   sql.c            connections, errors, stepping
 *   schema.c         the schema, creation, recognition
 *   blob.c           rows to columns and back
 *   catalog.c        open, close, transactions
 *   catalog_read.c, catalog_write.c, catalog_check.c    the functions of catalog.h
 */
#ifndef HYBRIDFS_DB_CATALOG_INTERNAL_H
#define HYBRIDFS_DB_CATALOG_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "db/base.h"
#include "db/catalog.h"

#define CATALOG_APPLICATION_ID 0x48594653 /* "HYFS", at byte 68 of the file */

/* A value of sqlite: longest path (64 KiB) and every blob of ours fit; a damaged length does not
 * make us allocate more. */
#define SQL_VALUE_MAX_BYTES  (1 << 20)
#define SQL_BUSY_TIMEOUT_MS  5000
#define SQL_WRITER_CACHE_KIB 8192
#define SQL_READER_CACHE_KIB 4096

/*
 * Pages of 4 KiB in the WAL after which a commit also copies them into the database, and after
 * which it first waits for the readers of this process, so that the WAL starts over. At clean
 * operation the WAL stays under the first figure plus one transaction; a reader in another process
 * (the sqlite3 shell in a transaction) can hold it back, and then it grows.
 */
#define WAL_CHECKPOINT_PAGES 4096 /* unless catalog_limit_wal() says less */
#define WAL_RESTART_FACTOR   4

/* Prepared statements, kept while the catalog is open. The text is in sql.c. */
enum stmt_id {
	R_GET_META,
	R_FIND_KEY,
	R_FIND_ID,
	R_NEXT_FILE,
	R_NEXT_FLAGGED,
	R_NEXT_UNSETTLED,
	R_NEXT_GROUP,
	R_TOTALS,
	R_RECOUNT,
	W_BEGIN,
	W_COMMIT,
	W_ROLLBACK,
	W_UPDATE_FILE,
	W_PUT_FILE,
	W_DELETE_FILE,
	W_PUT_GROUP,
	W_DELETE_GROUP,
	W_DELETE_GROUPS_FROM,
	W_PUT_META,
	W_DELETE_META,
	W_RENAME_ONE,
	W_RENAME_BELOW,
	STMT_COUNT,
};
#define STMT_FIRST_WRITE W_BEGIN

struct catalog {
	int dir_fd; /* owned; every path of sqlite goes through it */
	char name[NAME_MAX + 1];
	bool snapshot;			/* read-only and without a WAL: opened as immutable */
	sqlite3 *writer;		/* owned; NULL when read-only */
	sqlite3 *reader;		/* owned; under read_lock */
	sqlite3_stmt *stmt[STMT_COUNT]; /* owned; R_* under read_lock, W_* the writer's */

	/* The writer's: a transaction is open; its first failure that only a rollback cures. */
	bool in_transaction;
	int transaction_error;
	int wal_pages;	     /* in the WAL after the last commit */
	int wal_limit_pages; /* see WAL_CHECKPOINT_PAGES */

	_Atomic bool damaged; /* something was found to be -EUCLEAN since it was opened */
	pthread_mutex_t read_lock;
	pthread_mutex_t error_lock; /* innermost; protects `error` */
	char error[256];
};

/* ---- vfs.c -------------------------------------------------------------------------------- */
#define SQL_PATH_MAX (NAME_MAX + 64)
/* The name of the VFS to open with, registered at first use; NULL when sqlite has none for unix. */
const char *vfs_name(void);
/* "/proc/self/fd/N/name" into a buffer of SQL_PATH_MAX. */
void vfs_path(int dir_fd, const char *name, char *ret_path);
/* A page of the database; its last bytes are not sqlite's, but our checksum of the others. */
#define PAGE_BYTES    4096
#define PAGE_RESERVED 8
#define HEADER_BYTES  100 /* at the start of page 1 */
/* The first page, without locks, journals or any change; an sqlite result code. Not verified. */
int vfs_read_first_page(const char *path, uint8_t ret_page[PAGE_BYTES]);
void vfs_seal_page(uint8_t *page, uint64_t number);
bool vfs_page_is_good(const uint8_t *page, uint64_t number);
/* After SQLITE_IOERR_DATA in this thread: the page whose checksum does not match. From 1. */
uint64_t vfs_bad_page(void);

/* ---- sql.c -------------------------------------------------------------------------------- */
enum sql_mode {
	SQL_CREATE,   /* a new, empty file */
	SQL_WRITE,    /* the writer */
	SQL_READ,     /* reads through the WAL */
	SQL_SNAPSHOT, /* the database file alone; creates and locks nothing */
};
extern const char *const sql_text[STMT_COUNT];

/* The only place where a result code of sqlite becomes -errno. `db` may be NULL. */
int sql_errno(sqlite3 *db, int rc);
/* Open without reading the file. */
int sql_open(int dir_fd, const char *name, enum sql_mode mode, sqlite3 **ret_db);
void sql_close(sqlite3 *db);
int sql_exec(sqlite3 *db, const char *sql);
/* First column of the first row; -EUCLEAN when it is not an integer. */
int sql_get_int(sqlite3 *db, const char *sql, int64_t *ret_value);
int sql_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret_stmt);
/* 1: a row; 0: done; -errno. */
int sql_step(sqlite3_stmt *s);

static inline void cleanup_sql(sqlite3 **db)
{
	sql_close(*db);
}

static inline void cleanup_stmt(sqlite3_stmt **s)
{
	sqlite3_finalize(*s);
}

/* ---- schema.c ----------------------------------------------------------------------------- */
/* A good, empty catalog called `name` appears in one step, or nothing does. */
int schema_create(int dir_fd, const char *name);
/* -EUCLEAN: not ours; -EPROTONOSUPPORT: ours, but newer; -EOPNOTSUPP: older. Reads one page. */
int schema_check_header(int dir_fd, const char *name);
/* The same for what the WAL says; before anything else on a new connection. */
int schema_check_version(sqlite3 *db);
/* -EUCLEAN unless every table, index and trigger is, word for word, the one we create. */
int schema_check_objects(sqlite3 *db);

/* ---- blob.c ------------------------------------------------------------------------------- */
/* The columns, in this order, that blob_get_file() and blob_get_group() take a row from. */
#define FILE_COLUMNS                                                                    \
	"files.id, flags, key, ifnull(size, src_size), ifnull(mtime_ns, src_mtime_ns)," \
	" src_size, src_mtime_ns, src_ctime_ns, path"
#define FILE_COLUMN_COUNT 9
#define GROUP_COLUMNS \
	"file_id, idx, flags, present, dirty, sum_valid, sums, pinned, heat, present_n, dirty_n"

/* -EINVAL or -ENAMETOOLONG when the row breaks the rules of catalog.h. */
int blob_check_file(const struct cat_file *f);
int blob_check_group(uint64_t file_id, const struct cat_group *g);
unsigned int blob_count_bits(const uint8_t *bits, size_t size_bytes);
/* Parameters ?1.. of W_UPDATE_FILE and W_PUT_FILE, and of W_PUT_GROUP. The row is borrowed until
 * the statement is reset. An sqlite result code. */
int blob_bind_file(sqlite3_stmt *s, const struct cat_file *f);
int blob_bind_group(sqlite3_stmt *s, uint64_t file_id, const struct cat_group *g);
/* -EUCLEAN: the row is damaged, and *ret_why says how; -ENOMEM. */
int blob_get_file(sqlite3_stmt *s, struct cat_file *ret_f, const char **ret_why);
int blob_get_group(sqlite3_stmt *s, uint64_t *ret_file_id, struct cat_group *ret_g,
		   const char **ret_why);
/* A NUL-terminated copy of a value without NUL bytes. */
int blob_get_text(sqlite3_stmt *s, int column, size_t max_bytes, char **ret_text);

/* ---- catalog.c ---------------------------------------------------------------------------- */
/* Keep the text for catalog_error(), and return `error`. */
int catalog_fail_sql(struct catalog *c, sqlite3 *db, int error);
int catalog_fail(struct catalog *c, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Bind and step one row of a kept statement between these two; `r` is handed through. */
sqlite3_stmt *catalog_read_begin(struct catalog *c, enum stmt_id id);
int catalog_read_end(struct catalog *c, sqlite3_stmt *s, int r);

#endif
