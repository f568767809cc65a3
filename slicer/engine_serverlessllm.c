/*
 * engine_serverlessllm.c - ServerlessLLM's store of what vLLM holds: bare bytes, and an index (sllm_store: checkpoint.cpp,
 * tensor_writer.cpp, torch.py, save_dict).
 *
 *      rank_0/tensor.data_0       |embed_tokens|qkv_proj|o_proj|_k_scale|0000|…   each begins at a multiple of 8
 *      rank_0/tensor_index.json   {"model.embed_tokens.weight": [0, 262144, [512, 256], [256, 1], "torch.bfloat16"], …}
 *
 * Tensors follow one another as in a state dict of vLLM's: of a layer first the modules that have modules, then its norms.
 * Offsets go on from one data file to the next; no tensor is in two.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 8 };

/* What torch calls the dtypes that the store has names for. */
static const char *const names[SL_N_DTYPES] = {
	[SL_BOOL] = "bool", [SL_U8] = "uint8",	  [SL_I8] = "int8",	  [SL_I16] = "int16",	[SL_I32] = "int32",
	[SL_I64] = "int64", [SL_F16] = "float16", [SL_BF16] = "bfloat16", [SL_F32] = "float32", [SL_F64] = "float64",
};

/* ---- the order of a state dict ---- */

struct place {
	uint32_t section, order, index;
};

/* Of "model.layers.7.mlp.down_proj.weight" what is behind the number; NULL for a name without one. */
static const char *below_layer(const char *name)
{
	for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
		size_t digits = strspn(at + 1, "0123456789");
		if (digits && at[1 + digits] == '.')
			return at + digits + 2;
	}
	return NULL;
}

/* The first tensor of the section in the same module of the layer; behind all of them for a module without modules. */
static uint32_t order_of(const struct sl_plan *plan, uint32_t i)
{
	const struct sl_output *t = &plan->tensors[i];
	const char *name = below_layer(t->name);
	uint32_t first = i;

	if (!name)
		return i;
	size_t len = strcspn(name, ".");
	if (!name[len] || !strchr(name + len + 1, '.'))
		return plan->n_tensors + i;
	for (uint32_t k = i; k-- > 0 && plan->tensors[k].section == t->section;) {
		const char *other = below_layer(plan->tensors[k].name);
		if (other && strncmp(other, name, len + 1) == 0)
			first = k;
	}
	return first;
}

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static struct place *places_of(const struct sl_plan *plan)
{
	struct place *places = calloc(plan->n_tensors + 1u, sizeof(*places));

	if (!places)
		return NULL;
	for (uint32_t i = 0; i < plan->n_tensors; i++)
		places[i] = (struct place){ plan->tensors[i].section, order_of(plan, i), i };
	qsort(places, plan->n_tensors, sizeof(*places), by_place);
	return places;
}

/* ---- the index ---- */

static void write_list(struct sl_text *text, const uint64_t *list, unsigned n)
{
	sl_text_add(text, "[", 1);
	for (unsigned d = 0; d < n; d++)
		sl_text_printf(text, "%s%llu", d ? ", " : "", (unsigned long long)list[d]);
	sl_text_add(text, "]", 1);
}

static void write_entry(struct sl_text *text, const struct sl_output *t, uint64_t off)
{
	uint64_t strides[SL_DIMS_MAX + 1], stride = 1;

	for (unsigned d = t->n_dims; d-- > 0; stride *= t->shape[d])
		strides[d] = stride;
	sl_text_printf(text, "%s", text->len ? ", " : "{");
	sl_text_json_string(text, t->name);
	sl_text_printf(text, ": [%llu, %llu, ", (unsigned long long)off, (unsigned long long)t->len);
	write_list(text, t->shape, t->n_dims);
	sl_text_printf(text, ", ");
	write_list(text, strides, t->n_dims);
	sl_text_printf(text, ", \"torch.%s\"]", names[t->dtype]);
}

/* Made with the data files, since each rank has its own. */
static int add_index(struct sl_plan *plan, struct sl_text *text)
{
	struct sl_arena *arena = &plan->view->arena;
	char *name = sl_arena_printf(arena, "rank_%u/tensor_index.json", plan->rank), *copy = NULL;

	sl_text_printf(text, "}");
	if (!text->failed)
		copy = sl_arena_strndup(arena, text->bytes, text->len);
	if (!name || !copy)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	return sl_plan_text_file(plan, name, copy, text->len);
}

/* ---- data files ---- */

static uint64_t padding(uint64_t len)
{
	return (ALIGNMENT - len % ALIGNMENT) % ALIGNMENT;
}

/* Put a tensor at the end of the last data file, or of a new one. Returns that file; NULL without memory. */
static struct sl_file *place_tensor(struct sl_plan *plan, struct sl_output *t, struct sl_piece *at)
{
	struct sl_view *view = plan->view;
	struct sl_file *file = view->n_files ? &view->files[view->n_files - 1] : NULL;

	if (!file || (file->size && file->size + t->len > plan->part_bytes)) {
		file = sl_plan_file(plan);
		if (!file)
			return NULL;
		file->name = plan->engine->file_name(plan, view->n_files - 1, 0);
		file->model = plan->model;
		file->pieces = at;
		file->section = t->section;
	}
	t->file = view->n_files - 1;
	t->off = file->size;
	return file->name ? file : NULL;
}

static int lay_tensor(struct sl_plan *plan, struct sl_output *t, struct sl_piece **at)
{
	struct sl_file *file = place_tensor(plan, t, *at);
	uint64_t pad = padding(t->len);

	if (!file)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	*at = sl_plan_lay_pieces(plan, &t, 1, *at);
	if (pad)
		*(*at)++ = (struct sl_piece){ .off = t->off + t->len, .len = pad, .op = SL_OP_ZERO };
	file->n_pieces = (uint32_t)(*at - file->pieces);
	file->size += t->len + pad;
	plan->view->bytes += t->len;
	return 0;
}

static int lay_all(struct sl_plan *plan, const struct place *places, struct sl_piece *at)
{
	struct sl_text index = SL_TEXT_INIT;
	uint64_t off = 0;
	int ret = 0;

	for (uint32_t i = 0; i < plan->n_tensors && !ret; i++) {
		struct sl_output *t = &plan->tensors[places[i].index];
		ret = lay_tensor(plan, t, &at);
		write_entry(&index, t, off);
		off += t->len + padding(t->len);
	}
	if (!ret)
		ret = add_index(plan, &index);
	sl_text_release(&index);
	return ret;
}

static int lay(struct sl_plan *plan)
{
	struct place *places = places_of(plan);
	struct sl_piece *at = sl_arena_array(&plan->view->arena, (size_t)plan->n_pieces + plan->n_tensors, sizeof(*at));
	int ret = places && at ? lay_all(plan, places, at) : sl_fail(plan->err, ENOMEM, "out of memory");

	free(places);
	plan->view->n_weights = plan->view->n_files;
	return ret ? ret : sl_plan_keep_tensors(plan);
}

const struct sl_container sl_serverlessllm_store = { "raw", lay };

char *sl_serverlessllm_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	(void)n;
	return sl_arena_printf(&plan->view->arena, "rank_%u/tensor.data_%u", plan->rank, i);
}

int sl_serverlessllm_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			   struct sl_error *err)
{
	for (unsigned d = 0; d < SL_N_DTYPES; d++) {
		uint32_t first = model->first_of[d];
		if (first && !names[d])
			return sl_fail(err, EINVAL, "tensor '%s' is %s, for which ServerlessLLM's store has no name",
				       SL_ESC(model->shards.tensors[first - 1].name), sl_dtypes[d].name);
	}
	return sl_check_modules(model, engine, layout, err);
}
