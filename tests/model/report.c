// SPDX-License-Identifier: GPL-2.0-or-later
/* The log of the last operations and the report of a difference. */
#include "model.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING	   40
#define ENTRY_SIZE 480

static struct {
	struct world *world;
	void (*cleanup)(void);
	char ring[RING][ENTRY_SIZE];
	uint64_t entries;
	uint64_t last_step;
	bool verbose, ending;
} rep;

void report_init(struct world *w, void (*cleanup)(void))
{
	rep.world = w;
	rep.cleanup = cleanup;
	rep.verbose = w && w->cfg->verbose;
}

/* An operation that found nothing to do gives its entry to the next one tried. */
static char *new_entry(uint64_t step)
{
	if (rep.entries && rep.last_step == step)
		return rep.ring[(rep.entries - 1) % RING];
	if (rep.verbose && rep.entries)
		printf("%s\n", rep.ring[(rep.entries - 1) % RING]);
	rep.last_step = step;
	return rep.ring[rep.entries++ % RING];
}

void log_begin(struct world *w, const char *op)
{
	snprintf(new_entry(w->step), ENTRY_SIZE, "%8llu %s%s", (unsigned long long)w->step,
		 w->offline ? "(on SRC) " : "", op);
}

void say(const char *fmt, ...)
{
	char *e = rep.ring[(rep.entries + RING - 1) % RING];
	size_t at = strlen(e);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e + at, ENTRY_SIZE - at, fmt, ap);
	va_end(ap);
}

static void print_history(void)
{
	uint64_t first = rep.entries > RING ? rep.entries - RING : 0;

	fprintf(stderr, "last operations (step, operation):\n");
	for (uint64_t i = first; i < rep.entries; i++)
		fprintf(stderr, "%s\n", rep.ring[i % RING]);
}

static void print_repeat(const struct config *c)
{
	fprintf(stderr, "repeat with: %s\n", c->command);
}

static void print_head(const char *kind)
{
	struct world *w = rep.world;
	char state[64];

	mount_state(state, sizeof(state));
	fflush(stdout);
	fprintf(stderr, "\nmodeltest: %s at step %llu, seed %llu\n", kind,
		(unsigned long long)w->step, (unsigned long long)w->cfg->seed);
	if (rep.entries)
		fprintf(stderr, "operation: %s\n", rep.ring[(rep.entries - 1) % RING]);
	fprintf(stderr, "daemon:    %s\n", state);
	if (w->sabotaged_at)
		fprintf(stderr, "sabotage:  was done at step %llu\n",
			(unsigned long long)w->sabotaged_at);
}

/* --on-fail: look at the daemon while it is still there. */
static void run_on_fail(const struct config *c)
{
	if (!c->on_fail)
		return;
	mount_export_pid("DAEMON_PID");
	fflush(NULL);
	if (system(c->on_fail) != 0)
		fprintf(stderr, "modeltest: the --on-fail command failed\n");
}

_Noreturn void finish(int code)
{
	if (!rep.ending) {
		rep.ending = true;
		if (code == 1 && rep.world)
			run_on_fail(rep.world->cfg);
		if (rep.cleanup)
			rep.cleanup();
	}
	fflush(stdout);
	_exit(code);
}

_Noreturn void fail(struct world *w, const char *fmt, ...)
{
	va_list ap;

	(void)w;
	if (rep.ending)
		finish(1);
	print_head("DIFFERENCE");
	fprintf(stderr, "what:      ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	print_history();
	print_repeat(rep.world->cfg);
	finish(1);
}

static void print_hex(const char *who, off_t at, const unsigned char *p, size_t len)
{
	fprintf(stderr, "  %-9s %12llu:", who, (unsigned long long)at);
	for (size_t i = 0; i < len; i++)
		fprintf(stderr, "%s%02x", i % 8 ? "" : " ", p[i]);
	fprintf(stderr, "\n");
}

static void print_rows(size_t diff, off_t off, const unsigned char *a, const unsigned char *b,
		       size_t len)
{
	size_t from = diff > 32 ? (diff - 32) / 16 * 16 : 0;

	for (size_t i = from; i < len && i < from + 96; i += 16) {
		size_t n = len - i < 16 ? len - i : 16;

		print_hex("mount", off + (off_t)i, a + i, n);
		print_hex("reference", off + (off_t)i, b + i, n);
	}
}

/* The first whole word at or after the difference; the one before may have two writers. */
static void print_origin(const char *who, size_t diff, off_t off, const unsigned char *p,
			 size_t len)
{
	size_t at = diff + (size_t)((8 - (off + (off_t)diff) % 8) % 8);
	char text[160];

	if (at + 8 > len)
		return;
	pattern_explain(p + at, off + (off_t)at, text, sizeof(text));
	fprintf(stderr, "  %-9s %12lld: %s\n", who, (long long)off + (long long)at, text);
}

/* How far the differing bytes reach, and how many there are. */
static void print_extent(size_t diff, off_t off, const unsigned char *a, const unsigned char *b,
			 size_t len)
{
	size_t last = diff, count = 0;

	for (size_t i = diff; i < len; i++) {
		if (a[i] == b[i])
			continue;
		last = i;
		count++;
	}
	fprintf(stderr, "  first at %lld, last at %lld of what was compared, %zu bytes differ\n",
		(long long)off + (long long)diff, (long long)off + (long long)last, count);
}

_Noreturn void fail_byte_at(struct world *w, struct node *n, const char *how, off_t off,
			    const unsigned char *a, const unsigned char *b, size_t len, size_t diff)
{
	char path[PATH_BYTES];

	if (rep.ending)
		finish(1);
	print_head("DIFFERENCE");
	fprintf(stderr, "what:      bytes of %s (file #%u, size %lld), %s\n",
		path_of(w, MNT, n, path), n->id, (long long)n->size, how);
	print_extent(diff, off, a, b, len);
	print_origin("mount", diff, off, a, len);
	print_origin("reference", diff, off, b, len);
	print_rows(diff, off, a, b, len);
	print_history();
	print_repeat(w->cfg);
	finish(1);
}

_Noreturn void fail_bytes(struct world *w, struct node *n, const char *how, off_t off,
			  const unsigned char *a, const unsigned char *b, size_t len)
{
	size_t diff = 0;

	while (diff < len && a[diff] == b[diff])
		diff++;
	fail_byte_at(w, n, how, off, a, b, len, diff);
}

_Noreturn void die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "modeltest: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	finish(2);
}

void report_hang(void)
{
	if (rep.ending) {
		fprintf(stderr, "modeltest: the clean-up hangs too\n");
		return;
	}
	rep.ending = true;
	print_head("HANG");
	print_history();
	print_repeat(rep.world->cfg);
	run_on_fail(rep.world->cfg);
}
