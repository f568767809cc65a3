/*
 * quant.c - what blocks of codes and of scales need, the largest value of a whole matrix, and loops over rows.
 */
#include "slicer/transforms/quant.h"

#include "slicer/transform.h"
#include "slicer/transforms/fast.h"
#include "slicer/transforms/lookup.h"

#include <errno.h>

enum {
	STRETCH = 4096,	  /* elements converted at once */
	READ = 128 << 10, /* bytes read at once */
	STEPS_MIN = 2048, /* elements of a granule */
	WAYS = 32,	  /* granules side by side that are made together */
};

/* ---- a whole matrix's largest value ---- */

SL_FAST static uint32_t largest_16(const uint16_t *from, uint64_t n)
{
	uint16_t largest = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint16_t size = from[i] & 0x7FFF;
		largest = size > largest ? size : largest;
	}
	return largest;
}

SL_FAST static uint32_t largest_32(const uint32_t *from, uint64_t n)
{
	uint32_t largest = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t size = from[i] & 0x7FFFFFFF;
		largest = size > largest ? size : largest;
	}
	return largest;
}

/* Of a run of elements, as the bits of an F32; halves are ordered as their bits are. */
static uint32_t largest_of(unsigned from, const unsigned char *at, uint64_t n)
{
	uint16_t half;

	if (from == SL_F32)
		return largest_32((const uint32_t *)(const void *)at, n);
	half = (uint16_t)largest_16((const uint16_t *)(const void *)at, n);
	return sl_f32_bits(from == SL_BF16 ? sl_bf16_to_f32(half) : sl_f16_to_f32(half));
}

static uint64_t facts_len(const struct sl_args *args)
{
	return args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR ? args->batch * sizeof(float) : 0;
}

static int learn_member(const struct sl_model *model, const struct sl_transform *t, uint64_t member, uint32_t *largest,
			struct sl_error *err)
{
	unsigned char bytes[READ] __attribute__((aligned(64)));
	unsigned input = t->n_inputs > 2 ? 2 : 0, size = sl_quant_size(&t->args);
	uint64_t width = t->args.in[input].row_bytes, at_once = width < READ ? READ / width : 1;

	for (uint64_t r = 0; r < t->args.in[input].rows; r += at_once) {
		for (uint64_t c = 0; c < width; c += READ) {
			struct sl_rect rect = { r, sl_quant_min(at_once, t->args.in[input].rows - r), c,
						sl_quant_min(READ, width - c) };
			int ret = sl_transform_input(model, t, input, member, &rect, bytes, err);
			if (ret)
				return ret;
			uint32_t here =
				largest_of((unsigned)t->args.p[SL_QUANT_FROM], bytes, rect.n_rows * rect.n_cols / size);
			*largest = here > *largest ? here : *largest;
		}
	}
	return 0;
}

static int learn(const struct sl_model *model, const struct sl_transform *t, unsigned char *facts, struct sl_error *err)
{
	uint64_t members = facts_len(&t->args) / sizeof(float);
	int ret = 0;

	for (uint64_t m = 0; m < members && !ret; m++) {
		uint32_t largest = 0;
		ret = learn_member(model, t, m, &largest, err);
		memcpy(facts + 4 * m, &largest, sizeof(largest));
	}
	return ret;
}

/* ---- codes ---- */

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	bool whole = args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR;

	*rows = whole ? 1 : args->p[SL_QUANT_ROWS_OF];
	*bytes = whole ? 1 : args->p[SL_QUANT_COLS_OF];
}

/* What elements [row, …) x [col, …) need of an input. */
static void need_elements(const struct sl_args *args, unsigned input, const struct sl_granule *g, struct sl_rect *in)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS];
	unsigned size = sl_quant_size(args);

	if (g->n_rows == 0 || g->n_cols == 0)
		return;
	if (input == 0)
		*in = (struct sl_rect){ g->row, g->n_rows, g->col * size, g->n_cols * size };
	else if (input == 1 && h)
		*in = (struct sl_rect){ g->row / h, (g->row + g->n_rows - 1) / h - g->row / h + 1, g->col / w * 4,
					((g->col + g->n_cols - 1) / w - g->col / w + 1) * 4 };
	else if (input == 2 && args->p[SL_QUANT_KIND] != SL_QUANT_TENSOR)
		*in = (struct sl_rect){ g->row, g->n_rows, 0, args->in[2].row_bytes };
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	const struct sl_granule g = { out->row, out->n_rows, out->col, out->n_cols };

	need_elements(args, input, &g, in);
}

/* A NaN code has no value to be scaled with, and its sign is the device's. */
int sl_quant_inputs(const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	const struct sl_rect *in = &block->in[0], *scales = &block->in[1];
	uint64_t n = in->n_rows * in->n_cols;
	unsigned found = 0;

	if (args->p[SL_QUANT_FROM] != SL_F8_E4M3)
		return 0;
	for (uint64_t i = 0; i < n; i++)
		found |= (block->bytes[0][i] & 0x7F) == 0x7F;
	if (found)
		return sl_fail(err, EINVAL, "an FP8 code is a NaN, and engines differ in what follows");
	return sl_transform_scales(block->bytes[1], scales->n_rows * (scales->n_cols / 4), err);
}

/* A run of elements of input 0 as floats. */
SL_FAST static void load_bf16(const uint16_t *from, uint64_t n, float *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = sl_f32_from_bits((uint32_t)from[i] << 16);
}

#ifdef __x86_64__
/* sl_quant_e4m3() of eight values, in 32 bits each. */
SL_WIDE static inline __m256i codes_of_8(__m256 values)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
	__m256i bits = _mm256_castps_si256(values), size = _mm256_and_si256(bits, magnitude), odd, normal, small, code;

	odd = _mm256_and_si256(_mm256_srli_epi32(size, 20), _mm256_set1_epi32(1));
	normal = _mm256_srai_epi32(
		_mm256_add_epi32(_mm256_add_epi32(size, _mm256_set1_epi32(0x7FFFF - 0x3C000000)), odd), 20);
	small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(size), _mm256_set1_ps(0x1p14f))),
				 _mm256_set1_epi32(0x46800000));
	code = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3C800000), size));
	code = _mm256_min_epi32(code, _mm256_set1_epi32(0x7E));
	code = _mm256_or_si256(code, _mm256_srli_epi32(_mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7F800000)), 31));
	return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

/* Eight values, BF16 or F32. */
SL_WIDE static inline __m256 load_8(const void *from, uint64_t i, bool bf16)
{
	const uint16_t *halves = from;
	const float *values = from;

	if (!bf16)
		return _mm256_loadu_ps(values + i);
	return _mm256_castsi256_ps(_mm256_slli_epi32(
		_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(halves + i))), 16));
}

/* Values times a factor, or through a divisor: one of them is 1. Returns how many were done: all but the last few. */
SL_WIDE static inline uint64_t codes_wide(const void *from, bool bf16, uint64_t n, const struct sl_quant_by *by,
					  unsigned char *to)
{
	const __m256 factor = _mm256_set1_ps(by->factor), divisor = _mm256_set1_ps(by->divisor);
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	bool divides = by->divisor != 1;
	uint64_t i = 0;

	for (; i + 32 <= n; i += 32) {
		__m256i codes[4];
#pragma GCC unroll 4
		for (int v = 0; v < 4; v++) {
			__m256 x = load_8(from, i + 8u * (unsigned)v, bf16);
			codes[v] = codes_of_8(divides ? _mm256_div_ps(x, divisor) : _mm256_mul_ps(x, factor));
		}
		codes[0] = _mm256_packus_epi16(_mm256_packus_epi32(codes[0], codes[1]),
					       _mm256_packus_epi32(codes[2], codes[3]));
		_mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_permutevar8x32_epi32(codes[0], order));
	}
	return i;
}

SL_WIDE static uint64_t codes_of_f32_wide(const float *from, uint64_t n, const struct sl_quant_by *by,
					  unsigned char *to)
{
	return codes_wide(from, false, n, by, to);
}

SL_WIDE static uint64_t codes_of_bf16_wide(const unsigned char *from, uint64_t n, const struct sl_quant_by *by,
					   unsigned char *to)
{
	return codes_wide(from, true, n, by, to);
}

/* BF16 has 128 mantissas. What a factor or a divisor makes of them steps eight times at most from one code to the next, at the same
 * mantissas whatever the exponent, as long as codes are no subnormals: a code is the exponent less `least`, and how many
 * steps are at or below the mantissa. */
struct steps {
	bool usable;
	unsigned char least,
		first; /* the exponent, as it is stored, from which codes' exponents count; the code of mantissa 0 */
	signed char below[8]; /* the mantissa before each step; 127 where there is none */
};

static struct steps steps_of(const struct sl_quant_by *by)
{
	uint32_t scale = sl_f32_bits(by->divisor != 1 ? by->divisor : by->factor);
	int power = (int)(scale >> 23) - 127, exponent = by->divisor != 1 ? 127 + power : 127 - power, least;
	unsigned char codes[128];
	struct steps steps = { .usable = false };
	uint16_t values[128];
	unsigned n = 0;

	memset(steps.below, 127, sizeof(steps.below));
	if (power < -100 || power > 100) /* nor a sign, a zero, a NaN */
		return steps;
	for (unsigned m = 0; m < 128; m++)
		values[m] = (uint16_t)((unsigned)exponent << 7 | m);
	codes_of_bf16_wide((const unsigned char *)values, 128, by, codes);
	for (unsigned m = 1; m < 128; m++) {
		if (codes[m] == codes[m - 1])
			continue;
		if (n == 8 || codes[m] != codes[m - 1] + 1)
			return steps;
		steps.below[n++] = (signed char)(m - 1);
	}
	least = exponent - (codes[0] >> 3);
	steps.first = codes[0] & 7;
	steps.least = (unsigned char)least;
	steps.usable = least >= 0 && least < 240; /* exponents 0 and 255 are not among those of normal codes */
	return steps;
}

/* Sixteen values a vector, so that bytes of 32 are in the order 0-7, 16-23, 8-15, 24-31. */
SL_WIDE static inline __m256i codes_of_32(__m256i a, __m256i b, const struct steps *steps, const __m256i below[8],
					  bool *usual)
{
	const __m256i byte = _mm256_set1_epi16(0xFF), sign = _mm256_set1_epi8((char)0x80);
	__m256i low = _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
	__m256i high = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
	__m256i mantissa = _mm256_andnot_si256(sign, low), code = _mm256_set1_epi8((char)steps->first), exponent;

	exponent = _mm256_or_si256(_mm256_add_epi8(high, high),
				   _mm256_and_si256(_mm256_srli_epi16(low, 7), _mm256_set1_epi8(1)));
	exponent = _mm256_sub_epi8(exponent, _mm256_set1_epi8((char)steps->least));
	*usual = _mm256_testz_si256(
		_mm256_subs_epu8(_mm256_sub_epi8(exponent, _mm256_set1_epi8(1)), _mm256_set1_epi8(14)),
		_mm256_set1_epi8(-1));
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		code = _mm256_sub_epi8(code, _mm256_cmpgt_epi8(mantissa, below[i]));
	code = _mm256_add_epi8(code, _mm256_and_si256(_mm256_slli_epi16(exponent, 3), _mm256_set1_epi8((char)0xF8)));
	return _mm256_or_si256(_mm256_min_epu8(code, _mm256_set1_epi8(0x7E)), _mm256_and_si256(high, sign));
}

/* A run of BF16 by its steps, or where a value makes no normal code by what makes all. Returns how many were done: all but the
 * last few; *odd when there was such a value. */
SL_WIDE static uint64_t codes_by_steps(const unsigned char *from, uint64_t n, const struct sl_quant_by *by,
				       const struct steps *steps, unsigned char *to, bool *odd)
{
	__m256i below[8];
	uint64_t i = 0;
	bool usual;

	for (unsigned s = 0; s < 8; s++)
		below[s] = _mm256_set1_epi8(steps->below[s]);
	for (; i + 32 <= n; i += 32) {
		const __m256i *values = (const __m256i *)(const void *)(from + 2 * i);
		__m256i codes =
			codes_of_32(_mm256_loadu_si256(values), _mm256_loadu_si256(values + 1), steps, below, &usual);
		_mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_permute4x64_epi64(codes, 0xD8));
		if (!usual) {
			codes_wide(from + 2 * i, true, 32, by, to + i);
			*odd = true;
		}
	}
	return i;
}

/* The largest of rows of BF16, its sign left out. */
SL_WIDE static uint32_t largest_bf16_wide(const unsigned char *from, uint64_t pitch, uint64_t rows, uint64_t n)
{
	const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
	__m256i most[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
	uint16_t each[16], largest = 0;

	for (uint64_t r = 0; r < rows; r++, from += pitch) {
		uint64_t i = 0;
		for (; i + 32 <= n; i += 32) {
			const __m256i *values = (const __m256i *)(const void *)(from + 2 * i);
			for (int v = 0; v < 2; v++)
				most[v] = _mm256_max_epu16(most[v],
							   _mm256_and_si256(_mm256_loadu_si256(values + v), magnitude));
		}
		for (; i < n; i++) {
			uint16_t half;
			memcpy(&half, from + 2 * i, sizeof(half));
			largest = (half & 0x7FFF) > largest ? half & 0x7FFF : largest;
		}
	}
	_mm256_storeu_si256((__m256i *)(void *)each, _mm256_max_epu16(most[0], most[1]));
	for (unsigned i = 0; i < 16; i++)
		largest = each[i] > largest ? each[i] : largest;
	return largest;
}

/* The largest of rows of codes, their signs left out. */
SL_WIDE static unsigned char largest_code_wide(const unsigned char *from, uint64_t pitch, uint64_t rows, uint64_t n)
{
	const __m256i magnitude = _mm256_set1_epi8(0x7F);
	__m256i most = _mm256_setzero_si256();
	unsigned char each[32], largest = 0;

	for (uint64_t r = 0; r < rows; r++, from += pitch) {
		uint64_t i = 0;
		for (; i + 32 <= n; i += 32)
			most = _mm256_max_epu8(
				most, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(from + i)),
						       magnitude));
		for (; i < n; i++)
			largest = (from[i] & 0x7F) > largest ? from[i] & 0x7F : largest;
	}
	_mm256_storeu_si256((__m256i *)(void *)each, most);
	for (unsigned i = 0; i < 32; i++)
		largest = each[i] > largest ? each[i] : largest;
	return largest;
}

SL_WIDE static uint64_t load_codes_wide(const unsigned char *from, uint64_t n, float scale, float *to)
{
	const __m256 by = _mm256_set1_ps(scale);
	uint64_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(from + i));
		_mm256_storeu_ps(to + i, _mm256_mul_ps(sl_wide_e4m3(codes), by));
	}
	return i;
}
#else
struct steps {
	bool usable;
};

static struct steps steps_of(const struct sl_quant_by *by)
{
	(void)by;
	return (struct steps){ false };
}

static uint64_t codes_by_steps(const unsigned char *from, uint64_t n, const struct sl_quant_by *by,
			       const struct steps *steps, unsigned char *to, bool *odd)
{
	(void)from, (void)n, (void)by, (void)steps, (void)to, (void)odd;
	return 0;
}

static uint32_t largest_bf16_wide(const unsigned char *from, uint64_t pitch, uint64_t rows, uint64_t n)
{
	(void)from, (void)pitch, (void)rows, (void)n;
	return 0;
}

static unsigned char largest_code_wide(const unsigned char *from, uint64_t pitch, uint64_t rows, uint64_t n)
{
	(void)from, (void)pitch, (void)rows, (void)n;
	return 0;
}

static uint64_t codes_of_f32_wide(const float *from, uint64_t n, const struct sl_quant_by *by, unsigned char *to)
{
	(void)from, (void)n, (void)by, (void)to;
	return 0;
}

static uint64_t codes_of_bf16_wide(const unsigned char *from, uint64_t n, const struct sl_quant_by *by,
				   unsigned char *to)
{
	(void)from, (void)n, (void)by, (void)to;
	return 0;
}

static uint64_t load_codes_wide(const unsigned char *from, uint64_t n, float scale, float *to)
{
	(void)from, (void)n, (void)scale, (void)to;
	return 0;
}
#endif

/* Values of codes that share a scale. */
static void load_codes(const unsigned char *from, uint64_t n, float scale, float *to)
{
	for (uint64_t i = sl_has_wide() ? load_codes_wide(from, n, scale, to) : 0; i < n; i++)
		to[i] = sl_f8_e4m3_to_f32(from[i]) * scale;
}

/* Runs of a row that share a scale. */
static void load_scaled(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col,
			uint64_t n, float *to)
{
	const struct sl_rect *in = &block->in[0];
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS], now;

	for (uint64_t i = 0; i < n; i += now) {
		float scale = 1;
		now = n - i;
		if (h) {
			now = sl_quant_min(now, w - (col + i) % w);
			scale = sl_quant_block_scale(args, block, row, col + i);
		}
		load_codes(block->bytes[0] + (row - in->row) * in->n_cols + col + i - in->col, now, scale, to + i);
	}
}

void sl_quant_load_row(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col, uint64_t n,
		       float *to)
{
	const struct sl_rect *in = &block->in[0];

	if (args->p[SL_QUANT_FROM] == SL_BF16 && !args->p[SL_QUANT_SCALE_ROWS]) {
		load_bf16((const uint16_t *)(const void *)(block->bytes[0] + (row - in->row) * in->n_cols + col * 2 -
							   in->col),
			  n, to);
		return;
	}
	if (args->p[SL_QUANT_FROM] == SL_F8_E4M3) {
		load_scaled(args, block, row, col, n, to);
		return;
	}
	sl_quant_load_some(args, block, 0, row, col, n, to);
}

/* Of TENSOR alone: a NaN becomes the largest code. */
static void mend_nans(const float *from, uint64_t n, const struct sl_quant_by *by, unsigned char *to)
{
	for (uint64_t i = 0; i < n; i++) {
		float x = from[i] * by->factor;
		if (x != x)
			to[i] = 0x7E;
	}
}

static bool has_nan(const unsigned char *codes, uint64_t n)
{
	unsigned found = 0;

	for (uint64_t i = 0; i < n; i++)
		found |= (codes[i] & 0x7F) == 0x7F;
	return found;
}

static void make_codes(const float *from, uint64_t n, const struct sl_quant_by *by, unsigned char *to)
{
	for (uint64_t i = sl_has_wide() ? codes_of_f32_wide(from, n, by, to) : 0; i < n; i++)
		to[i] = sl_quant_e4m3(from[i] * by->factor / by->divisor);
	if (by->nan_is_top && has_nan(to, n))
		mend_nans(from, n, by, to);
}

/* Codes of a granule that share one scale, which is a number above zero: where they are, and the scale. */
struct alike {
	const unsigned char *codes;
	float scale;
};

static bool are_alike(const struct sl_args *args, const struct sl_block *block, const struct sl_granule *g,
		      struct alike *alike)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS];
	const struct sl_rect *in = &block->in[0];

	if (args->p[SL_QUANT_FROM] != SL_F8_E4M3 || args->p[SL_QUANT_ALL_COLS] || !h || !sl_has_wide() ||
	    g->row / h != (g->row + g->n_rows - 1) / h || g->col / w != (g->col + g->n_cols - 1) / w)
		return false;
	alike->codes = block->bytes[0] + (g->row - in->row) * in->n_cols + g->col - in->col;
	alike->scale = sl_quant_block_scale(args, block, g->row, g->col);
	return alike->scale > 0;
}

/* A granule's largest value: of what is stored, or of that times its scales. */
static float largest(const struct sl_args *args, const struct sl_block *block, const struct sl_granule *g)
{
	unsigned from = (unsigned)args->p[SL_QUANT_FROM], size = sl_quant_size(args),
		 input = args->p[SL_QUANT_ALL_COLS] ? 2 : 0;
	uint64_t first = input ? 0 : g->col, n = input ? args->p[SL_QUANT_ALL_COLS] : g->n_cols;
	const struct sl_rect *in = &block->in[input];
	float stretch[STRETCH];
	uint32_t so_far = 0, here;
	struct alike alike;

	if (are_alike(args, block, g, &alike))
		return sl_f8_e4m3_to_f32(largest_code_wide(alike.codes, in->n_cols, g->n_rows, g->n_cols)) *
		       alike.scale;
	if (from == SL_BF16 && sl_has_wide())
		return sl_bf16_to_f32((uint16_t)largest_bf16_wide(
			block->bytes[input] + (g->row - in->row) * in->n_cols + first * 2 - in->col, in->n_cols,
			g->n_rows, n));
	for (uint64_t r = g->row; r < g->row + g->n_rows; r++) {
		for (uint64_t c = 0; c < n; c += STRETCH) {
			uint64_t now = sl_quant_min(STRETCH, n - c);
			if (from == SL_F8_E4M3) {
				sl_quant_load_row(args, block, r, first + c, now, stretch);
				here = largest_32((const uint32_t *)(const void *)stretch, now);
			} else {
				here = largest_of(from,
						  block->bytes[input] + (r - in->row) * in->n_cols +
							  (first + c) * size - in->col,
						  now);
			}
			so_far = here > so_far ? here : so_far;
		}
	}
	return sl_f32_from_bits(so_far);
}

/* A granule's row of BF16, straight from where it is. Returns how many elements were done; none where a NaN has to be mended. */
static uint64_t straight(const struct sl_args *args, const struct sl_block *block, uint64_t row,
			 const struct sl_granule *g, const struct sl_quant_by *by, const struct steps *steps,
			 unsigned char *to)
{
	const struct sl_rect *in = &block->in[0];
	const unsigned char *from = block->bytes[0] + (row - in->row) * in->n_cols + g->col * 2 - in->col;
	bool odd = !steps->usable;
	uint64_t done;

	if (args->p[SL_QUANT_FROM] != SL_BF16 || !sl_has_wide())
		return 0;
	to += g->col - block->out.col;
	done = odd ? codes_of_bf16_wide(from, g->n_cols, by, to) : codes_by_steps(from, g->n_cols, by, steps, to, &odd);
	return odd && by->nan_is_top && has_nan(to, done) ? 0 : done;
}

/* Finding steps costs as much as some hundred codes. */
static struct steps useful_steps(const struct sl_args *args, const struct sl_granule *g, const struct sl_quant_by *by)
{
	if (args->p[SL_QUANT_FROM] != SL_BF16 || !sl_has_wide() || g->n_rows * g->n_cols < STEPS_MIN)
		return (struct steps){ .usable = false };
	return steps_of(by);
}

/* How a granule's codes are made. */
struct way {
	struct sl_granule g;
	struct sl_quant_by by;
	struct steps steps;
	bool looks_up; /* in the table */
	struct sl_lookup lookup;
	unsigned char table[256];
};

/* Codes with one scale to codes with another: each of 256 becomes another, whatever it stands beside. */
static void make_table(const struct alike *alike, struct way *way)
{
	unsigned char all[256];
	float values[256];

	for (unsigned c = 0; c < 256; c++)
		all[c] = (unsigned char)c;
	load_codes(all, 256, alike->scale, values);
	make_codes(values, 256, &way->by, way->table);
	sl_lookup_make(&way->lookup, way->table);
	way->looks_up = true;
}

static void find_way(const struct sl_args *args, const struct sl_block *block, struct way *way)
{
	const struct sl_granule *g = &way->g;
	bool whole = args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR;
	struct alike alike;

	way->by = sl_quant_by(args, sl_quant_scale(args, whole ? sl_quant_fact(block) : largest(args, block, g)));
	way->steps = useful_steps(args, g, &way->by);
	way->looks_up = false;
	if (g->n_rows * g->n_cols >= STEPS_MIN && are_alike(args, block, g, &alike))
		make_table(&alike, way);
}

static void make_row(const struct sl_args *args, const struct sl_block *block, uint64_t row, const struct way *way)
{
	const struct sl_granule *g = &way->g;
	const struct sl_rect *in = &block->in[0];
	unsigned char *to = block->dst + (row - block->out.row) * block->stride;
	float stretch[STRETCH];

	if (way->looks_up) {
		sl_lookup_run(&way->lookup, block->bytes[0] + (row - in->row) * in->n_cols + g->col - in->col,
			      g->n_cols, to + g->col - block->out.col);
		return;
	}
	for (uint64_t c = straight(args, block, row, g, &way->by, &way->steps, to); c < g->n_cols; c += STRETCH) {
		uint64_t n = sl_quant_min(STRETCH, g->n_cols - c);
		sl_quant_load_row(args, block, row, g->col + c, n, stretch);
		make_codes(stretch, n, &way->by, to + g->col + c - block->out.col);
	}
}

/* Granules side by side are made together, row by row: rows of one of them are far apart, and often where the same few lines of a
 * cache are. */
static void run(const struct sl_args *args, const struct sl_block *block)
{
	bool whole = args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR;
	uint64_t h = whole ? block->out.n_rows : args->p[SL_QUANT_ROWS_OF],
		 w = whole ? block->out.n_cols : args->p[SL_QUANT_COLS_OF];
	struct way ways[WAYS];

	for (uint64_t r = 0; r < block->out.n_rows; r += h) {
		uint64_t n_rows = sl_quant_min(h, block->out.n_rows - r);
		for (uint64_t c = 0; c < block->out.n_cols;) {
			unsigned n = 0;
			for (; c < block->out.n_cols && n < WAYS; c += w, n++) {
				ways[n].g = (struct sl_granule){ block->out.row + r, n_rows, block->out.col + c,
								 sl_quant_min(w, block->out.n_cols - c) };
				find_way(args, block, &ways[n]);
			}
			for (uint64_t i = 0; i < n_rows; i++) {
				for (unsigned k = 0; k < n; k++)
					make_row(args, block, block->out.row + r + i, &ways[k]);
			}
		}
	}
}

const struct sl_transform_row sl_transform_quant = {
	"quant", granule, need, facts_len, learn, run, sl_quant_units, sl_quant_unit, sl_quant_inputs,
};

/* ---- scales ---- */

static void scales_granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = sl_quant_scales_size(args);
}

static void scales_need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t h = args->p[SL_QUANT_ROWS_OF], w = args->p[SL_QUANT_COLS_OF], size = sl_quant_scales_size(args);
	struct sl_granule g = { out->row * h, out->n_rows * h, out->col / size * w, out->n_cols / size * w };

	if (args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR)
		return;
	g.n_rows = sl_quant_min(g.n_rows, args->in[0].rows - g.row);
	g.n_cols = sl_quant_min(g.n_cols, args->p[SL_QUANT_COLS] - g.col);
	need_elements(args, input, &g, in);
}

static void scales_run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_quant_scales_units(args, block); i++) {
		if (args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR) {
			sl_quant_scales_unit(args, block, i);
			continue;
		}
		const struct sl_granule g = sl_quant_of_scale(args, block, i);
		sl_quant_scales_make(args, block, i, sl_f32_bits(largest(args, block, &g)), 0, 1);
	}
}

const struct sl_transform_row sl_transform_quant_scales = {
	"scales",   scales_granule,	   scales_need,		 facts_len,	  learn,
	scales_run, sl_quant_scales_units, sl_quant_scales_unit, sl_quant_inputs,
};
