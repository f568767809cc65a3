/*
 * fuzz_catalogue.c - any bytes as an entry of the cache, packed or behind its checksum: what is accepted lies in its shards,
 * in the order of its names.
 */
#include "slicer/cache.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensors(const struct sl_shards *shards)
{
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		const struct sl_tensor *t = &shards->tensors[i];
		if (t->shard >= shards->n_shards || t->dtype >= SL_N_DTYPES || strlen(t->name) != t->name_len ||
		    (i > 0 && strcmp(t[-1].name, t->name) >= 0))
			abort();
		const struct sl_shard *shard = &shards->shards[t->shard];
		if (t->off < shard->data_off || t->off > shard->size || t->len > shard->size - t->off)
			abort();
		uint64_t bits = sl_dtypes[t->dtype].bits;
		for (unsigned d = 0; d < t->n_dims; d++)
			bits *= t->shape[d];
		if (bits != t->len * 8)
			abort();
	}
}

static void read_raw(const unsigned char *raw, size_t size)
{
	struct sl_located located = { .format = SL_FORMAT_HF };
	struct sl_catalogue_key key = { .build = "fuzz", .located = &located };
	struct sl_shards shards = { .dirfd = -1 };
	struct sl_arena arena;

	sl_arena_init(&arena);
	if (sl_catalogue_read(&shards, &key, raw, size, &arena))
		check_tensors(&shards);
	else if (shards.tensors || shards.shards || shards.notes || shards.n_tensors || shards.n_shards)
		abort();
	sl_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *copy = malloc(size + 1); /* aligned */
	size_t len;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	unsigned char *raw = sl_cache_unpack(copy, size, &len);
	if (raw)
		read_raw(raw, len);
	read_raw(copy, size);
	free(raw);
	free(copy);
	return 0;
}
