// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What may be found after kill -9 of the daemon. Each file has the content of its last fsync (the
 * image) and the list of what was written since (versions). A byte may be that of the image or of
 * any later version; an O_SYNC write or msync narrows its range to itself. The size is one that the
 * file had since the fsync, or lies between two pieces of one write, which the kernel splits: at
 * multiples of --piece, or at any page where it has to fault in the caller's buffer.
 *
 * Zeros count as a version only where the file could be read as zeros at some time: a file that
 * comes back longer than its durable content, with zeros where data was written, is an error
 * (unless --lax-kill).
 */
#include "model.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More than this since the last fsync, and the test calls fsync itself. */
#define VERSIONS_MAX 64
#define SIZES_MAX    64
#define BYTES_MAX    (4u << 20)
#define PAGE	     4096

struct version {
	off_t off, len;
	unsigned char *data; /* owned; NULL: zeros */
	bool synced;	     /* what was before in this range is no longer possible */
};

/* The size was lo, then hi, by one write at base (-1: not by a write, nothing in between). */
struct size_step {
	off_t lo, hi, base;
};

struct durable {
	unsigned char *image[NWINDOWS];
	size_t image_len[NWINDOWS];
	off_t image_size;
	struct version versions[VERSIONS_MAX];
	unsigned int nversions, nsizes;
	struct size_step sizes[SIZES_MAX];
	size_t bytes;
};

static void forget_versions(struct durable *d)
{
	for (unsigned int i = 0; i < d->nversions; i++)
		free(d->versions[i].data);
	d->nversions = 0;
	d->bytes = 0;
}

void durable_free(struct node *n)
{
	struct durable *d = n->durable;

	if (!d)
		return;
	forget_versions(d);
	for (int i = 0; i < NWINDOWS; i++)
		free(d->image[i]);
	free(d);
	n->durable = NULL;
}

static int open_reference(struct world *w, struct node *n, int flags)
{
	char path[PATH_BYTES];
	int fd = node_open(w, REF, n, flags);

	if (fd < 0)
		fail(w, "open %s: %s", path_of(w, REF, n, path), strerror(errno));
	return fd;
}

static void *need(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

static void take_image(struct world *w, struct durable *d, int fd, off_t size)
{
	for (int i = 0; i < NWINDOWS; i++) {
		size_t len = window_len(i, size);

		d->image_len[i] = len;
		if (len == 0)
			continue;
		if (read_range(fd, w->win[REF], len, windows[i].off) < (ssize_t)len)
			fail(w, "the reference cannot be read: %s", strerror(errno));
		d->image[i] = need(realloc(d->image[i], len));
		memcpy(d->image[i], w->win[REF], len);
	}
}

/* A file without a name does not outlive the daemon, so nothing about it is kept. */
static bool tracked(const struct node *n)
{
	return n->durable && n->links;
}

void durable_synced(struct world *w, struct node *n)
{
	struct durable *d = n->durable;
	struct stat st;
	int fd;

	if (!tracked(n))
		return;
	fd = open_reference(w, n, O_RDONLY);
	if (fstat(fd, &st) < 0)
		fail(w, "fstat: %s", strerror(errno));
	forget_versions(d);
	take_image(w, d, fd, st.st_size);
	d->image_size = st.st_size;
	d->sizes[0] = (struct size_step){ st.st_size, st.st_size, -1 };
	d->nsizes = 1;
	close(fd);
}

void durable_new(struct world *w, struct node *n)
{
	if (!w->cfg->kills)
		return;
	n->durable = need(calloc(1, sizeof(*n->durable)));
	durable_synced(w, n);
}

static void limit(struct world *w, struct node *n)
{
	struct durable *d = n->durable;

	if (d->nversions < VERSIONS_MAX - 2 && d->nsizes < SIZES_MAX - 1 && d->bytes < BYTES_MAX)
		return;
	say(" [history full: fsync]");
	sync_node(w, n);
}

static void add_version(struct durable *d, struct version v)
{
	assert(d->nversions < VERSIONS_MAX);
	if (v.len <= 0)
		return;
	d->versions[d->nversions++] = v;
	d->bytes += v.data ? (size_t)v.len : 0;
}

static void add_size(struct durable *d, off_t from, off_t to, off_t base)
{
	assert(d->nsizes < SIZES_MAX);
	if (from != to)
		d->sizes[d->nsizes++] = (struct size_step){ from, to, base };
}

static off_t size_of(struct world *w, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		fail(w, "fstat: %s", strerror(errno));
	return st.st_size;
}

/*
 * Before the bytes themselves, what lies between the end and off can be read as zeros.
 * A synchronous write makes the size durable, but not the data that was written below it without
 * fsync.
 */
void durable_wrote(struct world *w, struct node *n, off_t off, size_t len, off_t old_size,
		   bool sync)
{
	struct durable *d = n->durable;
	struct version v = { .off = off, .len = (off_t)len, .synced = sync };
	off_t size, gap;
	int fd;

	if (!tracked(n) || len == 0)
		return;
	fd = open_reference(w, n, O_RDONLY);
	size = size_of(w, fd);
	v.data = need(malloc(len));
	if (pread(fd, v.data, len, off) != (ssize_t)len)
		fail(w, "the reference cannot be read at %lld: %s", (long long)off,
		     strerror(errno));
	close(fd);
	gap = sync && d->image_size < old_size ? d->image_size : old_size;
	add_version(d, (struct version){ .off = gap, .len = off - gap });
	add_version(d, v);
	if (sync && size > old_size)
		d->sizes[0] = (struct size_step){ size, size, -1 };
	if (sync && size > old_size)
		d->nsizes = 1;
	else
		add_size(d, old_size, size, off);
	n->mtime_durable = false;
	limit(w, n);
}

void durable_resized(struct world *w, struct node *n, off_t old_size)
{
	struct durable *d = n->durable;
	off_t size;
	int fd;

	if (!tracked(n))
		return;
	fd = open_reference(w, n, O_RDONLY);
	size = size_of(w, fd);
	close(fd);
	/* Cut off or newly there: either way it could be read as zeros once the file is longer. */
	add_version(d, (struct version){ .off = size < old_size ? size : old_size,
					 .len = llabs(size - old_size) });
	add_size(d, old_size, size, -1);
	n->mtime_durable = false;
	limit(w, n);
}

void durable_zeroed(struct world *w, struct node *n, off_t off, off_t len, off_t old_size)
{
	if (!tracked(n))
		return;
	add_version(n->durable, (struct version){ .off = off, .len = len });
	durable_resized(w, n, old_size);
}

/* ---- after the restart --------------------------------------------------------------------- */

static bool size_in_step(const struct size_step *s, off_t size, off_t piece)
{
	if (size == s->lo || size == s->hi)
		return true;
	return s->base >= 0 && size > s->lo && size < s->hi &&
	       ((size - s->base) % piece == 0 || size % PAGE == 0);
}

static void verify_size(struct world *w, struct node *n, off_t size)
{
	const struct durable *d = n->durable;
	char path[PATH_BYTES];

	for (unsigned int i = 0; i < d->nsizes; i++)
		if (size_in_step(&d->sizes[i], size, w->cfg->piece))
			return;
	for (unsigned int i = 0; i < d->nsizes; i++)
		fprintf(stderr, "  size %lld -> %lld\n", (long long)d->sizes[i].lo,
			(long long)d->sizes[i].hi);
	fail(w, "after kill -9 the size of %s is %lld, which it never was since its last fsync",
	     path_of(w, MNT, n, path), (long long)size);
}

/* Marks in ok the bytes of found (at off, len) that the version allows. */
static void allow(const struct version *v, const unsigned char *found, off_t off, size_t len,
		  unsigned char *ok)
{
	off_t end = off + (off_t)len;
	off_t a = v->off > off ? v->off : off;
	off_t b = v->off + v->len < end ? v->off + v->len : end;

	for (off_t at = a; at < b; at++) {
		size_t i = (size_t)(at - off);
		bool same = found[i] == (v->data ? v->data[at - v->off] : 0);

		ok[i] = same || (ok[i] && !v->synced);
	}
}

static void allow_image(const struct world *w, const struct durable *d, int window,
			const unsigned char *found, size_t len, unsigned char *ok)
{
	for (size_t i = 0; i < len; i++) {
		if (i < d->image_len[window])
			ok[i] = found[i] == d->image[window][i];
		else
			ok[i] = w->cfg->lax_kill && found[i] == 0;
	}
}

static _Noreturn void fail_lost(struct world *w, struct node *n, int window, size_t at, size_t len)
{
	const struct durable *d = n->durable;
	off_t off = windows[window].off + (off_t)at;

	fprintf(stderr, "\nafter kill -9, offset %lld of file #%u: found %02x; the last fsync had ",
		(long long)off, n->id, w->win[MNT][at]);
	if (at < d->image_len[window])
		fprintf(stderr, "%02x", d->image[window][at]);
	else
		fprintf(stderr, "no such byte");
	for (unsigned int i = 0; i < d->nversions; i++) {
		const struct version *v = &d->versions[i];

		if (off < v->off || off >= v->off + v->len)
			continue;
		fprintf(stderr, "; then %02x%s", v->data ? v->data[off - v->off] : 0,
			v->synced ? " (synchronous)" : "");
	}
	fprintf(stderr, "\n(below, the reference is what was written last)\n");
	fail_byte_at(w, n, "after kill -9: no durable or later version", windows[window].off,
		     w->win[MNT], w->win[REF], len, at);
}

static void verify_window(struct world *w, struct node *n, int window, size_t len)
{
	static unsigned char ok[WINDOW_MAX];
	const struct durable *d = n->durable;

	allow_image(w, d, window, w->win[MNT], len, ok);
	for (unsigned int i = 0; i < d->nversions; i++)
		allow(&d->versions[i], w->win[MNT], windows[window].off, len, ok);
	for (size_t i = 0; i < len; i++)
		if (!ok[i])
			fail_lost(w, n, window, i, len);
}

/* Reads a window of both sides, checks it, and copies it to the reference. */
static void settle_window(struct world *w, struct node *n, const int *fd, int window, off_t size)
{
	size_t len = window_len(window, size);
	off_t off = windows[window].off;
	char path[PATH_BYTES];

	if (len == 0)
		return;
	memset(w->win[REF], 0, len);
	if (read_range(fd[REF], w->win[REF], len, off) < 0)
		fail(w, "the reference cannot be read: %s", strerror(errno));
	if (read_range(fd[MNT], w->win[MNT], len, off) < (ssize_t)len)
		fail(w, "after kill -9 %s cannot be read at %lld: %s", path_of(w, MNT, n, path),
		     (long long)off, strerror(errno));
	verify_window(w, n, window, len);
	if (memcmp(w->win[MNT], w->win[REF], len) != 0 &&
	    pwrite(fd[REF], w->win[MNT], len, off) != (ssize_t)len)
		die("cannot write to the reference: %s", strerror(errno));
}

/* A name and an open file must agree before anything is concluded from the size. */
static void verify_lstat(struct world *w, struct node *n, off_t size)
{
	char path[PATH_BYTES];
	struct stat st;

	if (lstat(path_of(w, MNT, n, path), &st) < 0 || st.st_size != size)
		fail(w, "after kill -9, fstat shows size %lld for %s, but lstat %lld",
		     (long long)size, path, (long long)st.st_size);
}

void durable_verify(struct world *w, struct node *n)
{
	char path[PATH_BYTES];
	int fd[NSIDES];
	off_t size;

	fd[REF] = open_reference(w, n, O_RDWR);
	fd[MNT] = node_open(w, MNT, n, O_RDONLY);
	if (fd[MNT] < 0)
		fail(w, "after kill -9, open %s: %s", path_of(w, MNT, n, path), strerror(errno));
	size = size_of(w, fd[MNT]);
	verify_size(w, n, size);
	verify_lstat(w, n, size);
	for (int i = 0; i < NWINDOWS; i++)
		settle_window(w, n, fd, i, size);
	if (ftruncate(fd[REF], size) < 0)
		die("cannot truncate on the reference: %s", strerror(errno));
	close(fd[MNT]);
	close(fd[REF]);
	durable_synced(w, n);
}

static bool certain(const struct durable *d, off_t off)
{
	for (unsigned int i = 0; i < d->nversions; i++)
		if (off >= d->versions[i].off && off < d->versions[i].off + d->versions[i].len)
			return false;
	return true;
}

bool durable_clean(const struct node *n)
{
	return n->durable && n->durable->nversions == 0;
}

off_t durable_certain_offset(struct world *w, struct node *n)
{
	const struct durable *d = n->durable;

	if (!d || !d->image_len[0])
		return -1;
	for (int i = 0; i < 64; i++) {
		off_t off = rng_below(&w->check_rng, (uint32_t)d->image_len[0]);

		if (certain(d, off))
			return off;
	}
	return -1;
}
