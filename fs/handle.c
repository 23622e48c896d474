// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/handle.h"

#include <fcntl.h>

#include "db/base.h"
#include "fs/fs.h"
#include "fs/passthrough.h"

void handle_list_init(struct handle_list *l)
{
	*l = (struct handle_list){ 0 };
	pthread_mutex_init(&l->lock, NULL);
}

void handle_add(struct fs *fs, struct handle *h)
{
	struct handle_list *l = &fs->handles;

	pthread_mutex_lock(&l->lock);
	h->prev = NULL;
	h->next = l->first;
	if (l->first)
		l->first->prev = h;
	l->first = h;
	pthread_mutex_unlock(&l->lock);
}

void handle_remove(struct fs *fs, struct handle *h)
{
	struct handle_list *l = &fs->handles;

	pthread_mutex_lock(&l->lock);
	if (h->prev)
		h->prev->next = h->next;
	else
		l->first = h->next;
	if (h->next)
		h->next->prev = h->prev;
	pthread_mutex_unlock(&l->lock);
}

static bool is_written(const struct handle *h)
{
	return h->kind == HANDLE_FILE &&
	       (((const struct open_file *)h)->flags & O_ACCMODE) != O_RDONLY;
}

uint64_t *handle_written_ids(struct fs *fs)
{
	struct handle_list *l = &fs->handles;
	uint64_t *ids = NULL;
	size_t n = 0, room = 0;

	do { /* until there is room for all of them */
		free(ids);
		room = n + 1;
		ids = calloc(room, sizeof(*ids));
		n = 0;
		pthread_mutex_lock(&l->lock);
		for (struct handle *h = l->first; ids && h; h = h->next)
			if (is_written(h) && ++n < room)
				ids[n - 1] = h->inode->nodeid;
		pthread_mutex_unlock(&l->lock);
	} while (ids && n >= room);
	return ids;
}

void handle_list_release(struct fs *fs)
{
	struct handle *h;

	while ((h = fs->handles.first)) {
		handle_remove(fs, h);
		if (h->kind == HANDLE_FILE)
			open_file_close(fs, (struct open_file *)h);
		else
			open_dir_close(fs, (struct open_dir *)h);
	}
	pthread_mutex_destroy(&fs->handles.lock);
}

void open_file_close(struct fs *fs, struct open_file *h)
{
	passthrough_close(fs, h);
	tfile_unuse(h->file);
	inode_open_end(&fs->inodes, h->head.inode);
	tfile_put(h->file);
	inode_put(&fs->inodes, h->head.inode);
	free(h);
}

void open_dir_close(struct fs *fs, struct open_dir *h)
{
	close(h->fd);
	pthread_mutex_destroy(&h->lock);
	free(h->buffer);
	inode_put(&fs->inodes, h->head.inode);
	free(h);
}
