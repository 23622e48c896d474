// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/cmd/failures.h"

#include "db/base.h"
#include "fs/cmd/cmd.h"
#include "fs/cmd/json.h"

void failures_add(struct failures *f, const char *path, const char *text)
{
	cmd_path_error(path, "%s", text);
	if (!f->list)
		f->list = json_object_new_array();
	if (f->n++ < FAILURES_LISTED_MAX)
		json_add_failure(f->list, path, text);
}

void failures_put_json(struct failures *f, struct json_object *o)
{
	json_object_object_add(o, "failed", f->list ? f->list : json_object_new_array());
	f->list = NULL;
	if (f->n > FAILURES_LISTED_MAX)
		json_put_u64(o, "failed_not_listed", f->n - FAILURES_LISTED_MAX);
}

void failures_release(struct failures *f)
{
	json_object_put(f->list);
	f->list = NULL;
}
