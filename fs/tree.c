/*
 * tree.c - nodes and directories: walking them, and filling them once.
 *
 * Filled directories are const, so lookups take no lock: a binary search by name. What is missing is made by one
 * thread at a time, which may plan a view for it.
 */
#include "fs/tree.h"
#include "fs/tree_impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fill_fn *const fillers[N_DIR_KINDS] = {
	[DIR_ROOT] = fill_root,	  [DIR_LIVE] = fill_live,   [DIR_SOURCE] = fill_source,	  [DIR_ENGINE] = fill_engine,
	[DIR_RANKS] = fill_ranks, [DIR_FILES] = fill_files, [DIR_TENSORS] = fill_tensors, [DIR_ENTRIES] = fill_entries,
};

static struct node *make_node(struct tree *tree, struct node *parent, const char *name, enum node_kind kind)
{
	struct node *node = sl_arena_alloc(&tree->arena, sizeof(*node));

	if (!node)
		return NULL;
	node->name = sl_arena_strdup(&tree->arena, name);
	node->parent = parent ? parent : node;
	node->kind = kind;
	node->mtime = tree->mtime;
	node->ino = parent ? inode_of_hash(inode_hash(parent->dir->hash, name)) : INODE_ROOT;
	return node->name ? node : NULL;
}

static struct dir *make_dir(struct tree *tree, struct node *node, enum dir_kind kind)
{
	const struct dir *above = node->parent->dir;
	struct dir *dir = sl_arena_alloc(&tree->arena, sizeof(*dir));

	if (!dir)
		return NULL;
	dir->kind = kind;
	dir->hash = INODE_HASH_INIT;
	if (above) {
		dir->hash = inode_hash(above->hash, node->name);
		dir->engine = above->engine;
		dir->by_tensor = above->by_tensor;
		dir->layout = above->layout;
		dir->stage = above->stage;
		dir->rank = above->rank;
	}
	node->dir = dir;
	return dir;
}

static bool filling_grow(struct filling *filling)
{
	size_t cap = filling->cap ? 2 * filling->cap : 16;
	struct node **nodes;

	if (filling->n < filling->cap)
		return true;
	nodes = reallocarray(filling->nodes, cap, sizeof(struct node *));
	if (!nodes)
		return false;
	filling->nodes = nodes;
	filling->cap = cap;
	return true;
}

struct node *filling_add(struct filling *filling, const char *name, enum node_kind kind, struct sl_error *err)
{
	struct node *node = make_node(filling->tree, filling->parent, name, kind);

	if (!node || !filling_grow(filling)) {
		sl_fail(err, ENOMEM, "no memory for the entries of '%s'", SL_ESC(filling->parent->name));
		return NULL;
	}
	filling->nodes[filling->n++] = node;
	return node;
}

struct dir *filling_add_dir(struct filling *filling, const char *name, enum dir_kind kind, struct sl_error *err)
{
	struct node *node = filling_add(filling, name, NODE_DIR, err);
	struct dir *dir = node ? make_dir(filling->tree, node, kind) : NULL;

	if (node && !dir)
		sl_fail(err, ENOMEM, "no memory for the directory '%s'", SL_ESC(name));
	return dir;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

static int publish(struct filling *filling, struct sl_error *err)
{
	struct tree *tree = filling->tree;
	struct listing *listing = sl_arena_alloc(&tree->arena, sizeof(*listing));
	size_t bytes = filling->n * sizeof(struct node *);
	int rc;

	if (listing) {
		listing->n = filling->n;
		listing->shown = sl_arena_alloc(&tree->arena, bytes);
		listing->sorted = sl_arena_alloc(&tree->arena, bytes);
	}
	if (!listing || !listing->shown || !listing->sorted)
		return sl_fail(err, ENOMEM, "no memory for the entries of '%s'", SL_ESC(filling->parent->name));
	if (bytes) {
		memcpy(listing->shown, filling->nodes, bytes);
		memcpy(listing->sorted, filling->nodes, bytes);
		qsort(listing->sorted, listing->n, sizeof(struct node *), compare_names);
	}
	rc = inodes_add(tree, listing->shown, listing->n, err);
	if (rc == 0)
		atomic_store_explicit(&filling->parent->dir->listing, listing, memory_order_release);
	return rc;
}

static int fill(struct tree *tree, struct node *node, struct sl_error *err)
{
	struct filling filling = { .tree = tree, .parent = node };
	int rc = 0;

	pthread_mutex_lock(&tree->filling);
	if (!atomic_load_explicit(&node->dir->listing, memory_order_relaxed)) {
		rc = fillers[node->dir->kind](&filling, err);
		if (rc == 0)
			rc = publish(&filling, err);
	}
	pthread_mutex_unlock(&tree->filling);
	free(filling.nodes);
	return rc;
}

static int listing_of(struct tree *tree, struct node *node, const struct listing **out, struct sl_error *err)
{
	int rc = 0;

	if (node->kind != NODE_DIR)
		return sl_fail(err, ENOTDIR, "'%s' is a file, not a directory", SL_ESC(node->name));
	if (!atomic_load_explicit(&node->dir->listing, memory_order_acquire))
		rc = fill(tree, node, err);
	if (rc)
		return rc;
	*out = atomic_load_explicit(&node->dir->listing, memory_order_acquire);
	return 0;
}

int tree_children(struct tree *tree, struct node *dir, struct node *const **children, size_t *n, struct sl_error *err)
{
	const struct listing *listing;
	int rc = listing_of(tree, dir, &listing, err);

	if (rc)
		return rc;
	*children = listing->shown;
	*n = listing->n;
	return 0;
}

static struct node *find_listed(const struct listing *listing, const char *name)
{
	size_t low = 0, high = listing->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(name, listing->sorted[mid]->name);

		if (order == 0)
			return listing->sorted[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

static struct node *find_unlisted(const struct dir *dir, const char *name)
{
	const struct unlisted *u = atomic_load_explicit(&dir->unlisted, memory_order_acquire);

	while (u && strcmp(u->node->name, name) != 0)
		u = u->next;
	return u ? u->node : NULL;
}

/* A child that comes into being when it is asked for. Under the lock. */
static int add_unlisted(struct tree *tree, struct node *engine, const char *name, const struct sl_layout *layout,
			struct sl_error *err)
{
	struct filling filling = { .tree = tree, .parent = engine };
	struct unlisted *unlisted = sl_arena_alloc(&tree->arena, sizeof(*unlisted));
	int rc;

	if (!unlisted)
		return sl_fail(err, ENOMEM, "no memory for the directory '%s'", name);
	rc = fill_layout(&filling, name, layout, err);
	if (rc == 0)
		rc = inodes_add(tree, filling.nodes, 1, err);
	if (rc == 0) {
		unlisted->node = filling.nodes[0];
		unlisted->next = atomic_load_explicit(&engine->dir->unlisted, memory_order_relaxed);
		atomic_store_explicit(&engine->dir->unlisted, unlisted, memory_order_release);
	}
	free(filling.nodes);
	return rc;
}

static int lookup_layout(struct tree *tree, struct node *engine, const char *name, struct node **out,
			 struct sl_error *err)
{
	struct sl_layout layout;
	int rc;

	*out = find_unlisted(engine->dir, name);
	if (*out)
		return 0;
	rc = layout_find(tree, engine->dir, name, &layout, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&tree->filling);
	if (!find_unlisted(engine->dir, name))
		rc = add_unlisted(tree, engine, name, &layout, err);
	*out = find_unlisted(engine->dir, name);
	pthread_mutex_unlock(&tree->filling);
	return rc;
}

/* `inside` is what is wanted of it, for the reason why it is refused. */
static int lookup(struct tree *tree, struct node *dir, const char *name, const char *inside, struct node **out,
		  struct sl_error *err)
{
	const struct listing *listing;
	char path[512];
	int rc = listing_of(tree, dir, &listing, err);

	if (rc)
		return rc;
	*out = find_listed(listing, name);
	if (*out)
		return 0;
	if (dir->dir->kind == DIR_ROOT || dir->dir->kind == DIR_ENGINE)
		rc = engine_refused(tree, dir->dir, name, inside, err);
	if (rc)
		return rc;
	if (dir->dir->kind == DIR_ENGINE)
		return lookup_layout(tree, dir, name, out, err);
	return sl_fail(err, ENOENT, "there is no '%s' in %s", SL_ESC(name),
		       dir == tree->root ? "the tree" : SL_ESC(tree_node_path(dir, path, sizeof(path))));
}

int tree_lookup(struct tree *tree, struct node *dir, const char *name, struct node **out, struct sl_error *err)
{
	return lookup(tree, dir, name, "", out, err);
}

int tree_path(struct tree *tree, const char *path, struct node **out, struct sl_error *err)
{
	struct node *node = tree->root;
	char name[256];

	while (*path) {
		size_t len = strcspn(path, "/");
		int rc;

		if (len >= sizeof(name))
			return sl_fail(err, ENAMETOOLONG, "%s: a name has at most %zu bytes", SL_ESC(path),
				       sizeof(name) - 1);
		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		if (len == 0 || strcmp(name, ".") == 0)
			continue;
		rc = lookup(tree, node, name, path, &node, err);
		if (rc)
			return rc;
	}
	*out = node;
	return 0;
}

const char *tree_node_path(const struct node *node, char *buf, size_t size)
{
	size_t used;

	if (node->parent == node || node->parent->parent == node->parent) {
		snprintf(buf, size, "%s", node->name);
		return buf;
	}
	tree_node_path(node->parent, buf, size);
	used = strlen(buf);
	snprintf(buf + used, size - used, "/%s", node->name);
	return buf;
}

void tree_stat(const struct tree *tree, const struct node *node, struct stat *st)
{
	bool is_dir = node->kind == NODE_DIR;

	*st = (struct stat){
		.st_ino = node->ino,
		.st_mode = is_dir ? S_IFDIR | 0555 : S_IFREG | 0444,
		/* Directories count no sub-directories: 1 is how that is said (find then looks itself). */
		.st_nlink = 1,
		.st_uid = tree->uid,
		.st_gid = tree->gid,
		.st_size = (off_t)node->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)((node->size + 511) / 512),
		.st_atim = node->mtime,
		.st_mtim = node->mtime,
		.st_ctim = node->mtime,
	};
}

static struct timespec newest_shard(const struct sl_model *model)
{
	int64_t newest = 0;

	for (uint32_t i = 0; i < model->shards.n_shards; i++) {
		if (model->shards.shards[i].mtime_ns > newest)
			newest = model->shards.shards[i].mtime_ns;
	}
	return (struct timespec){ .tv_sec = newest / 1000000000, .tv_nsec = newest % 1000000000 };
}

static bool copy_option(struct tree *tree, const char **option)
{
	if (!*option)
		return true;
	*option = sl_arena_strdup(&tree->arena, *option);
	return *option;
}

static int open_root(struct tree *tree, struct sl_error *err)
{
	struct tree_options *options = &tree->options;
	struct stat st;

	tree->root = make_node(tree, NULL, "", NODE_DIR);
	if (!tree->root || !make_dir(tree, tree->root, DIR_ROOT) || !copy_option(tree, &options->engine) ||
	    !copy_option(tree, &options->layout) || !copy_option(tree, &options->mountpoint))
		return sl_fail(err, ENOMEM, "no memory for the tree");
	if (options->mountpoint && stat(options->mountpoint, &st) == 0) {
		tree->mount_dev = st.st_dev;
		tree->mount_ino = st.st_ino;
	}
	return tree_check_options(tree, err);
}

static char *default_live(void *context, const char *what)
{
	(void)context, (void)what;
	return strdup("nothing is mounted\n");
}

int tree_open(struct tree **out, const struct sl_model *model, const struct tree_options *options, struct sl_error *err)
{
	struct tree *tree = calloc(1, sizeof(*tree));
	int rc;

	*out = NULL;
	if (!tree)
		return sl_fail(err, ENOMEM, "no memory for the tree");
	tree->model = model;
	tree->options = *options;
	tree->uid = getuid();
	tree->gid = getgid();
	tree->mtime = newest_shard(model);
	tree->live = default_live;
	sl_arena_init(&tree->arena);
	pthread_mutex_init(&tree->filling, NULL);
	pthread_rwlock_init(&tree->numbering, NULL);
	tree->verdicts = verdicts_new();
	rc = tree->verdicts ? open_root(tree, err) : sl_fail(err, ENOMEM, "no memory for the tree");
	if (rc)
		tree_close(tree);
	else
		*out = tree;
	return rc;
}

void tree_close(struct tree *tree)
{
	struct planned *next;

	if (!tree)
		return;
	for (struct planned *p = tree->views; p; p = next) {
		next = p->next;
		sl_view_close(p->view);
	}
	origins_close(tree->origins);
	free(tree->passed);
	free(tree->by_ino);
	verdicts_free(tree->verdicts);
	pthread_mutex_destroy(&tree->filling);
	pthread_rwlock_destroy(&tree->numbering);
	sl_arena_release(&tree->arena);
	free(tree);
}

const struct sl_model *tree_model(const struct tree *tree)
{
	return tree->model;
}

struct node *tree_root(struct tree *tree)
{
	return tree->root;
}

void tree_set_live(struct tree *tree, tree_live_fn *fn, void *context)
{
	tree->live = fn;
	tree->live_context = context;
}
