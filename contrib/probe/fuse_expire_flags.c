// SPDX-License-Identifier: GPL-2.0-or-later
// probe: fuse3: flags when a name expires (libfuse < 3.17)
#include <fuse_lowlevel.h>
#include <stddef.h>

int main(void)
{
	return fuse_lowlevel_notify_expire_entry(NULL, 1, "", 0, FUSE_LL_EXPIRE_ONLY);
}
