/*
 * dequant.c - stretches of rows through F32.
 */
#include "slicer/transforms/dequant.h"

#include "slicer/transform.h"
#include "slicer/transforms/fast.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = sl_dequant_size(args);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS], size = sl_dequant_size(args);
	uint64_t col = out->col / size, n_cols = out->n_cols / size;

	if (input == 0)
		*in = (struct sl_rect){ out->row, out->n_rows, col * sl_quant_size(args),
					n_cols * sl_quant_size(args) };
	else if (h && n_cols)
		*in = (struct sl_rect){ out->row / h, (out->row + out->n_rows - 1) / h - out->row / h + 1, col / w * 4,
					((col + n_cols - 1) / w - col / w + 1) * 4 };
}

SL_FAST static void to_bf16(const float *restrict from, uint64_t n, uint16_t *restrict to)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = sl_f32_bits(from[i]), rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
		to[i] = (uint16_t)((int32_t)(bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
	}
}

static void to_f16(const float *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = sl_f32_to_f16(from[i]);
}

enum { STRETCH = 1024 };

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t size = sl_dequant_size(args), first = block->out.col / size, n = block->out.n_cols / size, now;
	float values[STRETCH];
	uint16_t halves[STRETCH];

	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		for (uint64_t c = 0; c < n; c += now) {
			now = sl_quant_min(n - c, STRETCH);
			sl_quant_load_row(args, block, block->out.row + r, first + c, now, values);
			if (args->p[SL_DEQUANT_TO] == SL_BF16)
				to_bf16(values, now, halves);
			else if (size == 2)
				to_f16(values, now, halves);
			memcpy(block->dst + r * block->stride + c * size, size == 2 ? (const void *)halves : values,
			       now * size);
		}
	}
}

const struct sl_transform_row sl_transform_dequant = {
	"dequantise", granule, need, NULL, NULL, run, sl_dequant_units, sl_dequant_unit, sl_quant_inputs,
};
