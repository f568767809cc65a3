/*
 * dequant.c - stretches of rows through F32.
 */
#include "slicer/transforms/dequant.h"

#include "slicer/transform.h"
#include "slicer/transforms/fast.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = sl_dequant_size(args);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS], size = sl_dequant_size(args);
	uint64_t col = out->col / size, n_cols = out->n_cols / size;

	if (input == 0)
		*in = (struct sl_rect){ out->row, out->n_rows, col * sl_quant_size(args),
					n_cols * sl_quant_size(args) };
	else if (h && n_cols)
		*in = (struct sl_rect){ out->row / h, (out->row + out->n_rows - 1) / h - out->row / h + 1, col / w * 4,
					((col + n_cols - 1) / w - col / w + 1) * 4 };
}

SL_FAST static void to_bf16(const float *restrict from, uint64_t n, uint16_t *restrict to)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = sl_f32_bits(from[i]), rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
		to[i] = (uint16_t)((int32_t)(bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
	}
}

static void to_f16(const float *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = sl_f32_to_f16(from[i]);
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx2")))

/* FP8 codes to BF16, sixteen at once: the value of a code is that of an F32 of the same fields, times 2^120; but for a NaN. */
WIDE static inline __m256i bf16_of_8(__m128i codes, __m256 scale)
{
	const __m256i mask = _mm256_set1_epi32(0x7F), nan = _mm256_set1_epi32(0x7FC00000);
	__m256i code = _mm256_cvtepu8_epi32(codes), size = _mm256_and_si256(code, mask), bits, odd, is_nan;

	bits = _mm256_castps_si256(
		_mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(size, 20)), _mm256_set1_ps(0x1p120f)));
	bits = _mm256_blendv_epi8(bits, nan, _mm256_cmpeq_epi32(size, mask));
	bits = _mm256_or_si256(bits, _mm256_slli_epi32(_mm256_xor_si256(code, size), 24));
	bits = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(bits), scale));
	is_nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)),
				    _mm256_set1_epi32(0x7F800000));
	odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	bits = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
	return _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC0), is_nan);
}

/* Returns how many were done: all but the last few. */
WIDE static uint64_t bf16_wide(const unsigned char *from, uint64_t n, float by, unsigned char *to)
{
	const __m256 scale = _mm256_set1_ps(by);
	uint64_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
		__m256i low = bf16_of_8(codes, scale), high = bf16_of_8(_mm_srli_si128(codes, 8), scale);
		low = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
		_mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), low);
	}
	return i;
}

static bool has_wide(void)
{
	return __builtin_cpu_supports("avx2");
}
#else
static uint64_t bf16_wide(const unsigned char *from, uint64_t n, float by, unsigned char *to)
{
	(void)from, (void)n, (void)by, (void)to;
	return 0;
}

static bool has_wide(void)
{
	return false;
}
#endif

/* Elements [col, col + n) of a row of FP8 that share a scale, straight to where they are wanted. Returns how many were done. */
static uint64_t straight(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col,
			 uint64_t n, unsigned char *to)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS];
	const struct sl_rect *in = &block->in[0], *scales = &block->in[1];

	if (args->p[SL_QUANT_FROM] != SL_F8_E4M3 || args->p[SL_DEQUANT_TO] != SL_BF16 || !h || !has_wide())
		return 0;
	float scale = sl_quant_load(SL_F32, block->bytes[1] + (row / h - scales->row) * scales->n_cols + col / w * 4 -
						    scales->col);
	return bf16_wide(block->bytes[0] + (row - in->row) * in->n_cols + col - in->col, sl_quant_min(n, w - col % w),
			 scale, to);
}

enum { STRETCH = 1024 };

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t size = sl_dequant_size(args), first = block->out.col / size, n = block->out.n_cols / size, now;
	float values[STRETCH];
	uint16_t halves[STRETCH];

	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		for (uint64_t c = 0; c < n; c += now) {
			now = straight(args, block, block->out.row + r, first + c, n - c,
				       block->dst + r * block->stride + c * size);
			if (now)
				continue;
			now = sl_quant_min(n - c, STRETCH);
			sl_quant_load_row(args, block, block->out.row + r, first + c, now, values);
			if (args->p[SL_DEQUANT_TO] == SL_BF16)
				to_bf16(values, now, halves);
			else if (size == 2)
				to_f16(values, now, halves);
			memcpy(block->dst + r * block->stride + c * size, size == 2 ? (const void *)halves : values,
			       now * size);
		}
	}
}

const struct sl_transform_row sl_transform_dequant = {
	"dequantise", granule, need, NULL, NULL, run, sl_dequant_units, sl_dequant_unit, sl_quant_inputs,
};
