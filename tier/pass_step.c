// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Passthrough in the background: looking for what programs have changed, ending the state when
 * nobody is left; the same at a flush, at mount and at unmount.
 */
#include "tier/pass.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS	  SECOND_NS
/* Reading for changes takes this much of the SSD's time at most, while programs are at work. */
#define SCAN_BYTES_PER_S (128ull << 20)
#define SCAN_STEP_BYTES	 (8ull << 20)

/* ---- the background ----------------------------------------------------------------------- */
/* The n-th file of the list, with a reference. */
static struct tfile *passing_at(struct volume *v, unsigned n)
{
	pthread_mutex_lock(&v->lists_lock);
	struct tfile *f = v->passing.head;

	while (f && n--)
		f = f->passing.next;
	if (f)
		tfile_ref(f);
	pthread_mutex_unlock(&v->lists_lock);
	return f;
}

static int64_t scan_pause_ns(const struct volume *v)
{
	return max_u64(v->opt.dirty_expire_s, 1) * SECOND_NS;
}

/* Has anything been written since the last scan began, and is it time for another? */
static void wish_scan(struct tfile *f, int64_t now_ns, bool now)
{
	pthread_mutex_lock(&f->lock);
	bool moved = f->pass == PASS_WRITE && f->pass_scan == UINT64_MAX && !f->pass_final &&
		     f->pass_mtime_ns != f->pass_scan_ns;

	if (moved && !f->pass_scan_at_ns && !now)
		f->pass_scan_at_ns = now_ns + scan_pause_ns(f->v);
	if (moved && (now || now_ns >= f->pass_scan_at_ns)) {
		pass_scan_from_start_locked(f);
		f->pass_scan_at_ns = 0;
	}
	pthread_mutex_unlock(&f->lock);
}

static bool scanning(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool yes = f->pass == PASS_WRITE && f->pass_scan != UINT64_MAX;

	pthread_mutex_unlock(&f->lock);
	return yes;
}

static void look_at(struct tfile *f, int64_t now_ns)
{
	(void)pass_adopt(f, true);
	wish_scan(f, now_ns, false);
	pthread_mutex_lock(&f->pass_mutex);
	pass_try_finish(f);
	pthread_mutex_unlock(&f->pass_mutex);
}

static int scan_next(struct tfile *f)
{
	int r = pass_scan_some(f, SCAN_STEP_BYTES);

	if (r < 0)
		volume_error(f->v, f, r, "cannot look for changes on the SSD");
	if (!scanning(f)) {
		pthread_mutex_lock(&f->pass_mutex);
		pass_try_finish(f);
		pthread_mutex_unlock(&f->pass_mutex);
	}
	return r;
}

int pass_step(struct volume *v, int64_t now_ns)
{
	struct tfile *f;
	bool look = now_ns >= v->pass_look_ns;
	int result = 0;

	look |= atomic_exchange(&v->pass_closed, false);
	if (look)
		v->pass_look_ns = now_ns + LOOK_NS;
	for (unsigned n = 0; look && (f = passing_at(v, n)); n++) {
		look_at(f, now_ns);
		tfile_put(f);
	}
	if (now_ns < v->pass_scan_ns)
		return 0;
	for (unsigned n = 0; result == 0 && (f = passing_at(v, n)); n++) {
		if (scanning(f)) {
			(void)scan_next(f);
			result = 1;
		}
		tfile_put(f);
	}
	if (result)
		v->pass_scan_ns = now_ns + (int64_t)(SCAN_STEP_BYTES * (uint64_t)SECOND_NS /
						     SCAN_BYTES_PER_S);
	return 0; /* the next piece is for its time: time_to_wait() */
}

/* A flush promises all that there is: no cut is under way meanwhile. */
static int adopt_for_flush(struct tfile *f)
{
	pthread_mutex_lock(&f->src_mutex);
	bool known = pass_adopt(f, true);

	pthread_mutex_unlock(&f->src_mutex);
	return known ? 0 : -EIO;
}

void volume_flush_begin(struct volume *v)
{
	atomic_fetch_add(&v->pass_flush, 1);
}

/* One scan of each file that is being written by others, begun after the flush was. */
int pass_flush_step(struct volume *v)
{
	uint64_t flush = atomic_load(&v->pass_flush);
	struct tfile *f;
	int result = 0;

	for (unsigned n = 0; result == 0 && (f = passing_at(v, n)); n++) {
		if (f->pass_flush != flush && !scanning(f)) {
			result = adopt_for_flush(f);
			if (result == 0)
				f->pass_flush = flush;
			wish_scan(f, 0, true);
			pthread_mutex_lock(&f->pass_mutex);
			pass_try_finish(f);
			pthread_mutex_unlock(&f->pass_mutex);
		}
		if (result == 0 && scanning(f)) {
			int r = scan_next(f);

			result = r < 0 ? r : 1;
		}
		tfile_put(f);
	}
	return result;
}

bool pass_flush_file(struct tfile *f, uint64_t budget, uint64_t *next, int *ret_r)
{
	bool begin = *next == 0 && pass_writing(f);

	if (!begin && *next != PASS_FLUSHING)
		return false;
	int r = begin ? adopt_for_flush(f) : 0;

	pthread_mutex_lock(&f->lock);
	if (begin)
		pass_scan_from_start_locked(f);
	pthread_mutex_unlock(&f->lock);
	*ret_r = r < 0 ? r : pass_scan_some(f, budget);
	*next = scanning(f) ? PASS_FLUSHING : PASS_FLUSHED;
	return *ret_r < 0 || *next == PASS_FLUSHING;
}

/* The kernel lets go of an object a moment after it has told us. */
#define LET_GO_TRIES 20
#define LET_GO_US    10000

int pass_let_go(struct tfile *f, uint64_t budget, uint64_t *next)
{
	for (unsigned i = 0; i < LET_GO_TRIES && pass_on(f); i++) {
		pthread_mutex_lock(&f->lock);
		bool used = f->pass_opens > 0;

		pthread_mutex_unlock(&f->lock);
		if (used)
			return -EBUSY;
		if (scanning(f)) {
			int r = pass_scan_some(f, budget);

			*next = PASS_FLUSHED | 2;
			return r < 0 ? r : 1;
		}
		pthread_mutex_lock(&f->pass_mutex);
		pass_try_finish(f);
		pthread_mutex_unlock(&f->pass_mutex);
		if (pass_on(f) && !scanning(f))
			usleep(LET_GO_US);
	}
	return pass_on(f) ? -EBUSY : 0;
}

/* ---- mount and unmount -------------------------------------------------------------------- */
/* SRC's size and mtime, or those it had; what was written since is in the object's. */
static void stat_src(struct tfile *f, uint64_t *ret_size, int64_t *ret_ns)
{
	_cleanup_close_ int fd = tfile_open_src(f, O_PATH);
	struct stat st;
	bool known = fd >= 0 && fstat(fd, &st) == 0;

	*ret_size = known ? (uint64_t)st.st_size : f->stamp.size;
	*ret_ns = known ? timespec_ns(st.st_mtim) : f->stamp.mtime_ns;
}

/*
 * The crash came while programs had the object for writing, and some may still have it. It is the
 * file (P1): what O_DSYNC and msync() made durable in it nobody told us. So the state is as it was,
 * without open files, and ends as always.
 */
bool pass_recover(struct tfile *f, int obj_fd)
{
	struct stat st;

	if (!f->pass_marked || fstat(obj_fd, &st) < 0 || tfile_hold_object(f) < 0)
		return false;
	f->pass_marked = false;
	uint64_t size;
	int64_t src_ns;

	stat_src(f, &size, &src_ns);
	pthread_mutex_lock(&f->lock);
	if (!f->attr_owned) {
		f->size = size;
		f->size_known = true;
	}
	int64_t known = f->attr_owned ? timespec_ns(f->mtime) : src_ns;
	int64_t now = timespec_ns(st.st_mtim);

	/* How it was when it was given away nobody knows: the last scan is due in any case. */
	pass_begin_writing_locked(f, INT64_MIN);
	f->pass_mtime_ns = now > known ? INT64_MIN : now;
	if (f->busy) /* SRC was being changed by us: the object decides */
		pass_distrust_locked(f, true);
	pthread_mutex_unlock(&f->lock);
	file_list_add(f->v, &f->v->passing, f, 0);
	if (atomic_load(&f->obj_shared))
		volume_log(f->v, 4, "%s: a program from before the crash still has it open",
			   f->path ? f->path : "(no path)");
	return true;
}

/* The object is shorter than SRC: the cut, or what made both longer, had reached one disk only. By
 * P1 that is the file, and SRC must not be longer. */
static void cut_src(struct tfile *f)
{
	uint64_t size;
	int64_t ns;

	stat_src(f, &size, &ns);
	pthread_mutex_lock(&f->lock);
	bool cut = f->pass == PASS_WRITE && !f->conflict && size > f->size;

	if (cut) {
		f->pending_to = f->truncate_pending ? min_u64(f->pending_to, f->size) : f->size;
		f->truncate_pending = true;
		f->cut_to = min_u64(f->cut_to, f->pending_to);
		tfile_changed_locked(f);
	}
	pthread_mutex_unlock(&f->lock);
	if (cut)
		redo_cut_at_mount(f);
}

/* Its size and times are right before anybody asks. A mark that stays must have its state: else the
 * next mount would take an object for the file that is not. */
static int recover_file(struct volume *v, uint64_t id)
{
	struct cat_file row;
	uint64_t seen = volume_departures(v);
	int r = catalog_find_id(v->cat, id, &row);
	struct tfile *f = NULL;

	if (r == 0) {
		r = tfile_get_loaded(v, &row, seen, &f);
		cat_file_release(&row);
	}
	if (r == 0) {
		f->pass_marked = true;
		r = tfile_load_map(f);
	}
	if (r == 0) {
		(void)pass_adopt(f, true); /* of the size: again before the state ends */
		cut_src(f);
	}
	/* Nobody got it: the row that comes before was not committed, or is gone. */
	if (r == -ENOENT || (r == 0 && !pass_on(f)))
		r = pass_set_mark(v, id, false);
	tfile_put(f);
	return r;
}

int pass_mount(struct volume *v)
{
	struct id_set ids = { 0 };
	int fd = openat(v->dir_fd, PASS_MARKS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	int r = dir ? 0 : neg_errno();

	if (!dir && fd >= 0)
		close(fd);
	while (r == 0 && (e = readdir(dir))) {
		uint64_t id = object_id_of_name(e->d_name);

		r = id ? id_set_reserve(&ids, 1) : 0;
		if (r == 0 && id)
			id_set_append(&ids, id);
	}
	if (dir)
		closedir(dir);
	for (unsigned i = 0; r == 0 && i < ids.n; i++)
		r = recover_file(v, ids.ids[i]);
	id_set_release(&ids);
	return r;
}

static void settle(struct tfile *f)
{
	pthread_mutex_lock(&f->pass_mutex);
	pass_try_finish(f);
	pthread_mutex_unlock(&f->pass_mutex);
	while (scanning(f) && f->pass_final && scan_next(f) == 0)
		continue;
}

bool pass_close(struct volume *v, bool settle_them)
{
	bool left = false;
	struct tfile *f;

	while ((f = file_list_first(v, &v->passing))) {
		if (settle_them)
			settle(f);
		if (pass_on(f)) {
			left |= pass_writing(f);
			pass_leave(f);
		}
		tfile_put(f);
	}
	return left;
}
