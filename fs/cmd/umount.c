// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * umount: find the mount, get hold of its daemon, flush, unmount, wait for the daemon's end.
 *
 * The daemon's pidfd is opened while the daemon still answers, so it can not be somebody else's.
 * Flushing comes before unmounting because it can be watched and interrupted then. A daemon that
 * is dead, or does not talk to us, does not keep the mount from being taken away: what was dirty
 * is on the SSD and comes with the next mount.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/cmd/client.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/explain.h"
#include "fs/cmd/interrupt.h"
#include "fs/cmd/mounts.h"
#include "fs/cmd/progress.h"
#include "fs/cmd/steps.h"
#include "fs/cmd/unmount.h"
#include "fs/cmd/users.h"

/* Someone who looks (a monitor's `status`, df) keeps a mount busy for a moment only. */
#define BUSY_TRIES     10
#define BUSY_PAUSE_MS  100
#define WAIT_POLL_MS   200
#define WAIT_NOTICE_MS 10000 /* without a progress line, say once that it takes long */

struct target {
	struct mounts mounts;
	const struct mount *mount; /* one of mounts */
	pid_t daemon;		   /* 0 = not known */
	int pidfd;		   /* owned, or -1 */
	struct progress progress;
	uint64_t written_back_bytes;
	bool quiet, flush_failed;
};

/* ---- finding it ----------------------------------------------------------------------------- */

static int find(const char *path, struct target *t)
{
	_cleanup_free_ char *name = NULL;
	int id, err;

	err = mounts_locate(path, &id, &name);
	if (err == 0)
		err = mounts_read(&t->mounts);
	if (err < 0) {
		cmd_path_error(path, "%s", client_strerror(err));
		return err;
	}
	t->mount = mounts_find_id(&t->mounts, id);
	if (!t->mount || !mount_is_ours(t->mount)) {
		cmd_path_error(path, "%s", client_strerror(-ENOTTY));
		return -ENOTTY;
	}
	if (strcmp(name, t->mount->mountpoint) != 0) {
		_cleanup_free_ char *top = fmt_escape(t->mount->mountpoint);

		cmd_path_error(path, "is not a mount point; it lies on the hybridfs mount %s",
			       top ? top : "");
		return -EINVAL;
	}
	return 0;
}

/* ---- flushing ------------------------------------------------------------------------------- */

static void show_flush(const struct hfs_step *s, uint64_t done_bytes, void *arg)
{
	struct target *t = arg;
	uint64_t left = s->next == UINT64_MAX ? 0 : s->left_bytes;

	t->written_back_bytes = done_bytes;
	progress_show(&t->progress, done_bytes, done_bytes + left);
}

/* What is dirty now, and what becomes of it. */
static void say_what_is_dirty(const struct target *t, const struct hfs_status *s, const char *fate)
{
	_cleanup_free_ char *ssd = fmt_escape(s->ssd);

	cmd_path_error(t->mount->mountpoint,
		       "%s in %" PRIu64
		       " file%s %s not written back to SRC; kept on the SSD (%s) %s",
		       SIZE(s->dirty_bytes), s->dirty_files, PLURAL(s->dirty_files),
		       s->dirty_files == 1 ? "is" : "are", ssd ? ssd : "", fate);
}

static void flush_failed(struct target *t, const struct client *c, int err)
{
	static const struct byte_range everything = { 0, UINT64_MAX };
	_cleanup_free_ char *why = explain_step(c, HFS_FLUSH_ALL, &everything, err);
	struct hfs_status s;

	t->flush_failed = true;
	cmd_path_error(t->mount->mountpoint, "cannot flush: %s", why ? why : client_strerror(err));
	if (err != -EPERM && client_status(c, &s) == 0 && s.dirty_bytes > 0)
		say_what_is_dirty(t, &s, "for the next mount");
}

/* The daemon passes over files in conflict; they are not for us to decide on. */
static void check_conflicts(struct target *t, const struct client *c)
{
	struct hfs_status s;

	if (client_status(c, &s) < 0 || s.conflicts == 0)
		return;
	t->flush_failed = true;
	cmd_path_error(t->mount->mountpoint,
		       "%" PRIu64
		       " file%s in conflict: SRC was changed behind the mount; nothing is "
		       "written back to such a file unless `hybridfs flush --force` is used on it",
		       s.conflicts, PLURAL(s.conflicts));
	say_what_is_dirty(t, &s, "for the next mount");
}

/* < 0: the unmount must not go on. */
static int flush(struct target *t, const struct client *c)
{
	struct hfs_step s = { .action = HFS_FLUSH_ALL, .length = UINT64_MAX };
	int err = steps_run(c, &s, show_flush, t);

	progress_hide(&t->progress);
	if (err == -EINTR && interrupted()) {
		cmd_path_error(t->mount->mountpoint, "interrupted, %s written back; still mounted",
			       SIZE(t->written_back_bytes));
		return err;
	}
	if (err < 0)
		flush_failed(t, c, err);
	else
		check_conflicts(t, c);
	return err == -EPERM ? err : 0;
}

/* Also of one that speaks another version: it can not be asked to flush, but be waited for. */
static int get_hold_of_daemon(struct target *t, struct client *c)
{
	int err = client_open(t->mount->mountpoint, c);

	if (c->pid > 0) {
		t->daemon = c->pid;
		t->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	}
	return err;
}

static int prepare(struct target *t, bool want_flush)
{
	_cleanup_client_ struct client c = CLIENT_INIT;
	int err = get_hold_of_daemon(t, &c);
	struct hfs_status s;

	if (client_is_dead(err)) {
		cmd_path_error(t->mount->mountpoint,
			       "note: its daemon is dead; what was not written "
			       "back is on the SSD and comes with the next mount");
		return 0;
	}
	if (err < 0) {
		cmd_path_error(t->mount->mountpoint, "note: not flushed beforehand: %s",
			       client_strerror(err));
		return 0;
	}
	if (want_flush)
		return flush(t, &c);
	if (client_status(&c, &s) == 0 && s.dirty_bytes > 0)
		say_what_is_dirty(t, &s,
				  "unless the daemon, mounted with flush_on_unmount, sees "
				  "to it now");
	return 0;
}

/* ---- unmounting ------------------------------------------------------------------------------ */

static void report_busy(const struct target *t)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	unsigned n = f ? users_put(f, t->mount, t->daemon) : 0;

	if (f)
		fclose(f);
	if (n > 0)
		cmd_path_error(t->mount->mountpoint, "cannot unmount: it is in use by %s%s", text,
			       n == USERS_LISTED_MAX ? " and perhaps others" : "");
	else
		cmd_path_error(t->mount->mountpoint,
			       "cannot unmount: it is in use (%s); `fuser -vm` "
			       "as root tells by whom",
			       strerror(EBUSY));
	free(text);
}

static int unmount(const struct target *t)
{
	_cleanup_free_ char *text = NULL;
	int err = unmount_path(t->mount->mountpoint, &text);

	for (int i = 0; err == -EBUSY && i < BUSY_TRIES && !interrupted(); i++) {
		poll(NULL, 0, BUSY_PAUSE_MS);
		err = unmount_path(t->mount->mountpoint, &text);
	}
	if (err == -EBUSY)
		report_busy(t);
	else if (err < 0)
		cmd_path_error(t->mount->mountpoint, "cannot unmount: %s",
			       text ? text : strerror(-err));
	return err;
}

/* Where the same filesystem is mounted still, or NULL: its daemon will not end then. To free. */
static char *mounted_elsewhere(const struct target *t)
{
	_cleanup_mounts_ struct mounts m = { 0 };

	if (mounts_read(&m) < 0)
		return NULL;
	for (size_t i = 0; i < m.n; i++)
		if (mount_is_ours(&m.items[i]) && m.items[i].dev == t->mount->dev)
			return fmt_escape(m.items[i].mountpoint);
	return NULL;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_gone(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, WAIT_POLL_MS) > 0;
}

static int wait_for_daemon(struct target *t)
{
	char text[80];
	unsigned waited_ms = 0;

	snprintf(text, sizeof(text), "unmounted; waiting for the daemon (pid %d) to end",
		 t->daemon);
	while (!is_gone(t->pidfd)) {
		if (interrupted()) {
			progress_hide(&t->progress);
			cmd_path_error(t->mount->mountpoint,
				       "unmounted, but the daemon (pid %d) is "
				       "still at work",
				       t->daemon);
			return -EINTR;
		}
		waited_ms += WAIT_POLL_MS;
		if (!t->progress.enabled && waited_ms == WAIT_NOTICE_MS)
			cmd_path_error(t->mount->mountpoint, "%s", text);
		progress_say(&t->progress, text);
	}
	progress_hide(&t->progress);
	return 0;
}

static int finish(struct target *t)
{
	_cleanup_free_ char *elsewhere = mounted_elsewhere(t);
	_cleanup_free_ char *name = fmt_escape(t->mount->mountpoint);
	int err = 0;

	if (elsewhere)
		cmd_path_error(t->mount->mountpoint,
			       "unmounted; it is also mounted on %s, so its "
			       "daemon goes on",
			       elsewhere);
	else if (t->pidfd >= 0)
		err = wait_for_daemon(t);
	if (err == 0 && !t->quiet) {
		printf("unmounted %s", name ? name : "");
		if (t->written_back_bytes > 0)
			printf(", %s written back", SIZE(t->written_back_bytes));
		putchar('\n');
	}
	return err;
}

int cmd_umount(int argc, char **argv)
{
	struct target t = { .pidfd = -1 };
	struct cmd_opts o;
	int exit_code, err;

	if (!cmd_parse(argc, argv, OPT_QUIET | OPT_NO_FLUSH, &o, &exit_code))
		return exit_code;
	if (o.n_operands != 1)
		return cmd_usage_error(argv[0],
				       o.n_operands ? "one operand: MNT" : "missing operand: MNT");
	t.quiet = o.given & OPT_QUIET;
	interrupt_catch();
	progress_init(&t.progress, "umount", t.quiet);
	err = find(o.operands[0], &t);
	if (err == 0)
		err = prepare(&t, !(o.given & OPT_NO_FLUSH));
	if (err == 0)
		err = unmount(&t);
	if (err == 0)
		err = finish(&t);
	if (t.pidfd >= 0)
		close(t.pidfd);
	mounts_release(&t.mounts);
	return cmd_finish(err < 0 || t.flush_failed ? CMD_FAILED : CMD_OK);
}
