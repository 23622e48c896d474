// SPDX-License-Identifier: GPL-2.0-or-later
// probe: fuse3: kernel passthrough in the library (libfuse >= 3.17)
#include <fuse_lowlevel.h>

int main(void)
{
	struct fuse_file_info fi = { .backing_id = 1 };
	struct fuse_conn_info conn = { .max_backing_stack_depth = 1 };

	conn.want = FUSE_CAP_PASSTHROUGH;
	return fuse_passthrough_open(NULL, fi.fh) && fuse_passthrough_close(NULL, fi.backing_id);
}
