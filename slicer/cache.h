/*
 * cache.h - catalogues of checkpoints that have been opened before, in a directory of their own.
 *
 * A checkpoint of many shards on a slow file system is opened by reading one file of the cache and looking at the shards'
 * inodes, instead of reading a header of each. Where the directory is, and whether there is one, is for the caller to say.
 * An entry is a file, packed with lz4, behind a checksum; it is replaced by rename, so that several programs may use the
 * cache at once. One that is damaged, of another version or somebody else's is none. No lack of anything here is an error.
 */
#ifndef SLICER_CACHE_H
#define SLICER_CACHE_H

#include "slicer/catalogue.h"
#include <stdint.h>

struct sl_cache {
	int dirfd;	   /* of a directory that nobody else may write to */
	const char *build; /* of the program: entries of any other are not looked at */
	uint64_t room;	   /* bytes that all entries may take; those not used for longest go first */
	uint32_t least;	   /* tensors of a checkpoint that is worth an entry */
	/* Seconds that its files have rested at least: a change within the same tick of their clock would not show. */
	unsigned rest;
	/* What became of it: set by sl_shards_open(). */
	bool hit, stored;
	char why[120]; /* not stored, though it was worth it; "" for no reason */
};

/* Take the catalogue of the directory `shards->dirfd` from the cache, with all files open and the same as they were. False,
 * with nothing of it in `shards`, when that cannot be. */
bool sl_cache_take(struct sl_cache *cache, struct sl_shards *shards, const struct sl_catalogue_key *key,
		   struct sl_arena *arena);

/* Store the one that has been made without it. */
void sl_cache_store(struct sl_cache *cache, const struct sl_shards *shards, const struct sl_catalogue_key *key);

/* A packed entry of raw bytes, appended to `packed`; false without memory. And back: malloc'ed, NULL for one that is not whole
 * and undamaged. */
bool sl_cache_pack(struct sl_text *packed, const struct sl_text *raw);
unsigned char *sl_cache_unpack(const unsigned char *packed, size_t len, size_t *raw_len);

#endif
