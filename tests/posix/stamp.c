// SPDX-License-Identifier: GPL-2.0-or-later
#include "stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_LIMIT_S 5

static int probe_fd = -1;

int stamp_open_probe(const char *path)
{
	probe_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return probe_fd < 0 ? -errno : 0;
}

void stamp_close_probe(void)
{
	close(probe_fd);
	probe_fd = -1;
}

int stamp_cmp(const struct timespec *a, const struct timespec *b)
{
	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	if (a->tv_nsec != b->tv_nsec)
		return a->tv_nsec < b->tv_nsec ? -1 : 1;
	return 0;
}

/* Changes the probe and returns the time at which the filesystem says that happened. */
static struct timespec touch_probe(void)
{
	struct stat st;

	MUST(pwrite(probe_fd, "x", 1, 0));
	MUST(fstat(probe_fd, &st));
	return st.st_ctim;
}

static bool out_of_time(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - start->tv_sec > TICK_LIMIT_S;
}

void stamp_tick(void)
{
	struct timespec start, first = touch_probe(), next;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		errno = ETIME;
		MUST(out_of_time(&start) ? -1 : 0);
		next = touch_probe();
	} while (stamp_cmp(&next, &first) == 0);
}

static struct stamps stamps_from(const struct stat *st)
{
	return (struct stamps){ .a = st->st_atim, .m = st->st_mtim, .c = st->st_ctim };
}

struct stamps stamps_now(const char *path)
{
	struct stat st;

	MUST(lstat(path, &st));
	return stamps_from(&st);
}

struct stamps stamps_of_fd(int fd)
{
	struct stat st;

	MUST(fstat(fd, &st));
	return stamps_from(&st);
}

struct stamps stamps_age(const char *path)
{
	const struct timespec old[2] = { { STAMP_OLD_ATIME, 0 }, { STAMP_OLD_MTIME, 0 } };
	struct stamps s;

	MUST(utimensat(AT_FDCWD, path, old, AT_SYMLINK_NOFOLLOW));
	s = stamps_now(path);
	stamp_tick();
	return s;
}

const char *stamps_diff(const struct stamps *s, const struct stamps *now)
{
	static char text[2][4];
	static int turn;
	char *t = text[turn++ & 1];

	t[0] = stamp_cmp(&s->a, &now->a) ? 'a' : '-';
	t[1] = stamp_cmp(&s->m, &now->m) ? 'm' : '-';
	t[2] = stamp_cmp(&s->c, &now->c) ? 'c' : '-';
	t[3] = '\0';
	return t;
}
