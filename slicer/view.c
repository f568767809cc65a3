/*
 * view.c - walking an architecture for one rank: which tensors it has, under which names, cut how.
 */
#include "slicer/view.h"

#include "slicer/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one layer that the engine holds as one module. */
struct group {
	unsigned stack;
	uint64_t layer;
	unsigned first, n; /* rows of the stack */
};

enum component { WEIGHT, BIAS };

static const struct sl_stack *stack_of(const struct sl_plan *plan, const struct group *g)
{
	return &plan->model->arch->stacks[g->stack];
}

static const struct sl_tensor *tensor_of(const struct sl_plan *plan, const struct group *g, unsigned row, enum component c)
{
	const struct sl_bound *bound = sl_bound_at(plan->model, g->stack, g->layer, row);

	return c == WEIGHT ? bound->weight : bound->bias;
}

static const char *either(const char *a, const char *b)
{
	return a ? a : b;
}

/* What the engine calls a row's module, without the layer's prefix. */
static const char *module_name(const struct sl_engine *engine, const struct sl_weight *row)
{
	const char *hf = either(row->hf, row->name);

	return engine->fused ? either(row->fused, hf) : hf;
}

static const char *stack_name(const struct sl_engine *engine, const struct sl_stack *stack)
{
	const char *hf = either(stack->hf, stack->name);

	return engine->fused ? either(stack->engine, hf) : hf;
}

static void tensor_name(const struct sl_plan *plan, const struct group *g, const char *module, const char *suffix, char *out)
{
	size_t len = sl_stack_prefix(stack_name(plan->engine, stack_of(plan, g)), g->layer, out);

	len = sl_name_append(out, len, module);
	sl_name_append(out, len, suffix);
}

static bool is_last_stage(const struct sl_view *view)
{
	return view->stage + 1 == view->layout.pp;
}

/* ---- the head and the embedding ---- */

/* The engine computes with the embedding as its head: one tensor, two names. */
static bool shares_head(const struct sl_model *model)
{
	return model->tied && (!model->head_stored || (model->arch->flags & SL_NO_HEAD));
}

static bool on_stage(const struct sl_view *view, const struct sl_weight *row)
{
	switch (row->stages) {
	case SL_EVERY_STAGE:
		return true;
	case SL_FIRST_STAGE:
		return view->stage == 0;
	case SL_LAST_STAGE:
		return is_last_stage(view);
	case SL_FIRST_OR_TIED_LAST:
		return view->stage == 0 || (is_last_stage(view) && shares_head(view->model));
	}
	return false;
}

/* The stack and the row of the head, if the family has one of its own. */
static bool find_head(const struct sl_arch *arch, struct group *g)
{
	for (g->stack = 0; g->stack < arch->n_stacks; g->stack++) {
		const struct sl_stack *stack = &arch->stacks[g->stack];
		for (g->first = 0; g->first < stack->n_weights; g->first++) {
			if (stack->weights[g->first].flags & SL_IS_HEAD)
				return !(arch->flags & SL_NO_HEAD);
		}
	}
	return false;
}

/* Of two names of one tensor vLLM keeps the smaller one (sharded_state_loader.py, _filter_subtensors): "lm_head.weight"
 * where the stage has a head. A model that ties without a stored head has its name there in engines that fuse. */
static void embedding_name(const struct sl_plan *plan, const struct group *embed, char *out)
{
	const struct sl_weight *row = &stack_of(plan, embed)->weights[embed->first];
	struct group head = { 0 };

	if (plan->engine->fused && shares_head(plan->model) && find_head(plan->model->arch, &head)) {
		const struct sl_weight *head_row = &stack_of(plan, &head)->weights[head.first];
		if (on_stage(plan->view, head_row)) {
			tensor_name(plan, &head, module_name(plan->engine, head_row), ".weight", out);
			return;
		}
	}
	tensor_name(plan, embed, module_name(plan->engine, row), ".weight", out);
}

/* ---- one tensor ---- */

/* The rank's share of one stored tensor, added to the begun one. *rows and *cols: the share's shape. */
static int add_share(struct sl_plan *plan, const struct group *g, unsigned r, enum component c, uint64_t *n_rows,
		     uint64_t *n_cols)
{
	const struct sl_stack *stack = stack_of(plan, g);
	const struct sl_weight *row = &stack->weights[r];
	const struct sl_tensor *t = tensor_of(plan, g, r, c);
	struct sl_matrix m = sl_matrix_of(t, row);
	unsigned tp = sl_part_tp(plan->engine, stack->part, plan->tp), rank = tp > 1 ? plan->rank : 0;
	struct sl_segment segments[3];
	struct sl_range rows = { 0, 0, 0 }, cols = { 0, m.in, 0 };
	unsigned n = sl_segments(plan->model, stack->part, row, m.out, segments);
	int ret = 0;

	if (row->role == SL_ROW && c == WEIGHT)
		ret = sl_split(plan->model, stack->part, &(struct sl_segment){ 0, m.in, row->in }, tp, rank, &cols, plan->err);
	for (unsigned i = 0; i < n && !ret; i++) {
		rows = (struct sl_range){ 0, segments[i].n, 0 };
		if (row->role == SL_COLUMN)
			ret = sl_split(plan->model, stack->part, &segments[i], tp, rank, &rows, plan->err);
		else if (row->role == SL_EMBEDDING)
			ret = sl_split_embedding(plan->engine, row->out, m.out, tp, rank, &rows, plan->err);
		*n_rows += rows.n + rows.zero;
		rows.first += segments[i].first;
		if (!ret)
			ret = sl_plan_slice(plan, stack->part, row, t, rows, cols);
	}
	*n_cols = cols.n;
	if (!ret && rows.zero)
		ret = sl_plan_zeros(plan, sl_dtype_bytes(plan->tensors[plan->n_tensors - 1].dtype, rows.zero * cols.n));
	return ret;
}

/* Is the tensor held as it is stored? Then nothing about its order matters. */
static bool is_whole(const struct sl_plan *plan, const struct sl_weight *row)
{
	if (row->role == SL_WHOLE)
		return !(plan->engine->fused && (row->flags & SL_CONV1D));
	return plan->tp == 1 && !plan->engine->fused && row->order != SL_ROTARY;
}

/* One component of a group: a tensor of the engine, from one stored tensor per row. */
static int add_component(struct sl_plan *plan, const struct group *g, enum component c, const char *name)
{
	const struct sl_weight *row = &stack_of(plan, g)->weights[g->first];
	const struct sl_tensor *first = tensor_of(plan, g, g->first, c);
	uint64_t shape[2] = { 0, 0 };

	int ret = sl_plan_tensor(plan, name, sl_plan_dtype(plan, first));
	if (ret)
		return ret;
	if (is_whole(plan, row) && g->n == 1) {
		ret = sl_plan_whole(plan, first);
		return ret ? ret : sl_plan_shape(plan, first->shape, first->n_dims);
	}
	for (unsigned r = g->first; r < g->first + g->n && !ret; r++)
		ret = add_share(plan, g, r, c, &shape[0], &shape[1]);
	return ret ? ret : sl_plan_shape(plan, shape, first->n_dims > 1 ? 2 : 1);
}

/* 0, 1, 2, … for a buffer of indices that the checkpoint does not store: as many as the configuration has positions. */
static int add_indices(struct sl_plan *plan, const struct group *g, const char *name)
{
	uint64_t n = 0, shape[2];

	(void)g;
	if (!plan->engine->fused)
		return 0;
	if (sl_config_u64(&plan->model->config, SL_TEXT, "max_position_embeddings", &n, plan->err) || n == 0 || n > 1 << 24)
		return sl_fail(plan->err, EINVAL, "config.json: max_position_embeddings is absent or no size");
	int64_t *indices = sl_arena_array(&plan->view->arena, n, sizeof(*indices));
	if (!indices)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
		indices[i] = (int64_t)i;
	int ret = sl_plan_tensor(plan, name, SL_I64);
	if (!ret)
		ret = sl_plan_data(plan, indices, n * sizeof(*indices));
	shape[0] = 1, shape[1] = n;
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

/* ---- one module ---- */

/* Has the engine this module at all? */
static bool is_held(const struct sl_plan *plan, const struct group *g)
{
	const struct sl_weight *row = &stack_of(plan, g)->weights[g->first];

	if (!on_stage(plan->view, row) || (plan->engine->fused && (row->flags & SL_UNLOADED)))
		return false;
	if ((row->flags & SL_IS_HEAD) && plan->engine->fused && shares_head(plan->model))
		return false;
	return row->flags & SL_INDICES ? true : tensor_of(plan, g, g->first, WEIGHT) != NULL;
}

static int add_module(struct sl_plan *plan, const struct group *g)
{
	const struct sl_weight *row = &stack_of(plan, g)->weights[g->first];
	const char *module = module_name(plan->engine, row);
	char name[SL_MODULE_NAME_MAX];

	if (!is_held(plan, g))
		return 0;
	if (row->flags & SL_IS_EMBED)
		embedding_name(plan, g, name);
	else
		tensor_name(plan, g, module, row->flags & SL_BARE ? "" : ".weight", name);
	if (!tensor_of(plan, g, g->first, WEIGHT))
		return add_indices(plan, g, name);
	int ret = add_component(plan, g, WEIGHT, name);
	if (ret || !tensor_of(plan, g, g->first, BIAS))
		return ret;
	tensor_name(plan, g, module, ".bias", name);
	return add_component(plan, g, BIAS, name);
}

/* The four scale buffers of an attention layer, which vLLM keeps in its state: F32, no dimension, 1.0 (attention.py). */
static int add_kv_buffers(struct sl_plan *plan, const struct group *g)
{
	static const char *const buffers[] = { "._k_scale", "._v_scale", "._q_scale", "._prob_scale" };
	static const unsigned char one[4] = { 0x00, 0x00, 0x80, 0x3F };
	const char *attn = stack_of(plan, g)->attn;
	char name[SL_MODULE_NAME_MAX];

	for (size_t i = 0; attn && plan->engine->kv_buffers && i < SL_COUNT(buffers); i++) {
		tensor_name(plan, g, attn, buffers[i], name);
		int ret = sl_plan_tensor(plan, name, SL_F32);
		if (!ret)
			ret = sl_plan_data(plan, one, sizeof(one));
		if (!ret)
			ret = sl_plan_shape(plan, NULL, 0);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---- one layer, all layers ---- */

/* Rows of one module follow one another in a stack's table. */
static unsigned group_size(const struct sl_engine *engine, const struct sl_stack *stack, unsigned first)
{
	unsigned n = 1;

	while (engine->fused && stack->weights[first].fused && first + n < stack->n_weights && stack->weights[first + n].fused &&
	       strcmp(stack->weights[first].fused, stack->weights[first + n].fused) == 0)
		n++;
	return n;
}

static int add_layer(struct sl_plan *plan, unsigned stack, uint64_t layer)
{
	struct group g = { stack, layer, 0, 0 };
	const struct sl_stack *s = stack_of(plan, &g);
	int ret = 0;

	for (; g.first < s->n_weights && !ret; g.first += g.n) {
		g.n = group_size(plan->engine, s, g.first);
		ret = add_module(plan, &g);
	}
	return ret ? ret : add_kv_buffers(plan, &g);
}

/* Sections: what is before the layers, each layer, what is after them. */
static int add_stack(struct sl_plan *plan, unsigned stack)
{
	const struct sl_stack *s = &plan->model->arch->stacks[stack];
	struct sl_range layers = { 0, sl_stack_layers(plan->model, s), 0 };
	int ret = 0;

	if (s->pipelined)
		layers = sl_stage_layers(layers.n, plan->view->layout.pp, plan->view->stage);
	for (uint64_t l = layers.first; l < layers.first + layers.n && !ret; l++) {
		plan->section += s->pipelined;
		ret = add_layer(plan, stack, l);
	}
	plan->section += s->pipelined;
	return ret;
}

static int make_plan(struct sl_plan *plan)
{
	int ret = 0;

	for (unsigned s = 0; s < plan->model->arch->n_stacks && !ret; s++)
		ret = add_stack(plan, s);
	if (!ret)
		ret = sl_plan_parts(plan, SL_SERVED_MAX);
	return ret ? ret : sl_plan_served(plan);
}

static int check_request(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			 unsigned stage, unsigned rank, struct sl_error *err)
{
	int ret = sl_layout_check(model, engine, layout, err);

	if (!ret && (rank >= layout->tp || stage >= layout->pp))
		ret = sl_fail(err, EINVAL, "rank %u of %u, stage %u of %u: there is no such rank", rank, layout->tp, stage, layout->pp);
	return ret;
}

int sl_view_open(struct sl_view **out, const struct sl_model *model, const struct sl_engine *engine,
		 const struct sl_layout *layout, unsigned stage, unsigned rank, const struct sl_view_options *options,
		 struct sl_error *err)
{
	struct sl_error local = SL_ERROR_INIT;
	struct sl_plan plan = { .model = model, .engine = engine, .tp = layout->tp, .rank = rank, .err = err ? err : &local };

	*out = NULL;
	plan.part_bytes = options && options->part_bytes ? options->part_bytes : UINT64_C(512) << 20;
	int ret = check_request(model, engine, layout, stage, rank, plan.err);
	if (ret)
		return ret;
	struct sl_view *view = plan.view = calloc(1, sizeof(*view));
	if (!view)
		return sl_fail(plan.err, ENOMEM, "out of memory");
	sl_arena_init(&view->arena);
	view->model = model;
	view->engine = engine;
	view->layout = *layout;
	view->stage = stage;
	view->rank = rank;
	ret = make_plan(&plan);
	free(plan.tensors);
	free(plan.pieces);
	free(plan.first_piece);
	if (ret)
		sl_view_close(view);
	else
		*out = view;
	return ret;
}

void sl_view_close(struct sl_view *view)
{
	if (!view)
		return;
	sl_arena_release(&view->arena);
	free(view);
}

const struct sl_output *sl_view_find(const struct sl_view *view, const char *name)
{
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		if (strcmp(view->tensors[i].name, name) == 0)
			return &view->tensors[i];
	}
	return NULL;
}
