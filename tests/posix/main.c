// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * posixtest - checks that a directory behaves as one on a local Linux filesystem does
 *
 * The main process stays what it was started as; it makes the scratch directory, runs one test
 * after the other, each in a child process inside a fresh directory, and removes everything. So a
 * test that crashes, hangs, or leaves odd things behind spoils neither the next one nor DIR.
 */
#include "harness.h"
#include "areas.h"
#include "exec.h"
#include "proc.h"
#include "stamp.h"
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TEST_TIMEOUT_MS (300 * 1000)
#define KILL_TIMEOUT_MS (10 * 1000)

struct options {
	const char *dir;
	const char *pattern;
	bool verbose;
	bool list;
	bool record;
	bool drop; /* run the tests as uid:gid */
	uid_t uid;
	gid_t gid;
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "posixtest: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void usage(FILE *out)
{
	fputs("Usage: posixtest [-u UID:GID] [-v] [-l] [-t PATTERN] [--record] DIR\n"
	      "Checks the filesystem that DIR is on, in a scratch directory that it removes.\n\n"
	      "  -u UID:GID   as root: run all tests as this user\n"
	      "  -v           print passed checks, too\n"
	      "  -l           list the tests\n"
	      "  -t PATTERN   only tests whose area/test matches this shell pattern\n"
	      "  --record     print the result of every check, to be compared with another run's\n",
	      out);
}

static bool parse_user(const char *arg, struct options *o)
{
	char *end;

	o->uid = (uid_t)strtoul(arg, &end, 10);
	if (end == arg || *end != ':')
		return false;
	arg = end + 1;
	o->gid = (gid_t)strtoul(arg, &end, 10);
	o->drop = true;
	return end != arg && *end == '\0';
}

static void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longopts[] = {
		{ "record", no_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "u:vlt:h", longopts, NULL)) != -1) {
		if (c == 'h') {
			usage(stdout);
			exit(0);
		}
		o->verbose |= c == 'v';
		o->list |= c == 'l';
		o->record |= c == 'r';
		if (c == 't')
			o->pattern = optarg;
		if (c == '?' || (c == 'u' && !parse_user(optarg, o))) {
			usage(stderr);
			exit(1);
		}
	}
	o->dir = argv[optind];
	if (!o->list && (!o->dir || argv[optind + 1])) {
		usage(stderr);
		exit(1);
	}
}

static bool selected(const struct options *o, const struct area *area, const struct test *test)
{
	char id[128];

	snprintf(id, sizeof(id), "%s/%s", area->name, test->name);
	return !o->pattern || fnmatch(o->pattern, id, 0) == 0;
}

static int list_tests(const struct options *o)
{
	for (size_t i = 0; i < area_count; i++)
		for (size_t j = 0; j < areas[i]->count; j++)
			if (selected(o, areas[i], &areas[i]->tests[j]))
				printf("%s/%s\n", areas[i]->name, areas[i]->tests[j].name);
	return 0;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void drop_to(const struct options *o)
{
	if (setgroups(0, NULL) != 0 || setresgid(o->gid, o->gid, o->gid) != 0 ||
	    setresuid(o->uid, o->uid, o->uid) != 0)
		die("cannot become the user of -u");
}

/* Opens and enters a new DIR/posixtest.PID, and starts the clock probe in it. */
static int make_scratch(const struct options *o, char *name, size_t size)
{
	int dirfd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd < 0)
		die(o->dir);
	snprintf(name, size, "posixtest.%d", (int)getpid());
	if (mkdirat(dirfd, name, 0755) != 0 || fchdir(dirfd) != 0 || chdir(name) != 0)
		die("cannot make the scratch directory");
	if (stamp_open_probe("clock") != 0)
		die("cannot make the clock probe");
	return dirfd;
}

/* What this filesystem lacks, as NEED_* bits. */
static unsigned int find_missing(const struct options *o)
{
	unsigned int missing = 0;

	if (geteuid() != 0 || o->drop)
		missing |= NEED_ROOT;
	if (setxattr("clock", "user.posixtest", "x", 1, 0) != 0 && errno == EOPNOTSUPP)
		missing |= NEED_XATTR;
	if (getxattr("clock", "system.posix_acl_access", NULL, 0) < 0 && errno == EOPNOTSUPP)
		missing |= NEED_ACL;
	return missing;
}

static const char *why_not(unsigned int lacking)
{
	if (lacking & NEED_ROOT)
		return "needs root";
	if (lacking & NEED_XATTR)
		return "no user extended attributes here";
	return "no POSIX ACLs here";
}

static _Noreturn void run_in_child(const struct options *o, const struct test *test)
{
	setpgid(0, 0);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	umask(022);
	if (chdir("t") != 0)
		die("cannot enter the test's directory");
	if (o->drop)
		drop_to(o);
	proc_init();
	test->run();
	fflush(stdout);
	_exit(0);
}

/* Waits for pid; false when it does not end in time. */
static bool await(pid_t pid, int timeout_ms, int *ret_status)
{
	struct pollfd pfd = { .fd = pidfd_open(pid, 0), .events = POLLIN };
	sig_atomic_t was_stopped = stopped;
	int ready;

	do
		ready = poll(&pfd, 1, timeout_ms);
	while (ready < 0 && errno == EINTR && stopped == was_stopped);
	close(pfd.fd);
	if (ready != 1)
		return false;
	return waitpid(pid, ret_status, 0) == pid;
}

/* tree_remove(), given up when the filesystem hangs. */
static int remove_in_time(int dirfd, const char *name)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(tree_remove(dirfd, name) == 0 ? 0 : 1);
	if (pid < 0 || !await(pid, TEST_TIMEOUT_MS, &status))
		return -1;
	return status == 0 ? 0 : -1;
}

/* Judges how the test's process ended; false when it could not even be killed. */
static bool conclude_child(pid_t pid)
{
	int status = 0;
	bool ended = await(pid, TEST_TIMEOUT_MS, &status);

	kill(-pid, SIGKILL); /* the test, and what it forked */
	if (ended && WIFSIGNALED(status))
		harness_broken("signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (ended && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != EXIT_SETUP_FAILED)
		harness_broken("exit code %d", WEXITSTATUS(status));
	if (ended)
		return true;
	if (!stopped)
		harness_broken("no end in %d s", TEST_TIMEOUT_MS / 1000);
	return await(pid, KILL_TIMEOUT_MS, &status);
}

static bool run_test(const struct options *o, const struct area *area, const struct test *test,
		     unsigned int missing)
{
	pid_t pid;
	bool ended;

	harness_begin(area->name, test->name);
	if (mkdir("t", 0755) != 0 || (o->drop && chown("t", o->uid, o->gid) != 0)) {
		harness_broken("%s for its directory", strerror(errno));
		return false;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (test->need & missing)
			skip_test(why_not(test->need & missing));
		run_in_child(o, test);
	}
	setpgid(pid, pid);
	ended = pid > 0 && conclude_child(pid);
	if (!ended || remove_in_time(AT_FDCWD, "t") != 0) {
		harness_broken(ended ? "left-overs that cannot be removed" : "stuck");
		return false;
	}
	return true;
}

/* false when no test was selected. */
static bool run_all(const struct options *o)
{
	unsigned int missing = find_missing(o);

	bool any = false;

	for (size_t i = 0; i < area_count; i++) {
		const struct area *area = areas[i];

		for (size_t j = 0; j < area->count && !stopped; j++) {
			if (!selected(o, area, &area->tests[j]))
				continue;
			any = true;
			if (!run_test(o, area, &area->tests[j], missing))
				return true;
		}
	}
	return any;
}

static int summarize(const struct options *o)
{
	const struct tally *t = harness_tally();

	fprintf(o->record ? stderr : stdout, "%u passed, %u failed, %u skipped\n", t->passed,
		t->failed, t->skipped);
	if (o->record)
		return 0;
	return t->failed > 0 || stopped ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options o = { .dir = NULL };
	char scratch[32];
	int dirfd, code;
	bool any;

	if (argc == 1 && exec_role(argv[0], &code))
		return code;
	parse_options(argc, argv, &o);
	if (o.list)
		return list_tests(&o);
	harness_init(o.verbose, o.record);
	catch_signals();
	dirfd = make_scratch(&o, scratch, sizeof(scratch));
	any = run_all(&o);
	stamp_close_probe();
	if (remove_in_time(dirfd, scratch) != 0)
		fprintf(stderr, "posixtest: %s/%s could not be removed\n", o.dir, scratch);
	if (!any) {
		fprintf(stderr, "posixtest: no test matches %s\n", o.pattern);
		return 1;
	}
	return summarize(&o);
}
