/*
 * transpose.h - a matrix turned: [rows, cols] to [cols, rows].
 *
 *      input 0   elements of 1, 2 or 4 bytes
 */
#ifndef SLICER_TRANSFORMS_TRANSPOSE_H
#define SLICER_TRANSFORMS_TRANSPOSE_H

#include "slicer/transforms/vector.h"

enum { SL_TRANSPOSE_SIZE }; /* of sl_args.p: bytes of an element */

SL_DEVICE void sl_transpose_element(const struct sl_args *args, const struct sl_block *block, uint64_t row,
				    uint64_t col)
{
	uint64_t size = args->p[SL_TRANSPOSE_SIZE];
	const unsigned char *from = block->bytes[0] + col * block->in[0].n_cols + row * size;
	unsigned char *to = block->dst + row * block->stride + col * size;

	for (uint64_t b = 0; b < size; b++)
		to[b] = from[b];
}

/* A unit is a tile as wide as 16 bytes, and as high. */
SL_DEVICE uint64_t sl_transpose_units(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t edge = 16 / args->p[SL_TRANSPOSE_SIZE], across = block->out.n_cols / args->p[SL_TRANSPOSE_SIZE];

	return (block->out.n_rows + edge - 1) / edge * ((across + edge - 1) / edge);
}

/* A whole tile. `size` is a constant, so that everything stays in registers. */
SL_DEVICE void sl_transpose_tile(const struct sl_block *block, uint64_t row, uint64_t col, const unsigned size)
{
	const unsigned edge = 16 / size, in_word = 4 / size;
	const uint32_t mask = size == 4 ? 0xFFFFFFFF : (1u << 8 * size) - 1;
	struct sl_16 in[16];

	SL_UNROLL
	for (unsigned x = 0; x < edge; x++)
		in[x] = sl_16_load(block->bytes[0] + (col + x) * block->in[0].n_cols + row * size);
	SL_UNROLL
	for (unsigned y = 0; y < edge; y++) {
		struct sl_16 out = { { 0 } };
		SL_UNROLL
		for (unsigned x = 0; x < edge; x++)
			out.words[x / in_word] |= (in[x].words[y / in_word] >> 8 * size * (y % in_word) & mask)
						  << 8 * size * (x % in_word);
		sl_16_store(block->dst + (row + y) * block->stride + col * size, out);
	}
}

SL_DEVICE void sl_transpose_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	const uint64_t size = args->p[SL_TRANSPOSE_SIZE], edge = 16 / size, width = block->out.n_cols / size,
		       across = (width + edge - 1) / edge, row = i / across * edge, col = i % across * edge;

	if (row + edge > block->out.n_rows || col + edge > width) {
		for (uint64_t y = row; y < row + edge && y < block->out.n_rows; y++)
			for (uint64_t x = col; x < col + edge && x < width; x++)
				sl_transpose_element(args, block, y, x);
		return;
	}
	if (size == 1)
		sl_transpose_tile(block, row, col, 1);
	else if (size == 2)
		sl_transpose_tile(block, row, col, 2);
	else
		sl_transpose_tile(block, row, col, 4);
}

#endif
