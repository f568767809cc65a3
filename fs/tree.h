/*
 * tree.h - the names under the mount, without FUSE: the mount, `cat`, `plan` and `export` walk the same tree.
 *
 *      /README.txt  /source/…  /vllm/{layout}/…  /hf/{layout}/rank-{r}/…  /airllm/…  /tensors/{layout}/rank-{r}/a/b/weight.{npy,txt}
 *      /.rankfs/{status,stats,settings,version}
 *
 * Nodes are made when they are first looked up or listed, and kept until tree_close(): a pointer stays good. A
 * directory's children are made all at once (views are planned then), but for layouts, where a name that is not listed
 * may exist too. All functions are thread-safe; a directory is filled under a lock of the tree, reading takes none.
 *
 * Inode numbers are a hash of the path, so they are the same at every mount; 1 is the root.
 */
#ifndef FS_TREE_H
#define FS_TREE_H

#include "slicer/error.h"
#include "slicer/file.h"
#include "slicer/model.h"
#include "slicer/view.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

enum node_kind {
	NODE_DIR,
	NODE_FILE,   /* a virtual file of pieces: node->file */
	NODE_SOURCE, /* the same bytes as a file of the source: node->path, relative to the source directory */
	NODE_TEXT,   /* text computed when it is opened, of a size known before (README.txt, weight.txt) */
	NODE_LIVE, /* text that changes (.rankfs/status): as in /proc its size shows as 0, and it is read to its end */
};

struct node {
	uint64_t ino;
	const char *name;
	struct node *parent; /* the root's is itself */
	enum node_kind kind;
	uint64_t size;
	struct timespec mtime;
	const struct sl_file *file;	/* NODE_FILE */
	const char *path;		/* NODE_SOURCE */
	const struct sl_output *tensor; /* files that show one tensor: its .npy and .txt, for the xattrs; else NULL */
	const struct sl_view *view;	/* files of a view; else NULL */
	struct dir *dir;		/* NODE_DIR: private to tree.c */
	/* What has been done with it, for status; relaxed atomics. */
	_Atomic uint64_t n_opens, n_reads, bytes_read, n_errors;
};

struct tree_options {
	const char *engine; /* show only this engine's directory (-o engine=vllm); NULL: all */
	const char *layout; /* show only this layout (-o tp=8); NULL: all that make sense */
	struct sl_view_options view;
	const char *mountpoint; /* for README.txt; NULL: none */
};

struct tree;

/* The model must outlive the tree; the tree owns the views that it plans. */
int tree_open(struct tree **out, const struct sl_model *model, const struct tree_options *options,
	      struct sl_error *err) SL_MUST_CHECK;
void tree_close(struct tree *tree);

const struct sl_model *tree_model(const struct tree *tree);
struct node *tree_root(struct tree *tree);

/* The node with that inode number, which some earlier lookup returned; NULL otherwise. */
struct node *tree_by_ino(struct tree *tree, uint64_t ino);

/* The child `name` of `dir`. -ENOENT; -ENOTDIR; -EINVAL with a sentence when the name is a layout that this model cannot
 * have. */
int tree_lookup(struct tree *tree, struct node *dir, const char *name, struct node **out,
		struct sl_error *err) SL_MUST_CHECK;

/* Walk a path of names joined by '/' from the root. "" and "/" are the root. */
int tree_path(struct tree *tree, const char *path, struct node **out, struct sl_error *err) SL_MUST_CHECK;

/* The children that a listing shows, in order (weight files in the engine's order of execution). The array belongs to
 * the tree and stays good. */
int tree_children(struct tree *tree, struct node *dir, struct node *const **children, size_t *n,
		  struct sl_error *err) SL_MUST_CHECK;

/* Fill `st` (st_dev excepted): owner and mode as DESIGN says: 0444 and 0555, owned by the mounter, 4096-byte blocks. */
void tree_stat(const struct tree *tree, const struct node *node, struct stat *st);

/* A path of the mount, for messages: "vllm/tp2/config.json". Returns `buf`. */
const char *tree_node_path(const struct node *node, char *buf, size_t size);

/* An open file. */
struct handle {
	struct node *node;
	int fd;	    /* NODE_SOURCE: open read-only and verified; else -1 */
	char *text; /* NODE_TEXT, NODE_LIVE: malloc'ed */
	size_t text_len;
};

int handle_open(struct handle *handle, struct tree *tree, struct node *node, struct sl_error *err) SL_MUST_CHECK;
/* As sl_file_read(); counts into the node. */
ssize_t handle_read(struct handle *handle, void *buf, uint64_t off, size_t len, struct sl_error *err) SL_MUST_CHECK;
void handle_close(struct handle *handle);

/* How the serving side fills NODE_LIVE files: set once, before the mount is used. `what` is the file's name; returns
 * malloc'ed text, or NULL without memory. Default: text that says that nothing is mounted. */
typedef char *tree_live_fn(void *context, const char *what);
void tree_set_live(struct tree *tree, tree_live_fn *fn, void *context);

/* Layouts that a listing of `engine` shows for this model: those of tp 1, 2, 4, 8 (and 16) that it can have. */
size_t tree_layouts(const struct tree *tree, const struct sl_engine *engine, struct sl_layout *layouts, size_t max);

#endif
