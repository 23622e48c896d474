// SPDX-License-Identifier: GPL-2.0-or-later
/* The background: which piece of work is next, and the flush of the whole volume. */
#include <string.h>

#include "tier/pass.h"

#define MINUTE_NS (60 * SECOND_NS)
#define BURY_INTERVAL_NS (5 * SECOND_NS)
#define WAIT_MAX_NS (30 * SECOND_NS)
#define CHECKPOINT_INTERVAL_NS MINUTE_NS

/* ---- checkpoints by age and by fill ------------------------------------------------------- */
/* Since when the oldest file of the list waits; INT64_MAX: it is empty. */
static int64_t oldest(struct volume *v, const struct file_list *l)
{
	int64_t since = INT64_MAX;

	pthread_mutex_lock(&v->lists_lock);
	if (l->head)
		since = l == &v->changed ? l->head->changed.since_ns
					 : l->head->uncheckpointed.since_ns;
	pthread_mutex_unlock(&v->lists_lock);
	return since;
}

int volume_commit(struct volume *v)
{
	return checkpoint(v);
}

/* ---- minute by minute --------------------------------------------------------------------- */
static void tick(struct volume *v, int64_t now_ns)
{
	if (now_ns - v->last_minute_ns < MINUTE_NS)
		return;
	uint64_t hits = atomic_load(&v->hits), misses = atomic_load(&v->misses);
	uint64_t written = atomic_load(&v->written_back_bytes);

	pthread_mutex_lock(&v->lists_lock);
	v->minutes[v->minute] = (struct hit_minute){
		.hits = hits - v->last_hits,
		.misses = misses - v->last_misses,
		.written_back = written - v->last_written_back,
	};
	v->minute = (v->minute + 1) % 60;
	v->last_hits = hits;
	v->last_misses = misses;
	v->last_written_back = written;
	pthread_mutex_unlock(&v->lists_lock);
	v->last_minute_ns = now_ns;
	ghost_tick(&v->ghost);
}

/* ---- one step ----------------------------------------------------------------------------- */
/* What nobody asked to be durable is committed after 5 s, as ext4 does; the journal is emptied when
 * it is half full or has many files, or a minute after it got something. */
static bool checkpoint_wanted(struct volume *v, int64_t now_ns)
{
	int64_t changed = oldest(v, &v->changed), journaled = oldest(v, &v->uncheckpointed);

	v->commit_due_ns = INT64_MAX;
	if (changed != INT64_MAX)
		v->commit_due_ns = changed + COMMIT_INTERVAL_NS;
	if (journaled != INT64_MAX && journaled + CHECKPOINT_INTERVAL_NS < v->commit_due_ns)
		v->commit_due_ns = journaled + CHECKPOINT_INTERVAL_NS;
	return now_ns >= v->commit_due_ns ||
	       file_list_count(v, &v->uncheckpointed) >= JOURNAL_FILES_SOFT ||
	       journal_used(v->journal) > journal_size(v->journal) / 2;
}

#define COMMIT_SOME 256u

/* No room for the catalog to grow: the journal needs none. What it makes known can be released. */
static int commit_some(struct volume *v)
{
	struct tfile *files[COMMIT_SOME];
	unsigned n = 0;

	pthread_mutex_lock(&v->lists_lock);
	for (struct tfile *f = v->changed.head; f && n < COMMIT_SOME; f = f->changed.next) {
		tfile_ref(f);
		files[n++] = f;
	}
	pthread_mutex_unlock(&v->lists_lock);
	int r = n ? commit_files(v, files, n) : 0;

	for (unsigned i = 0; i < n; i++)
		tfile_put(files[i]);
	return r;
}

static int commit_due(struct volume *v, int64_t now_ns)
{
	if (now_ns < v->commit_retry_ns || !checkpoint_wanted(v, now_ns))
		return 0;
	int r = checkpoint(v);

	if (r == -ENOSPC)
		(void)commit_some(v);
	if (r < 0)
		v->commit_retry_ns = now_ns + SECOND_NS;
	(void)reclaim_step(v);
	return r < 0 ? r : 1;
}

static int bury_due(struct volume *v, int64_t now_ns)
{
	bool tight = atomic_load(&v->used_blocks) > v->cap_blocks / 100 * v->opt.high_percent;

	if (now_ns < v->bury_at_ns && !tight)
		return 0;
	v->bury_at_ns = now_ns + BURY_INTERVAL_NS;
	return bury_step(v);
}

static int64_t time_to_wait(struct volume *v, int64_t now_ns)
{
	int64_t until = now_ns + WAIT_MAX_NS;

	pthread_mutex_lock(&v->lists_lock);
	if (v->changed.count && until > now_ns + COMMIT_INTERVAL_NS)
		until = now_ns + COMMIT_INTERVAL_NS;
	if (v->commit_due_ns < until)
		until = v->commit_due_ns;
	if (v->graves && v->bury_at_ns < until)
		until = v->bury_at_ns;
	if (v->passing.count && v->pass_look_ns < until)
		until = v->pass_look_ns;
	if (v->passing.count && v->pass_scan_ns > now_ns && v->pass_scan_ns < until)
		until = v->pass_scan_ns;
	if (v->dirty.count || v->garbage.count)
		until = until < now_ns + SECOND_NS ? until : now_ns + SECOND_NS;
	pthread_mutex_unlock(&v->lists_lock);
	if (recover_pending(v) && v->gone_at_ns < until)
		until = v->gone_at_ns;
	/* Never a busy loop, whatever failed. */
	return until > now_ns + SECOND_NS / 20 ? until - now_ns : SECOND_NS / 20;
}

typedef int (*step_fn)(struct volume *v, int64_t now_ns);

static int recover_due(struct volume *v, int64_t now_ns)
{
	return recover_step(v, now_ns);
}

static int promote_due(struct volume *v, int64_t now_ns)
{
	(void)now_ns;
	return promote_queue_step(v);
}

static int reclaim_due(struct volume *v, int64_t now_ns)
{
	if (now_ns < v->reclaim_at_ns)
		return 0;
	v->reclaim_at_ns = now_ns + SECOND_NS;
	(void)reclaim_step(v);
	return 0;
}

int volume_step(struct volume *v, int64_t *ret_wait_ns)
{
	static const step_fn steps[] = { commit_due, bury_due,	     reclaim_due, evict_step,
					 recover_due, pass_step, writeback_step, promote_due };
	int64_t now_ns = volume_now(v);
	int result = 0;

	tick(v, now_ns);
	if (now_ns >= v->room_at_ns) {
		v->room_at_ns = now_ns + SECOND_NS;
		room_tick(v, now_ns);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i](v, now_ns);

		if (r > 0 && result == 0)
			result = 1;
		if (r < 0)
			result = r;
	}
	*ret_wait_ns = time_to_wait(v, now_ns);
	return result;
}

/* ---- flush of everything ------------------------------------------------------------------ */
/* The first dirty file that does not wait after a failure. */
static struct tfile *first_flushable(struct volume *v, int64_t now_ns, bool *ret_any)
{
	struct tfile *found = NULL;

	pthread_mutex_lock(&v->lists_lock);
	*ret_any = v->dirty.head != NULL;
	for (struct tfile *f = v->dirty.head; f && !found; f = f->dirty.next)
		if (now_ns >= atomic_load(&f->retry_at_ns))
			found = f;
	if (found)
		tfile_ref(found);
	pthread_mutex_unlock(&v->lists_lock);
	return found;
}

int flush_some(struct volume *v, uint64_t budget, uint64_t *ret_bytes, uint64_t *ret_left_bytes)
{
	int64_t now_ns = volume_now(v);
	bool any;
	struct tfile *f = first_flushable(v, now_ns, &any);
	int r = 0;

	*ret_bytes = 0;
	if (f) {
		r = writeback_file(f, budget, false, ret_bytes);
		writeback_note(f, r, now_ns);
		tfile_put(f);
		r = 1; /* a failure backs off; the next step takes the next file */
	} else if (any) {
		r = atomic_load(&v->conflicts) ? -EBUSY : -EIO;
	}
	*ret_left_bytes = atomic_load(&v->dirty_blocks) * BLOCK_BYTES;
	return r;
}

int volume_flush_step(struct volume *v, uint64_t budget, uint64_t *ret_bytes,
		      uint64_t *ret_left_bytes)
{
	int r = pass_flush_step(v);

	*ret_bytes = 0;
	*ret_left_bytes = atomic_load(&v->dirty_blocks) * BLOCK_BYTES;
	if (r == 0)
		r = flush_some(v, budget, ret_bytes, ret_left_bytes);
	return r == 0 ? volume_commit(v) : r;
}
