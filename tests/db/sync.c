// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into MariaDB: what a sync promises, more or less than usual, and what the server makes
 * of it.
 *
 * HFS_SYNC_AGAIN=1    writes that end while a sync of the same file is under way are synced before
 *                     it returns. No filesystem promises that; InnoDB counts on it (README.md).
 * HFS_SYNC_LATE_MS=N  a sync returns N ms after the data it covers is durable, as on a slow disk.
 *                     Allowed, and makes frequent what is rarely wrong with the caller.
 * HFS_SYNC_WATCH=FILE a line there for each checkpoint of the redo log, and one for each page that
 *                     it takes for durable though no sync of its file began after the page's write
 *                     had ended: after a power cut that page may be the old one, and redo does not
 *                     make up for it.
 *
 * Of InnoDB's formats: a page begins with FIL_PAGE_LSN at byte 16; a checkpoint is a write at 4096
 * or 8192 of ib_logfile0 and begins with its LSN (10.8 and later); pages 64 to 191 of ibdata1 are
 * the doublewrite buffer. All big endian.
 */
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE  16384
#define FILES 512
#define PAGES 65536

enum kind { OTHER, DATA, SYSTEM, LOG };

struct page {
	int file; /* index in files[] */
	unsigned number, write;
	uint64_t lsn;
};

static struct {
	dev_t dev;
	ino_t ino;
	enum kind kind;
	char path[256];
	unsigned ended; /* writes that are over */
} files[FILES];
static int n_files;
static struct page unsynced[PAGES];
static int n_unsynced;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum kind kind_of(const char *path)
{
	const char *name = strrchr(path, '/');
	size_t len = strlen(path);

	name = name ? name + 1 : path;
	if (strcmp(name, "ib_logfile0") == 0)
		return LOG;
	if (strcmp(name, "ibdata1") == 0)
		return SYSTEM;
	return strncmp(name, "undo0", 5) == 0 || (len > 4 && strcmp(path + len - 4, ".ibd") == 0) ?
		       DATA :
		       OTHER;
}

/* Under the lock. -1: no room. */
static int file_of(int fd)
{
	char link[64];
	struct stat st;
	int i;

	if (fstat(fd, &st) < 0)
		return -1;
	for (i = 0; i < n_files; i++)
		if (files[i].ino == st.st_ino && files[i].dev == st.st_dev)
			break;
	if (i == FILES)
		return -1;
	if (i == n_files) {
		files[n_files].dev = st.st_dev;
		files[n_files++].ino = st.st_ino;
	}
	/* An inode's number is used again, and files are renamed. */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, files[i].path, sizeof(files[i].path) - 1);
	files[i].path[n > 0 ? n : 0] = '\0';
	files[i].kind = kind_of(files[i].path);
	return i;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	FILE *f = fopen(getenv("HFS_SYNC_WATCH"), "ae");
	va_list args;

	if (!f)
		return;
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

static void page_written(int file, unsigned number, unsigned write, uint64_t lsn)
{
	for (int i = 0; i < n_unsynced; i++)
		if (unsynced[i].file == file && unsynced[i].number == number) {
			/* Nothing durable has the older changes yet: the smaller LSN stays. */
			unsynced[i].write = write;
			return;
		}
	if (n_unsynced < PAGES)
		unsynced[n_unsynced++] = (struct page){ file, number, write, lsn };
	else
		say("too many pages\n");
}

static void checkpoint(uint64_t lsn)
{
	int bad = 0;

	for (int i = 0; i < n_unsynced; i++) {
		const struct page *p = &unsynced[i];

		if (p->lsn >= lsn)
			continue;
		bad++;
		say("unsynced page %u of %s, LSN %" PRIu64 ", at checkpoint %" PRIu64 "\n",
		    p->number, files[p->file].path, p->lsn, lsn);
	}
	say("checkpoint %" PRIu64 ": %d of %d unsynced pages are older\n", lsn, bad, n_unsynced);
}

/* Before a write begins. */
static void begins(int fd, const void *data, size_t len, off64_t at)
{
	uint64_t lsn;

	if (!getenv("HFS_SYNC_WATCH") || len < 8 || (at != 4096 && at != 8192))
		return;
	pthread_mutex_lock(&lock);
	int i = file_of(fd);

	memcpy(&lsn, data, sizeof(lsn));
	if (i >= 0 && files[i].kind == LOG)
		checkpoint(be64toh(lsn));
	pthread_mutex_unlock(&lock);
}

static void ends(int fd, const uint8_t *data, size_t len, off64_t at)
{
	pthread_mutex_lock(&lock);
	int i = file_of(fd);

	if (i >= 0)
		files[i].ended++;
	for (; i >= 0 && (files[i].kind == DATA || files[i].kind == SYSTEM) && len >= PAGE &&
	       getenv("HFS_SYNC_WATCH");
	     len -= PAGE, data += PAGE, at += PAGE) {
		unsigned number = (unsigned)(at / PAGE);
		uint64_t lsn;

		memcpy(&lsn, data + 16, sizeof(lsn));
		if (lsn && !(files[i].kind == SYSTEM && number >= 64 && number < 192))
			page_written(i, number, files[i].ended, be64toh(lsn));
	}
	pthread_mutex_unlock(&lock);
}

static unsigned ended_of(int fd)
{
	pthread_mutex_lock(&lock);
	int i = file_of(fd);
	unsigned n = i >= 0 ? files[i].ended : 0;

	pthread_mutex_unlock(&lock);
	return n;
}

/* Under the lock: writes up to that one are durable, or nobody wants them any more. */
static void forget(int file, unsigned upto)
{
	for (int i = 0; i < n_unsynced;)
		if (unsynced[i].file == file && unsynced[i].write <= upto)
			unsynced[i] = unsynced[--n_unsynced];
		else
			i++;
}

static void synced(int fd, unsigned upto)
{
	pthread_mutex_lock(&lock);
	forget(file_of(fd), upto);
	pthread_mutex_unlock(&lock);
}

static void be_late(void)
{
	const char *ms = getenv("HFS_SYNC_LATE_MS");
	long n = ms ? atol(ms) : 0;
	struct timespec t = { .tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000 };

	if (n > 0)
		nanosleep(&t, NULL);
}

static int sync_by(long call, int fd)
{
	unsigned before;
	int r;

	do {
		before = ended_of(fd);
		r = (int)syscall(call, fd);
		if (r == 0)
			be_late();
		if (r == 0)
			synced(fd, before);
	} while (r == 0 && getenv("HFS_SYNC_AGAIN") && before != ended_of(fd));
	return r;
}

int fsync(int fd)
{
	return sync_by(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return sync_by(SYS_fdatasync, fd);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at)
{
	begins(fd, data, len, at);
	ssize_t n = syscall(SYS_pwrite64, fd, data, len, at);

	if (n > 0)
		ends(fd, data, (size_t)n, at);
	return n;
}

/* Its number may soon be that of another file. */
int unlink(const char *path)
{
	struct stat st;
	int known = stat(path, &st) == 0, r = unlinkat(AT_FDCWD, path, 0);

	pthread_mutex_lock(&lock);
	for (int i = 0; r == 0 && known && st.st_nlink == 1 && i < n_files; i++)
		if (files[i].ino == st.st_ino && files[i].dev == st.st_dev)
			forget(i, files[i].ended);
	pthread_mutex_unlock(&lock);
	return r;
}
