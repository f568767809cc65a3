/*
 * sort.h - tensors in order: a natural merge sort.
 *
 * Writers sort what they write, so headers are nearly always one sorted run, and a directory is one run a shard: n
 * comparisons for the first, n log(shards) for the second, never more than n log n.
 */
#ifndef SLICER_SORT_H
#define SLICER_SORT_H

#include "slicer/error.h"
#include "slicer/header.h"
#include <stddef.h>

typedef int (*sl_tensor_order)(const struct sl_tensor *a, const struct sl_tensor *b);

/* By name, byte by byte; the same names by shard. */
int sl_tensor_by_name(const struct sl_tensor *a, const struct sl_tensor *b);

/* By first byte, then by length, so that empty tensors come before the one that begins where they lie; then by name. */
int sl_tensor_by_offset(const struct sl_tensor *a, const struct sl_tensor *b);

/* Sort, stably. -ENOMEM, with the tensors as they were, when there is no memory for a second copy of them. */
int sl_sort_tensors(struct sl_tensor *tensors, size_t n, sl_tensor_order order, struct sl_error *err) SL_MUST_CHECK;

#endif
