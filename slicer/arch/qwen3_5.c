/*
 * qwen3_5.c - Qwen3.5 with experts (vLLM: qwen3_5.py, qwen3_next.py, qwen3_vl.py, v0.32). Three of four layers have linear
 * attention (gated delta net), whose projections the engine merges; q of the others has a gate beside each head. Experts are
 * stored together, or (quantised) each by itself.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight vision_before[] = {
	{ "patch_embed.proj", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY, .bias = sl_always },
	{ "pos_embed",        .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN },
};

static const struct sl_weight vision_block[] = {
	SL_NORM_BIAS("norm1"),
	{ "attn.qkv",  .role = SL_COLUMN, .out = SL_QKV, .in = SL_HIDDEN, .bias = sl_always },
	{ "attn.proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always },
	SL_NORM_BIAS("norm2"),
	{ "mlp.linear_fc1", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = sl_always },
	{ "mlp.linear_fc2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = sl_always },
};

static const struct sl_weight merger[] = {
	SL_NORM_BIAS("norm"),
	{ "linear_fc1", .role = SL_COLUMN, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "linear_fc2", .role = SL_ROW, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "linear_attn.dt_bias", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_linear_attention },
	{ "linear_attn.A_log", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_linear_attention, .as = SL_IN_F32 },
	{ "linear_attn.conv1d", .role = SL_COLUMN, .out = SL_LINEAR_QKV, .in = SL_ANY, .flags = SL_UNFUSED, .when = sl_has_linear_attention },
	{ "linear_attn.in_proj_qkv", .fused = "linear_attn.in_proj_qkvz", .role = SL_COLUMN, .out = SL_LINEAR_QKV, .in = SL_HIDDEN, .when = sl_has_linear_attention },
	{ "linear_attn.in_proj_z",   .fused = "linear_attn.in_proj_qkvz", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_HIDDEN, .when = sl_has_linear_attention },
	{ "linear_attn.in_proj_b", .fused = "linear_attn.in_proj_ba", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_HIDDEN, .when = sl_has_linear_attention },
	{ "linear_attn.in_proj_a", .fused = "linear_attn.in_proj_ba", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_HIDDEN, .when = sl_has_linear_attention },
	{ "linear_attn.norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = sl_has_linear_attention },
	{ "linear_attn.out_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_LINEAR_V, .when = sl_has_linear_attention },
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_HIDDEN, .when = sl_has_full_attention },
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .when = sl_has_full_attention },
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .when = sl_has_full_attention },
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .when = sl_has_full_attention },
	{ "self_attn.q_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = sl_has_full_attention },
	{ "self_attn.k_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = sl_has_full_attention },
	SL_NORM("post_attention_layernorm"),
	{ "mlp.gate", .fused = "mlp.experts.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	{ "mlp.shared_expert_gate", .fused = "mlp.experts._shared_experts._layer.expert_gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	SL_SHARED_EXPERTS("mlp.shared_expert", "mlp.experts._shared_experts._layer", NULL),
	{ "mlp.experts.gate_up_proj", .fused = "mlp.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_GATE_UP, .in = SL_HIDDEN, .flags = SL_BARE | SL_STACKED | SL_OPTIONAL },
	{ "mlp.experts.down_proj", .fused = "mlp.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .flags = SL_BARE | SL_STACKED | SL_OPTIONAL },
	{ "mlp.experts.%e.gate_proj", .fused = "mlp.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .flags = SL_INSTEAD },
	{ "mlp.experts.%e.up_proj", .fused = "mlp.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .flags = SL_INSTEAD },
	{ "mlp.experts.%e.down_proj", .fused = "mlp.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .flags = SL_INSTEAD },
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.visual.", .engine = "visual.", .part = SL_VISION, SL_WEIGHTS(vision_before) },
	{ .name = "model.visual.blocks.%u.", .engine = "visual.blocks.%u.", .part = SL_VISION, SL_WEIGHTS(vision_block) },
	{ .name = "model.visual.merger.", .engine = "visual.merger.", .part = SL_VISION, SL_WEIGHTS(merger) },
	{ .name = "model.language_model.", .engine = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "model.language_model.layers.%u.", .engine = "language_model.model.layers.%u.", .pipelined = true,
	  .attns = { { .name = "self_attn.attn", .stored = "self_attn", .when = sl_has_full_attention } }, SL_WEIGHTS(layer) },
	{ .name = "model.language_model.", .engine = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "", .engine = "language_model.", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Qwen3_5MoeForConditionalGeneration", NULL };
static const char *const skipped[] = { "mtp.", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	return sl_need_linear_attention(config, err);
}

const struct sl_arch sl_arch_qwen3_5_moe = {
	.family = "Qwen3.5 MoE",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_EXPERTS_EACH_STAGE | SL_EXPERT_PER_RANK,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.skipped = skipped,
	.prepare = prepare,
};
