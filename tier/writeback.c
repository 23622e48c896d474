// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Write-back: dirty blocks to SRC, in passes of one file.
 *
 * A pass: (1) stat SRC: a foreign change is a conflict and stops here (I9); (2) mark the file busy,
 * durably, if its dirty state is durable; (3) extent by extent in ascending order: under a shared
 * reservation set `wb` on the dirty blocks and read the extent from the object; write the dirty
 * runs to SRC; (4) sync SRC, with the owned mtime set first when nothing dirty remains; (5) blocks
 * which still have `wb` - nothing wrote them since (3) - become clean, and extents not touched
 * since get their checksum (I3). The catalog learns it with the next commit.
 * Crash before that commit: the blocks are dirty in the catalog and are written again.
 * src_mutex is held throughout, so no cut or hole of ours is undone by data read before it.
 */
#include "tier/pass.h"

#include <string.h>
#include <sys/stat.h>

struct wb_extent {
	uint64_t index; /* of the group */
	unsigned word;
	bool whole; /* sum covers every present block */
	uint64_t sum;
};

struct pass {
	struct tfile *f;
	char *buf; /* one extent; owned */
	struct wb_extent extents[WRITEBACK_BYTES / EXTENT_BYTES];
	unsigned n;
	uint64_t bytes, next; /* next: where the following pass goes on */
};

/* ---- (3) one extent ----------------------------------------------------------------------- */
/* Read the blocks of `mask`; runs of adjacent ones at once. */
static int read_blocks(struct pass *p, uint64_t base, uint64_t mask)
{
	struct tfile *f = p->f;
	int r = 0;

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		if (e == b) {
			b++;
			continue;
		}
		r = f->obj_fd < 0 ? -EIO
				  : read_object(f, p->buf + b * BLOCK_BYTES, (e - b) * BLOCK_BYTES,
						base + b * BLOCK_BYTES);
		b = e;
	}
	return r;
}

static int write_blocks(struct pass *p, uint64_t base, uint64_t mask, uint64_t size)
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
		uint64_t start = base + b * BLOCK_BYTES, end = base + e * BLOCK_BYTES;

		end = min_u64(end, size);
		if (start < end) {
			r = write_full(p->f->src_fd, p->buf + b * BLOCK_BYTES, end - start, start);
			p->bytes += end - start;
		}
		b = e;
	}
	return r;
}

static uint64_t sum_blocks(const struct pass *p, uint64_t base, uint64_t mask)
{
	uint64_t sum = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			sum += block_sum(p->buf + b * BLOCK_BYTES, base / BLOCK_BYTES + b);
	return sum;
}

/*
 * Before SRC gets them the durable state has to call these blocks dirty, not clean under an intent:
 * should they be written once more, with the bytes of before, their checksum would fit again after
 * a crash, while SRC has what is written now. The range is reserved, so they stay dirty. An SSD
 * that can not store it is no reason to keep the data from SRC; but then no stamp may vouch for it.
 */
static void make_dirty_known(struct tfile *f, uint64_t base)
{
	pthread_mutex_lock(&f->lock);
	const struct map_group *g = map_find(&f->map, base / GROUP_BYTES);
	bool known = !g || g->seq == g->committed_seq;

	pthread_mutex_unlock(&f->lock);
	if (known || commit_file(f) == 0)
		return;
	stamps_reshape_begin(f);
	stamps_reshape_end(f);
}

static int write_extent(struct pass *p, uint64_t base)
{
	struct tfile *f = p->f;
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;
	struct range range;

	range_lock(&f->ranges, &range, base, base + EXTENT_BYTES, false);
	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, base / GROUP_BYTES);

	/* The checksum is going to be of all that is present: then SRC must get all of it. */
	if (g && g->dirty[w] && f->pass == PASS_WRITE)
		pass_distrust_extent_locked(f, base);
	uint64_t dirty = g ? g->dirty[w] : 0, present = g ? g->present[w] : 0, size = f->size;

	if (g) {
		g->wb[w] = dirty;
		g->touched &= ~(1ull << w);
	}
	pthread_mutex_unlock(&f->lock);
	if (dirty)
		make_dirty_known(f, base);
	int r = dirty ? read_blocks(p, base, present) : 0;

	range_unlock(&f->ranges, &range);
	if (!dirty)
		return 0;
	/* In the list in any case: abandon_pass() takes the marks back. */
	if (r == 0)
		r = write_blocks(p, base, dirty, size);
	if (r == 0)
		stamps_note(f);
	crash_point(CP_WB_EXTENT);
	p->extents[p->n++] = (struct wb_extent){ .index = base / GROUP_BYTES,
						 .word = w,
						 .sum = r < 0 ? 0 : sum_blocks(p, base, present) };
	return r;
}

static uint64_t next_dirty(struct tfile *f, uint64_t at)
{
	pthread_mutex_lock(&f->lock);
	uint64_t d = map_next_dirty(&f->map, at);

	pthread_mutex_unlock(&f->lock);
	return d;
}

static int write_extents(struct pass *p, uint64_t from, uint64_t budget)
{
	uint64_t at = next_dirty(p->f, from);
	int r = 0;

	while (r == 0 && at != UINT64_MAX && p->n < ARRAY_SIZE(p->extents) && p->bytes < budget) {
		uint64_t base = round_down_u64(at, EXTENT_BYTES);

		r = write_extent(p, base);
		at = next_dirty(p->f, base + EXTENT_BYTES);
	}
	p->next = at;
	return r;
}

/* ---- (4) SRC ------------------------------------------------------------------------------ */
/* Is everything that is dirty now in this pass? Blocks written again since count as not. */
static bool covers_all_locked(const struct tfile *f)
{
	for (unsigned i = 0; i < f->map.n_groups; i++)
		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			if (f->map.groups[i]->dirty[w] & ~f->map.groups[i]->wb[w])
				return false;
	return true;
}

/*
 * A hole at the end of the file: no block of it was written, but the size is that of the mount, as
 * it was when everything dirty was in this pass: after a crash SRC's size must not stand for data
 * that was appended since. Under a reservation of everything, so that no write to SRC behind it is
 * cut off again.
 */
static int grow_src(struct tfile *f, uint64_t size)
{
	struct range all;
	struct stat st;
	int r = 0;

	if (fstat(f->src_fd, &st) < 0)
		return neg_errno();
	if ((uint64_t)st.st_size >= size)
		return 0;
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	if (fstat(f->src_fd, &st) < 0)
		r = neg_errno();
	else if ((uint64_t)st.st_size < size && ftruncate(f->src_fd, (off_t)size) < 0)
		r = neg_errno();
	range_unlock(&f->ranges, &all);
	return r;
}

static int settle_src(struct pass *p, uint64_t *ret_mtime_seq)
{
	struct tfile *f = p->f;

	pthread_mutex_lock(&f->lock);
	bool last = covers_all_locked(f);
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, f->mtime };
	bool set_times = last && f->attr_owned;
	uint64_t size = f->size;
	uint64_t src_upto = f->src_wseq;

	*ret_mtime_seq = set_times ? f->mtime_seq : UINT64_MAX;
	pthread_mutex_unlock(&f->lock);
	int r = last ? grow_src(f, size) : 0;

	if (r < 0)
		return r;
	if (set_times && futimens(f->src_fd, tv) < 0)
		return neg_errno();
	stamps_note(f);
	crash_point(CP_WB_TIMES);
	if (!SABOTAGED(3) && (last ? fsync(f->src_fd) : fdatasync(f->src_fd)) < 0) {
		r = neg_errno();
		tfile_sync_error(f, r);
		return r;
	}
	if (last) { /* +1: the change under way, which this sync covers too */
		pthread_mutex_lock(&f->lock);
		f->src_sseq = max_u64(f->src_sseq, src_upto);
		f->src_unknown = false;
		pthread_mutex_unlock(&f->lock);
	}
	return 0;
}

/* ---- (5) clean ---------------------------------------------------------------------------- */
static void clean_extent_locked(struct tfile *f, const struct wb_extent *x)
{
	struct map_group *g = map_find(&f->map, x->index);
	uint64_t base = x->index * GROUP_BYTES + x->word * EXTENT_BYTES;

	if (!g)
		return;
	uint64_t done = g->wb[x->word] & g->dirty[x->word];

	/* A program may be writing to it past us: clean as far as the checksum fits (I2). */
	if (f->pass == PASS_WRITE)
		map_set_intent(&f->map, base, base + 1);
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (done >> b & 1)
			(void)map_set(&f->map, base + b * BLOCK_BYTES,
				      base + (b + 1) * BLOCK_BYTES, BLOCK_CLEAN);
	g->wb[x->word] = 0;
	if (!(g->touched >> x->word & 1)) {
		g->sum[x->word] = x->sum;
		g->sum_valid |= 1ull << x->word;
		map_group_changed(&f->map, g);
	}
}

/* All dirty data is in SRC, from memory, though the SSD has lost some of it: its copies go. */
static void rescued_locked(struct tfile *f)
{
	(void)tfile_map_set_locked(f, 0, RANGE_END & ~(BLOCK_BYTES - 1), BLOCK_ABSENT);
	stamps_distrust_locked(f);
	f->sync_failed = false;
	f->sync_wanted = f->sync_done;
}

static void finish_pass(struct pass *p, uint64_t mtime_seq)
{
	struct tfile *f = p->f;

	pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < p->n; i++)
		clean_extent_locked(f, &p->extents[i]);
	if (f->map.dirty_blocks == 0 && f->attr_owned && mtime_seq == f->mtime_seq)
		f->attr_owned = false;
	if (!tfile_dirty_locked(f)) {
		file_list_remove(f->v, &f->v->dirty, f);
		if (f->sync_failed && f->pass == PASS_NONE)
			rescued_locked(f);
	}
	f->data_seq++;
	tfile_changed_locked(f);
	tfile_account_locked(f);
	pthread_mutex_unlock(&f->lock);
	atomic_fetch_add(&f->v->written_back_bytes, p->bytes);
}

static void abandon_pass(struct pass *p)
{
	struct tfile *f = p->f;

	pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < p->n; i++) {
		struct map_group *g = map_find(&f->map, p->extents[i].index);

		if (g)
			g->wb[p->extents[i].word] = 0;
	}
	pthread_mutex_unlock(&f->lock);
}

/* ---- a pass ------------------------------------------------------------------------------- */
/*
 * The version of the mount wins: all of it that is on the SSD goes to SRC, clean copies too, and
 * what SRC has behind its end is cut off. What was never on the SSD is as SRC has it.
 */
static void force_locked(struct tfile *f)
{
	for (uint64_t at = 0; (at = map_next_present(&f->map, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(&f->map, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		if (run.state == BLOCK_CLEAN)
			(void)tfile_map_set_locked(f, run.start, run.end, BLOCK_DIRTY);
		at = run.end;
	}
	stamps_distrust_locked(f);
	f->conflict = false;
	atomic_fetch_sub(&f->v->conflicts, 1);
	f->stamp_stale = true;
	f->truncate_pending = true;
	f->cut_to = f->pending_to = f->size;
	tfile_set_mtime_locked(f);
	tfile_changed_locked(f);
}

static bool in_conflict(struct tfile *f, bool force)
{
	pthread_mutex_lock(&f->lock);
	if (f->conflict && force)
		force_locked(f);
	bool conflict = f->conflict;

	pthread_mutex_unlock(&f->lock);
	return conflict;
}

static int redo_pending_cut(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool pending = f->truncate_pending;

	pthread_mutex_unlock(&f->lock);
	return pending ? settle_cut(f, true) : 0;
}

static int run_pass(struct pass *p, uint64_t budget)
{
	struct tfile *f = p->f;
	uint64_t mtime_seq;
	int r = redo_pending_cut(f);

	if (r < 0)
		return r;
	(void)src_change_begin(f);
	/* That looked at SRC once more: a change by others that it saw must not be written over. */
	if (in_conflict(f, false))
		r = -EBUSY;
	if (r == 0)
		r = write_extents(p, f->wb_cursor, budget);
	if (r == 0)
		r = settle_src(p, &mtime_seq);
	crash_point(CP_WB_SYNCED);
	if (r == 0)
		finish_pass(p, mtime_seq);
	else
		abandon_pass(p);
	crash_point(CP_WB_CLEAN);
	src_writeback_end(f);
	pthread_mutex_lock(&f->lock);
	if (r == 0 && f->src_sseq + 1 == f->src_wseq && !tfile_dirty_locked(f))
		f->src_sseq = f->src_wseq;
	f->wb_cursor = p->next == UINT64_MAX ? 0 : p->next;
	pthread_mutex_unlock(&f->lock);
	return r;
}

static int pass_of(struct tfile *f, uint64_t budget, bool force, uint64_t *ret_bytes)
{
	_cleanup_free_ struct pass *p = calloc(1, sizeof(*p));
	int r = tfile_refresh(f);

	if (!p)
		return -ENOMEM;
	if (r < 0)
		return r;
	if (in_conflict(f, force))
		return -EBUSY;
	(void)pass_adopt(f, true);
	p->f = f;
	p->buf = malloc(EXTENT_BYTES);
	if (!p->buf)
		return -ENOMEM;
	r = run_pass(p, budget);
	free(p->buf);
	*ret_bytes = p->bytes;
	if (r == 0)
		(void)tfile_refresh(f); /* adopt the stamp this pass has made */
	return r;
}

/*
 * The file is gone from SRC: unlinked by us and a crash came before the row was deleted, or removed
 * by somebody else. There is nothing its data could be written to.
 */
void gone_from_src(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	uint64_t dirty = f->map.dirty_blocks * BLOCK_BYTES;

	pthread_mutex_unlock(&f->lock);
	if (dirty && f->v->unclean)
		volume_log(f->v, 6,
			   "%s: no longer in SRC; its copy (%llu bytes of it newer) is dropped",
			   f->path ? f->path : "(no path)", (unsigned long long)dirty);
	tfile_dead(f);
}

int writeback_file(struct tfile *f, uint64_t budget, bool force, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	int r = tfile_use(f, true);

	if (r == -ESTALE && src_tells_gone(f->v->src, &f->key)) {
		gone_from_src(f);
		return 0;
	}
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->src_mutex);
	r = pass_of(f, min_u64(budget, WRITEBACK_BYTES), force, ret_bytes);
	pthread_mutex_unlock(&f->src_mutex);
	tfile_unuse(f);
	return r;
}

/* ---- choosing a file ---------------------------------------------------------------------- */
/* Oldest first; those which failed lately or are in conflict are passed over. */
static struct tfile *pick(struct volume *v, int64_t now_ns, int64_t *ret_since)
{
	struct tfile *found = NULL;

	pthread_mutex_lock(&v->lists_lock);
	for (struct tfile *f = v->dirty.head; f && !found; f = f->dirty.next)
		if (now_ns >= atomic_load(&f->retry_at_ns))
			found = f;
	if (found) {
		tfile_ref(found);
		*ret_since = found->dirty.since_ns;
	}
	pthread_mutex_unlock(&v->lists_lock);
	return found;
}

static void note_failure(struct volume *v, struct tfile *f, int r, int64_t now_ns)
{
	unsigned failures = atomic_fetch_add(&f->failures, 1) + 1;

	atomic_store(&f->retry_at_ns, now_ns + policy_backoff_ns(failures));
	if (r != -EBUSY && failures == 1)
		volume_error(v, f, r, "cannot write back; it stays on the SSD, will be retried");
}

/* Still dirty after a whole round: it goes to the end of the queue, as if dirtied now. */
static void requeue(struct volume *v, struct tfile *f, int64_t now_ns)
{
	pthread_mutex_lock(&f->lock);
	if (f->wb_cursor == 0 && tfile_dirty_locked(f) && !f->dead) {
		file_list_remove(v, &v->dirty, f);
		file_list_add(v, &v->dirty, f, now_ns);
	}
	pthread_mutex_unlock(&f->lock);
}

void writeback_note(struct tfile *f, int r, int64_t now_ns)
{
	if (r < 0) {
		note_failure(f->v, f, r, now_ns);
	} else {
		atomic_store(&f->failures, 0);
		requeue(f->v, f, now_ns);
	}
}

int writeback_step(struct volume *v, int64_t now_ns)
{
	int64_t since;
	uint64_t bytes;
	struct tfile *f = pick(v, now_ns, &since);

	if (!f)
		return 0;
	struct policy_writeback w = { .dirty_bytes = atomic_load(&v->dirty_blocks) * BLOCK_BYTES,
				      .cap_bytes = v->cap_blocks * BLOCK_BYTES,
				      .oldest_dirty_ns = since,
				      .now_ns = now_ns,
				      .flush = v->flushing };
	int r = 0;

	if (policy_must_write_back(&v->opt, &w)) {
		r = writeback_file(f, WRITEBACK_BYTES, false, &bytes);
		writeback_note(f, r, now_ns);
		r = 1; /* a failure backs off: the others' turn */
	}
	tfile_put(f);
	return r;
}
