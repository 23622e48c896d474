// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * symlink.c - symlink and readlink, and which bytes a name may consist of
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What was put in comes out, and the size tells how long it is. */
static void test_lengths(void)
{
	static const size_t lengths[] = { 1,   2,   10,	 58,  59,  60,	 61,  100,
					  254, 255, 256, 511, 512, 1000, 1023 };
	static char buf[PATH_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		const char *target = long_name(lengths[i], 't');

		ctx("%zu bytes", lengths[i]);
		EXPECT(0, symlink(target, "l"));
		EXPECT_EQ(lengths[i], size_of("l"));
		EXPECT_OCT(S_IFLNK | 0777, type_of("l") | mode_of("l"));
		EXPECT_EQ(lengths[i], readlink("l", buf, sizeof(buf)));
		EXPECT_TRUE(memcmp(buf, target, lengths[i]) == 0);
		EXPECT_EQ(lengths[i] > 7 ? 7 : lengths[i], readlink("l", buf, 7));
		EXPECT(0, unlink("l"));
	}
}

/* Where the limit is, up to the kernel's own of 4095, is for the filesystem to say. */
static void test_long(void)
{
	static const size_t lengths[] = { 1024, 1025, 2048, 4000, 4094, 4095 };
	static char buf[PATH_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		const char *target = long_name(lengths[i], 't');
		long ret;

		ctx("%zu bytes", lengths[i]);
		ret = RECORD(symlink(target, "l"));
		if (ret != 0)
			continue;
		EXPECT_EQ(lengths[i], size_of("l"));
		EXPECT_EQ(lengths[i], readlink("l", buf, sizeof(buf)));
		EXPECT_TRUE(memcmp(buf, target, lengths[i]) == 0);
		EXPECT(0, unlink("l"));
	}
	EXPECT(ENAMETOOLONG, symlink(long_name(PATH_MAX, 't'), "l"));
	EXPECT(ENOENT, exists("l"));
}

static void test_errors(void)
{
	char buf[8];

	make_file("f", 0644);
	EXPECT(ENOENT, symlink("", "l"));
	EXPECT(EEXIST, symlink("t", "f"));
	EXPECT(EEXIST, symlink("t", "."));
	EXPECT(EINVAL, readlink("f", buf, sizeof(buf)));
	EXPECT(EINVAL, readlink(".", buf, sizeof(buf)));
	EXPECT(ENOENT, readlink("missing", buf, sizeof(buf)));
	MUST(symlink("t", "l"));
	EXPECT(EINVAL, readlink("l", buf, 0));
	EXPECT(EFAULT, readlink("l", bad_address(), 4));
	EXPECT(EEXIST, symlink("u", "l"));
	EXPECT_EQ(1, readlink("l", buf, sizeof(buf)));
	EXPECT_EQ('t', buf[0]);
}

/* The umask is not for symlinks, and nobody needs permission on one to read it. */
static void test_permissions(void)
{
	char buf[8];

	umask(0777);
	EXPECT(0, symlink("t", "l"));
	umask(022);
	EXPECT_OCT(0777, mode_of("l"));
	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		if (!can_be(everybody[i]))
			continue;
		ctx("as %s", everybody[i]->name);
		EXPECT_AS(everybody[i], 0, readlink("l", buf, sizeof(buf)));
	}
}

/* Targets are resolved from where the symlink is, each time anew. */
static void test_resolution(void)
{
	char cwd[PATH_MAX], path[PATH_MAX + 8];

	make_dir("d", 0755);
	make_content("d/f", "in d", 4);
	make_content("f", "above", 5);
	MUST(symlink("f", "d/l"));
	MUST(symlink("../f", "d/up"));
	MUST(symlink("d/./../d//f", "l"));
	MUST(symlink("d", "e"));
	EXPECT(0, truncate("d/l", 2));
	EXPECT_EQ(2, size_of("d/f"));
	EXPECT(0, truncate("d/up", 3));
	EXPECT_EQ(3, size_of("f"));
	EXPECT(0, truncate("l", 7));
	EXPECT_EQ(7, size_of("d/f"));
	EXPECT(0, truncate("e/l", 9));
	EXPECT_EQ(9, size_of("d/f"));
	EXPECT_SAME(ino_of("."), ino_of("e/.."));
	MUST_PTR(getcwd(cwd, sizeof(cwd)));
	snprintf(path, sizeof(path), "%s/f", cwd);
	MUST(symlink(path, "abs"));
	EXPECT(0, truncate("abs", 11));
	EXPECT_EQ(11, size_of("f"));
	MUST(rename("d", "g"));
	EXPECT(ENOENT, truncate("l", 0));
	MUST(rename("g", "d"));
	EXPECT(0, truncate("l", 0));
}

/* Symlinks in a row are followed, but the 41st is not (see path.c about those before it). */
static void test_chain(void)
{
	char name[16], target[16] = "f";

	make_file("f", 0644);
	for (int i = 1; i <= 41; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		MUST(symlink(target, name));
		if (i <= 20 || i > 40)
			EXPECT(i <= 20 ? 0 : ELOOP, closing(open(name, O_RDONLY)));
		memcpy(target, name, sizeof(target));
	}
}

static bool listed_once(const char *name)
{
	DIR *dir = MUST_PTR(opendir("."));
	struct dirent *de;
	int found = 0;

	while ((de = readdir(dir)))
		if (strcmp(de->d_name, name) == 0)
			found++;
	closedir(dir);
	return found == 1;
}

static void name_case(const char *name)
{
	EXPECT(0, closing(open(name, O_CREAT | O_EXCL | O_WRONLY, 0644)));
	EXPECT(0, exists(name));
	EXPECT_TRUE(listed_once(name));
}

/* Every byte but NUL and '/' is an ordinary one. */
static void test_every_byte(void)
{
	for (int form = 0; form < 3; form++) {
		fresh();
		for (int b = 1; b < 256; b++) {
			char name[4] = { (char)b, '\0' };

			if (form == 1)
				memcpy(name, (char[]){ 'a', (char)b, 'z', '\0' }, 4);
			if (form == 2)
				memcpy(name, (char[]){ (char)b, (char)b, (char)b, '\0' }, 4);
			if (b == '/' || (form == 0 && b == '.'))
				continue;
			ctx("byte %#x, form %d", b, form);
			name_case(name);
		}
		EXPECT_EQ(form == 0 ? 253 : 254, count_entries("."));
	}
}

/* Names that look special but are not, and names that only look alike. */
static void test_odd_names(void)
{
	static const char *const names[] = {
		"...",	    "....",	  ".a",	    "..a",
		"a.",	    "a..",	  " ",	    "  ",
		" a",	    "a ",	  "\n",	    "a\nb",
		"-",	    "--help",	  "*",	    "?",
		"[a]",	    "~",	  "$HOME",  "\\",
		"a\\b",	    "'",	  "\"",	    ":",
		"CON",	    "nul.txt",	  "a",	    "A",
		"\xc3\xa9", "e\xcc\x81",  "\xe9",   "\xff\xfe",
		"\xc0\x80", "%2f",	  "%00",    ".fuse_hidden0000000100000001",
		".nfs0001", "lost+found", ".x.swp", "\xf0\x9f\x92\xbe",
		"\x7f",	    "\x1b[0m",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		ctx("name %zu", i);
		name_case(names[i]);
	}
	EXPECT_EQ(ARRAY_SIZE(names), count_entries("."));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		ctx("name %zu", i);
		EXPECT(0, rename(names[i], "moved"));
		EXPECT(0, rename("moved", names[i]));
		EXPECT(0, unlink(names[i]));
		EXPECT(0, mkdir(names[i], 0755));
		EXPECT(0, rmdir(names[i]));
		EXPECT(0, symlink(names[i], names[i]));
		EXPECT(0, unlink(names[i]));
	}
}

/* Long names in every role, and one of the same length that differs in the last byte. */
static void test_long_names(void)
{
	static const size_t lengths[] = { 63, 64, 127, 128, 143, 144, 200, 254, 255 };

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		char a[256], b[256];

		fresh();
		strcpy(a, long_name(lengths[i], 'a'));
		strcpy(b, a);
		b[lengths[i] - 1] = 'b';
		ctx("%zu bytes", lengths[i]);
		name_case(a);
		name_case(b);
		EXPECT(0, unlink(a));
		EXPECT(ENOENT, exists(a));
		EXPECT(0, exists(b));
		EXPECT(0, rename(b, a));
		EXPECT(0, link(a, b));
		EXPECT(0, unlink(b));
		EXPECT(0, mkdir(b, 0755));
		EXPECT(0, rmdir(b));
		EXPECT(0, mkfifo(b, 0644));
		EXPECT(0, unlink(b));
		EXPECT(0, symlink(a, b));
		EXPECT(0, closing(open(b, O_RDWR)));
	}
}

static const struct test tests[] = {
	{ "lengths", test_lengths, 0 },	      { "long", test_long, 0 },
	{ "errors", test_errors, 0 },	      { "permissions", test_permissions, 0 },
	{ "resolution", test_resolution, 0 }, { "chain", test_chain, 0 },
	{ "every_byte", test_every_byte, 0 }, { "odd_names", test_odd_names, 0 },
	{ "long_names", test_long_names, 0 },
};

AREA(symlink);
