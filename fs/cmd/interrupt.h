// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * interrupt.h - Ctrl-C (and SIGTERM, SIGHUP) between two steps instead of in the middle of one.
 *
 * The first signal is only noted, and wakes a blocking call with EINTR; a second one ends the
 * program as usual, should a step never come back.
 */
#ifndef HYBRIDFS_FS_CMD_INTERRUPT_H
#define HYBRIDFS_FS_CMD_INTERRUPT_H

#include <stdbool.h>

void interrupt_catch(void);
bool interrupted(void);

#endif
