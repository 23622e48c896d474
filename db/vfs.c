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
 *
 * And except for the sums of pages (README.md, "Pages"): sqlite checks its b-trees only so far, so
 * a flipped bit could become a block that is present, or dirty, or a row that is not there. Each
 * page of the database carries a checksum, in bytes that sqlite leaves to us; it is set when the
 * page is written and verified whenever it is read. The WAL has sums of its own.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "db/catalog_internal.h"

#define PAGE_SUMMED (PAGE_BYTES - PAGE_RESERVED)

static sqlite3_vfs at_vfs;
static int (*unix_open)(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *f, int flags,
			int *ret_flags);
static pthread_once_t at_vfs_once = PTHREAD_ONCE_INIT;
static _Thread_local uint64_t bad_page;

/* ---- sums of pages ------------------------------------------------------------------------ */
/* With the page's number: one in the wrong place, or of zeros, does not pass. */
static uint64_t sum_of_page(const uint8_t *page, uint64_t number)
{
	return XXH3_64bits_withSeed(page, PAGE_SUMMED, number);
}

void vfs_seal_page(uint8_t *page, uint64_t number)
{
	uint64_t sum = sum_of_page(page, number);

	for (unsigned i = 0; i < PAGE_RESERVED; i++)
		page[PAGE_SUMMED + i] = (uint8_t)(sum >> 8 * i);
}

bool vfs_page_is_good(const uint8_t *page, uint64_t number)
{
	uint64_t sum = sum_of_page(page, number);

	for (unsigned i = 0; i < PAGE_RESERVED; i++)
		if (page[PAGE_SUMMED + i] != (uint8_t)(sum >> 8 * i))
			return false;
	return true;
}

uint64_t vfs_bad_page(void)
{
	return bad_page;
}

/* ---- the database file: unix's, with the sums -------------------------------------------- */
struct at_file {
	sqlite3_file base;
	sqlite3_file *real; /* in the same allocation, behind this */
};

static sqlite3_file *real_of(sqlite3_file *f)
{
	return ((struct at_file *)f)->real;
}

static int at_close(sqlite3_file *f)
{
	return real_of(f)->pMethods->xClose(real_of(f));
}

/* Anything but whole pages and the header is not ours, or its header is damaged. */
static int at_read(sqlite3_file *f, void *buf, int len, sqlite3_int64 at)
{
	int rc = real_of(f)->pMethods->xRead(real_of(f), buf, len, at);
	bool page = len == PAGE_BYTES && at % PAGE_BYTES == 0;
	uint64_t number = (uint64_t)at / PAGE_BYTES + 1;

	if (len <= HEADER_BYTES && at < HEADER_BYTES)
		return rc;
	/* sqlite would take zeros for what is behind the end of the file. */
	if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
		return rc;
	if (rc == SQLITE_OK && page && vfs_page_is_good(buf, number))
		return SQLITE_OK;
	bad_page = number;
	return SQLITE_IOERR_DATA;
}

static int at_write(sqlite3_file *f, const void *buf, int len, sqlite3_int64 at)
{
	uint8_t page[PAGE_BYTES];

	if (len != PAGE_BYTES || at % PAGE_BYTES != 0)
		return SQLITE_IOERR_WRITE;
	memcpy(page, buf, sizeof(page));
	vfs_seal_page(page, (uint64_t)at / PAGE_BYTES + 1);
	return real_of(f)->pMethods->xWrite(real_of(f), page, len, at);
}

static int at_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int at_sync(sqlite3_file *f, int flags)
{
	return real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int at_size(sqlite3_file *f, sqlite3_int64 *ret_size)
{
	return real_of(f)->pMethods->xFileSize(real_of(f), ret_size);
}

static int at_lock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int at_unlock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int at_is_reserved(sqlite3_file *f, int *ret_reserved)
{
	return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret_reserved);
}

static int at_control(sqlite3_file *f, int op, void *arg)
{
	return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int at_sector_size(sqlite3_file *f)
{
	return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int at_characteristics(sqlite3_file *f)
{
	return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int at_shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **ret_p)
{
	return real_of(f)->pMethods->xShmMap(real_of(f), region, size, extend, ret_p);
}

static int at_shm_lock(sqlite3_file *f, int first, int n, int flags)
{
	return real_of(f)->pMethods->xShmLock(real_of(f), first, n, flags);
}

static void at_shm_barrier(sqlite3_file *f)
{
	real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int at_shm_unmap(sqlite3_file *f, int delete)
{
	return real_of(f)->pMethods->xShmUnmap(real_of(f), delete);
}

/* Version 2: nothing is ever read past these, by mmap. */
static const sqlite3_io_methods at_methods = {
	.iVersion = 2,
	.xClose = at_close,
	.xRead = at_read,
	.xWrite = at_write,
	.xTruncate = at_truncate,
	.xSync = at_sync,
	.xFileSize = at_size,
	.xLock = at_lock,
	.xUnlock = at_unlock,
	.xCheckReservedLock = at_is_reserved,
	.xFileControl = at_control,
	.xSectorSize = at_sector_size,
	.xDeviceCharacteristics = at_characteristics,
	.xShmMap = at_shm_map,
	.xShmLock = at_shm_lock,
	.xShmBarrier = at_shm_barrier,
	.xShmUnmap = at_shm_unmap,
};

static int at_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *f, int flags,
		   int *ret_flags)
{
	struct at_file *a = (struct at_file *)f;

	if (!(flags & SQLITE_OPEN_MAIN_DB))
		return unix_open(vfs, name, f, flags, ret_flags);
	a->base.pMethods = NULL;
	a->real = (sqlite3_file *)(a + 1);
	int rc = unix_open(vfs, name, a->real, flags, ret_flags);

	/* Set also after some failures: then it has to be closed. */
	if (a->real->pMethods)
		a->base.pMethods = &at_methods;
	return rc;
}

/* ---- the VFS ------------------------------------------------------------------------------ */

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
	unix_open = at_vfs.xOpen;
	at_vfs.xOpen = at_open;
	at_vfs.szOsFile += (int)sizeof(struct at_file);
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
int vfs_read_first_page(const char *path, uint8_t ret_page[PAGE_BYTES])
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
	rc = unix_open(&at_vfs, name, f, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, NULL);
	if (rc == SQLITE_OK)
		rc = f->pMethods->xRead(f, ret_page, PAGE_BYTES, 0);
	if (f->pMethods)
		f->pMethods->xClose(f);
	sqlite3_free_filename(name);
	return rc;
}
