// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/notify.h"

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <time.h>

#include "db/base.h"
#include "fs/fs.h"
#include "fs/log.h"

#define QUEUE_MAX 1024u
/* How often descriptors are aged and memory is looked at, while there is anything to do. */
#define HOUSEKEEPING_S 2

struct notice {
	uint64_t nodeid;
	bool pages;
};

struct notifier {
	struct fs *fs; /* borrowed */
	void (*ready)(void *arg);
	void *ready_arg;
	pthread_t thread;
	pthread_mutex_t lock; /* everything below; never held over a call into libfuse */
	pthread_cond_t changed;
	struct notice queue[QUEUE_MAX]; /* a ring */
	unsigned first, n;
	uint64_t dropped;
	bool stop;
};

static void tell_kernel(struct notifier *n, const struct notice *what)
{
	/* A negative offset: attributes only. Errors: it is not cached, or the mount is gone. */
	(void)fuse_lowlevel_notify_inval_inode(n->fs->session, what->nodeid, what->pages ? 0 : -1,
					       0);
}

static void wait_locked(struct notifier *n)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += HOUSEKEEPING_S;
	pthread_cond_timedwait(&n->changed, &n->lock, &until);
}

static void *notifier_main(void *arg)
{
	struct notifier *n = arg;

	pthread_setname_np(pthread_self(), "hfs-notify");
	if (n->ready)
		n->ready(n->ready_arg);
	pthread_mutex_lock(&n->lock);
	while (!n->stop) {
		bool queued = n->n > 0;
		struct notice what = n->queue[n->first];

		if (queued) {
			n->first = (n->first + 1) % QUEUE_MAX;
			n->n--;
		} else {
			wait_locked(n);
		}
		pthread_mutex_unlock(&n->lock);
		if (queued)
			tell_kernel(n, &what);
		fd_cache_age(&n->fs->fds);
		inode_table_trim(&n->fs->inodes);
		pthread_mutex_lock(&n->lock);
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

struct notifier *notifier_start(struct fs *fs, void (*ready)(void *arg), void *arg)
{
	struct notifier *n = calloc(1, sizeof(*n));
	pthread_condattr_t attr;

	if (!n)
		return NULL;
	n->fs = fs;
	n->ready = ready;
	n->ready_arg = arg;
	pthread_mutex_init(&n->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (pthread_create(&n->thread, NULL, notifier_main, n) != 0) {
		free(n);
		return NULL;
	}
	return n;
}

void notifier_stop(struct notifier *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->changed);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	if (n->dropped)
		log_line(LOG_WARNING, "%llu cache invalidations were dropped",
			 (unsigned long long)n->dropped);
	pthread_cond_destroy(&n->changed);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static void push(struct fs *fs, struct notice what)
{
	struct notifier *n = fs->notifier;

	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	const struct notice *last = &n->queue[(n->first + n->n + QUEUE_MAX - 1) % QUEUE_MAX];

	if (n->n > 0 && last->nodeid == what.nodeid && last->pages == what.pages) {
		/* will be said */
	} else if (n->n < QUEUE_MAX) {
		n->queue[(n->first + n->n++) % QUEUE_MAX] = what;
		pthread_cond_signal(&n->changed);
	} else {
		n->dropped++;
	}
	pthread_mutex_unlock(&n->lock);
}

void notify_pages(struct fs *fs, struct inode *i)
{
	inode_set(i, INODE_STALE);
	push(fs, (struct notice){ .nodeid = i->nodeid, .pages = true });
}

void notify_attributes(struct fs *fs, uint64_t nodeid)
{
	push(fs, (struct notice){ .nodeid = nodeid });
}
