// SPDX-License-Identifier: GPL-2.0-or-later
#include "tier/journal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "db/base.h"
#include "tier/internal.h"

#define JBLOCK 4096u
#define FILE_MAGIC "HFSJRNL1"
#define FRAME_MAGIC 0x4d524648u /* "HFRM" */
#define FRAME_HEADER 48u
#define FRAME_MORE 0x80000000u /* in the field of the payload bytes: the batch goes on */
#define ENTRY_HEADER 8u
#define VERSION 1u
#define PATH_BYTES_MAX 4096u

struct journal {
	int fd; /* owned */
	uint64_t size;
	struct journal_pos head, tail;
	_Atomic uint64_t used; /* bytes between tail and head */
	char *buf;	       /* owned; one frame, header included */
	uint32_t fill;	       /* payload bytes in buf */
	uint64_t batch_seq; /* of the first frame of this batch */
	int batch_error;
	bool broken;
	bool wrapped; /* the last frame went to the start of the file */
};

/* ---- little-endian ------------------------------------------------------------------------ */
static void put_le(void *p, uint64_t n, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		((uint8_t *)p)[i] = (uint8_t)(n >> (8 * i));
}

static uint64_t get_le(const void *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint64_t)((const uint8_t *)p)[i] << (8 * i);
	return n;
}

/* ---- file --------------------------------------------------------------------------------- */
static int write_header(struct journal *j)
{
	char block[JBLOCK] = FILE_MAGIC;

	put_le(block + 8, VERSION, 4);
	put_le(block + 16, j->size, 8);
	memcpy(block + 24, j->head.id, 16);
	put_le(block + 40, XXH3_64bits(block, 40), 8);
	return write_full(j->fd, block, sizeof(block), 0);
}

static struct journal *journal_new(int fd, uint64_t size)
{
	struct journal *j = calloc(1, sizeof(*j));

	if (j)
		j->buf = calloc(1, FRAME_HEADER + JOURNAL_FRAME_MAX + JBLOCK);
	if (!j || !j->buf) {
		free(j);
		close(fd);
		return NULL;
	}
	j->fd = fd;
	j->size = size;
	return j;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	close(j->fd);
	free(j->buf);
	free(j);
}

static void slot_name(unsigned slot, char ret[16])
{
	snprintf(ret, 16, "journal.%u", slot & 1);
}

/* Written once, so that later writes are overwrites: a flush then needs no filesystem commit. */
static int write_zeros(struct journal *j)
{
	int r = 0;

	for (uint64_t off = JBLOCK; r == 0 && off < j->size;) {
		uint64_t len = min_u64(j->size - off, JOURNAL_FRAME_MAX);

		r = write_full(j->fd, j->buf, len, off);
		off += len;
	}
	return r;
}

static int initialise(struct journal *j, int dir_fd)
{
	j->head.next_seq = 1;
	j->head.offset = JBLOCK;
	if (getrandom(j->head.id, sizeof(j->head.id), 0) < 0)
		return neg_errno();
	int r = write_zeros(j);

	crash_point(CP_JOURNAL_ZEROED);
	if (r == 0)
		r = write_header(j);
	if (r == 0 && (fsync(j->fd) < 0 || fsync(dir_fd) < 0))
		r = neg_errno();
	j->tail = j->head;
	return r;
}

int journal_create(int dir_fd, unsigned slot, uint64_t bytes, struct journal **ret_j)
{
	uint64_t size = round_down_u64(max_u64(bytes, JOURNAL_BYTES_MIN), JBLOCK);
	char name[16];

	slot_name(slot, name);
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return neg_errno();
	struct journal *j = journal_new(fd, size);

	if (!j)
		return -ENOMEM;
	j->head.slot = slot & 1;
	int r = initialise(j, dir_fd);

	if (r < 0) {
		journal_close(j);
		(void)unlinkat(dir_fd, name, 0);
		return r;
	}
	*ret_j = j;
	return 0;
}

int journal_remove(int dir_fd, unsigned slot)
{
	char name[16];

	slot_name(slot, name);
	return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? neg_errno() : 0;
}

/* ---- positions ---------------------------------------------------------------------------- */
bool journal_pos_none(const struct journal_pos *pos)
{
	for (unsigned i = 0; i < sizeof(pos->id); i++)
		if (pos->id[i])
			return false;
	return true;
}

void journal_pos_format(const struct journal_pos *pos, char ret_text[JOURNAL_POS_TEXT])
{
	int n = snprintf(ret_text, JOURNAL_POS_TEXT, "%u ", pos->slot & 1);

	for (unsigned i = 0; i < sizeof(pos->id); i++)
		n += snprintf(ret_text + n, JOURNAL_POS_TEXT - (size_t)n, "%02x", pos->id[i]);
	snprintf(ret_text + n, JOURNAL_POS_TEXT - (size_t)n, " %llu %llu",
		 (unsigned long long)pos->next_seq, (unsigned long long)pos->offset);
}

int journal_pos_parse(const char *text, struct journal_pos *ret_pos)
{
	struct journal_pos pos = { 0 };
	unsigned long long seq, offset;
	char hex[33];
	int end = 0;

	if (sscanf(text, "%1u %32[0-9a-f] %llu %llu%n", &pos.slot, hex, &seq, &offset, &end) < 4 ||
	    text[end] || strlen(hex) != 32 || pos.slot > 1)
		return -EUCLEAN;
	for (unsigned i = 0; i < sizeof(pos.id); i++) {
		unsigned byte;

		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return -EUCLEAN;
		pos.id[i] = (uint8_t)byte;
	}
	pos.next_seq = seq;
	pos.offset = offset;
	*ret_pos = pos;
	return 0;
}

static int check_header(int fd, const struct journal_pos *pos, uint64_t *ret_size)
{
	char block[JBLOCK];
	struct stat st;
	int r = fstat(fd, &st) < 0 ? neg_errno() : read_full(fd, block, sizeof(block), 0);

	if (r < 0)
		return r;
	if (memcmp(block, FILE_MAGIC, 8) || get_le(block + 8, 4) != VERSION ||
	    get_le(block + 40, 8) != XXH3_64bits(block, 40) || memcmp(block + 24, pos->id, 16))
		return -EUCLEAN;
	*ret_size = get_le(block + 16, 8);
	if (*ret_size < JOURNAL_BYTES_MIN || *ret_size % JBLOCK ||
	    pos->offset < JBLOCK || pos->offset > *ret_size || pos->offset % JBLOCK)
		return -EUCLEAN;
	return 0;
}

int journal_open(int dir_fd, const struct journal_pos *pos, struct journal **ret_j)
{
	char name[16];
	uint64_t size;

	slot_name(pos->slot, name);
	int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return neg_errno();
	int r = check_header(fd, pos, &size);

	if (r < 0) {
		close(fd);
		return r;
	}
	struct journal *j = journal_new(fd, size);

	if (!j)
		return -ENOMEM;
	journal_rewind(j, pos);
	*ret_j = j;
	return 0;
}

void journal_rewind(struct journal *j, const struct journal_pos *pos)
{
	j->head = j->tail = *pos;
	atomic_store(&j->used, 0);
}

void journal_position(const struct journal *j, struct journal_pos *ret_pos)
{
	*ret_pos = j->head;
	if (j->broken)
		*ret_pos = (struct journal_pos){ .slot = j->head.slot };
}

/* ---- room --------------------------------------------------------------------------------- */
uint64_t journal_size(const struct journal *j)
{
	return j->size - JBLOCK;
}

uint64_t journal_used(const struct journal *j)
{
	return atomic_load(&j->used);
}

/* Bytes a frame with that payload occupies. */
static uint64_t frame_bytes(uint64_t payload)
{
	return round_up_u64(FRAME_HEADER + payload, JBLOCK);
}

uint64_t journal_room(const struct journal *j)
{
	uint64_t free_bytes = journal_size(j) - journal_used(j);
	/* What wrapping and padding may waste: a frame at the end of the file, and per frame a
	 * header, padding, and an entry that did not fit any more. */
	uint64_t waste = 2 * frame_bytes(JOURNAL_FRAME_MAX) + free_bytes / 4;

	return !j->broken && free_bytes > waste ? free_bytes - waste : 0;
}

/* ---- frames ------------------------------------------------------------------------------- */
static void seal(struct journal *j, uint64_t seq, bool more)
{
	char *h = j->buf;

	put_le(h, FRAME_MAGIC, 4);
	put_le(h + 4, j->fill | (more ? FRAME_MORE : 0), 4);
	put_le(h + 8, seq, 8);
	memcpy(h + 16, j->head.id, 16);
	put_le(h + 32, XXH3_64bits(h + FRAME_HEADER, j->fill), 8);
	put_le(h + 40, XXH3_64bits(h, 40), 8);
}

static int write_frame(struct journal *j, bool more)
{
	uint64_t bytes = frame_bytes(j->fill), skipped = 0;

	if (j->fill == 0)
		return 0;
	if (j->head.offset + bytes > j->size) {
		skipped = j->size - j->head.offset;
		j->head.offset = JBLOCK;
	}
	if (journal_used(j) + skipped + bytes > journal_size(j))
		return -ENOSPC;
	memset(j->buf + FRAME_HEADER + j->fill, 0, bytes - FRAME_HEADER - j->fill);
	seal(j, j->head.next_seq, more);
	int r = write_full(j->fd, j->buf, bytes, j->head.offset);

	if (r < 0)
		return r;
	j->head.offset += bytes;
	j->head.next_seq++;
	atomic_fetch_add(&j->used, skipped + bytes);
	j->fill = 0;
	j->wrapped = skipped > 0;
	return 0;
}

void journal_begin(struct journal *j)
{
	j->batch_seq = j->head.next_seq;
	j->batch_error = 0;
	j->fill = 0;
}

void journal_abort(struct journal *j)
{
	if (j->head.next_seq != j->batch_seq) /* some of it is written already */
		j->broken = true;
	j->fill = 0;
}

static int fail(struct journal *j, int r)
{
	j->batch_error = r;
	j->broken = true;
	j->fill = 0;
	return r;
}

int journal_end(struct journal *j)
{
	if (j->batch_error)
		return j->batch_error;
	int r = write_frame(j, false);

	if (j->wrapped)
		crash_point(CP_JOURNAL_WRAPPED);
	crash_point(CP_JOURNAL_WRITTEN);
	if (r == 0 && !SABOTAGED(5) && fdatasync(j->fd) < 0)
		r = neg_errno();
	crash_point(CP_JOURNAL_FLUSHED);
	return r < 0 ? fail(j, r) : 0;
}

void journal_checkpointed(struct journal *j, const struct journal_pos *pos)
{
	uint64_t span = j->head.offset >= pos->offset
				? j->head.offset - pos->offset
				: j->size - pos->offset + j->head.offset - JBLOCK;

	if (j->head.next_seq == pos->next_seq)
		span = 0;
	j->tail = *pos;
	atomic_store(&j->used, span);
}

/* ---- entries ------------------------------------------------------------------------------ */
/* Room for an entry of up to `len` bytes, in this frame or the next; NULL after a failure. */
static char *entry_begin(struct journal *j, uint32_t len)
{
	uint32_t need = ENTRY_HEADER + (uint32_t)round_up_u64(len, 8);

	if (j->batch_error)
		return NULL;
	assert(need <= JOURNAL_FRAME_MAX);
	if (j->fill + need > JOURNAL_FRAME_MAX) {
		int r = write_frame(j, true);

		if (r < 0) {
			fail(j, r);
			return NULL;
		}
		crash_point(CP_JOURNAL_SPLIT);
	}
	return j->buf + FRAME_HEADER + j->fill + ENTRY_HEADER;
}

static void entry_end(struct journal *j, int type, const char *start, const char *end)
{
	uint32_t len = (uint32_t)(end - start), padded = (uint32_t)round_up_u64(len, 8);
	char *h = j->buf + FRAME_HEADER + j->fill;

	memset(h, 0, ENTRY_HEADER);
	h[0] = (char)type;
	put_le(h + 4, len, 4);
	memset(h + ENTRY_HEADER + len, 0, padded - len);
	j->fill += ENTRY_HEADER + padded;
}

static char *emit(char *p, uint64_t n)
{
	put_le(p, n, 8);
	return p + 8;
}

int journal_put_file(struct journal *j, const struct cat_file *f)
{
	size_t path_len = f->path ? strnlen(f->path, PATH_BYTES_MAX) : 0;
	char *start = entry_begin(j, (uint32_t)(9 * 8 + CAT_KEY_MAX + path_len)), *p = start;

	if (!p)
		return j->batch_error;
	p = emit(p, f->id);
	p = emit(p, f->flags);
	p = emit(p, f->key_len);
	p = emit(p, f->size_bytes);
	p = emit(p, (uint64_t)f->mtime_ns);
	p = emit(p, f->src_size_bytes);
	p = emit(p, (uint64_t)f->src_mtime_ns);
	p = emit(p, (uint64_t)f->src_ctime_ns);
	p = emit(p, f->path ? path_len + 1 : 0);
	memcpy(p, f->key, f->key_len);
	p += f->key_len;
	memcpy(p, f->path ? f->path : "", path_len);
	entry_end(j, J_FILE, start, p + path_len);
	return 0;
}

/* The words of a bitmap that are not zero, behind a mask of which those are. */
static char *emit_bitmap(char *p, const uint8_t *bitmap)
{
	uint64_t mask = 0;
	char *at = p + 8;

	for (unsigned w = 0; w < BITMAP_WORDS; w++) {
		if (get_le(bitmap + 8 * w, 8) == 0)
			continue;
		mask |= 1ull << w;
		memcpy(at, bitmap + 8 * w, 8);
		at += 8;
	}
	emit(p, mask);
	return at;
}

static char *emit_sums(char *p, const struct cat_group *g)
{
	p = emit(p, g->sum_valid);
	for (unsigned w = 0; w < CAT_EXTENTS_PER_GROUP; w++)
		if (g->sum_valid >> w & 1)
			p = emit(p, g->sum[w]);
	return p;
}

static char *emit_heat(char *p, const struct cat_group *g)
{
	uint64_t mask = 0;
	char *at = p + 8;

	for (unsigned w = 0; w < CAT_EXTENTS_PER_GROUP; w++)
		if (g->heat[w]) {
			mask |= 1ull << w;
			*at++ = (char)g->heat[w];
		}
	emit(p, mask);
	return at;
}

#define GROUP_ENTRY_MAX (4 * 8 + 2 * (8 + CAT_BITMAP_BYTES) + 8 + 64 * 8 + 8 + 64)

int journal_put_group(struct journal *j, uint64_t file_id, const struct cat_group *g)
{
	char *start = entry_begin(j, GROUP_ENTRY_MAX), *p = start;

	if (!p)
		return j->batch_error;
	p = emit(p, file_id);
	p = emit(p, g->index);
	p = emit(p, g->flags);
	p = emit(p, g->pinned);
	p = emit_bitmap(p, g->present);
	p = emit_bitmap(p, g->dirty);
	p = emit_sums(p, g);
	p = emit_heat(p, g);
	entry_end(j, J_GROUP, start, p);
	return 0;
}

static int put_id(struct journal *j, int type, uint64_t file_id)
{
	char *p = entry_begin(j, 8);

	if (!p)
		return j->batch_error;
	entry_end(j, type, p, emit(p, file_id));
	return 0;
}

int journal_put_delete(struct journal *j, uint64_t file_id)
{
	return put_id(j, J_DELETE, file_id);
}

int journal_put_synced(struct journal *j, uint64_t file_id)
{
	return put_id(j, J_SYNCED, file_id);
}

int journal_put_data(struct journal *j, uint64_t file_id, uint64_t off, const void *data,
		     uint32_t len)
{
	char *start = entry_begin(j, 16 + len), *p = start;

	if (!p)
		return j->batch_error;
	p = emit(p, file_id);
	p = emit(p, off);
	memcpy(p, data, len);
	entry_end(j, J_DATA, start, p + len);
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------ */
struct cursor {
	const char *p, *end;
	bool bad;
};

static uint64_t take(struct cursor *c)
{
	if (c->end - c->p < 8) {
		c->bad = true;
		return 0;
	}
	c->p += 8;
	return get_le(c->p - 8, 8);
}

static const char *take_bytes(struct cursor *c, uint64_t len)
{
	if ((uint64_t)(c->end - c->p) < len) {
		c->bad = true;
		return NULL;
	}
	c->p += len;
	return c->p - len;
}

static void read_file(struct cursor *c, struct journal_entry *e, char *path)
{
	struct cat_file *f = &e->file;

	f->id = e->file_id = take(c);
	f->flags = (uint32_t)take(c);
	uint64_t key_len = take(c);

	f->size_bytes = take(c);
	f->mtime_ns = (int64_t)take(c);
	f->src_size_bytes = take(c);
	f->src_mtime_ns = (int64_t)take(c);
	f->src_ctime_ns = (int64_t)take(c);
	uint64_t path_len = take(c);

	if (key_len > CAT_KEY_MAX || path_len > PATH_BYTES_MAX + 1) {
		c->bad = true;
		return;
	}
	f->key_len = (uint32_t)key_len;
	const char *key = take_bytes(c, key_len);

	if (key)
		memcpy(f->key, key, key_len);
	if (path_len) {
		const char *text = take_bytes(c, path_len - 1);

		if (text)
			memcpy(path, text, path_len - 1);
		path[text ? path_len - 1 : 0] = '\0';
		f->path = path;
	}
}

static void read_bitmap(struct cursor *c, uint8_t *bitmap)
{
	uint64_t mask = take(c);

	for (unsigned w = 0; w < BITMAP_WORDS; w++)
		if (mask >> w & 1)
			put_le(bitmap + 8 * w, take(c), 8);
}

static void read_group(struct cursor *c, struct journal_entry *e)
{
	struct cat_group *g = &e->group;

	e->file_id = take(c);
	g->index = take(c);
	g->flags = (uint32_t)take(c);
	g->pinned = take(c);
	read_bitmap(c, g->present);
	read_bitmap(c, g->dirty);
	g->sum_valid = take(c);
	for (unsigned w = 0; w < CAT_EXTENTS_PER_GROUP; w++)
		if (g->sum_valid >> w & 1)
			g->sum[w] = take(c);
	uint64_t warm = take(c);

	for (unsigned w = 0; w < CAT_EXTENTS_PER_GROUP; w++)
		if (warm >> w & 1) {
			const char *heat = take_bytes(c, 1);

			g->heat[w] = heat ? (uint8_t)*heat : 0;
		}
}

static void read_data(struct cursor *c, struct journal_entry *e)
{
	e->file_id = take(c);
	e->off = take(c);
	e->len = (uint32_t)(c->end - c->p);
	e->data = c->p;
	c->bad |= e->off > (uint64_t)INT64_MAX - e->len;
}

/* One entry of [p, end). Returns its whole length, 0 if it makes no sense. */
static uint64_t read_entry(const char *p, const char *end, struct journal_entry *e, char *path)
{
	if (end - p < (ptrdiff_t)ENTRY_HEADER)
		return 0;
	uint64_t len = get_le(p + 4, 4);
	struct cursor c = { .p = p + ENTRY_HEADER };

	if (round_up_u64(len, 8) > (uint64_t)(end - c.p))
		return 0;
	c.end = c.p + len;
	uint64_t frame = e->frame;

	memset(e, 0, sizeof(*e));
	e->frame = frame;
	e->type = (unsigned char)*p;
	switch ((unsigned char)*p) {
	case J_FILE:
		read_file(&c, e, path);
		break;
	case J_GROUP:
		read_group(&c, e);
		break;
	case J_DELETE:
	case J_SYNCED:
		e->file_id = take(&c);
		break;
	case J_DATA:
		read_data(&c, e);
		break;
	default:
		return 0;
	}
	return c.bad || !e->file_id ? 0 : ENTRY_HEADER + round_up_u64(len, 8);
}

struct frame {
	uint64_t at; /* where it is in the file */
	uint32_t payload;
	bool more;
};

/* Is there the frame number head.next_seq at `offset`? Then it is in buf. */
static int read_frame(struct journal *j, uint64_t offset, struct frame *ret)
{
	if (offset + JBLOCK > j->size)
		return 0;
	int r = read_full(j->fd, j->buf, JBLOCK, offset);

	if (r < 0)
		return r;
	const char *h = j->buf;
	bool more = get_le(h + 4, 4) & FRAME_MORE;
	uint64_t payload = get_le(h + 4, 4) & ~(uint64_t)FRAME_MORE, bytes = frame_bytes(payload);

	if (get_le(h, 4) != FRAME_MAGIC || get_le(h + 8, 8) != j->head.next_seq ||
	    memcmp(h + 16, j->head.id, 16) || get_le(h + 40, 8) != XXH3_64bits(h, 40) ||
	    payload > JOURNAL_FRAME_MAX || offset + bytes > j->size)
		return 0;
	r = read_full(j->fd, j->buf, bytes, offset);
	if (r < 0)
		return r;
	if (get_le(h + 32, 8) != XXH3_64bits(h + FRAME_HEADER, payload))
		return 0;
	*ret = (struct frame){ .at = offset, .payload = (uint32_t)payload, .more = more };
	return 1;
}

static int replay_frame(struct journal *j, uint32_t payload,
			int (*fn)(void *arg, const struct journal_entry *e), void *arg,
			struct journal_entry *e, char *path)
{
	const char *p = j->buf + FRAME_HEADER, *end = p + payload;

	while (p < end) {
		e->frame = j->head.next_seq - 1;
		uint64_t len = read_entry(p, end, e, path);
		int r = len ? fn(arg, e) : -EUCLEAN;

		if (r < 0)
			return r;
		p += len;
	}
	return 0;
}

/* The frame behind the head, or at the start of the file; the head moves behind it. */
static int next_frame(struct journal *j, struct frame *ret)
{
	uint64_t at = j->head.offset, skipped = 0;
	int r = read_frame(j, at, ret);

	if (r == 0 && at != JBLOCK) {
		skipped = j->size - at;
		r = read_frame(j, JBLOCK, ret);
	}
	if (r <= 0)
		return r;
	j->head.offset = ret->at + frame_bytes(ret->payload);
	j->head.next_seq++;
	atomic_fetch_add(&j->used, skipped + frame_bytes(ret->payload));
	return 1;
}

/* Behind the last frame that ends a batch. */
static int find_end(struct journal *j, uint64_t *ret_seq)
{
	struct journal_pos start = j->head;
	struct frame frame;
	int r;

	*ret_seq = start.next_seq;
	while ((r = next_frame(j, &frame)) > 0)
		if (!frame.more)
			*ret_seq = j->head.next_seq;
	journal_rewind(j, &start);
	return r;
}

static int replay_frames(struct journal *j, int (*fn)(void *arg, const struct journal_entry *e),
			 void *arg, struct journal_entry *e, char *path, uint64_t *ret_frames)
{
	struct frame frame;
	uint64_t end;
	int r = find_end(j, &end);

	while (r >= 0 && j->head.next_seq < end) {
		r = next_frame(j, &frame);
		if (r <= 0)
			return r < 0 ? r : -EIO; /* it was there a moment ago */
		r = replay_frame(j, frame.payload, fn, arg, e, path);
		++*ret_frames;
	}
	return r;
}

int journal_replay(struct journal *j, int (*fn)(void *arg, const struct journal_entry *e),
		   void *arg, uint64_t *ret_frames)
{
	_cleanup_free_ struct journal_entry *e = calloc(1, sizeof(*e));
	_cleanup_free_ char *path = malloc(PATH_BYTES_MAX + 2);

	*ret_frames = 0;
	if (!e || !path)
		return -ENOMEM;
	return replay_frames(j, fn, arg, e, path, ret_frames);
}
