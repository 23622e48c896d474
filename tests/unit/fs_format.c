// SPDX-License-Identifier: GPL-2.0-or-later
/* What the commands print and parse, as pure functions: sizes, names, ranges, maps, mountinfo. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "db/base.h"
#include "fs/cmd/filemap.h"
#include "fs/cmd/format.h"
#include "fs/cmd/mounts.h"
#include "fs/cmd/progress.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)

/* ---- numbers ------------------------------------------------------------------------------- */

static void sizes_have_one_decimal_and_the_right_unit(void)
{
	CHECK_STR(SIZE(0), "0 B");
	CHECK_STR(SIZE(1023), "1023 B");
	CHECK_STR(SIZE(1024), "1.0 KiB");
	CHECK_STR(SIZE(1536), "1.5 KiB");
	CHECK_STR(SIZE(MIB - 1), "1.0 MiB"); /* not 1024.0 KiB */
	CHECK_STR(SIZE(1023 * KIB), "1023.0 KiB");
	CHECK_STR(SIZE(5 * TIB / 2), "2.5 TiB");
	CHECK_STR(SIZE(UINT64_MAX), "16.0 EiB");
}

static void percentages_say_all_and_nothing_only_when_exact(void)
{
	CHECK_STR(PERCENT(0, 0), "-");
	CHECK_STR(PERCENT(0, 5), "0%");
	CHECK_STR(PERCENT(1, 1000), "<1%");
	CHECK_STR(PERCENT(999, 1000), "99%");
	CHECK_STR(PERCENT(UINT64_MAX - 1, UINT64_MAX), "99%");
	CHECK_STR(PERCENT(7, 7), "100%");
	CHECK_STR(PERCENT(8, 7), "100%");
}

static void durations(void)
{
	CHECK_STR(DURATION(0), "0:00");
	CHECK_STR(DURATION(754), "12:34");
	CHECK_STR(DURATION(3 * 3600 + 121), "3:02:01");
	CHECK_STR(DURATION(86400 * 5 + 3 * 3600), "5 d 3 h");
}

static uint64_t size_of(const char *text)
{
	uint64_t n = 12345;

	return parse_size(text, &n) == 0 ? n : UINT64_MAX;
}

static void sizes_are_parsed(void)
{
	CHECK_EQ(size_of("0"), 0);
	CHECK_EQ(size_of("4096"), 4096);
	CHECK_EQ(size_of("64K"), 64 * KIB);
	CHECK_EQ(size_of("64k"), 64 * KIB);
	CHECK_EQ(size_of("4MiB"), 4 * MIB);
	CHECK_EQ(size_of("4MB"), 4 * MIB);
	CHECK_EQ(size_of("2T"), 2 * TIB);
	CHECK_EQ(size_of("7B"), 7);
	CHECK_EQ(size_of("9223372036854775807"), INT64_MAX);
}

static void what_is_no_size_is_refused(void)
{
	static const char *const bad[] = { "",	 " 1",	 "-1",	"+1", "1.5",  "K",
					   "1Q", "1KiX", "1 K", "x",  "0x10", "1KK" };
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!CHECK_EQ(parse_size(bad[i], &n), -EINVAL))
			printf("# \"%s\"\n", bad[i]);
	CHECK_EQ(parse_size("9223372036854775808", &n), -ERANGE);
	CHECK_EQ(parse_size("8388608T", &n), -ERANGE);
	CHECK_EQ(parse_size("99999999999999999999999", &n), -ERANGE);
}

static void ranges_are_parsed(void)
{
	struct byte_range r;

	CHECK_EQ(parse_range("4K:1M", &r), 0);
	CHECK_EQ(r.offset, 4 * KIB);
	CHECK_EQ(r.length, MIB);
	CHECK_EQ(parse_range("7:", &r), 0);
	CHECK_EQ(r.offset, 7);
	CHECK(r.length == UINT64_MAX);
	CHECK_EQ(parse_range("9223372036854775806:1", &r), 0);
}

static void what_is_no_range_is_refused(void)
{
	static const char *const bad[] = {
		"", "5", ":", ":5", "a:b", "0:0", "1:2:3", "-1:5", "0:-5"
	};
	struct byte_range r;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!CHECK_EQ(parse_range(bad[i], &r), -EINVAL))
			printf("# \"%s\"\n", bad[i]);
	CHECK_EQ(parse_range("9223372036854775807:1", &r), -ERANGE);
	CHECK_EQ(parse_range("00000000000000000000000000000000000000001:1", &r), -ERANGE);
}

/* ---- names --------------------------------------------------------------------------------- */

static void utf8_is_told_from_other_bytes(void)
{
	CHECK_EQ(utf8_sequence("a", 1), 1);
	CHECK_EQ(utf8_sequence("\xc3\xa9", 2), 2);
	CHECK_EQ(utf8_sequence("\xe2\x82\xac", 3), 3);
	CHECK_EQ(utf8_sequence("\xf0\x9f\x98\x80", 4), 4);
	CHECK_EQ(utf8_sequence("\xc3", 1), 0); /* cut off */
	CHECK_EQ(utf8_sequence("\xc3"
			       "a",
			       2),
		 0);					   /* not continued */
	CHECK_EQ(utf8_sequence("\x80", 1), 0);		   /* a continuation alone */
	CHECK_EQ(utf8_sequence("\xc0\xaf", 2), 0);	   /* overlong */
	CHECK_EQ(utf8_sequence("\xe0\x80\xaf", 3), 0);	   /* overlong */
	CHECK_EQ(utf8_sequence("\xed\xa0\x80", 3), 0);	   /* a surrogate */
	CHECK_EQ(utf8_sequence("\xf4\x90\x80\x80", 4), 0); /* above U+10FFFF */
	CHECK_EQ(utf8_sequence("\xff", 1), 0);
	CHECK_EQ(utf8_sequence("", 0), 0);
}

static void check_escape(const char *name, const char *want)
{
	_cleanup_free_ char *got = fmt_escape(name);

	if (!CHECK_STR(got, want))
		printf("# got \"%s\", want \"%s\"\n", got, want);
}

static void odd_names_are_escaped(void)
{
	check_escape("plain name, with blanks", "plain name, with blanks");
	check_escape("", "");
	check_escape("a\nb\tc", "a\\nb\\tc");
	check_escape("\x1b[31m", "\\x1b[31m");
	check_escape("back\\slash", "back\\\\slash");
	check_escape("\xc3\xa9", "\xc3\xa9");
	check_escape("\xc2\x9b"
		     "31m",
		     "\\xc2\\x9b"
		     "31m"); /* the one-character escape sequence */
	check_escape("a\xff"
		     "b\xc3",
		     "a\\xff"
		     "b\\xc3");
	check_escape("\x7f", "\\x7f");
}

static void bad_bytes_are_replaced_for_json(void)
{
	_cleanup_free_ char *good = NULL, *bad = NULL;
	bool changed;

	good = fmt_utf8_repair("na\xc3\xafve", &changed);
	CHECK_STR(good, "na\xc3\xafve");
	CHECK(!changed);
	bad = fmt_utf8_repair("a\xff\xfe"
			      "b",
			      &changed);
	CHECK_STR(bad, "a\xef\xbf\xbd\xef\xbf\xbd"
		       "b");
	CHECK(changed);
}

/* ---- mountinfo ------------------------------------------------------------------------------ */

static void check_unescape(const char *field, const char *want)
{
	char buf[64];

	snprintf(buf, sizeof(buf), "%s", field);
	mount_unescape(buf);
	if (!CHECK_STR(buf, want))
		printf("# got \"%s\", want \"%s\"\n", buf, want);
}

static void mountinfo_fields_are_unescaped(void)
{
	check_unescape("/mnt/a\\040b", "/mnt/a b");
	check_unescape("\\011\\012\\134", "\t\n\\");
	check_unescape("\\1340", "\\0");
	check_unescape("\\377x", "\xffx");
	check_unescape("\\400", "\\400"); /* no byte */
	check_unescape("\\04", "\\04");
	check_unescape("\\", "\\");
	check_unescape("", "");
}

static void mountinfo_lines_are_parsed(void)
{
	char ours[] = "45 22 0:38 / /mnt/a\\040b rw,nosuid shared:9 master:2 - fuse.hybridfs "
		      "/src\\040dir rw,user_id=0\n";
	char bind[] = "46 45 0:38 /sub /other rw - fuse.hybridfs /src rw\n";
	struct mount m;

	if (!CHECK_EQ(mount_parse(ours, &m), 0))
		return;
	CHECK_EQ(m.id, 45);
	CHECK_EQ(m.parent, 22);
	CHECK(m.dev == makedev(0, 38));
	CHECK(!m.is_part);
	CHECK_STR(m.mountpoint, "/mnt/a b");
	CHECK_STR(m.source, "/src dir");
	CHECK(mount_is_ours(&m));
	mount_release(&m);

	if (!CHECK_EQ(mount_parse(bind, &m), 0))
		return;
	CHECK(m.is_part);
	mount_release(&m);
}

static void what_is_no_mountinfo_is_refused(void)
{
	static const char *const bad[] = { "",
					   "\n",
					   " - ",
					   "1 2 0:3 / /x rw",
					   "1 2 3 - a b c",
					   "x 2 0:3 / /x rw - fuse s rw",
					   "1 2 03 / /x rw - fuse s rw",
					   "1 2 0:3 / /x rw - fuse" };
	struct mount m;
	char line[64];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line), "%s", bad[i]);
		if (!CHECK_EQ(mount_parse(line, &m), -EINVAL))
			printf("# \"%s\"\n", bad[i]);
	}
}

/* ---- drawings ------------------------------------------------------------------------------- */

static void check_map(const struct filemap *m, const char *want)
{
	char buf[256] = "";
	FILE *f = fmemopen(buf, sizeof(buf), "w");

	filemap_draw(m, false, f);
	fclose(f);
	if (!CHECK_STR(buf, want))
		printf("# got %s, want %s\n", buf, want);
}

static void the_map_shows_each_kind(void)
{
	struct filemap m;

	filemap_init(&m, 5 * 4096 - 100); /* small files have a cell per block */
	filemap_add(&m, 0, 4096, FILEMAP_CLEAN);
	filemap_add(&m, 4096, 4096, FILEMAP_DIRTY);
	filemap_add(&m, 8192, 4096, FILEMAP_HOLE);
	filemap_add(&m, 12288, UINT64_MAX - 12288, FILEMAP_HDD); /* to whatever end */
	check_map(&m, "[#* ..]");
	filemap_init(&m, 0);
	filemap_add(&m, 0, 4096, FILEMAP_CLEAN);
	check_map(&m, "[]");
}

static void the_map_mixes_what_falls_into_one_cell(void)
{
	struct filemap m;

	filemap_init(&m, 128 * MIB); /* 2 MiB a cell */
	CHECK_EQ(m.n_cells, FILEMAP_CELLS);
	filemap_add(&m, 0, MIB, FILEMAP_CLEAN);
	filemap_add(&m, MIB, 127 * MIB, FILEMAP_HDD);
	filemap_add(&m, 126 * MIB + 4096, 4096, FILEMAP_DIRTY);
	check_map(&m, "[+..............................................................*]");
}

static void the_progress_line_fits_and_knows_its_limits(void)
{
	char buf[256];

	progress_line(buf, sizeof(buf), 79, "flush", 512 * MIB, 1024 * MIB, 2000);
	CHECK_STR(buf, "flush  [#########----------]  50%  512.0 MiB of 1.0 GiB  256.0 MiB/s  "
		       "0:02 left");
	CHECK(strlen(buf) <= 79);
	progress_line(buf, sizeof(buf), 79, "flush", 3 * MIB, 0, 100);
	CHECK_STR(buf, "flush  3.0 MiB"); /* neither total nor a rate that means something */
	progress_line(buf, sizeof(buf), 20, "promote", 1, 100 * TIB, 60000);
	CHECK(strlen(buf) <= 20);
	progress_line(buf, sizeof(buf), 79, "flush", UINT64_MAX, 1, 1);
	CHECK(strlen(buf) <= 79);
}

UNIT_MAIN({ "sizes_have_one_decimal_and_the_right_unit",
	    sizes_have_one_decimal_and_the_right_unit },
	  { "percentages_say_all_and_nothing_only_when_exact",
	    percentages_say_all_and_nothing_only_when_exact },
	  { "durations", durations }, { "sizes_are_parsed", sizes_are_parsed },
	  { "what_is_no_size_is_refused", what_is_no_size_is_refused },
	  { "ranges_are_parsed", ranges_are_parsed },
	  { "what_is_no_range_is_refused", what_is_no_range_is_refused },
	  { "utf8_is_told_from_other_bytes", utf8_is_told_from_other_bytes },
	  { "odd_names_are_escaped", odd_names_are_escaped },
	  { "bad_bytes_are_replaced_for_json", bad_bytes_are_replaced_for_json },
	  { "mountinfo_fields_are_unescaped", mountinfo_fields_are_unescaped },
	  { "mountinfo_lines_are_parsed", mountinfo_lines_are_parsed },
	  { "what_is_no_mountinfo_is_refused", what_is_no_mountinfo_is_refused },
	  { "the_map_shows_each_kind", the_map_shows_each_kind },
	  { "the_map_mixes_what_falls_into_one_cell", the_map_mixes_what_falls_into_one_cell },
	  { "the_progress_line_fits_and_knows_its_limits",
	    the_progress_line_fits_and_knows_its_limits })
