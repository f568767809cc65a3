/*
 * swizzle.c - a row of tiles at a time: words of four scales from 128 rows, in squares of four by four that are turned.
 */
#include "slicer/transforms/swizzle.h"

#include "slicer/transform.h"

#include <string.h>

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = 1;
	*bytes = SL_SWIZZLE_TILE;
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	*in = sl_rows_needed(args, input, out->row * SL_SWIZZLE_ROWS, out->n_rows * SL_SWIZZLE_ROWS);
	in->col = out->col / SL_SWIZZLE_ROWS;
	in->n_cols = in->n_rows ? out->n_cols / SL_SWIZZLE_ROWS : 0;
}

/* The rows of a row of tiles, at the block's first column; NULL below the last one. */
static void rows_of(const struct sl_args *args, const struct sl_block *block, uint64_t r,
		    const unsigned char *from[SL_SWIZZLE_ROWS])
{
	uint64_t first = (block->out.row + r) * SL_SWIZZLE_ROWS, m = args->p[SL_ROWS_M];
	unsigned n = m - first < SL_SWIZZLE_ROWS ? (unsigned)(m - first) : SL_SWIZZLE_ROWS;
	uint32_t source[SL_SWIZZLE_ROWS];

	sl_rows_sources(args, first, n, source);
	for (unsigned i = 0; i < SL_SWIZZLE_ROWS; i++)
		from[i] = i < n ? sl_rows_at(args, block, source[i], block->out.col / SL_SWIZZLE_ROWS) : NULL;
}

/* Words of four rows from tile `first` on: 16 bytes of each tile. */
static void words(const unsigned char *const from[SL_SWIZZLE_ROWS], uint64_t first, uint64_t n_tiles, unsigned char *to)
{
	for (uint64_t k = first; k < n_tiles; k++) {
		for (unsigned q = 0; q < 4; q++) {
			if (from[q * 32])
				memcpy(to + k * SL_SWIZZLE_TILE + q * 4, from[q * 32] + k * 4, 4);
			else
				memset(to + k * SL_SWIZZLE_TILE + q * 4, 0, 4);
		}
	}
}

typedef uint32_t four __attribute__((vector_size(16)));

static inline four load(const unsigned char *from)
{
	four value;

	memcpy(&value, from, sizeof(value));
	return value;
}

static inline void store(unsigned char *to, four value)
{
	memcpy(to, &value, sizeof(value));
}

/* The same of four tiles, a square of words turned; all four rows are there. */
static inline void turn(const unsigned char *const from[SL_SWIZZLE_ROWS], uint64_t k, unsigned char *to)
{
	four a = load(from[0] + k * 4), b = load(from[32] + k * 4), c = load(from[64] + k * 4),
	     d = load(from[96] + k * 4);
	four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
	four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);

	to += k * SL_SWIZZLE_TILE;
	store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
	store(to + SL_SWIZZLE_TILE, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
	store(to + 2 * SL_SWIZZLE_TILE, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
	store(to + 3 * SL_SWIZZLE_TILE, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

/* A row of tiles; 64 bytes of four tiles at a time. */
static void tiles(const unsigned char *const from[SL_SWIZZLE_ROWS], uint64_t n_tiles, unsigned char *to)
{
	uint64_t whole = from[SL_SWIZZLE_ROWS - 1] ? n_tiles / 4 * 4 : 0;

	for (unsigned i = 0; i < 32; i += 4) {
		for (uint64_t k = 0; k < whole; k += 4) {
			for (unsigned x = i; x < i + 4; x++)
				turn(from + x, k, to + x * 16);
		}
	}
	for (unsigned i = 0; i < 32; i++)
		words(from + i, whole, n_tiles, to + i * 16);
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	const unsigned char *from[SL_SWIZZLE_ROWS];

	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		rows_of(args, block, r, from);
		tiles(from, block->out.n_cols / SL_SWIZZLE_TILE, block->dst + r * block->stride);
	}
}

const struct sl_transform_row sl_transform_swizzle = {
	"swizzle", granule, need, NULL, NULL, run, sl_swizzle_units, sl_swizzle_unit, NULL,
};
