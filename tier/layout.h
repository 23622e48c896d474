// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * layout.h - the volume's directory on the SSD: SSD/volumes/<volume-id>/{lock, catalog.db,
 * in-use,
 * journal.0, journal.1, reserve, objects/}.
 *
 * The volume id is a hash of SRC's filesystem UUID and the identity of SRC's root directory, so the
 * same tree finds its volume again wherever it is mounted. All functions return -errno and put one
 * line for the user into `error`.
 */
#ifndef HYBRIDFS_TIER_LAYOUT_H
#define HYBRIDFS_TIER_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "tier/src.h"

struct layout {
	int dir_fd, objects_fd, lock_fd; /* owned until handed over */
	char id[33];
	char *path; /* owned; of the volume's directory */
};

int layout_volume_id(const struct src *src, char ret_id[33]);
/* Create what is missing, take the lock (I10), check that the filesystem can do what we need. */
int layout_open(const struct src *src, const char *ssd_path, struct layout *ret_layout, char *error,
		size_t error_size);
/*
 * The same for a volume that exists already: nothing is created. With `write`, the lock file is
 * (re)made and says who has it; without, not a byte on the SSD changes. lock_fd stays -1 when there
 * is no lock file to take, objects_fd when there is no such directory.
 * -ENOENT: the SSD has no volume of this SRC.
 */
int layout_open_existing(const struct src *src, const char *ssd_path, bool write,
			 struct layout *ret_layout, char *error, size_t error_size);
void layout_release(struct layout *l);
/*
 * The file `in-use` is there, durably, from before a mount's first change until after its last one.
 * What the catalog says about a clean end counts only without it: of a catalog whose WAL was lost
 * an old state comes back, with an old clean mark.
 */
int layout_mark(int dir_fd);
int layout_unmark(int dir_fd);
bool layout_is_marked(int dir_fd);
/* Is there an object? -errno. */
int layout_has_objects(int objects_fd);

#endif
