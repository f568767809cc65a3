/*
 * test_piece.c - reading pieces of every op, shape and distance of runs, against byte-by-byte picking from the source.
 */
#include "fixture.h"
#include "twin.h"

#include "slicer/convert.h"
#include "slicer/file.h"
#include "slicer/model.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { SOURCE = 3 << 20 };

static unsigned char source[SOURCE];
static struct sl_shard shard;
static struct sl_model model;
static uint64_t state = 362436069;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static void setup(void)
{
	struct stat st;

	fixture_open();
	for (size_t i = 0; i < SOURCE; i++)
		source[i] = (unsigned char)(below(256) & 0xBF); /* no infinity, no NaN */
	fixture_file("shard", source, SOURCE);
	int fd = open(fixture_path("shard"), O_RDONLY);
	cr_assert(fd >= 0 && fstat(fd, &st) == 0);
	shard = (struct sl_shard){
		.name = "shard",
		.fd = fd,
		.size = SOURCE,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
	};
	model.shards.shards = &shard;
	model.shards.n_shards = 1;
}

static void teardown(void)
{
	close(shard.fd);
	fixture_close();
}

TestSuite(piece, .init = setup, .fini = teardown, .timeout = 120);

/* ---- the twin ---- */

static void put_converted(unsigned char *out, const struct sl_piece *p, const unsigned char *in)
{
	size_t size = sl_dtypes[p->to].bits / 8;
	uint32_t bits;

	if (p->from == p->to) {
		memcpy(out, in, size);
		return;
	}
	bits = twin_encode(p->to, twin_decode(p->from, in));
	memcpy(out, &bits, size);
}

/* All bytes of a piece. */
static unsigned char *whole_piece(const struct sl_piece *p)
{
	size_t in = sl_dtypes[p->from].bits / 8, out = sl_dtypes[p->to].bits / 8;
	uint64_t columns = p->run / in, fill = 0;
	unsigned char *bytes = malloc(p->len);

	if (p->op == SL_OP_TRANSPOSE) {
		for (uint64_t c = 0; c < columns; c++) {
			for (uint64_t r = 0; r < p->count; r++, fill += out)
				put_converted(bytes + fill, p, source + p->src + r * p->stride + c * in);
		}
		return bytes;
	}
	for (uint64_t r = 0; r < p->count; r++) {
		for (uint64_t c = 0; c < columns; c++, fill += out)
			put_converted(bytes + fill, p, source + p->src + r * p->stride + c * in);
	}
	return bytes;
}

static void check_range(const struct sl_piece *p, const unsigned char *whole, uint64_t skip, size_t len)
{
	struct sl_error err = SL_ERROR_INIT;
	unsigned char *got = malloc(len + 1);

	cr_assert_eq(sl_piece_read(&model, p, skip, len, got, &err), 0, "%s", err.text);
	cr_assert(memcmp(got, whole + skip, len) == 0, "%s: %u runs of %u, %u apart: %u bytes at %u", sl_op_name(p->op),
		  p->count, (unsigned)p->run, (unsigned)p->stride, (unsigned)len, (unsigned)skip);
	free(got);
}

static void check_piece(const struct sl_piece *p, unsigned n_reads)
{
	unsigned char *whole = whole_piece(p);

	check_range(p, whole, 0, p->len);
	check_range(p, whole, p->len, 0);
	for (unsigned i = 0; i < n_reads; i++) {
		uint64_t skip = below(p->len), most = p->len - skip;
		check_range(p, whole, skip, i % 2 ? most : 1 + below(i % 4 ? (most < 20 ? most : 20) : most));
	}
	free(whole);
}

/* A piece of those runs; its length is what they give. */
static struct sl_piece piece(enum sl_op op, enum sl_dtype from, enum sl_dtype to, uint64_t columns, uint64_t gap,
			     uint32_t count)
{
	uint64_t size = sl_dtypes[from].bits / 8, run = columns * size, stride = run + gap * size;
	uint64_t span = (count - 1) * stride + run;

	cr_assert_leq(span, SOURCE, "the source is too small");
	return (struct sl_piece){ .len = columns * count * (sl_dtypes[to].bits / 8),
				  .src = below(SOURCE - span + 1),
				  .run = run,
				  .stride = stride,
				  .count = count,
				  .op = (uint8_t)op,
				  .from = (uint8_t)from,
				  .to = (uint8_t)to };
}

/* ---- every op ---- */

/* Runs shorter and longer than what is read at once, gaps that are read over and that are not. */
static const struct {
	uint32_t columns, gap, count;
} shapes[] = {
	{ 1, 0, 1 },	     { 1, 1, 1000 },	 { 3, 5, 777 },	     { 64, 64, 2000 },	{ 1000, 24, 300 },
	{ 1024, 3000, 100 }, { 1025, 1, 200 },	 { 4095, 4097, 20 }, { 100, 5000, 70 }, { 20000, 10, 12 },
	{ 50000, 7, 5 },     { 70000, 1, 4 },	 { 300000, 0, 1 },   { 2, 0, 5000 },	{ 10000, 0, 9 },
	{ 1, 40000, 9 },     { 2047, 2049, 60 }, { 33000, 5, 3 },
};

static void check_op(enum sl_op op, enum sl_dtype from, enum sl_dtype to)
{
	for (size_t i = 0; i < LEN(shapes); i++) {
		uint64_t size = sl_dtypes[from].bits / 8;
		if ((uint64_t)(shapes[i].columns + shapes[i].gap) * shapes[i].count * size > SOURCE)
			continue;
		struct sl_piece p = piece(op, from, to, shapes[i].columns, shapes[i].gap, shapes[i].count);
		check_piece(&p, 16);
	}
}

Test(piece, copy)
{
	check_op(SL_OP_COPY, SL_BF16, SL_BF16);
	check_op(SL_OP_COPY, SL_U8, SL_U8);
	check_op(SL_OP_COPY, SL_F64, SL_F64);
}

Test(piece, convert)
{
	check_op(SL_OP_CONVERT, SL_F32, SL_BF16);
	check_op(SL_OP_CONVERT, SL_F32, SL_F16);
	check_op(SL_OP_CONVERT, SL_F16, SL_BF16);
	check_op(SL_OP_CONVERT, SL_BF16, SL_F32);
}

Test(piece, transpose)
{
	check_op(SL_OP_TRANSPOSE, SL_BF16, SL_BF16);
	check_op(SL_OP_TRANSPOSE, SL_F32, SL_F32);
}

Test(piece, transpose_and_convert)
{
	check_op(SL_OP_TRANSPOSE, SL_F32, SL_F16);
	check_op(SL_OP_TRANSPOSE, SL_BF16, SL_F32);
}

Test(piece, random_shapes)
{
	static const enum sl_dtype dtypes[] = { SL_BF16, SL_F16, SL_F32 };

	for (unsigned i = 0; i < 400; i++) {
		enum sl_op op = (enum sl_op[]){ SL_OP_COPY, SL_OP_CONVERT, SL_OP_TRANSPOSE }[below(3)];
		enum sl_dtype from = dtypes[below(3)], to = op == SL_OP_COPY ? from : dtypes[below(3)];
		struct sl_piece p =
			piece(op, from, to, 1 + below(300), below(4) ? below(300) : 0, (uint32_t)(1 + below(200)));
		check_piece(&p, 25);
	}
}

/* ---- several pieces at once ---- */

enum { PARTS_MAX = 9 };

/* Whole parts, a row of each after another. */
static unsigned char *whole_columns(const struct sl_piece *p)
{
	unsigned char *bytes = calloc(1, p->len);

	for (uint32_t i = 0; i < p->compound->n; i++) {
		const struct sl_piece *part = &p->compound->parts[i];
		unsigned char *own = part->op == SL_OP_ZERO ? calloc(1, part->len) : whole_piece(part);
		uint64_t width = part->len / part->count;
		for (uint32_t row = 0; row < p->count; row++)
			memcpy(bytes + row * p->run + part->off, own + row * width, width);
		free(own);
	}
	return bytes;
}

static struct sl_piece columns(struct sl_piece *parts, struct sl_compound *compound, uint32_t n)
{
	struct sl_piece whole = { .op = SL_OP_COLUMNS, .count = parts[0].count, .compound = compound };

	*compound = (struct sl_compound){ .n = n, .parts = parts };
	for (uint32_t i = 0; i < n; i++) {
		cr_assert_eq(parts[i].count, whole.count);
		parts[i].off = whole.run;
		whole.run += parts[i].len / parts[i].count;
		whole.len += parts[i].len;
	}
	return whole;
}

/* The whole, and ranges of every kind: inside one part's row, over rows, of whole rows. */
static void check_compound(const struct sl_piece *p, unsigned char *whole, unsigned n_reads)
{
	check_range(p, whole, 0, p->len);
	check_range(p, whole, p->len, 0);
	for (unsigned i = 0; i < n_reads; i++) {
		uint64_t skip = i % 3 ? below(p->len) : below(p->count) * p->run, most = p->len - skip;
		uint64_t len = i % 4 == 0   ? most
			       : i % 4 == 1 ? 1 + below(most < 20 ? most : 20)
			       : i % 4 == 2 ? 1 + below(most)
					    : below(most / p->run + 1) * p->run;
		check_range(p, whole, skip, len);
	}
	free(whole);
}

static struct sl_piece zeros(uint64_t width, uint32_t count)
{
	return (struct sl_piece){ .len = width * count, .count = count, .op = SL_OP_ZERO };
}

Test(piece, columns)
{
	/* Widths of the parts in elements, 0 for none; rows wider than what is read at once; a single row. */
	static const struct {
		uint32_t widths[4], gap, count;
	} cases[] = {
		{ { 1, 1 }, 0, 1 },	      { { 3, 5, 7 }, 2, 100 },	  { { 64, 32, 32 }, 32, 1000 },
		{ { 1, 2000 }, 1, 90 },	      { { 40000, 30000 }, 3, 7 }, { { 70000, 10 }, 1, 6 },
		{ { 100000, 100000 }, 0, 2 }, { { 65535, 1 }, 0, 5 },	  { { 65536, 1 }, 0, 5 },
		{ { 9, 9, 9, 9 }, 5000, 40 }, { { 300000, 1 }, 0, 1 },	  { { 2 }, 1, 300 },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		struct sl_piece parts[4];
		struct sl_compound compound;
		uint32_t n = 0;
		for (; n < 4 && cases[i].widths[n]; n++)
			parts[n] =
				piece(SL_OP_COPY, SL_BF16, SL_BF16, cases[i].widths[n], cases[i].gap, cases[i].count);
		struct sl_piece p = columns(parts, &compound, n);
		check_compound(&p, whole_columns(&p), 60);
	}
}

Test(piece, columns_of_zeros)
{
	struct sl_piece parts[] = { zeros(6, 70), piece(SL_OP_COPY, SL_BF16, SL_BF16, 11, 3, 70), zeros(2, 70),
				    zeros(200000, 70) };
	struct sl_compound compound;

	for (uint32_t n = 2; n <= LEN(parts); n++) {
		struct sl_piece p = columns(parts, &compound, n);
		check_compound(&p, whole_columns(&p), 60);
	}
}

Test(piece, columns_that_are_converted)
{
	static const enum sl_dtype dtypes[] = { SL_BF16, SL_F16, SL_F32 };

	for (unsigned i = 0; i < 150; i++) {
		struct sl_piece parts[PARTS_MAX];
		struct sl_compound compound;
		uint32_t n = (uint32_t)(1 + below(PARTS_MAX)), count = (uint32_t)(1 + below(60));
		enum sl_dtype to = dtypes[below(3)];
		for (uint32_t part = 0; part < n; part++) {
			enum sl_dtype from = dtypes[below(3)];
			parts[part] = piece(from == to ? SL_OP_COPY : SL_OP_CONVERT, from, to, 1 + below(400),
					    below(50), count);
			if (below(5) == 0)
				parts[part] = zeros(sl_dtypes[to].bits / 8 * (1 + below(9)), count);
		}
		struct sl_piece p = columns(parts, &compound, n);
		check_compound(&p, whole_columns(&p), 25);
	}
}

/* Each element times the scale of its block, in F32, rounded once. */
static unsigned char *whole_scaled(const struct sl_piece *p, uint64_t cols)
{
	const struct sl_piece *values = &p->compound->parts[0], *scales = &p->compound->parts[1];
	const uint32_t *block = p->compound->block;
	unsigned char *v = whole_piece(values), *s = whole_piece(scales), *bytes = malloc(p->len);
	uint64_t in = sl_dtypes[values->to].bits / 8, out = sl_dtypes[p->to].bits / 8;
	uint64_t scale_cols = (cols + block[1] - 1) / block[1];

	for (uint64_t i = 0; i < p->count * cols; i++) {
		float scale, product;
		memcpy(&scale, s + 4 * (i / cols / block[0] * scale_cols + i % cols / block[1]), sizeof(scale));
		product = (float)(twin_decode(values->to, v + i * in) * (double)scale);
		uint32_t bits = twin_encode(p->to, (double)product);
		memcpy(bytes + i * out, &bits, out);
	}
	free(v);
	free(s);
	return bytes;
}

static void check_scaled(enum sl_dtype from, enum sl_dtype scale, enum sl_dtype to, uint32_t rows, uint32_t cols,
			 uint32_t block_rows, uint32_t block_cols, unsigned n_reads)
{
	uint32_t scale_rows = (rows + block_rows - 1) / block_rows, scale_cols = (cols + block_cols - 1) / block_cols;
	struct sl_piece parts[] = {
		piece(SL_OP_COPY, from, from, cols, 0, rows),
		piece(scale == SL_F32 ? SL_OP_COPY : SL_OP_CONVERT, scale, SL_F32, scale_cols, 0, scale_rows),
	};
	const struct sl_compound compound = { .n = 2, .block = { block_rows, block_cols }, .parts = parts };
	uint64_t size = sl_dtypes[to].bits / 8;
	struct sl_piece p = { .op = SL_OP_SCALE,
			      .to = (uint8_t)to,
			      .count = rows,
			      .run = cols * size,
			      .len = rows * cols * size,
			      .compound = &compound };

	check_compound(&p, whole_scaled(&p, cols), n_reads);
}

/* 576 rows in blocks of 128 end inside the fifth, 130 columns inside the second. */
Test(piece, B125_scale)
{
	check_scaled(SL_F8_E4M3, SL_F32, SL_BF16, 576, 130, 128, 128, 40);
	check_scaled(SL_F8_E4M3, SL_BF16, SL_BF16, 130, 256, 128, 128, 40);
	check_scaled(SL_F8_E4M3, SL_F32, SL_F16, 7, 3000, 4, 2500, 40);
	check_scaled(SL_F8_E4M3, SL_F32, SL_F32, 5, 9, 1, 1, 40);
	check_scaled(SL_BF16, SL_F32, SL_BF16, 33, 65, 8, 16, 40);
	check_scaled(SL_F8_E4M3, SL_F32, SL_BF16, 1, 1, 128, 128, 4);
}

Test(piece, scale_of_random_shapes)
{
	for (unsigned i = 0; i < 60; i++)
		check_scaled(SL_F8_E4M3, i % 2 ? SL_F32 : SL_BF16, i % 3 ? SL_BF16 : SL_F16, (uint32_t)(1 + below(60)),
			     (uint32_t)(1 + below(300)), (uint32_t)(1 + below(40)), (uint32_t)(1 + below(200)), 20);
}

/* Scales multiply, whatever they are called: 0.5 times 1.0; and all codes. */
Test(piece, B118_scale_multiplies)
{
	const float half = 0.5f;
	unsigned char codes[256];
	uint16_t got[256];

	for (unsigned i = 0; i < 256; i++)
		codes[i] = (unsigned char)i;
	memcpy(source, codes, 256);
	memcpy(source + 256, &half, 4);
	fixture_file("shard", source, SOURCE);
	close(shard.fd);
	struct stat st;
	shard.fd = open(fixture_path("shard"), O_RDONLY);
	cr_assert(fstat(shard.fd, &st) == 0);
	shard.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	const struct sl_piece parts[] = {
		{ .len = 256, .run = 256, .stride = 256, .count = 1, .from = SL_F8_E4M3, .to = SL_F8_E4M3 },
		{ .len = 4, .src = 256, .run = 4, .stride = 4, .count = 1, .from = SL_F32, .to = SL_F32 },
	};
	const struct sl_compound compound = { .n = 2, .block = { 128, 256 }, .parts = parts };
	const struct sl_piece p = {
		.op = SL_OP_SCALE, .to = SL_BF16, .count = 1, .run = 512, .len = 512, .compound = &compound
	};
	struct sl_error err = SL_ERROR_INIT;
	cr_assert_eq(sl_piece_read(&model, &p, 0, 512, got, &err), 0, "%s", err.text);
	cr_assert_eq(got[0x38], 0x3F00);
	for (unsigned i = 0; i < 256; i++) {
		if ((i & 0x7F) == 0x7F)
			cr_assert((got[i] & 0x7FFF) > 0x7F80, "%02x is no number", i);
		else
			cr_assert_eq(got[i], twin_encode(SL_BF16, twin_decode(SL_F8_E4M3, &codes[i]) / 2), "%02x", i);
	}
}

/* ---- F4 in groups as FP8 in blocks ---- */

/* The code of the nearest F8_E4M3 number, of two as near the even one; no number for none. */
static unsigned char nearest_f8(double value)
{
	unsigned char best = 0;

	if (isnan(value))
		return 0x7F;
	for (unsigned code = 0; code < 0x7F; code++) {
		unsigned char c = (unsigned char)code;
		double now = fabs(twin_decode(SL_F8_E4M3, &c) - fabs(value)),
		       then = fabs(twin_decode(SL_F8_E4M3, &best) - fabs(value));
		if (now < then || (now == then && code % 2 == 0))
			best = c;
	}
	return (unsigned char)(best | (value < 0 ? 0x80 : 0));
}

/* 2^(stored - 127), and no number. */
static double power(unsigned char scale)
{
	return scale == 0xFF ? (double)NAN : ldexp(1, scale - 127);
}

/* The greatest scale of a block's groups; no number when there is one that is none. */
static double greatest(const unsigned char *scales, uint64_t groups, uint64_t block_row, uint64_t block_col)
{
	double most = 0;

	for (uint64_t r = 0; r < 128; r++) {
		for (uint64_t g = 0; g < 4; g++) {
			double scale = power(scales[(block_row * 128 + r) * groups + block_col * 4 + g]);
			if (isnan(scale) || isnan(most))
				most = (double)NAN;
			else if (scale > most)
				most = scale;
		}
	}
	return most;
}

static unsigned char *whole_regrouped(const unsigned char *values, const unsigned char *scales, uint64_t rows,
				      uint64_t cols)
{
	static const double numbers[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
	unsigned char *bytes = malloc(rows * cols);

	for (uint64_t i = 0; i < rows * cols; i++) {
		unsigned code = values[i / 2] >> (i % 2 * 4) & 15;
		double scale = power(scales[i / 32]),
		       block = greatest(scales, cols / 32, i / cols / 128, i % cols / 128);
		double number = code < 8 ? numbers[code] : 0 - numbers[code - 8];
		bytes[i] = nearest_f8(number * (scale / (block / 64)));
	}
	return bytes;
}

/* What is no number is so with either sign. */
static void check_regrouped(uint64_t rows, uint64_t cols, unsigned char lowest, unsigned spread, bool with_nan)
{
	uint64_t n_values = rows * cols / 2, n_scales = rows * cols / 32;
	unsigned char *bytes = malloc(n_values + n_scales), *scales = bytes + n_values, *got = malloc(rows * cols);
	struct sl_error err = SL_ERROR_INIT;
	struct stat st;

	for (uint64_t i = 0; i < n_values; i++)
		bytes[i] = (unsigned char)below(256);
	for (uint64_t i = 0; i < n_scales; i++)
		scales[i] = (unsigned char)(lowest + below(spread));
	if (with_nan)
		scales[below(n_scales)] = 0xFF;
	fixture_file("shard", bytes, n_values + n_scales);
	close(shard.fd);
	shard.fd = open(fixture_path("shard"), O_RDONLY);
	cr_assert(fstat(shard.fd, &st) == 0);
	shard.size = n_values + n_scales;
	shard.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	const struct sl_piece parts[] = {
		{ .len = n_values, .run = cols / 2, .stride = cols / 2, .count = (uint32_t)rows },
		{ .len = n_scales, .src = n_values, .run = cols / 32, .stride = cols / 32, .count = (uint32_t)rows },
	};
	const struct sl_compound compound = { .n = 2, .block = { 128, 128 }, .parts = parts },
				 of_scales = { .n = 1, .block = { 128, 128 }, .parts = parts + 1 };
	const struct sl_piece p = { .op = SL_OP_REGROUP,
				    .to = SL_F8_E4M3,
				    .count = (uint32_t)rows,
				    .run = cols,
				    .len = rows * cols,
				    .compound = &compound };
	const struct sl_piece q = { .op = SL_OP_REGROUPED,
				    .to = SL_F8_E8M0,
				    .count = (uint32_t)(rows / 128),
				    .run = cols / 128,
				    .len = rows / 128 * (cols / 128),
				    .compound = &of_scales };
	unsigned char *want = whole_regrouped(bytes, scales, rows, cols);
	cr_assert_eq(sl_piece_read(&model, &p, 0, p.len, got, &err), 0, "%s", err.text);
	for (uint64_t i = 0; i < rows * cols; i++) {
		if ((want[i] & 0x7F) == 0x7F && (got[i] & 0x7F) == 0x7F)
			want[i] = got[i];
	}
	check_compound(&p, want, 30);
	unsigned char *blocks = malloc(q.len);
	for (uint64_t i = 0; i < q.len; i++) {
		double block = greatest(scales, cols / 32, i / (cols / 128), i % (cols / 128));
		int exponent = isnan(block) ? 128 : ilogb(block) - 6;
		blocks[i] = (unsigned char)(exponent < -127 ? 0 : exponent + 127);
	}
	check_compound(&q, blocks, 30);
	free(got);
	free(bytes);
}

/* Real ones are close together; wide ones round and vanish; rows that are wider than what is made at once. */
Test(piece, regroup)
{
	check_regrouped(128, 128, 118, 5, false);
	check_regrouped(256, 384, 110, 12, false);
	check_regrouped(384, 256, 90, 40, true);
	check_regrouped(128, 8192 + 256, 120, 8, false);
	check_regrouped(256, 128, 20, 1, false);
}

Test(piece, zeros_and_data)
{
	unsigned char bytes[16];
	const struct sl_piece zero = { .len = 1000, .op = SL_OP_ZERO },
			      data = { .len = 1000, .data = source, .op = SL_OP_DATA };
	struct sl_error err = SL_ERROR_INIT;

	memset(bytes, 0xEE, sizeof(bytes));
	cr_assert_eq(sl_piece_read(&model, &zero, 990, 10, bytes, &err), 0);
	for (size_t i = 0; i < 16; i++)
		cr_assert_eq(bytes[i], i < 10 ? 0 : 0xEE);
	cr_assert_eq(sl_piece_read(&model, &data, 984, 16, bytes, &err), 0);
	cr_assert(memcmp(bytes, source + 984, 16) == 0);
}

/* ---- what cannot be read ---- */

Test(piece, outside)
{
	const struct sl_piece zero = { .len = 100, .op = SL_OP_ZERO };
	unsigned char bytes[200];
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(sl_piece_read(&model, &zero, 0, 101, bytes, &err), -EIO);
	cr_assert_eq(sl_piece_read(&model, &zero, 101, 0, bytes, NULL), -EIO);
	cr_assert_eq(sl_piece_read(&model, &zero, UINT64_MAX, 2, bytes, NULL), -EIO);
	cr_assert(strstr(err.text, "101") && strstr(err.text, "100"), "%s", err.text);
}

/* Each op passes the source's failure on, with the file's name in front. */
Test(piece, B163_source_is_too_short)
{
	static const enum sl_op op[] = { SL_OP_COPY, SL_OP_CONVERT, SL_OP_TRANSPOSE, SL_OP_COLUMNS };
	struct sl_piece parts[] = { piece(SL_OP_COPY, SL_BF16, SL_BF16, 100, 10, 200), zeros(7, 200) };
	unsigned char *bytes = malloc(200 * 200 * 4);
	struct sl_compound compound;

	cr_assert_eq(ftruncate(open(fixture_path("shard"), O_WRONLY), 1000), 0);
	for (size_t i = 0; i < LEN(op); i++) {
		struct sl_piece p = piece(op[i], SL_BF16, op[i] == SL_OP_COPY ? SL_BF16 : SL_F32, 200, 10, 200);
		if (op[i] == SL_OP_COLUMNS)
			p = columns(parts, &compound, 2);
		const struct sl_file file = {
			.name = "part", .size = p.len, .model = &model, .pieces = &p, .n_pieces = 1
		};
		struct sl_error err = SL_ERROR_INIT;
		ssize_t n = sl_file_read(&file, bytes, 0, p.len, &err);
		cr_assert(n == -EIO || n == -ESTALE, "%zd", n);
		cr_assert(strncmp(err.text, "part: shard: ", 13) == 0, "%s", err.text);
		n = sl_file_read(&file, bytes, 0, p.len, NULL);
		cr_assert(n == -EIO || n == -ESTALE, "%zd without anybody to tell", n);
	}
	free(bytes);
}

/* ---- extents ---- */

Test(piece, map)
{
	static const struct sl_piece pieces[] = { { .off = 0, .len = 10 },
						  { .off = 10, .len = 1 },
						  { .off = 11, .len = 89 } };
	const struct sl_file file = { .name = "x", .size = 100, .pieces = pieces, .n_pieces = 3 };

	for (uint64_t off = 0; off < 100; off++) {
		struct sl_extent extent = sl_file_map(&file, off, 1000);
		cr_assert(extent.piece->off + extent.skip == off && extent.skip < extent.piece->len);
		cr_assert_eq(extent.len, extent.piece->len - extent.skip);
		cr_assert_eq(sl_file_map(&file, off, 1).len, 1);
		cr_assert_eq(sl_file_map(&file, off, 0).len, 0);
	}
	cr_assert_eq(sl_file_map(&file, 100, 1).len, 0);
	cr_assert_eq(sl_file_map(&file, UINT64_MAX, 1).len, 0);
}

Test(piece, names_of_ops)
{
	for (int op = 0; op < SL_N_OPS; op++)
		cr_assert(sl_op_name((enum sl_op)op) && sl_op_name((enum sl_op)op)[0]);
}
