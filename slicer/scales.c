/*
 * scales.c - see scales.h. A scale of zero or of no number gives fluent nonsense in every engine, and an error in none.
 */
#include "slicer/scales.h"

#include "slicer/arch.h"
#include "slicer/bind.h"
#include "slicer/convert.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { BLOCK_ELEMENTS = 1024 };

static bool is_checked(const struct sl_component *c)
{
	bool few = c->form == SL_SCALAR || c->form == SL_LAST || c->in == SL_UNIT_ALL || c->out == SL_UNIT_BLOCK;

	return c->dtype == SL_FLOAT && few && strstr(c->held, "scale");
}

static int check_tensor(const struct sl_model *model, const struct sl_tensor *t, bool may_be_zero, struct sl_error *err)
{
	uint64_t size = sl_dtypes[t->dtype].bits / 8;
	unsigned char stored[BLOCK_ELEMENTS * 8];
	float values[BLOCK_ELEMENTS];

	for (uint64_t done = 0; done < t->len;) {
		uint64_t n = (t->len - done) / size < BLOCK_ELEMENTS ? (t->len - done) / size : BLOCK_ELEMENTS;
		int ret = sl_shard_read(&model->shards.shards[t->shard], stored, t->off + done, n * size, err);
		if (ret)
			return ret;
		sl_convert(values, SL_F32, stored, (enum sl_dtype)t->dtype, n);
		for (uint64_t i = 0; i < n; i++) {
			if (!isfinite(values[i]) || values[i] < 0 || (values[i] == 0 && !may_be_zero))
				return sl_fail(err, EINVAL, "%s: tensor '%s': element %llu is %g, which scales nothing",
					       model->shards.shards[t->shard].name, SL_ESC(t->name),
					       (unsigned long long)(done / size + i), (double)values[i]);
		}
		done += n * size;
	}
	return 0;
}

static int check_module(const struct sl_model *model, const struct sl_bound *bound, struct sl_error *err)
{
	int ret = 0;

	for (unsigned i = 0; bound->storage && i < bound->storage->n_components && !ret; i++) {
		const struct sl_component *c = &bound->storage->components[i];
		const struct sl_tensor *t = sl_bound_tensor(model, bound, i);
		if (t && is_checked(c) && sl_can_convert((enum sl_dtype)t->dtype, SL_F32))
			ret = check_tensor(model, t, strncmp(c->held, "input", 5) == 0, err);
	}
	return ret;
}

int sl_check_scales(const struct sl_model *model, struct sl_error *err)
{
	int ret = 0;

	for (unsigned s = 0; s < model->arch->n_stacks && !ret; s++) {
		const struct sl_binding *b = &model->bound[s];
		uint64_t n = b->per_layer * sl_stack_layers(model, &model->arch->stacks[s]);
		for (uint64_t m = 0; m < n && !ret; m++)
			ret = check_module(model, &b->modules[m], err);
	}
	return ret;
}
