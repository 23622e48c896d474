// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sticky.c - in a sticky directory only the owner of an entry, of the directory, or root may
 * remove or rename it
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define UID_THIRD 65530

/* Seen from actor_owner, who acts here: mine, somebody's, root's. */
static const uid_t holders[] = { 65534, UID_THIRD, 0 };

struct sticky_case {
	uid_t dir_uid;
	uid_t file_uid;
	mode_t dir_mode;
	enum node_type type;
};

static bool allowed(const struct sticky_case *c, const struct actor *a)
{
	return !(c->dir_mode & S_ISVTX) || a->uid == 0 || a->uid == c->dir_uid ||
	       a->uid == c->file_uid;
}

/* A directory "d" and in it "n", and "own", a directory of the actor's. */
static void make_case(const struct sticky_case *c, const struct actor *a)
{
	fresh();
	MUST(chmod(".", 0777));
	make_dir("d", c->dir_mode);
	give_to("d", c->dir_uid, GID_ALIEN);
	node_make(c->type, "d/n", 0777);
	give_to("d/n", c->file_uid, GID_ALIEN);
	make_dir("own", 0755);
	give_to("own", a->uid, a->gid);
	ctx("%s of %u in %o directory of %u as %s", node_name(c->type), c->file_uid, c->dir_mode,
	    c->dir_uid, a->name);
}

static void try_remove(const struct sticky_case *c, const struct actor *a)
{
	bool ok = allowed(c, a);

	make_case(c, a);
	EXPECT_AS(a, ok ? 0 : EPERM, node_remove("d/n"));
	EXPECT(ok ? ENOENT : 0, exists("d/n"));
}

static void try_rename_from(const struct sticky_case *c, const struct actor *a)
{
	bool ok = allowed(c, a);

	make_case(c, a);
	EXPECT_AS(a, ok ? 0 : EPERM, rename("d/n", "d/m"));
	EXPECT(ok ? 0 : ENOENT, exists("d/m"));
	EXPECT_AS(a, ok ? 0 : EPERM, rename(ok ? "d/m" : "d/n", "own/n"));
	EXPECT(ok ? 0 : ENOENT, exists("own/n"));
}

/* Renaming over an entry removes it. */
static void try_rename_over(const struct sticky_case *c, const struct actor *a)
{
	bool ok = allowed(c, a);
	long long ino;

	make_case(c, a);
	node_make(c->type, "own/m", 0777);
	give_to("own/m", a->uid, a->gid);
	ino = ino_of("own/m");
	EXPECT_AS(a, ok ? 0 : EPERM, rename("own/m", "d/n"));
	EXPECT_TRUE((ino_of("d/n") == ino) == ok);
	EXPECT(ok ? ENOENT : 0, exists("own/m"));
}

static void try_exchange(const struct sticky_case *c, const struct actor *a)
{
	bool ok = allowed(c, a);
	long long ino;

	make_case(c, a);
	node_make(c->type, "own/m", 0777);
	give_to("own/m", a->uid, a->gid);
	ino = ino_of("own/m");
	EXPECT_AS(a, ok ? 0 : EPERM,
		  renameat2(AT_FDCWD, "own/m", AT_FDCWD, "d/n", RENAME_EXCHANGE));
	EXPECT_TRUE((ino_of("d/n") == ino) == ok);
}

static void for_cases(void (*try)(const struct sticky_case *c, const struct actor *a))
{
	static const mode_t modes[] = { 0777, 01777 };

	for_each_type(t) {
		for (unsigned int i = 0; i < 3 * 3 * 2; i++) {
			struct sticky_case c = { holders[i % 3], holders[i / 3 % 3], modes[i / 9],
						 t };

			try(&c, &actor_owner);
			if (c.dir_uid == UID_THIRD && c.file_uid == UID_THIRD)
				try(&c, &actor_root);
		}
	}
}

static void test_remove(void)
{
	for_cases(try_remove);
}

static void test_rename_from(void)
{
	for_cases(try_rename_from);
}

static void test_rename_over(void)
{
	for_cases(try_rename_over);
}

static void test_exchange(void)
{
	for_cases(try_exchange);
}

/* The sticky bit does not keep anybody from creating, linking and changing their own. */
static void test_create(void)
{
	make_dir("d", 01777);
	MUST(chmod(".", 0777));
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		ctx("as %s", a->name);
		for_each_type(t) {
			if (t == NODE_CHR || t == NODE_BLK)
				continue;
			EXPECT_AS(a, 0, node_create(t, "d/n", 0644));
			EXPECT_EQ(a->uid, uid_of("d/n"));
			EXPECT_AS(a, 0, rename("d/n", "d/m"));
			EXPECT_AS(a, 0, node_remove("d/m"));
		}
	}
}

/* Writable by the group only: the members may create, and remove what is theirs. */
static void test_group(void)
{
	static const struct actor *const members[] = { &actor_group, &actor_supp };

	make_dir("d", 01770);
	give_to("d", UID_THIRD, actor_owner.gid);
	make_file("d/theirs", 0666);
	give_to("d/theirs", UID_THIRD, actor_owner.gid);
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		ctx("as %s", members[i]->name);
		EXPECT_AS(members[i], EPERM, unlink("d/theirs"));
		EXPECT_AS(members[i], EPERM, rename("d/theirs", "d/mine"));
		EXPECT_AS(members[i], 0, truncate("d/theirs", 0));
		EXPECT_AS(members[i], 0, mkdir("d/mine", 0755));
		EXPECT_AS(members[i], 0, rmdir("d/mine"));
	}
	EXPECT_AS(&actor_other, EACCES, unlink("d/theirs"));
	EXPECT(0, exists("d/theirs"));
}

/* An ordinary user's own sticky directory is no obstacle to that user. */
static void test_own(void)
{
	make_dir("d", 01700);
	for_each_type(t) {
		ctx("%s", node_name(t));
		EXPECT(0, node_create(t, "d/n", 0600));
		EXPECT(0, rename("d/n", "d/m"));
		EXPECT(0, node_create(t, "d/n", 0600));
		EXPECT(0, rename("d/m", "d/n"));
		EXPECT(0, node_remove("d/n"));
	}
}

static const struct test tests[] = {
	{ "remove", test_remove, NEED_ROOT },
	{ "rename_from", test_rename_from, NEED_ROOT },
	{ "rename_over", test_rename_over, NEED_ROOT },
	{ "exchange", test_exchange, NEED_ROOT },
	{ "create", test_create, NEED_ROOT },
	{ "group", test_group, NEED_ROOT },
	{ "own", test_own, 0 },
};

AREA(sticky);
