// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * journal.h - the durability point: an append-only, preallocated, checksummed log on the SSD.
 *
 * The catalog is a checkpoint; the journal has what was made durable since. It is a redo log of row
 * images (a file row, a map group) and of small data, so replaying it twice, or over a catalog that
 * is newer in part, gives the same state. Layout, little-endian, in the file `journal.0` or
 * `journal.1`:
 *
 *   block 0   header: magic "HFSJRNL1", u32 version (2), u32 0, u64 file size, 16 bytes journal id,
 *             u64 XXH3 of the 40 bytes before it
 *   then      frames, each at a multiple of 4096, padded with zeros to one:
 *             0  u32 magic "HFRM"   4  u32 payload bytes, bit 31: the batch goes on
 *                                   8  u64 sequence number
 *             16 16 bytes journal id                        32 u64 XXH3 of the payload
 *             40 u64 durable                                48 u64 XXH3 of bytes 0..47
 *             56 payload: entries
 *             entry: u8 type, u8[3] 0, u32 bytes, then so many bytes, padded to 8
 *
 * A frame is valid if magic, id and both sums fit and its number is its predecessor's + 1. The one
 * after a frame is behind it, or, if there is no valid one, at the first block (the log wrapped).
 * Replay starts at the position which the catalog names and ends before the first batch of which a
 * frame is not valid: frames are written in order and each batch is flushed before anybody is told,
 * so what is behind a torn frame was never acknowledged. A batch counts whole or not at all: a row
 * without its groups would be a size without the data.
 * `durable` is the number of the first frame of the batch: all before it had been flushed when it
 * was written. So a frame whose `durable` is behind the place where replay ended proves that what
 * should be there was acknowledged: it was damaged, or the catalog, which names the position, is
 * older than a checkpoint that made room for this frame. The last batch alone can not be told from
 * one that was being written.
 * After a checkpoint is durable in the catalog, and before anybody relies on that, an entry of type
 * J_CHECKPOINT says so with its position: a catalog that names an earlier one has lost it.
 * A frame may be overwritten only after a checkpoint whose position is behind it is durable.
 * Frames behind a torn one may still be whole on the disk: so a journal is never written to again
 * after a crash or a failed batch; the next one is a new file (the other slot) with a new id.
 *
 * Threads: one at a time (the leader of a commit batch), journal_used() any.
 */
#ifndef HYBRIDFS_TIER_JOURNAL_H
#define HYBRIDFS_TIER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/catalog.h"

#define JOURNAL_BYTES_MAX (128ull << 20)
#define JOURNAL_BYTES_MIN (1ull << 20)
#define JOURNAL_FRAME_MAX (256u << 10) /* payload */

struct journal_pos {
	unsigned slot; /* 0 or 1: which file */
	uint8_t id[16]; /* all zero: there is no journal */
	uint64_t next_seq; /* of the frame expected at `offset` */
	uint64_t offset;
};

struct journal;

/* Make a new, empty journal of that size (rounded down to blocks), durably, its blocks written. */
int journal_create(int dir_fd, unsigned slot, uint64_t bytes, struct journal **ret_j);
/* Open at the position that the catalog knows. -ENOENT; -EUCLEAN: not the journal of `pos`. */
int journal_open(int dir_fd, const struct journal_pos *pos, struct journal **ret_j);
int journal_remove(int dir_fd, unsigned slot);
void journal_close(struct journal *j); /* NULL is fine */
/* Text form of a position, for the catalog; parsing says -EUCLEAN to anything else. */
#define JOURNAL_POS_TEXT 96
void journal_pos_format(const struct journal_pos *pos, char ret_text[JOURNAL_POS_TEXT]);
int journal_pos_parse(const char *text, struct journal_pos *ret_pos);
bool journal_pos_none(const struct journal_pos *pos);
/* Where the next batch will start; none after a failed batch: what is behind may not be read. */
void journal_position(const struct journal *j, struct journal_pos *ret_pos);

/* ---- writing ---- */
/* How many bytes of payload a batch may have; the caller checkpoints when that is not enough. */
uint64_t journal_room(const struct journal *j);
uint64_t journal_used(const struct journal *j);
uint64_t journal_size(const struct journal *j);
/* A batch: put entries, then end. After a failure the journal has no room any more (see above). */
void journal_begin(struct journal *j);
int journal_put_file(struct journal *j, const struct cat_file *f);
int journal_put_group(struct journal *j, uint64_t file_id, const struct cat_group *g);
int journal_put_delete(struct journal *j, uint64_t file_id);
/* Data of this file in earlier frames is obsolete: its object has been synced. */
int journal_put_synced(struct journal *j, uint64_t file_id);
/* Data that is durable with this batch; it stays in the object, which need not be synced. */
int journal_put_data(struct journal *j, uint64_t file_id, uint64_t off, const void *data,
		     uint32_t len);
/* The catalog's checkpoint at that position is durable. */
int journal_put_checkpoint(struct journal *j, const struct journal_pos *pos);
int journal_end(struct journal *j); /* one flush */
void journal_abort(struct journal *j); /* instead of end: nothing of the batch shall count */
/* A checkpoint at that position is durable: everything before it may be overwritten. */
void journal_checkpointed(struct journal *j, const struct journal_pos *pos);

/* ---- replay ---- */
struct journal_entry {
	enum { J_FILE = 1, J_GROUP, J_DELETE, J_DATA, J_SYNCED, J_CHECKPOINT } type;
	uint64_t frame;
	uint64_t file_id;	/* J_CHECKPOINT: the frame from which replay starts */
	struct cat_file file;	/* J_FILE; path borrowed */
	struct cat_group group; /* J_GROUP */
	uint64_t off;		/* J_DATA */
	const void *data;
	uint32_t len;
};
/*
 * Calls fn for every entry of every whole batch from the position on, in order; the position is
 * then behind the last one. A frame whose sums fit but whose entries make no sense, and a
 * checkpoint that the catalog does not know of: -EUCLEAN.
 */
int journal_replay(struct journal *j, int (*fn)(void *arg, const struct journal_entry *e),
		   void *arg, uint64_t *ret_frames);
/* The same without `fn`: is there anything to replay (marks of checkpoints are nothing)? */
int journal_is_empty(struct journal *j, bool *ret_empty);
/*
 * After a replay, for a volume that was not closed: -EUCLEAN when there are frames which prove that
 * it ended too early. Reads the whole journal.
 */
int journal_verify_end(struct journal *j);
/* -EUCLEAN when there is a journal with frames, for a catalog that names none; other errors. */
int journal_verify_none(int dir_fd);
/* Back to `pos`, to replay once more. */
void journal_rewind(struct journal *j, const struct journal_pos *pos);

#endif
