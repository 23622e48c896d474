// SPDX-License-Identifier: GPL-2.0-or-later
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum verdict { PASSED, FAILED, RECORDED };

static bool verbose;
static bool recording;
static struct tally *tally;
static char test_id[128];
static char context[256];

void harness_init(bool be_verbose, bool record)
{
	verbose = be_verbose;
	recording = record;
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (tally == MAP_FAILED) {
		perror("posixtest: mmap");
		exit(1);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
}

const struct tally *harness_tally(void)
{
	return tally;
}

void harness_begin(const char *area, const char *name)
{
	snprintf(test_id, sizeof(test_id), "%s/%s", area, name);
	context[0] = '\0';
	tally->seq = 0;
}

void ctx(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(context, sizeof(context), fmt, ap);
	va_end(ap);
}

void harness_broken(const char *fmt, ...)
{
	char reason[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	tally->failed++;
	if (recording)
		printf("%s BROKEN %s\n", test_id, reason);
	else
		printf("FAIL %s: the test, expected to end, got %s after check %u\n", test_id,
		       reason, tally->seq);
}

static void count_skip(const char *reason)
{
	tally->skipped++;
	printf("%s%s: %s\n", recording ? "skip " : "SKIP ", test_id, reason);
}

void skip_part(const char *fmt, ...)
{
	char reason[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	count_skip(reason);
}

void skip_test(const char *reason)
{
	count_skip(reason);
	fflush(stdout);
	_exit(0);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void print_where(FILE *out, const struct site *site)
{
	fprintf(out, "%s%s%s%s", site->what, context[0] ? " [" : "", context,
		context[0] ? "]" : "");
}

/* A recording keeps standard output for diff(1). */
static void print_failure(const char *want, const char *got, const struct site *site)
{
	FILE *out = recording ? stderr : stdout;

	fprintf(out, "FAIL %s: ", test_id);
	print_where(out, site);
	fprintf(out, ", expected %s, got %s (%s:%d)\n", want, got, base_name(site->file),
		site->line);
}

/* One line for people (-v), or for diff(1) (--record). */
static void print_result(const char *got, const struct site *site)
{
	printf("%s%s#%u %s", recording ? "" : "ok ", test_id, tally->seq, got);
	if (verbose) {
		printf("\t# ");
		print_where(stdout, site);
	}
	putchar('\n');
}

static void conclude(enum verdict verdict, const char *want, const char *got,
		     const struct site *site)
{
	tally->seq++;
	if (verdict == PASSED)
		tally->passed++;
	else if (verdict == FAILED)
		tally->failed++;
	else
		tally->recorded++;
	if (recording || (verbose && verdict != FAILED))
		print_result(got, site);
	if (verdict == FAILED)
		print_failure(want, got, site);
}

static const char *errno_name(int err)
{
	const char *name = strerrorname_np(err);

	return name ? name : "unknown errno";
}

long check_errno(int want, int or_want, long ret, const struct site *site)
{
	int got = ret == -1 ? errno : 0;
	char wanted[64];

	if (or_want)
		snprintf(wanted, sizeof(wanted), "%s or %s", errno_name(want), errno_name(or_want));
	else
		snprintf(wanted, sizeof(wanted), "%s", errno_name(want));
	conclude(got == want || (or_want && got == or_want) ? PASSED : FAILED, wanted,
		 errno_name(got), site);
	return ret;
}

static _Noreturn void setup_failed(const struct site *site)
{
	char why[128];

	snprintf(why, sizeof(why), "%s", errno_name(errno));
	conclude(FAILED, "the set-up to work", why, site);
	fflush(stdout);
	_exit(EXIT_SETUP_FAILED);
}

long must(long ret, const struct site *site)
{
	if (ret == -1)
		setup_failed(site);
	return ret;
}

void *must_ptr(void *p, const struct site *site)
{
	if (!p)
		setup_failed(site);
	return p;
}

void check_int(long long want, long long got, const struct site *site)
{
	char w[32], g[32];

	snprintf(w, sizeof(w), "%lld", want);
	snprintf(g, sizeof(g), "%lld", got);
	conclude(want == got ? PASSED : FAILED, w, g, site);
}

/* Negative values are errnos (see mode_of() and friends in node.h). */
static void format_octal(long long value, char *buf, size_t size)
{
	if (value < 0)
		snprintf(buf, size, "%s", errno_name((int)-value));
	else
		snprintf(buf, size, "0%llo", (unsigned long long)value);
}

void check_oct(long long want, long long got, const struct site *site)
{
	char w[32], g[32];

	format_octal(want, w, sizeof(w));
	format_octal(got, g, sizeof(g));
	conclude(want == got ? PASSED : FAILED, w, g, site);
}

void check_same(long long want, long long got, const struct site *site)
{
	char w[32], g[32];

	if (!recording) {
		check_int(want, got, site);
		return;
	}
	snprintf(w, sizeof(w), "same");
	snprintf(g, sizeof(g), "%s", got < 0 ? errno_name((int)-got) : want == got ? w : "other");
	conclude(want == got ? PASSED : FAILED, w, g, site);
}

void check_str(const char *want, const char *got, const struct site *site)
{
	conclude(strcmp(want, got) == 0 ? PASSED : FAILED, want, got, site);
}

void check_true(bool ok, const struct site *site)
{
	conclude(ok ? PASSED : FAILED, "true", ok ? "true" : "false", site);
}

long record_errno(long ret, const struct site *site)
{
	conclude(RECORDED, "", errno_name(ret == -1 ? errno : 0), site);
	return ret;
}

void record_int(long long got, const struct site *site)
{
	char g[32];

	snprintf(g, sizeof(g), "%lld", got);
	conclude(RECORDED, "", g, site);
}

void record_oct(long long got, const struct site *site)
{
	char g[32];

	format_octal(got, g, sizeof(g));
	conclude(RECORDED, "", g, site);
}

void record_str(const char *got, const struct site *site)
{
	conclude(RECORDED, "", got, site);
}
