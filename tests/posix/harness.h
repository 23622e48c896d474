// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * harness.h - how a check is written, counted, reported and recorded
 *
 * Every .c file of an area ends with a table of its tests; main.c runs each test in a
 * child process of its own, in an empty directory that is the current directory. A test consists
 * of checks. A check evaluates one expression, compares what came out with what Linux does on a
 * local filesystem (ext4 and xfs agree on all of them), and prints one line if it differs.
 *
 *	EXPECT(want, call)	call returns -1 and errno, or anything else for success;
 *				want is an errno, 0 for success. Yields what call returned.
 *	EXPECT2(w1, w2, call)	the same where local filesystems differ: either errno is right.
 *	EXPECT_AS(a, want, call) the same, with the credentials of actor a during the call.
 *	EXPECT_EQ(want, value)	integers
 *	EXPECT_OCT(want, value)	integers printed in octal, for modes
 *	EXPECT_SAME(want, value) identities such as inode numbers; recorded as same or different
 *	EXPECT_STR(want, value)	strings
 *	EXPECT_TRUE(condition)
 *	RECORD(call), RECORD_EQ(value), RECORD_OCT(value), RECORD_STR(value)
 *				no expectation: what comes out depends on the filesystem. It only
 *				shows with --record, where it can be compared between two runs.
 *	MUST(call), MUST_PTR(p)	set-up, not a check: failure is reported and ends the test.
 *
 * All of them may be used in children forked by a test, too (see spawn() in proc.h). They are for
 * one thread at a time.
 */
#ifndef POSIXTEST_HARNESS_H
#define POSIXTEST_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ADDRESS_SANITIZER 1
#endif
#endif

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* What a test cannot do without; main.c skips it, and says so, where this is missing. */
#define NEED_ROOT  (1u << 0)
#define NEED_XATTR (1u << 1)
#define NEED_ACL   (1u << 2)

struct test {
	const char *name;
	void (*run)(void);
	unsigned int need; /* NEED_* */
};

struct area {
	const char *name;
	const struct test *tests;
	size_t count;
};

/* AREA(chmod); defines area_chmod, which areas.h declares, of the table tests[] before it. */
#define AREA(id) const struct area area_##id = { #id, tests, ARRAY_SIZE(tests) }

/* Where a check stands and what it says. */
struct site {
	const char *file;
	int line;
	const char *what;
};

/* How a process ends whose set-up failed; that has been reported then. */
#define EXIT_SETUP_FAILED 120

/* The counters; in memory shared with all children. */
struct tally {
	unsigned int passed;
	unsigned int failed;
	unsigned int skipped;
	unsigned int recorded;
	unsigned int seq; /* number of the last check within its test */
};

#define SITE(text) (&(const struct site){ __FILE__, __LINE__, text })

#define EXPECT(want, call)	 check_errno((want), 0, (errno = 0, (long)(call)), SITE(#call))
#define EXPECT2(w1, w2, call)	 check_errno((w1), (w2), (errno = 0, (long)(call)), SITE(#call))
#define EXPECT_EQ(want, value)	 check_int((long long)(want), (long long)(value), SITE(#value))
#define EXPECT_OCT(want, value)	 check_oct((long long)(want), (long long)(value), SITE(#value))
#define EXPECT_SAME(want, value) check_same((long long)(want), (long long)(value), SITE(#value))
#define EXPECT_STR(want, value)	 check_str((want), (value), SITE(#value))
#define EXPECT_TRUE(condition)	 check_true((condition), SITE(#condition))
#define RECORD(call)		 record_errno((errno = 0, (long)(call)), SITE(#call))
#define RECORD_EQ(value)	 record_int((long long)(value), SITE(#value))
#define RECORD_OCT(value)	 record_oct((long long)(value), SITE(#value))
#define RECORD_STR(value)	 record_str((value), SITE(#value))
#define MUST(call)		 must((errno = 0, (long)(call)), SITE(#call))
#define MUST_PTR(p)		 ((errno = 0), must_ptr((p), SITE(#p)))

/* Called once, before anything else; record chooses the output of --record. */
void harness_init(bool verbose, bool record);
const struct tally *harness_tally(void);

/* Names the test whose checks follow, and restarts their numbering. */
void harness_begin(const char *area, const char *name);

/* One more word on where we are, shown with every failure until the next ctx(). */
void ctx(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Reports that the running test died or hung; called by main.c. */
void harness_broken(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Counts and prints one skip. */
void skip_part(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Counts and prints one skip and ends the running test. */
_Noreturn void skip_test(const char *reason);

/* Behind the macros above. The first two return ret. */
long check_errno(int want, int or_want, long ret, const struct site *site);
long must(long ret, const struct site *site);
void *must_ptr(void *p, const struct site *site);
void check_int(long long want, long long got, const struct site *site);
void check_oct(long long want, long long got, const struct site *site);
void check_same(long long want, long long got, const struct site *site);
void check_str(const char *want, const char *got, const struct site *site);
void check_true(bool ok, const struct site *site);
long record_errno(long ret, const struct site *site);
void record_int(long long got, const struct site *site);
void record_oct(long long got, const struct site *site);
void record_str(const char *got, const struct site *site);

#endif
