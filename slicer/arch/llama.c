/*
 * llama.c - Llama and what is shaped like it: TinyLlama, SmolLM2, Mistral (vLLM: llama.py, mistral.py, v0.32), and
 * Mistral's own naming (consolidated.safetensors), whose q and k rows are in rotary pairs (mistral.py, permute).
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_qkv_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_bool(config, part, "qkv_bias", sl_has_attention_bias(config, part, layer));
}

/* clang-format off */
/* SGLang's first stage alone has the embedding; where that is the head too, the last one has none. */
static const struct sl_weight first_embedding = SL_EMBED("embed_tokens", SL_FIRST_STAGE);
static const struct sl_weight every_head = SL_HEAD("lm_head", SL_EVERY_STAGE);

static const struct sl_weight before[] = {
	{ "embed_tokens", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .stages = SL_FIRST_OR_TIED_LAST, .sglang = &first_embedding },
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(has_qkv_bias, sl_has_attention_bias),
	SL_NORM("post_attention_layernorm"),
	SL_GATED_MLP(sl_has_mlp_bias),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	{ "lm_head", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_HEAD, .stages = SL_LAST_STAGE, .sglang = &every_head },
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

const struct sl_spelling sl_llama_spellings[3] = {
	{ { { "model.", "" } } },
	{ { { "model.", "language_model.model." }, { "lm_head", "language_model.lm_head" } } },
	{ { { "model.", "model.language_model." } } },
};

static const char *const names[] = { "LlamaForCausalLM", "MistralForCausalLM", NULL };

const struct sl_arch sl_arch_llama = {
	.family = "Llama 2/3.x, TinyLlama, SmolLM2, Mistral",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_SGLANG_STAGES | SL_SILU,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};

/* Mistral's own names. */
static const struct sl_weight native_before[] = {
	{ "tok_embeddings", "embed_tokens", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .stages = SL_FIRST_OR_TIED_LAST },
};

static const struct sl_weight native_layer[] = {
	{ "attention_norm",  "input_layernorm",  .role = SL_WHOLE,  .out = SL_HIDDEN, .in = SL_NO_AXIS },
	{ "attention.wq",    "self_attn.q_proj", "self_attn.qkv_proj", SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .order = SL_ROTARY },
	{ "attention.wk",    "self_attn.k_proj", "self_attn.qkv_proj", SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .order = SL_ROTARY },
	{ "attention.wv",    "self_attn.v_proj", "self_attn.qkv_proj", SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN },
	{ "attention.wo",    "self_attn.o_proj", .role = SL_ROW,    .out = SL_HIDDEN, .in = SL_Q },
	{ "ffn_norm",        "post_attention_layernorm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS },
	{ "feed_forward.w1", "mlp.gate_proj",    "mlp.gate_up_proj", SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN },
	{ "feed_forward.w3", "mlp.up_proj",      "mlp.gate_up_proj", SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN },
	{ "feed_forward.w2", "mlp.down_proj",    .role = SL_ROW,    .out = SL_HIDDEN, .in = SL_INTER },
};

static const struct sl_weight native_norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight native_head[] = {
	{ "output", "lm_head", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_HEAD, .stages = SL_LAST_STAGE },
};

static const struct sl_stack native_stacks[] = {
	{ .name = "", .hf = "model.", SL_WEIGHTS(native_before) },
	{ .name = "layers.%u.", .hf = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(native_layer) },
	{ .name = "", .hf = "model.", SL_WEIGHTS(native_norm) },
	{ .name = "", SL_WEIGHTS(native_head) },
};

static const char *const native_names[] = { "MistralForCausalLM", NULL };

const struct sl_arch sl_arch_mistral = {
	.family = "Mistral (consolidated.safetensors)",
	.architectures = native_names,
	.format = SL_FORMAT_MISTRAL,
	.stacks = native_stacks, .n_stacks = SL_COUNT(native_stacks),
};
/* clang-format on */
