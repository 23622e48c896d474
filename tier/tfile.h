// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tfile.h - a file as the tier sees it: SRC file, SSD object, block map, and the I/O that keeps
 * them one file.
 *
 * Life: tfile_get() finds or loads the one `struct tfile` per SRC file and takes a reference;
 * tfile_use()/tfile_unuse() bracket a time in which its descriptors are open (an open file holds
 * one use). Files with dirty data or SSD-owned attributes are in memory from mount to write-back,
 * so tfile_peek() (no catalog access) is enough wherever only these matter.
 *
 * Threads: all functions may be called from any thread at any time, except as said. Lock order:
 * DESIGN.md. What they may block on is named: "SSD" (sync of the SSD), "SRC" (slow disk).
 * Errors: -errno. Reads and writes never report a partial success as an error.
 */
#ifndef HYBRIDFS_TIER_TFILE_H
#define HYBRIDFS_TIER_TFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tier/src.h"

struct volume;
struct tfile;

/* ---- life ------------------------------------------------------------------------------- */
/*
 * The file of this key, with a reference. Looks into the catalog when it is not in memory; a file
 * that nobody tracks gets a fresh, empty tfile. `path` is a hint relative to SRC (borrowed, may be
 * NULL): what recovery, messages and filesystems without handles go by.
 */
int tfile_get(struct volume *v, const struct src_key *key, const char *path,
	      struct tfile **ret_file);
/* The same, but only if it is in memory; NULL otherwise. Never blocks on I/O. */
struct tfile *tfile_peek(struct volume *v, const struct src_key *key);
void tfile_ref(struct tfile *f);
void tfile_put(struct tfile *f); /* NULL is fine */
/* The path hint changed (rename, or link+unlink). Only stored; cheap. */
void tfile_set_path(struct tfile *f, const char *path);

/*
 * Open the descriptors (SRC, and the object if there is one), or count one more user. `writable`
 * asks for SRC read-write: -EROFS, -EACCES, -EPERM, -ETXTBSY as open(2) would say. Blocks on SRC's
 * open. Settles suspect extents after a crash (I6) before it returns.
 */
int tfile_use(struct tfile *f, bool writable);
/* The same, to write, of a file that has just been made: fd is open for both, and stays the
 * caller's. */
int tfile_use_made(struct tfile *f, int fd);
void tfile_unuse(struct tfile *f);
/* The SRC descriptor while in use (borrowed), for what the tier does not care about. */
int tfile_src_fd(struct tfile *f);

/* ---- attributes ------------------------------------------------------------------------- */
/*
 * SRC's stat as a user of the mount must see it. Use: `t = tfile_stat_begin(f)`, stat SRC, then
 * tfile_stat_end(f, t, &st): overlays size, blocks, mtime, ctime of what is newer on the SSD, and
 * notices a SRC that was changed behind our back (I9): clean copies are dropped then, dirty ones
 * are kept and the conflict reported. Returns true if cached pages must be invalidated.
 */
uint64_t tfile_stat_begin(struct tfile *f);
bool tfile_stat_end(struct tfile *f, uint64_t token, struct stat *st);

/*
 * Bracket every operation of ours that changes the ctime, mtime or size of the SRC file without
 * going through the functions below: chmod, chown, setxattr, link, unlink of one of several names,
 * rename. Between the two no other change of SRC by the tier is in flight. begin may block on the
 * SSD (a durable mark that SRC is being changed, only for files with durable dirty data) and on
 * SRC (waits for a write-back of this file in flight). Always call end after a successful begin.
 */
int tfile_change_begin(struct tfile *f);
void tfile_change_end(struct tfile *f);
/* utimensat on the file, tv as there (UTIME_NOW/UTIME_OMIT honoured). Brackets by itself. */
int tfile_set_times(struct tfile *f, const struct timespec tv[2]);
/* The last name is gone and nobody has it open: forget its data (I4: only once SRC's unlink is
 * durable). Call with st_nlink == 0 known. */
void tfile_dead(struct tfile *f);

/* ---- data: the file must be in use ------------------------------------------------------- */
/* A run of reads: where it ends, how far it has come. All zero: none yet. See policy.h. */
struct read_run {
	uint64_t next, bytes;
};

/* Per open file: recognises sequential runs. Zero it at open. One thread at a time is not
 * required; races only blur the heuristic. */
struct tier_stream {
	struct read_run read;
	uint64_t next_write, run_write, fsync_seq;
	uint64_t ahead; /* so far the disks have been asked for what comes next */
	uint64_t out_start, out_end; /* what of the run SRC was last told to write to its disk */
	bool atime_touched;
};

/* Like pread(2)/pwrite(2): short only at EOF (read) or on ENOSPC etc. after a part was written. */
ssize_t tfile_read(struct tfile *f, struct tier_stream *s, void *buf, size_t len, uint64_t off);
ssize_t tfile_write(struct tfile *f, struct tier_stream *s, const void *buf, size_t len,
		    uint64_t off);
int tfile_truncate(struct tfile *f, uint64_t size);
/* mode as fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]. */
int tfile_fallocate(struct tfile *f, int mode, uint64_t off, uint64_t len);
/* SEEK_DATA, SEEK_HOLE on the merged view; offset or -ENXIO, -EINVAL. */
off_t tfile_seek(struct tfile *f, off_t off, int whence);
/* Everything acknowledged so far survives a power cut when this returns 0 (I5). Blocks on the
 * SSD, and on SRC only for what is only there (new names, bypassed writes). */
int tfile_fsync(struct tfile *f, bool data_only);
/* A SRC-side change (create, chmod, rename...) was made that fsync must make durable. */
void tfile_src_unsynced(struct tfile *f);
/* Size as the mount shows it. */
uint64_t tfile_size(struct tfile *f);

/* ---- passthrough: the kernel reads and writes the object by itself, see pass.h ------------- */
enum pass_state { PASS_NONE, PASS_READ, PASS_WRITE };
/* Why an open that comes now would not get the object; NULL: it would. freely: to write, or with
 * the rules of the SSD's filesystem for O_DIRECT. */
const char *tfile_why_no_pass(struct tfile *f, bool freely);
/*
 * The object is given to one more open file, which is in use; to a writer only once that is
 * durable (blocks on the SSD). held: another open file has it, so there is no choice. Only while
 * no other open file is served by us. -EAGAIN: it is not to be given. tfile_pass_end() takes it
 * back.
 */
int tfile_pass_begin(struct tfile *f, bool write, bool held);
void tfile_pass_end(struct tfile *f);
/* An open file is served by us, though somebody may still have the object mapped: before it writes,
 * that is as durably allowed as to a program. */
int tfile_pass_served(struct tfile *f, bool write);
/* An O_PATH descriptor of the object, owned by the caller; between begin and end. */
int tfile_pass_fd(struct tfile *f);
/* Moves whenever anybody writes to it. */
int64_t tfile_pass_mtime(struct tfile *f);
/* Does any open file have it? *ret_writing: may anybody be writing to it, a mapping included. */
bool tfile_passing(struct tfile *f, bool *ret_writing);

/* ---- steering (bounded steps: see struct hfs_step in fs/proto.h for the idea) ------------- */
/* Each does about `budget` bytes from *next on (0 at first), sets *next to where to go on or
 * UINT64_MAX when done. The file need not be in use. */
int tfile_promote_step(struct tfile *f, uint64_t off, uint64_t len, uint64_t budget, uint64_t *next,
		       uint64_t *ret_bytes);
int tfile_demote_step(struct tfile *f, uint64_t budget, bool force, uint64_t *next,
		      uint64_t *ret_bytes);
int tfile_flush_step(struct tfile *f, uint64_t budget, bool force, uint64_t *next,
		     uint64_t *ret_bytes);
/* Durable when it returns. whole: every range, also bytes to come. */
int tfile_pin(struct tfile *f, bool whole, uint64_t off, uint64_t len);
int tfile_unpin(struct tfile *f, bool whole, uint64_t off, uint64_t len);
/* Queue for promotion in the background; drops silently when the queue is full (-EAGAIN). */
int tfile_promote_later(struct tfile *f, uint64_t off, uint64_t len);

struct tfile_figures {
	uint64_t size_bytes, ssd_bytes, dirty_bytes, pinned_bytes, heat;
	bool pinned, conflict;
};
void tfile_figures(struct tfile *f, struct tfile_figures *ret);

struct tfile_extent {
	uint64_t offset, length;
	int state; /* enum block_state */
	bool pinned, hole, queued;
	uint8_t heat;
};
/* Runs of equal (state, pinned, heat) from *start on, at most max rows; *start is where to go on or
 * UINT64_MAX. Absent runs are told apart from holes through SRC (may block). */
int tfile_extents(struct tfile *f, uint64_t *start, bool include_absent, struct tfile_extent *rows,
		  unsigned max, unsigned *ret_n);

#endif
