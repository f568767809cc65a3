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
	uint32_t more = *room ? *room * 2 : 256;
	void *grown = more > *room ? realloc(*at, (size_t)more * size) : NULL;
	if (!grown)
		return out_of_memory(plan);
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
	plan->tensors[plan->n_tensors++] = (struct sl_output){ .name = copy, .dtype = (uint8_t)dtype, .section = plan->section };
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
		return sl_fail(plan->err, EINVAL, "tensor '%s': planned %llu bytes for a shape of %llu", SL_ESC(tensor->name),
			       (unsigned long long)tensor->len, (unsigned long long)sl_dtype_bytes(tensor->dtype, n));
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

int sl_plan_zeros(struct sl_plan *plan, uint64_t len)
{
	return add(plan, (struct sl_piece){ .len = len, .op = SL_OP_ZERO });
}

int sl_plan_data(struct sl_plan *plan, const void *data, uint64_t len)
{
	return add(plan, (struct sl_piece){ .len = len, .op = SL_OP_DATA, .data = data });
}

enum sl_dtype sl_plan_dtype(const struct sl_plan *plan, const struct sl_tensor *tensor)
{
	int asked = plan->view->layout.dtype;

	if (!sl_can_convert(tensor->dtype, SL_F32) || (plan->engine->native_dtype && asked < 0))
		return tensor->dtype;
	return asked < 0 ? plan->model->dtype : (enum sl_dtype)asked;
}

/* `count` runs of `run` bytes from `off` in a stored tensor. */
static int runs(struct sl_plan *plan, const struct sl_tensor *t, uint64_t off, uint64_t run, uint64_t stride, uint64_t count,
		bool turned)
{
	enum sl_dtype to = plan->tensors[plan->n_tensors - 1].dtype, from = t->dtype;
	uint64_t len = run * count;
	enum sl_op op = turned ? SL_OP_TRANSPOSE : from == to ? SL_OP_COPY : SL_OP_CONVERT;

	if (!sl_can_convert(from, to))
		return sl_fail(plan->err, EINVAL, "tensor '%s': %s does not convert to %s", SL_ESC(t->name), sl_dtypes[from].name,
			       sl_dtypes[to].name);
	if (count > UINT32_MAX)
		return sl_fail(plan->err, EOVERFLOW, "tensor '%s' has %llu rows, more than %u", SL_ESC(t->name),
			       (unsigned long long)count, UINT32_MAX);
	if (from != to)
		len = len / (sl_dtypes[from].bits / 8) * (sl_dtypes[to].bits / 8);
	return add(plan, (struct sl_piece){
		.len = len,
		.src = t->off + off,
		.run = run,
		.stride = stride,
		.count = (uint32_t)count,
		.shard = t->shard,
		.op = (uint8_t)op,
		.from = (uint8_t)from,
		.to = (uint8_t)to,
	});
}

int sl_plan_whole(struct sl_plan *plan, const struct sl_tensor *tensor)
{
	return tensor->len ? runs(plan, tensor, 0, tensor->len, tensor->len, 1, false) : 0;
}

/* A block of a row-major matrix whose rows are `width` elements: whole rows are one run. `step` is the distance between
 * its rows. */
static int block(struct sl_plan *plan, const struct sl_tensor *t, uint64_t width, uint64_t first_row, uint64_t n_rows,
		 uint64_t step, struct sl_range cols)
{
	uint64_t size = sl_dtypes[t->dtype].bits / 8, off = (first_row * width + cols.first) * size;

	if (n_rows == 0 || cols.n == 0)
		return 0;
	if (cols.n == width && step == 1)
		return runs(plan, t, off, n_rows * width * size, n_rows * width * size, 1, false);
	return runs(plan, t, off, cols.n * size, step * width * size, n_rows, false);
}

/* Rows in rotary pairs to halves: dest h·d + j·(d/2) + i = source h·d + 2i + j (vLLM, mistral.py, permute). */
static int rotary(struct sl_plan *plan, const struct sl_tensor *t, uint64_t head_dim, uint64_t width, struct sl_range rows,
		  struct sl_range cols)
{
	for (uint64_t at = rows.first; at < rows.first + rows.n; at += head_dim) {
		for (uint64_t half = 0; half < 2; half++) {
			int ret = block(plan, t, width, at + half, head_dim / 2, 2, cols);
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
	uint64_t heads = d->heads, kv = d->kv_heads, per = heads / kv, head = row / d->head_dim, inside = row % d->head_dim;

	if (head < heads) {
		*left = (per - head % per) * d->head_dim - inside;
		return (head / per * (per + 2) + head % per) * d->head_dim + inside;
	}
	head -= heads;
	*left = d->head_dim - inside;
	return (head % kv * (per + 2) + per + head / kv) * d->head_dim + inside;
}

static int grouped(struct sl_plan *plan, const struct sl_tensor *t, const struct sl_dims *d, uint64_t width,
		   struct sl_range rows, struct sl_range cols)
{
	uint64_t end = rows.first + rows.n, left;

	for (uint64_t at = rows.first; at < end; at += left) {
		uint64_t stored = grouped_row(d, at, &left);
		if (left > end - at)
			left = end - at;
		int ret = block(plan, t, width, stored, left, 1, cols);
		if (ret)
			return ret;
	}
	return 0;
}

int sl_plan_slice(struct sl_plan *plan, enum sl_part part, const struct sl_weight *row, const struct sl_tensor *tensor,
		  struct sl_range rows, struct sl_range cols)
{
	const struct sl_dims *d = &plan->model->config.dims[part];
	struct sl_matrix m = sl_matrix_of(tensor, row);
	uint64_t size = sl_dtypes[tensor->dtype].bits / 8;

	if (rows.n == 0 || cols.n == 0)
		return 0;
	if ((row->flags & SL_CONV1D) && tensor->n_dims > 1)
		return runs(plan, tensor, (cols.first * m.out + rows.first) * size, rows.n * size, m.out * size, cols.n, true);
	if (row->order == SL_ROTARY)
		return rotary(plan, tensor, d->head_dim, m.in, rows, cols);
	if (row->order == SL_GROUPED)
		return grouped(plan, tensor, d, m.in, rows, cols);
	return block(plan, tensor, m.in, rows.first, rows.n, 1, cols);
}
