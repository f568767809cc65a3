/*
 * humming.c - weights for Humming's kernels, where activations have 16 bits (humming-kernels 0.1.17, transform.py, schema/; vLLM
 * 0.32, quantization/utils/humming/).
 *
 * Its tiles are Marlin's, and so is the order of scales within 64 or 32 columns; but sizes are padded to 256 rows and 128 columns,
 * an expert's gate and up as one, and scales keep their numbers.
 */
#include "slicer/recipes/marlin.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/scalars.h"

#include <errno.h>

enum { ROWS = 256, COLUMNS = 128, ONE_E8M0 = 127 };

/* A matrix [n, k], or with three dimensions one for each expert. */
static int find(const struct sl_post *post, const char *name, unsigned n_dims, enum sl_dtype dtype, unsigned bits,
		uint64_t group, struct sl_marlin *m, const struct sl_loaded **weight)
{
	int ret = sl_post_need(post, name, n_dims, weight);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (ret)
		return ret;
	const uint64_t *shape = (*weight)->shape + n_dims - 2;
	*m = (struct sl_marlin){ .post = post,
				 .from = SL_FROM_ROWS,
				 .dtype = dtype,
				 .bits = bits,
				 .halves = 1,
				 .group = group,
				 .n = shape[0],
				 .k = shape[1] * sl_dtype_bytes(dtype, 1) * 8 / bits };
	m->n_padded = sl_up(m->n, ROWS);
	m->k_padded = sl_up(m->k, COLUMNS);
	m->experts = n_dims == 3 ? (*weight)->shape[0] : 0;
	if (n_dims == 3 && m->experts == 0)
		return sl_fail(post->plan->err, EINVAL, "%s%s: no experts", SL_ESC(post->prefix), name);
	if (group && m->k % group)
		return sl_fail(post->plan->err, EINVAL, "%s%s: groups of %llu do not divide %llu columns",
			       SL_ESC(post->prefix), name, (unsigned long long)group, (unsigned long long)m->k);
	return 0;
}

/* Even of a single group, if only it is said to be one. */
static enum sl_scale_order order_of(const struct sl_marlin *m)
{
	return m->group ? SL_SCALES_IN_64 : SL_SCALES_IN_32;
}

/* The bias of a layer, if it has one, and a second one of zeros, for who adds the first by himself. */
static int add_biases(const struct sl_marlin *m)
{
	const struct sl_loaded *bias = sl_post_find(m->post, "bias");
	int ret = 0;

	if (!bias)
		return 0;
	ret = sl_marlin_add_bias(m, "bias");
	if (!ret)
		ret = sl_post_begin(m->post, "zero_bias", bias->dtype);
	if (!ret)
		ret = sl_plan_fill(m->post->plan, 0, m->n_padded);
	return ret ? ret : sl_post_shape(m->post, SL_SHAPE(m->n_padded));
}

static int refuse_bias(const struct sl_post *post)
{
	if (!sl_post_find(post, "w13_bias"))
		return 0;
	return sl_fail(post->plan->err, EINVAL,
		       "%s: experts with a bias have not been compared with Humming's yet: add -marlin to the layout",
		       SL_ESC(post->prefix));
}

/* ---- integers of 4 bits, in groups ---- */

/* Codes without a 0, -8 that is, become sign and magnitude: schema/humming.py, convert_symmetric_integer_weight. */
static int add_integers(const struct sl_marlin *m, const struct sl_loaded *weight)
{
	struct sl_transform t = sl_post_transform(SL_T_MAP, m->experts, m->n, m->k / 2);
	struct sl_loaded codes = *weight;
	struct sl_stream made;
	int ret = sl_marlin_check(m->post, weight, SL_I32, SL_SHAPE(m->experts, m->n, m->k / 8));

	if (ret)
		return ret;
	t.args.p[SL_MAP_KIND] = SL_MAP_SIGNED_4;
	t.args.p[SL_MAP_N] = 1;
	t.args.p[SL_MAP_ENDS] = m->n;
	sl_post_input(&t, weight, 0, m->n, m->k / 2);
	ret = sl_post_make(m->post, &t, &made);
	codes.pieces = made.pieces;
	codes.n_pieces = made.n;
	return ret ? ret : sl_marlin_add_weight(m, &codes);
}

static int add_wna16(const struct sl_post *post, const char *name, const char *name_of_scales)
{
	const struct sl_loaded *weight, *scales;
	struct sl_marlin m;
	int ret = find(post, name, 3, SL_I32, 4, post->facts.group, &m, &weight);

	if (!ret)
		ret = sl_post_need(post, name_of_scales, 3, &scales);
	if (!ret)
		ret = add_integers(&m, weight);
	if (ret)
		return ret;
	enum sl_dtype dtype = post->facts.dtype;
	return sl_marlin_add_scales(&m, scales,
				    &(struct sl_marlin_scales){ SL_SCALE_KEEP, .order = order_of(&m), .turned = true,
								.from = dtype, .to = dtype });
}

int sl_post_humming_moe_wna16(const struct sl_post *post)
{
	int ret = refuse_bias(post);

	if (!ret && post->facts.bits != 4)
		ret = sl_fail(post->plan->err, EINVAL, "%sw13: elements of %u bits, not 4", SL_ESC(post->prefix),
			      post->facts.bits);
	if (!ret)
		ret = add_wna16(post, "w13", "w13_scale");
	return ret ? ret : add_wna16(post, "w2", "w2_scale");
}

/* ---- FP8, one scale a row, or one for each fused matrix ---- */

int sl_post_humming_fp8(const struct sl_post *post)
{
	const struct sl_loaded *weight, *scales = sl_post_find(post, "weight_scale");
	struct sl_marlin m;
	int ret = find(post, "weight", 2, SL_F8_E4M3, 8, 0, &m, &weight);

	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret && !scales)
		ret = sl_post_need(post, "weight_scale", 2, &scales);
	if (!ret)
		ret = sl_marlin_add_row_scales(&m, scales, SL_SCALE_ROUNDED);
	return ret ? ret : add_biases(&m);
}

/* ---- scales of a byte ---- */

/* Of rows and columns of padding: 1, where a scale is a power of two. */
static int add_byte_scales(const struct sl_marlin *m, const char *name, enum sl_dtype dtype)
{
	const struct sl_loaded *scales;
	struct sl_marlin_scales s = { SL_SCALE_BYTES, .order = order_of(m), .turned = true, .to = dtype };
	int ret = sl_post_need(m->post, name, m->experts ? 3 : 2, &scales);

	if (ret)
		return ret;
	s.pad = dtype == SL_F8_E8M0 ? ONE_E8M0 : 0;
	s.from = dtype == SL_F8_E8M0 && scales->dtype == SL_U8 ? SL_U8 : dtype; /* some store powers of two so */
	return sl_marlin_add_scales(m, scales, &s);
}

static int add_mxfp8(const struct sl_post *post, unsigned n_dims, const char *name, const char *name_of_scales)
{
	const struct sl_loaded *weight;
	struct sl_marlin m;
	int ret = find(post, name, n_dims, SL_F8_E4M3, 8, 32, &m, &weight);

	if (!ret && post->facts.dtype != SL_BF16)
		ret = sl_fail(
			post->plan->err, EINVAL,
			"%s%s: in F16 all of the scales are moved by what the least and the largest are: add -marlin to the layout",
			SL_ESC(post->prefix), name);
	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = add_byte_scales(&m, name_of_scales, SL_F8_E8M0);
	return ret || n_dims > 2 ? ret : add_biases(&m);
}

int sl_post_humming_mxfp8(const struct sl_post *post)
{
	return add_mxfp8(post, 2, "weight", "weight_scale");
}

int sl_post_humming_moe_mxfp8(const struct sl_post *post)
{
	int ret = refuse_bias(post);

	if (!ret)
		ret = add_mxfp8(post, 3, "w13", "w13_scale");
	return ret ? ret : add_mxfp8(post, 3, "w2", "w2_scale");
}

/* The global scale is inverted twice on its way (kernels/linear/nvfp4/humming.py, schema/compressed_tensors.py). */
int sl_post_humming_nvfp4(const struct sl_post *post)
{
	const struct sl_loaded *weight, *global;
	struct sl_transform t = sl_post_transform(SL_T_SCALARS, 1, 1, sizeof(float));
	struct sl_marlin m;
	int ret = find(post, "weight", 2, SL_U8, 4, 16, &m, &weight);

	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = add_byte_scales(&m, "weight_scale", SL_F8_E4M3);
	if (!ret)
		ret = add_biases(&m);
	if (!ret)
		ret = sl_post_need(post, "weight_global_scale", 0, &global);
	if (ret)
		return ret;
	t.args.p[SL_SCALARS_KIND] = SL_SCALAR_TWICE_INVERTED;
	sl_post_input(&t, global, 0, 1, global->len);
	return sl_post_one(post, "weight_scale_2", SL_F32, &t, SL_SHAPE(1));
}
