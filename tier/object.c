// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Objects: SSD/volumes/<id>/objects/<xx>/<16 hex digits of the file id>, xx = id mod 256. Each
 * describes itself in the xattr user.hybridfs.object, from which a lost catalog can be rebuilt:
 *   "1 <volume id> <hex of the SRC key> <path hint>"
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "tier/internal.h"

#define OBJECT_XATTR "user.hybridfs.object"
#define PATH_HINT_MAX 1024
/* A directory for fewer objects than this is a waste of its inode. */
#define INODES_PER_DIR 8

struct object_name {
	char s[32];
};

static struct object_name object_name(uint64_t id)
{
	struct object_name n;

	snprintf(n.s, sizeof(n.s), "%02x/%016llx", (unsigned)(id % OBJECT_DIRS),
		 (unsigned long long)id);
	return n;
}

void object_dir_name(unsigned dir, char ret[8])
{
	snprintf(ret, 8, "%02x", dir % OBJECT_DIRS);
}

uint64_t object_id_of_name(const char *name)
{
	char *end;

	if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16)
		return 0;
	uint64_t id = strtoull(name, &end, 16);

	return *end ? 0 : id;
}

/* ext4 has a fixed number of inodes. Where they are few the directories are made as they are
 * needed, and what is left is for the catalog and the objects. */
static bool inodes_are_few(struct volume *v)
{
	struct statvfs fs;

	return fstatvfs(v->objects_fd, &fs) == 0 && fs.f_files > 0 &&
	       fs.f_favail < INODES_PER_DIR * OBJECT_DIRS;
}

int object_init_dirs(struct volume *v)
{
	char name[8];

	if (inodes_are_few(v))
		return 0;
	for (unsigned i = 0; i < OBJECT_DIRS; i++) {
		object_dir_name(i, name);
		if (mkdirat(v->objects_fd, name, 0700) < 0 && errno != EEXIST)
			return neg_errno();
	}
	return fsync(v->objects_fd) < 0 ? neg_errno() : 0;
}

static void describe(struct volume *v, int fd, const struct src_key *key, const char *path)
{
	char text[64 + 2 * SRC_KEY_MAX + PATH_HINT_MAX];
	int n = snprintf(text, sizeof(text), "1 %s ", v->id);

	for (uint32_t i = 0; i < key->len; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x", key->data[i]);
	n += snprintf(text + n, sizeof(text) - (size_t)n, " %.*s", PATH_HINT_MAX - 1,
		      path ? path : "");
	/* Only a lost catalog needs it; a filesystem without xattrs (or room for one) is no
	 * reason to refuse the data. */
	(void)fsetxattr(fd, OBJECT_XATTR, text, (size_t)n, 0);
}

/* As durable as if it had been there from the beginning: later only the directory itself is
 * synced. */
static int make_dir(struct volume *v, uint64_t id)
{
	char name[8];

	object_dir_name((unsigned)(id % OBJECT_DIRS), name);
	if (mkdirat(v->objects_fd, name, 0700) < 0 && errno != EEXIST)
		return neg_errno();
	return fsync(v->objects_fd) < 0 ? neg_errno() : 0;
}

static int create_in_dir(struct volume *v, uint64_t id, const char *name, int flags)
{
	int fd = openat(v->objects_fd, name, flags, 0600);

	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? neg_errno() : fd;
	int r = make_dir(v, id);

	if (r < 0)
		return r;
	fd = openat(v->objects_fd, name, flags, 0600);
	return fd < 0 ? neg_errno() : fd;
}

int object_create(struct volume *v, uint64_t id, const struct src_key *key, const char *path)
{
	struct object_name n = object_name(id);
	int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	int fd = create_in_dir(v, id, n.s, flags);

	/* A leftover of a crash before its row was committed; ids are not reused otherwise. */
	if (fd == -EEXIST && unlinkat(v->objects_fd, n.s, 0) == 0)
		fd = create_in_dir(v, id, n.s, flags);
	if (fd < 0)
		return fd;
	describe(v, fd, key, path);
	return fd;
}

void object_describe(struct volume *v, int fd, const struct src_key *key, const char *path)
{
	if (fgetxattr(fd, OBJECT_XATTR, NULL, 0) < 0 && errno == ENODATA)
		describe(v, fd, key, path);
}

int object_open(struct volume *v, uint64_t id)
{
	struct object_name n = object_name(id);
	int fd = openat(v->objects_fd, n.s, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 ? fd : neg_errno();
}

int object_remove(struct volume *v, uint64_t id)
{
	struct object_name n = object_name(id);

	if (unlinkat(v->objects_fd, n.s, 0) < 0 && errno != ENOENT)
		return neg_errno();
	return 0;
}

int object_sync_dir(struct volume *v, uint64_t id)
{
	char name[8];

	object_dir_name((unsigned)(id % OBJECT_DIRS), name);
	_cleanup_close_ int fd = openat(v->objects_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? neg_errno() : 0;
}

int object_punch(int fd, uint64_t off, uint64_t len)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) < 0)
		return neg_errno();
	return 0;
}
