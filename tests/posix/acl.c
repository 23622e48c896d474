// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * acl.c - POSIX access control lists: mask, chmod, inheritance, umask, permission
 *
 * Lists are written as text, "u::6,u:65533:4,g::4,m::6,o::0", and translated to and from the form
 * in which the kernel takes them as an extended attribute (linux/posix_acl_xattr.h): a 32-bit
 * version, then entries of tag, permissions (16 bits each) and id (32 bits), little-endian.
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"
#include "stamp.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACCESS	"system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

#define ACL_VERSION  2
#define ENTRIES_MAX  16
#define ID_UNDEFINED 0xffffffffu

#define TAG_USER_OBJ  0x01
#define TAG_USER      0x02
#define TAG_GROUP_OBJ 0x04
#define TAG_GROUP     0x08
#define TAG_MASK      0x10
#define TAG_OTHER     0x20

struct acl_entry {
	uint16_t tag;
	uint16_t perm;
	uint32_t id;
};

struct acl {
	uint32_t version;
	struct acl_entry entries[ENTRIES_MAX];
};

static uint16_t tag_of(char kind, bool named)
{
	switch (kind) {
	case 'u':
		return named ? TAG_USER : TAG_USER_OBJ;
	case 'g':
		return named ? TAG_GROUP : TAG_GROUP_OBJ;
	case 'm':
		return TAG_MASK;
	default:
		return TAG_OTHER;
	}
}

/* Translates text; returns the size in bytes. The text is ours, so it is not checked. */
static size_t acl_parse(const char *text, struct acl *acl)
{
	size_t n = 0;

	acl->version = htole32(ACL_VERSION);
	while (*text) {
		struct acl_entry *e = &acl->entries[n++];
		char kind = *text, *end;
		bool named = text[2] != ':';

		e->id = htole32(named ? (uint32_t)strtoul(text + 2, &end, 10) : ID_UNDEFINED);
		text = named ? end : text + 2;
		e->tag = htole16(tag_of(kind, named));
		e->perm = htole16((uint16_t)(text[1] - '0'));
		text += text[2] == ',' ? 3 : 2;
	}
	return sizeof(acl->version) + n * sizeof(acl->entries[0]);
}

static int acl_set(const char *path, const char *name, const char *text)
{
	struct acl acl;
	size_t size = acl_parse(text, &acl);

	return setxattr(path, name, &acl, size, 0);
}

static char kind_of(uint16_t tag)
{
	if (tag == TAG_USER || tag == TAG_USER_OBJ)
		return 'u';
	if (tag == TAG_GROUP || tag == TAG_GROUP_OBJ)
		return 'g';
	return tag == TAG_MASK ? 'm' : 'o';
}

static size_t print_entry(const struct acl_entry *e, char *out, size_t size)
{
	uint16_t tag = le16toh(e->tag);
	char id[16] = "";

	if (tag == TAG_USER || tag == TAG_GROUP)
		snprintf(id, sizeof(id), "%u", le32toh(e->id));
	return (size_t)snprintf(out, size, "%c:%s:%o,", kind_of(tag), id, le16toh(e->perm));
}

/* The list as text, or the name of the errno. */
static const char *acl_text(const char *path, const char *name)
{
	static char text[ENTRIES_MAX * 24];
	struct acl acl;
	ssize_t size = getxattr(path, name, &acl, sizeof(acl));
	size_t n, len = 0;

	if (size < 0)
		return strerrorname_np(errno);
	n = ((size_t)size - sizeof(acl.version)) / sizeof(acl.entries[0]);
	for (size_t i = 0; i < n; i++)
		len += print_entry(&acl.entries[i], text + len, sizeof(text) - len);
	if (len > 0)
		text[len - 1] = '\0';
	return text;
}

/* A list that says no more than a mode is turned into one. */
static void test_minimal(void)
{
	make_file("f", 0600);
	EXPECT_STR("ENODATA", acl_text("f", ACCESS));
	EXPECT(0, acl_set("f", ACCESS, "u::7,g::5,o::4"));
	EXPECT_OCT(0754, mode_of("f"));
	EXPECT_STR("ENODATA", acl_text("f", ACCESS));
	EXPECT(0, acl_set("f", ACCESS, "u::6,u:65533:6,g::4,m::6,o::0"));
	EXPECT(0, acl_set("f", ACCESS, "u::6,g::0,o::0"));
	EXPECT_OCT(0600, mode_of("f"));
	EXPECT_STR("ENODATA", acl_text("f", ACCESS));
}

/* The mode's group bits are the mask, both ways. */
static void test_mask_and_mode(void)
{
	static const mode_t modes[] = { 0777, 0707, 0070, 0640, 0751, 0 };

	make_file("f", 0600);
	EXPECT(0, acl_set("f", ACCESS, "u::6,u:65533:7,g::4,g:65531:5,m::6,o::1"));
	EXPECT_OCT(0661, mode_of("f"));
	EXPECT_STR("u::6,u:65533:7,g::4,g:65531:5,m::6,o::1", acl_text("f", ACCESS));
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		char want[128];

		ctx("%o", modes[i]);
		EXPECT(0, chmod("f", modes[i]));
		EXPECT_OCT(modes[i], mode_of("f"));
		snprintf(want, sizeof(want), "u::%o,u:65533:7,g::4,g:65531:5,m::%o,o::%o",
			 modes[i] >> 6, modes[i] >> 3 & 7, modes[i] & 7);
		EXPECT_STR(want, acl_text("f", ACCESS));
	}
}

static void test_remove(void)
{
	make_dir("d", 0700);
	EXPECT(0, acl_set("d", ACCESS, "u::7,u:65533:7,g::5,m::7,o::0"));
	EXPECT(0, acl_set("d", DEFAULT, "u::7,g::0,o::0"));
	EXPECT(0, removexattr("d", ACCESS));
	EXPECT_STR("ENODATA", acl_text("d", ACCESS));
	EXPECT_STR("u::7,g::0,o::0", acl_text("d", DEFAULT));
	RECORD_OCT(mode_of("d"));
	EXPECT(0, removexattr("d", DEFAULT));
	EXPECT_STR("ENODATA", acl_text("d", DEFAULT));
	RECORD(removexattr("d", DEFAULT));
	RECORD(removexattr("d", ACCESS));
}

static void test_listed(void)
{
	char list[1024];
	ssize_t n;

	make_dir("d", 0700);
	MUST(acl_set("d", ACCESS, "u::7,u:65533:7,g::5,m::7,o::0"));
	MUST(acl_set("d", DEFAULT, "u::7,g::0,o::0"));
	n = MUST(listxattr("d", list, sizeof(list)));
	EXPECT_TRUE(memmem(list, (size_t)n, ACCESS, sizeof(ACCESS)) != NULL);
	EXPECT_TRUE(memmem(list, (size_t)n, DEFAULT, sizeof(DEFAULT)) != NULL);
}

/* Who is named, and who is in which group, decides; the mask limits all but owner and others. */
struct acl_case {
	const char *acl;
	unsigned int rights[4]; /* of people[]: owner, group, supplementary, other */
};

static const struct acl_case acl_cases[] = {
	{ "u::6,g::0,o::0", { 6, 0, 0, 0 } },
	{ "u::0,g::6,o::0", { 0, 6, 6, 0 } },
	{ "u::0,g::0,o::6", { 0, 0, 0, 6 } },
	{ "u::0,u:65533:6,g::0,m::6,o::0", { 0, 6, 6, 6 } },
	{ "u::0,u:65533:6,g::0,m::4,o::0", { 0, 4, 4, 4 } },
	{ "u::0,u:65533:6,g::0,m::0,o::0", { 0, 0, 0, 0 } },
	{ "u::0,u:65533:0,g::6,m::6,o::6", { 0, 0, 0, 0 } },
	{ "u::4,u:65534:6,g::0,m::6,o::0", { 4, 0, 0, 0 } },
	{ "u::0,u:1:6,g::4,m::6,o::2", { 0, 4, 4, 2 } },
	{ "u::0,g::0,g:65534:6,m::6,o::0", { 0, 6, 6, 0 } },
	{ "u::0,g::0,g:65534:6,m::2,o::0", { 0, 2, 2, 0 } },
	{ "u::0,g::0,g:65533:6,m::6,o::0", { 0, 0, 6, 6 } },
	{ "u::0,g::4,g:65533:2,m::6,o::0", { 0, 4, 6, 2 } },
	{ "u::0,g::6,g:65533:0,m::6,o::6", { 0, 6, 6, 0 } },
	{ "u::6,g::6,m::4,o::2", { 6, 4, 4, 2 } },
	{ "u::6,g::6,m::0,o::6", { 6, 0, 0, 6 } },
	{ "u::2,u:65533:4,g::6,g:65533:6,m::6,o::6", { 2, 4, 4, 4 } },
};

static void test_access(void)
{
	make_file("f", 0600);
	give("f");
	for (size_t i = 0; i < ARRAY_SIZE(acl_cases); i++) {
		MUST(acl_set("f", ACCESS, acl_cases[i].acl));
		for (size_t j = 0; j < ARRAY_SIZE(people); j++) {
			const struct actor *a = people[j];
			unsigned int r = acl_cases[i].rights[j];

			ctx("%s, %s", acl_cases[i].acl, a->name);
			EXPECT_AS(a, r & 4 ? 0 : EACCES, closing(open("f", O_RDONLY)));
			EXPECT_AS(a, r & 2 ? 0 : EACCES, closing(open("f", O_WRONLY)));
			EXPECT_AS(a, r & 4 ? 0 : EACCES, access("f", R_OK));
			EXPECT_AS(a, r & 2 ? 0 : EACCES, access("f", W_OK));
			EXPECT_AS(a, r & 2 ? 0 : EACCES, truncate("f", 0));
			EXPECT_AS(a, EACCES, access("f", X_OK));
		}
	}
}

/* Two groups that each grant one right do not add up to both. */
static void test_no_sum(void)
{
	make_file("f", 0600);
	give("f");
	MUST(acl_set("f", ACCESS, "u::0,g::4,g:65533:2,m::6,o::0"));
	EXPECT_AS(&actor_supp, 0, closing(open("f", O_RDONLY)));
	EXPECT_AS(&actor_supp, 0, closing(open("f", O_WRONLY)));
	EXPECT_AS(&actor_supp, EACCES, closing(open("f", O_RDWR)));
}

/* Lists on directories rule search, and creating and removing in them. */
static void test_directory(void)
{
	make_dir("d", 0700);
	make_file("d/f", 0666);
	MUST(acl_set("d", ACCESS, "u::7,u:65533:1,g::0,m::7,o::0"));
	EXPECT_AS(&actor_other, 0, closing(open("d/f", O_RDWR)));
	EXPECT_AS(&actor_other, EACCES, closing(open("d", O_RDONLY)));
	EXPECT_AS(&actor_other, EACCES, mkdir("d/x", 0755));
	EXPECT_AS(&actor_other, EACCES, unlink("d/f"));
	EXPECT_AS(&actor_owner, EACCES, closing(open("d/f", O_RDWR)));
	MUST(acl_set("d", ACCESS, "u::7,u:65533:3,g::0,m::7,o::0"));
	EXPECT_AS(&actor_other, 0, mkdir("d/x", 0755));
	EXPECT_AS(&actor_other, 0, rmdir("d/x"));
	EXPECT_AS(&actor_other, EACCES, closing(open("d", O_RDONLY)));
	MUST(chmod("d", 0710));
	EXPECT_AS(&actor_other, EACCES, mkdir("d/x", 0755));
	EXPECT_AS(&actor_other, 0, closing(open("d/f", O_RDWR)));
	MUST(chmod("d", 0777));
	EXPECT_AS(&actor_other, 0, unlink("d/f"));
}

/* With a default list the umask does not count; the mode that is asked for limits the list. */
struct inherit_case {
	const char *acl;  /* the directory's default list */
	mode_t mode;	  /* asked for */
	const char *want; /* access list of the new file, or ENODATA */
	mode_t want_mode;
};

static const struct inherit_case inherit_cases[] = {
	{ "u::7,g::7,o::7", 0666, "ENODATA", 0666 },
	{ "u::7,g::5,o::0", 0666, "ENODATA", 0640 },
	{ "u::7,g::5,o::0", 0777, "ENODATA", 0750 },
	{ "u::0,g::0,o::0", 0666, "ENODATA", 0 },
	{ "u::7,u:65533:7,g::5,m::7,o::5", 0666, "u::6,u:65533:7,g::5,m::6,o::4", 0664 },
	{ "u::7,u:65533:7,g::5,m::7,o::5", 0777, "u::7,u:65533:7,g::5,m::7,o::5", 0775 },
	{ "u::7,u:65533:7,g::5,m::7,o::5", 0600, "u::6,u:65533:7,g::5,m::0,o::0", 0600 },
	{ "u::7,u:65533:7,g::5,m::4,o::0", 0666, "u::6,u:65533:7,g::5,m::4,o::0", 0640 },
	{ "u::6,g::4,g:65533:6,m::6,o::0", 0644, "u::6,g::4,g:65533:6,m::4,o::0", 0640 },
	{ "u::6,g::4,g:65533:6,m::6,o::0", 0, "u::0,g::4,g:65533:6,m::0,o::0", 0 },
};

static void inherit_case_for(enum node_type t, const struct inherit_case *c, mode_t mask)
{
	fresh();
	make_dir("d", 0755);
	MUST(acl_set("d", DEFAULT, c->acl));
	ctx("%s, default %s, mode %o, umask %o", node_name(t), c->acl, c->mode, mask);
	umask(mask);
	EXPECT(0, node_create(t, "d/n", c->mode));
	umask(022);
	EXPECT_OCT(t == NODE_LNK ? 0777 : c->want_mode, mode_of("d/n"));
	if (t == NODE_LNK)
		return;
	EXPECT_STR(c->want, acl_text("d/n", ACCESS));
	EXPECT_STR(t == NODE_DIR ? c->acl : "ENODATA", acl_text("d/n", DEFAULT));
}

static void test_inherit(void)
{
	static const mode_t masks[] = { 0, 022, 077, 0777 };

	for_each_type(t)
		for (size_t i = 0; i < ARRAY_SIZE(inherit_cases); i++)
			for (size_t j = 0; j < ARRAY_SIZE(masks); j++)
				inherit_case_for(t, &inherit_cases[i], masks[j]);
}

/* Down the tree, and together with set-group-id; an access list is not inherited. */
static void test_inherit_levels(void)
{
	make_dir("d", 0755);
	MUST(acl_set("d", DEFAULT, "u::7,u:65533:6,g::5,m::7,o::0"));
	MUST(acl_set("d", ACCESS, "u::7,u:65533:7,g::5,m::7,o::0"));
	MUST(chmod("d", 02775));
	EXPECT(0, mkdir("d/a", 0777));
	EXPECT(0, mkdir("d/a/b", 0777));
	EXPECT_STR("u::7,u:65533:6,g::5,m::7,o::0", acl_text("d/a/b", DEFAULT));
	EXPECT_STR("u::7,u:65533:6,g::5,m::7,o::0", acl_text("d/a/b", ACCESS));
	EXPECT_OCT(02770, mode_of("d/a/b"));
	EXPECT(0, removexattr("d/a", DEFAULT));
	EXPECT(0, mkdir("d/a/c", 0777));
	EXPECT_STR("ENODATA", acl_text("d/a/c", ACCESS));
	EXPECT_OCT(02755, mode_of("d/a/c"));
}

/* Without a default list the umask counts as ever, whatever the access list is. */
static void test_umask(void)
{
	make_dir("d", 0755);
	MUST(acl_set("d", ACCESS, "u::7,u:65533:7,g::7,m::7,o::7"));
	umask(027);
	EXPECT(0, node_create(NODE_REG, "d/f", 0666));
	EXPECT(0, node_create(NODE_DIR, "d/d", 0777));
	EXPECT_OCT(0640, mode_of("d/f"));
	EXPECT_OCT(0750, mode_of("d/d"));
	EXPECT_STR("ENODATA", acl_text("d/f", ACCESS));
}

static void test_tmpfile(void)
{
	struct stat st;
	int fd;

	make_dir("d", 0755);
	MUST(acl_set("d", DEFAULT, "u::7,g::5,o::0"));
	umask(077);
	fd = open("d", O_TMPFILE | O_RDWR, 0666);
	if (fd < 0 && errno == EOPNOTSUPP)
		skip_test("no O_TMPFILE here");
	EXPECT(0, fstat(fd, &st));
	EXPECT_OCT(0640, st.st_mode & 07777);
}

/* link() and rename() take the object's own list along. */
static void test_moved(void)
{
	make_dir("d", 0755);
	MUST(acl_set("d", DEFAULT, "u::7,u:65533:7,g::7,m::7,o::7"));
	make_file("f", 0600);
	make_file("g", 0600);
	MUST(acl_set("g", ACCESS, "u::6,u:65533:4,g::0,m::4,o::0"));
	EXPECT(0, rename("f", "d/f"));
	EXPECT(0, rename("g", "d/g"));
	EXPECT_OCT(0600, mode_of("d/f"));
	EXPECT_STR("ENODATA", acl_text("d/f", ACCESS));
	EXPECT_STR("u::6,u:65533:4,g::0,m::4,o::0", acl_text("d/g", ACCESS));
	EXPECT(0, link("d/g", "g"));
	EXPECT(0, acl_set("g", ACCESS, "u::6,u:65533:6,g::0,m::6,o::0"));
	EXPECT_STR("u::6,u:65533:6,g::0,m::6,o::0", acl_text("d/g", ACCESS));
}

static void test_invalid(void)
{
	static const char *const bad[] = {
		"u::6,g::4",		/* no others */
		"g::4,o::0",		/* no owner */
		"u::6,o::0",		/* no group */
		"u::6,u:1:4,g::4,o::0", /* a name, but no mask */
		"u::6,g::4,g:1:4,o::0",
		"u::6,u::6,g::4,o::0", /* twice */
		"u::6,g::4,o::0,o::0",
		"u::6,g::4,m::4,m::4,o::0",
		"g::4,u::6,o::0", /* out of order */
		"u::6,g::4,u:1:4,m::4,o::0",
	};
	struct acl acl;
	size_t size;

	make_dir("d", 0751);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ctx("%s", bad[i]);
		EXPECT(EINVAL, acl_set("d", ACCESS, bad[i]));
		EXPECT(EINVAL, acl_set("d", DEFAULT, bad[i]));
	}
	size = acl_parse("u::6,g::4,o::0", &acl);
	ctx("size");
	EXPECT(EINVAL, setxattr("d", ACCESS, &acl, size - 1, 0));
	EXPECT(EINVAL, setxattr("d", ACCESS, &acl, 3, 0));
	acl.version = htole32(1);
	EXPECT(EOPNOTSUPP, setxattr("d", ACCESS, &acl, size, 0));
	EXPECT_OCT(0751, mode_of("d"));
	EXPECT_STR("ENODATA", acl_text("d", ACCESS));
	EXPECT_STR("ENODATA", acl_text("d", DEFAULT));
}

static void test_types(void)
{
	for_each_type(t) {
		const char *path = node_name(t);
		struct acl acl;
		size_t size = acl_parse("u::6,u:65533:6,g::4,m::6,o::0", &acl);
		int want_default = t == NODE_DIR ? 0 : t == NODE_LNK ? EOPNOTSUPP : EACCES;

		node_make(t, path, 0644);
		ctx("%s", path);
		EXPECT(t == NODE_LNK ? EOPNOTSUPP : 0, lsetxattr(path, ACCESS, &acl, size, 0));
		EXPECT(want_default, lsetxattr(path, DEFAULT, &acl, size, 0));
	}
}

/* The owner and root change lists; everybody may read them. */
static void test_permission(void)
{
	make_dir("d", 0777);
	make_dir("d/n", 0777);
	give("d/n");
	for (size_t i = 0; i < ARRAY_SIZE(everybody); i++) {
		int want = i < 2 ? 0 : EPERM;

		ctx("as %s", everybody[i]->name);
		MUST(acl_set("d/n", ACCESS, "u::7,u:65530:7,g::7,m::7,o::7"));
		EXPECT_AS(everybody[i], 0, getxattr("d/n", ACCESS, NULL, 0));
		EXPECT_AS(everybody[i], want, acl_set("d/n", ACCESS, "u::7,g::7,o::7"));
		EXPECT_AS(everybody[i], want, acl_set("d/n", DEFAULT, "u::7,g::7,o::7"));
		MUST(acl_set("d/n", ACCESS, "u::7,u:65530:7,g::7,m::7,o::7"));
		EXPECT_AS(everybody[i], want, removexattr("d/n", ACCESS));
	}
}

/* A list set by an owner who is not in the group drops set-group-id, as chmod does. */
static void test_sgid(void)
{
	make_file("f", 0);
	give_to("f", actor_owner.uid, GID_ALIEN);
	MUST(chmod("f", 02755));
	EXPECT_AS(&actor_owner, 0, acl_set("f", ACCESS, "u::7,u:65530:7,g::5,m::7,o::5"));
	EXPECT_OCT(0775, mode_of("f"));
	MUST(chmod("f", 02755));
	EXPECT(0, acl_set("f", ACCESS, "u::7,u:65530:7,g::5,m::7,o::0"));
	EXPECT_OCT(02770, mode_of("f"));
	give("f");
	MUST(chmod("f", 02755));
	EXPECT_AS(&actor_owner, 0, acl_set("f", ACCESS, "u::7,u:65530:7,g::5,m::7,o::5"));
	EXPECT_OCT(02775, mode_of("f"));
}

static void test_stamps(void)
{
	struct stamps s, dir;

	make_dir("d", 0755);
	make_file("d/n", 0644);
	s = stamps_age("d/n");
	dir = stamps_age("d");
	EXPECT(0, acl_set("d/n", ACCESS, "u::7,u:65530:7,g::5,m::7,o::5"));
	EXPECT_STAMPS("--c", &s, "d/n");
	s = stamps_age("d/n");
	EXPECT(0, removexattr("d/n", ACCESS));
	EXPECT_STAMPS("--c", &s, "d/n");
	EXPECT_STAMPS("---", &dir, "d");
	EXPECT(0, acl_set("d", DEFAULT, "u::7,u:65530:7,g::5,m::7,o::5"));
	EXPECT_STAMPS("--c", &dir, "d");
	dir = stamps_age("d");
	EXPECT(EINVAL, acl_set("d", ACCESS, "u::7"));
	EXPECT_STAMPS("---", &dir, "d");
}

static const struct test tests[] = {
	{ "minimal", test_minimal, NEED_ACL },
	{ "mask_and_mode", test_mask_and_mode, NEED_ACL },
	{ "remove", test_remove, NEED_ACL },
	{ "listed", test_listed, NEED_ACL },
	{ "access", test_access, NEED_ACL | NEED_ROOT },
	{ "no_sum", test_no_sum, NEED_ACL | NEED_ROOT },
	{ "directory", test_directory, NEED_ACL | NEED_ROOT },
	{ "inherit", test_inherit, NEED_ACL },
	{ "inherit_levels", test_inherit_levels, NEED_ACL },
	{ "umask", test_umask, NEED_ACL },
	{ "tmpfile", test_tmpfile, NEED_ACL },
	{ "moved", test_moved, NEED_ACL },
	{ "invalid", test_invalid, NEED_ACL },
	{ "types", test_types, NEED_ACL },
	{ "permission", test_permission, NEED_ACL | NEED_ROOT },
	{ "sgid", test_sgid, NEED_ACL | NEED_ROOT },
	{ "stamps", test_stamps, NEED_ACL },
};

AREA(acl);
