// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * chmod.c - chmod, fchmod, fchmodat: modes of every type, who may, and what is dropped
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every bit alone, every bit missing, and the usual ones. */
static const mode_t modes[] = {
	0,     01,    02,    04,    010,   020,	  040,	 0100,	0200,  0400, 01000, 02000,
	04000, 0776,  0775,  0773,  0767,  0757,  0737,	 0677,	0577,  0377, 0777,  01777,
	02777, 04777, 06777, 07777, 03777, 05777, 0644,	 0600,	0755,  0700, 0750,  0640,
	0111,  0444,  0222,  04755, 02755, 06755, 02640, 04644, 01644,
};

static void modes_of_type(enum node_type type)
{
	const char *path = node_name(type);

	node_make(type, path, 0644);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		ctx("%s %o", path, modes[i]);
		EXPECT(0, chmod(path, modes[i]));
		EXPECT_OCT(modes[i], mode_of(path));
		EXPECT_OCT(node_ifmt(type), type_of(path));
		MUST(chmod(path, 0));
		EXPECT(0, fchmodat(AT_FDCWD, path, modes[i], 0));
		EXPECT_OCT(modes[i], mode_of(path));
	}
	MUST(chmod(path, 0700));
}

static void test_modes(void)
{
	for_each_type(t)
		if (t != NODE_LNK)
			modes_of_type(t);
}

/* Bits above 07777 are ignored. */
static void test_high_bits(void)
{
	make_file("f", 0644);
	EXPECT(0, chmod("f", S_IFDIR | 0600));
	EXPECT_OCT(S_IFREG, type_of("f"));
	EXPECT_OCT(0600, mode_of("f"));
	EXPECT(0, chmod("f", 010000755));
	EXPECT_OCT(0755, mode_of("f"));
}

static void test_fchmod(void)
{
	int fds[4];

	make_file("f", 0600);
	make_dir("d", 0700);
	fds[0] = (int)MUST(open("f", O_RDONLY));
	fds[1] = (int)MUST(open("f", O_WRONLY));
	fds[2] = (int)MUST(open("f", O_RDWR));
	fds[3] = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(modes); j++) {
			ctx("descriptor %zu, %o", i, modes[j]);
			EXPECT(0, fchmod(fds[i], modes[j]));
			EXPECT_OCT(modes[j], mode_of(i == 3 ? "d" : "f"));
		}
	}
	MUST(fchmod(fds[3], 0700));
}

static void test_fd_errors(void)
{
	int fd;

	make_file("f", 0600);
	fd = (int)MUST(open("f", O_PATH));
	EXPECT(EBADF, fchmod(fd, 0644));
	EXPECT(EBADF, fchmod(1000, 0644));
	EXPECT(EINVAL, fchmodat(AT_FDCWD, "f", 0644, 0x40000000));
	EXPECT_OCT(0600, mode_of("f"));
	MUST(unlink("f"));
	fd = (int)MUST(open("f", O_CREAT | O_RDWR, 0600));
	MUST(unlink("f"));
	EXPECT(0, fchmod(fd, 0640));
}

/* A symlink's own mode is 0777 for ever; chmod goes through it. */
static void test_symlink(void)
{
	make_file("f", 0600);
	MUST(symlink("f", "l"));
	EXPECT_OCT(0777, mode_of("l"));
	EXPECT(0, chmod("l", 0640));
	EXPECT_OCT(0640, mode_of("f"));
	EXPECT_OCT(0777, mode_of("l"));
	EXPECT(EOPNOTSUPP, fchmodat(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
	EXPECT_OCT(0640, mode_of("f"));
	EXPECT_OCT(0777, mode_of("l"));
}

/* Every name of a file shows the change. */
static void test_hard_links(void)
{
	make_file("f", 0600);
	MUST(link("f", "g"));
	EXPECT_OCT(0600, mode_of("g"));
	EXPECT(0, chmod("g", 04711));
	EXPECT_OCT(04711, mode_of("f"));
	EXPECT(0, chmod("f", 0600));
	EXPECT_OCT(0600, mode_of("g"));
}

static void test_who(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		if (t == NODE_LNK)
			continue;
		node_make(t, path, 0777);
		give(path);
		for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
			bool ok = i < 2;

			if (!can_be(everybody[i]))
				continue;
			ctx("%s as %s", path, everybody[i]->name);
			MUST(chmod(path, 0777));
			EXPECT_AS(everybody[i], ok ? 0 : EPERM, chmod(path, 0700));
			EXPECT_OCT(ok ? 0700 : 0777, mode_of(path));
			EXPECT_AS(everybody[i], ok ? 0 : EPERM, chmod(path, 0777));
			EXPECT_OCT(0777, mode_of(path));
		}
	}
}

/* The set-group-id bit is for members of the group; without an error, it does not stick. */
static void test_sgid_alien_group(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		if (t == NODE_LNK)
			continue;
		ctx("%s", path);
		node_make(t, path, 0755);
		give_to(path, actor_owner.uid, GID_ALIEN);
		EXPECT_AS(&actor_owner, 0, chmod(path, 02755));
		EXPECT_OCT(0755, mode_of(path));
		EXPECT_AS(&actor_owner, 0, chmod(path, 07755));
		EXPECT_OCT(05755, mode_of(path));
		EXPECT(0, chmod(path, 06755));
		EXPECT_OCT(06755, mode_of(path));
		give(path);
		EXPECT_AS(&actor_owner, 0, chmod(path, 02755));
		EXPECT_OCT(02755, mode_of(path));
	}
}

/* A supplementary group counts as well. */
static void test_sgid_supplementary(void)
{
	make_file("f", 0755);
	give_to("f", actor_supp.uid, actor_supp.supplementary);
	EXPECT_AS(&actor_supp, 0, chmod("f", 02755));
	EXPECT_OCT(02755, mode_of("f"));
	EXPECT_AS(&actor_other, 0, chmod("f", 02711));
	EXPECT_OCT(0711, mode_of("f"));
}

/* An ordinary owner may set and clear the sticky bit on a file. */
static void test_sticky_file(void)
{
	make_file("f", 0644);
	give("f");
	EXPECT_AS(&actor_owner, 0, chmod("f", 01644));
	EXPECT_OCT(01644, mode_of("f"));
	EXPECT_AS(&actor_owner, 0, chmod("f", 0644));
	EXPECT_OCT(0644, mode_of("f"));
}

/* A changed mode is in force at once. */
static void test_takes_effect(void)
{
	make_dir("d", 0700);
	make_file("d/f", 0600);
	give("d");
	give("d/f");
	EXPECT_AS(&actor_owner, 0, closing(open("d/f", O_RDWR)));
	EXPECT_AS(&actor_owner, 0, chmod("d/f", 0400));
	EXPECT_AS(&actor_owner, EACCES, closing(open("d/f", O_RDWR)));
	EXPECT_AS(&actor_owner, 0, closing(open("d/f", O_RDONLY)));
	EXPECT_AS(&actor_owner, 0, chmod("d", 0600));
	EXPECT_AS(&actor_owner, EACCES, closing(open("d/f", O_RDONLY)));
	EXPECT_AS(&actor_owner, 0, chmod("d", 0500));
	EXPECT_AS(&actor_owner, EACCES, unlink("d/f"));
	EXPECT_AS(&actor_owner, 0, chmod("d", 0700));
	EXPECT_AS(&actor_owner, 0, unlink("d/f"));
}

static const struct test tests[] = {
	{ "modes", test_modes, 0 },
	{ "high_bits", test_high_bits, 0 },
	{ "fchmod", test_fchmod, 0 },
	{ "fd_errors", test_fd_errors, 0 },
	{ "symlink", test_symlink, 0 },
	{ "hard_links", test_hard_links, 0 },
	{ "who", test_who, 0 },
	{ "sgid_alien_group", test_sgid_alien_group, NEED_ROOT },
	{ "sgid_supplementary", test_sgid_supplementary, NEED_ROOT },
	{ "sticky_file", test_sticky_file, 0 },
	{ "takes_effect", test_takes_effect, 0 },
};

AREA(chmod);
