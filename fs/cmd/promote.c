// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/job.h"

static int promote(struct job *j, const struct client *c, const struct walk_entry *e)
{
	if (e->is_dir)
		return 0;
	return job_steps(j, c, HFS_PROMOTE, j->opts.given & OPT_NO_WAIT ? HFS_NO_WAIT : 0);
}

static uint64_t expect(const struct hfs_file_stat *f)
{
	return f->size_bytes > f->ssd_bytes ? f->size_bytes - f->ssd_bytes : 0;
}

static void summary(const struct job *j, FILE *f)
{
	bool queued = j->opts.given & OPT_NO_WAIT;

	fputs(queued ? "queued " : "promoted ", f);
	job_put_counts(j, f);
	if (queued)
		fputs(" for promotion", f);
	if (j->queued_bytes > 0)
		fprintf(f, ", %s to copy", SIZE(j->queued_bytes));
	if (j->copied_bytes > 0)
		fprintf(f, ", %s copied to the SSD", SIZE(j->copied_bytes));
	else if (!queued && j->files > 0)
		fputs(", nothing to copy", f);
}

int cmd_promote(int argc, char **argv)
{
	static const struct job_kind kind = {
		.name = "promote",
		.options = OPT_RANGE | OPT_NO_WAIT,
		.act = promote,
		.expect = expect,
		.summary = summary,
	};

	return job_main(&kind, argc, argv);
}
