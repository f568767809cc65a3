/*
 * runtime.h - what backend.c asks of a device.
 *
 * Functions give 0, -ENOMEM when memory of that kind is used up, or -ENODEV when the device is lost. What is put into a stream
 * happens in order, at any time until wait() returns; memory must stay until then. Thread-safe, but for one stream.
 */
#ifndef CUDA_RUNTIME_H
#define CUDA_RUNTIME_H

#include "slicer/backend.h"
#include "slicer/error.h"
#include <stddef.h>

enum cuda_memory { CUDA_PINNED, CUDA_DEVICE };
enum cuda_way { CUDA_TO_DEVICE, CUDA_TO_HOST, CUDA_ON_DEVICE };

struct cuda_runtime {
	/* Is there such a device (-1: the first)? Which, and how many blocks of threads it can run at once. */
	int (*open)(int *device, unsigned *n_blocks, struct sl_error *err);
	/* To be called first by every thread, before anything else. */
	int (*enter)(int device, struct sl_error *err);
	int (*alloc)(enum cuda_memory kind, void **memory, size_t len, struct sl_error *err);
	void (*free)(enum cuda_memory kind, void *memory);
	int (*open_stream)(void **stream, struct sl_error *err);
	void (*close_stream)(void *stream);
	int (*copy)(void *stream, enum cuda_way way, void *to, const void *from, size_t len, struct sl_error *err);
	/* All of the block's pointers are the device's. */
	int (*launch)(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		      unsigned n_blocks, struct sl_error *err);
	int (*wait)(void *stream, struct sl_error *err);
};

extern const struct cuda_runtime cuda_runtime; /* only where HAVE_CUDA is 1 */
extern const struct cuda_runtime cuda_host_runtime;

/* backend.c: the functions of a backend on some runtime. */
int cuda_open(const struct cuda_runtime *runtime, void **state, int device, struct sl_error *err) SL_MUST_CHECK;
int cuda_run(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
	     struct sl_error *err) SL_MUST_CHECK;
unsigned char *cuda_lease(void *state, uint64_t out_len);
void cuda_give_back(void *state, unsigned char *memory);
void cuda_abandon(void *state);
void cuda_close(void *state);

#define CUDA_BACKEND(id, open_function)                             \
	const struct sl_backend id = { .open = open_function,       \
				       .name = "cuda",              \
				       .run = cuda_run,             \
				       .close = cuda_close,         \
				       .lease = cuda_lease,         \
				       .give_back = cuda_give_back, \
				       .abandon = cuda_abandon,     \
				       .in_max = CUDA_IN_MAX,       \
				       .out_max = CUDA_OUT_MAX }

#endif
