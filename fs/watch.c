// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/watch.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/fs.h"
#include "fs/log.h"
#include "fs/ops.h"

#define BUFFER_BYTES (64u << 10)
/* Our own changes of SRC are heard as well: many of them are read at once. */
#define PAUSE_MS 20
#define ROUNDS_MAX 64u
#define AGAIN_MS 1000
#define AGAIN_MAX 4096u
#define XFS_MAGIC 0x58465342
#define NAME_EVENTS (FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO)
#define EVENTS (NAME_EVENTS | FAN_MODIFY | FAN_ATTRIB | FAN_CLOSE_WRITE | FAN_ONDIR)

/* What the kernel is to forget: attributes of a node, with its list of names if it is a directory;
 * or, with a name, that name in it. */
struct notice {
	struct notice *next;
	uint64_t nodeid;
	int64_t due_ms;
	bool list;
	char name[]; /* empty: attributes */
};

struct watch {
	struct fs *fs; /* borrowed */
	pthread_t thread;
	int events_fd, stop_fd; /* owned */
	pid_t self;
	/* To be said once more, the oldest first. */
	struct notice *first, **last;
	unsigned n;
	char buffer[BUFFER_BYTES] __attribute__((aligned(8)));
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- telling the kernel ------------------------------------------------------------------- */
/* Looked up again when it is used next. To invalidate it would detach what is mounted there. */
static int expire(struct fuse_session *se, const struct notice *n)
{
#if HAVE_FUSE_EXPIRE_FLAGS
	return fuse_lowlevel_notify_expire_entry(se, n->nodeid, n->name, strlen(n->name),
						 FUSE_LL_EXPIRE_ONLY);
#else
	return fuse_lowlevel_notify_expire_entry(se, n->nodeid, n->name, strlen(n->name));
#endif
}

static void say(struct watch *w, const struct notice *n)
{
	struct fuse_session *se = w->fs->session;

	/* Errors: it is not cached, or the mount is gone. */
	if (!*n->name)
		(void)fuse_lowlevel_notify_inval_inode(se, n->nodeid, n->list ? 0 : -1, 0);
	else if (expire(se, n) == -ENOSYS)
		(void)fuse_lowlevel_notify_inval_entry(se, n->nodeid, n->name, strlen(n->name));
}

static void say_again(struct watch *w, int64_t upto_ms)
{
	while (w->first && w->first->due_ms <= upto_ms) {
		struct notice *n = w->first;

		say(w, n);
		w->first = n->next;
		if (!w->first)
			w->last = &w->first;
		w->n--;
		free(n);
	}
}

static void tell(struct watch *w, uint64_t nodeid, const char *name, bool list)
{
	size_t len = strlen(name) + 1;
	struct notice *n = calloc(1, sizeof(*n) + len);

	if (!n)
		return; /* it shows when its time is over */
	n->nodeid = nodeid;
	n->due_ms = now_ms() + AGAIN_MS;
	n->list = list;
	memcpy(n->name, name, len);
	say(w, n);
	if (w->n >= AGAIN_MAX)
		say_again(w, w->first->due_ms);
	*w->last = n;
	w->last = &n->next;
	w->n++;
}

/* ---- what was changed --------------------------------------------------------------------- */
static struct inode *inode_of(struct watch *w, const struct file_handle *fh)
{
	struct src_key key;

	return src_key_of_handle(fh, &key) < 0 ? NULL : inode_find(&w->fs->inodes, &key);
}

static void changed(struct watch *w, const struct file_handle *fh)
{
	_cleanup_fd_ struct fd_ref ref = FD_REF_INIT;
	struct inode *i = inode_of(w, fh);
	struct stat st;

	if (!i)
		return;
	tell(w, i->nodeid, "", false);
	inode_clear(i, INODE_NO_PRIVS);
	/* The tier looks at the times of what it knows, and has stale pages dropped. */
	if (inode_is_reg(i) && fd_get(w->fs, i, &ref) == 0)
		(void)attr_of_fd(w->fs, i, ref.fd, &st);
	inode_put(&w->fs->inodes, i);
}

/* The name follows the handle; "." is the directory itself. */
static void changed_name(struct watch *w, const struct file_handle *dir, uint64_t mask)
{
	const char *name = (const char *)dir->f_handle + dir->handle_bytes;
	struct inode *i = inode_of(w, dir);

	if (!i)
		return;
	if (mask & NAME_EVENTS && strcmp(name, ".") != 0)
		tell(w, i->nodeid, name, false);
	if (mask & NAME_EVENTS) /* the kernel's list of them is not kept at the next opendir */
		atomic_store(&i->stamp, 0);
	if (mask & NAME_EVENTS || strcmp(name, ".") == 0)
		tell(w, i->nodeid, "", mask & NAME_EVENTS);
	inode_put(&w->fs->inodes, i);
}

/* `at`: what follows the event's head. */
static void hear(struct watch *w, uint64_t mask, const char *at, const char *end)
{
	if (mask & FAN_Q_OVERFLOW)
		log_line(LOG_WARNING, "changes made in SRC were missed: some may show %d s late",
			 (int)WATCHED_TIMEOUT_S);
	while (end - at >= (ptrdiff_t)sizeof(struct fanotify_event_info_fid)) {
		const struct fanotify_event_info_fid *info = (const void *)at;
		const struct file_handle *fh = (const void *)info->handle;

		if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_FID)
			changed(w, fh);
		else if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME)
			changed_name(w, fh, mask);
		if (info->hdr.len == 0)
			break;
		at += info->hdr.len;
	}
}

/* False: there was nothing to read. Events are aligned to 4 bytes only. */
static bool listen(struct watch *w)
{
	ssize_t n = read(w->events_fd, w->buffer, sizeof(w->buffer));
	const char *at = w->buffer, *end = w->buffer + (n > 0 ? n : 0);
	struct fanotify_event_metadata e;

	while (end - at >= (ptrdiff_t)sizeof(e)) {
		memcpy(&e, at, sizeof(e));
		if (e.event_len < sizeof(e) || e.event_len > end - at)
			break;
		if (e.pid != w->self)
			hear(w, e.mask, at + e.metadata_len, at + e.event_len);
		at += e.event_len;
	}
	return n > 0;
}

/* ---- the thread --------------------------------------------------------------------------- */
/* False: it is over. */
static bool sleep_for(struct watch *w, bool wake_by_event, int64_t ms)
{
	struct pollfd fds[] = { { .fd = w->stop_fd, .events = POLLIN },
				{ .fd = w->events_fd, .events = POLLIN } };

	(void)poll(fds, wake_by_event ? 2 : 1, (int)ms);
	return !fds[0].revents;
}

static void *watch_main(void *arg)
{
	struct watch *w = arg;
	bool on = true;

	pthread_setname_np(pthread_self(), "hfs-watch");
	while (on) {
		int64_t wait = w->first ? w->first->due_ms - now_ms() : -1;

		on = sleep_for(w, true, w->first && wait < 0 ? 0 : wait);
		for (unsigned n = 0; n < ROUNDS_MAX && listen(w); n++)
			continue;
		say_again(w, now_ms());
		on = on && sleep_for(w, false, PAUSE_MS);
	}
	return NULL;
}

bool watch_is_possible(int src_fd, const char *path)
{
	static const unsigned long local[] = { EXT4_SUPER_MAGIC, XFS_MAGIC, BTRFS_SUPER_MAGIC,
					       F2FS_SUPER_MAGIC, TMPFS_MAGIC };
	struct statfs fs;
	struct statx stx;
	bool yes = false;

	if (fstatfs(src_fd, &fs) < 0 || statx(AT_FDCWD, path, 0, STATX_TYPE, &stx) < 0 ||
	    !(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(local); i++)
		yes |= (unsigned long)fs.f_type == local[i];
	return yes;
}

static int open_events(const struct fs *fs)
{
	unsigned flags = FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_DFID_NAME |
			 FAN_REPORT_TARGET_FID | FAN_UNLIMITED_QUEUE | FAN_CLOEXEC | FAN_NONBLOCK;
	_cleanup_close_ int fd = fanotify_init(flags, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, EVENTS,
				    fs->src.root_fd, NULL) < 0)
		return neg_errno();
	return TAKE_FD(fd);
}

static void watch_free(struct watch *w)
{
	while (w->first) {
		struct notice *n = w->first;

		w->first = n->next;
		free(n);
	}
	if (w->events_fd >= 0)
		close(w->events_fd);
	if (w->stop_fd >= 0)
		close(w->stop_fd);
	free(w);
}

struct watch *watch_start(struct fs *fs)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->fs = fs;
	w->last = &w->first;
	w->self = getpid();
	w->stop_fd = eventfd(0, EFD_CLOEXEC);
	w->events_fd = open_events(fs);
	if (w->stop_fd >= 0 && w->events_fd >= 0 &&
	    pthread_create(&w->thread, NULL, watch_main, w) == 0)
		return w;
	log_line(LOG_DEBUG, "no watch on SRC: %s", strerror(w->events_fd < 0 ? -w->events_fd : 0));
	watch_free(w);
	return NULL;
}

void watch_stop(struct watch *w)
{
	uint64_t one = 1;

	if (!w)
		return;
	if (write(w->stop_fd, &one, sizeof(one)) < 0)
		log_line(LOG_ERR, "cannot end the watch on SRC: %s", strerror(errno));
	pthread_join(w->thread, NULL);
	watch_free(w);
}
