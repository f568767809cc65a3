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

#define MACHETE \
	"vLLM takes Machete there, whose layout is not known exactly: add -marlin to the layout, and start vLLM with VLLM_DISABLED_KERNELS=MacheteLinearKernel"

/* clang-format off */
#define KEEP(format, what, on, with, name) { .storage = format, .kind = what, .gpus = on, .kernels = with, .says = name }
#define NOT(format, what, on, with, why) { .storage = format, .kind = what, .gpus = on, .kernels = with, .refused = why }
#define ONE(format, what, on, with, name, ...) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = with, .says = name, .steps = { { __VA_ARGS__ } } }
#define LATENT(format, on, with, ...) \
	{ .storage = format, .kind = SL_LATENT, .gpus = on, .kernels = with, .says = "MLA", .steps = { __VA_ARGS__ { .recipe = "mla", .elsewhere = "mla_attn." } } }

/* To add a format, a kernel or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_kernel_choices[] = {
	/* plain weights: nothing is done on NVIDIA's GPUs */
	KEEP("plain", SL_LINEAR, ALL, K(AUTO), "cuBLAS"),
	LATENT("plain", ALL, K(AUTO), ),
	KEEP("plain", SL_EXPERTS, GPU(SM80) | GPU(SM89) | GPU(SM90), K(AUTO) | K(TRITON), "Triton"),
	NOT("plain", SL_EXPERTS, GPU(GFX942), K(AUTO), "AITER's layout of experts is not known exactly"),

	/* plain weights, quantised on the way */
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(TENSOR), .says = "CUTLASS", .steps = { { .recipe = "online_tensor" } } },
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(CHANNEL), .says = "CUTLASS", .steps = { { .recipe = "online_channel" } } },
	{ .storage = "plain", .kind = SL_LINEAR, .gpus = FP8_CORES, .kernels = K(AUTO), .online = ONLINE(BLOCK), .refused = "vLLM divides by an approximate quotient there: its bytes are not known exactly" },
	{ .storage = "plain", .kind = SL_EXPERTS, .gpus = FP8_CORES, .kernels = K(AUTO) | K(TRITON), .online = ONLINE(TENSOR), .says = "Triton", .steps = { { .recipe = "online_moe_tensor", .in = "w13_weight=w13|w2_weight=w2", .out = "w13_scale=w13_weight_scale|w2_scale=w2_weight_scale" } } },
	{ .storage = "plain", .kind = SL_EXPERTS, .gpus = FP8_CORES, .kernels = K(AUTO) | K(TRITON), .online = ONLINE(CHANNEL), .says = "Triton", .steps = { { .recipe = "online_moe_channel", .in = "w13_weight=w13|w2_weight=w2", .out = "w13_scale=w13_weight_scale|w2_scale=w2_weight_scale" } } },

	/* FP8, one scale a matrix */
	ONE("FP8 per tensor", SL_LINEAR, FP8_CORES, K(AUTO) | K(CUTLASS), "CUTLASS", .recipe = "fp8_tensor", .align = 16),
	ONE("FP8 per tensor", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz_tensor"),
	ONE("FP8 per channel", SL_LINEAR, FP8_CORES, K(AUTO) | K(CUTLASS), "CUTLASS", .recipe = "fp8_channel", .align = 16),
	ONE("FP8 per channel", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz"),

	/* FP8 blocks */
	{ .storage = "FP8 blocks", .kind = SL_LINEAR, .gpus = GPU(SM90), .kernels = K(AUTO), .says = "DeepGEMM", .when = suits_deepgemm, .steps = { { .recipe = "block_ue8m0" } } },
	KEEP("FP8 blocks", SL_LINEAR, GPU(SM89) | GPU(SM90), K(AUTO), "CUTLASS or Triton"),
	NOT("FP8 blocks", SL_LINEAR, GPU(SM100), K(AUTO), "DeepGEMM's packed scales are known by formula only: add -cutlass to the layout, and start vLLM with VLLM_USE_DEEP_GEMM=0"),
	KEEP("FP8 blocks", SL_LINEAR, FP8_CORES, K(CUTLASS) | K(TRITON), "CUTLASS or Triton"),
	ONE("FP8 blocks", SL_LINEAR, GPU(GFX942), K(AUTO), "ROCm", .recipe = "fp8_fnuz"),
	NOT("FP8 blocks", SL_LATENT, GPU(SM90) | GPU(SM100), K(AUTO), "vLLM multiplies kv_b_proj with DeepGEMM, whose rounding is not known exactly: add -cutlass to the layout, and start vLLM with VLLM_USE_DEEP_GEMM=0"),
	LATENT("FP8 blocks", FP8_CORES, K(AUTO) | K(CUTLASS) | K(TRITON), ),
	LATENT("FP8 per tensor", FP8_CORES, K(AUTO) | K(CUTLASS), { .recipe = "fp8_tensor" },),
	KEEP("FP8 blocks", SL_EXPERTS, FP8_CORES, K(TRITON), "Triton"),
	NOT("FP8 blocks", SL_EXPERTS, FP8_CORES, K(AUTO), "DeepGEMM's experts are not known exactly: add -triton to the layout, and start vLLM with --moe-backend triton and VLLM_USE_DEEP_GEMM=0"),

	{ .storage = NULL },
};
/* clang-format on */

int sl_kernel_beside(struct sl_plan *plan)
{
	int ret = sl_serve_index(plan);

	return ret ? ret : sl_serve_manifest(plan);
}
