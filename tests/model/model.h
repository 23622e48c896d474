// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The model test runs random operations on a mount (MNT) and the same ones on a plain directory
 * (REF), and compares what both sides return and hold after each step. The reference is the truth;
 * the model in memory only knows which names, files and open handles exist, when each file's
 * modification time last moved, and (for kill -9) which bytes are durable.
 *
 * The first difference ends the program: fail() and its relatives print the report, unmount, and
 * exit with 1. So functions here have no error returns except where a caller can go on.
 * One thread does the work; a watchdog thread reports a step that does not end (watch.c).
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

enum side { MNT, REF, NSIDES };
enum kind { K_FILE = 1, K_DIR = 2, K_LINK = 4, K_ANY = 7 };

#define KIB(n) ((off_t)(n) << 10)
#define MIB(n) ((off_t)(n) << 20)
#define GIB(n) ((off_t)(n) << 30)

/* Limits of the small world. The model must not run out of slots before these are reached. */
#define FILES_MIN   8
#define FILES_MAX   20
#define DIRS_MAX    5
#define LINKS_MAX   6
#define ENTS_MAX    64
#define NODES_MAX   80
#define HANDLES_MAX 10
#define TOUCHED_MAX 8
#define NWINDOWS    3
#define WINDOW_MAX  (1536u << 10)
#define IO_MAX	    (640u << 10)
#define PATH_BYTES  4096
#define XATTR_NAMES 5
#define XATTR_VALUE 200

/* ---- random numbers and data (pick.c) ------------------------------------------------------ */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);
/* True once in n calls, on average. */
bool rng_one_in(struct rng *r, uint32_t n);

struct span {
	off_t off;
	size_t len;
};

/* All data lives in these windows; between them files hold only zeros. */
extern const struct span windows[NWINDOWS];

/* A range inside one window, near block and extent edges, both ends multiples of align. */
struct span pick_span(struct rng *r, size_t align);
/* An offset inside a window, for sizes and seeks. */
off_t pick_offset(struct rng *r);
/* The part of [off, off + len) inside the window of off; empty when off is in none. */
struct span span_in_window(off_t off, size_t len);

/* Fills buf with words that name their writer (file id, step) and place; see pattern_explain(). */
void pattern_fill(unsigned char *buf, uint32_t id, uint32_t step, off_t off, size_t len);
/* Says in out who wrote the aligned 8 bytes at off: "step 12 of file 3", "zeros", "no pattern". */
void pattern_explain(const unsigned char *word, off_t off, char *out, size_t out_size);

/* ---- the world (world.c) ------------------------------------------------------------------- */

/* One inode, the same on both sides. Lives while it has names or handles. */
struct node {
	bool used;
	enum kind kind;
	uint32_t id;
	unsigned int links;	       /* entries that name it */
	unsigned int handles;	       /* handles that hold it, mappings included */
	ino_t ino[NSIDES];	       /* as first seen; the mount's must never change */
	struct timespec mtime[NSIDES]; /* as last seen */
	off_t size;		       /* of the reference, as last seen */
	struct timespec late_to;       /* a move up to here may still show up: see mmap_store */
	bool lazy_mtime;	       /* stores without msync: the kernel may move mtime later */
	bool mtime_durable;	       /* must survive kill -9 unchanged */
	struct durable *durable;       /* owned; NULL unless --kills and a file */
};

/* A name. dir is borrowed; the root is a node without entry. */
struct ent {
	bool used;
	struct node *dir, *node;
	const char *name; /* static */
};

/* An open file on both sides, or (fd -1) a mapping that outlived its fd. */
struct handle {
	struct node *node; /* NULL: free slot */
	int fd[NSIDES];
	int flags; /* of open() */
	unsigned char *map[NSIDES];
	off_t map_off;
	size_t map_len;
};

struct loc {
	struct node *dir;
	const char *name;
	struct ent *ent; /* what is there now, or NULL */
};

struct outcome {
	long ret[NSIDES];
	int err[NSIDES];
};

struct config {
	const char *mnt, *ref, *src, *ssd, *tool, *mount_opts, *daemon_log, *on_fail;
	const char *command; /* as it was typed */
	uint64_t steps, seed;
	bool pinned;
	bool kills, remounts, tier_ops, verbose, lax_kill, strict_times, tier_strict, no_mount_ops,
		seed_given;
	unsigned int tier_every, remount_every, kill_every, full_every, hang_s, piece;
	unsigned int stress_procs, stress_s;
	int sabotage;
};

struct world {
	const struct config *cfg;
	struct rng rng;	      /* chooses operations and arguments */
	struct rng check_rng; /* chooses how to look; kept apart so that looks change nothing */
	uint64_t step;
	const char *root[NSIDES]; /* MNT's is SRC while nothing is mounted */
	struct node nodes[NODES_MAX];
	struct ent ents[ENTS_MAX];
	struct handle handles[HANDLES_MAX];
	struct node *root_node;
	uint32_t next_id;
	struct node *touched[TOUCHED_MAX];
	unsigned int ntouched;
	struct timespec op_start, op_end; /* the window in which a "now" must lie */
	bool offline;			  /* working on SRC while nothing is mounted */
	bool still;			  /* this step must not move any mtime at all */
	struct node *loose[2]; /* filesystems differ in whether this step moves their mtime */
	bool mmap_store;       /* this step stored through a mapping: the mtime may show up late */
	struct node *set_node; /* node with explicit mtime in this step, or NULL */
	struct timespec set_mtime;
	bool dir_nlink_equal; /* both filesystems count subdirectories the same way */
	bool direct_ok[NSIDES];
	size_t direct_align;
	unsigned char *io[NSIDES];  /* IO_MAX, aligned: what an operation reads or writes */
	unsigned char *win[NSIDES]; /* WINDOW_MAX, aligned: content while comparing */
	int sabotage;		    /* pending kind, 0 none */
	uint64_t sabotage_step, sabotaged_at;
	uint64_t ops, full_compares, tier_runs, tier_failures, remounts, kills, late_mtimes;
};

void world_init(struct world *w, const struct config *cfg);
void world_release(struct world *w);

/* Adds a node for the object at dir/name, which exists on both sides, with that first entry. */
struct node *world_add(struct world *w, enum kind kind, struct node *dir, const char *name);
struct ent *ent_add(struct world *w, struct node *dir, const char *name, struct node *n);
void ent_remove(struct world *w, struct ent *e);
struct ent *ent_find(struct world *w, const struct node *dir, const char *name);
/* A random entry that names n, or NULL. */
struct ent *ent_of(struct world *w, const struct node *n);
unsigned int world_count(const struct world *w, enum kind kind);
struct node *node_by_ref_ino(struct world *w, ino_t ino);
/* Frees the node when neither names nor handles are left. */
void node_drop_if_dead(struct node *n);

/* Random choices; NULL when there is nothing of the kind. */
struct ent *pick_ent(struct world *w, unsigned int kinds);
struct loc pick_loc(struct world *w);
struct loc pick_free_loc(struct world *w);
/* want_map: one with a mapping, whether its fd is still open or not; otherwise one with an fd. */
struct handle *pick_handle(struct world *w, bool want_read, bool want_write, bool want_map);
/* A handle that names the node through an fd, or NULL. */
struct handle *handle_of(struct world *w, const struct node *n);
struct handle *handle_new(struct world *w);
void handle_close(struct world *w, struct handle *h);
void handle_unmap(struct handle *h);
void handles_close_all(struct world *w);

/* Paths: "ROOT/dir/name" of a side. buf has PATH_BYTES. Return buf. */
char *path_at(struct world *w, enum side side, const struct node *dir, const char *name, char *buf);
char *path_of(struct world *w, enum side side, const struct node *n, char *buf);
/* Opens the node anew by a name or through one of its handles; -1 with errno, ENODATA: no way. */
int node_open(struct world *w, enum side side, struct node *n, int flags);

void touch(struct world *w, struct node *n);

/* Runs an expression for each side with `side` in scope; then agree() compares what came back. */
#define BOTH(o, expr)                                         \
	do {                                                  \
		for (int side = 0; side < NSIDES; side++)     \
			outcome_set((o), side, (long)(expr)); \
	} while (0)
void outcome_set(struct outcome *o, int side, long ret);
/* Fails on a difference in return value or errno; true when both succeeded. */
bool agree(struct world *w, const struct outcome *o);
/* Opens by that name on both sides; false when both fail alike. */
bool open_pair(struct world *w, const struct ent *e, int flags, int *fd);
void close_pair(struct world *w, const int *fd);

/* ---- reports (report.c) -------------------------------------------------------------------- */

/* Starts the log entry of this step; say() adds to it. */
void log_begin(struct world *w, const char *op);
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* All of these print the report with the last operations, clean up, and exit. */
_Noreturn void fail(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A difference in the bytes of n; a is the mount's (or SRC's), b the reference's, at off. */
_Noreturn void fail_bytes(struct world *w, struct node *n, const char *how, off_t off,
			  const unsigned char *a, const unsigned char *b, size_t len);
/* The same where the byte to show is known: a[diff]. */
_Noreturn void fail_byte_at(struct world *w, struct node *n, const char *how, off_t off,
			    const unsigned char *a, const unsigned char *b, size_t len,
			    size_t diff);
/* Not a difference: the environment does not do what the test needs; exit 2. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What to call before exiting after a failure, and the world to report about. */
void report_init(struct world *w, void (*cleanup)(void));
/* From the watchdog: prints the report, or that the clean-up hangs. */
void report_hang(void);
/* Ends the program after the clean-up. */
_Noreturn void finish(int code);

/* ---- comparing (compare.c, look.c) --------------------------------------------------------- */

/* Compares what the step touched. */
void compare_touched(struct world *w);
/* Compares the whole tree, with all times: nothing may have moved since it was last looked at. */
void compare_all(struct world *w);
/* Only the attributes of everything. */
void compare_all_attrs(struct world *w);
void compare_attrs(struct world *w, struct node *n);
void compare_xattrs(struct world *w, struct node *n);
void compare_dir(struct world *w, struct node *n);
/* Takes the times that are there now as the known ones. */
void record_mtimes(struct world *w, struct node *n);
/* The same after fsync has ended the doubt about lazy_mtime; waits for a late one. */
void settle_mtimes(struct world *w, struct node *n);
bool time_equal(struct timespec a, struct timespec b);
bool time_before(struct timespec a, struct timespec b);

/* look.c: content. */
void compare_content(struct world *w, struct node *n);
void compare_mappings(struct world *w, struct node *n);
/* Walks SEEK_DATA and SEEK_HOLE of the mount: no hole over data. */
void compare_holes(struct world *w, struct node *n);
/* Fails unless the reference reads as zeros in [from, to). fd is the reference's. */
void check_zeros(struct world *w, struct node *n, int fd, off_t from, off_t to, const char *what);
/* Reads [off, off + len) and, to notice bytes past the end of the file, up to the end of the last
   page. Returns what there was, more than len if the file is longer; -1 with errno. */
ssize_t read_range(int fd, unsigned char *buf, size_t len, off_t off);
/* The part of the window that lies below size. */
size_t window_len(int window, off_t size);

/* ---- operations (ops_*.c, table in ops.c) -------------------------------------------------- */

/* An operation returns false when there was nothing to do it to; then another is chosen. */
struct op {
	const char *name;
	unsigned int weight;
	bool (*run)(struct world *w);
};
extern const struct op ops[];

bool op_open(struct world *w);
bool op_close(struct world *w);
bool op_fsync(struct world *w);
bool op_fsync_dir(struct world *w);
bool op_read(struct world *w);
bool op_pread(struct world *w);
bool op_write(struct world *w);
bool op_pwrite(struct world *w);
bool op_append(struct world *w);
bool op_path_write(struct world *w);
bool op_copy_range(struct world *w);
bool op_truncate(struct world *w);
bool op_ftruncate(struct world *w);
bool op_fallocate(struct world *w);
bool op_seek(struct world *w);
bool op_mmap_write(struct world *w);
bool op_mmap_read(struct world *w);
bool op_map_hold(struct world *w);
bool op_map_store(struct world *w);
bool op_map_drop(struct world *w);
bool op_link(struct world *w);
bool op_unlink(struct world *w);
bool op_rename(struct world *w);
bool op_mkdir(struct world *w);
bool op_rmdir(struct world *w);
bool op_symlink(struct world *w);
bool op_look(struct world *w);
bool op_readdir(struct world *w);
bool op_chmod(struct world *w);
bool op_chown(struct world *w);
bool op_utimens(struct world *w);
bool op_setxattr(struct world *w);
bool op_removexattr(struct world *w);

/* One random operation with its compare. */
void run_step(struct world *w);
/* fsync on both sides, by path or handle; makes the content durable in the model. */
void sync_node(struct world *w, struct node *n);

/* ---- durability (durable.c) ---------------------------------------------------------------- */

/* All do nothing unless the test kills (--kills). They are called after the operation. */
void durable_new(struct world *w, struct node *n);
void durable_free(struct node *n);
/* Forgets the history: what the reference holds now is what must be there. */
void durable_synced(struct world *w, struct node *n);
/* Bytes were written at [off, off + len); old_size is the size before. sync: O_SYNC or msync. */
void durable_wrote(struct world *w, struct node *n, off_t off, size_t len, off_t old_size,
		   bool sync);
/* The range reads as zeros from now on; the size may have changed from old_size. */
void durable_zeroed(struct world *w, struct node *n, off_t off, off_t len, off_t old_size);
/* The size changed from old_size by truncate or fallocate. */
void durable_resized(struct world *w, struct node *n, off_t old_size);
/* Nothing was written since the last fsync. */
bool durable_clean(const struct node *n);
/* After the restart: checks what the mount shows now, and makes the reference equal to it. */
void durable_verify(struct world *w, struct node *n);
/* An offset whose byte has exactly one allowed value, or -1. For sabotage. */
off_t durable_certain_offset(struct world *w, struct node *n);

/* ---- the mount (mount.c, tool.c, steps.c) -------------------------------------------------- */

/* Starts the daemon and waits until the mount answers; dies when it does not. */
void mount_start(const struct config *cfg);
/* Unmounts by the tool and waits for the daemon; false with the reason in why. */
bool mount_stop(const struct config *cfg, char *why, size_t why_size);
/* kill -9 of the daemon; the dead mount stays. */
void mount_kill(void);
/* Lazy unmount of whatever is on MNT above what was there at the start. */
void mount_detach(const struct config *cfg);
/* Whatever is left, gently, then by force; safe to call at any time. */
void mount_cleanup(const struct config *cfg);
/* Kills the daemon and detaches the mount, so that blocked system calls return. Any thread. */
void mount_abort(const struct config *cfg);
/* Puts the daemon's pid into the environment. */
void mount_export_pid(const char *name);
/* "running", "ended with status 1", ... */
void mount_state(char *out, size_t out_size);
/* "exit code 1", "signal 9", "still running after the time limit" */
void describe_status(int status, char *out, size_t out_size);

#define TOOL_ARGS    10
#define TOOL_LIMIT_S 120
#define TOOL_TIMEOUT (-1) /* instead of a wait status: it was killed after the time limit */

/* Starts the tool with args (without argv[0], NULL-terminated); -errno. out_fd is a memfd that gets
   its output; the caller closes it. */
pid_t tool_start(const struct config *cfg, const char *const *args, int *ret_out_fd);
/* Waits for it; returns its wait status, or TOOL_TIMEOUT. */
int tool_wait(pid_t pid, unsigned int limit_s);
/* The first line of its output. */
void tool_output(int out_fd, char *out, size_t out_size);
/* All of it. */
int tool_run(const struct config *cfg, const char *const *args, char *out, size_t out_size);

/* Steps that only exist with --tool. */
void step_remount(struct world *w);
void step_kill(struct world *w);
void step_tier(struct world *w);
/* Fills SRC with some files, as an existing tree, and mounts. */
void steps_begin(struct world *w);
/* Unmounts, compares SRC for the last time. */
void steps_end(struct world *w);
/* A tier command may run beside the steps; this waits for it. */
void tier_wait(struct world *w);

/* ---- the rest ------------------------------------------------------------------------------ */

/* watch.c: a step that takes longer than cfg->hang_s is a hang. */
void watch_start(const struct config *cfg);
void watch_alive(void);

/* sabotage.c: damages the mount on purpose; the run must then fail. */
int sabotage_parse(const char *name);
void sabotage_list(FILE *f);
const char *sabotage_name(int kind);
/* After a step. */
void sabotage_step(struct world *w);
/* True once: the caller then leaves the truncate out on the mount. */
bool sabotage_truncate(struct world *w);
/* After the daemon was killed, or unmounted cleanly; works on SRC. */
void sabotage_killed(struct world *w);
void sabotage_unmounted(struct world *w);

/* stress.c, record.c */
int stress_main(const struct config *cfg);

#endif
