// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The check: each inconsistency is made by hand on a closed volume, found by a dry run that changes
 * nothing, repaired, and not found again; what the mount shows afterwards is right. Read errors are
 * injected below the engine. The check never writes to SRC. (Catalog and journal: in
 * test_check_catalog.c.)
 */
#include <sys/syscall.h>

#include "tests/unit/check_fixture.h"

/* ---- read errors -------------------------------------------------------------------------- */
static struct {
	ino_t ino;
	off_t from, to;
} bad;

ssize_t injected_pread(int fd, void *buf, size_t len, off_t off) __asm__("pread64");
ssize_t injected_pread(int fd, void *buf, size_t len, off_t off)
{
	struct stat st;

	if (bad.ino && off < bad.to && off + (off_t)len > bad.from && fstat(fd, &st) == 0 &&
	    st.st_ino == bad.ino) {
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pread64, fd, buf, len, off);
}

static void break_file(const char *path, off_t from, off_t to)
{
	struct stat st;

	CHECK_EQ(stat(path, &st), 0);
	bad.ino = st.st_ino;
	bad.from = from;
	bad.to = to;
}

/* ---- nothing wrong ------------------------------------------------------------------------ */
static void good_volume(void)
{
	world_new();
	for (unsigned flags = 0; flags < 4; flags++) {
		uint64_t src = hash_of(w.src_path), ssd = hash_of(w.ssd_path);

		CHECK_EQ(run_check(flags), 0);
		if (!CHECK_EQ(w.n_found, 0))
			print_found();
		CHECK_EQ(w.result.files, FILES + 1);
		CHECK_EQ(w.result.objects, FILES);
		CHECK_EQ(w.result.checked_bytes > 1u << 20, (flags & SCRUB) != 0);
		CHECK(hash_of(w.src_path) == src);
		CHECK((flags & REPAIR) || hash_of(w.ssd_path) == ssd);
	}
	look_by_mount();
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	world_release();
}

static void no_volume_or_mounted(void)
{
	world_dirs();
	CHECK_EQ(run_check(0), -ENOENT);
	CHECK_EQ(run_check(REPAIR), -ENOENT);
	CHECK_EQ(access(w.ssd_path, F_OK), -1);
	CHECK_EQ(mkdir(w.ssd_path, 0700), 0);
	CHECK_EQ(run_check(REPAIR), -ENOENT);
	CHECK(strstr(w.error, "no volume"));
	CHECK_EQ(rmdir(w.ssd_path), 0); /* nothing was made */
	world_files();
	CHECK(engine_open(64u << 20));
	CHECK_EQ(run_check(0), -EBUSY);
	CHECK(strstr(w.error, "mounted"));
	CHECK_EQ(run_check(REPAIR), -EBUSY);
	engine_close();
	CHECK_EQ(run_check(0), 0);
	CHECK_EQ(w.n_found, 0);
	sql("PRAGMA user_version = 3");
	CHECK_EQ(run_check(REPAIR), -EPROTONOSUPPORT);
	CHECK(strstr(w.error, "newer"));
	world_release();
}

static void interrupted_by_caller(void)
{
	world_new();
	for (int i = 0; i < 4; i++) {
		w.stop_after = i;
		CHECK_EQ(run_check(REPAIR | SCRUB), -EINTR);
	}
	w.stop_after = -1;
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	world_release();
}

/* ---- rows and SRC ------------------------------------------------------------------------- */
static void src_gone(void)
{
	char bytes[50];

	world_new();
	CHECK_EQ(unlink(path_of(w.src_path, "clean")), 0);
	expect(0, "src-gone", "clean");
	CHECK_EQ(lost_size("-clean"), -1);
	CHECK_EQ(id_of("clean"), 0);
	CHECK_EQ(unlink(path_of(w.src_path, "dirty")), 0);
	expect(0, "src-gone", "dirty");
	CHECK_EQ(id_of("dirty"), 0);
	lost_read("-dirty", bytes, sizeof(bytes), 150000);
	CHECK(memcmp(bytes, w.files[DIRTY].data + 150000, sizeof(bytes)) == 0);
	CHECK_EQ(rename(path_of(w.src_path, "dir/deep"), path_of(w.src_path, "deep")), 0);
	CHECK_EQ(rmdir(path_of(w.src_path, "dir")), 0);
	expect(0, "src-gone", "dir"); /* the pin; the file was only renamed */
	world_release();
}

static void src_gone_and_object_too(void)
{
	world_new();
	CHECK_EQ(unlink(object_of("dirty")), 0);
	CHECK_EQ(unlink(path_of(w.src_path, "dirty")), 0);
	expect(0, "src-gone", "dirty");
	world_release();
}

static void src_changed(void)
{
	world_new();
	scribble(path_of(w.src_path, "clean"), 5, 1);
	w.files[CLEAN].data[5] = 'X';
	expect(NOTE, "src-changed", "clean");
	CHECK_EQ(w.n_found, 0);
	CHECK_EQ(id_of("clean"), 0);
	/* ctime alone: its content may have changed */
	CHECK_EQ(chmod(path_of(w.src_path, "sparse"), 0600), 0);
	expect(NOTE, "src-changed", "sparse");
	/* also under dirty data, which stays */
	CHECK_EQ(chmod(path_of(w.src_path, "dirty"), 0600), 0);
	expect(NOTE, "src-changed", "dirty");
	CHECK_EQ(flags_of("dirty"), CAT_F_ATTR_OWNED);
	look_by_mount();
	world_release();
}

static void src_changed_under_dirty_data(void)
{
	world_new();
	scribble(path_of(w.src_path, "dirty"), 5, 1);
	expect(0, "conflict", "dirty");
	CHECK(flags_of("dirty") & CAT_F_CONFLICT);
	CHECK(find("conflict", "dirty") && find("conflict", "dirty")->note);
	look_by_mount();
	/* By our own hand: no conflict. */
	sql("UPDATE files SET flags = flags | 8 WHERE path = CAST('grown' AS BLOB)");
	CHECK_EQ(truncate(path_of(w.src_path, "grown"), 6000), 0);
	CHECK_EQ(run_check(0), 0);
	CHECK_EQ(w.result.findings, 0);
	world_release();
}

static void src_unreadable(void)
{
	world_new();
	break_file(path_of(w.src_path, "clean"), 270000, 280000);
	expect_dry(SCRUB | LEFT | READ_ONLY, "src-unreadable", "clean");
	expect_dry(SCRUB, "src-unreadable", "clean");
	CHECK_EQ(run_check(SCRUB | REPAIR), 0);
	CHECK_EQ(w.result.repaired, 1);
	bad.ino = 0;
	CHECK_EQ(flags_of("clean"), CAT_F_ATTR_OWNED);
	/* Written back, it is in SRC again. */
	CHECK(engine_open(64u << 20));
	uint64_t bytes, left;

	while (volume_flush_step(w.v, 1u << 20, &bytes, &left) > 0)
		;
	CHECK_EQ(left, 0);
	engine_close();
	CHECK_EQ(flags_of("clean"), 0);
	look_by_mount();
	world_release();
}

static void both_unreadable(void)
{
	world_new();
	scribble(object_of("clean"), 270000, 1);
	break_file(path_of(w.src_path, "clean"), 270000, 270001);
	expect(SCRUB | LEFT, "unreadable-both", "clean");
	bad.ino = 0;
	world_release();
}

/* ---- objects ------------------------------------------------------------------------------ */
static void object_missing(void)
{
	world_new();
	CHECK_EQ(unlink(object_of("clean")), 0);
	expect(0, "object-missing", "clean");
	CHECK_EQ(unlink(object_of("dir/deep")), 0);
	expect(0, "object-missing", "dir/deep");
	CHECK_EQ(flags_of("dir/deep"), CAT_F_PINNED);
	look_by_mount();
	CHECK_EQ(unlink(object_of("new")), 0);
	expect(LEFT, "dirty-lost", "new");
	world_release();
}

static void object_short(void)
{
	world_new();
	CHECK_EQ(truncate(object_of("clean"), 299008), 0);
	expect(0, "object-short", "clean");
	/* Within a block: the part that is left is no block. */
	CHECK_EQ(truncate(object_of("clean"), 100001), 0);
	expect(0, "object-short", "clean");
	CHECK_EQ(truncate(object_of("sparse"), 100), 0);
	expect(0, "object-short", "sparse");
	look_by_mount();
	CHECK_EQ(truncate(object_of("grown"), 9000), 0);
	expect(LEFT, "dirty-lost", "grown");
	world_release();
}

/* Clean blocks in a hole: looked at without --scrub. */
static void object_with_a_hole(void)
{
	world_new();
	int fd = open(object_of("clean"), O_WRONLY);

	CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536), 0);
	close(fd);
	expect(0, "object-corrupt", "clean");
	look_by_mount();
	world_release();
}

static void object_unreadable(void)
{
	world_new();
	break_file(object_of("clean"), 0, 1);
	expect_dry(SCRUB, "object-unreadable", "clean");
	expect_repair(SCRUB, "object-unreadable", "clean");
	bad.ino = 0;
	look_by_mount();
	const char *object = object_of("dirty");

	CHECK_EQ(unlink(object), 0);
	CHECK_EQ(mkdir(object, 0700), 0);
	expect(LEFT, "object-unreadable", "dirty");
	world_release();
}

static void object_space(void)
{
	world_new();
	scribble(object_of("part"), 50, 1);
	scribble(object_of("part"), 900000, 10);
	expect(0, "space", "part");
	scribble(object_of("clean"), 10u << 20, 1);
	expect(0, "space", "clean");
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	look_by_mount();
	world_release();
}

static void object_description(void)
{
	world_new();
	CHECK_EQ(removexattr(object_of("clean"), DESCRIPTION), 0);
	expect(0, "object-description", "clean");
	CHECK_EQ(setxattr(object_of("dirty"), DESCRIPTION, "2 what", 6, 0), 0);
	expect(0, "object-description", "dirty");
	/* It is good enough to rebuild from. */
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("conflict", "dirty"));
	CHECK_EQ(w.result.findings, 4);
	world_release();
}

static void forget_row(const char *path)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "PRAGMA foreign_keys = 1; DELETE FROM files WHERE path = CAST('%s' AS BLOB)",
		 path);
	sql(text);
}

static void object_orphan(void)
{
	world_new();
	forget_row("clean");
	expect(0, "object-orphan", "clean");
	CHECK_EQ(lost_size("-clean"), -1);
	/* On a clean volume, every row that was committed is there. */
	forget_row("dirty");
	expect(0, "object-orphan", "dirty");
	CHECK(lost_size("-dirty") > 0);
	/* After a crash, what was not committed was not promised. */
	sql("UPDATE meta SET value = '0' WHERE key = 'clean'");
	forget_row("grown");
	expect(0, "object-orphan", "grown");
	CHECK_EQ(lost_size("-grown"), -1);
	/* Unless the catalog is older than the object. */
	sql("UPDATE meta SET value = '1' WHERE key = 'next_id'");
	forget_row("new");
	expect(0, "object-orphan", "new");
	CHECK(lost_size("-new") > 0);
	world_release();
}

static void object_foreign(void)
{
	world_new();
	close(open(path_of(volume_path(), "objects/00/readme"), O_WRONLY | O_CREAT, 0600));
	close(open(path_of(volume_path(), "objects/00/0000000000000001"), O_WRONLY | O_CREAT,
		   0600));
	expect(NOTE, "object-foreign", NULL);
	CHECK_EQ(w.result.notes, 2);
	world_release();
}

/* ---- rows --------------------------------------------------------------------------------- */
static void sum_of_nothing(struct cat_group *g)
{
	g->sum_valid |= 1u << 0 | 1u << 20;
}

static void pin_an_extent(struct cat_group *g)
{
	g->pinned |= 2;
}

static void rows(void)
{
	world_new();
	edit_group("part", 0, sum_of_nothing);
	expect(0, "row", "part");
	edit_group("clean", 0, pin_an_extent);
	expect(0, "row", "clean");
	CHECK_EQ(flags_of("clean"), CAT_F_PIN_RANGES);
	sql("UPDATE files SET flags = flags | 64 WHERE path = CAST('dirty' AS BLOB)");
	expect(0, "row", "dirty");
	sql("UPDATE files SET flags = flags | 32 WHERE path = CAST('sparse' AS BLOB)");
	expect(0, "row", "sparse");
	sql("UPDATE files SET size = -5 WHERE path = CAST('grown' AS BLOB)");
	expect(0, "row", "grown");
	sql("UPDATE files SET flags = 2 WHERE path = CAST('dir' AS BLOB)");
	expect(0, "row", "dir");
	w.files[GROWN].size = 20480;
	w.files[GROWN].data = realloc(w.files[GROWN].data, 20480);
	memset(w.files[GROWN].data + 20000, 0, 480);
	look_by_mount();
	world_release();
}

static void block_behind_the_end(struct cat_group *g)
{
	g->present[40] |= 1; /* block 320: 1.25 MiB */
}

static void dirty_behind_the_end(struct cat_group *g)
{
	g->present[40] |= 3;
	g->dirty[40] |= 3;
}

static void beyond_end(void)
{
	char bytes[3];

	world_new();
	scribble(object_of("clean"), 320 * 4096, 4096);
	edit_group("clean", 0, block_behind_the_end);
	expect(0, "beyond-end", "clean");
	CHECK_EQ(lost_size(".saved"), -1);
	/* Zeros are worth nothing. */
	CHECK_EQ(truncate(object_of("dirty"), 322 * 4096), 0);
	edit_group("dirty", 0, dirty_behind_the_end);
	expect(0, "beyond-end", "dirty");
	CHECK_EQ(lost_size(".saved"), -1);
	scribble(object_of("dirty"), 321 * 4096, 4096);
	edit_group("dirty", 0, dirty_behind_the_end);
	expect(0, "beyond-end", "dirty");
	lost_read(".saved", bytes, 3, 321 * 4096);
	CHECK(memcmp(bytes, "XXX", 3) == 0);
	look_by_mount();
	world_release();
}

/* ---- scrub -------------------------------------------------------------------------------- */
static void forget_sums(struct cat_group *g)
{
	g->sum_valid = 0;
}

/* SRC's bytes change, and its stamp does not. */
static void rot(const char *name, uint64_t off)
{
	struct stat st;
	char text[300];

	scribble(path_of(w.src_path, name), off, 1);
	CHECK_EQ(stat(path_of(w.src_path, name), &st), 0);
	snprintf(text, sizeof(text),
		 "UPDATE files SET src_mtime_ns = %lld%09ld, src_ctime_ns = %lld%09ld"
		 " WHERE path = CAST('%s' AS BLOB)",
		 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec,
		 st.st_ctim.tv_nsec, name);
	sql(text);
}

static void scrub_object_corrupt(void)
{
	world_new();
	scribble(object_of("clean"), 300000, 1);
	scribble(object_of("sparse"), SPARSE_DATA + 70000, 1);
	CHECK_EQ(run_check(0), 0);
	CHECK_EQ(w.n_found, 0);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.result.findings, 2);
	CHECK(find("object-corrupt", "clean") && find("object-corrupt", "sparse"));
	CHECK_EQ(run_check(SCRUB | REPAIR), 0);
	CHECK_EQ(w.result.repaired, 2);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	look_by_mount();
	world_release();
}

static void scrub_without_sums(void)
{
	char byte;

	world_new();
	edit_group("clean", 0, forget_sums);
	scribble(object_of("clean"), 300000, 1);
	expect(SCRUB, "object-differs", "clean");
	lost_read(".saved", &byte, 1, 300000);
	CHECK_EQ(byte, 'X');
	look_by_mount();
	world_release();
}

static void scrub_wrong_sum(void)
{
	world_new();
	sql("UPDATE groups SET sums = zeroblob(length(sums)) WHERE file_id = " ID_OF("clean"));
	expect(SCRUB, "checksum-wrong", "clean");
	CHECK_EQ(w.result.checked_bytes > 0, 1);
	look_by_mount();
	world_release();
}

static void scrub_src_differs(void)
{
	world_new();
	rot("clean", 300000);
	CHECK_EQ(run_check(0), 0);
	CHECK_EQ(w.n_found, 0);
	expect(SCRUB, "src-differs", "clean");
	CHECK_EQ(flags_of("clean"), CAT_F_ATTR_OWNED | CAT_F_CONFLICT);
	look_by_mount(); /* shows what was there at the last sync */
	world_release();
}

/* ---- without handles ---------------------------------------------------------------------- */
static void renamed_without_handles(void)
{
	world_new();
	CHECK_EQ(mkdir(path_of(w.src_path, "dir/below"), 0755), 0);
	CHECK_EQ(rename(path_of(w.src_path, "dirty"), path_of(w.src_path, "dir/below/moved")), 0);
	CHECK_EQ(rename(path_of(w.src_path, "part"), path_of(w.src_path, "part2")), 0);
	sql("UPDATE files SET src_ctime_ns = 0, flags = flags | 8 WHERE path IN"
	    " (CAST('dirty' AS BLOB), CAST('part' AS BLOB))"); /* renaming moved it */
	CHECK_EQ(run_check(BY_PATH), 0);
	CHECK_EQ(w.result.findings, 0);
	CHECK(find("moved", "dir/below/moved") && find("moved", "part2"));
	CHECK_EQ(run_check(BY_PATH | REPAIR), 0);
	CHECK_EQ(w.result.findings, 0);
	CHECK(id_of("dir/below/moved") && id_of("part2"));
	CHECK_EQ(run_check(BY_PATH), 0);
	CHECK_EQ(w.n_found, 0);
	/* Gone for good. */
	CHECK_EQ(unlink(path_of(w.src_path, "dir/below/moved")), 0);
	expect(BY_PATH, "src-gone", "dir/below/moved");
	CHECK(lost_size("-moved") > 0);
	world_release();
}

UNIT_MAIN({ "good_volume", good_volume }, { "no_volume_or_mounted", no_volume_or_mounted },
	  { "interrupted_by_caller", interrupted_by_caller }, { "src_gone", src_gone },
	  { "src_gone_and_object_too", src_gone_and_object_too }, { "src_changed", src_changed },
	  { "src_changed_under_dirty_data", src_changed_under_dirty_data },
	  { "src_unreadable", src_unreadable }, { "both_unreadable", both_unreadable },
	  { "object_missing", object_missing }, { "object_short", object_short },
	  { "object_with_a_hole", object_with_a_hole }, { "object_unreadable", object_unreadable },
	  { "object_space", object_space }, { "object_description", object_description },
	  { "object_orphan", object_orphan }, { "object_foreign", object_foreign },
	  { "rows", rows }, { "beyond_end", beyond_end },
	  { "scrub_object_corrupt", scrub_object_corrupt },
	  { "scrub_without_sums", scrub_without_sums }, { "scrub_wrong_sum", scrub_wrong_sum },
	  { "scrub_src_differs", scrub_src_differs },
	  { "renamed_without_handles", renamed_without_handles })
