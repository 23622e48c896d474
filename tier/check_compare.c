// SPDX-License-Identifier: GPL-2.0-or-later
/* A block map from comparing an object with SRC, where nothing else tells (check.h says how). */
#include <string.h>

#include "tier/check_internal.h"

#define ULL(n) ((unsigned long long)(n))

struct comparison {
	struct subject *s;
	const struct map *witness; /* may be NULL */
	uint64_t differs;	   /* bytes */
	uint64_t unreadable;
};

static uint64_t witness_dirty(const struct map *m, uint64_t base)
{
	const struct map_group *g = m ? map_find(m, base / GROUP_BYTES) : NULL;

	return g ? g->dirty[(base % GROUP_BYTES) / EXTENT_BYTES] : 0;
}

/* Blocks that may have been overwritten when the last daemon ended: newer if they differ. */
static bool witness_intent(const struct comparison *x, uint64_t base)
{
	const struct map_group *g = x->witness ? map_find(x->witness, base / GROUP_BYTES) : NULL;

	return g && g->intent;
}

static uint64_t behind_src(const struct subject *s, uint64_t base)
{
	uint64_t end = round_up_u64((uint64_t)s->src_st.st_size, BLOCK_BYTES);
	uint64_t first = end > base ? (end - base) / BLOCK_BYTES : 0;

	return first < BLOCKS_PER_EXTENT ? ~0ull << first : 0;
}

/* Blocks of `mask` that SRC has just the same. */
static uint64_t equal_blocks(struct subject *s, uint64_t base, uint64_t mask)
{
	struct check *c = s->c;
	uint64_t bad;

	if (s->src_fd < 0)
		return 0;
	mask &= ~behind_src(s, base);
	check_read_blocks(s->src_fd, c->src_buf, base, mask, &bad);
	mask &= ~bad;
	return mask & ~check_different(c->obj_buf, c->src_buf, mask);
}

static void set_sum(struct subject *s, uint64_t base, uint64_t mask)
{
	struct map_group *g = map_find(&s->map, base / GROUP_BYTES);
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;

	if (!g || g->dirty[w] || g->present[w] != mask || !mask)
		return;
	g->sum[w] = check_sum(s->c->obj_buf, base, mask);
	g->sum_valid |= 1ull << w;
}

static int compare_extent(struct comparison *x, uint64_t base)
{
	struct subject *s = x->s;
	uint64_t index = base / GROUP_BYTES, mask = check_data_mask(s->obj_fd, base), bad;
	unsigned w = (base % GROUP_BYTES) / EXTENT_BYTES;

	check_read_blocks(s->obj_fd, s->c->obj_buf, base, mask, &bad);
	uint64_t known = witness_dirty(x->witness, base) & mask, rest = mask & ~bad & ~known;
	uint64_t equal = equal_blocks(s, base, rest);

	x->unreadable += mask_bytes(bad);
	if (!witness_intent(x, base))
		x->differs += mask_bytes(rest & ~equal);
	int r = subject_set(s, index, w, equal, BLOCK_CLEAN);

	if (r == 0)
		r = subject_set(s, index, w, (rest & ~equal) | known, BLOCK_DIRTY);
	if (r == 0)
		set_sum(s, base, equal);
	s->c->result->checked_bytes += mask_bytes(mask);
	return r < 0 ? r : check_progress(s->c, mask_bytes(mask));
}

int check_compare(struct subject *s, const struct map *witness, uint64_t *ret_differs)
{
	struct comparison x = { .s = s, .witness = witness };
	int r = 0;

	for (uint64_t at = 0; r == 0 && (at = check_next_data(s->obj_fd, at)) != UINT64_MAX;) {
		uint64_t base = round_down_u64(at, EXTENT_BYTES);

		r = compare_extent(&x, base);
		at = base + EXTENT_BYTES;
	}
	if (x.unreadable)
		subject_left(s, "object-unreadable",
			     "%llu bytes of the object cannot be read; if they were newer than "
			     "SRC, that is lost",
			     ULL(x.unreadable));
	*ret_differs = x.differs;
	return r;
}
