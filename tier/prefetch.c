// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading ahead while mounting: replay goes over thousands of cold objects one after the other, and
 * each makes it wait for the SSD several times. An SSD serves many requests at once, so a few
 * threads touch what will be needed. Only a hint: nothing depends on it, no error counts. The
 * threads are gone when this returns; they are the only ones that tier/ has.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tier/internal.h"

#define THREADS 16u
#define FROM_OBJECTS 64u
#define FILE_BYTES_MAX (256ull << 20)

struct prefetch {
	struct volume *v;
	const struct id_set *ids;
	atomic_uint next;
};

/* Directory, inode, and the attributes that the first write asks for. */
static void touch_object(struct volume *v, uint64_t id)
{
	_cleanup_close_ int fd = object_open(v, id);

	if (fd >= 0)
		(void)fgetxattr(fd, "security.capability", NULL, 0);
}

static void *touch_objects(void *arg)
{
	struct prefetch *p = arg;
	unsigned i;

	while ((i = atomic_fetch_add(&p->next, 1)) < p->ids->n)
		touch_object(p->v, p->ids->ids[i]);
	return NULL;
}

void prefetch_file(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0)
		read_soon(fd, 0, min_u64((uint64_t)st.st_size, FILE_BYTES_MAX));
}

void prefetch_objects(struct volume *v, const struct id_set *ids)
{
	struct prefetch p = { .v = v, .ids = ids };
	pthread_t threads[THREADS];
	unsigned started = 0;

	if (ids->n < FROM_OBJECTS)
		return;
	while (started < THREADS &&
	       pthread_create(&threads[started], NULL, touch_objects, &p) == 0)
		started++;
	while (started > 0)
		pthread_join(threads[--started], NULL);
}
