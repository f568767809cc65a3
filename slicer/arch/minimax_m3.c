/*
 * minimax_m3.c - MiniMax M3 (vLLM: minimax_m3.py, v0.32). The first layers are dense; the others have experts and sparse
 * attention, whose index heads choose what is looked at: their projections are behind q, k and v in one matrix. A rank has
 * index heads as it has kv heads, and all of the index key.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

static bool is_sparse(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_is_marked(config, part, "sparse_attention_config.sparse_attention_freq", layer);
}

static bool is_not_sparse(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !is_sparse(config, part, layer);
}

static bool has_router_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_bool(config, part, "use_routing_bias", false) && sl_has_experts(config, part, layer);
}

/* clang-format off */
static const struct sl_weight vision_before[] = {
	{ "embeddings.patch_embedding", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_ANY },
	SL_NORM_BIAS("pre_layrnorm"),
};

static const struct sl_weight vision_layer[] = {
	SL_NORM_BIAS("layer_norm1"),
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .bias = sl_always },
	{ "self_attn.out_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = sl_always },
	SL_NORM_BIAS("layer_norm2"),
	{ "mlp.fc1", .fused = "fc1", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = sl_always },
	{ "mlp.fc2", .fused = "fc2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = sl_always },
};

static const struct sl_weight two_linears[] = {
	{ "linear_1", .role = SL_COLUMN, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
	{ "linear_2", .role = SL_ROW, .out = SL_ANY, .in = SL_ANY, .bias = sl_always },
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

#define QKV(name, what, dim, present) { name, .fused = "self_attn.qkv_proj", .role = what, .out = dim, .in = SL_HIDDEN, .when = present }

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	QKV("self_attn.q_proj", SL_COLUMN, SL_Q,  is_not_sparse),
	QKV("self_attn.k_proj", SL_COLUMN, SL_KV, is_not_sparse),
	QKV("self_attn.v_proj", SL_COLUMN, SL_KV, is_not_sparse),
	QKV("self_attn.q_proj", SL_COLUMN, SL_Q,  is_sparse),
	QKV("self_attn.k_proj", SL_COLUMN, SL_KV, is_sparse),
	QKV("self_attn.v_proj", SL_COLUMN, SL_KV, is_sparse),
	QKV("self_attn.index_q_proj", SL_COLUMN, SL_INDEX_Q, is_sparse),
	QKV("self_attn.index_k_proj", SL_WHOLE,  SL_ANY, is_sparse),
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q },
	SL_QK_NORM,
	{ "self_attn.index_q_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = is_sparse },
	{ "self_attn.index_k_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = is_sparse },
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "block_sparse_moe.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts, .as = SL_IN_F32 },
	{ "block_sparse_moe.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = has_router_bias, .as = SL_IN_F32 },
	SL_SHARED_EXPERTS("block_sparse_moe.shared_experts", "block_sparse_moe.experts._shared_experts._layer", sl_has_shared_experts),
	{ "block_sparse_moe.experts.%e.w1", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .when = sl_has_experts },
	{ "block_sparse_moe.experts.%e.w3", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .when = sl_has_experts },
	{ "block_sparse_moe.experts.%e.w2", .fused = "block_sparse_moe.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .when = sl_has_experts },
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

#define LAYERS .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn", .when = is_not_sparse }, { .name = "self_attn", .stored = "self_attn", .own_class = true, .when = is_sparse } }, SL_WEIGHTS(layer)

static const struct sl_stack stacks[] = {
	{ .name = "vision_tower.vision_model.", .part = SL_VISION, SL_WEIGHTS(vision_before) },
	{ .name = "vision_tower.vision_model.encoder.layers.%u.", .part = SL_VISION, SL_WEIGHTS(vision_layer) },
	{ .name = "multi_modal_projector.", .engine = "vision_tower.multi_modal_projector.", .part = SL_VISION, SL_WEIGHTS(two_linears) },
	{ .name = "patch_merge_mlp.", .engine = "vision_tower.patch_merge_mlp.", .part = SL_VISION, SL_WEIGHTS(two_linears) },
	{ .name = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "language_model.model.layers.%u.", LAYERS },
	{ .name = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "language_model.", SL_WEIGHTS(head) },
};

static const struct sl_stack text_stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", LAYERS },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "MiniMaxM3SparseForConditionalGeneration", NULL };
static const char *const text_names[] = { "MiniMaxM3SparseForCausalLM", NULL };
/* clang-format on */

/* intermediate_size is an expert's; the dense layers have a size of their own. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[SL_TEXT];

	dims->moe_inter = dims->inter;
	int ret = sl_config_u64(config, SL_TEXT, "dense_intermediate_size", &dims->inter, err);
	return ret == -ENOENT ? 0 : ret;
}

const struct sl_arch sl_arch_minimax_m3 = {
	.family = "MiniMax M3",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_PER_RANK,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};

const struct sl_arch sl_arch_minimax_m3_text = {
	.family = "MiniMax M3, text",
	.architectures = text_names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N | SL_EXPERT_PER_RANK,
	.stacks = text_stacks,
	.n_stacks = SL_COUNT(text_stacks),
	.prepare = prepare,
};
