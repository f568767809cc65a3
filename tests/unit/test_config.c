/*
 * test_config.c - what a config.json says, where it is looked for, and serving it with changes.
 */
#include "fixture.h"

#include "slicer/config.h"
#include "slicer/dtype.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct sl_arena arena;
static struct sl_config config;
static struct sl_error err;
static bool is_open;

static void setup(void)
{
	fixture_open();
	sl_arena_init(&arena);
}

static void close_config(void)
{
	if (is_open)
		sl_config_close(&config);
	is_open = false;
}

static void teardown(void)
{
	close_config();
	sl_arena_release(&arena);
	fixture_close();
}

TestSuite(config, .init = setup, .fini = teardown, .timeout = 30);

static int try_open(void)
{
	int dirfd = open(fixture_dir(), O_RDONLY | O_DIRECTORY);

	err = (struct sl_error)SL_ERROR_INIT;
	close_config();
	int ret = sl_config_open(&config, dirfd, &arena, &err);
	is_open = ret == 0;
	close(dirfd);
	return ret;
}

static void given(const char *text)
{
	fixture_text("config.json", text);
	cr_assert_eq(try_open(), 0, "%s", err.text);
}

static void refused(int errnum, const char *part)
{
	cr_assert_eq(try_open(), -errnum, "%s", err.text);
	cr_assert(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
	cr_assert(strstr(err.text, "config.json"), "%s", err.text);
}

/* ---- opening ---- */

Test(config, B176_there_is_none)
{
	refused(EINVAL, "there is none");
}

Test(config, is_no_file)
{
	mkdir(fixture_path("config.json"), 0777);
	refused(EINVAL, "no regular file");
}

Test(config, is_a_fifo)
{
	mkfifo(fixture_path("config.json"), 0666);
	refused(EINVAL, "no regular file");
}

Test(config, is_too_large)
{
	fixture_text("config.json", "{}");
	cr_assert_eq(truncate(fixture_path("config.json"), SL_CONFIG_MAX + 1), 0);
	refused(EINVAL, "16777216");
}

Test(config, is_no_json)
{
	static const char *const texts[] = { "",	   "[]",	  "null", "\"x\"",     "{",
					     "{\"a\":1,}", "{\"a\":NaN}", "{} x", "{\"a\" 1}", "{'a':1}" };

	for (size_t i = 0; i < LEN(texts); i++) {
		fixture_text("config.json", texts[i]);
		refused(EINVAL, "config.json: ");
	}
}

Test(config, byte_order_mark)
{
	given("\xEF\xBB\xBF{\"architectures\":[\"X\"]}");
	cr_assert_str_eq(config.architecture, "X");
}

Test(config, names)
{
	given("{\"architectures\":[\"LlamaForCausalLM\",\"Other\"],\"model_type\":\"ll\\u0061ma\"}");
	cr_assert_str_eq(config.architecture, "LlamaForCausalLM");
	cr_assert_str_eq(config.model_type, "llama");
	given("{\"architectures\":[]}");
	cr_assert(config.architecture == NULL && config.model_type == NULL);
	given("{\"architectures\":[null]}");
	cr_assert(config.architecture == NULL);
	given("{\"architectures\":\"LlamaForCausalLM\"}");
	cr_assert(config.architecture == NULL);
}

/* ---- values ---- */

static uint64_t number(enum sl_part part, const char *keys)
{
	uint64_t value = 0;

	err = (struct sl_error)SL_ERROR_INIT;
	int ret = sl_config_u64(&config, part, keys, &value, &err);
	return ret == -ENOENT ? 404 : ret ? 500 : value;
}

Test(config, B176_nested_wins)
{
	given("{\"hidden_size\":1,\"vocab_size\":2,\"text_config\":{\"hidden_size\":3,\"layers\":null},\"layers\":4,"
	      "\"vision_config\":{\"hidden_size\":5}}");
	cr_assert_eq(number(SL_TEXT, "hidden_size"), 3);
	cr_assert_eq(number(SL_TEXT, "vocab_size"), 2);
	cr_assert_eq(number(SL_TEXT, "layers"), 4, "null counts as absent");
	cr_assert_eq(number(SL_VISION, "hidden_size"), 5);
	cr_assert_eq(number(SL_VISION, "vocab_size"), 404, "the top level is not about the vision tower");
}

Test(config, sections_by_other_names)
{
	static const char *const texts[] = { "{\"n\":1,\"language_config\":{\"n\":2}}",
					     "{\"n\":1,\"llm_config\":{\"n\":2}}",
					     "{\"n\":1,\"text_config\":null,\"llm_config\":{\"n\":2}}" };

	for (size_t i = 0; i < LEN(texts); i++) {
		given(texts[i]);
		cr_assert_eq(number(SL_TEXT, "n"), 2);
	}
	given("{\"n\":1,\"vision_config\":7}");
	cr_assert_eq(number(SL_VISION, "n"), 404);
}

Test(config, first_key_wins)
{
	given("{\"b\":2,\"a\":null,\"c\":3}");
	cr_assert_eq(number(SL_TEXT, "a|b|c"), 2);
	cr_assert_eq(number(SL_TEXT, "c|b"), 3);
	cr_assert_eq(number(SL_TEXT, "d|e"), 404);
	cr_assert_eq(number(SL_TEXT, ""), 404);
}

/* As Python's json, which the engines read with: they must not see another value than we. */
Test(config, last_of_two_members_counts)
{
	given("{\"n\":1,\"n\":2,\"text_config\":{\"m\":1},\"text_config\":{\"m\":2,\"m\":3}}");
	cr_assert_eq(number(SL_TEXT, "n"), 2);
	cr_assert_eq(number(SL_TEXT, "m"), 3);
	given("{\"n\":1,\"n\":null}");
	cr_assert_eq(number(SL_TEXT, "n"), 404);
}

Test(config, no_whole_numbers)
{
	static const char *const texts[] = { "{\"n\":-1}",   "{\"n\":1.5}",
					     "{\"n\":1e3}",  "{\"n\":\"8\"}",
					     "{\"n\":true}", "{\"n\":[1]}",
					     "{\"n\":{}}",   "{\"n\":18446744073709551616}" };

	for (size_t i = 0; i < LEN(texts); i++) {
		given(texts[i]);
		cr_assert_eq(number(SL_TEXT, "n|m"), 500, "%s", texts[i]);
		cr_assert_str_eq(err.text, "config.json: n is no whole number");
	}
}

/* "object.key" looks into an object, in the section first and then at the top level, as any key. */
Test(config, keys_in_objects)
{
	uint64_t value = 0;

	given("{\"o\":{\"a\":1,\"p\":{\"b\":2}},\"n\":7,\"text_config\":{\"o\":{\"c\":3}}}");
	cr_assert_eq(sl_config_u64(&config, SL_TEXT, "o.c", &value, &err), 0);
	cr_assert_eq(value, 3);
	cr_assert_eq(sl_config_u64(&config, SL_TEXT, "o.a", &value, &err), 0);
	cr_assert_eq(value, 1);
	cr_assert_eq(sl_config_u64(&config, SL_TEXT, "o.x|o.p.b", &value, &err), 0);
	cr_assert_eq(value, 2);
	cr_assert_eq(sl_config_find(&config, SL_TEXT, "n.a|o.p.b.c|.a|o."), 0);
}

Test(config, lists)
{
	given("{\"l\":[3,0,\"x\",5],\"n\":3}");
	cr_assert(sl_config_lists(&config, SL_TEXT, "l", 5) && !sl_config_lists(&config, SL_TEXT, "l", 4));
	cr_assert(!sl_config_lists(&config, SL_TEXT, "n", 3) && !sl_config_lists(&config, SL_TEXT, "absent", 3));
	cr_assert(sl_json_equal(&config.json, sl_config_element(&config, SL_TEXT, "l", 2), "x"));
	cr_assert_eq(sl_config_element(&config, SL_TEXT, "l", 4), 0);
	cr_assert_eq(sl_config_element(&config, SL_TEXT, "n", 0), 0);
}

Test(config, booleans_and_strings)
{
	given("{\"t\":true,\"f\":false,\"n\":null,\"x\":1,\"s\":\"gpt\"}");
	cr_assert(sl_config_bool(&config, SL_TEXT, "t", false) && !sl_config_bool(&config, SL_TEXT, "f", true));
	cr_assert(sl_config_bool(&config, SL_TEXT, "n", true) && !sl_config_bool(&config, SL_TEXT, "absent", false));
	cr_assert(sl_config_bool(&config, SL_TEXT, "x", true), "no boolean");
	cr_assert(sl_config_is(&config, SL_TEXT, "s", "gpt") && !sl_config_is(&config, SL_TEXT, "s", "gp"));
	cr_assert(!sl_config_is(&config, SL_TEXT, "x", "1") && !sl_config_is(&config, SL_TEXT, "absent", ""));
}

/* ---- dims ---- */

static int dims(const struct sl_dims *defaults)
{
	err = (struct sl_error)SL_ERROR_INIT;
	return sl_config_dims(&config, SL_TEXT, defaults, &err);
}

Test(config, dims_by_any_name)
{
	const struct sl_dims *d = &config.dims[SL_TEXT];

	given("{\"n_layer\":1,\"n_embd\":2,\"n_head\":3,\"n_head_kv\":4,\"ffn_hidden_size\":5,\"vocab_size\":6,"
	      "\"head_dim\":7}");
	cr_assert_eq(dims(NULL), 0);
	cr_assert(d->layers == 1 && d->hidden == 2 && d->heads == 3 && d->kv_heads == 4 && d->inter == 5 &&
		  d->vocab == 6);
	cr_assert_eq(d->head_dim, 7);
}

Test(config, dims_that_are_not_said)
{
	static const struct sl_dims defaults = { .layers = 9, .kv_heads = 2, .head_dim = 256 };
	const struct sl_dims *d = &config.dims[SL_TEXT];

	given("{\"num_attention_heads\":8,\"num_key_value_heads\":null,\"head_dim\":null}");
	cr_assert_eq(dims(NULL), 0);
	cr_assert(d->layers == 0 && d->kv_heads == 8 && d->head_dim == 0);
	cr_assert_eq(dims(&defaults), 0);
	cr_assert(d->layers == 9 && d->kv_heads == 2 && d->head_dim == 256);
}

Test(config, B79_list_of_kv_heads)
{
	given("{\"num_attention_heads\":8,\"num_key_value_heads\":[4,2]}");
	cr_assert_eq(dims(NULL), 0);
	cr_assert_eq(config.dims[SL_TEXT].kv_heads, 0);
}

Test(config, impossible_dims)
{
	static const char *const texts[][2] = {
		{ "{\"hidden_size\":0}", "hidden_size is 0" },
		{ "{\"vocab_size\":2147483649}", "vocab_size is 2147483649, expected 1 to 2147483648" },
		{ "{\"num_attention_heads\":-8}", "num_attention_heads is no whole number" },
		{ "{\"intermediate_size\":[1,2]}", "intermediate_size is no whole number" },
	};

	for (size_t i = 0; i < LEN(texts); i++) {
		given(texts[i][0]);
		cr_assert_eq(dims(NULL), -EINVAL);
		cr_assert(strstr(err.text, texts[i][1]), "%s", err.text);
	}
}

/* ---- dtype ---- */

static int dtype(void)
{
	err = (struct sl_error)SL_ERROR_INIT;
	return sl_config_dtype(&config, &err);
}

Test(config, B176_dtype_where_vllm_looks)
{
	static const struct {
		const char *text;
		int dtype;
	} cases[] = {
		{ "{}", -1 },
		{ "{\"torch_dtype\":null}", -1 },
		{ "{\"torch_dtype\":\"bfloat16\"}", SL_BF16 },
		{ "{\"dtype\":\"float16\",\"torch_dtype\":\"float32\"}", SL_F16 },
		{ "{\"dtype\":null,\"torch_dtype\":\"float32\"}", SL_F32 },
		{ "{\"dtype\":\"float64\"}", SL_F64 },
		{ "{\"torch_dtype\":\"float16\",\"text_config\":{\"torch_dtype\":\"bfloat16\"}}", SL_F16 },
		{ "{\"vision_config\":{\"dtype\":\"float16\"},\"text_config\":{\"dtype\":\"bfloat16\"}}", SL_BF16 },
		{ "{\"vision_config\":{\"dtype\":\"float16\"},\"text_config\":{}}", SL_F16 },
		{ "{\"encoder_config\":{\"torch_dtype\":\"float32\"}}", SL_F32 },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		given(cases[i].text);
		cr_assert_eq(dtype(), cases[i].dtype, "%s", cases[i].text);
		cr_assert_eq(err.errnum, 0);
	}
}

Test(config, no_dtype)
{
	static const char *const texts[] = { "{\"torch_dtype\":\"int8\"}", "{\"torch_dtype\":\"BF16\"}",
					     "{\"torch_dtype\":16}", "{\"torch_dtype\":{\n\"a\":\n1}}" };

	for (size_t i = 0; i < LEN(texts); i++) {
		given(texts[i]);
		cr_assert_eq(dtype(), -EINVAL);
		cr_assert(strstr(err.text, "torch_dtype") && !strchr(err.text, '\n'), "%s", err.text);
	}
}

/* ---- edits ---- */

static void edited(const char *text, const struct sl_config_edit *edits, size_t n, const char *want)
{
	size_t len;

	given(text);
	char *got = sl_config_edited(&config, edits, n, &arena, &len);
	cr_assert_eq(len, strlen(got));
	cr_assert_str_eq(got, want);
	fixture_text("config.json", got);
	cr_assert_eq(try_open(), 0, "what is served is JSON: %s: %s", err.text, got);
}

Test(config, edits_replace)
{
	static const struct sl_config_edit edits[] = {
		{ .keys = "num_attention_heads", .value = "4" },
		{ .keys = "tie", .value = "false" },
		{ .top = true, .keys = "dtype|torch_dtype", .value = "\"float16\"" }
	};

	edited("{ \"torch_dtype\" : \"bfloat16\",\n  \"tie\": true ,\"x\":[1, 2],\"num_attention_heads\":32}\n", edits,
	       3, "{ \"torch_dtype\" : \"float16\",\n  \"tie\": false ,\"x\":[1, 2],\"num_attention_heads\":4}\n");
}

Test(config, edits_replace_where_it_is)
{
	static const struct sl_config_edit edits[] = { { .keys = "n", .value = "9" } };

	edited("{\"n\":1,\"text_config\":{\"n\":2}}", edits, 1, "{\"n\":1,\"text_config\":{\"n\":9}}");
	edited("{\"n\":1,\"text_config\":{\"m\":2}}", edits, 1, "{\"n\":9,\"text_config\":{\"m\":2}}");
	edited("{\"n\":{\"a\":[1]},\"b\":1}", edits, 1, "{\"n\":9,\"b\":1}");
	edited("{\"n\":1,\"n\":2}", edits, 1, "{\"n\":1,\"n\":9}");
}

Test(config, edits_add)
{
	static const struct sl_config_edit edits[] = { { .keys = "a|b", .value = "1" },
						       { .top = true, .keys = "c", .value = "\"x\"" } };

	edited("{\"z\":0}", edits, 1, "{\n  \"a\": 1,\"z\":0}");
	edited("{\"text_config\":{\"z\":0}}", edits, 2, "{\n  \"c\": \"x\",\"text_config\":{\n  \"a\": 1,\"z\":0}}");
}

Test(config, edits_add_to_what_is_empty)
{
	static const struct sl_config_edit edits[] = { { .keys = "a", .value = "1" },
						       { .keys = "b", .value = "2" },
						       { .keys = "c", .value = "3" } };

	edited("{}", edits, 1, "{\n  \"a\": 1}");
	given("{\"text_config\":{ }}");
	size_t len;
	fixture_text("config.json", sl_config_edited(&config, edits, 3, &arena, &len));
	cr_assert_eq(try_open(), 0, "%s", err.text);
	cr_assert(number(SL_TEXT, "a") == 1 && number(SL_TEXT, "b") == 2 && number(SL_TEXT, "c") == 3);
}

/* Python reads the last of two members: a value beside the null would not count. */
Test(config, edits_replace_a_null)
{
	static const struct sl_config_edit edits[] = {
		{ .keys = "head_dim", .value = "128" },
		{ .top = true, .keys = "dtype|torch_dtype", .value = "\"float16\"" }
	};

	edited("{\"head_dim\":null,\"torch_dtype\": null}", edits, 2,
	       "{\"head_dim\":128,\"torch_dtype\": \"float16\"}");
	edited("{\"text_config\":{\"head_dim\":null},\"head_dim\":null}", edits, 1,
	       "{\"text_config\":{\"head_dim\":128},\"head_dim\":null}");
}

Test(config, no_edits)
{
	edited("{\"a\" : \"\\u00e9\"}\n\n", NULL, 0, "{\"a\" : \"\\u00e9\"}\n\n");
}
