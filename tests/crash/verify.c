// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * verify DIR SEED [lax] <MARKS - after a power cut: is everything in DIR that the marks promise?
 *
 * For each process the marks say which step was acknowledged last. The plan (plan.h) says what it
 * did up to there, which has to be found as it was, and what it may have begun since, up to its
 * next fsync, which may be found or not, block by block. Anything else is an error, an older
 * version as much as a torn one, or zeros where the file never had any.
 *
 * Prints each finding, ends with 1 when there is one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan.h"

#define PROCS_MAX   16
#define WINDOW_MAX  9 /* steps from one fsync to the next, and the state before them */
#define PATH_BYTES  4096
#define SQL_BUSY_MS 20000

struct check {
	struct actor actor;
	const char *dir;
	uint64_t acked; /* the last step that was promised */
};

static int findings;
static bool lax;

__attribute__((format(printf, 2, 3))) static void report(const struct check *c, const char *format,
							 ...)
{
	va_list args;

	findings++;
	printf("%s %u, acknowledged step %llu: ", plan_names[c->actor.workload], c->actor.proc,
	       (unsigned long long)c->acked);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p) {
		perror("verify");
		exit(2);
	}
	return p;
}

/* The last step that the process may have begun. */
static uint64_t window_end(const struct check *c)
{
	uint64_t step = c->acked + 1;

	while (!plan_syncs(&c->actor, step))
		step++;
	return step;
}

/* A whole file, owned by the caller; NULL: not there (and reported, unless it may be absent). */
static unsigned char *load(const struct check *c, const char *name, bool may_be_absent,
			   size_t *ret_size)
{
	char path[PATH_BYTES];
	unsigned char *data;
	size_t done = 0;
	struct stat st;
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		if (errno != ENOENT || !may_be_absent)
			report(c, "%s: %s", name, strerror(errno));
		return NULL;
	}
	data = allocate((size_t)st.st_size + 1);
	while (done < (size_t)st.st_size &&
	       (n = read(fd, data + done, (size_t)st.st_size - done)) > 0)
		done += (size_t)n;
	if (done < (size_t)st.st_size)
		report(c, "%s: read %zu of %lld bytes: %s", name, done, (long long)st.st_size,
		       n < 0 ? strerror(errno) : "end of file");
	close(fd);
	*ret_size = done;
	return data;
}

/* The first byte in which a and b differ, or len. */
static size_t differ(const unsigned char *a, const unsigned char *b, size_t len)
{
	size_t i;

	if (memcmp(a, b, len) == 0)
		return len;
	for (i = 0; i < len && a[i] == b[i]; i++)
		;
	return i;
}

/* The same for a record of which nothing was promised: zeros may stand for what is missing. */
static size_t differ_begun(const unsigned char *have, const unsigned char *want, size_t len)
{
	size_t i;

	for (i = 0; i < len && (have[i] == want[i] || (lax && !have[i])); i++)
		;
	return i;
}

/* For a message: the four words of plan_fill's header, or zeros, or something else. */
static const char *what_is(const unsigned char *p, size_t len)
{
	static char text[120];
	uint64_t w[4] = { 0 };
	size_t i;

	memcpy(w, p, len < sizeof(w) ? len : sizeof(w));
	for (i = 0; i < len && !p[i]; i++)
		;
	if (i == len)
		return "zeros";
	snprintf(text, sizeof(text), "actor %llx step %llu where %llu, or part of something",
		 (unsigned long long)w[1], (unsigned long long)w[2], (unsigned long long)w[3]);
	return text;
}

static void check_append(const struct check *c)
{
	unsigned char *want = allocate(APPEND_RECORD_MAX), *have;
	size_t size = 0, off = 0, len, n, same;
	uint64_t step, last = window_end(c);
	char name[32];

	snprintf(name, sizeof(name), "append.%u", c->actor.proc);
	have = load(c, name, false, &size);
	for (step = 1; have && step <= last; step++, off += len) {
		len = plan_append_len(&c->actor, step);
		if (step <= c->acked && off + len > size) {
			report(c, "record %llu at %zu, %zu bytes, but the file has %zu",
			       (unsigned long long)step, off, len, size);
			break;
		}
		n = off >= size ? 0 : off + len > size ? size - off : len;
		plan_fill(&c->actor, step, off, want, len);
		same = step <= c->acked ? differ(have + off, want, n) :
					  differ_begun(have + off, want, n);
		if (same < n) {
			report(c,
			       "record %llu at %zu, %zu bytes, size %zu: differs from byte %zu: %s",
			       (unsigned long long)step, off, len, size, same,
			       what_is(have + off + same, n - same));
			break;
		}
	}
	if (have && step > last && size > off)
		report(c, "%zu bytes, but at most %zu were written", size, off);
	free(have);
	free(want);
}

/* One block: the newest acknowledged version or one begun since. */
static void check_over_block(const struct check *c, const unsigned char *have, unsigned int block,
			     uint64_t promised, uint64_t last)
{
	uint64_t where = plan_over_start(&c->actor) + block, step;
	unsigned char want[PLAN_BLOCK];
	unsigned int first, count;

	plan_fill(&c->actor, promised, where, want, sizeof(want));
	if (!memcmp(want, have, sizeof(want)))
		return;
	for (step = c->acked + 1; step <= last; step++) {
		plan_over(&c->actor, step, &first, &count);
		plan_fill(&c->actor, step, where, want, sizeof(want));
		if (block >= first && block < first + count && !memcmp(want, have, sizeof(want)))
			return;
	}
	report(c, "block %llu: step %llu was promised; it has %s", (unsigned long long)where,
	       (unsigned long long)promised, what_is(have, PLAN_BLOCK));
}

static void check_overwrite(const struct check *c)
{
	uint64_t promised[OVER_BLOCKS_MAX] = { 0 }, step, last = window_end(c);
	size_t size = 0, at = (size_t)plan_over_start(&c->actor) * PLAN_BLOCK;
	unsigned int first, count, i, blocks = plan_over_blocks(&c->actor);
	char name[32] = "overwrite";
	unsigned char *have;

	if (c->actor.workload == W_COLD)
		snprintf(name, sizeof(name), "cold.%u", c->actor.proc);
	have = load(c, name, false, &size);

	for (step = 1; step <= c->acked; step++) {
		plan_over(&c->actor, step, &first, &count);
		for (i = first; i < first + count; i++)
			promised[i] = step;
	}
	if (have && size < at + (size_t)blocks * PLAN_BLOCK)
		report(c, "the file has %zu bytes", size);
	else if (have)
		for (i = 0; i < blocks; i++)
			check_over_block(c, have + at + (size_t)i * PLAN_BLOCK, i, promised[i],
					 last);
	free(have);
}

/* Is the name in the state that `step` left it in (0: never there)? */
static bool rename_fits(const struct check *c, uint64_t step, const unsigned char *have,
			size_t size)
{
	unsigned char want[RENAME_BYTES_MAX];
	unsigned int number;
	bool is_unlink;
	size_t len;

	if (!step)
		return !have;
	plan_rename(&c->actor, step, &number, &is_unlink, &len);
	if (is_unlink || !have)
		return is_unlink && !have;
	plan_fill(&c->actor, step, 0, want, len);
	return size == len && !memcmp(have, want, len);
}

/* One step is at most under way: it concerns one name. */
static void check_rename(const struct check *c)
{
	uint64_t promised[RENAME_NAMES] = { 0 }, step;
	unsigned int number, begun, i;
	bool is_unlink;
	size_t len;

	for (step = 1; step <= c->acked; step++) {
		plan_rename(&c->actor, step, &number, &is_unlink, &len);
		promised[number] = step;
	}
	plan_rename(&c->actor, c->acked + 1, &begun, &is_unlink, &len);
	for (i = 0; i < RENAME_NAMES; i++) {
		unsigned char *have;
		size_t size = 0;
		char name[32];

		snprintf(name, sizeof(name), "rename.%u.%u", c->actor.proc, i);
		have = load(c, name, true, &size);
		if (!rename_fits(c, promised[i], have, size) &&
		    !(i == begun && rename_fits(c, c->acked + 1, have, size)))
			report(c, "%s: as of step %llu expected%s; %s, %zu bytes: %s", name,
			       (unsigned long long)promised[i], i == begun ? " (or the next)" : "",
			       have ? "there" : "absent", size, have ? what_is(have, size) : "");
		free(have);
	}
}

static void check_sql_row(const struct check *c, sqlite3_stmt *stmt)
{
	uint64_t step = (uint64_t)sqlite3_column_int64(stmt, 0);
	size_t len = plan_sql_len(&c->actor, step);
	unsigned char *want = allocate(len);

	plan_fill(&c->actor, step, 0, want, len);
	if ((size_t)sqlite3_column_bytes(stmt, 1) != len ||
	    memcmp(sqlite3_column_blob(stmt, 1), want, len) != 0)
		report(c, "row %llu has a wrong body", (unsigned long long)step);
	free(want);
}

/* The single value of a query as text; "" and a finding when there is none. */
static void sql_value(const struct check *c, sqlite3 *db, const char *query, char *ret, size_t size)
{
	sqlite3_stmt *stmt = NULL;

	*ret = 0;
	if (sqlite3_prepare_v2(db, query, -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		snprintf(ret, size, "%s", (const char *)sqlite3_column_text(stmt, 0));
	else
		report(c, "%s: %s", query, sqlite3_errmsg(db));
	sqlite3_finalize(stmt);
}

static void check_sqlite(const struct check *c)
{
	char path[PATH_BYTES], value[400];
	sqlite3_stmt *stmt = NULL;
	uint64_t n, rows = 0;
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/sqlite.%u.db", c->dir, c->actor.proc);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
		report(c, "%s: %s", path, sqlite3_errmsg(db));
		sqlite3_close(db);
		return;
	}
	sqlite3_busy_timeout(db, SQL_BUSY_MS);
	sql_value(c, db, "PRAGMA integrity_check", value, sizeof(value));
	if (strcmp(value, "ok") != 0)
		report(c, "integrity_check: %s", value);
	sql_value(c, db, "SELECT n FROM counter", value, sizeof(value));
	n = strtoull(value, NULL, 10);
	if (n < c->acked || n > c->acked + 1)
		report(c, "the counter is %s", value);
	if (sqlite3_prepare_v2(db, "SELECT n, body FROM log", -1, &stmt, NULL) == SQLITE_OK)
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			check_sql_row(c, stmt);
			rows++;
		}
	if (rows != (n < SQL_ROWS ? n : SQL_ROWS))
		report(c, "counter %s, but %llu rows", value, (unsigned long long)rows);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

/* Size: that of a state, or, for a write that makes the file longer, one on the way. */
static bool trunc_size_fits(const struct trunc_state *states, unsigned int count, size_t size)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (size == states[i].size ||
		    (i && size > states[i - 1].size && size < states[i].size))
			return true;
	return false;
}

/*
 * Zeros where the file ended in state i: a later size may be durable before what was written
 * behind the old end, when it moved by fallocate or ftruncate (on plain ext4 too: these need not
 * wait for the data), or, with lax, by a write.
 */
static bool trunc_hole_fits(const struct trunc_state *states, unsigned int count, unsigned int i,
			    size_t pos)
{
	if (lax)
		return true;
	for (i++; i < count; i++)
		if (states[i].grown && pos < states[i].size)
			return true;
	return false;
}

static bool trunc_byte_fits(const struct trunc_state *states, unsigned int count, size_t pos,
			    unsigned char byte)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (pos < states[i].size ? states[i].data[pos] == byte :
					   !byte && trunc_hole_fits(states, count, i, pos))
			return true;
	return false;
}

/*
 * A cut zeroes the rest of the last block, which may be on the disk before the new size is: on
 * plain ext4 too (it orders the zeros before the size).
 */
static bool trunc_tail_zeroed(const struct trunc_state *states, unsigned int count, size_t pos)
{
	unsigned int i;

	for (i = 1; i < count; i++)
		if (states[i].size < states[i - 1].size && pos >= states[i].size &&
		    pos / PLAN_BLOCK == states[i].size / PLAN_BLOCK)
			return true;
	return false;
}

/* states[0] is what was acknowledged, the others what followed. Returns their number. */
static unsigned int trunc_states(const struct check *c, struct trunc_state *states)
{
	uint64_t step, last = window_end(c);
	unsigned int count = 1;
	struct trunc_op op;

	for (step = 1; step <= last; step++) {
		if (step > c->acked) {
			states[count] = states[count - 1];
			count++;
		}
		op = plan_trunc(&c->actor, step, &states[count - 1]);
		plan_trunc_apply(&c->actor, step, &op, &states[count - 1]);
	}
	return count;
}

static void check_truncate(const struct check *c)
{
	struct trunc_state *states = allocate(WINDOW_MAX * sizeof(*states));
	unsigned int count = trunc_states(c, states), i;
	int before = findings;
	unsigned char *have;
	size_t size = 0, pos;
	char name[32];

	snprintf(name, sizeof(name), "truncate.%u", c->actor.proc);
	have = load(c, name, false, &size);
	if (have && !trunc_size_fits(states, count, size))
		report(c, "%zu bytes", size);
	for (pos = 0; have && pos < size; pos++)
		if (!trunc_byte_fits(states, count, pos, have[pos]) &&
		    (have[pos] || !trunc_tail_zeroed(states, count, pos))) {
			report(c, "byte %zu of %zu is %02x, expected %02x: %s", pos, size,
			       have[pos], states[0].data[pos],
			       what_is(have + pos, size - pos < 32 ? size - pos : 32));
			break;
		}
	for (i = 0; have && i < count && findings > before; i++)
		printf("    step %llu: %zu bytes\n", (unsigned long long)(c->acked + i),
		       states[i].size);
	free(have);
	free(states);
}

/* The last mark of each process counts. */
static void read_marks(uint64_t acked[W_COUNT][PROCS_MAX])
{
	unsigned long long step;
	char line[200], name[40];
	unsigned int proc, i;

	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "A %39s %u %llu", name, &proc, &step) != 3 || proc >= PROCS_MAX)
			continue;
		for (i = 0; i < W_COUNT; i++)
			if (!strcmp(name, plan_names[i]))
				acked[i][proc] = step + 1;
	}
}

int main(int argc, char **argv)
{
	static void (*const checks[W_COUNT])(const struct check *) = {
		check_append, check_overwrite, check_rename,
		check_sqlite, check_truncate,  check_overwrite,
	};
	uint64_t acked[W_COUNT][PROCS_MAX] = { { 0 } };
	struct check c;
	unsigned int i;

	if (argc < 3) {
		fprintf(stderr, "Usage: verify DIR SEED [lax] <MARKS\n");
		return 2;
	}
	lax = argc > 3;
	read_marks(acked);
	c.dir = argv[1];
	c.actor.seed = strtoull(argv[2], NULL, 0);
	for (i = 0; i < W_COUNT * PROCS_MAX; i++) {
		c.actor.workload = i / PROCS_MAX;
		c.actor.proc = i % PROCS_MAX;
		c.acked = acked[c.actor.workload][c.actor.proc];
		if (c.acked--)
			checks[c.actor.workload](&c);
	}
	return findings != 0;
}
