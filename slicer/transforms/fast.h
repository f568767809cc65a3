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
