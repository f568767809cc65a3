/*
 * quant.h - floats to FP8 E4M3, each granule with a scale that follows from its largest value.
 *
 * SL_T_QUANT makes the codes, SL_T_QUANT_SCALES the scales of the same granules:
 *
 *      input 0   F32, F16, BF16 [rows, cols]; or E4M3 codes that have blocks of scales
 *      input 1   those scales, F32
 *      input 2   where the largest values are looked for instead: the matrix of which input 0 is one rank's columns (vLLM takes the
 *                maximum over ranks)
 *
 * vLLM 0.32: online quantisation (quantization/online/, csrc fp8/common.cuh) and requantisation to powers of two for DeepGEMM
 * (fp8_utils.py, requant_weight_ue8m0_inplace). Constants of Python become products with their inverse on a GPU.
 */
#ifndef SLICER_TRANSFORMS_QUANT_H
#define SLICER_TRANSFORMS_QUANT_H

#include "slicer/backend.h"
#include "slicer/convert.h"
#include "slicer/transforms/vector.h"

#include <math.h>

enum sl_quant_kind {
	SL_QUANT_TENSOR, /* the whole matrix is a granule: its largest value is a fact */
	SL_QUANT_ROW,	 /* each row */
	SL_QUANT_BLOCK,	 /* each block */
	SL_QUANT_UE8M0,	 /* each block, its scale a power of two */
	SL_QUANT_MX,	 /* 32 of a row, their scale a power of two, kept as its exponent */
};

/* Of sl_args.p: kind, dtype of input 0, elements of a row, rows and columns of a granule, rows and columns of the scales' blocks in
 * input 1 (0: it has none), whether a processor is followed, not a GPU; columns of input 2 (0: there is none). */
enum {
	SL_QUANT_KIND,
	SL_QUANT_FROM,
	SL_QUANT_COLS,
	SL_QUANT_ROWS_OF,
	SL_QUANT_COLS_OF,
	SL_QUANT_SCALE_ROWS,
	SL_QUANT_SCALE_COLS,
	SL_QUANT_CPU,
	SL_QUANT_ALL_COLS
};

SL_DEVICE float sl_quant_load(unsigned from, const unsigned char *at)
{
	uint16_t half;
	float value;

	if (from == SL_F8_E4M3)
		return sl_f8_e4m3_to_f32(*at);
	if (from == SL_F32) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	memcpy(&half, at, sizeof(half));
	return from == SL_BF16 ? sl_bf16_to_f32(half) : sl_f16_to_f32(half);
}

SL_DEVICE unsigned sl_quant_size(const struct sl_args *args)
{
	return args->p[SL_QUANT_FROM] == SL_F32 ? 4 : args->p[SL_QUANT_FROM] == SL_F8_E4M3 ? 1 : 2;
}

/* Rows and columns of elements, of the matrix. */
struct sl_granule {
	uint64_t row, n_rows, col, n_cols;
};

SL_DEVICE uint64_t sl_quant_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The granule that has an element. */
SL_DEVICE struct sl_granule sl_quant_granule(const struct sl_args *args, uint64_t rows, uint64_t row, uint64_t col)
{
	uint64_t h = args->p[SL_QUANT_ROWS_OF], w = args->p[SL_QUANT_COLS_OF];
	struct sl_granule g = { row / h * h, 0, col / w * w, 0 };

	g.n_rows = sl_quant_min(h, rows - g.row);
	g.n_cols = sl_quant_min(w, args->p[SL_QUANT_COLS] - g.col);
	return g;
}

/* The scale in input 1 of the block that has an element. */
SL_DEVICE float sl_quant_block_scale(const struct sl_args *args, const struct sl_block *block, uint64_t row,
				     uint64_t col)
{
	const struct sl_rect *scales = &block->in[1];

	return sl_quant_load(SL_F32, block->bytes[1] +
					     (row / args->p[SL_QUANT_SCALE_ROWS] - scales->row) * scales->n_cols +
					     col / args->p[SL_QUANT_SCALE_COLS] * 4 - scales->col);
}

/* Sizes as bits: a NaN is larger than all others. */
SL_DEVICE uint32_t sl_quant_larger(uint32_t largest, float value)
{
	uint32_t size = sl_f32_bits(value) & 0x7FFFFFFF;

	return size > largest ? size : largest;
}

enum { SL_QUANT_CHUNK = 8 }; /* elements that are loaded at once: 16 bytes of BF16 */

/* `n` elements of a row, of input 0 times their scales, or of input 2. */
SL_DEVICE void sl_quant_load_some(const struct sl_args *args, const struct sl_block *block, unsigned input,
				  uint64_t row, uint64_t col, uint64_t n, float *to)
{
	const unsigned from = (unsigned)args->p[SL_QUANT_FROM], size = sl_quant_size(args);
	const struct sl_rect *in = &block->in[input];
	const unsigned char *at = block->bytes[input] + (row - in->row) * in->n_cols + col * size - in->col;

	if (n == SL_QUANT_CHUNK && size == 2) {
		const struct sl_16 halves = sl_16_load(at);
		SL_UNROLL
		for (unsigned k = 0; k < SL_QUANT_CHUNK; k++) {
			uint16_t half = (uint16_t)(halves.words[k / 2] >> 16 * (k % 2));
			to[k] = from == SL_BF16 ? sl_bf16_to_f32(half) : sl_f16_to_f32(half);
		}
	} else {
		for (uint64_t k = 0; k < n; k++)
			to[k] = sl_quant_load(from, at + k * size);
	}
	if (input == 0 && args->p[SL_QUANT_SCALE_ROWS]) {
		for (uint64_t k = 0; k < n; k++)
			to[k] *= sl_quant_block_scale(args, block, row, col + k);
	}
}

/* The largest size of the elements that one of `lanes` threads looks at: a chunk, and every lanes-th after it. */
SL_DEVICE uint32_t sl_quant_look(const struct sl_args *args, const struct sl_block *block, const struct sl_granule *g,
				 unsigned lane, unsigned lanes)
{
	const uint64_t all = args->p[SL_QUANT_ALL_COLS], first = all ? 0 : g->col, width = all ? all : g->n_cols,
		       across = (width + SL_QUANT_CHUNK - 1) / SL_QUANT_CHUNK;
	float values[SL_QUANT_CHUNK];
	uint32_t largest = 0;

	for (uint64_t i = lane; i < g->n_rows * across; i += lanes) {
		uint64_t col = i % across * SL_QUANT_CHUNK, n = sl_quant_min(SL_QUANT_CHUNK, width - col);
		sl_quant_load_some(args, block, all ? 2 : 0, g->row + i / across, first + col, n, values);
		for (uint64_t k = 0; k < n; k++)
			largest = sl_quant_larger(largest, values[k]);
	}
	return largest;
}

/* How many threads of a GPU share a granule: a power of two, so that each has a chunk at least. */
SL_DEVICE unsigned sl_quant_lanes(const struct sl_args *args)
{
	const uint64_t chunks = args->p[SL_QUANT_ROWS_OF] * args->p[SL_QUANT_COLS_OF] / SL_QUANT_CHUNK;
	unsigned lanes = 1;

	while (args->p[SL_QUANT_KIND] != SL_QUANT_TENSOR && lanes < SL_LANES_MAX && 2 * lanes <= chunks)
		lanes *= 2;
	return lanes;
}

SL_DEVICE float sl_quant_at_least(float value, float least)
{
	return value >= least || value != value ? value : least;
}

/* The exponent of the smallest power of two that is not below f, but for the rounding of its logarithm to F32. */
SL_DEVICE float sl_quant_exponent(float f)
{
	return ceilf((float)log2((double)f));
}

/* 2^e for whole e from -127 on. */
SL_DEVICE float sl_quant_power(float e)
{
	if (!(e <= 127))
		return e != e ? e : sl_f32_from_bits(0x7F800000);
	return e < -126 ? 0x1p-127f : sl_f32_from_bits((uint32_t)((int)e + 127) << 23);
}

SL_DEVICE float sl_quant_448th(const struct sl_args *args, float value)
{
	return args->p[SL_QUANT_CPU] ? value / 448.0f : value * (1.0f / 448.0f);
}

/* The scale of a granule whose largest value that is; of MX it is 2^exponent. */
SL_DEVICE float sl_quant_scale(const struct sl_args *args, float largest)
{
	switch (args->p[SL_QUANT_KIND]) {
	case SL_QUANT_TENSOR:
		return largest / 448.0f;
	case SL_QUANT_ROW:
		return sl_quant_at_least(largest / 448.0f, 1.0f / 229376.0f);
	case SL_QUANT_BLOCK:
		return sl_quant_448th(args, sl_quant_at_least(largest, 1e-4f));
	case SL_QUANT_UE8M0:
		return sl_quant_power(sl_quant_exponent(sl_quant_448th(args, sl_quant_at_least(largest, 1e-4f))));
	default: {
		float e = sl_quant_exponent(sl_quant_448th(args, sl_quant_at_least(largest, 0x1p-126f)));
		return sl_quant_power(e < -127 ? -127 : e > 127 ? 127 : e);
	}
	}
}

/* E4M3, cut to +-448, without a jump: whole numbers throughout, so that loops vectorise. A NaN is one. */
SL_DEVICE uint8_t sl_quant_e4m3(float value)
{
	int32_t bits = (int32_t)sl_f32_bits(value), size = bits & 0x7FFFFFFF;
	int32_t normal = (size + 0x7FFFF + ((size >> 20) & 1) - 0x3C000000) >> 20;
	int32_t small = (int32_t)sl_f32_bits(sl_f32_from_bits((uint32_t)size) + 0x1p14f) - 0x46800000;
	int32_t code = size < 0x3C800000 ? small : normal;

	code = size >= 0x43E00000 ? 0x7E : code;
	code = size > 0x7F800000 ? 0x7F : code;
	return (uint8_t)(code | ((bits >> 24) & 0x80));
}

/* What a granule's values are made codes with. */
struct sl_quant_by {
	float factor, divisor; /* one of them is 1 */
	bool nan_is_top;       /* a NaN becomes the largest code */
};

SL_DEVICE struct sl_quant_by sl_quant_by(const struct sl_args *args, float scale)
{
	struct sl_quant_by by = { 1.0f, 1.0f, false };

	if (args->p[SL_QUANT_KIND] == SL_QUANT_ROW || args->p[SL_QUANT_KIND] == SL_QUANT_MX)
		by.divisor = scale;
	else
		by.factor = 1.0f / scale;
	by.nan_is_top = args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR;
	return by;
}

SL_DEVICE uint8_t sl_quant_code(const struct sl_quant_by *by, float value)
{
	float x = value * by->factor / by->divisor;

	return by->nan_is_top && x != x ? 0x7E : sl_quant_e4m3(x);
}

/* ---- codes: a unit is a granule, or of TENSOR 16 elements of a row ---- */

SL_DEVICE uint64_t sl_quant_width(const struct sl_args *args)
{
	return args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR ? 16 : args->p[SL_QUANT_COLS_OF];
}

SL_DEVICE uint64_t sl_quant_height(const struct sl_args *args)
{
	return args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR ? 1 : args->p[SL_QUANT_ROWS_OF];
}

SL_DEVICE uint64_t sl_quant_units(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t w = sl_quant_width(args), h = sl_quant_height(args);

	return (block->out.n_rows + h - 1) / h * ((block->out.n_cols + w - 1) / w);
}

SL_DEVICE float sl_quant_fact(const struct sl_block *block)
{
	return sl_quant_load(SL_F32, block->facts + 4 * block->member);
}

SL_DEVICE struct sl_granule sl_quant_of_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t w = sl_quant_width(args), h = sl_quant_height(args), across = (block->out.n_cols + w - 1) / w;
	struct sl_granule g = { block->out.row + i / across * h, 0, block->out.col + i % across * w, 0 };

	g.n_rows = sl_quant_min(h, block->out.row + block->out.n_rows - g.row);
	g.n_cols = sl_quant_min(w, block->out.col + block->out.n_cols - g.col);
	return g;
}

SL_DEVICE uint32_t sl_quant_seen(const struct sl_args *args, const struct sl_block *block, uint64_t i, unsigned lane,
				 unsigned lanes)
{
	const struct sl_granule g = sl_quant_of_unit(args, block, i);

	if (args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR)
		return sl_f32_bits(sl_quant_fact(block));
	return sl_quant_look(args, block, &g, lane, lanes);
}

SL_DEVICE void sl_quant_make(const struct sl_args *args, const struct sl_block *block, uint64_t i, uint32_t seen,
			     unsigned lane, unsigned lanes)
{
	const struct sl_granule g = sl_quant_of_unit(args, block, i);
	const struct sl_quant_by by = sl_quant_by(args, sl_quant_scale(args, sl_f32_from_bits(seen)));
	const uint64_t across = (g.n_cols + SL_QUANT_CHUNK - 1) / SL_QUANT_CHUNK;
	float values[SL_QUANT_CHUNK];

	for (uint64_t k = lane; k < g.n_rows * across; k += lanes) {
		uint64_t row = g.row + k / across, col = k % across * SL_QUANT_CHUNK,
			 n = sl_quant_min(SL_QUANT_CHUNK, g.n_cols - col);
		unsigned char *to = block->dst + (row - block->out.row) * block->stride + g.col + col - block->out.col;
		sl_quant_load_some(args, block, 0, row, g.col + col, n, values);
		if (n == SL_QUANT_CHUNK) {
			uint64_t codes = 0;
			SL_UNROLL
			for (unsigned c = 0; c < SL_QUANT_CHUNK; c++)
				codes |= (uint64_t)sl_quant_code(&by, values[c]) << 8 * c;
			sl_8_store(to, codes);
			continue;
		}
		for (uint64_t c = 0; c < n; c++)
			to[c] = sl_quant_code(&by, values[c]);
	}
}

SL_DEVICE void sl_quant_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	sl_quant_make(args, block, i, sl_quant_seen(args, block, i, 0, 1), 0, 1);
}

/* ---- scales: a unit is one of them ---- */

SL_DEVICE unsigned sl_quant_scales_size(const struct sl_args *args)
{
	return args->p[SL_QUANT_KIND] == SL_QUANT_MX ? 1 : 4;
}

SL_DEVICE uint64_t sl_quant_scales_units(const struct sl_args *args, const struct sl_block *block)
{
	return block->out.n_rows * (block->out.n_cols / sl_quant_scales_size(args));
}

SL_DEVICE unsigned sl_quant_scales_lanes(const struct sl_args *args)
{
	return sl_quant_lanes(args);
}

SL_DEVICE struct sl_granule sl_quant_of_scale(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t size = sl_quant_scales_size(args), across = block->out.n_cols / size;
	uint64_t row = block->out.row + i / across, col = block->out.col / size + i % across;

	return sl_quant_granule(args, args->in[0].rows, row * args->p[SL_QUANT_ROWS_OF],
				col * args->p[SL_QUANT_COLS_OF]);
}

SL_DEVICE uint32_t sl_quant_scales_seen(const struct sl_args *args, const struct sl_block *block, uint64_t i,
					unsigned lane, unsigned lanes)
{
	if (args->p[SL_QUANT_KIND] == SL_QUANT_TENSOR)
		return sl_f32_bits(sl_quant_fact(block));
	const struct sl_granule g = sl_quant_of_scale(args, block, i);
	return sl_quant_look(args, block, &g, lane, lanes);
}

SL_DEVICE void sl_quant_scales_make(const struct sl_args *args, const struct sl_block *block, uint64_t i, uint32_t seen,
				    unsigned lane, unsigned lanes)
{
	unsigned size = sl_quant_scales_size(args);
	uint64_t across = block->out.n_cols / size;
	unsigned char *to = block->dst + i / across * block->stride + i % across * size;
	float scale = sl_quant_scale(args, sl_f32_from_bits(seen));

	(void)lanes;
	if (lane != 0)
		return;
	if (size == 1)
		*to = (unsigned char)(sl_f32_bits(scale) >> 23);
	else
		memcpy(to, &scale, sizeof(scale));
}

SL_DEVICE void sl_quant_scales_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	sl_quant_scales_make(args, block, i, sl_quant_scales_seen(args, block, i, 0, 1), 0, 1);
}

/* Elements [col, col + n) of a row of input 0 as floats, times their scales. */
void sl_quant_load_row(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col, uint64_t n,
		       float *to);

/* FP8 codes that are NaNs, scales that are not positive: for both, and for dequant.h. */
int sl_quant_inputs(const struct sl_args *args, const struct sl_block *block, struct sl_error *err);

#endif
