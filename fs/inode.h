// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * inode.h - the inodes that the kernel, or we, hold on to: one `struct inode` per SRC inode,
 * whatever its names are, found by its key (tier/src.h) or by the node id the kernel knows it by.
 *
 * It holds a key, not a descriptor, so that a tree of millions of files needs neither; the few hot
 * ones have an O_PATH descriptor in the cache (fdcache.h). Cost: 59 bytes + the key, rounded up by
 * malloc (80 on ext4), + 8 to 16 for the hash.
 *
 * Two counters keep an inode: the kernel's lookups (given by replies, taken back by FORGET) and our
 * own references. Functions that return an inode return a reference, to be dropped by inode_put().
 *
 * Node ids. Where SRC's file handles are an inode number and a generation of 32 bits each (ext4
 * and its kin), the id is made of both: it means the same file for ever, and NFS handles survive
 * FORGET and a new mount. Elsewhere an id lives as long as the inode; entries then carry the
 * mount's instance as their generation, so that a handle of an earlier mount is ESTALE.
 *
 * Names. Without file handles that open files (!src.by_handle) each inode also keeps its names
 * (parent and name, the last one seen first, at most INODE_NAMES_MAX), from which its path is made.
 *
 * Threads: all functions may be called from any thread. One mutex, never held over I/O or a call
 * out of this file.
 */
#ifndef HYBRIDFS_FS_INODE_H
#define HYBRIDFS_FS_INODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tier/src.h"

struct fd_cache;
struct fd_entry;
struct inode_name;

enum inode_flag {
	INODE_SYNCED = 1,   /* SRC's metadata of it is durable: fsync may leave SRC alone */
	INODE_NO_PRIVS = 2, /* has no setuid, setgid or file capability to clear on write */
	INODE_STALE = 4,    /* cached pages are not to be trusted at the next open */
	INODE_DELETED = 8,  /* the last name is gone */
	INODE_FRESH = 16,   /* made by us, and nobody has synced it yet */
};

struct inode {
	struct inode *next;	  /* of the hash chain; table's lock */
	uint64_t nodeid;	  /* constant */
	uint64_t nlookup;	  /* the kernel's; table's lock */
	struct inode_name *names; /* owned list; table's lock */
	struct fd_entry *fd;	  /* the fd cache's lock */
	uint32_t hash;		  /* constant */
	uint32_t refs;		  /* ours; table's lock */
	uint32_t opens;		  /* open files; table's lock */
	_Atomic uint32_t stamp;	  /* of the content when it was last open, 0 = none */
	_Atomic uint8_t flags;	  /* enum inode_flag */
	uint8_t type;		  /* S_IFMT >> 12; constant */
	uint8_t key_len;	  /* constant, as is the key */
	uint8_t key[];
};

#define INODE_NAMES_MAX 16u

#define INODE_SEGMENT_BITS 12
#define INODE_SEGMENTS	   16384u /* of 4096 chains: chains only grow longer beyond 67 M inodes */

/* A regular file without a name is not known to the kernel any more, nor open: nobody will ever ask
 * for it again. Called without a lock. */
typedef void (*inode_gone_fn)(void *ctx, const struct src_key *key);

struct inode_table {
	const struct src *src; /* borrowed */
	struct fd_cache *fds;  /* borrowed: told of inodes that go */
	inode_gone_fn gone;
	void *gone_ctx;
	struct inode *root; /* a reference */
	bool stable_ids;
	uint64_t instance;

	pthread_mutex_t lock;	   /* everything below */
	struct inode ***segments;  /* owned: INODE_SEGMENTS pointers to arrays of chains */
	size_t n_chains, n_inodes; /* linear hashing: grows and shrinks chain by chain */
	uint32_t next_id;
	size_t freed; /* since the last inode_table_trim() */
};

int inode_table_init(struct inode_table *t, const struct src *src, struct fd_cache *fds,
		     uint64_t instance, inode_gone_fn gone, void *gone_ctx);
/* The kernel is gone, too, and will forget nothing by itself: call gone() where it is due. */
void inode_table_bury(struct inode_table *t);
/* Drops all inodes, whatever their counts. No other thread may use the table any more. */
void inode_table_release(struct inode_table *t);
/* Give freed memory back to the system, if enough came together; may take milliseconds. */
void inode_table_trim(struct inode_table *t);

/* ---- finding ------------------------------------------------------------------------------- */
/* By node id, or NULL: there is none (any more). */
struct inode *inode_get(struct inode_table *t, uint64_t nodeid);
/* By key, or NULL: nobody knows it. */
struct inode *inode_find(struct inode_table *t, const struct src_key *key);
/* By key, made when it is not there; counts one lookup of the kernel. NULL: out of memory. */
struct inode *inode_lookup(struct inode_table *t, const struct src_key *key, mode_t mode);
void inode_ref(struct inode_table *t, struct inode *i);
void inode_put(struct inode_table *t, struct inode *i); /* NULL is fine */
/* The kernel takes n of its lookups back. */
void inode_forget(struct inode_table *t, uint64_t nodeid, uint64_t n);

/* The key behind a stable id that is not in the table; false: ids say nothing here. */
bool inode_key_of_id(const struct inode_table *t, uint64_t nodeid, struct src_key *ret_key);
uint64_t inode_generation(const struct inode_table *t, const struct inode *i);

static inline void inode_key(const struct inode *i, struct src_key *ret_key)
{
	ret_key->len = i->key_len;
	__builtin_memcpy(ret_key->data, i->key, i->key_len);
}

static inline bool inode_is_reg(const struct inode *i)
{
	return i->type == S_IFREG >> 12;
}

static inline bool inode_is_dir(const struct inode *i)
{
	return i->type == S_IFDIR >> 12;
}

/* ---- flags --------------------------------------------------------------------------------- */
static inline bool inode_has(const struct inode *i, enum inode_flag flag)
{
	return atomic_load(&i->flags) & flag;
}

static inline void inode_set(struct inode *i, enum inode_flag flag)
{
	atomic_fetch_or(&i->flags, (uint8_t)flag);
}

/* True if it was set. */
static inline bool inode_clear(struct inode *i, enum inode_flag flag)
{
	return atomic_fetch_and(&i->flags, (uint8_t)~flag) & flag;
}

/* ---- open files ---------------------------------------------------------------------------- */
/* Count an open file (which has a reference as well). Returns how many there were before. */
unsigned inode_open_begin(struct inode_table *t, struct inode *i);
void inode_open_end(struct inode_table *t, struct inode *i);
bool inode_is_open(struct inode_table *t, const struct inode *i);

/* ---- names (nothing happens where handles open files) -------------------------------------- */
void inode_add_name(struct inode_table *t, struct inode *i, struct inode *parent, const char *name);
/* This name is gone. */
void inode_drop_name(struct inode_table *t, struct inode *i, struct inode *parent,
		     const char *name);
/* The n-th name that we know, from 0: its parent (a reference) and a copy. -ESTALE: no more. */
int inode_get_name(struct inode_table *t, struct inode *i, unsigned n, struct inode **ret_parent,
		   char **ret_name);
/* Path relative to SRC ("" for its root), malloc'ed; NULL: not known. */
char *inode_path(struct inode_table *t, struct inode *i);

#endif
