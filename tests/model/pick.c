// SPDX-License-Identifier: GPL-2.0-or-later
/* Random numbers, offsets and data. Everything follows from the seed. */
#include "model.h"

#include <string.h>

const struct span windows[NWINDOWS] = {
	{ 0, KIB(1280) },
	{ GIB(1) - KIB(256), KIB(512) },
	{ GIB(5) - KIB(256), KIB(512) },
};

uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

bool rng_one_in(struct rng *r, uint32_t n)
{
	return rng_below(r, n) == 0;
}

static const int nudges[] = { 0, 0, 0, 0, -1, 1, -512, 512, -4096, 4096, -4097, 4095, 511, 1024 };

static off_t nudge(struct rng *r)
{
	return nudges[rng_below(r, sizeof(nudges) / sizeof(nudges[0]))];
}

/* An offset in the window, relative to its start. Small ones are more frequent. */
static off_t pick_in_window(struct rng *r, const struct span *win)
{
	uint32_t limit = (uint32_t)win->len;
	off_t off;

	switch (rng_below(r, 8)) {
	case 0:
		return 0;
	case 1:
	case 2: /* extent edges */
		off = KIB(256) * rng_below(r, limit / KIB(256) + 1) + nudge(r);
		break;
	case 3:
	case 4: /* block edges near the start */
		off = KIB(4) * rng_below(r, 20) + nudge(r);
		break;
	case 5: /* sectors */
		off = 512 * (off_t)rng_below(r, limit / 512);
		break;
	case 6: /* block edges anywhere */
		off = KIB(4) * rng_below(r, limit / KIB(4)) + nudge(r);
		break;
	default:
		off = rng_below(r, limit);
	}
	if (off < 0)
		off = 0;
	return off >= (off_t)limit ? (off_t)limit - 1 : off;
}

static const struct span *pick_window(struct rng *r)
{
	return &windows[rng_one_in(r, 40) ? 1 + rng_below(r, NWINDOWS - 1) : 0];
}

off_t pick_offset(struct rng *r)
{
	const struct span *win = pick_window(r);

	return win->off + pick_in_window(r, win);
}

static const uint32_t lengths[] = {
	1,    2,     100,   511,   512,	  513,	  1024,	  4095,	  4096,	  4096,	  4097,
	8192, 12288, 16384, 65536, 65537, 131072, 262143, 262144, 262145, 524289,
};

static size_t pick_length(struct rng *r)
{
	size_t n = sizeof(lengths) / sizeof(lengths[0]);

	if (rng_one_in(r, 6))
		return 1 + rng_below(r, KIB(128));
	if (rng_one_in(r, 3)) /* anything, the long ones too */
		return lengths[rng_below(r, (uint32_t)n)];
	return lengths[rng_below(r, 14)];
}

struct span pick_span(struct rng *r, size_t align)
{
	const struct span *win = pick_window(r);
	off_t end = win->off + (off_t)win->len;
	struct span s = { win->off + pick_in_window(r, win), pick_length(r) };

	s.off -= s.off % (off_t)align;
	s.len = (s.len + align - 1) / align * align;
	if ((off_t)s.len > end - s.off)
		s.len = (size_t)(end - s.off);
	if (s.len > IO_MAX)
		s.len = IO_MAX;
	return s;
}

struct span span_in_window(off_t off, size_t len)
{
	for (int i = 0; i < NWINDOWS; i++) {
		off_t end = windows[i].off + (off_t)windows[i].len;

		if (off < windows[i].off || off >= end)
			continue;
		if ((off_t)len > end - off)
			len = (size_t)(end - off);
		return (struct span){ off, len };
	}
	return (struct span){ off, 0 };
}

/*
 * Each aligned word is an invertible mix of (step, file, offset / 8), so that a stray word in a
 * report says where it came from, and a block that ends up at another place differs.
 */
#define MIX_XOR 0x5bd1e995a6f3c2d1u
#define MIX_MUL 0x9e3779b97f4a7c15u
#define MIX_INV 0xf1de83e19937733du /* MIX_MUL * MIX_INV == 1 modulo 2^64 */

static uint64_t mix(uint64_t x)
{
	x = (x ^ MIX_XOR) * MIX_MUL;
	x ^= x >> 32;
	return x * MIX_MUL;
}

static uint64_t unmix(uint64_t x)
{
	x *= MIX_INV;
	x ^= x >> 32;
	return (x * MIX_INV) ^ MIX_XOR;
}

/* So that explaining a word does not guess a step that has not come yet. */
static uint32_t newest_step;

static uint64_t pattern_word(uint32_t id, uint32_t step, uint64_t index)
{
	return mix((uint64_t)(step & 0xffffff) << 40 | (uint64_t)(id & 0xff) << 32 |
		   (index & 0xffffffff));
}

/* The part of one word that lies in [off, off + max). */
static size_t fill_part(unsigned char *buf, uint32_t id, uint32_t step, uint64_t off, size_t max)
{
	uint64_t word = pattern_word(id, step, off / 8);
	size_t skip = off % 8;
	size_t n = 8 - skip < max ? 8 - skip : max;

	memcpy(buf, (unsigned char *)&word + skip, n);
	return n;
}

void pattern_fill(unsigned char *buf, uint32_t id, uint32_t step, off_t off, size_t len)
{
	uint64_t at = (uint64_t)off;
	size_t done = 0;

	if (step > newest_step)
		newest_step = step;

	if (at % 8)
		done = fill_part(buf, id, step, at, len);
	for (; len - done >= 8; done += 8) {
		uint64_t word = pattern_word(id, step, (at + done) / 8);

		memcpy(buf + done, &word, 8);
	}
	if (done < len)
		fill_part(buf + done, id, step, at + done, len - done);
}

void pattern_explain(const unsigned char *word, off_t off, char *out, size_t out_size)
{
	uint64_t raw, x;
	uint32_t index, step;

	memcpy(&raw, word, sizeof(raw));
	x = unmix(raw);
	index = (uint32_t)x;
	step = (uint32_t)(x >> 40);
	if (raw == 0)
		snprintf(out, out_size, "zeros");
	else if (step > newest_step || !span_in_window((off_t)index * 8, 1).len)
		snprintf(out, out_size, "not one whole written word");
	else if (index == (uint32_t)(off / 8))
		snprintf(out, out_size, "written by step %u (file #%u)", step,
			 (unsigned int)(x >> 32 & 0xff));
	else
		snprintf(out, out_size, "written by step %u (file #%u) for offset %llu", step,
			 (unsigned int)(x >> 32 & 0xff), (unsigned long long)index * 8);
}
