// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/rangelock.h"

#include <assert.h>
#include <stddef.h>

void range_set_init(struct range_set *s)
{
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->head = NULL;
	s->tail = &s->head;
	s->waiters = 0;
}

void range_set_release(struct range_set *s)
{
	assert(!s->head);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->mutex);
}

static bool conflicts(const struct range *a, const struct range *b)
{
	return (a->exclusive || b->exclusive) && a->start < b->end && b->start < a->end;
}

/* Only what arrived earlier can be in the way. */
static bool must_wait_locked(const struct range_set *s, const struct range *r)
{
	for (const struct range *o = s->head; o && o != r; o = o->next)
		if (conflicts(o, r))
			return true;
	return false;
}

static void append_locked(struct range_set *s, struct range *r, uint64_t start, uint64_t end,
			  bool exclusive)
{
	*r = (struct range){ .start = start, .end = end, .exclusive = exclusive };
	*s->tail = r;
	s->tail = &r->next;
}

static void remove_locked(struct range_set *s, struct range *r)
{
	struct range **p = &s->head;

	while (*p != r)
		p = &(*p)->next;
	*p = r->next;
	if (s->tail == &r->next)
		s->tail = p;
}

void range_lock(struct range_set *s, struct range *r, uint64_t start, uint64_t end, bool exclusive)
{
	pthread_mutex_lock(&s->mutex);
	append_locked(s, r, start, end, exclusive);
	while (must_wait_locked(s, r)) {
		s->waiters++;
		pthread_cond_wait(&s->changed, &s->mutex);
		s->waiters--;
	}
	r->granted = true;
	pthread_mutex_unlock(&s->mutex);
}

bool range_trylock(struct range_set *s, struct range *r, uint64_t start, uint64_t end,
		   bool exclusive)
{
	bool got = true;

	pthread_mutex_lock(&s->mutex);
	append_locked(s, r, start, end, exclusive);
	if (must_wait_locked(s, r)) {
		remove_locked(s, r);
		got = false;
	} else {
		r->granted = true;
	}
	pthread_mutex_unlock(&s->mutex);
	return got;
}

void range_unlock(struct range_set *s, struct range *r)
{
	pthread_mutex_lock(&s->mutex);
	assert(r->granted);
	remove_locked(s, r);
	if (s->waiters)
		pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
}
