/*
 * scalars.h - a few numbers from a few others: scales of fused matrices and of experts.
 *
 *      input 0, input 1   F32, rows of them (input 1 of the INT8 kinds: I8)
 *
 * Element i of the output belongs to row i of the inputs, or to all of their rows when they are said to be one (p: ALL). Products
 * and quotients are of F32, each rounded once, as the engine's own are.
 */
#ifndef SLICER_TRANSFORMS_SCALARS_H
#define SLICER_TRANSFORMS_SCALARS_H

#include "slicer/backend.h"

#include <math.h>
#include <string.h>

enum sl_scalar {
	SL_SCALAR_MAX,		   /* of input 0 */
	SL_SCALAR_TWICE_MAX,	   /* 2 times that */
	SL_SCALAR_INVERSE_MAX,	   /* 1 / that */
	SL_SCALAR_TWICE_INVERTED,  /* 1 / (1 / that) */
	SL_SCALAR_PRODUCT,	   /* the largest of input 0 times the largest of input 1 */
	SL_SCALAR_INVERSE_PRODUCT, /* their inverses' product */
	SL_SCALAR_SPREAD,	   /* number i of input 0 for the i-th range of elements */
	SL_SCALAR_INT8_SCALE, /* of activations between the least and the largest of what (scale, zero point) pairs can say */
	SL_SCALAR_INT8_ZERO, /* their zero point, I32 */
	SL_N_SCALARS
};

/* Of sl_args.p: the kind; whether all rows are one; whether a processor is followed, not a GPU; where ranges of SPREAD end. */
enum { SL_SCALARS_KIND, SL_SCALARS_ALL, SL_SCALARS_CPU, SL_SCALARS_ENDS };

SL_DEVICE float sl_scalars_at(const struct sl_block *block, unsigned input, uint64_t i)
{
	float value;

	memcpy(&value, block->bytes[input] + i * sizeof(value), sizeof(value));
	return value;
}

SL_DEVICE float sl_scalars_larger(float largest, float value)
{
	return value > largest || value != value ? value : largest;
}

/* The largest of the numbers of element i of the block; a NaN where there is one. */
SL_DEVICE float sl_scalars_max(const struct sl_args *args, const struct sl_block *block, unsigned input, uint64_t i)
{
	uint64_t n = block->in[input].n_cols / sizeof(float), first = args->p[SL_SCALARS_ALL] ? 0 : i * n;
	uint64_t end = args->p[SL_SCALARS_ALL] ? block->in[input].n_rows * n : first + n;
	float largest = sl_scalars_at(block, input, first);

	for (uint64_t k = first + 1; k < end; k++)
		largest = sl_scalars_larger(largest, sl_scalars_at(block, input, k));
	return largest;
}

/* The number of the range that element i of the whole output is in. */
SL_DEVICE float sl_scalars_spread(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t range = 0, n = block->in[0].n_cols / sizeof(float);

	while (range + 1 < n && i >= args->p[SL_SCALARS_ENDS + range])
		range++;
	return sl_scalars_at(block, 0, range);
}

/* vLLM 0.32, kernels/linear/scaled_mm/cutlass.py: several static asymmetric scales become one. */
SL_DEVICE float sl_scalars_int8_low(const struct sl_block *block)
{
	float least = 0;

	for (uint64_t k = 0; k < block->in[1].n_cols; k++) {
		float zero = (float)(signed char)block->bytes[1][k],
		      value = sl_scalars_at(block, 0, k) * (-128.0f - zero);
		least = k == 0 || value < least ? value : least;
	}
	return least;
}

SL_DEVICE float sl_scalars_int8_scale(const struct sl_args *args, const struct sl_block *block)
{
	float most = 0;

	for (uint64_t k = 0; k < block->in[1].n_cols; k++) {
		float zero = (float)(signed char)block->bytes[1][k],
		      value = sl_scalars_at(block, 0, k) * (127.0f - zero);
		most = k == 0 || value > most ? value : most;
	}
	float range = most - sl_scalars_int8_low(block);
	return args->p[SL_SCALARS_CPU] ? range / 255.0f : range * (1.0f / 255.0f);
}

SL_DEVICE float sl_scalars_value(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	switch (args->p[SL_SCALARS_KIND]) {
	case SL_SCALAR_TWICE_MAX:
		return 2.0f * sl_scalars_max(args, block, 0, i);
	case SL_SCALAR_INVERSE_MAX:
		return 1.0f / sl_scalars_max(args, block, 0, i);
	case SL_SCALAR_TWICE_INVERTED:
		return 1.0f / (1.0f / sl_scalars_max(args, block, 0, i));
	case SL_SCALAR_PRODUCT:
		return sl_scalars_max(args, block, 0, i) * sl_scalars_max(args, block, 1, i);
	case SL_SCALAR_INVERSE_PRODUCT:
		return (1.0f / sl_scalars_max(args, block, 0, i)) * (1.0f / sl_scalars_max(args, block, 1, i));
	case SL_SCALAR_SPREAD:
		return sl_scalars_spread(args, block, block->out.col / sizeof(float) + i);
	case SL_SCALAR_INT8_SCALE:
		return sl_scalars_int8_scale(args, block);
	default:
		return sl_scalars_max(args, block, 0, i);
	}
}

/* A unit is an element. Its destination may lie anywhere in a file: it need not be aligned. */
SL_DEVICE uint64_t sl_scalars_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_cols / sizeof(float);
}

/* The destination may lie anywhere in a file: it need not be aligned. */
SL_DEVICE void sl_scalars_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	if (args->p[SL_SCALARS_KIND] == SL_SCALAR_INT8_ZERO) {
		int32_t zero =
			(int32_t)truncf(-128.0f - sl_scalars_int8_low(block) / sl_scalars_int8_scale(args, block));
		memcpy(block->dst + i * sizeof(zero), &zero, sizeof(zero));
		return;
	}
	float value = sl_scalars_value(args, block, i);
	memcpy(block->dst + i * sizeof(value), &value, sizeof(value));
}

#endif
