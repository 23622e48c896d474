// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * placement.h - where the bytes of one file are: the daemon's figures, and what is concluded from
 * them in the same way for text and JSON.
 */
#ifndef HYBRIDFS_FS_CMD_PLACEMENT_H
#define HYBRIDFS_FS_CMD_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/cmd/client.h"
#include "fs/cmd/filemap.h"

struct placement {
	struct hfs_file_stat f;
	uint64_t hdd_only_bytes; /* data that are not on the SSD; holes do not count */
	struct filemap map;	 /* filled only when asked for */
};

/* With the map it asks for every extent of the file, without it only where it has to. */
int placement_read(const struct client *c, bool want_map, struct placement *ret);

/*
 * "hdd": nothing of it is on the SSD (so is an empty file); "ssd": everything that is data is;
 * "mixed": part of it.
 */
const char *placement_tier(const struct placement *p);
/* All of it, or a range. */
bool placement_is_pinned(const struct placement *p);

#endif
