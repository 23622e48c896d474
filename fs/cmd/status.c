// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status: every hybridfs mount, or those named. A mount that does not answer is shown as such and
 * does not hide the others.
 */
#include "fs/cmd/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/mounts.h"

/* An answer takes less than a millisecond; a daemon that waits for a disk gets some time. */
#define ANSWER_MS 5000

struct states {
	struct mount_state *items; /* owned */
	size_t n;
	bool failed; /* something could not even be listed */
};

static void release(struct states *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->items[i].mountpoint);
		free(s->items[i].source);
	}
	free(s->items);
}

static int add(struct states *all, const struct mount_state *m)
{
	struct mount_state *items = reallocarray(all->items, all->n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	all->items = items;
	items[all->n] = *m;
	items[all->n].mountpoint = strdup(m->mountpoint);
	items[all->n].source = strdup(m->source);
	if (!items[all->n].mountpoint || !items[all->n].source) {
		free(items[all->n].mountpoint);
		free(items[all->n].source);
		return -ENOMEM;
	}
	all->n++;
	return 0;
}

/* ---- the mounts of the kernel's list -------------------------------------------------------- */

/* The first mount of each filesystem stands for it; bind mounts and copies add nothing. */
static bool is_first_of_its_fs(const struct mounts *m, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (mount_is_ours(&m->items[k]) && m->items[k].dev == m->items[i].dev)
			return false;
	return true;
}

static int ask_directly(const struct mount *m, struct hfs_status *ret)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	int err = client_open(m->mountpoint, &c);

	if (err == 0 && c.st.st_dev != m->dev)
		return -ENOTTY; /* another mount on top of it answers */
	return err < 0 ? err : client_status(&c, ret);
}

/* What a child sends: small enough to be written to a pipe at once. */
struct answer {
	int err;
	struct hfs_status s;
};

static int receive(int fd, struct answer *ret)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t have = 0;
	int n = 1;

	while (have < sizeof(*ret) && (n = poll(&p, 1, ANSWER_MS)) > 0) {
		ssize_t got = read(fd, (char *)ret + have, sizeof(*ret) - have);

		if (got <= 0)
			return -EIO;
		have += (size_t)got;
	}
	return n > 0 ? ret->err : n == 0 ? -ETIME : -errno;
}

/*
 * By a child, as a mount whose daemon hangs holds whoever asks it, even against SIGKILL: then the
 * child is left behind, and the other mounts are shown.
 */
static int ask_at(const struct mount *m, struct hfs_status *ret)
{
	struct answer a = { 0 };
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();

	if (pid == 0) {
		close(fds[0]);
		a.err = ask_directly(m, &a.s);
		_exit(write(fds[1], &a, sizeof(a)) == (ssize_t)sizeof(a) ? 0 : 1);
	}
	int err = pid < 0 ? -errno : 0;

	close(fds[1]);
	if (err == 0)
		err = receive(fds[0], &a);
	close(fds[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, err == -ETIME ? WNOHANG : 0);
	}
	*ret = a.s;
	return err;
}

/* Where one mountpoint is hidden or gone, another one of the same filesystem may do. */
static int ask_anywhere(const struct mounts *m, size_t first, struct mount_state *ret)
{
	int first_err = 0;

	for (size_t i = first; i < m->n; i++) {
		if (m->items[i].dev != m->items[first].dev)
			continue;
		ret->mountpoint = m->items[i].mountpoint;
		ret->source = m->items[i].source;
		ret->err = ask_at(&m->items[i], &ret->s);
		if (ret->err != -ENOTTY && ret->err != -ENOENT)
			return ret->err;
		if (first_err == 0)
			first_err = ret->err;
	}
	ret->mountpoint = m->items[first].mountpoint;
	return first_err;
}

static int collect_all(struct states *all)
{
	_cleanup_mounts_ struct mounts m = { 0 };
	int err = mounts_read(&m);

	for (size_t i = 0; err == 0 && i < m.n; i++) {
		struct mount_state state = { 0 };

		if (!mount_is_ours(&m.items[i]) || !is_first_of_its_fs(&m, i))
			continue;
		state.err = ask_anywhere(&m, i, &state);
		err = add(all, &state);
	}
	return err;
}

/* ---- the mounts that were named ------------------------------------------------------------- */

/* The mount of ours that a path lies on, although asking it failed; one of *m, or NULL. */
static const struct mount *find_mute(const char *path, struct mounts *m)
{
	const struct mount *found;
	int id;

	if (mounts_locate(path, &id, NULL) < 0 || mounts_read(m) < 0)
		return NULL;
	found = mounts_find_id(m, id);
	return found && mount_is_ours(found) ? found : NULL;
}

static int collect_one(struct states *all, char *path)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	_cleanup_mounts_ struct mounts m = { 0 };
	struct mount_state state = { .mountpoint = path };
	const struct mount *mute;

	state.err = client_open(path, &c);
	if (state.err == 0)
		state.err = client_status(&c, &state.s);
	if (state.err == 0) {
		state.mountpoint = *state.s.mountpoint ? state.s.mountpoint : path;
		state.source = state.s.source;
		return add(all, &state);
	}
	mute = state.err == -ENOENT ? NULL : find_mute(path, &m);
	if (mute) {
		state.mountpoint = mute->mountpoint;
		state.source = mute->source;
		return add(all, &state);
	}
	cmd_path_error(path, "%s", client_strerror(state.err));
	all->failed = true;
	return 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int collect(const struct cmd_opts *o, struct states *all)
{
	int err = 0;

	if (o->n_operands == 0)
		return collect_all(all);
	for (int i = 0; err == 0 && i < o->n_operands; i++)
		err = collect_one(all, o->operands[i]);
	return err;
}

static void print(const struct cmd_opts *o, const struct states *all)
{
	if (o->given & OPT_JSON) {
		status_print_json(all->items, all->n);
	} else if (o->given & OPT_PROMETHEUS) {
		status_print_prometheus(all->items, all->n);
	} else {
		for (size_t i = 0; i < all->n; i++) {
			fputs(i > 0 ? "\n" : "", stdout);
			status_print_text(&all->items[i]);
		}
		if (all->n == 0 && !all->failed)
			puts("no hybridfs filesystem is mounted");
	}
}

/* In the forms for programs a mount that does not answer is easily overlooked. */
static void report_mute(const struct states *all)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->items[i].err < 0)
			cmd_path_error(all->items[i].mountpoint, "%s",
				       client_strerror(all->items[i].err));
}

static bool all_healthy(const struct states *all)
{
	bool healthy = !all->failed;

	for (size_t i = 0; i < all->n; i++)
		healthy = healthy && all->items[i].err == 0 && all->items[i].s.healthy;
	return healthy;
}

int cmd_status(int argc, char **argv)
{
	struct states all = { 0 };
	struct cmd_opts o;
	int exit_code, err;

	if (!cmd_parse(argc, argv, OPT_JSON | OPT_PROMETHEUS, &o, &exit_code))
		return exit_code;
	if ((o.given & OPT_JSON) && (o.given & OPT_PROMETHEUS))
		return cmd_usage_error(argv[0], "either --json or --prometheus");
	err = collect(&o, &all);
	if (err < 0) {
		cmd_error("cannot list the mounts: %s", strerror(-err));
		release(&all);
		return CMD_FAILED;
	}
	print(&o, &all);
	if (o.given & (OPT_JSON | OPT_PROMETHEUS))
		report_mute(&all);
	exit_code = all_healthy(&all) ? CMD_OK : CMD_FAILED;
	release(&all);
	return cmd_finish(exit_code);
}
