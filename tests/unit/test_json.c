/*
 * test_json.c - what strict JSON accepts, refuses and gives back.
 */
#include "slicer/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Parse a copy without a terminator, so that a sanitizer sees any step past the end. */
static int parse(struct sl_json *json, const char *text, size_t len, unsigned depth, struct sl_error *err)
{
	char *copy = malloc(len ? len : 1);

	memcpy(copy, text, len);
	int ret = sl_json_parse(json, copy, len, depth, err);
	if (ret)
		free(copy);
	return ret;
}

static void release(struct sl_json *json)
{
	char *copy = (char *)(uintptr_t)json->text;

	sl_json_release(json);
	free(copy);
}

Test(json, accepts)
{
	/* clang-format off */
	static const char *const texts[] = {
		"{}", "[]", " \t\r\n{} \n", "[[],{}]", "[1,2]", "{\"a\":1}", "{\"a\":{\"b\":[]},\"c\":null}",
		"[0,-0,1.5,-1.5e10,1E+2,2e-3,18446744073709551616]", "[true,false,null]", "[\"\"]", "[\"\\u0000\"]",
		"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"]", "[\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\"]",
		"{\"\":0,\" \":[{},[]] }", "[ \"a:b,c{}[]\" , 1 ]",
	};
	/* clang-format on */

	for (size_t i = 0; i < LEN(texts); i++) {
		struct sl_error err = SL_ERROR_INIT;
		struct sl_json json;
		cr_assert_eq(parse(&json, texts[i], strlen(texts[i]), 8, &err), 0, "%s: %s", texts[i], err.text);
		cr_assert_eq(json.tokens[0].next, json.n, "%s", texts[i]);
		release(&json);
	}
}

/* To add a refused text: it, and what the message must say. */
/* clang-format off */
static const struct {
	const char *text, *says;
} refused[] = {
	{ "", "white space in 0 bytes" },
	{ "  ", "white space in 2 bytes" },
	{ "null", "begins neither" },
	{ "\"x\"", "begins neither" },
	{ "1", "begins neither" },
	{ "{", "ends at byte 1 with 1 bracket" },
	{ "[{}", "ends at byte 3 with 1 bracket" },
	{ "{}}", "byte 2 (0x7d) closes what was never opened" },
	{ "]", "byte 0 (0x5d) closes" },
	{ "{]", "byte 1" },
	{ "[}", "byte 1" },
	{ "{},\"a\":{}", "byte 2 (0x2c) stands where the end of the document" },
	{ "{}{}", "byte 2 (0x7b)" },
	{ "{} x", "byte 3" },
	{ "[] []", "byte 3 (0x5b)" },
	{ "[1,]", "byte 2 (0x2c) stands where an element or ']'" },
	{ "[,1]", "byte 1 (0x2c)" },
	{ "[1,,2]", "byte 3 (0x2c)" },
	{ "[1 2]", "byte 3 (0x32) stands where ','" },
	{ "[\"a\" \"b\"]", "byte 5 (0x22) stands where ','" },
	{ "[1:2]", "byte 1 begins neither a number nor" },
	{ "[\"a\":2]", "byte 4 (0x3a) stands where ','" },
	{ "{\"a\"}", "byte 4 (0x7d) stands where a member's value" },
	{ "{\"a\":}", "byte 4 (0x3a) stands where a member's value" },
	{ "{\"a\":1,}", "byte 6 (0x2c) stands where a member or '}'" },
	{ "{\"a\" 1}", "byte 5" },
	{ "{\"a\",1}", "byte" },
	{ "{\"a\":1 \"b\":2}", "byte 7 (0x22) stands where ','" },
	{ "{1:2}", "byte 1" },
	{ "{[]:2}", "byte 1" },
	{ "{a:2}", "byte 1" },
	{ "{\"a\":1:2}", "byte 5" },
	{ "{\"a\"::1}", "byte 5" },
	{ "{:1}", "byte 2" },
	{ "[01]", "byte 1 begins neither" },
	{ "[+4]", "byte 1" },
	{ "[-]", "byte 1 begins neither" },
	{ "[1.]", "byte 1 begins neither" },
	{ "[.5]", "byte 1" },
	{ "[1e]", "byte 1 begins neither" },
	{ "[1e+]", "byte 1 begins neither" },
	{ "[0x10]", "byte 1 begins neither" },
	{ "[--1]", "byte 1 begins neither" },
	{ "[NaN]", "byte 1" },
	{ "[nul]", "byte 1 begins neither" },
	{ "[truee]", "byte 1 begins neither" },
	{ "[True]", "byte 1" },
	{ "['a']", "byte 1" },
	{ "[\"a]", "byte 1 (0x22) begins a string that does not end" },
	{ "[\"\\\"]", "byte 1 (0x22) begins a string that does not end" },
	{ "[\"\\x\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"\\u12\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"\\u12g4\"]", "byte 2 (0x5c)" },
	{ "[\"\\uD800\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"\\uDC00\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"\\uD800\\u0041\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"\\uD800\\n\"]", "byte 2 (0x5c) begins a malformed escape" },
	{ "[\"a\nb\"]", "byte 3 (0x0a) is a control character" },
	{ "[\"\x1f\"]", "byte 2 (0x1f) is a control character" },
	{ "[\"\xFF\"]", "byte 2 (0xff) is not UTF-8" },
	{ "[\"\xC3\x28\"]", "byte 2 (0xc3) is not UTF-8" },
	{ "[\"\xC0\x80\"]", "byte 2 (0xc0) is not UTF-8" },
	{ "[\"\xED\xA0\x80\"]", "byte 2 (0xed) is not UTF-8" },
	{ "[\"\xF4\x90\x80\x80\"]", "byte 2 (0xf4) is not UTF-8" },
	{ "[\"\xE2\x82\"]", "byte 2 (0xe2) is not UTF-8" },
	{ "[\xC3\xA9]", "byte 1" },
	{ "\xFF", "byte 0 (0xff) is not UTF-8" },
	{ "[1]//", "byte 3" },
	{ "[1]\f", "byte 3" },
};
/* clang-format on */

Test(json, refuses)
{
	for (size_t i = 0; i < LEN(refused); i++) {
		struct sl_error err = SL_ERROR_INIT;
		struct sl_json json;
		cr_assert_eq(parse(&json, refused[i].text, strlen(refused[i].text), 8, &err), -EINVAL, "accepted %s",
			     refused[i].text);
		cr_assert(strstr(err.text, refused[i].says), "%s: '%s' lacks '%s'", refused[i].text, err.text,
			  refused[i].says);
	}
}

Test(json, refuses_nul)
{
	static const struct {
		const char *text;
		size_t len;
	} texts[] = { { "{}\0", 3 }, { "[\"a\0b\"]", 7 }, { "\0", 1 }, { "[\0]", 3 } };

	for (size_t i = 0; i < LEN(texts); i++) {
		struct sl_error err = SL_ERROR_INIT;
		struct sl_json json;
		cr_assert_eq(parse(&json, texts[i].text, texts[i].len, 8, &err), -EINVAL);
		cr_assert(strstr(err.text, "(0x00)"), "%s", err.text);
	}
}

Test(json, depth)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_json json;

	cr_assert_eq(parse(&json, "[[[]]]", 6, 3, &err), 0);
	release(&json);
	cr_assert_eq(parse(&json, "[[[[]]]]", 8, 3, &err), -EINVAL);
	cr_assert(strstr(err.text, "byte 3 (0x5b) is nested too deeply"), "%s", err.text);
	/* Whatever the caller allows, the stack is finite. */
	char deep[4096];
	memset(deep, '[', sizeof(deep) / 2);
	memset(deep + sizeof(deep) / 2, ']', sizeof(deep) / 2);
	cr_assert_eq(parse(&json, deep, sizeof(deep), 1u << 30, NULL), -EINVAL);
}

Test(json, linear_time, .timeout = 20)
{
	/* Many siblings at full depth, and long texts of one byte: each quadratic in a naive parser. */
	static const struct {
		const char *unit;
		int ret;
	} texts[] = { { "[[[[[[[]]]]]]],", -EINVAL },
		      { "[", -EINVAL },
		      { "]", -EINVAL },
		      { ",", -EINVAL },
		      { "\\\\", -EINVAL },
		      { ":", -EINVAL },
		      { "\"a\":", -EINVAL } };

	for (size_t i = 0; i < LEN(texts); i++) {
		size_t unit = strlen(texts[i].unit), n = 5000000 / unit;
		char *text = malloc(1 + n * unit);
		struct sl_json json;
		text[0] = '[';
		for (size_t k = 0; k < n; k++)
			memcpy(text + 1 + k * unit, texts[i].unit, unit);
		cr_assert_eq(sl_json_parse(&json, text, 1 + n * unit, 8, NULL), texts[i].ret);
		/* The same, closed, so that it gets past the first pass. */
		text[n * unit] = ']';
		if (sl_json_parse(&json, text, 1 + n * unit, 8, NULL) == 0)
			sl_json_release(&json);
		free(text);
	}
}

Test(json, walks)
{
	static const char text[] = "{\"a\":[1,[2,3],{}],\"b\":{\"c\":4},\"a\":5}";
	struct sl_json json;

	cr_assert_eq(parse(&json, text, strlen(text), 8, NULL), 0);
	cr_assert_eq(json.tokens[0].type, SL_JSON_OBJECT);
	cr_assert_eq(json.tokens[0].n, 3);
	uint32_t key = sl_json_first(&json, 0);
	cr_assert(sl_json_equal(&json, key, "a"));
	cr_assert_eq(json.tokens[key + 1].n, 3);
	uint32_t element = sl_json_first(&json, key + 1);
	cr_assert_eq(json.tokens[element].type, SL_JSON_NUMBER);
	element = sl_json_next(&json, element);
	cr_assert_eq(json.tokens[element].n, 2);
	element = sl_json_next(&json, element);
	cr_assert_eq(json.tokens[element].type, SL_JSON_OBJECT);
	cr_assert_eq(json.tokens[element].n, 0);
	key = sl_json_next(&json, key);
	cr_assert(sl_json_equal(&json, key, "b"));
	cr_assert_eq(json.tokens[key + 1].n, 1);
	cr_assert_eq(sl_json_member(&json, 0, "a"), 2, "the first of two");
	cr_assert_eq(sl_json_member(&json, 0, "x"), 0);
	cr_assert_eq(sl_json_member(&json, key + 2, "x"), 0, "a key is no object");
	release(&json);
}

Test(json, strings)
{
	static const char text[] =
		"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\u20AC\\ud83d\\ude00\",\"a\\u0000b\",\"plain\"]";
	static const char *const want[] = { "\"\\/\b\f\n\r\t", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "a", "plain" };
	static const size_t lens[] = { 8, 9, 3, 5 };
	struct sl_arena arena;
	struct sl_json json;
	size_t len;

	sl_arena_init(&arena);
	cr_assert_eq(parse(&json, text, strlen(text), 8, NULL), 0);
	for (uint32_t i = 0; i < LEN(want); i++) {
		cr_assert_str_eq(sl_json_string(&json, i + 1, &arena, &len), want[i]);
		cr_assert_eq(len, lens[i]);
		cr_assert_eq(sl_json_equal(&json, i + 1, want[i]), i != 2);
		cr_assert(!sl_json_equal(&json, i + 1, ""));
		cr_assert(!sl_json_equal(&json, i + 1, "\"\\/\b\f\n\r\t\t"));
	}
	sl_arena_fail_after(1);
	cr_assert_null(sl_json_string(&json, 1, &arena, &len));
	sl_arena_fail_after(0);
	release(&json);
	sl_arena_release(&arena);
}

Test(json, numbers)
{
	static const char text[] =
		"[0,7,18446744073709551615,9007199254740993,18446744073709551616,1e2,4.0,-0,-4,\"4\",null]";
	static const uint64_t want[] = { 0, 7, UINT64_MAX, 9007199254740993 };
	struct sl_json json;

	cr_assert_eq(parse(&json, text, strlen(text), 8, NULL), 0);
	for (uint32_t i = 0; i < json.tokens[0].n; i++) {
		uint64_t value;
		int ret = sl_json_u64(&json, i + 1, &value);
		cr_assert_eq(ret, i < LEN(want) ? 0 : -EINVAL, "number %u", i);
		cr_assert(i >= LEN(want) || value == want[i], "number %u", i);
	}
	release(&json);
}
