/*
 * split.c - dividing axes, and refusing what does not divide, with the numbers and the layouts that work.
 */
#include "slicer/split.h"

#include "slicer/bind.h"
#include "slicer/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

unsigned sl_segments(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t size,
		     struct sl_segment segments[3])
{
	const struct sl_dims *d = &model->config.dims[part];

	if (row->out == SL_QKV) {
		uint64_t q = d->heads * d->head_dim, kv = sl_kv_heads(model, part, row, size) * d->head_dim;
		segments[0] = (struct sl_segment){ 0, q, SL_Q };
		segments[1] = (struct sl_segment){ q, kv, SL_KV };
		segments[2] = (struct sl_segment){ q + kv, kv, SL_KV };
		return 3;
	}
	if (row->out == SL_GATE_UP) {
		segments[0] = (struct sl_segment){ 0, size / 2, SL_INTER };
		segments[1] = (struct sl_segment){ size / 2, size / 2, SL_INTER };
		return 2;
	}
	segments[0] = (struct sl_segment){ 0, size, row->out };
	return 1;
}

static int split_evenly(uint64_t size, uint64_t unit, const char *what, unsigned tp, unsigned rank, struct sl_range *range,
			struct sl_error *err)
{
	uint64_t n = size / unit;

	if (n % tp)
		return sl_fail(err, EINVAL, "%llu %s do not divide by tp %u", (unsigned long long)n, what, tp);
	*range = (struct sl_range){ n / tp * rank * unit, n / tp * unit, 0 };
	return 0;
}

static int split_kv(uint64_t size, uint64_t head_dim, unsigned tp, unsigned rank, struct sl_range *range, struct sl_error *err)
{
	uint64_t heads = size / head_dim;

	if (heads >= tp || heads == 0)
		return split_evenly(size, head_dim, "kv heads", tp, rank, range, err);
	if (tp % heads)
		return sl_fail(err, EINVAL, "%llu kv heads neither divide by tp %u nor into it", (unsigned long long)heads, tp);
	*range = (struct sl_range){ rank / (tp / heads) * head_dim, head_dim, 0 };
	return 0;
}

int sl_split(const struct sl_model *model, enum sl_part part, const struct sl_segment *segment, unsigned tp, unsigned rank,
	     struct sl_range *range, struct sl_error *err)
{
	uint64_t head_dim = model->config.dims[part].head_dim;

	if (segment->dim == SL_Q)
		return split_evenly(segment->n, head_dim, "attention heads", tp, rank, range, err);
	if (segment->dim == SL_KV)
		return split_kv(segment->n, head_dim, tp, rank, range, err);
	return split_evenly(segment->n, 1, segment->dim == SL_INTER ? "intermediate rows" : "rows", tp, rank, range, err);
}

int sl_split_embedding(const struct sl_engine *engine, enum sl_dim dim, uint64_t rows, unsigned tp, unsigned rank,
		       struct sl_range *range, struct sl_error *err)
{
	uint64_t unit = engine->vocab_pad, padded, share;

	*range = (struct sl_range){ 0, rows, 0 };
	if (!unit) {
		if (dim == SL_VOCAB && rows % tp == 0)
			*range = (struct sl_range){ rows / tp * rank, rows / tp, 0 };
		return 0;
	}
	padded = (rows + unit - 1) / unit * unit;
	if (padded % tp)
		return sl_fail(err, EINVAL, "%llu embedding rows, padded to %llu, do not divide by tp %u", (unsigned long long)rows,
			       (unsigned long long)padded, tp);
	share = padded / tp;
	range->first = share * rank < rows ? share * rank : rows;
	range->n = rows - range->first < share ? rows - range->first : share;
	range->zero = share - range->n;
	return 0;
}

struct sl_range sl_stage_layers(uint64_t layers, unsigned stages, unsigned stage)
{
	uint64_t each = layers / stages, rest = layers % stages, first = 0;

	/* The last `rest` stages before the last one have one layer more. */
	for (unsigned s = 0; s < stage; s++)
		first += each + (s + 1 + rest >= stages && s + 1 < stages);
	return (struct sl_range){ first, each + (stage + 1 + rest >= stages && stage + 1 < stages), 0 };
}

unsigned sl_part_tp(const struct sl_engine *engine, enum sl_part part, unsigned tp)
{
	return engine->rank_dirs && part != SL_TEXT ? 1 : tp;
}

/* ---- which layouts a model can have ---- */

/* Does this row divide? The answer does not depend on the rank. */
static int check_row(const struct sl_model *model, const struct sl_engine *engine, unsigned tp, const struct sl_stack *stack,
		     const struct sl_weight *row, const struct sl_tensor *tensor, struct sl_error *err)
{
	struct sl_matrix m = sl_matrix_of(tensor, row);
	struct sl_segment segments[3] = { { 0, m.in, row->in } };
	struct sl_range range;
	unsigned n = 1;

	if (row->role == SL_WHOLE || (row->flags & SL_UNLOADED))
		return 0;
	if (row->role == SL_EMBEDDING)
		return sl_split_embedding(engine, row->out, m.out, tp, 0, &range, err);
	if (row->role == SL_COLUMN)
		n = sl_segments(model, stack->part, row, m.out, segments);
	for (unsigned i = 0; i < n; i++) {
		int ret = sl_split(model, stack->part, &segments[i], tp, 0, &range, err);
		if (ret)
			return ret;
	}
	return 0;
}

static int check_tp(const struct sl_model *model, const struct sl_engine *engine, unsigned tp, struct sl_error *err)
{
	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		const struct sl_stack *stack = &model->arch->stacks[s];
		uint64_t n = sl_stack_layers(model, stack) * stack->n_weights;
		for (uint64_t i = 0; i < n; i++) {
			const struct sl_tensor *tensor = model->bound[s][i].weight;
			const struct sl_weight *row = &stack->weights[i % stack->n_weights];
			int ret = tensor ? check_row(model, engine, sl_part_tp(engine, stack->part, tp), stack, row, tensor, err) : 0;
			if (ret)
				return sl_error_prefix(err, "%s", SL_ESC(tensor->name));
		}
	}
	return 0;
}

/* Everything about a layout but whether its tp divides. */
static int check_kind(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err)
{
	uint64_t layers = model->config.dims[SL_TEXT].layers;
	unsigned flags = model->arch->flags;

	if (layout->experts != SL_EXPERTS_SLICED)
		return sl_fail(err, EINVAL, "%s has no experts to spread", model->config.architecture);
	if (layout->pp > 1 && !engine->stages)
		return sl_fail(err, EINVAL, "%s has no pipeline stages: use tp alone", engine->name);
	if (layout->pp > 1 && (flags & SL_NO_STAGES))
		return sl_fail(err, EINVAL, "%s has no pipeline stages in %s", model->config.architecture, engine->title);
	if (layout->pp > layers)
		return sl_fail(err, EINVAL, "%llu layers are too few for %u pipeline stages", (unsigned long long)layers, layout->pp);
	if (layout->dtype == SL_F16 && engine->fused && (flags & SL_NO_F16))
		return sl_fail(err, EINVAL, "%s is not stable in F16, and the engine refuses it: use bf16 or f32",
			       model->config.architecture);
	if (layout->tp > 1 && engine->rank_dirs && (flags & SL_HEADS_FROM_HIDDEN))
		return sl_fail(err, EINVAL, "a config.json of %s cannot describe a slice (it has no head_dim): use %s/tp1, or tensors/tp%u",
			       model->config.architecture, engine->name, layout->tp);
	if (layout->tp > 1 && engine->rank_dirs && !model->config.dims[SL_TEXT].kv_heads)
		return sl_fail(err, EINVAL, "kv heads differ between layers: one config.json cannot describe a slice");
	return 0;
}

/* " (tp 1, 2, 4 and 8 work)": those up to 64. */
static void append_working(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			   struct sl_error *err)
{
	size_t len = strlen(err->text), room = sizeof(err->text) - len;
	struct sl_layout other = *layout;
	char list[256] = "";
	size_t n = 0, fill = 0;

	for (other.tp = 1; other.tp <= 64 && fill < sizeof(list) - 8; other.tp++) {
		struct sl_error quiet = SL_ERROR_INIT;
		if (check_tp(model, engine, other.tp, &quiet) == 0)
			fill += (size_t)snprintf(list + fill, sizeof(list) - fill, "%s%u", n++ ? ", " : "", other.tp);
	}
	if (n)
		snprintf(err->text + len, room, " (tp %s work%s)", list, n == 1 ? "s" : "");
}

int sl_layout_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	struct sl_error local = SL_ERROR_INIT;
	char name[SL_LAYOUT_NAME_MAX];

	if (!err)
		err = &local;
	int ret = check_kind(model, engine, layout, err);
	if (!ret) {
		ret = check_tp(model, engine, layout->tp, err);
		if (ret)
			append_working(model, engine, layout, err);
	}
	return ret ? sl_error_prefix(err, "%s/%s", engine->name, sl_layout_format(layout, name)) : 0;
}
