// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * open.c - open, creat, openat: creation, exclusive creation, truncation, flags, refusals
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int accmodes[] = { O_RDONLY, O_WRONLY, O_RDWR };
static const char *const accnames[] = { "O_RDONLY", "O_WRONLY", "O_RDWR" };

/* The mode of a new file is what was asked for, without the umask. */
static void test_creat_modes(void)
{
	static const mode_t modes[] = { 0,    0111, 0222,  0444,  0600,	 0644,	0666, 0755,
					0777, 0151, 01644, 04755, 02755, 06777, 07777 };
	static const mode_t masks[] = { 0, 022, 027, 077, 0777, 0501 };

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(masks); j++) {
			for (size_t k = 0; k < ARRAY_SIZE(accmodes); k++) {
				ctx("%s, mode %o, umask %o", accnames[k], modes[i], masks[j]);
				umask(masks[j]);
				EXPECT(0, closing(open("f", accmodes[k] | O_CREAT, modes[i])));
				umask(022);
				EXPECT_OCT(modes[i] & ~masks[j], mode_of("f"));
				EXPECT_OCT(S_IFREG, type_of("f"));
				MUST(unlink("f"));
			}
		}
	}
}

/* The maker's descriptor works whatever the new file's mode says. */
static void test_creat_mode_zero(void)
{
	static const mode_t modes[] = { 0, 0444, 0200, 0111, 0400, 0070 };
	char buf[8];

	make_dir("d", 0755);
	give("d");
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		int fd;

		ctx("mode %o", modes[i]);
		become(&actor_owner);
		fd = (int)EXPECT(0, open("d/f", O_RDWR | O_CREAT | O_EXCL, modes[i]));
		EXPECT_EQ(5, write(fd, "hello", 5));
		EXPECT_EQ(5, pread(fd, buf, sizeof(buf), 0));
		EXPECT(0, ftruncate(fd, 3));
		EXPECT(0, fchmod(fd, modes[i]));
		EXPECT(0, close(fd));
		EXPECT(modes[i] & 0400 ? 0 : EACCES, closing(open("d/f", O_RDONLY)));
		EXPECT(modes[i] & 0200 ? 0 : EACCES, closing(open("d/f", O_WRONLY)));
		EXPECT_EQ(3, size_of("d/f"));
		EXPECT(0, unlink("d/f"));
		become(NULL);
	}
}

/* O_CREAT on what exists opens it and changes nothing. */
static void test_creat_existing(void)
{
	char buf[8];
	int fd;

	make_content("f", "hello", 5);
	MUST(chmod("f", 0640));
	fd = (int)EXPECT(0, open("f", O_RDWR | O_CREAT, 0777));
	EXPECT_EQ(5, read(fd, buf, sizeof(buf)));
	EXPECT_OCT(0640, mode_of("f"));
	EXPECT_EQ(5, size_of("f"));
	EXPECT(EISDIR, open(".", O_RDONLY | O_CREAT, 0644));
	EXPECT(0, closing(creat("f", 0777)));
	EXPECT_EQ(0, size_of("f"));
	EXPECT_OCT(0640, mode_of("f"));
}

/* O_EXCL refuses whatever is there, even a symlink that leads nowhere. */
static void test_excl(void)
{
	for (size_t k = 0; k < ARRAY_SIZE(accmodes); k++) {
		int excl = accmodes[k] | O_CREAT | O_EXCL;

		for_each_type(t) {
			fresh();
			node_make(t, "n", 0644);
			ctx("%s %s", accnames[k], node_name(t));
			EXPECT(EEXIST, open("n", excl, 0644));
			EXPECT_OCT(node_ifmt(t), type_of("n"));
			EXPECT(ENOENT, exists("nowhere"));
			EXPECT(EEXIST, open("n", excl | O_TRUNC, 0644));
			EXPECT(EEXIST, open("n", excl | O_NOFOLLOW, 0644));
		}
	}
}

/* Without O_EXCL, O_CREAT creates what a dangling symlink leads to. */
static void test_creat_through_symlink(void)
{
	MUST(symlink("target", "l"));
	MUST(symlink("l", "m"));
	EXPECT(0, closing(open("m", O_WRONLY | O_CREAT, 0600)));
	EXPECT_OCT(S_IFREG, type_of("target"));
	EXPECT_OCT(S_IFLNK, type_of("l"));
	MUST(symlink("missing/f", "n"));
	EXPECT(ENOENT, open("n", O_WRONLY | O_CREAT, 0600));
	MUST(symlink("dir/", "o"));
	EXPECT(EISDIR, open("o", O_WRONLY | O_CREAT, 0600));
	EXPECT(ELOOP, open("l", O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
	MUST(unlink("target"));
	EXPECT(ELOOP, open("l", O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
	EXPECT(ENOENT, exists("target"));
}

/* O_TRUNC with each access mode empties the file and keeps everything else. */
static void test_trunc(void)
{
	for (size_t k = 0; k < ARRAY_SIZE(accmodes); k++) {
		static const int extra[] = { 0, O_CREAT, O_APPEND };

		for (size_t e = 0; e < ARRAY_SIZE(extra); e++) {
			long long ino;

			ctx("%s, extra %#o", accnames[k], extra[e]);
			make_content("f", "hello", 5);
			MUST(chmod("f", 0750));
			ino = ino_of("f");
			EXPECT(0, closing(open("f", accmodes[k] | O_TRUNC | extra[e], 0600)));
			EXPECT_EQ(0, size_of("f"));
			EXPECT_SAME(ino, ino_of("f"));
			EXPECT_OCT(0750, mode_of("f"));
			MUST(unlink("f"));
		}
	}
}

/* Others who have the file open see it shrink; a symlink is followed. */
static void test_trunc_shared(void)
{
	char c;
	int fd;

	make_content("f", "hello", 5);
	MUST(link("f", "g"));
	MUST(symlink("g", "l"));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT_EQ(1, read(fd, &c, 1));
	EXPECT(0, closing(open("l", O_WRONLY | O_TRUNC)));
	EXPECT_EQ(0, read(fd, &c, 1));
	EXPECT_EQ(0, size_of("f"));
	EXPECT(EISDIR, open(".", O_RDWR | O_TRUNC));
	EXPECT(EISDIR, open(".", O_WRONLY));
}

/* A refused O_TRUNC does nothing. */
static void test_trunc_denied(void)
{
	make_content("f", "hello", 5);
	give("f");
	MUST(chmod("f", 0444));
	for (size_t k = 0; k < ARRAY_SIZE(accmodes); k++) {
		ctx("%s", accnames[k]);
		EXPECT_AS(&actor_owner, EACCES, open("f", accmodes[k] | O_TRUNC));
		EXPECT_AS(&actor_owner, EACCES, open("f", accmodes[k] | O_TRUNC | O_CREAT, 0777));
		EXPECT_TRUE(content_is("f", "hello", 5));
	}
	MUST(chmod("f", 0222));
	EXPECT_AS(&actor_owner, EACCES, open("f", O_RDWR | O_TRUNC));
	EXPECT_EQ(5, size_of("f"));
}

static void test_directory_flag(void)
{
	for_each_type(t) {
		int want = t == NODE_DIR ? 0 : t == NODE_LNK ? ENOENT : ENOTDIR;

		node_make(t, node_name(t), 0644);
		ctx("%s", node_name(t));
		EXPECT(want, closing(open(node_name(t), O_RDONLY | O_DIRECTORY)));
		EXPECT(want, closing(open(node_name(t), O_PATH | O_DIRECTORY)));
		EXPECT(t == NODE_DIR ? EISDIR : want,
		       closing(open(node_name(t), O_RDWR | O_DIRECTORY)));
		RECORD(closing(open(node_name(t), O_RDONLY | O_DIRECTORY | O_CREAT, 0644)));
	}
	MUST(symlink("directory", "l"));
	EXPECT(0, closing(open("l", O_RDONLY | O_DIRECTORY)));
	EXPECT(ENOTDIR, open("l", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
	EXPECT(0, closing(open("l/", O_RDONLY | O_DIRECTORY | O_NOFOLLOW)));
}

static void test_nofollow(void)
{
	make_file("f", 0644);
	make_dir("d", 0755);
	make_file("d/f", 0644);
	MUST(symlink("f", "l"));
	MUST(symlink("d", "m"));
	EXPECT(ELOOP, open("l", O_RDONLY | O_NOFOLLOW));
	EXPECT(ELOOP, open("l", O_WRONLY | O_NOFOLLOW | O_TRUNC));
	EXPECT(ELOOP, open("m", O_RDONLY | O_NOFOLLOW));
	EXPECT(0, closing(open("f", O_RDONLY | O_NOFOLLOW)));
	EXPECT(0, closing(open("m/f", O_RDONLY | O_NOFOLLOW)));
}

/* A descriptor that only stands for a place. */
static void test_path_flag(void)
{
	struct stat st;
	char buf[16];
	int fd, dir;

	make_content("f", "hello", 5);
	MUST(chmod("f", 0));
	give("f");
	become(&actor_owner);
	fd = (int)EXPECT(0, open("f", O_PATH));
	become(NULL);
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(5, st.st_size);
	EXPECT(EBADF, read(fd, buf, 1));
	EXPECT(EBADF, write(fd, buf, 1));
	EXPECT(EBADF, lseek(fd, 0, SEEK_SET));
	EXPECT(EBADF, fsync(fd));
	EXPECT(EBADF, fallocate(fd, 0, 0, 1));
	EXPECT(0, closing(open("f", O_PATH | O_TRUNC | O_CREAT, 0644)));
	EXPECT_EQ(5, size_of("f"));
	make_dir("d", 0755);
	make_file("d/g", 0644);
	dir = (int)EXPECT(0, open("d", O_PATH));
	EXPECT(0, closing(openat(dir, "g", O_RDWR)));
	EXPECT(0, mkdirat(dir, "h", 0755));
	EXPECT(0, fchdir(dir));
	EXPECT(0, exists("h"));
}

static void test_path_symlink(void)
{
	char buf[16] = "";
	struct stat st;
	int fd;

	MUST(symlink("nowhere", "l"));
	EXPECT(ENOENT, open("l", O_PATH));
	fd = (int)EXPECT(0, open("l", O_PATH | O_NOFOLLOW));
	EXPECT(0, fstat(fd, &st));
	EXPECT_OCT(S_IFLNK, st.st_mode & S_IFMT);
	EXPECT_EQ(7, readlinkat(fd, "", buf, sizeof(buf)));
	EXPECT_STR("nowhere", buf);
	EXPECT(0, fchownat(fd, "", (uid_t)-1, getegid(), AT_EMPTY_PATH));
}

/* An O_PATH descriptor can be opened for real through /proc, with the usual checks. */
static void test_path_reopen(void)
{
	char proc[64], buf[8];
	int fd, real;

	make_content("f", "hello", 5);
	give("f");
	fd = (int)MUST(open("f", O_PATH));
	MUST(rename("f", "g"));
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	real = (int)EXPECT(0, open(proc, O_RDWR));
	EXPECT_EQ(5, read(real, buf, sizeof(buf)));
	MUST(chmod("g", 0400));
	EXPECT_AS(&actor_owner, EACCES, open(proc, O_RDWR));
	EXPECT_AS(&actor_owner, 0, closing(open(proc, O_RDONLY)));
	MUST(unlink("g"));
	real = (int)EXPECT(0, open(proc, O_RDONLY));
	EXPECT_EQ(5, read(real, buf, sizeof(buf)));
}

static void test_access_mode(void)
{
	char c = 'x';
	int fd;

	make_content("f", "hello", 5);
	fd = (int)EXPECT(0, open("f", O_RDONLY));
	EXPECT(EBADF, write(fd, "x", 1));
	EXPECT(EBADF, pwrite(fd, "x", 1, 0));
	EXPECT(EBADF, fallocate(fd, 0, 0, 1));
	EXPECT_EQ(O_RDONLY, fcntl(fd, F_GETFL) & O_ACCMODE);
	fd = (int)EXPECT(0, open("f", O_WRONLY));
	EXPECT(EBADF, read(fd, &c, 1));
	EXPECT(EBADF, pread(fd, &c, 1, 0));
	EXPECT_EQ(O_WRONLY, fcntl(fd, F_GETFL) & O_ACCMODE);
	fd = (int)EXPECT(0, open(".", O_RDONLY));
	EXPECT(EISDIR, read(fd, &c, 1));
	EXPECT(EISDIR, pread(fd, &c, 1, 0));
	EXPECT(EBADF, write(fd, &c, 1));
	EXPECT_TRUE(content_is("f", "hello", 5));
}

/* O_NOATIME is for the owner. */
static void test_noatime(void)
{
	make_file("f", 0666);
	give("f");
	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		bool ok = i < 2;

		if (!can_be(everybody[i]))
			continue;
		ctx("as %s", everybody[i]->name);
		EXPECT_AS(everybody[i], ok ? 0 : EPERM, closing(open("f", O_RDONLY | O_NOATIME)));
	}
}

/* Two makers, one winner: O_EXCL decides even between processes. */
static int race_to_create(void *arg)
{
	volatile int *winners = arg;
	char name[16];

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		if (closing(open(name, O_CREAT | O_EXCL | O_WRONLY, 0600)) == 0)
			__atomic_fetch_add(winners, 1, __ATOMIC_SEQ_CST);
		else if (errno != EEXIST)
			return errno;
	}
	return 0;
}

static void test_excl_race(void)
{
	volatile int *winners = shared_int();
	pid_t pids[3];

	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = spawn(race_to_create, (void *)winners);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		EXPECT_EQ(0, reap(pids[i]));
	EXPECT_EQ(200, *winners);
	EXPECT_EQ(200, count_entries("."));
}

static int open_how(const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };

	return closing((int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
}

static void test_openat2(void)
{
	make_dir("d", 0755);
	make_file("d/f", 0644);
	MUST(symlink("d", "l"));
	MUST(symlink("/", "root"));
	EXPECT(0, open_how("d/f", O_RDWR, 0));
	EXPECT(0, open_how("l/f", O_RDWR, RESOLVE_BENEATH));
	EXPECT(EXDEV, open_how("../x", O_RDONLY, RESOLVE_BENEATH));
	EXPECT(EXDEV, open_how("root/tmp", O_RDONLY, RESOLVE_BENEATH));
	EXPECT(ELOOP, open_how("l/f", O_RDONLY, RESOLVE_NO_SYMLINKS));
	EXPECT(0, open_how("d/f", O_RDONLY, RESOLVE_NO_SYMLINKS));
	EXPECT(0, open_how("root/d/f", O_RDONLY, RESOLVE_IN_ROOT));
	EXPECT(0, open_how("../../d/f", O_RDONLY, RESOLVE_IN_ROOT));
	EXPECT(0, open_how("d/f", O_RDONLY, RESOLVE_NO_XDEV));
	EXPECT(EINVAL, open_how("d/f", O_RDONLY | (1ull << 40), 0));
	EXPECT(EINVAL, open_how("d/f", O_RDONLY, 1ull << 40));
}

/* Many descriptors of one file at a time, each with its own offset. */
static void test_many_descriptors(void)
{
	int fds[200];
	char c;

	make_content("f", "hello", 5);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = open("f", i % 3 == 2 ? O_RDWR : O_RDONLY);
		MUST(lseek(fds[i], (off_t)(i % 5), SEEK_SET));
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		ctx("descriptor %zu", i);
		EXPECT_EQ(1, read(fds[i], &c, 1));
		EXPECT_EQ("hello"[i % 5], c);
		MUST(close(fds[i]));
	}
}

static const struct test tests[] = {
	{ "creat_modes", test_creat_modes, 0 },
	{ "creat_mode_zero", test_creat_mode_zero, 0 },
	{ "creat_existing", test_creat_existing, 0 },
	{ "excl", test_excl, 0 },
	{ "creat_through_symlink", test_creat_through_symlink, 0 },
	{ "trunc", test_trunc, 0 },
	{ "trunc_shared", test_trunc_shared, 0 },
	{ "trunc_denied", test_trunc_denied, 0 },
	{ "directory_flag", test_directory_flag, 0 },
	{ "nofollow", test_nofollow, 0 },
	{ "path_flag", test_path_flag, 0 },
	{ "path_symlink", test_path_symlink, 0 },
	{ "path_reopen", test_path_reopen, 0 },
	{ "access_mode", test_access_mode, 0 },
	{ "noatime", test_noatime, 0 },
	{ "excl_race", test_excl_race, 0 },
	{ "openat2", test_openat2, 0 },
	{ "many_descriptors", test_many_descriptors, 0 },
};

AREA(open);
