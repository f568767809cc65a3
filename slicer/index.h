/*
 * index.h - model.safetensors.index.json: which shard has which tensor.
 */
#ifndef SLICER_INDEX_H
#define SLICER_INDEX_H

#include "slicer/arena.h"
#include "slicer/error.h"
#include "slicer/shards.h"
#include <stdbool.h>
#include <stdint.h>

struct sl_index_entry {
	const char *tensor;
	const char *file; /* one of sl_index.files */
	uint32_t shard;	  /* its position there */
};

struct sl_index {
	struct sl_index_entry *entries;
	uint32_t n; /* sorted by tensor, byte by byte; names are unique */
	const char **files;
	uint32_t n_files; /* sorted; each is a path that stays in the directory */
	bool has_total;
	uint64_t total_size; /* as the index claims; advice */
};

/* Parse an index's text. Memory comes from the arena; the text is not needed afterwards. Messages do not name the file:
 * the caller prefixes it. `notes` gets what is odd but harmless. */
int sl_index_parse(struct sl_index *index, const char *text, size_t len, struct sl_arena *arena, struct sl_note **notes,
		   struct sl_error *err) SL_MUST_CHECK;

/* Read and parse the file of that name. */
int sl_index_read(struct sl_index *index, int dirfd, const char *name, struct sl_arena *arena, struct sl_note **notes,
		  struct sl_error *err) SL_MUST_CHECK;

/* Does any entry name this file? */
bool sl_index_names(const struct sl_index *index, const char *file);

#endif
