/*
 * rows.c - which rows of the inputs rows of the result are, and copying them.
 */
#include "slicer/transforms/rows.h"

#include "slicer/transform.h"
#include "slicer/transforms/fast.h"

#include <string.h>

/* ---- which rows ---- */

enum { FEW = 32 }; /* rows of which each one's source is looked up: tiles have no more */

struct range {
	uint64_t from, to;
};

static void widen(struct range *range, uint64_t from, uint64_t to)
{
	if (from >= to)
		return;
	range->from = range->from < range->to && range->from < from ? range->from : from;
	range->to = range->to > to ? range->to : to;
}

/* A range of the matrix to what it has of each half. */
static void split(struct range half[2], uint64_t from, uint64_t to, uint64_t m)
{
	widen(&half[0], from, to < m / 2 ? to : m / 2);
	widen(&half[1], from > m / 2 ? from : m / 2, to);
}

/* How many of rows [0, n) are in the turns of `unit` rows of one half. */
static uint64_t turns(uint64_t n, uint64_t unit, unsigned half)
{
	uint64_t rest = n % (2 * unit), before = half * unit;

	rest = rest > before ? rest - before : 0;
	return n / (2 * unit) * unit + (rest < unit ? rest : unit);
}

static void take_turns(struct range half[2], const struct range *r, uint64_t unit, uint64_t m)
{
	for (unsigned h = 0; h < 2; h++)
		widen(&half[h], h * (m / 2) + turns(r->from, unit, h), h * (m / 2) + turns(r->to, unit, h));
}

/* Whole groups of `unit` rows. */
static void round_out(struct range half[2], const struct range *r, uint64_t unit, uint64_t m)
{
	uint64_t to = (r->to + unit - 1) / unit * unit;

	split(half, r->from / unit * unit, to < m ? to : m, m);
}

/* One order applied to a range that lies in one half. */
static void step(struct range to[2], unsigned order, const struct range *r, uint64_t m)
{
	uint64_t half = m / 2;

	if (r->from >= r->to)
		return;
	if (order == SL_ROWS_SWAPPED)
		split(to, r->from < half ? r->from + half : r->from - half,
		      r->from < half ? r->to + half : r->to - half, m);
	else if (order == SL_ROWS_ALTERNATING)
		take_turns(to, r, 1, m);
	else if (order == SL_ROWS_IN_64)
		take_turns(to, r, 64, m);
	else if (order == SL_ROWS_ODD_FIRST)
		split(to, 2 * (r->from < half ? r->from : r->from - half), 2 * (r->from < half ? r->to : r->to - half),
		      m);
	else
		round_out(to, r, order == SL_ROWS_TILE_128 ? 32 : order == SL_ROWS_TILE_64 ? 16 : 2, m);
}

#define STEP(order)                                                              \
	case order:                                                              \
		for (unsigned i = 0; i < n; i++)                                 \
			source[i] = (uint32_t)sl_rows_step(order, source[i], m); \
		break;

SL_FAST void sl_rows_sources(const struct sl_args *args, uint64_t first, unsigned n, uint32_t *source)
{
	uint32_t m = (uint32_t)args->p[SL_ROWS_M];

	for (unsigned i = 0; i < n; i++)
		source[i] = (uint32_t)first + i;
	for (uint64_t chain = args->p[SL_ROWS_CHAIN]; chain; chain >>= 8) {
		switch (chain & 0xFF) {
			STEP(SL_ROWS_SWAPPED)
			STEP(SL_ROWS_ALTERNATING)
			STEP(SL_ROWS_TILE_128)
			STEP(SL_ROWS_TILE_64)
			STEP(SL_ROWS_PAIRS)
			STEP(SL_ROWS_ODD_FIRST)
			STEP(SL_ROWS_IN_64)
		default:
			break;
		}
	}
}

/* Of a few rows: each one's source. */
static void hull_of_few(const struct sl_args *args, uint64_t first, uint64_t n, struct range half[2])
{
	uint32_t source[SL_ROWS_AT_ONCE];

	sl_rows_sources(args, first, (unsigned)n, source);
	for (unsigned i = 0; i < n; i++)
		split(half, source[i], source[i] + 1, args->p[SL_ROWS_M]);
}

/* Of many: each order's range of the one before it. */
static void hull_of_many(const struct sl_args *args, uint64_t first, uint64_t n, struct range half[2])
{
	uint64_t m = args->p[SL_ROWS_M];

	split(half, first, first + n, m);
	for (uint64_t chain = args->p[SL_ROWS_CHAIN]; chain; chain >>= 8) {
		struct range next[2] = { { 0, 0 }, { 0, 0 } };
		step(next, chain & 0xFF, &half[0], m);
		step(next, chain & 0xFF, &half[1], m);
		memcpy(half, next, sizeof(next));
	}
}

struct sl_rect sl_rows_needed(const struct sl_args *args, unsigned input, uint64_t first, uint64_t n)
{
	uint64_t m = args->p[SL_ROWS_M], above = input ? m / 2 : 0;
	struct range half[2] = { { 0, 0 }, { 0, 0 } };

	n = n < m - first ? n : m - first;
	if (n <= FEW)
		hull_of_few(args, first, n, half);
	else
		hull_of_many(args, first, n, half);
	if (!args->in[1].row_bytes)
		widen(&half[0], half[1].from, half[1].to);
	if (half[input].from >= half[input].to)
		return (struct sl_rect){ 0, 0, 0, 0 };
	return (struct sl_rect){ .row = half[input].from - above, .n_rows = half[input].to - half[input].from };
}

/* ---- bytes ---- */

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = *bytes = 1;
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t width = args->p[SL_ROWS_BLOCK], end = out->col + out->n_cols;

	if (width == 0) {
		*in = sl_rows_needed(args, input, out->row, out->n_rows);
		in->col = out->col;
		in->n_cols = in->n_rows ? out->n_cols : 0;
		return;
	}
	*in = sl_rows_needed(args, input, out->col / width, (end + width - 1) / width - out->col / width);
	in->col = out->row * width;
	in->n_cols = in->n_rows ? out->n_rows * width : 0;
}

static unsigned at_most(uint64_t n)
{
	return n < SL_ROWS_AT_ONCE ? (unsigned)n : SL_ROWS_AT_ONCE;
}

static void run_whole(const struct sl_args *args, const struct sl_block *block)
{
	const struct sl_rect *out = &block->out;
	uint32_t source[SL_ROWS_AT_ONCE];

	for (uint64_t r = 0; r < out->n_rows; r += SL_ROWS_AT_ONCE) {
		unsigned n = at_most(out->n_rows - r);
		sl_rows_sources(args, out->row + r, n, source);
		for (unsigned i = 0; i < n; i++)
			memcpy(block->dst + (r + i) * block->stride, sl_rows_at(args, block, source[i], out->col),
			       out->n_cols);
	}
}

/* What is wanted of one block, in each of its rows. */
static void run_part(const struct sl_args *args, const struct sl_block *block, uint64_t c, uint64_t n)
{
	uint64_t run;

	for (uint64_t r = 0; r < block->out.n_rows; r++)
		memcpy(block->dst + r * block->stride + c,
		       sl_rows_run(args, block, block->out.row + r, block->out.col + c, &run), n);
}

/* Blocks of rows `source`, one after another. */
static void copy_blocks(const struct sl_args *args, const struct sl_block *block, const uint32_t *source, unsigned n,
			uint64_t col, unsigned char *to)
{
	uint64_t width = args->p[SL_ROWS_BLOCK];

	if (width == 128) {
		for (unsigned i = 0; i < n; i++)
			memcpy(to + i * 128, sl_rows_at(args, block, source[i], col), 128);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		memcpy(to + i * width, sl_rows_at(args, block, source[i], col), width);
}

static void run_blocks(const struct sl_args *args, const struct sl_block *block)
{
	const struct sl_rect *out = &block->out;
	uint64_t width = args->p[SL_ROWS_BLOCK], now;
	uint32_t source[SL_ROWS_AT_ONCE];

	for (uint64_t c = 0; c < out->n_cols; c += now) {
		uint64_t inside = (out->col + c) % width;
		now = width - inside < out->n_cols - c ? width - inside : out->n_cols - c;
		if (now < width) {
			run_part(args, block, c, now);
			continue;
		}
		unsigned n = at_most((out->n_cols - c) / width);
		sl_rows_sources(args, (out->col + c) / width, n, source);
		for (uint64_t r = 0; r < out->n_rows; r++)
			copy_blocks(args, block, source, n, (out->row + r) * width, block->dst + r * block->stride + c);
		now = n * width;
	}
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	if (args->p[SL_ROWS_BLOCK])
		run_blocks(args, block);
	else
		run_whole(args, block);
}

const struct sl_transform_row sl_transform_rows = {
	"rows", granule, need, NULL, NULL, run, sl_rows_units, sl_rows_unit, NULL,
};
