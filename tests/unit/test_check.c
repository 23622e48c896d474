// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The check: each inconsistency is made by hand on a closed volume, found by a dry run that changes
 * nothing, repaired, and not found again; what the mount shows afterwards is right. Read errors are
 * injected below the engine. The check never writes to SRC.
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

/* ---- dry, repair, again ------------------------------------------------------------------- */
#define NOTE 16u /* expected as a note */
#define LEFT 32u /* cannot be repaired */

/* The dry run finds exactly this, and changes nothing. */
static void expect_dry(unsigned flags, const char *kind, const char *path)
{
	uint64_t src = hash_of(w.src_path), ssd = hash_of(w.ssd_path);
	unsigned failures = (unsigned)unit_failures;

	CHECK_EQ(run_check(flags & (SCRUB | BY_PATH | READ_ONLY)), 0);
	const struct found *f = find(kind, path);

	if (CHECK(f)) {
		CHECK_EQ(f->note, (flags & NOTE) != 0);
		if (!(flags & NOTE))
			CHECK_EQ(f->outcome, flags & LEFT ? CHECK_LEFT : CHECK_WOULD);
	}
	CHECK_EQ(w.result.findings, (flags & NOTE) ? 0 : 1);
	CHECK_EQ(w.result.left, w.result.findings);
	CHECK_EQ(w.result.repaired, 0);
	CHECK(hash_of(w.src_path) == src);
	CHECK(hash_of(w.ssd_path) == ssd);
	if (failures != (unsigned)unit_failures)
		print_found();
}

/* Repaired; not found again. SRC is as it was. */
static void expect_repair(unsigned flags, const char *kind, const char *path)
{
	uint64_t src = hash_of(w.src_path);
	unsigned checks = flags & (SCRUB | BY_PATH | READ_ONLY), left = flags & LEFT ? 1 : 0;
	unsigned failures = (unsigned)unit_failures;

	CHECK_EQ(run_check(REPAIR | checks), 0);
	const struct found *f = find(kind, path);

	if (CHECK(f) && f->outcome != CHECK_NOTED)
		CHECK_EQ(f->outcome, left ? CHECK_LEFT : CHECK_DONE);
	CHECK_EQ(w.result.left, left);
	CHECK_EQ(w.result.findings, w.result.left + w.result.repaired);
	CHECK(hash_of(w.src_path) == src);
	if (failures != (unsigned)unit_failures)
		print_found();
	CHECK_EQ(run_check(checks), 0);
	if (!CHECK_EQ(w.result.findings, left))
		print_found();
}

static void expect(unsigned flags, const char *kind, const char *path)
{
	expect_dry(flags, kind, path);
	expect_repair(flags, kind, path);
}

/* One file of lost+found whose name has this in it: its size, or -1. */
static off_t lost_size(const char *part)
{
	char *lost = path_of(volume_path(), "lost+found");
	DIR *dir = opendir(lost);
	struct dirent *e;
	off_t size = -1;

	while (dir && (e = readdir(dir))) {
		struct stat st;

		if (strstr(e->d_name, part) && !strstr(e->d_name, ".txt") &&
		    fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
			size = st.st_size;
	}
	if (dir)
		closedir(dir);
	return size;
}

/* Bytes of that file at an offset. */
static void lost_read(const char *part, void *buf, size_t len, off_t off)
{
	char *lost = path_of(volume_path(), "lost+found");
	DIR *dir = opendir(lost);
	struct dirent *e;

	memset(buf, 0, len);
	while (dir && (e = readdir(dir)))
		if (strstr(e->d_name, part) && !strstr(e->d_name, ".txt")) {
			int fd = openat(dirfd(dir), e->d_name, O_RDONLY);

			(void)!pread(fd, buf, len, off);
			close(fd);
		}
	if (dir)
		closedir(dir);
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
	sql("PRAGMA user_version = 2");
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

/* ---- the catalog -------------------------------------------------------------------------- */
/* How the catalog is lost, and whether its rows still bear witness. */
static void lose_catalog(int how)
{
	char *db = path_of(volume_path(), "catalog.db");

	switch (how) {
	case 0:
		CHECK_EQ(unlink(db), 0);
		break;
	case 1:
		CHECK_EQ(truncate(db, 0), 0);
		break;
	case 2:
		CHECK_EQ(truncate(db, 20000), 0);
		break;
	case 3:
		scribble(db, 0, 64);
		break;
	case 4:
		CHECK_EQ(unlink(db), 0);
		CHECK_EQ(mkdir(db, 0700), 0);
		break;
	case 5: /* a link leads elsewhere */
		CHECK_EQ(unlink(db), 0);
		CHECK_EQ(symlink("/dev/null", db), 0);
		break;
	default: /* everything is readable, and the totals are wrong */
		sql("UPDATE totals SET present_n = present_n + 1");
	}
}

static void rebuilt_without_witness(int how)
{
	const char *kind = how == 0 ? "catalog-missing" : "catalog-damaged";
	uint64_t src, ssd;

	world_new();
	lose_catalog(how);
	src = hash_of(w.src_path);
	ssd = hash_of(w.ssd_path);
	for (unsigned flags = 0; flags < 2; flags++) { /* dry, then repair */
		CHECK_EQ(run_check(flags), 0);
		CHECK(find(kind, NULL));
		/* Nobody knows which is newer. */
		CHECK_EQ(w.result.findings, 4);
		CHECK_EQ(flags ? w.result.repaired : w.result.left, 4);
		if (!CHECK(find("conflict", "dirty") && find("conflict", "grown") &&
			   find("conflict", "new")))
			print_found();
		CHECK(hash_of(w.src_path) == src);
		CHECK(flags || hash_of(w.ssd_path) == ssd);
	}
	CHECK(flags_of("dirty") & CAT_F_CONFLICT);
	CHECK_EQ(flags_of("clean"), 0);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.result.findings, 0);
	CHECK_EQ(w.result.notes, 3);
	CHECK(hash_of(w.src_path) == src);
	round_up_sizes();
	look_by_mount();
	world_release();
}

static void catalog_lost(void)
{
	for (int how = 0; how < 6; how++)
		rebuilt_without_witness(how);
}

/* Where SRC is as the old rows say, they are believed: no conflict, exact sizes, pins. */
static void catalog_damaged_rows_readable(void)
{
	world_new();
	lose_catalog(99);
	expect(0, "catalog-damaged", NULL);
	CHECK_EQ(flags_of("dirty"), CAT_F_ATTR_OWNED);
	CHECK_EQ(flags_of("part"), CAT_F_PIN_RANGES);
	CHECK_EQ(flags_of("dir/deep"), CAT_F_PINNED);
	CHECK_EQ(flags_of("dir"), CAT_F_PINNED | CAT_F_DIR);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	look_by_mount();
	world_release();
}

/* One group cannot be read: only its file is in conflict, and only if it differs. */
static void catalog_damaged_one_row(void)
{
	world_new();
	sql("UPDATE groups SET present_n = present_n + 1 WHERE file_id = " ID_OF("dirty"));
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK_EQ(w.result.findings, 2);
	CHECK(find("catalog-damaged", NULL) && find("conflict", "dirty"));
	CHECK_EQ(flags_of("grown"), CAT_F_ATTR_OWNED);
	look_by_mount();
	world_release();

	world_new();
	sql("UPDATE groups SET present_n = present_n + 1 WHERE file_id = " ID_OF("clean"));
	expect(0, "catalog-damaged", NULL);
	CHECK_EQ(flags_of("clean"), 0);
	look_by_mount();
	world_release();

	/* SRC was changed as well: then nothing bears the row out. */
	world_new();
	sql("UPDATE totals SET present_n = present_n + 1");
	scribble(path_of(w.src_path, "dirty"), 3, 1);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("conflict", "dirty"));
	CHECK_EQ(w.result.findings, 2);
	CHECK(flags_of("dirty") & CAT_F_CONFLICT);
	world_release();
}

/* Objects that cannot be assigned are kept, whatever is in them. */
static void catalog_lost_and_descriptions_too(void)
{
	char byte[3];

	world_new();
	removexattr(object_of("dirty"), DESCRIPTION);
	setxattr(object_of("grown"), DESCRIPTION, "1 nonsense", 10, 0);
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	CHECK_EQ(unlink(path_of(w.src_path, "new")), 0);
	CHECK_EQ(run_check(0), 0);
	CHECK_EQ(w.result.findings, 4);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("object-orphan", NULL) && find("src-gone", "new"));
	CHECK_EQ(w.result.repaired, 4);
	lost_read("-new", byte, 3, 7);
	CHECK(memcmp(byte, w.files[NEW].data + 7, 3) == 0);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.n_found, 0);
	world_release();
}

/* ---- the journal -------------------------------------------------------------------------- */
static void crashed(void)
{
	world_crashed();
	uint64_t src = hash_of(w.src_path), ssd = hash_of(w.ssd_path);

	for (unsigned flags = 0; flags < 4; flags++) {
		restore_ssd();
		ssd = hash_of(w.ssd_path);
		CHECK_EQ(run_check(flags), 0);
		CHECK_EQ(w.result.findings, 0);
		CHECK(find("unclean", NULL) && find("journal", NULL));
		CHECK_EQ(w.result.files, FILES + 1);
		CHECK(hash_of(w.src_path) == src);
		CHECK((flags & REPAIR) || hash_of(w.ssd_path) == ssd);
		CHECK_EQ(run_check(flags), 0);
		CHECK_EQ(w.result.findings, 0);
		CHECK_EQ(find("journal", NULL) != NULL, !(flags & REPAIR));
		look_by_mount();
	}
	world_release();
}

/* What a power cut takes from an object is in the journal. */
static void crashed_with_data_in_the_journal(void)
{
	world_crashed();
	const char *object = path_of(volume_path(), "objects/07/0000000000000007");

	CHECK_EQ(unlink(object), 0);
	expect_dry(NOTE, "journal", NULL);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK_EQ(w.result.findings, 0);
	CHECK_EQ(run_check(SCRUB), 0);
	CHECK_EQ(w.result.findings, 0);
	look_by_mount();
	/* Also if the catalog is lost, as long as it still says where the journal starts. */
	restore_ssd();
	CHECK_EQ(unlink(object), 0);
	sql("UPDATE totals SET present_n = present_n + 1");
	expect(0, "catalog-damaged", NULL);
	look_by_mount();
	world_release();
}

static void journal_lost(void)
{
	world_crashed();
	round_up_sizes();
	for (int how = 0; how < 3; how++) {
		char *journal = path_of(volume_path(), "journal.1");

		restore_ssd();
		if (how == 0)
			CHECK_EQ(unlink(journal), 0);
		else if (how == 1)
			scribble(journal, 20, 30);
		else
			CHECK_EQ(truncate(journal, 0), 0);
		CHECK_EQ(run_check(0), 0);
		CHECK(find("journal-lost", NULL) && find("conflict", "dirty"));
		CHECK_EQ(w.result.findings, 4);
		CHECK_EQ(run_check(REPAIR), 0);
		CHECK_EQ(w.result.repaired, 4);
		CHECK_EQ(run_check(SCRUB), 0);
		CHECK_EQ(w.result.findings, 0);
		look_by_mount();
	}
	world_release();
}

/* The catalog knows the dirty data of a checkpoint, and not what came after. */
static void journal_lost_after_a_checkpoint(void)
{
	struct tfile *f[2];

	world_new();
	CHECK(engine_open(64u << 20));
	for (int i = 0; i < 2; i++)
		f[i] = engine_use(w.files[GROWN + i].name);
	engine_write(f[0], &w.files[GROWN], 20000, 100);
	engine_write(f[1], &w.files[NEW], 500, 100);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(tfile_fsync(f[i], false), 0);
		engine_unuse(f[i]);
	}
	save_ssd();
	engine_close();
	restore_ssd();
	shell("rm '%s'/journal.*", volume_path());
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("journal-lost", NULL) && find("conflict", "grown"));
	CHECK_EQ(w.result.findings, 2);
	CHECK_EQ(flags_of("dirty"), CAT_F_ATTR_OWNED);
	CHECK_EQ(flags_of("dir"), CAT_F_PINNED | CAT_F_DIR);
	w.files[GROWN].data = realloc(w.files[GROWN].data, 20480);
	memset(w.files[GROWN].data + w.files[GROWN].size, 0, 380);
	w.files[GROWN].size = 20480;
	look_by_mount();
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
		 "PRAGMA foreign_keys = 1; DELETE FROM files WHERE path = CAST('%s' AS BLOB)", path);
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
	scribble(object_of("sparse"), (33u << 20) + 70000, 1);
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

static void rebuilt_without_handles(void)
{
	world_new();
	CHECK_EQ(rename(path_of(w.src_path, "dirty"), path_of(w.src_path, "dir/moved")), 0);
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	CHECK_EQ(run_check(REPAIR | BY_PATH), 0);
	CHECK_EQ(w.result.findings, 4);
	CHECK(find("conflict", "dir/moved"));
	CHECK_EQ(run_check(BY_PATH), 0);
	CHECK_EQ(w.result.findings, 0);
	world_release();
}

UNIT_MAIN({ "good_volume", good_volume }, { "no_volume_or_mounted", no_volume_or_mounted },
	  { "interrupted_by_caller", interrupted_by_caller }, { "catalog_lost", catalog_lost },
	  { "catalog_damaged_rows_readable", catalog_damaged_rows_readable },
	  { "catalog_damaged_one_row", catalog_damaged_one_row },
	  { "catalog_lost_and_descriptions_too", catalog_lost_and_descriptions_too },
	  { "crashed", crashed },
	  { "crashed_with_data_in_the_journal", crashed_with_data_in_the_journal },
	  { "journal_lost", journal_lost },
	  { "journal_lost_after_a_checkpoint", journal_lost_after_a_checkpoint },
	  { "src_gone", src_gone }, { "src_gone_and_object_too", src_gone_and_object_too },
	  { "src_changed", src_changed },
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
	  { "renamed_without_handles", renamed_without_handles },
	  { "rebuilt_without_handles", rebuilt_without_handles })
