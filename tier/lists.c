// SPDX-License-Identifier: GPL-2.0-or-later
/* The lists of files with work to do. Each member is referenced by its list. */
#include "tier/internal.h"

static struct list_link *link_of(const struct file_list *l, struct tfile *f)
{
	return (struct list_link *)((char *)f + l->offset);
}

static void unlink_locked(struct file_list *l, struct tfile *f)
{
	struct list_link *k = link_of(l, f);

	if (k->prev)
		link_of(l, k->prev)->next = k->next;
	else
		l->head = k->next;
	if (k->next)
		link_of(l, k->next)->prev = k->prev;
	else
		l->tail = k->prev;
	*k = (struct list_link){ 0 };
	l->count--;
}

bool file_list_add(struct volume *v, struct file_list *l, struct tfile *f, int64_t since_ns)
{
	pthread_mutex_lock(&v->lists_lock);
	struct list_link *k = link_of(l, f);
	bool fresh = !k->linked, first = fresh && !l->head;

	if (fresh) {
		*k = (struct list_link){ .prev = l->tail, .since_ns = since_ns, .linked = true };
		if (l->tail)
			link_of(l, l->tail)->next = f;
		else
			l->head = f;
		l->tail = f;
		l->count++;
	}
	pthread_mutex_unlock(&v->lists_lock);
	if (fresh)
		tfile_ref(f);
	if (first) /* the background may be asleep for long, as nothing was to be done */
		volume_wake(v);
	return fresh;
}

bool file_list_remove(struct volume *v, struct file_list *l, struct tfile *f)
{
	pthread_mutex_lock(&v->lists_lock);
	bool was = link_of(l, f)->linked;

	if (was)
		unlink_locked(l, f);
	pthread_mutex_unlock(&v->lists_lock);
	if (was)
		tfile_put_not_last(f);
	return was;
}

struct tfile *file_list_first(struct volume *v, struct file_list *l)
{
	pthread_mutex_lock(&v->lists_lock);
	struct tfile *f = l->head;

	if (f)
		tfile_ref(f);
	pthread_mutex_unlock(&v->lists_lock);
	return f;
}

uint64_t file_list_count(struct volume *v, const struct file_list *l)
{
	pthread_mutex_lock(&v->lists_lock);
	uint64_t n = l->count;

	pthread_mutex_unlock(&v->lists_lock);
	return n;
}
