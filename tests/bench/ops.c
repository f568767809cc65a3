/*
 * ops - how fast transforms are on one core: ops [NAME…]  prints a line for each.
 *
 * A transform reads 64 MiB of memory that is not in a cache and writes what it makes of it, as sl_transform_read() drives it for a
 * reader who wants all; memcpy, of as many bytes read and written together, is timed in between. "read" is all of that, "run" the
 * transform's own function alone, whose input has just been brought near. Medians of 9; GB/s count what is read and what is written.
 */
#include "slicer/model.h"
#include "slicer/transform.h"
#include "slicer/transforms/dequant.h"
#include "slicer/transforms/element.h"
#include "slicer/transforms/map.h"
#include "slicer/transforms/marlin_scales.h"
#include "slicer/transforms/repack.h"
#include "slicer/transforms/swizzle.h"
#include "slicer/transforms/transpose.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a backend that looks at the clock ---- */

static double in_run;

static int run_timed(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		     struct sl_error *err)
{
	double start = now();

	(void)state, (void)err;
	sl_transforms[id]->run(args, block);
	in_run += now() - start;
	return 0;
}

static const struct sl_backend timed = { .name = "timed", .run = run_timed };

/* ---- what is measured ---- */

/* One transform: sizes of the output and of each input, and its parameters. Streams are added to it. */
static struct sl_transform op(enum sl_transform_id id, uint64_t batch, uint64_t rows, uint64_t row_bytes)
{
	return (struct sl_transform){ .id = id, .args = { .batch = batch, .rows = rows, .row_bytes = row_bytes } };
}

static void input(struct sl_transform *t, uint64_t rows, uint64_t row_bytes)
{
	t->args.in[t->n_inputs].rows = rows;
	t->args.in[t->n_inputs].row_bytes = row_bytes;
	t->n_inputs++;
}

enum { K = 4096 };

/* A linear layer of 64 MiB. */
static struct sl_transform tiles(uint64_t bits, enum sl_packing from)
{
	uint64_t n = (uint64_t)(64 << 20) * 8 / bits / K;
	struct sl_transform t = op(SL_T_REPACK, 1, K / 16, n * 2 * bits);

	t.args.p[SL_REPACK_BITS] = bits;
	t.args.p[SL_REPACK_FROM] = from;
	t.args.p[SL_REPACK_TO] = SL_TO_TILES;
	if (from == SL_FROM_WORDS)
		input(&t, K * bits / 32, n * 4);
	else if (from == SL_FROM_ROWS)
		input(&t, n, K * bits / 8);
	else
		input(&t, K, n * bits / 8);
	return t;
}

static struct sl_transform tiles_4_words(void)
{
	return tiles(4, SL_FROM_WORDS);
}

static struct sl_transform tiles_4_rows(void)
{
	return tiles(4, SL_FROM_ROWS);
}

static struct sl_transform tiles_4_awq(void)
{
	return tiles(4, SL_FROM_AWQ);
}

static struct sl_transform tiles_8_words(void)
{
	return tiles(8, SL_FROM_WORDS);
}

static struct sl_transform tiles_8_rows(void)
{
	return tiles(8, SL_FROM_ROWS);
}

static struct sl_transform tiles_8_awq(void)
{
	return tiles(8, SL_FROM_AWQ);
}

static struct sl_transform awq_to_words(void)
{
	struct sl_transform t = op(SL_T_REPACK, 1, K / 8, (64 << 20) / (K / 8));

	t.args.p[SL_REPACK_BITS] = 4;
	t.args.p[SL_REPACK_FROM] = SL_FROM_AWQ;
	t.args.p[SL_REPACK_TO] = SL_TO_WORDS;
	input(&t, K, (64 << 20) / K);
	return t;
}

/* Zero points of groups of 32, of many experts. */
static struct sl_transform zeros(enum sl_packing from)
{
	uint64_t groups = K / 32, n = 4096;
	struct sl_transform t = op(SL_T_REPACK, (64 << 20) / (groups * n / 2), groups, n / 2);

	t.args.p[SL_REPACK_BITS] = 4;
	t.args.p[SL_REPACK_FROM] = from;
	t.args.p[SL_REPACK_TO] = SL_TO_ZEROS;
	t.args.p[SL_REPACK_TURNED] = from == SL_FROM_WORDS;
	input(&t, from == SL_FROM_WORDS ? n / 8 : groups, from == SL_FROM_WORDS ? groups * 4 : n / 2);
	return t;
}

static struct sl_transform zeros_words(void)
{
	return zeros(SL_FROM_WORDS);
}

static struct sl_transform zeros_awq(void)
{
	return zeros(SL_FROM_AWQ);
}

/* Scales of `size` bytes, of many experts. */
static struct sl_transform scales(enum sl_scale_kind kind, uint64_t size, uint64_t size_out, bool turned)
{
	uint64_t groups = 256, n = 4096;
	struct sl_transform t = op(SL_T_MARLIN_SCALES, (64 << 20) / size / groups / n, groups, n * size_out);

	t.args.p[SL_SCALES_KIND] = kind;
	t.args.p[SL_SCALES_SWAP] = size_out == 1;
	t.args.p[SL_SCALES_TURNED] = turned;
	t.args.p[SL_SCALES_HALF] = t.args.p[SL_SCALES_REAL] = n;
	t.args.p[SL_SCALES_REPEAT] = 1;
	t.args.p[SL_SCALES_FROM] = SL_F32;
	t.args.p[SL_SCALES_TO] = SL_BF16;
	input(&t, turned ? n : groups, (turned ? groups : n) * size);
	return t;
}

static struct sl_transform scales_2(void)
{
	return scales(SL_SCALE_KEEP, 2, 2, false);
}

static struct sl_transform scales_2_turned(void)
{
	return scales(SL_SCALE_KEEP, 2, 2, true);
}

static struct sl_transform scales_e8m0(void)
{
	return scales(SL_SCALE_E8M0, 1, 1, true);
}

static struct sl_transform scales_nvfp4(void)
{
	return scales(SL_SCALE_NVFP4, 1, 1, true);
}

static struct sl_transform scales_fp8(void)
{
	return scales(SL_SCALE_FUSED, 4, 2, true);
}

/* ---- experts ---- */

enum { EXPERTS = 4 };

/* Two halves of a matrix in an order, as TensorRT-LLM wants it. */
static void add_halves(struct sl_transform *t, uint64_t rows, uint64_t row_bytes)
{
	t->args.p[SL_ROWS_CHAIN] = SL_ROWS_THEN(SL_ROWS_TILE_128, SL_ROWS_ALTERNATING, SL_ROWS_SWAPPED);
	t->args.p[SL_ROWS_M] = rows;
	input(t, rows / 2, row_bytes);
	input(t, rows / 2, row_bytes);
}

static struct sl_transform rows_gated(void)
{
	struct sl_transform t = op(SL_T_ROWS, EXPERTS, K, K);

	add_halves(&t, K, K);
	return t;
}

static struct sl_transform rows_blocks(void)
{
	struct sl_transform t = op(SL_T_ROWS, EXPERTS, K / 128, K * 128);

	t.args.p[SL_ROWS_BLOCK] = 128;
	add_halves(&t, K, K);
	return t;
}

/* Scales of groups of 16 in rows of 7168 values. */
static struct sl_transform swizzle(bool gated)
{
	uint64_t cols = 7168 / 16;
	struct sl_transform t = op(SL_T_SWIZZLE, 8 * EXPERTS, K / SL_SWIZZLE_ROWS, cols * SL_SWIZZLE_ROWS);

	t.args.p[SL_ROWS_M] = K;
	if (gated)
		add_halves(&t, K, cols);
	else
		input(&t, K, cols);
	return t;
}

static struct sl_transform swizzle_plain(void)
{
	return swizzle(false);
}

static struct sl_transform swizzle_gated(void)
{
	return swizzle(true);
}

static struct sl_transform elements(enum sl_element kind)
{
	struct sl_transform t = op(SL_T_ELEMENT, 1, K, K * sizeof(float));

	t.args.p[SL_ELEMENT_KIND] = kind;
	input(&t, K, K * sl_element_size(kind));
	return t;
}

static struct sl_transform element_floor(void)
{
	return elements(SL_ELEMENT_FLOOR);
}

static struct sl_transform element_e8m0(void)
{
	return elements(SL_ELEMENT_E8M0);
}

/* FP8 of two fused matrices to one scale. */
static struct sl_transform map_fp8(void)
{
	struct sl_transform t = op(SL_T_MAP, 1, (64 << 20) / K, K);

	t.args.p[SL_MAP_KIND] = SL_MAP_REQUANT;
	t.args.p[SL_MAP_N] = 2;
	t.args.p[SL_MAP_ENDS] = (64 << 20) / K / 2;
	t.args.p[SL_MAP_ENDS + 1] = (64 << 20) / K;
	input(&t, (64 << 20) / K, K);
	input(&t, 1, 8);
	return t;
}

static struct sl_transform map_fnuz(void)
{
	struct sl_transform t = op(SL_T_MAP, 1, (64 << 20) / K, K);

	t.args.p[SL_MAP_KIND] = SL_MAP_FNUZ;
	t.args.p[SL_MAP_N] = 1;
	input(&t, (64 << 20) / K, K);
	return t;
}

static struct sl_transform turned(void)
{
	struct sl_transform t = op(SL_T_TRANSPOSE, 1, K, (64 << 20) / K);

	t.args.p[SL_TRANSPOSE_SIZE] = 1;
	input(&t, (64 << 20) / K, K);
	return t;
}

static struct sl_transform quant(enum sl_quant_kind kind, unsigned rows, unsigned cols)
{
	struct sl_transform t = op(SL_T_QUANT, 1, (64 << 20) / K / 2, K);

	t.args.p[SL_QUANT_KIND] = kind;
	t.args.p[SL_QUANT_FROM] = SL_BF16;
	t.args.p[SL_QUANT_COLS] = K;
	t.args.p[SL_QUANT_ROWS_OF] = rows;
	t.args.p[SL_QUANT_COLS_OF] = cols;
	input(&t, (64 << 20) / K / 2, K * 2);
	return t;
}

static struct sl_transform quant_tensor(void)
{
	return quant(SL_QUANT_TENSOR, 1, 1);
}

static struct sl_transform quant_rows(void)
{
	return quant(SL_QUANT_ROW, 1, K);
}

static struct sl_transform quant_blocks(void)
{
	return quant(SL_QUANT_BLOCK, 128, 128);
}

/* FP8 in blocks to other scales, or to BF16. */
static struct sl_transform from_blocks(enum sl_transform_id id)
{
	struct sl_transform t = op(id, 1, (64 << 20) / K, id == SL_T_QUANT ? K : 2 * K);

	t.args.p[SL_QUANT_KIND] = SL_QUANT_UE8M0;
	t.args.p[SL_QUANT_FROM] = SL_F8_E4M3;
	t.args.p[SL_QUANT_COLS] = K;
	t.args.p[SL_QUANT_ROWS_OF] = t.args.p[SL_QUANT_COLS_OF] = 128;
	t.args.p[SL_QUANT_SCALE_ROWS] = t.args.p[SL_QUANT_SCALE_COLS] = 128;
	if (id == SL_T_DEQUANT)
		t.args.p[SL_DEQUANT_TO] = SL_BF16;
	input(&t, (64 << 20) / K, K);
	input(&t, (64 << 20) / K / 128, K / 128 * 4);
	return t;
}

static struct sl_transform requant_blocks(void)
{
	return from_blocks(SL_T_QUANT);
}

static struct sl_transform dequant_blocks(void)
{
	return from_blocks(SL_T_DEQUANT);
}

/* clang-format off */
/* To add one: a line here, and a function that gives sizes and parameters. */
static const struct op {
	const char *name;
	struct sl_transform (*make)(void);
	unsigned char mask, plus; /* of random bytes; 0: as they are */
	bool weights;		  /* instead, BF16 as weights have them */
} ops[] = {
	{ "FP8 to one scale, a table", map_fp8, 0x01, 0x3C, false },
	{ "FP8 to AMD's codes", map_fnuz, 0, 0, false },
	{ "bytes turned", turned, 0, 0, false },
	{ "BF16 to FP8, a scale a matrix", quant_tensor, 0, 0, true },
	{ "BF16 to FP8, a scale a row", quant_rows, 0, 0, true },
	{ "BF16 to FP8, a scale a block", quant_blocks, 0, 0, true },
	{ "FP8 blocks to powers of two", requant_blocks, 0x3F, 0x20, false },
	{ "FP8 blocks to BF16", dequant_blocks, 0x3F, 0x20, false },
	{ "marlin tiles, 4 bits, words (GPTQ)", tiles_4_words, 0, 0, false },
	{ "marlin tiles, 4 bits, rows (CT, FP4)", tiles_4_rows, 0, 0, false },
	{ "marlin tiles, 4 bits, AWQ", tiles_4_awq, 0, 0, false },
	{ "marlin tiles, 8 bits, words (GPTQ)", tiles_8_words, 0, 0, false },
	{ "marlin tiles, 8 bits, rows (CT, FP8)", tiles_8_rows, 0, 0, false },
	{ "marlin tiles, 8 bits, AWQ", tiles_8_awq, 0, 0, false },
	{ "AWQ to words, 4 bits", awq_to_words, 0, 0, false },
	{ "marlin zero points, 4 bits [N/8, G]", zeros_words, 0, 0, false },
	{ "marlin zero points, AWQ", zeros_awq, 0, 0, false },
	{ "marlin scales, 16 bits [G, N]", scales_2, 0, 0, false },
	{ "marlin scales, 16 bits [N, G]", scales_2_turned, 0, 0, false },
	{ "marlin scales, E8M0 [N, G]", scales_e8m0, 0, 0, false },
	{ "marlin scales, NVFP4 [N, G]", scales_nvfp4, 0x3F, 0x20, false },
	{ "marlin scales, FP8's F32 [N, G]", scales_fp8, 0, 0, false },
	{ "rows, gated, tile of 128", rows_gated, 0, 0, false },
	{ "rows, gated, blocks of 128 bytes", rows_blocks, 0, 0, false },
	{ "swizzle, NVFP4 scales", swizzle_plain, 0, 0, false },
	{ "swizzle, NVFP4 scales, gated", swizzle_gated, 0, 0, false },
	{ "elements, F32 at least 1e-10", element_floor, 0, 0, false },
	{ "elements, F8_E8M0 to F32", element_e8m0, 0, 0, false },
};
/* clang-format on */

/* ---- measuring ---- */

static void *memory(uint64_t len)
{
	void *bytes = malloc(len);

	if (!bytes) {
		fprintf(stderr, "ops: out of memory\n");
		exit(1);
	}
	memset(bytes, 1, len);
	return bytes;
}

static unsigned next_byte(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 24;
}

/* BF16 that lie about zero as those of a normal distribution, nearly. */
static void add_weights(unsigned char *bytes, uint64_t len)
{
	uint32_t seed = 1;

	for (uint64_t b = 0; b + 1 < len; b += 2) {
		float sum = 0;
		for (unsigned i = 0; i < 4; i++)
			sum += (float)next_byte(&seed) + (float)next_byte(&seed) / 256 - 128;
		uint16_t half = sl_f32_to_bf16(sum / 8192);
		memcpy(bytes + b, &half, sizeof(half));
	}
}

/* Each input random bytes in memory of its own. */
static uint64_t add_streams(const struct op *o, struct sl_transform *t, struct sl_piece *pieces)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < t->n_inputs; i++) {
		uint64_t row_bytes = t->args.in[i].row_bytes, member = t->args.in[i].rows * row_bytes,
			 len = t->args.batch * member;
		unsigned char *bytes = memory(len);
		uint32_t seed = 1;
		for (uint64_t b = 0; b < len && !o->weights; b++)
			bytes[b] = (unsigned char)((next_byte(&seed) & (o->mask ? o->mask : 0xFF)) + o->plus);
		if (o->weights)
			add_weights(bytes, len);
		pieces[i] = (struct sl_piece){ .len = len, .data = bytes, .op = SL_OP_DATA };
		t->in[i] = (struct sl_stream){ &pieces[i], 1, 0, member, row_bytes };
		sum += len;
	}
	return sum;
}

static void add_facts(struct sl_transform *t)
{
	const struct sl_transform_row *row = sl_transforms[t->id];

	if (row->facts_len && row->facts_len(&t->args))
		t->facts = calloc(1, sizeof(*t->facts) + row->facts_len(&t->args));
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *seconds)
{
	qsort(seconds, ROUNDS, sizeof(*seconds), by_size);
	return seconds[ROUNDS / 2];
}

static int measure(const struct op *o)
{
	static struct sl_model model = { .backend = &timed };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_piece pieces[SL_INPUTS_MAX];
	struct sl_transform t = o->make();
	uint64_t out = sl_transform_len(&t.args), in = add_streams(o, &t, pieces), half = (in + out) / 2;
	unsigned char *dst = memory(out), *from = memory(half), *to = memory(half);
	double copied[ROUNDS], all[ROUNDS], alone[ROUNDS];

	add_facts(&t);
	int ret = sl_transform_check(&t, &err);
	if (!ret)
		ret = sl_transform_read(&model, &t, 0, out, dst, &err);
	for (int i = 0; i < ROUNDS && !ret; i++) {
		double start = now();
		memcpy(to, from, half);
		copied[i] = now() - start;
		in_run = 0;
		start = now();
		ret = sl_transform_read(&model, &t, 0, out, dst, &err);
		all[i] = now() - start;
		alone[i] = in_run;
	}
	if (ret) {
		fprintf(stderr, "ops: %s: %s\n", o->name, err.text);
		return 1;
	}
	double copy = median(copied), read = median(all), run = median(alone), gb = (double)(in + out) / 1e9;
	printf("%-38s memcpy %5.2f   run %5.2f GB/s, %4.2f   read %5.2f GB/s, %4.2f\n", o->name, gb / copy, gb / run,
	       copy / run, gb / read, copy / read);
	for (unsigned i = 0; i < t.n_inputs; i++)
		free((void *)(uintptr_t)pieces[i].data);
	free(t.facts);
	free(dst);
	free(from);
	free(to);
	return 0;
}

static bool is_wanted(const struct op *o, char **names)
{
	bool wanted = !*names;

	for (; *names; names++)
		wanted |= strstr(o->name, *names) != NULL;
	return wanted;
}

int main(int argc, char **argv)
{
	int status = 0;

	(void)argc;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (is_wanted(&ops[i], argv + 1))
			status |= measure(&ops[i]);
		fflush(stdout);
	}
	return status;
}
