/*
 * backend.h - transforms on a GPU: an implementation of slicer/backend.h.
 *
 *      caller   inputs -> pinned memory                                  rows -> where they are wanted
 *                              |                                              ^
 *      stream                  +-> copy in -> kernel, a unit a thread -> copy out
 *
 * A worker is a stream with its memory on both sides. There are a few, each for one caller at a time, so nobody waits for
 * another: who finds none is told -EBUSY. Several callers keep the bus busy in both directions; larger blocks than a processor
 * wants make the start of each worth it (lease).
 *
 * What the device is asked goes through a table (struct cuda_runtime): NVIDIA's runtime, or the processor itself, which runs the
 * kernels thread by thread and fails when a test wants it.
 */
#ifndef CUDA_BACKEND_H
#define CUDA_BACKEND_H

#include "slicer/backend.h"
#include <stddef.h>

/* Needs a driver and a device of compute capability 8.0 or later. Only where HAVE_CUDA is 1. */
extern const struct sl_backend sl_backend_cuda;

/* The same on the processor, to test all but the device. */
extern const struct sl_backend sl_backend_cuda_host;

/* Counted by the latter, over all threads. */
struct cuda_counts {
	unsigned allocations, operations; /* memory and streams; copies, launches and waits */
	unsigned launches;		  /* that have been carried out */
};

/* From which on allocations fail as on a full device, and operations as on one that is lost; 0: never. Counting begins anew. */
void cuda_host_fail(struct cuda_counts from);
struct cuda_counts cuda_host_counts(void);

enum {
	CUDA_WORKERS = 16,
	CUDA_IN_MAX = 4 << 20, /* bytes of a block's inputs, and of its output */
	CUDA_OUT_MAX = 4 << 20,
	CUDA_FACTS_LEN = 1 << 20, /* for the facts that a worker keeps on the device; more for larger ones */
	CUDA_FACTS_KEPT = 64,
};

#endif
