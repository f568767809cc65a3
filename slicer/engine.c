/*
 * engine.c - the table of engines.
 */
#include "slicer/engine.h"

#include <string.h>

/* clang-format off */
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
	[SL_HF] = {
		.name = "hf",
		.title = "transformers, numpy, anything that loads a model directory",
		.version = "transformers 5",
		.usage = "AutoModelForCausalLM.from_pretrained(\"%s/rank-R\")",
		.rank_dirs = true,
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
