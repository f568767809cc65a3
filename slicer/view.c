/*
 * view.c - walking an architecture for one rank: which tensors it has, under which names, cut how.
 */
#include "slicer/view.h"

#include "slicer/plan.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one layer that the engine holds as one module. */
struct group {
	unsigned stack;
	uint64_t layer;
	unsigned first, n; /* rows of the stack */
	bool apart;	   /* the engine holds each expert of them apart: */
	uint64_t expert;   /* then this one */
};

static const struct sl_stack *stack_of(const struct sl_plan *plan, const struct group *g)
{
	return &plan->model->arch->stacks[g->stack];
}

static const struct sl_weight *row_of(const struct sl_plan *plan, const struct group *g, unsigned r)
{
	return sl_row_in(plan->engine, &stack_of(plan, g)->weights[r]);
}

/* The row of the shared expert that belongs to one of the routed experts. */
static unsigned shared_row(const struct sl_plan *plan, const struct group *g, unsigned routed)
{
	const struct sl_stack *stack = stack_of(plan, g);

	for (unsigned r = 0; r < stack->n_weights; r++) {
		if (stack->weights[r].routed && strcmp(stack->weights[r].routed, stack->weights[routed].name) == 0)
			return r;
	}
	return routed;
}

/* Behind the routed experts the shared one, where an engine makes it one of them. */
static const struct sl_bound *bound_of(const struct sl_plan *plan, const struct group *g, unsigned r, uint64_t expert)
{
	const uint32_t *start = plan->model->bound[g->stack].row_start;
	uint64_t n = start[r + 1] - start[r];

	if (n > 1 && expert == n)
		return sl_bound_at(plan->model, g->stack, g->layer, shared_row(plan, g, r), 0);
	return sl_bound_at(plan->model, g->stack, g->layer, r, n > 1 ? expert : 0);
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

/* A module as an older release calls it; `buf` holds SL_MODULE_NAME_MAX bytes. */
static const char *renamed_module(const struct sl_engine *engine, const struct sl_weight *row, const char *module,
				  char *buf)
{
	for (const struct sl_renaming *r = engine->renamed; r && r->now; r++) {
		const char *at = strstr(module, r->now);

		if (!at || (r->stored && !strstr(row->name, r->stored)))
			continue;
		snprintf(buf, SL_MODULE_NAME_MAX, "%.*s%s%s", (int)(at - module), module, r->then, at + strlen(r->now));
		return buf;
	}
	return module;
}

static void tensor_name(const struct sl_plan *plan, const struct group *g, const char *module, const char *suffix,
			char *out)
{
	size_t len = sl_stack_prefix(stack_name(plan->engine, stack_of(plan, g)), g->layer, out);
	char then[SL_MODULE_NAME_MAX];

	module = renamed_module(plan->engine, row_of(plan, g, g->first), module, then);
	len = sl_name_append_expert(out, len, module, g->expert);
	sl_name_append(out, len, suffix);
}

static bool is_last_stage(const struct sl_view *view)
{
	return view->stage + 1 == view->layout.pp;
}

/* ---- the head and the embedding ---- */

/* The engine computes with the embedding as its head: one tensor, two names. */
static bool shares_head(const struct sl_view *view)
{
	const struct sl_model *model = view->model;

	if (model->arch->flags & SL_OWN_HEAD)
		return false;
	return model->tied && (!model->head_stored || (model->arch->flags & SL_NO_HEAD) || view->engine->drops_tied);
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
		return view->stage == 0 || (is_last_stage(view) && shares_head(view));
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

	if (plan->engine->fused && shares_head(plan->view) && find_head(plan->model->arch, &head)) {
		const struct sl_weight *head_row = row_of(plan, &head, head.first);
		if (on_stage(plan->view, head_row)) {
			tensor_name(plan, &head, module_name(plan->engine, head_row), ".weight", out);
			return;
		}
	}
	tensor_name(plan, embed, module_name(plan->engine, row), ".weight", out);
}

/* ---- one component of a module ---- */

/* Whose kernels' paddings experts get: Marlin is what the oldest GPU has anyway. */
static enum sl_gpu padded_for(const struct sl_plan *plan)
{
	return plan->view->layout.kernels == SL_KERNELS_MARLIN ? SL_SM80 : plan->gpu;
}

static int find_share(struct sl_plan *plan, const struct sl_stack *stack, const struct sl_weight *row,
		      const struct sl_storage *storage, struct sl_matrix m, struct sl_share *share)
{
	return sl_share_of(plan->model, plan->engine, &plan->view->layout, stack->part, row, storage, m, plan->rank,
			   padded_for(plan), share, plan->err);
}

/* The same of a row of the architecture, which stays where it is. */
static int find_row_share(struct sl_plan *plan, const struct sl_stack *stack, const struct sl_weight *row,
			  const struct sl_storage *storage, struct sl_matrix m, struct sl_share *share)
{
	unsigned tp = plan->view->layout.tp;
	bool same = plan->last.row == row && plan->last.storage == storage && plan->last.of.rows == m.rows &&
		    plan->last.of.cols == m.cols && plan->last.tp == tp && plan->last.rank == plan->rank;

	if (!same) {
		plan->last.row = NULL;
		int ret = find_share(plan, stack, row, storage, m, &plan->last.share);
		if (ret)
			return ret;
		plan->last.row = row;
		plan->last.storage = storage;
		plan->last.of = m;
		plan->last.tp = tp;
		plan->last.rank = plan->rank;
	}
	*share = plan->last.share;
	return 0;
}

/* What is being put together: rows and columns so far of the engine's tensor, for one expert. */
struct shape {
	uint64_t rows, cols;
};

/* One segment of one stored tensor, below or beside what is there. Ranges are in the component's own elements, or where blocks
 * become finer in those that they become; what pads them has the value `pad`. */
static int add_segment(struct sl_plan *plan, const struct sl_stack *stack, const struct sl_weight *row,
		       const struct sl_tensor *t, const struct sl_component *c, uint64_t expert, unsigned finer,
		       float pad, struct sl_range rows, struct sl_range cols, struct shape *shape)
{
	bool conv1d = (row->flags & SL_CONV1D) && t->n_dims > 1;
	int ret;

	if (c->turned || (conv1d && !plan->engine->fused)) {
		shape->rows = cols.n;
		shape->cols += rows.n;
		return sl_plan_column(plan, row, t, expert, cols, rows);
	}
	shape->rows += rows.n + rows.zero;
	shape->cols = cols.n + cols.zero;
	if (finer > 1) {
		ret = sl_plan_repeated(plan, row, t, expert, finer, rows, cols);
	} else if (conv1d) {
		ret = sl_plan_turned(plan, row, t, expert, cols, rows);
	} else if (cols.zero) {
		ret = sl_plan_column(plan, row, t, expert, rows, cols);
		if (!ret)
			ret = sl_plan_fill_column(plan, pad, rows.n, cols.zero);
		if (!ret)
			ret = sl_plan_columns_end(plan);
	} else {
		ret = sl_plan_block(plan, stack->part, row, t, expert, rows, cols);
	}
	return ret || !rows.zero ? ret : sl_plan_fill(plan, pad, rows.zero * shape->cols);
}

/* A component that the checkpoint lacks and the engine has: its fill, in the shape of the share. */
static int add_fill(struct sl_plan *plan, const struct sl_component *c, const struct sl_share *share,
		    struct shape *shape)
{
	uint64_t rows = 0;

	for (unsigned i = 0; i < share->n; i++)
		rows += share->rows[i].n;
	shape->rows += c->form == SL_MATRIX ? rows : 1;
	shape->cols = 1;
	return sl_plan_fill(plan, c->fill, c->form == SL_MATRIX ? rows : 1);
}

/* The rank's share of one component of one stored module. */
static int add_share(struct sl_plan *plan, const struct group *g, unsigned r, unsigned i, uint64_t expert,
		     struct shape *shape)
{
	const struct sl_stack *stack = stack_of(plan, g);
	const struct sl_weight *row = row_of(plan, g, r);
	const struct sl_bound *bound = bound_of(plan, g, r, expert);
	const struct sl_component *c = &bound->storage->components[i];
	const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, i);
	struct sl_matrix m = sl_logical_matrix(plan->model, row, bound), stored;
	struct sl_share share;

	int ret = find_row_share(plan, stack, row, bound->storage, m, &share);
	if (ret || !t)
		return ret ? ret : add_fill(plan, c, &share, shape);
	stored = sl_stored_matrix(t, row);
	if (c->turned || ((row->flags & SL_CONV1D) && t->n_dims > 1))
		stored = (struct sl_matrix){ stored.cols, stored.rows };
	struct sl_units u = sl_share_units(plan->model, row, bound, i, &share);
	unsigned finer = c->out == SL_UNIT_BLOCK ? share.finer : 1;
	float pad = c->out == SL_UNIT_BLOCK && share.padded ? 1 : 0;
	struct sl_range rows, cols;
	ret = sl_to_units(share.cols, m.cols, u.in, stored.cols, "columns", &cols, plan->err);
	for (unsigned s = 0; s < share.n && !ret; s++) {
		ret = sl_to_units(share.rows[s], m.rows, u.out, stored.rows, "rows", &rows, plan->err);
		if (!ret && !u.in && row->role == SL_ROW && bound->storage->bias_on_first && plan->engine->fused &&
		    !share.is_first)
			rows = (struct sl_range){ 0, 0, rows.n + rows.zero };
		if (!ret)
			ret = add_segment(plan, stack, row, t, c, expert, finer, pad, rows, cols, shape);
	}
	return ret;
}

/* A group that the engine holds in the model's dtype: stored blocks times their scales, plain weights as they are. */
static int add_dequantised(struct sl_plan *plan, const struct group *g, const char *name)
{
	uint64_t shape[2] = { 0, 0 };

	int ret = sl_plan_tensor(plan, name, sl_plan_float(plan));
	for (unsigned r = g->first; r < g->first + g->n && !ret; r++) {
		const struct sl_bound *bound = bound_of(plan, g, r, 0);
		const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, 0), *scales = NULL;
		struct sl_matrix m = sl_logical_matrix(plan->model, row_of(plan, g, r), bound);
		if (bound->storage->n_components > 1)
			scales = sl_bound_tensor(plan->model, bound, 1);
		if (scales && bound->storage->components[1].out != SL_UNIT_BLOCK)
			return sl_fail(plan->err, EINVAL, "tensor '%s': %s cannot be turned back into plain weights",
				       SL_ESC(t->name), bound->storage->name);
		shape[0] += m.rows;
		shape[1] = m.cols;
		ret = scales ? sl_plan_scaled(plan, row_of(plan, g, r), t, scales, plan->model->quant.block,
					      (struct sl_range){ 0, m.rows, 0 })
			     : sl_plan_whole(plan, t);
	}
	return ret ? ret : sl_plan_shape(plan, shape, 2);
}

/* Matrices of all rows of a group for one expert, one below another or side by side. */
static int add_matrix(struct sl_plan *plan, const struct group *g, unsigned i, uint64_t expert, struct shape *shape)
{
	int ret = 0;

	*shape = (struct shape){ 0, 0 };
	for (unsigned r = g->first; r < g->first + g->n && !ret; r++)
		ret = add_share(plan, g, r, i, expert, shape);
	return ret ? ret : sl_plan_columns_end(plan);
}

/* One element of each row of a group: the stored one, or the fill. */
static int add_scalars(struct sl_plan *plan, const struct group *g, unsigned i, uint64_t expert)
{
	for (unsigned r = g->first; r < g->first + g->n; r++) {
		const struct sl_bound *bound = bound_of(plan, g, r, expert);
		const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, i);
		int ret = t ? sl_plan_whole(plan, t) : sl_plan_fill(plan, bound->storage->components[i].fill, 1);
		if (ret)
			return ret;
	}
	return 0;
}

static bool fuses_shared(const struct sl_plan *plan, const struct group *g)
{
	return sl_fuses_shared(plan->model, plan->engine, &plan->view->layout, stack_of(plan, g)->part);
}

static struct sl_range all_experts(const struct sl_plan *plan, const struct group *g)
{
	const struct sl_stack *stack = stack_of(plan, g);
	struct sl_range experts;

	if (!sl_is_expert(row_of(plan, g, g->first)))
		return (struct sl_range){ 0, 1, 0 };
	experts = sl_rank_experts(&plan->view->layout, plan->model->config.dims[stack->part].experts, plan->rank);
	experts.n += fuses_shared(plan, g);
	return experts;
}

/* The experts of this rank that a group's tensors hold together; one without a number for a group without experts. */
static inline struct sl_range experts_of(const struct sl_plan *plan, const struct group *g)
{
	return g->apart ? (struct sl_range){ g->expert, 1, 0 } : all_experts(plan, g);
}

static bool is_stack_of_experts(const struct sl_plan *plan, const struct group *g)
{
	return !g->apart && sl_is_expert(row_of(plan, g, g->first));
}

static uint64_t expert_at(const struct sl_plan *plan, const struct group *g, struct sl_range experts, uint64_t i)
{
	if (!is_stack_of_experts(plan, g))
		return experts.first;
	return sl_expert_at(&plan->view->layout, experts, plan->rank, i);
}

/* The axes of a tensor's columns, `first` and what follows it: cut ones are cut in the first of them. */
static unsigned column_axes(const struct sl_tensor *t, unsigned first, uint64_t cols, uint64_t *dims)
{
	unsigned n = 1;

	dims[0] = cols;
	for (unsigned d = first + 1; d < t->n_dims; d++) {
		dims[n++] = t->shape[d];
		dims[0] /= t->shape[d] ? t->shape[d] : 1;
	}
	return n;
}

/* The shape of a matrix component: experts first; columns on one axis in a stack that the engine makes, else as stored. */
static int end_matrix(struct sl_plan *plan, const struct group *g, unsigned i, struct sl_range experts,
		      struct shape shape)
{
	const struct sl_bound *bound = bound_of(plan, g, g->first, experts.first);
	const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, i);
	bool stacked = is_stack_of_experts(plan, g), has_columns = bound->storage->components[i].in != SL_UNIT_NONE;
	unsigned flags = row_of(plan, g, g->first)->flags, n = 0, first = flags & SL_STACKED ? 2 : 1;
	uint64_t dims[SL_DIMS_MAX + 2];

	if (stacked)
		dims[n++] = experts.n;
	dims[n++] = shape.rows;
	if (flags & SL_FLAT)
		return sl_plan_shape(plan, dims, n);
	if (t && t->n_dims > first && !(stacked && plan->engine->fused))
		n += column_axes(t, first, shape.cols, dims + n);
	else if (t ? t->n_dims > first : has_columns)
		dims[n++] = shape.cols;
	return sl_plan_shape(plan, dims, n);
}

/* After the first expert: say the others as a series, where they are stored as it is. Recipes want pieces. */
static bool add_series(struct sl_plan *plan, const struct group *g, unsigned i, struct sl_range experts)
{
	unsigned n_rows = stack_of(plan, g)->n_weights;
	struct sl_lane lanes[SL_SERIES_LANES];

	if (plan->engine->choices || experts.n < 2 || g->n > SL_SERIES_LANES || !is_stack_of_experts(plan, g))
		return false;
	for (unsigned r = 0; r < g->n; r++) {
		if (!sl_is_alike(plan->model, g->stack, g->layer, g->first + r, n_rows))
			return false;
		lanes[r] = (struct sl_lane){ sl_bound_at(plan->model, g->stack, g->layer, g->first + r, 0), i };
	}
	uint64_t first = expert_at(plan, g, experts, 0), step = expert_at(plan, g, experts, 1) - first;
	return sl_plan_series(plan, lanes, g->n, (uint32_t)first, (uint32_t)step, experts.n);
}

static int add_matrices(struct sl_plan *plan, const struct group *g, unsigned i)
{
	struct sl_range experts = experts_of(plan, g);
	struct shape shape = { 0, 0 };
	int ret = 0;

	for (uint64_t e = 0; e < experts.n && !ret; e++) {
		ret = add_matrix(plan, g, i, expert_at(plan, g, experts, e), &shape);
		if (!ret && e == 0 && add_series(plan, g, i, experts))
			break;
	}
	return ret ? ret : end_matrix(plan, g, i, experts, shape);
}

static int add_vector(struct sl_plan *plan, const struct group *g, unsigned i)
{
	struct sl_range experts = experts_of(plan, g);
	bool stacked = is_stack_of_experts(plan, g);
	uint64_t dims[2] = { experts.n, g->n };
	int ret = 0;

	for (uint64_t e = 0; e < experts.n && !ret; e++) {
		ret = add_scalars(plan, g, i, expert_at(plan, g, experts, e));
		if (!ret && e == 0 && add_series(plan, g, i, experts))
			break;
	}
	if (ret)
		return ret;
	if (!stacked)
		return sl_plan_shape(plan, &dims[1], 1);
	return sl_plan_shape(plan, dims, g->n > 1 ? 2 : 1);
}

/* The component of a group's parts that is loaded last: the one whose name is the greatest (vLLM sorts names in a file). */
static const struct sl_tensor *last_loaded(const struct sl_plan *plan, const struct group *g, unsigned i,
					   uint64_t expert)
{
	const struct sl_tensor *last = NULL;

	for (unsigned r = g->first; r < g->first + g->n; r++) {
		const struct sl_tensor *t = sl_bound_tensor(plan->model, bound_of(plan, g, r, expert), i);
		if (t && (!last || strcmp(t->name, last->name) > 0))
			last = t;
	}
	return last;
}

/* The last part's tensor as it is, once per expert. */
static int add_last(struct sl_plan *plan, const struct group *g, unsigned i)
{
	struct sl_range experts = experts_of(plan, g);
	const struct sl_tensor *t = NULL;
	uint64_t dims[2] = { experts.n, 0 };
	int ret = 0;

	for (uint64_t e = 0; e < experts.n && !ret; e++) {
		t = last_loaded(plan, g, i, expert_at(plan, g, experts, e));
		ret = sl_plan_whole(plan, t);
		dims[1] = t->n_dims ? t->shape[0] : 1;
	}
	return ret ? ret
		   : sl_plan_shape(plan, is_stack_of_experts(plan, g) ? dims : dims + 1,
				   is_stack_of_experts(plan, g) ? 2 : 1);
}

/* The groups 0, 0, …, 1, 1, … of n inputs, which act-order would mix. */
static int add_group_numbers(struct sl_plan *plan, uint64_t n, uint64_t group)
{
	uint32_t *numbers = sl_arena_array(&plan->view->arena, n ? n : 1, sizeof(*numbers));

	if (!numbers)
		return sl_fail(plan->err, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < n; i++)
		numbers[i] = htole32((uint32_t)(i / group));
	return sl_plan_data(plan, numbers, n * sizeof(*numbers));
}

/* The group of each input of the rank. vLLM has them counted over all inputs; where a rank is a model of its own they begin
 * at 0 with its own scales, and the first rank's, which are in order (act-order in groups is refused), fit all. */
static int add_inputs(struct sl_plan *plan, const struct group *g, unsigned i)
{
	const struct sl_stack *stack = stack_of(plan, g);
	const struct sl_bound *bound = bound_of(plan, g, g->first, g->expert);
	const struct sl_tensor *t = last_loaded(plan, g, i, g->expert);
	struct sl_weight vector = *row_of(plan, g, g->first);
	struct sl_share share;

	int ret = find_share(plan, stack, &vector, bound->storage, sl_logical_matrix(plan->model, &vector, bound),
			     &share);
	if (ret)
		return ret;
	struct sl_range inputs = { plan->engine->fused ? share.cols.first : 0, share.cols.n, 0 };
	vector.in = SL_NO_AXIS;
	vector.order = SL_PLAIN;
	ret = t ? sl_plan_block(plan, stack->part, &vector, t, 0, inputs, (struct sl_range){ 0, 1, 0 })
		: add_group_numbers(plan, inputs.n, sl_units_of(plan->model, row_of(plan, g, g->first), bound, 1).in);
	return ret ? ret : sl_plan_shape(plan, &inputs.n, 1);
}

static int add_single(struct sl_plan *plan)
{
	int ret = sl_plan_fill(plan, plan->model->quant.fill, 1);

	return ret ? ret : sl_plan_shape(plan, NULL, 0);
}

/* ---- dtypes ---- */

/* The dtype in which an engine holds an unquantised weight of stored dtype `own`. */
static enum sl_dtype plain_dtype(const struct sl_plan *plan, const struct sl_weight *row, enum sl_dtype own)
{
	if (!sl_dtype_is_plain(own))
		return plan->engine->fused && row->as == SL_IN_I32 ? SL_I32 : own;
	if (!plan->engine->fused)
		return plan->view->layout.dtype < 0 ? own : sl_plan_float(plan);
	if (row->as == SL_IN_F32)
		return SL_F32;
	return row->as == SL_IN_OWN ? own : sl_plan_float(plan);
}

static enum sl_dtype component_dtype(const struct sl_plan *plan, const struct group *g, unsigned i)
{
	const struct sl_weight *row = row_of(plan, g, g->first);
	const struct sl_bound *bound = bound_of(plan, g, g->first, experts_of(plan, g).first);
	const struct sl_component *c = &bound->storage->components[i];
	const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, i);
	enum sl_dtype own = t ? (enum sl_dtype)t->dtype : SL_F32;

	if (bound->storage == &sl_plain)
		return plain_dtype(plan, row, own);
	if (!plan->engine->fused)
		return own;
	if (c->dtype >= 0 && c->as == SL_AS_STORED)
		return (enum sl_dtype)c->dtype; /* a weight that the engine converts */
	if (c->form == SL_LAST && is_stack_of_experts(plan, g))
		return sl_plan_float(plan);
	return c->as == SL_AS_F32     ? SL_F32
	       : c->as == SL_AS_U8    ? SL_U8
	       : c->as == SL_AS_MODEL ? sl_plan_float(plan)
				      : own;
}

/* Is the tensor held as it is stored? Then nothing about its order matters. */
static bool is_whole(const struct sl_plan *plan, const struct sl_weight *row)
{
	if (sl_is_expert(row) && (plan->engine->fused || plan->view->layout.experts != SL_EXPERTS_SLICED))
		return false;
	if (row->role == SL_WHOLE)
		return !(plan->engine->fused && (row->flags & SL_CONV1D));
	return plan->tp == 1 && !plan->engine->fused && row->order != SL_ROTARY;
}

static int add_component(struct sl_plan *plan, const struct group *g, unsigned i, const char *name)
{
	const struct sl_bound *bound = bound_of(plan, g, g->first, experts_of(plan, g).first);
	const struct sl_component *c = &bound->storage->components[i];
	const struct sl_tensor *t = sl_bound_tensor(plan->model, bound, i);

	int ret = sl_plan_tensor(plan, name, component_dtype(plan, g, i));
	if (ret)
		return ret;
	bool whole = is_whole(plan, row_of(plan, g, g->first)), divides = c->form == SL_MATRIX || c->form == SL_INPUTS;
	if (t && g->n == 1 && (whole || (!plan->engine->fused && !divides)) &&
	    (c->form != SL_SCALAR || !plan->engine->fused)) {
		ret = sl_plan_whole(plan, t);
		return ret ? ret : sl_plan_shape(plan, t->shape, t->n_dims);
	}
	if (c->form == SL_MATRIX)
		return add_matrices(plan, g, i);
	if (c->form == SL_SCALAR)
		return add_vector(plan, g, i);
	if (c->form == SL_INPUTS)
		return add_inputs(plan, g, i);
	return c->form == SL_LAST ? add_last(plan, g, i) : add_single(plan);
}

/* ---- biases ---- */

static int add_bias(struct sl_plan *plan, const struct group *g, const char *name)
{
	const struct sl_stack *stack = stack_of(plan, g);
	const struct sl_tensor *t = sl_bound_bias(plan->model, bound_of(plan, g, g->first, g->expert));
	uint64_t n = 0;

	int ret = sl_plan_tensor(plan, name, plain_dtype(plan, row_of(plan, g, g->first), t->dtype));
	for (unsigned r = g->first; r < g->first + g->n && !ret; r++) {
		const struct sl_weight *row = row_of(plan, g, r);
		struct sl_share share;
		t = sl_bound_bias(plan->model, bound_of(plan, g, r, g->expert));
		if (!t)
			return sl_fail(plan->err, EINVAL, "tensor '%s': its part '%s' has no bias", name, row->name);
		struct sl_weight vector = *row;
		vector.in = SL_NO_AXIS;
		vector.role = row->role == SL_ROW ? SL_WHOLE : row->role;
		vector.order = is_whole(plan, row) ? SL_PLAIN : row->order;
		ret = find_share(plan, stack, &vector, &sl_plain, (struct sl_matrix){ t->shape[0], 1 }, &share);
		for (unsigned s = 0; s < share.n && !ret; s++) {
			n += share.rows[s].n;
			ret = sl_plan_block(plan, stack->part, &vector, t, 0, share.rows[s],
					    (struct sl_range){ 0, 1, 0 });
		}
	}
	return ret ? ret : sl_plan_shape(plan, &n, 1);
}

/* 0, 1, 2, … for a buffer of indices that the checkpoint does not store: as many as the configuration has positions. */
static int add_indices(struct sl_plan *plan, const struct group *g, const char *name)
{
	uint64_t n = 0, shape[2];

	(void)g;
	if (!plan->engine->fused)
		return 0;
	if (sl_config_u64(&plan->model->config, SL_TEXT, "max_position_embeddings", &n, plan->err) || n == 0 ||
	    n > 1 << 24)
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
	const struct sl_weight *row = row_of(plan, g, g->first);

	if (!on_stage(plan->view, row) || (row->flags & (plan->engine->fused ? SL_UNLOADED : SL_AGAIN)))
		return false;
	if ((row->flags & SL_IS_HEAD) && (plan->engine->fused ? shares_head(plan->view) : !plan->model->head_stored))
		return false;
	if (row->routed && fuses_shared(plan, g))
		return false;
	return (row->flags & SL_INDICES) || bound_of(plan, g, g->first, experts_of(plan, g).first)->storage;
}

/* Does the engine hold this component? */
static bool holds_component(const struct sl_plan *plan, const struct group *g, unsigned i)
{
	const struct sl_bound *bound = bound_of(plan, g, g->first, experts_of(plan, g).first);
	uint8_t need = bound->storage->components[i].need;

	if (plan->engine->fused && need == SL_DROPPED)
		return plan->engine->keeps_dropped;
	if (bound->tensors[i] || !plan->engine->fused)
		return bound->tensors[i];
	return need == SL_FILLED || (need == SL_FILLED_OF_EXPERTS && sl_is_expert(row_of(plan, g, g->first)));
}

/* A shared expert that is to be one of the routed ones is stored as they are. */
static int check_shared(struct sl_plan *plan, const struct group *g)
{
	for (unsigned r = g->first; r < g->first + g->n; r++) {
		const struct sl_weight *shared = row_of(plan, g, shared_row(plan, g, r));
		const struct sl_bound *routed = bound_of(plan, g, r, 0),
				      *own = bound_of(plan, g, shared_row(plan, g, r), 0);
		struct sl_matrix a = sl_logical_matrix(plan->model, row_of(plan, g, r), routed), b = { 0, 0 };
		if (own->storage)
			b = sl_logical_matrix(plan->model, shared, own);
		if (own->storage != routed->storage || a.rows != b.rows || a.cols != b.cols)
			return sl_fail(
				plan->err, EINVAL,
				"'%s' of layer %llu is to be the last of the routed experts, but is stored differently",
				shared->name, (unsigned long long)g->layer);
	}
	return 0;
}

/* "qkv_proj.weight_scale" of a linear layer, "w13_weight_scale" of experts; as stored where the engine does not fuse. */
static void component_name(const struct sl_plan *plan, const struct group *g, unsigned i, char *name)
{
	const struct sl_weight *row = row_of(plan, g, g->first);
	const struct sl_storage *storage = bound_of(plan, g, g->first, experts_of(plan, g).first)->storage;
	const char *module = module_name(plan->engine, row), *suffix = storage->components[i].stored;
	bool bare = (row->flags & SL_BARE) && storage == &sl_plain;
	char held[64];

	if (plan->engine->fused) {
		snprintf(held, sizeof(held), "%c%s", sl_is_expert(row) ? '_' : '.', storage->components[i].held);
		suffix = held;
	}
	tensor_name(plan, g, module, bare && !(plan->engine->fused && sl_is_expert(row)) ? "" : suffix, name);
}

static int add_components(struct sl_plan *plan, const struct group *g)
{
	const struct sl_storage *storage = bound_of(plan, g, g->first, experts_of(plan, g).first)->storage;
	char name[SL_MODULE_NAME_MAX];

	if (plan->engine->fused && (row_of(plan, g, g->first)->flags & SL_DEQUANTISED)) {
		tensor_name(plan, g, module_name(plan->engine, row_of(plan, g, g->first)), ".weight", name);
		return add_dequantised(plan, g, name);
	}
	int ret = 0;
	if (sl_is_expert(row_of(plan, g, g->first)) && fuses_shared(plan, g))
		ret = check_shared(plan, g);
	for (unsigned i = 0; i < storage->n_components && !ret; i++) {
		if (!holds_component(plan, g, i))
			continue;
		component_name(plan, g, i, name);
		if (row_of(plan, g, g->first)->flags & SL_IS_EMBED)
			embedding_name(plan, g, name);
		ret = add_component(plan, g, i, name);
	}
	return ret;
}

/* Rows of each matrix of a module, for a rank: one for each segment of each row. */
static int find_widths(struct sl_plan *plan, const struct group *g, struct sl_module *module)
{
	uint64_t expert = experts_of(plan, g).first;

	for (unsigned r = g->first; r < g->first + g->n; r++) {
		const struct sl_weight *row = row_of(plan, g, r);
		const struct sl_bound *bound = bound_of(plan, g, r, expert);
		struct sl_share share;
		int ret = find_row_share(plan, stack_of(plan, g), row, bound->storage,
					 sl_logical_matrix(plan->model, row, bound), &share);
		if (ret)
			return ret;
		module->finer = share.finer;
		module->columns = share.cols.n + share.cols.zero;
		for (unsigned s = 0; s < share.n && module->n_widths < SL_COUNT(module->widths); s++)
			module->widths[module->n_widths++] = share.rows[s].n + share.rows[s].zero;
	}
	return 0;
}

/* Remember what the tensors from `first` on belong to, for who processes them. */
static int note_module(struct sl_plan *plan, const struct group *g, uint32_t first)
{
	const struct sl_bound *bound = bound_of(plan, g, g->first, experts_of(plan, g).first);
	struct sl_module module = { .first = first,
				    .n = plan->n_tensors - first,
				    .storage = bound->storage,
				    .row = row_of(plan, g, g->first),
				    .quant = &plan->model->quant,
				    .part = stack_of(plan, g)->part,
				    .layer = g->layer,
				    .fixed = sl_has_input_scale(plan->model, bound) };

	if (!plan->engine->choices || module.n == 0 || !module.storage)
		return 0;
	if (plan->n_modules == plan->room_modules) {
		uint32_t room = plan->room_modules ? 2 * plan->room_modules : 256;
		struct sl_module *grown = sl_arena_array(&plan->view->arena, room, sizeof(*grown));
		if (!grown)
			return sl_fail(plan->err, ENOMEM, "out of memory");
		if (plan->n_modules)
			memcpy(grown, plan->modules, plan->n_modules * sizeof(*grown));
		plan->modules = grown;
		plan->room_modules = room;
	}
	int ret = module.row->in == SL_NO_AXIS ? 0 : find_widths(plan, g, &module);
	plan->modules[plan->n_modules++] = module;
	return ret;
}

static int add_tensors(struct sl_plan *plan, const struct group *g)
{
	const char *module = module_name(plan->engine, row_of(plan, g, g->first));
	char name[SL_MODULE_NAME_MAX];

	if (!is_held(plan, g))
		return 0;
	if (!bound_of(plan, g, g->first, experts_of(plan, g).first)->storage) {
		tensor_name(plan, g, module, "", name);
		return add_indices(plan, g, name);
	}
	int ret = add_components(plan, g);
	if (ret || !sl_bound_bias(plan->model, bound_of(plan, g, g->first, g->expert)))
		return ret;
	tensor_name(plan, g, module, ".bias", name);
	return add_bias(plan, g, name);
}

/* Is a module's largest value looked for in all ranks' shares when it is quantised on the way (vLLM 0.32, quantization/online/)? */
static bool wants_whole(const struct sl_plan *plan, const struct group *g)
{
	const struct sl_weight *row = row_of(plan, g, g->first);
	enum sl_online online = plan->view->layout.online;

	return plan->tp > 1 && sl_module_kind(row) != SL_OTHER &&
	       (online == SL_ONLINE_TENSOR || (online == SL_ONLINE_CHANNEL && row->role == SL_ROW));
}

/* The matrix of which this rank has a share, as a tensor "NAME@all" beside that: for who processes it. */
static int add_whole(struct sl_plan *plan, const struct group *g)
{
	struct sl_layout *layout = &plan->view->layout, own = *layout;
	unsigned rank = plan->rank;
	char name[SL_MODULE_NAME_MAX];

	component_name(plan, g, 0, name);
	sl_name_append(name, strlen(name), "@all");
	layout->tp = 1;
	plan->rank = 0;
	int ret = add_component(plan, g, 0, name);
	*layout = own;
	plan->rank = rank;
	return ret;
}

static int add_one(struct sl_plan *plan, const struct group *g)
{
	uint32_t first = plan->n_tensors;
	int ret = add_tensors(plan, g);

	if (!ret && plan->n_tensors > first && wants_whole(plan, g))
		ret = add_whole(plan, g);
	return ret ? ret : note_module(plan, g, first);
}

/* A module, or in an engine that holds experts apart each of the rank's. */
static int add_module(struct sl_plan *plan, struct group *g)
{
	struct sl_range experts;
	int ret = 0;

	g->apart = !plan->engine->fused && strstr(row_of(plan, g, g->first)->name, "%e");
	if (!g->apart)
		return add_one(plan, g);
	experts = sl_rank_experts(&plan->view->layout, plan->model->config.dims[stack_of(plan, g)->part].experts,
				  plan->rank);
	for (uint64_t e = 0; e < experts.n && !ret; e++) {
		g->expert = sl_expert_at(&plan->view->layout, experts, plan->rank, e);
		ret = add_one(plan, g);
	}
	g->expert = 0;
	return ret;
}

/* The scales of the KV cache that a scheme's attention layers have: as stored, or the value they have until then. */
static int add_cache_scale(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn,
			   const struct sl_cache_scale *scale)
{
	char name[SL_MODULE_NAME_MAX], suffix[64];
	struct sl_stored_scale found;
	uint64_t one = 1;

	sl_cache_scale_find(plan->model, stack_of(plan, g), attn, g->layer, scale->stored, &found);
	snprintf(suffix, sizeof(suffix), ".%s", scale->name);
	tensor_name(plan, g, attn->name, suffix, name);
	int ret = sl_plan_tensor(plan, name, scale->as_model ? sl_plan_float(plan) : SL_F32);
	if (!ret)
		ret = found.tensor ? sl_plan_whole(plan, found.tensor) : sl_plan_fill(plan, scale->value, 1);
	return ret ? ret : sl_plan_shape(plan, &one, scale->vector ? 1 : 0);
}

static int add_cache_scales(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn)
{
	const struct sl_scheme *scheme = plan->model->quant.scheme;
	int ret = 0;

	for (unsigned i = 0; (!attn->own_class || scheme->cache_scales_of_mla) && i < scheme->n_cache_scales && !ret;
	     i++)
		ret = add_cache_scale(plan, g, attn, &scheme->cache_scales[i]);
	return ret;
}

/* The four scale buffers of an attention layer, which vLLM keeps in its state: F32, no dimension, 1.0 (attention.py). */
static int add_kv_buffers(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn)
{
	static const char *const buffers[] = { "._k_scale", "._v_scale", "._q_scale", "._prob_scale" };
	char name[SL_MODULE_NAME_MAX];
	int ret = 0;

	for (size_t i = 0; i < SL_COUNT(buffers) && !ret; i++) {
		tensor_name(plan, g, attn->name, buffers[i], name);
		ret = sl_plan_tensor(plan, name, SL_F32);
		if (!ret)
			ret = sl_plan_fill(plan, 1, 1);
		if (!ret)
			ret = sl_plan_shape(plan, NULL, 0);
	}
	return ret ? ret : add_cache_scales(plan, g, attn);
}

/* One of a layer's stored cache scales, under its own name; a name that several scales have is there once. */
static int add_stored_scale(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn,
			    const struct sl_stored_scale *found)
{
	char name[SL_MODULE_NAME_MAX], suffix[64];

	snprintf(suffix, sizeof(suffix), ".%.*s", (int)found->len, found->name);
	tensor_name(plan, g, attn->stored, suffix, name);
	for (uint32_t i = plan->n_tensors; i > 0 && plan->tensors[i - 1].section == plan->section; i--) {
		if (strcmp(plan->tensors[i - 1].name, name) == 0)
			return 0;
	}
	int ret = sl_plan_tensor(plan, name, found->tensor->dtype);
	if (!ret)
		ret = sl_plan_whole(plan, found->tensor);
	return ret ? ret : sl_plan_shape(plan, found->tensor->shape, found->tensor->n_dims);
}

static int add_stored_scales(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn)
{
	const struct sl_scheme *scheme = plan->model->quant.scheme;
	struct sl_stored_scale found;
	int ret = 0;

	for (unsigned i = 0; i < scheme->n_cache_scales; i++) {
		const char *names = scheme->cache_scales[i].stored;
		while (!ret && sl_cache_scale_find(plan->model, stack_of(plan, g), attn, g->layer, names, &found)) {
			ret = add_stored_scale(plan, g, attn, &found);
			names = found.name + found.len;
		}
	}
	return ret;
}

/* One cache scale of SGLang's, which is 1 when the checkpoint has none: others are refused. */
static int add_sglang_scale(struct sl_plan *plan, const struct group *g, const char *module,
			    const struct sl_cache_scale *scale)
{
	char name[SL_MODULE_NAME_MAX], suffix[64];

	snprintf(suffix, sizeof(suffix), ".%s", scale->name);
	tensor_name(plan, g, module, suffix, name);
	int ret = sl_plan_tensor(plan, name, SL_F32);
	if (!ret)
		ret = sl_plan_fill(plan, scale->value, 1);
	return ret ? ret : sl_plan_shape(plan, NULL, 0);
}

static int add_sglang_scales(struct sl_plan *plan, const struct group *g, const struct sl_attention *attn)
{
	const struct sl_scheme *scheme = plan->model->quant.scheme;
	char module[128];
	int ret = 0;

	for (const char *at = attn->sglang; at && *at && !ret; at += strcspn(at, "|"), at += *at == '|') {
		snprintf(module, sizeof(module), "%.*s", (int)strcspn(at, "|"), at);
		for (unsigned i = 0; i < scheme->n_after && !ret; i++)
			ret = add_sglang_scale(plan, g, module, &scheme->after[i]);
	}
	return ret;
}

static int add_attentions(struct sl_plan *plan, const struct group *g)
{
	const struct sl_stack *stack = stack_of(plan, g);
	int ret = 0;

	for (unsigned i = 0; i < SL_ATTNS_MAX && !ret; i++) {
		const struct sl_attention *attn = &stack->attns[i];
		if (attn->name && !plan->engine->weights_only &&
		    (!attn->when || attn->when(&plan->model->config, stack->part, g->layer)))
			ret = plan->engine->kv_buffers ? add_kv_buffers(plan, g, attn)
			      : plan->engine->sglang   ? add_sglang_scales(plan, g, attn)
						       : add_stored_scales(plan, g, attn);
	}
	return ret;
}

/* ---- one layer, all layers ---- */

/* Rows of one module follow one another in a stack's table. */
static unsigned group_size(const struct sl_engine *engine, const struct sl_stack *stack, unsigned first)
{
	unsigned n = 1;

	while (engine->fused && first + n < stack->n_weights &&
	       sl_are_fused(sl_row_in(engine, &stack->weights[first]), sl_row_in(engine, &stack->weights[first + n])))
		n++;
	return n;
}

static int add_layer(struct sl_plan *plan, unsigned stack, uint64_t layer)
{
	struct group g = { .stack = stack, .layer = layer };
	const struct sl_stack *s = stack_of(plan, &g);
	int ret = 0;

	for (; g.first < s->n_weights && !ret; g.first += g.n) {
		g.n = group_size(plan->engine, s, g.first);
		ret = add_module(plan, &g);
	}
	return ret ? ret : add_attentions(plan, &g);
}

/* Sections: what is before the layers, each layer, what is after them. */
static int add_stack(struct sl_plan *plan, unsigned stack)
{
	const struct sl_stack *s = &plan->model->arch->stacks[stack];
	struct sl_range layers = { 0, sl_stack_layers(plan->model, s), 0 };
	int ret = 0;

	if (s->pipelined)
		layers = (plan->engine->stage_layers ? plan->engine->stage_layers : sl_stage_layers)(
			layers.n, plan->view->layout.pp, plan->view->stage);
	for (uint64_t l = layers.first; l < layers.first + layers.n && !ret; l++) {
		plan->section += s->pipelined;
		ret = add_layer(plan, stack, l);
	}
	plan->section += s->pipelined;
	return ret;
}

/* Layers that follow the last one; what they are made of is for whoever loads them to know. */
static int add_drafts(struct sl_plan *plan)
{
	int ret = 0;

	plan->section++;
	for (uint32_t i = 0; i < plan->model->n_drafts && !ret; i++) {
		const struct sl_tensor *t = &plan->model->shards.tensors[plan->model->drafts[i]];
		ret = sl_plan_stored(plan, t->name, t, &(struct sl_cut){ .axis = -1 });
	}
	return ret;
}

int sl_plan_stacks(struct sl_plan *plan)
{
	int ret = 0;

	for (unsigned s = 0; s < plan->model->arch->n_stacks && !ret; s++)
		ret = add_stack(plan, s);
	if (!ret && plan->engine->drafts)
		ret = add_drafts(plan);
	return ret;
}

static int make_plan(struct sl_plan *plan)
{
	const struct sl_engine *engine = plan->engine;
	int ret = engine->plan ? engine->plan(plan) : sl_plan_stacks(plan);

	if (!ret)
		ret = engine->container->lay(plan);
	return ret || !engine->beside ? ret : engine->beside(plan);
}

static int check_request(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			 unsigned stage, unsigned rank, struct sl_error *err)
{
	int ret = sl_layout_check(model, engine, layout, err);

	if (!ret && (rank >= layout->tp || stage >= layout->pp))
		ret = sl_fail(err, EINVAL, "rank %u of %u, stage %u of %u: there is no such rank", rank, layout->tp,
			      stage, layout->pp);
	return ret;
}

static uint64_t part_size(const struct sl_engine *engine, const struct sl_view_options *options)
{
	if (engine->undivided)
		return UINT64_MAX;
	if (options && options->part_bytes)
		return options->part_bytes;
	return engine->part_bytes ? engine->part_bytes : UINT64_C(512) << 20;
}

int sl_view_open(struct sl_view **out, const struct sl_model *model, const struct sl_engine *engine,
		 const struct sl_layout *layout, unsigned stage, unsigned rank, const struct sl_view_options *options,
		 struct sl_error *err)
{
	struct sl_error local = SL_ERROR_INIT;
	struct sl_plan plan = {
		.model = model,
		.engine = engine,
		.tp = layout->tp,
		.rank = rank,
		.expected = model->shards.n_tensors,
		.err = err ? err : &local,
	};

	*out = NULL;
	plan.gpu = layout->gpu		     ? (enum sl_gpu)(layout->gpu - 1)
		   : options && options->gpu ? (enum sl_gpu)(options->gpu - 1)
					     : SL_SM90;
	plan.part_bytes = part_size(engine, options);
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
	sl_plan_release(&plan);
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
