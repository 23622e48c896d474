// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * client.h - a path of a mount, opened to talk to its daemon (fs/proto.h).
 *
 * Opening never blocks on a FIFO and never touches a device: only regular files and directories
 * are opened, O_RDONLY|O_NONBLOCK. That pair of flags is also how a daemon can tell a command's
 * open from a program's. Functions return 0 or -errno; client_strerror() has words for all of
 * them, of which these are ours:
 *   -ENOTTY      no hybridfs mount answers there
 *   -EPROTO      a daemon of another protocol version
 *   -EMEDIUMTYPE neither a regular file nor a directory
 *   -ETIME       the daemon does not answer in time (status alone gives up by itself)
 *   -ESTALE      the path was replaced while it was being opened
 */
#ifndef HYBRIDFS_FS_CMD_CLIENT_H
#define HYBRIDFS_FS_CMD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/proto.h"

struct client {
	int fd; /* owned, or -1 */
	struct stat st;
	int32_t pid; /* of the daemon; 0 from client_open_below() */
};

#define CLIENT_INIT      \
	{                \
		.fd = -1 \
	}
static inline void client_release(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}
#define _cleanup_client_ __attribute__((cleanup(client_release)))

/* Open what the user named: symlinks are followed, and it must be on a hybridfs mount. On -EPROTO
 * nothing is open, but ret->pid is set. */
int client_open(const char *path, struct client *ret);
/* Open what a recursion met, which is known to be on the mount `dev`: no symlink is followed. */
int client_open_below(const char *path, dev_t dev, struct client *ret);

const char *client_strerror(int err);
/* The daemon is gone or the connection broken: nothing more will work on this mount. */
bool client_is_dead(int err);

/* The top directory of a mount (or of a bind mount of a part of it). */
bool client_is_mount_root(const struct client *c);

/* The figures of a file, none of them above its size: the tier counts in blocks, and the last one
 * may reach beyond the end. */
int client_file_stat(const struct client *c, struct hfs_file_stat *ret);
int client_status(const struct client *c, struct hfs_status *ret);
/* One step; `s` is in and out. -EINTR: a signal came before it was done. */
int client_step(const struct client *c, struct hfs_step *s);

/* Call fn for each run of the file's extents, in order of offset. fn returns 0 to go on, or a
 * value that ends the iteration and is returned. */
typedef int (*client_extent_fn)(const struct hfs_extent *e, void *arg);
int client_each_extent(const struct client *c, bool include_absent, client_extent_fn fn, void *arg);

#endif
