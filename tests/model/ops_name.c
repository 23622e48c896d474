// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on names: open, link, unlink, rename, directories, symbolic links. */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ENTS_SOFT 50 /* room for what one operation adds, and for the model's ease */

static unsigned int ents_used(const struct world *w)
{
	unsigned int n = 0;

	for (int i = 0; i < ENTS_MAX; i++)
		n += w->ents[i].used;
	return n;
}

static bool room_for(const struct world *w, enum kind kind)
{
	unsigned int max = kind == K_FILE ? FILES_MAX : kind == K_DIR ? DIRS_MAX : LINKS_MAX;

	/* Not counted: files that live on without a name; handles are few. */
	return ents_used(w) < ENTS_SOFT && world_count(w, kind) < max;
}

static void say_loc(struct world *w, const char *what, struct loc l)
{
	char path[PATH_BYTES];
	const char *rel = path_at(w, REF, l.dir, l.name, path) + strlen(w->root[REF]) + 1;

	if (strlen(rel) > 60)
		say(" %s%.20s...%s", what, rel, rel + strlen(rel) - 8);
	else
		say(" %s%s", what, rel);
	if (l.ent)
		say(" (#%u)", l.ent->node->id);
}

static struct loc loc_of(struct ent *e)
{
	return (struct loc){ e->dir, e->name, e };
}

static void touch_loc(struct world *w, struct loc l)
{
	touch(w, l.dir);
	if (l.ent)
		touch(w, l.ent->node);
}

/* ---- open and close ------------------------------------------------------------------------ */

static int pick_flags(struct world *w)
{
	static const int modes[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR };
	int flags = modes[rng_below(&w->rng, 5)];

	if (flags != O_RDONLY && rng_one_in(&w->rng, 12))
		flags |= O_TRUNC;
	if (rng_one_in(&w->rng, 6))
		flags |= O_DIRECT;
	else if (rng_one_in(&w->rng, 5))
		flags |= O_APPEND;
	if (rng_one_in(&w->rng, 10))
		flags |= rng_one_in(&w->rng, 2) ? O_SYNC : O_DSYNC;
	if (rng_one_in(&w->rng, 20))
		flags |= O_NOFOLLOW;
	if (rng_one_in(&w->rng, 40))
		flags |= O_DIRECTORY;
	return flags;
}

static void say_flags(int flags, mode_t mode)
{
	static const char *const modes[] = { "O_RDONLY", "O_WRONLY", "O_RDWR", "?" };
	static const struct {
		int flag;
		const char *name;
	} names[] = {
		{ O_CREAT, "CREAT" },	      { O_EXCL, "EXCL" },     { O_TRUNC, "TRUNC" },
		{ O_APPEND, "APPEND" },	      { O_DIRECT, "DIRECT" }, { O_NOFOLLOW, "NOFOLLOW" },
		{ O_DIRECTORY, "DIRECTORY" },
	};

	say(" %s", modes[flags & O_ACCMODE]);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (flags & names[i].flag)
			say("|%s", names[i].name);
	if (flags & O_DSYNC)
		say("|%s", (flags & O_SYNC) == O_SYNC ? "SYNC" : "DSYNC");
	if (flags & O_CREAT)
		say(" %04o", mode);
}

/* Keeps a just opened pair, if there is room and it is a file. */
static bool keep_handle(struct world *w, struct node *n, const int *fd, int flags)
{
	struct handle *h = handle_new(w);

	if (!h)
		return false;
	memset(h, 0, sizeof(*h));
	h->node = n;
	h->fd[MNT] = fd[MNT];
	h->fd[REF] = fd[REF];
	h->flags = flags;
	n->handles++;
	say(" = fd%d", (int)(h - w->handles));
	return true;
}

static void opened(struct world *w, struct loc l, const int *fd, int flags)
{
	struct stat st;
	struct node *n;

	if (fstat(fd[REF], &st) < 0)
		fail(w, "fstat on the reference: %s", strerror(errno));
	n = node_by_ref_ino(w, st.st_ino);
	if (!n)
		n = world_add(w, K_FILE, l.dir, l.name);
	else if (flags & O_TRUNC)
		durable_resized(w, n, n->size);
	say(" #%u", n->id);
	touch(w, n);
	if (n->kind == K_FILE && keep_handle(w, n, fd, flags))
		return;
	close(fd[MNT]);
	close(fd[REF]);
}

static void open_at(struct world *w, struct loc l, int flags, mode_t mode)
{
	char path[PATH_BYTES];
	struct outcome o;
	int fd[NSIDES];

	say_loc(w, "", l);
	say_flags(flags, mode);
	touch_loc(w, l);
	for (int side = 0; side < NSIDES; side++) {
		int f = w->direct_ok[side] ? flags : flags & ~O_DIRECT;

		fd[side] = open(path_at(w, side, l.dir, l.name, path), f | O_CLOEXEC, mode);
		outcome_set(&o, side, fd[side] < 0 ? -1 : 0);
	}
	if (agree(w, &o))
		opened(w, l, fd, flags);
}

bool op_open(struct world *w)
{
	static const mode_t modes[] = { 0644, 0600, 0755, 0666, 0640, 04755, 0 };
	bool want_new = world_count(w, K_FILE) < FILES_MIN || rng_one_in(&w->rng, 4);
	mode_t mode = modes[rng_below(&w->rng, 7)];
	int flags = pick_flags(w);
	struct ent *e;

	if (want_new && room_for(w, K_FILE) && handle_new(w)) {
		flags = (flags & ~O_DIRECTORY) | O_CREAT | (rng_one_in(&w->rng, 2) ? O_EXCL : 0);
		open_at(w, pick_free_loc(w), flags, mode);
		return true;
	}
	if (rng_one_in(&w->rng, 30)) { /* ENOENT */
		open_at(w, pick_free_loc(w), flags, 0);
		return true;
	}
	e = pick_ent(w, rng_one_in(&w->rng, 12) ? K_ANY : K_FILE);
	if (!e)
		return false;
	if (e->node->kind != K_LINK && rng_one_in(&w->rng, 6))
		flags |= O_CREAT;
	if (rng_one_in(&w->rng, 30))
		flags |= O_CREAT | O_EXCL;
	open_at(w, loc_of(e), flags & O_CREAT ? flags & ~O_DIRECTORY : flags, mode);
	return true;
}

bool op_close(struct world *w)
{
	struct handle *h = pick_handle(w, false, false, false);
	struct outcome o;

	if (!h)
		return false;
	say(" fd%d #%u", (int)(h - w->handles), h->node->id);
	touch(w, h->node);
	BOTH(&o, close(h->fd[side]));
	agree(w, &o);
	h->fd[MNT] = h->fd[REF] = -1;
	if (!h->map[MNT] || rng_one_in(&w->rng, 2))
		handle_close(w, h);
	else
		say(", its mapping stays");
	return true;
}

bool op_fsync_dir(struct world *w)
{
	struct ent *e = rng_one_in(&w->rng, 3) ? NULL : pick_ent(w, K_DIR);
	struct node *dir = e ? e->node : w->root_node;
	struct outcome o;
	int fd[NSIDES];

	say(" #%u", dir->id);
	touch(w, dir);
	BOTH(&o, (fd[side] = node_open(w, side, dir, O_RDONLY | O_DIRECTORY)) < 0 ? -1 : 0);
	if (!agree(w, &o))
		return true;
	BOTH(&o, fsync(fd[side]));
	agree(w, &o);
	close_pair(w, fd);
	return true;
}

/* ---- link, unlink, rename ------------------------------------------------------------------ */

bool op_link(struct world *w)
{
	struct ent *e = pick_ent(w, rng_one_in(&w->rng, 12) ? K_ANY : K_FILE);
	char from[PATH_BYTES], to[PATH_BYTES];
	struct loc l = pick_loc(w);
	struct outcome o;

	if (!e || ents_used(w) >= ENTS_SOFT)
		return false;
	say_loc(w, "", loc_of(e));
	say_loc(w, "-> ", l);
	touch_loc(w, loc_of(e));
	touch_loc(w, l);
	BOTH(&o, linkat(AT_FDCWD, path_at(w, side, e->dir, e->name, from), AT_FDCWD,
			path_at(w, side, l.dir, l.name, to), 0));
	if (agree(w, &o))
		ent_add(w, l.dir, l.name, e->node);
	return true;
}

bool op_unlink(struct world *w)
{
	struct ent *e = pick_ent(w, rng_one_in(&w->rng, 20) ? K_ANY : K_FILE | K_LINK);
	char path[PATH_BYTES];
	struct outcome o;
	struct loc l;

	if (rng_one_in(&w->rng, 30))
		l = pick_free_loc(w);
	else if (!e || (world_count(w, K_FILE) <= FILES_MIN && e->node->kind == K_FILE))
		return false;
	else
		l = loc_of(e);
	say_loc(w, "", l);
	touch_loc(w, l);
	BOTH(&o, unlink(path_at(w, side, l.dir, l.name, path)));
	if (agree(w, &o))
		ent_remove(w, l.ent);
	return true;
}

static void renamed(struct world *w, struct ent *from, struct loc to, unsigned int flags)
{
	struct node *n = from->node;

	if (to.ent && to.ent->node == n) /* two names of one file: nothing happens */
		return;
	if (flags & RENAME_EXCHANGE) {
		from->node = to.ent->node;
		to.ent->node = n;
		return;
	}
	if (to.ent)
		ent_remove(w, to.ent);
	from->dir = to.dir;
	from->name = to.name;
}

bool op_rename(struct world *w)
{
	static const unsigned int kinds[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
	static const char *const kind_names[] = { "", " NOREPLACE", " EXCHANGE" };
	unsigned int flags = kinds[rng_below(&w->rng, 5)];
	struct ent *e = pick_ent(w, K_ANY), *other = pick_ent(w, K_ANY);
	char from[PATH_BYTES], to[PATH_BYTES];
	struct outcome o;
	struct loc l;

	if (!e)
		return false;
	l = rng_one_in(&w->rng, 3) ? loc_of(other) : pick_loc(w);
	/* Replacing must not use up the files. */
	if (l.ent && l.ent->node->kind == K_FILE && !flags && world_count(w, K_FILE) <= FILES_MIN)
		return false;
	say_loc(w, "", loc_of(e));
	say_loc(w, "-> ", l);
	say("%s", kind_names[flags]);
	touch_loc(w, loc_of(e));
	touch_loc(w, l);
	if (flags & RENAME_EXCHANGE) { /* xfs moves the mtime of a directory that changes parents */
		w->loose[0] = e->node;
		w->loose[1] = l.ent ? l.ent->node : NULL;
	}
	BOTH(&o, renameat2(AT_FDCWD, path_at(w, side, e->dir, e->name, from), AT_FDCWD,
			   path_at(w, side, l.dir, l.name, to), flags));
	if (agree(w, &o))
		renamed(w, e, l, flags);
	return true;
}

/* ---- directories and symbolic links -------------------------------------------------------- */

bool op_mkdir(struct world *w)
{
	static const mode_t modes[] = { 0755, 0700, 0777, 01777, 02755 };
	mode_t mode = modes[rng_below(&w->rng, 5)];
	struct loc l = pick_loc(w);
	char path[PATH_BYTES];
	struct outcome o;

	if (!room_for(w, K_DIR))
		return false;
	say_loc(w, "", l);
	say(" %04o", mode);
	touch_loc(w, l);
	BOTH(&o, mkdir(path_at(w, side, l.dir, l.name, path), mode));
	if (agree(w, &o))
		touch(w, world_add(w, K_DIR, l.dir, l.name));
	return true;
}

bool op_rmdir(struct world *w)
{
	struct ent *e = pick_ent(w, rng_one_in(&w->rng, 12) ? K_ANY : K_DIR);
	char path[PATH_BYTES];
	struct outcome o;

	if (!e)
		return false;
	say_loc(w, "", loc_of(e));
	touch_loc(w, loc_of(e));
	BOTH(&o, rmdir(path_at(w, side, e->dir, e->name, path)));
	if (agree(w, &o))
		ent_remove(w, e);
	return true;
}

static void pick_target_text(struct world *w, char *buf, size_t size)
{
	struct loc l = pick_loc(w);

	if (rng_one_in(&w->rng, 8)) {
		size_t len = 1 + rng_below(&w->rng, 400);

		memset(buf, 'x', len);
		buf[len] = '\0';
		return;
	}
	snprintf(buf, size, "%s%s", rng_one_in(&w->rng, 3) ? "../" : "", l.name);
}

bool op_symlink(struct world *w)
{
	char path[PATH_BYTES], target[512];
	struct loc l = pick_loc(w);
	struct outcome o;

	if (!room_for(w, K_LINK))
		return false;
	pick_target_text(w, target, sizeof(target));
	say_loc(w, "", l);
	say(" -> '%.20s'", target);
	touch_loc(w, l);
	BOTH(&o, symlink(target, path_at(w, side, l.dir, l.name, path)));
	if (agree(w, &o))
		touch(w, world_add(w, K_LINK, l.dir, l.name));
	return true;
}

static void look_follow(struct world *w, struct loc l)
{
	struct stat st[NSIDES];
	char path[PATH_BYTES];
	struct outcome o;

	BOTH(&o, stat(path_at(w, side, l.dir, l.name, path), &st[side]));
	if (!agree(w, &o))
		return;
	if (st[MNT].st_mode != st[REF].st_mode ||
	    (S_ISREG(st[REF].st_mode) && st[MNT].st_size != st[REF].st_size))
		fail(w, "stat: mode %o size %lld on the mount, mode %o size %lld on the reference",
		     st[MNT].st_mode, (long long)st[MNT].st_size, st[REF].st_mode,
		     (long long)st[REF].st_size);
}

/* stat, access, and a path that goes through a file. */
bool op_look(struct world *w)
{
	struct ent *e = pick_ent(w, K_ANY);
	struct loc l = e && !rng_one_in(&w->rng, 6) ? loc_of(e) : pick_free_loc(w);
	char path[PATH_BYTES];
	struct outcome o;
	struct stat st;

	say_loc(w, "", l);
	touch_loc(w, l);
	look_follow(w, l);
	BOTH(&o, access(path_at(w, side, l.dir, l.name, path), R_OK | X_OK));
	agree(w, &o);
	if (l.ent && l.ent->node->kind != K_FILE)
		return true;
	BOTH(&o, lstat(strncat(path_at(w, side, l.dir, l.name, path), "/x",
			       PATH_BYTES - 1 - strlen(path)),
		       &st));
	agree(w, &o);
	return true;
}

bool op_readdir(struct world *w)
{
	struct ent *e = rng_one_in(&w->rng, 3) ? NULL : pick_ent(w, K_DIR);
	struct node *dir = e ? e->node : w->root_node;

	say(" #%u", dir->id);
	touch(w, dir);
	return true;
}
