// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/format.h"

#include <ctype.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

char *fmt_size(char buf[FMT_MAX], uint64_t bytes)
{
	static const char units[] = "BKMGTPE";
	unsigned u = 0;
	uint64_t whole, tenths, rest;

	while (u < sizeof(units) - 2 && bytes >> (10 * (u + 1)))
		u++;
	if (u == 0) {
		snprintf(buf, FMT_MAX, "%u B", (unsigned)bytes);
		return buf;
	}
	whole = bytes >> (10 * u);
	rest = bytes & ((UINT64_C(1) << (10 * u)) - 1);
	tenths = whole * 10 + ((rest * 10 + (UINT64_C(1) << (10 * u - 1))) >> (10 * u));
	if (tenths >= 10240 && u < sizeof(units) - 2) { /* 1023.96 KiB is 1.0 MiB */
		tenths = 10;
		u++;
	}
	snprintf(buf, FMT_MAX, "%u.%u %ciB", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
		 units[u]);
	return buf;
}

char *fmt_percent(char buf[FMT_MAX], uint64_t part, uint64_t whole)
{
	unsigned percent;

	if (whole == 0) {
		snprintf(buf, FMT_MAX, "-");
		return buf;
	}
	if (part >= whole) {
		snprintf(buf, FMT_MAX, "100%%");
		return buf;
	}
	percent = (unsigned)((long double)part * 100 / (long double)whole);
	if (percent > 99)
		percent = 99;
	snprintf(buf, FMT_MAX, percent == 0 && part > 0 ? "<1%%" : "%u%%", percent);
	return buf;
}

char *fmt_duration(char buf[FMT_MAX], uint64_t seconds)
{
	unsigned s = seconds % 60, m = seconds / 60 % 60, h = seconds / 3600 % 24;
	unsigned long long days = seconds / 86400;

	if (days > 0)
		snprintf(buf, FMT_MAX, "%llu d %u h", days, h);
	else if (h > 0)
		snprintf(buf, FMT_MAX, "%u:%02u:%02u", h, m, s);
	else
		snprintf(buf, FMT_MAX, "%u:%02u", m, s);
	return buf;
}

size_t utf8_sequence(const char *s, size_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char c = n > 0 ? (unsigned char)s[0] : 0;
	size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	uint32_t code = c & (0x7fu >> len);

	if (n == 0 || len > n || (c >= 0x80 && c < 0xc2) || c > 0xf4)
		return 0;
	if (len == 1)
		return 1;
	for (size_t i = 1; i < len; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | ((unsigned char)s[i] & 0x3f);
	}
	if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	return len;
}

/* U+0080 to U+009F are control characters too: c2 80 to c2 9f. */
static bool is_control(const char *s, size_t len)
{
	unsigned char c = (unsigned char)s[0];

	if (len == 1)
		return c < 0x20 || c == 0x7f;
	return len == 2 && c == 0xc2 && (unsigned char)s[1] < 0xa0;
}

void fmt_put_escaped(FILE *f, const char *s)
{
	for (size_t n = strlen(s), len; n > 0; s += len, n -= len) {
		len = utf8_sequence(s, n);
		if (len > 0 && !is_control(s, len)) {
			if (*s == '\\')
				putc('\\', f);
			fwrite(s, 1, len, f);
			continue;
		}
		len = 1;
		if (*s == '\n' || *s == '\t')
			fputs(*s == '\n' ? "\\n" : "\\t", f);
		else
			fprintf(f, "\\x%02x", (unsigned char)*s);
	}
}

char *fmt_escape(const char *s)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fmt_put_escaped(f, s);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

char *fmt_utf8_repair(const char *s, bool *ret_changed)
{
	size_t n = strlen(s);
	char *text = malloc(3 * n + 1), *to = text;

	if (!text)
		return NULL;
	*ret_changed = false;
	for (size_t len; n > 0; s += len, n -= len) {
		len = utf8_sequence(s, n);
		if (len > 0) {
			to = mempcpy(to, s, len);
		} else {
			to = mempcpy(to, "\xef\xbf\xbd", 3);
			*ret_changed = true;
			len = 1;
		}
	}
	*to = '\0';
	return text;
}

bool fmt_utf8(void)
{
	setlocale(LC_CTYPE, "");
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* The power of 1024 that a suffix stands for, 0 for none; -1 when it is no suffix. */
static int suffix_power(const char *s)
{
	static const char units[] = "KMGTP";
	const char *unit;

	if (*s == '\0' || strcasecmp(s, "B") == 0)
		return 0;
	unit = strchr(units, toupper((unsigned char)*s));
	if (!unit)
		return -1;
	s++;
	if (*s == '\0' || strcasecmp(s, "B") == 0 || strcasecmp(s, "iB") == 0)
		return (int)(unit - units) + 1;
	return -1;
}

int parse_size(const char *s, uint64_t *ret_bytes)
{
	unsigned long long n;
	char *end;
	int power;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	n = strtoull(s, &end, 10);
	power = suffix_power(end);
	if (power < 0)
		return -EINVAL;
	if (errno == ERANGE || n > (uint64_t)INT64_MAX >> (10 * power))
		return -ERANGE;
	*ret_bytes = (uint64_t)n << (10 * power);
	return 0;
}

int parse_range(const char *s, struct byte_range *ret_range)
{
	const char *colon = strchr(s, ':');
	struct byte_range r = { 0, UINT64_MAX };
	char off[32];
	int err;

	if (!colon)
		return -EINVAL;
	if ((size_t)(colon - s) >= sizeof(off))
		return -ERANGE;
	memcpy(off, s, (size_t)(colon - s));
	off[colon - s] = '\0';
	err = parse_size(off, &r.offset);
	if (err == 0 && colon[1] != '\0')
		err = parse_size(colon + 1, &r.length);
	if (err < 0)
		return err;
	if (r.length == 0)
		return -EINVAL;
	if (r.length != UINT64_MAX && r.length > (uint64_t)INT64_MAX - r.offset)
		return -ERANGE;
	*ret_range = r;
	return 0;
}
