/*
 * header_scan.h - a header in the shape in which nearly all writers leave it, read in one pass without tokens.
 *
 * What is accepted here sl_json_parse() and the checks behind it would accept too, with the same result: each entry has
 * its three keys in the usual order and no other, names are ASCII without escapes, and the tensors follow one another
 * as their data does. Whatever is different, wrong or not, is given up on.
 */
#ifndef SLICER_HEADER_SCAN_H
#define SLICER_HEADER_SCAN_H

#include "slicer/header.h"
#include <stdbool.h>

/* What was read. Names point into the text, offsets count from the start of the data. */
struct sl_scanned {
	struct sl_tensor *tensors; /* malloc'ed, in the order of their data; to be freed in any case */
	uint32_t n, room;
	size_t name_bytes; /* of all names, each with a NUL */
	bool by_name;	   /* that is the order of their names as well: these are unique then */
};

/* Read `len` bytes of JSON in front of `data_len` bytes of data. False when they have another shape, or without memory. */
bool sl_header_scan(struct sl_scanned *scanned, const char *text, size_t len, uint64_t data_len, uint32_t shard,
		    struct sl_header_sink *sink);

/* A copy of a shape that lives as long as the sink's names: the one that is there, if it is. NULL without memory. */
const uint64_t *sl_header_shape(struct sl_header_sink *sink, const uint64_t *dims, unsigned n);

#endif
