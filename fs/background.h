// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * background.h - the thread that drives volume_step(): commits, write-back, eviction, promotion.
 *
 * It works while there is work, and otherwise sleeps for as long as the engine said or until
 * background_wake(), which never blocks.
 */
#ifndef HYBRIDFS_FS_BACKGROUND_H
#define HYBRIDFS_FS_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

struct volume;

struct background {
	struct volume *volume; /* borrowed */
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	bool woken, stop;
};

void background_init(struct background *b);
/* -errno: no thread. */
int background_start(struct background *b, struct volume *volume);
void background_wake(struct background *b);
/* Returns after the step in progress; harmless if it was not started. */
void background_stop(struct background *b);
void background_release(struct background *b);

#endif
