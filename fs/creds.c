// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/creds.h"

#include <assert.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "db/base.h"

#define GROUPS_MAX 65536

struct caps {
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

static bool privileged;
static uid_t own_uid;
static gid_t own_gid;
static struct caps own_caps;
static _Thread_local bool own_umask, umask_failed;

/* ---- capabilities -------------------------------------------------------------------------- */
static int get_caps(struct caps *ret)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &head, ret->data) < 0 ? neg_errno() : 0;
}

static int set_caps(const struct caps *caps)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capset, &head, caps->data) < 0 ? neg_errno() : 0;
}

static bool has_cap(const struct caps *caps, unsigned cap)
{
	return caps->data[cap / 32].effective >> (cap % 32) & 1;
}

/* setfsuid(2) and setfsgid(2) answer with the id before, and never with an error. */
static bool set_fsuid(uid_t uid)
{
	syscall(SYS_setfsuid, uid);
	return (uid_t)syscall(SYS_setfsuid, (uid_t)-1) == uid;
}

static bool set_fsgid(gid_t gid)
{
	syscall(SYS_setfsgid, gid);
	return (gid_t)syscall(SYS_setfsgid, (gid_t)-1) == gid;
}

bool creds_init(const char **ret_missing)
{
	static const unsigned needed[] = { CAP_SETUID,	     CAP_SETGID,	  CAP_CHOWN,
					   CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
					   CAP_FSETID };

	own_uid = geteuid();
	own_gid = getegid();
	umask(DAEMON_UMASK);
	privileged = get_caps(&own_caps) == 0;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		privileged = privileged && has_cap(&own_caps, needed[i]);
	if (!privileged && ret_missing)
		*ret_missing = "mounted without privileges: new files belong to the user who "
			       "mounted, owners can not be changed, setuid programs and devices "
			       "do nothing, trusted.* attributes and kernel passthrough are not "
			       "available";
	return privileged;
}

/* ---- becoming the caller ------------------------------------------------------------------- */
static void restore(void)
{
	bool ok = set_fsuid(own_uid) && set_fsgid(own_gid);

	assert(ok);
	ok = set_caps(&own_caps) == 0;
	assert(ok);
}

static int become(const struct fuse_ctx *ctx)
{
	if (!set_fsgid(ctx->gid) || !set_fsuid(ctx->uid) || set_caps(&own_caps) < 0) {
		restore();
		return -EPERM;
	}
	return 0;
}

static mode_t apply_umask(mode_t mask, mode_t mode)
{
	if (!own_umask && !umask_failed) {
		own_umask = unshare(CLONE_FS) == 0;
		umask_failed = !own_umask;
	}
	if (umask_failed)
		return mode & ~mask;
	umask(mask);
	return mode;
}

int creds_enter(fuse_req_t req, mode_t mode, mode_t mask, struct creds *ret)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	bool change = privileged && (ctx->uid != own_uid || ctx->gid != own_gid);
	int r = change ? become(ctx) : 0;

	if (r < 0)
		return r;
	*ret = (struct creds){ .switched = change, .mode = apply_umask(mask, mode) };
	return 0;
}

void creds_leave(const struct creds *c)
{
	int saved = errno;

	if (own_umask)
		umask(DAEMON_UMASK);
	if (c->switched)
		restore();
	errno = saved;
}

/* ---- groups -------------------------------------------------------------------------------- */
static bool find_gid(const gid_t *list, int n, gid_t gid)
{
	for (int i = 0; i < n; i++)
		if (list[i] == gid)
			return true;
	return false;
}

bool creds_in_group(fuse_req_t req, gid_t gid)
{
	gid_t few[64];

	if (fuse_req_ctx(req)->gid == gid)
		return true;
	int n = fuse_req_getgroups(req, ARRAY_SIZE(few), few);

	if (n <= (int)ARRAY_SIZE(few))
		return find_gid(few, n, gid);
	_cleanup_free_ gid_t *many =
		calloc((size_t)min_u64((uint64_t)n, GROUPS_MAX), sizeof(gid_t));

	if (!many)
		return false;
	int got = fuse_req_getgroups(req, (int)min_u64((uint64_t)n, GROUPS_MAX), many);

	return find_gid(many, got < n ? got : n, gid);
}
