// SPDX-License-Identifier: GPL-2.0-or-later
// probe: fuse3: birth times through the mount (libfuse >= 3.18)
#include <fuse_lowlevel.h>
#include <sys/stat.h>

int main(void)
{
	struct fuse_lowlevel_ops ops = { .statx = NULL };
	struct statx stx = { 0 };

	return fuse_reply_statx(NULL, 0, &stx, 1.0) + !!ops.statx;
}
