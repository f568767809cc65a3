/*
 * swizzle.h - scales of 4- and 8-bit blocks as tensor cores want them: tiles of 128 rows and 4 columns, each of 512 bytes.
 *
 *      input 0, input 1   one byte a scale, as rows.h has them: in its order of rows, halves each padded by themselves
 *
 * Byte (m, k) of the padded matrix lies at ((m/128 * C/4 + k/4) * 32 + m%32) * 16 + m/32%4 * 4 + k%4, where C is the width in
 * whole tiles (cuBLAS, "1D block scaling factors layout"). What pads is zero. A row of the output is a row of tiles.
 */
#ifndef SLICER_TRANSFORMS_SWIZZLE_H
#define SLICER_TRANSFORMS_SWIZZLE_H

#include "slicer/transforms/rows.h"

enum { SL_SWIZZLE_ROWS = 128, SL_SWIZZLE_COLS = 4, SL_SWIZZLE_TILE = SL_SWIZZLE_ROWS * SL_SWIZZLE_COLS };

/* A unit is 16 bytes: 4 scales of each of 4 rows. */
SL_DEVICE uint64_t sl_swizzle_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * (block->out.n_cols / 16);
}

SL_DEVICE void sl_swizzle_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t per_row = block->out.n_cols / 16, r = i / per_row, c = i % per_row * 16, col = block->out.col + c;
	uint64_t k = col / SL_SWIZZLE_TILE * SL_SWIZZLE_COLS,
		 m = (block->out.row + r) * SL_SWIZZLE_ROWS + col % SL_SWIZZLE_TILE / 16;
	unsigned char *to = block->dst + r * block->stride + c;

	for (unsigned q = 0; q < 4; q++, m += 32) {
		const unsigned char *from = NULL;
		if (m < args->p[SL_ROWS_M])
			from = sl_rows_at(args, block, sl_rows_source(args, m), k);
		for (unsigned x = 0; x < SL_SWIZZLE_COLS; x++)
			*to++ = from ? from[x] : 0;
	}
}

#endif
