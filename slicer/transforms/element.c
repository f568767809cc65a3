/*
 * element.c - loops over elements, one for each kind, that a compiler can vectorise.
 */
#include "slicer/transforms/element.h"

#include "slicer/transform.h"
#include "slicer/transforms/fast.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = 1;
	*bytes = sizeof(float);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t size = sl_element_size(args->p[SL_ELEMENT_KIND]);

	(void)input;
	*in = (struct sl_rect){ out->row, out->n_rows, out->col / sizeof(float) * size,
				out->n_cols / sizeof(float) * size };
}

/* `n` elements; those from `there` on, the input does not have. */
static inline __attribute__((always_inline)) void elements(uint64_t kind, const unsigned char *restrict from,
							   uint64_t n, uint64_t there, unsigned char *restrict to)
{
	uint64_t size = sl_element_size(kind);

	for (uint64_t i = 0; i < n; i++) {
		float value = sl_element_value(kind, from + i * size, i < there);
		memcpy(to + i * sizeof(value), &value, sizeof(value));
	}
}

/* The loop above with a constant kind. */
#define KIND(kind)                                  \
	case kind:                                  \
		elements(kind, from, n, there, to); \
		break;

SL_FAST static void row_of(uint64_t which, const unsigned char *from, uint64_t n, uint64_t there, unsigned char *to)
{
	switch (which) {
		KIND(SL_ELEMENT_SCALE)
		KIND(SL_ELEMENT_FLOOR)
		KIND(SL_ELEMENT_ELSE_ONE)
		KIND(SL_ELEMENT_E8M0)
	default:
		elements(SL_ELEMENT_BF16, from, n, there, to);
	}
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t kind = args->p[SL_ELEMENT_KIND], size = sl_element_size(kind), n = block->out.n_cols / sizeof(float);
	uint64_t first = block->out.col / sizeof(float), width = args->in[0].row_bytes / size;

	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		uint64_t there = block->out.row + r < args->in[0].rows && first < width ? width - first : 0;
		row_of(kind, block->bytes[0] + r * n * size, n, there, block->dst + r * block->stride);
	}
}

static int check(const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	uint64_t n = args->p[SL_ELEMENT_KIND] == SL_ELEMENT_SCALE ? block->in[0].n_rows * block->in[0].n_cols : 0;
	int ret = 0;

	for (uint64_t at = 0; at < n && !ret; at += sizeof(float))
		ret = sl_transform_scale(sl_element_f32(block->bytes[0] + at), err);
	return ret;
}

const struct sl_transform_row sl_transform_element = {
	"element", granule, need, NULL, NULL, run, sl_element_units, sl_element_unit, check,
};
