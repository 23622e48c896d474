// SPDX-License-Identifier: GPL-2.0-or-later
// probe: libcap: capabilities by name
#include <stddef.h>
#include <sys/capability.h>

int main(void)
{
	return cap_get_proc() == NULL;
}
