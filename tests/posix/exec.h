// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * exec.h - the roles that copies of this program play for the tests in exec.c
 */
#ifndef POSIXTEST_EXEC_H
#define POSIXTEST_EXEC_H

#include <stdbool.h>

/* Plays the role that the program's name asks for, and tells with which exit code to end. */
bool exec_role(const char *argv0, int *ret_code);

#endif
