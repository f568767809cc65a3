/*
 * engine_airllm.c - what AirLLM reads: the model's directory with splitted_model/ inside, where each module that it loads by
 * itself has a file and an empty file NAME.done (airllm 4, utils.py, split_and_save_layers).
 *
 *      splitted_model/model.embed_tokens.safetensors       model.layers.0.safetensors  …  model.norm.safetensors
 *      splitted_model/model.embed_tokens.safetensors.done  …                              lm_head.safetensors
 *
 * Tensors keep their names and all of their bytes. A module that is alone in its source file is a link to it there: then the
 * file is that source file.
 */
#include "slicer/plan.h"

#include <errno.h>
#include <string.h>

#define BEFORE "model.embed_tokens."
#define LAYER  "model.layers."

/* Modules behind the layers, in order. */
static const char *const behind[] = { "model.norm.", "lm_head." };

static bool begins_with(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Bytes of a name that are its module's, without the dot behind it; 0 when AirLLM knows no such module. */
static size_t module_len(const char *name)
{
	size_t digits;

	if (begins_with(name, BEFORE))
		return strlen(BEFORE) - 1;
	for (size_t i = 0; i < SL_COUNT(behind); i++) {
		if (begins_with(name, behind[i]))
			return strlen(behind[i]) - 1;
	}
	if (!begins_with(name, LAYER))
		return 0;
	digits = strspn(name + strlen(LAYER), "0123456789");
	return digits && name[strlen(LAYER) + digits] == '.' ? strlen(LAYER) + digits : 0;
}

/* Add the tensors of one module, which follow one another in the order of names. A module without any is no file. */
static int add_module(struct sl_plan *plan, const char *prefix)
{
	const struct sl_shards *shards = &plan->model->shards;
	uint32_t low = 0, high = shards->n_tensors;
	int ret = 0;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (strcmp(shards->tensors[middle].name, prefix) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	plan->section++;
	for (uint32_t i = low; i < shards->n_tensors && begins_with(shards->tensors[i].name, prefix) && !ret; i++)
		ret = sl_plan_stored(plan, shards->tensors[i].name, &shards->tensors[i],
				     &(struct sl_cut){ .axis = -1 });
	return ret;
}

int sl_airllm_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	(void)engine, (void)layout;
	for (uint32_t i = 0; i < model->shards.n_tensors; i++) {
		const char *name = model->shards.tensors[i].name;
		if (!module_len(name))
			return sl_fail(
				err, EINVAL,
				"AirLLM knows model.embed_tokens, model.layers.N, model.norm and lm_head, and would lose tensor '%s'",
				SL_ESC(name));
	}
	return 0;
}

int sl_airllm_plan(struct sl_plan *plan)
{
	uint64_t layers = plan->model->config.dims[SL_TEXT].layers;
	int ret = add_module(plan, BEFORE);

	/* Layers behind the last one (MTP) are modules too. */
	for (uint64_t l = 0, n = 1; !ret && (l < layers || n); l++) {
		char prefix[SL_MODULE_NAME_MAX];
		sl_stack_prefix(LAYER "%u.", l, prefix);
		n = plan->n_tensors;
		ret = add_module(plan, prefix);
		n = plan->n_tensors - n;
	}
	for (size_t i = 0; i < SL_COUNT(behind) && !ret; i++)
		ret = add_module(plan, behind[i]);
	return ret;
}

char *sl_airllm_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	uint32_t low = 0, high = plan->n_tensors - 1; /* the file's first tensor: files follow one another */

	(void)n;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (plan->tensors[middle].file < i)
			low = middle + 1;
		else
			high = middle;
	}
	const char *name = plan->tensors[low].name;
	return sl_arena_printf(&plan->view->arena, "splitted_model/%.*s.safetensors", (int)module_len(name), name);
}

/* The files that say that a module is complete, and an index: AirLLM asks it which layers there are. */
int sl_airllm_beside(struct sl_plan *plan)
{
	struct sl_view *view = plan->view;
	int ret = 0;

	for (uint32_t i = 0; i < view->n_weights && !ret; i++) {
		char *name = sl_arena_printf(&view->arena, "%s.done", view->files[i].name);
		ret = name ? sl_plan_text_file(plan, name, "", 0) : sl_fail(plan->err, ENOMEM, "out of memory");
	}
	return ret ? ret : sl_serve_index(plan);
}
