/*
 * trtllm.c - experts for FlashInfer's TensorRT-LLM kernels (vLLM 0.32, quantization/utils/flashinfer_utils.py and
 * flashinfer_fp4_moe.py, fused_moe/oracle; FlashInfer, get_reorder_rows_for_gated_act_gemm_row_indices, get_shuffle_block).
 *
 * Up goes above gate, then a row of each half in turn, then rows are shuffled within groups of 32 or 16 as the kernel's tile of
 * 128 or 64 wants them. Said from the result's row on: which one of the group, which half, and there the other half.
 */
#include "slicer/recipes/moe.h"

#include <errno.h>

static const uint64_t gated_128 = SL_ROWS_THEN(SL_ROWS_TILE_128, SL_ROWS_ALTERNATING, SL_ROWS_SWAPPED);

enum { BLOCK = 128 }; /* bytes of K that lie together */

static int wrong_dtype(const struct sl_post *post, const struct sl_moe *moe, const char *takes)
{
	return sl_fail(post->plan->err, EINVAL, "%s: 'w13' is %s, this kernel takes %s", SL_ESC(post->prefix),
		       sl_dtypes[moe->w13->dtype].name, takes);
}

/* Rows of w13 and of w2 that the shuffle can work on. */
static int need_rows(const struct sl_post *post, const struct sl_moe *moe, uint64_t inter, uint64_t hidden,
		     uint64_t group)
{
	int ret = sl_moe_divides(post, moe->w13, "rows", 2 * inter, group);

	return ret ? ret : sl_moe_divides(post, moe->w2, "rows", hidden, group);
}

/* Bytes of rows that divide into blocks. */
static int need_blocks(const struct sl_post *post, const struct sl_loaded *w)
{
	return sl_moe_divides(post, w, "bytes in a row", sl_dtype_bytes(w->dtype, w->shape[2]), BLOCK);
}

static int add_blocks(const struct sl_post *post, const struct sl_loaded *w, uint64_t chain, bool halves)
{
	return sl_moe_add(
		post, w,
		&(struct sl_moe_order){ chain, halves, w->shape[1], sl_dtype_bytes(w->dtype, w->shape[2]), BLOCK });
}

/* Both in blocks. */
static int add_both(const struct sl_post *post, const struct sl_moe *moe, uint64_t chain13, uint64_t chain2)
{
	int ret = need_blocks(post, moe->w13);

	if (!ret)
		ret = need_blocks(post, moe->w2);
	if (!ret)
		ret = add_blocks(post, moe->w13, chain13, true);
	return ret ? ret : add_blocks(post, moe->w2, chain2, false);
}

int sl_post_trtllm_bf16(const struct sl_post *post)
{
	struct sl_moe moe;
	int ret = sl_moe_need(post, 1, &moe);

	if (!ret && moe.w13->dtype != SL_BF16)
		ret = wrong_dtype(post, &moe, "BF16");
	if (!ret)
		ret = need_rows(post, &moe, moe.inter, moe.hidden, 32);
	return ret ? ret : add_both(post, &moe, gated_128, SL_ROWS_TILE_128);
}

/* One scale a matrix. */
static int add_fp8_tensor(const struct sl_post *post, const struct sl_moe *moe)
{
	uint64_t inter = sl_up(moe->inter, 16);
	int ret = need_rows(post, moe, inter, moe->hidden, 32);

	if (!ret)
		ret = sl_moe_add(post, moe->w13, &(struct sl_moe_order){ gated_128, true, 2 * inter, moe->hidden, 0 });
	if (!ret)
		ret = sl_moe_add(post, moe->w2,
				 &(struct sl_moe_order){ SL_ROWS_TILE_128, false, moe->hidden, inter, 0 });
	return ret ? ret : sl_moe_keep_scales(post);
}

/* A scale a block: halves are swapped, but not mixed. */
static int add_fp8_block(const struct sl_post *post, const struct sl_moe *moe)
{
	int ret = need_rows(post, moe, moe->inter, moe->hidden, 16);

	if (!ret)
		ret = add_both(post, moe, SL_ROWS_THEN(SL_ROWS_TILE_64, SL_ROWS_SWAPPED, SL_ROWS_SAME),
			       SL_ROWS_TILE_64);
	return ret ? ret : sl_moe_add_floored(post);
}

int sl_post_trtllm_fp8(const struct sl_post *post)
{
	struct sl_moe moe;
	int ret = sl_moe_need(post, 1, &moe);

	if (!ret && sl_dtype_bytes(moe.w13->dtype, 1) != 1)
		ret = wrong_dtype(post, &moe, "FP8");
	if (ret)
		return ret;
	return post->facts.block[0] ? add_fp8_block(post, &moe) : add_fp8_tensor(post, &moe);
}

/* Both matrices, and their scales of groups, as `dtype`. */
static int add_groups(const struct sl_post *post, const struct sl_moe *moe, uint64_t group, enum sl_dtype dtype,
		      uint64_t chain, bool halves, uint64_t inter, uint64_t hidden)
{
	uint64_t packed = moe->w13->dtype == SL_U8 ? 2 : 1; /* sl_moe_need() has looked */
	struct sl_moe_order upper = { chain, halves, 2 * inter, hidden / packed, 0 },
			    lower = { SL_ROWS_TILE_128, false, hidden, inter / packed, 0 };
	const struct sl_loaded *s13, *s2;
	int ret = sl_moe_need_scale(post, "w13_scale", moe->w13, moe->hidden, group, &s13);

	if (!ret)
		ret = sl_moe_need_scale(post, "w2_scale", moe->w2, moe->inter, group, &s2);
	if (!ret)
		ret = need_rows(post, moe, inter, hidden, 32);
	if (!ret)
		ret = sl_moe_add(post, moe->w13, &upper);
	if (!ret)
		ret = sl_moe_add(post, moe->w2, &lower);
	upper.row_bytes = hidden / group;
	lower.row_bytes = inter / group;
	if (!ret)
		ret = sl_moe_add_swizzled(post, s13, &upper, dtype);
	return ret ? ret : sl_moe_add_swizzled(post, s2, &lower, dtype);
}

int sl_post_trtllm_nvfp4(const struct sl_post *post)
{
	struct sl_moe moe;
	int ret = sl_moe_need(post, 2, &moe);

	if (!ret)
		ret = add_groups(post, &moe, 16, SL_F8_E4M3, gated_128, true, sl_up(moe.inter, 64),
				 sl_up(moe.hidden, 256));
	return ret ? ret : sl_moe_add_inputs(post, true, moe.experts);
}

/* Scales keep their shape: they fill whole tiles of 128 rows and 4 columns. */
int sl_post_trtllm_mxfp8(const struct sl_post *post)
{
	struct sl_moe moe;
	int ret = sl_moe_need(post, 1, &moe);

	if (!ret && moe.w13->dtype != SL_F8_E4M3)
		ret = wrong_dtype(post, &moe, "FP8");
	if (!ret)
		ret = need_rows(post, &moe, moe.inter, moe.hidden, 128);
	if (!ret)
		ret = sl_moe_divides(post, moe.w13, "columns", moe.hidden, 128);
	if (!ret)
		ret = sl_moe_divides(post, moe.w2, "columns", moe.inter, 128);
	return ret ? ret : add_groups(post, &moe, 32, SL_U8, gated_128, true, moe.inter, moe.hidden);
}

/* gpt-oss has gate and up in turn already, in the other order. */
int sl_post_trtllm_gpt_oss(const struct sl_post *post)
{
	const uint64_t chain = SL_ROWS_THEN(SL_ROWS_TILE_128, SL_ROWS_PAIRS, SL_ROWS_SAME);
	struct sl_moe moe;
	const struct sl_loaded *bias13, *bias2;
	int ret = sl_moe_need(post, 2, &moe);

	if (!ret)
		ret = sl_moe_need_bias(post, "w13_bias", moe.w13, &bias13);
	if (!ret)
		ret = sl_moe_need_bias(post, "w2_bias", moe.w2, &bias2);
	if (!ret)
		ret = add_groups(post, &moe, 32, SL_F8_E4M3, chain, false, moe.inter, moe.hidden);
	if (!ret)
		ret = sl_moe_add_bias(post, bias13, chain, SL_F32);
	return ret ? ret : sl_moe_add_bias(post, bias2, SL_ROWS_TILE_128, SL_F32);
}
