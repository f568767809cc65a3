/*
 * test_layout.c - layout names: one spelling each.
 */
#include "slicer/engine.h"
#include "slicer/layout.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(layout, .timeout = 30);

static struct sl_layout parse(const char *name)
{
	struct sl_layout layout;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], name), 0, "%s", name);
	return layout;
}

Test(layout, tokens)
{
	struct sl_layout layout = parse("tp4-pp2-ep-f16");

	cr_assert(layout.tp == 4 && layout.pp == 2 && layout.experts == SL_EXPERTS_WHOLE && layout.dtype == SL_F16);
	layout = parse("tp8");
	cr_assert(layout.tp == 8 && layout.pp == 1 && layout.experts == SL_EXPERTS_SLICED && layout.dtype == -1);
	layout = parse("tp1-eprr");
	cr_assert_eq(layout.experts, SL_EXPERTS_ROUND_ROBIN);
	cr_assert_eq(parse("tp2-bf16").dtype, SL_BF16);
	cr_assert_eq(parse("tp2-f32").dtype, SL_F32);
	cr_assert_eq(parse("tp1024").tp, SL_RANKS_MAX);
}

/* Every combination of tokens is a name, means what it says, and prints as itself. */
Test(layout, parse_and_format_are_inverse)
{
	static const char *const experts[] = { "", "-ep", "-eprr" }, *const dtypes[] = { "", "-bf16", "-f16", "-f32" };
	static const unsigned numbers[] = { 1, 2, 3, 6, 8, 10, 16, 64, 100, 999, 1000, 1024 };
	char name[80], pp[20], again[SL_LAYOUT_NAME_MAX];

	for (unsigned i = 0; i < LEN(numbers) * LEN(numbers) * LEN(experts) * LEN(dtypes); i++) {
		unsigned tp = numbers[i % 12], stages = numbers[i / 12 % 12];
		snprintf(pp, sizeof(pp), "-pp%u", stages);
		snprintf(name, sizeof(name), "tp%u%s%s%s", tp, stages > 1 ? pp : "", experts[i / 144 % 3],
			 dtypes[i / 432]);
		struct sl_layout layout = parse(name);
		cr_assert(layout.tp == tp && layout.pp == stages, "%s", name);
		cr_assert_eq((unsigned)layout.experts, i / 144 % 3);
		cr_assert_str_eq(sl_layout_format(&layout, &sl_engines[SL_VLLM], again), name);
	}
}

/* "fp8" is a word of one engine. */
Test(layout, words_of_one_engine)
{
	struct sl_layout layout;
	char again[SL_LAYOUT_NAME_MAX];

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_DEEPSEEK], "mp8-fp8"), 0);
	cr_assert(layout.tp == 8 && layout.dtype == SL_F8_E4M3);
	cr_assert_str_eq(sl_layout_format(&layout, &sl_engines[SL_DEEPSEEK], again), "mp8-fp8");
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], "tp8-fp8"), -ENOENT);
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_DEEPSEEK], "mp8-fp8-f16"), -ENOENT);
}

/* Of the engine whose loader pads them; where kernels have words, those say it. */
Test(layout, padded_experts)
{
	struct sl_layout layout;
	char again[SL_LAYOUT_NAME_MAX];

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], "tp8-bf16-padded"), 0);
	cr_assert(layout.tp == 8 && layout.padded);
	cr_assert_str_eq(sl_layout_format(&layout, &sl_engines[SL_VLLM], again), "tp8-bf16-padded");
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], "tp8-padded-bf16"), -ENOENT);
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM_0_28], "tp8-padded"), -ENOENT);
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_KERNEL], "tp8-padded"), -ENOENT);
	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_HF], "tp8-padded"), -ENOENT);
}

Test(layout, other_spellings_are_none)
{
	static const char *const names[] = {
		"",
		"-",
		"tp",
		"tp0",
		"tp02",
		"tp1025",
		"tp99999",
		"tp4294967297",
		"tp-2",
		"tp+2",
		"tp 2",
		" tp2",
		"tp2 ",
		"tp2\n",
		"TP2",
		"Tp2",
		"tp2-",
		"-tp2",
		"tp2--pp2",
		"tp2-pp1",
		"tp2-pp20,41", /* B106: no list of layers */
		"tp2-pp20,21,20",
		"tp2-pp0",
		"tp2-pp02",
		"pp2",
		"pp2-tp2",
		"tp2-tp2",
		"tp2-pp2-pp2",
		"ep",
		"tp2-ep-pp2",
		"tp2-ep-eprr",
		"tp2-ep-ep",
		"tp2-eprr-ep",
		"tp2-f16-ep",
		"tp2-f16-bf16",
		"tp2-f16-f16",
		"tp2-fp16",
		"tp2-float16",
		"tp2-F16",
		"tp2-fp8",
		"tp2x",
		"tp2_pp2",
		"2",
		"source",
		"tp2.0",
		"tp0x2",
		"tp٢",
		"..",
		".",
		"tp2/pp2",
		"tp2-pp2-bf16-ep-eprr-ep-eprr-ep-eprr-ep-eprr-ep-eprr-ep-eprr-ep-eprr-ep-eprr",
	};
	struct sl_layout layout;

	for (unsigned i = 0; i < LEN(names); i++)
		cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], names[i]), -ENOENT, "'%s' is taken",
			     names[i]);
}
