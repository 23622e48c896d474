// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/passthrough.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "db/base.h"
#include "fs/compat.h"
#include "fs/fs.h"
#include "fs/log.h"
#include "fs/ops.h"

#define CHAINS 1024u

enum way { WAY_CACHED, WAY_PASS };

struct open_way {
	struct open_way *next;	    /* of the chain; passthrough.lock */
	const struct inode *inode;  /* constant; the open files hold references */
	unsigned refs;		    /* passthrough.lock */
	pthread_mutex_t lock;	    /* everything below */
	enum way way;		    /* while opens > 0 */
	unsigned opens;		    /* open files that go this way */
	int backing_id;		    /* while WAY_PASS */
	bool written;		    /* some of them was for writing */
	bool privs;		    /* it got setuid or the like while open ... */
	int64_t privs_ns;	    /* ... when the object had this mtime */
};

struct passthrough {
	pthread_mutex_t lock; /* the chains; held over nothing */
	struct open_way *chains[CHAINS];
	_Atomic bool refused; /* by the kernel */
	char why[64];	      /* constant once `refused` is set */
};

/* ---- the table ----------------------------------------------------------------------------- */
struct passthrough *passthrough_new(void)
{
	struct passthrough *p = calloc(1, sizeof(*p));

	if (p)
		pthread_mutex_init(&p->lock, NULL);
	return p;
}

void passthrough_free(struct passthrough *p)
{
	if (!p)
		return;
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static struct open_way **chain_of(struct passthrough *p, const struct inode *i)
{
	return &p->chains[(i->hash ^ i->hash >> 10) % CHAINS];
}

static struct open_way *find_locked(struct passthrough *p, const struct inode *i)
{
	struct open_way *w = *chain_of(p, i);

	while (w && w->inode != i)
		w = w->next;
	return w;
}

/* A reference, or NULL: it is not open (or, with `make`, no memory). */
static struct open_way *way_get(struct passthrough *p, const struct inode *i, bool make)
{
	struct open_way *fresh = make ? calloc(1, sizeof(*fresh)) : NULL;

	pthread_mutex_lock(&p->lock);
	struct open_way *w = find_locked(p, i);

	if (!w && fresh) {
		w = TAKE_PTR(fresh);
		w->inode = i;
		pthread_mutex_init(&w->lock, NULL);
		w->next = *chain_of(p, i);
		*chain_of(p, i) = w;
	}
	if (w)
		w->refs++;
	pthread_mutex_unlock(&p->lock);
	free(fresh);
	return w;
}

static void way_put(struct passthrough *p, struct open_way *w)
{
	pthread_mutex_lock(&p->lock);
	bool last = --w->refs == 0;

	if (last) {
		struct open_way **at = chain_of(p, w->inode);

		while (*at != w)
			at = &(*at)->next;
		*at = w->next;
	}
	pthread_mutex_unlock(&p->lock);
	if (last) {
		pthread_mutex_destroy(&w->lock);
		free(w);
	}
}

/* ---- the kernel ---------------------------------------------------------------------------- */
/* It will not do it for any file: no need to ask again. */
static void refused(struct passthrough *p, int err)
{
	if (err != EPERM && err != ENOTTY && err != EOPNOTSUPP && err != ELOOP)
		return;
	if (!atomic_load(&p->refused))
		snprintf(p->why, sizeof(p->why), "the kernel refuses it: %s", strerror(err));
	atomic_store(&p->refused, true);
}

static int register_object(struct fs *fs, struct tfile *f)
{
	int fd = tfile_pass_fd(f);

	if (fd < 0)
		return fd;
	int id = compat_backing_open(fs->session, fd);

	close(fd);
	if (id < 0)
		refused(fs->pass, -id);
	return id;
}

/* ---- deciding ------------------------------------------------------------------------------ */
static bool is_writer(const struct open_file *h)
{
	return (h->flags & O_ACCMODE) != O_RDONLY || (h->flags & O_TRUNC);
}

/*
 * `hybridfs` commands ask for a file's placement, and for its eviction: they must neither hold the
 * object nor decide for others. No program reads like that (fs/cmd/client.c).
 */
static bool is_command(const struct open_file *h)
{
	return (h->flags & O_ACCMODE) == O_RDONLY && (h->flags & O_DIRECT) &&
	       (h->flags & O_NONBLOCK);
}

/* May the kernel read and write the object without asking? Writing not where a file grows without
 * bound, nor where a write takes setuid or the like away. O_DIRECT is as on the SSD's filesystem
 * then: it has to be aligned, which many do not know. */
static bool may_go_past_us(const struct open_file *h, int fd)
{
	bool writer = is_writer(h);

	if (writer && ((h->flags & (O_APPEND | O_TRUNC)) || attr_has_privs(h->head.inode, fd)))
		return false;
	return (!writer && !(h->flags & O_DIRECT)) || !tfile_why_no_pass(h->file, true);
}

/* The first open file. Anything that fails leaves the cached way. */
static void decide(struct fs *fs, struct open_way *w, struct open_file *h, int fd)
{
	bool writer = is_writer(h);

	w->way = WAY_CACHED;
	w->written = w->privs = false;
	if (atomic_load(&fs->pass->refused) || !may_go_past_us(h, fd) ||
	    tfile_pass_begin(h->file, writer, false) < 0)
		return;
	w->backing_id = register_object(fs, h->file);
	if (w->backing_id <= 0) {
		tfile_pass_end(h->file);
		return;
	}
	w->way = WAY_PASS;
	h->pass = PASS_PLAIN;
}

/* Another one while the object is given away: there is no choice but how much we are asked. */
static int follow(struct open_file *h, int fd)
{
	int r = tfile_pass_begin(h->file, is_writer(h), true);

	if (r == 0)
		h->pass = may_go_past_us(h, fd) ? PASS_PLAIN : PASS_ASKED;
	return r;
}

static int join(struct fs *fs, struct open_way *w, struct open_file *h, int fd)
{
	int r = 0;

	if (w->opens == 0)
		decide(fs, w, h, fd);
	else if (w->way == WAY_PASS)
		r = follow(h, fd);
	if (r == 0 && !h->pass)
		r = tfile_pass_served(h->file, is_writer(h));
	if (r < 0)
		return r;
	w->opens++;
	w->written |= is_writer(h);
	h->backing_id = h->pass ? w->backing_id : 0;
	return 0;
}

/* True: it goes no way that others would have to go as well. */
static bool stand_aside(struct passthrough *p, struct open_file *h)
{
	struct open_way *w = way_get(p, h->head.inode, false);
	bool aside = true;

	if (w) {
		pthread_mutex_lock(&w->lock);
		aside = w->opens == 0 || w->way == WAY_CACHED;
		pthread_mutex_unlock(&w->lock);
		way_put(p, w);
	}
	return aside;
}

int passthrough_open(fuse_req_t req, struct open_file *h, int fd)
{
	struct fs *fs = fs_of(req);
	struct passthrough *p = fs->pass;

	if (!p)
		return 0;
	if (is_command(h) && stand_aside(p, h)) {
		h->pass = PASS_ASIDE;
		return 0;
	}
	struct open_way *w = way_get(p, h->head.inode, true);

	if (!w)
		return -ENOMEM;
	pthread_mutex_lock(&w->lock);
	int r = join(fs, w, h, fd);

	pthread_mutex_unlock(&w->lock);
	if (r < 0)
		way_put(p, w);
	else
		h->way = w;
	return r;
}

/* ---- closing ------------------------------------------------------------------------------- */
/* Written to since it got its setuid bit, by whom a write takes it away? */
static bool lost_privs(const struct open_way *w, const struct open_file *h)
{
	return w->privs && h->uid != 0 && is_writer(h) && h->pass == PASS_PLAIN &&
	       tfile_pass_mtime(h->file) != w->privs_ns;
}

static void leave(struct fs *fs, struct open_way *w, struct open_file *h)
{
	if (lost_privs(w, h)) {
		attr_drop_all_privs(fs, h->head.inode, h->file);
		w->privs = false;
	}
	if (h->pass == PASS_PLAIN || h->pass == PASS_ASKED)
		tfile_pass_end(h->file);
	if (--w->opens > 0 || w->way != WAY_PASS)
		return;
	if (fs->session)
		compat_backing_close(fs->session, w->backing_id);
	/* Pages that the kernel cached before are not what was written since. */
	if (w->written)
		inode_set(h->head.inode, INODE_STALE);
}

void passthrough_close(struct fs *fs, struct open_file *h)
{
	struct open_way *w = h->way;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	leave(fs, w, h);
	pthread_mutex_unlock(&w->lock);
	h->way = NULL;
	way_put(fs->pass, w);
}

int passthrough_reply_open(fuse_req_t req, const struct open_file *h,
			   const struct fuse_file_info *fi)
{
	struct fuse_file_info direct = *fi;

	if (h->pass == PASS_PLAIN || h->pass == PASS_ASKED)
		return compat_reply_open(req, fi, h->backing_id, h->pass == PASS_ASKED);
	direct.direct_io = h->pass == PASS_ASIDE;
	return fuse_reply_open(req, &direct);
}

/* ---- setuid and the like ------------------------------------------------------------------- */
void passthrough_got_privs(struct fs *fs, struct inode *i, struct tfile *f)
{
	struct open_way *w = fs->pass ? way_get(fs->pass, i, false) : NULL;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	if (w->opens && w->way == WAY_PASS) {
		w->privs = true;
		w->privs_ns = tfile_pass_mtime(f);
	}
	pthread_mutex_unlock(&w->lock);
	way_put(fs->pass, w);
}

/* ---- telling ------------------------------------------------------------------------------- */
const char *passthrough_mount_why_not(const struct fs *fs)
{
	if (!fs->opt->passthrough)
		return "switched off by passthrough=off";
	if (!fs->pass)
		return fs->privileged ? "not supported by this kernel" : "not mounted by root";
	return atomic_load(&fs->pass->refused) ? fs->pass->why : "";
}

void passthrough_why_not(struct fs *fs, struct inode *i, struct tfile *f, char *buf, size_t size)
{
	const char *why = passthrough_mount_why_not(fs);
	bool cached = false, passing = false;
	struct open_way *w = fs->pass ? way_get(fs->pass, i, false) : NULL;

	if (w) {
		pthread_mutex_lock(&w->lock);
		cached = w->opens && w->way == WAY_CACHED;
		passing = w->opens && w->way == WAY_PASS;
		pthread_mutex_unlock(&w->lock);
		way_put(fs->pass, w);
	}
	if (!*why && !passing)
		why = tfile_why_no_pass(f, false);
	if (!passing && (!why || !*why))
		why = cached ? "opened before: from the next open on" : "";
	snprintf(buf, size, "%s", passing || !why ? "" : why);
}
