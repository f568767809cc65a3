/*
 * int8.c - INT8 weights and activations (vLLM 0.32, kernels/linear/scaled_mm/cutlass.py).
 */
#include "slicer/post.h"
#include "slicer/transforms/scalars.h"
#include "slicer/transforms/sums.h"

#include <errno.h>

/* A scale for each matrix becomes one for each row. */
static int add_scales(const struct sl_post *post, const struct sl_loaded *weight)
{
	const struct sl_loaded *scale = sl_post_find(post, "weight_scale");
	const struct sl_post_facts *f = &post->facts;
	uint64_t end = 0;

	if (!scale || scale->dtype != SL_F32)
		return sl_fail(post->plan->err, EINVAL, "%s has no F32 'weight_scale'", SL_ESC(post->prefix));
	if (f->n_widths < 2 || scale->n_dims != 1)
		return sl_post_keep(post, scale);
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, weight->shape[0] * sizeof(float));
	t.args.p[SL_SCALARS_KIND] = SL_SCALAR_SPREAD;
	t.args.p[SL_SCALARS_ALL] = true;
	for (unsigned i = 0; i < f->n_widths; i++)
		t.args.p[SL_SCALARS_ENDS + i] = end += f->widths[i];
	if (end != weight->shape[0] || scale->shape[0] != f->n_widths || f->n_widths > SL_PARAMS_MAX - SL_SCALARS_ENDS)
		return sl_fail(post->plan->err, EINVAL, "%sweight: %llu rows, %llu in %u matrices with %llu scales",
			       SL_ESC(post->prefix), (unsigned long long)weight->shape[0], (unsigned long long)end,
			       f->n_widths, (unsigned long long)scale->shape[0]);
	sl_post_input(&t, scale, 0, 1, scale->len);
	return sl_post_one(post, "weight_scale", SL_F32, &t, SL_SHAPE(weight->shape[0], 1));
}

static struct sl_transform scalar(const struct sl_post *post, enum sl_scalar kind, const struct sl_loaded *scale,
				  const struct sl_loaded *zero)
{
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, sizeof(float));

	t.args.p[SL_SCALARS_KIND] = kind;
	t.args.p[SL_SCALARS_ALL] = true;
	t.args.p[SL_SCALARS_CPU] = post->facts.cpu;
	sl_post_input(&t, scale, 0, 1, scale->len);
	if (zero)
		sl_post_input(&t, zero, 0, 1, zero->len);
	return t;
}

/* Scale and zero point of static activations; *zero is for whoever multiplies with it. */
static int add_inputs(const struct sl_post *post, struct sl_stream *zero)
{
	const struct sl_loaded *scale, *point;
	struct sl_transform t;
	int ret = 0;

	if (!post->facts.fixed)
		return 0;
	scale = sl_post_find(post, "input_scale");
	point = sl_post_find(post, "input_zero_point");
	if (!scale || scale->dtype != SL_F32 || scale->len == 0 ||
	    (!post->facts.symmetric && (!point || point->dtype != SL_I8 || point->len * sizeof(float) != scale->len)))
		return sl_fail(post->plan->err, EINVAL, "%s has no 'input_scale', or no zero point for each",
			       SL_ESC(post->prefix));
	if (post->facts.symmetric) {
		t = scalar(post, SL_SCALAR_MAX, scale, NULL);
		return sl_post_one(post, "input_scale", SL_F32, &t, NULL, 0);
	}
	t = scalar(post, SL_SCALAR_INT8_SCALE, scale, point);
	ret = sl_post_one(post, "input_scale", SL_F32, &t, NULL, 0);
	t = scalar(post, SL_SCALAR_INT8_ZERO, scale, point);
	if (!ret)
		ret = sl_post_make(post, &t, zero);
	return ret ? ret : sl_post_one(post, "input_zero_point", SL_I32, &t, NULL, 0);
}

static int add_sums(const struct sl_post *post, const struct sl_loaded *weight, const struct sl_stream *zero)
{
	struct sl_transform t = sl_post_transform(SL_T_SUMS, 1, 1, weight->shape[0] * 4);

	if (post->facts.symmetric)
		return 0;
	sl_post_input(&t, weight, 0, weight->shape[0], weight->shape[1]);
	if (zero->n)
		sl_post_input_stream(&t, zero, 0, 1, 4);
	return sl_post_one(post, "azp_adj", SL_I32, &t, SL_SHAPE(1, weight->shape[0]));
}

int sl_post_int8_w8a8(const struct sl_post *post)
{
	const struct sl_loaded *weight;
	struct sl_stream zero = { .n = 0 };
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret && weight->dtype != SL_I8)
		ret = sl_fail(post->plan->err, EINVAL, "%sweight is %s, not I8", SL_ESC(post->prefix),
			      sl_dtypes[weight->dtype].name);
	if (!ret)
		ret = sl_post_keep(post, weight);
	if (!ret)
		sl_post_turned(post);
	if (!ret)
		ret = add_scales(post, weight);
	if (!ret)
		ret = add_inputs(post, &zero);
	return ret ? ret : add_sums(post, weight, &zero);
}
