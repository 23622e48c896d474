// SPDX-License-Identifier: GPL-2.0-or-later
/* Talking to the commands (fs/proto.h), and the inode flags of chattr(1), which are SRC's. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "db/base.h"
#include "fs/ops.h"
#include "fs/passthrough.h"
#include "fs/proto.h"

struct call {
	fuse_req_t req;
	struct fs *fs;
	struct inode *inode; /* borrowed from the handle */
	struct tfile *file;  /* borrowed from the handle; NULL for a directory */
	int fd;		     /* borrowed; of SRC, really open */
};

union answer {
	struct hfs_version version;
	struct hfs_file_stat file_stat;
	struct hfs_extents extents;
	struct hfs_step step;
	struct hfs_status status;
	struct fsxattr fsxattr;
	unsigned char bytes[64];
	long flags;
};

/* ---- version, status ----------------------------------------------------------------------- */
static int get_version(const struct call *c, union answer *a)
{
	(void)c;
	a->version = (struct hfs_version){ .magic = HFS_PROTO_MAGIC,
					   .version = HFS_PROTO_VERSION,
					   .pid = getpid() };
	return 0;
}

static void copy_string(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

static const char *mode_name(enum volume_mode mode)
{
	static const char *const names[] = { [MODE_WRITEBACK] = "writeback",
					     [MODE_WRITETHROUGH] = "writethrough",
					     [MODE_WRITEAROUND] = "writearound" };

	return names[mode];
}

static uint64_t uptime_s(const struct fs *fs)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)(t.tv_sec - fs->start_ns / 1000000000);
}

static void put_numbers(const struct volume_status *v, struct hfs_status *s)
{
	s->healthy = v->healthy;
	s->recovering = v->recovering;
	s->ssd_used_bytes = v->ssd_used_bytes;
	s->ssd_cap_bytes = v->ssd_cap_bytes;
	s->dirty_bytes = v->dirty_bytes;
	s->pinned_bytes = v->pinned_bytes;
	s->tracked_files = v->tracked_files;
	s->hits = v->hits;
	s->misses = v->misses;
	s->read_hit_bytes = v->read_hit_bytes;
	s->read_miss_bytes = v->read_miss_bytes;
	s->hits_1m = v->hits_1m;
	s->misses_1m = v->misses_1m;
	s->hits_1h = v->hits_1h;
	s->misses_1h = v->misses_1h;
	s->promotions = v->promotions;
	s->demotions = v->demotions;
	s->promoted_bytes = v->promoted_bytes;
	s->demoted_bytes = v->demoted_bytes;
	s->written_back_bytes = v->written_back_bytes;
	s->bypassed_bytes = v->bypassed_bytes;
	s->write_back_bytes_per_s = v->write_back_bytes_per_s;
	s->promote_queue = v->promote_queue;
	s->dirty_files = v->dirty_files;
	s->conflicts = v->conflicts;
	s->errors = v->errors;
	s->lost_ranges = v->lost_ranges;
	s->passthrough_opens = v->pass_opens;
	s->passthrough_files = v->pass_files;
	copy_string(s->health_reason, sizeof(s->health_reason), v->health_reason);
}

static int get_status(const struct call *c, union answer *a)
{
	const struct mount_options *o = c->fs->opt;
	struct hfs_status *s = &a->status;
	struct volume_status v;

	volume_status(c->fs->volume, &v);
	*s = (struct hfs_status){ .version = HFS_PROTO_VERSION,
				  .pid = getpid(),
				  .read_only = o->read_only || c->fs->src.read_only,
				  .privileged = c->fs->privileged,
				  .passthrough = !*passthrough_mount_why_not(c->fs),
				  .uptime_s = uptime_s(c->fs) };
	copy_string(s->source, sizeof(s->source), o->src);
	copy_string(s->ssd, sizeof(s->ssd), o->ssd);
	copy_string(s->mountpoint, sizeof(s->mountpoint), o->mnt);
	copy_string(s->mode, sizeof(s->mode), mode_name(volume_options(c->fs->volume)->mode));
	copy_string(s->volume_id, sizeof(s->volume_id), volume_id(c->fs->volume));
	copy_string(s->why_not_passthrough, sizeof(s->why_not_passthrough),
		    passthrough_mount_why_not(c->fs));
	put_numbers(&v, s);
	return 0;
}

/* ---- one file ------------------------------------------------------------------------------ */
static bool dir_pinned(const struct call *c)
{
	struct src_key key;

	inode_key(c->inode, &key);
	return volume_dir_pinned(c->fs->volume, &key);
}

static int get_file_stat(const struct call *c, union answer *a)
{
	struct hfs_file_stat *s = &a->file_stat;
	struct tfile_figures f = { 0 };
	struct stat st;
	int r = attr_of_fd(c->fs, c->inode, c->fd, &st);

	if (r < 0)
		return r;
	*s = (struct hfs_file_stat){ .ino = st.st_ino, .is_regular = c->file != NULL };
	if (!c->file) {
		s->pinned = dir_pinned(c);
		return 0;
	}
	tfile_figures(c->file, &f);
	s->size_bytes = (uint64_t)st.st_size;
	s->ssd_bytes = f.ssd_bytes;
	s->dirty_bytes = f.dirty_bytes;
	s->pinned_bytes = f.pinned_bytes;
	s->heat = f.heat;
	s->pinned = f.pinned;
	s->conflict = f.conflict;
	passthrough_why_not(c->fs, c->inode, c->file, s->why_not_passthrough,
			    sizeof(s->why_not_passthrough));
	s->passthrough = !*s->why_not_passthrough;
	return 0;
}

static enum hfs_reason reason_of(const struct tfile_extent *e)
{
	if (e->state == 2)
		return HFS_WHY_DIRTY;
	if (e->state == 1 && e->pinned)
		return HFS_WHY_PINNED;
	if (e->state == 1)
		return e->heat > 0 ? HFS_WHY_HOT : HFS_WHY_WRITTEN;
	if (e->hole)
		return HFS_WHY_HOLE;
	return e->queued ? HFS_WHY_QUEUED : HFS_WHY_COLD;
}

static int get_extents(const struct call *c, union answer *a)
{
	struct tfile_extent rows[HFS_EXTENTS_PER_CALL];
	struct hfs_extents *x = &a->extents;
	unsigned n = 0;
	int r;

	if (!c->file)
		return -EISDIR;
	r = tfile_extents(c->file, &x->start, x->include_absent, rows, HFS_EXTENTS_PER_CALL, &n);
	if (r < 0)
		return r;
	x->count = n;
	for (unsigned i = 0; i < n; i++)
		x->rows[i] = (struct hfs_extent){ .offset = rows[i].offset,
						  .length = rows[i].length,
						  .state = (uint8_t)rows[i].state,
						  .pinned = rows[i].pinned,
						  .heat = rows[i].heat,
						  .reason = (uint8_t)reason_of(&rows[i]) };
	return 0;
}

/* ---- steps --------------------------------------------------------------------------------- */
static uint64_t dirty_bytes(const struct call *c)
{
	struct tfile_figures f;

	tfile_figures(c->file, &f);
	return f.dirty_bytes;
}

static int step_promote(const struct call *c, struct hfs_step *s)
{
	uint64_t size = tfile_size(c->file);
	uint64_t end = s->length > UINT64_MAX - s->offset ? UINT64_MAX : s->offset + s->length;
	if (s->flags & HFS_NO_WAIT)
		return tfile_promote_later(c->file, s->offset, s->length);
	uint64_t next = s->next;
	int r = tfile_promote_step(c->file, s->offset, s->length, HFS_STEP_BYTES, &next,
				   &s->done_bytes);

	end = min_u64(end, size);
	s->next = next;
	s->left_bytes = next < end ? end - next : 0;
	return r;
}

static int step_demote(const struct call *c, struct hfs_step *s)
{
	uint64_t next = s->next;
	int r = tfile_demote_step(c->file, HFS_STEP_BYTES, s->flags & HFS_FORCE, &next,
				  &s->done_bytes);
	struct tfile_figures f;

	tfile_figures(c->file, &f);
	s->next = next;
	s->left_bytes = f.ssd_bytes;
	return r;
}

static int step_flush(const struct call *c, struct hfs_step *s)
{
	uint64_t next = s->next;
	int r = tfile_flush_step(c->file, HFS_STEP_BYTES, s->flags & HFS_FORCE, &next,
				 &s->done_bytes);

	s->next = next;
	s->left_bytes = dirty_bytes(c);
	return r;
}

static int step_pin(const struct call *c, struct hfs_step *s)
{
	bool whole = s->flags & HFS_WHOLE;

	if (s->action == HFS_PIN)
		return tfile_pin(c->file, whole, s->offset, s->length);
	return tfile_unpin(c->file, whole, s->offset, s->length);
}

static int step_pin_dir(const struct call *c, const struct hfs_step *s)
{
	_cleanup_free_ char *path = path_hint(c->fs, c->inode, c->fd);
	struct src_key key;

	inode_key(c->inode, &key);
	if (s->action == HFS_PIN)
		return volume_pin_dir(c->fs->volume, &key, path);
	return volume_unpin_dir(c->fs->volume, &key);
}

static int step_flush_all(const struct call *c, struct hfs_step *s)
{
	if (s->next == 0)
		volume_flush_begin(c->fs->volume);
	int r = volume_flush_step(c->fs->volume, HFS_STEP_BYTES, &s->done_bytes, &s->left_bytes);

	s->next = r > 0 ? 1 : UINT64_MAX;
	return r < 0 ? r : 0;
}

/* What costs others is for the owner of the file, or of the mount, and root. */
static int may(const struct call *c, uint32_t action)
{
	uid_t uid = fuse_req_ctx(c->req)->uid;
	struct stat st;

	if (uid == 0 || action == HFS_PROMOTE || action == HFS_FLUSH)
		return 0;
	if (action == HFS_FLUSH_ALL)
		return uid == geteuid() ? 0 : -EPERM;
	if (fstatat(c->fd, "", &st, AT_EMPTY_PATH) < 0)
		return neg_errno();
	return uid == st.st_uid ? 0 : -EPERM;
}

static int step_file(const struct call *c, struct hfs_step *s)
{
	switch (s->action) {
	case HFS_PROMOTE:
		return step_promote(c, s);
	case HFS_DEMOTE:
		return step_demote(c, s);
	case HFS_FLUSH:
		return step_flush(c, s);
	default:
		return step_pin(c, s);
	}
}

static int do_step(const struct call *c, union answer *a)
{
	struct hfs_step *s = &a->step;
	int r = may(c, s->action);

	if (s->action < HFS_PROMOTE || s->action > HFS_FLUSH_ALL)
		return -EINVAL;
	if (r < 0)
		return r;
	s->done_bytes = s->left_bytes = 0;
	if (s->action == HFS_FLUSH_ALL)
		return step_flush_all(c, s);
	bool pin = s->action == HFS_PIN || s->action == HFS_UNPIN;

	/* A directory is walked by the command; by itself it only has a pin. */
	if (c->file)
		r = step_file(c, s);
	else
		r = pin ? step_pin_dir(c, s) : 0;
	if (!c->file || pin || (s->action == HFS_PROMOTE && (s->flags & HFS_NO_WAIT)))
		s->next = UINT64_MAX;
	return r;
}

/* ---- SRC's own ----------------------------------------------------------------------------- */
/* An immutable or append-only file can not be written back to any more: what is newer on the SSD
 * goes first. */
static int flush_before_flags(const struct call *c)
{
	uint64_t next = 0, done;
	int r = 0;

	while (c->file && r == 0 && next != UINT64_MAX && dirty_bytes(c) > 0)
		r = tfile_flush_step(c->file, HFS_STEP_BYTES, false, &next, &done);
	return r;
}

static int set_in_src(const struct call *c, unsigned cmd, union answer *a)
{
	int r = flush_before_flags(c);

	if (r == 0 && c->file)
		r = tfile_change_begin(c->file);
	if (r < 0)
		return r;
	if (ioctl(c->fd, cmd, a) < 0)
		r = neg_errno();
	if (c->file)
		tfile_change_end(c->file);
	attr_unsynced(c->inode, c->file);
	return r;
}

static int get_from_src(const struct call *c, unsigned cmd, union answer *a)
{
	return ioctl(c->fd, cmd, a) < 0 ? neg_errno() : 0;
}

/* ---- the request --------------------------------------------------------------------------- */
static int dispatch(const struct call *c, unsigned cmd, union answer *a)
{
	switch (cmd) {
	case HFS_IOC_VERSION:
		return get_version(c, a);
	case HFS_IOC_STATUS:
		return get_status(c, a);
	case HFS_IOC_FILE_STAT:
		return get_file_stat(c, a);
	case HFS_IOC_EXTENTS:
		return get_extents(c, a);
	case HFS_IOC_STEP:
		return do_step(c, a);
	case FS_IOC_GETFLAGS:
	case FS_IOC_GETVERSION:
	case FS_IOC_FSGETXATTR:
		return get_from_src(c, cmd, a);
	case FS_IOC_SETFLAGS:
	case FS_IOC_FSSETXATTR:
		return set_in_src(c, cmd, a);
	default:
		return -ENOTTY;
	}
}

static int do_ioctl(fuse_req_t req, unsigned cmd, struct fuse_file_info *fi, unsigned flags,
		    union answer *a)
{
	struct call c = { .req = req, .fs = fs_of(req) };

	if (flags & FUSE_IOCTL_COMPAT)
		return -ENOTTY;
	if (flags & FUSE_IOCTL_DIR) {
		c.inode = open_dir_of(fi->fh)->head.inode;
		c.fd = open_dir_of(fi->fh)->fd;
	} else {
		c.inode = open_file_of(fi->fh)->head.inode;
		c.file = open_file_of(fi->fh)->file;
		c.fd = tfile_src_fd(c.file);
	}
	return dispatch(&c, cmd, a);
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
	      size_t out_size)
{
	union answer a;
	int r = -EINVAL;

	(void)ino;
	(void)arg;
	memset(&a, 0, sizeof(a));
	if (in_size <= sizeof(a) && out_size <= sizeof(a)) {
		if (in_size > 0)
			memcpy(&a, in, in_size);
		r = do_ioctl(req, cmd, fi, flags, &a);
	}
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_ioctl(req, 0, &a, out_size);
}
