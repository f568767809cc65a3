/*
 * exponents.h - the exponents of F32 scales, four to a word, the words column by column: DeepGEMM's scales on Blackwell (its
 * public tests, get_mn_major_tma_aligned_packed_ue8m0_tensor; transpose_and_pack_fp32_into_ue8m0 in impls/smxx_layout.cuh).
 *
 *      input 0   F32 scales, [rows / group, columns]
 *
 * Word m of row c of the output has the exponents of columns 4c to 4c + 3 of row m / group, the first in its lowest byte; zero
 * beyond the last column and beyond the last row.
 */
#ifndef SLICER_TRANSFORMS_EXPONENTS_H
#define SLICER_TRANSFORMS_EXPONENTS_H

#include "slicer/backend.h"
#include <string.h>

/* Of sl_args.p: rows that there are, the others pad; rows that share a scale. */
enum { SL_EXPONENTS_ROWS, SL_EXPONENTS_GROUP };

/* A unit is a word. */
SL_DEVICE uint64_t sl_exponents_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * (block->out.n_cols / sizeof(uint32_t));
}

SL_DEVICE void sl_exponents_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t per_row = block->out.n_cols / sizeof(uint32_t), c = i / per_row, w = i % per_row,
		 m = block->out.col / sizeof(uint32_t) + w;
	const unsigned char *from =
		block->bytes[0] + (m / args->p[SL_EXPONENTS_GROUP] - block->in[0].row) * block->in[0].n_cols + c * 16;
	uint32_t bits, word = 0;

	for (unsigned x = 0; x < 4 && m < args->p[SL_EXPONENTS_ROWS]; x++) {
		memcpy(&bits, from + x * sizeof(bits), sizeof(bits));
		word |= (bits >> 23 & 0xFF) << 8 * x;
	}
	memcpy(block->dst + c * block->stride + w * sizeof(word), &word, sizeof(word));
}

#endif
