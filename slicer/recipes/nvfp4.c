/*
 * nvfp4.c - linear layers with 4-bit weights for kernels that read them as they are (vLLM 0.32, quantization/utils/nvfp4_utils.py,
 * kernels/linear): one scale for each group of values, in tiles, and a scale for all.
 *
 * Parts that are fused may have different scales for all: the largest is taken, and nothing is done about the others.
 */
#include "slicer/post.h"
#include "slicer/transforms/scalars.h"
#include "slicer/transforms/swizzle.h"

#include <errno.h>

/* ---- scales of a whole layer ---- */

static int need_f32(const struct sl_post *post, const char *name, const struct sl_loaded **scale)
{
	const struct sl_loaded *s = *scale = sl_post_find(post, name);

	if (!s)
		return sl_fail(post->plan->err, EINVAL, "%s has no '%s'", SL_ESC(post->prefix), name);
	if (s->dtype != SL_F32 || s->len == 0)
		return sl_fail(post->plan->err, EINVAL, "%s: '%s' is no F32 scale", SL_ESC(post->prefix), name);
	return 0;
}

static int add_scalar(const struct sl_post *post, const char *name, enum sl_scalar kind, const struct sl_loaded *a,
		      const struct sl_loaded *b)
{
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, sizeof(float));

	t.args.p[SL_SCALARS_KIND] = kind;
	sl_post_input(&t, a, 0, 1, a->len);
	if (b)
		sl_post_input(&t, b, 0, 1, b->len);
	return sl_post_one(post, name, SL_F32, &t, NULL, 0);
}

/* The four that a kernel wants, or the weight's alone where activations are not quantised. */
static int add_globals(const struct sl_post *post, const char *of_weight, const char *of_input, enum sl_scalar direct,
		       enum sl_scalar inverse, enum sl_scalar product)
{
	const struct sl_loaded *weight, *input;
	int ret = need_f32(post, of_weight, &weight);

	if (!ret)
		ret = add_scalar(post, "weight_global_scale", direct, weight, NULL);
	if (ret || !sl_post_find(post, of_input))
		return ret;
	ret = need_f32(post, of_input, &input);
	if (!ret)
		ret = add_scalar(post, "input_global_scale", direct, input, NULL);
	if (!ret)
		ret = add_scalar(post, "input_global_scale_inv", inverse, input, NULL);
	return ret ? ret : add_scalar(post, "alpha", product, input, weight);
}

/* compressed-tensors stores divisors. */
int sl_post_nvfp4_global_ct(const struct sl_post *post)
{
	return add_globals(post, "weight_global_scale", "input_global_scale", SL_SCALAR_INVERSE_MAX, SL_SCALAR_MAX,
			   SL_SCALAR_INVERSE_PRODUCT);
}

int sl_post_nvfp4_global_modelopt(const struct sl_post *post)
{
	return add_globals(post, "weight_scale_2", "input_scale", SL_SCALAR_MAX, SL_SCALAR_INVERSE_MAX,
			   SL_SCALAR_PRODUCT);
}

/* ---- scales of groups ---- */

/* One matrix of scales, or one an expert, in tiles; `flat`: the kernel does not want to know in which shape. */
static int add_swizzled(const struct sl_post *post, bool flat)
{
	const struct sl_loaded *s = sl_post_find(post, "scale");

	if (!s || (s->n_dims != 2 && s->n_dims != 3) || sl_dtype_bytes(s->dtype, 1) != 1)
		return sl_fail(post->plan->err, EINVAL, "%s has no 'scale' of bytes in 2 or 3 dimensions",
			       SL_ESC(post->prefix));
	const uint64_t *shape = s->shape + s->n_dims - 2, n = s->n_dims == 3 ? s->shape[0] : 1;
	uint64_t rows = sl_up(shape[0], SL_SWIZZLE_ROWS), cols = sl_up(shape[1], SL_SWIZZLE_COLS);
	struct sl_transform t = sl_post_transform(SL_T_SWIZZLE, n, rows / SL_SWIZZLE_ROWS, cols * SL_SWIZZLE_ROWS);
	t.args.p[SL_ROWS_M] = shape[0];
	sl_post_input(&t, s, 0, shape[0], shape[1]);
	if (flat)
		return sl_post_one(post, "scale", s->dtype, &t, SL_SHAPE(n * rows * cols));
	if (s->n_dims == 3)
		return sl_post_one(post, "scale", s->dtype, &t, SL_SHAPE(n, rows, cols));
	return sl_post_one(post, "scale", s->dtype, &t, SL_SHAPE(rows, cols));
}

int sl_post_swizzle_nvfp4(const struct sl_post *post)
{
	return add_swizzled(post, false);
}

int sl_post_swizzle_mxfp8(const struct sl_post *post)
{
	return add_swizzled(post, true);
}

/* The matrix is seen turned. */
int sl_post_mxfp8_cutedsl(const struct sl_post *post)
{
	const struct sl_loaded *weight;
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret)
		ret = sl_post_keep(post, weight);
	if (ret)
		return ret;
	sl_post_turned(post);
	return add_swizzled(post, true);
}

int sl_post_swizzle_mxfp4(const struct sl_post *post)
{
	return add_swizzled(post, true);
}

/* ---- values ---- */

/* Two in a byte; rows and columns to multiples of what the kernel wants. */
int sl_post_nvfp4_pad(const struct sl_post *post)
{
	const struct sl_loaded *w;
	uint64_t align = post->facts.align ? post->facts.align : 32;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (!ret && (w->dtype != SL_U8 || align % 2))
		ret = sl_fail(post->plan->err, EINVAL, "%s: 'weight' of %s, padded to multiples of %llu",
			      SL_ESC(post->prefix), sl_dtypes[w->dtype].name, (unsigned long long)align);
	if (ret)
		return ret;
	uint64_t rows = sl_up(w->shape[0], align), cols = sl_up(w->shape[1], align / 2);
	struct sl_transform t = sl_post_transform(SL_T_ROWS, 1, rows, cols);
	t.args.p[SL_ROWS_M] = rows;
	sl_post_input(&t, w, 0, w->shape[0], w->shape[1]);
	return sl_post_one(post, "weight", w->dtype, &t, SL_SHAPE(rows, cols));
}
