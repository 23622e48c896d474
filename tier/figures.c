// SPDX-License-Identifier: GPL-2.0-or-later
/* What `hybridfs stat` shows, and the flush on command. */
#include <string.h>

#include "tier/pass.h"

void tfile_figures(struct tfile *f, struct tfile_figures *ret)
{
	(void)tfile_load_map(f); /* an error is logged and counted; the figures are then zero */
	pthread_mutex_lock(&f->lock);
	/* After a crash the size may not be known before the first use; what is dirty is. */
	uint64_t size = f->size_known ? f->size : UINT64_MAX;

	*ret = (struct tfile_figures){ .size_bytes = f->size,
				       .ssd_bytes = min_u64(f->map.present_blocks * BLOCK_BYTES,
							    size),
				       .dirty_bytes = min_u64(f->map.dirty_blocks * BLOCK_BYTES,
							      size),
				       .pinned_bytes = f->acct_pinned * BLOCK_BYTES,
				       .pinned = f->pinned,
				       .conflict = f->conflict };
	for (unsigned i = 0; i < f->map.n_groups; i++)
		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			if (f->map.groups[i]->present[w])
				ret->heat += f->map.groups[i]->heat[w];
	pthread_mutex_unlock(&f->lock);
}

/* ---- extents ------------------------------------------------------------------------------ */
static bool is_queued(struct tfile *f, uint64_t off)
{
	struct volume *v = f->v;
	bool found = false;

	pthread_mutex_lock(&v->lists_lock);
	for (unsigned i = 0; i < v->promote_count && !found; i++) {
		unsigned at = (v->promote_head + i) % PROMOTE_QUEUE_MAX;

		found = v->promote_queue[at].file == f &&
			v->promote_queue[at].extent == off / EXTENT_BYTES;
	}
	pthread_mutex_unlock(&v->lists_lock);
	return found;
}

/* Pin and heat of the extent of `off`. */
static void extent_marks_locked(struct tfile *f, uint64_t off, bool *ret_pinned, uint8_t *ret_heat)
{
	const struct map_group *g = map_find(&f->map, off / GROUP_BYTES);
	unsigned w = (off % GROUP_BYTES) / EXTENT_BYTES;

	*ret_pinned = f->pinned || (g && g->pinned >> w & 1);
	*ret_heat = g ? g->heat[w] : 0;
}

/* The run of equal (state, pinned, heat) at `at`. */
static struct tfile_extent run_locked(struct tfile *f, uint64_t at, uint64_t size)
{
	struct map_run run = map_run_at(&f->map, at, size);
	struct tfile_extent x = { .offset = at, .state = run.state };
	bool pinned;
	uint8_t heat;

	extent_marks_locked(f, at, &x.pinned, &x.heat);
	for (;;) {
		uint64_t e = (at / EXTENT_BYTES + 1) * EXTENT_BYTES;

		if (e >= run.end)
			break;
		/* Without a group nothing can differ before the next one starts. */
		if (!map_find(&f->map, e / GROUP_BYTES)) {
			const struct map_group *g = map_next(&f->map, e / GROUP_BYTES);

			at = g ? min_u64(g->index * GROUP_BYTES, run.end) - 1 : run.end - 1;
			if (x.heat == 0 && x.pinned == f->pinned)
				continue;
			run.end = e;
			break;
		}
		extent_marks_locked(f, e, &pinned, &heat);
		if (pinned != x.pinned || (heat != x.heat && x.state != BLOCK_ABSENT)) {
			run.end = e;
			break;
		}
		at = e;
	}
	x.length = run.end - x.offset;
	return x;
}

/* Is an absent run a hole in SRC? Cuts it where that changes. */
static void look_for_hole(struct tfile *f, struct tfile_extent *x)
{
	uint64_t end = x->offset + x->length;
	off_t data = lseek(f->src_fd, (off_t)x->offset, SEEK_DATA);

	if (data < 0) {
		x->hole = errno == ENXIO;
		return;
	}
	if ((uint64_t)data > x->offset) {
		x->hole = true;
		end = min_u64(end, (uint64_t)data);
	} else {
		off_t hole = lseek(f->src_fd, data, SEEK_HOLE);

		if (hole > data)
			end = min_u64(end, (uint64_t)hole);
	}
	x->length = end - x->offset;
}

int tfile_extents(struct tfile *f, uint64_t *start, bool include_absent, struct tfile_extent *rows,
		  unsigned max, unsigned *ret_n)
{
	unsigned n = 0;
	int r = tfile_use(f, false);

	if (r < 0)
		return r;
	uint64_t at = *start;

	while (n < max && at < tfile_size(f)) {
		pthread_mutex_lock(&f->lock);
		struct tfile_extent x = run_locked(f, at, f->size);

		pthread_mutex_unlock(&f->lock);
		if (x.state == BLOCK_ABSENT && include_absent) {
			look_for_hole(f, &x);
			x.queued = !x.hole && is_queued(f, x.offset);
		}
		if (x.length == 0)
			break;
		if (x.state != BLOCK_ABSENT || include_absent)
			rows[n++] = x;
		at = x.offset + x.length;
	}
	*start = at < tfile_size(f) ? at : UINT64_MAX;
	*ret_n = n;
	tfile_unuse(f);
	return 0;
}

/* ---- flush -------------------------------------------------------------------------------- */
/*
 * *next counts the rounds that went through the end of the file: after two of them everything that
 * was dirty at the start has been written, however fast somebody writes more. A file that programs
 * write to past us is compared first: then *next is PASS_FLUSHING and where that goes on.
 */
int tfile_flush_step(struct tfile *f, uint64_t budget, bool force, uint64_t *next,
		     uint64_t *ret_bytes)
{
	int r = tfile_load_map(f);

	*ret_bytes = 0;
	if (r < 0)
		return r;
	if (pass_flush_file(f, budget, next, &r))
		return r;
	pthread_mutex_lock(&f->lock);
	bool dirty = tfile_dirty_locked(f);

	pthread_mutex_unlock(&f->lock);
	if (dirty)
		r = writeback_file(f, budget, force, ret_bytes);
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	uint64_t scanned = *next & PASS_FLUSHED;
	uint64_t rounds = (*next & ~PASS_FLUSHED) + (f->wb_cursor == 0);

	dirty = tfile_dirty_locked(f);
	pthread_mutex_unlock(&f->lock);
	*next = !dirty || rounds >= 2 ? UINT64_MAX : scanned | rounds;
	return 0;
}
