/*
 * rows.c - which rows of the input rows of the output are, and copying them.
 */
#include "slicer/transforms/rows.h"

#include "slicer/transform.h"

#include <string.h>

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = *bytes = 1;
}

static bool is_halved(const struct sl_args *args)
{
	return args->in[1].row_bytes;
}

/* All rows between the first and the last that a block needs of an input: a block for which these are too many is made in
 * smaller ones, at last row by row. */
static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t half = is_halved(args) ? args->p[SL_ROWS_M] / 2 : args->p[SL_ROWS_M], low = UINT64_MAX, high = 0;
	uint64_t block = args->p[SL_ROWS_BLOCK], m = args->p[SL_ROWS_M];

	for (uint64_t r = out->row; r < out->row + out->n_rows; r++) {
		uint64_t source = sl_rows_of(args, r);
		if (source / half != input)
			continue;
		source -= input * half;
		low = source < low ? source : low;
		high = source >= high ? source + 1 : high;
	}
	if (high == 0)
		return;
	*in = (struct sl_rect){ low, high - low, out->col, out->n_cols };
	if (block) {
		in->col += out->row / m * block;
		in->n_cols += ((out->row + out->n_rows - 1) / m - out->row / m) * block;
	}
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t r = 0; r < block->out.n_rows; r++)
		memcpy(block->dst + r * block->stride, sl_rows_at(args, block, r), block->out.n_cols);
}

const struct sl_transform_row sl_transform_rows = {
	"rows", granule, need, NULL, NULL, run, sl_rows_units, sl_rows_unit, NULL,
};
