// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/unmount.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/base.h"

#define HELPER		"fusermount3"
#define HELPER_TEXT_MAX 512

/* All of what the helper says, cut to the buffer, on one line. */
static void read_text(int fd, char text[HELPER_TEXT_MAX])
{
	char more[256];
	size_t used = 0;
	ssize_t n;

	while ((n = read(fd, more, sizeof(more))) > 0 || (n < 0 && errno == EINTR)) {
		size_t take = n > 0 ? min_u64((uint64_t)n, HELPER_TEXT_MAX - 1 - used) : 0;

		memcpy(text + used, more, take);
		used += take;
	}
	while (used > 0 && text[used - 1] == '\n')
		used--;
	text[used] = '\0';
	for (char *c = text; (c = strchr(c, '\n'));)
		*c = ' ';
}

static int spawn_helper(const char *mountpoint, int stderr_fd, pid_t *ret_pid)
{
	char *const argv[] = { (char *)HELPER, (char *)"-u", (char *)"--", (char *)mountpoint,
			       NULL };
	posix_spawn_file_actions_t actions;
	int err = posix_spawn_file_actions_init(&actions);

	if (err != 0)
		return -err;
	err = posix_spawn_file_actions_adddup2(&actions, stderr_fd, STDERR_FILENO);
	if (err == 0)
		err = posix_spawnp(ret_pid, HELPER, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

static int wait_exit(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return neg_errno();
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int run_helper(const char *mountpoint, char **ret_text)
{
	char text[HELPER_TEXT_MAX];
	int fds[2], err;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return neg_errno();
	err = spawn_helper(mountpoint, fds[1], &pid);
	close(fds[1]);
	if (err == 0) {
		read_text(fds[0], text);
		err = wait_exit(pid);
		if (err < 0 && strstr(text, strerror(EBUSY)))
			err = -EBUSY;
		else if (err < 0 && *text)
			*ret_text = strdup(text);
	} else if (err == -ENOENT) {
		*ret_text = strdup("cannot run " HELPER ": install the package fuse3");
	}
	close(fds[0]);
	return err;
}

int unmount_path(const char *mountpoint, char **ret_text)
{
	*ret_text = NULL;
	if (geteuid() == 0) {
		if (umount2(mountpoint, UMOUNT_NOFOLLOW) == 0)
			return 0;
		if (errno != EPERM) /* root of a container may lack the right and have the helper */
			return neg_errno();
	}
	return run_helper(mountpoint, ret_text);
}
