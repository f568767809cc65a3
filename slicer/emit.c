/*
 * emit.c - the pieces of one tensor.
 */
#include "slicer/convert.h"
#include "slicer/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(struct sl_plan *plan)
{
	return sl_fail(plan->err, ENOMEM, "out of memory");
}

/* Room for one more element, doubling. */
static int grow(struct sl_plan *plan, void *array, uint32_t n, uint32_t *room, size_t size)
{
	void **at = array;

	if (n < *room)
		return 0;
	uint32_t more = *room ? *room * 2 : plan->expected > 256 ? plan->expected : 256;
	void *grown = more > *room ? realloc(*at, (size_t)more * size) : NULL;
	if (!grown)
		return out_of_memory(plan);
	sl_use_huge_pages(grown, (size_t)more * size);
	*at = grown;
	*room = more;
	return 0;
}

int sl_plan_tensor(struct sl_plan *plan, const char *name, enum sl_dtype dtype)
{
	uint32_t room = plan->room_tensors;
	int ret = grow(plan, &plan->first_piece, plan->n_tensors, &room, sizeof(*plan->first_piece));

	if (!ret)
		ret = grow(plan, &plan->tensors, plan->n_tensors, &plan->room_tensors, sizeof(*plan->tensors));
	if (ret)
		return ret;
	char *copy = sl_arena_strdup(&plan->view->arena, name);
	if (!copy)
		return out_of_memory(plan);
	plan->first_piece[plan->n_tensors] = plan->n_pieces;
	plan->tensors[plan->n_tensors++] =
		(struct sl_output){ .name = copy, .dtype = (uint8_t)dtype, .section = plan->section };
	return 0;
}

int sl_plan_shape(struct sl_plan *plan, const uint64_t *shape, unsigned n_dims)
{
	struct sl_output *tensor = &plan->tensors[plan->n_tensors - 1];
	uint64_t *copy = sl_arena_array(&plan->view->arena, n_dims ? n_dims : 1, sizeof(*copy));
	uint64_t n = 1;

	if (!copy)
		return out_of_memory(plan);
	for (unsigned i = 0; i < n_dims; i++) {
		copy[i] = shape[i];
		n *= shape[i];
	}
	tensor->shape = copy;
	tensor->n_dims = (uint8_t)n_dims;
	if (sl_dtype_bytes(tensor->dtype, n) != tensor->len)
		return sl_fail(plan->err, EINVAL, "tensor '%s': planned %llu bytes for a shape of %llu",
			       SL_ESC(tensor->name), (unsigned long long)tensor->len,
			       (unsigned long long)sl_dtype_bytes(tensor->dtype, n));
	return 0;
}

/* Add a piece to the begun tensor; .off and, but for data and zeros, .len are filled in. */
static int add(struct sl_plan *plan, struct sl_piece piece)
{
	struct sl_output *tensor = &plan->tensors[plan->n_tensors - 1];

	if (piece.len == 0)
		return 0;
	int ret = grow(plan, &plan->pieces, plan->n_pieces, &plan->room_pieces, sizeof(*plan->pieces));
	if (ret)
		return ret;
	piece.off = tensor->len;
	if (__builtin_add_overflow(tensor->len, piece.len, &tensor->len))
		return sl_fail(plan->err, EOVERFLOW, "tensor '%s' is too large", SL_ESC(tensor->name));
	plan->pieces[plan->n_pieces++] = piece;
	return 0;
}

int sl_plan_piece(struct sl_plan *plan, const struct sl_piece *piece)
{
	return add(plan, *piece);
}

int sl_plan_data(struct sl_plan *plan, const void *data, uint64_t len)
{
	return add(plan, (struct sl_piece){ .len = len, .op = SL_OP_DATA, .data = data });
}

enum sl_dtype sl_float_of(const struct sl_model *model, const struct sl_engine *engine, const struct sl_layout *layout)
{
	if (layout->dtype >= 0)
		return (enum sl_dtype)layout->dtype;
	return engine->dtype ? engine->dtype(model) : model->dtype;
}

enum sl_dtype sl_plan_float(const struct sl_plan *plan)
{
	return sl_float_of(plan->model, plan->engine, &plan->view->layout);
}

/* `n` elements of the begun tensor's dtype that are all `value`. */
static int filled(struct sl_plan *plan, float value, uint64_t n, struct sl_piece *piece)
{
	enum sl_dtype dtype = plan->tensors[plan->n_tensors - 1].dtype;
	uint64_t size = sl_dtype_bytes(dtype, 1);
	unsigned char *bytes;

	if (value == 0) {
		*piece = (struct sl_piece){ .len = sl_dtype_bytes(dtype, n), .op = SL_OP_ZERO };
		return 0;
	}
	bytes = sl_arena_array(&plan->view->arena, n, size);
	if (!bytes)
		return out_of_memory(plan);
	for (uint64_t i = 0; i < n; i++)
		sl_convert(bytes + i * size, dtype, &value, SL_F32, 1);
	*piece = (struct sl_piece){ .len = n * size, .op = SL_OP_DATA, .data = bytes };
	return 0;
}

int sl_plan_fill(struct sl_plan *plan, float value, uint64_t n)
{
	struct sl_piece piece;
	int ret = filled(plan, value, n, &piece);

	return ret ? ret : add(plan, piece);
}

/* A piece of `count` runs of `run` bytes from `off` in a stored tensor, as the begun tensor holds them. Bytes that are only
 * called another dtype are copied. */
static int make_runs(struct sl_plan *plan, const struct sl_tensor *t, uint64_t off, uint64_t run, uint64_t stride,
		     uint64_t count, bool turned, struct sl_piece *piece)
{
	enum sl_dtype to = plan->tensors[plan->n_tensors - 1].dtype, from = t->dtype;
	bool relabelled = (to == SL_U8 || to == SL_F4) && sl_dtypes[from].bits == 8;

	if (relabelled)
		to = from;
	if (!sl_can_convert(from, to))
		return sl_fail(plan->err, EINVAL, "tensor '%s': %s does not convert to %s", SL_ESC(t->name),
			       sl_dtypes[from].name, sl_dtypes[to].name);
	if (count > UINT32_MAX)
		return sl_fail(plan->err, EOVERFLOW, "tensor '%s' has %llu rows, more than %u", SL_ESC(t->name),
			       (unsigned long long)count, UINT32_MAX);
	*piece = (struct sl_piece){
		.len = from == to ? run * count : run * count / (sl_dtypes[from].bits / 8u) * (sl_dtypes[to].bits / 8u),
		.src = t->off + off,
		.run = run,
		.stride = stride,
		.count = (uint32_t)count,
		.shard = t->shard,
		.op = turned	   ? SL_OP_TRANSPOSE
		      : from == to ? SL_OP_COPY
				   : SL_OP_CONVERT,
		.from = (uint8_t)from,
		.to = (uint8_t)to,
	};
	return 0;
}

static int runs(struct sl_plan *plan, const struct sl_tensor *t, uint64_t off, uint64_t run, uint64_t stride,
		uint64_t count, bool turned)
{
	struct sl_piece piece;
	int ret = make_runs(plan, t, off, run, stride, count, turned, &piece);

	return ret ? ret : add(plan, piece);
}

int sl_plan_whole(struct sl_plan *plan, const struct sl_tensor *tensor)
{
	return tensor->len ? runs(plan, tensor, 0, tensor->len, tensor->len, 1, false) : 0;
}

int sl_plan_slice(struct sl_plan *plan, const struct sl_tensor *tensor, unsigned axis, uint64_t first, uint64_t n)
{
	uint64_t outer = 1, inner = sl_dtypes[tensor->dtype].bits; /* bits of what one element of the axis holds */

	if (n == 0 || tensor->len == 0)
		return 0;
	for (unsigned d = 0; d < tensor->n_dims; d++)
		*(d < axis ? &outer : &inner) *= d == axis ? 1 : tensor->shape[d];
	if (first * inner % 8 || n * inner % 8 || tensor->shape[axis] * inner % 8)
		return sl_fail(plan->err, EINVAL, "tensor '%s': a share begins or ends inside a byte",
			       SL_ESC(tensor->name));
	return runs(plan, tensor, first * inner / 8, n * inner / 8, tensor->shape[axis] * inner / 8, outer, false);
}

/* A stored matrix, of one expert where there are several: where it begins, its width, the size of its elements. */
struct stored {
	const struct sl_tensor *tensor;
	uint64_t off, width, size;
};

static struct stored stored_of(const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert)
{
	struct sl_matrix m = sl_stored_matrix(tensor, row);
	uint64_t size = sl_dtypes[tensor->dtype].bits / 8;

	if (!(row->flags & SL_STACKED))
		expert = 0;
	return (struct stored){ tensor, expert * m.rows * m.cols * size, m.cols, size };
}

/* A block of a row-major matrix: whole rows are one run. `step` is the distance between its rows. */
static int block(struct sl_plan *plan, const struct stored *s, uint64_t first_row, uint64_t n_rows, uint64_t step,
		 struct sl_range cols)
{
	uint64_t off = s->off + (first_row * s->width + cols.first) * s->size, whole = n_rows * s->width * s->size;

	if (n_rows == 0 || cols.n == 0)
		return 0;
	if (cols.n == s->width && step == 1)
		return runs(plan, s->tensor, off, whole, whole, 1, false);
	return runs(plan, s->tensor, off, cols.n * s->size, step * s->width * s->size, n_rows, false);
}

/* Rows in rotary pairs to halves: dest h·d + j·(d/2) + i = source h·d + 2i + j (vLLM, mistral.py, permute). */
static int rotary(struct sl_plan *plan, const struct stored *s, uint64_t head_dim, struct sl_range rows,
		  struct sl_range cols)
{
	for (uint64_t at = rows.first; at < rows.first + rows.n; at += head_dim) {
		for (uint64_t half = 0; half < 2; half++) {
			int ret = block(plan, s, at + half, head_dim / 2, 2, cols);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* Where logical row `row` of q|k|v lies when each kv head has its query heads, k and v together; *left is how many rows
 * follow on from there. */
static uint64_t grouped_row(const struct sl_dims *d, uint64_t row, uint64_t *left)
{
	uint64_t heads = d->heads, kv = d->kv_heads, per = heads / kv, head = row / d->head_dim,
		 inside = row % d->head_dim;

	if (head < heads) {
		*left = (per - head % per) * d->head_dim - inside;
		return (head / per * (per + 2) + head % per) * d->head_dim + inside;
	}
	head -= heads;
	*left = d->head_dim - inside;
	return (head % kv * (per + 2) + per + head / kv) * d->head_dim + inside;
}

static int grouped(struct sl_plan *plan, const struct stored *s, const struct sl_dims *d, struct sl_range rows,
		   struct sl_range cols)
{
	uint64_t end = rows.first + rows.n, left;

	for (uint64_t at = rows.first; at < end; at += left) {
		uint64_t first = grouped_row(d, at, &left);
		if (left > end - at)
			left = end - at;
		int ret = block(plan, s, first, left, 1, cols);
		if (ret)
			return ret;
	}
	return 0;
}

int sl_plan_block(struct sl_plan *plan, enum sl_part part, const struct sl_weight *row, const struct sl_tensor *tensor,
		  uint64_t expert, struct sl_range rows, struct sl_range cols)
{
	const struct sl_dims *d = &plan->model->config.dims[part];
	struct stored s = stored_of(row, tensor, expert);

	if (rows.n == 0 || cols.n == 0)
		return 0;
	if ((row->order == SL_ROTARY || (row->order == SL_ROTARY_HF && plan->engine->fused)) && rows.n > 1)
		return rotary(plan, &s, d->head_dim, rows, cols);
	if (row->order == SL_GROUPED)
		return grouped(plan, &s, d, rows, cols);
	return block(plan, &s, rows.first, rows.n, 1, cols);
}

int sl_plan_turned(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		   struct sl_range rows, struct sl_range cols)
{
	struct stored s = stored_of(row, tensor, expert);

	if (rows.n == 0 || cols.n == 0)
		return 0;
	return runs(plan, tensor, s.off + (rows.first * s.width + cols.first) * s.size, cols.n * s.size,
		    s.width * s.size, rows.n, true);
}

/* ---- side by side ---- */

static int add_column(struct sl_plan *plan, struct sl_piece piece)
{
	int ret = grow(plan, &plan->columns, plan->n_columns, &plan->room_columns, sizeof(*plan->columns));

	if (!ret)
		plan->columns[plan->n_columns++] = piece;
	return ret;
}

int sl_plan_column(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		   struct sl_range rows, struct sl_range cols)
{
	struct stored s = stored_of(row, tensor, expert);
	struct sl_piece piece;

	if (rows.n == 0 || cols.n == 0)
		return 0;
	int ret = make_runs(plan, tensor, s.off + (rows.first * s.width + cols.first) * s.size, cols.n * s.size,
			    s.width * s.size, rows.n, false, &piece);
	return ret ? ret : add_column(plan, piece);
}

int sl_plan_fill_column(struct sl_plan *plan, float value, uint64_t rows, uint64_t n)
{
	struct sl_piece piece;
	int ret = filled(plan, value, rows * n, &piece);

	if (ret || piece.len == 0)
		return ret;
	piece.count = (uint32_t)rows;
	return add_column(plan, piece);
}

/* A compound of the pieces that were laid side by side. */
static struct sl_compound *take_parts(struct sl_plan *plan, struct sl_piece **parts)
{
	struct sl_compound *compound = sl_arena_alloc(&plan->view->arena, sizeof(*compound));

	*parts = sl_arena_array(&plan->view->arena, plan->n_columns, sizeof(**parts));
	if (!compound || !*parts)
		return NULL;
	memcpy(*parts, plan->columns, plan->n_columns * sizeof(**parts));
	*compound = (struct sl_compound){ .n = plan->n_columns, .parts = *parts };
	plan->n_columns = 0;
	return compound;
}

/* One column needs no side by side. */
int sl_plan_columns_end(struct sl_plan *plan)
{
	struct sl_piece whole = { .op = SL_OP_COLUMNS }, *parts;

	if (plan->n_columns == 0)
		return 0;
	if (plan->n_columns == 1) {
		plan->n_columns = 0;
		return add(plan, plan->columns[0]);
	}
	whole.compound = take_parts(plan, &parts);
	if (!whole.compound)
		return out_of_memory(plan);
	for (uint32_t i = 0; i < whole.compound->n; i++) {
		parts[i].off = whole.run;
		whole.run += parts[i].len / parts[i].count;
		whole.len += parts[i].len;
	}
	whole.count = parts[0].count;
	return add(plan, whole);
}

int sl_plan_scaled(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *values,
		   const struct sl_tensor *scales, const uint64_t block[2], struct sl_range rows)
{
	enum sl_dtype to = plan->tensors[plan->n_tensors - 1].dtype;
	struct sl_matrix m = sl_stored_matrix(values, row), s = sl_stored_matrix(scales, row);
	struct sl_range blocks = { 0, 0, 0 };
	struct sl_piece piece = { .op = SL_OP_SCALE,
				  .to = (uint8_t)to,
				  .count = (uint32_t)rows.n,
				  .run = sl_dtype_bytes(to, m.cols) },
			*parts;
	struct sl_compound *compound;

	if (block[0] && block[1])
		blocks = (struct sl_range){ rows.first / block[0], (rows.n + block[0] - 1) / block[0], 0 };
	if (!blocks.n || rows.first % block[0] || blocks.first + blocks.n > s.rows)
		return sl_fail(plan->err, EINVAL, "tensor '%s': rows from %llu on are no whole blocks of its scales",
			       SL_ESC(values->name), (unsigned long long)rows.first);
	plan->tensors[plan->n_tensors - 1].dtype = values->dtype;
	int ret = sl_plan_column(plan, row, values, 0, rows, (struct sl_range){ 0, m.cols, 0 });
	plan->tensors[plan->n_tensors - 1].dtype = SL_F32;
	if (!ret)
		ret = sl_plan_column(plan, row, scales, 0, blocks, (struct sl_range){ 0, s.cols, 0 });
	plan->tensors[plan->n_tensors - 1].dtype = (uint8_t)to;
	if (ret)
		return ret;
	piece.compound = compound = take_parts(plan, &parts);
	if (!compound)
		return out_of_memory(plan);
	compound->block[0] = (uint32_t)block[0];
	compound->block[1] = (uint32_t)block[1];
	piece.len = piece.run * rows.n;
	return add(plan, piece);
}

int sl_plan_repeated(struct sl_plan *plan, const struct sl_weight *row, const struct sl_tensor *tensor, uint64_t expert,
		     unsigned times, struct sl_range rows, struct sl_range cols)
{
	enum sl_dtype to = plan->tensors[plan->n_tensors - 1].dtype;
	uint64_t last_row = (rows.first + rows.n + times - 1) / times,
		 last_col = (cols.first + cols.n + times - 1) / times;
	struct sl_range stored_rows = { rows.first / times, last_row - rows.first / times, 0 };
	struct sl_range stored_cols = { cols.first / times, last_col - cols.first / times, 0 };
	struct sl_piece piece = { .op = SL_OP_REPEAT,
				  .to = (uint8_t)to,
				  .count = (uint32_t)rows.n,
				  .run = sl_dtype_bytes(to, cols.n) },
			*parts;
	struct sl_compound *compound;

	if (rows.n == 0 || cols.n == 0)
		return 0;
	int ret = sl_plan_column(plan, row, tensor, expert, stored_rows, stored_cols);
	if (ret)
		return ret;
	piece.compound = compound = take_parts(plan, &parts);
	if (!compound)
		return out_of_memory(plan);
	for (int axis = 0; axis < 2; axis++) {
		compound->block[axis] = times;
		compound->first[axis] = (uint32_t)((axis ? cols : rows).first % times);
	}
	piece.len = piece.run * rows.n;
	return add(plan, piece);
}

/* All of a stored matrix, by rows. */
static struct sl_piece rows_of(const struct sl_tensor *t)
{
	uint64_t width = sl_dtype_bytes(t->dtype, t->shape[1]);

	return (struct sl_piece){ .len = t->len,
				  .src = t->off,
				  .run = width,
				  .stride = width,
				  .count = (uint32_t)t->shape[0],
				  .shard = t->shard,
				  .op = SL_OP_COPY,
				  .from = t->dtype,
				  .to = t->dtype };
}

int sl_plan_regrouped(struct sl_plan *plan, const struct sl_tensor *values, const struct sl_tensor *scales)
{
	struct sl_compound *compound = sl_arena_alloc(&plan->view->arena, sizeof(*compound));
	struct sl_piece *parts = sl_arena_array(&plan->view->arena, 2, sizeof(*parts));
	struct sl_piece piece = { .op = values ? SL_OP_REGROUP : SL_OP_REGROUPED,
				  .to = values ? SL_F8_E4M3 : SL_F8_E8M0 };

	if (!compound || !parts)
		return out_of_memory(plan);
	*compound = (struct sl_compound){ .n = 0, .block = { 128, 128 }, .parts = parts };
	if (values)
		parts[compound->n++] = rows_of(values);
	parts[compound->n++] = rows_of(scales);
	piece.count = (uint32_t)(values ? scales->shape[0] : scales->shape[0] / 128);
	piece.run = values ? scales->shape[1] * 32 : scales->shape[1] / 4;
	piece.len = piece.run * piece.count;
	piece.compound = compound;
	return add(plan, piece);
}

/* ---- a series ---- */

/* The lane whose tensor, of the first item, a piece reads: from its start. */
static bool find_lane(const struct sl_plan *plan, const struct sl_series *series, unsigned n_lanes,
		      struct sl_piece *piece)
{
	for (unsigned i = 0; i < n_lanes; i++) {
		const struct sl_lane *lane = &series->lanes[i];
		const struct sl_tensor *t =
			sl_bound_tensor(plan->model, &lane->modules[series->first], lane->component);
		if (t && t->shard == piece->shard && piece->src >= t->off && piece->src - t->off < t->len) {
			piece->shard = i;
			piece->src -= t->off;
			return true;
		}
	}
	return false;
}

/* Turn a piece of the first item into one of any item. */
static bool make_like(struct sl_plan *plan, const struct sl_series *series, unsigned n_lanes, struct sl_piece *piece)
{
	const struct sl_parts parts = sl_piece_parts(piece);

	if (parts.list == piece)
		return !sl_piece_reads(piece) || find_lane(plan, series, n_lanes, piece);
	struct sl_piece *copies = sl_arena_array(&plan->view->arena, parts.n, sizeof(*copies));
	struct sl_compound *compound = sl_arena_alloc(&plan->view->arena, sizeof(*compound));
	if (!copies || !compound || parts.n > SL_SERIES_PARTS)
		return false;
	*compound = *piece->compound;
	compound->parts = copies;
	piece->compound = compound;
	for (uint32_t i = 0; i < parts.n; i++) {
		copies[i] = parts.list[i];
		if (sl_piece_reads(&copies[i]) && !find_lane(plan, series, n_lanes, &copies[i]))
			return false;
	}
	return true;
}

bool sl_plan_series(struct sl_plan *plan, const struct sl_lane *lanes, unsigned n_lanes, uint32_t first, uint32_t step,
		    uint64_t n)
{
	struct sl_output *tensor = &plan->tensors[plan->n_tensors - 1];
	uint32_t begin = plan->first_piece[plan->n_tensors - 1], n_pieces = plan->n_pieces - begin;
	struct sl_series *series = sl_arena_alloc(&plan->view->arena, sizeof(*series));
	struct sl_lane *kept = sl_arena_array(&plan->view->arena, n_lanes, sizeof(*kept));
	struct sl_piece *pieces = sl_arena_array(&plan->view->arena, n_pieces, sizeof(*pieces));
	uint64_t len;

	if (!series || !kept || !pieces || n_pieces == 0 || n > UINT32_MAX ||
	    __builtin_mul_overflow(tensor->len, n, &len))
		return false;
	memcpy(kept, lanes, n_lanes * sizeof(*kept));
	memcpy(pieces, &plan->pieces[begin], n_pieces * sizeof(*pieces));
	*series = (struct sl_series){ tensor->len, (uint32_t)n, first, step, n_pieces, pieces, kept };
	for (uint32_t i = 0; i < n_pieces; i++) {
		if (!make_like(plan, series, n_lanes, &pieces[i]))
			return false;
	}
	plan->n_pieces = begin + 1;
	plan->pieces[begin] = (struct sl_piece){ .len = len, .series = series, .op = SL_OP_SERIES };
	tensor->len = len;
	return true;
}
