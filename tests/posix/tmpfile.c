// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmpfile.c - O_TMPFILE: files without a name, and giving them one
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void need_tmpfile(void)
{
	if (closing(open(".", O_TMPFILE | O_RDWR, 0600)) != 0 && errno == EOPNOTSUPP)
		skip_test("no O_TMPFILE here");
}

static int link_fd(int fd, const char *path)
{
	char proc[64];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

static void test_basic(void)
{
	struct stat st;
	int fd;

	need_tmpfile();
	fd = (int)EXPECT(0, open(".", O_TMPFILE | O_RDWR, 0640));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT_EQ(0, st.st_size);
	EXPECT_OCT(S_IFREG | 0640, st.st_mode);
	EXPECT_EQ(geteuid(), st.st_uid);
	EXPECT_EQ(0, count_entries("."));
	EXPECT_EQ(5, write(fd, "hello", 5));
	EXPECT_TRUE(fd_content_is(fd, 0, "hello", 5));
	EXPECT(0, ftruncate(fd, 3));
	EXPECT(0, fsync(fd));
	EXPECT(0, close(fd));
	EXPECT_EQ(0, count_entries("."));
}

static void test_link(void)
{
	struct stat st;
	int fd;

	need_tmpfile();
	fd = (int)MUST(open(".", O_TMPFILE | O_WRONLY, 0604));
	MUST(write(fd, "hello", 5));
	EXPECT(0, link_fd(fd, "f"));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(1, st.st_nlink);
	EXPECT_SAME(st.st_ino, ino_of("f"));
	EXPECT_OCT(0604, mode_of("f"));
	EXPECT_TRUE(content_is("f", "hello", 5));
	EXPECT(EEXIST, link_fd(fd, "f"));
	EXPECT(0, link_fd(fd, "g"));
	EXPECT_EQ(2, nlink_of("f"));
	EXPECT_EQ(1, write(fd, "!", 1));
	EXPECT_TRUE(content_is("g", "hello!", 6));
}

/* O_EXCL: this one will never have a name. */
static void test_excl(void)
{
	int fd;

	need_tmpfile();
	fd = (int)EXPECT(0, open(".", O_TMPFILE | O_EXCL | O_RDWR, 0600));
	EXPECT_EQ(1, write(fd, "x", 1));
	EXPECT(ENOENT, link_fd(fd, "f"));
	EXPECT_EQ(0, count_entries("."));
}

static void test_errors(void)
{
	need_tmpfile();
	make_file("f", 0644);
	make_dir("d", 0755);
	EXPECT(EINVAL, open("d", O_TMPFILE | O_RDONLY, 0600));
	EXPECT(ENOTDIR, open("f", O_TMPFILE | O_RDWR, 0600));
	EXPECT(ENOENT, open("missing", O_TMPFILE | O_RDWR, 0600));
	give("d");
	MUST(chmod("d", 0555));
	EXPECT_AS(&actor_owner, EACCES, open("d", O_TMPFILE | O_RDWR, 0600));
	MUST(chmod("d", 0666));
	EXPECT_AS(&actor_owner, EACCES, open("d", O_TMPFILE | O_RDWR, 0600));
}

static void test_modes(void)
{
	static const mode_t modes[] = { 0, 0400, 0600, 0644, 0777, 04755, 02755 };
	static const mode_t masks[] = { 0, 022, 077, 0777 };
	struct stat st;

	need_tmpfile();
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(masks); j++) {
			int fd;

			ctx("mode %o, umask %o", modes[i], masks[j]);
			umask(masks[j]);
			fd = (int)EXPECT(0, open(".", O_TMPFILE | O_RDWR, modes[i]));
			umask(022);
			EXPECT(0, fstat(fd, &st));
			EXPECT_OCT(modes[i] & ~masks[j], st.st_mode & 07777);
			EXPECT_EQ(1, write(fd, "x", 1));
			MUST(close(fd));
		}
	}
}

/* The directory's group is inherited as by any new file. */
static void test_setgid_dir(void)
{
	struct stat st;
	int fd;

	need_tmpfile();
	make_dir("d", 0777);
	give_to("d", 0, GID_ALIEN);
	MUST(chmod("d", 02777));
	fd = (int)EXPECT_AS(&actor_owner, 0, open("d", O_TMPFILE | O_RDWR, 0644));
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(actor_owner.uid, st.st_uid);
	EXPECT_EQ(GID_ALIEN, st.st_gid);
}

static const struct test tests[] = {
	{ "basic", test_basic, 0 }, { "link", test_link, 0 },
	{ "excl", test_excl, 0 },   { "errors", test_errors, 0 },
	{ "modes", test_modes, 0 }, { "setgid_dir", test_setgid_dir, NEED_ROOT },
};

AREA(tmpfile);
