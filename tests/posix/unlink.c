// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * unlink.c - unlink, and files that go on living without a name
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void test_types(void)
{
	for_each_type(t) {
		int want = t == NODE_DIR ? EISDIR : 0;

		node_make(t, "n", 0);
		ctx("%s", node_name(t));
		EXPECT(want, unlink("n"));
		EXPECT(want ? 0 : ENOENT, exists("n"));
		EXPECT(want ? EISDIR : ENOENT, unlink("n"));
		if (want)
			EXPECT(0, rmdir("n"));
	}
}

/* Only the symlink goes, not what it leads to. */
static void test_symlink(void)
{
	make_file("f", 0644);
	make_dir("d", 0755);
	make_file("d/f", 0644);
	MUST(symlink("f", "l"));
	MUST(symlink("d", "m"));
	EXPECT(0, unlink("l"));
	EXPECT(0, exists("f"));
	EXPECT(0, unlink("m/f"));
	EXPECT(ENOENT, exists("d/f"));
	EXPECT(0, unlink("m"));
	EXPECT(0, exists("d"));
}

/* Everything a descriptor could do, it still can. */
static void test_open_file(void)
{
	struct stat st;
	int fd;

	make_dir("d", 0755);
	fd = (int)MUST(open("d/f", O_RDWR | O_CREAT, 0644));
	MUST(write(fd, "hello", 5));
	EXPECT(0, unlink("d/f"));
	EXPECT_EQ(0, count_entries("d"));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT_EQ(5, st.st_size);
	EXPECT_TRUE(fd_content_is(fd, 0, "hello", 5));
	EXPECT_EQ(6, write(fd, " world", 6));
	EXPECT_TRUE(fd_content_is(fd, 0, "hello world", 11));
	EXPECT(0, ftruncate(fd, 4));
	EXPECT(0, fallocate(fd, 0, 0, 10000));
	EXPECT(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1, 1));
	EXPECT_TRUE(fd_content_is(fd, 0, "h\0ll\0", 5));
	EXPECT(0, fchmod(fd, 0600));
	EXPECT(0, futimens(fd, NULL));
	EXPECT(0, fsync(fd));
	EXPECT(0, fdatasync(fd));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(10000, st.st_size);
	EXPECT_OCT(0600, st.st_mode & 07777);
	EXPECT(0, rmdir("d"));
	EXPECT_EQ(1, pwrite(fd, "x", 1, 20000));
	EXPECT_EQ(0, count_entries("."));
	EXPECT(0, close(fd));
}

/* The name is free at once, for an object of any type, and the old file is not disturbed. */
static void test_name_free(void)
{
	for_each_type(t) {
		int fd;

		fresh();
		ctx("%s", node_name(t));
		fd = (int)MUST(open("n", O_RDWR | O_CREAT, 0644));
		MUST(write(fd, "old", 3));
		EXPECT(0, unlink("n"));
		EXPECT(0, node_create(t, "n", 0644));
		EXPECT_OCT(node_ifmt(t), type_of("n"));
		EXPECT_EQ(1, count_entries("."));
		EXPECT_TRUE(fd_content_is(fd, 0, "old", 3));
		MUST(close(fd));
		EXPECT(0, node_remove("n"));
	}
}

/* Two descriptors, and a mapping, share the nameless file. */
static void test_open_twice(void)
{
	struct stat st;
	char *map;
	int a, b;

	a = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));
	b = (int)MUST(open("f", O_RDONLY));
	MUST(ftruncate(a, 4096));
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
	MUST(map == MAP_FAILED ? -1 : 0);
	EXPECT(0, unlink("f"));
	EXPECT_EQ(3, pwrite(a, "abc", 3, 0));
	EXPECT_TRUE(fd_content_is(b, 0, "abc", 3));
	EXPECT_TRUE(memcmp(map, "abc", 3) == 0);
	map[1] = 'X';
	EXPECT_TRUE(fd_content_is(b, 0, "aXc", 3));
	MUST(close(a));
	EXPECT(0, fstat(b, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT_TRUE(fd_content_is(b, 0, "aXc", 3));
	MUST(close(b));
	EXPECT_EQ('X', map[1]);
	map[2] = 'Y';
	EXPECT(0, msync(map, 4096, MS_SYNC));
}

/* With a second name the file goes on as usual. */
static void test_other_name(void)
{
	struct stat st;
	int fd;

	make_content("f", "hello", 5);
	MUST(link("f", "g"));
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT(0, unlink("f"));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(1, st.st_nlink);
	EXPECT_EQ(6, pwrite(fd, "HELLO!", 6, 0));
	EXPECT_TRUE(content_is("g", "HELLO!", 6));
	EXPECT(0, unlink("g"));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT_TRUE(fd_content_is(fd, 0, "HELLO!", 6));
}

/* The one that rename() replaced lives on, too. */
static void test_replaced(void)
{
	struct stat st;
	int fd;

	make_content("f", "old", 3);
	make_content("g", "new", 3);
	fd = (int)MUST(open("f", O_RDWR));
	EXPECT(0, rename("g", "f"));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT_TRUE(fd_content_is(fd, 0, "old", 3));
	EXPECT_EQ(4, pwrite(fd, "OLD!", 4, 0));
	EXPECT_TRUE(content_is("f", "new", 3));
	EXPECT_TRUE(fd_content_is(fd, 0, "OLD!", 4));
	EXPECT_EQ(1, count_entries("."));
}

static void test_xattr(void)
{
	char buf[8];
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	MUST(fsetxattr(fd, "user.a", "1", 1, 0));
	MUST(unlink("f"));
	EXPECT_EQ(1, fgetxattr(fd, "user.a", buf, sizeof(buf)));
	EXPECT(0, fsetxattr(fd, "user.b", "22", 2, 0));
	EXPECT_EQ(2, fgetxattr(fd, "user.b", buf, sizeof(buf)));
	EXPECT(0, fremovexattr(fd, "user.a"));
}

/* Hidden stand-ins for open files would show here. */
static void test_no_stand_ins(void)
{
	char name[32];
	int fds[50];

	make_dir("d", 0755);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		snprintf(name, sizeof(name), "d/f%zu", i);
		fds[i] = (int)MUST(open(name, O_RDWR | O_CREAT, 0644));
		MUST(write(fds[i], name, strlen(name)));
		MUST(unlink(name));
	}
	EXPECT_EQ(0, count_entries("d"));
	EXPECT(0, rmdir("d"));
	EXPECT_EQ(0, count_entries("."));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		snprintf(name, sizeof(name), "d/f%zu", i);
		ctx("file %zu", i);
		EXPECT_TRUE(fd_content_is(fds[i], 0, name, strlen(name)));
		MUST(close(fds[i]));
	}
}

static int remove_until_gone(void *arg)
{
	int removed = 0;

	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		if (unlink(name) == 0)
			removed++;
		else if (errno != ENOENT)
			return 127;
	}
	__atomic_fetch_add((volatile int *)arg, removed, __ATOMIC_SEQ_CST);
	return 0;
}

/* Several processes remove the same names; each goes once. */
static void test_race(void)
{
	volatile int *removed = shared_int();
	pid_t pids[3];
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		make_file(name, 0644);
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = spawn(remove_until_gone, (void *)removed);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		EXPECT_EQ(0, reap(pids[i]));
	EXPECT_EQ(100, *removed);
	EXPECT_EQ(0, count_entries("."));
}

static const struct test tests[] = {
	{ "types", test_types, 0 },
	{ "symlink", test_symlink, 0 },
	{ "open_file", test_open_file, 0 },
	{ "name_free", test_name_free, 0 },
	{ "open_twice", test_open_twice, 0 },
	{ "other_name", test_other_name, 0 },
	{ "replaced", test_replaced, 0 },
	{ "xattr", test_xattr, NEED_XATTR },
	{ "no_stand_ins", test_no_stand_ins, 0 },
	{ "race", test_race, 0 },
};

AREA(unlink);
