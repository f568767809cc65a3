/*
 * device.h - who computes what engines make of weights after they have loaded them: the processor, or a GPU with the processor
 * behind it.
 *
 * The GPU is opened by the first block that is worth it, since a mount forks before it serves, and many never need it. Whatever a
 * GPU does not take, or cannot do now, the processor does; when the GPU is lost or full, that is said once, and the processor
 * does everything from then on. The bytes are the same.
 */
#ifndef FS_DEVICE_H
#define FS_DEVICE_H

#include "slicer/backend.h"
#include "slicer/error.h"
#include <stddef.h>
#include <stdint.h>

struct device;
struct options;
struct sl_model;

/* What -o device= may be: a number is DEVICE_NUMBER more. */
enum device_choice { DEVICE_CPU, DEVICE_AUTO, DEVICE_CUDA, DEVICE_NUMBER };
enum { DEVICES_MAX = 64 };

/* -ENODEV when a GPU is wanted and there is none. */
int device_open(struct device **out, const struct options *options, struct sl_error *err) SL_MUST_CHECK;

/* The processor behind `accelerator` (NULL: alone), which gets blocks of `worth` bytes and more; `name` is copied. NULL: no memory. */
struct device *device_new(const struct sl_backend *accelerator, int number, const char *name, uint64_t worth);
void device_close(struct device *device);

/* Before the model's views are opened; the device must outlive it. */
void device_use(struct device *device, struct sl_model *model);

/* "cpu", "cuda, device 0 (NVIDIA H100), 1.5 GB of output", "cpu (device 0 (…): …)". */
const char *device_text(struct device *device, char *text, size_t size);

/* If -o gpu= was not given: the GPU that computes, else the first; without one it stays the engines' default. */
void device_default_gpu(struct options *options);

#endif
