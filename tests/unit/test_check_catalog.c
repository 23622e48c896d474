// SPDX-License-Identifier: GPL-2.0-or-later
/* The check: catalogs that are lost or damaged, and the journal of volumes that were not closed. */
#include "tests/unit/check_fixture.h"

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

static void settings(void)
{
	world_new();
	sql("UPDATE meta SET value = '1 nonsense' WHERE key = 'journal'");
	expect(0, "settings", NULL);
	sql("UPDATE meta SET value = '18446744073709551615' WHERE key = 'next_id'");
	expect(0, "settings", NULL);
	look_by_mount();
	/* The clean mark alone does not make a journal worthless. */
	world_release();
	world_crashed();
	sql("UPDATE meta SET value = '1' WHERE key = 'clean'");
	expect_dry(NOTE, "journal", NULL);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK_EQ(w.result.findings, 0);
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

/* Which ranges were pinned is lost with the groups: it is said, and no mark stays behind. */
static void catalog_damaged_pins_lost(void)
{
	for (int with_object = 0; with_object < 2; with_object++) {
		world_new();
		if (!with_object)
			CHECK_EQ(unlink(object_of("part")), 0);
		sql("UPDATE groups SET present_n = present_n + 1 WHERE file_id = " ID_OF("part"));
		CHECK_EQ(run_check(REPAIR), 0);
		CHECK(find("catalog-damaged", NULL) && find("row", "part"));
		CHECK_EQ(w.result.left, 0);
		CHECK_EQ(run_check(SCRUB), 0);
		CHECK_EQ(w.result.findings, 0);
		look_by_mount();
		world_release();
	}
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

UNIT_MAIN({ "catalog_lost", catalog_lost },
	  { "catalog_damaged_rows_readable", catalog_damaged_rows_readable },
	  { "catalog_damaged_one_row", catalog_damaged_one_row },
	  { "catalog_damaged_pins_lost", catalog_damaged_pins_lost }, { "settings", settings },
	  { "catalog_lost_and_descriptions_too", catalog_lost_and_descriptions_too },
	  { "rebuilt_without_handles", rebuilt_without_handles }, { "crashed", crashed },
	  { "crashed_with_data_in_the_journal", crashed_with_data_in_the_journal },
	  { "journal_lost", journal_lost },
	  { "journal_lost_after_a_checkpoint", journal_lost_after_a_checkpoint })
