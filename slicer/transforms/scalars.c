/*
 * scalars.c - the whole output is one granule.
 */
#include "slicer/transforms/scalars.h"

#include "slicer/transform.h"

#include <string.h>

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = args->rows;
	*bytes = args->row_bytes;
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	(void)out;
	*in = (struct sl_rect){ 0, args->in[input].rows, 0, args->in[input].row_bytes };
}

/* The destination may lie anywhere in a file: it need not be aligned. */
static void run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_scalars_units(args, block); i++) {
		float value = sl_scalars_value(args, block, i);
		memcpy(block->dst + i * sizeof(value), &value, sizeof(value));
	}
}

const struct sl_transform_row sl_transform_scalars = {
	"scalars", granule, need, NULL, NULL, run, sl_scalars_units, sl_scalars_unit,
};
