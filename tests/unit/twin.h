/*
 * twin.h - the slow and obvious twin of planning and reading: what an output tensor must hold, one element at a time,
 * from the rows of family.h and the tensors of checkpoint.h.
 */
#ifndef TESTS_UNIT_TWIN_H
#define TESTS_UNIT_TWIN_H

#include "family.h"

#include "slicer/view.h"

/* The bytes of the output tensor of that name, malloc'ed, and its shape; NULL when the rank has none. */
unsigned char *twin_tensor(const struct family *family, const struct sl_view *view, bool tied, const char *name,
			   uint64_t shape[4], unsigned *n_dims);

/* Every tensor of a view is the twin's and there is no other; its files, their headers parsed again, say the same. */
void twin_compare(const struct family *family, const struct sl_view *view, bool tied);

/* One element as a number, and a number as the bits of the nearest element, ties to even; F8_E4M3 is only read. */
double twin_decode(int dtype, const unsigned char *at);
uint32_t twin_encode(int dtype, double value);

#endif
