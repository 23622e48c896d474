// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stamp.h - which time stamps of an object changed
 *
 * A test first makes the stamps old, then does one thing, then looks:
 *
 *	struct stamps s = stamps_age("f");
 *	EXPECT(0, chmod("f", 0600));
 *	EXPECT_STAMPS("--c", &s, "f");
 *
 * "amc" names the stamps that changed; '-' stands for one that did not. Access and modification
 * times are set to the year 2001. The change time cannot be set: stamps_age() waits until the
 * filesystem's own clock has visibly moved on (a probe file in the scratch directory is touched
 * until its ctime differs), so that whatever happens later gets another one. No test sleeps.
 */
#ifndef POSIXTEST_STAMP_H
#define POSIXTEST_STAMP_H

#include "harness.h"

#include <time.h>

#define STAMP_OLD_ATIME 1000000000 /* September 2001 */
#define STAMP_OLD_MTIME 1000086400 /* a day later, so that relatime has atime follow a read */

struct stamps {
	struct timespec a, m, c;
};

/* Makes the probe file; main.c calls it once. 0 or -errno. */
int stamp_open_probe(const char *path);

/* Gives the probe file up, so that the scratch directory can be removed. */
void stamp_close_probe(void);

/* Waits for the filesystem's clock to move on. Ends the test if it stands still. */
void stamp_tick(void);

/* The stamps of path as they are (of a symlink itself, or of an open file). */
struct stamps stamps_now(const char *path);
struct stamps stamps_of_fd(int fd);

/* Makes the stamps of path old, and returns them. */
struct stamps stamps_age(const char *path);

/* "amc" where stamps differ from s, '-' elsewhere; valid until the second next call. */
const char *stamps_diff(const struct stamps *s, const struct stamps *now);

#define EXPECT_STAMPS(want, s, path)                                                  \
	do {                                                                          \
		struct stamps now_ = stamps_now(path);                                \
                                                                                      \
		check_str((want), stamps_diff((s), &now_), SITE("stamps of " #path)); \
	} while (0)

#define RECORD_STAMPS(s, path)                                                 \
	do {                                                                   \
		struct stamps now_ = stamps_now(path);                         \
                                                                               \
		record_str(stamps_diff((s), &now_), SITE("stamps of " #path)); \
	} while (0)

/* As strcmp(): negative when a is before b. */
int stamp_cmp(const struct timespec *a, const struct timespec *b);

#endif
