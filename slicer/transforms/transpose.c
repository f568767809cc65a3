/*
 * transpose.c - bytes are turned in tiles of 16 x 16, in registers; other elements in tiles that stay in the cache.
 */
#include "slicer/transforms/transpose.h"

#include "slicer/transform.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
	uint64_t size = args->p[SL_TRANSPOSE_SIZE], across = block->out.n_cols / size;

	for (uint64_t y = r; y < r + rows; y++) {
		for (uint64_t x = c; x < c + cols; x++)
			sl_transpose_unit(args, block, y * across + x);
	}
}

#ifdef __SSE2__
/* 16 rows of 16 bytes, `pitch` apart, to 16 rows of 16 bytes: four rounds that each interleave row i with row i + 8. */
static void turn_tile(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride)
{
	__m128i a[TILE], b[TILE];

	for (unsigned i = 0; i < TILE; i++)
		a[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + i * pitch));
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < TILE / 2; i++) {
			b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + TILE / 2]);
			b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + TILE / 2]);
		}
		memcpy(a, b, sizeof(a));
	}
	for (unsigned i = 0; i < TILE; i++)
		_mm_storeu_si128((__m128i *)(void *)(to + i * stride), a[i]);
}
#else
static void turn_tile(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride)
{
	for (unsigned i = 0; i < TILE; i++) {
		for (unsigned j = 0; j < TILE; j++)
			to[i * stride + j] = from[j * pitch + i];
	}
}
#endif

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t size = args->p[SL_TRANSPOSE_SIZE], rows = block->out.n_rows, cols = block->out.n_cols / size;

	for (uint64_t r = 0; r < rows; r += TILE) {
		for (uint64_t c = 0; c < cols; c += TILE) {
			if (size == 1 && r + TILE <= rows && c + TILE <= cols)
				turn_tile(block->bytes[0] + c * block->in[0].n_cols + r, block->in[0].n_cols,
					  block->dst + r * block->stride + c, block->stride);
			else
				turn(args, block, r, min(TILE, rows - r), c, min(TILE, cols - c));
		}
	}
}

const struct sl_transform_row sl_transform_transpose = {
	"transpose", granule, need, NULL, NULL, run, sl_transpose_units, sl_transpose_unit, NULL,
};
