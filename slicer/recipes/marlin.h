/*
 * marlin.h - what recipes of Marlin's layers have in common: a packed matrix becomes tiles, its scales, zero points and bias get
 * the order in which the tiles' threads want them, all padded alike (vLLM 0.32, quantization/utils/marlin_utils.py).
 *
 *      columns      half 0 | padding | half 1 | padding       one half: a linear layer, w2
 *                   <- n ->          .                        two: gate and up of an expert
 *                   <-    padded    ->
 */
#ifndef SLICER_RECIPES_MARLIN_H
#define SLICER_RECIPES_MARLIN_H

#include "slicer/post.h"
#include "slicer/transforms/marlin_scales.h"
#include "slicer/transforms/repack.h"

/* A packed matrix, or one for each expert, and what it becomes. Of everything that comes with it, its scales for one, this says the
 * size. */
struct sl_marlin {
	const struct sl_post *post;
	enum sl_packing from;
	enum sl_dtype dtype; /* that its packing is stored as */
	unsigned bits, halves;
	uint64_t experts;	     /* 0: none, a linear layer */
	uint64_t k, n;		     /* as loaded, n of a half */
	uint64_t k_padded, n_padded; /* n of a half */
	uint64_t group;		     /* rows of k that share a scale; 0: all */
	bool act8;
};

/* Scales, or a bias: what sl_args.p of SL_T_MARLIN_SCALES need that the matrix does not say. */
struct sl_marlin_scales {
	enum sl_scale_kind kind;
	enum sl_scale_order order;
	bool swap, turned;
	uint64_t repeat; /* columns of one element; 0: 1 */
	const uint64_t *widths;
	unsigned n_widths;
	enum sl_dtype from, to; /* of the source; of the output */
	unsigned char pad;	/* bytes of padding */
};

/* What a layer of this shape is padded to: sl_marlin_padded_nk(); refused when groups do not divide it. */
int sl_marlin_pad_linear(struct sl_marlin *m, const char *name) SL_MUST_CHECK;

/* Is a tensor `dtype` of this shape? The message names it. */
int sl_marlin_check(const struct sl_post *post, const struct sl_loaded *loaded, enum sl_dtype dtype,
		    const uint64_t *shape, unsigned n_dims) SL_MUST_CHECK;

/* The tiles of a packed matrix, under the loaded tensor's name; checks its shape. */
int sl_marlin_add_weight(const struct sl_marlin *m, const struct sl_loaded *weight) SL_MUST_CHECK;

/* Its zero points, a row for each group: packed along n in rows [n / 8, groups] (ROWS), in rows [groups, n / 8] (WORDS), or as AWQ
 * packs. */
int sl_marlin_add_zeros(const struct sl_marlin *m, const struct sl_loaded *zeros) SL_MUST_CHECK;

/* Its scales: [groups, n], or turned, elements for several columns once. Groups of K whole rows, padded with zeros, or bytes of s->pad. */
int sl_marlin_add_scales(const struct sl_marlin *m, const struct sl_loaded *scales,
			 const struct sl_marlin_scales *s) SL_MUST_CHECK;

/* Its scales without groups, F32, BF16 or F16: one for all, one for each fused matrix, or one for as many rows each. */
int sl_marlin_add_row_scales(const struct sl_marlin *m, const struct sl_loaded *scales,
			     enum sl_scale_kind kind) SL_MUST_CHECK;

/* Its bias, if there is one of this name. */
int sl_marlin_add_bias(const struct sl_marlin *m, const char *name) SL_MUST_CHECK;

/* NVFP4's global scales, one each, by the factor that is learned from `scales`. */
int sl_marlin_add_global(const struct sl_post *post, const char *name, const struct sl_loaded *scales) SL_MUST_CHECK;

/* The order of scales of a matrix. */
enum sl_scale_order sl_marlin_order(const struct sl_marlin *m);

/* The model's dtype must be one that a kernel computes in. */
int sl_marlin_need_dtype(const struct sl_post *post) SL_MUST_CHECK;

#endif
