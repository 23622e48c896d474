// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * exec.c - running programs from the filesystem, and the busy text file
 *
 * The program is a copy of this one. Called as "posixtest-idle" it waits for the end of its
 * standard input; as "posixtest-ids" it tells whether its effective user differs from its real one.
 */
#include "harness.h"
#include "areas.h"
#include "exec.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define IDLE "posixtest-idle"
#define IDS  "posixtest-ids"

bool exec_role(const char *argv0, int *ret_code)
{
	char c;

	if (strcmp(argv0, IDLE) == 0) {
		*ret_code = (int)read(STDIN_FILENO, &c, 1);
		return true;
	}
	if (strcmp(argv0, IDS) == 0) {
		*ret_code = geteuid() != getuid() ? 42 : 0;
		return true;
	}
	return false;
}

static void make_program(const char *path)
{
	int from = (int)MUST(open("/proc/self/exe", O_RDONLY));
	int to = (int)MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755));

	while (MUST(sendfile(to, from, NULL, 1 << 20)) > 0)
		;
	MUST(close(from));
	MUST(close(to));
}

static void need_exec(void)
{
	struct statvfs st;

	MUST(statvfs(".", &st));
	if (st.f_flag & ST_NOEXEC)
		skip_test("mounted noexec");
}

struct role {
	const char *path;
	const char *name;
	int input; /* becomes standard input, or -1 */
};

static int run_role(void *arg)
{
	const struct role *role = arg;
	char name[32];
	char *argv[] = { name, NULL }, *envp[] = { NULL };

	strncpy(name, role->name, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	if (role->input >= 0)
		dup2(role->input, STDIN_FILENO);
	execve(role->path, argv, envp);
	return errno;
}

/* Waits until the child has become the program, which closes the pipe that marks it. */
static pid_t start_idle(const char *path, const struct gate *input)
{
	struct role role = { path, IDLE, input->fd[0] };
	struct gate started;
	pid_t pid;
	char c;

	gate_init(&started);
	pid = spawn(run_role, &role);
	MUST(close(started.fd[1]));
	MUST(read(started.fd[0], &c, 1));
	return pid;
}

/* A program that runs cannot be written, whatever else can be done to it. */
static void test_busy(void)
{
	struct gate input;
	pid_t pid;

	need_exec();
	make_program("prog");
	gate_init(&input);
	pid = start_idle("prog", &input);
	EXPECT(ETXTBSY, open("prog", O_WRONLY));
	EXPECT(ETXTBSY, open("prog", O_RDWR));
	EXPECT(ETXTBSY, open("prog", O_WRONLY | O_TRUNC));
	EXPECT(ETXTBSY, truncate("prog", 0));
	EXPECT(0, closing(open("prog", O_RDONLY)));
	EXPECT(0, chmod("prog", 0711));
	EXPECT(0, link("prog", "prog2"));
	EXPECT(ETXTBSY, open("prog2", O_WRONLY));
	EXPECT(0, rename("prog2", "prog3"));
	EXPECT(0, unlink("prog"));
	EXPECT(ETXTBSY, open("prog3", O_RDWR));
	EXPECT(0, unlink("prog3"));
	gate_open(&input);
	EXPECT_EQ(1, reap(pid));
}

static void test_busy_ends(void)
{
	struct gate input;
	pid_t pid;

	need_exec();
	make_program("prog");
	gate_init(&input);
	pid = start_idle("prog", &input);
	EXPECT(ETXTBSY, open("prog", O_WRONLY));
	gate_open(&input);
	EXPECT_EQ(1, reap(pid));
	EXPECT(0, closing(open("prog", O_WRONLY)));
	EXPECT(0, truncate("prog", 0));
}

/* And a file that is open for writing cannot be run. */
static void test_open_for_writing(void)
{
	struct role role = { "prog", IDS, -1 };
	int fd;

	need_exec();
	make_program("prog");
	EXPECT_EQ(0, in_child(run_role, &role));
	fd = (int)MUST(open("prog", O_WRONLY));
	EXPECT_EQ(ETXTBSY, in_child(run_role, &role));
	MUST(close(fd));
	EXPECT_EQ(0, in_child(run_role, &role));
	fd = (int)MUST(open("prog", O_RDONLY));
	EXPECT_EQ(0, in_child(run_role, &role));
	MUST(close(fd));
}

/* A rewritten program is the new one; through a symlink and a second name, too. */
static void test_runs(void)
{
	struct role role = { "prog", IDS, -1 };

	need_exec();
	make_program("prog");
	EXPECT_EQ(0, in_child(run_role, &role));
	MUST(symlink("prog", "l"));
	role.path = "l";
	EXPECT_EQ(0, in_child(run_role, &role));
	MUST(link("prog", "h"));
	role.path = "h";
	EXPECT_EQ(0, in_child(run_role, &role));
	MUST(chmod("prog", 0644));
	EXPECT_EQ(EACCES, in_child(run_role, &role));
	MUST(chmod("prog", 0755));
	make_content("prog", "nonsense", 8);
	EXPECT_EQ(ENOEXEC, in_child(run_role, &role));
	make_content("prog", "#!/missing/interpreter\n", 23);
	EXPECT_EQ(ENOENT, in_child(run_role, &role));
	role.path = ".";
	EXPECT_EQ(EACCES, in_child(run_role, &role));
}

static int run_as_owner(void *arg)
{
	become_forever(&actor_owner);
	return run_role(arg);
}

/* Set-user-id is honoured, unless the mount says otherwise, and not after a write. */
static void test_setuid(void)
{
	struct role role = { "prog", IDS, -1 };
	struct statvfs st;

	need_exec();
	MUST(statvfs(".", &st));
	make_program("prog");
	EXPECT_EQ(0, in_child(run_as_owner, &role));
	MUST(chmod("prog", 04755));
	EXPECT_EQ(st.f_flag & ST_NOSUID ? 0 : 42, in_child(run_as_owner, &role));
	MUST(chmod("prog", 0755));
	EXPECT_EQ(0, in_child(run_as_owner, &role));
}

static const struct test tests[] = {
	{ "busy", test_busy, 0 },
	{ "busy_ends", test_busy_ends, 0 },
	{ "open_for_writing", test_open_for_writing, 0 },
	{ "runs", test_runs, 0 },
	{ "setuid", test_setuid, NEED_ROOT },
};

AREA(exec);
