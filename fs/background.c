// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/background.h"

#include <time.h>

#include "db/base.h"
#include "tier/volume.h"

#define SECOND_NS 1000000000ll
/* The pause after a failed step, which nobody can cut short. The engine itself backs off. */
#define FAILURE_PAUSE_NS (SECOND_NS / 20)
/* The longest sleep: pthread wants a time that can be represented. */
#define SLEEP_MAX_NS (3600 * SECOND_NS)

void background_init(struct background *b)
{
	pthread_condattr_t attr;

	*b = (struct background){ 0 };
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->changed, &attr);
	pthread_condattr_destroy(&attr);
}

/* True: go on. False: stop. */
static bool sleep_until_woken(struct background *b, int64_t wait_ns, bool may_wake)
{
	struct timespec until;

	if (wait_ns < 0 || wait_ns > SLEEP_MAX_NS)
		wait_ns = SLEEP_MAX_NS;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (until.tv_nsec + wait_ns) / SECOND_NS;
	until.tv_nsec = (until.tv_nsec + wait_ns) % SECOND_NS;
	pthread_mutex_lock(&b->lock);
	while (wait_ns > 0 && !(b->woken && may_wake) && !b->stop)
		if (pthread_cond_timedwait(&b->changed, &b->lock, &until) != 0)
			break;
	if (may_wake)
		b->woken = false;
	bool go_on = !b->stop;

	pthread_mutex_unlock(&b->lock);
	return go_on;
}

static void *background_main(void *arg)
{
	struct background *b = arg;
	int64_t wait_ns = 0;
	int r = 0;

	while (sleep_until_woken(b, wait_ns, r >= 0)) {
		wait_ns = SECOND_NS;
		r = volume_step(b->volume, &wait_ns);
		if (r != 0)
			wait_ns = r > 0 ? 0 : FAILURE_PAUSE_NS;
	}
	return NULL;
}

int background_start(struct background *b, struct volume *volume)
{
	b->volume = volume;
	int r = pthread_create(&b->thread, NULL, background_main, b);

	b->running = r == 0;
	return -r;
}

void background_wake(struct background *b)
{
	pthread_mutex_lock(&b->lock);
	b->woken = true;
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void background_stop(struct background *b)
{
	if (!b->running)
		return;
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	b->running = false;
}

void background_release(struct background *b)
{
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
}
