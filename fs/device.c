/*
 * device.c - a backend before another: blocks go to the accelerator while it works, and all others to the processor.
 */
#include "fs/device.h"

#include "cuda/backend.h"
#include "fs/gpu.h"
#include "fs/log.h"
#include "fs/options.h"
#include "fs/print.h"
#include "slicer/model.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORTH_BYTES \
	(UINT64_C(256) << 10) /* of input and output: a launch and two copies are some 30 us, a processor's 1 MiB */

enum state { UNUSED, OPENING, OPEN, LOST };

struct device {
	const struct sl_backend *accelerator; /* NULL: none */
	struct sl_backend backend;	      /* ours: what the model uses */
	int number;
	uint64_t worth;
	void *opened; /* the accelerator's state */
	char name[160];
	char why[400]; /* there is no accelerator, or not any more */
	atomic_uint state;
	atomic_bool said;
	_Atomic uint64_t n_bytes; /* that the accelerator has made */
};

/* ---- the accelerator's life ---- */

static void lose(struct device *device, const struct sl_error *why)
{
	if (atomic_exchange(&device->said, true))
		return;
	snprintf(device->why, sizeof(device->why), "%s: %s", device->name, why->text);
	atomic_store(&device->state, LOST);
	log_line(LOG_WARNING, "%s; the processor computes from now on", device->why);
}

/* Opened by whoever comes first; nobody waits for that. */
static bool is_ready(struct device *device)
{
	struct sl_error err = SL_ERROR_INIT;
	unsigned state = atomic_load(&device->state);

	if (state == UNUSED && atomic_compare_exchange_strong(&device->state, &state, OPENING)) {
		if (device->accelerator->open(&device->opened, device->number, &err))
			lose(device, &err);
		else
			atomic_store(&device->state, OPEN);
	}
	return atomic_load(&device->state) == OPEN;
}

/* ---- the backend ---- */

static uint64_t bytes_of(const struct sl_block *block)
{
	uint64_t bytes = block->out.n_rows * block->out.n_cols;

	for (unsigned i = 0; i < SL_INPUTS_MAX; i++)
		bytes += block->in[i].n_rows * block->in[i].n_cols;
	return bytes;
}

/* 0, or what the accelerator says; -EBUSY also when it is not asked. */
static int run_there(struct device *device, unsigned id, const struct sl_args *args, const struct sl_block *block)
{
	struct sl_error err = SL_ERROR_INIT;
	int ret;

	if (bytes_of(block) < device->worth || !is_ready(device))
		return -EBUSY;
	ret = device->accelerator->run(device->opened, id, args, block, &err);
	if (ret == 0)
		atomic_fetch_add_explicit(&device->n_bytes, block->out.n_rows * block->out.n_cols,
					  memory_order_relaxed);
	else if (ret != -EBUSY)
		lose(device, &err);
	return ret;
}

static int run(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	return run_there(state, id, args, block) ? sl_backend_cpu.run(NULL, id, args, block, err) : 0;
}

static unsigned char *lease(void *state, uint64_t out_len)
{
	struct device *device = state;

	if (out_len < device->worth || !is_ready(device))
		return NULL;
	return device->accelerator->lease(device->opened, out_len);
}

static void give_back(void *state, unsigned char *memory)
{
	struct device *device = state;

	device->accelerator->give_back(device->opened, memory);
}

static void abandon(void *state)
{
	struct device *device = state;

	if (device->opened)
		device->accelerator->abandon(device->opened);
}

/* ---- */

struct device *device_new(const struct sl_backend *accelerator, int number, const char *name, uint64_t worth)
{
	struct device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	snprintf(device->name, sizeof(device->name), "%s", name);
	device->accelerator = accelerator;
	device->number = number;
	device->worth = worth;
	if (!accelerator)
		return device;
	device->backend = (struct sl_backend){ .name = accelerator->name, .run = run };
	device->backend.out_max = accelerator->out_max;
	if (accelerator->lease) {
		device->backend.lease = lease;
		device->backend.give_back = give_back;
		device->backend.in_max = accelerator->in_max;
	}
	if (accelerator->abandon)
		device->backend.abandon = abandon;
	return device;
}

void device_close(struct device *device)
{
	if (!device)
		return;
	if (device->opened)
		device->accelerator->close(device->opened);
	free(device);
}

void device_use(struct device *device, struct sl_model *model)
{
	if (!device->accelerator)
		return;
	model->backend = &device->backend;
	model->backend_state = device;
}

const char *device_text(struct device *device, char *text, size_t size)
{
	unsigned state = atomic_load(&device->state);

	if (!device->accelerator || state == LOST)
		snprintf(text, size, "cpu%s%s%s", device->why[0] ? " (" : "", device->why, device->why[0] ? ")" : "");
	else
		snprintf(text, size, "%s, %s, %s", device->accelerator->name, device->name,
			 state == UNUSED ? "not used yet" : print_size(atomic_load(&device->n_bytes)).text);
	return text;
}

/* ---- options ---- */

#if HAVE_CUDA
static const struct sl_backend *const cuda = &sl_backend_cuda;
#else
static const struct sl_backend *const cuda = NULL;
#endif

static int number_of(const struct options *options)
{
	return options->device >= DEVICE_NUMBER ? (int)(options->device - DEVICE_NUMBER) : -1;
}

/* The GPU that computes; -ENODEV when there is none, or none that it can be done with. */
static int find(const struct options *options, struct gpu *gpu, struct sl_error *err)
{
	if (!cuda)
		return sl_fail(err, ENODEV, "this rankfs was built without CUDA");
	int ret = gpu_find(gpu, number_of(options), err);
	return ret ? ret : gpu_try(cuda, gpu->number, err);
}

int device_open(struct device **out, const struct options *options, struct sl_error *err)
{
	struct sl_error why = SL_ERROR_INIT;
	struct gpu gpu = { 0 };
	char name[sizeof((*out)->name)] = "";
	bool found = options->device != DEVICE_CPU && !find(options, &gpu, &why);

	*out = NULL;
	if (!found && options->device != DEVICE_CPU && options->device != DEVICE_AUTO)
		return sl_fail(err, ENODEV, "option 'device': %s (device=auto takes the processor then)", why.text);
	if (found)
		snprintf(name, sizeof(name), "device %d (%s)", gpu.number, gpu.name);
	*out = device_new(found ? cuda : NULL, gpu.number, name, WORTH_BYTES);
	if (!*out)
		return sl_fail(err, ENOMEM, "out of memory");
	snprintf((*out)->why, sizeof((*out)->why), "%s", why.text);
	return 0;
}

void device_default_gpu(struct options *options)
{
	struct sl_error err = SL_ERROR_INIT;
	struct gpu gpu;

	if (!options->gpu && !gpu_find(&gpu, number_of(options), &err))
		options->gpu = gpu_kind(&gpu);
}
