// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * object.c - who may do what to an object: owner, group and others, groups of all kinds, owners'
 * privileges, access()
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "ops.h"
#include "proc.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool no_exec_here(void)
{
	struct statvfs st;

	MUST(statvfs(".", &st));
	return st.f_flag & ST_NOEXEC;
}

/* Only on files whose content no loader accepts. */
static int try_exec(const char *path)
{
	char arg[] = "posixtest";
	char *argv[] = { arg, NULL }, *envp[] = { NULL };

	return execve(path, argv, envp);
}

static void open_case(const struct actor *a, enum node_type type, mode_t bits)
{
	int ok = type == NODE_FIFO ? ENXIO : type == NODE_DIR ? EISDIR : 0;
	int write_want = type == NODE_DIR ? EISDIR : EACCES;

	EXPECT_AS(a, bits & 04 ? 0 : EACCES, closing(open("n", O_RDONLY | O_NONBLOCK)));
	EXPECT_AS(a, bits & 02 ? ok : write_want, closing(open("n", O_WRONLY | O_NONBLOCK)));
	ok = type == NODE_FIFO ? 0 : ok;
	EXPECT_AS(a, (bits & 06) == 06 ? ok : write_want, closing(open("n", O_RDWR | O_NONBLOCK)));
	EXPECT_AS(a, 0, closing(open("n", O_PATH)));
}

static void access_case(const struct actor *a, mode_t bits)
{
	for (int want = 1; want <= 7; want++) {
		EXPECT_AS(a, (bits & want) == (mode_t)want ? 0 : EACCES, access("n", want));
		EXPECT_AS(a, (bits & want) == (mode_t)want ? 0 : EACCES,
			  faccessat(AT_FDCWD, "n", want, AT_EACCESS));
	}
	EXPECT_AS(a, 0, access("n", F_OK));
}

static void file_case(const struct actor *a, mode_t bits, bool exec)
{
	EXPECT_AS(a, bits & 02 ? 0 : EACCES, truncate("n", 5));
	EXPECT_AS(a, (bits & 06) == 06 ? 0 : EACCES, closing(open("n", O_RDWR | O_TRUNC)));
	EXPECT_AS(a, bits & 02 ? 0 : EACCES, closing(open("n", O_WRONLY | O_TRUNC)));
	EXPECT_AS(a, (bits & 06) == 06 ? 0 : EACCES, closing(open("n", O_RDONLY | O_TRUNC)));
	EXPECT_AS(a, bits & 02 ? 0 : EACCES, closing(open("n", O_WRONLY | O_APPEND)));
	EXPECT_AS(a, bits & 02 ? 0 : EACCES, closing(open("n", O_WRONLY | O_CREAT, 0777)));
	EXPECT_AS(a, bits & 04 ? 0 : EACCES, closing(open("n", O_RDONLY | O_CREAT, 0777)));
	if (exec)
		EXPECT_AS(a, bits & 01 ? ENOEXEC : EACCES, try_exec("n"));
}

static void dir_case(const struct actor *a, mode_t bits)
{
	struct stat st;

	EXPECT_AS(a, bits & 04 ? 0 : EACCES, closing(open("n", O_RDONLY | O_DIRECTORY)));
	EXPECT_AS(a, bits & 01 ? 0 : EACCES, stat("n/.", &st));
	EXPECT_AS(a, bits & 01 ? ENOENT : EACCES, stat("n/x", &st));
	EXPECT_AS(a, (bits & 03) == 03 ? 0 : EACCES, mkdir("n/x", 0777));
	node_remove("n/x");
	become(a);
	EXPECT(bits & 01 ? 0 : EACCES, chdir("n"));
	become(NULL);
	if (bits & 01)
		MUST(chdir(".."));
}

static void object_case(const struct actor *a, enum node_type type, mode_t bits, bool exec)
{
	MUST(chmod("n", mode_only_for(a, bits)));
	ctx("%s, %o for %s", node_name(type), bits, a->name);
	access_case(a, bits);
	if (type == NODE_REG || type == NODE_DIR || type == NODE_FIFO)
		open_case(a, type, bits);
	if (type == NODE_REG)
		file_case(a, bits, exec);
	if (type == NODE_DIR)
		dir_case(a, bits);
	/* Times may be set to "now" by whoever may write. */
	EXPECT_AS(a, a == &actor_owner || bits & 02 ? 0 : EACCES,
		  utimensat(AT_FDCWD, "n", NULL, 0));
	MUST(chmod("n", 0777));
}

static void test_object(void)
{
	bool exec = !no_exec_here();

	for_each_type(t) {
		if (t == NODE_LNK)
			continue;
		fresh();
		make_given(t, "n");
		for (size_t i = 0; i < ARRAY_SIZE(people); i++)
			for (mode_t bits = 0; can_be(people[i]) && bits < 8; bits++)
				object_case(people[i], t, bits, exec);
	}
}

/* Root reads and writes everything, but executes only what somebody may execute. */
static void test_object_root(void)
{
	bool exec = !no_exec_here();

	make_given(NODE_REG, "f");
	make_given(NODE_DIR, "d");
	for (mode_t mode = 0; mode <= 0777; mode++) {
		int want = mode & 0111 ? 0 : EACCES;

		if (mode % 9 && mode & (mode - 1))
			continue;
		ctx("mode %o", mode);
		MUST(chmod("f", mode));
		MUST(chmod("d", mode));
		EXPECT(0, access("f", R_OK | W_OK));
		EXPECT(0, closing(open("f", O_RDWR)));
		EXPECT(0, truncate("f", 1));
		if (exec) {
			EXPECT(want, access("f", X_OK));
			EXPECT(want ? want : ENOEXEC, try_exec("f"));
		}
		EXPECT(0, access("d", R_OK | W_OK | X_OK));
		EXPECT(0, closing(open("d", O_RDONLY | O_DIRECTORY)));
		EXPECT(0, exists("d/."));
	}
}

/* These are for the owner (and root), whatever the mode is. */
static void test_owner_only(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0777);
		give(path);
		for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
			const struct actor *a = everybody[i];
			bool allowed = a == &actor_root || a == &actor_owner;

			for (size_t j = 0; can_be(a) && j < op_count; j++) {
				bool fits = t != NODE_LNK || ops[j].class == OP_NOFOLLOW;

				if (!(ops[j].flags & OP_OWNER) || !fits)
					continue;
				ctx("%s of %s as %s", ops[j].name, path, a->name);
				EXPECT_AS(a, allowed ? 0 : EPERM, ops[j].run(path));
			}
			/* A root that changed the group must not make strangers of the members. */
			give(path);
		}
	}
}

/* The same through a descriptor: what counts is who calls, not who opened it. */
static void test_owner_only_fd(void)
{
	const struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
	int fd;

	make_given(NODE_REG, "f");
	MUST(chmod("f", 0700));
	fd = (int)MUST(open("f", O_RDWR));
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];
		bool owner = a == &actor_owner;

		ctx("as %s", a->name);
		EXPECT_AS(a, owner ? 0 : EPERM, fchmod(fd, 0700));
		EXPECT_AS(a, owner ? 0 : EPERM, fchown(fd, (uid_t)-1, actor_owner.gid));
		EXPECT_AS(a, owner ? 0 : EPERM, futimens(fd, times));
		/* Writable here, though the file is not theirs to write by name. */
		EXPECT_AS(a, owner ? 0 : EACCES, futimens(fd, NULL));
		EXPECT_AS(a, 0, pwrite(fd, "x", 1, 0));
		EXPECT_AS(a, 0, ftruncate(fd, 1));
	}
}

/* Permission is checked when a file is opened, and not again. */
static void test_open_keeps(void)
{
	char c;
	int fd;

	make_content("f", "x", 1);
	give("f");
	become(&actor_owner);
	fd = (int)MUST(open("f", O_RDWR));
	MUST(chmod("f", 0));
	EXPECT(0, pread(fd, &c, 1, 0));
	EXPECT(0, pwrite(fd, "y", 1, 0));
	EXPECT(0, ftruncate(fd, 10));
	EXPECT(0, fsync(fd));
	EXPECT(EACCES, closing(open("f", O_RDONLY)));
	EXPECT(EACCES, closing(open("f", O_WRONLY)));
	become(NULL);
	EXPECT_EQ(10, size_of("f"));
}

/* access() asks for the real ids, AT_EACCESS for the effective ones. */
static void test_access_real(void)
{
	make_file("f", 0600);
	MUST(setresgid(actor_other.gid, 0, 0));
	MUST(setresuid(actor_other.uid, 0, 0));
	EXPECT(EACCES, access("f", R_OK));
	EXPECT(EACCES, access("f", W_OK));
	EXPECT(0, access("f", F_OK));
	EXPECT(0, faccessat(AT_FDCWD, "f", R_OK | W_OK, AT_EACCESS));
	EXPECT(0, closing(open("f", O_RDWR)));
	MUST(setresuid(0, actor_other.uid, 0));
	EXPECT(0, access("f", R_OK | W_OK));
	EXPECT(EACCES, faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS));
	EXPECT(EACCES, closing(open("f", O_RDONLY)));
}

static void test_access_errors(void)
{
	make_file("f", 0644);
	MUST(symlink("nowhere", "l"));
	EXPECT(EINVAL, access("f", 8));
	EXPECT(EINVAL, access("f", -1));
	EXPECT(EINVAL, faccessat(AT_FDCWD, "f", F_OK, 0x40000000));
	EXPECT(ENOENT, access("l", F_OK));
	EXPECT(0, faccessat(AT_FDCWD, "l", F_OK, AT_SYMLINK_NOFOLLOW));
	EXPECT(0, faccessat(AT_FDCWD, "l", R_OK | W_OK | X_OK, AT_SYMLINK_NOFOLLOW));
}

static int with_many_groups(void *arg)
{
	gid_t groups[48];

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		groups[i] = (gid_t)(70000 + i);
	groups[ARRAY_SIZE(groups) - 1] = actor_owner.gid;
	MUST(setgroups(ARRAY_SIZE(groups), groups));
	MUST(setresgid(actor_other.gid, actor_other.gid, actor_other.gid));
	MUST(setresuid(actor_other.uid, actor_other.uid, actor_other.uid));
	EXPECT(0, closing(open("f", O_RDWR)));
	EXPECT(0, access("f", R_OK | W_OK));
	EXPECT(EACCES, closing(open("g", O_RDONLY)));
	EXPECT(0, mkdir("d/x", 0755));
	return 0;
}

/* The last of 48 supplementary groups is as good as the first. */
static void test_many_groups(void)
{
	make_given(NODE_REG, "f");
	MUST(chmod("f", 0060));
	make_given(NODE_REG, "g");
	MUST(chmod("g", 0707));
	make_given(NODE_DIR, "d");
	MUST(chmod("d", 0070));
	EXPECT_EQ(0, in_child(with_many_groups, NULL));
}

static int as_stranger_for_good(void *arg)
{
	(void)arg;
	become_forever(&actor_other);
	EXPECT(EACCES, closing(open("f", O_RDONLY)));
	EXPECT(EACCES, truncate("f", 0));
	EXPECT(EPERM, chmod("f", 0666));
	EXPECT(EPERM, chown("f", actor_other.uid, (gid_t)-1));
	EXPECT(EACCES, unlink("d/f"));
	EXPECT(EACCES, rename("d/f", "f2"));
	EXPECT(0, mkdir("open/mine", 0700));
	EXPECT(EPERM, mknod("open/dev", S_IFCHR | 0600, 0x103));
	EXPECT_EQ(actor_other.uid, uid_of("open/mine"));
	EXPECT_EQ(actor_other.gid, gid_of("open/mine"));
	return 0;
}

/* With no way back to root at all, as a login session is. */
static void test_dropped_for_good(void)
{
	make_given(NODE_REG, "f");
	MUST(chmod("f", 0600));
	make_dir("d", 0755);
	make_given(NODE_REG, "d/f");
	make_dir("open", 0777);
	EXPECT_EQ(0, in_child(as_stranger_for_good, NULL));
}

static const struct test tests[] = {
	{ "classes", test_object, 0 },
	{ "root", test_object_root, NEED_ROOT },
	{ "owner_only", test_owner_only, 0 },
	{ "owner_only_fd", test_owner_only_fd, NEED_ROOT },
	{ "open_keeps", test_open_keeps, 0 },
	{ "access_real", test_access_real, NEED_ROOT },
	{ "access_errors", test_access_errors, 0 },
	{ "many_groups", test_many_groups, NEED_ROOT },
	{ "dropped_for_good", test_dropped_for_good, NEED_ROOT },
};

AREA(object);
