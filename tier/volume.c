// SPDX-License-Identifier: GPL-2.0-or-later
/* A volume: open, close, totals. The background steps are in step.c. */
#include "tier/volume.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tier/pass.h"

#define RELEASE_TRIES	 20u
#define RELEASE_PAUSE_NS 10000000l
#include "tier/layout.h"

#define TABLE_INITIAL 1024u
/* With fewer free inodes than that they may be what is missing. */
#define INODES_TO_OPEN 16u
/* Errors are logged so many per interval. */
#define SAID_MAX 20u
#define SAID_INTERVAL_NS (10 * SECOND_NS)
/* Ids one mount may hand out; the next mount starts behind them, so none is ever used twice. */
#define IDS_PER_MOUNT (1ull << 32)

/* ---- environment -------------------------------------------------------------------------- */
void volume_log(struct volume *v, int level, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (!v->env.log)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	v->env.log(v->env.ctx, level, line);
}

/* The same trouble for each of a million files is one trouble: a few lines, then their number. */
static bool may_say(struct volume *v)
{
	int64_t now = volume_now(v), since = atomic_load(&v->said_since_ns);

	if (now - since > SAID_INTERVAL_NS &&
	    atomic_compare_exchange_strong(&v->said_since_ns, &since, now)) {
		uint32_t said = atomic_exchange(&v->said, 0);

		if (said > SAID_MAX)
			volume_log(v, 3, "%s: %u more errors like that", v->dir_path,
				   said - SAID_MAX);
	}
	return atomic_fetch_add(&v->said, 1) < SAID_MAX;
}

void volume_error(struct volume *v, const struct tfile *f, int r, const char *what)
{
	atomic_fetch_add(&v->errors, 1);
	if (!may_say(v))
		return;
	volume_log(v, 3, "%s: %s: %s", f && f->path ? f->path : v->dir_path, what,
		   strerror(-r));
}

void volume_wake(struct volume *v)
{
	if (v->env.wake)
		v->env.wake(v->env.ctx);
}

int64_t volume_now(struct volume *v)
{
	return v->env.monotonic_ns(v->env.ctx);
}

/*
 * New times are never before one that SRC's filesystem has already shown: its clock for time-stamps
 * may be a few milliseconds ahead of the coarse one, and make(1) compares the two.
 */
struct timespec volume_wall(struct volume *v)
{
	int64_t floor = atomic_load_explicit(&v->time_floor_ns, memory_order_relaxed);
	int64_t now = v->env.wall_ns(v->env.ctx);

	return ns_timespec(now > floor ? now : floor);
}

void volume_saw_time(struct volume *v, int64_t ns)
{
	int64_t floor = atomic_load_explicit(&v->time_floor_ns, memory_order_relaxed);

	if (ns <= floor)
		return;
	if (ns > v->env.wall_ns(v->env.ctx) + CLOCK_SKEW_NS)
		return; /* a date set by somebody, not a clock */
	while (ns > floor && !atomic_compare_exchange_weak(&v->time_floor_ns, &floor, ns))
		;
}

/* ---- open --------------------------------------------------------------------------------- */
static struct volume *volume_new(struct src *src, const struct volume_options *o,
				 const struct volume_env *env)
{
	struct volume *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->src = src;
	v->opt = *o;
	v->env = *env;
	v->dir_fd = v->objects_fd = v->lock_fd = v->stamps_fd = v->pass_fd = -1;
	v->changed.offset = offsetof(struct tfile, changed);
	v->dirty.offset = offsetof(struct tfile, dirty);
	v->uncheckpointed.offset = offsetof(struct tfile, uncheckpointed);
	v->garbage.offset = offsetof(struct tfile, garbage);
	v->passing.offset = offsetof(struct tfile, passing);
	pthread_mutex_init(&v->files_lock, NULL);
	pthread_mutex_init(&v->lists_lock, NULL);
	pthread_mutex_init(&v->evict_mutex, NULL);
	commit_init(v);
	v->table_size = TABLE_INITIAL;
	v->table = calloc(v->table_size, sizeof(*v->table));
	v->promote_queue = calloc(PROMOTE_QUEUE_MAX, sizeof(*v->promote_queue));
	v->last_minute_ns = volume_now(v);
	return v;
}

static void volume_free(struct volume *v)
{
	catalog_close(v->cat);
	ghost_release(&v->ghost);
	free(v->promote_queue);
	free(v->table);
	free(v->pinned_dirs);
	commit_release(v);
	pthread_mutex_destroy(&v->evict_mutex);
	pthread_mutex_destroy(&v->lists_lock);
	pthread_mutex_destroy(&v->files_lock);
	if (v->stamps_fd >= 0)
		close(v->stamps_fd);
	if (v->objects_fd >= 0)
		close(v->objects_fd);
	if (v->pass_fd >= 0)
		close(v->pass_fd);
	if (v->dir_fd >= 0)
		close(v->dir_fd);
	if (v->lock_fd >= 0) /* last: I10 */
		close(v->lock_fd);
	free(v->dir_path);
	free(v);
}

struct opening {
	uint64_t first_id, gone;
};

static int meta_number(struct volume *v, const char *key, uint64_t *ret)
{
	_cleanup_free_ char *value = NULL;
	int r = catalog_get_meta(v->cat, key, &value);

	if (r == 0)
		*ret = strtoull(value, NULL, 10);
	return r == -ENOENT ? 0 : r;
}

static int put_number(struct volume *v, const char *key, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return catalog_put_meta(v->cat, key, text);
}

/* From here on a missing clean mark means a crash, and our ids are reserved. */
static int mark_open(struct volume *v, void *arg)
{
	const struct opening *o = arg;
	int r = put_number(v, "clean", 0);

	if (r == 0)
		r = put_number(v, "next_id", o->first_id + IDS_PER_MOUNT);
	if (r == 0)
		r = put_number(v, "gone_from", o->gone);
	if (r == 0)
		r = catalog_put_meta(v->cat, "volume_id", v->id);
	if (r == 0)
		r = catalog_put_meta(v->cat, "source", v->src->path);
	return r;
}

/* An empty catalog over what a lost one knew would make an end of it. */
static int refuse_if_lost(struct volume *v)
{
	if (faccessat(v->dir_fd, "catalog.db", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	int r = layout_is_marked(v->dir_fd) ? 1 : layout_has_objects(v->objects_fd);

	return r > 0 ? -ENOENT : r;
}

static int open_and_mark(struct volume *v)
{
	int r = refuse_if_lost(v);

	if (r == 0)
		r = catalog_open(v->dir_fd, "catalog.db", false, &v->cat);
	if (r == -ENOSPC && room_give_reserve(v))
		r = catalog_open(v->dir_fd, "catalog.db", false, &v->cat);
	v->unclean = r == 0 && layout_is_marked(v->dir_fd);
	if (r == 0)
		r = layout_mark(v->dir_fd);
	if (r == -ENOSPC && v->cat && room_give_reserve(v))
		r = layout_mark(v->dir_fd);
	crash_point(CP_MOUNT_IN_USE);
	return r;
}

static const char *catalog_trouble(int r)
{
	switch (r) {
	case -ENOENT:
		return "missing; hybridfs check --repair rebuilds it from the objects";
	case -EPROTONOSUPPORT:
		return "made by a newer hybridfs";
	case -EOPNOTSUPP:
		return "made by an older hybridfs, which this one does not read; hybridfs check "
		       "--repair rebuilds it from the objects";
	case -EUCLEAN:
		return "damaged; hybridfs check --repair rebuilds it from the objects";
	default:
		return strerror(-r);
	}
}

static int open_catalog(struct volume *v, char *error, size_t error_size)
{
	uint64_t clean = 1, first = 1, max = 0, gone = GONE_NONE;
	int r = open_and_mark(v);

	if (r == 0)
		r = meta_number(v, "clean", &clean);
	if (r == 0)
		r = meta_number(v, "next_id", &first);
	if (r == 0)
		r = meta_number(v, "gone_from", &gone);
	if (r == 0)
		r = catalog_max_id(v->cat, &max);
	if (r < 0) {
		snprintf(error, error_size, "%s/catalog.db: %s", v->dir_path, catalog_trouble(r));
		return r;
	}
	v->unclean |= !clean;
	struct opening o = { .first_id = max_u64(first, max + 1), .gone = v->unclean ? 0 : gone };

	atomic_store(&v->gone_cursor, o.gone);
	v->first_new_id = o.first_id;
	atomic_store(&v->next_id, o.first_id);
	stamps_open(v);
	r = object_init_dirs(v);
	if (r == 0)
		r = pass_init(v);
	/* After a crash of the daemon alone data may still be in the SSD's page cache only, and
	 * whoever reads it now relies on it. */
	if (r == 0 && v->unclean && syncfs(v->objects_fd) < 0)
		r = neg_errno();
	crash_point(CP_MOUNT_SYNCED);
	if (r == 0)
		r = room_init(v);
	if (r == 0)
		r = replay_journal(v, error, error_size);
	if (r == 0)
		r = recover_volume(v);
	crash_point(CP_MOUNT_RECOVERED);
	if (r == 0)
		r = room_set_cap(v, error, error_size);
	if (r == 0)
		r = catalog_run(v, mark_open, &o);
	crash_point(CP_MOUNT_MARKED);
	if (r < 0 && catalog_is_damaged(v->cat))
		snprintf(error, error_size, "%s/catalog.db: %s: %s", v->dir_path,
			 catalog_error(v->cat), catalog_trouble(-EUCLEAN));
	else if (r < 0 && !*error)
		snprintf(error, error_size, "%s: cannot open the volume: %s", v->dir_path,
			 strerror(-r));
	return r;
}

/* The last change of the volume was made. As long as there is a WAL, the catalog is not in one
 * piece. */
static int unmark(struct volume *v)
{
	catalog_close(TAKE_PTR(v->cat));
	if (faccessat(v->dir_fd, "catalog.db-wal", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return layout_unmark(v->dir_fd);
}

static void drop_promotions(struct volume *v)
{
	for (; v->promote_count; v->promote_count--) {
		tfile_put(v->promote_queue[v->promote_head].file);
		v->promote_head = (v->promote_head + 1) % PROMOTE_QUEUE_MAX;
	}
}

/* No file stays in memory, and none of the objects that nothing in the catalog speaks of. */
static void drop_files(struct volume *v)
{
	struct file_list *lists[] = { &v->changed, &v->uncheckpointed, &v->dirty,
				      &v->garbage };
	struct tfile *f;

	(void)pass_close(v, false);

	for (unsigned i = 0; i < ARRAY_SIZE(lists); i++)
		while ((f = file_list_first(v, lists[i]))) {
			file_list_remove(v, lists[i], f);
			tfile_put(f);
		}
	drop_promotions(v);
	volume_drop_idle(v, 0);
}

static void drop_graves(struct volume *v)
{
	while (v->graves) { /* rows and objects stay; the next mount finds them */
		struct grave *g = v->graves;

		v->graves = g->next;
		free(g);
	}
}

/* "No space left" puzzles where df shows that there is. */
static void explain_no_space(const char *ssd_path, char *error, size_t size)
{
	size_t len = strlen(error);
	struct statvfs fs;

	if (statvfs(ssd_path, &fs) == 0 && fs.f_files > 0 && fs.f_favail < INODES_TO_OPEN)
		snprintf(error + len, size - len, " (%llu free inodes on the SSD)",
			 (unsigned long long)fs.f_favail);
}

static int open_volume(struct src *src, const char *ssd_path, const struct volume_options *o,
		       const struct volume_env *env, struct volume **ret_v, char *ret_error,
		       size_t error_size)
{
	struct layout l;

	*ret_error = '\0';
	int r = layout_open(src, ssd_path, &l, ret_error, error_size);

	if (r < 0)
		return r;
	struct volume *v = volume_new(src, o, env);

	if (!v || !v->table || !v->promote_queue || ghost_init(&v->ghost) < 0) {
		snprintf(ret_error, error_size, "out of memory");
		layout_release(&l);
		if (v)
			volume_free(v);
		return -ENOMEM;
	}
	v->dir_fd = TAKE_FD(l.dir_fd);
	v->objects_fd = TAKE_FD(l.objects_fd);
	v->lock_fd = TAKE_FD(l.lock_fd);
	v->dir_path = TAKE_PTR(l.path);
	memcpy(v->id, l.id, sizeof(v->id));
	r = open_catalog(v, ret_error, error_size);
	if (r < 0) {
		drop_files(v);
		drop_graves(v);
		if (v->cat && !v->unclean)
			(void)unmark(v); /* else the next mount has something to recover */
		volume_free(v);
		return r;
	}
	if (v->unclean)
		volume_log(v, 4, "the last daemon of this volume did not finish; recovering");
	*ret_v = v;
	return 0;
}

int volume_open(struct src *src, const char *ssd_path, const struct volume_options *o,
		const struct volume_env *env, struct volume **ret_v, char *ret_error,
		size_t error_size)
{
	int r = open_volume(src, ssd_path, o, env, ret_v, ret_error, error_size);

	if (r == -ENOSPC)
		explain_no_space(ssd_path, ret_error, error_size);
	return r;
}

/* ---- close -------------------------------------------------------------------------------- */
static int mark_clean(struct volume *v, void *arg)
{
	(void)arg;
	int r = put_number(v, "gone_from", atomic_load(&v->gone_cursor));

	return r < 0 ? r : put_number(v, "clean", 1);
}

/* Whatever changes SRC while nobody watches must be seen at the next mount: so SRC's stamps are
 * known, and no busy mark is left, when we go. */
static void settle_all(struct volume *v)
{
	unsigned n = 0;

	pthread_mutex_lock(&v->files_lock);
	struct tfile **files = calloc(v->n_files + 1, sizeof(*files));

	for (unsigned i = 0; files && i < v->table_size; i++)
		for (struct tfile *f = v->table[i]; f; f = f->hash_next)
			if (!f->dead) {
				volume_ref_locked(v, f);
				files[n++] = f;
			}
	pthread_mutex_unlock(&v->files_lock);
	for (unsigned i = 0; i < n; i++) {
		struct tfile *f = files[i];

		pthread_mutex_lock(&f->lock);
		bool open = f->row && (f->busy || f->stamp_stale);

		pthread_mutex_unlock(&f->lock);
		if (open)
			(void)src_settle(f); /* gone from SRC: nothing can be known of it */
		tfile_put(f);
	}
	free(files);
}

/* The kernel may let go of an object a moment after its last user (pass_may_punch()). False: some
 * of it is still in use, and is for the sweep of the next mount. */
static bool release_space(struct volume *v)
{
	static const struct timespec pause = { .tv_nsec = RELEASE_PAUSE_NS };
	unsigned tries = 0;

	while (file_list_count(v, &v->garbage) > 0 && tries < RELEASE_TRIES)
		if (reclaim_step(v) < 0) {
			tries++;
			nanosleep(&pause, NULL);
		}
	return file_list_count(v, &v->garbage) == 0;
}

int volume_close(struct volume *v)
{
	drop_promotions(v); /* the last users of files that are gone: these are buried below */
	bool held = pass_close(v, true);

	settle_all(v);
	crash_point(CP_UMOUNT_SETTLED);

	/* Burials first, so that the checkpoint has all and the journal is left empty. */
	int r = bury_step(v);

	crash_point(CP_UMOUNT_BURIED);
	int committed = checkpoint(v);

	crash_point(CP_UMOUNT_COMMITTED);
	if (r == 0)
		r = committed;
	bool released = release_space(v);

	crash_point(CP_UMOUNT_RECLAIMED);
	drop_files(v);
	/* After a clean mark nobody looks for space that was not released after all, or for objects
	 * that came back. */
	if (r == 0 && syncfs(v->objects_fd) < 0)
		r = neg_errno();
	if (catalog_is_damaged(v->cat)) {
		volume_error(v, NULL, -EUCLEAN, "the catalog: hybridfs check --repair");
		r = r < 0 ? r : -EUCLEAN;
	}
	/* What is not settled, swept or buried yet is for the next mount to do. */
	bool clean = r == 0 && !held && released && !atomic_load(&v->settling) &&
		     !v->unsettled && !atomic_load(&v->sweeping) && !v->graves;

	if (clean)
		r = catalog_run(v, mark_clean, NULL);
	crash_point(CP_UMOUNT_MARKED);
	drop_graves(v);
	if (r == 0 && clean)
		r = unmark(v);
	volume_free(v);
	return r;
}

const char *volume_id(const struct volume *v)
{
	return v->id;
}

struct src *volume_src(struct volume *v)
{
	return v->src;
}

const struct volume_options *volume_options(const struct volume *v)
{
	return &v->opt;
}

uint64_t volume_taken_bytes(struct volume *v)
{
	return (atomic_load(&v->used_blocks) + atomic_load(&v->garbage_blocks)) * BLOCK_BYTES +
	       v->overhead_bytes;
}

/* ---- totals ------------------------------------------------------------------------------- */
int volume_statvfs(struct volume *v, struct statvfs *ret)
{
	if (fstatvfs(v->src->root_fd, ret) < 0)
		return neg_errno();
	uint64_t dirty = atomic_load(&v->dirty_blocks) * BLOCK_BYTES / ret->f_frsize;

	ret->f_bavail -= min_u64(dirty, ret->f_bavail);
	ret->f_bfree -= min_u64(dirty, ret->f_bfree);
	return 0;
}

static void sum_minutes(const struct volume *v, unsigned n, struct hit_minute *ret)
{
	uint64_t written = atomic_load(&v->written_back_bytes);

	*ret = (struct hit_minute){ .hits = atomic_load(&v->hits) - v->last_hits,
				    .misses = atomic_load(&v->misses) - v->last_misses,
				    .written_back = written - v->last_written_back };
	for (unsigned i = 0; i < n; i++) {
		const struct hit_minute *m = &v->minutes[(v->minute + 59 - i) % 60];

		ret->hits += m->hits;
		ret->misses += m->misses;
		ret->written_back += m->written_back;
	}
}

static void judge_health(struct volume_status *s, bool damaged)
{
	s->healthy = false;
	if (damaged)
		snprintf(s->health_reason, sizeof(s->health_reason),
			 "the catalog is damaged: unmount, and run hybridfs check --repair");
	else if (s->conflicts)
		snprintf(s->health_reason, sizeof(s->health_reason),
			 "%llu files were changed in SRC while newer data waits on the SSD",
			 (unsigned long long)s->conflicts);
	else if (s->lost_ranges)
		snprintf(s->health_reason, sizeof(s->health_reason),
			 "%llu ranges on the SSD could not be read",
			 (unsigned long long)s->lost_ranges);
	else if (s->errors)
		snprintf(s->health_reason, sizeof(s->health_reason), "%llu errors, see the log",
			 (unsigned long long)s->errors);
	else
		s->healthy = true;
}

void volume_status(struct volume *v, struct volume_status *ret)
{
	struct volume_status *s = ret;
	struct hit_minute m, h;

	*s = (struct volume_status){
		.ssd_used_bytes = atomic_load(&v->used_blocks) * BLOCK_BYTES,
		.ssd_cap_bytes = v->cap_blocks * BLOCK_BYTES,
		.dirty_bytes = atomic_load(&v->dirty_blocks) * BLOCK_BYTES,
		.pinned_bytes = atomic_load(&v->pinned_blocks) * BLOCK_BYTES,
		.tracked_files = atomic_load(&v->tracked),
		.hits = atomic_load(&v->hits),
		.misses = atomic_load(&v->misses),
		.read_hit_bytes = atomic_load(&v->read_hit_bytes),
		.read_miss_bytes = atomic_load(&v->read_miss_bytes),
		.promotions = atomic_load(&v->promotions),
		.demotions = atomic_load(&v->demotions),
		.promoted_bytes = atomic_load(&v->promoted_bytes),
		.demoted_bytes = atomic_load(&v->demoted_bytes),
		.written_back_bytes = atomic_load(&v->written_back_bytes),
		.bypassed_bytes = atomic_load(&v->bypassed_bytes),
		.conflicts = atomic_load(&v->conflicts),
		.errors = atomic_load(&v->errors),
		.lost_ranges = atomic_load(&v->lost_ranges),
		.pass_opens = atomic_load(&v->pass_opens),
		.recovering = recover_pending(v),
	};
	pthread_mutex_lock(&v->lists_lock);
	sum_minutes(v, 1, &m);
	sum_minutes(v, 59, &h);
	s->promote_queue = v->promote_count;
	s->dirty_files = v->dirty.count;
	s->pass_files = v->passing.count;
	pthread_mutex_unlock(&v->lists_lock);
	s->hits_1m = m.hits;
	s->misses_1m = m.misses;
	s->hits_1h = h.hits;
	s->misses_1h = h.misses;
	s->write_back_bytes_per_s = m.written_back / 60;
	judge_health(s, catalog_is_damaged(v->cat));
}
