/*
 * bench.h - a backend that measures: each block that it is asked for is made many times, and a line of stderr says how long one
 * launch took, and how long a copy of as many bytes, on the device both:
 *
 *      NAME <tab> BYTES <tab> 812.0 GB/s, 0.93 of a copy (870.1 GB/s)
 *
 * Blocks are whole tensors. For kernel-case, which is one thread.
 */
#ifndef TESTS_KERNEL_BENCH_H
#define TESTS_KERNEL_BENCH_H

#include "cuda/runtime.h"

/* The runtime to measure; before open(). */
void bench_use(const struct cuda_runtime *runtime);

extern const struct sl_backend bench_backend;

#endif
