/*
 * arch/arch.h - what the files of this directory share: the list that arch.c makes of them, and rows that many have.
 */
#ifndef SLICER_ARCH_ARCH_H
#define SLICER_ARCH_ARCH_H

#include "slicer/arch.h"

extern const struct sl_arch sl_arch_llama, sl_arch_mistral, sl_arch_qwen2, sl_arch_qwen3, sl_arch_phi3, sl_arch_gemma2,
	sl_arch_gemma3, sl_arch_gemma3_multimodal, sl_arch_gpt2, sl_arch_opt, sl_arch_falcon, sl_arch_bert;

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

#define SL_EMBED(name, where) \
	{ name, .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .stages = where }
#define SL_HEAD(name, where) \
	{ name, .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_HEAD, .stages = where }

#define SL_WEIGHTS(table) .weights = table, .n_weights = SL_COUNT(table)

/* clang-format on */

/* Spellings of the llama-shaped families: without "model.", or inside a multimodal wrapper. */
extern const struct sl_spelling sl_llama_spellings[3];

#endif
