/*
 * moe.c - experts: their matrices in another order, and the recipes for unquantised and FP8 ones (vLLM 0.32,
 * fused_moe/oracle/unquantized.py and fp8.py, quantization/utils/flashinfer_utils.py).
 */
#include "slicer/recipes/moe.h"

#include "slicer/transforms/element.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/scalars.h"
#include "slicer/transforms/swizzle.h"

#include <errno.h>
#include <stdio.h>

/* ---- what is loaded ---- */

static uint64_t row_bytes(const struct sl_loaded *w)
{
	return sl_dtype_bytes(w->dtype, w->shape[2]);
}

static int sizes_differ(const struct sl_post *post, const struct sl_loaded *a, const struct sl_loaded *b)
{
	return sl_fail(post->plan->err, EINVAL, "%s: '%s' %llux%llux%llu and '%s' %llux%llux%llu do not agree",
		       SL_ESC(post->prefix), a->name, (unsigned long long)a->shape[0], (unsigned long long)a->shape[1],
		       (unsigned long long)a->shape[2], b->name, (unsigned long long)b->shape[0],
		       (unsigned long long)b->shape[1], (unsigned long long)b->shape[2]);
}

int sl_moe_need(const struct sl_post *post, uint64_t packed, struct sl_moe *moe)
{
	int ret = sl_post_need(post, "w13", 3, &moe->w13);

	if (!ret)
		ret = sl_post_need(post, "w2", 3, &moe->w2);
	if (ret)
		return ret;
	if (!post->facts.gated)
		return sl_fail(post->plan->err, EINVAL, "%s: this kernel's experts have a gate, these have none",
			       SL_ESC(post->prefix));
	const uint64_t *w13 = moe->w13->shape, *w2 = moe->w2->shape;
	*moe = (struct sl_moe){ moe->w13, moe->w2, w13[0], w13[1] / 2, w13[2] * packed };
	if (w13[0] == 0 || w13[1] == 0 || w13[1] % 2 || w2[0] != w13[0] || w2[1] != moe->hidden ||
	    w2[2] * packed != moe->inter || (packed > 1 && (moe->w13->dtype != SL_U8 || moe->w2->dtype != SL_U8)) ||
	    moe->w13->dtype != moe->w2->dtype)
		return sizes_differ(post, moe->w13, moe->w2);
	return 0;
}

int sl_moe_need_scale(const struct sl_post *post, const char *name, const struct sl_loaded *weight, uint64_t values,
		      uint64_t group, const struct sl_loaded **scale)
{
	int ret = sl_post_need(post, name, 3, scale);

	if (ret)
		return ret;
	const struct sl_loaded *s = *scale;
	if (s->shape[0] != weight->shape[0] || s->shape[1] != weight->shape[1] || values % group ||
	    s->shape[2] != values / group || sl_dtype_bytes(s->dtype, 1) != 1)
		return sizes_differ(post, weight, s);
	return 0;
}

int sl_moe_divides(const struct sl_post *post, const struct sl_loaded *loaded, const char *what, uint64_t n,
		   uint64_t unit)
{
	if (n % unit == 0 && n)
		return 0;
	return sl_fail(post->plan->err, EINVAL, "%s: '%s' has %llu %s, this kernel wants a multiple of %llu",
		       SL_ESC(post->prefix), loaded->name, (unsigned long long)n, what, (unsigned long long)unit);
}

/* ---- orders ---- */

static struct sl_transform reorder(enum sl_transform_id id, const struct sl_loaded *stack,
				   const struct sl_moe_order *order)
{
	struct sl_transform t = sl_post_transform(id, stack->shape[0], order->rows, order->row_bytes);
	uint64_t n = stack->shape[1] / (order->halves ? 2 : 1), width = row_bytes(stack);

	t.args.p[SL_ROWS_CHAIN] = order->chain;
	t.args.p[SL_ROWS_M] = order->rows;
	t.args.p[SL_ROWS_BLOCK] = order->block;
	for (unsigned half = 0; half < (order->halves ? 2 : 1); half++) {
		sl_post_input(&t, stack, half * n * width, n, width);
		t.in[half].stride = stack->shape[1] * width;
	}
	return t;
}

struct sl_transform sl_moe_reorder(const struct sl_loaded *stack, const struct sl_moe_order *order)
{
	struct sl_transform t = reorder(SL_T_ROWS, stack, order);

	if (order->block) {
		t.args.rows = order->row_bytes / order->block;
		t.args.row_bytes = order->rows * order->block;
	}
	return t;
}

int sl_moe_add(const struct sl_post *post, const struct sl_loaded *stack, const struct sl_moe_order *order)
{
	struct sl_transform t = sl_moe_reorder(stack, order);
	uint64_t size = sl_dtype_bytes(stack->dtype, 1);

	if (order->block)
		return sl_post_one(
			post, stack->name, stack->dtype, &t,
			SL_SHAPE(stack->shape[0], order->row_bytes / order->block, order->rows, order->block / size));
	return sl_post_one(post, stack->name, stack->dtype, &t,
			   SL_SHAPE(stack->shape[0], order->rows, order->row_bytes / size));
}

int sl_moe_add_swizzled(const struct sl_post *post, const struct sl_loaded *stack, const struct sl_moe_order *order,
			enum sl_dtype dtype)
{
	struct sl_transform t = reorder(SL_T_SWIZZLE, stack, order);
	uint64_t rows = sl_up(order->rows, SL_SWIZZLE_ROWS), cols = sl_up(order->row_bytes, SL_SWIZZLE_COLS);

	t.args.rows = rows / SL_SWIZZLE_ROWS;
	t.args.row_bytes = cols * SL_SWIZZLE_ROWS;
	return sl_post_one(post, stack->name, dtype, &t, SL_SHAPE(stack->shape[0], rows, cols));
}

int sl_moe_add_largest(const struct sl_post *post, const char *name, bool of_all, uint64_t n)
{
	const struct sl_loaded *scale = sl_post_find(post, name);
	uint64_t count = n ? n : 1, rows = of_all ? 1 : n;

	if (!scale)
		return sl_fail(post->plan->err, EINVAL, "%s has no '%s'", SL_ESC(post->prefix), name);
	if (scale->dtype != SL_F32 || scale->len == 0 || scale->len / sizeof(float) % rows)
		return sl_fail(post->plan->err, EINVAL, "%s: '%s' is %s of %llu bytes for %llu scales",
			       SL_ESC(post->prefix), name, sl_dtypes[scale->dtype].name, (unsigned long long)scale->len,
			       (unsigned long long)count);
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, count * sizeof(float));
	t.args.p[SL_SCALARS_ALL] = of_all;
	sl_post_input(&t, scale, 0, rows, scale->len / rows);
	return sl_post_one(post, name, SL_F32, &t, &n, n ? 1 : 0);
}

/* ---- biases ---- */

int sl_moe_need_bias(const struct sl_post *post, const char *name, const struct sl_loaded *weight,
		     const struct sl_loaded **bias)
{
	int ret = sl_post_need(post, name, 2, bias);

	if (ret)
		return ret;
	const struct sl_loaded *b = *bias;
	if (b->dtype != SL_BF16 || b->shape[0] != weight->shape[0] || b->shape[1] != weight->shape[1])
		return sl_fail(post->plan->err, EINVAL, "%s: '%s' is %s %llux%llu for %llu experts of %llu rows",
			       SL_ESC(post->prefix), name, sl_dtypes[b->dtype].name, (unsigned long long)b->shape[0],
			       (unsigned long long)b->shape[1], (unsigned long long)weight->shape[0],
			       (unsigned long long)weight->shape[1]);
	return 0;
}

/* Rows of one element each. */
int sl_moe_add_bias(const struct sl_post *post, const struct sl_loaded *bias, uint64_t chain, enum sl_dtype dtype)
{
	uint64_t n = bias->shape[1];
	struct sl_transform rows = sl_post_transform(SL_T_ROWS, bias->shape[0], n, sizeof(uint16_t));
	struct sl_stream stream;

	rows.args.p[SL_ROWS_CHAIN] = chain;
	rows.args.p[SL_ROWS_M] = n;
	sl_post_input(&rows, bias, 0, n, sizeof(uint16_t));
	if (dtype != SL_F32)
		return sl_post_one(post, bias->name, bias->dtype, &rows, bias->shape, 2);
	struct sl_transform t = sl_post_transform(SL_T_ELEMENT, bias->shape[0], 1, n * sizeof(float));
	int ret = sl_post_make(post, &rows, &stream);
	if (ret)
		return ret;
	t.args.p[SL_ELEMENT_KIND] = SL_ELEMENT_BF16;
	sl_post_input_stream(&t, &stream, 0, 1, n * sizeof(uint16_t));
	return sl_post_one(post, bias->name, SL_F32, &t, bias->shape, 2);
}

/* ---- unquantised ---- */

int sl_post_moe_w31(const struct sl_post *post)
{
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "w13", 3, &w);

	if (!ret)
		ret = sl_moe_divides(post, w, "rows", w->shape[1], 2);
	if (ret)
		return ret;
	return sl_moe_add(post, w, &(struct sl_moe_order){ SL_ROWS_SWAPPED, true, w->shape[1], row_bytes(w), 0 });
}

/* ---- FP8, one scale a matrix ---- */

/* Both halves' codes to the larger of their scales, whatever these are. */
static int add_requantised(const struct sl_post *post, const struct sl_loaded *w, const struct sl_loaded *scale)
{
	struct sl_transform t = sl_post_transform(SL_T_MAP, w->shape[0], w->shape[1], row_bytes(w));

	t.args.p[SL_MAP_KIND] = SL_MAP_REQUANT_ALWAYS;
	t.args.p[SL_MAP_N] = 2;
	t.args.p[SL_MAP_ENDS] = w->shape[1] / 2;
	t.args.p[SL_MAP_ENDS + 1] = w->shape[1];
	sl_post_input(&t, w, 0, w->shape[1], row_bytes(w));
	sl_post_input(&t, scale, 0, 1, 2 * sizeof(float));
	return sl_post_one(post, w->name, w->dtype, &t, w->shape, 3);
}

int sl_post_moe_fp8_tensor(const struct sl_post *post)
{
	const struct sl_loaded *w, *scale;
	uint64_t parts = post->facts.gated ? 2 : 1;
	int ret = sl_post_need(post, "w13", 3, &w);

	if (!ret)
		ret = sl_post_need(post, "w13_scale", 2, &scale);
	if (!ret)
		ret = sl_moe_divides(post, w, "rows", w->shape[1], parts);
	if (ret)
		return ret;
	if (w->dtype != SL_F8_E4M3)
		return sl_fail(post->plan->err, EINVAL, "%s: 'w13' is %s, this kernel takes FP8", SL_ESC(post->prefix),
			       sl_dtypes[w->dtype].name);
	if (scale->dtype != SL_F32 || scale->shape[0] != w->shape[0] || scale->shape[1] != parts)
		return sl_fail(post->plan->err, EINVAL, "%s: 'w13_scale' is %llux%llu for %llu experts of %llu parts",
			       SL_ESC(post->prefix), (unsigned long long)scale->shape[0],
			       (unsigned long long)scale->shape[1], (unsigned long long)w->shape[0],
			       (unsigned long long)parts);
	ret = post->facts.gated ? add_requantised(post, w, scale) : sl_post_keep(post, w);
	return ret ? ret : sl_moe_add_largest(post, "w13_scale", false, w->shape[0]);
}

int sl_post_moe_fp8_input(const struct sl_post *post)
{
	int ret = sl_moe_add_largest(post, "w13_input_scale", true, 0);

	return ret ? ret : sl_moe_add_largest(post, "w2_input_scale", true, 0);
}

/* ---- FP8 for FlashInfer ---- */

/* Scales of blocks [experts, rows, columns], none below 1e-10; halves swapped or not. */
static int add_floored(const struct sl_post *post, const char *name, bool swapped)
{
	const struct sl_loaded *s;
	struct sl_stream stream;
	int ret = sl_post_need(post, name, 3, &s);

	if (!ret && (s->dtype != SL_F32 || (swapped && s->shape[1] % 2)))
		ret = sl_fail(post->plan->err, EINVAL, "%s: '%s' of %s with %llu rows", SL_ESC(post->prefix), name,
			      sl_dtypes[s->dtype].name, (unsigned long long)s->shape[1]);
	if (ret)
		return ret;
	struct sl_transform t = sl_post_transform(SL_T_ELEMENT, s->shape[0], s->shape[1], row_bytes(s));
	struct sl_transform rows = sl_moe_reorder(s, &(struct sl_moe_order){ swapped ? SL_ROWS_SWAPPED : SL_ROWS_SAME,
									     swapped, s->shape[1], row_bytes(s), 0 });
	t.args.p[SL_ELEMENT_KIND] = SL_ELEMENT_FLOOR;
	ret = sl_post_make(post, &rows, &stream);
	if (ret)
		return ret;
	sl_post_input_stream(&t, &stream, 0, s->shape[1], row_bytes(s));
	return sl_post_one(post, name, SL_F32, &t, s->shape, 3);
}

int sl_moe_add_floored(const struct sl_post *post)
{
	int ret = add_floored(post, "w13_scale", true);

	return ret ? ret : add_floored(post, "w2_scale", false);
}

int sl_moe_keep_scales(const struct sl_post *post)
{
	static const char *const names[] = { "w13_scale", "w2_scale" };
	const struct sl_loaded *s;
	int ret = 0;

	for (unsigned i = 0; i < 2 && !ret; i++) {
		ret = sl_post_need(post, names[i], 1, &s);
		if (!ret)
			ret = sl_post_keep(post, s);
	}
	return ret;
}

int sl_post_moe_fp8_fi_cutlass(const struct sl_post *post)
{
	struct sl_moe moe;
	bool blocks = post->facts.block[0];
	int ret = sl_moe_need(post, 1, &moe);

	if (ret)
		return ret;
	uint64_t inter = blocks ? moe.inter : sl_up(moe.inter, 16);
	ret = sl_moe_add(post, moe.w13,
			 &(struct sl_moe_order){ SL_ROWS_SWAPPED, true, 2 * inter, row_bytes(moe.w13), 0 });
	if (!ret)
		ret = sl_moe_add(post, moe.w2,
				 &(struct sl_moe_order){ SL_ROWS_SAME, false, moe.hidden,
							 sl_dtype_bytes(moe.w2->dtype, inter), 0 });
	if (ret)
		return ret;
	return blocks ? sl_moe_add_floored(post) : sl_moe_keep_scales(post);
}
