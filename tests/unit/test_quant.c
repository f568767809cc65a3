/*
 * test_quant.c - floats to FP8 codes, codes to other codes and to BF16: what is done many at once, beside one element at a time. Values lie
 * where rounding goes either way, where codes are subnormal, where scales are the largest and smallest there are.
 */
#include "made.h"
#include "slicer/convert.h"
#include "slicer/transforms/dequant.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(quant, .timeout = 300);

/* ---- BF16 to codes ---- */

struct matrix {
	enum sl_quant_kind kind;
	uint64_t rows, cols, h, w; /* of the matrix; of a granule */
};

static float largest_of(const uint16_t *values, const struct matrix *m, uint64_t row, uint64_t col)
{
	float largest = 0;

	for (uint64_t r = row; r < row + m->h && r < m->rows; r++) {
		for (uint64_t c = col; c < col + m->w && c < m->cols; c++) {
			float value = fabsf(sl_bf16_to_f32(values[r * m->cols + c]));
			largest = value > largest || isnan(value) ? value : largest;
		}
	}
	return largest;
}

/* vLLM's own steps, one after another; products and quotients are rounded to F32 each. */
static uint8_t code_of(enum sl_quant_kind kind, float value, float largest)
{
	volatile float x, scale;

	if (kind == SL_QUANT_ROW) {
		scale = largest / 448.0f;
		scale = scale < 1.0f / 229376.0f ? 1.0f / 229376.0f : scale;
		x = value / scale;
	} else {
		scale = kind == SL_QUANT_TENSOR ? largest / 448.0f
						: (largest < 1e-4f ? 1e-4f : largest) * (1.0f / 448.0f);
		scale = 1.0f / scale;
		x = value * scale;
	}
	if (kind == SL_QUANT_TENSOR && isnan(x))
		return 0x7E;
	return isnan(x) ? (uint8_t)(0x7F | (signbit(x) ? 0x80 : 0))
			: sl_f32_to_f8_e4m3(x > 448.0f	  ? 448.0f
					    : x < -448.0f ? -448.0f
							  : x);
}

static void compare(const struct matrix *m, const uint16_t *values, const char *what)
{
	uint64_t n = m->rows * m->cols;
	unsigned char *want = malloc(n);
	struct sl_transform t = { .id = SL_T_QUANT, .args = { .batch = 1, .rows = m->rows, .row_bytes = m->cols } };

	cr_assert(want);
	for (uint64_t r = 0; r < m->rows; r += m->h) {
		for (uint64_t c = 0; c < m->cols; c += m->w) {
			float largest = largest_of(values, m, r, c);
			for (uint64_t i = r; i < r + m->h && i < m->rows; i++)
				for (uint64_t k = c; k < c + m->w && k < m->cols; k++)
					want[i * m->cols + k] =
						code_of(m->kind, sl_bf16_to_f32(values[i * m->cols + k]), largest);
		}
	}
	t.args.p[SL_QUANT_KIND] = m->kind;
	t.args.p[SL_QUANT_FROM] = SL_BF16;
	t.args.p[SL_QUANT_COLS] = m->cols;
	t.args.p[SL_QUANT_ROWS_OF] = m->kind == SL_QUANT_TENSOR ? 1 : m->h;
	t.args.p[SL_QUANT_COLS_OF] = m->kind == SL_QUANT_TENSOR ? 1 : m->w;
	t.facts = calloc(1, sizeof(*t.facts) + 4);
	cr_assert(t.facts);
	made_input(&t, (const unsigned char *)values, 0, m->rows, m->cols * 2, 0, m->cols * 2, n * 2);
	made_expect(&t, want, what);
	free(t.facts);
	free(want);
}

/* Exponents are spread over `spread` below `top`; a few values are zeros, and of those some are negative. */
static uint16_t *random_values(uint64_t n, unsigned top, unsigned spread)
{
	uint16_t *values = malloc(n * sizeof(*values));

	cr_assert(values);
	for (uint64_t i = 0; i < n; i++) {
		unsigned exponent = top - (unsigned)made_below(spread),
			 half = exponent << 7 | (unsigned)made_below(128);
		values[i] = (uint16_t)((made_below(40) ? half : 0) | made_below(2) << 15);
	}
	return values;
}

static const struct matrix matrices[] = {
	{ SL_QUANT_TENSOR, 30, 333, 30, 333 },	{ SL_QUANT_ROW, 5, 4133, 1, 4133 },  { SL_QUANT_ROW, 9, 70, 1, 70 },
	{ SL_QUANT_BLOCK, 256, 160, 128, 128 }, { SL_QUANT_BLOCK, 70, 300, 32, 64 },
};

Test(quant, every_largest_mantissa)
{
	char what[80];

	for (size_t k = 0; k < sizeof(matrices) / sizeof(*matrices); k++) {
		const struct matrix *m = &matrices[k];
		uint16_t *values = random_values(m->rows * m->cols, 126, 24);
		for (unsigned mantissa = 0; mantissa < 128; mantissa += 1 + (unsigned)made_below(9)) {
			for (uint64_t r = 0; r < m->rows; r += m->h)
				for (uint64_t c = 0; c < m->cols; c += m->w)
					values[r * m->cols + c] = (uint16_t)(127u << 7 | mantissa);
			snprintf(what, sizeof(what), "matrix %zu, largest mantissa %u", k, mantissa);
			compare(m, values, what);
		}
		free(values);
	}
}

/* From what scales can hardly hold to what they hold no more. */
Test(quant, every_largest_exponent)
{
	char what[80];

	for (size_t k = 0; k < sizeof(matrices) / sizeof(*matrices); k++) {
		for (unsigned top = 1; top < 255; top += 1 + (unsigned)made_below(16)) {
			uint16_t *values = random_values(matrices[k].rows * matrices[k].cols, top, top < 12 ? top : 12);
			snprintf(what, sizeof(what), "matrix %zu, exponents up to %u", k, top);
			compare(&matrices[k], values, what);
			free(values);
		}
	}
}

/* A NaN makes the scale of its granule one; infinities lie beside it. */
Test(quant, no_numbers)
{
	for (size_t k = 0; k < sizeof(matrices) / sizeof(*matrices); k++) {
		uint64_t n = matrices[k].rows * matrices[k].cols;
		uint16_t *values = random_values(n, 127, 20);
		for (unsigned i = 0; i < 5; i++) {
			values[made_below(n)] = 0x7F80;
			values[made_below(n)] = 0xFF80;
			compare(&matrices[k], values, "infinities");
		}
		for (uint64_t i = 0; i < n; i++)
			values[i] = 0;
		compare(&matrices[k], values, "zeros");
		free(values);
	}
}

/* ---- codes of blocks to other codes, and to BF16 ---- */

static float scale_at(unsigned i)
{
	static const float scales[] = { 1,     0.0123f, 1e-38f,		3e-41f,	  1e-6f, 7.3e5f,
					3e36f, 0x1p-7f, 0x1.fffffep-3f, 0x1p120f, 0.3f };

	return scales[i % (sizeof(scales) / sizeof(*scales))];
}

enum { ROWS = 256, COLS = 288, BLOCK = 128 };

static void compare_blocks(enum sl_transform_id id, unsigned first, bool nans)
{
	uint64_t across = (COLS + BLOCK - 1) / BLOCK, size = id == SL_T_QUANT ? 1 : 2;
	unsigned char *codes = made_random(ROWS * COLS), *want = malloc(ROWS * COLS * size);
	float scales[2 * 3];
	struct sl_transform t = { .id = id, .args = { .batch = 1, .rows = ROWS, .row_bytes = COLS * size } };

	cr_assert(want && across == 3);
	for (unsigned i = 0; i < ROWS * COLS; i++)
		codes[i] = (codes[i] & 0x7F) == 0x7F && (!nans || made_below(8)) ? 0x11 : codes[i];
	for (unsigned b = 0; b < 6; b++) {
		uint64_t row = b / 3 * BLOCK, col = b % 3 * BLOCK, n_cols = COLS - col < BLOCK ? COLS - col : BLOCK;
		volatile float largest = 0, scale;
		scales[b] = scale_at(first + b);
		for (uint64_t r = row; r < row + BLOCK; r++) {
			for (uint64_t c = col; c < col + n_cols; c++) {
				volatile float value = fabsf(sl_f8_e4m3_to_f32(codes[r * COLS + c])) * scales[b];
				largest = value > largest || isnan(value) ? value : largest;
			}
		}
		scale = (largest < 1e-4f ? 1e-4f : largest) * (1.0f / 448.0f);
		scale = exp2f(ceilf((float)log2((double)scale)));
		for (uint64_t r = row; r < row + BLOCK; r++) {
			for (uint64_t c = col; c < col + n_cols; c++) {
				volatile float value = sl_f8_e4m3_to_f32(codes[r * COLS + c]) * scales[b], x;
				uint16_t half = sl_f32_to_bf16(value);
				x = value * (1.0f / scale);
				if (size == 2)
					memcpy(want + 2 * (r * COLS + c), &half, 2);
				else
					want[r * COLS + c] = sl_f32_to_f8_e4m3(x > 448.0f    ? 448.0f
									       : x < -448.0f ? -448.0f
											     : x);
			}
		}
	}
	t.args.p[SL_QUANT_KIND] = SL_QUANT_UE8M0;
	t.args.p[SL_QUANT_FROM] = SL_F8_E4M3;
	t.args.p[SL_QUANT_COLS] = COLS;
	t.args.p[SL_QUANT_ROWS_OF] = t.args.p[SL_QUANT_COLS_OF] = BLOCK;
	t.args.p[SL_QUANT_SCALE_ROWS] = t.args.p[SL_QUANT_SCALE_COLS] = BLOCK;
	if (size == 2)
		t.args.p[SL_DEQUANT_TO] = SL_BF16;
	made_input(&t, codes, 0, ROWS, COLS, 0, COLS, ROWS * COLS);
	made_input(&t, (const unsigned char *)scales, 0, 2, sizeof(scales) / 2, 0, sizeof(scales) / 2, sizeof(scales));
	made_expect(&t, want, nans ? "with NaNs" : "without NaNs");
	free(want);
	free(codes);
}

Test(quant, blocks_to_powers_of_two)
{
	for (unsigned first = 0; first < 11; first++)
		compare_blocks(SL_T_QUANT, first, false);
}

Test(quant, blocks_to_bf16)
{
	for (unsigned first = 0; first < 11; first++) {
		compare_blocks(SL_T_DEQUANT, first, false);
		compare_blocks(SL_T_DEQUANT, first, true);
	}
}
