/*
 * runtime_host.c - a device that is none: the processor runs the kernels, so that all the rest is tested where there is no GPU.
 *
 * It is stricter than a device. What is put into a stream happens when the stream is waited for, and no earlier; a kernel gets no
 * pointer, and a copy no end of it, that is not the device's; memory is filled with rubbish. And it fails when a test wants it.
 */
#include "cuda/backend.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MAX = 64, RANGES_MAX = 16 * CUDA_WORKERS, RUBBISH = 0xA5, GRID = 24 };

/* ---- faults ---- */

static struct cuda_counts fail_from, counts;

void cuda_host_fail(struct cuda_counts from)
{
	fail_from = from;
	counts = (struct cuda_counts){ 0 };
}

struct cuda_counts cuda_host_counts(void)
{
	return (struct cuda_counts){ __atomic_load_n(&counts.allocations, __ATOMIC_RELAXED),
				     __atomic_load_n(&counts.operations, __ATOMIC_RELAXED),
				     __atomic_load_n(&counts.launches, __ATOMIC_RELAXED) };
}

static bool is_due(unsigned *counter, unsigned from)
{
	return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED) >= from && from;
}

static bool is_full(void)
{
	return is_due(&counts.allocations, fail_from.allocations);
}

static int operate(struct sl_error *err)
{
	return is_due(&counts.operations, fail_from.operations) ? sl_fail(err, ENODEV, "a test has lost the device")
								: 0;
}

/* ---- memory ---- */

static struct range {
	unsigned char *start;
	size_t len;
} ranges[RANGES_MAX]; /* the device's */
static char ranges_lock;

static void lock(void)
{
	while (__atomic_test_and_set(&ranges_lock, __ATOMIC_ACQUIRE))
		;
}

static void unlock(void)
{
	__atomic_clear(&ranges_lock, __ATOMIC_RELEASE);
}

/* Replace one entry: `from` becomes `to`. */
static bool change_range(const unsigned char *from, unsigned char *to, size_t len)
{
	bool found = false;

	lock();
	for (unsigned i = 0; i < RANGES_MAX && !found; i++) {
		found = ranges[i].start == from;
		if (found)
			ranges[i] = (struct range){ to, len };
	}
	unlock();
	return found;
}

/* Are all of these bytes the device's? */
static bool is_device(const unsigned char *at, uint64_t len)
{
	bool found = false;

	lock();
	for (unsigned i = 0; i < RANGES_MAX && !found; i++)
		found = ranges[i].start && at >= ranges[i].start && at <= ranges[i].start + ranges[i].len &&
			len <= (uint64_t)(ranges[i].start + ranges[i].len - at);
	unlock();
	return found;
}

static int host_alloc(enum cuda_memory kind, void **memory, size_t len, struct sl_error *err)
{
	unsigned char *made = is_full() ? NULL : aligned_alloc(256, (len + 255) & ~255ul);

	if (made && kind == CUDA_DEVICE && !change_range(NULL, made, len)) {
		free(made);
		made = NULL;
	}
	if (!made)
		return sl_fail(err, ENOMEM, "no memory for %zu bytes on the device", len);
	memset(made, RUBBISH, len);
	*memory = made;
	return 0;
}

static void host_free(enum cuda_memory kind, void *memory)
{
	if (memory && kind == CUDA_DEVICE)
		change_range(memory, NULL, 0);
	free(memory);
}

/* ---- streams ---- */

struct operation {
	bool launches;
	void *to;
	const void *from;
	size_t len;
	unsigned id, n_blocks;
	struct sl_args args;
	struct sl_block block;
};

struct stream {
	unsigned n;
	struct operation operations[OPERATIONS_MAX];
};

static int host_open_stream(void **stream, struct sl_error *err)
{
	*stream = is_full() ? NULL : calloc(1, sizeof(struct stream));
	return *stream ? 0 : sl_fail(err, ENOMEM, "no memory for a stream");
}

static void host_close_stream(void *stream)
{
	free(stream);
}

static int put(struct stream *stream, const struct operation *operation, struct sl_error *err)
{
	int ret = operate(err);

	if (!ret && stream->n == OPERATIONS_MAX)
		ret = sl_fail(err, ENODEV, "more than %d operations in a stream", OPERATIONS_MAX);
	if (!ret)
		stream->operations[stream->n++] = *operation;
	return ret;
}

static int illegal_address(struct sl_error *err)
{
	return sl_fail(err, ENODEV, "an address that is not the device's");
}

static int host_copy(void *stream, enum cuda_way way, void *to, const void *from, size_t len, struct sl_error *err)
{
	const struct operation operation = { .to = to, .from = from, .len = len };
	bool right = is_device(to, len) == (way != CUDA_TO_HOST) && is_device(from, len) == (way != CUDA_TO_DEVICE);

	return right ? put(stream, &operation, err) : illegal_address(err);
}

static bool are_device(const struct sl_block *block)
{
	bool all = block->out.n_rows == 0 ||
		   is_device(block->dst, (block->out.n_rows - 1) * block->stride + block->out.n_cols);

	for (unsigned i = 0; i < SL_INPUTS_MAX; i++)
		all &= !block->bytes[i] || is_device(block->bytes[i], block->in[i].n_rows * block->in[i].n_cols);
	return all && (!block->facts || is_device(block->facts, 1));
}

static int host_launch(void *stream, unsigned id, const struct sl_args *args, const struct sl_block *block,
		       unsigned n_blocks, struct sl_error *err)
{
	const struct operation operation = {
		.launches = true, .id = id, .n_blocks = n_blocks, .args = *args, .block = *block
	};

	return are_device(block) ? put(stream, &operation, err) : illegal_address(err);
}

static void perform(const struct operation *operation)
{
	if (!operation->launches) {
		memcpy(operation->to, operation->from, operation->len);
		return;
	}
	__atomic_add_fetch(&counts.launches, 1, __ATOMIC_RELAXED);
	cuda_host_launch(NULL, operation->id, &operation->args, &operation->block, operation->n_blocks);
}

static int host_wait(void *stream, struct sl_error *err)
{
	struct stream *all = stream;
	int ret = operate(err);

	for (unsigned i = 0; i < all->n && !ret; i++)
		perform(&all->operations[i]);
	all->n = 0;
	return ret;
}

/* ---- the device ---- */

static int host_open(int *device, unsigned *n_blocks, struct sl_error *err)
{
	if (*device > 0)
		return sl_fail(err, ENODEV, "there is no device %d", *device);
	*device = 0;
	*n_blocks = GRID; /* fewer than a block has: each thread makes several units */
	return 0;
}

static int host_enter(int device, struct sl_error *err)
{
	(void)device, (void)err;
	return 0;
}

const struct cuda_runtime cuda_host_runtime = {
	.open = host_open,
	.enter = host_enter,
	.alloc = host_alloc,
	.free = host_free,
	.open_stream = host_open_stream,
	.close_stream = host_close_stream,
	.copy = host_copy,
	.launch = host_launch,
	.wait = host_wait,
};

static int open_host(void **state, int device, struct sl_error *err)
{
	return cuda_open(&cuda_host_runtime, state, device, err);
}

CUDA_BACKEND(sl_backend_cuda_host, open_host);
