// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The test of the test: damage that a broken filesystem could do, done on purpose. A run with
 * --sabotage must end with a difference; if it does not, the program exits with 3. Damage done
 * between two steps is repeated until it is noticed, since the next step may happen to undo it.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
	NONE,
	BYTE,
	TRUNCATE,
	FSYNC,
	SIZE,
	SRC_BYTE,
	MTIME,
	INODE,
	MODE,
	XATTR,
	NAME,
	ZEROS,
	NKINDS
};

static const char *const kind_names[NKINDS] = {
	"",	 "byte",  "truncate", "fsync", "size", "src",
	"mtime", "inode", "mode",     "xattr", "name", "zeros",
};

static const char *const kind_help[NKINDS] = {
	"",
	"flip one byte of a file behind the mount's back, keeping its times",
	"leave out one truncate on the mount",
	"after a kill -9, flip one byte that was durable (needs --kills)",
	"after a kill -9, give a file a size that it never had (needs --kills)",
	"after an unmount, flip one byte in SRC (needs --remounts)",
	"move a file's mtime",
	"replace a file by an equal copy with another inode number",
	"change a file's mode",
	"add an extended attribute",
	"add a name to a directory",
	"read a block of data as zeros",
};

int sabotage_parse(const char *name)
{
	char *end;
	long n = strtol(name, &end, 10);

	if (*end == '\0' && n > NONE && n < NKINDS)
		return (int)n;
	for (int i = NONE + 1; i < NKINDS; i++)
		if (strcmp(name, kind_names[i]) == 0)
			return i;
	return NONE;
}

const char *sabotage_name(int kind)
{
	return kind_names[kind];
}

void sabotage_list(FILE *f)
{
	for (int i = NONE + 1; i < NKINDS; i++)
		fprintf(f, "  %2d %-9s %s\n", i, kind_names[i], kind_help[i]);
}

#define AGAIN_AFTER 64

static void done(struct world *w, const char *path)
{
	w->sabotaged_at = w->step;
	printf("modeltest: sabotage at step %llu: %s\n", (unsigned long long)w->step, path);
}

static bool due(const struct world *w, int kind)
{
	return w->sabotage == kind && w->step >= w->sabotage_step;
}

static bool set_times(const char *path, const struct stat *st)
{
	struct timespec t[2] = { st->st_atim, st->st_mtim };

	return utimensat(AT_FDCWD, path, t, 0) == 0;
}

static bool flip_byte(const char *path, off_t off)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char byte = 0;
	struct stat st;
	bool ok;

	if (fd < 0)
		return false;
	ok = fstat(fd, &st) == 0 && pread(fd, &byte, 1, off) == 1;
	byte ^= 0x40;
	ok = ok && pwrite(fd, &byte, 1, off) == 1;
	close(fd);
	return ok && set_times(path, &st);
}

static bool punch_data(const char *path, off_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	off_t data = fd < 0 ? -1 : lseek(fd, 0, SEEK_DATA);
	struct stat st;
	bool ok;

	if (data < 0 || data >= size) {
		close(fd);
		return false;
	}
	ok = fstat(fd, &st) == 0 &&
	     fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data, 4096) == 0;
	close(fd);
	return ok && set_times(path, &st);
}

static bool replace(const char *path)
{
	char copy[PATH_BYTES + 8], command[3 * PATH_BYTES];

	snprintf(copy, sizeof(copy), "%s+", path);
	if (strlen(strrchr(copy, '/')) > 250 || strpbrk(path, "'"))
		return false;
	snprintf(command, sizeof(command), "cp -a -- '%s' '%s'", path, copy);
	return system(command) == 0 && rename(copy, path) == 0;
}

static bool damage(struct world *w, const char *path, const struct node *n)
{
	uint32_t where = n->size > MIB(1) ? MIB(1) : (uint32_t)n->size;
	char name[PATH_BYTES + 16];

	switch (w->sabotage) {
	case BYTE:
		return where && flip_byte(path, rng_below(&w->check_rng, where));
	case ZEROS:
		return where && punch_data(path, n->size);
	case MTIME:
		return !n->lazy_mtime && utimensat(AT_FDCWD, path, NULL, 0) == 0;
	case INODE:
		return n->links == 1 && !n->handles && replace(path);
	case MODE:
		return chmod(path, 0421) == 0;
	case XATTR:
		return setxattr(path, "user.sabotage", "x", 1, 0) == 0;
	case NAME:
		snprintf(name, sizeof(name), "%s.x", path);
		return mknod(name, S_IFREG | 0600, 0) == 0;
	default:
		return false;
	}
}

void sabotage_step(struct world *w)
{
	struct ent *e = w->sabotage && w->step >= w->sabotage_step ? pick_ent(w, K_FILE) : NULL;
	char path[PATH_BYTES];

	if (!e || w->offline)
		return;
	if (!damage(w, path_at(w, MNT, e->dir, e->name, path), e->node))
		return;
	done(w, path);
	w->sabotage_step = w->step + AGAIN_AFTER;
}

bool sabotage_truncate(struct world *w)
{
	if (!due(w, TRUNCATE))
		return false;
	done(w, "a truncate is left out");
	w->sabotage = NONE;
	return true;
}

/* A path in SRC for a random name. */
static char *src_path(struct world *w, const struct ent *e, char *path)
{
	const char *root = w->root[MNT];

	w->root[MNT] = w->cfg->src;
	path_at(w, MNT, e->dir, e->name, path);
	w->root[MNT] = root;
	return path;
}

void sabotage_killed(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	char path[PATH_BYTES];
	off_t off = e ? durable_certain_offset(w, e->node) : -1;
	struct stat st;

	if (!e)
		return;
	src_path(w, e, path);
	if (due(w, FSYNC) && off >= 0 && flip_byte(path, off))
		done(w, path);
	if (due(w, SIZE) && stat(path, &st) == 0 && truncate(path, st.st_size + 7777) == 0)
		done(w, path);
}

void sabotage_unmounted(struct world *w)
{
	struct ent *e = pick_ent(w, K_FILE);
	char path[PATH_BYTES];

	if (e && due(w, SRC_BYTE) && e->node->size && flip_byte(src_path(w, e, path), 0))
		done(w, path);
}
