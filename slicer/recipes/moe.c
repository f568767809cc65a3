/*
 * moe.c - experts whose kernels want the halves of w13 elsewhere.
 */
#include "slicer/post.h"
#include "slicer/transforms/rows.h"

#include <errno.h>

/* The two halves of stacked matrices [experts, 2 * inter, columns], each an input. */
static void add_halves(struct sl_transform *t, const struct sl_loaded *w, uint64_t row_bytes)
{
	uint64_t half = w->shape[1] / 2;

	for (unsigned h = 0; h < 2; h++) {
		sl_post_input(t, w, h * half * row_bytes, half, row_bytes);
		t->in[h].stride = 2 * half * row_bytes;
	}
}

int sl_post_moe_w31(const struct sl_post *post)
{
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "w13", 3, &w);

	if (ret)
		return ret;
	uint64_t row_bytes = sl_dtype_bytes(w->dtype, w->shape[2]);
	struct sl_transform t = sl_post_transform(SL_T_ROWS, w->shape[0], w->shape[1], row_bytes);
	t.args.p[SL_ROWS_CHAIN] = SL_ROWS_SWAPPED;
	t.args.p[SL_ROWS_M] = w->shape[1];
	add_halves(&t, w, row_bytes);
	return sl_post_one(post, "w13", w->dtype, &t, w->shape, 3);
}
