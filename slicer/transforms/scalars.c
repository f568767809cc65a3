/*
 * scalars.c - an element needs its row of the inputs, or all of them.
 */
#include "slicer/transforms/scalars.h"

#include "slicer/transform.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = 1;
	*bytes = sizeof(float);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t first = out->col / sizeof(float), n = out->n_cols / sizeof(float);

	if (args->p[SL_SCALARS_ALL]) {
		first = 0;
		n = args->in[input].rows;
	}
	*in = (struct sl_rect){ first, n, 0, args->in[input].row_bytes };
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_scalars_units(args, block); i++)
		sl_scalars_unit(args, block, i);
}

static int check(const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	(void)args;
	return sl_transform_scales(block->bytes[0], block->in[0].n_rows * (block->in[0].n_cols / sizeof(float)), err);
}

const struct sl_transform_row sl_transform_scalars = {
	"scalars", granule, need, NULL, NULL, run, sl_scalars_units, sl_scalars_unit, check,
};
