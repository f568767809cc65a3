/*
 * scales.h - are the scales of quantised weights numbers that weights can be multiplied with?
 */
#ifndef SLICER_SCALES_H
#define SLICER_SCALES_H

#include "slicer/error.h"
#include "slicer/model.h"

/* Read every scale of a tensor, a channel or a block (those of groups are too many) that is stored as a float: each is finite
 * and above 0, one of inputs at least 0. -EINVAL names the first tensor that has another. Reads what it checks, so that nobody
 * who only opens a checkpoint wants it. */
int sl_check_scales(const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;

#endif
