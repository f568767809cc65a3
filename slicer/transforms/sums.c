/*
 * sums.c - an element of the output needs a row of the input.
 */
#include "slicer/transforms/sums.h"

#include "slicer/transform.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = 1;
	*bytes = 4;
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	if (input == 0)
		*in = (struct sl_rect){ out->col / 4, out->n_cols / 4, 0, args->in[0].row_bytes };
	else
		*in = (struct sl_rect){ 0, 1, 0, args->in[1].row_bytes };
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_sums_units(args, block); i++)
		sl_sums_unit(args, block, i);
}

const struct sl_transform_row sl_transform_sums = {
	"sums", granule, need, NULL, NULL, run, sl_sums_units, sl_sums_unit, NULL,
};
