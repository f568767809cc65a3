/*
 * served.c - what an engine reads beside the weights: config.json with the few values that must differ, an index, and which
 * files of the source pass through.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { EDITS_MAX = 24, VALUE_MAX = 32 };

struct edits {
	struct sl_config_edit list[EDITS_MAX];
	char values[EDITS_MAX][VALUE_MAX];
	size_t n;
};

static void edit(struct edits *edits, bool top, const char *keys, const char *value)
{
	snprintf(edits->values[edits->n], VALUE_MAX, "%s", value);
	edits->list[edits->n] = (struct sl_config_edit){ .top = top, .keys = keys, .value = edits->values[edits->n] };
	edits->n++;
}

static void edit_number(struct edits *edits, const char *keys, uint64_t value)
{
	char text[VALUE_MAX];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	edit(edits, false, keys, text);
}

/* The engine follows config.json: tied and a stored head cannot both be true for it (vLLM 0.32, sharded_state: KeyError). */
static void edit_tie(const struct sl_plan *plan, struct edits *edits)
{
	const struct sl_model *model = plan->model;
	const struct sl_json *json = &model->config.json;
	uint32_t section = model->config.sections[SL_TEXT];

	if (!plan->engine->fused || plan->engine->drops_tied || !model->tied || !model->head_stored ||
	    (model->arch->flags & SL_NO_HEAD))
		return;
	edit(edits, false, "tie_word_embeddings", "false");
	/* Said in both places it must be said in both: classes differ in which one they ask. */
	if (section && sl_json_member(json, section, "tie_word_embeddings") &&
	    sl_json_member(json, 0, "tie_word_embeddings"))
		edit(edits, true, "tie_word_embeddings", "false");
}

/* Without a dtype in config.json vLLM asks the headers, and the F32 scale buffers would answer; one that the layout asks for
 * must be said too. */
static void edit_dtype(const struct sl_plan *plan, struct edits *edits)
{
	int asked = plan->view->layout.dtype;
	char text[VALUE_MAX];

	if (asked < 0 && (plan->engine->native_dtype || sl_config_dtype(&plan->model->config, NULL) >= 0))
		return;
	snprintf(text, sizeof(text), "\"%s\"", sl_dtypes[sl_plan_float(plan)].torch);
	edit(edits, true, "dtype|torch_dtype", text);
}

/* Do heads have one size, that of q? Those of latent attention have several, under names of their own. */
static bool has_head_dim(const struct sl_arch *arch)
{
	for (unsigned s = 0; s < arch->n_stacks; s++) {
		for (unsigned r = 0; arch->stacks[s].part == SL_TEXT && r < arch->stacks[s].n_weights; r++) {
			if (arch->stacks[s].weights[r].out == SL_Q || arch->stacks[s].weights[r].out == SL_QKV)
				return true;
		}
	}
	return false;
}

/* head_dim where it does not follow from hidden / heads any more, or never did and is only seen in the shapes. */
static void edit_head_dim(const struct sl_plan *plan, struct edits *edits)
{
	const struct sl_dims *d = &plan->model->config.dims[SL_TEXT];
	bool follows = d->head_dim * d->heads == d->hidden && (plan->tp == 1 || !plan->engine->rank_configs);

	if (d->head_dim && !follows && has_head_dim(plan->model->arch) &&
	    !sl_config_find(&plan->model->config, SL_TEXT, "head_dim") && !plan->model->arch->defaults[SL_TEXT])
		edit_number(edits, "head_dim", d->head_dim);
}

/* Sizes beyond those of every model that are divided among ranks, where config.json says them. To add one: a row. */
static const struct {
	const char *key;
	bool replicated; /* heads, of which each rank has one at least */
	bool of_experts; /* not divided when experts are spread whole */
} divided[] = {
	{ "moe_intermediate_size", false, true },
	{ "shared_expert_intermediate_size", false, false },
	{ "shared_intermediate_size", false, false },
	{ "dense_intermediate_size", false, false },
	{ "intermediate_size_mlp", false, false },
	{ "linear_num_key_heads", false, false },
	{ "linear_num_value_heads", false, false },
	{ "o_groups", false, false },
	{ "num_global_key_value_heads", true, false },
	{ "sparse_attention_config.sparse_num_index_heads", true, false },
};

static void edit_divided(const struct sl_plan *plan, struct edits *edits)
{
	uint64_t tp = plan->tp, value;

	for (size_t i = 0; i < SL_COUNT(divided); i++) {
		if (sl_config_u64(&plan->model->config, SL_TEXT, divided[i].key, &value, NULL) ||
		    (divided[i].of_experts && plan->view->layout.experts != SL_EXPERTS_SLICED))
			continue;
		edit_number(edits, divided[i].key, divided[i].replicated && value < tp ? 1 : value / tp);
	}
}

/* Is intermediate_size that of experts, of which each rank has whole ones? */
static bool is_of_whole_experts(const struct sl_plan *plan, uint64_t inter)
{
	return plan->view->layout.experts != SL_EXPERTS_SLICED &&
	       plan->model->config.dims[SL_TEXT].moe_inter == inter &&
	       !sl_config_find(&plan->model->config, SL_TEXT, "moe_intermediate_size");
}

/* The rank's intermediate size: ranks of experts that share whole blocks may have uneven numbers of them. */
static uint64_t inter_of_rank(const struct sl_plan *plan, uint64_t inter)
{
	const struct sl_model *model = plan->model;
	struct sl_share share;

	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (unsigned r = 0; stack->part == SL_TEXT && r < stack->n_weights; r++) {
			const struct sl_weight *row = &stack->weights[r];
			const struct sl_bound *bound = sl_bound_at(model, s, 0, r, 0);
			if (row->out == SL_MOE_PAIRS && bound->storage && bound->storage->granule &&
			    sl_share_of(model, plan->engine, &plan->view->layout, stack->part, row, bound->storage,
					sl_logical_matrix(model, row, bound), plan->rank, plan->gpu, &share, NULL) == 0)
				return share.rows[0].n / 2;
		}
	}
	return inter / plan->tp;
}

/* A rank's directory is a model of its own: its sizes are the slice's. */
static void edit_sizes(const struct sl_plan *plan, struct edits *edits)
{
	const struct sl_dims *d = &plan->model->config.dims[SL_TEXT];
	uint64_t tp = plan->tp, inter = 0;

	if (!plan->engine->rank_configs || tp == 1)
		return;
	edit_number(edits, "num_attention_heads", d->heads / tp);
	edit_number(edits, "num_key_value_heads", d->kv_heads >= tp ? d->kv_heads / tp : 1);
	if (sl_config_u64(&plan->model->config, SL_TEXT, "intermediate_size", &inter, NULL))
		inter = d->inter;
	if (inter && !is_of_whole_experts(plan, inter))
		edit_number(edits, "intermediate_size", inter_of_rank(plan, inter));
	edit_divided(plan, edits);
	if (d->vocab && d->vocab % tp == 0)
		edit_number(edits, "vocab_size", d->vocab / tp);
	if (d->head_dim && plan->model->arch->defaults[SL_TEXT] &&
	    !sl_config_find(&plan->model->config, SL_TEXT, "head_dim"))
		edit_number(edits, "head_dim", d->head_dim);
}

/* One row of the list below: a name in a group that is opened by the first row of a fused module. */
static void list_module(struct sl_text *text, const struct sl_weight *row, const struct sl_weight *before)
{
	const char *expert = strstr(row->name, ".%e");
	bool joined = before && row->fused && before->fused && strcmp(row->fused, before->fused) == 0;

	sl_text_printf(text, "%s\"%.*s\"",
		       !before	? "[["
		       : joined ? ", "
				: "], [",
		       expert ? (int)(expert - row->name) : (int)strlen(row->name), row->name);
}

/* Is a row's module quantised in some layer? */
static bool is_quantised(const struct sl_model *model, unsigned stack, unsigned row)
{
	uint64_t layers = sl_stack_layers(model, &model->arch->stacks[stack]);

	for (uint64_t l = 0; l < layers; l++) {
		const struct sl_storage *storage = sl_bound_at(model, stack, l, row, 0)->storage;
		if (storage && storage != &sl_plain)
			return true;
	}
	return false;
}

/* vLLM finds out which layers of a GPTQ checkpoint are quantised from names in the headers, where it would see fused ones,
 * unless config.json lists them (auto_gptq.py, maybe_update_config). NULL without memory; "" when there is nothing to say. */
static char *quantised_modules(struct sl_plan *plan)
{
	const struct sl_model *model = plan->model;
	struct sl_text text = SL_TEXT_INIT;
	const struct sl_weight *before = NULL;

	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		for (unsigned r = 0; stack->pipelined && r < stack->n_weights; r++) {
			if (!is_quantised(model, s, r))
				continue;
			list_module(&text, &stack->weights[r], before);
			before = &stack->weights[r];
		}
	}
	sl_text_printf(&text, before ? "]]" : "%s", "");
	char *copy = text.failed ? NULL : sl_arena_strndup(&plan->view->arena, text.bytes ? text.bytes : "", text.len);
	sl_text_release(&text);
	return copy;
}

static int edit_quantised_modules(struct sl_plan *plan, struct edits *edits)
{
	const struct sl_quant *quant = &plan->model->quant;
	static const char key[] = "modules_in_block_to_quantize";

	if (!plan->engine->fused || !quant->scheme->lists_modules || !quant->object ||
	    sl_json_member(&plan->model->config.json, quant->object, key))
		return 0;
	char *modules = quantised_modules(plan);
	if (!modules)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	if (*modules)
		edits->list[edits->n++] =
			(struct sl_config_edit){ .object = quant->object, .keys = key, .value = modules };
	return 0;
}

int sl_serve_config(struct sl_plan *plan)
{
	struct edits edits = { .n = 0 };
	size_t len;

	edit_tie(plan, &edits);
	edit_dtype(plan, &edits);
	edit_head_dim(plan, &edits);
	edit_sizes(plan, &edits);
	int ret = edit_quantised_modules(plan, &edits);
	if (ret || edits.n == 0)
		return ret;
	char *text = sl_config_edited(&plan->model->config, edits.list, edits.n, &plan->view->arena, &len);
	if (!text)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	return sl_plan_text_file(plan, "config.json", text, len);
}

enum { INDEX_ENTRY = 128 }; /* about the bytes of a tensor's entry in an index */

int sl_serve_index(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;
	struct sl_text text = SL_TEXT_INIT;

	sl_text_reserve(&text, (size_t)view->n_tensors * INDEX_ENTRY);
	sl_text_printf(&text, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
		       (unsigned long long)view->bytes);
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		sl_text_put(&text, i ? ",\n    " : "\n    ");
		sl_text_json_string(&text, view->tensors[i].name);
		sl_text_put(&text, ": \"");
		sl_text_put(&text, view->files[view->tensors[i].file].name);
		sl_text_put(&text, "\"");
	}
	sl_text_printf(&text, "\n  }\n}\n");
	if (!text.failed && sl_arena_adopt(&view->arena, text.bytes, text.len))
		return sl_plan_text_file(plan, "model.safetensors.index.json", text.bytes, text.len);
	sl_text_release(&text);
	return sl_fail(plan->err, ENOMEM, "out of memory");
}

int sl_serve_model(struct sl_plan *plan)
{
	int ret = sl_serve_config(plan);

	return ret ? ret : sl_serve_index(plan);
}

/* ---- what passes through ---- */

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), s = strlen(suffix);

	return n >= s && strcasecmp(name + n - s, suffix) == 0;
}

bool sl_view_passes(const char *name)
{
	/* Weights in any container, their indexes, and conversions of them for other runtimes. */
	static const char *const suffixes[] = { ".safetensors",	  ".bin",	".pt",	   ".pth",
						".gguf",	  ".ggml",	".h5",	   ".msgpack",
						".onnx",	  ".onnx_data", ".ot",	   ".ckpt",
						".npz",		  ".mlmodel",	".tflite", ".safetensors.index.json",
						".bin.index.json" };
	const char *base = strrchr(name, '/');

	base = base ? base + 1 : name;
	if (base[0] == '.' || sl_name_is_debris(base))
		return false;
	for (size_t i = 0; i < SL_COUNT(suffixes); i++) {
		if (has_suffix(base, suffixes[i]))
			return false;
	}
	return true;
}
