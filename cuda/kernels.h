/*
 * kernels.h - starting the kernel of a transform. kernels.cu is compiled twice: by nvcc, for GPUs, and as C, where a launch is a
 * loop over the threads of the same grid.
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "slicer/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In at most `max_blocks` blocks of threads. The first puts it into a cudaStream_t and gives a cudaError_t. */
int cuda_launch(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		unsigned max_blocks);
int cuda_host_launch(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     unsigned max_blocks);

#ifdef __cplusplus
}
#endif

#endif
