// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stat_text.h - `hybridfs stat` for people: a block for one file, a table for several.
 */
#ifndef HYBRIDFS_FS_CMD_STAT_TEXT_H
#define HYBRIDFS_FS_CMD_STAT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/cmd/placement.h"

struct stat_totals {
	uint64_t files, size_bytes, ssd_bytes, dirty_bytes, pinned_bytes;
};

/* A block of `label  value` lines with the map. */
void stat_text_block(const char *path, const struct placement *p);
void stat_text_legend(void);
/* The rows of -v: every run with its reason. Asks the daemon; 0 or -errno. */
int stat_text_extents(const struct client *c);

void stat_text_table_head(void);
void stat_text_table_row(const char *path, const struct placement *p);
void stat_text_pinned_dir(const char *path, bool in_table);
void stat_text_totals(const struct stat_totals *t, bool in_table);

#endif
