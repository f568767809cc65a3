/*
 * stored.c - stored tensors as they are, or an equal share along one axis: what engines need whose rules speak of names in
 * the checkpoint, not of what an architecture's modules mean.
 */
#include "slicer/plan.h"

#include <errno.h>
#include <string.h>

int sl_cut_evenly(struct sl_cut *cut, const struct sl_tensor *tensor, int axis, const struct sl_layout *layout,
		  unsigned rank, struct sl_error *err)
{
	*cut = (struct sl_cut){ .axis = -1 };
	if (axis < 0)
		return 0;
	if (axis >= tensor->n_dims)
		return sl_fail(err, EINVAL, "tensor '%s' has %u dimensions, and the engine cuts number %d",
			       SL_ESC(tensor->name), tensor->n_dims, axis);
	uint64_t size = tensor->shape[axis];
	if (size % layout->tp)
		return sl_fail(err, EINVAL, "tensor '%s': %llu %s do not divide by %u ranks", SL_ESC(tensor->name),
			       (unsigned long long)size, axis ? "columns" : "rows", layout->tp);
	*cut = (struct sl_cut){ axis, size / layout->tp * rank, size / layout->tp };
	return 0;
}

int sl_plan_stored(struct sl_plan *plan, const char *name, const struct sl_tensor *tensor, const struct sl_cut *cut)
{
	uint64_t shape[SL_DIMS_MAX];

	memcpy(shape, tensor->shape, tensor->n_dims * sizeof(*shape));
	int ret = sl_plan_tensor(plan, name, tensor->dtype);
	if (!ret)
		plan->tensors[plan->n_tensors - 1].stored = 1 + (uint32_t)(tensor - plan->model->shards.tensors);
	if (!ret && cut->axis < 0) {
		ret = sl_plan_whole(plan, tensor);
	} else if (!ret) {
		ret = sl_plan_slice(plan, tensor, (unsigned)cut->axis, cut->first, cut->n);
		shape[cut->axis] = cut->n;
	}
	return ret ? ret : sl_plan_shape(plan, shape, tensor->n_dims);
}

int sl_plan_pairs(struct sl_plan *plan, const struct sl_tensor *tensor, uint64_t first, uint64_t n)
{
	static const struct sl_weight plain = { .role = SL_WHOLE };
	uint64_t head_dim = plan->model->config.dims[SL_TEXT].head_dim, half = head_dim / 2;
	const struct sl_range columns = { 0, tensor->shape[1], 0 };
	int ret = 0;

	for (uint64_t at = first; at < first + n && !ret; at += head_dim) {
		ret = sl_plan_column(plan, &plain, tensor, 0, (struct sl_range){ at, half, 0 }, columns);
		if (!ret)
			ret = sl_plan_column(plan, &plain, tensor, 0, (struct sl_range){ at + half, half, 0 }, columns);
		if (!ret)
			ret = sl_plan_columns_end(plan);
	}
	return ret;
}
