// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * handle.h - what the kernel's file handle (fi->fh) points to: an open file or an open directory.
 *
 * Both hold a reference on their inode. All handles are in one list, because a connection that is
 * cut never sends RELEASE for what is open: handle_list_release() closes the rest.
 */
#ifndef HYBRIDFS_FS_HANDLE_H
#define HYBRIDFS_FS_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tier/tfile.h"

struct fs;
struct inode;
struct open_way;

enum handle_kind { HANDLE_FILE, HANDLE_DIR };

struct handle {
	struct handle *prev, *next; /* the list's lock */
	enum handle_kind kind;
	struct inode *inode; /* a reference */
};

/* How the kernel serves an open file (passthrough.h): with requests; by itself from the object, all
 * of it or mappings only; with requests and without its page cache (our own commands). */
enum open_pass { PASS_NOT, PASS_PLAIN, PASS_ASKED, PASS_ASIDE };

struct open_file {
	struct handle head;
	struct tfile *file; /* a reference, in use */
	struct tier_stream stream;
	int flags; /* open(2)'s */
	uid_t uid; /* of who opened it */
	enum open_pass pass;
	int backing_id;	      /* of the object; PASS_PLAIN, PASS_ASKED */
	struct open_way *way; /* a reference; passthrough.c; may be NULL */
};

#define DIR_BUFFER_BYTES 32768u

/* The lock is held over the system calls of one listing: it serialises the readers of this one open
 * directory, as the kernel does with the position of an open file. */
struct open_dir {
	struct handle head;
	int fd;		      /* owned, really open; constant */
	pthread_mutex_t lock; /* everything below */
	char *buffer;	      /* owned, NULL until it is read */
	size_t at, filled;
	off_t cookie; /* of the entry at `at` */
};

struct handle_list {
	pthread_mutex_t lock;
	struct handle *first;
};

void handle_list_init(struct handle_list *l);
/* Close what is still open. No request may be running. */
void handle_list_release(struct fs *fs);
void handle_add(struct fs *fs, struct handle *h);
void handle_remove(struct fs *fs, struct handle *h);

/* Node ids of the files that are open for writing, malloc'ed, with repetitions; 0 ends the list.
 * NULL: out of memory. */
uint64_t *handle_written_ids(struct fs *fs);

/* Give back everything the handle holds, and the handle. */
void open_file_close(struct fs *fs, struct open_file *h);
void open_dir_close(struct fs *fs, struct open_dir *h);

static inline struct open_file *open_file_of(uint64_t fh)
{
	return (struct open_file *)(uintptr_t)fh;
}

static inline struct open_dir *open_dir_of(uint64_t fh)
{
	return (struct open_dir *)(uintptr_t)fh;
}

#endif
