/*
 * tree_source.c - the source directory: shown as it is below source/, and in part beside each engine's weights.
 *
 * Symbolic links are followed, since a snapshot of a download cache consists of them; what they lead to must be a
 * regular file or a directory that is not above them. What cannot be looked at (a dangling link) is left out. The
 * directory that is mounted over may lie in the source: it is known by the inode number that its entry has, and
 * never touched, because looking at it would mean waiting for ourselves.
 */
#include "fs/tree_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How deep files that an engine's directories show may lie. */
enum { PASSED_DEPTH = 4 };

struct found {
	char name[NAME_MAX + 1];
	bool is_dir;
	uint64_t size;
	struct timespec mtime;
	struct source_id id;
};

struct found_list {
	struct found *found;
	size_t n, cap;
};

/* O_NONBLOCK: a file that has become a FIFO meanwhile must not hold us up. */
int source_open(const struct tree *tree, const char *path, int flags, struct sl_error *err)
{
	int fd = openat(tree->model->shards.dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);

	if (fd < 0)
		return sl_fail(err, errno, "%s: cannot be opened: %s", SL_ESC(path), strerror(errno));
	return fd;
}

static bool is_above(const struct source_id *id, const struct stat *st)
{
	while (id && (id->dev != st->st_dev || id->ino != st->st_ino))
		id = id->up;
	return id;
}

static bool grow(struct found_list *list)
{
	size_t cap = list->cap ? 2 * list->cap : 32;
	struct found *found;

	if (list->n < list->cap)
		return true;
	found = reallocarray(list->found, cap, sizeof(*found));
	if (!found)
		return false;
	list->found = found;
	list->cap = cap;
	return true;
}

static int add_found(struct found_list *list, const char *name, const struct stat *st, const struct source_id *up,
		     struct sl_error *err)
{
	struct found *found;

	if (!grow(list))
		return sl_fail(err, ENOMEM, "no memory for the names of a directory");
	found = &list->found[list->n++];
	*found = (struct found){
		.is_dir = S_ISDIR(st->st_mode),
		.size = (uint64_t)st->st_size,
		.mtime = st->st_mtim,
		.id = { st->st_dev, st->st_ino, up },
	};
	snprintf(found->name, sizeof(found->name), "%s", name);
	return 0;
}

static bool is_mountpoint(const struct tree *tree, const struct source_id *dir, const struct dirent *entry)
{
	return tree->mount_ino == entry->d_ino && tree->mount_dev == dir->dev && tree->mount_ino != 0;
}

static int read_entries(const struct tree *tree, DIR *stream, const struct source_id *id, struct found_list *list,
			struct sl_error *err)
{
	struct dirent *entry;
	struct stat st;
	int rc = 0;

	for (errno = 0; rc == 0 && (entry = readdir(stream)); errno = 0) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		    is_mountpoint(tree, id, entry) || fstatat(dirfd(stream), entry->d_name, &st, 0) != 0)
			continue;
		if (S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && !is_above(id, &st)))
			rc = add_found(list, entry->d_name, &st, id, err);
	}
	if (rc == 0 && errno)
		rc = sl_fail(err, errno, "the directory cannot be read: %s", strerror(errno));
	return rc;
}

static int compare_found(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

/* What is in one directory, by name. The caller frees list->found, on failure too. */
static int list_directory(const struct tree *tree, const char *path, const struct source_id *id,
			  struct found_list *list, struct sl_error *err)
{
	int fd = source_open(tree, path, O_DIRECTORY, err), rc;
	DIR *stream;

	if (fd < 0)
		return fd;
	stream = fdopendir(fd);
	if (!stream) {
		close(fd);
		return sl_fail(err, ENOMEM, "no memory to read a directory");
	}
	rc = read_entries(tree, stream, id, list, err);
	closedir(stream);
	if (rc)
		return sl_error_prefix(err, "%s", SL_ESC(path));
	if (list->n > 0)
		qsort(list->found, list->n, sizeof(list->found[0]), compare_found);
	return 0;
}

static int top_id(const struct tree *tree, struct source_id *id, struct sl_error *err)
{
	struct stat st;

	if (fstat(tree->model->shards.dirfd, &st))
		return sl_fail(err, errno, "the source directory cannot be looked at: %s", strerror(errno));
	*id = (struct source_id){ st.st_dev, st.st_ino, NULL };
	return 0;
}

static char *join(struct sl_arena *arena, const char *dir, const char *name)
{
	if (strcmp(dir, ".") == 0)
		return sl_arena_strdup(arena, name);
	return sl_arena_printf(arena, "%s/%s", dir, name);
}

static int show_found(struct filling *filling, const struct found *found, struct sl_error *err)
{
	struct sl_arena *arena = &filling->tree->arena;
	const char *path = join(arena, filling->parent->dir->path, found->name);
	struct source_id *id = sl_arena_alloc(arena, sizeof(*id));
	struct dir *dir;
	struct node *node;

	if (!path || !id)
		return sl_fail(err, ENOMEM, "no memory for the entries of a directory");
	*id = found->id;
	if (found->is_dir) {
		dir = filling_add_dir(filling, found->name, DIR_SOURCE, err);
		if (!dir)
			return -ENOMEM;
		dir->path = path;
		dir->id = id;
		return 0;
	}
	node = filling_add(filling, found->name, NODE_SOURCE, err);
	if (!node)
		return -ENOMEM;
	node->path = path;
	node->size = found->size;
	node->mtime = found->mtime;
	return 0;
}

int fill_source(struct filling *filling, struct sl_error *err)
{
	struct dir *dir = filling->parent->dir;
	struct found_list list = { 0 };
	struct source_id *top;
	int rc = 0;

	if (!dir->id) {
		top = sl_arena_alloc(&filling->tree->arena, sizeof(*top));
		rc = top ? top_id(filling->tree, top, err) : sl_fail(err, ENOMEM, "no memory for source/");
		if (rc)
			return rc;
		dir->id = top;
	}
	rc = list_directory(filling->tree, dir->path, dir->id, &list, err);
	for (size_t i = 0; rc == 0 && i < list.n; i++)
		rc = show_found(filling, &list.found[i], err);
	free(list.found);
	return rc;
}

static int add_passed(struct tree *tree, const char *path, const struct found *found, struct sl_error *err)
{
	struct entry *passed;

	/* Doubled whenever the number is a power of two. */
	if ((tree->n_passed & (tree->n_passed - 1)) == 0) {
		passed = reallocarray(tree->passed, tree->n_passed ? 2 * tree->n_passed : 1, sizeof(*passed));
		if (!passed)
			return sl_fail(err, ENOMEM, "no memory for the source's files");
		tree->passed = passed;
	}
	tree->passed[tree->n_passed++] = (struct entry){
		.path = path,
		.in_source = true,
		.size = found->size,
		.mtime = found->mtime,
	};
	return 0;
}

static int scan(struct tree *tree, const char *path, const struct source_id *id, unsigned depth, struct sl_error *err);

/* A sub-directory that may not be read has nothing to show; its parent still has. */
static int scan_found(struct tree *tree, const char *path, const struct found *found, unsigned depth,
		      struct sl_error *err)
{
	const char *below = join(&tree->arena, path, found->name);
	struct sl_error error = SL_ERROR_INIT;
	int rc;

	if (!below)
		return sl_fail(err, ENOMEM, "no memory for the source's files");
	if (!found->is_dir)
		return sl_view_passes(below) ? add_passed(tree, below, found, err) : 0;
	if (depth == PASSED_DEPTH || found->name[0] == '.')
		return 0;
	rc = scan(tree, below, &found->id, depth + 1, &error);
	if (rc == 0 || rc == -EACCES)
		return 0;
	return sl_fail(err, -rc, "%s", error.text);
}

static int scan(struct tree *tree, const char *path, const struct source_id *id, unsigned depth, struct sl_error *err)
{
	struct found_list list = { 0 };
	int rc = list_directory(tree, path, id, &list, err);

	for (size_t i = 0; rc == 0 && i < list.n; i++)
		rc = scan_found(tree, path, &list.found[i], depth, err);
	free(list.found);
	return rc;
}

int tree_scan_passed(struct tree *tree, struct sl_error *err)
{
	struct source_id top;
	int rc;

	if (tree->scanned)
		return 0;
	tree->n_passed = 0;
	rc = top_id(tree, &top, err);
	if (rc == 0)
		rc = scan(tree, ".", &top, 0, err);
	tree->scanned = rc == 0;
	return rc;
}
