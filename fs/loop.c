// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/loop.h"

#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "db/base.h"

/* How long a request may wait because whoever reads is held up. */
#define TICK_NS 2000000l
/* Ticks without a request after which the watcher sleeps. */
#define IDLE_TICKS 10u
/* One may follow another by chance (RELEASE comes together with the caller's next request). */
#define BACKLOG 3u

struct worker {
	struct loop *loop;
	struct worker *next;  /* of all; loop's lock */
	struct worker *below; /* of the parked ones; loop's lock */
	pthread_t thread;
	sem_t go;
	struct fuse_buf buf; /* its memory is owned */
};

struct loop {
	struct fuse_session *session; /* borrowed */
	int fd;
	unsigned max_threads;
	atomic_uint reading; /* workers that read, or were told to */
	atomic_uint backlog, taken;
	atomic_int error;
	atomic_bool asleep; /* the watcher is, or is about to be */
	sem_t wake;	    /* ends its sleep */

	pthread_mutex_t lock; /* everything below; never held over I/O */
	struct worker *workers, *parked;
	unsigned n_workers;
	bool ended;
};

struct loop *loop_new(struct fuse_session *session, unsigned max_threads)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->session = session;
	l->fd = fuse_session_fd(session);
	l->max_threads = max_threads;
	sem_init(&l->wake, 0, 0);
	pthread_mutex_init(&l->lock, NULL);
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	sem_destroy(&l->wake);
	free(l);
}

/* ---- one more reader ----------------------------------------------------------------------- */
static bool request_waits(const struct loop *l)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void *worker_main(void *arg);

static int start_worker_locked(struct loop *l)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->loop = l;
	sem_init(&w->go, 0, 0);
	int r = -pthread_create(&w->thread, NULL, worker_main, w);

	if (r < 0) {
		sem_destroy(&w->go);
		free(w);
		return r;
	}
	w->next = l->workers;
	l->workers = w;
	l->n_workers++;
	return 0;
}

/* -EAGAIN: there are as many threads as there may be, or not even one more can be made. */
static int add_reader(struct loop *l)
{
	int r = 0;

	pthread_mutex_lock(&l->lock);
	struct worker *w = l->parked;

	atomic_fetch_add(&l->reading, 1);
	if (l->ended)
		r = -EAGAIN;
	else if (w)
		l->parked = w->below;
	else
		r = l->n_workers < l->max_threads ? start_worker_locked(l) : -EAGAIN;
	if (r < 0)
		atomic_fetch_sub(&l->reading, 1);
	pthread_mutex_unlock(&l->lock);
	if (r == 0 && w)
		sem_post(&w->go);
	return r;
}

void loop_hand_over(struct loop *l)
{
	if (l && atomic_load(&l->reading) == 0)
		(void)add_reader(l); /* none left: the first one that is done reads on */
}

/* ---- workers ------------------------------------------------------------------------------- */
static void wake_watcher(struct loop *l)
{
	if (atomic_load(&l->asleep) && atomic_exchange(&l->asleep, false))
		sem_post(&l->wake);
}

static void has_taken_one(struct loop *l)
{
	unsigned others = atomic_fetch_sub(&l->reading, 1) - 1;

	atomic_fetch_add(&l->taken, 1);
	wake_watcher(l);
	if (others > 0)
		return;
	if (!request_waits(l))
		atomic_store(&l->backlog, 0);
	else if (atomic_fetch_add(&l->backlog, 1) + 1 >= BACKLOG)
		(void)add_reader(l); /* none left: as in loop_hand_over() */
}

/* True: read again. False: the end. */
static bool has_served_one(struct loop *l, struct worker *w)
{
	unsigned none = 0;

	if (atomic_compare_exchange_strong(&l->reading, &none, 1))
		return true;
	if (request_waits(l)) {
		atomic_fetch_add(&l->reading, 1);
		return true;
	}
	pthread_mutex_lock(&l->lock);
	bool ended = l->ended;

	if (!ended) {
		w->below = l->parked;
		l->parked = w;
	}
	pthread_mutex_unlock(&l->lock);
	while (!ended && sem_wait(&w->go) < 0)
		continue;
	return !ended;
}

/* Only here may a worker be cancelled. */
static int receive(struct loop *l, struct worker *w)
{
	int r;

	do {
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		r = fuse_session_receive_buf(l->session, &w->buf);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	} while (r == -EINTR || r == -EAGAIN);
	/* Aborted, by us when an unmount takes too long, or by somebody: gone is gone. */
	return r == -ECONNABORTED ? 0 : r;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct loop *l = w->loop;
	int r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_setname_np(pthread_self(), "hfs-request");
	while (!fuse_session_exited(l->session) && (r = receive(l, w)) != 0) {
		if (r < 0) {
			atomic_store(&l->error, r);
			break;
		}
		has_taken_one(l);
		fuse_session_process_buf(l->session, &w->buf);
		if (!has_served_one(l, w))
			return NULL;
	}
	fuse_session_exit(l->session);
	sem_post(&l->wake);
	return NULL;
}

/* ---- the watcher --------------------------------------------------------------------------- */
static void watch_a_tick(struct loop *l)
{
	struct timespec tick = { .tv_nsec = TICK_NS };

	nanosleep(&tick, NULL);
	if (atomic_load(&l->reading) == 0 && request_waits(l))
		(void)add_reader(l); /* none left: as in loop_hand_over() */
}

/* Until a worker takes a request: it looks at `asleep` after it counted the request. */
static void sleep_while_idle(struct loop *l, unsigned taken)
{
	atomic_store(&l->asleep, true);
	if (atomic_load(&l->reading) > 0 && atomic_load(&l->taken) == taken)
		sem_wait(&l->wake);
	atomic_store(&l->asleep, false);
}

static void watch(struct loop *l)
{
	unsigned taken = atomic_load(&l->taken), quiet = 0;

	while (!fuse_session_exited(l->session)) {
		if (quiet >= IDLE_TICKS)
			sleep_while_idle(l, taken);
		watch_a_tick(l);
		unsigned now = atomic_load(&l->taken);

		quiet = now == taken && atomic_load(&l->reading) > 0 ? quiet + 1 : 0;
		taken = now;
	}
}

static void end_workers(struct loop *l)
{
	struct worker *w;

	pthread_mutex_lock(&l->lock);
	l->ended = true; /* no new ones from here on */
	for (w = l->workers; w; w = w->next)
		pthread_cancel(w->thread);
	for (w = l->parked; w; w = w->below)
		sem_post(&w->go);
	pthread_mutex_unlock(&l->lock);
	while ((w = l->workers)) {
		pthread_join(w->thread, NULL);
		l->workers = w->next;
		sem_destroy(&w->go);
		free(w->buf.mem);
		free(w);
	}
}

int loop_run(struct loop *l)
{
	int r = add_reader(l);

	if (r == 0)
		watch(l);
	end_workers(l);
	fuse_session_reset(l->session);
	return r < 0 ? r : atomic_load(&l->error);
}
