// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.h - the state of mounts, collected once and printed in one of three forms.
 */
#ifndef HYBRIDFS_FS_CMD_STATUS_H
#define HYBRIDFS_FS_CMD_STATUS_H

#include <stddef.h>

#include "fs/cmd/client.h"

struct mount_state {
	char *mountpoint, *source; /* owned; as the kernel or the user names them */
	int err; /* 0, or the -errno that asking the daemon gave: s is zero then */
	struct hfs_status s;
};

void status_print_text(const struct mount_state *m);
void status_print_json(const struct mount_state *mounts, size_t n);
void status_print_prometheus(const struct mount_state *mounts, size_t n);

#endif
