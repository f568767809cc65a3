/*
 * qwen3_moe.c - Qwen3 with experts (vLLM: qwen3_moe.py, v0.32). The router is given to the expert runner, under whose name it
 * is then held; layers of mlp_only_layers are dense. Every stage has the embedding, the final norm and
 * the head.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_has_attention_bias, NULL),
	SL_QK_NORM,
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "mlp.gate", .fused = "mlp.experts.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = sl_has_experts },
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

static const char *const names[] = { "Qwen3MoeForCausalLM", NULL };

const struct sl_arch sl_arch_qwen3_moe = {
	.family = "Qwen3 MoE",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_EXPERTS_EACH_STAGE | SL_EXPERT_PER_RANK | SL_SILU,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};
/* clang-format on */
