// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/log.h"

#include <fuse_log.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "db/base.h"

#define LINE_MAX_BYTES 1024

static _Atomic bool to_syslog;
static bool debug_lines, catching;
static char fuse_reason[256];

void log_init(bool debug)
{
	debug_lines = debug;
	to_syslog = false;
}

void log_to_syslog(void)
{
	openlog("hybridfs", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}

static const char *level_word(int level)
{
	if (level <= LOG_ERR)
		return "error: ";
	return level == LOG_WARNING ? "warning: " : "";
}

static void write_line(int level, const char *line)
{
	char out[LINE_MAX_BYTES + 64];
	int n = snprintf(out, sizeof(out), "hybridfs: %s%s\n", level_word(level), line);
	size_t len = min_u64((uint64_t)n, sizeof(out) - 1);

	out[len - 1] = '\n';
	if (write(STDERR_FILENO, out, len) < 0)
		return; /* nowhere left to say it */
}

static void emit(int level, const char *line)
{
	if (level >= LOG_DEBUG && !debug_lines)
		return;
	if (to_syslog)
		syslog(level, "%s%s", level_word(level), line);
	else
		write_line(level, line);
}

void log_line(int level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	emit(level, line);
}

void log_from_volume(void *ctx, int level, const char *line)
{
	(void)ctx;
	emit(level, line);
}

/* ---- libfuse ------------------------------------------------------------------------------- */
static void strip(char *line)
{
	static const char *const prefixes[] = { "fuse: ", "error: ", "fusermount3: " };

	line[strcspn(line, "\n")] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t len = strlen(prefixes[i]);

		if (strncmp(line, prefixes[i], len) == 0)
			memmove(line, line + len, strlen(line + len) + 1);
	}
}

__attribute__((format(printf, 2, 0))) static void fuse_line(enum fuse_log_level level,
							    const char *fmt, va_list ap)
{
	char line[LINE_MAX_BYTES];

	vsnprintf(line, sizeof(line), fmt, ap);
	strip(line);
	if (catching && level < FUSE_LOG_DEBUG)
		snprintf(fuse_reason, sizeof(fuse_reason), "%.*s", (int)sizeof(fuse_reason) - 1,
			 line);
	else
		emit((int)level, line);
}

void log_catch_fuse(void)
{
	catching = true;
	fuse_reason[0] = '\0';
	fuse_set_log_func(fuse_line);
}

void log_release_fuse(void)
{
	catching = false;
}

const char *log_fuse_reason(void)
{
	return fuse_reason;
}
