// SPDX-License-Identifier: GPL-2.0-or-later
#include "proc.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define UID_OWNER    65534
#define GID_OWNER    65534
#define UID_STRANGER 65533
#define GID_STRANGER 65533

struct actor actor_owner = { "owner", UID_OWNER, GID_OWNER, 0 };
const struct actor actor_group = { "group member", UID_STRANGER, GID_OWNER, 0 };
const struct actor actor_supp = { "supplementary member", UID_STRANGER, GID_STRANGER, GID_OWNER };
const struct actor actor_other = { "other", UID_STRANGER, GID_STRANGER, 0 };
const struct actor actor_root = { "root", 0, 0, 0 };

const struct actor *const people[4] = {
	&actor_owner,
	&actor_group,
	&actor_supp,
	&actor_other,
};
const struct actor *const everybody[5] = {
	&actor_root, &actor_owner, &actor_group, &actor_supp, &actor_other,
};

static bool started_as_root;

void proc_init(void)
{
	started_as_root = geteuid() == 0;
	if (!started_as_root) {
		actor_owner.uid = geteuid();
		actor_owner.gid = getegid();
	}
}

bool is_root(void)
{
	return started_as_root;
}

bool can_be(const struct actor *a)
{
	return started_as_root || a == &actor_owner;
}

static void become_root(void)
{
	MUST(setresuid(0, 0, 0));
	MUST(setresgid(0, 0, 0));
	MUST(setgroups(0, NULL));
}

void become(const struct actor *a)
{
	if (!started_as_root)
		return;
	become_root();
	if (!a || a->uid == 0)
		return;
	MUST(setgroups(a->supplementary ? 1 : 0, &a->supplementary));
	MUST(setresgid(a->gid, a->gid, 0));
	MUST(setresuid(a->uid, a->uid, 0));
}

void become_forever(const struct actor *a)
{
	MUST(setgroups(a->supplementary ? 1 : 0, &a->supplementary));
	MUST(setresgid(a->gid, a->gid, a->gid));
	MUST(setresuid(a->uid, a->uid, a->uid));
	started_as_root = false;
}

/* How far the actor's class is shifted in the mode bits of a file given to actor_owner. */
static unsigned int class_shift(const struct actor *a)
{
	if (a == &actor_owner)
		return 6;
	return a == &actor_other ? 0 : 3;
}

mode_t mode_for(const struct actor *a, mode_t bits)
{
	return (0777 & ~(07u << class_shift(a))) | (bits << class_shift(a));
}

mode_t mode_only_for(const struct actor *a, mode_t bits)
{
	mode_t others = ~bits & 07;

	return (0777 & (others | others << 3 | others << 6) & ~(07u << class_shift(a))) |
	       (bits << class_shift(a));
}

pid_t spawn(int (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(stdout);
	pid = (pid_t)MUST(fork());
	if (pid == 0) {
		int code = fn(arg);

		fflush(stdout);
		_exit(code);
	}
	return pid;
}

int reap(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int in_child(int (*fn)(void *arg), void *arg)
{
	return reap(spawn(fn, arg));
}

volatile int *shared_int(void)
{
	void *p =
		mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	MUST(p == MAP_FAILED ? -1 : 0);
	return p;
}

void gate_init(struct gate *g)
{
	MUST(pipe2(g->fd, O_CLOEXEC));
}

void gate_open(struct gate *g)
{
	MUST(write(g->fd[1], "x", 1));
}

void gate_wait(struct gate *g)
{
	char c;

	MUST(read(g->fd[0], &c, 1) == 1 ? 0 : -1);
}
