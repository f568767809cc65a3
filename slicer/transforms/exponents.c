/*
 * exponents.c - scales are few, so the processor goes word by word as well.
 */
#include "slicer/transforms/exponents.h"

#include "slicer/transform.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = 1;
	*bytes = sizeof(uint32_t);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t group = args->p[SL_EXPONENTS_GROUP], first = out->col / sizeof(uint32_t) / group,
		 last = (out->col + out->n_cols - 1) / sizeof(uint32_t) / group;

	(void)input;
	*in = (struct sl_rect){ first, last - first + 1, out->row * 4 * sizeof(float),
				out->n_rows * 4 * sizeof(float) };
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t n = sl_exponents_units(args, block);

	for (uint64_t i = 0; i < n; i++)
		sl_exponents_unit(args, block, i);
}

const struct sl_transform_row sl_transform_exponents = {
	"exponents", granule, need, NULL, NULL, run, sl_exponents_units, sl_exponents_unit, NULL,
};
