/*
 * split.c - dividing axes, and refusing what does not divide, with the numbers and the layouts that work.
 */
#include "slicer/split.h"

#include "slicer/bind.h"
#include "slicer/recipes/sizes.h"
#include "slicer/view.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/* To add a dimension that is several one after another: a row. */
static const struct {
	enum sl_dim dim;
	enum sl_dim parts[SL_SEGMENTS_MAX];
	unsigned n;
} composed[] = {
	{ SL_QKV,           { SL_Q, SL_KV, SL_KV },                    3 },
	{ SL_GATE_UP,       { SL_INTER, SL_INTER },                    2 },
	{ SL_MOE_GATE_UP,   { SL_MOE_INTER, SL_MOE_INTER },            2 },
	{ SL_LINEAR_QKV,    { SL_LINEAR_K, SL_LINEAR_K, SL_LINEAR_V }, 3 },
	{ SL_LEADING_HEADS, { SL_LINEAR_HEADS },                       1 },
};
/* clang-format on */

/* Rows of one part of a composed dimension whose whole size is `size`. */
static uint64_t part_size(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, enum sl_dim dim,
			  uint64_t size)
{
	const struct sl_dims *d = &model->config.dims[part];

	if (dim == SL_Q)
		return d->heads * d->head_dim;
	if (dim == SL_KV)
		return sl_kv_heads(model, part, row, size) * d->head_dim;
	if (dim == SL_LINEAR_K)
		return d->linear_k_heads * d->linear_k;
	if (dim == SL_LINEAR_V)
		return d->linear_v_heads * d->linear_v;
	if (dim == SL_LINEAR_HEADS)
		return d->linear_v_heads;
	return size / 2;
}

unsigned sl_segments(const struct sl_model *model, enum sl_part part, const struct sl_weight *row, uint64_t size,
		     struct sl_segment segments[SL_SEGMENTS_MAX])
{
	uint64_t first = 0;

	for (size_t i = 0; i < SL_COUNT(composed); i++) {
		if (composed[i].dim != row->out)
			continue;
		for (unsigned p = 0; p < composed[i].n; p++) {
			uint64_t n = part_size(model, part, row, composed[i].parts[p], size);
			segments[p] = (struct sl_segment){ first, n, composed[i].parts[p] };
			first += n;
		}
		return composed[i].n;
	}
	segments[0] = (struct sl_segment){ 0, size, row->out };
	return 1;
}

static int split_evenly(uint64_t size, uint64_t unit, const char *what, unsigned tp, unsigned rank,
			struct sl_range *range, struct sl_error *err)
{
	uint64_t n = size / unit;

	if (n % tp)
		return sl_fail(err, EINVAL, "%llu %s do not divide by tp %u", (unsigned long long)n, what, tp);
	*range = (struct sl_range){ n / tp * rank * unit, n / tp * unit, 0 };
	return 0;
}

/* Heads that are replicated when there are more ranks than heads. */
static int split_replicated(uint64_t size, uint64_t head_dim, const char *what, unsigned tp, unsigned rank,
			    struct sl_range *range, struct sl_error *err)
{
	uint64_t heads = size / head_dim;

	if (heads >= tp || heads == 0)
		return split_evenly(size, head_dim, what, tp, rank, range, err);
	if (tp % heads)
		return sl_fail(err, EINVAL, "%llu %s neither divide by tp %u nor into it", (unsigned long long)heads,
			       what, tp);
	*range = (struct sl_range){ rank / (tp / heads) * head_dim, head_dim, 0 };
	return 0;
}

/* clang-format off */
/* What a dimension divides into, where it is not single rows: units of so many rows, or so many units (fields of sl_dims).
 * To add one: a row. */
static const struct {
	enum sl_dim dim;
	const char *title;
	enum { ROWS_EACH, HOW_MANY } by;
	size_t field;
	bool replicated; /* when there are more ranks than units */
} units[] = {
	{ SL_Q,         "attention heads",    ROWS_EACH, offsetof(struct sl_dims, head_dim),        false },
	{ SL_KV,        "kv heads",           ROWS_EACH, offsetof(struct sl_dims, head_dim),        true },
	{ SL_GLOBAL_KV, "global kv heads",    ROWS_EACH, offsetof(struct sl_dims, global_head_dim), true },
	{ SL_INDEX_Q,   "index heads",        ROWS_EACH, offsetof(struct sl_dims, index_dim),       true },
	{ SL_BY_HEADS,  "attention heads",    HOW_MANY,  offsetof(struct sl_dims, heads),           false },
	{ SL_BY_GROUPS, "output groups",      HOW_MANY,  offsetof(struct sl_dims, out_groups),      false },
	{ SL_LINEAR_V,  "linear value heads", ROWS_EACH, offsetof(struct sl_dims, linear_v),        false },
	{ SL_LINEAR_BY_KEYS, "linear key heads", HOW_MANY, offsetof(struct sl_dims, linear_k_heads), false },
};
/* clang-format on */

static int split_units(const struct sl_dims *d, size_t u, uint64_t n, unsigned tp, unsigned rank,
		       struct sl_range *range, struct sl_error *err)
{
	uint64_t field = *(const uint64_t *)(const void *)((const char *)d + units[u].field);
	uint64_t size = units[u].by == ROWS_EACH ? field : field ? n / field : 0;

	if (!size || n % size)
		return sl_fail(err, EINVAL, "%llu rows are no whole number of %s", (unsigned long long)n,
			       units[u].title);
	if (units[u].replicated)
		return split_replicated(n, size, units[u].title, tp, rank, range, err);
	return split_evenly(n, size, units[u].title, tp, rank, range, err);
}

int sl_split(const struct sl_model *model, enum sl_part part, const struct sl_segment *segment, unsigned tp,
	     unsigned rank, struct sl_range *range, struct sl_error *err)
{
	const struct sl_dims *d = &model->config.dims[part];
	bool inter = segment->dim == SL_INTER || segment->dim == SL_MOE_INTER;

	if (segment->dim == SL_MOE_PAIRS)
		return split_evenly(segment->n, 2, "intermediate rows", tp, rank, range, err);
	for (size_t u = 0; u < SL_COUNT(units); u++) {
		if (units[u].dim == segment->dim)
			return split_units(d, u, segment->n, tp, rank, range, err);
	}
	return split_evenly(segment->n, 1, inter ? "intermediate rows" : "rows", tp, rank, range, err);
}

int sl_to_units(struct sl_range logical, uint64_t size, uint64_t unit, uint64_t stored, const char *what,
		struct sl_range *range, struct sl_error *err)
{
	uint64_t end = logical.first + logical.n;

	if (unit == 0) {
		*range = (struct sl_range){ 0, stored, 0 };
		return 0;
	}
	if (logical.first % unit || (end % unit && end != size))
		return sl_fail(err, EINVAL, "a share of %llu %s is no whole number of blocks of %llu",
			       (unsigned long long)logical.n, what, (unsigned long long)unit);
	*range = (struct sl_range){ logical.first / unit, (end + unit - 1) / unit - logical.first / unit,
				    (logical.zero + unit - 1) / unit };
	return 0;
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
		return sl_fail(err, EINVAL, "%llu embedding rows, padded to %llu, do not divide by tp %u",
			       (unsigned long long)rows, (unsigned long long)padded, tp);
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

bool sl_are_fused(const struct sl_weight *a, const struct sl_weight *b)
{
	return a->fused && b->fused && a->when == b->when && !((a->flags ^ b->flags) & SL_INSTEAD) &&
	       strcmp(a->fused, b->fused) == 0;
}

const struct sl_weight *sl_row_in(const struct sl_engine *engine, const struct sl_weight *row)
{
	return engine->sglang && row->sglang ? row->sglang : row;
}

/* Not where experts are spread: then each rank would have it (SGLang, shared_experts_fusion_disable_reason). */
bool sl_fuses_shared(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     enum sl_part part)
{
	return engine->sglang && (layout->experts == SL_EXPERTS_SLICED || layout->tp == 1) &&
	       model->arch->fuses_shared && model->arch->fuses_shared(&model->config, part, 0);
}

bool sl_is_expert(const struct sl_weight *row)
{
	return (row->flags & SL_STACKED) || strstr(row->name, "%e");
}

unsigned sl_row_tp(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		   enum sl_part part, const struct sl_weight *row)
{
	if (part == SL_VISION && (engine->rank_configs || model->config.dims[part].heads % layout->tp))
		return 1;
	return sl_is_expert(row) && layout->experts != SL_EXPERTS_SLICED ? 1 : layout->tp;
}

struct sl_range sl_rank_experts(const struct sl_layout *layout, uint64_t experts, unsigned rank)
{
	uint64_t each = experts / layout->tp, rest = experts % layout->tp;

	if (layout->experts == SL_EXPERTS_SLICED)
		return (struct sl_range){ 0, experts, 0 };
	return (struct sl_range){ each * rank + (rank < rest ? rank : rest), each + (rank < rest), 0 };
}

uint64_t sl_expert_at(const struct sl_layout *layout, struct sl_range experts, unsigned rank, uint64_t i)
{
	return layout->experts == SL_EXPERTS_ROUND_ROBIN ? rank + i * layout->tp : experts.first + i;
}

/* ---- shares ---- */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return unit > 1 ? (n + unit - 1) / unit * unit : n;
}

/* Whole granules to each rank, the last ones may have fewer (vLLM, gpt_oss.py). `unit` rows stand for one of the dimension. */
static void split_granules(uint64_t size, uint64_t unit, uint64_t granule, unsigned tp, unsigned rank,
			   struct sl_range *range)
{
	uint64_t n = size / unit, share = (((n + granule - 1) / granule) + tp - 1) / tp * granule;
	uint64_t first = share * rank < n ? share * rank : n, end = first + share < n ? first + share : n;

	*range = (struct sl_range){ first * unit, (end - first) * unit, 0 };
}

/* One axis of a matrix: who shares it and how. */
static int share_axis(const struct sl_model *model, enum sl_part part, const struct sl_segment *segment,
		      const struct sl_storage *storage, unsigned tp, unsigned rank, struct sl_range *range,
		      struct sl_error *err)
{
	bool inter = segment->dim == SL_MOE_INTER || segment->dim == SL_MOE_PAIRS;
	unsigned unit = segment->dim == SL_MOE_PAIRS ? 2 : 1;

	if (!storage->granule || !inter || tp == 1)
		return sl_split(model, part, segment, tp, rank, range, err);
	if (segment->n % (tp * unit)) /* not that shares were even (gpt_oss.py asserts it) */
		return sl_fail(err, EINVAL, "%llu intermediate rows do not divide by tp %u",
			       (unsigned long long)(segment->n / unit), tp);
	split_granules(segment->n, unit, storage->granule, tp, rank, range);
	return 0;
}

/* Zeros behind an axis of experts: the kernel's unit of what each rank would have if it divided evenly. */
static void pad_axis(enum sl_dim dim, const struct sl_padding *padding, uint64_t size, unsigned tp,
		     struct sl_range *range)
{
	uint64_t even = (size + tp - 1) / tp, to = even;

	if (dim == SL_MOE_INTER)
		to = round_up(even, padding->inter);
	else if (dim == SL_MOE_PAIRS)
		to = round_up(even, 2u * padding->inter);
	else
		to = round_up(size, padding->hidden);
	range->zero = to > range->n ? to - range->n : 0;
}

/* Zeros behind a share that is less than the kernel's least (kimi_k3/nvidia/model.py, KimiMoE). */
static void fill_up(const struct sl_weight *row, struct sl_share *share)
{
	struct sl_range *axis = row->role == SL_ROW ? &share->cols : &share->rows[0];

	if (axis->n + axis->zero < row->least)
		axis->zero = row->least - axis->n;
}

static bool has_blocks(const struct sl_storage *storage)
{
	for (unsigned i = 0; i < storage->n_components; i++) {
		if (storage->components[i].out == SL_UNIT_BLOCK)
			return true;
	}
	return false;
}

/* The MoE backend that vLLM is started with. But for Triton's, those that are named differ in nothing here. */
static const char *moe_backend(const struct sl_engine *engine, const struct sl_layout *layout)
{
	if (engine->picks_kernels && layout->kernels == SL_KERNELS_TRITON)
		return "triton";
	return layout->padded || (engine->picks_kernels && layout->kernels != SL_KERNELS_AUTO) ? "marlin" : "auto";
}

/* Experts whose share is no whole number of blocks: their scales become finer, or the ranks share whole blocks, and what the
 * last ones lack is padding (vLLM, routed_experts.py, _load_model_weight_or_group_weight_scale). `size` is the whole axis. */
static int fit_blocks(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		      const struct sl_weight *row, uint64_t size, unsigned tp, unsigned rank, struct sl_share *share,
		      struct sl_error *err)
{
	struct sl_range *axes = row->role == SL_ROW ? &share->cols : share->rows;
	const uint64_t *block = model->quant.block;
	const struct sl_moe_shape shape = {
		.inter = size,
		.hidden = row->role == SL_ROW ? share->rows[0].n : share->cols.n,
		.inter_rank = axes[0].n,
		.tp = tp,
		.block = { block[0], block[1] },
		.backend = moe_backend(engine, layout),
	};

	if (!block[0] || block[0] != block[1])
		return 0;
	struct sl_moe_blocks fit = sl_moe_block_shape(&shape);
	if (fit.refused)
		return sl_fail(
			err, EINVAL,
			"experts of %llu x %llu in blocks of %llu cannot be padded to whole ones for each rank, and vLLM refuses them with a MoE backend that needs that",
			(unsigned long long)size, (unsigned long long)shape.hidden, (unsigned long long)block[0]);
	if (fit.refine[0])
		share->finer = (unsigned)fit.refine[0];
	share->padded = fit.padded;
	for (unsigned i = 0; fit.padded && i < (row->role == SL_ROW ? 1 : share->n); i++) {
		uint64_t first = rank * fit.inter_rank < size ? rank * fit.inter_rank : size;
		uint64_t n = size - first < fit.inter_rank ? size - first : fit.inter_rank;
		axes[i] = (struct sl_range){ first, n, fit.inter_rank - n };
	}
	return 0;
}

int sl_share_of(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		enum sl_part part, const struct sl_weight *row, const struct sl_storage *storage, struct sl_matrix m,
		unsigned rank, enum sl_gpu gpu, struct sl_share *share, struct sl_error *err)
{
	unsigned tp = sl_row_tp(model, engine, layout, part, row);
	const struct sl_padding *padding = &storage->padding[gpu];
	struct sl_segment segments[SL_SEGMENTS_MAX], columns = { 0, m.cols, row->in };
	bool padded = engine->fused && sl_is_expert(row) && padding->inter;
	int ret = 0;

	rank = tp > 1 ? rank : 0;
	share->n = sl_segments(model, part, row, m.rows, segments);
	share->cols = (struct sl_range){ 0, m.cols, 0 };
	share->is_first = rank == 0;
	share->padded = false;
	share->finer = 1;
	if (row->role == SL_ROW)
		ret = share_axis(model, part, &columns, storage, tp, rank, &share->cols, err);
	if (padded)
		pad_axis(row->in, padding, m.cols, row->role == SL_ROW ? tp : 1, &share->cols);
	for (unsigned i = 0; i < share->n && !ret; i++) {
		share->rows[i] = (struct sl_range){ 0, segments[i].n, 0 };
		if (row->role == SL_COLUMN)
			ret = share_axis(model, part, &segments[i], storage, tp, rank, &share->rows[i], err);
		else if (row->role == SL_EMBEDDING)
			ret = sl_split_embedding(engine, row->out, m.rows, tp, rank, &share->rows[i], err);
		if (padded)
			pad_axis(segments[i].dim, padding, segments[i].n, row->role == SL_COLUMN ? tp : 1,
				 &share->rows[i]);
	}
	if (!ret && engine->finer_blocks && sl_is_expert(row) && has_blocks(storage))
		ret = fit_blocks(model, engine, layout, row, row->role == SL_ROW ? m.cols : segments[0].n, tp, rank,
				 share, err);
	for (unsigned i = 0; i < share->n; i++)
		share->rows[i].first += segments[i].first;
	if (engine->fused && row->least && tp > 1)
		fill_up(row, share);
	if (engine->fused && row->pad && !ret)
		share->rows[share->n - 1].zero =
			round_up(share->rows[share->n - 1].n, row->pad) - share->rows[share->n - 1].n;
	return ret;
}

struct sl_units sl_share_units(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
			       unsigned component, const struct sl_share *share)
{
	struct sl_units u = sl_units_of(model, row, bound, component);

	if (bound->storage->components[component].out == SL_UNIT_BLOCK) {
		u.out /= share->finer;
		u.in /= share->finer;
	}
	return u;
}

/* ---- which layouts a model can have ---- */

/* Do a share's rows and columns cut no unit of any component? The last unit of rows may be a part of one, but not where rows
 * of another module follow: `joined`. */
static int check_units(const struct sl_model *model, const struct sl_weight *row, const struct sl_bound *bound,
		       const struct sl_share *share, bool joined, struct sl_error *err)
{
	struct sl_matrix m = sl_logical_matrix(model, row, bound);
	struct sl_range range;
	int ret = 0;

	for (unsigned i = 0; !ret && i < bound->storage->n_components; i++) {
		if (bound->storage->components[i].form != SL_MATRIX || !bound->tensors[i])
			continue;
		struct sl_units u = sl_share_units(model, row, bound, i, share);
		ret = sl_to_units(share->cols, m.cols, u.in, 1, "columns", &range, err);
		for (unsigned s = 0; s < share->n && !ret; s++)
			ret = sl_to_units(share->rows[s], joined ? 0 : m.rows, u.out, 1, "rows", &range, err);
	}
	return ret;
}

/* Does the engine hold experts of this size, in these groups, as they are stored? */
static int check_kernel(const struct sl_model *model, const struct sl_engine *engine, const struct sl_weight *row,
			const struct sl_bound *bound, struct sl_error *err)
{
	const struct sl_storage *s = bound->storage;
	struct sl_matrix m = sl_logical_matrix(model, row, bound);
	uint64_t hidden = row->role == SL_ROW ? m.rows : m.cols, group = 0;

	if (!s->hidden_unit || !sl_is_expert(row))
		return 0;
	if (hidden % s->hidden_unit)
		return sl_fail(
			err, EINVAL,
			"vLLM holds experts of %s in another layout where the hidden size, %llu, is no multiple of %u",
			s->name, (unsigned long long)hidden, s->hidden_unit);
	for (unsigned i = 0; i < s->n_components; i++) {
		if (s->components[i].form == SL_INPUTS && engine->keeps_dropped)
			return sl_fail(err, EINVAL, "%s: how it holds experts of %s is not known: use %s/",
				       engine->name, s->name, sl_engines[SL_VLLM].name);
		if (s->components[i].in == SL_UNIT_GROUP)
			group = sl_units_of(model, row, bound, i).in;
	}
	if (!group || group == s->groups[0] || group == s->groups[1] || group == s->groups[2])
		return 0;
	return sl_fail(err, EINVAL,
		       "vLLM holds experts of %s in another layout where groups have %llu columns, not %u, %u or %u",
		       s->name, (unsigned long long)group, s->groups[0], s->groups[1], s->groups[2]);
}

/* Does this module divide? Rank 0 shows it: the shares are alike. */
static int check_module(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			enum sl_part part, const struct sl_weight *row, const struct sl_bound *bound, bool joined,
			struct sl_error *err)
{
	struct sl_share share;

	if ((row->role == SL_WHOLE && !joined) || (row->flags & SL_UNLOADED))
		return 0;
	int ret = engine->fused ? check_kernel(model, engine, row, bound, err) : 0;
	if (!ret)
		ret = sl_share_of(model, engine, layout, part, row, bound->storage,
				  sl_logical_matrix(model, row, bound), 0, SL_SM90, &share, err);
	if (!ret && share.padded && sl_bound_bias(model, bound))
		return sl_fail(err, EINVAL, "vLLM does not pad experts that have a bias");
	return ret ? ret : check_units(model, row, bound, &share, joined, err);
}

/* Rows of one module are stored alike, or there is no one matrix of them. */
static int check_alike(const struct sl_model *model, unsigned s, uint64_t layer, unsigned r, struct sl_error *err)
{
	const struct sl_weight *rows = model->arch->stacks[s].weights;
	const struct sl_bound *one = sl_bound_at(model, s, layer, r, 0),
			      *other = sl_bound_at(model, s, layer, r + 1, 0);

	if (other->storage != one->storage)
		return sl_fail(err, EINVAL,
			       "'%s' and '%s' of layer %llu are to be one matrix, but are stored differently (%s, %s)",
			       rows[r].name, rows[r + 1].name, (unsigned long long)layer, one->storage->name,
			       other->storage ? other->storage->name : "not at all");
	for (unsigned i = 1; i < one->storage->n_components; i++) {
		if (one->storage->components[i].need != SL_DROPPED && !one->tensors[i] != !other->tensors[i])
			return sl_fail(err, EINVAL,
				       "'%s' and '%s' of layer %llu are to be one matrix, but only one has a '%s'",
				       rows[r].name, rows[r + 1].name, (unsigned long long)layer,
				       one->storage->components[i].stored);
	}
	return 0;
}

static int check_layer(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		       unsigned s, uint64_t layer, struct sl_error *err)
{
	const struct sl_stack *stack = &model->arch->stacks[s];

	for (unsigned r = 0; r < stack->n_weights; r++) {
		const struct sl_weight *row = sl_row_in(engine, &stack->weights[r]);
		const struct sl_bound *bound = sl_bound_at(model, s, layer, r, 0); /* experts are alike */
		if (!bound->storage || (row->flags & SL_INDICES))
			continue;
		bool joined = engine->fused && !(row->flags & SL_DEQUANTISED) && r + 1 < stack->n_weights &&
			      sl_are_fused(row, sl_row_in(engine, &stack->weights[r + 1]));
		int ret = joined ? check_alike(model, s, layer, r, err) : 0;
		if (ret)
			return ret;
		ret = check_module(model, engine, layout, stack->part, row, bound, joined, err);
		if (ret)
			return sl_error_prefix(err, "%s", SL_ESC(sl_bound_tensor(model, bound, 0)->name));
	}
	return 0;
}

static int check_stack(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		       unsigned s, struct sl_error *err)
{
	uint64_t layers = sl_stack_layers(model, &model->arch->stacks[s]);
	int ret = 0;

	for (uint64_t l = 0; l < layers && !ret; l++)
		ret = check_layer(model, engine, layout, s, l, err);
	return ret;
}

/* The text model's layers first: heads that do not divide say more than an embedding that does not. */
int sl_check_modules(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		     struct sl_error *err)
{
	int ret = 0;

	for (int others = 0; others < 2; others++) {
		for (unsigned s = 0; s < model->arch->n_stacks && !ret; s++) {
			if (model->arch->stacks[s].pipelined == !others)
				ret = check_stack(model, engine, layout, s, err);
		}
	}
	return ret;
}

/* Does vLLM spread experts round robin when it is told to? Else it takes blocks, and only warns (expert_map_manager.py,
 * determine_expert_placement_strategy). */
static bool deals_experts(const struct sl_model *model)
{
	uint64_t groups = 0;

	return (model->arch->flags & SL_EXPERT_GROUPS) &&
	       sl_config_u64(&model->config, SL_TEXT, "n_group", &groups, NULL) == 0 && groups > 1;
}

/* Has this release the architecture? */
static int check_release(const struct sl_model *model, const struct sl_engine *engine, struct sl_error *err)
{
	for (const struct sl_lack *l = engine->lacks; l && l->architecture; l++) {
		if (model->config.architecture && strcmp(l->architecture, model->config.architecture) == 0)
			return sl_fail(err, EINVAL, "%s in %s: %s", l->architecture, engine->title, l->why);
	}
	return 0;
}

/* Do vLLM's own classes load it, and refuse what they do? */
static bool loads_as_vllm(const struct sl_engine *engine)
{
	return engine->fused && !engine->sglang;
}

static bool is_above_experts(const struct sl_model *model, unsigned tp)
{
	uint64_t experts = model->config.dims[SL_TEXT].experts;

	return experts && tp > experts;
}

/* Has it experts in blocks that ranks would cut? */
static bool pads_experts(const struct sl_model *model, const struct sl_layout *layout)
{
	uint64_t inter = model->config.dims[SL_TEXT].moe_inter, block = model->quant.block[0];

	return layout->experts == SL_EXPERTS_SLICED && layout->tp > 1 && block && inter / layout->tp % block;
}

/* Everything about a layout but whether its tp divides. */
static int check_kind(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		      struct sl_error *err)
{
	uint64_t layers = model->config.dims[SL_TEXT].layers;
	unsigned flags = model->arch->flags;

	bool asks_dtype = layout->dtype >= 0 && layout->dtype != SL_F8_E4M3;

	if (engine->as_stored && (layout->experts != SL_EXPERTS_SLICED || asks_dtype))
		return sl_fail(err, EINVAL,
			       "%s takes tensors as they are stored, and experts by its own rules: use %s%u",
			       engine->name, engine->ranks, layout->tp);
	if (layout->experts != SL_EXPERTS_SLICED && !model->config.dims[SL_TEXT].experts)
		return sl_fail(err, EINVAL, "%s has no experts to spread", model->config.architecture);
	if (layout->experts != SL_EXPERTS_SLICED && is_above_experts(model, layout->tp))
		return sl_fail(err, EINVAL, "%llu experts are too few for %u ranks",
			       (unsigned long long)model->config.dims[SL_TEXT].experts, layout->tp);
	if (layout->experts == SL_EXPERTS_ROUND_ROBIN && layout->tp > 1 && engine->fused && !deals_experts(model))
		return sl_fail(
			err, EINVAL,
			"vLLM spreads experts round robin only when n_group of config.json is above 1, else in blocks: use -ep");
	if ((flags & SL_EXPERT_PER_RANK) && loads_as_vllm(engine) && is_above_experts(model, layout->tp))
		return sl_fail(err, EINVAL, "%llu experts are fewer than %u ranks, for which vLLM's %s raises an error",
			       (unsigned long long)model->config.dims[SL_TEXT].experts, layout->tp,
			       model->config.architecture);
	if (layout->padded && !pads_experts(model, layout))
		return sl_fail(err, EINVAL, "no rank would cut a block of an expert's scales: there is nothing to pad");
	if (layout->pp > 1 && !engine->stages)
		return sl_fail(err, EINVAL, "%s has no pipeline stages: use %s alone", engine->name, engine->ranks);
	if (layout->pp > 1 && (flags & SL_NO_STAGES))
		return sl_fail(err, EINVAL, "%s has no pipeline stages in %s", model->config.architecture,
			       engine->title);
	if (layout->pp > layers)
		return sl_fail(err, EINVAL, "%llu layers are too few for %u pipeline stages",
			       (unsigned long long)layers, layout->pp);
	if ((flags & SL_SILU) && loads_as_vllm(engine) && sl_config_find(&model->config, SL_TEXT, "hidden_act") &&
	    !sl_config_is(&model->config, SL_TEXT, "hidden_act", "silu"))
		return sl_fail(err, EINVAL, "config.json: hidden_act is not silu, and vLLM's %s computes with no other",
			       model->config.architecture);
	if (layout->dtype == SL_F16 && engine->fused && !engine->dtype && (flags & SL_NO_F16))
		return sl_fail(err, EINVAL, "%s is not stable in F16, and the engine refuses it: use bf16 or f32",
			       model->config.architecture);
	if (layout->tp > 1 && engine->rank_configs && model->arch->whole_in_hf)
		return sl_fail(err, EINVAL,
			       "a config.json of %s cannot describe a slice (%s): use %s/tp1, or tensors/tp%u",
			       model->config.architecture, model->arch->whole_in_hf, engine->name, layout->tp);
	if (layout->tp > 1 && engine->rank_configs && !model->config.dims[SL_TEXT].kv_heads)
		return sl_fail(err, EINVAL, "kv heads differ between layers: one config.json cannot describe a slice");
	return 0;
}

static bool has_experts(const struct sl_model *model, unsigned s, struct sl_range layers)
{
	const struct sl_stack *stack = &model->arch->stacks[s];

	for (uint64_t l = layers.first; l < layers.first + layers.n; l++) {
		for (unsigned r = 0; r < stack->n_weights; r++) {
			if (sl_is_expert(&stack->weights[r]) && sl_bound_at(model, s, l, r, 0)->storage)
				return true;
		}
	}
	return false;
}

/* vLLM: "No Glm4MoE layer found in model.layers." (glm4_moe.py, extract_moe_parameters; qwen3_moe.py, qwen3_next.py and
 * qwen3_5.py say the same; deepseek_v2.py warns only). */
static int check_stages(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			struct sl_error *err)
{
	uint64_t n = model->config.dims[SL_TEXT].layers;

	if (!loads_as_vllm(engine) || !(model->arch->flags & SL_EXPERTS_EACH_STAGE))
		return 0;
	for (unsigned s = 0; s < model->arch->n_stacks; s++) {
		for (unsigned stage = 0; model->arch->stacks[s].pipelined && stage < layout->pp; stage++) {
			struct sl_range layers = sl_stage_layers(n, layout->pp, stage);
			if (!has_experts(model, s, layers))
				return sl_fail(
					err, EINVAL,
					"no layer of %llu to %llu has experts, and vLLM's %s raises an error in a pipeline stage without",
					(unsigned long long)layers.first,
					(unsigned long long)(layers.first + layers.n - 1), model->config.architecture);
		}
	}
	return 0;
}

/* " (tp 1, 2, 4 and 8 work)": those up to 64. Nothing when there is no choice, or none of them does. */
static void append_working(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			   struct sl_error *err)
{
	size_t len = strlen(err->text), room = sizeof(err->text) - len;
	struct sl_layout other = *layout;
	char list[256] = "";
	size_t n = 0, fill = 0;

	if (!engine->ranks)
		return;
	for (other.tp = 1; other.tp <= 64 && fill < sizeof(list) - 8; other.tp++) {
		struct sl_error quiet = SL_ERROR_INIT;
		if (engine->check(model, engine, &other, &quiet) == 0)
			fill += (size_t)snprintf(list + fill, sizeof(list) - fill, "%s%u", n++ ? ", " : "", other.tp);
	}
	if (n)
		snprintf(err->text + len, room, " (%s %s work%s)", engine->ranks, list, n == 1 ? "s" : "");
}

/* " (vllm/tp8-padded works)", where that is all that is wrong. */
static void append_padded(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
			  struct sl_error *err)
{
	size_t len = strlen(err->text), room = sizeof(err->text) - len;
	struct sl_error quiet = SL_ERROR_INIT;
	struct sl_layout padded = *layout;
	char path[SL_LAYOUT_PATH_MAX];

	padded.padded = 1;
	if (!engine->finer_blocks || engine->picks_kernels || layout->padded || !pads_experts(model, layout) ||
	    engine->check(model, engine, &padded, &quiet))
		return;
	snprintf(err->text + len, room, " (%s works)", sl_layout_path(&padded, engine, path));
}

int sl_layout_check(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout,
		    struct sl_error *err)
{
	struct sl_error local = SL_ERROR_INIT;
	char path[SL_LAYOUT_PATH_MAX];

	if (!err)
		err = &local;
	int ret = check_release(model, engine, err);
	if (!ret)
		ret = check_kind(model, engine, layout, err);
	if (!ret)
		ret = check_stages(model, engine, layout, err);
	if (!ret) {
		ret = engine->check(model, engine, layout, err);
		if (ret) {
			append_working(model, engine, layout, err);
			append_padded(model, engine, layout, err);
		}
	}
	return ret ? sl_error_prefix(err, "%s", sl_layout_path(layout, engine, path)) : 0;
}
