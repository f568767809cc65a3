/*
 * nvfp4_moe.c - global scales of NVFP4 experts, before their kernel's own recipe (vLLM 0.32, compressed_tensors_moe_w4a4_nvfp4.py,
 * modelopt.py): gate and up have one each, of which the kernel takes gate's; compressed-tensors stores divisors.
 *
 *      w13_scale_2 [experts, 2], w2_scale_2 [experts], a13_scale [experts, 2], a2_scale [experts]
 */
#include "slicer/post.h"
#include "slicer/transforms/scalars.h"

#include <errno.h>

/* As many numbers as there are, each itself or its inverse; of pairs the first alone if asked for. */
static int add_numbers(const struct sl_post *post, const char *name, bool inverse, bool firsts)
{
	const struct sl_loaded *s = sl_post_find(post, name);

	if (!s)
		return 0;
	if (s->dtype != SL_F32 || s->n_dims == 0 || s->n_dims > 2 || s->len == 0 ||
	    (s->n_dims == 2 && s->shape[1] != 2))
		return sl_fail(post->plan->err, EINVAL, "%s%s is not one or two F32 numbers an expert",
			       SL_ESC(post->prefix), name);
	firsts = firsts && s->n_dims == 2;
	uint64_t n = s->len / sizeof(float) / (firsts ? 2 : 1);
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, n * sizeof(float));
	t.args.p[SL_SCALARS_KIND] = inverse ? SL_SCALAR_INVERSE_MAX : SL_SCALAR_MAX;
	sl_post_input(&t, s, 0, n, sizeof(float));
	t.in[0].pitch = (firsts ? 2 : 1) * sizeof(float);
	return sl_post_one(post, name, SL_F32, &t, s->shape, firsts ? 1 : s->n_dims);
}

static int add_globals(const struct sl_post *post, bool inverse)
{
	static const char *const names[] = { "w13_scale_2", "w2_scale_2", "a13_scale", "a2_scale" };
	int ret = 0;

	for (unsigned i = 0; i < SL_COUNT(names) && !ret; i++)
		ret = add_numbers(post, names[i], inverse, i == 0);
	return ret;
}

int sl_post_nvfp4_moe_global_ct(const struct sl_post *post)
{
	return add_globals(post, true);
}

int sl_post_nvfp4_moe_global_modelopt(const struct sl_post *post)
{
	return add_globals(post, false);
}
