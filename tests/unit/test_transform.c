/*
 * test_transform.c - what cannot be computed is refused before it is planned; functions of one element, and scales as exponents,
 * of random sizes.
 */
#include "made.h"

#include "slicer/transforms/element.h"
#include "slicer/transforms/exponents.h"
#include "slicer/transforms/rows.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(transform, .timeout = 120);

/* ---- refused ---- */

static struct sl_transform rows(uint64_t batch, uint64_t n, uint64_t row_bytes)
{
	struct sl_transform t = { .id = SL_T_ROWS, .args = { .batch = batch, .rows = n, .row_bytes = row_bytes } };

	t.args.p[SL_ROWS_M] = n;
	return t;
}

static void expect_refused(const struct sl_transform *t, const char *message)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(sl_transform_check(t, &err), -EINVAL, "not refused: %s", message);
	cr_assert_str_eq(err.text, message);
}

Test(transform, sizes_that_wrap_or_are_zero)
{
	static const unsigned char bytes[64];
	struct sl_transform t = rows(1, UINT64_C(1) << 32, UINT64_C(1) << 32);

	made_input(&t, bytes, 0, 8, 8, 64, 8, sizeof(bytes));
	expect_refused(&t, "'rows' of 1 x 4294967296 x 4294967296 bytes");
	t.args.rows = t.args.row_bytes = 8;
	t.args.batch = UINT64_MAX;
	expect_refused(&t, "'rows' of 18446744073709551615 x 8 x 8 bytes");
	t.args.batch = 0;
	expect_refused(&t, "'rows' of 0 x 8 x 8 bytes");
}

Test(transform, inputs_that_are_too_short)
{
	static const unsigned char bytes[64];
	struct sl_transform t = rows(1, 8, 8);

	made_input(&t, bytes, 0, 8, 8, 64, 8, sizeof(bytes) - 1);
	expect_refused(&t, "'rows': input 0 is shorter than 8 rows of 8 bytes");
	t = rows(2, 8, 8);
	made_input(&t, bytes, 0, 8, 8, 64, 8, sizeof(bytes));
	expect_refused(&t, "'rows': input 0 is shorter than 8 rows of 8 bytes");
	t = rows(1, 8, 8);
	made_input(&t, bytes, 1, 8, 8, 64, 8, sizeof(bytes));
	expect_refused(&t, "'rows': input 0 is shorter than 8 rows of 8 bytes");
	t = rows(2, 8, 8);
	made_input(&t, bytes, 0, 8, 8, UINT64_MAX, 8, sizeof(bytes));
	expect_refused(&t, "'rows': input 0 is shorter than 8 rows of 8 bytes");
}

/* All of its inputs make one granule. */
Test(transform, granules_that_are_too_large)
{
	uint64_t n = 200 << 10;
	unsigned char *bytes = calloc(n, sizeof(float));
	struct sl_transform t = { .id = SL_T_SCALARS, .args = { .batch = 1, .rows = 1, .row_bytes = sizeof(float) } };

	cr_assert(bytes);
	made_input(&t, bytes, 0, 1, n * sizeof(float), 0, n * sizeof(float), n * sizeof(float));
	expect_refused(&t, "'scalars' of rows of 4 bytes: more than 524288 must be held at once");
	free(bytes);
}

/* ---- elements ---- */

/* What engines make of one element, of its bytes. */
static float twin(enum sl_element kind, const unsigned char *from)
{
	uint32_t bits = 0;
	float value;

	memcpy(&bits, from, sl_element_size(kind));
	if (kind == SL_ELEMENT_E8M0)
		return bits == 0 ? 0 : bits == 255 ? INFINITY : ldexpf(1, (int)bits - 127);
	bits = kind == SL_ELEMENT_BF16 ? bits << 16 : bits;
	memcpy(&value, &bits, sizeof(value));
	return kind == SL_ELEMENT_FLOOR && !isnan(value) ? fmaxf(value, 1e-10f) : value;
}

/* Of `rows` x `cols` elements, fewer of them in the input: zeros come in, or ones out. */
static void compare_elements(enum sl_element kind, uint64_t n_rows, uint64_t cols, uint64_t in_rows, uint64_t in_cols)
{
	static const unsigned char zero[sizeof(float)];
	uint64_t size = sl_element_size(kind);
	unsigned char *in = made_random(in_rows * in_cols * size);
	float *want = malloc(n_rows * cols * sizeof(*want));
	struct sl_transform t = { .id = SL_T_ELEMENT,
				  .args = { .batch = 1, .rows = n_rows, .row_bytes = cols * sizeof(float) } };
	char what[80];

	cr_assert(want);
	for (uint64_t r = 0; r < n_rows; r++) {
		for (uint64_t c = 0; c < cols; c++) {
			bool there = r < in_rows && c < in_cols;
			want[r * cols + c] = twin(kind, there ? in + (r * in_cols + c) * size : zero);
			if (kind == SL_ELEMENT_ELSE_ONE && !there)
				want[r * cols + c] = 1;
		}
	}
	t.args.p[SL_ELEMENT_KIND] = kind;
	made_input(&t, in, 0, in_rows, in_cols * size, 0, in_cols * size, in_rows * in_cols * size);
	snprintf(what, sizeof(what), "kind %d, %llu x %llu of %llu x %llu", (int)kind, (unsigned long long)n_rows,
		 (unsigned long long)cols, (unsigned long long)in_rows, (unsigned long long)in_cols);
	made_expect(&t, (const unsigned char *)want, what);
	free(want);
	free(in);
}

Test(transform, elements)
{
	for (unsigned kind = 0; kind < SL_N_ELEMENTS; kind++) {
		for (unsigned n = 0; n < 8; n++) {
			uint64_t r = 1 + made_below(60), c = 1 + made_below(60);
			compare_elements((enum sl_element)kind, r, c, r, c);
			compare_elements((enum sl_element)kind, r + made_below(9), c + made_below(9), r, c);
		}
	}
}

/* ---- exponents ---- */

static void compare_exponents(uint64_t n_rows, uint64_t group, uint64_t cols)
{
	uint64_t in_rows = (n_rows + group - 1) / group, words = (cols + 3) / 4, aligned = (n_rows + 3) / 4 * 4;
	unsigned char *in = made_random(in_rows * cols * sizeof(float)), *want = calloc(words * aligned, 4);
	struct sl_transform t = { .id = SL_T_EXPONENTS,
				  .args = { .batch = 1, .rows = words, .row_bytes = aligned * 4 } };
	char what[80];

	cr_assert(want);
	for (uint64_t m = 0; m < n_rows; m++) {
		for (uint64_t k = 0; k < cols; k++) {
			uint32_t bits;
			memcpy(&bits, in + (m / group * cols + k) * sizeof(bits), sizeof(bits));
			want[(k / 4 * aligned + m) * 4 + k % 4] = (unsigned char)(bits >> 23);
		}
	}
	t.args.p[SL_EXPONENTS_ROWS] = n_rows;
	t.args.p[SL_EXPONENTS_GROUP] = group;
	made_input(&t, in, 0, in_rows, cols * sizeof(float), 0, cols * sizeof(float), in_rows * cols * sizeof(float));
	snprintf(what, sizeof(what), "%llu rows in groups of %llu, %llu columns", (unsigned long long)n_rows,
		 (unsigned long long)group, (unsigned long long)cols);
	made_expect(&t, want, what);
	free(want);
	free(in);
}

Test(transform, exponents)
{
	for (unsigned n = 0; n < 30; n++)
		compare_exponents(1 + made_below(400), n % 2 ? 1 : 1 + made_below(130), 1 + made_below(30));
}
