// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A filesystem under test may hang a system call for ever. A second thread watches a counter; when
 * it stands still for too long, the thread reports, kills the daemon (which lets the call return)
 * and ends the program.
 */
#include "model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_ullong alive;

void watch_alive(void)
{
	atomic_fetch_add_explicit(&alive, 1, memory_order_relaxed);
}

static void *watch(void *arg)
{
	const struct config *cfg = arg;
	unsigned long long last = 0;
	unsigned int quiet = 0;

	for (;;) {
		unsigned long long now;

		sleep(1);
		now = atomic_load_explicit(&alive, memory_order_relaxed);
		quiet = now == last ? quiet + 1 : 0;
		last = now;
		if (quiet < cfg->hang_s)
			continue;
		report_hang();
		mount_abort(cfg);
		_exit(1);
	}
	return NULL;
}

void watch_start(const struct config *cfg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, watch, (void *)(uintptr_t)cfg) != 0)
		die("cannot start the watchdog thread");
	pthread_detach(thread);
}
