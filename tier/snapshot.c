// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/snapshot.h"

#include <fcntl.h>
#include <string.h>

/* ---- the row ------------------------------------------------------------------------------ */
static bool wants_row_locked(const struct tfile *f)
{
	return f->map.present_blocks || f->pinned || f->pin_ranges || tfile_dirty_locked(f) ||
	       f->conflict || (f->row && !f->map_loaded);
}

/* Could recovery find dirty data in what is stored now? Blocks under an intent may turn out so. */
static bool may_be_dirty_locked(const struct tfile *f)
{
	return tfile_dirty_locked(f) || map_has_intent(&f->map) || (f->row && !f->map_loaded);
}

/* The busy mark goes when SRC is durable and its stamp is known: the row describes it exactly.
 * As with intents, both marks go before the row is stored. */
static void settle_busy_locked(struct tfile *f)
{
	bool exact = !f->src_inflight && !f->stamp_stale && f->src_wseq == f->src_sseq;

	if (f->cut_to != UINT64_MAX && !f->truncate_pending && f->src_sseq >= f->cut_wseq)
		f->cut_to = UINT64_MAX;
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
				  .src_size_bytes = f->cut_to != UINT64_MAX ? f->cut_to
									    : f->stamp.size,
				  .src_mtime_ns = f->stamp.mtime_ns,
				  .src_ctime_ns = f->stamp.ctime_ns };
	memcpy(row->key, f->key.data, f->key.len);
	row->flags = (f->pinned ? CAT_F_PINNED : 0) | (f->pin_ranges ? CAT_F_PIN_RANGES : 0) |
		     (f->attr_owned ? CAT_F_ATTR_OWNED : 0) | (f->busy ? CAT_F_SRC_BUSY : 0) |
		     (f->cut_to != UINT64_MAX ? CAT_F_TRUNCATE : 0) |
		     (f->conflict ? CAT_F_CONFLICT : 0);
	row->path = f->path ? strdup(f->path) : NULL;
}

/* ---- groups ------------------------------------------------------------------------------- */
/*
 * An intent may go when nothing in the group is dirty and no write is under way. Both marks go
 * before the row is stored, so that a write which comes now asks for a new one.
 */
static void settle_intent_locked(struct tfile *f, struct map_group *g)
{
	if (!g->intent || f->writes_inflight)
		return;
	for (unsigned w = 0; w < BITMAP_WORDS; w++)
		if (g->dirty[w])
			return;
	g->intent = g->intent_durable = false;
	f->map.prunable = true;
	map_group_changed(&f->map, g);
}

static bool group_wanted(const struct map_group *g, bool journal)
{
	uint64_t stored = journal ? g->committed_seq : g->checkpoint_seq;

	return g->seq != stored && !(stored == 0 && map_group_empty(g) && !g->removal);
}

/* For the journal only what changed since the last copy is looked at: a database with hundreds of
 * GiB on the SSD has tens of thousands of groups. */
static unsigned count_wanted_locked(const struct snapshot *s, bool journal)
{
	struct map *m = &s->f->map;
	unsigned n = 0;

	for (unsigned i = map_index(m, journal ? m->changed_lo : 0); i < m->n_groups; i++) {
		if (journal && m->groups[i]->index > m->changed_hi)
			break;
		if (!journal)
			settle_intent_locked(s->f, m->groups[i]);
		n += group_wanted(m->groups[i], journal);
	}
	return n;
}

static int copy_groups_locked(struct snapshot *s, bool journal)
{
	struct map *m = &s->f->map;
	unsigned n = count_wanted_locked(s, journal);

	if (n) {
		s->groups = malloc(n * sizeof(*s->groups));
		s->group_seqs = malloc(n * sizeof(*s->group_seqs));
		if (!s->groups || !s->group_seqs)
			return -ENOMEM;
	}
	for (unsigned i = map_index(m, journal ? m->changed_lo : 0); s->n_groups < n; i++) {
		struct map_group *g = m->groups[i];

		if (!group_wanted(g, journal))
			continue;
		g->checkpointing |= !journal;
		map_group_store(g, &s->groups[s->n_groups]);
		s->group_seqs[s->n_groups++] = g->seq;
	}
	if (journal)
		map_changes_taken(m);
	return 0;
}

/* ---- data --------------------------------------------------------------------------------- */
static void collect_data_locked(struct snapshot *s)
{
	struct tfile *f = s->f;

	for (uint64_t at = map_next_unsynced(&f->map, 0); at != UINT64_MAX;
	     at = map_next_unsynced(&f->map, at + BLOCK_BYTES))
		s->data[s->n_data++] = at;
}

/* How the blocks written since the last commit become durable: in the journal, or by a sync. */
static void plan_data_locked(struct snapshot *s, bool journal)
{
	struct tfile *f = s->f;

	bool in_journal = f->journal_data != f->journal_data_done;
	bool must_sync = f->sync_wanted != f->sync_done;

	s->obj_wseq = f->obj_wseq;
	/* What programs write past us must not meet older data of the journal at the replay. */
	bool rides = journal && f->pass != PASS_WRITE;

	if (rides && f->map.unsynced_blocks <= SNAPSHOT_DATA_BLOCKS && !must_sync) {
		collect_data_locked(s);
		f->journal_data += s->n_data > 0;
	} else {
		s->sync = f->map.unsynced_blocks || in_journal || must_sync;
		s->sync_new = f->obj_new;
		s->synced_mark = journal && in_journal;
		/* Until this sync is done nobody may rely on the bits that are cleared below. */
		f->sync_wanted += s->sync;
	}
	s->journal_data = f->journal_data;
	s->sync_wanted = f->sync_wanted;
	/* Cleared now, for what is written from here on; a failure asks for a whole sync. */
	map_clear_unsynced(&f->map);
}

/* ---- taking ------------------------------------------------------------------------------- */
static void take_locked(struct snapshot *s, bool journal)
{
	struct tfile *f = s->f;

	file_list_remove(f->v, &f->v->changed, f);
	if (!journal)
		file_list_remove(f->v, &f->v->uncheckpointed, f);
	if (f->dead || !f->id) {
		s->skip = true;
	} else if (wants_row_locked(f)) {
		settle_busy_locked(f);
		s->has_row = true;
		fill_row_locked(f, &s->row);
		s->row_only = !f->map_loaded;
		if (!s->row_only)
			s->error = f->sync_failed ? -EIO : copy_groups_locked(s, journal);
		plan_data_locked(s, journal);
		/* From now on a row may be there, whatever becomes of this attempt. */
		f->row = true;
		f->catalog_row |= !journal;
	} else {
		s->delete_row = f->row || (!journal && f->catalog_row);
		s->skip = !s->delete_row;
		s->obj_wseq = f->obj_wseq;
		map_clear_unsynced(&f->map);
	}
	s->dirty = may_be_dirty_locked(f);
	f->durable_dirty |= s->dirty && !s->skip;
	s->seq = f->seq;
	s->data_seq = f->data_seq;
}

void snapshot_take(struct snapshot *s, struct tfile *f, bool journal)
{
	*s = (struct snapshot){ .f = f };
	pthread_mutex_lock(&f->lock);
	take_locked(s, journal);
	pthread_mutex_unlock(&f->lock);
}

/* ---- syncing ------------------------------------------------------------------------------ */
static bool wants_sync(const struct snapshot *s)
{
	return !s->error && !s->skip && (s->sync || s->sync_new);
}

/* Opened for the moment only: a checkpoint may have many thousands of files. */
static int sync_object(struct snapshot *s)
{
	struct tfile *f = s->f;
	int r = s->sync_new ? object_sync_dir(f->v, f->id) : 0;

	if (r == 0)
		r = tfile_hold_object(f);
	if (r < 0)
		return r;
	if (f->obj_fd >= 0 && (s->sync_new ? fsync(f->obj_fd) : fdatasync(f->obj_fd)) < 0)
		r = neg_errno();
	tfile_drop_object(f);
	return r;
}

/*
 * What the SSD did not take is lost with the page cache, and another sync would not say so again.
 * Nothing of the file is committed until write-back has brought it all to SRC (from memory, while
 * it is there); every fsync until then is told.
 */
void object_sync_failed(struct tfile *f, int r)
{
	tfile_sync_error(f, r);
	pthread_mutex_lock(&f->lock);
	f->sync_failed = true;
	pthread_mutex_unlock(&f->lock);
}

void snapshot_sync(struct volume *v, struct snapshot *s, unsigned n)
{
	unsigned want = 0;

	if (SABOTAGED(1))
		return;
	for (unsigned i = 0; i < n; i++)
		want += wants_sync(&s[i]);
	bool all = want >= COMMIT_SYNCFS_FROM;
	int r = all && syncfs(v->objects_fd) < 0 ? neg_errno() : 0;

	for (unsigned i = 0; i < n; i++)
		if (wants_sync(&s[i])) {
			s[i].error = all ? r : sync_object(&s[i]);
			if (s[i].error)
				object_sync_failed(s[i].f, s[i].error);
		}
}

/* ---- noting ------------------------------------------------------------------------------- */
/* newest: no later snapshot is durable already, which may have deleted the row since. */
static void note_groups_locked(struct snapshot *s, bool journal, bool newest)
{
	for (unsigned i = 0; i < s->n_groups; i++) {
		struct map_group *g = map_find(&s->f->map, s->groups[i].index);

		if (!g)
			continue;
		if (!journal) {
			g->checkpoint_seq = max_u64(g->checkpoint_seq, s->group_seqs[i]);
			g->checkpointing = false;
		}
		if (!newest || s->group_seqs[i] <= g->committed_seq)
			continue;
		g->committed_seq = s->group_seqs[i];
		g->intent_durable = g->intent && s->groups[i].flags & CAT_G_INTENT;
		if (g->seq == g->committed_seq)
			g->removal = false;
	}
}

/* The row is gone, and all its groups with it: whatever is there now has to be stored anew. */
static void note_deleted_locked(const struct snapshot *s, bool journal, bool newest)
{
	struct tfile *f = s->f;

	if (newest && s->delete_row)
		f->row = false;
	if (!journal && s->delete_row)
		f->catalog_row = false;
	for (unsigned i = 0; i < f->map.n_groups; i++) {
		struct map_group *g = f->map.groups[i];

		if (newest) {
			g->committed_seq = 0;
			map_all_changed(&f->map);
			g->removal = g->intent_durable = false;
		}
		if (!journal)
			g->checkpoint_seq = 0;
	}
}

static void note_durable_locked(struct snapshot *s, bool journal)
{
	struct tfile *f = s->f;
	bool newest = s->seq >= f->committed_seq;

	if (s->delete_row || (s->skip && !f->row && !f->dead))
		note_deleted_locked(s, journal, newest);
	else if (s->has_row && newest)
		f->busy_durable = f->busy && s->row.flags & CAT_F_SRC_BUSY;
	if (!s->skip && !s->row_only) {
		note_groups_locked(s, journal, newest);
		if (newest)
			f->durable_dirty = s->dirty;
		f->obj_sseq = max_u64(f->obj_sseq, s->obj_wseq);
		if (s->sync) {
			f->journal_data_done = max_u64(f->journal_data_done, s->journal_data);
			f->sync_done = max_u64(f->sync_done, s->sync_wanted);
		}
		if (s->sync_new)
			f->obj_new = false;
		map_prune(&f->map);
	}
	if (!s->row_only) {
		f->committed_seq = max_u64(f->committed_seq, s->seq);
		f->committed_data_seq = max_u64(f->committed_data_seq, s->data_seq);
	}
	if (!s->skip && journal && !f->dead)
		file_list_add(f->v, &f->v->uncheckpointed, f, volume_now(f->v));
}

static void note_failed_locked(struct snapshot *s, bool journal)
{
	struct tfile *f = s->f;

	for (unsigned i = 0; !journal && i < s->n_groups; i++) {
		struct map_group *g = map_find(&f->map, s->groups[i].index);

		if (g)
			g->checkpointing = false;
	}
	f->sync_wanted += s->n_data || s->sync;
	map_all_changed(&f->map);
	if (f->dead)
		return;
	file_list_add(f->v, &f->v->changed, f, volume_now(f->v));
	if (!journal)
		file_list_add(f->v, &f->v->uncheckpointed, f, volume_now(f->v));
}

static void release(struct snapshot *s)
{
	free(s->row.path);
	free(s->groups);
	free(s->group_seqs);
}

void snapshot_finish(struct snapshot *s, bool journal, uint64_t gen, int error)
{
	struct tfile *f = s->f;

	if (!error)
		error = s->error;
	pthread_mutex_lock(&f->lock);
	if (error)
		note_failed_locked(s, journal);
	else
		note_durable_locked(s, journal);
	if (gen)
		commit_result_locked(f, gen, error);
	pthread_mutex_unlock(&f->lock);
	if (s->error) /* what failed for all was said once */
		volume_error(f->v, f, s->error, "cannot commit to the SSD");
	release(s);
}

void snapshot_undo(struct snapshot *s, bool journal)
{
	pthread_mutex_lock(&s->f->lock);
	note_failed_locked(s, journal);
	pthread_mutex_unlock(&s->f->lock);
	release(s);
}
