// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The stress mode: several processes, each with a file of its own, and two shared files of records
 * of one block each. A record has one writer. Its content follows from (offset, version) alone, so
 * that a reader can tell a whole record, an older one, and a mixture apart.
 *
 * The writers publish in shared memory which version of a record is being written and which is
 * complete. A reader takes the complete one before the read (min) and the started one after it
 * (max): what it sees must be a whole record of a version in [min, max]. Only when a write was
 * under way (min < max) may it be a mixture, byte by byte, of such versions: POSIX filesystems do
 * not promise more for a read beside a write.
 *
 * Two shared files, because Linux does not keep O_DIRECT writes and stores through mappings
 * coherent within one folio (large folios reach over many records), on any filesystem: one is
 * written with pwrite and through mappings, the other with pwrite and O_DIRECT. Both are read in
 * all ways.
 */
#ifndef STRESS_H
#define STRESS_H

#include "model.h"

#include <stdatomic.h>

#define RECORD	     4096
#define RECORDS	     640 /* of each file, 2.5 MiB: ten extents */
#define RUN_MAX	     64	 /* records read at once */
#define STRIPE	     4	 /* neighbouring records of one writer */
#define STRESS_PROCS 64
#define PARENT	     999 /* as a->me */

enum { MAPPED, UNMAPPED, NFILES };

struct shared {
	atomic_uint failed, stop;
	atomic_ullong reads, writes, syncs, mixtures, own_ops;
	atomic_ullong started[NFILES][RECORDS], complete[NFILES][RECORDS];
};

struct actor {
	struct shared *sh;
	const char *dir;
	unsigned int me, procs;
	struct rng rng;
	unsigned char *buf;		/* RUN_MAX records, aligned */
	int fd[NFILES], direct[NFILES]; /* the shared files; direct may be -1 */
	unsigned char *map[NFILES];
};

/* record.c */
/* Version 0 is a record that was never written: zeros. */
void record_make(unsigned char *rec, uint64_t offset, uint64_t version);
/* NULL, or what is wrong. ret_mixed says that it was an allowed mixture. */
const char *record_check(const unsigned char *rec, uint64_t offset, uint64_t min, uint64_t max,
			 bool *ret_mixed);
/* What the record says of itself, for reports. */
void record_describe(const unsigned char *rec, char *out, size_t out_size);

/* Prints the report, lets the others stop, and ends this process. */
_Noreturn void stress_fail(struct actor *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A buffer for O_DIRECT. */
void *stress_buffer(size_t len);
/* stress_own.c: works on the file of this process until sh->stop. One step. */
struct own;
struct own *own_new(struct actor *a);
void own_step(struct actor *a, struct own *o);
void own_free(struct own *o);

#endif
