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
	NULL,
};

#define MOE  "mixture of experts"
#define MLA  "multi-head latent attention and experts"
#define HYBRID "linear attention and experts"

/* clang-format off */
/* To add an architecture that is known but refused: a row with what it would need. */
const struct sl_refused_arch sl_refused_archs[] = {
	{ "DeepseekV2ForCausalLM",                    MLA },
	{ "DeepseekV3ForCausalLM",                    MLA },
	{ "DeepseekV32ForCausalLM",                   MLA },
	{ "DeepseekV4ForCausalLM",                    MLA },
	{ "Gemma4ForConditionalGeneration",           MOE },
	{ "Glm4MoeForCausalLM",                       MOE },
	{ "GlmMoeDsaForCausalLM",                     MLA },
	{ "GptOssForCausalLM",                        MOE },
	{ "KimiK25ForConditionalGeneration",          MLA },
	{ "KimiK3ForConditionalGeneration",           HYBRID },
	{ "KimiLinearForCausalLM",                    HYBRID },
	{ "Llama4ForConditionalGeneration",           MOE },
	{ "MiniMaxM1ForCausalLM",                     HYBRID },
	{ "MiniMaxM2ForCausalLM",                     MOE },
	{ "MiniMaxM3SparseForCausalLM",               MOE },
	{ "MiniMaxM3SparseForConditionalGeneration",  MOE },
	{ "MixtralForCausalLM",                       MOE },
	{ "QWenLMHeadModel",                          "vLLM dropped this architecture" },
	{ "Qwen2MoeForCausalLM",                      MOE },
	{ "Qwen3MoeForCausalLM",                      MOE },
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
