/*
 * tree_entries.c - paths as directories, made as they are walked.
 *
 *      sorted paths                                 directories
 *      model/embed_tokens/weight                    model/ -> embed_tokens/ -> weight.npy, weight.txt
 *      model/layers/0/mlp/down_proj/weight                    layers/ -> 0/ -> …
 *      model/layers/1/mlp/down_proj/weight
 *
 * '/' sorts before every other byte, so that what lies below one name is one range, right behind a file of that
 * name. A directory is such a range and how many bytes of the paths are its own; filling it takes one pass over the
 * range.
 *
 * A tensor's name becomes a path at its dots. A part that cannot be the name of a file is escaped: control
 * characters, '/' and '%' as %XX, nothing as %00; more than 240 bytes are cut, with "%~" and a hash of the whole
 * behind. So no two tensors have one path, unless two hashes agree: then the directory is refused.
 */
#include "fs/tree_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 240, PART_CUT = 200 };

static unsigned char_order(char c)
{
	return c == '/' ? 1 : c == '\0' ? 0 : (unsigned)(unsigned char)c + 1;
}

static int compare_paths(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return (int)char_order(*a) - (int)char_order(*b);
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = compare_paths(x->path, y->path);

	return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int add_file(struct filling *filling, const char *name, const struct entry *entry, struct sl_error *err)
{
	struct node *node = filling_add(filling, name, entry->in_source ? NODE_SOURCE : NODE_FILE, err);

	if (!node)
		return -ENOMEM;
	node->view = entry->view;
	if (entry->in_source) {
		node->path = entry->path;
		node->size = entry->size;
		node->mtime = entry->mtime;
	} else {
		node->file = entry->file;
		node->size = entry->file->size;
	}
	return 0;
}

static int add_npy(struct filling *filling, const char *name, const struct entry *entry, struct sl_error *err)
{
	struct sl_file *file = sl_arena_alloc(&filling->tree->arena, sizeof(*file));
	struct node *node = filling_add(filling, name, NODE_FILE, err);
	int rc;

	if (!node || !file)
		return sl_fail(err, ENOMEM, "no memory for '%s'", SL_ESC(name));
	rc = sl_view_npy(entry->view, entry->tensor, &filling->tree->arena, file, err);
	if (rc)
		return rc;
	node->view = entry->view;
	node->tensor = entry->tensor;
	node->file = file;
	node->size = file->size;
	return 0;
}

static int add_text(struct filling *filling, const char *name, const struct entry *entry, struct sl_error *err)
{
	struct node *node = filling_add(filling, name, NODE_TEXT, err);
	char *text;
	size_t len;
	int rc;

	if (!node)
		return -ENOMEM;
	node->view = entry->view;
	node->tensor = entry->tensor;
	rc = text_make(&text, &len, filling->tree, node, false, err);
	if (rc)
		return rc;
	node->size = len;
	free(text);
	return 0;
}

static int add_leaf(struct filling *filling, const char *name, const struct entry *entry, struct sl_error *err)
{
	char suffixed[264];
	int rc;

	if (!entry->tensor)
		return add_file(filling, name, entry, err);
	snprintf(suffixed, sizeof(suffixed), "%s.npy", name);
	rc = add_npy(filling, suffixed, entry, err);
	if (rc)
		return rc;
	snprintf(suffixed, sizeof(suffixed), "%s.txt", name);
	return add_text(filling, suffixed, entry, err);
}

static int add_range(struct filling *filling, const char *name, const struct entry *entries, size_t n, size_t prefix,
		     struct sl_error *err)
{
	struct dir *dir = filling_add_dir(filling, name, DIR_ENTRIES, err);

	if (!dir)
		return -ENOMEM;
	dir->entries = entries;
	dir->n_entries = n;
	dir->prefix = prefix;
	return 0;
}

/* The entries whose paths have one name below the directory: files of that name first, then what is below it. */
struct group {
	const struct entry *entries;
	size_t n, n_files;
	size_t len;	/* of the name */
	uint32_t order; /* the smallest, where the listing shows it */
};

static struct group first_group(const struct entry *entries, size_t n, size_t prefix)
{
	const char *name = entries[0].path + prefix;
	struct group g = { .entries = entries, .len = strcspn(name, "/"), .order = entries[0].order };

	while (g.n < n && strncmp(entries[g.n].path + prefix, name, g.len) == 0) {
		char next = entries[g.n].path[prefix + g.len];

		if (next != '\0' && next != '/')
			break;
		g.n_files += next == '\0';
		g.order = entries[g.n].order < g.order ? entries[g.n].order : g.order;
		g.n++;
	}
	return g;
}

/* A tensor's files and the directory of its name do not meet, as the files have suffixes. Otherwise the smaller order
 * wins: what a view computes over what the source has. */
static int add_group(struct filling *filling, const struct group *g, size_t prefix, struct sl_error *err)
{
	bool by_tensor = g->entries[0].tensor, is_file = g->n_files > 0 && g->entries[0].order == g->order;
	char name[256];
	int rc = 0;

	if (g->len >= sizeof(name))
		return sl_fail(err, ENAMETOOLONG, "%s: a name is too long", SL_ESC(g->entries[0].path));
	memcpy(name, g->entries[0].path + prefix, g->len);
	name[g->len] = '\0';
	if (g->n_files > 0 && (by_tensor || is_file))
		rc = add_leaf(filling, name, &g->entries[0], err);
	if (rc == 0 && g->n > g->n_files && (by_tensor || !is_file))
		rc = add_range(filling, name, g->entries + g->n_files, g->n - g->n_files, prefix + g->len + 1, err);
	return rc;
}

static int compare_groups(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	return (x->order > y->order) - (x->order < y->order);
}

/* Children are added in the order of listings, which is not that of the paths. */
static int fill_range(struct filling *filling, const struct entry *entries, size_t n, size_t prefix,
		      struct sl_error *err)
{
	struct group *groups;
	size_t n_groups = 0;
	int rc = 0;

	if (n == 0)
		return 0;
	groups = calloc(n, sizeof(*groups));
	if (!groups)
		return sl_fail(err, ENOMEM, "no memory for the entries of a directory");
	for (size_t i = 0; i < n; i += groups[n_groups++].n)
		groups[n_groups] = first_group(entries + i, n - i, prefix);
	qsort(groups, n_groups, sizeof(*groups), compare_groups);
	for (size_t i = 0; rc == 0 && i < n_groups; i++)
		rc = add_group(filling, &groups[i], prefix, err);
	free(groups);
	return rc;
}

int fill_entries(struct filling *filling, struct sl_error *err)
{
	const struct dir *dir = filling->parent->dir;

	return fill_range(filling, dir->entries, dir->n_entries, dir->prefix, err);
}

int fill_sorted(struct filling *filling, struct entry *entries, size_t n, struct sl_error *err)
{
	if (n > 0)
		qsort(entries, n, sizeof(*entries), compare_entries);
	return fill_range(filling, entries, n, 0, err);
}

static size_t escape_part(char *out, const char *part, size_t len)
{
	char *at = out;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)part[i];

		if (c < 0x20 || c == 0x7F || c == '/' || c == '%')
			at += sprintf(at, "%%%02X", c);
		else
			*at++ = (char)c;
	}
	if (len == 0)
		at += sprintf(at, "%%00");
	return (size_t)(at - out);
}

static size_t cut_part(char *part, size_t len)
{
	uint64_t hash;
	size_t cut = PART_CUT;

	if (len <= PART_MAX)
		return len;
	part[len] = '\0';
	hash = inode_of_hash(inode_hash(INODE_HASH_INIT, part));
	while ((part[cut] & 0xC0) == 0x80)
		cut--;
	return cut + (size_t)sprintf(part + cut, "%%~%016llx", (unsigned long long)hash);
}

char *tree_tensor_path(struct sl_arena *arena, const char *name)
{
	/* Every byte may take three, and every part that is empty three more. */
	char *buf = malloc(6 * strlen(name) + 8), *at = buf, *path;

	if (!buf)
		return NULL;
	for (;; name++) {
		size_t len = strcspn(name, ".");

		at += cut_part(at, escape_part(at, name, len));
		name += len;
		if (*name == '\0')
			break;
		*at++ = '/';
	}
	path = sl_arena_strndup(arena, buf, (size_t)(at - buf));
	free(buf);
	return path;
}

static int check_distinct(const struct entry *entries, size_t n, struct sl_error *err)
{
	for (size_t i = 1; i < n; i++) {
		if (strcmp(entries[i - 1].path, entries[i].path) == 0)
			return sl_fail(err, EINVAL, "tensors '%s' and '%s' have the same path '%s'",
				       SL_ESC(entries[i - 1].tensor->name), SL_ESC(entries[i].tensor->name),
				       SL_ESC(entries[i].path));
	}
	return 0;
}

int fill_tensors(struct filling *filling, struct sl_error *err)
{
	struct tree *tree = filling->tree;
	const struct dir *dir = filling->parent->dir;
	const struct sl_view *view;
	struct entry *entries;
	int rc = tree_view(tree, dir, dir->stage, dir->rank, &view, err);

	if (rc == 0 && !tree->origins)
		rc = origins_open(&tree->origins, tree->model, err);
	if (rc)
		return rc;
	entries = sl_arena_array(&tree->arena, view->n_tensors, sizeof(*entries));
	if (!entries)
		return sl_fail(err, ENOMEM, "no memory for %u tensors", view->n_tensors);
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		const struct sl_output *tensor = &view->tensors[i];
		const char *path = tree_tensor_path(&tree->arena, tensor->name);

		if (!path)
			return sl_fail(err, ENOMEM, "no memory for %u tensors", view->n_tensors);
		entries[i] = (struct entry){ .path = path, .order = i, .view = view, .tensor = tensor };
	}
	rc = fill_sorted(filling, entries, view->n_tensors, err);
	return rc ? rc : check_distinct(entries, view->n_tensors, err);
}
