/*
 * fuzz_header.c - any bytes as a safetensors file: what is accepted covers its data exactly.
 *
 * The first two bytes of an input are the length of the data, which is not part of it (nobody reads data here); the
 * rest are the file's first bytes.
 */
#include "slicer/header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cover(const struct sl_tensor *tensors, uint32_t n, uint64_t begin, uint64_t end)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct sl_tensor *t = &tensors[i];
		if (t->off != begin || t->dtype >= SL_N_DTYPES || strlen(t->name) > SL_NAME_MAX)
			abort();
		uint64_t elements = 1;
		for (unsigned d = 0; d < t->n_dims; d++)
			elements *= t->shape[d];
		if (sl_dtype_bytes((enum sl_dtype)t->dtype, elements) != t->len)
			abort();
		begin += t->len;
	}
	if (begin != end)
		abort();
}

/* Read along its usual shape, where it has that: the same answer, in the order of names. */
static void check_other_way(int ret, uint32_t n, const struct sl_error *err, const uint8_t *data, size_t size,
			    uint64_t file_size)
{
	struct sl_error other = SL_ERROR_INIT;
	struct sl_header_sink sink = { 0 };
	struct sl_tensor *tensors;
	struct sl_arena arena;
	uint64_t bytes = 0;
	uint32_t n_other;
	bool plain;

	sl_arena_init(&arena);
	sink.names = sink.tensors = &arena;
	if (sl_header_tensors(data, size, file_size, 0, &sink, &tensors, &n_other, &plain, &other) != ret ||
	    strcmp(err->text, other.text) != 0 || (!ret && n_other != n))
		abort();
	for (uint32_t i = 0; !ret && i < n; i++) {
		if (i > 0 && strcmp(tensors[i - 1].name, tensors[i].name) >= 0)
			abort();
		bytes += tensors[i].len;
	}
	uint64_t need = 0;
	if (!ret && (sl_header_need(data, size, file_size, &need, &other) || need + bytes != file_size))
		abort();
	sl_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_tensor *tensors;
	struct sl_arena arena;
	uint32_t n;
	uint64_t need = 0;

	if (size < 2)
		return 0;
	uint64_t file_size = size - 2 + (data[0] | (uint64_t)data[1] << 8);
	data += 2;
	size -= 2;
	int ret = sl_header_need(data, size < 1024 ? size : 1024, file_size, &need, &err);
	if (!ret && need <= size) {
		sl_arena_init(&arena);
		ret = sl_header_parse(data, size, file_size, 0, &arena, &tensors, &n, &err);
		if (!ret)
			check_cover(tensors, n, need, file_size);
		check_other_way(ret, ret ? 0 : n, &err, data, size, file_size);
		sl_arena_release(&arena);
	}
	if (ret && (ret != -err.errnum || !err.text[0]))
		abort();
	return 0;
}
