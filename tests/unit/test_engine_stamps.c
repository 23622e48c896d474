// SPDX-License-Identifier: GPL-2.0-or-later
/* Clean copies after a kill of the daemon: kept if SRC looks as it left it, else dropped; and what
 * the sweep after it does. */
#include "tests/unit/engine_fixture.h"

#define BLOCKS 256u
#define FILE_BYTES (BLOCKS * BLOCK_BYTES)

/* Opens the volume with all of the file clean, and that committed. */
static struct tfile *all_clean(void)
{
	if (!open_volume())
		_exit(1);
	struct tfile *f = use();

	promote(f, FILE_BYTES);
	CHECK_EQ(volume_commit(v), 0);
	src_ino = ino_of(tfile_src_fd(f));
	return f;
}

static void chmod_src(struct tfile *f, mode_t mode)
{
	CHECK_EQ(tfile_change_begin(f), 0);
	CHECK_EQ(fchmod(tfile_src_fd(f), mode), 0);
	tfile_change_end(f);
}

static void expect(struct tfile *f, uint64_t clean, uint64_t dirty)
{
	CHECK_EQ(f->map.present_blocks - f->map.dirty_blocks, clean);
	CHECK_EQ(f->map.dirty_blocks, dirty);
	CHECK_EQ(atomic_load(&v->conflicts), 0);
}

/* The file after the crash in `child`, or NULL; for leave(). */
static struct tfile *after(void (*child)(void *))
{
	begin(FILE_BYTES);
	CHECK_EQ(unit_child(child, NULL), CRASHED);
	return open_volume() ? use() : NULL;
}

static void leave(struct tfile *f)
{
	if (f) {
		unuse(f);
		close_volume();
	}
}

/* What is left after the crash in `child`; then everything goes to SRC. */
static void crash_and_expect(void (*child)(void *), uint64_t clean, uint64_t dirty)
{
	struct tfile *f = after(child);

	if (f) {
		expect(f, clean, dirty);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(atomic_load(&v->written_back_bytes), dirty * BLOCK_BYTES);
		CHECK_EQ(f->map.present_blocks, clean + dirty);
	}
	leave(f);
}

static void crash_amid_writeback(void *arg)
{
	(void)arg;
	struct tfile *f = all_clean();

	write_at(f, 'B', 0, BLOCK_BYTES);
	CHECK_EQ(tfile_fsync(f, false), 0);
	crash_at_sync_of_src = true;
	(void)flush(f, false);
}

/* The busy row would drop them all; nothing but the one block is written back. */
static void kill_amid_writeback_keeps_copies(void)
{
	crash_and_expect(crash_amid_writeback, BLOCKS - 1, 1);
	CHECK_EQ(src_byte(0), 'B');
	CHECK_EQ(src_byte(BLOCK_BYTES), 'A');
	end();
}

/* Intent and checksum are durable; SRC gets the new bytes; the commit that would say so is missing,
 * and it is not written any more. */
static void crash_before_the_new_checksum(void *arg)
{
	(void)arg;
	struct tfile *f = all_clean();

	write_at(f, 'B', 0, BLOCK_BYTES);
	put_src(src_file, 'B', 0, BLOCK_BYTES);
	stamps_note(f); /* as a write-back does */
	crash();
}

/* Same bytes in SRC as on the SSD: clean, and the checksum that is stored is theirs. */
static void settled_extent_has_its_checksum(void)
{
	struct tfile *f = after(crash_before_the_new_checksum);

	if (f) {
		const struct map_group *g = map_find(&f->map, 0);
		char block[BLOCK_BYTES];
		uint64_t sum = 0;

		for (unsigned b = 0; g && b < BLOCKS_PER_EXTENT; b++) {
			memset(block, b == 0 ? 'B' : 'A', sizeof(block));
			sum += block_sum(block, b);
		}
		CHECK(g && g->present[0] && !g->dirty[0] && g->sum_valid & 1);
		CHECK_EQ(g ? g->sum[0] : 0, sum);
	}
	leave(f);
	end();
}

/* The second write-back finds busy mark and intent durable, and has nothing to commit for. */
static void crash_after_a_b_a(void *arg)
{
	(void)arg;
	struct tfile *f = all_clean();

	write_at(f, 'C', 0, BLOCK_BYTES);
	CHECK_EQ(flush(f, false), 0);
	write_at(f, 'B', EXTENT_BYTES, BLOCK_BYTES);
	CHECK_EQ(flush(f, false), 0);
	write_at(f, 'A', EXTENT_BYTES, BLOCK_BYTES);
	crash();
}

/* The checksum of before fits again, and SRC has what we gave it: still they are not the same. */
static void kill_after_writing_the_old_bytes_again(void)
{
	struct tfile *f = after(crash_after_a_b_a);

	if (f) {
		int shown = byte_at(f, EXTENT_BYTES);

		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(src_byte(EXTENT_BYTES), shown);
		CHECK_EQ(src_byte(0), 'C');
	}
	leave(f);
	end();
}

static void crash_after_bypass(void *arg)
{
	uint64_t bytes;

	(void)arg;
	struct tfile *f = all_clean();

	CHECK_EQ(evict_range(f, 0, EXTENT_BYTES, &bytes), 0);
	v->opt.mode = MODE_WRITEAROUND;
	write_at(f, 'C', 0, BLOCK_BYTES);
	crash();
}

static void kill_after_a_write_past_the_ssd_keeps_copies(void)
{
	crash_and_expect(crash_after_bypass, BLOCKS - EXTENT_BYTES / BLOCK_BYTES, 0);
	CHECK_EQ(src_byte(0), 'C');
	end();
}

static void crash_after_chmod(void *arg)
{
	(void)arg;
	chmod_src(all_clean(), 0600);
	crash();
}

static void kill_after_chmod_keeps_copies(void)
{
	crash_and_expect(crash_after_chmod, BLOCKS, 0);
	end();
}

static void crash_in_another_session(void *arg)
{
	(void)arg;
	struct tfile *f = all_clean();

	v->session ^= 1;
	chmod_src(f, 0600);
	crash();
}

static void stamps_of_another_boot_do_not_count(void)
{
	crash_and_expect(crash_in_another_session, 0, 0);
	end();
}

static void damaged_stamps_do_not_count(void)
{
	struct src_stamp stamp;

	begin(FILE_BYTES);
	CHECK_EQ(unit_child(crash_after_chmod, NULL), CRASHED);
	if (open_volume()) {
		char byte;

		CHECK(stamps_find(v, 1, &stamp));
		CHECK_EQ(syscall(SYS_pread64, v->stamps_fd, &byte, 1, 64 + 20), 1);
		byte ^= 1;
		CHECK_EQ(syscall(SYS_pwrite64, v->stamps_fd, &byte, 1, 64 + 20), 1);
		CHECK(!stamps_find(v, 1, &stamp));
		struct tfile *f = use();

		expect(f, 0, 0);
		unuse(f);
		close_volume();
	}
	end();
}

/* While nothing is mounted; same size. */
static void change_after_the_kill_is_seen(void)
{
	begin(FILE_BYTES);
	CHECK_EQ(unit_child(crash_amid_writeback, NULL), CRASHED);
	put_src(src_file, 'X', 2 * EXTENT_BYTES, BLOCK_BYTES);
	if (open_volume()) {
		struct tfile *f = use();

		expect(f, 0, 1);
		CHECK_EQ(byte_at(f, 2 * EXTENT_BYTES), 'X');
		CHECK_EQ(byte_at(f, 0), 'B');
		unuse(f);
		close_volume();
	}
	end();
}

/* Between the hole in SRC and the commit that forgets the copies no stamp may speak for them,
 * whoever changes SRC then: the hole may have left its times as they were. */
static void no_stamp_while_copies_are_wrong(void)
{
	struct src_stamp stamp;

	begin(FILE_BYTES);
	struct tfile *f = all_clean();

	chmod_src(f, 0600);
	CHECK(stamps_find(v, f->id, &stamp));
	CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK_BYTES), 0);
	CHECK(!stamps_find(v, f->id, &stamp));
	chmod_src(f, 0644);
	CHECK(!stamps_find(v, f->id, &stamp));
	CHECK_EQ(volume_commit(v), 0);
	chmod_src(f, 0600);
	CHECK(stamps_find(v, f->id, &stamp));
	CHECK_EQ(tfile_truncate(f, 8 * BLOCK_BYTES), 0);
	chmod_src(f, 0644);
	CHECK(!stamps_find(v, f->id, &stamp));
	unuse(f);
	close_volume();
	end();
}

/* The same where somebody else has changed SRC: the catalog calls clean what is not. */
static void no_stamp_hides_a_foreign_change(void)
{
	struct src_stamp stamp;
	struct stat st;

	begin(FILE_BYTES);
	struct tfile *f = all_clean();

	chmod_src(f, 0600);
	CHECK(stamps_find(v, f->id, &stamp));
	put_src(src_file, 'X', 0, BLOCK_BYTES);
	chmod_src(f, 0644);
	CHECK_EQ(fstat(tfile_src_fd(f), &st), 0);
	CHECK(!stamps_find(v, f->id, &stamp) || !src_has_stamp(&st, &stamp));
	unuse(f);
	close_volume();
	end();
}

static void crash_after_foreign_change(void *arg)
{
	(void)arg;
	struct tfile *f = all_clean();

	put_src(src_file, 'X', 0, BLOCK_BYTES);
	chmod_src(f, 0600);
	crash();
}

static void foreign_change_before_the_kill_is_seen(void)
{
	struct tfile *f = after(crash_after_foreign_change);

	if (f) {
		CHECK_EQ(byte_at(f, 0), 'X');
	}
	leave(f);
	end();
}

/* ---- the sweep ---------------------------------------------------------------------------- */
static void crash_clean(void *arg)
{
	(void)arg;
	(void)all_clean();
	crash();
}

/* A million rows that are as they should be are not loaded, and not stored again. */
static void sweep_leaves_good_rows_alone(void)
{
	begin(FILE_BYTES);
	CHECK_EQ(unit_child(crash_clean, NULL), CRASHED);
	if (open_volume()) {
		step(OBJECT_DIRS + 50);
		CHECK(!recover_pending(v));
		CHECK_EQ(volume_loaded_files(v), 0);
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_load_map(f), 0);
		CHECK_EQ(file_list_count(v, &v->changed), 0);
		expect(f, BLOCKS, 0);
		tfile_put(f);
		close_volume();
	}
	end();
}

static void crash_after_eviction(void *arg)
{
	uint64_t bytes;

	(void)arg;
	struct tfile *f = all_clean();

	CHECK_EQ(evict_range(f, 0, EXTENT_BYTES, &bytes), 0);
	CHECK_EQ(volume_commit(v), 0); /* known absent, and not released (I4) */
	crash();
}

static void sweep_releases_leaked_space(void)
{
	struct stat st;

	begin(FILE_BYTES);
	CHECK_EQ(unit_child(crash_after_eviction, NULL), CRASHED);
	if (open_volume()) {
		step(OBJECT_DIRS + 50);
		struct tfile *f = use();

		CHECK_EQ(fstat(f->obj_fd, &st), 0);
		/* One block may be its xattr. */
		CHECK((uint64_t)st.st_blocks * 512 <= FILE_BYTES - EXTENT_BYTES + BLOCK_BYTES);
		unuse(f);
		close_volume();
	}
	end();
}

UNIT_MAIN({ "kill_amid_writeback_keeps_copies", kill_amid_writeback_keeps_copies },
	  { "settled_extent_has_its_checksum", settled_extent_has_its_checksum },
	  { "kill_after_writing_the_old_bytes_again", kill_after_writing_the_old_bytes_again },
	  { "kill_after_a_write_past_the_ssd_keeps_copies",
	    kill_after_a_write_past_the_ssd_keeps_copies },
	  { "kill_after_chmod_keeps_copies", kill_after_chmod_keeps_copies },
	  { "stamps_of_another_boot_do_not_count", stamps_of_another_boot_do_not_count },
	  { "damaged_stamps_do_not_count", damaged_stamps_do_not_count },
	  { "change_after_the_kill_is_seen", change_after_the_kill_is_seen },
	  { "no_stamp_while_copies_are_wrong", no_stamp_while_copies_are_wrong },
	  { "no_stamp_hides_a_foreign_change", no_stamp_hides_a_foreign_change },
	  { "foreign_change_before_the_kill_is_seen", foreign_change_before_the_kill_is_seen },
	  { "sweep_leaves_good_rows_alone", sweep_leaves_good_rows_alone },
	  { "sweep_releases_leaked_space", sweep_releases_leaked_space })
