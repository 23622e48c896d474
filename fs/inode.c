// SPDX-License-Identifier: GPL-2.0-or-later
#include "fs/inode.h"

#include <assert.h>
#include <fuse_lowlevel.h>
#include <malloc.h>
#include <string.h>

#include "db/base.h"
#include "fs/fdcache.h"

#define SEGMENT_CHAINS ((size_t)1 << INODE_SEGMENT_BITS)
/* Ids that mean nothing by themselves: this bit, a serial number, half of the key's hash. */
#define PASSING_ID (1ull << 63)
/* Freed inodes that are worth a malloc_trim(). */
#define TRIM_INODES 65536u
/* Names and depth of a path that is still built; a longer one is a loop left by foreign renames. */
#define PATH_DEPTH_MAX 4096u

/* Layout of keys whose handle is two 32-bit words: inode number and generation. */
#define STABLE_KEY_LEN	   13u
#define STABLE_HANDLE_TYPE 1u

struct inode_name {
	struct inode_name *next;
	struct inode *parent; /* a reference */
	char name[];
};

/* ---- node ids ------------------------------------------------------------------------------ */
static bool key_is_stable(const struct src_key *key)
{
	static const uint8_t head[5] = { 1, STABLE_HANDLE_TYPE, 0, 0, 0 };

	return key->len == STABLE_KEY_LEN && memcmp(key->data, head, sizeof(head)) == 0;
}

static uint64_t stable_id(const struct src_key *key)
{
	uint32_t words[2];

	memcpy(words, key->data + 5, sizeof(words));
	return (uint64_t)words[1] << 32 | words[0];
}

bool inode_key_of_id(const struct inode_table *t, uint64_t nodeid, struct src_key *ret_key)
{
	uint32_t words[2] = { (uint32_t)nodeid, (uint32_t)(nodeid >> 32) };

	if (!t->stable_ids || words[0] < 2)
		return false;
	*ret_key = (struct src_key){ .len = STABLE_KEY_LEN, .data = { 1, STABLE_HANDLE_TYPE } };
	memcpy(ret_key->data + 5, words, sizeof(words));
	return true;
}

uint64_t inode_generation(const struct inode_table *t, const struct inode *i)
{
	return t->stable_ids || i->nodeid == FUSE_ROOT_ID ? 0 : t->instance;
}

static uint32_t mix(uint64_t n)
{
	n *= 0x9e3779b97f4a7c15u;
	return (uint32_t)(n >> 32);
}

static uint32_t hash_of_key(const struct inode_table *t, const struct src_key *key)
{
	return t->stable_ids ? mix(stable_id(key)) : (uint32_t)src_key_hash(key);
}

static uint32_t hash_of_id(const struct inode_table *t, uint64_t nodeid)
{
	return t->stable_ids ? mix(nodeid) : (uint32_t)nodeid;
}

/* ---- the hash ------------------------------------------------------------------------------ */
static struct inode **chain_at(struct inode_table *t, size_t index)
{
	return &t->segments[index >> INODE_SEGMENT_BITS][index & (SEGMENT_CHAINS - 1)];
}

/* The largest power of two that is not above n (n > 0). */
static size_t power_below(size_t n)
{
	return (size_t)1 << (63 - __builtin_clzll(n));
}

/* With n chains, those from power_below(n) on split off from the ones below it. */
static struct inode **chain_of(struct inode_table *t, uint32_t hash)
{
	size_t half = power_below(t->n_chains);
	size_t index = hash & (2 * half - 1);

	return chain_at(t, index < t->n_chains ? index : index & (half - 1));
}

static void grow_locked(struct inode_table *t)
{
	size_t new = t->n_chains, segment = new >> INODE_SEGMENT_BITS;

	if (segment >= INODE_SEGMENTS)
		return;
	if (!t->segments[segment]) {
		t->segments[segment] = calloc(SEGMENT_CHAINS, sizeof(struct inode *));
		if (!t->segments[segment])
			return; /* longer chains, nothing worse */
	}
	size_t half = power_below(new);
	struct inode **from = chain_at(t, new - half), **to = chain_at(t, new);

	t->n_chains++;
	while (*from) {
		struct inode *i = *from;

		if ((i->hash & (2 * half - 1)) == new) {
			*from = i->next;
			i->next = *to;
			*to = i;
		} else {
			from = &i->next;
		}
	}
}

static void shrink_locked(struct inode_table *t)
{
	size_t last = t->n_chains - 1;

	if (t->n_chains <= SEGMENT_CHAINS)
		return;
	struct inode **from = chain_at(t, last), **to = chain_at(t, last - power_below(last));

	while (*to)
		to = &(*to)->next;
	*to = *from;
	*from = NULL;
	t->n_chains--;
	if ((last & (SEGMENT_CHAINS - 1)) == 0) {
		free(t->segments[last >> INODE_SEGMENT_BITS]);
		t->segments[last >> INODE_SEGMENT_BITS] = NULL;
	}
}

static void insert_locked(struct inode_table *t, struct inode *i)
{
	struct inode **chain = chain_of(t, i->hash);

	i->next = *chain;
	*chain = i;
	if (++t->n_inodes > t->n_chains)
		grow_locked(t);
}

static void remove_locked(struct inode_table *t, struct inode *i)
{
	struct inode **p = chain_of(t, i->hash);

	while (*p != i)
		p = &(*p)->next;
	*p = i->next;
	t->n_inodes--;
	t->freed++;
	for (int n = 0; n < 2 && t->n_inodes < t->n_chains / 2; n++)
		shrink_locked(t);
}

static struct inode *by_id_locked(struct inode_table *t, uint64_t nodeid)
{
	if (nodeid == FUSE_ROOT_ID)
		return t->root;
	struct inode *i = *chain_of(t, hash_of_id(t, nodeid));

	while (i && i->nodeid != nodeid)
		i = i->next;
	return i;
}

static struct inode *by_key_locked(struct inode_table *t, const struct src_key *key, uint32_t hash)
{
	struct inode *i = *chain_of(t, hash);

	while (i && (i->hash != hash || i->key_len != key->len ||
		     memcmp(i->key, key->data, key->len) != 0))
		i = i->next;
	return i;
}

/* ---- life ---------------------------------------------------------------------------------- */
static struct inode *inode_new(const struct src_key *key, uint32_t hash, mode_t mode)
{
	struct inode *i = calloc(1, offsetof(struct inode, key) + key->len);

	if (!i)
		return NULL;
	i->hash = hash;
	i->type = (uint8_t)((mode & S_IFMT) >> 12);
	i->key_len = (uint8_t)key->len;
	memcpy(i->key, key->data, key->len);
	return i;
}

static uint64_t new_id_locked(struct inode_table *t, const struct src_key *key, uint32_t hash)
{
	uint64_t id;

	if (t->stable_ids)
		return stable_id(key);
	do
		id = PASSING_ID | (uint64_t)(t->next_id++ & 0x7fffffff) << 32 | hash;
	while (by_id_locked(t, id));
	return id;
}

static void bury(struct inode_table *t, struct inode *i)
{
	struct src_key key;

	if (!inode_is_reg(i) || !inode_clear(i, INODE_DELETED))
		return;
	inode_key(i, &key);
	t->gone(t->gone_ctx, &key);
}

static bool unused_locked(struct inode_table *t, struct inode *i)
{
	if (i->refs > 0 || i->nlookup > 0)
		return false;
	remove_locked(t, i);
	return true;
}

/* Drop a name that is in no list any more. Its parent goes on *unused if that was the last use. */
static void free_name(struct inode_table *t, struct inode_name *n, struct inode **unused)
{
	struct inode *parent = n->parent;

	free(n);
	pthread_mutex_lock(&t->lock);
	parent->refs--;
	bool last = unused_locked(t, parent);

	pthread_mutex_unlock(&t->lock);
	if (last) {
		parent->next = *unused;
		*unused = parent;
	}
}

/* A list, chained by `next`, of inodes that are not in the table any more and nobody knows. */
static void free_inodes(struct inode_table *t, struct inode *list)
{
	while (list) {
		struct inode *i = list;
		struct inode_name *n;

		list = i->next;
		bury(t, i);
		fd_cache_forget(t->fds, i);
		while ((n = i->names)) {
			i->names = n->next;
			free_name(t, n, &list);
		}
		free(i);
	}
}

static void inode_free(struct inode_table *t, struct inode *i)
{
	i->next = NULL;
	free_inodes(t, i);
}

static int make_root(struct inode_table *t)
{
	struct src_key key;
	int r = src_key_of_fd(t->src, t->src->root_fd, &key);

	if (r < 0)
		return r;
	t->stable_ids = t->src->by_handle && key_is_stable(&key);
	t->root = inode_new(&key, hash_of_key(t, &key), S_IFDIR);
	if (!t->root)
		return -ENOMEM;
	t->root->nodeid = FUSE_ROOT_ID;
	t->root->refs = 1;
	insert_locked(t, t->root);
	return 0;
}

int inode_table_init(struct inode_table *t, const struct src *src, struct fd_cache *fds,
		     uint64_t instance, inode_gone_fn gone, void *gone_ctx)
{
	*t = (struct inode_table){
		.src = src, .fds = fds, .instance = instance, .gone = gone, .gone_ctx = gone_ctx
	};
	pthread_mutex_init(&t->lock, NULL);
	t->segments = calloc(INODE_SEGMENTS, sizeof(*t->segments));
	if (!t->segments)
		return -ENOMEM;
	t->segments[0] = calloc(SEGMENT_CHAINS, sizeof(struct inode *));
	if (!t->segments[0])
		return -ENOMEM;
	t->n_chains = SEGMENT_CHAINS;
	return make_root(t);
}

void inode_table_bury(struct inode_table *t)
{
	for (size_t c = 0; c < t->n_chains; c++)
		for (struct inode *i = *chain_at(t, c); i; i = i->next)
			bury(t, i);
}

void inode_table_release(struct inode_table *t)
{
	for (size_t c = 0; c < t->n_chains; c++) {
		struct inode *i = *chain_at(t, c);

		while (i) {
			struct inode *next = i->next;

			fd_cache_forget(t->fds, i);
			for (struct inode_name *n; (n = i->names); free(n))
				i->names = n->next;
			free(i);
			i = next;
		}
	}
	for (size_t s = 0; t->segments && s < INODE_SEGMENTS; s++)
		free(t->segments[s]);
	free(t->segments);
	pthread_mutex_destroy(&t->lock);
	*t = (struct inode_table){ 0 };
}

void inode_table_trim(struct inode_table *t)
{
	pthread_mutex_lock(&t->lock);
	bool trim = t->freed >= TRIM_INODES;

	if (trim)
		t->freed = 0;
	pthread_mutex_unlock(&t->lock);
	if (trim)
		malloc_trim(0);
}

/* ---- finding ------------------------------------------------------------------------------- */
struct inode *inode_get(struct inode_table *t, uint64_t nodeid)
{
	pthread_mutex_lock(&t->lock);
	struct inode *i = by_id_locked(t, nodeid);

	if (i)
		i->refs++;
	pthread_mutex_unlock(&t->lock);
	return i;
}

struct inode *inode_find(struct inode_table *t, const struct src_key *key)
{
	if (t->stable_ids && !key_is_stable(key))
		return NULL;
	uint32_t hash = hash_of_key(t, key);

	pthread_mutex_lock(&t->lock);
	struct inode *i = by_key_locked(t, key, hash);

	if (i)
		i->refs++;
	pthread_mutex_unlock(&t->lock);
	return i;
}

struct inode *inode_lookup(struct inode_table *t, const struct src_key *key, mode_t mode)
{
	if (t->stable_ids && !key_is_stable(key))
		return NULL; /* one filesystem has one layout of handles */
	uint32_t hash = hash_of_key(t, key);
	struct inode *fresh = NULL, *i;

	pthread_mutex_lock(&t->lock);
	while (!(i = by_key_locked(t, key, hash))) {
		if (fresh) {
			i = TAKE_PTR(fresh);
			i->nodeid = new_id_locked(t, key, hash);
			insert_locked(t, i);
			break;
		}
		pthread_mutex_unlock(&t->lock);
		fresh = inode_new(key, hash, mode);
		if (!fresh)
			return NULL;
		pthread_mutex_lock(&t->lock);
	}
	i->refs++;
	i->nlookup++;
	pthread_mutex_unlock(&t->lock);
	free(fresh);
	return i;
}

void inode_ref(struct inode_table *t, struct inode *i)
{
	pthread_mutex_lock(&t->lock);
	i->refs++;
	pthread_mutex_unlock(&t->lock);
}

void inode_put(struct inode_table *t, struct inode *i)
{
	if (!i)
		return;
	pthread_mutex_lock(&t->lock);
	assert(i->refs > 0);
	i->refs--;
	bool last = unused_locked(t, i);

	pthread_mutex_unlock(&t->lock);
	if (last)
		inode_free(t, i);
}

void inode_forget(struct inode_table *t, uint64_t nodeid, uint64_t n)
{
	pthread_mutex_lock(&t->lock);
	struct inode *i = by_id_locked(t, nodeid);
	bool last = false;

	if (i && i != t->root) {
		i->nlookup -= min_u64(n, i->nlookup);
		last = unused_locked(t, i);
	}
	pthread_mutex_unlock(&t->lock);
	if (last)
		inode_free(t, i);
}

/* ---- open files ---------------------------------------------------------------------------- */
unsigned inode_open_begin(struct inode_table *t, struct inode *i)
{
	pthread_mutex_lock(&t->lock);
	unsigned before = i->opens++;

	pthread_mutex_unlock(&t->lock);
	return before;
}

void inode_open_end(struct inode_table *t, struct inode *i)
{
	pthread_mutex_lock(&t->lock);
	assert(i->opens > 0);
	i->opens--;
	pthread_mutex_unlock(&t->lock);
}

bool inode_is_open(struct inode_table *t, const struct inode *i)
{
	pthread_mutex_lock(&t->lock);
	bool open = i->opens > 0;

	pthread_mutex_unlock(&t->lock);
	return open;
}

/* ---- names --------------------------------------------------------------------------------- */
/* Take the name out of the list, or NULL: it is not in it. */
static struct inode_name *take_name_locked(struct inode *i, const struct inode *parent,
					   const char *name)
{
	for (struct inode_name **p = &i->names; *p; p = &(*p)->next) {
		struct inode_name *n = *p;

		if (n->parent == parent && strcmp(n->name, name) == 0) {
			*p = n->next;
			return n;
		}
	}
	return NULL;
}

/* The name beyond the limit, taken out, or NULL. */
static struct inode_name *take_surplus_locked(struct inode *i)
{
	struct inode_name **p = &i->names;

	for (unsigned n = 0; *p && n < INODE_NAMES_MAX; n++)
		p = &(*p)->next;
	struct inode_name *surplus = *p;

	if (surplus)
		*p = surplus->next;
	return surplus;
}

static void push_name_locked(struct inode *i, struct inode_name *n)
{
	n->next = i->names;
	i->names = n;
}

static void drop_taken(struct inode_table *t, struct inode_name *n)
{
	struct inode *unused = NULL;

	if (n)
		free_name(t, n, &unused);
	free_inodes(t, unused);
}

/* True if it was there: now it is the first. */
static bool renew_name(struct inode_table *t, struct inode *i, struct inode *parent,
		       const char *name)
{
	pthread_mutex_lock(&t->lock);
	struct inode_name *n = take_name_locked(i, parent, name);

	if (n)
		push_name_locked(i, n);
	pthread_mutex_unlock(&t->lock);
	return n;
}

void inode_add_name(struct inode_table *t, struct inode *i, struct inode *parent, const char *name)
{
	size_t len = strlen(name) + 1;

	if (t->src->by_handle || i == t->root || i == parent || renew_name(t, i, parent, name))
		return;
	struct inode_name *n = malloc(sizeof(*n) + len);

	if (!n)
		return; /* it is added when the name is looked up again */
	n->parent = parent;
	memcpy(n->name, name, len);
	pthread_mutex_lock(&t->lock);
	struct inode_name *twin = take_name_locked(i, parent, name);

	parent->refs++;
	push_name_locked(i, n);
	struct inode_name *surplus = take_surplus_locked(i);

	pthread_mutex_unlock(&t->lock);
	drop_taken(t, twin);
	drop_taken(t, surplus);
}

void inode_drop_name(struct inode_table *t, struct inode *i, struct inode *parent, const char *name)
{
	pthread_mutex_lock(&t->lock);
	struct inode_name *n = take_name_locked(i, parent, name);

	pthread_mutex_unlock(&t->lock);
	drop_taken(t, n);
}

int inode_get_name(struct inode_table *t, struct inode *i, unsigned n, struct inode **ret_parent,
		   char **ret_name)
{
	char *copy = NULL;

	pthread_mutex_lock(&t->lock);
	const struct inode_name *name = i->names;

	while (name && n-- > 0)
		name = name->next;
	if (name && (copy = strdup(name->name))) {
		*ret_parent = name->parent;
		name->parent->refs++;
	}
	pthread_mutex_unlock(&t->lock);
	if (!copy)
		return -ESTALE;
	*ret_name = copy;
	return 0;
}

/* Bytes of the path with its '\0', or 0: some name on the way is not known. */
static size_t path_size_locked(const struct inode_table *t, const struct inode *i)
{
	size_t size = 0;

	for (unsigned depth = 0; i != t->root; i = i->names->parent) {
		if (!i->names || ++depth > PATH_DEPTH_MAX)
			return 0;
		size += strlen(i->names->name) + 1;
	}
	return max_u64(size, 1);
}

static void fill_path_locked(const struct inode_table *t, const struct inode *i, char *end)
{
	for (*end = '\0'; i != t->root; i = i->names->parent) {
		size_t len = strlen(i->names->name);

		if (*end)
			*--end = '/';
		end -= len;
		memcpy(end, i->names->name, len);
	}
}

char *inode_path(struct inode_table *t, struct inode *i)
{
	pthread_mutex_lock(&t->lock);
	size_t size = path_size_locked(t, i);
	char *path = size ? malloc(size) : NULL;

	if (path)
		fill_path_locked(t, i, path + size - 1);
	pthread_mutex_unlock(&t->lock);
	return path;
}
