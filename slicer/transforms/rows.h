/*
 * rows.h - rows in another order, whole or in blocks of their bytes: what kernels of experts want.
 *
 *      input 0   the rows; or their upper half
 *      input 1   their lower half
 *
 * Row n of the output is row f(n) of the input, where f is a chain of orders: the first of them is applied to n first. Each half
 * may have fewer rows than half of the output: it is padded by itself. With blocks of bytes the output is [blocks, rows, block].
 */
#ifndef SLICER_TRANSFORMS_ROWS_H
#define SLICER_TRANSFORMS_ROWS_H

#include "slicer/transforms/vector.h"

enum sl_row_order {
	SL_ROWS_SAME,	     /* ends a chain */
	SL_ROWS_SWAPPED,     /* the halves */
	SL_ROWS_ALTERNATING, /* a row of each half in turn (FlashInfer, gated experts) */
	SL_ROWS_TILE_128,    /* within 32 (FlashInfer, get_shuffle_block of a tile of 128) */
	SL_ROWS_TILE_64,     /* within 16 */
	SL_ROWS_PAIRS,	     /* the two rows of each pair */
	SL_ROWS_ODD_FIRST,   /* odd ones, then even ones */
	SL_ROWS_IN_64,	     /* 64 of each half in turn (CuTe-DSL) */
	SL_N_ROW_ORDERS
};

/* Of sl_args.p: the chain, an order a byte, the lowest first; rows of the matrix; bytes of a block (0: whole rows). */
enum { SL_ROWS_CHAIN, SL_ROWS_M, SL_ROWS_BLOCK };

SL_DEVICE uint64_t sl_rows_step(unsigned order, uint64_t n, uint64_t m)
{
	switch (order) {
	case SL_ROWS_SWAPPED:
		return n < m / 2 ? n + m / 2 : n - m / 2;
	case SL_ROWS_ALTERNATING:
		return n / 2 + n % 2 * (m / 2);
	case SL_ROWS_TILE_128:
		return n - n % 32 + 4 * (n % 8) + n % 32 / 8;
	case SL_ROWS_TILE_64:
		return n - n % 16 + 2 * (n % 8) + n % 16 / 8;
	case SL_ROWS_PAIRS:
		return n ^ 1;
	case SL_ROWS_ODD_FIRST:
		return n < m / 2 ? 2 * n + 1 : 2 * (n - m / 2);
	case SL_ROWS_IN_64:
		return n / 64 % 2 * (m / 2) + n / 128 * 64 + n % 64;
	default:
		return n;
	}
}

/* The input's row of a row of the matrix. */
SL_DEVICE uint64_t sl_rows_source(const struct sl_args *args, uint64_t n)
{
	for (uint64_t chain = args->p[SL_ROWS_CHAIN]; chain; chain >>= 8)
		n = sl_rows_step(chain & 0xFF, n, args->p[SL_ROWS_M]);
	return n;
}

/* The same of a row of the output. */
SL_DEVICE uint64_t sl_rows_of(const struct sl_args *args, uint64_t row)
{
	return sl_rows_source(args, args->p[SL_ROWS_BLOCK] ? row % args->p[SL_ROWS_M] : row);
}

/* A unit is 16 bytes of a row. */
SL_DEVICE uint64_t sl_rows_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * ((block->out.n_cols + 15) / 16);
}

/* Where the input's row of a row of the block is, at the block's first column of it. */
SL_DEVICE const unsigned char *sl_rows_at(const struct sl_args *args, const struct sl_block *block, uint64_t r)
{
	uint64_t row = block->out.row + r, source = sl_rows_of(args, row), half = args->p[SL_ROWS_M] / 2, col;
	unsigned input = args->in[1].row_bytes && source >= half;
	const struct sl_rect *in = &block->in[input];

	col = args->p[SL_ROWS_BLOCK] ? row / args->p[SL_ROWS_M] * args->p[SL_ROWS_BLOCK] : 0;
	return block->bytes[input] + (source - (input ? half : 0) - in->row) * in->n_cols + block->out.col + col -
	       in->col;
}

SL_DEVICE void sl_rows_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t width = block->out.n_cols, per_row = (width + 15) / 16, row = i / per_row, c = i % per_row * 16;
	const unsigned char *from = sl_rows_at(args, block, row);
	unsigned char *to = block->dst + row * block->stride;

	if (c + 16 <= width) {
		sl_16_store(to + c, sl_16_load(from + c));
		return;
	}
	for (; c < width; c++)
		to[c] = from[c];
}

#endif
