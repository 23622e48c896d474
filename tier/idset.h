// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * idset.h - a set of file ids: a sorted array, as ids come in batches. The caller's lock protects
 * it.
 */
#ifndef HYBRIDFS_TIER_IDSET_H
#define HYBRIDFS_TIER_IDSET_H

#include <stdbool.h>
#include <stdint.h>

struct id_set {
	uint64_t *ids; /* owned, ascending */
	unsigned n, cap;
};

void id_set_release(struct id_set *s);

/* Make room for n more: id_set_append() can not fail then. 0 or -ENOMEM. */
int id_set_reserve(struct id_set *s, unsigned n);

/* id_set_append() for each new one, then id_set_sort(); one that is there already counts once. */
void id_set_append(struct id_set *s, uint64_t id);
void id_set_sort(struct id_set *s);

bool id_set_has(const struct id_set *s, uint64_t id);

/* Remove every id that `gone` has. */
void id_set_subtract(struct id_set *s, const struct id_set *gone);

#endif
