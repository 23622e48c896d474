// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/ops.h"

#include <pthread.h>
#include <stdlib.h>

#include "db/base.h"

/* Requests that the kernel may send ahead (read-ahead, asynchronous direct I/O). */
#define BACKGROUND_MAX 64

/* ---- negotiation ---------------------------------------------------------------------------- */
/* libfuse >= 3.17 does not like both ways of setting flags in one program. */
static void set_flags(struct fuse_conn_info *conn, uint64_t flags, bool on)
{
#if HAVE_FUSE_SET_FEATURE_FLAG
	for (uint64_t bit = 1; bit; bit <<= 1) {
		if ((flags & bit) && on)
			fuse_set_feature_flag(conn, bit);
		else if (flags & bit)
			fuse_unset_feature_flag(conn, bit);
	}
#else
	if (on)
		conn->want |= (unsigned)flags & conn->capable;
	else
		conn->want &= ~(unsigned)flags;
#endif
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata; /* with an older libfuse, compat.c does what is missing here */
	set_flags(conn,
		  FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK |
			  FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_IOCTL_DIR | FUSE_CAP_ATOMIC_O_TRUNC |
			  FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
			  FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_HANDLE_KILLPRIV,
		  true);
#if HAVE_FUSE_SET_FEATURE_FLAG
	set_flags(conn, FUSE_CAP_HANDLE_KILLPRIV_V2, true);
#endif
#ifdef FUSE_CAP_PASSTHROUGH
	const struct fs *fs = userdata;

	if (fs->pass && (conn->capable_ext & FUSE_CAP_PASSTHROUGH)) {
		set_flags(conn, FUSE_CAP_PASSTHROUGH, true);
		conn->max_backing_stack_depth = 1;
	}
#endif
	/* Pages are dropped when we say so (notify.h), not whenever an mtime moved: what the tier
	 * writes back moves it in SRC, and it is the same content. */
	set_flags(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
	if (conn->capable & FUSE_CAP_EXPLICIT_INVAL_DATA)
		set_flags(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	set_flags(conn, FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ, false);
	conn->max_write = IO_BYTES;
	conn->max_background = BACKGROUND_MAX;
}

/* ---- buffers ------------------------------------------------------------------------------- */
static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void make_buffer_key(void)
{
	pthread_key_create(&buffer_key, free);
}

void *io_buffer(void)
{
	pthread_once(&buffer_once, make_buffer_key);
	void *buffer = pthread_getspecific(buffer_key);

	if (!buffer && posix_memalign(&buffer, 4096, IO_BYTES) == 0)
		pthread_setspecific(buffer_key, buffer);
	return buffer;
}

/* ---- replies ------------------------------------------------------------------------------- */
void reply_result(fuse_req_t req, int r)
{
	fuse_reply_err(req, -r);
}

void reply_entry(fuse_req_t req, int r, const struct fuse_entry_param *e, bool negative)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param none = { .entry_timeout = fs->negative_timeout_s };

	if (r == -ENOENT && negative && none.entry_timeout > 0)
		fuse_reply_entry(req, &none);
	else if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, e) < 0)
		inode_forget(&fs->inodes, e->ino, 1);
}

const struct fuse_lowlevel_ops fs_operations = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.link = op_link,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.create = op_create,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.ioctl = op_ioctl,
};
