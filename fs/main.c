// SPDX-License-Identifier: GPL-2.0-or-later
/* hybridfs: a command (fs/cmd/), or a mount. */
#include <stdio.h>

#include "fs/cmd/cmd.h"
#include "fs/daemon.h"
#include "fs/options.h"

static int mount_main(int argc, char **argv)
{
	struct mount_options o;
	int r = options_parse(&o, argc, argv);

	if (r == 0)
		r = options_resolve(&o);
	if (r == 0 && !o.fake)
		r = daemon_run(&o);
	options_release(&o);
	return r;
}

int main(int argc, char **argv)
{
	const struct cmd *c = argc > 1 ? cmd_find(argv[1]) : NULL;

	if (c)
		return c->run(argc - 1, argv + 1);
	if (argc < 2) {
		cmd_mount_usage(stderr);
		return MOUNT_USAGE;
	}
	return mount_main(argc, argv);
}
