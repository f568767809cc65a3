/*
 * all.h - the arithmetic of every transform: for backends that make blocks unit by unit. A line of SL_TRANSFORMS without one
 * here does not compile.
 */
#ifndef SLICER_TRANSFORMS_ALL_H
#define SLICER_TRANSFORMS_ALL_H

#include "slicer/transforms/map.h"
#include "slicer/transforms/rows.h"
#include "slicer/transforms/scalars.h"

#endif
