// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/users.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "db/base.h"
#include "fs/cmd/format.h"

/* Names only: a stat of what they lead to could hang on the daemon. */
static bool link_is_below(int dir_fd, const char *name, const char *mountpoint)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);
	size_t len = strlen(mountpoint);

	if (n < 0)
		return false;
	target[n] = '\0';
	return strncmp(target, mountpoint, len) == 0 && (target[len] == '/' || target[len] == '\0');
}

static FILE *open_at(int dir_fd, const char *path)
{
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* A name may be that of what lies under the mount: only the mount's id is certain. */
static bool fd_is_on(int proc_fd, const char *number, int mount_id)
{
	char path[NAME_MAX + 16], line[128];
	int id = -1;
	FILE *f;

	snprintf(path, sizeof(path), "fdinfo/%s", number);
	f = open_at(proc_fd, path);
	if (!f)
		return false;
	while (id < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %d", &id) != 1)
			id = -1;
	fclose(f);
	return id == mount_id;
}

static bool has_open_file(int proc_fd, const struct mount *m)
{
	int fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool found = false;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && (e = readdir(dir)))
		found = isdigit((unsigned char)e->d_name[0]) &&
			link_is_below(fd, e->d_name, m->mountpoint) &&
			fd_is_on(proc_fd, e->d_name, m->id);
	closedir(dir);
	return found;
}

static bool has_mapping(int proc_fd, const struct mount *m)
{
	_cleanup_free_ char *line = NULL;
	unsigned dev_major, dev_minor;
	bool found = false;
	size_t size = 0;
	FILE *f = open_at(proc_fd, "maps");

	if (!f)
		return false;
	while (!found && getline(&line, &size, f) > 0)
		found = sscanf(line, "%*s %*s %*s %x:%x", &dev_major, &dev_minor) == 2 &&
			makedev(dev_major, dev_minor) == m->dev;
	fclose(f);
	return found;
}

/* How the process uses the mount, or NULL. */
static const char *use_of(int proc_fd, const struct mount *m)
{
	if (link_is_below(proc_fd, "cwd", m->mountpoint))
		return "working directory";
	if (has_open_file(proc_fd, m))
		return "open file";
	if (link_is_below(proc_fd, "root", m->mountpoint))
		return "root directory";
	if (has_mapping(proc_fd, m))
		return "mapped file";
	return NULL;
}

static void put_process(FILE *f, int proc_fd, const char *pid, const char *use)
{
	char name[64] = "";
	FILE *comm = open_at(proc_fd, "comm");

	if (comm && fgets(name, sizeof(name), comm))
		name[strcspn(name, "\n")] = '\0';
	if (comm)
		fclose(comm);
	fmt_put_escaped(f, *name ? name : "?");
	fprintf(f, " (pid %s, %s)", pid, use);
}

static unsigned put_processes(FILE *f, const struct mount *m, pid_t daemon)
{
	DIR *proc = opendir("/proc");
	const struct dirent *e;
	unsigned n = 0;

	while (proc && n < USERS_LISTED_MAX && (e = readdir(proc))) {
		_cleanup_close_ int fd = -1;
		const char *use;

		if (!isdigit((unsigned char)e->d_name[0]) || atoi(e->d_name) == daemon)
			continue;
		fd = openat(dirfd(proc), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		use = fd >= 0 ? use_of(fd, m) : NULL;
		if (!use)
			continue;
		fputs(n++ > 0 ? ", " : "", f);
		put_process(f, fd, e->d_name, use);
	}
	if (proc)
		closedir(proc);
	return n;
}

static unsigned put_mounts_below(FILE *f, const struct mount *m, unsigned n)
{
	_cleanup_mounts_ struct mounts all = { 0 };

	if (mounts_read(&all) < 0)
		return n;
	for (size_t i = 0; i < all.n && n < USERS_LISTED_MAX; i++) {
		if (all.items[i].parent != m->id)
			continue;
		fputs(n++ > 0 ? ", " : "", f);
		fputs("the mount on ", f);
		fmt_put_escaped(f, all.items[i].mountpoint);
	}
	return n;
}

unsigned users_put(FILE *f, const struct mount *m, pid_t daemon)
{
	return put_mounts_below(f, m, put_processes(f, m, daemon));
}
