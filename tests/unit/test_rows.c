/*
 * test_rows.c - orders of rows and tiles of scales, of random sizes, against matrices that are moved row by row.
 */
#include "made.h"

#include "slicer/transforms/rows.h"
#include "slicer/transforms/swizzle.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(rows, .timeout = 300);

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- the twin ---- */

/* Where a row goes: what engines do to a matrix, where rows.h says where a row comes from. */
static uint64_t place(unsigned order, uint64_t row, uint64_t m)
{
	uint64_t half = row / (m / 2), in_half = row % (m / 2);

	switch (order) {
	case SL_ROWS_SWAPPED:
		return (1 - half) * (m / 2) + in_half;
	case SL_ROWS_ALTERNATING:
		return 2 * in_half + half;
	case SL_ROWS_TILE_128: /* the first row of each four of eight, then the second, … */
		return row / 32 * 32 + row % 4 * 8 + row % 32 / 4;
	case SL_ROWS_TILE_64:
		return row / 16 * 16 + row % 2 * 8 + row % 16 / 2;
	case SL_ROWS_PAIRS:
		return row % 2 ? row - 1 : row + 1;
	case SL_ROWS_ODD_FIRST:
		return row % 2 ? row / 2 : m / 2 + row / 2;
	case SL_ROWS_IN_64:
		return (2 * (in_half / 64) + half) * 64 + in_half % 64;
	default:
		return row;
	}
}

struct sizes {
	uint64_t batch, m, width; /* of the result */
	uint64_t rows, row_bytes; /* of an input: a half, or all */
	bool halves;
};

/* The input padded, its rows moved by the chain's last order, then the one before it, …: batch matrices m x width. */
static unsigned char *move(const unsigned char *in, const struct sizes *s, uint64_t chain)
{
	uint64_t size = s->m * s->width, halves = s->halves ? 2 : 1;
	unsigned char *now = calloc(s->batch, size), *next = malloc(s->batch * size);

	cr_assert(now && next);
	for (uint64_t b = 0; b < s->batch * halves; b++) {
		for (uint64_t r = 0; r < s->rows; r++)
			memcpy(now + (b * (s->m / halves) + r) * s->width, in + (b * s->rows + r) * s->row_bytes,
			       s->row_bytes);
	}
	for (int shift = 56; shift >= 0; shift -= 8) {
		for (uint64_t b = 0; b < s->batch; b++) {
			for (uint64_t r = 0; r < s->m; r++)
				memcpy(next + b * size + place(chain >> shift & 0xFF, r, s->m) * s->width,
				       now + b * size + r * s->width, s->width);
		}
		unsigned char *other = now;
		now = next;
		next = other;
	}
	free(next);
	return now;
}

/* ---- orders ---- */

static const struct order {
	const char *name;
	uint64_t chain, unit; /* of m */
} orders[] = {
	{ "same", SL_ROWS_SAME, 2 },
	{ "swapped", SL_ROWS_SWAPPED, 2 },
	{ "alternating", SL_ROWS_ALTERNATING, 2 },
	{ "tile of 128", SL_ROWS_TILE_128, 32 },
	{ "tile of 64", SL_ROWS_TILE_64, 16 },
	{ "pairs", SL_ROWS_PAIRS, 2 },
	{ "odd first", SL_ROWS_ODD_FIRST, 2 },
	{ "64 in turn", SL_ROWS_IN_64, 128 },
	{ "gated, tile of 128", SL_ROWS_THEN(SL_ROWS_TILE_128, SL_ROWS_ALTERNATING, SL_ROWS_SWAPPED), 32 },
	{ "swapped, tile of 64", SL_ROWS_THEN(SL_ROWS_TILE_64, SL_ROWS_SWAPPED, SL_ROWS_SAME), 16 },
	{ "swapped, 64 in turn", SL_ROWS_THEN(SL_ROWS_IN_64, SL_ROWS_SWAPPED, SL_ROWS_SAME), 128 },
	{ "pairs, tile of 128", SL_ROWS_THEN(SL_ROWS_TILE_128, SL_ROWS_PAIRS, SL_ROWS_SAME), 32 },
};

static struct sizes random_sizes(uint64_t unit, uint64_t most)
{
	struct sizes s = { .batch = 1 + made_below(3),
			   .m = unit * (1 + made_below(most / unit)),
			   .halves = made_below(2) };

	s.row_bytes = 1 + made_below(300);
	s.width = s.row_bytes + (made_below(2) ? made_below(40) : 0);
	s.rows = s.m / (s.halves ? 2 : 1);
	s.rows -= made_below(2) ? made_below(s.rows) : 0;
	return s;
}

static void add_inputs(struct sl_transform *t, const struct sizes *s, const unsigned char *in)
{
	uint64_t halves = s->halves ? 2 : 1, matrix = s->rows * s->row_bytes;

	for (unsigned h = 0; h < halves; h++)
		made_input(t, in, h * matrix, s->rows, s->row_bytes, halves * matrix, s->row_bytes,
			   s->batch * halves * matrix);
}

static void describe(char *what, size_t size, const struct order *order, const struct sizes *s, uint64_t block)
{
	snprintf(what, size, "%s, %llu x %llu x %llu of %llu x %llu%s, blocks of %llu", order->name,
		 (unsigned long long)s->batch, (unsigned long long)s->m, (unsigned long long)s->width,
		 (unsigned long long)s->rows, (unsigned long long)s->row_bytes, s->halves ? " halves" : "",
		 (unsigned long long)block);
}

/* [m, blocks, block] to [blocks, m, block]. */
static unsigned char *to_blocks(const unsigned char *matrix, const struct sizes *s, uint64_t block)
{
	unsigned char *out = malloc(s->batch * s->m * s->width), *to = out;

	cr_assert(out);
	for (uint64_t b = 0; b < s->batch; b++) {
		for (uint64_t k = 0; k < s->width / block; k++) {
			for (uint64_t r = 0; r < s->m; r++, to += block)
				memcpy(to, matrix + (b * s->m + r) * s->width + k * block, block);
		}
	}
	return out;
}

static void compare_order(const struct order *order, struct sizes s, uint64_t block)
{
	unsigned char *in, *moved;
	char what[200];

	s.width = block ? (s.width + block - 1) / block * block : s.width;
	in = made_random(s.batch * (s.halves ? 2 : 1) * s.rows * s.row_bytes);
	moved = move(in, &s, order->chain);
	struct sl_transform t = { .id = SL_T_ROWS, .args = { .batch = s.batch, .rows = s.m, .row_bytes = s.width } };
	t.args.p[SL_ROWS_CHAIN] = order->chain;
	t.args.p[SL_ROWS_M] = s.m;
	t.args.p[SL_ROWS_BLOCK] = block;
	if (block) {
		unsigned char *blocks = to_blocks(moved, &s, block);
		free(moved);
		moved = blocks;
		t.args.rows = s.width / block;
		t.args.row_bytes = s.m * block;
	}
	add_inputs(&t, &s, in);
	describe(what, sizeof(what), order, &s, block);
	made_expect(&t, moved, what);
	free(moved);
	free(in);
}

Test(rows, every_order_of_whole_rows)
{
	for (unsigned i = 0; i < LEN(orders); i++) {
		for (unsigned n = 0; n < 6; n++)
			compare_order(&orders[i], random_sizes(orders[i].unit, 512), 0);
	}
}

Test(rows, every_order_in_blocks)
{
	static const uint64_t blocks[] = { 128, 128, 16, 5 };

	for (unsigned i = 0; i < LEN(orders); i++) {
		for (unsigned n = 0; n < LEN(blocks); n++)
			compare_order(&orders[i], random_sizes(orders[i].unit, 512), blocks[n]);
	}
}

/* Rows of which a few fill what can be held at once, begun in the middle of a tile. */
Test(rows, long_rows)
{
	for (unsigned i = 0; i < LEN(orders); i++) {
		struct sizes s = { 1, 128, 20000 + made_below(9000), 64, 0, true };
		s.row_bytes = s.width;
		compare_order(&orders[i], s, 0);
	}
}

/* ---- which rows a block needs ---- */

static bool has(const struct sl_rect *rect, uint64_t row)
{
	return row >= rect->row && row - rect->row < rect->n_rows;
}

/* All of them, and where halves are inputs not many more. */
static void expect_needed(const struct order *order, uint64_t m, bool halves, uint64_t first, uint64_t n)
{
	struct sl_args args = { .batch = 1, .rows = m, .row_bytes = 1, .in = { { m, 1 } } };
	uint64_t half = halves ? m / 2 : m, least[2] = { m, m }, end[2] = { 0, 0 };

	args.in[1].row_bytes = halves;
	args.p[SL_ROWS_CHAIN] = order->chain;
	args.p[SL_ROWS_M] = m;
	for (unsigned input = 0; input <= halves; input++) {
		const struct sl_rect rect = sl_rows_needed(&args, input, first, n);
		for (uint64_t r = first; r < first + n; r++) {
			uint64_t source = sl_rows_source(&args, r);
			if (source / half != input)
				continue;
			cr_assert(has(&rect, source - input * half),
				  "%s of %llu: row %llu of [%llu, +%llu) is not in it", order->name,
				  (unsigned long long)m, (unsigned long long)r, (unsigned long long)first,
				  (unsigned long long)n);
			least[input] = source % half < least[input] ? source % half : least[input];
			end[input] = source % half >= end[input] ? source % half + 1 : end[input];
		}
		uint64_t exact = end[input] > least[input] ? end[input] - least[input] : 0;
		cr_assert((!halves || rect.n_rows <= exact + 128) && rect.row + rect.n_rows <= half,
			  "%s of %llu: [%llu, +%llu) needs %llu rows, not %llu", order->name, (unsigned long long)m,
			  (unsigned long long)first, (unsigned long long)n, (unsigned long long)exact,
			  (unsigned long long)rect.n_rows);
	}
}

Test(rows, needed)
{
	for (unsigned i = 0; i < LEN(orders); i++) {
		for (unsigned n = 0; n < 400; n++) {
			uint64_t m = orders[i].unit * (1 + made_below(1024 / orders[i].unit)), first = made_below(m);
			expect_needed(&orders[i], m, n % 2, first, 1 + made_below(m - first));
		}
	}
}

/* ---- tiles ---- */

static void compare_tiles(const struct order *order, struct sizes s)
{
	uint64_t rows = (s.m + 127) / 128 * 128, cols = (s.width + 3) / 4 * 4;
	unsigned char *in = made_random(s.batch * (s.halves ? 2 : 1) * s.rows * s.row_bytes),
		      *moved = move(in, &s, order->chain), *want = calloc(s.batch, rows * cols);
	struct sl_transform t = { .id = SL_T_SWIZZLE,
				  .args = { .batch = s.batch, .rows = rows / 128, .row_bytes = cols * 128 } };
	char what[200];

	cr_assert(want);
	for (uint64_t b = 0; b < s.batch; b++) {
		for (uint64_t m = 0; m < s.m; m++) {
			for (uint64_t k = 0; k < s.width; k++)
				want[b * rows * cols + ((m / 128 * (cols / 4) + k / 4) * 32 + m % 32) * 16 +
				     m / 32 % 4 * 4 + k % 4] = moved[(b * s.m + m) * s.width + k];
		}
	}
	t.args.p[SL_ROWS_CHAIN] = order->chain;
	t.args.p[SL_ROWS_M] = s.m;
	add_inputs(&t, &s, in);
	describe(what, sizeof(what), order, &s, 0);
	made_expect(&t, want, what);
	free(want);
	free(moved);
	free(in);
}

Test(rows, every_order_in_tiles)
{
	for (unsigned i = 0; i < LEN(orders); i++) {
		for (unsigned n = 0; n < 6; n++)
			compare_tiles(&orders[i], random_sizes(orders[i].unit, 512));
	}
}
