// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * passthrough.h - which open files the kernel serves from the object by itself.
 *
 * The kernel's rule: an inode has one way at a time; an open that is answered with another one
 * fails with EIO. So the first open decides, the others follow, and the backing id lives until the
 * last RELEASE. README.md has the table. struct open_way exists per inode that is open.
 *
 * Threads: any. The way's mutex is held over calls into the tier (a commit to the SSD when a writer
 * comes), so that only opens and closes of that very file wait.
 */
#ifndef HYBRIDFS_FS_PASSTHROUGH_H
#define HYBRIDFS_FS_PASSTHROUGH_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>

struct fs;
struct inode;
struct open_file;
struct passthrough;
struct tfile;

/* NULL without memory. */
struct passthrough *passthrough_new(void);
void passthrough_free(struct passthrough *p);

/*
 * Decide how the open file `h` is served; it is in use already, `fd` is O_PATH of SRC. On failure
 * the open has to fail. passthrough_close() in any case, also after a failure.
 */
int passthrough_open(fuse_req_t req, struct open_file *h, int fd);
void passthrough_close(struct fs *fs, struct open_file *h);
/* The answer to OPEN and CREATE, as fuse_reply_open() and fuse_reply_create(). */
int passthrough_reply_open(fuse_req_t req, const struct open_file *h,
			   const struct fuse_file_info *fi);

/* Programs that hold it may change the file without asking for its setuid bit and the like, which
 * it has just got: they are taken away when they close it. */
void passthrough_got_privs(struct fs *fs, struct inode *i, struct tfile *f);

/* Why the file is not served that way, "" when it is, or would be if it were open. */
void passthrough_why_not(struct fs *fs, struct inode *i, struct tfile *f, char *buf, size_t size);
/* For the whole mount; "" when it can be done. */
const char *passthrough_mount_why_not(const struct fs *fs);

#endif
