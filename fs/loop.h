/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loop.h - the threads that serve requests.
 *
 * To wake another thread costs more than most requests do. So the thread that took a request also
 * serves it, and takes the next one: as long as requests are short and come one by one, a single
 * thread is enough, and it stays warm. Another one starts to read when
 *  - a thread is about to wait and says so (loop_hand_over()),
 *  - requests keep waiting in the kernel while they are taken (BACKLOG in a row), or
 *  - the watcher finds one waiting and nobody reading: whoever read last is held up. It is the
 *    caller of loop_run(), looks every TICK, and sleeps while nothing is going on.
 * A thread that is done reads again if nobody does, or if requests wait; else it is parked, and the
 * one that was parked last is the first to be used again.
 *
 * At most max_threads threads; when all of them are held up, requests wait in the kernel.
 */
#ifndef HYBRIDFS_FS_LOOP_H
#define HYBRIDFS_FS_LOOP_H

struct fuse_session;
struct loop;

/* NULL: out of memory. */
struct loop *loop_new(struct fuse_session *session, unsigned max_threads);
void loop_free(struct loop *l); /* NULL is fine */
/* Serve until the session has exited. 0 or -errno. A signal makes it look whether it has. */
int loop_run(struct loop *l);
/* This request is going to wait: let another thread take the next one. NULL: one thread only. */
void loop_hand_over(struct loop *l);

#endif
