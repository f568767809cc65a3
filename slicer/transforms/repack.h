/*
 * repack.h - quantised values of 4 or 8 bits from the packing of a checkpoint to that of a kernel.
 *
 * What is packed is a matrix q of K rows, the inputs of a layer, and N columns, its outputs. Each packing is rows of elements, the
 * lowest bits of the first byte first; an element stands for one q[k][n]:
 *
 *      from WORDS     row k / 8, element 8 n + k % 8     words along K: GPTQ (4 for 8 where elements have 8 bits)
 *           ROWS      row n, element k                   compressed-tensors, nibbles of FP4, FP8
 *           AWQ       row k, element n, mixed within 8   words along N: AutoAWQ (within 4)
 *
 *      to   TILES     tiles of 16 x 64, Marlin's         csrc/quantization/marlin/gptq_marlin_repack.cu, awq_marlin_repack.cu
 *           TILES_A8  tiles of 32 x 32                   the same for activations of 8 bits
 *           WORDS     as above
 *           ZEROS     row k, columns mixed within 64     zero points, a row for each group: marlin_utils.py, marlin_zero_points
 *
 *      input 0   q, or its left half
 *      input 1   its right half; each half may have fewer columns than half of the output: it is padded by itself
 */
#ifndef SLICER_TRANSFORMS_REPACK_H
#define SLICER_TRANSFORMS_REPACK_H

#include "slicer/backend.h"
#include <stdbool.h>

enum sl_packing { SL_FROM_WORDS, SL_FROM_ROWS, SL_FROM_AWQ, SL_N_PACKINGS };
enum sl_packed { SL_TO_TILES, SL_TO_TILES_A8, SL_TO_WORDS, SL_TO_ZEROS, SL_N_PACKED };

/* Of sl_args.p: of an element; enum sl_packing, enum sl_packed; is the source's q turned, k for n; columns of a half of the output,
 * 0: one input. */
enum { SL_REPACK_BITS, SL_REPACK_FROM, SL_REPACK_TO, SL_REPACK_TURNED, SL_REPACK_HALF };

/* How many elements a word has, as a power of two: a GPU divides slowly. */
SL_DEVICE unsigned sl_repack_log(uint64_t bits)
{
	return bits == 4 ? 3 : 2;
}

/* How many rows of q a row of the output has. */
SL_DEVICE uint64_t sl_repack_depth(const struct sl_args *args)
{
	switch (args->p[SL_REPACK_TO]) {
	case SL_TO_TILES:
		return 16;
	case SL_TO_TILES_A8:
		return 32;
	case SL_TO_WORDS:
		return (uint64_t)1 << sl_repack_log(args->p[SL_REPACK_BITS]);
	default:
		return 1;
	}
}

/* How many columns of q are mixed with each other. */
SL_DEVICE uint64_t sl_repack_width(const struct sl_args *args)
{
	return args->p[SL_REPACK_TO] == SL_TO_TILES_A8 ? 32 : args->p[SL_REPACK_TO] == SL_TO_WORDS ? 1 : 64;
}

struct sl_repack_at {
	uint64_t k, n;
};

/* Where the value of element `e` of a tile stands in it: the tile is words of a thread t each, 4-bit ones for column and column + 8,
 * 8-bit ones two words. */
SL_DEVICE struct sl_repack_at sl_repack_in_tile(uint64_t bits, uint64_t e)
{
	struct sl_repack_at at;
	uint64_t of_words = e >> sl_repack_log(bits), i = e - (of_words << sl_repack_log(bits)), w, t, right, row;

	if (bits == 4) {
		t = of_words / 4, w = of_words % 4;
		right = i / 2 % 2;	       /* 0 0 1 1 0 0 1 1 */
		row = 8 * (i % 2) + i / 4 % 2; /* 0 8 0 8 1 9 1 9 */
	} else {
		t = of_words / 8, w = of_words % 8 / 2;
		right = of_words % 2;
		row = 8 * (i % 2) + i / 2; /* 0 8 1 9 */
	}
	at.k = 2 * (t % 4) + row;
	at.n = 16 * w + t / 4 + 8 * right;
	return at;
}

SL_DEVICE struct sl_repack_at sl_repack_in_tile_a8(uint64_t bits, uint64_t e)
{
	struct sl_repack_at at;
	uint64_t of_words = e >> sl_repack_log(bits), i = e - (of_words << sl_repack_log(bits)), w, t, low;

	if (bits == 4) {
		t = of_words / 4, w = of_words % 4;
		low = i % 2; /* 0 4 1 5 2 6 3 7 */
		i /= 2;
	} else {
		t = of_words / 8, w = of_words % 8 / 2;
		low = of_words % 2;
	}
	at.k = 4 * (t % 4) + i + 16 * low;
	at.n = 16 * (w / 2) + 8 * (w % 2) + t / 4;
	return at;
}

/* The column of 64 zero points of which element `e` holds: 8 x 8 turned, then mixed within a word. */
SL_DEVICE uint64_t sl_repack_zero(uint64_t bits, uint64_t e)
{
	uint64_t i = bits == 4 ? e % 8 : e % 4, mixed = e - i + (bits == 4 ? i % 4 * 2 + i / 4 : i % 2 * 2 + i / 2);

	return mixed / 8 + 8 * (mixed % 8);
}

/* Elements of a row that are mixed with each other, as a power of two. */
SL_DEVICE unsigned sl_repack_log_tile(const struct sl_args *args)
{
	switch (args->p[SL_REPACK_TO]) {
	case SL_TO_WORDS:
		return sl_repack_log(args->p[SL_REPACK_BITS]);
	case SL_TO_ZEROS:
		return 6;
	default:
		return 10;
	}
}

/* The value of element `e` of a row of the output. */
SL_DEVICE struct sl_repack_at sl_repack_source(const struct sl_args *args, uint64_t row, uint64_t e)
{
	uint64_t bits = args->p[SL_REPACK_BITS], tile = e >> sl_repack_log_tile(args);
	struct sl_repack_at at;

	e -= tile << sl_repack_log_tile(args);
	switch (args->p[SL_REPACK_TO]) {
	case SL_TO_TILES:
		at = sl_repack_in_tile(bits, e);
		break;
	case SL_TO_TILES_A8:
		at = sl_repack_in_tile_a8(bits, e);
		break;
	case SL_TO_WORDS:
		at.k = e;
		at.n = 0;
		break;
	default:
		at.k = 0;
		at.n = sl_repack_zero(bits, e);
		break;
	}
	at.k += row * sl_repack_depth(args);
	at.n += tile * sl_repack_width(args);
	return at;
}

/* One value of a source that is packed. */
SL_DEVICE unsigned sl_repack_value(const struct sl_args *args, const struct sl_block *block, uint64_t k, uint64_t n)
{
	uint64_t half = args->p[SL_REPACK_HALF], row = k, e, i;
	unsigned input = half && n >= half, log = sl_repack_log(args->p[SL_REPACK_BITS]);

	n -= input ? half : 0;
	if (args->p[SL_REPACK_TURNED]) {
		k = n;
		n = row;
		row = k;
	}
	if (args->p[SL_REPACK_FROM] == SL_FROM_WORDS) {
		row = k >> log;
		e = (n << log) + k - (row << log);
	} else if (args->p[SL_REPACK_FROM] == SL_FROM_ROWS) {
		row = n;
		e = k;
	} else { /* column 0 2 4 6 1 3 5 7 of a word in nibble 0 … 7; 0 2 1 3 in byte 0 … 3 */
		i = n - (n >> log << log);
		e = n - i + (i % 2 << log) / 2 + i / 2;
	}
	const struct sl_rect *in = &block->in[input];
	unsigned byte = block->bytes[input][(row - in->row) * in->n_cols + (log == 2 ? e : e / 2) - in->col];
	return log == 2 ? byte : byte >> e % 2 * 4 & 15;
}

/* A unit is 16 bytes of a row. */
SL_DEVICE uint64_t sl_repack_units(const struct sl_args *args, const struct sl_block *block)
{
	(void)args;
	return block->out.n_rows * ((block->out.n_cols + 15) / 16);
}

SL_DEVICE void sl_repack_unit(const struct sl_args *args, const struct sl_block *block, uint64_t i)
{
	uint64_t width = block->out.n_cols, per_row = (width + 15) / 16, row = i / per_row, c = i % per_row * 16;
	unsigned char *to = block->dst + row * block->stride;
	unsigned bits = args->p[SL_REPACK_BITS] == 4 ? 4 : 8;

	for (uint64_t end = c + 16 < width ? c + 16 : width; c < end; c++) {
		unsigned byte = 0;
		for (uint64_t shift = 0; shift < 8; shift += bits) {
			struct sl_repack_at at =
				sl_repack_source(args, block->out.row + row, ((block->out.col + c) * 8 + shift) / bits);
			byte |= sl_repack_value(args, block, at.k, at.n) << shift;
		}
		to[c] = (unsigned char)byte;
	}
}

#endif
