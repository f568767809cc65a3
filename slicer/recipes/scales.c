/*
 * scales.c - scales of FP8 blocks: another type, another layout, and what ranks have of them where experts' blocks do not divide
 * among them (vLLM 0.32, fused_moe/oracle/fp8.py, resolve_fp8_moe_weight_block_shape).
 */
#include "slicer/post.h"
#include "slicer/transforms/element.h"
#include "slicer/transforms/exponents.h"
#include "slicer/transforms/rows.h"

#include <errno.h>
#include <stdio.h>

/* ---- another type, another layout ---- */

/* F8_E8M0 to F32, as DeepGEMM and others want it at load time. */
int sl_post_e8m0_to_f32(const struct sl_post *post)
{
	const struct sl_loaded *s = sl_post_find(post, "scale");

	if (!s || s->dtype != SL_F8_E8M0 || s->n_dims == 0 || s->len == 0)
		return sl_fail(post->plan->err, EINVAL, "%s has no 'scale' of F8_E8M0", SL_ESC(post->prefix));
	uint64_t cols = s->shape[s->n_dims - 1], rows = s->len / cols;
	struct sl_transform t = sl_post_transform(SL_T_ELEMENT, 1, rows, cols * sizeof(float));
	t.args.p[SL_ELEMENT_KIND] = SL_ELEMENT_E8M0;
	sl_post_input(&t, s, 0, rows, cols);
	return sl_post_one(post, "scale", SL_F32, &t, s->shape, s->n_dims);
}

/* For DeepGEMM on Blackwell: a word has the exponents of four columns, and words lie column by column, each column padded to
 * 16 bytes. The engine sees it turned, [rows, words]. */
int sl_post_deepgemm_sf(const struct sl_post *post)
{
	const struct sl_loaded *s;
	uint64_t rows = post->facts.rows, group = post->facts.align ? post->facts.align : 128;
	int ret = sl_post_need(post, "scale", 2, &s);

	if (!ret && (s->dtype != SL_F32 || rows == 0 || s->shape[0] != (rows + group - 1) / group || s->shape[1] == 0))
		ret = sl_fail(post->plan->err, EINVAL, "%s: 'scale' is %s %llux%llu for %llu rows in groups of %llu",
			      SL_ESC(post->prefix), sl_dtypes[s->dtype].name, (unsigned long long)s->shape[0],
			      (unsigned long long)s->shape[1], (unsigned long long)rows, (unsigned long long)group);
	if (ret)
		return ret;
	uint64_t words = sl_up(s->shape[1], 4) / 4, aligned = sl_up(rows, 4);
	struct sl_transform t = sl_post_transform(SL_T_EXPONENTS, 1, words, aligned * sizeof(uint32_t));
	t.args.p[SL_EXPONENTS_ROWS] = rows;
	t.args.p[SL_EXPONENTS_GROUP] = group;
	sl_post_input(&t, s, 0, s->shape[0], s->shape[1] * sizeof(float));
	ret = sl_post_one(post, "scale", SL_I32, &t, SL_SHAPE(words, aligned));
	if (!ret)
		sl_post_turned(post);
	return ret;
}

/* ---- every rank's part ---- */

static void rank_name(char name[32], const char *what, unsigned rank)
{
	snprintf(name, 32, "%s_rank%u", what, rank);
}

static int wrong_ranks(const struct sl_post *post, const struct sl_loaded *w)
{
	return sl_fail(post->plan->err, EINVAL, "%s: '%s' %llux%llu cannot be divided among %u ranks",
		       SL_ESC(post->prefix), w->name, (unsigned long long)w->shape[0], (unsigned long long)w->shape[1],
		       post->facts.ranks);
}

/* The loaded matrix as rows, when it is stored in one piece. */
static int rows_of(const struct sl_post *post, const struct sl_loaded *w, struct sl_piece *rows)
{
	const struct sl_piece *piece = w->pieces;

	if (w->n_pieces != 1 || piece->op != SL_OP_COPY || piece->count != 1 || w->shape[0] > UINT32_MAX)
		return sl_fail(post->plan->err, EINVAL, "%s: '%s' is not stored in one piece", SL_ESC(post->prefix),
			       w->name);
	*rows = *piece;
	rows->off = 0;
	rows->count = (uint32_t)w->shape[0];
	rows->run = rows->stride = w->len / w->shape[0];
	return 0;
}

/* A rank's part of a matrix in which each stored element is a block of equal ones: `shape` elements from `first` on. */
static int add_enlarged(const struct sl_post *post, const struct sl_piece *rows, const char *name,
			const uint64_t first[2], const uint64_t shape[2])
{
	struct sl_arena *arena = &post->plan->view->arena;
	struct sl_compound *compound = sl_arena_alloc(arena, sizeof(*compound));
	struct sl_piece *part = sl_arena_alloc(arena, sizeof(*part));
	int ret = sl_post_begin(post, name, SL_F32);

	if (ret)
		return ret;
	if (!compound || !part)
		return sl_fail(post->plan->err, ENOMEM, "out of memory");
	*part = *rows;
	*compound = (struct sl_compound){ .n = 1, .parts = part };
	for (unsigned axis = 0; axis < 2; axis++) {
		compound->block[axis] = (uint32_t)post->facts.refine[axis];
		compound->first[axis] = (uint32_t)first[axis];
	}
	struct sl_piece piece = { .op = SL_OP_REPEAT,
				  .from = SL_F32,
				  .to = SL_F32,
				  .count = (uint32_t)shape[0],
				  .run = shape[1] * sizeof(float),
				  .len = shape[0] * shape[1] * sizeof(float),
				  .compound = compound };
	ret = sl_plan_piece(post->plan, &piece);
	return ret ? ret : sl_post_shape(post, shape, 2);
}

static bool can_enlarge(const struct sl_post *post, const struct sl_loaded *s, unsigned axis)
{
	const uint64_t *times = post->facts.refine;
	unsigned ranks = post->facts.ranks;

	if (s->dtype != SL_F32 || s->len == 0 || ranks == 0)
		return false;
	for (unsigned i = 0; i < 2; i++) {
		if (times[i] == 0 || times[i] > UINT32_MAX || s->shape[i] > UINT32_MAX / times[i])
			return false;
	}
	return s->shape[axis] * times[axis] % ranks == 0;
}

/* Scales of smaller blocks: each of the stored ones is repeated, then ranks get equal shares of one axis. */
static int add_refined(const struct sl_post *post, const char *from, const char *to, unsigned axis)
{
	const struct sl_loaded *s;
	struct sl_piece rows;
	char name[32];
	int ret = sl_post_need(post, from, 2, &s);

	if (!ret && !can_enlarge(post, s, axis))
		ret = wrong_ranks(post, s);
	if (!ret)
		ret = rows_of(post, s, &rows);
	for (unsigned r = 0; !ret && r < post->facts.ranks; r++) {
		uint64_t shape[] = { s->shape[0] * post->facts.refine[0], s->shape[1] * post->facts.refine[1] },
			 first[] = { 0, 0 };
		shape[axis] /= post->facts.ranks;
		first[axis] = r * shape[axis];
		rank_name(name, to, r);
		ret = add_enlarged(post, &rows, name, first, shape);
	}
	return ret;
}

int sl_post_moe_scale_refine(const struct sl_post *post)
{
	int ret = add_refined(post, "w1_scale", "w1", 0);

	return ret ? ret : add_refined(post, "w2_scale", "w2", 1);
}

/* ---- ranks of whole blocks, the last ones padded ---- */

/* What a rank gets of `n`, when each has room for `share`. */
static uint64_t part_of(uint64_t n, uint64_t share, unsigned rank, uint64_t *first)
{
	*first = rank * share < n ? rank * share : n;
	return share < n - *first ? share : n - *first;
}

/* A block of `w` padded to rows x cols elements: scales with ones, else with zeros. */
static int add_padded(const struct sl_post *post, const struct sl_loaded *w, struct sl_rect part, uint64_t rows,
		      uint64_t cols)
{
	bool scale = w->dtype == SL_F32;
	uint64_t size = sl_dtype_bytes(w->dtype, 1), pitch = w->shape[1] * size;
	struct sl_transform t = sl_post_transform(scale ? SL_T_ELEMENT : SL_T_ROWS, 1, rows, cols * size);

	t.args.p[scale ? SL_ELEMENT_KIND : SL_ROWS_M] = scale ? SL_ELEMENT_ELSE_ONE : rows;
	sl_post_input(&t, w, part.n_rows ? part.row * pitch + part.col * size : 0, part.n_rows, part.n_cols * size);
	t.in[0].pitch = pitch;
	return sl_post_add(post, &t);
}

struct padded {
	const struct sl_loaded *w[3];
	uint64_t unit; /* elements of the experts' matrices that one of these is for */
};

static int need_padded(const struct sl_post *post, const char *const names[3], uint64_t unit, struct padded *p)
{
	uint64_t inter = post->facts.inter / unit, hidden = post->facts.hidden / unit;
	int ret = 0;

	p->unit = unit;
	for (unsigned i = 0; i < 3 && !ret; i++) {
		ret = sl_post_need(post, names[i], 2, &p->w[i]);
		if (!ret && (p->w[i]->shape[i == 1] != inter || p->w[i]->shape[i != 1] != hidden || hidden == 0 ||
			     sl_dtype_bytes(p->w[i]->dtype, 1) != (unit > 1 ? sizeof(float) : 1) ||
			     p->w[i]->dtype != p->w[0]->dtype))
			ret = wrong_ranks(post, p->w[i]);
	}
	return ret;
}

/* One rank's w13, gate and up below each other, and w2. */
static int add_rank(const struct sl_post *post, const struct padded *p, const char *const names[2], uint64_t share,
		    unsigned rank)
{
	uint64_t rows = share / p->unit, hidden = post->facts.hidden / p->unit, first,
		 n = part_of(post->facts.inter / p->unit, rows, rank, &first);
	char name[32];

	rank_name(name, names[0], rank);
	int ret = sl_post_begin(post, name, p->w[0]->dtype);
	for (unsigned i = 0; i < 3 && !ret; i += 2)
		ret = add_padded(post, p->w[i], (struct sl_rect){ first, n, 0, hidden }, rows, hidden);
	if (!ret)
		ret = sl_post_shape(post, SL_SHAPE(2 * rows, hidden));
	rank_name(name, names[1], rank);
	if (!ret)
		ret = sl_post_begin(post, name, p->w[1]->dtype);
	if (!ret)
		ret = add_padded(post, p->w[1], (struct sl_rect){ 0, n ? hidden : 0, first, n }, hidden, rows);
	return ret ? ret : sl_post_shape(post, SL_SHAPE(hidden, rows));
}

int sl_post_moe_tp_padded(const struct sl_post *post)
{
	static const char *const weights[] = { "w1", "w2", "w3" },
				 *const scales[] = { "w1_scale", "w2_scale", "w3_scale" },
				 *const to[] = { "w13", "w2" }, *const scales_to[] = { "w13_scale", "w2_scale" };
	uint64_t block = post->facts.block[0], ranks = post->facts.ranks;
	struct padded weight, scale;

	if (block == 0 || ranks == 0 || post->facts.inter % block || post->facts.hidden % block)
		return sl_fail(post->plan->err, EINVAL, "%s: experts of %llu, %llu for %llu ranks in blocks of %llu",
			       SL_ESC(post->prefix), (unsigned long long)post->facts.inter,
			       (unsigned long long)post->facts.hidden, (unsigned long long)ranks,
			       (unsigned long long)block);
	int ret = need_padded(post, weights, 1, &weight);
	if (!ret)
		ret = need_padded(post, scales, block, &scale);
	const uint64_t share = sl_up((post->facts.inter + ranks - 1) / ranks, block);
	for (unsigned r = 0; r < ranks && !ret; r++) {
		ret = add_rank(post, &weight, to, share, r);
		if (!ret)
			ret = add_rank(post, &scale, scales_to, share, r);
	}
	return ret;
}
