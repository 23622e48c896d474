// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The trick: the first request on the session's descriptor is INIT. It is read from a duplicate,
 * a socket takes the descriptor's place, libfuse processes the request and so writes its reply
 * into the socket, where we read it, set the wanted bits that the kernel offered, and write it to
 * the real descriptor, which then goes back to its place. libfuse never notices.
 */
#include "fs/compat.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/ioctl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "db/base.h"
#include "fs/log.h"

#if HAVE_FUSE_SET_FEATURE_FLAG
int compat_init(struct fuse_session *session, bool want_passthrough, struct compat *ret)
{
	(void)session; /* op_init() asks for everything */
	*ret = (struct compat){ .passthrough = want_passthrough }; /* a backing file tells */
	return 0;
}
#else
/* The kernel wants room for its smallest write in the buffer of any reader. */
#define REQUEST_BYTES (256u << 10)
#define REPLY_BYTES   4096u

/* Of protocol 7.40, for older headers: bits of flags2, and where max_stack_depth is. */
#define FLAGS2_PASSTHROUGH (1u << 5)
#define STACK_DEPTH_OFFSET 36

static ssize_t read_request(int fd, char *buf)
{
	ssize_t n;

	do /* ENOENT: the request was taken back before we had it */
		n = read(fd, buf, REQUEST_BYTES);
	while (n < 0 && (errno == EINTR || errno == ENOENT));
	return n < 0 ? neg_errno() : n;
}

/* Let libfuse answer into a socket. Returns the length of the reply in `reply`. */
static ssize_t catch_reply(struct fuse_session *session, int real, char *request, size_t len,
			   char *reply)
{
	struct fuse_buf buf = { .size = len, .mem = request };
	int fd = fuse_session_fd(session), ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return neg_errno();
	ssize_t n = dup3(ends[0], fd, O_CLOEXEC) < 0 ? neg_errno() : 0;

	close(ends[0]);
	if (n == 0) {
		fuse_session_process_buf(session, &buf);
		n = recv(ends[1], reply, REPLY_BYTES, MSG_DONTWAIT);
		if (n < 0)
			n = neg_errno();
		if (dup3(real, fd, O_CLOEXEC) < 0)
			n = neg_errno();
	}
	close(ends[1]);
	return n;
}

static void patch(const struct fuse_init_in *in, struct fuse_init_out *out, bool want_passthrough,
		  struct compat *ret)
{
	uint32_t wanted = FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV_V2;

	out->flags |= wanted & in->flags;
	ret->parallel_dirops = out->flags & FUSE_PARALLEL_DIROPS;
	ret->killpriv_v2 = out->flags & FUSE_HANDLE_KILLPRIV_V2;
	if (!want_passthrough || !(in->flags & FUSE_INIT_EXT) ||
	    !(in->flags2 & FLAGS2_PASSTHROUGH) || (out->flags & FUSE_WRITEBACK_CACHE))
		return;
	uint32_t depth = 1;

	out->flags |= FUSE_INIT_EXT;
	out->flags2 |= FLAGS2_PASSTHROUGH;
	memcpy((char *)out + STACK_DEPTH_OFFSET, &depth, sizeof(depth));
	ret->passthrough = true;
}

static void patch_reply(const char *request, size_t request_len, char *reply, size_t len,
			bool want_passthrough, struct compat *ret)
{
	const struct fuse_in_header *in = (const struct fuse_in_header *)request;
	const struct fuse_out_header *out = (const struct fuse_out_header *)reply;

	if (request_len < sizeof(*in) + sizeof(struct fuse_init_in) ||
	    len < sizeof(*out) + sizeof(struct fuse_init_out) || in->opcode != FUSE_INIT ||
	    out->error != 0)
		return;
	patch((const struct fuse_init_in *)(request + sizeof(*in)),
	      (struct fuse_init_out *)(reply + sizeof(*out)), want_passthrough, ret);
}

static int answer(struct fuse_session *session, int real, char *request, char *reply,
		  bool want_passthrough, struct compat *ret)
{
	ssize_t len = read_request(real, request);

	if (len < 0)
		return (int)len;
	ssize_t n = catch_reply(session, real, request, (size_t)len, reply);

	if (n < 0)
		return (int)n;
	patch_reply(request, (size_t)len, reply, (size_t)n, want_passthrough, ret);
	return write(real, reply, (size_t)n) < 0 ? neg_errno() : 0;
}

int compat_init(struct fuse_session *session, bool want_passthrough, struct compat *ret)
{
	/* dup() and not F_DUPFD_CLOEXEC: ThreadSanitizer knows it, and so still sees that a reply
	 * happens before the request that follows from it. */
	_cleanup_close_ int real = dup(fuse_session_fd(session));
	_cleanup_free_ char *request = malloc(REQUEST_BYTES);
	_cleanup_free_ char *reply = calloc(1, REPLY_BYTES);

	*ret = (struct compat){ 0 };
	if (real < 0 || !request || !reply) {
		log_line(LOG_WARNING, "kernel features beyond libfuse are off: %s",
			 strerror(ENOMEM));
		return 0;
	}
	fcntl(real, F_SETFD, FD_CLOEXEC);
	return answer(session, real, request, reply, want_passthrough, ret);
}
#endif

/* ---- passthrough ---------------------------------------------------------------------------- */
/* Of the kernel's interface since protocol 7.40; headers may be older. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

struct open_answer {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)
#define OPEN_PASSTHROUGH (1u << 7)

int compat_backing_open(struct fuse_session *session, int fd)
{
	struct backing_map map = { .fd = fd };
	int id = ioctl(fuse_session_fd(session), BACKING_OPEN, &map);

	return id > 0 ? id : id < 0 ? neg_errno() : -EOPNOTSUPP;
}

void compat_backing_close(struct fuse_session *session, int id)
{
	uint32_t n = (uint32_t)id;

	if (ioctl(fuse_session_fd(session), BACKING_CLOSE, &n) < 0)
		log_line(LOG_DEBUG, "backing id %d: %s", id, strerror(errno));
}

int compat_reply_open(fuse_req_t req, const struct fuse_file_info *fi, int backing_id, bool asked)
{
	struct open_answer a = { .fh = fi->fh,
				 /* With KEEP_CACHE the kernel refuses. */
				 .open_flags = OPEN_PASSTHROUGH | (asked ? FOPEN_DIRECT_IO : 0),
				 .backing_id = backing_id };

	return fuse_reply_buf(req, (const char *)&a, sizeof(a));
}
