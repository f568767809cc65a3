/*
 * qwen2_moe.c - Qwen1.5 MoE and Qwen2 with experts (vLLM: qwen2_moe.py, v0.32): attention as in Qwen2, a shared expert with a
 * gate of its own beside the routed ones. The router keeps its name; layers of mlp_only_layers are dense.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_always, NULL),
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "mlp.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	{ "mlp.shared_expert_gate", .fused = "mlp.experts._shared_experts._layer.expert_gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	SL_SHARED_EXPERTS("mlp.shared_expert", "mlp.experts._shared_experts._layer", sl_has_experts),
	SL_ROUTED_EXPERTS("mlp.experts", "mlp.experts.routed_experts"),
};

static const struct sl_weight norm[] = {
	SL_NORM("norm"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Qwen2MoeForCausalLM", NULL };

const struct sl_arch sl_arch_qwen2_moe = {
	.family = "Qwen1.5 MoE, Qwen2 MoE",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_EXPERT_PER_RANK | SL_SILU,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};
/* clang-format on */
