/*
 * engine_sglang.c - what SGLang's sharded_state loader gets (SGLang 0.5.23, model_loader/loader.py, ShardedStateLoader): the state
 * after post-processing, as its kernels read it. Families are those of which what SGLang holds has been compared; where they
 * differ from vLLM's, rows of the architecture say so (arch.h).
 */
#include "slicer/plan.h"
#include "slicer/process.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* To add a family: its architecture, after a comparison of what SGLang holds (tests/oracle/make_digests.py). */
static const char *const known[] = {
	"LlamaForCausalLM",    "MistralForCausalLM",  "Qwen2ForCausalLM",   "Qwen3ForCausalLM",
	"Phi3ForCausalLM",     "OPTForCausalLM",      "MixtralForCausalLM", "Qwen3MoeForCausalLM",
	"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "Gemma2ForCausalLM",
	"Gemma3ForCausalLM",   "Gemma3ForConditionalGeneration", "GPT2LMHeadModel", "MiniMaxM2ForCausalLM",
};

#define GPU(name) (1u << SL_##name)
#define NVIDIA	  (GPU(SM80) | GPU(SM89) | GPU(SM90) | GPU(SM100))
#define ALL	  (NVIDIA | GPU(GFX942))
#define AUTO	  (1u << SL_KERNELS_AUTO)

/* clang-format off */
#define KEEP(format, what, on, name) { .storage = format, .kind = what, .gpus = on, .kernels = AUTO, .says = name }
#define NOT(format, what, on, why) { .storage = format, .kind = what, .gpus = on, .kernels = AUTO, .refused = why }
#define ONE(format, what, on, name, ...) \
	{ .storage = format, .kind = what, .gpus = on, .kernels = AUTO, .says = name, .steps = { { __VA_ARGS__ } } }

/* To add a format or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_sglang_choices[] = {
	KEEP("plain", SL_LINEAR, ALL, "cuBLAS"),
	KEEP("plain", SL_LATENT, ALL, "cuBLAS"),
	KEEP("plain", SL_EXPERTS, NVIDIA, "Triton"),
	KEEP("FP8 blocks", SL_LINEAR, GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_LATENT, GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM90), "Triton or DeepGEMM"),
	ONE("FP8 per tensor", SL_LINEAR, GPU(SM90), "CUTLASS", .recipe = "fp8_tensor"),
	ONE("FP8 per channel", SL_LINEAR, GPU(SM90), "CUTLASS", .recipe = "fp8_channel"),
	{ .storage = NULL },
};
/* clang-format on */

static bool is_known(const char *architecture)
{
	for (size_t i = 0; i < SL_COUNT(known) && architecture; i++) {
		if (strcmp(known[i], architecture) == 0)
			return true;
	}
	return false;
}

int sl_sglang_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	if (!is_known(model->config.architecture))
		return sl_fail(err, EINVAL, "what SGLang holds of %s has not been compared yet",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	return sl_process_check(model, engine, layout, err);
}

/* Gemma 2's factor of embeddings, a buffer of its own (gemma2.py): the square root of the hidden size. */
static int add_normalizer(struct sl_plan *plan)
{
	int ret = sl_plan_tensor(plan, "model.normalizer", sl_plan_float(plan));

	if (!ret)
		ret = sl_plan_fill(plan, (float)sqrt((double)plan->model->config.dims[SL_TEXT].hidden), 1);
	return ret ? ret : sl_plan_shape(plan, NULL, 0);
}

int sl_sglang_plan(struct sl_plan *plan)
{
	int ret = 0;

	if (strcmp(plan->model->config.architecture, "Gemma2ForCausalLM") == 0)
		ret = add_normalizer(plan);
	return ret ? ret : sl_process_plan(plan);
}
