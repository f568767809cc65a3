/*
 * gpt_oss.c - gpt-oss (vLLM: gpt_oss.py, v0.32). Experts are stored together, in MXFP4 blocks; rows of gate and up
 * alternate, and stay so. Each head has a sink.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	{ "embed_tokens", .fused = "embedding", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED },
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.sinks",  .fused = "attn.sinks", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE },
	{ "self_attn.q_proj", .fused = "attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.k_proj", .fused = "attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.v_proj", .fused = "attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.o_proj", .fused = "attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always },
	SL_NORM("post_attention_layernorm"),
	{ "mlp.router", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .bias = sl_always },
	{ "mlp.experts.gate_up_proj", .fused = "mlp.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_PAIRS, .in = SL_HIDDEN, .flags = SL_STACKED | SL_PADDED },
	{ "mlp.experts.down_proj", .fused = "mlp.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .flags = SL_STACKED | SL_PADDED },
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "GptOssForCausalLM", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	(void)err;
	config->dims[SL_TEXT].moe_inter = config->dims[SL_TEXT].inter;
	return 0;
}

const struct sl_arch sl_arch_gpt_oss = {
	.family = "gpt-oss",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};
