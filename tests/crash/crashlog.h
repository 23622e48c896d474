// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The log that record.c writes and cut.c reads: what reached the two devices and what the workload
 * was promised, in the one order in which it happened. A record is this header and, for WRITE and
 * MARK, len bytes. Host byte order: a log is read on the machine that wrote it.
 */
#ifndef CRASHLOG_H
#define CRASHLOG_H

#include <stdint.h>

#define LOG_MAGIC   0x4c435248u /* "HRCL" */
#define LOG_BLOCK   4096	/* what a device writes atomically */
#define LOG_DEVICES 2

enum log_type { LOG_WRITE = 'W', LOG_ZERO = 'Z', LOG_FLUSH = 'F', LOG_MARK = 'M' };

struct log_record {
	uint32_t magic;
	uint8_t type; /* enum log_type */
	uint8_t dev;  /* index in log_device_names; 0 for MARK */
	uint16_t unused;
	uint64_t off_bytes;
	uint64_t len_bytes;
};

static const char *const log_device_names[LOG_DEVICES] = { "src.img", "ssd.img" };

#endif
