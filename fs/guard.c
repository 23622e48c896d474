// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/session.h"

/* Not "hybridfs": killall -9 and pkill -9 of that name are a death to be survived. */
#define GUARD_NAME   "hfs-guard"
#define DEATH_SIGNAL SIGUSR1
#define LIFE_LINE_FD 3

/* ---- the guard ----------------------------------------------------------------------------- */
/* Nothing of the daemon's is held: no directory, no descriptor, no terminal. */
static int let_go(int life_line)
{
	if (dup2(life_line, LIFE_LINE_FD) < 0 || close_range(LIFE_LINE_FD + 1, UINT_MAX, 0) < 0)
		return -errno;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int fd = 0; fd < LIFE_LINE_FD; fd++)
		dup2(null, fd);
	close(null);
	setsid();
	return chdir("/") < 0 ? -errno : 0;
}

/*
 * The signal comes when the daemon's first thread has ended, while others may still be held by the
 * kernel. A pidfd waits for the last of them, and so does the closing of the life line.
 */
static int watch_for_death(pid_t daemon)
{
	sigset_t all, death;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&death);
	sigaddset(&death, DEATH_SIGNAL);
	int fd = signalfd(-1, &death, SFD_CLOEXEC);

	if (fd < 0 || prctl(PR_SET_PDEATHSIG, DEATH_SIGNAL) < 0)
		return -errno;
	return getppid() == daemon ? fd : -ESRCH;
}

static bool is_death(int signal_fd, pid_t daemon)
{
	struct signalfd_siginfo info;

	return read(signal_fd, &info, sizeof(info)) == sizeof(info) &&
	       info.ssi_pid == (uint32_t)daemon;
}

static void wait_for_death(int signal_fd, pid_t daemon)
{
	struct pollfd p[] = { { .fd = signal_fd, .events = POLLIN }, { .fd = LIFE_LINE_FD } };

	while (!(p[1].revents & POLLHUP))
		if (poll(p, 2, -1) > 0 && (p[0].revents & POLLIN) && is_death(signal_fd, daemon))
			return;
}

_Noreturn static void guard_main(int life_line, pid_t daemon)
{
	int death_fd, abort_fd, answer = 0;
	dev_t dev;

	prctl(PR_SET_NAME, GUARD_NAME);
	if (let_go(life_line) < 0)
		_exit(1);
	death_fd = watch_for_death(daemon);
	if (death_fd < 0 || read(LIFE_LINE_FD, &dev, sizeof(dev)) != sizeof(dev))
		_exit(1);
	abort_fd = session_abort_fd(dev);
	if (abort_fd < 0)
		answer = abort_fd;
	if (write(LIFE_LINE_FD, &answer, sizeof(answer)) == sizeof(answer) && abort_fd >= 0)
		wait_for_death(death_fd, daemon);
	_exit(abort_fd >= 0 && write(abort_fd, "1", 1) == 1 ? 0 : 1);
}

/* ---- the daemon's side --------------------------------------------------------------------- */
int guard_start(struct guard *g)
{
	int ends[2];

	*g = (struct guard){ .fd = -1 };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	pid_t daemon = getpid(), pid = fork();

	if (pid == 0)
		guard_main(ends[1], daemon);
	int r = pid < 0 ? -errno : 0;

	close(ends[1]);
	if (r < 0) {
		close(ends[0]);
		return r;
	}
	*g = (struct guard){ .pid = pid, .fd = ends[0] };
	return 0;
}

int guard_watch(struct guard *g, dev_t dev)
{
	int answer = -ECHILD;

	if (g->pid == 0)
		return 0;
	if (send(g->fd, &dev, sizeof(dev), MSG_NOSIGNAL) != sizeof(dev) ||
	    recv(g->fd, &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer))
		answer = -ECHILD;
	if (answer < 0)
		guard_stop(g);
	return answer;
}

void guard_stop(struct guard *g)
{
	if (g->pid == 0)
		return;
	kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(g->fd);
	*g = (struct guard){ .fd = -1 };
}
