// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ghost.h - touch counts of extents that are not on the SSD, in fixed memory (1 MiB) however many
 * files there are. A 2-way table of (tag, count, age): the less touched and older of the two
 * candidates gives way, so a scan of cold data cannot wipe out the counts of warm data. Counts
 * fade: an entry not touched for GHOST_FADE epochs starts again. Lossy by design, never wrong in
 * a way that matters: a lost count delays a promotion.
 * Threads: any; lock-free, racing touches may lose one count.
 */
#ifndef HYBRIDFS_TIER_GHOST_H
#define HYBRIDFS_TIER_GHOST_H

#include <stdatomic.h>
#include <stdint.h>

#define GHOST_SETS 65536u
#define GHOST_WAYS 2u
#define GHOST_FADE 60u /* epochs; the volume makes one a minute */

struct ghost {
	_Atomic uint64_t *entries; /* owned; tag:40 epoch:16 count:8 */
	_Atomic uint32_t epoch;
};

int ghost_init(struct ghost *g);
void ghost_release(struct ghost *g);
/* Count one touch; returns the touches so far, this one included. */
unsigned ghost_touch(struct ghost *g, uint64_t file_hash, uint64_t extent);
void ghost_forget(struct ghost *g, uint64_t file_hash, uint64_t extent);
void ghost_tick(struct ghost *g);

#endif
