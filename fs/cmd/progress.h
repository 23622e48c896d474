// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * progress.h - one line on stderr that says how far a long command is. Only on a terminal, and only
 * when the command was not told to be quiet; otherwise all of this does nothing.
 *
 * Whoever writes to stderr or stdout calls progress_hide() first; the next progress_show() draws
 * the line anew.
 */
#ifndef HYBRIDFS_FS_CMD_PROGRESS_H
#define HYBRIDFS_FS_CMD_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool enabled, visible;
	const char *what;	    /* borrowed: the command's name */
	int64_t start_ns, drawn_ns; /* CLOCK_MONOTONIC */
};

void progress_init(struct progress *p, const char *what, bool quiet);
/* done of total bytes; total 0 = not known. Draws ten times a second at most. */
void progress_show(struct progress *p, uint64_t done_bytes, uint64_t total_bytes);
/* A line of words instead: what is being waited for. */
void progress_say(struct progress *p, const char *text);
void progress_hide(struct progress *p);

/* The line as text, at most width columns. elapsed_ms is what the rate is made of. Pure. */
void progress_line(char *buf, size_t size, unsigned width, const char *what, uint64_t done_bytes,
		   uint64_t total_bytes, uint64_t elapsed_ms);

#endif
