/*
 * opt.c - OPT (vLLM: opt.py, v0.32). Every stage has everything that is outside the layers; project_in and project_out
 * are there when the embedding is narrower than the layers (opt-350m).
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "enable_bias", true);
}

static bool has_affine_norms(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "layer_norm_elementwise_affine", true);
}

static bool has_final_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_bool(config, part, "do_layer_norm_before", true) &&
	       !sl_config_bool(config, part, "_remove_final_layer_norm", false) &&
	       has_affine_norms(config, part, layer);
}

static bool has_projection(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	uint64_t width;

	return sl_config_u64(config, part, "word_embed_proj_dim", &width, NULL) == 0 &&
	       width != config->dims[part].hidden;
}

/* clang-format off */
static const struct sl_weight before[] = {
	{ "embed_tokens",    .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_ANY, .flags = SL_IS_EMBED },
	{ "embed_positions", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN },
	{ "project_in",      .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY, .when = has_projection },
};

static const struct sl_weight layer[] = {
	{ "self_attn_layer_norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_affine_norms, .bias = sl_always },
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = has_bias },
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = has_bias },
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = has_bias },
	{ "self_attn.out_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = has_bias },
	{ "final_layer_norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_affine_norms, .bias = sl_always },
	{ "fc1", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = has_bias },
	{ "fc2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = has_bias },
};

static const struct sl_weight after[] = {
	{ "final_layer_norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_final_norm, .bias = sl_always },
	{ "project_out",      .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_projection },
};

static const struct sl_weight head[] = {
	{ "lm_head", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_ANY, .flags = SL_IS_HEAD },
};

static const struct sl_stack stacks[] = {
	{ .name = "model.decoder.", SL_WEIGHTS(before) },
	{ .name = "model.decoder.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.decoder.", SL_WEIGHTS(after) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_spelling spellings[] = {
	{ { { "model.decoder.", "decoder." } } },
};

static const char *const names[] = { "OPTForCausalLM", NULL };

const struct sl_arch sl_arch_opt = {
	.family = "OPT",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT,
	.whole_in_hf = SL_HEADS_FROM_HIDDEN,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
	.spellings = spellings, .n_spellings = SL_COUNT(spellings),
};
/* clang-format on */
