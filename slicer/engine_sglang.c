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
	"GptOssForCausalLM",
};

#define GPU(name) (1u << SL_##name)
#define NVIDIA	  (GPU(SM80) | GPU(SM89) | GPU(SM90) | GPU(SM100))
#define ALL	  (NVIDIA | GPU(GFX942))
#define AUTO	  (1u << SL_KERNELS_AUTO)

/* clang-format off */
#define KEEP(format, what, on, name) { .storage = format, .kind = what, .gpus = on, .kernels = AUTO, .says = name }
#define NOT(format, what, on, why) { .storage = format, .kind = what, .gpus = on, .kernels = AUTO, .refused = why }

/* Marlin's shapes (marlin_utils.py, verify_marlin_supports_shape, query_marlin_supported_quant_types). */
static bool suits_marlin(const struct sl_module *module, uint64_t n, uint64_t k)
{
	uint64_t group = module->quant->group;

	return n % 64 == 0 && k % 128 == 0 && (group == 0 || group == 32 || group == 64 || group == 128);
}

static bool suits_gptq(const struct sl_module *module, uint64_t n, uint64_t k)
{
	return module->quant->symmetric && suits_marlin(module, n, k);
}

/* compressed-tensors with FP8 activations; quant_method "fp8" has another way with scales. */
static bool is_w8a8(const struct sl_module *module, uint64_t n, uint64_t k)
{
	(void)n, (void)k;
	return strcmp(module->quant->scheme->method, "compressed-tensors") == 0 && !module->quant->weight_only;
}

/* SGLang leaves biases in their order. */
#define MARLIN(format, fits, name, ...) \
	{ .storage = format, .kind = SL_LINEAR, .gpus = GPU(SM90), .kernels = AUTO, .says = "Marlin", .when = fits, .steps = { { .recipe = name, .in = "bias=" } }, __VA_ARGS__ }
#define W8A8(format, name) \
	{ .storage = format, .kind = SL_LINEAR, .gpus = GPU(SM90), .kernels = AUTO, .says = "CUTLASS", .when = is_w8a8, .steps = { { .recipe = name } } }
#define NO_MARLIN "SGLang's Marlin takes symmetric integers in groups of 32, 64, 128 or none, rows in 64s and columns in 128s"

/* To add a format or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_sglang_choices[] = {
	KEEP("plain", SL_LINEAR, ALL, "cuBLAS"),
	KEEP("plain", SL_LATENT, ALL, "cuBLAS"),
	KEEP("plain", SL_EXPERTS, NVIDIA, "Triton"),
	KEEP("FP8 blocks", SL_LINEAR, GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_LATENT, GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM90), "Triton or DeepGEMM"),
	W8A8("FP8 per tensor", "fp8_tensor"),
	W8A8("FP8 per channel", "fp8_channel"),
	MARLIN("packed integers, groups", suits_marlin, "marlin_ct_wna16", .drops = NULL),
	NOT("packed integers, groups", SL_LINEAR, GPU(SM90), NO_MARLIN),
	MARLIN("GPTQ", suits_gptq, "marlin_gptq", .drops = "qzeros|g_idx"),
	NOT("GPTQ", SL_LINEAR, GPU(SM90), NO_MARLIN),
	MARLIN("AWQ", suits_marlin, "marlin_awq", .drops = NULL),
	NOT("AWQ", SL_LINEAR, GPU(SM90), NO_MARLIN),
	NOT("NVFP4", SL_LINEAR, ALL, "SGLang takes it only where fused matrices share a weight_global_scale, and what it makes of those has not been compared yet"),
	NOT("MXFP4 blocks of all experts", SL_EXPERTS, ALL, "SGLang's kernels take experts out of the state that sharded_state loads"),
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

/* A tensor that would be a scale of a cache, whose scales are 1 here. */
static const struct sl_tensor *stored_cache_scale(const struct sl_model *model)
{
	const struct sl_scheme *scheme = model->quant.scheme;
	struct sl_stored_scale found;

	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		const struct sl_attention *attn = &stack->attns[0];
		uint64_t layers = attn->sglang && attn->stored ? sl_stack_layers(model, stack) : 0;
		for (uint64_t l = 0; l < layers; l++) {
			for (unsigned i = 0; i < scheme->n_after; i++) {
				if (sl_cache_scale_find(model, stack, attn, l, scheme->after[i].stored, &found))
					return found.tensor;
			}
		}
	}
	return NULL;
}

static int check_cache(const struct sl_model *model, struct sl_error *err)
{
	const struct sl_tensor *scale = stored_cache_scale(model);

	if (scale)
		return sl_fail(err, EINVAL,
			       "tensor '%s': what SGLang makes of stored scales of its cache has not been compared yet",
			       SL_ESC(scale->name));
	if (model->quant.cache)
		return sl_fail(err, EINVAL,
			       "config.json: what SGLang makes of a kv_cache_scheme has not been compared yet");
	return 0;
}

/* Does everything but weights suit SGLang? */
static int check_model(const struct sl_model *model, const struct sl_layout *layout, struct sl_error *err)
{
	uint64_t heads = model->config.dims[SL_VISION].heads;

	if (!is_known(model->config.architecture))
		return sl_fail(err, EINVAL, "what SGLang holds of %s has not been compared yet",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	if (strcmp(model->quant.scheme->method, "modelopt") == 0)
		return sl_fail(err, EINVAL,
			       "SGLang loads ModelOpt's checkpoints in a way of its own, whatever --load-format says");
	if (layout->pp > 1 && !(model->arch->flags & SL_SGLANG_STAGES))
		return sl_fail(err, EINVAL, "what SGLang's pipeline stages hold of %s has not been compared yet",
			       model->config.architecture);
	if (heads % layout->tp)
		return sl_fail(err, EINVAL, "%llu heads of the vision tower do not divide by tp %u",
			       (unsigned long long)heads, layout->tp);
	return check_cache(model, err);
}

int sl_sglang_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	int ret = check_model(model, layout, err);

	return ret ? ret : sl_process_check(model, engine, layout, err);
}

/* As configured, F32 as BF16 for Gemma, as F16 for others (model_config.py, _get_and_verify_dtype). */
enum sl_dtype sl_sglang_dtype(const struct sl_model *model)
{
	int dtype = sl_config_dtype(&model->config, NULL);

	if (dtype == SL_F16 || dtype == SL_BF16)
		return (enum sl_dtype)dtype;
	return strncmp(model->config.architecture, "Gemma", 5) == 0 ? SL_BF16 : SL_F16;
}

/* What does not divide goes to the last stages (distributed/utils.py, get_pp_indices). */
struct sl_range sl_sglang_layers(uint64_t layers, unsigned stages, unsigned stage)
{
	uint64_t each = layers / stages, fewer = stages - layers % stages;

	return (struct sl_range){ each * stage + (stage > fewer ? stage - fewer : 0), each + (stage >= fewer), 0 };
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
