// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lost+found of a volume: data that no file of SRC can take any more, or of which nobody knows
 * whether it is right. Nothing of hybridfs ever looks at it or removes it.
 *
 *   <id>-<name>         an object as it was; offsets are those of the file
 *   <id>-<name>.txt     which file it was, and which ranges of it mean something
 *   <id>-<name>.saved   copies of some blocks, at their offsets
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

#define BASE_NAME_MAX 100   /* bytes of the file's own name in ours */
#define TRIES_MAX     1000u /* names that may be taken already */
#define LOST_NAME_MAX 200

static int open_lost(struct check *c)
{
	if (c->lost_fd >= 0)
		return 0;
	if (mkdirat(c->l.dir_fd, LOST_DIR, 0700) < 0 && errno != EEXIST)
		return neg_errno();
	c->lost_fd = openat(c->l.dir_fd, LOST_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return c->lost_fd < 0 || fsync(c->l.dir_fd) < 0 ? neg_errno() : 0;
}

static void lost_name(const struct subject *s, char ret[LOST_NAME_MAX])
{
	const char *path = s->row.path ?: "", *base = strrchr(path, '/');
	int n = snprintf(ret, LOST_NAME_MAX, "%016llx", (unsigned long long)s->row.id);

	base = base ? base + 1 : path;
	if (*base)
		snprintf(ret + n, (size_t)(LOST_NAME_MAX - n), "-%.*s", BASE_NAME_MAX, base);
}

/* The n-th name to try. */
static void numbered(char ret[LOST_NAME_MAX], const char *name, unsigned n, const char *suffix)
{
	char number[16] = "";

	if (n)
		snprintf(number, sizeof(number), ".%u", n);
	snprintf(ret, LOST_NAME_MAX, "%.160s%s%s", name, number, suffix);
}

/* ---- whole objects ------------------------------------------------------------------------ */
/* It may be there already, of a repair that was interrupted. */
static bool is_object(const struct subject *s, const char *name)
{
	struct stat st;

	return fstatat(s->c->lost_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == s->obj_st.st_dev && st.st_ino == s->obj_st.st_ino;
}

static int link_object(struct subject *s, char ret_name[LOST_NAME_MAX])
{
	char object[OBJECT_PATH_MAX], wanted[LOST_NAME_MAX];

	check_object_path(s->row.id, object);
	lost_name(s, wanted);
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		numbered(ret_name, wanted, i, "");
		if (linkat(s->c->l.dir_fd, object, s->c->lost_fd, ret_name, 0) == 0)
			return 0;
		if (errno != EEXIST)
			return neg_errno();
		if (is_object(s, ret_name))
			return 0;
	}
	return -EEXIST;
}

static void write_ranges(const struct subject *s, FILE *f)
{
	static const char *const words[] = { NULL, "as SRC was", "newer than SRC" };

	for (uint64_t at = 0; (at = map_next_present(&s->map, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(&s->map, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		fprintf(f, "%llu+%llu  %s\n", (unsigned long long)run.start,
			(unsigned long long)(run.end - run.start), words[run.state]);
		at = run.end;
	}
}

static void write_text(const struct subject *s, FILE *f)
{
	fprintf(f, "path: %s\n", s->row.path ?: "unknown");
	if (s->row.flags & CAT_F_ATTR_OWNED)
		fprintf(f, "size: %llu\nmodified: %lld.%09lld\n",
			(unsigned long long)s->row.size_bytes,
			(long long)(s->row.mtime_ns / SECOND_NS),
			(long long)(s->row.mtime_ns % SECOND_NS));
	if (s->map.present_blocks) {
		fputs("The rest of the file was only in SRC. Offset+length of what is here:\n", f);
		write_ranges(s, f);
	} else {
		fputs("Which parts of it are newer than SRC is not known.\n", f);
	}
}

static int describe_lost(struct subject *s, const char *name)
{
	char text_name[LOST_NAME_MAX];

	numbered(text_name, name, 0, ".txt");
	int fd = openat(s->c->lost_fd, text_name,
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f) {
		int r = neg_errno();

		if (fd >= 0)
			close(fd);
		return r;
	}
	write_text(s, f);
	int r = fflush(f) != 0 || fsync(fd) < 0 ? neg_errno() : 0;

	fclose(f);
	return r;
}

int check_lost_keep(struct subject *s)
{
	char name[LOST_NAME_MAX];
	int r = open_lost(s->c);

	if (r == 0)
		r = link_object(s, name);
	if (r == 0)
		r = describe_lost(s, name);
	if (r == 0 && (fsync(s->obj_fd) < 0 || fsync(s->c->lost_fd) < 0))
		r = neg_errno();
	return r;
}

/* ---- blocks ------------------------------------------------------------------------------- */
static int create_saved(struct subject *s)
{
	char wanted[LOST_NAME_MAX], name[LOST_NAME_MAX];
	int r = open_lost(s->c);

	if (r < 0)
		return r;
	lost_name(s, wanted);
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		numbered(name, wanted, i, ".saved");
		s->saved_fd = openat(s->c->lost_fd, name,
				     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (s->saved_fd >= 0)
			return 0;
		if (errno != EEXIST)
			return neg_errno();
	}
	return -EEXIST;
}

int check_lost_save(struct subject *s, const char *buf, uint64_t base, uint64_t mask)
{
	int r = s->saved_fd < 0 ? create_saved(s) : 0;

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			r = write_full(s->saved_fd, buf + b * BLOCK_BYTES, BLOCK_BYTES,
				       base + b * BLOCK_BYTES);
	return r;
}

int check_lost_sync(struct subject *s)
{
	if (s->saved_fd < 0)
		return 0;
	return fsync(s->saved_fd) < 0 || fsync(s->c->lost_fd) < 0 ? neg_errno() : 0;
}
