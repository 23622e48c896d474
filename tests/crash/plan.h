// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What each workload does, as a function of (seed, process, step): the writer follows the plan, the
 * checker computes from it what may be on the disks. So a mark only has to say how far a process
 * had got, and nothing is kept besides the log of the devices.
 *
 * Steps of a process are numbered from 1. Step 0 is the set-up, synced and marked as such.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_BLOCK	  4096
#define OVER_BLOCKS	  256  /* of each process, in one file, from block p * 256 on */
#define COLD_BLOCKS	  1024 /* of each process, in a file of its own */
#define OVER_BLOCKS_MAX	  COLD_BLOCKS
#define OVER_RUN_MAX	  64
#define COLD_READS	  4
#define APPEND_RECORD_MAX 204800
#define APPEND_FILE_MAX	  (6u << 20) /* an append process ends there */
#define RENAME_NAMES	  6
#define RENAME_BYTES_MAX  90000
#define SQL_ROWS	  64 /* rows that a database keeps */
#define SQL_BODY_MAX	  200000
#define TRUNC_BYTES_MAX	  (384u << 10)
#define TRUNC_IO_MAX	  (64u << 10)

/* Workloads, in the order of plan_names. "mixed" runs one process or two of each of them. */
enum workload { W_APPEND, W_OVERWRITE, W_RENAME, W_SQLITE, W_TRUNCATE, W_COLD, W_COUNT };

extern const char *const plan_names[W_COUNT];

/* A 64-bit hash of its arguments; the source of all choices. Also used by cut.c. */
uint64_t hash_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

/* Which process of which workload. */
struct actor {
	uint64_t seed;
	enum workload workload;
	unsigned int proc;
};

/* hash_of for a step of this actor; salt tells several choices of one step apart. */
uint64_t actor_hash(const struct actor *a, uint64_t step, unsigned int salt);

/* The actor calls fsync after this step, at the latest after 8. */
bool plan_syncs(const struct actor *a, uint64_t step);

/* Fill len bytes that no other step, block or actor would write: header, then a pattern. */
void plan_fill(const struct actor *a, uint64_t step, uint64_t where, void *buf, size_t len);

/* append: the length of record `step`. */
size_t plan_append_len(const struct actor *a, uint64_t step);

/* overwrite, cold: how many blocks the actor has, and where they begin in its file. */
unsigned int plan_over_blocks(const struct actor *a);
uint64_t plan_over_start(const struct actor *a);

/* overwrite, cold: step writes *ret_count of the actor's blocks, from *ret_first on. */
void plan_over(const struct actor *a, uint64_t step, unsigned int *ret_first,
	       unsigned int *ret_count);

/* cold: before step these are read, as the n-th of COLD_READS, from block *ret_first on. */
void plan_cold_read(const struct actor *a, uint64_t step, unsigned int n, unsigned int *ret_first,
		    unsigned int *ret_count);

/* rename: step replaces (or, *ret_unlink, removes) this name by a file of *ret_len bytes. */
void plan_rename(const struct actor *a, uint64_t step, unsigned int *ret_name, bool *ret_unlink,
		 size_t *ret_len);

/* sqlite: the length of the row that transaction `step` inserts. */
size_t plan_sql_len(const struct actor *a, uint64_t step);

/* truncate: one operation on a file of at most TRUNC_BYTES_MAX. */
struct trunc_op {
	enum { T_WRITE, T_APPEND, T_TRUNCATE, T_PUNCH, T_ZERO, T_EXTEND } kind;
	size_t off, len; /* T_TRUNCATE: off is the new size */
};

/* What the file is after some steps. */
struct trunc_state {
	size_t size;
	bool grown; /* the last step made it longer without a write */
	unsigned char data[TRUNC_BYTES_MAX]; /* zero past size */
};

/* Choose operation `step` on a file that is as *s. */
struct trunc_op plan_trunc(const struct actor *a, uint64_t step, const struct trunc_state *s);

/* Do it in memory. */
void plan_trunc_apply(const struct actor *a, uint64_t step, const struct trunc_op *op,
		      struct trunc_state *s);

#endif
