// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on content by read, write, truncate, fallocate and lseek. */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t handle_align(struct world *w, const struct handle *h)
{
	if (!(h->flags & O_DIRECT))
		return 1;
	return rng_one_in(&w->rng, 3) ? w->direct_align : 4096;
}

static bool is_sync(int flags)
{
	return flags & O_DSYNC; /* O_SYNC contains it */
}

/* One in eight is a handle that may not be usable for it: both sides must say EBADF. */
static struct handle *pick_writer(struct world *w)
{
	return pick_handle(w, false, !rng_one_in(&w->rng, 8), false);
}

static struct handle *pick_reader(struct world *w)
{
	return pick_handle(w, !rng_one_in(&w->rng, 8), false, false);
}

static ssize_t put(int fd, const unsigned char *buf, struct span s, bool vector)
{
	struct iovec iov[3];
	size_t third = s.len / 3;

	if (!vector)
		return pwrite(fd, buf, s.len, s.off);
	iov[0] = (struct iovec){ (void *)(uintptr_t)buf, third };
	iov[1] = (struct iovec){ (void *)(uintptr_t)(buf + third), third };
	iov[2] = (struct iovec){ (void *)(uintptr_t)(buf + 2 * third), s.len - 2 * third };
	return pwritev(fd, iov, 3, s.off);
}

static void prepare(struct world *w, struct node *n, off_t at, size_t len)
{
	pattern_fill(w->io[MNT], n->id, (uint32_t)w->step, at, len);
}

bool op_pwrite(struct world *w)
{
	struct handle *h = pick_writer(w);
	bool vector = rng_one_in(&w->rng, 8);
	struct outcome o;
	struct span s;
	off_t at, old;

	if (!h)
		return false;
	s = pick_span(&w->rng, handle_align(w, h));
	old = h->node->size;
	at = h->flags & O_APPEND ? old : s.off;
	s.len = h->flags & O_APPEND ? span_in_window(at, s.len).len : s.len;
	if (s.len == 0)
		return false;
	say(" fd%d #%u off %lld len %zu%s", (int)(h - w->handles), h->node->id, (long long)s.off,
	    s.len, vector ? " (vector)" : "");
	prepare(w, h->node, at, s.len);
	touch(w, h->node);
	BOTH(&o, put(h->fd[side], w->io[MNT], s, vector && !(h->flags & O_DIRECT)));
	if (agree(w, &o))
		durable_wrote(w, h->node, at, (size_t)o.ret[REF], old, is_sync(h->flags));
	return true;
}

/* Moves the position of both fds, or leaves it; returns it, -1 if there is nothing to do there. */
static off_t position(struct world *w, struct handle *h, struct span *s)
{
	bool move = h->flags & O_DIRECT || rng_one_in(&w->rng, 2);
	struct outcome o;

	if (move)
		BOTH(&o, lseek(h->fd[side], s->off, SEEK_SET));
	else
		BOTH(&o, lseek(h->fd[side], 0, SEEK_CUR));
	if (!agree(w, &o))
		return -1;
	if (!move)
		*s = span_in_window(o.ret[REF], s->len);
	return s->len ? s->off : -1;
}

static void check_positions(struct world *w, struct handle *h)
{
	struct outcome o;

	BOTH(&o, lseek(h->fd[side], 0, SEEK_CUR));
	agree(w, &o);
}

bool op_write(struct world *w)
{
	struct handle *h = pick_writer(w);
	struct outcome o;
	struct span s;
	off_t old;

	if (!h)
		return false;
	s = pick_span(&w->rng, handle_align(w, h));
	if (position(w, h, &s) < 0)
		return false;
	old = h->node->size;
	if (h->flags & O_APPEND)
		s = span_in_window(old, s.len);
	if (s.len == 0)
		return false;
	say(" fd%d #%u at %lld len %zu", (int)(h - w->handles), h->node->id, (long long)s.off,
	    s.len);
	prepare(w, h->node, s.off, s.len);
	touch(w, h->node);
	BOTH(&o, write(h->fd[side], w->io[MNT], s.len));
	if (agree(w, &o))
		durable_wrote(w, h->node, s.off, (size_t)o.ret[REF], old, is_sync(h->flags));
	check_positions(w, h);
	return true;
}

static void same_bytes(struct world *w, struct handle *h, off_t off, const struct outcome *o)
{
	size_t len = (size_t)o->ret[REF];

	if (memcmp(w->io[MNT], w->io[REF], len) != 0)
		fail_bytes(w, h->node, "what the call returned", off, w->io[MNT], w->io[REF], len);
}

bool op_pread(struct world *w)
{
	struct handle *h = pick_reader(w);
	struct outcome o;
	struct span s;

	if (!h)
		return false;
	s = pick_span(&w->rng, handle_align(w, h));
	say(" fd%d #%u off %lld len %zu", (int)(h - w->handles), h->node->id, (long long)s.off,
	    s.len);
	touch(w, h->node);
	BOTH(&o, pread(h->fd[side], w->io[side], s.len, s.off));
	if (agree(w, &o))
		same_bytes(w, h, s.off, &o);
	return true;
}

bool op_read(struct world *w)
{
	struct handle *h = pick_reader(w);
	struct outcome o;
	struct span s;

	if (!h)
		return false;
	s = pick_span(&w->rng, handle_align(w, h));
	if (position(w, h, &s) < 0)
		return false;
	say(" fd%d #%u at %lld len %zu", (int)(h - w->handles), h->node->id, (long long)s.off,
	    s.len);
	touch(w, h->node);
	BOTH(&o, read(h->fd[side], w->io[side], s.len));
	if (agree(w, &o))
		same_bytes(w, h, s.off, &o);
	check_positions(w, h);
	return true;
}

bool op_append(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	int flags = O_WRONLY | O_APPEND | (rng_one_in(&w->rng, 8) ? O_SYNC : 0);
	struct outcome o;
	struct node *n;
	struct span s;
	int fd[NSIDES];

	if (!e)
		return false;
	n = e->node;
	s = span_in_window(n->size, pick_span(&w->rng, 1).len);
	if (s.len == 0)
		return false;
	say(" #%u at %lld len %zu%s", n->id, (long long)s.off, s.len,
	    is_sync(flags) ? " O_SYNC" : "");
	touch(w, n);
	if (!open_pair(w, e, flags, fd))
		return true;
	prepare(w, n, s.off, s.len);
	BOTH(&o, write(fd[side], w->io[MNT], s.len));
	if (agree(w, &o))
		durable_wrote(w, n, s.off, (size_t)o.ret[REF], s.off, is_sync(flags));
	close_pair(w, fd);
	return true;
}

/* Open, write (a part, or all anew), close: what most programs do. */
bool op_path_write(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	int flags = O_WRONLY | (rng_one_in(&w->rng, 8) ? O_TRUNC : 0);
	struct span s = pick_span(&w->rng, 1);
	struct outcome o;
	struct node *n;
	int fd[NSIDES];
	off_t old;

	if (!e)
		return false;
	n = e->node;
	say(" #%u off %lld len %zu%s", n->id, (long long)s.off, s.len,
	    flags & O_TRUNC ? " O_TRUNC" : "");
	touch(w, n);
	if (!open_pair(w, e, flags, fd))
		return true;
	old = n->size;
	if (flags & O_TRUNC) {
		durable_resized(w, n, old);
		old = 0;
	}
	prepare(w, n, s.off, s.len);
	BOTH(&o, pwrite(fd[side], w->io[MNT], s.len, s.off));
	if (agree(w, &o))
		durable_wrote(w, n, s.off, (size_t)o.ret[REF], old, false);
	close_pair(w, fd);
	return true;
}

/* Short copies are allowed; what counts is the total. */
static ssize_t copy_all(int from, off_t from_off, int to, off_t to_off, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = copy_file_range(from, &from_off, to, &to_off, len - done, 0);

		if (n < 0)
			return done ? (ssize_t)done : -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

bool op_copy_range(struct world *w)
{
	struct ent *from = pick_ent(w, K_FILE), *to = pick_ent(w, K_FILE);
	struct span src = pick_span(&w->rng, 1), dst = pick_span(&w->rng, 1);
	int in[NSIDES], out[NSIDES];
	struct outcome o;
	off_t old;

	if (!from)
		return false;
	old = to->node->size;
	say(" #%u off %lld -> #%u off %lld len %zu", from->node->id, (long long)src.off,
	    to->node->id, (long long)dst.off, dst.len);
	touch(w, from->node);
	touch(w, to->node);
	if (!open_pair(w, from, O_RDONLY, in))
		return true;
	if (open_pair(w, to, O_WRONLY, out)) {
		BOTH(&o, copy_all(in[side], src.off, out[side], dst.off, dst.len));
		if (agree(w, &o) && o.ret[REF] > 0)
			durable_wrote(w, to->node, dst.off, (size_t)o.ret[REF], old, false);
		close_pair(w, out);
	}
	close_pair(w, in);
	return true;
}

static off_t pick_size(struct world *w, const struct node *n)
{
	off_t size;

	switch (rng_below(&w->rng, 8)) {
	case 0:
		return 0;
	case 1:
		return n->size;
	case 2:
		size = n->size + (off_t)rng_below(&w->rng, 9000) - 4500;
		return span_in_window(size, 1).len ? size : 0;
	default:
		return pick_offset(&w->rng);
	}
}

bool op_truncate(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	char path[PATH_BYTES];
	struct outcome o;
	off_t size, old;
	bool skip;

	if (!e)
		return false;
	size = pick_size(w, e->node);
	old = e->node->size;
	skip = sabotage_truncate(w);
	if (size == old) /* ext4 moves mtime, xfs does not */
		w->loose[0] = e->node;
	say(" #%u %lld -> %lld", e->node->id, (long long)old, (long long)size);
	touch(w, e->node);
	BOTH(&o, skip && side == MNT ? 0 : truncate(path_at(w, side, e->dir, e->name, path), size));
	if (agree(w, &o))
		durable_resized(w, e->node, old);
	return true;
}

bool op_ftruncate(struct world *w)
{
	struct handle *h = pick_writer(w);
	struct outcome o;
	off_t size, old;

	if (!h)
		return false;
	size = pick_size(w, h->node);
	old = h->node->size;
	say(" fd%d #%u %lld -> %lld", (int)(h - w->handles), h->node->id, (long long)old,
	    (long long)size);
	touch(w, h->node);
	BOTH(&o, ftruncate(h->fd[side], size));
	if (agree(w, &o))
		durable_resized(w, h->node, old);
	return true;
}

static const struct {
	int mode;
	const char *name;
} fallocs[] = {
	{ 0, "allocate" },
	{ FALLOC_FL_KEEP_SIZE, "allocate keep-size" },
	{ FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch" },
	{ FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch" },
	{ FALLOC_FL_ZERO_RANGE, "zero" },
	{ FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, "zero keep-size" },
};

static void falloc_done(struct world *w, struct node *n, int mode, struct span s, off_t old)
{
	off_t end = s.off + (off_t)s.len < old ? s.off + (off_t)s.len : old;

	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		durable_zeroed(w, n, s.off, end - s.off, old);
	else
		durable_resized(w, n, old);
}

bool op_fallocate(struct world *w)
{
	uint32_t kind = rng_below(&w->rng, sizeof(fallocs) / sizeof(fallocs[0]));
	struct handle *h = pick_writer(w);
	int mode = fallocs[kind].mode;
	struct outcome o;
	struct span s;
	off_t old;

	if (!h)
		return false;
	s = pick_span(&w->rng, rng_one_in(&w->rng, 2) ? 4096 : 1);
	if (mode & FALLOC_FL_PUNCH_HOLE && rng_one_in(&w->rng, 8))
		s.len = GIB(6);
	old = h->node->size;
	say(" %s fd%d #%u off %lld len %zu", fallocs[kind].name, (int)(h - w->handles), h->node->id,
	    (long long)s.off, s.len);
	touch(w, h->node);
	BOTH(&o, fallocate(h->fd[side], mode, s.off, (off_t)s.len));
	if (agree(w, &o))
		falloc_done(w, h->node, mode, s, old);
	return true;
}

/* The mount may know fewer or more holes than the reference, but none over data. */
static void check_seek(struct world *w, struct node *n, const int *fd, off_t off, int whence)
{
	off_t got = lseek(fd[MNT], off, whence);
	off_t data;

	if (off >= n->size) {
		if (got >= 0 || errno != ENXIO)
			fail(w, "lseek at or past the end gives %lld (%s), not ENXIO",
			     (long long)got, got < 0 ? strerror(errno) : "no error");
		return;
	}
	if (got < 0 && errno == ENXIO && whence == SEEK_DATA)
		got = n->size;
	if (got < off || got > n->size)
		fail(w, "lseek gives %lld (%s), the size is %lld", (long long)got,
		     got < 0 ? strerror(errno) : "no error", (long long)n->size);
	say(" = %lld", (long long)got);
	if (whence == SEEK_DATA) {
		check_zeros(w, n, fd[REF], off, got, "the hole before SEEK_DATA's result");
		return;
	}
	data = lseek(fd[MNT], got, SEEK_DATA);
	check_zeros(w, n, fd[REF], got, data < 0 ? n->size : data, "the hole that SEEK_HOLE found");
}

bool op_seek(struct world *w)
{
	int whence = rng_one_in(&w->rng, 2) ? SEEK_DATA : SEEK_HOLE;
	struct ent *e = pick_ent(w, K_FILE);
	off_t off = pick_offset(&w->rng);
	int fd[NSIDES];

	if (!e || e->node->lazy_mtime)
		return false;
	say(" #%u %s from %lld", e->node->id, whence == SEEK_DATA ? "SEEK_DATA" : "SEEK_HOLE",
	    (long long)off);
	touch(w, e->node);
	if (!open_pair(w, e, O_RDONLY, fd))
		return true;
	check_seek(w, e->node, fd, off, whence);
	close_pair(w, fd);
	return true;
}

static void synced(struct world *w, struct node *n, bool times)
{
	durable_synced(w, n);
	n->mtime_durable |= times;
	if (n->lazy_mtime)
		settle_mtimes(w, n);
}

void sync_node(struct world *w, struct node *n)
{
	for (int side = 0; side < NSIDES; side++) {
		int fd = node_open(w, side, n, O_RDONLY);

		if (fd < 0 && errno == ENODATA)
			return;
		if (fd < 0 || fsync(fd) < 0)
			fail(w, "open and fsync of file #%u on the %s: %s", n->id,
			     side == MNT ? "mount" : "reference", strerror(errno));
		close(fd);
	}
	synced(w, n, true);
}

static bool fsync_by_path(struct world *w, bool data_only)
{
	struct ent *e = pick_ent(w, K_FILE);
	struct outcome o;
	int fd[NSIDES];

	if (!e)
		return false;
	say("%s #%u by a new fd", data_only ? " (data)" : "", e->node->id);
	touch(w, e->node);
	if (!open_pair(w, e, O_RDONLY, fd))
		return true;
	BOTH(&o, data_only ? fdatasync(fd[side]) : fsync(fd[side]));
	if (agree(w, &o))
		synced(w, e->node, !data_only);
	close_pair(w, fd);
	return true;
}

bool op_fsync(struct world *w)
{
	bool data_only = rng_one_in(&w->rng, 2);
	struct handle *h = pick_handle(w, false, false, false);
	struct outcome o;

	if (!h || rng_one_in(&w->rng, 3))
		return fsync_by_path(w, data_only);
	say("%s fd%d #%u", data_only ? " (data)" : "", (int)(h - w->handles), h->node->id);
	touch(w, h->node);
	BOTH(&o, data_only ? fdatasync(h->fd[side]) : fsync(h->fd[side]));
	if (agree(w, &o))
		synced(w, h->node, !data_only);
	return true;
}
