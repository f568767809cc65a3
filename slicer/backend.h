/*
 * backend.h - who computes transforms: the processor, or a GPU.
 *
 * A transform (transform.h) makes a batch of matrices of bytes from inputs that are batches of matrices of bytes. Any block of
 * its output that consists of whole granules can be computed alone, from a rectangle of each input:
 *
 *      output, one member of the batch          input 0                  input 1
 *      +--+--+--+--+                            +-----------+            +----+
 *      |  |##|##|  |  granule rows x bytes      |   ######  |            |  # |
 *      +--+--+--+--+                            |   ######  |            +----+
 *      |  |  |  |  |                            +-----------+
 *
 * A backend gets blocks in host memory and gives blocks in host memory. All of them give the same bytes: the arithmetic is
 * defined once, in slicer/transforms/NAME.h, for host and device. So this header, and those that these include, are C and C++.
 */
#ifndef SLICER_BACKEND_H
#define SLICER_BACKEND_H

#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SL_DEVICE static __host__ __device__ __forceinline__
#else
#define SL_DEVICE static inline
#endif

/* Before loops that index registers. */
#ifdef __CUDACC__
#define SL_UNROLL _Pragma("unroll")
#else
#define SL_UNROLL
#endif

#define SL_LANES_MAX 32 /* threads of a GPU that can share a unit: a warp */

#define SL_INPUTS_MAX 4
#define SL_PARAMS_MAX 68

struct sl_rect {
	uint64_t row, n_rows; /* of one member's matrix */
	uint64_t col, n_cols; /* bytes of a row */
};

/* What a transform is told besides its inputs; a plain value that can be given to a GPU. */
struct sl_args {
	uint64_t batch;		  /* members */
	uint64_t rows, row_bytes; /* of a member of the output */
	struct {
		uint64_t rows, row_bytes; /* of a member of the input that are there; beyond them lie zeros */
	} in[SL_INPUTS_MAX];
	bool strict;		   /* refuse inputs of which no engine's result is certain (transform.h, .check) */
	uint64_t p[SL_PARAMS_MAX]; /* what they mean is the transform's business: slicer/transforms/NAME.h */
};

/* A block to be made: what it needs of the inputs is here, each rectangle's rows one after another without gaps. */
struct sl_block {
	uint64_t member;
	struct sl_rect out, in[SL_INPUTS_MAX];
	const unsigned char *bytes[SL_INPUTS_MAX];
	const unsigned char *facts; /* what the transform has learned of all of its inputs; NULL: it needs not to */
	uint64_t facts_serial;	    /* another for any other facts, so that they can be kept; 0: unknown */
	unsigned char *dst;	    /* of out's first byte */
	uint64_t stride;	    /* from one of its rows to the next at dst */
};

/* To add one: a value of this type. Reentrant: what follows open() is called from several threads at once. */
struct sl_backend {
	const char *name;
	/* 0, or -ENODEV with the reason why it cannot be had here. `device` is its number, -1: whichever. */
	int (*open)(void **state, int device, struct sl_error *err);
	/* Make one block. -ENODEV: the device is lost or full; -EBUSY: it has no room for this block now. Then another
	 * backend can make it, and what has been written at dst means nothing. */
	int (*run)(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		   struct sl_error *err);
	void (*close)(void *state);
	/* Memory that suits it better than the caller's for the inputs of a block with `out_len` bytes of output: in_max
	 * bytes of it. NULL: there is none now, or it is not worth it. Never waits: who asks may hold some already. The
	 * pointer itself may be NULL. */
	unsigned char *(*lease)(void *state, uint64_t out_len);
	void (*give_back)(void *state, unsigned char *memory);
	/* The calling thread was cut off in the middle of run(), or of filling what it had leased (SIGBUS at dst, and a
	 * jump): what it has is free again. NULL: nothing to be done. */
	void (*abandon)(void *state);
	uint64_t in_max, out_max; /* bytes of leased memory; of the largest output (0: any) */
};

extern const struct sl_backend sl_backend_cpu;

#endif
