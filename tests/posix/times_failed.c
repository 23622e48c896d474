// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * times_failed.c - operations that fail update no time stamp
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

/* Directory "d" holds a file "n", a full directory "full" and "l" -> n. */
static int fail_creat(void)
{
	return open("d/n", O_CREAT | O_EXCL | O_WRONLY, 0644);
}

static int fail_mkdir(void)
{
	return mkdir("d/full", 0755);
}

static int fail_mkfifo(void)
{
	return mkfifo("d/n", 0644);
}

static int fail_symlink(void)
{
	return symlink("x", "d/l");
}

static int fail_link(void)
{
	return link("d/n", "d/full");
}

static int fail_link_dir(void)
{
	return link("d/full", "d/x");
}

static int fail_unlink_dir(void)
{
	return unlink("d/full");
}

static int fail_unlink_missing(void)
{
	return unlink("d/missing");
}

static int fail_rmdir_full(void)
{
	return rmdir("d/full") == -1 && errno == EEXIST ? (errno = ENOTEMPTY, -1) : -1;
}

static int fail_rmdir_file(void)
{
	return rmdir("d/n");
}

static int fail_rename_file_over_dir(void)
{
	return rename("d/n", "d/full");
}

static int fail_rename_dir_over_file(void)
{
	return rename("d/full", "d/n");
}

static int fail_rename_into_self(void)
{
	return rename("d/full", "d/full/x");
}

static int fail_rename_to_missing(void)
{
	return rename("d/n", "missing/n");
}

static int fail_rename_noreplace(void)
{
	return renameat2(AT_FDCWD, "d/n", AT_FDCWD, "d/l", RENAME_NOREPLACE);
}

static int fail_open_dir(void)
{
	return open("d", O_WRONLY | O_TRUNC);
}

static int fail_truncate(void)
{
	return truncate("d/n", -1);
}

static int fail_write(void)
{
	return (int)write((int)MUST(open("d/n", O_RDONLY)), "x", 1);
}

static int fail_ftruncate(void)
{
	return ftruncate((int)MUST(open("d/n", O_RDONLY)), 0);
}

static int fail_fallocate(void)
{
	return fallocate((int)MUST(open("d/n", O_RDWR)), 0, 0, 0);
}

static const struct fail_op {
	const char *name;
	int (*run)(void);
	int want;
} fail_ops[] = {
	{ "open O_EXCL", fail_creat, EEXIST },
	{ "mkdir", fail_mkdir, EEXIST },
	{ "mkfifo", fail_mkfifo, EEXIST },
	{ "symlink", fail_symlink, EEXIST },
	{ "link", fail_link, EEXIST },
	{ "link of directory", fail_link_dir, EPERM },
	{ "unlink of directory", fail_unlink_dir, EISDIR },
	{ "unlink of nothing", fail_unlink_missing, ENOENT },
	{ "rmdir", fail_rmdir_full, ENOTEMPTY },
	{ "rmdir of file", fail_rmdir_file, ENOTDIR },
	{ "rename over directory", fail_rename_file_over_dir, EISDIR },
	{ "rename over file", fail_rename_dir_over_file, ENOTDIR },
	{ "rename into itself", fail_rename_into_self, EINVAL },
	{ "rename to nowhere", fail_rename_to_missing, ENOENT },
	{ "rename NOREPLACE", fail_rename_noreplace, EEXIST },
	{ "open O_TRUNC of directory", fail_open_dir, EISDIR },
	{ "truncate", fail_truncate, EINVAL },
	{ "write", fail_write, EBADF },
	{ "ftruncate", fail_ftruncate, EINVAL },
	{ "fallocate", fail_fallocate, EINVAL },
};

static void prepare_failure(void)
{
	make_dir("d", 0755);
	make_content("d/n", "hello", 5);
	make_dir("d/full", 0755);
	make_file("d/full/f", 0644);
	MUST(symlink("n", "d/l"));
	MUST(chmod("d/n", 0755));
	give("d");
	give("d/n");
	give("d/full");
}

static void test_failures(void)
{
	prepare_failure();
	for (size_t i = 0; i < ARRAY_SIZE(fail_ops); i++) {
		struct stamps n = stamps_age("d/n"), full = stamps_age("d/full"),
			      l = stamps_age("d/l"), d = stamps_age("d");

		ctx("%s", fail_ops[i].name);
		EXPECT(fail_ops[i].want, fail_ops[i].run());
		EXPECT_STAMPS("---", &n, "d/n");
		EXPECT_STAMPS("---", &full, "d/full");
		EXPECT_STAMPS("---", &l, "d/l");
		EXPECT_STAMPS("---", &d, "d");
	}
}

static int deny_chmod(void)
{
	return chmod("d/n", 0777);
}

static int deny_chown(void)
{
	return chown("d/n", actor_other.uid, (gid_t)-1);
}

static int deny_truncate(void)
{
	return truncate("d/n", 0);
}

static int deny_open_trunc(void)
{
	return open("d/n", O_RDWR | O_TRUNC);
}

static int deny_unlink(void)
{
	return unlink("d/n");
}

static int deny_rename(void)
{
	return rename("d/n", "d/m");
}

static int deny_creat(void)
{
	return open("d/m", O_CREAT | O_WRONLY, 0644);
}

static int deny_mkdir(void)
{
	return mkdir("d/m", 0755);
}

static int deny_symlink(void)
{
	return symlink("x", "d/m");
}

static int deny_link(void)
{
	return link("mine", "d/m");
}

static int deny_rmdir(void)
{
	return rmdir("d/full");
}

static int deny_utimens(void)
{
	const struct timespec times[2] = { { 1, 0 }, { 2, 0 } };

	return utimensat(AT_FDCWD, "d/n", times, 0);
}

static int deny_utimens_now(void)
{
	return utimensat(AT_FDCWD, "d/n", NULL, 0);
}

static int deny_setxattr(void)
{
	return setxattr("d/n", "user.a", "1", 1, 0);
}

static const struct fail_op deny_ops[] = {
	{ "chmod", deny_chmod, EPERM },
	{ "chown", deny_chown, EPERM },
	{ "truncate", deny_truncate, EACCES },
	{ "open O_TRUNC", deny_open_trunc, EACCES },
	{ "unlink", deny_unlink, EACCES },
	{ "rename", deny_rename, EACCES },
	{ "open O_CREAT", deny_creat, EACCES },
	{ "mkdir", deny_mkdir, EACCES },
	{ "symlink", deny_symlink, EACCES },
	{ "link", deny_link, EACCES },
	{ "rmdir", deny_rmdir, EACCES },
	{ "utimensat", deny_utimens, EPERM },
	{ "utimensat NULL", deny_utimens_now, EACCES },
	{ "setxattr", deny_setxattr, EACCES },
};

static void test_denials(void)
{
	prepare_failure();
	make_file("mine", 0644);
	give_to("mine", actor_other.uid, actor_other.gid);
	for (size_t i = 0; i < ARRAY_SIZE(deny_ops); i++) {
		struct stamps n = stamps_age("d/n"), full = stamps_age("d/full"),
			      d = stamps_age("d");

		ctx("%s", deny_ops[i].name);
		EXPECT_AS(&actor_other, deny_ops[i].want, deny_ops[i].run());
		EXPECT_STAMPS("---", &n, "d/n");
		EXPECT_STAMPS("---", &full, "d/full");
		EXPECT_STAMPS("---", &d, "d");
	}
}

static const struct test tests[] = {
	{ "failures", test_failures, 0 },
	{ "denials", test_denials, NEED_ROOT | NEED_XATTR },
};

AREA(times_failed);
