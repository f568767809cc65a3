/*
 * bench.c - REPEATS launches put into a stream at once, so that starting them costs nothing that counts; then as many copies.
 */
#include "tests/kernel/bench.h"

#include "slicer/transform.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 20 };

#define IN_MAX (UINT64_C(1) << 30)

struct bench {
	const struct cuda_runtime *runtime;
	unsigned n_blocks;
	void *stream, *in, *out, *facts;
	unsigned char *lent;
};

static const struct cuda_runtime *used;

void bench_use(const struct cuda_runtime *runtime)
{
	used = runtime;
}

static int open_bench(void **state, int device, struct sl_error *err)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	int ret;

	*state = bench;
	if (!bench || !(bench->lent = malloc(IN_MAX)))
		return sl_fail(err, ENOMEM, "out of memory");
	bench->runtime = used;
	ret = used->open(&device, &bench->n_blocks, err);
	if (!ret)
		ret = used->enter(device, err);
	return ret ? ret : used->open_stream(&bench->stream, err);
}

static void close_bench(void *state)
{
	struct bench *bench = state;

	if (bench->stream)
		used->close_stream(bench->stream);
	free(bench->lent);
	free(bench);
}

static unsigned char *lease(void *state, uint64_t out_len)
{
	(void)out_len;
	return ((struct bench *)state)->lent;
}

static void give_back(void *state, unsigned char *memory)
{
	(void)state, (void)memory;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes of the inputs; they lie one after another in what was lent. */
static uint64_t in_len(const struct bench *bench, const struct sl_block *block)
{
	uint64_t len = 0;

	for (unsigned i = 0; i < SL_INPUTS_MAX; i++) {
		if (block->bytes[i])
			len = (uint64_t)(block->bytes[i] - bench->lent) + block->in[i].n_rows * block->in[i].n_cols;
	}
	return len;
}

static int move_there(struct bench *bench, unsigned id, const struct sl_args *args, struct sl_block *block,
		      uint64_t len, uint64_t out_len, struct sl_error *err)
{
	const struct cuda_runtime *runtime = bench->runtime;
	uint64_t facts = block->facts && sl_transforms[id]->facts_len ? sl_transforms[id]->facts_len(args) : 0;
	int ret = runtime->alloc(CUDA_DEVICE, &bench->in, len + out_len + 1, err); /* copies are from here, too */

	if (!ret)
		ret = runtime->alloc(CUDA_DEVICE, &bench->out, len + out_len, err);
	if (!ret && len)
		ret = runtime->copy(bench->stream, CUDA_TO_DEVICE, bench->in, bench->lent, len, err);
	if (!ret && facts)
		ret = runtime->alloc(CUDA_DEVICE, &bench->facts, facts, err);
	if (!ret && facts)
		ret = runtime->copy(bench->stream, CUDA_TO_DEVICE, bench->facts, block->facts, facts, err);
	for (unsigned i = 0; i < SL_INPUTS_MAX; i++) {
		if (block->bytes[i])
			block->bytes[i] = (unsigned char *)bench->in + (block->bytes[i] - bench->lent);
	}
	block->facts = facts ? bench->facts : NULL;
	block->dst = bench->out;
	block->stride = block->out.n_cols;
	return ret;
}

/* Seconds of one launch, or of one copy that moves `copied` bytes. */
static int measure(struct bench *bench, unsigned id, const struct sl_args *args, const struct sl_block *block,
		   uint64_t copied, double *seconds, struct sl_error *err)
{
	const struct cuda_runtime *runtime = bench->runtime;
	int ret = 0;

	for (unsigned round = 0; round < 2 && !ret; round++) { /* the first is to warm up */
		double start = now();
		for (unsigned i = 0; i < REPEATS && !ret; i++)
			ret = copied ? runtime->copy(bench->stream, CUDA_ON_DEVICE, bench->out, bench->in, copied, err)
				     : runtime->launch(bench->stream, id, args, block, bench->n_blocks, err);
		if (!ret)
			ret = runtime->wait(bench->stream, err);
		*seconds = (now() - start) / REPEATS;
	}
	return ret;
}

static int move_back(struct bench *bench, const struct sl_block *block, struct sl_error *err)
{
	int ret = 0;

	for (uint64_t r = 0; r < block->out.n_rows && !ret; r++) {
		ret = bench->runtime->copy(bench->stream, CUDA_TO_HOST, block->dst + r * block->stride,
					   (unsigned char *)bench->out + r * block->out.n_cols, block->out.n_cols, err);
		if (!ret)
			ret = bench->runtime->wait(bench->stream, err);
	}
	return ret;
}

static int run(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	struct bench *bench = state;
	struct sl_block there = *block;
	uint64_t len = in_len(bench, block), out_len = block->out.n_rows * block->out.n_cols, moved = len + out_len;
	double copy, kernel;
	int ret = move_there(bench, id, args, &there, len, out_len, err);

	if (!ret)
		ret = measure(bench, id, args, &there, (moved + 1) / 2, &copy, err);
	if (!ret)
		ret = measure(bench, id, args, &there, 0, &kernel, err);
	if (!ret)
		fprintf(stderr, "%s\t%llu\t%.1f GB/s, %.2f of a copy (%.1f GB/s)\n", sl_transforms[id]->name,
			(unsigned long long)moved, (double)moved / kernel / 1e9, copy / kernel,
			(double)moved / copy / 1e9);
	if (!ret)
		ret = move_back(bench, block, err);
	bench->runtime->free(CUDA_DEVICE, bench->in);
	bench->runtime->free(CUDA_DEVICE, bench->out);
	bench->runtime->free(CUDA_DEVICE, bench->facts);
	bench->in = bench->out = bench->facts = NULL;
	return ret;
}

const struct sl_backend bench_backend = {
	.name = "bench",
	.open = open_bench,
	.run = run,
	.close = close_bench,
	.lease = lease,
	.give_back = give_back,
	.in_max = IN_MAX,
};
