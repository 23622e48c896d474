// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pin and unpin. A directory's own mark covers the files that will be created in it, so it is set
 * before its content is listed: no file falls between. What is there already is marked one by one.
 */
#include "fs/cmd/job.h"

static unsigned whole(const struct job *j)
{
	return j->opts.given & OPT_RANGE ? 0 : HFS_WHOLE;
}

static int pin(struct job *j, const struct client *c, const struct walk_entry *e)
{
	int err = job_steps(j, c, HFS_PIN, whole(j));

	if (err < 0 || e->is_dir)
		return err;
	return job_steps(j, c, HFS_PROMOTE, 0);
}

static int unpin(struct job *j, const struct client *c, const struct walk_entry *e)
{
	(void)e;
	return job_steps(j, c, HFS_UNPIN, whole(j));
}

static uint64_t expect(const struct hfs_file_stat *f)
{
	return f->size_bytes > f->ssd_bytes ? f->size_bytes - f->ssd_bytes : 0;
}

static void pin_summary(const struct job *j, FILE *f)
{
	fputs("pinned ", f);
	job_put_counts(j, f);
	if (j->copied_bytes > 0)
		fprintf(f, ", %s copied to the SSD", SIZE(j->copied_bytes));
}

static void unpin_summary(const struct job *j, FILE *f)
{
	fputs("unpinned ", f);
	job_put_counts(j, f);
}

int cmd_pin(int argc, char **argv)
{
	static const struct job_kind kind = {
		.name = "pin",
		.options = OPT_RANGE,
		.marks_dirs = true,
		.promote_failed = "; it is marked as pinned all the same and comes to the SSD when "
				  "it can, unless `hybridfs unpin` takes that back",
		.act = pin,
		.expect = expect,
		.summary = pin_summary,
	};

	return job_main(&kind, argc, argv);
}

int cmd_unpin(int argc, char **argv)
{
	static const struct job_kind kind = {
		.name = "unpin",
		.options = OPT_RANGE,
		.marks_dirs = true,
		.act = unpin,
		.summary = unpin_summary,
	};

	return job_main(&kind, argc, argv);
}
