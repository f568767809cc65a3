/*
 * mixtral.c - Mixtral (vLLM: mixtral.py, v0.32): experts w1 (gate), w3 (up), w2 (down) of intermediate_size rows each; every
 * stage has the embedding, the final norm and the head.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(NULL, NULL),
	SL_NORM("post_attention_layernorm"),
	{ "block_sparse_moe.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	{ "block_sparse_moe.experts.%e.w1", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "block_sparse_moe.experts.%e.w3", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "block_sparse_moe.experts.%e.w2", .fused = "block_sparse_moe.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER },
};

static const struct sl_weight norm[] = {
	SL_NORM("norm"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "MixtralForCausalLM", NULL };
/* clang-format on */

/* An expert has intermediate_size rows: there is no other MLP. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	(void)err;
	config->dims[SL_TEXT].moe_inter = config->dims[SL_TEXT].inter;
	return 0;
}

const struct sl_arch sl_arch_mixtral = {
	.family = "Mixtral",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};
