// SPDX-License-Identifier: GPL-2.0-or-later
/* Options, set-up and the loop of the model test. README.md says what it checks. */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FULL_EVERY    500
#define ATTRS_EVERY   16
#define TIER_EVERY    150
#define REMOUNT_EVERY 4000
#define KILL_EVERY    4000
#define HANG_S	      180
#define STRESS_S      30
#define PIECE	      65536

static volatile sig_atomic_t interrupted;
static struct world the_world;

static const char usage_text[] =
	"Usage: modeltest --mnt MNT --ref REF [--steps N] [--seed S] [option...]\n"
	"       modeltest --stress N_PROCS --seconds T --mnt MNT [option...]\n"
	"\n"
	"Runs random operations on MNT and on the plain directory REF (both empty), and compares.\n"
	"\n"
	"  --steps N           operations [20000]      --seed S         random seed [1]\n"
	"  --tool PROGRAM      the hybridfs program: mount SRC and SSD on MNT with it\n"
	"  --src SRC --ssd SSD --mount-opts STR        what to mount, with which -o\n"
	"  --tier-ops          promote, demote, flush, pin, unpin (one in --tier-every [150])\n"
	"  --pinned            pin all of MNT at each mount\n"
	"  --remounts          unmount, compare SRC, mount (one in --remount-every [4000])\n"
	"  --kills             kill -9 and recover (one in --kill-every [4000])\n"
	"  --no-mount-ops      MNT is any directory, whatever the options above say\n"
	"  --full-every N      compare everything each N steps [500]\n"
	"  --hang-after S      seconds until a step counts as a hang [180]\n"
	"  --tier-strict       every tier command must succeed\n"
	"  --lax-kill          after kill -9, zeros beyond the durable size, and bytes past the\n"
	"                      end of the file in its last mapped page, are no error\n"
	"  --strict-times      after kill -9, a utimens without fsync must be there too\n"
	"  --piece BYTES       after kill -9 a long write may have ended at a multiple [65536]\n"
	"  --daemon-log FILE   where the daemon's output goes\n"
	"  --on-fail COMMAND   run after a report, before unmounting; $DAEMON_PID is set\n"
	"  --sabotage KIND     damage the mount, to see the test fail:\n";

static const char usage_end[] =
	"  --verbose           print each operation\n"
	"  --stress N          N processes with checksummed records instead of the model\n"
	"  --seconds T         how long [30]\n"
	"\n"
	"Exit code: 0 no difference, 1 difference, 2 usage or environment, 3 sabotage missed.\n";

enum {
	O_MNT = 256,
	O_REFERENCE,
	O_STEPS,
	O_SEED,
	O_TOOL,
	O_SRC,
	O_SSD,
	O_OPTS,
	O_TIER,
	O_PINNED,
	O_REMOUNTS,
	O_KILLS,
	O_PLAIN,
	O_FULL,
	O_TIER_EVERY,
	O_REMOUNT_EVERY,
	O_KILL_EVERY,
	O_HANG,
	O_PIECE,
	O_STRICT,
	O_ZEROS,
	O_LOG,
	O_ON_FAIL,
	O_TIMES,
	O_SABOTAGE,
	O_STRESS,
	O_SECONDS,
};

static const struct option options[] = {
	{ "mnt", 1, NULL, O_MNT },
	{ "ref", 1, NULL, O_REFERENCE },
	{ "steps", 1, NULL, O_STEPS },
	{ "seed", 1, NULL, O_SEED },
	{ "tool", 1, NULL, O_TOOL },
	{ "src", 1, NULL, O_SRC },
	{ "ssd", 1, NULL, O_SSD },
	{ "mount-opts", 1, NULL, O_OPTS },
	{ "tier-ops", 0, NULL, O_TIER },
	{ "pinned", 0, NULL, O_PINNED },
	{ "remounts", 0, NULL, O_REMOUNTS },
	{ "kills", 0, NULL, O_KILLS },
	{ "no-mount-ops", 0, NULL, O_PLAIN },
	{ "full-every", 1, NULL, O_FULL },
	{ "tier-every", 1, NULL, O_TIER_EVERY },
	{ "remount-every", 1, NULL, O_REMOUNT_EVERY },
	{ "kill-every", 1, NULL, O_KILL_EVERY },
	{ "hang-after", 1, NULL, O_HANG },
	{ "piece", 1, NULL, O_PIECE },
	{ "tier-strict", 0, NULL, O_STRICT },
	{ "lax-kill", 0, NULL, O_ZEROS },
	{ "strict-times", 0, NULL, O_TIMES },
	{ "daemon-log", 1, NULL, O_LOG },
	{ "on-fail", 1, NULL, O_ON_FAIL },
	{ "sabotage", 1, NULL, O_SABOTAGE },
	{ "stress", 1, NULL, O_STRESS },
	{ "seconds", 1, NULL, O_SECONDS },
	{ "verbose", 0, NULL, 'v' },
	{ "help", 0, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static _Noreturn void usage(int code)
{
	FILE *f = code ? stderr : stdout;

	fputs(usage_text, f);
	sabotage_list(f);
	fputs(usage_end, f);
	exit(code);
}

static uint64_t number(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end)
		die("'%s' is not a number", text);
	return n;
}

/* At least 1: it is a divisor. */
static unsigned int count(const char *text)
{
	uint64_t n = number(text);

	if (n == 0 || n > UINT32_MAX)
		die("'%s' is out of range", text);
	return (unsigned int)n;
}

static bool set_path(struct config *c, int opt, char *arg)
{
	switch (opt) {
	case O_MNT:
		c->mnt = arg;
		break;
	case O_REFERENCE:
		c->ref = arg;
		break;
	case O_TOOL:
		c->tool = arg;
		break;
	case O_SRC:
		c->src = arg;
		break;
	case O_SSD:
		c->ssd = arg;
		break;
	case O_OPTS:
		c->mount_opts = arg;
		break;
	case O_ON_FAIL:
		c->on_fail = arg;
		break;
	case O_LOG:
		c->daemon_log = arg;
		break;
	default:
		return false;
	}
	return true;
}

static bool set_flag(struct config *c, int opt)
{
	switch (opt) {
	case O_TIER:
		c->tier_ops = true;
		break;
	case O_PINNED:
		c->pinned = true;
		break;
	case O_REMOUNTS:
		c->remounts = true;
		break;
	case O_KILLS:
		c->kills = true;
		break;
	case O_PLAIN:
		c->no_mount_ops = true;
		break;
	case O_STRICT:
		c->tier_strict = true;
		break;
	case O_TIMES:
		c->strict_times = true;
		break;
	case O_ZEROS:
		c->lax_kill = true;
		break;
	case 'v':
		c->verbose = true;
		break;
	default:
		return false;
	}
	return true;
}

static bool set_number(struct config *c, int opt, const char *arg)
{
	switch (opt) {
	case O_STEPS:
		c->steps = number(arg);
		break;
	case O_SEED:
		c->seed = number(arg);
		break;
	case O_FULL:
		c->full_every = count(arg);
		break;
	case O_TIER_EVERY:
		c->tier_every = count(arg);
		break;
	case O_REMOUNT_EVERY:
		c->remount_every = count(arg);
		break;
	case O_KILL_EVERY:
		c->kill_every = count(arg);
		break;
	case O_HANG:
		c->hang_s = count(arg);
		break;
	case O_PIECE:
		c->piece = count(arg);
		break;
	case O_STRESS:
		c->stress_procs = count(arg);
		break;
	case O_SECONDS:
		c->stress_s = count(arg);
		break;
	default:
		return false;
	}
	return true;
}

static void check_config(struct config *c)
{
	if (!c->mnt || (!c->ref && !c->stress_procs))
		usage(2);
	if (c->no_mount_ops)
		c->tool = NULL;
	if (!c->tool)
		c->kills = c->remounts = c->tier_ops = false;
	if (c->tool && !c->stress_procs && (!c->src || !c->ssd))
		die("--tool needs --src and --ssd");
	if (!c->src != !c->ssd)
		die("--src and --ssd go together");
	if (strcmp(c->mnt, c->ref ? c->ref : "") == 0)
		die("--mnt and --ref must be two directories");
}

static void parse(struct config *c, int argc, char **argv)
{
	int opt;

	while ((opt = getopt_long(argc, argv, "vh", options, NULL)) != -1) {
		if (opt == 'h')
			usage(0);
		if (opt == O_SABOTAGE && (c->sabotage = sabotage_parse(optarg)) != 0)
			continue;
		if (!set_path(c, opt, optarg) && !set_flag(c, opt) && !set_number(c, opt, optarg))
			usage(2);
	}
	if (optind != argc)
		usage(2);
	check_config(c);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static void need_empty(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *de;

	if (!d)
		die("%s: %s", path, strerror(errno));
	while ((de = readdir(d)) != NULL)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		    strcmp(de->d_name, "lost+found") != 0)
			die("%s is not empty (%s)", path, de->d_name);
	closedir(d);
}

/* Whether O_DIRECT works there, with which alignment. */
static size_t probe_direct(const char *dir, bool *ret_ok)
{
	char path[PATH_BYTES];
	struct statx stx;
	int fd;

	snprintf(path, sizeof(path), "%s/probe", dir);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	*ret_ok = fd >= 0;
	if (fd >= 0)
		close(fd);
	if (statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &stx) < 0 ||
	    !(stx.stx_mask & STATX_DIOALIGN) || stx.stx_dio_offset_align < 512)
		stx.stx_dio_offset_align = 512;
	unlink(path);
	return stx.stx_dio_offset_align;
}

static nlink_t probe_nlink(const char *dir)
{
	char outer[PATH_BYTES], inner[PATH_BYTES + 2];
	struct stat st = { 0 };

	snprintf(outer, sizeof(outer), "%s/probe", dir);
	snprintf(inner, sizeof(inner), "%s/d", outer);
	if (mkdir(outer, 0700) < 0 || mkdir(inner, 0700) < 0 || stat(outer, &st) < 0)
		die("mkdir %s: %s", inner, strerror(errno));
	rmdir(inner);
	rmdir(outer);
	return st.st_nlink;
}

static void copy_root_attrs(const char *from, const char *to)
{
	struct stat st;

	if (stat(from, &st) < 0 || chown(to, st.st_uid, st.st_gid) < 0 ||
	    chmod(to, st.st_mode & 07777) < 0)
		die("cannot give %s the owner and mode of %s: %s", to, from, strerror(errno));
}

/* Both sides are directories here: MNT's is SRC when there is something to mount. */
static void prepare_sides(struct world *w)
{
	size_t align[NSIDES];

	for (int side = 0; side < NSIDES; side++) {
		need_empty(w->root[side]);
		align[side] = probe_direct(w->root[side], &w->direct_ok[side]);
	}
	w->direct_align = align[MNT] > align[REF] ? align[MNT] : align[REF];
	w->dir_nlink_equal = probe_nlink(w->root[MNT]) == probe_nlink(w->root[REF]);
	copy_root_attrs(w->root[MNT], w->root[REF]);
	record_mtimes(w, w->root_node);
	compare_all(w);
}

static void on_signal(int sig)
{
	if (sig == SIGBUS)
		fail(&the_world, "SIGBUS: a mapped page could not be read or written");
	interrupted = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
}

static void clean_up(void)
{
	handles_close_all(&the_world);
	mount_cleanup(the_world.cfg);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void one_step(struct world *w)
{
	const struct config *c = w->cfg;

	if (c->tier_ops && rng_one_in(&w->rng, c->tier_every))
		step_tier(w);
	else if (c->remounts && rng_one_in(&w->rng, c->remount_every))
		step_remount(w);
	else if (c->kills && rng_one_in(&w->rng, c->kill_every))
		step_kill(w);
	else
		run_step(w);
	sabotage_step(w);
}

static void run(struct world *w)
{
	const struct config *c = w->cfg;
	uint64_t next_full = c->full_every;

	if (c->tool)
		steps_begin(w);
	while (w->step < c->steps && !interrupted) {
		one_step(w);
		if (w->step % ATTRS_EVERY == 0)
			compare_all_attrs(w);
		if (w->step < next_full)
			continue;
		next_full = w->step + c->full_every;
		compare_all(w);
	}
	compare_all(w);
	if (c->tool)
		steps_end(w);
}

static void summary(const struct world *w, double seconds)
{
	printf("modeltest: seed %llu: %llu steps, %llu full compares, 0 differences, %.1f s\n",
	       (unsigned long long)w->cfg->seed, (unsigned long long)w->step,
	       (unsigned long long)w->full_compares, seconds);
	if (w->cfg->tool)
		printf("modeltest: %llu remounts, %llu kills, %llu tier commands (%llu refused), "
		       "%llu late mtimes\n",
		       (unsigned long long)w->remounts, (unsigned long long)w->kills,
		       (unsigned long long)w->tier_runs, (unsigned long long)w->tier_failures,
		       (unsigned long long)w->late_mtimes);
}

static int model_main(const struct config *c)
{
	struct world *w = &the_world;
	struct timespec a, b;

	world_init(w, c);
	report_init(w, clean_up);
	catch_signals();
	prepare_sides(w);
	w->sabotage = c->sabotage;
	w->sabotage_step = c->steps / 4 + rng_below(&w->check_rng, (uint32_t)(c->steps / 4 + 1));
	watch_start(c);
	clock_gettime(CLOCK_MONOTONIC, &a);
	run(w);
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (interrupted)
		die("interrupted at step %llu", (unsigned long long)w->step);
	if (c->sabotage && !w->sabotaged_at)
		die("there was no chance for the sabotage '%s'", sabotage_name(c->sabotage));
	summary(w, (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
	if (c->sabotage)
		fprintf(stderr, "modeltest: the sabotage was NOT noticed\n");
	mount_cleanup(c);
	world_release(w);
	return c->sabotage ? 3 : 0;
}

static const char *join(int argc, char **argv)
{
	static char text[2 * PATH_BYTES];
	size_t at = 0;

	for (int i = 0; i < argc && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s%s%s", i ? " " : "",
				       strchr(argv[i], ' ') ? "'" : "", argv[i],
				       strchr(argv[i], ' ') ? "'" : "");
	return text;
}

int main(int argc, char **argv)
{
	struct config c = { .steps = 20000,
			    .seed = 1,
			    .full_every = FULL_EVERY,
			    .tier_every = TIER_EVERY,
			    .remount_every = REMOUNT_EVERY,
			    .kill_every = KILL_EVERY,
			    .hang_s = HANG_S,
			    .piece = PIECE,
			    .stress_s = STRESS_S,
			    .command = join(argc, argv) };

	parse(&c, argc, argv);
	umask(022);
	return c.stress_procs ? stress_main(&c) : model_main(&c);
}
