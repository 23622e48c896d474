// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/job.h"

#include <errno.h>

#include "fs/cmd/interrupt.h"

/* A pass covers what was dirty when it began. Who rewrites all the time is not waited for. */
#define FLUSH_PASSES 2

/* The file is clean at some moment of a pass, or has been dirtied anew: then the rest of it is
 * counted. The step is taken for clean files too: writes that bypassed the SSD may still be in
 * SRC's page cache. */
static int flush_file(struct job *j, const struct client *c)
{
	struct hfs_file_stat f = { 0 };

	for (int pass = 0; pass < FLUSH_PASSES; pass++) {
		int err = job_steps(j, c, HFS_FLUSH, j->opts.given & OPT_FORCE ? HFS_FORCE : 0);

		if (err == 0)
			err = client_file_stat(c, &f);
		if (err < 0)
			return err;
		if (f.dirty_bytes == 0)
			return 0;
	}
	j->dirty_again_bytes += f.dirty_bytes;
	return 0;
}

/*
 * All of a mount: one request for the whole volume instead of one per file. Where that is not
 * allowed, or something went wrong that is not named, or conflicts were passed over, file by file
 * says exactly what.
 */
static int flush_mount(struct job *j, const struct client *c)
{
	struct hfs_status before, after;

	if ((j->opts.given & OPT_FORCE) || client_status(c, &before) < 0 ||
	    job_steps(j, c, HFS_FLUSH_ALL, 0) < 0 || client_status(c, &after) < 0 ||
	    after.conflicts > 0)
		return interrupted() ? -EINTR : 0;
	j->files += before.dirty_files;
	j->dirty_again_bytes += after.dirty_bytes;
	return JOB_TREE_DONE;
}

static int flush(struct job *j, const struct client *c, const struct walk_entry *e)
{
	if (!e->is_dir)
		return flush_file(j, c);
	return client_is_mount_root(c) ? flush_mount(j, c) : 0;
}

static uint64_t expect(const struct hfs_file_stat *f)
{
	return f->dirty_bytes;
}

static void summary(const struct job *j, FILE *f)
{
	fputs("flushed ", f);
	job_put_counts(j, f);
	fprintf(f, ", %s written back", SIZE(j->copied_bytes));
	if (j->dirty_again_bytes > 0)
		fprintf(f, "; %s were written anew meanwhile and are dirty",
			SIZE(j->dirty_again_bytes));
}

int cmd_flush(int argc, char **argv)
{
	static const struct job_kind kind = {
		.name = "flush",
		.options = OPT_FORCE,
		.whole_mounts = true,
		.act = flush,
		.expect = expect,
		.summary = summary,
	};

	return job_main(&kind, argc, argv);
}
