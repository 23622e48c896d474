// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fdcache.h - O_PATH descriptors of the inodes in use: a bounded number of them, least recently
 * used first out, and none that was idle for FD_IDLE_S seconds (a descriptor keeps the space of a
 * file that somebody deletes in SRC, and SRC's filesystem busy).
 *
 * An inode whose last name went away through the mount keeps its descriptor until the kernel
 * forgets it, because nothing else could open it again: stat of a deleted file, a deleted working
 * directory. These are counted apart, and bounded too.
 *
 * Threads: any. One mutex, never held over a system call: descriptors are opened and closed
 * outside of it.
 */
#ifndef HYBRIDFS_FS_FDCACHE_H
#define HYBRIDFS_FS_FDCACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct fs;
struct inode;

#define FD_CACHE_MAX 256u
#define FD_IDLE_S    5

struct fd_entry {
	struct inode *inode; /* borrowed; NULL: it is gone, the last user frees the entry */
	struct fd_entry *prev, *next; /* of the LRU list, newest first; not if `keep` */
	int fd;			      /* owned; constant */
	unsigned users;
	bool keep;
	int64_t used_ns;
};

struct fd_cache {
	pthread_mutex_t lock;
	struct fd_entry *head, *tail;
	unsigned n, max; /* all but the kept ones */
	unsigned n_kept, max_kept;
};

/* A descriptor in use. Release it with fd_put(), or by _cleanup_fd_. */
struct fd_ref {
	struct fd_cache *cache; /* NULL: nothing to release */
	struct fd_entry *entry; /* NULL: `fd` is this reference's own */
	int fd;
};
#define FD_REF_INIT      \
	{                \
		.fd = -1 \
	}

/* `nofile`: descriptors the process may have open. */
void fd_cache_init(struct fd_cache *c, unsigned nofile);
void fd_cache_release(struct fd_cache *c);
void fd_cache_forget(struct fd_cache *c, struct inode *i); /* the inode goes away */
/* Close what was not used lately. True: there is something left to age. */
bool fd_cache_age(struct fd_cache *c);

/*
 * A descriptor of the inode, O_PATH or more (SRC's root). Blocks on SRC if it has to be opened.
 * -ESTALE: there is no such file any more.
 */
int fd_get(struct fs *fs, struct inode *i, struct fd_ref *ret);
void fd_put(struct fd_ref *ref);
#define _cleanup_fd_ __attribute__((cleanup(fd_put)))
/* Hand a descriptor just opened over to the cache. keep: the inode lost its last name. */
void fd_adopt(struct fd_cache *c, struct inode *i, int fd, bool keep);

/* A real descriptor of the file behind an O_PATH one. Owned by the caller; -errno. */
int fd_reopen(int fd, int flags);
/* "/proc/self/fd/N", by which calls without an *at form reach the file itself. */
#define FD_PROC_PATH_MAX 32
const char *fd_proc_path(int fd, char buf[static FD_PROC_PATH_MAX]);

#endif
