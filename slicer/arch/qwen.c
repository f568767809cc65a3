/*
 * qwen.c - Qwen2, Qwen2.5 and Qwen3, dense (vLLM: qwen2.py, qwen3.py, v0.32): Llama with biases on q, k and v, and with
 * norms of queries and keys instead.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_qk_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "qk_norm", false);
}

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_OR_TIED_LAST),
};

static const struct sl_weight qwen2_layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_always, NULL),
	{ "self_attn.q_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = has_qk_norm },
	{ "self_attn.k_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS, .when = has_qk_norm },
	SL_NORM("post_attention_layernorm"),
	SL_GATED_MLP(NULL),
};

static const struct sl_weight qwen3_layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_has_attention_bias, NULL),
	SL_QK_NORM,
	SL_NORM("post_attention_layernorm"),
	SL_GATED_MLP(NULL),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack qwen2_stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(qwen2_layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_stack qwen3_stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(qwen3_layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const qwen2_names[] = { "Qwen2ForCausalLM", NULL };
static const char *const qwen3_names[] = { "Qwen3ForCausalLM", NULL };

const struct sl_arch sl_arch_qwen2 = {
	.family = "Qwen2, Qwen2.5",
	.architectures = qwen2_names,
	.format = SL_FORMAT_HF,
	.flags = SL_SILU,
	.stacks = qwen2_stacks, .n_stacks = SL_COUNT(qwen2_stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};

const struct sl_arch sl_arch_qwen3 = {
	.family = "Qwen3",
	.architectures = qwen3_names,
	.format = SL_FORMAT_HF,
	.flags = SL_SILU,
	.stacks = qwen3_stacks, .n_stacks = SL_COUNT(qwen3_stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};
/* clang-format on */
