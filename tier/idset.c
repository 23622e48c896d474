// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/idset.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void id_set_release(struct id_set *s)
{
	free(s->ids);
	*s = (struct id_set){ 0 };
}

int id_set_reserve(struct id_set *s, unsigned n)
{
	if (s->cap - s->n >= n)
		return 0;
	unsigned cap = s->n + n > 2 * s->cap ? s->n + n : 2 * s->cap;
	uint64_t *p = reallocarray(s->ids, cap, sizeof(*p));

	if (!p)
		return -ENOMEM;
	s->ids = p;
	s->cap = cap;
	return 0;
}

void id_set_append(struct id_set *s, uint64_t id)
{
	assert(s->n < s->cap);
	s->ids[s->n++] = id;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void id_set_sort(struct id_set *s)
{
	unsigned kept = 0;

	if (s->n > 1)
		qsort(s->ids, s->n, sizeof(*s->ids), compare);
	for (unsigned i = 0; i < s->n; i++)
		if (i == 0 || s->ids[i] != s->ids[i - 1])
			s->ids[kept++] = s->ids[i];
	s->n = kept;
}

bool id_set_has(const struct id_set *s, uint64_t id)
{
	return s->n && bsearch(&id, s->ids, s->n, sizeof(id), compare);
}

void id_set_subtract(struct id_set *s, const struct id_set *gone)
{
	unsigned kept = 0;

	for (unsigned i = 0, j = 0; i < s->n; i++) {
		while (j < gone->n && gone->ids[j] < s->ids[i])
			j++;
		if (j == gone->n || gone->ids[j] != s->ids[i])
			s->ids[kept++] = s->ids[i];
	}
	s->n = kept;
}
