// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The catalog under check: opened without changing a byte, judged, and replaced.
 *
 * sqlite cannot read a catalog with a WAL (an unclean volume's) without making or changing its
 * -shm file, so a dry check looks at a copy.
 *
 * Replacing: (1) the new catalog is complete in catalog.db.rebuild; (2) the old one gets a second
 * name; (3) a file that is no catalog takes its place, so that a mount refuses from here on; (4)
 * the old WAL, which would be applied to whatever is called catalog.db, is moved aside, and the
 * journal with it; (5) the new one takes its place; (6) the mark of a mount goes. Crash before (3):
 * the old catalog, checked again. Between (3) and (5): the next repair does the rest. After: the
 * new one; with the mark, the next mount looks for what there is not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tier/check_internal.h"

#define CATALOG	    "catalog.db"
#define REBUILD	    "catalog.db.rebuild"
#define COPY_BYTES  (1u << 20)
#define SENTINEL    "hybridfs check --repair was interrupted here: run it again.\n"
#define TRIES_MAX   100u
#define ASIDE_MAX   96 /* bytes of a name */
#define COPY_FAILED "cannot copy the catalog, to look at it unchanged, to the temporary directory"

/* ---- a copy to look at -------------------------------------------------------------------- */
static int copy_data(int from, int to)
{
	_cleanup_free_ char *buf = malloc(COPY_BYTES);
	ssize_t n;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && (n = read(from, buf, COPY_BYTES)) != 0) {
		if (n < 0)
			return neg_errno();
		for (ssize_t at = 0; r == 0 && at < n;) {
			ssize_t done = write(to, buf + at, (size_t)(n - at));

			r = done < 0 ? neg_errno() : 0;
			at += done;
		}
	}
	return r;
}

static int copy_file(struct check *c, const char *source, const char *name)
{
	_cleanup_close_ int from =
		openat(c->l.dir_fd, source, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;

	if (from < 0)
		return errno == ENOENT ? 0 : neg_errno();
	_cleanup_close_ int to = openat(c->tmp_fd, name, flags, 0600);

	return to < 0 ? neg_errno() : copy_data(from, to);
}

static int make_copy(struct check *c)
{
	const char *base = c->opt->tmp_dir ?: "/tmp";

	if (asprintf(&c->tmp_path, "%s/hybridfs-check.XXXXXX", base) < 0) {
		c->tmp_path = NULL;
		return -ENOMEM;
	}
	if (!mkdtemp(c->tmp_path)) {
		int r = neg_errno();

		free(TAKE_PTR(c->tmp_path));
		return r;
	}
	c->tmp_fd = open(c->tmp_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->tmp_fd < 0)
		return neg_errno();
	if (c->interrupted)
		return copy_file(c, REBUILD, CATALOG);
	int r = copy_file(c, CATALOG, CATALOG);

	return r < 0 ? r : copy_file(c, CATALOG "-wal", CATALOG "-wal");
}

static void remove_copy(struct check *c)
{
	static const char *const names[] = { CATALOG, CATALOG "-wal", CATALOG "-shm" };

	if (c->tmp_fd >= 0) {
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			(void)unlinkat(c->tmp_fd, names[i], 0);
		close(c->tmp_fd);
		c->tmp_fd = -1;
	}
	if (c->tmp_path)
		(void)rmdir(c->tmp_path);
	free(TAKE_PTR(c->tmp_path));
}

/* ---- moving aside and into place ----------------------------------------------------------- */
static bool exists(const struct check *c, const char *name)
{
	return faccessat(c->l.dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int remove_if_there(struct check *c, const char *name)
{
	return unlinkat(c->l.dir_fd, name, 0) < 0 && errno != ENOENT ? neg_errno() : 0;
}

/* catalog.db.damaged-<time>[-part][.n] */
static void aside_name(const struct check *c, const char *part, unsigned n, char ret[ASIDE_MAX])
{
	time_t t = (time_t)c->opt->now_s;
	char when[32] = "";
	struct tm tm;

	if (gmtime_r(&t, &tm))
		strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	int len = snprintf(ret, ASIDE_MAX, CATALOG ".damaged-%.20s%s%s", when, *part ? "-" : "",
			   part);

	if (n)
		snprintf(ret + len, (size_t)(ASIDE_MAX - len), ".%u", n);
}

static int rename_aside(struct check *c, const char *name, const char *part)
{
	char aside[ASIDE_MAX];

	for (unsigned i = 0; i < TRIES_MAX; i++) {
		aside_name(c, part, i, aside);
		if (exists(c, aside))
			continue;
		return renameat(c->l.dir_fd, name, c->l.dir_fd, aside) < 0 ? neg_errno() : 0;
	}
	return -EEXIST;
}

/* What belongs to the old catalog: its WAL; the journal, unless it is empty or was replayed. */
static int move_companions_aside(struct check *c)
{
	static const char *const files[][2] = { { CATALOG "-wal", "wal" },
						{ "journal.0", "journal.0" },
						{ "journal.1", "journal.1" } };
	size_t n = c->unclean && !c->journal ? ARRAY_SIZE(files) : 1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (exists(c, files[i][0]))
			r = rename_aside(c, files[i][0], files[i][1]);
	if (r == 0)
		r = remove_if_there(c, CATALOG "-shm");
	if (r == 0)
		r = remove_if_there(c, CATALOG "-journal");
	return r == 0 && fsync(c->l.dir_fd) < 0 ? neg_errno() : r;
}

/* Steps (4) to (6). */
static int take_place(struct check *c)
{
	int r = move_companions_aside(c);

	if (r == 0 && renameat(c->l.dir_fd, REBUILD, c->l.dir_fd, CATALOG) < 0)
		r = neg_errno();
	if (r == 0 && fsync(c->l.dir_fd) < 0)
		r = neg_errno();
	return r < 0 ? r : layout_unmark(c->l.dir_fd);
}

/* ---- opening ------------------------------------------------------------------------------ */
static bool is_damage(int r)
{
	return r == -EUCLEAN || r == -EIO;
}

static int damaged(struct check *c, const char *text, char **ret_why)
{
	*ret_why = strdup(text);
	return *ret_why ? CATALOG_DAMAGED : check_fail(c, -ENOMEM, CATALOG);
}

static int judge(struct check *c, int r, const char *text, char **ret_why)
{
	if (is_damage(r))
		return damaged(c, text, ret_why);
	if (r == -EPROTONOSUPPORT)
		return check_fail(c, r, "catalog.db was made by a newer hybridfs");
	return check_fail(c, r, CATALOG);
}

/* Read-only, and every row looked at. */
static int open_and_verify(struct check *c, int dir_fd, char **ret_why)
{
	int r = catalog_open(dir_fd, CATALOG, true, &c->cat);

	if (r == -ENOENT)
		return CATALOG_NONE;
	if (r == -EOPNOTSUPP)
		return damaged(c, "of an older version", ret_why);
	if (r < 0)
		return judge(c, r, r == -EIO ? "cannot be read" : "is not a catalog of hybridfs",
			     ret_why);
	r = catalog_integrity_check(c->cat);
	return r < 0 ? judge(c, r, catalog_error(c->cat), ret_why) : CATALOG_GOOD;
}

static int meta_number(struct check *c, const char *key, uint64_t *ret)
{
	_cleanup_free_ char *value = NULL;
	int r = catalog_get_meta(c->cat, key, &value);

	if (r == 0)
		*ret = strtoull(value, NULL, 10);
	return r == -ENOENT ? 0 : r;
}

static void read_meta(struct check *c)
{
	uint64_t clean = 1;
	int r = meta_number(c, "clean", &clean);

	c->unclean = r < 0 || !clean || layout_is_marked(c->l.dir_fd);
	(void)meta_number(c, "next_id", &c->next_id); /* only if it can be read */
}

/* In the place of the read-only one. */
static int reopen_for_writing(struct check *c, int dir_fd)
{
	struct catalog *cat;
	int r = catalog_open(dir_fd, CATALOG, false, &cat);

	if (r < 0)
		return r;
	catalog_close(c->cat);
	c->cat = cat;
	return 0;
}

static int replay(struct check *c, char **ret_why)
{
	uint64_t frames;
	int r = check_replay_journal(c, &frames);

	if (r == -EINVAL || r == -ENOENT || r == -EEXIST || is_damage(r)) {
		c->journal_lost = true;
		return damaged(c, "contradicts the catalog", ret_why);
	}
	if (r < 0)
		return check_fail(c, r, "replaying the journal");
	if (frames)
		check_report(c, "journal", "journal", c->opt->repair ? CHECK_DONE : CHECK_WOULD,
			     true, "replay it", "%llu frames are not in the catalog yet",
			     (unsigned long long)frames);
	return CATALOG_GOOD;
}

static int open_good(struct check *c, char **ret_why)
{
	int dir_fd = c->l.dir_fd, r = 0;

	if (!c->opt->repair && !c->journal)
		return CATALOG_GOOD;
	if (!c->opt->repair) {
		r = c->tmp_fd < 0 ? make_copy(c) : 0;
		if (r < 0)
			return check_fail(c, r, COPY_FAILED);
		dir_fd = c->tmp_fd;
	}
	r = reopen_for_writing(c, dir_fd);
	/* What passed the test may still not open for writing: a damaged header. */
	if (r == -EROFS || r == -EACCES)
		r = -EUCLEAN;
	if (r < 0)
		return judge(c, r, "cannot be opened for writing", ret_why);
	return c->journal ? replay(c, ret_why) : CATALOG_GOOD;
}

/* What the journal has is the best that is known: it goes into a copy of the damaged catalog. */
static int prepare_witness(struct check *c)
{
	int r = c->tmp_fd < 0 ? make_copy(c) : 0;
	bool writable = r == 0 && reopen_for_writing(c, c->tmp_fd) == 0;

	r = check_replay_for_witness(c, writable ? c->cat : NULL);
	return r < 0 && !is_damage(r) ? check_fail(c, r, "replaying the journal") : CATALOG_DAMAGED;
}

/* The catalog was opened, good or not. */
static int with_journal(struct check *c, int state, char **ret_why)
{
	read_meta(c);
	int r = check_open_journal(c);

	if (r == -ENOENT || is_damage(r)) {
		if (state != CATALOG_GOOD)
			return state;
		c->journal_lost = true;
		return damaged(c,
			       r == -ENOENT ? "is missing" :
					      "is damaged, or the catalog is older than it",
			       ret_why);
	}
	if (r < 0)
		return check_fail(c, r, "journal");
	if (state == CATALOG_GOOD)
		return open_good(c, ret_why);
	return c->journal ? prepare_witness(c) : state;
}

/* A repair ended between (3) and (5): the new catalog is complete. */
static int resume(struct check *c)
{
	char text[sizeof(SENTINEL)] = "";
	_cleanup_close_ int fd =
		openat(c->l.dir_fd, CATALOG, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text)) != (ssize_t)strlen(SENTINEL) ||
	    memcmp(text, SENTINEL, strlen(SENTINEL)) != 0 || !exists(c, REBUILD))
		return 0;
	c->interrupted = true;
	int r = c->opt->repair ? take_place(c) : 0;

	if (r < 0)
		return check_fail(c, r, "replacing the catalog");
	check_report(c, "catalog-damaged", CATALOG, c->opt->repair ? CHECK_DONE : CHECK_WOULD,
		     false, "finish it", "an earlier repair was interrupted");
	return 0;
}

int check_open_catalog(struct check *c, char **ret_why)
{
	int r = resume(c), dir_fd = c->l.dir_fd;

	if (r < 0)
		return r;
	if (!c->opt->repair && (c->interrupted || exists(c, CATALOG "-wal"))) {
		r = make_copy(c);
		if (r < 0)
			return check_fail(c, r, COPY_FAILED);
		dir_fd = c->tmp_fd;
	}
	int state = open_and_verify(c, dir_fd, ret_why);

	return state >= 0 && c->cat ? with_journal(c, state, ret_why) : state;
}

void check_close_catalog(struct check *c)
{
	catalog_close(TAKE_PTR(c->cat));
	remove_copy(c);
}

/* ---- replacing ---------------------------------------------------------------------------- */
int check_new_catalog(struct check *c, struct catalog **ret_catalog)
{
	static const char *const left[] = { REBUILD, REBUILD "-wal", REBUILD "-shm" };

	for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
		int r = remove_if_there(c, left[i]);

		if (r < 0)
			return r;
	}
	return catalog_open(c->l.dir_fd, REBUILD, false, ret_catalog);
}

static int link_aside(struct check *c)
{
	char aside[ASIDE_MAX];

	for (unsigned i = 0; i < TRIES_MAX; i++) {
		aside_name(c, "", i, aside);
		if (linkat(c->l.dir_fd, CATALOG, c->l.dir_fd, aside, 0) == 0 || errno == ENOENT)
			return 0;
		if (errno == EPERM) /* no file, so no catalog that a mount would take */
			return rename_aside(c, CATALOG, "");
		if (errno != EEXIST)
			return neg_errno();
	}
	return -EEXIST;
}

/* What volume_open() takes for a damaged catalog. */
static int place_sentinel(struct check *c)
{
	static const char name[] = CATALOG ".hold";
	_cleanup_close_ int fd = openat(
		c->l.dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return neg_errno();
	int r = write_full(fd, SENTINEL, strlen(SENTINEL), 0);

	if (r == 0 && fsync(fd) < 0)
		r = neg_errno();
	if (r == 0 && renameat(c->l.dir_fd, name, c->l.dir_fd, CATALOG) < 0)
		r = neg_errno();
	return r == 0 && fsync(c->l.dir_fd) < 0 ? neg_errno() : r;
}

int check_replace_catalog(struct check *c)
{
	int r = link_aside(c);

	if (r == 0)
		r = place_sentinel(c);
	return r < 0 ? r : take_place(c);
}
