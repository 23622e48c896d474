// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * io.c - read and write: append, direct I/O, vectors, ends of files, bad arguments, syncing
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define BUF_SIZE 65536

static void test_sizes(void)
{
	static const size_t sizes[] = { 1,    2,     511,   512,    513,    4095,   4096,
					4097, 10000, 65536, 131072, 131073, 1048577 };
	char *data = MUST_PTR(malloc(1048577));

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		int fd = (int)MUST(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));

		ctx("%zu bytes", sizes[i]);
		fill_pattern(data, sizes[i], (unsigned int)i);
		EXPECT_EQ(sizes[i], write(fd, data, sizes[i]));
		EXPECT_EQ(sizes[i], size_of("f"));
		EXPECT_TRUE(fd_content_is(fd, 0, data, sizes[i]));
		EXPECT_TRUE(content_is("f", data, sizes[i]));
		EXPECT_EQ(0, read(fd, data, 1));
		MUST(close(fd));
	}
	free(data);
}

/* Small overwrites at all kinds of places, compared with a model in memory. */
static void test_overwrite(void)
{
	static char model[3 * BUF_SIZE];
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));
	unsigned int seed = 12345;
	size_t size = 0;

	for (int i = 0; i < 500; i++) {
		size_t off, len;

		seed = seed * 1103515245 + 12345;
		off = (seed >> 8) % (2 * BUF_SIZE);
		len = 1 + (seed >> 5) % 3000;
		fill_pattern(model + off, len, seed);
		MUST(pwrite(fd, model + off, len, (off_t)off) == (ssize_t)len ? 0 : -1);
		if (off + len > size)
			size = off + len;
		if (i % 50 == 49) {
			ctx("after %d writes", i + 1);
			EXPECT_TRUE(content_is("f", model, size));
		}
	}
}

static void test_ends(void)
{
	char buf[16];
	int fd;

	make_content("f", "0123456789", 10);
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT_EQ(4, pread(fd, buf, 16, 6));
	EXPECT_EQ(0, pread(fd, buf, 16, 10));
	EXPECT_EQ(0, pread(fd, buf, 16, 1000000));
	EXPECT_EQ(0, pread(fd, buf, 0, 0));
	EXPECT_EQ(10, read(fd, buf, 16));
	EXPECT_EQ(0, read(fd, buf, 16));
	EXPECT_EQ(2, pwrite(fd, "ab", 2, 10));
	EXPECT_EQ(2, read(fd, buf, 16));
	EXPECT_EQ(0, write(fd, buf, 0));
	EXPECT_EQ(0, pwrite(fd, buf, 0, 1000));
	EXPECT_EQ(12, size_of("f"));
}

static void test_errors(void)
{
	char buf[16] = "";
	int fd, bad = 1000;

	make_content("f", "0123456789", 10);
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT(EINVAL, pread(fd, buf, 1, -1));
	EXPECT(EINVAL, pwrite(fd, buf, 1, -1));
	EXPECT(EFAULT, read(fd, bad_address(), 4));
	EXPECT(EFAULT, pread(fd, bad_address(), 4, 0));
	EXPECT(EFAULT, write(fd, bad_address(), 4));
	EXPECT(EFAULT, pwrite(fd, bad_address(), 4, 20));
	EXPECT(EBADF, read(bad, buf, 1));
	EXPECT(EBADF, write(bad, buf, 1));
	EXPECT(EBADF, pread(bad, buf, 1, 0));
	EXPECT(EBADF, pwrite(bad, buf, 1, 0));
	EXPECT(EBADF, fsync(bad));
	EXPECT(EBADF, fdatasync(bad));
	EXPECT(EBADF, close(bad));
	RECORD(pwrite(fd, buf, 1, INT64_MAX - 1));
	EXPECT_TRUE(fd_content_is(fd, 0, "0123456789", 10));
}

static void test_vectors(void)
{
	char a[5], b[7], c[3], hello[] = "hello", vector[] = " vector";
	struct iovec in[] = { { a, 5 }, { b, 0 }, { b, 7 }, { c, 3 } };
	struct iovec out[] = { { hello, 5 }, { NULL, 0 }, { vector, 7 } };
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	EXPECT_EQ(12, writev(fd, out, 3));
	EXPECT_TRUE(content_is("f", "hello vector", 12));
	EXPECT_EQ(12, pwritev(fd, out, 3, 3));
	EXPECT_TRUE(content_is("f", "helhello vector", 15));
	EXPECT_EQ(15, preadv(fd, in, 4, 0));
	EXPECT_TRUE(memcmp(a, "helhe", 5) == 0 && memcmp(b, "llo vec", 7) == 0 &&
		    memcmp(c, "tor", 3) == 0);
	EXPECT_EQ(12, lseek(fd, 0, SEEK_CUR));
	EXPECT_EQ(3, readv(fd, in, 4));
	EXPECT_EQ(0, writev(fd, out, 0));
	EXPECT(EINVAL, syscall(SYS_writev, fd, out, -1L));
	EXPECT(EINVAL, syscall(SYS_writev, fd, out, 1025L));
	EXPECT(EFAULT, writev(fd, bad_address(), 1));
}

/* Every write goes to the end, wherever that is by then. */
static void test_append(void)
{
	int a, b, plain;

	make_content("f", "start", 5);
	a = (int)MUST(open("f", O_RDWR | O_APPEND));
	b = (int)MUST(open("f", O_WRONLY | O_APPEND));
	plain = (int)MUST(open("f", O_WRONLY));
	EXPECT_EQ(0, lseek(a, 0, SEEK_CUR));
	EXPECT_EQ(1, write(a, "A", 1));
	EXPECT_EQ(6, lseek(a, 0, SEEK_CUR));
	EXPECT_EQ(1, write(b, "B", 1));
	EXPECT_EQ(1, write(a, "C", 1));
	EXPECT_EQ(8, lseek(a, 0, SEEK_CUR));
	EXPECT_EQ(0, lseek(a, 0, SEEK_SET));
	EXPECT_EQ(1, write(a, "D", 1));
	EXPECT_EQ(1, pwrite(plain, "P", 1, 20));
	EXPECT_EQ(1, write(b, "E", 1));
	EXPECT_TRUE(content_is("f", "startABCD\0\0\0\0\0\0\0\0\0\0\0PE", 22));
	EXPECT(0, ftruncate(a, 3));
	EXPECT_EQ(1, write(b, "F", 1));
	EXPECT_TRUE(content_is("f", "staF", 4));
}

/* On Linux pwrite() appends as well, and leaves the offset alone. */
static void test_append_pwrite(void)
{
	char v[] = "v";
	const struct iovec iov = { v, 1 };
	int fd;

	make_content("f", "start", 5);
	fd = (int)MUST(open("f", O_RDWR | O_APPEND));
	EXPECT_EQ(1, pwrite(fd, "X", 1, 0));
	EXPECT_TRUE(content_is("f", "startX", 6));
	EXPECT_EQ(0, lseek(fd, 0, SEEK_CUR));
	EXPECT_EQ(1, pwrite(fd, "Y", 1, 100));
	EXPECT_TRUE(content_is("f", "startXY", 7));
	EXPECT_EQ(1, pwritev(fd, &iov, 1, 2));
	EXPECT_TRUE(content_is("f", "startXYv", 8));
	EXPECT_EQ(0, pwrite(fd, "", 0, 0));
}

/* Switching O_APPEND on an open descriptor counts from then on. */
static void test_append_toggle(void)
{
	int fd;

	make_content("f", "start", 5);
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT_EQ(1, write(fd, "1", 1));
	EXPECT(0, fcntl(fd, F_SETFL, O_APPEND));
	EXPECT_TRUE(fcntl(fd, F_GETFL) & O_APPEND);
	EXPECT_EQ(1, write(fd, "2", 1));
	EXPECT_TRUE(content_is("f", "1tart2", 6));
	EXPECT(0, fcntl(fd, F_SETFL, 0));
	EXPECT_EQ(1, pwrite(fd, "3", 1, 1));
	EXPECT_TRUE(content_is("f", "13art2", 6));
}

/* Appending processes lose nothing of each other's. */
static int append_records(void *arg)
{
	int fd = open("f", O_WRONLY | O_APPEND);
	char record[16];

	memset(record, *(const char *)arg, sizeof(record));
	for (int i = 0; i < 200; i++)
		if (write(fd, record, sizeof(record)) != sizeof(record))
			return 1;
	return 0;
}

static void test_append_together(void)
{
	static char ids[] = "abc", buf[3 * 200 * 16];
	int counts[3] = { 0 }, torn = 0, fd;
	pid_t pids[3];

	make_file("f", 0644);
	for (size_t i = 0; i < 3; i++)
		pids[i] = spawn(append_records, &ids[i]);
	for (size_t i = 0; i < 3; i++)
		EXPECT_EQ(0, reap(pids[i]));
	EXPECT_EQ(sizeof(buf), size_of("f"));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT_EQ(sizeof(buf), read(fd, buf, sizeof(buf)));
	for (size_t i = 0; i < sizeof(buf); i += 16) {
		const char *id = strchr(ids, buf[i]);

		torn += !buf[i] || !id || memcmp(buf + i, buf + i + 1, 15) != 0;
		if (buf[i] && id)
			counts[id - ids]++;
	}
	EXPECT_EQ(0, torn);
	for (size_t i = 0; i < 3; i++)
		EXPECT_EQ(200, counts[i]);
}

/* Memory at a multiple of 4096 bytes; never freed, the test's process ends soon. */
static char *aligned_buffer(void)
{
	return MUST_PTR(aligned_alloc(4096, BUF_SIZE));
}

/* Direct I/O: memory, offset and length in multiples of align. */
static void direct_case(size_t align)
{
	char *buf = aligned_buffer() + align % 4096, *check = aligned_buffer();
	int fd, plain;
	long ret;

	fresh();
	make_file("f", 0644);
	plain = (int)MUST(open("f", O_RDWR));
	fd = open("f", O_RDWR | O_DIRECT);
	if (fd < 0)
		skip_test("no O_DIRECT here");
	ctx("aligned to %zu", align);
	fill_pattern(buf, align, 1);
	ret = RECORD(pwrite(fd, buf, align, (off_t)align) == (ssize_t)align ? 0 : -1);
	if (align == 4096)
		EXPECT_EQ(0, ret);
	if (ret == 0) {
		EXPECT_TRUE(fd_content_is(plain, (off_t)align, buf, align));
		EXPECT_TRUE(fd_is_zero(plain, 0, align));
		fill_pattern(check, align, 9);
		MUST(pwrite(plain, check, align, 0));
		EXPECT_EQ(align, pread(fd, buf, align, 0));
		EXPECT_TRUE(memcmp(buf, check, align) == 0);
		EXPECT_EQ(align, pread(fd, buf, 2 * align, (off_t)align));
		EXPECT_EQ(0, pread(fd, buf, align, 2 * (off_t)align));
	}
	MUST(close(fd));
	MUST(close(plain));
}

static void test_direct(void)
{
	direct_case(4096);
	direct_case(512);
}

/* Buffered and direct descriptors of one file never see anything stale. */
static void test_direct_coherent(void)
{
	char *buf = aligned_buffer(), *seen = aligned_buffer();
	int direct, plain;

	make_sized("f", BUF_SIZE);
	plain = (int)MUST(open("f", O_RDWR));
	direct = open("f", O_RDWR | O_DIRECT);
	if (direct < 0)
		skip_test("no O_DIRECT here");
	for (unsigned int i = 0; i < 10; i++) {
		off_t off = (off_t)(i % 4) * 16384;

		ctx("round %u", i);
		fill_pattern(buf, 16384, i);
		EXPECT_EQ(16384, pwrite(i % 2 ? direct : plain, buf, 16384, off));
		EXPECT_EQ(16384, pread(i % 2 ? plain : direct, seen, 16384, off));
		EXPECT_TRUE(memcmp(buf, seen, 16384) == 0);
	}
	EXPECT(0, fcntl(plain, F_SETFL, O_DIRECT));
	fill_pattern(buf, 8192, 77);
	EXPECT_EQ(8192, pwrite(plain, buf, 8192, 4096));
	EXPECT(0, fcntl(plain, F_SETFL, 0));
	EXPECT_TRUE(fd_content_is(plain, 4096, buf, 8192));
}

/* What misaligned direct I/O does differs; what it leaves behind must not be wrong. */
static void test_direct_misaligned(void)
{
	char *buf = aligned_buffer();
	int fd;

	fill_pattern(buf, BUF_SIZE, 3);
	make_content("f", buf, BUF_SIZE);
	fd = open("f", O_RDWR | O_DIRECT);
	if (fd < 0)
		skip_test("no O_DIRECT here");
	RECORD(pread(fd, buf, 100, 0));
	RECORD(pread(fd, buf + 1, 4096, 0));
	RECORD(pread(fd, buf, 4096, 1));
	fill_pattern(buf, BUF_SIZE, 3);
	RECORD(pwrite(fd, buf + 7, 100, 7));
	RECORD(pwrite(fd, buf + 1, 4096, 1));
	EXPECT_TRUE(content_is("f", buf, BUF_SIZE));
}

static void test_sync(void)
{
	static const int flags[] = { O_SYNC, O_DSYNC, O_SYNC | O_APPEND };
	int fd, dir;

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		ctx("flags %#x", flags[i]);
		fd = (int)EXPECT(0, open("f", O_RDWR | O_CREAT | O_TRUNC | flags[i], 0644));
		EXPECT_EQ(5, write(fd, "hello", 5));
		EXPECT_TRUE(content_is("f", "hello", 5));
		MUST(close(fd));
	}
	fd = (int)MUST(open("f", O_RDONLY));
	dir = (int)MUST(open(".", O_RDONLY | O_DIRECTORY));
	EXPECT(0, fsync(fd));
	EXPECT(0, fdatasync(fd));
	EXPECT(0, fsync(dir));
	EXPECT(0, fdatasync(dir));
	EXPECT(0, syncfs(fd));
	EXPECT(0, sync_file_range(fd, 0, 0,
				  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					  SYNC_FILE_RANGE_WAIT_AFTER));
	EXPECT(EINVAL, sync_file_range(fd, 0, 0, 0x8000));
	EXPECT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	EXPECT_EQ(0, posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	EXPECT_EQ(EINVAL, posix_fadvise(fd, 0, 0, 99));
	EXPECT(0, readahead(fd, 0, 4096));
}

static const struct test tests[] = {
	{ "sizes", test_sizes, 0 },
	{ "overwrite", test_overwrite, 0 },
	{ "ends", test_ends, 0 },
	{ "errors", test_errors, 0 },
	{ "vectors", test_vectors, 0 },
	{ "append", test_append, 0 },
	{ "append_pwrite", test_append_pwrite, 0 },
	{ "append_toggle", test_append_toggle, 0 },
	{ "append_together", test_append_together, 0 },
	{ "direct", test_direct, 0 },
	{ "direct_coherent", test_direct_coherent, 0 },
	{ "direct_misaligned", test_direct_misaligned, 0 },
	{ "sync", test_sync, 0 },
};

AREA(io);
