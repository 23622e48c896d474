// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/steps.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "fs/cmd/interrupt.h"

/* A daemon that can do nothing just now is asked again after this time. */
#define PAUSE_MS 20

static void pause_ms(unsigned ms)
{
	const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static bool moved(const struct hfs_step *before, const struct hfs_step *after)
{
	return after->done_bytes > 0 || after->next != before->next ||
	       after->left_bytes != before->left_bytes;
}

int steps_run(const struct client *c, struct hfs_step *s, steps_fn fn, void *arg)
{
	uint64_t done = 0;
	unsigned stalled_ms = 0;

	s->next = 0;
	while (s->next != UINT64_MAX) {
		struct hfs_step before = *s;
		int err;

		if (interrupted())
			return -EINTR;
		if (stalled_ms >= STEPS_STALL_MS)
			return -ETIMEDOUT;
		err = client_step(c, s);
		if (err < 0 && err != -EAGAIN && err != -EINTR)
			return err;
		if (err < 0 || !moved(&before, s)) {
			pause_ms(PAUSE_MS);
			stalled_ms += PAUSE_MS;
			continue;
		}
		stalled_ms = 0;
		done += s->done_bytes;
		fn(s, done, arg);
	}
	return 0;
}
