// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * catalog.h - the sqlite catalog of one volume: which files have bytes on the SSD, and where.
 *
 * The catalog is the durable state that invariants I1-I4 speak of. It holds, per tracked file, a
 * `struct cat_file` (identity, attributes owned by the SSD, pin), and per 16 MiB of that file a
 * `struct cat_group` (block bitmaps, checksums, heat). Schema, versions and who writes each column:
 * db/README.md.
 *
 * Threads: one writer at a time (the holder of the volume's commit lock) calls catalog_begin() to
 * catalog_commit(); the reading functions may be called from any thread, they use a second
 * connection under an internal mutex. A read sees what is committed when it is called, never a half
 * transaction; the writer too sees its own rows only after the commit. An open catalog does not
 * survive fork().
 *
 * Errors: 0 or -errno (SQLITE_FULL -> -ENOSPC, SQLITE_CORRUPT and SQLITE_NOTADB -> -EUCLEAN, busy
 * -> -EBUSY, I/O -> -EIO); catalog_error() has the text of the last failure. Rows come from a disk
 * and are not trusted: one whose page does not match its checksum, or that breaks the rules of
 * db/README.md, is -EUCLEAN, and nothing is returned of it.
 */
#ifndef HYBRIDFS_DB_CATALOG_H
#define HYBRIDFS_DB_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CATALOG_SCHEMA_VERSION 2

/* Geometry of a map group; fixed by the format. Blocks of 4 KiB, extents of 256 KiB. */
#define CAT_BLOCKS_PER_GROUP  4096u
#define CAT_EXTENTS_PER_GROUP 64u
#define CAT_BITMAP_BYTES      (CAT_BLOCKS_PER_GROUP / 8)
#define CAT_BLOCK_BYTES	      4096u
#define CAT_INDEX_MAX	      ((uint64_t)INT64_MAX >> 24) /* of a group: no byte beyond 2^63 */
#define CAT_KEY_MAX	      144u
#define CAT_PATH_MAX	      65536u /* bytes of a path hint */
#define CAT_META_MAX	      65536u /* bytes of a setting */

/* Flags of a file row. */
#define CAT_F_PINNED	 (1u << 0) /* the whole file, or for a directory: files created in it */
#define CAT_F_DIR	 (1u << 1) /* a pinned directory; has no object and no groups */
#define CAT_F_ATTR_OWNED (1u << 2) /* size and mtime of this row are newer than SRC's */
#define CAT_F_SRC_BUSY	 (1u << 3) /* we may be changing SRC: its size, mtime, ctime may differ */
#define CAT_F_TRUNCATE	 (1u << 4) /* SRC must be cut to `size_bytes` before anything else */
#define CAT_F_CONFLICT	 (1u << 5) /* SRC was changed by somebody else under dirty data (I9) */
#define CAT_F_PIN_RANGES (1u << 6) /* some of its groups have pinned extents */
#define CAT_F_ALL	 ((1u << 7) - 1) /* each has an index in schema.c; other bits are refused */

/* Flags of a group row. */
#define CAT_G_INTENT (1u << 0) /* clean blocks may have been overwritten in the object (I2) */
#define CAT_G_ALL    CAT_G_INTENT

struct cat_file {
	uint64_t id;		  /* 1..INT64_MAX, chosen by the caller, never reused in a volume */
	uint32_t flags;		  /* CAT_F_* */
	uint32_t key_len;	  /* bytes used of `key` */
	uint8_t key[CAT_KEY_MAX]; /* identity of the SRC file, opaque here, unique */
	uint64_t size_bytes;	  /* visible size when CAT_F_ATTR_OWNED */
	int64_t mtime_ns;	  /* visible mtime when CAT_F_ATTR_OWNED, since the epoch */
	uint64_t src_size_bytes;  /* SRC's size, mtime, ctime at the last sync (I9) */
	int64_t src_mtime_ns;
	int64_t src_ctime_ns;
	char *path; /* last known path relative to SRC, for people and for recovery of
			       * filesystems without handles; may be NULL. Loaded rows: owned by the
			       * row, released by cat_file_release(); stored rows: borrowed. */
};

struct cat_group {
	uint64_t index;			   /* byte offset / 16 MiB */
	uint32_t flags;			   /* CAT_G_* */
	uint8_t present[CAT_BITMAP_BYTES]; /* bit n = block n; LSB first */
	uint8_t dirty[CAT_BITMAP_BYTES];   /* subset of present */
	uint64_t sum_valid; /* bit n = sum[n] covers the present blocks of extent n */
	uint64_t sum[CAT_EXTENTS_PER_GROUP];
	uint64_t pinned; /* bit n = extent n is pinned by a range pin */
	uint8_t heat[CAT_EXTENTS_PER_GROUP];
};

struct cat_totals {
	uint64_t files, dirty_files, present_bytes, dirty_bytes;
};

struct catalog;

/*
 * Open or create `name` in the directory `dir_fd`. The catalog keeps its own descriptor of the
 * directory and reaches every file through it: the caller may close dir_fd, and the directory may
 * be renamed or mounted over. Needs /proc. A new catalog is created atomically.
 * Read-only opens create nothing. Where no WAL is left - nobody has the catalog open for writing -
 * they see a fixed snapshot and must not be used beyond the start of a writer; hold the volume's
 * lock or reopen.
 * -ENOENT: read-only, and there is none; -EUCLEAN: not a catalog, or damaged; -EPROTONOSUPPORT:
 * made by a newer version; -EOPNOTSUPP: by one too old; -EINVAL, -ENAMETOOLONG: not a name.
 */
int catalog_open(int dir_fd, const char *name, bool read_only, struct catalog **ret_catalog);
/* Rolls back an open transaction, checkpoints and removes the WAL. NULL is fine. */
void catalog_close(struct catalog *c);
/*
 * Copy the WAL into the database whenever it has more than about `bytes` [16 MiB, which is the
 * most], for small disks. The WAL's file may get four times as large before readers are waited for.
 * -EROFS; errors of sqlite.
 */
int catalog_limit_wal(struct catalog *c, uint64_t bytes);
/*
 * sqlite's integrity_check, then every row and the totals against the rules of db/README.md;
 * -EUCLEAN with the first finding in catalog_error(). Reads everything: seconds to minutes. Works
 * beside a writer and readers, on a connection of its own, but the WAL grows meanwhile.
 */
int catalog_integrity_check(struct catalog *c);
/* Text of the last error on this catalog, for a log line; never NULL. The copy belongs to the
 * calling thread until it asks again. */
const char *catalog_error(struct catalog *c);

/* Was anything -EUCLEAN since it was opened? What is stored from then on may contradict the rest.
 */
bool catalog_is_damaged(struct catalog *c);

/* ---- writing: one writer, inside a transaction -------------------------------------------- */
/*
 * A row that breaks the rules above is refused (-EINVAL, -ENAMETOOLONG), and so is a key that
 * another id has (-EEXIST) and a group of a file without a row (-ENOENT): the transaction goes on
 * without it. After any other failure nothing is left to commit; the later calls and
 * catalog_commit() return the same error. Writing outside a transaction is a bug (assert).
 */
int catalog_begin(struct catalog *c); /* -EROFS: opened read-only */
/*
 * Durable when it returns 0 (synchronous=FULL). On failure everything is rolled back, and
 * catalog_begin() may be tried again; after -EIO alone, whether a crash brings the transaction back
 * is open until the next commit succeeds. Also does the checkpoints of the WAL, so every few
 * thousand pages it takes longer.
 */
int catalog_commit(struct catalog *c);
void catalog_rollback(struct catalog *c);
int catalog_put_file(struct catalog *c, const struct cat_file *f); /* insert or replace by id */
int catalog_delete_file(struct catalog *c, uint64_t id); /* with its groups; 0 if there is none */
/* Insert or replace; a group with nothing present, no pins and no flags is deleted. Sums of extents
 * outside sum_valid are not kept, they load as 0. */
int catalog_put_group(struct catalog *c, uint64_t file_id, const struct cat_group *g);
int catalog_delete_groups_from(struct catalog *c, uint64_t file_id, uint64_t first_index);
int catalog_put_meta(struct catalog *c, const char *key, const char *value); /* NULL: remove */
/*
 * Rewrites the path hints of `from` and everything below it; paths as in cat_file, `from` not
 * empty and without a slash at the end (-EINVAL). A hint that would become longer than
 * CAT_PATH_MAX is dropped. Cost: the rows that change.
 */
int catalog_rename_paths(struct catalog *c, const char *from, const char *to);

/* ---- reading: any thread ------------------------------------------------------------------ */
/* -ENOENT when there is none. The value is malloc'ed, owned by the caller. */
int catalog_get_meta(struct catalog *c, const char *key, char **ret_value);
int catalog_find_file(struct catalog *c, const void *key, size_t key_len, struct cat_file *ret_f);
int catalog_find_id(struct catalog *c, uint64_t id, struct cat_file *ret_f);
/* The file row with the smallest id > after whose flags have one of `any_flags` (0 = any row);
 * -ENOENT at the end. Cost does not depend on the number of rows. */
int catalog_next_file(struct catalog *c, uint64_t after, uint32_t any_flags,
		      struct cat_file *ret_f);
/* The file row with the smallest id > after that has a group with dirty blocks or CAT_G_INTENT;
 * same cost. */
int catalog_next_unsettled(struct catalog *c, uint64_t after, struct cat_file *ret_f);
void cat_file_release(struct cat_file *f);
/* The group with the smallest index >= from of that file; -ENOENT at the end. */
int catalog_next_group(struct catalog *c, uint64_t file_id, uint64_t from, struct cat_group *ret_g);
/* The largest id a row ever had, also one that is deleted; 0 in a new catalog. */
int catalog_max_id(struct catalog *c, uint64_t *ret_id);
/* Sums over all rows, pinned directories included, from counters that triggers keep exact: the cost
 * does not depend on the number of rows. `dirty_files`: files with a dirty block. */
int catalog_totals(struct catalog *c, struct cat_totals *ret_t);
/* The same, counted now: seconds at a million rows, and other reads wait. For check. */
int catalog_recount(struct catalog *c, struct cat_totals *ret_t);

#endif
