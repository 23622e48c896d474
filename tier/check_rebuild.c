// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A catalog from the objects (check.h says how it decides). The old one, if it can be read at all,
 * is asked about each object: what it says is believed as far as SRC's stamp bears it out.
 *
 * Objects are taken from the youngest to the oldest: where two claim the same file, the older one
 * is a leftover.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

#define ULL(n)		((unsigned long long)(n))
#define ROWS_PER_COMMIT 256u
#define SKIP_MAX	1000u /* rows in a row that cannot be read and are stepped over */
/* Of what a lost catalog may have handed out beyond the objects that exist. */
#define SPARE_IDS (1ull << 32)

struct rebuild {
	struct check *c;
	struct catalog *old;  /* borrowed; NULL: none that can be read */
	struct catalog *new;  /* owned; NULL in a dry check */
	unsigned uncommitted; /* rows */
	unsigned skipped;
	bool in_transaction;
	uint64_t rows;
};

/* ---- one object --------------------------------------------------------------------------- */
/* Are there bytes that are not zero behind `size`, in the block in which it ends? */
static bool grew_within_block(const struct subject *s, uint64_t size)
{
	uint64_t base = round_down_u64(size, BLOCK_BYTES);
	char block[BLOCK_BYTES];

	if (size == base || map_state(&s->map, base) != BLOCK_DIRTY ||
	    read_full(s->obj_fd, block, sizeof(block), base) < 0)
		return false;
	for (uint64_t i = size - base; i < BLOCK_BYTES; i++)
		if (block[i])
			return true;
	return false;
}

/* The size as far as it is known; where only the object tells it, to the end of its last block. */
static uint64_t guess_size(const struct subject *s)
{
	uint64_t size = subject_size(s), end = 0;

	for (uint64_t at = 0; (at = map_next_dirty(&s->map, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(&s->map, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		at = end = run.end;
	}
	if (end <= round_up_u64(size, BLOCK_BYTES) && !grew_within_block(s, size))
		return size;
	return min_u64(max_u64(end, round_up_u64(size, BLOCK_BYTES)),
		       max_u64(size, (uint64_t)s->obj_st.st_size));
}

static void mark_conflict(struct subject *s, uint64_t differs)
{
	s->row.size_bytes = guess_size(s);
	if (!(s->row.flags & CAT_F_ATTR_OWNED))
		s->row.mtime_ns = timespec_ns(s->obj_st.st_mtim);
	s->row.flags |= CAT_F_ATTR_OWNED | CAT_F_CONFLICT;
	subject_find(s, "conflict", "mark it as in conflict and keep both",
		     "the SSD has %llu bytes that differ from SRC, and nothing tells which are "
		     "newer",
		     ULL(differs));
}

static int put_row(struct rebuild *b, struct subject *s)
{
	int r = 0;

	if (!b->new)
		return 0;
	if (!b->in_transaction)
		r = catalog_begin(b->new);
	b->in_transaction = r == 0;
	if (r == 0)
		r = subject_store(s, b->new);
	if (r < 0 || ++b->uncommitted < ROWS_PER_COMMIT)
		return r; /* -EEXIST: the transaction goes on without it */
	b->uncommitted = 0;
	b->in_transaction = false;
	return catalog_commit(b->new);
}

static int to_lost_and_found(struct subject *s, const char *kind, const char *detail)
{
	subject_find(s, kind, "move it to lost+found", "%s", detail);
	if (!s->c->opt->repair)
		return 0;
	map_release(&s->map);
	int r = check_lost_keep(s);

	return r < 0 ? r : check_remove_object(s->c, s->row.id);
}

static int store_object(struct rebuild *b, struct subject *s)
{
	s->row.key_len = s->key.len;
	memcpy(s->row.key, s->key.data, s->key.len);
	if (!subject_wants_row(s)) /* nothing in it */
		return s->c->opt->repair ? check_remove_object(s->c, s->row.id) : 0;
	int r = put_row(b, s);

	if (r == -EEXIST) {
		bool differs = s->map.dirty_blocks > 0;

		if (differs)
			return to_lost_and_found(s, "object-orphan",
						 "a younger object belongs to the same file");
		subject_find(s, "object-orphan", "remove it",
			     "a younger object belongs to the same file");
		return s->c->opt->repair ? check_remove_object(s->c, s->row.id) : 0;
	}
	b->rows += r == 0;
	return r;
}

static int rebuild_known(struct rebuild *b, struct subject *s, struct witness *t)
{
	uint64_t differs = 0;

	witness_judge(s, t);
	int r = check_compare(s, t->believed ? &t->map : NULL, &differs);

	if (r == 0)
		r = witness_take_over(s, t, &differs);
	if (r < 0)
		return r;
	subject_check_presence(s);
	if (s->src_fd >= 0)
		subject_adopt_stamp(s);
	/* What was written since the row was, may be within blocks that were dirty already. */
	if (differs == 0 && b->c->journal_lost && grew_within_block(s, subject_size(s)))
		differs = BLOCK_BYTES;
	if (differs)
		mark_conflict(s, differs);
	else if (s->map.dirty_blocks)
		subject_own_attributes(s, guess_size(s), timespec_ns(s->obj_st.st_mtim));
	return store_object(b, s);
}

/* Which file is it? The object says so, or the old row. False: nobody knows. */
static bool identify(struct subject *s, struct witness *t)
{
	struct description d = { .path = NULL };
	int r = check_read_description(s->c, s->obj_fd, &d);

	if (r == 0) {
		s->key = d.key;
		s->row.path = d.path;
		if (!witness_same_key(s, t))
			witness_release(t);
		return true;
	}
	if (!t->row.id)
		return false;
	s->key.len = t->row.key_len;
	memcpy(s->key.data, t->row.key, t->row.key_len);
	s->row.path = t->row.path ? strdup(t->row.path) : NULL;
	s->describe = r == -ENODATA || r == -EINVAL;
	return true;
}

static int rebuild_object(struct rebuild *b, struct subject *s, struct witness *t)
{
	bool empty = check_next_data(s->obj_fd, 0) == UINT64_MAX;
	bool known = identify(s, t);

	if (known)
		subject_open_src(s);
	if (known && s->src_error != -ESTALE && s->src_error != -EINVAL)
		return rebuild_known(b, s, t);
	if (empty)
		return s->c->opt->repair ? check_remove_object(s->c, s->row.id) : 0;
	return to_lost_and_found(
		s, known ? "src-gone" : "object-orphan",
		known ? "is gone from SRC; what of the SSD's copy is newer is lost" :
			"this object does not say which file it belongs to");
}

static int rebuild_one(struct rebuild *b, uint64_t id)
{
	struct cat_file row = { .id = id };
	struct witness t;
	struct subject s;
	int r = 0;

	subject_init(&s, b->c, &row);
	subject_open_object(&s);
	witness_ask(b->old, &b->skipped, s.row.id, &t);
	if (s.obj_fd >= 0)
		r = rebuild_object(b, &s, &t);
	else
		subject_left(&s, "object-unreadable", "the object cannot be opened: %s",
			     strerror(-s.obj_error));
	if (r == 0 && s.describe && b->c->opt->repair)
		r = check_write_description(b->c, s.obj_fd, &s.key, s.row.path);
	subject_emit(&s, r == 0);
	b->c->result->files++;
	witness_release(&t);
	if (r < 0)
		r = check_fail(b->c, r, s.row.path ?: "an object");
	subject_release(&s);
	return r;
}

/* ---- rows without an object: pins, and what is lost --------------------------------------- */
/* What a row may stay for: pins, and the knowledge that something is lost. */
static int reduce_row(struct rebuild *b, struct subject *s, struct witness *t)
{
	uint32_t keep = CAT_F_PINNED | CAT_F_PIN_RANGES | CAT_F_DIR;

	witness_ask(b->old, &b->skipped, s->row.id, t);
	witness_judge(s, t);
	s->row.flags &= t->believed ? keep | CAT_F_ATTR_OWNED | CAT_F_CONFLICT : keep;
	if (witness_lost_pins(t)) {
		s->row.flags &= ~CAT_F_PIN_RANGES;
		subject_find(s, "row", "go on without", "%s", PINS_LOST);
	}
	/* The groups change hands, as new ones: none of them is stored yet. */
	s->map = t->map;
	map_init(&t->map);
	for (unsigned i = 0; i < s->map.n_groups; i++) {
		s->map.groups[i]->committed_seq = 0;
		s->map.groups[i]->intent = false;
	}
	subject_check_presence(s);
	return t->believed ? 0 : map_set(&s->map, 0, UINT64_MAX, BLOCK_ABSENT);
}

static int keep_row(struct rebuild *b, struct subject *s)
{
	struct witness t;
	int r = reduce_row(b, s, &t);

	if (r == 0 && subject_wants_row(s)) {
		r = put_row(b, s);
		b->rows += r == 0;
	}
	witness_release(&t);
	return r == -EEXIST ? 0 : r; /* its file has an object under another id */
}

/* Is what the row is about still there? */
static bool still_there(struct subject *s)
{
	if (!(s->row.flags & CAT_F_DIR)) {
		subject_open_src(s);
		return s->src_fd >= 0;
	}
	int fd = src_open(s->c->src, &s->key, s->row.path, O_PATH | O_DIRECTORY);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int consider_row(struct rebuild *b, struct cat_file *row)
{
	struct subject s;
	int r = 0;

	subject_init(&s, b->c, row);
	if (!check_object_exists(b->c, s.row.id) && still_there(&s))
		r = keep_row(b, &s);
	subject_emit(&s, r == 0);
	subject_release(&s);
	return r < 0 ? check_fail(b->c, r, "a row of the old catalog") : 0;
}

static int rebuild_rows_without_object(struct rebuild *b)
{
	struct cat_file row;
	unsigned skipped = 0;
	int r = 0;

	for (uint64_t id = 0; r == 0 && b->old && skipped < SKIP_MAX;) {
		int found = catalog_next_file(b->old, id, 0, &row);

		if (found == -ENOENT)
			break;
		id = found == 0 ? row.id : id + 1;
		skipped = found == 0 ? 0 : skipped + 1;
		if (found == 0)
			r = consider_row(b, &row);
	}
	return r;
}

/* ---- all of it ---------------------------------------------------------------------------- */
static int put_number(struct catalog *cat, const char *key, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return catalog_put_meta(cat, key, text);
}

/* Everything is settled: the next mount has nothing to recover. */
static int put_meta(struct rebuild *b)
{
	struct check *c = b->c;
	uint64_t max = c->n_objects ? c->objects[c->n_objects - 1] : 0;
	int r = b->in_transaction ? 0 : catalog_begin(b->new);

	if (r == 0)
		r = put_number(b->new, "next_id", max_u64(c->next_id, max + 1 + SPARE_IDS));
	if (r == 0)
		r = put_number(b->new, "clean", 1);
	if (r == 0 && c->journal)
		r = check_name_journal_end(c, b->new);
	if (r == 0)
		r = catalog_put_meta(b->new, "volume_id", c->l.id);
	if (r == 0)
		r = catalog_put_meta(b->new, "source", c->src->path);
	return r < 0 ? r : catalog_commit(b->new);
}

/* I1, I3: what the new catalog calls present or clean is durable, whoever wrote it. */
static int sync_both_sides(const struct check *c)
{
	if (c->l.objects_fd >= 0 && syncfs(c->l.objects_fd) < 0)
		return neg_errno();
	return syncfs(c->src->root_fd) < 0 ? neg_errno() : 0;
}

static int finish(struct rebuild *b)
{
	int r = sync_both_sides(b->c);

	if (r == 0)
		r = put_meta(b);
	catalog_close(TAKE_PTR(b->new));
	catalog_close(TAKE_PTR(b->c->cat));
	return r < 0 ? r : check_replace_catalog(b->c);
}

static int find_renamed(struct check *c)
{
	struct stat st;
	int r = 0;

	for (size_t i = 0; r == 0 && i < c->n_objects && !c->src->by_handle; i++) {
		struct description d;
		_cleanup_close_ int fd = check_open_object(c, c->objects[i], &st);

		if (fd >= 0 && check_read_description(c, fd, &d) == 0) {
			r = finder_add(c, &d.key, d.path);
			free(d.path);
		}
	}
	return r < 0 ? r : finder_run(c);
}

static int rebuild_all(struct rebuild *b)
{
	struct check *c = b->c;
	int r = find_renamed(c);

	for (size_t i = c->n_objects; r == 0 && i > 0; i--) {
		r = rebuild_one(b, c->objects[i - 1]);
		if (r == 0)
			r = check_progress(c, 0);
	}
	return r < 0 ? r : rebuild_rows_without_object(b);
}

int check_rebuild(struct check *c, enum catalog_state state, const char *why)
{
	bool none = state == CATALOG_NONE;
	struct rebuild b = { .c = c, .old = c->cat };
	int r = 0;

	if (c->opt->repair)
		r = check_new_catalog(c, &b.new);
	if (r == 0)
		r = rebuild_all(&b);
	if (r == 0 && c->opt->repair)
		r = finish(&b);
	catalog_close(b.new);
	if (r < 0)
		return check_fail(c, r, "rebuilding the catalog");
	if (c->journal_lost)
		check_report(c, "journal-lost", "journal",
			     c->opt->repair ? CHECK_DONE : CHECK_WOULD, false,
			     "go on without, and rebuild the catalog from the objects",
			     "the journal %s; what was made durable since the last checkpoint is "
			     "in it",
			     why);
	else
		check_report(c, none ? "catalog-missing" : "catalog-damaged", "catalog.db",
			     c->opt->repair ? CHECK_DONE : CHECK_WOULD, false,
			     "rebuild it from the objects",
			     "the catalog is %s%s; there are %zu objects, of %llu files",
			     none ? "missing" : "damaged: ", none ? "" : why, c->n_objects,
			     ULL(b.rows));
	return 0;
}
