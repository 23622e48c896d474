// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * json.h - what every --json output has in common. Objects are json-c's; integers are real ones.
 *
 * A JSON string must be UTF-8 and a path need not be: json_put_path() replaces what is not by
 * U+FFFD and then, and only then, adds KEY_bytes_hex with the exact bytes.
 *
 * Without memory json-c drops the member; nothing here fails.
 */
#ifndef HYBRIDFS_FS_CMD_JSON_H
#define HYBRIDFS_FS_CMD_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

void json_put_u64(struct json_object *o, const char *key, uint64_t n);
void json_put_bool(struct json_object *o, const char *key, bool b);
/* A text of ours or the daemon's; repaired to UTF-8 silently. */
void json_put_text(struct json_object *o, const char *key, const char *s);
void json_put_path(struct json_object *o, const char *key, const char *path);

/* {"path": ..., "error": ...} appended to an array. */
void json_add_failure(struct json_object *array, const char *path, const char *error);

/* On one line of stdout, without a newline. */
void json_print(struct json_object *o);

/*
 * An object whose first array may be too long for memory: begin prints `{"version":1,"KEY":[`, item
 * prints and frees one element, end closes the array, prints the members of `rest` and frees it.
 */
struct json_stream {
	bool has_items;
};
void json_stream_begin(struct json_stream *s, const char *key);
void json_stream_item(struct json_stream *s, struct json_object *item);
void json_stream_end(struct json_stream *s, struct json_object *rest);

#endif
