// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/order.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>

#include "db/base.h"
#include "fs/fs.h"

struct order_entry {
	struct order_entry *next;
	struct inode *dir; /* a reference */
	uint64_t number;   /* of the last change in it */
	uid_t uid;
	bool syncing;
};

void order_init(struct order *o)
{
	*o = (struct order){ 0 };
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->changed, NULL);
}

/* Out of the list; returned for drop(). */
static struct order_entry *take_locked(struct order *o, struct order_entry *e)
{
	struct order_entry **p = &o->oldest;

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	e->next = NULL;
	o->n--;
	atomic_store(&o->any, o->oldest != NULL);
	return e;
}

static void append_locked(struct order *o, struct order_entry *e)
{
	struct order_entry **p = &o->oldest;

	while (*p)
		p = &(*p)->next;
	*p = e;
	e->next = NULL;
	o->n++;
	atomic_store(&o->any, true);
}

/* Without the lock: the inode may go with it. */
static void drop(struct fs *fs, struct order_entry *e)
{
	if (e)
		inode_put(&fs->inodes, e->dir);
	free(e);
}

void order_release(struct fs *fs)
{
	struct order *o = &fs->order;

	while (o->oldest)
		drop(fs, take_locked(o, o->oldest));
	pthread_cond_destroy(&o->changed);
	pthread_mutex_destroy(&o->lock);
}

/* ---- changes ------------------------------------------------------------------------------- */
static struct order_entry *find_locked(struct order *o, uid_t uid, const struct inode *dir)
{
	for (struct order_entry *e = o->oldest; e; e = e->next)
		if (e->uid == uid && e->dir == dir && !e->syncing)
			return e;
	return NULL;
}

static struct order_entry *forget_oldest_locked(struct order *o)
{
	if (o->n < ORDER_DIRS_MAX)
		return NULL;
	for (struct order_entry *e = o->oldest; e; e = e->next)
		if (!e->syncing)
			return take_locked(o, e);
	return NULL;
}

void order_changed(struct fs *fs, uid_t uid, struct inode *dir)
{
	struct order *o = &fs->order;
	struct order_entry *forgotten = NULL;

	pthread_mutex_lock(&o->lock);
	struct order_entry *e = find_locked(o, uid, dir);

	if (e) {
		(void)take_locked(o, e);
	} else {
		forgotten = forget_oldest_locked(o);
		e = calloc(1, sizeof(*e)); /* without memory: as if it had been forgotten */
		if (e)
			inode_ref(&fs->inodes, dir);
	}
	if (e) {
		e->dir = dir;
		e->uid = uid;
		e->number = ++o->last;
		append_locked(o, e);
	}
	pthread_mutex_unlock(&o->lock);
	drop(fs, forgotten);
}

/* ---- syncs --------------------------------------------------------------------------------- */
static int sync_dir(struct fs *fs, struct inode *dir)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	int r = fd_get(fs, dir, &ref);

	if (r == -ESTALE || r == -ENOENT)
		return 0; /* removed: there is nothing in it */
	if (r < 0)
		return r;
	_cleanup_close_ int fd = fd_reopen(ref.fd, O_RDONLY | O_DIRECTORY);

	if (fd == -EACCES) /* an ordinary user's mount, and he may not read it */
		return syncfs(fs->src.root_fd) < 0 ? neg_errno() : 0;
	if (fd < 0)
		return fd;
	return fsync(fd) < 0 ? neg_errno() : 0;
}

/* The oldest of this user's up to that number. */
static struct order_entry *next_locked(struct order *o, uid_t uid, uint64_t upto)
{
	for (struct order_entry *e = o->oldest; e && e->number <= upto; e = e->next)
		if (e->uid == uid)
			return e;
	return NULL;
}

/* One directory; who else wants it synced waits. The lock is given up meanwhile. */
static int sync_entry_locked(struct fs *fs, struct order_entry *e)
{
	struct order *o = &fs->order;

	e->syncing = true;
	pthread_mutex_unlock(&o->lock);
	int r = sync_dir(fs, e->dir);

	pthread_mutex_lock(&o->lock);
	e->syncing = false;
	pthread_cond_broadcast(&o->changed);
	if (r < 0)
		return r;
	(void)take_locked(o, e);
	pthread_mutex_unlock(&o->lock);
	drop(fs, e);
	pthread_mutex_lock(&o->lock);
	return 0;
}

int order_sync(struct fs *fs, uid_t uid)
{
	struct order *o = &fs->order;
	struct order_entry *e;
	int r = 0;

	if (!atomic_load(&o->any))
		return 0;
	pthread_mutex_lock(&o->lock);
	uint64_t upto = o->last;

	while (r == 0 && (e = next_locked(o, uid, upto))) {
		if (e->syncing)
			pthread_cond_wait(&o->changed, &o->lock);
		else
			r = sync_entry_locked(fs, e);
	}
	pthread_mutex_unlock(&o->lock);
	return r;
}

uint64_t order_now(struct fs *fs)
{
	struct order *o = &fs->order;

	pthread_mutex_lock(&o->lock);
	uint64_t now = o->last;

	pthread_mutex_unlock(&o->lock);
	return now;
}

static struct order_entry *next_of_dir_locked(struct order *o, const struct inode *dir,
					      uint64_t upto)
{
	for (struct order_entry *e = o->oldest; e && e->number <= upto; e = e->next)
		if (e->dir == dir && !e->syncing)
			return take_locked(o, e);
	return NULL;
}

void order_synced(struct fs *fs, const struct inode *dir, uint64_t upto)
{
	struct order *o = &fs->order;
	struct order_entry *e;

	do {
		pthread_mutex_lock(&o->lock);
		e = next_of_dir_locked(o, dir, upto);
		pthread_mutex_unlock(&o->lock);
		drop(fs, e);
	} while (e);
}
