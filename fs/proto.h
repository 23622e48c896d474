// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * proto.h - how the commands talk to a running daemon: ioctls on a file or directory of the mount.
 *
 * The caller must be able to open the path (O_RDONLY), so the path's permissions decide; changes of
 * placement that cost others (demote, pin, unpin) further need the owner of the file or root, a
 * mount-wide flush needs root or the mount's owner: else EPERM. All structures are fixed-size,
 * little surprises: integers in host order, no pointers. A daemon of another protocol version
 * answers EPROTO to HFS_IOC_VERSION's `version` mismatch; unknown requests are ENOTTY, which is
 * also what any other filesystem says (the "not on a hybridfs mount" case; verify with VERSION's
 * magic).
 *
 * Long work is done in bounded steps: the command loops, passing `next` back, so a signal between
 * two steps stops it cleanly and progress can be drawn. Each step is synchronous and takes about
 * HFS_STEP_BYTES of copying.
 */
#ifndef HYBRIDFS_FS_PROTO_H
#define HYBRIDFS_FS_PROTO_H

#include <linux/ioctl.h>
#include <stdint.h>

#define HFS_PROTO_VERSION 1u
#define HFS_PROTO_MAGIC 0x48594246u /* "HYBF" */
#define HFS_STEP_BYTES (8u << 20)
#define HFS_PATH_MAX 1024

struct hfs_version {
	uint32_t magic, version; /* out */
	int32_t pid;		 /* out: the daemon */
	uint32_t pad;
};

/* Placement of one regular file (zeros for anything else, with `is_regular` 0). */
struct hfs_file_stat {
	uint64_t size_bytes, ssd_bytes, dirty_bytes, pinned_bytes;
	uint64_t heat;	       /* sum over the extents, see tier/policy.h */
	uint64_t ino;
	uint8_t is_regular, pinned; /* pinned: the whole file, or a directory's own pin */
	uint8_t passthrough, conflict;
	uint8_t pad[4];
	char why_not_passthrough[64]; /* "" when passthrough is 1 */
};

enum hfs_reason {
	HFS_WHY_DIRTY = 1,    /* on SSD: written, waits for write-back */
	HFS_WHY_PINNED,	      /* on SSD: pinned */
	HFS_WHY_HOT,	      /* on SSD: read often */
	HFS_WHY_WRITTEN,      /* on SSD: written lately, written back, not cold enough to drop */
	HFS_WHY_COLD,	      /* not on SSD: not read often enough */
	HFS_WHY_HOLE,	      /* not on SSD: nothing to store */
	HFS_WHY_NO_ROOM,      /* not on SSD: hot, but everything there is hotter, dirty or pinned */
	HFS_WHY_QUEUED,	      /* not on SSD: promotion is queued */
	HFS_WHY_MODE,	      /* not on SSD: this mode or this file excludes it */
};

struct hfs_extent {
	uint64_t offset, length; /* bytes; a run of equal blocks */
	uint8_t state;		 /* 0 absent, 1 clean, 2 dirty */
	uint8_t pinned, heat, reason /* enum hfs_reason */;
	uint8_t pad[4];
};

#define HFS_EXTENTS_PER_CALL 128
struct hfs_extents {
	uint64_t start; /* in: from this offset; out: where to go on, UINT64_MAX at the end */
	uint32_t count; /* out */
	uint32_t include_absent; /* in: 1 = rows for absent runs too */
	struct hfs_extent rows[HFS_EXTENTS_PER_CALL];
};

enum hfs_action {
	HFS_PROMOTE = 1, /* copy [offset, offset+length) to SSD */
	HFS_DEMOTE,	 /* write back what is dirty, drop the SSD copy */
	HFS_PIN,	 /* keep on SSD (only sets the mark; the command then promotes) */
	HFS_UNPIN,
	HFS_FLUSH,	 /* write dirty data back, durably */
	HFS_FLUSH_ALL,	 /* the same for the whole volume; any path of the mount will do */
};
#define HFS_NO_WAIT 1u	/* PROMOTE: only queue it */
#define HFS_WHOLE 2u	/* PIN, UNPIN: the whole file or directory, ignore offset and length */
#define HFS_FORCE 4u	/* FLUSH, DEMOTE of a conflicting file: the mount's version wins */

struct hfs_step {
	uint32_t action, flags;	 /* in */
	uint64_t offset, length; /* in: byte range of the file; length UINT64_MAX = to the end */
	uint64_t next;		 /* in: 0 first, then as returned; out: UINT64_MAX when done */
	uint64_t done_bytes;	 /* out: bytes copied by this step */
	uint64_t left_bytes;	 /* out: estimate of what is left, after this step */
};

struct hfs_status {
	uint32_t version; /* HFS_PROTO_VERSION */
	int32_t pid;
	char source[HFS_PATH_MAX], ssd[HFS_PATH_MAX], mountpoint[HFS_PATH_MAX];
	char mode[16], volume_id[40];
	uint8_t healthy, read_only, privileged, passthrough, recovering;
	uint8_t pad[3];
	uint64_t ssd_used_bytes, ssd_cap_bytes, dirty_bytes, pinned_bytes, tracked_files;
	uint64_t hits, misses, read_hit_bytes, read_miss_bytes;
	uint64_t hits_1m, misses_1m, hits_1h, misses_1h;
	uint64_t promotions, demotions; /* extents */
	uint64_t promoted_bytes, demoted_bytes, written_back_bytes, bypassed_bytes;
	uint64_t write_back_bytes_per_s; /* over the last minute */
	uint64_t promote_queue, dirty_files, conflicts, errors, lost_ranges;
	uint64_t passthrough_opens, passthrough_files;
	uint64_t uptime_s;
	char health_reason[256]; /* "" when healthy */
	char why_not_passthrough[64]; /* "" when passthrough is 1 */
};

#define HFS_IOC_VERSION _IOR(0xB5, 1, struct hfs_version)
#define HFS_IOC_FILE_STAT _IOR(0xB5, 2, struct hfs_file_stat)
#define HFS_IOC_EXTENTS _IOWR(0xB5, 3, struct hfs_extents)
#define HFS_IOC_STEP _IOWR(0xB5, 4, struct hfs_step)
#define HFS_IOC_STATUS _IOR(0xB5, 5, struct hfs_status)

#endif
