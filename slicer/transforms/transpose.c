/*
 * transpose.c - bytes are turned in tiles of 16 x 16, in registers; other elements in tiles that stay in the cache.
 */
#include "slicer/transforms/transpose.h"

#include "slicer/transform.h"
#include "slicer/transforms/turn.h"

#include <string.h>

enum { TILE = 16 };

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = args->p[SL_TRANSPOSE_SIZE];
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t size = args->p[SL_TRANSPOSE_SIZE];

	(void)input;
	*in = (struct sl_rect){ out->col / size, out->n_cols / size, out->row * size, out->n_rows * size };
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Elements [r, r + rows) x [c, c + cols) of the block's output. */
static void turn(const struct sl_args *args, const struct sl_block *block, uint64_t r, uint64_t rows, uint64_t c,
		 uint64_t cols)
{
	for (uint64_t y = r; y < r + rows; y++) {
		for (uint64_t x = c; x < c + cols; x++)
			sl_transpose_element(args, block, y, x);
	}
}

/* 16 rows of 16 bytes, `pitch` apart, to 16 rows of 16 bytes. */
static void turn_tile(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride)
{
	sl_v16 v[TILE];

	for (unsigned i = 0; i < TILE; i++)
		memcpy(&v[i], from + i * pitch, sizeof(v[i]));
	sl_turn_16(v);
	for (unsigned i = 0; i < TILE; i++)
		memcpy(to + i * stride, &v[i], sizeof(v[i]));
}

enum { LINE = 64 };

/* 16 rows of 64 bytes: a line of the cache of each at once. Rows that are a power of two apart share a few places in the cache. */
static void turn_lines(const struct sl_block *block, uint64_t r, uint64_t c)
{
	unsigned char lines[TILE * LINE];
	uint64_t pitch = block->in[0].n_cols;

	for (unsigned i = 0; i < LINE; i += TILE)
		turn_tile(block->bytes[0] + (c + i) * pitch + r, pitch, lines + i, LINE);
	for (unsigned i = 0; i < TILE; i++)
		memcpy(block->dst + (r + i) * block->stride + c, lines + i * LINE, LINE);
}

/* Bytes in tiles, but for those at the edges. */
static void turn_bytes(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t rows = block->out.n_rows / TILE * TILE, cols = block->out.n_cols / LINE * LINE;

	for (uint64_t r = 0; r < rows; r += TILE) {
		for (uint64_t c = 0; c < cols; c += LINE)
			turn_lines(block, r, c);
	}
	turn(args, block, 0, rows, cols, block->out.n_cols - cols);
	turn(args, block, rows, block->out.n_rows - rows, 0, block->out.n_cols);
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t size = args->p[SL_TRANSPOSE_SIZE], rows = block->out.n_rows, cols = block->out.n_cols / size;

	if (size == 1) {
		turn_bytes(args, block);
		return;
	}
	for (uint64_t r = 0; r < rows; r += TILE) {
		for (uint64_t c = 0; c < cols; c += TILE)
			turn(args, block, r, min(TILE, rows - r), c, min(TILE, cols - c));
	}
}

const struct sl_transform_row sl_transform_transpose = {
	"transpose", granule, need, NULL, NULL, run, sl_transpose_units, sl_transpose_unit, NULL,
};
