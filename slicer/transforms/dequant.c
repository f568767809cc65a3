/*
 * dequant.c - runs of a row that share a scale.
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

/* The value of an E4M3 code without a jump: as an F32 of the same fields, which is 2^120 times too small; a NaN apart. */
SL_FAST static void scale_codes(const unsigned char *from, uint64_t n, float scale, float *to)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t code = from[i], bits = (code & 0x80) << 24 | (code & 0x7F) << 20;
		float value = sl_f32_from_bits(bits) * 0x1p120f;
		value = (code & 0x7F) == 0x7F ? sl_f32_from_bits((code & 0x80) << 24 | 0x7FC00000) : value;
		to[i] = value * scale;
	}
}

SL_FAST static void to_bf16(const float *from, uint64_t n, uint16_t *to)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = sl_f32_bits(from[i]), rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
		to[i] = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
	}
}

enum { STRETCH = 1024 };

/* Elements [col, col + n) of a row of the block, of one scale. */
static void make(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col, uint64_t n,
		 float scale)
{
	unsigned size = sl_dequant_size(args);
	const struct sl_rect *in = &block->in[0];
	const unsigned char *from = block->bytes[0] + row * in->n_cols + col;
	float values[STRETCH];
	uint16_t halves[STRETCH];

	scale_codes(from, n, scale, values);
	if (args->p[SL_DEQUANT_TO] == SL_BF16)
		to_bf16(values, n, halves);
	else if (size == 2)
		for (uint64_t i = 0; i < n; i++)
			halves[i] = sl_f32_to_f16(values[i]);
	memcpy(block->dst + row * block->stride + col * size, size == 2 ? (const void *)halves : values, n * size);
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	unsigned size = sl_dequant_size(args);
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], w = args->p[SL_QUANT_SCALE_COLS], first = block->out.col / size,
		 n = block->out.n_cols / size, now;
	const struct sl_rect *scales = &block->in[1];

	if (args->p[SL_QUANT_FROM] != SL_F8_E4M3 || h == 0) {
		for (uint64_t i = 0; i < block->out.n_rows * n; i++)
			sl_dequant_unit(args, block, i);
		return;
	}
	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		for (uint64_t c = 0; c < n; c += now) {
			uint64_t to_edge = w - (first + c) % w;
			float scale = sl_quant_load(
				SL_F32, block->bytes[1] + ((block->out.row + r) / h - scales->row) * scales->n_cols +
						(first + c) / w * 4 - scales->col);
			now = sl_quant_min(sl_quant_min(n - c, to_edge), STRETCH);
			make(args, block, r, c, now, scale);
		}
	}
}

const struct sl_transform_row sl_transform_dequant = {
	"dequantise", granule, need, NULL, NULL, run, sl_dequant_units, sl_dequant_unit, sl_quant_inputs,
};
