// SPDX-License-Identifier: GPL-2.0-or-later
/* Suspect extents (I6): of use at once after a crash, and nobody takes them for clean. */
#include <sys/mman.h>

#include "tests/unit/engine_fixture.h"
#include "tier/pass.h"

#define SIZE (3u * 1048576 + 1000)
#define OVERWRITTEN (5u * 262144 + 8192)

static uint64_t suspects_of(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	uint64_t n = f->map.suspects;

	pthread_mutex_unlock(&f->lock);
	return n;
}

static struct tfile *cached(void)
{
	struct tfile *f = use();

	promote(f, SIZE);
	CHECK_EQ(volume_commit(v), 0);
	return f;
}

static void crash_overwriting(void *arg)
{
	(void)arg;
	if (open_volume()) {
		write_at(cached(), 'C', OVERWRITTEN, 4096); /* not synced */
		crash();
	}
}

/* Steps of the background until it has nothing to settle. */
static void settle_in_background(struct tfile *f)
{
	for (unsigned i = 0; i < 100 && suspects_of(f); i++)
		step(1);
	CHECK_EQ(suspects_of(f), 0);
}

static void cache_is_warm_at_once(void)
{
	struct volume_status s;

	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11); /* all but the one with the end */
		for (uint64_t at = 0; at < SIZE; at += 4096)
			CHECK_EQ(byte_at(f, at), at == OVERWRITTEN ? 'C' : 'A');
		volume_status(v, &s);
		CHECK_EQ(s.read_miss_bytes, 0);
		CHECK_EQ(dirty_bytes(), 0);
		settle_in_background(f);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(atomic_load(&v->written_back_bytes), 4096);
		CHECK_EQ(src_byte(OVERWRITTEN), 'C');
		CHECK_EQ(src_byte(OVERWRITTEN + 4096), 'A');
		CHECK_EQ(volume_commit(v), 0);
		CHECK(!map_has_intent(&f->map));
		unuse(f);
		close_volume();
	}
	end();
}

/* Nothing was settled yet: the next mount has to do it. */
static void unmounting_early_is_not_clean(void)
{
	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	if (open_volume()) {
		unuse(use());
		close_volume();
	}
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11);
		CHECK_EQ(byte_at(f, OVERWRITTEN), 'C');
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(suspects_of(f), 0);
		CHECK_EQ(src_byte(OVERWRITTEN), 'C');
		unuse(f);
		close_volume();
	}
	end();
}

/* The intents are there, and SRC has everything. */
static void crash_written_back(void *arg)
{
	(void)arg;
	if (open_volume()) {
		struct tfile *f = cached();

		write_at(f, 'C', OVERWRITTEN, 4096);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(tfile_fsync(f, false), 0);
		crash();
	}
}

static void foreign_change_is_no_conflict(void)
{
	static const struct timespec pause = { .tv_nsec = 20000000 };

	begin(SIZE);
	CHECK_EQ(unit_child(crash_written_back, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11);
		nanosleep(&pause, NULL); /* SRC's clock for time-stamps ticks */
		put_src(src_file, 'F', 4096, 4096);
		CHECK_EQ(tfile_refresh(f), 0);
		CHECK(!f->conflict);
		CHECK_EQ(byte_at(f, 4096), 'F');
		CHECK_EQ(byte_at(f, OVERWRITTEN), 'C');
		unuse(f);
		close_volume();
	}
	end();
}

static void foreign_change_of_overwritten_is_a_conflict(void)
{
	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11);
		put_src(src_file, 'F', SIZE, 4096);
		CHECK_EQ(tfile_refresh(f), 0);
		CHECK(f->conflict);
		CHECK_EQ(byte_at(f, OVERWRITTEN), 'C');
		unuse(f);
		close_volume();
	}
	end();
}

/* I8: of a copy that cannot be read SRC has the same, unless it was overwritten: now one has to
 * know. */
static void failing_read_settles_the_extent(void)
{
	begin(SIZE);
	CHECK_EQ(unit_child(crash_written_back, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();
		uint64_t before = suspects_of(f);

		fail_ino = ino_of(f->obj_fd);
		atomic_store(&fail_next[C_PREAD], EIO);
		CHECK_EQ(byte_at(f, OVERWRITTEN), 'C');
		CHECK_EQ(atomic_load(&fail_next[C_PREAD]), 0);
		CHECK_EQ(suspects_of(f), before - 1);
		CHECK_EQ(atomic_load(&v->lost_ranges), 0);
		unuse(f);
		close_volume();
	}
	end();
}

static void no_passthrough_before_it_is_settled(void)
{
	begin(SIZE);
	CHECK_EQ(unit_child(crash_written_back, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(tfile_why_no_pass(f, false) != NULL);
		settle_in_background(f);
		const char *why = tfile_why_no_pass(f, false);

		if (!CHECK(why == NULL))
			printf("# %s\n", why);
		unuse(f);
		close_volume();
	}
	end();
}

/* A commit of something else, while all is suspect. */
static void crash_unsettled(void *arg)
{
	(void)arg;
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11);
		tfile_set_path(f, "g");
		CHECK_EQ(volume_commit(v), 0);
		crash();
	}
}

static void intents_last_until_it_is_settled(void)
{
	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	CHECK_EQ(unit_child(crash_unsettled, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(src_byte(OVERWRITTEN), 'C');
		unuse(f);
		close_volume();
	}
	end();
}

static void times_that_were_set_stay(void)
{
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000000 } };
	struct stat st;

	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		CHECK(suspects_of(f) >= 11);
		CHECK_EQ(tfile_set_times(f, tv), 0);
		CHECK_EQ(flush(f, false), 0);
		CHECK_EQ(stat(src_file, &st), 0);
		CHECK_EQ(st.st_mtim.tv_sec, 1000000);
		unuse(f);
		close_volume();
	}
	end();
}

/* Its checksum is of all that is present: it must not vouch for what SRC does not have. */
static void writeback_of_a_part_settles_the_rest(void)
{
	uint64_t bytes;

	begin(SIZE);
	CHECK_EQ(unit_child(crash_overwriting, NULL), CRASHED);
	if (open_volume()) {
		struct tfile *f = use();

		write_at(f, 'D', OVERWRITTEN + 8192, 100);
		for (unsigned i = 0; i < 10 && dirty_bytes(); i++)
			CHECK_EQ(writeback_file(f, 1u << 20, false, &bytes), 0);
		CHECK_EQ(dirty_bytes(), 0);
		CHECK_EQ(src_byte(OVERWRITTEN), 'C');
		CHECK_EQ(src_byte(OVERWRITTEN + 8192), 'D');
		unuse(f);
		close_volume();
	}
	end();
}

/* ---- whatever is done to it --------------------------------------------------------------- */
/* What the file must be; shared with the children that crash. */
static struct model {
	uint64_t size, state;
	struct timespec mtime; /* tv_sec 0: any */
	char data[SIZE + 262144];
} *model;

static unsigned draw(unsigned n)
{
	model->state = model->state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(model->state >> 33) % n;
}

static void draw_range(uint64_t *off, uint64_t *len)
{
	*off = model->size ? draw((unsigned)model->size) : 0;
	*len = 1 + draw(draw(4) ? 9000 : 300000);
	if (*off + *len > model->size)
		*len = model->size - *off;
}

static void model_write(struct tfile *f)
{
	struct tier_stream s = { 0 };
	uint64_t off, len;

	draw_range(&off, &len);
	memset(model->data + off, 'a' + (int)draw(26), len);
	if (len)
		CHECK_EQ(tfile_write(f, &s, model->data + off, len, off), len);
	model->mtime.tv_sec = 0;
}

static void model_read(struct tfile *f)
{
	static char buf[SIZE + 262144];
	struct tier_stream s = { 0 };
	uint64_t off, len;

	draw_range(&off, &len);
	if (len && CHECK_EQ(tfile_read(f, &s, buf, len, off), len))
		CHECK(memcmp(buf, model->data + off, len) == 0);
}

static void model_truncate(struct tfile *f)
{
	uint64_t size = draw(2) ? draw(sizeof(model->data))
				: model->size - draw(5000) % (model->size + 1);

	CHECK_EQ(tfile_truncate(f, size), 0);
	if (size > model->size)
		memset(model->data + model->size, 0, size - model->size);
	model->size = size;
	model->mtime.tv_sec = 0;
}

static void model_punch(struct tfile *f)
{
	uint64_t off, len;

	draw_range(&off, &len);
	if (!len)
		return;
	CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len), 0);
	memset(model->data + off, 0, len);
	model->mtime.tv_sec = 0;
}

static void model_times(struct tfile *f)
{
	struct timespec tv[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000000 + draw(1000) } };

	CHECK_EQ(tfile_set_times(f, tv), 0);
	model->mtime = tv[1];
}

static void model_evict(struct tfile *f)
{
	uint64_t off, len, bytes;

	draw_range(&off, &len);
	CHECK_EQ(evict_range(f, off, off + len, &bytes), 0);
}

static void model_one(struct tfile *f)
{
	switch (draw(10)) {
	case 0: model_truncate(f); break;
	case 1: model_punch(f); break;
	case 2: model_times(f); break;
	case 3: model_evict(f); break;
	case 4: step(1); break;
	case 5: (void)(draw(2) ? flush(f, false) : demote(f)); break;
	case 6: CHECK_EQ(tfile_refresh(f), 0); break;
	case 7: model_read(f); break;
	default: model_write(f); break;
	}
}

static void model_verify(struct tfile *f)
{
	static char buf[SIZE + 262144];
	struct tier_stream s = { 0 };
	struct stat st;
	uint64_t token = tfile_stat_begin(f);

	CHECK_EQ(fstat(f->src_fd, &st), 0);
	(void)tfile_stat_end(f, token, &st);
	CHECK_EQ(st.st_size, model->size);
	if (model->mtime.tv_sec)
		CHECK_EQ(st.st_mtim.tv_sec, model->mtime.tv_sec);
	if (model->size && CHECK_EQ(tfile_read(f, &s, buf, model->size, 0), model->size))
		CHECK(memcmp(buf, model->data, model->size) == 0);
}

/* Everything is on the SSD, so that a killed daemon loses nothing of what is written. */
static void crash_life(void *arg)
{
	if (!open_volume())
		return;
	struct tfile *f = use();
	struct tier_stream s = { 0 };

	for (unsigned i = 0; arg && i < 25; i++)
		model_one(f);
	model_verify(f);
	model->mtime.tv_sec = 0;
	if (model->size)
		CHECK_EQ(tfile_write(f, &s, model->data, model->size, 0), model->size);
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(volume_commit(v), 0); /* replaying the journal would put older data there */
	for (unsigned n = draw(20); n; n--)
		model_write(f);
	if (draw(3) == 0)
		(void)flush(f, false);
	crash();
}

static void in_src_is(void)
{
	static char buf[SIZE + 262144];
	int fd = open(src_file, O_RDONLY | O_CLOEXEC);
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_size, model->size);
	CHECK_EQ(syscall(SYS_pread64, fd, buf, model->size, 0), model->size);
	CHECK(memcmp(buf, model->data, model->size) == 0);
	close(fd);
}

static void settle_lives(unsigned seed)
{
	begin(SIZE);
	model->state = seed;
	model->size = SIZE;
	model->mtime.tv_sec = 0;
	memset(model->data, 'A', SIZE);
	for (uintptr_t i = 0; i < 4; i++)
		if (!CHECK_EQ(unit_child(crash_life, (void *)i), CRASHED))
			printf("# seed %u, life %u\n", seed, (unsigned)i);
	if (open_volume()) {
		struct tfile *f = use();

		model_verify(f);
		CHECK_EQ(flush(f, false), 0);
		CHECK(!f->conflict);
		in_src_is();
		unuse(f);
		close_volume();
	}
	end();
}

static void nothing_is_lost_whatever_is_done(void)
{
	const char *scale = getenv("SCALE");
	unsigned n = scale ? (unsigned)atoi(scale) : 10;

	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (!CHECK(model != MAP_FAILED))
		return;
	for (unsigned seed = 1; seed <= n && !unit_failures; seed++)
		settle_lives(seed);
	munmap(model, sizeof(*model));
}

UNIT_MAIN({ "cache_is_warm_at_once", cache_is_warm_at_once },
	  { "unmounting_early_is_not_clean", unmounting_early_is_not_clean },
	  { "foreign_change_is_no_conflict", foreign_change_is_no_conflict },
	  { "foreign_change_of_overwritten_is_a_conflict",
	    foreign_change_of_overwritten_is_a_conflict },
	  { "failing_read_settles_the_extent", failing_read_settles_the_extent },
	  { "no_passthrough_before_it_is_settled", no_passthrough_before_it_is_settled },
	  { "intents_last_until_it_is_settled", intents_last_until_it_is_settled },
	  { "times_that_were_set_stay", times_that_were_set_stay },
	  { "writeback_of_a_part_settles_the_rest", writeback_of_a_part_settles_the_rest },
	  { "nothing_is_lost_whatever_is_done", nothing_is_lost_whatever_is_done })
