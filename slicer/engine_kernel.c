/*
 * engine_kernel.c - what vLLM 0.32's kernels read: for each format of weights which kernel vLLM takes on which GPU, and what it
 * does to them for it. Sources: model_executor/kernels/linear/ (the order of kernels), layers/fused_moe/oracle/ (that of experts'),
 * layers/quantization/. That the same kernels are taken here is compared in tests/unit/test_process.c (tests/kernel/choices.py),
 * what they come to in tests/kernel/view.py and engine.py.
 *
 * vLLM is taken as its CUDA wheel installs it: with FlashInfer, DeepGEMM and Humming. A layout's word for kernels is what it is
 * started with as --linear-backend and --moe-backend: where these have no kernel for a linear layer, it chooses by itself.
 */
#include "slicer/plan.h"
#include "slicer/process.h"

#include <errno.h>
#include <string.h>

#define GPU(name)  (1u << SL_##name)
#define NVIDIA	   (GPU(SM80) | GPU(SM89) | GPU(SM90) | GPU(SM100))
#define ALL	   (NVIDIA | GPU(GFX942))
#define FP8_CORES  (GPU(SM89) | GPU(SM90) | GPU(SM100))
#define OLDER	   (GPU(SM80) | GPU(SM89))
#define NEWER	   (GPU(SM90) | GPU(SM100))
#define K(name)	   (1u << SL_KERNELS_##name)
#define ANY	   (K(AUTO) | K(MARLIN) | K(CUTLASS) | K(TRITON) | K(FLASHINFER) | K(TRTLLM))
#define ONLINE(x)  (1u << SL_ONLINE_##x)
#define ON_THE_WAY (ONLINE(TENSOR) | ONLINE(CHANNEL) | ONLINE(BLOCK))

/* ---- what a kernel's choice depends on besides format, GPU and words ---- */

/* Models that vLLM keeps from DeepGEMM on Blackwell (utils/deep_gemm.py, should_auto_disable_deep_gemm). */
static bool is_excluded(const struct sl_asked *asked)
{
	const struct sl_config *config = asked->config;

	return asked->gpu == SL_SM100 && config &&
	       (sl_config_is(config, SL_TEXT, "model_type", "qwen3_5_text") ||
		sl_config_is(config, SL_TEXT, "model_type", "qwen3_5_moe_text"));
}

/* DeepGEMM's, and FlashInfer's that goes with it (utils/deep_gemm.py, should_use_deepgemm_for_fp8_linear). */
static bool suits_deepgemm(const struct sl_asked *asked)
{
	return asked->dtype == SL_BF16 && asked->n % 64 == 0 && asked->k % 128 == 0 && !is_excluded(asked);
}

/* FlashInfer's mm_mxfp8 (kernels/linear/mxfp8/flashinfer.py, _check_mm_mxfp8_shape). */
static bool suits_mm_mxfp8(const struct sl_asked *asked)
{
	return asked->n >= 128 && asked->k >= 128;
}

/* Only Triton's kernels take experts in finer blocks than those that are stored (fused_moe/oracle/fp8.py). */
static bool has_stored_blocks(const struct sl_asked *asked)
{
	return asked->module->finer <= 1;
}

/* Hopper's choice for FP8 blocks (fused_moe/oracle/fp8.py, _get_priority_backends). */
static bool is_spread(const struct sl_asked *asked)
{
	return asked->spread && has_stored_blocks(asked);
}

static bool is_vision(const struct sl_asked *asked)
{
	return asked->module->part == SL_VISION;
}

/* Llama 4's encoder is never quantised on the way (models/mllama4.py). */
static bool is_vision_of_llama4(const struct sl_asked *asked)
{
	return is_vision(asked) && asked->config && sl_config_is(asked->config, SL_TEXT, "model_type", "llama4_text");
}

static bool is_fixed(const struct sl_asked *asked)
{
	return asked->module->fixed;
}

static bool is_not_fixed(const struct sl_asked *asked)
{
	return !asked->module->fixed;
}

static bool is_of(const struct sl_asked *asked, const char *method)
{
	return strcmp(asked->module->quant->scheme->method, method) == 0;
}

static bool is_compressed(const struct sl_asked *asked)
{
	return is_of(asked, "compressed-tensors");
}

static bool is_compressed_fixed(const struct sl_asked *asked)
{
	return is_compressed(asked) && asked->module->fixed;
}

static bool is_modelopt(const struct sl_asked *asked)
{
	return is_of(asked, "modelopt");
}

static bool is_modelopt_fixed(const struct sl_asked *asked)
{
	return is_modelopt(asked) && asked->module->fixed;
}

static bool is_weight_only(const struct sl_asked *asked)
{
	return asked->module->quant->weight_only;
}

/* Humming's tiles of FP8 are others where the GPU itself widens it to the model's dtype (humming/config/config.py,
 * use_native_dequant: to F16 from sm89 on, to BF16 from sm100 on, by the compiler; never on sm90). */
static bool is_widened(const struct sl_asked *asked)
{
	return is_weight_only(asked) && (asked->dtype == SL_BF16 || asked->gpu != SL_SM89);
}

/* TensorRT-LLM's experts choose by themselves, and only so (trtllm_bf16_moe.py, _supports_routing_method). */
static bool normalises(const struct sl_asked *asked)
{
	return asked->normalises == 1;
}

static bool may_normalise(const struct sl_asked *asked)
{
	return asked->normalises != 0;
}

/* The same for FP8 with one scale (trtllm_fp8_moe.py, _supports_router_logits_dtype). */
static bool suits_trtllm(const struct sl_asked *asked)
{
	return asked->module->fixed && asked->dtype == SL_BF16 && normalises(asked);
}

static bool may_suit_trtllm(const struct sl_asked *asked)
{
	return asked->module->fixed && asked->dtype == SL_BF16 && may_normalise(asked);
}

/* Zero points of 8 bits (marlin_utils.py, query_marlin_supported_quant_types). */
static bool is_beyond_marlin(const struct sl_asked *asked)
{
	return asked->module->quant->bits == 8 && asked->module->quant->asymmetric;
}

static bool is_symmetric(const struct sl_asked *asked)
{
	return !asked->module->quant->asymmetric;
}

static bool is_symmetric_of_4_bits(const struct sl_asked *asked)
{
	return is_symmetric(asked) && asked->module->quant->bits == 4;
}

/* ---- pieces of rows ---- */

/* Names of experts' tensors, as recipes call them. */
#define WEIGHTS(name)  "w13_" name "=w13|w2_" name "=w2"
#define SCALES(name)   "w13_" name "=w13_scale|w2_" name "=w2_scale"
#define ZEROS(name)    "w13_" name "=w13_zp|w2_" name "=w2_zp"
#define ONLINE_EXPERTS WEIGHTS("weight") "|w13_weight@all=w13@all|w2_weight@all=w2@all"

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
#define ALPHAS(which)                                                                                                \
	{                                                                                                            \
		.recipe = "nvfp4_moe_alphas", .in = SCALES_2("weight_scale_2", "input_scale"), .out = SCALES_2_HELD, \
		.backend = which                                                                                     \
	}
#define NVFP4_EXPERTS(format, on, with, fits, name, gone, globals, ...)                                         \
	{                                                                                                       \
		.storage = format, .kind = SL_EXPERTS, .gpus = on, .kernels = with, .when = fits, .says = name, \
		.drops = gone, .steps = {                                                                       \
			globals,                                                                                \
			__VA_ARGS__                                                                             \
		}                                                                                               \
	}
#define NVFP4_OF(format, globals, weight)                                                                                     \
	NOT(format, SL_EXPERTS, GPU(SM90), K(AUTO),                                                                           \
	    "vLLM takes Humming there, and whether an expert has one scale or one a row depends on the scales: " WITH_MARLIN( \
		    "moe")),                                                                                                  \
		NVFP4_EXPERTS(format, GPU(SM100), K(AUTO) | K(TRTLLM), is_fixed, "FlashInfer TRT-LLM", NULL, globals,         \
			      NVFP4(weight, "trtllm_nvfp4"), ALPHAS("FLASHINFER_TRTLLM")),                                    \
		NVFP4_EXPERTS(format, GPU(SM100), K(CUTLASS), is_fixed, "CUTLASS", NULL, globals,                             \
			      NVFP4(weight, "nvfp4_moe", .backend = "VLLM_CUTLASS"), ALPHAS(NULL)),                           \
		NVFP4_EXPERTS(format, GPU(SM100), K(FLASHINFER), is_fixed, "FlashInfer CUTLASS", NULL, globals,               \
			      NVFP4(weight, "nvfp4_moe", .backend = "FLASHINFER_CUTLASS"), ALPHAS(NULL)),                     \
		NVFP4_EXPERTS(format, NVIDIA, K(AUTO) | K(MARLIN), NULL, "Marlin", "w13_input_scale|w2_input_scale",          \
			      globals, NVFP4(weight, "marlin_moe_nvfp4"))

#define BY_IDENTITY \
	"vLLM multiplies kv_b_proj with an identity matrix there, whose rounding is the kernel's: it is not known exactly"
#define NO_DEEPGEMM(word)   "add " word " to the layout, and start vLLM with VLLM_USE_DEEP_GEMM=0"
#define WITH_MARLIN(layers) "add -marlin to the layout, and start vLLM with --" layers "-backend marlin"
#define HUMMING(layers)	    "vLLM takes Humming there, which has not been compared for these weights: " WITH_MARLIN(layers)
#define HUMMING_WIDENS \
	"vLLM takes Humming there, whose layout depends on the CUDA compiler that it finds: " WITH_MARLIN("linear")
#define MACHETE "vLLM takes Machete or Humming there, whose layouts are not known exactly: " WITH_MARLIN("linear")

/* clang-format off */
#define KEEP(format, what, on, with, fits, name) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = with, .when = fits, .says = name }
#define NOT_WHEN(format, what, on, with, fits, why) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = with, .when = fits, .refused = why }
#define NOT(format, what, on, with, why) NOT_WHEN(format, what, on, with, NULL, why)
#define STEPS(format, what, on, with, fits, name, ...) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = with, .when = fits, .says = name, .steps = { __VA_ARGS__ } }
#define ONE(format, what, on, with, fits, name, ...) STEPS(format, what, on, with, fits, name, { __VA_ARGS__ })
#define MADE(how, what, on, with, fits, name, ...) \
	{ .storage = "plain", .kind = what, .gpus = on, .kernels = with, .online = ONLINE(how), .when = fits, .says = name, .steps = { __VA_ARGS__ } }
#define LATENT(format, on, with, fits, ...) \
	STEPS(format, SL_LATENT, on, with, fits, "MLA", __VA_ARGS__ { .recipe = "mla", .elsewhere = "mla_attn.mla_attn." })
#define HUMMING_FP8(format, on, fits) \
	{ .storage = format, .kind = SL_LINEAR, .gpus = on, .kernels = ANY & ~K(MARLIN), .when = fits, .says = "Humming", .steps = { { .recipe = "humming_fp8" } }, .drops = "input_scale" }
/* Marlin has no use for the scales of inputs. */
#define MARLIN_FP8(format, on, with, fits, ...) \
	{ .storage = format, .kind = SL_LINEAR, .gpus = on, .kernels = with, .when = fits, .says = "Marlin", .steps = { __VA_ARGS__ { .recipe = "marlin_fp8" } }, .drops = "input_scale" }

#define FP8_EXPERTS  .in = WEIGHTS("weight") "|" SCALES("weight_scale")
#define FP8_BLOCKS   .in = WEIGHTS("weight") "|" SCALES("weight_scale_inv")
#define FP8_LARGEST  { .recipe = "moe_fp8_tensor", FP8_EXPERTS }, { .recipe = "moe_fp8_input", .has = "w13_input_scale" }
#define MADE_SCALES  .in = ONLINE_EXPERTS, .out = "w13_scale=w13_weight_scale|w2_scale=w2_weight_scale"
#define MADE_BLOCKS  .recipe = "online_moe_block", .in = ONLINE_EXPERTS, .out = "w13_scale=w13_weight_scale_inv|w2_scale=w2_weight_scale_inv"
/* Hopper's stay as they are. */
#define DEEPGEMM_SCALES { .recipe = "deepgemm_sf", .in = "weight_scale_inv=scale|weight_scale=scale" }
/* What vLLM chooses by itself where a word has no kernel for FP8. */
#define CUTLASS_FP8  (K(AUTO) | K(CUTLASS) | K(TRITON) | K(TRTLLM))
#define ITS_OWN	     (K(AUTO) | K(TRITON) | K(TRTLLM))

#define INT8(format) \
	ONE(format, SL_LINEAR, GPU(SM80) | GPU(SM89) | GPU(SM90), ANY & ~K(TRITON), NULL, "CUTLASS", .recipe = "int8_w8a8"), \
	NOT(format, SL_LINEAR, GPU(SM100), ANY, "CUTLASS has no INT8 kernels there, and vLLM refuses it")
#define PACKED(format, name, ...) \
	NOT_WHEN(format, SL_LINEAR, ALL, ANY, is_beyond_marlin, "vLLM takes Humming for 8 bits with zero points, whose layout is not known exactly"), \
	NOT(format, SL_LINEAR, GPU(SM90), K(AUTO) | K(FLASHINFER) | K(TRTLLM), MACHETE), \
	{ .storage = format, .kind = SL_LINEAR, .gpus = NVIDIA, .kernels = K(AUTO) | K(MARLIN) | K(FLASHINFER) | K(TRTLLM), .says = "Marlin", .steps = { { .recipe = name } }, __VA_ARGS__ }
#define NVFP4_LINEAR(format, globals, ...) \
	NOT_WHEN(format, SL_LINEAR, GPU(SM100), ANY & ~K(MARLIN), is_not_fixed, "FlashInfer's layout for activations of 16 bits is not known exactly: " WITH_MARLIN("linear")), \
	STEPS(format, SL_LINEAR, GPU(SM100), K(AUTO) | K(CUTLASS) | K(TRITON) | K(FLASHINFER), NULL, "CUTLASS or FlashInfer", \
		{ .recipe = globals }, { .recipe = "nvfp4_pad", .align = 32, __VA_ARGS__ }, { .recipe = "swizzle_nvfp4", .in = "weight_scale=scale" }), \
	{ .storage = format, .kind = SL_LINEAR, .gpus = GPU(SM90), .kernels = K(AUTO) | K(TRITON), .says = "Humming", .drops = "input_global_scale|input_global_scale_inv|alpha", .steps = { \
		{ .recipe = globals }, { .recipe = "humming_nvfp4", __VA_ARGS__ } } }, \
	STEPS(format, SL_LINEAR, OLDER, K(AUTO) | K(TRITON), NULL, "Marlin", { .recipe = globals }, { .recipe = "marlin_nvfp4", __VA_ARGS__ }), \
	STEPS(format, SL_LINEAR, NVIDIA, K(MARLIN), NULL, "Marlin", { .recipe = globals }, { .recipe = "marlin_nvfp4", __VA_ARGS__ })

/* To add a format, a kernel or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_kernel_choices[] = {
	/* plain weights: nothing is done on NVIDIA's GPUs, but to experts for some kernels */
	KEEP("plain", SL_LINEAR, ALL, ANY, NULL, "cuBLAS"),
	LATENT("plain", ALL, ANY, NULL, ),
	KEEP("plain", SL_EXPERTS, OLDER | GPU(SM90), K(AUTO) | K(TRITON), NULL, "Triton"),
	KEEP("plain", SL_EXPERTS, GPU(SM100), K(TRITON), NULL, "Triton"),
	ONE("plain", SL_EXPERTS, NEWER, K(FLASHINFER), NULL, "FlashInfer CUTLASS", .recipe = "moe_w31", .in = "w13_weight=w13"),
	ONE("plain", SL_EXPERTS, GPU(SM100), K(AUTO), normalises, "FlashInfer TRT-LLM", .recipe = "trtllm_bf16", .in = WEIGHTS("weight"), .keeps_shapes = true),
	ONE("plain", SL_EXPERTS, GPU(SM100), K(TRTLLM), may_normalise, "FlashInfer TRT-LLM", .recipe = "trtllm_bf16", .in = WEIGHTS("weight"), .keeps_shapes = true),
	NOT("plain", SL_EXPERTS, GPU(SM100), K(AUTO), "vLLM chooses by the router there: add -flashinfer or -trtllm to the layout, and start vLLM with --moe-backend flashinfer_cutlass or flashinfer_trtllm"),
	NOT("plain", SL_EXPERTS, GPU(GFX942), K(AUTO), "AITER's layout of experts is not known exactly"),

	/* plain weights, quantised on the way */
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = ALL, .kernels = ANY, .online = ON_THE_WAY, .when = is_vision_of_llama4, .says = "cuBLAS" },
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = ALL, .kernels = ANY, .online = ON_THE_WAY, .when = is_vision, .refused = "which layers of an encoder of images vLLM quantises on the way has not been compared yet" },
	MADE(TENSOR, SL_LINEAR, FP8_CORES, CUTLASS_FP8, NULL, "CUTLASS", { .recipe = "online_tensor" }, { .recipe = "fp8_cutlass_pad" }),
	MADE(CHANNEL, SL_LINEAR, FP8_CORES, CUTLASS_FP8, NULL, "CUTLASS", { .recipe = "online_channel" }, { .recipe = "fp8_cutlass_pad" }),
	MADE(TENSOR, SL_LINEAR, GPU(SM80), ITS_OWN, NULL, "Marlin", { .recipe = "online_tensor" }, { .recipe = "marlin_fp8" }),
	MADE(TENSOR, SL_LINEAR, NVIDIA, K(MARLIN), NULL, "Marlin", { .recipe = "online_tensor" }, { .recipe = "marlin_fp8" }),
	MADE(BLOCK, SL_LINEAR, GPU(SM90), K(AUTO) | K(FLASHINFER) | K(TRTLLM), suits_deepgemm, "DeepGEMM", { .recipe = "online_block" }, { .recipe = "block_ue8m0" }),
	MADE(BLOCK, SL_LINEAR, GPU(SM100), K(AUTO) | K(TRTLLM), suits_deepgemm, "DeepGEMM", { .recipe = "online_block" }, { .recipe = "block_ue8m0" }, DEEPGEMM_SCALES),
	MADE(BLOCK, SL_LINEAR, NEWER, K(AUTO) | K(CUTLASS) | K(TRTLLM), NULL, "CUTLASS", { .recipe = "online_block" }),
	MADE(BLOCK, SL_LINEAR, NVIDIA, K(TRITON), NULL, "Triton", { .recipe = "online_block" }),
	MADE(BLOCK, SL_LINEAR, OLDER, K(AUTO) | K(MARLIN) | K(TRTLLM), NULL, "Marlin", { .recipe = "online_block" }, { .recipe = "marlin_fp8" }),
	MADE(BLOCK, SL_LINEAR, NEWER, K(MARLIN), NULL, "Marlin", { .recipe = "online_block" }, { .recipe = "marlin_fp8" }),
	MADE(TENSOR, SL_EXPERTS, FP8_CORES, K(AUTO) | K(TRITON), NULL, "Triton", { .recipe = "online_moe_tensor", MADE_SCALES }),
	MADE(TENSOR, SL_EXPERTS, GPU(SM80), K(AUTO), NULL, "Marlin", { .recipe = "online_moe_tensor", MADE_SCALES }, { .recipe = "marlin_moe_fp8", FP8_EXPERTS }),
	MADE(TENSOR, SL_EXPERTS, NVIDIA, K(MARLIN), NULL, "Marlin", { .recipe = "online_moe_tensor", MADE_SCALES }, { .recipe = "marlin_moe_fp8", FP8_EXPERTS }),
	MADE(CHANNEL, SL_EXPERTS, GPU(SM89), K(AUTO), NULL, "Triton", { .recipe = "online_moe_channel", MADE_SCALES }),
	MADE(CHANNEL, SL_EXPERTS, FP8_CORES, K(TRITON), NULL, "Triton", { .recipe = "online_moe_channel", MADE_SCALES }),
	MADE(CHANNEL, SL_EXPERTS, NEWER, K(AUTO) | K(CUTLASS), NULL, "CUTLASS", { .recipe = "online_moe_channel", MADE_SCALES }),
	MADE(BLOCK, SL_EXPERTS, FP8_CORES, K(TRITON), NULL, "Triton", { MADE_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM89), K(AUTO), NULL, "Triton", { MADE_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM80), K(AUTO), NULL, "Marlin", { MADE_BLOCKS }, { .recipe = "marlin_moe_fp8", FP8_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, NVIDIA, K(MARLIN), NULL, "Marlin", { MADE_BLOCKS }, { .recipe = "marlin_moe_fp8", FP8_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM90), K(AUTO), is_spread, "FlashInfer CUTLASS", { MADE_BLOCKS }, { .recipe = "moe_fp8_fi_cutlass", FP8_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM90), K(AUTO), NULL, "Triton", { MADE_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM90), K(FLASHINFER), NULL, "FlashInfer CUTLASS", { MADE_BLOCKS }, { .recipe = "moe_fp8_fi_cutlass", FP8_BLOCKS }),
	MADE(BLOCK, SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), NULL, "FlashInfer TRT-LLM", { MADE_BLOCKS }, { .recipe = "trtllm_fp8", FP8_BLOCKS }),

	/* FP8, one scale a matrix or one a row. compressed-tensors' GPUs without FP8 keep inputs as they are, and so do some checkpoints. */
	HUMMING_FP8("FP8 per tensor", OLDER | GPU(SM90), is_widened),
	NOT_WHEN("FP8 per tensor", SL_LINEAR, NVIDIA, ANY & ~K(MARLIN), is_weight_only, HUMMING_WIDENS),
	HUMMING_FP8("FP8 per tensor", GPU(SM80), is_compressed),
	MARLIN_FP8("FP8 per tensor", NVIDIA, K(MARLIN), is_weight_only, ),
	MARLIN_FP8("FP8 per tensor", GPU(SM80), K(MARLIN), is_compressed, ),
	MARLIN_FP8("FP8 per tensor", FP8_CORES, K(MARLIN), is_compressed, { .recipe = "fp8_tensor" }, ),
	MARLIN_FP8("FP8 per tensor", FP8_CORES, K(MARLIN), is_modelopt, { .recipe = "fp8_tensor_modelopt" }, ),
	MARLIN_FP8("FP8 per tensor", GPU(SM80), K(MARLIN) | ITS_OWN, is_modelopt, { .recipe = "fp8_tensor_modelopt" }, ),
	MARLIN_FP8("FP8 per tensor", GPU(SM80), K(MARLIN) | ITS_OWN, NULL, ),
	MARLIN_FP8("FP8 per tensor", FP8_CORES, K(MARLIN), NULL, ),
	ONE("FP8 per tensor", SL_LINEAR, GPU(SM100), ITS_OWN | K(FLASHINFER), is_modelopt_fixed, "FlashInfer", .recipe = "fp8_tensor_modelopt"),
	ONE("FP8 per tensor", SL_LINEAR, GPU(SM100), ITS_OWN | K(FLASHINFER), is_fixed, "FlashInfer", .recipe = "fp8_tensor"),
	ONE("FP8 per tensor", SL_LINEAR, FP8_CORES, CUTLASS_FP8, is_modelopt, "CUTLASS", .recipe = "fp8_tensor_modelopt", .align = 16),
	ONE("FP8 per tensor", SL_LINEAR, FP8_CORES, CUTLASS_FP8, NULL, "CUTLASS", .recipe = "fp8_tensor", .align = 16),
	ONE("FP8 per tensor", SL_LINEAR, GPU(GFX942), K(AUTO), NULL, "ROCm", .recipe = "fp8_fnuz_tensor"),
	NOT_WHEN("FP8 per tensor", SL_LATENT, ALL, ANY, is_compressed, BY_IDENTITY),
	NOT_WHEN("FP8 per tensor", SL_LATENT, ALL, ANY, is_modelopt, BY_IDENTITY),
	NOT("FP8 per tensor", SL_LATENT, NEWER, K(AUTO) | K(FLASHINFER) | K(TRTLLM), BY_IDENTITY ": " NO_DEEPGEMM("-cutlass")),
	LATENT("FP8 per tensor", FP8_CORES, CUTLASS_FP8, NULL, { .recipe = "fp8_tensor" },),
	STEPS("FP8 per tensor", SL_EXPERTS, NVIDIA, K(MARLIN), NULL, "Marlin", FP8_LARGEST, { .recipe = "marlin_moe_fp8", FP8_EXPERTS }),
	STEPS("FP8 per tensor", SL_EXPERTS, GPU(SM80), K(AUTO), NULL, "Marlin", FP8_LARGEST, { .recipe = "marlin_moe_fp8", FP8_EXPERTS }),
	STEPS("FP8 per tensor", SL_EXPERTS, FP8_CORES, K(TRITON), NULL, "Triton", FP8_LARGEST),
	STEPS("FP8 per tensor", SL_EXPERTS, GPU(SM89), K(AUTO), NULL, "Triton", FP8_LARGEST),
	STEPS("FP8 per tensor", SL_EXPERTS, NEWER, K(AUTO), is_not_fixed, "Triton", FP8_LARGEST),
	STEPS("FP8 per tensor", SL_EXPERTS, NEWER, K(CUTLASS), is_compressed_fixed, "CUTLASS", FP8_LARGEST),
	STEPS("FP8 per tensor", SL_EXPERTS, GPU(SM90), K(AUTO), NULL, "FlashInfer CUTLASS", FP8_LARGEST, { .recipe = "moe_fp8_fi_cutlass", FP8_EXPERTS }),
	STEPS("FP8 per tensor", SL_EXPERTS, NEWER, K(FLASHINFER), is_fixed, "FlashInfer CUTLASS", FP8_LARGEST, { .recipe = "moe_fp8_fi_cutlass", FP8_EXPERTS }),
	STEPS("FP8 per tensor", SL_EXPERTS, GPU(SM100), K(AUTO), suits_trtllm, "FlashInfer TRT-LLM", FP8_LARGEST, { .recipe = "trtllm_fp8", FP8_EXPERTS }),
	STEPS("FP8 per tensor", SL_EXPERTS, GPU(SM100), K(TRTLLM), may_suit_trtllm, "FlashInfer TRT-LLM", FP8_LARGEST, { .recipe = "trtllm_fp8", FP8_EXPERTS }),
	NOT("FP8 per tensor", SL_EXPERTS, GPU(SM100), K(AUTO), "vLLM chooses by the router there: add -flashinfer to the layout, and start vLLM with --moe-backend flashinfer_cutlass"),
	HUMMING_FP8("FP8 per channel", OLDER | GPU(SM90), is_widened),
	NOT_WHEN("FP8 per channel", SL_LINEAR, NVIDIA, ANY & ~K(MARLIN), is_weight_only, HUMMING_WIDENS),
	HUMMING_FP8("FP8 per channel", GPU(SM80), NULL),
	ONE("FP8 per channel", SL_LINEAR, FP8_CORES, CUTLASS_FP8, NULL, "CUTLASS", .recipe = "fp8_channel", .align = 16),
	ONE("FP8 per channel", SL_LINEAR, GPU(GFX942), K(AUTO), NULL, "ROCm", .recipe = "fp8_fnuz"),
	MARLIN_FP8("FP8 per channel", NVIDIA, K(MARLIN), NULL, ),
	KEEP("FP8 per channel", SL_EXPERTS, GPU(SM89), K(AUTO), NULL, "Triton"),
	KEEP("FP8 per channel", SL_EXPERTS, FP8_CORES, K(TRITON), NULL, "Triton"),
	KEEP("FP8 per channel", SL_EXPERTS, NEWER, K(AUTO) | K(CUTLASS), NULL, "CUTLASS"),
	ONE("FP8 per channel", SL_EXPERTS, GPU(SM80), K(AUTO), NULL, "Marlin", .recipe = "marlin_moe_fp8", FP8_EXPERTS),
	ONE("FP8 per channel", SL_EXPERTS, NVIDIA, K(MARLIN), NULL, "Marlin", .recipe = "marlin_moe_fp8", FP8_EXPERTS),
	ONE("FP8 per channel, input bound", SL_LINEAR, FP8_CORES, CUTLASS_FP8, NULL, "CUTLASS", .recipe = "fp8_channel", .align = 16),
	ONE("FP8 per channel, input bound", SL_LINEAR, GPU(GFX942), K(AUTO), NULL, "ROCm", .recipe = "fp8_fnuz"),
	MARLIN_FP8("FP8 per channel, input bound", FP8_CORES, K(MARLIN), NULL, ),
	NOT("FP8 per channel, input bound", SL_LINEAR, GPU(SM80), ANY, "vLLM prepares these weights for Marlin twice there, and fails"),

	/* FP8 blocks */
	ONE("FP8 blocks", SL_LINEAR, GPU(SM90), K(AUTO) | K(FLASHINFER) | K(TRTLLM), suits_deepgemm, "DeepGEMM", .recipe = "block_ue8m0"),
	STEPS("FP8 blocks", SL_LINEAR, GPU(SM100), K(AUTO) | K(TRTLLM), suits_deepgemm, "DeepGEMM", { .recipe = "block_ue8m0" }, DEEPGEMM_SCALES),
	KEEP("FP8 blocks", SL_LINEAR, NEWER, K(AUTO) | K(CUTLASS) | K(TRTLLM), NULL, "CUTLASS"),
	KEEP("FP8 blocks", SL_LINEAR, FP8_CORES, K(TRITON), NULL, "Triton"),
	ONE("FP8 blocks", SL_LINEAR, GPU(GFX942), K(AUTO), NULL, "ROCm", .recipe = "fp8_fnuz"),
	ONE("FP8 blocks", SL_LINEAR, OLDER, K(AUTO) | K(TRTLLM), NULL, "Marlin", .recipe = "marlin_fp8"),
	ONE("FP8 blocks", SL_LINEAR, NVIDIA, K(MARLIN), NULL, "Marlin", .recipe = "marlin_fp8"),
	NOT("FP8 blocks", SL_LATENT, NEWER, K(AUTO) | K(FLASHINFER) | K(TRTLLM), "vLLM multiplies kv_b_proj with DeepGEMM, whose rounding is not known exactly: " NO_DEEPGEMM("-triton")),
	NOT("FP8 blocks", SL_LATENT, NVIDIA, K(MARLIN), "vLLM multiplies kv_b_proj with Marlin, whose rounding is not known exactly"),
	NOT("FP8 blocks", SL_LATENT, OLDER, K(AUTO) | K(TRTLLM), "vLLM multiplies kv_b_proj with Marlin, whose rounding is not known exactly"),
	LATENT("FP8 blocks", NEWER, K(CUTLASS) | K(TRITON), NULL, ),
	LATENT("FP8 blocks", GPU(SM89), K(TRITON), NULL, ),
	KEEP("FP8 blocks", SL_EXPERTS, FP8_CORES, K(TRITON), NULL, "Triton"),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM89), K(AUTO), NULL, "Triton"),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM90), K(AUTO), is_spread, "FlashInfer CUTLASS", .recipe = "moe_fp8_fi_cutlass", FP8_BLOCKS),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM90), K(AUTO), NULL, "Triton"),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM90), K(FLASHINFER), has_stored_blocks, "FlashInfer CUTLASS", .recipe = "moe_fp8_fi_cutlass", FP8_BLOCKS),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), has_stored_blocks, "FlashInfer TRT-LLM", .recipe = "trtllm_fp8", FP8_BLOCKS),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM100), K(AUTO), NULL, "Triton"),
	ONE("FP8 blocks", SL_EXPERTS, GPU(SM80), K(AUTO), has_stored_blocks, "Marlin", .recipe = "marlin_moe_fp8", FP8_BLOCKS),
	NOT("FP8 blocks", SL_EXPERTS, GPU(SM80), K(AUTO), "no kernel there takes the finer blocks that vLLM makes for a rank's share: " WITH_MARLIN("moe")),
	ONE("FP8 blocks", SL_EXPERTS, NVIDIA, K(MARLIN), has_stored_blocks, "Marlin", .recipe = "marlin_moe_fp8", FP8_BLOCKS),

	/* INT8 */
	INT8("INT8 per channel"), INT8("INT8 per tensor"), INT8("INT8 per channel, static inputs"), INT8("INT8 per tensor, static inputs"),

	/* integers in groups */
	PACKED("packed integers, groups", "marlin_ct_wna16", ),
	PACKED("GPTQ", "marlin_gptq", .drops = "qzeros"),
	PACKED("AWQ", "marlin_awq", ),
	NOT_WHEN("packed integers, groups", SL_EXPERTS, ALL, ANY, is_beyond_marlin, "no kernel of vLLM takes experts of 8 bits with zero points"),
	{ .storage = "packed integers, groups", .kind = SL_EXPERTS, .gpus = GPU(SM90), .kernels = K(AUTO), .when = is_symmetric_of_4_bits, .says = "Humming", .drops = "w13_weight_shape|w2_weight_shape", .steps = {
		{ .recipe = "humming_moe_wna16", .in = WEIGHTS("weight_packed") "|" SCALES("weight_scale"), .out = "w13=w13_weight|w2=w2_weight" } } },
	NOT_WHEN("packed integers, groups", SL_EXPERTS, GPU(SM90), K(AUTO), is_symmetric, HUMMING("moe")),
	ONE("packed integers, groups", SL_EXPERTS, NVIDIA, K(AUTO) | K(MARLIN), NULL, "Marlin", .recipe = "marlin_moe_wna16", .in = WEIGHTS("weight_packed") "|" SCALES("weight_scale") "|" ZEROS("weight_zero_point")),
	NOT("GPTQ", SL_EXPERTS, GPU(SM90), K(AUTO), HUMMING("moe")),
	{ .storage = "GPTQ", .kind = SL_EXPERTS, .gpus = NVIDIA, .kernels = K(AUTO) | K(MARLIN), .says = "Marlin", .drops = "w13_bias|w2_bias", .steps = {
		{ .recipe = "marlin_moe_gptq", .in = WEIGHTS("qweight") "|" SCALES("scales") "|" ZEROS("qzeros") } } },
	NOT("AWQ", SL_EXPERTS, GPU(SM90), K(AUTO), HUMMING("moe")),
	ONE("AWQ", SL_EXPERTS, NVIDIA, K(AUTO) | K(MARLIN), NULL, "Marlin", .recipe = "marlin_moe_awq", .in = WEIGHTS("qweight") "|" SCALES("scales") "|" ZEROS("qzeros")),

	/* 4-bit floats, and 8-bit ones in groups */
	NVFP4_LINEAR("NVFP4", "nvfp4_global_ct", .in = "weight_packed=weight", .out = "weight=weight"),
	NVFP4_LINEAR("NVFP4 of ModelOpt", "nvfp4_global_modelopt"),
	NVFP4_OF("NVFP4", GLOBALS_CT, "weight_packed"),
	NVFP4_OF("NVFP4 of ModelOpt", GLOBALS_MODELOPT, "weight"),
	NOT("MXFP4", SL_LINEAR, GPU(SM90), ANY & ~K(MARLIN), HUMMING("linear")),
	NOT("MXFP4", SL_LINEAR, GPU(SM100), ANY & ~K(MARLIN), "FlashInfer's kernel has not been compared yet: " WITH_MARLIN("linear")),
	ONE("MXFP4", SL_LINEAR, NVIDIA, ANY & ~K(FLASHINFER), NULL, "Marlin", .recipe = "marlin_mxfp4"),
	NOT("MXFP4", SL_EXPERTS, GPU(SM100), ANY, "CUTLASS's experts have not been compared yet, and vLLM takes no others"),
	ONE("MXFP4", SL_EXPERTS, NVIDIA, ANY, NULL, "Marlin", .recipe = "marlin_moe_mxfp4", FP8_EXPERTS),
	ONE("MXFP8", SL_LINEAR, GPU(SM90), K(AUTO) | K(CUTLASS) | K(TRITON), NULL, "Humming", .recipe = "humming_mxfp8"),
	ONE("MXFP8", SL_LINEAR, GPU(SM100), K(AUTO) | K(CUTLASS) | K(TRITON), suits_mm_mxfp8, "FlashInfer CuTe-DSL", .recipe = "mxfp8_cutedsl", .in = "weight_scale=scale"),
	ONE("MXFP8", SL_LINEAR, GPU(SM100), K(FLASHINFER), suits_mm_mxfp8, "FlashInfer CUTLASS", .recipe = "swizzle_mxfp8", .in = "weight_scale=scale"),
	ONE("MXFP8", SL_LINEAR, GPU(SM100), K(AUTO) | K(CUTLASS) | K(TRITON), NULL, "Marlin", .recipe = "marlin_mxfp8"),
	ONE("MXFP8", SL_LINEAR, OLDER, K(AUTO) | K(CUTLASS) | K(TRITON), NULL, "Marlin", .recipe = "marlin_mxfp8"),
	ONE("MXFP8", SL_LINEAR, NVIDIA, K(MARLIN), NULL, "Marlin", .recipe = "marlin_mxfp8"),
	ONE("MXFP8", SL_EXPERTS, GPU(SM90), K(AUTO), NULL, "Humming", .recipe = "humming_moe_mxfp8", FP8_EXPERTS),
	ONE("MXFP8", SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), NULL, "FlashInfer TRT-LLM", .recipe = "trtllm_mxfp8", FP8_EXPERTS),
	ONE("MXFP8", SL_EXPERTS, OLDER, K(AUTO), NULL, "Marlin", .recipe = "marlin_moe_mxfp8", FP8_EXPERTS),
	ONE("MXFP8", SL_EXPERTS, NVIDIA, K(MARLIN), NULL, "Marlin", .recipe = "marlin_moe_mxfp8", FP8_EXPERTS),
	NOT("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM90), K(AUTO) | K(TRITON), "the layout of Triton's own kernels is not known exactly: " WITH_MARLIN("moe")),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, OLDER, K(AUTO), NULL, "Marlin", .recipe = "marlin_moe_mxfp4", FP8_EXPERTS),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, OLDER | GPU(SM90), K(MARLIN), NULL, "Marlin", .recipe = "marlin_moe_mxfp4", FP8_EXPERTS),
	ONE("MXFP4 blocks of all experts", SL_EXPERTS, GPU(SM100), K(AUTO) | K(TRTLLM), NULL, "FlashInfer TRT-LLM", .recipe = "trtllm_gpt_oss", FP8_EXPERTS),

	/* known, and not done */
	NOT("AWQ", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("GPTQ", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("packed integers, groups", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("NVFP4", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("NVFP4 of ModelOpt", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("FP8 per channel", SL_LATENT, ALL, ANY, BY_IDENTITY),
	NOT("FP8 blocks, E8M0 scales", SL_LINEAR, ALL, ANY, "how DeepSeek V4's kernels hold their scales has not been compared yet"),
	NOT("FP4 in bytes, E8M0 scales", SL_EXPERTS, ALL, ANY, "how DeepSeek V4's kernels hold their experts has not been compared yet"),

	{ .storage = NULL },
};
/* clang-format on */

int sl_kernel_beside(struct sl_plan *plan)
{
	int ret = sl_serve_index(plan);

	return ret ? ret : sl_serve_manifest(plan);
}
