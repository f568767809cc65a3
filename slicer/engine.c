/*
 * engine.c - the table of engines.
 */
#include "slicer/engine.h"

#include "slicer/plan.h"

#include <errno.h>
#include <stdio.h>
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

/* SGLang's, which left vLLM's at that time, and has no module for latent attention. */
static const struct sl_renaming sglang_modules[] = {
	{ "experts.routed_experts.e_score",    "gate.e_score",       NULL },
	{ "experts.routed_experts.",           "experts.",           NULL },
	{ "experts.gate",                      "gate",               NULL },
	{ "experts._shared_experts._layer.",   "shared_experts.",    NULL },
	{ "self_attn.mla_attn.",               "self_attn.",         NULL },
	{ "self_attn.fused_qkv_a_proj",        "self_attn.fused_qkv_a_proj_with_mqa", NULL },
	{ NULL, NULL, NULL },
};

/* What releases of vLLM have no architecture for (models/registry.py of each). */
#define NOT_YET      "it does not have this architecture yet"
#define OTHER_NAMES  "what it holds has not been compared"
static const struct sl_lack lacks_0_32[] = {
	{ "RWForCausalLM", "it has not had this architecture since 0.29: FalconForCausalLM is the same" },
	{ NULL, NULL },
};
static const struct sl_lack lacks_0_28[] = {
	{ "KimiLinearForCausalLM", OTHER_NAMES },
	{ NULL, NULL },
};
static const struct sl_lack lacks_0_24[] = {
	{ "KimiLinearForCausalLM",        OTHER_NAMES },
	{ "KimiK3ForConditionalGeneration", NOT_YET },
	{ NULL, NULL },
};
static const struct sl_lack lacks_0_20[] = {
	{ "KimiLinearForCausalLM",                   OTHER_NAMES },
	{ "KimiK3ForConditionalGeneration",          NOT_YET },
	{ "MiniMaxM3SparseForCausalLM",              NOT_YET },
	{ "MiniMaxM3SparseForConditionalGeneration", NOT_YET },
	{ NULL, NULL },
};

#define VLLM                                                                                                                   \
	.usage = "vllm serve %s --load-format sharded_state --tensor-parallel-size N", .ranks = "tp",                          \
	.layouts = "tp6, tp2-pp2, tp8-ep, tp2-f16", .fused = true, .kv_buffers = true, .stages = true, .vocab_pad = 64,        \
	.check = sl_check_modules, .container = &sl_safetensors, .file_name = sl_name_vllm, .beside = sl_serve_config

/* Releases before 0.32. */
#define OLDER_VLLM(release)                                                                                                    \
	.name = "vllm@" release, .title = "vLLM " release, .version = release, VLLM, .older = true, .drops_tied = true,        \
	.keeps_dropped = true

/* To add an engine: an id in engine.h and a row here. */
const struct sl_engine sl_engines[SL_N_ENGINES] = {
	[SL_VLLM]      = { .name = "vllm", .title = "vLLM, --load-format sharded_state", .version = "0.32", VLLM, .finer_blocks = true,
			   .lacks = lacks_0_32 },
	[SL_VLLM_0_28] = { OLDER_VLLM("0.28"), .holds = "all but Kimi Linear", .lacks = lacks_0_28 },
	[SL_VLLM_0_24] = { OLDER_VLLM("0.24"), .holds = "all but Kimi Linear, Kimi K3", .lacks = lacks_0_24 },
	[SL_VLLM_0_20] = { OLDER_VLLM("0.20"), .holds = "all but Kimi Linear, Kimi K3, MiniMax M3", .renamed = before_routed_experts, .lacks = lacks_0_20 },
	[SL_SGLANG] = {
		.name = "sglang",
		.title = "SGLang, --load-format sharded_state",
		.version = "SGLang 0.5.23",
		.holds = "Llama, Mistral, Qwen2, Qwen3, Phi-3, Gemma 2, 3, GPT-2, OPT, Mixtral, Qwen3 MoE, DeepSeek V2, V3, GLM-4.5, MiniMax M2; most formats",
		.usage = "python -m sglang.launch_server --model-path %s --load-format sharded_state --tp N",
		.ranks = "tp",
		.layouts = "tp6, tp2-pp2, tp8-ep, tp2-f16",
		.fused = true,
		.stages = true,
		.drops_tied = true,
		.sglang = true,
		.renamed = sglang_modules,
		.choices = sl_sglang_choices,
		.turns = true,
		.vocab_pad = 64,
		.check = sl_sglang_check,
		.dtype = sl_sglang_dtype,
		.stage_layers = sl_sglang_layers,
		.plan = sl_sglang_plan,
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
		.rank_configs = true,
		.drafts = true,
		.native_dtype = true,
		.check = sl_check_modules,
		.container = &sl_safetensors,
		.file_name = sl_name_hf,
		.metadata = sl_metadata_format,
		.beside = sl_serve_model,
	},
	[SL_HF_LAYERS] = {
		.name = "hf/layers",
		.title = "whatever reads a model directory layer by layer",
		.version = "transformers 5",
		.usage = "AutoModelForCausalLM.from_pretrained(\"%s\")",
		.native_dtype = true,
		.drafts = true,
		.undivided = true,
		.check = sl_check_modules,
		.container = &sl_safetensors,
		.file_name = sl_name_hf,
		.metadata = sl_metadata_format,
		.beside = sl_serve_index,
	},
	[SL_DEEPSEEK] = {
		.name = "deepseek",
		.title = "DeepSeek's reference code",
		.version = "V3, V3.2-Exp, V4",
		.holds = "DeepSeek V2, V3, R1, V3.2, V4; BF16, FP8 blocks, FP4 (-fp8: as FP8)",
		.usage = "torchrun --nproc-per-node N generate.py --ckpt-path %s --config configs/config_671B.json --interactive",
		.ranks = "mp",
		.layouts = "mp32, mp8-fp8",
		.as_stored = true,
		.fp8_experts = true,
		.undivided = true,
		.check = sl_deepseek_check,
		.plan = sl_deepseek_plan,
		.container = &sl_safetensors,
		.file_name = sl_deepseek_name,
		.passes = sl_deepseek_passes,
	},
	[SL_AIRLLM] = {
		.name = "airllm",
		.title = "AirLLM",
		.version = "4.0",
		.holds = "model.embed_tokens, model.layers, model.norm, lm_head and nothing else",
		.usage = "airllm.AutoModel.from_pretrained(\"%s\")",
		.as_stored = true,
		.undivided = true,
		.source_files = true,
		.check = sl_airllm_check,
		.plan = sl_airllm_plan,
		.container = &sl_safetensors,
		.file_name = sl_airllm_name,
		.beside = sl_airllm_beside,
	},
	[SL_DCP] = {
		.name = "dcp",
		.title = "torch.distributed.checkpoint",
		.version = "torch 2.13",
		.holds = "all but those with F8_E8M0 or F4 tensors",
		.usage = "torch.distributed.checkpoint.load(state, storage_reader=HuggingFaceStorageReader(\"%s\"))",
		.ranks = "tp",
		.layouts = "tp6",
		.as_stored = true,
		.check = sl_dcp_check,
		.plan = sl_dcp_plan,
		.container = &sl_safetensors,
		.file_name = sl_dcp_name,
		.metadata = sl_dcp_metadata,
	},
	[SL_SERVERLESSLLM] = {
		.name = "serverlessllm",
		.title = "ServerlessLLM's store, for vLLM",
		.version = "vLLM 0.32",
		.holds = "all but those with FP8 or FP4 tensors",
		.usage = "sllm-store start --storage-path $(dirname %s)",
		.ranks = "tp",
		.layouts = "tp6, tp8-ep, tp2-f16",
		.fused = true,
		.kv_buffers = true,
		.vocab_pad = 64,
		.part_bytes = UINT64_C(10) << 30,
		.check = sl_serverlessllm_check,
		.container = &sl_serverlessllm_store,
		.file_name = sl_serverlessllm_name,
		.beside = sl_serve_config,
	},
	[SL_GPT_OSS] = {
		.name = "gpt-oss",
		.title = "gpt-oss's reference code",
		.version = "openai/gpt-oss",
		.holds = "gpt-oss",
		.usage = "torchrun --nproc-per-node N -m gpt_oss.generate %s",
		.as_stored = true,
		.undivided = true,
		.check = sl_gpt_oss_check,
		.plan = sl_gpt_oss_plan,
		.container = &sl_safetensors,
		.file_name = sl_gpt_oss_name,
		.beside = sl_gpt_oss_beside,
	},
	[SL_META] = {
		.name = "meta",
		.title = "Meta's own code for Llama",
		.version = "llama, llama3, llama-models",
		.holds = "Llama 1, 2, 3.x; BF16, F16, F32",
		.usage = "torchrun --nproc-per-node N example_chat_completion.py --ckpt_dir %s --tokenizer_path tokenizer.model",
		.ranks = "mp",
		.layouts = "mp16",
		.as_stored = true,
		.check = sl_meta_check,
		.plan = sl_meta_plan,
		.container = &sl_pth,
		.file_name = sl_meta_name,
		.beside = sl_meta_beside,
	},
	[SL_GGUF] = {
		.name = "gguf",
		.title = "llama.cpp",
		.version = "GGUF 3",
		.holds = "Llama 3, Mistral, Qwen2, Qwen3 with a byte-pair tokenizer.json; BF16, F16, F32",
		.usage = "llama-cli -m %s/model.gguf",
		.as_stored = true,
		.check = sl_gguf_check,
		.plan = sl_gguf_plan,
		.container = &sl_gguf_container,
		.file_name = sl_gguf_name,
	},
	[SL_KERNEL] = {
		.name = "kernel",
		.title = "vLLM's kernels",
		.version = "vLLM 0.32",
		.holds = "formats whose kernels are known exactly for the GPU",
		.usage = "copy the tensors of %s/rank-R to the GPU: manifest.json says what they are",
		.ranks = "tp",
		.layouts = "tp6, tp8-ep, tp2-fp8, tp2-marlin, tp2-sm80",
		.rank_dirs = true,
		.fused = true,
		.weights_only = true,
		.stages = true,
		.finer_blocks = true,
		.choices = sl_kernel_choices,
		.picks_kernels = true,
		.vocab_pad = 64,
		.check = sl_process_check,
		.plan = sl_process_plan,
		.container = &sl_safetensors,
		.file_name = sl_name_hf,
		.metadata = sl_metadata_format,
		.beside = sl_kernel_beside,
	},
};
/* clang-format on */

int sl_engine_check_release(const char *name, struct sl_error *err)
{
	const char *at = strchr(name, '@');
	size_t len = at ? (size_t)(at - name) : 0;
	char known[128] = "", *end = known;
	const struct sl_engine *newest = NULL;

	if (!at || sl_engine_find(name))
		return 0;
	for (int i = 0; i < SL_N_ENGINES; i++) {
		const struct sl_engine *engine = &sl_engines[i];
		if (strncmp(engine->name, name, len) != 0)
			continue;
		if (engine->name[len] == '\0')
			newest = engine;
		else if (engine->older && engine->name[len] == '@')
			end += snprintf(end, sizeof(known) - (size_t)(end - known), ", %s", engine->name);
	}
	if (!newest)
		return 0;
	return sl_fail(err, EINVAL, "%s is not known: %s is %s, and there are%s", SL_ESC(name), newest->name,
		       newest->version, known[0] ? known + 1 : " no others");
}

const struct sl_engine *sl_engine_find(const char *name)
{
	for (int i = 0; i < SL_N_ENGINES; i++) {
		if (strcmp(sl_engines[i].name, name) == 0)
			return &sl_engines[i];
	}
	return NULL;
}
