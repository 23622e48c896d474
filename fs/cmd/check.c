// SPDX-License-Identifier: GPL-2.0-or-later
/* `hybridfs check`: prints what tier/check.h finds. Exit codes as fsck. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "db/base.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/interrupt.h"
#include "fs/cmd/json.h"
#include "fs/cmd/mounts.h"
#include "fs/cmd/progress.h"
#include "tier/check.h"

enum {
	EXIT_CLEAN = 0,
	EXIT_REPAIRED = 1,
	EXIT_ERRORS_LEFT = 4,
	EXIT_FAILED = 8,
	EXIT_WRONG_USE = 16
};

struct checking {
	bool json;
	struct progress progress;
	struct json_stream stream;
};

/* ---- as text ------------------------------------------------------------------------------ */
static void print_outcome(const struct check_finding *f)
{
	static const char *const words[] = { "", "would ", "done: ", "failed: " };

	if (f->action)
		printf(" -> %s%s", words[f->outcome], f->action);
	else if (f->outcome == CHECK_LEFT)
		fputs(" -> left as it is", stdout);
}

static void print_text(const struct check_finding *f)
{
	fmt_put_escaped(stdout, f->path ?: f->object);
	if (f->path) {
		fputs(" (", stdout);
		fmt_put_escaped(stdout, f->object);
		putchar(')');
	}
	fputs(": ", stdout);
	if (f->note)
		fputs("note: ", stdout);
	fmt_put_escaped(stdout, f->detail);
	print_outcome(f);
	putchar('\n');
}

static void print_summary(const struct check_result *r, bool repair)
{
	printf("%llu file%s, %llu object%s, %s compared: ", (unsigned long long)r->files,
	       PLURAL(r->files), (unsigned long long)r->objects, PLURAL(r->objects),
	       SIZE(r->checked_bytes));
	if (r->findings == 0)
		fputs("clean", stdout);
	else
		printf("%llu finding%s, %llu repaired, %llu left", (unsigned long long)r->findings,
		       PLURAL(r->findings), (unsigned long long)r->repaired,
		       (unsigned long long)r->left);
	if (r->notes)
		printf(" (%llu note%s)", (unsigned long long)r->notes, PLURAL(r->notes));
	puts(r->left && !repair ? "; --repair repairs what can be repaired" : "");
}

/* ---- as JSON ------------------------------------------------------------------------------ */
static void put_json(struct checking *k, const struct check_finding *f)
{
	struct json_object *o = json_object_new_object();

	json_put_text(o, "kind", f->kind);
	if (f->path)
		json_put_path(o, "path", f->path);
	else
		json_object_object_add(o, "path", NULL);
	json_put_path(o, "object", f->object);
	json_put_text(o, "detail", f->detail);
	if (f->action)
		json_put_text(o, "action", f->action);
	else
		json_object_object_add(o, "action", NULL);
	json_put_bool(o, "note", f->note);
	json_put_bool(o, "repaired", f->outcome == CHECK_DONE);
	json_stream_item(&k->stream, o);
}

static void end_json(struct checking *k, const struct check_result *r, int exit_code,
		     const char *error)
{
	struct json_object *o = json_object_new_object();

	json_put_u64(o, "files", r->files);
	json_put_u64(o, "objects", r->objects);
	json_put_u64(o, "checked_bytes", r->checked_bytes);
	json_put_u64(o, "errors_found", r->findings);
	json_put_u64(o, "errors_repaired", r->repaired);
	json_put_u64(o, "errors_left", r->left);
	json_put_u64(o, "notes", r->notes);
	json_put_u64(o, "exit_code", (uint64_t)exit_code);
	if (*error)
		json_put_text(o, "error", error);
	json_stream_end(&k->stream, o);
}

/* ---- callbacks ---------------------------------------------------------------------------- */
static void on_finding(void *ctx, const struct check_finding *f)
{
	struct checking *k = ctx;

	progress_hide(&k->progress);
	if (k->json)
		put_json(k, f);
	else
		print_text(f);
}

static bool on_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	struct checking *k = ctx;

	progress_show(&k->progress, done_bytes, total_bytes);
	return !interrupted();
}

/* ---- the command -------------------------------------------------------------------------- */
/* A mount over SRC itself hides it, and its volume would not be found. */
static bool is_our_mount(const char *path)
{
	struct mounts m _cleanup_mounts_ = { 0 };
	int id;

	if (mounts_locate(path, &id, NULL) < 0 || mounts_read(&m) < 0)
		return false;
	const struct mount *on = mounts_find_id(&m, id);

	return on && mount_is_ours(on);
}

static int exit_code_of(int r, const struct check_result *result)
{
	if (r < 0)
		return EXIT_FAILED;
	if (result->left)
		return EXIT_ERRORS_LEFT;
	return result->repaired ? EXIT_REPAIRED : EXIT_CLEAN;
}

static int run_check(struct checking *k, struct src *src, const char *ssd,
		     const struct check_options *o)
{
	const struct check_env env = { .finding = on_finding, .progress = on_progress, .ctx = k };
	struct check_result result;
	char error[512];

	if (k->json)
		json_stream_begin(&k->stream, "findings");
	int r = check_run(src, ssd, o, &env, &result, error, sizeof(error));
	int exit_code = exit_code_of(r, &result);

	progress_hide(&k->progress);
	if (k->json)
		end_json(k, &result, exit_code, error);
	else if (r == 0)
		print_summary(&result, o->repair);
	if (r < 0)
		cmd_error("%s", error);
	if (cmd_finish(CMD_OK) != CMD_OK)
		return EXIT_FAILED;
	return exit_code;
}

static int check(const char *src_path, const char *ssd, unsigned given)
{
	struct check_options o = { .repair = given & OPT_REPAIR,
				   .scrub = given & OPT_SCRUB,
				   .now_s = time(NULL),
				   .tmp_dir = getenv("TMPDIR") };
	struct checking k = { .json = given & OPT_JSON };
	struct src src;

	if (is_our_mount(src_path)) {
		cmd_path_error(src_path, "is a mount of hybridfs; unmount it first");
		return EXIT_FAILED;
	}
	int r = src_init(&src, src_path);

	if (r < 0) {
		cmd_path_error(src_path, "%s", strerror(-r));
		return EXIT_FAILED;
	}
	progress_init(&k.progress, "check", false);
	interrupt_catch();
	r = run_check(&k, &src, ssd, &o);
	src_release(&src);
	return r;
}

int cmd_check(int argc, char **argv)
{
	struct cmd_opts o;
	int exit_code;

	if (!cmd_parse(argc, argv, OPT_JSON | OPT_REPAIR | OPT_SCRUB, &o, &exit_code))
		return exit_code == CMD_OK ? EXIT_CLEAN : EXIT_WRONG_USE;
	if (o.n_operands != 2) {
		(void)cmd_usage_error(argv[0], "%s",
				      o.n_operands < 2 ? "missing operand: SRC and SSD are needed" :
							 "too many operands");
		return EXIT_WRONG_USE;
	}
	return check(o.operands[0], o.operands[1], o.given);
}
