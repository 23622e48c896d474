// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * seek.c - lseek, SEEK_DATA and SEEK_HOLE, sparse files and the blocks they take
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

/* Holes and data in units that no filesystem's block is larger than. */
#define UNIT 65536

static void test_seek(void)
{
	char c;
	int fd;

	make_content("f", "0123456789", 10);
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT_EQ(3, lseek(fd, 3, SEEK_SET));
	EXPECT_EQ(1, read(fd, &c, 1));
	EXPECT_EQ('3', c);
	EXPECT_EQ(6, lseek(fd, 2, SEEK_CUR));
	EXPECT_EQ(4, lseek(fd, -2, SEEK_CUR));
	EXPECT_EQ(8, lseek(fd, -2, SEEK_END));
	EXPECT_EQ(1000, lseek(fd, 990, SEEK_END));
	EXPECT_EQ(0, read(fd, &c, 1));
	EXPECT(EINVAL, lseek(fd, -1, SEEK_SET));
	EXPECT(EINVAL, lseek(fd, -11, SEEK_END));
	EXPECT(EINVAL, lseek(fd, -1001, SEEK_CUR));
	EXPECT_EQ(1000, lseek(fd, 0, SEEK_CUR));
	EXPECT(EINVAL, lseek(fd, 0, 99));
	EXPECT(EBADF, lseek(1000, 0, SEEK_SET));
	EXPECT2(EINVAL, EOVERFLOW, lseek(fd, INT64_MAX, SEEK_CUR));
	EXPECT_EQ(10, size_of("f"));
}

/* Reading and writing through dup()ed and inherited descriptors moves one offset. */
static int read_two(void *arg)
{
	char buf[2];

	return read(*(const int *)arg, buf, 2) == 2 ? buf[0] : 0;
}

static void test_shared_offset(void)
{
	int a, b, own;

	make_content("f", "0123456789", 10);
	a = (int)MUST(open("f", O_RDWR));
	b = (int)MUST(dup(a));
	own = (int)MUST(open("f", O_RDWR));
	EXPECT_EQ('0', in_child(read_two, &a));
	EXPECT_EQ('2', in_child(read_two, &b));
	EXPECT_EQ(4, lseek(a, 0, SEEK_CUR));
	EXPECT_EQ(0, lseek(own, 0, SEEK_CUR));
	EXPECT_EQ(2, write(b, "ab", 2));
	EXPECT_EQ(6, lseek(a, 0, SEEK_CUR));
	EXPECT_TRUE(content_is("f", "0123ab6789", 10));
	EXPECT_EQ(1, pwrite(a, "z", 1, 0));
	EXPECT_EQ(6, lseek(a, 0, SEEK_CUR));
}

/* Writing far out leaves a hole of zeros. */
static void test_beyond(void)
{
	static const off_t offsets[] = { 1,	511,	 4095,	     4096,	 5000,
					 65536, 1000000, 0x7fffffff, 0x80000000, 0x100000001 };

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		off_t off = offsets[i];
		int fd = (int)MUST(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));

		ctx("offset %lld", (long long)off);
		EXPECT_EQ(off, lseek(fd, off, SEEK_SET));
		EXPECT_EQ(0, size_of("f"));
		EXPECT_EQ(3, write(fd, "end", 3));
		EXPECT_EQ(off + 3, size_of("f"));
		EXPECT_TRUE(fd_is_zero(fd, 0, off < 8192 ? (size_t)off : 8192));
		EXPECT_TRUE(fd_is_zero(fd, off / 2, off < 16384 ? (size_t)(off / 2) : 8192));
		EXPECT_TRUE(fd_content_is(fd, off, "end", 3));
		MUST(close(fd));
	}
}

/* A map of the file in units: 'D' is data, '.' a hole; a last hole is made by truncation. */
static int make_units(const char *map)
{
	static char data[UNIT];
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));

	fill_pattern(data, UNIT, 1);
	for (size_t i = 0; map[i]; i++)
		if (map[i] == 'D')
			MUST(pwrite(fd, data, UNIT, (off_t)i * UNIT));
	MUST(ftruncate(fd, (off_t)strlen(map) * UNIT));
	return fd;
}

static long long next_unit(const char *map, size_t from, char what)
{
	size_t n = strlen(map);

	while (from < n && map[from] != what)
		from++;
	return (long long)from;
}

/* From the start, the middle and the last byte of every unit. */
static void expect_units(int fd, const char *map)
{
	static const off_t inside[] = { 0, UNIT / 2, UNIT - 1 };
	size_t n = strlen(map);

	for (size_t i = 0; i < 3 * n; i++) {
		off_t off = (off_t)(i / 3) * UNIT + inside[i % 3];
		long long data = next_unit(map, i / 3, 'D'), hole = next_unit(map, i / 3, '.');

		ctx("%s at %lld", map, (long long)off);
		if (data == (long long)n)
			EXPECT(ENXIO, lseek(fd, off, SEEK_DATA));
		else
			EXPECT_EQ(data * UNIT > off ? data * UNIT : off, lseek(fd, off, SEEK_DATA));
		EXPECT_EQ(hole * UNIT > off ? hole * UNIT : off, lseek(fd, off, SEEK_HOLE));
	}
	EXPECT(ENXIO, lseek(fd, (off_t)n * UNIT, SEEK_DATA));
	EXPECT(ENXIO, lseek(fd, (off_t)n * UNIT, SEEK_HOLE));
	EXPECT(ENXIO, lseek(fd, (off_t)n * UNIT + 1000, SEEK_DATA));
}

static const char *const layouts[] = {
	"D", ".", "DD", "D.", ".D", "..D..", "D.D.D", ".D.D.", "DDDD", "....", "D..DD", "..DD.D",
};

static void test_data_hole(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		int fd = make_units(layouts[i]);

		expect_units(fd, layouts[i]);
		MUST(fsync(fd));
		expect_units(fd, layouts[i]);
		MUST(close(fd));
	}
}

/* Holes made afterwards are found as well, and filled ones no more. */
static void test_punched(void)
{
	static char data[UNIT];
	int fd = make_units("DDDDDD");

	MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, UNIT, 2 * UNIT));
	expect_units(fd, "D..DDD");
	MUST(ftruncate(fd, 4 * UNIT));
	MUST(ftruncate(fd, 6 * UNIT));
	expect_units(fd, "D..D..");
	MUST(pwrite(fd, data, UNIT, 2 * UNIT));
	expect_units(fd, "D.DD..");
}

/* Preallocated and never written: data or hole, but consistent, and zero. */
static void test_unwritten(void)
{
	int fd = make_units("D...");

	MUST(fallocate(fd, 0, UNIT, UNIT));
	RECORD_EQ(lseek(fd, UNIT, SEEK_DATA));
	RECORD_EQ(lseek(fd, 0, SEEK_HOLE));
	EXPECT_TRUE(fd_is_zero(fd, UNIT, UNIT));
	EXPECT(ENXIO, lseek(fd, 2 * UNIT, SEEK_DATA));
}

static void test_data_hole_errors(void)
{
	int fd;

	make_file("empty", 0644);
	fd = (int)MUST(open("empty", O_RDONLY));
	EXPECT(ENXIO, lseek(fd, 0, SEEK_DATA));
	EXPECT(ENXIO, lseek(fd, 0, SEEK_HOLE));
	EXPECT(ENXIO, lseek(fd, 10, SEEK_DATA));
	fd = make_units("D");
	EXPECT2(ENXIO, EINVAL, lseek(fd, -1, SEEK_DATA));
	EXPECT2(ENXIO, EINVAL, lseek(fd, -1, SEEK_HOLE));
	RECORD(lseek((int)MUST(open(".", O_RDONLY)), 0, SEEK_DATA));
	make_content("short", "x", 1);
	fd = (int)MUST(open("short", O_RDONLY));
	EXPECT_EQ(0, lseek(fd, 0, SEEK_DATA));
	EXPECT_EQ(1, lseek(fd, 0, SEEK_HOLE));
}

/* The rough truth about space: holes take next to none, data takes as much as it is long. */
static void test_blocks(void)
{
	static char data[16 * UNIT];
	struct stat st;
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	MUST(ftruncate(fd, 1 << 30));
	MUST(fstat(fd, &st));
	EXPECT_TRUE(st.st_blocks * 512 < UNIT);
	fill_pattern(data, sizeof(data), 1);
	MUST(pwrite(fd, data, sizeof(data), 1 << 20));
	MUST(fsync(fd));
	MUST(fstat(fd, &st));
	EXPECT_TRUE(st.st_blocks * 512 >= (off_t)sizeof(data));
	EXPECT_TRUE(st.st_blocks * 512 < 1 << 28);
	EXPECT_EQ(1 << 30, st.st_size);
	EXPECT_TRUE(st.st_blksize >= 512);
	MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 30));
	MUST(fstat(fd, &st));
	EXPECT_TRUE(st.st_blocks * 512 < UNIT);
	MUST(fallocate(fd, 0, 0, 16 * UNIT));
	MUST(fstat(fd, &st));
	EXPECT_TRUE(st.st_blocks * 512 >= 16 * UNIT);
	MUST(ftruncate(fd, 0));
	MUST(fstat(fd, &st));
	EXPECT_EQ(0, st.st_blocks);
}

static const struct test tests[] = {
	{ "seek", test_seek, 0 },
	{ "shared_offset", test_shared_offset, 0 },
	{ "beyond", test_beyond, 0 },
	{ "data_hole", test_data_hole, 0 },
	{ "punched", test_punched, 0 },
	{ "unwritten", test_unwritten, 0 },
	{ "data_hole_errors", test_data_hole_errors, 0 },
	{ "blocks", test_blocks, 0 },
};

AREA(seek);
