// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * unit.h - a test program of a few macros. Tests are static functions in a table:
 *
 *	static void adds(void)
 *	{
 *		CHECK_EQ(1 + 1, 2);
 *	}
 *	UNIT_MAIN({ "adds", adds })
 *
 * Prints "ok N - name" or "not ok N - name" per test and "N passed, N failed, N skipped" at the
 * end; exit status 1 when one failed. Arguments choose the tests whose names contain one of them.
 * CHECK may be used from any thread. It returns whether it held, and the test goes on either way:
 * `if (!CHECK(p)) return;` where it can not.
 */
#ifndef HYBRIDFS_TESTS_UNIT_H
#define HYBRIDFS_TESTS_UNIT_H

#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct unit_test {
	const char *name;
	void (*fn)(void);
};

static int unit_failures;	     /* CHECKs of this test that did not hold; atomic */
static const char *unit_skip_reason; /* of this test */

static inline bool unit_check(bool held, const char *file, int line, const char *text)
{
	if (!held) {
		__atomic_add_fetch(&unit_failures, 1, __ATOMIC_RELAXED);
		printf("# %s:%d: %s\n", file, line, text);
		fflush(stdout);
	}
	return held;
}

static inline bool unit_check_eq(intmax_t a, intmax_t b, const char *file, int line,
				 const char *text)
{
	char buf[512];

	snprintf(buf, sizeof(buf), "%s: %jd, %jd", text, a, b);
	return unit_check(a == b, file, line, buf);
}

#define CHECK(cond)	unit_check(cond, __FILE__, __LINE__, #cond)
#define CHECK_EQ(a, b)	unit_check_eq((intmax_t)(a), (intmax_t)(b), __FILE__, __LINE__, #a ", " #b)
#define CHECK_STR(a, b) CHECK(strcmp(a, b) == 0)
#define SKIP(reason)                       \
	do {                               \
		unit_skip_reason = reason; \
		return;                    \
	} while (0)

/* Runs fn in a child, which ends with _exit(). Its exit status (0: no CHECK failed), or -signal. */
static inline int unit_child(void (*fn)(void *), void *arg)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		unit_failures = 0;
		fn(arg);
		fflush(stdout);
		_exit(unit_failures ? 1 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1000;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline int unit_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void unit_remove_tree(const char *path)
{
	nftw(path, unit_remove, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A new empty directory below base (NULL: TMPDIR or /tmp), malloc'ed. The caller removes it with
 * unit_remove_tree(). */
static inline char *unit_tmpdir(const char *base)
{
	char *path = NULL;

	base = base ?: getenv("TMPDIR");
	if (asprintf(&path, "%s/hfs-unit.XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path))
		abort();
	return path;
}

/* For the figures a test prints; never for what it checks. */
static inline double unit_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline bool unit_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

static inline int unit_run(const struct unit_test *tests, size_t n, int argc, char **argv)
{
	int passed = 0, failed = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++) {
		if (!unit_wanted(tests[i].name, argc, argv))
			continue;
		unit_failures = 0;
		unit_skip_reason = NULL;
		tests[i].fn();
		passed += unit_failures == 0 && !unit_skip_reason;
		failed += unit_failures != 0;
		skipped += unit_failures == 0 && unit_skip_reason;
		printf("%s %zu - %s%s%s\n", unit_failures ? "not ok" : "ok", i + 1, tests[i].name,
		       unit_skip_reason ? " # SKIP " : "", unit_skip_reason ?: "");
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed != 0;
}

#define UNIT_MAIN(...)                                                                \
	int main(int argc, char **argv)                                               \
	{                                                                             \
		static const struct unit_test tests[] = { __VA_ARGS__ };              \
                                                                                      \
		return unit_run(tests, sizeof(tests) / sizeof(tests[0]), argc, argv); \
	}

#endif
