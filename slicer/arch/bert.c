/*
 * bert.c - BERT as an embedding model (vLLM: bert.py, BertEmbeddingModel, v0.32): MiniLM, e5, bge. All three embeddings
 * are vocab-parallel, each padded by itself; position_ids is a persistent buffer; the pooler is not loaded.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight embeddings[] = {
	{ "position_ids",          .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .flags = SL_BARE | SL_INDICES },
	{ "word_embeddings",       .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED },
	{ "position_embeddings",   .role = SL_EMBEDDING, .out = SL_ANY, .in = SL_HIDDEN },
	{ "token_type_embeddings", .role = SL_EMBEDDING, .out = SL_ANY, .in = SL_HIDDEN },
	SL_NORM_BIAS("LayerNorm"),
};

static const struct sl_weight layer[] = {
	{ "attention.self.query", .fused = "attention.self.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = sl_always },
	{ "attention.self.key",   .fused = "attention.self.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "attention.self.value", .fused = "attention.self.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "attention.output.dense", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always },
	SL_NORM_BIAS("attention.output.LayerNorm"),
	{ "intermediate.dense", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = sl_always },
	{ "output.dense", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = sl_always },
	SL_NORM_BIAS("output.LayerNorm"),
};

static const struct sl_weight pooler[] = {
	{ "dense", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_HIDDEN, .flags = SL_UNLOADED, .bias = sl_always },
};

static const struct sl_stack stacks[] = {
	{ .name = "embeddings.", .engine = "model.embeddings.", SL_WEIGHTS(embeddings) },
	{ .name = "encoder.layer.%u.", .engine = "model.encoder.layer.%u.", .pipelined = true, .attns = { { .name = "attention.self.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "pooler.", .engine = "model.pooler.", SL_WEIGHTS(pooler) },
};

static const struct sl_spelling spellings[] = {
	{ { { "embeddings.", "bert.embeddings." }, { "encoder.", "bert.encoder." }, { "pooler.", "bert.pooler." } } },
};

static const char *const names[] = { "BertModel", NULL };

const struct sl_arch sl_arch_bert = {
	.family = "BERT embedding models (MiniLM, e5, bge)",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_ENCODER | SL_NO_STAGES,
	.whole_in_hf = SL_HEADS_FROM_HIDDEN,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = spellings, .n_spellings = SL_COUNT(spellings),
};
/* clang-format on */
