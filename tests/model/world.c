// SPDX-License-Identifier: GPL-2.0-or-later
/* What exists: nodes, names, handles. Kept in step with the reference by the operations. */
#include "model.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define L50 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX"

static const char *const names[] = {
	"f0",
	"f1",
	"f2",
	"f3",
	"f4",
	"f5",
	"f6",
	"f7",
	"f8",
	"f9",
	"data.db",
	"data.db-wal",
	".hidden",
	"na me",
	"\xc3\xbc.txt",
	"x.part",
	"-rf",
	"#sql-1.frm",
	"d0",
	"d1",
	"d2",
	"d3",
	"~tmp'\"$",
	".fuse_hidden00001",
	L50 L50 L50 L50 L50 "abcde", /* 255 bytes */
};

#define NNAMES (sizeof(names) / sizeof(names[0]))

static struct node *node_slot(struct world *w)
{
	for (int i = 0; i < NODES_MAX; i++)
		if (!w->nodes[i].used)
			return &w->nodes[i];
	assert(!"node table too small");
	return NULL;
}

static struct node *node_new(struct world *w, enum kind kind)
{
	struct node *n = node_slot(w);

	memset(n, 0, sizeof(*n));
	n->used = true;
	n->kind = kind;
	n->id = w->next_id++;
	return n;
}

static void *aligned(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for buffers");
	return p;
}

void world_init(struct world *w, const struct config *cfg)
{
	memset(w, 0, sizeof(*w));
	w->cfg = cfg;
	w->rng.state = cfg->seed;
	w->check_rng.state = cfg->seed ^ 0x636865636b;
	w->root[MNT] = cfg->tool ? cfg->src : cfg->mnt;
	w->root[REF] = cfg->ref;
	for (int side = 0; side < NSIDES; side++) {
		w->io[side] = aligned(IO_MAX);
		w->win[side] = aligned(WINDOW_MAX);
	}
	w->root_node = node_new(w, K_DIR);
}

void world_release(struct world *w)
{
	handles_close_all(w);
	for (int i = 0; i < NODES_MAX; i++)
		if (w->nodes[i].used)
			durable_free(&w->nodes[i]);
	for (int side = 0; side < NSIDES; side++) {
		munmap(w->io[side], IO_MAX);
		munmap(w->win[side], WINDOW_MAX);
	}
}

struct ent *ent_add(struct world *w, struct node *dir, const char *name, struct node *n)
{
	for (int i = 0; i < ENTS_MAX; i++) {
		struct ent *e = &w->ents[i];

		if (e->used)
			continue;
		*e = (struct ent){ .used = true, .dir = dir, .node = n, .name = name };
		n->links++;
		return e;
	}
	assert(!"name table too small");
	return NULL;
}

struct node *world_add(struct world *w, enum kind kind, struct node *dir, const char *name)
{
	struct node *n = node_new(w, kind);
	char path[PATH_BYTES];
	struct stat st;

	ent_add(w, dir, name, n);
	for (int side = 0; side < NSIDES; side++) {
		if (lstat(path_at(w, side, dir, name, path), &st) < 0)
			fail(w, "%s was created, but lstat says: %s", path, strerror(errno));
		n->ino[side] = st.st_ino;
		n->mtime[side] = st.st_mtim;
		n->size = st.st_size;
	}
	if (kind == K_FILE)
		durable_new(w, n);
	return n;
}

void node_drop_if_dead(struct node *n)
{
	if (n->links || n->handles)
		return;
	durable_free(n);
	n->used = false;
}

void ent_remove(struct world *w, struct ent *e)
{
	(void)w;
	e->used = false;
	e->node->links--;
	node_drop_if_dead(e->node);
}

struct ent *ent_find(struct world *w, const struct node *dir, const char *name)
{
	for (int i = 0; i < ENTS_MAX; i++) {
		struct ent *e = &w->ents[i];

		if (e->used && e->dir == dir && strcmp(e->name, name) == 0)
			return e;
	}
	return NULL;
}

struct ent *ent_of(struct world *w, const struct node *n)
{
	uint32_t skip = n->links ? rng_below(&w->check_rng, n->links) : 0;

	for (int i = 0; i < ENTS_MAX; i++)
		if (w->ents[i].used && w->ents[i].node == n && skip-- == 0)
			return &w->ents[i];
	return NULL;
}

unsigned int world_count(const struct world *w, enum kind kind)
{
	unsigned int count = 0;

	for (int i = 0; i < NODES_MAX; i++)
		count += w->nodes[i].used && w->nodes[i].kind == kind;
	return count;
}

struct node *node_by_ref_ino(struct world *w, ino_t ino)
{
	for (int i = 0; i < NODES_MAX; i++)
		if (w->nodes[i].used && w->nodes[i].ino[REF] == ino)
			return &w->nodes[i];
	return NULL;
}

struct ent *pick_ent(struct world *w, unsigned int kinds)
{
	struct ent *found[ENTS_MAX] = { NULL };
	uint32_t n = 0;

	for (int i = 0; i < ENTS_MAX; i++)
		if (w->ents[i].used && w->ents[i].node->kind & kinds)
			found[n++] = &w->ents[i];
	return n ? found[rng_below(&w->rng, n)] : NULL;
}

static struct node *pick_dir(struct world *w)
{
	struct ent *e = rng_one_in(&w->rng, 3) ? NULL : pick_ent(w, K_DIR);

	return e ? e->node : w->root_node;
}

struct loc pick_loc(struct world *w)
{
	struct loc l = { .dir = pick_dir(w), .name = names[rng_below(&w->rng, NNAMES)] };

	l.ent = ent_find(w, l.dir, l.name);
	return l;
}

struct loc pick_free_loc(struct world *w)
{
	struct loc l;

	do
		l = pick_loc(w);
	while (l.ent);
	return l;
}

static bool handle_fits(const struct handle *h, bool want_read, bool want_write, bool want_map)
{
	int mode = h->flags & O_ACCMODE;

	if (!h->node || (want_map && !h->map[MNT]) || (!want_map && h->fd[MNT] < 0))
		return false;
	return !(want_read && mode == O_WRONLY) && !(want_write && mode == O_RDONLY);
}

struct handle *pick_handle(struct world *w, bool want_read, bool want_write, bool want_map)
{
	struct handle *found[HANDLES_MAX];
	uint32_t n = 0;

	for (int i = 0; i < HANDLES_MAX; i++)
		if (handle_fits(&w->handles[i], want_read, want_write, want_map))
			found[n++] = &w->handles[i];
	return n ? found[rng_below(&w->rng, n)] : NULL;
}

struct handle *handle_of(struct world *w, const struct node *n)
{
	for (int i = 0; i < HANDLES_MAX; i++)
		if (w->handles[i].node == n && w->handles[i].fd[MNT] >= 0)
			return &w->handles[i];
	return NULL;
}

struct handle *handle_new(struct world *w)
{
	for (int i = 0; i < HANDLES_MAX; i++)
		if (!w->handles[i].node)
			return &w->handles[i];
	return NULL;
}

void handle_unmap(struct handle *h)
{
	for (int side = 0; side < NSIDES; side++) {
		if (h->map[side])
			munmap(h->map[side], h->map_len);
		h->map[side] = NULL;
	}
}

void handle_close(struct world *w, struct handle *h)
{
	struct node *n = h->node;

	(void)w;
	handle_unmap(h);
	for (int side = 0; side < NSIDES; side++)
		if (h->fd[side] >= 0)
			close(h->fd[side]);
	h->node = NULL;
	n->handles--;
	node_drop_if_dead(n);
}

void handles_close_all(struct world *w)
{
	for (int i = 0; i < HANDLES_MAX; i++)
		if (w->handles[i].node)
			handle_close(w, &w->handles[i]);
}

static size_t put_path(struct world *w, const struct node *dir, char *buf, size_t at)
{
	const struct ent *e;

	if (dir == w->root_node)
		return at;
	e = ent_of(w, dir);
	assert(e);
	at = put_path(w, e->dir, buf, at);
	return at + (size_t)snprintf(buf + at, PATH_BYTES - at, "/%s", e->name);
}

char *path_at(struct world *w, enum side side, const struct node *dir, const char *name, char *buf)
{
	size_t at = (size_t)snprintf(buf, PATH_BYTES, "%s", w->root[side]);

	at = put_path(w, dir, buf, at);
	snprintf(buf + at, PATH_BYTES - at, "/%s", name);
	return buf;
}

char *path_of(struct world *w, enum side side, const struct node *n, char *buf)
{
	const struct ent *e = ent_of(w, n);

	if (e)
		return path_at(w, side, e->dir, e->name, buf);
	snprintf(buf, PATH_BYTES, "%s%s", w->root[side],
		 n == w->root_node ? "" : "/(file without a name)");
	return buf;
}

int node_open(struct world *w, enum side side, struct node *n, int flags)
{
	char path[PATH_BYTES];
	const struct handle *h = handle_of(w, n);

	if (n->links || n == w->root_node) {
		path_of(w, side, n, path);
	} else if (h) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", h->fd[side]);
	} else {
		errno = ENODATA;
		return -1;
	}
	return open(path, flags | O_CLOEXEC);
}

void touch(struct world *w, struct node *n)
{
	for (unsigned int i = 0; i < w->ntouched; i++)
		if (w->touched[i] == n)
			return;
	assert(w->ntouched < TOUCHED_MAX);
	w->touched[w->ntouched++] = n;
}

void outcome_set(struct outcome *o, int side, long ret)
{
	o->err[side] = ret < 0 ? errno : 0;
	o->ret[side] = ret < 0 ? -1 : ret;
}

/* POSIX lets a filesystem choose between these two for a directory that is not empty. */
static int errno_class(int err)
{
	return err == EEXIST ? ENOTEMPTY : err;
}

bool agree(struct world *w, const struct outcome *o)
{
	bool same = o->ret[MNT] == o->ret[REF] &&
		    errno_class(o->err[MNT]) == errno_class(o->err[REF]);

	if (!same)
		fail(w, "the call returns %ld (%s) on the mount, but %ld (%s) on the reference",
		     o->ret[MNT], o->err[MNT] ? strerror(o->err[MNT]) : "no error", o->ret[REF],
		     o->err[REF] ? strerror(o->err[REF]) : "no error");
	if (o->ret[REF] < 0)
		say(" -> %s", strerrorname_np(o->err[REF]));
	return o->ret[REF] >= 0;
}

bool open_pair(struct world *w, const struct ent *e, int flags, int *fd)
{
	char path[PATH_BYTES];
	struct outcome o;

	for (int side = 0; side < NSIDES; side++) {
		fd[side] = open(path_at(w, side, e->dir, e->name, path), flags | O_CLOEXEC);
		outcome_set(&o, side, fd[side] < 0 ? -1 : 0);
	}
	return agree(w, &o);
}

void close_pair(struct world *w, const int *fd)
{
	struct outcome o;

	BOTH(&o, close(fd[side]));
	agree(w, &o);
}
