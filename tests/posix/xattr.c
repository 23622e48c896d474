// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * xattr.c - extended attributes: flags, sizes, lists, name spaces, permission
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
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES 64

static bool value_is(const char *path, const char *name, const void *want, size_t size)
{
	char *buf = MUST_PTR(malloc(size + 1));
	bool same = lgetxattr(path, name, buf, size + 1) == (ssize_t)size &&
		    memcmp(buf, want, size) == 0;

	free(buf);
	return same;
}

static void test_flags(void)
{
	make_file("f", 0644);
	EXPECT(ENODATA, getxattr("f", "user.a", NULL, 0));
	EXPECT(ENODATA, setxattr("f", "user.a", "1", 1, XATTR_REPLACE));
	EXPECT(0, setxattr("f", "user.a", "1", 1, XATTR_CREATE));
	EXPECT(EEXIST, setxattr("f", "user.a", "2", 1, XATTR_CREATE));
	EXPECT_TRUE(value_is("f", "user.a", "1", 1));
	EXPECT(0, setxattr("f", "user.a", "333", 3, XATTR_REPLACE));
	EXPECT_TRUE(value_is("f", "user.a", "333", 3));
	EXPECT(0, setxattr("f", "user.a", "4", 1, 0));
	EXPECT(0, setxattr("f", "user.b", "5", 1, 0));
	EXPECT_TRUE(value_is("f", "user.a", "4", 1));
	EXPECT(0, removexattr("f", "user.a"));
	EXPECT(ENODATA, getxattr("f", "user.a", NULL, 0));
	EXPECT(ENODATA, removexattr("f", "user.a"));
	EXPECT_TRUE(value_is("f", "user.b", "5", 1));
	EXPECT(EINVAL, setxattr("f", "user.a", "1", 1, 8));
	RECORD(setxattr("f", "user.a", "1", 1, XATTR_CREATE | XATTR_REPLACE));
}

static void test_sizes(void)
{
	static const size_t sizes[] = { 0, 1, 2, 7, 100, 255, 256, 1000, 2000, 3000, 3900 };
	static char value[4096], buf[4096];

	make_file("f", 0644);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t size = sizes[i];

		fill_pattern(value, size, (unsigned int)i);
		ctx("%zu bytes", size);
		EXPECT(0, setxattr("f", "user.v", value, size, 0));
		EXPECT_EQ(size, getxattr("f", "user.v", NULL, 0));
		EXPECT_EQ(size, getxattr("f", "user.v", buf, sizeof(buf)));
		EXPECT_EQ(size, getxattr("f", "user.v", buf, size));
		EXPECT_TRUE(memcmp(buf, value, size) == 0);
		if (size > 1)
			EXPECT(ERANGE, getxattr("f", "user.v", buf, size - 1));
	}
}

/* How much one file may carry differs; the kernel's own limit does not. */
static void test_limits(void)
{
	static char value[65537];

	make_file("f", 0644);
	RECORD(setxattr("f", "user.v", value, 8192, 0));
	RECORD(setxattr("f", "user.v", value, 65536, 0));
	EXPECT(E2BIG, setxattr("f", "user.v", value, 65537, 0));
	EXPECT(EFAULT, setxattr("f", "user.w", bad_address(), 4, 0));
	EXPECT(EFAULT, setxattr("f", bad_address(), "1", 1, 0));
}

static void test_names(void)
{
	char name[300] = "user.";

	make_file("f", 0644);
	memset(name + 5, 'n', sizeof(name) - 6);
	name[256] = '\0';
	EXPECT(ERANGE, setxattr("f", name, "1", 1, 0));
	EXPECT(ERANGE, getxattr("f", name, NULL, 0));
	EXPECT(ERANGE, removexattr("f", name));
	name[255] = '\0';
	EXPECT(0, setxattr("f", name, "1", 1, 0));
	EXPECT_TRUE(value_is("f", name, "1", 1));
	EXPECT(0, removexattr("f", name));
	EXPECT(EINVAL, setxattr("f", "user.", "1", 1, 0));
	EXPECT(EOPNOTSUPP, setxattr("f", "nonsense.x", "1", 1, 0));
	EXPECT(EOPNOTSUPP, getxattr("f", "nonsense.x", NULL, 0));
	EXPECT(EOPNOTSUPP, setxattr("f", "user", "1", 1, 0));
	EXPECT(ERANGE, setxattr("f", "", "1", 1, 0));
	EXPECT(0, setxattr("f", "user.\xff \n=/.", "1", 1, 0));
	EXPECT_TRUE(value_is("f", "user.\xff \n=/.", "1", 1));
}

/* Values are bytes, not strings. */
static void test_binary(void)
{
	char value[256];

	make_file("f", 0644);
	for (int i = 0; i < 256; i++)
		value[i] = (char)i;
	EXPECT(0, setxattr("f", "user.v", value, sizeof(value), 0));
	EXPECT_TRUE(value_is("f", "user.v", value, sizeof(value)));
	EXPECT(0, setxattr("f", "user.v", "\0\0", 2, 0));
	EXPECT_TRUE(value_is("f", "user.v", "\0\0", 2));
}

/* How often name is in a list, whose size is checked as well. */
static int times_listed(const char *path, const char *name)
{
	char list[8192];
	ssize_t size = llistxattr(path, list, sizeof(list));
	int n = 0;

	if (size < 0)
		return -errno;
	for (char *p = list; p < list + size; p += strlen(p) + 1)
		n += strcmp(p, name) == 0;
	return n;
}

static void test_many(void)
{
	char name[32], value[32];

	make_file("f", 0644);
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "user.n%d", i);
		snprintf(value, sizeof(value), "value %d", i);
		EXPECT(0, setxattr("f", name, value, strlen(value), XATTR_CREATE));
	}
	for (int i = 0; i < NAMES; i += 2) {
		snprintf(name, sizeof(name), "user.n%d", i);
		EXPECT(0, removexattr("f", name));
	}
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "user.n%d", i);
		snprintf(value, sizeof(value), "value %d", i);
		ctx("%s", name);
		EXPECT_EQ(i % 2, times_listed("f", name));
		EXPECT_TRUE(value_is("f", name, value, strlen(value)) == (i % 2 == 1));
	}
}

static void test_list(void)
{
	char list[64];
	ssize_t base;

	make_file("f", 0644);
	base = MUST(listxattr("f", NULL, 0));
	MUST(setxattr("f", "user.aa", "1", 1, 0));
	MUST(setxattr("f", "user.b", "1", 1, 0));
	EXPECT_EQ(base + 8 + 7, listxattr("f", NULL, 0));
	EXPECT(ERANGE, listxattr("f", list, 1));
	EXPECT(ERANGE, listxattr("f", list, (size_t)base + 14));
	if ((size_t)base + 15 <= sizeof(list))
		EXPECT_EQ(base + 15, listxattr("f", list, (size_t)base + 15));
	EXPECT_EQ(1, times_listed("f", "user.aa"));
	EXPECT_EQ(1, times_listed("f", "user.b"));
	EXPECT_EQ(0, times_listed("f", "user.a"));
}

/* One object, whatever name or descriptor; and gone with it. */
static void test_shared(void)
{
	char buf[8];
	int fd;

	make_file("f", 0644);
	MUST(link("f", "g"));
	MUST(symlink("f", "l"));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, setxattr("g", "user.a", "1", 1, 0));
	EXPECT_EQ(1, fgetxattr(fd, "user.a", buf, sizeof(buf)));
	EXPECT_EQ(1, getxattr("l", "user.a", buf, sizeof(buf)));
	EXPECT(0, fsetxattr(fd, "user.b", "22", 2, 0));
	EXPECT_TRUE(value_is("g", "user.b", "22", 2));
	EXPECT(0, rename("f", "h"));
	EXPECT_TRUE(value_is("h", "user.b", "22", 2));
	EXPECT(0, truncate("h", 0));
	EXPECT_TRUE(value_is("h", "user.b", "22", 2));
	EXPECT(0, fremovexattr(fd, "user.a"));
	EXPECT_EQ(0, times_listed("g", "user.a"));
	EXPECT(0, unlink("g"));
	EXPECT(0, unlink("h"));
	make_file("h", 0644);
	EXPECT(ENODATA, getxattr("h", "user.b", NULL, 0));
	EXPECT(EBADF, fgetxattr((int)MUST(open("h", O_PATH)), "user.b", buf, sizeof(buf)));
	EXPECT(EBADF, fgetxattr(1000, "user.b", buf, sizeof(buf)));
}

static void test_directory(void)
{
	make_dir("d", 0755);
	EXPECT(0, setxattr("d", "user.a", "1", 1, 0));
	make_file("d/f", 0644);
	EXPECT(ENODATA, getxattr("d/f", "user.a", NULL, 0));
	EXPECT(0, rename("d", "e"));
	EXPECT_TRUE(value_is("e", "user.a", "1", 1));
}

/* user.* is for files and directories; on anything else it cannot be set, not even by root. */
static void test_types(void)
{
	for_each_type(t) {
		bool ok = t == NODE_REG || t == NODE_DIR;

		node_make(t, node_name(t), 0777);
		ctx("%s", node_name(t));
		EXPECT(ok ? 0 : EPERM, lsetxattr(node_name(t), "user.a", "1", 1, 0));
		EXPECT(ok ? 0 : ENODATA, lgetxattr(node_name(t), "user.a", NULL, 0));
		EXPECT_EQ(ok, times_listed(node_name(t), "user.a"));
		EXPECT(ok ? 0 : EPERM, lremovexattr(node_name(t), "user.a"));
	}
}

/* Permission to read and write the file is permission for its user attributes. */
static void test_permission(void)
{
	static const enum node_type types[] = { NODE_REG, NODE_DIR };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		fresh();
		node_make(types[i], "n", 0777);
		give("n");
		MUST(setxattr("n", "user.a", "1", 1, 0));
		for (size_t j = 0; j < ARRAY_SIZE(people); j++) {
			const struct actor *a = people[j];
			unsigned int shift = j == 0 ? 6 : j == 3 ? 0 : 3;

			for (mode_t bits = 0; can_be(a) && bits < 8; bits++) {
				MUST(chmod("n", (bits << shift) | (0777 & ~(07u << shift))));
				ctx("%s, %o for %s", node_name(types[i]), bits, a->name);
				EXPECT_AS(a, bits & 4 ? 0 : EACCES,
					  getxattr("n", "user.a", NULL, 0));
				EXPECT_AS(a, bits & 2 ? 0 : EACCES,
					  setxattr("n", "user.a", "2", 1, 0));
				EXPECT_AS(a, bits & 2 ? ENODATA : EACCES,
					  removexattr("n", "user.b"));
				EXPECT_AS(a, 0, listxattr("n", NULL, 0));
			}
		}
	}
}

/* In a sticky directory's own attributes, only its owner writes. */
static void test_sticky(void)
{
	make_dir("d", 0777);
	give("d");
	MUST(chmod("d", 01777));
	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		int want = i < 2 ? 0 : EPERM;

		ctx("as %s", everybody[i]->name);
		EXPECT_AS(everybody[i], want, setxattr("d", "user.a", "1", 1, 0));
		EXPECT_AS(everybody[i], 0, getxattr("d", "user.a", NULL, 0));
		EXPECT_AS(everybody[i], want, removexattr("d", "user.a"));
		MUST(setxattr("d", "user.a", "1", 1, 0));
	}
}

/* trusted.* is root's alone, and invisible to others. */
static void test_trusted(void)
{
	make_file("f", 0777);
	give("f");
	EXPECT(0, setxattr("f", "trusted.a", "1", 1, 0));
	EXPECT_TRUE(value_is("f", "trusted.a", "1", 1));
	EXPECT_EQ(1, times_listed("f", "trusted.a"));
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		ctx("as %s", people[i]->name);
		EXPECT_AS(people[i], EPERM, setxattr("f", "trusted.a", "2", 1, 0));
		EXPECT_AS(people[i], EPERM, setxattr("f", "trusted.b", "2", 1, 0));
		EXPECT_AS(people[i], ENODATA, getxattr("f", "trusted.a", NULL, 0));
		EXPECT_AS(people[i], EPERM, removexattr("f", "trusted.a"));
		become(people[i]);
		EXPECT_EQ(0, times_listed("f", "trusted.a"));
		become(NULL);
	}
	EXPECT_TRUE(value_is("f", "trusted.a", "1", 1));
	EXPECT(0, removexattr("f", "trusted.a"));
	MUST(symlink("nowhere", "l"));
	EXPECT(0, lsetxattr("l", "trusted.a", "1", 1, 0));
	EXPECT_TRUE(value_is("l", "trusted.a", "1", 1));
}

static void test_trusted_denied(void)
{
	make_file("f", 0777);
	become(&actor_owner);
	EXPECT(EPERM, setxattr("f", "trusted.a", "1", 1, 0));
	EXPECT(ENODATA, getxattr("f", "trusted.a", NULL, 0));
	EXPECT_EQ(0, times_listed("f", "trusted.a"));
}

static const struct test tests[] = {
	{ "flags", test_flags, NEED_XATTR },
	{ "sizes", test_sizes, NEED_XATTR },
	{ "limits", test_limits, NEED_XATTR },
	{ "names", test_names, NEED_XATTR },
	{ "binary", test_binary, NEED_XATTR },
	{ "many", test_many, NEED_XATTR },
	{ "list", test_list, NEED_XATTR },
	{ "shared", test_shared, NEED_XATTR },
	{ "directory", test_directory, NEED_XATTR },
	{ "types", test_types, NEED_XATTR },
	{ "permission", test_permission, NEED_XATTR },
	{ "sticky", test_sticky, NEED_XATTR | NEED_ROOT },
	{ "trusted", test_trusted, NEED_XATTR | NEED_ROOT },
	{ "trusted_denied", test_trusted_denied, NEED_XATTR },
};

AREA(xattr);
