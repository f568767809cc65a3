/*
 * transforms.h - transforms on memory, for tests: read in every way and compared with what a twin has made.
 */
#ifndef TESTS_UNIT_TRANSFORMS_H
#define TESTS_UNIT_TRANSFORMS_H

#include "slicer/transform.h"

/* A number below n; always the same ones. */
uint64_t random_below(uint64_t n);

/* Give a transform its next input: `batch` matrices one after another in memory that lives as long as the test. */
void transform_input(struct sl_transform *t, const void *bytes, uint64_t rows, uint64_t row_bytes);

/* Read all of it, in pieces of random sizes, and both again unit by unit: everywhere `want`. */
void transform_check(struct sl_transform *t, const unsigned char *want, const char *what);

#endif
