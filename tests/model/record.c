// SPDX-License-Identifier: GPL-2.0-or-later
/* Self-describing records; see stress.h. */
#include "stress.h"

#include <string.h>

#define MAGIC	  0x7365727469666268u
#define HEAD	  5 /* words before the body */
#define WORDS	  (RECORD / 8)
#define MIXED_MAX 256 /* versions to try for a mixture */

enum { W_MAGIC, W_OFFSET, W_VERSION, W_WORDS, W_SUM };

static uint64_t checksum(const uint64_t *word)
{
	uint64_t sum = 0;

	for (int i = 0; i < WORDS; i++)
		if (i != W_SUM)
			sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15u + (uint64_t)i;
	return sum;
}

void record_make(unsigned char *rec, uint64_t offset, uint64_t version)
{
	struct rng r = { .state = offset * 0x9e3779b97f4a7c15u ^ version };
	uint64_t word[WORDS];

	memset(word, 0, sizeof(word));
	if (version) {
		word[W_MAGIC] = MAGIC;
		word[W_OFFSET] = offset;
		word[W_VERSION] = version;
		word[W_WORDS] = WORDS;
		for (int i = HEAD; i < WORDS; i++)
			word[i] = rng_next(&r);
		word[W_SUM] = checksum(word);
	}
	memcpy(rec, word, RECORD);
}

/* Whether it is a whole record, and of which version. */
static bool is_whole(const unsigned char *rec, uint64_t offset, uint64_t *ret_version)
{
	static const unsigned char zeros[RECORD];
	uint64_t word[WORDS];

	memcpy(word, rec, RECORD);
	*ret_version = word[W_VERSION];
	if (memcmp(rec, zeros, RECORD) == 0)
		return true;
	return word[W_MAGIC] == MAGIC && word[W_OFFSET] == offset && word[W_SUM] == checksum(word);
}

static bool is_mixture(const unsigned char *rec, uint64_t offset, uint64_t min, uint64_t max)
{
	unsigned char seen[RECORD] = { 0 }, one[RECORD];

	if (max - min > MIXED_MAX)
		min = max - MIXED_MAX;
	for (uint64_t v = min; v <= max; v++) {
		record_make(one, offset, v);
		for (int i = 0; i < RECORD; i++)
			seen[i] |= one[i] == rec[i];
	}
	return memchr(seen, 0, RECORD) == NULL;
}

const char *record_check(const unsigned char *rec, uint64_t offset, uint64_t min, uint64_t max,
			 bool *ret_mixed)
{
	uint64_t version;

	*ret_mixed = false;
	if (is_whole(rec, offset, &version)) {
		if (version < min)
			return "an older version than one that was complete before the read";
		return version > max ? "a version that was not even started" : NULL;
	}
	if (min == max)
		return "not a whole record, though nobody was writing it";
	*ret_mixed = true;
	return is_mixture(rec, offset, min, max) ? NULL :
						   "a mixture with bytes of no current version";
}

void record_describe(const unsigned char *rec, char *out, size_t out_size)
{
	uint64_t word[WORDS], version;
	size_t zero_blocks = 0;

	memcpy(word, rec, RECORD);
	for (int i = 0; i < WORDS; i++)
		zero_blocks += word[i] == 0;
	if (word[W_MAGIC] == MAGIC)
		snprintf(out, out_size,
			 "header: offset %llu version %llu; checksum %s; %zu of %d words zero",
			 (unsigned long long)word[W_OFFSET], (unsigned long long)word[W_VERSION],
			 is_whole(rec, word[W_OFFSET], &version) ? "right" : "wrong", zero_blocks,
			 WORDS);
	else
		snprintf(out, out_size, "no header (%016llx); %zu of %d words zero",
			 (unsigned long long)word[W_MAGIC], zero_blocks, WORDS);
}
