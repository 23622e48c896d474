// SPDX-License-Identifier: GPL-2.0-or-later
/* The decisions of policy.c that have a memory. */
#include "tests/unit/unit.h"

#include "tier/policy.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

static void reads_in_order_are_a_run(void)
{
	struct read_run r = { 0 };

	for (uint64_t off = 0; off < 8 * MIB; off += 128 * KIB)
		CHECK_EQ(policy_run_note(&r, off, 128 * KIB), off + 128 * KIB);
	CHECK_EQ(policy_run_note(&r, 100 * MIB, 4 * KIB), 4 * KIB);
}

/* Several threads answer the kernel's readahead: neighbours swap places. */
static void readahead_out_of_order_is_a_run(void)
{
	static const unsigned order[] = { 2, 0, 3, 1 };
	struct read_run r = { 0 };
	uint64_t run = 0;

	for (uint64_t base = 0; base < 8 * MIB; base += 512 * KIB)
		for (unsigned i = 0; i < 4; i++)
			run = policy_run_note(&r, base + order[i] * 128 * KIB, 128 * KIB);
	CHECK(run > 7 * MIB);
}

static void random_reads_are_no_run(void)
{
	struct read_run hot = { 0 }, wide = { 0 };
	uint64_t x = 88172645463325252u;

	for (int i = 0; i < 100000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		/* However long a small range is read. */
		CHECK(policy_run_note(&hot, x % 256 * 4 * KIB, 4 * KIB) <= MIB);
		CHECK(policy_run_note(&wide, x % 262144 * 4 * KIB, 4 * KIB) <= 2 * MIB);
	}
}

/* Nothing for a program that reads here and there; a few MiB at most. */
static void reading_ahead_grows_with_the_run(void)
{
	CHECK_EQ(policy_read_ahead(128 * KIB), 0);
	CHECK_EQ(policy_read_ahead(MIB), MIB);
	CHECK_EQ(policy_read_ahead(1024 * MIB), 4 * MIB);
}

UNIT_MAIN({ "reads_in_order_are_a_run", reads_in_order_are_a_run },
	  { "readahead_out_of_order_is_a_run", readahead_out_of_order_is_a_run },
	  { "random_reads_are_no_run", random_reads_are_no_run },
	  { "reading_ahead_grows_with_the_run", reading_ahead_grows_with_the_run })
