// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of operations with their weights, and one step. */
#include "model.h"

#define TRIES 1000

const struct op ops[] = {
	{ "open", 60, op_open },
	{ "close", 40, op_close },
	{ "pwrite", 90, op_pwrite },
	{ "write", 50, op_write },
	{ "pread", 40, op_pread },
	{ "read", 30, op_read },
	{ "append", 15, op_append },
	{ "path-write", 30, op_path_write },
	{ "copy-range", 20, op_copy_range },
	{ "truncate", 25, op_truncate },
	{ "ftruncate", 25, op_ftruncate },
	{ "fallocate", 40, op_fallocate },
	{ "seek", 25, op_seek },
	{ "mmap-write", 25, op_mmap_write },
	{ "mmap-read", 10, op_mmap_read },
	{ "map-hold", 15, op_map_hold },
	{ "map-store", 30, op_map_store },
	{ "map-drop", 10, op_map_drop },
	{ "fsync", 30, op_fsync },
	{ "fsync-dir", 4, op_fsync_dir },
	{ "link", 12, op_link },
	{ "unlink", 20, op_unlink },
	{ "rename", 30, op_rename },
	{ "mkdir", 12, op_mkdir },
	{ "rmdir", 8, op_rmdir },
	{ "symlink", 8, op_symlink },
	{ "look", 12, op_look },
	{ "readdir", 6, op_readdir },
	{ "chmod", 12, op_chmod },
	{ "chown", 8, op_chown },
	{ "utimens", 40, op_utimens },
	{ "setxattr", 15, op_setxattr },
	{ "removexattr", 8, op_removexattr },
};

#define NOPS (sizeof(ops) / sizeof(ops[0]))

static uint32_t total_weight(void)
{
	uint32_t total = 0;

	for (size_t i = 0; i < NOPS; i++)
		total += ops[i].weight;
	return total;
}

static const struct op *pick_op(struct world *w)
{
	uint32_t r = rng_below(&w->rng, total_weight());
	size_t i = 0;

	while (r >= ops[i].weight)
		r -= ops[i++].weight;
	return &ops[i];
}

static void run_op(struct world *w)
{
	for (int i = 0; i < TRIES; i++) {
		const struct op *op = pick_op(w);

		w->ntouched = 0;
		log_begin(w, op->name);
		if (op->run(w))
			return;
	}
	die("no operation is possible");
}

void run_step(struct world *w)
{
	watch_alive();
	w->step++;
	w->ops++;
	w->still = w->mmap_store = false;
	w->loose[0] = w->loose[1] = NULL;
	w->set_node = NULL;
	clock_gettime(CLOCK_REALTIME_COARSE, &w->op_start);
	run_op(w);
	clock_gettime(CLOCK_REALTIME, &w->op_end);
	compare_touched(w);
}
