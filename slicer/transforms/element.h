/*
 * element.h - one element in, one element out, at the same place.
 *
 *      input 0   the elements; where it has fewer rows or columns than the output, zeros come in
 */
#ifndef SLICER_TRANSFORMS_ELEMENT_H
#define SLICER_TRANSFORMS_ELEMENT_H

#include "slicer/convert.h"

enum sl_element {
	SL_ELEMENT_SCALE,    /* F32 as it is, a scale */
	SL_ELEMENT_FLOOR,    /* F32, at least 1e-10; a NaN stays (vLLM, scales of FP8 blocks for FlashInfer) */
	SL_ELEMENT_ELSE_ONE, /* F32; 1 where the input has nothing (vLLM, scales of experts that are padded) */
	SL_ELEMENT_E8M0,     /* F8_E8M0 to F32 as engines do it: its bits are the exponent's; 0 is 0, 255 infinity */
	SL_ELEMENT_BF16,     /* BF16 to F32 */
	SL_N_ELEMENTS
};

enum { SL_ELEMENT_KIND }; /* of sl_args.p */

/* Bytes of an element of the input. */
SL_DEVICE uint64_t sl_element_size(uint64_t kind)
{
	return kind == SL_ELEMENT_E8M0 ? 1 : kind == SL_ELEMENT_BF16 ? 2 : 4;
}

SL_DEVICE float sl_element_floor(float x)
{
	return x < 1e-10f ? 1e-10f : x;
}

SL_DEVICE float sl_element_e8m0(uint8_t bits)
{
	return sl_f32_from_bits((uint32_t)bits << 23);
}

SL_DEVICE float sl_element_f32(const unsigned char *from)
{
	float value;

	memcpy(&value, from, sizeof(value));
	return value;
}

SL_DEVICE float sl_element_bf16(const unsigned char *from)
{
	uint16_t bits;

	memcpy(&bits, from, sizeof(bits));
	return sl_bf16_to_f32(bits);
}

/* `there`: the input has it. */
SL_DEVICE float sl_element_value(uint64_t kind, const unsigned char *from, int there)
{
	switch (kind) {
	case SL_ELEMENT_SCALE:
		return sl_element_f32(from);
	case SL_ELEMENT_FLOOR:
		return sl_element_floor(sl_element_f32(from));
	case SL_ELEMENT_ELSE_ONE:
		return there ? sl_element_f32(from) : 1;
	case SL_ELEMENT_E8M0:
		return sl_element_e8m0(*from);
	default:
		return sl_element_bf16(from);
	}
}

/* A unit is an element. */
SL_DEVICE uint64_t sl_element_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * (block->out.n_cols / sizeof(float));
}

SL_DEVICE void sl_element_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t per_row = block->out.n_cols / sizeof(float), r = i / per_row, c = i % per_row,
		 size = sl_element_size(args->p[SL_ELEMENT_KIND]);
	int there = block->out.row + r < args->in[0].rows &&
		    block->out.col / sizeof(float) + c < args->in[0].row_bytes / size;
	float value = sl_element_value(args->p[SL_ELEMENT_KIND], block->bytes[0] + (r * per_row + c) * size, there);

	memcpy(block->dst + r * block->stride + c * sizeof(value), &value, sizeof(value));
}

#endif
