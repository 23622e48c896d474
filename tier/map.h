// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * map.h - the block map of one file: for each 4 KiB block absent, clean or dirty.
 *
 * Two levels: a sorted array of groups, each of 4096 blocks (16 MiB) in 64 extents (256 KiB), so
 * a fully cached GiB costs 64 groups of 2.8 KiB, 180 KiB; one cached block in an otherwise
 * empty 16 MiB costs one group. The map knows nothing of files, locks or disks: the owner (struct
 * tfile) holds its lock around every call.
 *
 * Besides the durable part (what a struct cat_group holds) a group has, in memory only:
 *   wb        blocks whose data is being written to SRC; a write clears the bit, and only a block
 *             that still has it when SRC is synced becomes clean (I3)
 *   touched   extents written since the last write-back snapshot; their checksum is not computed
 *   intent_durable  the catalog already says CAT_G_INTENT (I2)
 *   removal   some block was made absent and the catalog does not know yet: the durable state may
 *             still say clean for it, so writing there counts as overwriting a clean block (I2),
 *             and its space is not released yet (I4)
 *   unsynced  present blocks whose data is not durable yet, neither in object nor journal (I1)
 *   checkpointing  a checkpoint under way is going to store what this group was: it must not be
 *             forgotten before the next one has stored what it is
 *   seq       the map's clock at the last change of the durable part; committed_seq and
 * checkpoint_seq are what
 *             of it journal or catalog, and the catalog, have (0 = no row of this group)
 */
#ifndef HYBRIDFS_TIER_MAP_H
#define HYBRIDFS_TIER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/catalog.h"

#define BLOCK_BYTES 4096ull
#define EXTENT_BYTES 262144ull
#define GROUP_BYTES (BLOCK_BYTES * CAT_BLOCKS_PER_GROUP)
#define BLOCKS_PER_EXTENT ((unsigned)(EXTENT_BYTES / BLOCK_BYTES))
#define BITMAP_WORDS (CAT_BLOCKS_PER_GROUP / 64)

enum block_state { BLOCK_ABSENT, BLOCK_CLEAN, BLOCK_DIRTY };

struct map_group {
	uint64_t index;
	uint64_t present[BITMAP_WORDS]; /* one word = one extent */
	uint64_t dirty[BITMAP_WORDS];
	uint64_t wb[BITMAP_WORDS];
	uint64_t unsynced[BITMAP_WORDS];
	uint64_t sum[CAT_EXTENTS_PER_GROUP];
	uint64_t sum_valid, pinned, touched;
	uint64_t seq, committed_seq, checkpoint_seq;
	uint8_t heat[CAT_EXTENTS_PER_GROUP];
	bool intent, intent_durable, removal;
	bool checkpointing;
};

_Static_assert(BLOCKS_PER_EXTENT == 64, "one bitmap word is one extent");

struct map {
	struct map_group **groups; /* owned, sorted by index */
	unsigned n_groups, cap;
	uint64_t present_blocks, dirty_blocks;
	uint64_t unsynced_blocks;
	uint64_t unsynced_lo, unsynced_hi; /* group indexes: none is outside; valid while > 0 */
	/* Group indexes: what differs from what is committed is in there. */
	uint64_t changed_lo, changed_hi;
	bool prunable; /* some group may be empty */
	uint64_t clock;	  /* of the groups' seq: a group that is freed and made again must not be
			   * taken for its former self by a commit that is still under way */
	uint64_t changes; /* bumped whenever a block's state changes */
};

struct map_run {
	uint64_t start, end; /* bytes, block-aligned except where clipped by the caller's range */
	enum block_state state;
};

void map_init(struct map *m);
void map_release(struct map *m);
/* NULL when there is none. */
struct map_group *map_find(const struct map *m, uint64_t index);
/* Position in `groups` of the first one with an index >= `index`. */
unsigned map_index(const struct map *m, uint64_t index);
/* The group at or after `index`, NULL at the end. */
struct map_group *map_next(const struct map *m, uint64_t index);
/* Find or make; NULL only without memory. */
struct map_group *map_get(struct map *m, uint64_t index);
/* Drop groups that hold nothing (nothing present, no pin, no intent, all committed). */
void map_prune(struct map *m);

enum block_state map_state(const struct map *m, uint64_t off);
/* The longest run of one state that starts at `start` and ends at or before `end`. Cost: the
 * number of extents in it; absent stretches between groups are skipped at once. */
struct map_run map_run_at(const struct map *m, uint64_t start, uint64_t end);
/* Offset of the first present (resp. dirty) block at or after `off`; UINT64_MAX if none. */
uint64_t map_next_present(const struct map *m, uint64_t off);
uint64_t map_next_dirty(const struct map *m, uint64_t off);

/*
 * Set the state of the blocks of [start, end), which must be block-aligned, and bump the groups'
 * seq. To dirty: clears wb, sets touched, invalidates checksums. To absent: sets `removal`.
 * -ENOMEM only when a group has to be made (never for to-absent); then nothing was changed.
 */
int map_set(struct map *m, uint64_t start, uint64_t end, enum block_state state);
/* Must a write to [start, end) first make an intent durable (I2)? Lists that in the groups. */
bool map_needs_intent(const struct map *m, uint64_t start, uint64_t end);
/* Set `intent` in all groups of the range which hold something. */
void map_set_intent(struct map *m, uint64_t start, uint64_t end);
/* These blocks are going to be written: a write-back under way must not call them clean. */
void map_begin_write(struct map *m, uint64_t start, uint64_t end);

bool map_has_intent(const struct map *m);

void map_group_changed(struct map *m, struct map_group *g);
/* The groups from changed_lo to changed_hi have been looked at; resp. all must be again. */
void map_changes_taken(struct map *m);
void map_all_changed(struct map *m);
void map_group_store(const struct map_group *g, struct cat_group *ret_row);
bool map_group_empty(const struct map_group *g); /* nothing in it that a row would say */
/* Blocks just written: present, and not durable yet. */
void map_set_unsynced(struct map *m, uint64_t start, uint64_t end);
void map_clear_unsynced(struct map *m);
uint64_t map_next_unsynced(const struct map *m, uint64_t off); /* UINT64_MAX at the end */
/* Adds a group read from the catalog. -EEXIST, -ENOMEM. */
int map_load(struct map *m, const struct cat_group *row);

/* Additive checksum: the sum of block_sum() over an extent's present blocks, in any order. */
uint64_t block_sum(const void *data, uint64_t block_no);

#endif
