// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Room on the SSD: how much of it the volume may use, and the reserve.
 *
 * Others may fill the SSD's filesystem too. So the cap follows what is really free, within a
 * second; and a file `reserve` holds some space for the catalog: when the catalog cannot grow, the
 * file is removed, its inode with it, and the transaction tried again. It is made again once there
 * is room.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "tier/internal.h"

#define CAP_MIN_BYTES (1ull << 20)
/* Kept free when the cap is set at mount, and half of it ever after. */
#define KEEP_FREE_BYTES (8ull << 20)
#define KEEP_FREE_PERCENT 2
#define CATALOG_ALLOWANCE_BYTES (1ull << 20)
/* The catalog's WAL may take this part of the SSD, or up to four times as much beside readers. */
#define WAL_PARTS 256
#define PAUSE_NS (5 * SECOND_NS)
#define TELL_INTERVAL_NS (600 * SECOND_NS)
#define RESERVE_NAME "reserve"
#define RESERVE_PARTS 256
#define RESERVE_MIN_BYTES (1ull << 20)
#define RESERVE_MAX_BYTES (16ull << 20)

static uint64_t keep_free(const struct volume *v)
{
	return max_u64(KEEP_FREE_BYTES, v->ssd_bytes / 100 * KEEP_FREE_PERCENT);
}

/* What the parts are taken of. */
static uint64_t whole(const struct volume *v)
{
	return v->opt.size_bytes ? min_u64(v->opt.size_bytes, v->ssd_bytes) : v->ssd_bytes;
}

static uint64_t reserve_bytes(const struct volume *v)
{
	return min_u64(max_u64(whole(v) / RESERVE_PARTS, RESERVE_MIN_BYTES), RESERVE_MAX_BYTES);
}

static int free_bytes(const struct volume *v, uint64_t *ret)
{
	struct statvfs fs;

	if (fstatvfs(v->objects_fd, &fs) < 0)
		return neg_errno();
	*ret = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

/* ---- the reserve -------------------------------------------------------------------------- */
/* Without it (no room, or a filesystem that cannot preallocate) all works until the SSD is full.
 * -ENOSPC: there is not even an inode for it. */
static int fill_reserve(struct volume *v)
{
	_cleanup_close_ int fd = openat(v->dir_fd, RESERVE_NAME,
					O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	uint64_t want = reserve_bytes(v);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return neg_errno();
	if ((uint64_t)st.st_size == want && (uint64_t)st.st_blocks * 512 >= want) {
		atomic_store(&v->reserve_bytes, want);
		return 0;
	}
	if (ftruncate(fd, 0) < 0)
		return neg_errno();
	atomic_store(&v->reserve_bytes, 0);
	if (fallocate(fd, 0, 0, (off_t)want) == 0)
		atomic_store(&v->reserve_bytes, want);
	else
		(void)!ftruncate(fd, 0); /* a part of it would be taken for a leak */
	return 0;
}

bool room_give_reserve(struct volume *v)
{
	uint64_t had = atomic_exchange(&v->reserve_bytes, 0);
	_cleanup_close_ int fd =
		openat(v->dir_fd, RESERVE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || ftruncate(fd, 0) < 0)
		return false;
	/* Blocks come back when the truncation is on disk. New data may not take them. The inode
	 * too may be all that is missing. */
	(void)fsync(fd);
	if (unlinkat(v->dir_fd, RESERVE_NAME, 0) < 0 && !had)
		return false;
	atomic_store(&v->ssd_retry_ns, volume_now(v) + PAUSE_NS);
	atomic_store(&v->ssd_failed, true);
	return true;
}

/* ---- the cap ------------------------------------------------------------------------------ */
int room_init(struct volume *v)
{
	struct statvfs fs;

	if (fstatvfs(v->objects_fd, &fs) < 0)
		return neg_errno();
	v->ssd_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	return catalog_limit_wal(v->cat, whole(v) / WAL_PARTS);
}

static uint64_t wanted_cap(const struct volume *v)
{
	return v->opt.size_bytes ? v->opt.size_bytes : v->ssd_bytes / 100 * v->opt.size_percent;
}

/* Half of what is kept free may go before we give way, so that it is not done for nothing. */
static uint64_t cap_for(const struct volume *v, uint64_t used, uint64_t avail)
{
	uint64_t keep = keep_free(v), over = avail < keep / 2 ? keep / 2 - avail : 0;
	uint64_t cap = used + (avail > keep ? avail - keep : 0);

	return min_u64(wanted_cap(v), cap > over ? cap - over : 0);
}

int room_set_cap(struct volume *v, char *error, size_t error_size)
{
	uint64_t avail;
	int r = fill_reserve(v);

	/* After a crash a new journal needs an inode. What is dirty is better served, though. */
	if (r == -ENOSPC && !atomic_load(&v->tracked))
		return r;
	r = free_bytes(v, &avail);
	if (r < 0)
		return r;
	avail += atomic_load(&v->reserve_bytes); /* a part of what is kept free */
	uint64_t cap = cap_for(v, atomic_load(&v->used_blocks) * BLOCK_BYTES, avail);

	if (cap < CAP_MIN_BYTES && !atomic_load(&v->tracked)) {
		snprintf(error, error_size,
			 "%s: too little room on the SSD: %llu KiB can be used, 1024 are needed",
			 v->dir_path, (unsigned long long)cap / 1024);
		return -ENOSPC;
	}
	atomic_store(&v->cap_blocks, cap / BLOCK_BYTES);
	/* By default what is kept free is for them; a cap that was asked for is for all of it. */
	if (v->opt.size_bytes)
		v->overhead_bytes =
			min_u64(journal_size(v->journal) + CATALOG_ALLOWANCE_BYTES +
					reserve_bytes(v),
				cap / 2);
	return 0;
}

/* Once, however often we give way and come back. */
static void tell(struct volume *v, int64_t now_ns)
{
	if (!v->room_told_ns || now_ns - v->room_told_ns > TELL_INTERVAL_NS)
		volume_log(v, 4, "%s: others have filled the SSD; using less of it", v->dir_path);
	v->room_told_ns = now_ns;
}

void room_tick(struct volume *v, int64_t now_ns)
{
	uint64_t avail, used = volume_taken_bytes(v) - v->overhead_bytes;

	if (free_bytes(v, &avail) < 0)
		return;
	if (!atomic_load(&v->reserve_bytes) && avail > keep_free(v) + reserve_bytes(v))
		(void)fill_reserve(v); /* else later */
	avail += atomic_load(&v->reserve_bytes);
	if (avail < keep_free(v) / 2)
		tell(v, now_ns);
	atomic_store(&v->cap_blocks, cap_for(v, used, avail) / BLOCK_BYTES);
}
