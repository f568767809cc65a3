/*
 * values.h - the numbers in a tensor's bytes, for people: smallest, largest, mean, the first few.
 *
 * Values pass through double: exact for every float of 32 bits and less and for integers up to 2^53.
 */
#ifndef FS_VALUES_H
#define FS_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VALUES_FIRST = 8 };

struct values {
	uint64_t n, n_nan, n_inf;
	double min, max, sum; /* of what is finite */
	double first[VALUES_FIRST];
	unsigned n_first;
};

void values_init(struct values *values);

/* Can the elements of that dtype be decoded? Those of less than a byte, and complex ones, can not. */
bool values_known(uint8_t dtype);

/* Take in `len` bytes, a whole number of elements of a known dtype. */
void values_add(struct values *values, uint8_t dtype, const unsigned char *bytes, size_t len);

/* If the elements are all the same, or count up from 0: "all 1.0", "zeros", "0, 1, 2, …, 511" into `text`. */
bool values_constant(uint8_t dtype, const unsigned char *bytes, size_t len, char *text, size_t size);

#endif
