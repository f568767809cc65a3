/*
 * regroup.c - reading F4 as FP8 (DeepSeek-V4, inference/convert.py, cast_e2m1fn_to_e4m3fn).
 *
 *      stored   F4 [o, i],  a scale F8_E8M0 for each 32 elements of a row: [o, i/32]
 *      held     F8_E4M3 [o, i],  a scale F8_E8M0 for each block of 128 x 128: [o/128, i/128]
 *
 * A block's scale is the greatest of its groups' divided by 64: F4's greatest number is 6, and 6 x 64 is FP8's last power of
 * two times 6. An element is multiplied by what its group's scale is of the block's; only in groups that are far below the
 * greatest one is it rounded.
 */
#include "slicer/convert.h"
#include "slicer/piece.h"

#include <math.h>

enum {
	BLOCK = 128,
	GROUP = 32,
	GROUPS = BLOCK / GROUP, /* of a block's row */
	WIDTH = 8192,		/* columns that are made at once */
	VALUES = 64 << 10,	/* bytes of F4 that are read at once */
};

/* As the converter has them: its minus zero is a zero. */
static const float numbers[16] = { 0, .5F, 1, 1.5F, 2, 3, 4, 6, 0, -.5F, -1, -1.5F, -2, -3, -4, -6 };

/* Rows and columns of the output that are made at once: inside one row of blocks. */
struct tile {
	uint64_t row, n_rows, col, n_cols;
	unsigned char scales[BLOCK * (WIDTH / GROUP)]; /* of the blocks that it touches */
	uint64_t first_group, n_groups;		       /* which: columns of them */
	float blocks[WIDTH / BLOCK];		       /* what the blocks' scales become */
};

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* `n_rows` rows of a stored matrix, `n` bytes of each from `at` on. */
static int read_block(const struct sl_model *model, const struct sl_piece *matrix, uint64_t row, uint64_t n_rows,
		      uint64_t at, uint64_t n, unsigned char *dst, struct sl_error *err)
{
	struct sl_piece block = *matrix;

	block.src += row * matrix->stride + at;
	block.run = n;
	block.count = (uint32_t)n_rows;
	block.len = n * n_rows;
	return sl_piece_read(model, &block, 0, block.len, dst, err);
}

/* The scale of a block of which the first group's scale is `at`; no number when one of them is none. */
static float scale_of(const unsigned char *at, uint64_t stride)
{
	float greatest = 0;

	for (unsigned r = 0; r < BLOCK; r++) {
		for (unsigned g = 0; g < GROUPS; g++) {
			float scale = sl_f8_e8m0_to_f32(at[r * stride + g]);
			if (isnan(scale))
				return scale;
			greatest = scale > greatest ? scale : greatest;
		}
	}
	return greatest / 64;
}

static int read_scales(const struct sl_model *model, const struct sl_piece *scales, struct tile *t,
		       struct sl_error *err)
{
	uint64_t first = t->col / BLOCK, end = (t->col + t->n_cols + BLOCK - 1) / BLOCK;

	t->first_group = first * GROUPS;
	t->n_groups = (end - first) * GROUPS;
	int ret = read_block(model, scales, t->row / BLOCK * BLOCK, BLOCK, t->first_group, t->n_groups, t->scales, err);
	for (uint64_t b = 0; b < end - first && !ret; b++)
		t->blocks[b] = scale_of(t->scales + b * GROUPS, t->n_groups);
	return ret;
}

/* Elements of one row that share a scale; `at` is the first one's byte, in which it is the upper half where `odd`. */
static void make_group(const unsigned char *at, bool odd, float factor, uint64_t n, unsigned char *dst)
{
	unsigned char codes[16];

	for (unsigned i = 0; i < 16; i++)
		codes[i] = sl_f32_to_f8_e4m3(numbers[i] * factor);
	for (uint64_t i = 0, nibble = odd; i < n; i++, nibble++)
		dst[i] = codes[at[nibble / 2] >> (nibble % 2 * 4) & 15];
}

/* One row of a tile; `stored` begins with the byte of its first element. */
static void make_row(const struct tile *t, uint64_t row, const unsigned char *stored, unsigned char *dst)
{
	const unsigned char *scales = t->scales + row % BLOCK * t->n_groups;
	uint64_t end = t->col + t->n_cols, now;

	for (uint64_t col = t->col; col < end; col += now) {
		uint64_t group = col / GROUP - t->first_group;
		now = min(end - col, GROUP - col % GROUP);
		make_group(stored + (col / 2 - t->col / 2), col % 2,
			   sl_f8_e8m0_to_f32(scales[group]) / t->blocks[group / GROUPS], now, dst + (col - t->col));
	}
}

/* `dst` is where the tile's first element goes, `pitch` the distance between its rows. */
static int make_tile(const struct sl_model *model, const struct sl_piece *p, struct tile *t, unsigned char *dst,
		     uint64_t pitch, struct sl_error *err)
{
	unsigned char stored[VALUES];
	uint64_t from = t->col / 2, width = (t->col + t->n_cols + 1) / 2 - from, now;
	int ret = read_scales(model, &p->compound->parts[1], t, err);

	for (uint64_t r = 0; r < t->n_rows && !ret; r += now) {
		now = min(t->n_rows - r, VALUES / width);
		ret = read_block(model, &p->compound->parts[0], t->row + r, now, from, width, stored, err);
		for (uint64_t i = 0; i < now && !ret; i++)
			make_row(t, t->row + r + i, stored + i * width, dst + (r + i) * pitch);
	}
	return ret;
}

int sl_regroup_values(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
		      unsigned char *dst, struct sl_error *err)
{
	struct tile t;
	uint64_t cols = p->run;
	int ret = 0;

	while (n > 0 && !ret) {
		uint64_t col = first % cols, end = min(cols, col + n);
		t.row = first / cols;
		t.n_rows = col == 0 && end == cols ? min(n / cols, BLOCK - t.row % BLOCK) : 1;
		for (t.col = col; t.col < end && !ret; t.col += t.n_cols) {
			t.n_cols = min(end - t.col, WIDTH - t.col % BLOCK);
			ret = make_tile(model, p, &t, dst + (t.col - col), cols, err);
		}
		uint64_t done = t.n_rows * (end - col);
		dst += done;
		first += done;
		n -= done;
	}
	return ret;
}

int sl_regroup_scales(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
		      unsigned char *dst, struct sl_error *err)
{
	struct tile t = { .n_rows = 1 };
	int ret = 0;

	for (uint64_t now; n > 0 && !ret; first += now, n -= now) {
		t.row = first / p->run * BLOCK;
		t.col = first % p->run * BLOCK;
		now = min(min(n, p->run - first % p->run), WIDTH / BLOCK);
		t.n_cols = now * BLOCK;
		ret = read_scales(model, &p->compound->parts[0], &t, err);
		for (uint64_t i = 0; i < now && !ret; i++)
			*dst++ = sl_f32_to_f8_e8m0(t.blocks[i]);
	}
	return ret;
}
