// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * steps.h - long work of the daemon, driven in steps (HFS_IOC_STEP).
 */
#ifndef HYBRIDFS_FS_CMD_STEPS_H
#define HYBRIDFS_FS_CMD_STEPS_H

#include <stdint.h>

#include "fs/cmd/client.h"

/* Called after each step with the sum of done_bytes so far. */
typedef void (*steps_fn)(const struct hfs_step *s, uint64_t done_bytes, void *arg);

/*
 * Repeat the step until the daemon says that all is done. `s` holds action, flags and range; at
 * the end it is the last step's answer. -EINTR when interrupted() between two steps, -ETIMEDOUT
 * when nothing moved for STEPS_STALL_MS: neither bytes nor `next` nor `left`, or only -EAGAIN.
 */
#define STEPS_STALL_MS 60000
int steps_run(const struct client *c, struct hfs_step *s, steps_fn fn, void *arg);

#endif
