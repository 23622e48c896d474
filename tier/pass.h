// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pass.h - files whose object the kernel reads and writes by itself (passthrough), inside tier/.
 *
 * While f->pass is not PASS_NONE the object is the file: its bytes [0, st_size) are the content,
 * whatever the map says (P1 in README.md). PASS_READ: nobody writes to it but us. PASS_WRITE:
 * programs do, and we are not told; every group has a durable intent, and an extent without dirty
 * blocks is clean only as far as its checksum still fits. The state outlives the last close while
 * somebody has the object mapped, or open from before a crash; a lease tells (pass_others()).
 */
#ifndef HYBRIDFS_TIER_PASS_H
#define HYBRIDFS_TIER_PASS_H

#include "tier/internal.h"

/* ---- pass.c: states ----------------------------------------------------------------------- */
/* Has anybody but us this object open or mapped? `fd` is our only open file of it, read-write. */
bool pass_others(int fd);
/* Mounting: first, and with the catalog: files that programs could write to when we died. */
int pass_init(struct volume *v);
int pass_mount(struct volume *v);
/* For check: could programs write to the object when the last daemon ended? */
bool pass_is_marked(int volume_fd, uint64_t id);
/* The object was opened for the first time since the file came into memory. obj_mutex held. */
void pass_opened_locked(struct tfile *f);
/* Below the volume's directory: an empty file for each object that programs may be writing to. */
#define PASS_MARKS_DIR "passthrough"
int pass_set_mark(const struct volume *v, uint64_t id, bool on);
/* For pass_step.c. pass_mutex held, but for pass_scan_from_start_locked(). */
void pass_begin_writing_locked(struct tfile *f, int64_t ns);
void pass_try_finish(struct tfile *f);
void pass_leave(struct tfile *f);
void pass_scan_from_start_locked(struct tfile *f);
/* May space of the object be released now? */
bool pass_may_punch(struct tfile *f);
/* After a crash, map just loaded: is it one of those? True: there is nothing to settle. */
bool pass_recover(struct tfile *f, int obj_fd);

/* ---- pass_step.c -------------------------------------------------------------------------- */
int pass_step(struct volume *v, int64_t now_ns);
/* For a flush of everything: > 0 more to do. */
int pass_flush_step(struct volume *v);
/* For the flush of one file: false when it may go on with what is known to be dirty. In *next: it
 * is being compared; it has been, and the rest is the number of rounds. */
#define PASS_FLUSHING (1ull << 63)
#define PASS_FLUSHED  (1ull << 62)
bool pass_flush_file(struct tfile *f, uint64_t budget, uint64_t *next, int *ret_r);
/* The object is to be ours alone: 0, it is; > 0: *next says where the flush goes on, come again;
 * -EBUSY: a program has it. */
int pass_let_go(struct tfile *f, uint64_t budget, uint64_t *next);
/* Before the volume is closed; settle_them: not when mounting failed. True: somebody may go on
 * writing, so that it is not clean. */
bool pass_close(struct volume *v, bool settle_them);
bool pass_all_present_locked(const struct tfile *f);

/* ---- pass_io.c: requests that come to us nevertheless; the file is in a pass state ---------- */
bool pass_on(struct tfile *f); /* any of the two */
bool pass_writing(struct tfile *f);
/* Size and mtime from the object, new data as dirty. all: holes are looked at too. False: that is
 * not all there is; the object is being cut, or could not be looked at. */
bool pass_adopt(struct tfile *f, bool all);
ssize_t pass_read(struct tfile *f, void *buf, size_t len, uint64_t off);
/* -EAGAIN: the state has just ended. */
ssize_t pass_write(struct tfile *f, const void *buf, size_t len, uint64_t off);
off_t pass_seek(struct tfile *f, off_t off, int whence);
int pass_fsync(struct tfile *f, bool data_only);
int pass_set_mtime(struct tfile *f, int64_t ns);
/* Around a change of the object's size or holes: adoption in between proves nothing. */
void pass_cut_begin(struct tfile *f);
void pass_cut_end(struct tfile *f);
/* The object follows what SRC and the map have done already; everything reserved. */
int pass_truncated(struct tfile *f, uint64_t size);
int pass_fallocated(struct tfile *f, int mode, uint64_t off, uint64_t len);

/* ---- pass_scan.c: what has changed ---------------------------------------------------------- */
/* Compare about `budget` bytes from f->pass_scan on; UINT64_MAX there: done. */
int pass_scan_some(struct tfile *f, uint64_t budget);
/* Clean blocks for which no checksum speaks, or all of them, are dirty. */
void pass_distrust_locked(struct tfile *f, bool all);
void pass_distrust_extent_locked(struct tfile *f, uint64_t base);

#endif
