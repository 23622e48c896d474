// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * perm.c - who may do what: search and write permission on the directories of a path
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "ops.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* a/b/c/f, a file that all may use; and what ops need besides. */
static void make_depths(void)
{
	MUST(chmod(".", 0777));
	make_given(NODE_DIR, "a");
	make_given(NODE_DIR, "a/b");
	make_given(NODE_DIR, "a/b/c");
	make_given(NODE_REG, "a/b/c/f");
	make_given(NODE_REG, "src");
}

static const char *const depths[] = { "a", "a/b", "a/b/c" };

static const char *target_of(const struct op *op)
{
	return op_makes(op) ? "a/b/c/new" : "a/b/c/f";
}

/* Without search permission on one directory of the path, nothing works. */
static void test_search(void)
{
	make_depths();
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		for (size_t d = 0; can_be(a) && d < ARRAY_SIZE(depths); d++) {
			MUST(chmod(depths[d], mode_for(a, 06)));
			for (size_t j = 0; j < op_count; j++) {
				ctx("%s as %s without x on %s", ops[j].name, a->name, depths[d]);
				EXPECT_AS(a, EACCES, ops[j].run(target_of(&ops[j])));
			}
			MUST(chmod(depths[d], 0777));
		}
	}
	EXPECT(0, exists("a/b/c/f"));
	EXPECT_EQ(1, count_entries("a/b/c"));
}

static int result_of(const struct actor *a, const struct op *op)
{
	int err;

	become(a);
	err = op->run(target_of(op)) == 0 ? 0 : errno;
	become(NULL);
	return err;
}

/* Search permission alone, for the class of the caller only, is all that a path needs. */
static void test_search_only(void)
{
	make_depths();
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		for (size_t j = 0; can_be(a) && j < op_count; j++) {
			int usual;

			if (op_changes_parent(&ops[j]))
				continue;
			usual = result_of(a, &ops[j]);
			for (size_t d = ARRAY_SIZE(depths); d-- > 0;)
				MUST(chmod(depths[d], mode_only_for(a, 01)));
			ctx("%s as %s with x only", ops[j].name, a->name);
			EXPECT_AS(a, usual, ops[j].run(target_of(&ops[j])));
			for (size_t d = 0; d < ARRAY_SIZE(depths); d++)
				MUST(chmod(depths[d], 0777));
		}
	}
}

/* Root needs no permission bits on directories. */
static void test_search_root(void)
{
	make_depths();
	for (size_t j = 0; j < op_count; j++) {
		int usual;

		if (op_removes(&ops[j]))
			continue;
		usual = result_of(&actor_root, &ops[j]);
		for (size_t d = 0; d < ARRAY_SIZE(depths); d++)
			MUST(chmod(depths[d], 0));
		ctx("%s as root, directories 0000", ops[j].name);
		EXPECT(usual, ops[j].run(target_of(&ops[j])));
		for (size_t d = 0; d < ARRAY_SIZE(depths); d++)
			MUST(chmod(depths[d], 0777));
	}
}

/* (Re)makes d/f, or d/f as a directory for the ops that remove those. */
static void make_victim(const struct op *op)
{
	MUST(chmod("d", 0777));
	if (exists("d/f") == 0)
		MUST(node_remove("d/f"));
	make_given(op->class == OP_RMDIR ? NODE_DIR : NODE_REG, "d/f");
}

static void parent_write_case(const struct actor *a, const struct op *op)
{
	const char *path = op_makes(op) ? "d/new" : "d/f";

	make_victim(op);
	ctx("%s as %s", op->name, a->name);
	MUST(chmod("d", mode_for(a, 05)));
	EXPECT_AS(a, EACCES, op->run(path));
	EXPECT_EQ(1, count_entries("d"));
	MUST(chmod("d", mode_for(a, 02)));
	EXPECT_AS(a, EACCES, op->run(path));
	MUST(chmod("d", 0777));
	EXPECT_EQ(1, count_entries("d"));
	MUST(chmod("d", mode_only_for(a, 03)));
	EXPECT_AS(a, 0, op->run(path));
}

/* Changing a directory takes write and search on it, and no more. */
static void test_parent_write(void)
{
	MUST(chmod(".", 0777));
	make_given(NODE_DIR, "d");
	make_given(NODE_REG, "src");
	for (size_t i = 0; i < ARRAY_SIZE(people); i++)
		for (size_t j = 0; can_be(people[i]) && j < op_count; j++)
			if (op_changes_parent(&ops[j]))
				parent_write_case(people[i], &ops[j]);
}

/* What is there, or missing, is said even where nothing may be written. */
static void test_parent_write_last(void)
{
	make_given(NODE_DIR, "d");
	make_given(NODE_REG, "d/f");
	make_given(NODE_REG, "src");
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		if (!can_be(a))
			continue;
		MUST(chmod("d", mode_for(a, 05)));
		for (size_t j = 0; j < op_count; j++) {
			const struct op *op = &ops[j];

			ctx("%s as %s", op->name, a->name);
			if (op->class == OP_MKDIR || op->class == OP_MAKE || op->class == OP_EXCL)
				EXPECT_AS(a, EEXIST, op->run("d/f"));
			else if (op->class == OP_CREAT)
				EXPECT_AS(a, 0, op->run("d/f"));
			else if (op_removes(op))
				EXPECT_AS(a, ENOENT, op->run("d/missing"));
		}
		MUST(chmod("d", 0777));
	}
}

/* Moving a directory elsewhere changes its "..", which takes write permission on it. */
static void test_rename_dir(void)
{
	make_given(NODE_DIR, "p");
	make_given(NODE_DIR, "q");
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		if (!can_be(a))
			continue;
		ctx("as %s", a->name);
		make_given(NODE_DIR, "p/d");
		MUST(chmod("p/d", mode_for(a, 05)));
		EXPECT_AS(a, EACCES, rename("p/d", "q/d"));
		EXPECT_AS(a, 0, rename("p/d", "p/e"));
		MUST(chmod("p/e", mode_for(a, 02)));
		EXPECT_AS(a, 0, rename("p/e", "q/d"));
		EXPECT(0, exists("q/d"));
		MUST(rmdir("q/d"));
	}
}

/* Both directories of a rename, and the source's directory of a link, are looked at. */
static void test_two_parents(void)
{
	make_given(NODE_DIR, "p");
	make_given(NODE_DIR, "q");
	make_given(NODE_REG, "p/f");
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		if (!can_be(a))
			continue;
		ctx("as %s", a->name);
		MUST(chmod("p", mode_for(a, 05)));
		EXPECT_AS(a, EACCES, rename("p/f", "q/f"));
		EXPECT_AS(a, 0, link("p/f", "q/l"));
		MUST(unlink("q/l"));
		MUST(chmod("p", mode_for(a, 06)));
		EXPECT_AS(a, EACCES, link("p/f", "q/l"));
		MUST(chmod("p", 0777));
		MUST(chmod("q", mode_for(a, 05)));
		EXPECT_AS(a, EACCES, rename("p/f", "q/f"));
		EXPECT_AS(a, EACCES, link("p/f", "q/l"));
		MUST(chmod("q", 0777));
		EXPECT_EQ(0, count_entries("q"));
	}
}

/* Whose file it is, and what its mode is, does not matter for removing it. */
static void test_remove_foreign(void)
{
	make_given(NODE_DIR, "d");
	for_each_type(t) {
		for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
			if (!can_be(people[i]))
				continue;
			node_make(t, "d/n", 0);
			ctx("%s as %s", node_name(t), people[i]->name);
			EXPECT_AS(people[i], 0, node_remove("d/n"));
			EXPECT(ENOENT, exists("d/n"));
		}
	}
}

static const struct test tests[] = {
	{ "search", test_search, 0 },
	{ "search_only", test_search_only, 0 },
	{ "search_root", test_search_root, NEED_ROOT },
	{ "parent_write", test_parent_write, 0 },
	{ "parent_write_last", test_parent_write_last, 0 },
	{ "rename_dir", test_rename_dir, 0 },
	{ "two_parents", test_two_parents, 0 },
	{ "remove_foreign", test_remove_foreign, 0 },
};

AREA(perm);
