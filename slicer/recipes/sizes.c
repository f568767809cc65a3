/*
 * sizes.c - sizes that kernels ask for, and the two recipes by which tests ask for them.
 */
#include "slicer/recipes/sizes.h"

#include "slicer/post.h"

#include <errno.h>
#include <string.h>

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

uint64_t sl_lcm(uint64_t a, uint64_t b)
{
	return a / gcd(a, b) * b;
}

void sl_marlin_padded_nk(uint64_t n, uint64_t k, uint64_t group, uint64_t padded[2])
{
	uint64_t g = group ? group : 1, a[2] = { sl_up(n, 64), sl_up(k, sl_lcm(128, g)) },
		 b[2] = { sl_up(n, 128), sl_up(k, sl_lcm(64, g)) };
	uint64_t size_a = a[0] * a[1], size_b = b[0] * b[1];
	bool take_b = size_b < size_a || (size_b == size_a && b[0] + b[1] < a[0] + a[1]);

	memcpy(padded, take_b ? b : a, sizeof(a));
}

static bool can_refine(const char *backend)
{
	return !backend || strcmp(backend, "auto") == 0 || strcmp(backend, "triton") == 0;
}

struct sl_moe_blocks sl_moe_block_shape(const struct sl_moe_shape *s)
{
	struct sl_moe_blocks blocks = { .inter_rank = s->inter_rank, .block = { s->block[0], s->block[1] } };
	bool whole = s->inter_rank % s->block[0] == 0 && (s->tp == 1 || s->inter_rank % s->block[1] == 0);
	uint64_t finer = gcd(gcd(s->block[0], s->inter_rank), s->hidden);
	bool automatic = !s->backend || strcmp(s->backend, "auto") == 0;

	if (whole)
		return blocks;
	if (can_refine(s->backend) && finer >= 32) {
		for (unsigned axis = 0; axis < 2; axis++) {
			blocks.refine[axis] = s->block[axis] / finer;
			blocks.block[axis] = finer;
		}
	} else if (!automatic && s->tp > 1) {
		blocks.inter_rank = sl_up(s->inter_rank, s->block[0]);
		blocks.padded = true;
		blocks.refused = s->inter % s->block[0] != 0 || s->hidden % s->block[1] != 0;
	}
	return blocks;
}

/* ---- tables of questions and answers ---- */

/* I32 [questions, columns]; answers as many rows of another width. */
static int open_table(const struct sl_post *post, uint64_t columns, uint64_t answers, int32_t **query, int32_t **answer,
		      uint64_t *n)
{
	const struct sl_loaded *table;
	int ret = sl_post_need(post, "query", 2, &table);

	if (ret)
		return ret;
	if (table->dtype != SL_I32 || table->shape[1] != columns || table->len == 0)
		return sl_fail(post->plan->err, EINVAL, "%squery: not I32 of %llu columns", SL_ESC(post->prefix),
			       (unsigned long long)columns);
	*n = table->shape[0];
	*query = sl_arena_alloc(&post->plan->view->arena, table->len);
	*answer = sl_arena_array(&post->plan->view->arena, *n, answers * sizeof(**answer));
	if (!*query || !*answer)
		return sl_fail(post->plan->err, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < table->n_pieces && !ret; i++)
		ret = sl_piece_read(post->plan->model, &table->pieces[i], 0, table->pieces[i].len,
				    (unsigned char *)*query + table->pieces[i].off, post->plan->err);
	return ret;
}

static int add_answer(const struct sl_post *post, const int32_t *answer, uint64_t n, uint64_t columns)
{
	int ret = sl_post_begin(post, "answer", SL_I32);

	if (!ret)
		ret = sl_plan_data(post->plan, answer, n * columns * sizeof(*answer));
	return ret ? ret : sl_post_shape(post, SL_SHAPE(n, columns));
}

int sl_post_marlin_padded_nk(const struct sl_post *post)
{
	int32_t *query, *answer;
	uint64_t n, padded[2];
	int ret = open_table(post, 3, 2, &query, &answer, &n);

	for (uint64_t i = 0; i < n && !ret; i++) {
		const int32_t *q = query + 3 * i;
		if (q[0] < 1 || q[1] < 1)
			return sl_fail(post->plan->err, EINVAL, "%squery: %d x %d", SL_ESC(post->prefix), q[0], q[1]);
		sl_marlin_padded_nk((uint64_t)q[0], (uint64_t)q[1], q[2] > 0 ? (uint64_t)q[2] : 0, padded);
		answer[2 * i] = (int32_t)padded[0];
		answer[2 * i + 1] = (int32_t)padded[1];
	}
	return ret ? ret : add_answer(post, answer, n, 2);
}

int sl_post_moe_block_shape(const struct sl_post *post)
{
	static const char *const backends[] = { "auto", "triton", "deep_gemm", "marlin", "cutlass" };
	int32_t *query, *answer;
	uint64_t n;
	int ret = open_table(post, 5, 7, &query, &answer, &n);

	for (uint64_t i = 0; i < n && !ret; i++) {
		const int32_t *q = query + 5 * i;
		if (q[0] < 1 || q[1] < 1 || q[2] < 1 || q[3] < 0 || q[3] > 4 || q[4] < 1)
			return sl_fail(post->plan->err, EINVAL, "%squery: row %llu is no size", SL_ESC(post->prefix),
				       (unsigned long long)i);
		struct sl_moe_blocks b = sl_moe_block_shape(&(struct sl_moe_shape){
			(uint64_t)q[0], (uint64_t)q[1], (uint64_t)q[4], (unsigned)q[2], { 128, 128 }, backends[q[3]] });
		const uint64_t row[7] = { b.inter_rank, b.block[0], b.block[1], b.refine[0],
					  b.refine[1],	b.padded,   b.refused };
		for (unsigned c = 0; c < 7; c++)
			answer[7 * i + c] = (int32_t)row[c];
	}
	return ret ? ret : add_answer(post, answer, n, 7);
}
