// SPDX-License-Identifier: GPL-2.0-or-later
#include <inttypes.h>
#include <stdio.h>

#include "db/base.h"
#include "fs/cmd/format.h"
#include "fs/cmd/status.h"

#define BAR_CELLS 30

/* A line of `label  value...`, the value by the caller's printf. */
static void label(const char *name)
{
	printf("  %-14s ", name);
}

static void print_path(const char *name, const char *path)
{
	label(name);
	fmt_put_escaped(stdout, path);
	putchar('\n');
}

static void print_bar(uint64_t part, uint64_t whole)
{
	unsigned full = whole ? (unsigned)((long double)min_u64(part, whole) / (long double)whole *
					   BAR_CELLS) :
				0;

	putchar('[');
	for (unsigned i = 0; i < BAR_CELLS; i++)
		putchar(i < full ? '#' : '.');
	putchar(']');
}

static void print_health(const struct hfs_status *s)
{
	label("health");
	if (s->healthy) {
		puts(s->recovering ? "healthy, recovering after a crash" : "healthy");
		return;
	}
	fputs("DEGRADED: ", stdout);
	fmt_put_escaped(stdout,
			*s->health_reason ? s->health_reason : "the daemon gives no reason");
	putchar('\n');
}

static void print_identity(const struct hfs_status *s)
{
	print_path("source", s->source);
	print_path("ssd", s->ssd);
	print_path("volume", s->volume_id);
	label("mode");
	fmt_put_escaped(stdout, s->mode);
	printf("%s%s%s\n", s->read_only ? ", read-only" : "",
	       s->passthrough ? ", passthrough" : ", no passthrough",
	       s->privileged ? "" : ", unprivileged");
	if (s->passthrough) {
		label("passthrough");
		printf("%" PRIu64 " files now, %" PRIu64 " opens so far\n", s->passthrough_files,
		       s->passthrough_opens);
	} else if (*s->why_not_passthrough) {
		label("passthrough");
		fputs("no: ", stdout);
		fmt_put_escaped(stdout, s->why_not_passthrough);
		putchar('\n');
	}
	label("daemon");
	printf("pid %" PRId32 ", up %s\n", s->pid, DURATION(s->uptime_s));
}

static void print_space(const struct hfs_status *s)
{
	label("SSD used");
	print_bar(s->ssd_used_bytes, s->ssd_cap_bytes);
	printf(" %s of %s (%s)\n", SIZE(s->ssd_used_bytes), SIZE(s->ssd_cap_bytes),
	       PERCENT(s->ssd_used_bytes, s->ssd_cap_bytes));
	label("dirty");
	printf("%s (%s of the cap) in %" PRIu64 " file%s\n", SIZE(s->dirty_bytes),
	       PERCENT(s->dirty_bytes, s->ssd_cap_bytes), s->dirty_files, PLURAL(s->dirty_files));
	label("pinned");
	printf("%s\n", SIZE(s->pinned_bytes));
	label("tracked files");
	printf("%" PRIu64 "\n", s->tracked_files);
}

static void print_traffic(const struct hfs_status *s)
{
	label("hit ratio");
	printf("%s in 1 min, %s in 1 h, %s in total\n",
	       PERCENT(s->hits_1m, s->hits_1m + s->misses_1m),
	       PERCENT(s->hits_1h, s->hits_1h + s->misses_1h),
	       PERCENT(s->hits, s->hits + s->misses));
	label("read");
	printf("%s from the SSD, %s from SRC\n", SIZE(s->read_hit_bytes), SIZE(s->read_miss_bytes));
	label("promoted");
	printf("%s in %" PRIu64 " extent%s, %" PRIu64 " waiting\n", SIZE(s->promoted_bytes),
	       s->promotions, PLURAL(s->promotions), s->promote_queue);
	label("demoted");
	printf("%s in %" PRIu64 " extent%s\n", SIZE(s->demoted_bytes), s->demotions,
	       PLURAL(s->demotions));
	label("write-back");
	printf("%s/s, %s in total, %s to go\n", SIZE(s->write_back_bytes_per_s),
	       SIZE(s->written_back_bytes), SIZE(s->dirty_bytes));
	label("bypassed");
	printf("%s\n", SIZE(s->bypassed_bytes));
}

static void print_errors(const struct hfs_status *s)
{
	label("errors");
	printf("%" PRIu64 ", conflicts %" PRIu64 ", lost ranges %" PRIu64 "\n", s->errors,
	       s->conflicts, s->lost_ranges);
}

void status_print_text(const struct mount_state *m)
{
	fmt_put_escaped(stdout, m->mountpoint);
	putchar('\n');
	if (m->err < 0) {
		print_path("source", m->source);
		label("health");
		printf("%s: %s\n", client_is_dead(m->err) ? "NOT ANSWERING" : "UNKNOWN",
		       client_strerror(m->err));
		return;
	}
	print_health(&m->s);
	print_identity(&m->s);
	print_space(&m->s);
	print_traffic(&m->s);
	print_errors(&m->s);
}
