// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * internal.h - the two structures of the engine, shared by the files of tier/ only.
 *
 * Locks, in the order in which they may be taken (DESIGN.md has the table):
 *   tfile.pass_mutex one change of the passthrough state; held over SSD I/O and a commit
 *   tfile.src_mutex  one changer of SRC's content at a time; held over SRC I/O
 *   tfile.ranges     reservation of a byte range; held over SSD and SRC I/O
 *   volume.catalog_mutex  one catalog transaction at a time; held over SSD syncs and sqlite
 *   volume.commit_*  not held but waited for: one batch at a time, held over SSD syncs
 *   tfile.load_mutex one opener and loader; held over SRC open, catalog reads, settling
 *   tfile.obj_mutex  one opener of the object; held over SSD open and create
 *   tfile.stamp_mutex  its slot in `stamps`; held over a stat of SRC and a write of 64 bytes
 *   tfile.lock       map and attributes; never held over I/O
 *   volume.lists_lock  changed, dirty and garbage lists, promotion queue; never held over I/O
 *   volume.files_lock  table, references, idle list; never held over I/O
 */
#ifndef HYBRIDFS_TIER_INTERNAL_H
#define HYBRIDFS_TIER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "db/base.h"
#include "db/catalog.h"
#include "tier/crash_point.h"
#include "tier/ghost.h"
#include "tier/idset.h"
#include "tier/journal.h"
#include "tier/map.h"
#include "tier/policy.h"
#include "tier/rangelock.h"
#include "tier/sabotage.h"
#include "tier/tfile.h"
#include "tier/volume.h"

#define SECOND_NS 1000000000ll
/* How far apart clocks for time-stamps may be that are the same clock. */
#define CLOCK_SKEW_NS (SECOND_NS / 50)
/* Uncommitted changes older than this are committed by the background (as ext4's commit=5). */
#define COMMIT_INTERVAL_NS (5 * SECOND_NS)
/* Files without a reference that stay in memory for their next open. */
#define IDLE_FILES_MAX 1024u
/* Bytes of one write-back pass of one file between two syncs of SRC. */
#define WRITEBACK_BYTES (8ull << 20)
#define PROMOTE_QUEUE_MAX 4096u
/* Files in one transaction of the background. */
#define COMMIT_BATCH_MAX 1024u
/*
 * Files whose last commit is in the journal only: from the first number on the background makes a
 * checkpoint, at the second one a commit waits for that. It bounds what a mount after a crash has
 * to redo: an object to open and rows to look up for each of them, in a cold catalog.
 */
#define JOURNAL_FILES_SOFT 1024u
#define JOURNAL_FILES_MAX 2048u
/* From so many unsynced objects on, one syncfs of the SSD is cheaper than an fdatasync each. */
#define COMMIT_SYNCFS_FROM 32u

struct list_link {
	struct tfile *prev, *next;
	int64_t since_ns; /* monotonic; when it was added */
	bool linked;
};

/* A list of files; every member holds a reference. Protected by volume.lists_lock. */
struct file_list {
	struct tfile *head, *tail;
	size_t offset; /* of the list_link in struct tfile */
	uint64_t count;
};

/* SRC's own attributes, by which a change behind our back is seen (I9). */
struct src_stamp {
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
};

struct tfile {
	/* constant */
	struct volume *v;   /* borrowed */
	struct src_key key;
	uint64_t hash;

	/* volume.files_lock */
	struct tfile *hash_next;
	struct tfile *idle_prev, *idle_next;
	unsigned refs;
	bool idle;

	/* volume.lists_lock */
	struct list_link changed, uncheckpointed, dirty, garbage, passing;

	pthread_mutex_t pass_mutex; /* one change of the passthrough state at a time */
	pthread_mutex_t src_mutex;
	pthread_mutex_t load_mutex; /* opening of SRC, loading of the map */
	pthread_mutex_t obj_mutex;  /* opening and creation of the object */
	pthread_mutex_t stamp_mutex; /* its slot in `stamps` */
	struct range_set ranges;

	pthread_mutex_t lock; /* everything below */
	struct map map;
	bool map_loaded;
	uint64_t id;	     /* 0 = never had a row or an object */
	bool row;	     /* the durable state, journal included, has a row of this file */
	bool catalog_row;    /* the catalog has one */
	char *path;	     /* owned, may be NULL */
	uint64_t size;	     /* as the mount shows it */
	bool attr_owned;     /* mtime (and maybe size) here are newer than SRC's */
	struct timespec mtime, ctime;
	uint64_t mtime_seq;  /* bumped when mtime is set */
	bool ctime_kept;     /* show `ctime`, not SRC's, which write-back moves */
	bool ctime_follow;   /* the next stamp adopted brings a ctime that users must see */
	bool size_known;     /* `size` is right (owned, or taken from SRC) */
	struct src_stamp stamp;
	bool stamp_valid, stamp_stale; /* stale: we changed SRC since; adopt what comes */
	/* Copies that the durable state calls clean may be wrong: while a cut or hole is under
	 * way, and until so much is committed. */
	unsigned reshaping;
	uint64_t distrust_seq;
	unsigned src_inflight; /* changes of SRC by us under way */
	uint64_t src_seq;      /* bumped when one ends */
	/* Changes of SRC so far, and how many of them a finished sync covers; likewise for the
	 * object. Counters, not flags: a second fsync must not return before the first one's
	 * sync has. */
	uint64_t src_wseq, src_sseq;
	uint64_t src_fsync_wseq; /* the last of them that fsync must make durable in SRC */
	uint64_t obj_wseq, obj_sseq;
	bool conflict, pinned, dead, pin_ranges;
	bool dead_counted;
	bool truncate_pending; /* SRC must be cut to `pending_to` before anything else is written */
	uint64_t pending_to;
	/* Lowest cut of SRC that is not durable there yet, for recovery to redo; UINT64_MAX: none.
	 * What was written to SRC since is as little durable as the cut. */
	uint64_t cut_to;
	uint64_t cut_wseq;     /* ... it is with this src_sseq */
	bool src_unknown;      /* nobody knows what of SRC is unsynced: it was not in memory */
	bool sync_failed;      /* the SSD lost data of ours: no commit before all is in SRC */
	int fsync_error;       /* a failed sync in the background, for the next fsync to tell */
	bool lost;	       /* the object is gone with dirty data in it: reads of them are EIO */
	_Atomic bool tail_unsure; /* after a crash: bytes behind the end may be in the object */
	unsigned writes_inflight;
	uint64_t fsync_seq;    /* bumped by fsync: a synced stream is no bulk copy */

	uint64_t seq, committed_seq; /* of everything durable here, map included */
	uint64_t data_seq, committed_data_seq; /* the same without the times (fdatasync) */
	bool durable_dirty; /* the catalog says dirty, attr_owned or has an intent */
	bool busy, busy_durable;     /* CAT_F_SRC_BUSY: wanted, and known durable */
	bool obj_new; /* its directory entry is not durable yet */
	/* Batches that put data of this file into the journal, and how many of them a sync of
	 * the object has made obsolete; failed commits, and how many a sync has made up for. */
	uint64_t journal_data, journal_data_done, sync_wanted, sync_done;
	uint64_t garbage_lo, garbage_hi; /* absent blocks here may still occupy the object */
	uint64_t garbage_blocks;	 /* how many at most */
	uint64_t commit_gen;
	int commit_error;      /* of the last commit of this file, by commit_gen */
	bool commit_queued;

	/* Passthrough, see pass.h. While `pass` is set the file is in volume.passing, and its
	 * object held. */
	enum pass_state pass;
	uint64_t pass_kept;	/* blocks that it counts in volume.pass_kept */
	unsigned pass_opens;	/* of programs, known to us; mappings and zombies are not */
	unsigned pass_cut;	/* odd: size or holes of the object are being changed by us */
	bool pass_marked; /* while mounting: programs could write to it */
	bool pass_stale;	/* SRC was changed by somebody else meanwhile: no copy is clean */
	bool pass_times;  /* an mtime that was set is in the object, not synced */
	bool pass_final;	/* nobody has it any more: the scan under way is the last one */
	int64_t pass_grant_ns;	/* the object's mtime, set by us, when the first writer came */
	int64_t pass_mtime_ns;	/* the object's when it was last looked at */
	int64_t pass_scan_ns;	/* the object's when the last scan began */
	uint64_t pass_scan;	/* where the scan goes on; UINT64_MAX: none under way */
	int64_t pass_scan_at_ns; /* monotonic; not before */
	unsigned pass_scans;	/* how many have begun */
	uint64_t pass_flush;	/* the flush (volume.pass_flush) that has seen it */
	bool obj_probed; /* obj_mutex; whether anybody has the object is known */
	_Atomic bool obj_shared; /* somebody has, or had when it was last asked */

	/* descriptors: set under lock, stable while uses (resp. holds) > 0 */
	unsigned uses, obj_holds;
	int src_fd, obj_fd;
	bool src_writable;

	uint64_t acct_present, acct_dirty, acct_pinned; /* blocks counted in the volume */
	uint64_t acct_tracked; /* 1 when counted as a tracked file */
	uint64_t wb_cursor;
	_Atomic unsigned failures; /* of write-back in a row */
	_Atomic int64_t retry_at_ns; /* monotonic */
};

struct promote_entry {
	struct tfile *file; /* a reference */
	uint64_t extent;
};

struct grave {
	struct grave *next;
	uint64_t id;
	uint64_t present_blocks;
	bool row, sync_src; /* sync_src: SRC's unlink must be durable first */
	bool counted;	    /* in volume.dead_rows */
};

struct hit_minute {
	uint64_t hits, misses, written_back;
};

struct volume {
	struct src *src; /* borrowed */
	struct volume_options opt;
	struct volume_env env;
	char id[33];
	char *dir_path; /* owned, for messages */
	int dir_fd, objects_fd, lock_fd, pass_fd;
	struct catalog *cat;
	bool unclean;		   /* the last daemon did not finish */
	int stamps_fd;
	uint64_t session; /* of machine and SSD: what was written to it since is there */
	_Atomic bool stamps_usable;
	_Atomic uint64_t next_id;
	uint64_t first_new_id; /* objects with smaller ids are from earlier mounts */
	uint64_t overhead_bytes; /* of a cap that was asked for: journal and catalog */
	uint64_t ssd_bytes; /* size of the filesystem */
	_Atomic uint64_t cap_blocks; /* less than the options say while others fill the SSD */
	_Atomic uint64_t reserve_bytes; /* in the file `reserve` now */

	pthread_mutex_t files_lock;
	struct tfile **table; /* chains by hash */
	unsigned table_size, n_files;
	uint64_t departures; /* files that left the table */
	struct tfile *idle_head, *idle_tail;
	unsigned n_idle;

	pthread_mutex_t lists_lock;
	/* changed: not committed; uncheckpointed: committed to the journal only */
	struct file_list changed, uncheckpointed, dirty, garbage;
	struct file_list passing; /* all files in a passthrough state */
	struct promote_entry *promote_queue; /* ring of PROMOTE_QUEUE_MAX */
	unsigned promote_head, promote_count;
	struct grave *graves;
	struct grave *burying; /* bury_step() is at these; borrowed */
	/* Rows to delete with the next checkpoint: the catalog has them still, their objects are
	 * gone. Changed by the leader only. */
	struct id_set dead_ids;
	uint64_t grave_blocks;
	struct src_key *pinned_dirs; /* owned array */
	unsigned n_pinned_dirs;
	bool flushing;

	pthread_mutex_t catalog_mutex; /* one transaction; outermost of the commit locks */
	struct journal *journal;       /* used by the leader only */
	struct journal *old_journal;   /* during mount: the one to replay */

	pthread_mutex_t commit_mutex;
	pthread_cond_t commit_idle, commit_more; /* for who wants to be alone; for who gathers */
	bool committing;		/* somebody leads, or has been told to */
	unsigned commit_alone; /* threads that wait to lead without a batch: they come first */
	struct commit_waiter *commit_waiters; /* for the next batch */
	unsigned commit_callers;	/* of the next batch, its leader included */
	unsigned commit_expected;	/* how many there usually are */
	bool commit_gathering;
	int64_t commit_batch_ns;	/* how long a batch takes */
	uint64_t commit_next_gen;
	struct tfile **commit_wanted; /* references */
	unsigned commit_wanted_n, commit_wanted_cap;

	struct ghost ghost;
	bool pass_supported; /* the SSD's filesystem can do what passthrough needs */
	_Atomic uint64_t pass_flush, pass_opens;
	_Atomic uint64_t pass_kept; /* blocks of files that are open this way and not pinned */
	_Atomic bool pass_closed; /* a last close may have left something to look at */
	_Atomic bool ssd_failed; /* the SSD refused writes; SRC takes them until it recovers */
	_Atomic int64_t ssd_retry_ns;
	_Atomic int64_t time_floor_ns;
	_Atomic uint64_t src_free_bytes;
	_Atomic int64_t src_free_at_ns;

	_Atomic uint64_t garbage_blocks; /* absent, but not released yet */
	_Atomic uint64_t dead_rows; /* unlinked files with a row, until it is deleted durably */
	_Atomic uint64_t used_blocks, dirty_blocks, pinned_blocks, conflicts, tracked;
	_Atomic uint64_t hits, misses, read_hit_bytes, read_miss_bytes, bypassed_bytes;
	_Atomic uint64_t promotions, demotions, promoted_bytes, demoted_bytes, written_back_bytes;
	_Atomic uint64_t errors, lost_ranges;
	_Atomic uint32_t said; /* errors since said_since_ns */
	_Atomic int64_t said_since_ns;

	pthread_mutex_t evict_mutex; /* one hand: evict_cursor; outermost, held over SSD I/O */
	uint64_t evict_cursor;
	bool evict_useful; /* this round met something that can go */

	/* background thread only */
	uint64_t sweep_dir;
	int64_t evict_retry_ns, last_minute_ns, commit_due_ns, commit_retry_ns;
	int64_t bury_at_ns, reclaim_at_ns, room_at_ns, room_told_ns;
	int64_t pass_look_ns, pass_scan_ns;
	struct hit_minute minutes[60];
	unsigned minute;
	uint64_t last_hits, last_misses, last_written_back;
	uint64_t settle_cursor;
	int64_t gone_at_ns; /* when the search for files gone from SRC, or any of these, goes on */

	/* What is left to do after a crash; changed by the background only. */
	_Atomic bool settling, sweeping;
	bool unsettled; /* a file had to be passed over: the next mount's to do */
	_Atomic uint64_t gone_cursor; /* rows up to this id have been looked for; or GONE_NONE */
};

/* ---- tfile.c ---- */
/* The file of a row that was read after volume_departures() said `seen`; a row that may be out of
 * date is read again. -ENOENT: it is gone. On failure *ret_file is NULL. */
int tfile_get_loaded(struct volume *v, const struct cat_file *row, uint64_t seen,
		     struct tfile **ret_file);
uint64_t volume_departures(struct volume *v); /* files that left memory so far */
int tfile_load_map(struct tfile *f);
/* Keep the object open; it may not exist yet (obj_fd -1). Pair with tfile_drop_object(). */
int tfile_hold_object(struct tfile *f);
void tfile_drop_object(struct tfile *f);
int tfile_make_object(struct tfile *f); /* while held: create it if it does not exist */
int tfile_open_src(struct tfile *f, int flags); /* a descriptor of the caller's own */
/* Bytes taken on the SSD, what waits to be released included. */
uint64_t volume_taken_bytes(struct volume *v);
bool tfile_open_for_write(struct tfile *f);
bool tfile_in_use(struct tfile *f);
void src_key_of_row(const struct cat_file *row, struct src_key *ret_key);
void tfile_changed_locked(struct tfile *f);
void tfile_account_locked(struct tfile *f);
/* The same for blocks just written to the object: they are not durable yet. */
int tfile_written_locked(struct tfile *f, uint64_t start, uint64_t end, enum block_state state);
/* All blocks of [start, end) to state, with accounting and lists; f->lock held. */
int tfile_map_set_locked(struct tfile *f, uint64_t start, uint64_t end, enum block_state state);
void tfile_set_mtime_locked(struct tfile *f);
int tfile_refresh(struct tfile *f); /* stat SRC now: notice foreign changes */
void tfile_put_not_last(struct tfile *f); /* no I/O, so f->lock may be held */
void tfile_sync_error(struct tfile *f, int r); /* remembered for the next fsync */
void object_sync_failed(struct tfile *f, int r); /* the SSD has lost some of its data */
bool tfile_dirty_locked(const struct tfile *f);
void volume_drop_idle(struct volume *v, unsigned keep);
void volume_ref_locked(struct volume *v, struct tfile *f); /* files_lock held */
unsigned volume_loaded_files(struct volume *v);
struct tfile *tfile_of_id(struct volume *v, uint64_t id); /* in memory, or NULL */

/* ---- lists ---- */
/* True if it was not in it. The caller of both holds a reference of its own; f->lock may be held.
 * */
bool file_list_add(struct volume *v, struct file_list *l, struct tfile *f, int64_t since_ns);
bool file_list_remove(struct volume *v, struct file_list *l, struct tfile *f);
struct tfile *file_list_first(struct volume *v, struct file_list *l); /* with a reference */
uint64_t file_list_count(struct volume *v, const struct file_list *l);

/* ---- commit.c ---- */
int commit_init(struct volume *v);
void commit_release(struct volume *v);
/* Make everything durable that is in memory about f now. Joins or leads a batch. */
int commit_file(struct tfile *f);
int commit_files(struct volume *v, struct tfile **files, unsigned n);
void commit_result_locked(struct tfile *f, uint64_t gen, int r);
/* Rows of unlinked files: durable in the journal, out of the catalog with the next checkpoint. */
int commit_deletes(struct volume *v, const struct grave *graves);
/* Be the leader for a moment: no batch is under way between the two. */
void commit_lead(struct volume *v);
void commit_unlead(struct volume *v);

/* ---- room.c ------------------------------------------------------------------------------- */
/* Learn the size of the SSD; the catalog is open. */
int room_init(struct volume *v);
/* How much may be used. -ENOSPC with a text: too little. The journal is there. */
int room_set_cap(struct volume *v, char *error, size_t error_size);
/* Follow what is really free; once a second, background thread. */
void room_tick(struct volume *v, int64_t now_ns);
/* Let go of what is reserved for the catalog; false: there was nothing. Any thread. */
bool room_give_reserve(struct volume *v);

/* ---- checkpoint.c ---- */
/* Everything that is changed or only in the journal, to the catalog; then the journal is empty up
 * to where it stood. */
int checkpoint(struct volume *v);
/* A transaction of the caller's own (pins of directories, marks): fn runs inside. */
int catalog_store_row(struct volume *v, const struct cat_file *row); /* in a transaction */
int catalog_run(struct volume *v, int (*fn)(struct volume *v, void *arg), void *arg);

/* ---- replay.c ---- */
int replay_journal(struct volume *v, char *error, size_t error_size);

/* ---- object.c ---- */
#define OBJECT_DIRS 256u
int object_init_dirs(struct volume *v);
int object_create(struct volume *v, uint64_t id, const struct src_key *key, const char *path);
/* Gives it the self-description that a crash has taken. */
void object_describe(struct volume *v, int fd, const struct src_key *key, const char *path);
int object_open(struct volume *v, uint64_t id);
int object_remove(struct volume *v, uint64_t id);
int object_sync_dir(struct volume *v, uint64_t id);
int object_punch(int fd, uint64_t off, uint64_t len);
uint64_t object_id_of_name(const char *name); /* 0: not one of ours */
void object_dir_name(unsigned dir, char ret[8]);


/* ---- io.c: whole-buffer helpers; pread past EOF fills with zeros ---- */
int read_full(int fd, void *buf, size_t len, uint64_t off);
/* A present block is whole in the object; where it ends before, data was lost: -EIO. */
int read_object(struct tfile *f, void *buf, size_t len, uint64_t off);
int write_full(int fd, const void *buf, size_t len, uint64_t off);
/* Before SRC's data in [start, end) changes: the durable state may have clean copies of blocks that
 * memory has forgotten; they leave it. */
void forget_durably(struct tfile *f, uint64_t start, uint64_t end);
int src_change_begin(struct tfile *f);
bool src_has_stamp(const struct stat *st, const struct src_stamp *stamp);
int tfile_stat_src(struct tfile *f, struct stat *st); /* in use or not */
/* Know SRC's stamp, with SRC synced, so that the busy mark can go. -errno. */
int src_settle(struct tfile *f);
/* SRC cut where a cut is pending; src_mutex and all ranges held. */
int redo_cut(struct tfile *f);
int settle_cut(struct tfile *f, bool have_src); /* takes both, or the ranges only */
int zero_past_end(struct tfile *f, uint64_t size, uint64_t upto);
int sync_src_data(struct tfile *f);
int sync_src(struct tfile *f); /* what fsync promises of it */
int sync_src_all(struct tfile *f); /* what write-back has under way too */
void src_change_end(struct tfile *f);
/* The same for a change that the durable state covers until SRC is synced: fsync need not. */
void src_writeback_end(struct tfile *f);
/* What both do to the file's marks; alone for open.c, which began by hand, under load_mutex. */
void src_changed_locked(struct tfile *f, bool fsync_wants_it);

/* ---- stream.c ---- */
/* The kernel begins to read it. A hint: that it was not taken is no error, a read will tell. */
void read_soon(int fd, uint64_t at, uint64_t end);
/* Runs of reads and writes of an open file, in use. */
void stream_note_write(struct tfile *f, struct tier_stream *s, uint64_t off, size_t len);
/* A read up to `end`, noted in s->read, belongs to a run of so many bytes. */
void stream_read_ahead(struct tfile *f, struct tier_stream *s, uint64_t run_bytes, uint64_t end);
/* [start, end) was written to SRC. */
void stream_write_out(struct tfile *f, struct tier_stream *s, uint64_t start, uint64_t end);

/* ---- migration steps: > 0 more to do, 0 nothing, -errno ---- */
int writeback_step(struct volume *v, int64_t now_ns);
int writeback_file(struct tfile *f, uint64_t budget, bool force, uint64_t *ret_bytes);
/* The file is gone from SRC: its row and object go too. */
void gone_from_src(struct tfile *f);
/* volume_flush_step() for what is known to be dirty. */
int flush_some(struct volume *v, uint64_t budget, uint64_t *ret_bytes, uint64_t *ret_left_bytes);
/* After writeback_file(): backs off after a failure, requeues what is dirty still. */
void writeback_note(struct tfile *f, int r, int64_t now_ns);
int promote_queue_step(struct volume *v);
int promote_extent(struct tfile *f, uint64_t extent, uint64_t from, uint64_t to, bool background,
		   uint64_t *ret_bytes);
int evict_step(struct volume *v, int64_t now_ns);
/* Make room, but not at the cost of `keep` (may be NULL). -ENOSPC; -EAGAIN: what was evicted is
 * still in use, later. */
int evict_room(struct volume *v, uint64_t bytes, const struct tfile *keep);
int evict_range(struct tfile *f, uint64_t start, uint64_t end, uint64_t *ret_bytes);
int reclaim_file(struct tfile *f); /* release the object's space of absent blocks (I4) */
int reclaim_step(struct volume *v);
int bury_step(struct volume *v);

/* ---- recover.c ---- */
#define GONE_NONE ((uint64_t)INT64_MAX) /* all were looked for */
int recover_volume(struct volume *v);
int recover_settle_map(struct tfile *f, int obj_fd);
/* First use after a crash, with size and object known: zero what is behind the end. */
void recover_tail(struct tfile *f);
void redo_cut_at_mount(struct tfile *f); /* while mounting only */
int recover_step(struct volume *v, int64_t now_ns);
bool recover_pending(const struct volume *v);

/* ---- prefetch.c: hints while mounting; they return when the reading is done, or under way ---- */
void prefetch_objects(struct volume *v, const struct id_set *ids);
void prefetch_file(int dir_fd, const char *name);

/* ---- stamps.c ---- */
void stamps_open(struct volume *v);
/* SRC's stamp is what we have just made it; stored if the durably clean copies are right. */
void stamps_note(struct tfile *f);
/* What it was then, by a daemon that was killed since. */
bool stamps_find(struct volume *v, uint64_t id, struct src_stamp *ret);
/* The durable state calls copies clean that are not; until the next commit. */
void stamps_distrust_locked(struct tfile *f);
/* Around what changes SRC below such copies. */
void stamps_reshape_begin(struct tfile *f);
void stamps_reshape_end(struct tfile *f);

/* ---- pin.c ---- */
int volume_remember_pinned_dir(struct volume *v, const struct src_key *key);

/* ---- volume.c ---- */
void volume_log(struct volume *v, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void volume_error(struct volume *v, const struct tfile *f, int r, const char *what);
void volume_wake(struct volume *v);
int64_t volume_now(struct volume *v);
struct timespec volume_wall(struct volume *v);
void volume_saw_time(struct volume *v, int64_t ns);

static inline int64_t timespec_ns(struct timespec t)
{
	int64_t ns;

	/* Dates before 1678 and after 2262 are not told apart. */
	if (__builtin_mul_overflow((int64_t)t.tv_sec, SECOND_NS, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)t.tv_nsec, &ns))
		return t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

static inline struct timespec ns_timespec(int64_t ns)
{
	struct timespec t = { .tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS };

	if (t.tv_nsec < 0) {
		t.tv_nsec += SECOND_NS;
		t.tv_sec--;
	}
	return t;
}

#endif
