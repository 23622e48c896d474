// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "db/base.h"

#define MAP_END UINT64_MAX

void map_init(struct map *m)
{
	*m = (struct map){ 0 };
}

void map_release(struct map *m)
{
	for (unsigned i = 0; i < m->n_groups; i++)
		free(m->groups[i]);
	free(m->groups);
	map_init(m);
}

unsigned map_index(const struct map *m, uint64_t index)
{
	unsigned lo = 0, hi = m->n_groups;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (m->groups[mid]->index < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct map_group *map_next(const struct map *m, uint64_t index)
{
	unsigned i = map_index(m, index);

	return i < m->n_groups ? m->groups[i] : NULL;
}

struct map_group *map_find(const struct map *m, uint64_t index)
{
	struct map_group *g = map_next(m, index);

	return g && g->index == index ? g : NULL;
}

static int make_room(struct map *m)
{
	if (m->n_groups < m->cap)
		return 0;
	unsigned cap = m->cap ? m->cap * 2 : 4;
	struct map_group **groups = reallocarray(m->groups, cap, sizeof(*groups));

	if (!groups)
		return -ENOMEM;
	m->groups = groups;
	m->cap = cap;
	return 0;
}

struct map_group *map_get(struct map *m, uint64_t index)
{
	unsigned i = map_index(m, index);

	if (i < m->n_groups && m->groups[i]->index == index)
		return m->groups[i];
	if (make_room(m) < 0)
		return NULL;
	struct map_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->index = index;
	m->prunable = true; /* what it is made for may fail */
	memmove(&m->groups[i + 1], &m->groups[i], (m->n_groups - i) * sizeof(*m->groups));
	m->groups[i] = g;
	m->n_groups++;
	return g;
}

static bool words_empty(const uint64_t *w)
{
	for (unsigned i = 0; i < BITMAP_WORDS; i++)
		if (w[i])
			return false;
	return true;
}

bool map_group_empty(const struct map_group *g)
{
	return !g->pinned && !g->intent && words_empty(g->present);
}

static bool stored(uint64_t seq, uint64_t stored_seq)
{
	return stored_seq == 0 || seq == stored_seq;
}

static bool group_idle(const struct map_group *g)
{
	return map_group_empty(g) && !g->intent_durable && !g->removal && !g->checkpointing &&
	       stored(g->seq, g->committed_seq) && stored(g->seq, g->checkpoint_seq);
}

void map_prune(struct map *m)
{
	unsigned kept = 0;

	if (!m->prunable)
		return;
	m->prunable = false;
	for (unsigned i = 0; i < m->n_groups; i++) {
		if (group_idle(m->groups[i])) {
			free(m->groups[i]);
			continue;
		}
		m->prunable |= map_group_empty(m->groups[i]);
		m->groups[kept++] = m->groups[i];
	}
	m->n_groups = kept;
}

static enum block_state word_state(const struct map_group *g, unsigned w, uint64_t bit)
{
	if (!(g->present[w] & bit))
		return BLOCK_ABSENT;
	return g->dirty[w] & bit ? BLOCK_DIRTY : BLOCK_CLEAN;
}

enum block_state map_state(const struct map *m, uint64_t off)
{
	const struct map_group *g = map_find(m, off / GROUP_BYTES);
	unsigned block = (off % GROUP_BYTES) / BLOCK_BYTES;

	return g ? word_state(g, block / 64, 1ull << (block % 64)) : BLOCK_ABSENT;
}

/* Bits of one word whose blocks are in that state. */
static uint64_t state_mask(const struct map_group *g, unsigned w, enum block_state state)
{
	switch (state) {
	case BLOCK_ABSENT:
		return ~g->present[w];
	case BLOCK_CLEAN:
		return g->present[w] & ~g->dirty[w];
	default:
		return g->dirty[w];
	}
}

/* First block >= from in the group that is not in `state`; CAT_BLOCKS_PER_GROUP if none. */
static unsigned group_run_end(const struct map_group *g, unsigned from, enum block_state state)
{
	for (unsigned w = from / 64; w < BITMAP_WORDS; w++) {
		uint64_t other = ~state_mask(g, w, state);

		if (w == from / 64)
			other &= ~0ull << (from % 64);
		if (other)
			return w * 64 + (unsigned)__builtin_ctzll(other);
	}
	return CAT_BLOCKS_PER_GROUP;
}

struct map_run map_run_at(const struct map *m, uint64_t start, uint64_t end)
{
	struct map_run run = { .start = start, .end = start, .state = map_state(m, start) };

	while (run.end < end) {
		uint64_t index = run.end / GROUP_BYTES;
		const struct map_group *g = map_next(m, index);

		if (!g || g->index != index) {
			if (run.state != BLOCK_ABSENT)
				break;
			run.end = g ? min_u64(end, g->index * GROUP_BYTES) : end;
			continue;
		}
		unsigned from = (run.end % GROUP_BYTES) / BLOCK_BYTES;
		unsigned to = group_run_end(g, from, run.state);

		if (to == from)
			break;
		run.end = index * GROUP_BYTES + to * BLOCK_BYTES;
		if (to < CAT_BLOCKS_PER_GROUP)
			break;
	}
	run.end = min_u64(run.end, end);
	return run;
}

/* `bitmap`: offset of the bitmap in the group; `last`: the last group that may have a bit. */
static uint64_t next_set(const struct map *m, uint64_t off, size_t bitmap, uint64_t last)
{
	uint64_t index = off / GROUP_BYTES;
	unsigned from = (off % GROUP_BYTES) / BLOCK_BYTES;

	for (unsigned i = map_index(m, index); i < m->n_groups; i++) {
		const struct map_group *g = m->groups[i];

		if (g->index > last)
			break;
		if (g->index != index)
			from = 0;
		for (unsigned w = from / 64; w < BITMAP_WORDS; w++) {
			uint64_t bits = ((const uint64_t *)((const char *)g + bitmap))[w];

			if (w == from / 64)
				bits &= ~0ull << (from % 64);
			if (!bits)
				continue;
			uint64_t found = g->index * GROUP_BYTES +
					 (w * 64 + (unsigned)__builtin_ctzll(bits)) * BLOCK_BYTES;
			return max_u64(found, off);
		}
	}
	return MAP_END;
}

uint64_t map_next_present(const struct map *m, uint64_t off)
{
	return next_set(m, off, offsetof(struct map_group, present), MAP_END);
}

uint64_t map_next_dirty(const struct map *m, uint64_t off)
{
	return next_set(m, off, offsetof(struct map_group, dirty), MAP_END);
}

void map_group_changed(struct map *m, struct map_group *g)
{
	g->seq = ++m->clock;
	m->changed_lo = min_u64(m->changed_lo, g->index);
	m->changed_hi = max_u64(m->changed_hi, g->index);
}

void map_changes_taken(struct map *m)
{
	m->changed_lo = UINT64_MAX;
	m->changed_hi = 0;
}

void map_all_changed(struct map *m)
{
	m->changed_lo = 0;
	m->changed_hi = UINT64_MAX;
}

static void set_word(struct map *m, struct map_group *g, unsigned w, uint64_t mask,
		     enum block_state state)
{
	uint64_t extent = 1ull << w;
	uint64_t old_present = g->present[w], old_dirty = g->dirty[w];

	switch (state) {
	case BLOCK_ABSENT:
		g->present[w] &= ~mask;
		g->dirty[w] &= ~mask;
		g->wb[w] &= ~mask;
		m->unsynced_blocks -= (uint64_t)__builtin_popcountll(g->unsynced[w] & mask);
		g->unsynced[w] &= ~mask;
		if (old_present & mask) {
			g->removal = m->prunable = true;
			g->sum_valid &= ~extent;
			g->touched |= extent;
		}
		break;
	case BLOCK_CLEAN:
		g->present[w] |= mask;
		g->dirty[w] &= ~mask;
		g->wb[w] &= ~mask;
		break;
	case BLOCK_DIRTY:
		g->present[w] |= mask;
		g->dirty[w] |= mask;
		g->wb[w] &= ~mask;
		g->sum_valid &= ~extent;
		g->touched |= extent;
		break;
	}
	m->present_blocks += (uint64_t)__builtin_popcountll(g->present[w]) -
			     (uint64_t)__builtin_popcountll(old_present);
	m->dirty_blocks += (uint64_t)__builtin_popcountll(g->dirty[w]) -
			   (uint64_t)__builtin_popcountll(old_dirty);
	if (g->present[w] != old_present || g->dirty[w] != old_dirty) {
		map_group_changed(m, g);
		m->changes++;
	}
}

/* Bits [from, to) of a word. */
static uint64_t span_mask(unsigned from, unsigned to)
{
	uint64_t upto = to == 64 ? ~0ull : (1ull << to) - 1;

	return upto & (~0ull << from);
}

static void set_in_group(struct map *m, struct map_group *g, unsigned from, unsigned to,
			 enum block_state state)
{
	for (unsigned w = from / 64; w <= (to - 1) / 64; w++) {
		unsigned lo = w == from / 64 ? from % 64 : 0;
		unsigned hi = w == (to - 1) / 64 ? (to - 1) % 64 + 1 : 64;

		set_word(m, g, w, span_mask(lo, hi), state);
	}
}

int map_set(struct map *m, uint64_t start, uint64_t end, enum block_state state)
{
	assert(start % BLOCK_BYTES == 0 && (end % BLOCK_BYTES == 0 || end == MAP_END));
	if (start >= end)
		return 0;
	uint64_t last = (end - 1) / GROUP_BYTES;

	if (state != BLOCK_ABSENT)
		for (uint64_t i = start / GROUP_BYTES; i <= last; i++)
			if (!map_get(m, i))
				return -ENOMEM;
	for (unsigned i = map_index(m, start / GROUP_BYTES); i < m->n_groups; i++) {
		struct map_group *g = m->groups[i];
		uint64_t base = g->index * GROUP_BYTES;

		if (g->index > last)
			break;
		unsigned from = start > base ? (start - base) / BLOCK_BYTES : 0;
		unsigned to = end - base >= GROUP_BYTES ? CAT_BLOCKS_PER_GROUP
							: (end - base) / BLOCK_BYTES;

		set_in_group(m, g, from, to, state);
	}
	return 0;
}

bool map_needs_intent(const struct map *m, uint64_t start, uint64_t end)
{
	for (uint64_t off = round_down_u64(start, GROUP_BYTES); off < end; off += GROUP_BYTES) {
		const struct map_group *g = map_find(m, off / GROUP_BYTES);

		if (!g || g->intent_durable)
			continue;
		if (g->removal)
			return true;
		uint64_t to = min_u64(end, off + GROUP_BYTES);

		for (uint64_t at = max_u64(start, off); at < to;) {
			struct map_run run = map_run_at(m, at, to);

			if (run.state == BLOCK_CLEAN)
				return true;
			at = run.end;
		}
	}
	return false;
}

void map_set_intent(struct map *m, uint64_t start, uint64_t end)
{
	for (uint64_t i = start / GROUP_BYTES; i <= (end - 1) / GROUP_BYTES; i++) {
		struct map_group *g = map_find(m, i);

		if (g && !g->intent) {
			g->intent = true;
			map_group_changed(m, g);
		}
	}
}

void map_begin_write(struct map *m, uint64_t start, uint64_t end)
{
	for (uint64_t at = round_down_u64(start, BLOCK_BYTES); at < end; at += BLOCK_BYTES) {
		struct map_group *g = map_find(m, at / GROUP_BYTES);
		unsigned b = (at % GROUP_BYTES) / BLOCK_BYTES;

		if (g) {
			g->wb[b / 64] &= ~(1ull << (b % 64));
			g->touched |= 1ull << (b / 64);
		}
	}
}

bool map_has_intent(const struct map *m)
{
	for (unsigned i = 0; i < m->n_groups; i++)
		if (m->groups[i]->intent)
			return true;
	return false;
}

void map_group_store(const struct map_group *g, struct cat_group *ret_row)
{
	struct cat_group *row = ret_row;

	*row = (struct cat_group){ .index = g->index,
				   .flags = g->intent ? CAT_G_INTENT : 0,
				   .sum_valid = g->sum_valid,
				   .pinned = g->pinned };
	for (unsigned w = 0; w < BITMAP_WORDS; w++)
		for (unsigned b = 0; b < 8; b++) {
			row->present[w * 8 + b] = (uint8_t)(g->present[w] >> (8 * b));
			row->dirty[w * 8 + b] = (uint8_t)(g->dirty[w] >> (8 * b));
		}
	memcpy(row->sum, g->sum, sizeof(row->sum));
	memcpy(row->heat, g->heat, sizeof(row->heat));
}

static void unsynced_in_group(struct map *m, struct map_group *g, unsigned from, unsigned to)
{
	bool first = m->unsynced_blocks == 0;

	m->unsynced_lo = first ? g->index : min_u64(m->unsynced_lo, g->index);
	m->unsynced_hi = first ? g->index : max_u64(m->unsynced_hi, g->index);
	for (unsigned w = from / 64; w <= (to - 1) / 64; w++) {
		unsigned lo = w == from / 64 ? from % 64 : 0;
		unsigned hi = w == (to - 1) / 64 ? (to - 1) % 64 + 1 : 64;
		uint64_t mask = span_mask(lo, hi) & ~g->unsynced[w];

		g->unsynced[w] |= mask;
		m->unsynced_blocks += (uint64_t)__builtin_popcountll(mask);
	}
}

void map_set_unsynced(struct map *m, uint64_t start, uint64_t end)
{
	for (uint64_t at = start; at < end;) {
		uint64_t base = round_down_u64(at, GROUP_BYTES);
		uint64_t to = min_u64(end, base + GROUP_BYTES);
		struct map_group *g = map_find(m, base / GROUP_BYTES);

		assert(g);
		unsynced_in_group(m, g, (unsigned)((at - base) / BLOCK_BYTES),
				  (unsigned)((to - base) / BLOCK_BYTES));
		at = to;
	}
}

void map_clear_unsynced(struct map *m)
{
	if (m->unsynced_blocks)
		for (unsigned i = map_index(m, m->unsynced_lo);
		     i < m->n_groups && m->groups[i]->index <= m->unsynced_hi; i++)
			memset(m->groups[i]->unsynced, 0, sizeof(m->groups[i]->unsynced));
	m->unsynced_blocks = 0;
}

uint64_t map_next_unsynced(const struct map *m, uint64_t off)
{
	if (!m->unsynced_blocks)
		return MAP_END;
	return next_set(m, max_u64(off, m->unsynced_lo * GROUP_BYTES),
			offsetof(struct map_group, unsynced), m->unsynced_hi);
}

int map_load(struct map *m, const struct cat_group *row)
{
	if (map_find(m, row->index))
		return -EEXIST;
	struct map_group *g = map_get(m, row->index);

	if (!g)
		return -ENOMEM;
	for (unsigned i = 0; i < CAT_BITMAP_BYTES; i++) {
		g->present[i / 8] |= (uint64_t)row->present[i] << (8 * (i % 8));
		g->dirty[i / 8] |= (uint64_t)row->dirty[i] << (8 * (i % 8));
	}
	for (unsigned w = 0; w < BITMAP_WORDS; w++) {
		m->present_blocks += (uint64_t)__builtin_popcountll(g->present[w]);
		m->dirty_blocks += (uint64_t)__builtin_popcountll(g->dirty[w]);
	}
	g->sum_valid = row->sum_valid;
	memcpy(g->sum, row->sum, sizeof(g->sum));
	g->pinned = row->pinned;
	memcpy(g->heat, row->heat, sizeof(g->heat));
	g->intent = g->intent_durable = row->flags & CAT_G_INTENT;
	map_group_changed(m, g);
	g->committed_seq = g->checkpoint_seq = g->seq;
	return 0;
}

uint64_t block_sum(const void *data, uint64_t block_no)
{
	return XXH3_64bits_withSeed(data, BLOCK_BYTES, block_no);
}
