// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * times.c - which operation on names and attributes updates which time stamp, of the object and of
 * its directory
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
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A new object has three current stamps; its directory was modified. */
static void test_create(void)
{
	for_each_type(t) {
		struct stamps dir, now;

		fresh();
		make_dir("d", 0755);
		dir = stamps_age("d");
		ctx("%s", node_name(t));
		EXPECT(0, node_create(t, "d/n", 0644));
		EXPECT_STAMPS("-mc", &dir, "d");
		now = stamps_now("d/n");
		EXPECT_TRUE(stamp_cmp(&now.a, &dir.c) > 0);
		EXPECT_TRUE(stamp_cmp(&now.m, &dir.c) > 0);
		EXPECT_TRUE(stamp_cmp(&now.c, &dir.c) > 0);
		RECORD_EQ(stamp_cmp(&now.a, &now.m));
		RECORD_EQ(stamp_cmp(&now.m, &now.c));
	}
}

static void test_remove(void)
{
	for_each_type(t) {
		struct stamps dir, object, other;

		fresh();
		make_dir("d", 0755);
		make_dir("e", 0755);
		node_make(t, "d/n", 0644);
		if (t != NODE_DIR) {
			MUST(link("d/n", "e/l"));
			object = stamps_age("e/l");
		}
		other = stamps_age("e");
		dir = stamps_age("d");
		ctx("%s", node_name(t));
		EXPECT(0, node_remove("d/n"));
		EXPECT_STAMPS("-mc", &dir, "d");
		EXPECT_STAMPS("---", &other, "e");
		if (t != NODE_DIR)
			EXPECT_STAMPS("--c", &object, "e/l");
	}
}

static void test_link(void)
{
	for_each_type(t) {
		struct stamps from, to, object;

		if (t == NODE_DIR)
			continue;
		fresh();
		make_dir("d", 0755);
		make_dir("e", 0755);
		node_make(t, "d/n", 0644);
		object = stamps_age("d/n");
		from = stamps_age("d");
		to = stamps_age("e");
		ctx("%s", node_name(t));
		EXPECT(0, link("d/n", "e/l"));
		EXPECT_STAMPS("--c", &object, "d/n");
		EXPECT_STAMPS("---", &from, "d");
		EXPECT_STAMPS("-mc", &to, "e");
	}
}

static void rename_case(enum node_type t, const char *target)
{
	struct stamps from, to, object, now;

	fresh();
	make_dir("d", 0755);
	make_dir("e", 0755);
	node_make(t, "d/n", 0644);
	object = stamps_age("d/n");
	from = stamps_age("d");
	to = stamps_age("e");
	ctx("%s to %s", node_name(t), target);
	EXPECT(0, rename("d/n", target));
	EXPECT_STAMPS("-mc", &from, "d");
	EXPECT_STAMPS(target[0] == 'e' ? "-mc" : "---", &to, "e");
	now = stamps_now(target);
	if (t == NODE_DIR && target[0] == 'e')
		RECORD_STR(stamps_diff(&object, &now));
	else
		EXPECT_STR("--c", stamps_diff(&object, &now));
}

static void test_rename(void)
{
	for_each_type(t) {
		rename_case(t, "d/m");
		rename_case(t, "e/m");
	}
}

static void test_rename_over(void)
{
	for_each_type(t) {
		struct stamps from, to, victim;

		if (t == NODE_DIR)
			continue;
		fresh();
		make_dir("d", 0755);
		make_dir("e", 0755);
		node_make(t, "d/n", 0644);
		node_make(t, "e/m", 0644);
		MUST(link("e/m", "l"));
		victim = stamps_age("l");
		from = stamps_age("d");
		to = stamps_age("e");
		ctx("%s", node_name(t));
		EXPECT(0, rename("d/n", "e/m"));
		EXPECT_STAMPS("-mc", &from, "d");
		EXPECT_STAMPS("-mc", &to, "e");
		EXPECT_STAMPS("--c", &victim, "l");
	}
}

static void test_exchange(void)
{
	for_each_type(t) {
		struct stamps from, to, a, b;

		fresh();
		make_dir("d", 0755);
		make_dir("e", 0755);
		node_make(t, "d/a", 0644);
		make_file("e/b", 0644);
		a = stamps_age("d/a");
		b = stamps_age("e/b");
		from = stamps_age("d");
		to = stamps_age("e");
		ctx("%s", node_name(t));
		EXPECT(0, renameat2(AT_FDCWD, "d/a", AT_FDCWD, "e/b", RENAME_EXCHANGE));
		EXPECT_STAMPS("-mc", &from, "d");
		EXPECT_STAMPS("-mc", &to, "e");
		/* ext4 updates both objects' ctime, xfs that of directories only. */
		RECORD_STAMPS(&a, "e/b");
		RECORD_STAMPS(&b, "d/a");
	}
}

/* Attribute changes of every type: the change time, and nothing of the directory. */
static int attr_chmod(const char *path)
{
	return chmod(path, 0755);
}

static int attr_chmod_same(const char *path)
{
	return chmod(path, (mode_t)mode_of(path));
}

static int attr_chown_same(const char *path)
{
	return lchown(path, geteuid(), getegid());
}

static int attr_chgrp(const char *path)
{
	return lchown(path, (uid_t)-1, getegid());
}

static int attr_chown_nothing(const char *path)
{
	return lchown(path, (uid_t)-1, (gid_t)-1);
}

static const struct {
	const char *name;
	int (*run)(const char *path);
	bool symlinks;
} attr_ops[] = {
	{ "chmod", attr_chmod, false },
	{ "chmod to the same", attr_chmod_same, false },
	{ "chown to the same", attr_chown_same, true },
	{ "chgrp", attr_chgrp, true },
};

static void test_attributes(void)
{
	for_each_type(t) {
		struct stamps dir, object;

		fresh();
		make_dir("d", 0755);
		node_make(t, "d/n", 0644);
		for (size_t i = 0; i < ARRAY_SIZE(attr_ops); i++) {
			if (t == NODE_LNK && !attr_ops[i].symlinks)
				continue;
			ctx("%s of %s", attr_ops[i].name, node_name(t));
			object = stamps_age("d/n");
			dir = stamps_age("d");
			EXPECT(0, attr_ops[i].run("d/n"));
			EXPECT_STAMPS("--c", &object, "d/n");
			EXPECT_STAMPS("---", &dir, "d");
		}
		object = stamps_age("d/n");
		RECORD(attr_chown_nothing("d/n"));
		RECORD_STAMPS(&object, "d/n");
	}
}

static void test_read_dir(void)
{
	struct stamps dir, link, now;
	char buf[8];

	make_dir("d", 0755);
	make_file("d/f", 0644);
	MUST(symlink("target", "d/l"));
	dir = stamps_age("d");
	EXPECT_EQ(2, count_entries("d"));
	now = stamps_now("d");
	EXPECT_STR("--", stamps_diff(&dir, &now) + 1);
	RECORD_STR(stamps_diff(&dir, &now));
	link = stamps_age("d/l");
	EXPECT(0, readlink("d/l", buf, sizeof(buf)));
	now = stamps_now("d/l");
	EXPECT_STR("--", stamps_diff(&link, &now) + 1);
	RECORD_STR(stamps_diff(&link, &now));
	dir = stamps_age("d");
	EXPECT(ENOENT, exists("d/missing"));
	EXPECT_STAMPS("---", &dir, "d");
}

static void test_xattr(void)
{
	struct stamps s, dir;

	make_dir("d", 0755);
	make_file("d/n", 0644);
	s = stamps_age("d/n");
	dir = stamps_age("d");
	EXPECT(0, setxattr("d/n", "user.a", "1", 1, 0));
	EXPECT_STAMPS("--c", &s, "d/n");
	s = stamps_age("d/n");
	EXPECT(0, setxattr("d/n", "user.a", "22", 2, XATTR_REPLACE));
	EXPECT_STAMPS("--c", &s, "d/n");
	s = stamps_age("d/n");
	EXPECT(0, getxattr("d/n", "user.a", NULL, 0));
	EXPECT(0, listxattr("d/n", NULL, 0));
	EXPECT(EEXIST, setxattr("d/n", "user.a", "3", 1, XATTR_CREATE));
	EXPECT(ENODATA, setxattr("d/n", "user.b", "3", 1, XATTR_REPLACE));
	EXPECT(ENODATA, removexattr("d/n", "user.b"));
	EXPECT_STAMPS("---", &s, "d/n");
	EXPECT(0, removexattr("d/n", "user.a"));
	EXPECT_STAMPS("--c", &s, "d/n");
	EXPECT_STAMPS("---", &dir, "d");
}

static const struct test tests[] = {
	{ "create", test_create, 0 },
	{ "remove", test_remove, 0 },
	{ "link", test_link, 0 },
	{ "rename", test_rename, 0 },
	{ "rename_over", test_rename_over, 0 },
	{ "exchange", test_exchange, 0 },
	{ "attributes", test_attributes, 0 },
	{ "read_dir", test_read_dir, 0 },
	{ "xattr", test_xattr, NEED_XATTR },
};

AREA(times);
