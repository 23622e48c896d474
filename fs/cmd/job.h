// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * job.h - what promote, demote, pin, unpin and flush have in common: options, recursion, steps with
 * progress, interruption between steps, failures, the summary, --json.
 *
 * A command is a `struct job_kind` and calls job_main(). One file's failure does not keep the
 * others from being done, except that no room on the SSD, or a dead daemon, ends the tree of the
 * PATH at hand.
 */
#ifndef HYBRIDFS_FS_CMD_JOB_H
#define HYBRIDFS_FS_CMD_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "fs/cmd/client.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/failures.h"
#include "fs/cmd/progress.h"
#include "fs/cmd/walk.h"

struct job {
	const struct job_kind *kind;
	struct cmd_opts opts;
	struct progress progress;
	struct failures failures;
	enum hfs_action action; /* of the step at hand: what a failure is explained by */
	uint64_t files, dirs;	/* done without failure */
	uint64_t copied_bytes;	/* sum of done_bytes of all steps */
	uint64_t freed_bytes, queued_bytes, dirty_again_bytes;
	uint64_t expected_bytes, passed_bytes; /* progress: of everything; of the files before */
	bool stopped;			       /* by a signal */
	/* promote: what the SSD held of the files of held_dev, each just promoted; too much. */
	uint64_t held_bytes;
	dev_t held_dev;
	bool no_room;
};

/* What act() returns besides 0 (done, to be counted) and -errno. */
#define JOB_TREE_DONE 1 /* nothing more of this PATH needs a visit; act() counted by itself */
#define JOB_FAILED    2 /* not done, and job_fail() was called */

struct job_kind {
	const char *name;
	unsigned options;  /* OPT_* besides the common ones */
	bool marks_dirs;   /* act() is wanted for every directory, not only for those named */
	bool whole_mounts; /* act() may do the root of a mount, with all below it, at once */
	/* Added to the cause when HFS_PROMOTE failed: something was done all the same, so it goes
	 * on with the next file even when this one did not fit. Or NULL. */
	const char *promote_failed;
	/* The work itself. Called for regular files, and for directories as said. */
	int (*act)(struct job *j, const struct client *c, const struct walk_entry *e);
	/* Bytes that act() will probably have copied; for the progress bar. NULL: none. */
	uint64_t (*expect)(const struct hfs_file_stat *f);
	/* "promoted 3 files, 1.2 GiB copied to the SSD", without a newline. */
	void (*summary)(const struct job *j, FILE *f);
	uint64_t (*json_bytes)(const struct job *j); /* what "bytes" is; NULL: copied_bytes */
};

int job_main(const struct job_kind *kind, int argc, char **argv);

/* Step through the action on the job's range. 0 or -errno. */
int job_steps(struct job *j, const struct client *c, enum hfs_action action, unsigned flags);
/* One path could not be done. */
void job_fail(struct job *j, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A remark on stderr that is no failure; not with -q. */
void job_note(struct job *j, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "3 files", "1 file and 2 directories". */
void job_put_counts(const struct job *j, FILE *f);

#endif
