// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What have programs changed in an object that they write to by themselves? An extent without dirty
 * blocks has the checksum of what SRC holds: where the object has another one, it is dirty. The
 * same comparison after the last of them is gone is the whole truth; before, it is for freshness,
 * and the intents stay. A write that comes while an extent is read moves the object's mtime, and
 * the next scan sees it.
 */
#include "tier/pass.h"

/* ---- one extent --------------------------------------------------------------------------- */
struct look {
	uint64_t base, mask, sum; /* of an extent, as the map has it */
};

/* Write-back is going to move SRC's times: those that are shown stay ours. */
static void own_times_locked(struct tfile *f)
{
	if (f->attr_owned)
		return;
	f->mtime = ns_timespec(f->stamp.mtime_ns);
	f->ctime = ns_timespec(f->stamp.ctime_ns);
	f->mtime_seq++;
	f->attr_owned = f->ctime_kept = true;
}

static void set_dirty_locked(struct tfile *f, uint64_t base, uint64_t mask)
{
	own_times_locked(f);
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			(void)tfile_map_set_locked(f, base + b * BLOCK_BYTES,
						   base + (b + 1) * BLOCK_BYTES, BLOCK_DIRTY);
}

void pass_distrust_locked(struct tfile *f, bool all)
{
	for (unsigned i = 0; i < f->map.n_groups; i++) {
		struct map_group *g = f->map.groups[i];

		for (unsigned w = 0; w < BITMAP_WORDS; w++) {
			uint64_t clean = g->present[w] & ~g->dirty[w];

			if (clean && (all || g->dirty[w] || !(g->sum_valid >> w & 1)))
				set_dirty_locked(f, g->index * GROUP_BYTES + w * EXTENT_BYTES,
						 clean);
		}
	}
}

void pass_distrust_extent_locked(struct tfile *f, uint64_t base)
{
	const struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;

	if (g && g->present[w] & ~g->dirty[w])
		set_dirty_locked(f, base, g->present[w] & ~g->dirty[w]);
}

/* The next extent at or after *at that has clean blocks. False at the end. */
static bool next_look_locked(struct tfile *f, uint64_t *at, struct look *ret)
{
	for (unsigned i = map_index(&f->map, *at / GROUP_BYTES); i < f->map.n_groups; i++) {
		const struct map_group *g = f->map.groups[i];
		uint64_t start = g->index * GROUP_BYTES;
		unsigned w = *at > start ? (unsigned)((*at - start) / EXTENT_BYTES) : 0;

		for (; w < BITMAP_WORDS; w++)
			if (g->present[w] & ~g->dirty[w]) {
				*ret = (struct look){ .base = start + w * EXTENT_BYTES,
						      .mask = g->present[w] };
				*at = ret->base + EXTENT_BYTES;
				return true;
			}
	}
	*at = UINT64_MAX;
	return false;
}

static int sum_object(struct tfile *f, struct look *l, char *buf)
{
	int r = read_full(f->obj_fd, buf, EXTENT_BYTES, l->base);

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT; b++)
		if (l->mask >> b & 1)
			l->sum += block_sum(buf + b * BLOCK_BYTES, l->base / BLOCK_BYTES + b);
	return r;
}

/* Somebody may have changed the map meanwhile: what it says now counts. */
static void judge_locked(struct tfile *f, const struct look *l)
{
	const struct map_group *g = map_find(&f->map, l->base / GROUP_BYTES);
	unsigned w = (l->base % GROUP_BYTES) / EXTENT_BYTES;
	uint64_t clean = g ? g->present[w] & ~g->dirty[w] : 0;
	bool same = g && g->present[w] == l->mask && !g->dirty[w] && g->sum_valid >> w & 1 &&
		    g->sum[w] == l->sum;

	if (clean && !same)
		set_dirty_locked(f, l->base, clean);
}

/* ---- a step ------------------------------------------------------------------------------- */
static int scan_held(struct tfile *f, uint64_t budget)
{
	_cleanup_free_ char *buf = malloc(EXTENT_BYTES);
	uint64_t bytes = 0;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && bytes < budget) {
		struct look l = { 0 };

		pthread_mutex_lock(&f->lock);
		uint64_t at = f->pass_scan;
		unsigned scan = f->pass_scans;
		bool any = f->pass == PASS_WRITE && at != UINT64_MAX &&
			   next_look_locked(f, &at, &l);

		if (!any)
			f->pass_scan = UINT64_MAX;
		pthread_mutex_unlock(&f->lock);
		if (!any)
			break;
		r = sum_object(f, &l, buf);
		pthread_mutex_lock(&f->lock);
		if (r == 0) {
			judge_locked(f, &l);
			if (scan == f->pass_scans) /* else another one has begun */
				f->pass_scan = at;
		}
		pthread_mutex_unlock(&f->lock);
		bytes += EXTENT_BYTES;
	}
	return r;
}

int pass_scan_some(struct tfile *f, uint64_t budget)
{
	int r = tfile_hold_object(f);

	if (r < 0)
		return r;
	r = f->obj_fd < 0 ? -EIO : scan_held(f, budget);
	tfile_drop_object(f);
	return r;
}
