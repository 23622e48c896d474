// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * proc.h - acting as somebody else, and in another process
 *
 * The actors are seen from files that belong to actor_owner's user and group (give() in node.h
 * makes them so). Started as root, a test becomes any of them in place: real and effective ids,
 * supplementary groups and capabilities, with the saved ids kept at 0 as the way back. Started as
 * an ordinary user, actor_owner is that user, and nobody else can be played.
 */
#ifndef POSIXTEST_PROC_H
#define POSIXTEST_PROC_H

#include "harness.h"

struct actor {
	const char *name;
	uid_t uid;
	gid_t gid;
	gid_t supplementary; /* 0: none */
};

extern struct actor actor_owner;       /* owns the files */
extern const struct actor actor_group; /* another user, same primary group */
extern const struct actor actor_supp;  /* another user, the group is a supplementary one */
extern const struct actor actor_other; /* another user, unrelated group */
extern const struct actor actor_root;

/* The four ordinary ones in the order above; and with root first, five. */
extern const struct actor *const people[4];
extern const struct actor *const everybody[5];

/*
 * Modes for one of people[] and files given to actor_owner. In mode_for() the class of a gets bits
 * and the other two everything; in mode_only_for() they get the complement of bits, so that picking
 * the wrong class gives the opposite answer.
 */
mode_t mode_for(const struct actor *a, mode_t bits);
mode_t mode_only_for(const struct actor *a, mode_t bits);

#define GID_ALIEN 65531 /* a group that none of the actors is in */

/* Finds out who we are; main.c calls it in each test's process. */
void proc_init(void);
bool is_root(void);

/* May become(a) be called? */
bool can_be(const struct actor *a);

/* Takes the credentials of a; NULL takes our own back. Ends the test if that fails. */
void become(const struct actor *a);

/* Gives up all of our own credentials for those of a, for good; for use in a forked child. */
void become_forever(const struct actor *a);

#define EXPECT_AS(a, want, call)                                                          \
	({                                                                                \
		long ret_as_;                                                             \
                                                                                          \
		become(a);                                                                \
		ret_as_ = check_errno((want), 0, (errno = 0, (long)(call)), SITE(#call)); \
		become(NULL);                                                             \
		ret_as_;                                                                  \
	})

#define RECORD_AS(a, call)                                                      \
	({                                                                      \
		long ret_as_;                                                   \
                                                                                \
		become(a);                                                      \
		ret_as_ = record_errno((errno = 0, (long)(call)), SITE(#call)); \
		become(NULL);                                                   \
		ret_as_;                                                        \
	})

/* Forks; the child runs fn(arg) and exits with what it returns (0 to 127, an errno usually). */
pid_t spawn(int (*fn)(void *arg), void *arg);

/* Waits for a child; returns its exit code, or 1000 + signal. */
int reap(pid_t pid);

/* spawn() and reap(). */
int in_child(int (*fn)(void *arg), void *arg);

/* An int in memory shared with the children forked from now on. */
volatile int *shared_int(void);

/* A pipe by which one process lets another one continue. */
struct gate {
	int fd[2];
};
void gate_init(struct gate *g);
void gate_open(struct gate *g);
void gate_wait(struct gate *g);

#endif
