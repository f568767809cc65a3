/*
 * repack_avx2.h - the same bytes as repack.h says, fast, where the processor can. Each gives false when nothing was done.
 */
#ifndef SLICER_TRANSFORMS_REPACK_AVX2_H
#define SLICER_TRANSFORMS_REPACK_AVX2_H

#include "slicer/transforms/repack.h"

/* A block of tiles. */
bool sl_repack_avx2(const struct sl_args *args, const struct sl_block *block);

/* Eight rows of eight words, as AWQ packs, to 64 words along K. */
bool sl_repack_awq_words_avx2(const unsigned char *from, uint64_t pitch, unsigned char *to);

/* Zero points of 64 columns and eight groups: from eight words of eight rows, a row for eight columns; or, of AWQ, for a group. */
bool sl_repack_zeros_avx2(const unsigned char *from, uint64_t pitch, bool awq, unsigned char *to, uint64_t stride);

#endif
