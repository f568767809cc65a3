/*
 * test_marlin_scales.c - scales against a twin that spreads, pads and permutes whole matrices one step after another, as the engine
 * does; numbers of NVFP4 by exact arithmetic of doubles.
 */
#include "transforms.h"
#include "twin.h"

#include "slicer/transforms/marlin_scales.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(marlin_scales, .timeout = 120);

struct scales {
	enum sl_scale_kind kind;
	enum sl_scale_order order;
	bool swap, turned;
	uint64_t batch, groups, groups_padded, n, n_padded, repeat; /* n of a half */
	unsigned halves, n_widths;
	uint64_t widths[4];
	enum sl_dtype from, to;
	unsigned char pad;
};

static bool rounds(const struct scales *s)
{
	return s->kind == SL_SCALE_ROUNDED || s->kind == SL_SCALE_FUSED;
}

static uint64_t size_of(const struct scales *s)
{
	return s->kind == SL_SCALE_KEEP ? 2 : rounds(s) ? (s->from == SL_F32 ? 4 : 2) : 1;
}

static uint64_t size_out(const struct scales *s)
{
	return s->kind == SL_SCALE_KEEP || rounds(s) ? 2 : 1;
}

/* Columns of the source. */
static uint64_t columns(const struct scales *s)
{
	return s->n_widths ? s->n_widths : (s->halves * s->n + s->repeat - 1) / s->repeat;
}

/* ---- the twin ---- */

static double factor_of(const struct scales *s, const unsigned char *source, uint64_t len)
{
	double largest = 0;

	if (s->to == SL_F16)
		return 1;
	for (uint64_t i = 0; i < len; i++) {
		double value = twin_decode(SL_F8_E4M3, &source[i]);
		largest = value > largest ? value : largest; /* a NaN is not larger */
	}
	return largest > 0 ? exp2(floor(log2(448 / largest))) : 1;
}

static uint16_t halve(int dtype, double value)
{
	return (uint16_t)twin_encode(dtype, value);
}

static double widen(int dtype, uint16_t bits)
{
	unsigned char bytes[2];

	memcpy(bytes, &bits, sizeof(bits));
	return twin_decode(dtype, bytes);
}

/* One element, converted. */
static uint16_t converted(const struct scales *s, const unsigned char *from, double factor)
{
	uint16_t half;

	if (s->kind == SL_SCALE_KEEP)
		return (uint16_t)(from[0] | from[1] << 8);
	if (s->kind == SL_SCALE_BYTES)
		return from[0];
	if (rounds(s)) {
		half = halve(s->to, twin_decode(s->from, from));
		if (s->kind == SL_SCALE_ROUNDED)
			return half;
		return halve(s->to, widen(s->to, half) * (s->to == SL_F16 ? 0x1p8 : 0x1p120));
	}
	if (s->kind == SL_SCALE_E8M0) {
		double value =
			s->to == SL_F16 ? widen(SL_F16, halve(SL_F16, exp2(from[0] - 127.0))) : exp2(from[0] - 127.0);
		return from[0] == 255 || isinf(value) ? 255 : value == 0 ? 0 : (uint16_t)(log2(value) + 127);
	}
	double value = twin_decode(SL_F8_E4M3, from);
	if (isnan(value))
		return 0xFC;
	value = widen(SL_F16, halve(SL_F16, widen(SL_F16, halve(SL_F16, value * factor)) * 128));
	return value < 2 ? 0 : halve(SL_F16, value) >> 7 & 0xFF;
}

/* Column `n` of a row of a member, without padding; its element. */
static const unsigned char *element(const struct scales *s, const unsigned char *source, uint64_t b, uint64_t g,
				    uint64_t n)
{
	uint64_t c = n / s->repeat, n_columns = columns(s);

	if (s->n_widths) {
		for (c = 0; n >= s->widths[c]; c++)
			n -= s->widths[c];
	}
	uint64_t at = b * s->groups * n_columns + (s->turned ? c * s->groups + g : g * n_columns + c);
	return source + at * size_of(s);
}

static void permute(uint16_t *row, uint64_t n, const unsigned *order, unsigned width)
{
	uint16_t block[64];

	for (uint64_t c = 0; c < n; c += width) {
		memcpy(block, row + c, width * sizeof(*row));
		for (unsigned i = 0; i < width; i++)
			row[c + i] = block[order[i]];
	}
}

/* marlin_utils.py, get_scale_perms and marlin_permute_scales; the middle ones of four: marlin_utils_fp4.py. */
static void ordered(const struct scales *s, uint16_t *row, uint64_t n)
{
	static const unsigned pairs[8] = { 0, 1, 8, 9, 16, 17, 24, 25 }, swap[4] = { 0, 2, 1, 3 };
	unsigned in_64[64], in_32[32];

	for (unsigned i = 0; i < 8; i++) {
		for (unsigned j = 0; j < 8; j++)
			in_64[8 * i + j] = i + 8 * j;
	}
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 8; j++)
			in_32[8 * i + j] = 2 * i + pairs[j];
	}
	if (s->order == SL_SCALES_IN_64)
		permute(row, n, in_64, 64);
	else
		permute(row, n, in_32, 32);
	if (s->swap)
		permute(row, n, swap, 4);
}

static unsigned char *twin(const struct scales *s, const unsigned char *source)
{
	uint64_t all = s->halves * s->n_padded, size = size_out(s);
	unsigned char *want = calloc(s->batch * s->groups_padded * all, size), *to = want;
	uint16_t *row = malloc(all * sizeof(*row));
	double factor = factor_of(s, source, s->kind == SL_SCALE_NVFP4 ? s->batch * s->groups * columns(s) : 0);

	for (uint64_t b = 0; b < s->batch; b++) {
		for (uint64_t g = 0; g < s->groups_padded; g++, to += all * size) {
			for (uint64_t n = 0; n < all; n++)
				row[n] = s->pad;
			for (uint64_t n = 0; n < s->halves * s->n && g < s->groups; n++)
				row[n / s->n * s->n_padded + n % s->n] =
					converted(s, element(s, source, b, g, n), factor);
			ordered(s, row, all);
			for (uint64_t n = 0; n < all; n++)
				memcpy(to + n * size, &row[n], size);
		}
	}
	free(row);
	return want;
}

/* ---- cases ---- */

/* No NaN of 16 or 32 bits: payloads are nobody's promise. */
static unsigned char *source_of(const struct scales *s)
{
	uint64_t n = s->batch * s->groups * columns(s), size = size_of(s);
	unsigned char *bytes = malloc(n * size), most = (unsigned char)(1 + random_below(0x7E));

	for (uint64_t i = 0; i < n * size; i++)
		bytes[i] = (unsigned char)random_below(256);
	for (uint64_t i = 0; i < n && s->kind == SL_SCALE_NVFP4; i++)
		bytes[i] = (unsigned char)(random_below(20)   ? bytes[i] % (most + 1u)
					   : bytes[i] == 0x7F ? 0x7F
							      : 0x80 | most);
	for (uint64_t i = 0; i < n && rounds(s); i++) {
		float value = ldexpf(1 + (float)random_below(1 << 23) * 0x1p-23f, (int)random_below(60) - 40);
		uint16_t half = halve(s->from, value);
		if (s->from == SL_F32)
			memcpy(bytes + 4 * i, &value, 4);
		else
			memcpy(bytes + 2 * i, &half, 2);
	}
	return bytes;
}

static void check(const struct scales *s)
{
	uint64_t size = size_of(s), n = columns(s), end = 0;
	struct sl_transform t = { .id = SL_T_MARLIN_SCALES, .args = { .batch = s->batch, .rows = s->groups_padded } };
	unsigned char *source = source_of(s), *want = twin(s, source);
	char what[160];

	t.args.row_bytes = s->halves * s->n_padded * size_out(s);
	t.args.strict = rounds(s) && s->from != SL_F16; /* of which some are 0 or infinite */
	t.args.p[SL_SCALES_KIND] = s->kind;
	t.args.p[SL_SCALES_ORDER] = s->order;
	t.args.p[SL_SCALES_SWAP] = s->swap;
	t.args.p[SL_SCALES_TURNED] = s->turned;
	t.args.p[SL_SCALES_HALF] = s->n_padded;
	t.args.p[SL_SCALES_REAL] = s->n;
	t.args.p[SL_SCALES_REPEAT] = s->repeat;
	t.args.p[SL_SCALES_FROM] = s->from;
	t.args.p[SL_SCALES_TO] = s->to;
	t.args.p[SL_SCALES_PAD] = s->pad;
	t.args.p[SL_SCALES_N_RANGES] = s->n_widths;
	for (unsigned i = 0; i < s->n_widths; i++)
		t.args.p[SL_SCALES_ENDS + i] = end += s->widths[i];
	transform_input(&t, source, s->turned ? n : s->groups, (s->turned ? s->groups : n) * size);
	snprintf(what, sizeof(what), "kind %d order %d%s%s, %llu of %llu x %u x %llu of %llu, repeat %llu, to %s",
		 s->kind, s->order, s->swap ? " swap" : "", s->turned ? " turned" : "", (unsigned long long)s->groups,
		 (unsigned long long)s->groups_padded, s->halves, (unsigned long long)s->n,
		 (unsigned long long)s->n_padded, (unsigned long long)s->repeat, sl_dtypes[s->to].name);
	transform_check(&t, want, what);
	free(source);
	free(want);
}

/* Random sizes of one kind. */
static void check_some(enum sl_scale_kind kind, enum sl_dtype from, enum sl_dtype to)
{
	for (unsigned i = 0; i < 24; i++) {
		struct scales s = { .kind = kind,
				    .order = i % 2,
				    .swap = kind > SL_SCALE_BYTES,
				    .turned = i / 2 % 2,
				    .from = from,
				    .to = to,
				    .repeat = 1,
				    .halves = 1 + i / 4 % 2,
				    .pad = kind == SL_SCALE_BYTES ? (unsigned char)(127 * (i % 2)) : 0 };
		s.batch = 1 + random_below(3);
		s.groups = 1 + random_below(40);
		s.groups_padded = s.groups + random_below(3);
		s.n = 1 + random_below(200);
		s.n_padded = i % 3 ? (s.n + 63) / 64 * 64 : s.n / 64 * 64 + 128;
		if (i % 5 == 4)
			s.n = s.n_padded;
		if (i % 3 == 2)
			s.repeat = 1 + random_below(150);
		check(&s);
	}
}

Test(marlin_scales, of_16_bits)
{
	check_some(SL_SCALE_KEEP, SL_F16, SL_F16);
}

Test(marlin_scales, of_FP8)
{
	check_some(SL_SCALE_FUSED, SL_F32, SL_F16);
	check_some(SL_SCALE_FUSED, SL_F32, SL_BF16);
	check_some(SL_SCALE_FUSED, SL_BF16, SL_BF16);
	check_some(SL_SCALE_FUSED, SL_F16, SL_F16);
}

Test(marlin_scales, of_FP8_as_they_are)
{
	check_some(SL_SCALE_ROUNDED, SL_F32, SL_F16);
	check_some(SL_SCALE_ROUNDED, SL_F32, SL_BF16);
	check_some(SL_SCALE_ROUNDED, SL_BF16, SL_BF16);
}

Test(marlin_scales, of_bytes_as_they_are)
{
	check_some(SL_SCALE_BYTES, SL_F8_E8M0, SL_BF16);
	check_some(SL_SCALE_BYTES, SL_F8_E4M3, SL_F16);
}

Test(marlin_scales, powers_of_two)
{
	check_some(SL_SCALE_E8M0, SL_F8_E8M0, SL_F16);
	check_some(SL_SCALE_E8M0, SL_F8_E8M0, SL_BF16);
}

Test(marlin_scales, of_NVFP4)
{
	check_some(SL_SCALE_NVFP4, SL_F8_E4M3, SL_F16);
	check_some(SL_SCALE_NVFP4, SL_F8_E4M3, SL_BF16);
}

Test(marlin_scales, of_fused_matrices)
{
	for (unsigned i = 0; i < 8; i++) {
		struct scales s = { SL_SCALE_FUSED,	SL_SCALES_IN_32, .batch = 1,  .groups = 1,
				    .groups_padded = 1, .repeat = 1,	 .halves = 1, .n_widths = 1 + i % 4,
				    .from = SL_F32,	.to = SL_BF16 };
		for (unsigned w = 0; w < s.n_widths; w++)
			s.n += s.widths[w] = 1 + random_below(100);
		s.n_padded = (s.n + 63) / 64 * 64;
		check(&s);
	}
}

/* The whole range of one code, whatever the largest is. */
Test(marlin_scales, every_code_with_every_factor)
{
	for (unsigned most = 0; most < 0x80; most++) {
		unsigned char source[256];
		struct scales s = { SL_SCALE_NVFP4,
				    SL_SCALES_IN_64,
				    true,
				    true,
				    .batch = 1,
				    .groups = 1,
				    .groups_padded = 1,
				    .n = 256,
				    .n_padded = 256,
				    .repeat = 1,
				    .halves = 1,
				    .from = SL_F8_E4M3,
				    .to = SL_BF16 };
		struct sl_transform t = { .id = SL_T_MARLIN_SCALES,
					  .args = { .batch = 1, .rows = 1, .row_bytes = 256 } };
		for (unsigned c = 0; c < 256; c++)
			source[c] = (unsigned char)((c & 0x7F) <= most || c >= 0x80 ? c : 0);
		unsigned char *want = twin(&s, source);
		t.args.p[SL_SCALES_KIND] = s.kind;
		t.args.p[SL_SCALES_SWAP] = t.args.p[SL_SCALES_TURNED] = t.args.p[SL_SCALES_REPEAT] = 1;
		t.args.p[SL_SCALES_HALF] = t.args.p[SL_SCALES_REAL] = 256;
		t.args.p[SL_SCALES_TO] = s.to;
		transform_input(&t, source, 256, 1);
		transform_check(&t, want, "every code");
		free(want);
	}
}

/* More than what is read at once to learn the factor: the largest scale is the last one. */
Test(marlin_scales, a_factor_of_many_scales)
{
	enum { N = 4096, N_GROUPS = 96 };
	struct scales s = { SL_SCALE_NVFP4,	SL_SCALES_IN_64,	   true,	 true,		.batch = 2,
			    .groups = N_GROUPS, .groups_padded = N_GROUPS, .n = N,	 .n_padded = N, .repeat = 1,
			    .halves = 1,	.from = SL_F8_E4M3,	   .to = SL_BF16 };
	struct sl_transform t = { .id = SL_T_MARLIN_SCALES, .args = { .batch = 2, .rows = N_GROUPS, .row_bytes = N } };
	unsigned char *source = malloc(2 * N * N_GROUPS);

	memset(source, 0x20, 2 * N * N_GROUPS);
	source[2 * N * N_GROUPS - 1] = 0x55;
	unsigned char *want = twin(&s, source);
	t.args.p[SL_SCALES_KIND] = s.kind;
	t.args.p[SL_SCALES_SWAP] = t.args.p[SL_SCALES_TURNED] = t.args.p[SL_SCALES_REPEAT] = 1;
	t.args.p[SL_SCALES_HALF] = t.args.p[SL_SCALES_REAL] = N;
	t.args.p[SL_SCALES_TO] = s.to;
	transform_input(&t, source, N, N_GROUPS);
	transform_check(&t, want, "many scales");
	free(source);
	free(want);
}
