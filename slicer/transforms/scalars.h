/*
 * scalars.h - a few F32 numbers from a few others: scales of fused matrices and of experts.
 *
 *      input 0, input 1   F32, rows of them
 *
 * Element i of the output belongs to row i of the inputs, or to all of their rows when they are said to be one (p: ALL). Products
 * and quotients are of F32, each rounded once, as the engine's own are.
 */
#ifndef SLICER_TRANSFORMS_SCALARS_H
#define SLICER_TRANSFORMS_SCALARS_H

#include "slicer/backend.h"
#include <string.h>

enum sl_scalar {
	SL_SCALAR_MAX,		   /* of input 0 */
	SL_SCALAR_INVERSE_MAX,	   /* 1 / that */
	SL_SCALAR_PRODUCT,	   /* the largest of input 0 times the largest of input 1 */
	SL_SCALAR_INVERSE_PRODUCT, /* their inverses' product */
	SL_N_SCALARS
};

enum { SL_SCALARS_KIND, SL_SCALARS_ALL }; /* of sl_args.p */

SL_DEVICE float sl_scalars_max(const struct sl_args *args, const struct sl_block *block, unsigned input, uint64_t i)
{
	uint64_t n = args->in[input].row_bytes / sizeof(float), all = args->in[input].rows * n;
	const float *from = (const float *)(const void *)block->bytes[input] + (args->p[SL_SCALARS_ALL] ? 0 : i * n);
	float largest = from[0];

	for (uint64_t k = 1; k < (args->p[SL_SCALARS_ALL] ? all : n); k++)
		largest = from[k] > largest || from[k] != from[k] ? from[k] : largest;
	return largest;
}

SL_DEVICE float sl_scalars_value(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	float a = sl_scalars_max(args, block, 0, i);

	switch (args->p[SL_SCALARS_KIND]) {
	case SL_SCALAR_INVERSE_MAX:
		return 1.0f / a;
	case SL_SCALAR_PRODUCT:
		return a * sl_scalars_max(args, block, 1, i);
	case SL_SCALAR_INVERSE_PRODUCT:
		return (1.0f / a) * (1.0f / sl_scalars_max(args, block, 1, i));
	default:
		return a;
	}
}

/* A unit is an element. Its destination may lie anywhere in a file: it need not be aligned. */
SL_DEVICE uint64_t sl_scalars_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_cols / sizeof(float);
}

SL_DEVICE void sl_scalars_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	float value = sl_scalars_value(args, block, i);

	memcpy(block->dst + i * sizeof(value), &value, sizeof(value));
}

#endif
