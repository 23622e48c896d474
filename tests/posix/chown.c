// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * chown.c - chown, fchown, lchown, fchownat: owners of every type, and who may change them
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_UID ((uid_t)-1)
#define KEEP_GID ((gid_t)-1)

struct owner {
	uid_t uid;
	gid_t gid;
};

static const struct owner owners[] = {
	{ 0, 0 },
	{ 1, 2 },
	{ 65534, 65533 },
	{ 65535, 65535 },
	{ 65536, 65537 },
	{ 123456789, 987654321 },
	{ 0x7fffffff, 0x7fffffff },
	{ 0x80000000u, 0x80000001u },
	{ 0xfffffffeu, 0xfffffffeu },
};

static void expect_owner(const char *path, uid_t uid, gid_t gid)
{
	EXPECT_EQ(uid, uid_of(path));
	EXPECT_EQ(gid, gid_of(path));
}

/* Root gives any file to anybody. */
static void test_root(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0644);
		for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
			const struct owner *o = &owners[i];

			ctx("%s to %u:%u", path, o->uid, o->gid);
			EXPECT(0, lchown(path, o->uid, o->gid));
			expect_owner(path, o->uid, o->gid);
			MUST(lchown(path, 7, 8));
			EXPECT(0, fchownat(AT_FDCWD, path, o->uid, o->gid, AT_SYMLINK_NOFOLLOW));
			expect_owner(path, o->uid, o->gid);
			EXPECT_OCT(node_ifmt(t), type_of(path));
		}
	}
}

/* -1 keeps what is there. */
static void test_keep(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0644);
		ctx("%s", path);
		EXPECT(0, lchown(path, 11, 22));
		EXPECT(0, lchown(path, 33, KEEP_GID));
		expect_owner(path, 33, 22);
		EXPECT(0, lchown(path, KEEP_UID, 44));
		expect_owner(path, 33, 44);
		EXPECT(0, lchown(path, KEEP_UID, KEEP_GID));
		expect_owner(path, 33, 44);
	}
}

/* chown() goes through a symlink, lchown() does not. */
static void test_symlink(void)
{
	make_file("f", 0644);
	MUST(symlink("f", "l"));
	EXPECT(0, chown("l", 11, 22));
	expect_owner("f", 11, 22);
	expect_owner("l", 0, 0);
	EXPECT(0, lchown("l", 33, 44));
	expect_owner("f", 11, 22);
	expect_owner("l", 33, 44);
	EXPECT(0, fchownat(AT_FDCWD, "l", 55, 66, 0));
	expect_owner("f", 55, 66);
	MUST(unlink("f"));
	EXPECT(ENOENT, chown("l", 1, 1));
	EXPECT(0, lchown("l", 1, 1));
}

static void test_fchown(void)
{
	int file, dir, removed;

	make_file("f", 0);
	make_dir("d", 0700);
	file = (int)MUST(open("f", O_RDONLY));
	dir = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	EXPECT(0, fchown(file, 11, 22));
	expect_owner("f", 11, 22);
	EXPECT(0, fchown(dir, 33, 44));
	expect_owner("d", 33, 44);
	EXPECT(0, fchownat(file, "", 55, 66, AT_EMPTY_PATH));
	expect_owner("f", 55, 66);
	EXPECT(EINVAL, fchownat(file, "", 55, 66, 0x40000000));
	EXPECT(EBADF, fchown((int)MUST(open("f", O_PATH)), 1, 1));
	EXPECT(EBADF, fchown(1000, 1, 1));
	removed = (int)MUST(open("g", O_RDWR | O_CREAT, 0600));
	MUST(unlink("g"));
	EXPECT(0, fchown(removed, 1, 1));
}

/* All names of a file change together. */
static void test_hard_links(void)
{
	make_file("f", 0644);
	MUST(link("f", "g"));
	EXPECT(0, chown("f", 11, 22));
	expect_owner("g", 11, 22);
}

/* Only root gives files away; not even their owner can. */
static void test_give_away(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0777);
		give(path);
		for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
			const struct actor *a = people[i];

			if (!can_be(a))
				continue;
			ctx("%s as %s", path, a->name);
			EXPECT_AS(a, EPERM, lchown(path, 12345, KEEP_GID));
			EXPECT_AS(a, EPERM, lchown(path, 0, 0));
			EXPECT_AS(a, EPERM, lchown(path, KEEP_UID, GID_ALIEN));
			EXPECT_AS(a, EPERM, lchown(path, KEEP_UID, 0));
			EXPECT_AS(a, a == &actor_owner ? 0 : EPERM,
				  lchown(path, actor_owner.uid, KEEP_GID));
			EXPECT_AS(a, a == &actor_owner ? 0 : EPERM,
				  lchown(path, actor_owner.uid, actor_owner.gid));
			RECORD_AS(a, lchown(path, KEEP_UID, KEEP_GID));
			expect_owner(path, actor_owner.uid, actor_owner.gid);
		}
	}
}

/* The owner may choose among the groups it is in. */
static void test_own_groups(void)
{
	for_each_type(t) {
		const char *path = node_name(t);

		node_make(t, path, 0644);
		give_to(path, actor_supp.uid, GID_ALIEN);
		ctx("%s", path);
		EXPECT_AS(&actor_supp, 0, lchown(path, KEEP_UID, actor_supp.supplementary));
		expect_owner(path, actor_supp.uid, actor_supp.supplementary);
		EXPECT_AS(&actor_supp, 0, lchown(path, actor_supp.uid, actor_supp.gid));
		expect_owner(path, actor_supp.uid, actor_supp.gid);
		EXPECT_AS(&actor_supp, EPERM, lchown(path, KEEP_UID, GID_ALIEN));
		EXPECT_AS(&actor_other, EPERM, lchown(path, KEEP_UID, actor_supp.supplementary));
		expect_owner(path, actor_supp.uid, actor_supp.gid);
		MUST(node_remove(path));
	}
}

/* Group membership, search and write permission give no right to change owners. */
static void test_alien_owner(void)
{
	make_dir("d", 0777);
	make_file("d/f", 0777);
	give_to("d/f", 12345, actor_owner.gid);
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		ctx("as %s", people[i]->name);
		EXPECT_AS(people[i], EPERM, chown("d/f", people[i]->uid, KEEP_GID));
		EXPECT_AS(people[i], EPERM, chown("d/f", KEEP_UID, people[i]->gid));
	}
	expect_owner("d/f", 12345, actor_owner.gid);
}

/* The new owner's rights are in force at once, and the old one's gone. */
static void test_takes_effect(void)
{
	make_file("f", 0600);
	give("f");
	EXPECT_AS(&actor_owner, 0, closing(open("f", O_RDWR)));
	EXPECT_AS(&actor_other, EACCES, closing(open("f", O_RDWR)));
	MUST(chown("f", actor_other.uid, KEEP_GID));
	EXPECT_AS(&actor_owner, EACCES, closing(open("f", O_RDWR)));
	EXPECT_AS(&actor_other, 0, closing(open("f", O_RDWR)));
	MUST(chown("f", 0, 0));
	MUST(chmod("f", 0060));
	EXPECT_AS(&actor_supp, EACCES, closing(open("f", O_RDWR)));
	MUST(chown("f", 0, actor_supp.supplementary));
	EXPECT_AS(&actor_supp, 0, closing(open("f", O_RDWR)));
	EXPECT_AS(&actor_other, EACCES, closing(open("f", O_RDWR)));
}

/* New objects belong to the effective user and group of their maker. */
static void test_new_owner(void)
{
	make_dir("d", 0777);
	for_each_type(t) {
		for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
			const struct actor *a = everybody[i];

			if (!can_be(a) || (a != &actor_root && (t == NODE_CHR || t == NODE_BLK)))
				continue;
			ctx("%s as %s", node_name(t), a->name);
			EXPECT_AS(a, 0, node_create(t, "d/n", 0644));
			expect_owner("d/n", a->uid, a->gid);
			MUST(node_remove("d/n"));
		}
	}
}

static const struct test tests[] = {
	{ "root", test_root, NEED_ROOT },
	{ "keep", test_keep, NEED_ROOT },
	{ "symlink", test_symlink, NEED_ROOT },
	{ "fchown", test_fchown, NEED_ROOT },
	{ "hard_links", test_hard_links, NEED_ROOT },
	{ "give_away", test_give_away, 0 },
	{ "own_groups", test_own_groups, NEED_ROOT },
	{ "alien_owner", test_alien_owner, NEED_ROOT },
	{ "takes_effect", test_takes_effect, NEED_ROOT },
	{ "new_owner", test_new_owner, 0 },
};

AREA(chown);
