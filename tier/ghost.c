// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/ghost.h"

#include "db/base.h"

#define TAG_SHIFT 24
#define EPOCH_SHIFT 8
#define COUNT_MAX 255u

int ghost_init(struct ghost *g)
{
	*g = (struct ghost){ 0 };
	g->entries = calloc(GHOST_SETS * GHOST_WAYS, sizeof(*g->entries));
	return g->entries ? 0 : -ENOMEM;
}

void ghost_release(struct ghost *g)
{
	free(g->entries);
	g->entries = NULL;
}

/* splitmix64 finaliser: every input bit reaches the set number and the tag. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static unsigned count_of(uint64_t e)
{
	return e & COUNT_MAX;
}

static unsigned age_of(uint64_t e, uint32_t epoch)
{
	return (uint16_t)(epoch - (uint16_t)(e >> EPOCH_SHIFT));
}

static uint64_t entry_make(uint64_t tag, uint32_t epoch, unsigned count)
{
	return tag << TAG_SHIFT | (uint64_t)(uint16_t)epoch << EPOCH_SHIFT | count;
}

/* How much an entry is worth keeping; faded ones nothing. */
static unsigned worth(uint64_t e, uint32_t epoch)
{
	return age_of(e, epoch) > GHOST_FADE ? 0 : count_of(e);
}

static _Atomic uint64_t *find(struct ghost *g, uint64_t h, uint64_t tag)
{
	_Atomic uint64_t *set = &g->entries[(h % GHOST_SETS) * GHOST_WAYS];

	for (unsigned i = 0; i < GHOST_WAYS; i++) {
		uint64_t e = atomic_load_explicit(&set[i], memory_order_relaxed);

		if (count_of(e) && e >> TAG_SHIFT == tag)
			return &set[i];
	}
	return NULL;
}

static _Atomic uint64_t *victim(struct ghost *g, uint64_t h, uint32_t epoch)
{
	_Atomic uint64_t *set = &g->entries[(h % GHOST_SETS) * GHOST_WAYS];
	_Atomic uint64_t *best = &set[0];

	for (unsigned i = 1; i < GHOST_WAYS; i++)
		if (worth(set[i], epoch) < worth(*best, epoch))
			best = &set[i];
	return best;
}

unsigned ghost_touch(struct ghost *g, uint64_t file_hash, uint64_t extent)
{
	uint64_t h = mix(file_hash ^ mix(extent)), tag = h >> TAG_SHIFT;
	uint32_t epoch = atomic_load_explicit(&g->epoch, memory_order_relaxed);
	_Atomic uint64_t *p = find(g, h, tag);
	unsigned count = 0;

	if (p)
		count = worth(*p, epoch);
	else
		p = victim(g, h, epoch);
	count = count < COUNT_MAX ? count + 1 : count;
	atomic_store_explicit(p, entry_make(tag, epoch, count), memory_order_relaxed);
	return count;
}

void ghost_forget(struct ghost *g, uint64_t file_hash, uint64_t extent)
{
	uint64_t h = mix(file_hash ^ mix(extent));
	_Atomic uint64_t *p = find(g, h, h >> TAG_SHIFT);

	if (p)
		atomic_store_explicit(p, 0, memory_order_relaxed);
}

void ghost_tick(struct ghost *g)
{
	atomic_fetch_add_explicit(&g->epoch, 1, memory_order_relaxed);
}
