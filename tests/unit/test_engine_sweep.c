// SPDX-License-Identifier: GPL-2.0-or-later
/* Objects, rows and space that nobody needs any more: the sweep after a crash, and unmounting. */
#include "tests/unit/engine_fixture.h"

/* Space was released, or an object removed, and the SSD has not been synced since. */
static bool released_unsynced;

int fallocate(int fd, int mode, off_t off, off_t len)
{
	released_unsynced = true;
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

int unlinkat(int fd, const char *path, int flags)
{
	released_unsynced |= strcmp(path, "in-use") != 0; /* the mark itself goes last */
	return (int)syscall(SYS_unlinkat, fd, path, flags);
}

int syncfs(int fd)
{
	released_unsynced = false;
	return (int)syscall(SYS_syncfs, fd);
}

static void crash_after_unlink(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 8192);
	CHECK_EQ(volume_commit(v), 0);
	unlink(src_file);
	unuse(f);
	crash();
}

static uint64_t catalog_files(void)
{
	struct cat_totals t = { 0 };

	CHECK_EQ(catalog_totals(v->cat, &t), 0);
	return t.files;
}

/* Nothing of it is dirty, so nobody else would ever look at it. */
static void rows_of_gone_files_go_away(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_after_unlink, NULL), CRASHED);
	if (open_volume()) {
		CHECK_EQ(catalog_files(), 1);
		step(OBJECT_DIRS + 50);
		CHECK(!recover_pending(v));
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(catalog_files(), 0);
		close_volume();
	}
	end();
}

/* Unmounted before it was done: the next mount goes on. */
static void search_for_gone_files_outlives_a_mount(void)
{
	begin(8192);
	CHECK_EQ(unit_child(crash_after_unlink, NULL), CRASHED);
	for (int i = 0; i < 2; i++)
		if (open_volume()) {
			while (v->settling || v->sweeping)
				step(1);
			v->gone_at_ns = INT64_MAX;
			CHECK(recover_pending(v));
			CHECK_EQ(v->unclean, i == 0);
			close_volume();
		}
	if (open_volume()) {
		step(10);
		CHECK(!recover_pending(v));
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(catalog_files(), 0);
		close_volume();
	}
	if (open_volume()) {
		CHECK(!recover_pending(v));
		close_volume();
	}
	end();
}

static void crash_with_two(void *arg)
{
	char path[300];

	(void)arg;
	if (!open_volume())
		return;
	snprintf(path, sizeof(path), "%s/other", src_dir);
	put_src(path, 'O', 0, 8192);
	struct tfile *f = use(), *other = get(path);

	CHECK_EQ(tfile_use(other, true), 0);
	promote(f, 8192);
	promote(other, 8192);
	CHECK_EQ(volume_commit(v), 0);
	crash();
}

/* A file that is there, or unlinked but in use again, keeps its row. */
static void files_in_use_are_not_gone(void)
{
	char path[300];

	begin(8192);
	CHECK_EQ(unit_child(crash_with_two, NULL), CRASHED);
	snprintf(path, sizeof(path), "%s/other", src_dir);
	if (open_volume()) {
		struct tfile *other = get(path);

		CHECK_EQ(tfile_use(other, true), 0);
		unlink(path);
		step(OBJECT_DIRS + 50);
		CHECK(!recover_pending(v));
		CHECK_EQ(catalog_files(), 2);
		CHECK_EQ(byte_at(other, 100), 'O');
		unuse(other);
		close_volume();
	}
	end();
}

/* A power cut soon after the unmount undoes the release, and nobody sweeps after a clean one. */
static void space_is_released_before_the_clean_mark(void)
{
	begin(2u << 20);
	if (open_volume()) {
		struct tfile *f = use();
		uint64_t bytes;

		promote(f, 512 << 10);
		CHECK_EQ(volume_commit(v), 0);
		released_unsynced = false;
		CHECK_EQ(evict_range(f, 0, 256 << 10, &bytes), 0);
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(reclaim_file(f), 0);
		CHECK(released_unsynced);
		unuse(f);
		close_volume();
		CHECK(!released_unsynced);
	}
	end();
}

/* The same of the object of a file that has nothing on the SSD any more. */
static void objects_are_removed_before_the_clean_mark(void)
{
	begin(8192);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 8192);
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(demote(f), 0);
		unuse(f);
		close_volume();
		CHECK(!released_unsynced);
	}
	end();
}

static void crash_unlinked(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	write_at(f, 'B', 0, 4096);
	CHECK_EQ(volume_commit(v), 0);
	unlink(src_file); /* an open temporary file without a name */
	crash();
}

static void orphan_of_a_crash_goes_away(void)
{
	uint64_t bytes, left = 0;
	int r, n = 0;

	begin(8192);
	CHECK_EQ(unit_child(crash_unlinked, NULL), CRASHED);
	if (open_volume()) {
		step(50);
		CHECK_EQ(dirty_bytes(), 0);
		while ((r = volume_flush_step(v, 1u << 20, &bytes, &left)) > 0 && n++ < 100)
			;
		CHECK_EQ(r, 0);
		close_volume();
	}
	end();
}

static uint64_t object_bytes(struct tfile *f)
{
	struct stat st;

	return syscall(SYS_newfstatat, f->obj_fd, "", &st, AT_EMPTY_PATH) < 0
		       ? UINT64_MAX
		       : (uint64_t)st.st_blocks * 512;
}

static void crash_with_a_leak(void *arg)
{
	(void)arg;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, 128u << 10);
	CHECK_EQ(volume_commit(v), 0);
	write_at(f, 'C', 128u << 10, 16384); /* not synced */
	crash();
}

/* Before the sweep comes to it its row has gone, with the data, and some of the data is back: what
 * the crash has left in the object is nobody's all the same. */
static void leak_of_a_file_without_a_row_is_released(void)
{
	begin(128u << 10);
	CHECK_EQ(unit_child(crash_with_a_leak, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		struct range busy;

		/* Or the object would be emptied in one go. */
		range_lock(&f->ranges, &busy, 1ull << 40, (1ull << 40) + 4096, false);
		CHECK_EQ(demote(f), 0);
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(catalog_files(), 0);
		step(600);
		CHECK(!recover_pending(v));
		range_unlock(&f->ranges, &busy);
		promote(f, 64u << 10);
		CHECK(object_bytes(f) <= (64u << 10) + 4096);
		unuse(f);
		close_volume();
	}
	end();
}

/* Its last user is the promotion queue, which nobody works off any more. */
static void umount_buries_what_waited_for_promotion(void)
{
	begin(1u << 20);
	if (open_volume()) {
		struct tfile *f = use();

		promote(f, 8192);
		CHECK_EQ(volume_commit(v), 0);
		CHECK_EQ(tfile_promote_later(f, 512u << 10, 4096), 0);
		unlink(src_file);
		tfile_dead(f);
		unuse(f);
		close_volume();
	}
	if (open_volume()) {
		CHECK(!v->unclean);
		CHECK_EQ(catalog_files(), 0);
		close_volume();
	}
	end();
}

UNIT_MAIN({ "space_is_released_before_the_clean_mark",
	    space_is_released_before_the_clean_mark },
	  { "objects_are_removed_before_the_clean_mark",
	    objects_are_removed_before_the_clean_mark },
	  { "orphan_of_a_crash_goes_away", orphan_of_a_crash_goes_away },
	  { "rows_of_gone_files_go_away", rows_of_gone_files_go_away },
	  { "search_for_gone_files_outlives_a_mount",
	    search_for_gone_files_outlives_a_mount },
	  { "files_in_use_are_not_gone", files_in_use_are_not_gone },
	  { "leak_of_a_file_without_a_row_is_released",
	    leak_of_a_file_without_a_row_is_released },
	  { "umount_buries_what_waited_for_promotion",
	    umount_buries_what_waited_for_promotion })
