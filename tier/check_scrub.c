// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The scrub: clean extents are read from the object and from SRC. The checksum, where there is one,
 * says what was there when both were the same, and so which side to believe.
 */
#include "tier/check_internal.h"

struct scrub {
	struct subject *s;
	/* Bytes by what is wrong with them. */
	uint64_t corrupt, differs, src_differs, stale, obj_bad, src_bad, both_bad;
	unsigned wrong_sums;
	uint64_t first;	  /* offset of the first one; UINT64_MAX = none */
	bool stamp_known; /* SRC's stamp says that it was not changed */
};

struct extent {
	struct map_group *g;
	unsigned w;
	uint64_t mask;			 /* clean blocks */
	uint64_t obj_bad, src_bad, diff; /* of them: unreadable, unreadable, different */
	enum { SUM_NONE, SUM_GOOD, SUM_BAD } sum;
	uint64_t sum_now;
};

/* ---- looking ------------------------------------------------------------------------------ */
static void look(struct scrub *z, struct extent *x)
{
	struct subject *s = z->s;
	struct check *c = s->c;
	uint64_t base = word_base(x->g->index, x->w);

	check_read_blocks(s->obj_fd, c->obj_buf, base, x->mask, &x->obj_bad);
	check_read_blocks(s->src_fd, c->src_buf, base, x->mask, &x->src_bad);
	x->diff = check_different(c->obj_buf, c->src_buf, x->mask & ~x->obj_bad & ~x->src_bad);
	x->sum = SUM_NONE;
	if (x->g->sum_valid >> x->w & 1 && !x->g->dirty[x->w] && !x->obj_bad) {
		x->sum_now = check_sum(c->obj_buf, base, x->mask);
		x->sum = x->sum_now == x->g->sum[x->w] ? SUM_GOOD : SUM_BAD;
	}
	c->result->checked_bytes += mask_bytes(x->mask);
}

/* ---- judging ------------------------------------------------------------------------------ */
static int save(struct subject *s, const struct extent *x, uint64_t mask)
{
	if (!s->c->opt->repair)
		return 0;
	return check_lost_save(s, s->c->obj_buf, word_base(x->g->index, x->w), mask);
}

/* Newer than SRC from now on, as far as the engine is concerned. */
static int make_dirty(struct subject *s, const struct extent *x, uint64_t mask)
{
	subject_own_attributes(s, subject_size(s), timespec_ns(s->src_st.st_mtim));
	return subject_set(s, x->g->index, x->w, mask, BLOCK_DIRTY);
}

/* Both sides could be read, and are not the same. */
static int settle_difference(struct scrub *z, const struct extent *x)
{
	struct subject *s = z->s;
	uint64_t bytes = mask_bytes(x->diff);

	if (!z->stamp_known) {
		z->stale += bytes;
	} else if (x->sum == SUM_GOOD) {
		z->src_differs += bytes;
		s->row.flags |= CAT_F_CONFLICT;
		s->row_changed = true;
		return make_dirty(s, x, x->diff);
	} else if (x->sum == SUM_BAD) {
		z->corrupt += bytes;
	} else {
		int r = save(s, x, x->diff);

		if (r < 0)
			return r;
		z->differs += bytes;
	}
	return subject_set(s, x->g->index, x->w, x->diff, BLOCK_ABSENT);
}

static int settle_unreadable(struct scrub *z, const struct extent *x)
{
	uint64_t both = x->obj_bad & x->src_bad, src = x->src_bad & ~both, obj = x->obj_bad & ~both;

	if (x->sum == SUM_BAD) { /* what could be read instead of SRC is not right either */
		both |= src;
		src = 0;
	}
	z->both_bad += mask_bytes(both);
	z->obj_bad += mask_bytes(obj);
	z->src_bad += mask_bytes(src);
	int r = subject_set(z->s, x->g->index, x->w, obj, BLOCK_ABSENT);

	if (r == 0 && src && !z->s->c->src->read_only)
		r = make_dirty(z->s, x, src);
	return r;
}

static int judge(struct scrub *z, const struct extent *x)
{
	int r = 0;

	if (x->sum == SUM_BAD && !x->diff && !x->src_bad) {
		x->g->sum[x->w] = x->sum_now;
		map_group_changed(&z->s->map, x->g);
		z->wrong_sums++;
	}
	if (x->diff)
		r = settle_difference(z, x);
	if (r == 0 && (x->obj_bad || x->src_bad))
		r = settle_unreadable(z, x);
	if (x->diff || x->obj_bad || x->src_bad || x->sum == SUM_BAD)
		z->first = min_u64(z->first, word_base(x->g->index, x->w));
	return r;
}

/* ---- telling ------------------------------------------------------------------------------ */
#define ULL(n) ((unsigned long long)(n))

static void report_differences(const struct scrub *z)
{
	struct subject *s = z->s;

	if (z->corrupt)
		subject_find(s, "object-corrupt", "drop them; SRC has the data",
			     "%llu clean bytes on the SSD do not match their checksum nor SRC, "
			     "from offset %llu on",
			     ULL(z->corrupt), ULL(z->first));
	if (z->differs)
		subject_find(s, "object-differs", "save them in lost+found, then drop them",
			     "%llu clean bytes on the SSD differ from SRC and have no checksum, "
			     "from offset %llu on",
			     ULL(z->differs), ULL(z->first));
	if (z->src_differs)
		subject_find(s, "src-differs", "mark the file as in conflict and keep both",
			     "%llu bytes in SRC are not what was there at the last sync, though "
			     "its stamp is the same; the SSD has that, from offset %llu on",
			     ULL(z->src_differs), ULL(z->first));
	if (z->stale)
		subject_find(s, "object-differs", "drop them; SRC has the data",
			     "%llu clean bytes on the SSD differ from SRC, which may have been "
			     "changed, from offset %llu on",
			     ULL(z->stale), ULL(z->first));
	if (z->wrong_sums)
		subject_find(s, "checksum-wrong", "compute them anew",
			     "the checksums of %u extents are wrong; SSD and SRC are the same",
			     z->wrong_sums);
}

static void report_unreadable(const struct scrub *z)
{
	struct subject *s = z->s;

	if (z->obj_bad)
		subject_find(s, "object-unreadable", "drop them; SRC has the data",
			     "%llu clean bytes on the SSD cannot be read, from offset %llu on",
			     ULL(z->obj_bad), ULL(z->first));
	if (z->src_bad && s->c->src->read_only)
		subject_left(s, "src-unreadable",
			     "%llu bytes of SRC cannot be read and SRC is read-only; the SSD has "
			     "them, from offset %llu on",
			     ULL(z->src_bad), ULL(z->first));
	else if (z->src_bad)
		subject_find(s, "src-unreadable", "mark them dirty, so that they are written back",
			     "%llu bytes of SRC cannot be read; the SSD has them, from offset "
			     "%llu on",
			     ULL(z->src_bad), ULL(z->first));
	if (z->both_bad)
		subject_left(s, "unreadable-both",
			     "%llu bytes cannot be read from SRC, and the SSD's copy of them is "
			     "not good, from offset %llu on",
			     ULL(z->both_bad), ULL(z->first));
}

/* ---- a file ------------------------------------------------------------------------------- */
static int scrub_extent(struct scrub *z, struct map_group *g, unsigned w, bool holes_only)
{
	struct extent x = { .g = g, .w = w, .mask = clean_mask(g, w) };
	struct subject *s = z->s;

	if (!x.mask ||
	    (holes_only && !(x.mask & ~check_data_mask(s->obj_fd, word_base(g->index, w)))))
		return 0;
	look(z, &x);
	int r = judge(z, &x);

	return r < 0 ? r : check_progress(s->c, mask_bytes(x.mask));
}

int check_scrub(struct subject *s, bool holes_only)
{
	struct scrub z = { .s = s,
			   .first = UINT64_MAX,
			   .stamp_known = s->row.src_mtime_ns || s->row.src_ctime_ns };
	int r = 0;

	/* SRC may be changed under its clean copies: the next mount drops them anyway. */
	if (s->row.flags & (CAT_F_SRC_BUSY | CAT_F_TRUNCATE))
		return 0;
	for (unsigned i = 0; r == 0 && i < s->map.n_groups; i++) {
		struct map_group *g = s->map.groups[i];

		for (unsigned w = 0; r == 0 && w < BITMAP_WORDS; w++)
			if (!subject_in_doubt(s, i, w))
				r = scrub_extent(&z, g, w, holes_only);
	}
	report_differences(&z);
	report_unreadable(&z);
	return r;
}
