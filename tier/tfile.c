// SPDX-License-Identifier: GPL-2.0-or-later
/* Life of a tracked file: table, references, map loading, descriptors, accounting. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "tier/internal.h"

/* ---- making and freeing ------------------------------------------------------------------- */
static struct tfile *tfile_new(struct volume *v, const struct src_key *key)
{
	struct tfile *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->v = v;
	f->key = *key;
	f->hash = src_key_hash(key);
	f->src_fd = f->obj_fd = -1;
	f->garbage_lo = f->cut_to = UINT64_MAX;
	f->src_unknown = true;
	f->pass_scan = UINT64_MAX;
	pthread_mutex_init(&f->pass_mutex, NULL);
	pthread_mutex_init(&f->src_mutex, NULL);
	pthread_mutex_init(&f->load_mutex, NULL);
	pthread_mutex_init(&f->obj_mutex, NULL);
	pthread_mutex_init(&f->stamp_mutex, NULL);
	pthread_mutex_init(&f->lock, NULL);
	range_set_init(&f->ranges);
	map_init(&f->map);
	return f;
}

static void tfile_free(struct tfile *f)
{
	assert(f->uses == 0 && f->obj_holds == 0);
	map_release(&f->map);
	range_set_release(&f->ranges);
	pthread_mutex_destroy(&f->lock);
	pthread_mutex_destroy(&f->stamp_mutex);
	pthread_mutex_destroy(&f->obj_mutex);
	pthread_mutex_destroy(&f->load_mutex);
	pthread_mutex_destroy(&f->src_mutex);
	pthread_mutex_destroy(&f->pass_mutex);
	free(f->path);
	free(f);
}

static void set_path_locked(struct tfile *f, const char *path)
{
	char *copy = path ? strdup(path) : NULL;

	if (path && !copy)
		return; /* only a hint; the old one stays */
	free(f->path);
	f->path = copy;
}

static void init_from_row(struct tfile *f, const struct cat_file *row)
{
	f->id = row->id;
	f->row = f->catalog_row = true;
	f->pinned = row->flags & CAT_F_PINNED;
	f->pin_ranges = row->flags & CAT_F_PIN_RANGES;
	f->attr_owned = row->flags & CAT_F_ATTR_OWNED;
	f->durable_dirty = true; /* until the map is loaded */
	f->conflict = row->flags & CAT_F_CONFLICT;
	f->busy = f->busy_durable = row->flags & CAT_F_SRC_BUSY;
	f->truncate_pending = row->flags & CAT_F_TRUNCATE;
	if (f->truncate_pending)
		f->cut_to = f->pending_to = row->src_size_bytes;
	f->stamp = (struct src_stamp){ .size = row->src_size_bytes,
				       .mtime_ns = row->src_mtime_ns,
				       .ctime_ns = row->src_ctime_ns };
	f->stamp_valid = row->src_mtime_ns || row->src_ctime_ns;
	f->stamp_stale = f->busy || f->truncate_pending;
	if (f->attr_owned) {
		f->size = row->size_bytes;
		/* While SRC was being changed it may have become longer, by a write past us. */
		f->size_known = !f->busy || f->truncate_pending;
		f->mtime = f->ctime = ns_timespec(row->mtime_ns);
		f->ctime_kept = true;
	}
	set_path_locked(f, row->path);
}

/* ---- the table ---------------------------------------------------------------------------- */
static struct tfile **chain_of(struct volume *v, uint64_t hash)
{
	return &v->table[hash & (v->table_size - 1)];
}

static struct tfile *lookup_locked(struct volume *v, const struct src_key *key, uint64_t hash)
{
	for (struct tfile *f = *chain_of(v, hash); f; f = f->hash_next)
		if (f->hash == hash && !f->dead && src_key_equal(&f->key, key))
			return f;
	return NULL;
}

static void idle_unlink_locked(struct volume *v, struct tfile *f)
{
	if (f->idle_prev)
		f->idle_prev->idle_next = f->idle_next;
	else
		v->idle_head = f->idle_next;
	if (f->idle_next)
		f->idle_next->idle_prev = f->idle_prev;
	else
		v->idle_tail = f->idle_prev;
	f->idle_prev = f->idle_next = NULL;
	f->idle = false;
	v->n_idle--;
}

static void idle_append_locked(struct volume *v, struct tfile *f)
{
	f->idle_prev = v->idle_tail;
	if (v->idle_tail)
		v->idle_tail->idle_next = f;
	else
		v->idle_head = f;
	v->idle_tail = f;
	f->idle = true;
	v->n_idle++;
}

void volume_ref_locked(struct volume *v, struct tfile *f)
{
	if (f->refs++ == 0 && f->idle)
		idle_unlink_locked(v, f);
}

static void grow_table_locked(struct volume *v)
{
	unsigned size = v->table_size * 2;
	struct tfile **table = calloc(size, sizeof(*table));

	if (!table)
		return; /* longer chains, nothing worse */
	for (unsigned i = 0; i < v->table_size; i++) {
		struct tfile *f = v->table[i];

		while (f) {
			struct tfile *next = f->hash_next;

			f->hash_next = table[f->hash & (size - 1)];
			table[f->hash & (size - 1)] = f;
			f = next;
		}
	}
	free(v->table);
	v->table = table;
	v->table_size = size;
}

static void insert_locked(struct volume *v, struct tfile *f)
{
	if (v->n_files >= v->table_size)
		grow_table_locked(v);
	struct tfile **chain = chain_of(v, f->hash);

	f->hash_next = *chain;
	*chain = f;
	v->n_files++;
}

static void remove_locked(struct volume *v, struct tfile *f)
{
	struct tfile **p = chain_of(v, f->hash);

	while (*p != f)
		p = &(*p)->hash_next;
	*p = f->hash_next;
	v->n_files--;
	v->departures++;
}

uint64_t volume_departures(struct volume *v)
{
	pthread_mutex_lock(&v->files_lock);
	uint64_t n = v->departures;

	pthread_mutex_unlock(&v->files_lock);
	return n;
}

unsigned volume_loaded_files(struct volume *v)
{
	pthread_mutex_lock(&v->files_lock);
	unsigned n = v->n_files;

	pthread_mutex_unlock(&v->files_lock);
	return n;
}

struct tfile *tfile_of_id(struct volume *v, uint64_t id)
{
	struct tfile *found = NULL;

	pthread_mutex_lock(&v->files_lock);
	for (unsigned i = 0; i < v->table_size && !found; i++)
		for (struct tfile *f = v->table[i]; f && !found; f = f->hash_next)
			if (__atomic_load_n(&f->id, __ATOMIC_RELAXED) == id)
				found = f;
	if (found)
		volume_ref_locked(v, found);
	pthread_mutex_unlock(&v->files_lock);
	return found;
}

struct tfile *tfile_peek(struct volume *v, const struct src_key *key)
{
	uint64_t hash = src_key_hash(key);

	pthread_mutex_lock(&v->files_lock);
	struct tfile *f = lookup_locked(v, key, hash);

	if (f)
		volume_ref_locked(v, f);
	pthread_mutex_unlock(&v->files_lock);
	return f;
}

/*
 * Insert `fresh`, unless somebody was quicker; returns the one that counts, referenced. NULL: files
 * have left memory since `seen`, perhaps this one, so that what `fresh` was made from may be out of
 * date.
 */
static struct tfile *publish(struct volume *v, struct tfile *fresh, uint64_t seen)
{
	pthread_mutex_lock(&v->files_lock);
	struct tfile *f = lookup_locked(v, &fresh->key, fresh->hash);

	if (!f && seen == v->departures) {
		f = fresh;
		insert_locked(v, f);
		if (f->conflict)
			atomic_fetch_add(&v->conflicts, 1);
	}
	if (f)
		volume_ref_locked(v, f);
	pthread_mutex_unlock(&v->files_lock);
	if (f != fresh)
		tfile_free(fresh);
	return f;
}

static bool listed(const struct grave *g, uint64_t id)
{
	while (g && g->id != id)
		g = g->next;
	return g;
}

/* The row of a file that is gone, which the catalog has until the next checkpoint. */
static bool is_dead(struct volume *v, uint64_t id)
{
	pthread_mutex_lock(&v->lists_lock);
	bool found = id_set_has(&v->dead_ids, id) || listed(v->graves, id) ||
		     listed(v->burying, id);

	pthread_mutex_unlock(&v->lists_lock);
	return found;
}

void src_key_of_row(const struct cat_file *row, struct src_key *ret_key)
{
	*ret_key = (struct src_key){ .len = row->key_len };
	memcpy(ret_key->data, row->key, row->key_len);
}

/* 0; -ENOENT: buried; -EAGAIN: the row may be out of date by now. */
static int load_row(struct volume *v, const struct cat_file *row, uint64_t seen,
		    struct tfile **ret_file)
{
	struct src_key key;

	src_key_of_row(row, &key);
	struct tfile *f = tfile_peek(v, &key);

	*ret_file = NULL;
	if (!f) {
		if (is_dead(v, row->id))
			return -ENOENT;
		f = tfile_new(v, &key);
		if (!f)
			return -ENOMEM;
		init_from_row(f, row);
		f = publish(v, f, seen);
		if (!f)
			return -EAGAIN;
	}
	*ret_file = f;
	return 0;
}

int tfile_get_loaded(struct volume *v, const struct cat_file *row, uint64_t seen,
		     struct tfile **ret_file)
{
	int r = load_row(v, row, seen, ret_file);

	while (r == -EAGAIN) {
		struct cat_file newer;

		seen = volume_departures(v);
		r = catalog_find_id(v->cat, row->id, &newer);
		if (r < 0)
			break;
		r = load_row(v, &newer, seen, ret_file);
		cat_file_release(&newer);
	}
	return r;
}

/* A file that nobody tracks. NULL: somebody may do so by now, or there is no memory. */
static struct tfile *get_untracked(struct volume *v, const struct src_key *key, const char *path,
				   uint64_t seen)
{
	struct tfile *f = tfile_new(v, key);

	if (!f)
		return NULL;
	f->map_loaded = true;
	set_path_locked(f, path);
	return publish(v, f, seen);
}

/* From the catalog, or fresh. -EAGAIN: it has left memory meanwhile, look again. */
static int get_absent(struct volume *v, const struct src_key *key, const char *path,
		      struct tfile **ret_file)
{
	uint64_t seen = volume_departures(v);
	struct cat_file row;
	struct tfile *f = NULL;
	int r = catalog_find_file(v->cat, key->data, key->len, &row);

	if (r == 0) {
		r = load_row(v, &row, seen, &f);
		cat_file_release(&row);
	} else if (r == -ENOENT) {
		r = 0;
	} else {
		volume_error(v, NULL, r, catalog_error(v->cat));
	}
	if (r == 0 && !f) {
		f = get_untracked(v, key, path, seen);
		r = f ? 0 : volume_departures(v) != seen ? -EAGAIN : -ENOMEM;
	}
	if (r == 0)
		*ret_file = f;
	return r;
}

int tfile_get(struct volume *v, const struct src_key *key, const char *path,
	      struct tfile **ret_file)
{
	struct tfile *f = tfile_peek(v, key);
	int r = 0;

	while (!f && (r = get_absent(v, key, path, &f)) == -EAGAIN)
		;
	if (r < 0)
		return r;
	if (path && !f->path)
		tfile_set_path(f, path);
	*ret_file = f;
	return 0;
}

void tfile_ref(struct tfile *f)
{
	struct volume *v = f->v;

	pthread_mutex_lock(&v->files_lock);
	volume_ref_locked(v, f);
	pthread_mutex_unlock(&v->files_lock);
}

/* ---- the end ------------------------------------------------------------------------------ */
static void unaccount(struct tfile *f)
{
	struct volume *v = f->v;

	atomic_fetch_sub(&v->used_blocks, f->acct_present);
	atomic_fetch_sub(&v->dirty_blocks, f->acct_dirty);
	atomic_fetch_sub(&v->pinned_blocks, f->acct_pinned);
	atomic_fetch_sub(&v->tracked, f->acct_tracked);
	atomic_fetch_sub(&v->garbage_blocks, f->garbage_blocks);
	if (f->conflict)
		atomic_fetch_sub(&v->conflicts, 1);
}

/* The file is unlinked and nobody is left who could ask for it. Its space stays counted until
 * bury_step() has really released it. */
static void entomb(struct tfile *f)
{
	struct volume *v = f->v;
	struct grave *g = f->id ? malloc(sizeof(*g)) : NULL;

	unaccount(f);
	if (!g && f->dead_counted)
		atomic_fetch_sub(&v->dead_rows, 1);
	if (!g)
		return; /* no object, or no memory: the next mount's sweep finds it */
	*g = (struct grave){ .id = f->id,
			     .present_blocks = f->acct_present + f->garbage_blocks,
			     .row = f->row || f->catalog_row,
			     .sync_src = f->durable_dirty || f->row != f->catalog_row,
			     .counted = f->dead_counted };
	atomic_fetch_add(&v->used_blocks, g->present_blocks);
	pthread_mutex_lock(&v->lists_lock);
	g->next = v->graves;
	v->graves = g;
	pthread_mutex_unlock(&v->lists_lock);
	volume_wake(v);
}

/* Takes files out of memory that hold nothing which the catalog does not know. */
static struct tfile *pop_idle_locked(struct volume *v)
{
	struct tfile *f = v->idle_head;

	if (f) {
		idle_unlink_locked(v, f);
		remove_locked(v, f);
	}
	return f;
}

static void discard(struct tfile *f)
{
	atomic_fetch_sub(&f->v->pinned_blocks, f->acct_pinned);
	/* An object without a row has nothing in it that counts. */
	if (f->id && !f->row)
		(void)object_remove(f->v, f->id);
	tfile_free(f);
}

void volume_drop_idle(struct volume *v, unsigned keep)
{
	for (;;) {
		pthread_mutex_lock(&v->files_lock);
		struct tfile *f = v->n_idle > keep ? pop_idle_locked(v) : NULL;

		pthread_mutex_unlock(&v->files_lock);
		if (!f)
			return;
		discard(f);
	}
}

void tfile_put(struct tfile *f)
{
	if (!f)
		return;
	struct volume *v = f->v;
	bool dead = false;

	pthread_mutex_lock(&v->files_lock);
	assert(f->refs > 0);
	if (--f->refs == 0) {
		dead = f->dead;
		if (dead)
			remove_locked(v, f);
		else
			idle_append_locked(v, f);
	}
	bool trim = v->n_idle > IDLE_FILES_MAX;

	pthread_mutex_unlock(&v->files_lock);
	if (dead) {
		entomb(f);
		tfile_free(f);
	}
	if (trim)
		volume_drop_idle(v, IDLE_FILES_MAX);
}

void tfile_put_not_last(struct tfile *f)
{
	struct volume *v = f->v;

	pthread_mutex_lock(&v->files_lock);
	assert(f->refs > 1);
	f->refs--;
	pthread_mutex_unlock(&v->files_lock);
}

void tfile_dead(struct tfile *f)
{
	struct volume *v = f->v;

	(void)tfile_load_map(f); /* what it occupies has to be given back */
	pthread_mutex_lock(&f->lock);
	pthread_mutex_lock(&v->files_lock);
	f->dead = true;
	pthread_mutex_unlock(&v->files_lock);
	if ((f->row || f->catalog_row) && !f->dead_counted) {
		f->dead_counted = true;
		atomic_fetch_add(&v->dead_rows, 1);
	}
	pthread_mutex_unlock(&f->lock);
	file_list_remove(v, &v->changed, f);
	file_list_remove(v, &v->uncheckpointed, f);
	file_list_remove(v, &v->dirty, f);
	file_list_remove(v, &v->garbage, f);
}

void tfile_set_path(struct tfile *f, const char *path)
{
	pthread_mutex_lock(&f->lock);
	set_path_locked(f, path);
	if (f->row)
		tfile_changed_locked(f);
	pthread_mutex_unlock(&f->lock);
}

/* ---- what must be committed, what is counted ---------------------------------------------- */
void tfile_changed_locked(struct tfile *f)
{
	struct volume *v = f->v;

	f->seq++;
	if (!f->dead)
		file_list_add(v, &v->changed, f, volume_now(v));
}

bool tfile_dirty_locked(const struct tfile *f)
{
	return f->map.dirty_blocks || f->attr_owned || f->truncate_pending || f->sync_failed;
}

static uint64_t pinned_blocks_locked(const struct tfile *f)
{
	uint64_t n = 0;

	if (f->pinned)
		return f->map.present_blocks;
	if (!f->pin_ranges)
		return 0;
	for (unsigned i = 0; i < f->map.n_groups; i++)
		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			if (f->map.groups[i]->pinned >> w & 1)
				n += (unsigned)__builtin_popcountll(
					f->map.groups[i]->present[w]);
	return n;
}

static void move_count(_Atomic uint64_t *total, uint64_t *mine, uint64_t now)
{
	atomic_fetch_add(total, now - *mine);
	*mine = now;
}

void tfile_account_locked(struct tfile *f)
{
	struct volume *v = f->v;

	move_count(&v->used_blocks, &f->acct_present, f->map.present_blocks);
	move_count(&v->dirty_blocks, &f->acct_dirty, f->map.dirty_blocks);
	move_count(&v->pinned_blocks, &f->acct_pinned, f->map_loaded ? pinned_blocks_locked(f) : 0);
	move_count(&v->tracked, &f->acct_tracked,
		   f->map.present_blocks || f->pinned || f->pin_ranges);
	if (!f->dead && tfile_dirty_locked(f))
		file_list_add(v, &v->dirty, f, volume_now(v));
}

static void note_garbage_locked(struct tfile *f, uint64_t start, uint64_t end)
{
	f->garbage_lo = min_u64(f->garbage_lo, start);
	f->garbage_hi = max_u64(f->garbage_hi, end);
	if (!f->dead)
		file_list_add(f->v, &f->v->garbage, f, 0);
}

int tfile_map_set_locked(struct tfile *f, uint64_t start, uint64_t end, enum block_state state)
{
	uint64_t before = f->map.present_blocks, changes = f->map.changes;
	int r = map_set(&f->map, start, end, state);

	if (r < 0)
		return r;
	f->data_seq += f->map.changes - changes;
	if (state == BLOCK_ABSENT && f->map.present_blocks != before) {
		f->garbage_blocks += before - f->map.present_blocks;
		atomic_fetch_add(&f->v->garbage_blocks, before - f->map.present_blocks);
		note_garbage_locked(f, start, end);
	}
	tfile_changed_locked(f);
	tfile_account_locked(f);
	return 0;
}

int tfile_written_locked(struct tfile *f, uint64_t start, uint64_t end, enum block_state state)
{
	int r = tfile_map_set_locked(f, start, end, state);

	if (r < 0)
		return r;
	f->obj_wseq++;
	map_set_unsynced(&f->map, start, end);
	return 0;
}

void tfile_set_mtime_locked(struct tfile *f)
{
	f->mtime = f->ctime = volume_wall(f->v);
	f->mtime_seq++;
	f->attr_owned = f->ctime_kept = true;
}

uint64_t tfile_size(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	uint64_t size = f->size;

	pthread_mutex_unlock(&f->lock);
	return size;
}

/* ---- map ---------------------------------------------------------------------------------- */
static int load_groups(struct tfile *f, struct map *m)
{
	struct cat_group row;
	uint64_t from = 0;
	int r;

	while ((r = catalog_next_group(f->v->cat, f->id, from, &row)) == 0) {
		r = map_load(m, &row);
		if (r < 0)
			return r;
		from = row.index + 1;
	}
	return r == -ENOENT ? 0 : r;
}

/* The totals of the volume already count what the catalog says: take over this file's part. */
static void adopt_accounts_locked(struct tfile *f)
{
	f->acct_present = f->map.present_blocks;
	f->acct_dirty = f->map.dirty_blocks;
	f->acct_tracked = 1;
	f->durable_dirty = f->attr_owned || f->truncate_pending || f->map.dirty_blocks > 0 ||
			   map_has_intent(&f->map);
}

/* load_mutex and the object are held. Until map_loaded is set, only this thread uses the map, and
 * commits store the row alone. */
static int load_and_settle(struct tfile *f)
{
	struct map m = { 0 };
	int r = load_groups(f, &m);

	if (r < 0) {
		map_release(&m);
		return r;
	}
	pthread_mutex_lock(&f->lock);
	f->map = m;
	adopt_accounts_locked(f);
	uint64_t loaded = f->map.clock;

	pthread_mutex_unlock(&f->lock);
	r = recover_settle_map(f, f->obj_fd);
	crash_point(CP_SETTLE_LOADED);
	pthread_mutex_lock(&f->lock);
	if (r == 0) {
		f->tail_unsure = f->v->unclean && f->pass == PASS_NONE &&
				 (f->map.dirty_blocks || f->cut_to != UINT64_MAX);
		f->map_loaded = true;
		/* Not for every row that somebody goes over: if it is to be stored otherwise. */
		if (f->map.clock != loaded || f->busy || !f->map.present_blocks)
			tfile_changed_locked(f);
		tfile_account_locked(f);
	} else {
		map_release(&f->map);
	}
	pthread_mutex_unlock(&f->lock);
	return r;
}

int tfile_load_map(struct tfile *f)
{
	int r = 0;

	pthread_mutex_lock(&f->load_mutex);
	if (!f->map_loaded) {
		r = tfile_hold_object(f);
		if (r == 0) {
			r = load_and_settle(f);
			tfile_drop_object(f);
		}
		if (r < 0)
			volume_error(f->v, f, r, "cannot load the block map");
	}
	pthread_mutex_unlock(&f->load_mutex);
	return r;
}
