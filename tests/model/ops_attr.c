// SPDX-License-Identifier: GPL-2.0-or-later
/* Operations on attributes: mode, owner, times, extended attributes. */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *const xattrs[XATTR_NAMES] = {
	"user.a", "user.mime_type", "user.hybrid", "user.\xc3\xbc", "user.a.long.name.with.dots",
};

bool op_chmod(struct world *w)
{
	static const mode_t modes[] = {
		0644, 0600, 0755, 0400, 0, 04755, 02755, 06711, 01777, 07777
	};
	mode_t mode = modes[rng_below(&w->rng, 10)];
	struct handle *h = pick_handle(w, false, false, false);
	struct ent *e = pick_ent(w, K_FILE | K_DIR);
	char path[PATH_BYTES];
	struct outcome o;

	if (h && rng_one_in(&w->rng, 3)) {
		say(" fd%d #%u %04o", (int)(h - w->handles), h->node->id, mode);
		touch(w, h->node);
		BOTH(&o, fchmod(h->fd[side], mode));
		agree(w, &o);
		return true;
	}
	if (!e)
		return false;
	say(" #%u %04o", e->node->id, mode);
	touch(w, e->node);
	BOTH(&o, chmod(path_at(w, side, e->dir, e->name, path), mode));
	agree(w, &o);
	return true;
}

bool op_chown(struct world *w)
{
	static const uid_t ids[] = { 0, 1000, 65534, (uid_t)-1 };
	uid_t uid = ids[rng_below(&w->rng, 4)];
	gid_t gid = ids[rng_below(&w->rng, 4)];
	struct ent *e = pick_ent(w, K_ANY);
	char path[PATH_BYTES];
	struct outcome o;

	if (!e || geteuid() != 0)
		return false;
	say(" #%u %d:%d", e->node->id, (int)uid, (int)gid);
	touch(w, e->node);
	BOTH(&o, lchown(path_at(w, side, e->dir, e->name, path), uid, gid));
	agree(w, &o);
	return true;
}

static struct timespec pick_time(struct world *w)
{
	static const long nanos[] = { 0, 1, 999999999, 500000000 };
	struct timespec t = { .tv_sec = 1 + rng_below(&w->rng, 2000000000) };

	t.tv_nsec = rng_one_in(&w->rng, 2) ? nanos[rng_below(&w->rng, 4)] :
					     (long)rng_below(&w->rng, 1000000000);
	return t;
}

static struct timespec pick_time_arg(struct world *w)
{
	struct timespec t = pick_time(w);

	if (rng_one_in(&w->rng, 8))
		t.tv_nsec = rng_one_in(&w->rng, 2) ? UTIME_NOW : UTIME_OMIT;
	return t;
}

static bool is_explicit(const struct timespec *t)
{
	return t->tv_nsec != UTIME_NOW && t->tv_nsec != UTIME_OMIT;
}

static void check_atime(struct world *w, struct ent *e, const struct timespec *t)
{
	char path[PATH_BYTES];
	struct stat st;

	if (!is_explicit(t))
		return;
	if (lstat(path_at(w, MNT, e->dir, e->name, path), &st) < 0)
		fail(w, "lstat %s: %s", path, strerror(errno));
	if (!time_equal(st.st_atim, *t))
		fail(w, "atime of %s is %lld.%09ld, not what was just set", path,
		     (long long)st.st_atim.tv_sec, st.st_atim.tv_nsec);
}

static void say_time(const char *what, const struct timespec *t)
{
	if (is_explicit(t))
		say(" %s %lld.%09ld", what, (long long)t->tv_sec, t->tv_nsec);
	else
		say(" %s %s", what, t->tv_nsec == UTIME_NOW ? "now" : "omit");
}

bool op_utimens(struct world *w)
{
	struct timespec t[2] = { pick_time_arg(w), pick_time_arg(w) };
	struct ent *e = pick_ent(w, K_ANY);
	char path[PATH_BYTES];
	struct outcome o;

	if (!e)
		return false;
	if (e->node->lazy_mtime)
		sync_node(w, e->node);
	say(" #%u", e->node->id);
	say_time("atime", &t[0]);
	say_time("mtime", &t[1]);
	touch(w, e->node);
	BOTH(&o,
	     utimensat(AT_FDCWD, path_at(w, side, e->dir, e->name, path), t, AT_SYMLINK_NOFOLLOW));
	if (!agree(w, &o))
		return true;
	check_atime(w, e, &t[0]);
	if (is_explicit(&t[1])) {
		w->set_node = e->node;
		w->set_mtime = t[1];
	}
	if (t[1].tv_nsec != UTIME_OMIT)
		e->node->mtime_durable = w->cfg->strict_times && durable_clean(e->node);
	return true;
}

bool op_setxattr(struct world *w)
{
	static const int flag_values[] = { 0, 0, XATTR_CREATE, XATTR_REPLACE };
	const char *name = xattrs[rng_below(&w->rng, XATTR_NAMES)];
	size_t len = rng_one_in(&w->rng, 4) ? 0 : rng_below(&w->rng, XATTR_VALUE + 1);
	int flags = flag_values[rng_below(&w->rng, 4)];
	struct ent *e = pick_ent(w, K_ANY);
	char path[PATH_BYTES];
	struct outcome o;

	if (!e)
		return false;
	say(" #%u %s len %zu flags %d", e->node->id, name, len, flags);
	touch(w, e->node);
	pattern_fill(w->io[MNT], e->node->id, (uint32_t)w->step, 0, len);
	BOTH(&o, lsetxattr(path_at(w, side, e->dir, e->name, path), name, w->io[MNT], len, flags));
	agree(w, &o);
	compare_xattrs(w, e->node);
	return true;
}

bool op_removexattr(struct world *w)
{
	const char *name = xattrs[rng_below(&w->rng, XATTR_NAMES)];
	struct ent *e = pick_ent(w, K_ANY);
	char path[PATH_BYTES];
	struct outcome o;

	if (!e)
		return false;
	say(" #%u %s", e->node->id, name);
	touch(w, e->node);
	BOTH(&o, lremovexattr(path_at(w, side, e->dir, e->name, path), name));
	agree(w, &o);
	compare_xattrs(w, e->node);
	return true;
}
