// SPDX-License-Identifier: GPL-2.0-or-later
/* What a mount finds after a crash, and what recovery makes of it in the background. */
#include <dlfcn.h>
#include <sys/xattr.h>

#include "tests/unit/engine_fixture.h"
#include "tier/snapshot.h"

/* The file whose state is looked at when SRC is about to be zeroed, and what was seen. */
static struct tfile *zeroed_file;
static bool known_absent;

static void look_at_second_block(void)
{
	pthread_mutex_lock(&zeroed_file->lock);
	known_absent = map_state(&zeroed_file->map, 4096) == BLOCK_ABSENT &&
		       zeroed_file->seq == zeroed_file->committed_seq;
	pthread_mutex_unlock(&zeroed_file->lock);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (zeroed_file && !is_object(fd))
		look_at_second_block();
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

static void crash_append(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 5000);
	CHECK_EQ(tfile_fsync(f, false), 0);
	CHECK_EQ(volume_commit(v), 0); /* or replaying the journal would zero it */
	write_at(f, 'C', 5000, 1000);  /* not synced */
	crash();
}

static void tail_is_zero_after_crash(void)
{
	begin(0);
	CHECK_EQ(unit_child(crash_append, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		if (tfile_size(f) == 5000) {
			CHECK_EQ(tfile_truncate(f, 8192), 0);
			CHECK_EQ(byte_at(f, 5500), 0);
		}
		unuse(f);
		close_volume();
	}
	end();
}

/* Of the object, as it is on the SSD. */
static int object_byte(struct tfile *f, uint64_t off)
{
	unsigned char c = 0;
	ssize_t n = syscall(SYS_pread64, f->obj_fd, &c, 1, off);

	return n == 1 ? c : -1;
}

/* What is behind the end must not reach a checksum, nor be seen when the file gets longer. */
static void recovery_zeroes_the_tail(void)
{
	begin(0);
	CHECK_EQ(unit_child(crash_append, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		if (tfile_size(f) == 5000) {
			CHECK_EQ(object_byte(f, 4999), 'B');
			CHECK_EQ(object_byte(f, 5500), 0);
		}
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_append_to_clean(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 5000);
	CHECK_EQ(volume_commit(v), 0);
	write_at(f, 'C', 5000, 1000); /* under an intent, not committed */
	crash();
}

/* The same where nothing durable says that the SSD owns the size. */
static void recovery_zeroes_the_tail_of_src_size(void)
{
	begin(5000);
	CHECK_EQ(unit_child(crash_append_to_clean, NULL), CRASHED);
	if (open_volume()) {
		step(300); /* settles without a user */
		struct tfile *f = use();

		if (tfile_size(f) == 5000)
			CHECK_EQ(object_byte(f, 5500), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_under_intent(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 256 << 10);
	CHECK_EQ(tfile_pin(f, false, 0, 256 << 10), 0);
	CHECK_EQ(volume_commit(v), 0);
	write_at(f, 'C', 0, 4096); /* under an intent, not committed */
	crash();
}

/* What is dirty is said before the first use tells the size: rename() over another file asks. */
static void dirty_is_known_before_the_size(void)
{
	struct tfile_figures figures;

	begin(256 << 10);
	CHECK_EQ(unit_child(crash_under_intent, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		tfile_figures(f, &figures);
		CHECK_EQ(figures.dirty_bytes, 4096);
		tfile_put(f);
		close_volume();
	}
	end();
}

/* I6: a mount does not wait for pinned files to be read. */
static void pinned_files_are_settled_after_the_mount(void)
{
	begin(256 << 10);
	CHECK_EQ(unit_child(crash_under_intent, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK(!f->map_loaded);
		step(300);
		CHECK(f->map_loaded);
		CHECK_EQ(f->acct_pinned, 64);
		tfile_put(f);
		close_volume();
	}
	end();
}

/* I6: what could not be settled is not taken for clean by the mount after this one. */
static void unsettled_files_leave_the_volume_unclean(void)
{
	begin(256 << 10);
	CHECK_EQ(unit_child(crash_under_intent, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = get(src_file);

		CHECK_EQ(tfile_hold_object(f), 0);
		fail_ino = ino_of(f->obj_fd);
		tfile_drop_object(f);
		tfile_put(f);
		for (unsigned i = 0; i < 300; i++) {
			fail_next[C_FSTAT] = EIO;
			step(1);
		}
		fail_next[C_FSTAT] = 0;
		CHECK(!atomic_load(&v->settling));
		(void)volume_close(v);
		src_release(&src);
	}
	if (open_volume()) {
		CHECK(v->unclean);
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 0), 'C');
		unuse(f);
		close_volume();
	}
	end();
}

static void crash_before_description(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0); /* by the journal: the object is not synced */
	CHECK_EQ(fremovexattr(f->obj_fd, "user.hybridfs.object"), 0);
	crash();
}

static void replay_describes_objects(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_before_description, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		char text[300] = "";

		CHECK(fgetxattr(f->obj_fd, "user.hybridfs.object", text, sizeof(text) - 1) > 0);
		CHECK_EQ(strcmp(text + strlen(text) - 2, " f"), 0);
		unuse(f);
		close_volume();
	}
	end();
}

/* After so many unlocks of the lists' lock by this thread, without the file's, a writer comes; 0:
 * never. */
static _Thread_local unsigned unlocks_to_go;
static struct tfile *writers_file;

int pthread_mutex_unlock(pthread_mutex_t *m)
{
	static int (*_Atomic next)(pthread_mutex_t *);

	if (!next)
		next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	int r = next(m);

	if (!unlocks_to_go || m != &v->lists_lock || pthread_mutex_trylock(&writers_file->lock))
		return r;
	(void)next(&writers_file->lock);
	if (--unlocks_to_go == 0)
		write_at(writers_file, 'C', 65536, 4096);
	return r;
}

static void crash_after_checkpoint(void *arg)
{
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0); /* in the journal, and not changed since */
	writers_file = f;
	unlocks_to_go = *(unsigned *)arg;
	CHECK_EQ(volume_commit(v), 0);
	unlocks_to_go = 0;
	crash();
}

/* What only the journal had is in the catalog when its position has moved, whoever writes when. */
static void checkpoint_misses_no_file(void)
{
	for (unsigned n = 1; n <= 8; n++) {
		begin(128 << 10);
		CHECK_EQ(unit_child(crash_after_checkpoint, &n), CRASHED);
		if (open_volume()) {
			struct tfile *f = use();

			CHECK_EQ(byte_at(f, 0), 'B');
			unuse(f);
			close_volume();
		}
		end();
	}
}

static struct gate first_write, second_write;

static void *promote_stopping(void *arg)
{
	gates[C_PWRITE] = &first_write;
	promote(arg, 256 << 10);
	return NULL;
}

/* Between the two runs of a promotion around blocks that are there, and have a checksum. */
static void crash_half_promoted(void *arg)
{
	uint64_t next = 0, bytes;

	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(tfile_promote_step(f, 64 << 10, 64 << 10, 1u << 20, &next, &bytes), 0);
	CHECK_EQ(bytes, 64 << 10);
	CHECK_EQ(volume_commit(v), 0);
	first_write = (struct gate){ .open = true, .next = &second_write };
	start(promote_stopping, f);
	CHECK(wait_for(&second_write.reached));
	CHECK_EQ(volume_commit(v), 0);
	crash();
}

static void checksums_are_of_what_is_present(void)
{
	char block[BLOCK_BYTES];

	begin(256 << 10);
	CHECK_EQ(unit_child(crash_half_promoted, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		struct map_group *g = map_find(&f->map, 0);
		uint64_t sum = 0;

		CHECK_EQ(g->present[0], 0xffffffffull);
		CHECK_EQ(g->sum_valid & 1, 1);
		for (unsigned b = 0; b < 32; b++) {
			CHECK_EQ(syscall(SYS_pread64, f->obj_fd, block, sizeof(block),
					 b * BLOCK_BYTES),
				 sizeof(block));
			sum += block_sum(block, b);
		}
		CHECK_EQ(sum, g->sum[0]);
		unuse(f);
		close_volume();
	}
	end();
}

/*
 * Write-back brings to SRC what was appended after its busy mark was committed; then the crash. The
 * journal has the block in which the file ended as it was before.
 */
static void *flush_until_first_sync(void *arg)
{
	struct tfile *f = use();

	gates[C_SYNC] = arg;
	CHECK_EQ(flush(f, false), -EIO);
	unuse(f);
	return NULL;
}

static void crash_append_to_both(void *arg)
{
	struct gate g = { 0 };

	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 5000, 1000);
	CHECK_EQ(tfile_fsync(f, true), 0);
	pthread_t t = start(flush_until_first_sync, &g);

	CHECK(wait_for(&g.reached));
	write_at(f, 'C', 6000, 8000);
	fail_ino = ino_of(tfile_src_fd(f));
	fail_next[C_SYNC] = EIO;
	atomic_store(&g.open, true);
	pthread_join(t, NULL);
	crash();
}

static void no_hole_in_an_append_after_crash(void)
{
	struct stat st;

	begin(5000);
	CHECK_EQ(unit_child(crash_append_to_both, NULL), CRASHED);
	CHECK_EQ(stat(src_file, &st), 0);
	CHECK_EQ(st.st_size, 14000);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(tfile_size(f), 14000);
		CHECK_EQ(byte_at(f, 5500), 'B');
		CHECK_EQ(byte_at(f, 6500), 'C');
		CHECK_EQ(byte_at(f, 8191), 'C');
		CHECK_EQ(byte_at(f, 13999), 'C');
		unuse(f);
		close_volume();
	}
	CHECK_EQ(src_byte(6500), 'C');
	end();
}

/* Nothing of it was synced: SRC must not get a size for data that it never saw. */
static void crash_after_cut_of_unsynced(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 100000);
	CHECK_EQ(tfile_truncate(f, 50000), 0);
	CHECK_EQ(tfile_size(f), 50000);
	crash();
}

static void cut_does_not_make_src_longer(void)
{
	struct stat st;

	begin(100);
	CHECK_EQ(unit_child(crash_after_cut_of_unsynced, NULL), CRASHED);
	CHECK_EQ(stat(src_file, &st), 0);
	CHECK_EQ(st.st_size, 100);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(tfile_size(f), 100);
		write_at(f, 'B', 0, 100000);
		CHECK_EQ(tfile_truncate(f, 50000), 0);
		CHECK_EQ(flush(f, false), 0);
		unuse(f);
		close_volume();
	}
	CHECK_EQ(stat(src_file, &st), 0);
	CHECK_EQ(st.st_size, 50000);
	CHECK_EQ(src_byte(49999), 'B');
	end();
}

/*
 * A cut whose mark is still durable, and behind it a write that went to SRC, neither of them
 * synced: whatever the first read after the crash shows stays so.
 */
static void crash_written_behind_a_cut(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(tfile_fsync(f, false), 0);
	CHECK_EQ(tfile_truncate(f, 50000), 0);
	v->opt.mode = MODE_WRITEAROUND;
	write_at(f, 'C', 50000, 20000);
	CHECK_EQ(commit_file(f), 0);
	crash();
}

static void cut_is_redone_before_anybody_reads(void)
{
	begin(100000);
	CHECK_EQ(unit_child(crash_written_behind_a_cut, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		int c = byte_at(f, 60000);

		CHECK_EQ(tfile_size(f), 70000);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(byte_at(f, 60000), c);
		unuse(f);
		close_volume();
		CHECK_EQ(src_byte(60000), c);
		CHECK_EQ(src_byte(49000), 'A');
	}
	end();
}

/*
 * A checkpoint is storing a group while a batch makes it empty: the next checkpoint must take it
 * out of the catalog again, though nothing of it is left in memory.
 */
static void *checkpoint_slowly(void *arg)
{
	gates[C_SYNC] = arg; /* of the object: rows are copied, not stored */
	CHECK_EQ(volume_commit(v), 0);
	return NULL;
}

static void crash_after_punch_in_checkpoint(void *arg)
{
	struct gate g = { 0 };

	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 8192);
	CHECK_EQ(tfile_fsync(f, false), 0);
	pthread_t t = start(checkpoint_slowly, &g);

	CHECK(wait_for(&g.reached));
	CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192), 0);
	CHECK_EQ(tfile_fsync(f, false), 0);
	atomic_store(&g.open, true);
	pthread_join(t, NULL);
	CHECK_EQ(volume_commit(v), 0);
	crash();
}

static void punch_during_a_checkpoint_lasts(void)
{
	begin(65536);
	CHECK_EQ(unit_child(crash_after_punch_in_checkpoint, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(byte_at(f, 0), 0);
		CHECK_EQ(byte_at(f, 8191), 0);
		CHECK_EQ(byte_at(f, 8192), 'A');
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- a batch of several frames ------------------------------------------------------------ */
#define BATCH_FILES 6
#define BATCH_BYTES (SNAPSHOT_DATA_BLOCKS * BLOCK_BYTES) /* of each; it rides in the journal */

static struct tfile *batch_file(int i)
{
	char path[320];

	snprintf(path, sizeof(path), "%s/b%d", src_dir, i);
	put_src(path, 'A', 0, 0);
	struct tfile *f = get(path);

	CHECK_EQ(tfile_use(f, true), 0);
	return f;
}

static void *commit_batch(void *arg)
{
	struct gate *g = arg;
	struct tfile *files[BATCH_FILES];

	for (int i = 0; i < BATCH_FILES; i++) {
		files[i] = batch_file(i);
		write_at(files[i], 'B', 0, BATCH_BYTES);
	}
	gates[C_PWRITE] = g; /* of the second frame */
	gate_skips[C_PWRITE] = 1;
	(void)commit_files(v, files, BATCH_FILES);
	return NULL;
}

static void crash_in_batch(void *arg)
{
	struct gate g = { 0 };

	(void)arg;
	if (!open_volume())
		return;
	(void)start(commit_batch, &g);
	CHECK(wait_for(&g.reached));
	crash();
}

static void batch_counts_whole_or_not_at_all(void)
{
	begin(4096);
	CHECK_EQ(unit_child(crash_in_batch, NULL), CRASHED);
	if (open_volume()) {
		for (int i = 0; i < BATCH_FILES; i++) {
			struct tfile *f = batch_file(i);

			CHECK_EQ(tfile_size(f), 0);
			unuse(f);
		}
		close_volume();
	}
	end();
}

/*
 * I9: the zeros of a cut or a hole may be on SRC's disk before its new times are. A durable state
 * that calls the copies clean would fit SRC's stamp then.
 */
static struct tfile *about_to_be_zeroed(void)
{
	struct tfile *f = use();

	promote(f, 65536);
	CHECK_EQ(volume_commit(v), 0);
	zeroed_file = f;
	known_absent = false;
	return f;
}

static void copies_go_before_src_is_zeroed(void)
{
	begin(65536);
	if (open_volume()) {
		struct tfile *f = about_to_be_zeroed();

		CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 100),
			 0);
		zeroed_file = NULL;
		CHECK(known_absent);
		CHECK_EQ(byte_at(f, 4999), 'A');
		CHECK_EQ(byte_at(f, 5000), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void *cut_in_thread(void *arg)
{
	gates[C_FTRUNCATE] = arg;
	CHECK_EQ(tfile_truncate(zeroed_file, 5000), 0);
	return NULL;
}

static void copy_of_the_tail_goes_before_src_is_cut(void)
{
	struct gate g = { 0 };

	begin(65536);
	if (open_volume()) {
		struct tfile *f = about_to_be_zeroed();
		pthread_t t = start(cut_in_thread, &g);

		if (CHECK(wait_for(&g.reached)))
			look_at_second_block();
		atomic_store(&g.open, true);
		pthread_join(t, NULL);
		zeroed_file = NULL;
		CHECK(known_absent);
		CHECK_EQ(byte_at(f, 4999), 'A');
		unuse(f);
		close_volume();
	}
	end();
}

/*
 * A write-back pass and an append that comes at any moment of it (SRC's stats serve as moments):
 * SRC must not get the new size without the data, for a crash would show zeros then.
 */
static struct {
	struct gate gate;
	unsigned skips;
} pass;

static void *one_pass(void *arg)
{
	struct tfile *f = use();
	uint64_t bytes;

	(void)arg;
	gates[C_FSTAT] = &pass.gate;
	gate_skips[C_FSTAT] = pass.skips;
	CHECK_EQ(writeback_file(f, 1u << 20, false, &bytes), 0);
	gates[C_FSTAT] = NULL;
	unuse(f);
	return NULL;
}

static void src_is_not_grown_before_its_data(void)
{
	struct stat st;

	for (unsigned skips = 0; skips < 5; skips++) {
		begin(100);
		pass.gate = (struct gate){ 0 };
		pass.skips = skips;
		if (!open_volume())
			break;
		struct tfile *f = use();

		write_at(f, 'B', 0, 5000);
		pthread_t t = start(one_pass, NULL);

		if (wait_for(&pass.gate.reached))
			write_at(f, 'C', 5000, 9000);
		atomic_store(&pass.gate.open, true);
		pthread_join(t, NULL);
		CHECK_EQ(stat(src_file, &st), 0);
		CHECK_EQ(src_byte(4999), 'B');
		if (st.st_size > 5000)
			CHECK_EQ(src_byte((uint64_t)st.st_size - 1), 'C');
		unuse(f);
		close_volume();
		end();
	}
}

UNIT_MAIN({ "checksums_are_of_what_is_present", checksums_are_of_what_is_present },
	  { "checkpoint_misses_no_file", checkpoint_misses_no_file },
	  { "dirty_is_known_before_the_size", dirty_is_known_before_the_size },
	  { "pinned_files_are_settled_after_the_mount",
	    pinned_files_are_settled_after_the_mount },
	  { "unsettled_files_leave_the_volume_unclean",
	    unsettled_files_leave_the_volume_unclean },
	  { "replay_describes_objects", replay_describes_objects },
	  { "tail_is_zero_after_crash", tail_is_zero_after_crash },
	  { "no_hole_in_an_append_after_crash", no_hole_in_an_append_after_crash },
	  { "recovery_zeroes_the_tail", recovery_zeroes_the_tail },
	  { "recovery_zeroes_the_tail_of_src_size", recovery_zeroes_the_tail_of_src_size },
	  { "cut_does_not_make_src_longer", cut_does_not_make_src_longer },
	  { "cut_is_redone_before_anybody_reads", cut_is_redone_before_anybody_reads },
	  { "punch_during_a_checkpoint_lasts", punch_during_a_checkpoint_lasts },
	  { "batch_counts_whole_or_not_at_all", batch_counts_whole_or_not_at_all },
	  { "copies_go_before_src_is_zeroed", copies_go_before_src_is_zeroed },
	  { "copy_of_the_tail_goes_before_src_is_cut", copy_of_the_tail_goes_before_src_is_cut },
	  { "src_is_not_grown_before_its_data", src_is_not_grown_before_its_data })
