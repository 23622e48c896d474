// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The catalog under check: opened without changing a byte, judged, and replaced.
 *
 * sqlite cannot read a catalog with a WAL (an unclean volume's) without making or changing its
 * -shm file, so a dry check looks at a copy.
 *
 * Replacing: (1) the new catalog is complete in catalog.db.rebuild; (2) the old one gets a second
 * name; (3) a file that is no catalog takes its place, so that a mount refuses from here on; (4) the
 * old WAL, which would be applied to whatever is called catalog.db, is moved aside; (5) the new one
 * takes its place. Crash before (3): the old catalog, checked again. Between (3) and (5): no
 * catalog, rebuilt again. After: the new one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "tier/check_internal.h"

#define CATALOG "catalog.db"
#define REBUILD "catalog.db.rebuild"
#define COPY_BYTES (1u << 20)
#define TRIES_MAX 100u

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

static int copy_file(struct check *c, const char *name)
{
	_cleanup_close_ int from =
		openat(c->l.dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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
	int r = c->tmp_fd < 0 ? neg_errno() : copy_file(c, CATALOG);

	return r < 0 ? r : copy_file(c, CATALOG "-wal");
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

/* ---- opening ------------------------------------------------------------------------------ */
static bool is_damage(int r)
{
	return r == -EUCLEAN || r == -EIO;
}

static int judge(struct check *c, int r, const char *text, char **ret_why)
{
	if (!is_damage(r))
		return r == -EPROTONOSUPPORT
			       ? check_fail(c, r, "catalog.db was made by a newer hybridfs")
			       : check_fail(c, r, CATALOG);
	*ret_why = strdup(text);
	return *ret_why ? CATALOG_DAMAGED : check_fail(c, -ENOMEM, CATALOG);
}

/* Read-only, and every row looked at. */
static int open_and_verify(struct check *c, int dir_fd, char **ret_why)
{
	int r = catalog_open(dir_fd, CATALOG, true, &c->cat);

	if (r == -ENOENT)
		return CATALOG_NONE;
	if (r < 0)
		return judge(c, r, r == -EIO ? "cannot be read" : "is not a catalog of hybridfs",
			     ret_why);
	r = catalog_integrity_check(c->cat);
	return r < 0 ? judge(c, r, catalog_error(c->cat), ret_why) : CATALOG_GOOD;
}

/* What passed the test may still not open for writing (a damaged header). */
static int reopen_for_writing(struct check *c, char **ret_why)
{
	struct catalog *cat;
	int r = catalog_open(c->l.dir_fd, CATALOG, false, &cat);

	if (r < 0)
		return judge(c, r == -EROFS || r == -EACCES ? -EUCLEAN : r,
			     "cannot be opened for writing", ret_why);
	catalog_close(c->cat);
	c->cat = cat;
	return CATALOG_GOOD;
}

int check_open_catalog(struct check *c, char **ret_why)
{
	bool has_wal = faccessat(c->l.dir_fd, CATALOG "-wal", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	int r = 0, dir_fd = c->l.dir_fd;

	if (has_wal && !c->opt->repair) {
		r = make_copy(c);
		if (r < 0)
			return check_fail(c, r, "cannot copy the catalog, which is to be looked at "
						"unchanged, to the temporary directory");
		dir_fd = c->tmp_fd;
	}
	r = open_and_verify(c, dir_fd, ret_why);
	return r == CATALOG_GOOD && c->opt->repair ? reopen_for_writing(c, ret_why) : r;
}

void check_close_catalog(struct check *c)
{
	catalog_close(TAKE_PTR(c->cat));
	remove_copy(c);
}

static int meta_number(struct check *c, const char *key, uint64_t *ret)
{
	_cleanup_free_ char *value = NULL;
	int r = catalog_get_meta(c->cat, key, &value);

	if (r == 0)
		*ret = strtoull(value, NULL, 10);
	return r == -ENOENT ? 0 : r;
}

int check_read_meta(struct check *c)
{
	uint64_t clean = 1;
	int r = meta_number(c, "clean", &clean);

	if (r == 0)
		r = meta_number(c, "next_id", &c->next_id);
	c->unclean = !clean;
	return r;
}

/* ---- replacing ---------------------------------------------------------------------------- */
static int remove_if_there(struct check *c, const char *name)
{
	return unlinkat(c->l.dir_fd, name, 0) < 0 && errno != ENOENT ? neg_errno() : 0;
}

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

/* A free name for what is moved aside. */
static void aside_name(const struct check *c, unsigned n, char ret[64])
{
	time_t t = (time_t)c->opt->now_s;
	char when[32] = "";
	struct tm tm;

	if (gmtime_r(&t, &tm))
		strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	snprintf(ret, 64, n ? CATALOG ".damaged-%.20s.%u" : CATALOG ".damaged-%.20s", when, n);
}

static int link_aside(struct check *c, char ret_name[64])
{
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		aside_name(c, i, ret_name);
		if (linkat(c->l.dir_fd, CATALOG, c->l.dir_fd, ret_name, 0) == 0)
			return 0;
		if (errno == ENOENT)
			return 0;
		if (errno == EPERM) /* no file, so no catalog that a mount would take */
			return renameat(c->l.dir_fd, CATALOG, c->l.dir_fd, ret_name) < 0
				       ? neg_errno()
				       : 0;
		if (errno != EEXIST)
			return neg_errno();
	}
	return -EEXIST;
}

/* What volume_open() takes for a damaged catalog. */
static int place_sentinel(struct check *c)
{
	static const char name[] = CATALOG ".hold";
	static const char text[] = "hybridfs check --repair was interrupted here: run it again.\n";
	_cleanup_close_ int fd = openat(c->l.dir_fd, name,
					O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
					0600);

	if (fd < 0)
		return neg_errno();
	int r = write_full(fd, text, sizeof(text) - 1, 0);

	if (r == 0 && fsync(fd) < 0)
		r = neg_errno();
	if (r == 0 && renameat(c->l.dir_fd, name, c->l.dir_fd, CATALOG) < 0)
		r = neg_errno();
	return r == 0 && fsync(c->l.dir_fd) < 0 ? neg_errno() : r;
}

static int move_wal_aside(struct check *c, const char *name)
{
	char wal[80];

	snprintf(wal, sizeof(wal), "%s-wal", name);
	if (renameat(c->l.dir_fd, CATALOG "-wal", c->l.dir_fd, wal) < 0 && errno != ENOENT)
		return neg_errno();
	int r = remove_if_there(c, CATALOG "-shm");

	if (r == 0)
		r = remove_if_there(c, CATALOG "-journal");
	return r == 0 && fsync(c->l.dir_fd) < 0 ? neg_errno() : r;
}

int check_replace_catalog(struct check *c)
{
	char name[64];
	int r = link_aside(c, name);

	if (r == 0)
		r = place_sentinel(c);
	if (r == 0)
		r = move_wal_aside(c, name);
	if (r == 0 && renameat(c->l.dir_fd, REBUILD, c->l.dir_fd, CATALOG) < 0)
		r = neg_errno();
	return r == 0 && fsync(c->l.dir_fd) < 0 ? neg_errno() : r;
}
