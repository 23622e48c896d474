// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attributes: what of SRC's stat is newer on the SSD, and who changed SRC.
 *
 * SRC's size, mtime and ctime at the last sync are the file's stamp (I9). Our own changes of SRC
 * are bracketed (src_change_begin/end): while one is under way, or was between the two halves of a
 * stat, the stat says nothing; the first stat after it is adopted as the new stamp. Any other
 * difference is somebody else's change. A durable "busy" mark is set before SRC is changed under a
 * file whose dirty state is durable, so that after a crash the difference is not taken for a
 * conflict; it is dropped by a later commit once the new stamp is known and SRC is synced.
 */
#include "tier/pass.h"

#include <fcntl.h>
#include <string.h>

static void log_conflict_locked(struct tfile *f, const struct src_stamp *now)
{
	struct timespec is = ns_timespec(now->mtime_ns), was = ns_timespec(f->stamp.mtime_ns);

	volume_log(f->v, 4,
		   "%s: SRC was changed by somebody else (size %llu, was %llu; mtime "
		   "%lld.%09ld, was %lld.%09ld) while newer data waits on the SSD; both are kept "
		   "(flush --force writes the SSD's)",
		   f->path ? f->path : "(no path)", (unsigned long long)now->size,
		   (unsigned long long)f->stamp.size, (long long)is.tv_sec, is.tv_nsec,
		   (long long)was.tv_sec, was.tv_nsec);
}

static struct src_stamp stamp_of(const struct stat *st)
{
	return (struct src_stamp){ .size = (uint64_t)st->st_size,
				   .mtime_ns = timespec_ns(st->st_mtim),
				   .ctime_ns = timespec_ns(st->st_ctim) };
}

static bool same_stamp(const struct src_stamp *a, const struct src_stamp *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

bool src_has_stamp(const struct stat *st, const struct src_stamp *stamp)
{
	struct src_stamp is = stamp_of(st);

	return same_stamp(&is, stamp);
}

static bool same_content(const struct src_stamp *a, const struct src_stamp *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns;
}

uint64_t tfile_stat_begin(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	uint64_t token = f->src_inflight ? UINT64_MAX : f->src_seq;

	pthread_mutex_unlock(&f->lock);
	return token;
}

static void adopt_stamp_locked(struct tfile *f, const struct stat *st)
{
	f->stamp = stamp_of(st);
	f->stamp_valid = true;
	f->stamp_stale = false;
	if (f->ctime_follow) {
		f->ctime_follow = false;
		if (f->ctime_kept && timespec_ns(st->st_ctim) > timespec_ns(f->ctime))
			f->ctime = st->st_ctim;
	}
	if (f->id)
		tfile_changed_locked(f);
}

/* SRC was changed by somebody else. True if clean copies had to go. */
static bool foreign_change_locked(struct tfile *f, const struct stat *st)
{
	struct src_stamp now = stamp_of(st);
	bool content = !same_content(&f->stamp, &now);
	uint64_t before = f->map.present_blocks;

	/* Programs read the object, whatever SRC says: until the last of them has closed it. */
	if (f->pass != PASS_NONE && !f->pass_stale) {
		f->pass_stale = true;
		stamps_distrust_locked(f);
	}
	if (content && (tfile_dirty_locked(f) || f->pass == PASS_WRITE)) {
		if (!f->conflict) {
			f->conflict = true;
			atomic_fetch_add(&f->v->conflicts, 1);
			tfile_changed_locked(f);
			log_conflict_locked(f, &now);
		}
		return false;
	}
	if (f->pass != PASS_NONE)
		return false;
	stamps_distrust_locked(f);
	/* A changed ctime alone may hide a change of content with the mtime set back. */
	for (uint64_t at = 0; (at = map_next_present(&f->map, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(&f->map, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		if (run.state == BLOCK_CLEAN)
			(void)tfile_map_set_locked(f, run.start, run.end, BLOCK_ABSENT);
		at = run.end;
	}
	if (!tfile_dirty_locked(f))
		f->ctime_kept = false;
	else if (timespec_ns(st->st_ctim) > timespec_ns(f->ctime))
		f->ctime = st->st_ctim;
	adopt_stamp_locked(f, st);
	return content || f->map.present_blocks != before;
}

/* Clean copies are dropped below readers and other users only through the block map, which any
 * of them looks at under the same lock. */
static bool revalidate_locked(struct tfile *f, uint64_t token, const struct stat *st)
{
	struct src_stamp now = stamp_of(st);
	bool stale_pages = false;

	/* Any size is better than none: a file whose size is not known would read as empty. */
	if (!f->size_known && f->map_loaded) {
		f->size = f->attr_owned ? max_u64(f->size, (uint64_t)st->st_size)
					: (uint64_t)st->st_size;
		f->size_known = true;
	}
	if (f->src_inflight || token != f->src_seq || !f->map_loaded)
		return false;
	if (!f->stamp_valid || f->stamp_stale)
		adopt_stamp_locked(f, st);
	else if (!same_stamp(&f->stamp, &now))
		stale_pages = foreign_change_locked(f, st);
	if (!f->attr_owned && !f->map.dirty_blocks && !f->truncate_pending &&
	    f->pass == PASS_NONE) {
		f->size = (uint64_t)st->st_size;
	}
	return stale_pages;
}

static void overlay_locked(const struct tfile *f, struct stat *st)
{
	if (f->size_known)
		st->st_size = (off_t)f->size;
	else if (f->attr_owned)
		st->st_size = (off_t)max_u64(f->size, (uint64_t)st->st_size);
	if (f->attr_owned)
		st->st_mtim = f->mtime;
	if (f->ctime_kept)
		st->st_ctim = f->ctime;
	/* What is dirty may or may not have blocks in SRC; never claim none for a file with
	 * data, nor more than a file without holes has: tools take blocks for sparseness. */
	uint64_t full = round_up_u64(f->size, BLOCK_BYTES) / 512;
	uint64_t sum = (uint64_t)st->st_blocks + f->map.dirty_blocks * (BLOCK_BYTES / 512);

	if (f->map.dirty_blocks)
		st->st_blocks = (blkcnt_t)max_u64((uint64_t)st->st_blocks, min_u64(sum, full));
}

bool tfile_stat_end(struct tfile *f, uint64_t token, struct stat *st)
{
	volume_saw_time(f->v, timespec_ns(st->st_mtim));
	volume_saw_time(f->v, timespec_ns(st->st_ctim));
	(void)pass_adopt(f, false);
	pthread_mutex_lock(&f->lock);
	bool stale_pages = revalidate_locked(f, token, st);

	overlay_locked(f, st);
	pthread_mutex_unlock(&f->lock);
	return stale_pages;
}

int tfile_refresh(struct tfile *f)
{
	uint64_t token = tfile_stat_begin(f);
	struct stat st;

	if (fstat(f->src_fd, &st) < 0)
		return neg_errno();
	if (tfile_stat_end(f, token, &st) && f->v->env.invalidate)
		f->v->env.invalidate(f->v->env.ctx, &f->key);
	return 0;
}

/* ---- our own changes of SRC --------------------------------------------------------------- */
int tfile_stat_src(struct tfile *f, struct stat *st)
{
	pthread_mutex_lock(&f->lock);
	int fd = f->src_fd >= 0 ? fcntl(f->src_fd, F_DUPFD_CLOEXEC, 0) : -1;

	pthread_mutex_unlock(&f->lock);
	if (fd < 0)
		fd = tfile_open_src(f, O_PATH);
	if (fd < 0)
		return fd;
	int r = fstat(fd, st) < 0 ? neg_errno() : 0;

	close(fd);
	return r;
}

/* Adopt what SRC says after our change, or see what somebody else did before it. */
static void look_at_src(struct tfile *f)
{
	uint64_t token = tfile_stat_begin(f);
	struct stat st;

	if (token == UINT64_MAX || tfile_stat_src(f, &st) < 0)
		return; /* another change is under way: its end looks; or gone: found out later */
	if (tfile_stat_end(f, token, &st) && f->v->env.invalidate)
		f->v->env.invalidate(f->v->env.ctx, &f->key);
}

/* What the SSD has of a file is known when its map is loaded; a change of ours that came before
 * could hide one of somebody else's. */
static bool has_copies(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool unknown = f->row && !f->map_loaded;

	pthread_mutex_unlock(&f->lock);
	if (unknown)
		(void)tfile_load_map(f); /* its errors are logged and counted there */
	pthread_mutex_lock(&f->lock);
	bool yes = f->map.present_blocks || tfile_dirty_locked(f);

	pthread_mutex_unlock(&f->lock);
	return yes;
}

/*
 * A durable mark that fails to be made (the SSD is full or broken) does not stop the change: at
 * worst a crash now reports a conflict that is none, and both versions are kept.
 */
int src_change_begin(struct tfile *f)
{
	if (has_copies(f))
		look_at_src(f);
	pthread_mutex_lock(&f->lock);
	f->src_inflight++;
	if (f->durable_dirty && !f->busy) {
		f->busy = true;
		tfile_changed_locked(f);
	}
	bool commit = f->durable_dirty && !f->busy_durable && !f->sync_failed;

	pthread_mutex_unlock(&f->lock);
	if (commit) {
		(void)commit_file(f); /* logged and counted there */
		crash_point(CP_BUSY_MARKED);
	}
	return 0;
}

void src_changed_locked(struct tfile *f, bool fsync_wants_it)
{
	f->src_inflight--;
	f->src_seq++;
	f->stamp_stale = true;
	f->src_wseq++;
	if (fsync_wants_it)
		f->src_fsync_wseq = f->src_wseq;
}

static void end_change(struct tfile *f, bool fsync_wants_it)
{
	pthread_mutex_lock(&f->lock);
	src_changed_locked(f, fsync_wants_it);
	pthread_mutex_unlock(&f->lock);
	if (!has_copies(f))
		return;
	look_at_src(f);
	stamps_note(f);
}

void src_change_end(struct tfile *f)
{
	end_change(f, true);
}

/* What is being written back stays dirty in the durable state until SRC was synced. */
void src_writeback_end(struct tfile *f)
{
	end_change(f, false);
}

int src_settle(struct tfile *f)
{
	int r = tfile_use(f, false);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	uint64_t upto = f->src_wseq;

	pthread_mutex_unlock(&f->lock);
	r = fsync(f->src_fd) < 0 ? neg_errno() : 0;
	if (r == 0) {
		pthread_mutex_lock(&f->lock);
		f->src_sseq = max_u64(f->src_sseq, upto);
		tfile_changed_locked(f);
		pthread_mutex_unlock(&f->lock);
		r = tfile_refresh(f);
	}
	tfile_unuse(f);
	return r;
}

int tfile_change_begin(struct tfile *f)
{
	return src_change_begin(f);
}

void tfile_change_end(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->ctime_follow = true;
	pthread_mutex_unlock(&f->lock);
	src_change_end(f);
}

/* Which mtime results, if any: true and *ret when it is set. */
static bool resolve_mtime(struct volume *v, const struct timespec *tv, struct timespec *ret)
{
	if (tv->tv_nsec == UTIME_OMIT)
		return false;
	*ret = tv->tv_nsec == UTIME_NOW ? volume_wall(v) : *tv;
	return true;
}

/* O_PATH: what the caller may do was decided by his kernel; a file may be without any permission.
 * */
static int set_src_times(struct tfile *f, const struct timespec tv[2])
{
	_cleanup_close_ int fd = tfile_open_src(f, O_PATH);

	if (fd < 0)
		return fd;
	return utimensat(fd, "", tv, AT_EMPTY_PATH) < 0 ? neg_errno() : 0;
}

int tfile_set_times(struct tfile *f, const struct timespec tv[2])
{
	struct timespec mtime;

	pthread_mutex_lock(&f->src_mutex);
	(void)pass_adopt(f, false);
	int r = src_change_begin(f);

	if (r == 0) {
		r = set_src_times(f, tv);
		pthread_mutex_lock(&f->lock);
		bool set = r == 0 && resolve_mtime(f->v, &tv[1], &mtime);

		if (set && f->attr_owned) {
			f->mtime = mtime;
			f->mtime_seq++;
			tfile_changed_locked(f);
		}
		f->ctime_follow = true;
		/* SRC has it already; but a durable row that owns the times, even if it is outdated
		 * since, would bring back older ones after a crash. */
		bool commit = set && f->durable_dirty;

		pthread_mutex_unlock(&f->lock);
		src_change_end(f);
		if (set)
			r = pass_set_mtime(f, timespec_ns(mtime));
		if (commit && r == 0)
			r = commit_file(f);
	}
	pthread_mutex_unlock(&f->src_mutex);
	return r;
}
