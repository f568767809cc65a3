/*
 * arch.c - the list of architectures: those that work, and those that are known by name and refused.
 */
#include "slicer/arch.h"

#include "slicer/arch/arch.h"

#include <errno.h>
#include <string.h>

/* To add an architecture: its file in slicer/arch/, its name in arch/arch.h, and a line here. */
const struct sl_arch *const sl_archs[] = {
	&sl_arch_llama, &sl_arch_mistral, &sl_arch_qwen2,  &sl_arch_qwen3,
	&sl_arch_phi3,  &sl_arch_gemma2,  &sl_arch_gemma3, &sl_arch_gemma3_multimodal,
	&sl_arch_gpt2,  &sl_arch_opt,     &sl_arch_falcon, &sl_arch_bert,
	&sl_arch_mixtral, &sl_arch_qwen3_moe, &sl_arch_deepseek, &sl_arch_glm4_moe, &sl_arch_kimi_k25, &sl_arch_gpt_oss, &sl_arch_minimax_m2,
	NULL,
};

#define MOE  "mixture of experts"
#define MLA  "multi-head latent attention and experts"
#define HYBRID "linear attention and experts"

/* clang-format off */
/* To add an architecture that is known but refused: a row with what it would need. */
const struct sl_refused_arch sl_refused_archs[] = {
	{ "DeepseekV4ForCausalLM",                    MLA },
	{ "Gemma4ForConditionalGeneration",           MOE },
	{ "KimiK3ForConditionalGeneration",           HYBRID },
	{ "KimiLinearForCausalLM",                    HYBRID },
	{ "Llama4ForConditionalGeneration",           MOE },
	{ "MiniMaxM1ForCausalLM",                     HYBRID },
	{ "MiniMaxM3SparseForCausalLM",               MOE },
	{ "MiniMaxM3SparseForConditionalGeneration",  MOE },
	{ "QWenLMHeadModel",                          "vLLM dropped this architecture" },
	{ "Qwen2MoeForCausalLM",                      MOE },
	{ "Qwen3_5MoeForConditionalGeneration",       HYBRID },
};
/* clang-format on */
const unsigned sl_n_refused_archs = SL_COUNT(sl_refused_archs);

static bool is_named(const struct sl_arch *arch, const char *name)
{
	for (const char *const *at = arch->architectures; *at; at++) {
		if (strcmp(*at, name) == 0)
			return true;
	}
	return false;
}

static int refuse(const char *name, enum sl_format format, struct sl_error *err)
{
	for (unsigned i = 0; i < sl_n_refused_archs; i++) {
		if (strcmp(sl_refused_archs[i].architecture, name) == 0)
			return sl_fail(err, EINVAL, "config.json: architecture %s (%s) is not supported yet", name,
				       sl_refused_archs[i].why);
	}
	for (const struct sl_arch *const *at = sl_archs; *at; at++) {
		if (is_named(*at, name))
			return sl_fail(err, EINVAL, "config.json: architecture %s is not supported in %s naming", name,
				       format == SL_FORMAT_MISTRAL ? "Mistral's consolidated" : "Hugging Face");
	}
	return sl_fail(err, EINVAL, "config.json: architecture '%s' is unknown; `rankfs --list` shows those that work",
		       SL_ESC(name));
}

int sl_arch_find(const struct sl_arch **out, const struct sl_config *config, enum sl_format format, struct sl_error *err)
{
	if (!config->architecture)
		return sl_fail(err, EINVAL, "config.json: 'architectures' names none");
	for (const struct sl_arch *const *at = sl_archs; *at; at++) {
		if ((*at)->format == format && is_named(*at, config->architecture)) {
			*out = *at;
			return 0;
		}
	}
	return refuse(config->architecture, format, err);
}

bool sl_always(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)config, (void)part, (void)layer;
	return true;
}

bool sl_has_attention_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "attention_bias", false) || sl_config_bool(config, part, "bias", false);
}

bool sl_has_mlp_bias(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	(void)layer;
	return sl_config_bool(config, part, "mlp_bias", false);
}

/* Is `layer` in a list of layer numbers? */
static bool listed(const struct sl_config *config, enum sl_part part, const char *key, uint64_t layer)
{
	const struct sl_json *json = &config->json;
	uint32_t list = sl_config_find(config, part, key);
	uint64_t value;

	if (!list || json->tokens[list].type != SL_JSON_ARRAY)
		return false;
	for (uint32_t i = 0, at = list + 1; i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
		if (json->tokens[at].type == SL_JSON_NUMBER && sl_json_u64(json, at, &value) == 0 && value == layer)
			return true;
	}
	return false;
}

/* The first dense_layers have an MLP, and of the rest every moe_layer_freq-th (every decoder_sparse_step-th, in Qwen's way of
 * counting) has experts, but for those that mlp_only_layers lists. */
bool sl_has_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t every = 1, step = 1;

	if (sl_config_u64(config, part, "moe_layer_freq", &every, NULL) || every == 0)
		every = 1;
	if (sl_config_u64(config, part, "decoder_sparse_step", &step, NULL) || step == 0)
		step = 1;
	return config->dims[part].experts && layer >= config->dims[part].dense_layers && layer % every == 0 &&
	       (layer + 1) % step == 0 && !listed(config, part, "mlp_only_layers", layer);
}

bool sl_has_no_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !sl_has_experts(config, part, layer);
}
