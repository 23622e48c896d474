// SPDX-License-Identifier: GPL-2.0-or-later
/* Steps that only the mount takes: tier commands, a clean remount, kill -9 and recovery. */
#include "model.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXISTING_STEPS 150 /* on SRC before the first mount */
#define OFFLINE_STEPS  8   /* on SRC between two mounts, at most */

static void begin_step(struct world *w, const char *name)
{
	watch_alive();
	w->step++;
	w->ntouched = 0;
	w->set_node = NULL;
	w->mmap_store = false;
	w->loose[0] = w->loose[1] = NULL;
	w->still = true;
	log_begin(w, name);
	clock_gettime(CLOCK_REALTIME_COARSE, &w->op_start);
}

static void for_files(struct world *w, void (*fn)(struct world *w, struct node *n))
{
	for (int i = 0; i < NODES_MAX; i++)
		if (w->nodes[i].used && w->nodes[i].kind == K_FILE)
			fn(w, &w->nodes[i]);
}

/* ---- tier commands ------------------------------------------------------------------------- */

/* A command that runs beside the following steps. */
static struct {
	pid_t pid; /* 0: none */
	int out_fd;
} beside;

static const char *const commands[] = { "promote", "promote", "promote", "demote",
					"demote",  "demote",  "flush",	 "flush",
					"pin",	   "unpin",   "unpin",	 "stat" };

static void check_tier_status(struct world *w, const char *command, int status, const char *out)
{
	char text[48];
	bool broken = status == TOOL_TIMEOUT || WIFSIGNALED(status) || WEXITSTATUS(status) > 32;

	w->tier_runs++;
	if (status == 0)
		return;
	describe_status(status, text, sizeof(text));
	say(" -> %s: %.100s", text, out);
	w->tier_failures++;
	if (broken || w->cfg->tier_strict || strcmp(command, "flush") == 0)
		fail(w, "%s ended with %s: %s", command, text, out);
}

void tier_wait(struct world *w)
{
	char out[200];
	int status;

	if (!beside.pid)
		return;
	status = tool_wait(beside.pid, TOOL_LIMIT_S);
	tool_output(beside.out_fd, out, sizeof(out));
	close(beside.out_fd);
	beside.pid = 0;
	w->tier_runs++;
	/* Its file may have gone, so any ordinary failure will do. */
	if (status == TOOL_TIMEOUT || (WIFSIGNALED(status) && !w->offline))
		fail(w, "a tier command beside the steps %s: %s",
		     status == TOOL_TIMEOUT ? "did not end" : "was ended by a signal", out);
}

static unsigned int add_options(struct world *w, const char *command, const struct node *n,
				const char **args, unsigned int at, char *range, size_t range_size)
{
	bool promote = strcmp(command, "promote") == 0;
	struct span s = pick_span(&w->rng, 1);

	if (n->kind == K_FILE && (promote || strcmp(command, "pin") == 0) &&
	    rng_one_in(&w->rng, 3)) {
		snprintf(range, range_size, "%lld:%zu", (long long)s.off, s.len);
		args[at++] = "--range";
		args[at++] = range;
		say(" --range %s", range);
	}
	if (promote && rng_one_in(&w->rng, 4)) {
		args[at++] = "--no-wait";
		say(" --no-wait");
	}
	return at;
}

static void run_tier(struct world *w, const char *command, const char *const *args)
{
	char out[200];
	pid_t pid;

	if (!rng_one_in(&w->rng, 3)) {
		int status = tool_run(w->cfg, args, out, sizeof(out));

		check_tier_status(w, command, status, out);
		return;
	}
	say(" (beside)");
	pid = tool_start(w->cfg, args, &beside.out_fd);
	if (pid < 0)
		die("cannot run %s: %s", w->cfg->tool, strerror(-pid));
	beside.pid = pid;
}

void step_tier(struct world *w)
{
	uint32_t n = sizeof(commands) / sizeof(commands[0]);
	const char *command = commands[rng_below(&w->rng, n)];
	struct ent *e = pick_ent(w, rng_one_in(&w->rng, 6) ? K_DIR : K_FILE);
	struct node *node = e ? e->node : w->root_node;
	const char *args[TOOL_ARGS + 1] = { command };
	char path[PATH_BYTES], range[64];
	unsigned int at;

	begin_step(w, command);
	tier_wait(w);
	say(" #%u", node->id);
	at = add_options(w, command, node, args, 1, range, sizeof(range));
	args[at] = path_of(w, MNT, node, path);
	touch(w, node);
	run_tier(w, command, args);
	clock_gettime(CLOCK_REALTIME, &w->op_end);
	if (node->kind == K_DIR)
		compare_all(w);
	else
		compare_touched(w);
}

/* ---- remount ------------------------------------------------------------------------------- */

/* What a clean unmount, or work on SRC itself, leaves is durable. */
static void settle(struct world *w, struct node *n)
{
	record_mtimes(w, n);
	n->lazy_mtime = false;
	n->mtime_durable = true;
	durable_synced(w, n);
}

/* A pinned file is served by the kernel (passthrough) once it is all on the SSD. */
static void mount_and_pin(struct world *w)
{
	const char *args[] = { "pin", w->cfg->mnt, NULL };
	char out[256];

	mount_start(w->cfg);
	if (w->cfg->pinned)
		(void)tool_run(w->cfg, args, out, sizeof(out)); /* some may not fit */
}

static void go_online(struct world *w)
{
	handles_close_all(w);
	for_files(w, settle);
	mount_and_pin(w);
	w->root[MNT] = w->cfg->mnt;
	w->offline = false;
}

static void go_offline(struct world *w)
{
	char why[256];

	tier_wait(w);
	handles_close_all(w);
	if (!mount_stop(w->cfg, why, sizeof(why)))
		fail(w, "unmounting: %s", why);
	w->root[MNT] = w->cfg->src;
	w->offline = true;
	sabotage_unmounted(w);
}

void step_remount(struct world *w)
{
	uint32_t edits = rng_one_in(&w->rng, 2) ? rng_below(&w->rng, OFFLINE_STEPS) + 1 : 0;

	begin_step(w, "remount");
	go_offline(w);
	clock_gettime(CLOCK_REALTIME, &w->op_end);
	compare_all(w);
	w->remounts++;
	while (edits--)
		run_step(w);
	go_online(w);
	begin_step(w, "mounted again");
	compare_all(w);
}

void steps_begin(struct world *w)
{
	w->offline = true;
	for (int i = 0; i < EXISTING_STEPS; i++)
		run_step(w);
	go_online(w);
	begin_step(w, "mounted");
	compare_all(w);
}

void steps_end(struct world *w)
{
	begin_step(w, "last unmount");
	go_offline(w);
	clock_gettime(CLOCK_REALTIME, &w->op_end);
	compare_all(w);
}

/* ---- kill -9 ------------------------------------------------------------------------------- */

static void sync_some(struct world *w, struct node *n)
{
	if (!rng_one_in(&w->rng, 3))
		return;
	say(" fsync #%u", n->id);
	sync_node(w, n);
}

static void recover(struct world *w, struct node *n)
{
	struct timespec known = n->mtime[MNT];
	bool keep = n->mtime_durable && !n->lazy_mtime;

	durable_verify(w, n);
	record_mtimes(w, n);
	if (keep) /* compare_all() then demands that it did not move */
		n->mtime[MNT] = known;
	n->mtime_durable = keep;
	n->lazy_mtime = false;
}

void step_kill(struct world *w)
{
	begin_step(w, "kill -9");
	for_files(w, sync_some);
	mount_kill();
	w->offline = true;
	handles_close_all(w);
	tier_wait(w);
	mount_detach(w->cfg);
	sabotage_killed(w);
	mount_and_pin(w);
	w->offline = false;
	clock_gettime(CLOCK_REALTIME, &w->op_end);
	w->kills++;
	for_files(w, recover);
	compare_all(w);
}
