// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * disk.h - how long a device takes for a request: a rotating disk, or an SSD.
 *
 * The caller does the I/O on the image itself; these functions only wait. Any number of threads.
 * Times in milliseconds since some moment, offsets and lengths in bytes.
 */
#ifndef HYBRIDFS_BENCH_DISK_H
#define HYBRIDFS_BENCH_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum disk_kind { DISK_HDD, DISK_SSD };

struct disk_model {
	enum disk_kind kind;
	uint64_t size; /* of the device */
	/* HDD: MB/s on the track, revolutions per minute, seek of the shortest and the longest
	 * distance in ms, MB of track read ahead, MB of write cache and how many pieces fit. */
	double rate, rpm, seek_min, seek_max, ra, cache, pieces;
	/* SSD: microseconds of one read, write and flush, MB/s, how many requests at a time. */
	double read_us, write_us, flush_us, ssd_rate, channels;
};

void disk_defaults(struct disk_model *m, enum disk_kind kind, uint64_t size);
/* KEY=VALUE, keys as the fields are called. False: no such key. */
bool disk_option(struct disk_model *m, const char *text);

struct disk_counts {
	uint64_t reads, writes, flushes, read_bytes, written_bytes;
};

/* Starts the thread that empties the disk's write cache. */
void disk_start(const struct disk_model *m);
void disk_delays(bool on); /* off: everything is instant, for filling an image */
void disk_read(uint64_t off, uint64_t len);
void disk_write(uint64_t off, uint64_t len);
void disk_flush(void);
void disk_count(struct disk_counts *ret);

#endif
