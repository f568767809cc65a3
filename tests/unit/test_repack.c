/*
 * test_repack.c - packed values against a twin that unpacks them all, pads the matrix and packs it again with the tables of the
 * engine's own code.
 */
#include "transforms.h"

#include "slicer/transforms/repack_avx2.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(repack, .timeout = 120);

/* ---- the twin ---- */

/* Values, one a byte. */
struct matrix {
	uint64_t k, n;
	unsigned char *q;
};

static struct matrix matrix(uint64_t k, uint64_t n)
{
	struct matrix m = { k, n, calloc(k * n, 1) };

	cr_assert(m.q);
	return m;
}

static unsigned value(const struct matrix *m, uint64_t k, uint64_t n)
{
	return m->q[k * m->n + n];
}

static void put(unsigned char *bytes, unsigned bits, uint64_t element, unsigned v)
{
	bytes[element * bits / 8] |= (unsigned char)(v << element * bits % 8);
}

static void put_word(unsigned char *bytes, unsigned bits, uint64_t word, const unsigned *v)
{
	for (unsigned i = 0; i < 32 / bits; i++)
		put(bytes, bits, word * (32 / bits) + i, v[i]);
}

/* As a checkpoint has it; *rows of *row_bytes. */
static unsigned char *packed(const struct matrix *m, enum sl_packing from, bool turned, unsigned bits, uint64_t *rows,
			     uint64_t *row_bytes)
{
	static const unsigned awq_4[] = { 0, 4, 1, 5, 2, 6, 3, 7 }, awq_8[] = { 0, 2, 1, 3 };
	uint64_t per_word = 32 / bits, n_k = turned ? m->n : m->k, n_n = turned ? m->k : m->n;

	*rows = from == SL_FROM_WORDS ? n_k / per_word : from == SL_FROM_ROWS ? n_n : n_k;
	*row_bytes = from == SL_FROM_WORDS ? n_n * 4 : from == SL_FROM_ROWS ? n_k * bits / 8 : n_n * bits / 8;
	unsigned char *bytes = calloc(*rows, *row_bytes);
	cr_assert(bytes);
	for (uint64_t k = 0; k < n_k; k++) {
		for (uint64_t n = 0; n < n_n; n++) {
			unsigned v = turned ? value(m, n, k) : value(m, k, n);
			uint64_t place = (k * (n_n / per_word) + n / per_word) * per_word +
					 (bits == 4 ? awq_4[n % 8] : awq_8[n % 4]);
			if (from == SL_FROM_WORDS)
				place = (k / per_word * n_n + n) * per_word + k % per_word;
			else if (from == SL_FROM_ROWS)
				place = n * n_k + k;
			put(bytes, bits, place, v);
		}
	}
	return bytes;
}

/* vLLM's tests, marlin_utils_test.py; csrc/quantization/marlin/gptq_marlin_repack.cu. */
static unsigned char *tiles(const struct matrix *m, unsigned bits)
{
	static const unsigned at[4] = { 0, 1, 8, 9 }, mix_4[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }, mix_8[4] = { 0, 2, 1, 3 };
	unsigned char *bytes = calloc(m->k * m->n, 1);

	for (uint64_t tile = 0; tile < m->k / 16 * (m->n / 64); tile++) {
		uint64_t k = tile / (m->n / 64) * 16, n = tile % (m->n / 64) * 64, word = tile * 32 * bits;
		for (unsigned w = 0; w < 4; w++) {
			for (unsigned t = 0; t < 32; t++) {
				uint64_t c = n + 16 * w + t / 4;
				unsigned v[8], mixed[8];
				for (unsigned i = 0; i < 4; i++) {
					v[i] = value(m, k + 2 * (t % 4) + at[i], c);
					v[4 + i] = value(m, k + 2 * (t % 4) + at[i], c + 8);
				}
				for (unsigned i = 0; i < 8; i++)
					mixed[i] = v[bits == 4 ? mix_4[i] : mix_8[i % 4] + i / 4 * 4];
				put_word(bytes, bits, bits == 4 ? word + 4 * t + w : word + 8 * t + 2 * w, mixed);
				if (bits == 8)
					put_word(bytes, bits, word + 8 * t + 2 * w + 1, mixed + 4);
			}
		}
	}
	return bytes;
}

static unsigned char *tiles_a8(const struct matrix *m, unsigned bits)
{
	static const unsigned mix_4[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
	unsigned char *bytes = calloc(m->k * m->n, 1);

	for (uint64_t tile = 0; tile < m->k / 32 * (m->n / 32); tile++) {
		uint64_t k = tile / (m->n / 32) * 32, n = tile % (m->n / 32) * 32, word = tile * 32 * bits;
		for (unsigned w = 0; w < 4; w++) {
			for (unsigned t = 0; t < 32; t++) {
				uint64_t c = n + w / 2 * 16 + t / 4 + w % 2 * 8;
				unsigned v[8], mixed[8];
				for (unsigned i = 0; i < 4; i++) {
					v[i] = value(m, k + t % 4 * 4 + i, c);
					v[4 + i] = value(m, k + t % 4 * 4 + i + 16, c);
				}
				for (unsigned i = 0; i < 8; i++)
					mixed[i] = v[bits == 4 ? mix_4[i] : i];
				put_word(bytes, bits, bits == 4 ? word + 4 * t + w : word + 8 * t + 2 * w, mixed);
				if (bits == 8)
					put_word(bytes, bits, word + 8 * t + 2 * w + 1, mixed + 4);
			}
		}
	}
	return bytes;
}

/* marlin_utils.py, marlin_zero_points. */
static unsigned char *zeros(const struct matrix *m, unsigned bits)
{
	static const unsigned mix_4[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }, mix_8[4] = { 0, 2, 1, 3 };
	unsigned char *bytes = calloc(m->k * m->n, 1), columns[64];

	for (uint64_t k = 0; k < m->k; k++) {
		for (uint64_t n = 0; n < m->n; n += 64) {
			for (unsigned i = 0; i < 8; i++) {
				for (unsigned j = 0; j < 8; j++)
					columns[8 * i + j] = (unsigned char)value(m, k, n + i + 8 * j);
			}
			for (unsigned i = 0; i < 64; i++)
				put(bytes, bits, k * m->n + n + i,
				    columns[bits == 4 ? i / 8 * 8 + mix_4[i % 8] : i / 4 * 4 + mix_8[i % 4]]);
		}
	}
	return bytes;
}

static unsigned char *repacked(const struct matrix *m, enum sl_packed to, unsigned bits)
{
	uint64_t rows, row_bytes;

	return to == SL_TO_TILES      ? tiles(m, bits)
	       : to == SL_TO_TILES_A8 ? tiles_a8(m, bits)
	       : to == SL_TO_ZEROS    ? zeros(m, bits)
				      : packed(m, SL_FROM_WORDS, false, bits, &rows, &row_bytes);
}

/* ---- cases ---- */

struct layout {
	enum sl_packing from;
	enum sl_packed to;
	unsigned bits;
	bool turned;
	unsigned halves;
};

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static struct sl_transform transform(const struct layout *l, uint64_t batch, uint64_t k, uint64_t n)
{
	struct sl_transform t = { .id = SL_T_REPACK, .args = { .batch = batch } };

	t.args.p[SL_REPACK_BITS] = l->bits;
	t.args.p[SL_REPACK_FROM] = l->from;
	t.args.p[SL_REPACK_TO] = l->to;
	t.args.p[SL_REPACK_TURNED] = l->turned;
	t.args.p[SL_REPACK_HALF] = l->halves > 1 ? n / l->halves : 0;
	t.args.rows = k / sl_repack_depth(&t.args);
	t.args.row_bytes = n * sl_repack_depth(&t.args) * l->bits / 8;
	return t;
}

/* Random values of a half, which also go to their place in the padded matrix. */
static void fill(struct matrix *half, unsigned bits, struct matrix *whole, uint64_t column)
{
	for (uint64_t k = 0; k < half->k; k++) {
		for (uint64_t n = 0; n < half->n; n++)
			whole->q[k * whole->n + column + n] = half->q[k * half->n + n] =
				(unsigned char)random_below(1u << bits);
	}
}

/* `batch` matrices of k x halves * n, padded, through a transform. */
static void check(const struct layout *l, uint64_t batch, uint64_t k, uint64_t n, uint64_t k_padded, uint64_t n_padded)
{
	struct sl_transform t = transform(l, batch, k_padded, l->halves * n_padded);
	uint64_t member = sl_transform_member(&t.args), rows, row_bytes;
	unsigned char *want = malloc(batch * member), *source[2] = { NULL, NULL };
	char what[160];

	for (uint64_t b = 0; b < batch; b++) {
		struct matrix whole = matrix(k_padded, l->halves * n_padded);
		for (unsigned h = 0; h < l->halves; h++) {
			struct matrix half = matrix(k, n);
			fill(&half, l->bits, &whole, h * n_padded);
			unsigned char *bytes = packed(&half, l->from, l->turned, l->bits, &rows, &row_bytes);
			if (b == 0)
				source[h] = malloc(batch * rows * row_bytes);
			memcpy(source[h] + b * rows * row_bytes, bytes, rows * row_bytes);
			free(bytes);
			free(half.q);
		}
		unsigned char *bytes = repacked(&whole, l->to, l->bits);
		memcpy(want + b * member, bytes, member);
		free(bytes);
		free(whole.q);
	}
	for (unsigned h = 0; h < l->halves; h++)
		transform_input(&t, source[h], rows, row_bytes);
	snprintf(what, sizeof(what), "from %d to %d, %u bits, turned %d: %llu x (%llu of %llu) x %u (%llu of %llu)",
		 l->from, l->to, l->bits, l->turned, (unsigned long long)batch, (unsigned long long)k,
		 (unsigned long long)k_padded, l->halves, (unsigned long long)n, (unsigned long long)n_padded);
	sl_repack_without_avx2 = false;
	transform_check(&t, want, what);
	sl_repack_without_avx2 = true;
	transform_check(&t, want, what);
	free(want);
	free(source[0]);
	free(source[1]);
}

/* Random sizes; those of the source in whole words of it. */
static void check_some(const struct layout *l, unsigned times)
{
	const struct sl_transform t = transform(l, 1, 64, 128);
	uint64_t depth = sl_repack_depth(&t.args), width = sl_repack_width(&t.args);
	bool groups = l->to == SL_TO_ZEROS;

	for (unsigned i = 0; i < times; i++) {
		uint64_t k = groups ? 1 + random_below(20) : 8 * (1 + random_below(20)), n = 8 * (1 + random_below(30));
		check(l, 1 + random_below(2), k, n, up(k, depth) + depth * random_below(3),
		      up(n, width) + width * random_below(2));
	}
}

Test(repack, tiles_of_every_packing)
{
	for (int from = 0; from < SL_N_PACKINGS; from++) {
		for (unsigned bits = 4; bits <= 8; bits += 4) {
			for (unsigned halves = 1; halves <= 2; halves++)
				check_some(&(struct layout){ from, SL_TO_TILES, bits, false, halves }, 6);
		}
	}
}

Test(repack, tiles_for_activations_of_8_bits)
{
	for (int from = 0; from < SL_N_PACKINGS; from++) {
		for (unsigned bits = 4; bits <= 8; bits += 4)
			check_some(&(struct layout){ from, SL_TO_TILES_A8, bits, false, 1 + bits / 8 }, 4);
	}
}

Test(repack, zero_points)
{
	for (unsigned bits = 4; bits <= 8; bits += 4) {
		for (unsigned halves = 1; halves <= 2; halves++) {
			check_some(&(struct layout){ SL_FROM_WORDS, SL_TO_ZEROS, bits, true, halves }, 6);
			check_some(&(struct layout){ SL_FROM_AWQ, SL_TO_ZEROS, bits, false, halves }, 6);
		}
	}
}

Test(repack, words)
{
	for (unsigned bits = 4; bits <= 8; bits += 4) {
		check_some(&(struct layout){ SL_FROM_AWQ, SL_TO_WORDS, bits, false, 1 }, 8);
		check_some(&(struct layout){ SL_FROM_ROWS, SL_TO_WORDS, bits, false, 1 }, 4);
	}
}

/* Zero points turned: what were rows, groups, are columns, any number of them. */
Test(repack, words_of_turned_zero_points)
{
	for (uint64_t groups = 1; groups < 20; groups += 3)
		check(&(struct layout){ SL_FROM_AWQ, SL_TO_WORDS, 4, true, 1 }, 1, 8 * groups, groups, 8 * groups,
		      groups);
}

/* More than one block in either direction. */
Test(repack, large_ones)
{
	for (int from = 0; from < SL_N_PACKINGS; from++) {
		check(&(struct layout){ from, SL_TO_TILES, 8, false, 1 }, 1, 8 * 515, 200, 16 * 260, 256);
		check(&(struct layout){ from, SL_TO_TILES, 4, false, 2 }, 1, 120, 4088, 128, 4096);
	}
}
