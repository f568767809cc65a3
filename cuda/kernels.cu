/*
 * kernels.cu - a kernel for each transform: every thread makes units, a whole grid apart, so that neighbours write neighbouring
 * bytes; or the threads of a warp share them, where a unit is as long as a row.
 *
 * What a unit does is said once, in slicer/transforms/. To add a transform: nothing is to be done here.
 */
#include "cuda/kernels.h"
#include "slicer/transform.h"
#include "slicer/transforms/all.h"

#ifdef __CUDACC__
#define cuda_launch_here		 cuda_launch
#define START(kernel, stream, grid, ...) kernel<<<grid.n, grid.threads, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define LAST_ERROR()			 (int)cudaGetLastError()
#else
#include "cuda/kernels_host.h"
#define cuda_launch_here cuda_host_launch
#endif

enum { THREADS = 256, THREADS_LEAST = 32 };

struct grid {
	unsigned n, threads; /* blocks of threads, threads of each */
};

/* Threads may be few with much to do (a row, a tile): then blocks are small, so that every multiprocessor gets one. Of the largest
 * eight run on each, `max_blocks` on the device. */
static struct grid grid_of(uint64_t n, unsigned max_blocks)
{
	unsigned threads = THREADS;

	while (threads > THREADS_LEAST && n < (uint64_t)threads * (max_blocks / 8))
		threads /= 2;
	uint64_t wanted = (n + threads - 1) / threads;
	struct grid grid = { wanted < max_blocks ? (unsigned)wanted : max_blocks, threads };
	return grid;
}

/* ---- a thread makes a unit ---- */

#define ALONE(ID, name)                                                                                               \
	__global__ void __launch_bounds__(THREADS)                                                                    \
		kernel_##name(const __grid_constant__ struct sl_args args,                                            \
			      const __grid_constant__ struct sl_block block, const uint64_t n)                        \
	{                                                                                                             \
		const uint64_t step = (uint64_t)gridDim.x * blockDim.x;                                               \
		for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)                  \
			sl_##name##_unit(&args, &block, i);                                                           \
	}                                                                                                             \
                                                                                                                      \
	static void launch_##name(void *stream, const struct sl_args *args, const struct sl_block *block, uint64_t n, \
				  unsigned max_blocks)                                                                \
	{                                                                                                             \
		(void)stream;                                                                                         \
		START(kernel_##name, stream, grid_of(n, max_blocks), *args, *block, n);                               \
	}

SL_TRANSFORMS_ALONE(ALONE)

/* ---- threads of a warp share a unit: each looks at some of it, the largest of what they have seen is known to all ---- */

#ifdef __CUDACC__
static __device__ uint32_t largest_of(uint32_t seen, unsigned lanes)
{
	for (unsigned i = lanes / 2; i > 0; i /= 2) {
		uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, seen, (int)i);
		seen = other > seen ? other : seen;
	}
	return seen;
}

/* The threads of this warp, and the units from `first` on that they share; on the host: kernels_host.h. */
#define SHARE(name, first, n, lanes)                                                         \
	do {                                                                                 \
		const unsigned me = threadIdx.x % SL_LANES_MAX, lane = me % lanes;           \
		const uint64_t i = first + me / lanes;                                       \
		uint32_t seen = i < n ? sl_##name##_seen(&args, &block, i, lane, lanes) : 0; \
		seen = largest_of(seen, lanes);                                              \
		if (i < n)                                                                   \
			sl_##name##_make(&args, &block, i, seen, lane, lanes);               \
	} while (0)
#endif

#define SHARED(ID, name)                                                                                              \
	__global__ void __launch_bounds__(THREADS)                                                                    \
		kernel_##name(const __grid_constant__ struct sl_args args,                                            \
			      const __grid_constant__ struct sl_block block, const uint64_t n, const unsigned lanes)  \
	{                                                                                                             \
		const unsigned in_warp = SL_LANES_MAX / lanes;                                                        \
		const uint64_t warp = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / SL_LANES_MAX;               \
		const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / SL_LANES_MAX;                               \
		for (uint64_t first = warp * in_warp; first < n; first += warps * in_warp)                            \
			SHARE(name, first, n, lanes);                                                                 \
	}                                                                                                             \
                                                                                                                      \
	static void launch_##name(void *stream, const struct sl_args *args, const struct sl_block *block, uint64_t n, \
				  unsigned max_blocks)                                                                \
	{                                                                                                             \
		const unsigned lanes = sl_##name##_lanes(args);                                                       \
		(void)stream;                                                                                         \
		START(kernel_##name, stream, grid_of(n *lanes, max_blocks), *args, *block, n, lanes);                 \
	}

SL_TRANSFORMS_SHARED(SHARED)

/* ---- starting them ---- */

struct kernel {
	uint64_t (*units)(const struct sl_args *args, const struct sl_block *block);
	void (*launch)(void *stream, const struct sl_args *args, const struct sl_block *block, uint64_t n,
		       unsigned max_blocks);
};

#define ROW(ID, name) { sl_##name##_units, launch_##name },

static const struct kernel kernels[SL_N_TRANSFORMS] = { SL_TRANSFORMS(ROW) };

int cuda_launch_here(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     unsigned max_blocks)
{
	const uint64_t n = kernels[id].units(args, block);

	if (n == 0)
		return 0;
	kernels[id].launch(stream, args, block, n, max_blocks);
	return LAST_ERROR();
}
