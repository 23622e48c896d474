// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Passthrough as the engine sees it: programs are real open files and mappings of the object, which
 * nobody tells the engine about. Each test names the promise it defends (tier/README.md).
 */
#include <glob.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/engine_fixture.h"
#include "tier/pass.h"

#define SIZE (1u << 20)

/* ---- a program ----------------------------------------------------------------------------- */
/* Opens the object as the kernel does for it. */
static int program_open(struct tfile *f, int flags)
{
	char proc[64];
	int at = tfile_pass_fd(f);

	CHECK(at >= 0);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", at);
	int fd = open(proc, flags | O_CLOEXEC);

	CHECK(fd >= 0);
	close(at);
	return fd;
}

static void program_write(int fd, int c, uint64_t off, size_t len)
{
	char *buf = malloc(len);

	memset(buf, c, len);
	CHECK_EQ(syscall(SYS_pwrite64, fd, buf, len, off), len);
	free(buf);
}

static int program_byte(int fd, uint64_t off)
{
	unsigned char c = 0;

	return syscall(SYS_pread64, fd, &c, 1, off) == 1 ? c : -1;
}

static uint64_t size_of(struct tfile *f)
{
	uint64_t token = tfile_stat_begin(f);
	struct stat st;

	CHECK_EQ(stat(src_file, &st), 0);
	(void)tfile_stat_end(f, token, &st);
	return (uint64_t)st.st_size;
}

static struct tfile *resident_for(unsigned dirty_expire_s)
{
	begin(SIZE);
	opt.dirty_expire_s = dirty_expire_s;
	if (!open_volume())
		return NULL;
	struct tfile *f = use();

	CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
	promote(f, SIZE);
	return f;
}

static struct tfile *resident(void)
{
	return resident_for(1);
}

/* All of it is on the SSD, and a program has it for writing: *ret_fd is its descriptor. */
static struct tfile *given_for(unsigned dirty_expire_s, int *ret_fd)
{
	struct tfile *f = resident_for(dirty_expire_s);

	if (f) {
		CHECK_EQ(tfile_pass_begin(f, true, false), 0);
		*ret_fd = program_open(f, O_RDWR);
	}
	return f;
}

static struct tfile *given(int *ret_fd)
{
	return given_for(1, ret_fd);
}

/* The program closes it, and we are told. */
static void give_back(struct tfile *f, int fd)
{
	close(fd);
	tfile_pass_end(f);
}

static bool passing(struct tfile *f)
{
	pthread_mutex_lock(&f->lock);
	bool on = f->pass != PASS_NONE;

	pthread_mutex_unlock(&f->lock);
	return on;
}

static void leave_it(struct tfile *f)
{
	unuse(f);
	close_volume();
	end();
}

/* ---- who gets it ---------------------------------------------------------------------------- */
/* P1: only a file that is all on the SSD is given away. */
static void partly_resident_is_not_given(void)
{
	begin(SIZE);
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, SIZE / 2);
	CHECK(tfile_why_no_pass(f, false) != NULL);
	CHECK_EQ(tfile_pass_begin(f, false, false), -EAGAIN);
	CHECK(!passing(f));
	promote(f, SIZE);
	CHECK(tfile_why_no_pass(f, false) == NULL);
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	tfile_pass_end(f);
	leave_it(f);
}

/* Only in writeback mode may data wait on the SSD alone. */
static void other_modes_do_not_give(void)
{
	begin(SIZE);
	opt.mode = MODE_WRITETHROUGH;
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, SIZE);
	CHECK(tfile_why_no_pass(f, false) != NULL);
	leave_it(f);
}

/* I4, P1: nothing of an object that a program reads is released, by whatever way. */
static void object_in_use_is_not_released(void)
{
	struct tfile *f = resident();

	if (!f)
		return;
	CHECK_EQ(tfile_unpin(f, true, 0, 0), 0);
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	int fd = program_open(f, O_RDONLY);
	uint64_t bytes = 1;

	CHECK_EQ(demote(f), -EBUSY);
	CHECK_EQ(evict_range(f, 0, UINT64_MAX, &bytes), 0);
	CHECK_EQ(bytes, 0);
	CHECK_EQ(program_byte(fd, 0), 'A');
	/* The descriptor is closed as far as we are told; a mapping lives on. */
	unsigned char *m = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(m != MAP_FAILED);
	give_back(f, fd);
	CHECK(passing(f));
	CHECK_EQ(demote(f), -EBUSY);
	CHECK_EQ(m[SIZE - 1], 'A');
	munmap(m, SIZE);
	step(1);
	CHECK(!passing(f));
	CHECK_EQ(demote(f), 0);
	leave_it(f);
}

/* ---- what programs write -------------------------------------------------------------------- */
/* I2: before a writer has the object, every group's intent is durable. */
static void writer_has_durable_intents(void)
{
	struct tfile *f = resident();
	struct cat_group g;

	if (!f)
		return;
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(catalog_next_group(v->cat, f->id, 0, &g), 0);
	CHECK(g.flags & CAT_G_INTENT);
	tfile_pass_end(f);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(catalog_next_group(v->cat, f->id, 0, &g), 0);
	CHECK(!(g.flags & CAT_G_INTENT));
	leave_it(f);
}

/* Changed extents are found at the last close, and only those. */
static void last_close_finds_changes(void)
{
	int fd;
	struct tfile *f = given_for(3600, &fd);

	if (!f)
		return;
	program_write(fd, 'B', 300000, 10);
	program_write(fd, 'C', SIZE, 5000); /* grows */
	CHECK_EQ(size_of(f), SIZE + 5000);
	give_back(f, fd);
	CHECK(passing(f)); /* until it is compared */
	step(1);
	CHECK(!passing(f));
	CHECK_EQ(dirty_bytes(), EXTENT_BYTES + 2 * BLOCK_BYTES);
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(300000), 'B');
	CHECK_EQ(src_byte(300010), 'A');
	CHECK_EQ(src_byte(SIZE + 4999), 'C');
	CHECK_EQ(demote(f), 0);
	CHECK_EQ(byte_at(f, 300009), 'B');
	leave_it(f);
}

/* A database never closes its file: its data gets to SRC nevertheless, again and again. */
static void open_file_is_written_back(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	for (int c = 'B'; c < 'E'; c++) {
		program_write(fd, c, 500000, 100);
		step(8);
		CHECK_EQ(src_byte(500050), c);
		CHECK_EQ(dirty_bytes(), 0);
		CHECK(passing(f));
	}
	program_write(fd, 'X', 700000, 100);
	CHECK_EQ(flush(f, false), 0); /* returns when SRC holds it */
	CHECK_EQ(src_byte(700099), 'X');
	give_back(f, fd);
	leave_it(f);
}

/* A look at the object that proves nothing, as it is being cut, does not end the state. */
static void last_close_during_a_cut(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	pass_cut_begin(f);
	program_write(fd, 'B', 4096, 4096);
	give_back(f, fd);
	CHECK(passing(f));
	pass_cut_end(f);
	step(2);
	CHECK(!passing(f));
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(5000), 'B');
	leave_it(f);
}

/* I2: an object that a reader still has mapped, and a writer whom we serve: after a crash his write
 * is found by checksum as a program's. */
static void write_below_a_mapping_and_die(void)
{
	if (!open_volume())
		return;
	struct tfile *f = use();

	promote(f, SIZE);
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	int fd = program_open(f, O_RDONLY);
	unsigned char *m = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(m != MAP_FAILED);
	give_back(f, fd);
	CHECK(passing(f));
	CHECK_EQ(tfile_pass_served(f, true), 0);
	write_at(f, 'B', 1000, 10);
	CHECK_EQ(m[1005], 'B');
	CHECK_EQ(tfile_fsync(f, true), 0);
	crash();
}

static int in_child(void (*fn)(void));

static void served_writer_below_a_mapping(void)
{
	begin(SIZE);
	CHECK_EQ(in_child(write_below_a_mapping_and_die), CRASHED);
	if (!open_volume())
		return;
	struct tfile *f = use();

	step(3);
	CHECK_EQ(byte_at(f, 1005), 'B');
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(1005), 'B');
	leave_it(f);
}

/* I3: a write of ours beside a program's in one extent: the checksum that the one's write-back
 * leaves must not vouch for the other. */
static void write_of_ours_beside_theirs(void)
{
	int fd;
	struct tfile *f = given_for(3600, &fd);

	if (!f)
		return;
	uint64_t bytes;

	program_write(fd, 'B', 100000, 10);
	write_at(f, 'C', 5000, 10);
	CHECK_EQ(writeback_file(f, UINT64_MAX, false, &bytes), 0);
	give_back(f, fd);
	step(2);
	CHECK(!passing(f));
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(5005), 'C');
	CHECK_EQ(src_byte(100005), 'B');
	leave_it(f);
}

/* I3: what a program writes while the extent is being written back is not called clean for good. */
static struct gate in_sync;

static void *flush_in_thread(void *arg)
{
	gates[C_SYNC] = &in_sync;
	CHECK_EQ(flush(arg, false), 0);
	return NULL;
}

static void write_during_write_back(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	in_sync = (struct gate){ 0 };
	program_write(fd, 'B', 1000, 10);
	pthread_t t = start(flush_in_thread, f);

	CHECK(wait_for(&in_sync.reached));
	program_write(fd, 'C', 1000, 10);
	atomic_store(&in_sync.open, true);
	pthread_join(t, NULL);
	give_back(f, fd);
	step(2);
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(1005), 'C');
	leave_it(f);
}

/* The lease refuses while a mapping can still change the object, though it is closed. */
static void mapping_outlives_close(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	unsigned char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(m != MAP_FAILED);
	m[10] = 'M';
	give_back(f, fd);
	step(8);
	CHECK(passing(f));
	CHECK_EQ(src_byte(10), 'M');
	m[400000] = 'N'; /* as late as that */
	munmap(m, SIZE);
	step(3);
	CHECK(!passing(f));
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(400000), 'N');
	leave_it(f);
}

/* A second reader or writer joins; a new one while the last comparison runs puts it off. */
static void open_again_while_comparing(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	program_write(fd, 'B', 0, 10);
	tfile_pass_end(f);
	close(fd);
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	fd = program_open(f, O_RDWR);
	step(1);
	program_write(fd, 'C', 900000, 10);
	step(8);
	CHECK(passing(f));
	CHECK_EQ(src_byte(900005), 'C');
	CHECK_EQ(src_byte(5), 'B');
	give_back(f, fd);
	leave_it(f);
}

/* ---- requests that come to us nevertheless --------------------------------------------------- */
/* P1: truncate, fallocate and writes of ours are seen by programs at once, and theirs by us. */
static void requests_go_by_the_object(void)
{
	int fd;
	struct tfile *f = given(&fd);

	if (!f)
		return;
	program_write(fd, 'B', 5000, 100);
	CHECK_EQ(byte_at(f, 5050), 'B');
	write_at(f, 'C', 6000, 100);
	CHECK_EQ(program_byte(fd, 6050), 'C');
	CHECK_EQ(tfile_truncate(f, 10001), 0);
	CHECK_EQ(program_byte(fd, 10001), -1);
	CHECK_EQ(tfile_truncate(f, 50000), 0);
	CHECK_EQ(program_byte(fd, 10001), 0);
	CHECK_EQ(program_byte(fd, 10000), 'A');
	program_write(fd, 'D', 30000, 100); /* where the map knows of nothing */
	CHECK_EQ(tfile_seek(f, 15000, SEEK_DATA), 28672);
	CHECK_EQ(tfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4000, 3000), 0);
	CHECK_EQ(program_byte(fd, 5050), 0);
	CHECK_EQ(program_byte(fd, 3999), 'A');
	CHECK_EQ(program_byte(fd, 7000), 'A');
	give_back(f, fd);
	step(2);
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(30050), 'D');
	CHECK_EQ(src_byte(5050), 0);
	CHECK_EQ(src_byte(7000), 'A');
	CHECK_EQ(demote(f), 0);
	CHECK_EQ(byte_at(f, 30050), 'D');
	CHECK_EQ(byte_at(f, 10000), 'A');
	leave_it(f);
}

/* The same for a truncation by path below readers. */
static void readers_see_a_cut(void)
{
	struct tfile *f = resident();

	if (!f)
		return;
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	int fd = program_open(f, O_RDONLY);

	CHECK_EQ(tfile_truncate(f, 10001), 0);
	step(2); /* nothing is released below them */
	CHECK_EQ(program_byte(fd, 10000), 'A');
	CHECK_EQ(program_byte(fd, 10001), -1);
	CHECK_EQ(tfile_truncate(f, 20000), 0);
	CHECK_EQ(program_byte(fd, 10001), 0);
	give_back(f, fd);
	step(2);
	CHECK_EQ(byte_at(f, 10000), 'A');
	CHECK_EQ(byte_at(f, 10001), 0);
	leave_it(f);
}

/* I9: programs keep reading what they were promised; SRC's new content comes with the last
 * close. */
static void foreign_change_waits_for_close(void)
{
	struct tfile *f = resident();

	if (!f)
		return;
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	int fd = program_open(f, O_RDONLY);

	put_src(src_file, 'Z', 0, SIZE / 2);
	(void)size_of(f);
	step(2);
	CHECK_EQ(program_byte(fd, 0), 'A');
	give_back(f, fd);
	CHECK(!passing(f));
	CHECK_EQ(byte_at(f, 0), 'Z');
	leave_it(f);
}

/* I9: under a writer it is a conflict, and both versions stay. */
static void foreign_change_under_a_writer(void)
{
	struct tfile *f = resident();
	struct volume_status s;

	if (!f)
		return;
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	int fd = program_open(f, O_RDWR);

	program_write(fd, 'B', 0, 10);
	put_src(src_file, 'Z', 0, SIZE / 2);
	(void)size_of(f);
	step(8);
	volume_status(v, &s);
	CHECK_EQ(s.conflicts, 1);
	CHECK_EQ(src_byte(0), 'Z');
	CHECK_EQ(program_byte(fd, 0), 'B');
	give_back(f, fd);
	step(2);
	CHECK_EQ(flush(f, true), 0);
	CHECK_EQ(src_byte(0), 'B');
	leave_it(f);
}

/* ---- crashes -------------------------------------------------------------------------------- */
static int in_child(void (*fn)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		fn();
		_exit(1);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int inherited = -1; /* a zombie's descriptor */

static void give_and_die(void)
{
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
	promote(f, SIZE);
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	int fd = program_open(f, O_RDWR);

	/* Older data of the journal must not come back over newer data of the program. */
	program_write(fd, 'B', 1000, 10);
	program_write(fd, 'C', SIZE, 100);
	CHECK_EQ(tfile_fsync(f, true), 0);
	crash();
}

/* I5, I6: what was synced is there, found by checksum; what was not touched stays clean. */
static void crash_under_a_writer(void)
{
	begin(SIZE);
	CHECK_EQ(in_child(give_and_die), CRASHED);
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(byte_at(f, 1005), 'B');
	CHECK_EQ(byte_at(f, SIZE + 99), 'C');
	CHECK_EQ(size_of(f), SIZE + 100);
	step(3);
	CHECK(!passing(f));
	CHECK_EQ(byte_at(f, 1005), 'B');
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(1005), 'B');
	leave_it(f);
}

static void small_sync_then_give_and_die(void)
{
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
	promote(f, SIZE);
	write_at(f, 'J', 1000, 10); /* rides in the journal */
	CHECK_EQ(tfile_fsync(f, true), 0);
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	int fd = program_open(f, O_RDWR);

	program_write(fd, 'B', 1000, 10);
	CHECK_EQ(tfile_fsync(f, true), 0);
	crash();
}

/* I6: replay does not put the journal's data over what a program wrote after it. */
static void journal_is_void_for_a_writer(void)
{
	begin(SIZE);
	CHECK_EQ(in_child(small_sync_then_give_and_die), CRASHED);
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(byte_at(f, 1005), 'B');
	leave_it(f);
}

static void commit_then_overwrite_and_die(void)
{
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
	promote(f, SIZE);
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	int fd = program_open(f, O_RDWR);

	program_write(fd, 'C', SIZE, 100);
	CHECK_EQ(size_of(f), SIZE + 100);
	CHECK_EQ(commit_file(f), 0);
	program_write(fd, 'D', SIZE, 100);
	CHECK_EQ(tfile_fsync(f, true), 0);
	crash();
}

/* I6: nor does the journal take data of a file while programs write to it. */
static void journal_takes_nothing_of_a_writer(void)
{
	begin(SIZE);
	CHECK_EQ(in_child(commit_then_overwrite_and_die), CRASHED);
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(byte_at(f, SIZE + 50), 'D');
	leave_it(f);
}

static void give_to_zombie_and_die(void)
{
	int fd = inherited;

	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK_EQ(tfile_pin(f, true, 0, 0), 0);
	promote(f, SIZE);
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	char path[64];

	snprintf(path, sizeof(path), "%llx", (unsigned long long)f->id);
	CHECK_EQ(syscall(SYS_pwrite64, fd, path, sizeof(path), 0), (long)sizeof(path));
	program_write(program_open(f, O_RDWR), 'B', 0, 10);
	crash();
}

/* The program of before the crash: the object by its name. */
static int zombie_open(int id_fd)
{
	char hex[64] = "", pattern[400];
	glob_t found = { 0 };

	CHECK(syscall(SYS_pread64, id_fd, hex, sizeof(hex) - 1, 0) > 0);
	unsigned long long id = strtoull(hex, NULL, 16);

	snprintf(pattern, sizeof(pattern), "%s/volumes/*/objects/%02llx/%016llx", ssd_dir,
		 id % 256, id);
	CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
	int fd = found.gl_pathc ? open(found.gl_pathv[0], O_RDWR | O_CLOEXEC) : -1;

	globfree(&found);
	CHECK(fd >= 0);
	return fd;
}

/* Programs of before a kill -9 go on writing the object: it is nobody's but theirs until the lease
 * says that they are gone, over a clean unmount as well. */
static void zombies_keep_writing(void)
{
	begin(SIZE);
	opt.dirty_expire_s = 1;
	inherited = memfd_create("id", MFD_CLOEXEC);
	CHECK_EQ(in_child(give_to_zombie_and_die), CRASHED);
	int fd = zombie_open(inherited);

	close(inherited);
	program_write(fd, 'C', 100000, 10);
	if (!open_volume())
		return;
	struct tfile *f = use();

	CHECK(passing(f));
	CHECK_EQ(byte_at(f, 5), 'B');
	CHECK_EQ(byte_at(f, 100005), 'C');
	program_write(fd, 'D', 600000, 10);
	program_write(fd, 'E', SIZE, 10);
	CHECK_EQ(size_of(f), SIZE + 10);
	step(8);
	CHECK_EQ(src_byte(600005), 'D');
	CHECK_EQ(demote(f), -EBUSY);
	unuse(f);
	close_volume();

	program_write(fd, 'F', 800000, 10); /* with no daemon at all */
	if (!open_volume())
		return;
	f = use();
	CHECK(passing(f));
	CHECK_EQ(byte_at(f, 800005), 'F');
	close(fd);
	step(3);
	CHECK(!passing(f));
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(800005), 'F');
	CHECK_EQ(src_byte(SIZE + 9), 'E');
	leave_it(f);
}

/* I5: a sync that the SSD refused is told, and not forgotten. */
static void failed_sync_is_told(void)
{
	struct tfile *f = resident();
	struct stat st;

	if (!f)
		return;
	CHECK_EQ(tfile_pass_begin(f, true, false), 0);
	int fd = program_open(f, O_RDWR);

	CHECK_EQ(syscall(SYS_fstat, fd, &st), 0);
	program_write(fd, 'B', 0, 10);
	fail_ino = st.st_ino;
	atomic_store(&fail_next[C_SYNC], EIO);
	CHECK_EQ(tfile_fsync(f, true), -EIO);
	CHECK_EQ(tfile_fsync(f, true), -EIO); /* the kernel would say it once */
	fail_ino = 0;
	give_back(f, fd);
	step(3);
	CHECK_EQ(flush(f, false), 0);
	CHECK_EQ(src_byte(5), 'B');
	unuse(f);
	(void)volume_close(v);
	src_release(&src);
	end();
}

/* I8: what cannot be evicted while it is open leaves half of the SSD to others, all together; it
 * counts as long as it is given away. */
static void unpinned_files_leave_room(void)
{
	begin(SIZE);
	if (!open_volume())
		return;
	struct tfile *f = use();
	uint64_t blocks = SIZE / BLOCK_BYTES, half = v->cap_blocks / 2;

	promote(f, SIZE);
	atomic_store(&v->pass_kept, half - blocks + 1); /* by others */
	CHECK(tfile_why_no_pass(f, false) != NULL);
	CHECK_EQ(tfile_pass_begin(f, false, false), -EAGAIN);
	atomic_store(&v->pass_kept, half - blocks);
	CHECK_EQ(tfile_pass_begin(f, false, false), 0);
	CHECK_EQ(atomic_load(&v->pass_kept), half);
	CHECK_EQ(tfile_pass_begin(f, false, true), 0); /* the same file again */
	CHECK_EQ(atomic_load(&v->pass_kept), half);
	tfile_pass_end(f);
	tfile_pass_end(f);
	CHECK(!passing(f));
	CHECK_EQ(atomic_load(&v->pass_kept), half - blocks);
	atomic_store(&v->pass_kept, 0);
	leave_it(f);
}

UNIT_MAIN({ "unpinned_files_leave_room", unpinned_files_leave_room },
	  { "partly_resident_is_not_given", partly_resident_is_not_given },
	  { "other_modes_do_not_give", other_modes_do_not_give },
	  { "object_in_use_is_not_released", object_in_use_is_not_released },
	  { "writer_has_durable_intents", writer_has_durable_intents },
	  { "last_close_finds_changes", last_close_finds_changes },
	  { "last_close_during_a_cut", last_close_during_a_cut },
	  { "open_file_is_written_back", open_file_is_written_back },
	  { "served_writer_below_a_mapping", served_writer_below_a_mapping },
	  { "write_of_ours_beside_theirs", write_of_ours_beside_theirs },
	  { "write_during_write_back", write_during_write_back },
	  { "mapping_outlives_close", mapping_outlives_close },
	  { "open_again_while_comparing", open_again_while_comparing },
	  { "requests_go_by_the_object", requests_go_by_the_object },
	  { "readers_see_a_cut", readers_see_a_cut },
	  { "foreign_change_waits_for_close", foreign_change_waits_for_close },
	  { "foreign_change_under_a_writer", foreign_change_under_a_writer },
	  { "crash_under_a_writer", crash_under_a_writer },
	  { "journal_is_void_for_a_writer", journal_is_void_for_a_writer },
	  { "journal_takes_nothing_of_a_writer", journal_takes_nothing_of_a_writer },
	  { "zombies_keep_writing", zombies_keep_writing },
	  { "failed_sync_is_told", failed_sync_is_told })
