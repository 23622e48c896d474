// SPDX-License-Identifier: GPL-2.0-or-later
/* A tracked file in use: its descriptors of SRC and object, and who needs them. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/pass.h"

/* ---- SRC's descriptor --------------------------------------------------------------------- */
static int open_plainly(struct tfile *f, int flags)
{
	struct volume *v = f->v;
	_cleanup_free_ char *path = NULL;

	if (!v->src->by_handle) {
		path = v->env.path_of ? v->env.path_of(v->env.ctx, &f->key) : NULL;
		pthread_mutex_lock(&f->lock);
		if (!path && f->path)
			path = strdup(f->path);
		pthread_mutex_unlock(&f->lock);
	}
	return src_open(v->src, &f->key, path, flags);
}

/*
 * The daemon of an ordinary user can not open his file when its mode forbids that even to him
 * (0444, as git does). Its owner gets these bits for the moment; only he gains by it. This moves
 * the ctime, which is a change of ours; without the busy mark, as a crash now is no conflict: size
 * and mtime stay.
 */
static int open_with_owner_bits(struct tfile *f, int flags)
{
	_cleanup_close_ int at = open_plainly(f, O_PATH);
	char proc[32];
	struct stat st;

	if (at < 0)
		return at;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", at);
	if (fstat(at, &st) < 0)
		return neg_errno();
	mode_t missing = ~st.st_mode & (S_IRUSR | S_IWUSR), mode = st.st_mode & 07777;

	if (!missing || st.st_uid != geteuid())
		return -EACCES;
	pthread_mutex_lock(&f->lock);
	f->src_inflight++;
	pthread_mutex_unlock(&f->lock);
	int fd = chmod(proc, mode | missing) < 0 ? neg_errno() : open_plainly(f, flags);

	/* Not if somebody has set another mode meanwhile. */
	if (fstat(at, &st) == 0 && (st.st_mode & 07777) == (mode | missing) &&
	    chmod(proc, mode) < 0)
		volume_error(f->v, f, neg_errno(), "cannot set the mode in SRC back");
	pthread_mutex_lock(&f->lock);
	src_changed_locked(f, false);
	pthread_mutex_unlock(&f->lock);
	return fd;
}

int tfile_open_src(struct tfile *f, int flags)
{
	int fd = open_plainly(f, flags);

	return fd == -EACCES && !(flags & O_PATH) ? open_with_owner_bits(f, flags) : fd;
}

/* The caller's descriptor, open for both, becomes one of ours. */
static int copy_descriptor(int lent)
{
	int fd = fcntl(lent, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return neg_errno();
	/* Not ours, and we are not root: with access times then. */
	if (fcntl(fd, F_SETFL, O_NONBLOCK | O_NOATIME) < 0)
		(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* `f->load_mutex` held: one opener at a time. */
static int open_src(struct tfile *f, bool writable, int lent)
{
	int flags = (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK;
	int fd = lent >= 0 ? copy_descriptor(lent) : tfile_open_src(f, flags | O_NOATIME);

	if (fd == -EPERM) /* not ours, and we are not root */
		fd = tfile_open_src(f, flags);
	if (fd < 0)
		return fd;
	if (f->src_fd < 0) {
		pthread_mutex_lock(&f->lock);
		f->src_fd = fd;
		pthread_mutex_unlock(&f->lock);
	} else {
		/* In place: I/O under way keeps its open file, new I/O finds the new one. */
		int r = dup3(fd, f->src_fd, O_CLOEXEC) < 0 ? neg_errno() : 0;

		close(fd);
		if (r < 0)
			return r;
	}
	f->src_writable = writable;
	return 0;
}

/* ---- the object's descriptor -------------------------------------------------------------- */
int tfile_hold_object(struct tfile *f)
{
	int r = 0;

	pthread_mutex_lock(&f->obj_mutex);
	if (f->obj_holds == 0 && f->id) {
		int fd = object_open(f->v, f->id);

		if (fd >= 0 || fd == -ENOENT)
			f->obj_fd = fd >= 0 ? fd : -1;
		else
			r = fd;
		pass_opened_locked(f);
	}
	if (r == 0)
		f->obj_holds++;
	pthread_mutex_unlock(&f->obj_mutex);
	return r;
}

void tfile_drop_object(struct tfile *f)
{
	pthread_mutex_lock(&f->obj_mutex);
	assert(f->obj_holds > 0);
	if (--f->obj_holds == 0 && f->obj_fd >= 0) {
		close(f->obj_fd);
		f->obj_fd = -1;
	}
	pthread_mutex_unlock(&f->obj_mutex);
}

int tfile_make_object(struct tfile *f)
{
	int r = 0;

	pthread_mutex_lock(&f->obj_mutex);
	assert(f->obj_holds > 0);
	if (f->lost) {
		r = -EIO; /* a new object would have zeros where the lost data was */
	} else if (f->obj_fd < 0) {
		uint64_t id = f->id ? f->id : atomic_fetch_add(&f->v->next_id, 1);
		int fd = object_create(f->v, id, &f->key, f->path);

		if (fd >= 0) {
			pthread_mutex_lock(&f->lock);
			f->id = id;
			f->obj_fd = fd;
			f->obj_new = f->obj_probed = true;
			pthread_mutex_unlock(&f->lock);
		} else {
			r = fd;
		}
	}
	pthread_mutex_unlock(&f->obj_mutex);
	return r;
}

/* ---- in use -------------------------------------------------------------------------------- */
bool tfile_in_use(struct tfile *f)
{
	pthread_mutex_lock(&f->load_mutex);
	bool yes = f->uses > 0;

	pthread_mutex_unlock(&f->load_mutex);
	return yes;
}

bool tfile_open_for_write(struct tfile *f)
{
	pthread_mutex_lock(&f->load_mutex);
	bool yes = f->src_fd >= 0 && f->src_writable;

	pthread_mutex_unlock(&f->load_mutex);
	return yes;
}

/* load_mutex held. */
static int use_locked(struct tfile *f, bool writable, int lent)
{
	bool open = f->src_fd < 0 || (writable && !f->src_writable);
	int r = open ? open_src(f, writable, lent) : 0;

	/* Size and stamp are known before anybody else may use it. */
	if (r == 0 && (open || !f->size_known))
		r = tfile_refresh(f);
	if (r == 0 && f->uses == 0)
		r = tfile_hold_object(f);
	if (r == 0 && f->tail_unsure)
		recover_tail(f);
	return r;
}

static void close_src(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	int fd = f->src_fd;

	f->src_fd = -1;
	f->src_writable = false;
	pthread_mutex_unlock(&f->lock);
	if (fd >= 0)
		close(fd);
}

static int use(struct tfile *f, bool writable, int lent)
{
	int r = tfile_load_map(f);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->load_mutex);
	r = use_locked(f, writable, lent);
	if (r == 0)
		f->uses++;
	else if (f->uses == 0)
		close_src(f);
	pthread_mutex_unlock(&f->load_mutex);
	return r;
}

int tfile_use(struct tfile *f, bool writable)
{
	return use(f, writable, -1);
}

int tfile_use_made(struct tfile *f, int fd)
{
	return use(f, true, fd);
}

void tfile_unuse(struct tfile *f)
{
	pthread_mutex_lock(&f->load_mutex);
	assert(f->uses > 0);
	if (f->uses == 1 && f->stamp_stale)
		(void)tfile_refresh(f); /* know the stamp, so that clean copies outlive this use */
	if (--f->uses == 0) {
		close_src(f);
		tfile_drop_object(f);
	}
	pthread_mutex_unlock(&f->load_mutex);
}

int tfile_src_fd(struct tfile *f)
{
	return f->src_fd;
}
