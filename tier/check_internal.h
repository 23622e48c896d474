// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * check_internal.h - shared by the files of the check only.
 *
 * One file is one `struct subject`: its row and block map as they will be, both descriptors, and
 * what was found. Every step works on the map in memory, also in a dry check; subject_conclude()
 * stores it, in the order that I1 and I4 demand, or does not.
 */
#ifndef HYBRIDFS_TIER_CHECK_INTERNAL_H
#define HYBRIDFS_TIER_CHECK_INTERNAL_H

#include <sys/stat.h>

#include "tier/check.h"
#include "tier/internal.h"
#include "tier/journal.h"
#include "tier/layout.h"

#define OBJECT_PATH_MAX	      40 /* "objects/xx/<16 hex digits>" */
#define LOST_DIR	      "lost+found"
#define FINDINGS_PER_FILE_MAX 32

/* SRC files looked for by walking the tree, where a key alone does not open them. */
struct finder_entry {
	struct src_key key;
	char *path; /* owned; NULL: not found */
};

struct finder {
	struct finder_entry *entries; /* owned; sorted by key once `ran` */
	size_t n, cap;
	bool ran;
};

struct horizons {
	struct horizon *items; /* owned */
	size_t n, cap;
};

struct check {
	const struct check_options *opt;
	const struct check_env *env;
	struct src *src;
	struct check_result *result;
	struct layout l;
	struct catalog *cat;
	bool unclean; /* the last daemon did not finish, or nobody knows */
	bool journal_lost;
	bool journal_unnamed;	 /* the catalog of a clean volume does not say where it is */
	bool interrupted;	 /* a repair was, after the new catalog was complete */
	struct journal *journal; /* owned; of an unclean volume */
	struct journal_pos journal_pos, journal_end;
	struct horizons journal_data; /* files of which a dry check leaves data in the journal */
	uint64_t next_id;	      /* ids below were handed out; 0 = unknown */
	uint64_t *objects;	      /* owned; ids, ascending */
	size_t n_objects;
	uint64_t done_bytes, total_bytes; /* for progress */
	uint64_t ssd_block;		  /* bytes; space is released in multiples of it */
	int lost_fd;			  /* lost+found, once it was needed */
	char *obj_buf, *src_buf;	  /* owned; an extent each */
	struct finder finder;
	char *tmp_path; /* owned; a copy of the catalog is in there */
	int tmp_fd;
	char *error; /* the caller's */
	size_t error_size;
};

struct pending_finding {
	const char *kind, *action; /* static */
	char *detail;		   /* owned */
	bool note, left;
};

struct subject {
	struct check *c;
	struct cat_file row; /* as it will be stored; the path is owned */
	struct src_key key;
	struct map map;
	uint64_t *doubt; /* owned; per group of map, a bit per extent: see subject_find_doubts() */
	int src_fd, obj_fd; /* -1: could not be opened, see src_error, obj_error */
	int src_error, obj_error;
	struct stat src_st, obj_st;
	uint64_t leaked_bytes;
	bool row_changed;
	bool describe; /* write the self-description anew */
	bool remove;   /* row and object */
	int saved_fd;  /* a file in lost+found; -1 = none */
	struct pending_finding found[FINDINGS_PER_FILE_MAX];
	unsigned n_found;
};

/* What an object says about itself. */
struct description {
	struct src_key key;
	char *path; /* owned; NULL: none */
};

/* ---- check.c ---- */
void check_emit(struct check *c, const struct check_finding *f);
/* A finding about the volume as a whole, or about one object: no subject. */
void check_report(struct check *c, const char *kind, const char *object, enum check_outcome outcome,
		  bool note, const char *action, const char *fmt, ...)
	__attribute__((format(printf, 7, 8)));
/* More bytes are done. -EINTR when the caller wants to stop. */
int check_progress(struct check *c, uint64_t bytes);
int check_fail(struct check *c, int r, const char *what); /* fills the error line, returns r */

/* ---- check_catalog.c ---- */
enum catalog_state { CATALOG_GOOD, CATALOG_NONE, CATALOG_DAMAGED };
/*
 * Opens c->cat, for writing if it is good and repairs are wanted, with what the journal has.
 * CATALOG_DAMAGED: c->cat may be NULL, else its rows are not to be relied on; *ret_why (owned by
 * the caller) says what is wrong. -errno.
 */
int check_open_catalog(struct check *c, char **ret_why);
void check_close_catalog(struct check *c);
/* Open a new, empty catalog beside the old one; then put it in its place. */
int check_new_catalog(struct check *c, struct catalog **ret_catalog);
int check_replace_catalog(struct check *c);

/* ---- check_journal.c ---- */
/* c->journal, if there is something in it. -ENOENT, -EUCLEAN, -EIO: that is lost. */
int check_open_journal(struct check *c);
void check_close_journal(struct check *c);
/* Into c->cat, which is open for writing, and if it is a repair into the objects. */
int check_replay_journal(struct check *c, uint64_t *ret_frames);
/* The same, for what of it a damaged catalog takes; NULL: only the objects. */
int check_replay_for_witness(struct check *c, struct catalog *witness);
/* Into the catalog, in a transaction: what was replayed is not replayed again. */
int check_name_journal_end(struct check *c, struct catalog *cat);
/* Does the object lack data that is in the journal? */
bool check_journal_has_data(const struct check *c, uint64_t id);

/* ---- check_object.c ---- */
void check_object_path(uint64_t id, char ret[OBJECT_PATH_MAX]);
/* Fills c->objects; reports what is not ours. */
int check_list_objects(struct check *c);
bool check_object_exists(const struct check *c, uint64_t id);
int check_open_object(struct check *c, uint64_t id, struct stat *ret_st);
int check_remove_object(struct check *c, uint64_t id);
int check_read_description(struct check *c, int fd,
			   struct description *ret); /* -ENODATA, -EINVAL */
int check_write_description(struct check *c, int fd, const struct src_key *key, const char *path);
/* The first data at or after `at`; UINT64_MAX at the end. */
uint64_t check_next_data(int fd, uint64_t at);
/* Additive checksum of the blocks of `mask`; their bytes are in buf. */
uint64_t check_sum(const char *buf, uint64_t base, uint64_t mask);
/* The blocks of `mask` that are not the same in both. */
uint64_t check_different(const char *a, const char *b, uint64_t mask);
/* Bits of the blocks of the extent in which there is data. */
uint64_t check_data_mask(int fd, uint64_t base);
/* Blocks of `mask` into buf; *ret_bad are those that could not be read. Past the end: zeros. */
void check_read_blocks(int fd, char *buf, uint64_t base, uint64_t mask, uint64_t *ret_bad);

/* ---- check_lost.c ---- */
/* A second name of the object in lost+found, durable, with a text that says what it is. */
int check_lost_keep(struct subject *s);
/* Copy blocks of an extent to a file of their own there. */
int check_lost_save(struct subject *s, const char *buf, uint64_t base, uint64_t mask);
int check_lost_sync(struct subject *s);

/* ---- check_find.c ---- */
int finder_add(struct check *c, const struct src_key *key, const char *path);
int finder_run(struct check *c);
const char *finder_path(const struct check *c, const struct src_key *key); /* or NULL */
void finder_release(struct finder *f);

/* ---- check_subject.c ---- */
/* Takes the row over. */
void subject_init(struct subject *s, struct check *c, struct cat_file *row);
void subject_release(struct subject *s);
void subject_find(struct subject *s, const char *kind, const char *action, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void subject_note(struct subject *s, const char *kind, const char *action, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void subject_left(struct subject *s, const char *kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int subject_load_map(struct subject *s, struct catalog *cat);
void subject_open_object(struct subject *s);
void subject_open_src(struct subject *s); /* src_error -ESTALE: it is gone */
bool subject_changed(const struct subject *s);
uint64_t subject_size(const struct subject *s); /* as a mount would show it */
struct src_stamp subject_src_stamp(const struct subject *s);
void subject_adopt_stamp(struct subject *s);
void subject_own_attributes(struct subject *s, uint64_t size, int64_t mtime_ns);
bool subject_dirty(const struct subject *s);
/*
 * Which extents with an intent hold clean blocks that are neither what their checksum says nor what
 * SRC has? It is for the next mount to judge them. Call with both sides open (or not to be opened);
 * group i of the map must stay that.
 */
int subject_find_doubts(struct subject *s);
bool subject_in_doubt(const struct subject *s, unsigned i, unsigned w);
bool subject_any_doubt(const struct subject *s);
/* Blocks of `mask` of word w. */
int subject_set(struct subject *s, uint64_t index, unsigned w, uint64_t mask,
		enum block_state state);
/* Clean blocks of the whole file that are not in doubt become absent; how many there were. */
uint64_t subject_drop_clean(struct subject *s);
bool subject_wants_row(const struct subject *s);
int subject_store(struct subject *s, struct catalog *cat); /* within a transaction */
/* Store, release, remove as the findings say; emits them. */
int subject_conclude(struct subject *s);
void subject_emit(struct subject *s, bool repaired);

static inline uint64_t word_base(uint64_t index, unsigned w)
{
	return index * GROUP_BYTES + w * EXTENT_BYTES;
}

static inline uint64_t clean_mask(const struct map_group *g, unsigned w)
{
	return g->present[w] & ~g->dirty[w];
}

static inline uint64_t mask_bytes(uint64_t mask)
{
	return (unsigned)__builtin_popcountll(mask) * BLOCK_BYTES;
}

/* ---- check_witness.c ---- */
struct witness {
	struct cat_file row; /* the path is owned; id 0: there is none */
	struct map map;	     /* of the groups that could be read */
	bool believed;	     /* SRC's stamp bears it out */
};

/* `old` may be NULL. *skipped counts rows that could not be read, over all calls. */
void witness_ask(struct catalog *old, unsigned *skipped, uint64_t id, struct witness *ret);
void witness_release(struct witness *t);
bool witness_same_key(const struct subject *s, const struct witness *t);
void witness_judge(const struct subject *s, struct witness *t);
/* It had pinned ranges, and none of the groups that say which can be read. */
#define PINS_LOST "had pinned ranges; which, cannot be read any more"
bool witness_lost_pins(const struct witness *t);
/* Pins, and of a believed row size, time and dirty blocks. *differs grows by what is in doubt. */
int witness_take_over(struct subject *s, const struct witness *t, uint64_t *differs);

/* ---- check_space.c ---- */
/* Before anything is made absent. Reports, and fills leaked_bytes. */
void subject_count_leaks(struct subject *s);
/* What is absent in the map, and known to be so by the catalog (I4). */
int subject_release_space(struct subject *s);

/* ---- check_file.c, check_scrub.c, check_compare.c, check_rebuild.c ---- */
int check_file(struct check *c, struct cat_file *row); /* takes the row over */
/* Clean blocks that the object does not have become absent; dirty ones are reported as lost. */
void subject_check_presence(struct subject *s);
/* Verify clean extents; with `holes_only`, just those whose object has holes in them. */
int check_scrub(struct subject *s, bool holes_only);
int check_rebuild(struct check *c, enum catalog_state state, const char *why);
/*
 * Fill the map of an object without a row by comparing it with SRC: see check.h. `witness` is the
 * map of a row that is believed, or NULL. *ret_differs: bytes that only comparison says are dirty.
 */
int check_compare(struct subject *s, const struct map *witness, uint64_t *ret_differs);

#endif
