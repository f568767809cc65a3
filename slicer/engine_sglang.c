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
	"LlamaForCausalLM",	 "MistralForCausalLM",
	"Qwen2ForCausalLM",	 "Qwen3ForCausalLM",
	"Phi3ForCausalLM",	 "OPTForCausalLM",
	"MixtralForCausalLM",	 "Qwen3MoeForCausalLM",
	"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
	"Glm4MoeForCausalLM",	 "Gemma2ForCausalLM",
	"Gemma3ForCausalLM",	 "Gemma3ForConditionalGeneration",
	"GPT2LMHeadModel",	 "MiniMaxM2ForCausalLM",
};

#define GPU(name) (1u << SL_##name)
#define NVIDIA	  (GPU(SM80) | GPU(SM89) | GPU(SM90) | GPU(SM100))
#define ALL	  (NVIDIA | GPU(GFX942))
#define AUTO	  (1u << SL_KERNELS_AUTO)

/* Marlin's shapes (marlin_utils.py, verify_marlin_supports_shape, query_marlin_supported_quant_types). */
static bool suits_marlin(const struct sl_asked *asked)
{
	uint64_t group = asked->module->quant->group;

	return asked->n % 64 == 0 && asked->k % 128 == 0 && (group == 0 || group == 32 || group == 64 || group == 128);
}

/* compressed-tensors with FP8 activations; quant_method "fp8" has another way with scales. */
static bool is_w8a8(const struct sl_asked *asked)
{
	const struct sl_quant *quant = asked->module->quant;

	return strcmp(quant->scheme->method, "compressed-tensors") == 0 && !quant->weight_only;
}

/* clang-format off */
#define ROW(format, what, on) .storage = format, .kind = what, .gpus = on, .kernels = AUTO
#define KEEP(format, what, on, name) { ROW(format, what, on), .says = name }
#define NOT(format, what, on, why) { ROW(format, what, on), .refused = why }
#define W8A8(format, name) \
	{ ROW(format, SL_LINEAR, GPU(SM89) | GPU(SM90) | GPU(SM100)), .says = "CUTLASS", .when = is_w8a8, .steps = { { .recipe = name } } }
/* Biases stay in their order: the recipe does not get them. */
#define MARLIN(format, fits, name, gone) \
	{ ROW(format, SL_LINEAR, NVIDIA), .says = "Marlin", .when = fits, .steps = { { .recipe = name, .in = "bias=" } }, .drops = gone }
#define NO_MARLIN "SGLang's Marlin takes groups of 32, 64, 128 or none, rows in 64s and columns in 128s"

/* To add a format or a GPU: a row; the first that fits counts. */
const struct sl_choice sl_sglang_choices[] = {
	KEEP("plain", SL_LINEAR, ALL, "cuBLAS"),
	KEEP("plain", SL_LATENT, ALL, "cuBLAS"),
	KEEP("plain", SL_EXPERTS, GPU(SM80) | GPU(SM89) | GPU(SM90), "Triton"),
	KEEP("FP8 blocks", SL_LINEAR, GPU(SM89) | GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_LATENT, GPU(SM89) | GPU(SM90), "Triton or DeepGEMM"),
	KEEP("FP8 blocks", SL_EXPERTS, GPU(SM89) | GPU(SM90), "Triton or DeepGEMM"),
	W8A8("FP8 per tensor", "fp8_tensor"),
	W8A8("FP8 per channel", "fp8_channel"),
	MARLIN("GPTQ", suits_marlin, "marlin_gptq", "qzeros|g_idx"),
	NOT("GPTQ", SL_LINEAR, NVIDIA, NO_MARLIN),
	MARLIN("AWQ", suits_marlin, "marlin_awq", NULL),
	NOT("AWQ", SL_LINEAR, NVIDIA, NO_MARLIN),
	MARLIN("packed integers, groups", suits_marlin, "marlin_ct_wna16", NULL),
	NOT("packed integers, groups", SL_LINEAR, NVIDIA, NO_MARLIN),
	NOT("NVFP4", SL_LINEAR, ALL, "SGLang takes it only where fused matrices share a weight_global_scale, which its sharded_state asks of an empty model"),
	{ .storage = NULL },
};
/* clang-format on */

/* To add an architecture that SGLang does not run at all: a row. */
static const char *const absent[] = { "FalconForCausalLM", "RWForCausalLM" };

static bool is_among(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n && name; i++) {
		if (strcmp(list[i], name) == 0)
			return true;
	}
	return false;
}

/* A stored scale of the KV cache. SGLang's attention computes with numbers beside its state, which sharded_state leaves at 1
 * (kv_cache.py, process_weights_after_loading). */
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
		return sl_fail(
			err, EINVAL,
			"tensor '%s': SGLang's sharded_state would compute with 1 instead of this scale of the cache",
			SL_ESC(scale->name));
	if (model->quant.cache)
		return sl_fail(
			err, EINVAL,
			"config.json: kv_cache_scheme: SGLang's sharded_state would compute with 1 instead of the cache's scales");
	return 0;
}

/* How SGLang shares layers and experts among ranks, where that is not vLLM's way. */
static int check_layout(const struct sl_model *model, const struct sl_layout *layout, struct sl_error *err)
{
	uint64_t heads = model->config.dims[SL_VISION].heads, experts = model->config.dims[SL_TEXT].experts;

	if (layout->pp > 1 && !(model->arch->flags & SL_SGLANG_STAGES))
		return sl_fail(err, EINVAL, "what SGLang's pipeline stages hold of %s has not been compared yet",
			       model->config.architecture);
	if (heads % layout->tp)
		return sl_fail(err, EINVAL, "%llu heads of the vision tower do not divide by tp %u",
			       (unsigned long long)heads, layout->tp);
	if (layout->experts == SL_EXPERTS_ROUND_ROBIN)
		return sl_fail(err, EINVAL, "SGLang spreads experts in blocks only: use -ep");
	if (layout->experts == SL_EXPERTS_WHOLE && experts % layout->tp)
		return sl_fail(err, EINVAL, "%llu experts do not divide by tp %u, as SGLang spreads them",
			       (unsigned long long)experts, layout->tp);
	return 0;
}

/* Schemes of which its loader gets nothing. */
static const struct {
	const char *method, *why;
} never[] = {
	{ "modelopt", "SGLang loads ModelOpt's checkpoints with a loader of their own, whatever --load-format says" },
	{ "mxfp4", "SGLang's kernels take MXFP4 experts out of the state that sharded_state loads" },
};

static int check_model(const struct sl_model *model, struct sl_error *err)
{
	for (size_t i = 0; i < SL_COUNT(never); i++) {
		if (strcmp(model->quant.scheme->method, never[i].method) == 0)
			return sl_fail(err, EINVAL, "%s", never[i].why);
	}
	if (is_among(absent, SL_COUNT(absent), model->config.architecture))
		return sl_fail(err, EINVAL, "SGLang has no %s", model->config.architecture);
	if (!is_among(known, SL_COUNT(known), model->config.architecture))
		return sl_fail(err, EINVAL, "what SGLang holds of %s has not been compared yet",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	if (model->tied && (model->arch->flags & SL_OWN_HEAD))
		return sl_fail(
			err, EINVAL,
			"config.json ties the head: what SGLang holds of a %s with that has not been compared yet",
			model->config.architecture);
	return check_cache(model, err);
}

int sl_sglang_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	int ret = check_model(model, err);

	if (!ret)
		ret = check_layout(model, layout, err);
	return ret ? ret : sl_process_check(model, engine, layout, err);
}

/* As configured, but F32 as BF16 for Gemma, as F16 for others (model_config.py, _get_and_verify_dtype). */
enum sl_dtype sl_sglang_dtype(const struct sl_model *model)
{
	int dtype = sl_config_dtype(&model->config, NULL);

	if (dtype == SL_F16 || dtype == SL_BF16)
		return (enum sl_dtype)dtype;
	return model->arch->flags & SL_NO_F16 ? SL_BF16 : SL_F16;
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

	if (plan->model->arch->flags & SL_NORMALIZER)
		ret = add_normalizer(plan);
	return ret ? ret : sl_process_plan(plan);
}
