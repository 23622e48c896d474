// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A program that has a pinned file open, which the kernel serves, and lives on when the daemon is
 * killed: it goes on writing the object.
 *
 *	outlive FILE LOG STOP SEED
 *
 * Writes blocks of FILE at random, by descriptor and by a mapping, until the file STOP exists. LOG
 * gets a line `BLOCK VERSION` before each write and `BLOCK VERSION.` when it has returned: what is
 * shown afterwards is the last one that has returned, or one that was begun later. A write that
 * fails (ENOTCONN: the daemon was asked after all) ends the program with status 3, what came before
 * counts.
 *
 *	outlive --verify FILE LOG
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../crash/plan.h"

#define BLOCK  4096u
#define BLOCKS 256u

struct stamp {
	uint32_t block, version;
};

/* The whole block says which one it is, so that a torn one is seen. */
static void fill(struct stamp *p, uint32_t block, uint32_t version)
{
	for (unsigned i = 0; i < BLOCK / sizeof(*p); i++)
		p[i] = (struct stamp){ block, version };
}

static int work(char **argv)
{
	static struct stamp data[BLOCK / sizeof(struct stamp)];
	int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	FILE *log = fopen(argv[2], "a");
	char *map = MAP_FAILED;
	uint32_t version = 0;

	uint64_t seed = strtoull(argv[4], NULL, 10);

	if (fd >= 0)
		map = mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   0);
	if (!log || map == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	setlinebuf(log);
	while (access(argv[3], F_OK) < 0) {
		struct timespec pause = { .tv_nsec = 300000 };
		uint64_t choice = hash_of(seed, ++version, 0, 0);
		uint32_t block = choice % BLOCKS;

		fill(data, block, version);
		fprintf(log, "%u %u\n", block, version);
		if (choice / BLOCKS % 3 == 0)
			memcpy(map + (size_t)block * BLOCK, data, BLOCK);
		else if (pwrite(fd, data, BLOCK, (off_t)block * BLOCK) != BLOCK)
			return 3;
		fprintf(log, "%u %u.\n", block, version);
		nanosleep(&pause, NULL);
	}
	return close(fd) < 0 || fclose(log) ? 1 : 0;
}

static int verify(char **argv)
{
	static uint32_t done[BLOCKS], begun[BLOCKS];
	static struct stamp data[BLOCK / sizeof(struct stamp)], want[BLOCK / sizeof(struct stamp)];
	int fd = open(argv[2], O_RDONLY | O_CLOEXEC), bad = 0;
	FILE *log = fopen(argv[3], "r");
	char line[64];

	if (fd < 0 || !log) {
		perror(argv[2]);
		return 1;
	}
	while (fgets(line, sizeof(line), log)) {
		unsigned block, version;

		if (sscanf(line, "%u %u", &block, &version) != 2 || block >= BLOCKS)
			continue;
		*(strchr(line, '.') ? &done[block] : &begun[block]) = version;
	}
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (pread(fd, data, BLOCK, (off_t)b * BLOCK) != BLOCK)
			memset(data, 0xff, BLOCK);
		uint32_t version = data[0].version;

		if (version == 0 && done[b] == 0 && data[0].block == 0)
			continue; /* as it was made */
		fill(want, b, version);
		if (version < done[b] || version > begun[b] || memcmp(data, want, BLOCK) != 0) {
			printf("%s: block %u has version %u of %u; %u was written, %u was begun\n",
			       argv[2], b, version, data[0].block, done[b], begun[b]);
			bad++;
		}
	}
	fclose(log);
	return bad > 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "--verify") == 0)
		return verify(argv);
	if (argc == 5)
		return work(argv);
	fprintf(stderr, "usage: outlive FILE LOG STOP SEED\n");
	return 2;
}
