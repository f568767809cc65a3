/*
 * moe.h - what recipes for experts share: their stacked matrices, in another order and padded.
 *
 *      w13 [experts, 2 * inter, hidden]   gate above up: two halves of rows, each padded by itself
 *      w2  [experts, hidden, inter]
 *
 * With packed 4-bit values two of them are one byte; a scale for each group of values makes matrices of the same rows.
 */
#ifndef SLICER_RECIPES_MOE_H
#define SLICER_RECIPES_MOE_H

#include "slicer/post.h"
#include "slicer/transforms/rows.h"

struct sl_moe {
	const struct sl_loaded *w13, *w2;
	uint64_t experts, inter, hidden;
};

/* Both matrices, `packed` values in an element of theirs (a byte, where there are 2). Refused unless their sizes agree. */
int sl_moe_need(const struct sl_post *post, uint64_t packed, struct sl_moe *moe) SL_MUST_CHECK;

/* Scales of one of them, a byte each: of as many rows, one for each `group` values of a row of `values`. */
int sl_moe_need_scale(const struct sl_post *post, const char *name, const struct sl_loaded *weight, uint64_t values,
		      uint64_t group, const struct sl_loaded **scale) SL_MUST_CHECK;

/* Is `what` a multiple of `unit`? Refused with the tensor's name, for a kernel that has tiles of that. */
int sl_moe_divides(const struct sl_post *post, const struct sl_loaded *loaded, const char *what, uint64_t n,
		   uint64_t unit) SL_MUST_CHECK;

/* An order of the rows of one matrix: what it makes of those that are loaded. */
struct sl_moe_order {
	uint64_t chain; /* of enum sl_row_order */
	bool halves;
	uint64_t rows, row_bytes; /* padded to these */
	uint64_t block;		  /* bytes; 0: whole rows */
};

/* Stacked matrices in that order. */
struct sl_transform sl_moe_reorder(const struct sl_loaded *stack, const struct sl_moe_order *order);

/* The same as a tensor [experts, rows, columns] under the loaded one's name; or in blocks, [experts, blocks, rows, columns]. */
int sl_moe_add(const struct sl_post *post, const struct sl_loaded *stack,
	       const struct sl_moe_order *order) SL_MUST_CHECK;

/* Scales in that order, then in tiles: sl_swizzle. */
int sl_moe_add_swizzled(const struct sl_post *post, const struct sl_loaded *stack, const struct sl_moe_order *order,
			enum sl_dtype dtype) SL_MUST_CHECK;

/* A tensor of F32 that sl_scalars makes of another one: [n] when n is not 0, else without dimensions. */
int sl_moe_add_largest(const struct sl_post *post, const char *name, bool of_all, uint64_t n) SL_MUST_CHECK;

/* The scales of activations: of each expert the largest, or one for all, repeated. */
int sl_moe_add_inputs(const struct sl_post *post, bool of_all, uint64_t experts) SL_MUST_CHECK;

/* Biases [experts, rows] in BF16, one for each row of `weight`; in an order of rows, as `dtype`. */
int sl_moe_need_bias(const struct sl_post *post, const char *name, const struct sl_loaded *weight,
		     const struct sl_loaded **bias) SL_MUST_CHECK;
int sl_moe_add_bias(const struct sl_post *post, const struct sl_loaded *bias, uint64_t chain,
		    enum sl_dtype dtype) SL_MUST_CHECK;

/* FP8 experts for FlashInfer: scales of blocks, none of them below 1e-10, w13's halves swapped; those of whole matrices as they
 * are. */
int sl_moe_add_floored(const struct sl_post *post) SL_MUST_CHECK;
int sl_moe_keep_scales(const struct sl_post *post) SL_MUST_CHECK;

#endif
