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

#ifdef __x86_64__
/* FP8 codes to BF16. */
SL_WIDE static inline __m256i bf16_of_8(__m128i codes, __m256 scale)
{
	__m256i bits = _mm256_castps_si256(_mm256_mul_ps(sl_wide_e4m3(codes), scale)), odd, is_nan;

	is_nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)),
				    _mm256_set1_epi32(0x7F800000));
	odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	bits = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
	return _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC0), is_nan);
}

/* Returns how many were done: all but the last few. */
SL_WIDE static uint64_t bf16_wide(const unsigned char *from, uint64_t n, float by, unsigned char *to)
{
	const __m256 scale = _mm256_set1_ps(by);
	uint64_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
		__m256i low = bf16_of_8(codes, scale), high = bf16_of_8(_mm_srli_si128(codes, 8), scale);
		low = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
		_mm256_storeu_si256((__m256i *)(void *)(to + 2 * i), low);
	}
	return i;
}

/* BF16 of what a scale makes of FP8 codes: the eight mantissas of exponent 0 as if it were one of the others, and those
 * of subnormals, in low and high bytes. An exponent adds itself. */
struct halves {
	bool usable; /* all results are normal numbers, but for those of subnormals and of the NaN */
	unsigned char low[16], high[16];
};

static struct halves halves_of(float scale)
{
	static const unsigned char codes[32] = { 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 0x7E };
	struct halves halves;
	uint16_t made[32];

	bf16_wide(codes, 32, scale, (unsigned char *)made);
	halves.usable = scale > 0 && made[0] >= 0x80 && made[16] < 0x7F80;
	for (unsigned i = 0; i < 16; i++) {
		unsigned half = i < 8 ? made[i] - 0x80u : made[i];
		halves.low[i] = (unsigned char)half;
		halves.high[i] = (unsigned char)(half >> 8);
	}
	return halves;
}

/* A run of codes by those; where there is a NaN, by what makes all. Returns how many were done: all but the last few. */
SL_WIDE static uint64_t bf16_by_halves(const unsigned char *from, uint64_t n, float scale, const struct halves *halves,
				       unsigned char *to)
{
	const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)halves->low));
	const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)halves->high));
	const __m256i magnitude = _mm256_set1_epi8(0x7F), sign = _mm256_set1_epi8((char)0x80);
	const __m256i eight = _mm256_set1_epi8(8), seven = _mm256_set1_epi8(7);
	uint64_t i = 0;

	for (; i + 32 <= n; i += 32) {
		__m256i code = _mm256_loadu_si256((const __m256i *)(const void *)(from + i)), size, index, bytes[2],
			exponent[2];
		if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(code, magnitude), magnitude))) {
			bf16_wide(from + i, 32, scale, to + 2 * i);
			continue;
		}
		code = _mm256_permute4x64_epi64(code, 0xD8); /* for unpacking in order */
		size = _mm256_and_si256(code, magnitude);
		index = _mm256_or_si256(_mm256_and_si256(size, seven),
					_mm256_and_si256(_mm256_cmpgt_epi8(eight, size), eight));
		bytes[0] = _mm256_shuffle_epi8(low, index);
		bytes[1] = _mm256_shuffle_epi8(high, index);
		exponent[0] = _mm256_and_si256(_mm256_slli_epi16(code, 4), sign);
		exponent[1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(size, 4), seven),
					      _mm256_and_si256(code, sign));
		__m256i *out = (__m256i *)(void *)(to + 2 * i);
		_mm256_storeu_si256(out, _mm256_add_epi16(_mm256_unpacklo_epi8(bytes[0], bytes[1]),
							  _mm256_unpacklo_epi8(exponent[0], exponent[1])));
		_mm256_storeu_si256(out + 1, _mm256_add_epi16(_mm256_unpackhi_epi8(bytes[0], bytes[1]),
							      _mm256_unpackhi_epi8(exponent[0], exponent[1])));
	}
	return i;
}
#else
struct halves {
	bool usable;
};

static struct halves halves_of(float scale)
{
	(void)scale;
	return (struct halves){ false };
}

static uint64_t bf16_by_halves(const unsigned char *from, uint64_t n, float scale, const struct halves *halves,
			       unsigned char *to)
{
	(void)from, (void)n, (void)scale, (void)halves, (void)to;
	return 0;
}

static uint64_t bf16_wide(const unsigned char *from, uint64_t n, float by, unsigned char *to)
{
	(void)from, (void)n, (void)by, (void)to;
	return 0;
}
#endif

enum {
	STRETCH = 1024,
	HALVES_MIN = 512, /* elements */
	TILES = 64,
};

/* Elements through F32. */
static void convert(const struct sl_args *args, const struct sl_block *block, uint64_t row, uint64_t col, uint64_t n,
		    unsigned char *to)
{
	uint64_t size = sl_dequant_size(args), now;
	float values[STRETCH];
	uint16_t halves[STRETCH];

	for (uint64_t c = 0; c < n; c += now) {
		now = sl_quant_min(n - c, STRETCH);
		sl_quant_load_row(args, block, row, col + c, now, values);
		if (args->p[SL_DEQUANT_TO] == SL_BF16)
			to_bf16(values, now, halves);
		else if (size == 2)
			to_f16(values, now, halves);
		memcpy(to + c * size, size == 2 ? (const void *)halves : values, now * size);
	}
}

/* One of the tiles that share a scale: its columns. */
struct tile {
	uint64_t col, n;
	float scale;
	struct halves halves;
};

/* The tiles of some rows and columns, as far as there is room. Returns how many. */
static unsigned find_tiles(const struct sl_args *args, const struct sl_block *block, const struct sl_granule *g,
			   struct tile tiles[TILES])
{
	uint64_t w = args->p[SL_QUANT_SCALE_COLS], n;
	unsigned n_tiles = 0;

	for (uint64_t col = g->col; col < g->col + g->n_cols && n_tiles < TILES; col += n, n_tiles++) {
		struct tile *tile = &tiles[n_tiles];
		n = sl_quant_min(g->col + g->n_cols - col, w - col % w);
		*tile = (struct tile){ .col = col, .n = n };
		tile->scale = sl_quant_block_scale(args, block, g->row, col);
		if (g->n_rows * n >= HALVES_MIN)
			tile->halves = halves_of(tile->scale);
	}
	return n_tiles;
}

/* Rows that have the same scales, FP8 codes to BF16. */
static void convert_tiles(const struct sl_args *args, const struct sl_block *block, const struct sl_granule *g,
			  const struct tile *tiles, unsigned n)
{
	const struct sl_rect *in = &block->in[0];

	for (uint64_t r = g->row; r < g->row + g->n_rows; r++) {
		const unsigned char *from = block->bytes[0] + (r - in->row) * in->n_cols - in->col;
		unsigned char *to = block->dst + (r - block->out.row) * block->stride - block->out.col;
		for (const struct tile *t = tiles; t < tiles + n; t++) {
			uint64_t done = t->halves.usable ? bf16_by_halves(from + t->col, t->n, t->scale, &t->halves,
									  to + 2 * t->col)
							 : bf16_wide(from + t->col, t->n, t->scale, to + 2 * t->col);
			if (done < t->n)
				convert(args, block, r, t->col + done, t->n - done, to + 2 * (t->col + done));
		}
	}
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t h = args->p[SL_QUANT_SCALE_ROWS], size = sl_dequant_size(args), first = block->out.col / size,
		 end = first + block->out.n_cols / size, last = block->out.row + block->out.n_rows;
	struct tile tiles[TILES];
	struct sl_granule g;

	if (args->p[SL_QUANT_FROM] != SL_F8_E4M3 || args->p[SL_DEQUANT_TO] != SL_BF16 || !h || !sl_has_wide()) {
		for (uint64_t r = 0; r < block->out.n_rows; r++)
			convert(args, block, block->out.row + r, first, end - first, block->dst + r * block->stride);
		return;
	}
	for (g.row = block->out.row; g.row < last; g.row += g.n_rows) {
		g.n_rows = sl_quant_min(last - g.row, h - g.row % h);
		for (g.col = first; g.col < end;) {
			g.n_cols = end - g.col;
			unsigned n = find_tiles(args, block, &g, tiles);
			convert_tiles(args, block, &g, tiles, n);
			g.col = tiles[n - 1].col + tiles[n - 1].n;
		}
	}
}

const struct sl_transform_row sl_transform_dequant = {
	"dequantise", granule, need, NULL, NULL, run, sl_dequant_units, sl_dequant_unit, sl_quant_inputs,
};
