/*
 * marlin.c - linear layers for Marlin's kernels: GPTQ, AWQ and compressed-tensors of 4 and 8 bits, FP8, MXFP8, FP4.
 */
#include "slicer/recipes/marlin.h"

#include "slicer/recipes/sizes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- checks ---- */

static const char *shape_text(char text[80], const uint64_t *shape, unsigned n_dims)
{
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < n_dims && at < 80; i++)
		at += (size_t)snprintf(text + at, 80 - at, "%s%llu", i ? " x " : "", (unsigned long long)shape[i]);
	return n_dims ? text : "without dimensions";
}

int sl_marlin_check(const struct sl_post *post, const struct sl_loaded *loaded, enum sl_dtype dtype,
		    const uint64_t *shape, unsigned n_dims)
{
	char is[80], not [80];

	if (loaded->dtype == dtype && loaded->n_dims == n_dims &&
	    memcmp(loaded->shape, shape, n_dims * sizeof(*shape)) == 0)
		return 0;
	return sl_fail(post->plan->err, EINVAL, "%s%s is %s %s, not %s %s", SL_ESC(post->prefix), loaded->name,
		       sl_dtypes[loaded->dtype].name, shape_text(is, loaded->shape, loaded->n_dims),
		       sl_dtypes[dtype].name, shape_text(not, shape, n_dims));
}

int sl_marlin_need_dtype(const struct sl_post *post)
{
	if (post->facts.dtype == SL_BF16 || post->facts.dtype == SL_F16)
		return 0;
	return sl_fail(post->plan->err, EINVAL, "%s: Marlin computes in BF16 or F16, not in %s", SL_ESC(post->prefix),
		       sl_dtypes[post->facts.dtype].name);
}

static int fail_size(const struct sl_marlin *m, const char *name, const char *why)
{
	return sl_fail(m->post->plan->err, EINVAL, "%s%s: %llu rows of %u x %llu columns: %s", SL_ESC(m->post->prefix),
		       name, (unsigned long long)m->k, m->halves, (unsigned long long)m->n, why);
}

int sl_marlin_pad_linear(struct sl_marlin *m, const char *name)
{
	uint64_t padded[2];

	if (m->group && m->k % m->group)
		return sl_fail(m->post->plan->err, EINVAL, "%s%s: groups of %llu do not divide %llu columns",
			       SL_ESC(m->post->prefix), name, (unsigned long long)m->group, (unsigned long long)m->k);
	sl_marlin_padded_nk(m->n, m->k, m->group, padded);
	m->n_padded = padded[0];
	m->k_padded = padded[1];
	return 0;
}

static uint64_t members(const struct sl_marlin *m)
{
	return m->experts ? m->experts : 1;
}

/* A tensor of a matrix for each expert, or of one. */
static int check_matrix(const struct sl_marlin *m, const struct sl_loaded *loaded, enum sl_dtype dtype, uint64_t rows,
			uint64_t columns)
{
	if (m->experts)
		return sl_marlin_check(m->post, loaded, dtype, SL_SHAPE(m->experts, rows, columns));
	return sl_marlin_check(m->post, loaded, dtype, SL_SHAPE(rows, columns));
}

static int add_matrix(const struct sl_marlin *m, const char *name, enum sl_dtype dtype, const struct sl_transform *t,
		      uint64_t columns)
{
	uint64_t rows = sl_transform_member(&t->args) / sl_dtype_bytes(dtype, columns);

	if (m->experts)
		return sl_post_one(m->post, name, dtype, t, SL_SHAPE(m->experts, rows, columns));
	return sl_post_one(m->post, name, dtype, t, SL_SHAPE(rows, columns));
}

/* ---- packed values ---- */

/* One half of a source of which all halves are matrices of rows x row_bytes: side by side, or one above the other. */
static void add_half(struct sl_transform *t, const struct sl_loaded *loaded, unsigned halves, unsigned half,
		     bool beside, uint64_t rows, uint64_t row_bytes)
{
	unsigned i = t->n_inputs;

	sl_post_input(t, loaded, half * (beside ? row_bytes : rows * row_bytes), rows, row_bytes);
	t->in[i].stride = halves * rows * row_bytes;
	t->in[i].pitch = beside ? halves * row_bytes : row_bytes;
}

static void add_halves(struct sl_transform *t, const struct sl_marlin *m, const struct sl_loaded *loaded, bool beside,
		       uint64_t rows, uint64_t row_bytes)
{
	for (unsigned half = 0; half < m->halves; half++)
		add_half(t, loaded, m->halves, half, beside, rows, row_bytes);
}

static void set_repack(struct sl_transform *t, const struct sl_marlin *m, enum sl_packing from, enum sl_packed to)
{
	t->args.p[SL_REPACK_BITS] = m->bits;
	t->args.p[SL_REPACK_FROM] = from;
	t->args.p[SL_REPACK_TO] = to;
	t->args.p[SL_REPACK_HALF] = m->halves > 1 ? m->n_padded : 0;
}

/* The source's rows and bytes of them, of a half. */
static void packed_size(const struct sl_marlin *m, uint64_t *rows, uint64_t *row_bytes)
{
	uint64_t per_word = 32 / m->bits;

	*rows = m->from == SL_FROM_WORDS ? m->k / per_word : m->from == SL_FROM_ROWS ? m->n : m->k;
	*row_bytes = m->from == SL_FROM_WORDS ? m->n * 4 : (m->from == SL_FROM_ROWS ? m->k : m->n) * m->bits / 8;
}

static int check_tiles(const struct sl_marlin *m, const char *name)
{
	uint64_t size = sl_dtype_bytes(m->dtype, 1), k_rows = m->act8 ? 32 : 16, columns = m->act8 ? 32 : 64;

	if (m->k == 0 || m->n == 0)
		return fail_size(m, name, "nothing to pack");
	if (m->from == SL_FROM_AWQ && m->n * m->bits / 8 % size)
		return fail_size(m, name, "no whole words");
	if (m->k_padded % k_rows || (m->halves * m->n_padded) % columns || (m->halves > 1 && m->n_padded % columns))
		return fail_size(m, name, m->act8 ? "not in tiles of 32 x 32" : "not in tiles of 16 x 64");
	return 0;
}

int sl_marlin_add_weight(const struct sl_marlin *m, const struct sl_loaded *weight)
{
	uint64_t rows, row_bytes, depth = m->act8 ? 32 : 16, columns = m->halves * m->n_padded * 16 * m->bits / 32;
	bool beside = m->from != SL_FROM_ROWS;
	int ret = check_tiles(m, weight->name);

	packed_size(m, &rows, &row_bytes);
	if (!ret)
		ret = check_matrix(m, weight, m->dtype, beside ? rows : rows * m->halves,
				   (beside ? row_bytes * m->halves : row_bytes) / sl_dtype_bytes(m->dtype, 1));
	if (ret)
		return ret;
	struct sl_transform t = sl_post_transform(SL_T_REPACK, members(m), m->k_padded / depth,
						  m->halves * m->n_padded * depth * m->bits / 8);
	set_repack(&t, m, m->from, m->act8 ? SL_TO_TILES_A8 : SL_TO_TILES);
	add_halves(&t, m, weight, beside, rows, row_bytes);
	return add_matrix(m, weight->name, SL_I32, &t, columns);
}

static uint64_t groups(const struct sl_marlin *m, uint64_t k)
{
	return m->group ? k / m->group : 1;
}

/* How zero points are packed: along n in each format. */
static const struct {
	enum sl_packing zeros;
	bool turned;
} packing[SL_N_PACKINGS] = {
	[SL_FROM_ROWS] = { SL_FROM_WORDS, true },
	[SL_FROM_WORDS] = { SL_FROM_ROWS, true },
	[SL_FROM_AWQ] = { SL_FROM_AWQ, false },
};

int sl_marlin_add_zeros(const struct sl_marlin *m, const struct sl_loaded *zeros)
{
	uint64_t n_groups = groups(m, m->k), per_word = 32 / m->bits, words = m->n / per_word;
	bool beside = m->from != SL_FROM_ROWS; /* a group's in one row */
	int ret = m->n % per_word ? fail_size(m, zeros->name, "no whole words") : 0;

	if (!ret)
		ret = check_matrix(m, zeros, SL_I32, beside ? n_groups : words * m->halves,
				   beside ? words * m->halves : n_groups);
	if (ret)
		return ret;
	struct sl_transform t = sl_post_transform(SL_T_REPACK, members(m), groups(m, m->k_padded),
						  m->halves * m->n_padded * m->bits / 8);
	set_repack(&t, m, packing[m->from].zeros, SL_TO_ZEROS);
	t.args.p[SL_REPACK_TURNED] = packing[m->from].turned;
	add_halves(&t, m, zeros, beside, beside ? n_groups : words, 4 * (beside ? words : n_groups));
	return add_matrix(m, zeros->name, SL_I32, &t, m->halves * m->n_padded / per_word);
}

/* ---- scales ---- */

enum sl_scale_order sl_marlin_order(const struct sl_marlin *m)
{
	return m->group && m->group < m->k_padded ? SL_SCALES_IN_64 : SL_SCALES_IN_32;
}

static int set_scales(struct sl_transform *t, const struct sl_marlin *m, const struct sl_loaded *loaded,
		      const struct sl_marlin_scales *s)
{
	uint64_t *p = t->args.p;

	if (s->n_widths > SL_SCALES_RANGES_MAX)
		return sl_fail(m->post->plan->err, EINVAL, "%s%s: %u matrices are fused, more than %u",
			       SL_ESC(m->post->prefix), loaded->name, s->n_widths, SL_SCALES_RANGES_MAX);
	p[SL_SCALES_KIND] = s->kind;
	p[SL_SCALES_ORDER] = s->order;
	p[SL_SCALES_SWAP] = s->swap;
	p[SL_SCALES_TURNED] = s->turned;
	p[SL_SCALES_HALF] = m->n_padded;
	p[SL_SCALES_REAL] = m->n;
	p[SL_SCALES_REPEAT] = s->repeat ? s->repeat : 1;
	p[SL_SCALES_FROM] = s->from;
	p[SL_SCALES_TO] = m->post->facts.dtype;
	p[SL_SCALES_PAD] = s->pad;
	p[SL_SCALES_N_RANGES] = s->n_widths;
	for (unsigned i = 0; i < s->n_widths; i++)
		p[SL_SCALES_ENDS + i] = (i ? p[SL_SCALES_ENDS + i - 1] : 0) + s->widths[i];
	return 0;
}

/* The source is what its shape says: the caller has compared it. */
static int make_scales(const struct sl_marlin *m, const struct sl_loaded *scales, const struct sl_marlin_scales *s,
		       uint64_t n_groups, uint64_t columns)
{
	uint64_t size = sl_dtype_bytes(s->from, 1), all = m->halves * m->n_padded,
		 rows = s->turned ? columns : n_groups;
	struct sl_transform t =
		sl_post_transform(SL_T_MARLIN_SCALES, members(m), groups(m, m->k_padded), sl_dtype_bytes(s->to, all));
	int ret = set_scales(&t, m, scales, s);

	if (ret)
		return ret;
	sl_post_input(&t, scales, 0, rows, size * (s->turned ? n_groups : columns));
	return add_matrix(m, scales->name, s->to, &t, all);
}

int sl_marlin_add_scales(const struct sl_marlin *m, const struct sl_loaded *scales, const struct sl_marlin_scales *s)
{
	uint64_t n_groups = groups(m, m->k), n = m->halves * m->n, repeat = s->repeat ? s->repeat : 1;
	uint64_t columns = (n + repeat - 1) / repeat;
	int ret = check_matrix(m, scales, s->from, s->turned ? columns : n_groups, s->turned ? n_groups : columns);

	return ret ? ret : make_scales(m, scales, s, n_groups, columns);
}

int sl_marlin_add_bias(const struct sl_marlin *m, const char *name)
{
	const struct sl_loaded *bias = sl_post_find(m->post, name);
	uint64_t n = m->halves * m->n, padded = m->halves * m->n_padded;
	struct sl_marlin_scales s = { SL_SCALE_KEEP, .order = SL_SCALES_IN_32 };
	int ret;

	if (!bias)
		return 0;
	s.from = s.to = bias->dtype == SL_F16 ? SL_F16 : SL_BF16;
	if (m->experts)
		ret = sl_marlin_check(m->post, bias, s.from, SL_SHAPE(m->experts, n));
	else
		ret = sl_marlin_check(m->post, bias, s.from, SL_SHAPE(n));
	struct sl_transform t = sl_post_transform(SL_T_MARLIN_SCALES, members(m), 1, padded * 2);
	if (!ret)
		ret = set_scales(&t, m, bias, &s);
	if (ret)
		return ret;
	sl_post_input(&t, bias, 0, 1, n * 2);
	if (m->experts)
		return sl_post_one(m->post, name, s.to, &t, SL_SHAPE(m->experts, padded));
	return sl_post_one(m->post, name, s.to, &t, SL_SHAPE(padded));
}

int sl_marlin_add_global(const struct sl_post *post, const char *name, const struct sl_loaded *scales)
{
	const struct sl_loaded *global = sl_post_find(post, name);

	if (!global || global->dtype != SL_F32 || global->n_dims > 1 || global->len == 0)
		return sl_fail(post->plan->err, EINVAL, "%s%s: no F32 numbers", SL_ESC(post->prefix), name);
	struct sl_transform t = sl_post_transform(SL_T_MARLIN_SCALES, 1, 1, global->len);
	t.args.p[SL_SCALES_KIND] = SL_SCALE_NVFP4_GLOBAL;
	t.args.p[SL_SCALES_ORDER] = SL_SCALES_SAME;
	t.args.p[SL_SCALES_HALF] = t.args.p[SL_SCALES_REAL] = global->len / sizeof(float);
	t.args.p[SL_SCALES_REPEAT] = 1;
	t.args.p[SL_SCALES_TO] = post->facts.dtype;
	sl_post_input(&t, global, 0, 1, global->len);
	sl_post_input(&t, scales, 0, scales->len / scales->shape[scales->n_dims - 1],
		      scales->shape[scales->n_dims - 1]);
	return sl_post_one(post, name, SL_F32, &t, global->shape, global->n_dims);
}

/* ---- integers of 4 and 8 bits ---- */

struct integers {
	const char *weight, *scales, *zeros;
	enum sl_packing from;
	bool turned; /* scales */
	enum { NO_ZEROS, MAYBE_ZEROS, ZEROS } has;
};

static int check_bits(const struct sl_post *post, const char *name)
{
	if (post->facts.bits != 4 && post->facts.bits != 8)
		return sl_fail(post->plan->err, EINVAL, "%s%s: elements of %u bits; Marlin has 4 and 8",
			       SL_ESC(post->prefix), name, post->facts.bits);
	return 0;
}

/* The matrix of which this is the packing. */
static int unpacked(const struct sl_post *post, const char *name, enum sl_packing from, struct sl_marlin *m,
		    const struct sl_loaded **weight)
{
	int ret = sl_post_need(post, name, 2, weight);

	if (!ret)
		ret = check_bits(post, name);
	if (ret)
		return ret;
	uint64_t rows = (*weight)->shape[0], words = (*weight)->shape[1], per_word = 32 / post->facts.bits;
	*m = (struct sl_marlin){ .post = post, .from = from, .dtype = SL_I32, .bits = post->facts.bits, .halves = 1 };
	m->k = from == SL_FROM_WORDS ? rows * per_word : from == SL_FROM_ROWS ? words * per_word : rows;
	m->n = from == SL_FROM_WORDS ? words : from == SL_FROM_ROWS ? rows : words * per_word;
	m->k_padded = m->k;
	m->n_padded = m->n;
	return 0;
}

static int refuse_act8(const struct sl_post *post)
{
	if (!post->facts.act8)
		return 0;
	return sl_fail(post->plan->err, EINVAL, "%s: scales for activations of 8 bits are not known",
		       SL_ESC(post->prefix));
}

static int add_integer_scales(const struct sl_marlin *m, const char *name, bool turned)
{
	const struct sl_loaded *scales;
	int ret = sl_post_need(m->post, name, 2, &scales);

	if (ret)
		return ret;
	enum sl_dtype dtype = scales->dtype == SL_F16 ? SL_F16 : SL_BF16;
	return sl_marlin_add_scales(m, scales,
				    &(struct sl_marlin_scales){ SL_SCALE_KEEP, .order = sl_marlin_order(m),
								.turned = turned, .from = dtype, .to = dtype });
}

static int add_integer_zeros(const struct sl_marlin *m, const struct integers *names)
{
	const struct sl_loaded *zeros = names->has == NO_ZEROS ? NULL : sl_post_find(m->post, names->zeros);

	if (zeros)
		return sl_marlin_add_zeros(m, zeros);
	return names->has == ZEROS ? sl_post_need(m->post, names->zeros, 2, &zeros) : 0;
}

static int integers(const struct sl_post *post, const struct integers *names)
{
	const struct sl_loaded *weight;
	struct sl_marlin m;
	int ret = unpacked(post, names->weight, names->from, &m, &weight);

	if (!ret)
		ret = refuse_act8(post);
	m.group = post->facts.group;
	if (!ret)
		ret = sl_marlin_pad_linear(&m, names->weight);
	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = add_integer_scales(&m, names->scales, names->turned);
	if (!ret)
		ret = add_integer_zeros(&m, names);
	return ret ? ret : sl_marlin_add_bias(&m, "bias");
}

int sl_post_marlin_gptq(const struct sl_post *post)
{
	return integers(post, &(struct integers){ "qweight", "scales", NULL, SL_FROM_WORDS, false, NO_ZEROS });
}

int sl_post_marlin_ct_wna16(const struct sl_post *post)
{
	return integers(post, &(struct integers){ "weight_packed", "weight_scale", "weight_zero_point", SL_FROM_ROWS,
						  true, MAYBE_ZEROS });
}

int sl_post_marlin_awq(const struct sl_post *post)
{
	return integers(post, &(struct integers){ "qweight", "scales", "qzeros", SL_FROM_AWQ, false, ZEROS });
}

static int repack(const struct sl_post *post, enum sl_packing from)
{
	const struct sl_loaded *weight;
	struct sl_marlin m;
	int ret = unpacked(post, "qweight", from, &m, &weight);

	m.act8 = post->facts.act8;
	return ret ? ret : sl_marlin_add_weight(&m, weight);
}

int sl_post_marlin_repack_gptq(const struct sl_post *post)
{
	return repack(post, SL_FROM_WORDS);
}

int sl_post_marlin_repack_awq(const struct sl_post *post)
{
	return repack(post, SL_FROM_AWQ);
}

/* ---- AWQ's packing to GPTQ's ---- */

/* Words along the first axis of q; or of q turned, when `turned`. */
static int add_words(const struct sl_post *post, const char *name, bool turned)
{
	const struct sl_loaded *loaded;
	int ret = sl_post_need(post, name, 2, &loaded);

	if (ret)
		return ret;
	uint64_t rows = loaded->shape[0], words = loaded->shape[1];
	if (loaded->dtype != SL_I32 || loaded->len == 0 || (!turned && rows % 8))
		return sl_fail(post->plan->err, EINVAL, "%s%s: %llu x %llu of %s are no words of 8 along rows",
			       SL_ESC(post->prefix), name, (unsigned long long)rows, (unsigned long long)words,
			       sl_dtypes[loaded->dtype].name);
	uint64_t rows_out = turned ? words : rows / 8, columns = turned ? rows : words * 8;
	struct sl_transform t = sl_post_transform(SL_T_REPACK, 1, rows_out, columns * 4);
	t.args.p[SL_REPACK_BITS] = 4;
	t.args.p[SL_REPACK_FROM] = SL_FROM_AWQ;
	t.args.p[SL_REPACK_TO] = SL_TO_WORDS;
	t.args.p[SL_REPACK_TURNED] = turned;
	sl_post_input(&t, loaded, 0, rows, words * 4);
	return sl_post_one(post, name, SL_I32, &t, SL_SHAPE(rows_out, columns));
}

int sl_post_awq_to_standard(const struct sl_post *post)
{
	int ret = add_words(post, "qweight", false);

	return ret ? ret : add_words(post, "qzeros", true);
}

/* ---- FP8 ---- */

/* A matrix [n, k] of bytes, or of nibbles. */
static int stored_rows(const struct sl_post *post, enum sl_dtype dtype, unsigned bits, uint64_t group,
		       struct sl_marlin *m, const struct sl_loaded **weight)
{
	int ret = sl_post_need(post, "weight", 2, weight);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (!ret)
		ret = refuse_act8(post);
	if (ret)
		return ret;
	*m = (struct sl_marlin){
		.post = post, .from = SL_FROM_ROWS, .dtype = dtype, .bits = bits, .halves = 1, .group = group
	};
	m->k = (*weight)->shape[1] * 8 / bits;
	m->n = (*weight)->shape[0];
	return sl_marlin_pad_linear(m, "weight");
}

int sl_marlin_add_row_scales(const struct sl_marlin *m, const struct sl_loaded *scales, enum sl_scale_kind kind)
{
	const struct sl_post_facts *facts = &m->post->facts;
	struct sl_marlin_scales s = { kind, .order = SL_SCALES_IN_32, .from = scales->dtype, .to = facts->dtype };
	uint64_t n = scales->len / sl_dtype_bytes(s.from, 1), sum = 0;

	if (s.from != SL_F32 && s.from != SL_BF16 && s.from != SL_F16)
		return sl_fail(m->post->plan->err, EINVAL, "%s%s: scales of %s", SL_ESC(m->post->prefix), scales->name,
			       sl_dtypes[s.from].name);
	for (unsigned i = 0; i < facts->n_widths && i < SL_WIDTHS_MAX; i++)
		sum += facts->widths[i];
	if (n > 1 && n == facts->n_widths) {
		s.widths = facts->widths;
		s.n_widths = facts->n_widths;
	}
	if (n == 0 || (s.n_widths ? sum != m->n : m->n % n != 0))
		return sl_fail(m->post->plan->err, EINVAL, "%s%s: %llu scales for %llu rows", SL_ESC(m->post->prefix),
			       scales->name, (unsigned long long)n, (unsigned long long)m->n);
	s.repeat = m->n / n;
	return make_scales(m, scales, &s, 1, n);
}

static int add_fp8_scales(const struct sl_marlin *m)
{
	const struct sl_post *post = m->post;
	const struct sl_loaded *scales = sl_post_find(post, "weight_scale");
	struct sl_marlin_scales s = { SL_SCALE_FUSED, .order = sl_marlin_order(m), .to = post->facts.dtype };

	if (!scales)
		scales = sl_post_find(post, "weight_scale_inv");
	if (!scales)
		return sl_fail(post->plan->err, EINVAL, "%s has no 'weight_scale'", SL_ESC(post->prefix));
	if (m->group == 0)
		return sl_marlin_add_row_scales(m, scales, SL_SCALE_FUSED);
	s.from = scales->dtype;
	s.turned = true;
	s.repeat = post->facts.block[0];
	return sl_marlin_add_scales(m, scales, &s);
}

int sl_post_marlin_fp8(const struct sl_post *post)
{
	const struct sl_loaded *weight;
	struct sl_marlin m;
	int ret = stored_rows(post, SL_F8_E4M3, 8, post->facts.block[1], &m, &weight);

	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = add_fp8_scales(&m);
	return ret ? ret : sl_marlin_add_bias(&m, "bias");
}

/* ---- scales of a byte ---- */

/* Powers of two, which some store as U8. */
static int add_mx_scales(const struct sl_marlin *m, const struct sl_loaded *scales)
{
	struct sl_marlin_scales s = { SL_SCALE_E8M0, .order = sl_marlin_order(m), .swap = true, .turned = true };

	s.from = scales->dtype == SL_U8 ? SL_U8 : SL_F8_E8M0;
	s.to = SL_F8_E8M0;
	return sl_marlin_add_scales(m, scales, &s);
}

static int add_mx(const struct sl_post *post, enum sl_dtype dtype, unsigned bits)
{
	const struct sl_loaded *weight, *scales;
	struct sl_marlin m;
	int ret = stored_rows(post, dtype, bits, 32, &m, &weight);

	if (!ret)
		ret = sl_post_need(post, "weight_scale", 2, &scales);
	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = add_mx_scales(&m, scales);
	return ret ? ret : sl_marlin_add_bias(&m, "bias");
}

int sl_post_marlin_mxfp8(const struct sl_post *post)
{
	return add_mx(post, SL_F8_E4M3, 8);
}

int sl_post_marlin_mxfp4(const struct sl_post *post)
{
	return add_mx(post, SL_U8, 4);
}

/* The scales alone. */
int sl_post_marlin_mxfp4_scale(const struct sl_post *post)
{
	const struct sl_loaded *scales;
	int ret = sl_post_need(post, "weight_scale", 2, &scales);

	if (!ret)
		ret = sl_marlin_need_dtype(post);
	if (ret)
		return ret;
	struct sl_marlin m = { .post = post, .halves = 1, .group = 32, .n = scales->shape[0] };
	m.k = scales->shape[1] * 32;
	ret = sl_marlin_pad_linear(&m, "weight_scale");
	return ret ? ret : add_mx_scales(&m, scales);
}

int sl_post_marlin_nvfp4(const struct sl_post *post)
{
	const struct sl_loaded *weight, *scales;
	struct sl_marlin m;
	int ret = stored_rows(post, SL_U8, 4, 16, &m, &weight);

	if (!ret)
		ret = sl_post_need(post, "weight_scale", 2, &scales);
	if (!ret)
		ret = sl_marlin_add_weight(&m, weight);
	if (!ret)
		ret = sl_marlin_add_scales(&m, scales,
					   &(struct sl_marlin_scales){ SL_SCALE_NVFP4, .order = sl_marlin_order(&m),
								       .swap = true, .turned = true, .from = SL_F8_E4M3,
								       .to = SL_F8_E4M3 });
	if (!ret)
		ret = sl_marlin_add_global(post, "weight_global_scale", scales);
	return ret ? ret : sl_marlin_add_bias(&m, "bias");
}
