/*
 * gpu.h - which GPU is here, asked of the driver.
 *
 * A process that has used the driver cannot go on using it after a fork, and a mount forks; besides, a broken driver can hang or
 * crash whoever asks. So a child asks, and tells. Not for a process that has made threads already.
 */
#ifndef FS_GPU_H
#define FS_GPU_H

#include "slicer/error.h"
#include <stdint.h>

struct gpu {
	int n_devices, number;
	int major, minor; /* compute capability */
	int driver;	  /* the CUDA version that it can do: 13000 is 13.0 */
	char name[128];
};

/* Device `number`, -1: the first. -ENODEV with the reason why there is none. The answer is kept for the next one who asks for the
 * same. */
int gpu_find(struct gpu *gpu, int number, struct sl_error *err) SL_MUST_CHECK;

/* Can a backend be opened on it? -ENODEV with the reason why not. A child tries. */
struct sl_backend;
int gpu_try(const struct sl_backend *backend, int number, struct sl_error *err) SL_MUST_CHECK;

/* 1 + enum sl_gpu of a device, as -o gpu= has it; 0: of no kind that engines are known to tell apart. */
uint64_t gpu_kind(const struct gpu *gpu);

#endif
