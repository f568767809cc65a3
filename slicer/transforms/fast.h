/*
 * fast.h - loops that are compiled for several processors, of which the dynamic linker takes the best one that it finds.
 *
 * Not under sanitizers: what chooses runs before their runtime is set up. The results are the same bytes in any case.
 */
#ifndef SLICER_TRANSFORMS_FAST_H
#define SLICER_TRANSFORMS_FAST_H

#include <stdbool.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__)
#define SL_FAST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define SL_FAST
#endif

/* Functions of AVX2's own instructions, and whether they may be called. */
#ifdef __x86_64__
#include <immintrin.h>

#define SL_WIDE __attribute__((target("avx2")))

/* The first eight of E4M3 codes as F32: the value of a code is that of an F32 of the same fields, times 2^120; but for a NaN. */
SL_WIDE static inline __m256 sl_wide_e4m3(__m128i codes)
{
	const __m256i mask = _mm256_set1_epi32(0x7F), nan = _mm256_set1_epi32(0x7FC00000);
	__m256i code = _mm256_cvtepu8_epi32(codes), size = _mm256_and_si256(code, mask), bits;

	bits = _mm256_castps_si256(
		_mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(size, 20)), _mm256_set1_ps(0x1p120f)));
	bits = _mm256_blendv_epi8(bits, nan, _mm256_cmpeq_epi32(size, mask));
	return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_slli_epi32(_mm256_xor_si256(code, size), 24)));
}
#endif

static inline bool sl_has_wide(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("avx2");
#else
	return false;
#endif
}

#endif
