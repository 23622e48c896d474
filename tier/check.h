// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * check.h - the offline check of one volume: catalog, objects and SRC against each other.
 *
 * It takes the volume's lock (a mounted volume is -EBUSY), never writes to SRC, and without
 * `repair` changes nothing on the SSD either. With `repair` it never makes things worse: dirty data
 * that can be read is never dropped; where nobody can tell which of two versions is right, both are
 * kept (conflict, or a copy in SSD/volumes/<id>/lost+found/). Every repair may be interrupted, even
 * by a power cut, and repeated.
 *
 * What it finds, by `kind` (L: cannot be repaired and is left; N: a note, nothing is wrong):
 *   unclean            N  the last daemon did not finish; the next mount settles that
 *   in-doubt           N  clean extents under an intent (they may have been overwritten when the
 *                         last daemon ended) which neither their checksum nor SRC bears out: they
 *                         are left alone, the next mount settles them (tier/recover.c)
 *   settings              of the catalog, which would keep a mount from starting: corrected
 *   journal            N  it has to be replayed into catalog and objects, as the next mount does
 *   journal-lost          it is missing or damaged, and the volume was not closed: the catalog is
 *                         out of date, and rebuilt as if it were damaged
 *   catalog-missing,      there are objects but no catalog, or it is none, cannot be read or fails
 *   catalog-damaged       its integrity check: rebuilt, see below
 *   src-gone              the SRC file of a row is gone: the object of dirty data goes to
 *                         lost+found, anything else is removed
 *   src-changed        N  SRC is not what it was at the last sync (I9): clean copies are dropped
 *   conflict              the same with newer data on the SSD: both are kept, the row is marked
 *                         (N: it is marked already)
 *   src-unreadable        SRC cannot be opened (L), or not be read where the SSD has a good clean
 *                         copy: that is marked dirty, so that it is written back
 *   object-missing        nothing is left of clean blocks: absent
 *   object-short          the same for blocks behind the object's end
 *   object-unreadable     the SSD cannot read it: clean blocks become absent; L otherwise
 *   dirty-lost         L  dirty blocks, of which nothing is left
 *   object-orphan         an object without a row holds nothing that was ever committed: removed.
 *                         Moved to lost+found where a row should exist: on a clean volume when it
 *                         differs from SRC, or if it is younger than the catalog
 *   object-foreign     N  a name in objects/ that is not ours
 *   object-description    the self-description is missing or not that of the row: written anew
 *   space                 the object has data in blocks that are absent: released
 *   row                   flags, pins or checksums of a row that contradict each other: corrected
 *   beyond-end            blocks behind the end of the file: absent; what is dirty in them and not
 *                         zero is saved in lost+found first
 *   moved              N  (SRC without file handles) found under another name: the hint is updated
 * and with `scrub`, which reads clean extents from both sides:
 *   object-corrupt        the object does not match its checksum, SRC differs: absent
 *   object-differs        SRC differs and there is no checksum: saved in lost+found, then absent
 *   src-differs           the object matches its checksum, SRC has other bytes with the same stamp:
 *                         marked dirty and in conflict, which keeps both
 *   checksum-wrong        object and SRC are the same, the checksum is not: computed anew
 *   unreadable-both    L  neither side can be read, or one cannot and the other is corrupt
 * Clean blocks that lie in a hole of their object are read even without `scrub`.
 *
 * A lost catalog is rebuilt from the objects: each names its file, but its block map is lost, and
 * so is the knowledge which of two different versions is newer. The modification time of an object
 * does not tell: promotion and the release of space move it too, and space that was not yet
 * released holds old data. So, block by block: what is equal on both sides is clean; what differs
 * (or lies behind SRC's end, or cannot be read from SRC) is dirty, and the file is in conflict:
 * nothing is overwritten until somebody decides, and both versions are kept. The size of such a
 * file is only known to 4 KiB where it grew on the SSD; it is rounded up, never cut. Rows of a
 * damaged catalog that can be read still bear witness: when the row of a file has exactly SRC's
 * present size, mtime and ctime, its dirty blocks are believed without a conflict. Objects that
 * cannot be assigned, and those whose SRC file is gone, go to lost+found. The new catalog replaces
 * the old one in one step, once it is complete; the old one is kept as catalog.db.damaged-<time>.
 *
 * Threads: one check per `struct src` at a time; callbacks come from the calling thread.
 */
#ifndef HYBRIDFS_TIER_CHECK_H
#define HYBRIDFS_TIER_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/src.h"

struct check_options {
	bool repair, scrub;
	int64_t now_s;	     /* since the epoch; goes into names */
	const char *tmp_dir; /* for a copy of the catalog of an unclean volume, so that a look at it
			      * changes nothing; NULL: /tmp */
};

enum check_outcome {
	CHECK_NOTED, /* nothing to do */
	CHECK_WOULD, /* `repair` would do it */
	CHECK_DONE,  /* was repaired */
	CHECK_LEFT,  /* is still wrong */
};

/* Strings are valid during the callback. */
struct check_finding {
	const char *kind;
	const char *path;   /* relative to SRC; NULL: unknown, or not about a file */
	const char *object; /* relative to the volume's directory; never NULL */
	const char *detail; /* what is wrong */
	const char *action; /* to be read after "would" or "did"; NULL: none */
	bool note;	    /* not an error, whatever the outcome */
	enum check_outcome outcome;
};

struct check_env {
	void (*finding)(void *ctx, const struct check_finding *f);
	/* Now and then. total 0: not known. False: stop here, check_run() returns -EINTR. May be
	 * NULL. */
	bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

struct check_result {
	uint64_t files, objects;
	uint64_t checked_bytes;			  /* read and compared */
	uint64_t findings, notes, repaired, left; /* findings = repaired + left, without notes */
};

/*
 * 0 when the check came to its end, whatever it found. -ENOENT: no volume of this SRC; -EBUSY:
 * mounted; -EPROTONOSUPPORT: made by a newer version; -EINTR; any other -errno: could not go on.
 * On failure one line in ret_error (at least 256 bytes). *ret_result is filled in any case.
 */
int check_run(struct src *src, const char *ssd_path, const struct check_options *o,
	      const struct check_env *env, struct check_result *ret_result, char *ret_error,
	      size_t error_size);

#endif
