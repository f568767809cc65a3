/*
 * deepseek.c - DeepSeek V2, V3, R1, V3.2, and what is built like them: Kimi K2 and K2.5, GLM-5 (vLLM: deepseek_v2.py,
 * kimi_k25.py, v0.32). Multi-head latent attention: the two down projections are one matrix, whole on every rank; what
 * goes through vLLM's MLA wrapper is held under its name. V3.2 and GLM-5 have an indexer, in some layers.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>
#include <string.h>

static bool has_q_lora(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_find(config, part, "q_lora_rank") != 0;
}

static bool has_no_q_lora(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !has_q_lora(config, part, layer);
}

/* The router's correction bias belongs to one way of choosing experts. */
static bool has_router_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_is(config, part, "topk_method", "noaux_tc") && sl_has_experts(config, part, layer);
}

/* The models for which SGLang has it (deepseek_v2.py, shared_experts_fusion_disable_reason). */
static bool is_v3_of_256(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t n = 0;

	(void)layer;
	return strcmp(config->architecture, "DeepseekV3ForCausalLM") == 0 && config->dims[part].experts == 256 &&
	       sl_config_u64(config, part, "n_shared_experts", &n, NULL) == 0 && n == 1;
}

/* The layers with an indexer of their own: all that have an index_topk, but for those that indexer_types calls shared. */
static bool has_indexer(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	const struct sl_json *json = &config->json;
	uint32_t list = sl_config_find(config, part, "indexer_types");

	if (!sl_config_find(config, part, "index_topk"))
		return false;
	if (!list || json->tokens[list].type != SL_JSON_ARRAY || layer >= json->tokens[list].n)
		return true;
	uint32_t at = list + 1;
	for (uint64_t i = 0; i < layer; i++)
		at = sl_json_next(json, at);
	return json->tokens[at].type == SL_JSON_STRING && sl_json_equal(json, at, "full");
}

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.q_a_proj", .fused = "self_attn.fused_qkv_a_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_q_lora },
	{ "self_attn.kv_a_proj_with_mqa", .fused = "self_attn.fused_qkv_a_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_q_lora },
	{ "self_attn.kv_a_proj_with_mqa", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_no_q_lora },
	{ "self_attn.q_a_layernorm", .fused = "self_attn.mla_attn.q_a_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = has_q_lora },
	{ "self_attn.q_b_proj", .fused = "self_attn.mla_attn.q_b_proj", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_ANY, .when = has_q_lora },
	{ "self_attn.q_proj", .fused = "self_attn.mla_attn.q_proj", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_HIDDEN, .when = has_no_q_lora },
	{ "self_attn.kv_a_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "self_attn.kv_b_proj", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_ANY },
	{ "self_attn.indexer.wq_b", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .when = has_indexer },
	{ "self_attn.indexer.wk", .fused = "self_attn.indexer.wk_weights_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_DEQUANTISED, .when = has_indexer },
	{ "self_attn.indexer.weights_proj", .fused = "self_attn.indexer.wk_weights_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_DEQUANTISED, .when = has_indexer },
	{ "self_attn.indexer.k_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = has_indexer, .bias = sl_always, .as = SL_IN_F32 },
	{ "self_attn.o_proj", .fused = "self_attn.mla_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_BY_HEADS },
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "mlp.gate", .fused = "mlp.experts.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	{ "mlp.gate.e_score_correction_bias", .fused = "mlp.experts.gate.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = has_router_bias, .as = SL_IN_F32 },
	SL_FUSIBLE_SHARED_EXPERTS("mlp.experts", "mlp.shared_experts", "mlp.experts._shared_experts._layer", sl_has_shared_experts),
	SL_ROUTED_EXPERTS("mlp.experts", "mlp.experts.routed_experts"),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

#define MLA_LAYERS .pipelined = true, .attns = { { .name = "self_attn.mla_attn.mla_attn", .stored = "self_attn", .own_class = true, .sglang = "self_attn.attn_mha|self_attn.attn_mqa" } }, SL_WEIGHTS(layer)

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", MLA_LAYERS },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", NULL };

const struct sl_arch sl_arch_deepseek = {
	.family = "DeepSeek V2, V3, R1, V3.2, Kimi K2, GLM-5",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_GROUPS | SL_SILU,
	.fuses_shared = is_v3_of_256,
	.stacks = stacks, .n_stacks = SL_COUNT(stacks),
};

/* Kimi K2.5: the same inside a vision-language model. The vision tower's q, k and v are one matrix. */
static const struct sl_weight patches[] = {
	{ "patch_embed.proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "patch_embed.pos_emb", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
};

static const struct sl_weight vision_block[] = {
	{ "norm0", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .bias = sl_always },
	{ "norm1", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .bias = sl_always },
	{ "mlp.fc0", .role = SL_COLUMN, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "mlp.fc1", .role = SL_ROW, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "wqkv", .role = SL_COLUMN, .out = SL_QKV, .in = SL_ANY, .bias = sl_always },
	{ "wo", .role = SL_ROW, .out = SL_ANY, .in = SL_Q, .bias = sl_always },
};

static const struct sl_weight vision_norm[] = {
	{ "final_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .bias = sl_always },
};

static const struct sl_weight projector[] = {
	{ "pre_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .bias = sl_always },
	{ "proj.0", .fused = "linear_1", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "proj.2", .fused = "linear_2", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
};

static const struct sl_stack multimodal_stacks[] = {
	{ .name = "vision_tower.", .part = SL_VISION, SL_WEIGHTS(patches) },
	{ .name = "vision_tower.encoder.blocks.%u.", .part = SL_VISION, SL_WEIGHTS(vision_block) },
	{ .name = "vision_tower.encoder.", .part = SL_VISION, SL_WEIGHTS(vision_norm) },
	{ .name = "mm_projector.", .part = SL_VISION, SL_WEIGHTS(projector) },
	{ .name = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "language_model.model.layers.%u.", MLA_LAYERS },
	{ .name = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "language_model.", SL_WEIGHTS(head) },
};

static const char *const multimodal_names[] = { "KimiK25ForConditionalGeneration", NULL };

const struct sl_arch sl_arch_kimi_k25 = {
	.family = "Kimi K2.5",
	.architectures = multimodal_names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_GROUPS | SL_SILU,
	.stacks = multimodal_stacks, .n_stacks = SL_COUNT(multimodal_stacks),
};
/* clang-format on */
