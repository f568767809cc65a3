/*
 * kimi_k3.c - Kimi K3 (vLLM: kimi_k3.py, kimi_linear.py, v0.32). Most layers have linear attention (Kimi delta attention),
 * the others latent attention with an output gate. Experts work in a smaller space, with a projection into it and one out of
 * it; they are MXFP4. Residuals are attended to, over blocks of layers (the res_* weights).
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

static bool has_latent_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_bool(config, part, "latent_moe_use_norm", false) && sl_has_experts(config, part, layer);
}

/* clang-format off */
static const struct sl_weight patches[] = {
	{ "patch_embed.proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
	{ "patch_embed.pos_emb", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
};

static const struct sl_weight vision_block[] = {
	{ "norm0", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "norm1", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "mlp.fc0", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN },
	{ "mlp.fc1", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER },
	{ "wqkv", .role = SL_COLUMN, .out = SL_QKV, .in = SL_HIDDEN },
	{ "wo", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q },
};

static const struct sl_weight vision_norm[] = {
	{ "final_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
};

static const struct sl_weight projector[] = {
	{ "proj.0", .fused = "linear_1", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
	{ "proj.2", .fused = "linear_2", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY },
	{ "post_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

#define DELTA(name, joined, what, dim) { "self_attn." name, .fused = "self_attn." joined, .role = what, .out = dim, .in = SL_HIDDEN, .when = sl_has_delta_attention }
#define CONV(name) { "self_attn." name, .fused = "self_attn.conv1d", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_ANY, .flags = SL_UNFUSED, .when = sl_has_delta_attention, .as = SL_IN_F32 }
#define LATENT(name, joined, what, dim) { "self_attn." name, .fused = joined, .role = what, .out = dim, .in = SL_ANY, .when = sl_has_latent_attention }
#define MOE(name, held, present, width) { "block_sparse_moe." name, .fused = "block_sparse_moe." held, .role = SL_WHOLE, .out = SL_ANY, .in = width, .when = present }

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	SL_NORM("self_attention_res_norm"),
	{ "self_attention_res_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	{ "self_attn.dt_bias", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_delta_attention, .as = SL_IN_F32 },
	{ "self_attn.A_log", .role = SL_COLUMN, .out = SL_LEADING_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_delta_attention, .as = SL_IN_F32 },
	DELTA("q_proj",   "in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("k_proj",   "in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("v_proj",   "in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("g_proj",   "in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("f_a_proj", "in_proj_qkvgfab", SL_WHOLE,  SL_ANY),
	{ "self_attn.b_proj", .fused = "self_attn.in_proj_qkvgfab", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_HIDDEN, .when = sl_has_delta_attention, .pad = 16 },
	{ "self_attn.f_b_proj", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_ANY, .when = sl_has_delta_attention },
	CONV("q_conv1d"),
	CONV("k_conv1d"),
	CONV("v_conv1d"),
	{ "self_attn.o_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = sl_has_delta_attention },
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_LINEAR_V, .when = sl_has_delta_attention },
	LATENT("q_a_proj",           "self_attn.fused_qkv_a_g_proj", SL_WHOLE,  SL_ANY),
	LATENT("kv_a_proj_with_mqa", "self_attn.fused_qkv_a_g_proj", SL_WHOLE,  SL_ANY),
	LATENT("g_proj",             "self_attn.fused_qkv_a_g_proj", SL_COLUMN, SL_BY_HEADS),
	{ "self_attn.q_a_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = sl_has_latent_attention },
	LATENT("q_b_proj", NULL, SL_COLUMN, SL_BY_HEADS),
	{ "self_attn.kv_a_layernorm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = sl_has_latent_attention },
	LATENT("kv_b_proj", NULL, SL_COLUMN, SL_BY_HEADS),
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_BY_HEADS, .when = sl_has_latent_attention },
	SL_NORM("post_attention_layernorm"),
	SL_NORM("mlp_res_norm"),
	{ "mlp_res_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	SL_DENSE_MLP,
	MOE("gate", "gate", sl_has_experts, SL_HIDDEN),
	{ "block_sparse_moe.gate.e_score_correction_bias", .fused = "block_sparse_moe.experts.routed_experts.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_experts, .as = SL_IN_F32 },
	SL_SHARED_EXPERTS("block_sparse_moe.shared_experts", "block_sparse_moe.experts._shared_experts._layer", sl_has_num_shared_experts),
	MOE("routed_expert_down_proj", "routed_expert_down_proj", sl_has_experts, SL_HIDDEN),
	{ "block_sparse_moe.experts.%e.w1", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_ANY, .when = sl_has_experts },
	{ "block_sparse_moe.experts.%e.w3", .fused = "block_sparse_moe.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_ANY, .when = sl_has_experts },
	{ "block_sparse_moe.experts.%e.w2", .fused = "block_sparse_moe.experts.routed_experts.w2", .role = SL_ROW, .out = SL_ANY, .in = SL_MOE_INTER, .when = sl_has_experts },
	MOE("routed_expert_norm", "experts.routed_output_transform.norm", has_latent_norm, SL_NO_AXIS),
	MOE("routed_expert_up_proj", "experts.routed_output_transform.up_proj", sl_has_experts, SL_ANY),
};

static const struct sl_weight after[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
	{ "output_attn_res_norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
	{ "output_attn_res_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "vision_tower.", .part = SL_VISION, SL_WEIGHTS(patches) },
	{ .name = "vision_tower.encoder.blocks.%u.", .part = SL_VISION, SL_WEIGHTS(vision_block) },
	{ .name = "vision_tower.encoder.", .part = SL_VISION, SL_WEIGHTS(vision_norm) },
	{ .name = "mm_projector.", .part = SL_VISION, SL_WEIGHTS(projector) },
	{ .name = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "language_model.model.layers.%u.", .pipelined = true,
	  .attns = { { .name = "self_attn", .stored = "self_attn", .own_class = true, .when = sl_has_latent_attention } }, SL_WEIGHTS(layer) },
	{ .name = "language_model.model.", SL_WEIGHTS(after) },
	{ .name = "language_model.", SL_WEIGHTS(head) },
};

static const char *const names[] = { "KimiK3ForConditionalGeneration", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	return sl_need_linear_attention(config, err);
}

const struct sl_arch sl_arch_kimi_k3 = {
	.family = "Kimi K3",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.whole_in_hf = "A_log has more elements than there are heads",
	.prepare = prepare,
};
