// SPDX-License-Identifier: GPL-2.0-or-later
/* Running the hybridfs program for one command. */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void describe_status(int status, char *out, size_t out_size)
{
	if (status == TOOL_TIMEOUT)
		snprintf(out, out_size, "still running after the time limit");
	else if (WIFSIGNALED(status))
		snprintf(out, out_size, "signal %d", WTERMSIG(status));
	else
		snprintf(out, out_size, "exit code %d", WEXITSTATUS(status));
}

static pid_t spawn(const struct config *cfg, char **argv, int out_fd)
{
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int err;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, out_fd, 1);
	posix_spawn_file_actions_adddup2(&fa, out_fd, 2);
	err = posix_spawn(&pid, cfg->tool, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return err ? -err : pid;
}

pid_t tool_start(const struct config *cfg, const char *const *args, int *ret_out_fd)
{
	char *argv[TOOL_ARGS + 2] = { (char *)(uintptr_t)cfg->tool };
	int out_fd = memfd_create("modeltest-tool", MFD_CLOEXEC);
	pid_t pid;

	if (out_fd < 0)
		return -errno;
	for (int i = 0; i < TOOL_ARGS && args[i]; i++)
		argv[i + 1] = (char *)(uintptr_t)args[i];
	pid = spawn(cfg, argv, out_fd);
	if (pid < 0) {
		close(out_fd);
		return pid;
	}
	*ret_out_fd = out_fd;
	return pid;
}

int tool_wait(pid_t pid, unsigned int limit_s)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status, n;

	do
		n = poll(&p, 1, (int)limit_s * 1000);
	while (n < 0 && errno == EINTR);
	close(p.fd);
	if (n == 0)
		kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || n == 0)
		return TOOL_TIMEOUT;
	return status;
}

void tool_output(int out_fd, char *out, size_t out_size)
{
	ssize_t n = pread(out_fd, out, out_size - 1, 0);

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

int tool_run(const struct config *cfg, const char *const *args, char *out, size_t out_size)
{
	int out_fd, status;
	pid_t pid = tool_start(cfg, args, &out_fd);

	if (pid < 0)
		die("cannot run %s: %s", cfg->tool, strerror(-pid));
	status = tool_wait(pid, TOOL_LIMIT_S);
	tool_output(out_fd, out, out_size);
	close(out_fd);
	return status;
}
