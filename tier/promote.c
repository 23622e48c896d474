// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Promotion: copy absent blocks of an extent from SRC into the object.
 *
 * (1) SRC is synced if it has changes of ours, so that a copy never outlives its original; (2) with
 * no lock held SRC is read, holes left out; (3) under an exclusive reservation that is only tried
 * for, the blocks which are still absent are written to the object - provided nobody changed SRC
 * meanwhile (src_seq) - and become clean. Writers and cuts go first: the step just gives up.
 * Crash before the next commit: the catalog says absent, the bytes in the object are garbage that
 * the sweep releases (I1). A block whose removal the catalog does not know yet is committed first
 * (I2: it would be an overwrite of a durably clean block).
 */
#include <string.h>
#include <sys/stat.h>

#include "tier/pass.h"

/* ---- reading SRC -------------------------------------------------------------------------- */
/* Bits of the blocks of an extent in which SRC has data; all of them where it cannot say. */
static uint64_t data_mask(struct tfile *f, uint64_t base, uint64_t size)
{
	uint64_t mask = 0, at = base, end = min_u64(base + EXTENT_BYTES, size);

	while (at < end) {
		off_t data = lseek(f->src_fd, (off_t)at, SEEK_DATA);

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0)
			return ~0ull;
		off_t hole = lseek(f->src_fd, data, SEEK_HOLE);
		uint64_t stop = hole < 0 ? end : min_u64((uint64_t)hole, end);

		for (uint64_t b = round_down_u64((uint64_t)data, BLOCK_BYTES); b < stop;
		     b += BLOCK_BYTES)
			mask |= 1ull << ((b - base) / BLOCK_BYTES);
		if (hole < 0 || (uint64_t)hole <= at)
			break;
		at = (uint64_t)hole;
	}
	return mask;
}

static uint64_t span_mask(uint64_t base, uint64_t from, uint64_t to)
{
	uint64_t mask = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (base + b * BLOCK_BYTES < to && base + (b + 1) * BLOCK_BYTES > from)
			mask |= 1ull << b;
	return mask;
}

static uint64_t absent_mask_locked(struct tfile *f, uint64_t base)
{
	const struct map_group *g = map_find(&f->map, base / GROUP_BYTES);

	return g ? ~g->present[(base % GROUP_BYTES) / EXTENT_BYTES] : ~0ull;
}

static int read_src_blocks(struct tfile *f, char *buf, uint64_t base, uint64_t mask)
{
	int r = 0;

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		if (e == b) {
			b++;
			continue;
		}
		r = read_full(f->src_fd, buf + b * BLOCK_BYTES, (e - b) * BLOCK_BYTES,
			      base + b * BLOCK_BYTES);
		b = e;
	}
	return r;
}

/* ---- installing --------------------------------------------------------------------------- */
/* In the same breath as the map: a commit must not see these blocks present and the sum without. */
static void add_sum_locked(struct tfile *f, const char *buf, uint64_t base, unsigned b, unsigned e,
			   bool had_none)
{
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;

	if (!had_none && !(g->sum_valid >> w & 1))
		return; /* unknown stays unknown until the next write-back */
	if (had_none)
		g->sum[w] = 0;
	for (; b < e; b++)
		g->sum[w] += block_sum(buf + b * BLOCK_BYTES, base / BLOCK_BYTES + b);
	g->sum_valid |= 1ull << w;
}

static int install_run(struct tfile *f, const char *buf, uint64_t base, unsigned b, unsigned e)
{
	int r = write_full(f->obj_fd, buf + b * BLOCK_BYTES, (e - b) * BLOCK_BYTES,
			   base + b * BLOCK_BYTES);

	if (r < 0)
		return r;
	crash_point(CP_PROMOTE_OBJECT);
	pthread_mutex_lock(&f->lock);
	bool had_none = absent_mask_locked(f, base) == ~0ull;

	r = tfile_written_locked(f, base + b * BLOCK_BYTES, base + e * BLOCK_BYTES, BLOCK_CLEAN);
	if (r == 0)
		add_sum_locked(f, buf, base, b, e, had_none);
	pthread_mutex_unlock(&f->lock);
	return r;
}

/* The extent is reserved exclusively; every block of mask is absent. */
static int install(struct tfile *f, const char *buf, uint64_t base, uint64_t mask)
{
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;
	int r = 0;

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		if (e > b)
			r = install_run(f, buf, base, b, e);
		b = e > b ? e : b + 1;
	}
	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);

	if (g)
		g->heat[w] = policy_heat_touch(g->heat[w]);
	pthread_mutex_unlock(&f->lock);
	crash_point(CP_PROMOTE_CLEAN);
	return r;
}

/* ---- one extent --------------------------------------------------------------------------- */
/* -EAGAIN: somebody is using it or changed it meanwhile. */
static int install_if_unchanged(struct tfile *f, const char *buf, uint64_t base, uint64_t mask,
				uint64_t token, uint64_t *ret_bytes)
{
	struct volume *v = f->v;
	struct range range;
	int r;

	if (!range_trylock(&f->ranges, &range, base, base + EXTENT_BYTES, true))
		return -EAGAIN;
	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	bool refused = f->conflict || f->sync_failed;
	bool same = token == f->src_seq && !f->src_inflight && !f->conflict && !f->dead &&
		    !f->truncate_pending && !f->sync_failed && f->pass == PASS_NONE;
	bool removal = g && g->removal;

	mask &= absent_mask_locked(f, base);
	pthread_mutex_unlock(&f->lock);
	if (refused) {
		r = -EBUSY;
	} else if (!same || removal) {
		r = -EAGAIN;
	} else {
		r = mask ? tfile_make_object(f) : 0;
		if (r == 0)
			r = install(f, buf, base, mask);
		if (r == 0) {
			*ret_bytes = (unsigned)__builtin_popcountll(mask) * BLOCK_BYTES;
			atomic_fetch_add(&v->promoted_bytes, *ret_bytes);
			atomic_fetch_add(&v->promotions, mask != 0);
		}
	}
	range_unlock(&f->ranges, &range);
	return r;
}

/* Removals that the catalog does not know: commit, so that the blocks may be used again. */
static int settle_removal(struct tfile *f, uint64_t base)
{
	pthread_mutex_lock(&f->lock);
	const struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	bool removal = g && g->removal;

	pthread_mutex_unlock(&f->lock);
	return removal ? commit_file(f) : 0;
}

static int make_room(struct tfile *f, uint64_t bytes, bool background)
{
	struct volume *v = f->v;
	uint64_t used = volume_taken_bytes(v);
	uint64_t cap = v->cap_blocks * BLOCK_BYTES;

	if (background)
		return policy_room_to_promote(&v->opt, used, cap, bytes) ? 0 : -ENOSPC;
	return used + bytes <= cap ? 0 : evict_room(v, bytes, f);
}

int promote_extent(struct tfile *f, uint64_t extent, uint64_t from, uint64_t to, bool background,
		   uint64_t *ret_bytes)
{
	uint64_t base = extent * EXTENT_BYTES;

	*ret_bytes = 0;
	if (base >= POLICY_MAX_SSD_OFFSET)
		return -EFBIG;
	if (pass_on(f)) /* it is all there, and what is absent is a hole */
		return 0;
	int r = settle_removal(f, base);

	if (r == 0)
		r = tfile_refresh(f);
	if (r < 0)
		return r;
	/* A change that the sync does not cover must not be in the copy: SRC may lose it. */
	uint64_t token = tfile_stat_begin(f);

	if (token == UINT64_MAX)
		return -EAGAIN;
	r = sync_src_all(f);
	if (r < 0)
		return r;
	uint64_t size = tfile_size(f);

	pthread_mutex_lock(&f->lock);
	uint64_t mask = absent_mask_locked(f, base) & span_mask(base, from, min_u64(to, size));
	bool cut = f->truncate_pending; /* SRC still has what is no more */

	pthread_mutex_unlock(&f->lock);
	if (cut) { /* not ours to wait for: done now, and the caller comes again */
		r = tfile_use(f, true);
		if (r == 0) {
			r = settle_cut(f, false);
			tfile_unuse(f);
		}
		return r < 0 ? r : -EAGAIN;
	}
	if (mask)
		mask &= data_mask(f, base, size);
	if (!mask)
		return 0;
	r = make_room(f, (unsigned)__builtin_popcountll(mask) * BLOCK_BYTES, background);
	if (r < 0)
		return r;
	_cleanup_free_ char *buf = malloc(EXTENT_BYTES);

	if (!buf)
		return -ENOMEM;
	r = read_src_blocks(f, buf, base, mask);
	crash_point(CP_PROMOTE_READ);
	return r < 0 ? r : install_if_unchanged(f, buf, base, mask, token, ret_bytes);
}

/* ---- on command --------------------------------------------------------------------------- */
#define BUSY_TRIES 20

/* Somebody is at work in the extent: his reservation ends soon, wait for it by taking it. */
static void wait_for_range(struct tfile *f, uint64_t base)
{
	struct range range;

	range_lock(&f->ranges, &range, base, base + EXTENT_BYTES, true);
	range_unlock(&f->ranges, &range);
}

static int promote_patiently(struct tfile *f, uint64_t extent, uint64_t from, uint64_t to,
			     uint64_t *ret_bytes)
{
	int r = -EAGAIN;

	for (unsigned i = 0; r == -EAGAIN && i < BUSY_TRIES; i++) {
		r = promote_extent(f, extent, from, to, false, ret_bytes);
		if (r == -EAGAIN)
			wait_for_range(f, extent * EXTENT_BYTES);
	}
	return r;
}

/* Skip to the next offset at which SRC has something to copy. */
static uint64_t skip_hole(struct tfile *f, uint64_t at)
{
	off_t data = lseek(f->src_fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? UINT64_MAX : at;
	return max_u64(at, (uint64_t)data);
}

int tfile_promote_step(struct tfile *f, uint64_t off, uint64_t len, uint64_t budget, uint64_t *next,
		       uint64_t *ret_bytes)
{
	uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : off + len, at = max_u64(off, *next);
	int r = tfile_use(f, false);

	*ret_bytes = 0;
	if (r < 0)
		return r;
	end = min_u64(end, tfile_size(f));
	while (r == 0 && at < end && *ret_bytes < budget) {
		uint64_t bytes = 0;

		at = skip_hole(f, at);
		if (at >= end)
			break;
		r = promote_patiently(f, at / EXTENT_BYTES, at, end, &bytes);
		*ret_bytes += bytes;
		if (r == 0)
			at = (at / EXTENT_BYTES + 1) * EXTENT_BYTES;
	}
	if (r == 0)
		*next = at >= end ? UINT64_MAX : at;
	tfile_unuse(f);
	return r;
}

/* ---- in the background -------------------------------------------------------------------- */
static bool queued_locked(const struct volume *v, const struct tfile *f, uint64_t extent)
{
	/* Near-duplicates come right after each other: a look at the last few is enough. */
	unsigned look = v->promote_count < 8 ? v->promote_count : 8;

	for (unsigned i = 0; i < look; i++) {
		unsigned at = (v->promote_head + v->promote_count - 1 - i) % PROMOTE_QUEUE_MAX;

		if (v->promote_queue[at].file == f && v->promote_queue[at].extent == extent)
			return true;
	}
	return false;
}

int tfile_promote_later(struct tfile *f, uint64_t off, uint64_t len)
{
	struct volume *v = f->v;
	uint64_t end = min_u64(len > UINT64_MAX - off ? UINT64_MAX : off + len, tfile_size(f));
	int r = 0;

	for (uint64_t e = off / EXTENT_BYTES; r == 0 && e * EXTENT_BYTES < end; e++) {
		pthread_mutex_lock(&v->lists_lock);
		if (v->promote_count == PROMOTE_QUEUE_MAX) {
			r = -EAGAIN;
		} else if (!queued_locked(v, f, e)) {
			unsigned at = (v->promote_head + v->promote_count++) % PROMOTE_QUEUE_MAX;

			tfile_ref(f);
			v->promote_queue[at] = (struct promote_entry){ .file = f, .extent = e };
		}
		pthread_mutex_unlock(&v->lists_lock);
	}
	volume_wake(v);
	return r;
}

static bool pop_queue(struct volume *v, struct promote_entry *ret)
{
	pthread_mutex_lock(&v->lists_lock);
	bool any = v->promote_count > 0;

	if (any) {
		*ret = v->promote_queue[v->promote_head];
		v->promote_head = (v->promote_head + 1) % PROMOTE_QUEUE_MAX;
		v->promote_count--;
	}
	pthread_mutex_unlock(&v->lists_lock);
	return any;
}

int promote_queue_step(struct volume *v)
{
	struct promote_entry e;
	uint64_t bytes;

	if (!pop_queue(v, &e))
		return 0;
	int r = tfile_use(e.file, false);

	if (r == 0) {
		uint64_t base = e.extent * EXTENT_BYTES;

		r = promote_extent(e.file, e.extent, base, base + EXTENT_BYTES, true, &bytes);
		tfile_unuse(e.file);
	}
	/* In use or no room: the next touch asks again. Gone, or too far out for an object: there
	 * is nothing to promote. */
	if (r < 0 && r != -EAGAIN && r != -ENOSPC && r != -ESTALE && r != -EBUSY && r != -EFBIG)
		volume_error(v, e.file, r, "cannot promote");
	tfile_put(e.file);
	return 1;
}
