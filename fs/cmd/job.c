// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "db/base.h"
#include "fs/cmd/explain.h"
#include "fs/cmd/interrupt.h"
#include "fs/cmd/json.h"
#include "fs/cmd/steps.h"

/* ---- messages ------------------------------------------------------------------------------ */

static char *format_text(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static char *format_text(const char *fmt, va_list ap)
{
	char *text;

	return vasprintf(&text, fmt, ap) < 0 ? NULL : text;
}

void job_fail(struct job *j, const char *path, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = format_text(fmt, ap);
	va_end(ap);
	progress_hide(&j->progress);
	failures_add(&j->failures, path, text ? text : fmt);
}

void job_note(struct job *j, const char *path, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	if (j->opts.given & OPT_QUIET)
		return;
	va_start(ap, fmt);
	text = format_text(fmt, ap);
	va_end(ap);
	progress_hide(&j->progress);
	cmd_path_error(path, "note: %s", text ? text : fmt);
}

void job_put_counts(const struct job *j, FILE *f)
{
	if (j->files > 0 || j->dirs == 0)
		fprintf(f, "%" PRIu64 " file%s", j->files, PLURAL(j->files));
	if (j->dirs > 0)
		fprintf(f, "%s%" PRIu64 " director%s", j->files > 0 ? " and " : "", j->dirs,
			j->dirs == 1 ? "y" : "ies");
}

/* ---- steps --------------------------------------------------------------------------------- */

static void show_step(const struct hfs_step *s, uint64_t done_bytes, void *arg)
{
	struct job *j = arg;
	uint64_t left = s->next == UINT64_MAX ? 0 : s->left_bytes;
	uint64_t so_far = j->passed_bytes + done_bytes;

	j->copied_bytes += s->done_bytes;
	progress_show(&j->progress, so_far, max_u64(j->expected_bytes, so_far + left));
}

int job_steps(struct job *j, const struct client *c, enum hfs_action action, unsigned flags)
{
	struct hfs_step s = {
		.action = action,
		.flags = flags,
		.offset = j->opts.range.offset,
		.length = j->opts.range.length,
	};
	int err;

	j->action = action;
	err = steps_run(c, &s, show_step, j);
	if (err == 0 && (flags & HFS_NO_WAIT))
		j->queued_bytes += s.left_bytes;
	return err;
}

/* ---- visiting ------------------------------------------------------------------------------ */

static int open_entry(const struct walk_entry *e, struct client *c)
{
	return e->is_root ? client_open(e->path, c) : client_open_below(e->path, e->st->st_dev, c);
}

static enum walk_result open_failed(struct job *j, const struct walk_entry *e, int err)
{
	if (!e->is_root && (err == -ESTALE || err == -ENOENT))
		return WALK_ON; /* removed or replaced since it was listed */
	job_fail(j, e->path, "%s", client_strerror(err));
	return e->is_root || client_is_dead(err) ? WALK_NEXT_PATH : WALK_ON;
}

static enum walk_result act_failed(struct job *j, const struct walk_entry *e,
				   const struct client *c, int err)
{
	bool no_room = err == -ENOSPC && (j->action == HFS_PROMOTE || j->action == HFS_PIN);
	bool marked = j->action == HFS_PROMOTE && j->kind->promote_failed;
	_cleanup_free_ char *why = NULL;

	if (err == -EINTR && interrupted()) {
		j->stopped = true;
		return WALK_STOP;
	}
	why = explain_step(c, j->action, &j->opts.range, err);
	job_fail(j, e->path, "cannot %s: %s%s", j->kind->name, why ? why : client_strerror(err),
		 marked ? j->kind->promote_failed : "");
	/* What is only to be marked may go on: others fit, or come when there is room. */
	return (no_room && !marked) || client_is_dead(err) ? WALK_NEXT_PATH : WALK_ON;
}

static uint64_t expect_of(const struct job *j, const struct client *c)
{
	struct hfs_file_stat f;

	if (!j->progress.enabled || !j->kind->expect || client_file_stat(c, &f) < 0)
		return 0;
	return j->kind->expect(&f);
}

static enum walk_result act_on(struct job *j, const struct walk_entry *e, const struct client *c)
{
	uint64_t expect = S_ISREG(c->st.st_mode) ? expect_of(j, c) : 0;
	int r = j->kind->act(j, c, e);

	j->passed_bytes += expect;
	if (r < 0)
		return act_failed(j, e, c, r);
	if (r == 0 && S_ISREG(c->st.st_mode))
		j->files++;
	else if (r == 0 && j->kind->marks_dirs)
		j->dirs++;
	return r == JOB_TREE_DONE ? WALK_NEXT_PATH : WALK_ON;
}

static enum walk_result visit(const struct walk_entry *e, void *arg)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	struct job *j = arg;
	int err;

	if (interrupted()) {
		j->stopped = true;
		return WALK_STOP;
	}
	if (e->repeated || (e->is_dir && !e->is_root && !j->kind->marks_dirs))
		return WALK_ON;
	err = open_entry(e, &c);
	if (err < 0)
		return open_failed(j, e, err);
	if (e->is_dir && (j->opts.given & OPT_RANGE)) {
		job_fail(j, e->path, "is a directory: --range is for regular files");
		return WALK_NEXT_PATH;
	}
	return act_on(j, e, &c);
}

static void walk_failed(const char *path, int err, void *arg)
{
	job_fail(arg, path, "%s", client_strerror(err));
}

/* ---- how much there is to do: only asked for when there is a bar to draw --------------------- */

static enum walk_result visit_expect(const struct walk_entry *e, void *arg)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	struct job *j = arg;
	struct hfs_status s;

	if (interrupted())
		return WALK_STOP;
	if (e->repeated || (e->is_dir && !e->is_root))
		return WALK_ON;
	if (open_entry(e, &c) < 0)
		return e->is_root ? WALK_NEXT_PATH : WALK_ON; /* the visit proper reports it */
	if (e->is_dir && j->kind->whole_mounts && client_is_mount_root(&c)) {
		j->expected_bytes += client_status(&c, &s) == 0 ? s.dirty_bytes : 0;
		return WALK_NEXT_PATH;
	}
	if (e->is_dir)
		return WALK_ON;
	j->expected_bytes += expect_of(j, &c);
	progress_say(&j->progress, "looking how much there is to do");
	return WALK_ON;
}

static void ignore_error(const char *path, int err, void *arg)
{
	(void)path;
	(void)err;
	(void)arg;
}

/* ---- the command ---------------------------------------------------------------------------- */

static void print_summary(const struct job *j)
{
	if (j->stopped)
		fputs("interrupted: ", stdout);
	j->kind->summary(j, stdout);
	if (j->failures.n > 0)
		printf("; %" PRIu64 " failed", j->failures.n);
	putchar('\n');
}

static void print_json(struct job *j)
{
	struct json_object *o = json_object_new_object();

	json_put_u64(o, "version", 1);
	json_put_u64(o, "files", j->files);
	json_put_u64(o, "directories", j->dirs);
	json_put_u64(o, "bytes", j->kind->json_bytes ? j->kind->json_bytes(j) : j->copied_bytes);
	if (j->opts.given & OPT_NO_WAIT)
		json_put_u64(o, "queued_bytes", j->queued_bytes);
	json_put_bool(o, "interrupted", j->stopped);
	failures_put_json(&j->failures, o);
	json_print(o);
	putchar('\n');
	json_object_put(o);
}

static void run(struct job *j)
{
	char *const *paths = j->opts.operands;
	size_t n = (size_t)j->opts.n_operands;

	interrupt_catch();
	progress_init(&j->progress, j->kind->name, j->opts.given & OPT_QUIET);
	if (j->progress.enabled && j->kind->expect)
		walk_paths(paths, n, visit_expect, ignore_error, j);
	progress_hide(&j->progress);
	progress_init(&j->progress, j->kind->name, j->opts.given & OPT_QUIET);
	walk_paths(paths, n, visit, walk_failed, j);
	progress_hide(&j->progress);
}

int job_main(const struct job_kind *kind, int argc, char **argv)
{
	struct job j = { .kind = kind };
	int exit_code;

	if (!cmd_parse(argc, argv, OPT_QUIET | OPT_JSON | kind->options, &j.opts, &exit_code))
		return exit_code;
	if (j.opts.n_operands == 0)
		return cmd_usage_error(argv[0], "missing operand: PATH");
	run(&j);
	exit_code = j.failures.n > 0 || j.stopped ? CMD_FAILED : CMD_OK;
	if (j.opts.given & OPT_JSON)
		print_json(&j);
	else if (!(j.opts.given & OPT_QUIET) && (j.files > 0 || j.dirs > 0 || !j.failures.n))
		print_summary(&j);
	failures_release(&j.failures);
	return cmd_finish(exit_code);
}
