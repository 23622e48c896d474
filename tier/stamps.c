// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Stamps: what SRC looked like after our last change of it, for a mount after a kill -9.
 *
 * Each change of SRC by us moves its times; until the next commit the row in the catalog has the
 * old ones, or is marked busy, and a mount after a crash would drop the file's clean copies. But
 * most changes do not touch what the durable state calls clean: write-back writes blocks that are
 * durably dirty or under an intent, a write past the SSD goes to blocks that are durably absent,
 * chmod writes nothing. After such a change SRC's stamp is stored here; SRC still having it says
 * that all clean copies are as good as they were.
 *
 * The file `stamps` in the volume's directory: STAMP_SLOTS slots of 64 bytes, a file's is its id
 * modulo their number (a later one takes it over): u64 id, u64 size, i64 mtime, i64 ctime, u64
 * `session`, 16 bytes 0, u64 XXH3 of the 56 bytes before. Never synced: a killed daemon leaves the
 * page cache as it is. A power cut does not, and then a slot must not count: an object that has
 * lost what write-back had brought to SRC looks like a good copy of what SRC was. So `session` is a
 * hash of the machine's boot and of the unique number of the SSD's mount. A mount after a clean end
 * empties the file.
 *
 * A slot is not written, and is erased beforehand, where a change makes copies wrong that the
 * durable state calls clean (cuts, holes: `reshaping`), nor until a commit has made durable that
 * such copies are gone (`distrust_seq`).
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tier/internal.h"

#define STAMPS "stamps"
#define STAMP_SLOTS 65536u
/* Linux 6.8, for older headers. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x00004000u
#endif

struct slot {
	uint64_t id, size;
	int64_t mtime_ns, ctime_ns;
	uint64_t session, zero[2], sum;
};

_Static_assert(sizeof(struct slot) == 64, "slots do not straddle pages");

static uint64_t sum_of(const struct slot *s)
{
	return XXH3_64bits(s, offsetof(struct slot, sum));
}

static off_t place_of(uint64_t id)
{
	return (off_t)(id % STAMP_SLOTS * sizeof(struct slot));
}

/* ---- the file ----------------------------------------------------------------------------- */
/* As long as it is the same, what was written to the SSD is there. 0: it cannot be told. */
static uint64_t session_of(int dir_fd)
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	struct statx stx;

	if (n <= 0 || statx(dir_fd, "", AT_EMPTY_PATH, STATX_MNT_ID_UNIQUE, &stx) < 0 ||
	    !(stx.stx_mask & STATX_MNT_ID_UNIQUE))
		return 0;
	return XXH3_64bits_withSeed(text, (size_t)n, stx.stx_mnt_id);
}

/* What is in it may be out of date from now on: it must not be found again. */
static void give_up(struct volume *v)
{
	if (atomic_exchange(&v->stamps_usable, false) && unlinkat(v->dir_fd, STAMPS, 0) < 0 &&
	    errno != ENOENT)
		volume_error(v, NULL, neg_errno(), "cannot remove the file " STAMPS);
}

void stamps_open(struct volume *v)
{
	int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;

	v->session = session_of(v->dir_fd);
	v->stamps_fd = openat(v->dir_fd, STAMPS, flags, 0600);
	atomic_store(&v->stamps_usable, true);
	if (v->stamps_fd < 0 || !v->session || (!v->unclean && ftruncate(v->stamps_fd, 0) < 0))
		give_up(v);
}

/* ---- slots -------------------------------------------------------------------------------- */
static void put_slot(struct volume *v, uint64_t id, const struct slot *s)
{
	if (write_full(v->stamps_fd, s, sizeof(*s), (uint64_t)place_of(id)) < 0)
		give_up(v);
}

bool stamps_find(struct volume *v, uint64_t id, struct src_stamp *ret)
{
	struct slot s;

	if (!id || !atomic_load(&v->stamps_usable) ||
	    pread(v->stamps_fd, &s, sizeof(s), place_of(id)) != (ssize_t)sizeof(s) ||
	    s.id != id || s.session != v->session || s.sum != sum_of(&s))
		return false;
	*ret = (struct src_stamp){ s.size, s.mtime_ns, s.ctime_ns };
	return true;
}

static bool trusted(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool yes = f->id && f->map_loaded && f->map.present_blocks && !f->conflict && !f->dead &&
		   !f->sync_failed && !f->truncate_pending && !f->reshaping &&
		   f->committed_seq >= f->distrust_seq;

	pthread_mutex_unlock(&f->lock);
	return yes;
}

void stamps_note(struct tfile *f)
{
	struct volume *v = f->v;
	struct stat st;

	if (!atomic_load(&v->stamps_usable))
		return;
	pthread_mutex_lock(&f->stamp_mutex);
	if (trusted(f) && tfile_stat_src(f, &st) == 0) {
		struct slot s = { .id = f->id,
				  .size = (uint64_t)st.st_size,
				  .mtime_ns = timespec_ns(st.st_mtim),
				  .ctime_ns = timespec_ns(st.st_ctim),
				  .session = v->session };

		s.sum = sum_of(&s);
		put_slot(v, f->id, &s);
	}
	pthread_mutex_unlock(&f->stamp_mutex);
}

void stamps_distrust_locked(struct tfile *f)
{
	if (!f->id)
		return;
	tfile_changed_locked(f);
	f->distrust_seq = f->seq;
}

void stamps_reshape_begin(struct tfile *f)
{
	static const struct slot none;
	struct src_stamp old;

	pthread_mutex_lock(&f->stamp_mutex);
	pthread_mutex_lock(&f->lock);
	f->reshaping++;
	uint64_t id = f->id;

	pthread_mutex_unlock(&f->lock);
	if (stamps_find(f->v, id, &old))
		put_slot(f->v, id, &none);
	pthread_mutex_unlock(&f->stamp_mutex);
}

void stamps_reshape_end(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	f->reshaping--;
	stamps_distrust_locked(f);
	pthread_mutex_unlock(&f->lock);
}
