// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/layout.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tier/internal.h"

int layout_volume_id(const struct src *src, char ret_id[33])
{
	struct src_key root;
	int r = src_key_of_fd(src, src->root_fd, &root);

	if (r < 0)
		return r;
	XXH3_state_t *state = XXH3_createState();

	if (!state)
		return -ENOMEM;
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, src->uuid, sizeof(src->uuid));
	XXH3_128bits_update(state, root.data, root.len);
	XXH128_hash_t h = XXH3_128bits_digest(state);

	XXH3_freeState(state);
	snprintf(ret_id, 33, "%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
	return 0;
}

/* mkdir that is durable, or an existing directory. */
static int open_dir(int at, const char *name)
{
	if (mkdirat(at, name, 0700) == 0) {
		_cleanup_close_ int parent = openat(at, ".", O_RDONLY | O_CLOEXEC);

		if (parent >= 0)
			(void)fsync(parent); /* the volume is empty yet: nothing depends on it */
	} else if (errno != EEXIST) {
		return neg_errno();
	}
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 ? fd : neg_errno();
}

/* `flags` say how to open the lock file; who has it is written down only if it may be written. */
static int take_lock(struct layout *l, const char *src_path, int flags, char *error, size_t size)
{
	char owner[32] = "";

	l->lock_fd = openat(l->dir_fd, "lock", flags | O_CLOEXEC, 0600);
	if (l->lock_fd < 0) {
		snprintf(error, size, "%s/lock: %s", l->path, strerror(errno));
		return neg_errno();
	}
	if (flock(l->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		ssize_t n = pread(l->lock_fd, owner, sizeof(owner) - 1, 0);

		owner[n > 0 ? n : 0] = '\0';
		owner[strcspn(owner, "\n")] = '\0';
		snprintf(error, size,
			 "%s is already mounted with this SSD (volume %s is locked by process %s); "
			 "unmount it first",
			 src_path, l->id, *owner ? owner : "?");
		return -EBUSY;
	}
	if ((flags & O_ACCMODE) == O_RDONLY)
		return 0;
	int n = snprintf(owner, sizeof(owner), "%d\n", (int)getpid());

	/* For the message above only. */
	(void)!ftruncate(l->lock_fd, 0);
	(void)!pwrite(l->lock_fd, owner, (size_t)n, 0);
	return 0;
}

/* Eviction gives space back by punching holes; without them the cap could not be kept. */
static int check_punch(struct layout *l, char *error, size_t size)
{
	static const char name[] = "probe.tmp";
	_cleanup_close_ int fd =
		openat(l->dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char block[4096] = { 1 };
	int r = fd < 0 ? neg_errno() : write_full(fd, block, sizeof(block), 0);

	if (r == 0)
		r = object_punch(fd, 0, sizeof(block));
	if (fd >= 0)
		(void)unlinkat(l->dir_fd, name, 0);
	/* Of a volume that is there it is known. */
	if (r == -ENOSPC && faccessat(l->dir_fd, "catalog.db", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (r == -EOPNOTSUPP)
		snprintf(error, size,
			 "%s: this filesystem cannot punch holes (fallocate); use ext4, xfs, "
			 "btrfs, f2fs or tmpfs for the SSD",
			 l->path);
	else if (r < 0)
		snprintf(error, size, "%s: cannot write to the SSD: %s", l->path, strerror(-r));
	return r;
}

static int open_tree(struct layout *l, const char *ssd_path, char *error, size_t size)
{
	_cleanup_close_ int ssd = open_dir(AT_FDCWD, ssd_path);
	_cleanup_close_ int volumes = ssd < 0 ? -1 : open_dir(ssd, "volumes");
	int r = ssd < 0 ? ssd : volumes < 0 ? volumes : 0;

	if (r == 0) {
		l->dir_fd = open_dir(volumes, l->id);
		r = l->dir_fd < 0 ? l->dir_fd : 0;
	}
	if (r < 0)
		snprintf(error, size, "SSD directory %s: %s", ssd_path, strerror(-r));
	return r;
}

/* Id and path. */
static int layout_init(struct layout *l, const struct src *src, const char *ssd_path, char *error,
		       size_t error_size)
{
	*l = (struct layout){ .dir_fd = -1, .objects_fd = -1, .lock_fd = -1 };
	int r = layout_volume_id(src, l->id);

	if (r < 0) {
		snprintf(error, error_size, "%s: cannot identify: %s", src->path, strerror(-r));
		return r;
	}
	if (asprintf(&l->path, "%s/volumes/%s", ssd_path, l->id) < 0) {
		l->path = NULL;
		snprintf(error, error_size, "out of memory");
		return -ENOMEM;
	}
	return 0;
}

int layout_open(const struct src *src, const char *ssd_path, struct layout *ret_layout, char *error,
		size_t error_size)
{
	struct layout *l = ret_layout;
	int r = layout_init(l, src, ssd_path, error, error_size);

	if (r == 0)
		r = open_tree(l, ssd_path, error, error_size);
	if (r == 0)
		r = take_lock(l, src->path, O_RDWR | O_CREAT, error, error_size);
	if (r == 0)
		r = check_punch(l, error, error_size);
	if (r == 0) {
		l->objects_fd = open_dir(l->dir_fd, "objects");
		r = l->objects_fd < 0 ? l->objects_fd : 0;
		if (r < 0)
			snprintf(error, error_size, "%s/objects: %s", l->path, strerror(-r));
	}
	if (r < 0)
		layout_release(l);
	return r;
}

static int open_existing_tree(struct layout *l, const struct src *src, const char *ssd_path,
			      char *error, size_t size)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	_cleanup_close_ int ssd = open(ssd_path, flags);

	if (ssd < 0) {
		snprintf(error, size, "SSD directory %s: %s", ssd_path, strerror(errno));
		return neg_errno();
	}
	l->dir_fd = open(l->path, flags);
	if (l->dir_fd < 0) {
		int r = neg_errno();

		if (r == -ENOENT)
			snprintf(error, size, "no volume for %s in %s: never mounted with it",
				 src->path, ssd_path);
		else
			snprintf(error, size, "%s: %s", l->path, strerror(-r));
		return r;
	}
	return 0;
}

int layout_open_existing(const struct src *src, const char *ssd_path, bool write,
			 struct layout *ret_layout, char *error, size_t error_size)
{
	struct layout *l = ret_layout;
	int r = layout_init(l, src, ssd_path, error, error_size);

	if (r == 0)
		r = open_existing_tree(l, src, ssd_path, error, error_size);
	if (r == 0)
		r = take_lock(l, src->path, write ? O_RDWR | O_CREAT : O_RDONLY, error,
			      error_size);
	if (r == -ENOENT && !write && l->dir_fd >= 0)
		r = 0; /* nobody can have a lock that does not exist */
	if (r == 0) {
		l->objects_fd = openat(l->dir_fd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (l->objects_fd < 0 && errno != ENOENT) {
			r = neg_errno();
			snprintf(error, error_size, "%s/objects: %s", l->path, strerror(-r));
		}
	}
	if (r < 0)
		layout_release(l);
	return r;
}

/* ---- the mark of a mount ------------------------------------------------------------------ */
#define MARK "in-use"

int layout_mark(int dir_fd)
{
	_cleanup_close_ int fd =
		openat(dir_fd, MARK, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 || fsync(fd) < 0 || fsync(dir_fd) < 0 ? neg_errno() : 0;
}

int layout_unmark(int dir_fd)
{
	if (unlinkat(dir_fd, MARK, 0) < 0 && errno != ENOENT)
		return neg_errno();
	return fsync(dir_fd) < 0 ? neg_errno() : 0;
}

bool layout_is_marked(int dir_fd)
{
	return faccessat(dir_fd, MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int dir_has_object(int objects_fd, unsigned n)
{
	char name[8];
	struct dirent *e;
	bool found = false;

	object_dir_name(n, name);
	int fd = openat(objects_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		int r = errno == ENOENT ? 0 : neg_errno();

		if (fd >= 0)
			close(fd);
		return r;
	}
	while (!found && (e = readdir(dir)))
		found = object_id_of_name(e->d_name) != 0;
	closedir(dir);
	return found;
}

int layout_has_objects(int objects_fd)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < OBJECT_DIRS; i++)
		r = dir_has_object(objects_fd, i);
	return r;
}

void layout_release(struct layout *l)
{
	if (l->objects_fd >= 0)
		close(l->objects_fd);
	if (l->dir_fd >= 0)
		close(l->dir_fd);
	if (l->lock_fd >= 0)
		close(l->lock_fd);
	free(l->path);
	*l = (struct layout){ .dir_fd = -1, .objects_fd = -1, .lock_fd = -1 };
}
