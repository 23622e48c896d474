// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A daemon that lies: with this library preloaded nothing is ever synced. The crash test has to
 * notice (run.sh --sabotage nosync).
 */
#include <unistd.h>

int fsync(int fd)
{
	(void)fd;
	return 0;
}

int fdatasync(int fd)
{
	(void)fd;
	return 0;
}

int syncfs(int fd)
{
	(void)fd;
	return 0;
}

void sync(void)
{
}
