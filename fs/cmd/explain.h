// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * explain.h - why a step failed, in words that say what to do.
 */
#ifndef HYBRIDFS_FS_CMD_EXPLAIN_H
#define HYBRIDFS_FS_CMD_EXPLAIN_H

#include "fs/cmd/client.h"
#include "fs/cmd/format.h"

/*
 * A text, to free, for the -errno `err` of `action` on the open file `c` (asks the daemon for the
 * numbers). Always has the strerror of the cause in it. NULL without memory.
 */
char *explain_step(const struct client *c, enum hfs_action action, const struct byte_range *r,
		   int err);

#endif
