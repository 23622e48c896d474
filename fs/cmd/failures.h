// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * failures.h - what a command could not do: said on stderr at once, and kept for its --json output.
 */
#ifndef HYBRIDFS_FS_CMD_FAILURES_H
#define HYBRIDFS_FS_CMD_FAILURES_H

#include <json-c/json.h>
#include <stdint.h>

/* Entries kept for --json; beyond that they are only counted ("failed_not_listed"). */
#define FAILURES_LISTED_MAX 10000

struct failures {
	uint64_t n;
	struct json_object *list; /* owned; NULL until something failed */
};

void failures_add(struct failures *f, const char *path, const char *text);
/* Add "failed": [{"path", "error"}...] to o, and release. */
void failures_put_json(struct failures *f, struct json_object *o);
void failures_release(struct failures *f);

#endif
