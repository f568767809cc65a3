/*
 * engine_kernel.c - what vLLM 0.32's kernels read: for each format of weights which kernel vLLM takes on which GPU, and what it
 * does to them for it. Sources: model_executor/kernels/linear/ (the order of kernels), layers/fused_moe/oracle/ (that of experts'),
 * layers/quantization/.
 */
#include "slicer/plan.h"
#include "slicer/process.h"

#include <errno.h>

#define GPU(name) (1u << SL_##name)
#define NVIDIA	  (GPU(SM80) | GPU(SM89) | GPU(SM90) | GPU(SM100))
#define ALL	  (NVIDIA | GPU(GFX942))
#define FP8_CORES (GPU(SM89) | GPU(SM90) | GPU(SM100))
#define K(name)	  (1u << SL_KERNELS_##name)
#define ANY	  (K(AUTO) | K(MARLIN) | K(CUTLASS) | K(TRITON) | K(FLASHINFER) | K(TRTLLM))
#define ONLINE(x) (1u << SL_ONLINE_##x)

/* What DeepGEMM takes (fp8_utils.py, should_use_deepgemm_for_fp8_linear). */
static bool suits_deepgemm(const struct sl_module *module, uint64_t n, uint64_t k)
{
	(void)module;
	return n % 64 == 0 && k % 128 == 0;
}

/* Only Triton's kernels take experts in finer blocks than those that are stored (fused_moe/oracle/fp8.py). */
static bool has_stored_blocks(const struct sl_module *module, uint64_t n, uint64_t k)
{
	(void)n, (void)k;
	return module->finer <= 1;
}

/* Names of experts' tensors, as recipes call them. */
#define WEIGHTS(name)  "w13_" name "=w13|w2_" name "=w2"
#define SCALES(name)   "w13_" name "=w13_scale|w2_" name "=w2_scale"
#define ZEROS(name)    "w13_" name "=w13_zp|w2_" name "=w2_zp"
#define ONLINE_EXPERTS WEIGHTS("weight") "|w13_weight@all=w13@all|w2_weight@all=w2@all"
#define NATIVE	       (K(AUTO) | K(CUTLASS) | K(TRITON) | K(FLASHINFER) | K(TRTLLM))

/* Global scales of NVFP4 experts before the kernel's own recipe, and what that one makes. */
#define GLOBALS_CT                                                                                            \
	{                                                                                                     \
		.recipe = "nvfp4_moe_global_ct", .in = SCALES_2("weight_global_scale", "input_global_scale"), \
		.out = SCALES_2_HELD                                                                          \
	}
#define GLOBALS_MODELOPT                                                                                \
	{                                                                                               \
		.recipe = "nvfp4_moe_global_modelopt", .in = SCALES_2("weight_scale_2", "input_scale"), \
		.out = SCALES_2_HELD                                                                    \
	}
#define SCALES_2(weight, input) \
	"w13_" weight "=w13_scale_2|w2_" weight "=w2_scale_2|w13_" input "=a13_scale|w2_" input "=a2_scale"
#define SCALES_2_HELD \
	"w13_scale_2=w13_weight_scale_2|w2_scale_2=w2_weight_scale_2|a13_scale=w13_input_scale|a2_scale=w2_input_scale"
#define NVFP4(weight, name, ...)                                                                                \
	{                                                                                                       \
		.recipe = name,                                                                                 \
		.in = WEIGHTS(weight) "|" SCALES("weight_scale") "|" SCALES_2("weight_scale_2", "input_scale"), \
		.out = "w13=w13_weight|w2=w2_weight", __VA_ARGS__                                               \
	}
#define NVFP4_EXPERTS(format, globals, weight)                                                                        \
	{ .storage = format,                                                                                          \
	  .kind = SL_EXPERTS,                                                                                         \
	  .gpus = GPU(SM100),                                                                                         \
	  .kernels = K(AUTO) | K(TRTLLM),                                                                             \
	  .says = "FlashInfer TRT-LLM",                                                                               \
	  .steps = { globals, NVFP4(weight, "trtllm_nvfp4") } },                                                      \
		{ .storage = format,                                                                                  \
		  .kind = SL_EXPERTS,                                                                                 \
		  .gpus = GPU(SM100),                                                                                 \
		  .kernels = K(CUTLASS),                                                                              \
		  .says = "CUTLASS",                                                                                  \
		  .steps = { globals, NVFP4(weight, "nvfp4_moe", .backend = "VLLM_CUTLASS") } },                      \
		{ .storage = format,                                                                                  \
		  .kind = SL_EXPERTS,                                                                                 \
		  .gpus = GPU(SM100),                                                                                 \
		  .kernels = K(FLASHINFER),                                                                           \
		  .says = "FlashInfer CUTLASS",                                                                       \
		  .steps = { globals, NVFP4(weight, "nvfp4_moe", .backend = "FLASHINFER_CUTLASS") } },                \
		{ .storage = format,                                                                                  \
		  .kind = SL_EXPERTS,                                                                                 \
		  .gpus = NVIDIA,                                                                                     \
		  .kernels = K(MARLIN),                                                                               \
		  .says = "Marlin",                                                                                   \
		  .steps = { globals, NVFP4(weight, "marlin_moe_nvfp4") } },                                          \
	{                                                                                                             \
		.storage = format, .kind = SL_EXPERTS, .gpus = GPU(SM80) | GPU(SM89) | GPU(SM90), .kernels = K(AUTO), \
		.says = "Marlin", .steps = {                                                                          \
			globals,                                                                                      \
			NVFP4(weight, "marlin_moe_nvfp4")                                                             \
		}                                                                                                     \
	}

#define BY_IDENTITY \
	"vLLM multiplies kv_b_proj with an identity matrix there, whose rounding is the kernel's: it is not known exactly"
#define NO_DEEPGEMM(word) "add " word " to the layout, and start vLLM with VLLM_USE_DEEP_GEMM=0"
#define MACHETE \
	"vLLM takes Machete there, whose layout is not known exactly: add -marlin to the layout, and start vLLM with VLLM_DISABLED_KERNELS=MacheteLinearKernel"

/* clang-format off */
#define KEEP(format, what, on, with, name) { .storage = format, .kind = what, .gpus = on, .kernels = with, .says = name }
#define NOT(format, what, on, with, why) { .storage = format, .kind = what, .gpus = on, .kernels = with, .refused = why }
#define ONE(format, what, on, with, name, ...) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = with, .says = name, .steps = { { __VA_ARGS__ } } }
#define LATENT(format, on, with, ...) \
	{ .storage = format, .kind = SL_LATENT, .gpus = on, .kernels = with, .says = "MLA", .steps = { __VA_ARGS__ { .recipe = "mla", .elsewhere = "mla_attn." } } }

#define INT8(format) \
	ONE(format, SL_LINEAR, GPU(SM80) | GPU(SM89) | GPU(SM90), K(AUTO) | K(CUTLASS), "CUTLASS", .recipe = "int8_w8a8"), \
	NOT(format, SL_LINEAR, GPU(SM100), ANY, "CUTLASS has no INT8 kernels there, and vLLM refuses it")

/* To add a format, a kernel or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_kernel_choices[] = {
	/* plain weights: nothing is done on NVIDIA's GPUs */
	KEEP("plain", SL_LINEAR, ALL, ANY, "cuBLAS"),
	LATENT("plain", ALL, ANY, ),
	KEEP("plain", SL_EXPERTS, GPU(SM80) | GPU(SM89) | GPU(SM90), K(AUTO) | K(TRITON), "Triton"),
	NOT("plain", SL_EXPERTS, GPU(GFX942), K(AUTO), "AITER's layout of experts is not known exactly"),

	/* plain weights, quantised on the way */
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(TENSOR), .says = "CUTLASS", .steps = { { .recipe = "online_tensor" } } },
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(CHANNEL), .says = "CUTLASS", .steps = { { .recipe = "online_channel" } } },
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(BLOCK), .refused = "vLLM divides by an approximate quotient there: its bytes are not known exactly" },
	{ .storage = "plain", .kind = SL_EXPERTS, .gpus = FP8_CORES, .kernels = K(AUTO) | K(TRITON), .online = ONLINE(TENSOR), .says = "Triton", .steps = { { .recipe = "online_moe_tensor", .in = ONLINE_EXPERTS, .out = "w13_scale=w13_weight_scale|w2_scale=w2_weight_scale" } } },
	{ .storage = "plain", .kind = SL_EXPERTS, .gpus = FP8_CORES, .kernels = K(AUTO) | K(TRITON), .online = ONLINE(CHANNEL), .says = "Triton", .steps = { { .recipe = "online_moe_channel", .in = ONLINE_EXPERTS, .out = "w13_scale=w13_weight_scale|w2_scale=w2_weight_scale" } } },

	/* experts, plain, for other kernels than Triton's */
	ONE("plain", SL_EXPERTS, GPU(SM90) | GPU(SM100), K(FLASHINFER), "FlashInfer CUTLASS", .recipe = "moe_w31", .in = "w13_weight=w13"),
	ONE("plain", SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), "FlashInfer TRT-LLM", .recipe = "trtllm_bf16", .in = WEIGHTS("weight")),

	/* FP8, one scale a matrix or one a row */
	ONE("FP8 per tensor", SL_LINEAR, FP8_CORES, NATIVE, "CUTLASS", .recipe = "fp8_tensor", .align = 16),
	ONE("FP8 per tensor", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz_tensor"),
	ONE("FP8 per tensor", SL_LINEAR, GPU(SM80), K(AUTO), "Marlin", .recipe = "marlin_fp8"),
	ONE("FP8 per tensor", SL_LINEAR, NVIDIA, K(MARLIN), "Marlin", .recipe = "marlin_fp8"),
	LATENT("FP8 per tensor", FP8_CORES, NATIVE, { .recipe = "fp8_tensor" },),
	{ .storage = "FP8 per tensor", .kind = SL_EXPERTS, .gpus = GPU(SM89) | GPU(SM90), .kernels = NATIVE, .says = "Triton or CUTLASS", .steps = {
		{ .recipe = "moe_fp8_tensor", .in = WEIGHTS("weight") "|" SCALES("weight_scale") },
		{ .recipe = "moe_fp8_input", .has = "w13_input_scale" } } },
	{ .storage = "FP8 per tensor", .kind = SL_EXPERTS, .gpus = GPU(SM80), .kernels = K(AUTO) | K(MARLIN), .says = "Marlin", .steps = {
		{ .recipe = "moe_fp8_tensor", .in = WEIGHTS("weight") "|" SCALES("weight_scale") },
		{ .recipe = "marlin_moe_fp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale") } } },
	ONE("FP8 per channel", SL_LINEAR, FP8_CORES, NATIVE, "CUTLASS", .recipe = "fp8_channel", .align = 16),
	ONE("FP8 per channel", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz"),
	ONE("FP8 per channel", SL_LINEAR, GPU(SM80), K(AUTO), "Marlin", .recipe = "marlin_fp8"),
	ONE("FP8 per channel", SL_LINEAR, NVIDIA, K(MARLIN), "Marlin", .recipe = "marlin_fp8"),
	KEEP("FP8 per channel", SL_EXPERTS, GPU(SM89) | GPU(SM90), NATIVE, "Triton or CUTLASS"),
	ONE("FP8 per channel", SL_EXPERTS, GPU(SM80), K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_moe_fp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),

	/* FP8 blocks */
	{ .storage = "FP8 blocks", .kind = SL_LINEAR, .gpus = GPU(SM90), .kernels = K(AUTO), .says = "DeepGEMM", .when = suits_deepgemm, .steps = { { .recipe = "block_ue8m0" } } },
	KEEP("FP8 blocks", SL_LINEAR, GPU(SM89) | GPU(SM90), K(AUTO), "CUTLASS or Triton"),
	NOT("FP8 blocks", SL_LINEAR, GPU(SM100), K(AUTO), "DeepGEMM's packed scales are known by formula only: " NO_DEEPGEMM("-cutlass")),
	KEEP("FP8 blocks", SL_LINEAR, FP8_CORES, K(CUTLASS) | K(TRITON) | K(FLASHINFER) | K(TRTLLM), "CUTLASS or Triton"),
	ONE("FP8 blocks", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz"),
	ONE("FP8 blocks", SL_LINEAR, GPU(SM80), K(AUTO), "Marlin", .recipe = "marlin_fp8"),
	ONE("FP8 blocks", SL_LINEAR, NVIDIA, K(MARLIN), "Marlin", .recipe = "marlin_fp8"),
	NOT("FP8 blocks", SL_LATENT, GPU(SM90) | GPU(SM100), K(AUTO), "vLLM multiplies kv_b_proj with DeepGEMM, whose rounding is not known exactly: " NO_DEEPGEMM("-triton")),
	NOT("FP8 blocks", SL_LATENT, NVIDIA, K(MARLIN), "vLLM multiplies kv_b_proj with Marlin, whose rounding is not known exactly"),
	NOT("FP8 blocks", SL_LATENT, GPU(SM80), K(AUTO), "vLLM multiplies kv_b_proj with Marlin, whose rounding is not known exactly"),
	LATENT("FP8 blocks", FP8_CORES, K(AUTO) | K(CUTLASS) | K(TRITON) | K(FLASHINFER) | K(TRTLLM), ),
	KEEP("FP8 blocks", SL_EXPERTS, FP8_CORES, K(TRITON), "Triton"),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM90) | GPU(SM100), K(FLASHINFER), "FlashInfer CUTLASS", .recipe = "moe_fp8_fi_cutlass", .in = WEIGHTS("weight") "|" SCALES("weight_scale_inv")),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM100), K(TRTLLM), "FlashInfer TRT-LLM", .recipe = "trtllm_fp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale_inv")),
	{ .storage = "FP8 blocks", .kind = SL_EXPERTS, .gpus = GPU(SM80), .kernels = K(AUTO), .when = has_stored_blocks, .says = "Marlin", .steps = { { .recipe = "marlin_moe_fp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale_inv") } } },
	NOT("FP8 blocks", SL_EXPERTS, GPU(SM80), K(AUTO), "no kernel there takes the finer blocks that vLLM makes for a rank's share: add -marlin to the layout, and start vLLM with --moe-backend marlin"),
	ONE("FP8 blocks", SL_EXPERTS, NVIDIA, K(MARLIN), "Marlin", .recipe = "marlin_moe_fp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale_inv")),
	NOT("FP8 blocks", SL_EXPERTS, FP8_CORES, K(AUTO), "DeepGEMM's experts are not known exactly: " NO_DEEPGEMM("-triton") " and --moe-backend triton"),

	/* INT8 */
	INT8("INT8 per channel"), INT8("INT8 per tensor"), INT8("INT8 per channel, static inputs"), INT8("INT8 per tensor, static inputs"),

	/* integers in groups */
	NOT("packed integers, groups", SL_LINEAR, GPU(SM90), K(AUTO), MACHETE),
	ONE("packed integers, groups", SL_LINEAR, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_ct_wna16"),
	ONE("packed integers, groups", SL_EXPERTS, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_moe_wna16", .in = WEIGHTS("weight_packed") "|" SCALES("weight_scale") "|" ZEROS("weight_zero_point")),
	NOT("GPTQ", SL_LINEAR, GPU(SM90), K(AUTO), MACHETE),
	{ .storage = "GPTQ", .kind = SL_LINEAR, .gpus = NVIDIA, .kernels = K(AUTO) | K(MARLIN), .says = "Marlin", .steps = { { .recipe = "marlin_gptq" } }, .drops = "qzeros" },
	NOT("AWQ", SL_LINEAR, GPU(SM90), K(AUTO), MACHETE),
	ONE("AWQ", SL_LINEAR, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_awq"),
	ONE("AWQ", SL_EXPERTS, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_moe_awq", .in = WEIGHTS("qweight") "|" SCALES("scales") "|" ZEROS("qzeros")),

	/* 4-bit floats */
	{ .storage = "NVFP4", .kind = SL_LINEAR, .gpus = GPU(SM100), .kernels = NATIVE, .says = "CUTLASS or FlashInfer", .steps = {
		{ .recipe = "nvfp4_global_ct" },
		{ .recipe = "nvfp4_pad", .in = "weight_packed=weight", .out = "weight=weight", .align = 32 },
		{ .recipe = "swizzle_nvfp4", .in = "weight_scale=scale" } } },
	{ .storage = "NVFP4", .kind = SL_LINEAR, .gpus = NVIDIA, .kernels = K(AUTO) | K(MARLIN), .says = "Marlin", .steps = {
		{ .recipe = "nvfp4_global_ct" },
		{ .recipe = "marlin_nvfp4", .in = "weight_packed=weight", .out = "weight=weight" } } },
	{ .storage = "NVFP4 of ModelOpt", .kind = SL_LINEAR, .gpus = GPU(SM100), .kernels = NATIVE, .says = "CUTLASS or FlashInfer", .steps = {
		{ .recipe = "nvfp4_global_modelopt" },
		{ .recipe = "nvfp4_pad", .align = 32 },
		{ .recipe = "swizzle_nvfp4", .in = "weight_scale=scale" } } },
	{ .storage = "NVFP4 of ModelOpt", .kind = SL_LINEAR, .gpus = NVIDIA, .kernels = K(AUTO) | K(MARLIN), .says = "Marlin", .steps = {
		{ .recipe = "nvfp4_global_modelopt" },
		{ .recipe = "marlin_nvfp4" } } },
	ONE("MXFP4", SL_LINEAR, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_mxfp4"),
	ONE("MXFP8", SL_LINEAR, GPU(SM80) | GPU(SM89) | GPU(SM90), K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_mxfp8"),
	ONE("MXFP8", SL_LINEAR, GPU(SM100), K(MARLIN), "Marlin", .recipe = "marlin_mxfp8"),
	ONE("MXFP8", SL_EXPERTS, GPU(SM80) | GPU(SM89) | GPU(SM90), K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_moe_mxfp8", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),
	NOT("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM90), K(AUTO) | K(TRITON), "the layout of Triton's own kernels is not known exactly: add -marlin to the layout, and start vLLM with --moe-backend marlin"),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM80) | GPU(SM89), K(AUTO), "Marlin", .recipe = "marlin_moe_mxfp4", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM80) | GPU(SM89) | GPU(SM90), K(MARLIN), "Marlin", .recipe = "marlin_moe_mxfp4", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), "FlashInfer TRT-LLM", .recipe = "trtllm_gpt_oss", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),

	NVFP4_EXPERTS("NVFP4", GLOBALS_CT, "weight_packed"),
	NVFP4_EXPERTS("NVFP4 of ModelOpt", GLOBALS_MODELOPT, "weight"),
	ONE("MXFP4", SL_EXPERTS, NVIDIA, K(AUTO) | K(MARLIN), "Marlin", .recipe = "marlin_moe_mxfp4", .in = WEIGHTS("weight") "|" SCALES("weight_scale")),

	/* known, and not done */
	NOT("AWQ", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("GPTQ", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("packed integers, groups", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("NVFP4", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("NVFP4 of ModelOpt", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("FP8 per channel", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("FP8 blocks, E8M0 scales", SL_LINEAR, ALL, ANY, "how DeepSeek V4's kernels hold their scales has not been compared yet"),
	NOT("FP4 in bytes, E8M0 scales", SL_EXPERTS, ALL, ANY, "how DeepSeek V4's kernels hold their experts has not been compared yet"),
	NOT("FP8 per channel, input bound", SL_LINEAR, ALL, ANY, "fbgemm's kernels have not been compared yet"),

	{ .storage = NULL },
};
/* clang-format on */

int sl_kernel_beside(struct sl_plan *plan)
{
	int ret = sl_serve_index(plan);

	return ret ? ret : sl_serve_manifest(plan);
}
