/*
 * tree_inodes.c - inode numbers: a hash of the path, so that they are the same at every mount, and the table from
 * number to node.
 *
 * On a collision the later node takes the next free number. With 64 bits that needs some billion nodes to be
 * likely, but it must not break anything.
 */
#include "fs/tree_impl.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_CAP = 256 };

/* FNV-1a over the path, so that a child's hash goes on from its directory's. */
uint64_t inode_hash(uint64_t hash, const char *name)
{
	const uint64_t prime = UINT64_C(0x100000001B3);

	hash = (hash ^ '/') * prime;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * prime;
	return hash;
}

/* FNV's upper bits depend little on the last letters: finish as MurmurHash3 does. */
uint64_t inode_of_hash(uint64_t hash)
{
	hash = (hash ^ hash >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
	hash = (hash ^ hash >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
	return hash ^ hash >> 33;
}

static size_t find_slot(const struct tree *tree, uint64_t ino)
{
	size_t mask = tree->ino_cap - 1, slot = ino & mask;

	while (tree->by_ino[slot] && tree->by_ino[slot]->ino != ino)
		slot = (slot + 1) & mask;
	return slot;
}

static int reserve(struct tree *tree, size_t n, struct sl_error *err)
{
	size_t cap = tree->ino_cap ? tree->ino_cap : FIRST_CAP, old_cap = tree->ino_cap;
	struct node **grown, **old = tree->by_ino;

	while (cap / 2 < tree->n_inos + n)
		cap *= 2;
	if (cap == old_cap)
		return 0;
	grown = calloc(cap, sizeof(struct node *));
	if (!grown)
		return sl_fail(err, ENOMEM, "no memory for %zu inode numbers", cap);
	tree->by_ino = grown;
	tree->ino_cap = cap;
	for (size_t i = 0; i < old_cap; i++) {
		if (old[i])
			grown[find_slot(tree, old[i]->ino)] = old[i];
	}
	free(old);
	return 0;
}

/* 0 is no inode, and the root's is taken. */
static void add(struct tree *tree, struct node *node)
{
	while (node->ino <= INODE_ROOT || tree->by_ino[find_slot(tree, node->ino)])
		node->ino++;
	tree->by_ino[find_slot(tree, node->ino)] = node;
	tree->n_inos++;
}

int inodes_add(struct tree *tree, struct node *const *nodes, size_t n, struct sl_error *err)
{
	int rc;

	pthread_rwlock_wrlock(&tree->numbering);
	rc = reserve(tree, n, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		add(tree, nodes[i]);
	pthread_rwlock_unlock(&tree->numbering);
	return rc;
}

struct node *tree_by_ino(struct tree *tree, uint64_t ino)
{
	struct node *node;

	if (ino == INODE_ROOT)
		return tree->root;
	pthread_rwlock_rdlock(&tree->numbering);
	node = tree->ino_cap ? tree->by_ino[find_slot(tree, ino)] : NULL;
	pthread_rwlock_unlock(&tree->numbering);
	return node;
}
