// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on content through mappings: fresh ones, and ones that are held while the file is
 * written, truncated, promoted and demoted, also after their fd was closed and their name removed.
 */
#include "model.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

/* A range inside the file, and the pages around it. */
struct target {
	off_t off, page_off;
	size_t len, page_len;
};

static bool pick_target(struct world *w, const struct node *n, struct target *t)
{
	struct span s = pick_span(&w->rng, 1);

	if (n->size == 0)
		return false;
	if (s.off >= n->size)
		s = span_in_window(
			rng_below(&w->rng, n->size > MIB(1) ? MIB(1) : (uint32_t)n->size), s.len);
	if (s.off + (off_t)s.len > n->size)
		s.len = (size_t)(n->size - s.off);
	t->off = s.off;
	t->len = s.len;
	t->page_off = s.off / PAGE * PAGE;
	t->page_len = (size_t)(s.off - t->page_off) + s.len;
	return s.len > 0;
}

/* Maps on both sides; what fails must fail alike. */
static bool map_pair(struct world *w, const int *fd, int prot, int flags, const struct target *t,
		     unsigned char **map)
{
	struct outcome o;

	for (int side = 0; side < NSIDES; side++) {
		map[side] = mmap(NULL, t->page_len, prot, flags, fd[side], t->page_off);
		outcome_set(&o, side, map[side] == MAP_FAILED ? -1 : 0);
	}
	return agree(w, &o);
}

static void unmap_pair(struct world *w, unsigned char *const *map, const struct target *t)
{
	struct outcome o;

	BOTH(&o, munmap(map[side], t->page_len));
	agree(w, &o);
}

/* Stores the pattern and, unless lazy, waits until it is in the file. */
static void store(struct world *w, struct node *n, unsigned char *const *map,
		  const struct target *t, bool lazy)
{
	size_t at = (size_t)(t->off - t->page_off);
	struct outcome o;

	pattern_fill(w->io[MNT], n->id, (uint32_t)w->step, t->off, t->len);
	for (int side = 0; side < NSIDES; side++)
		memcpy(map[side] + at, w->io[MNT], t->len);
	n->lazy_mtime |= lazy;
	w->mmap_store = true;
	if (!lazy) {
		BOTH(&o, msync(map[side], t->page_len, MS_SYNC));
		agree(w, &o);
	}
	durable_wrote(w, n, t->off, t->len, n->size, !lazy);
}

bool op_mmap_write(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	bool lazy = rng_one_in(&w->rng, 6);
	unsigned char *map[NSIDES];
	struct target t;
	int fd[NSIDES];

	if (!e || !pick_target(w, e->node, &t))
		return false;
	say(" #%u off %lld len %zu%s", e->node->id, (long long)t.off, t.len,
	    lazy ? " no msync" : "");
	touch(w, e->node);
	if (!open_pair(w, e, O_RDWR, fd))
		return true;
	if (map_pair(w, fd, PROT_READ | PROT_WRITE, MAP_SHARED, &t, map)) {
		store(w, e->node, map, &t, lazy);
		unmap_pair(w, map, &t);
	}
	close_pair(w, fd);
	return true;
}

/* A private mapping; one in two is also stored to, which must not reach the file. */
bool op_mmap_read(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	bool dirty = rng_one_in(&w->rng, 2);
	unsigned char *map[NSIDES];
	struct target t;
	int fd[NSIDES];

	if (!e || !pick_target(w, e->node, &t))
		return false;
	say(" #%u off %lld len %zu%s", e->node->id, (long long)t.off, t.len,
	    dirty ? " and store" : "");
	touch(w, e->node);
	if (!open_pair(w, e, O_RDONLY, fd))
		return true;
	if (map_pair(w, fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, &t, map)) {
		if (memcmp(map[MNT], map[REF], t.page_len) != 0)
			fail_bytes(w, e->node, "read through a private mapping", t.page_off,
				   map[MNT], map[REF], t.page_len);
		if (dirty)
			memset(map[MNT], 0xee, t.page_len);
		unmap_pair(w, map, &t);
	}
	close_pair(w, fd);
	return true;
}

/* Maps a part of an open file, perhaps reaching past its end, and keeps the mapping. */
bool op_map_hold(struct world *w)
{
	struct handle *h = pick_handle(w, true, true, false);
	struct span s = pick_span(&w->rng, PAGE);
	struct target t = { .page_off = s.off, .page_len = s.len };
	unsigned char *map[NSIDES];

	if (!h || h->map[MNT])
		return false;
	say(" fd%d #%u off %lld len %zu", (int)(h - w->handles), h->node->id, (long long)s.off,
	    s.len);
	touch(w, h->node);
	if (!map_pair(w, h->fd, PROT_READ | PROT_WRITE, MAP_SHARED, &t, map))
		return true;
	h->map[MNT] = map[MNT];
	h->map[REF] = map[REF];
	h->map_off = s.off;
	h->map_len = s.len;
	return true;
}

/* A random part of the mapping that lies inside the file. */
static bool pick_in_map(struct world *w, const struct handle *h, struct target *t)
{
	off_t end = h->map_off + (off_t)h->map_len;
	size_t room;

	end = end < h->node->size ? end : h->node->size;
	if (end <= h->map_off)
		return false;
	room = (size_t)(end - h->map_off);
	t->off = h->map_off + rng_below(&w->rng, (uint32_t)room);
	t->len = 1 + rng_below(&w->rng, (uint32_t)(end - t->off));
	if (rng_one_in(&w->rng, 2) && t->len > 5000)
		t->len = 1 + rng_below(&w->rng, 5000);
	t->page_off = t->off / PAGE * PAGE;
	t->page_len = (size_t)(t->off - t->page_off) + t->len;
	return true;
}

bool op_map_store(struct world *w)
{
	struct handle *h = pick_handle(w, false, false, true);
	bool lazy = rng_one_in(&w->rng, 5);
	unsigned char *at[NSIDES];
	struct target t;

	if (!h || !pick_in_map(w, h, &t))
		return false;
	say(" handle %d #%u off %lld len %zu%s", (int)(h - w->handles), h->node->id,
	    (long long)t.off, t.len, lazy ? " no msync" : "");
	touch(w, h->node);
	for (int side = 0; side < NSIDES; side++)
		at[side] = h->map[side] + (t.page_off - h->map_off);
	store(w, h->node, at, &t, lazy);
	return true;
}

bool op_map_drop(struct world *w)
{
	struct handle *h = pick_handle(w, false, false, true);

	if (!h)
		return false;
	say(" handle %d #%u%s", (int)(h - w->handles), h->node->id,
	    h->fd[MNT] < 0 ? " (its fd was closed before)" : "");
	touch(w, h->node);
	if (h->fd[MNT] < 0)
		handle_close(w, h);
	else
		handle_unmap(h);
	return true;
}
