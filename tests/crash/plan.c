// SPDX-License-Identifier: GPL-2.0-or-later
#include "plan.h"

#include <string.h>

#define SYNC_STEPS_MAX 8

const char *const plan_names[W_COUNT] = { "append", "overwrite", "rename",
					  "sqlite", "truncate",	 "cold" };

/* splitmix64's finaliser over each argument in turn. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	h += v + 0x9e3779b97f4a7c15u;
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
	return h ^ (h >> 31);
}

uint64_t hash_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(mix(0, seed), a), b), c);
}

uint64_t actor_hash(const struct actor *a, uint64_t step, unsigned int salt)
{
	return hash_of(a->seed, ((uint64_t)a->workload << 32) + a->proc, step, salt);
}

bool plan_syncs(const struct actor *a, uint64_t step)
{
	return step % SYNC_STEPS_MAX == 0 || actor_hash(a, step, 1) % 3 == 0;
}

/* Word 0 is a checksum of all that identifies the content; the rest follows from it. */
void plan_fill(const struct actor *a, uint64_t step, uint64_t where, void *buf, size_t len)
{
	uint64_t h = hash_of(actor_hash(a, step, 2), where, len, 0);
	uint64_t words[4] = { h, ((uint64_t)a->workload << 32) + a->proc, step, where };
	unsigned char *p = buf;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		uint64_t w = i < sizeof(words) ? words[i / 8] : h + i * 0x9e3779b97f4a7c15u;

		n = len - i < sizeof(w) ? len - i : sizeof(w);
		memcpy(p + i, &w, n);
	}
}

size_t plan_append_len(const struct actor *a, uint64_t step)
{
	uint64_t h = actor_hash(a, step, 3);

	return h % 97 == 0 ? APPEND_RECORD_MAX : 40 + (h >> 8) % 5000;
}

unsigned int plan_over_blocks(const struct actor *a)
{
	return a->workload == W_COLD ? COLD_BLOCKS : OVER_BLOCKS;
}

uint64_t plan_over_start(const struct actor *a)
{
	return a->workload == W_COLD ? 0 : (uint64_t)a->proc * OVER_BLOCKS;
}

void plan_over(const struct actor *a, uint64_t step, unsigned int *ret_first,
	       unsigned int *ret_count)
{
	static const unsigned int counts[] = { 1, 1, 1, 1, 1, 1, 2, 3, 8, OVER_RUN_MAX };
	uint64_t h = actor_hash(a, step, 4);
	unsigned int count = counts[h % 10];

	*ret_count = count;
	*ret_first = (unsigned int)((h >> 8) % (plan_over_blocks(a) - count + 1));
}

/* Half of the reads near the last write: they become hot, and what is hot moves. */
void plan_cold_read(const struct actor *a, uint64_t step, unsigned int n, unsigned int *ret_first,
		    unsigned int *ret_count)
{
	uint64_t h = actor_hash(a, step, 16 + n);
	unsigned int near, count;

	plan_over(a, step, &near, &count);
	*ret_count = 1 + (unsigned int)((h >> 8) % 16);
	*ret_first = (unsigned int)(h >> 32) % COLD_BLOCKS;
	if (h % 2)
		*ret_first = near;
	if (*ret_first > COLD_BLOCKS - *ret_count)
		*ret_first = COLD_BLOCKS - *ret_count;
}

void plan_rename(const struct actor *a, uint64_t step, unsigned int *ret_name, bool *ret_unlink,
		 size_t *ret_len)
{
	uint64_t h = actor_hash(a, step, 5);

	*ret_name = (unsigned int)(h % RENAME_NAMES);
	*ret_unlink = (h >> 8) % 8 == 0;
	*ret_len = (h >> 16) % ((h >> 12) % 4 ? 9000 : RENAME_BYTES_MAX);
}

size_t plan_sql_len(const struct actor *a, uint64_t step)
{
	uint64_t h = actor_hash(a, step, 6);

	return h % 41 == 0 ? SQL_BODY_MAX : 8 + (h >> 8) % 3000;
}

struct trunc_op plan_trunc(const struct actor *a, uint64_t step, const struct trunc_state *s)
{
	static const unsigned char kinds[] = { T_WRITE,	 T_WRITE,  T_WRITE,    T_APPEND,
					       T_APPEND, T_APPEND, T_TRUNCATE, T_TRUNCATE,
					       T_PUNCH,	 T_ZERO,   T_EXTEND,   T_WRITE };
	uint64_t h = actor_hash(a, step, 7), x = actor_hash(a, step, 8);
	struct trunc_op op = { .kind = kinds[h % sizeof(kinds)] };
	bool aligned = (h >> 8) % 3 == 0;

	op.len = 1 + (x >> 32) % ((h >> 16) % 4 ? 9000 : TRUNC_IO_MAX);
	op.off = (x & 0xffffffffu) % TRUNC_BYTES_MAX;
	if (op.kind == T_APPEND)
		op.off = s->size;
	else if (op.kind != T_TRUNCATE && op.kind != T_EXTEND && (h >> 24) % 8)
		op.off %= s->size + 1;
	if (aligned && op.kind != T_APPEND) {
		op.off -= op.off % PLAN_BLOCK;
		op.len += PLAN_BLOCK - 1 - (op.len - 1) % PLAN_BLOCK;
	}
	if (op.kind == T_TRUNCATE && (h >> 32) % 3)
		op.off = s->size ? op.off % s->size : 0;
	if (op.len > TRUNC_BYTES_MAX - op.off)
		op.len = TRUNC_BYTES_MAX - op.off;
	if (!op.len && op.kind != T_TRUNCATE)
		op = (struct trunc_op){ .kind = T_TRUNCATE, .off = s->size / 3 };
	return op;
}

void plan_trunc_apply(const struct actor *a, uint64_t step, const struct trunc_op *op,
		      struct trunc_state *s)
{
	size_t end = op->off + op->len;

	s->grown = op->kind == T_TRUNCATE && op->off > s->size;
	if (op->kind == T_ZERO || op->kind == T_EXTEND)
		s->grown = end > s->size;
	switch (op->kind) {
	case T_TRUNCATE:
		if (op->off < s->size)
			memset(s->data + op->off, 0, s->size - op->off);
		s->size = op->off;
		return;
	case T_PUNCH:
		if (op->off < s->size)
			memset(s->data + op->off, 0, (end < s->size ? end : s->size) - op->off);
		return;
	case T_EXTEND:
		break;
	case T_ZERO:
		memset(s->data + op->off, 0, op->len);
		break;
	case T_WRITE:
	case T_APPEND:
		plan_fill(a, step, op->off, s->data + op->off, op->len);
		break;
	}
	if (end > s->size)
		s->size = end;
}
