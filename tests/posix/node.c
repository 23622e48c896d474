// SPDX-License-Identifier: GPL-2.0-or-later
#include "node.h"
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const struct {
	const char *name;
	mode_t ifmt;
} types[NODE_TYPES] = {
	[NODE_REG] = { "file", S_IFREG },    [NODE_DIR] = { "directory", S_IFDIR },
	[NODE_FIFO] = { "fifo", S_IFIFO },   [NODE_SOCK] = { "socket", S_IFSOCK },
	[NODE_LNK] = { "symlink", S_IFLNK }, [NODE_CHR] = { "chr", S_IFCHR },
	[NODE_BLK] = { "blk", S_IFBLK },
};

enum node_type node_type_end(void)
{
	return is_root() ? NODE_TYPES : NODE_CHR;
}

const char *node_name(enum node_type type)
{
	return types[type].name;
}

mode_t node_ifmt(enum node_type type)
{
	return types[type].ifmt;
}

int node_create(enum node_type type, const char *path, mode_t mode)
{
	switch (type) {
	case NODE_REG:
		return closing(open(path, O_CREAT | O_EXCL | O_WRONLY, mode));
	case NODE_DIR:
		return mkdir(path, mode);
	case NODE_FIFO:
		return mkfifo(path, mode);
	case NODE_LNK:
		return symlink("nowhere", path);
	case NODE_CHR:
		return mknod(path, S_IFCHR | mode, makedev(1, 3));
	case NODE_BLK:
		return mknod(path, S_IFBLK | mode, makedev(1, 250));
	default:
		return mknod(path, S_IFSOCK | mode, 0);
	}
}

void node_make(enum node_type type, const char *path, mode_t mode)
{
	MUST(node_create(type, path, mode & 0777));
	if (type != NODE_LNK)
		MUST(chmod(path, mode));
}

int node_remove(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return -1;
	return S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path);
}

void make_file(const char *path, mode_t mode)
{
	node_make(NODE_REG, path, mode);
}

void make_dir(const char *path, mode_t mode)
{
	node_make(NODE_DIR, path, mode);
}

void make_content(const char *path, const void *data, size_t size)
{
	int fd = (int)MUST(open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644));

	MUST(write(fd, data, size) == (ssize_t)size ? 0 : -1);
	MUST(close(fd));
}

void make_sized(const char *path, off_t size)
{
	make_file(path, 0644);
	MUST(truncate(path, size));
}

void give(const char *path)
{
	if (is_root())
		give_to(path, actor_owner.uid, actor_owner.gid);
}

void give_to(const char *path, uid_t uid, gid_t gid)
{
	MUST(lchown(path, uid, gid));
}

void make_given(enum node_type type, const char *path)
{
	node_make(type, path, 0777);
	give(path);
}

void fresh(void)
{
	static int count;
	char name[32];

	/* All rounds are made next to each other in the test's directory, not in one another. */
	if (count > 0)
		MUST(chdir(".."));
	snprintf(name, sizeof(name), "round%d", count++);
	make_dir(name, 0755);
	MUST(chdir(name));
}

int exists(const char *path)
{
	struct stat st;

	return lstat(path, &st);
}

static long long format_bits(mode_t mode)
{
	return mode & S_IFMT;
}

static long long permission_bits(mode_t mode)
{
	return mode & 07777;
}

#define DEFINE_LOOKER(name, expr)          \
	long long name(const char *path)   \
	{                                  \
		struct stat st;            \
                                           \
		if (lstat(path, &st) != 0) \
			return -errno;     \
		return (long long)(expr);  \
	}

DEFINE_LOOKER(mode_of, permission_bits(st.st_mode))
DEFINE_LOOKER(type_of, format_bits(st.st_mode))
DEFINE_LOOKER(size_of, st.st_size)
DEFINE_LOOKER(nlink_of, st.st_nlink)
DEFINE_LOOKER(ino_of, st.st_ino)
DEFINE_LOOKER(uid_of, st.st_uid)
DEFINE_LOOKER(gid_of, st.st_gid)
DEFINE_LOOKER(blocks_of, st.st_blocks)

long long count_entries(const char *path)
{
	DIR *dir = opendir(path);
	long long n = 0;
	struct dirent *de;

	if (!dir)
		return -errno;
	while ((de = readdir(dir)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			n++;
	closedir(dir);
	return n;
}

bool fd_content_is(int fd, off_t off, const void *data, size_t size)
{
	char *buf = MUST_PTR(malloc(size + 1));
	bool same = pread(fd, buf, size, off) == (ssize_t)size && memcmp(buf, data, size) == 0;

	free(buf);
	return same;
}

bool fd_is_zero(int fd, off_t off, size_t size)
{
	char *zeros = MUST_PTR(calloc(1, size + 1));
	bool same = fd_content_is(fd, off, zeros, size);

	free(zeros);
	return same;
}

bool content_is(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_RDONLY);
	bool same;

	if (fd < 0)
		return false;
	same = size_of(path) == (long long)size && fd_content_is(fd, 0, data, size);
	close(fd);
	return same;
}

void fill_pattern(void *buf, size_t size, unsigned int seed)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < size; i++)
		p[i] = (unsigned char)(1 + (i * 7 + i / 251 + seed * 31) % 255);
}

int closing(int fd)
{
	return fd < 0 ? -1 : close(fd);
}

void *bad_address(void)
{
	void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(p == MAP_FAILED ? -1 : 0);
	return p;
}

const char *long_name(size_t length, char fill)
{
	static char buf[2][PATH_MAX + 1];
	static int turn;
	char *b = buf[turn++ & 1];

	memset(b, fill, length);
	b[length] = '\0';
	return b;
}

const char *long_path(size_t length, const char *name)
{
	static char buf[2][PATH_MAX + 16];
	static int turn;
	char *b = buf[turn++ & 1];
	size_t lead = length - strlen(name);

	for (size_t i = 0; i < lead; i++)
		b[i] = i % 2 && i + 1 <= lead ? '/' : '.';
	/* An odd rest would end in '.', so a second '/' takes its place. */
	if (lead > 0)
		b[lead - 1] = '/';
	strcpy(b + lead, name);
	return b;
}
