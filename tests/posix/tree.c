// SPDX-License-Identifier: GPL-2.0-or-later
#include "harness.h"
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PASSES_MAX 100

static DIR *open_below(int dirfd, const char *name)
{
	int fd;
	DIR *dir;

	/* If this fails, opening tells why. */
	(void)!fchmodat(dirfd, name, 0700, 0);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	dir = fdopendir(fd);
	if (!dir)
		close(fd);
	return dir;
}

/* One pass over a directory; returns how many entries went, and the first error. */
static int empty_pass(DIR *dir, int *ret_err)
{
	struct dirent *de;
	int removed = 0, err;

	*ret_err = 0;
	while ((de = readdir(dir))) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		err = tree_remove(dirfd(dir), de->d_name);
		if (err == 0)
			removed++;
		else if (*ret_err == 0)
			*ret_err = err;
	}
	return removed;
}

static int remove_dir(int parent, const char *name)
{
	DIR *dir = open_below(parent, name);
	int err = 0, passes = 0;

	if (!dir)
		return -errno;
	/* Again while it helps: some filesystems lose their place, or bring hidden files up. */
	while (empty_pass(dir, &err) > 0 && ++passes < PASSES_MAX)
		rewinddir(dir);
	closedir(dir);
	if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
		return 0;
	return err ? err : -errno;
}

int tree_remove(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return remove_dir(dirfd, name);
	return unlinkat(dirfd, name, 0) == 0 ? 0 : -errno;
}
