// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/session.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "db/base.h"
#include "fs/fs.h"
#include "fs/log.h"
#include "fs/ops.h"

/* FUSE's defaults are 128 KiB of read-ahead, and 1 % of the memory that may be dirty for pages
 * changed through mappings: writers through mmap() were 3 times slower. */
#define READAHEAD_KB "1024"
#define DIRTY_RATIO  "50"

extern char **environ;

/* ---- mounting ------------------------------------------------------------------------------ */
static int add(struct fuse_args *args, const char *name, const char *value)
{
	_cleanup_free_ char *option = malloc(4 + strlen(name) + 2 * strlen(value));
	char *p = option;

	if (!option)
		return -ENOMEM;
	p += sprintf(p, "-o%s", name);
	for (; *value; value++) {
		if (*value == ',' || *value == '\\')
			*p++ = '\\';
		*p++ = *value;
	}
	*p = '\0';
	return fuse_opt_add_arg(args, option) < 0 ? -ENOMEM : 0;
}

static int add_flag(struct fuse_args *args, bool wanted, const char *name)
{
	return wanted ? add(args, name, "") : 0;
}

/* A mount by root is like that of any other filesystem: for everybody, with setuid and devices. */
static int make_args(const struct fs *fs, bool privileged, struct fuse_args *args)
{
	const struct mount_options *o = fs->opt;
	bool root = geteuid() == 0;
	bool everybody = o->allow == ALLOW_OTHER || (o->allow == ALLOW_DEFAULT && root);
	int r = fuse_opt_add_arg(args, "hybridfs") < 0 ? -ENOMEM : 0;

	if (r == 0)
		r = add(args, "fsname=", o->fsname ? o->fsname : o->src);
	if (r == 0)
		r = add(args, "subtype=hybridfs,default_permissions", "");
	if (r == 0)
		r = add_flag(args, everybody, "allow_other");
	if (r == 0)
		r = add_flag(args, o->allow == ALLOW_ROOT, "allow_root");
	if (r == 0)
		r = add_flag(args, root && privileged && !o->nosuid, "suid");
	if (r == 0)
		r = add_flag(args, root && privileged && !o->nodev, "dev");
	if (r == 0)
		r = add_flag(args, o->read_only || fs->src.read_only, "ro");
	if (r == 0 && o->fuse_opts)
		r = add_flag(args, true, o->fuse_opts);
	if (r == 0 && o->debug)
		r = fuse_opt_add_arg(args, "-d") < 0 ? -ENOMEM : 0;
	return r;
}

/* Without asking the filesystem for anything. */
static bool device_at(const char *path, dev_t *ret)
{
	struct statx stx;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) < 0)
		return false;
	*ret = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	return true;
}

static int mount_error(const char *path)
{
	const char *reason = log_fuse_reason();

	log_release_fuse();
	fprintf(stderr, "hybridfs: %s: cannot mount: %s\n", path,
		*reason ? reason : "unknown reason");
	return MOUNT_FAILED;
}

int session_open(struct fs *fs, bool privileged, dev_t *ret_dev)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	const char *mnt = fs->opt->mnt;
	int r = make_args(fs, privileged, &args);

	log_catch_fuse();
	if (r == 0)
		fs->session = fuse_session_new(&args, &fs_operations, sizeof(fs_operations), fs);
	fuse_opt_free_args(&args);
	if (!fs->session || fuse_session_mount(fs->session, mnt) < 0)
		return mount_error(mnt);
	log_release_fuse();
	if (!device_at(mnt, ret_dev))
		*ret_dev = 0;
	return 0;
}

static void tune(dev_t dev, const char *name, const char *value)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/%s", major(dev), minor(dev), name);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, value, strlen(value)) < 0)
		log_line(LOG_DEBUG, "%s: %s", path, strerror(errno));
}

void session_tune(dev_t dev)
{
	tune(dev, "read_ahead_kb", READAHEAD_KB);
	tune(dev, "max_ratio", DIRTY_RATIO);
}

/* ---- unmounting ---------------------------------------------------------------------------- */
static bool fusermount(const char *mountpoint, bool lazy)
{
	char *argv[] = { (char *)"fusermount3", (char *)"-u",	    (char *)(lazy ? "-qz" : "-q"),
			 (char *)"--",		(char *)mountpoint, NULL };
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
		return false;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/*
 * Pages that programs changed through mappings. syncfs(2) does not wait for FUSE's writes;
 * invalidating a file's pages writes those that are dirty, and waits. What is not open any more was
 * written when it was closed or unmapped.
 */
static void write_mapped_pages(struct fs *fs)
{
	_cleanup_free_ uint64_t *ids = handle_written_ids(fs);

	for (const uint64_t *id = ids; id && *id; id++)
		(void)fuse_lowlevel_notify_inval_inode(fs->session, *id, 0, 0);
}

void session_unmount(struct fs *fs, dev_t dev, bool now)
{
	const char *mnt = fs->opt->mnt;
	dev_t there;

	if (!device_at(mnt, &there) || there != dev)
		return;
	if (!now && umount2(mnt, UMOUNT_NOFOLLOW) == 0)
		return;
	if (!now && errno == EPERM && fusermount(mnt, false))
		return;
	if (!now)
		write_mapped_pages(fs);
	if (umount2(mnt, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		fusermount(mnt, true);
}

bool session_gone(const struct fs *fs)
{
	struct pollfd p = { .fd = fuse_session_fd(fs->session) };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* The kernel's list of connections, mounted for nobody but us: it need not be below /sys, and often
 * is not. */
static int open_connections(void)
{
	_cleanup_close_ int context = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int fd = fsmount(context, FSMOUNT_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int session_abort_fd(dev_t dev)
{
	char path[64];
	_cleanup_close_ int connections = open_connections();

	if (connections < 0) /* an ordinary user may use what is there */
		connections = open("/sys/fs/fuse/connections", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (connections < 0)
		return -errno;
	snprintf(path, sizeof(path), "%u/abort", minor(dev));
	int fd = openat(connections, path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

bool session_abort(dev_t dev)
{
	_cleanup_close_ int fd = session_abort_fd(dev);

	return fd >= 0 && write(fd, "1", 1) == 1;
}

/* A pipe without a reader takes the descriptor's place. */
void session_cut(struct fs *fs)
{
	int ends[2];

	if (!fs->session || fuse_session_fd(fs->session) < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return;
	close(ends[0]);
	dup3(ends[1], fuse_session_fd(fs->session), O_CLOEXEC);
	close(ends[1]);
}

/*
 * fuse_session_unmount() unmounts whatever is at the path, unless the descriptor says that the
 * connection is gone: the pipe does.
 */
void session_close(struct fs *fs)
{
	if (!fs->session)
		return;
	if (fuse_session_fd(fs->session) >= 0 && session_gone(fs))
		fuse_session_unmount(fs->session);
	fuse_session_destroy(fs->session);
	fs->session = NULL;
}
