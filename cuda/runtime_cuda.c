/*
 * runtime_cuda.c - NVIDIA's runtime, linked statically: it looks for the driver (libcuda) when it is first asked, so one binary
 * runs with and without one.
 */
#include "cuda/backend.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <errno.h>

enum { OLDEST_MAJOR = 8, THREADS_PER_BLOCK = 256 };

/* 0, or what of it the backend tells apart. */
static int check(cudaError_t result, const char *what, struct sl_error *err)
{
	if (result == cudaSuccess)
		return 0;
	return sl_fail(err, result == cudaErrorMemoryAllocation ? ENOMEM : ENODEV, "%s: %s (%s)", what,
		       cudaGetErrorString(result), cudaGetErrorName(result));
}

static int attribute(int *value, enum cudaDeviceAttr which, int device, struct sl_error *err)
{
	return check(cudaDeviceGetAttribute(value, which, device), "cudaDeviceGetAttribute", err);
}

/* The runtime's own error for both is that the driver is too old. */
static int check_driver(struct sl_error *err)
{
	int has = 0, ret = check(cudaDriverGetVersion(&has), "cudaDriverGetVersion", err);

	if (!ret && has == 0)
		return sl_fail(err, ENODEV, "there is no NVIDIA driver");
	if (!ret && has / 1000 < CUDART_VERSION / 1000)
		return sl_fail(err, ENODEV, "the NVIDIA driver does CUDA %d.%d, and this was built with %d.%d",
			       has / 1000, has % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	return ret;
}

static int cuda_runtime_open(int *device, unsigned *n_blocks, struct sl_error *err)
{
	int n = 0, major = 0, minor = 0, processors = 0, threads = 0;
	int ret = check_driver(err);

	if (!ret)
		ret = check(cudaGetDeviceCount(&n), "no CUDA device", err);
	if (!ret && *device >= n)
		ret = sl_fail(err, ENODEV, "there is no CUDA device %d: there are %d", *device, n);
	*device = *device < 0 ? 0 : *device;
	if (!ret)
		ret = attribute(&major, cudaDevAttrComputeCapabilityMajor, *device, err);
	if (!ret)
		ret = attribute(&minor, cudaDevAttrComputeCapabilityMinor, *device, err);
	if (!ret && major < OLDEST_MAJOR)
		ret = sl_fail(err, ENODEV, "CUDA device %d has compute capability %d.%d: wanted is %d.0 or later",
			      *device, major, minor, OLDEST_MAJOR);
	if (!ret)
		ret = attribute(&processors, cudaDevAttrMultiProcessorCount, *device, err);
	if (!ret)
		ret = attribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, *device, err);
	*n_blocks = (unsigned)(processors * threads / THREADS_PER_BLOCK);
	return ret;
}

static int cuda_runtime_enter(int device, struct sl_error *err)
{
	return check(cudaSetDevice(device), "cudaSetDevice", err);
}

static int cuda_runtime_alloc(enum cuda_memory kind, void **memory, size_t len, struct sl_error *err)
{
	if (kind == CUDA_PINNED)
		return check(cudaHostAlloc(memory, len, cudaHostAllocPortable), "cudaHostAlloc", err);
	return check(cudaMalloc(memory, len), "cudaMalloc", err);
}

static void cuda_runtime_free(enum cuda_memory kind, void *memory)
{
	if (memory && kind == CUDA_PINNED)
		cudaFreeHost(memory);
	else if (memory)
		cudaFree(memory);
}

static int cuda_runtime_open_stream(void **stream, struct sl_error *err)
{
	return check(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking), "cudaStreamCreate", err);
}

static void cuda_runtime_close_stream(void *stream)
{
	cudaStreamDestroy(stream);
}

static int cuda_runtime_copy(void *stream, enum cuda_way way, void *to, const void *from, size_t len,
			     struct sl_error *err)
{
	static const struct {
		enum cudaMemcpyKind kind;
		const char *what;
	} ways[] = {
		[CUDA_TO_DEVICE] = { cudaMemcpyHostToDevice, "a copy to the device" },
		[CUDA_TO_HOST] = { cudaMemcpyDeviceToHost, "a copy from the device" },
		[CUDA_ON_DEVICE] = { cudaMemcpyDeviceToDevice, "a copy on the device" },
	};

	return check(cudaMemcpyAsync(to, from, len, ways[way].kind, stream), ways[way].what, err);
}

static int cuda_runtime_launch(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
			       unsigned n_blocks, struct sl_error *err)
{
	return check((cudaError_t)cuda_launch(stream, id, args, block, n_blocks), "a kernel", err);
}

static int cuda_runtime_wait(void *stream, struct sl_error *err)
{
	return check(cudaStreamSynchronize(stream), "waiting for the device", err);
}

const struct cuda_runtime cuda_runtime = {
	.open = cuda_runtime_open,
	.enter = cuda_runtime_enter,
	.alloc = cuda_runtime_alloc,
	.free = cuda_runtime_free,
	.open_stream = cuda_runtime_open_stream,
	.close_stream = cuda_runtime_close_stream,
	.copy = cuda_runtime_copy,
	.launch = cuda_runtime_launch,
	.wait = cuda_runtime_wait,
};

static int open_cuda(void **state, int device, struct sl_error *err)
{
	return cuda_open(&cuda_runtime, state, device, err);
}

CUDA_BACKEND(sl_backend_cuda, open_cuda);
