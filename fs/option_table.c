// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/option_table.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "db/base.h"

#define TIMEOUT_MAX_S 1e9
#define THREADS_MAX   4096
#define SECONDS_MAX   (365 * 86400)

/* ---- messages ------------------------------------------------------------------------------ */
int usage_error(const char *fmt, ...)
{
	va_list ap;

	fputs("hybridfs: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nTry 'hybridfs --help'.\n", stderr);
	return MOUNT_USAGE;
}

int out_of_memory(void)
{
	fputs("hybridfs: out of memory\n", stderr);
	return MOUNT_SYSTEM;
}

/* ---- values -------------------------------------------------------------------------------- */
/* "12", "4K", "1.5G": bytes. False: it is none, or too big. */
static bool parse_size(const char *s, uint64_t *ret)
{
	static const char units[] = "KMGTP";
	char *end;

	if (!isdigit((unsigned char)*s))
		return false;
	errno = 0;
	long double n = strtold(s, &end);
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;

	if (strspn(s, "0123456789.") != (size_t)(end - s) || errno)
		return false;
	if (*end && !unit)
		return false;
	for (const char *u = units; unit && u <= unit; u++)
		n *= 1024;
	if (unit) {
		end++;
		if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0)
			end += strlen(end);
	}
	if (*end || n > (long double)(INT64_MAX / 2))
		return false;
	*ret = (uint64_t)n;
	return true;
}

static bool parse_number(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s))
		return false;
	errno = 0;
	unsigned long long n = strtoull(s, &end, 10);

	if (errno || *end || n < min || n > max)
		return false;
	*ret = n;
	return true;
}

static bool parse_percent(const char *s, unsigned *ret)
{
	size_t len = strlen(s);
	char digits[8];
	uint64_t n;

	if (len > 0 && s[len - 1] == '%')
		len--;
	if (len == 0 || len >= sizeof(digits))
		return false;
	memcpy(digits, s, len);
	digits[len] = '\0';
	if (!parse_number(digits, 0, 100, &n))
		return false;
	*ret = (unsigned)n;
	return true;
}

static bool parse_seconds(const char *s, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s) && *s != '.')
		return false;
	double n = strtod(s, &end);

	if (*end || !(n >= 0) || n > TIMEOUT_MAX_S)
		return false;
	*ret = n;
	return true;
}

/* ---- one function per kind of option: false = the value is not good ------------------------ */
static bool set_unsigned(unsigned *ret, const char *value, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (!parse_number(value, min, max, &n))
		return false;
	*ret = (unsigned)n;
	return true;
}

static bool set_cap(struct mount_options *o, const char *value)
{
	size_t len = strlen(value);

	if (len > 0 && value[len - 1] == '%') {
		o->volume.size_bytes = 0;
		return parse_percent(value, &o->volume.size_percent) && o->volume.size_percent > 0;
	}
	return parse_size(value, &o->volume.size_bytes) && o->volume.size_bytes > 0;
}

static bool set_mode(struct mount_options *o, const char *value)
{
	static const char *const names[] = { [MODE_WRITEBACK] = "writeback",
					     [MODE_WRITETHROUGH] = "writethrough",
					     [MODE_WRITEAROUND] = "writearound" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(value, names[i]) == 0) {
			o->volume.mode = (enum volume_mode)i;
			return true;
		}
	}
	return false;
}

static bool set_dirty_ratio(struct mount_options *o, const char *value)
{
	return parse_percent(value, &o->volume.dirty_percent);
}

static bool set_background_ratio(struct mount_options *o, const char *value)
{
	return parse_percent(value, &o->volume.dirty_background_percent);
}

static bool set_high(struct mount_options *o, const char *value)
{
	return parse_percent(value, &o->volume.high_percent) && o->volume.high_percent > 0;
}

static bool set_low(struct mount_options *o, const char *value)
{
	o->low_given = true;
	return parse_percent(value, &o->volume.low_percent);
}

static bool set_expire(struct mount_options *o, const char *value)
{
	return set_unsigned(&o->volume.dirty_expire_s, value, 0, SECONDS_MAX);
}

static bool set_seq_cutoff(struct mount_options *o, const char *value)
{
	return parse_size(value, &o->volume.seq_cutoff_bytes);
}

static bool set_promote_hits(struct mount_options *o, const char *value)
{
	return set_unsigned(&o->volume.promote_hits, value, 1, 1000);
}

static bool set_stripe(struct mount_options *o, const char *value)
{
	return parse_size(value, &o->stripe_bytes);
}

static bool set_passthrough(struct mount_options *o, const char *value)
{
	o->passthrough = strcmp(value, "auto") == 0;
	return o->passthrough || strcmp(value, "off") == 0;
}

static bool set_string(char **ret, const char *value)
{
	free(*ret);
	*ret = strdup(value);
	return *ret && *value;
}

static bool set_ssd(struct mount_options *o, const char *value)
{
	return set_string(&o->ssd, value);
}

static bool set_fsname(struct mount_options *o, const char *value)
{
	return set_string(&o->fsname, value);
}

static bool set_uid(struct mount_options *o, const char *value)
{
	o->set_uid = true;
	return set_unsigned(&o->uid, value, 0, UINT_MAX - 1);
}

static bool set_gid(struct mount_options *o, const char *value)
{
	o->set_gid = true;
	return set_unsigned(&o->gid, value, 0, UINT_MAX - 1);
}

static bool set_umask(struct mount_options *o, const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 8);

	o->set_umask = true;
	o->umask = (mode_t)n;
	return isdigit((unsigned char)*value) && !*end && n <= 0777;
}

static bool set_attr_timeout(struct mount_options *o, const char *value)
{
	return parse_seconds(value, &o->attr_timeout_s);
}

static bool set_entry_timeout(struct mount_options *o, const char *value)
{
	return parse_seconds(value, &o->entry_timeout_s);
}

static bool set_negative_timeout(struct mount_options *o, const char *value)
{
	return parse_seconds(value, &o->negative_timeout_s);
}

static bool set_max_threads(struct mount_options *o, const char *value)
{
	return set_unsigned(&o->max_threads, value, 1, THREADS_MAX);
}

static bool ignore_value(struct mount_options *o, const char *value)
{
	(void)o;
	(void)value;
	return true;
}

static const struct {
	const char *name;
	bool (*set)(struct mount_options *o, const char *value);
	const char *expected;
} valued[] = {
	{ "ssd", set_ssd, "a directory" },
	{ "size", set_cap, "a size such as 200G, or a percentage such as 80%" },
	{ "mode", set_mode, "writeback, writethrough or writearound" },
	{ "dirty_ratio", set_dirty_ratio, "a percentage from 0 to 100" },
	{ "dirty_background_ratio", set_background_ratio, "a percentage from 0 to 100" },
	{ "dirty_expire", set_expire, "seconds" },
	{ "high_watermark", set_high, "a percentage from 1 to 100" },
	{ "low_watermark", set_low, "a percentage from 0 to 100" },
	{ "seq_cutoff", set_seq_cutoff, "a size such as 4M, or 0 for never" },
	{ "promote_hits", set_promote_hits, "a number from 1 to 1000" },
	{ "passthrough", set_passthrough, "auto or off" },
	{ "stripe", set_stripe, "a size such as 2560K" },
	{ "uid", set_uid, "a numeric user id" },
	{ "gid", set_gid, "a numeric group id" },
	{ "umask", set_umask, "an octal mask" },
	{ "attr_timeout", set_attr_timeout, "seconds" },
	{ "entry_timeout", set_entry_timeout, "seconds" },
	{ "negative_timeout", set_negative_timeout, "seconds" },
	{ "ac_attr_timeout", ignore_value, "" },
	{ "max_threads", set_max_threads, "a number from 1 to 4096" },
	{ "max_idle_threads", ignore_value, "" },
	{ "fsname", set_fsname, "a name" },
	{ "subtype", ignore_value, "" },
	{ "comment", ignore_value, "" },
	{ "user", ignore_value, "" },
	{ "helper", ignore_value, "" },
};

/* ---- options without a value --------------------------------------------------------------- */
static void set_flush(struct mount_options *o)
{
	o->flush_on_unmount = true;
}

static void set_no_flush(struct mount_options *o)
{
	o->flush_on_unmount = false;
}

static void set_ro(struct mount_options *o)
{
	o->read_only = true;
}

static void set_rw(struct mount_options *o)
{
	o->read_only = false;
}

static void set_suid(struct mount_options *o)
{
	o->nosuid = false;
}

static void set_nosuid(struct mount_options *o)
{
	o->nosuid = true;
}

static void set_dev(struct mount_options *o)
{
	o->nodev = false;
}

static void set_nodev(struct mount_options *o)
{
	o->nodev = true;
}

static void set_allow_other(struct mount_options *o)
{
	o->allow = ALLOW_OTHER;
}

static void set_allow_root(struct mount_options *o)
{
	o->allow = ALLOW_ROOT;
}

static void set_debug(struct mount_options *o)
{
	o->debug = o->foreground = true;
}

static const struct {
	const char *name;
	void (*set)(struct mount_options *o);
} plain[] = {
	{ "flush_on_unmount", set_flush },
	{ "no_flush_on_unmount", set_no_flush },
	{ "ro", set_ro },
	{ "rw", set_rw },
	{ "suid", set_suid },
	{ "nosuid", set_nosuid },
	{ "dev", set_dev },
	{ "nodev", set_nodev },
	{ "allow_other", set_allow_other },
	{ "allow_root", set_allow_root },
	{ "debug", set_debug },
};

/* Understood by libfuse or the kernel. */
static const char *const for_fuse[] = { "exec",	   "noexec", "sync",	"async",
					"dirsync", "atime",  "noatime", "auto_unmount" };

/* What mount(8), fstab and other FUSE programs know and we have no use for. */
static const char *const ignored[] = {
	"defaults",
	"auto",
	"noauto",
	"nofail",
	"_netdev",
	"user",
	"nouser",
	"users",
	"owner",
	"group",
	"relatime",
	"norelatime",
	"strictatime",
	"nostrictatime",
	"lazytime",
	"nolazytime",
	"diratime",
	"nodiratime",
	"iversion",
	"noiversion",
	"mand",
	"nomand",
	"silent",
	"loud",
	"quiet",
	"remount",
	"default_permissions",
	"nonempty",
	"use_ino",
	"readdir_ino",
	"big_writes",
	"large_read",
	"hard_remove",
	"kernel_cache",
	"auto_cache",
	"noauto_cache",
	"splice_read",
	"splice_write",
	"splice_move",
	"no_splice_read",
	"no_splice_write",
	"no_splice_move",
	"clone_fd",
	"intr",
};

static bool in_list(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

static int pass_on(struct mount_options *o, const char *name)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", o->fuse_opts ? o->fuse_opts : "", o->fuse_opts ? "," : "",
		     name) < 0)
		return out_of_memory();
	free(o->fuse_opts);
	o->fuse_opts = joined;
	return 0;
}

static int plain_option(struct mount_options *o, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (strcmp(plain[i].name, name) == 0) {
			plain[i].set(o);
			return 0;
		}
	}
	if (in_list(for_fuse, ARRAY_SIZE(for_fuse), name))
		return pass_on(o, name);
	if (in_list(ignored, ARRAY_SIZE(ignored), name))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(valued); i++)
		if (strcmp(valued[i].name, name) == 0)
			return usage_error("option '%s' needs a value: %s=..., %s", name, name,
					   valued[i].expected);
	return usage_error("unknown option '%s'", name);
}

static int valued_option(struct mount_options *o, const char *name, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(valued); i++) {
		if (strcmp(valued[i].name, name) != 0)
			continue;
		if (valued[i].set(o, value))
			return 0;
		return usage_error("bad value '%s' for option '%s': expected %s", value, name,
				   valued[i].expected);
	}
	return usage_error("unknown option '%s'", name);
}

int option_apply(struct mount_options *o, const char *name, const char *value)
{
	return value ? valued_option(o, name, value) : plain_option(o, name);
}
