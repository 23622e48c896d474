// SPDX-License-Identifier: GPL-2.0-or-later
/* The state of mounts for programs: JSON, and the text format of Prometheus. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "db/base.h"
#include "fs/cmd/format.h"
#include "fs/cmd/json.h"
#include "fs/cmd/status.h"

/* Numbers of struct hfs_status that go out under one name in JSON and one in Prometheus. */
struct metric {
	const char *key;	/* JSON */
	const char *prometheus; /* after "hybridfs_" */
	const char *type, *help;
	size_t offset; /* of a uint64_t in struct hfs_status */
};

#define GAUGE(field, help)                                                        \
	{                                                                         \
#field, #field, "gauge", help, offsetof(struct hfs_status, field) \
	}
#define COUNTER(field, help)                                                                 \
	{                                                                                    \
#field, #field "_total", "counter", help, offsetof(struct hfs_status, field) \
	}
#define RENAMED(field, name, help)                                              \
	{                                                                       \
#field, name, "gauge", help, offsetof(struct hfs_status, field) \
	}

static const struct metric metrics[] = {
	GAUGE(ssd_used_bytes, "Bytes on the SSD that belong to this mount."),
	GAUGE(ssd_cap_bytes, "The most bytes on the SSD that this mount may use."),
	GAUGE(dirty_bytes, "Bytes on the SSD that are not yet written back to SRC."),
	GAUGE(pinned_bytes, "Pinned bytes."),
	GAUGE(tracked_files, "Files with bytes on the SSD."),
	GAUGE(dirty_files, "Files with bytes not yet written back."),
	COUNTER(hits, "Reads served from the SSD."),
	COUNTER(misses, "Reads served from SRC."),
	GAUGE(hits_1m, "Reads served from the SSD in the last minute."),
	GAUGE(misses_1m, "Reads served from SRC in the last minute."),
	GAUGE(hits_1h, "Reads served from the SSD in the last hour."),
	GAUGE(misses_1h, "Reads served from SRC in the last hour."),
	COUNTER(read_hit_bytes, "Bytes read from the SSD."),
	COUNTER(read_miss_bytes, "Bytes read from SRC."),
	COUNTER(promotions, "Extents promoted."),
	COUNTER(demotions, "Extents demoted."),
	COUNTER(promoted_bytes, "Bytes copied to the SSD."),
	COUNTER(demoted_bytes, "Bytes dropped from the SSD."),
	COUNTER(written_back_bytes, "Bytes written back to SRC."),
	COUNTER(bypassed_bytes, "Bytes of reads and writes that bypassed the SSD."),
	RENAMED(write_back_bytes_per_s, "write_back_bytes_per_second",
		"Write-back rate over the last minute."),
	GAUGE(promote_queue, "Promotions that wait."),
	GAUGE(conflicts, "Files that were changed in SRC while newer data waited on the SSD."),
	COUNTER(errors, "Errors of the SSD or of SRC."),
	GAUGE(lost_ranges, "Dirty ranges that the SSD cannot give back."),
	COUNTER(passthrough_opens, "Opens that were given the object on the SSD."),
	GAUGE(passthrough_files, "Files whose object is in the hands of programs."),
	RENAMED(uptime_s, "uptime_seconds", "Seconds since the mount."),
};

static uint64_t value_of(const struct hfs_status *s, const struct metric *m)
{
	uint64_t n;

	memcpy(&n, (const char *)s + m->offset, sizeof(n));
	return n;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_answer(struct json_object *o, const struct hfs_status *s)
{
	json_put_path(o, "source", s->source);
	json_put_path(o, "ssd", s->ssd);
	json_put_text(o, "mode", s->mode);
	json_put_bool(o, "healthy", s->healthy);
	json_put_text(o, "health_reason", s->health_reason);
	json_put_bool(o, "recovering", s->recovering);
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
		json_put_u64(o, metrics[i].key, value_of(s, &metrics[i]));
	json_put_text(o, "volume_id", s->volume_id);
	json_put_bool(o, "read_only", s->read_only);
	json_put_bool(o, "privileged", s->privileged);
	json_put_bool(o, "passthrough", s->passthrough);
	json_put_text(o, "why_not_passthrough", s->why_not_passthrough);
	json_put_u64(o, "pid", s->pid > 0 ? (uint64_t)s->pid : 0);
}

static struct json_object *json_of(const struct mount_state *m)
{
	struct json_object *o = json_object_new_object();

	json_put_path(o, "mountpoint", m->mountpoint);
	if (m->err == 0) {
		put_answer(o, &m->s);
		return o;
	}
	json_put_path(o, "source", m->source);
	json_put_bool(o, "healthy", false);
	json_put_text(o, "health_reason", client_strerror(m->err));
	json_put_text(o, "error", client_strerror(m->err));
	return o;
}

void status_print_json(const struct mount_state *mounts, size_t n)
{
	struct json_stream stream;

	json_stream_begin(&stream, "mounts");
	for (size_t i = 0; i < n; i++)
		json_stream_item(&stream, json_of(&mounts[i]));
	json_stream_end(&stream, json_object_new_object());
}

/* ---- Prometheus ------------------------------------------------------------------------------ */

/* Label values are UTF-8 with \, " and newline escaped. */
static void put_label(const char *name, const char *value)
{
	bool changed;
	_cleanup_free_ char *text = fmt_utf8_repair(value, &changed);

	printf("%s=\"", name);
	for (const char *s = text ? text : ""; *s; s++) {
		if (*s == '\n')
			fputs("\\n", stdout);
		else if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else
			putchar(*s);
	}
	putchar('"');
}

static void put_head(const char *name, const char *type, const char *help)
{
	printf("# HELP hybridfs_%s %s\n# TYPE hybridfs_%s %s\n", name, help, name, type);
}

static void put_sample(const char *name, const struct mount_state *m, uint64_t value)
{
	printf("hybridfs_%s{", name);
	put_label("mountpoint", m->mountpoint);
	printf("} %" PRIu64 "\n", value);
}

static void put_info(const struct mount_state *mounts, size_t n)
{
	put_head("info", "gauge", "What is mounted; always 1.");
	for (size_t i = 0; i < n; i++) {
		if (mounts[i].err < 0)
			continue;
		fputs("hybridfs_info{", stdout);
		put_label("mountpoint", mounts[i].mountpoint);
		put_label(",source", mounts[i].s.source);
		put_label(",ssd", mounts[i].s.ssd);
		put_label(",mode", mounts[i].s.mode);
		put_label(",volume_id", mounts[i].s.volume_id);
		puts("} 1");
	}
}

static void put_health(const struct mount_state *mounts, size_t n)
{
	put_head("up", "gauge", "1 when the daemon answers.");
	for (size_t i = 0; i < n; i++)
		put_sample("up", &mounts[i], mounts[i].err == 0);
	put_head("recovering", "gauge", "1 while work is left to do after a crash.");
	for (size_t i = 0; i < n; i++)
		put_sample("recovering", &mounts[i], mounts[i].err == 0 && mounts[i].s.recovering);
	put_head("healthy", "gauge", "1 when the mount is healthy, 0 when degraded or down.");
	for (size_t i = 0; i < n; i++)
		put_sample("healthy", &mounts[i], mounts[i].err == 0 && mounts[i].s.healthy);
}

static void put_metric(const struct metric *m, const struct mount_state *mounts, size_t n)
{
	put_head(m->prometheus, m->type, m->help);
	for (size_t i = 0; i < n; i++)
		if (mounts[i].err == 0)
			put_sample(m->prometheus, &mounts[i], value_of(&mounts[i].s, m));
}

void status_print_prometheus(const struct mount_state *mounts, size_t n)
{
	put_health(mounts, n);
	put_info(mounts, n);
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
		put_metric(&metrics[i], mounts, n);
}
