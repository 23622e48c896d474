// SPDX-License-Identifier: GPL-2.0-or-later
/* The check of a volume: the order of its parts, orphans, and what is told to the caller. */
#include "tier/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "tier/check_internal.h"

/* ---- to the caller ------------------------------------------------------------------------ */
void check_emit(struct check *c, const struct check_finding *f)
{
	struct check_result *r = c->result;

	if (f->note) {
		r->notes++;
	} else {
		r->findings++;
		*(f->outcome == CHECK_DONE ? &r->repaired : &r->left) += 1;
	}
	c->env->finding(c->env->ctx, f);
}

void check_report(struct check *c, const char *kind, const char *object, enum check_outcome outcome,
		  bool note, const char *action, const char *fmt, ...)
{
	_cleanup_free_ char *detail = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&detail, fmt, ap) < 0)
		detail = NULL;
	va_end(ap);

	struct check_finding f = { .kind = kind,
				   .object = object,
				   .detail = detail ?: "",
				   .action = action,
				   .note = note,
				   .outcome = outcome };

	check_emit(c, &f);
}

int check_progress(struct check *c, uint64_t bytes)
{
	c->done_bytes += bytes;
	if (!c->env->progress || c->env->progress(c->env->ctx, c->done_bytes, c->total_bytes))
		return 0;
	snprintf(c->error, c->error_size, "interrupted");
	return -EINTR;
}

int check_fail(struct check *c, int r, const char *what)
{
	if (!*c->error)
		snprintf(c->error, c->error_size, "%s: %s: %s", c->l.path, what, strerror(-r));
	return r;
}

/* ---- objects without a row ---------------------------------------------------------------- */
static int describe_orphan(struct subject *s)
{
	struct description d = { .path = NULL };
	int r = check_read_description(s->c, s->obj_fd, &d);

	if (r == 0) {
		s->key = d.key;
		s->row.path = d.path;
	}
	return r;
}

/* Why an orphan's data should be kept; NULL: it was never committed. */
static const char *reason_to_keep(struct subject *s, int *ret_r)
{
	struct check *c = s->c;
	uint64_t differs = 0;
	int described = describe_orphan(s);

	*ret_r = 0;
	if (check_next_data(s->obj_fd, 0) == UINT64_MAX)
		return NULL;
	if (c->next_id && s->row.id >= c->next_id)
		return "is younger than the catalog";
	if (c->unclean)
		return NULL;
	if (described < 0)
		return "does not say which file it belongs to";
	subject_open_src(s);
	if (s->src_error == -ESTALE)
		return "belongs to a file that is gone from SRC";
	*ret_r = check_compare(s, NULL, &differs);
	return differs ? "differs from its file in SRC" : NULL;
}

static int settle_orphan(struct subject *s)
{
	int r;
	const char *why = reason_to_keep(s, &r);

	if (r < 0)
		return r;
	if (why)
		subject_find(s, "object-orphan", "move it to lost+found",
			     "the catalog does not know this object, which %s", why);
	else
		subject_find(s, "object-orphan", "remove it",
			     "the catalog does not know this object; it holds nothing committed");
	if (!s->c->opt->repair)
		return 0;
	/* The map is what comparison made of it, not what was known. */
	map_release(&s->map);
	r = why ? check_lost_keep(s) : 0;
	return r < 0 ? r : check_remove_object(s->c, s->row.id);
}

static int check_orphan(struct check *c, uint64_t id)
{
	struct cat_file row = { .id = id };
	struct subject s;
	int r = 0;

	subject_init(&s, c, &row);
	subject_open_object(&s);
	if (s.obj_fd >= 0)
		r = settle_orphan(&s);
	else if (s.obj_error != -ENOENT)
		subject_left(&s, "object-unreadable", "cannot be opened, and has no row: %s",
			     strerror(-s.obj_error));
	subject_emit(&s, r == 0);
	if (r < 0)
		r = check_fail(c, r, "an object without a row");
	subject_release(&s);
	return r;
}

static int check_orphans(struct check *c)
{
	struct cat_file row;
	int r = 0;

	for (size_t i = 0; r == 0 && i < c->n_objects; i++) {
		r = catalog_find_id(c->cat, c->objects[i], &row);
		if (r == 0)
			cat_file_release(&row);
		else if (r == -ENOENT)
			r = check_orphan(c, c->objects[i]);
		else
			r = check_fail(c, r, catalog_error(c->cat));
		if (r == 0)
			r = check_progress(c, 0);
	}
	return r;
}

/* ---- rows --------------------------------------------------------------------------------- */
static int check_rows(struct check *c)
{
	struct cat_file row;
	uint64_t id = 0;
	int r;

	while ((r = catalog_next_file(c->cat, id, 0, &row)) == 0) {
		id = row.id;
		r = check_file(c, &row);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : check_fail(c, r, catalog_error(c->cat));
}

/* Files whose data or pins must not be given up only because they have another name now. */
static int find_renamed(struct check *c)
{
	const uint32_t flags = CAT_F_PINNED | CAT_F_DIR | CAT_F_PIN_RANGES | CAT_F_ATTR_OWNED;
	struct cat_file row;
	int r = 0;

	for (int pass = 0; r == 0 && pass < 2 && !c->src->by_handle; pass++)
		for (uint64_t id = 0; r == 0;) {
			r = pass ? catalog_next_unsettled(c->cat, id, &row) :
				   catalog_next_file(c->cat, id, flags, &row);
			if (r == -ENOENT) {
				r = 0;
				break;
			}
			if (r < 0)
				return check_fail(c, r, catalog_error(c->cat));
			struct src_key key = { .len = row.key_len };

			memcpy(key.data, row.key, row.key_len);
			id = row.id;
			r = finder_add(c, &key, row.path);
			cat_file_release(&row);
		}
	if (r == 0)
		r = finder_run(c);
	return r < 0 ? check_fail(c, r, "looking for renamed files") : 0;
}

/* ---- settings ----------------------------------------------------------------------------- */
#define ID_SANE_MAX (1ull << 62)
#define SPARE_IDS   (1ull << 32) /* of what may have been handed out */

static int repair_settings(struct check *c, bool ids)
{
	uint64_t max;
	char text[24];
	int r = catalog_max_id(c->cat, &max);

	if (r == 0)
		r = catalog_begin(c->cat);
	if (r < 0)
		return r;
	if (c->n_objects)
		max = max_u64(max, c->objects[c->n_objects - 1]);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(max + 1 + SPARE_IDS));
	if (ids)
		r = catalog_put_meta(c->cat, "next_id", text);
	if (r == 0 && c->journal_unnamed)
		r = catalog_put_meta(c->cat, "journal", NULL);
	if (r < 0) {
		catalog_rollback(c->cat);
		return r;
	}
	return catalog_commit(c->cat);
}

/* Settings that would keep a mount from starting. */
static int check_settings(struct check *c)
{
	enum check_outcome outcome = c->opt->repair ? CHECK_DONE : CHECK_WOULD;
	bool ids = c->next_id > ID_SANE_MAX;

	if (!ids && !c->journal_unnamed)
		return 0;
	int r = c->opt->repair ? repair_settings(c, ids) : 0;

	if (r < 0)
		return check_fail(c, r, catalog_error(c->cat));
	if (c->journal_unnamed)
		check_report(c, "settings", "catalog.db", outcome, false, "start a new journal",
			     "the position in the journal makes no sense; the journal is empty");
	if (ids)
		check_report(c, "settings", "catalog.db", outcome, false,
			     "go on behind the largest",
			     "the next id is %llu, which no object can have",
			     (unsigned long long)c->next_id);
	c->next_id = ids ? 0 : c->next_id;
	return 0;
}

static int check_good_catalog(struct check *c)
{
	struct cat_totals t;
	int r = catalog_totals(c->cat, &t);

	if (r < 0)
		return check_fail(c, r, catalog_error(c->cat));
	c->total_bytes = t.present_bytes;
	if (c->unclean)
		check_report(c, "unclean", "catalog.db", CHECK_NOTED, true, NULL,
			     "the last daemon did not finish; the next mount settles what is in "
			     "doubt");
	r = check_settings(c);
	if (r == 0)
		r = find_renamed(c);
	if (r == 0)
		r = check_rows(c);
	return r < 0 ? r : check_orphans(c);
}

/* ---- a check ------------------------------------------------------------------------------ */
static int set_up(struct check *c)
{
	struct statvfs fs;

	c->obj_buf = malloc(EXTENT_BYTES);
	c->src_buf = malloc(EXTENT_BYTES);
	if (!c->obj_buf || !c->src_buf)
		return check_fail(c, -ENOMEM, "buffers");
	if (fstatvfs(c->l.dir_fd, &fs) < 0)
		return check_fail(c, neg_errno(), "the filesystem");
	c->ssd_block = BLOCK_BYTES;
	while (c->ssd_block < fs.f_bsize && c->ssd_block < GROUP_BYTES)
		c->ssd_block *= 2;
	return 0;
}

static int check_volume(struct check *c)
{
	_cleanup_free_ char *why = NULL;
	int r = set_up(c);

	if (r < 0)
		return r;
	int state = check_open_catalog(c, &why);

	r = state < 0 ? state : check_list_objects(c);
	if (r < 0)
		return r;
	if (state == CATALOG_GOOD)
		return check_good_catalog(c);
	if (state == CATALOG_NONE && c->n_objects == 0 && !layout_is_marked(c->l.dir_fd))
		return 0; /* it never came to a mount */
	return check_rebuild(c, state, why);
}

int check_run(struct src *src, const char *ssd_path, const struct check_options *o,
	      const struct check_env *env, struct check_result *ret_result, char *ret_error,
	      size_t error_size)
{
	struct check c = { .opt = o,
			   .env = env,
			   .src = src,
			   .result = ret_result,
			   .unclean = true, /* until the catalog says otherwise */
			   .lost_fd = -1,
			   .tmp_fd = -1,
			   .error = ret_error,
			   .error_size = error_size };

	*ret_result = (struct check_result){ 0 };
	*ret_error = '\0';
	int r = layout_open_existing(src, ssd_path, o->repair, &c.l, ret_error, error_size);

	if (r < 0)
		return r;
	r = check_volume(&c);
	check_close_catalog(&c);
	check_close_journal(&c);
	finder_release(&c.finder);
	free(c.objects);
	free(c.obj_buf);
	free(c.src_buf);
	if (c.lost_fd >= 0)
		close(c.lost_fd);
	layout_release(&c.l); /* the lock last: I10 */
	return r;
}
