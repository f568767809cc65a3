/*
 * dequant.h - FP8 codes and their scales, or floats, to floats of another size: one product of F32, rounded once.
 *
 *      input 0   E4M3, F32, F16, BF16 [rows, cols]
 *      input 1   F32 scales of blocks, or one for all
 *
 * vLLM 0.32: mla_attention.py, get_and_maybe_dequant_weights.
 */
#ifndef SLICER_TRANSFORMS_DEQUANT_H
#define SLICER_TRANSFORMS_DEQUANT_H

#include "slicer/transforms/quant.h"

/* Of sl_args.p: as of quant.h up to the blocks of scales (0 rows: there are none); what is made. */
enum { SL_DEQUANT_TO = SL_QUANT_CPU };

SL_DEVICE unsigned sl_dequant_size(const struct sl_args *args)
{
	return args->p[SL_DEQUANT_TO] == SL_F32 ? 4 : 2;
}

/* A unit is a chunk of a row. */
SL_DEVICE uint64_t sl_dequant_units(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t across = block->out.n_cols / sl_dequant_size(args);

	return block->out.n_rows * ((across + SL_QUANT_CHUNK - 1) / SL_QUANT_CHUNK);
}

SL_DEVICE uint16_t sl_dequant_half(const struct sl_args *args, float value)
{
	return args->p[SL_DEQUANT_TO] == SL_BF16 ? sl_f32_to_bf16(value) : sl_f32_to_f16(value);
}

SL_DEVICE void sl_dequant_store(const struct sl_args *args, const float *values, uint64_t n, unsigned char *to)
{
	const unsigned size = sl_dequant_size(args);

	if (n == SL_QUANT_CHUNK && size == 2) {
		struct sl_16 halves;
		SL_UNROLL
		for (unsigned k = 0; k < 4; k++)
			halves.words[k] = sl_dequant_half(args, values[2 * k]) |
					  (uint32_t)sl_dequant_half(args, values[2 * k + 1]) << 16;
		sl_16_store(to, halves);
		return;
	}
	SL_UNROLL
	for (unsigned k = 0; k < SL_QUANT_CHUNK; k++) {
		uint16_t half = sl_dequant_half(args, values[k]);
		if (k < n && size == 4)
			memcpy(to + 4 * k, &values[k], sizeof(values[k]));
		else if (k < n)
			memcpy(to + 2 * k, &half, sizeof(half));
	}
}

SL_DEVICE void sl_dequant_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	const unsigned size = sl_dequant_size(args);
	const uint64_t width = block->out.n_cols / size, across = (width + SL_QUANT_CHUNK - 1) / SL_QUANT_CHUNK,
		       row = i / across, col = i % across * SL_QUANT_CHUNK,
		       n = sl_quant_min(SL_QUANT_CHUNK, width - col);
	float values[SL_QUANT_CHUNK] = { 0 };

	sl_quant_load_some(args, block, 0, block->out.row + row, block->out.col / size + col, n, values);
	sl_dequant_store(args, values, n, block->dst + row * block->stride + col * size);
}

#endif
