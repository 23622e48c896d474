// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Truncate, fallocate, lseek and fsync: operations on the shape of a file, and on all of it.
 *
 * Invariants kept here: SRC is never longer than the file as the mount shows it, except while
 * `truncate_pending`; a present block is zero past the end of the file; a block that is absent
 * reads as SRC has it, so whatever is made absent must first be right in SRC, or gone with it.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "tier/pass.h"

/* Times of a change that SRC's filesystem has made itself as well. */
static void note_change_locked(struct tfile *f)
{
	if (f->attr_owned)
		tfile_set_mtime_locked(f);
	f->ctime_follow = true;
	tfile_changed_locked(f);
}

/* ---- zeroing a part of a block that is on the SSD ----------------------------------------- */
/* [from, to) lies within one block. The range is reserved exclusively. */
static int zero_in_block(struct tfile *f, uint64_t from, uint64_t to)
{
	static const char zeros[BLOCK_BYTES];
	uint64_t base = round_down_u64(from, BLOCK_BYTES);

	pthread_mutex_lock(&f->lock);
	enum block_state state = map_state(&f->map, base);

	pthread_mutex_unlock(&f->lock);
	if (state == BLOCK_ABSENT || from >= to)
		return 0;
	if (state == BLOCK_CLEAN) {
		/* SRC gets the zeros by the same operation: forgetting the copy is enough. */
		pthread_mutex_lock(&f->lock);
		int r = tfile_map_set_locked(f, base, base + BLOCK_BYTES, BLOCK_ABSENT);

		pthread_mutex_unlock(&f->lock);
		return r;
	}
	int r = write_full(f->obj_fd, zeros, to - from, from);

	pthread_mutex_lock(&f->lock);
	if (r == 0)
		r = tfile_written_locked(f, base, base + BLOCK_BYTES, BLOCK_DIRTY);
	pthread_mutex_unlock(&f->lock);
	return r;
}

/* Forget the whole blocks of [start, end). */
static int forget_blocks(struct tfile *f, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	int r = tfile_map_set_locked(f, start, end, BLOCK_ABSENT);

	pthread_mutex_unlock(&f->lock);
	return r;
}

/* ---- SRC ---------------------------------------------------------------------------------- */
static int cut_src(struct tfile *f, uint64_t size)
{
	int r = src_change_begin(f);

	if (r < 0)
		return r;
	r = ftruncate(f->src_fd, (off_t)size) < 0 ? neg_errno() : 0;
	pthread_mutex_lock(&f->lock);
	if (r == 0)
		note_change_locked(f);
	pthread_mutex_unlock(&f->lock);
	src_change_end(f);
	return r;
}

/* SRC may be shorter already, where the rest is dirty on the SSD: then only its times change. To
 * make it longer would be a size that, after a crash, has zeros instead of the data. */
static int shorten_src(struct tfile *f, uint64_t size)
{
	struct stat st;

	if (fstat(f->src_fd, &st) < 0)
		return neg_errno();
	return cut_src(f, min_u64(size, (uint64_t)st.st_size));
}

/* ---- pending cuts ------------------------------------------------------------------------- */
int redo_cut(struct tfile *f)
{
	struct stat st;

	pthread_mutex_lock(&f->lock);
	bool pending = f->truncate_pending;
	uint64_t to = f->pending_to;

	pthread_mutex_unlock(&f->lock);
	if (!pending)
		return 0;
	stamps_reshape_begin(f);
	(void)src_change_begin(f);
	int r = fstat(f->src_fd, &st) < 0 ? neg_errno() : 0;

	if (r == 0 && (uint64_t)st.st_size > to && ftruncate(f->src_fd, (off_t)to) < 0)
		r = neg_errno();
	pthread_mutex_lock(&f->lock);
	if (r == 0) {
		f->truncate_pending = false;
		f->cut_wseq = f->src_wseq + 1; /* what src_change_end() makes it */
		tfile_changed_locked(f);
	}
	pthread_mutex_unlock(&f->lock);
	src_change_end(f);
	stamps_reshape_end(f);
	return r;
}

int settle_cut(struct tfile *f, bool have_src)
{
	struct range all;

	if (!have_src)
		pthread_mutex_lock(&f->src_mutex);
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	int r = redo_cut(f);

	range_unlock(&f->ranges, &all);
	if (!have_src)
		pthread_mutex_unlock(&f->src_mutex);
	return r;
}

/*
 * SRC is going to zero bytes of [start, end), whole blocks: as before a write past the SSD
 * (forget_durably()). Under a program that writes by itself the busy mark is sure, as intents stay.
 */
static int forget_clean_first(struct tfile *f, uint64_t start, uint64_t end)
{
	int r = 0;

	pthread_mutex_lock(&f->lock);
	bool covered = f->pass == PASS_WRITE;

	end = min_u64(end, round_up_u64(f->size, BLOCK_BYTES));
	for (uint64_t at = start; r == 0 && at < end && !covered;) {
		struct map_run run = map_run_at(&f->map, at, end);

		if (run.state == BLOCK_CLEAN)
			r = tfile_map_set_locked(f, run.start, run.end, BLOCK_ABSENT);
		at = run.end;
	}
	pthread_mutex_unlock(&f->lock);
	if (r == 0 && !covered && start < end)
		forget_durably(f, start, end);
	return r;
}

/* ---- truncate ----------------------------------------------------------------------------- */
static void set_size_locked(struct tfile *f, uint64_t size)
{
	f->size = size;
	f->data_seq++;
	tfile_changed_locked(f);
	tfile_account_locked(f);
}

/*
 * The cut in memory, at once: everything past `size` leaves the map, and, if `pending`, SRC must
 * follow. The tail of the last block is zeroed when the cut is durable: until then a crash brings
 * back the old size, and the bytes must be there.
 */
static int cut_map(struct tfile *f, uint64_t size, bool pending)
{
	pthread_mutex_lock(&f->lock);
	int r = tfile_map_set_locked(f, round_up_u64(size, BLOCK_BYTES), RANGE_END, BLOCK_ABSENT);
	if (r == 0 && pending) {
		f->truncate_pending = true;
		f->pending_to = size;
		f->cut_to = min_u64(f->cut_to, size);
		tfile_set_mtime_locked(f);
	}
	if (r == 0)
		set_size_locked(f, size);
	pthread_mutex_unlock(&f->lock);
	return r;
}

/*
 * Shorter. When the durable state has dirty data or a size of its own, it would bring them back
 * after a crash over a SRC that is already cut: so the cut is made durable there first, with the
 * mark that SRC must follow (recovery redoes it), which stays until SRC is synced. Otherwise SRC
 * goes first: its new stamp makes every older durable state void.
 */
static int truncate_down(struct tfile *f, uint64_t size)
{
	pthread_mutex_lock(&f->lock);
	bool journaled = f->durable_dirty;

	pthread_mutex_unlock(&f->lock);
	int r = forget_clean_first(f, round_down_u64(size, BLOCK_BYTES),
				   round_up_u64(size, BLOCK_BYTES));

	if (r == 0 && !journaled)
		r = shorten_src(f, size);
	if (!journaled)
		crash_point(CP_CUT_SRC);
	if (r == 0)
		r = cut_map(f, size, journaled);
	crash_point(CP_CUT_MAP);
	if (r == 0 && journaled)
		r = commit_file(f);
	crash_point(CP_CUT_COMMITTED);
	/* On failure the cut stays pending: the file reads as cut, SRC follows later. */
	if (r == 0 && journaled)
		r = redo_cut(f);
	crash_point(CP_CUT_REDONE);
	return r < 0 ? r : zero_past_end(f, size, round_up_u64(size, BLOCK_BYTES));
}

static int truncate_up(struct tfile *f, uint64_t size)
{
	int r = zero_past_end(f, tfile_size(f), size);

	crash_point(CP_GROW_ZEROED);
	if (r == 0)
		r = cut_src(f, size);
	crash_point(CP_GROW_SRC);
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	set_size_locked(f, size);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

/* Only times change. */
static int truncate_same(struct tfile *f)
{
	return shorten_src(f, tfile_size(f));
}

int tfile_truncate(struct tfile *f, uint64_t size)
{
	struct range all;
	int r;

	if (size > INT64_MAX)
		return -EFBIG;
	pthread_mutex_lock(&f->src_mutex);
	(void)pass_adopt(f, true);
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	uint64_t now = tfile_size(f);

	stamps_reshape_begin(f);
	pass_cut_begin(f);
	r = redo_cut(f);
	if (r < 0)
		;
	else if (size < now)
		r = truncate_down(f, size);
	else if (size > now)
		r = truncate_up(f, size);
	else
		r = truncate_same(f);
	/* Whatever failed: where the file is cut, its object is. */
	if (pass_on(f) && tfile_size(f) == size) {
		int cut = pass_truncated(f, size);

		r = r < 0 ? r : cut;
	}
	pass_cut_end(f);
	stamps_reshape_end(f);
	range_unlock(&f->ranges, &all);
	pthread_mutex_unlock(&f->src_mutex);
	return r;
}

/* ---- fallocate ---------------------------------------------------------------------------- */
/*
 * SRC is asked first: it knows what it supports, and whether it has room. Blocks of the SSD in the
 * range are forgotten where a whole block is concerned (SRC has the zeros now); parts of blocks
 * are zeroed on the SSD too. For mode 0 SRC only gets its space; the content stays.
 */
static int reshape_src(struct tfile *f, int mode, uint64_t off, uint64_t len)
{
	struct stat st;
	int r = src_change_begin(f);

	if (r < 0)
		return r;
	/* SRC may be shorter than the file, whose end is on the SSD: no size in between. */
	if (off + len <= tfile_size(f))
		mode |= FALLOC_FL_KEEP_SIZE;
	r = fallocate(f->src_fd, mode, (off_t)off, (off_t)len) < 0 ? neg_errno() : 0;
	bool known = fstat(f->src_fd, &st) == 0;

	pthread_mutex_lock(&f->lock);
	if (r == 0)
		note_change_locked(f);
	if (known && !(mode & FALLOC_FL_KEEP_SIZE) && (uint64_t)st.st_size > f->size) {
		f->size = (uint64_t)st.st_size;
		f->data_seq++;
	}
	pthread_mutex_unlock(&f->lock);
	src_change_end(f);
	return r;
}

static bool any_dirty(struct tfile *f, uint64_t off, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	bool dirty = map_next_dirty(&f->map, round_down_u64(off, BLOCK_BYTES)) < end;

	pthread_mutex_unlock(&f->lock);
	return dirty;
}

static int zero_on_ssd(struct tfile *f, uint64_t off, uint64_t end)
{
	uint64_t first = round_up_u64(off, BLOCK_BYTES), last = round_down_u64(end, BLOCK_BYTES);

	/* Dirty data may leave the catalog only for zeros that are as durable: else a power cut
	 * would bring back what SRC had before it. */
	int synced = any_dirty(f, off, end) ? sync_src_data(f) : 0;

	crash_point(CP_PUNCH_SYNCED);
	if (synced < 0)
		return synced;
	if (first > last) /* within one block */
		return zero_in_block(f, off, end);
	int r = zero_in_block(f, off, first);

	if (r == 0)
		r = forget_blocks(f, first, last);
	return r < 0 ? r : zero_in_block(f, last, end);
}

int tfile_fallocate(struct tfile *f, int mode, uint64_t off, uint64_t len)
{
	bool zeroes = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	struct range range;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if (len == 0 || off > INT64_MAX || len > INT64_MAX - off)
		return len == 0 ? -EINVAL : -EFBIG;
	pthread_mutex_lock(&f->src_mutex);
	(void)pass_adopt(f, true);
	range_lock(&f->ranges, &range, 0, RANGE_END, true);
	stamps_reshape_begin(f);
	pass_cut_begin(f);
	int r = redo_cut(f);

	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
		r = zero_past_end(f, tfile_size(f), off + len);
	if (r == 0 && zeroes)
		r = forget_clean_first(f, round_down_u64(off, BLOCK_BYTES),
				       round_up_u64(off + len, BLOCK_BYTES));
	if (r == 0)
		r = reshape_src(f, mode, off, len);
	crash_point(CP_PUNCH_SRC);
	if (r == 0 && pass_on(f))
		r = pass_fallocated(f, mode, off, len);
	else if (r == 0 && zeroes)
		r = zero_on_ssd(f, off, off + len);
	crash_point(CP_PUNCH_FORGOTTEN);
	pass_cut_end(f);
	stamps_reshape_end(f);
	range_unlock(&f->ranges, &range);
	pthread_mutex_unlock(&f->src_mutex);
	return r;
}

/* ---- lseek -------------------------------------------------------------------------------- */
/* The next offset >= at where SRC has data (or, for SEEK_HOLE, a hole); `size` at the end. */
static uint64_t src_seek(struct tfile *f, uint64_t at, uint64_t size, int whence)
{
	off_t found = lseek(f->src_fd, (off_t)at, whence);

	if (found >= 0)
		return min_u64((uint64_t)found, size);
	/* ENXIO: past SRC's end, where there is nothing but holes. Anything else: claim data. */
	if (errno == ENXIO)
		return whence == SEEK_DATA ? size : at;
	return whence == SEEK_DATA ? at : size;
}

static uint64_t next_present(struct tfile *f, uint64_t at)
{
	pthread_mutex_lock(&f->lock);
	uint64_t p = map_next_present(&f->map, at);

	pthread_mutex_unlock(&f->lock);
	return p;
}

static uint64_t present_end(struct tfile *f, uint64_t at, uint64_t size)
{
	pthread_mutex_lock(&f->lock);
	while (at < size) {
		struct map_run run = map_run_at(&f->map, at, size);

		if (run.state == BLOCK_ABSENT)
			break;
		at = run.end;
	}
	pthread_mutex_unlock(&f->lock);
	return at;
}

static uint64_t seek_data(struct tfile *f, uint64_t at, uint64_t size)
{
	uint64_t ssd = min_u64(next_present(f, at), size);

	return ssd == at ? at : min_u64(ssd, src_seek(f, at, size, SEEK_DATA));
}

static uint64_t seek_hole(struct tfile *f, uint64_t at, uint64_t size)
{
	while (at < size) {
		uint64_t on_ssd = present_end(f, at, size);

		if (on_ssd > at) {
			at = on_ssd;
			continue;
		}
		uint64_t hole = src_seek(f, at, size, SEEK_HOLE);
		uint64_t ssd = min_u64(next_present(f, at), size);

		if (hole == at || (hole < ssd))
			return hole;
		at = ssd;
	}
	return size;
}

off_t tfile_seek(struct tfile *f, off_t off, int whence)
{
	struct range range;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (pass_on(f))
		return pass_seek(f, off, whence);
	range_lock(&f->ranges, &range, 0, RANGE_END, false);
	uint64_t size = tfile_size(f), found = size;

	if (off >= 0 && (uint64_t)off < size)
		found = whence == SEEK_DATA ? seek_data(f, (uint64_t)off, size)
					    : seek_hole(f, (uint64_t)off, size);
	range_unlock(&f->ranges, &range);
	if (off < 0 || (uint64_t)off >= size || (whence == SEEK_DATA && found >= size))
		return -ENXIO;
	return (off_t)found;
}

/* ---- fsync -------------------------------------------------------------------------------- */
void tfile_src_unsynced(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->src_fsync_wseq = ++f->src_wseq;
	pthread_mutex_unlock(&f->lock);
}

/* Names and attributes too: fdatasync makes a new name durable only where SRC says so. */
static int sync_src_upto(struct tfile *f, bool all)
{
	pthread_mutex_lock(&f->lock);
	uint64_t upto = f->src_wseq, wanted = all ? upto : f->src_fsync_wseq;
	bool needed = wanted > f->src_sseq || f->src_unknown;

	pthread_mutex_unlock(&f->lock);
	if (!needed)
		return 0;
	if (fsync(f->src_fd) < 0) {
		int r = neg_errno();

		tfile_sync_error(f, r);
		return r;
	}
	pthread_mutex_lock(&f->lock);
	f->src_sseq = max_u64(f->src_sseq, upto);
	f->src_unknown = false;
	pthread_mutex_unlock(&f->lock);
	return 0;
}

int sync_src(struct tfile *f)
{
	return sync_src_upto(f, false);
}

int sync_src_all(struct tfile *f)
{
	return sync_src_upto(f, true);
}

void tfile_sync_error(struct tfile *f, int r)
{
	pthread_mutex_lock(&f->lock);
	f->fsync_error = r;
	pthread_mutex_unlock(&f->lock);
}

/* The kernel tells an error once, to whoever syncs first; it is the application that must know. */
static int take_error(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	int r = f->fsync_error;

	f->fsync_error = f->sync_failed ? r : 0;
	pthread_mutex_unlock(&f->lock);
	return r;
}

int tfile_fsync(struct tfile *f, bool data_only)
{
	__atomic_fetch_add(&f->fsync_seq, 1, __ATOMIC_RELAXED);
	int r = sync_src(f);

	if (r < 0) {
		(void)take_error(f);
		return r;
	}
	pthread_mutex_lock(&f->lock);
	/* A cut that the durable state would redo must not undo what was just synced in SRC. */
	bool commit = f->id && (f->obj_wseq != f->obj_sseq || f->cut_to != UINT64_MAX ||
				(data_only ? f->data_seq != f->committed_data_seq
					   : f->seq != f->committed_seq));

	pthread_mutex_unlock(&f->lock);
	if (pass_writing(f))
		r = pass_fsync(f, data_only);
	else
		r = commit ? commit_file(f) : 0;
	int error = take_error(f);

	return error < 0 ? error : r;
}
