/*
 * rows.h - rows in another order, whole or in blocks of their bytes: what kernels of experts want.
 *
 *      input 0   the rows; or their upper half
 *      input 1   their lower half
 *
 * Row n of the result is row f(n) of the input, where f is a chain of orders: the first of them is applied to n first. Each half
 * may have fewer rows than half of the result: it is padded by itself. With blocks of bytes the output is [blocks, rows, block]:
 * one of its rows has one block of every row of the result.
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

/* Of sl_args.p: the chain, an order a byte, the lowest first; rows of the result; bytes of a block (0: whole rows). */
enum { SL_ROWS_CHAIN, SL_ROWS_M, SL_ROWS_BLOCK };

#define SL_ROWS_THEN(first, second, third) \
	((uint64_t)(first) | (uint64_t)(second) << 8 | (uint64_t)(third) << 16) /* a chain */

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

/* The input's row of a row of the result. */
SL_DEVICE uint64_t sl_rows_source(const struct sl_args *args, uint64_t n)
{
	for (uint64_t chain = args->p[SL_ROWS_CHAIN]; chain; chain >>= 8)
		n = sl_rows_step(chain & 0xFF, n, args->p[SL_ROWS_M]);
	return n;
}

/* Where the block has byte `col` of that row of the input. */
SL_DEVICE const unsigned char *sl_rows_at(const struct sl_args *args, const struct sl_block *block, uint64_t source,
					  uint64_t col)
{
	uint64_t half = args->p[SL_ROWS_M] / 2;
	unsigned input = args->in[1].row_bytes && source >= half;
	const struct sl_rect *in = &block->in[input];

	return block->bytes[input] + (source - (input ? half : 0) - in->row) * in->n_cols + col - in->col;
}

/* Where the bytes from `col` of the output's row `row` on come from, and how many there are side by side. */
SL_DEVICE const unsigned char *sl_rows_run(const struct sl_args *args, const struct sl_block *block, uint64_t row,
					   uint64_t col, uint64_t *run)
{
	uint64_t width = args->p[SL_ROWS_BLOCK];

	if (width == 0) {
		*run = args->row_bytes - col;
		return sl_rows_at(args, block, sl_rows_source(args, row), col);
	}
	*run = width - col % width;
	return sl_rows_at(args, block, sl_rows_source(args, col / width), row * width + col % width);
}

/* A unit is 16 bytes of a row. */
SL_DEVICE uint64_t sl_rows_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * ((block->out.n_cols + 15) / 16);
}

SL_DEVICE void sl_rows_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t width = block->out.n_cols, per_row = (width + 15) / 16, row = i / per_row, c = i % per_row * 16;
	uint64_t end = c + 16 < width ? c + 16 : width, run;
	unsigned char *to = block->dst + row * block->stride;

	while (c < end) {
		const unsigned char *from = sl_rows_run(args, block, block->out.row + row, block->out.col + c, &run);
		if (c + 16 == end && run >= 16) {
			sl_16_store(to + c, sl_16_load(from));
			return;
		}
		for (uint64_t stop = run < end - c ? c + run : end; c < stop; c++)
			to[c] = *from++;
	}
}

/* The smallest range of an input's rows that has what rows [first, first + n) of the result are made of, or a few rows more;
 * empty when it has none of them. */
struct sl_rect sl_rows_needed(const struct sl_args *args, unsigned input, uint64_t first, uint64_t n);

/* Sources of rows [first, first + n) of the result, n <= SL_ROWS_AT_ONCE. */
#define SL_ROWS_AT_ONCE 128
void sl_rows_sources(const struct sl_args *args, uint64_t first, unsigned n, uint32_t *source);

#endif
