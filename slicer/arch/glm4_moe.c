/*
 * glm4_moe.c - GLM-4.5 and 4.6 (vLLM: glm4_moe.py, v0.32). The router and its correction bias are F32; layers beyond
 * num_hidden_layers are drafts.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_qk_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "use_qk_norm", false);
}

static bool has_one_shared_expert(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t n = 0;

	(void)layer;
	return sl_config_u64(config, part, "n_shared_experts", &n, NULL) == 0 && n == 1;
}

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_has_attention_bias, NULL),
	{ "self_attn.q_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = has_qk_norm },
	{ "self_attn.k_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = has_qk_norm },
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "mlp.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts, .as = SL_IN_F32 },
	{ "mlp.gate.e_score_correction_bias", .fused = "mlp.experts.routed_experts.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_experts, .as = SL_IN_F32 },
	SL_FUSIBLE_SHARED_EXPERTS("mlp.experts", "mlp.shared_experts", "mlp.experts._shared_experts._layer", sl_has_shared_experts),
	SL_ROUTED_EXPERTS("mlp.experts", "mlp.experts.routed_experts"),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Glm4MoeForCausalLM", NULL };

const struct sl_arch sl_arch_glm4_moe = {
	.family = "GLM-4.5, GLM-4.6",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_GROUPS | SL_EXPERTS_EACH_STAGE | SL_SILU,
	.fuses_shared = has_one_shared_expert,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
};
/* clang-format on */
