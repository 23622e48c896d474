// SPDX-License-Identifier: GPL-2.0-or-later
/* Where SRC, SSD and MNT are, and which of them may not contain which. */
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "db/base.h"
#include "fs/options.h"

__attribute__((format(printf, 1, 2))) static int refuse(const char *fmt, ...)
{
	va_list ap;

	fputs("hybridfs: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return MOUNT_FAILED;
}

static int refuse_path(const char *path, int err)
{
	const char *hint = err == ENOTCONN ? " (a dead mount? umount it first)" : "";
	int code = refuse("%s: %s%s", path, strerror(err), hint);

	return err == EACCES || err == EPERM ? MOUNT_USAGE : code;
}

/* ---- absolute paths ------------------------------------------------------------------------ */
static int replace(char **path, char *absolute)
{
	struct stat st;

	if (!absolute || stat(absolute, &st) < 0) {
		int err = errno;

		free(absolute);
		return refuse_path(*path, err);
	}
	if (!S_ISDIR(st.st_mode)) {
		free(absolute);
		return refuse_path(*path, ENOTDIR);
	}
	free(*path);
	*path = absolute;
	return 0;
}

static int resolve(char **path)
{
	return replace(path, realpath(*path, NULL));
}

/* A directory that may still have to be made, below one that exists. */
static int resolve_new(char **path)
{
	char *absolute = realpath(*path, NULL), *parent, *name;

	if (absolute || errno != ENOENT)
		return replace(path, absolute);
	_cleanup_free_ char *copy = strdup(*path);

	if (!copy)
		return refuse_path(*path, ENOMEM);
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	name = strrchr(copy, '/');
	if (name)
		*name++ = '\0';
	parent = name ? (*copy ? copy : (char *)"/") : (char *)".";
	_cleanup_free_ char *real_parent = realpath(parent, NULL);
	struct stat st;

	if (!real_parent || stat(real_parent, &st) < 0)
		return refuse_path(*path, errno);
	if (!S_ISDIR(st.st_mode))
		return refuse_path(*path, ENOTDIR);
	if (asprintf(&absolute, "%s/%s", strcmp(real_parent, "/") == 0 ? "" : real_parent,
		     name ? name : copy) < 0)
		return refuse_path(*path, ENOMEM);
	free(*path);
	*path = absolute;
	return 0;
}

/* ---- inside -------------------------------------------------------------------------------- */
static bool path_inside(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* The directory itself, or the nearest one above that exists. */
static int open_nearest(const char *path)
{
	_cleanup_free_ char *copy = strdup(path);

	while (copy) {
		int fd = open(*copy ? copy : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(copy, '/');

		if (fd >= 0 || !slash)
			return fd;
		*slash = '\0';
	}
	return -1;
}

/* Is `dir` one of the directories from `path` up to "/", by whatever name (bind mounts)? */
static bool really_inside(const char *path, const char *dir)
{
	struct stat want, st, above;
	int fd = open_nearest(path);
	bool found = false, top = fd < 0 || stat(dir, &want) < 0;

	while (!top && !found && fstat(fd, &st) == 0) {
		found = st.st_dev == want.st_dev && st.st_ino == want.st_ino;
		int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		top = up < 0 || fstat(up, &above) < 0 ||
		      (above.st_dev == st.st_dev && above.st_ino == st.st_ino);
		close(fd);
		fd = up;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool inside(const char *path, const char *dir)
{
	return path_inside(path, dir) || really_inside(path, dir);
}

/* A filesystem of its own that is mounted below SRC is not seen by a mount that clones SRC's. */
static bool other_filesystem(const char *path, const char *dir)
{
	struct stat a, b;
	_cleanup_close_ int fd = open_nearest(path);

	return fd >= 0 && fstat(fd, &a) == 0 && stat(dir, &b) == 0 && a.st_dev != b.st_dev;
}

int options_resolve(struct mount_options *o)
{
	int r = resolve(&o->src);

	if (r == 0)
		r = resolve(&o->mnt);
	if (r == 0)
		r = resolve_new(&o->ssd);
	if (r)
		return r;
	if (strcmp(o->src, o->ssd) == 0)
		return refuse("%s: SRC and SSD are the same directory; give the SSD one of its own",
			      o->src);
	if (inside(o->src, o->ssd))
		return refuse("%s: SRC is inside SSD (%s); choose an SSD directory outside of it",
			      o->src, o->ssd);
	if (inside(o->mnt, o->ssd))
		return refuse("%s: the mount point is inside SSD (%s); choose another one", o->mnt,
			      o->ssd);
	if (inside(o->ssd, o->src) && (geteuid() != 0 || !other_filesystem(o->ssd, o->src)))
		return refuse("%s: SSD is inside SRC (%s); choose a directory outside of it",
			      o->ssd, o->src);
	if (inside(o->ssd, o->mnt))
		return refuse("%s: SSD is inside the mount point (%s), which would hide it; choose "
			      "another one",
			      o->ssd, o->mnt);
	return 0;
}
