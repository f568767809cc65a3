/*
 * sums.h - for each row of INT8 weights their sum, as I32, times a zero point where there is one: what a kernel subtracts for
 * activations that are not symmetric (vLLM 0.32, kernels/linear/scaled_mm/cutlass.py, azp_adj).
 *
 *      input 0   I8 [rows, cols]
 *      input 1   the zero point, I32; or nothing
 */
#ifndef SLICER_TRANSFORMS_SUMS_H
#define SLICER_TRANSFORMS_SUMS_H

#include "slicer/backend.h"

#include <string.h>

/* A unit is an element. */
SL_DEVICE uint64_t sl_sums_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_cols / 4;
}

SL_DEVICE void sl_sums_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	const signed char *row = (const signed char *)block->bytes[0] + i * block->in[0].n_cols;
	uint32_t sum = 0, zero = 1;

	for (uint64_t k = 0; k < block->in[0].n_cols; k++)
		sum += (uint32_t)row[k];
	if (args->in[1].row_bytes)
		memcpy(&zero, block->bytes[1], sizeof(zero));
	sum *= zero;
	memcpy(block->dst + i * 4, &sum, sizeof(sum));
}

#endif
