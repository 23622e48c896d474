// SPDX-License-Identifier: GPL-2.0-or-later
/* One file under check: its row and map, its two sides, what was found, how that is repaired. */
#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/check_internal.h"

/* ---- life --------------------------------------------------------------------------------- */
void subject_init(struct subject *s, struct check *c, struct cat_file *row)
{
	*s = (struct subject){ .c = c, .row = *row, .src_fd = -1, .obj_fd = -1, .saved_fd = -1 };
	row->path = NULL;
	s->key.len = s->row.key_len;
	memcpy(s->key.data, s->row.key, s->row.key_len);
	map_init(&s->map);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void subject_release(struct subject *s)
{
	for (unsigned i = 0; i < s->n_found; i++)
		free(s->found[i].detail);
	map_release(&s->map);
	free(s->doubt);
	cat_file_release(&s->row);
	close_fd(&s->src_fd);
	close_fd(&s->obj_fd);
	close_fd(&s->saved_fd);
}

/* ---- findings ----------------------------------------------------------------------------- */
__attribute__((format(printf, 3, 0))) static void
add_found(struct subject *s, struct pending_finding p, const char *fmt, va_list ap)
{
	if (vasprintf(&p.detail, fmt, ap) < 0)
		p.detail = NULL;
	assert(s->n_found < FINDINGS_PER_FILE_MAX);
	s->found[s->n_found++] = p;
}

void subject_find(struct subject *s, const char *kind, const char *action, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_found(s, (struct pending_finding){ .kind = kind, .action = action }, fmt, ap);
	va_end(ap);
}

void subject_note(struct subject *s, const char *kind, const char *action, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_found(s, (struct pending_finding){ .kind = kind, .action = action, .note = true }, fmt,
		  ap);
	va_end(ap);
}

void subject_left(struct subject *s, const char *kind, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_found(s, (struct pending_finding){ .kind = kind, .left = true }, fmt, ap);
	va_end(ap);
}

static enum check_outcome outcome_of(const struct subject *s, const struct pending_finding *p,
				     bool repaired)
{
	if (p->left)
		return CHECK_LEFT;
	if (!p->action)
		return CHECK_NOTED;
	if (!s->c->opt->repair)
		return CHECK_WOULD;
	return repaired ? CHECK_DONE : CHECK_LEFT;
}

void subject_emit(struct subject *s, bool repaired)
{
	char object[OBJECT_PATH_MAX];

	check_object_path(s->row.id, object);
	for (unsigned i = 0; i < s->n_found; i++) {
		const struct pending_finding *p = &s->found[i];
		struct check_finding f = { .kind = p->kind,
					   .path = s->row.path,
					   .object = object,
					   .detail = p->detail ?: "",
					   .action = p->action,
					   .note = p->note,
					   .outcome = outcome_of(s, p, repaired) };

		check_emit(s->c, &f);
	}
}

/* ---- its parts ---------------------------------------------------------------------------- */
int subject_load_map(struct subject *s, struct catalog *cat)
{
	struct cat_group g;
	uint64_t from = 0;
	int r;

	while ((r = catalog_next_group(cat, s->row.id, from, &g)) == 0) {
		r = map_load(&s->map, &g);
		if (r < 0)
			return r;
		from = g.index + 1;
	}
	return r == -ENOENT ? 0 : r;
}

void subject_open_object(struct subject *s)
{
	int fd = check_open_object(s->c, s->row.id, &s->obj_st);

	s->obj_fd = fd < 0 ? -1 : fd;
	s->obj_error = fd < 0 ? fd : 0;
}

/* Without a trace in SRC's access times where we may. */
static int open_key(struct subject *s, const char *path)
{
	int flags = O_RDONLY | O_NONBLOCK;
	int fd = src_open(s->c->src, &s->key, path, flags | O_NOATIME);

	return fd == -EPERM ? src_open(s->c->src, &s->key, path, flags) : fd;
}

/* A handle that was damaged may lead to another file. */
static int verify_src(struct subject *s, int fd)
{
	struct src_key found;
	int r = src_key_of_fd(s->c->src, fd, &found);

	if (r < 0)
		return r;
	if (fstat(fd, &s->src_st) < 0)
		return neg_errno();
	if (!src_key_equal(&found, &s->key) || !S_ISREG(s->src_st.st_mode) ||
	    s->src_st.st_nlink == 0)
		return -ESTALE;
	return 0;
}

static void adopt_path(struct subject *s, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return;
	subject_note(s, "moved", "update its path", "is now %s", path);
	free(s->row.path);
	s->row.path = copy;
	s->row_changed = true;
}

void subject_open_src(struct subject *s)
{
	int fd = open_key(s, s->row.path);
	const char *path = fd == -ESTALE ? finder_path(s->c, &s->key) : NULL;

	if (path) {
		fd = open_key(s, path);
		if (fd >= 0)
			adopt_path(s, path);
	}
	s->src_error = fd < 0 ? fd : verify_src(s, fd);
	if (fd >= 0 && s->src_error < 0)
		close(fd);
	if (s->src_error < 0)
		return;
	s->src_fd = fd;
	if (s->c->opt->scrub)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* ---- what is known of it ------------------------------------------------------------------ */
struct src_stamp subject_src_stamp(const struct subject *s)
{
	return (struct src_stamp){ .size = (uint64_t)s->src_st.st_size,
				   .mtime_ns = timespec_ns(s->src_st.st_mtim),
				   .ctime_ns = timespec_ns(s->src_st.st_ctim) };
}

void subject_adopt_stamp(struct subject *s)
{
	struct src_stamp now = subject_src_stamp(s);

	s->row.src_size_bytes = now.size;
	s->row.src_mtime_ns = now.mtime_ns;
	s->row.src_ctime_ns = now.ctime_ns;
	s->row_changed = true;
}

void subject_own_attributes(struct subject *s, uint64_t size, int64_t mtime_ns)
{
	if (s->row.flags & CAT_F_ATTR_OWNED)
		return;
	s->row.flags |= CAT_F_ATTR_OWNED;
	s->row.size_bytes = size;
	s->row.mtime_ns = mtime_ns;
	s->row_changed = true;
}

uint64_t subject_size(const struct subject *s)
{
	uint64_t src = s->src_fd >= 0 ? (uint64_t)s->src_st.st_size : s->row.src_size_bytes;

	if (s->row.flags & CAT_F_TRUNCATE) /* src_size is what SRC has to be cut to */
		src = min_u64(src, s->row.src_size_bytes);
	if (!(s->row.flags & CAT_F_ATTR_OWNED))
		return src;
	/* Busy: a write that went past the SSD may have made SRC longer. */
	return s->row.flags & CAT_F_SRC_BUSY ? max_u64(src, s->row.size_bytes) : s->row.size_bytes;
}

bool subject_dirty(const struct subject *s)
{
	return s->map.dirty_blocks || s->row.flags & (CAT_F_ATTR_OWNED | CAT_F_TRUNCATE);
}

/* ---- what is in doubt --------------------------------------------------------------------- */
static bool extent_is_proven(struct subject *s, const struct map_group *g, unsigned w)
{
	uint64_t base = word_base(g->index, w), mask = clean_mask(g, w), bad;
	char *obj = s->c->obj_buf, *src = s->c->src_buf;

	check_read_blocks(s->obj_fd, obj, base, mask, &bad);
	if (bad)
		return false;
	if (g->sum_valid >> w & 1 && !g->dirty[w] && check_sum(obj, base, mask) == g->sum[w])
		return true;
	if (s->src_fd < 0)
		return false;
	check_read_blocks(s->src_fd, src, base, mask, &bad);
	return !bad && !check_different(obj, src, mask);
}

int subject_find_doubts(struct subject *s)
{
	s->doubt = calloc(s->map.n_groups + 1, sizeof(*s->doubt));
	if (!s->doubt)
		return -ENOMEM;
	for (unsigned i = 0; i < s->map.n_groups && s->obj_fd >= 0 && s->c->unclean; i++) {
		const struct map_group *g = s->map.groups[i];

		for (unsigned w = 0; w < BITMAP_WORDS && g->intent; w++)
			if (clean_mask(g, w) && !extent_is_proven(s, g, w))
				s->doubt[i] |= 1ull << w;
	}
	return 0;
}

bool subject_in_doubt(const struct subject *s, unsigned i, unsigned w)
{
	return s->doubt && s->doubt[i] >> w & 1;
}

bool subject_any_doubt(const struct subject *s)
{
	for (unsigned i = 0; s->doubt && i < s->map.n_groups; i++)
		if (s->doubt[i])
			return true;
	return false;
}

/* ---- changing it -------------------------------------------------------------------------- */
int subject_set(struct subject *s, uint64_t index, unsigned w, uint64_t mask,
		enum block_state state)
{
	uint64_t base = word_base(index, w);
	int r = 0;

	for (unsigned b = 0; r == 0 && b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		if (e > b)
			r = map_set(&s->map, base + b * BLOCK_BYTES, base + e * BLOCK_BYTES, state);
		b = e > b ? e : b + 1;
	}
	return r;
}

uint64_t subject_drop_clean(struct subject *s)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < s->map.n_groups; i++) {
		const struct map_group *g = s->map.groups[i];

		for (unsigned w = 0; w < BITMAP_WORDS; w++) {
			uint64_t mask = subject_in_doubt(s, i, w) ? 0 : clean_mask(g, w);

			bytes += mask_bytes(mask);
			(void)subject_set(s, g->index, w, mask, BLOCK_ABSENT);
		}
	}
	return bytes;
}

/* ---- storing it --------------------------------------------------------------------------- */
bool subject_changed(const struct subject *s)
{
	bool changed = s->row_changed || s->remove;

	for (unsigned i = 0; i < s->map.n_groups && !changed; i++)
		changed = s->map.groups[i]->seq != s->map.groups[i]->committed_seq;
	return changed;
}

bool subject_wants_row(const struct subject *s)
{
	return !s->remove &&
	       (s->map.present_blocks || subject_dirty(s) || s->row.flags & CAT_F_CONFLICT ||
		s->row.flags & (CAT_F_PINNED | CAT_F_PIN_RANGES));
}

int subject_store(struct subject *s, struct catalog *cat)
{
	struct cat_group g;

	if (!subject_wants_row(s))
		return catalog_delete_file(cat, s->row.id);
	int r = catalog_put_file(cat, &s->row);

	for (unsigned i = 0; r == 0 && i < s->map.n_groups; i++) {
		if (s->map.groups[i]->seq == s->map.groups[i]->committed_seq)
			continue;
		map_group_store(s->map.groups[i], &g);
		r = catalog_put_group(cat, s->row.id, &g);
	}
	return r;
}

static int commit(struct subject *s)
{
	struct catalog *cat = s->c->cat;
	int r = catalog_begin(cat);

	if (r < 0)
		return r;
	r = subject_store(s, cat);
	if (r < 0) {
		catalog_rollback(cat);
		return r;
	}
	return catalog_commit(cat);
}

static int repair(struct subject *s)
{
	bool changed = subject_changed(s);
	int r = check_lost_sync(s);

	if (r == 0 && changed)
		r = commit(s);
	if (r == 0 && (changed || s->leaked_bytes))
		r = subject_release_space(s);
	if (r == 0 && s->describe && subject_wants_row(s))
		r = check_write_description(s->c, s->obj_fd, &s->key, s->row.path);
	return r;
}

int subject_conclude(struct subject *s)
{
	int r = s->c->opt->repair ? repair(s) : 0;

	subject_emit(s, r == 0);
	return r < 0 ? check_fail(s->c, r, s->row.path ?: "a file without a path") : 0;
}
