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

/* A unit is an element. */
SL_DEVICE uint64_t sl_dequant_units(const struct sl_args *args, const struct sl_block *block)
{
	return block->out.n_rows * (block->out.n_cols / sl_dequant_size(args));
}

SL_DEVICE void sl_dequant_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	unsigned size = sl_dequant_size(args);
	uint64_t across = block->out.n_cols / size, row = i / across, col = i % across;
	float value = sl_quant_value(args, block, block->out.row + row, block->out.col / size + col);
	unsigned char *to = block->dst + row * block->stride + col * size;
	uint16_t half = args->p[SL_DEQUANT_TO] == SL_BF16 ? sl_f32_to_bf16(value) : sl_f32_to_f16(value);

	if (size == 4)
		memcpy(to, &value, sizeof(value));
	else
		memcpy(to, &half, sizeof(half));
}

#endif
