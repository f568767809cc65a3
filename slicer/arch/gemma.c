/*
 * gemma.c - Gemma 2 and Gemma 3, text and multimodal (vLLM: gemma2.py, gemma3.py, gemma3_mm.py, siglip.py, v0.32). Norms
 * hold the raw checkpoint weight: the "+ 1" of Gemma's RMS norm is applied when the model runs. Every stage has the
 * embedding and the final norm. Sizes that config.json leaves out are transformers' defaults (Gemma2Config,
 * Gemma3TextConfig, SiglipVisionConfig): the published Gemma 3 4B has neither head counts nor vocabulary.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_dims gemma2_defaults = {
	.layers = 26, .hidden = 2304, .heads = 8, .kv_heads = 4, .head_dim = 256, .inter = 9216, .vocab = 256000,
};
static const struct sl_dims gemma3_defaults = {
	.layers = 26, .hidden = 2304, .heads = 8, .kv_heads = 4, .head_dim = 256, .inter = 9216, .vocab = 262208,
};
static const struct sl_dims siglip_defaults = {
	.layers = 12, .hidden = 768, .heads = 12, .inter = 3072,
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

/* SGLang does not divide Gemma 3's embedding, but divides the positions of its vision tower. */
static const struct sl_weight whole_embedding = { "embed_tokens", .role = SL_WHOLE, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED };
static const struct sl_weight divided_positions = { "embeddings.position_embedding", .role = SL_EMBEDDING, .out = SL_ANY, .in = SL_HIDDEN };
static const struct sl_weight output_projection = { "self_attn.out_proj", .fused = "self_attn.proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always };

static const struct sl_weight gemma3_before[] = {
	{ "embed_tokens", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .sglang = &whole_embedding },
};

static const struct sl_weight gemma2_layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_has_attention_bias, sl_has_attention_bias),
	SL_NORM("post_attention_layernorm"),
	SL_NORM("pre_feedforward_layernorm"),
	SL_GATED_MLP(NULL),
	SL_NORM("post_feedforward_layernorm"),
};

static const struct sl_weight gemma3_layer[] = {
	SL_NORM("input_layernorm"),
	SL_SELF_ATTENTION(sl_has_attention_bias, sl_has_attention_bias),
	SL_QK_NORM,
	SL_NORM("post_attention_layernorm"),
	SL_NORM("pre_feedforward_layernorm"),
	SL_GATED_MLP(NULL),
	SL_NORM("post_feedforward_layernorm"),
};

static const struct sl_weight norm[] = {
	SL_NORM("norm"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack gemma2_stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(gemma2_layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_stack gemma3_stacks[] = {
	{ .name = "model.", SL_WEIGHTS(gemma3_before) },
	{ .name = "model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(gemma3_layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_weight vision_before[] = {
	{ "embeddings.patch_embedding",    .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY, .bias = sl_always },
	{ "embeddings.position_embedding", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .sglang = &divided_positions },
};

static const struct sl_weight vision_layer[] = {
	SL_NORM_BIAS("layer_norm1"),
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.out_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always, .sglang = &output_projection },
	SL_NORM_BIAS("layer_norm2"),
	{ "mlp.fc1", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = sl_always },
	{ "mlp.fc2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = sl_always },
};

static const struct sl_weight vision_norm[] = {
	SL_NORM_BIAS("post_layernorm"),
};

static const struct sl_weight projector[] = {
	{ "mm_input_projection_weight", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY, .flags = SL_BARE },
	{ "mm_soft_emb_norm",           .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS },
};

/* The vision tower is on every stage; names inside it are the checkpoint's own. */
static const struct sl_stack multimodal_stacks[] = {
	{ .name = "vision_tower.vision_model.", .part = SL_VISION, SL_WEIGHTS(vision_before) },
	{ .name = "vision_tower.vision_model.encoder.layers.%u.", .part = SL_VISION, SL_WEIGHTS(vision_layer) },
	{ .name = "vision_tower.vision_model.", .part = SL_VISION, SL_WEIGHTS(vision_norm) },
	{ .name = "multi_modal_projector.", .part = SL_VISION, SL_WEIGHTS(projector) },
	{ .name = "language_model.model.", SL_WEIGHTS(gemma3_before) },
	{ .name = "language_model.model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .sglang = "self_attn.attn" } }, SL_WEIGHTS(gemma3_layer) },
	{ .name = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "language_model.", SL_WEIGHTS(head) },
};

/* As transformers ≥ 4.52 saves it. */
static const struct sl_spelling multimodal_spellings[] = {
	{ { { "language_model.model.", "model.language_model." }, { "vision_tower.", "model.vision_tower." },
	    { "multi_modal_projector.", "model.multi_modal_projector." }, { "language_model.lm_head", "lm_head" } } },
};

static const char *const gemma2_names[] = { "Gemma2ForCausalLM", NULL };
static const char *const gemma3_names[] = { "Gemma3ForCausalLM", NULL };
static const char *const multimodal_names[] = { "Gemma3ForConditionalGeneration", NULL };

const struct sl_arch sl_arch_gemma2 = {
	.family = "Gemma 2",
	.architectures = gemma2_names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT | SL_NO_HEAD | SL_NO_F16 | SL_NORMALIZER,
	.stacks = gemma2_stacks, .n_stacks = SL_COUNT(gemma2_stacks),
	.defaults = { &gemma2_defaults },
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};

const struct sl_arch sl_arch_gemma3 = {
	.family = "Gemma 3, text",
	.architectures = gemma3_names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT | SL_NO_F16,
	.stacks = gemma3_stacks, .n_stacks = SL_COUNT(gemma3_stacks),
	.defaults = { &gemma3_defaults },
	.spellings = sl_llama_spellings, .n_spellings = SL_COUNT(sl_llama_spellings),
};

const struct sl_arch sl_arch_gemma3_multimodal = {
	.family = "Gemma 3, multimodal",
	.architectures = multimodal_names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT | SL_NO_F16,
	.stacks = multimodal_stacks, .n_stacks = SL_COUNT(multimodal_stacks),
	.defaults = { &gemma3_defaults, &siglip_defaults },
	.spellings = multimodal_spellings, .n_spellings = SL_COUNT(multimodal_spellings),
};
/* clang-format on */
