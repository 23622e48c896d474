// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/policy.h"

#include "db/base.h"

#define SECOND_NS 1000000000ll
#define BACKOFF_MAX_S 60

void volume_options_init(struct volume_options *o)
{
	*o = (struct volume_options){
		.size_percent = 90,
		.mode = MODE_WRITEBACK,
		.dirty_percent = 60,
		.dirty_background_percent = 20,
		.dirty_expire_s = 30,
		.high_percent = 90,
		.low_percent = 85,
		.seq_cutoff_bytes = 4u << 20,
		.promote_hits = 2,
	};
}

static uint64_t percent_of(uint64_t cap, unsigned percent)
{
	return cap / 100 * percent + cap % 100 * percent / 100;
}

#define RUN_WINDOW_BYTES (512u << 10)
#define RUN_WINDOW_READS 4

/* The window grows with the run. What a disk streams in 25 ms covers the gap between two requests
 * of the kernel; an array with several disks needs no more than this either. */
#define READ_AHEAD_FROM_BYTES (256u << 10)
#define READ_AHEAD_MAX_BYTES (4u << 20)

uint64_t policy_run_note(struct read_run *r, uint64_t off, uint64_t len)
{
	uint64_t next = __atomic_load_n(&r->next, __ATOMIC_RELAXED);
	uint64_t bytes = __atomic_load_n(&r->bytes, __ATOMIC_RELAXED);
	uint64_t window = max_u64(RUN_WINDOW_READS * len, RUN_WINDOW_BYTES), end = off + len;

	if (bytes == 0 || off > next + window || off + window < next) {
		bytes = len;
		next = end;
	} else if (end > next) {
		bytes += end - next;
		next = end;
	}
	__atomic_store_n(&r->next, next, __ATOMIC_RELAXED);
	__atomic_store_n(&r->bytes, bytes, __ATOMIC_RELAXED);
	return bytes;
}

uint64_t policy_read_ahead(uint64_t run_bytes)
{
	if (run_bytes < READ_AHEAD_FROM_BYTES)
		return 0;
	return min_u64(run_bytes, READ_AHEAD_MAX_BYTES);
}

bool policy_write_to_ssd(const struct volume_options *o, const struct policy_write *w)
{
	if (o->mode != MODE_WRITEBACK || w->ssd_failed)
		return false;
	if (w->off + w->len > POLICY_MAX_SSD_OFFSET)
		return false;
	if (o->seq_cutoff_bytes && w->run_bytes > o->seq_cutoff_bytes)
		return false;
	if (w->used_bytes + w->len + 2 * 4096 > w->cap_bytes)
		return false;
	if (w->dirty_bytes + w->len > percent_of(w->cap_bytes, o->dirty_percent))
		return false;
	return w->dirty_bytes + w->len + POLICY_SRC_RESERVE_BYTES <= w->src_free_bytes;
}

bool policy_must_write_back(const struct volume_options *o, const struct policy_writeback *w)
{
	if (w->flush || o->mode != MODE_WRITEBACK)
		return true;
	if (w->dirty_bytes > percent_of(w->cap_bytes, o->dirty_background_percent))
		return true;
	return w->now_ns - w->oldest_dirty_ns >= (int64_t)o->dirty_expire_s * SECOND_NS;
}

bool policy_admit(const struct volume_options *o, unsigned touches, uint64_t run_bytes)
{
	if (o->seq_cutoff_bytes && run_bytes > o->seq_cutoff_bytes)
		return false;
	return touches >= o->promote_hits;
}

bool policy_room_to_promote(const struct volume_options *o, uint64_t used, uint64_t cap,
			    uint64_t len)
{
	return used + len <= percent_of(cap, o->high_percent);
}

uint64_t policy_evict_bytes(const struct volume_options *o, uint64_t used, uint64_t cap,
			    bool promotions_wait)
{
	uint64_t low = percent_of(cap, o->low_percent);
	uint64_t trigger = promotions_wait ? low : percent_of(cap, o->high_percent);

	return used > trigger && used > low ? used - low : 0;
}

uint8_t policy_heat_touch(uint8_t heat)
{
	return heat < UINT8_MAX ? heat + 1 : heat;
}

uint8_t policy_heat_age(uint8_t heat)
{
	return heat / 2;
}

int64_t policy_backoff_ns(unsigned failures)
{
	unsigned s = failures > 6 ? BACKOFF_MAX_S : 1u << (failures - 1);

	return (int64_t)min_u64(s, BACKOFF_MAX_S) * SECOND_NS;
}
