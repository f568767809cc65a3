/*
 * fp8.c - linear layers with FP8 weights, one scale a matrix or one a row (vLLM 0.32, quantization/utils/fp8_utils.py,
 * process_fp8_weight_tensor_strategy and process_fp8_weight_channel_strategy).
 *
 * The kernel reads the weight as [in, out] through a view: in memory it stays [out, in], and so do the bytes here.
 */
#include "slicer/post.h"
#include "slicer/transforms/map.h"

#include <errno.h>

/* Ranges of rows for a table each. */
static void set_widths(const struct sl_post *post, struct sl_transform *t, enum sl_map_kind kind)
{
	uint64_t end = 0;

	t->args.p[SL_MAP_KIND] = kind;
	t->args.p[SL_MAP_N] = post->facts.n_widths;
	for (unsigned i = 0; i < post->facts.n_widths; i++)
		t->args.p[SL_MAP_ENDS + i] = end += post->facts.widths[i];
}

/* One scale for all: the largest. A scale without dimensions stays. */
static int add_largest(const struct sl_post *post, const char *name)
{
	const struct sl_loaded *scale = sl_post_find(post, name);

	if (!scale)
		return 0;
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, sizeof(float));
	sl_post_input(&t, scale, 0, 1, scale->len);
	return sl_post_one(post, name, SL_F32, &t, NULL, 0);
}

static int need_scales(const struct sl_post *post, const struct sl_loaded **scale)
{
	const struct sl_loaded *s = *scale = sl_post_find(post, "weight_scale");
	uint64_t n = post->facts.n_widths;

	if (!s)
		return sl_fail(post->plan->err, EINVAL, "%s has no 'weight_scale'", SL_ESC(post->prefix));
	if (s->dtype != SL_F32 || (s->n_dims && s->len != n * sizeof(float)) || n > SL_WIDTHS_MAX)
		return sl_fail(post->plan->err, EINVAL, "%sweight_scale: %llu bytes for %llu matrices",
			       SL_ESC(post->prefix), (unsigned long long)s->len, (unsigned long long)n);
	return 0;
}

static int add_weight(const struct sl_post *post, const struct sl_loaded *weight, const struct sl_loaded *scale,
		      enum sl_map_kind kind)
{
	struct sl_transform t = sl_post_transform(SL_T_MAP, 1, weight->shape[0], weight->shape[1]);

	if (scale->n_dims == 0)
		return sl_post_keep(post, weight);
	set_widths(post, &t, kind);
	sl_post_input(&t, weight, 0, weight->shape[0], weight->shape[1]);
	sl_post_input(&t, scale, 0, 1, scale->len);
	return sl_post_one(post, "weight", weight->dtype, &t, weight->shape, 2);
}

static int per_tensor(const struct sl_post *post, enum sl_map_kind kind)
{
	const struct sl_loaded *weight, *scale;
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret)
		ret = need_scales(post, &scale);
	if (!ret)
		ret = add_weight(post, weight, scale, kind);
	if (!ret)
		ret = add_largest(post, "weight_scale");
	return ret ? ret : add_largest(post, "input_scale");
}

int sl_post_fp8_tensor(const struct sl_post *post)
{
	return per_tensor(post, SL_MAP_REQUANT);
}

int sl_post_fp8_tensor_modelopt(const struct sl_post *post)
{
	return per_tensor(post, SL_MAP_REQUANT_UNLIKE);
}

int sl_post_fp8_channel(const struct sl_post *post)
{
	const struct sl_loaded *weight, *scale;
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret)
		ret = sl_post_need(post, "weight_scale", 2, &scale);
	if (!ret)
		ret = sl_post_keep(post, weight);
	if (!ret)
		ret = sl_post_keep(post, scale);
	return ret ? ret : add_largest(post, "input_scale");
}
