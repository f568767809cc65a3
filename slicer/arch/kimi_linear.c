/*
 * kimi_linear.c - Kimi Linear (vLLM: kimi_k3/nvidia/model.py, kimi_gdn_linear_attn.py, v0.32). Three of four layers have
 * linear attention (Kimi delta attention) whose output gate goes through a narrow projection of its own; the others have
 * latent attention without a narrow q. Experts that a rank would have less than 256 rows of are filled up with zeros.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_STAGE),
};

#define DELTA(name, joined, what, dim) { "self_attn." name, .fused = joined, .role = what, .out = dim, .in = SL_HIDDEN, .when = sl_has_delta_attention }
#define CONV(name) { "self_attn." name, .fused = "self_attn.conv1d", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_ANY, .flags = SL_UNFUSED, .when = sl_has_delta_attention, .as = SL_IN_F32 }
#define LATENT(name, what, dim, width) { "self_attn." name, .role = what, .out = dim, .in = width, .when = sl_has_latent_attention }
#define EXPERT(name, held, what, rows, cols) { "block_sparse_moe.experts.%e." name, .fused = "block_sparse_moe.experts.routed_experts." held, .role = what, .out = rows, .in = cols, .when = sl_has_experts, .least = 256 }

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.dt_bias", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_delta_attention, .as = SL_IN_F32 },
	{ "self_attn.A_log", .role = SL_COLUMN, .out = SL_LINEAR_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE | SL_FLAT, .when = sl_has_delta_attention, .as = SL_IN_F32 },
	DELTA("q_proj",   "self_attn.in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("k_proj",   "self_attn.in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("v_proj",   "self_attn.in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_V),
	DELTA("b_proj",   "self_attn.in_proj_qkvgfab", SL_COLUMN, SL_LINEAR_HEADS),
	DELTA("f_a_proj", "self_attn.in_proj_qkvgfab", SL_WHOLE,  SL_ANY),
	{ "self_attn.f_b_proj", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_ANY, .when = sl_has_delta_attention },
	CONV("q_conv1d"),
	CONV("k_conv1d"),
	CONV("v_conv1d"),
	DELTA("g_a_proj", NULL, SL_WHOLE, SL_ANY),
	{ "self_attn.g_b_proj", .role = SL_COLUMN, .out = SL_LINEAR_V, .in = SL_ANY, .when = sl_has_delta_attention },
	{ "self_attn.o_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = sl_has_delta_attention },
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_LINEAR_V, .when = sl_has_delta_attention },
	LATENT("q_proj",             SL_COLUMN, SL_BY_HEADS, SL_HIDDEN),
	LATENT("kv_a_proj_with_mqa", SL_WHOLE,  SL_ANY,      SL_HIDDEN),
	LATENT("kv_a_layernorm",     SL_WHOLE,  SL_ANY,      SL_NO_AXIS),
	LATENT("kv_b_proj",          SL_COLUMN, SL_BY_HEADS, SL_ANY),
	LATENT("o_proj",             SL_ROW,    SL_HIDDEN,   SL_BY_HEADS),
	SL_NORM("post_attention_layernorm"),
	SL_DENSE_MLP,
	{ "block_sparse_moe.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	{ "block_sparse_moe.gate.e_score_correction_bias", .fused = "block_sparse_moe.experts.routed_experts.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = sl_has_experts, .as = SL_IN_F32 },
	SL_SHARED_EXPERTS("block_sparse_moe.shared_experts", "block_sparse_moe.experts._shared_experts._layer", sl_has_num_shared_experts),
	EXPERT("w1", "w13", SL_COLUMN, SL_MOE_INTER, SL_HIDDEN),
	EXPERT("w3", "w13", SL_COLUMN, SL_MOE_INTER, SL_HIDDEN),
	EXPERT("w2", "w2",  SL_ROW,    SL_HIDDEN,    SL_MOE_INTER),
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "model.", SL_WEIGHTS(before) },
	{ .name = "model.layers.%u.", .pipelined = true,
	  .attns = { { .name = "self_attn", .stored = "self_attn", .own_class = true, .when = sl_has_latent_attention } }, SL_WEIGHTS(layer) },
	{ .name = "model.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "KimiLinearForCausalLM", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	if (sl_config_find(config, SL_TEXT, "min_moe_intermediate_per_partition"))
		return sl_fail(err, EINVAL,
			       "config.json: min_moe_intermediate_per_partition is not known: experts are filled up "
			       "to 256 rows a rank");
	return sl_need_linear_attention(config, err);
}

const struct sl_arch sl_arch_kimi_linear = {
	.family = "Kimi Linear",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD | SL_NEXT_N,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.whole_in_hf = "the heads of A_log are its third axis",
	.prepare = prepare,
};
