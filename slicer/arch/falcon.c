/*
 * falcon.c - Falcon 7B, 40B, 180B and RW (vLLM: falcon.py, v0.32). query_key_value holds, for each kv head, its query
 * heads, then k, then v. Every stage has everything that is outside the layers.
 */
#include "slicer/arch/arch.h"

#include <errno.h>
#include <stddef.h>

static bool has_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "bias", false);
}

static bool is_parallel(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "parallel_attn", true);
}

/* ln_attn and ln_mlp instead of one input_layernorm: the new decoder's default, unless it says 1. */
static bool has_two_norms(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	bool is_new = sl_config_bool(config, part, "new_decoder_architecture", false);
	uint64_t n = is_new ? 2 : 1;

	if (sl_config_u64(config, part, "num_ln_in_parallel_attn", &n, NULL))
		n = is_new ? 2 : 1;
	return is_parallel(config, part, layer) && n == 2;
}

static bool has_input_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !has_two_norms(config, part, layer);
}

static bool has_post_norm(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !is_parallel(config, part, layer);
}

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("word_embeddings", SL_EVERY_STAGE),
};

static const struct sl_weight layer[] = {
	{ "input_layernorm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_input_norm, .bias = sl_always },
	{ "ln_attn",         .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_two_norms,  .bias = sl_always },
	{ "ln_mlp",          .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_two_norms,  .bias = sl_always },
	{ "self_attention.query_key_value", .role = SL_COLUMN, .out = SL_QKV, .in = SL_HIDDEN, .order = SL_GROUPED, .bias = has_bias },
	{ "self_attention.dense", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_Q, .bias = has_bias },
	{ "post_attention_layernorm", .role = SL_WHOLE, .out = SL_HIDDEN, .in = SL_NO_AXIS, .when = has_post_norm, .bias = sl_always },
	{ "mlp.dense_h_to_4h", .role = SL_COLUMN, .out = SL_INTER, .in = SL_HIDDEN, .bias = has_bias },
	{ "mlp.dense_4h_to_h", .role = SL_ROW, .out = SL_HIDDEN, .in = SL_INTER, .bias = has_bias },
};

static const struct sl_weight norm[] = {
	SL_NORM_BIAS("ln_f"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "transformer.", SL_WEIGHTS(before) },
	{ .name = "transformer.h.%u.", .pipelined = true, .attns = { { .name = "self_attention.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "transformer.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_spelling spellings[] = {
	{ { { "transformer.", "" } } },
};

static const char *const names[] = { "FalconForCausalLM", "RWForCausalLM", NULL };
/* clang-format on */

/* How many kv heads: the new decoder says, the old one has one for all query heads, or as many as query heads. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[SL_TEXT];

	if (!sl_config_bool(config, SL_TEXT, "new_decoder_architecture", false))
		dims->kv_heads = sl_config_bool(config, SL_TEXT, "multi_query", true) ? 1 : dims->heads;
	if (!dims->kv_heads)
		return sl_fail(err, EINVAL,
			       "config.json: Falcon has one number of kv heads for all layers, no list of them");
	if (dims->heads % dims->kv_heads)
		return sl_fail(err, EINVAL, "config.json: %llu attention heads do not group over %llu kv heads",
			       (unsigned long long)dims->heads, (unsigned long long)dims->kv_heads);
	if (!dims->inter)
		dims->inter = 4 * dims->hidden;
	return 0;
}

const struct sl_arch sl_arch_falcon = {
	.family = "Falcon",
	.architectures = names,
	.format = SL_FORMAT_HF,
	.flags = SL_TIED_BY_DEFAULT,
	.whole_in_hf = SL_HEADS_FROM_HIDDEN,
	.stacks = stacks,
	.n_stacks = SL_COUNT(stacks),
	.spellings = spellings,
	.n_spellings = SL_COUNT(spellings),
	.prepare = prepare,
};
