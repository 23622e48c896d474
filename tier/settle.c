// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Settling (I6): what of the clean copies is clean indeed, after a crash.
 *
 * An extent with clean blocks in a group with an intent is suspect: they may have been overwritten,
 * and not be known as dirty. The object has the newest data either way (after a power cut some
 * blocks old, some new), so the extent is of use at once; but until it is settled its blocks count
 * as dirty for everybody (map_run_at()), its group keeps its intent, in memory and in the catalog,
 * and who must know better settles it first: write-back, eviction, cuts, holes, times, a foreign
 * change of SRC. The background settles the rest.
 *
 * Without dirty blocks and with a valid checksum an extent is clean if the object still has that
 * content. Otherwise its clean blocks are compared with SRC: what differs is dirty. That is done
 * without a lock: the verdict counts only if the map says of the extent what it said before.
 * A write that is under way meanwhile differs, and is about to be dirty anyway.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/internal.h"

struct settling {
	struct tfile *f;
	int src_fd; /* owned; opened when a checksum does not decide; < 0: error */
	bool src_tried;
	char *ours, *theirs; /* owned; one extent each */
};

/* One suspect extent, as the map has it. */
struct look {
	uint64_t base, present, dirty, sum;
	bool sum_valid;
};

/* ---- comparing ---------------------------------------------------------------------------- */
/* The blocks of `mask` of one extent to their places in buf, runs of them at once: a map may have
 * many thousands of suspect extents. Returns those that failed. */
static uint64_t read_blocks(int fd, char *buf, uint64_t base, uint64_t mask, int *ret_error)
{
	uint64_t failed = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		int r = e == b ? 0
			       : read_full(fd, buf + b * BLOCK_BYTES, (e - b) * BLOCK_BYTES,
					   base + b * BLOCK_BYTES);

		if (r < 0 && e - b > 1) { /* which of them? */
			for (unsigned i = b; i < e; i++)
				failed |= read_blocks(fd, buf, base, 1ull << i, ret_error);
		} else if (r < 0) {
			failed |= 1ull << b;
			*ret_error = r;
		}
		b = e > b ? e : b + 1;
	}
	return failed;
}

static int sum_extent(struct settling *s, const struct look *l, uint64_t *ret_sum)
{
	int r = 0;

	*ret_sum = 0;
	if (read_blocks(s->f->obj_fd, s->ours, l->base, l->present, &r))
		return r;
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (l->present >> b & 1)
			*ret_sum += block_sum(s->ours + b * BLOCK_BYTES, l->base / BLOCK_BYTES + b);
	return 0;
}

/* Blocks of `mask` in which object and SRC differ; those that cannot be compared count as such. */
static uint64_t differing(struct settling *s, uint64_t base, uint64_t mask)
{
	int error = 0;

	if (!s->src_tried)
		s->src_fd = tfile_open_src(s->f, O_RDONLY | O_NONBLOCK | O_NOATIME);
	if (s->src_fd == -EPERM) /* not ours, and we are not root */
		s->src_fd = tfile_open_src(s->f, O_RDONLY | O_NONBLOCK);
	s->src_tried = true;
	if (s->src_fd < 0)
		return mask;
	uint64_t differ = read_blocks(s->f->obj_fd, s->ours, base, mask, &error) |
			  read_blocks(s->src_fd, s->theirs, base, mask, &error);

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1 && memcmp(s->ours + b * BLOCK_BYTES, s->theirs + b * BLOCK_BYTES,
					    BLOCK_BYTES) != 0)
			differ |= 1ull << b;
	return differ;
}

/* ---- one extent --------------------------------------------------------------------------- */
static void set_blocks_locked(struct tfile *f, uint64_t base, uint64_t mask, enum block_state state)
{
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			(void)tfile_map_set_locked(f, base + b * BLOCK_BYTES,
						   base + (b + 1) * BLOCK_BYTES, state);
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* What was overwritten was written at the object's last change before the crash, but SRC may have
 * been changed after that (by a write that went past us, by chmod): times never go back. */
static void own_attributes_locked(struct tfile *f)
{
	if (f->attr_owned)
		return;
	f->mtime = ns_timespec(later(f->suspect_mtime_ns, f->stamp.mtime_ns));
	f->ctime = ns_timespec(later(timespec_ns(f->mtime), f->stamp.ctime_ns));
	f->mtime_seq++;
	f->attr_owned = f->ctime_kept = true;
}

/* The extent's group, if the extent is suspect and as it was when it was looked at. */
static struct map_group *same_locked(struct tfile *f, const struct look *l)
{
	struct map_group *g = map_find(&f->map, l->base / GROUP_BYTES);
	unsigned w = (l->base % GROUP_BYTES) / EXTENT_BYTES;
	bool same = g && g->suspect >> w & 1 && g->present[w] == l->present &&
		    g->dirty[w] == l->dirty && (g->sum_valid >> w & 1) == l->sum_valid &&
		    g->sum[w] == l->sum;

	return same ? g : NULL;
}

struct verdict {
	uint64_t unreadable, differ; /* of the clean blocks */
	bool new_sum; /* `sum` is right now: they were written, and SRC has the same by now */
	uint64_t sum;
};

static void compare(struct settling *s, const struct look *l, struct verdict *ret)
{
	uint64_t clean = l->present & ~l->dirty;
	bool exact = !l->dirty && l->sum_valid;

	*ret = (struct verdict){ 0 };
	if (!clean)
		return;
	if (exact && sum_extent(s, l, &ret->sum) < 0) { /* I8: SRC has it */
		ret->unreadable = clean;
	} else if (!exact || ret->sum != l->sum) {
		ret->differ = differing(s, l->base, clean);
		ret->new_sum = exact && !ret->differ;
	}
}

static void settle_extent(struct settling *s, const struct look *l)
{
	struct tfile *f = s->f;
	unsigned w = (l->base % GROUP_BYTES) / EXTENT_BYTES;
	struct verdict v;

	compare(s, l, &v);
	pthread_mutex_lock(&f->lock);
	struct map_group *g = same_locked(f, l);

	if (g) {
		map_clear_suspect(&f->map, g, w);
		if (v.unreadable) {
			set_blocks_locked(f, l->base, v.unreadable, BLOCK_ABSENT);
			stamps_distrust_locked(f);
		}
		if (v.differ) {
			own_attributes_locked(f);
			set_blocks_locked(f, l->base, v.differ, BLOCK_DIRTY);
		}
		if (v.new_sum) {
			g->sum[w] = v.sum;
			map_group_changed(&f->map, g);
		}
		/* The catalog is to learn that the intents are not needed any more. */
		if (!f->map.suspects)
			tfile_changed_locked(f);
		if (!tfile_dirty_locked(f))
			file_list_remove(f->v, &f->v->dirty, f);
	}
	pthread_mutex_unlock(&f->lock);
	crash_point(CP_SETTLE_EXTENT);
}

/* ---- many --------------------------------------------------------------------------------- */
static bool next_look(struct tfile *f, uint64_t from, uint64_t end, struct look *ret)
{
	pthread_mutex_lock(&f->lock);
	uint64_t at = map_next_suspect(&f->map, from);
	bool found = at < end;

	if (found) {
		const struct map_group *g = map_find(&f->map, at / GROUP_BYTES);
		unsigned w = (at % GROUP_BYTES) / EXTENT_BYTES;

		*ret = (struct look){ .base = at,
				      .present = g->present[w],
				      .dirty = g->dirty[w],
				      .sum = g->sum[w],
				      .sum_valid = g->sum_valid >> w & 1 };
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

/* An extent that was changed meanwhile is looked at again. */
static void settle_all(struct settling *s, uint64_t start, uint64_t end, uint64_t budget)
{
	uint64_t bytes = 0;
	struct look l;

	while (bytes < budget && next_look(s->f, start, end, &l)) {
		settle_extent(s, &l);
		bytes += EXTENT_BYTES;
	}
}

static bool any_suspect(struct tfile *f, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	bool any = f->map.suspects && map_next_suspect(&f->map, start) < end;

	pthread_mutex_unlock(&f->lock);
	return any;
}

static int settle(struct tfile *f, uint64_t start, uint64_t end, uint64_t budget)
{
	struct settling s = { .f = f, .src_fd = -1 };

	start = round_down_u64(start, EXTENT_BYTES);
	if (!any_suspect(f, start, end))
		return 0;
	int r = tfile_hold_object(f);

	if (r < 0)
		return r;
	s.ours = malloc(EXTENT_BYTES);
	s.theirs = malloc(EXTENT_BYTES);
	r = !s.ours || !s.theirs ? -ENOMEM : f->obj_fd < 0 ? -EIO : 0;
	if (r == 0)
		settle_all(&s, start, end, budget);
	if (s.src_fd >= 0)
		close(s.src_fd);
	free(s.ours);
	free(s.theirs);
	tfile_drop_object(f);
	return r;
}

int settle_some(struct tfile *f, uint64_t budget)
{
	int r = settle(f, 0, UINT64_MAX, budget);

	return r < 0 ? r : any_suspect(f, 0, UINT64_MAX);
}

int settle_range(struct tfile *f, uint64_t start, uint64_t end)
{
	return settle(f, start, end, UINT64_MAX);
}

/* ---- loading ------------------------------------------------------------------------------ */
static uint64_t extent_end(const struct map_group *g, unsigned w)
{
	unsigned last = 63 - (unsigned)__builtin_clzll(g->present[w]);

	return g->index * GROUP_BYTES + w * EXTENT_BYTES + (last + 1) * BLOCK_BYTES;
}

/* Durably present data that is not there was lost by the SSD, not overwritten. */
static void suspect_locked(struct tfile *f, struct map_group *g, const struct stat *obj)
{
	uint64_t size = round_up_u64((uint64_t)obj->st_size, BLOCK_BYTES);

	for (unsigned w = 0; w < BITMAP_WORDS; w++) {
		uint64_t clean = g->present[w] & ~g->dirty[w];

		if (clean && !g->dirty[w] && extent_end(g, w) > size)
			set_blocks_locked(f, g->index * GROUP_BYTES + w * EXTENT_BYTES, clean,
					  BLOCK_ABSENT);
		else if (clean)
			map_set_suspect(&f->map, g, w);
	}
}

/*
 * May settling wait? Not if SRC is not what it was when the copies were made: then they are dropped
 * next, or in conflict; and only if the background still comes by.
 */
static bool may_wait(struct tfile *f, bool known)
{
	struct volume *v = f->v;
	struct stat st;

	pthread_mutex_lock(&f->lock);
	bool wait = atomic_load(&v->settling) && f->id > atomic_load(&v->settle_cursor) &&
		    !f->conflict && !f->truncate_pending && f->cut_to == UINT64_MAX &&
		    f->stamp_valid && !f->stamp_stale && (known || !f->busy);
	struct src_stamp stamp = f->stamp;

	pthread_mutex_unlock(&f->lock);
	return wait && tfile_stat_src(f, &st) == 0 && src_has_stamp(&st, &stamp);
}

int settle_loaded(struct tfile *f, int obj_fd, bool known)
{
	struct stat obj;

	if (fstat(obj_fd, &obj) < 0)
		return neg_errno();
	pthread_mutex_lock(&f->lock);
	f->suspect_mtime_ns = timespec_ns(obj.st_mtim);
	for (unsigned i = 0; i < f->map.n_groups; i++)
		if (f->map.groups[i]->intent)
			suspect_locked(f, f->map.groups[i], &obj);
	uint64_t end = f->attr_owned ? f->size : f->stamp.size;

	pthread_mutex_unlock(&f->lock);
	/* Of the block at the end more has to be known at once: recover_tail(), join_end(). */
	if (may_wait(f, known))
		return settle_range(f, end, end + 1);
	return settle_range(f, 0, UINT64_MAX);
}
