// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/walk.h"

#include <errno.h>
#include <fts.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "db/base.h"

/* ---- inodes seen --------------------------------------------------------------------------- */

struct inode {
	uint64_t dev, ino;
};

/* Open addressing; an empty slot has ino 0, which no filesystem uses. */
struct inode_set {
	struct inode *slots; /* owned */
	size_t size, used;   /* size is a power of two, or 0 */
};

#define INODE_SET_FIRST_SIZE 1024u

static struct inode *slot_of(const struct inode_set *s, uint64_t dev, uint64_t ino)
{
	uint64_t hash = (ino ^ dev << 32) * UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (size_t)(hash >> 20) & (s->size - 1);

	while (s->slots[i].ino != 0 && (s->slots[i].ino != ino || s->slots[i].dev != dev))
		i = (i + 1) & (s->size - 1);
	return &s->slots[i];
}

static bool grow(struct inode_set *s)
{
	struct inode_set bigger = { .size = s->size ? 2 * s->size : INODE_SET_FIRST_SIZE };

	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	bigger.used = s->used;
	for (size_t i = 0; i < s->size; i++)
		if (s->slots[i].ino != 0)
			*slot_of(&bigger, s->slots[i].dev, s->slots[i].ino) = s->slots[i];
	free(s->slots);
	*s = bigger;
	return true;
}

/* True if it was in the set before. Without memory it is taken as new: counted twice at worst. */
static bool test_and_add(struct inode_set *s, uint64_t dev, uint64_t ino)
{
	struct inode *slot;

	if (ino == 0 || (3 * s->used >= 2 * s->size && !grow(s)))
		return false;
	slot = slot_of(s, dev, ino);
	if (slot->ino != 0)
		return true;
	*slot = (struct inode){ dev, ino };
	s->used++;
	return false;
}

/* ---- the walk ------------------------------------------------------------------------------ */

struct walk {
	struct inode_set seen;
	bool several_paths;
	walk_visit_fn visit;
	walk_error_fn error;
	void *arg;
};

static bool was_seen(struct walk *w, const struct stat *st)
{
	bool may_come_again = w->several_paths || (!S_ISDIR(st->st_mode) && st->st_nlink > 1);

	return may_come_again && test_and_add(&w->seen, st->st_dev, st->st_ino);
}

static enum walk_result visit_entry(struct walk *w, const FTSENT *f, dev_t root_dev)
{
	struct walk_entry e = {
		.path = f->fts_path,
		.st = f->fts_statp,
		.is_root = f->fts_level == FTS_ROOTLEVEL,
		.is_dir = f->fts_info == FTS_D,
	};

	if (e.st->st_dev != root_dev)
		return WALK_ON; /* another filesystem is mounted here */
	e.repeated = was_seen(w, e.st);
	return w->visit(&e, w->arg);
}

/* A file that went away between listing and visiting is no error, unless the user named it. */
static void report(const struct walk *w, const FTSENT *f, int err)
{
	if (err != ENOENT || f->fts_level == FTS_ROOTLEVEL)
		w->error(f->fts_path, err > 0 ? -err : -EIO, w->arg);
}

static enum walk_result take_entry(struct walk *w, const FTSENT *f, dev_t root_dev)
{
	switch (f->fts_info) {
	case FTS_D:
	case FTS_F:
		return visit_entry(w, f, root_dev);
	case FTS_DEFAULT: /* a FIFO, a socket, a device */
		return f->fts_level == FTS_ROOTLEVEL ? visit_entry(w, f, root_dev) : WALK_ON;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		report(w, f, f->fts_errno);
		return WALK_ON;
	case FTS_SL:
	case FTS_SLNONE:
		if (f->fts_level ==
		    FTS_ROOTLEVEL) /* it leads nowhere; ask once more for the cause */
			report(w, f, access(f->fts_path, F_OK) < 0 ? errno : ENOENT);
		return WALK_ON;
	default: /* FTS_DP: a directory once more, after its content; FTS_DC: a loop */
		return WALK_ON;
	}
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static enum walk_result walk_path(struct walk *w, char *path)
{
	char *const roots[] = { path, NULL };
	enum walk_result r = WALK_ON;
	dev_t root_dev = 0;
	FTSENT *f;
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_XDEV | FTS_NOCHDIR, by_name);

	if (!fts) {
		w->error(path, neg_errno(), w->arg);
		return WALK_ON;
	}
	errno = 0;
	while (r == WALK_ON && (f = fts_read(fts))) {
		if (f->fts_level == FTS_ROOTLEVEL && f->fts_info != FTS_NS)
			root_dev = f->fts_statp->st_dev;
		r = take_entry(w, f, root_dev);
		errno = 0;
	}
	if (r == WALK_ON && errno != 0)
		w->error(path, neg_errno(), w->arg);
	fts_close(fts);
	return r;
}

void walk_paths(char *const *paths, size_t n, walk_visit_fn visit, walk_error_fn error, void *arg)
{
	struct walk w = { .several_paths = n > 1, .visit = visit, .error = error, .arg = arg };

	for (size_t i = 0; i < n; i++)
		if (walk_path(&w, paths[i]) == WALK_STOP)
			break;
	free(w.seen.slots);
}
