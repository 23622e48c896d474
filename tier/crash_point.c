// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/crash_point.h"

#ifdef HFS_CRASH_POINTS

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_AND_PHASE(name, phase) { #name, #phase },
static const struct {
	const char *name, *phase;
} points[CP_COUNT] = { CRASH_POINTS(NAME_AND_PHASE) };

static int chosen = -1;	    /* enum crash_point */
static _Atomic long left;   /* passings to go */
static _Atomic unsigned long passings[CP_COUNT];
static const char *armed;   /* may be NULL */
static const char *mark_to; /* may be NULL */

static void list_and_exit(void)
{
	for (int i = 0; i < CP_COUNT; i++)
		printf("%s %s\n", points[i].name, points[i].phase);
	exit(fflush(stdout) == 0 ? 0 : 1);
}

static int find(const char *name, size_t len)
{
	for (int i = 0; i < CP_COUNT; i++)
		if (strlen(points[i].name) == len && !memcmp(points[i].name, name, len))
			return i;
	fprintf(stderr, "hybridfs: HFS_CRASH_POINT: no point %.*s\n", (int)len, name);
	exit(1);
}

__attribute__((constructor)) static void crash_point_init(void)
{
	const char *text = getenv("HFS_CRASH_POINT");

	mark_to = getenv("HFS_CRASH_MARK");
	if (!text || !*text)
		return;
	if (!strcmp(text, "list"))
		list_and_exit();
	const char *colon = strchr(text, ':');

	chosen = find(text, colon ? (size_t)(colon - text) : strlen(text));
	left = colon ? strtol(colon + 1, NULL, 10) : 1;
	armed = getenv("HFS_CRASH_ARMED");
}

static void write_line(int fd, const char *what, const char *name)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "%s %s\n", what, name);

	if (fd >= 0 && write(fd, line, (size_t)n) != n)
		_exit(1);
}

static void mark(enum crash_point point)
{
	int fd = open(mark_to, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd < 0)
		_exit(1);
	write_line(fd, "C", points[point].name);
	close(fd);
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ...: early and late ones, and never many. */
static bool is_worth_a_mark(unsigned long n)
{
	while (n > 3 && n % 2 == 0)
		n /= 2;
	return n <= 3;
}

void crash_point_pass(enum crash_point point)
{
	if (chosen < 0 && mark_to) {
		if (is_worth_a_mark(1 + atomic_fetch_add(&passings[point], 1)))
			mark(point);
		return;
	}
	if ((int)point != chosen || (armed && access(armed, F_OK) < 0) ||
	    atomic_fetch_sub(&left, 1) != 1)
		return;
	if (mark_to)
		mark(point);
	write_line(STDERR_FILENO, "hybridfs: crash point", points[point].name);
	_exit(CRASH_POINT_STATUS);
}

#endif
