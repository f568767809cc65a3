/*
 * fake_cuda.c - a libcuda.so.1 as far as rankfs asks it which GPU is here, for machines that have none:
 *
 *      FAKE_CUDA="DEVICES MAJOR MINOR"    that many devices of that compute capability
 *      FAKE_CUDA="error N"                the driver does not start
 *      FAKE_CUDA="crash", "exit", "talk"  it ends whoever asks, or prints something first
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int devices, major, minor;

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int number);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetAttribute(int *value, int which, int device);
int cuGetErrorString(int result, const char **text);

int cuInit(unsigned flags)
{
	const char *fake = getenv("FAKE_CUDA") ? getenv("FAKE_CUDA") : "";
	int error = 0;

	(void)flags;
	if (!strcmp(fake, "crash"))
		abort();
	if (!strcmp(fake, "exit"))
		exit(7);
	if (!strcmp(fake, "talk")) {
		printf("hello from the driver\n");
		fprintf(stderr, "hello from the driver\n");
	}
	if (sscanf(fake, "error %d", &error) == 1)
		return error;
	return sscanf(fake, "%d %d %d", &devices, &major, &minor) == 3 ? 0 : 999;
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

int cuDeviceGetCount(int *n)
{
	*n = devices;
	return 0;
}

int cuDeviceGet(int *device, int number)
{
	*device = number;
	return number < devices ? 0 : 101;
}

int cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "Fake GPU %d", device);
	return 0;
}

int cuDeviceGetAttribute(int *value, int which, int device)
{
	(void)device;
	*value = which == 75 ? major : which == 76 ? minor : 0;
	return 0;
}

int cuGetErrorString(int result, const char **text)
{
	*text = result == 100 ? "no CUDA-capable device is detected" : "unknown error";
	return 0;
}
