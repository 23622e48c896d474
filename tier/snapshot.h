// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * snapshot.h - what is changed about one file, copied under its lock, on its way to the journal or
 * to the catalog; and what is noted in the file once it is durable there.
 *
 * Two durable places: "committed" means in journal or catalog, whichever is newer; "checkpointed"
 * means in the catalog. Every counter of what is committed only moves forward (a checkpoint may
 * finish after newer journal batches), and marks that protect a crash (intent, busy) are dropped in
 * memory before the copy that forgets them becomes durable.
 */
#ifndef HYBRIDFS_TIER_SNAPSHOT_H
#define HYBRIDFS_TIER_SNAPSHOT_H

#include "tier/internal.h"

/* Data of one file that rides in the journal, per batch. More is synced in the object. */
#define SNAPSHOT_DATA_BLOCKS 16u

struct snapshot {
	struct tfile *f; /* borrowed */
	struct cat_file row;
	struct cat_group *groups; /* owned */
	uint64_t *group_seqs;	  /* owned */
	unsigned n_groups;
	uint64_t seq, data_seq, obj_wseq, journal_data, sync_wanted;
	uint64_t data[SNAPSHOT_DATA_BLOCKS]; /* offsets of blocks not yet durable */
	unsigned n_data;
	bool has_row, delete_row, skip;
	bool row_only; /* the map is not loaded: its groups are as they are stored */
	bool sync, sync_new; /* the object has to be synced, its directory entry too */
	bool synced_mark;    /* earlier journal data of this file is obsolete with the sync */
	bool dirty;
	int error;
};

/* Copies. `journal`: for the journal, with small data; else for the catalog. */
void snapshot_take(struct snapshot *s, struct tfile *f, bool journal);
/* The object of every snapshot that wants it (I1: after the copy, before it is stored). */
void snapshot_sync(struct volume *v, struct snapshot *s, unsigned n);
/* Durable now (error 0) or failed: note it in the file. Frees the copy. */
void snapshot_finish(struct snapshot *s, bool journal, uint64_t gen, int error);

/* It is not going to be stored: the file is changed as before. Frees as well. */
void snapshot_undo(struct snapshot *s, bool journal);

#endif
