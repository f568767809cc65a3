/*
 * vector.h - 16 bytes at once, or 8: what a unit reads and writes where it can. A GPU has one instruction for it if the address is a
 * multiple of 16, which it is in rows of such a length.
 */
#ifndef SLICER_TRANSFORMS_VECTOR_H
#define SLICER_TRANSFORMS_VECTOR_H

#include "slicer/backend.h"
#include <string.h>

struct sl_16 {
	uint32_t words[4];
};

#ifdef __CUDA_ARCH__

SL_DEVICE struct sl_16 sl_16_load(const unsigned char *from)
{
	struct sl_16 v;

	if (((uintptr_t)from & 15) == 0) {
		uint4 all = *(const uint4 *)from;
		v = { { all.x, all.y, all.z, all.w } };
	} else if (((uintptr_t)from & 3) == 0) {
		for (unsigned i = 0; i < 4; i++)
			v.words[i] = ((const uint32_t *)from)[i];
	} else {
		for (unsigned i = 0; i < 4; i++)
			v.words[i] = from[4 * i] | from[4 * i + 1] << 8 | from[4 * i + 2] << 16 |
				     (uint32_t)from[4 * i + 3] << 24;
	}
	return v;
}

SL_DEVICE void sl_16_store(unsigned char *to, struct sl_16 v)
{
	if (((uintptr_t)to & 15) == 0) {
		*(uint4 *)to = make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
		return;
	}
	for (unsigned i = 0; i < 16; i++)
		to[i] = (unsigned char)(v.words[i / 4] >> 8 * (i % 4));
}

SL_DEVICE void sl_8_store(unsigned char *to, uint64_t v)
{
	if (((uintptr_t)to & 7) == 0) {
		*(uint64_t *)to = v;
		return;
	}
	for (unsigned i = 0; i < 8; i++)
		to[i] = (unsigned char)(v >> 8 * i);
}

#else

SL_DEVICE struct sl_16 sl_16_load(const unsigned char *from)
{
	struct sl_16 v;

	memcpy(&v, from, sizeof(v));
	return v;
}

SL_DEVICE void sl_16_store(unsigned char *to, struct sl_16 v)
{
	memcpy(to, &v, sizeof(v));
}

SL_DEVICE void sl_8_store(unsigned char *to, uint64_t v)
{
	memcpy(to, &v, sizeof(v));
}

#endif

#endif
