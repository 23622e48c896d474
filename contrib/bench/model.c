// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The timing of disk.h.
 *
 * Disk: one head. A request costs the seek (square root of the distance), the rotation until its
 * first sector passes, and the transfer. Sectors that follow a read go on passing below the head
 * and are kept (track read-ahead), so a sequential reader pays for the transfer only, also when
 * several of its requests arrive out of order. Writes go
 * into the cache, which a thread empties in ascending order (elevator); a flush waits until it is
 * empty. SSD: a request takes its latency plus the transfer on one of several channels; a flush
 * its own latency.
 */
#include "contrib/bench/disk.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MB 1e6
#define DESTAGE_BYTES (1u << 20) /* at most, in one go */
#define CHANNELS_MAX 64

/* What of the write cache is not on the platter: sorted, disjoint. */
struct piece {
	uint64_t start, end;
	struct piece *next;
};

static struct disk_model model;
static bool delays = true;
static struct disk_counts counts;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything here */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static double free_at[CHANNELS_MAX]; /* when the head, or a channel, is free again */
static uint64_t head, ahead_start, ahead_end;
static double ahead_at; /* when the head stood at ahead_end */
static struct piece *cache;
static double cached_bytes, cached_pieces;
static bool destaging;

/* ---- options ------------------------------------------------------------------------------ */
void disk_defaults(struct disk_model *m, enum disk_kind kind, uint64_t size)
{
	*m = (struct disk_model){ .kind = kind,
				  .size = size,
				  .rate = 180,
				  .rpm = 7200,
				  .seek_min = 0.6,
				  .seek_max = 7.2,
				  .ra = 2,
				  .cache = 64,
				  .pieces = 512,
				  .read_us = 70,
				  .write_us = 20,
				  .flush_us = 300,
				  .ssd_rate = 2000,
				  .channels = 8 };
}

bool disk_option(struct disk_model *m, const char *text)
{
	static const struct {
		const char *name;
		size_t offset;
	} keys[] = {
		{ "rate", offsetof(struct disk_model, rate) },
		{ "rpm", offsetof(struct disk_model, rpm) },
		{ "seek_min", offsetof(struct disk_model, seek_min) },
		{ "seek_max", offsetof(struct disk_model, seek_max) },
		{ "ra", offsetof(struct disk_model, ra) },
		{ "cache", offsetof(struct disk_model, cache) },
		{ "pieces", offsetof(struct disk_model, pieces) },
		{ "read_us", offsetof(struct disk_model, read_us) },
		{ "write_us", offsetof(struct disk_model, write_us) },
		{ "flush_us", offsetof(struct disk_model, flush_us) },
		{ "ssd_rate", offsetof(struct disk_model, ssd_rate) },
		{ "channels", offsetof(struct disk_model, channels) },
	};
	const char *value = strchr(text, '=');

	for (size_t i = 0; value && i < sizeof(keys) / sizeof(*keys); i++)
		if (strncmp(text, keys[i].name, (size_t)(value - text)) == 0 &&
		    keys[i].name[value - text] == '\0') {
			double n = atof(value + 1);

			memcpy((char *)m + keys[i].offset, &n, sizeof(n));
			return true;
		}
	return false;
}

/* ---- time --------------------------------------------------------------------------------- */
static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void sleep_until(double ms)
{
	struct timespec t = { (time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* ---- disk: the head ----------------------------------------------------------------------- */
static double bytes_per_ms(void)
{
	return model.rate * MB / 1e3;
}

/* Seek and rotation to `off`, beginning at time t. */
static double position_ms(uint64_t off, double t)
{
	double turn = 6e4 / model.rpm;
	double distance = fabs((double)off - (double)head);
	double seek = model.seek_min +
		      (model.seek_max - model.seek_min) * sqrt(distance / (double)model.size);

	if (distance == 0)
		seek = 0;
	else if (distance < 2 * MB)
		seek = model.seek_min / 2;
	double sector = fmod((double)off / (bytes_per_ms() * turn), 1);
	double wait = sector - fmod((t + seek) / turn, 1);

	return seek + (wait < -1e-6 ? wait + 1 : fmax(wait, 0)) * turn;
}

/* Takes the head for one access; returns when it is over. `lock` held. */
static double access_locked(uint64_t off, uint64_t len)
{
	double start = fmax(now_ms(), free_at[0]);
	double end = start + position_ms(off, start) + (double)len / bytes_per_ms();

	head = off + len;
	free_at[0] = end;
	return end;
}

/* How far the track has been read ahead at time t. */
static uint64_t ahead_upto(double t)
{
	double more = fmin((t - ahead_at) * bytes_per_ms(), model.ra * MB);

	return ahead_end + (more > 0 ? (uint64_t)more : 0);
}

static double read_locked(uint64_t off, uint64_t len)
{
	double start = fmax(now_ms(), free_at[0]), end;
	uint64_t have = ahead_upto(start);

	/* What lies a little further on passes below the head soon, and all before it as well. */
	if (off >= ahead_start && off <= have + (uint64_t)(model.ra * MB) && ahead_end) {
		uint64_t missing = off + len > have ? off + len - have : 0;

		end = start + 0.02 + (double)missing / bytes_per_ms();
		ahead_end = have > off + len ? have : off + len;
	} else {
		end = access_locked(off, len);
		ahead_start = off;
		ahead_end = off + len;
	}
	ahead_at = end;
	head = ahead_end;
	free_at[0] = end;
	return end;
}

/* ---- disk: the write cache ---------------------------------------------------------------- */
static void remember_locked(uint64_t start, uint64_t end)
{
	struct piece **at = &cache, *new = calloc(1, sizeof(*new));

	if (!new)
		abort();
	while (*at && (*at)->end < start)
		at = &(*at)->next;
	while (*at && (*at)->start <= end) {
		struct piece *old = *at;

		start = old->start < start ? old->start : start;
		end = old->end > end ? old->end : end;
		cached_bytes -= (double)(old->end - old->start);
		cached_pieces--;
		*at = old->next;
		free(old);
	}
	*new = (struct piece){ start, end, *at };
	*at = new;
	cached_bytes += (double)(end - start);
	cached_pieces++;
}

static bool cache_full(void)
{
	return cached_bytes >= model.cache * MB || cached_pieces >= model.pieces;
}

static bool in_cache(uint64_t off, uint64_t len)
{
	for (const struct piece *p = cache; p && p->start <= off; p = p->next)
		if (p->end >= off + len)
			return true;
	return false;
}

/* The next piece behind the head, or the first one. Returns its length. */
static uint64_t take_locked(uint64_t *ret_off)
{
	struct piece **at = &cache;

	while (*at && (*at)->end <= head)
		at = &(*at)->next;
	if (!*at)
		at = &cache;
	struct piece *p = *at;
	uint64_t len = p->end - p->start;

	if (len > DESTAGE_BYTES)
		len = DESTAGE_BYTES;
	*ret_off = p->start;
	p->start += len;
	cached_bytes -= (double)len;
	if (p->start == p->end) {
		*at = p->next;
		free(p);
		cached_pieces--;
	}
	return len;
}

static void *destage(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!cache) {
			destaging = false;
			pthread_cond_broadcast(&changed);
			pthread_cond_wait(&changed, &lock);
		}
		uint64_t off, len;

		destaging = true;
		len = take_locked(&off);
		double end = access_locked(off, len);

		ahead_end = 0;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		if (delays)
			sleep_until(end);
		pthread_mutex_lock(&lock);
		if (!delays)
			free_at[0] = 0;
	}
	return NULL;
}

static void write_disk(uint64_t off, uint64_t len)
{
	pthread_mutex_lock(&lock);
	remember_locked(off, off + len);
	pthread_cond_broadcast(&changed);
	while (delays && cache_full())
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void read_disk(uint64_t off, uint64_t len)
{
	pthread_mutex_lock(&lock);
	double end = in_cache(off, len) ? 0 : read_locked(off, len);

	pthread_mutex_unlock(&lock);
	sleep_until(end);
}

static void flush_disk(void)
{
	pthread_mutex_lock(&lock);
	while (delays && (cache || destaging))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- SSD ---------------------------------------------------------------------------------- */
static void ssd(double latency_us, uint64_t len)
{
	unsigned best = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 1; i < (unsigned)model.channels && i < CHANNELS_MAX; i++)
		if (free_at[i] < free_at[best])
			best = i;
	double end = fmax(now_ms(), free_at[best]) + latency_us / 1e3 +
		     (double)len / (model.ssd_rate * MB / 1e3);

	free_at[best] = end;
	pthread_mutex_unlock(&lock);
	sleep_until(end);
}

/* ---- interface ---------------------------------------------------------------------------- */
void disk_start(const struct disk_model *m)
{
	pthread_t thread;

	model = *m;
	if (m->kind == DISK_HDD && pthread_create(&thread, NULL, destage, NULL))
		abort();
}

void disk_delays(bool on)
{
	pthread_mutex_lock(&lock);
	delays = on;
	memset(free_at, 0, sizeof(free_at));
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static bool count(uint64_t *requests, uint64_t *bytes, uint64_t len)
{
	pthread_mutex_lock(&lock);
	++*requests;
	*bytes += len;
	bool wait = delays;

	pthread_mutex_unlock(&lock);
	return wait;
}

void disk_read(uint64_t off, uint64_t len)
{
	if (!count(&counts.reads, &counts.read_bytes, len))
		return;
	if (model.kind == DISK_HDD)
		read_disk(off, len);
	else
		ssd(model.read_us, len);
}

void disk_write(uint64_t off, uint64_t len)
{
	if (!count(&counts.writes, &counts.written_bytes, len))
		return;
	if (model.kind == DISK_HDD)
		write_disk(off, len);
	else
		ssd(model.write_us, len);
}

void disk_flush(void)
{
	uint64_t none = 0;

	if (!count(&counts.flushes, &none, 0))
		return;
	if (model.kind == DISK_HDD)
		flush_disk();
	else
		sleep_until(now_ms() + model.flush_us / 1e3);
}

void disk_count(struct disk_counts *ret)
{
	pthread_mutex_lock(&lock);
	*ret = counts;
	pthread_mutex_unlock(&lock);
}
