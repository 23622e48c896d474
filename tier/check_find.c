// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where a key alone does not open a file (SRC without usable file handles), one that is not at its
 * last known path may have been renamed. Before data of it is given up, all of SRC is searched,
 * once, for all such files together.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

#define DEPTH_MAX 1000u /* directories open at a time; deeper ones are not searched */

static int compare_keys(const void *a, const void *b)
{
	const struct src_key *x = &((const struct finder_entry *)a)->key;
	const struct src_key *y = &((const struct finder_entry *)b)->key;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return memcmp(x->data, y->data, x->len);
}

static struct finder_entry *find_entry(const struct finder *f, const struct src_key *key)
{
	struct finder_entry wanted = { .key = *key };

	return f->n ? bsearch(&wanted, f->entries, f->n, sizeof(wanted), compare_keys) : NULL;
}

/* It is looked for if it is not where it was. */
int finder_add(struct check *c, const struct src_key *key, const char *path)
{
	struct finder *f = &c->finder;
	int fd = src_open(c->src, key, path, O_PATH);

	if (fd >= 0)
		close(fd);
	if (fd != -ESTALE)
		return 0;
	if (f->n == f->cap) {
		size_t cap = f->cap ? f->cap * 2 : 64;
		struct finder_entry *p = reallocarray(f->entries, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		f->entries = p;
		f->cap = cap;
	}
	f->entries[f->n++] = (struct finder_entry){ .key = *key };
	return 0;
}

/* ---- the search --------------------------------------------------------------------------- */
static int walk(struct check *c, int dir_fd, const char *path, unsigned depth);

static int visit(struct check *c, int dir_fd, const char *name, const char *path, unsigned depth)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct src_key key;
	struct stat st;

	/* What cannot be looked at is not found; other filesystems are not SRC. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != c->src->dev ||
	    !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) || src_key_of_fd(c->src, fd, &key) < 0)
		return 0;
	struct finder_entry *e = find_entry(&c->finder, &key);

	if (e && !e->path) {
		e->path = strdup(path);
		if (!e->path)
			return -ENOMEM;
	}
	return S_ISDIR(st.st_mode) ? walk(c, fd, path, depth + 1) : 0;
}

static int visit_all(struct check *c, DIR *dir, const char *path, unsigned depth)
{
	struct dirent *e;
	int r = 0;

	while (r == 0 && (e = readdir(dir))) {
		_cleanup_free_ char *below = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", e->d_name) < 0) {
			below = NULL;
			return -ENOMEM;
		}
		r = visit(c, dirfd(dir), e->d_name, below, depth);
	}
	return r;
}

static int walk(struct check *c, int dir_fd, const char *path, unsigned depth)
{
	if (depth > DEPTH_MAX)
		return 0;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	int r = visit_all(c, dir, path, depth);

	closedir(dir);
	return r < 0 ? r : check_progress(c, 0);
}

static void sort_entries(struct finder *f)
{
	size_t kept = 1;

	qsort(f->entries, f->n, sizeof(*f->entries), compare_keys);
	for (size_t i = 1; i < f->n; i++)
		if (compare_keys(&f->entries[i], &f->entries[kept - 1]) != 0)
			f->entries[kept++] = f->entries[i];
	f->n = kept;
}

int finder_run(struct check *c)
{
	struct finder *f = &c->finder;

	if (f->n == 0)
		return 0;
	sort_entries(f);
	f->ran = true;
	return walk(c, c->src->root_fd, "", 0);
}

const char *finder_path(const struct check *c, const struct src_key *key)
{
	const struct finder_entry *e = c->finder.ran ? find_entry(&c->finder, key) : NULL;

	return e ? e->path : NULL;
}

void finder_release(struct finder *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->entries[i].path);
	free(f->entries);
	*f = (struct finder){ .n = 0 };
}
