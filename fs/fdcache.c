// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/fdcache.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "db/base.h"
#include "fs/fs.h"

#define SECOND_NS 1000000000ll

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

void fd_cache_init(struct fd_cache *c, unsigned nofile)
{
	*c = (struct fd_cache){ .max = (unsigned)min_u64(FD_CACHE_MAX, nofile / 8),
				.max_kept = nofile / 4 };
	pthread_mutex_init(&c->lock, NULL);
}

/* ---- the list ------------------------------------------------------------------------------ */
static void unlink_locked(struct fd_cache *c, struct fd_entry *e)
{
	if (e->keep) {
		c->n_kept--;
		return;
	}
	if (e->prev)
		e->prev->next = e->next;
	else
		c->head = e->next;
	if (e->next)
		e->next->prev = e->prev;
	else
		c->tail = e->prev;
	c->n--;
}

/* Kept ones are only counted: they leave with their inode. */
static void link_locked(struct fd_cache *c, struct fd_entry *e)
{
	if (e->keep) {
		c->n_kept++;
		return;
	}
	e->prev = NULL;
	e->next = c->head;
	if (c->head)
		c->head->prev = e;
	else
		c->tail = e;
	c->head = e;
	c->n++;
}

static void free_entry(struct fd_entry *e)
{
	if (!e)
		return;
	close(e->fd);
	free(e);
}

/* Out of the cache; returned when it is the caller's to free, else its last user does. */
static struct fd_entry *detach_locked(struct fd_cache *c, struct fd_entry *e)
{
	unlink_locked(c, e);
	e->inode->fd = NULL;
	e->inode = NULL;
	return e->users == 0 ? e : NULL;
}

/* The oldest one that may go, if there are too many or it is idle since `before_ns`. */
static struct fd_entry *pop_locked(struct fd_cache *c, int64_t before_ns)
{
	for (struct fd_entry *e = c->tail; e; e = e->prev) {
		if (c->n <= c->max && e->used_ns > before_ns)
			return NULL;
		if (e->users == 0)
			return detach_locked(c, e);
	}
	return NULL;
}

static void shrink(struct fd_cache *c, int64_t before_ns)
{
	struct fd_entry *e;

	do {
		pthread_mutex_lock(&c->lock);
		e = pop_locked(c, before_ns);
		pthread_mutex_unlock(&c->lock);
		free_entry(e);
	} while (e);
}

bool fd_cache_age(struct fd_cache *c)
{
	shrink(c, now_ns() - FD_IDLE_S * SECOND_NS);
	pthread_mutex_lock(&c->lock);
	bool more = c->n > 0;

	pthread_mutex_unlock(&c->lock);
	return more;
}

void fd_cache_release(struct fd_cache *c)
{
	assert(!c->head && !c->n_kept);
	pthread_mutex_destroy(&c->lock);
}

void fd_cache_forget(struct fd_cache *c, struct inode *i)
{
	pthread_mutex_lock(&c->lock);
	struct fd_entry *e = i->fd ? detach_locked(c, i->fd) : NULL;

	pthread_mutex_unlock(&c->lock);
	free_entry(e);
}

/* ---- opening ------------------------------------------------------------------------------- */
/* By a name we remember: from the parent's descriptor, then look who is there. */
static int open_by_name(struct fs *fs, struct inode *i, struct inode *parent, const char *name)
{
	_cleanup_fd_ struct fd_ref dir = FD_REF_INIT;
	struct src_key want, found;
	int r = fd_get(fs, parent, &dir);

	if (r < 0)
		return r;
	_cleanup_close_ int fd = openat(dir.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ESTALE : neg_errno();
	r = src_key_of_fd(&fs->src, fd, &found);
	if (r < 0)
		return r;
	inode_key(i, &want);
	return src_key_equal(&want, &found) ? TAKE_FD(fd) : -ESTALE;
}

static int open_by_names(struct fs *fs, struct inode *i)
{
	struct inode *parent;
	char *name;
	int fd = -ESTALE;

	for (unsigned n = 0; fd == -ESTALE; n++) {
		if (inode_get_name(&fs->inodes, i, n, &parent, &name) < 0)
			break;
		fd = open_by_name(fs, i, parent, name);
		inode_put(&fs->inodes, parent);
		free(name);
	}
	return fd;
}

/* A file that was deleted in SRC and is open: the tier has a descriptor of it. */
static int open_through_tier(struct fs *fs, const struct src_key *key)
{
	struct tfile *f = tfile_peek(fs->volume, key);
	int fd = -ESTALE;

	if (f && tfile_use(f, false) == 0) {
		fd = fcntl(tfile_src_fd(f), F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			fd = neg_errno();
		tfile_unuse(f);
	}
	tfile_put(f);
	return fd;
}

static int open_inode(struct fs *fs, struct inode *i)
{
	struct src_key key;
	int fd;

	inode_key(i, &key);
	if (fs->src.by_handle)
		fd = src_open(&fs->src, &key, NULL, O_PATH);
	else
		fd = open_by_names(fs, i);
	if (fd == -ESTALE && inode_is_reg(i))
		fd = open_through_tier(fs, &key);
	return fd;
}

/* ---- use ----------------------------------------------------------------------------------- */
static bool get_cached(struct fd_cache *c, struct inode *i, struct fd_ref *ret)
{
	pthread_mutex_lock(&c->lock);
	struct fd_entry *e = i->fd;

	if (e) {
		e->users++;
		e->used_ns = now_ns();
		unlink_locked(c, e);
		link_locked(c, e);
		*ret = (struct fd_ref){ .cache = c, .entry = e, .fd = e->fd };
	}
	pthread_mutex_unlock(&c->lock);
	return e;
}

/* True: the entry is in the cache. False: another one was there before, or there are too many. */
static bool insert(struct fd_cache *c, struct inode *i, struct fd_entry *e)
{
	bool ok = false;

	pthread_mutex_lock(&c->lock);
	if (i->fd) {
		if (e->keep && !i->fd->keep && c->n_kept < c->max_kept) {
			unlink_locked(c, i->fd);
			i->fd->keep = true;
			link_locked(c, i->fd);
		}
	} else if (!e->keep || c->n_kept < c->max_kept) {
		e->inode = i;
		i->fd = e;
		link_locked(c, e);
		ok = true;
	}
	pthread_mutex_unlock(&c->lock);
	if (ok)
		shrink(c, INT64_MIN);
	return ok;
}

static struct fd_entry *entry_new(int fd, unsigned users, bool keep)
{
	struct fd_entry *e = malloc(sizeof(*e));

	if (e)
		*e = (struct fd_entry){
			.fd = fd, .users = users, .keep = keep, .used_ns = now_ns()
		};
	return e;
}

int fd_get(struct fs *fs, struct inode *i, struct fd_ref *ret)
{
	struct fd_cache *c = &fs->fds;

	if (i == fs->inodes.root) {
		*ret = (struct fd_ref){ .fd = fs->src.root_fd };
		return 0;
	}
	if (get_cached(c, i, ret))
		return 0;
	int fd = open_inode(fs, i);

	if (fd < 0)
		return fd;
	*ret = (struct fd_ref){ .cache = c, .fd = fd };
	struct fd_entry *e = entry_new(fd, 1, false);

	if (e && insert(c, i, e))
		ret->entry = e;
	else
		free(e);
	return 0;
}

void fd_put(struct fd_ref *ref)
{
	struct fd_cache *c = ref->cache;
	struct fd_entry *e = ref->entry;

	if (c && e) {
		pthread_mutex_lock(&c->lock);
		if (--e->users > 0 || e->inode)
			e = NULL;
		pthread_mutex_unlock(&c->lock);
		free_entry(e);
	} else if (c) {
		close(ref->fd);
	}
	*ref = (struct fd_ref)FD_REF_INIT;
}

void fd_adopt(struct fd_cache *c, struct inode *i, int fd, bool keep)
{
	struct fd_entry *e = entry_new(fd, 0, keep);

	if (e && insert(c, i, e))
		return;
	close(fd);
	free(e);
}

/* ---- helpers ------------------------------------------------------------------------------- */
const char *fd_proc_path(int fd, char buf[static FD_PROC_PATH_MAX])
{
	snprintf(buf, FD_PROC_PATH_MAX, "/proc/self/fd/%d", fd);
	return buf;
}

int fd_reopen(int fd, int flags)
{
	char path[FD_PROC_PATH_MAX];
	int real = open(fd_proc_path(fd, path), (flags & ~O_NOFOLLOW) | O_CLOEXEC);

	return real >= 0 ? real : neg_errno();
}
