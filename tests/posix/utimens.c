// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * utimens.c - utimensat and futimens: precision, UTIME_NOW and UTIME_OMIT, range, permission
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#define OMIT                  \
	{                     \
		0, UTIME_OMIT \
	}
#define NOW                  \
	{                    \
		0, UTIME_NOW \
	}

static void expect_time(long long sec, long nsec, const struct timespec *got)
{
	EXPECT_EQ(sec, got->tv_sec);
	EXPECT_EQ(nsec, got->tv_nsec);
}

/* To the nanosecond, both stamps on their own, for every type. */
static void test_exact(void)
{
	static const struct timespec times[][2] = {
		{ { 0, 0 }, { 0, 1 } },
		{ { 1, 999999999 }, { 2, 123456789 } },
		{ { 1000000000, 1 }, { 999999999, 999999999 } },
		{ { 1700000000, 500000000 }, { 1600000000, 1000 } },
		{ { 0x7fffffff, 7 }, { 0x7ffffffe, 8 } },
		{ { 0x80000000, 9 }, { 0x80000001, 10 } },
		{ { 0xffffffff, 11 }, { 0x100000000, 12 } },
		{ { 10000000000, 13 }, { 9999999999, 14 } },
		{ { -1, 15 }, { -1000000000, 16 } },
	};

	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0644);
		for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
			struct stamps s;

			ctx("%s, pair %zu", path, i);
			EXPECT(0, utimensat(AT_FDCWD, path, times[i], AT_SYMLINK_NOFOLLOW));
			s = stamps_now(path);
			expect_time(times[i][0].tv_sec, times[i][0].tv_nsec, &s.a);
			expect_time(times[i][1].tv_sec, times[i][1].tv_nsec, &s.m);
		}
	}
}

/* What is out of a filesystem's range is its own affair. */
static void test_range(void)
{
	static const long long secs[] = { -2147483648, -2147483649, -5000000000, 15032385535,
					  15032385536, 16299260425, 16299260426, 100000000000 };

	make_file("f", 0644);
	for (size_t i = 0; i < ARRAY_SIZE(secs); i++) {
		struct timespec times[2] = { { secs[i], 1 }, { secs[i], 1 } };

		ctx("%lld", secs[i]);
		RECORD(utimensat(AT_FDCWD, "f", times, 0));
		RECORD_EQ(stamps_now("f").m.tv_sec);
	}
}

static bool is_recent(const struct timespec *t)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return t->tv_sec <= now.tv_sec + 1 && t->tv_sec >= now.tv_sec - 60;
}

/* UTIME_NOW and UTIME_OMIT in every combination, and NULL. */
static void test_special(void)
{
	static const struct {
		struct timespec times[2];
		const char *changed;
	} cases[] = {
		{ { OMIT, OMIT }, "---" },
		{ { OMIT, NOW }, "-mc" },
		{ { NOW, OMIT }, "a-c" },
		{ { NOW, NOW }, "amc" },
		{ { { 5, 6 }, OMIT }, "a-c" },
		{ { OMIT, { 5, 6 } }, "-mc" },
		{ { NOW, { 5, 6 } }, "amc" },
		{ { { 5, 6 }, NOW }, "amc" },
		{ { { STAMP_OLD_ATIME, 0 }, { STAMP_OLD_MTIME, 0 } }, "--c" },
		{ { { 99, UTIME_OMIT }, { -99, UTIME_OMIT } }, "---" },
	};

	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0644);
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			const struct timespec *ts = cases[i].times;
			struct stamps s = stamps_age(path), now;

			ctx("%s, case %zu", path, i);
			EXPECT(0, utimensat(AT_FDCWD, path, ts, AT_SYMLINK_NOFOLLOW));
			EXPECT_STAMPS(cases[i].changed, &s, path);
			now = stamps_now(path);
			EXPECT_TRUE(ts[0].tv_nsec != UTIME_NOW || is_recent(&now.a));
			EXPECT_TRUE(ts[1].tv_nsec != UTIME_NOW || is_recent(&now.m));
		}
	}
}

static void test_null(void)
{
	struct stamps s, now;
	int fd;

	make_file("f", 0644);
	s = stamps_age("f");
	EXPECT(0, utimensat(AT_FDCWD, "f", NULL, 0));
	EXPECT_STAMPS("amc", &s, "f");
	now = stamps_now("f");
	EXPECT_TRUE(is_recent(&now.a) && is_recent(&now.m) && is_recent(&now.c));
	EXPECT_EQ(0, stamp_cmp(&now.a, &now.m));
	s = stamps_age("f");
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, futimens(fd, NULL));
	EXPECT_STAMPS("amc", &s, "f");
	s = stamps_age("f");
	EXPECT(0, utime("f", NULL));
	EXPECT_STAMPS("amc", &s, "f");
	s = stamps_age("f");
	EXPECT(0, utimes("f", NULL));
	EXPECT_STAMPS("amc", &s, "f");
}

/* The older calls have coarser units. */
static void test_old_calls(void)
{
	const struct utimbuf ut = { .actime = 1234, .modtime = 5678 };
	const struct timeval tv[2] = { { 1, 999999 }, { 2, 1 } };
	struct stamps s;

	make_file("f", 0644);
	MUST(symlink("f", "l"));
	EXPECT(0, utime("f", &ut));
	s = stamps_now("f");
	expect_time(1234, 0, &s.a);
	expect_time(5678, 0, &s.m);
	EXPECT(0, utimes("l", tv));
	s = stamps_now("f");
	expect_time(1, 999999000, &s.a);
	expect_time(2, 1000, &s.m);
	EXPECT(0, lutimes("l", tv));
	s = stamps_now("l");
	expect_time(1, 999999000, &s.a);
	expect_time(2, 1000, &s.m);
}

static void test_symlink(void)
{
	const struct timespec times[2] = { { 11, 12 }, { 13, 14 } };
	struct stamps f, l;

	make_file("f", 0644);
	MUST(symlink("f", "l"));
	f = stamps_age("f");
	l = stamps_age("l");
	EXPECT(0, utimensat(AT_FDCWD, "l", times, AT_SYMLINK_NOFOLLOW));
	EXPECT_STAMPS("---", &f, "f");
	EXPECT_STAMPS("amc", &l, "l");
	EXPECT(0, utimensat(AT_FDCWD, "l", times, 0));
	EXPECT_STAMPS("amc", &f, "f");
}

static void test_fd(void)
{
	const struct timespec times[2] = { { 11, 12 }, { 13, 14 } };
	struct stamps s;
	int fd;

	make_file("f", 0644);
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, futimens(fd, times));
	s = stamps_now("f");
	expect_time(11, 12, &s.a);
	expect_time(13, 14, &s.m);
	MUST(unlink("f"));
	EXPECT(0, futimens(fd, NULL));
	s = stamps_of_fd(fd);
	EXPECT_TRUE(is_recent(&s.m));
	EXPECT(EBADF, futimens(1000, times));
	make_file("g", 0644);
	EXPECT(EBADF, futimens((int)MUST(open("g", O_PATH)), times));
}

static void test_errors(void)
{
	static const long bad_nsec[] = { -1, 1000000000, 0x3ffffffd };
	struct stamps s;

	make_file("f", 0644);
	s = stamps_age("f");
	for (size_t i = 0; i < ARRAY_SIZE(bad_nsec); i++) {
		const struct timespec first[2] = { { 1, bad_nsec[i] }, { 2, 0 } };
		const struct timespec second[2] = { { 1, 0 }, { 2, bad_nsec[i] } };

		ctx("%ld ns", bad_nsec[i]);
		EXPECT(EINVAL, utimensat(AT_FDCWD, "f", first, 0));
		EXPECT(EINVAL, utimensat(AT_FDCWD, "f", second, 0));
	}
	EXPECT(EINVAL, utimensat(AT_FDCWD, "f", NULL, 0x40000000));
	EXPECT(EFAULT, utimensat(AT_FDCWD, "f", bad_address(), 0));
	EXPECT_STAMPS("---", &s, "f");
}

/* Explicit times are for the owner; "now" is also for those who may write. */
static void permission_case(const struct actor *a, bool may_write)
{
	static const struct {
		struct timespec times[2];
		bool owner_only;
	} cases[] = {
		{ { { 1, 2 }, { 3, 4 } }, true }, { { { 1, 2 }, NOW }, true },
		{ { NOW, { 3, 4 } }, true },	  { { { 1, 2 }, OMIT }, true },
		{ { OMIT, { 3, 4 } }, true },	  { { NOW, OMIT }, true },
		{ { OMIT, NOW }, true },	  { { NOW, NOW }, false },
	};
	bool owner = a == &actor_owner || a == &actor_root;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct stamps s = stamps_age("n");
		int want = owner ? 0 : cases[i].owner_only ? EPERM : may_write ? 0 : EACCES;

		ctx("case %zu as %s, %s", i, a->name, may_write ? "writable" : "read-only");
		EXPECT_AS(a, want, utimensat(AT_FDCWD, "n", cases[i].times, 0));
		if (want)
			EXPECT_STAMPS("---", &s, "n");
	}
	EXPECT_AS(a, owner || may_write ? 0 : EACCES, utimensat(AT_FDCWD, "n", NULL, 0));
	EXPECT_AS(a, owner || may_write ? 0 : EACCES, utime("n", NULL));
	EXPECT_AS(a, 0, utimensat(AT_FDCWD, "n", (struct timespec[2]){ OMIT, OMIT }, 0));
}

static void test_permission(void)
{
	for_each_type(t) {
		if (t == NODE_LNK)
			continue;
		fresh();
		node_make(t, "n", 0);
		give("n");
		for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
			if (!can_be(everybody[i]))
				continue;
			MUST(chmod("n", 0555));
			permission_case(everybody[i], false);
			MUST(chmod("n", 0777));
			permission_case(everybody[i], true);
		}
	}
}

static const struct test tests[] = {
	{ "exact", test_exact, 0 },
	{ "range", test_range, 0 },
	{ "special", test_special, 0 },
	{ "null", test_null, 0 },
	{ "old_calls", test_old_calls, 0 },
	{ "symlink", test_symlink, 0 },
	{ "fd", test_fd, 0 },
	{ "errors", test_errors, 0 },
	{ "permission", test_permission, 0 },
};

AREA(utimens);
