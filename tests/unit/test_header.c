/*
 * test_header.c - one safetensors file: what is accepted, and what each refusal says.
 *
 * The names B01 to B32 are those of public bug reports against other readers, restated as the smallest input that shows
 * the same fault.
 */
#include "fixture.h"

#include "slicer/header.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* One parsed header. */
static struct sl_arena arena;
static struct sl_tensor *tensors;
static uint32_t n_tensors;
static struct sl_error err;

static void setup(void)
{
	sl_arena_init(&arena);
}

static void teardown(void)
{
	sl_arena_release(&arena);
}

TestSuite(header, .init = setup, .fini = teardown, .timeout = 30);

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sl_tensor *)a)->name, ((const struct sl_tensor *)b)->name);
}

/* How many headers were read without tokens. */
static unsigned n_scanned;

/* What directories are opened with says the same as sl_header_parse() has, in the order of names. */
static void compare_ways(int ret, const unsigned char *head, size_t len, uint64_t file_size)
{
	struct sl_header_sink sink = { .names = &arena, .tensors = &arena };
	struct sl_error other = SL_ERROR_INIT;
	struct sl_tensor *got, *want;
	bool plain = false;
	uint32_t n;

	if (ret == -ENOMEM)
		return;
	sl_arena_fail_after(0);
	cr_assert_eq(sl_header_tensors(head, len, file_size, 0, &sink, &got, &n, &plain, &other), ret, "%s", err.text);
	cr_assert_str_eq(other.text, err.text);
	n_scanned += plain;
	if (ret)
		return;
	cr_assert_eq(n, n_tensors);
	want = malloc((n + 1) * sizeof(*want));
	memcpy(want, tensors, n * sizeof(*want));
	qsort(want, n, sizeof(*want), by_name);
	for (uint32_t i = 0; i < n; i++) {
		cr_assert_str_eq(got[i].name, want[i].name);
		cr_assert(got[i].off == want[i].off && got[i].len == want[i].len && got[i].dtype == want[i].dtype &&
				  got[i].n_dims == want[i].n_dims && got[i].name_len == want[i].name_len &&
				  got[i].name_len == strlen(got[i].name),
			  "%s", got[i].name);
		cr_assert_eq(memcmp(got[i].shape, want[i].shape, got[i].n_dims * sizeof(*got[i].shape)), 0);
	}
	free(want);
}

/* Parse the bytes of a whole file as the directory reader does: first `need`, then the rest. */
static int parse_bytes(const unsigned char *bytes, size_t len, uint64_t file_size)
{
	uint64_t need;

	err = (struct sl_error)SL_ERROR_INIT;
	int ret = sl_header_need(bytes, len < 1024 ? len : 1024, file_size, &need, &err);
	if (ret)
		return ret;
	cr_assert_leq(need, len);
	/* Exactly what was asked for, so that a sanitizer sees any step past it. */
	unsigned char *head = malloc(need);
	memcpy(head, bytes, need);
	ret = sl_header_parse(head, need, file_size, 0, &arena, &tensors, &n_tensors, &err);
	compare_ways(ret, head, need, file_size);
	free(head);
	return ret;
}

static int parse_text(const char *json, size_t json_len, size_t data_len)
{
	size_t len;
	unsigned char *bytes = fixture_bytes(json, json_len, data_len, &len);
	int ret = parse_bytes(bytes, len, len);

	free(bytes);
	return ret;
}

static int parse(const char *json, size_t data_len)
{
	return parse_text(json, strlen(json), data_len);
}

/* Only a length and a size: nothing else may be looked at. */
static int parse_length(uint64_t n, uint64_t file_size)
{
	unsigned char head[8];
	uint64_t need;

	for (int i = 0; i < 8; i++)
		head[i] = (unsigned char)(n >> 8 * i);
	err = (struct sl_error)SL_ERROR_INIT;
	return sl_header_need(head, sizeof(head), file_size, &need, &err);
}

static const struct sl_tensor *find(const char *name)
{
	for (uint32_t i = 0; i < n_tensors; i++) {
		if (strcmp(tensors[i].name, name) == 0)
			return &tensors[i];
	}
	cr_assert_fail("no tensor '%s'", name);
	return NULL;
}

static void expect(int got, int errnum, const char *input, const char *says)
{
	cr_assert_eq(got, -errnum, "%s: got %d (%s)", input, got, err.text);
	cr_assert_eq(err.errnum, errnum, "%s", input);
	cr_assert(strstr(err.text, says), "%s: '%s' lacks '%s'", input, err.text, says);
}

/* A refused header, with so much data, and what the message must say. */
struct refusal {
	const char *json;
	size_t data_len;
	int errnum;
	const char *says;
};

static void expect_all(const struct refusal *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		expect(parse(r[i].json, r[i].data_len), r[i].errnum, r[i].json, r[i].says);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A header of `n` entries, each printed with its number twice. */
static char *many(size_t n, const char *entry, size_t *len)
{
	char *text;
	FILE *out = open_memstream(&text, len);

	fputc('{', out);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? "," : "", out);
		/* The only conversions are ours. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		fprintf(out, entry, i, 4 * i, 4 * i + 4);
#pragma GCC diagnostic pop
	}
	fputc('}', out);
	fclose(out);
	return text;
}

Test(header, reads_one_tensor)
{
	static const char json[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}";

	cr_assert_eq(parse(json, 12), 0, "%s", err.text);
	cr_assert_eq(n_tensors, 1);
	cr_assert_str_eq(tensors[0].name, "a");
	cr_assert_eq(tensors[0].dtype, SL_BF16);
	cr_assert_eq(tensors[0].n_dims, 2);
	cr_assert_eq(tensors[0].shape[0], 2);
	cr_assert_eq(tensors[0].shape[1], 3);
	cr_assert_eq(tensors[0].off, 8 + strlen(json));
	cr_assert_eq(tensors[0].len, 12);
}

Test(header, B01_too_small)
{
	static const unsigned char bytes[8];

	expect(parse_bytes(bytes, 0, 0), EINVAL, "no byte", "empty (0 bytes)");
	expect(parse_bytes(bytes, 1, 1), EINVAL, "one byte", "too small for a safetensors file: 1 bytes, at least 8");
	expect(parse_bytes(bytes, 7, 7), EINVAL, "7 bytes", "7 bytes, at least 8");
	expect(parse_bytes(bytes, 8, 8), EINVAL, "8 zeros", "its header of 0 bytes: JSON: nothing but white space");
}

Test(header, B02_length_beyond_file)
{
	expect(parse_length(1000, 88), EINVAL, "1000 of 88", "header 1000 bytes (cap 100000000), but the file has 88");
	expect(parse_length(60, 8), EINVAL, "60 of 8", "header 60 bytes");
	expect(parse_length(60, 67), EINVAL, "60 of 67", "the file has 67");
	cr_assert_eq(parse_length(60, 68), 0);
}

Test(header, B03_length_cap)
{
	expect(parse_length(100000001, 1ull << 40), EINVAL, "cap + 1",
	       "header 100000001 bytes, above the cap of 100000000; the file has 1099511627776");
	cr_assert_eq(parse_length(100000000, 1ull << 40), 0);
}

Test(header, B04_length_wraps)
{
	static const uint64_t lengths[] = { UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 0x00FFFFFF0000003C };
	static const char *const says[] = { "18446744073709551615", "18446744073709551608", "9223372036854775808",
					    "72057589742960700" };

	for (size_t i = 0; i < LEN(lengths); i++)
		expect(parse_length(lengths[i], 100), EINVAL, says[i], says[i]);
}

Test(header, B05_not_utf8)
{
	static const char entry[] = "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
	static const char *const names[] = { "\xC3\x28", "\xC0\x80", "\xED\xA0\x80" };

	expect(parse("\xFF", 0), EINVAL, "0xff", "its header of 1 bytes: JSON: byte 0 (0xff) is not UTF-8");
	for (size_t i = 0; i < LEN(names); i++) {
		char text[100];
		snprintf(text, sizeof(text), "{\"%s%s", names[i], entry);
		expect(parse(text, 1), EINVAL, "a name", "JSON: byte 2 (0x");
		cr_assert(strstr(err.text, "is not UTF-8"));
	}
}

Test(header, B06_not_an_object_of_objects)
{
	static const struct refusal refusals[] = {
		{ "{},\"__metadata__\":{\"k\":\"v\"}}   ", 0, EINVAL, "JSON: byte 27" },
		{ "{},\"__metadata__\":{}   ", 0, EINVAL, "JSON: byte 2 (0x2c) stands where the end" },
		{ "{", 0, EINVAL, "JSON: ends at byte 1" },
		{ "[]", 0, EINVAL, "JSON, but no object" },
		{ "null", 0, EINVAL, "JSON: begins neither" },
		{ "\"x\"", 0, EINVAL, "JSON: begins neither" },
		{ "{\"a\":1}", 0, EINVAL, "tensor 'a': its entry is no object" },
		{ "{\"a\":[]}", 0, EINVAL, "tensor 'a': its entry is no object" },
		{ "{\"a\":null}", 0, EINVAL, "tensor 'a': its entry is no object" },
	};

	expect_all(refusals, LEN(refusals));
}

Test(header, B07_padding)
{
	cr_assert_eq(parse("{}\r \t\n", 0), 0);
	cr_assert_eq(n_tensors, 0);
	cr_assert_eq(parse("\t\n{}\r ", 0), 0);
	expect(parse_text("{}\0\0\0\0", 6, 0), EINVAL, "NUL padding", "JSON: byte 2 (0x00) is a NUL");
}

Test(header, B08_name_twice)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
		  8, EINVAL, "tensor 'a' is there twice" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		  4, EINVAL, "tensor 'a' is there twice" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
		  8, EINVAL, "tensor 'a' is there twice" },
		{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, EINVAL, "__metadata__ is there twice" },
	};

	expect_all(refusals, LEN(refusals));
}

Test(header, B09_aliases)
{
	size_t len;

	expect(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
		     "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
		     16),
	       EINVAL, "two", "tensor 'b' begins at byte 0 of the data, inside tensor 'a' that ends at 16");
	char *text = many(100000, "\"t%zu\":{\"dtype\":\"U8\",\"shape\":[160000],\"data_offsets\":[0,160000]}", &len);
	double begin = seconds();
	expect(parse_text(text, len, 160000), EINVAL, "100000", "inside tensor 't");
	cr_assert_lt(seconds() - begin, 10.0, "not quadratic, whatever the machine");
	free(text);
}

Test(header, B10_holes)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
		  12, EINVAL, "tensor 'b': no tensor has bytes [4, 8) before it" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, EINVAL,
		  "tensor 'a': no tensor has bytes [0, 4) before it" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		  "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		  12, EINVAL, "tensor 'b' begins at byte 4 of the data, inside tensor 'a' that ends at 8" },
		/* An empty tensor inside another one is an alias too. */
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		  "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
		  8, EINVAL, "tensor 'e' begins at byte 4" },
	};

	expect_all(refusals, LEN(refusals));
}

Test(header, B11_trailing_bytes)
{
	expect(parse("{\"a\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 20), EINVAL,
	       "zip at the end", "4 bytes follow the last tensor, which ends at byte 16 of 20 bytes of data");
	expect(parse("{}", 3), EINVAL, "data without tensors", "3 bytes follow the last tensor");
}

Test(header, B12_truncated)
{
	static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
				   "\"b\":{\"dtype\":\"U8\",\"shape\":[8192],\"data_offsets\":[4096,12288]}}";

	cr_assert_eq(parse(json, 12288), 0, "%s", err.text);
	expect(parse(json, 12286), EINVAL, "2 bytes short",
	       "tensor 'b' ends at byte 12288 of the data, but the data has 12286 (file of 12415): 2 bytes are missing");
	expect(parse(json, 4096), EINVAL, "a tensor short", "8192 bytes are missing");
	expect(parse(json, 0), EINVAL, "no data", "12288 bytes are missing");
}

Test(header, B13_shape_and_range_differ)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", 4, EINVAL,
		  "tensor 'a': its shape and F32 make 4000000 bytes, but [0, 4) are 4" },
		{ "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[128,128],\"data_offsets\":[0,128]}}", 128, EINVAL,
		  "tensor 'a': its shape and F8_E4M3 make 16384 bytes, but [0, 128) are 128" },
		{ "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", 4, EINVAL,
		  "make 16 bytes, but [0, 4) are 4" },
	};

	expect_all(refusals, LEN(refusals));
}

Test(header, B14_shape_wraps)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,18446744073709551614],\"data_offsets\":[0,16]}}", 16,
		  EOVERFLOW, "tensor 'a': its shape times 32 bits of I32 is more than 2^64" },
		{ "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,9223372036854775807],\"data_offsets\":[0,16]}}", 16,
		  EOVERFLOW, "more than 2^64" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, EOVERFLOW,
		  "more than 2^64" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, EOVERFLOW,
		  "more than 2^64" },
		/* As in the reference: from the left. */
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615,2,0],\"data_offsets\":[0,0]}}", 0,
		  EOVERFLOW, "more than 2^64" },
	};

	expect_all(refusals, LEN(refusals));
	cr_assert_eq(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615],\"data_offsets\":[0,0]}}", 0),
		     0);
	cr_assert_eq(tensors[0].len, 0);
}

Test(header, B15_bad_offsets)
{
	static const char *const offsets[][2] = {
		{ "[-4,0]", "data_offsets: -4 is no whole number" },
		{ "[8,4]", "bytes [8, 4) of 12 are no range" },
		{ "[0]", "data_offsets has 1 numbers; 2 to 2" },
		{ "[]", "data_offsets has 0 numbers" },
		{ "[0,4,8]", "data_offsets has 3 numbers" },
		{ "[\"0\",\"4\"]", "data_offsets: 0 is no whole number" },
		{ "[0,4.5]", "data_offsets: 4.5 is no whole number" },
		{ "[[0],4]", "data_offsets: [0] is no whole number" },
		{ "null", "data_offsets null is no array" },
		{ "{\"0\":4}", "is no array" },
		{ "[0,18446744073709551615]", "but [0, 18446744073709551615) are 18446744073709551615" },
		{ "[18446744073709551611,18446744073709551615]", "18446744073709551603 bytes are missing" },
	};

	for (size_t i = 0; i < LEN(offsets); i++) {
		char json[200];
		snprintf(json, sizeof(json), "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}",
			 offsets[i][0]);
		expect(parse(json, 12), EINVAL, json, offsets[i][1]);
		cr_assert(strstr(err.text, "tensor 'a'"));
	}
	expect(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4), EINVAL, "none", "key 'data_offsets' is missing");
}

Test(header, B16_numbers_are_exact)
{
	static const char *const numbers[] = { "1e2", "4.0", "-0", "18446744073709551616", "3e0" };

	for (size_t i = 0; i < LEN(numbers); i++) {
		char json[200], says[60];
		snprintf(json, sizeof(json), "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,%s]}}",
			 numbers[i]);
		snprintf(says, sizeof(says), "tensor 'a': data_offsets: %s is no whole number below 2^64", numbers[i]);
		expect(parse(json, 4), EINVAL, json, says);
		snprintf(json, sizeof(json), "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,4]}}",
			 numbers[i]);
		snprintf(says, sizeof(says), "tensor 'a': shape: %s is no whole number below 2^64", numbers[i]);
		expect(parse(json, 4), EINVAL, json, says);
	}
	expect(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[04],\"data_offsets\":[0,4]}}", 4), EINVAL, "04",
	       "JSON: byte 28");
	expect(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[+4],\"data_offsets\":[0,4]}}", 4), EINVAL, "+4",
	       "JSON: unexpected");
	/* 2^53 + 1 through a double would be 2^53. */
	expect(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,9007199254740993]}}",
		     4),
	       EINVAL, "2^53 + 1", "ends at byte 9007199254740993 of the data, but the data has 4");
}

Test(header, B17_scalars_and_empty_tensors)
{
	cr_assert_eq(parse("{\"s\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
			   "\"m\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
			   "\"z\":{\"dtype\":\"F32\",\"shape\":[2,0],\"data_offsets\":[4,4]}}",
			   4),
		     0, "%s", err.text);
	cr_assert_eq(find("s")->n_dims, 0);
	cr_assert_eq(find("s")->len, 4);
	cr_assert_eq(find("m")->len, 0);
	cr_assert_eq(find("z")->off, find("s")->off + 4);
	static const char *const orders[] = {
		"{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
		"\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
		"\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
		"\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}",
	};
	for (size_t i = 0; i < LEN(orders); i++) {
		cr_assert_eq(parse(orders[i], 8), 0, "%s", err.text);
		cr_assert_str_eq(tensors[0].name, "a");
		cr_assert_str_eq(tensors[1].name, "e");
		cr_assert_str_eq(tensors[2].name, "b");
	}
	expect(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,0]}}", 0), EINVAL, "[1] in [0,0]",
	       "tensor 'a': its shape and F32 make 4 bytes, but [0, 0) are 0");
}

Test(header, B18_metadata)
{
	static const char *const good[] = { "{}", "{\"__metadata__\":{}}", "{\"__metadata__\":null}",
					    "{\"__metadata__\":{\"format\":\"pt\"}}" };
	static const struct refusal refusals[] = {
		{ "{\"__metadata__\":{\"n\":1}}", 0, EINVAL, "__metadata__: the value of 'n' is no string" },
		{ "{\"__metadata__\":{\"o\":{}}}", 0, EINVAL, "__metadata__: the value of 'o' is no string" },
		{ "{\"__metadata__\":{\"o\":null}}", 0, EINVAL, "__metadata__: the value of 'o' is no string" },
		{ "{\"__metadata__\":[]}", 0, EINVAL, "__metadata__ is neither an object nor null" },
		{ "{\"__metadata__\":\"x\"}", 0, EINVAL, "__metadata__ is neither" },
	};

	for (size_t i = 0; i < LEN(good); i++) {
		cr_assert_eq(parse(good[i], 0), 0, "%s: %s", good[i], err.text);
		cr_assert_eq(n_tensors, 0);
	}
	expect_all(refusals, LEN(refusals));
}

Test(header, B19_any_order)
{
	cr_assert_eq(parse("{\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
			   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
			   "\"m\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
			   12),
		     0, "%s", err.text);
	cr_assert_eq(find("m")->off, find("a")->off + 4);
	cr_assert_eq(find("z")->off, find("a")->off + 8);
	cr_assert_str_eq(tensors[2].name, "z");
}

Test(header, B21_every_dtype)
{
	static const struct {
		const char *name;
		unsigned bytes;
	} dtypes[] = { { "BOOL", 8 },	     { "F4", 4 },      { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "U8", 8 },
		       { "I8", 8 },	     { "F8_E5M2", 8 }, { "F8_E4M3", 8 }, { "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 },
		       { "F8_E5M2FNUZ", 8 }, { "I16", 16 },    { "U16", 16 },	 { "F16", 16 },	   { "BF16", 16 },
		       { "I32", 32 },	     { "U32", 32 },    { "F32", 32 },	 { "F64", 64 },	   { "I64", 64 },
		       { "U64", 64 },	     { "C64", 64 } };

	for (size_t i = 0; i < LEN(dtypes); i++) {
		char json[200];
		snprintf(json, sizeof(json), "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}",
			 dtypes[i].name, dtypes[i].bytes);
		cr_assert_eq(parse(json, dtypes[i].bytes), 0, "%s: %s", json, err.text);
		cr_assert_str_eq(sl_dtypes[tensors[0].dtype].name, dtypes[i].name);
	}
	cr_assert_eq(LEN(dtypes), SL_N_DTYPES);
	cr_assert_eq(parse("{\"a\":{\"dtype\":\"\\u0055\\u0038\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), 0,
		     "escaped");
}

Test(header, B22_sub_byte)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, EINVAL,
		  "tensor 'a': 12 bits of F4 are no whole number of bytes" },
		{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,8],\"data_offsets\":[0,16]}}", 16, EINVAL,
		  "tensor 'a': its shape and F4 make 8 bytes, but [0, 16) are 16" },
		{ "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, EINVAL,
		  "tensor 'a': 18 bits of F6_E2M3 are no whole" },
	};

	expect_all(refusals, LEN(refusals));
	cr_assert_eq(parse("{\"a\":{\"dtype\":\"F4\",\"shape\":[2,8],\"data_offsets\":[0,8]}}", 8), 0);
	cr_assert_eq(parse("{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3), 0);
}

Test(header, B24_unknown_dtype)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"F8_E4M3FN\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': dtype 'F8_E4M3FN' is unknown" },
		{ "{\"a\":{\"dtype\":\"bf16\",\"shape\":[1],\"data_offsets\":[0,2]}}", 2, EINVAL, "'bf16' is unknown" },
		{ "{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16, EINVAL,
		  "'F128' is unknown" },
		{ "{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': dtype '' is unknown" },
		{ "{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': dtype 3 is no string" },
	};

	expect_all(refusals, LEN(refusals));
}

Test(header, B25_offsets_are_the_files)
{
	static const char json[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}";
	size_t len;
	unsigned char *bytes = fixture_bytes(json, strlen(json), 2, &len);

	bytes[len - 2] = 0x80;
	bytes[len - 1] = 0x3F;
	cr_assert_eq(parse_bytes(bytes, len, len), 0);
	cr_assert_arr_eq(bytes + tensors[0].off, "\x80\x3F", 2, "1.0, little endian, where the tensor points");
	free(bytes);
}

Test(header, B26_keys)
{
	static const struct refusal refusals[] = {
		{ "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': key 'shape' is missing" },
		{ "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL, "tensor 'a': key 'dtype' is missing" },
		{ "{\"a\":{}}", 0, EINVAL, "tensor 'a': key 'dtype' is missing" },
		{ "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': key 'dtype' is there twice" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"sh\\u0061pe\":[1],\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': key 'shape' is there twice" },
		{ "{\"a\":{\"x\":1,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":2}}", 1, EINVAL,
		  "tensor 'a': key 'x' is there twice" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":7,\"data_offsets\":[0,1]}}", 1, EINVAL,
		  "tensor 'a': shape 7 is no array" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
		  EINVAL, "tensor 'a': shape has 17 numbers; 0 to 16" },
	};

	expect_all(refusals, LEN(refusals));
	cr_assert_eq(parse("{\"a\":{\"dtype\":\"U8\",\"stride\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1), 0,
		     "ignored");
}

Test(header, B27_names_are_data)
{
	static const char *const names[] = { "../../etc/x", "a/b", "", ".", "\xF0\x9F\x98\x80", "CON", "new\\nline" };
	char json[2 * SL_NAME_MAX];
	const int pad = (int)SL_NAME_MAX;

	for (size_t i = 0; i < LEN(names); i++) {
		snprintf(json, sizeof(json), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
			 names[i]);
		cr_assert_eq(parse(json, 1), 0, "%s: %s", names[i], err.text);
		cr_assert_str_eq(tensors[0].name, i == 6 ? "new\nline" : names[i]);
	}
	expect(parse("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), EINVAL, "NUL",
	       "tensor 'a': a NUL in its name");
	snprintf(json, sizeof(json), "{\"%*d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", pad, 1);
	cr_assert_eq(parse(json, 1), 0, "%s", err.text);
	snprintf(json, sizeof(json), "{\"%*d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", pad + 1, 1);
	expect(parse(json, 1), EINVAL, "long", "a name of 4097 bytes; at most 4096");
	expect(parse("{\"new\\nline\":{\"dtype\":\"X\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), EINVAL, "escaped",
	       "tensor 'new\\x0aline': dtype 'X'");
}

Test(header, B28_deep_or_long)
{
	const size_t deep = 100000, slashes = 10 << 20;
	char *text = malloc(slashes + 100);
	int n = sprintf(text, "{\"__metadata__\":");

	memset(text + n, '[', deep);
	expect(parse_text(text, (size_t)n + deep, 0), EINVAL, "deep", "JSON: byte 23 (0x5b) is nested too deeply");
	n = sprintf(text, "{\"__metadata__\":{\"a\":\"");
	memset(text + n, '\\', slashes);
	expect(parse_text(text, (size_t)n + slashes, 0), EINVAL, "open", "begins a string that does not end");
	memcpy(text + n + slashes, "\"}}", 3);
	cr_assert_eq(parse_text(text, (size_t)n + slashes + 3, 0), 0, "%s", err.text);
	free(text);
}

Test(header, B29_many_tensors)
{
	size_t len;
	char *text = many(250000,
			  "\"model.language_model.layers.%zu.mlp.experts.gate_up_proj.weight_packed\":"
			  "{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[%zu,%zu]}",
			  &len);
	double begin = seconds();

	cr_assert_eq(parse_text(text, len, 1000000), 0, "%s", err.text);
	cr_assert_lt(seconds() - begin, 10.0, "linear, whatever the machine");
	cr_assert_eq(n_tensors, 250000);
	free(text);
}

Test(header, B31_lfs_pointer)
{
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
				      "oid sha256:16d0f997dcfc4462089d536bffe51b4bcea2f872f5c430be09ef8ed392312427\n"
				      "size 4792272488\n";

	expect(parse_bytes((const unsigned char *)pointer, strlen(pointer), strlen(pointer)), EINVAL, "pointer",
	       "is a git-lfs pointer (real size 4792272488): run git lfs pull");
	expect(parse_bytes((const unsigned char *)pointer, 40, 40), EINVAL, "cut",
	       "git-lfs pointer (real size unknown)");
}

Test(header, B32_other_files)
{
	static const char *const files[][2] = {
		{ "<?xml version=\"1.0\"?><Error>", "is an XML text" },
		{ "<!DOCTYPE html><html>", "is an HTML page" },
		{ "<html><body>", "is an HTML page" },
		{ "{\"error\":\"Entry not found\"}", "is a server's error message" },
		{ "Entry not found", "is text that begins 'Entry not fo'" },
		{ "Not\nFound\n", "is text that begins 'Not\\x0aFound" },
		{ "PK\x03\x04\x14\x08\x08\x08", "is a zip archive" },
		{ "GGUF\x03\x01\x01\x01", "is a GGUF file" },
	};

	for (size_t i = 0; i < LEN(files); i++)
		expect(parse_bytes((const unsigned char *)files[i][0], strlen(files[i][0]), strlen(files[i][0])),
		       EINVAL, files[i][0], files[i][1]);
}

Test(header, head_shorter_than_needed)
{
	size_t len;
	unsigned char *bytes = fixture_bytes("{}", 2, 0, &len);

	err = (struct sl_error)SL_ERROR_INIT;
	int ret = sl_header_parse(bytes, len - 1, len, 0, &arena, &tensors, &n_tensors, &err);
	expect(ret, EIO, "a caller's mistake", "has 10 bytes, of which only 9 could be read");
	free(bytes);
}

Test(header, no_memory)
{
	int ret = -ENOMEM;

	for (unsigned n = 1; ret; n++) {
		sl_arena_release(&arena);
		sl_arena_fail_after(n);
		ret = parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1},"
			    "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
			    2);
		sl_arena_fail_after(0);
		cr_assert(ret == 0 || (ret == -ENOMEM && err.errnum == ENOMEM), "%u: %d %s", n, ret, err.text);
		cr_assert_lt(n, 100);
	}
	cr_assert_eq(n_tensors, 2);
}

/* ---- read along its usual shape, or by its tokens ---- */

/* Up to 12 tensors, as writers write them and somewhat otherwise. Returns the bytes of data. */
static size_t random_header(char *json, size_t cap)
{
	static const char *const dtypes[] = { "F32", "BF16", "U8", "F4", "I64" };
	static const char *const stems[] = { "layers.", "layers.1", "m", "\xc3\xa4", "a\\u0062", "layers.10." };
	unsigned bits[] = { 32, 16, 8, 4, 64 }, n = (unsigned)rand() % 13;
	size_t len = (size_t)snprintf(json, cap, "{%s", rand() % 3 ? "" : "\"__metadata__\":{\"format\":\"pt\"}"),
	       off = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned d = (unsigned)rand() % 5, rows = (unsigned)rand() % 40 ? 2 * (1 + (unsigned)rand() % 3) : 0,
			 cols = 3;
		size_t bytes = (size_t)rows * cols * bits[d] / 8;
		const char *space = rand() % 20 ? "" : " \n\t";
		len += (size_t)snprintf(
			json + len, cap - len,
			"%s%s\"%s%u\":%s{\"dtype\":\"%s\",%s\"shape\":[%u,%u],\"data_offsets\":[%zu,%zu]}",
			json[len - 1] == '{' ? "" : ",", space, stems[rand() % (rand() % 8 ? 2 : 6)],
			(unsigned)rand() % 400, space, dtypes[d], space, rows, cols, off, off + bytes);
		off += bytes;
	}
	snprintf(json + len, cap - len, "}%s", rand() % 2 ? "" : "   ");
	return off;
}

/* parse_bytes() compares both ways each time. */
Test(header, both_ways_say_the_same)
{
	static const char bytes[] = "\"\\{}[],: 0123456789eE.-+FUB\x01\x7f\xc3_x";
	char json[4096];
	unsigned n_good = 0;

	srand(7);
	for (unsigned round = 0; round < 30000; round++) {
		size_t data_len = random_header(json, sizeof(json)), len = strlen(json);
		for (int n = rand() % 3; n > 0 && round % 2; n--) {
			size_t at = (size_t)rand() % len;
			if (rand() % 3 == 0)
				memmove(json + at, json + at + 1, len - at);
			else
				json[at] = bytes[(size_t)rand() % (sizeof(bytes) - 1)];
			len = strlen(json);
		}
		n_good += parse_text(json, len, data_len) == 0;
	}
	cr_assert(n_good > 5000 && n_scanned > 5000, "%u good, %u without tokens", n_good, n_scanned);
}
