// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests that come to us though the kernel does a file's I/O by itself: its attributes, fsync,
 * truncate, fallocate, lseek, copies, and reads and writes of open files that asked for it. The
 * object is the file (P1), so all of them go by the object; the map follows.
 */
#include "tier/pass.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>

/* ---- adoption ----------------------------------------------------------------------------- */
void pass_cut_begin(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->pass_cut++;
	pthread_mutex_unlock(&f->lock);
}

void pass_cut_end(struct tfile *f)
{
	pass_cut_begin(f);
}

/* The object's new times and size. Returns from where on its data is not in the map. */
static uint64_t adopt_stat_locked(struct tfile *f, const struct stat *st)
{
	int64_t mtime = timespec_ns(st->st_mtim);
	uint64_t size = (uint64_t)st->st_size, before = f->size;

	f->size_known = true; /* P1: after a crash the row may not say, and SRC's is not it */
	if (mtime != f->pass_mtime_ns) {
		f->pass_mtime_ns = mtime;
		f->mtime = f->ctime = st->st_mtim;
		f->mtime_seq++;
		f->attr_owned = f->ctime_kept = true;
		tfile_changed_locked(f);
		tfile_account_locked(f);
	}
	if (size != before) {
		f->size = size;
		if (!f->attr_owned)
			f->mtime = f->ctime =
				ns_timespec(mtime > f->stamp.mtime_ns ? mtime : f->stamp.mtime_ns);
		f->size_known = f->attr_owned = f->ctime_kept = true;
		f->data_seq++;
		/* After a crash the map may have what was cut off already. */
		(void)tfile_map_set_locked(f, round_up_u64(size, BLOCK_BYTES), RANGE_END,
					   BLOCK_ABSENT);
		tfile_changed_locked(f);
	}
	return min_u64(before, size);
}

/* Data of the object in [at, end) whose blocks are absent: a program has written it. */
static int adopt_data(struct tfile *f, unsigned cut, uint64_t at, uint64_t end)
{
	off_t data = lseek(f->obj_fd, (off_t)at, SEEK_DATA);

	while (data >= 0 && (uint64_t)data < end) {
		off_t hole = lseek(f->obj_fd, data, SEEK_HOLE);
		uint64_t to = hole < 0 ? end : min_u64((uint64_t)hole, end);

		pthread_mutex_lock(&f->lock);
		int r = f->pass_cut == cut
				? tfile_written_locked(f,
						       round_down_u64((uint64_t)data, BLOCK_BYTES),
						       round_up_u64(to, BLOCK_BYTES), BLOCK_DIRTY)
				: -EAGAIN;

		pthread_mutex_unlock(&f->lock);
		if (r < 0 || hole < 0)
			return r < 0 ? r : neg_errno();
		data = lseek(f->obj_fd, hole, SEEK_DATA);
	}
	return data < 0 && errno != ENXIO ? neg_errno() : 0;
}

static int adopt_absent(struct tfile *f, unsigned cut, uint64_t from, uint64_t size)
{
	uint64_t end = round_up_u64(size, BLOCK_BYTES);
	int r = 0;

	for (uint64_t at = round_down_u64(from, BLOCK_BYTES); r == 0 && at < end;) {
		pthread_mutex_lock(&f->lock);
		struct map_run run = map_run_at(&f->map, at, end);

		pthread_mutex_unlock(&f->lock);
		if (run.state == BLOCK_ABSENT)
			r = adopt_data(f, cut, run.start, run.end);
		at = run.end;
	}
	return r;
}

/* The file has grown out of a block that was clean: no checksum of it fits any more. */
static void dirty_tail_locked(struct tfile *f, uint64_t from, uint64_t size)
{
	uint64_t base = round_down_u64(from, BLOCK_BYTES);

	if (from != base && size > from && map_state(&f->map, base) == BLOCK_CLEAN)
		(void)tfile_written_locked(f, base, base + BLOCK_BYTES, BLOCK_DIRTY);
}

static bool adopt_held(struct tfile *f, bool all)
{
	struct stat st;
	uint64_t from = 0;

	pthread_mutex_lock(&f->lock);
	unsigned cut = f->pass_cut;
	bool writing = f->pass == PASS_WRITE;
	bool skip = cut % 2 || f->obj_fd < 0;

	pthread_mutex_unlock(&f->lock);
	if (!writing || skip || fstat(f->obj_fd, &st) < 0)
		return !writing;
	pthread_mutex_lock(&f->lock);
	writing = f->pass == PASS_WRITE; /* it may have ended, with all known */
	skip = f->pass_cut != cut || !writing;
	if (!skip) {
		from = adopt_stat_locked(f, &st);
		dirty_tail_locked(f, from, (uint64_t)st.st_size);
	}
	pthread_mutex_unlock(&f->lock);
	if (skip || (!all && from == (uint64_t)st.st_size))
		return !skip || !writing;
	return adopt_absent(f, cut, all ? 0 : from, (uint64_t)st.st_size) == 0;
}

bool pass_adopt(struct tfile *f, bool all)
{
	if (!pass_writing(f))
		return true;
	if (tfile_hold_object(f) < 0)
		return false;
	bool known = adopt_held(f, all);

	tfile_drop_object(f);
	return known;
}

/* ---- reading and writing ------------------------------------------------------------------ */
ssize_t pass_read(struct tfile *f, void *buf, size_t len, uint64_t off)
{
	ssize_t n;

	do
		n = pread(f->obj_fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		int r = neg_errno();

		volume_error(f->v, f, r, "cannot read the SSD copy");
		return r;
	}
	atomic_fetch_add(&f->v->hits, 1);
	atomic_fetch_add(&f->v->read_hit_bytes, (uint64_t)n);
	return n;
}

/* What is written here grows the file, if at all, under our eyes: others make room for it. */
static int make_room(struct tfile *f, uint64_t end)
{
	struct volume *v = f->v;
	uint64_t size = tfile_size(f), cap = v->cap_blocks * BLOCK_BYTES;
	uint64_t more = end > size ? end - size : 0;

	if (!more || volume_taken_bytes(v) + more <= cap)
		return 0;
	int r = evict_room(v, more, f);

	return r == -ENOSPC || r == -EAGAIN ? 0 : r; /* the filesystem has the last word */
}

ssize_t pass_write(struct tfile *f, const void *buf, size_t len, uint64_t off)
{
	uint64_t start = round_down_u64(off, BLOCK_BYTES), end = off + len;
	struct range range;
	struct stat st;

	(void)make_room(f, end);
	range_lock(&f->ranges, &range, start, round_up_u64(end, BLOCK_BYTES), true);
	pthread_mutex_lock(&f->lock);
	enum pass_state pass = f->pass;

	pthread_mutex_unlock(&f->lock);
	assert(pass != PASS_READ); /* tfile_pass_served() was called */
	int r = pass == PASS_WRITE ? write_full(f->obj_fd, buf, len, off) : -EAGAIN;

	if (r == 0 && fstat(f->obj_fd, &st) < 0)
		r = neg_errno();
	pthread_mutex_lock(&f->lock);
	if (r == 0) {
		(void)adopt_stat_locked(f, &st);
		r = tfile_written_locked(f, start, round_up_u64(end, BLOCK_BYTES), BLOCK_DIRTY);
	}
	pthread_mutex_unlock(&f->lock);
	range_unlock(&f->ranges, &range);
	return r < 0 ? r : (ssize_t)len;
}

off_t pass_seek(struct tfile *f, off_t off, int whence)
{
	off_t to = lseek(f->obj_fd, off, whence);

	return to < 0 ? neg_errno() : to;
}

/* ---- fsync -------------------------------------------------------------------------------- */
/*
 * Blocks that were present are covered by their group's intent: syncing the object is all. Only a
 * new size, or data where none was, has to go into the journal, with the same sync before it (I1).
 */
int pass_fsync(struct tfile *f, bool data_only)
{
	(void)pass_adopt(f, true); /* what it misses the marked object tells (P1) */
	pthread_mutex_lock(&f->lock);
	bool commit = f->cut_to != UINT64_MAX || f->sync_failed ||
		      (data_only ? f->data_seq != f->committed_data_seq
				 : f->seq != f->committed_seq);

	f->sync_wanted += commit;
	bool times = f->pass_times && !data_only;

	if (times)
		f->pass_times = false;
	pthread_mutex_unlock(&f->lock);
	int r = 0;

	if (times || !commit)
		r = (times ? fsync(f->obj_fd) : fdatasync(f->obj_fd)) < 0 ? neg_errno() : 0;
	if (r < 0)
		object_sync_failed(f, r);
	return r == 0 && commit ? commit_file(f) : r;
}

/*
 * The mtime was set, in SRC and here: the object's follows, less the nanosecond of mark_time(), or
 * after a crash it would be taken for that of a later write. That hides what was written a moment
 * before: another scan is due.
 */
int pass_set_mtime(struct tfile *f, int64_t ns)
{
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, ns_timespec(ns - 1) };
	int r = tfile_hold_object(f);

	if (r < 0)
		return r;
	pass_cut_begin(f);
	bool writing = pass_writing(f);

	if (writing)
		r = futimens(f->obj_fd, tv) < 0 ? neg_errno() : 0;
	pthread_mutex_lock(&f->lock);
	if (writing && r == 0) {
		f->pass_mtime_ns = ns - 1;
		f->pass_grant_ns = f->pass_scan_ns = INT64_MIN;
		f->pass_times = true;
	}
	pthread_mutex_unlock(&f->lock);
	pass_cut_end(f);
	tfile_drop_object(f);
	return r;
}

/* ---- truncate, fallocate ------------------------------------------------------------------- */
/* The block in which the file ends now has other bytes behind the end than before. */
static int cut_tail(struct tfile *f, uint64_t size)
{
	uint64_t base = round_down_u64(size, BLOCK_BYTES);
	int r = 0;

	pthread_mutex_lock(&f->lock);
	if (size != base && map_state(&f->map, base) == BLOCK_CLEAN)
		r = f->pass == PASS_WRITE
			    ? tfile_written_locked(f, base, base + BLOCK_BYTES, BLOCK_DIRTY)
			    : tfile_map_set_locked(f, base, base + BLOCK_BYTES, BLOCK_ABSENT);
	pthread_mutex_unlock(&f->lock);
	return r;
}

/* The object was as long as the file, and its last block is going to be longer: on the SSD as a
 * whole, or not at all. */
static int grow_tail(struct tfile *f, uint64_t size)
{
	struct stat st;
	int r = 0;

	if (fstat(f->obj_fd, &st) < 0)
		return neg_errno();
	uint64_t old = (uint64_t)st.st_size, base = round_down_u64(old, BLOCK_BYTES);

	if (old == base || size <= old)
		return 0;
	pthread_mutex_lock(&f->lock);
	enum block_state state = map_state(&f->map, base);

	if (state == BLOCK_DIRTY || (state == BLOCK_CLEAN && f->pass == PASS_WRITE))
		r = tfile_written_locked(f, base, base + BLOCK_BYTES, BLOCK_DIRTY);
	else if (state == BLOCK_CLEAN)
		r = tfile_map_set_locked(f, base, base + BLOCK_BYTES, BLOCK_ABSENT);
	pthread_mutex_unlock(&f->lock);
	return r;
}

int pass_truncated(struct tfile *f, uint64_t size)
{
	int r = cut_tail(f, size);

	if (r == 0)
		r = grow_tail(f, size);
	if (ftruncate(f->obj_fd, (off_t)size) < 0)
		return neg_errno();
	return r;
}

/* Blocks that SRC has zeroed leave the map, and their dirty data the durable state: SRC is synced.
 * Edges are zeroed in the object by the same call; for them it decides. */
static int zeroed(struct tfile *f, uint64_t off, uint64_t end)
{
	uint64_t first = round_up_u64(off, BLOCK_BYTES), last = round_down_u64(end, BLOCK_BYTES);
	int r = 0;

	if (off >= end)
		return 0;
	pthread_mutex_lock(&f->lock);
	if (first < last)
		r = tfile_map_set_locked(f, first, last, BLOCK_ABSENT);
	if (r == 0 && off < first && map_state(&f->map, off) != BLOCK_ABSENT)
		r = tfile_written_locked(f, first - BLOCK_BYTES, first, BLOCK_DIRTY);
	if (r == 0 && last < end && map_state(&f->map, last) != BLOCK_ABSENT)
		r = tfile_written_locked(f, last, last + BLOCK_BYTES, BLOCK_DIRTY);
	pthread_mutex_unlock(&f->lock);
	return r;
}

int pass_fallocated(struct tfile *f, int mode, uint64_t off, uint64_t len)
{
	bool zeroes = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	bool grows = !(mode & FALLOC_FL_KEEP_SIZE);
	struct stat st;
	int r = zeroes ? sync_src_data(f) : 0;

	if (r == 0 && grows)
		r = grow_tail(f, off + len);
	if (r == 0 && zeroes)
		r = object_punch(f->obj_fd, off, len);
	/* Space where the program is going to write, if there is any: SRC has it (I8). */
	else if (r == 0)
		(void)fallocate(f->obj_fd, mode, (off_t)off, (off_t)len);
	if (r == 0 && fstat(f->obj_fd, &st) < 0)
		r = neg_errno();
	if (r == 0 && grows && (uint64_t)st.st_size < off + len &&
	    (ftruncate(f->obj_fd, (off_t)(off + len)) < 0 || fstat(f->obj_fd, &st) < 0))
		r = neg_errno();
	if (r == 0 && zeroes)
		r = zeroed(f, off, min_u64(off + len, (uint64_t)st.st_size));
	pthread_mutex_lock(&f->lock);
	if (r == 0)
		(void)adopt_stat_locked(f, &st);
	pthread_mutex_unlock(&f->lock);
	return r;
}
