// SPDX-License-Identifier: GPL-2.0-or-later
// probe: : cachestat(2): which pages of an object are cached or dirty (Linux >= 6.5)
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	return syscall(SYS_cachestat, 0, NULL, NULL, 0) == 0;
}
