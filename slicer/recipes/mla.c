/*
 * mla.c - what latent attention multiplies with: kv_b_proj taken apart by heads (vLLM 0.32, mla_attention.py,
 * process_weights_after_loading).
 *
 *      kv_b_proj [heads * (nope + v), rank]  ->  W_UK_T [heads, nope, rank],  W_UV [heads, v, rank] (held as [heads, rank, v])
 *
 * Where the layer's kernel is DeepGEMM's or Marlin's, vLLM multiplies it with an identity matrix instead: not this.
 */
#include "slicer/post.h"
#include "slicer/transforms/dequant.h"
#include "slicer/transforms/rows.h"

#include <errno.h>

static const struct sl_loaded *scales_of(const struct sl_post *post)
{
	const struct sl_loaded *scale = sl_post_find(post, "weight_scale");

	return scale ? scale : sl_post_find(post, "weight_scale_inv");
}

/* Blocks of the scales: the whole matrix for a single one. */
static int set_scales(const struct sl_post *post, struct sl_transform *t, const struct sl_loaded *w)
{
	const struct sl_loaded *s = scales_of(post);
	uint64_t h = w->shape[0], v = w->shape[1], down = 1, across = 1;

	if (s && s->n_dims == 2) {
		h = post->facts.block[0] ? post->facts.block[0] : 128;
		v = post->facts.block[1] ? post->facts.block[1] : 128;
		down = (w->shape[0] + h - 1) / h, across = (w->shape[1] + v - 1) / v;
	}
	if (!s || s->dtype != SL_F32 || s->len != down * across * sizeof(float))
		return sl_fail(post->plan->err, EINVAL, "%sweight: FP8 of %llu x %llu without its %llu F32 scales",
			       SL_ESC(post->prefix), (unsigned long long)w->shape[0], (unsigned long long)w->shape[1],
			       (unsigned long long)(down * across));
	t->args.p[SL_QUANT_SCALE_ROWS] = h;
	t->args.p[SL_QUANT_SCALE_COLS] = v;
	sl_post_input(t, s, 0, down, across * sizeof(float));
	return 0;
}

/* The whole matrix in the model's dtype. */
static int plain(const struct sl_post *post, const struct sl_loaded *w, struct sl_stream *made)
{
	uint64_t size = sl_dtypes[post->facts.dtype].bits / 8;
	struct sl_transform t = sl_post_transform(SL_T_DEQUANT, 1, w->shape[0], w->shape[1] * size);
	int ret = 0;

	*made = (struct sl_stream){ .pieces = w->pieces, .n = w->n_pieces };
	if (w->dtype == post->facts.dtype)
		return 0;
	t.args.p[SL_QUANT_FROM] = w->dtype;
	t.args.p[SL_QUANT_COLS] = w->shape[1];
	t.args.p[SL_DEQUANT_TO] = post->facts.dtype;
	sl_post_input(&t, w, 0, w->shape[0], w->shape[1] * sl_dtypes[w->dtype].bits / 8);
	if (w->dtype == SL_F8_E4M3)
		ret = set_scales(post, &t, w);
	return ret ? ret : sl_post_make(post, &t, made);
}

/* Rows [first, first + n) of each head. */
static int add_rows(const struct sl_post *post, const char *name, const struct sl_stream *made, uint64_t first,
		    uint64_t n)
{
	const struct sl_post_facts *f = &post->facts;
	uint64_t row_bytes = f->rank * sl_dtypes[f->dtype].bits / 8;
	struct sl_transform t = sl_post_transform(SL_T_ROWS, f->heads, n, row_bytes);

	t.args.p[SL_ROWS_M] = n;
	sl_post_input_stream(&t, made, first * row_bytes, n, row_bytes);
	t.in[0].stride = (f->nope + f->v) * row_bytes;
	return sl_post_one(post, name, f->dtype, &t, SL_SHAPE(f->heads, n, f->rank));
}

int sl_post_mla(const struct sl_post *post)
{
	const struct sl_post_facts *f = &post->facts;
	const struct sl_loaded *w;
	struct sl_stream made;
	int ret = sl_post_need(post, "weight", 2, &w);

	if (!ret && (w->shape[0] != f->heads * (f->nope + f->v) || w->shape[1] != f->rank || f->nope == 0 || f->v == 0))
		ret = sl_fail(post->plan->err, EINVAL, "%sweight: [%llu, %llu] is not %llu heads of %llu + %llu x %llu",
			      SL_ESC(post->prefix), (unsigned long long)w->shape[0], (unsigned long long)w->shape[1],
			      (unsigned long long)f->heads, (unsigned long long)f->nope, (unsigned long long)f->v,
			      (unsigned long long)f->rank);
	if (!ret)
		ret = plain(post, w, &made);
	if (!ret)
		ret = add_rows(post, "W_UV", &made, f->nope, f->v);
	if (!ret)
		sl_post_turned(post);
	return ret ? ret : add_rows(post, "W_UK_T", &made, 0, f->nope);
}
