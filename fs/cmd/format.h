// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * format.h - numbers and names for people, and what people type as numbers. Pure functions, except
 * fmt_utf8().
 *
 * The fmt_* functions write into the caller's buffer and return it; the macros below bring a
 * buffer that lives as long as the enclosing block, for use in one printf.
 */
#ifndef HYBRIDFS_FS_CMD_FORMAT_H
#define HYBRIDFS_FS_CMD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FMT_MAX 24

/* "0 B", "1023 B", "1.0 KiB", "16.0 EiB": at most 10 characters, rounded to one decimal. */
char *fmt_size(char buf[FMT_MAX], uint64_t bytes);
/* "37%"; "100%" and "0%" only when that is exact, "<1%" in between, "-" when whole is 0. */
char *fmt_percent(char buf[FMT_MAX], uint64_t part, uint64_t whole);
/* "0:07", "12:34", "3:02:01", "5 d 3 h". */
char *fmt_duration(char buf[FMT_MAX], uint64_t seconds);

#define SIZE(bytes)	     fmt_size((char[FMT_MAX]){ "" }, bytes)
#define PERCENT(part, whole) fmt_percent((char[FMT_MAX]){ "" }, part, whole)
#define DURATION(seconds)    fmt_duration((char[FMT_MAX]){ "" }, seconds)

/* "s" unless n is 1. */
#define PLURAL(n) ((n) == 1 ? "" : "s")

/* ---- names --------------------------------------------------------------------------------- */
/* Length of the well-formed UTF-8 sequence at s (at most n bytes may be looked at), 0 if there is
 * none. Overlong forms, surrogates and values above U+10FFFF are not well-formed. */
size_t utf8_sequence(const char *s, size_t n);
/* Write s so that it can do no harm to a terminal and can be told from any other name: control
 * characters and bytes that are not UTF-8 as \n, \t, \xNN, and \ as \\. */
void fmt_put_escaped(FILE *f, const char *s);
/* The same as a string to free; NULL only without memory. */
char *fmt_escape(const char *s);
/* Well-formed UTF-8 whatever s is: each bad byte becomes U+FFFD. To free; NULL without memory. */
char *fmt_utf8_repair(const char *s, bool *ret_changed);
/* True when the user's locale can show block characters. */
bool fmt_utf8(void);

/* ---- what people type ---------------------------------------------------------------------- */
/* "4096", "64K", "4MiB", "2g": K, M, G, T, P are powers of 1024, no fractions. -EINVAL when it
 * is no size, -ERANGE above INT64_MAX (the largest file offset). */
int parse_size(const char *s, uint64_t *ret_bytes);

struct byte_range {
	uint64_t offset, length; /* length UINT64_MAX = to the end of the file */
};
/* "OFF:LEN", both sizes; "OFF:" is from OFF to the end. -EINVAL also for an empty range. */
int parse_range(const char *s, struct byte_range *ret_range);

#endif
