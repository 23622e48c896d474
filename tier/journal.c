// SPDX-License-Identifier: GPL-2.0-or-later
/* The journal: files, positions, appending. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tier/journal_internal.h"

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

void journal_slot_name(unsigned slot, char ret[16])
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

	journal_slot_name(slot, name);
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

	journal_slot_name(slot, name);
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

	journal_slot_name(pos->slot, name);
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
	put_le(h + 40, j->batch_seq, 8);
	put_le(h + 48, XXH3_64bits(h, 48), 8);
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

int journal_put_checkpoint(struct journal *j, const struct journal_pos *pos)
{
	return put_id(j, J_CHECKPOINT, pos->next_seq);
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
