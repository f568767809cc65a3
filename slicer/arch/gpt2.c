/*
 * gpt2.c - GPT-2 (vLLM: gpt2.py, v0.32). Linear layers are Conv1D: stored [in, out], transposed when loaded; biases are
 * not. c_attn is q|k|v. Checkpoints carry causal masks (attn.bias), which no engine loads. Every stage has everything
 * that is outside the layers.
 */
#include "slicer/arch/arch.h"

#include <stddef.h>

/* clang-format off */
static const struct sl_weight before[] = {
	SL_EMBED("wte", SL_EVERY_STAGE),
	{ "wpe", .role = SL_WHOLE, .out = SL_ANY, .in = SL_HIDDEN },
};

static const struct sl_weight layer[] = {
	SL_NORM_BIAS("ln_1"),
	{ "attn.bias",        .role = SL_WHOLE, .flags = SL_BARE | SL_UNLOADED },
	{ "attn.masked_bias", .role = SL_WHOLE, .flags = SL_BARE | SL_UNLOADED },
	{ "attn.c_attn", .role = SL_COLUMN, .out = SL_QKV,    .in = SL_HIDDEN, .flags = SL_CONV1D, .bias = sl_always },
	{ "attn.c_proj", .role = SL_ROW,    .out = SL_HIDDEN, .in = SL_Q,      .flags = SL_CONV1D, .bias = sl_always },
	SL_NORM_BIAS("ln_2"),
	{ "mlp.c_fc",    .role = SL_COLUMN, .out = SL_INTER,  .in = SL_HIDDEN, .flags = SL_CONV1D, .bias = sl_always },
	{ "mlp.c_proj",  .role = SL_ROW,    .out = SL_HIDDEN, .in = SL_INTER,  .flags = SL_CONV1D, .bias = sl_always },
};

static const struct sl_weight norm[] = {
	SL_NORM_BIAS("ln_f"),
};

static const struct sl_weight head[] = {
	SL_HEAD("lm_head", SL_EVERY_STAGE),
};

static const struct sl_stack stacks[] = {
	{ .name = "transformer.", SL_WEIGHTS(before) },
	{ .name = "transformer.h.%u.", .pipelined = true, .attns = { { .name = "attn.attn" } }, SL_WEIGHTS(layer) },
	{ .name = "transformer.", SL_WEIGHTS(norm) },
	{ .name = "", SL_WEIGHTS(head) },
};

static const struct sl_spelling spellings[] = {
	{ { { "transformer.", "" } } },
};

static const char *const names[] = { "GPT2LMHeadModel", NULL };
/* clang-format on */

/* n_inner null means 4 x n_embd. */
static int prepare(struct sl_config *config, struct sl_error *err)
{
	struct sl_dims *dims = &config->dims[SL_TEXT];

	(void)err;
	dims->kv_heads = dims->heads;
	if (!dims->inter)
		dims->inter = 4 * dims->hidden;
	return 0;
}

const struct sl_arch sl_arch_gpt2 = {
	.family = "GPT-2",
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
