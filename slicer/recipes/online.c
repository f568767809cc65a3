/*
 * online.c - weights that are quantised while they are loaded, and blocks that get scales that are powers of two (vLLM 0.32,
 * quantization/online/, fp8_utils.py).
 *
 * A loaded tensor NAME@all is the whole matrix where NAME is one rank's share of columns, or of a largest value.
 */
#include "slicer/post.h"
#include "slicer/transforms/quant.h"

#include <errno.h>
#include <stdio.h>

/* Granules of a matrix. */
struct grain {
	enum sl_quant_kind kind;
	uint64_t rows, cols;
};

static int is_float(const struct sl_post *post, const struct sl_loaded *w)
{
	if (w->dtype == SL_BF16 || w->dtype == SL_F16 || w->dtype == SL_F32)
		return 0;
	return sl_fail(post->plan->err, EINVAL, "%s%s is %s: only floats are quantised", SL_ESC(post->prefix), w->name,
		       sl_dtypes[w->dtype].name);
}

/* A transform over [batch, n, k], with its inputs. */
static struct sl_transform quant(const struct sl_post *post, enum sl_transform_id id, const struct sl_loaded *w,
				 const struct sl_loaded *all, const struct grain *grain)
{
	bool stacked = w->n_dims == 3;
	uint64_t batch = stacked ? w->shape[0] : 1, n = w->shape[stacked], k = w->shape[stacked + 1];
	uint64_t size = sl_dtypes[w->dtype].bits / 8, scale = grain->kind == SL_QUANT_MX ? 1 : 4;
	uint64_t across = grain->kind == SL_QUANT_TENSOR ? 1 : (k + grain->cols - 1) / grain->cols;
	uint64_t down = grain->kind == SL_QUANT_TENSOR ? 1 : (n + grain->rows - 1) / grain->rows;
	struct sl_transform t = id == SL_T_QUANT ? sl_post_transform(id, batch, n, k)
						 : sl_post_transform(id, batch, down, across * scale);
	t.args.p[SL_QUANT_KIND] = grain->kind;
	t.args.p[SL_QUANT_FROM] = w->dtype;
	t.args.p[SL_QUANT_COLS] = k;
	t.args.p[SL_QUANT_ROWS_OF] = grain->rows;
	t.args.p[SL_QUANT_COLS_OF] = grain->cols;
	t.args.p[SL_QUANT_CPU] = post->facts.cpu;
	sl_post_input(&t, w, 0, n, k * size);
	if (!all)
		return t;
	sl_post_input(&t, w, 0, 0, 0);
	sl_post_input(&t, all, 0, all->shape[stacked], all->shape[stacked + 1] * size);
	t.args.p[SL_QUANT_ALL_COLS] = all->shape[stacked + 1];
	return t;
}

/* Codes under the matrix's name, scales under another. */
static int quantise(const struct sl_post *post, const struct sl_loaded *w, const struct grain *grain,
		    const char *scale_name, const uint64_t *scale_shape, unsigned n_dims)
{
	char name[64];
	int ret = is_float(post, w);

	snprintf(name, sizeof(name), "%s@all", w->name);
	const struct sl_loaded *all = sl_post_find(post, name);
	struct sl_transform codes = quant(post, SL_T_QUANT, w, all, grain),
			    scales = quant(post, SL_T_QUANT_SCALES, w, all, grain);
	if (!ret)
		ret = sl_post_share_facts(post, &codes, &scales);
	if (!ret)
		ret = sl_post_one(post, w->name, SL_F8_E4M3, &codes, w->shape, w->n_dims);
	if (!ret && w->n_dims == 2 && (grain->kind == SL_QUANT_TENSOR || grain->kind == SL_QUANT_ROW))
		sl_post_turned(post);
	return ret ? ret
		   : sl_post_one(post, scale_name, grain->kind == SL_QUANT_MX ? SL_U8 : SL_F32, &scales, scale_shape,
				 n_dims);
}

int sl_post_online_tensor(const struct sl_post *post)
{
	const struct grain grain = { SL_QUANT_TENSOR, 1, 1 };
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "weight", 2, &w);

	return ret ? ret : quantise(post, w, &grain, "weight_scale", SL_SHAPE(1));
}

int sl_post_online_channel(const struct sl_post *post)
{
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (ret)
		return ret;
	const struct grain grain = { SL_QUANT_ROW, 1, w->shape[1] };
	return quantise(post, w, &grain, "weight_scale", SL_SHAPE(w->shape[0], 1));
}

int sl_post_online_block(const struct sl_post *post)
{
	const uint64_t *block = post->facts.block;
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (!ret && (block[0] == 0 || block[1] == 0))
		ret = sl_fail(post->plan->err, EINVAL, "%sweight: blocks of no size", SL_ESC(post->prefix));
	if (ret)
		return ret;
	const struct grain grain = { SL_QUANT_BLOCK, block[0], block[1] };
	return quantise(post, w, &grain, "weight_scale_inv",
			SL_SHAPE((w->shape[0] + block[0] - 1) / block[0], (w->shape[1] + block[1] - 1) / block[1]));
}

int sl_post_online_mxfp8(const struct sl_post *post)
{
	const struct grain grain = { SL_QUANT_MX, 1, 32 };
	const struct sl_loaded *w;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (!ret && w->shape[1] % 32)
		ret = sl_fail(post->plan->err, EINVAL, "%sweight: %llu columns are no whole number of groups of 32",
			      SL_ESC(post->prefix), (unsigned long long)w->shape[1]);
	return ret ? ret : quantise(post, w, &grain, "weight_scale", SL_SHAPE(w->shape[0], w->shape[1] / 32));
}

/* w13 and w2 of experts. */
static int experts(const struct sl_post *post, enum sl_quant_kind kind)
{
	static const char *const names[] = { "w13", "w2" }, *const scales[] = { "w13_scale", "w2_scale" };
	const struct sl_loaded *w;
	int ret = 0;

	for (unsigned i = 0; i < 2 && !ret; i++) {
		ret = sl_post_need(post, names[i], 3, &w);
		if (ret)
			break;
		const struct grain grain = { kind, 1, kind == SL_QUANT_TENSOR ? 1 : w->shape[2] };
		const uint64_t shape[] = { w->shape[0], w->shape[1], 1 };
		ret = quantise(post, w, &grain, scales[i], shape, kind == SL_QUANT_TENSOR ? 1 : 3);
	}
	return ret;
}

/* vLLM rounds an expert's sizes up to whole blocks: not compared. */
int sl_post_online_moe_block(const struct sl_post *post)
{
	static const char *const names[] = { "w13", "w2" }, *const scales[] = { "w13_scale", "w2_scale" };
	const struct grain grain = { SL_QUANT_BLOCK, post->facts.block[0], post->facts.block[1] };
	const struct sl_loaded *w;
	int ret = 0;

	for (unsigned i = 0; i < 2 && !ret; i++) {
		ret = sl_post_need(post, names[i], 3, &w);
		if (!ret && (grain.rows == 0 || grain.cols == 0 || w->shape[1] % grain.rows ||
			     w->shape[2] % grain.cols || (i == 0 && w->shape[1] / 2 % grain.rows)))
			ret = sl_fail(post->plan->err, EINVAL,
				      "%s%s: %llu x %llu are no whole blocks of %llu x %llu, to which vLLM pads them",
				      SL_ESC(post->prefix), names[i], (unsigned long long)w->shape[1],
				      (unsigned long long)w->shape[2], (unsigned long long)grain.rows,
				      (unsigned long long)grain.cols);
		if (!ret)
			ret = quantise(post, w, &grain, scales[i],
				       SL_SHAPE(w->shape[0], w->shape[1] / grain.rows, w->shape[2] / grain.cols));
	}
	return ret;
}

int sl_post_online_moe_tensor(const struct sl_post *post)
{
	return experts(post, SL_QUANT_TENSOR);
}

int sl_post_online_moe_channel(const struct sl_post *post)
{
	return experts(post, SL_QUANT_ROW);
}

/* ---- blocks again ---- */

/* Codes or scales of the same blocks, from codes and scales. */
static struct sl_transform requant(const struct sl_post *post, enum sl_transform_id id, const struct sl_loaded *w,
				   const struct sl_loaded *s, const struct grain *grain)
{
	struct sl_transform t = quant(post, id, w, NULL, grain);

	t.args.p[SL_QUANT_SCALE_ROWS] = grain->rows;
	t.args.p[SL_QUANT_SCALE_COLS] = grain->cols;
	sl_post_input(&t, s, 0, s->shape[0], s->shape[1] * sizeof(float));
	return t;
}

int sl_post_block_ue8m0(const struct sl_post *post)
{
	const struct grain grain = { SL_QUANT_UE8M0, post->facts.block[0], post->facts.block[1] };
	const struct sl_loaded *w, *s;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (!ret)
		ret = sl_post_need(post, "weight_scale_inv", 2, &s);
	if (!ret && (grain.rows == 0 || grain.cols == 0 || w->dtype != SL_F8_E4M3 || s->dtype != SL_F32 ||
		     s->shape[0] != (w->shape[0] + grain.rows - 1) / grain.rows ||
		     s->shape[1] != (w->shape[1] + grain.cols - 1) / grain.cols))
		ret = sl_fail(post->plan->err, EINVAL, "%sweight_scale_inv: %llu x %llu scales for %llu x %llu codes",
			      SL_ESC(post->prefix), (unsigned long long)s->shape[0], (unsigned long long)s->shape[1],
			      (unsigned long long)w->shape[0], (unsigned long long)w->shape[1]);
	if (ret)
		return ret;
	const struct sl_transform codes = requant(post, SL_T_QUANT, w, s, &grain),
				  scales = requant(post, SL_T_QUANT_SCALES, w, s, &grain);
	ret = sl_post_one(post, "weight", SL_F8_E4M3, &codes, w->shape, 2);
	return ret ? ret : sl_post_one(post, "weight_scale_inv", SL_F32, &scales, s->shape, 2);
}
