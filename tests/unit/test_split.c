/*
 * test_split.c - how axes divide, and what is said when they do not.
 */
#include "checkpoint.h"
#include "family.h"

#include "slicer/split.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(split, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

/* A model of which only head_dim counts here. */
static struct sl_model model_of(unsigned head_dim)
{
	struct sl_model model = { 0 };

	model.config.dims[SL_TEXT].head_dim = head_dim;
	return model;
}

static void expect_split(enum sl_dim dim, uint64_t size, unsigned head_dim, unsigned tp, unsigned rank, uint64_t first,
			 uint64_t n)
{
	const struct sl_model model = model_of(head_dim);
	const struct sl_segment segment = { 0, size, dim };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_range range;

	cr_assert_eq(sl_split(&model, SL_TEXT, &segment, tp, rank, &range, &err), 0, "%s", err.text);
	cr_assert(range.first == first && range.n == n && range.zero == 0, "%u/%u of %u: [%u, +%u)", rank, tp,
		  (unsigned)size, (unsigned)range.first, (unsigned)range.n);
}

static void refuse_split(enum sl_dim dim, uint64_t size, unsigned head_dim, unsigned tp, const char *says)
{
	const struct sl_model model = model_of(head_dim);
	const struct sl_segment segment = { 0, size, dim };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_range range;

	cr_assert_eq(sl_split(&model, SL_TEXT, &segment, tp, 0, &range, &err), -EINVAL);
	cr_assert_str_eq(err.text, says);
}

Test(split, evenly)
{
	expect_split(SL_INTER, 24, 8, 4, 3, 18, 6);
	expect_split(SL_Q, 32, 8, 2, 1, 16, 16);
	expect_split(SL_Q, 32, 8, 1, 0, 0, 32);
}

Test(split, B75_what_does_not_divide)
{
	refuse_split(SL_INTER, 10, 8, 4, "10 intermediate rows do not divide by tp 4");
	refuse_split(SL_Q, 6 * 8, 8, 4, "6 attention heads do not divide by tp 4");
	/* 48 rows do divide by 4, heads of 8 rows do not. */
	expect_split(SL_INTER, 48, 8, 4, 1, 12, 12);
}

Test(split, B77_kv_heads)
{
	for (unsigned r = 0; r < 8; r++) {
		expect_split(SL_KV, 2 * 4, 4, 8, r, r / 4 * 4, 4);
		expect_split(SL_KV, 8 * 4, 4, 8, r, r * 4, 4);
		expect_split(SL_KV, 16 * 4, 4, 8, r, r * 8, 8);
		expect_split(SL_KV, 1 * 4, 4, 8, r, 0, 4);
	}
}

Test(split, B78_kv_heads_that_fit_neither_way)
{
	refuse_split(SL_KV, 8 * 4, 4, 6, "8 kv heads do not divide by tp 6");
	refuse_split(SL_KV, 3 * 4, 4, 2, "3 kv heads do not divide by tp 2");
	refuse_split(SL_KV, 2 * 4, 4, 3, "2 kv heads neither divide by tp 3 nor into it");
}

/* ---- embeddings ---- */

static void expect_embedding(enum sl_engine_id engine, uint64_t rows, unsigned tp, unsigned rank, struct sl_range want)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_range range;

	cr_assert_eq(sl_split_embedding(&sl_engines[engine], SL_VOCAB, rows, tp, rank, &range, &err), 0, "%s",
		     err.text);
	cr_assert(range.n == want.n && range.zero == want.zero && (range.first == want.first || !want.n),
		  "%u/%u of %u: %u + %u, %u zero", rank, tp, (unsigned)rows, (unsigned)range.first, (unsigned)range.n,
		  (unsigned)range.zero);
}

Test(split, B84_padded_embedding)
{
	expect_embedding(SL_VLLM, 32001, 2, 0, (struct sl_range){ 0, 16032, 0 });
	expect_embedding(SL_VLLM, 32001, 2, 1, (struct sl_range){ 16032, 15969, 63 });
	expect_embedding(SL_VLLM, 67, 2, 1, (struct sl_range){ 64, 3, 61 });
	expect_embedding(SL_VLLM, 2, 8, 0, (struct sl_range){ 0, 2, 6 });
	expect_embedding(SL_VLLM, 2, 8, 7, (struct sl_range){ 0, 0, 8 });
	expect_embedding(SL_VLLM, 128, 8, 7, (struct sl_range){ 112, 16, 0 });
}

Test(split, B87_embedding_without_a_unit)
{
	expect_embedding(SL_HF, 50257, 8, 3, (struct sl_range){ 0, 50257, 0 });
	expect_embedding(SL_HF, 50256, 8, 3, (struct sl_range){ 18846, 6282, 0 });
}

/* All ranks together have each row once and fill the padded count. */
Test(split, B84_every_row_once)
{
	for (uint64_t rows = 1; rows < 300; rows += 7) {
		for (unsigned tp = 1; tp <= 64; tp *= 2) {
			uint64_t next = 0, total = 0;
			for (unsigned r = 0; r < tp; r++) {
				struct sl_range range;
				cr_assert_eq(
					sl_split_embedding(&sl_engines[SL_VLLM], SL_VOCAB, rows, tp, r, &range, NULL),
					0);
				cr_assert(range.n == 0 || range.first == next);
				next += range.n;
				total += range.n + range.zero;
			}
			cr_assert_eq(next, rows);
			cr_assert_eq(total, (rows + 63) / 64 * 64);
		}
	}
}

Test(split, padding_that_does_not_divide)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_range range;

	cr_assert_eq(sl_split_embedding(&sl_engines[SL_VLLM], SL_VOCAB, 32000, 3, 0, &range, &err), -EINVAL);
	cr_assert_str_eq(err.text, "32000 embedding rows, padded to 32000, do not divide by tp 3");
}

/* ---- stages ---- */

static void expect_stages(uint64_t layers, unsigned stages, const unsigned *want)
{
	for (unsigned s = 0; s < stages; s++)
		cr_assert_eq(sl_stage_layers(layers, stages, s).n, want[s], "%u/%u: stage %u has %u layers",
			     (unsigned)layers, stages, s, (unsigned)sl_stage_layers(layers, stages, s).n);
}

Test(split, B104_every_layer_on_one_stage)
{
	for (unsigned layers = 1; layers <= 64; layers++) {
		for (unsigned stages = 1; stages <= 16; stages++) {
			uint64_t next = 0;
			for (unsigned s = 0; s < stages; s++) {
				struct sl_range range = sl_stage_layers(layers, stages, s);
				cr_assert_eq(range.first, next);
				cr_assert(range.n == layers / stages || range.n == layers / stages + 1);
				next += range.n;
			}
			cr_assert_eq(next, layers, "%u layers, %u stages", layers, stages);
		}
	}
}

Test(split, B105_numbers_of_vllm)
{
	expect_stages(61, 8, (const unsigned[]){ 7, 7, 8, 8, 8, 8, 8, 7 });
	expect_stages(61, 4, (const unsigned[]){ 15, 15, 16, 15 });
	expect_stages(94, 4, (const unsigned[]){ 23, 24, 24, 23 });
	expect_stages(7, 4, (const unsigned[]){ 2, 2, 2, 1 });
	expect_stages(10, 3, (const unsigned[]){ 3, 4, 3 });
	expect_stages(5, 1, (const unsigned[]){ 5 });
	expect_stages(5, 2, (const unsigned[]){ 3, 2 });
}

/* ---- layouts ---- */

/* 8 heads, 2 kv heads, 24 intermediate rows: tp 8 divides all. */
static struct sl_model *llama(void)
{
	return family_open(family_find("llama"), "BF16", "bfloat16", false);
}

Test(split, B75_layout_says_what_works)
{
	const struct sizes sizes = { 1, 16, 4, 2, 4, 10, 192, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	checkpoint_view_refused(model, "vllm/tp4", "vllm/tp4: ", "model.layers.0.mlp.",
				"10 intermediate rows do not divide by tp 4", "(tp 1, 2 work)", NULL);
	checkpoint_view_refused(model, "vllm/tp3", "4 attention heads do not divide by tp 3", "(tp 1, 2 work)", NULL);
	sl_model_close(model);
}

Test(split, only_one_layout_works)
{
	const struct sizes sizes = { 1, 15, 5, 5, 3, 7, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	checkpoint_view_refused(model, "hf/tp2", "(tp 1 works)", NULL);
	sl_model_close(model);
}

Test(split, B107_more_stages_than_layers)
{
	struct sl_model *model = llama();

	checkpoint_view_refused(model, "vllm/tp1-pp4", "vllm/tp1-pp4: 3 layers are too few for 4 pipeline stages",
				NULL);
	sl_view_close(checkpoint_view(model, "vllm/tp1-pp3", 2, 0));
	sl_model_close(model);
}

/* Shapes say nothing about it, and the engine says it when it starts. */
Test(split, another_activation)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"hidden_act\":\"gelu\"");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	checkpoint_view_refused(model, "vllm/tp2", "hidden_act is not silu", "LlamaForCausalLM", NULL);
	checkpoint_view_refused(model, "kernel/tp1", "hidden_act is not silu", NULL);
	sl_view_close(checkpoint_view(model, "hf/tp2", 0, 0));
	sl_model_close(model);
}

Test(split, layouts_that_make_no_sense)
{
	static const char *const cases[][3] = {
		{ "vllm/tp2-ep", "LlamaForCausalLM", "no experts" },
		{ "vllm/tp2-eprr", "LlamaForCausalLM", "no experts" },
		{ "hf/tp1-pp2", "hf", "no pipeline stages" },
	};
	struct sl_model *model = llama();

	for (size_t i = 0; i < LEN(cases); i++)
		checkpoint_view_refused(model, cases[i][0], cases[i][0], cases[i][1], cases[i][2], NULL);
	sl_model_close(model);
}

/* What a release does not have is refused with its layouts, and for it alone. */
Test(split, architectures_that_a_release_lacks)
{
	const struct family *f = family_find("falcon-7b");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"architectures\":[\"RWForCausalLM\"]");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	checkpoint_view_refused(model, "vllm/tp1", "RWForCausalLM in vLLM", "since 0.29", NULL);
	sl_view_close(checkpoint_view(model, "vllm@0.28/tp1", 0, 0));
	sl_view_close(checkpoint_view(model, "hf/tp1", 0, 0));
	sl_model_close(model);
	for (unsigned e = 0; e < SL_N_ENGINES; e++) {
		for (const struct sl_lack *l = sl_engines[e].lacks; l && l->architecture; l++)
			cr_assert(l->why && strstr(l->architecture, "For"), "%s", sl_engines[e].name);
	}
}

Test(split, layouts_of_a_family)
{
	struct sl_model *model = family_open(family_find("gpt2"), "BF16", "bfloat16", true);

	checkpoint_view_refused(model, "hf/tp2", "cannot describe a slice", "hf/tp1", NULL);
	sl_model_close(model);
	model = family_open(family_find("gemma3"), "BF16", "bfloat16", true);
	checkpoint_view_refused(model, "vllm/tp2-f16", "not stable in F16", NULL);
	sl_view_close(checkpoint_view(model, "hf/tp2-f16", 0, 0));
	sl_model_close(model);
	model = family_open(family_find("bert"), "BF16", "bfloat16", false);
	checkpoint_view_refused(model, "vllm/tp1-pp2", "no pipeline stages", NULL);
	sl_model_close(model);
}
