// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The committer: brings the catalog up to what is in memory, in the order that I1 and I2 demand.
 *
 * A batch: (1) snapshot each file's changed rows under its lock; (2) sync the objects, so that
 * every block the snapshot calls present is durable (I1: a block is set present in memory only
 * after its write() returned, so the sync after the snapshot covers it); (3) one transaction;
 * (4) note in memory what is durable now. Whoever needs a commit queues the file; the first one
 * that finds no batch under way leads the next batch for all that have queued (group commit).
 * Crash before (3) ends: the old rows. After: the new ones. README.md has the cases.
 */
#include <fcntl.h>
#include <string.h>

#include "tier/internal.h"

struct item {
	struct tfile *f;
	struct cat_file row;
	struct cat_group *groups;
	uint64_t *group_seqs;
	unsigned n_groups;
	uint64_t seq, data_seq, obj_wseq;
	bool has_row, delete_row, skip, sync, sync_new, dirty, holding;
	int error;
};

/* ---- (1) snapshot ------------------------------------------------------------------------- */
static bool wants_row_locked(const struct tfile *f)
{
	return f->map.present_blocks || f->pinned || f->pin_ranges || tfile_dirty_locked(f) ||
	       f->conflict || (f->row && !f->map_loaded);
}

/* Could recovery find dirty data in what is stored now? Blocks under an intent may turn out so. */
static bool may_be_dirty_locked(const struct tfile *f)
{
	return tfile_dirty_locked(f) || map_has_intent(&f->map);
}

/* The busy mark goes when SRC is durable and its stamp is known: the row describes it exactly.
 * As with intents, both marks go before the transaction. */
static void settle_busy_locked(struct tfile *f)
{
	bool exact = !f->src_inflight && !f->stamp_stale && f->src_wseq == f->src_sseq;

	if (exact && f->busy)
		f->busy = f->busy_durable = false;
	else if (!exact && may_be_dirty_locked(f))
		f->busy = true;
}

static void fill_row_locked(struct tfile *f, struct cat_file *row)
{
	*row = (struct cat_file){ .id = f->id,
				  .key_len = f->key.len,
				  .size_bytes = f->size,
				  .mtime_ns = timespec_ns(f->mtime),
				  .src_size_bytes = f->stamp.size,
				  .src_mtime_ns = f->stamp.mtime_ns,
				  .src_ctime_ns = f->stamp.ctime_ns };
	memcpy(row->key, f->key.data, f->key.len);
	row->flags = (f->pinned ? CAT_F_PINNED : 0) | (f->pin_ranges ? CAT_F_PIN_RANGES : 0) |
		     (f->attr_owned ? CAT_F_ATTR_OWNED : 0) | (f->busy ? CAT_F_SRC_BUSY : 0) |
		     (f->truncate_pending ? CAT_F_TRUNCATE : 0) |
		     (f->conflict ? CAT_F_CONFLICT : 0);
	row->path = f->path ? strdup(f->path) : NULL;
}

/*
 * An intent may go when nothing in the group is dirty and no write is under way. Both marks go
 * before the transaction, so that a write which comes now asks for a new one.
 */
static void settle_intent_locked(struct tfile *f, struct map_group *g)
{
	if (!g->intent || f->writes_inflight || g->seq != g->committed_seq)
		return;
	for (unsigned w = 0; w < BITMAP_WORDS; w++)
		if (g->dirty[w])
			return;
	g->intent = g->intent_durable = false;
	g->seq++;
}

static int snapshot_groups_locked(struct item *it)
{
	struct map *m = &it->f->map;
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_groups; i++) {
		settle_intent_locked(it->f, m->groups[i]);
		n += m->groups[i]->seq != m->groups[i]->committed_seq;
	}
	if (n == 0)
		return 0;
	it->groups = malloc(n * sizeof(*it->groups));
	it->group_seqs = malloc(n * sizeof(*it->group_seqs));
	if (!it->groups || !it->group_seqs)
		return -ENOMEM;
	for (unsigned i = 0; i < m->n_groups; i++) {
		struct map_group *g = m->groups[i];

		if (g->seq == g->committed_seq)
			continue;
		map_group_store(g, &it->groups[it->n_groups]);
		it->group_seqs[it->n_groups++] = g->seq;
	}
	return 0;
}

static void snapshot(struct item *it)
{
	struct tfile *f = it->f;

	pthread_mutex_lock(&f->lock);
	file_list_remove(f->v, &f->v->changed, f);
	it->obj_wseq = f->obj_wseq;
	it->sync = f->obj_wseq != f->obj_sseq;
	it->sync_new = f->obj_new;
	if (f->dead || !f->id) {
		it->skip = true;
	} else if (wants_row_locked(f)) {
		settle_busy_locked(f);
		it->has_row = true;
		fill_row_locked(f, &it->row);
		it->error = snapshot_groups_locked(it);
	} else {
		it->delete_row = f->row;
		it->skip = !f->row;
	}
	it->dirty = may_be_dirty_locked(f);
	it->seq = f->seq;
	it->data_seq = f->data_seq;
	pthread_mutex_unlock(&f->lock);
}

/* ---- (2) objects -------------------------------------------------------------------------- */
static int sync_object(struct item *it)
{
	struct tfile *f = it->f;

	if (f->obj_fd < 0)
		return 0;
	if (it->sync_new) {
		int r = object_sync_dir(f->v, f->id);

		return r < 0 ? r : fsync(f->obj_fd) < 0 ? neg_errno() : 0;
	}
	return it->sync && fdatasync(f->obj_fd) < 0 ? neg_errno() : 0;
}

static void note_synced(struct item *it)
{
	struct tfile *f = it->f;

	pthread_mutex_lock(&f->lock);
	f->obj_sseq = max_u64(f->obj_sseq, it->obj_wseq);
	if (it->sync_new)
		f->obj_new = false;
	pthread_mutex_unlock(&f->lock);
}

static void sync_objects(struct volume *v, struct item *items, unsigned n)
{
	unsigned want = 0;

	for (unsigned i = 0; i < n; i++)
		want += !items[i].skip && (items[i].sync || items[i].sync_new);
	bool all = want >= COMMIT_SYNCFS_FROM;
	int r = all && syncfs(v->objects_fd) < 0 ? neg_errno() : 0;

	for (unsigned i = 0; i < n; i++) {
		struct item *it = &items[i];

		if (it->error || it->skip || !(it->sync || it->sync_new))
			continue;
		it->error = all ? r : sync_object(it);
		if (!it->error)
			note_synced(it);
	}
}

/* ---- (3) transaction ---------------------------------------------------------------------- */
static int store_item(struct volume *v, struct item *it)
{
	int r = 0;

	if (it->delete_row)
		return catalog_delete_file(v->cat, it->row.id ? it->row.id : it->f->id);
	if (it->has_row)
		r = catalog_put_file(v->cat, &it->row);
	for (unsigned i = 0; r == 0 && i < it->n_groups; i++)
		r = catalog_put_group(v->cat, it->row.id, &it->groups[i]);
	return r;
}

static int store_items(struct volume *v, struct item *items, unsigned n)
{
	bool any = false;

	for (unsigned i = 0; i < n; i++)
		any |= !items[i].error && !items[i].skip;
	if (!any)
		return 0;
	int r = catalog_begin(v->cat);

	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < n; i++)
		if (!items[i].error && !items[i].skip)
			r = store_item(v, &items[i]);
	if (r < 0) {
		catalog_rollback(v->cat);
		return r;
	}
	return catalog_commit(v->cat);
}

/* ---- (4) what is durable now -------------------------------------------------------------- */
static void note_groups_locked(struct item *it)
{
	for (unsigned i = 0; i < it->n_groups; i++) {
		struct map_group *g = map_find(&it->f->map, it->groups[i].index);

		if (!g)
			continue;
		g->committed_seq = it->group_seqs[i];
		g->intent_durable = g->intent && it->groups[i].flags & CAT_G_INTENT;
		if (g->seq == g->committed_seq)
			g->removal = false;
	}
}

static void note_deleted_locked(struct tfile *f)
{
	f->row = false;
	for (unsigned i = 0; i < f->map.n_groups; i++)
		map_group_row_gone(f->map.groups[i]);
}

static void note_committed(struct item *it)
{
	struct tfile *f = it->f;

	pthread_mutex_lock(&f->lock);
	if (it->delete_row) {
		note_deleted_locked(f);
	} else if (it->has_row) {
		f->row = true;
		f->busy_durable = it->row.flags & CAT_F_SRC_BUSY;
	}
	if (!it->skip) {
		note_groups_locked(it);
		f->durable_dirty = it->dirty;
		map_prune(&f->map);
	}
	f->committed_seq = max_u64(f->committed_seq, it->seq);
	f->committed_data_seq = max_u64(f->committed_data_seq, it->data_seq);
	pthread_mutex_unlock(&f->lock);
}

static void note_failed(struct item *it)
{
	struct tfile *f = it->f;

	pthread_mutex_lock(&f->lock);
	if (!f->dead)
		file_list_add(f->v, &f->v->changed, f, volume_now(f->v));
	pthread_mutex_unlock(&f->lock);
	volume_error(f->v, f, it->error, "cannot commit to the SSD");
}

/* ---- a batch ------------------------------------------------------------------------------ */
static void commit_batch(struct volume *v, struct tfile **files, unsigned n, uint64_t gen)
{
	struct item *items = calloc(n, sizeof(*items));
	int r = items ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		items[i].f = files[i];
		items[i].error = tfile_hold_object(files[i]);
		items[i].holding = items[i].error == 0;
		if (!items[i].error)
			snapshot(&items[i]);
	}
	if (r == 0) {
		sync_objects(v, items, n);
		r = store_items(v, items, n);
	}
	for (unsigned i = 0; i < n; i++) {
		int error = r < 0 ? r : items[i].error;

		if (items && items[i].holding)
			tfile_drop_object(files[i]);
		if (items) {
			items[i].error = error;
			if (error)
				note_failed(&items[i]);
			else
				note_committed(&items[i]);
			free(items[i].row.path);
			free(items[i].groups);
			free(items[i].group_seqs);
		}
		pthread_mutex_lock(&files[i]->lock);
		files[i]->commit_gen = gen;
		files[i]->commit_error = error;
		pthread_mutex_unlock(&files[i]->lock);
	}
	free(items);
}

/* ---- group commit ------------------------------------------------------------------------- */
int commit_init(struct volume *v)
{
	pthread_mutex_init(&v->commit_mutex, NULL);
	pthread_cond_init(&v->commit_cond, NULL);
	v->commit_next_gen = 1;
	return 0;
}

void commit_release(struct volume *v)
{
	free(v->commit_wanted);
	pthread_cond_destroy(&v->commit_cond);
	pthread_mutex_destroy(&v->commit_mutex);
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
	commit_batch(v, files, n, gen);
	for (unsigned i = 0; i < n; i++)
		tfile_put(files[i]);
	free(files);
	pthread_mutex_lock(&v->commit_mutex);
	v->committing = false;
	v->commit_done_gen = gen;
	pthread_cond_broadcast(&v->commit_cond);
}

int commit_files(struct volume *v, struct tfile **files, unsigned n)
{
	int r = 0;

	pthread_mutex_lock(&v->commit_mutex);
	uint64_t gen = v->commit_next_gen;

	for (unsigned i = 0; r == 0 && i < n; i++)
		r = queue_locked(v, files[i]);
	while (r == 0 && v->commit_done_gen < gen) {
		if (v->committing)
			pthread_cond_wait(&v->commit_cond, &v->commit_mutex);
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

int commit_run(struct volume *v, int (*fn)(struct volume *v, void *arg), void *arg)
{
	pthread_mutex_lock(&v->commit_mutex);
	while (v->committing)
		pthread_cond_wait(&v->commit_cond, &v->commit_mutex);
	v->committing = true;
	pthread_mutex_unlock(&v->commit_mutex);

	int r = catalog_begin(v->cat);

	if (r == 0) {
		r = fn(v, arg);
		if (r < 0)
			catalog_rollback(v->cat);
		else
			r = catalog_commit(v->cat);
	}
	pthread_mutex_lock(&v->commit_mutex);
	v->committing = false;
	pthread_cond_broadcast(&v->commit_cond);
	pthread_mutex_unlock(&v->commit_mutex);
	if (r < 0)
		volume_error(v, NULL, r, catalog_error(v->cat));
	return r;
}
