// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fallocate.c - fallocate in its modes and posix_fallocate: contents, sizes, refusals
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_SIZE 100000
#define KEEP	  FALLOC_FL_KEEP_SIZE
#define PUNCH	  FALLOC_FL_PUNCH_HOLE
#define ZERO	  FALLOC_FL_ZERO_RANGE

static char model[3 * FILE_SIZE];

/* A file of pattern and the same in model, which then tells what the file has to be. */
static int make_model(void)
{
	memset(model, 0, sizeof(model));
	fill_pattern(model, FILE_SIZE, 1);
	make_content("f", model, FILE_SIZE);
	return (int)MUST(open("f", O_RDWR));
}

struct range {
	off_t off, len;
};

static const struct range ranges[] = {
	{ 0, 1 },
	{ 0, 4096 },
	{ 4096, 4096 },
	{ 0, FILE_SIZE },
	{ 1, 1 },
	{ 100, 5000 },
	{ 4095, 2 },
	{ 4000, 200 },
	{ 8192, 65536 },
	{ 8191, 65538 },
	{ FILE_SIZE - 1, 1 },
	{ FILE_SIZE - 100, 1000 },
	{ FILE_SIZE, 1 },
	{ FILE_SIZE, 4096 },
	{ FILE_SIZE + 5000, 10 },
	{ 50000, 100000 },
	{ 0, 2 * FILE_SIZE },
	{ 131072, 65536 },
};

static void mode_case(int mode, const struct range *r)
{
	int fd = make_model();
	off_t size = FILE_SIZE, end = r->off + r->len;

	ctx("mode %#x at %lld+%lld", mode, (long long)r->off, (long long)r->len);
	if (EXPECT(0, fallocate(fd, mode, r->off, r->len)) != 0)
		return;
	if (mode & (PUNCH | ZERO))
		memset(model + r->off, 0, (size_t)r->len);
	if (!(mode & KEEP) && end > size)
		size = end;
	EXPECT_EQ(size, size_of("f"));
	EXPECT_TRUE(fd_content_is(fd, 0, model, (size_t)size));
	MUST(fsync(fd));
	EXPECT_TRUE(fd_content_is(fd, 0, model, (size_t)size));
	/* What lies behind the end comes up as zeros. */
	MUST(ftruncate(fd, sizeof(model)));
	memset(model + size, 0, sizeof(model) - (size_t)size);
	EXPECT_TRUE(fd_content_is(fd, 0, model, sizeof(model)));
	MUST(close(fd));
}

static void test_modes(void)
{
	static const int modes[] = { 0, KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP };

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		for (size_t j = 0; j < ARRAY_SIZE(ranges); j++)
			mode_case(modes[i], &ranges[j]);
}

/* Data that is written into preallocated space stays; the rest remains zero. */
static void test_write_into(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	EXPECT(0, fallocate(fd, 0, 0, 2 * FILE_SIZE));
	EXPECT_TRUE(fd_is_zero(fd, 0, 2 * FILE_SIZE));
	EXPECT_EQ(5, pwrite(fd, "hello", 5, 12345));
	EXPECT_TRUE(fd_content_is(fd, 12345, "hello", 5));
	EXPECT_TRUE(fd_is_zero(fd, 0, 12345));
	EXPECT_TRUE(fd_is_zero(fd, 12350, 2 * FILE_SIZE - 12350));
	EXPECT(0, fallocate(fd, 0, 0, 2 * FILE_SIZE));
	EXPECT_TRUE(fd_content_is(fd, 12345, "hello", 5));
	EXPECT(0, fallocate(fd, KEEP, 0, 3 * FILE_SIZE));
	EXPECT_EQ(2 * FILE_SIZE, size_of("f"));
	EXPECT_EQ(3, pwrite(fd, "end", 3, 3 * FILE_SIZE - 3));
	EXPECT_TRUE(fd_is_zero(fd, 2 * FILE_SIZE, FILE_SIZE - 3));
}

static void test_offset(void)
{
	int fd = make_model();

	MUST(lseek(fd, 77, SEEK_SET));
	EXPECT(0, fallocate(fd, 0, 0, 2 * FILE_SIZE));
	EXPECT(0, fallocate(fd, PUNCH | KEEP, 0, 4096));
	EXPECT_EQ(77, lseek(fd, 0, SEEK_CUR));
}

/* Bad arguments, for every mode that there is. */
static void test_errors(void)
{
	static const int modes[] = { 0, KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP };
	int fd = make_model(), r = (int)MUST(open("f", O_RDONLY)), path, w;

	path = (int)MUST(open("f", O_PATH));
	w = (int)MUST(open("f", O_WRONLY));
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		ctx("mode %#x", modes[i]);
		EXPECT(EINVAL, fallocate(fd, modes[i], 0, 0));
		EXPECT(EINVAL, fallocate(fd, modes[i], 0, -1));
		EXPECT(EINVAL, fallocate(fd, modes[i], -1, 1));
		EXPECT(EINVAL, fallocate(fd, modes[i], -1, -1));
		EXPECT(EFBIG, fallocate(fd, modes[i], INT64_MAX, 1));
		EXPECT(EFBIG, fallocate(fd, modes[i], 1, INT64_MAX));
		EXPECT(EBADF, fallocate(r, modes[i], 0, 1));
		EXPECT(EBADF, fallocate(path, modes[i], 0, 1));
		EXPECT(EBADF, fallocate(1000, modes[i], 0, 1));
		EXPECT(0, fallocate(w, modes[i], FILE_SIZE - 1, 1));
	}
	EXPECT(EOPNOTSUPP, fallocate(fd, PUNCH, 0, 4096));
	EXPECT(EOPNOTSUPP, fallocate(fd, PUNCH | ZERO | KEEP, 0, 4096));
	EXPECT(EOPNOTSUPP, fallocate(fd, 0x4000, 0, 4096));
	EXPECT_EQ(FILE_SIZE, size_of("f"));
}

static void test_types(void)
{
	int pipes[2], fifo;

	MUST(pipe(pipes));
	EXPECT(ESPIPE, fallocate(pipes[1], 0, 0, 1));
	MUST(mkfifo("p", 0644));
	fifo = (int)MUST(open("p", O_RDWR));
	EXPECT(ESPIPE, fallocate(fifo, 0, 0, 1));
	EXPECT(EBADF, fallocate((int)MUST(open(".", O_RDONLY)), 0, 0, 1));
	EXPECT(ENODEV, fallocate((int)MUST(open("/dev/null", O_RDWR)), 0, 0, 1));
}

/* The rarer modes: they work or are refused, but they never do anything else. */
static void rare_case(int mode, off_t off, off_t len, off_t size)
{
	int fd = make_model();
	long ret;

	ctx("mode %#x", mode);
	ret = RECORD(fallocate(fd, mode, off, len));
	EXPECT_EQ(ret == 0 ? size : FILE_SIZE, size_of("f"));
	if (ret == 0) {
		off_t from = mode == FALLOC_FL_COLLAPSE_RANGE ? off + len : off;
		off_t to = mode == FALLOC_FL_INSERT_RANGE ? off + len : off;

		EXPECT_TRUE(fd_content_is(fd, to, model + from, (size_t)(FILE_SIZE - from)));
	} else {
		EXPECT_TRUE(fd_content_is(fd, 0, model, FILE_SIZE));
	}
	EXPECT_TRUE(fd_content_is(fd, 0, model, (size_t)off));
	MUST(close(fd));
}

static void test_rare_modes(void)
{
	rare_case(FALLOC_FL_COLLAPSE_RANGE, 4096, 8192, FILE_SIZE - 8192);
	rare_case(FALLOC_FL_INSERT_RANGE, 4096, 8192, FILE_SIZE + 8192);
	rare_case(FALLOC_FL_COLLAPSE_RANGE, 100, 200, FILE_SIZE);
	rare_case(FALLOC_FL_INSERT_RANGE, 100, 200, FILE_SIZE);
	rare_case(FALLOC_FL_COLLAPSE_RANGE, 4096, FILE_SIZE, FILE_SIZE);
}

static int posix_alloc(int fd, off_t off, off_t len)
{
	errno = posix_fallocate(fd, off, len);
	return errno ? -1 : 0;
}

static void test_posix(void)
{
	int fd = make_model();

	EXPECT(0, posix_alloc(fd, 0, 10));
	EXPECT_EQ(FILE_SIZE, size_of("f"));
	EXPECT(0, posix_alloc(fd, FILE_SIZE - 10, 1000));
	EXPECT_EQ(FILE_SIZE + 990, size_of("f"));
	EXPECT_TRUE(fd_content_is(fd, 0, model, FILE_SIZE));
	EXPECT_TRUE(fd_is_zero(fd, FILE_SIZE, 990));
	EXPECT(EINVAL, posix_alloc(fd, 0, 0));
	EXPECT(EINVAL, posix_alloc(fd, -1, 1));
	EXPECT(EINVAL, posix_alloc(fd, 0, -1));
	EXPECT(EFBIG, posix_alloc(fd, INT64_MAX - 1, 100));
	EXPECT(EBADF, posix_alloc((int)MUST(open("f", O_RDONLY)), 0, 1));
	EXPECT(EBADF, posix_alloc(1000, 0, 1));
}

/* Space that is reserved is really there: writing into it cannot fail. */
static void test_reserves(void)
{
	struct stat st;
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	EXPECT(0, fallocate(fd, KEEP, 0, 1 << 20));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_size);
	EXPECT_TRUE(st.st_blocks * 512 >= 1 << 20);
	EXPECT(0, fallocate(fd, PUNCH | KEEP, 0, 1 << 20));
	EXPECT(0, fstat(fd, &st));
	/* ext4 does not look for holes to punch behind the end of the file. */
	RECORD_EQ(st.st_blocks * 512 < 1 << 20);
	EXPECT_EQ(0, st.st_size);
}

static const struct test tests[] = {
	{ "modes", test_modes, 0 },   { "write_into", test_write_into, 0 },
	{ "offset", test_offset, 0 }, { "errors", test_errors, 0 },
	{ "types", test_types, 0 },   { "rare_modes", test_rare_modes, 0 },
	{ "posix", test_posix, 0 },   { "reserves", test_reserves, 0 },
};

AREA(fallocate);
