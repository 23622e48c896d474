// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Comparing content. Each look opens the file anew and reads it in one of several ways (cache,
 * cache dropped, O_DIRECT, odd chunks), then through a fresh mapping, held fds and held mappings.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	  4096
#define ODD_CHUNK 50021

enum way { PLAIN, DROPPED, DIRECT, CHUNKS, NWAYS };
static const char *const way_names[NWAYS] = {
	"read by a new fd",
	"read by a new fd after dropping the page cache",
	"read with O_DIRECT",
	"read in odd chunks",
};

static size_t page_up(size_t len)
{
	return (len + PAGE - 1) / PAGE * PAGE;
}

ssize_t read_range(int fd, unsigned char *buf, size_t len, off_t off)
{
	size_t done = 0, ask = page_up(len);

	while (done < len) {
		ssize_t n = pread(fd, buf + done, ask - done, off + (off_t)done);

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t read_chunks(int fd, unsigned char *buf, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		size_t ask = len - done < ODD_CHUNK ? len - done : ODD_CHUNK;
		ssize_t n = pread(fd, buf + done, ask, off + (off_t)done);

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static enum way pick_way(struct world *w)
{
	uint32_t r = rng_below(&w->check_rng, 16);

	if (r == 0)
		return w->direct_ok[MNT] ? DIRECT : PLAIN;
	return r <= 3 ? DROPPED : r == 4 ? CHUNKS : PLAIN;
}

size_t window_len(int i, off_t size)
{
	off_t len = size - windows[i].off;

	if (len <= 0)
		return 0;
	return len > (off_t)windows[i].len ? windows[i].len : (size_t)len;
}

static void check_length(struct world *w, struct node *n, const char *how, ssize_t got, size_t want,
			 off_t off)
{
	char path[PATH_BYTES];

	if (got < 0)
		fail(w, "%s, %s at %lld: %s", path_of(w, MNT, n, path), how, (long long)off,
		     strerror(errno));
	if ((size_t)got != want)
		fail(w, "%s, %s: %zd bytes from offset %lld, %zu expected (size %lld)",
		     path_of(w, MNT, n, path), how, got, (long long)off, want, (long long)n->size);
}

static void check_tail(struct world *w, struct node *n, const unsigned char *map, size_t len,
		       off_t off)
{
	char path[PATH_BYTES];

	if (w->cfg->lax_kill && w->kills)
		return;
	for (size_t i = len; i < page_up(len); i++)
		if (map[i])
			fail(w, "%s, mapped: byte %lld past the end of the file is %02x, not zero",
			     path_of(w, MNT, n, path), (long long)off + (long long)i, map[i]);
}

static void look_mapped(struct world *w, struct node *n, int fd, off_t off, size_t len)
{
	unsigned char *map =
		mmap(NULL, page_up(len), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, off);
	char path[PATH_BYTES];

	if (map == MAP_FAILED)
		fail(w, "mmap of %s: %s", path_of(w, MNT, n, path), strerror(errno));
	if (memcmp(map, w->win[REF], len) != 0)
		fail_bytes(w, n, "read through a new mapping", off, map, w->win[REF], len);
	if (off + (off_t)len == n->size)
		check_tail(w, n, map, len, off);
	munmap(map, page_up(len));
}

/* Leaves the reference's bytes in win[REF]. */
static void look_window(struct world *w, struct node *n, const int *fd, int i, enum way way)
{
	off_t off = windows[i].off;
	size_t len = window_len(i, n->size);
	ssize_t got;

	if (way == DROPPED)
		posix_fadvise(fd[MNT], 0, 0, POSIX_FADV_DONTNEED);
	got = way == CHUNKS ? read_chunks(fd[MNT], w->win[MNT], len, off) :
			      read_range(fd[MNT], w->win[MNT], len, off);
	/* Only at the end of the file can read_range() see more than it was asked for. */
	if (got > (ssize_t)len && off + (off_t)len < n->size)
		got = (ssize_t)len;
	check_length(w, n, way_names[way], got, len, off);
	if (read_range(fd[REF], w->win[REF], len, off) < (ssize_t)len)
		fail(w, "the reference cannot be read: %s", strerror(errno));
	if (memcmp(w->win[MNT], w->win[REF], len) != 0)
		fail_bytes(w, n, way_names[way], off, w->win[MNT], w->win[REF], len);
}

static bool can_read(const struct handle *h, const struct node *n)
{
	return h->node == n && h->fd[MNT] >= 0 && (h->flags & O_ACCMODE) != O_WRONLY;
}

/* Through each fd that is held open; win[REF] has the window. */
static void look_held(struct world *w, struct node *n, int window, size_t len)
{
	off_t off = windows[window].off;
	char how[64];

	for (int i = 0; i < HANDLES_MAX; i++) {
		const struct handle *h = &w->handles[i];
		ssize_t got;

		if (!can_read(h, n) || rng_one_in(&w->check_rng, 2))
			continue;
		snprintf(how, sizeof(how), "read by fd%d", i);
		got = read_range(h->fd[MNT], w->win[MNT], len, off);
		if (got > (ssize_t)len && off + (off_t)len < n->size)
			got = (ssize_t)len;
		check_length(w, n, how, got, len, off);
		if (memcmp(w->win[MNT], w->win[REF], len) != 0)
			fail_bytes(w, n, how, off, w->win[MNT], w->win[REF], len);
	}
}

void compare_mappings(struct world *w, struct node *n)
{
	char how[64];

	for (int i = 0; i < HANDLES_MAX; i++) {
		const struct handle *h = &w->handles[i];
		off_t len = n->size - h->map_off;

		if (h->node != n || !h->map[MNT] || len <= 0)
			continue;
		if (len > (off_t)h->map_len)
			len = (off_t)h->map_len;
		snprintf(how, sizeof(how), "through the mapping held by handle %d", i);
		if (memcmp(h->map[MNT], h->map[REF], (size_t)len) != 0)
			fail_bytes(w, n, how, h->map_off, h->map[MNT], h->map[REF], (size_t)len);
	}
}

static bool open_both(struct world *w, struct node *n, int *fd, int mnt_flags)
{
	char path[PATH_BYTES];

	fd[REF] = node_open(w, REF, n, O_RDONLY);
	if (fd[REF] < 0 && errno == ENODATA)
		return false;
	if (fd[REF] < 0)
		fail(w, "open %s: %s", path_of(w, REF, n, path), strerror(errno));
	fd[MNT] = node_open(w, MNT, n, O_RDONLY | mnt_flags);
	if (fd[MNT] < 0)
		fail(w, "open %s to compare: %s", path_of(w, MNT, n, path), strerror(errno));
	return true;
}

static void close_both(const int *fd)
{
	close(fd[MNT]);
	close(fd[REF]);
}

void compare_content(struct world *w, struct node *n)
{
	enum way way = pick_way(w);
	int fd[NSIDES];
	char byte;

	compare_mappings(w, n);
	if (!open_both(w, n, fd, way == DIRECT ? O_DIRECT : 0))
		return;
	for (int i = 0; i < NWINDOWS; i++) {
		size_t len = window_len(i, n->size);

		if (len == 0)
			continue;
		look_window(w, n, fd, i, way);
		look_mapped(w, n, fd[MNT], windows[i].off, len);
		look_held(w, n, i, len);
	}
	if (way != DIRECT && pread(fd[MNT], &byte, 1, n->size) != 0)
		fail(w, "file #%u can be read at its end, offset %lld", n->id, (long long)n->size);
	close_both(fd);
}

static size_t first_nonzero(const unsigned char *p, size_t len)
{
	size_t i = 0;

	while (i < len && p[i] == 0)
		i++;
	return i;
}

void check_zeros(struct world *w, struct node *n, int fd, off_t from, off_t to, const char *what)
{
	char path[PATH_BYTES];

	for (int i = 0; i < NWINDOWS; i++) {
		off_t a = windows[i].off > from ? windows[i].off : from;
		off_t b = windows[i].off + (off_t)windows[i].len;
		size_t bad;
		ssize_t len;

		b = b < to ? b : to;
		if (a >= b)
			continue;
		len = pread(fd, w->win[REF], (size_t)(b - a), a);
		if (len < 0)
			fail(w, "the reference cannot be read: %s", strerror(errno));
		bad = first_nonzero(w->win[REF], (size_t)len);
		if (bad < (size_t)len)
			fail(w, "%s: %s covers offset %lld, where the reference has %02x",
			     path_of(w, MNT, n, path), what, (long long)a + (long long)bad,
			     w->win[REF][bad]);
	}
}

/* The next data at or after pos, or the end of the file. */
static off_t next_data(struct world *w, struct node *n, int fd, off_t pos)
{
	off_t data = lseek(fd, pos, SEEK_DATA);

	if (data < 0 && errno == ENXIO)
		return n->size;
	if (data < pos || data >= n->size)
		fail(w, "file #%u: SEEK_DATA from %lld gives %lld (%s), the size is %lld", n->id,
		     (long long)pos, (long long)data, data < 0 ? strerror(errno) : "no error",
		     (long long)n->size);
	return data;
}

static off_t next_hole(struct world *w, struct node *n, int fd, off_t data)
{
	off_t hole = lseek(fd, data, SEEK_HOLE);

	if (hole < data || hole > n->size)
		fail(w, "file #%u: SEEK_HOLE from %lld gives %lld (%s), the size is %lld", n->id,
		     (long long)data, (long long)hole, hole < 0 ? strerror(errno) : "no error",
		     (long long)n->size);
	return hole;
}

void compare_holes(struct world *w, struct node *n)
{
	off_t pos = 0;
	int fd[NSIDES];

	/* Dirty pages of a mapping reach the filesystem only when they are written back. */
	if (n->lazy_mtime || !open_both(w, n, fd, 0))
		return;
	while (pos < n->size) {
		off_t data = next_data(w, n, fd[MNT], pos);

		check_zeros(w, n, fd[REF], pos, data, "a hole of the mount");
		if (data >= n->size)
			break;
		pos = next_hole(w, n, fd[MNT], data);
		if (pos > data)
			continue;
		/* Only if it became a hole between the two calls. */
		check_zeros(w, n, fd[REF], data, data + 1, "a hole of the mount");
		pos = data / PAGE * PAGE + PAGE;
	}
	close_both(fd);
}
