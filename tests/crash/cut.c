// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cut LOG START BASE OUT RECORD SEED - build what two devices hold when the power fails just before
 * RECORD, in OUT/src.img and OUT/ssd.img, from the images in START; print the marks before the cut.
 * cut --plan LOG COUNT SEED          - choose cuts: COUNT lines "RECORD SEED", in rising order.
 * cut --points LOG COUNT SEED MAX [NAME...] - COUNT cuts at passings of each crash point (that is
 *                                      named) that the log has marks of, or of MAX such points that
 *                                      SEED chooses: lines "RECORD SEED NAME". MAX 0: all.
 *
 * A device holds for certain what it was given before its last flush. Of what came later its cache
 * may have written anything in any order, block by block: SEED chooses one of four modes, for both
 * devices together or for each by itself, and in the random ones, for each 4 KiB block, which of
 * its versions arrived.
 *
 * BASE is ours between calls: images as of the last flush, and how far they are (BASE/position), so
 * that a series of rising cuts replays the log once. Copies share blocks where the filesystem can.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crashlog.h"
#include "plan.h"

#define PATH_BYTES 4096

struct record {
	struct log_record head;
	const unsigned char *data; /* borrowed from the mapping */
};

struct log {
	struct record *records; /* owned */
	uint64_t count;
};

/* How the cache of a device treated what was not flushed. */
enum cut_mode { CUT_NONE, CUT_ALL, CUT_PREFIX, CUT_RANDOM, CUT_MODES };

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void log_read(struct log *log, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const unsigned char *map;
	uint64_t pos = 0, room = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die(path);
	close(fd);
	while (pos + sizeof(struct log_record) <= (uint64_t)st.st_size) {
		struct record r;

		memcpy(&r.head, map + pos, sizeof(r.head));
		assert(r.head.magic == LOG_MAGIC && r.head.dev < LOG_DEVICES);
		pos += sizeof(r.head);
		r.data = map + pos;
		if (r.head.type == LOG_WRITE || r.head.type == LOG_MARK)
			pos += r.head.len_bytes;
		if (pos > (uint64_t)st.st_size)
			break; /* the recorder was killed in the middle of this one */
		if (log->count == room) {
			room = room ? 2 * room : 4096;
			log->records = realloc(log->records, room * sizeof(r));
			if (!log->records)
				die("realloc");
		}
		log->records[log->count++] = r;
	}
}

static bool is_change(const struct record *r)
{
	return r->head.type == LOG_WRITE || r->head.type == LOG_ZERO;
}

/* Do [lo, hi) of a record. */
static void apply_part(int fd, const struct record *r, uint64_t lo, uint64_t hi)
{
	const unsigned char *p = r->data + (lo - r->head.off_bytes);

	if (r->head.type == LOG_ZERO) {
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)lo,
			      (off_t)(hi - lo)) < 0)
			die("punch");
		return;
	}
	while (lo < hi) {
		ssize_t n = pwrite(fd, p, hi - lo, (off_t)lo);

		if (n <= 0)
			die("pwrite");
		p += n;
		lo += (uint64_t)n;
	}
}

static void apply(int fd, const struct record *r)
{
	apply_part(fd, r, r->head.off_bytes, r->head.off_bytes + r->head.len_bytes);
}

static void copy_image(const char *from, const char *to, const char *name)
{
	char a[PATH_BYTES], b[PATH_BYTES], command[3 * PATH_BYTES];
	int in, out, rc;

	snprintf(a, sizeof(a), "%s/%s", from, name);
	snprintf(b, sizeof(b), "%s/%s", to, name);
	in = open(a, O_RDONLY | O_CLOEXEC);
	out = open(b, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (in < 0 || out < 0)
		die(b);
	rc = ioctl(out, FICLONE, in);
	close(in);
	close(out);
	if (rc == 0)
		return;
	snprintf(command, sizeof(command), "cp --sparse=always '%s' '%s'", a, b);
	if (system(command) != 0)
		die(command);
}

static int open_image(const char *dir, const char *name)
{
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

/* The record behind the last flush of dev before the cut. */
static uint64_t flushed_end(const struct log *log, unsigned int dev, uint64_t cut)
{
	while (cut > 0 && !(log->records[cut - 1].head.type == LOG_FLUSH &&
			    log->records[cut - 1].head.dev == dev))
		cut--;
	return cut;
}

/* Bring BASE's image of dev from record *pos to record end. */
static void base_advance(const struct log *log, const char *start, const char *base,
			 unsigned int dev, uint64_t *pos, uint64_t end)
{
	int fd;

	if (*pos == 0 || *pos > end) {
		copy_image(start, base, log_device_names[dev]);
		*pos = 0;
	}
	fd = open_image(base, log_device_names[dev]);
	for (; *pos < end; (*pos)++) {
		const struct record *r = &log->records[*pos];

		if (is_change(r) && r->head.dev == dev)
			apply(fd, r);
	}
	close(fd);
}

/*
 * One block of the cache: versions first..cut-1 that touch it were given to the device; keep some.
 * Older versions first, as a block that arrived in part has all that was merged into it.
 */
static void apply_block(const struct log *log, int fd, unsigned int dev, uint64_t first,
			uint64_t cut, uint64_t block, uint64_t key, unsigned int keep_percent)
{
	uint64_t lo = block * LOG_BLOCK, hi = lo + LOG_BLOCK, i, versions = 0, take;

	if (hash_of(key, block, 1, 0) % 100 >= keep_percent)
		return;
	for (i = first; i < cut; i++) {
		const struct log_record *h = &log->records[i].head;

		versions += is_change(&log->records[i]) && h->dev == dev && h->off_bytes < hi &&
			    h->off_bytes + h->len_bytes > lo;
	}
	take = versions;
	if (hash_of(key, block, 2, 0) % 100 < 30)
		take = 1 + hash_of(key, block, 3, 0) % versions;
	for (i = first; i < cut && take; i++) {
		const struct record *r = &log->records[i];
		uint64_t end = r->head.off_bytes + r->head.len_bytes;

		if (!is_change(r) || r->head.dev != dev || r->head.off_bytes >= hi || end <= lo)
			continue;
		apply_part(fd, r, r->head.off_bytes > lo ? r->head.off_bytes : lo,
			   end < hi ? end : hi);
		take--;
	}
}

static void apply_random(const struct log *log, int fd, unsigned int dev, uint64_t first,
			 uint64_t cut, uint64_t key)
{
	static const unsigned int percents[] = { 10, 50, 90 };
	unsigned int keep = percents[hash_of(key, 0, 4, 0) % 3];
	off_t size = lseek(fd, 0, SEEK_END);
	size_t blocks = (size_t)(size + LOG_BLOCK - 1) / LOG_BLOCK;
	bool *seen = calloc(blocks, sizeof(*seen));
	uint64_t i, b;

	if (!seen)
		die("calloc");
	for (i = first; i < cut; i++) {
		const struct log_record *h = &log->records[i].head;

		if (!is_change(&log->records[i]) || h->dev != dev || !h->len_bytes)
			continue;
		for (b = h->off_bytes / LOG_BLOCK;
		     b <= (h->off_bytes + h->len_bytes - 1) / LOG_BLOCK; b++) {
			if (!seen[b])
				apply_block(log, fd, dev, first, cut, b, key, keep);
			seen[b] = true;
		}
	}
	free(seen);
}

/* What the device holds of records first..cut-1, none of which was flushed. */
static void apply_cache(const struct log *log, int fd, unsigned int dev, uint64_t first,
			uint64_t cut, uint64_t seed)
{
	bool apart = hash_of(seed, 0, 9, 0) % 2;
	enum cut_mode mode = hash_of(seed, apart ? dev : 0, 5, 0) % (CUT_MODES + 2);
	uint64_t key = hash_of(seed, dev, 6, 0), i;

	if (mode >= CUT_RANDOM) {
		apply_random(log, fd, dev, first, cut, key);
		return;
	}
	if (mode == CUT_PREFIX)
		cut = first + (cut > first ? key % (cut - first + 1) : 0);
	for (i = first; mode != CUT_NONE && i < cut; i++)
		if (is_change(&log->records[i]) && log->records[i].head.dev == dev)
			apply(fd, &log->records[i]);
}

static void position_load(const char *path, uint64_t *pos)
{
	FILE *f = fopen(path, "re");

	if (f && fscanf(f, "%" SCNu64 " %" SCNu64, &pos[0], &pos[1]) != LOG_DEVICES)
		pos[0] = pos[1] = 0;
	if (f)
		fclose(f);
}

static void position_store(const char *path, const uint64_t *pos)
{
	FILE *f = fopen(path, "we");

	if (!f || fprintf(f, "%" PRIu64 " %" PRIu64 "\n", pos[0], pos[1]) < 0 || fclose(f) != 0)
		die(path);
}

static void make_cut(const struct log *log, char **argv, uint64_t cut, uint64_t seed)
{
	const char *start = argv[2], *base = argv[3], *out = argv[4];
	uint64_t pos[LOG_DEVICES] = { 0, 0 }, i;
	char position[PATH_BYTES];
	unsigned int dev;

	if (cut > log->count)
		cut = log->count;
	snprintf(position, sizeof(position), "%s/position", base);
	position_load(position, pos);
	for (dev = 0; dev < LOG_DEVICES; dev++) {
		uint64_t end = flushed_end(log, dev, cut);
		int fd;

		base_advance(log, start, base, dev, &pos[dev], end);
		copy_image(base, out, log_device_names[dev]);
		fd = open_image(out, log_device_names[dev]);
		apply_cache(log, fd, dev, end, cut, seed);
		close(fd);
	}
	position_store(position, pos);
	for (i = 0; i < cut; i++)
		if (log->records[i].head.type == LOG_MARK)
			fwrite(log->records[i].data, log->records[i].head.len_bytes, 1, stdout);
}

static int compare_cuts(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Half of the cuts directly behind a mark, where a promise is youngest; half anywhere. */
static void plan_cuts(const struct log *log, uint64_t count, uint64_t seed)
{
	uint64_t *cuts = calloc(count + 1, sizeof(*cuts)), i, k;

	if (!cuts || !log->count)
		die("nothing recorded");
	for (i = 0; i < count; i++) {
		k = 1 + hash_of(seed, i, 7, 0) % log->count;
		while (i % 2 && k < log->count && log->records[k - 1].head.type != LOG_MARK)
			k++;
		cuts[i] = k;
	}
	qsort(cuts, count, sizeof(*cuts), compare_cuts);
	for (i = 0; i < count; i++)
		printf("%" PRIu64 " %" PRIu64 "\n", cuts[i], hash_of(seed, i, 8, 0) % 1000000);
	free(cuts);
}

/* ---- cuts at crash points ------------------------------------------------------------------ */
#define POINTS_MAX 256
#define NAME_BYTES 40

struct point {
	char name[NAME_BYTES];
	uint64_t order; /* in which points are chosen */
	uint64_t marks; /* so many in the log */
};

struct point_cut {
	uint64_t record, seed;
	const char *name; /* borrowed from its point */
};

/* Of a mark "C NAME\n" the name. */
static bool point_name(const struct record *r, char ret[NAME_BYTES])
{
	uint64_t len = r->head.len_bytes;

	if (r->head.type != LOG_MARK || len < 4 || len > NAME_BYTES || memcmp(r->data, "C ", 2))
		return false;
	memcpy(ret, r->data + 2, len - 3);
	ret[len - 3] = '\0';
	return true;
}

static struct point *find_point(struct point *points, unsigned int *n, const char *name)
{
	unsigned int i;

	for (i = 0; i < *n; i++)
		if (!strcmp(points[i].name, name))
			return &points[i];
	if (*n == POINTS_MAX)
		die("too many crash points");
	strcpy(points[*n].name, name);
	return &points[(*n)++];
}

static int compare_points(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return (x->order > y->order) - (x->order < y->order);
}

/* Behind the nth mark of a point: whatever was given to a device before is given. */
static uint64_t record_of_mark(const struct log *log, const char *name, uint64_t nth)
{
	char here[NAME_BYTES];
	uint64_t i;

	for (i = 0; i < log->count; i++)
		if (point_name(&log->records[i], here) && !strcmp(here, name) && nth-- == 0)
			break;
	return i + 1;
}

static bool is_wanted(const char *name, char **names)
{
	bool any = !*names;

	for (; *names && !any; names++)
		any = !strcmp(name, *names);
	return any;
}

static void plan_points(const struct log *log, uint64_t count, uint64_t seed, uint64_t max,
			char **names)
{
	static struct point points[POINTS_MAX];
	char name[NAME_BYTES];
	struct point_cut *cuts;
	unsigned int n = 0, p;
	uint64_t i, k = 0;

	for (i = 0; i < log->count; i++)
		if (point_name(&log->records[i], name) && is_wanted(name, names))
			find_point(points, &n, name)->marks++;
	for (p = 0; p < n; p++)
		points[p].order = hash_of(seed, p, 10, 0);
	qsort(points, n, sizeof(*points), compare_points);
	if (max && n > max)
		n = (unsigned int)max;
	cuts = calloc(n * count + 1, sizeof(*cuts));
	if (!cuts)
		die("calloc");
	for (p = 0; p < n; p++)
		for (i = 0; i < count; i++, k++) {
			uint64_t nth = hash_of(seed, p, i, 11) % points[p].marks;

			cuts[k].record = record_of_mark(log, points[p].name, nth);
			cuts[k].seed = hash_of(seed, p, i, 12) % 1000000;
			cuts[k].name = points[p].name;
		}
	qsort(cuts, k, sizeof(*cuts), compare_cuts); /* by record, which comes first */
	for (i = 0; i < k; i++)
		printf("%" PRIu64 " %" PRIu64 " %s\n", cuts[i].record, cuts[i].seed, cuts[i].name);
	free(cuts);
}

int main(int argc, char **argv)
{
	struct log log = { NULL, 0 };

	if (argc == 5 && !strcmp(argv[1], "--plan")) {
		log_read(&log, argv[2]);
		plan_cuts(&log, strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	} else if (argc >= 6 && !strcmp(argv[1], "--points")) {
		log_read(&log, argv[2]);
		plan_points(&log, strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0),
			    strtoull(argv[5], NULL, 0), argv + 6);
	} else if (argc == 7) {
		log_read(&log, argv[1]);
		make_cut(&log, argv, strtoull(argv[5], NULL, 0), strtoull(argv[6], NULL, 0));
	} else {
		fprintf(stderr,
			"Usage: cut LOG START BASE OUT RECORD SEED | cut --plan LOG COUNT SEED |\n"
			"       cut --points LOG COUNT SEED MAX [NAME...]\n");
		return 2;
	}
	free(log.records);
	return fflush(stdout) == 0 ? 0 : 1;
}
