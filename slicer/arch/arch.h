/*
 * arch/arch.h - what the files of this directory share: the list that arch.c makes of them, and rows that many have.
 */
#ifndef SLICER_ARCH_ARCH_H
#define SLICER_ARCH_ARCH_H

#include "slicer/arch.h"

extern const struct sl_arch sl_arch_llama, sl_arch_mistral, sl_arch_qwen2, sl_arch_qwen3, sl_arch_phi3, sl_arch_gemma2,
	sl_arch_gemma3, sl_arch_gemma3_multimodal, sl_arch_gpt2, sl_arch_opt, sl_arch_falcon, sl_arch_bert,
	sl_arch_mixtral, sl_arch_qwen3_moe, sl_arch_deepseek, sl_arch_glm4_moe, sl_arch_kimi_k25, sl_arch_gpt_oss,
	sl_arch_minimax_m2, sl_arch_llama4, sl_arch_qwen3_5_moe, sl_arch_gemma4, sl_arch_minimax_m3,
	sl_arch_minimax_m3_text, sl_arch_deepseek_v4, sl_arch_kimi_k3, sl_arch_qwen2_moe, sl_arch_qwen3_next,
	sl_arch_kimi_linear;

/* clang-format off */

/* A norm: [hidden] weight, and a bias where the family's norms have one. */
#define SL_NORM(name)      { name, .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS }
#define SL_NORM_BIAS(name) { name, .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .bias = sl_always }

/* The attention and the gated MLP that most families share; `qkv` is the predicate of the biases of q, k and v, `o` that of
 * the output projection, `mlp` that of the MLP. */
#define SL_SELF_ATTENTION(qkv_bias, o_bias)                                                                           \
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = qkv_bias }, \
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = qkv_bias }, \
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = qkv_bias }, \
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = o_bias }

#define SL_GATED_MLP(mlp_bias)                                                                                        \
	{ "mlp.gate_proj", .fused = "mlp.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = mlp_bias }, \
	{ "mlp.up_proj",   .fused = "mlp.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = mlp_bias }, \
	{ "mlp.down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = mlp_bias }

/* RMS norm of each head's queries and keys. */
#define SL_QK_NORM                                                                                                    \
	{ "self_attn.q_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS },                               \
	{ "self_attn.k_norm", .role = SL_WHOLE, .out = SL_HEAD_DIM, .in = SL_NO_AXIS }

/* Routed experts of `moe`, one module each, stacked by vLLM as w13 and w2 of `held`. */
#define SL_ROUTED_EXPERTS(moe, held)                                                                                  \
	{ moe ".%e.gate_proj", .fused = held ".w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_ANY, .when = sl_has_experts }, \
	{ moe ".%e.up_proj",   .fused = held ".w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_ANY, .when = sl_has_experts }, \
	{ moe ".%e.down_proj", .fused = held ".w2", .role = SL_ROW, .out = SL_ANY, .in = SL_MOE_INTER, .when = sl_has_experts }

/* Shared experts: one MLP beside the routed ones, under the name that vLLM's runner gives it. */
#define SL_SHARED_EXPERTS(shared, held, present)                                                                      \
	{ shared ".gate_proj", .fused = held ".gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN, .when = present }, \
	{ shared ".up_proj",   .fused = held ".gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN, .when = present }, \
	{ shared ".down_proj", .fused = held ".down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_ANY, .when = present }

/* The same where an engine may make them the last of the routed ones, which are those of `moe`. */
#define SL_FUSIBLE_SHARED_EXPERTS(moe, shared, held, present)                                                         \
	{ shared ".gate_proj", .fused = held ".gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN, .when = present, .routed = moe ".%e.gate_proj" }, \
	{ shared ".up_proj",   .fused = held ".gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN, .when = present, .routed = moe ".%e.up_proj" }, \
	{ shared ".down_proj", .fused = held ".down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_ANY, .when = present, .routed = moe ".%e.down_proj" }

/* The MLP of layers without experts. */
#define SL_DENSE_MLP                                                                                                  \
	{ "mlp.gate_proj", .fused = "mlp.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .when = sl_has_no_experts }, \
	{ "mlp.up_proj",   .fused = "mlp.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .when = sl_has_no_experts }, \
	{ "mlp.down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .when = sl_has_no_experts }

#define SL_EMBED(name, where) \
	{ name, .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .stages = where }
#define SL_HEAD(name, where) \
	{ name, .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_HEAD, .stages = where }

#define SL_WEIGHTS(table) .weights = table, .n_weights = SL_COUNT(table)

/* clang-format on */

/* Spellings of the llama-shaped families: without "model.", or inside a multimodal wrapper. */
extern const struct sl_spelling sl_llama_spellings[3];

#endif
