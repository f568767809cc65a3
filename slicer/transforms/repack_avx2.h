/*
 * repack_avx2.h - the same bytes as repack.h says, fast, where the processor can. Each gives false when nothing was done.
 */
#ifndef SLICER_TRANSFORMS_REPACK_AVX2_H
#define SLICER_TRANSFORMS_REPACK_AVX2_H

#include "slicer/transforms/repack.h"

/* For tests: as a processor that does not have them. */
extern bool sl_repack_without_avx2;

/* Where a packed source has row k of q and a column of the output. */
struct sl_packed_at {
	const unsigned char *from;
	uint64_t pitch; /* of its rows */
};

static inline struct sl_packed_at sl_packed_at(const struct sl_args *args, const struct sl_block *block, uint64_t k,
					       uint64_t n)
{
	uint64_t bits = args->p[SL_REPACK_BITS], half = args->p[SL_REPACK_HALF];
	unsigned input = half && n >= half;
	const struct sl_rect *in = &block->in[input];
	uint64_t row = k, at;

	n -= input ? half : 0;
	at = n * bits / 8;
	if (args->p[SL_REPACK_FROM] == SL_FROM_WORDS)
		row = k * bits / 32, at = n * 4;
	else if (args->p[SL_REPACK_FROM] == SL_FROM_ROWS)
		row = n, at = k * bits / 8;
	return (struct sl_packed_at){ block->bytes[input] + (row - in->row) * in->n_cols + at - in->col, in->n_cols };
}

/* A block of tiles. */
bool sl_repack_avx2(const struct sl_args *args, const struct sl_block *block);

/* Eight rows of eight words, as AWQ packs, to 64 words along K. */
bool sl_repack_awq_words_avx2(const unsigned char *from, uint64_t pitch, unsigned char *to);

/* Zero points of 64 columns and eight groups: from eight words of eight rows, a row for eight columns; or, of AWQ, for a group. */
bool sl_repack_zeros_avx2(const unsigned char *from, uint64_t pitch, bool awq, unsigned char *to, uint64_t stride);

#endif
