// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stat: where the bytes are. One file is a block; several files, or a directory, are a table with
 * totals, or with -v blocks with totals. Nothing is kept per file, so trees may be of any size.
 */
#include <errno.h>

#include "db/base.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/failures.h"
#include "fs/cmd/json.h"
#include "fs/cmd/stat_text.h"
#include "fs/cmd/walk.h"

struct run {
	struct cmd_opts opts;
	bool one_file;	/* the only operand is not a directory */
	bool has_table; /* its head was printed */
	struct stat_totals totals;
	struct failures failures;
	struct json_stream stream;
	struct json_object *pinned_dirs; /* owned; an array, or NULL without --json */
};

static bool has(const struct run *r, unsigned opt)
{
	return (r->opts.given & opt) != 0;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

struct merge {
	struct json_object *array; /* borrowed */
	struct hfs_extent run;	   /* not yet in the array; length 0 = none */
};

static void put_run(struct merge *m)
{
	struct json_object *o;

	if (m->run.length == 0)
		return;
	o = json_object_new_object();
	json_put_u64(o, "offset", m->run.offset);
	json_put_u64(o, "length", m->run.length);
	json_put_text(o, "state", m->run.state == 2 ? "dirty" : "clean");
	json_object_array_add(m->array, o);
}

static int merge_extent(const struct hfs_extent *e, void *arg)
{
	struct merge *m = arg;

	if (e->state == 0)
		return 0;
	if (m->run.length > 0 && m->run.state == e->state &&
	    m->run.offset + m->run.length == e->offset) {
		m->run.length += e->length;
		return 0;
	}
	put_run(m);
	m->run = *e;
	return 0;
}

static int put_extents(struct json_object *o, const struct client *c)
{
	struct merge m = { .array = json_object_new_array() };
	int err = client_each_extent(c, false, merge_extent, &m);

	put_run(&m);
	json_object_object_add(o, "extents", m.array);
	return err;
}

static struct json_object *json_of(const char *path, const struct placement *p)
{
	struct json_object *o = json_object_new_object();

	json_put_path(o, "path", path);
	json_put_u64(o, "inode", p->f.ino);
	json_put_u64(o, "size_bytes", p->f.size_bytes);
	json_put_u64(o, "ssd_bytes", p->f.ssd_bytes);
	json_put_u64(o, "dirty_bytes", p->f.dirty_bytes);
	json_put_bool(o, "pinned", placement_is_pinned(p));
	json_put_u64(o, "pinned_bytes", p->f.pinned_bytes);
	json_put_u64(o, "heat", p->f.heat);
	json_put_text(o, "tier", placement_tier(p));
	json_put_bool(o, "passthrough", p->f.passthrough);
	json_put_text(o, "why_not_passthrough", p->f.why_not_passthrough);
	json_put_bool(o, "conflict", p->f.conflict);
	return o;
}

static int show_json(struct run *r, const struct client *c, const char *path,
		     const struct placement *p)
{
	struct json_object *o = json_of(path, p);
	int err = has(r, OPT_VERBOSE) ? put_extents(o, c) : 0;

	if (err < 0)
		json_object_put(o);
	else
		json_stream_item(&r->stream, o);
	return err;
}

static void end_json(struct run *r)
{
	struct json_object *rest = json_object_new_object();
	struct json_object *totals = json_object_new_object();

	json_put_u64(totals, "files", r->totals.files);
	json_put_u64(totals, "size_bytes", r->totals.size_bytes);
	json_put_u64(totals, "ssd_bytes", r->totals.ssd_bytes);
	json_put_u64(totals, "dirty_bytes", r->totals.dirty_bytes);
	json_put_u64(totals, "pinned_bytes", r->totals.pinned_bytes);
	json_object_object_add(rest, "totals", totals);
	json_object_object_add(rest, "pinned_directories", r->pinned_dirs);
	failures_put_json(&r->failures, rest);
	json_stream_end(&r->stream, rest);
}

/* ---- text ---------------------------------------------------------------------------------- */

static bool wants_table(const struct run *r)
{
	return !r->one_file && !has(r, OPT_VERBOSE);
}

static void begin_row(struct run *r)
{
	if (wants_table(r) && !r->has_table)
		stat_text_table_head();
	r->has_table = wants_table(r);
}

static int show_block(struct run *r, const struct client *c, const char *path,
		      const struct placement *p)
{
	int err = 0;

	stat_text_block(path, p);
	if (has(r, OPT_VERBOSE)) {
		stat_text_legend();
		err = stat_text_extents(c);
	}
	if (!r->one_file)
		putchar('\n');
	return err;
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void count(struct stat_totals *t, const struct hfs_file_stat *f)
{
	t->files++;
	t->size_bytes += f->size_bytes;
	t->ssd_bytes += f->ssd_bytes;
	t->dirty_bytes += f->dirty_bytes;
	t->pinned_bytes += f->pinned_bytes;
}

static int show_file(struct run *r, const struct client *c, const struct walk_entry *e)
{
	bool block = !has(r, OPT_JSON) && (r->one_file || has(r, OPT_VERBOSE));
	struct placement p;
	int err = placement_read(c, block, &p);

	if (err < 0)
		return err;
	if (!e->repeated)
		count(&r->totals, &p.f);
	if (has(r, OPT_JSON))
		return show_json(r, c, e->path, &p);
	if (block)
		return show_block(r, c, e->path, &p);
	begin_row(r);
	stat_text_table_row(e->path, &p);
	return 0;
}

/* Directories have no bytes of their own; only their pins are worth a word. */
static int show_dir(struct run *r, const struct client *c, const char *path)
{
	struct hfs_file_stat f;
	struct json_object *o;
	int err = client_file_stat(c, &f);

	if (err < 0 || !f.pinned)
		return err;
	if (!has(r, OPT_JSON)) {
		begin_row(r);
		stat_text_pinned_dir(path, r->has_table);
		return 0;
	}
	o = json_object_new_object();
	json_put_path(o, "path", path);
	json_object_array_add(r->pinned_dirs, o);
	return 0;
}

static enum walk_result visit(const struct walk_entry *e, void *arg)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	struct run *r = arg;
	int err;

	err = e->is_root ? client_open(e->path, &c) : client_open_below(e->path, e->st->st_dev, &c);
	if (!e->is_root && (err == -ESTALE || err == -ENOENT))
		return WALK_ON; /* removed or replaced since it was listed */
	if (err == 0)
		err = e->is_dir ? show_dir(r, &c, e->path) : show_file(r, &c, e);
	if (err == 0)
		return WALK_ON;
	failures_add(&r->failures, e->path, client_strerror(err));
	return e->is_root || client_is_dead(err) ? WALK_NEXT_PATH : WALK_ON;
}

static void walk_failed(const char *path, int err, void *arg)
{
	struct run *r = arg;

	failures_add(&r->failures, path, client_strerror(err));
}

static void run(struct run *r)
{
	size_t n = (size_t)r->opts.n_operands;
	struct stat st;

	r->one_file = n == 1 && (stat(r->opts.operands[0], &st) < 0 || !S_ISDIR(st.st_mode));
	if (has(r, OPT_JSON)) {
		r->pinned_dirs = json_object_new_array();
		json_stream_begin(&r->stream, "files");
	}
	walk_paths(r->opts.operands, n, visit, walk_failed, r);
	if (has(r, OPT_JSON))
		end_json(r);
	else if (!r->one_file && (r->totals.files > 0 || r->failures.n == 0))
		stat_text_totals(&r->totals, wants_table(r));
}

int cmd_stat(int argc, char **argv)
{
	struct run r = { 0 };
	int exit_code;

	if (!cmd_parse(argc, argv, OPT_JSON | OPT_VERBOSE, &r.opts, &exit_code))
		return exit_code;
	if (r.opts.n_operands == 0)
		return cmd_usage_error(argv[0], "missing operand: PATH");
	run(&r);
	exit_code = r.failures.n > 0 ? CMD_FAILED : CMD_OK;
	failures_release(&r.failures);
	return cmd_finish(exit_code);
}
