// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * notify.h - the thread that tells the kernel to drop cached pages or attributes, and does small
 * housekeeping (idle descriptors, memory of forgotten inodes).
 *
 * Telling the kernel waits for page locks that a READ or WRITE in flight may hold, so it must not
 * happen inside a request, nor in the thread that makes room for throttled writes. The queue is
 * bounded: when it is full, a notification is dropped and counted; the inode stays marked as stale
 * (INODE_STALE), so that its next open does not trust the pages either.
 */
#ifndef HYBRIDFS_FS_NOTIFY_H
#define HYBRIDFS_FS_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct inode;
struct notifier;

/* `ready` is called from the new thread as its first job. NULL: out of memory or threads. */
struct notifier *notifier_start(struct fs *fs, void (*ready)(void *arg), void *arg);
/* Ends the thread; what is still queued is dropped. The connection should be closed before. */
void notifier_stop(struct notifier *n);

/* Pages of this file are stale. Never blocks. */
void notify_pages(struct fs *fs, struct inode *i);
/* Attributes of a node are stale before their time. Never blocks; the node may be gone. */
void notify_attributes(struct fs *fs, uint64_t nodeid);

#endif
