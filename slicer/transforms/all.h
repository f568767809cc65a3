/*
 * all.h - the arithmetic of every transform: for backends that make blocks unit by unit. A line of SL_TRANSFORMS without one
 * here does not compile.
 */
#ifndef SLICER_TRANSFORMS_ALL_H
#define SLICER_TRANSFORMS_ALL_H

#include "slicer/transforms/dequant.h"
#include "slicer/transforms/element.h"
#include "slicer/transforms/exponents.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/marlin_scales.h"
#include "slicer/transforms/quant.h"
#include "slicer/transforms/repack.h"
#include "slicer/transforms/rows.h"
#include "slicer/transforms/scalars.h"
#include "slicer/transforms/sums.h"
#include "slicer/transforms/swizzle.h"
#include "slicer/transforms/transpose.h"

#endif
