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
#include <string.h>

#include "tier/snapshot.h"

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
	bool fits = bytes_wanted(s, n) <= journal_room(v->journal);
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
	pthread_cond_init(&v->commit_done[0], NULL);
	pthread_cond_init(&v->commit_done[1], NULL);
	pthread_cond_init(&v->commit_idle, NULL);
	v->commit_next_gen = 1;
	return 0;
}

void commit_release(struct volume *v)
{
	free(v->commit_wanted);
	id_set_release(&v->dead_ids);
	journal_close(v->journal);
	pthread_cond_destroy(&v->commit_idle);
	pthread_cond_destroy(&v->commit_done[1]);
	pthread_cond_destroy(&v->commit_done[0]);
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

/* Nobody leads now: one of those who wait for the next batch shall, or who wants to be alone. A
 * batch on its way through the catalog may have the same number, as far as waiting goes. */
static void give_up_lead_locked(struct volume *v)
{
	pthread_cond_t *next = &v->commit_done[v->commit_next_gen & 1];

	v->committing = false;
	if (v->commit_detached)
		pthread_cond_broadcast(next);
	else
		pthread_cond_signal(next);
	pthread_cond_signal(&v->commit_idle);
}

void commit_lead(struct volume *v)
{
	pthread_mutex_lock(&v->commit_mutex);
	while (v->committing)
		pthread_cond_wait(&v->commit_idle, &v->commit_mutex);
	v->committing = true;
	pthread_mutex_unlock(&v->commit_mutex);
}

void commit_unlead(struct volume *v)
{
	pthread_mutex_lock(&v->commit_mutex);
	give_up_lead_locked(v);
	pthread_mutex_unlock(&v->commit_mutex);
}

/* Run the next batch for everybody who has queued; commit_mutex held, dropped meanwhile. */
static void lead_locked(struct volume *v)
{
	struct tfile **files = TAKE_PTR(v->commit_wanted);
	unsigned n = v->commit_wanted_n;
	uint64_t gen = v->commit_next_gen++;

	v->commit_wanted_n = v->commit_wanted_cap = 0;
	for (unsigned i = 0; i < n; i++)
		files[i]->commit_queued = false;
	v->committing = true;
	pthread_mutex_unlock(&v->commit_mutex);
	int r = commit_to_journal(v, files, n, gen);

	pthread_mutex_lock(&v->commit_mutex);
	if (r < 0) {
		/* No room: through the catalog, which takes all that is changed, these too. The
		 * lead is given up meanwhile, as the checkpoint takes it itself. */
		v->commit_detached++;
		give_up_lead_locked(v);
		pthread_mutex_unlock(&v->commit_mutex);
		crash_point(CP_COMMIT_FULL);
		r = checkpoint(v);
		if (r < 0)
			volume_error(v, NULL, r, "cannot make changes durable");
		set_results(files, n, gen, r);
		pthread_mutex_lock(&v->commit_mutex);
		v->commit_detached--;
	} else {
		give_up_lead_locked(v);
	}
	v->commit_done_gen = max_u64(v->commit_done_gen, gen);
	pthread_cond_broadcast(&v->commit_done[gen & 1]);
	pthread_mutex_unlock(&v->commit_mutex);
	for (unsigned i = 0; i < n; i++)
		tfile_put(files[i]);
	free(files);
	pthread_mutex_lock(&v->commit_mutex);
}

static bool done_locked(const struct volume *v, uint64_t gen, struct tfile **files, unsigned n)
{
	if (v->commit_done_gen < gen)
		return false;
	/* A batch that went through the catalog may finish after a younger one. */
	for (unsigned i = 0; i < n; i++)
		if (__atomic_load_n(&files[i]->commit_gen, __ATOMIC_ACQUIRE) < gen)
			return false;
	return true;
}

int commit_files(struct volume *v, struct tfile **files, unsigned n)
{
	int r = 0;

	pthread_mutex_lock(&v->commit_mutex);
	uint64_t gen = v->commit_next_gen;

	for (unsigned i = 0; r == 0 && i < n; i++)
		r = queue_locked(v, files[i]);
	while (r == 0 && !done_locked(v, gen, files, n)) {
		if (v->committing || v->commit_next_gen > gen)
			pthread_cond_wait(&v->commit_done[gen & 1], &v->commit_mutex);
		else
			lead_locked(v);
	}
	pthread_mutex_unlock(&v->commit_mutex);
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
