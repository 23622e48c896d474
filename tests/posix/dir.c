// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dir.c - reading directories: completeness, types, positions, changes while reading
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY 2000

static void make_many(const char *dir, int count)
{
	char path[64];

	make_dir(dir, 0755);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/entry-%d", dir, i);
		MUST(mknod(path, S_IFREG | 0644, 0));
	}
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* How often each entry-N was seen, from where dir stands; returns how many other names were. */
static int tally_entries(DIR *dir, unsigned char *seen, int count)
{
	struct dirent *de;
	int others = 0, n;

	memset(seen, 0, (size_t)count);
	while ((de = readdir(dir))) {
		if (sscanf(de->d_name, "entry-%d", &n) == 1 && n >= 0 && n < count)
			seen[n]++;
		else if (!is_dots(de->d_name))
			others++;
	}
	return others;
}

/* How many of seen[] differ from want. */
static int count_not(const unsigned char *seen, int from, int to, unsigned char want)
{
	int n = 0;

	for (int i = from; i < to; i++)
		n += seen[i] != want;
	return n;
}

static void test_complete(void)
{
	static const int counts[] = { 0, 1, 2, 10, 100, 300, MANY };
	static unsigned char seen[MANY];

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		DIR *dir;

		fresh();
		make_many("d", counts[i]);
		dir = MUST_PTR(opendir("d"));
		ctx("%d entries", counts[i]);
		EXPECT_EQ(0, tally_entries(dir, seen, MANY));
		EXPECT_EQ(0, count_not(seen, 0, counts[i], 1));
		EXPECT_EQ(0, count_not(seen, counts[i], MANY, 0));
		rewinddir(dir);
		EXPECT_EQ(0, tally_entries(dir, seen, MANY));
		EXPECT_EQ(0, count_not(seen, 0, counts[i], 1));
		closedir(dir);
	}
}

/* "." and ".." appear once each, and with the right numbers. */
static void test_dots(void)
{
	struct dirent *de;
	int dot = 0, dotdot = 0;
	DIR *dir;

	make_dir("d", 0755);
	make_file("d/f", 0644);
	dir = MUST_PTR(opendir("d"));
	while ((de = readdir(dir))) {
		if (strcmp(de->d_name, ".") == 0) {
			dot++;
			EXPECT_SAME(ino_of("d"), de->d_ino);
			EXPECT_EQ(DT_DIR, de->d_type);
		} else if (strcmp(de->d_name, "..") == 0) {
			dotdot++;
			EXPECT_SAME(ino_of("."), de->d_ino);
			EXPECT_EQ(DT_DIR, de->d_type);
		}
	}
	EXPECT_EQ(1, dot);
	EXPECT_EQ(1, dotdot);
	closedir(dir);
}

static void test_types(void)
{
	struct dirent *de;
	int found = 0;

	for_each_type(t)
		node_make(t, node_name(t), 0644);
	for_each_type(t) {
		DIR *dir = MUST_PTR(opendir("."));

		ctx("%s", node_name(t));
		while ((de = readdir(dir))) {
			if (strcmp(de->d_name, node_name(t)) != 0)
				continue;
			found++;
			EXPECT_OCT(node_ifmt(t), DTTOIF(de->d_type));
			EXPECT_SAME(ino_of(de->d_name), de->d_ino);
		}
		closedir(dir);
	}
	EXPECT_EQ(node_type_end(), found);
}

/* From every position that telldir() gave, seekdir() finds the same next entry. */
static void test_positions(void)
{
	static char names[MANY + 2][24];
	static long positions[MANY + 3];
	struct dirent *de;
	int n = 0, wrong = 0;
	DIR *dir;

	make_many("d", MANY);
	dir = MUST_PTR(opendir("d"));
	positions[0] = telldir(dir);
	while (n < MANY + 2 && (de = readdir(dir))) {
		snprintf(names[n++], sizeof(names[0]), "%.23s", de->d_name);
		positions[n] = telldir(dir);
	}
	EXPECT_EQ(MANY + 2, n);
	for (int i = n - 1; i >= 0; i -= 37) {
		seekdir(dir, positions[i]);
		de = readdir(dir);
		wrong += !de || strcmp(de->d_name, names[i]) != 0;
	}
	EXPECT_EQ(0, wrong);
	seekdir(dir, positions[n]);
	EXPECT_TRUE(readdir(dir) == NULL);
	seekdir(dir, positions[5]);
	de = readdir(dir);
	EXPECT_TRUE(de && strcmp(de->d_name, names[5]) == 0);
	closedir(dir);
}

/* Positions stay good while other entries go. */
static void test_position_survives(void)
{
	char next[24] = "";
	struct dirent *de;
	long position;
	DIR *dir;

	make_many("d", 500);
	dir = MUST_PTR(opendir("d"));
	for (int i = 0; i < 250; i++)
		MUST_PTR(readdir(dir));
	position = telldir(dir);
	de = MUST_PTR(readdir(dir));
	snprintf(next, sizeof(next), "%.23s", de->d_name);
	rewinddir(dir);
	for (int i = 0; i < 100; i++) {
		de = MUST_PTR(readdir(dir));
		if (!is_dots(de->d_name))
			MUST(unlinkat(dirfd(dir), de->d_name, 0));
	}
	seekdir(dir, position);
	de = readdir(dir);
	EXPECT_TRUE(de && strcmp(de->d_name, next) == 0);
	closedir(dir);
}

/* Deleting what was just read never makes the reader miss the rest. */
static void test_delete_while_reading(void)
{
	struct dirent *de;
	int removed = 0;
	DIR *dir;

	make_many("d", MANY);
	dir = MUST_PTR(opendir("d"));
	while ((de = readdir(dir))) {
		if (is_dots(de->d_name))
			continue;
		if (unlinkat(dirfd(dir), de->d_name, 0) == 0)
			removed++;
	}
	EXPECT_EQ(MANY, removed);
	closedir(dir);
	EXPECT_EQ(0, count_entries("d"));
	EXPECT(0, rmdir("d"));
}

/* Entries that are there all the time are seen once, whatever else comes and goes meanwhile. */
static void test_change_while_reading(void)
{
	static unsigned char seen[1000];
	struct dirent *de;
	int step = 0, n;
	DIR *dir;

	make_many("d", 1000);
	dir = MUST_PTR(opendir("d"));
	memset(seen, 0, sizeof(seen));
	while ((de = readdir(dir)) && step < 5000) {
		char path[64];

		if (sscanf(de->d_name, "entry-%d", &n) == 1 && n >= 0 && n < 1000)
			seen[n]++;
		snprintf(path, sizeof(path), "d/new-%d", step++);
		if (step < 1000)
			MUST(mknod(path, S_IFREG | 0644, 0));
		snprintf(path, sizeof(path), "d/new-%d", step - 5);
		unlink(path);
	}
	EXPECT_EQ(0, count_not(seen, 0, 1000, 1));
	closedir(dir);
}

/* Renaming others within the directory does not make an entry come twice or not at all. */
static void test_rename_while_reading(void)
{
	static unsigned char seen[600];
	struct dirent *de;
	int step = 0, n;
	DIR *dir;

	make_many("d", 600);
	dir = MUST_PTR(opendir("d"));
	memset(seen, 0, sizeof(seen));
	while ((de = readdir(dir))) {
		char from[64], to[64];

		if (sscanf(de->d_name, "entry-%d", &n) == 1 && n >= 0 && n < 600)
			seen[n]++;
		/* Entries 400 and up are renamed back and forth; the others stay. */
		snprintf(from, sizeof(from), "d/entry-%d", 400 + step % 200);
		snprintf(to, sizeof(to), "d/other-%d", step % 200);
		if (rename(from, to) != 0)
			rename(to, from);
		step++;
		if (step > 5000)
			break;
	}
	EXPECT_EQ(0, count_not(seen, 0, 400, 1));
	closedir(dir);
}

/* rewinddir() shows what has changed. */
static void test_rewind(void)
{
	static unsigned char seen[20];
	DIR *dir;

	make_many("d", 10);
	dir = MUST_PTR(opendir("d"));
	EXPECT_EQ(0, tally_entries(dir, seen, 20));
	MUST(unlink("d/entry-3"));
	make_file("d/entry-15", 0644);
	make_file("d/stranger", 0644);
	rewinddir(dir);
	EXPECT_EQ(1, tally_entries(dir, seen, 20));
	EXPECT_EQ(0, seen[3]);
	EXPECT_EQ(1, seen[15]);
	EXPECT_EQ(1, seen[4]);
	MUST(rename("d/stranger", "d/entry-3"));
	rewinddir(dir);
	EXPECT_EQ(0, tally_entries(dir, seen, 20));
	EXPECT_EQ(1, seen[3]);
	closedir(dir);
}

/* Two readers of one directory do not disturb each other. */
static void test_two_readers(void)
{
	static unsigned char seen[300];
	DIR *a, *b;

	make_many("d", 300);
	a = MUST_PTR(opendir("d"));
	b = MUST_PTR(opendir("d"));
	for (int i = 0; i < 100; i++)
		MUST_PTR(readdir(a));
	EXPECT_EQ(0, tally_entries(b, seen, 300));
	EXPECT_EQ(0, count_not(seen, 0, 300, 1));
	rewinddir(a);
	EXPECT_EQ(0, tally_entries(a, seen, 300));
	EXPECT_EQ(0, count_not(seen, 0, 300, 1));
	closedir(a);
	closedir(b);
}

/* getdents64() itself, with buffers from hardly enough for one entry up. */
static void test_buffers(void)
{
	static const size_t sizes[] = { 48, 64, 100, 512, 4096, 65536 };
	static char buf[65536];

	make_many("d", 200);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		int fd = (int)MUST(open("d", O_RDONLY | O_DIRECTORY)), entries = 0;
		long n;

		ctx("%zu bytes", sizes[i]);
		while ((n = syscall(SYS_getdents64, fd, buf, sizes[i])) > 0) {
			struct dirent64 *de;

			for (long off = 0; off < n; off += de->d_reclen, entries++)
				de = (struct dirent64 *)(buf + off);
		}
		EXPECT_EQ(0, n);
		EXPECT_EQ(202, entries);
		EXPECT_EQ(0, syscall(SYS_getdents64, fd, buf, sizes[i]));
		EXPECT_EQ(0, lseek(fd, 0, SEEK_SET));
		EXPECT(EINVAL, syscall(SYS_getdents64, fd, buf, 10));
		MUST(close(fd));
	}
}

static void test_errors(void)
{
	static char buf[1024];
	int fd;

	make_file("f", 0644);
	make_dir("d", 0755);
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(ENOTDIR, syscall(SYS_getdents64, fd, buf, sizeof(buf)));
	fd = (int)MUST(open("d", O_PATH));
	EXPECT(EBADF, syscall(SYS_getdents64, fd, buf, sizeof(buf)));
	fd = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	EXPECT(EFAULT, syscall(SYS_getdents64, fd, bad_address(), sizeof(buf)));
	MUST(rmdir("d"));
	EXPECT(ENOENT, syscall(SYS_getdents64, fd, buf, sizeof(buf)));
}

/* A directory that is open can be read although its permissions are gone. */
static void test_permission_gone(void)
{
	DIR *dir;

	make_many("d", 50);
	give("d");
	become(&actor_owner);
	dir = MUST_PTR(opendir("d"));
	MUST(chmod("d", 0));
	for (int i = 0; i < 52; i++)
		MUST_PTR(readdir(dir));
	EXPECT_TRUE(readdir(dir) == NULL);
	EXPECT(EACCES, closing(open("d", O_RDONLY | O_DIRECTORY)));
	MUST(chmod("d", 0700));
	become(NULL);
	closedir(dir);
}

/* The listing and the link count of subdirectories agree. */
static void test_subdirectories(void)
{
	char path[32];

	make_dir("d", 0755);
	for (int i = 0; i < 150; i++) {
		snprintf(path, sizeof(path), "d/s%d", i);
		make_dir(path, 0755);
	}
	EXPECT_EQ(150, count_entries("d"));
	EXPECT_EQ(152, nlink_of("d"));
	for (int i = 0; i < 150; i += 2) {
		snprintf(path, sizeof(path), "d/s%d", i);
		MUST(rmdir(path));
	}
	EXPECT_EQ(75, count_entries("d"));
	EXPECT_EQ(77, nlink_of("d"));
}

static const struct test tests[] = {
	{ "complete", test_complete, 0 },
	{ "dots", test_dots, 0 },
	{ "types", test_types, 0 },
	{ "positions", test_positions, 0 },
	{ "position_survives", test_position_survives, 0 },
	{ "delete_while_reading", test_delete_while_reading, 0 },
	{ "change_while_reading", test_change_while_reading, 0 },
	{ "rename_while_reading", test_rename_while_reading, 0 },
	{ "rewind", test_rewind, 0 },
	{ "two_readers", test_two_readers, 0 },
	{ "buffers", test_buffers, 0 },
	{ "errors", test_errors, 0 },
	{ "permission_gone", test_permission_gone, 0 },
	{ "subdirectories", test_subdirectories, 0 },
};

AREA(dir);
