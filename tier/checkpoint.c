// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The checkpoint: everything that is changed, or only in the journal, goes to the catalog in one
 * transaction, together with the position in the journal from which replay must start after it.
 *
 * (1) As leader of the committer, so that no batch is under way: snapshot every such file, remember
 * the journal's position; then batches go on. (2) Sync the objects: data that was durable only in
 * the journal is durable in them now. (3) The transaction. (4) The journal before the position is
 * free, and the journal says that this checkpoint was durable, before anybody relies on it (space
 * that it calls absent is released): so a catalog that has lost it is found out (journal.h).
 * Batches that ran since (1) are behind the position and newer than what (3) stores, so replaying
 * them over it gives the newest state. Crash before (3) ends: old catalog, old position.
 */
#include "tier/snapshot.h"

struct gathered {
	struct tfile **files; /* references */
	unsigned n;
};

static void gather_file(struct gathered *g, struct tfile *f)
{
	tfile_ref(f);
	g->files[g->n++] = f;
}

/* Both lists in one breath: between two, a file that is only in the journal could become changed as
 * well, be in neither half, and lose what the journal has when its position moves. */
static int gather(struct volume *v, struct gathered *g)
{
	int r = 0;

	pthread_mutex_lock(&v->lists_lock);
	uint64_t room = v->changed.count + v->uncheckpointed.count;

	g->files = room ? calloc(room, sizeof(*g->files)) : NULL;
	if (room && !g->files)
		r = -ENOMEM;
	for (struct tfile *f = v->changed.head; r == 0 && f; f = f->changed.next)
		gather_file(g, f);
	for (struct tfile *f = v->uncheckpointed.head; r == 0 && f; f = f->uncheckpointed.next)
		if (!f->changed.linked)
			gather_file(g, f);
	pthread_mutex_unlock(&v->lists_lock);
	return r;
}

/* ---- (3) ---------------------------------------------------------------------------------- */
/* The key may still belong to the row of a file that was unlinked and is not buried yet (its inode
 * number and generation can come back where these are not unique): the older one goes. */
int catalog_store_row(struct volume *v, const struct cat_file *row)
{
	struct cat_file old;
	int r = catalog_put_file(v->cat, row);

	if (r != -EEXIST || catalog_find_file(v->cat, row->key, row->key_len, &old) < 0)
		return r;
	r = catalog_delete_file(v->cat, old.id);
	cat_file_release(&old);
	return r < 0 ? r : catalog_put_file(v->cat, row);
}

static int store_snapshot(struct volume *v, const struct snapshot *s)
{
	if (s->delete_row) {
		int r = catalog_delete_file(v->cat, s->f->id);

		return r == -ENOENT ? 0 : r;
	}
	int r = catalog_store_row(v, &s->row);

	for (unsigned i = 0; r == 0 && i < s->n_groups; i++)
		r = catalog_put_group(v->cat, s->row.id, &s->groups[i]);
	return r;
}

struct checkpointing {
	struct snapshot *s;
	unsigned n;
	struct journal_pos pos;
	struct id_set dead; /* owned */
};

static int store_all(struct volume *v, void *arg)
{
	const struct checkpointing *c = arg;
	char text[JOURNAL_POS_TEXT];
	int r = 0;

	for (unsigned i = 0; r == 0 && i < c->dead.n; i++) {
		r = catalog_delete_file(v->cat, c->dead.ids[i]);
		if (r == -ENOENT)
			r = 0;
	}
	for (unsigned i = 0; r == 0 && i < c->n; i++)
		if (!c->s[i].error && !c->s[i].skip)
			r = store_snapshot(v, &c->s[i]);
	crash_point(CP_CHECKPOINT_ROWS);
	if (r < 0)
		return r;
	journal_pos_format(&c->pos, text);
	return catalog_put_meta(v->cat, "journal", text);
}

static int try_transaction(struct volume *v, int (*fn)(struct volume *v, void *arg), void *arg)
{
	int r = catalog_begin(v->cat);

	if (r < 0)
		return r;
	r = fn(v, arg);
	if (r < 0)
		catalog_rollback(v->cat);
	else
		r = catalog_commit(v->cat);
	return r;
}

/* The caller holds catalog_mutex; `fn` may be called twice. */
static int transaction(struct volume *v, int (*fn)(struct volume *v, void *arg), void *arg)
{
	int r = try_transaction(v, fn, arg);

	if (r == -ENOSPC && room_give_reserve(v))
		r = try_transaction(v, fn, arg);
	return r;
}

int catalog_run(struct volume *v, int (*fn)(struct volume *v, void *arg), void *arg)
{
	pthread_mutex_lock(&v->catalog_mutex);
	int r = transaction(v, fn, arg);

	pthread_mutex_unlock(&v->catalog_mutex);
	if (r < 0)
		volume_error(v, NULL, r, catalog_error(v->cat));
	return r;
}

/* ---- the whole ---------------------------------------------------------------------------- */
static bool any_failed(const struct snapshot *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (s[i].error)
			return true;
	return false;
}

/* The catalog has it. A failure breaks the journal, and then the next checkpoint does without. */
static void mark_in_journal(struct volume *v, const struct journal_pos *pos)
{
	int r = 0;

	if (journal_pos_none(pos))
		return;
	commit_lead(v);
	journal_checkpointed(v->journal, pos);
	if (journal_room(v->journal) > 0) { /* else broken, or so full that the next is due */
		journal_begin(v->journal);
		r = journal_put_checkpoint(v->journal, pos);
		if (r == 0)
			r = journal_end(v->journal);
	}
	commit_unlead(v);
	if (r < 0)
		volume_error(v, NULL, r, "cannot write the journal");
}

/* A file whose snapshot failed has its state in the journal only: the journal must stay. */
static int finish(struct volume *v, struct checkpointing *c, int r)
{
	bool stored = r == 0 && !any_failed(c->s, c->n);

	if (stored)
		mark_in_journal(v, &c->pos);
	crash_point(CP_CHECKPOINT_TOLD);
	for (unsigned i = 0; i < c->n; i++) {
		if (r == 0 && c->s[i].error)
			r = c->s[i].error;
	}
	for (unsigned i = 0; i < c->n; i++)
		snapshot_finish(&c->s[i], false, 0, r);
	if (!stored)
		return r;
	commit_lead(v);
	pthread_mutex_lock(&v->lists_lock);
	id_set_subtract(&v->dead_ids, &c->dead);
	pthread_mutex_unlock(&v->lists_lock);
	commit_unlead(v);
	return r;
}

/* As leader: nobody changes it. */
static int copy_dead(const struct volume *v, struct id_set *ret_dead)
{
	int r = id_set_reserve(ret_dead, v->dead_ids.n);

	for (unsigned i = 0; r == 0 && i < v->dead_ids.n; i++)
		id_set_append(ret_dead, v->dead_ids.ids[i]);
	return r;
}

static int run(struct volume *v)
{
	struct gathered g = { 0 };
	struct checkpointing c = { 0 };

	commit_lead(v);
	int r = gather(v, &g);

	c.s = r == 0 && g.n ? calloc(g.n, sizeof(*c.s)) : NULL;
	if (g.n && !c.s)
		r = -ENOMEM;
	for (; r == 0 && c.n < g.n; c.n++)
		snapshot_take(&c.s[c.n], g.files[c.n], false);
	if (r == 0)
		r = copy_dead(v, &c.dead);
	journal_position(v->journal, &c.pos);
	commit_unlead(v);
	crash_point(CP_CHECKPOINT_COPIED);
	/* The rows of unlinked files may be in the journal only, and are in no snapshot any more:
	 * the position may move past them when SRC's unlink cannot come undone. */
	if (r == 0 && atomic_load(&v->dead_rows) && syncfs(v->src->root_fd) < 0)
		r = neg_errno();
	if (r == 0)
		snapshot_sync(v, c.s, c.n);
	crash_point(CP_CHECKPOINT_SYNCED);
	/* Failed snapshots would be missing: then nothing is stored, the journal has it all. */
	if (r == 0 && !any_failed(c.s, c.n))
		r = transaction(v, store_all, &c);
	if (r == -ENOSPC) /* an error only for who cannot wait until there is room */
		volume_log(v, 4, "%s: the SSD is full, the catalog cannot grow; trying again",
			   v->dir_path);
	else if (r < 0)
		volume_error(v, NULL, r, catalog_error(v->cat));
	crash_point(CP_CHECKPOINT_STORED);
	r = finish(v, &c, r);
	crash_point(CP_CHECKPOINT_FREED);
	for (unsigned i = 0; i < g.n; i++)
		tfile_put(g.files[i]);
	free(g.files);
	free(c.s);
	id_set_release(&c.dead);
	return r;
}

/*
 * Files that carry the busy mark though nothing of them is dirty any more: with SRC synced and its
 * stamp known the mark goes, before they may leave memory.
 */
static void settle_busy_files(struct volume *v)
{
	struct tfile *files[64];
	unsigned n = 0;

	pthread_mutex_lock(&v->lists_lock);
	for (struct tfile *f = v->changed.head; f && n < ARRAY_SIZE(files); f = f->changed.next)
		if (__atomic_load_n(&f->busy, __ATOMIC_RELAXED) && !f->dirty.linked) {
			tfile_ref(f);
			files[n++] = f;
		}
	pthread_mutex_unlock(&v->lists_lock);
	for (unsigned i = 0; i < n; i++) {
		(void)src_settle(files[i]); /* gone or unreadable: found out by its user */
		tfile_put(files[i]);
	}
}

int checkpoint(struct volume *v)
{
	settle_busy_files(v);
	pthread_mutex_lock(&v->catalog_mutex);
	int r = run(v);

	pthread_mutex_unlock(&v->catalog_mutex);
	return r;
}
