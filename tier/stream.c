// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs of an open file: asking the disks early for what it will read next, and giving SRC's disk
 * early what it has written.
 *
 * The kernel's readahead on the mount is small and comes to us as requests that several threads
 * serve in any order, which SRC's own readahead takes for random reads. So a disk would stand still
 * between two of them.
 */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tier/internal.h"

/* A filesystem takes so much of one piece of advice at least, and may ignore the rest of it. */
#define ADVICE_BYTES (128u << 10)

/* Runs from this length on are written out while they come. So much at a time: a disk's queue
 * takes a few requests of the kernel's write-out, then it makes whoever brings more wait. */
#define WRITE_OUT_FROM_BYTES (4u << 20)
#define WRITE_OUT_BYTES (2u << 20)
#define WRITE_OUT_MIN_BYTES (1u << 20)

/* cachestat(2), Linux 6.5; the headers may be older. */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
struct cache_range {
	uint64_t off, len;
};
struct cache_pages {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

void stream_note_write(struct tfile *f, struct tier_stream *s, uint64_t off, size_t len)
{
	uint64_t seq = __atomic_load_n(&f->fsync_seq, __ATOMIC_RELAXED);

	bool goes_on = __atomic_load_n(&s->next_write, __ATOMIC_RELAXED) == off;

	/* A log that is synced as it grows is no bulk copy: its run starts again. */
	goes_on = goes_on && __atomic_load_n(&s->fsync_seq, __ATOMIC_RELAXED) == seq;
	uint64_t run = goes_on ? __atomic_load_n(&s->run_write, __ATOMIC_RELAXED) : 0;

	__atomic_store_n(&s->run_write, run + len, __ATOMIC_RELAXED);
	__atomic_store_n(&s->next_write, off + len, __ATOMIC_RELAXED);
	__atomic_store_n(&s->fsync_seq, seq, __ATOMIC_RELAXED);
}

void read_soon(int fd, uint64_t at, uint64_t end)
{
	for (uint64_t to; at < end; at = to) {
		to = min_u64(round_down_u64(at, ADVICE_BYTES) + ADVICE_BYTES, end);
		(void)posix_fadvise(fd, (off_t)at, (off_t)(to - at), POSIX_FADV_WILLNEED);
	}
}

/* Each part from where it is. Nothing is reserved here: should it move, the advice was useless. */
static void advise_runs(struct tfile *f, uint64_t at, uint64_t end)
{
	while (at < end) {
		pthread_mutex_lock(&f->lock);
		struct map_run run = map_run_at(&f->map, at, end);

		pthread_mutex_unlock(&f->lock);
		int fd = run.state == BLOCK_ABSENT ? f->src_fd : f->obj_fd;

		if (fd >= 0)
			read_soon(fd, run.start, run.end);
		at = run.end;
	}
}

void stream_read_ahead(struct tfile *f, struct tier_stream *s, uint64_t run_bytes, uint64_t end)
{
	uint64_t window = policy_read_ahead(run_bytes);

	/* Only who goes on at its end, not who reads again what is behind. */
	if (window == 0 || end < __atomic_load_n(&s->read.next, __ATOMIC_RELAXED))
		return;
	uint64_t from = __atomic_load_n(&s->ahead, __ATOMIC_RELAXED), size = tfile_size(f);
	uint64_t to = min_u64(end + window, size);

	/* Left behind, or of another run. */
	if (from < end || from > end + window)
		from = end;
	if (to <= from || (to < size && to - from < window / 2))
		return;
	__atomic_store_n(&s->ahead, to, __ATOMIC_RELAXED);
	advise_runs(f, from, to);
}

/* -1: this kernel can not tell. */
static int64_t bytes_in_writeback(int fd, uint64_t start, uint64_t end)
{
	struct cache_range range = { start, end - start };
	struct cache_pages pages;

	if (syscall(SYS_cachestat, fd, &range, &pages, 0) < 0)
		return -1;
	return (int64_t)pages.writeback * sysconf(_SC_PAGESIZE);
}

/*
 * Left alone, the kernel lets a gigabyte pile up in memory before it starts the disk, and who then
 * calls fsync waits for all of it. Only while the disk has done most of what it was given last, so
 * that the queue is never full and the writer never waits here. An error of the disk is kept for
 * the next fsync by the kernel.
 */
void stream_write_out(struct tfile *f, struct tier_stream *s, uint64_t start, uint64_t end)
{
	uint64_t from = __atomic_load_n(&s->out_start, __ATOMIC_RELAXED);
	uint64_t to = __atomic_load_n(&s->out_end, __ATOMIC_RELAXED);

	if (__atomic_load_n(&s->run_write, __ATOMIC_RELAXED) < WRITE_OUT_FROM_BYTES)
		return;
	if (to > start || from > to) /* of another run */
		from = to = start;
	if (end - to < WRITE_OUT_MIN_BYTES)
		return;
	if (to > from) {
		int64_t busy = bytes_in_writeback(f->src_fd, from, to);

		if (busy < 0 || busy > WRITE_OUT_BYTES / 4)
			return;
	}
	from = to;
	to = min_u64(end, from + WRITE_OUT_BYTES);
	__atomic_store_n(&s->out_start, from, __ATOMIC_RELAXED);
	__atomic_store_n(&s->out_end, to, __ATOMIC_RELAXED);
	(void)sync_file_range(f->src_fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}
