// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/daemon.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "db/base.h"
#include "fs/background.h"
#include "fs/compat.h"
#include "fs/creds.h"
#include "fs/fs.h"
#include "fs/guard.h"
#include "fs/log.h"
#include "fs/loop.h"
#include "fs/notify.h"
#include "fs/ops.h"
#include "fs/passthrough.h"
#include "fs/session.h"
#include "fs/watch.h"

#define FLUSH_STEP_BYTES (8ull << 20)
/* How long an unmounted session may take to end before its connection is cut. */
#define LOOP_END_MS	  2000
#define LOOP_POLL_MS	  20
#define WAKE_LOOP_SIGNAL  SIGUSR2
#define END_THREAD_SIGNAL SIGUSR1

struct daemon {
	const struct mount_options *opt; /* borrowed */
	struct fs fs;
	struct background background;
	struct guard guard;
	int ready_fd; /* owned; the foreground process waits at the other end; or -1 */
	dev_t mount_dev;
	pthread_t main_thread, signal_thread;
	sigset_t signals;
	pthread_mutex_t lock; /* loop_ended, unmounting */
	pthread_cond_t changed;
	bool loop_ended, unmounting; /* the session is not closed while unmounting */
	_Atomic unsigned stops;	     /* signals that asked us to end */
};

/* ---- the process --------------------------------------------------------------------------- */
static unsigned raise_nofile(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1024;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	getrlimit(RLIMIT_NOFILE, &limit);
	return (unsigned)min_u64(limit.rlim_cur, 1u << 20);
}

static void on_wake(int sig)
{
	(void)sig; /* it only has to interrupt the main thread's wait */
}

static void set_signals(struct daemon *d)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, wake = { .sa_handler = on_wake };

	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL); /* EFBIG instead: our limit is not the caller's */
	sigaction(WAKE_LOOP_SIGNAL, &wake, NULL);
	sigemptyset(&d->signals);
	sigaddset(&d->signals, SIGTERM);
	sigaddset(&d->signals, SIGINT);
	sigaddset(&d->signals, SIGHUP);
	sigaddset(&d->signals, END_THREAD_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &d->signals, NULL);
}

static void tell_parent(struct daemon *d, int code)
{
	unsigned char byte = (unsigned char)code;

	if (d->ready_fd >= 0 && write(d->ready_fd, &byte, 1) < 0)
		log_line(LOG_WARNING, "cannot report to the foreground process: %s",
			 strerror(errno));
	if (d->ready_fd >= 0)
		close(d->ready_fd);
	d->ready_fd = -1;
}

static void detach_stdio(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

/*
 * First job of the notifier thread. The kernel has its INIT answered (compat.c), so whoever comes
 * now is served when the loop runs. Nobody here may use our own mount, even once: killed while
 * such a request is being answered the process could not end, and the mount would hang for ever.
 */
static void on_ready(void *arg)
{
	struct daemon *d = arg;

	if (d->mount_dev)
		session_tune(d->mount_dev);
	if (d->ready_fd < 0)
		return;
	log_to_syslog();
	detach_stdio();
	tell_parent(d, MOUNT_OK);
}

/* ---- what the engine asks for -------------------------------------------------------------- */
static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t env_wall(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_REALTIME_COARSE);
}

static int64_t env_monotonic(void *ctx)
{
	(void)ctx;
	return clock_ns(CLOCK_MONOTONIC);
}

static void env_wake(void *ctx)
{
	struct daemon *d = ctx;

	background_wake(&d->background);
}

/* Only requests read and write, and the loop is there as long as they are. */
static void env_waits(void *ctx)
{
	struct daemon *d = ctx;

	loop_hand_over(d->fs.loop);
}

static char *env_path_of(void *ctx, const struct src_key *key)
{
	struct daemon *d = ctx;
	struct inode *i = inode_find(&d->fs.inodes, key);
	char *path = i ? inode_path(&d->fs.inodes, i) : NULL;

	inode_put(&d->fs.inodes, i);
	return path;
}

static void env_invalidate(void *ctx, const struct src_key *key)
{
	struct daemon *d = ctx;
	struct inode *i = inode_find(&d->fs.inodes, key);

	if (i)
		notify_pages(&d->fs, i);
	inode_put(&d->fs.inodes, i);
}

/* ---- signals ------------------------------------------------------------------------------- */
static void pause_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* True: it has ended. */
static bool poke_loop(struct daemon *d, bool hard)
{
	pthread_mutex_lock(&d->lock);
	bool ended = d->loop_ended;

	if (!ended && hard) {
		fuse_session_exit(d->fs.session);
		pthread_kill(d->main_thread, WAKE_LOOP_SIGNAL);
	}
	pthread_mutex_unlock(&d->lock);
	return ended;
}

/* The loop ends by itself once the connection is gone; else it is told to, until it does. */
static void end_loop(struct daemon *d)
{
	for (unsigned waited = 0; !poke_loop(d, waited > LOOP_END_MS); waited += LOOP_POLL_MS) {
		pause_ms(LOOP_POLL_MS);
		if (waited == LOOP_END_MS && d->mount_dev)
			session_abort(d->mount_dev);
	}
}

static bool begin_unmount(struct daemon *d)
{
	pthread_mutex_lock(&d->lock);
	bool begun = d->unmounting = !d->loop_ended;

	pthread_mutex_unlock(&d->lock);
	return begun;
}

static void end_unmount(struct daemon *d)
{
	pthread_mutex_lock(&d->lock);
	d->unmounting = false;
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static void on_stop(struct daemon *d, int sig)
{
	if (++d->stops > 1)
		return;
	if (begin_unmount(d)) {
		log_line(LOG_INFO, "%s: unmounting (%s)", d->opt->mnt, strsignal(sig));
		session_unmount(&d->fs, d->mount_dev, false);
		end_loop(d);
		end_unmount(d);
	} else {
		log_line(LOG_INFO,
			 "%s: is unmounted, still writing back; a second signal stops that",
			 d->opt->mnt);
	}
}

/* The main thread is out of the loop: wait until nobody else uses the session. */
static void loop_has_ended(struct daemon *d)
{
	pthread_mutex_lock(&d->lock);
	d->loop_ended = true;
	while (d->unmounting)
		pthread_cond_wait(&d->changed, &d->lock);
	pthread_mutex_unlock(&d->lock);
}

static void *signal_main(void *arg)
{
	struct daemon *d = arg;
	int sig;

	while (sigwait(&d->signals, &sig) == 0 && sig != END_THREAD_SIGNAL)
		on_stop(d, sig);
	return NULL;
}

/* ---- set-up, in order; each returns 0 or an exit code after saying why on stderr ----------- */
static int fail(const char *what, int err, int code)
{
	fprintf(stderr, "hybridfs: %s: %s\n", what, strerror(err));
	return code;
}

/* Where our view of SRC's filesystem begins: "/" on a clone of the mount (src_init()). */
static size_t src_link_length(const struct src *src)
{
	char proc[FD_PROC_PATH_MAX], link[PATH_MAX];
	ssize_t n = readlink(fd_proc_path(src->root_fd, proc), link, sizeof(link));

	return n > 1 ? (size_t)n : 0;
}

static int open_src(struct daemon *d, unsigned nofile)
{
	struct fs *fs = &d->fs;
	int r = src_init(&fs->src, d->opt->src);

	if (r < 0)
		return fail(d->opt->src, -r, r == -EACCES ? MOUNT_USAGE : MOUNT_FAILED);
	fs->src_link_len = src_link_length(&fs->src);
	fs->watchable = fs->privileged && fs->src.by_handle &&
			watch_is_possible(fs->src.root_fd, fs->src.path);
	fs->fd_limit = (int)(nofile - nofile / 8);
	handle_list_init(&fs->handles);
	order_init(&fs->order);
	fd_cache_init(&fs->fds, nofile);
	r = inode_table_init(&fs->inodes, &fs->src, &fs->fds, (uint64_t)env_wall(NULL) >> 20,
			     file_gone, fs);
	return r < 0 ? fail(d->opt->src, -r, MOUNT_SYSTEM) : 0;
}

static int open_volume(struct daemon *d)
{
	struct volume_env env = { .wall_ns = env_wall,
				  .monotonic_ns = env_monotonic,
				  .wake = env_wake,
				  .waits = env_waits,
				  .log = log_from_volume,
				  .path_of = env_path_of,
				  .invalidate = env_invalidate,
				  .ctx = d };
	char error[512] = "";
	int r = volume_open(&d->fs.src, d->opt->ssd, &d->opt->volume, &env, &d->fs.volume, error,
			    sizeof(error));

	if (r == 0)
		return 0;
	if (!*error)
		return fail(d->opt->ssd, -r, MOUNT_FAILED);
	fprintf(stderr, "hybridfs: %s\n", error);
	return MOUNT_FAILED;
}

static void watch_connection(struct daemon *d)
{
	int r = d->mount_dev ? guard_watch(&d->guard, d->mount_dev) : -ENODEV;

	if (r < 0)
		log_line(LOG_INFO,
			 "%s: if this daemon is killed, who uses the mount may hang: no access to "
			 "its connection: %s",
			 d->opt->mnt, strerror(-r));
}

static double timeout(const struct fs *fs, double given_s)
{
	if (given_s >= 0)
		return given_s;
	return fs->watch ? WATCHED_TIMEOUT_S : PLAIN_TIMEOUT_S;
}

static void watch_src(struct fs *fs)
{
	if (fs->watchable)
		fs->watch = watch_start(fs);
	fs->attr_timeout_s = timeout(fs, fs->opt->attr_timeout_s);
	fs->entry_timeout_s = timeout(fs, fs->opt->entry_timeout_s);
	fs->negative_timeout_s = timeout(fs, fs->opt->negative_timeout_s);
}

static int start_threads(struct daemon *d)
{
	struct compat compat;
	bool pass = d->opt->passthrough && d->opt->volume.mode == MODE_WRITEBACK;
	int r = compat_init(d->fs.session, pass, &compat);

	if (r < 0)
		return fail(d->opt->mnt, -r, MOUNT_FAILED);
	log_line(LOG_DEBUG, "kernel: parallel_dirops %d, killpriv_v2 %d, passthrough %d",
		 compat.parallel_dirops, compat.killpriv_v2, compat.passthrough);
	if (pass && compat.passthrough)
		d->fs.pass = passthrough_new();
	r = background_start(&d->background, d->fs.volume);
	if (r == 0)
		r = -pthread_create(&d->signal_thread, NULL, signal_main, d);
	if (r < 0)
		return fail("cannot start a thread", -r, MOUNT_SYSTEM);
	watch_src(&d->fs);
	d->fs.notifier = notifier_start(&d->fs, on_ready, d);
	return d->fs.notifier ? 0 : fail("cannot start a thread", EAGAIN, MOUNT_SYSTEM);
}

static int set_up(struct daemon *d)
{
	const char *missing = NULL;
	int r;

	d->fs.privileged = creds_init(&missing);
	r = open_src(d, raise_nofile());
	if (r == 0)
		r = open_volume(d);
	if (r == 0)
		r = session_open(&d->fs, d->fs.privileged, &d->mount_dev);
	if (r == 0)
		watch_connection(d);
	if (r == 0)
		r = start_threads(d);
	if (r == 0 && missing)
		log_line(LOG_INFO, "%s", missing);
	return r;
}

/* ---- the end ------------------------------------------------------------------------------- */
/* What is not written back stays on the SSD and is written by the next mount: nothing is lost. */
static int flush(struct daemon *d)
{
	uint64_t done, left = 0;
	int r = 0;

	volume_flush_begin(d->fs.volume);
	if (d->opt->flush_on_unmount)
		while (d->stops < 2 &&
		       (r = volume_flush_step(d->fs.volume, FLUSH_STEP_BYTES, &done, &left)) > 0)
			continue;
	if (r < 0)
		log_line(LOG_ERR, "%s: cannot write everything back: %s; it stays on the SSD",
			 d->opt->src, strerror(-r));
	else if (r > 0)
		log_line(LOG_INFO, "%s: stopped; %llu bytes stay on the SSD for the next mount",
			 d->opt->src, (unsigned long long)left);
	return r < 0 ? r : 0;
}

static int take_down(struct daemon *d)
{
	struct fs *fs = &d->fs;
	int r = 0;

	session_cut(fs);
	watch_stop(TAKE_PTR(fs->watch)); /* as the next, it uses the notifier */
	background_stop(&d->background);
	notifier_stop(TAKE_PTR(fs->notifier));
	session_close(fs);
	guard_stop(&d->guard); /* there is nothing left that could hang */
	if (fs->volume) {
		handle_list_release(fs);
		passthrough_free(TAKE_PTR(fs->pass));
		inode_table_bury(&fs->inodes);
		r = flush(d);
		int closed = volume_close(TAKE_PTR(fs->volume));

		if (closed < 0)
			log_line(LOG_ERR, "%s: closing the volume: %s", d->opt->ssd,
				 strerror(-closed));
		r = r < 0 ? r : closed;
	}
	if (d->signal_thread) {
		pthread_kill(d->signal_thread, END_THREAD_SIGNAL);
		pthread_join(d->signal_thread, NULL);
	}
	if (fs->inodes.segments) {
		order_release(fs);
		inode_table_release(&fs->inodes);
		fd_cache_release(&fs->fds);
	}
	src_release(&fs->src);
	background_release(&d->background);
	return r < 0 ? MOUNT_SYSTEM : MOUNT_OK;
}

/* ---- serving ------------------------------------------------------------------------------- */
static int loop(struct daemon *d)
{
	if (d->opt->single_thread)
		return fuse_session_loop(d->fs.session);
	d->fs.loop = loop_new(d->fs.session, d->opt->max_threads);
	if (!d->fs.loop)
		return -ENOMEM;
	int r = loop_run(d->fs.loop);

	loop_free(TAKE_PTR(d->fs.loop));
	return r;
}

static int serve(const struct mount_options *o, int ready_fd)
{
	static struct daemon daemon; /* handlers and threads point into it */
	struct daemon *d = &daemon;

	*d = (struct daemon){ .opt = o,
			      .ready_fd = ready_fd,
			      .main_thread = pthread_self(),
			      .fs = { .opt = o, .start_ns = clock_ns(CLOCK_MONOTONIC) } };
	d->fs.src.root_fd = -1;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	background_init(&d->background);
	set_signals(d);
	log_init(o->debug);
	if (chdir("/") < 0)
		return fail("/", errno, MOUNT_SYSTEM);
	int r = guard_start(&d->guard);

	if (r < 0)
		return fail("cannot start a process", -r, MOUNT_SYSTEM);
	r = set_up(d);
	if (r == 0) {
		int err = loop(d);

		if (err < 0)
			log_line(LOG_ERR, "%s: serving ended: %s", o->mnt, strerror(-err));
	}
	loop_has_ended(d);
	if (d->fs.session && d->mount_dev && !session_gone(&d->fs))
		session_unmount(&d->fs, d->mount_dev, true);
	int end = take_down(d);

	tell_parent(d, r ? r : MOUNT_FAILED); /* unless on_ready() told it before */
	return r ? r : end;
}

/* ---- in the background --------------------------------------------------------------------- */
static int wait_for_daemon(int fd, pid_t pid)
{
	unsigned char code;
	ssize_t n;
	int status;

	do
		n = read(fd, &code, 1);
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n == 1)
		return code;
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		fprintf(stderr, "hybridfs: the daemon died: %s\n", strsignal(WTERMSIG(status)));
	return MOUNT_SYSTEM;
}

/* What we open must not get the number of a standard stream that the caller had closed. */
static void fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int daemon_run(const struct mount_options *o)
{
	int ends[2];

	fill_stdio();
	if (o->foreground)
		return serve(o, -1);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return fail("cannot make a pipe", errno, MOUNT_SYSTEM);
	fflush(NULL);
	pid_t pid = fork();

	if (pid < 0)
		return fail("cannot fork", errno, MOUNT_SYSTEM);
	if (pid > 0) {
		close(ends[1]);
		return wait_for_daemon(ends[0], pid);
	}
	close(ends[0]);
	setsid();
	return serve(o, ends[1]);
}
