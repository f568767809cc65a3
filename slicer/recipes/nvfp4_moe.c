/*
 * nvfp4_moe.c - global scales of NVFP4 experts, before their kernel's own recipe (vLLM 0.32, compressed_tensors_moe_w4a4_nvfp4.py,
 * modelopt.py): gate and up have one each, of which the kernel takes gate's; compressed-tensors stores divisors.
 *
 * What becomes of them when the kernel is set up is here, too.
 *
 *      w13_scale_2 [experts, 2], w2_scale_2 [experts], a13_scale [experts, 2], a2_scale [experts]
 */
#include "slicer/post.h"
#include "slicer/transforms/scalars.h"

#include <errno.h>
#include <string.h>

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

/* One number an expert: the product of two. */
static int multiply(const struct sl_post *post, const struct sl_stream *a, const struct sl_stream *b, uint64_t n,
		    struct sl_stream *made)
{
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, n * sizeof(float));

	t.args.p[SL_SCALARS_KIND] = SL_SCALAR_PRODUCT;
	sl_post_input_stream(&t, a, 0, n, sizeof(float));
	sl_post_input_stream(&t, b, 0, n, sizeof(float));
	return sl_post_make(post, &t, made);
}

static int invert(const struct sl_post *post, const struct sl_stream *a, uint64_t n, struct sl_stream *made)
{
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, n * sizeof(float));

	t.args.p[SL_SCALARS_KIND] = SL_SCALAR_INVERSE_MAX;
	sl_post_input_stream(&t, a, 0, n, sizeof(float));
	return sl_post_make(post, &t, made);
}

static int add_made(const struct sl_post *post, const char *name, const struct sl_stream *made, uint64_t n)
{
	int ret = sl_post_begin(post, name, SL_F32);

	for (uint32_t i = 0; i < made->n && !ret; i++)
		ret = sl_plan_piece(post->plan, &made->pieces[i]);
	return ret ? ret : sl_post_shape(post, SL_SHAPE(n));
}

static int need_numbers(const struct sl_post *post, const char *name, uint64_t *n, struct sl_stream *stream)
{
	const struct sl_loaded *s;
	int ret = sl_post_need(post, name, 1, &s);

	if (ret)
		return ret;
	if (s->dtype != SL_F32 || s->shape[0] == 0)
		return sl_fail(post->plan->err, EINVAL, "%s%s is not one F32 number an expert", SL_ESC(post->prefix),
			       name);
	if (*n && s->shape[0] != *n)
		return sl_fail(post->plan->err, EINVAL, "%s%s: %llu numbers for %llu experts", SL_ESC(post->prefix),
			       name, (unsigned long long)s->shape[0], (unsigned long long)*n);
	*n = s->shape[0];
	*stream = (struct sl_stream){ .pieces = s->pieces, .n = s->n_pieces };
	return 0;
}

/* The scales of activations go into those of weights, when a kernel's experts are set up (fused_moe/experts/cutlass_moe.py,
 * flashinfer_cutlass_moe.py, trtllm_nvfp4_moe.py: process_weights_after_loading). */
int sl_post_nvfp4_moe_alphas(const struct sl_post *post)
{
	static const char *const weights[] = { "w13_scale_2", "w2_scale_2" }, *const inputs[] = { "a13_scale",
												  "a2_scale" };
	struct sl_stream weight[2], input[2], alpha[2], inverse, quotient;
	bool trtllm = post->facts.backend && strcmp(post->facts.backend, "FLASHINFER_TRTLLM") == 0;
	uint64_t n = 0;
	int ret = 0;

	for (unsigned i = 0; i < 2 && !ret; i++) {
		ret = need_numbers(post, weights[i], &n, &weight[i]);
		if (!ret)
			ret = need_numbers(post, inputs[i], &n, &input[i]);
		if (!ret)
			ret = multiply(post, &weight[i], &input[i], n, &alpha[i]);
		if (!ret)
			ret = add_made(post, weights[i], &alpha[i], n);
		if (!ret)
			ret = sl_post_keep(post, sl_post_find(post, inputs[i]));
	}
	if (ret || !trtllm)
		return ret;
	ret = invert(post, &input[1], n, &inverse);
	if (!ret)
		ret = multiply(post, &alpha[0], &inverse, n, &quotient);
	return ret ? ret : add_made(post, "g1_scale_c", &quotient, n);
}

int sl_post_nvfp4_moe_global_ct(const struct sl_post *post)
{
	return add_globals(post, true);
}

int sl_post_nvfp4_moe_global_modelopt(const struct sl_post *post)
{
	return add_globals(post, false);
}
