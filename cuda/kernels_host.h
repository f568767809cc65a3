/*
 * kernels_host.h - CUDA's words for a C compiler: a launch runs the threads of the grid one after another, the last one first,
 * since none may depend on another.
 */
#ifndef CUDA_KERNELS_HOST_H
#define CUDA_KERNELS_HOST_H

#define __global__ static
#define __launch_bounds__(n)
#define __grid_constant__
#define LAST_ERROR() 0

struct cuda_dim {
	unsigned x;
};

static _Thread_local struct cuda_dim gridDim, blockDim, blockIdx, threadIdx;

#define START(kernel, stream, grid, ...)                                   \
	do {                                                               \
		gridDim.x = (grid).n;                                      \
		blockDim.x = (grid).threads;                               \
		for (blockIdx.x = gridDim.x; blockIdx.x-- > 0;)            \
			for (threadIdx.x = blockDim.x; threadIdx.x-- > 0;) \
				kernel(__VA_ARGS__);                       \
	} while (0)

/* The first thread of a warp does what all of its threads do. */
#define SHARE(name, first, n, lanes)                                                                             \
	do {                                                                                                     \
		for (uint64_t i = first; threadIdx.x % SL_LANES_MAX == 0 && i < n && i < first + in_warp; i++) { \
			uint32_t largest = 0;                                                                    \
			for (unsigned lane = 0; lane < lanes; lane++) {                                          \
				uint32_t seen = sl_##name##_seen(&args, &block, i, lane, lanes);                 \
				largest = seen > largest ? seen : largest;                                       \
			}                                                                                        \
			for (unsigned lane = lanes; lane-- > 0;)                                                 \
				sl_##name##_make(&args, &block, i, largest, lane, lanes);                        \
		}                                                                                                \
	} while (0)

#endif
