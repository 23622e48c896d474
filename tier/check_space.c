// SPDX-License-Identifier: GPL-2.0-or-later
/* Space of an object that the block map does not account for: counted, and released. */
#include <stdio.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

#define ULL(n) ((unsigned long long)(n))

/* ---- counting ----------------------------------------------------------------------------- */
/* Whole blocks of the SSD's filesystem within one run of data that hold nothing present. */
static uint64_t absent_bytes(const struct subject *s, uint64_t from, uint64_t to)
{
	uint64_t block = s->c->ssd_block, bytes = 0;

	for (uint64_t at = from; at < to;) {
		struct map_run run = map_run_at(&s->map, at, to);
		uint64_t first = round_up_u64(run.start, block);
		uint64_t last = run.end == to ? round_up_u64(to, block) :
						round_down_u64(run.end, block);

		if (run.state == BLOCK_ABSENT && first < last)
			bytes += last - first;
		at = run.end;
	}
	return bytes;
}

/*
 * Looks at the map as it was stored: what this check makes absent is no leak. A filesystem that
 * reports no holes would make everything one; what is really allocated bounds it.
 */
void subject_count_leaks(struct subject *s)
{
	uint64_t bytes = 0, present = s->map.present_blocks * BLOCK_BYTES;
	uint64_t allocated = (uint64_t)s->obj_st.st_blocks * 512;

	if (s->obj_fd < 0 || allocated <= present)
		return;
	for (uint64_t at = 0; (at = check_next_data(s->obj_fd, at)) != UINT64_MAX;) {
		off_t hole = lseek(s->obj_fd, (off_t)at, SEEK_HOLE);
		uint64_t end = hole < 0 ? (uint64_t)s->obj_st.st_size : (uint64_t)hole;

		if (end <= at)
			break;
		bytes += absent_bytes(s, round_down_u64(at, BLOCK_BYTES), end);
		at = end;
	}
	s->leaked_bytes = bytes;
	if (bytes)
		subject_find(s, "space", "release them",
			     "its object occupies %llu bytes for absent blocks", ULL(bytes));
}

/* ---- releasing ---------------------------------------------------------------------------- */
/* Punch the absent parts of one run of data. */
static int punch_absent(struct subject *s, uint64_t from, uint64_t to)
{
	int r = 0;

	for (uint64_t at = from; r == 0 && at < to;) {
		struct map_run run = map_run_at(&s->map, at, to);

		if (run.state == BLOCK_ABSENT)
			r = object_punch(s->obj_fd, run.start, run.end - run.start);
		at = run.end;
	}
	return r;
}

/* I4: the catalog says already that these blocks are absent. */
int subject_release_space(struct subject *s)
{
	int r = 0;

	if (!subject_wants_row(s))
		return check_remove_object(s->c, s->row.id);
	if (s->obj_fd < 0)
		return 0;
	if (s->map.present_blocks == 0)
		return ftruncate(s->obj_fd, 0) < 0 ? neg_errno() : 0;
	for (uint64_t at = 0; r == 0 && (at = check_next_data(s->obj_fd, at)) != UINT64_MAX;) {
		off_t hole = lseek(s->obj_fd, (off_t)at, SEEK_HOLE);
		uint64_t end = hole < 0 ? (uint64_t)s->obj_st.st_size : (uint64_t)hole;

		if (end <= at)
			break;
		r = punch_absent(s, round_down_u64(at, BLOCK_BYTES),
				 round_up_u64(end, BLOCK_BYTES));
		at = end;
	}
	return r;
}
