/*
 * engine_gpt_oss.c - what openai/gpt-oss's reference code reads: one model.safetensors under its original names, and a
 * config.json of the fields that its ModelConfig has and no others (gpt_oss/torch/weights.py, model.py).
 *
 *      block.0.attn.qkv.weight  =  model.layers.0.self_attn.{q,k,v}_proj.weight, one below another
 *
 * It cuts while it loads: the file is the same for every rank.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { JOINED_MAX = 3 };

/* clang-format off */
/* To add a tensor: what the reference code calls it, and the stored ones that are it, one below another. */
struct named {
	const char *held;
	const char *stored[JOINED_MAX];
};

static const struct named outside[] = {
	{ "embedding.weight",   { "model.embed_tokens.weight" } },
	{ "norm.scale",         { "model.norm.weight" } },
	{ "unembedding.weight", { "lm_head.weight" } },
};

static const struct named in_layer[] = {
	{ "attn.norm.scale",         { "input_layernorm.weight" } },
	{ "attn.qkv.weight",         { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" } },
	{ "attn.qkv.bias",           { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" } },
	{ "attn.sinks",              { "self_attn.sinks" } },
	{ "attn.out.weight",         { "self_attn.o_proj.weight" } },
	{ "attn.out.bias",           { "self_attn.o_proj.bias" } },
	{ "mlp.norm.scale",          { "post_attention_layernorm.weight" } },
	{ "mlp.gate.weight",         { "mlp.router.weight" } },
	{ "mlp.gate.bias",           { "mlp.router.bias" } },
	{ "mlp.mlp1_weight.blocks",  { "mlp.experts.gate_up_proj_blocks" } },
	{ "mlp.mlp1_weight.scales",  { "mlp.experts.gate_up_proj_scales" } },
	{ "mlp.mlp1_bias",           { "mlp.experts.gate_up_proj_bias" } },
	{ "mlp.mlp2_weight.blocks",  { "mlp.experts.down_proj_blocks" } },
	{ "mlp.mlp2_weight.scales",  { "mlp.experts.down_proj_scales" } },
	{ "mlp.mlp2_bias",           { "mlp.experts.down_proj_bias" } },
};

/* To add a field of ModelConfig: its name, and the key that says it in Hugging Face's config.json, inside `object` if that is
 * no NULL. One that is not said keeps the reference code's default. */
static const struct field {
	const char *held, *object, *stored;
} fields[] = {
	{ "num_hidden_layers",      NULL, "num_hidden_layers" },
	{ "num_experts",            NULL, "num_local_experts|num_experts" },
	{ "experts_per_token",      NULL, "num_experts_per_tok|experts_per_token" },
	{ "vocab_size",             NULL, "vocab_size" },
	{ "hidden_size",            NULL, "hidden_size" },
	{ "intermediate_size",      NULL, "intermediate_size" },
	{ "swiglu_limit",           NULL, "swiglu_limit" },
	{ "head_dim",               NULL, "head_dim" },
	{ "num_attention_heads",    NULL, "num_attention_heads" },
	{ "num_key_value_heads",    NULL, "num_key_value_heads" },
	{ "sliding_window",         NULL, "sliding_window" },
	{ "initial_context_length", NULL, "initial_context_length" },
	{ "rope_theta",             NULL, "rope_theta" },
	{ "rope_theta",             "rope_parameters", "rope_theta" },
	{ "initial_context_length", "rope_scaling|rope_parameters", "original_max_position_embeddings" },
	{ "rope_scaling_factor",    "rope_scaling|rope_parameters", "factor" },
	{ "rope_ntk_alpha",         "rope_scaling|rope_parameters", "beta_slow" },
	{ "rope_ntk_beta",          "rope_scaling|rope_parameters", "beta_fast" },
};
/* clang-format on */

/* ---- tensors ---- */

static int add_joined(struct sl_plan *plan, const char *name, const struct sl_tensor *const *tensors, unsigned n)
{
	uint64_t shape[SL_DIMS_MAX] = { 0 };

	memcpy(shape, tensors[0]->shape, tensors[0]->n_dims * sizeof(*shape));
	int ret = sl_plan_tensor(plan, name, tensors[0]->dtype);
	for (unsigned i = 0; i < n && !ret; i++) {
		ret = sl_plan_whole(plan, tensors[i]);
		shape[0] += i ? tensors[i]->shape[0] : 0;
	}
	return ret ? ret : sl_plan_shape(plan, shape, tensors[0]->n_dims);
}

/* Find what a row joins; with a plan, add it. */
static int visit(const struct sl_model *model, struct sl_plan *plan, const char *held_prefix, const char *stored_prefix,
		 const struct named *row, struct sl_error *err)
{
	const struct sl_tensor *tensors[JOINED_MAX];
	char name[SL_MODULE_NAME_MAX];
	unsigned n = 0;

	for (; n < JOINED_MAX && row->stored[n]; n++) {
		snprintf(name, sizeof(name), "%s%s", stored_prefix, row->stored[n]);
		tensors[n] = sl_shards_find(&model->shards, name);
		if (!tensors[n])
			return sl_fail(err, EINVAL,
				       "gpt-oss's reference code wants '%s', and the checkpoint has no such tensor",
				       name);
		if (n && (tensors[n]->dtype != tensors[0]->dtype || tensors[n]->n_dims != tensors[0]->n_dims))
			return sl_fail(err, EINVAL, "tensor '%s' does not fit below '%s'", name, row->stored[0]);
	}
	snprintf(name, sizeof(name), "%s%s", held_prefix, row->held);
	return plan ? add_joined(plan, name, tensors, n) : 0;
}

static int visit_all(const struct sl_model *model, struct sl_plan *plan, struct sl_error *err)
{
	char held[64], stored[64];
	int ret = 0;

	for (size_t i = 0; i < SL_COUNT(outside) && !ret; i++)
		ret = visit(model, plan, "", "", &outside[i], err);
	for (uint64_t l = 0; l < model->config.dims[SL_TEXT].layers && !ret; l++) {
		snprintf(held, sizeof(held), "block.%llu.", (unsigned long long)l);
		snprintf(stored, sizeof(stored), "model.layers.%llu.", (unsigned long long)l);
		for (size_t i = 0; i < SL_COUNT(in_layer) && !ret; i++)
			ret = visit(model, plan, held, stored, &in_layer[i], err);
	}
	return ret;
}

int sl_gpt_oss_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err)
{
	const char *architecture = model->config.architecture;

	(void)engine, (void)layout;
	if (!architecture || strcmp(architecture, "GptOssForCausalLM") != 0)
		return sl_fail(err, EINVAL, "the reference code of gpt-oss runs GptOssForCausalLM, not %s",
			       SL_ESC(architecture ? architecture : model->arch->family));
	return visit_all(model, NULL, err);
}

int sl_gpt_oss_plan(struct sl_plan *plan)
{
	return visit_all(plan->model, plan, plan->err);
}

char *sl_gpt_oss_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_strdup(&plan->view->arena, "model.safetensors");
}

/* ---- config.json ---- */

/* The number that a field has; 0 when it is not said. */
static uint32_t find_field(const struct sl_config *config, const struct field *field)
{
	const struct sl_json *json = &config->json;
	uint32_t at = sl_config_find(config, SL_TEXT, field->object ? field->object : field->stored);

	if (at && field->object)
		at = json->tokens[at].type == SL_JSON_OBJECT ? sl_json_member(json, at, field->stored) : 0;
	return at && json->tokens[at].type == SL_JSON_NUMBER ? at : 0;
}

static bool is_said_before(const struct sl_config *config, size_t field)
{
	for (size_t i = 0; i < field; i++) {
		if (strcmp(fields[i].held, fields[field].held) == 0 && find_field(config, &fields[i]))
			return true;
	}
	return false;
}

int sl_gpt_oss_beside(struct sl_plan *plan)
{
	const struct sl_config *config = &plan->model->config;
	const struct sl_json *json = &config->json;
	struct sl_text text = SL_TEXT_INIT;
	char *copy = NULL;

	for (size_t i = 0; i < SL_COUNT(fields); i++) {
		uint32_t at = find_field(config, &fields[i]);
		if (!at || is_said_before(config, i))
			continue;
		sl_text_printf(&text, "%s\"%s\": ", text.len ? ", " : "{", fields[i].held);
		sl_text_add(&text, json->text + json->tokens[at].start, json->tokens[at].end - json->tokens[at].start);
	}
	sl_text_printf(&text, "}\n");
	if (!text.failed)
		copy = sl_arena_strndup(&plan->view->arena, text.bytes, text.len);
	int ret = copy ? sl_plan_text_file(plan, "config.json", copy, text.len)
		       : sl_fail(plan->err, ENOMEM, "out of memory");
	sl_text_release(&text);
	return ret;
}
