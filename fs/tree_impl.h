/*
 * tree_impl.h - what tree.c and the files that fill its directories share. Private to fs/tree*.c.
 *
 * A directory is filled by the function of its kind, under tree->filling, into a `struct filling`; dir_publish() then
 * gives the new nodes their inode numbers and makes them visible with one release store, so that readers need no
 * lock:
 *
 *      node (NODE_DIR) -> dir -> listing -> shown[]    in the order of listings
 *                          |             -> sorted[]   by name, for lookups
 *                          `---> unlisted -> unlisted -> NULL     layouts that a listing does not show
 *
 * All memory is the tree's arena, which only a filler allocates from.
 */
#ifndef FS_TREE_IMPL_H
#define FS_TREE_IMPL_H

#include "fs/origin.h"
#include "fs/tree.h"
#include <pthread.h>

enum dir_kind {
	DIR_ROOT,
	DIR_LIVE,    /* .rankfs */
	DIR_SOURCE,  /* source/ and below */
	DIR_ENGINE,  /* layouts */
	DIR_RANKS,   /* of a layout: ranks */
	DIR_FILES,   /* of a layout or a rank: what an engine opens */
	DIR_TENSORS, /* of a rank: tensors by name */
	DIR_ENTRIES, /* below the last two: a range of the same entries */
	N_DIR_KINDS
};

struct listing {
	struct node **shown, **sorted;
	size_t n;
};

struct unlisted {
	struct unlisted *next;
	struct node *node;
};

/* A directory of the source, and those above it: a symbolic link back to one of them is left out. */
struct source_id {
	dev_t dev;
	ino_t ino;
	const struct source_id *up;
};

/* A file at a path below a directory. Sorted by path, so that what lies below one name is one range. */
struct entry {
	const char *path;
	uint32_t order; /* of listings; of two entries for one name the smaller wins */
	bool in_source; /* a NODE_SOURCE: path is that in the source too */
	uint64_t size;	/* in_source */
	struct timespec mtime;
	const struct sl_view *view;
	const struct sl_file *file;	/* a NODE_FILE */
	const struct sl_output *tensor; /* a tensor: PATH.npy and PATH.txt */
};

struct dir {
	enum dir_kind kind;
	uint64_t hash; /* of its path */
	struct listing *_Atomic listing;
	struct unlisted *_Atomic unlisted;
	/* DIR_ENGINE and below. */
	const struct sl_engine *engine;
	bool by_tensor; /* tensors/ */
	struct sl_layout layout;
	unsigned stage, rank;
	/* DIR_SOURCE. */
	const char *path; /* "." for the top */
	const struct source_id *id;
	/* DIR_ENTRIES. */
	const struct entry *entries;
	size_t n_entries, prefix;
};

struct planned {
	struct planned *next;
	struct sl_view *view;
};

struct tree {
	const struct sl_model *model;
	struct tree_options options;
	uid_t uid;
	gid_t gid;
	struct timespec mtime; /* of the newest shard */
	struct node *root;
	dev_t mount_dev; /* of the directory that is mounted over, as long as nothing is */
	ino_t mount_ino;

	pthread_mutex_t filling; /* guards what follows up to the next lock */
	struct sl_arena arena;
	struct planned *views;
	struct origins *origins; /* opened with the first directory of tensors, const from then on */
	struct entry *passed;	 /* files of the source that every engine's directories show too */
	size_t n_passed;
	bool scanned;

	struct verdicts *verdicts; /* has a lock of its own */

	pthread_rwlock_t numbering;
	struct node **by_ino; /* open addressing; a power of two, at most half full */
	size_t ino_cap, n_inos;

	tree_live_fn *live;
	void *live_context;
};

/* The children of one directory as they are made. */
struct filling {
	struct tree *tree;
	struct node *parent;
	struct node **nodes;
	size_t n, cap;
};

typedef int fill_fn(struct filling *filling, struct sl_error *err);

/* To fill a kind of directory: a function here and a row in tree.c. */
fill_fn fill_root, fill_live, fill_engine, fill_ranks, fill_files; /* tree_layouts.c */
fill_fn fill_source;						   /* tree_source.c */
fill_fn fill_tensors, fill_entries;				   /* tree_entries.c */

/* Add a child, shown after those that are there. The name is copied. NULL without memory, which sets `err`. */
struct node *filling_add(struct filling *filling, const char *name, enum node_kind kind, struct sl_error *err);
/* The same for a directory: returns its `dir`, engine, layout, rank and path inherited from the parent's. */
struct dir *filling_add_dir(struct filling *filling, const char *name, enum dir_kind kind, struct sl_error *err);

/* Numbers for new nodes, whose .ino is what inode_of_hash() gave. Under tree->filling. */
#define INODE_ROOT	1
#define INODE_HASH_INIT UINT64_C(0xCBF29CE484222325)
uint64_t inode_hash(uint64_t hash, const char *name);
uint64_t inode_of_hash(uint64_t hash);
int inodes_add(struct tree *tree, struct node *const *nodes, size_t n, struct sl_error *err) SL_MUST_CHECK;

/* The only layout that the options let through, or all of the model when they say none. -EINVAL when the engine has no
 * such layout; "tp8" is every engine's that has any: each has its own word for it. */
int only_layout(const struct tree *tree, const struct sl_engine *engine, struct sl_layout *layout,
		struct sl_error *err) SL_MUST_CHECK;
/* The layout that `name` is below an engine's directory: -ENOENT for none, -EINVAL for one that cannot be had. */
int layout_find(const struct tree *tree, const struct dir *engine, const char *name, struct sl_layout *layout,
		struct sl_error *err) SL_MUST_CHECK;
/* Add its directory. */
int fill_layout(struct filling *filling, const char *name, const struct sl_layout *layout,
		struct sl_error *err) SL_MUST_CHECK;
/* Does the tree show that engine? One that can hold the model, in the layout of the options if they say one. */
bool shows_engine(const struct tree *tree, const struct sl_engine *engine);
/* Is `name` the directory of an engine inside `dir` that cannot be had? -EINVAL with the reason, for the layout that `inside` begins
 * with, the path that is wanted there. */
int engine_refused(const struct tree *tree, const struct dir *dir, const char *name, const char *inside,
		   struct sl_error *err) SL_MUST_CHECK;
/* sl_layout_check(), which looks at every tensor, asked once for each of an engine's usual layouts. */
int tree_check_layout(const struct tree *tree, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err) SL_MUST_CHECK;
/* n_usual_layouts(), with that. */
unsigned tree_n_usual(const struct tree *tree, const struct sl_engine *engine);
struct verdicts *verdicts_new(void);
void verdicts_free(struct verdicts *verdicts);

/* Is there anything to show with these options? */
int tree_check_options(const struct tree *tree, struct sl_error *err) SL_MUST_CHECK;

/* The view of a stage and rank of dir's engine and layout, planned once. */
int tree_view(struct tree *tree, const struct dir *dir, unsigned stage, unsigned rank, const struct sl_view **out,
	      struct sl_error *err) SL_MUST_CHECK;

/* Add children for entries, which are sorted by path first. */
int fill_sorted(struct filling *filling, struct entry *entries, size_t n, struct sl_error *err) SL_MUST_CHECK;

/* The path of a tensor's files, without their suffixes: in the arena, NULL without memory. */
char *tree_tensor_path(struct sl_arena *arena, const char *name);

/* Fill tree->passed, once. */
int tree_scan_passed(struct tree *tree, struct sl_error *err) SL_MUST_CHECK;

/* A source file, or directory when it is "." or below it, opened read-only. Returns the descriptor or -errno. */
int source_open(const struct tree *tree, const char *path, int flags, struct sl_error *err) SL_MUST_CHECK;

/* The text of README.txt or of a tensor's weight.txt, malloc'ed. Without `values` those fields are blank: the same
 * length, and nothing is read. */
int text_make(char **text, size_t *len, const struct tree *tree, const struct node *node, bool values,
	      struct sl_error *err) SL_MUST_CHECK;

/* "rank-3", or "pp-1-rank-3" where there are stages. */
const char *rank_name(char *buf, size_t size, const struct sl_layout *layout, unsigned stage, unsigned rank);

#endif
