/*
 * repack.c - which rectangle of a packed source a block needs.
 */
#include "slicer/transforms/repack.h"

#include "slicer/transform.h"
#include "slicer/transforms/repack_avx2.h"
#include "slicer/transforms/turn.h"

#include <string.h>

/* Bytes of a row of the output that a column of q takes, in bits. */
static uint64_t column_bits(const struct sl_args *args)
{
	return sl_repack_depth(args) * args->p[SL_REPACK_BITS];
}

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = column_bits(args) * sl_repack_width(args) / 8;
}

/* Rows and columns of q, or of a half of it. */
struct range {
	uint64_t first, end;
};

/* The columns of one input among those of both. */
static struct range of_input(const struct sl_args *args, unsigned input, struct range n)
{
	uint64_t half = args->p[SL_REPACK_HALF], low = input * half, high = half ? low + half : UINT64_MAX;

	n.first = (n.first < low ? low : n.first > high ? high : n.first) - low;
	n.end = (n.end < low ? low : n.end > high ? high : n.end) - low;
	return n;
}

/* What of a packed source holds these rows and columns of q. */
static struct sl_rect packed(uint64_t bits, enum sl_packing from, struct range k, struct range n)
{
	uint64_t per_word = 32 / bits;

	if (from == SL_FROM_WORDS)
		return (struct sl_rect){ k.first / per_word, (k.end + per_word - 1) / per_word - k.first / per_word,
					 n.first * 4, (n.end - n.first) * 4 };
	if (from == SL_FROM_ROWS)
		return (struct sl_rect){ n.first, n.end - n.first, k.first * bits / 8,
					 (k.end * bits + 7) / 8 - k.first * bits / 8 };
	return (struct sl_rect){ k.first, k.end - k.first, n.first / per_word * 4,
				 (n.end + per_word - 1) / per_word * 4 - n.first / per_word * 4 };
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t depth = sl_repack_depth(args), width = column_bits(args);
	struct range k = { out->row * depth, (out->row + out->n_rows) * depth },
		     n = { out->col * 8 / width, ((out->col + out->n_cols) * 8 + width - 1) / width };

	n = of_input(args, input, n);
	if (n.first == n.end)
		return;
	if (args->p[SL_REPACK_TURNED])
		*in = packed(args->p[SL_REPACK_BITS], (enum sl_packing)args->p[SL_REPACK_FROM], n, k);
	else
		*in = packed(args->p[SL_REPACK_BITS], (enum sl_packing)args->p[SL_REPACK_FROM], k, n);
}

/* ---- nibbles of words of 4 bits ---- */

static uint32_t load_word(const unsigned char *from)
{
	uint32_t word;

	memcpy(&word, from, sizeof(word));
	return word;
}

/* AWQ to words along K: a word of each of eight rows has eight columns; turned, each of them has eight rows. */
static void awq_words(const unsigned char *from, uint64_t pitch, unsigned char *to)
{
	uint32_t w[8];

	for (unsigned i = 0; i < 8; i++)
		w[i] = load_word(from + i * pitch);
	sl_turn_nibbles(w);
	const uint32_t columns[8] = { w[0], w[4], w[1], w[5], w[2], w[6], w[3], w[7] };
	memcpy(to, columns, sizeof(columns));
}

/* Zero points of 64 columns, eight words of eight columns each: word i of the output has the i-th of each. `step` from one to the
 * next in the source, in which AWQ has mixed them. */
static void zero_words(const unsigned char *from, uint64_t step, bool awq, unsigned char *to)
{
	uint32_t w[8];

	for (unsigned i = 0; i < 8; i++) /* nibbles of the output: 0 2 4 6 1 3 5 7 */
		w[i] = load_word(from + (i % 4 * 2 + i / 4) * step);
	sl_turn_nibbles(w);
	const uint32_t mixed[8] = { w[0], w[4], w[1], w[5], w[2], w[6], w[3], w[7] };
	memcpy(to, awq ? mixed : w, sizeof(mixed));
}

/* Where word `word` of a row of the source is, of the input that has column n of q. */
static const unsigned char *word_at(const struct sl_args *args, const struct sl_block *block, uint64_t k, uint64_t n,
				    uint64_t *pitch)
{
	uint64_t half = args->p[SL_REPACK_HALF];
	unsigned input = half && n >= half;
	const struct sl_rect *in = &block->in[input];

	n = (n - (input ? half : 0)) / 8;
	*pitch = in->n_cols;
	if (args->p[SL_REPACK_TURNED])
		return block->bytes[input] + (n - in->row) * in->n_cols + k * 4 - in->col;
	return block->bytes[input] + (k - in->row) * in->n_cols + n * 4 - in->col;
}

/* A row of words, 64 or 8 columns at once. */
static void run_awq_words(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		unsigned char *to = block->dst + r * block->stride;
		for (uint64_t c = 0, now; c < block->out.n_cols; c += now) {
			uint64_t pitch;
			const unsigned char *from =
				word_at(args, block, (block->out.row + r) * 8, (block->out.col + c) / 4, &pitch);
			now = c + 256 <= block->out.n_cols && sl_repack_awq_words_avx2(from, pitch, to + c) ? 256 : 32;
			if (now == 32)
				awq_words(from, pitch, to + c);
		}
	}
}

/* 64 columns, eight rows or one at once. */
static void run_zeros(const struct sl_args *args, const struct sl_block *block)
{
	bool awq = args->p[SL_REPACK_FROM] == SL_FROM_AWQ;
	uint64_t n_rows = block->out.n_rows, stride = block->stride;

	for (uint64_t c = 0; c < block->out.n_cols; c += 32) {
		for (uint64_t r = 0, now; r < n_rows; r += now) {
			uint64_t pitch;
			unsigned char *to = block->dst + r * stride + c;
			const unsigned char *from =
				word_at(args, block, block->out.row + r, (block->out.col + c) * 2, &pitch);
			now = r + 8 <= n_rows && sl_repack_zeros_avx2(from, pitch, awq, to, stride) ? 8 : 1;
			if (now == 1)
				zero_words(from, awq ? 4 : pitch, awq, to);
		}
	}
}

/* ---- tiles, a word at a time: any processor ---- */

/* Words along K of a tile, whatever its packing is: two rows of them, or four. */
static void awq_words_8(const unsigned char *from, uint64_t pitch, uint32_t columns[4])
{
	static const unsigned order[4] = { 0, 2, 1, 3 };

	for (unsigned c = 0; c < 4; c++) {
		columns[c] = 0;
		for (unsigned i = 0; i < 4; i++)
			columns[c] |= (uint32_t)from[i * pitch + order[c]] << 8 * i;
	}
}

static void find_words(const struct sl_args *args, const struct sl_packed_at *s, uint32_t x[4][64])
{
	uint64_t bits = args->p[SL_REPACK_BITS], per_word = 32 / bits, n_rows = 16 / per_word;

	for (unsigned j = 0; j < n_rows; j++) {
		if (args->p[SL_REPACK_FROM] == SL_FROM_WORDS) {
			memcpy(x[j], s->from + j * s->pitch, sizeof(x[j]));
			continue;
		}
		for (unsigned n = 0; n < 64 && args->p[SL_REPACK_FROM] == SL_FROM_ROWS; n++)
			x[j][n] = load_word(s->from + n * s->pitch + 4 * j);
		for (unsigned n = 0; n < 64 && args->p[SL_REPACK_FROM] == SL_FROM_AWQ; n += (unsigned)per_word) {
			const unsigned char *from = s->from + j * per_word * s->pitch + n * bits / 8;
			if (bits == 4)
				awq_words(from, s->pitch, (unsigned char *)&x[j][n]);
			else
				awq_words_8(from, s->pitch, &x[j][n]);
		}
	}
}

/* Byte b of each. */
static void put_bytes(unsigned char *to, unsigned b, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3)
{
	to[0] = (unsigned char)(w0 >> 8 * b);
	to[1] = (unsigned char)(w1 >> 8 * b);
	to[2] = (unsigned char)(w2 >> 8 * b);
	to[3] = (unsigned char)(w3 >> 8 * b);
}

/* repack_avx2.c says what goes where. */
static void tile_of_words(uint64_t bits, uint32_t x[4][64], unsigned char *to)
{
	const uint32_t low = 0x0F0F0F0F;

	for (unsigned c = 0; c < 64; c++) {
		unsigned a = c % 8, v = c / 8;
		for (unsigned b = 0; b < 4 && bits == 8; b++) {
			uint32_t even = x[b / 2][c], odd = x[b / 2 + 2][c];
			put_bytes(to + 128 * a + 32 * b + 4 * v, b % 2 * 2, even, odd, even >> 8, odd >> 8);
		}
		for (unsigned b = 0; b < 4 && bits == 4 && v % 2 == 0; b++) {
			const uint32_t *p = &x[0][c], *q = &x[1][c]; /* and of column c + 8 */
			put_bytes(to + 64 * a + 16 * b + 2 * v, b, (p[0] & low) | (q[0] & low) << 4,
				  (p[8] & low) | (q[8] & low) << 4, (p[0] >> 4 & low) | (q[0] & ~low),
				  (p[8] >> 4 & low) | (q[8] & ~low));
		}
	}
}

static void run_tiles(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t bits = args->p[SL_REPACK_BITS], size = 128 * bits;
	uint32_t x[4][64];

	for (uint64_t r = 0; r < block->out.n_rows; r++) {
		for (uint64_t c = 0; c < block->out.n_cols; c += size) {
			struct sl_packed_at at =
				sl_packed_at(args, block, (block->out.row + r) * 16, (block->out.col + c) / size * 64);
			find_words(args, &at, x);
			tile_of_words(bits, x, block->dst + r * block->stride + c);
		}
	}
}

static void run_units(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_repack_units(args, block); i++)
		sl_repack_unit(args, block, i);
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t from = args->p[SL_REPACK_FROM], to = args->p[SL_REPACK_TO];
	bool nibbles = args->p[SL_REPACK_BITS] == 4, is_turned = args->p[SL_REPACK_TURNED];

	if (nibbles && to == SL_TO_WORDS && from == SL_FROM_AWQ && !is_turned && block->out.n_cols % 32 == 0 &&
	    block->out.col % 32 == 0)
		run_awq_words(args, block);
	else if (nibbles && to == SL_TO_ZEROS && is_turned == (from == SL_FROM_WORDS) && from != SL_FROM_ROWS)
		run_zeros(args, block);
	else if (to != SL_TO_TILES || is_turned)
		run_units(args, block);
	else if (!sl_repack_avx2(args, block))
		run_tiles(args, block);
}

const struct sl_transform_row sl_transform_repack = {
	"repack", granule, need, NULL, NULL, run, sl_repack_units, sl_repack_unit, NULL,
};
