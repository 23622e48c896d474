// SPDX-License-Identifier: GPL-2.0-or-later
/* The journal: reading it, and whether what was read is all. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tier/journal_internal.h"

/* ---- entries ------------------------------------------------------------------------------ */
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
	case J_CHECKPOINT:
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

/* ---- frames ------------------------------------------------------------------------------- */
/* Is this the header of a frame of the journal `id`? Its payload may be torn. */
static bool is_frame(const char *h, const uint8_t *id)
{
	return get_le(h, 4) == FRAME_MAGIC && memcmp(h + 16, id, 16) == 0 &&
	       get_le(h + 48, 8) == XXH3_64bits(h, 48);
}

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

	if (!is_frame(h, j->head.id) || get_le(h + 8, 8) != j->head.next_seq ||
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
		bool lost = e->type == J_CHECKPOINT && e->file_id > j->tail.next_seq;
		int r = len && !lost ? fn(arg, e) : -EUCLEAN;

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

static int note_entry(void *arg, const struct journal_entry *e)
{
	bool *empty = arg;

	*empty &= e->type == J_CHECKPOINT;
	return 0;
}

int journal_is_empty(struct journal *j, bool *ret_empty)
{
	bool empty = true;
	uint64_t frames;
	int r = journal_replay(j, note_entry, &empty, &frames);

	if (r == 0)
		*ret_empty = empty;
	return r;
}

/* ---- was it all? -------------------------------------------------------------------------- */
#define SCAN_BYTES (1u << 20)

static bool proves_more(const char *buf, uint64_t len, const struct journal_pos *end)
{
	for (uint64_t at = 0; at < len; at += JBLOCK)
		if (is_frame(buf + at, end->id) && get_le(buf + at + 40, 8) > end->next_seq)
			return true;
	return false;
}

int journal_verify_end(struct journal *j)
{
	_cleanup_free_ char *buf = malloc(SCAN_BYTES);
	struct stat st;

	if (!buf)
		return -ENOMEM;
	if (fstat(j->fd, &st) < 0)
		return neg_errno();
	/* It is written in full when it is made. */
	if ((uint64_t)st.st_size < j->size)
		return -EUCLEAN;
	for (uint64_t off = JBLOCK; off < j->size;) {
		uint64_t len = min_u64(j->size - off, SCAN_BYTES);

		/* What can not be read proves nothing. */
		if (read_full(j->fd, buf, len, off) == 0 && proves_more(buf, len, &j->head))
			return -EUCLEAN;
		off += len;
	}
	return 0;
}

static int verify_unused(int dir_fd, unsigned slot)
{
	char name[16], block[2 * JBLOCK] = "";

	journal_slot_name(slot, name);
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : neg_errno();
	int r = read_full(fd, block, sizeof(block), 0);

	if (r < 0)
		return r;
	return is_frame(block + JBLOCK, (const uint8_t *)block + 24) ? -EUCLEAN : 0;
}

int journal_verify_none(int dir_fd)
{
	int r = verify_unused(dir_fd, 0);

	return r < 0 ? r : verify_unused(dir_fd, 1);
}
