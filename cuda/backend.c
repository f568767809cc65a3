/*
 * backend.c - workers, each a stream with its memory, and what one block needs of them.
 *
 * Without a lock: a worker's state is an atomic word, and whoever has set it to TAKEN owns the rest of it. Workers are made when
 * they are first needed, the first one at open(). One that the device has no memory for is given up, not the device: only when
 * there is no other, or when anything else fails, is it lost for good.
 *
 * Facts (tables that a transform has learned) are kept on the device, by their serial number: each worker has a buffer of them,
 * filled from its beginning on; when it is full, all are dropped and it is filled anew.
 */
#include "cuda/backend.h"

#include "cuda/runtime.h"
#include "slicer/transform.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum worker_state { NONE, MAKING, FREE, TAKEN, GIVEN_UP };
enum { ALIGN = 64 };

struct kept {
	uint64_t serial, off;
};

struct worker {
	unsigned state;	   /* enum worker_state, atomic */
	const void *owner; /* the thread that has it TAKEN, atomic; what follows is the owner's */
	void *stream;
	unsigned char *in, *out;	       /* pinned */
	unsigned char *device_in, *device_out; /* on the device, as all below */
	unsigned char *facts;
	uint64_t facts_len, facts_used;
	struct kept kept[CUDA_FACTS_KEPT];
	unsigned n_kept;
};

struct cuda {
	const struct cuda_runtime *runtime;
	int device;
	unsigned n_blocks;
	bool lost;	    /* atomic */
	unsigned n_workers; /* that can be used, atomic */
	struct worker workers[CUDA_WORKERS];
};

/* ---- workers ---- */

static void empty(struct cuda *cuda, struct worker *worker)
{
	const struct cuda_runtime *runtime = cuda->runtime;

	if (worker->stream)
		runtime->close_stream(worker->stream);
	runtime->free(CUDA_PINNED, worker->in);
	runtime->free(CUDA_PINNED, worker->out);
	runtime->free(CUDA_DEVICE, worker->device_in);
	runtime->free(CUDA_DEVICE, worker->device_out);
	runtime->free(CUDA_DEVICE, worker->facts);
	memset(&worker->stream, 0, sizeof(*worker) - offsetof(struct worker, stream));
}

static int alloc(struct cuda *cuda, enum cuda_memory kind, unsigned char **memory, size_t len, struct sl_error *err)
{
	void *made = NULL;
	int ret = cuda->runtime->alloc(kind, &made, len, err);

	*memory = ret ? NULL : made;
	return ret;
}

static int fill(struct cuda *cuda, struct worker *worker, struct sl_error *err)
{
	int ret = cuda->runtime->open_stream(&worker->stream, err);

	if (!ret)
		ret = alloc(cuda, CUDA_PINNED, &worker->in, CUDA_IN_MAX, err);
	if (!ret)
		ret = alloc(cuda, CUDA_PINNED, &worker->out, CUDA_OUT_MAX, err);
	if (!ret)
		ret = alloc(cuda, CUDA_DEVICE, &worker->device_in, CUDA_IN_MAX, err);
	if (!ret)
		ret = alloc(cuda, CUDA_DEVICE, &worker->device_out, CUDA_OUT_MAX, err);
	if (!ret)
		ret = alloc(cuda, CUDA_DEVICE, &worker->facts, CUDA_FACTS_LEN, err);
	worker->facts_len = ret ? 0 : CUDA_FACTS_LEN;
	return ret;
}

static unsigned state_of(const struct worker *worker)
{
	return __atomic_load_n(&worker->state, __ATOMIC_ACQUIRE);
}

static void set_state(struct worker *worker, enum worker_state state)
{
	__atomic_store_n(&worker->state, state, __ATOMIC_RELEASE);
}

static bool change_state(struct worker *worker, enum worker_state from, enum worker_state to)
{
	unsigned expected = from;

	return __atomic_compare_exchange_n(&worker->state, &expected, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static bool is_lost(const struct cuda *cuda)
{
	return __atomic_load_n(&cuda->lost, __ATOMIC_ACQUIRE);
}

/* Nothing works any more, but for giving memory back. Gives -ENODEV. */
static int lose(struct cuda *cuda, struct sl_error *err)
{
	__atomic_store_n(&cuda->lost, true, __ATOMIC_RELEASE);
	sl_fail(err, ENODEV, "device %d is lost", cuda->device);
	if (err)
		err->errnum = ENODEV;
	return -ENODEV;
}

/* A new one, TAKEN by us from then on. */
static int make_worker(struct cuda *cuda, struct worker *worker, struct sl_error *err)
{
	int ret = cuda->runtime->enter(cuda->device, err);

	if (!ret)
		ret = fill(cuda, worker, err);
	if (!ret) {
		__atomic_add_fetch(&cuda->n_workers, 1, __ATOMIC_RELAXED);
		set_state(worker, TAKEN);
		return 0;
	}
	empty(cuda, worker);
	set_state(worker, GIVEN_UP);
	return ret;
}

/* Another address in each thread. */
static const void *this_thread(void)
{
	static _Thread_local char here;

	return &here;
}

static bool is_ours(const struct worker *worker)
{
	return state_of(worker) == TAKEN && __atomic_load_n(&worker->owner, __ATOMIC_RELAXED) == this_thread();
}

static void release(struct worker *worker)
{
	__atomic_store_n(&worker->owner, NULL, __ATOMIC_RELAXED);
	set_state(worker, FREE);
}

/* One that nobody has: an existing one, else a new one. NULL with 0: all are taken. */
static int take(struct cuda *cuda, struct worker **taken, struct sl_error *err)
{
	struct sl_error own = SL_ERROR_INIT;
	int ret = 0;

	*taken = NULL;
	for (unsigned i = 0; i < CUDA_WORKERS && !*taken; i++) {
		if (change_state(&cuda->workers[i], FREE, TAKEN))
			*taken = &cuda->workers[i];
	}
	for (unsigned i = 0; i < CUDA_WORKERS && !*taken && !ret; i++) {
		if (!change_state(&cuda->workers[i], NONE, MAKING))
			continue;
		ret = make_worker(cuda, &cuda->workers[i], &own);
		*taken = ret ? NULL : &cuda->workers[i];
	}
	if (*taken)
		__atomic_store_n(&(*taken)->owner, this_thread(), __ATOMIC_RELAXED);
	if (ret == -ENOMEM && __atomic_load_n(&cuda->n_workers, __ATOMIC_RELAXED) > 0)
		return 0;
	if (ret)
		sl_fail(err, own.errnum, "%s", own.text);
	return ret;
}

/* The one whose memory holds the block's inputs, which its caller has leased; NULL: they are elsewhere. */
static struct worker *holder(struct cuda *cuda, const struct sl_block *block)
{
	for (unsigned w = 0; w < CUDA_WORKERS; w++) {
		struct worker *worker = &cuda->workers[w];
		for (unsigned i = 0; i < SL_INPUTS_MAX && is_ours(worker); i++) {
			if (block->bytes[i] >= worker->in && block->bytes[i] < worker->in + CUDA_IN_MAX)
				return worker;
		}
	}
	return NULL;
}

unsigned char *cuda_lease(void *state, uint64_t out_len)
{
	struct cuda *cuda = state;
	struct worker *worker = NULL;

	(void)out_len;
	if (is_lost(cuda) || take(cuda, &worker, NULL) || !worker)
		return NULL;
	return worker->in;
}

void cuda_give_back(void *state, unsigned char *memory)
{
	struct cuda *cuda = state;

	for (unsigned i = 0; i < CUDA_WORKERS; i++) {
		if (is_ours(&cuda->workers[i]) && cuda->workers[i].in == memory)
			release(&cuda->workers[i]);
	}
}

void cuda_abandon(void *state)
{
	struct cuda *cuda = state;

	for (unsigned i = 0; i < CUDA_WORKERS; i++) {
		if (is_ours(&cuda->workers[i]))
			release(&cuda->workers[i]);
	}
}

/* ---- facts ---- */

static const struct kept *find_kept(const struct worker *worker, uint64_t serial)
{
	for (unsigned i = 0; i < worker->n_kept && serial; i++) {
		if (worker->kept[i].serial == serial)
			return &worker->kept[i];
	}
	return NULL;
}

/* Room for `len` bytes of facts, by dropping all others, and in a larger buffer if need be. */
static int make_room(struct cuda *cuda, struct worker *worker, uint64_t len, struct sl_error *err)
{
	if (worker->n_kept < CUDA_FACTS_KEPT && len <= worker->facts_len - worker->facts_used)
		return 0;
	worker->n_kept = 0;
	worker->facts_used = 0;
	if (len <= worker->facts_len)
		return 0;
	cuda->runtime->free(CUDA_DEVICE, worker->facts);
	int ret = alloc(cuda, CUDA_DEVICE, &worker->facts, len, err);
	worker->facts_len = ret ? 0 : len;
	return ret;
}

static int send_facts(struct cuda *cuda, struct worker *worker, uint64_t len, struct sl_block *block,
		      struct sl_error *err)
{
	const struct kept *kept = find_kept(worker, block->facts_serial);
	int ret;

	if (kept) {
		block->facts = worker->facts + kept->off;
		return 0;
	}
	ret = make_room(cuda, worker, len, err);
	if (ret)
		return ret;
	unsigned char *to = worker->facts + worker->facts_used;
	ret = cuda->runtime->copy(worker->stream, CUDA_TO_DEVICE, to, block->facts, len, err);
	if (ret)
		return ret;
	worker->kept[worker->n_kept++] = (struct kept){ block->facts_serial, worker->facts_used };
	worker->facts_used += (len + ALIGN - 1) / ALIGN * ALIGN;
	if (worker->facts_used > worker->facts_len)
		worker->facts_used = worker->facts_len;
	block->facts = to;
	return 0;
}

/* ---- blocks ---- */

/* Where each input lies in the worker's memory: as its caller has put it there, else one after another. */
static bool place(const struct worker *worker, const struct sl_block *block, bool leased, uint64_t *offs, uint64_t *len)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < SL_INPUTS_MAX; i++) {
		uint64_t n = block->in[i].n_rows * block->in[i].n_cols;
		if (!block->bytes[i] || n == 0)
			continue;
		offs[i] = leased ? (uint64_t)(block->bytes[i] - worker->in) : used;
		if (offs[i] > CUDA_IN_MAX || n > CUDA_IN_MAX - offs[i])
			return false;
		if (used < offs[i] + n)
			used = (offs[i] + n + ALIGN - 1) / ALIGN * ALIGN;
	}
	*len = used < CUDA_IN_MAX ? used : CUDA_IN_MAX;
	return true;
}

/* The block as the device sees it, and its inputs on the way there. */
static int send(struct cuda *cuda, struct worker *worker, const struct sl_block *block, bool leased,
		struct sl_block *there, struct sl_error *err)
{
	uint64_t offs[SL_INPUTS_MAX] = { 0 }, len = 0;

	if (!place(worker, block, leased, offs, &len))
		return sl_fail(err, EBUSY, "the inputs of a block are larger than %d bytes", CUDA_IN_MAX);
	for (unsigned i = 0; i < SL_INPUTS_MAX; i++) {
		uint64_t n = block->in[i].n_rows * block->in[i].n_cols;
		there->bytes[i] = block->bytes[i] && n ? worker->device_in + offs[i] : NULL;
		if (there->bytes[i] && !leased)
			memcpy(worker->in + offs[i], block->bytes[i], n);
	}
	if (len == 0)
		return 0;
	return cuda->runtime->copy(worker->stream, CUDA_TO_DEVICE, worker->device_in, worker->in, len, err);
}

/* Rows begin at multiples of 16 bytes on the device where that fits, so that these can be written at once. */
static uint64_t stride_of(const struct sl_rect *out)
{
	uint64_t stride = (out->n_cols + 15) / 16 * 16;

	return out->n_rows * stride <= CUDA_OUT_MAX ? stride : out->n_cols;
}

static void copy_rows(const struct sl_block *block, const unsigned char *from, uint64_t stride)
{
	if (stride == block->out.n_cols && stride == block->stride) {
		memcpy(block->dst, from, stride * block->out.n_rows);
		return;
	}
	for (uint64_t r = 0; r < block->out.n_rows; r++)
		memcpy(block->dst + r * block->stride, from + r * stride, block->out.n_cols);
}

static int run_on(struct cuda *cuda, struct worker *worker, unsigned id, const struct sl_args *args,
		  const struct sl_block *block, bool leased, struct sl_error *err)
{
	const struct cuda_runtime *runtime = cuda->runtime;
	const struct sl_transform_row *row = sl_transforms[id];
	struct sl_block there = *block;
	int ret = send(cuda, worker, block, leased, &there, err);

	there.dst = worker->device_out;
	there.stride = stride_of(&block->out);
	if (!ret && block->facts && row->facts_len)
		ret = send_facts(cuda, worker, row->facts_len(args), &there, err);
	if (!ret)
		ret = runtime->launch(worker->stream, id, args, &there, cuda->n_blocks, err);
	if (!ret)
		ret = runtime->copy(worker->stream, CUDA_TO_HOST, worker->out, worker->device_out,
				    block->out.n_rows * there.stride, err);
	if (!ret)
		ret = runtime->wait(worker->stream, err);
	if (!ret)
		copy_rows(block, worker->out, there.stride);
	return ret;
}

int cuda_run(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	struct cuda *cuda = state;
	struct worker *lent = holder(cuda, block), *worker = lent;
	int ret = 0;

	if (is_lost(cuda))
		return lose(cuda, err);
	if (block->out.n_rows * block->out.n_cols > CUDA_OUT_MAX)
		return sl_fail(err, EBUSY, "a block is larger than %d bytes", CUDA_OUT_MAX);
	if (!worker)
		ret = take(cuda, &worker, err);
	if (!ret && !worker)
		return sl_fail(err, EBUSY, "all %d workers are taken", CUDA_WORKERS);
	if (!ret)
		ret = cuda->runtime->enter(cuda->device, err);
	if (!ret)
		ret = run_on(cuda, worker, id, args, block, lent != NULL, err);
	if (worker && worker != lent)
		release(worker);
	return ret == 0 || ret == -EBUSY ? ret : lose(cuda, err);
}

/* ---- the device ---- */

int cuda_open(const struct cuda_runtime *runtime, void **state, int device, struct sl_error *err)
{
	struct cuda *cuda = calloc(1, sizeof(*cuda));
	struct worker *worker = NULL;
	int ret;

	*state = NULL;
	if (!cuda)
		return sl_fail(err, ENOMEM, "out of memory");
	cuda->runtime = runtime;
	cuda->device = device;
	ret = runtime->open(&cuda->device, &cuda->n_blocks, err);
	if (!ret)
		ret = take(cuda, &worker, err);
	if (ret) {
		free(cuda);
		if (err)
			err->errnum = ENODEV;
		return -ENODEV;
	}
	release(worker);
	*state = cuda;
	return 0;
}

void cuda_close(void *state)
{
	struct cuda *cuda = state;

	if (!cuda)
		return;
	(void)cuda->runtime->enter(cuda->device, NULL);
	for (unsigned i = 0; i < CUDA_WORKERS; i++)
		empty(cuda, &cuda->workers[i]);
	free(cuda);
}
