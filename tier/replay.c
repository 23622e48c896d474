// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The journal at mount: what was made durable since the last checkpoint goes into objects and
 * catalog, then a journal for this mount is ready.
 *
 * Two passes over the frames: the first learns which data is obsolete (the object was synced later,
 * or the file deleted), the second writes data to the objects and rows to the catalog, in one
 * transaction that also names the new journal. Objects are synced before it (I1). A crash anywhere
 * in between: the old position is still in the catalog, everything is done again, same result.
 * After a clean unmount there is nothing to replay and the journal is used on.
 *
 * Is it the right journal, and all of it? A catalog whose WAL was damaged comes back in an older
 * state, and names an older position, or an older journal, or none; a damaged frame looks like the
 * end. journal.h says how that is told from a crash. Then the mount is refused: objects and catalog
 * do not belong together any more, and check rebuilds one from the other.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "tier/internal.h"

/* ---- what the first pass learns: per file, from which frame on its data counts ------------- */
struct horizon {
	uint64_t file_id, frame; /* file_id 0: free */
};

struct horizons {
	struct horizon *slots; /* owned */
	size_t n, size;	       /* size: a power of two */
};

/* ... and in all. */
struct learned {
	struct horizons horizons;
	struct id_set objects; /* of files with data: a hint, not sorted */
};

static struct horizon *find_slot(struct horizon *slots, size_t size, uint64_t id)
{
	size_t i = (size_t)(id * 0x9e3779b97f4a7c15u >> 20) & (size - 1);

	while (slots[i].file_id && slots[i].file_id != id)
		i = (i + 1) & (size - 1);
	return &slots[i];
}

static int grow(struct horizons *h)
{
	size_t size = h->size ? h->size * 2 : 256;
	struct horizon *slots = calloc(size, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < h->size; i++)
		if (h->slots[i].file_id)
			*find_slot(slots, size, h->slots[i].file_id) = h->slots[i];
	free(h->slots);
	h->slots = slots;
	h->size = size;
	return 0;
}

/* The objects that will be opened, each mostly once. */
static int learn_object(struct id_set *ids, uint64_t id)
{
	if (ids->n > 0 && ids->ids[ids->n - 1] == id)
		return 0;
	int r = id_set_reserve(ids, 1);

	if (r == 0)
		id_set_append(ids, id);
	return r;
}

static int learn(void *arg, const struct journal_entry *e)
{
	struct learned *l = arg;
	struct horizons *h = &l->horizons;

	if (e->type == J_DATA)
		return learn_object(&l->objects, e->file_id);
	if (e->type != J_SYNCED && e->type != J_DELETE)
		return 0;
	if (2 * h->n >= h->size) {
		int r = grow(h);

		if (r < 0)
			return r;
	}
	struct horizon *s = find_slot(h->slots, h->size, e->file_id);

	h->n += s->file_id == 0;
	*s = (struct horizon){ .file_id = e->file_id, .frame = e->frame };
	return 0;
}

static bool is_obsolete(const struct horizons *h, const struct journal_entry *e)
{
	return h->size && e->frame < find_slot(h->slots, h->size, e->file_id)->frame;
}

/* ---- second pass -------------------------------------------------------------------------- */
struct replay {
	const struct journal_pos *from;
	struct volume *v;
	struct learned learned;
	struct src_key key; /* of the last file row: its object is described by it, */
	bool known;	    /* its object has been synced before, description and all */
	char *path;	    /* ... and by this; owned, may be NULL */
	int fd;		    /* owned; the object of `fd_id` */
	uint64_t fd_id;
	uint64_t frames;
};

static int open_object(struct replay *p, uint64_t id)
{
	if (p->fd >= 0 && p->fd_id == id)
		return 0;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = object_open(p->v, id);
	if (p->fd == -ENOENT)
		p->fd = object_create(p->v, id, &p->key, p->path);
	else if (p->fd >= 0 && !p->known) /* it may be there, and its xattr not */
		object_describe(p->v, p->fd, &p->key, p->path);
	p->fd_id = id;
	if (p->fd >= 0)
		return 0;
	int r = p->fd;

	p->fd = -1;
	return r;
}

static int apply_data(struct replay *p, const struct journal_entry *e)
{
	if (is_obsolete(&p->learned.horizons, e))
		return 0;
	int r = open_object(p, e->file_id);

	if (r == 0)
		r = write_full(p->fd, e->data, e->len, e->off);
	crash_point(CP_REPLAY_DATA);
	return r;
}

/* Blocks that the catalog called present before this replay: readers do not see the transaction
 * that is open. (A row alone says nothing: a file may be pinned that has no object.) */
static bool had_blocks(struct volume *v, uint64_t id)
{
	struct cat_group g;

	if (catalog_next_group(v->cat, id, 0, &g) < 0)
		return false;
	for (unsigned i = 0; i < CAT_BITMAP_BYTES; i++)
		if (g.present[i])
			return true;
	return false;
}

static int apply_file(struct replay *p, const struct journal_entry *e)
{
	p->known = had_blocks(p->v, e->file_id);
	p->key = (struct src_key){ .len = e->file.key_len };
	memcpy(p->key.data, e->file.key, e->file.key_len);
	free(p->path);
	p->path = e->file.path ? strdup(e->file.path) : NULL; /* a hint: may fail */
	return catalog_store_row(p->v, &e->file);
}

static int apply(void *arg, const struct journal_entry *e)
{
	struct replay *p = arg;
	int r;

	switch (e->type) {
	case J_FILE:
		return apply_file(p, e);
	case J_GROUP:
		return catalog_put_group(p->v->cat, e->file_id, &e->group);
	case J_DELETE:
		r = catalog_delete_file(p->v->cat, e->file_id);
		return r == -ENOENT ? 0 : r;
	case J_DATA:
		return apply_data(p, e);
	default:
		return 0;
	}
}

/* ---- the new journal ---------------------------------------------------------------------- */
static uint64_t journal_bytes(const struct volume *v)
{
	uint64_t cap = v->opt.size_bytes ? min_u64(v->opt.size_bytes, v->ssd_bytes) : v->ssd_bytes;
	uint64_t share = cap / 16;

	return max_u64(JOURNAL_BYTES_MIN, min_u64(share, JOURNAL_BYTES_MAX));
}

static int name_journal(struct volume *v)
{
	struct journal_pos pos;
	char text[JOURNAL_POS_TEXT];

	journal_position(v->journal, &pos);
	journal_pos_format(&pos, text);
	return catalog_put_meta(v->cat, "journal", text);
}

static int in_transaction(struct volume *v, void *arg)
{
	struct replay *p = arg;
	struct journal *old = v->old_journal;
	int r = 0;

	p->frames = 0;
	if (old) {
		journal_rewind(old, p->from);
		r = journal_replay(old, apply, p, &p->frames);
	}

	crash_point(CP_REPLAY_APPLIED);
	/* Nobody is told before the data is where the rows say it is. */
	if (r == 0 && p->frames && syncfs(v->objects_fd) < 0)
		r = neg_errno();
	crash_point(CP_REPLAY_SYNCED);
	return r < 0 ? r : name_journal(v);
}

/* On a full SSD a small one has to do; the next clean mount makes it larger. */
static int create_journal(struct volume *v, unsigned slot)
{
	int r = journal_create(v->dir_fd, slot, journal_bytes(v), &v->journal);

	if (r == -ENOSPC)
		r = journal_create(v->dir_fd, slot, JOURNAL_BYTES_MIN, &v->journal);
	if (r == -ENOSPC && room_give_reserve(v))
		r = journal_create(v->dir_fd, slot, JOURNAL_BYTES_MIN, &v->journal);
	return r;
}

/* Rows of thousands of files are all over a cold catalog: reading all of it at once is quicker than
 * a page or two at a time; and so for the objects. */
#define PREFETCH_FROM_FRAMES 256u

static void prefetch(struct replay *p)
{
	if (p->frames < PREFETCH_FROM_FRAMES)
		return;
	prefetch_file(p->v->dir_fd, "catalog.db");
	prefetch_objects(p->v, &p->learned.objects);
}

/* Replay `old` (NULL: there is none) into objects and catalog, and start a new journal. */
static int renew(struct volume *v, const struct journal_pos *pos)
{
	struct replay p = { .v = v, .fd = -1, .from = pos };
	int r = 0;

	if (v->old_journal)
		r = journal_replay(v->old_journal, learn, &p.learned, &p.frames);
	/* Before anything is changed. */
	if (r == 0 && v->old_journal && v->unclean)
		r = journal_verify_end(v->old_journal);
	crash_point(CP_REPLAY_LEARNED);
	if (r == 0)
		prefetch(&p);
	if (r == 0)
		r = create_journal(v, !pos->slot);
	crash_point(CP_REPLAY_CREATED);
	if (r == 0)
		r = catalog_run(v, in_transaction, &p);
	crash_point(CP_REPLAY_NAMED);
	if (r == 0) {
		/* Durably: should the catalog lose what it just took, it names what is missing. */
		(void)journal_remove(v->dir_fd, pos->slot);
		(void)fsync(v->dir_fd);
		crash_point(CP_REPLAY_REMOVED);
		if (p.frames)
			volume_log(v, 6, "replayed %llu frames of the journal",
				   (unsigned long long)p.frames);
	}
	if (p.fd >= 0)
		close(p.fd);
	free(p.learned.horizons.slots);
	id_set_release(&p.learned.objects);
	free(p.path);
	return r;
}

/* The journal of a clean unmount is empty, and whole behind its end: used on as it is. */
static bool reuse(struct volume *v, const struct journal_pos *pos)
{
	bool empty;

	if (v->unclean || !v->old_journal ||
	    journal_size(v->old_journal) + 4096 != journal_bytes(v))
		return false;
	if (journal_is_empty(v->old_journal, &empty) < 0 || !empty) {
		journal_rewind(v->old_journal, pos);
		return false;
	}
	v->journal = TAKE_PTR(v->old_journal);
	return true;
}

/* -ENOENT: the catalog does not say. */
static int read_position(struct volume *v, struct journal_pos *ret_pos)
{
	_cleanup_free_ char *text = NULL;
	int r = catalog_get_meta(v->cat, "journal", &text);

	*ret_pos = (struct journal_pos){ 0 };
	return r < 0 ? r : journal_pos_parse(text, ret_pos);
}

/* The journal of a volume that was not closed. renew() finds out whether it was cut short. */
static int open_needed(struct volume *v, const struct journal_pos *pos)
{
	if (journal_pos_none(pos)) /* it was broken, and the catalog went on without */
		return 0;
	return journal_open(v->dir_fd, pos, &v->old_journal);
}

/* That of a volume that was closed is empty: nothing is lost with it. */
static int open_empty(struct volume *v, const struct journal_pos *pos)
{
	int r = journal_pos_none(pos) ? 0 : journal_open(v->dir_fd, pos, &v->old_journal);

	return r == -ENOENT || r == -EUCLEAN ? 0 : r;
}

int replay_journal(struct volume *v, char *error, size_t error_size)
{
	struct journal_pos pos;
	int r = read_position(v, &pos);

	if (r == -EUCLEAN && !v->unclean && !catalog_is_damaged(v->cat))
		r = -ENOENT; /* nonsense, but nothing is lost with it */
	if (r == -ENOENT)
		r = v->unclean ? journal_verify_none(v->dir_fd) : 0;
	if (r == 0)
		r = v->unclean ? open_needed(v, &pos) : open_empty(v, &pos);
	if (r == 0 && !reuse(v, &pos))
		r = renew(v, &pos);
	journal_close(TAKE_PTR(v->old_journal));
	if (r == -ENOSPC)
		snprintf(error, error_size, "%s: no room for a new journal: %s; nothing is lost",
			 v->dir_path, strerror(-r));
	else if (r < 0 && !catalog_is_damaged(v->cat))
		snprintf(error, error_size,
			 "%s/journal.%u: %s; what was synced since the last checkpoint is in it: "
			 "hybridfs check --repair goes on without",
			 v->dir_path, pos.slot,
			 r == -ENOENT  ? "missing" :
			 r == -EUCLEAN ? "damaged, or the catalog is out of date" :
					 strerror(-r));
	return r;
}
