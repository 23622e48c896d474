// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A mount of a volume whose catalog or journal is damaged, or of different ages: it is refused with
 * a line that says what to do, or the files concerned are; and check makes it mount again. (Random
 * damage: test_check_fuzz.c.)
 */
#include "tests/unit/check_fixture.h"
#include "tier/map.h"

static int try_open(void)
{
	struct volume_options o;

	volume_options_init(&o);
	o.size_bytes = 64u << 20;
	*w.error = '\0';
	CHECK_EQ(src_init(&w.src, w.src_path), 0);
	int r = volume_open(&w.src, w.ssd_path, &o, &env, &w.v, w.error, sizeof(w.error));

	if (r < 0)
		src_release(&w.src);
	return r;
}

/* All data; sizes that only an object tells are known to the block. */
static void look_to_the_block(void)
{
	struct tier_stream stream = { 0 };

	CHECK_EQ(try_open(), 0);
	for (int i = 0; i < FILES; i++) {
		const struct content *x = &w.files[i];
		uint64_t most = (x->size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
		uint8_t *buf = malloc(most + 1);
		struct tfile *f = engine_use(x->name);
		ssize_t n = tfile_read(f, &stream, buf, most + 1, 0);
		bool same = n >= (ssize_t)x->size && memcmp(buf, x->data, x->size) == 0;

		for (uint64_t at = x->size; same && at < (uint64_t)n; at++)
			same = buf[at] == 0;
		if (!CHECK(same) || !CHECK(n <= (ssize_t)most))
			printf("# %s: %zd bytes\n", x->name, n);
		engine_unuse(f);
		free(buf);
	}
	engine_close();
}

/* Refused, twice, with nothing lost on the way: check repairs it, and all is there. */
static void refused_until_repaired(const char *what)
{
	uint64_t src = hash_of(w.src_path);

	for (int i = 0; i < 2; i++) {
		int r = try_open();

		if (!CHECK(r < 0)) {
			engine_close();
			return;
		}
		if (!CHECK(strstr(w.error, what)) ||
		    !CHECK(strstr(w.error, "hybridfs check --repair")))
			printf("# %s\n", w.error);
	}
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK_EQ(w.result.left, 0);
	CHECK(hash_of(w.src_path) == src);
	CHECK_EQ(run_check(SCRUB), 0);
	if (!CHECK_EQ(w.result.findings, 0))
		print_found();
	look_to_the_block();
}

static bool is_there(const char *name)
{
	return access(path_of(volume_path(), name), F_OK) == 0;
}

static void cut(const char *name, off_t size)
{
	CHECK_EQ(truncate(path_of(volume_path(), name), size), 0);
}

/* ---- the catalog -------------------------------------------------------------------------- */
static void catalog_missing(void)
{
	world_new();
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	refused_until_repaired("missing");
	world_release();
	world_crashed();
	CHECK_EQ(unlink(path_of(volume_path(), "catalog.db")), 0);
	refused_until_repaired("missing");
	world_release();
}

/* Not even an object: the mark alone says that there was something. */
static void everything_missing(void)
{
	world_crashed();
	shell("rm -r '%s'/objects '%s'/catalog.db*", volume_path(), volume_path());
	CHECK_EQ(try_open(), -ENOENT);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("catalog-missing", NULL));
	CHECK_EQ(try_open(), 0);
	engine_close();
	/* What nobody has ever used is no volume. */
	shell("rm -r '%s'/objects '%s'/catalog.db", volume_path(), volume_path());
	CHECK_EQ(try_open(), 0);
	engine_close();
	world_release();
}

static off_t root_page(const char *table)
{
	_cleanup_close_ int dir = open(volume_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(cleanup_sql) sqlite3 *db = NULL;
	int64_t page = 0;
	char query[100];

	snprintf(query, sizeof(query), "SELECT rootpage FROM sqlite_master WHERE name = '%s'",
		 table);
	CHECK_EQ(sql_open(dir, "catalog.db", SQL_READ, &db), 0);
	CHECK_EQ(sql_get_int(db, query, &page), 0);
	return (off_t)(page - 1) * PAGE_BYTES;
}

static void flip(const char *name, off_t at)
{
	int fd = open(path_of(volume_path(), name), O_RDWR | O_CLOEXEC);
	uint8_t byte = 0;

	CHECK_EQ(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void page_needed_at_mount(void)
{
	static const char *const tables[] = { "meta", "totals", "groups_dirty", "files" };

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		world_new();
		flip("catalog.db", root_page(tables[i]) + 3000);
		refused_until_repaired("damaged");
		world_release();
	}
}

/* Whoever needs it gets an error; nobody gets anything else, SRC neither. */
static void page_needed_later(void)
{
	struct volume_status status;
	struct tfile *f = NULL;
	struct src_key key;
	int64_t wait;

	world_new();
	sql("PRAGMA foreign_keys = 1;"
	    "DELETE FROM files WHERE path <> CAST('clean' AS BLOB)");
	flip("catalog.db", root_page("groups") + 4000);
	uint64_t src = hash_of(w.src_path);

	CHECK_EQ(try_open(), 0);
	volume_status(w.v, &status);
	CHECK(status.healthy);
	int fd = openat(w.src.root_fd, "clean", O_PATH | O_CLOEXEC);

	CHECK_EQ(src_key_of_fd(&w.src, fd, &key), 0);
	close(fd);
	CHECK_EQ(tfile_get(w.v, &key, "clean", &f), 0);
	CHECK_EQ(tfile_use(f, true), -EUCLEAN);
	tfile_put(f);
	volume_status(w.v, &status);
	CHECK(!status.healthy && strstr(status.health_reason, "catalog"));
	for (int i = 0; i < 50; i++)
		(void)volume_step(w.v, &wait);
	CHECK_EQ(volume_close(w.v), -EUCLEAN);
	src_release(&w.src);
	CHECK(is_there("in-use")); /* no clean mark */
	CHECK(hash_of(w.src_path) == src);
	CHECK_EQ(run_check(REPAIR), 0);
	CHECK(find("catalog-damaged", NULL));
	CHECK(!is_there("in-use"));
	world_release();
}

static void older_version(void)
{
	int fd;

	world_new();
	fd = open(path_of(volume_path(), "catalog.db"), O_WRONLY);
	CHECK_EQ(pwrite(fd, "\1", 1, 63), 1);
	CHECK_EQ(pwrite(fd, "", 1, 20), 1);
	close(fd);
	refused_until_repaired("older hybridfs");
	world_release();
}

/* ---- the WAL ------------------------------------------------------------------------------ */
/* Three checkpoints; what the first called present is released after the second. */
static void checkpoints(off_t ret_wal[3])
{
	struct tfile *f;
	uint64_t next = 0, bytes;
	struct stat st;

	world_dirs();
	world_files();
	CHECK(engine_open(64u << 20));
	fill_volume();
	for (int i = 0; i < 3; i++) {
		f = engine_use(w.files[i ? GROWN : CLEAN].name);
		if (i == 1)
			engine_write(f, &w.files[GROWN], 30000, 1000);
		CHECK_EQ(volume_commit(w.v), 0);
		CHECK_EQ(stat(path_of(volume_path(), "catalog.db-wal"), &st), 0);
		ret_wal[i] = st.st_size;
		while (i == 0 && next != UINT64_MAX)
			CHECK_EQ(tfile_demote_step(f, 1u << 20, false, &next, &bytes), 0);
		engine_unuse(f);
	}
	save_ssd();
	engine_close();
	restore_ssd();
	CHECK(ret_wal[0] < ret_wal[1] && ret_wal[1] < ret_wal[2]);
}

/* An old state of the catalog, whole in itself: the objects are not what it says. */
static void wal_lost(void)
{
	off_t wal[3];

	for (int i = 0; i < 4; i++) {
		checkpoints(wal);
		if (i < 2)
			cut("catalog.db-wal", wal[i]);
		else if (i == 2)
			cut("catalog.db-wal", 0);
		else
			flip("catalog.db-wal", 40);
		refused_until_repaired("journal");
		world_release();
	}
}

/* The same, if nothing was checkpointed yet: the catalog is as empty as it was made. */
static void wal_lost_of_the_first_mount(void)
{
	world_crashed();
	cut("catalog.db-wal", 0);
	refused_until_repaired("journal");
	world_release();
}

/* ---- the journal -------------------------------------------------------------------------- */
static void journal_of_a_clean_volume(void)
{
	for (int i = 0; i < 4; i++) {
		world_new();
		if (i == 0)
			sql("UPDATE meta SET value = 'nonsense' WHERE key = 'journal'");
		else if (i == 1)
			shell("rm '%s'/journal.*", volume_path());
		else if (i == 2)
			shell("truncate -s 5000 '%s'/journal.*", volume_path());
		else
			shell("printf X | dd of=\"$(ls -d '%s'/journal.*)\" conv=notrunc bs=1"
			      " status=none",
			      volume_path());
		look_by_mount();
		look_by_mount();
		world_release();
	}
}

/* A frame that was acknowledged is not taken for the end. */
static void journal_damaged(void)
{
	for (off_t block = 1; block < 5; block++) {
		world_crashed();
		flip("journal.1", block * 4096 + (block & 1 ? 30 : 70));
		refused_until_repaired("journal.1");
		world_release();
	}
	world_crashed();
	cut("journal.1", 3 * 4096);
	refused_until_repaired("journal.1");
	world_release();
}

/* One that is not there yet: as a crash in the middle of a batch leaves it. */
static void journal_torn(void)
{
	world_crashed();
	for (off_t block = 100; block < 110; block++)
		scribble(path_of(volume_path(), "journal.1"), (uint64_t)block * 4096, 50);
	look_by_mount();
	world_release();
}

/* ---- the mark of a mount ------------------------------------------------------------------ */
static void mark_of_a_mount(void)
{
	int64_t wait;

	world_new();
	CHECK(!is_there("in-use"));
	CHECK(engine_open(64u << 20));
	CHECK(is_there("in-use"));
	save_ssd();
	engine_close();
	CHECK(!is_there("in-use"));
	restore_ssd();
	sql("UPDATE meta SET value = '1' WHERE key = 'clean'"); /* as from an old state */
	CHECK_EQ(run_check(0), 0);
	CHECK(find("unclean", NULL));
	look_by_mount();
	CHECK(is_there("in-use")); /* recovery has not come to its end */
	CHECK(engine_open(64u << 20));
	for (int i = 0; i < 400; i++)
		(void)volume_step(w.v, &wait);
	engine_close();
	CHECK(!is_there("in-use"));
	/* A refusal leaves a clean volume clean. */
	sql("UPDATE meta SET value = 'nonsense' WHERE key = 'journal'");
	shell("cd '%s' && rm journal.* && mkdir journal.0 journal.1", volume_path());
	if (CHECK(try_open() < 0))
		CHECK(!is_there("in-use"));
	world_release();
}

UNIT_MAIN({ "catalog_missing", catalog_missing }, { "everything_missing", everything_missing },
	  { "page_needed_at_mount", page_needed_at_mount },
	  { "page_needed_later", page_needed_later }, { "older_version", older_version },
	  { "wal_lost", wal_lost }, { "wal_lost_of_the_first_mount", wal_lost_of_the_first_mount },
	  { "journal_of_a_clean_volume", journal_of_a_clean_volume },
	  { "journal_damaged", journal_damaged }, { "journal_torn", journal_torn },
	  { "mark_of_a_mount", mark_of_a_mount })
