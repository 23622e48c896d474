// SPDX-License-Identifier: GPL-2.0-or-later
/* journal_internal.h - shared by journal.c, which writes, and journal_read.c, which reads. */
#ifndef HYBRIDFS_TIER_JOURNAL_INTERNAL_H
#define HYBRIDFS_TIER_JOURNAL_INTERNAL_H

#include <stdatomic.h>

#include "db/base.h"
#include "tier/internal.h"
#include "tier/journal.h"

#define JBLOCK 4096u
#define FILE_MAGIC "HFSJRNL1"
#define FRAME_MAGIC 0x4d524648u /* "HFRM" */
#define FRAME_HEADER 56u
#define FRAME_MORE 0x80000000u /* in the field of the payload bytes: the batch goes on */
#define ENTRY_HEADER 8u
#define VERSION 2u
#define PATH_BYTES_MAX 4096u

struct journal {
	int fd; /* owned */
	uint64_t size;
	struct journal_pos head, tail;
	_Atomic uint64_t used; /* bytes between tail and head */
	char *buf;	       /* owned; one frame, header included */
	uint32_t fill;	       /* payload bytes in buf */
	uint64_t batch_seq; /* of the first frame of this batch */
	int batch_error;
	bool broken;
	bool wrapped; /* the last frame went to the start of the file */
};

/* ---- little-endian ------------------------------------------------------------------------ */
static inline void put_le(void *p, uint64_t n, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		((uint8_t *)p)[i] = (uint8_t)(n >> (8 * i));
}

static inline uint64_t get_le(const void *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint64_t)((const uint8_t *)p)[i] << (8 * i);
	return n;
}

/* Bytes a frame with that payload occupies. */
static inline uint64_t frame_bytes(uint64_t payload)
{
	return round_up_u64(FRAME_HEADER + payload, JBLOCK);
}

void journal_slot_name(unsigned slot, char ret[16]);

#endif
