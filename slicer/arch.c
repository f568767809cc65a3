/*
 * arch.c - the list of architectures: those that work, and those that are known by name and refused.
 */
#include "slicer/arch.h"

#include "slicer/arch/arch.h"

#include <errno.h>
#include <string.h>

/* To add an architecture: its file in slicer/arch/, its name in arch/arch.h, and a line here. */
const struct sl_arch *const sl_archs[] = {
	&sl_arch_llama,
	&sl_arch_mistral,
	&sl_arch_qwen2,
	&sl_arch_qwen3,
	&sl_arch_phi3,
	&sl_arch_gemma2,
	&sl_arch_gemma3,
	&sl_arch_gemma3_multimodal,
	&sl_arch_gpt2,
	&sl_arch_opt,
	&sl_arch_falcon,
	&sl_arch_bert,
	&sl_arch_mixtral,
	&sl_arch_qwen2_moe,
	&sl_arch_qwen3_moe,
	&sl_arch_qwen3_next,
	&sl_arch_deepseek,
	&sl_arch_glm4_moe,
	&sl_arch_kimi_k25,
	&sl_arch_kimi_linear,
	&sl_arch_gpt_oss,
	&sl_arch_minimax_m2,
	&sl_arch_llama4,
	&sl_arch_qwen3_5_moe,
	&sl_arch_gemma4,
	&sl_arch_minimax_m3,
	&sl_arch_minimax_m3_text,
	&sl_arch_deepseek_v4,
	&sl_arch_kimi_k3,
	NULL,
};

/* clang-format off */
/* To add an architecture that is known but refused: a row with the reason (vLLM: models/registry.py says what it had). */
const struct sl_refused_arch sl_refused_archs[] = {
	{ "MiniMaxM1ForCausalLM", "vLLM has not had it since 0.24" },
	{ "QWenLMHeadModel",      "vLLM has not had it since 0.24" },
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
			return sl_fail(err, EINVAL, "config.json: architecture %s is refused: %s", name,
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

int sl_arch_find(const struct sl_arch **out, const struct sl_config *config, enum sl_format format,
		 struct sl_error *err)
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

bool sl_is_marked(const struct sl_config *config, enum sl_part part, const char *keys, uint64_t layer)
{
	uint32_t at = sl_config_element(config, part, keys, layer);
	uint64_t mark = 0;

	return at && config->json.tokens[at].type == SL_JSON_NUMBER && sl_json_u64(&config->json, at, &mark) == 0 &&
	       mark;
}

bool sl_is_kind(const struct sl_config *config, enum sl_part part, uint64_t layer, const char *kind)
{
	uint32_t at = sl_config_element(config, part, "layer_types", layer);

	return at && config->json.tokens[at].type == SL_JSON_STRING && sl_json_equal(&config->json, at, kind);
}

/* Every moe_layer_freq-th layer, or those that it marks. */
static bool is_sparse(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t every = 1;

	if (sl_config_element(config, part, "moe_layer_freq", 0))
		return sl_is_marked(config, part, "moe_layer_freq", layer);
	if (sl_config_u64(config, part, "moe_layer_freq", &every, NULL) || every == 0)
		every = 1;
	return layer % every == 0;
}

/* The first dense_layers have an MLP, and of the rest those of moe_layer_freq, or every decoder_sparse_step-th in Qwen's way
 * of counting, have experts, but for those that mlp_only_layers lists. */
bool sl_has_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t step = 1;

	if (sl_config_u64(config, part, "decoder_sparse_step|interleave_moe_layer_step", &step, NULL) || step == 0)
		step = 1;
	return config->dims[part].experts && layer >= config->dims[part].dense_layers &&
	       is_sparse(config, part, layer) && (layer + 1) % step == 0 &&
	       !sl_config_lists(config, part, "mlp_only_layers", layer);
}

static bool has_beside_routed(const struct sl_config *config, enum sl_part part, uint64_t layer, const char *key)
{
	uint64_t n = 0;

	return sl_config_u64(config, part, key, &n, NULL) == 0 && n > 0 && sl_has_experts(config, part, layer);
}

bool sl_has_shared_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return has_beside_routed(config, part, layer, "n_shared_experts");
}

bool sl_has_num_shared_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return has_beside_routed(config, part, layer, "num_shared_experts");
}

bool sl_has_linear_attention(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	uint64_t every = 4;

	if (sl_config_find(config, part, "layer_types"))
		return sl_is_kind(config, part, layer, "linear_attention");
	if (sl_config_u64(config, part, "full_attention_interval", &every, NULL) || every == 0)
		every = 4;
	return (layer + 1) % every != 0;
}

bool sl_has_full_attention(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !sl_has_linear_attention(config, part, layer);
}

/* Lists of layers count from 1. */
bool sl_has_delta_attention(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return sl_config_lists(config, part, "linear_attn_config.kda_layers", layer + 1);
}

bool sl_has_latent_attention(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !sl_has_delta_attention(config, part, layer);
}

int sl_need_linear_attention(const struct sl_config *config, struct sl_error *err)
{
	const struct sl_dims *d = &config->dims[SL_TEXT];

	if (d->linear_k_heads && d->linear_v_heads && d->linear_k && d->linear_v)
		return 0;
	return sl_fail(err, EINVAL, "config.json: the heads of linear attention, or their sizes, are absent");
}

bool sl_has_no_experts(const struct sl_config *config, enum sl_part part, uint64_t layer)
{
	return !sl_has_experts(config, part, layer);
}
