// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rangelock.h - shared/exclusive reservation of a byte range of one file, held over I/O.
 *
 * Requests are served in order of arrival: one waits only for earlier conflicting ones, so nobody
 * starves, and as every holder asks for one range only there is no deadlock. Nothing is
 * allocated: the caller supplies the node, on its stack. A set has its own mutex, never held over
 * anything but its list.
 */
#ifndef HYBRIDFS_TIER_RANGELOCK_H
#define HYBRIDFS_TIER_RANGELOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RANGE_END UINT64_MAX

struct range {
	struct range *next;
	uint64_t start, end; /* [start, end) */
	bool exclusive, granted;
};

struct range_set {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct range *head, **tail; /* granted and waiting, in order of arrival */
	unsigned waiters;
};

void range_set_init(struct range_set *s);
void range_set_release(struct range_set *s); /* must be empty */
void range_lock(struct range_set *s, struct range *r, uint64_t start, uint64_t end,
		bool exclusive);
/* False, without effect, when it would have to wait. */
bool range_trylock(struct range_set *s, struct range *r, uint64_t start, uint64_t end,
		   bool exclusive);
void range_unlock(struct range_set *s, struct range *r);

#endif
