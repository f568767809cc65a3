/*
 * marlin_moe.c - stacked experts for Marlin's kernels: as linear layers, expert by expert; only the intermediate size is padded,
 * that of gate and up each by itself.
 *
 *      w13 [experts, gate and up, hidden]      w2 [experts, hidden, inter]
 */
#include "slicer/recipes/marlin.h"

#include "slicer/recipes/sizes.h"

#include <errno.h>

/* Both matrices of the experts, and the names of what comes with them. */
struct experts {
	struct sl_marlin w13, w2;
	const struct sl_loaded *loaded13, *loaded2;
};

/* Sizes from w13, which is packed as `from` says in elements of `dtype`. */
static int find_experts(const struct sl_post *post, enum sl_packing from, enum sl_dtype dtype, unsigned bits,
			struct experts *x)
{
	unsigned halves = post->facts.gated ? 2 : 1;
	int ret = sl_post_need(post, "w13", 3, &x->loaded13);

	if (!ret)
		ret = sl_post_need(post, "w2", 3, &x->loaded2);
	if (ret)
		return ret;
	const uint64_t *shape = x->loaded13->shape;
	uint64_t packs = sl_dtype_bytes(dtype, 1) * 8 / bits, n = shape[1], k = shape[2] * packs;
	if (from == SL_FROM_AWQ) {
		k = shape[1];
		n = shape[2] * packs;
	} else if (from == SL_FROM_WORDS) {
		k = shape[1] * packs;
		n = shape[2];
	}
	if (post->facts.act8)
		return sl_fail(post->plan->err, EINVAL, "%s: scales for activations of 8 bits are not known",
			       SL_ESC(post->prefix));
	if (shape[0] == 0 || n == 0 || n % halves)
		return sl_fail(post->plan->err, EINVAL, "%sw13: %llu experts of %llu columns are not %u halves",
			       SL_ESC(post->prefix), (unsigned long long)shape[0], (unsigned long long)n, halves);
	x->w13 = (struct sl_marlin){ .post = post,
				     .from = from,
				     .dtype = dtype,
				     .bits = bits,
				     .halves = halves,
				     .experts = shape[0],
				     .k = k,
				     .n = n / halves };
	x->w2 = x->w13;
	x->w2.halves = 1;
	x->w2.k = x->w13.n;
	x->w2.n = k;
	return 0;
}

/* Groups, and multiples to which the intermediate size is padded. */
static int pad_experts(struct experts *x, uint64_t group, uint64_t multiple)
{
	uint64_t inter = x->w13.n, hidden = x->w13.k;

	if (group && (inter % group || hidden % group))
		return sl_fail(
			x->w13.post->plan->err, EINVAL,
			"%sw13: groups of %llu do not divide an intermediate size of %llu and a hidden one of %llu",
			SL_ESC(x->w13.post->prefix), (unsigned long long)group, (unsigned long long)inter,
			(unsigned long long)hidden);
	x->w13.group = x->w2.group = group;
	x->w13.k_padded = x->w2.n_padded = hidden;
	x->w13.n_padded = x->w2.k_padded = sl_up(inter, group ? sl_lcm(multiple, group) : multiple);
	return 0;
}

static int add_weights(const struct experts *x)
{
	int ret = sl_marlin_add_weight(&x->w13, x->loaded13);

	return ret ? ret : sl_marlin_add_weight(&x->w2, x->loaded2);
}

static int add_biases(const struct experts *x)
{
	int ret = sl_marlin_add_bias(&x->w13, "w13_bias");

	return ret ? ret : sl_marlin_add_bias(&x->w2, "w2_bias");
}

/* ---- integers ---- */

/* The order of scales is told by the unpadded intermediate size, w13's too; of w2 by its own, but for AWQ. */
static enum sl_scale_order order_by(const struct experts *x)
{
	return x->w13.group && x->w13.group < x->w13.n ? SL_SCALES_IN_64 : SL_SCALES_IN_32;
}

static enum sl_scale_order order_of_w2(const struct experts *x)
{
	return x->w2.from == SL_FROM_AWQ ? order_by(x) : sl_marlin_order(&x->w2);
}

static int add_integer_scales(const struct sl_marlin *m, const char *name, enum sl_scale_order order)
{
	const struct sl_loaded *scales;
	int ret = sl_post_need(m->post, name, 3, &scales);

	if (ret)
		return ret;
	enum sl_dtype dtype = scales->dtype == SL_F16 ? SL_F16 : SL_BF16;
	return sl_marlin_add_scales(m, scales,
				    &(struct sl_marlin_scales){ SL_SCALE_KEEP, .order = order,
								.turned = m->from == SL_FROM_ROWS, .from = dtype,
								.to = dtype });
}

static int add_integer_zeros(const struct experts *x, bool needed)
{
	const struct sl_loaded *zeros13 = sl_post_find(x->w13.post, "w13_zp"),
			       *zeros2 = sl_post_find(x->w2.post, "w2_zp");
	int ret = 0;

	if (!needed && !zeros13 && !zeros2)
		return 0;
	ret = sl_post_need(x->w13.post, "w13_zp", 3, &zeros13);
	if (!ret)
		ret = sl_post_need(x->w2.post, "w2_zp", 3, &zeros2);
	if (!ret)
		ret = sl_marlin_add_zeros(&x->w13, zeros13);
	return ret ? ret : sl_marlin_add_zeros(&x->w2, zeros2);
}

static int integers(const struct sl_post *post, enum sl_packing from, unsigned bits, bool zeros)
{
	struct experts x;
	int ret = find_experts(post, from, SL_I32, bits, &x);

	if (!ret)
		ret = pad_experts(&x, post->facts.group, 64);
	if (!ret)
		ret = add_weights(&x);
	if (!ret)
		ret = add_integer_scales(&x.w13, "w13_scale", order_by(&x));
	if (!ret)
		ret = add_integer_scales(&x.w2, "w2_scale", order_of_w2(&x));
	if (!ret)
		ret = add_integer_zeros(&x, zeros);
	return ret ? ret : add_biases(&x);
}

static int integers_of_any_bits(const struct sl_post *post, enum sl_packing from)
{
	if (post->facts.bits != 4 && post->facts.bits != 8)
		return sl_fail(post->plan->err, EINVAL, "%sw13: elements of %u bits; Marlin has 4 and 8",
			       SL_ESC(post->prefix), post->facts.bits);
	return integers(post, from, post->facts.bits, false);
}

int sl_post_marlin_moe_wna16(const struct sl_post *post)
{
	return integers_of_any_bits(post, SL_FROM_ROWS);
}

/* auto_gptq.py turns them and goes the same way; a bias that is not stored is gone. */
int sl_post_marlin_moe_gptq(const struct sl_post *post)
{
	return integers_of_any_bits(post, SL_FROM_WORDS);
}

int sl_post_marlin_moe_awq(const struct sl_post *post)
{
	if (post->facts.bits != 4)
		return sl_fail(post->plan->err, EINVAL, "%sw13: AWQ of %u bits; experts have 4", SL_ESC(post->prefix),
			       post->facts.bits);
	return integers(post, SL_FROM_AWQ, 4, true);
}

/* ---- FP8 ---- */

/* One for an expert, or one a row, or one for a block. */
static int add_fp8_scales(const struct sl_marlin *m, const char *name)
{
	const struct sl_post *post = m->post;
	const struct sl_loaded *scales = sl_post_find(post, name);
	uint64_t n = m->halves * m->n;
	struct sl_marlin_scales s = { SL_SCALE_FUSED, .order = sl_marlin_order(m), .turned = true,
				      .to = post->facts.dtype };

	if (!scales)
		return sl_fail(post->plan->err, EINVAL, "%s has no '%s'", SL_ESC(post->prefix), name);
	s.from = scales->dtype == SL_BF16 || scales->dtype == SL_F16 ? scales->dtype : SL_F32;
	s.repeat = m->group ? post->facts.block[0] : scales->n_dims == 1 ? n : 1;
	if (scales->n_dims > 1)
		return sl_marlin_add_scales(m, scales, &s);
	struct sl_loaded matrices = *scales; /* [experts] as [experts, 1, 1] */
	const uint64_t shape[3] = { scales->n_dims ? scales->shape[0] : 0, 1, 1 };
	matrices.shape = shape;
	matrices.n_dims = 3;
	return sl_marlin_add_scales(m, &matrices, &s);
}

int sl_post_marlin_moe_fp8(const struct sl_post *post)
{
	struct experts x;
	int ret = find_experts(post, SL_FROM_ROWS, SL_F8_E4M3, 8, &x);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (!ret)
		ret = pad_experts(&x, post->facts.block[1], 64);
	if (!ret)
		ret = add_weights(&x);
	if (!ret)
		ret = add_fp8_scales(&x.w13, "w13_scale");
	if (!ret)
		ret = add_fp8_scales(&x.w2, "w2_scale");
	return ret ? ret : add_biases(&x);
}

/* ---- scales of a byte ---- */

static int add_byte_scales(const struct sl_marlin *m, const char *name, enum sl_scale_kind kind)
{
	const struct sl_loaded *scales;
	struct sl_marlin_scales s = { kind, .order = sl_marlin_order(m), .swap = true, .turned = true };
	int ret = sl_post_need(m->post, name, 3, &scales);

	if (ret)
		return ret;
	s.to = kind == SL_SCALE_NVFP4 ? SL_F8_E4M3 : SL_F8_E8M0;
	s.from = kind == SL_SCALE_E8M0 && scales->dtype == SL_U8 ? SL_U8 : s.to; /* some store powers of two so */
	return sl_marlin_add_scales(m, scales, &s);
}

static int add_bytes(const struct experts *x, enum sl_scale_kind kind)
{
	int ret = add_weights(x);

	if (!ret)
		ret = add_byte_scales(&x->w13, "w13_scale", kind);
	if (!ret)
		ret = add_byte_scales(&x->w2, "w2_scale", kind);
	return ret ? ret : add_biases(x);
}

int sl_post_marlin_moe_mxfp8(const struct sl_post *post)
{
	struct experts x;
	int ret = find_experts(post, SL_FROM_ROWS, SL_F8_E4M3, 8, &x);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (!ret)
		ret = pad_experts(&x, 32, 64);
	return ret ? ret : add_bytes(&x, SL_SCALE_E8M0);
}

static int add_globals(const struct sl_post *post)
{
	const struct sl_loaded *scales13, *scales2;
	int ret = sl_post_need(post, "w13_scale", 3, &scales13);

	if (!ret)
		ret = sl_post_need(post, "w2_scale", 3, &scales2);
	if (!ret)
		ret = sl_marlin_add_global(post, "w13_scale_2", scales13);
	return ret ? ret : sl_marlin_add_global(post, "w2_scale_2", scales2);
}

int sl_post_marlin_moe_nvfp4(const struct sl_post *post)
{
	struct experts x;
	int ret = find_experts(post, SL_FROM_ROWS, SL_U8, 4, &x);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (!ret)
		ret = pad_experts(&x, 16, x.w13.k % 128 == 0 ? 64 : 128);
	if (!ret)
		ret = add_bytes(&x, SL_SCALE_NVFP4);
	return ret ? ret : add_globals(post);
}

/* gpt-oss: rows of gate and up alternate and stay so; it was padded when it was allocated. */
int sl_post_marlin_moe_mxfp4(const struct sl_post *post)
{
	struct experts x;
	int ret = find_experts(post, SL_FROM_ROWS, SL_U8, 4, &x);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (!ret)
		ret = pad_experts(&x, 32, 1);
	if (ret)
		return ret;
	x.w13.n *= x.w13.halves;
	x.w13.n_padded *= x.w13.halves;
	x.w13.halves = 1;
	return add_bytes(&x, SL_SCALE_E8M0);
}
