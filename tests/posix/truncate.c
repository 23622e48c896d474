// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * truncate.c - truncate and ftruncate: sizes, contents, errors, limits
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const off_t sizes[] = {
	0,    1,    2,	  511,	 512,	513,   4095,	4096,	 4097,
	8191, 8192, 8193, 65535, 65536, 65537, 1048575, 1048576, 1048577,
};

/* Truncation in one of three ways; the results must be the same. */
static int by_path(const char *path, off_t size)
{
	return truncate(path, size);
}

static int by_fd(const char *path, off_t size)
{
	int fd = (int)MUST(open(path, O_RDWR));
	int ret = ftruncate(fd, size);

	MUST(close(fd));
	return ret;
}

static int by_write_fd(const char *path, off_t size)
{
	int fd = (int)MUST(open(path, O_WRONLY));
	int ret = ftruncate(fd, size);

	MUST(close(fd));
	return ret;
}

static const struct {
	const char *name;
	int (*run)(const char *path, off_t size);
} ways[] = {
	{ "truncate", by_path },
	{ "ftruncate", by_fd },
	{ "ftruncate O_WRONLY", by_write_fd },
};

/* Also far beyond what could ever be stored. */
static void test_sizes(void)
{
	static const off_t far[] = { 123456789,	 0x7fffffff,  0x80000000,
				     0xffffffff, 0x100000000, 0x123456789a };

	make_file("f", 0644);
	for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
		for (size_t i = 0; i < ARRAY_SIZE(sizes) + ARRAY_SIZE(far); i++) {
			size_t n = ARRAY_SIZE(sizes);
			off_t size = i < n ? sizes[i] : far[i - n];

			ctx("%s to %lld", ways[w].name, (long long)size);
			EXPECT(0, ways[w].run("f", size));
			EXPECT_EQ(size, size_of("f"));
		}
		EXPECT(0, ways[w].run("f", 0));
		EXPECT_EQ(0, size_of("f"));
		EXPECT_EQ(0, blocks_of("f"));
	}
}

/* What is cut off is gone, what is kept is unchanged, what is added is zero. */
static void test_contents(void)
{
	static char data[3 * 4096 + 100];
	char c;
	int fd;

	fill_pattern(data, sizeof(data), 1);
	fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));
	for (size_t w = 0; w < ARRAY_SIZE(ways); w++) {
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			off_t size = sizes[i];

			if (size >= (off_t)sizeof(data))
				continue;
			make_content("f", data, sizeof(data));
			ctx("%s to %lld and back", ways[w].name, (long long)size);
			EXPECT(0, ways[w].run("f", size));
			EXPECT_TRUE(fd_content_is(fd, 0, data, (size_t)size));
			EXPECT_EQ(0, pread(fd, &c, 1, size));
			EXPECT(0, ways[w].run("f", sizeof(data) + 5000));
			EXPECT_TRUE(fd_content_is(fd, 0, data, (size_t)size));
			EXPECT_TRUE(fd_is_zero(fd, size, sizeof(data) + 5000 - (size_t)size));
		}
	}
}

/* The file offset stays where it is; writing there leaves a hole. */
static void test_offset(void)
{
	char buf[20];
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	MUST(write(fd, "0123456789", 10));
	EXPECT(0, ftruncate(fd, 4));
	EXPECT_EQ(10, lseek(fd, 0, SEEK_CUR));
	EXPECT_EQ(0, read(fd, buf, 10));
	EXPECT_EQ(3, write(fd, "abc", 3));
	EXPECT_EQ(13, size_of("f"));
	EXPECT_EQ(13, pread(fd, buf, sizeof(buf), 0));
	EXPECT_TRUE(memcmp(buf, "0123\0\0\0\0\0\0abc", 13) == 0);
}

static void test_errors(void)
{
	int fd, pipes[2];

	make_content("f", "hello", 5);
	make_dir("d", 0755);
	EXPECT(EINVAL, truncate("f", -1));
	EXPECT(EINVAL, truncate("f", INT64_MIN));
	EXPECT(EISDIR, truncate("d", 0));
	EXPECT(EISDIR, truncate("d", 10));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(EINVAL, ftruncate(fd, 0));
	EXPECT(EINVAL, ftruncate(fd, 5));
	fd = (int)MUST(open("f", O_PATH));
	EXPECT(EBADF, ftruncate(fd, 0));
	fd = (int)MUST(open("f", O_WRONLY));
	EXPECT(EINVAL, ftruncate(fd, -1));
	EXPECT(EINVAL, ftruncate(fd, INT64_MIN));
	fd = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	EXPECT(EINVAL, ftruncate(fd, 0));
	MUST(pipe(pipes));
	EXPECT(EINVAL, ftruncate(pipes[1], 0));
	EXPECT(EBADF, ftruncate(1000, 0));
	EXPECT_EQ(5, size_of("f"));
}

static void test_types(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		if (t == NODE_REG || t == NODE_DIR || t == NODE_LNK)
			continue;
		node_make(t, path, 0666);
		ctx("%s", path);
		EXPECT(EINVAL, truncate(path, 0));
		EXPECT(EINVAL, truncate(path, 123));
	}
	make_content("f", "hello", 5);
	MUST(symlink("f", "l"));
	EXPECT(0, truncate("l", 2));
	EXPECT_EQ(2, size_of("f"));
}

/* Every filesystem has some maximum, and it need not be the same. */
static void test_maximum(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	RECORD(ftruncate(fd, INT64_MAX));
	RECORD(truncate("f", INT64_MAX - 1));
	RECORD(truncate("f", (off_t)1 << 62));
	RECORD(truncate("f", (off_t)1 << 50));
	EXPECT(0, truncate("f", (off_t)1 << 40));
	EXPECT_EQ((off_t)1 << 40, size_of("f"));
	EXPECT(0, truncate("f", 0));
}

static volatile sig_atomic_t xfsz_count;

static void on_xfsz(int sig)
{
	(void)sig;
	xfsz_count++;
}

#define FILE_LIMIT 1000

/* The soft limit alone, and only for the one call: our own output may go to a file, too. */
static void limit_file_size(bool on)
{
	struct rlimit rl;

	MUST(getrlimit(RLIMIT_FSIZE, &rl));
	rl.rlim_cur = on ? FILE_LIMIT : rl.rlim_max;
	MUST(setrlimit(RLIMIT_FSIZE, &rl));
}

#define LIMITED(call)                   \
	({                              \
		long ret_;              \
		int err_;               \
                                        \
		limit_file_size(true);  \
		ret_ = (call);          \
		err_ = errno;           \
		limit_file_size(false); \
		errno = err_;           \
		ret_;                   \
	})

static void test_rlimit(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	signal(SIGXFSZ, on_xfsz);
	EXPECT(EFBIG, LIMITED(truncate("f", FILE_LIMIT + 1)));
	EXPECT_EQ(1, xfsz_count);
	EXPECT(EFBIG, LIMITED(ftruncate(fd, 2 * FILE_LIMIT)));
	EXPECT_EQ(2, xfsz_count);
	EXPECT_EQ(0, size_of("f"));
	EXPECT(0, LIMITED(truncate("f", FILE_LIMIT)));
	EXPECT_EQ(FILE_LIMIT, size_of("f"));
	EXPECT_EQ(2, xfsz_count);
	EXPECT(EFBIG, LIMITED(pwrite(fd, "x", 1, FILE_LIMIT)));
	EXPECT_EQ(3, xfsz_count);
	EXPECT(EFBIG, LIMITED(fallocate(fd, 0, FILE_LIMIT, 1)));
	EXPECT_EQ(10, LIMITED(pwrite(fd, "0123456789abcdef", 16, FILE_LIMIT - 10)));
	EXPECT_EQ(FILE_LIMIT, size_of("f"));
}

static int truncate_over_limit(void *arg)
{
	struct rlimit rl = { 10, 10 };

	(void)arg;
	signal(SIGXFSZ, SIG_DFL);
	MUST(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }));
	MUST(setrlimit(RLIMIT_FSIZE, &rl));
	return truncate("f", 11);
}

/* Unhandled, the signal kills. */
static void test_rlimit_signal(void)
{
	make_file("f", 0644);
	EXPECT_EQ(1000 + SIGXFSZ, in_child(truncate_over_limit, NULL));
	EXPECT_EQ(0, size_of("f"));
}

/* A failed truncation leaves size and content alone. */
static void test_denied(void)
{
	make_content("f", "hello", 5);
	MUST(chmod("f", 0444));
	give("f");
	EXPECT_AS(&actor_owner, EACCES, truncate("f", 0));
	EXPECT_AS(&actor_owner, EACCES, truncate("f", 100));
	EXPECT_AS(&actor_owner, EACCES, truncate("f", 5));
	EXPECT_TRUE(content_is("f", "hello", 5));
}

/* Other descriptors, and other names, see the new size. */
static void test_shared(void)
{
	char c;
	int a, b;

	make_content("f", "hello", 5);
	MUST(link("f", "g"));
	a = (int)MUST(open("f", O_RDWR));
	b = (int)MUST(open("g", O_RDONLY));
	EXPECT_EQ(1, pread(b, &c, 1, 4));
	EXPECT(0, ftruncate(a, 3));
	EXPECT_EQ(0, pread(b, &c, 1, 4));
	EXPECT_EQ(3, lseek(b, 0, SEEK_END));
	EXPECT_EQ(3, size_of("g"));
	EXPECT(0, truncate("g", 7));
	EXPECT_EQ(7, lseek(a, 0, SEEK_END));
	EXPECT_TRUE(content_is("f", "hel\0\0\0\0", 7));
}

static const struct test tests[] = {
	{ "sizes", test_sizes, 0 },   { "contents", test_contents, 0 },
	{ "offset", test_offset, 0 }, { "errors", test_errors, 0 },
	{ "types", test_types, 0 },   { "maximum", test_maximum, 0 },
	{ "rlimit", test_rlimit, 0 }, { "rlimit_signal", test_rlimit_signal, 0 },
	{ "denied", test_denied, 0 }, { "shared", test_shared, 0 },
};

AREA(truncate);
