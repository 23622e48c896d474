// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The journal of a volume that was not closed: without it the catalog is only the last checkpoint,
 * and objects may lack data that was promised to be durable. A repair replays it into both, as a
 * mount would (tier/replay.c), in one transaction that also names the end of the journal; the next
 * mount starts a new one. A dry check replays its rows into the copy of the catalog that it looks
 * at.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

/* From which frame on data of a file counts: its object was synced, or deleted, there. Lists of
 * them are sorted by id, one each, after horizons_sort(). */
struct horizon {
	uint64_t file_id, frame;
};

struct replay_run {
	struct check *c;
	struct catalog *cat;
	bool data;     /* into objects, too */
	bool tolerant; /* rows that the catalog does not take are left out, frame by frame */
	struct horizons horizons;
	struct src_key key; /* of the last row: describes an object that has to be made */
	uint64_t frame;	    /* whose transaction is open; 0: none is */
	uint64_t bad_frame; /* the rest of it is left out */
	int fd;		    /* owned; the object of fd_id */
	uint64_t fd_id;
};

/* ---- horizons ----------------------------------------------------------------------------- */
static int horizons_add(struct horizons *h, uint64_t file_id, uint64_t frame)
{
	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 256;
		struct horizon *p = reallocarray(h->items, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		h->items = p;
		h->cap = cap;
	}
	h->items[h->n++] = (struct horizon){ .file_id = file_id, .frame = frame };
	return 0;
}

static int compare_horizons(const void *a, const void *b)
{
	const struct horizon *x = a, *y = b;

	if (x->file_id != y->file_id)
		return x->file_id < y->file_id ? -1 : 1;
	return (x->frame < y->frame) - (x->frame > y->frame); /* the latest first */
}

static void horizons_sort(struct horizons *h)
{
	size_t kept = 0;

	if (h->n)
		qsort(h->items, h->n, sizeof(*h->items), compare_horizons);
	for (size_t i = 0; i < h->n; i++)
		if (kept == 0 || h->items[i].file_id != h->items[kept - 1].file_id)
			h->items[kept++] = h->items[i];
	h->n = kept;
}

static int compare_horizon_ids(const void *a, const void *b)
{
	uint64_t x = ((const struct horizon *)a)->file_id, y = ((const struct horizon *)b)->file_id;

	return (x > y) - (x < y);
}

static bool is_obsolete(const struct horizons *h, const struct journal_entry *e)
{
	struct horizon wanted = { .file_id = e->file_id };
	const struct horizon *found =
		h->n ? bsearch(&wanted, h->items, h->n, sizeof(wanted), compare_horizon_ids) : NULL;

	return found && e->frame < found->frame;
}

static int learn(void *arg, const struct journal_entry *e)
{
	if (e->type != J_SYNCED && e->type != J_DELETE)
		return 0;
	return horizons_add(arg, e->file_id, e->frame);
}

/* ---- data --------------------------------------------------------------------------------- */
static int make_object(struct replay_run *p, const char *path)
{
	struct check *c = p->c;
	int fd =
		openat(c->l.dir_fd, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return neg_errno();
	(void)check_write_description(c, fd, &p->key, NULL); /* as good as object_create() */
	return fd;
}

static int open_object(struct replay_run *p, uint64_t id)
{
	char path[OBJECT_PATH_MAX];
	struct stat st;

	if (p->fd >= 0 && p->fd_id == id)
		return 0;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = check_open_object(p->c, id, &st);
	check_object_path(id, path);
	if (p->fd == -ENOENT)
		p->fd = make_object(p, path);
	p->fd_id = id;
	return p->fd < 0 ? p->fd : 0;
}

static int apply_data(struct replay_run *p, const struct journal_entry *e)
{
	if (is_obsolete(&p->horizons, e))
		return 0;
	if (!p->data)
		return horizons_add(&p->c->journal_data, e->file_id, 0);
	int r = open_object(p, e->file_id);

	/* What has its name and is no object is reported with its row. */
	if (r == -EISDIR || r == -ELOOP || r == -ENXIO)
		return 0;
	return r < 0 ? r : write_full(p->fd, e->data, e->len, e->off);
}

/* ---- rows --------------------------------------------------------------------------------- */
/* The key may be that of a row that is older: of an unlinked file, not buried yet. */
static int store_row(struct catalog *cat, const struct cat_file *row)
{
	struct cat_file old;
	int r = catalog_put_file(cat, row);

	if (r != -EEXIST || catalog_find_file(cat, row->key, row->key_len, &old) < 0)
		return r;
	r = catalog_delete_file(cat, old.id);
	cat_file_release(&old);
	return r < 0 ? r : catalog_put_file(cat, row);
}

static int apply_row(struct replay_run *p, const struct journal_entry *e)
{
	switch (e->type) {
	case J_FILE:
		p->key = (struct src_key){ .len = e->file.key_len };
		memcpy(p->key.data, e->file.key, e->file.key_len);
		return store_row(p->cat, &e->file);
	case J_GROUP:
		return catalog_put_group(p->cat, e->file_id, &e->group);
	case J_DELETE:
		return catalog_delete_file(p->cat, e->file_id);
	default:
		return 0;
	}
}

static void end_frame(struct replay_run *p)
{
	if (p->frame)
		(void)catalog_commit(p->cat);
	p->frame = 0;
}

/* A damaged catalog is asked to take each frame by itself. */
static int apply_row_tolerantly(struct replay_run *p, const struct journal_entry *e)
{
	if (!p->cat || e->frame == p->bad_frame)
		return 0;
	if (e->frame != p->frame) {
		end_frame(p);
		if (catalog_begin(p->cat) < 0)
			return 0;
		p->frame = e->frame;
	}
	if (apply_row(p, e) < 0) {
		catalog_rollback(p->cat);
		p->bad_frame = p->frame;
		p->frame = 0;
	}
	return 0;
}

static int apply(void *arg, const struct journal_entry *e)
{
	struct replay_run *p = arg;

	if (e->type == J_DATA)
		return apply_data(p, e);
	return p->tolerant ? apply_row_tolerantly(p, e) : apply_row(p, e);
}

/* ---- the journal -------------------------------------------------------------------------- */
/* Is it all there? Nothing in it: as if there were none. */
static int verify(struct check *c)
{
	bool empty = false;
	int r = journal_is_empty(c->journal, &empty);

	if (r == 0 && c->unclean)
		r = journal_verify_end(c->journal);
	journal_rewind(c->journal, &c->journal_pos);
	if (r < 0 || empty)
		journal_close(TAKE_PTR(c->journal));
	return r;
}

int check_open_journal(struct check *c)
{
	_cleanup_free_ char *text = NULL;
	int r = catalog_get_meta(c->cat, "journal", &text);

	if (r == -ENOENT)
		return c->unclean ? journal_verify_none(c->l.dir_fd) : 0;
	if (r == 0)
		r = journal_pos_parse(text, &c->journal_pos);
	if (r < 0 && !c->unclean)
		c->journal_unnamed = true;
	if (r == 0 && !journal_pos_none(&c->journal_pos))
		r = journal_open(c->l.dir_fd, &c->journal_pos, &c->journal);
	if (r == 0 && c->journal)
		r = verify(c);
	/* That of a clean unmount is empty: it may be lost. */
	return c->unclean ? r : 0;
}

static int replay_both_passes(struct replay_run *p, uint64_t *ret_frames)
{
	struct check *c = p->c;
	int r = journal_replay(c->journal, learn, &p->horizons, ret_frames);

	journal_rewind(c->journal, &c->journal_pos);
	if (r < 0)
		return r;
	horizons_sort(&p->horizons);
	r = journal_replay(c->journal, apply, p, ret_frames);
	end_frame(p);
	journal_position(c->journal, &c->journal_end);
	journal_rewind(c->journal, &c->journal_pos);
	return r;
}

static void run_release(struct replay_run *p)
{
	if (p->fd >= 0)
		close(p->fd);
	free(p->horizons.items);
}

int check_name_journal_end(struct check *c, struct catalog *cat)
{
	char text[JOURNAL_POS_TEXT];

	journal_pos_format(&c->journal_end, text);
	return catalog_put_meta(cat, "journal", text);
}

/* The rows, the data if it is a repair, and the journal's end: all or nothing. */
static int replay_in_transaction(struct replay_run *p, uint64_t *ret_frames)
{
	int r = replay_both_passes(p, ret_frames);

	if (r == 0 && p->data && p->c->l.objects_fd >= 0 && syncfs(p->c->l.objects_fd) < 0)
		r = neg_errno(); /* I1 */
	return r < 0 ? r : check_name_journal_end(p->c, p->cat);
}

int check_replay_journal(struct check *c, uint64_t *ret_frames)
{
	struct replay_run p = { .c = c, .cat = c->cat, .data = c->opt->repair, .fd = -1 };
	int r = catalog_begin(c->cat);

	*ret_frames = 0;
	if (r < 0)
		return r;
	r = replay_in_transaction(&p, ret_frames);
	if (r < 0)
		catalog_rollback(c->cat);
	else
		r = catalog_commit(c->cat);
	run_release(&p);
	horizons_sort(&c->journal_data);
	return r;
}

int check_replay_for_witness(struct check *c, struct catalog *witness)
{
	struct replay_run p = {
		.c = c, .cat = witness, .data = c->opt->repair, .tolerant = true, .fd = -1
	};
	uint64_t frames;
	int r = replay_both_passes(&p, &frames);

	if (p.data && c->l.objects_fd >= 0 && syncfs(c->l.objects_fd) < 0 && r == 0)
		r = neg_errno();
	run_release(&p);
	horizons_sort(&c->journal_data);
	return r;
}

bool check_journal_has_data(const struct check *c, uint64_t id)
{
	struct horizon wanted = { .file_id = id };

	return c->journal_data.n && bsearch(&wanted, c->journal_data.items, c->journal_data.n,
					    sizeof(wanted), compare_horizon_ids) != NULL;
}

void check_close_journal(struct check *c)
{
	journal_close(TAKE_PTR(c->journal));
	free(TAKE_PTR(c->journal_data.items));
	c->journal_data.n = c->journal_data.cap = 0;
}
