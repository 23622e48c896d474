// SPDX-License-Identifier: GPL-2.0-or-later
/* The background: which piece of work is next, and the flush of the whole volume. */
#include <string.h>

#include "tier/internal.h"

#define MINUTE_NS (60 * SECOND_NS)
#define BURY_INTERVAL_NS (5 * SECOND_NS)
#define WAIT_MAX_NS (30 * SECOND_NS)

/* ---- commits by age ----------------------------------------------------------------------- */
/* Up to `max` changed files that are due, oldest first, referenced. */
static unsigned collect_changed(struct volume *v, struct tfile **files, unsigned max,
				int64_t before_ns, int64_t *ret_next_ns)
{
	unsigned n = 0;

	*ret_next_ns = INT64_MAX;
	pthread_mutex_lock(&v->lists_lock);
	for (struct tfile *f = v->changed.head; f && n < max; f = f->changed.next) {
		int64_t since = f->changed.since_ns;

		if (since > before_ns) {
			*ret_next_ns = since;
			break;
		}
		tfile_ref(f);
		files[n++] = f;
	}
	pthread_mutex_unlock(&v->lists_lock);
	return n;
}

static int commit_changed(struct volume *v, int64_t before_ns, int64_t *ret_next_ns)
{
	struct tfile **files = calloc(COMMIT_BATCH_MAX, sizeof(*files));

	if (!files)
		return -ENOMEM;
	unsigned n = collect_changed(v, files, COMMIT_BATCH_MAX, before_ns, ret_next_ns);
	int r = n ? commit_files(v, files, n) : 0;

	for (unsigned i = 0; i < n; i++)
		tfile_put(files[i]);
	free(files);
	return r < 0 ? r : (int)n;
}

int volume_commit(struct volume *v)
{
	int64_t next;
	int r;

	/* A snapshot empties the list even when the commit fails and puts it back: no endless
	 * loop, because a failure ends it. */
	do {
		r = commit_changed(v, INT64_MAX, &next);
	} while (r > 0);
	return r;
}

/* ---- minute by minute --------------------------------------------------------------------- */
static void tick(struct volume *v, int64_t now_ns)
{
	if (now_ns - v->last_minute_ns < MINUTE_NS)
		return;
	uint64_t hits = atomic_load(&v->hits), misses = atomic_load(&v->misses);
	uint64_t written = atomic_load(&v->written_back_bytes);

	pthread_mutex_lock(&v->lists_lock);
	v->minutes[v->minute] = (struct hit_minute){ .hits = hits - v->last_hits,
						     .misses = misses - v->last_misses,
						     .written_back = written - v->last_written_back };
	v->minute = (v->minute + 1) % 60;
	v->last_hits = hits;
	v->last_misses = misses;
	v->last_written_back = written;
	pthread_mutex_unlock(&v->lists_lock);
	v->last_minute_ns = now_ns;
	ghost_tick(&v->ghost);
}

/* ---- one step ----------------------------------------------------------------------------- */
static int commit_due(struct volume *v, int64_t now_ns)
{
	int64_t next;

	if (now_ns < v->commit_retry_ns)
		return 0;
	int r = commit_changed(v, now_ns - COMMIT_INTERVAL_NS, &next);

	v->commit_due_ns = next == INT64_MAX ? INT64_MAX : next + COMMIT_INTERVAL_NS;
	if (r < 0)
		v->commit_retry_ns = now_ns + SECOND_NS;
	if (r > 0)
		(void)reclaim_step(v);
	return r;
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
	if (v->changed.count && v->commit_due_ns < until)
		until = v->commit_due_ns;
	if (v->changed.count && v->commit_due_ns == INT64_MAX)
		until = now_ns + COMMIT_INTERVAL_NS;
	if (v->graves && v->bury_at_ns < until)
		until = v->bury_at_ns;
	if (v->dirty.count || v->garbage.count)
		until = until < now_ns + SECOND_NS ? until : now_ns + SECOND_NS;
	pthread_mutex_unlock(&v->lists_lock);
	/* Never a busy loop, whatever failed. */
	return until > now_ns + SECOND_NS / 20 ? until - now_ns : SECOND_NS / 20;
}

typedef int (*step_fn)(struct volume *v, int64_t now_ns);

static int recover_due(struct volume *v, int64_t now_ns)
{
	(void)now_ns;
	return recover_step(v);
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
					 recover_due, writeback_step, promote_due };
	int64_t now_ns = volume_now(v);
	int result = 0;

	tick(v, now_ns);
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

int volume_flush_step(struct volume *v, uint64_t budget, uint64_t *ret_bytes,
		      uint64_t *ret_left_bytes)
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
	return r == 0 ? volume_commit(v) : r;
}
