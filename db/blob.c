// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * blob.c - rows to columns and back (db/README.md, "Layouts").
 *
 * Most files are small, so a row must cost little: zeros at the end of a blob are not stored, an
 * empty one is NULL, and a bitmap with every bit set is the blob of length 0. What is read is not
 * trusted (D8): it was a disk's, and anybody's with a database shell.
 */
#include <string.h>

#include "db/catalog_internal.h"

/* ---- rules of catalog.h ------------------------------------------------------------------- */
int blob_check_file(const struct cat_file *f)
{
	if (f->id == 0 || f->id > INT64_MAX || f->flags & ~CAT_F_ALL)
		return -EINVAL;
	if (f->key_len == 0 || f->key_len > CAT_KEY_MAX)
		return -EINVAL;
	if (f->path && strlen(f->path) > CAT_PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static bool is_subset(const uint8_t *bits, const uint8_t *of)
{
	uint8_t outside = 0;

	for (size_t i = 0; i < CAT_BITMAP_BYTES; i++)
		outside |= bits[i] & (uint8_t)~of[i];
	return outside == 0;
}

int blob_check_group(uint64_t file_id, const struct cat_group *g)
{
	if (file_id == 0 || file_id > INT64_MAX || g->index > CAT_INDEX_MAX)
		return -EINVAL;
	if (g->flags & ~CAT_G_ALL || !is_subset(g->dirty, g->present))
		return -EINVAL;
	return 0;
}

unsigned int blob_count_bits(const uint8_t *bits, size_t size_bytes)
{
	unsigned int n = 0;

	for (size_t i = 0; i < size_bytes; i++)
		n += (unsigned int)__builtin_popcount(bits[i]);
	return n;
}

/* ---- rows to columns ---------------------------------------------------------------------- */
static int bind_trimmed(sqlite3_stmt *s, int n, const uint8_t *data, size_t len)
{
	while (len > 0 && data[len - 1] == 0)
		len--;
	return len ? sqlite3_bind_blob(s, n, data, (int)len, SQLITE_STATIC) :
		     sqlite3_bind_null(s, n);
}

static int bind_bitmap(sqlite3_stmt *s, int n, const uint8_t *bits, unsigned int count)
{
	if (count == CAT_BLOCKS_PER_GROUP)
		return sqlite3_bind_zeroblob(s, n, 0);
	return bind_trimmed(s, n, bits, CAT_BITMAP_BYTES);
}

/* Sums of extents without a valid one are not stored. */
static int bind_sums(sqlite3_stmt *s, int n, const struct cat_group *g)
{
	uint8_t out[CAT_EXTENTS_PER_GROUP * 8];
	int len = 0;

	for (unsigned int i = 0; i < CAT_EXTENTS_PER_GROUP; i++) {
		if (!(g->sum_valid >> i & 1))
			continue;
		for (unsigned int b = 0; b < 8; b++)
			out[len++] = (uint8_t)(g->sum[i] >> 8 * b);
	}
	return len ? sqlite3_bind_blob(s, n, out, len, SQLITE_TRANSIENT) : sqlite3_bind_null(s, n);
}

int blob_bind_file(sqlite3_stmt *s, const struct cat_file *f)
{
	int rc = sqlite3_bind_int64(s, 1, (sqlite3_int64)f->id);

	rc = rc ?: sqlite3_bind_int64(s, 2, f->flags);
	rc = rc ?: sqlite3_bind_blob(s, 3, f->key, (int)f->key_len, SQLITE_STATIC);
	rc = rc ?: sqlite3_bind_int64(s, 4, (sqlite3_int64)f->size_bytes);
	rc = rc ?: sqlite3_bind_int64(s, 5, f->mtime_ns);
	rc = rc ?: sqlite3_bind_int64(s, 6, (sqlite3_int64)f->src_size_bytes);
	rc = rc ?: sqlite3_bind_int64(s, 7, f->src_mtime_ns);
	rc = rc ?: sqlite3_bind_int64(s, 8, f->src_ctime_ns);
	if (rc || !f->path)
		return rc ?: sqlite3_bind_null(s, 9);
	return sqlite3_bind_blob(s, 9, f->path, (int)strlen(f->path), SQLITE_STATIC);
}

int blob_bind_group(sqlite3_stmt *s, uint64_t file_id, const struct cat_group *g)
{
	unsigned int present_n = blob_count_bits(g->present, CAT_BITMAP_BYTES);
	unsigned int dirty_n = blob_count_bits(g->dirty, CAT_BITMAP_BYTES);
	int rc = sqlite3_bind_int64(s, 1, (sqlite3_int64)file_id);

	rc = rc ?: sqlite3_bind_int64(s, 2, (sqlite3_int64)g->index);
	rc = rc ?: sqlite3_bind_int64(s, 3, g->flags);
	rc = rc ?: bind_bitmap(s, 4, g->present, present_n);
	rc = rc ?: bind_bitmap(s, 5, g->dirty, dirty_n);
	rc = rc ?: sqlite3_bind_int64(s, 6, (sqlite3_int64)g->sum_valid);
	rc = rc ?: bind_sums(s, 7, g);
	rc = rc ?: sqlite3_bind_int64(s, 8, (sqlite3_int64)g->pinned);
	rc = rc ?: bind_trimmed(s, 9, g->heat, sizeof(g->heat));
	rc = rc ?: sqlite3_bind_int64(s, 10, present_n);
	return rc ?: sqlite3_bind_int64(s, 11, dirty_n);
}

/* ---- columns to rows ---------------------------------------------------------------------- */
static bool get_int(sqlite3_stmt *s, int column, int64_t *ret_value)
{
	if (sqlite3_column_type(s, column) != SQLITE_INTEGER)
		return false;
	*ret_value = sqlite3_column_int64(s, column);
	return true;
}

/* Also as the bit pattern of an unsigned value. */
static bool get_u64(sqlite3_stmt *s, int column, uint64_t *ret_value)
{
	int64_t v;

	if (!get_int(s, column, &v))
		return false;
	*ret_value = (uint64_t)v;
	return true;
}

static bool get_u64_max(sqlite3_stmt *s, int column, uint64_t max, uint64_t *ret_value)
{
	uint64_t v;

	if (!get_u64(s, column, &v) || v > max)
		return false;
	*ret_value = v;
	return true;
}

/* Up to `size` bytes; the rest of the buffer stays as it is. The length, or -EUCLEAN, -ENOMEM. */
static int get_blob(sqlite3_stmt *s, int column, void *buf, size_t size)
{
	const void *p;
	size_t len;

	if (sqlite3_column_type(s, column) == SQLITE_NULL)
		return 0;
	if (sqlite3_column_type(s, column) != SQLITE_BLOB)
		return -EUCLEAN;
	p = sqlite3_column_blob(s, column);
	len = (size_t)sqlite3_column_bytes(s, column);
	if (len > size)
		return -EUCLEAN;
	if (len > 0 && !p)
		return -ENOMEM;
	if (len > 0)
		memcpy(buf, p, len);
	return (int)len;
}

int blob_get_text(sqlite3_stmt *s, int column, size_t max_bytes, char **ret_text)
{
	_cleanup_free_ char *text = NULL;
	const void *p = sqlite3_column_blob(s, column); /* of a TEXT: its bytes, not converted */
	size_t len = (size_t)sqlite3_column_bytes(s, column);

	if (len > max_bytes)
		return -EUCLEAN;
	text = malloc(len + 1);
	if (!text || (len > 0 && !p))
		return -ENOMEM;
	if (len > 0)
		memcpy(text, p, len);
	text[len] = '\0';
	if (strlen(text) != len)
		return -EUCLEAN;
	*ret_text = TAKE_PTR(text);
	return 0;
}

static int get_path(sqlite3_stmt *s, int column, char **ret_path)
{
	if (sqlite3_column_type(s, column) == SQLITE_NULL) {
		*ret_path = NULL;
		return 0;
	}
	if (sqlite3_column_type(s, column) != SQLITE_BLOB)
		return -EUCLEAN;
	return blob_get_text(s, column, CAT_PATH_MAX, ret_path);
}

static bool get_file_numbers(sqlite3_stmt *s, struct cat_file *f)
{
	uint64_t flags;

	if (!get_u64_max(s, 0, INT64_MAX, &f->id) || f->id == 0)
		return false;
	if (!get_u64_max(s, 1, CAT_F_ALL, &flags))
		return false;
	f->flags = (uint32_t)flags;
	return get_u64(s, 3, &f->size_bytes) && get_int(s, 4, &f->mtime_ns) &&
	       get_u64(s, 5, &f->src_size_bytes) && get_int(s, 6, &f->src_mtime_ns) &&
	       get_int(s, 7, &f->src_ctime_ns);
}

int blob_get_file(sqlite3_stmt *s, struct cat_file *ret_f, const char **ret_why)
{
	struct cat_file f = { .path = NULL };
	int n, r;

	if (!get_file_numbers(s, &f)) {
		*ret_why = "id, flags, size or time out of range";
		return -EUCLEAN;
	}
	n = get_blob(s, 2, f.key, sizeof(f.key));
	if (n <= 0) {
		*ret_why = "length of the key";
		return n < 0 ? n : -EUCLEAN;
	}
	f.key_len = (uint32_t)n;
	r = get_path(s, 8, &f.path);
	if (r < 0) {
		*ret_why = "path";
		return r;
	}
	*ret_f = f;
	return 0;
}

/* `bits` is zero. The number of bits set, or -EUCLEAN, -ENOMEM. */
static int get_bitmap(sqlite3_stmt *s, int column, uint8_t *bits)
{
	int n = get_blob(s, column, bits, CAT_BITMAP_BYTES);

	if (n == 0 && sqlite3_column_type(s, column) == SQLITE_BLOB)
		memset(bits, 0xff, CAT_BITMAP_BYTES);
	return n < 0 ? n : (int)blob_count_bits(bits, CAT_BITMAP_BYTES);
}

static int get_bitmaps(sqlite3_stmt *s, struct cat_group *g)
{
	int present_n = get_bitmap(s, 3, g->present);
	int dirty_n = get_bitmap(s, 4, g->dirty);
	int64_t present_said, dirty_said;

	if (present_n < 0 || dirty_n < 0)
		return present_n < 0 ? present_n : dirty_n;
	if (!get_int(s, 9, &present_said) || !get_int(s, 10, &dirty_said) ||
	    present_said != present_n || dirty_said != dirty_n || !is_subset(g->dirty, g->present))
		return -EUCLEAN;
	return 0;
}

static int get_sums(sqlite3_stmt *s, struct cat_group *g)
{
	uint8_t in[CAT_EXTENTS_PER_GROUP * 8] = { 0 };
	int n = get_blob(s, 6, in, sizeof(in)), at = 0;

	if (n < 0)
		return n;
	if (!get_u64(s, 5, &g->sum_valid) || n != 8 * __builtin_popcountll(g->sum_valid))
		return -EUCLEAN;
	for (unsigned int i = 0; i < CAT_EXTENTS_PER_GROUP; i++) {
		if (!(g->sum_valid >> i & 1))
			continue;
		for (unsigned int b = 0; b < 8; b++)
			g->sum[i] |= (uint64_t)in[at++] << 8 * b;
	}
	return 0;
}

int blob_get_group(sqlite3_stmt *s, uint64_t *ret_file_id, struct cat_group *ret_g,
		   const char **ret_why)
{
	struct cat_group g = { .index = 0 };
	uint64_t file_id, flags;
	int r;

	*ret_why = "file, index, flags or pins out of range";
	if (!get_u64_max(s, 0, INT64_MAX, &file_id) || file_id == 0 ||
	    !get_u64_max(s, 1, CAT_INDEX_MAX, &g.index) || !get_u64_max(s, 2, CAT_G_ALL, &flags) ||
	    !get_u64(s, 7, &g.pinned))
		return -EUCLEAN;
	g.flags = (uint32_t)flags;
	*ret_why = "bitmaps: too long, dirty blocks that are not present, or wrong counts";
	r = get_bitmaps(s, &g);
	if (r < 0)
		return r;
	*ret_why = "sums: not one for each valid extent";
	r = get_sums(s, &g);
	if (r < 0)
		return r;
	*ret_why = "heat: too long";
	r = get_blob(s, 8, g.heat, sizeof(g.heat));
	if (r < 0)
		return r;
	*ret_file_id = file_id;
	*ret_g = g;
	return 0;
}
