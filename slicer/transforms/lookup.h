/*
 * lookup.h - bytes through a table of 256, many at once where the table has the shape of one for FP8 codes.
 */
#ifndef SLICER_TRANSFORMS_LOOKUP_H
#define SLICER_TRANSFORMS_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

struct sl_lookup {
	const unsigned char *table; /* 256 bytes, which stay where they are */
	bool keeps_sign; /* its upper half is the lower one with the highest bit set, but for a NaN, the last code, and zero */
	bool keeps_zero;  /* zero has a sign too */
	bool is_identity; /* the lower half is its own codes */
	unsigned char parts[8]
			   [16]; /* the lower half, each part but the first as what it differs in from the one before */
};

/* What the table has in common with most: it takes as long as some hundred bytes do. */
void sl_lookup_make(struct sl_lookup *lookup, const unsigned char *table);

/* `n` bytes. */
void sl_lookup_run(const struct sl_lookup *lookup, const unsigned char *from, uint64_t n, unsigned char *to);

#endif
