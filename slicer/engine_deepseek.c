/*
 * engine_deepseek.c - what DeepSeek's reference code reads: model{rank}-mp{ranks}.safetensors, one file per rank, under names of
 * its own (deepseek-ai/DeepSeek-V3 and -V3.2-Exp, inference/convert.py).
 *
 *      model.layers.3.self_attn.q_b_proj.weight_scale_inv  ->  layers.3.attn.wq_b.scale, rows divided
 *      model.layers.3.mlp.experts.7.up_proj.weight         ->  layers.3.ffn.experts.7.w3.weight, whole, on one rank
 *
 * Names are renamed part by part. The part before the last says which axis is cut; a scale is cut as its weight is, since its
 * blocks divide with it. Layers beyond num_hidden_layers (MTP) are left out.
 */
#include "slicer/plan.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = -2, WHOLE = -1, ROWS = 0, COLUMNS = 1 };

/* clang-format off */
/* To add a module: its part of the name, what the reference code calls it, and the axis that is cut. */
static const struct part {
	const char *stored, *held;
	int axis;
} parts[] = {
	{ "embed_tokens",             "embed",        ROWS },
	{ "input_layernorm",          "attn_norm",    WHOLE },
	{ "post_attention_layernorm", "ffn_norm",     WHOLE },
	{ "q_proj",                   "wq",           ROWS },
	{ "q_a_proj",                 "wq_a",         WHOLE },
	{ "q_a_layernorm",            "q_norm",       WHOLE },
	{ "q_b_proj",                 "wq_b",         ROWS },
	{ "kv_a_proj_with_mqa",       "wkv_a",        WHOLE },
	{ "kv_a_layernorm",           "kv_norm",      WHOLE },
	{ "kv_b_proj",                "wkv_b",        ROWS },
	{ "o_proj",                   "wo",           COLUMNS },
	{ "wq_b",                     "wq_b",         WHOLE }, /* of V3.2's indexer */
	{ "wk",                       "wk",           WHOLE },
	{ "k_norm",                   "k_norm",       WHOLE },
	{ "weights_proj",             "weights_proj", WHOLE },
	{ "gate",                     "gate",         WHOLE },
	{ "gate_proj",                "w1",           ROWS },
	{ "down_proj",                "w2",           COLUMNS },
	{ "up_proj",                  "w3",           ROWS },
	{ "norm",                     "norm",         WHOLE },
	{ "lm_head",                  "head",         ROWS },
	/* Parts that are no module. */
	{ "self_attn",                "attn",         UNKNOWN },
	{ "mlp",                      "ffn",          UNKNOWN },
	{ "weight_scale_inv",         "scale",        UNKNOWN },
	{ "e_score_correction_bias",  "bias",         UNKNOWN },
};

static const char *const architectures[] = { "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM" };
/* clang-format on */

/* A stored name taken apart: what it becomes, and what happens to the tensor. */
struct renamed {
	char name[SL_MODULE_NAME_MAX];
	int axis;
	uint64_t expert; /* of a routed expert, else UINT64_MAX */
};

static const struct part *find_part(const char *text, size_t len)
{
	for (size_t i = 0; i < SL_COUNT(parts); i++) {
		if (strlen(parts[i].stored) == len && memcmp(parts[i].stored, text, len) == 0)
			return &parts[i];
	}
	return NULL;
}

/* The names of tensors that the reference code has: others of a module (packed integers, input scales) it would not know. */
static bool is_known_tensor(const char *last)
{
	static const char *const known[] = { "weight", "bias", "weight_scale_inv", "e_score_correction_bias" };

	for (size_t i = 0; i < SL_COUNT(known); i++) {
		if (strcmp(known[i], last) == 0)
			return true;
	}
	return false;
}

static int rename_tensor(const struct sl_tensor *tensor, struct renamed *to, struct sl_error *err)
{
	const char *at = tensor->name + (strncmp(tensor->name, "model.", 6) == 0 ? 6 : 0);
	size_t used = 0, len;
	bool is_last;

	*to = (struct renamed){ .axis = UNKNOWN, .expert = UINT64_MAX };
	for (bool of_experts = false;; at += len + 1) {
		len = strcspn(at, ".");
		is_last = at[len] == '\0';
		const struct part *part = find_part(at, len);
		char text[64];
		snprintf(text, sizeof(text), "%s%.*s", used ? "." : "", part ? 64 : (int)len, part ? part->held : at);
		used = sl_name_append(to->name, used, text);
		if (is_last)
			break;
		if (of_experts)
			to->expert = strtoull(at, NULL, 10);
		of_experts = len == strlen("experts") && strncmp(at, "experts", len) == 0;
		to->axis = part ? part->axis : UNKNOWN;
	}
	if (to->axis == UNKNOWN || !is_known_tensor(at))
		return sl_fail(err, EINVAL, "tensor '%s': DeepSeek's reference code has no place for it",
			       SL_ESC(tensor->name));
	return 0;
}

/* What `rank` holds of a tensor; cut->n is 0 for nothing. */
static int cut_tensor(const struct sl_model *model, const struct sl_tensor *tensor, const struct renamed *to,
		      const struct sl_layout *layout, unsigned rank, struct sl_cut *cut, struct sl_error *err)
{
	uint64_t each = model->config.dims[SL_TEXT].experts / layout->tp;

	*cut = (struct sl_cut){ .axis = -1, .n = 1 };
	if (to->expert != UINT64_MAX && each) {
		cut->n = to->expert / each == rank;
		return 0;
	}
	return to->axis == WHOLE ? 0 : sl_cut_evenly(cut, tensor, to->axis, layout, rank, err);
}

static int check_model(const struct sl_model *model, const struct sl_layout *layout, struct sl_error *err)
{
	uint64_t experts = model->config.dims[SL_TEXT].experts;
	bool known = false;

	for (size_t i = 0; i < SL_COUNT(architectures) && model->config.architecture; i++)
		known |= strcmp(architectures[i], model->config.architecture) == 0;
	if (!known)
		return sl_fail(err, EINVAL, "DeepSeek's reference code runs DeepSeek V2, V3, R1 and V3.2, not %s",
			       SL_ESC(model->config.architecture ? model->config.architecture : model->arch->family));
	if (experts % layout->tp)
		return sl_fail(err, EINVAL, "%llu experts do not divide by %u ranks", (unsigned long long)experts,
			       layout->tp);
	return 0;
}

/* Every tensor but those of drafts, renamed. */
static int for_each(const struct sl_model *model, const struct sl_layout *layout, unsigned rank, struct sl_plan *plan,
		    struct sl_error *err)
{
	int ret = check_model(model, layout, err);
	uint32_t drafts = 0; /* passed by; they are in the order of their tensors */

	for (uint32_t i = 0; i < model->shards.n_tensors && !ret; i++) {
		const struct sl_tensor *tensor = &model->shards.tensors[i];
		struct renamed to;
		struct sl_cut cut;
		if (drafts < model->n_drafts && model->drafts[drafts] == i) {
			drafts++;
			continue;
		}
		ret = rename_tensor(tensor, &to, err);
		if (!ret)
			ret = cut_tensor(model, tensor, &to, layout, rank, &cut, err);
		if (!ret && plan && cut.n)
			ret = sl_plan_stored(plan, to.name, tensor, &cut);
	}
	return ret;
}

int sl_deepseek_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout, struct sl_error *err)
{
	(void)engine;
	return for_each(model, layout, 0, NULL, err);
}

int sl_deepseek_plan(struct sl_plan *plan)
{
	return for_each(plan->model, &plan->view->layout, plan->rank, plan, plan->err);
}

char *sl_deepseek_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)i, (void)n;
	return sl_arena_printf(&plan->view->arena, "model%u-mp%u.safetensors", plan->rank, plan->tp);
}

/* The converter copies the tokenizer's files. */
bool sl_deepseek_passes(const char *name)
{
	return fnmatch("*token*", name, FNM_PATHNAME) == 0;
}
