// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/crash_point.h"

#ifdef HFS_CRASH_POINTS

#include <fcntl.h>
#include <stdatomic.h>
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

	if (!text || !*text)
		return;
	if (!strcmp(text, "list"))
		list_and_exit();
	const char *colon = strchr(text, ':');

	chosen = find(text, colon ? (size_t)(colon - text) : strlen(text));
	left = colon ? strtol(colon + 1, NULL, 10) : 1;
	armed = getenv("HFS_CRASH_ARMED");
	mark_to = getenv("HFS_CRASH_MARK");
}

static void write_line(int fd, const char *what, const char *name)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "%s %s\n", what, name);

	if (fd >= 0 && write(fd, line, (size_t)n) != n)
		_exit(1);
}

void crash_point_pass(enum crash_point point)
{
	if ((int)point != chosen || (armed && access(armed, F_OK) < 0) ||
	    atomic_fetch_sub(&left, 1) != 1)
		return;
	if (mark_to)
		write_line(open(mark_to, O_WRONLY | O_APPEND | O_CLOEXEC), "C", points[point].name);
	write_line(STDERR_FILENO, "hybridfs: crash point", points[point].name);
	_exit(CRASH_POINT_STATUS);
}

#endif
