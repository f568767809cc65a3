/*
 * engine.c - the table of engines.
 */
#include "slicer/engine.h"

#include "slicer/plan.h"

#include <string.h>

/* clang-format off */
/* To add an engine: an id in engine.h and a row here. */
const struct sl_engine sl_engines[SL_N_ENGINES] = {
	[SL_VLLM] = {
		.name = "vllm",
		.title = "vLLM, --load-format sharded_state",
		.version = "0.32",
		.usage = "vllm serve %s --load-format sharded_state --tensor-parallel-size N",
		.ranks = "tp",
		.layouts = "tp6, tp2-pp2, tp8-ep, tp2-f16",
		.fused = true,
		.kv_buffers = true,
		.stages = true,
		.vocab_pad = 64,
		.container = &sl_safetensors,
		.file_name = sl_name_vllm,
		.beside = sl_serve_config,
	},
	[SL_HF] = {
		.name = "hf",
		.title = "transformers, numpy, anything that loads a model directory",
		.version = "transformers 5",
		.usage = "AutoModelForCausalLM.from_pretrained(\"%s/rank-R\")",
		.ranks = "tp",
		.layouts = "tp6, tp8-ep, tp2-f16",
		.rank_dirs = true,
		.native_dtype = true,
		.container = &sl_safetensors,
		.file_name = sl_name_hf,
		.metadata = sl_metadata_format,
		.beside = sl_serve_model,
	},
	[SL_DEEPSEEK] = {
		.name = "deepseek",
		.title = "DeepSeek's reference code",
		.version = "V3, V3.2-Exp",
		.holds = "DeepSeek V2, V3, R1, V3.2; BF16, FP8 blocks",
		.usage = "torchrun --nproc-per-node N generate.py --ckpt-path %s --config configs/config_671B.json",
		.ranks = "mp",
		.layouts = "mp32",
		.as_stored = true,
		.undivided = true,
		.check = sl_deepseek_check,
		.plan = sl_deepseek_plan,
		.container = &sl_safetensors,
		.file_name = sl_deepseek_name,
		.passes = sl_deepseek_passes,
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
