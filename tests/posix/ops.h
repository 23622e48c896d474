// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ops.h - every system call that takes a path, as a table to loop over
 *
 * An op is called with one path and returns 0, or -1 and errno. Ops that create something remove
 * it again, and renames move back, so that a loop can call one after the other on the same files;
 * only removing ops leave a trace. Ops with a second path use "src" (an existing regular file, to
 * be provided) or "ops.tmp" (which must not exist) in the current directory.
 */
#ifndef POSIXTEST_OPS_H
#define POSIXTEST_OPS_H

#include "harness.h"

/* How an op treats its path; decides which errno wins for odd paths. */
enum op_class {
	OP_FOLLOW,   /* needs an existing object, follows a last symlink */
	OP_NOFOLLOW, /* needs an existing object, takes a symlink itself */
	OP_MKDIR,
	OP_MAKE,      /* makes anything else: mknod, symlink, link */
	OP_CREAT,     /* open(O_CREAT) */
	OP_EXCL,      /* open(O_CREAT | O_EXCL) */
	OP_RENAME_TO, /* renames file "src" to the path */
	OP_RENAME_FROM,
	OP_UNLINK,
	OP_RMDIR,
	OP_CLASSES
};

/* What an op needs on the object itself. */
#define OP_READ	 (1u << 0)
#define OP_WRITE (1u << 1)
#define OP_EXEC	 (1u << 2)
#define OP_OWNER (1u << 3)
#define OP_XATTR (1u << 4) /* an extended attribute call */

struct op {
	const char *name;
	int (*run)(const char *path);
	enum op_class class;
	unsigned int flags;
};

extern const struct op ops[];
extern const size_t op_count;

/* Does a successful call change the directory that the path is in? */
bool op_changes_parent(const struct op *op);
bool op_makes(const struct op *op);
bool op_removes(const struct op *op);

#endif
