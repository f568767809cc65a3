/*
 * map.h - each byte through a table: whatever is a function of one FP8 code and a scale of its part.
 *
 * FP8 weights of several matrices that an engine fuses have a scale each; a kernel wants one for all. vLLM 0.32 turns every code
 * into its value in F16, times the part's scale rounded to F16, divides by the largest scale and rounds to FP8 again
 * (w8a8_utils.py, requantize_with_max_scale): 256 codes, so a table for each part.
 *
 *      input 0   the codes
 *      input 1   F32, a scale for each range of rows of a member; only to make the tables
 */
#ifndef SLICER_TRANSFORMS_MAP_H
#define SLICER_TRANSFORMS_MAP_H

#include "slicer/transforms/vector.h"

#define SL_MAP_RANGES_MAX 64

enum sl_map_kind {
	SL_MAP_REQUANT,	       /* to the largest scale; unless the last one is a sentinel: not above -448 */
	SL_MAP_REQUANT_ALWAYS, /* whatever the last one is: experts */
	SL_MAP_REQUANT_UNLIKE, /* only if the scales are not all equal: ModelOpt */
	SL_MAP_REQUANT_CPU,    /* the same as a processor does it: the scale is not rounded */
	SL_MAP_REQUANT_FNUZ,   /* through SL_MAP_FNUZ first, with scales twice as large */
	SL_MAP_FNUZ,	       /* E4M3 to E4M3FNUZ: 80 becomes 00 */
	SL_MAP_E8M0_F16,       /* a power of two through F16 and back */
	SL_MAP_E8M0_TWICE,     /* a power of two, doubled, at most the largest */
	SL_MAP_SIGNED_4,       /* two codes that count from 8, to sign and magnitude; as they are if one of all is 0 */
	SL_N_MAPS
};

enum { SL_MAP_KIND, SL_MAP_N, SL_MAP_ENDS }; /* of sl_args.p: a kind, how many ranges, where each of them ends */

SL_DEVICE uint64_t sl_map_range(const struct sl_args *args, uint64_t row)
{
	uint64_t range = 0;

	while (range + 1 < args->p[SL_MAP_N] && row >= args->p[SL_MAP_ENDS + range])
		range++;
	return range;
}

SL_DEVICE const unsigned char *sl_map_table(const struct sl_args *args, const struct sl_block *block, uint64_t row)
{
	return block->facts + 256 * (block->member * args->p[SL_MAP_N] + sl_map_range(args, block->out.row + row));
}

SL_DEVICE uint32_t sl_map_word(const unsigned char *table, uint32_t codes)
{
	return table[codes & 0xFF] | (uint32_t)table[codes >> 8 & 0xFF] << 8 |
	       (uint32_t)table[codes >> 16 & 0xFF] << 16 | (uint32_t)table[codes >> 24] << 24;
}

/* A unit is 16 bytes of a row. */
SL_DEVICE uint64_t sl_map_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * ((block->out.n_cols + 15) / 16);
}

SL_DEVICE void sl_map_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t width = block->out.n_cols, per_row = (width + 15) / 16, row = i / per_row, c = i % per_row * 16;
	const unsigned char *table = sl_map_table(args, block, row), *from = block->bytes[0] + row * width;
	unsigned char *to = block->dst + row * block->stride;

	if (c + 16 <= width) {
		struct sl_16 codes = sl_16_load(from + c);
		for (unsigned k = 0; k < 4; k++)
			codes.words[k] = sl_map_word(table, codes.words[k]);
		sl_16_store(to + c, codes);
		return;
	}
	for (; c < width; c++)
		to[c] = table[from[c]];
}

/* The table of one range, of `n` scales of which it has the i-th. */
void sl_map_make(enum sl_map_kind kind, const float *scales, unsigned n, unsigned i, unsigned char table[256]);

#endif
