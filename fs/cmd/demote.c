// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/job.h"

static int demote(struct job *j, const struct client *c, const struct walk_entry *e)
{
	struct hfs_file_stat before, after;
	int err;

	if (e->is_dir)
		return 0;
	err = client_file_stat(c, &before);
	if (err < 0)
		return err;
	if (before.pinned) {
		job_fail(j, e->path, "is pinned to the SSD; `hybridfs unpin` it first");
		return JOB_FAILED;
	}
	err = job_steps(j, c, HFS_DEMOTE, j->opts.given & OPT_FORCE ? HFS_FORCE : 0);
	if (err < 0)
		return err;
	err = client_file_stat(c, &after);
	if (err < 0)
		return err;
	if (before.ssd_bytes > after.ssd_bytes)
		j->freed_bytes += before.ssd_bytes - after.ssd_bytes;
	if (after.ssd_bytes > after.pinned_bytes)
		job_note(j, e->path, "%s of it are on the SSD still, or again: it is in use",
			 SIZE(after.ssd_bytes));
	else if (after.ssd_bytes > 0)
		job_note(j, e->path, "%s of it stay on the SSD: pinned", SIZE(after.ssd_bytes));
	return 0;
}

static uint64_t expect(const struct hfs_file_stat *f)
{
	return f->dirty_bytes;
}

static uint64_t freed_bytes(const struct job *j)
{
	return j->freed_bytes;
}

static void summary(const struct job *j, FILE *f)
{
	fputs("demoted ", f);
	job_put_counts(j, f);
	fprintf(f, ", %s freed on the SSD", SIZE(j->freed_bytes));
	if (j->copied_bytes > 0)
		fprintf(f, ", %s written back", SIZE(j->copied_bytes));
}

int cmd_demote(int argc, char **argv)
{
	static const struct job_kind kind = {
		.name = "demote",
		.options = OPT_FORCE,
		.act = demote,
		.expect = expect,
		.summary = summary,
		.json_bytes = freed_bytes,
	};

	return job_main(&kind, argc, argv);
}
