// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mknod.c - mkfifo, mknod, sockets: types, modes, device numbers, and data through them
 */
#include "harness.h"
#include "areas.h"
#include "node.h"
#include "proc.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

/* Modes and umasks for every type; the set-id bits are allowed here, as in open(). */
static void test_modes(void)
{
	static const mode_t modes[] = { 0,    0111, 0222,  0444,  0600,	 0644,	0666, 0755,
					0777, 0151, 01644, 04755, 02755, 06777, 07777 };
	static const mode_t masks[] = { 0, 022, 027, 077, 0777, 0501 };

	for_each_type(t) {
		for (size_t i = 0; t != NODE_LNK && t != NODE_DIR && i < ARRAY_SIZE(modes); i++) {
			for (size_t j = 0; j < ARRAY_SIZE(masks); j++) {
				ctx("%s, mode %o, umask %o", node_name(t), modes[i], masks[j]);
				umask(masks[j]);
				EXPECT(0, node_create(t, "n", modes[i]));
				umask(022);
				EXPECT_OCT(modes[i] & ~masks[j], mode_of("n"));
				EXPECT_OCT(node_ifmt(t), type_of("n"));
				EXPECT_EQ(0, size_of("n"));
				MUST(unlink("n"));
			}
		}
	}
}

static void test_invalid(void)
{
	EXPECT(EPERM, mknod("n", S_IFDIR | 0755, 0));
	EXPECT(EINVAL, mknod("n", S_IFLNK | 0755, 0));
	EXPECT(EINVAL, mknod("n", 0050000 | 0644, 0));
	EXPECT(EINVAL, mknod("n", S_IFMT | 0644, 0));
	EXPECT(ENOENT, exists("n"));
	EXPECT(0, mknod("n", 0640, 0));
	EXPECT_OCT(S_IFREG, type_of("n"));
	EXPECT(0, mknod("m", S_IFREG | 0640, makedev(1, 3)));
	EXPECT_OCT(S_IFREG, type_of("m"));
}

static long long rdev_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) != 0 ? -errno : (long long)st.st_rdev;
}

static void test_rdev(void)
{
	static const struct {
		unsigned int maj, min;
	} devs[] = { { 1, 3 },	 { 0, 1 },	 { 8, 0 },	  { 255, 255 },
		     { 1, 256 }, { 259, 65535 }, { 511, 262143 }, { 511, 4097 } };
	static const mode_t kinds[] = { S_IFCHR, S_IFBLK };

	for (size_t i = 0; i < ARRAY_SIZE(devs); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(kinds); j++) {
			dev_t dev = makedev(devs[i].maj, devs[i].min);

			ctx("%u:%u", devs[i].maj, devs[i].min);
			EXPECT(0, mknod("n", kinds[j] | 0600, dev));
			EXPECT_EQ(dev, rdev_of("n"));
			EXPECT_OCT(kinds[j], type_of("n"));
			EXPECT(0, rename("n", "m"));
			EXPECT_EQ(dev, rdev_of("m"));
			MUST(unlink("m"));
		}
	}
	MUST(mkfifo("p", 0644));
	EXPECT_EQ(0, rdev_of("p"));
}

/* Devices are for root; everything else is for whoever may write the directory. */
static void test_who(void)
{
	make_dir("d", 0777);
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		const struct actor *a = people[i];

		if (!can_be(a))
			continue;
		ctx("as %s", a->name);
		EXPECT_AS(a, EPERM, mknod("d/n", S_IFCHR | 0666, makedev(1, 3)));
		EXPECT_AS(a, EPERM, mknod("d/n", S_IFBLK | 0666, makedev(1, 3)));
		EXPECT(ENOENT, exists("d/n"));
		RECORD_AS(a, mknod("d/n", S_IFCHR | 0666, 0));
		node_remove("d/n");
		EXPECT_AS(a, 0, mknod("d/n", S_IFREG | 0666, 0));
		EXPECT_AS(a, 0, mknod("d/p", S_IFIFO | 0666, 0));
		EXPECT_AS(a, 0, mknod("d/s", S_IFSOCK | 0666, 0));
		EXPECT_EQ(a->uid, uid_of("d/p"));
		EXPECT_EQ(a->gid, gid_of("d/s"));
		EXPECT_AS(a, 0, unlink("d/n"));
		EXPECT_AS(a, 0, unlink("d/p"));
		EXPECT_AS(a, 0, unlink("d/s"));
	}
}

/* A device node leads to the device, where the mount allows that. */
static void test_device(void)
{
	struct statvfs vfs;
	char c = 'x';
	int fd;

	umask(0);
	MUST(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
	MUST(mknod("zero", S_IFCHR | 0666, makedev(1, 5)));
	MUST(statvfs(".", &vfs));
	if (vfs.f_flag & ST_NODEV) {
		EXPECT(EACCES, closing(open("null", O_RDWR)));
		skip_test("mounted nodev");
	}
	fd = (int)EXPECT(0, open("null", O_RDWR));
	EXPECT_EQ(5, write(fd, "hello", 5));
	EXPECT_EQ(0, read(fd, &c, 1));
	EXPECT_EQ(0, size_of("null"));
	fd = (int)EXPECT(0, open("zero", O_RDONLY));
	EXPECT_EQ(1, read(fd, &c, 1));
	EXPECT_EQ(0, c);
	EXPECT_AS(&actor_other, 0, closing(open("null", O_WRONLY)));
	MUST(chmod("null", 0600));
	EXPECT_AS(&actor_other, EACCES, closing(open("null", O_WRONLY)));
}

static int write_fifo(void *arg)
{
	static char data[100000];
	int fd = (int)MUST(open(arg, O_WRONLY));
	size_t done = 0;

	fill_pattern(data, sizeof(data), 5);
	while (done < sizeof(data))
		done += (size_t)MUST(write(fd, data + done, sizeof(data) - done));
	return 0;
}

/* More than a pipe holds goes through, in order; then there is an end. */
static void test_fifo_data(void)
{
	static char want[100000], got[100001];
	char path[] = "p";
	size_t done = 0;
	ssize_t n;
	pid_t pid;
	int fd;

	MUST(mkfifo("p", 0600));
	pid = spawn(write_fifo, path);
	fd = (int)EXPECT(0, open("p", O_RDONLY));
	while ((n = read(fd, got + done, sizeof(got) - done)) > 0)
		done += (size_t)n;
	fill_pattern(want, sizeof(want), 5);
	EXPECT_EQ(sizeof(want), done);
	EXPECT_TRUE(memcmp(want, got, sizeof(want)) == 0);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, size_of("p"));
}

static void test_fifo_nonblock(void)
{
	struct pollfd pfd;
	char buf[8];
	int r, w;

	MUST(mkfifo("p", 0600));
	EXPECT(ENXIO, open("p", O_WRONLY | O_NONBLOCK));
	r = (int)EXPECT(0, open("p", O_RDONLY | O_NONBLOCK));
	EXPECT_EQ(0, read(r, buf, 1));
	w = (int)EXPECT(0, open("p", O_WRONLY | O_NONBLOCK));
	EXPECT(EAGAIN, read(r, buf, 1));
	EXPECT_EQ(3, write(w, "abc", 3));
	pfd = (struct pollfd){ .fd = r, .events = POLLIN };
	EXPECT_EQ(1, poll(&pfd, 1, 0));
	EXPECT_EQ(3, read(r, buf, sizeof(buf)));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	MUST(close(r));
	EXPECT(EPIPE, write(w, "abc", 3));
	MUST(close(w));
	r = (int)EXPECT(0, open("p", O_RDWR));
	EXPECT_EQ(2, write(r, "xy", 2));
	EXPECT_EQ(2, read(r, buf, sizeof(buf)));
}

/* It is one pipe by whatever name, also after the names are gone; seeking is for files. */
static void test_fifo_names(void)
{
	char buf[8];
	int r, w;

	MUST(mkfifo("p", 0600));
	MUST(link("p", "q"));
	r = (int)MUST(open("p", O_RDONLY | O_NONBLOCK));
	w = (int)EXPECT(0, open("q", O_WRONLY | O_NONBLOCK));
	EXPECT(0, rename("p", "o"));
	EXPECT(0, unlink("q"));
	EXPECT(0, unlink("o"));
	EXPECT_EQ(3, write(w, "abc", 3));
	EXPECT_EQ(3, read(r, buf, sizeof(buf)));
	EXPECT(ESPIPE, lseek(r, 0, SEEK_SET));
	EXPECT(ESPIPE, lseek(r, 0, SEEK_DATA));
	EXPECT(ESPIPE, pread(r, buf, 1, 0));
	EXPECT(ESPIPE, pwrite(w, buf, 1, 0));
	EXPECT(EBADF, read(w, buf, 1));
	EXPECT(EBADF, write(r, buf, 1));
	EXPECT(EINVAL, fsync(w));
	EXPECT(EINVAL, ftruncate(w, 0));
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	strncpy(sa.sun_path, path, sizeof(sa.sun_path) - 1);
	return sa;
}

static int try_bind(int fd, const char *path)
{
	struct sockaddr_un sa = address(path);

	return bind(fd, (struct sockaddr *)&sa, sizeof(sa));
}

static int try_connect(const char *path)
{
	struct sockaddr_un sa = address(path);
	int fd = (int)MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	return -1;
}

static void test_socket(void)
{
	char buf[8];
	int listener = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0)), a, b;

	umask(027);
	EXPECT(0, try_bind(listener, "s"));
	umask(022);
	EXPECT_OCT(S_IFSOCK, type_of("s"));
	EXPECT_OCT(0750, mode_of("s"));
	EXPECT(ECONNREFUSED, try_connect("s"));
	MUST(listen(listener, 4));
	a = (int)EXPECT(0, try_connect("s"));
	b = (int)MUST(accept(listener, NULL, NULL));
	EXPECT_EQ(3, write(a, "abc", 3));
	EXPECT_EQ(3, read(b, buf, sizeof(buf)));
	EXPECT(0, rename("s", "t"));
	EXPECT(0, try_connect("t"));
	EXPECT(ENOENT, try_connect("s"));
	EXPECT(0, unlink("t"));
	EXPECT(ENOENT, try_connect("t"));
	EXPECT_EQ(3, write(b, "xyz", 3));
	EXPECT_EQ(3, read(a, buf, sizeof(buf)));
}

static void test_socket_errors(void)
{
	int fd = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0));

	MUST(mknod("s", S_IFSOCK | 0644, 0));
	make_file("f", 0644);
	make_dir("d", 0555);
	give("d");
	EXPECT(EADDRINUSE, try_bind(fd, "s"));
	EXPECT(EADDRINUSE, try_bind(fd, "f"));
	EXPECT(ENOENT, try_bind(fd, "missing/s"));
	EXPECT(ENOTDIR, try_bind(fd, "f/s"));
	EXPECT_AS(&actor_owner, EACCES, try_bind(fd, "d/s"));
	EXPECT(ECONNREFUSED, try_connect("s"));
	EXPECT(ECONNREFUSED, try_connect("f"));
	EXPECT(ENXIO, open("s", O_RDONLY));
	EXPECT(ENXIO, open("s", O_RDWR | O_NONBLOCK));
}

/* Talking to a socket takes write permission on it. */
static void test_socket_permission(void)
{
	int listener = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0));

	MUST(try_bind(listener, "s"));
	MUST(listen(listener, 16));
	give("s");
	for (size_t i = 0; i < ARRAY_SIZE(people); i++) {
		ctx("as %s", people[i]->name);
		MUST(chmod("s", 0555));
		EXPECT_AS(people[i], EACCES, try_connect("s"));
		MUST(chmod("s", i == 0 ? 0200 : i == 3 ? 0002 : 0020));
		EXPECT_AS(people[i], 0, try_connect("s"));
	}
}

static const struct test tests[] = {
	{ "modes", test_modes, 0 },
	{ "invalid", test_invalid, 0 },
	{ "rdev", test_rdev, NEED_ROOT },
	{ "who", test_who, 0 },
	{ "device", test_device, NEED_ROOT },
	{ "fifo_data", test_fifo_data, 0 },
	{ "fifo_nonblock", test_fifo_nonblock, 0 },
	{ "fifo_names", test_fifo_names, 0 },
	{ "socket", test_socket, 0 },
	{ "socket_errors", test_socket_errors, 0 },
	{ "socket_permission", test_socket_permission, NEED_ROOT },
};

AREA(mknod);
