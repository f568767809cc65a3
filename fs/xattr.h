/*
 * xattr.h - the extended attributes of a node: user.rankfs.{dtype,shape,source,mode}.
 *
 *      $ getfattr -d /mnt/qwen/tensors/tp8/rank-3/model/layers/0/self_attn/qkv_proj/weight.npy
 *      user.rankfs.dtype="BF16"
 *      user.rankfs.mode="streamed"
 *      user.rankfs.shape="640,4096"
 *      user.rankfs.source="model-00001-of-00030.safetensors:81920+4194304 …"
 *
 * mode is streamed, passed through or live (serve.h). dtype and shape are of files that show one tensor. A piece of the source is FILE:OFFSET+BYTES, and xCOUNT/STRIDE where
 * there are several runs; pieces that have no source are zero+BYTES and data+BYTES.
 */
#ifndef FS_XATTR_H
#define FS_XATTR_H

#include "fs/serve.h"
#include "fs/tree.h"
#include <stddef.h>

/* The value, malloc'ed and without a terminator that counts: 0; -ENODATA when the node has no such attribute; -ENOMEM.
 * `mode` is that of the node's open files or, when there are none, of its next one. */
int xattr_get(const struct node *node, enum serve_mode mode, const char *name, char **value, size_t *len) SL_MUST_CHECK;

/* The names that this node has, each with its NUL, as listxattr(2) gives them. */
int xattr_list(const struct node *node, char **names, size_t *len) SL_MUST_CHECK;

#endif
