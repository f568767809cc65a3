/*
 * catalogue.h - what the headers and the index of a checkpoint came to, as bytes: so that it can be had again without them.
 *
 * A catalogue is good for exactly the files that it was made of, in the state that they were in, and for the program that
 * made it: all of this is in front of it, and compared. Whatever it holds has been through all checks of header.c and
 * shards.c. Yet the bytes come from a disk: reading them believes nothing, and yields tensors that lie in their shards
 * under unique names in their order, or nothing.
 */
#ifndef SLICER_CATALOGUE_H
#define SLICER_CATALOGUE_H

#include "slicer/arena.h"
#include "slicer/locate.h"
#include "slicer/shards.h"
#include "slicer/text.h"
#include <stdbool.h>

/* What a catalogue is of, but for the shards, which it names itself. */
struct sl_catalogue_key {
	const char *build;    /* the program and its version */
	enum sl_format asked; /* as it was asked for */
	const struct sl_located *located;
	struct sl_identity index; /* all 0 where there is none */
};

/* Append it to `raw`. False for one that is too odd to be worth it: more than 65,535 shards, or dtypes and shapes. */
bool sl_catalogue_write(struct sl_text *raw, const struct sl_catalogue_key *key, const struct sl_shards *shards);

/* Fill shards, tensors and notes of `shards` from `len` bytes, which are not needed afterwards. The shards have the identities
 * that they had, which is for the caller to compare, and no open file. False for another key, for damage, and without
 * memory: `shards` has none of it then. `raw` is aligned to 8 bytes. */
bool sl_catalogue_read(struct sl_shards *shards, const struct sl_catalogue_key *key, const unsigned char *raw,
		       size_t len, struct sl_arena *arena);

#endif
