// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * path.c - resolving paths: every operation against every kind of odd path
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "ops.h"
#include "proc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The kernel follows at most 40 symlinks in one path, but when it has to start over without RCU it
 * goes on counting. So what has to work in any case is half of that.
 */
#define LINKS_MAX 40

/* A file of each type named after it, symlinks to them, and symlinks that lead nowhere. */
static void make_fixture(void)
{
	for_each_type(t)
		node_make(t, node_name(t), 0644);
	MUST(chmod("directory", 0755));
	make_content("src", "src", 3);
	MUST(symlink("file", "to-file"));
	MUST(symlink("directory", "to-dir"));
	MUST(symlink("self", "self"));
	MUST(symlink("loop2", "loop1"));
	MUST(symlink("loop1", "loop2"));
	give(".");
	give("src");
	give("directory");
	for_each_type(t)
		give(node_name(t));
}

/* Who calls the ops: ourselves, and as root an ordinary user, too. */
static void for_callers(void (*run)(const struct actor *caller))
{
	make_fixture();
	if (is_root())
		run(&actor_root);
	run(&actor_owner);
}

static void try_op(const struct actor *caller, const struct op *op, const char *label, int want,
		   const char *path)
{
	ctx("%s %s as %s", op->name, label, caller->name);
	EXPECT_AS(caller, want, op->run(path));
}

/* These paths lead nowhere, whatever the operation. */
static void bad_paths(const struct actor *caller)
{
	static const struct {
		const char *path;
		int want;
	} cases[] = {
		{ "", ENOENT },
		{ "missing/x", ENOENT },
		{ "missing/x/y", ENOENT },
		{ "missing/.", ENOENT },
		{ "missing/..", ENOENT },
		{ "missing/../file", ENOENT },
		{ "directory/missing/x", ENOENT },
		{ "symlink/x", ENOENT },
		{ "to-dir/missing/x", ENOENT },
		{ "file/x", ENOTDIR },
		{ "file/x/y", ENOTDIR },
		{ "file/.", ENOTDIR },
		{ "file/..", ENOTDIR },
		{ "file/../file", ENOTDIR },
		{ "to-file/x", ENOTDIR },
		{ "to-file/..", ENOTDIR },
		{ "fifo/x", ENOTDIR },
		{ "socket/x", ENOTDIR },
		{ "self/x", ELOOP },
		{ "self/.", ELOOP },
		{ "loop1/x", ELOOP },
		{ "loop2/../file", ELOOP },
	};

	for (size_t i = 0; i < op_count; i++)
		for (size_t j = 0; j < ARRAY_SIZE(cases); j++)
			try_op(caller, &ops[i], cases[j].path, cases[j].want, cases[j].path);
}

static void test_bad_paths(void)
{
	for_callers(bad_paths);
}

static void device_paths(const struct actor *caller)
{
	for (size_t i = 0; i < op_count; i++) {
		try_op(caller, &ops[i], "chr/x", ENOTDIR, "chr/x");
		try_op(caller, &ops[i], "blk/x", ENOTDIR, "blk/x");
	}
}

static void test_device_paths(void)
{
	for_callers(device_paths);
}

static void too_long(const struct actor *caller)
{
	char inside[512], below[512];

	snprintf(inside, sizeof(inside), "directory/%s", long_name(LONG_NAME_MAX + 1, 'n'));
	snprintf(below, sizeof(below), "%s/x", long_name(LONG_NAME_MAX + 1, 'n'));
	for (size_t i = 0; i < op_count; i++) {
		const struct op *op = &ops[i];

		try_op(caller, op, "256 bytes", ENAMETOOLONG, long_name(LONG_NAME_MAX + 1, 'n'));
		try_op(caller, op, "1023 bytes", ENAMETOOLONG, long_name(1023, 'n'));
		try_op(caller, op, "directory/256 bytes", ENAMETOOLONG, inside);
		try_op(caller, op, "256 bytes/x", ENAMETOOLONG, below);
		try_op(caller, op, "PATH_MAX", ENAMETOOLONG, long_path(PATH_MAX, "file"));
		try_op(caller, op, "PATH_MAX + 1", ENAMETOOLONG, long_path(PATH_MAX + 1, "file"));
	}
}

static void test_too_long(void)
{
	for_callers(too_long);
}

/* The longest allowed names are as good as short ones. */
static void just_fits(const struct actor *caller)
{
	for (size_t i = 0; i < op_count; i++) {
		const struct op *op = &ops[i];
		int want = op_makes(op) ? 0 : ENOENT;

		try_op(caller, op, "missing", want, "missing");
		try_op(caller, op, "255 bytes", want, long_name(LONG_NAME_MAX, 'n'));
		try_op(caller, op, "PATH_MAX - 1", want, long_path(PATH_MAX - 1, "missing"));
		try_op(caller, op, "dots", want, "./directory/.././/missing");
		try_op(caller, op, "via symlink", want, "to-dir/missing");
	}
}

static void test_just_fits(void)
{
	for_callers(just_fits);
}

static void bad_pointer(const struct actor *caller)
{
	const char *unmapped = bad_address();

	for (size_t i = 0; i < op_count; i++) {
		try_op(caller, &ops[i], "unmapped", EFAULT, unmapped);
		try_op(caller, &ops[i], "unaddressable", EFAULT, (const char *)-8);
	}
}

static void test_bad_pointer(void)
{
#ifdef UNDER_ADDRESS_SANITIZER
	skip_test("the address sanitizer reads all paths itself");
#endif
	for_callers(bad_pointer);
}

/* The last component decides, and so does the operation's class. ANY: tested elsewhere. */
#define ANY -1

struct last_case {
	const char *path;
	int want[OP_CLASSES];
};

/* clang-format off */
static const struct last_case last_cases[] = {
	/*                    follow       nofollow     mkdir        make         O_CREAT
	 *                    O_EXCL       rename to    rename from  unlink       rmdir */
	{ "missing/",       { ENOENT,      ENOENT,      0,           ENOENT,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOENT,      ENOENT,      ENOENT } },
	{ "file/",          { ENOTDIR,     ENOTDIR,     EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "fifo/",          { ENOTDIR,     ENOTDIR,     EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "to-file/",       { ENOTDIR,     ENOTDIR,     EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "to-dir/",        { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "symlink/",       { ENOENT,      ENOENT,      EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "self/",          { ELOOP,       ELOOP,       EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     ENOTDIR,     ENOTDIR,     ENOTDIR } },
	{ "self",           { ELOOP,       ANY,         EEXIST,      EEXIST,      ELOOP,
	                      EEXIST,      ANY,         0,           ANY,         ENOTDIR } },
	{ "symlink",        { ENOENT,      ANY,         EEXIST,      EEXIST,      ANY,
	                      EEXIST,      ANY,         0,           ANY,         ENOTDIR } },
	{ "directory",      { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EEXIST,      EISDIR,      0,           EISDIR,      ANY } },
	{ "directory/",     { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EISDIR,      ENOTDIR,     0,           EISDIR,      ANY } },
	{ "directory/.",    { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EEXIST,      EBUSY,       EBUSY,       EISDIR,      EINVAL } },
	{ "directory/..",   { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EEXIST,      EBUSY,       EBUSY,       EISDIR,      ENOTEMPTY } },
	{ ".",              { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EEXIST,      EBUSY,       EBUSY,       EISDIR,      EINVAL } },
	{ "..",             { ANY,         ANY,         EEXIST,      EEXIST,      EISDIR,
	                      EEXIST,      EBUSY,       EBUSY,       EISDIR,      ENOTEMPTY } },
};
/* clang-format on */

static void last_component(const struct actor *caller)
{
	for (size_t i = 0; i < ARRAY_SIZE(last_cases); i++) {
		const struct last_case *c = &last_cases[i];

		for (size_t j = 0; j < op_count; j++)
			if (c->want[ops[j].class] != ANY)
				try_op(caller, &ops[j], c->path, c->want[ops[j].class], c->path);
	}
}

static void test_last_component(void)
{
	for_callers(last_component);
}

/* Creating over what exists fails for every type, and leaves it alone. */
static void over_existing(const struct actor *caller)
{
	for (size_t i = 0; i < op_count; i++) {
		enum op_class class = ops[i].class;

		if (class != OP_MKDIR && class != OP_MAKE && class != OP_EXCL)
			continue;
		for_each_type(t) {
			long long ino = ino_of(node_name(t));

			try_op(caller, &ops[i], node_name(t), EEXIST, node_name(t));
			EXPECT_SAME(ino, ino_of(node_name(t)));
			EXPECT_OCT(node_ifmt(t), type_of(node_name(t)));
		}
	}
}

static void test_over_existing(void)
{
	for_callers(over_existing);
}

/* chainN leads over N symlinks to "directory". */
static void make_chain(void)
{
	char name[24], target[24] = "directory";

	for (int i = 1; i <= LINKS_MAX + 1; i++) {
		snprintf(name, sizeof(name), "chain%d", i);
		MUST(symlink(target, name));
		memcpy(target, name, sizeof(target));
	}
}

static void link_chain(const struct actor *caller)
{
	for (size_t i = 0; i < op_count; i++) {
		const struct op *op = &ops[i];
		int want = op_makes(op) ? 0 : ENOENT;

		try_op(caller, op, "20 links", want, "chain20/missing");
		try_op(caller, op, "41 links", ELOOP, "chain41/missing");
		try_op(caller, op, "12 + 8 links", want, "chain12/../chain8/missing");
		try_op(caller, op, "25 + 16 links", ELOOP, "chain25/../chain16/missing");
	}
}

static void test_link_chain(void)
{
	make_chain();
	for_callers(link_chain);
}

/* What an operation says about an existing object of the wrong (or right) type. */
struct type_case {
	const char *op;
	int want[NODE_TYPES]; /* the symlink here is the object, not what it leads to */
};

/* clang-format off */
static const struct type_case type_cases[] = {
	/*			 file	  directory fifo    socket   symlink  chr      blk */
	{ "open O_RDONLY",	{ 0,	   0,	    0,	    ENXIO,   ENOENT,  ANY,     ANY } },
	{ "open O_WRONLY",	{ 0,	   EISDIR,  ENXIO,  ENXIO,   ENOENT,  ANY,     ANY } },
	{ "open O_RDWR",	{ 0,	   EISDIR,  0,	    ENXIO,   ENOENT,  ANY,     ANY } },
	{ "open O_TRUNC",	{ 0,	   EISDIR,  ENXIO,  ENXIO,   ENOENT,  ANY,     ANY } },
	{ "open O_APPEND",	{ 0,	   EISDIR,  ENXIO,  ENXIO,   ENOENT,  ANY,     ANY } },
	{ "open O_CREAT",	{ 0,	   EISDIR,  ENXIO,  ENXIO,   ANY,     ANY,     ANY } },
	{ "open O_PATH",	{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "open O_PATH nofollow", { 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "open O_DIRECTORY",	{ ENOTDIR, 0,	    ENOTDIR, ENOTDIR, ENOENT, ENOTDIR, ENOTDIR } },
	{ "chdir",		{ ENOTDIR, 0,	    ENOTDIR, ENOTDIR, ENOENT, ENOTDIR, ENOTDIR } },
	{ "readlink",		{ EINVAL,  EINVAL,  EINVAL, EINVAL,  0,	      EINVAL,  EINVAL } },
	{ "truncate",		{ 0,	   EISDIR,  EINVAL, EINVAL,  ENOENT,  EINVAL,  EINVAL } },
	{ "setxattr",		{ 0,	   0,	    EPERM,  EPERM,   ENOENT,  EPERM,   EPERM } },
	{ "lsetxattr",		{ 0,	   0,	    EPERM,  EPERM,   EPERM,   EPERM,   EPERM } },
	{ "getxattr",		{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "lgetxattr",		{ 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "listxattr",		{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "llistxattr",		{ 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "chmod",		{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "chown",		{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "lchown",		{ 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "utimensat",		{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "utimensat nofollow",	{ 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "utimensat NULL",	{ 0,	   0,	    0,	    0,	     ENOENT,  0,       0 } },
	{ "link from",		{ 0,	   EPERM,   0,	    0,	     0,	      0,       0 } },
	{ "linkat follow from",	{ 0,	   EPERM,   0,	    0,	     ENOENT,  0,       0 } },
	{ "rename from",	{ 0,	   0,	    0,	    0,	     0,	      0,       0 } },
	{ "rmdir",		{ ENOTDIR, ANY,	    ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR } },
	{ "unlinkat AT_REMOVEDIR", { ENOTDIR, ANY,  ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR } },
	{ "unlink",		{ ANY,	   EISDIR,  ANY,    ANY,     ANY,     ANY,     ANY } },
	{ "unlinkat",		{ ANY,	   EISDIR,  ANY,    ANY,     ANY,     ANY,     ANY } },
};
/* clang-format on */

static const struct op *op_named(const char *name)
{
	for (size_t i = 0; i < op_count; i++)
		if (strcmp(ops[i].name, name) == 0)
			return &ops[i];
	return MUST_PTR(NULL);
}

static void object_types(const struct actor *caller)
{
	for (size_t i = 0; i < ARRAY_SIZE(type_cases); i++) {
		const struct type_case *c = &type_cases[i];
		const struct op *op = op_named(c->op);

		for_each_type(t) {
			int want = c->want[t];

			/* fs.protected_hardlinks forbids ordinary users to link odd files. */
			if (op->run == op_named("link from")->run && caller != &actor_root &&
			    t != NODE_REG && t != NODE_DIR)
				want = ANY;
			if (want != ANY)
				try_op(caller, op, node_name(t), want, node_name(t));
		}
	}
}

static void test_object_types(void)
{
	for_callers(object_types);
}

/* Paths relative to a directory descriptor. */
static void test_dirfd(void)
{
	int dir, file, closed = 1000;
	struct stat st;

	make_dir("d", 0755);
	make_file("d/f", 0644);
	make_file("f", 0644);
	dir = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	file = (int)MUST(open("f", O_RDONLY));
	EXPECT(0, fstatat(dir, "f", &st, 0));
	EXPECT(ENOTDIR, fstatat(file, "f", &st, 0));
	EXPECT(EBADF, fstatat(closed, "f", &st, 0));
	EXPECT(ENOENT, fstatat(dir, "", &st, 0));
	EXPECT(0, fstatat(dir, "", &st, AT_EMPTY_PATH));
	EXPECT(0, fstatat(file, "", &st, AT_EMPTY_PATH));
	EXPECT(EINVAL, fstatat(dir, "f", &st, 0x40000000));
	EXPECT(ENOTDIR, closing(openat(file, "x", O_CREAT | O_WRONLY, 0644)));
	EXPECT(ENOTDIR, mkdirat(file, "x", 0755));
	EXPECT(ENOTDIR, symlinkat("t", file, "x"));
	EXPECT(ENOTDIR, mknodat(file, "x", S_IFIFO | 0644, 0));
	EXPECT(ENOTDIR, unlinkat(file, "x", 0));
	EXPECT(ENOTDIR, renameat(file, "x", dir, "y"));
	EXPECT(ENOTDIR, renameat(dir, "f", file, "y"));
	EXPECT(ENOTDIR, linkat(file, "x", dir, "y", 0));
	EXPECT(ENOTDIR, linkat(dir, "f", file, "y", 0));
	EXPECT(EBADF, mkdirat(closed, "x", 0755));
	EXPECT(EBADF, unlinkat(closed, "x", 0));
	EXPECT(EINVAL, unlinkat(dir, "f", 0x40000000));
	EXPECT(EINVAL, linkat(dir, "f", dir, "y", 0x40000000));
	EXPECT(0, mkdirat(dir, "sub", 0755));
	EXPECT(0, exists("d/sub"));
}

/* A descriptor follows its directory when that is renamed, and outlives it when it is removed. */
static void test_dirfd_moves(void)
{
	int dir;
	struct stat st;

	make_dir("d", 0755);
	make_file("d/f", 0644);
	dir = (int)MUST(open("d", O_RDONLY | O_DIRECTORY));
	EXPECT(0, rename("d", "e"));
	EXPECT(0, fstatat(dir, "f", &st, 0));
	EXPECT(0, mkdirat(dir, "sub", 0755));
	EXPECT(0, exists("e/sub"));
	EXPECT(0, unlinkat(dir, "f", 0));
	EXPECT(0, unlinkat(dir, "sub", AT_REMOVEDIR));
	EXPECT(0, rmdir("e"));
	EXPECT(0, fstat(dir, &st));
	EXPECT_EQ(0, st.st_nlink);
	EXPECT(ENOENT, fstatat(dir, "f", &st, 0));
	EXPECT(ENOENT, closing(openat(dir, "f", O_CREAT | O_WRONLY, 0644)));
	EXPECT(ENOENT, mkdirat(dir, "sub", 0755));
	EXPECT(ENOENT, symlinkat("t", dir, "l"));
	EXPECT(ENOENT, mknodat(dir, "p", S_IFIFO | 0644, 0));
}

/* As deep as paths go: the parts can be walked, the whole cannot be named. */
static void test_deep(void)
{
	const char *name = long_name(200, 'd');
	char path[PATH_MAX + 300] = "";
	int top = (int)MUST(open(".", O_RDONLY | O_DIRECTORY));
	size_t len = 0;

	for (int depth = 0; len < PATH_MAX; depth++) {
		ctx("depth %d", depth);
		EXPECT(0, mkdir(name, 0755));
		EXPECT(0, chdir(name));
		len += (size_t)snprintf(path + len, sizeof(path) - len, "%s/", name);
	}
	make_file("f", 0644);
	EXPECT(0, exists("f"));
	MUST(fchdir(top));
	strcpy(path + len, "f");
	EXPECT(ENAMETOOLONG, exists(path));
	path[PATH_MAX - 1] = '\0';
	EXPECT(ENOENT, exists(path));
}

static const struct test tests[] = {
	{ "bad", test_bad_paths, 0 },
	{ "device", test_device_paths, NEED_ROOT },
	{ "too_long", test_too_long, 0 },
	{ "just_fits", test_just_fits, 0 },
	{ "bad_pointer", test_bad_pointer, 0 },
	{ "last_component", test_last_component, 0 },
	{ "over_existing", test_over_existing, 0 },
	{ "link_chain", test_link_chain, 0 },
	{ "object_types", test_object_types, 0 },
	{ "dirfd", test_dirfd, 0 },
	{ "dirfd_moves", test_dirfd_moves, 0 },
	{ "deep", test_deep, 0 },
};

AREA(path);
