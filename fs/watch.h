// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * watch.h - the thread that hears of changes which others make in SRC (fanotify(7)), and tells the
 * kernel to ask again. With it names and attributes may be cached for long.
 *
 * It hears of every change by another process, of content, attributes and names, of a filesystem
 * that only this machine writes to, on the root of which SRC is; of stores through mappings only
 * when such a file is closed, of access times not at all. Of names that differ in case only it
 * hears of one. What it says is said once more a second later: an answer that was on its way to the
 * kernel may have been older.
 */
#ifndef HYBRIDFS_FS_WATCH_H
#define HYBRIDFS_FS_WATCH_H

#include <stdbool.h>

struct fs;
struct watch;

/* How long the kernel may keep names and attributes: with a watch, and without. */
#define WATCHED_TIMEOUT_S 60.0
#define PLAIN_TIMEOUT_S	  1.0

/* Is `path`, which is SRC, a filesystem's root, and not one that other machines write to? Asks that
 * filesystem, so not once MNT covers it. */
bool watch_is_possible(int src_fd, const char *path);
/* NULL: the kernel or the filesystem cannot, or no memory or thread. */
struct watch *watch_start(struct fs *fs);
/* The connection should be closed before; NULL is fine. */
void watch_stop(struct watch *w);

#endif
