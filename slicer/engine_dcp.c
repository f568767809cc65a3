/*
 * engine_dcp.c - torch.distributed.checkpoint's safetensors storage: blocks of the stored tensors under their own names, with
 * where each begins in the whole (torch 2.13, hf_storage.py, _hf_utils.py).
 *
 *      shard-00002-model-00001-of-00003.safetensors
 *      "__metadata__": {"DCP_SHARDING_INFO": "{\"lm_head.weight\": {\"saved_offsets\": [256, 0]}, …}", …}
 *
 * Its reader puts blocks together again, whatever their number and sizes. So a tensor is cut where a rank's share is one
 * block of it; what is not (q, k and v in one matrix), and what ranks do not share, is in the first rank's file alone, as is
 * a block that several ranks have in the first of theirs. Everything that the checkpoint stores is there once.
 */
#include "slicer/plan.h"
#include "slicer/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY = 96 }; /* about the bytes of what is said of a tensor */

/* How a tensor of a row is cut, and whether it is in another rank's file: the same for all of that shape, as experts are. */
struct decision {
	const struct sl_weight *row;
	const struct sl_storage *storage;
	const struct sl_tensor *tensor;
	struct sl_cut cut;
	bool elsewhere;
};

struct walk {
	struct sl_plan *plan;
	bool *claimed;				     /* per stored tensor: a module has it */
	struct decision last[SL_COMPONENTS_MAX + 1]; /* per component, and the bias */
};

/* What a module's tensor is to be cut by. */
struct source {
	const struct sl_stack *stack;
	const struct sl_weight *row;
	const struct sl_bound *bound;
	const struct sl_component *component; /* NULL: the bias */
	const struct sl_tensor *tensor;
};

/* A range of a stored matrix's first or second axis as a cut of the tensor, of which the matrix is one expert where it has
 * all of them. The second axis may be several taken as one: then a range that ends inside the later ones is no block. */
static void cut_axis(const struct sl_tensor *tensor, bool second, bool stacked, struct sl_range range,
		     struct sl_cut *cut)
{
	int axis = second + stacked;
	uint64_t inner = 1;

	for (int d = axis + 1; second && d < tensor->n_dims; d++)
		inner *= tensor->shape[d];
	if (axis < tensor->n_dims && inner && range.first % inner == 0 && range.n % inner == 0)
		*cut = (struct sl_cut){ axis, range.first / inner, range.n / inner };
}

static int share_of(const struct sl_plan *plan, const struct source *s, const struct sl_weight *row,
		    const struct sl_storage *storage, struct sl_matrix m, unsigned rank, struct sl_share *share)
{
	return sl_share_of(plan->model, plan->engine, &plan->view->layout, s->stack->part, row, storage, m, rank,
			   plan->gpu, share, plan->err);
}

/* A bias is a vector of the module's rows; that of a row-parallel module is whole. */
static int cut_bias(const struct sl_plan *plan, const struct source *s, unsigned rank, struct sl_cut *cut)
{
	struct sl_weight vector = *s->row;
	struct sl_share share;

	vector.in = SL_NO_AXIS;
	if (vector.role == SL_ROW || vector.role == SL_WHOLE)
		return 0;
	int ret = share_of(plan, s, &vector, &sl_plain, (struct sl_matrix){ s->tensor->shape[0], 1 }, rank, &share);
	if (!ret && share.n == 1)
		*cut = (struct sl_cut){ 0, share.rows[0].first, share.rows[0].n };
	return ret;
}

/* Where one rank's block of a component lies; left whole when the rank's share is none. */
static int cut_component(const struct sl_plan *plan, const struct source *s, unsigned rank, struct sl_cut *cut)
{
	const struct sl_weight *row = s->row;
	const struct sl_tensor *t = s->tensor;
	bool turned = s->component->turned || ((row->flags & SL_CONV1D) && t->n_dims > 1);
	bool by_columns = row->role == SL_ROW;
	struct sl_matrix m = sl_logical_matrix(plan->model, row, s->bound), stored = sl_stored_matrix(t, row);
	unsigned i = (unsigned)(s->component - s->bound->storage->components);
	struct sl_units u = sl_units_of(plan->model, row, s->bound, i);
	struct sl_share share;
	struct sl_range range;

	if (row->role == SL_WHOLE || s->component->form != SL_MATRIX ||
	    sl_row_tp(plan->model, plan->engine, &plan->view->layout, s->stack->part, row) == 1)
		return 0;
	if (turned)
		stored = (struct sl_matrix){ stored.cols, stored.rows };
	int ret = share_of(plan, s, row, s->bound->storage, m, rank, &share);
	if (ret || share.n != 1)
		return ret;
	if (by_columns)
		ret = sl_to_units(share.cols, m.cols, u.in, stored.cols, "columns", &range, plan->err);
	else
		ret = sl_to_units(share.rows[0], m.rows, u.out, stored.rows, "rows", &range, plan->err);
	if (ret || !(by_columns ? u.in : u.out)) /* one element for the whole axis */
		return ret;
	cut_axis(t, by_columns != turned, (row->flags & SL_STACKED) != 0, range, cut);
	return 0;
}

static int cut_as_held(const struct sl_plan *plan, const struct source *s, unsigned rank, struct sl_cut *cut)
{
	*cut = (struct sl_cut){ .axis = -1 };
	return s->component ? cut_component(plan, s, rank, cut) : cut_bias(plan, s, rank, cut);
}

/* A tensor of which no rank holds the end, since no engine loads it, is left whole. */
static int cut_source(const struct sl_plan *plan, const struct source *s, unsigned rank, struct sl_cut *cut)
{
	int ret = cut_as_held(plan, s, plan->tp - 1, cut);

	if (ret || cut->axis < 0)
		return ret;
	if (cut->first + cut->n == s->tensor->shape[cut->axis])
		return cut_as_held(plan, s, rank, cut);
	*cut = (struct sl_cut){ .axis = -1 };
	return 0;
}

static bool is_decided(const struct decision *last, const struct source *s)
{
	const struct sl_tensor *a = last->tensor, *b = s->tensor;

	return last->row == s->row && last->storage == s->bound->storage && a->n_dims == b->n_dims &&
	       memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

static int decide(const struct sl_plan *plan, const struct source *s, struct decision *d)
{
	struct sl_cut before = { .axis = -1 };

	*d = (struct decision){ .row = s->row, .storage = s->bound->storage, .tensor = s->tensor };
	int ret = cut_source(plan, s, plan->rank, &d->cut);
	if (!ret && plan->rank > 0)
		ret = cut_source(plan, s, plan->rank - 1, &before);
	if (plan->rank > 0)
		d->elsewhere = d->cut.axis == before.axis && d->cut.first == before.first && d->cut.n == before.n;
	d->elsewhere |= d->cut.axis >= 0 && d->cut.n == 0;
	return ret;
}

static int add_tensor(struct walk *walk, const struct source *s)
{
	struct sl_plan *plan = walk->plan;
	struct decision *last =
		&walk->last[s->component ? s->component - s->bound->storage->components : SL_COMPONENTS_MAX];
	int ret = 0;

	if (!s->tensor || walk->claimed[s->tensor - plan->model->shards.tensors])
		return 0;
	walk->claimed[s->tensor - plan->model->shards.tensors] = true;
	if (!is_decided(last, s))
		ret = decide(plan, s, last);
	return ret || last->elsewhere ? ret : sl_plan_stored(plan, s->tensor->name, s->tensor, &last->cut);
}

static int add_module(struct walk *walk, struct source *s)
{
	const struct sl_model *model = walk->plan->model;
	int ret = 0;

	for (unsigned i = 0; s->bound->storage && i < s->bound->storage->n_components && !ret; i++) {
		s->component = &s->bound->storage->components[i];
		s->tensor = sl_bound_tensor(model, s->bound, i);
		ret = add_tensor(walk, s);
	}
	if (ret || !s->bound->storage)
		return ret;
	s->component = NULL;
	s->tensor = sl_bound_bias(model, s->bound);
	return add_tensor(walk, s);
}

static int add_layer(struct walk *walk, unsigned stack, uint64_t layer)
{
	const struct sl_model *model = walk->plan->model;
	struct source s = { .stack = &model->arch->stacks[stack] };
	int ret = 0;

	for (unsigned r = 0; r < s.stack->n_weights && !ret; r++) {
		uint64_t n = sl_row_modules(model, s.stack, &s.stack->weights[r]);
		s.row = &s.stack->weights[r];
		for (uint64_t e = 0; e < n && !ret; e++) {
			s.bound = sl_bound_at(model, stack, layer, r, e);
			ret = add_module(walk, &s);
		}
	}
	return ret;
}

static int add_stack(struct walk *walk, unsigned stack)
{
	const struct sl_stack *s = &walk->plan->model->arch->stacks[stack];
	uint64_t layers = sl_stack_layers(walk->plan->model, s);
	int ret = 0;

	for (uint64_t l = 0; l < layers && !ret; l++) {
		walk->plan->section += s->pipelined;
		ret = add_layer(walk, stack, l);
	}
	walk->plan->section += s->pipelined;
	return ret;
}

/* What no module has (drafts, tables that engines make themselves), once. */
static int add_others(struct walk *walk)
{
	const struct sl_shards *shards = &walk->plan->model->shards;
	const struct sl_cut whole = { .axis = -1 };
	int ret = 0;

	walk->plan->section++;
	for (uint32_t i = 0; i < shards->n_tensors && !ret && walk->plan->rank == 0; i++) {
		if (!walk->claimed[i])
			ret = sl_plan_stored(walk->plan, shards->tensors[i].name, &shards->tensors[i], &whole);
	}
	return ret;
}

int sl_dcp_plan(struct sl_plan *plan)
{
	struct walk walk = { .plan = plan, .claimed = calloc(plan->model->shards.n_tensors + 1u, sizeof(bool)) };
	int ret = walk.claimed ? 0 : sl_fail(plan->err, ENOMEM, "out of memory");

	for (unsigned s = 0; s < plan->model->arch->n_stacks && !ret; s++)
		ret = add_stack(&walk, s);
	if (!ret)
		ret = add_others(&walk);
	free(walk.claimed);
	return ret;
}

int sl_dcp_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		 struct sl_error *err)
{
	static const enum sl_dtype unknown[] = { SL_F4, SL_F6_E2M3, SL_F6_E3M2, SL_F8_E8M0 };

	for (size_t d = 0; d < SL_COUNT(unknown); d++) {
		uint32_t first = model->first_of[unknown[d]];
		if (first)
			return sl_fail(err, EINVAL, "tensor '%s' is %s, which torch's reader does not know",
				       SL_ESC(model->shards.tensors[first - 1].name), sl_dtypes[unknown[d]].name);
	}
	return sl_check_modules(model, engine, layout, err);
}

char *sl_dcp_name(const struct sl_plan *plan, uint32_t i, uint32_t n)
{
	return sl_arena_printf(&plan->view->arena, "shard-%05u-model-%05u-of-%05u.safetensors", plan->rank + 1, i + 1,
			       n);
}

/* Where a block begins in its tensor: the place of its first byte, axis by axis. */
static void write_offsets(struct sl_text *text, const struct sl_plan *plan, const struct sl_output *output)
{
	const struct sl_tensor *t = &plan->model->shards.tensors[output->stored - 1];
	uint32_t first = plan->first_piece[output - plan->tensors];
	uint64_t at = output->len ? (plan->pieces[first].src - t->off) * 8 / sl_dtypes[t->dtype].bits : 0, inner = 1;

	for (unsigned d = 1; d < t->n_dims; d++)
		inner *= t->shape[d];
	sl_text_add(text, "[", 1);
	for (unsigned d = 0; d < t->n_dims; d++) {
		sl_text_add(text, ", ", d ? 2 : 0);
		sl_text_u64(text, inner ? at / inner : 0);
		at = inner ? at % inner : 0;
		inner /= d + 1 < t->n_dims && t->shape[d + 1] ? t->shape[d + 1] : 1;
	}
	sl_text_add(text, "]", 1);
}

/* JSON inside a string of JSON. */
void sl_dcp_metadata(const struct sl_plan *plan, struct sl_output *const *tensors, uint32_t n, struct sl_text *text)
{
	struct sl_text info = SL_TEXT_INIT;

	sl_text_reserve(&info, (size_t)n * ENTRY);
	for (uint32_t i = 0; i < n; i++) {
		sl_text_put(&info, i ? ", " : "{");
		sl_text_json_string(&info, tensors[i]->name);
		sl_text_put(&info, ": {\"saved_offsets\": ");
		write_offsets(&info, plan, tensors[i]);
		sl_text_put(&info, "}");
	}
	sl_text_put(&info, "}");
	sl_text_put(text, "\"__metadata__\":{\"DCP_SHARDING_INFO\":");
	if (!info.failed)
		sl_text_json_string(text, info.bytes);
	text->failed |= info.failed;
	sl_text_put(text, ",\"DCP_VERSION\":\"1.0\",\"format\":\"pt\"}");
	sl_text_release(&info);
}
