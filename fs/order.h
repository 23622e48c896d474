/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * order.h - renames and removals reach SRC's disk before what their author syncs afterwards.
 *
 * POSIX promises nothing of the kind, but on a filesystem with one journal (ext4, xfs) it is nearly
 * always so, and programs rely on it: a database renames or removes files without syncing the
 * directory, writes on in its log and syncs that. Here the log is durable on the SSD at once, and
 * the rename is in SRC's memory for seconds. So an fsync first syncs the directories in which the
 * same user has renamed or removed since. Those of others do not wait, nor does who does neither.
 * Files that nobody ever wanted durable (INODE_FRESH) do not count: temporary ones come and go.
 */
#ifndef HYBRIDFS_FS_ORDER_H
#define HYBRIDFS_FS_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

/* Directories remembered. Beyond that the oldest is forgotten: SRC's filesystem has most probably
 * stored it by itself, as those that come later. */
#define ORDER_DIRS_MAX 64u

struct fs;
struct inode;
struct order_entry;

struct order {
	pthread_mutex_t lock;	    /* everything below; never held over I/O */
	pthread_cond_t changed;	    /* an entry is no longer being synced */
	struct order_entry *oldest; /* owned, by number */
	uint64_t last;		    /* number of the last change */
	unsigned n;
	atomic_bool any;
};

void order_init(struct order *o);
void order_release(struct fs *fs); /* before the inode table */
/* This user has renamed or removed something in this directory. */
void order_changed(struct fs *fs, uid_t uid, struct inode *dir);
/* All that this user has renamed and removed is so in SRC durably. 0, or -errno: some may not be.
 * Waits for SRC's disk if there is any. */
int order_sync(struct fs *fs, uid_t uid);
/* The directory was synced by other means, begun when order_now() said `upto`. */
uint64_t order_now(struct fs *fs);
void order_synced(struct fs *fs, const struct inode *dir, uint64_t upto);

#endif
