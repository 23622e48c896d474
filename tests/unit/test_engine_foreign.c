// SPDX-License-Identifier: GPL-2.0-or-later
/* Changes of SRC behind our back, remounts, unlinked and lost files: see test_engine_faults.c. */
#include "tests/unit/engine_fixture.h"

/* ---- foreign changes ---------------------------------------------------------------------- */
static void chmod_through_mount(struct tfile *f, mode_t mode)
{
	CHECK_EQ(tfile_change_begin(f), 0);
	CHECK_EQ(chmod(src_file, mode), 0);
	tfile_change_end(f);
}

static void change_while_unmounted_is_seen(void)
{
	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		chmod_through_mount(f, 0600);
		unuse(f);
		close_volume();
	}
	usleep(20000);
	put_src(src_file, 'Z', 128 << 10, 4096);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 128 << 10), 'Z');
		unuse(f);
		close_volume();
	}
	end();
}

/* A closed volume that has all of the file. */
static void begin_promoted(void)
{
	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		unuse(f);
		close_volume();
	}
}

/* I9. The first thing that happens to the file is a change of ours, before its map is read. */
static void change_while_unmounted_is_seen_before_ours(void)
{
	begin_promoted();
	usleep(20000);
	put_src(src_file, 'Z', 128 << 10, 4096);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		chmod_through_mount(f, 0600);
		CHECK_EQ(tfile_use(f, true), 0);
		CHECK_EQ(byte_at(f, 128 << 10), 'Z');
		unuse(f);
		close_volume();
	}
	end();
}

/* chmod of a file that nobody has used yet: what the SSD has of it stays. */
static void own_change_before_the_map_is_read_drops_nothing(void)
{
	begin_promoted();
	if (open_volume()) {
		struct tfile *f = get(src_file);

		chmod_through_mount(f, 0600);
		CHECK_EQ(tfile_use(f, true), 0);
		CHECK_EQ(f->map.present_blocks, 64);
		unuse(f);
		close_volume();
	}
	end();
}

static void dirty_change_while_unmounted_is_a_conflict(void)
{
	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 4096);
		CHECK_EQ(tfile_fsync(f, false), 0);
		chmod_through_mount(f, 0600);
		unuse(f);
		close_volume(); /* unmount without flush */
	}
	usleep(20000);
	put_src(src_file, 'Z', 0, 4096);
	if (open_volume()) {
		struct tfile *f = use();

		(void)flush(f, false);
		CHECK_EQ(v->conflicts, 1);
		CHECK_EQ(src_byte(0), 'Z'); /* not overwritten silently */
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void own_change_does_not_hide_a_foreign_one(void)
{
	struct stat st;

	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		usleep(20000);
		put_src(src_file, 'Z', 128 << 10, 4096);
		chmod_through_mount(f, 0600);
		uint64_t token = tfile_stat_begin(f);

		CHECK_EQ(stat(src_file, &st), 0);
		(void)tfile_stat_end(f, token, &st);
		CHECK_EQ(byte_at(f, 128 << 10), 'Z');
		unuse(f);
		close_volume();
	}
	end();
}

static void append_to_src(void *ctx, const struct src_key *key)
{
	(void)ctx, (void)key;
	put_src(src_file, 'Z', 256 << 10, 4096);
}

/* A write-back looks at SRC twice; the second look is the one that sees it. I9 */
static void change_between_two_looks_is_not_written_over(void)
{
	struct volume_env noisy = env;
	char error[256];

	begin(256 << 10);
	noisy.invalidate = append_to_src;
	CHECK_EQ(src_init(&src, src_dir), 0);
	if (CHECK_EQ(volume_open(&src, ssd_dir, &opt, &noisy, &v, error, sizeof(error)), 0)) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(tfile_fsync(f, false), 0);
		CHECK_EQ(chmod(src_file, 0600), 0); /* clean copies go, the kernel is told */
		CHECK_EQ(flush(f, false), -EBUSY);
		CHECK_EQ(v->conflicts, 1);
		CHECK_EQ(src_byte(0), 'A');
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void forced_flush_leaves_one_version(void)
{
	struct stat st;

	begin(256 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 256 << 10);
		write_at(f, 'B', 0, 4096);
		usleep(20000);
		put_src(src_file, 'Z', 128 << 10, 4096);
		put_src(src_file, 'Z', 256 << 10, 4096); /* longer */
		CHECK_EQ(flush(f, false), -EBUSY);
		CHECK_EQ(flush(f, true), 0);
		CHECK_EQ(byte_at(f, 128 << 10), src_byte(128 << 10));
		CHECK_EQ(stat(src_file, &st), 0);
		CHECK_EQ(tfile_size(f), st.st_size);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- a clean mount ------------------------------------------------------------------------ */
static void clean_remount_changes_nothing(void)
{
	struct stat before, after;

	begin(512 << 10);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 512 << 10);
		/* A hole in the second extent: its checksum is unknown now. */
		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 300 << 10,
					 4096), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	CHECK_EQ(stat(src_file, &before), 0);
	if (open_volume()) {
		struct tfile *f = use();
		uint64_t token = tfile_stat_begin(f);

		CHECK_EQ(dirty_bytes(), 0);
		CHECK_EQ(stat(src_file, &after), 0);
		(void)tfile_stat_end(f, token, &after);
		CHECK_EQ(timespec_ns(after.st_mtim), timespec_ns(before.st_mtim));
		unuse(f);
		close_volume();
	}
	end();
}

/* Unlinked without its map having been loaded in this mount. */
static void unlink_returns_the_space(void)
{
	struct volume_status s;

	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 1u << 20);
		write_at(f, 'B', 0, 4096);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	if (open_volume()) {
		struct tfile *f = get(src_file);

		unlink(src_file);
		tfile_dead(f);
		tfile_put(f);
		step(3);
		volume_status(v, &s);
		CHECK_EQ(s.ssd_used_bytes, 0);
		CHECK_EQ(s.dirty_bytes, 0);
		close_volume();
	}
	end();
}

/* Buried by the journal, but the catalog has its row until the next checkpoint: who goes over the
 * rows must not take it for a file whose object was lost. */
static void buried_row_is_not_loaded(void)
{
	struct cat_file row;

	begin(8192);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 4096);
		CHECK_EQ(volume_commit(v), 0);
		uint64_t id = f->id;

		unlink(src_file);
		tfile_dead(f);
		unuse(f);
		atomic_fetch_add(&skew_ns, 6 * 1000000000ll);
		CHECK_EQ(bury_step(v), 0);
		CHECK(v->graves == NULL);
		CHECK_EQ(catalog_find_id(v->cat, id, &row), 0);
		CHECK_EQ(tfile_get_loaded(v, &row, volume_departures(v), &f), -ENOENT);
		cat_file_release(&row);
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(catalog_find_id(v->cat, id, &row), -ENOENT);
		CHECK_EQ(v->dead_ids.n, 0);
		close_volume();
	}
	end();
}

/* A row is read, and before it is used the file is loaded by somebody else, changed, committed and
 * leaves memory again: what the row said is no more. */
static void row_read_before_a_departure_is_read_again(void)
{
	struct cat_file row;

	begin(8192);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 4096);
		CHECK_EQ(volume_commit(v), 0);
		uint64_t seen = volume_departures(v);

		CHECK_EQ(catalog_next_file(v->cat, 0, 0, &row), 0);
		CHECK(row.flags & CAT_F_ATTR_OWNED);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(volume_commit(v), 0);
		unuse(f);
		volume_drop_idle(v, 0);
		CHECK_EQ(tfile_get_loaded(v, &row, seen, &f), 0);
		cat_file_release(&row);
		if (CHECK(f != NULL))
			CHECK(!f->attr_owned);
		tfile_put(f);
		close_volume();
	}
	end();
}

static void full_of_pins_does_not_spin(void)
{
	unsigned busy = 0;
	int64_t wait;

	begin(2u << 20);
	opt.size_bytes = 4u << 20; /* half of it is journal and catalog */
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 2u << 20);
		CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
		for (int i = 0; i < 2000; i++)
			busy += volume_step(v, &wait) > 0;
		CHECK(busy < 1000);
		unuse(f);
		close_volume();
	}
	end();
}

static int promote_once(struct tfile *f, uint64_t *next)
{
	uint64_t bytes;
	int r = 0;

	while (r == 0 && *next != UINT64_MAX)
		r = tfile_promote_step(f, 0, UINT64_MAX, 1u << 20, next, &bytes);
	return r;
}

/* Space that was given up, and is held by a reader: not "no space", but later. */
static void room_that_is_in_use_comes_back(void)
{
	char second[sizeof(src_dir) + 8];
	struct range reader;
	uint64_t bytes, next = 0;

	begin(8u << 20);
	opt.size_bytes = 16u << 20;
	snprintf(second, sizeof(second), "%s/second", src_dir);
	put_src(second, 'S', 0, 8u << 20);
	if (open_volume()) {
		struct tfile *f = use(), *g = get(second);

		promote(f, 8u << 20);
		CHECK_EQ(evict_range(f, 0, 8u << 20, &bytes), 0);
		CHECK_EQ(bytes, 8u << 20);
		range_lock(&f->ranges, &reader, 0, RANGE_END, false);
		CHECK_EQ(promote_once(g, &next), -EAGAIN);
		range_unlock(&f->ranges, &reader);
		CHECK_EQ(promote_once(g, &next), 0);
		CHECK_EQ(g->map.present_blocks, (8u << 20) / BLOCK_BYTES);
		tfile_put(g);
		unuse(f);
		close_volume();
	}
	end();
}

static void pin_of_a_closed_file_pins(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_pin(f, false, 0, 256 << 10), 0);
		CHECK(f->pin_ranges);
		tfile_put(f);
		close_volume();
	}
	end();
}

/* ---- a lost object ------------------------------------------------------------------------ */
static void lost_object_does_not_zero_src(void)
{
	char cmd[600];

	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		CHECK_EQ(tfile_fsync(f, false), 0);
		unuse(f);
		close_volume();
	}
	snprintf(cmd, sizeof(cmd), "find %s/volumes/*/objects -type f -delete", ssd_dir);
	CHECK_EQ(system(cmd), 0);
	if (open_volume()) {
		struct tfile *f = use();
		struct tier_stream s = { 0 };
		char c;

		CHECK_EQ(tfile_read(f, &s, &c, 1, 0), -EIO);
		write_at(f, 'C', 1u << 19, 4096);
		CHECK_EQ(tfile_read(f, &s, &c, 1, 0), -EIO);
		(void)flush(f, false);
		CHECK_EQ(src_byte(0), 'A');
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

UNIT_MAIN({ "change_while_unmounted_is_seen", change_while_unmounted_is_seen },
	  { "change_while_unmounted_is_seen_before_ours",
	    change_while_unmounted_is_seen_before_ours },
	  { "own_change_before_the_map_is_read_drops_nothing",
	    own_change_before_the_map_is_read_drops_nothing },
	  { "dirty_change_while_unmounted_is_a_conflict",
	    dirty_change_while_unmounted_is_a_conflict },
	  { "own_change_does_not_hide_a_foreign_one",
	    own_change_does_not_hide_a_foreign_one },
	  { "change_between_two_looks_is_not_written_over",
	    change_between_two_looks_is_not_written_over },
	  { "forced_flush_leaves_one_version", forced_flush_leaves_one_version },
	  { "clean_remount_changes_nothing", clean_remount_changes_nothing },
	  { "unlink_returns_the_space", unlink_returns_the_space },
	  { "buried_row_is_not_loaded", buried_row_is_not_loaded },
	  { "row_read_before_a_departure_is_read_again",
	    row_read_before_a_departure_is_read_again },
	  { "full_of_pins_does_not_spin", full_of_pins_does_not_spin },
	  { "room_that_is_in_use_comes_back", room_that_is_in_use_comes_back },
	  { "pin_of_a_closed_file_pins", pin_of_a_closed_file_pins },
	  { "lost_object_does_not_zero_src", lost_object_does_not_zero_src })
