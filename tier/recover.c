// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a mount after a crash has to settle. Mounting itself only lists the files whose durable
 * state is dirty (they must be in memory, for their attributes); maps are settled when they are
 * loaded, by the first user or by recover_step() in the background; orphaned objects and leaked
 * space are swept in the background too.
 *
 * Settling a map (I6), for every group with an intent: an extent without dirty blocks and with a
 * valid checksum is clean if the object still has that content. Otherwise its clean blocks are
 * compared with SRC: what differs was being overwritten and is dirty (the object has the newest
 * data, as after any power cut some blocks old, some new). Files that carried
 * the busy mark lose their clean copies: SRC may differ, by our own hand.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/pass.h"

/* ---- settling a map ----------------------------------------------------------------------- */
/* What settling one map needs. */
struct settling {
	struct tfile *f;
	int obj_fd; /* borrowed */
	int src_fd; /* owned; opened when a checksum does not decide; < 0: error */
	struct stat obj;
	bool src_tried, dirtied;
	char *ours, *theirs; /* owned; one extent each */
};

/* The blocks of `mask` of one extent to their places in buf, runs of them at once: a map may have
 * many thousands of suspect extents, and the first user waits. Returns those that failed. */
static uint64_t read_blocks(int fd, char *buf, uint64_t base, uint64_t mask, int *ret_error)
{
	uint64_t failed = 0;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT;) {
		unsigned e = b;

		while (e < BLOCKS_PER_EXTENT && mask >> e & 1)
			e++;
		int r = e == b ? 0
			       : read_full(fd, buf + b * BLOCK_BYTES, (e - b) * BLOCK_BYTES,
					   base + b * BLOCK_BYTES);

		if (r < 0 && e - b > 1) { /* which of them? */
			for (unsigned i = b; i < e; i++)
				failed |= read_blocks(fd, buf, base, 1ull << i, ret_error);
		} else if (r < 0) {
			failed |= 1ull << b;
			*ret_error = r;
		}
		b = e > b ? e : b + 1;
	}
	return failed;
}

static int sum_extent(struct settling *s, const struct map_group *g, unsigned w, uint64_t *ret_sum)
{
	uint64_t base = g->index * GROUP_BYTES + w * EXTENT_BYTES;
	int r = 0;

	*ret_sum = 0;
	if (read_blocks(s->obj_fd, s->ours, base, g->present[w], &r))
		return r;
	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (g->present[w] >> b & 1)
			*ret_sum += block_sum(s->ours + b * BLOCK_BYTES, base / BLOCK_BYTES + b);
	return 0;
}

/* Give every present block of one extent that state. */
static void set_extent_locked(struct tfile *f, const struct map_group *g, unsigned w,
			      uint64_t mask, enum block_state state)
{
	uint64_t base = g->index * GROUP_BYTES + w * EXTENT_BYTES;

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1)
			(void)tfile_map_set_locked(f, base + b * BLOCK_BYTES,
						   base + (b + 1) * BLOCK_BYTES, state);
}

static uint64_t extent_end(const struct map_group *g, unsigned w)
{
	unsigned last = 63 - (unsigned)__builtin_clzll(g->present[w]);

	return g->index * GROUP_BYTES + w * EXTENT_BYTES + (last + 1) * BLOCK_BYTES;
}

static void set_extent(struct settling *s, const struct map_group *g, unsigned w, uint64_t mask,
		       enum block_state state)
{
	pthread_mutex_lock(&s->f->lock);
	set_extent_locked(s->f, g, w, mask, state);
	pthread_mutex_unlock(&s->f->lock);
}

/* Blocks of `mask` in which object and SRC differ; those that cannot be compared count as such. */
static uint64_t differing(struct settling *s, const struct map_group *g, unsigned w, uint64_t mask)
{
	uint64_t base = g->index * GROUP_BYTES + w * EXTENT_BYTES;
	int error = 0;

	if (!s->src_tried)
		s->src_fd = tfile_open_src(s->f, O_RDONLY | O_NONBLOCK | O_NOATIME);
	if (s->src_fd == -EPERM) /* not ours, and we are not root */
		s->src_fd = tfile_open_src(s->f, O_RDONLY | O_NONBLOCK);
	s->src_tried = true;
	if (s->src_fd < 0)
		return mask;
	uint64_t differ = read_blocks(s->obj_fd, s->ours, base, mask, &error) |
			  read_blocks(s->src_fd, s->theirs, base, mask, &error);

	for (unsigned b = 0; b < BLOCKS_PER_EXTENT; b++)
		if (mask >> b & 1 && memcmp(s->ours + b * BLOCK_BYTES, s->theirs + b * BLOCK_BYTES,
					    BLOCK_BYTES) != 0)
			differ |= 1ull << b;
	return differ;
}

/* It was written, and SRC has the same by now: the checksum is what is out of date. */
static void set_sum(struct tfile *f, uint64_t index, unsigned w, uint64_t sum)
{
	pthread_mutex_lock(&f->lock);
	struct map_group *g = map_find(&f->map, index);

	if (g) {
		g->sum[w] = sum;
		map_group_changed(&f->map, g);
	}
	pthread_mutex_unlock(&f->lock);
}

/* One extent of a group with an intent: which of its clean blocks are clean indeed? */
static void settle_extent(struct settling *s, const struct map_group *g, unsigned w)
{
	uint64_t clean = g->present[w] & ~g->dirty[w], sum = 0;
	bool exact = !g->dirty[w] && g->sum_valid >> w & 1;

	if (!clean)
		return;
	/* Durably present data that is not there was lost by the SSD, not overwritten. */
	if (!g->dirty[w] &&
	    extent_end(g, w) > round_up_u64((uint64_t)s->obj.st_size, BLOCK_BYTES)) {
		set_extent(s, g, w, clean, BLOCK_ABSENT);
		return;
	}
	int r = exact ? sum_extent(s, g, w, &sum) : 0;

	if (r < 0) /* I8: SRC has it */
		set_extent(s, g, w, clean, BLOCK_ABSENT);
	if (r < 0 || (exact && sum == g->sum[w]))
		return;
	clean = differing(s, g, w, clean);
	set_extent(s, g, w, clean, BLOCK_DIRTY);
	if (exact && !clean)
		set_sum(s->f, g->index, w, sum);
	crash_point(CP_SETTLE_EXTENT);
	s->dirtied |= clean != 0;
}

/* What was overwritten was written at the object's last change, but SRC may have been changed after
 * that (by a write that went past us, by chmod): times never go back. */
static void own_attributes(struct settling *s)
{
	struct tfile *f = s->f;
	struct stat st;
	bool known = s->src_fd >= 0 && fstat(s->src_fd, &st) == 0;

	pthread_mutex_lock(&f->lock);
	if (!f->attr_owned) {
		f->mtime = s->obj.st_mtim;
		if (known && timespec_ns(st.st_mtim) > timespec_ns(f->mtime))
			f->mtime = st.st_mtim;
		f->ctime = f->mtime;
		f->mtime_seq++;
		f->attr_owned = f->ctime_kept = true;
		/* Size: nothing says that it grew; SRC's is taken at first use. */
		f->size_known = false;
	}
	tfile_changed_locked(f);
	pthread_mutex_unlock(&f->lock);
}

static void settle_groups(struct settling *s)
{
	const struct map *m = &s->f->map;

	for (unsigned i = 0; i < m->n_groups; i++) {
		struct map_group *g = m->groups[i];

		for (unsigned w = 0; g->intent && w < BITMAP_WORDS; w++)
			if (g->present[w])
				settle_extent(s, g, w);
	}
	if (s->dirtied)
		own_attributes(s);
}

static int settle_intents(struct tfile *f, int fd)
{
	struct settling s = { .f = f, .obj_fd = fd, .src_fd = -1 };
	int r = fstat(fd, &s.obj) < 0 ? neg_errno() : 0;

	if (r < 0 || !map_has_intent(&f->map))
		return r;
	s.ours = malloc(EXTENT_BYTES);
	s.theirs = malloc(EXTENT_BYTES);
	if (s.ours && s.theirs)
		settle_groups(&s);
	else
		r = -ENOMEM;
	if (s.src_fd >= 0)
		close(s.src_fd);
	free(s.ours);
	free(s.theirs);
	return r;
}

/* Settled: what they protected is known now. */
static void drop_intents_locked(struct tfile *f)
{
	for (unsigned i = 0; i < f->map.n_groups; i++) {
		struct map_group *g = f->map.groups[i];

		if (g->intent) {
			g->intent = g->intent_durable = false;
			f->map.prunable = true;
			map_group_changed(&f->map, g);
		}
	}
}

static void drop_clean_locked(struct tfile *f)
{
	for (unsigned i = 0; i < f->map.n_groups; i++) {
		struct map_group *g = f->map.groups[i];

		for (unsigned w = 0; w < BITMAP_WORDS; w++)
			set_extent_locked(f, g, w, g->present[w] & ~g->dirty[w], BLOCK_ABSENT);
	}
}

/*
 * The end of the file moved on to SRC and the crash came before that was known here: SRC is longer.
 * In the block in which the file ended the object has zeros behind the old end, brought back by the
 * journal; what was appended there is in SRC only. Other bytes than zeros are as new as SRC's.
 */
static int join_end(struct tfile *f, int obj_fd)
{
	static const char zeros[BLOCK_BYTES];
	char block[BLOCK_BYTES];
	struct stat st;

	pthread_mutex_lock(&f->lock);
	bool moved = f->busy && f->attr_owned && !f->size_known;
	uint64_t from = f->size, end = round_up_u64(f->size, BLOCK_BYTES);

	moved = moved && from < end && map_state(&f->map, from) == BLOCK_DIRTY;
	pthread_mutex_unlock(&f->lock);
	_cleanup_close_ int fd = moved ? tfile_open_src(f, O_RDONLY | O_NONBLOCK) : -1;

	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size <= from)
		return 0;
	int r = read_full(obj_fd, block, end - from, from);

	if (r < 0 || memcmp(block, zeros, end - from) != 0)
		return r;
	r = read_full(fd, block, end - from, from);
	if (r == 0)
		r = write_full(obj_fd, block, end - from, from);
	pthread_mutex_lock(&f->lock);
	if (r == 0)
		r = tfile_written_locked(f, end - BLOCK_BYTES, end, BLOCK_DIRTY);
	pthread_mutex_unlock(&f->lock);
	return r;
}

static void object_missing(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	drop_clean_locked(f);
	bool lost = f->map.dirty_blocks > 0;

	f->lost = lost;
	stamps_distrust_locked(f);
	pthread_mutex_unlock(&f->lock);
	if (lost) {
		atomic_fetch_add(&f->v->lost_ranges, 1);
		volume_error(f->v, f, -ENOENT, "the SSD copy with newer data is missing");
	}
}

/*
 * Does SRC look as it did after the last change of the daemon that was killed? Then that is its
 * stamp, and nothing was changed below the clean copies. SRC need not be synced yet: the busy mark
 * stays until it is.
 */
static bool adopt_last_stamp(struct tfile *f)
{
	struct src_stamp last;
	struct stat st;

	pthread_mutex_lock(&f->lock);
	bool ask = f->v->unclean && f->map.present_blocks && !f->conflict && !f->truncate_pending;
	uint64_t token = f->src_seq;

	pthread_mutex_unlock(&f->lock);
	if (!ask || !stamps_find(f->v, f->id, &last) || tfile_stat_src(f, &st) < 0 ||
	    !src_has_stamp(&st, &last))
		return false;
	pthread_mutex_lock(&f->lock);
	bool alone = !f->src_inflight && token == f->src_seq;

	if (alone) {
		f->stamp = last;
		f->stamp_valid = true;
		f->stamp_stale = false;
		f->src_wseq += f->busy;
		tfile_changed_locked(f);
	}
	pthread_mutex_unlock(&f->lock);
	return alone;
}

/* The map was just read from the catalog; nobody else sees it yet. */
int recover_settle_map(struct tfile *f, int obj_fd)
{
	uint64_t before = f->map.present_blocks;
	bool known = adopt_last_stamp(f);
	int r = 0;

	if (f->map.present_blocks && obj_fd < 0) {
		object_missing(f);
		return 0;
	}
	if (obj_fd >= 0 && pass_recover(f, obj_fd))
		return 0;
	if (obj_fd >= 0 && f->v->unclean)
		r = settle_intents(f, obj_fd);
	if (r == 0 && obj_fd >= 0 && f->v->unclean)
		r = join_end(f, obj_fd);
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	drop_intents_locked(f);
	/* Where SRC may have been changed under it nobody can tell a good copy from a bad one. */
	if (f->busy && !known)
		drop_clean_locked(f);
	if (f->map.present_blocks != before)
		stamps_distrust_locked(f);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

/* ---- the end of the file ------------------------------------------------------------------ */
/*
 * The block in which the file ends may have more than the file: an append that was not committed
 * reached the disk, or a cut was committed and its zeros were not written. Not reached: whoever
 * makes the file longer zeroes it as well.
 */
void recover_tail(struct tfile *f)
{
	uint64_t size = tfile_size(f), base = round_down_u64(size, BLOCK_BYTES);
	struct range range;

	if (!range_trylock(&f->ranges, &range, base, base + BLOCK_BYTES, true))
		return; /* the next user does it */
	int r = zero_past_end(f, size, base + BLOCK_BYTES);

	crash_point(CP_SETTLE_TAIL);
	range_unlock(&f->ranges, &range);
	if (r < 0)
		volume_error(f->v, f, r, "cannot zero the end of the SSD copy");
	f->tail_unsure = r < 0;
}

/* ---- mount -------------------------------------------------------------------------------- */
/*
 * A cut that may not have reached SRC is done before anybody reads: what SRC has behind it, were it
 * written since, must not be seen first and then go. Where SRC cannot be written it stays pending.
 */
void redo_cut_at_mount(struct tfile *f)
{
	struct stat st;
	_cleanup_close_ int fd = tfile_open_src(f, O_RDWR | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	stamps_reshape_begin(f);
	int r = (uint64_t)st.st_size > f->pending_to ? ftruncate(fd, (off_t)f->pending_to) : 0;

	stamps_reshape_end(f);
	if (r < 0)
		return;
	pthread_mutex_lock(&f->lock);
	f->truncate_pending = false;
	f->cut_wseq = ++f->src_wseq;
	tfile_changed_locked(f);
	pthread_mutex_unlock(&f->lock);
	crash_point(CP_CUT_AT_MOUNT);
}

/* Into memory, and to the head of the write-back queue. */
static int keep_file(struct volume *v, const struct cat_file *row, uint64_t seen)
{
	struct tfile *f;
	int r = tfile_get_loaded(v, row, seen, &f);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (f->truncate_pending && !f->conflict)
		redo_cut_at_mount(f);
	file_list_add(v, &v->dirty, f, 0); /* overdue */
	tfile_put(f);
	return 0;
}

static int keep_files(struct volume *v, uint32_t flags)
{
	struct cat_file row;
	uint64_t id = 0;
	int r;

	for (;;) {
		uint64_t seen = volume_departures(v);

		r = flags ? catalog_next_file(v->cat, id, flags, &row)
			  : catalog_next_unsettled(v->cat, id, &row);
		if (r < 0)
			break;
		id = row.id;
		if (!(row.flags & CAT_F_DIR))
			r = keep_file(v, &row, seen);
		cat_file_release(&row);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

/* Has it groups that must be settled? */
static bool is_unsettled(struct volume *v, uint64_t id)
{
	struct cat_file row;
	int r = v->unclean ? catalog_next_unsettled(v->cat, id - 1, &row) : -ENOENT;
	bool yes = r == 0 && row.id == id;

	if (r == 0)
		cat_file_release(&row);
	return yes;
}

/* What is pinned counts once the map is in memory; settling takes reading, and a mount does not
 * wait for that. A file that cannot be loaded is logged, and no reason not to mount. */
static int load_pinned(struct volume *v, const struct cat_file *row, uint64_t seen)
{
	struct tfile *f;
	int r = tfile_get_loaded(v, row, seen, &f);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!is_unsettled(v, row->id))
		(void)tfile_load_map(f);
	tfile_put(f);
	return 0;
}

static int load_pins(struct volume *v)
{
	uint64_t seen = volume_departures(v);
	struct cat_file row;
	uint64_t id = 0;
	int r;

	while ((r = catalog_next_file(v->cat, id, CAT_F_DIR | CAT_F_PINNED | CAT_F_PIN_RANGES,
				      &row)) == 0) {
		id = row.id;
		if (row.flags & CAT_F_DIR) {
			struct src_key key;

			src_key_of_row(&row, &key);
			r = volume_remember_pinned_dir(v, &key);
		} else {
			r = load_pinned(v, &row, seen);
		}
		cat_file_release(&row);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

int recover_volume(struct volume *v)
{
	struct cat_totals t;
	int r = catalog_totals(v->cat, &t);

	if (r < 0)
		return r;
	atomic_store(&v->used_blocks, t.present_bytes / BLOCK_BYTES);
	atomic_store(&v->dirty_blocks, t.dirty_bytes / BLOCK_BYTES);
	atomic_store(&v->tracked, t.files);
	r = pass_mount(v);
	if (r == 0)
		r = keep_files(v, CAT_F_ATTR_OWNED | CAT_F_SRC_BUSY | CAT_F_TRUNCATE |
					  CAT_F_CONFLICT);
	if (r == 0)
		r = keep_files(v, 0);
	if (r == 0)
		r = load_pins(v);
	atomic_store(&v->settling, v->unclean);
	atomic_store(&v->sweeping, v->unclean);
	return r;
}

/* ---- background: settle and sweep --------------------------------------------------------- */
static int settle_next(struct volume *v)
{
	uint64_t seen = volume_departures(v);
	struct cat_file row;
	int r = catalog_next_unsettled(v->cat, v->settle_cursor, &row);

	if (r == -ENOENT) {
		atomic_store(&v->settling, false);
		return 1;
	}
	if (r < 0)
		return r;
	struct tfile *f;

	r = tfile_get_loaded(v, &row, seen, &f);
	v->settle_cursor = row.id;
	cat_file_release(&row);
	/* Errors are logged and counted there; after a clean end nobody would settle it. */
	if (r == 0)
		r = tfile_load_map(f);
	if (r < 0 && r != -ENOENT)
		v->unsettled = true;
	if (r == 0 && f->tail_unsure && tfile_use(f, false) == 0)
		tfile_unuse(f);
	tfile_put(f);
	return 1;
}

/*
 * May the object occupy more than the catalog says? By its blocks (its own xattr may be one of
 * them), unless all of it is present. Says no of all but a few, so a million maps need not be
 * loaded.
 */
static bool may_leak(struct volume *v, uint64_t id, const struct stat *st)
{
	_cleanup_free_ struct cat_group *g = malloc(sizeof(*g));
	uint64_t present = 0, from = 0;

	if (!g)
		return true;
	while (catalog_next_group(v->cat, id, from, g) == 0) {
		for (unsigned i = 0; i < CAT_BITMAP_BYTES; i++)
			present += (unsigned)__builtin_popcount(g->present[i]);
		from = g->index + 1;
	}
	return (uint64_t)st->st_blocks * 512 > present * BLOCK_BYTES &&
	       present * BLOCK_BYTES < round_up_u64((uint64_t)st->st_size, BLOCK_BYTES);
}

/* Whatever of the object is absent is released; the map says what. A map that is damaged was logged
 * and counted, and there is nothing to come back for. */
static int release_absent(struct tfile *f)
{
	int r = tfile_load_map(f);

	if (r < 0)
		return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
	pthread_mutex_lock(&f->lock);
	if (!f->dead && f->pass == PASS_NONE) { /* else there is nothing: P1 */
		f->garbage_lo = 0;
		f->garbage_hi = UINT64_MAX;
		file_list_add(f->v, &f->v->garbage, f, 0);
	}
	pthread_mutex_unlock(&f->lock);
	return 0;
}

/*
 * Of a file in memory the catalog proves nothing, not even that there is a row: all of it may have
 * been evicted since, and some of it promoted again. -EAGAIN: it came or went meanwhile; unless
 * sure: then the map of a file that has a row decides.
 */
static int sweep_object(struct volume *v, int dir_fd, const char *name, uint64_t id, bool sure)
{
	uint64_t seen = volume_departures(v);
	struct cat_file row;
	struct stat st;
	int r = catalog_find_id(v->cat, id, &row);
	bool known = r == 0;

	if (r < 0 && r != -ENOENT)
		return r;
	bool leaks = known && (sure || (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
					may_leak(v, id, &st)));
	struct tfile *f = tfile_of_id(v, id);

	if (!f && !leaks && seen != volume_departures(v)) {
		r = -EAGAIN;
	} else if (!f && !known) {
		(void)object_remove(v, id);
		crash_point(CP_SWEEP_ORPHAN);
		r = 0;
	} else {
		if (!f && leaks)
			(void)tfile_get_loaded(v, &row, seen, &f);
		r = f ? release_absent(f) : 0;
		tfile_put(f);
	}
	if (known)
		cat_file_release(&row);
	return r;
}

#define SWEEP_LOOKS 3u /* a large file takes longer than files take to come and go */

static int sweep_name(struct volume *v, int dir_fd, const char *name)
{
	uint64_t id = object_id_of_name(name);
	int r = 0;

	if (!id || id >= v->first_new_id)
		return 0;
	for (unsigned n = 0; n == 0 || r == -EAGAIN; n++)
		r = sweep_object(v, dir_fd, name, id, n >= SWEEP_LOOKS);
	return r;
}

static int sweep_dir(struct volume *v, DIR *dir)
{
	struct dirent *e;
	int r = 0;

	while (r == 0 && (errno = 0, e = readdir(dir)))
		r = sweep_name(v, dirfd(dir), e->d_name);
	return r == 0 && errno ? neg_errno() : r;
}

static int sweep_next_dir(struct volume *v)
{
	char name[8];
	int r = 0;

	object_dir_name((unsigned)v->sweep_dir, name);
	int fd = openat(v->objects_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir) {
		r = sweep_dir(v, dir);
		closedir(dir);
	} else if (errno != ENOENT) { /* they are made when one is needed */
		r = neg_errno();
		if (fd >= 0)
			close(fd);
	}
	if (r < 0)
		return r;
	atomic_store(&v->sweeping, ++v->sweep_dir < OBJECT_DIRS);
	return 1;
}

/* ---- background: files that are gone from SRC ---------------------------------------------- */
#define GONE_ROWS_PER_STEP 256u
#define GONE_STEP_NS (SECOND_NS / 200)
/* Each row costs a look at SRC's inode: of the slow disk's time this gets a quarter. */
#define GONE_PAUSE 3
#define RETRY_NS (30 * SECOND_NS)

/* Unlinked shortly before the crash, or while it was open. Only a handle tells that for certain;
 * and not of a file that was unlinked since and is still open. */
static int look_for_row(struct volume *v, const struct cat_file *row, uint64_t seen)
{
	struct src_key key;

	src_key_of_row(row, &key);
	if (!src_tells_gone(v->src, &key))
		return 0;
	int fd = src_open(v->src, &key, NULL, O_PATH);

	if (fd >= 0)
		close(fd);
	if (fd != -ESTALE)
		return 0;
	if (row->flags & CAT_F_DIR) {
		(void)volume_unpin_dir(v, &key); /* logged there; check removes it as well */
		return 0;
	}
	struct tfile *f;
	int r = tfile_get_loaded(v, row, seen, &f);

	/* Row and object go with the next burial, which syncs SRC before if there is dirty data: a
	 * power cut may bring the name back. */
	if (f && !tfile_in_use(f)) {
		gone_from_src(f);
		crash_point(CP_SWEEP_GONE);
	}
	tfile_put(f);
	return r == -ENOENT ? 0 : r;
}

static int look_for_rows(struct volume *v, int64_t now_ns)
{
	uint64_t id = atomic_load(&v->gone_cursor);
	int64_t spent_ns = 0;
	struct cat_file row;
	int r = 0;

	for (unsigned i = 0; i < GONE_ROWS_PER_STEP && spent_ns < GONE_STEP_NS; i++) {
		uint64_t seen = volume_departures(v);

		r = catalog_next_file(v->cat, id, 0, &row);
		if (r < 0)
			break;
		r = look_for_row(v, &row, seen);
		if (r == 0)
			id = row.id;
		cat_file_release(&row);
		if (r < 0)
			break;
		spent_ns = volume_now(v) - now_ns;
	}
	if (spent_ns >= GONE_STEP_NS)
		v->gone_at_ns = now_ns + (1 + GONE_PAUSE) * spent_ns;
	atomic_store(&v->gone_cursor, r == -ENOENT ? GONE_NONE : id);
	return r == -ENOENT ? 0 : r < 0 ? r : spent_ns < GONE_STEP_NS;
}

static int recover_some(struct volume *v, int64_t now_ns)
{
	if (atomic_load(&v->settling))
		return settle_next(v);
	if (atomic_load(&v->sweeping))
		return sweep_next_dir(v);
	return look_for_rows(v, now_ns);
}

int recover_step(struct volume *v, int64_t now_ns)
{
	if (!recover_pending(v) || now_ns < v->gone_at_ns)
		return 0;
	int r = recover_some(v, now_ns);

	/* It is not done then, and the volume not clean. */
	if (r < 0) {
		volume_error(v, NULL, r, catalog_error(v->cat));
		v->gone_at_ns = now_ns + RETRY_NS;
	}
	return r;
}

bool recover_pending(const struct volume *v)
{
	return atomic_load(&v->settling) || atomic_load(&v->sweeping) ||
	       atomic_load(&v->gone_cursor) != GONE_NONE;
}
