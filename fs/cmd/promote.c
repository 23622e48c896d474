// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/format.h"
#include "fs/cmd/job.h"

/*
 * One file makes room for itself by the eviction of others. When these are files which this command
 * has brought, there is no room for all that was asked for: to go on would only turn it over.
 */
static int check_still_there(struct job *j, const struct client *c, const struct walk_entry *e)
{
	struct hfs_file_stat f;
	struct hfs_status s;

	if (j->held_dev != c->st.st_dev)
		j->held_bytes = 0;
	j->held_dev = c->st.st_dev;
	if (client_file_stat(c, &f) < 0)
		return 0; /* promoted, and gone or dead since: nothing to say */
	j->held_bytes += f.ssd_bytes;
	if (client_status(c, &s) < 0 || j->held_bytes <= s.ssd_used_bytes)
		return 0;
	j->no_room = true;
	job_fail(j, e->path,
		 "cannot promote all: No space left on device: %s were asked for up to here, the "
		 "SSD holds %s (cap %s): room for the last was made by the first",
		 SIZE(j->held_bytes), SIZE(s.ssd_used_bytes), SIZE(s.ssd_cap_bytes));
	return JOB_TREE_DONE;
}

static int promote(struct job *j, const struct client *c, const struct walk_entry *e)
{
	bool wait = !(j->opts.given & OPT_NO_WAIT);
	int r;

	if (e->is_dir)
		return 0;
	if (j->no_room && j->held_dev == c->st.st_dev) {
		job_fail(j, e->path, "not promoted: there is no room for all");
		return JOB_TREE_DONE;
	}
	r = job_steps(j, c, HFS_PROMOTE, wait ? 0 : HFS_NO_WAIT);
	if (r < 0 || !wait)
		return r;
	return check_still_there(j, c, e);
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
