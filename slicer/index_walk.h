/*
 * index_walk.h - an index that says what the headers say, in the order of names, read against them in one pass.
 *
 * An index repeats the name of every tensor, sorted. So it needs no reading by itself where the headers have been read
 * already: it is enough to see that its next name is the next one of the file that it gives. That merges the files'
 * tensors into one sorted list on the way, without comparing any two of them.
 */
#ifndef SLICER_INDEX_WALK_H
#define SLICER_INDEX_WALK_H

#include "slicer/shards.h"
#include <stdbool.h>

/* The tensors of one file, sorted by name. */
struct sl_run {
	struct sl_tensor *tensors;
	uint32_t n;
};

struct sl_walked {
	uint32_t n;
	bool has_total;
	uint64_t total_size; /* as sl_index's */
};

/* Walk the index `name`: `out` gets the tensors of all files, one run each, whose names are all plain. False when the index
 * gives a tensor that the file does not have, leaves one out, is not sorted, or is anything else that needs a second look:
 * sl_index_read() tells what. */
bool sl_index_walk(struct sl_walked *walked, int dirfd, const char *name, const struct sl_shard *shards,
		   const struct sl_run *runs, uint32_t n_runs, struct sl_tensor *out);

#endif
