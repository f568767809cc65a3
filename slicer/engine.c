/*
 * engine.c - the table of engines.
 */
#include "slicer/engine.h"

#include <string.h>

/* clang-format off */

/* vLLM before 0.23 had the experts' modules one level higher. */
static const struct sl_renaming before_routed_experts[] = {
	{ "experts.routed_experts.",           "experts.",           NULL },
	{ "experts.gate",                      "gate",               NULL },
	{ "experts._shared_experts._layer.",   "shared_expert.",     "shared_expert." },
	{ "experts._shared_experts._layer.",   "shared_expert.",     "shared_expert_gate" },
	{ "experts._shared_experts._layer.",   "shared_experts.",    NULL },
	{ NULL, NULL, NULL },
};

#define OLDER_VLLM(release)                                                                                                    \
	.name = "vllm@" release, .title = "vLLM " release ", the same", .version = release,                                    \
	.usage = "vllm serve %s --load-format sharded_state --tensor-parallel-size N", .fused = true, .kv_buffers = true,      \
	.stages = true, .vocab_pad = 64, .older = true, .drops_tied = true, .keeps_dropped = true

/* To add an engine: an id in engine.h and a row here. */
const struct sl_engine sl_engines[SL_N_ENGINES] = {
	[SL_VLLM] = {
		.name = "vllm",
		.title = "vLLM, --load-format sharded_state",
		.version = "0.32",
		.usage = "vllm serve %s --load-format sharded_state --tensor-parallel-size N",
		.fused = true,
		.kv_buffers = true,
		.stages = true,
		.vocab_pad = 64,
	},
	[SL_VLLM_0_28] = { OLDER_VLLM("0.28") },
	[SL_VLLM_0_24] = { OLDER_VLLM("0.24") },
	[SL_VLLM_0_20] = { OLDER_VLLM("0.20"), .renamed = before_routed_experts },
	[SL_HF] = {
		.name = "hf",
		.title = "transformers, numpy, anything that loads a model directory",
		.version = "transformers 5",
		.usage = "AutoModelForCausalLM.from_pretrained(\"%s/rank-R\")",
		.rank_dirs = true,
		.drafts = true,
		.native_dtype = true,
	},
};
/* clang-format on */

const struct sl_engine *sl_engine_find(const char *name)
{
	for (int i = 0; i < SL_N_ENGINES; i++) {
		if (strcmp(sl_engines[i].name, name) == 0)
			return &sl_engines[i];
	}
	return NULL;
}
