// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attributes, extended attributes, directories. Times follow rules: the mount's mtime moves if and
 * only if the reference's does, to a value within the operation's window; explicit values are
 * equal.
 */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel's coarse clock lags by up to one tick; HZ may be 100. */
#define TICK_NS 10000000
/* How long a store through a mapping may need to show in st_mtime (attribute caches). */
#define LATE_NS	     20000000
#define LATE_LOOKS   100
#define XATTR_LIST   4096
#define PRIVATE_NAME "user.hybridfs."

bool time_equal(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool time_before(struct timespec a, struct timespec b)
{
	return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static struct timespec time_minus_tick(struct timespec t)
{
	t.tv_nsec -= TICK_NS;
	if (t.tv_nsec < 0) {
		t.tv_nsec += 1000000000;
		t.tv_sec--;
	}
	return t;
}

static bool in_window(struct world *w, struct timespec t)
{
	return !time_before(t, time_minus_tick(w->op_start)) && !time_before(w->op_end, t);
}

/* lstat by a name, or fstat where there is none. False: no way to look (only mapped). */
static bool node_stat(struct world *w, enum side side, struct node *n, struct stat *st)
{
	const struct handle *h = handle_of(w, n);
	char path[PATH_BYTES];

	if (!n->links && n != w->root_node) {
		if (!h)
			return false;
		if (fstat(h->fd[side], st) < 0)
			fail(w, "fstat of open file #%u on the %s: %s", n->id,
			     side == MNT ? "mount" : "reference", strerror(errno));
		return true;
	}
	if (lstat(path_of(w, side, n, path), st) < 0)
		fail(w, "lstat %s: %s", path, strerror(errno));
	return true;
}

void record_mtimes(struct world *w, struct node *n)
{
	struct stat st;

	for (int side = 0; side < NSIDES; side++)
		if (node_stat(w, side, n, &st))
			n->mtime[side] = st.st_mtim;
}

#define T(t) (long long)(t).tv_sec, (t).tv_nsec

static _Noreturn void fail_mtime(struct world *w, struct node *n, const struct timespec *now,
				 const char *why)
{
	char path[PATH_BYTES];

	fail(w,
	     "mtime of %s: %s\n"
	     "  mount     was %lld.%09ld, is %lld.%09ld\n"
	     "  reference was %lld.%09ld, is %lld.%09ld\n"
	     "  window    %lld.%09ld to %lld.%09ld",
	     path_of(w, MNT, n, path), why, T(n->mtime[MNT]), T(now[MNT]), T(n->mtime[REF]),
	     T(now[REF]), T(w->op_start), T(w->op_end));
}

/* After a store through a mapping the kernel may show the old time until its attributes expire. */
static struct timespec late_mtime(struct world *w, struct node *n)
{
	struct timespec nap = { .tv_nsec = LATE_NS };
	struct stat st = { .st_mtim = n->mtime[MNT] };

	w->late_mtimes++;
	for (int i = 0; i < LATE_LOOKS && time_equal(st.st_mtim, n->mtime[MNT]); i++) {
		nanosleep(&nap, NULL);
		if (!node_stat(w, MNT, n, &st))
			break;
	}
	return st.st_mtim;
}

void settle_mtimes(struct world *w, struct node *n)
{
	struct stat st[NSIDES];

	for (int side = 0; side < NSIDES; side++)
		if (!node_stat(w, side, n, &st[side]))
			return;
	if (!time_equal(st[REF].st_mtim, n->mtime[REF]) &&
	    time_equal(st[MNT].st_mtim, n->mtime[MNT]))
		st[MNT].st_mtim = late_mtime(w, n);
	for (int side = 0; side < NSIDES; side++)
		n->mtime[side] = st[side].st_mtim;
	n->lazy_mtime = false;
}

static void compare_mtime(struct world *w, struct node *n, const struct stat *st)
{
	struct timespec now[NSIDES] = { st[MNT].st_mtim, st[REF].st_mtim };
	bool moved = !time_equal(now[MNT], n->mtime[MNT]);
	bool ref_moved = !time_equal(now[REF], n->mtime[REF]);

	if (n == w->set_node) {
		if (!time_equal(now[MNT], w->set_mtime))
			fail_mtime(w, n, now, "is not the value that was set");
		goto out;
	}
	if (n->lazy_mtime)
		return;
	if (ref_moved && !moved && w->mmap_store && !in_window(w, now[MNT])) {
		now[MNT] = late_mtime(w, n);
		moved = !time_equal(now[MNT], n->mtime[MNT]);
	}
	/* The time of an earlier step of the same tick may hide that this one's is late. */
	if (ref_moved && !moved && w->mmap_store)
		n->late_to = w->op_end;
	else if (!w->still && ref_moved)
		n->late_to = (struct timespec){ 0 };
	if (moved && !ref_moved && !time_before(n->late_to, now[MNT])) {
		n->late_to = (struct timespec){ 0 };
		w->late_mtimes++;
		goto out;
	}
	if (moved && w->still)
		fail_mtime(w, n, now, "moved, though nothing was changed");
	if ((n == w->loose[0] || n == w->loose[1]) && (!moved || in_window(w, now[MNT])))
		goto out;
	if (ref_moved && !in_window(w, now[MNT]))
		fail_mtime(w, n, now,
			   moved ? "moved, but to no time of this operation" : "did not move");
	/* Within one tick of the clock a second move is invisible on the reference. */
	if (!ref_moved && moved && !(in_window(w, now[REF]) && in_window(w, now[MNT])))
		fail_mtime(w, n, now, "moved, the reference's did not");
out:
	n->mtime[MNT] = now[MNT];
	n->mtime[REF] = now[REF];
}

#define SAME(field, fmt)                                                           \
	do {                                                                       \
		if (a->field != b->field)                                          \
			fail(w,                                                    \
			     #field " of %s (#%u): " fmt " on the mount, " fmt     \
				    " on the reference",                           \
			     path_of(w, MNT, n, path), n->id, a->field, b->field); \
	} while (0)

static void compare_stat(struct world *w, struct node *n, const struct stat *a,
			 const struct stat *b)
{
	char path[PATH_BYTES];

	SAME(st_mode, "%o");
	SAME(st_uid, "%u");
	SAME(st_gid, "%u");
	if (n->kind != K_DIR)
		SAME(st_size, "%ld");
	if (n->kind != K_DIR || w->dir_nlink_equal)
		SAME(st_nlink, "%lu");
	if (n->ino[MNT] && a->st_ino != n->ino[MNT])
		fail(w, "st_ino of %s was %llu, now it is %llu", path_of(w, MNT, n, path),
		     (unsigned long long)n->ino[MNT], (unsigned long long)a->st_ino);
	if (n->ino[REF] && b->st_ino != n->ino[REF])
		fail(w, "the model is wrong: %s is another file on the reference",
		     path_of(w, REF, n, path));
	n->size = b->st_size;
}

static void compare_link_target(struct world *w, struct node *n)
{
	char path[PATH_BYTES], target[NSIDES][512];

	for (int side = 0; side < NSIDES; side++) {
		ssize_t len = readlink(path_of(w, side, n, path), target[side], 511);

		if (len < 0)
			fail(w, "readlink %s: %s", path, strerror(errno));
		else
			target[side][len] = '\0';
	}
	if (strcmp(target[MNT], target[REF]) != 0)
		fail(w, "the target of %s is '%s' on the mount, '%s' on the reference", path,
		     target[MNT], target[REF]);
}

/* All fds show the same as the name does. */
static void compare_fstats(struct world *w, struct node *n, const struct stat *ref)
{
	struct stat st;

	for (int i = 0; i < HANDLES_MAX; i++) {
		const struct handle *h = &w->handles[i];

		if (h->node != n || h->fd[MNT] < 0)
			continue;
		if (fstat(h->fd[MNT], &st) < 0)
			fail(w, "fstat of fd%d: %s", i, strerror(errno));
		compare_stat(w, n, &st, ref);
	}
}

void compare_attrs(struct world *w, struct node *n)
{
	struct stat st[NSIDES];

	for (int side = 0; side < NSIDES; side++)
		if (!node_stat(w, side, n, &st[side]))
			return;
	compare_stat(w, n, &st[MNT], &st[REF]);
	compare_fstats(w, n, &st[REF]);
	if (!n->ino[MNT])
		n->ino[MNT] = st[MNT].st_ino;
	if (!n->ino[REF])
		n->ino[REF] = st[REF].st_ino;
	compare_mtime(w, n, st);
	if (n->kind == K_LINK)
		compare_link_target(w, n);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The user.* names in list, sorted; returns how many. */
static int xattr_names(char *list, ssize_t len, const char **names, int max)
{
	int n = 0;

	for (char *p = list; p < list + len && n < max; p += strlen(p) + 1)
		if (strncmp(p, "user.", 5) == 0)
			names[n++] = p;
	qsort(names, (size_t)n, sizeof(*names), by_name);
	return n;
}

static void compare_xattr_value(struct world *w, const char *name, const char *const *path)
{
	unsigned char value[NSIDES][2 * XATTR_VALUE];
	struct outcome o;

	BOTH(&o, lgetxattr(path[side], name, value[side], sizeof(value[side])));
	agree(w, &o);
	if (o.ret[REF] > 0 && memcmp(value[MNT], value[REF], (size_t)o.ret[REF]) != 0)
		fail(w, "the value of xattr %s of %s differs", name, path[MNT]);
}

void compare_xattrs(struct world *w, struct node *n)
{
	char path[NSIDES][PATH_BYTES], list[NSIDES][XATTR_LIST];
	const char *paths[NSIDES] = { path[MNT], path[REF] };
	const char *found[NSIDES][2 * XATTR_NAMES];
	const struct ent *e = ent_of(w, n);
	int count[NSIDES];

	if (!e)
		return;
	for (int side = 0; side < NSIDES; side++) {
		ssize_t len = llistxattr(path_at(w, side, e->dir, e->name, path[side]), list[side],
					 XATTR_LIST);

		if (len < 0)
			fail(w, "listxattr %s: %s", path[side], strerror(errno));
		count[side] = xattr_names(list[side], len, found[side], 2 * XATTR_NAMES);
	}
	for (int i = 0; i < count[MNT] || i < count[REF]; i++) {
		const char *a = i < count[MNT] ? found[MNT][i] : "(none)";
		const char *b = i < count[REF] ? found[REF][i] : "(none)";

		if (strcmp(a, b) != 0)
			fail(w, "xattrs of %s: %s on the mount, %s on the reference%s", path[MNT],
			     a, b,
			     strncmp(a, PRIVATE_NAME, strlen(PRIVATE_NAME)) ?
				     "" :
				     " (must not be listed)");
		compare_xattr_value(w, a, paths);
	}
}

struct listing {
	char name[ENTS_MAX][256];
	unsigned char type[ENTS_MAX];
	ino_t ino[ENTS_MAX];
	unsigned int count, dots;
};

static void list_dir(struct world *w, const char *path, bool is_root, struct listing *l)
{
	DIR *d = opendir(path);
	const struct dirent *de;

	l->count = l->dots = 0;
	if (!d)
		fail(w, "opendir %s: %s", path, strerror(errno));
	while ((errno = 0, de = readdir(d)) != NULL) {
		bool dots = strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0;

		l->dots += dots;
		if (dots || (is_root && strcmp(de->d_name, "lost+found") == 0))
			continue;
		if (l->count == ENTS_MAX)
			fail(w, "%s lists too many names, the last is '%s'", path, de->d_name);
		snprintf(l->name[l->count], 256, "%s", de->d_name);
		l->type[l->count] = de->d_type;
		l->ino[l->count++] = de->d_ino;
	}
	if (errno)
		fail(w, "readdir %s: %s", path, strerror(errno));
	closedir(d);
}

static const unsigned char dtypes[] = { [K_FILE] = DT_REG, [K_DIR] = DT_DIR, [K_LINK] = DT_LNK };

static void check_listed(struct world *w, const struct node *dir, const char *path, enum side side,
			 const struct listing *l, unsigned int i)
{
	const struct ent *e = ent_find(w, dir, l->name[i]);

	for (unsigned int k = 0; k < i; k++)
		if (strcmp(l->name[k], l->name[i]) == 0)
			fail(w, "%s lists '%s' twice", path, l->name[i]);
	if (!e)
		fail(w, "%s lists '%s', which does not exist", path, l->name[i]);
	if (l->type[i] != DT_UNKNOWN && l->type[i] != dtypes[e->node->kind])
		fail(w, "%s lists '%s' with type %u", path, l->name[i], l->type[i]);
	if (e->node->ino[side] && l->ino[i] != e->node->ino[side])
		fail(w, "%s lists '%s' with inode %llu, stat said %llu", path, l->name[i],
		     (unsigned long long)l->ino[i], (unsigned long long)e->node->ino[side]);
}

void compare_dir(struct world *w, struct node *n)
{
	static struct listing l;
	char path[PATH_BYTES];
	unsigned int expect = 0;

	for (int i = 0; i < ENTS_MAX; i++)
		expect += w->ents[i].used && w->ents[i].dir == n;
	for (int side = 0; side < NSIDES; side++) {
		list_dir(w, path_of(w, side, n, path), n == w->root_node, &l);
		for (unsigned int i = 0; i < l.count; i++)
			check_listed(w, n, path, side, &l, i);
		if (l.count != expect)
			fail(w, "%s lists %u names, but %u exist", path, l.count, expect);
		if (l.dots != 2)
			fail(w, "%s lists '.' and '..' %u times together", path, l.dots);
	}
}

void compare_touched(struct world *w)
{
	for (unsigned int i = 0; i < w->ntouched; i++) {
		struct node *n = w->touched[i];

		if (!n->used)
			continue;
		compare_attrs(w, n);
		if (n->kind == K_DIR)
			compare_dir(w, n);
		if (n->kind == K_FILE)
			compare_content(w, n);
		if (rng_one_in(&w->check_rng, 8))
			compare_xattrs(w, n);
		if (n->kind == K_FILE && rng_one_in(&w->check_rng, 8))
			compare_holes(w, n);
	}
}

static void begin_all(struct world *w)
{
	w->still = true;
	w->mmap_store = false;
	w->loose[0] = w->loose[1] = NULL;
	w->set_node = NULL;
}

void compare_all_attrs(struct world *w)
{
	begin_all(w);
	for (int i = 0; i < NODES_MAX; i++)
		if (w->nodes[i].used)
			compare_attrs(w, &w->nodes[i]);
}

void compare_all(struct world *w)
{
	begin_all(w);
	w->full_compares++;
	for (int i = 0; i < NODES_MAX; i++) {
		struct node *n = &w->nodes[i];

		if (!n->used)
			continue;
		watch_alive();
		compare_attrs(w, n);
		compare_xattrs(w, n);
		if (n->kind == K_DIR)
			compare_dir(w, n);
		if (n->kind != K_FILE)
			continue;
		compare_content(w, n);
		compare_holes(w, n);
	}
}
