/*
 * qwen3_next.c - Qwen3-Next (vLLM: qwen3_next.py, v0.32). Three of four layers have linear attention (gated delta net): its
 * projections are stored by key head, each with the query, key, values and gates that belong to it, so that a share of key
 * heads is a run of rows. q of the others has a gate beside each head. The router is held under the expert runner's name.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

#define FULL(name, joined, what, dim, width) { "self_attn." name, .fused = joined, .role = what, .out = dim, .in = width, .when = sl_has_full_attention }
#define LINEAR(name, what, dim, width, ...) { "linear_attn." name, .role = what, .out = dim, .in = width, .when = sl_has_linear_attention, __VA_ARGS__ }

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	LINEAR("dt_bias", SL_COLUMN, SL_LINEAR_HEADS, SL_NO_AXIS, .flags = SL_BARE),
	LINEAR("A_log",   SL_COLUMN, SL_LINEAR_HEADS, SL_NO_AXIS, .flags = SL_BARE, .as = SL_IN_F32),
	LINEAR("conv1d",       SL_COLUMN, SL_LINEAR_QKV,     SL_ANY, .flags = SL_UNFUSED),
	LINEAR("in_proj_qkvz", SL_COLUMN, SL_LINEAR_BY_KEYS, SL_HIDDEN, .flags = 0),
	LINEAR("in_proj_ba",   SL_COLUMN, SL_LINEAR_BY_KEYS, SL_HIDDEN, .flags = 0),
	LINEAR("norm",         SL_WHOLE,  SL_ANY,            SL_NO_AXIS, .flags = 0),
	LINEAR("out_proj",     SL_ROW,    SL_HIDDEN,         SL_LINEAR_V, .flags = 0),
	FULL("q_proj", "self_attn.qkv_proj", SL_COLUMN, SL_BY_HEADS, SL_HIDDEN),
	FULL("k_proj", "self_attn.qkv_proj", SL_COLUMN, SL_KV, SL_HIDDEN),
	FULL("v_proj", "self_attn.qkv_proj", SL_COLUMN, SL_KV, SL_HIDDEN),
	FULL("o_proj", NULL, SL_ROW, SL_HIDDEN, SL_Q),
	FULL("q_norm", NULL, SL_WHOLE, SL_HEAD_DIM, SL_NO_AXIS),
	FULL("k_norm", NULL, SL_WHOLE, SL_HEAD_DIM, SL_NO_AXIS),
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "mlp.gate", .fused = "mlp.experts.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	{ "mlp.shared_expert_gate", .fused = "mlp.experts._shared_experts._layer.expert_gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	SL_SHARED_EXPERTS("mlp.shared_expert", "mlp.experts._shared_experts._layer", sl_has_experts),
	SL_ROUTED_EXPERTS("mlp.experts", "mlp.experts.routed_experts"),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true,
	  .attns = { { .name = "self_attn.attn", .stored = "self_attn", .when = sl_has_full_attention } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Qwen3NextForCausalLM", NULL };
static const char *const skipped[] = { "mtp.", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	return sl_need_linear_attention(config, err);
}

const struct sl_arch sl_arch_qwen3_next = {
	.family = "Qwen3-Next",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_EXPERTS_EACH_STAGE | SL_EXPERT_PER_RANK | SL_SILU,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.skipped = skipped,
	.prepare = prepare,
};
