/*
 * test_marlin.c - what the recipes of Marlin's layers refuse, with its message, and the sizes to which they pad. Their bytes are
 * tests/kernel's business.
 */
#include "slicer/model.h"
#include "slicer/post.h"
#include "slicer/recipes/sizes.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(marlin, .timeout = 60);

/* ---- sizes ---- */

/* vLLM 0.32's own answers. */
Test(marlin, padded_sizes_of_linear_layers)
{
	static const uint64_t table[][5] = {
		/* n, k, group, n and k padded */
		{ 64, 128, 128, 64, 128 },	 { 96, 128, 32, 128, 128 },	 { 96, 96, 32, 128, 128 },
		{ 192, 64, 64, 256, 64 },	 { 200, 320, 0, 256, 320 },	 { 4096, 11008, 128, 4096, 11008 },
		{ 5504, 4096, 128, 5504, 4096 }, { 2752, 1376, 32, 2752, 1408 }, { 128, 96, 32, 128, 128 },
		{ 64, 64, 64, 64, 128 },	 { 72, 128, 128, 128, 128 },	 { 1000, 1000, 0, 1024, 1024 }
	};

	for (size_t i = 0; i < LEN(table); i++) {
		uint64_t padded[2];
		sl_marlin_padded_nk(table[i][0], table[i][1], table[i][2], padded);
		cr_assert(padded[0] == table[i][3] && padded[1] == table[i][4], "%llu x %llu: %llu x %llu",
			  (unsigned long long)table[i][0], (unsigned long long)table[i][1],
			  (unsigned long long)padded[0], (unsigned long long)padded[1]);
	}
}

/* The smallest of all sizes that one of both tiles can hold. */
Test(marlin, padding_is_the_least)
{
	for (uint64_t n = 1; n < 700; n += 37) {
		for (uint64_t k = 1; k < 700; k += 29) {
			for (uint64_t group = 0; group <= 128; group += 16) {
				uint64_t padded[2], least = UINT64_MAX;
				for (uint64_t a = n; a < n + 128; a++) {
					for (uint64_t b = k; b < k + 1024; b++) {
						bool fits =
							(a % 64 == 0 && b % 128 == 0) || (a % 128 == 0 && b % 64 == 0);
						if (fits && (!group || b % group == 0) && a * b < least)
							least = a * b;
					}
				}
				sl_marlin_padded_nk(n, k, group, padded);
				cr_assert_eq(padded[0] * padded[1], least, "%llu x %llu by %llu", (unsigned long long)n,
					     (unsigned long long)k, (unsigned long long)group);
			}
		}
	}
}

struct share {
	struct sl_moe_shape shape;
	struct sl_moe_blocks blocks;
};

Test(marlin, blocks_of_experts_shares)
{
	static const struct share table[] = {
		{ { 2048, 7168, 2048, 1, { 128, 128 }, NULL }, { 2048, { 128, 128 }, { 0, 0 }, false, false } },
		{ { 2048, 7168, 256, 8, { 128, 128 }, "auto" }, { 256, { 128, 128 }, { 0, 0 }, false, false } },
		{ { 1536, 4096, 192, 8, { 128, 128 }, NULL }, { 192, { 64, 64 }, { 2, 2 }, false, false } },
		{ { 1408, 2048, 352, 4, { 128, 128 }, "auto" }, { 352, { 32, 32 }, { 4, 4 }, false, false } },
		{ { 1536, 4096, 192, 8, { 128, 128 }, "triton" }, { 192, { 64, 64 }, { 2, 2 }, false, false } },
		{ { 1536, 4096, 192, 8, { 128, 128 }, "deep_gemm" }, { 256, { 128, 128 }, { 0, 0 }, true, false } },
		{ { 768, 2048, 192, 4, { 128, 128 }, "marlin" }, { 256, { 128, 128 }, { 0, 0 }, true, false } },
		{ { 1536, 4096, 308, 5, { 128, 128 }, "auto" }, { 308, { 128, 128 }, { 0, 0 }, false, false } },
		{ { 1540, 4096, 308, 5, { 128, 128 }, "triton" }, { 384, { 128, 128 }, { 0, 0 }, true, true } },
		{ { 1536, 4000, 192, 8, { 128, 128 }, "cutlass" }, { 256, { 128, 128 }, { 0, 0 }, true, true } },
		{ { 192, 4096, 192, 1, { 128, 128 }, "cutlass" }, { 192, { 128, 128 }, { 0, 0 }, false, false } },
	};

	for (size_t i = 0; i < LEN(table); i++) {
		struct sl_moe_blocks got = sl_moe_block_shape(&table[i].shape), want = table[i].blocks;
		cr_assert_eq(got.inter_rank, want.inter_rank, "%zu: %llu", i, (unsigned long long)got.inter_rank);
		cr_assert(got.block[0] == want.block[0] && got.block[1] == want.block[1], "%zu", i);
		cr_assert(got.refine[0] == want.refine[0] && got.refine[1] == want.refine[1], "%zu", i);
		cr_assert(got.padded == want.padded && got.refused == want.refused, "%zu", i);
	}
}

/* ---- refusals ---- */

struct tensor {
	const char *name;
	enum sl_dtype dtype;
	unsigned n_dims;
	uint64_t shape[3];
};

struct refusal {
	const char *recipe;
	struct sl_post_facts facts;
	struct tensor tensors[6];
	const char *message;
};

static unsigned load(const struct tensor *tensors, struct sl_loaded *loaded, struct sl_piece *pieces)
{
	unsigned n = 0;

	for (; n < 6 && tensors[n].name; n++) {
		const struct tensor *t = &tensors[n];
		uint64_t elements = 1;
		for (unsigned d = 0; d < t->n_dims; d++)
			elements *= t->shape[d];
		pieces[n] = (struct sl_piece){ .len = sl_dtype_bytes(t->dtype, elements), .op = SL_OP_ZERO };
		loaded[n] = (struct sl_loaded){ .name = t->name,
						.shape = t->shape,
						.dtype = t->dtype,
						.n_dims = t->n_dims,
						.len = pieces[n].len,
						.pieces = &pieces[n],
						.n_pieces = 1 };
	}
	return n;
}

/* What a recipe says of these tensors. */
static int make(const struct refusal *r, struct sl_error *err)
{
	static struct sl_model model;
	struct sl_view view = { .model = &model };
	struct sl_plan plan = { .view = &view, .model = &model, .err = err };
	struct sl_loaded loaded[6];
	struct sl_piece pieces[6];
	struct sl_post post = { .plan = &plan, .prefix = "layers.0.", .loaded = loaded, .facts = r->facts };
	const struct sl_recipe *recipe = sl_recipe_find(r->recipe);

	cr_assert(recipe, "%s", r->recipe);
	sl_arena_init(&view.arena);
	post.n_loaded = load(r->tensors, loaded, pieces);
	int ret = recipe->make(&post);
	sl_plan_release(&plan);
	sl_arena_release(&view.arena);
	return ret;
}

static void refuse(const struct refusal *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_error err = SL_ERROR_INIT;
		cr_assert_eq(make(&table[i], &err), -EINVAL, "%s: not refused: %s", table[i].recipe, table[i].message);
		cr_assert_str_eq(err.text, table[i].message);
	}
}

/* clang-format off */
Test(marlin, integers_that_are_refused)
{
	static const struct refusal table[] = {
		{ "marlin_gptq", { .bits = 4 }, { { NULL, 0, 0, { 0 } } }, "layers.0. has no 'qweight'" },
		{ "marlin_gptq", { .bits = 3 }, { { "qweight", SL_I32, 2, { 16, 64 } } },
		  "layers.0.qweight: elements of 3 bits; Marlin has 4 and 8" },
		{ "marlin_gptq", { .bits = 4, .act8 = true }, { { "qweight", SL_I32, 2, { 16, 64 } } },
		  "layers.0.: scales for activations of 8 bits are not known" },
		{ "marlin_gptq", { .bits = 4, .group = 48 }, { { "qweight", SL_I32, 2, { 16, 64 } } },
		  "layers.0.qweight: groups of 48 do not divide 128 columns" },
		{ "marlin_gptq", { .bits = 4, .group = UINT64_MAX }, { { "qweight", SL_I32, 2, { 16, 64 } } },
		  "layers.0.qweight: groups of 18446744073709551615 do not divide 128 columns" },
		{ "marlin_gptq", { .bits = 4 }, { { "qweight", SL_I32, 2, { 0, 64 } } },
		  "layers.0.qweight: 0 rows of 1 x 64 columns: nothing to pack" },
		{ "marlin_gptq", { .bits = 4 }, { { "qweight", SL_F32, 2, { 16, 64 } } },
		  "layers.0.qweight is F32 16 x 64, not I32 16 x 64" },
		{ "marlin_gptq", { .bits = 4, .group = 32 }, { { "qweight", SL_I32, 2, { 16, 64 } } },
		  "layers.0. has no 'scales'" },
		{ "marlin_gptq", { .bits = 4, .group = 32 },
		  { { "qweight", SL_I32, 2, { 16, 64 } }, { "scales", SL_F16, 2, { 3, 64 } } },
		  "layers.0.scales is F16 3 x 64, not F16 4 x 64" },
		{ "marlin_gptq", { .bits = 4, .group = 32 },
		  { { "qweight", SL_I32, 2, { 16, 64 } }, { "scales", SL_F32, 2, { 4, 64 } } },
		  "layers.0.scales is F32 4 x 64, not BF16 4 x 64" },
		{ "marlin_gptq", { .bits = 4 },
		  { { "qweight", SL_I32, 2, { 16, 64 } }, { "scales", SL_F16, 2, { 1, 64 } }, { "bias", SL_F16, 1, { 60 } } },
		  "layers.0.bias is F16 60, not F16 64" },
		{ "marlin_ct_wna16", { .bits = 4, .group = 32 },
		  { { "weight_packed", SL_I32, 2, { 60, 16 } }, { "weight_scale", SL_BF16, 2, { 60, 4 } },
		    { "weight_zero_point", SL_I32, 2, { 8, 4 } } },
		  "layers.0.weight_zero_point: 128 rows of 1 x 60 columns: no whole words" },
		{ "marlin_awq", { .bits = 4, .group = 32 },
		  { { "qweight", SL_I32, 2, { 128, 8 } }, { "scales", SL_BF16, 2, { 4, 64 } } },
		  "layers.0. has no 'qzeros'" },
		{ "marlin_awq", { .bits = 4, .group = 32 },
		  { { "qweight", SL_I32, 2, { 128, 8 } }, { "scales", SL_BF16, 2, { 4, 64 } }, { "qzeros", SL_I32, 2, { 4, 7 } } },
		  "layers.0.qzeros is I32 4 x 7, not I32 4 x 8" },
		{ "marlin_repack_gptq", { .bits = 4 }, { { "qweight", SL_I32, 2, { 16, 72 } } },
		  "layers.0.qweight: 128 rows of 1 x 72 columns: not in tiles of 16 x 64" },
		{ "marlin_repack_awq", { .bits = 8 }, { { "qweight", SL_I32, 2, { 24, 16 } } },
		  "layers.0.qweight: 24 rows of 1 x 64 columns: not in tiles of 16 x 64" },
		{ "marlin_repack_gptq", { .bits = 4, .act8 = true }, { { "qweight", SL_I32, 2, { 6, 96 } } },
		  "layers.0.qweight: 48 rows of 1 x 96 columns: not in tiles of 32 x 32" },
		{ "awq_to_standard", { .bits = 0 }, { { "qweight", SL_I32, 2, { 12, 8 } } },
		  "layers.0.qweight: 12 x 8 of I32 are no words of 8 along rows" },
	};

	refuse(table, LEN(table));
}

Test(marlin, floats_that_are_refused)
{
	static const struct refusal table[] = {
		{ "marlin_fp8", { .dtype = SL_F32 }, { { "weight", SL_F8_E4M3, 2, { 64, 128 } } },
		  "layers.0.: Marlin computes in BF16 or F16, not in F32" },
		{ "marlin_fp8", { .dtype = SL_BF16 }, { { "weight", SL_I8, 2, { 64, 128 } } },
		  "layers.0.weight is I8 64 x 128, not F8_E4M3 64 x 128" },
		{ "marlin_fp8", { .dtype = SL_BF16 }, { { "weight", SL_F8_E4M3, 2, { 64, 128 } } },
		  "layers.0. has no 'weight_scale'" },
		{ "marlin_fp8", { .dtype = SL_BF16 },
		  { { "weight", SL_F8_E4M3, 2, { 64, 128 } }, { "weight_scale", SL_I32, 1, { 1 } } },
		  "layers.0.weight_scale: scales of I32" },
		{ "marlin_fp8", { .dtype = SL_BF16 },
		  { { "weight", SL_F8_E4M3, 2, { 64, 128 } }, { "weight_scale", SL_F32, 1, { 3 } } },
		  "layers.0.weight_scale: 3 scales for 64 rows" },
		{ "marlin_fp8", { .dtype = SL_BF16, .widths = { 32, 16 }, .n_widths = 2 },
		  { { "weight", SL_F8_E4M3, 2, { 64, 128 } }, { "weight_scale", SL_F32, 1, { 2 } } },
		  "layers.0.weight_scale: 2 scales for 64 rows" },
		{ "marlin_fp8", { .dtype = SL_BF16, .block = { 128, 128 } },
		  { { "weight", SL_F8_E4M3, 2, { 192, 256 } }, { "weight_scale_inv", SL_F32, 2, { 1, 2 } } },
		  "layers.0.weight_scale_inv is F32 1 x 2, not F32 2 x 2" },
		{ "marlin_fp8", { .dtype = SL_BF16, .block = { 128, 128 } }, { { "weight", SL_F8_E4M3, 2, { 128, 192 } } },
		  "layers.0.weight: groups of 128 do not divide 192 columns" },
		{ "marlin_mxfp8", { .dtype = SL_BF16 },
		  { { "weight", SL_F8_E4M3, 2, { 64, 128 } }, { "weight_scale", SL_F32, 2, { 64, 4 } } },
		  "layers.0.weight_scale is F32 64 x 4, not F8_E8M0 64 x 4" },
		{ "marlin_mxfp4", { .dtype = SL_BF16 }, { { "weight", SL_U8, 2, { 64, 24 } } },
		  "layers.0.weight: groups of 32 do not divide 48 columns" },
		{ "marlin_nvfp4", { .dtype = SL_BF16 },
		  { { "weight", SL_U8, 2, { 64, 64 } }, { "weight_scale", SL_F8_E4M3, 2, { 64, 7 } } },
		  "layers.0.weight_scale is F8_E4M3 64 x 7, not F8_E4M3 64 x 8" },
		{ "marlin_nvfp4", { .dtype = SL_BF16 },
		  { { "weight", SL_U8, 2, { 64, 64 } }, { "weight_scale", SL_F8_E4M3, 2, { 64, 8 } } },
		  "layers.0.weight_global_scale: no F32 numbers" },
	};

	refuse(table, LEN(table));
}

Test(marlin, experts_that_are_refused)
{
	static const struct refusal table[] = {
		{ "marlin_moe_wna16", { .bits = 5, .gated = true }, { { NULL, 0, 0, { 0 } } },
		  "layers.0.w13: elements of 5 bits; Marlin has 4 and 8" },
		{ "marlin_moe_wna16", { .bits = 4, .gated = true }, { { "w13", SL_I32, 3, { 2, 128, 16 } } },
		  "layers.0. has no 'w2'" },
		{ "marlin_moe_wna16", { .bits = 4, .gated = true },
		  { { "w13", SL_I32, 3, { 2, 127, 16 } }, { "w2", SL_I32, 3, { 2, 128, 8 } } },
		  "layers.0.w13: 2 experts of 127 columns are not 2 halves" },
		{ "marlin_moe_wna16", { .bits = 4, .group = 48, .gated = true },
		  { { "w13", SL_I32, 3, { 2, 128, 16 } }, { "w2", SL_I32, 3, { 2, 128, 8 } } },
		  "layers.0.w13: groups of 48 do not divide an intermediate size of 64 and a hidden one of 128" },
		{ "marlin_moe_wna16", { .bits = 4, .group = 32, .gated = true },
		  { { "w13", SL_I32, 3, { 2, 128, 16 } }, { "w2", SL_I32, 3, { 2, 128, 9 } } },
		  "layers.0.w2 is I32 2 x 128 x 9, not I32 2 x 128 x 8" },
		{ "marlin_moe_wna16", { .bits = 4, .group = 32, .gated = true },
		  { { "w13", SL_I32, 3, { 2, 128, 12 } }, { "w2", SL_I32, 3, { 2, 96, 8 } } },
		  "layers.0.w2: 64 rows of 1 x 96 columns: not in tiles of 16 x 64" },
		{ "marlin_moe_awq", { .bits = 8, .gated = true }, { { NULL, 0, 0, { 0 } } },
		  "layers.0.w13: AWQ of 8 bits; experts have 4" },
		{ "marlin_moe_awq", { .bits = 4, .group = 32, .gated = true },
		  { { "w13", SL_I32, 3, { 2, 128, 16 } }, { "w2", SL_I32, 3, { 2, 64, 16 } },
		    { "w13_scale", SL_F16, 3, { 2, 4, 128 } }, { "w2_scale", SL_F16, 3, { 2, 2, 128 } } },
		  "layers.0. has no 'w13_zp'" },
		{ "marlin_moe_fp8", { .dtype = SL_BF16, .gated = true, .act8 = true },
		  { { "w13", SL_F8_E4M3, 3, { 2, 128, 128 } }, { "w2", SL_F8_E4M3, 3, { 2, 128, 64 } } },
		  "layers.0.: scales for activations of 8 bits are not known" },
		{ "marlin_moe_fp8", { .dtype = SL_BF16, .gated = true },
		  { { "w13", SL_F8_E4M3, 3, { 2, 128, 128 } }, { "w2", SL_F8_E4M3, 3, { 2, 128, 64 } },
		    { "w13_scale", SL_F32, 1, { 3 } } },
		  "layers.0.w13_scale is F32 3 x 1 x 1, not F32 2 x 1 x 1" },
		{ "marlin_moe_mxfp8", { .dtype = SL_BOOL, .gated = true },
		  { { "w13", SL_F8_E4M3, 3, { 2, 128, 128 } }, { "w2", SL_F8_E4M3, 3, { 2, 128, 64 } } },
		  "layers.0.: Marlin computes in BF16 or F16, not in BOOL" },
		{ "marlin_moe_mxfp4", { .dtype = SL_BF16, .gated = true },
		  { { "w13", SL_U8, 3, { 2, 160, 64 } }, { "w2", SL_U8, 3, { 2, 128, 40 } } },
		  "layers.0.w13: groups of 32 do not divide an intermediate size of 80 and a hidden one of 128" },
		{ "marlin_moe_mxfp4", { .dtype = SL_BF16, .gated = true },
		  { { "w13", SL_U8, 3, { 2, 192, 80 } }, { "w2", SL_U8, 3, { 2, 160, 48 } } },
		  "layers.0.w2: 96 rows of 1 x 160 columns: not in tiles of 16 x 64" },
		{ "marlin_moe_nvfp4", { .dtype = SL_BF16, .gated = true },
		  { { "w13", SL_U8, 3, { 2, 128, 64 } }, { "w2", SL_U8, 3, { 2, 128, 32 } },
		    { "w13_scale", SL_F8_E4M3, 3, { 2, 128, 8 } }, { "w2_scale", SL_F8_E4M3, 3, { 2, 128, 4 } } },
		  "layers.0.w13_scale_2: no F32 numbers" },
	};

	refuse(table, LEN(table));
}

Test(marlin, questions_that_are_refused)
{
	static const struct refusal table[] = {
		{ "marlin_padded_nk", { .bits = 0 }, { { "query", SL_I32, 2, { 4, 5 } } }, "layers.0.query: not I32 of 3 columns" },
		{ "marlin_padded_nk", { .bits = 0 }, { { "query", SL_I32, 2, { 4, 3 } } }, "layers.0.query: 0 x 0" },
		{ "moe_block_shape", { .bits = 0 }, { { "query", SL_I64, 2, { 4, 5 } } }, "layers.0.query: not I32 of 5 columns" },
		{ "moe_block_shape", { .bits = 0 }, { { "query", SL_I32, 2, { 4, 5 } } }, "layers.0.query: row 0 is no size" },
	};

	refuse(table, LEN(table));
}
/* clang-format on */

/* What is not refused: two matrices more than a table of ranges could hold are. */
Test(marlin, many_fused_matrices)
{
	struct refusal r = { "marlin_fp8",
			     { .dtype = SL_BF16, .n_widths = 64 },
			     { { "weight", SL_F8_E4M3, 2, { 128, 128 } }, { "weight_scale", SL_F32, 1, { 64 } } },
			     "layers.0.weight_scale: 64 matrices are fused, more than 32" };

	for (unsigned i = 0; i < 64; i++)
		r.facts.widths[i] = 2;
	refuse(&r, 1);
	r.facts.n_widths = 32;
	r.tensors[1].shape[0] = 32;
	for (unsigned i = 0; i < 32; i++)
		r.facts.widths[i] = 4;
	struct sl_error err = SL_ERROR_INIT;
	cr_assert_eq(make(&r, &err), 0, "%s", err.text);
}
