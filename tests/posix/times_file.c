// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * times_file.c - which operation on a regular file updates which of its time stamps
 *
 * Access times after reading are recorded only: mount options decide about them.
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONTENT_SIZE 10000

/*
 * Operations on the file d/n, which is open for reading and writing as fd. Object says what is
 * expected of the file's mtime and ctime, and of its atime with three letters; the rest is
 * recorded.
 */
struct file_op {
	const char *name;
	long (*run)(int fd);
	const char *object;
};

static long do_write(int fd)
{
	return write(fd, "x", 1);
}

static long do_write_nothing(int fd)
{
	return write(fd, "x", 0);
}

static long do_pwrite(int fd)
{
	return pwrite(fd, "xyz", 3, 100);
}

static long do_pwrite_beyond(int fd)
{
	return pwrite(fd, "xyz", 3, 1000000);
}

static long do_writev(int fd)
{
	char a[] = "ab", b[] = "cd";
	const struct iovec iov[] = { { a, 2 }, { b, 2 } };

	return writev(fd, iov, 2);
}

static long do_append(int fd)
{
	int other = (int)MUST(open("d/n", O_WRONLY | O_APPEND));

	(void)fd;
	return write(other, "x", 1) == 1 ? close(other) : -1;
}

static long do_open_close(int fd)
{
	(void)fd;
	return closing(open("d/n", O_RDWR));
}

static long do_open_creat(int fd)
{
	(void)fd;
	return closing(open("d/n", O_WRONLY | O_CREAT, 0600));
}

static long do_open_trunc(int fd)
{
	(void)fd;
	return closing(open("d/n", O_WRONLY | O_TRUNC));
}

static long do_creat(int fd)
{
	(void)fd;
	return closing(creat("d/n", 0600));
}

static long do_truncate_less(int fd)
{
	(void)fd;
	return truncate("d/n", 10);
}

static long do_truncate_more(int fd)
{
	(void)fd;
	return truncate("d/n", 2 * CONTENT_SIZE);
}

static long do_truncate_same(int fd)
{
	(void)fd;
	return truncate("d/n", CONTENT_SIZE);
}

static long do_ftruncate_less(int fd)
{
	return ftruncate(fd, 10);
}

static long do_ftruncate_more(int fd)
{
	return ftruncate(fd, 2 * CONTENT_SIZE);
}

static long do_ftruncate_same(int fd)
{
	return ftruncate(fd, CONTENT_SIZE);
}

static long do_fallocate(int fd)
{
	return fallocate(fd, 0, CONTENT_SIZE, CONTENT_SIZE);
}

static long do_fallocate_keep(int fd)
{
	return fallocate(fd, FALLOC_FL_KEEP_SIZE, 100000, 4096);
}

static long do_punch(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}

static long do_zero_range(int fd)
{
	return fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096);
}

static long do_copy_to(int fd)
{
	int from = (int)MUST(open("source", O_RDONLY));
	off_t in = 0, out = 0;

	return copy_file_range(from, &in, fd, &out, 3, 0) == 3 ? close(from) : -1;
}

static long do_copy_from(int fd)
{
	int to = (int)MUST(open("source", O_WRONLY));
	off_t in = 0, out = 0;

	return copy_file_range(fd, &in, to, &out, 3, 0) == 3 ? close(to) : -1;
}

static long do_map_store(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	map[10] ^= 1;
	MUST(msync(map, 4096, MS_SYNC));
	return munmap(map, 4096);
}

static long do_private_store(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	map[10] ^= 1;
	return munmap(map, 4096);
}

static long do_fsync(int fd)
{
	return fsync(fd);
}

static long do_seek(int fd)
{
	return lseek(fd, 5, SEEK_SET);
}

static long do_stat(int fd)
{
	struct stat st;

	return stat("d/n", &st) + fstat(fd, &st) + access("d/n", R_OK);
}

static long do_fchmod(int fd)
{
	return fchmod(fd, 0604);
}

static long do_rename_self(int fd)
{
	(void)fd;
	return rename("d/n", "d/n");
}

static const struct file_op file_ops[] = {
	{ "write", do_write, "-mc" },
	{ "write of 0 bytes", do_write_nothing, "---" },
	{ "pwrite", do_pwrite, "-mc" },
	{ "pwrite beyond the end", do_pwrite_beyond, "-mc" },
	{ "writev", do_writev, "-mc" },
	{ "append", do_append, "-mc" },
	{ "open and close", do_open_close, "---" },
	{ "open O_CREAT", do_open_creat, "---" },
	{ "open O_TRUNC", do_open_trunc, "-mc" },
	{ "creat", do_creat, "-mc" },
	{ "truncate to less", do_truncate_less, "-mc" },
	{ "truncate to more", do_truncate_more, "-mc" },
	{ "truncate to the same", do_truncate_same, NULL },
	{ "ftruncate to less", do_ftruncate_less, "-mc" },
	{ "ftruncate to more", do_ftruncate_more, "-mc" },
	{ "ftruncate to the same", do_ftruncate_same, "-mc" },
	{ "fallocate", do_fallocate, "-mc" },
	{ "fallocate KEEP_SIZE", do_fallocate_keep, "-mc" },
	{ "fallocate PUNCH_HOLE", do_punch, "-mc" },
	{ "fallocate ZERO_RANGE", do_zero_range, "-mc" },
	{ "copy_file_range to", do_copy_to, "-mc" },
	{ "shared store and msync", do_map_store, "mc" },
	{ "fsync", do_fsync, "---" },
	{ "lseek", do_seek, "---" },
	{ "stat", do_stat, "---" },
	{ "fchmod", do_fchmod, "--c" },
	{ "rename to itself", do_rename_self, "---" },
};

static void prepare_file(void)
{
	static char data[CONTENT_SIZE];

	fresh();
	fill_pattern(data, sizeof(data), 1);
	make_dir("d", 0755);
	make_content("d/n", data, sizeof(data));
	make_content("source", data, sizeof(data));
}

static void expect_object(const struct file_op *op, const struct stamps *before)
{
	struct stamps now = stamps_now("d/n");
	const char *diff = stamps_diff(before, &now);

	if (op->object)
		check_str(op->object, diff + 3 - strlen(op->object), SITE("stamps of d/n"));
	if (!op->object || strlen(op->object) < 3)
		record_str(diff, SITE("stamps of d/n"));
}

static void file_case(const struct file_op *op)
{
	int fd = (int)MUST(open("d/n", O_RDWR));
	struct stamps object = stamps_age("d/n"), dir = stamps_age("d");

	ctx("%s", op->name);
	EXPECT(0, op->run(fd));
	expect_object(op, &object);
	EXPECT_STAMPS("---", &dir, "d");
	MUST(close(fd));
	/* Closing adds nothing. */
	expect_object(op, &object);
}

static void test_file(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_ops); i++) {
		prepare_file();
		file_case(&file_ops[i]);
	}
}

/* The same on an empty file, where some of them have nothing to do. */
static void test_empty_file(void)
{
	static const struct file_op cases[] = {
		{ "open O_TRUNC", do_open_trunc, "-mc" },
		{ "creat", do_creat, "-mc" },
		{ "write", do_write, "-mc" },
		{ "write of 0 bytes", do_write_nothing, "---" },
		{ "truncate to more", do_truncate_more, "-mc" },
		{ "fallocate", do_fallocate, "-mc" },
		{ "fsync", do_fsync, "---" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fresh();
		make_dir("d", 0755);
		make_file("d/n", 0644);
		file_case(&cases[i]);
	}
}

/* Each write counts, not only the first after somebody looked. */
static void test_every_write(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	for (int i = 0; i < 10; i++) {
		struct stamps before = stamps_of_fd(fd), after;

		stamp_tick();
		ctx("write %d", i);
		EXPECT_EQ(1, pwrite(fd, "x", 1, 0));
		after = stamps_of_fd(fd);
		EXPECT_TRUE(stamp_cmp(&after.m, &before.m) > 0);
		EXPECT_TRUE(stamp_cmp(&after.c, &before.c) > 0);
		after = stamps_now("f");
		EXPECT_TRUE(stamp_cmp(&after.m, &before.m) > 0);
	}
}

/* Reading may update the access time, and nothing else. */
static long do_read(int fd)
{
	char buf[100];

	return read(fd, buf, sizeof(buf));
}

static long do_read_at_end(int fd)
{
	char c;

	return pread(fd, &c, 1, CONTENT_SIZE);
}

static long do_map_load(int fd)
{
	volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	long c;

	MUST(map == MAP_FAILED ? -1 : 0);
	c = map[0];
	MUST(munmap((void *)map, 4096));
	return c == -1 ? 0 : c;
}

static const struct file_op read_ops[] = {
	{ "read", do_read, "--" },
	{ "read at the end", do_read_at_end, "--" },
	{ "mapping", do_map_load, "--" },
	{ "private store", do_private_store, "--" },
	{ "copy_file_range from", do_copy_from, "--" },
};

static void test_read(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(read_ops); i++) {
		prepare_file();
		file_case(&read_ops[i]);
	}
}

static const struct test tests[] = {
	{ "change", test_file, 0 },
	{ "empty", test_empty_file, 0 },
	{ "every_write", test_every_write, 0 },
	{ "read", test_read, 0 },
};

AREA(times_file);
