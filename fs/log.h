// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log.h - where the daemon's messages go: stderr while in the foreground, syslog afterwards.
 *
 * Lines are whole sentences without a newline; levels are syslog's (3 error, 4 warning, 6 info,
 * 7 debug). On stderr they read "hybridfs: error: ...", "hybridfs: warning: ...", "hybridfs: ...".
 * Any thread may log at any time; a line is written with one write.
 */
#ifndef HYBRIDFS_FS_LOG_H
#define HYBRIDFS_FS_LOG_H

#include <stdbool.h>
#include <syslog.h>

/* Until log_to_syslog(), stderr is used. `debug` lets LOG_DEBUG lines through. */
void log_init(bool debug);
void log_to_syslog(void);

void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The signature of volume_env.log. */
void log_from_volume(void *ctx, int level, const char *line);

/*
 * libfuse's own messages are logged too. While starting up they are kept instead, so that a failed
 * mount can be explained in one line: log_fuse_reason() is the last one, or "" (one thread then).
 */
void log_catch_fuse(void);
void log_release_fuse(void);
const char *log_fuse_reason(void);

#endif
