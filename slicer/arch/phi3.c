/*
 * phi3.c - Phi-3 (vLLM: phi3.py, which is llama.py with q|k|v and gate|up fused in the checkpoint already).
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_OR_TIED_LAST),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_QKV,     .in = SL_HIDDEN, .bias = sl_has_attention_bias },
	{ "self_attn.o_proj",   .role = SL_ROW,    .out = SL_HIDDEN,  .in = SL_Q,      .bias = sl_has_attention_bias },
	SL_NORM("post_attention_layernorm"),
	{ "mlp.gate_up_proj",   .role = SL_COLUMN, .out = SL_GATE_UP, .in = SL_HIDDEN, .bias = sl_has_mlp_bias },
	{ "mlp.down_proj",      .role = SL_ROW,    .out = SL_HIDDEN,  .in = SL_INTER,  .bias = sl_has_mlp_bias },
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

static const char *const names[] = { "Phi3ForCausalLM", NULL };

const struct sl_arch sl_arch_phi3 = {
	.family = "Phi-3, Phi-4",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_SILU,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};
/* clang-format on */
