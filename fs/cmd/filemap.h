// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * filemap.h - the drawn map of a file: one line in which each cell stands for an equal part of it.
 *
 *			   UTF-8  ASCII
 *	all on the SSD	     █      #
 *	partly	             ▄      +
 *	on the HDD only	     ·      .
 *	some of it dirty     ▓      *
 *	a hole	            blank  blank
 *
 * Pure; a filemap is plain storage of the caller.
 */
#ifndef HYBRIDFS_FS_CMD_FILEMAP_H
#define HYBRIDFS_FS_CMD_FILEMAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FILEMAP_CELLS 64
#define FILEMAP_BLOCK 4096 /* the granularity of the tier: no cell is smaller */

enum filemap_kind { FILEMAP_HDD, FILEMAP_HOLE, FILEMAP_CLEAN, FILEMAP_DIRTY, FILEMAP_KINDS };

struct filemap {
	unsigned n_cells; /* 0 for an empty file */
	uint64_t cell_bytes;
	uint64_t bytes[FILEMAP_CELLS][FILEMAP_KINDS];
};

void filemap_init(struct filemap *m, uint64_t file_size_bytes);
/* [offset, offset + length) is of this kind; what lies beyond the file is ignored. */
void filemap_add(struct filemap *m, uint64_t offset, uint64_t length, enum filemap_kind kind);
void filemap_draw(const struct filemap *m, bool utf8, FILE *f);
/* One line that explains the characters. */
void filemap_legend(bool utf8, FILE *f);

#endif
