/*
 * test_print.c - what people and programs read: figures, tables, JSON, values of each dtype, where bytes come from.
 */
#include "checkpoint.h"
#include "family.h"

#include "fs/origin.h"
#include "fs/print.h"
#include "fs/values.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *printed;
static size_t printed_len;

static FILE *start(void)
{
	FILE *out = open_memstream(&printed, &printed_len);

	cr_assert(out);
	return out;
}

static void expect(FILE *out, const char *text)
{
	fclose(out);
	cr_expect_str_eq(printed, text);
	free(printed);
}

Test(print, sizes)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.00 KiB" },
		{ 10235, "10.0 KiB" },
		{ 102399, "100 KiB" },
		{ 1048063, "1023 KiB" },
		{ 1048064, "1.00 MiB" },
		{ 16060522496, "15.0 GiB" },
		{ UINT64_MAX, "16.0 EiB" },
		{ 1560860324864, "1.42 TiB" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_str_eq(print_size(cases[i].bytes).text, cases[i].text);
	cr_expect_str_eq(print_count(0).text, "0");
	cr_expect_str_eq(print_count(999).text, "999");
	cr_expect_str_eq(print_count(1000).text, "1,000");
	cr_expect_str_eq(print_count(UINT64_MAX).text, "18,446,744,073,709,551,615");
}

Test(print, table)
{
	static const char *const heads[] = { "NAME", ">N", "WHAT" };
	struct sl_error err = SL_ERROR_INIT;
	struct table table;
	FILE *out = start();

	table_init(&table, heads, 3);
	table_cell(&table, "%s", "aé");
	table_cell(&table, "%d", 1000);
	table_cell(&table, "a|b");
	table_cell(&table, "longer");
	cr_expect_eq(table_print(&table, out, TABLE_PLAIN, &err), 0);
	fputc('\n', out);
	cr_expect_eq(table_print(&table, out, TABLE_MARKDOWN, &err), 0);
	table_release(&table);
	expect(out, "NAME       N  WHAT\n"
		    "aé      1000  a|b\n"
		    "longer        \n"
		    "\n"
		    "| NAME   |    N | WHAT |\n"
		    "|--------|-----:|------|\n"
		    "| aé     | 1000 | a\\|b |\n"
		    "| longer |      |      |\n");
}

Test(print, json)
{
	struct json_writer json;
	FILE *out = start();

	json_init(&json, out, 2);
	json_begin(&json, NULL, '{');
	json_string(&json, "a\"b", "x\\\n\x01\xC3\xA9\xFF");
	json_begin(&json, "none", '[');
	json_end(&json, ']');
	json_begin(&json, "list", '[');
	json_begin(&json, NULL, '{');
	json_number(&json, "n", UINT64_MAX);
	json_bool(&json, "b", false);
	json_end(&json, '}');
	json_number(&json, NULL, 2);
	json_end(&json, ']');
	json_end(&json, '}');
	expect(out, "{\n"
		    "  \"a\\\"b\": \"x\\\\\\u000a\\u0001\xC3\xA9\\ufffd\",\n"
		    "  \"none\": [],\n"
		    "  \"list\": [\n"
		    "    {\"n\": 18446744073709551615, \"b\": false},\n"
		    "    2\n"
		    "  ]\n"
		    "}\n");
}

Test(print, untrusted_text)
{
	FILE *out = start();

	print_escaped(out, "a\x1B[31m\xC3\xA9\xFFz");
	expect(out, "a\\x1b[31m\xC3\xA9\\xffz");
}

static double decode(uint8_t dtype, const char *bytes, size_t len)
{
	struct values v;

	values_init(&v);
	values_add(&v, dtype, (const unsigned char *)bytes, len);
	cr_assert_eq(v.n, 1);
	return v.first[0];
}

Test(print, values_of_each_dtype)
{
	static const struct {
		uint8_t dtype;
		const char *bytes;
		size_t len;
		double value;
	} cases[] = {
		{ SL_BF16, "\x80\x3F", 2, 1 },
		{ SL_BF16, "\x20\xC1", 2, -10 },
		{ SL_F16, "\x00\x3C", 2, 1 },
		{ SL_F16, "\x01\x00", 2, 0x1p-24 },
		{ SL_F16, "\xFF\x7B", 2, 65504 },
		{ SL_F16, "\x00\xFC", 2, -INFINITY },
		{ SL_F32, "\x00\x00\x00\x3F", 4, 0.5 },
		{ SL_F64, "\0\0\0\0\0\0\xF0\xBF", 8, -1 },
		{ SL_F8_E4M3, "\x38", 1, 1 },
		{ SL_F8_E4M3, "\x7E", 1, 448 },
		{ SL_F8_E4M3, "\x01", 1, 0x1p-9 },
		{ SL_F8_E5M2, "\x7B", 1, 57344 },
		{ SL_F8_E5M2, "\x7C", 1, INFINITY },
		{ SL_F8_E4M3FNUZ, "\x7F", 1, 240 },
		{ SL_F8_E5M2FNUZ, "\x7F", 1, 57344 },
		{ SL_F8_E8M0, "\x7F", 1, 1 },
		{ SL_F8_E8M0, "\x00", 1, 0x1p-127 },
		{ SL_I8, "\xFF", 1, -1 },
		{ SL_U8, "\xFF", 1, 255 },
		{ SL_BOOL, "\x01", 1, 1 },
		{ SL_I64, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, -2 },
		{ SL_U32, "\xFF\xFF\xFF\xFF", 4, 4294967295 },
		{ SL_I16, "\x00\x80", 2, -32768 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(decode(cases[i].dtype, cases[i].bytes, cases[i].len), cases[i].value, "case %zu", i);
	cr_expect(isnan(decode(SL_F8_E4M3, "\xFF", 1)));
	cr_expect(isnan(decode(SL_F8_E5M2, "\x7D", 1)));
	cr_expect(isnan(decode(SL_F8_E4M3FNUZ, "\x80", 1)));
	cr_expect(isnan(decode(SL_F8_E8M0, "\xFF", 1)));
	cr_expect(isnan(decode(SL_F16, "\x01\x7C", 2)));
	cr_expect_not(values_known(SL_F4));
	cr_expect_not(values_known(SL_C64));
}

Test(print, values_are_counted)
{
	const float numbers[] = { 3, NAN, -1, INFINITY, 0.5F };
	struct values v;

	values_init(&v);
	values_add(&v, SL_F32, (const unsigned char *)numbers, sizeof(numbers));
	cr_expect_eq(v.n, 5);
	cr_expect_eq(v.n_nan, 1);
	cr_expect_eq(v.n_inf, 1);
	cr_expect_eq(v.min, -1);
	cr_expect_eq(v.max, 3);
	cr_expect_eq(v.sum, 2.5);
}

/* ---- where bytes come from ---- */

TestSuite(origin, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

static struct sl_model *model;
static struct origins *origins;

static void begin(void)
{
	struct sl_error err = SL_ERROR_INIT;

	model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	cr_assert_eq(origins_open(&origins, model, &err), 0);
}

static void end(void)
{
	origins_close(origins);
	sl_model_close(model);
}

/* A piece of `count` runs of `run` bytes from byte `at` of a tensor. */
static struct sl_piece piece(const char *name, uint64_t at, uint64_t run, uint64_t stride, uint32_t count)
{
	const struct sl_tensor *t = sl_shards_find(&model->shards, name);

	cr_assert(t);
	return (struct sl_piece){
		.len = run * count,
		.src = t->off + at,
		.run = run,
		.stride = stride,
		.count = count,
		.shard = t->shard,
		.from = SL_BF16,
		.to = SL_BF16,
	};
}

static void expect_origin(struct sl_piece *pieces, uint32_t n, uint64_t rows, uint64_t columns, const char *text)
{
	const uint64_t shape[2] = { rows, columns };
	struct sl_output output = {
		.name = "x", .shape = shape, .n_dims = 2, .dtype = SL_BF16, .pieces = pieces, .n_pieces = n, .off = 96
	};
	FILE *out = start();

	for (uint32_t i = 0; i < n; i++) {
		pieces[i].off = output.off + output.len;
		output.len += pieces[i].len;
	}
	cr_assert_eq(origin_print(out, origins, &output), 0);
	expect(out, text);
}

/* Llama's rows here: embed_tokens [67, 40], down_proj [40, 48], BF16: 80 and 96 bytes a row. */
#define EMBED "model.embed_tokens.weight"
#define DOWN  "model.layers.0.mlp.down_proj.weight"
#define UP    "model.layers.0.mlp.up_proj.weight"

Test(origin, rows_and_columns)
{
	struct sl_piece zero = { .op = SL_OP_ZERO, .len = 160 }, p[3];

	begin();
	p[0] = piece(EMBED, 0, 67 * 80, 67 * 80, 1);
	expect_origin(p, 1, 67, 40, EMBED);
	p[0] = piece(EMBED, 80, 160, 160, 1);
	expect_origin(p, 1, 2, 40, EMBED "[1:3]");
	p[0] = piece(DOWN, 48, 48, 96, 40);
	expect_origin(p, 1, 40, 24, DOWN "[0:40, 24:48]");
	p[0] = piece(EMBED, 80, 80, 160, 4);
	expect_origin(p, 1, 4, 40, EMBED "[1:8:2]");
	p[0] = piece(EMBED, 0, 160, 320, 3);
	expect_origin(p, 1, 6, 40, EMBED "[0:2 every 4, 3 times]");
	p[0] = piece(EMBED, 82, 4, 4, 1);
	expect_origin(p, 1, 1, 2, EMBED "[1:2, 1:3]");
	p[0] = piece(EMBED, 78, 4, 4, 1);
	expect_origin(p, 1, 1, 2, EMBED ".flat[39:41]");
	p[0] = piece(EMBED, 66 * 80, 80, 80, 1);
	p[1] = zero;
	p[2] = piece(EMBED, 0, 80, 80, 1);
	expect_origin(p, 3, 4, 40, EMBED "[66:67] ++ 2 zero rows ++ " EMBED "[0:1]");
	expect_origin(&zero, 1, 2, 40, "zeros");
	end();
}

Test(origin, pieces_that_go_on_are_one)
{
	struct sl_piece p[2];

	begin();
	p[0] = piece(EMBED, 0, 80, 80, 1);
	p[1] = piece(EMBED, 80, 160, 160, 1);
	expect_origin(p, 2, 3, 40, EMBED "[0:3]");
	end();
}

Test(origin, by_columns)
{
	struct sl_piece p[30];

	begin();
	for (uint32_t i = 0; i < 10; i++) {
		p[3 * i] = piece(EMBED, 80 * i + 20, 40, 40, 1);
		p[3 * i + 1] = piece(DOWN, 96 * i, 96, 96, 1);
		p[3 * i + 2] = (struct sl_piece){ .op = SL_OP_ZERO, .len = 24 };
	}
	expect_origin(p, 30, 10, 80, "by columns: " EMBED "[0:10, 10:30] ++ " DOWN "[0:10] ++ 12 zero columns");
	end();
}

Test(origin, converted_and_turned)
{
	struct sl_piece p[2];

	begin();
	p[0] = piece(UP, 0, 80, 80, 48);
	p[0].op = SL_OP_TRANSPOSE;
	expect_origin(p, 1, 40, 48, UP ".T");
	p[0].to = SL_F32;
	p[0].len *= 2;
	expect_origin(p, 1, 40, 96, "cast(F32): " UP ".T");
	p[0] = piece(UP, 8 * 80 + 20, 40, 80, 16);
	p[0].op = SL_OP_TRANSPOSE;
	expect_origin(p, 1, 20, 16, UP ".T[10:30, 8:24]");
	p[0] = piece(EMBED, 0, 80, 80, 1);
	p[0].op = SL_OP_CONVERT;
	p[0].to = SL_F16;
	p[1] = piece(EMBED, 160, 80, 80, 1);
	expect_origin(p, 2, 2, 40, "cast(F16) " EMBED "[0:1] ++ " EMBED "[2:3]");
	end();
}

Test(origin, constants)
{
	static const unsigned char ones[8] = { 0x80, 0x3F, 0x80, 0x3F, 0x80, 0x3F, 0x80, 0x3F },
				   odd[4] = { 1, 2, 3, 4 };
	struct sl_piece p = { .op = SL_OP_DATA, .len = 8, .data = ones };

	begin();
	expect_origin(&p, 1, 2, 2, "all 1.0");
	p = (struct sl_piece){ .op = SL_OP_DATA, .len = 4, .data = odd };
	expect_origin(&p, 1, 1, 2, "4 constant bytes");
	end();
}
