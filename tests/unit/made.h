/*
 * made.h - transforms of bytes in memory, for comparing with a slow twin: read whole and in random chunks, by the processor's
 * functions and unit by unit as a GPU computes them.
 */
#ifndef TESTS_UNIT_MADE_H
#define TESTS_UNIT_MADE_H

#include "slicer/transform.h"

/* A random number below n; the same ones in every run. */
uint64_t made_below(uint64_t n);

/* `len` random bytes, malloc'ed. */
unsigned char *made_random(uint64_t len);

/* The transform's next input: matrices in `bytes` (batch * stride of them, which must stay), in pieces cut anywhere. */
void made_input(struct sl_transform *t, const unsigned char *bytes, uint64_t off, uint64_t rows, uint64_t row_bytes,
		uint64_t stride, uint64_t pitch, uint64_t len);

/* All that it makes is `want`, however it is read. `what` says what is compared. */
void made_expect(const struct sl_transform *t, const unsigned char *want, const char *what);

#endif
