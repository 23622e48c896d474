// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The daemon, a child of this program that runs in the foreground (-f), and its mount. Whether
 * something is mounted shows in the mount id of MNT, which needs no answer from a daemon.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOUNT_LIMIT_MS	 60000
#define UNMOUNT_LIMIT_MS 60000
#define GENTLE_LIMIT_MS	 10000
#define POLL_MS		 200 /* in case an event of the mount table is missed */
#define DYING_MS	 200
#define DETACH_TRIES	 16

static struct {
	pid_t pid; /* 0: none */
	int pidfd;
	int status; /* of the last one that ended */
	bool base_known;
	uint64_t base_id; /* mount id of MNT when nothing of ours is mounted */
} daemon_;

static uint64_t mount_id(const char *path)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID, &stx) < 0)
		return 0; /* a dead mount */
	return stx.stx_mnt_id;
}

static bool is_mounted(const struct config *cfg)
{
	return daemon_.base_known && mount_id(cfg->mnt) != daemon_.base_id;
}

void mount_export_pid(const char *name)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", (int)daemon_.pid);
	setenv(name, text, 1);
}

void mount_state(char *out, size_t out_size)
{
	struct pollfd p = { .fd = daemon_.pidfd, .events = POLLIN };
	siginfo_t info = { 0 };

	if (daemon_.pid) /* it may be about to die of what is being reported */
		poll(&p, 1, DYING_MS);
	if (daemon_.pid &&
	    waitid(P_PID, (id_t)daemon_.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	    info.si_pid)
		snprintf(out, out_size, "ended by itself, %s %d",
			 info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
	else if (daemon_.pid)
		snprintf(out, out_size, "running");
	else
		snprintf(out, out_size, "none");
}

static void redirect(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd < 0)
		return;
	dup2(fd, 1);
	dup2(fd, 2);
	if (fd > 2)
		close(fd);
}

static _Noreturn void exec_daemon(const struct config *cfg)
{
	const char *argv[9] = { cfg->tool, cfg->src, cfg->ssd, cfg->mnt, "-f" };

	if (cfg->mount_opts) {
		argv[5] = "-o";
		argv[6] = cfg->mount_opts;
	}
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0); /* Ctrl-C is for the test, which then unmounts */
	if (cfg->daemon_log)
		redirect(cfg->daemon_log);
	execv(cfg->tool, (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* Waits until the mount is there or the daemon ended. */
static bool wait_for_mount(const struct config *cfg)
{
	struct pollfd p[2] = {
		{ .fd = daemon_.pidfd, .events = POLLIN },
		{ .fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), .events = POLLPRI },
	};
	bool mounted = is_mounted(cfg);

	for (int waited = 0; !mounted && waited < MOUNT_LIMIT_MS; waited += POLL_MS) {
		poll(p, 2, POLL_MS);
		mounted = is_mounted(cfg);
		if (p[0].revents)
			break;
	}
	close(p[1].fd);
	return mounted;
}

void mount_start(const struct config *cfg)
{
	char state[64];
	struct stat st;

	if (!daemon_.base_known)
		daemon_.base_id = mount_id(cfg->mnt);
	daemon_.base_known = true;
	fflush(NULL);
	daemon_.pid = fork();
	if (daemon_.pid < 0)
		die("fork: %s", strerror(errno));
	if (daemon_.pid == 0)
		exec_daemon(cfg);
	daemon_.pidfd = (int)syscall(SYS_pidfd_open, daemon_.pid, 0);
	if (daemon_.pidfd < 0)
		die("pidfd_open: %s", strerror(errno));
	if (!wait_for_mount(cfg)) {
		mount_state(state, sizeof(state));
		die("%s did not mount %s; daemon: %s", cfg->tool, cfg->mnt, state);
	}
	if (stat(cfg->mnt, &st) < 0)
		die("the new mount does not answer: stat %s: %s", cfg->mnt, strerror(errno));
}

static bool reap(int limit_ms)
{
	struct pollfd p = { .fd = daemon_.pidfd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, limit_ms);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return false;
	waitpid(daemon_.pid, &daemon_.status, 0);
	close(daemon_.pidfd);
	daemon_.pid = 0;
	return true;
}

bool mount_stop(const struct config *cfg, char *why, size_t why_size)
{
	const char *args[] = { "umount", cfg->mnt, NULL };
	char out[160], status[48];
	int s = tool_run(cfg, args, out, sizeof(out));

	describe_status(s, status, sizeof(status));
	if (s != 0)
		snprintf(why, why_size, "'umount' ended with %s: %s", status, out);
	else if (is_mounted(cfg))
		snprintf(why, why_size, "'umount' returned, but something is still mounted");
	else if (!reap(UNMOUNT_LIMIT_MS))
		snprintf(why, why_size, "the daemon still runs after 'umount'");
	else if (daemon_.status != 0)
		describe_status(daemon_.status, why, why_size);
	else
		return true;
	return false;
}

void mount_kill(void)
{
	if (!daemon_.pid)
		return;
	kill(daemon_.pid, SIGKILL);
	reap(-1);
}

void mount_detach(const struct config *cfg)
{
	for (int i = 0; i < DETACH_TRIES && is_mounted(cfg); i++)
		if (umount2(cfg->mnt, MNT_DETACH) < 0)
			break;
	if (is_mounted(cfg))
		fprintf(stderr, "modeltest: cannot unmount %s: %s\n", cfg->mnt, strerror(errno));
}

void mount_abort(const struct config *cfg)
{
	if (daemon_.pid)
		kill(daemon_.pid, SIGKILL);
	mount_detach(cfg);
}

/* A failed check leaves its files open, which would keep the mount busy. */
static void close_strays(void)
{
	close_range(3, (unsigned int)daemon_.pidfd - 1, 0);
	close_range((unsigned int)daemon_.pidfd + 1, ~0u, 0);
}

void mount_cleanup(const struct config *cfg)
{
	char why[256];

	if (!daemon_.base_known)
		return;
	if (daemon_.pid) {
		close_strays();
		if (is_mounted(cfg) && !mount_stop(cfg, why, sizeof(why)))
			fprintf(stderr, "modeltest: at the end: %s\n", why);
	}
	if (daemon_.pid) {
		kill(daemon_.pid, SIGTERM);
		if (!reap(GENTLE_LIMIT_MS))
			mount_kill();
	}
	mount_detach(cfg);
}
