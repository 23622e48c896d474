// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The old catalog as a witness: what its rows, as far as they can be read, say about one object,
 * and whether SRC's stamp bears it out.
 *
 * A row with SRC's present stamp may still be out of date: dirty data came later. That differs from
 * SRC, so it is found by comparison. What was dirty then is dirty now: writing it back, cutting or
 * punching it would have moved the stamp.
 */
#include <string.h>

#include "tier/check_internal.h"

/* Rows that cannot be read and are stepped over: in a row, and altogether. */
#define SKIP_MAX     1000u
#define SKIP_ALL_MAX 1000000u

/* A group that cannot be read hides those behind it, unless they are asked for. */
static void load_groups(struct catalog *old, unsigned *skipped, struct witness *t)
{
	struct cat_group g;
	unsigned failed = 0;

	for (uint64_t from = 0; failed < SKIP_MAX && *skipped < SKIP_ALL_MAX;) {
		int r = catalog_next_group(old, t->row.id, from, &g);

		if (r == -ENOENT)
			break;
		if (r == 0)
			(void)map_load(&t->map, &g);
		from = r == 0 ? g.index + 1 : from + 1;
		failed = r == 0 ? 0 : failed + 1;
		*skipped += r < 0;
	}
}

void witness_ask(struct catalog *old, unsigned *skipped, uint64_t id, struct witness *t)
{
	map_init(&t->map);
	t->row = (struct cat_file){ .id = 0 };
	t->believed = false;
	if (old && catalog_find_id(old, id, &t->row) == 0)
		load_groups(old, skipped, t);
}

void witness_release(struct witness *t)
{
	map_release(&t->map);
	cat_file_release(&t->row);
	*t = (struct witness){ .row.id = 0 };
}

bool witness_same_key(const struct subject *s, const struct witness *t)
{
	return t->row.id && t->row.key_len == s->key.len &&
	       memcmp(t->row.key, s->key.data, s->key.len) == 0;
}

void witness_judge(const struct subject *s, struct witness *t)
{
	struct src_stamp now = subject_src_stamp(s);

	const uint32_t no = CAT_F_SRC_BUSY | CAT_F_TRUNCATE |
			    CAT_F_DIR; /* no stamp, or not a file */

	t->believed = t->row.id && s->src_fd >= 0 && !(t->row.flags & no) &&
		      now.size == t->row.src_size_bytes && now.mtime_ns == t->row.src_mtime_ns &&
		      now.ctime_ns == t->row.src_ctime_ns &&
		      (!(t->row.flags & CAT_F_ATTR_OWNED) || t->row.size_bytes <= INT64_MAX);
}

bool witness_lost_pins(const struct witness *t)
{
	bool any = false;

	for (unsigned i = 0; i < t->map.n_groups; i++)
		any |= t->map.groups[i]->pinned != 0;
	return t->row.flags & CAT_F_PIN_RANGES && !any;
}

/* Pins and heat are taken over in any case: they harm nothing. */
static int take_over_pins(struct subject *s, const struct witness *t)
{
	s->row.flags |= t->row.flags & CAT_F_PINNED;
	if (witness_lost_pins(t))
		subject_find(s, "row", "go on without", "%s", PINS_LOST);
	for (unsigned i = 0; i < t->map.n_groups; i++) {
		const struct map_group *from = t->map.groups[i];
		struct map_group *g = from->pinned ? map_get(&s->map, from->index) :
						     map_find(&s->map, from->index);

		if (!g && from->pinned)
			return -ENOMEM;
		if (!g)
			continue;
		g->pinned = from->pinned;
		memcpy(g->heat, from->heat, sizeof(g->heat));
		map_group_changed(&s->map, g);
		if (g->pinned)
			s->row.flags |= CAT_F_PIN_RANGES;
	}
	return 0;
}

/* What a believed row calls dirty where the object has a hole: zeros that somebody wrote, or lost.
 * Nothing tells which, so this is a difference like others. */
static int take_over_dirty(struct subject *s, const struct map *m, uint64_t *differs)
{
	uint64_t before = s->map.dirty_blocks;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < m->n_groups; i++)
		for (unsigned w = 0; r == 0 && w < BITMAP_WORDS; w++)
			if (m->groups[i]->dirty[w])
				r = subject_set(s, m->groups[i]->index, w, m->groups[i]->dirty[w],
						BLOCK_DIRTY);
	*differs += (s->map.dirty_blocks - before) * BLOCK_BYTES;
	return r;
}

int witness_take_over(struct subject *s, const struct witness *t, uint64_t *differs)
{
	int r = take_over_pins(s, t);

	if (r < 0 || !t->believed)
		return r;
	s->row.flags |= t->row.flags & (CAT_F_ATTR_OWNED | CAT_F_CONFLICT);
	s->row.size_bytes = t->row.size_bytes;
	s->row.mtime_ns = t->row.mtime_ns;
	return take_over_dirty(s, &t->map, differs);
}
