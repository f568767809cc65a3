/*
 * moe_fp4.c - experts with 4-bit weights for CUTLASS and CuTe-DSL kernels (vLLM 0.32, fused_moe/oracle/nvfp4.py and mxfp4.py,
 * quantization/utils/flashinfer_fp4_moe.py).
 */
#include "slicer/recipes/moe.h"
#include "slicer/transforms/swizzle.h"

#include <errno.h>
#include <string.h>

static int need_scales(const struct sl_post *post, const struct sl_moe *moe, uint64_t group,
		       const struct sl_loaded **w13, const struct sl_loaded **w2)
{
	int ret = sl_moe_need_scale(post, "w13_scale", moe->w13, moe->hidden, group, w13);

	return ret ? ret : sl_moe_need_scale(post, "w2_scale", moe->w2, moe->inter, group, w2);
}

/* Both matrices and their scales, w13's rows in an order, padded to `inter` and `hidden`. */
static int add_all(const struct sl_post *post, const struct sl_moe *moe, uint64_t group, uint64_t chain, uint64_t inter,
		   uint64_t hidden)
{
	struct sl_moe_order upper = { chain, true, 2 * inter, hidden / 2, 0 },
			    lower = { SL_ROWS_SAME, false, hidden, inter / 2, 0 };
	const struct sl_loaded *s13, *s2;
	int ret = need_scales(post, moe, group, &s13, &s2);

	if (!ret)
		ret = sl_moe_add(post, moe->w13, &upper);
	if (!ret)
		ret = sl_moe_add(post, moe->w2, &lower);
	upper.row_bytes = hidden / group;
	lower.row_bytes = inter / group;
	if (!ret)
		ret = sl_moe_add_swizzled(post, s13, &upper, s13->dtype);
	return ret ? ret : sl_moe_add_swizzled(post, s2, &lower, s2->dtype);
}

static int keep(const struct sl_post *post, const char *name, uint64_t n)
{
	const struct sl_loaded *s;
	int ret = sl_post_need(post, name, 1, &s);

	if (!ret && s->shape[0] != n)
		ret = sl_fail(post->plan->err, EINVAL, "%s: '%s' has %llu elements for %llu experts",
			      SL_ESC(post->prefix), name, (unsigned long long)s->shape[0], (unsigned long long)n);
	return ret ? ret : sl_post_keep(post, s);
}

/* The scales of activations: of each expert the larger of two, or one for all. */
int sl_moe_add_inputs(const struct sl_post *post, bool of_all, uint64_t experts)
{
	int ret = sl_moe_add_largest(post, "a13_scale", of_all, experts);

	return ret ? ret : sl_moe_add_largest(post, "a2_scale", of_all, experts);
}

int sl_post_nvfp4_moe(const struct sl_post *post)
{
	const char *backend = post->facts.backend ? post->facts.backend : "FLASHINFER_CUTLASS";
	bool own = strcmp(backend, "VLLM_CUTLASS") == 0,
	     swapped = !strcmp(backend, "FLASHINFER_CUTLASS") || !strcmp(backend, "FLASHINFER_B12X");
	struct sl_moe moe;
	int ret = sl_moe_need(post, 2, &moe);

	if (!ret && !own && !swapped && strcmp(backend, "FLASHINFER_CUTEDSL_BATCHED") != 0)
		ret = sl_fail(post->plan->err, EINVAL, "%s: no kernel '%s' for NVFP4 experts", SL_ESC(post->prefix),
			      SL_ESC(backend));
	if (!ret)
		ret = add_all(post, &moe, 16, swapped ? SL_ROWS_SWAPPED : SL_ROWS_SAME, moe.inter, moe.hidden);
	if (!ret)
		ret = keep(post, "w13_scale_2", moe.experts);
	if (!ret)
		ret = keep(post, "w2_scale_2", moe.experts);
	return ret ? ret : sl_moe_add_inputs(post, !own, moe.experts);
}

int sl_post_nvfp4_moe_cutedsl(const struct sl_post *post)
{
	struct sl_moe moe;
	int ret = sl_moe_need(post, 2, &moe);

	if (!ret)
		ret = add_all(post, &moe, 16, SL_ROWS_THEN(SL_ROWS_IN_64, SL_ROWS_SWAPPED, SL_ROWS_SAME),
			      sl_up(moe.inter, 64), sl_up(moe.hidden, 256));
	return ret ? ret : sl_moe_add_inputs(post, true, moe.experts);
}

/* gpt-oss has gate and up in turn: up first, then gate. */
int sl_post_gpt_oss_fi_cutlass(const struct sl_post *post)
{
	struct sl_moe moe;
	const struct sl_loaded *bias13, *bias2, *s13, *s2;
	int ret = sl_moe_need(post, 2, &moe);

	if (!ret)
		ret = need_scales(post, &moe, 32, &s13, &s2);
	if (!ret)
		ret = sl_moe_need_bias(post, "w13_bias", moe.w13, &bias13);
	if (!ret)
		ret = sl_moe_need_bias(post, "w2_bias", moe.w2, &bias2);
	if (ret)
		return ret;
	struct sl_moe_order upper = { SL_ROWS_ODD_FIRST, false, 2 * moe.inter, moe.hidden / 2, 0 },
			    lower = { SL_ROWS_SAME, false, moe.hidden, moe.inter / 32, 0 };
	ret = sl_moe_add(post, moe.w13, &upper);
	if (!ret)
		ret = sl_post_keep(post, moe.w2);
	upper.row_bytes = moe.hidden / 32;
	if (!ret)
		ret = sl_moe_add_swizzled(post, s13, &upper, s13->dtype);
	if (!ret)
		ret = sl_moe_add_swizzled(post, s2, &lower, s2->dtype);
	if (!ret)
		ret = sl_moe_add_bias(post, bias13, SL_ROWS_ODD_FIRST, bias13->dtype);
	return ret ? ret : sl_post_keep(post, bias2);
}
