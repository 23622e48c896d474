// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * policy.h - what goes where, as pure functions over numbers: no clock, no locks, no I/O.
 *
 * Heat is a per-extent saturating counter: one per touch while on the SSD, halved each time the
 * eviction hand passes (CLOCK with aging). Admission counts touches of absent extents in the ghost
 * table (ghost.h); sequential runs longer than seq_cutoff do not count.
 */
#ifndef HYBRIDFS_TIER_POLICY_H
#define HYBRIDFS_TIER_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "tier/tfile.h"
#include "tier/volume.h"

/* Offsets from here on are left to SRC alone: near its own maximum file size its errors count. */
#define POLICY_MAX_SSD_OFFSET (1ull << 43)
/* While SRC has less room than the dirty data needs plus this, writes go to SRC itself, which
 * then answers ENOSPC itself, at write time (I7). */
#define POLICY_SRC_RESERVE_BYTES (16ull << 20)

struct policy_write {
	uint64_t off, len;
	uint64_t run_bytes;   /* sequential bytes so far, this write included */
	uint64_t used_bytes, cap_bytes, dirty_bytes; /* of the volume */
	uint64_t src_free_bytes;
	bool ssd_failed;
};
/*
 * Note a read; returns the bytes of the run that it continues or begins. Readahead is several
 * requests at once, which come in any order: whatever lies near the end of the run is part of
 * it, and only new ground counts, so that random reads in a small range are no run. Any thread;
 * a lost update only makes a run look shorter.
 */
uint64_t policy_run_note(struct read_run *r, uint64_t off, uint64_t len);
/* How many bytes behind the end of such a run shall be on their way already; 0: it is too short. */
uint64_t policy_read_ahead(uint64_t run_bytes);

/* Should a write into blocks that are not on the SSD go there? */
bool policy_write_to_ssd(const struct volume_options *o, const struct policy_write *w);

struct policy_writeback {
	uint64_t dirty_bytes, cap_bytes;
	int64_t oldest_dirty_ns, now_ns; /* monotonic */
	bool flush; /* somebody waits for everything to be written back */
};
bool policy_must_write_back(const struct volume_options *o, const struct policy_writeback *w);

/* Is a read of an absent extent worth a promotion? `touches` includes this one. */
bool policy_admit(const struct volume_options *o, unsigned touches, uint64_t run_bytes);
/* May the background put `len` more bytes onto the SSD? */
bool policy_room_to_promote(const struct volume_options *o, uint64_t used, uint64_t cap,
			    uint64_t len);
/* Bytes to evict now; 0 below the high watermark. */
uint64_t policy_evict_bytes(const struct volume_options *o, uint64_t used, uint64_t cap,
			    bool promotions_wait);
uint8_t policy_heat_touch(uint8_t heat);
uint8_t policy_heat_age(uint8_t heat);
/* Pause after the n-th failure in a row (n >= 1). */
int64_t policy_backoff_ns(unsigned failures);

#endif
