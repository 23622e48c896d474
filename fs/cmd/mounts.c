// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "db/base.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

void mount_unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && is_octal(s[2]) &&
		    is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

static char *unescaped_copy(const char *s)
{
	char *copy = strdup(s);

	if (copy)
		mount_unescape(copy);
	return copy;
}

/*
 * 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
 * id parent dev root mountpoint options [tags...] - fstype source superoptions
 */
int mount_parse(char *line, struct mount *ret)
{
	char *fields[5], *rest = line, *tail = strstr(line, " - ");
	char *fstype, *source;
	unsigned major, minor;
	struct mount m = { 0 };

	if (!tail)
		return -EINVAL;
	*tail = '\0';
	tail += 3;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!(fields[i] = strsep(&rest, " ")))
			return -EINVAL;
	fstype = strsep(&tail, " ");
	source = strsep(&tail, " \n");
	if (!source || sscanf(fields[0], "%d", &m.id) != 1 ||
	    sscanf(fields[1], "%d", &m.parent) != 1 ||
	    sscanf(fields[2], "%u:%u", &major, &minor) != 2)
		return -EINVAL;
	m.dev = makedev(major, minor);
	m.is_part = strcmp(fields[3], "/") != 0;
	m.mountpoint = unescaped_copy(fields[4]);
	m.fstype = unescaped_copy(fstype);
	m.source = unescaped_copy(source);
	if (!m.mountpoint || !m.fstype || !m.source) {
		mount_release(&m);
		return -ENOMEM;
	}
	*ret = m;
	return 0;
}

void mount_release(struct mount *m)
{
	free(m->mountpoint);
	free(m->fstype);
	free(m->source);
}

void mounts_release(struct mounts *m)
{
	for (size_t i = 0; i < m->n; i++)
		mount_release(&m->items[i]);
	free(m->items);
	*m = (struct mounts){ 0 };
}

static int append(struct mounts *m, struct mount item)
{
	struct mount *items = reallocarray(m->items, m->n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	items[m->n++] = item;
	m->items = items;
	return 0;
}

int mounts_read(struct mounts *ret)
{
	_cleanup_free_ char *line = NULL;
	struct mounts all = { 0 };
	struct mount m;
	size_t size = 0;
	int err = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f)
		return neg_errno();
	while (err == 0 && getline(&line, &size, f) > 0) {
		if (mount_parse(line, &m) < 0)
			continue;
		err = append(&all, m);
		if (err < 0)
			mount_release(&m);
	}
	fclose(f);
	if (err < 0)
		mounts_release(&all);
	else
		*ret = all;
	return err;
}

bool mount_is_ours(const struct mount *m)
{
	return strcmp(m->fstype, MOUNTS_FSTYPE) == 0;
}

const struct mount *mounts_find_id(const struct mounts *m, int id)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].id == id)
			return &m->items[i];
	return NULL;
}

static int mount_id_of_fd(int fd)
{
	char path[64], line[128];
	int id = -ENODATA;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return neg_errno();
	while (id < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %d", &id) != 1)
			id = -ENODATA;
	fclose(f);
	return id;
}

static int name_of_fd(int fd, char **ret_name)
{
	char path[64], name[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0)
		return neg_errno();
	name[n] = '\0';
	*ret_name = strdup(name);
	return *ret_name ? 0 : -ENOMEM;
}

int mounts_locate(const char *path, int *ret_id, char **ret_name)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	int id;

	if (fd < 0)
		return neg_errno();
	id = mount_id_of_fd(fd);
	if (id < 0)
		return id;
	*ret_id = id;
	return ret_name ? name_of_fd(fd, ret_name) : 0;
}
