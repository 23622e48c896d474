// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vfs.c - sqlite opens its files by path, we by directory descriptor.
 *
 * The path of the SSD may stop leading to it: somebody renames it, or mounts over it - we do, when
 * the volume is mounted over a tree that contains the SSD, and then a path would lead from sqlite
 * into our own mount, a deadlock. sqlite resolves the path of -wal and -shm when it first needs
 * them, of the database when it closes. So it gets "/proc/self/fd/N/name", which is short too (the
 * unix VFS takes 512 bytes at most).
 *
 * Since 3.39 the unix VFS resolves every symbolic link of a path, and would turn this one back
 * into what it stands for today. Hence this VFS, which is the unix VFS except that it takes a path
 * as it comes. (sqlite's own variants, "unix-none" and so on, differ from "unix" in the same way:
 * a copy of the structure with one thing changed.)
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "db/catalog_internal.h"

static sqlite3_vfs at_vfs;
static pthread_once_t at_vfs_once = PTHREAD_ONCE_INIT;

static int at_full_pathname(sqlite3_vfs *vfs, const char *path, int size, char *ret_path)
{
	size_t len = strlen(path);

	(void)vfs;
	if (len >= (size_t)size)
		return SQLITE_CANTOPEN;
	memcpy(ret_path, path, len + 1);
	return SQLITE_OK;
}

static void register_vfs(void)
{
	const sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");

	if (!unix_vfs)
		return;
	at_vfs = *unix_vfs;
	at_vfs.pNext = NULL;
	at_vfs.xFullPathname = at_full_pathname;
	at_vfs.zName = "hybridfs-at";
	if (sqlite3_vfs_register(&at_vfs, 0) != SQLITE_OK)
		at_vfs.zName = NULL;
}

const char *vfs_name(void)
{
	pthread_once(&at_vfs_once, register_vfs);
	return at_vfs.zName;
}

void vfs_path(int dir_fd, const char *name, char *ret_path)
{
	int n = snprintf(ret_path, SQL_PATH_MAX, "/proc/self/fd/%d/%s", dir_fd, name);

	assert(n > 0 && n < SQL_PATH_MAX);
}

/*
 * Through sqlite's file layer, not open() and close(): a close of ours would drop the POSIX locks
 * that another connection of this process holds on the file.
 */
int vfs_read_header(const char *path, uint8_t ret_header[100])
{
	_cleanup_free_ sqlite3_file *f = NULL;
	sqlite3_filename name;
	int rc;

	if (!vfs_name())
		return SQLITE_CANTOPEN;
	f = calloc(1, (size_t)at_vfs.szOsFile);
	name = sqlite3_create_filename(path, "", "", 0, NULL);
	if (!f || !name) {
		sqlite3_free_filename(name);
		return SQLITE_NOMEM;
	}
	rc = at_vfs.xOpen(&at_vfs, name, f, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, NULL);
	if (rc == SQLITE_OK)
		rc = f->pMethods->xRead(f, ret_header, 100, 0);
	if (f->pMethods)
		f->pMethods->xClose(f);
	sqlite3_free_filename(name);
	return rc;
}
