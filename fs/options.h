// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * options.h - the command line of a mount: operands, flags, and -o options (contract: README.md).
 *
 *   hybridfs SRC SSD MNT [-o OPTION,...] [-f] [-d] [-s]
 *   hybridfs SRC MNT -o ssd=SSD[,...]           what fstab and mount(8) can say
 *   mount.hybridfs SRC MNT [-sfnvrw] [-t TYPE] -o ssd=SSD[,...]   called by mount(8)
 *
 * A comma or backslash in a value is written with a backslash before it.
 */
#ifndef HYBRIDFS_FS_OPTIONS_H
#define HYBRIDFS_FS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tier/volume.h"

/* Exit codes, as mount(8)'s. */
enum mount_exit { MOUNT_OK = 0, MOUNT_USAGE = 1, MOUNT_SYSTEM = 2, MOUNT_FAILED = 32 };

#define NO_TIMEOUT_S (-1.0)

enum allow { ALLOW_DEFAULT, ALLOW_OTHER, ALLOW_ROOT };

struct mount_options {
	/* As given; options_resolve() makes them absolute. Owned. */
	char *src, *ssd, *mnt;
	struct volume_options volume;
	bool foreground, debug, single_thread;
	bool flush_on_unmount, passthrough;
	uint64_t stripe_bytes; /* 0 = ask the block device */
	bool read_only, nosuid, nodev;
	enum allow allow;
	bool set_uid, set_gid, set_umask; /* shown instead of SRC's */
	uid_t uid;
	gid_t gid;
	mode_t umask;
	/* NO_TIMEOUT_S: not given. */
	double attr_timeout_s, entry_timeout_s, negative_timeout_s;
	unsigned max_threads;
	bool low_given;	 /* low_watermark= was: it is not moved with the high one */
	bool fake;	 /* mount -f: check everything, mount nothing */
	char *fsname;	 /* owned, NULL = src */
	char *fuse_opts; /* owned, NULL or "noexec,sync,...": for libfuse as they are */
};

/* On failure one line (two for wrong usage) was written to stderr. 0 or an exit code. */
int options_parse(struct mount_options *o, int argc, char **argv);
/*
 * Make the paths absolute, without symbolic links, and refuse those that cannot work together
 * (one inside another). Changes nothing on disk. 0 or an exit code, with a line on stderr.
 */
int options_resolve(struct mount_options *o);
void options_release(struct mount_options *o);

#endif
