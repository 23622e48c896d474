// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The committer: makes what is in memory durable in the journal, in the order I1 and I2 demand.
 *
 * A batch: (1) snapshot each file's changed rows, and the small data written since its last commit,
 * under its lock; (2) sync the objects of files with more data than that, so that every block the
 * snapshot calls present is durable, in the object or in this batch (I1: a block is set present in
 * memory only after its write() returned); (3) append it all to the journal, one flush; (4) note in
 * memory what is durable now. Whoever needs a commit queues the file; the first one that finds no
 * batch under way leads the next for all that have queued (group commit).
 * Crash before (3) ends: the old state. After: the new one. README.md has the cases.
 * When the journal has no room for a batch, everything goes to the catalog instead (checkpoint.c).
 */
#include <semaphore.h>
#include <string.h>

#include "tier/snapshot.h"

/* A leader waits for the others half as long as a batch takes, at most so long. */
#define GATHER_MAX_NS (SECOND_NS / 500)

/* Who waits for a batch; on his stack. One semaphore each: nobody is woken for another's sake, and
 * whoever is woken needs no lock to go on. */
struct commit_waiter {
	struct commit_waiter *next;
	sem_t wake;
	bool lead; /* not done yet: it is for him to run the batch */
};

/* ---- (3) the journal ---------------------------------------------------------------------- */
#define ENTRY_OVERHEAD 64u
#define ROW_BYTES_MAX 4400u
#define GROUP_BYTES_MAX 1800u

static uint64_t bytes_wanted(const struct snapshot *s, unsigned n)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += ROW_BYTES_MAX + s[i].n_groups * (uint64_t)GROUP_BYTES_MAX +
			 s[i].n_data * (BLOCK_BYTES + ENTRY_OVERHEAD);
	return bytes;
}

/* Blocks next to each other in one entry. The content may be newer than the snapshot by now: then
 * it is newer data of a block that was written before, as a disk may hold it too. */
static int put_data(struct journal *j, const struct snapshot *s)
{
	char buf[SNAPSHOT_DATA_BLOCKS * BLOCK_BYTES];
	int r = s->n_data && !SABOTAGED(1) ? tfile_hold_object(s->f) : 0;

	if (r < 0 || !s->n_data || SABOTAGED(1))
		return r;

	for (unsigned i = 0, e; r == 0 && i < s->n_data; i = e) {
		for (e = i + 1; e < s->n_data && s->data[e] == s->data[e - 1] + BLOCK_BYTES; e++)
			;
		size_t len = (e - i) * BLOCK_BYTES;

		r = s->f->obj_fd < 0 ? -EIO : read_full(s->f->obj_fd, buf, len, s->data[i]);
		if (r == 0)
			r = journal_put_data(j, s->row.id, s->data[i], buf, (uint32_t)len);
	}
	tfile_drop_object(s->f);
	return r;
}

/* The row first: busy mark, cut and size must not come later than what they explain. */
static int put_snapshot(struct journal *j, const struct snapshot *s)
{
	if (s->delete_row)
		return journal_put_delete(j, s->f->id);
	int r = journal_put_file(j, &s->row);

	if (r == 0 && s->synced_mark)
		r = journal_put_synced(j, s->row.id);
	if (r == 0)
		r = put_data(j, s);
	for (unsigned i = 0; r == 0 && i < s->n_groups; i++)
		r = journal_put_group(j, s->row.id, &s->groups[i]);
	return r;
}

static int append(struct volume *v, struct snapshot *s, unsigned n)
{
	bool any = false;
	int r = 0;

	journal_begin(v->journal);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		if (s[i].error || s[i].skip)
			continue;
		any = true;
		r = put_snapshot(v->journal, &s[i]);
	}
	if (r < 0)
		journal_abort(v->journal);
	return r < 0 ? r : any ? journal_end(v->journal) : 0;
}

/* ---- a batch ------------------------------------------------------------------------------ */
static int commit_to_journal(struct volume *v, struct tfile **files, unsigned n, uint64_t gen)
{
	struct snapshot *s = calloc(n, sizeof(*s));

	if (!s)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		snapshot_take(&s[i], files[i], true);
	crash_point(CP_COMMIT_COPIED);
	uint64_t before = file_list_count(v, &v->uncheckpointed);
	bool fits = bytes_wanted(s, n) <= journal_room(v->journal) &&
		    before + n <= JOURNAL_FILES_MAX;
	int r = fits ? 0 : -ENOSPC;

	if (r == 0) {
		snapshot_sync(v, s, n);
		crash_point(CP_COMMIT_SYNCED);
		r = append(v, s, n);
		if (r < 0)
			volume_error(v, NULL, r, "cannot write the journal");
	}
	for (unsigned i = 0; i < n; i++)
		if (fits)
			snapshot_finish(&s[i], true, gen, r);
		else
			snapshot_undo(&s[i], true);
	crash_point(CP_COMMIT_NOTED);
	free(s);
	if (before < JOURNAL_FILES_SOFT && before + n >= JOURNAL_FILES_SOFT)
		volume_wake(v);
	return fits ? 0 : -ENOSPC;
}

void commit_result_locked(struct tfile *f, uint64_t gen, int r)
{
	if (gen < f->commit_gen)
		return; /* a younger batch has finished before */
	f->commit_error = r;
	__atomic_store_n(&f->commit_gen, gen, __ATOMIC_RELEASE);
}

static void set_results(struct tfile **files, unsigned n, uint64_t gen, int r)
{
	for (unsigned i = 0; i < n; i++) {
		pthread_mutex_lock(&files[i]->lock);
		commit_result_locked(files[i], gen, r);
		pthread_mutex_unlock(&files[i]->lock);
	}
}

/* ---- group commit ------------------------------------------------------------------------- */
int commit_init(struct volume *v)
{
	pthread_mutex_init(&v->catalog_mutex, NULL);
	pthread_mutex_init(&v->commit_mutex, NULL);
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&v->commit_idle, NULL);
	pthread_cond_init(&v->commit_more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	v->commit_next_gen = 1;
	return 0;
}

void commit_release(struct volume *v)
{
	free(v->commit_wanted);
	id_set_release(&v->dead_ids);
	journal_close(v->journal);
	pthread_cond_destroy(&v->commit_idle);
	pthread_cond_destroy(&v->commit_more);
	pthread_mutex_destroy(&v->commit_mutex);
	pthread_mutex_destroy(&v->catalog_mutex);
}

static int queue_locked(struct volume *v, struct tfile *f)
{
	if (f->commit_queued)
		return 0;
	if (v->commit_wanted_n == v->commit_wanted_cap) {
		unsigned cap = v->commit_wanted_cap ? v->commit_wanted_cap * 2 : 64;
		struct tfile **p = reallocarray(v->commit_wanted, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		v->commit_wanted = p;
		v->commit_wanted_cap = cap;
	}
	tfile_ref(f);
	f->commit_queued = true;
	v->commit_wanted[v->commit_wanted_n++] = f;
	return 0;
}

/* The lead goes to who wants to be alone, or to one of those who wait for the next batch. */
static void give_up_lead_locked(struct volume *v)
{
	struct commit_waiter *w = v->commit_waiters;

	if (v->commit_alone || !w) {
		v->committing = false;
		pthread_cond_signal(&v->commit_idle);
		return;
	}
	v->commit_waiters = w->next;
	w->lead = true;
	sem_post(&w->wake);
}

void commit_lead(struct volume *v)
{
	pthread_mutex_lock(&v->commit_mutex);
	v->commit_alone++;
	while (v->committing)
		pthread_cond_wait(&v->commit_idle, &v->commit_mutex);
	v->commit_alone--;
	v->committing = true;
	pthread_mutex_unlock(&v->commit_mutex);
}

void commit_unlead(struct volume *v)
{
	pthread_mutex_lock(&v->commit_mutex);
	give_up_lead_locked(v);
	pthread_mutex_unlock(&v->commit_mutex);
}

static int64_t clock_ns(void)
{
	struct timespec t;

	/* Not the owner's clock: this is about how long this machine's disk takes. */
	clock_gettime(CLOCK_MONOTONIC, &t);
	return timespec_ns(t);
}

/*
 * With several writers those whose batch has just ended come back while the next one is being
 * written, and are too late for it: there would be two half batches in turn. So the leader waits
 * for as many as there were lately, for a moment; a single writer never waits.
 */
static void gather_locked(struct volume *v)
{
	int64_t half = v->commit_batch_ns / 2;
	struct timespec deadline =
		ns_timespec(clock_ns() + (half < GATHER_MAX_NS ? half : GATHER_MAX_NS));

	v->commit_gathering = true;
	while (v->commit_callers < v->commit_expected && !v->commit_alone)
		if (pthread_cond_timedwait(&v->commit_more, &v->commit_mutex, &deadline))
			break;
	v->commit_gathering = false;
}

static void note_batch_locked(struct volume *v, unsigned callers, int64_t took_ns)
{
	unsigned seen = callers + v->commit_callers;

	v->commit_expected = v->commit_expected * 7 / 8;
	if (v->commit_expected < seen)
		v->commit_expected = seen;
	v->commit_batch_ns = (3 * v->commit_batch_ns + took_ns) / 4;
}

/* No room: through the catalog, which takes all that is changed, these too. The lead is given up
 * meanwhile, as the checkpoint takes it itself. */
static void commit_to_catalog(struct volume *v, struct tfile **files, unsigned n, uint64_t gen)
{
	crash_point(CP_COMMIT_FULL);
	int r = checkpoint(v);

	if (r < 0)
		volume_error(v, NULL, r, "cannot make changes durable");
	set_results(files, n, gen, r);
}

/* Run the next batch for everybody who has queued; the lead and commit_mutex are ours, and are
 * given up. */
static void lead_locked(struct volume *v)
{
	gather_locked(v);
	struct tfile **files = TAKE_PTR(v->commit_wanted);
	struct commit_waiter *waiters = TAKE_PTR(v->commit_waiters);
	unsigned n = v->commit_wanted_n, callers = v->commit_callers;
	uint64_t gen = v->commit_next_gen++;

	v->commit_wanted_n = v->commit_wanted_cap = v->commit_callers = 0;
	for (unsigned i = 0; i < n; i++)
		files[i]->commit_queued = false;
	pthread_mutex_unlock(&v->commit_mutex);
	int64_t start = clock_ns();
	int r = commit_to_journal(v, files, n, gen);

	pthread_mutex_lock(&v->commit_mutex);
	note_batch_locked(v, callers, clock_ns() - start);
	give_up_lead_locked(v);
	pthread_mutex_unlock(&v->commit_mutex);
	if (r < 0)
		commit_to_catalog(v, files, n, gen);
	while (waiters) {
		struct commit_waiter *w = waiters;

		waiters = w->next; /* once woken he is gone */
		sem_post(&w->wake);
	}
	for (unsigned i = 0; i < n; i++)
		tfile_put(files[i]);
	free(files);
}

static void join_locked(struct volume *v, struct commit_waiter *w)
{
	*w = (struct commit_waiter){ .next = v->commit_waiters };
	sem_init(&w->wake, 0, 0);
	v->commit_waiters = w;
	if (v->commit_gathering && v->commit_callers >= v->commit_expected)
		pthread_cond_signal(&v->commit_more);
}

/* commit_mutex is held, and given up. */
static void wait_or_lead_locked(struct volume *v)
{
	struct commit_waiter w;

	v->commit_callers++;
	if (!v->committing && !v->commit_alone) {
		v->committing = true;
		lead_locked(v);
		return;
	}
	join_locked(v, &w);
	pthread_mutex_unlock(&v->commit_mutex);
	while (sem_wait(&w.wake) < 0)
		;
	sem_destroy(&w.wake);
	if (w.lead) {
		pthread_mutex_lock(&v->commit_mutex);
		lead_locked(v);
	}
}

int commit_files(struct volume *v, struct tfile **files, unsigned n)
{
	int r = 0;

	pthread_mutex_lock(&v->commit_mutex);
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = queue_locked(v, files[i]);
	if (r < 0) {
		pthread_mutex_unlock(&v->commit_mutex);
		return r;
	}
	wait_or_lead_locked(v);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		pthread_mutex_lock(&files[i]->lock);
		r = files[i]->commit_error;
		pthread_mutex_unlock(&files[i]->lock);
	}
	return r;
}

int commit_file(struct tfile *f)
{
	return commit_files(f->v, &f, 1);
}

/* ---- deletions ---------------------------------------------------------------------------- */
static int remember_dead(struct volume *v, const struct grave *graves)
{
	unsigned n = 0;

	for (const struct grave *g = graves; g; g = g->next)
		n += g->row;
	pthread_mutex_lock(&v->lists_lock);
	int r = id_set_reserve(&v->dead_ids, n);

	for (const struct grave *g = graves; r == 0 && g; g = g->next)
		if (g->row)
			id_set_append(&v->dead_ids, g->id);
	id_set_sort(&v->dead_ids);
	pthread_mutex_unlock(&v->lists_lock);
	return r;
}

static int append_deletes(struct volume *v, const struct grave *graves)
{
	int r = 0;

	journal_begin(v->journal);
	for (const struct grave *g = graves; r == 0 && g; g = g->next)
		if (g->row)
			r = journal_put_delete(v->journal, g->id);
	return r < 0 ? r : journal_end(v->journal);
}

int commit_deletes(struct volume *v, const struct grave *graves)
{
	uint64_t bytes = 0;

	for (const struct grave *g = graves; g; g = g->next)
		bytes += ENTRY_OVERHEAD;
	commit_lead(v);
	int r = remember_dead(v, graves);
	bool fits = bytes <= journal_room(v->journal);

	if (r == 0 && fits)
		r = append_deletes(v, graves);
	crash_point(CP_DELETES_APPENDED);
	commit_unlead(v);
	return r == 0 && !fits ? checkpoint(v) : r;
}
