// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/base.h"
#include "fs/cmd/format.h"

void json_put_u64(struct json_object *o, const char *key, uint64_t n)
{
	json_object_object_add(o, key, json_object_new_uint64(n));
}

void json_put_bool(struct json_object *o, const char *key, bool b)
{
	json_object_object_add(o, key, json_object_new_boolean(b));
}

void json_put_text(struct json_object *o, const char *key, const char *s)
{
	bool changed;
	_cleanup_free_ char *text = fmt_utf8_repair(s, &changed);

	json_object_object_add(o, key, json_object_new_string(text ? text : ""));
}

static void put_hex(struct json_object *o, const char *key, const char *s)
{
	_cleanup_free_ char *hex = malloc(2 * strlen(s) + 1);
	char *to = hex;
	char name[64];

	if (!hex)
		return;
	*to = '\0';
	for (; *s; s++)
		to += sprintf(to, "%02x", (unsigned char)*s);
	snprintf(name, sizeof(name), "%s_bytes_hex", key);
	json_object_object_add(o, name, json_object_new_string(hex));
}

void json_put_path(struct json_object *o, const char *key, const char *path)
{
	bool changed = false;
	_cleanup_free_ char *text = fmt_utf8_repair(path, &changed);

	json_object_object_add(o, key, json_object_new_string(text ? text : ""));
	if (changed)
		put_hex(o, key, path);
}

void json_add_failure(struct json_object *array, const char *path, const char *error)
{
	struct json_object *o = json_object_new_object();

	json_put_path(o, "path", path);
	json_put_text(o, "error", error);
	json_object_array_add(array, o);
}

void json_print(struct json_object *o)
{
	fputs(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
							JSON_C_TO_STRING_NOSLASHESCAPE),
	      stdout);
}

void json_stream_begin(struct json_stream *s, const char *key)
{
	s->has_items = false;
	printf("{\"version\":1,\"%s\":[", key);
}

void json_stream_item(struct json_stream *s, struct json_object *item)
{
	fputs(s->has_items ? ",\n" : "\n", stdout);
	s->has_items = true;
	json_print(item);
	json_object_put(item);
}

void json_stream_end(struct json_stream *s, struct json_object *rest)
{
	fputs(s->has_items ? "\n]" : "]", stdout);
	json_object_object_foreach(rest, key, value)
	{
		printf(",\"%s\":", key);
		json_print(value);
	}
	fputs("}\n", stdout);
	json_object_put(rest);
}
