// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "db/base.h"

struct absent_sum {
	const struct byte_range *range;
	uint64_t bytes;
};

/* Add what of this run is in the range, has data, and is not on the SSD yet. */
static int add_absent(const struct hfs_extent *e, void *arg)
{
	struct absent_sum *sum = arg;
	const struct byte_range *r = sum->range;
	uint64_t range_end = r->length == UINT64_MAX ? UINT64_MAX : r->offset + r->length;
	uint64_t start = max_u64(e->offset, r->offset);
	uint64_t end = min_u64(e->offset + e->length, range_end);

	if (e->state == 0 && e->reason != HFS_WHY_HOLE && start < end)
		sum->bytes += end - start;
	return 0;
}

static void put_no_room(FILE *f, const struct client *c, const struct byte_range *r)
{
	struct absent_sum need = { .range = r };
	struct hfs_status s;
	uint64_t free_bytes;

	if (client_status(c, &s) < 0 || client_each_extent(c, true, add_absent, &need) < 0) {
		fputs("it does not fit on the SSD", f);
		return;
	}
	free_bytes = s.ssd_cap_bytes > s.ssd_used_bytes ? s.ssd_cap_bytes - s.ssd_used_bytes : 0;
	fprintf(f,
		"it does not fit on the SSD: needs %s more; cap %s, used %s (dirty %s, pinned "
		"%s), free %s",
		SIZE(need.bytes), SIZE(s.ssd_cap_bytes), SIZE(s.ssd_used_bytes),
		SIZE(s.dirty_bytes), SIZE(s.pinned_bytes), SIZE(free_bytes));
	if (need.bytes <= free_bytes)
		fputs("; the filesystem that holds the SSD directory may be full itself", f);
}

static void put_permission(FILE *f, enum hfs_action action)
{
	if (action == HFS_FLUSH_ALL)
		fputs("only root or the owner of the mount may flush all of it", f);
	else
		fputs("only root or the owner of the file may do that", f);
}

static void put_busy(FILE *f, const struct client *c)
{
	struct hfs_file_stat s;

	if (client_file_stat(c, &s) < 0 || !s.conflict) {
		fputs("it is in use in a way that does not allow this now", f);
		return;
	}
	fputs("SRC was changed behind the mount while newer data waited on the SSD; both versions "
	      "are kept, and the mount shows its own. `hybridfs flush --force` overwrites SRC with "
	      "the mount's version; copy SRC's version away first if you want it",
	      f);
}

static void put_reason(FILE *f, const struct client *c, enum hfs_action action,
		       const struct byte_range *r, int err)
{
	bool copies_to_ssd = action == HFS_PROMOTE || action == HFS_PIN;

	fputs(strerror(-err), f);
	if (err == -ETIMEDOUT)
		fputs(": nothing moved for a minute; `hybridfs status` may tell why", f);
	if (err != -ENOSPC && err != -EPERM && err != -EBUSY)
		return;
	fputs(": ", f);
	if (err == -EPERM)
		put_permission(f, action);
	else if (err == -EBUSY)
		put_busy(f, c);
	else if (copies_to_ssd)
		put_no_room(f, c, r);
	else
		fputs("SRC is full; what is not written back stays on the SSD", f);
}

char *explain_step(const struct client *c, enum hfs_action action, const struct byte_range *r,
		   int err)
{
	char *text = NULL;
	size_t size;
	FILE *f;

	if (client_is_dead(err))
		return strdup(client_strerror(err));
	f = open_memstream(&text, &size);
	if (!f)
		return NULL;
	put_reason(f, c, action, r, err);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
