/*
 * origin.h - where the bytes of an output tensor come from, in words: its pieces, read back into slices of source
 * tensors. For `plan` and weight.txt.
 *
 *      pieces of a fused, row-padded, column-sliced tensor         terms
 *      [copy][copy][copy, strided][zero]                      ->   q[128:256] ++ k[0:64] ++ o[0:512, 9:18] ++ 61 zero rows
 *
 * The notation: t[a:b] are rows (all leading dimensions counted as one), t[a:b, c:d] rows and columns, t[a:b:2] every
 * second row, t.T the transposed tensor. Pieces that repeat with every row of the output, such as two matrices side
 * by side, become one group: "by columns: a ++ b ++ 3 zero columns".
 */
#ifndef FS_ORIGIN_H
#define FS_ORIGIN_H

#include "slicer/error.h"
#include "slicer/model.h"
#include "slicer/view.h"
#include <stdint.h>
#include <stdio.h>

/* The model's tensors in the order of their places. Const once open: threads share it. */
struct origins;

int origins_open(struct origins **out, const struct sl_model *model, struct sl_error *err) SL_MUST_CHECK;
void origins_close(struct origins *origins);

/* The tensor that has the byte at `off` of a shard; NULL when none has (a header). */
const struct sl_tensor *origins_find(const struct origins *origins, uint32_t shard, uint64_t off);

/* Walks the terms of a tensor. */
struct origin_walk {
	const struct origins *origins;
	const struct sl_output *output;
	struct sl_arena arena; /* of pieces that a series stands for */
	const struct sl_piece *pieces;
	uint32_t n_pieces, next;
	int cast; /* enum sl_dtype that has been named for the whole tensor; -1: terms name theirs */
};

/* One term: `len` bytes of the output from byte `off` of the tensor. */
struct origin_term {
	uint64_t off, len;
	const struct sl_piece *pieces; /* the first of each lane */
	uint32_t n_lanes;	       /* pieces that repeat together; 1: no group, or a piece that repeats alone */
	uint32_t repeats;	       /* how often; 1: once */
	uint32_t merged;	       /* n_lanes 1, repeats 1: so many pieces that continue each other */
};

/* 0 or -ENOMEM; origin_walk_release() in either case. */
int origin_walk_init(struct origin_walk *walk, const struct origins *origins,
		     const struct sl_output *output) SL_MUST_CHECK;
void origin_walk_release(struct origin_walk *walk);
bool origin_walk_next(struct origin_walk *walk, struct origin_term *term);

/* One term in words. */
void origin_print_term(FILE *out, const struct origin_walk *walk, const struct origin_term *term);

/* All terms, joined by " ++ "; what is done to every one of them, such as "cast(BF16): ", in front.
 * 0 or -ENOMEM. */
int origin_print(FILE *out, const struct origins *origins, const struct sl_output *output) SL_MUST_CHECK;

/* The shape as "[256, 512]". */
void origin_print_shape(FILE *out, const uint64_t *shape, unsigned n_dims);

#endif
