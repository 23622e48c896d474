// SPDX-License-Identifier: GPL-2.0-or-later
/* Objects under check: which there are, what they say of themselves, where they hold data. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tier/check_internal.h"

#define OBJECT_XATTR	"user.hybridfs.object" /* format: tier/object.c */
#define DESCRIPTION_MAX 4096

void check_object_path(uint64_t id, char ret[OBJECT_PATH_MAX])
{
	snprintf(ret, OBJECT_PATH_MAX, "objects/%02x/%016llx", (unsigned)(id % OBJECT_DIRS),
		 (unsigned long long)id);
}

/* ---- which there are ---------------------------------------------------------------------- */
struct object_list {
	uint64_t *ids;
	size_t n, cap;
};

static int add_id(struct object_list *l, uint64_t id)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 1024;
		uint64_t *ids = reallocarray(l->ids, cap, sizeof(*ids));

		if (!ids)
			return -ENOMEM;
		l->ids = ids;
		l->cap = cap;
	}
	l->ids[l->n++] = id;
	return 0;
}

static void report_foreign(struct check *c, const char *dir, const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "objects%s%s/%s", *dir ? "/" : "", dir, name);
	check_report(c, "object-foreign", path, CHECK_NOTED, true, NULL,
		     "not an object of ours; left alone");
}

/* `dir` is one of objects/xx. */
static int list_dir(struct check *c, struct object_list *l, DIR *dir, unsigned number)
{
	char dir_name[8];
	struct dirent *e;
	int r = 0;

	object_dir_name(number, dir_name);
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		uint64_t id = object_id_of_name(e->d_name);

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (id == 0 || id > INT64_MAX || id % OBJECT_DIRS != number)
			report_foreign(c, dir_name, e->d_name);
		else
			r = add_id(l, id);
	}
	return r == 0 && errno ? neg_errno() : r;
}

static int open_and_list_dir(struct check *c, struct object_list *l, unsigned number)
{
	char name[8];

	object_dir_name(number, name);
	int fd = openat(c->l.objects_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : neg_errno();
	DIR *dir = fdopendir(fd);

	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	int r = list_dir(c, l, dir, number);

	closedir(dir);
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int check_list_objects(struct check *c)
{
	struct object_list l = { 0 };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < OBJECT_DIRS && c->l.objects_fd >= 0; i++)
		r = open_and_list_dir(c, &l, i);
	if (r < 0) {
		free(l.ids);
		return check_fail(c, r, "objects");
	}
	if (l.n)
		qsort(l.ids, l.n, sizeof(*l.ids), compare_ids);
	c->objects = l.ids;
	c->n_objects = c->result->objects = l.n;
	return 0;
}

bool check_object_exists(const struct check *c, uint64_t id)
{
	return c->n_objects &&
	       bsearch(&id, c->objects, c->n_objects, sizeof(id), compare_ids) != NULL;
}

/* ---- opening and removing ----------------------------------------------------------------- */
int check_open_object(struct check *c, uint64_t id, struct stat *ret_st)
{
	char path[OBJECT_PATH_MAX];
	int flags = (c->opt->repair ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;

	check_object_path(id, path);
	_cleanup_close_ int fd = openat(c->l.dir_fd, path, flags);

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return neg_errno();
	if (!S_ISREG(ret_st->st_mode))
		return -EISDIR;
	/* What the page cache has is not what the disk has. */
	if (c->opt->scrub)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return TAKE_FD(fd);
}

int check_remove_object(struct check *c, uint64_t id)
{
	char path[OBJECT_PATH_MAX];

	check_object_path(id, path);
	return unlinkat(c->l.dir_fd, path, 0) < 0 && errno != ENOENT ? neg_errno() : 0;
}

/* ---- self-description --------------------------------------------------------------------- */
static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two digits at s, or -1. */
static int hex_byte(const char *s)
{
	int hi = hex_digit(s[0]), lo = hi < 0 ? -1 : hex_digit(s[1]);

	return lo < 0 ? -1 : hi << 4 | lo;
}

/* "1 <volume id> <hex of the key> <path>" */
static int parse_description(const struct check *c, const char *text, struct description *ret)
{
	struct description d = { .key.len = 0 };
	size_t id_len = strlen(c->l.id);
	const char *s = text + 2 + id_len + 1;

	if (strncmp(text, "1 ", 2) != 0 || strncmp(text + 2, c->l.id, id_len) != 0 ||
	    text[2 + id_len] != ' ')
		return -EINVAL;
	while (*s && *s != ' ') {
		int byte = d.key.len < SRC_KEY_MAX ? hex_byte(s) : -1;

		if (byte < 0)
			return -EINVAL;
		d.key.data[d.key.len++] = (uint8_t)byte;
		s += 2;
	}
	if (*s != ' ' || d.key.len < 2)
		return -EINVAL;
	if (s[1]) {
		d.path = strdup(s + 1);
		if (!d.path)
			return -ENOMEM;
	}
	*ret = d;
	return 0;
}

int check_read_description(struct check *c, int fd, struct description *ret)
{
	char text[DESCRIPTION_MAX + 1];
	ssize_t n = fgetxattr(fd, OBJECT_XATTR, text, DESCRIPTION_MAX);

	if (n < 0)
		return errno == ERANGE ? -EINVAL : neg_errno();
	text[n] = '\0';
	return strlen(text) == (size_t)n ? parse_description(c, text, ret) : -EINVAL;
}

int check_write_description(struct check *c, int fd, const struct src_key *key, const char *path)
{
	char text[DESCRIPTION_MAX];
	int n = snprintf(text, sizeof(text), "1 %s ", c->l.id);

	for (uint32_t i = 0; i < key->len; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x", key->data[i]);
	n += snprintf(text + n, sizeof(text) - (size_t)n, " %.1023s", path ? path : "");
	return fsetxattr(fd, OBJECT_XATTR, text, (size_t)n, 0) < 0 ? neg_errno() : 0;
}

/* ---- where there is data ------------------------------------------------------------------ */
uint64_t check_next_data(int fd, uint64_t at)
{
	off_t data = at > INT64_MAX ? -1 : lseek(fd, (off_t)at, SEEK_DATA);

	if (data >= 0)
		return (uint64_t)data;
	return at > INT64_MAX || errno == ENXIO ? UINT64_MAX : at;
}

static uint64_t blocks_between(uint64_t base, uint64_t from, uint64_t to)
{
	uint64_t mask = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (base + b * BLOCK_BYTES < to && base + (b + 1) * BLOCK_BYTES > from)
			mask |= 1ull << b;
	return mask;
}

uint64_t check_data_mask(int fd, uint64_t base)
{
	uint64_t mask = 0, end = base + EXTENT_BYTES;

	for (uint64_t at = check_next_data(fd, base); at < end;) {
		off_t hole = lseek(fd, (off_t)at, SEEK_HOLE);
		uint64_t stop = hole < 0 ? end : min_u64((uint64_t)hole, end);

		if (stop <= at) /* the file has changed */
			break;
		mask |= blocks_between(base, at, stop);
		at = stop < end ? check_next_data(fd, stop) : end;
	}
	return mask;
}

/* ---- reading ------------------------------------------------------------------------------ */
static void read_run(int fd, char *buf, uint64_t base, unsigned from, unsigned to, uint64_t *bad)
{
	if (read_full(fd, buf + from * BLOCK_BYTES, (to - from) * BLOCK_BYTES,
		      base + from * BLOCK_BYTES) == 0)
		return;
	if (to - from == 1) {
		memset(buf + from * BLOCK_BYTES, 0, BLOCK_BYTES);
		*bad |= 1ull << from;
		return;
	}
	for (unsigned b = from; b < to; b++)
		read_run(fd, buf, base, b, b + 1, bad);
}

uint64_t check_sum(const char *buf, uint64_t base, uint64_t mask)
{
	uint64_t sum = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			sum += block_sum(buf + b * BLOCK_BYTES, base / BLOCK_BYTES + b);
	return sum;
}

uint64_t check_different(const char *a, const char *b, uint64_t mask)
{
	uint64_t diff = 0;

	for (unsigned i = 0; i < BLOCKS_PER_EXTENT; i++)
		if (mask >> i & 1 &&
		    memcmp(a + i * BLOCK_BYTES, b + i * BLOCK_BYTES, BLOCK_BYTES) != 0)
			diff |= 1ull << i;
	return diff;
}

void check_read_blocks(int fd, char *buf, uint64_t base, uint64_t mask, uint64_t *ret_bad)
{
	*ret_bad = 0;
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		if (e > b)
			read_run(fd, buf, base, b, e, ret_bad);
		b = e > b ? e : b + 1;
	}
}
