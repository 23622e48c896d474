// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * base.h - the few helpers every layer shares: scope-bound cleanup, ownership hand-over, small
 * arithmetic, and the annotations that let clang check the lock rules (empty under gcc).
 */
#ifndef HYBRIDFS_DB_BASE_H
#define HYBRIDFS_DB_BASE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- cleanup ------------------------------------------------------------------------------ */
static inline void cleanup_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_close_ _cleanup_(cleanup_close)
#define _cleanup_free_ _cleanup_(cleanup_free)

/* Hand the value over: the variable no longer owns it. */
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int take_fd_ = (fd);                                                               \
		(fd) = -1;                                                                         \
		take_fd_;                                                                          \
	})
#define TAKE_PTR(p)                                                                                \
	({                                                                                         \
		__typeof__(p) take_ptr_ = (p);                                                     \
		(p) = NULL;                                                                        \
		take_ptr_;                                                                         \
	})

/* ---- arithmetic --------------------------------------------------------------------------- */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* `to` must be a power of two. */
static inline uint64_t round_down_u64(uint64_t n, uint64_t to)
{
	return n & ~(to - 1);
}

static inline uint64_t round_up_u64(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* ---- errors ------------------------------------------------------------------------------- */
/* -errno of the call that just failed; never 0, so that a failure can not read as success. */
static inline int neg_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

#endif
