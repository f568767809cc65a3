/*
 * header.h - one safetensors file: u64 LE N | N bytes of JSON | data.
 *
 * The rules are the reference implementation's (huggingface/safetensors, tensor.rs) made strict: every tensor's bytes
 * lie in the data, together they cover it without hole or overlap, names are unique, sizes equal shape times dtype.
 */
#ifndef SLICER_HEADER_H
#define SLICER_HEADER_H

#include "slicer/arena.h"
#include "slicer/dtype.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

#define SL_HEADER_MAX 100000000u /* bytes of JSON, the reference's own cap */
#define SL_NAME_MAX   4096u	 /* bytes of a tensor's name */
#define SL_DIMS_MAX   16u

/* A tensor as it is stored. */
struct sl_tensor {
	const char *name;      /* valid UTF-8 without NUL */
	const uint64_t *shape; /* n_dims of them; n_dims 0 is a scalar */
	uint64_t off;	       /* first byte, from the start of the file */
	uint64_t len;	       /* bytes */
	uint32_t shard;	       /* index into sl_shards.shards */
	uint16_t name_len;
	uint8_t dtype; /* enum sl_dtype */
	uint8_t n_dims;
};

_Static_assert(SL_NAME_MAX <= UINT16_MAX, "a name's length fits");

/* Where the tensors of several headers go. Names are in blocks, one a header; of shapes, which thousands of tensors have in
 * common, those that came before are taken again. */
#define SL_SEEN_SHAPES 256
struct sl_header_sink {
	struct sl_arena *names;	  /* and shapes */
	struct sl_arena *tensors; /* the arrays of them */
	struct sl_seen_shape {
		const uint64_t *dims;
		unsigned n;
	} seen[SL_SEEN_SHAPES];
};

/* Parse the header of a file of `file_size` bytes whose first bytes are `head`, `head_len` of them: at least
 * min(file_size, 8 + N), which sl_header_need() tells. Tensors and names go to the arena, in order of their offsets,
 * with .shard = shard. Messages do not name the file: the caller prefixes it. */
int sl_header_parse(const unsigned char *head, size_t head_len, uint64_t file_size, uint32_t shard,
		    struct sl_arena *arena, struct sl_tensor **tensors, uint32_t *n_tensors,
		    struct sl_error *err) SL_MUST_CHECK;

/* The same in the order of their names, without tokens where the header is spelled as usual (header_scan.h). *plain says that
 * the names are known to be ASCII without quotes and backslashes, and so stand for themselves in JSON. */
int sl_header_tensors(const unsigned char *head, size_t head_len, uint64_t file_size, uint32_t shard,
		      struct sl_header_sink *sink, struct sl_tensor **tensors, uint32_t *n_tensors, bool *plain,
		      struct sl_error *err) SL_MUST_CHECK;

/* From the first min(file_size, 1024) bytes: how many bytes sl_header_parse() needs (8 + N). Refuses files that are too
 * short, N beyond the file or the cap, and text that stands where a model should (a git-lfs pointer, an error page). */
int sl_header_need(const unsigned char *head, size_t head_len, uint64_t file_size, uint64_t *need,
		   struct sl_error *err) SL_MUST_CHECK;

#endif
