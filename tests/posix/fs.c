// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fs.c - what the filesystem says about itself, and numbers that have to hold together
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static void test_statvfs(void)
{
	struct statvfs st;

	EXPECT(0, statvfs(".", &st));
	EXPECT_EQ(255, st.f_namemax);
	EXPECT_TRUE(st.f_bsize >= 512 && st.f_frsize >= 512);
	EXPECT_TRUE(st.f_blocks > 0);
	EXPECT_TRUE(st.f_bavail <= st.f_bfree);
	EXPECT_TRUE(st.f_bfree <= st.f_blocks);
	EXPECT_TRUE(st.f_favail <= st.f_ffree);
	EXPECT_TRUE(st.f_ffree <= st.f_files);
	EXPECT_TRUE(!(st.f_flag & ST_RDONLY));
	EXPECT_EQ(255, pathconf(".", _PC_NAME_MAX));
	EXPECT_EQ(4096, pathconf(".", _PC_PATH_MAX));
	EXPECT_TRUE(pathconf(".", _PC_LINK_MAX) >= 127);
	EXPECT_EQ(1, pathconf(".", _PC_NO_TRUNC));
}

/* By every kind of object and descriptor the answer is the same. */
static void test_statvfs_objects(void)
{
	struct statvfs want, st;

	MUST(statvfs(".", &want));
	for_each_type(t) {
		if (t == NODE_LNK)
			continue;
		node_make(t, node_name(t), 0644);
		ctx("%s", node_name(t));
		EXPECT(0, statvfs(node_name(t), &st));
		EXPECT_EQ(want.f_namemax, st.f_namemax);
		EXPECT_TRUE(want.f_bsize == st.f_bsize);
		EXPECT_TRUE(want.f_blocks == st.f_blocks);
		EXPECT_TRUE(want.f_fsid == st.f_fsid);
		EXPECT(0, fstatvfs((int)MUST(open(node_name(t), O_PATH)), &st));
		EXPECT_TRUE(want.f_blocks == st.f_blocks);
	}
	EXPECT(EBADF, fstatvfs(1000, &st));
	EXPECT(EFAULT, statfs(".", bad_address()));
}

/* stat, lstat, fstat, fstatat and statx tell the same story about a file. */
static void test_stats_agree(void)
{
	struct stat a, b;
	struct statx x;
	int fd;

	make_content("f", "hello", 5);
	MUST(chmod("f", 0640));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, stat("f", &a));
	EXPECT(0, fstat(fd, &b));
	EXPECT_TRUE(memcmp(&a, &b, sizeof(a)) == 0);
	EXPECT(0, lstat("f", &b));
	EXPECT_TRUE(memcmp(&a, &b, sizeof(a)) == 0);
	EXPECT(0, fstatat(AT_FDCWD, "f", &b, 0));
	EXPECT_TRUE(memcmp(&a, &b, sizeof(a)) == 0);
	EXPECT(0, statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x));
	EXPECT_TRUE((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	EXPECT_SAME(a.st_ino, x.stx_ino);
	EXPECT_EQ(5, x.stx_size);
	EXPECT_OCT(S_IFREG | 0640, x.stx_mode);
	EXPECT_EQ(1, x.stx_nlink);
	EXPECT_TRUE((uint64_t)a.st_blocks == x.stx_blocks);
	EXPECT_TRUE(a.st_mtim.tv_sec == x.stx_mtime.tv_sec &&
		    a.st_mtim.tv_nsec == x.stx_mtime.tv_nsec);
	EXPECT_TRUE(a.st_ctim.tv_nsec == x.stx_ctime.tv_nsec);
	EXPECT(EINVAL, statx(AT_FDCWD, "f", 0x40000000, STATX_BASIC_STATS, &x));
	EXPECT(EFAULT, statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, bad_address()));
}

/* All objects are on one device, and no two share a number. */
static void test_identity(void)
{
	struct stat st, other;
	char name[16];
	long long inos[200];
	int twice = 0;

	MUST(stat(".", &st));
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		make_file(name, 0644);
		inos[i] = ino_of(name);
		for (int j = 0; j < i; j++)
			twice += inos[j] == inos[i];
	}
	EXPECT_EQ(0, twice);
	for_each_type(t) {
		node_make(t, node_name(t), 0644);
		MUST(lstat(node_name(t), &other));
		ctx("%s", node_name(t));
		EXPECT_TRUE(st.st_dev == other.st_dev);
		EXPECT_TRUE(other.st_ino != 0 && other.st_ino != st.st_ino);
		EXPECT_EQ(0, t == NODE_DIR ? 0 : t == NODE_LNK ? other.st_size - 7 : other.st_size);
	}
}

/* The number of a file does not change by anything that is done to it. */
static void test_stable_number(void)
{
	long long ino;

	make_dir("d", 0755);
	make_content("f", "hello", 5);
	ino = ino_of("f");
	EXPECT(0, chmod("f", 0600));
	EXPECT_SAME(ino, ino_of("f"));
	EXPECT(0, truncate("f", 100000));
	EXPECT_SAME(ino, ino_of("f"));
	EXPECT(0, closing(open("f", O_RDWR | O_TRUNC)));
	EXPECT_SAME(ino, ino_of("f"));
	EXPECT(0, rename("f", "d/g"));
	EXPECT_SAME(ino, ino_of("d/g"));
	EXPECT(0, rename("d", "e"));
	EXPECT_SAME(ino, ino_of("e/g"));
	EXPECT(0, link("e/g", "f"));
	EXPECT_SAME(ino, ino_of("f"));
	EXPECT(0, unlink("e/g"));
	EXPECT_SAME(ino, ino_of("f"));
	EXPECT(0, syncfs((int)MUST(open(".", O_RDONLY))));
	EXPECT_SAME(ino, ino_of("f"));
}

/* Space that is taken shows, and comes back; others may use the filesystem meanwhile. */
static void test_space(void)
{
	struct statvfs before, after;
	static char data[1 << 20];
	int fd;

	fill_pattern(data, sizeof(data), 1);
	MUST(statvfs(".", &before));
	fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));
	for (int i = 0; i < 8; i++)
		MUST(write(fd, data, sizeof(data)));
	EXPECT(0, fsync(fd));
	MUST(statvfs(".", &after));
	RECORD_EQ(after.f_bfree < before.f_bfree);
	EXPECT_TRUE(after.f_blocks == before.f_blocks);
	EXPECT_EQ(8 << 20, size_of("f"));
	EXPECT_TRUE(blocks_of("f") * 512 >= 8 << 20);
}

static const struct test tests[] = {
	{ "statvfs", test_statvfs, 0 },
	{ "statvfs_objects", test_statvfs_objects, 0 },
	{ "stats_agree", test_stats_agree, 0 },
	{ "identity", test_identity, 0 },
	{ "stable_number", test_stable_number, 0 },
	{ "space", test_space, 0 },
};

AREA(fs);
