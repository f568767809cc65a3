/*
 * repack_avx2.h - a block of Marlin's tiles, fast, where the processor can.
 */
#ifndef SLICER_TRANSFORMS_REPACK_AVX2_H
#define SLICER_TRANSFORMS_REPACK_AVX2_H

#include "slicer/transforms/repack.h"

/* false: nothing was done, this is not for it. */
bool sl_repack_avx2(const struct sl_args *args, const struct sl_block *block);

#endif
