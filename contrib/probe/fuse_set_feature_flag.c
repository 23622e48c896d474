// SPDX-License-Identifier: GPL-2.0-or-later
// probe: fuse3: 64-bit capability flags (libfuse >= 3.17)
#include <fuse_lowlevel.h>

int main(void)
{
	struct fuse_conn_info conn = { 0 };

	return fuse_set_feature_flag(&conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
}
