// SPDX-License-Identifier: GPL-2.0-or-later
/* Pins: files, ranges of files, and directories whose new files are pinned. */
#include <stdio.h>
#include <string.h>

#include "tier/internal.h"

/* A pin needs a row, and a row an id, even before there is an object. */
static void give_id(struct tfile *f)
{
	pthread_mutex_lock(&f->obj_mutex);
	pthread_mutex_lock(&f->lock);
	if (!f->id)
		f->id = atomic_fetch_add(&f->v->next_id, 1);
	pthread_mutex_unlock(&f->lock);
	pthread_mutex_unlock(&f->obj_mutex);
}

static int mark_extents_locked(struct tfile *f, uint64_t off, uint64_t end, bool pin)
{
	for (uint64_t at = round_down_u64(off, EXTENT_BYTES); at < end; at += EXTENT_BYTES) {
		struct map_group *g = pin ? map_get(&f->map, at / GROUP_BYTES)
					  : map_find(&f->map, at / GROUP_BYTES);
		uint64_t bit = 1ull << (at % GROUP_BYTES) / EXTENT_BYTES;

		if (!g && pin)
			return -ENOMEM;
		if (!g)
			continue;
		g->pinned = pin ? g->pinned | bit : g->pinned & ~bit;
		f->map.prunable = true;
		map_group_changed(&f->map, g);
	}
	return 0;
}

static bool any_range_locked(const struct tfile *f)
{
	for (unsigned i = 0; i < f->map.n_groups; i++)
		if (f->map.groups[i]->pinned)
			return true;
	return false;
}

static int set_pin(struct tfile *f, bool whole, uint64_t off, uint64_t len, bool pin)
{
	/* In use, so that the size is known: ranges end with the file. */
	int r = whole ? tfile_load_map(f) : tfile_use(f, false);

	if (r < 0)
		return r;
	if (pin)
		give_id(f);
	pthread_mutex_lock(&f->lock);
	/* Ranges end with the file; a whole unpin takes the ranges along. */
	uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : off + len;

	if (whole)
		f->pinned = pin;
	if (!whole)
		r = mark_extents_locked(f, off, min_u64(end, f->size), pin);
	else if (!pin)
		r = mark_extents_locked(f, 0, f->map.n_groups ? f->size : 0, false);
	f->pin_ranges = any_range_locked(f);
	tfile_changed_locked(f);
	tfile_account_locked(f);
	pthread_mutex_unlock(&f->lock);
	if (!whole)
		tfile_unuse(f);
	return r < 0 ? r : commit_file(f);
}

int tfile_pin(struct tfile *f, bool whole, uint64_t off, uint64_t len)
{
	return set_pin(f, whole, off, len, true);
}

int tfile_unpin(struct tfile *f, bool whole, uint64_t off, uint64_t len)
{
	return set_pin(f, whole, off, len, false);
}

/* ---- directories -------------------------------------------------------------------------- */
static int find_dir_locked(const struct volume *v, const struct src_key *key)
{
	for (unsigned i = 0; i < v->n_pinned_dirs; i++)
		if (src_key_equal(&v->pinned_dirs[i], key))
			return (int)i;
	return -1;
}

bool volume_dir_pinned(struct volume *v, const struct src_key *key)
{
	if (__atomic_load_n(&v->n_pinned_dirs, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&v->lists_lock);
	bool found = find_dir_locked(v, key) >= 0;

	pthread_mutex_unlock(&v->lists_lock);
	return found;
}

int volume_remember_pinned_dir(struct volume *v, const struct src_key *key)
{
	int r = 0;

	pthread_mutex_lock(&v->lists_lock);
	if (find_dir_locked(v, key) < 0) {
		struct src_key *p =
			reallocarray(v->pinned_dirs, v->n_pinned_dirs + 1, sizeof(*p));

		if (p) {
			v->pinned_dirs = p;
			p[v->n_pinned_dirs] = *key;
			__atomic_store_n(&v->n_pinned_dirs, v->n_pinned_dirs + 1,
					 __ATOMIC_RELAXED);
		} else {
			r = -ENOMEM;
		}
	}
	pthread_mutex_unlock(&v->lists_lock);
	return r;
}

static void forget_dir(struct volume *v, const struct src_key *key)
{
	pthread_mutex_lock(&v->lists_lock);
	int i = find_dir_locked(v, key);

	if (i >= 0) {
		v->pinned_dirs[i] = v->pinned_dirs[v->n_pinned_dirs - 1];
		__atomic_store_n(&v->n_pinned_dirs, v->n_pinned_dirs - 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&v->lists_lock);
}

struct dir_pin {
	const struct src_key *key;
	const char *path;
	bool pin;
};

static int store_dir(struct volume *v, void *arg)
{
	const struct dir_pin *d = arg;
	struct cat_file row;
	int r = catalog_find_file(v->cat, d->key->data, d->key->len, &row);

	if (r == 0) {
		uint64_t id = row.id;

		cat_file_release(&row);
		return d->pin ? 0 : catalog_delete_file(v->cat, id);
	}
	if (r != -ENOENT || !d->pin)
		return r == -ENOENT ? 0 : r;
	row = (struct cat_file){ .id = atomic_fetch_add(&v->next_id, 1),
				 .flags = CAT_F_DIR | CAT_F_PINNED,
				 .key_len = d->key->len };
	memcpy(row.key, d->key->data, d->key->len);
	row.path = d->path ? strdup(d->path) : NULL;
	r = catalog_put_file(v->cat, &row);
	free(row.path);
	return r;
}

int volume_pin_dir(struct volume *v, const struct src_key *key, const char *path)
{
	struct dir_pin d = { .key = key, .path = path, .pin = true };
	int r = catalog_run(v, store_dir, &d);

	return r < 0 ? r : volume_remember_pinned_dir(v, key);
}

int volume_unpin_dir(struct volume *v, const struct src_key *key)
{
	struct dir_pin d = { .key = key };
	int r = catalog_run(v, store_dir, &d);

	if (r == 0)
		forget_dir(v, key);
	return r;
}

/* ---- path hints --------------------------------------------------------------------------- */
struct renaming {
	const char *from, *to;
};

static int rename_rows(struct volume *v, void *arg)
{
	const struct renaming *n = arg;

	return catalog_rename_paths(v->cat, n->from, n->to);
}

static void rename_hint(struct tfile *f, const char *from, const char *to)
{
	size_t len = strlen(from);
	char *path = NULL;

	pthread_mutex_lock(&f->lock);
	if (f->path && strncmp(f->path, from, len) == 0 &&
	    (f->path[len] == '/' || !f->path[len]) &&
	    asprintf(&path, "%s%s", to, f->path + len) < 0)
		path = NULL;
	if (path) {
		free(f->path);
		f->path = path;
	}
	pthread_mutex_unlock(&f->lock);
}

void volume_paths_renamed(struct volume *v, const char *from, const char *to)
{
	struct renaming n = { .from = from, .to = to };
	unsigned count = 0;

	pthread_mutex_lock(&v->files_lock);
	struct tfile **files = calloc(v->n_files + 1, sizeof(*files));

	for (unsigned i = 0; files && i < v->table_size; i++)
		for (struct tfile *f = v->table[i]; f; f = f->hash_next) {
			volume_ref_locked(v, f);
			files[count++] = f;
		}
	pthread_mutex_unlock(&v->files_lock);
	for (unsigned i = 0; i < count; i++) {
		rename_hint(files[i], from, to);
		tfile_put(files[i]);
	}
	free(files);
	(void)catalog_run(v, rename_rows, &n); /* hints only; failure is logged there */
}
