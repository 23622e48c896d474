// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/stat_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "db/base.h"
#include "fs/cmd/format.h"

static const char *reason_text(uint8_t reason)
{
	static const char *const texts[] = {
		[HFS_WHY_DIRTY] = "written, waits for write-back",
		[HFS_WHY_PINNED] = "pinned",
		[HFS_WHY_HOT] = "read often",
		[HFS_WHY_WRITTEN] = "written lately and written back, not cold enough to drop",
		[HFS_WHY_COLD] = "not read often enough",
		[HFS_WHY_HOLE] = "a hole, nothing to store",
		[HFS_WHY_NO_ROOM] = "hot, but all on the SSD is hotter, dirty or pinned",
		[HFS_WHY_QUEUED] = "waits for its promotion",
		[HFS_WHY_MODE] = "excluded by the mode of the mount or by a rule",
	};

	if (reason >= ARRAY_SIZE(texts) || !texts[reason])
		return "for a reason that this program does not know";
	return texts[reason];
}

static const char *where_text(uint8_t state)
{
	switch (state) {
	case 0:
		return "HDD";
	case 1:
		return "SSD";
	case 2:
		return "SSD, dirty";
	default:
		return "?";
	}
}

/* ---- one file ------------------------------------------------------------------------------ */

static void put_pinned(const struct placement *p)
{
	if (p->f.pinned)
		puts("  pinned       yes");
	else if (p->f.pinned_bytes > 0)
		printf("  pinned       %s of it\n", SIZE(p->f.pinned_bytes));
	else
		puts("  pinned       no");
}

static void put_passthrough(const struct placement *p)
{
	fputs("  passthrough  ", stdout);
	if (p->f.passthrough) {
		puts("yes");
		return;
	}
	fputs(*p->f.why_not_passthrough ? "no: " : "no", stdout);
	fmt_put_escaped(stdout, p->f.why_not_passthrough);
	putchar('\n');
}

void stat_text_block(const char *path, const struct placement *p)
{
	fmt_put_escaped(stdout, path);
	printf("\n  size         %s (%" PRIu64 " bytes)\n", SIZE(p->f.size_bytes), p->f.size_bytes);
	printf("  on SSD       %s (%s)\n", SIZE(p->f.ssd_bytes),
	       PERCENT(p->f.ssd_bytes, p->f.size_bytes));
	printf("  dirty        %s\n", SIZE(p->f.dirty_bytes));
	put_pinned(p);
	printf("  heat         %" PRIu64 "\n", p->f.heat);
	printf("  tier         %s\n", placement_tier(p));
	put_passthrough(p);
	if (p->f.conflict)
		puts("  CONFLICT     SRC was changed behind the mount; both versions are kept,\n"
		     "               see `hybridfs flush --help`");
	fputs("  map          ", stdout);
	filemap_draw(&p->map, fmt_utf8(), stdout);
	putchar('\n');
}

void stat_text_legend(void)
{
	fputs("               ", stdout);
	filemap_legend(fmt_utf8(), stdout);
	putchar('\n');
}

static int print_extent(const struct hfs_extent *e, void *arg)
{
	(void)arg;
	printf("  %16" PRIu64 "  %10s  %-10s  %4u  %s%s\n", e->offset, SIZE(e->length),
	       where_text(e->state), e->heat, reason_text(e->reason),
	       e->pinned && e->reason != HFS_WHY_PINNED ? " (pinned)" : "");
	return 0;
}

int stat_text_extents(const struct client *c)
{
	printf("  %16s  %10s  %-10s  %4s  %s\n", "OFFSET", "LENGTH", "ON", "HEAT", "WHY");
	return client_each_extent(c, true, print_extent, NULL);
}

/* ---- several ------------------------------------------------------------------------------- */

#define ROW_FORMAT "%10s %10s %5s %10s  %-5s  %-5s %8s  "

void stat_text_table_head(void)
{
	printf(ROW_FORMAT "%s\n", "SIZE", "ON SSD", "%", "DIRTY", "TIER", "FLAGS", "HEAT", "PATH");
}

static const char *flags_of(const struct placement *p, char buf[4])
{
	char *to = buf;

	if (placement_is_pinned(p))
		*to++ = p->f.pinned ? 'P' : 'p';
	if (p->f.passthrough)
		*to++ = 'T';
	if (p->f.conflict)
		*to++ = 'C';
	*to = '\0';
	return to > buf ? buf : "-";
}

void stat_text_table_row(const char *path, const struct placement *p)
{
	char heat[24], flags[4];

	snprintf(heat, sizeof(heat), "%" PRIu64, p->f.heat);
	printf(ROW_FORMAT, SIZE(p->f.size_bytes), SIZE(p->f.ssd_bytes),
	       PERCENT(p->f.ssd_bytes, p->f.size_bytes), SIZE(p->f.dirty_bytes), placement_tier(p),
	       flags_of(p, flags), heat);
	fmt_put_escaped(stdout, path);
	putchar('\n');
}

void stat_text_pinned_dir(const char *path, bool in_table)
{
	if (in_table)
		printf(ROW_FORMAT, "-", "", "", "", "", "P", "");
	fmt_put_escaped(stdout, path);
	puts(in_table ? " (directory: what is created in it is pinned)" :
			": a pinned directory, what is created in it is pinned\n");
}

void stat_text_totals(const struct stat_totals *t, bool in_table)
{
	if (in_table) {
		printf(ROW_FORMAT "total of %" PRIu64 " file%s\n", SIZE(t->size_bytes),
		       SIZE(t->ssd_bytes), PERCENT(t->ssd_bytes, t->size_bytes),
		       SIZE(t->dirty_bytes), "", "", "", t->files, PLURAL(t->files));
		return;
	}
	printf("total of %" PRIu64 " file%s: %s, on SSD %s (%s), dirty %s\n", t->files,
	       PLURAL(t->files), SIZE(t->size_bytes), SIZE(t->ssd_bytes),
	       PERCENT(t->ssd_bytes, t->size_bytes), SIZE(t->dirty_bytes));
}
