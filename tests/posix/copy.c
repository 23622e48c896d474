// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copy.c - copy_file_range, sendfile and splice
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define SRC_SIZE 100000

static char data[SRC_SIZE];

static int open_source(void)
{
	fill_pattern(data, sizeof(data), 1);
	make_content("src", data, sizeof(data));
	return (int)MUST(open("src", O_RDWR));
}

static int open_target(void)
{
	return (int)MUST(open("dst", O_RDWR | O_CREAT | O_TRUNC, 0644));
}

/* Calls until everything is copied; the total, or -1. */
static ssize_t copy_all(int in, off_t from, int out, off_t to, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = copy_file_range(in, &from, out, &to, len - done, 0);

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static void test_ranges(void)
{
	static const struct {
		off_t from, to;
		size_t len, copied;
	} cases[] = {
		{ 0, 0, SRC_SIZE, SRC_SIZE },
		{ 0, 0, 1, 1 },
		{ 4096, 4096, 8192, 8192 },
		{ 1, 7, 5000, 5000 },
		{ SRC_SIZE - 10, 0, 100, 10 },
		{ SRC_SIZE, 0, 10, 0 },
		{ SRC_SIZE + 5, 0, 10, 0 },
		{ 0, 1000000, 100, 100 },
		{ 4095, 1, 2, 2 },
		{ 0, 0, 0, 0 },
	};
	int in = open_source();

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int out = open_target();
		size_t n = cases[i].copied;

		ctx("case %zu", i);
		EXPECT_EQ(n, copy_all(in, cases[i].from, out, cases[i].to, cases[i].len));
		EXPECT_EQ(n ? cases[i].to + (off_t)n : 0, size_of("dst"));
		EXPECT_TRUE(n == 0 || fd_content_is(out, cases[i].to, data + cases[i].from, n));
		EXPECT_TRUE(n == 0 || cases[i].to > SRC_SIZE ||
			    fd_is_zero(out, 0, (size_t)cases[i].to));
		MUST(close(out));
	}
	EXPECT_TRUE(content_is("src", data, SRC_SIZE));
}

/* With NULL the descriptors' own offsets are used and moved. */
static void test_offsets(void)
{
	int in = open_source(), out = open_target();
	off_t pos = 50;

	MUST(lseek(in, 10, SEEK_SET));
	EXPECT_EQ(100, copy_file_range(in, NULL, out, NULL, 100, 0));
	EXPECT_EQ(110, lseek(in, 0, SEEK_CUR));
	EXPECT_EQ(100, lseek(out, 0, SEEK_CUR));
	EXPECT_EQ(20, copy_file_range(in, &pos, out, NULL, 20, 0));
	EXPECT_EQ(70, pos);
	EXPECT_EQ(110, lseek(in, 0, SEEK_CUR));
	EXPECT_EQ(120, lseek(out, 0, SEEK_CUR));
	EXPECT_TRUE(fd_content_is(out, 0, data + 10, 100));
	EXPECT_TRUE(fd_content_is(out, 100, data + 50, 20));
}

/* Data not yet on disk is copied, and so are overwritten parts of the target. */
static void test_overwrite(void)
{
	int in = open_source(), out = open_target();

	MUST(pwrite(out, data + 1000, 50000, 0));
	MUST(pwrite(in, "fresh", 5, 20000));
	memcpy(data + 20000, "fresh", 5);
	EXPECT_EQ(30000, copy_all(in, 10000, out, 10000, 30000));
	EXPECT_TRUE(fd_content_is(out, 0, data + 1000, 10000));
	EXPECT_TRUE(fd_content_is(out, 10000, data + 10000, 30000));
	EXPECT_TRUE(fd_content_is(out, 40000, data + 41000, 10000));
	EXPECT_EQ(50000, size_of("dst"));
}

/* Within one file, as long as the ranges do not meet. */
static void test_same_file(void)
{
	off_t from = 0, to = 10;
	int fd = open_source();

	EXPECT(EINVAL, copy_file_range(fd, &from, fd, &to, 100, 0));
	from = 10;
	to = 0;
	EXPECT(EINVAL, copy_file_range(fd, &from, fd, &to, 100, 0));
	to = 10;
	EXPECT(EINVAL, copy_file_range(fd, &from, fd, &to, 100, 0));
	EXPECT_TRUE(content_is("src", data, SRC_SIZE));
	EXPECT_EQ(1000, copy_all(fd, 0, fd, 5000, 1000));
	memmove(data + 5000, data, 1000);
	EXPECT_TRUE(content_is("src", data, SRC_SIZE));
	EXPECT_EQ(SRC_SIZE, copy_all(fd, 0, fd, SRC_SIZE, SRC_SIZE));
	EXPECT_EQ(2 * SRC_SIZE, size_of("src"));
	EXPECT_TRUE(fd_content_is(fd, SRC_SIZE, data, SRC_SIZE));
}

static void test_errors(void)
{
	int in = open_source(), out = open_target(), dir, pipes[2];

	dir = (int)MUST(open(".", O_RDONLY));
	MUST(pipe(pipes));
	EXPECT(EINVAL, copy_file_range(in, NULL, out, NULL, 10, 1));
	EXPECT(EISDIR, copy_file_range(dir, NULL, out, NULL, 10, 0));
	EXPECT(EISDIR, copy_file_range(in, NULL, dir, NULL, 10, 0));
	EXPECT(EINVAL, copy_file_range(pipes[0], NULL, out, NULL, 10, 0));
	EXPECT(EINVAL, copy_file_range(in, NULL, pipes[1], NULL, 10, 0));
	EXPECT(EBADF, copy_file_range((int)MUST(open("src", O_WRONLY)), NULL, out, NULL, 1, 0));
	EXPECT(EBADF, copy_file_range(in, NULL, (int)MUST(open("dst", O_RDONLY)), NULL, 1, 0));
	EXPECT(EBADF,
	       copy_file_range(in, NULL, (int)MUST(open("dst", O_RDWR | O_APPEND)), NULL, 1, 0));
	EXPECT(EBADF, copy_file_range(1000, NULL, out, NULL, 10, 0));
	EXPECT(EBADF, copy_file_range(in, NULL, 1000, NULL, 10, 0));
	EXPECT(EFAULT, copy_file_range(in, bad_address(), out, NULL, 10, 0));
	EXPECT_EQ(0, size_of("dst"));
}

/* Holes in the source come out as zeros. */
static void test_sparse(void)
{
	int in = (int)MUST(open("src", O_RDWR | O_CREAT, 0644)), out = open_target();

	MUST(ftruncate(in, 1 << 20));
	MUST(pwrite(in, "island", 6, 500000));
	MUST(pwrite(out, "old old old", 11, 0));
	EXPECT_EQ(1 << 20, copy_all(in, 0, out, 0, 1 << 20));
	EXPECT_TRUE(fd_is_zero(out, 0, 500000));
	EXPECT_TRUE(fd_content_is(out, 500000, "island", 6));
	EXPECT_TRUE(fd_is_zero(out, 500006, (1 << 20) - 500006));
	EXPECT_EQ(1 << 20, size_of("dst"));
}

static void test_sendfile(void)
{
	int in = open_source(), out = open_target();
	off_t off = 1000;
	size_t done = 0;

	EXPECT_EQ(100, sendfile(out, in, &off, 100));
	EXPECT_EQ(1100, off);
	EXPECT_EQ(0, lseek(in, 0, SEEK_CUR));
	EXPECT_TRUE(fd_content_is(out, 0, data + 1000, 100));
	MUST(lseek(out, 0, SEEK_SET));
	while (done < SRC_SIZE) {
		ssize_t n = sendfile(out, in, NULL, SRC_SIZE - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	EXPECT_EQ(SRC_SIZE, done);
	EXPECT_TRUE(content_is("dst", data, SRC_SIZE));
	EXPECT_EQ(0, sendfile(out, in, NULL, 10));
}

/* From file to pipe to file; what was just written is what arrives. */
static void test_splice(void)
{
	int in = open_source(), out = open_target(), pipes[2];
	off_t from = 300, to = 70;

	MUST(pwrite(in, "just written", 12, 400));
	memcpy(data + 400, "just written", 12);
	MUST(pipe(pipes));
	EXPECT_EQ(4000, splice(in, &from, pipes[1], NULL, 4000, 0));
	EXPECT_EQ(4300, from);
	for (ssize_t done = 0; done < 4000;) {
		ssize_t n = splice(pipes[0], NULL, out, &to, (size_t)(4000 - done), 0);

		if (n <= 0)
			break;
		done += n;
	}
	EXPECT_EQ(4070, to);
	EXPECT_EQ(4070, size_of("dst"));
	EXPECT_TRUE(fd_content_is(out, 70, data + 300, 4000));
	from = SRC_SIZE;
	EXPECT_EQ(0, splice(in, &from, pipes[1], NULL, 10, 0));
}

static const struct test tests[] = {
	{ "ranges", test_ranges, 0 },	    { "offsets", test_offsets, 0 },
	{ "overwrite", test_overwrite, 0 }, { "same_file", test_same_file, 0 },
	{ "errors", test_errors, 0 },	    { "sparse", test_sparse, 0 },
	{ "sendfile", test_sendfile, 0 },   { "splice", test_splice, 0 },
};

AREA(copy);
