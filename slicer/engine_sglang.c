/*
 * engine_sglang.c - which models SGLang's sharded_state loader gets (SGLang 0.5.23, model_loader/loader.py,
 * ShardedStateLoader): it wants the state after post-processing. That is what the loader before it makes, under vLLM's older
 * names and without scale buffers, where post-processing changes nothing: unquantised models of these families.
 */
#include "slicer/plan.h"
#include "slicer/scheme.h"

#include <errno.h>
#include <string.h>

/* Not GLM-4.5, whose shared expert becomes one more routed one. To add a family: its architecture, after a comparison of
 * what SGLang holds (tests/oracle/make_digests.py). */
static const char *const known[] = {
	"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",	 "Qwen3ForCausalLM",	  "Phi3ForCausalLM",
	"OPTForCausalLM",   "MixtralForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM",
};

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

int sl_sglang_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	if (is_among(absent, SL_COUNT(absent), model->config.architecture))
		return sl_fail(err, EINVAL, "SGLang has no %s", model->config.architecture);
	if (strcmp(model->quant.scheme->method, "modelopt") == 0)
		return sl_fail(
			err, EINVAL,
			"SGLang reads ModelOpt checkpoints with a loader of its own, never with sharded_state: point it at source/");
	if (!is_among(known, SL_COUNT(known), model->config.architecture))
		return sl_fail(err, EINVAL, "what SGLang holds of %s has not been compared yet",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	if (model->quant.scheme != sl_schemes[0])
		return sl_fail(
			err, EINVAL,
			"SGLang's sharded_state holds '%s' weights as its kernels re-lay them, which rankfs does not do",
			model->quant.scheme->method);
	return sl_check_modules(model, engine, layout, err);
}
