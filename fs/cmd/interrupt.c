// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/interrupt.h"

#include <signal.h>

#include "db/base.h"

static volatile sig_atomic_t noted;

static void note(int sig)
{
	(void)sig;
	noted = 1;
}

void interrupt_catch(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction old, sa = { .sa_handler = note, .sa_flags = (int)SA_RESETHAND };

		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL); /* nohup keeps what it set */
	}
}

bool interrupted(void)
{
	return noted != 0;
}
