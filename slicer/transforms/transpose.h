/*
 * transpose.h - a matrix turned: [rows, cols] to [cols, rows].
 *
 *      input 0   elements of 1, 2 or 4 bytes
 */
#ifndef SLICER_TRANSFORMS_TRANSPOSE_H
#define SLICER_TRANSFORMS_TRANSPOSE_H

#include "slicer/backend.h"

enum { SL_TRANSPOSE_SIZE }; /* of sl_args.p: bytes of an element */

/* A unit is an element. */
SL_DEVICE uint64_t sl_transpose_units(const struct sl_args *args, const struct sl_block *block)
{
	return block->out.n_rows * (block->out.n_cols / args->p[SL_TRANSPOSE_SIZE]);
}

SL_DEVICE void sl_transpose_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t size = args->p[SL_TRANSPOSE_SIZE], across = block->out.n_cols / size, row = i / across,
		 col = i % across;
	const unsigned char *from = block->bytes[0] + col * block->in[0].n_cols + row * size;
	unsigned char *to = block->dst + row * block->stride + col * size;

	for (uint64_t b = 0; b < size; b++)
		to[b] = from[b];
}

#endif
