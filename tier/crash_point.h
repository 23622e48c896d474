// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * crash_point.h - named places at which a test build of the daemon can be made to die, as by kill
 * -9: between any two steps for which README.md says what a crash there leaves.
 *
 * Only where HFS_CRASH_POINTS is defined (`make CRASHPOINTS=1`); otherwise crash_point() is
 * nothing. The environment of such a daemon says where:
 *   HFS_CRASH_POINT=NAME[:N]  _exit(CRASH_POINT_STATUS) at the Nth passing [1]
 *   HFS_CRASH_POINT=list      print all names, with the phase in which they are passed, and end
 *   HFS_CRASH_ARMED=FILE      passings count while FILE exists [always]
 *   HFS_CRASH_MARK=FILE       append a line "C NAME" to FILE before dying; without HFS_CRASH_POINT:
 *                             at every point, ever more seldom, and go on. The thread waits while
 *                             it is written: tests/crash cuts the power there
 */
#ifndef HYBRIDFS_TIER_CRASH_POINT_H
#define HYBRIDFS_TIER_CRASH_POINT_H

#define CRASH_POINT_STATUS 99

/* run: at work. mount: after a crash, in volume_open() or in the background. umount: at the end. */
/* clang-format off */
#define CRASH_POINTS(X)		\
	X(COMMIT_COPIED, run)	/* rows copied; objects not synced */ \
	X(COMMIT_SYNCED, run)	/* objects synced; nothing appended */ \
	X(JOURNAL_SPLIT, run)	/* a batch of several frames: one that is not the last written */ \
	X(JOURNAL_WRITTEN, run)	/* all of a batch written, not flushed */ \
	X(JOURNAL_WRAPPED, run)	/* the same; its last frame is at the file's start again */ \
	X(JOURNAL_FLUSHED, run)	/* flushed; nobody knows */ \
	X(COMMIT_NOTED, run)	/* noted in memory */ \
	X(COMMIT_FULL, run)	/* the journal has no room for the batch */ \
	X(DELETES_APPENDED, run) /* rows of unlinked files deleted in the journal */ \
	X(CHECKPOINT_COPIED, run) /* rows and position copied, batches go on */ \
	X(CHECKPOINT_SYNCED, run) /* objects synced */ \
	X(CHECKPOINT_ROWS, run)	/* rows stored, the position not yet */ \
	X(CHECKPOINT_STORED, run) /* the transaction is over */ \
	X(CHECKPOINT_TOLD, run) /* the journal says that it is durable */ \
	X(CHECKPOINT_FREED, run) /* the journal before the position is free */ \
	X(WRITE_INTENT, run)	/* an intent is durable; nothing overwritten */ \
	X(WRITE_OBJECT, run)	/* the object is written; the map does not say so */ \
	X(WRITE_MARKED, run)	/* blocks are dirty in memory */ \
	X(WRITE_SRC_BEGUN, run)	/* a write that goes to SRC: bracket open, not written */ \
	X(WRITE_SRC_DONE, run)	/* written, bracket open */ \
	X(BUSY_MARKED, run)	/* the busy mark is durable, SRC is not changed */ \
	X(WB_EXTENT, run)	/* one more extent written to SRC */ \
	X(WB_TIMES, run)	/* SRC's mtime set, not synced */ \
	X(WB_SYNCED, run)	/* SRC synced, all still dirty */ \
	X(WB_CLEAN, run)	/* clean in memory, bracket open */ \
	X(PROMOTE_READ, run)	/* SRC read, nothing written */ \
	X(PROMOTE_OBJECT, run)	/* a run written to the object, still absent */ \
	X(PROMOTE_CLEAN, run)	/* clean in memory */ \
	X(EVICT_FORGOTTEN, run)	/* absent in memory */ \
	X(EVICT_COMMITTED, run)	/* absent durably, not released */ \
	X(EVICT_PUNCHED, run)	/* a piece released */ \
	X(EVICT_EMPTIED, run)	/* an object cut to nothing */ \
	X(BURY_SYNCED, run)	/* unlinked files: SRC synced, rows there */ \
	X(BURY_COMMITTED, run)	/* rows gone, objects there */ \
	X(BURY_REMOVED, run)	/* an object removed */ \
	X(CUT_SRC, run)		/* shorter, durably clean: SRC is cut, the map not */ \
	X(CUT_MAP, run)		/* the map is cut, nothing durable */ \
	X(CUT_COMMITTED, run)	/* cut and mark durable, SRC not cut */ \
	X(CUT_REDONE, run)	/* SRC cut, mark still durable */ \
	X(GROW_ZEROED, run)	/* longer: end zeroed, SRC as before */ \
	X(GROW_SRC, run)	/* SRC longer, size in memory not */ \
	X(PUNCH_SRC, run)	/* hole or zeros in SRC, the SSD as before */ \
	X(PUNCH_SYNCED, run)	/* SRC synced before dirty data is forgotten */ \
	X(PUNCH_FORGOTTEN, run)	/* the blocks are absent in memory */ \
	X(MOUNT_IN_USE, mount)	/* the file in-use is there, nothing was read */ \
	X(MOUNT_SYNCED, mount)	/* the SSD synced, the journal not read */ \
	X(REPLAY_LEARNED, mount) /* first pass over */ \
	X(JOURNAL_ZEROED, mount) /* a new journal without a header */ \
	X(REPLAY_CREATED, mount) /* the new journal is there, nothing names it */ \
	X(REPLAY_DATA, mount)	/* data of one entry written to an object */ \
	X(REPLAY_APPLIED, mount) /* all in objects and transaction, nothing synced */ \
	X(REPLAY_SYNCED, mount)	/* the SSD synced, the transaction open */ \
	X(REPLAY_NAMED, mount)	/* committed; the old journal is there */ \
	X(REPLAY_REMOVED, mount) /* the old journal removed */ \
	X(CUT_AT_MOUNT, mount)	/* a pending cut of SRC redone */ \
	X(MOUNT_RECOVERED, mount) /* dirty files are in memory */ \
	X(MOUNT_MARKED, mount)	/* marked as in use, ids reserved */ \
	X(REQUEST_TAKEN, mount) /* the mount is asked, and has not answered */ \
	X(SETTLE_EXTENT, mount)	/* one extent of a suspect group settled */ \
	X(SETTLE_LOADED, mount)	/* a map settled in memory */ \
	X(SETTLE_TAIL, mount)	/* the end of a file zeroed */ \
	X(SWEEP_ORPHAN, mount)	/* an object without a row removed */ \
	X(SWEEP_GONE, mount)	/* a row of a file that is gone found */ \
	X(UMOUNT_SETTLED, umount) /* stamps known, busy marks gone in memory */ \
	X(UMOUNT_BURIED, umount) /* unlinked files buried */ \
	X(UMOUNT_COMMITTED, umount) /* last checkpoint done */ \
	X(UMOUNT_RECLAIMED, umount) /* space released, not marked clean */ \
	X(UMOUNT_MARKED, umount) /* marked clean */
/* clang-format on */

#define CRASH_POINT_ENUM(name, phase) CP_##name,
enum crash_point { CRASH_POINTS(CRASH_POINT_ENUM) CP_COUNT };
#undef CRASH_POINT_ENUM

#ifdef HFS_CRASH_POINTS
void crash_point_pass(enum crash_point point);
#define crash_point(point) crash_point_pass(point)
#else
#define crash_point(point) ((void)0)
#endif

#endif
