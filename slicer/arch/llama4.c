/*
 * llama4.c - Llama 4 (vLLM: llama4.py, mllama4.py, v0.32). Experts are stored together and turned, [experts, in, out], gate and
 * up side by side, or (quantised) each by itself; rows of q and k are in rotary pairs, which the engine orders in halves.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

/* clang-format off */
static const struct sl_weight vision_before[] = {
	{ "class_embedding",          .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .flags = SL_BARE },
	{ "positional_embedding_vlm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_BARE },
	{ "patch_embedding.linear",   .role = SL_COLUMN, .out = SL_HIDDEN, .in = SL_ANY },
	SL_NORM_BIAS("layernorm_pre"),
	SL_NORM_BIAS("layernorm_post"),
};

static const struct sl_weight vision_layer[] = {
	SL_NORM_BIAS("input_layernorm"),
	SL_SELF_ATTENTION(sl_always, sl_always),
	SL_NORM_BIAS("post_attention_layernorm"),
	{ "mlp.fc1", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = sl_always },
	{ "mlp.fc2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = sl_always },
};

static const struct sl_weight vision_after[] = {
	{ "vision_adapter.mlp.fc1", .role = SL_COLUMN, .out = SL_ANY, .in = SL_ANY },
	{ "vision_adapter.mlp.fc2", .role = SL_ROW, .out = SL_ANY, .in = SL_ANY },
};

static const struct sl_weight projector[] = {
	{ "linear_1", .role = SL_COLUMN, .out = SL_ANY, .in = SL_ANY },
};

static const struct sl_weight before[] = {
	SL_EMBED("embed_tokens", SL_FIRST_OR_TIED_LAST),
};

static const struct sl_weight layer[] = {
	SL_NORM("input_layernorm"),
	{ "self_attn.q_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_Q,  .in = SL_HIDDEN, .order = SL_ROTARY_HF },
	{ "self_attn.k_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN, .order = SL_ROTARY_HF },
	{ "self_attn.v_proj", .fused = "self_attn.qkv_proj", .role = SL_COLUMN, .out = SL_KV, .in = SL_HIDDEN },
	{ "self_attn.o_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q },
	SL_NORM("post_attention_layernorm"),
	{ "feed_forward.gate_proj", .fused = "feed_forward.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .when = sl_has_no_experts },
	{ "feed_forward.up_proj",   .fused = "feed_forward.gate_up_proj", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .when = sl_has_no_experts },
	{ "feed_forward.down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .when = sl_has_no_experts },
	{ "feed_forward.router", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY, .when = sl_has_experts },
	SL_SHARED_EXPERTS("feed_forward.shared_expert", "feed_forward.experts._shared_experts._layer", sl_has_experts),
	{ "feed_forward.experts.gate_up_proj", .fused = "feed_forward.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_GATE_UP, .in = SL_HIDDEN, .flags = SL_BARE | SL_STACKED | SL_OPTIONAL | SL_CONV1D, .when = sl_has_experts },
	{ "feed_forward.experts.down_proj", .fused = "feed_forward.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .flags = SL_BARE | SL_STACKED | SL_OPTIONAL | SL_CONV1D, .when = sl_has_experts },
	{ "feed_forward.experts.%e.gate_proj", .fused = "feed_forward.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .flags = SL_INSTEAD, .when = sl_has_experts },
	{ "feed_forward.experts.%e.up_proj", .fused = "feed_forward.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN, .flags = SL_INSTEAD, .when = sl_has_experts },
	{ "feed_forward.experts.%e.down_proj", .fused = "feed_forward.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER, .flags = SL_INSTEAD, .when = sl_has_experts },
};

static const struct sl_weight norm[] = {
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_LAST_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "vision_model.", .part = SL_VISION, SL_WEIGHTS(vision_before) },
	{ .name = "vision_model.model.layers.%u.", .part = SL_VISION, SL_WEIGHTS(vision_layer) },
	{ .name = "vision_model.", .part = SL_VISION, SL_WEIGHTS(vision_after) },
	{ .name = "multi_modal_projector.", .part = SL_VISION, SL_WEIGHTS(projector) },
	{ .name = "language_model.model.", SL_WEIGHTS(before) },
	{ .name = "language_model.model.layers.%u.", .pipelined = true, .attns = { { .name = "self_attn.attn", .stored = "self_attn" } }, SL_WEIGHTS(layer) },
	{ .name = "language_model.model.", SL_WEIGHTS(norm) },
	{ .name = "language_model.", SL_WEIGHTS(head) },
};

static const char *const names[] = { "Llama4ForConditionalGeneration", NULL };
/* clang-format on */

/* intermediate_size is an expert's; layers without experts have a size of their own. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[SL_TEXT];

	dims->moe_inter = dims->inter;
	int ret = sl_config_u64(config, SL_TEXT, "intermediate_size_mlp", &dims->inter, err);
	return ret == -ENOENT ? 0 : ret;
}

const struct sl_arch sl_arch_llama4 = {
	.family = "Llama 4",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.prepare = prepare,
};
