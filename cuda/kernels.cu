/*
 * kernels.cu - a kernel for each transform: every thread makes units, a whole grid apart, so that neighbours write neighbouring
 * bytes.
 *
 * What a unit does is said once, in slicer/transforms/. To add a transform: nothing is to be done here.
 */
#include "cuda/kernels.h"
#include "slicer/transform.h"
#include "slicer/transforms/all.h"

#ifdef __CUDACC__
#define cuda_launch_here		 cuda_launch
#define START(kernel, stream, grid, ...) kernel<<<grid, THREADS, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define LAST_ERROR()			 (int)cudaGetLastError()
#else
#include "cuda/kernels_host.h"
#define cuda_launch_here cuda_host_launch
#endif

enum { THREADS = 256 };

#define KERNEL(ID, name)                                                                                              \
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
				  unsigned grid)                                                                      \
	{                                                                                                             \
		(void)stream;                                                                                         \
		START(kernel_##name, stream, grid, *args, *block, n);                                                 \
	}

SL_TRANSFORMS(KERNEL)

struct kernel {
	uint64_t (*units)(const struct sl_args *args, const struct sl_block *block);
	void (*launch)(void *stream, const struct sl_args *args, const struct sl_block *block, uint64_t n,
		       unsigned grid);
};

#define ROW(ID, name) { sl_##name##_units, launch_##name },

static const struct kernel kernels[SL_N_TRANSFORMS] = { SL_TRANSFORMS(ROW) };

int cuda_launch_here(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     unsigned max_blocks)
{
	const uint64_t n = kernels[id].units(args, block), wanted = (n + THREADS - 1) / THREADS;

	if (n == 0)
		return 0;
	kernels[id].launch(stream, args, block, n, wanted < max_blocks ? (unsigned)wanted : max_blocks);
	return LAST_ERROR();
}
