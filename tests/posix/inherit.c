// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * inherit.c - what new objects take from a set-group-id directory, and the umask's part
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_sgid_dir(gid_t gid)
{
	fresh();
	MUST(chmod(".", 0777));
	make_dir("d", 0777);
	if (is_root())
		give_to("d", 0, gid);
	MUST(chmod("d", 02777));
}

/* Everything gets the directory's group; directories also get the bit. */
static void test_group(void)
{
	for_each_type(t) {
		for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
			const struct actor *a = everybody[i];
			gid_t gid = is_root() ? GID_ALIEN : actor_owner.gid;

			if (!can_be(a) || (a != &actor_root && (t == NODE_CHR || t == NODE_BLK)))
				continue;
			make_sgid_dir(gid);
			ctx("%s as %s", node_name(t), a->name);
			EXPECT_AS(a, 0, node_create(t, "d/n", 0755));
			EXPECT_EQ(a->uid, uid_of("d/n"));
			EXPECT_EQ(gid, gid_of("d/n"));
			if (t == NODE_DIR)
				EXPECT_OCT(02755, mode_of("d/n"));
			else if (t != NODE_LNK)
				EXPECT_OCT(0755, mode_of("d/n"));
		}
	}
}

/* It goes on from one level to the next. */
static void test_levels(void)
{
	gid_t gid = is_root() ? GID_ALIEN : actor_owner.gid;

	make_sgid_dir(gid);
	EXPECT_AS(&actor_owner, 0, mkdir("d/a", 0777));
	EXPECT_AS(&actor_owner, 0, mkdir("d/a/b", 0700));
	EXPECT_AS(&actor_owner, 0, mkdir("d/a/b/c", 0));
	EXPECT_OCT(02755, mode_of("d/a"));
	EXPECT_OCT(02700, mode_of("d/a/b"));
	MUST(chmod("d/a/b/c", 0700));
	EXPECT_EQ(gid, gid_of("d/a/b/c"));
	/* Taking the bit from a directory ends it there. */
	EXPECT(0, chmod("d/a/b", 0700));
	EXPECT_AS(&actor_owner, 0, mkdir("d/a/b/e", 0700));
	EXPECT_OCT(0700, mode_of("d/a/b/e"));
	EXPECT_EQ(actor_owner.gid, gid_of("d/a/b/e"));
}

/* link() and rename() bring objects in as they are. */
static void test_moved(void)
{
	make_sgid_dir(GID_ALIEN);
	make_file("f", 0644);
	give("f");
	make_dir("e", 0755);
	give("e");
	EXPECT_AS(&actor_owner, 0, link("f", "d/l"));
	EXPECT_EQ(actor_owner.gid, gid_of("d/l"));
	EXPECT_AS(&actor_owner, 0, rename("f", "d/f"));
	EXPECT_EQ(actor_owner.gid, gid_of("d/f"));
	EXPECT_AS(&actor_owner, 0, rename("e", "d/e"));
	EXPECT_EQ(actor_owner.gid, gid_of("d/e"));
	EXPECT_OCT(0755, mode_of("d/e"));
}

/* Nobody makes a set-group-id executable of a group that they are not in. */
static void test_sgid_files(void)
{
	static const mode_t modes[] = { 02755, 06755, 02711, 02644, 02600 };
	static const struct {
		const struct actor *actor;
		gid_t gid;
		bool member;
	} cases[] = {
		{ &actor_root, GID_ALIEN, true }, { &actor_owner, GID_ALIEN, false },
		{ &actor_owner, 65534, true },	  { &actor_supp, 65534, true },
		{ &actor_other, 65534, false },	  { &actor_group, 65534, true },
	};

	umask(0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(modes); j++) {
			bool strip = !cases[i].member && modes[j] & S_IXGRP;
			mode_t want = strip ? modes[j] & ~(mode_t)S_ISGID : modes[j];

			make_sgid_dir(cases[i].gid);
			ctx("%o as %s in group %u", modes[j], cases[i].actor->name, cases[i].gid);
			EXPECT_AS(cases[i].actor, 0, node_create(NODE_REG, "d/n", modes[j]));
			EXPECT_OCT(want, mode_of("d/n"));
			EXPECT_AS(cases[i].actor, 0, mknod("d/m", S_IFREG | modes[j], 0));
			EXPECT_OCT(want, mode_of("d/m"));
			EXPECT_AS(cases[i].actor, 0, mkfifo("d/p", modes[j]));
			RECORD_OCT(mode_of("d/p"));
			EXPECT_AS(cases[i].actor, 0, mkdir("d/e", modes[j]));
			EXPECT_OCT((modes[j] & 01777) | S_ISGID, mode_of("d/e"));
		}
	}
}

/* The umask takes bits from every kind of creation, and only from creation. */
static void test_umask(void)
{
	for_each_type(t) {
		for (mode_t mask = 0; mask <= 0777; mask++) {
			if (t == NODE_LNK || mask % 7)
				continue;
			ctx("%s, umask %o", node_name(t), mask);
			umask(mask);
			EXPECT(0, node_create(t, "n", 0777));
			EXPECT_OCT(0777 & ~mask, mode_of("n"));
			EXPECT(0, chmod("n", 0777));
			EXPECT_OCT(0777, mode_of("n"));
			umask(022);
			MUST(node_remove("n"));
		}
	}
}

/* The umask belongs to the process that creates, not to the one that ran before it. */
static int create_masked(void *arg)
{
	umask(*(const mode_t *)arg);
	return node_create(NODE_REG, "n", 0666) == 0 ? 0 : errno;
}

static void test_umask_of_process(void)
{
	static const mode_t masks[] = { 0, 077, 022, 0777, 002, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		mode_t mask = masks[i];

		ctx("umask %o", mask);
		EXPECT_EQ(0, in_child(create_masked, &mask));
		EXPECT_OCT(0666 & ~mask, mode_of("n"));
		MUST(unlink("n"));
		EXPECT(0, mkdir("d", 0777));
		EXPECT_OCT(0755, mode_of("d"));
		MUST(rmdir("d"));
	}
}

static const struct test tests[] = {
	{ "group", test_group, 0 },	    { "levels", test_levels, 0 },
	{ "moved", test_moved, NEED_ROOT }, { "sgid_files", test_sgid_files, NEED_ROOT },
	{ "umask", test_umask, 0 },	    { "umask_of_process", test_umask_of_process, 0 },
};

AREA(inherit);
