// SPDX-License-Identifier: GPL-2.0-or-later
#include "ops.h"
#include "node.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TMP_NAME "ops.tmp"

/* Removes what an op just made; the op's own result is kept. */
static int undo(int ret, const char *path)
{
	if (ret == 0)
		MUST(node_remove(path));
	return ret;
}

static int op_access(const char *path)
{
	return access(path, F_OK);
}

static int op_faccessat_nofollow(const char *path)
{
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int op_stat(const char *path)
{
	struct stat st;

	return stat(path, &st);
}

static int op_lstat(const char *path)
{
	struct stat st;

	return lstat(path, &st);
}

static int op_statx(const char *path)
{
	struct statx stx;

	return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &stx);
}

static int op_statvfs(const char *path)
{
	struct statvfs st;

	return statvfs(path, &st);
}

static int op_open_read(const char *path)
{
	return closing(open(path, O_RDONLY | O_NONBLOCK));
}

static int op_open_write(const char *path)
{
	return closing(open(path, O_WRONLY | O_NONBLOCK));
}

static int op_open_rdwr(const char *path)
{
	return closing(open(path, O_RDWR | O_NONBLOCK));
}

static int op_open_trunc(const char *path)
{
	return closing(open(path, O_WRONLY | O_TRUNC | O_NONBLOCK));
}

static int op_open_path(const char *path)
{
	return closing(open(path, O_PATH));
}

static int op_open_path_nofollow(const char *path)
{
	return closing(open(path, O_PATH | O_NOFOLLOW));
}

static int op_open_append(const char *path)
{
	return closing(open(path, O_WRONLY | O_APPEND | O_NONBLOCK));
}

static int op_opendir(const char *path)
{
	return closing(open(path, O_RDONLY | O_DIRECTORY));
}

static int op_open_creat(const char *path)
{
	bool there = faccessat(AT_FDCWD, path, F_OK, 0) == 0;
	int ret = closing(open(path, O_WRONLY | O_CREAT | O_NONBLOCK, 0644));

	return there ? ret : undo(ret, path);
}

static int op_open_excl(const char *path)
{
	return undo(closing(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644)), path);
}

static int op_chdir(const char *path)
{
	int here = (int)MUST(open(".", O_PATH | O_DIRECTORY));
	int ret = chdir(path), err = errno;

	MUST(fchdir(here));
	MUST(close(here));
	errno = err;
	return ret;
}

static int op_execve(const char *path)
{
	char arg[] = "posixtest";
	char *argv[] = { arg, NULL }, *envp[] = { NULL };
	int status = 0;
	pid_t pid = vfork();

	if (pid == 0) {
		execve(path, argv, envp);
		_exit(errno);
	}
	MUST(waitpid(pid, &status, 0));
	errno = WEXITSTATUS(status);
	return errno ? -1 : 0;
}

static int op_chmod(const char *path)
{
	return chmod(path, 0755);
}

static int op_chown(const char *path)
{
	return chown(path, (uid_t)-1, getegid());
}

static int op_lchown(const char *path)
{
	return lchown(path, (uid_t)-1, getegid());
}

static int op_truncate(const char *path)
{
	return truncate(path, 3);
}

static int op_utimensat(const char *path)
{
	const struct timespec t[2] = { { 1, 0 }, { 2, 0 } };

	return utimensat(AT_FDCWD, path, t, 0);
}

static int op_utimensat_nofollow(const char *path)
{
	const struct timespec t[2] = { { 1, 0 }, { 2, 0 } };

	return utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
}

static int op_utime_now(const char *path)
{
	return utimensat(AT_FDCWD, path, NULL, 0);
}

static int op_readlink(const char *path)
{
	char buf[8];

	return readlink(path, buf, sizeof(buf)) < 0 ? -1 : 0;
}

/* ENODATA is an answer, too: the path led somewhere. */
static int attr_found(ssize_t ret)
{
	return ret >= 0 || errno == ENODATA ? 0 : -1;
}

static int op_getxattr(const char *path)
{
	return attr_found(getxattr(path, "user.t", NULL, 0));
}

static int op_lgetxattr(const char *path)
{
	return attr_found(lgetxattr(path, "user.t", NULL, 0));
}

static int op_setxattr(const char *path)
{
	return setxattr(path, "user.t", "1", 1, 0);
}

static int op_lsetxattr(const char *path)
{
	return lsetxattr(path, "user.t", "1", 1, 0);
}

static int op_listxattr(const char *path)
{
	return listxattr(path, NULL, 0) < 0 ? -1 : 0;
}

static int op_llistxattr(const char *path)
{
	return llistxattr(path, NULL, 0) < 0 ? -1 : 0;
}

static int op_removexattr(const char *path)
{
	return attr_found(removexattr(path, "user.t"));
}

static int op_lremovexattr(const char *path)
{
	return attr_found(lremovexattr(path, "user.t"));
}

static int op_inotify(const char *path)
{
	int fd = (int)MUST(inotify_init1(IN_CLOEXEC));
	int ret = inotify_add_watch(fd, path, IN_ATTRIB) < 0 ? -1 : 0, err = errno;

	MUST(close(fd));
	errno = err;
	return ret;
}

static int op_mkdir(const char *path)
{
	return undo(mkdir(path, 0755), path);
}

static int op_mkdirat(const char *path)
{
	return undo(mkdirat(AT_FDCWD, path, 0700), path);
}

static int op_mkfifo(const char *path)
{
	return undo(mkfifo(path, 0644), path);
}

static int op_mknod_sock(const char *path)
{
	return undo(mknod(path, S_IFSOCK | 0644, 0), path);
}

static int op_mknod_reg(const char *path)
{
	return undo(mknod(path, S_IFREG | 0644, 0), path);
}

static int op_symlink(const char *path)
{
	return undo(symlink("target", path), path);
}

static int op_link_to(const char *path)
{
	return undo(link("src", path), path);
}

static int op_link_from(const char *path)
{
	return undo(link(path, TMP_NAME), TMP_NAME);
}

static int op_link_from_follow(const char *path)
{
	return undo(linkat(AT_FDCWD, path, AT_FDCWD, TMP_NAME, AT_SYMLINK_FOLLOW), TMP_NAME);
}

static int move_back(int ret, const char *now, const char *then)
{
	if (ret == 0)
		MUST(rename(now, then));
	return ret;
}

static int op_rename_from(const char *path)
{
	return move_back(rename(path, TMP_NAME), TMP_NAME, path);
}

static int op_rename_to(const char *path)
{
	return move_back(rename("src", path), path, "src");
}

static int op_unlink(const char *path)
{
	return unlink(path);
}

static int op_unlinkat(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

static int op_rmdir(const char *path)
{
	return rmdir(path);
}

static int op_unlinkat_removedir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

const struct op ops[] = {
	{ "access", op_access, OP_FOLLOW, 0 },
	{ "faccessat nofollow", op_faccessat_nofollow, OP_NOFOLLOW, 0 },
	{ "stat", op_stat, OP_FOLLOW, 0 },
	{ "lstat", op_lstat, OP_NOFOLLOW, 0 },
	{ "statx", op_statx, OP_FOLLOW, 0 },
	{ "statvfs", op_statvfs, OP_FOLLOW, 0 },
	{ "open O_RDONLY", op_open_read, OP_FOLLOW, OP_READ },
	{ "open O_WRONLY", op_open_write, OP_FOLLOW, OP_WRITE },
	{ "open O_RDWR", op_open_rdwr, OP_FOLLOW, OP_READ | OP_WRITE },
	{ "open O_TRUNC", op_open_trunc, OP_FOLLOW, OP_WRITE },
	{ "open O_APPEND", op_open_append, OP_FOLLOW, OP_WRITE },
	{ "open O_PATH", op_open_path, OP_FOLLOW, 0 },
	{ "open O_PATH nofollow", op_open_path_nofollow, OP_NOFOLLOW, 0 },
	{ "open O_DIRECTORY", op_opendir, OP_FOLLOW, OP_READ },
	{ "open O_CREAT", op_open_creat, OP_CREAT, OP_WRITE },
	{ "open O_EXCL", op_open_excl, OP_EXCL, 0 },
	{ "chdir", op_chdir, OP_FOLLOW, OP_EXEC },
	{ "execve", op_execve, OP_FOLLOW, OP_EXEC },
	{ "chmod", op_chmod, OP_FOLLOW, OP_OWNER },
	{ "chown", op_chown, OP_FOLLOW, OP_OWNER },
	{ "lchown", op_lchown, OP_NOFOLLOW, OP_OWNER },
	{ "truncate", op_truncate, OP_FOLLOW, OP_WRITE },
	{ "utimensat", op_utimensat, OP_FOLLOW, OP_OWNER },
	{ "utimensat nofollow", op_utimensat_nofollow, OP_NOFOLLOW, OP_OWNER },
	{ "utimensat NULL", op_utime_now, OP_FOLLOW, OP_WRITE },
	{ "readlink", op_readlink, OP_NOFOLLOW, 0 },
	{ "getxattr", op_getxattr, OP_FOLLOW, OP_READ | OP_XATTR },
	{ "lgetxattr", op_lgetxattr, OP_NOFOLLOW, OP_READ | OP_XATTR },
	{ "setxattr", op_setxattr, OP_FOLLOW, OP_WRITE | OP_XATTR },
	{ "lsetxattr", op_lsetxattr, OP_NOFOLLOW, OP_WRITE | OP_XATTR },
	{ "listxattr", op_listxattr, OP_FOLLOW, OP_XATTR },
	{ "llistxattr", op_llistxattr, OP_NOFOLLOW, OP_XATTR },
	{ "removexattr", op_removexattr, OP_FOLLOW, OP_WRITE | OP_XATTR },
	{ "lremovexattr", op_lremovexattr, OP_NOFOLLOW, OP_WRITE | OP_XATTR },
	{ "inotify_add_watch", op_inotify, OP_FOLLOW, OP_READ },
	{ "link from", op_link_from, OP_NOFOLLOW, 0 },
	{ "linkat follow from", op_link_from_follow, OP_FOLLOW, 0 },
	{ "mkdir", op_mkdir, OP_MKDIR, 0 },
	{ "mkdirat", op_mkdirat, OP_MKDIR, 0 },
	{ "mkfifo", op_mkfifo, OP_MAKE, 0 },
	{ "mknod S_IFSOCK", op_mknod_sock, OP_MAKE, 0 },
	{ "mknod S_IFREG", op_mknod_reg, OP_MAKE, 0 },
	{ "symlink", op_symlink, OP_MAKE, 0 },
	{ "link to", op_link_to, OP_MAKE, 0 },
	{ "rename to", op_rename_to, OP_RENAME_TO, 0 },
	{ "rename from", op_rename_from, OP_RENAME_FROM, 0 },
	{ "unlink", op_unlink, OP_UNLINK, 0 },
	{ "unlinkat", op_unlinkat, OP_UNLINK, 0 },
	{ "rmdir", op_rmdir, OP_RMDIR, 0 },
	{ "unlinkat AT_REMOVEDIR", op_unlinkat_removedir, OP_RMDIR, 0 },
};

const size_t op_count = ARRAY_SIZE(ops);

bool op_makes(const struct op *op)
{
	switch (op->class) {
	case OP_MKDIR:
	case OP_MAKE:
	case OP_CREAT:
	case OP_EXCL:
	case OP_RENAME_TO:
		return true;
	default:
		return false;
	}
}

bool op_removes(const struct op *op)
{
	return op->class == OP_UNLINK || op->class == OP_RMDIR || op->class == OP_RENAME_FROM;
}

bool op_changes_parent(const struct op *op)
{
	return op_makes(op) || op_removes(op);
}
