/*
 * deepseek_v4.c - DeepSeek V4 (vLLM: deepseek_v4.py, v0.32). Names are DeepSeek's own, without "model.". Hyper-connections
 * (hc_*) mix several residual streams, in F32; some layers compress what attention keeps, some of these choose from it with an
 * indexer. In the first layers a table (tid2eid) gives each token its experts. Experts are FP4 in bytes, the rest FP8 in
 * blocks, both with scales that are powers of two.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

/* How many tokens a layer's compressor joins; 0: the layer has none. */
static uint64_t compress_ratio(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint32_t at = sl_config_element(config, part, "compress_ratios", layer);
	uint64_t ratio = 0;

	if (!at || config->json.tokens[at].type != SL_JSON_NUMBER || sl_json_u64(&config->json, at, &ratio))
		return 0;
	return ratio;
}

static bool has_compressor(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return compress_ratio(config, part, layer) != 0;
}

static bool has_indexer(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return compress_ratio(config, part, layer) == 4;
}

static bool has_table(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t n = 0;

	return sl_config_u64(config, part, "num_hash_layers", &n, NULL) == 0 && layer < n;
}

static bool has_no_table(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !has_table(config, part, layer);
}

/* clang-format off */
#define F32_WHOLE(name, width) { name, .role = SL_WHOLE, .out = SL_ANY, .in = width, .flags = SL_BARE, .as = SL_IN_F32 }

static const struct sl_weight before[] = {
	{ "embed", .fused = "embed_tokens", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_EMBED, .stages = SL_FIRST_STAGE },
};

static const struct sl_weight layer[] = {
	F32_WHOLE("hc_attn_fn", SL_ANY),
	F32_WHOLE("hc_attn_base", SL_NO_AXIS),
	F32_WHOLE("hc_attn_scale", SL_NO_AXIS),
	F32_WHOLE("hc_ffn_fn", SL_ANY),
	F32_WHOLE("hc_ffn_base", SL_NO_AXIS),
	F32_WHOLE("hc_ffn_scale", SL_NO_AXIS),
	SL_NORM("attn_norm"),
	{ "attn.attn_sink", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_NO_AXIS, .flags = SL_BARE, .as = SL_IN_F32 },
	{ "attn.wq_a", .fused = "attn.fused_wqa_wkv", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN },
	{ "attn.wkv",  .fused = "attn.fused_wqa_wkv", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN },
	{ "attn.q_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "attn.wq_b", .role = SL_COLUMN, .out = SL_BY_HEADS, .in = SL_ANY },
	{ "attn.kv_norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS },
	{ "attn.compressor.ape", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .flags = SL_BARE, .when = has_compressor, .as = SL_IN_F32 },
	{ "attn.compressor.wkv",   .fused = "attn.compressor.fused_wkv_wgate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_compressor },
	{ "attn.compressor.wgate", .fused = "attn.compressor.fused_wkv_wgate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_compressor },
	{ "attn.compressor.norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = has_compressor },
	{ "attn.indexer.wq_b", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .when = has_indexer },
	{ "attn.indexer.weights_proj", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_indexer },
	{ "attn.indexer.compressor.ape", .role = SL_WHOLE, .out = SL_ANY, .in = SL_ANY, .flags = SL_BARE, .when = has_indexer, .as = SL_IN_F32 },
	{ "attn.indexer.compressor.wkv",   .fused = "attn.indexer.compressor.fused_wkv_wgate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_indexer },
	{ "attn.indexer.compressor.wgate", .fused = "attn.indexer.compressor.fused_wkv_wgate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .when = has_indexer },
	{ "attn.indexer.compressor.norm", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .when = has_indexer },
	{ "attn.wo_a", .role = SL_COLUMN, .out = SL_BY_GROUPS, .in = SL_ANY },
	{ "attn.wo_b", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_BY_GROUPS },
	SL_NORM("ffn_norm"),
	{ "ffn.gate", .fused = "ffn.experts.gate", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN, .flags = SL_PLAIN_ONLY },
	{ "ffn.gate.tid2eid", .fused = "ffn.experts.gate.tid2eid", .role = SL_WHOLE, .out = SL_VOCAB, .in = SL_ANY, .flags = SL_BARE, .when = has_table, .as = SL_IN_I32 },
	{ "ffn.gate.bias", .fused = "ffn.experts.gate.e_score_correction_bias", .role = SL_WHOLE, .out = SL_ANY, .in = SL_NO_AXIS, .flags = SL_BARE, .when = has_no_table, .as = SL_IN_F32 },
	{ "ffn.shared_experts.w1", .fused = "ffn.experts._shared_experts._layer.gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN },
	{ "ffn.shared_experts.w3", .fused = "ffn.experts._shared_experts._layer.gate_up_proj", .role = SL_COLUMN, .out = SL_ANY, .in = SL_HIDDEN },
	{ "ffn.shared_experts.w2", .fused = "ffn.experts._shared_experts._layer.down_proj", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_ANY },
	{ "ffn.experts.%e.w1", .fused = "ffn.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "ffn.experts.%e.w3", .fused = "ffn.experts.routed_experts.w13", .role = SL_COLUMN, .out = SL_MOE_INTER, .in = SL_HIDDEN },
	{ "ffn.experts.%e.w2", .fused = "ffn.experts.routed_experts.w2", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_MOE_INTER },
};

static const struct sl_weight after[] = {
	F32_WHOLE("hc_head_fn", SL_ANY),
	F32_WHOLE("hc_head_base", SL_NO_AXIS),
	F32_WHOLE("hc_head_scale", SL_NO_AXIS),
	{ "norm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .stages = SL_LAST_STAGE },
};

static const struct sl_weight head[] = {
	{ "head", .fused = "lm_head", .role = SL_EMBEDDING, .out = SL_VOCAB, .in = SL_HIDDEN, .flags = SL_IS_HEAD, .stages = SL_LAST_STAGE },
};

static const struct sl_stack stacks[] = {
	{ .name = "", .engine = "model.", SL_WEIGHTS(before) },
	{ .name = "layers.%u.", .engine = "model.layers.%u.", .pipelined = true, SL_WEIGHTS(layer) },
	{ .name = "", .engine = "model.", SL_WEIGHTS(after) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const char *const names[] = { "DeepseekV4ForCausalLM", NULL };
static const char *const skipped[] = { "mtp.", NULL };
/* clang-format on */

static int prepare(struct sl_config *config, struct sl_error *err)
{
	if (!config->dims[SL_TEXT].out_groups)
		return sl_fail(err, EINVAL, "config.json: o_groups is absent");
	return 0;
}

const struct sl_arch sl_arch_deepseek_v4 = {
	.family = "DeepSeek V4",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_OWN_HEAD,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.skipped = skipped,
	.prepare = prepare,
};
