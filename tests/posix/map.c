// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * map.c - mappings: coherence with read and write, the page at the end, protection, lifetime
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE  4096
#define PAGES 8

static char *map_fd(int fd, int prot, int flags)
{
	char *map = mmap(NULL, PAGES * PAGE, prot, flags, fd, 0);

	MUST(map == MAP_FAILED ? -1 : 0);
	return map;
}

static int open_pattern(size_t size, unsigned int seed)
{
	static char data[PAGES * PAGE];

	fill_pattern(data, size, seed);
	make_content("f", data, size);
	return (int)MUST(open("f", O_RDWR));
}

static bool is_pattern(const char *p, size_t size, unsigned int seed)
{
	static char data[PAGES * PAGE];

	fill_pattern(data, size, seed);
	return memcmp(p, data, size) == 0;
}

/* Stores are read, and writes are loaded, at once. */
static void test_shared(void)
{
	int fd = open_pattern(PAGES * PAGE, 1);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	EXPECT_TRUE(is_pattern(map, PAGES * PAGE, 1));
	for (int i = 0; i < PAGES; i++) {
		char text[32];
		size_t off = (size_t)i * PAGE + (size_t)i * 100;

		snprintf(text, sizeof(text), "stored in %d", i);
		memcpy(map + off, text, strlen(text));
		ctx("page %d", i);
		EXPECT_TRUE(fd_content_is(fd, (off_t)off, text, strlen(text)));
		snprintf(text, sizeof(text), "written to %d", i);
		EXPECT_EQ(strlen(text), pwrite(fd, text, strlen(text), (off_t)off + 1000));
		EXPECT_TRUE(memcmp(map + off + 1000, text, strlen(text)) == 0);
	}
	EXPECT(0, munmap(map, PAGES * PAGE));
	EXPECT_TRUE(fd_content_is(fd, 0, "stored in 0", 11));
}

/* Another descriptor, another mapping and another process see it, too. */
static int look_in_child(void *arg)
{
	int fd = (int)MUST(open("f", O_RDWR));
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	(void)arg;
	EXPECT_TRUE(memcmp(map + 5000, "parent", 6) == 0);
	EXPECT_TRUE(fd_content_is(fd, 5000, "parent", 6));
	memcpy(map + 6000, "child", 5);
	return 0;
}

static void test_shared_twice(void)
{
	int fd = open_pattern(PAGES * PAGE, 2), other = (int)MUST(open("f", O_RDONLY));
	char *a = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	char *b = map_fd(other, PROT_READ, MAP_SHARED);

	memcpy(a + 5000, "parent", 6);
	EXPECT_TRUE(memcmp(b + 5000, "parent", 6) == 0);
	EXPECT_TRUE(fd_content_is(other, 5000, "parent", 6));
	EXPECT_EQ(0, in_child(look_in_child, NULL));
	EXPECT_TRUE(memcmp(b + 6000, "child", 5) == 0);
	EXPECT_TRUE(fd_content_is(fd, 6000, "child", 5));
}

/* Private stores stay private; untouched pages still follow the file. */
static void test_private(void)
{
	int fd = open_pattern(PAGES * PAGE, 3);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);

	memcpy(map, "mine", 4);
	EXPECT_TRUE(memcmp(map, "mine", 4) == 0);
	EXPECT_TRUE(!fd_content_is(fd, 0, "mine", 4));
	EXPECT_EQ(4, pwrite(fd, "file", 4, 0));
	EXPECT_TRUE(memcmp(map, "mine", 4) == 0);
	EXPECT(0, msync(map, PAGES * PAGE, MS_SYNC));
	EXPECT(0, munmap(map, PAGES * PAGE));
	EXPECT_TRUE(fd_content_is(fd, 0, "file", 4));
	fd = (int)MUST(open("f", O_RDONLY));
	map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	map[0] = 'x';
	EXPECT_TRUE(fd_content_is(fd, 0, "file", 4));
}

/* After msync() and after closing, a fresh look at the file finds what was stored. */
static void test_msync(void)
{
	int fd = open_pattern(PAGES * PAGE, 4);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	memcpy(map + 100, "synced", 6);
	EXPECT(0, msync(map, PAGES * PAGE, MS_SYNC));
	EXPECT(0, close(fd));
	memcpy(map + 200, "later", 5);
	EXPECT(0, msync(map, PAGES * PAGE, MS_ASYNC));
	EXPECT(0, munmap(map, PAGES * PAGE));
	fd = (int)MUST(open("f", O_RDONLY));
	EXPECT_TRUE(fd_content_is(fd, 100, "synced", 6));
	EXPECT_TRUE(fd_content_is(fd, 200, "later", 5));
	EXPECT(EINVAL, msync(map + 1, PAGE, MS_SYNC));
	EXPECT(ENOMEM, msync(map, PAGE, MS_SYNC));
}

/* Behind the end, the last page is zero; what is stored there never becomes part of the file. */
static void test_page_at_end(void)
{
	int fd = open_pattern(100, 5);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	EXPECT_EQ(0, map[100]);
	EXPECT_EQ(0, map[PAGE - 1]);
	memset(map + 100, 'x', PAGE - 100);
	EXPECT(0, msync(map, PAGE, MS_SYNC));
	EXPECT_EQ(100, size_of("f"));
	EXPECT(0, ftruncate(fd, PAGE));
	EXPECT_TRUE(fd_is_zero(fd, 100, PAGE - 100));
	EXPECT_EQ(0, map[100]);
	EXPECT_EQ(0, map[PAGE - 1]);
}

/* Truncated away and added again is zero, in the mapping as well, at many places. */
static void test_truncate_extend(void)
{
	static const off_t cuts[] = { 0,	   1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 512,
				      3 * PAGE - 1 };

	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		size_t cut = (size_t)cuts[i];
		int fd = open_pattern(4 * PAGE, 6);
		char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED), *zero;

		ctx("cut at %zu", cut);
		map[4 * PAGE - 1] = 'z';
		EXPECT(0, ftruncate(fd, cuts[i]));
		EXPECT(0, ftruncate(fd, 4 * PAGE));
		zero = MUST_PTR(calloc(4, PAGE));
		EXPECT_TRUE(is_pattern(map, cut, 6));
		EXPECT_TRUE(memcmp(map + cut, zero, 4 * PAGE - cut) == 0);
		EXPECT_TRUE(fd_is_zero(fd, cuts[i], 4 * PAGE - cut));
		free(zero);
		MUST(munmap(map, PAGES * PAGE));
		MUST(close(fd));
	}
}

/* Growing the file makes the pages of an existing mapping usable. */
static void test_grow(void)
{
	int fd = open_pattern(100, 7);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	EXPECT(0, ftruncate(fd, PAGES * PAGE));
	map[5 * PAGE] = 'g';
	EXPECT_TRUE(fd_content_is(fd, 5 * PAGE, "g", 1));
	EXPECT_EQ(4, pwrite(fd, "tail", 4, PAGES * PAGE - 4));
	EXPECT_TRUE(memcmp(map + PAGES * PAGE - 4, "tail", 4) == 0);
	EXPECT_TRUE(is_pattern(map, 100, 7));
}

static sigjmp_buf escape;
static volatile sig_atomic_t caught;

static void on_fault(int sig)
{
	caught = sig;
	siglongjmp(escape, 1);
}

/* The signal that touching p brings, or 0. */
static int touch(char *p, bool store)
{
	caught = 0;
	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	if (sigsetjmp(escape, 1) == 0) {
		char c = *(volatile char *)p;

		if (store)
			*(volatile char *)p = c;
	}
	return caught;
}

static void test_faults(void)
{
	int fd = open_pattern(PAGE + 100, 8);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED), *ro;

	EXPECT_EQ(0, touch(map + PAGE + 100, true));
	EXPECT_EQ(SIGBUS, touch(map + 2 * PAGE, false));
	EXPECT_EQ(SIGBUS, touch(map + 2 * PAGE, true));
	EXPECT(0, ftruncate(fd, 3 * PAGE));
	EXPECT_EQ(0, touch(map + 2 * PAGE, true));
	EXPECT(0, ftruncate(fd, 10));
	EXPECT_EQ(SIGBUS, touch(map + 2 * PAGE, false));
	EXPECT_EQ(SIGBUS, touch(map + PAGE, false));
	EXPECT_EQ(0, touch(map, true));
	ro = map_fd(fd, PROT_READ, MAP_SHARED);
	EXPECT_EQ(0, touch(ro, false));
	EXPECT_EQ(SIGSEGV, touch(ro, true));
	EXPECT(0, mprotect(ro, PAGE, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, touch(ro, true));
}

static int try_map(int fd, int prot, int flags)
{
	void *map = mmap(NULL, PAGE, prot, flags, fd, 0);

	return map == MAP_FAILED ? -1 : munmap(map, PAGE);
}

static void test_errors(void)
{
	int r, w, rw;
	char *map;

	rw = open_pattern(PAGE, 9);
	r = (int)MUST(open("f", O_RDONLY));
	w = (int)MUST(open("f", O_WRONLY));
	EXPECT(EACCES, try_map(r, PROT_READ | PROT_WRITE, MAP_SHARED));
	EXPECT(0, try_map(r, PROT_READ | PROT_WRITE, MAP_PRIVATE));
	EXPECT(0, try_map(r, PROT_READ, MAP_SHARED));
	EXPECT(EACCES, try_map(w, PROT_READ, MAP_SHARED));
	EXPECT(EACCES, try_map(w, PROT_WRITE, MAP_SHARED));
	EXPECT(EACCES, try_map(w, PROT_READ, MAP_PRIVATE));
	EXPECT(0, try_map(rw, PROT_READ | PROT_WRITE, MAP_SHARED));
	EXPECT(EINVAL, try_map(rw, PROT_READ, 0));
	EXPECT(ENODEV, try_map((int)MUST(open(".", O_RDONLY)), PROT_READ, MAP_PRIVATE));
	MUST(mkfifo("p", 0644));
	EXPECT(ENODEV, try_map((int)MUST(open("p", O_RDWR)), PROT_READ, MAP_PRIVATE));
	EXPECT(EBADF, try_map((int)MUST(open("f", O_PATH)), PROT_READ, MAP_PRIVATE));
	EXPECT(EBADF, try_map(1000, PROT_READ, MAP_PRIVATE));
	EXPECT(EINVAL, (long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rw, 1));
	EXPECT(EINVAL, (long)mmap(NULL, 0, PROT_READ, MAP_SHARED, rw, 0));
	map = map_fd(r, PROT_READ, MAP_SHARED);
	EXPECT(EACCES, mprotect(map, PAGE, PROT_READ | PROT_WRITE));
}

/* A mapping outlives the descriptor, the name, and the name's directory. */
static void test_lifetime(void)
{
	struct stat st;
	char *map;
	int fd;

	make_dir("d", 0755);
	fd = (int)MUST(open("d/f", O_RDWR | O_CREAT, 0600));
	MUST(ftruncate(fd, PAGES * PAGE));
	map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	map[0] = 'a';
	MUST(close(fd));
	fd = (int)MUST(open("d/f", O_RDWR));
	EXPECT(0, unlink("d/f"));
	EXPECT(0, rmdir("d"));
	map[PAGE] = 'b';
	EXPECT_TRUE(fd_content_is(fd, PAGE, "b", 1));
	EXPECT_EQ(1, pwrite(fd, "c", 1, 2 * PAGE));
	EXPECT_EQ('c', map[2 * PAGE]);
	EXPECT(0, fstat(fd, &st));
	EXPECT_EQ(0, st.st_nlink);
	MUST(close(fd));
	EXPECT_EQ('a', map[0]);
	EXPECT_EQ('b', map[PAGE]);
	map[3 * PAGE] = 'd';
	EXPECT(0, msync(map, PAGES * PAGE, MS_SYNC));
	EXPECT_EQ('d', map[3 * PAGE]);
}

/* A second page-aligned window into the file, and moving a mapping. */
static void test_offset(void)
{
	int fd = open_pattern(PAGES * PAGE, 10);
	char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 3 * PAGE);
	char *whole = map_fd(fd, PROT_READ, MAP_SHARED);

	MUST(map == MAP_FAILED ? -1 : 0);
	EXPECT_TRUE(memcmp(map, whole + 3 * PAGE, 2 * PAGE) == 0);
	map[PAGE + 5] = '!';
	EXPECT_EQ('!', whole[4 * PAGE + 5]);
	map = mremap(map, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	MUST(map == MAP_FAILED ? -1 : 0);
	EXPECT_TRUE(memcmp(map, whole + 3 * PAGE, 4 * PAGE) == 0);
	EXPECT(0, madvise(map, 4 * PAGE, MADV_DONTNEED));
	EXPECT_EQ('!', map[PAGE + 5]);
}

/* Holes load as zeros; storing into one fills it. */
static void test_hole(void)
{
	int fd = (int)MUST(open("f", O_RDWR | O_CREAT, 0644));
	char *map;

	MUST(ftruncate(fd, PAGES * PAGE));
	map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	for (int i = 0; i < PAGES; i++)
		EXPECT_EQ(0, map[i * PAGE + 7]);
	map[2 * PAGE] = 'h';
	EXPECT(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, PAGE));
	EXPECT_EQ(0, map[2 * PAGE]);
	map[2 * PAGE + 1] = 'i';
	EXPECT_TRUE(fd_content_is(fd, 2 * PAGE, "\0i\0", 3));
	EXPECT(0, fallocate(fd, FALLOC_FL_ZERO_RANGE, 2 * PAGE + 1, 10));
	EXPECT_EQ(0, map[2 * PAGE + 1]);
}

/* A file can be read and written from its own mapping. */
static void test_self_io(void)
{
	int fd = open_pattern(PAGES * PAGE, 11);
	char *map = map_fd(fd, PROT_READ | PROT_WRITE, MAP_SHARED);

	EXPECT_EQ(PAGE, pwrite(fd, map, PAGE, 4 * PAGE));
	EXPECT_TRUE(memcmp(map, map + 4 * PAGE, PAGE) == 0);
	EXPECT_EQ(PAGE, pread(fd, map + 6 * PAGE, PAGE, 0));
	EXPECT_TRUE(memcmp(map, map + 6 * PAGE, PAGE) == 0);
	EXPECT_TRUE(is_pattern(map, PAGE, 11));
}

static const struct test tests[] = {
	{ "shared", test_shared, 0 },
	{ "shared_twice", test_shared_twice, 0 },
	{ "private", test_private, 0 },
	{ "msync", test_msync, 0 },
	{ "page_at_end", test_page_at_end, 0 },
	{ "truncate_extend", test_truncate_extend, 0 },
	{ "grow", test_grow, 0 },
	{ "faults", test_faults, 0 },
	{ "errors", test_errors, 0 },
	{ "lifetime", test_lifetime, 0 },
	{ "offset", test_offset, 0 },
	{ "hole", test_hole, 0 },
	{ "self_io", test_self_io, 0 },
};

AREA(map);
