// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * suid.c - when the set-user-id and set-group-id bits, and file capabilities, are taken away
 *
 * Writing and truncating by ordinary users is settled and expected; the long tail of other cases
 * differs between kernels and is recorded, to be compared with the filesystem underneath.
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILE_SIZE 8192

static int on_fd(long (*run)(int fd))
{
	int fd = open("n", O_RDWR);
	long ret = fd < 0 ? -1 : run(fd);
	int err = errno;

	if (fd >= 0)
		MUST(close(fd));
	errno = err;
	return ret < 0 ? -1 : 0;
}

static long write_one(int fd)
{
	return write(fd, "x", 1);
}

static long pwrite_end(int fd)
{
	return pwrite(fd, "x", 1, FILE_SIZE);
}

static long write_vector(int fd)
{
	char a[] = "ab";
	const struct iovec iov[] = { { a, 1 }, { a, 2 } };

	return writev(fd, iov, 2);
}

static long write_nothing(int fd)
{
	return write(fd, "x", 0);
}

static long shrink(int fd)
{
	return ftruncate(fd, 10);
}

static long same_size(int fd)
{
	return ftruncate(fd, FILE_SIZE);
}

static long allocate(int fd)
{
	return fallocate(fd, 0, FILE_SIZE, FILE_SIZE);
}

static long allocate_inside(int fd)
{
	return fallocate(fd, 0, 0, 10);
}

static long punch(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
}

static long copy_into(int fd)
{
	int from = (int)MUST(open("source", O_RDONLY));
	long ret = copy_file_range(from, NULL, fd, NULL, 4, 0);

	MUST(close(from));
	return ret;
}

static long map_store(int fd)
{
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	map[0] = 'm';
	MUST(msync(map, 4096, MS_SYNC));
	return munmap(map, 4096);
}

#define DEFINE_FD_OP(name, helper)    \
	static int name(void)         \
	{                             \
		return on_fd(helper); \
	}

DEFINE_FD_OP(op_write, write_one)
DEFINE_FD_OP(op_pwrite, pwrite_end)
DEFINE_FD_OP(op_writev, write_vector)
DEFINE_FD_OP(op_write_nothing, write_nothing)
DEFINE_FD_OP(op_ftruncate, shrink)
DEFINE_FD_OP(op_ftruncate_same, same_size)
DEFINE_FD_OP(op_fallocate, allocate)
DEFINE_FD_OP(op_fallocate_inside, allocate_inside)
DEFINE_FD_OP(op_punch, punch)
DEFINE_FD_OP(op_copy, copy_into)
DEFINE_FD_OP(op_map, map_store)

static int op_append(void)
{
	int fd = open("n", O_WRONLY | O_APPEND);

	return fd < 0 || write(fd, "x", 1) != 1 ? -1 : close(fd);
}

static int op_truncate(void)
{
	return truncate("n", 10);
}

static int op_truncate_same(void)
{
	return truncate("n", FILE_SIZE);
}

static int op_open_trunc(void)
{
	return closing(open("n", O_WRONLY | O_TRUNC));
}

static int op_open_only(void)
{
	return closing(open("n", O_RDWR));
}

static int op_read(void)
{
	char c;
	int fd = open("n", O_RDONLY);

	return fd < 0 || read(fd, &c, 1) != 1 ? -1 : close(fd);
}

static int op_utime_now(void)
{
	return utimensat(AT_FDCWD, "n", NULL, 0);
}

static int op_rename(void)
{
	return rename("n", "m") == 0 ? rename("m", "n") : -1;
}

static int op_setxattr(void)
{
	return setxattr("n", "user.a", "1", 1, 0) == 0 || errno == EOPNOTSUPP ? 0 : -1;
}

/* SETTLED: bits go for ordinary users and stay for root. KEEPS: never. OPEN: recorded. */
enum effect { SETTLED, KEEPS, OPEN };

static const struct suid_op {
	const char *name;
	int (*run)(void);
	enum effect effect;
} suid_ops[] = {
	{ "write", op_write, SETTLED },
	{ "pwrite at the end", op_pwrite, SETTLED },
	{ "writev", op_writev, SETTLED },
	{ "append", op_append, SETTLED },
	{ "truncate", op_truncate, SETTLED },
	{ "ftruncate", op_ftruncate, SETTLED },
	{ "open O_TRUNC", op_open_trunc, SETTLED },
	{ "fallocate", op_fallocate, OPEN },
	{ "fallocate inside", op_fallocate_inside, OPEN },
	{ "punch hole", op_punch, OPEN },
	{ "copy_file_range", op_copy, OPEN },
	{ "mapped store", op_map, OPEN },
	{ "write of 0 bytes", op_write_nothing, OPEN },
	{ "truncate to the same", op_truncate_same, OPEN },
	{ "ftruncate to the same", op_ftruncate_same, OPEN },
	{ "open only", op_open_only, KEEPS },
	{ "read", op_read, KEEPS },
	{ "utimensat NULL", op_utime_now, KEEPS },
	{ "rename", op_rename, KEEPS },
	{ "setxattr", op_setxattr, KEEPS },
};

/* Everybody may write; with and without execution for the group, which matters for set-group-id. */
static const mode_t modes[] = { 04777, 02777, 06777, 07777, 04666, 02666,
				06666, 02767, 06767, 01777, 0777,  02676 };

static void prepare(mode_t mode)
{
	static char data[FILE_SIZE];

	fill_pattern(data, sizeof(data), 1);
	make_content("n", data, sizeof(data));
	give("n");
	MUST(chmod("n", mode));
}

static void judge(const struct suid_op *op, mode_t mode, const struct actor *a)
{
	/* Set-group-id without group execution once meant mandatory locking. */
	bool plain = !(mode & S_ISGID) || mode & S_IXGRP;
	mode_t want = mode;

	if (op->effect == SETTLED && a != &actor_root)
		want &= ~(mode_t)(S_ISUID | S_ISGID);
	if (op->effect == OPEN || !plain)
		RECORD_OCT(mode_of("n"));
	else
		EXPECT_OCT(want, mode_of("n"));
}

static void test_files(void)
{
	MUST(chmod(".", 0777));
	make_content("source", "source", 6);
	for (size_t i = 0; i < ARRAY_SIZE(suid_ops); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(modes); j++) {
			for (size_t k = 0; k < ARRAY_SIZE(everybody); k++) {
				const struct actor *a = everybody[k];

				if (!can_be(a))
					continue;
				prepare(modes[j]);
				ctx("%s, %o, %s", suid_ops[i].name, modes[j], a->name);
				EXPECT_AS(a, 0, suid_ops[i].run());
				judge(&suid_ops[i], modes[j], a);
			}
		}
	}
}

/* Through a descriptor that was open before the bits were set, as a log's is. */
static void test_open_before(void)
{
	for (size_t k = 0; k < ARRAY_SIZE(everybody); k++) {
		const struct actor *a = everybody[k];
		int fd;

		if (!can_be(a))
			continue;
		ctx("%s", a->name);
		prepare(0666);
		become(a);
		fd = (int)MUST(open("n", O_RDWR));
		become(NULL);
		MUST(chmod("n", 06777));
		EXPECT_AS(a, 0, pwrite(fd, "x", 1, 0));
		EXPECT_OCT(a == &actor_root ? 06777 : 0777, mode_of("n"));
		MUST(chmod("n", 06777));
		EXPECT_AS(a, 0, pwrite(fd, "x", 1, 0));
		EXPECT_OCT(a == &actor_root ? 06777 : 0777, mode_of("n"));
		MUST(chmod("n", 06777));
		EXPECT_AS(a, 0, ftruncate(fd, 3));
		EXPECT_OCT(a == &actor_root ? 06777 : 0777, mode_of("n"));
		MUST(close(fd));
	}
}

/* A new owner or group: an executable loses both bits, also when nothing really changes. */
static void test_chown(void)
{
	static const struct {
		bool uid, gid;
	} cases[] = { { false, true }, { true, false }, { true, true }, { false, false } };

	for_each_type(t) {
		if (t == NODE_LNK)
			continue;
		node_make(t, "n", 0777);
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			uid_t uid = cases[i].uid ? actor_owner.uid : (uid_t)-1;
			gid_t gid = cases[i].gid ? actor_owner.gid : (gid_t)-1;

			ctx("%s, uid %d gid %d", node_name(t), cases[i].uid, cases[i].gid);
			give("n");
			MUST(chmod("n", 06777));
			EXPECT_AS(&actor_owner, 0, chown("n", uid, gid));
			if (t == NODE_REG && i < 3)
				EXPECT_OCT(0777, mode_of("n"));
			else
				RECORD_OCT(mode_of("n"));
			MUST(chmod("n", 02767));
			EXPECT_AS(&actor_owner, 0, chown("n", uid, gid));
			RECORD_OCT(mode_of("n"));
		}
		MUST(node_remove("n"));
	}
}

static void test_chown_root(void)
{
	for_each_type(t) {
		if (t == NODE_LNK)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
			node_make(t, "n", modes[i]);
			ctx("%s, %o", node_name(t), modes[i]);
			EXPECT(0, chown("n", 1, 2));
			RECORD_OCT(mode_of("n"));
			MUST(chmod("n", modes[i]));
			EXPECT(0, chown("n", 1, 2));
			RECORD_OCT(mode_of("n"));
			MUST(chmod("n", modes[i]));
			EXPECT(0, lchown("n", (uid_t)-1, (gid_t)-1));
			RECORD_OCT(mode_of("n"));
			MUST(node_remove("n"));
		}
	}
}

/* A capability is dropped by whoever writes, root as well. */
static void test_capability(void)
{
	struct vfs_cap_data cap = {
		.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
		.data[0].permitted = 1u << CAP_NET_BIND_SERVICE,
	};

	for (size_t i = 0; i < ARRAY_SIZE(suid_ops); i++) {
		prepare(0777);
		make_content("source", "source", 6);
		if (setxattr("n", "security.capability", &cap, XATTR_CAPS_SZ_2, 0) != 0)
			skip_test("file capabilities cannot be set");
		ctx("%s", suid_ops[i].name);
		EXPECT(0, suid_ops[i].run());
		if (suid_ops[i].effect == OPEN)
			RECORD(getxattr("n", "security.capability", NULL, 0));
		else
			EXPECT(suid_ops[i].effect == KEEPS ? 0 : ENODATA,
			       getxattr("n", "security.capability", NULL, 0));
	}
}

static const struct test tests[] = {
	{ "files", test_files, 0 },
	{ "open_before", test_open_before, 0 },
	{ "chown", test_chown, 0 },
	{ "chown_root", test_chown_root, NEED_ROOT },
	{ "capability", test_capability, NEED_ROOT | NEED_XATTR },
};

AREA(suid);
