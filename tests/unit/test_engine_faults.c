// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine under failing system calls, forced interleavings and crashes at chosen points. The
 * system calls are replaced in this program: a thread can be told to stop at its next call of one
 * kind until it is released, and the next call of a kind can be made to fail.
 */
#include "tests/unit/engine_fixture.h"

/* ---- opening ------------------------------------------------------------------------------ */
static struct gate gate;

static void *open_slowly(void *arg)
{
	gates[C_FSTAT] = &gate;
	CHECK_EQ(tfile_use(arg, true), 0);
	return NULL;
}

/* The second opener of a cold file must not see it before its size is known. */
static void second_open_knows_the_size(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		gate = (struct gate){ 0 };
		pthread_t t = start(open_slowly, f);

		for (int i = 0; i < 1000 && !atomic_load(&gate.reached); i++)
			usleep(1000);
		if (f->load_mutex.__data.__lock == 0) { /* else: a second opener waits; fine */
			CHECK_EQ(tfile_use(f, true), 0);
			CHECK_EQ(byte_at(f, 10), 'A');
			write_at(f, 'B', 0, 10);
			atomic_store(&gate.open, true);
			pthread_join(t, NULL);
			CHECK_EQ(byte_at(f, 10), 'A');
			CHECK_EQ(tfile_size(f), 8192);
			tfile_unuse(f);
		} else {
			atomic_store(&gate.open, true);
			pthread_join(t, NULL);
		}
		unuse(f);
		close_volume();
	}
	end();
}

/* The same when a chmod is under way. */
static void open_during_chmod_knows_the_size(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_change_begin(f), 0);
		CHECK_EQ(tfile_use(f, true), 0);
		CHECK_EQ(byte_at(f, 10), 'A');
		write_at(f, 'B', 0, 10);
		tfile_change_end(f);
		CHECK_EQ(byte_at(f, 10), 'A');
		CHECK_EQ(tfile_size(f), 8192);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- fsync -------------------------------------------------------------------------------- */
static void fsync_after_unload_syncs_src(void)
{
	begin(8192);
	opt.mode = MODE_WRITEAROUND;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		unuse(f);
		volume_drop_idle(v, 0); /* 1024 other files came and went */
		f = use();
		src_ino = ino_of(tfile_src_fd(f));
		CHECK_EQ(tfile_fsync(f, false), 0);
		CHECK(atomic_load(&syncs_of_src) > 0);
		unuse(f);
		close_volume();
	}
	end();
}

/* What write-back has under way is dirty in the durable state until SRC was synced: a database that
 * rewrites its file and syncs does not wait for the slow disk (issue of a pass that takes the file
 * in pieces: SRC is changed, and not everything is clean). */
static void fsync_during_writeback_leaves_src_alone(void)
{
	uint64_t next = 0, bytes;

	begin(2u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		src_ino = ino_of(tfile_src_fd(f));
		write_at(f, 'B', 0, 2u << 20);
		CHECK_EQ(tfile_fsync(f, false), 0);
		CHECK_EQ(tfile_flush_step(f, 256u << 10, false, &next, &bytes), 0);
		CHECK(dirty_bytes() > 0 && dirty_bytes() < 2u << 20);
		unsigned before = atomic_load(&syncs_of_src);

		write_at(f, 'C', 0, 4096);
		CHECK_EQ(tfile_fsync(f, true), 0);
		CHECK_EQ(atomic_load(&syncs_of_src), before);
		unuse(f);
		close_volume();
	}
	end();
}

/* The kernel reports a failed sync once; the second sync returns 0 and the data is gone. */
static void background_sync_error_reaches_fsync(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 8192);
		fail_ino = ino_of(f->obj_fd);
		fail_next[C_SYNC] = EIO;
		CHECK_EQ(volume_commit(v), -EIO);
		CHECK(tfile_fsync(f, false) < 0);
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void writeback_sync_error_reaches_fsync(void)
{
	begin(1u << 20);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'D', 0, 4096);
		write_at(f, 'B', 1u << 19, 256 << 10); /* bypasses */
		CHECK_EQ(src_byte(1u << 19), 'B');
		fail_ino = ino_of(tfile_src_fd(f));
		fail_next[C_SYNC] = EIO;
		CHECK(flush(f, false) < 0);
		CHECK(tfile_fsync(f, false) < 0);
		unuse(f);
		(void)volume_close(v);
		src_release(&src);
	}
	end();
}

static void read_error_is_no_short_read(void)
{
	struct tier_stream s = { 0 };
	char buf[16384];

	begin(16384);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 4096);
		s.atime_touched = true;
		fail_ino = ino_of(tfile_src_fd(f));
		fail_next[C_PREAD] = EIO;
		/* FUSE takes a short read for the end of the file and cuts its idea of the size. */
		CHECK_EQ(tfile_read(f, &s, buf, sizeof(buf), 0), -EIO);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- a cut that SRC has still to follow --------------------------------------------------- */
static struct tfile *pending_cut(void)
{
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0);
	fail_ino = ino_of(tfile_src_fd(f));
	fail_next[C_FTRUNCATE] = EIO; /* or a crash right here */
	CHECK_EQ(tfile_truncate(f, 100), -EIO);
	CHECK_EQ(tfile_size(f), 100);
	return f;
}

static void pending_cut_then_write_far(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		write_at(f, 'C', 1u << 19, 4096);
		CHECK_EQ(byte_at(f, 8192), 0);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(byte_at(f, 8192), 0);
		CHECK_EQ(src_byte(8192), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void pending_cut_then_truncate_up(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		CHECK_EQ(tfile_truncate(f, 1u << 19), 0);
		CHECK_EQ(byte_at(f, 8192), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void pending_cut_then_punch(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = pending_cut();

		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10), 0);
		CHECK_EQ(tfile_size(f), 100);
		unuse(f);
		close_volume();
	}
	end();
}

static void *flush_stopping_at_ftruncate(void *arg)
{
	gates[C_FTRUNCATE] = &gate;
	(void)flush(arg, false);
	return NULL;
}

static uint64_t bypass_off;

static void *bypass_write(void *arg)
{
	write_at(arg, 'C', bypass_off, 256 << 10);
	return NULL;
}

/* Write-back stands before its ftruncate() of SRC when a bypassing write comes. */
static void write_during_ftruncate(struct tfile *f, uint64_t off)
{
	gate = (struct gate){ 0 };
	bypass_off = off;
	pthread_t t = start(flush_stopping_at_ftruncate, f);

	(void)wait_for(&gate.reached);
	pthread_t w = start(bypass_write, f);

	usleep(200000);
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	pthread_join(w, NULL);
	CHECK_EQ(byte_at(f, off + 12000), 'C');
	CHECK(tfile_size(f) >= off + (256 << 10));
}

static void bypass_write_meets_redone_cut(void)
{
	begin(1u << 20);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = pending_cut();

		write_during_ftruncate(f, 8192);
		unuse(f);
		close_volume();
	}
	end();
}

static void bypass_write_meets_growing_src(void)
{
	begin(0);
	opt.seq_cutoff_bytes = 64 << 10;
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 1u << 20, 4096);
		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1u << 20,
					 4096), 0);
		write_during_ftruncate(f, (1u << 20) + 4096);
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- crashes ------------------------------------------------------------------------------ */
static void *fsync_stopping_at_sync(void *arg)
{
	gates[C_SYNC] = &gate;
	CHECK_EQ(tfile_fsync(arg, false), 0);
	return NULL;
}

static void *flush_once(void *arg)
{
	uint64_t next = 0, bytes;

	CHECK_EQ(tfile_flush_step(arg, 1u << 20, false, &next, &bytes), 0);
	return NULL;
}

/* First commit of a dirty period under way while write-back starts: no busy mark; crash. */
static void crash_false_conflict(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	gate = (struct gate){ 0 };
	pthread_t t = start(fsync_stopping_at_sync, f);

	(void)wait_for(&gate.reached);
	usleep(20000); /* another mtime */
	pthread_t w = start(flush_once, f);

	usleep(200000);
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	crash();
	pthread_join(w, NULL);
}

static void no_false_conflict_after_crash(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_false_conflict, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(v->conflicts, 0);
		CHECK_EQ(flush(f, false), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void *overwrite_stopping_at_pwrite(void *arg)
{
	struct tier_stream s = { 0 };
	static char buf[4096];

	memset(buf, 'C', sizeof(buf));
	gates[C_PWRITE] = &gate;
	(void)tfile_write(arg, &s, buf, sizeof(buf), 0);
	return NULL;
}

static struct gate sync_gate;

static void *writeback_stopping_at_sync(void *arg)
{
	uint64_t bytes;

	/* The commit of the busy mark syncs too: it comes before, with nothing else in it. */
	CHECK_EQ(src_change_begin(arg), 0);
	src_change_end(arg);
	gates[C_SYNC] = &sync_gate;
	(void)writeback_file(arg, 1u << 20, false, &bytes);
	return NULL;
}

/*
 * A write into a dirty block is in progress - begin_ssd_write() is done, the data is not there -
 * when write-back, which has read the block before, declares it clean. The clean state is
 * committed without an intent (I2), the write ends, crash.
 */
static void crash_unmarked_overwrite(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0);
	gate = sync_gate = (struct gate){ 0 };
	pthread_t t = start(writeback_stopping_at_sync, f);

	(void)wait_for(&sync_gate.reached);
	pthread_t w = start(overwrite_stopping_at_pwrite, f);

	(void)wait_for(&gate.reached);
	atomic_store(&sync_gate.open, true);
	usleep(200000);
	CHECK_EQ(volume_commit(v), 0); /* by age, in the background */
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	pthread_join(w, NULL);
	CHECK_EQ(byte_at(f, 0), 'C');
	crash();
}

static void no_time_travel_after_crash(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_unmarked_overwrite, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		int first = byte_at(f, 0);

		CHECK_EQ(demote(f), 0);
		CHECK_EQ(byte_at(f, 0), first); /* I6: what was read does not go back */
		unuse(f);
		close_volume();
	}
	end();
}

/* A group's first commit is under way, its blocks are evicted, and reclaimed before the catalog
 * knows (I4). */
static void crash_early_punch(void *arg)
{
	int64_t wait;

	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 8192);
	write_at(f, 'D', 1u << 20, 4096); /* keeps the object from being empty */
	tfile_set_path(f, "f");
	gate = (struct gate){ 0 };
	pthread_t t = start(fsync_stopping_at_sync, f);

	(void)wait_for(&gate.reached);
	uint64_t bytes;

	CHECK_EQ(evict_range(f, 0, 8192, &bytes), 0); /* (1) of the eviction of another thread */
	CHECK_EQ(bytes, 8192);
	(void)volume_step(v, &wait); /* reclaim is due */
	atomic_store(&gate.open, true);
	pthread_join(t, NULL);
	crash();
}

static void no_punch_before_the_catalog_knows(void)
{
	begin(2u << 20);
	CHECK_EQ(unit_child(crash_early_punch, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 10), 'A');
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_overwriting_clean(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 512 << 10);
	CHECK_EQ(volume_commit(v), 0);
	write_at(f, 'B', 256 << 10, 4096); /* makes the intent durable; itself not committed */
	crash();
}

static void *use_stopping_at_object_read(void *arg)
{
	gates[C_PREAD] = &gate;
	CHECK_EQ(tfile_use(arg, true), 0);
	return NULL;
}

/* A commit of the file (its path changed) while its suspect extents are being settled (I6). */
static void commit_while_settling(void)
{
	begin(512 << 10);
	CHECK_EQ(unit_child(crash_overwriting_clean, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		gate = (struct gate){ 0 };
		pthread_t t = start(use_stopping_at_object_read, f);

		CHECK(wait_for(&gate.reached));
		tfile_set_path(f, "f");
		CHECK_EQ(volume_commit(v), 0);
		atomic_store(&gate.open, true);
		pthread_join(t, NULL);
		int first = byte_at(f, 256 << 10);

		CHECK_EQ(demote(f), 0);
		CHECK_EQ(byte_at(f, 256 << 10), first);
		unuse(f);
		close_volume();
	}
	end();
}

static void *commit_stopping_at_sync(void *arg)
{
	gates[C_SYNC] = &gate;
	CHECK_EQ(commit_file(arg), 0);
	gates[C_SYNC] = NULL;
	return NULL;
}

/* Unlinked and closed while a commit of it is under way: what it occupies is given back. */
static void dead_during_a_commit(void)
{
	struct volume_status s;

	begin(4096);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'B', 0, 65536);
		gate = (struct gate){ 0 };
		pthread_t t = start(commit_stopping_at_sync, f);

		CHECK(wait_for(&gate.reached));
		CHECK_EQ(unlink(src_file), 0);
		tfile_dead(f);
		atomic_store(&gate.open, true);
		pthread_join(t, NULL);
		unuse(f);
		CHECK_EQ(volume_loaded_files(v), 0);
		step(2);
		volume_status(v, &s);
		CHECK_EQ(s.dirty_bytes, 0);
		CHECK_EQ(s.ssd_used_bytes, 0);
		close_volume();
	}
	end();
}

/*
 * Durably dirty data gives way to a change of SRC. Until SRC's change is durable too the catalog
 * must go on having the one or the other, or a power cut leaves SRC's still older content.
 */
static uint64_t catalog_dirty(void)
{
	struct cat_totals t = { 0 };

	CHECK_EQ(catalog_totals(v->cat, &t), 0);
	return t.dirty_bytes;
}

static struct tfile *durably_dirty(void)
{
	struct tfile *f = use();

	write_at(f, 'B', 0, 8192);
	CHECK_EQ(tfile_fsync(f, false), 0);
	CHECK_EQ(volume_commit(v), 0); /* to the catalog */
	CHECK_EQ(catalog_dirty(), 8192);
	src_ino = ino_of(tfile_src_fd(f));
	syncs_of_src = 0;
	return f;
}

static void punch_syncs_src_before_dirty_goes(void)
{
	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
					 8192),
			 0);
		CHECK_EQ(volume_commit(v), 0);
		CHECK(catalog_dirty() == 8192 || syncs_of_src > 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void write_around_syncs_src_before_dirty_goes(void)
{
	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		fail_ino = ino_of(f->obj_fd);
		fail_next[C_PWRITE] = EIO;
		write_at(f, 'C', 0, 8192);
		CHECK_EQ(volume_commit(v), 0);
		CHECK(catalog_dirty() == 8192 || syncs_of_src > 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void cut_syncs_src_before_its_mark_goes(void)
{
	struct cat_file row;

	begin(16384);
	if (open_volume()) {
		struct tfile *f = durably_dirty();

		CHECK_EQ(tfile_truncate(f, 100), 0);
		CHECK_EQ(volume_commit(v), 0);
		if (CHECK_EQ(catalog_find_id(v->cat, f->id, &row), 0)) {
			CHECK(row.flags & CAT_F_TRUNCATE || syncs_of_src > 0);
			cat_file_release(&row);
		}
		unuse(f);
		close_volume();
	}
	end();
}

UNIT_MAIN({ "second_open_knows_the_size", second_open_knows_the_size },
	  { "open_during_chmod_knows_the_size", open_during_chmod_knows_the_size },
	  { "fsync_after_unload_syncs_src", fsync_after_unload_syncs_src },
	  { "fsync_during_writeback_leaves_src_alone", fsync_during_writeback_leaves_src_alone },
	  { "background_sync_error_reaches_fsync", background_sync_error_reaches_fsync },
	  { "writeback_sync_error_reaches_fsync", writeback_sync_error_reaches_fsync },
	  { "read_error_is_no_short_read", read_error_is_no_short_read },
	  { "pending_cut_then_write_far", pending_cut_then_write_far },
	  { "pending_cut_then_truncate_up", pending_cut_then_truncate_up },
	  { "pending_cut_then_punch", pending_cut_then_punch },
	  { "bypass_write_meets_redone_cut", bypass_write_meets_redone_cut },
	  { "bypass_write_meets_growing_src", bypass_write_meets_growing_src },
	  { "commit_while_settling", commit_while_settling },
	  { "dead_during_a_commit", dead_during_a_commit },
	  { "punch_syncs_src_before_dirty_goes", punch_syncs_src_before_dirty_goes },
	  { "write_around_syncs_src_before_dirty_goes",
	    write_around_syncs_src_before_dirty_goes },
	  { "cut_syncs_src_before_its_mark_goes", cut_syncs_src_before_its_mark_goes },
	  { "no_false_conflict_after_crash", no_false_conflict_after_crash },
	  { "no_time_travel_after_crash", no_time_travel_after_crash },
	  { "no_punch_before_the_catalog_knows", no_punch_before_the_catalog_knows })
