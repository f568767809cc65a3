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
	shard = (struct sl_shard){ "shard", fd, SOURCE, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
				   0 };
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
	static const enum sl_op op[] = { SL_OP_COPY, SL_OP_CONVERT, SL_OP_TRANSPOSE };
	unsigned char *bytes = malloc(200 * 200 * 4);

	cr_assert_eq(ftruncate(open(fixture_path("shard"), O_WRONLY), 1000), 0);
	for (size_t i = 0; i < LEN(op); i++) {
		struct sl_piece p = piece(op[i], SL_BF16, op[i] == SL_OP_COPY ? SL_BF16 : SL_F32, 200, 10, 200);
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
