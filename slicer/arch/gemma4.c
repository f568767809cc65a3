/*
 * gemma4.c - Gemma 4 with experts (vLLM: gemma4.py, gemma4_mm.py, v0.32). Layers with global attention have heads of another
 * size and may have no v: it is k then, which the engine holds twice. The vision tower is transformers' own, whole on every
 * rank. The head is the embedding.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

static bool is_global(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_is_kind(config, part, layer, "full_attention");
}

static bool is_local(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !is_global(config, part, layer);
}

static bool k_is_v(const struct sl_config *config)
{
	return sl_config_bool(config, SL_TEXT, "attention_k_eq_v", false);
}

static bool is_global_with_v(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return is_global(config, part, layer) && !k_is_v(config);
}

static bool is_global_without_v(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return is_global(config, part, layer) && k_is_v(config);
}

static bool is_standardised(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "standardize", false);
}

/* clang-format off */
static const struct sl_weight vision_before[] = {
	{ "patch_embedder.input_proj", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY },
	{ "patch_embedder.position_embedding_table", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .flags = SL_BARE },
	{ "std_bias",  .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = is_standardised },
	{ "std_scale", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = is_standardised },
};

static const struct sl_weight vision_layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.q_proj.linear", .role = SL_WHOLE, .out = SL_Q,  .in = SL_HIDDEN },
	{ "self_attn.k_proj.linear", .role = SL_WHOLE, .out = SL_KV, .in = SL_HIDDEN },
	{ "self_attn.v_proj.linear", .role = SL_WHOLE, .out = SL_KV, .in = SL_HIDDEN },
	{ "self_attn.o_proj.linear", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_Q },
	SL_QK_NORM,
	SL_NORM("post_attention_layernorm"),
	SL_NORM("pre_feedforward_layernorm"),
	{ "mlp.gate_proj.linear", .role = SL_WHOLE, .out = SL_INTER, .in = SL_HIDDEN },
	{ "mlp.up_proj.linear",   .role = SL_WHOLE, .out = SL_INTER, .in = SL_HIDDEN },
	{ "mlp.down_proj.linear", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_INTER },
	SL_NORM("post_feedforward_layernorm"),
};

static const struct sl_weight projector[] = {
	{ "embedding_projection", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_EVERY_STAGE),
};

#define QKV(name, dim, present) { name, .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = dim, .in = SL_HIDDEN, .when = present }

static const struct sl_weight layer[] = {
	{ "layer_scalar", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE },
	SL_NORM("input_layernorm"),
	QKV("self_attn.q_proj", SL_Q,  is_local),
	QKV("self_attn.k_proj", SL_KV, is_local),
	QKV("self_attn.v_proj", SL_KV, is_local),
	QKV("self_attn.q_proj", SL_BY_HEADS,  is_global_with_v),
	QKV("self_attn.k_proj", SL_GLOBAL_KV, is_global_with_v),
	QKV("self_attn.v_proj", SL_GLOBAL_KV, is_global_with_v),
	QKV("self_attn.q_proj", SL_BY_HEADS,  is_global_without_v),
	QKV("self_attn.k_proj", SL_GLOBAL_KV, is_global_without_v),
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_GLOBAL_KV, .in = SL_HIDDEN, .flags = SL_AGAIN, .when = is_global_without_v },
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_BY_HEADS },
	{ "self_attn.q_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "self_attn.k_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	SL_NORM("post_attention_layernorm"),
	SL_NORM("pre_feedforward_layernorm"),
	SL_GATED_MLP(NULL),
	{ "post_feedforward_layernorm_1", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = sl_has_experts },
	{ "router.scale", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_experts },
	{ "router.per_expert_scale", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_experts },
	{ "router.proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	{ "pre_feedforward_layernorm_2", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = sl_has_experts },
	SL_ROUTED_EXPERTS("experts", "experts.routed_experts"),
	{ "post_feedforward_layernorm_2", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = sl_has_experts },
	SL_NORM("post_feedforward_layernorm"),
};

static const struct sl_weight norm[] = {
	SL_NORM("norm"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.vision_tower.", .engine = "vision_tower.", .part = SL_VISION, SL_WEIGHTS(vision_before) },
	{ .name = "model.vision_tower.encoder.layers.%u.", .engine = "vision_tower.encoder.layers.%u.", .part = SL_VISION, SL_WEIGHTS(vision_layer) },
	{ .name = "model.embed_vision.", .engine = "embed_vision.", .part = SL_VISION, SL_WEIGHTS(projector) },
	{ .name = "model.language_model.", .engine = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "model.language_model.layers.%u.", .engine = "language_model.model.layers.%u.", .pipelined = true,
	  .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "model.language_model.", .engine = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "", .engine = "language_model.", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Gemma4ForConditionalGeneration", NULL };
/* clang-format on */

/* The small models share k and v between layers and have embeddings in each: no checkpoint of them has been compared. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[SL_TEXT];
	static const char *const unknown[] = { "num_kv_shared_layers", "hidden_size_per_layer_input" };
	uint64_t value = 0;

	for (size_t i = 0; i < SL_COUNT(unknown); i++) {
		int ret = sl_config_u64(config, SL_TEXT, unknown[i], &value, err);
		if (ret && ret != -ENOENT)
			return ret;
		if (!ret && value)
			return sl_fail(
				err, EINVAL,
				"config.json: Gemma 4 with %s %llu is refused: it has not been compared with vLLM",
				unknown[i], (unsigned long long)value);
	}
	if (sl_config_find(config, SL_TEXT, "audio_config"))
		return sl_fail(err, EINVAL,
			       "config.json: Gemma 4 with audio is refused: it has not been compared with vLLM");
	if (!dims->global_head_dim)
		dims->global_head_dim = dims->head_dim;
	if (!dims->global_kv_heads)
		dims->global_kv_heads = dims->kv_heads;
	return 0;
}

const struct sl_arch sl_arch_gemma4 = {
	.family = "Gemma 4 26B",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};
