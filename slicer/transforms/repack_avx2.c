/*
 * repack_avx2.c - Marlin's tiles with 32-byte vectors.
 *
 * A tile of 16 x 64 has 16 bytes (32 where elements have 8 bits) for each a < 8 and b < 4: columns a, a + 8, … a + 56 of rows
 * 2b, 2b + 8, 2b + 1, 2b + 9, which stand in a word of 4-bit elements as those of two columns that are 8 apart, nibble by nibble
 *
 *      2b   2b+8  2b   2b+8     2b+1 2b+9  2b+1 2b+9     rows
 *      c    c     c+8  c+8      c    c     c+8  c+8      columns
 *
 * So whatever the packing was, values of rows that are 8 apart are joined to bytes first ("low" the even rows, "high" the odd
 * ones), bytes are then brought together by unpacking, and words by turning 4 x 4 or 8 x 8 of them.
 */
#include "slicer/transforms/repack_avx2.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

enum { WIDTH = 64 }; /* columns of a tile */

static inline AVX2 __m256i load(const unsigned char *from)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

static inline AVX2 void store(unsigned char *to, __m256i v)
{
	_mm256_storeu_si256((__m256i *)(void *)to, v);
}

/* Lane j of vector i becomes lane i of vector j. */
static inline AVX2 void turn_8(__m256i v[8])
{
	__m256i pairs[8], fours[8];

	for (int i = 0; i < 8; i += 2) {
		pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
		pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
		fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
		fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
		fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
	}
	for (int i = 0; i < 4; i++) {
		v[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
		v[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
	}
}

/* The same of 4 x 4 in each half of the vectors; then two and two, the lower halves to `low`, the upper ones to `high`. */
static inline AVX2 void turn_4(const __m256i v[4], unsigned char *low, unsigned char *high)
{
	__m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]),
		c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
	__m256i v0 = _mm256_unpacklo_epi64(a, b), v1 = _mm256_unpackhi_epi64(a, b), v2 = _mm256_unpacklo_epi64(c, d),
		v3 = _mm256_unpackhi_epi64(c, d);

	store(low, _mm256_permute2x128_si256(v0, v1, 0x20));
	store(low + 32, _mm256_permute2x128_si256(v2, v3, 0x20));
	store(high, _mm256_permute2x128_si256(v0, v1, 0x31));
	store(high + 32, _mm256_permute2x128_si256(v2, v3, 0x31));
}

/* The lower nibbles of two vectors as bytes, and the upper ones. */
static inline AVX2 __m256i join_low(__m256i x, __m256i y)
{
	const __m256i mask = _mm256_set1_epi8(15);

	return _mm256_or_si256(_mm256_and_si256(x, mask), _mm256_slli_epi32(_mm256_and_si256(y, mask), 4));
}

static inline AVX2 __m256i join_high(__m256i x, __m256i y)
{
	const __m256i mask = _mm256_set1_epi8(15);

	return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(x, 4), mask), _mm256_andnot_si256(mask, y));
}

/* ---- words along K ---- */

/* Two rows of words; vector v of them has columns 8v … 8v + 7. */
static AVX2 void words_4(const unsigned char *from, uint64_t pitch, unsigned char *to)
{
	__m256i r[4][4];

	for (int w = 0; w < 4; w++) {
		__m256i low[2], high[2];
		for (int s = 0; s < 2; s++) {
			__m256i x = load(from + 32 * (2 * w + s)), y = load(from + pitch + 32 * (2 * w + s));
			low[s] = join_low(x, y);
			high[s] = join_high(x, y);
		}
		__m256i p = _mm256_unpacklo_epi8(low[0], low[1]), q = _mm256_unpacklo_epi8(high[0], high[1]);
		r[0][w] = _mm256_unpacklo_epi16(p, q);
		r[1][w] = _mm256_unpackhi_epi16(p, q);
		p = _mm256_unpackhi_epi8(low[0], low[1]), q = _mm256_unpackhi_epi8(high[0], high[1]);
		r[2][w] = _mm256_unpacklo_epi16(p, q);
		r[3][w] = _mm256_unpackhi_epi16(p, q);
	}
	for (int a = 0; a < 4; a++)
		turn_4(r[a], to + 64 * a, to + 64 * (a + 4));
}

/* Four rows of words: two that are 8 rows of q apart make two of the b. */
static AVX2 void words_8(const unsigned char *from, uint64_t pitch, unsigned char *to)
{
	static const int columns[2][4] = { { 0, 1, 4, 5 }, { 2, 3, 6, 7 } };

	for (int half = 0; half < 2; half++, from += pitch) {
		__m256i v[2][8];
		for (int i = 0; i < 8; i++) {
			__m256i x = load(from + 32 * i), y = load(from + 2 * pitch + 32 * i);
			v[0][i] = _mm256_unpacklo_epi8(x, y);
			v[1][i] = _mm256_unpackhi_epi8(x, y);
		}
		for (int h = 0; h < 2; h++) {
			turn_8(v[h]);
			for (int i = 0; i < 8; i++)
				store(to + 128 * columns[h][i / 2] + 64 * half + 32 * (i % 2), v[h][i]);
		}
	}
}

/* ---- rows ---- */

/* What four tiles, one below the other, have for one a: of 32 bytes of 8 rows, 8 bytes for a tile. */
static inline AVX2 void rows_4_strip(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride)
{
	const __m256i mask = _mm256_set1_epi8(15),
		      mix = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10,
					     11, 4, 5, 12, 13, 6, 7, 14, 15);
	__m256i p[8], even[4], odd[4];

	for (int v = 0; v < 8; v++) { /* low nibbles of rows 0 … 7 and 8 … 15 joined, then the high ones */
		__m256i x = load(from + (uint64_t)(8 * v) * pitch), low = _mm256_and_si256(x, mask),
			high = _mm256_andnot_si256(mask, x);
		low = _mm256_or_si256(low, _mm256_srli_epi64(low, 28));
		high = _mm256_or_si256(high, _mm256_slli_epi64(high, 28));
		p[v] = _mm256_blend_epi32(low, high, 0xAA);
	}
	for (int w = 0; w < 4; w++) {
		even[w] = _mm256_shuffle_epi8(_mm256_unpacklo_epi8(p[2 * w], p[2 * w + 1]), mix);
		odd[w] = _mm256_shuffle_epi8(_mm256_unpackhi_epi8(p[2 * w], p[2 * w + 1]), mix);
	}
	turn_4(even, to, to + 2 * stride);
	turn_4(odd, to + stride, to + 3 * stride);
}

/* The same of two tiles, of 32 bytes. */
static inline AVX2 void rows_8_half(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride)
{
	const __m256i mix = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2, 10, 3,
					     11, 4, 12, 5, 13, 6, 14, 7, 15);
	__m256i v[8];

	for (int i = 0; i < 8; i++)
		v[i] = _mm256_shuffle_epi8(load(from + (uint64_t)(8 * i) * pitch), mix);
	turn_8(v);
	for (int i = 0; i < 4; i++) {
		store(to + 32 * i, v[i]);
		store(to + stride + 32 * i, v[i + 4]);
	}
}

/* Rows of the output lie far apart, which no processor foresees: a line of the tiles that come next for each that is made. */
static inline AVX2 void foresee(const unsigned char *to, uint64_t stride, uint64_t bytes)
{
	for (uint64_t i = 0; i < 4; i++) {
		for (uint64_t at = 0; at < bytes; at += 64)
			__builtin_prefetch(to + (4 + i) * stride + at, 1);
	}
}

/* Four tiles of 64 rows. */
static AVX2 void rows_4(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride, bool more)
{
	for (uint64_t a = 0; a < 8; a++) {
		if (more)
			foresee(to + 64 * a, stride, 64);
		rows_4_strip(from + a * pitch, pitch, to + 64 * a, stride);
	}
}

static AVX2 void rows_8(const unsigned char *from, uint64_t pitch, unsigned char *to, uint64_t stride, bool more)
{
	for (uint64_t a = 0; a < 8; a++) {
		if (more)
			foresee(to + 128 * a, stride, 128);
		rows_8_half(from + a * pitch, pitch, to + 128 * a, stride);
		rows_8_half(from + a * pitch + 32, pitch, to + 2 * stride + 128 * a, stride);
	}
}

/* ---- AWQ ---- */

/* The words of four rows of q, a word for each 8 columns: what a tile has for one b, of the columns a for which the even nibbles
 * stand, and the odd ones. */
static inline AVX2 void awq_4_words(const unsigned char *from, uint64_t pitch, __m256i out[4])
{
	const __m256i mix = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
					     13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m256i r0 = load(from), r8 = load(from + 8 * pitch), r1 = load(from + pitch), r9 = load(from + 9 * pitch);

	for (int odd = 0; odd < 2; odd++) {
		__m256i p = odd ? join_high(r0, r8) : join_low(r0, r8), q = odd ? join_high(r1, r9) : join_low(r1, r9);
		p = _mm256_shuffle_epi8(p, mix);
		q = _mm256_shuffle_epi8(q, mix);
		out[2 * odd] = _mm256_permute4x64_epi64(_mm256_unpacklo_epi16(p, q), 0xD8);
		out[2 * odd + 1] = _mm256_permute4x64_epi64(_mm256_unpackhi_epi16(p, q), 0xD8);
	}
}

static AVX2 void awq_4(const unsigned char *from, uint64_t pitch, unsigned char *to)
{
	static const int columns[4][2] = { { 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 } }; /* of nibbles 0 2, 4 6, 1 3, 5 7 */

	for (int b = 0; b < 4; b += 2) {
		__m256i x[4], y[4];
		awq_4_words(from + (uint64_t)(2 * b) * pitch, pitch, x);
		awq_4_words(from + (uint64_t)(2 * b + 2) * pitch, pitch, y);
		for (int i = 0; i < 4; i++) {
			store(to + 64 * columns[i][0] + 16 * b, _mm256_permute2x128_si256(x[i], y[i], 0x20));
			store(to + 64 * columns[i][1] + 16 * b, _mm256_permute2x128_si256(x[i], y[i], 0x31));
		}
	}
}

/* Words of columns a, a + 8, … of four rows of q, of 32 columns: vectors a = 0 1, 2 3, 4 5, 6 7. */
static inline AVX2 void awq_8_words(const unsigned char *from, uint64_t pitch, __m256i out[4])
{
	const __m256i mix = _mm256_setr_epi8(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15, 0, 8, 2, 10, 1, 9, 3,
					     11, 4, 12, 6, 14, 5, 13, 7, 15);
	__m256i r0 = _mm256_shuffle_epi8(load(from), mix), r8 = _mm256_shuffle_epi8(load(from + 8 * pitch), mix),
		r1 = _mm256_shuffle_epi8(load(from + pitch), mix),
		r9 = _mm256_shuffle_epi8(load(from + 9 * pitch), mix);
	__m256i p = _mm256_unpacklo_epi8(r0, r8), q = _mm256_unpacklo_epi8(r1, r9);

	out[0] = _mm256_unpacklo_epi16(p, q);
	out[1] = _mm256_unpackhi_epi16(p, q);
	p = _mm256_unpackhi_epi8(r0, r8), q = _mm256_unpackhi_epi8(r1, r9);
	out[2] = _mm256_unpacklo_epi16(p, q);
	out[3] = _mm256_unpackhi_epi16(p, q);
}

static AVX2 void awq_8(const unsigned char *from, uint64_t pitch, unsigned char *to)
{
	for (int b = 0; b < 4; b++) {
		__m256i x[4], y[4];
		awq_8_words(from + (uint64_t)(2 * b) * pitch, pitch, x);
		awq_8_words(from + (uint64_t)(2 * b) * pitch + 32, pitch, y);
		for (int i = 0; i < 4; i++) {
			__m256i even = _mm256_unpacklo_epi64(x[i], y[i]), odd = _mm256_unpackhi_epi64(x[i], y[i]);
			store(to + 256 * i + 32 * b, _mm256_permute4x64_epi64(even, 0xD8));
			store(to + 256 * i + 128 + 32 * b, _mm256_permute4x64_epi64(odd, 0xD8));
		}
	}
}

/* ---- blocks ---- */

/* Where the source of a tile is: its first row of q and column of the output. */
struct source {
	const unsigned char *from;
	uint64_t pitch;
};

static struct source source_of(const struct sl_args *args, const struct sl_block *block, uint64_t k, uint64_t n)
{
	uint64_t bits = args->p[SL_REPACK_BITS], half = args->p[SL_REPACK_HALF];
	unsigned input = half && n >= half;
	const struct sl_rect *in = &block->in[input];
	uint64_t row = k, at;

	n -= input ? half : 0;
	at = n * bits / 8;
	if (args->p[SL_REPACK_FROM] == SL_FROM_WORDS)
		row = k * bits / 32, at = n * 4;
	else if (args->p[SL_REPACK_FROM] == SL_FROM_ROWS)
		row = n, at = k * bits / 8;
	return (struct source){ block->bytes[input] + (row - in->row) * in->n_cols + at - in->col, in->n_cols };
}

/* Fewer than four tiles: the rest of their rows may not be there. */
static AVX2 void last_rows(const struct source *source, uint64_t bits, uint64_t n, unsigned char *to, uint64_t stride)
{
	unsigned char rows[WIDTH * 64], tiles[4 * 1024];
	uint64_t width = 8 * bits, size = 128 * bits; /* of four tiles in a row of the source; of a tile */

	memset(rows, 0, sizeof(rows));
	for (uint64_t r = 0; r < WIDTH; r++)
		memcpy(rows + r * width, source->from + r * source->pitch, n * 2 * bits);
	if (bits == 4)
		rows_4(rows, width, tiles, size, false);
	else
		rows_8(rows, width, tiles, size, false);
	for (uint64_t i = 0; i < n; i++)
		memcpy(to + i * stride, tiles + i * size, size);
}

/* A column of tiles, from rows. */
static AVX2 void rows(const struct source *source, uint64_t bits, uint64_t n, unsigned char *to, uint64_t stride)
{
	struct source s = *source;

	for (; n >= 4; n -= 4, s.from += 8 * bits, to += 4 * stride) {
		if (bits == 4)
			rows_4(s.from, s.pitch, to, stride, n >= 8);
		else
			rows_8(s.from, s.pitch, to, stride, n >= 8);
	}
	if (n)
		last_rows(&s, bits, n, to, stride);
}

typedef void tile_fn(const unsigned char *from, uint64_t pitch, unsigned char *to);

bool sl_repack_avx2(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t bits = args->p[SL_REPACK_BITS], size = 128 * bits, from = args->p[SL_REPACK_FROM];
	tile_fn *tile = from == SL_FROM_WORDS ? (bits == 4 ? words_4 : words_8) : bits == 4 ? awq_4 : awq_8;

	if (args->p[SL_REPACK_TO] != SL_TO_TILES || args->p[SL_REPACK_TURNED] || !__builtin_cpu_supports("avx2"))
		return false;
	for (uint64_t c = 0; c < block->out.n_cols && from == SL_FROM_ROWS; c += size) {
		struct source s = source_of(args, block, block->out.row * 16, (block->out.col + c) / size * WIDTH);
		rows(&s, bits, block->out.n_rows, block->dst + c, block->stride);
	}
	for (uint64_t r = 0; r < block->out.n_rows && from != SL_FROM_ROWS; r++) {
		for (uint64_t c = 0; c < block->out.n_cols; c += size) {
			struct source s =
				source_of(args, block, (block->out.row + r) * 16, (block->out.col + c) / size * WIDTH);
			tile(s.from, s.pitch, block->dst + r * block->stride + c);
		}
	}
	return true;
}

#else

bool sl_repack_avx2(const struct sl_args *args, const struct sl_block *block)
{
	(void)args, (void)block;
	return false;
}

#endif
