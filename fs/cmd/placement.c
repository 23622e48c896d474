// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/placement.h"

static enum filemap_kind kind_of(const struct hfs_extent *e)
{
	if (e->state == 2)
		return FILEMAP_DIRTY;
	if (e->state == 1)
		return FILEMAP_CLEAN;
	return e->reason == HFS_WHY_HOLE ? FILEMAP_HOLE : FILEMAP_HDD;
}

static int add_extent(const struct hfs_extent *e, void *arg)
{
	struct placement *p = arg;
	enum filemap_kind kind = kind_of(e);

	filemap_add(&p->map, e->offset, e->length, kind);
	if (kind == FILEMAP_HDD)
		p->hdd_only_bytes += e->length;
	return 0;
}

int placement_read(const struct client *c, bool want_map, struct placement *ret)
{
	struct placement p = { 0 };
	int err = client_file_stat(c, &p.f);

	if (err < 0)
		return err;
	filemap_init(&p.map, p.f.size_bytes);
	if (want_map || (p.f.ssd_bytes > 0 && p.f.ssd_bytes < p.f.size_bytes))
		err = client_each_extent(c, true, add_extent, &p);
	if (err < 0)
		return err;
	*ret = p;
	return 0;
}

const char *placement_tier(const struct placement *p)
{
	if (p->f.ssd_bytes == 0)
		return "hdd";
	return p->hdd_only_bytes == 0 ? "ssd" : "mixed";
}

bool placement_is_pinned(const struct placement *p)
{
	return p->f.pinned || p->f.pinned_bytes > 0;
}
