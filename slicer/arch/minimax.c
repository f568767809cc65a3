/*
 * minimax.c - MiniMax M2 (vLLM: minimax_m2.py, v0.32). Norms of queries and keys go over all heads of a rank.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_router_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "use_routing_bias", false);
}

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(NULL, NULL),
	{ "self_attn.q_norm", .role = SL_COLUMN, .out = SL_Q, .in = SL_NO_AXIS },
	{ "self_attn.k_norm", .role = SL_COLUMN, .out = SL_KV, .in = SL_NO_AXIS },
	SL_NORM("post_attention_layernorm"),
	{ "block_sparse_moe.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .as = SL_IN_F32 },
	{ "block_sparse_moe.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = has_router_bias, .as = SL_IN_F32 },
	{ "block_sparse_moe.experts.%e.w1", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "block_sparse_moe.experts.%e.w3", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "block_sparse_moe.experts.%e.w2", .fused = "block_sparse_moe.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER },
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "MiniMaxM2ForCausalLM", NULL };
/* clang-format on */

/* An expert has intermediate_size rows: there is no other MLP. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	(void)err;
	config->dims[SL_TEXT].moe_inter = config->dims[SL_TEXT].inter;
	return 0;
}

const struct sl_arch sl_arch_minimax_m2 = {
	.family = "MiniMax M2",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_PER_RANK,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};
