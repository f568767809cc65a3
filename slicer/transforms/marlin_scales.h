/*
 * marlin_scales.h - scales and biases as Marlin's kernels want them (vLLM 0.32, quantization/utils/marlin_utils.py and its
 * neighbours for FP8 and FP4; the numbers of a scale are those that the kernel's own way of widening a weight asks for).
 *
 *      input 0   scales [groups, columns], or turned [columns, groups]
 *      input 1   NVFP4's global scale: the scales, only to learn their factor from
 *
 * The output is [groups, columns], columns in another order within 64 or 32. A source may have one element for several columns,
 * and fewer columns than the output; then each half of the output is padded with zeros by itself.
 */
#ifndef SLICER_TRANSFORMS_MARLIN_SCALES_H
#define SLICER_TRANSFORMS_MARLIN_SCALES_H

#include "slicer/backend.h"
#include "slicer/convert.h"
#include <stdbool.h>

enum sl_scale_kind {
	SL_SCALE_KEEP,	       /* elements of two bytes as they are */
	SL_SCALE_ROUNDED,      /* rounded to the model's dtype */
	SL_SCALE_FUSED,	       /* and then times what widening FP8 leaves out: 2^8, BF16 2^120 */
	SL_SCALE_BYTES,	       /* elements of a byte as they are */
	SL_SCALE_E8M0,	       /* powers of two through the model's dtype */
	SL_SCALE_NVFP4,	       /* E4M3 to what Marlin reads: S0E5M3 of 128 times the scale and the factor */
	SL_SCALE_NVFP4_GLOBAL, /* F32: times what these leave out, by the factor */
	SL_N_SCALE_KINDS
};

enum sl_scale_order { SL_SCALES_IN_64, SL_SCALES_IN_32, SL_SCALES_SAME, SL_N_SCALE_ORDERS };

/* Of sl_args.p. HALF: columns of a half of the output, REAL: that are there; all columns when there is one half. REPEAT: columns
 * for which the source has one element; or where ranges of columns end for which it has one each. */
enum {
	SL_SCALES_KIND,
	SL_SCALES_ORDER,
	SL_SCALES_SWAP, /* the middle ones of four */
	SL_SCALES_TURNED,
	SL_SCALES_HALF,
	SL_SCALES_REAL,
	SL_SCALES_REPEAT,
	SL_SCALES_FROM, /* enum sl_dtype */
	SL_SCALES_TO,	/* the model's */
	SL_SCALES_PAD,	/* the value of bytes of padding */
	SL_SCALES_N_RANGES,
	SL_SCALES_ENDS
};
#define SL_SCALES_RANGES_MAX 32

/* Bytes of an element of the source, and of the output. */
SL_DEVICE uint64_t sl_scales_size(const struct sl_args *args)
{
	switch (args->p[SL_SCALES_KIND]) {
	case SL_SCALE_KEEP:
		return 2;
	case SL_SCALE_ROUNDED:
	case SL_SCALE_FUSED:
		return args->p[SL_SCALES_FROM] == SL_F32 ? 4 : 2;
	case SL_SCALE_NVFP4_GLOBAL:
		return 4;
	default:
		return 1;
	}
}

SL_DEVICE bool sl_scales_rounds(const struct sl_args *args)
{
	return args->p[SL_SCALES_KIND] == SL_SCALE_ROUNDED || args->p[SL_SCALES_KIND] == SL_SCALE_FUSED;
}

SL_DEVICE uint64_t sl_scales_size_out(const struct sl_args *args)
{
	return sl_scales_rounds(args) ? 2 : sl_scales_size(args);
}

SL_DEVICE uint64_t sl_scales_width(const struct sl_args *args)
{
	return args->p[SL_SCALES_ORDER] == SL_SCALES_IN_64 ? 64 : args->p[SL_SCALES_ORDER] == SL_SCALES_IN_32 ? 32 : 1;
}

/* The column, padding counted, that a column of the output has. */
SL_DEVICE uint64_t sl_scales_ordered(const struct sl_args *args, uint64_t c)
{
	if (args->p[SL_SCALES_SWAP])
		c = (c & ~(uint64_t)3) + c % 2 * 2 + c / 2 % 2;
	if (args->p[SL_SCALES_ORDER] == SL_SCALES_IN_64)
		return c / 64 * 64 + c % 64 / 8 + 8 * (c % 8);
	if (args->p[SL_SCALES_ORDER] == SL_SCALES_IN_32)
		return c / 32 * 32 + c % 32 / 8 * 2 + c % 2 + c % 8 / 2 * 8;
	return c;
}

/* The source's element of a column without padding. */
SL_DEVICE uint64_t sl_scales_element(const struct sl_args *args, uint64_t n)
{
	uint64_t range = 0, n_ranges = args->p[SL_SCALES_N_RANGES];

	if (n_ranges == 0)
		return n / args->p[SL_SCALES_REPEAT];
	while (range + 1 < n_ranges && n >= args->p[SL_SCALES_ENDS + range])
		range++;
	return range;
}

/* Where in the block's input the element of column `c` of the first row is; -1: it is padding. */
SL_DEVICE int64_t sl_scales_at(const struct sl_args *args, const struct sl_block *block, uint64_t c)
{
	uint64_t n = sl_scales_ordered(args, c), half = n / args->p[SL_SCALES_HALF],
		 within = n % args->p[SL_SCALES_HALF];
	const struct sl_rect *in = &block->in[0];

	if (within >= args->p[SL_SCALES_REAL])
		return -1;
	n = sl_scales_element(args, half * args->p[SL_SCALES_REAL] + within);
	if (args->p[SL_SCALES_TURNED])
		return (int64_t)((n - in->row) * in->n_cols);
	return (int64_t)(n * sl_scales_size(args) - in->col);
}

/* Is row `row` of the block padding? Of a tensor without padding rows inputs say nothing else. */
SL_DEVICE bool sl_scales_beyond(const struct sl_args *args, const struct sl_block *block, uint64_t row)
{
	uint64_t groups = args->p[SL_SCALES_TURNED] ? args->in[0].row_bytes / sl_scales_size(args) : args->in[0].rows;

	return block->out.row + row >= groups;
}

/* From a row of the output to the next, in the block's input. */
SL_DEVICE uint64_t sl_scales_pitch(const struct sl_args *args, const struct sl_block *block)
{
	return args->p[SL_SCALES_TURNED] ? sl_scales_size(args) : block->in[0].n_cols;
}

SL_DEVICE uint16_t sl_scales_round(uint64_t dtype, float value)
{
	return dtype == SL_F16 ? sl_f32_to_f16(value) : sl_f32_to_bf16(value);
}

/* One scale of FP8 weights, as it is stored. */
SL_DEVICE float sl_scales_stored(const struct sl_args *args, const unsigned char *bytes)
{
	uint16_t half = 0;
	float value;

	if (args->p[SL_SCALES_FROM] == SL_F32) {
		memcpy(&value, bytes, sizeof(value));
		return value;
	}
	memcpy(&half, bytes, sizeof(half));
	return args->p[SL_SCALES_FROM] == SL_F16 ? sl_f16_to_f32(half) : sl_bf16_to_f32(half);
}

/* The same as the model's dtype. */
SL_DEVICE uint16_t sl_scales_rounded(const struct sl_args *args, const unsigned char *bytes)
{
	uint64_t to = args->p[SL_SCALES_TO];
	uint16_t half = sl_scales_round(to, sl_scales_stored(args, bytes));

	if (args->p[SL_SCALES_KIND] == SL_SCALE_ROUNDED)
		return half;
	return to == SL_F16 ? sl_f32_to_f16(sl_f16_to_f32(half) * 0x1p8f)
			    : sl_f32_to_bf16(sl_bf16_to_f32(half) * 0x1p120f);
}

SL_DEVICE float sl_scales_global(uint64_t to, float value, float factor)
{
	return value * (to == SL_F16 ? 0x1p7f : 0x1p119f) / factor;
}

/* Facts: the factor, and a table where elements are bytes. */
SL_DEVICE float sl_scales_factor(const struct sl_block *block)
{
	float factor;

	memcpy(&factor, block->facts, sizeof(factor));
	return factor;
}

SL_DEVICE const unsigned char *sl_scales_table(const struct sl_block *block)
{
	return block->facts + sizeof(float);
}

/* A unit is an element; those of a row come one after another. */
SL_DEVICE uint64_t sl_marlin_scales_units(const struct sl_args *args, const struct sl_block *block)
{
	return block->out.n_rows * (block->out.n_cols / sl_scales_size_out(args));
}

SL_DEVICE void sl_marlin_scales_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t size = sl_scales_size_out(args), per_row = block->out.n_cols / size, row = i / per_row,
		 c = i % per_row;
	int64_t at = sl_scales_at(args, block, block->out.col / size + c);
	const unsigned char *from = block->bytes[0] + at + row * sl_scales_pitch(args, block);
	unsigned char *to = block->dst + row * block->stride + c * size;
	uint16_t half = 0;
	float value = 0;

	if (at < 0 || sl_scales_beyond(args, block, row)) {
		memset(to, (int)args->p[SL_SCALES_PAD], size);
		return;
	}
	switch (args->p[SL_SCALES_KIND]) {
	case SL_SCALE_KEEP:
		to[0] = from[0], to[1] = from[1];
		break;
	case SL_SCALE_ROUNDED:
	case SL_SCALE_FUSED:
		half = sl_scales_rounded(args, from);
		memcpy(to, &half, sizeof(half));
		break;
	case SL_SCALE_NVFP4_GLOBAL:
		memcpy(&value, from, sizeof(value));
		value = sl_scales_global(args->p[SL_SCALES_TO], value, sl_scales_factor(block));
		memcpy(to, &value, sizeof(value));
		break;
	default:
		to[0] = sl_scales_table(block)[from[0]];
	}
}

#endif
