// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rename.c - rename and renameat2: every type over every type, link counts, flags, refusals
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RENAME_UNKNOWN (1u << 20)

static int rename_flags(const char *from, const char *to, unsigned int flags)
{
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* Two directories "p" and "q"; where the rename goes decides the target's. */
static void make_parents(void)
{
	fresh();
	make_dir("p", 0755);
	make_dir("q", 0755);
}

/* To a free name, in the same and in another directory. */
static void test_free_name(void)
{
	static const char *const targets[] = { "p/b", "q/b" };

	for_each_type(t) {
		for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
			long long ino;

			make_parents();
			node_make(t, "p/a", 0640);
			ino = ino_of("p/a");
			ctx("%s to %s", node_name(t), targets[i]);
			EXPECT(0, rename("p/a", targets[i]));
			EXPECT(ENOENT, exists("p/a"));
			EXPECT_SAME(ino, ino_of(targets[i]));
			EXPECT_OCT(node_ifmt(t), type_of(targets[i]));
			EXPECT_OCT(t == NODE_LNK ? 0777 : 0640, mode_of(targets[i]));
			EXPECT_EQ(t == NODE_DIR ? 2 : 1, nlink_of(targets[i]));
			EXPECT(ENOENT, rename("p/a", targets[i]));
			EXPECT_EQ(1, count_entries("p") + count_entries("q"));
		}
	}
}

static int over_want(enum node_type from, enum node_type to)
{
	if (from == NODE_DIR)
		return to == NODE_DIR ? 0 : ENOTDIR;
	return to == NODE_DIR ? EISDIR : 0;
}

static void over_case(enum node_type from, enum node_type to, const char *target)
{
	int want = over_want(from, to);
	long long from_ino, to_ino;

	make_parents();
	node_make(from, "p/a", 0644);
	node_make(to, target, 0644);
	from_ino = ino_of("p/a");
	to_ino = ino_of(target);
	ctx("%s over %s %s", node_name(from), node_name(to), target);
	EXPECT(want, rename("p/a", target));
	EXPECT_SAME(want ? to_ino : from_ino, ino_of(target));
	EXPECT_SAME(want ? from_ino : -ENOENT, ino_of("p/a"));
	EXPECT_OCT(node_ifmt(want ? to : from), type_of(target));
	EXPECT_EQ(want ? 2 : 1, count_entries("p") + count_entries("q"));
}

static void test_over(void)
{
	for_each_type(from) {
		for_each_type(to) {
			over_case(from, to, "p/b");
			over_case(from, to, "q/b");
		}
	}
}

/* What is replaced stays alive through its other name. */
static void test_over_linked(void)
{
	for_each_type(t) {
		if (t == NODE_DIR)
			continue;
		make_parents();
		node_make(t, "p/a", 0644);
		node_make(t, "q/b", 0644);
		MUST(link("q/b", "p/c"));
		ctx("%s", node_name(t));
		EXPECT_EQ(2, nlink_of("p/c"));
		EXPECT(0, rename("p/a", "q/b"));
		EXPECT_EQ(1, nlink_of("p/c"));
		EXPECT_EQ(1, nlink_of("q/b"));
	}
}

/* Names of one and the same object: nothing happens, both stay. */
static void test_same_object(void)
{
	static const char *const targets[] = { "p/b", "q/b" };

	for_each_type(t) {
		for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
			make_parents();
			node_make(t, "p/a", 0644);
			ctx("%s, %s", node_name(t), targets[i]);
			EXPECT(0, rename("p/a", "p/a"));
			EXPECT(0, exists("p/a"));
			if (t == NODE_DIR)
				continue;
			MUST(link("p/a", targets[i]));
			EXPECT(0, rename("p/a", targets[i]));
			EXPECT_EQ(2, nlink_of("p/a"));
			EXPECT_EQ(2, nlink_of(targets[i]));
			EXPECT(0, rename(targets[i], "p/a"));
			EXPECT_EQ(2, nlink_of("p/a"));
			EXPECT_SAME(ino_of("p/a"), ino_of(targets[i]));
		}
	}
}

static void test_noreplace(void)
{
	for_each_type(from) {
		for_each_type(to) {
			long long ino;

			make_parents();
			node_make(from, "p/a", 0644);
			node_make(to, "q/b", 0644);
			ino = ino_of("q/b");
			ctx("%s over %s", node_name(from), node_name(to));
			EXPECT(EEXIST, rename_flags("p/a", "q/b", RENAME_NOREPLACE));
			EXPECT_SAME(ino, ino_of("q/b"));
			EXPECT(0, exists("p/a"));
			EXPECT(EEXIST, rename_flags("p/a", "p/a", RENAME_NOREPLACE));
			EXPECT(0, rename_flags("p/a", "q/c", RENAME_NOREPLACE));
			EXPECT(ENOENT, exists("p/a"));
			EXPECT_OCT(node_ifmt(from), type_of("q/c"));
			EXPECT(ENOENT, rename_flags("p/a", "q/c", RENAME_NOREPLACE));
		}
	}
	make_file("f", 0644);
	MUST(link("f", "g"));
	EXPECT(EEXIST, rename_flags("f", "g", RENAME_NOREPLACE));
	EXPECT_EQ(2, nlink_of("f"));
}

static void exchange_case(enum node_type from, enum node_type to, const char *target)
{
	long long from_ino, to_ino;
	int dirs;

	make_parents();
	node_make(from, "p/a", 0755);
	node_make(to, target, 0700);
	from_ino = ino_of("p/a");
	to_ino = ino_of(target);
	ctx("%s and %s %s", node_name(from), node_name(to), target);
	EXPECT(0, rename_flags("p/a", target, RENAME_EXCHANGE));
	EXPECT_SAME(to_ino, ino_of("p/a"));
	EXPECT_SAME(from_ino, ino_of(target));
	EXPECT_OCT(node_ifmt(to), type_of("p/a"));
	EXPECT_OCT(node_ifmt(from), type_of(target));
	dirs = (type_of("p/a") == S_IFDIR) + (target[0] == 'p' && type_of(target) == S_IFDIR);
	EXPECT_EQ(2 + dirs, nlink_of("p"));
	if (to == NODE_DIR)
		EXPECT_SAME(ino_of("p"), ino_of("p/a/.."));
	if (from == NODE_DIR && target[0] == 'q')
		EXPECT_SAME(ino_of("q"), ino_of("q/b/.."));
}

static void test_exchange(void)
{
	for_each_type(from) {
		for_each_type(to) {
			exchange_case(from, to, "p/b");
			exchange_case(from, to, "q/b");
		}
	}
}

static void test_exchange_more(void)
{
	make_dir("d", 0755);
	make_file("d/f", 0644);
	make_dir("e", 0755);
	make_file("f", 0644);
	EXPECT(ENOENT, rename_flags("f", "missing", RENAME_EXCHANGE));
	EXPECT(ENOENT, rename_flags("missing", "f", RENAME_EXCHANGE));
	EXPECT(0, rename_flags("d", "e", RENAME_EXCHANGE));
	EXPECT(0, exists("e/f"));
	EXPECT(ENOENT, exists("d/f"));
	EXPECT(0, rename_flags("e", "f", RENAME_EXCHANGE));
	EXPECT(0, exists("f/f"));
	EXPECT_OCT(S_IFREG, type_of("e"));
	EXPECT(0, rename_flags("f", "f", RENAME_EXCHANGE));
	EXPECT(EINVAL, rename_flags("f", "f/f", RENAME_EXCHANGE));
	EXPECT(EINVAL, rename_flags("f/f", "f", RENAME_EXCHANGE));
	EXPECT(EBUSY, rename_flags(".", "f", RENAME_EXCHANGE));
}

static void test_bad_flags(void)
{
	make_file("a", 0644);
	make_file("b", 0644);
	EXPECT(EINVAL, rename_flags("a", "c", RENAME_NOREPLACE | RENAME_EXCHANGE));
	EXPECT(EINVAL, rename_flags("a", "b", RENAME_EXCHANGE | RENAME_WHITEOUT));
	EXPECT(EINVAL, rename_flags("a", "c", RENAME_UNKNOWN));
	EXPECT(0, exists("a"));
	EXPECT(ENOENT, exists("c"));
	RECORD(rename_flags("a", "c", RENAME_WHITEOUT));
}

/* A directory is replaced only while it is empty. */
static void test_over_not_empty(void)
{
	for_each_type(t) {
		make_parents();
		make_dir("p/a", 0755);
		make_file("p/a/x", 0644);
		make_dir("q/b", 0755);
		node_make(t, "q/b/n", 0644);
		ctx("holding %s", node_name(t));
		EXPECT2(ENOTEMPTY, EEXIST, rename("p/a", "q/b"));
		EXPECT(0, exists("q/b/n"));
		EXPECT(0, exists("p/a/x"));
		EXPECT(EISDIR, rename("p/a/x", "q/b"));
		EXPECT(0, rename("q/b/n", "q/n"));
		EXPECT(0, rename("p/a", "q/b"));
		EXPECT(0, exists("q/b/x"));
		EXPECT_EQ(2, nlink_of("p"));
	}
}

/* A directory cannot become its own descendant, nor replace an ancestor. */
static void test_own_subdirectory(void)
{
	make_dir("a", 0755);
	make_dir("a/b", 0755);
	make_dir("a/b/c", 0755);
	MUST(symlink("a/b", "l"));
	EXPECT(EINVAL, rename("a", "a/x"));
	EXPECT(EINVAL, rename("a", "a/b"));
	EXPECT(EINVAL, rename("a", "a/b/x"));
	EXPECT(EINVAL, rename("a", "a/b/c"));
	EXPECT(EINVAL, rename("a", "l/x"));
	EXPECT(EINVAL, rename("a/b", "a/b/c/x"));
	EXPECT(EINVAL, rename_flags("a", "a/x", RENAME_NOREPLACE));
	EXPECT2(ENOTEMPTY, EEXIST, rename("a/b/c", "a"));
	EXPECT2(ENOTEMPTY, EEXIST, rename("a/b/c", "a/b"));
	EXPECT(0, rename("a/b/c", "c"));
	EXPECT(0, rename("a/b", "c/b"));
	EXPECT(0, rename("a", "c/b/a"));
	EXPECT(0, exists("c/b/a"));
}

/* "." and ".." can be neither end. */
static void test_dots(void)
{
	static const char *const dots[] = { ".", "..", "d/.", "d/..", "./", "../", "d/./" };

	make_dir("d", 0755);
	make_dir("e", 0755);
	make_file("f", 0644);
	for (size_t i = 0; i < ARRAY_SIZE(dots); i++) {
		ctx("%s", dots[i]);
		EXPECT(EBUSY, rename(dots[i], "x"));
		EXPECT(EBUSY, rename(dots[i], "e"));
		EXPECT(EBUSY, rename("e", dots[i]));
		EXPECT(EBUSY, rename("f", dots[i]));
		EXPECT(EEXIST, rename_flags("e", dots[i], RENAME_NOREPLACE));
		EXPECT(EBUSY, rename_flags("e", dots[i], RENAME_EXCHANGE));
	}
	EXPECT(0, rename("./e", "./d/../x"));
	EXPECT(0, exists("x"));
}

/* A slash at the end says "directory", of either name. */
static void test_slashes(void)
{
	make_dir("d", 0755);
	make_file("f", 0644);
	MUST(symlink("d", "l"));
	MUST(symlink("nowhere", "m"));
	EXPECT(ENOTDIR, rename("f/", "x"));
	EXPECT(ENOTDIR, rename("f", "x/"));
	EXPECT(ENOTDIR, rename("f", "d/"));
	EXPECT(ENOTDIR, rename("l/", "x"));
	EXPECT(ENOTDIR, rename("l", "x/"));
	EXPECT(ENOTDIR, rename("d", "l/"));
	EXPECT(ENOTDIR, rename("d", "m/"));
	EXPECT(ENOTDIR, rename("d/", "f/"));
	EXPECT(0, rename("d/", "e"));
	EXPECT(0, rename("e", "d/"));
	EXPECT(0, rename("d//", "e//"));
	make_dir("g", 0755);
	EXPECT(0, rename("e/", "g/"));
	EXPECT(ENOENT, exists("e"));
	EXPECT_OCT(S_IFDIR, type_of("g"));
	EXPECT(ENOTDIR, rename_flags("f/", "g", RENAME_EXCHANGE));
	EXPECT(ENOTDIR, rename_flags("g", "f/", RENAME_EXCHANGE));
}

/* A symlink is renamed and replaced itself. */
static void test_symlink(void)
{
	make_file("f", 0644);
	make_dir("d", 0755);
	MUST(symlink("f", "l"));
	EXPECT(0, rename("l", "m"));
	EXPECT_OCT(S_IFLNK, type_of("m"));
	MUST(symlink("d", "n"));
	EXPECT(0, rename("f", "n"));
	EXPECT_OCT(S_IFREG, type_of("n"));
	EXPECT_EQ(0, count_entries("d"));
	MUST(symlink("d", "o"));
	EXPECT(ENOTDIR, rename("d", "o"));
	EXPECT(0, rename("n", "o"));
	EXPECT_OCT(S_IFREG, type_of("o"));
}

/* Link counts of parents, and "..", follow directories around. */
static void test_dir_counts(void)
{
	make_parents();
	make_dir("p/d", 0755);
	make_dir("p/d/e", 0755);
	EXPECT_EQ(3, nlink_of("p"));
	EXPECT_EQ(2, nlink_of("q"));
	EXPECT_EQ(3, nlink_of("p/d"));
	EXPECT(0, rename("p/d", "q/d"));
	EXPECT_EQ(2, nlink_of("p"));
	EXPECT_EQ(3, nlink_of("q"));
	EXPECT_EQ(3, nlink_of("q/d"));
	EXPECT_SAME(ino_of("q"), ino_of("q/d/.."));
	EXPECT_SAME(ino_of("q/d"), ino_of("q/d/e/.."));
	EXPECT(0, rename("q/d", "q/x"));
	EXPECT_EQ(3, nlink_of("q"));
	make_dir("p/d", 0755);
	EXPECT(0, rename("q/x/e", "p/d"));
	EXPECT_EQ(3, nlink_of("p"));
	EXPECT_EQ(2, nlink_of("q/x"));
	EXPECT_SAME(ino_of("p"), ino_of("p/d/.."));
	make_file("p/f", 0644);
	EXPECT(0, rename_flags("q/x", "p/f", RENAME_EXCHANGE));
	EXPECT_EQ(4, nlink_of("p"));
	EXPECT_EQ(2, nlink_of("q"));
	EXPECT_SAME(ino_of("p"), ino_of("p/f/.."));
}

/* What was open, mapped or a current directory under the old name still is under the new one. */
static void test_open(void)
{
	int fd, dir;

	make_parents();
	make_content("p/f", "hello", 5);
	fd = (int)MUST(open("p/f", O_RDWR | O_APPEND));
	dir = (int)MUST(open("p", O_RDONLY | O_DIRECTORY));
	EXPECT(0, rename("p/f", "q/g"));
	EXPECT_EQ(1, write(fd, "!", 1));
	EXPECT_TRUE(content_is("q/g", "hello!", 6));
	EXPECT(0, rename("q", "p/q"));
	EXPECT_EQ(1, write(fd, "?", 1));
	EXPECT_TRUE(content_is("p/q/g", "hello!?", 7));
	EXPECT(0, chdir("p/q"));
	EXPECT(0, renameat(dir, "q", dir, "r"));
	EXPECT(0, exists("g"));
	EXPECT(0, exists("../r/g"));
	make_file("new", 0644);
	EXPECT(0, faccessat(dir, "r/new", F_OK, 0));
	EXPECT(0, fchdir(dir));
	EXPECT_EQ(1, count_entries("."));
}

/* The replaced directory, if open, is empty and dead. */
static void test_over_open_dir(void)
{
	struct stat st;
	int dir;

	make_dir("d", 0755);
	make_dir("e", 0755);
	make_file("e/f", 0644);
	dir = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	EXPECT(0, rename("e", "d"));
	EXPECT(0, fstat(dir, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT(ENOENT, faccessat(dir, "f", F_OK, 0));
	EXPECT(ENOENT, mkdirat(dir, "x", 0755));
	EXPECT(0, exists("d/f"));
}

/* A deep tree moves as a whole. */
static void test_tree(void)
{
	char path[64];

	make_parents();
	make_dir("p/t", 0755);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "p/t/d%d", i);
		make_dir(path, 0755);
		snprintf(path, sizeof(path), "p/t/d%d/f", i);
		make_content(path, path, strlen(path));
	}
	EXPECT(0, rename("p/t", "q/u"));
	for (int i = 0; i < 20; i++) {
		char was[64];

		snprintf(was, sizeof(was), "p/t/d%d/f", i);
		snprintf(path, sizeof(path), "q/u/d%d/f", i);
		ctx("%s", path);
		EXPECT_TRUE(content_is(path, was, strlen(was)));
		EXPECT(ENOENT, exists(was));
	}
	EXPECT_EQ(22, nlink_of("q/u"));
}

/* Replacing is atomic: whoever opens the name at any time finds a whole file. */
static int open_often(void *arg)
{
	volatile int *stop = arg;
	char buf[64];
	int opened = 0;

	while (!*stop || opened < 10) {
		int fd = open("f", O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

		if (n != 40)
			return fd < 0 ? errno : 127;
		for (int i = 1; i < 40; i++)
			if (buf[i] != buf[0])
				return 126;
		close(fd);
		opened++;
	}
	return 0;
}

static void test_atomic(void)
{
	volatile int *stop = shared_int();
	char data[40];
	pid_t pid;

	memset(data, 'a', sizeof(data));
	make_content("f", data, sizeof(data));
	pid = spawn(open_often, (void *)stop);
	for (int i = 0; i < 500; i++) {
		memset(data, 'a' + i % 26, sizeof(data));
		make_content("g", data, sizeof(data));
		MUST(rename("g", "f"));
	}
	*stop = 1;
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(1, count_entries("."));
}

static const struct test tests[] = {
	{ "free_name", test_free_name, 0 },
	{ "over", test_over, 0 },
	{ "over_linked", test_over_linked, 0 },
	{ "same_object", test_same_object, 0 },
	{ "noreplace", test_noreplace, 0 },
	{ "exchange", test_exchange, 0 },
	{ "exchange_more", test_exchange_more, 0 },
	{ "bad_flags", test_bad_flags, 0 },
	{ "over_not_empty", test_over_not_empty, 0 },
	{ "own_subdirectory", test_own_subdirectory, 0 },
	{ "dots", test_dots, 0 },
	{ "slashes", test_slashes, 0 },
	{ "symlink", test_symlink, 0 },
	{ "dir_counts", test_dir_counts, 0 },
	{ "open", test_open, 0 },
	{ "over_open_dir", test_over_open_dir, 0 },
	{ "tree", test_tree, 0 },
	{ "atomic", test_atomic, 0 },
};

AREA(rename);
