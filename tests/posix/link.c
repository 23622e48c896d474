// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * link.c - hard links: counts, identity, flags, refusals
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All names are the same object, and the count follows. */
static void test_counts(void)
{
	for_each_type(t) {
		long long ino;

		if (t == NODE_DIR)
			continue;
		fresh();
		ctx("%s", node_name(t));
		node_make(t, "a", 0644);
		make_dir("d", 0755);
		ino = ino_of("a");
		EXPECT_EQ(1, nlink_of("a"));
		EXPECT(0, link("a", "b"));
		EXPECT_EQ(2, nlink_of("a"));
		EXPECT_EQ(2, nlink_of("b"));
		EXPECT_SAME(ino, ino_of("b"));
		EXPECT_OCT(node_ifmt(t), type_of("b"));
		EXPECT(0, link("b", "d/c"));
		EXPECT_EQ(3, nlink_of("a"));
		EXPECT_EQ(3, nlink_of("d/c"));
		EXPECT_SAME(ino, ino_of("d/c"));
		EXPECT(0, unlink("a"));
		EXPECT_EQ(2, nlink_of("b"));
		EXPECT(ENOENT, link("a", "x"));
		EXPECT(0, rename("b", "d/c"));
		EXPECT_EQ(2, nlink_of("b"));
		EXPECT(0, unlink("b"));
		EXPECT_EQ(1, nlink_of("d/c"));
		EXPECT(0, unlink("d/c"));
		EXPECT(0, rmdir("d"));
	}
}

/* Attributes and contents belong to the object, not to a name. */
static void test_shared(void)
{
	int fd;

	make_content("a", "one", 3);
	MUST(link("a", "b"));
	EXPECT(0, chmod("b", 0601));
	EXPECT_OCT(0601, mode_of("a"));
	fd = (int)MUST(open("b", O_WRONLY | O_APPEND));
	EXPECT_EQ(3, write(fd, "two", 3));
	EXPECT_TRUE(content_is("a", "onetwo", 6));
	EXPECT(0, truncate("a", 1));
	EXPECT_TRUE(content_is("b", "o", 1));
	EXPECT(0, unlink("a"));
	EXPECT_EQ(3, write(fd, "xyz", 3));
	EXPECT_TRUE(content_is("b", "oxyz", 4));
}

/* The new name must be free, whatever holds it; both stay as they were. */
static void test_exists(void)
{
	for_each_type(from) {
		for_each_type(to) {
			long long ino;

			if (from == NODE_DIR)
				continue;
			fresh();
			node_make(from, "a", 0644);
			node_make(to, "b", 0644);
			ino = ino_of("b");
			ctx("%s to %s", node_name(from), node_name(to));
			EXPECT(EEXIST, link("a", "b"));
			EXPECT_EQ(1, nlink_of("a"));
			EXPECT_SAME(ino, ino_of("b"));
		}
		if (from != NODE_DIR)
			EXPECT(EEXIST, link("a", "a"));
	}
}

/* Not even root links directories. */
static void test_directory(void)
{
	make_dir("d", 0755);
	make_dir("e", 0755);
	EXPECT(EPERM, link("d", "x"));
	EXPECT(EPERM, link("d", "e/x"));
	EXPECT(EPERM, link(".", "x"));
	EXPECT(EPERM, link("d/.", "e/x"));
	EXPECT(EPERM, link("d/", "x"));
	EXPECT(EEXIST, link("d", "e"));
	EXPECT(ENOENT, exists("x"));
	EXPECT_EQ(2, nlink_of("d"));
}

/* link() takes the symlink itself unless told to follow it. */
static void test_symlink(void)
{
	make_file("f", 0644);
	MUST(symlink("f", "l"));
	EXPECT(0, link("l", "m"));
	EXPECT_OCT(S_IFLNK, type_of("m"));
	EXPECT_SAME(ino_of("l"), ino_of("m"));
	EXPECT_EQ(2, nlink_of("l"));
	EXPECT_EQ(1, nlink_of("f"));
	EXPECT(0, linkat(AT_FDCWD, "l", AT_FDCWD, "n", AT_SYMLINK_FOLLOW));
	EXPECT_SAME(ino_of("f"), ino_of("n"));
	EXPECT_EQ(2, nlink_of("f"));
	EXPECT(0, unlink("f"));
	EXPECT(ENOENT, linkat(AT_FDCWD, "l", AT_FDCWD, "o", AT_SYMLINK_FOLLOW));
	EXPECT(0, link("l", "o"));
	EXPECT_EQ(3, nlink_of("o"));
}

static void test_flags(void)
{
	int fd;

	make_file("f", 0644);
	EXPECT(EINVAL, linkat(AT_FDCWD, "f", AT_FDCWD, "x", AT_SYMLINK_NOFOLLOW));
	EXPECT(EINVAL, linkat(AT_FDCWD, "f", AT_FDCWD, "x", 0x40000000));
	EXPECT(ENOENT, linkat(AT_FDCWD, "", AT_FDCWD, "x", 0));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, linkat(AT_FDCWD, "f", AT_FDCWD, "y", AT_EMPTY_PATH));
	RECORD(linkat(fd, "", AT_FDCWD, "z", AT_EMPTY_PATH));
	RECORD_EQ(nlink_of("f"));
}

/* A file that has no name any more gets none this way. */
static void test_unlinked(void)
{
	char proc[64];
	int fd = (int)MUST(open("f", O_CREAT | O_RDWR, 0600));

	MUST(unlink("f"));
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	EXPECT(ENOENT, linkat(AT_FDCWD, proc, AT_FDCWD, "g", AT_SYMLINK_FOLLOW));
	EXPECT(ENOENT, exists("g"));
}

static bool links_protected(void)
{
	FILE *f = fopen("/proc/sys/fs/protected_hardlinks", "r");
	int c = f ? fgetc(f) : '0';

	if (f)
		fclose(f);
	return c == '1';
}

/*
 * The kernel's fs.protected_hardlinks: not of files that one neither owns nor may write. That is
 * decided from what the filesystem says about owner, type and mode.
 */
static void test_protected(void)
{
	int want = links_protected() ? EPERM : 0;

	make_dir("d", 0777);
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		for_each_type(t) {
			bool fine = a == &actor_owner || t == NODE_REG;

			if (t == NODE_DIR)
				continue;
			node_make(t, "n", 0666);
			give("n");
			ctx("%s as %s", node_name(t), a->name);
			EXPECT_AS(a, fine ? 0 : want, link("n", "d/l"));
			node_remove("d/l");
			if (t == NODE_REG) {
				MUST(chmod("n", 0644));
				EXPECT_AS(a, a == &actor_owner ? 0 : want, link("n", "d/l"));
				node_remove("d/l");
				MUST(chmod("n", 04777));
				EXPECT_AS(a, a == &actor_owner ? 0 : want, link("n", "d/l"));
				node_remove("d/l");
			}
			MUST(node_remove("n"));
		}
	}
}

/* Many names in one directory; each can go in any order. */
static void test_many(void)
{
	char name[16];

	make_content("f", "data", 4);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		MUST(link("f", name));
	}
	EXPECT_EQ(301, nlink_of("f"));
	EXPECT_EQ(301, nlink_of("l299"));
	for (int i = 0; i < 300; i += 2) {
		snprintf(name, sizeof(name), "l%d", i);
		MUST(unlink(name));
	}
	EXPECT_EQ(151, nlink_of("l299"));
	EXPECT_EQ(151, count_entries("."));
	EXPECT_TRUE(content_is("l1", "data", 4));
}

static const struct test tests[] = {
	{ "counts", test_counts, 0 },	  { "shared", test_shared, 0 },
	{ "exists", test_exists, 0 },	  { "directory", test_directory, 0 },
	{ "symlink", test_symlink, 0 },	  { "flags", test_flags, 0 },
	{ "unlinked", test_unlinked, 0 }, { "protected", test_protected, NEED_ROOT },
	{ "many", test_many, 0 },
};

AREA(link);
