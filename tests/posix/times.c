// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * times.c - which operation updates which time stamp, of the object and of its directory, and that
 * failed operations update none
 *
 * Access times after reading are recorded only: mount options decide about them.
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CONTENT_SIZE 10000

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

/*
 * Operations on the file d/n, which is open for reading and writing as fd. Object says what is
 * expected of the file's mtime and ctime, and of its atime with three letters; NULL: to be recorded.
 */
struct file_op {
	const char *name;
	long (*run)(int fd);
	const char *object;
};

static long do_write(int fd)
{
	return write(fd, "x", 1);
}

static long do_write_nothing(int fd)
{
	return write(fd, "x", 0);
}

static long do_pwrite(int fd)
{
	return pwrite(fd, "xyz", 3, 100);
}

static long do_pwrite_beyond(int fd)
{
	return pwrite(fd, "xyz", 3, 1000000);
}

static long do_writev(int fd)
{
	char a[] = "ab", b[] = "cd";
	const struct iovec iov[] = { { a, 2 }, { b, 2 } };

	return writev(fd, iov, 2);
}

static long do_append(int fd)
{
	int other = (int)MUST(open("d/n", O_WRONLY | O_APPEND));

	(void)fd;
	return write(other, "x", 1) == 1 ? close(other) : -1;
}

static long do_open_close(int fd)
{
	(void)fd;
	return closing(open("d/n", O_RDWR));
}

static long do_open_creat(int fd)
{
	(void)fd;
	return closing(open("d/n", O_WRONLY | O_CREAT, 0600));
}

static long do_open_trunc(int fd)
{
	(void)fd;
	return closing(open("d/n", O_WRONLY | O_TRUNC));
}

static long do_creat(int fd)
{
	(void)fd;
	return closing(creat("d/n", 0600));
}

static long do_truncate_less(int fd)
{
	(void)fd;
	return truncate("d/n", 10);
}

static long do_truncate_more(int fd)
{
	(void)fd;
	return truncate("d/n", 2 * CONTENT_SIZE);
}

static long do_truncate_same(int fd)
{
	(void)fd;
	return truncate("d/n", CONTENT_SIZE);
}

static long do_ftruncate_less(int fd)
{
	return ftruncate(fd, 10);
}

static long do_ftruncate_more(int fd)
{
	return ftruncate(fd, 2 * CONTENT_SIZE);
}

static long do_ftruncate_same(int fd)
{
	return ftruncate(fd, CONTENT_SIZE);
}

static long do_fallocate(int fd)
{
	return fallocate(fd, 0, CONTENT_SIZE, CONTENT_SIZE);
}

static long do_fallocate_keep(int fd)
{
	return fallocate(fd, FALLOC_FL_KEEP_SIZE, 100000, 4096);
}

static long do_punch(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}

static long do_zero_range(int fd)
{
	return fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096);
}

static long do_copy_to(int fd)
{
	int from = (int)MUST(open("source", O_RDONLY));
	off_t in = 0, out = 0;

	return copy_file_range(from, &in, fd, &out, 3, 0) == 3 ? close(from) : -1;
}

static long do_copy_from(int fd)
{
	int to = (int)MUST(open("source", O_WRONLY));
	off_t in = 0, out = 0;

	return copy_file_range(fd, &in, to, &out, 3, 0) == 3 ? close(to) : -1;
}

static long do_map_store(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	map[10] ^= 1;
	MUST(msync(map, 4096, MS_SYNC));
	return munmap(map, 4096);
}

static long do_private_store(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	map[10] ^= 1;
	return munmap(map, 4096);
}

static long do_fsync(int fd)
{
	return fsync(fd);
}

static long do_seek(int fd)
{
	return lseek(fd, 5, SEEK_SET);
}

static long do_stat(int fd)
{
	struct stat st;

	return stat("d/n", &st) + fstat(fd, &st) + access("d/n", R_OK);
}

static long do_fchmod(int fd)
{
	return fchmod(fd, 0604);
}

static long do_rename_self(int fd)
{
	(void)fd;
	return rename("d/n", "d/n");
}

static const struct file_op file_ops[] = {
	{ "write", do_write, "-mc" },
	{ "write of 0 bytes", do_write_nothing, "---" },
	{ "pwrite", do_pwrite, "-mc" },
	{ "pwrite beyond the end", do_pwrite_beyond, "-mc" },
	{ "writev", do_writev, "-mc" },
	{ "append", do_append, "-mc" },
	{ "open and close", do_open_close, "---" },
	{ "open O_CREAT", do_open_creat, "---" },
	{ "open O_TRUNC", do_open_trunc, "-mc" },
	{ "creat", do_creat, "-mc" },
	{ "truncate to less", do_truncate_less, "-mc" },
	{ "truncate to more", do_truncate_more, "-mc" },
	{ "truncate to the same", do_truncate_same, NULL },
	{ "ftruncate to less", do_ftruncate_less, "-mc" },
	{ "ftruncate to more", do_ftruncate_more, "-mc" },
	{ "ftruncate to the same", do_ftruncate_same, "-mc" },
	{ "fallocate", do_fallocate, "-mc" },
	{ "fallocate KEEP_SIZE", do_fallocate_keep, "-mc" },
	{ "fallocate PUNCH_HOLE", do_punch, "-mc" },
	{ "fallocate ZERO_RANGE", do_zero_range, "-mc" },
	{ "copy_file_range to", do_copy_to, "-mc" },
	{ "shared store and msync", do_map_store, "mc" },
	{ "fsync", do_fsync, "---" },
	{ "lseek", do_seek, "---" },
	{ "stat", do_stat, "---" },
	{ "fchmod", do_fchmod, "--c" },
	{ "rename to itself", do_rename_self, "---" },
};

static void prepare_file(void)
{
	static char data[CONTENT_SIZE];

	fresh();
	fill_pattern(data, sizeof(data), 1);
	make_dir("d", 0755);
	make_content("d/n", data, sizeof(data));
	make_content("source", data, sizeof(data));
}

static void expect_object(const struct file_op *op, const struct stamps *before)
{
	struct stamps now = stamps_now("d/n");
	const char *diff = stamps_diff(before, &now);

	if (op->object)
		EXPECT_STR(op->object, diff + 3 - strlen(op->object));
	if (!op->object || strlen(op->object) < 3)
		RECORD_STR(diff);
}

static void file_case(const struct file_op *op)
{
	int fd = (int)MUST(open("d/n", O_RDWR));
	struct stamps object = stamps_age("d/n"), dir = stamps_age("d");

	ctx("%s", op->name);
	EXPECT(0, op->run(fd));
	expect_object(op, &object);
	EXPECT_STAMPS("---", &dir, "d");
	MUST(close(fd));
	/* Closing adds nothing. */
	expect_object(op, &object);
}

static void test_file(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_ops); i++) {
		prepare_file();
		file_case(&file_ops[i]);
	}
}

/* The same on an empty file, where some of them have nothing to do. */
static void test_empty_file(void)
{
	static const struct file_op cases[] = {
		{ "open O_TRUNC", do_open_trunc, "-mc" },
		{ "creat", do_creat, "-mc" },
		{ "write", do_write, "-mc" },
		{ "write of 0 bytes", do_write_nothing, "---" },
		{ "truncate to more", do_truncate_more, "-mc" },
		{ "fallocate", do_fallocate, "-mc" },
		{ "fsync", do_fsync, "---" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fresh();
		make_dir("d", 0755);
		make_file("d/n", 0644);
		file_case(&cases[i]);
	}
}

/* Each write counts, not only the first after somebody looked. */
static void test_every_write(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));

	for (int i = 0; i < 10; i++) {
		struct stamps before = stamps_of_fd(fd), after;

		stamp_tick();
		ctx("write %d", i);
		EXPECT_EQ(1, pwrite(fd, "x", 1, 0));
		after = stamps_of_fd(fd);
		EXPECT_TRUE(stamp_cmp(&after.m, &before.m) > 0);
		EXPECT_TRUE(stamp_cmp(&after.c, &before.c) > 0);
		after = stamps_now("f");
		EXPECT_TRUE(stamp_cmp(&after.m, &before.m) > 0);
	}
}

/* Reading may update the access time, and nothing else. */
static long do_read(int fd)
{
	char buf[100];

	return read(fd, buf, sizeof(buf));
}

static long do_read_at_end(int fd)
{
	char c;

	return pread(fd, &c, 1, CONTENT_SIZE);
}

static long do_map_load(int fd)
{
	volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	long c;

	MUST(map == MAP_FAILED ? -1 : 0);
	c = map[0];
	MUST(munmap((void *)map, 4096));
	return c == -1 ? 0 : c;
}

static const struct file_op read_ops[] = {
	{ "read", do_read, "--" },
	{ "read at the end", do_read_at_end, "--" },
	{ "mapping", do_map_load, "--" },
	{ "private store", do_private_store, "--" },
	{ "copy_file_range from", do_copy_from, "--" },
};

static void test_read(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(read_ops); i++) {
		prepare_file();
		file_case(&read_ops[i]);
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

/* Nothing that fails leaves a stamp. "d" holds a file "n", a full directory "full" and "l" -> n. */
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

AREA(times,
	{ "create", test_create, 0 },
	{ "remove", test_remove, 0 },
	{ "link", test_link, 0 },
	{ "rename", test_rename, 0 },
	{ "rename_over", test_rename_over, 0 },
	{ "exchange", test_exchange, 0 },
	{ "attributes", test_attributes, 0 },
	{ "file", test_file, 0 },
	{ "empty_file", test_empty_file, 0 },
	{ "every_write", test_every_write, 0 },
	{ "read", test_read, 0 },
	{ "read_dir", test_read_dir, 0 },
	{ "xattr", test_xattr, NEED_XATTR },
	{ "failures", test_failures, 0 },
	{ "denials", test_denials, NEED_ROOT | NEED_XATTR },
);
