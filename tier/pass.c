// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Passthrough: who may be given an object, and when it is ours again. README.md has the states, the
 * order of steps and the crash cases.
 *
 * Begin: everything reserved, so that no request is under way; all blocks are on the SSD; the
 * object is cut to the file's size (P1). For a writer: the object is marked (for zombies), gets an
 * mtime that no write can give it, whatever has no checksum becomes dirty, every group gets an
 * intent, and one commit makes that durable before the program has its descriptor (I2).
 * End: the last close proves nothing, as mappings live on, and nobody tells us when programs of a
 * killed daemon are gone. A write lease is granted only to the single user of a file: once we get
 * one, and after a writer one more scan has found what he changed, the file is an ordinary one.
 */
#include "tier/pass.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Files that are not pinned and cannot be evicted while open: this part of the cap at most, all of
 * them together. */
#define UNPINNED_PART 2u
/* For less, an open and a close this way cost more than the reads in between save (measured: 65 us
 * more for both, and the kernel's cached pages are dropped). */
#define PINNED_MIN_BYTES   (64ull << 10)
#define UNPINNED_MIN_BYTES (1ull << 20)

/* ---- leases ------------------------------------------------------------------------------- */
bool pass_others(int fd)
{
	/* Should somebody open it in this very moment, the signal is one that does nothing. */
	(void)fcntl(fd, F_SETSIG, SIGURG);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN || errno == EBUSY;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

static bool can_lease(int fd)
{
	bool yes = fcntl(fd, F_SETLEASE, F_WRLCK) == 0;

	if (yes)
		(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return yes;
}

/* Durably: recovery goes by it. It is set before a program may write, and gone before anything may
 * be in the object that is not the file's. */
int pass_set_mark(const struct volume *v, uint64_t id, bool on)
{
	char name[32];
	int r = 0;

	snprintf(name, sizeof(name), "%016llx", (unsigned long long)id);
	if (on) {
		int fd = openat(v->pass_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		r = fd < 0 ? neg_errno() : 0;
		if (fd >= 0)
			close(fd);
	} else if (unlinkat(v->pass_fd, name, 0) < 0 && errno != ENOENT) {
		r = neg_errno();
	}
	return r == 0 && fsync(v->pass_fd) < 0 ? neg_errno() : r;
}

bool pass_is_marked(int volume_fd, uint64_t id)
{
	char name[64];

	snprintf(name, sizeof(name), PASS_MARKS_DIR "/%016llx", (unsigned long long)id);
	return faccessat(volume_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* To the nanosecond, or a write could go unnoticed: see mark_time(). */
static bool has_fine_times(int fd)
{
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1, .tv_nsec = 1 } };
	struct stat st;

	return futimens(fd, tv) == 0 && fstat(fd, &st) == 0 && st.st_mtim.tv_nsec == 1;
}

/* Can this filesystem tell all that has to be known? */
static bool is_supported(int dir_fd)
{
	static const char name[] = "probe.tmp";
	_cleanup_close_ int fd =
		openat(dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool yes = fd >= 0 && can_lease(fd) && has_fine_times(fd);

	(void)unlinkat(dir_fd, name, 0);
	return yes;
}

int pass_init(struct volume *v)
{
	if (mkdirat(v->dir_fd, PASS_MARKS_DIR, 0700) < 0 && errno != EEXIST)
		return neg_errno();
	v->pass_fd = openat(v->dir_fd, PASS_MARKS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->pass_fd < 0)
		return neg_errno();
	v->pass_supported = is_supported(v->dir_fd);
	return 0;
}

void pass_opened_locked(struct tfile *f)
{
	if (f->obj_probed || f->obj_fd < 0)
		return;
	f->obj_probed = true;
	atomic_store(&f->obj_shared, pass_others(f->obj_fd));
}

bool pass_may_punch(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool no = f->pass != PASS_NONE;

	pthread_mutex_unlock(&f->lock);
	if (!no && atomic_load(&f->obj_shared)) {
		no = pass_others(f->obj_fd);
		atomic_store(&f->obj_shared, no);
	}
	return !no;
}

bool pass_on(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool on = f->pass != PASS_NONE;

	pthread_mutex_unlock(&f->lock);
	return on;
}

bool pass_writing(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool on = f->pass == PASS_WRITE;

	pthread_mutex_unlock(&f->lock);
	return on;
}

/* ---- may it be given? --------------------------------------------------------------------- */
bool pass_all_present_locked(const struct tfile *f)
{
	uint64_t end = round_up_u64(f->size, BLOCK_BYTES);

	for (uint64_t at = 0; at < end;) {
		struct map_run run = map_run_at(&f->map, at, end);

		if (run.state == BLOCK_ABSENT)
			return false;
		at = run.end;
	}
	return true;
}

static const char *why_not_volume(const struct volume *v)
{
	if (v->opt.mode != MODE_WRITEBACK)
		return "mode is not writeback";
	return v->pass_supported ? NULL : "the SSD's filesystem has no leases or coarse times";
}

static uint64_t blocks_of(const struct tfile *f)
{
	return round_up_u64(f->size, BLOCK_BYTES) / BLOCK_BYTES;
}

static const char *why_not_locked(const struct tfile *f)
{
	const struct volume *v = f->v;

	if (!f->id || !f->map.present_blocks)
		return "nothing of it is on the SSD";
	if (f->size < (f->pinned ? PINNED_MIN_BYTES : UNPINNED_MIN_BYTES))
		return "too small to be worth it";
	if (f->conflict)
		return "changed in SRC as well";
	if (f->lost || f->sync_failed || f->dead || !f->size_known || !f->map_loaded)
		return "its copy on the SSD is damaged or unlinked";
	if (f->truncate_pending || f->tail_unsure || !f->stamp_valid || f->stamp_stale)
		return "not settled yet";
	if (!pass_all_present_locked(f))
		return "not all of it is on the SSD";
	if (!f->pinned && atomic_load(&v->pass_kept) + blocks_of(f) > v->cap_blocks / UNPINNED_PART)
		return "not pinned, and half of the SSD would be kept";
	return NULL;
}

/* A writer's changes are found by extents, and written back as such; and nobody asks us before such
 * a file grows (I7, I8). That is for files somebody has chosen. */
static const char *why_no_writer(struct tfile *f)
{
	struct volume *v = f->v;
	uint64_t dirty = atomic_load(&v->dirty_blocks) * BLOCK_BYTES;
	struct statvfs vfs;

	pthread_mutex_lock(&f->lock);
	bool pinned = f->pinned;

	pthread_mutex_unlock(&f->lock);
	if (!pinned)
		return "for writing it must be pinned";
	if (fstatvfs(v->src->root_fd, &vfs) < 0 ||
	    (uint64_t)vfs.f_bavail * vfs.f_frsize < dirty + POLICY_SRC_RESERVE_BYTES)
		return "no room in SRC";
	return NULL;
}

const char *tfile_why_no_pass(struct tfile *f, bool freely)
{
	const char *why = why_not_volume(f->v);

	pthread_mutex_lock(&f->lock);
	if (!why && f->pass == PASS_NONE)
		why = why_not_locked(f);
	pthread_mutex_unlock(&f->lock);
	return why || !freely ? why : why_no_writer(f);
}

bool tfile_passing(struct tfile *f, bool *ret_writing)
{
	pthread_mutex_lock(&f->lock);
	bool open = f->pass_opens > 0;

	*ret_writing = f->pass == PASS_WRITE;
	pthread_mutex_unlock(&f->lock);
	return open;
}

/* ---- begin -------------------------------------------------------------------------------- */
/* pass_mutex held. The object becomes the file (P1). */
static int become_readable(struct tfile *f)
{
	struct range all;
	struct stat st;
	int r = tfile_hold_object(f);

	if (r < 0)
		return r;
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	pthread_mutex_lock(&f->lock);
	r = why_not_locked(f) || f->obj_fd < 0 ? -EAGAIN : 0;
	uint64_t size = f->size;

	pthread_mutex_unlock(&f->lock);
	/* Bytes behind the end of the file are zero, so nothing is lost. */
	if (r == 0 && fstat(f->obj_fd, &st) < 0)
		r = neg_errno();
	if (r == 0 && (uint64_t)st.st_size != size && ftruncate(f->obj_fd, (off_t)size) < 0)
		r = neg_errno();
	if (r == 0) {
		pthread_mutex_lock(&f->lock);
		f->pass = PASS_READ;
		f->pass_kept = f->pinned ? 0 : blocks_of(f);
		atomic_fetch_add(&f->v->pass_kept, f->pass_kept);
		f->pass_stale = f->pass_final = false;
		f->pass_scan = UINT64_MAX;
		pthread_mutex_unlock(&f->lock);
		file_list_add(f->v, &f->v->passing, f, 0);
	}
	range_unlock(&f->ranges, &all);
	if (r < 0)
		tfile_drop_object(f);
	return r;
}

/* An mtime that only we give: whatever writes to the object moves it. It is that of the file, less
 * one nanosecond, so that nobody is misled who goes by it (recovery, check). */
static int mark_time(struct tfile *f, int64_t *ret_ns)
{
	struct stat st;

	pthread_mutex_lock(&f->lock);
	int64_t ns = (f->attr_owned ? timespec_ns(f->mtime) : f->stamp.mtime_ns) - 1;

	pthread_mutex_unlock(&f->lock);
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, ns_timespec(ns) };

	if (futimens(f->obj_fd, tv) < 0 || fstat(f->obj_fd, &st) < 0)
		return neg_errno();
	*ret_ns = ns;
	return timespec_ns(st.st_mtim) == ns ? 0 : -EOPNOTSUPP; /* too coarse to tell */
}

static void stop_writing_locked(struct tfile *f)
{
	f->writes_inflight--; /* from now on checkpoints may drop the intents */
	/* What was written is not synced, and not by us. */
	f->obj_wseq++;
	f->data_seq++;
	f->sync_wanted++;
	tfile_changed_locked(f);
}

/* From here on nothing of the file rides in the journal: replay would put it over newer data. The
 * commit syncs the object, and makes void what the journal has. */
void pass_begin_writing_locked(struct tfile *f, int64_t ns)
{
	f->pass = PASS_WRITE;
	f->writes_inflight++;
	f->pass_grant_ns = f->pass_mtime_ns = f->pass_scan_ns = ns;
	pass_distrust_locked(f, false);
	for (unsigned i = 0; i < f->map.n_groups; i++)
		map_set_intent(&f->map, f->map.groups[i]->index * GROUP_BYTES,
			       f->map.groups[i]->index * GROUP_BYTES + 1);
	f->sync_wanted++;
	tfile_changed_locked(f);
}

/* pass_mutex held. */
static int become_writable(struct tfile *f)
{
	struct range all;
	int64_t ns = 0;
	int r = mark_time(f, &ns);

	/* Its size as well, which the mark makes the file's. */
	if (r == 0 && fsync(f->obj_fd) < 0)
		r = neg_errno();
	if (r < 0)
		return r;
	r = pass_set_mark(f->v, f->id, true);
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	pthread_mutex_lock(&f->lock);
	pass_begin_writing_locked(f, ns);
	pthread_mutex_unlock(&f->lock);
	range_unlock(&f->ranges, &all);
	if (r == 0)
		r = commit_file(f);
	/* Nobody gets it. Where the mark cannot be taken back the state has to stay as well. */
	if (r < 0 && pass_set_mark(f->v, f->id, false) == 0) {
		pthread_mutex_lock(&f->lock);
		stop_writing_locked(f);
		f->pass = PASS_READ;
		pthread_mutex_unlock(&f->lock);
	}
	return r;
}

void pass_leave(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->pass = PASS_NONE;
	atomic_fetch_sub(&f->v->pass_kept, f->pass_kept);
	f->pass_kept = 0;
	pthread_mutex_unlock(&f->lock);
	tfile_drop_object(f);
	file_list_remove(f->v, &f->v->passing, f);
}

int tfile_pass_begin(struct tfile *f, bool write, bool held)
{
	/* Its times as SRC has them are going to be ours. */
	int r = held ? 0 : tfile_refresh(f);

	if (r < 0 || (!held && tfile_why_no_pass(f, write)))
		return r < 0 ? r : -EAGAIN;
	pthread_mutex_lock(&f->pass_mutex);
	pthread_mutex_lock(&f->lock);
	enum pass_state before = f->pass;

	f->pass_final = false; /* a scan under way is not the last one */
	pthread_mutex_unlock(&f->lock);
	r = before == PASS_NONE ? become_readable(f) : 0;

	if (r == 0 && write && before != PASS_WRITE)
		r = become_writable(f);
	if (r == 0) {
		pthread_mutex_lock(&f->lock);
		f->pass_opens++;
		atomic_fetch_add(&f->v->pass_opens, 1);
		pthread_mutex_unlock(&f->lock);
	} else if (before == PASS_NONE && pass_on(f) && !pass_writing(f)) {
		pass_leave(f);
	}
	pthread_mutex_unlock(&f->pass_mutex);
	return r;
}

int tfile_pass_fd(struct tfile *f)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->obj_fd);
	int fd = open(proc, O_PATH | O_CLOEXEC);

	return fd >= 0 ? fd : neg_errno();
}

int64_t tfile_pass_mtime(struct tfile *f)
{
	struct stat st;

	return fstat(f->obj_fd, &st) < 0 ? 0 : timespec_ns(st.st_mtim);
}

/* ---- end ---------------------------------------------------------------------------------- */
static void warm_locked(struct tfile *f)
{
	for (unsigned i = 0; i < f->map.n_groups; i++)
		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			if (f->map.groups[i]->present[w])
				f->map.groups[i]->heat[w] =
					policy_heat_touch(f->map.groups[i]->heat[w]);
}

/* SRC was changed under it: what the programs have read was ours to promise; from here on it is
 * SRC's again. What was written by them is dirty, and in conflict if SRC's content moved. */
static void drop_stale_locked(struct tfile *f)
{
	for (uint64_t at = 0; (at = map_next_present(&f->map, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(&f->map, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		if (run.state == BLOCK_CLEAN)
			(void)tfile_map_set_locked(f, run.start, run.end, BLOCK_ABSENT);
		at = run.end;
	}
	f->pass_stale = false;
}

static int commit_adopted(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool changed = f->seq != f->committed_seq;

	f->sync_wanted += changed;
	pthread_mutex_unlock(&f->lock);
	return changed ? commit_file(f) : 0;
}

/* pass_mutex held; nobody has the object open, and all that was changed is known. */
static void finish(struct tfile *f)
{
	struct volume *v = f->v;
	struct range all;

	if (pass_writing(f)) {
		/* What was found is durable before the object ceases to speak for itself. */
		int r = f->dead ? 0 : commit_adopted(f);

		/* A cut or a longer end may have been committed without: rows need no sync. */
		if (r == 0 && !f->dead && fsync(f->obj_fd) < 0)
			r = neg_errno();
		if (r == 0)
			r = pass_set_mark(v, f->id, false);
		if (r < 0 && !f->dead) {
			volume_error(v, f, r, "cannot end passthrough");
			return; /* tried again */
		}
	}
	range_lock(&f->ranges, &all, 0, RANGE_END, true);
	pthread_mutex_lock(&f->lock);
	bool stale = f->pass_stale;

	if (f->pass == PASS_WRITE)
		stop_writing_locked(f);
	f->pass = PASS_NONE;
	if (stale)
		drop_stale_locked(f);
	pthread_mutex_unlock(&f->lock);
	range_unlock(&f->ranges, &all);
	atomic_store(&f->obj_shared, false);
	pass_leave(f);
	if (stale && v->env.invalidate)
		v->env.invalidate(v->env.ctx, &f->key);
	volume_wake(v);
}

void pass_scan_from_start_locked(struct tfile *f)
{
	f->pass_scan = 0;
	f->pass_scans++;
	f->pass_scan_ns = f->pass_mtime_ns;
}

/* pass_mutex held. Ends the state if nobody is left, or begins the scan that comes before. */
void pass_try_finish(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool used = f->pass == PASS_NONE || f->pass_opens > 0;
	bool final = f->pass_final, done = final && f->pass_scan == UINT64_MAX;

	pthread_mutex_unlock(&f->lock);
	if (used || (!f->dead && !final && pass_others(f->obj_fd)))
		return;
	if (!final && !pass_adopt(f, true) && !f->dead)
		return; /* the mtime that we know proves nothing; later */
	pthread_mutex_lock(&f->lock);
	bool scan = f->pass == PASS_WRITE && !final && f->pass_mtime_ns != f->pass_grant_ns;

	if (scan) {
		f->pass_final = true;
		pass_scan_from_start_locked(f);
	}
	pthread_mutex_unlock(&f->lock);
	if (f->dead || done || (!scan && !final))
		finish(f);
}

int tfile_pass_served(struct tfile *f, bool write)
{
	int r = 0;

	if (!pass_on(f))
		return 0;
	pthread_mutex_lock(&f->pass_mutex);
	pass_try_finish(f);
	pthread_mutex_lock(&f->lock);
	bool read_only = f->pass == PASS_READ;

	pthread_mutex_unlock(&f->lock);
	if (write && read_only)
		r = become_writable(f);
	pthread_mutex_unlock(&f->pass_mutex);
	return r;
}

void tfile_pass_end(struct tfile *f)
{
	pthread_mutex_lock(&f->pass_mutex);
	pthread_mutex_lock(&f->lock);
	assert(f->pass_opens > 0);
	bool last = --f->pass_opens == 0;

	if (last)
		warm_locked(f);
	pthread_mutex_unlock(&f->lock);
	if (last)
		pass_try_finish(f);
	pthread_mutex_unlock(&f->pass_mutex);
	if (last) {
		atomic_store(&f->v->pass_closed, true);
		volume_wake(f->v);
	}
}
