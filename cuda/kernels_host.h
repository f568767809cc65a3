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

#define START(kernel, stream, grid, ...)                                \
	do {                                                            \
		gridDim.x = (grid);                                     \
		blockDim.x = THREADS;                                   \
		for (blockIdx.x = gridDim.x; blockIdx.x-- > 0;)         \
			for (threadIdx.x = THREADS; threadIdx.x-- > 0;) \
				kernel(__VA_ARGS__);                    \
	} while (0)

#endif
