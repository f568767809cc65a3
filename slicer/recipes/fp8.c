/*
 * fp8.c - linear layers with FP8 weights, one scale a matrix or one a row (vLLM 0.32, quantization/utils/fp8_utils.py,
 * process_fp8_weight_tensor_strategy and process_fp8_weight_channel_strategy).
 *
 * The kernel reads the weight as [in, out] through a view: in memory it stays [out, in], and so do the bytes here.
 */
#include "slicer/post.h"
#include "slicer/transforms/element.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/rows.h"
#include "slicer/transforms/scalars.h"

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

/* One scale for all: the largest, or twice that. A module without that scale has none. */
static int add_largest(const struct sl_post *post, const char *name, enum sl_scalar kind)
{
	const struct sl_loaded *scale = sl_post_find(post, name);

	if (!scale)
		return 0;
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, sizeof(float));
	t.args.p[SL_SCALARS_KIND] = kind;
	t.args.p[SL_SCALARS_ALL] = true;
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

/* Rows and columns as they are in memory: rounded up to what the kernel wants. */
static uint64_t padded(const struct sl_post *post, uint64_t n)
{
	return sl_up(n, post->facts.align ? post->facts.align : 1);
}

/* Codes that nothing is done to. */
static int add_unchanged(const struct sl_post *post, const struct sl_loaded *weight)
{
	uint64_t n = padded(post, weight->shape[0]), k = padded(post, weight->shape[1]);
	struct sl_transform t = sl_post_transform(SL_T_ROWS, 1, n, k);
	int ret;

	t.args.p[SL_ROWS_M] = n;
	sl_post_input(&t, weight, 0, weight->shape[0], weight->shape[1]);
	if (n == weight->shape[0] && k == weight->shape[1])
		ret = sl_post_keep(post, weight);
	else
		ret = sl_post_one(post, "weight", weight->dtype, &t, SL_SHAPE(n, k));
	if (!ret)
		sl_post_turned(post);
	return ret;
}

/* A scale without dimension leaves nothing to be made one scale of. */
static int add_weight(const struct sl_post *post, const struct sl_loaded *weight, const struct sl_loaded *scale,
		      enum sl_map_kind kind)
{
	uint64_t n = padded(post, weight->shape[0]), k = padded(post, weight->shape[1]);
	struct sl_transform t = sl_post_transform(SL_T_MAP, 1, n, k);

	if (scale->n_dims == 0 && kind != SL_MAP_REQUANT_FNUZ)
		return add_unchanged(post, weight);
	set_widths(post, &t, scale->n_dims ? kind : SL_MAP_FNUZ);
	sl_post_input(&t, weight, 0, weight->shape[0], weight->shape[1]);
	if (scale->n_dims)
		sl_post_input(&t, scale, 0, 1, scale->len);
	int ret = sl_post_one(post, "weight", kind == SL_MAP_REQUANT_FNUZ ? SL_F8_E4M3FNUZ : weight->dtype, &t,
			      SL_SHAPE(n, k));
	if (!ret)
		sl_post_turned(post);
	return ret;
}

static int per_tensor(const struct sl_post *post, enum sl_map_kind kind)
{
	enum sl_scalar largest = kind == SL_MAP_REQUANT_FNUZ ? SL_SCALAR_TWICE_MAX : SL_SCALAR_MAX;
	const struct sl_loaded *weight, *scale;
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret)
		ret = need_scales(post, &scale);
	if (!ret)
		ret = add_weight(post, weight, scale, kind);
	if (!ret)
		ret = add_largest(post, "weight_scale", largest);
	return ret ? ret : add_largest(post, "input_scale", largest);
}

int sl_post_fp8_tensor(const struct sl_post *post)
{
	return per_tensor(post, post->facts.cpu ? SL_MAP_REQUANT_CPU : SL_MAP_REQUANT);
}

int sl_post_fp8_tensor_modelopt(const struct sl_post *post)
{
	return per_tensor(post, SL_MAP_REQUANT_UNLIKE);
}

int sl_post_fp8_fnuz_tensor(const struct sl_post *post)
{
	return per_tensor(post, SL_MAP_REQUANT_FNUZ);
}

/* CutlassFP8ScaledMMLinearKernel wants multiples of 16, and cannot pad a scale a row: its own assertion fails then. */
static int check_rows(const struct sl_post *post, const struct sl_loaded *weight, const struct sl_loaded *scale)
{
	if (scale->len == sizeof(float) || padded(post, weight->shape[0]) == weight->shape[0])
		return 0;
	return sl_fail(post->plan->err, EINVAL,
		       "%sweight: %llu rows with a scale each are no multiple of %llu: vLLM's kernel cannot pad them",
		       SL_ESC(post->prefix), (unsigned long long)weight->shape[0],
		       (unsigned long long)post->facts.align);
}

/* Those that are stored are looked at. */
static int add_scales(const struct sl_post *post, const struct sl_loaded *scale)
{
	struct sl_transform t = sl_post_transform(SL_T_ELEMENT, 1, 1, scale->len);

	if (scale->dtype != SL_F32 || scale->done)
		return sl_post_keep(post, scale);
	t.args.p[SL_ELEMENT_KIND] = SL_ELEMENT_SCALE;
	sl_post_input(&t, scale, 0, 1, scale->len);
	return sl_post_one(post, scale->name, SL_F32, &t, scale->shape, scale->n_dims);
}

int sl_post_fp8_channel(const struct sl_post *post)
{
	const struct sl_loaded *weight, *scale = sl_post_find(post, "weight_scale");
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (!ret && !scale)
		ret = sl_fail(post->plan->err, EINVAL, "%s has no 'weight_scale'", SL_ESC(post->prefix));
	if (!ret)
		ret = check_rows(post, weight, scale);
	if (!ret)
		ret = add_unchanged(post, weight);
	if (!ret)
		ret = add_scales(post, scale);
	return ret ? ret : add_largest(post, "input_scale", SL_SCALAR_MAX);
}

int sl_post_fp8_cutlass_pad(const struct sl_post *post)
{
	struct sl_post padding = *post;

	padding.facts.align = 16;
	return sl_post_fp8_channel(&padding);
}

/* Each element of a scale doubled. */
static int add_twice(const struct sl_post *post, const char *name)
{
	const struct sl_loaded *scale = sl_post_find(post, name);

	if (!scale)
		return 0;
	bool powers = scale->dtype == SL_F8_E8M0;
	struct sl_transform t = sl_post_transform(powers ? SL_T_MAP : SL_T_SCALARS, 1, 1, scale->len);
	if (powers) {
		t.args.p[SL_MAP_KIND] = SL_MAP_E8M0_TWICE;
		t.args.p[SL_MAP_N] = 1;
	} else {
		t.args.p[SL_SCALARS_KIND] = SL_SCALAR_TWICE_MAX;
	}
	sl_post_input(&t, scale, 0, powers ? 1 : scale->len / sizeof(float), powers ? scale->len : sizeof(float));
	return sl_post_one(post, name, scale->dtype, &t, scale->shape, scale->n_dims);
}

int sl_post_fp8_fnuz(const struct sl_post *post)
{
	const struct sl_loaded *weight;
	int ret = sl_post_need(post, "weight", 2, &weight);

	if (ret)
		return ret;
	struct sl_transform t = sl_post_transform(SL_T_MAP, 1, weight->shape[0], weight->shape[1]);
	t.args.p[SL_MAP_KIND] = SL_MAP_FNUZ;
	t.args.p[SL_MAP_N] = 1;
	sl_post_input(&t, weight, 0, weight->shape[0], weight->shape[1]);
	ret = sl_post_one(post, "weight", SL_F8_E4M3FNUZ, &t, weight->shape, 2);
	if (!ret && !post->facts.block[0])
		sl_post_turned(post);
	if (!ret)
		ret = add_twice(post, "weight_scale");
	if (!ret)
		ret = add_twice(post, "weight_scale_inv");
	return ret ? ret : add_twice(post, "input_scale");
}
