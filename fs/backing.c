/*
 * backing.c - two ioctls. libfuse has functions for them that want a request at hand; slots come and go without one.
 */
#include "fs/backing.h"
#include <errno.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* linux/fuse.h, from 6.9 on. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

int backing_open(int device, int fd)
{
	struct backing_map map = { .fd = fd };
	int id = ioctl(device, BACKING_OPEN, &map);

	return id < 0 ? -errno : id;
}

void backing_close(int device, int id)
{
	uint32_t number = (uint32_t)id;

	ioctl(device, BACKING_CLOSE, &number); /* fails only for an id that is none */
}
