// SPDX-License-Identifier: GPL-2.0-or-later
/* The check of one row of the catalog: against itself, against its object, against SRC. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"
#include "tier/pass.h"

#define ULL(n) ((unsigned long long)(n))

/* ---- rows that cannot stay ---------------------------------------------------------------- */
/* `why` the row must go; what is newer in its object is kept in lost+found. */
static int give_up(struct subject *s, const char *kind, const char *why)
{
	bool doubt = subject_any_doubt(s), dirty = s->map.dirty_blocks > 0;
	uint64_t bytes = s->map.dirty_blocks * BLOCK_BYTES;

	s->remove = true;
	if (!dirty && !doubt) {
		subject_find(s, kind, "remove its row and object",
			     "%s; the SSD has nothing newer of it", why);
		return 0;
	}
	if (s->obj_error == -ENOENT) {
		subject_find(s, kind, "remove its row",
			     "%s, and the object is missing; %llu newer bytes are lost", why,
			     ULL(bytes));
		return 0;
	}
	if (s->obj_fd < 0) {
		s->remove = false;
		subject_left(s, "object-unreadable", "%s, and the SSD's copy: %s", why,
			     strerror(-s->obj_error));
		return 0;
	}
	subject_find(s, kind, "move the object to lost+found and remove the row",
		     "%s; the SSD has %llu newer bytes%s", why, ULL(bytes),
		     doubt ? " and some that may be newer" : "");
	return s->c->opt->repair ? check_lost_keep(s) : 0;
}

/* ---- the row itself ----------------------------------------------------------------------- */
/* Sums describe all present blocks of an extent without dirty ones. */
static void check_sums(struct subject *s)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < s->map.n_groups; i++) {
		struct map_group *g = s->map.groups[i];
		uint64_t valid = 0;

		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			if (g->present[w] && !g->dirty[w])
				valid |= 1ull << w;
		if (!(g->sum_valid & ~valid))
			continue;
		wrong += (unsigned)__builtin_popcountll(g->sum_valid & ~valid);
		g->sum_valid &= valid;
		map_group_changed(&s->map, g);
	}
	if (wrong)
		subject_find(s, "row", "forget these checksums",
			     "has checksums of %u extents that are absent or dirty", wrong);
}

static void check_pins(struct subject *s)
{
	bool flag = s->row.flags & CAT_F_PIN_RANGES, any = false;

	for (unsigned i = 0; i < s->map.n_groups; i++)
		any |= s->map.groups[i]->pinned != 0;
	if (flag == any)
		return;
	s->row.flags ^= CAT_F_PIN_RANGES;
	s->row_changed = true;
	subject_find(s, "row", "correct the mark",
		     any ? "has pinned ranges, but is not marked so" :
			   "is marked as having pinned ranges, but has none");
}

/* Where the data that is newer on the SSD ends. */
static uint64_t dirty_end(const struct map *m)
{
	uint64_t end = 0;

	for (uint64_t at = 0; (at = map_next_dirty(m, at)) != UINT64_MAX;) {
		struct map_run run = map_run_at(m, at, UINT64_MAX & ~(GROUP_BYTES - 1));

		at = end = run.end;
	}
	return end;
}

static void check_size(struct subject *s)
{
	if (!(s->row.flags & CAT_F_ATTR_OWNED) || s->row.size_bytes <= INT64_MAX)
		return;
	uint64_t src = s->src_fd >= 0 ? (uint64_t)s->src_st.st_size : 0;

	subject_find(s, "row", "make it the larger of SRC's and what the SSD holds",
		     "has a size of %llu bytes, which no file has", ULL(s->row.size_bytes));
	s->row.size_bytes = max_u64(src, min_u64(dirty_end(&s->map), INT64_MAX));
	s->row_changed = true;
}

static void check_flags(struct subject *s)
{
	if (!(s->row.flags & CAT_F_CONFLICT))
		return;
	if (subject_dirty(s) || subject_any_doubt(s)) {
		subject_note(s, "conflict", NULL,
			     "SRC was changed while newer data waits on the SSD; both are kept");
		return;
	}
	s->row.flags &= ~CAT_F_CONFLICT;
	s->row_changed = true;
	subject_find(s, "row", "take the mark away",
		     "is marked as in conflict, but has nothing newer on the SSD");
}

/* ---- SRC's stamp (I9) --------------------------------------------------------------------- */
static const char *what_changed(const struct subject *s, const struct src_stamp *now,
				bool *ret_content)
{
	*ret_content = true;
	if (now->size != s->row.src_size_bytes)
		return "size";
	if (now->mtime_ns != s->row.src_mtime_ns)
		return "mtime";
	*ret_content = false;
	return now->ctime_ns != s->row.src_ctime_ns ? "ctime" : NULL;
}

static void check_stamp(struct subject *s)
{
	struct src_stamp now = subject_src_stamp(s);
	bool valid = s->row.src_mtime_ns || s->row.src_ctime_ns, content;

	/* Busy, or waiting to be cut: we changed SRC, or may have. */
	if (s->src_fd < 0 || !valid ||
	    s->row.flags & (CAT_F_SRC_BUSY | CAT_F_CONFLICT | CAT_F_TRUNCATE))
		return;
	const char *what = what_changed(s, &now, &content);

	if (!what)
		return;
	if (content && subject_dirty(s)) {
		s->row.flags |= CAT_F_CONFLICT;
		s->row_changed = true;
		subject_find(s, "conflict", "mark it as in conflict and keep both",
			     "SRC's %s was changed while newer data waits on the SSD", what);
	} else if (subject_any_doubt(s)) {
		subject_note(s, "src-changed", NULL,
			     "SRC's %s was changed since the last sync; the next mount decides",
			     what);
	} else {
		uint64_t bytes = subject_drop_clean(s);

		if (!bytes)
			return; /* nothing depends on it */
		subject_adopt_stamp(s);
		subject_note(s, "src-changed", "drop the SSD's clean copies",
			     "SRC's %s was changed since the last sync of %llu bytes", what,
			     ULL(bytes));
	}
}

/* ---- the object --------------------------------------------------------------------------- */
static uint64_t mask_behind(uint64_t base, uint64_t end)
{
	uint64_t first = end > base ? (end - base) / BLOCK_BYTES : 0;

	return first < BLOCKS_PER_EXTENT ? ~0ull << first : 0;
}

/* Blocks at or after `from` that are clean leave the map; the dirty ones are counted. */
static uint64_t drop_clean_from(struct subject *s, uint64_t from, bool doubtful_too,
				uint64_t *ret_dirty_bytes)
{
	uint64_t bytes = 0;

	*ret_dirty_bytes = 0;
	for (unsigned i = 0; i < s->map.n_groups; i++) {
		const struct map_group *g = s->map.groups[i];

		for (unsigned w = 0; w < BITMAP_WORDS; w++) {
			uint64_t behind = mask_behind(word_base(g->index, w), from);
			bool keep = subject_in_doubt(s, i, w) && !doubtful_too;
			uint64_t mask = keep ? 0 : clean_mask(g, w) & behind;

			*ret_dirty_bytes += mask_bytes(g->dirty[w] & behind);
			bytes += mask_bytes(mask);
			(void)subject_set(s, g->index, w, mask, BLOCK_ABSENT);
		}
	}
	return bytes;
}

void subject_check_presence(struct subject *s)
{
	bool missing = s->obj_fd < 0;
	/* A present block is whole in its object, which may end where the file does. */
	uint64_t have = missing ? 0 : (uint64_t)s->obj_st.st_size, dirty;
	uint64_t end = have >= subject_size(s) ? round_up_u64(have, BLOCK_BYTES)
					       : round_down_u64(have, BLOCK_BYTES);
	uint64_t clean = drop_clean_from(s, end, true, &dirty);

	if (clean)
		subject_find(s, missing ? "object-missing" : "object-short",
			     "forget these copies; SRC has the data",
			     missing ? "has no object, but %llu clean bytes in it" :
				       "has %llu clean bytes behind the end of its object",
			     ULL(clean));
	if (dirty && !check_journal_has_data(s->c, s->row.id))
		subject_left(s, "dirty-lost",
			     missing ? "the object is missing: %llu bytes newer than SRC are lost" :
				       "the object was cut: %llu bytes newer than SRC are lost",
			     ULL(dirty));
}

static bool all_zero(const char *buf, uint64_t mask)
{
	static const char zeros[BLOCK_BYTES];

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1 && memcmp(buf + b * BLOCK_BYTES, zeros, BLOCK_BYTES) != 0)
			return false;
	return true;
}

/* Dirty blocks of one extent which no reader can see: zeros go, the rest is saved first. */
static int drop_dirty_behind(struct subject *s, const struct map_group *g, unsigned w,
			     uint64_t mask, uint64_t *saved)
{
	uint64_t base = word_base(g->index, w), bad;

	check_read_blocks(s->obj_fd, s->c->obj_buf, base, mask, &bad);
	mask &= ~bad;
	if (!all_zero(s->c->obj_buf, mask)) {
		*saved += mask_bytes(mask);
		if (s->c->opt->repair) {
			int r = check_lost_save(s, s->c->obj_buf, base, mask);

			if (r < 0)
				return r;
		}
	}
	return subject_set(s, g->index, w, mask, BLOCK_ABSENT);
}

static int drop_all_dirty_behind(struct subject *s, uint64_t end, uint64_t *saved)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < s->map.n_groups; i++) {
		const struct map_group *g = s->map.groups[i];

		for (unsigned w = 0; r == 0 && w < BITMAP_WORDS; w++) {
			uint64_t mask = g->dirty[w] & mask_behind(word_base(g->index, w), end);

			if (mask)
				r = drop_dirty_behind(s, g, w, mask, saved);
		}
	}
	return r;
}

static int check_beyond_end(struct subject *s)
{
	uint64_t end = round_up_u64(min_u64(subject_size(s), INT64_MAX), BLOCK_BYTES);
	uint64_t dirty = 0, saved = 0, before = s->map.present_blocks;

	/* Without SRC the size may be unknown; without an object all of them are lost anyway. */
	if (s->obj_fd < 0 || (s->src_fd < 0 && !(s->row.flags & CAT_F_ATTR_OWNED)))
		return 0;
	(void)drop_clean_from(s, end, false, &dirty);
	int r = dirty ? drop_all_dirty_behind(s, end, &saved) : 0;

	if (before != s->map.present_blocks)
		subject_find(s, "beyond-end",
			     saved ? "save them in lost+found, then drop them" : "drop them",
			     "has %llu bytes on the SSD behind its end at %llu%s",
			     ULL((before - s->map.present_blocks) * BLOCK_BYTES),
			     ULL(subject_size(s)), saved ? ", not all of them zero" : "");
	if (r == 0 && map_next_dirty(&s->map, end) != UINT64_MAX)
		subject_left(s, "object-unreadable", "newer bytes behind the end cannot be read");
	return r;
}

/* ---- self-description --------------------------------------------------------------------- */
static void check_description(struct subject *s)
{
	struct description d = { .path = NULL };
	int r = s->obj_fd < 0 ? -EOPNOTSUPP : check_read_description(s->c, s->obj_fd, &d);
	bool same = r == 0 && src_key_equal(&d.key, &s->key);

	free(d.path);
	if (same || (r < 0 && r != -ENODATA && r != -EINVAL))
		return;
	s->describe = true;
	subject_find(s, "object-description", "write it anew",
		     "the self-description of the object is %s",
		     r == -ENODATA ? "missing" :
		     r < 0	   ? "not readable" :
				     "of another file");
}

/* ---- a file ------------------------------------------------------------------------------- */
static int check_content(struct subject *s)
{
	if (subject_any_doubt(s))
		subject_note(s, "in-doubt", NULL,
			     "some of it may have been overwritten when the last daemon ended; the "
			     "next mount settles that");
	subject_count_leaks(s);
	check_sums(s);
	check_pins(s);
	check_size(s);
	check_flags(s);
	check_stamp(s);
	subject_check_presence(s);
	int r = check_beyond_end(s);

	if (r == 0 && s->obj_fd >= 0 && s->src_fd >= 0)
		r = check_scrub(s, !s->c->opt->scrub);
	check_description(s);
	return r;
}

static int check_loaded(struct subject *s)
{
	subject_open_object(s);
	subject_open_src(s);
	int r = subject_find_doubts(s);

	if (r < 0)
		return r;
	if (s->src_error == -ESTALE)
		return give_up(s, "src-gone", "is gone from SRC");
	if (s->src_error < 0)
		subject_left(s, "src-unreadable", "SRC's file cannot be opened: %s",
			     strerror(-s->src_error));
	if (s->obj_error < 0 && s->obj_error != -ENOENT) {
		subject_left(s, "object-unreadable", "the object cannot be opened: %s",
			     strerror(-s->obj_error));
		return 0;
	}
	if (s->obj_fd >= 0 && pass_is_marked(s->c->l.dir_fd, s->row.id)) {
		subject_note(s, "passthrough", NULL,
			     "programs were writing to its object when the last daemon ended; the "
			     "next mount finds out what");
		return 0;
	}
	return check_content(s);
}

/* ---- a pinned directory ------------------------------------------------------------------- */
/* 0, -ESTALE, or another error. */
static int find_dir(struct subject *s)
{
	int fd = src_open(s->c->src, &s->key, s->row.path, O_PATH);
	const char *path = fd == -ESTALE ? finder_path(s->c, &s->key) : NULL;
	struct stat st;

	if (path)
		fd = src_open(s->c->src, &s->key, path, O_PATH);
	if (fd < 0)
		return fd;
	int r = fstat(fd, &st) < 0 ? neg_errno() : S_ISDIR(st.st_mode) ? 0 : -ESTALE;

	close(fd);
	return r;
}

static int check_dir(struct subject *s)
{
	int r = find_dir(s);

	if (s->map.n_groups) {
		subject_open_object(s);
		return give_up(s, "row", "is the row of a directory, but has blocks");
	}
	if (r == -ESTALE) {
		s->remove = true;
		subject_find(s, "src-gone", "remove the pin", "the pinned directory is gone");
	} else if (!(s->row.flags & CAT_F_PINNED)) {
		s->remove = true;
		subject_find(s, "row", "remove it", "is the row of a directory without a pin");
	}
	return 0;
}

int check_file(struct check *c, struct cat_file *row)
{
	struct subject s;

	subject_init(&s, c, row);
	c->result->files++;
	uint64_t before = c->done_bytes;
	int r = subject_load_map(&s, c->cat);
	uint64_t bytes = s.map.present_blocks * BLOCK_BYTES;

	if (r == 0)
		r = s.row.flags & CAT_F_DIR ? check_dir(&s) : check_loaded(&s);
	r = r < 0 ? check_fail(c, r, s.row.path ?: "a file without a path") : subject_conclude(&s);
	subject_release(&s);
	if (r == 0 && before + bytes > c->done_bytes)
		r = check_progress(c, before + bytes - c->done_bytes);
	return r;
}
