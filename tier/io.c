// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading and writing a file whose blocks are partly on the SSD.
 *
 * A request reserves its byte range (shared for reads, exclusive and block-aligned for writes), so
 * the states it finds in the block map stay true until it has done its I/O: eviction and promotion
 * change a range only under an exclusive reservation. Blocks become present only after the data is
 * in the object. README.md has the steps and their crash cases.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "tier/pass.h"

/* ---- whole buffers ------------------------------------------------------------------------ */
int read_full(int fd, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neg_errno();
		if (n == 0) {
			memset((char *)buf + done, 0, len - done);
			break;
		}
		done += (size_t)n;
	}
	return 0;
}

int read_object(struct tfile *f, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(f->obj_fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neg_errno();
		/* It may end where the file does: what is behind reads as zero. */
		if (n == 0 && off + done < tfile_size(f))
			return -EIO;
		if (n == 0) {
			memset((char *)buf + done, 0, len - done);
			break;
		}
		done += (size_t)n;
	}
	return 0;
}

int write_full(int fd, const void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neg_errno();
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* ---- heat --------------------------------------------------------------------------------- */
static void touch_resident_locked(struct tfile *f, uint64_t off)
{
	struct map_group *g = map_find(&f->map, off / GROUP_BYTES);
	unsigned w = (off % GROUP_BYTES) / EXTENT_BYTES;

	if (g)
		g->heat[w] = policy_heat_touch(g->heat[w]);
}

/* Count the touch of an absent extent; ask for its promotion when it has earned it. */
static void touch_absent(struct tfile *f, uint64_t off, uint64_t run_bytes)
{
	struct volume *v = f->v;
	uint64_t extent = off / EXTENT_BYTES;

	if (v->opt.seq_cutoff_bytes && run_bytes > v->opt.seq_cutoff_bytes)
		return;
	unsigned touches = ghost_touch(&v->ghost, f->hash, extent);

	if (policy_admit(&v->opt, touches, run_bytes))
		(void)tfile_promote_later(f, extent * EXTENT_BYTES, EXTENT_BYTES);
}

static uint64_t next_extent(uint64_t off)
{
	return (off / EXTENT_BYTES + 1) * EXTENT_BYTES;
}

static void account_read(struct tfile *f, uint64_t hit, uint64_t miss)
{
	struct volume *v = f->v;

	atomic_fetch_add(miss ? &v->misses : &v->hits, 1);
	atomic_fetch_add(&v->read_hit_bytes, hit);
	atomic_fetch_add(&v->read_miss_bytes, miss);
}

/* ---- read --------------------------------------------------------------------------------- */
static void about_to_wait(struct tfile *f)
{
	if (f->v->env.waits)
		f->v->env.waits(f->v->env.ctx);
}

/* What of it is in memory, so that nobody has to be told before. */
static size_t read_cached(struct tfile *f, int fd, void *buf, size_t len, uint64_t off)
{
	struct iovec part = { .iov_base = buf, .iov_len = len };
	ssize_t n = preadv2(fd, &part, 1, (off_t)off, RWF_NOWAIT);
	size_t have = n > 0 ? (size_t)n : 0;

	if (have < len)
		about_to_wait(f);
	return have;
}

static int read_ssd(struct tfile *f, struct map_run run, void *buf)
{
	size_t len = run.end - run.start;
	size_t have = f->obj_fd < 0 ? 0 : read_cached(f, f->obj_fd, buf, len, run.start);
	int r = f->obj_fd < 0 ? -EIO
			      : read_object(f, (char *)buf + have, len - have, run.start + have);

	if (r == 0)
		return 0;
	volume_error(f->v, f, r, "cannot read the SSD copy");
	if (run.state == BLOCK_CLEAN) /* I8: SRC has the same bytes */
		return read_full(f->src_fd, buf, len, run.start);
	atomic_fetch_add(&f->v->lost_ranges, 1);
	return -EIO;
}

static int read_src(struct tfile *f, char *buf, size_t len, uint64_t off)
{
	size_t have = read_cached(f, f->src_fd, buf, len, off);

	return read_full(f->src_fd, buf + have, len - have, off + have);
}

static int read_run(struct tfile *f, struct map_run run, void *buf)
{
	if (run.state != BLOCK_ABSENT)
		return read_ssd(f, run, buf);
	return read_src(f, buf, run.end - run.start, run.start);
}

/* The range is reserved; `end` is within the file. */
static ssize_t read_runs(struct tfile *f, struct tier_stream *s, char *buf, uint64_t off,
			 uint64_t end)
{
	uint64_t hit = 0, miss = 0, at = off, run_bytes = policy_run_note(&s->read, off, end - off);
	int r = 0;

	stream_read_ahead(f, s, run_bytes, end);
	while (at < end) {
		pthread_mutex_lock(&f->lock);
		struct map_run run = map_run_at(&f->map, at, end);

		if (run.state != BLOCK_ABSENT)
			touch_resident_locked(f, at);
		pthread_mutex_unlock(&f->lock);
		r = read_run(f, run, buf + (at - off));
		if (r < 0)
			break;
		*(run.state == BLOCK_ABSENT ? &miss : &hit) += run.end - run.start;
		if (run.state == BLOCK_ABSENT)
			for (uint64_t e = at; e < run.end; e = next_extent(e))
				touch_absent(f, e, run_bytes);
		at = run.end;
	}
	account_read(f, hit, miss);
	/* All or an error: a short read would be taken for the end of the file. */
	return r < 0 ? r : (ssize_t)(at - off);
}

/*
 * Our descriptor of SRC does not move its atime: completing a block or promoting it is nobody's
 * read. For a user's read one that does is opened for a moment: a read at EOF costs no I/O and
 * makes SRC's filesystem apply its own rule. Once per open file; failing is no failure of the read.
 */
static void touch_atime(struct tfile *f, struct tier_stream *s, uint64_t size)
{
	char name[32], c;

	if (s->atime_touched)
		return;
	s->atime_touched = true;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", f->src_fd);
	_cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		(void)!pread(fd, &c, 1, (off_t)(size + GROUP_BYTES));
}

ssize_t tfile_read(struct tfile *f, struct tier_stream *s, void *buf, size_t len, uint64_t off)
{
	struct range range;
	ssize_t n = 0;

	if (len == 0)
		return 0;
	range_lock(&f->ranges, &range, off, off + len, false);
	uint64_t size = tfile_size(f), end = min_u64(off + len, size);

	if (pass_on(f)) {
		n = pass_read(f, buf, len, off);
	} else if (off < end) {
		touch_atime(f, s, size);
		n = read_runs(f, s, buf, off, end);
	}
	range_unlock(&f->ranges, &range);
	return n;
}

/* ---- write: to the SSD -------------------------------------------------------------------- */
/*
 * One block that the request covers only in part, [from, to) of it, and that is not on the SSD:
 * complete it from SRC (zeros past SRC's end). The range is reserved exclusively, so this is the
 * only writer; readers of this one block wait for it.
 */
static int write_partial_block(struct tfile *f, const char *data, uint64_t from, uint64_t to)
{
	char block[BLOCK_BYTES];
	uint64_t base = round_down_u64(from, BLOCK_BYTES);
	/* SRC may be longer than the file for a moment (a cut that waits for write-back). */
	uint64_t size = tfile_size(f);
	int r = size > base ? read_src(f, block, sizeof(block), base) : 0;

	if (r < 0)
		return r;
	if (size < base + BLOCK_BYTES) {
		uint64_t keep = size > base ? size - base : 0;

		memset(block + keep, 0, BLOCK_BYTES - keep);
	}
	memcpy(block + (from - base), data, to - from);
	return write_full(f->obj_fd, block, sizeof(block), base);
}

/* Data of [start, end) into absent blocks: whole blocks as they are, the edges completed. */
static int write_absent(struct tfile *f, const char *data, uint64_t start, uint64_t end)
{
	uint64_t at = start;
	int r = 0;

	while (r == 0 && at < end) {
		uint64_t base = round_down_u64(at, BLOCK_BYTES);
		uint64_t whole_end = round_down_u64(end, BLOCK_BYTES);
		uint64_t to;

		if (at == base && whole_end > at) {
			to = whole_end;
			r = write_full(f->obj_fd, data + (at - start), to - at, at);
		} else {
			to = min_u64(end, base + BLOCK_BYTES);
			r = write_partial_block(f, data + (at - start), at, to);
		}
		at = to;
	}
	return r;
}

static void end_ssd_write(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->writes_inflight--;
	pthread_mutex_unlock(&f->lock);
}

/*
 * Make it durable that clean blocks of this range may change (I2), and count the write in, which
 * keeps the intents from being dropped again before it is done.
 */
static int begin_ssd_write(struct tfile *f, uint64_t start, uint64_t end)
{
	bool needs = true;
	int r = 0;

	pthread_mutex_lock(&f->lock);
	f->writes_inflight++;
	pthread_mutex_unlock(&f->lock);
	while (r == 0 && needs) {
		pthread_mutex_lock(&f->lock);
		needs = !SABOTAGED(2) && map_needs_intent(&f->map, start, end);
		if (needs) {
			map_set_intent(&f->map, start, end);
			tfile_changed_locked(f);
		} else {
			map_begin_write(&f->map, start, end);
		}
		pthread_mutex_unlock(&f->lock);
		if (needs) {
			about_to_wait(f);
			r = commit_file(f);
			crash_point(CP_WRITE_INTENT);
		}
	}
	if (r < 0)
		end_ssd_write(f);
	return r;
}

/*
 * The time of a write is what the kernel has just given the object: its clock for time-stamps is
 * one for all filesystems, finer than CLOCK_REALTIME_COARSE when somebody looks, and never behind
 * what it has shown already. A filesystem with coarse stamps on the SSD is not asked.
 */
static struct timespec time_of_write(struct tfile *f)
{
	struct timespec wall = volume_wall(f->v);
	struct stat st;

	if (fstat(f->obj_fd, &st) < 0)
		return wall;
	return timespec_ns(st.st_mtim) < timespec_ns(wall) - CLOCK_SKEW_NS ? wall : st.st_mtim;
}

static int mark_written(struct tfile *f, uint64_t start, uint64_t end)
{
	struct timespec now = time_of_write(f);

	pthread_mutex_lock(&f->lock);
	if (end > f->size) {
		f->size = end;
		f->data_seq++;
	}
	tfile_set_mtime_locked(f);
	f->mtime = f->ctime = now;
	int r = tfile_written_locked(f, round_down_u64(start, BLOCK_BYTES),
				     round_up_u64(end, BLOCK_BYTES), BLOCK_DIRTY);

	for (uint64_t e = start; r == 0 && e < end; e = next_extent(e))
		touch_resident_locked(f, e);
	pthread_mutex_unlock(&f->lock);
	return r;
}

static int write_ssd(struct tfile *f, struct map_run run, const char *data)
{
	int r = tfile_make_object(f);

	if (r == 0)
		r = begin_ssd_write(f, run.start, run.end);
	if (r < 0)
		return r;
	r = run.state == BLOCK_ABSENT
		    ? write_absent(f, data, run.start, run.end)
		    : write_full(f->obj_fd, data, run.end - run.start, run.start);
	crash_point(CP_WRITE_OBJECT);
	if (r == 0)
		r = mark_written(f, run.start, run.end);
	crash_point(CP_WRITE_MARKED);
	end_ssd_write(f);
	return r;
}

/* ---- write: to SRC ------------------------------------------------------------------------ */
/* New data may reach SRC's disk without the new time-stamp, and then nothing would tell the copy
 * from a good one. The SSD failing in that is no reason to refuse the write. */
void forget_durably(struct tfile *f, uint64_t start, uint64_t end)
{
	bool removal = false;

	pthread_mutex_lock(&f->lock);
	for (uint64_t i = start / GROUP_BYTES; i <= (end - 1) / GROUP_BYTES; i++) {
		const struct map_group *g = map_find(&f->map, i);

		removal |= g && g->removal;
	}
	pthread_mutex_unlock(&f->lock);
	if (!removal || commit_file(f) == 0)
		return; /* a failure was logged and counted there */
	pthread_mutex_lock(&f->lock);
	stamps_distrust_locked(f);
	pthread_mutex_unlock(&f->lock);
}

static int write_src(struct tfile *f, uint64_t start, uint64_t end, const char *data)
{
	forget_durably(f, start, end);
	int r = src_change_begin(f);

	if (r < 0)
		return r;
	/* While the SSD owns the times it goes on doing so, from before the data is there: a
	 * write-back that is just setting the older times will notice. */
	pthread_mutex_lock(&f->lock);
	if (f->attr_owned)
		tfile_set_mtime_locked(f);
	pthread_mutex_unlock(&f->lock);
	crash_point(CP_WRITE_SRC_BEGUN);
	r = write_full(f->src_fd, data, end - start, start);
	crash_point(CP_WRITE_SRC_DONE);
	pthread_mutex_lock(&f->lock);
	if (r == 0) {
		if (end > f->size) {
			f->size = end;
			f->data_seq++;
		}
		f->ctime_follow = true;
		if (f->attr_owned)
			tfile_changed_locked(f);
	}
	pthread_mutex_unlock(&f->lock);
	src_change_end(f);
	atomic_fetch_add(&f->v->bypassed_bytes, end - start);
	return r;
}

/* SRC's data and size, durably; what else waits for a sync stays marked as unsynced. */
int sync_src_data(struct tfile *f)
{
	if (fdatasync(f->src_fd) == 0)
		return 0;
	int r = neg_errno();

	tfile_sync_error(f, r);
	return r;
}

/*
 * The SSD cannot take new data for blocks it holds (full copy-on-write filesystem, failing
 * device): bring them to SRC with the new data in place and forget the SSD's copy. Block by block,
 * so that a failure leaves each block either on the one side or on the other. A write-back under
 * way may be about to write the older data of these blocks: with src_mutex there is none.
 */
#define NEEDS_SRC_MUTEX 1

static int forget(struct tfile *f, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	int r = tfile_map_set_locked(f, round_down_u64(start, BLOCK_BYTES),
				     round_up_u64(end, BLOCK_BYTES), BLOCK_ABSENT);

	pthread_mutex_unlock(&f->lock);
	return r;
}

static int write_around(struct tfile *f, struct map_run run, const char *data, bool have_src)
{
	char block[BLOCK_BYTES];
	int r = 0;

	/* SRC has all of what is absent or clean; a clean copy may be half overwritten by now. */
	if (run.state == BLOCK_CLEAN)
		r = forget(f, run.start, run.end);
	if (r < 0 || run.state != BLOCK_DIRTY)
		return r < 0 ? r : write_src(f, run.start, run.end, data);
	if (!have_src)
		return NEEDS_SRC_MUTEX;
	/* The durable state may call them clean, under an intent. */
	stamps_reshape_begin(f);
	for (uint64_t at = run.start; r == 0 && at < run.end;) {
		uint64_t base = round_down_u64(at, BLOCK_BYTES);
		uint64_t to = min_u64(run.end, base + BLOCK_BYTES);
		struct map_run one = { base, base + BLOCK_BYTES, run.state };

		r = read_ssd(f, one, block);
		if (r < 0)
			break;
		memcpy(block + (at - base), data + (at - run.start), to - at);
		uint64_t block_end = min_u64(base + BLOCK_BYTES, max_u64(tfile_size(f), to));

		r = write_src(f, base, block_end, block);
		/* Dirty data may leave the catalog only for something as durable. */
		if (r == 0 && run.state == BLOCK_DIRTY)
			r = sync_src_data(f);
		if (r == 0)
			r = forget(f, base, base + BLOCK_BYTES);
		at = to;
	}
	stamps_reshape_end(f);
	return r;
}

/* ---- write: which way --------------------------------------------------------------------- */
/* With less than this beyond what is dirty, SRC is asked at each write. */
#define TIGHT_BYTES (512ull << 20)

static uint64_t src_free(struct volume *v)
{
	int64_t now = volume_now(v);
	struct statvfs vfs;

	/* At most a few times a second; in between the dirty counter, part of the decision,
	 * moves on at once. */
	bool tight = atomic_load(&v->src_free_bytes) <
		     atomic_load(&v->dirty_blocks) * BLOCK_BYTES + TIGHT_BYTES;

	if (tight || now - atomic_load(&v->src_free_at_ns) > SECOND_NS / 5) {
		atomic_store(&v->src_free_at_ns, now);
		if (fstatvfs(v->src->root_fd, &vfs) == 0)
			atomic_store(&v->src_free_bytes, (uint64_t)vfs.f_bavail * vfs.f_frsize);
	}
	return atomic_load(&v->src_free_bytes);
}

/*
 * Dirty data was accepted because SRC had room for it (I7): a write that goes to SRC itself, past
 * the SSD, must not use that room up. When it would, the dirty data goes first; then SRC answers
 * for itself. Nothing is reserved yet, so write-back of this very file is not in our way.
 */
static void keep_room_in_src(struct volume *v, uint64_t len)
{
	uint64_t bytes, left, dirty;

	while ((dirty = atomic_load(&v->dirty_blocks) * BLOCK_BYTES) > 0 &&
	       src_free(v) < dirty + len + POLICY_SRC_RESERVE_BYTES / 2)
		if (flush_some(v, WRITEBACK_BYTES, &bytes, &left) <= 0)
			break;
}

static bool ssd_usable(struct volume *v)
{
	if (!atomic_load(&v->ssd_failed))
		return true;
	if (volume_now(v) < atomic_load(&v->ssd_retry_ns))
		return false;
	atomic_store(&v->ssd_failed, false);
	return true;
}

static bool wants_ssd(struct tfile *f, struct tier_stream *s, uint64_t off, uint64_t len)
{
	struct volume *v = f->v;
	struct policy_write w = {
		.off = off,
		.len = len,
		.run_bytes = __atomic_load_n(&s->run_write, __ATOMIC_RELAXED),
		.used_bytes = volume_taken_bytes(v),
		.cap_bytes = v->cap_blocks * BLOCK_BYTES,
		.dirty_bytes = atomic_load(&v->dirty_blocks) * BLOCK_BYTES,
		.src_free_bytes = src_free(v),
		.ssd_failed = !ssd_usable(v),
	};

	return !f->conflict && policy_write_to_ssd(&v->opt, &w);
}

static void ssd_refused(struct tfile *f, int r)
{
	struct volume *v = f->v;

	if (r == -EFBIG) /* too far out for a file on the SSD: says nothing about other writes */
		return;
	if (r != -ENOSPC && r != -EDQUOT)
		volume_error(v, f, r, "cannot write to the SSD; SRC takes the writes");
	atomic_store(&v->ssd_retry_ns, volume_now(v) + 5 * SECOND_NS);
	atomic_store(&v->ssd_failed, true);
	volume_wake(v);
}

/*
 * In writethrough and writearound mode SRC gets the data and the SSD's older copy of it is
 * forgotten; a read brings it back. Dirty blocks (left from another mode) stay where they are.
 */
static int write_run_through(struct tfile *f, struct map_run run, const char *data)
{
	int r = run.state == BLOCK_CLEAN ? forget(f, run.start, run.end) : 0;

	if (r == 0)
		r = write_src(f, run.start, run.end, data);
	if (r == 0 && run.state == BLOCK_CLEAN) {
		if (f->v->opt.mode == MODE_WRITETHROUGH)
			(void)tfile_promote_later(f, run.start, run.end - run.start);
	}
	return r;
}

static int write_run(struct tfile *f, struct tier_stream *s, struct map_run run, const char *data,
		     bool have_src)
{
	bool absent = run.state == BLOCK_ABSENT;
	int r;

	if (run.state == BLOCK_CLEAN && f->v->opt.mode != MODE_WRITEBACK)
		return write_run_through(f, run, data);
	if (absent && !wants_ssd(f, s, run.start, run.end - run.start)) {
		r = write_src(f, run.start, run.end, data);
		if (r == 0)
			stream_write_out(f, s, run.start, run.end);
		return r;
	}
	r = write_ssd(f, run, data);
	if (r < 0 && r != -ENOMEM) {
		ssd_refused(f, r);
		r = write_around(f, run, data, have_src);
	}
	return r;
}

/* A run of at most one group: bounds the I/O between two looks at the map. */
static struct map_run next_run(struct tfile *f, uint64_t at, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	struct map_run run = map_run_at(&f->map, at, end);

	pthread_mutex_unlock(&f->lock);
	return run;
}

/* ---- write: the end of the file ------------------------------------------------------------ */
/*
 * Bytes past the end in a present block are zero, except after a crash in the middle of an append.
 * Whoever makes the file longer than by appending makes sure. The block is reserved exclusively.
 */
int zero_past_end(struct tfile *f, uint64_t size, uint64_t upto)
{
	static const char zeros[BLOCK_BYTES];
	uint64_t base = round_down_u64(size, BLOCK_BYTES), end = min_u64(upto, base + BLOCK_BYTES);

	if (size == base || size >= end || pass_on(f)) /* an object ends where the file does */
		return 0;
	pthread_mutex_lock(&f->lock);
	enum block_state state = map_state(&f->map, base);

	pthread_mutex_unlock(&f->lock);
	if (state == BLOCK_CLEAN) /* SRC's end is zero by itself */
		return forget(f, base, base + BLOCK_BYTES);
	if (state == BLOCK_ABSENT)
		return 0;
	int r = write_full(f->obj_fd, zeros, end - size, size);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	r = tfile_written_locked(f, base, base + BLOCK_BYTES, BLOCK_DIRTY);
	pthread_mutex_unlock(&f->lock);
	return r;
}

/* Reserve what a write needs: its blocks, and the block in which the file ends if there is a gap
 * between. Does what has to be done before. On failure nothing is reserved. */
static int reserve_write(struct tfile *f, struct range *range, uint64_t off, uint64_t end,
			 bool have_src)
{
	for (;;) {
		uint64_t size = tfile_size(f), start = min_u64(off, size);

		range_lock(&f->ranges, range, round_down_u64(start, BLOCK_BYTES),
			   round_up_u64(end, BLOCK_BYTES), true);
		pthread_mutex_lock(&f->lock);
		bool cut = f->truncate_pending, moved = f->size < start;

		size = f->size;
		pthread_mutex_unlock(&f->lock);
		int r = !cut && !moved && size < off ? zero_past_end(f, size, off) : 0;

		if (r == 0 && !cut && !moved)
			return 0;
		range_unlock(&f->ranges, range);
		if (r == 0 && cut)
			r = settle_cut(f, have_src);
		if (r < 0)
			return r;
	}
}

/* From *at on; moves it on. */
static int write_runs(struct tfile *f, struct tier_stream *s, const char *buf, uint64_t off,
		      uint64_t end, uint64_t *at, bool have_src)
{
	struct range range;
	int r = reserve_write(f, &range, *at, end, have_src);

	if (r < 0)
		return r;
	while (r == 0 && *at < end) {
		struct map_run run = next_run(f, *at, end);

		r = write_run(f, s, run, buf + (*at - off), have_src);
		if (r == 0)
			*at = run.end;
	}
	range_unlock(&f->ranges, &range);
	return r;
}

ssize_t tfile_write(struct tfile *f, struct tier_stream *s, const void *buf, size_t len,
		    uint64_t off)
{
	uint64_t at = off, end = off + len;

	if (len == 0)
		return 0;
	if (end > INT64_MAX)
		return -EFBIG;
	ssize_t n = pass_on(f) ? pass_write(f, buf, len, off) : -EAGAIN;

	if (n != -EAGAIN)
		return n;
	stream_note_write(f, s, off, len);
	keep_room_in_src(f->v, len);
	int r = write_runs(f, s, buf, off, end, &at, false);

	if (r == NEEDS_SRC_MUTEX) {
		pthread_mutex_lock(&f->src_mutex);
		r = write_runs(f, s, buf, off, end, &at, true);
		pthread_mutex_unlock(&f->src_mutex);
	}
	return at > off ? (ssize_t)(at - off) : r;
}
