// SPDX-License-Identifier: GPL-2.0-or-later
// probe: ncursesw: the full-screen view of hybridfs top
#include <curses.h>

int main(void)
{
	return initscr() == NULL;
}
