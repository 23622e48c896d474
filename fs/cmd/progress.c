// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/cmd/format.h"

#define REDRAW_NS   100000000 /* ten times a second */
#define RATE_MIN_MS 500	      /* a rate of less than this says nothing */
#define LINE_MAX    256
#define BAR_MIN	    8
#define BAR_MAX	    40

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static unsigned terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col == 0)
		return 80;
	return w.ws_col;
}

void progress_init(struct progress *p, const char *what, bool quiet)
{
	const char *term = getenv("TERM");

	*p = (struct progress){ .what = what, .start_ns = now_ns() };
	p->enabled = !quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void put_bar(FILE *f, unsigned cells, uint64_t done, uint64_t total)
{
	unsigned full = (unsigned)((long double)done / (long double)total * cells);

	putc('[', f);
	for (unsigned i = 0; i < cells; i++)
		putc(i < full ? '#' : '-', f);
	putc(']', f);
}

/* "1.2 GiB of 3.3 GiB  180.0 MiB/s  0:11 left", as much of it as is known. */
static void put_numbers(FILE *f, uint64_t done, uint64_t total, uint64_t elapsed_ms)
{
	uint64_t rate = elapsed_ms >= RATE_MIN_MS ? done / elapsed_ms * 1000 : 0;

	fputs(SIZE(done), f);
	if (total > 0)
		fprintf(f, " of %s", SIZE(total));
	if (rate > 0)
		fprintf(f, "  %s/s", SIZE(rate));
	if (rate > 0 && total > done)
		fprintf(f, "  %s left", DURATION((total - done) / rate));
}

void progress_line(char *buf, size_t size, unsigned width, const char *what, uint64_t done_bytes,
		   uint64_t total_bytes, uint64_t elapsed_ms)
{
	char numbers[128] = "";
	uint64_t done = total_bytes > 0 ? min_u64(done_bytes, total_bytes) : done_bytes;
	FILE *f = fmemopen(numbers, sizeof(numbers), "w");
	int used, room;

	if (f) {
		put_numbers(f, done, total_bytes, elapsed_ms);
		fclose(f);
	}
	used = snprintf(buf, size, "%s  ", what);
	room = (int)width - used - (int)strlen(numbers) - 9; /* 9: "[]", " 100%", two blanks */
	if (total_bytes > 0 && room >= BAR_MIN && (f = fmemopen(buf + used, size - used, "w"))) {
		put_bar(f, (unsigned)min_u64((uint64_t)room, BAR_MAX), done, total_bytes);
		fprintf(f, " %4s  ", PERCENT(done, total_bytes));
		fclose(f);
	}
	strncat(buf, numbers, size - strlen(buf) - 1);
	if (width < strlen(buf))
		buf[width] = '\0';
}

static bool is_due(struct progress *p)
{
	int64_t now = now_ns();

	if (!p->enabled || (p->visible && now - p->drawn_ns < REDRAW_NS))
		return false;
	p->drawn_ns = now;
	return true;
}

static void draw(struct progress *p, const char *line)
{
	fflush(stdout);
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
	p->visible = true;
}

void progress_show(struct progress *p, uint64_t done_bytes, uint64_t total_bytes)
{
	char line[LINE_MAX];

	if ((done_bytes == 0 && total_bytes == 0) || !is_due(p))
		return;
	progress_line(line, sizeof(line), (unsigned)min_u64(terminal_width(), LINE_MAX) - 1,
		      p->what, done_bytes, total_bytes,
		      (uint64_t)(p->drawn_ns - p->start_ns) / 1000000);
	draw(p, line);
}

void progress_say(struct progress *p, const char *text)
{
	char line[LINE_MAX];
	size_t width = min_u64(terminal_width(), LINE_MAX) - 1;

	if (!is_due(p))
		return;
	snprintf(line, width + 1, "%s  %s", p->what, text);
	draw(p, line);
}

void progress_hide(struct progress *p)
{
	if (!p->visible)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	p->visible = false;
}
