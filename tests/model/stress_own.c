// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The file that only one process uses: every byte and the size are known, whatever the others do.
 * It grows, is cut, mapped, renamed, replaced and removed.
 */
#include "stress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_MAX	  (1u << 20)
#define WRITE_MAX (300u << 10)
#define PAGE	  4096u

struct own {
	int fd;
	char path[PATH_BYTES], other[PATH_BYTES];
	unsigned char *expect; /* OWN_MAX, zeros past size */
	unsigned char *buf;    /* OWN_MAX, aligned */
	size_t size;
	uint32_t version;
};

static void own_open(struct actor *a, struct own *o, int flags)
{
	o->fd = open(o->path, O_RDWR | flags | O_CLOEXEC, 0644);
	if (o->fd < 0)
		stress_fail(a, "open %s: %s", o->path, strerror(errno));
}

struct own *own_new(struct actor *a)
{
	struct own *o = calloc(1, sizeof(*o));

	if (!o)
		stress_fail(a, "out of memory");
	o->expect = stress_buffer(OWN_MAX);
	o->buf = stress_buffer(OWN_MAX);
	snprintf(o->path, sizeof(o->path), "%s/own-%u", a->dir, a->me);
	snprintf(o->other, sizeof(o->other), "%s/own-%u.new", a->dir, a->me);
	own_open(a, o, O_CREAT | O_EXCL);
	return o;
}

void own_free(struct own *o)
{
	close(o->fd);
	munmap(o->expect, OWN_MAX);
	munmap(o->buf, OWN_MAX);
	free(o);
}

static void differs(struct actor *a, struct own *o, const char *how, size_t off,
		    const unsigned char *got, size_t len)
{
	char seen[160], right[160];
	size_t i = 0, at;

	while (i < len && got[i] == o->expect[off + i])
		i++;
	at = (off + i) / 8 * 8;
	if (at < off || at + 8 > off + len)
		stress_fail(a, "%s %s: offset %zu is %02x, not %02x (size %zu)", o->path, how,
			    off + i, got[i], o->expect[off + i], o->size);
	pattern_explain(got + (at - off), (off_t)at, seen, sizeof(seen));
	pattern_explain(o->expect + at, (off_t)at, right, sizeof(right));
	stress_fail(a, "%s %s: offset %zu (size %zu): found %s; expected %s", o->path, how, off + i,
		    o->size, seen, right);
}

static void own_read(struct actor *a, struct own *o)
{
	size_t off = rng_below(&a->rng, OWN_MAX), len = 1 + rng_below(&a->rng, OWN_MAX);
	size_t want = off >= o->size ? 0 : o->size - off < len ? o->size - off : len;
	ssize_t got = pread(o->fd, o->buf, len, (off_t)off);

	if (got < 0 || (size_t)got != want)
		stress_fail(a, "pread of %s at %zu: %zd of %zu bytes (%s)", o->path, off, got, want,
			    got < 0 ? strerror(errno) : "no error");
	if (memcmp(o->buf, o->expect + off, want) != 0)
		differs(a, o, "by pread", off, o->buf, want);
}

static void own_read_direct(struct actor *a, struct own *o)
{
	int fd = open(o->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	ssize_t got;

	if (fd < 0 && errno == EINVAL)
		return;
	got = fd < 0 ? -1 : pread(fd, o->buf, OWN_MAX, 0);
	if (got < 0 || (size_t)got != o->size)
		stress_fail(a, "O_DIRECT read of %s: %zd of %zu bytes (%s)", o->path, got, o->size,
			    got < 0 ? strerror(errno) : "no error");
	close(fd);
	if (memcmp(o->buf, o->expect, o->size) != 0)
		differs(a, o, "by O_DIRECT", 0, o->buf, o->size);
}

static void own_map(struct actor *a, struct own *o, bool change)
{
	size_t len = (o->size + PAGE - 1) / PAGE * PAGE, off, n;
	unsigned char *map;

	if (o->size == 0)
		return;
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
	if (map == MAP_FAILED)
		stress_fail(a, "mmap of %s: %s", o->path, strerror(errno));
	if (memcmp(map, o->expect, len) != 0)
		differs(a, o, "by mmap", 0, map, len);
	if (change) {
		off = rng_below(&a->rng, (uint32_t)o->size);
		n = 1 + rng_below(&a->rng, (uint32_t)(o->size - off));
		pattern_fill(o->expect + off, a->me, ++o->version, (off_t)off, n);
		memcpy(map + off, o->expect + off, n);
		if (rng_one_in(&a->rng, 2) && msync(map, len, MS_SYNC) < 0)
			stress_fail(a, "msync of %s: %s", o->path, strerror(errno));
	}
	munmap(map, len);
}

static void own_write(struct actor *a, struct own *o)
{
	size_t off = rng_one_in(&a->rng, 4) ? o->size : rng_below(&a->rng, OWN_MAX);
	size_t len = 1 + rng_below(&a->rng, rng_one_in(&a->rng, 3) ? WRITE_MAX : 2 * PAGE);

	len = len > OWN_MAX - off ? OWN_MAX - off : len;
	if (len == 0)
		return;
	pattern_fill(o->expect + off, a->me, ++o->version, (off_t)off, len);
	if (pwrite(o->fd, o->expect + off, len, (off_t)off) != (ssize_t)len)
		stress_fail(a, "pwrite to %s: %s", o->path, strerror(errno));
	o->size = off + len > o->size ? off + len : o->size;
}

static void own_truncate(struct actor *a, struct own *o)
{
	size_t size = rng_one_in(&a->rng, 4) ? 0 : rng_below(&a->rng, OWN_MAX + 1);

	if (ftruncate(o->fd, (off_t)size) < 0)
		stress_fail(a, "ftruncate of %s: %s", o->path, strerror(errno));
	if (size < o->size)
		memset(o->expect + size, 0, o->size - size);
	o->size = size;
}

/* Write the content to a new file and rename it over the old one, as editors do. */
static void own_replace(struct actor *a, struct own *o)
{
	int fd = open(o->other, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		stress_fail(a, "open %s: %s", o->other, strerror(errno));
	if (write(fd, o->expect, o->size) != (ssize_t)o->size)
		stress_fail(a, "write to %s: %s", o->other, strerror(errno));
	if (rng_one_in(&a->rng, 2) && fsync(fd) < 0)
		stress_fail(a, "fsync of %s: %s", o->other, strerror(errno));
	if (rename(o->other, o->path) < 0)
		stress_fail(a, "rename over %s: %s", o->path, strerror(errno));
	close(o->fd);
	o->fd = fd;
}

static void own_recreate(struct actor *a, struct own *o)
{
	if (unlink(o->path) < 0)
		stress_fail(a, "unlink %s: %s", o->path, strerror(errno));
	own_read(a, o); /* without a name */
	close(o->fd);
	own_open(a, o, O_CREAT | O_EXCL);
	memset(o->expect, 0, o->size);
	o->size = 0;
}

static void own_reopen(struct actor *a, struct own *o)
{
	struct stat st;

	close(o->fd);
	own_open(a, o, 0);
	if (fstat(o->fd, &st) < 0 || (size_t)st.st_size != o->size)
		stress_fail(a, "%s has size %lld, not %zu", o->path, (long long)st.st_size,
			    o->size);
}

void own_step(struct actor *a, struct own *o)
{
	uint32_t r = rng_below(&a->rng, 100);

	atomic_fetch_add(&a->sh->own_ops, 1);
	if (r < 30)
		own_write(a, o);
	else if (r < 55)
		own_read(a, o);
	else if (r < 62)
		own_read_direct(a, o);
	else if (r < 78)
		own_map(a, o, r < 68);
	else if (r < 84)
		own_truncate(a, o);
	else if (r < 90)
		own_reopen(a, o);
	else if (r < 93)
		own_replace(a, o);
	else if (r < 95)
		own_recreate(a, o);
	else if (fsync(o->fd) < 0)
		stress_fail(a, "fsync of %s: %s", o->path, strerror(errno));
}
