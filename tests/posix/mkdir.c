// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mkdir.c - mkdir and rmdir: modes, link counts of parents, what stands in the way
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Permission bits and the sticky bit are taken, reduced by the umask; set-id bits are not. */
static void test_modes(void)
{
	static const mode_t modes[] = { 0,     0111,  0222,  0444,  0700, 0755, 0777,
					01777, 02777, 04777, 07777, 0151, 0345 };
	static const mode_t masks[] = { 0, 022, 027, 077, 0777, 0501, 0111 };

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(masks); j++) {
			ctx("mode %o, umask %o", modes[i], masks[j]);
			umask(masks[j]);
			EXPECT(0, mkdir("d", modes[i]));
			umask(022);
			EXPECT_OCT(modes[i] & ~masks[j] & 01777, mode_of("d"));
			MUST(rmdir("d"));
		}
	}
}

/* A new directory is empty and has two links, and its parent one more. */
static void test_counts(void)
{
	char name[16];

	make_dir("p", 0755);
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "p/d%d", i);
		ctx("%d", i);
		EXPECT(0, mkdir(name, 0755));
		EXPECT_EQ(2, nlink_of(name));
		EXPECT_EQ(3 + i, nlink_of("p"));
		EXPECT_EQ(0, count_entries(name));
	}
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "p/d%d", i);
		EXPECT(0, rmdir(name));
		EXPECT_EQ(11 - i, nlink_of("p"));
		EXPECT(ENOENT, rmdir(name));
	}
}

static void test_dots(void)
{
	make_dir("d", 0755);
	make_dir("d/e", 0755);
	EXPECT_SAME(ino_of("d"), ino_of("d/."));
	EXPECT_SAME(ino_of("d"), ino_of("d/e/.."));
	EXPECT_SAME(ino_of("."), ino_of("d/.."));
	EXPECT_SAME(ino_of("d/e"), ino_of("d/e/."));
	EXPECT(EINVAL, rmdir("d/e/."));
	EXPECT(ENOTEMPTY, rmdir("d/e/.."));
	EXPECT(EINVAL, rmdir("."));
	EXPECT(ENOTEMPTY, rmdir(".."));
	EXPECT(0, rmdir("d/e/"));
	EXPECT(0, rmdir("d//"));
}

static void test_slashes(void)
{
	EXPECT(0, mkdir("d/", 0755));
	EXPECT(0, mkdir("d//e///", 0755));
	EXPECT(0, exists("d/e"));
	EXPECT(EEXIST, mkdir("d/", 0755));
	EXPECT(EEXIST, mkdir("d/e/.", 0755));
	EXPECT(ENOENT, mkdir("d/x/.", 0755));
}

/* Anything inside keeps a directory. */
static void test_not_empty(void)
{
	for_each_type(t) {
		fresh();
		make_dir("d", 0755);
		node_make(t, "d/n", 0644);
		ctx("%s", node_name(t));
		EXPECT2(ENOTEMPTY, EEXIST, rmdir("d"));
		EXPECT(0, exists("d/n"));
		EXPECT2(ENOTEMPTY, EEXIST, unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
		EXPECT(0, rename("d/n", "d/m"));
		EXPECT2(ENOTEMPTY, EEXIST, rmdir("d"));
		EXPECT(0, rename("d/m", "m"));
		EXPECT(0, rmdir("d"));
		EXPECT(ENOENT, exists("d"));
	}
}

/* Names that were removed or renamed away do not count. */
static void test_emptied(void)
{
	char name[32];

	make_dir("d", 0755);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "d/file%d", i);
		make_file(name, 0644);
	}
	EXPECT2(ENOTEMPTY, EEXIST, rmdir("d"));
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "d/file%d", i);
		MUST(unlink(name));
	}
	EXPECT(0, rmdir("d"));
	EXPECT(0, mkdir("d", 0755));
	EXPECT_EQ(0, count_entries("d"));
}

/* The current directory can go; nothing can be made in it then. */
static void test_current(void)
{
	char buf[256];

	make_dir("d", 0755);
	MUST(chdir("d"));
	EXPECT(0, rmdir("../d"));
	EXPECT(ENOENT, closing(open("f", O_CREAT | O_WRONLY, 0644)));
	EXPECT(ENOENT, mkdir("x", 0755));
	EXPECT(ENOENT, symlink("x", "y"));
	EXPECT(ENOENT, mkfifo("x", 0644));
	EXPECT(ENOENT, (getcwd(buf, sizeof(buf)) ? 0 : -1));
	EXPECT_EQ(0, nlink_of("."));
	EXPECT_OCT(S_IFDIR, type_of("."));
	EXPECT(EINVAL, rmdir("."));
	EXPECT(0, chdir(".."));
	EXPECT(ENOENT, exists("d"));
}

/* A directory made again under the same name is another one. */
static void test_again(void)
{
	struct stat st;
	int fd;

	for (int i = 0; i < 20; i++) {
		ctx("round %d", i);
		EXPECT(0, mkdir("d", 0755));
		fd = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
		EXPECT(0, mkdirat(fd, "sub", 0755));
		EXPECT(0, rmdir("d/sub"));
		EXPECT(0, rmdir("d"));
		EXPECT(0, fstat(fd, &st));
		EXPECT_EQ(0, st.st_nlink);
		EXPECT(ENOENT, mkdirat(fd, "sub", 0755));
		MUST(close(fd));
	}
}

static const struct test tests[] = {
	{ "modes", test_modes, 0 },	    { "counts", test_counts, 0 },
	{ "dots", test_dots, 0 },	    { "slashes", test_slashes, 0 },
	{ "not_empty", test_not_empty, 0 }, { "emptied", test_emptied, 0 },
	{ "current", test_current, 0 },	    { "again", test_again, 0 },
};

AREA(mkdir);
