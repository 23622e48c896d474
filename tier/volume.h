// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * volume.h - one mounted SRC with its directory on the SSD: open, background steps, totals.
 *
 * On the SSD: SSD/volumes/<volume-id>/{lock, catalog.db, objects/}. One daemon owns it (I10): the
 * lock is taken before anything else is read and dropped after the last write.
 *
 * The engine starts no threads and reads no clock: the owner supplies the clock and calls the
 * step functions, each of which does one bounded piece of work.
 */
#ifndef HYBRIDFS_TIER_VOLUME_H
#define HYBRIDFS_TIER_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>

#include "tier/src.h"

enum volume_mode { MODE_WRITEBACK, MODE_WRITETHROUGH, MODE_WRITEAROUND };

struct volume_options {
	uint64_t size_bytes; /* cap; 0 = `size_percent` of the SSD filesystem */
	unsigned size_percent;
	enum volume_mode mode;
	unsigned dirty_percent, dirty_background_percent;	 /* of the cap */
	unsigned dirty_expire_s;
	unsigned high_percent, low_percent; /* watermarks, of the cap */
	uint64_t seq_cutoff_bytes;	    /* 0 = never bypass */
	unsigned promote_hits;
};
void volume_options_init(struct volume_options *o); /* the defaults of contract.md */

struct volume_env {
	/* Nanoseconds. `wall` is what new mtimes are made of (CLOCK_REALTIME_COARSE). */
	int64_t (*wall_ns)(void *ctx);
	int64_t (*monotonic_ns)(void *ctx);
	/* Called when there is new work for the background; must not block. May be NULL. */
	void (*wake)(void *ctx);
	/* The caller of tfile_read() or tfile_write() is about to wait for a disk. May be NULL. */
	void (*waits)(void *ctx);
	/* One line for the log, no newline. level: 3 error, 4 warning, 6 info (as syslog). */
	void (*log)(void *ctx, int level, const char *line);
	/* Without file handles: the present path of a file the caller knows, malloc'ed, or NULL. */
	char *(*path_of)(void *ctx, const struct src_key *key);
	/* Cached pages of this file are stale (SRC changed behind us). May be NULL. */
	void (*invalidate)(void *ctx, const struct src_key *key);
	void *ctx;
};

struct volume;

/*
 * Open the volume of this SRC (initialised by the caller, borrowed, must outlive the volume) on
 * the SSD directory (created if absent), recover after a crash. On failure one line in ret_error
 * (at least 256 bytes): what is wrong, with which path, what to do. -EBUSY: another daemon has it.
 */
int volume_open(struct src *src, const char *ssd_path, const struct volume_options *o,
		const struct volume_env *env, struct volume **ret_v, char *ret_error,
		size_t error_size);
/*
 * Everything committed, marked clean, lock released. Call when no other thread uses the volume
 * and no file is in use. Dirty data stay on the SSD for the next mount unless volume_flush_step()
 * was driven to the end before. -errno when the final commit failed.
 */
int volume_close(struct volume *v);
const char *volume_id(const struct volume *v); /* 32 hex digits */
struct src *volume_src(struct volume *v);
const struct volume_options *volume_options(const struct volume *v);

/* ---- background steps ------------------------------------------------------------------- */
/* One bounded piece of the most urgent background work (commit by age, write-back, eviction,
 * promotion, burial, settling after a crash). > 0: there is more to do now; 0: nothing until
 * env.wake or *ret_wait_ns have passed; -errno: failed, was logged and counted, backs off. */
int volume_step(struct volume *v, int64_t *ret_wait_ns);
/* A flush of everything begins: what was written up to now is going to be found. */
void volume_flush_begin(struct volume *v);
/* Write dirty data back, whatever its age; one step. > 0 more to do, 0 all clean, -errno. Files in
 * conflict are skipped (they stay dirty, counted in status). */
int volume_flush_step(struct volume *v, uint64_t budget, uint64_t *ret_bytes,
		      uint64_t *ret_left_bytes);
/* Make everything durable on the SSD now (syncfs of the mount). */
int volume_commit(struct volume *v);

/* ---- directories: pins ------------------------------------------------------------------- */
int volume_pin_dir(struct volume *v, const struct src_key *key, const char *path);
int volume_unpin_dir(struct volume *v, const struct src_key *key);
bool volume_dir_pinned(struct volume *v, const struct src_key *key); /* memory only, cheap */
/* A directory was renamed: path hints below it follow (only matters without file handles). */
void volume_paths_renamed(struct volume *v, const char *from, const char *to);

/* ---- totals ------------------------------------------------------------------------------ */
/* SRC's statvfs as the mount shows it: free space less what dirty data will still need. */
int volume_statvfs(struct volume *v, struct statvfs *ret);

struct volume_status {
	uint64_t ssd_used_bytes, ssd_cap_bytes, dirty_bytes, pinned_bytes, tracked_files;
	uint64_t hits, misses, read_hit_bytes, read_miss_bytes;
	uint64_t hits_1m, misses_1m, hits_1h, misses_1h;
	uint64_t promotions, demotions, promoted_bytes, demoted_bytes, written_back_bytes;
	uint64_t bypassed_bytes, write_back_bytes_per_s, promote_queue, dirty_files, conflicts;
	uint64_t errors, lost_ranges;
	uint64_t pass_opens, pass_files; /* passthrough: opens so far; files in that state now */
	bool healthy, recovering; /* recovering: work is left to do after a crash */
	char health_reason[256];
};
void volume_status(struct volume *v, struct volume_status *ret);

#endif
