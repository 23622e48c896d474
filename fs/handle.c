// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/handle.h"

#include "db/base.h"
#include "fs/fs.h"

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
