// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tree.h - removing what the tests left behind
 */
#ifndef POSIXTEST_TREE_H
#define POSIXTEST_TREE_H

/*
 * Removes name in directory dirfd with everything below it. Directories that lack permissions for
 * us get them first. Goes on after errors; returns 0 or the first error as -errno.
 */
int tree_remove(int dirfd, const char *name);

#endif
