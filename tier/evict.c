// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Eviction and the release of space on the SSD (I4).
 *
 * Eviction: (1) under an exclusive reservation that is only tried for, clean extents that are
 * neither hot nor pinned become absent in memory; (2) a commit makes that durable; (3) reclaim:
 * whatever is still absent is punched out of the object. Crash before (2): still clean in the
 * catalog, and in the object. Between (2) and (3): absent, the space is leaked until the sweep of
 * the next mount. The same reclaim serves everything else that makes blocks absent.
 *
 * The hand of the CLOCK goes over the file ids of the catalog, so a decision costs the same however
 * many files there are; passing a warm extent halves its heat.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "tier/pass.h"

#define EVICT_BATCH_BYTES (16ull << 20)
#define EVICT_FILES_PER_STEP 64u
#define EVICT_RETRY_NS (SECOND_NS)

/* ---- (3) space ---------------------------------------------------------------------------- */
static int punch_range(struct tfile *f, uint64_t start, uint64_t end)
{
	struct range range;
	int r = 0;

	if (!range_trylock(&f->ranges, &range, start, end, true))
		return -EAGAIN;
	if (!pass_may_punch(f)) /* a program would read zeros */
		r = -EAGAIN;
	for (uint64_t at = start; r == 0 && at < end;) {
		pthread_mutex_lock(&f->lock);
		struct map_run run = map_run_at(&f->map, at, end);
		const struct map_group *g = map_find(&f->map, at / GROUP_BYTES);
		bool known = !g || !g->removal || SABOTAGED(4); /* the catalog knows */

		pthread_mutex_unlock(&f->lock);
		run.end = min_u64(run.end, round_down_u64(at, GROUP_BYTES) + GROUP_BYTES);
		if (!known)
			r = -EAGAIN;
		else if (run.state == BLOCK_ABSENT)
			r = object_punch(f->obj_fd, run.start, run.end - run.start);
		crash_point(CP_EVICT_PUNCHED);
		at = run.end;
	}
	range_unlock(&f->ranges, &range);
	return r;
}

/* Everything in one go where no data is left: one call, and the size is right again. */
static int empty_object(struct tfile *f)
{
	struct range all;

	if (!range_trylock(&f->ranges, &all, 0, RANGE_END, true))
		return -EAGAIN;
	pthread_mutex_lock(&f->lock);
	bool empty = f->map.present_blocks == 0 &&
		     (f->seq == f->committed_seq || SABOTAGED(4));

	pthread_mutex_unlock(&f->lock);
	empty = empty && pass_may_punch(f);
	int r = !empty ? -EAGAIN : ftruncate(f->obj_fd, 0) < 0 ? neg_errno() : 0;

	if (empty)
		crash_point(CP_EVICT_EMPTIED);
	range_unlock(&f->ranges, &all);
	return r;
}

/* Releases one extent-aligned piece after the other, so that writers wait only briefly. */
static int reclaim_held(struct tfile *f, uint64_t lo, uint64_t hi)
{
	struct stat st;
	int r = 0;

	if (f->obj_fd < 0)
		return 0;
	if (empty_object(f) == 0)
		return 0;
	if (fstat(f->obj_fd, &st) < 0)
		return neg_errno();
	hi = min_u64(hi, round_up_u64((uint64_t)st.st_size, BLOCK_BYTES));
	for (uint64_t at = lo; r == 0 && at < hi;) {
		pthread_mutex_lock(&f->lock);
		struct map_run run = map_run_at(&f->map, at, hi);

		pthread_mutex_unlock(&f->lock);
		uint64_t to = min_u64(run.end, round_down_u64(at, GROUP_BYTES) + GROUP_BYTES);

		if (run.state == BLOCK_ABSENT)
			r = punch_range(f, at, to);
		at = to;
	}
	return r;
}

/* -EAGAIN: somebody is using it, or the catalog does not know yet; later. */
int reclaim_file(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	uint64_t lo = f->garbage_lo, hi = f->garbage_hi, blocks = f->garbage_blocks;

	f->garbage_blocks = 0;
	f->garbage_lo = UINT64_MAX;
	f->garbage_hi = 0;
	file_list_remove(f->v, &f->v->garbage, f);
	pthread_mutex_unlock(&f->lock);
	if (lo >= hi) {
		atomic_fetch_sub(&f->v->garbage_blocks, blocks);
		return 0;
	}
	int r = tfile_hold_object(f);

	if (r == 0) {
		r = reclaim_held(f, round_down_u64(lo, BLOCK_BYTES), hi);
		tfile_drop_object(f);
	}
	if (r == 0) {
		atomic_fetch_sub(&f->v->garbage_blocks, blocks);
	} else {
		pthread_mutex_lock(&f->lock);
		f->garbage_blocks += blocks;
		f->garbage_lo = min_u64(f->garbage_lo, lo);
		f->garbage_hi = max_u64(f->garbage_hi, hi);
		if (!f->dead)
			file_list_add(f->v, &f->v->garbage, f, 0);
		pthread_mutex_unlock(&f->lock);
	}
	return r;
}

#define RECLAIM_PER_STEP 256u

/* Called after a commit: most of what waits is known to the catalog now. */
int reclaim_step(struct volume *v)
{
	int r = 0;

	for (unsigned i = 0; i < RECLAIM_PER_STEP; i++) {
		struct tfile *f = file_list_first(v, &v->garbage);

		if (!f)
			break;
		r = reclaim_file(f);
		if (r < 0 && r != -EAGAIN)
			volume_error(v, f, r, "cannot release space on the SSD");
		tfile_put(f);
		if (r < 0)
			break;
	}
	return r == 0 ? 0 : -EAGAIN;
}

/* ---- (1) choosing and forgetting ---------------------------------------------------------- */
/* The clean blocks of one extent leave the map. Returns bytes, 0 if it is busy or has none. */
static uint64_t evict_extent(struct tfile *f, uint64_t base)
{
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;
	uint64_t bytes = 0;
	struct range range;

	if (!range_trylock(&f->ranges, &range, base, base + EXTENT_BYTES, true))
		return 0;
	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	uint64_t clean = g && f->pass == PASS_NONE ? g->present[w] & ~g->dirty[w] : 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (clean >> b & 1 &&
		    tfile_map_set_locked(f, base + b * BLOCK_BYTES, base + (b + 1) * BLOCK_BYTES,
					 BLOCK_ABSENT) == 0)
			bytes += BLOCK_BYTES;
	pthread_mutex_unlock(&f->lock);
	range_unlock(&f->ranges, &range);
	if (bytes) {
		crash_point(CP_EVICT_FORGOTTEN);
		atomic_fetch_add(&f->v->demotions, 1);
		atomic_fetch_add(&f->v->demoted_bytes, bytes);
	}
	return bytes;
}

enum turn { TURN_NEVER, TURN_LATER, TURN_NOW };

/* Is this extent's turn? Ages it if not yet. Never: nothing clean in it, or pinned. */
static enum turn take_turn(struct tfile *f, uint64_t base)
{
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;
	enum turn turn = TURN_NEVER;

	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);

	if (g && f->pass == PASS_NONE && !f->pinned && !(g->pinned >> w & 1) &&
	    g->present[w] & ~g->dirty[w]) {
		turn = g->heat[w] == 0 ? TURN_NOW : TURN_LATER;
		g->heat[w] = policy_heat_age(g->heat[w]);
	}
	pthread_mutex_unlock(&f->lock);
	return turn;
}

static uint64_t next_present(struct tfile *f, uint64_t at)
{
	pthread_mutex_lock(&f->lock);
	uint64_t p = map_next_present(&f->map, at);

	pthread_mutex_unlock(&f->lock);
	return p;
}

static uint64_t evict_from_file(struct tfile *f, uint64_t want, bool *ret_useful)
{
	uint64_t bytes = 0, at = 0;

	while (bytes < want && (at = next_present(f, at)) != UINT64_MAX) {
		uint64_t base = round_down_u64(at, EXTENT_BYTES);
		enum turn turn = take_turn(f, base);

		*ret_useful |= turn != TURN_NEVER;
		if (turn == TURN_NOW)
			bytes += evict_extent(f, base);
		at = base + EXTENT_BYTES;
	}
	return bytes;
}

int evict_range(struct tfile *f, uint64_t start, uint64_t end, uint64_t *ret_bytes)
{
	uint64_t at = start;

	*ret_bytes = 0;
	while ((at = next_present(f, at)) < end) {
		uint64_t base = round_down_u64(at, EXTENT_BYTES);

		*ret_bytes += evict_extent(f, base);
		at = base + EXTENT_BYTES;
	}
	return 0;
}

struct batch {
	const struct tfile *keep; /* to be left alone; may be NULL */
	struct tfile *files[EVICT_FILES_PER_STEP];
	unsigned n;
	uint64_t bytes;
	bool useful; /* something in it can go, now or when it has cooled */
};

/* Visit the next file after the hand. False at the end of the catalog. */
static bool visit_next(struct volume *v, struct batch *b, uint64_t want)
{
	uint64_t seen = volume_departures(v);
	struct cat_file row;
	int r = catalog_next_file(v->cat, v->evict_cursor, 0, &row);

	if (r < 0) {
		v->evict_cursor = 0;
		return false;
	}
	struct tfile *f = NULL;

	if (!(row.flags & CAT_F_DIR))
		(void)tfile_get_loaded(v, &row, seen, &f); /* else the next one */
	v->evict_cursor = row.id;
	cat_file_release(&row);
	if (!f)
		return true;
	bool skip = f == b->keep || tfile_load_map(f) < 0;
	uint64_t bytes = skip ? 0 : evict_from_file(f, want, &b->useful);

	b->bytes += bytes;
	if (bytes)
		b->files[b->n++] = f;
	else
		tfile_put(f);
	return true;
}

static int finish_batch(struct volume *v, struct batch *b)
{
	int r = b->n && !SABOTAGED(4) ? commit_files(v, b->files, b->n) : 0;

	if (b->n)
		crash_point(CP_EVICT_COMMITTED);
	for (unsigned i = 0; i < b->n; i++) {
		if (r == 0)
			(void)reclaim_file(b->files[i]); /* busy: reclaim_step() comes back */
		tfile_put(b->files[i]);
	}
	return r;
}

/*
 * One step of the hand, evict_mutex held. Returns bytes evicted. *ret_barren: a whole round has
 * ended in which nothing could ever have gone (all dirty or pinned).
 */
static int64_t evict_some(struct volume *v, uint64_t want, const struct tfile *keep,
			  bool *ret_barren)
{
	struct batch b = { .keep = keep };
	unsigned visited = 0;
	bool more = true;

	want = min_u64(want, EVICT_BATCH_BYTES);
	while (more && visited++ < EVICT_FILES_PER_STEP && b.bytes < want)
		more = visit_next(v, &b, want - b.bytes);
	int r = finish_batch(v, &b);

	v->evict_useful |= b.useful;
	*ret_barren = !more && !v->evict_useful;
	if (!more)
		v->evict_useful = false;
	return r < 0 ? r : (int64_t)b.bytes;
}

int evict_step(struct volume *v, int64_t now_ns)
{
	bool barren;

	pthread_mutex_lock(&v->lists_lock);
	bool waiting = v->promote_count > 0;

	pthread_mutex_unlock(&v->lists_lock);
	uint64_t want = policy_evict_bytes(
		&v->opt, atomic_load(&v->used_blocks) * BLOCK_BYTES + v->overhead_bytes,
		v->cap_blocks * BLOCK_BYTES, waiting);

	/* Somebody else moving the hand does our work. */
	if (!want || now_ns < v->evict_retry_ns || pthread_mutex_trylock(&v->evict_mutex) != 0)
		return 0;
	int64_t r = evict_some(v, want, NULL, &barren);

	pthread_mutex_unlock(&v->evict_mutex);
	if (r < 0 || barren)
		v->evict_retry_ns = now_ns + EVICT_RETRY_NS;
	return r < 0 ? (int)r : !barren;
}

/* Rounds of the hand that cool any extent down to nothing. */
#define COOL_ROUNDS 9

/* Nothing can be evicted any more. What was given up before comes back when its users let go of it:
 * where that will do, the caller tries again (-EAGAIN). */
static int release_room(struct volume *v, uint64_t bytes, uint64_t cap)
{
	(void)reclaim_step(v);
	uint64_t taken = volume_taken_bytes(v);
	uint64_t garbage = atomic_load(&v->garbage_blocks) * BLOCK_BYTES;

	if (taken + bytes <= cap)
		return 0;
	return taken - min_u64(garbage, taken) + bytes <= cap ? -EAGAIN : -ENOSPC;
}

int evict_room(struct volume *v, uint64_t bytes, const struct tfile *keep)
{
	uint64_t cap = v->cap_blocks * BLOCK_BYTES;
	unsigned rounds = 0;
	int r = checkpoint(v); /* the hand sees what the catalog has */

	pthread_mutex_lock(&v->evict_mutex);
	while (r == 0 && volume_taken_bytes(v) + bytes > cap) {
		uint64_t before = v->evict_cursor;
		bool barren;
		int64_t got = evict_some(v, bytes, keep, &barren);

		rounds += v->evict_cursor <= before;
		if (got < 0)
			r = (int)got;
		else if (barren || rounds > COOL_ROUNDS)
			r = release_room(v, bytes, cap);
	}
	pthread_mutex_unlock(&v->evict_mutex);
	return r;
}

/* ---- on command --------------------------------------------------------------------------- */
int tfile_demote_step(struct tfile *f, uint64_t budget, bool force, uint64_t *next,
		      uint64_t *ret_bytes)
{
	uint64_t dropped = 0;
	int r = tfile_flush_step(f, budget, force, next, ret_bytes);

	if (r < 0 || *next != UINT64_MAX)
		return r;
	r = pass_let_go(f, budget, next);
	if (r != 0)
		return r < 0 ? r : 0;
	r = tfile_load_map(f);
	if (r == 0)
		r = evict_range(f, 0, UINT64_MAX, &dropped);
	if (r == 0 && !SABOTAGED(4))
		r = commit_file(f);
	if (r == 0)
		(void)reclaim_file(f);
	return r;
}

/* ---- unlinked files ----------------------------------------------------------------------- */
static void put_back(struct volume *v, struct grave *list)
{
	struct grave *last = list;

	while (last->next)
		last = last->next;
	pthread_mutex_lock(&v->lists_lock);
	last->next = v->graves;
	v->graves = list;
	v->burying = NULL;
	pthread_mutex_unlock(&v->lists_lock);
}

static bool any_grave(const struct grave *g, bool sync_src)
{
	for (; g; g = g->next)
		if (sync_src ? g->sync_src : g->row)
			return true;
	return false;
}

/*
 * Files whose last name is gone. If the catalog has dirty data of one, SRC's unlink must be durable
 * before the row goes: a power cut may bring the name back, and then its data must be there too.
 */
int bury_step(struct volume *v)
{
	pthread_mutex_lock(&v->lists_lock);
	struct grave *list = v->graves;

	v->graves = NULL;
	v->burying = list;
	pthread_mutex_unlock(&v->lists_lock);
	if (!list)
		return 0;
	int r = any_grave(list, true) && syncfs(v->src->root_fd) < 0 ? neg_errno() : 0;

	crash_point(CP_BURY_SYNCED);
	if (r == 0 && any_grave(list, false))
		r = commit_deletes(v, list);
	if (r < 0) {
		put_back(v, list);
		return r;
	}
	crash_point(CP_BURY_COMMITTED);
	/* Known from dead_ids from here on. */
	pthread_mutex_lock(&v->lists_lock);
	v->burying = NULL;
	pthread_mutex_unlock(&v->lists_lock);
	while (list) {
		struct grave *g = list;

		list = g->next;
		(void)object_remove(v, g->id); /* what is left is an orphan: swept at next mount */
		crash_point(CP_BURY_REMOVED);
		atomic_fetch_sub(&v->used_blocks, g->present_blocks);
		if (g->counted)
			atomic_fetch_sub(&v->dead_rows, 1);
		free(g);
	}
	return 0;
}
