/*
 * test_post.c - what recipes for 4-bit weights, for scales and for experts refuse, by name and number. What they make is compared
 * with what an engine's own functions make: tests/kernel/check.py.
 */
#include "slicer/post.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(post, .timeout = 60);

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { TENSORS = 7 };

/* ---- a module ---- */

struct tensor {
	const char *name;
	enum sl_dtype dtype;
	uint64_t shape[3];
	unsigned n_dims;
};

#define T(name, dtype, ...)                                                                               \
	{                                                                                                 \
		name, SL_##dtype, { __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t) \
	}

#define GATED(...)                         \
	{                                  \
		.gated = true, __VA_ARGS__ \
	}
#define NO_FACTS          \
	{                 \
		.bits = 0 \
	}

struct refusal {
	const char *recipe;
	struct tensor tensors[TENSORS];
	struct sl_post_facts facts;
	const char *message;
};

static unsigned load(const struct tensor *tensors, struct sl_loaded *loaded, struct sl_piece *pieces)
{
	unsigned n = 0;

	for (; n < TENSORS && tensors[n].name; n++) {
		uint64_t elements = 1;
		for (unsigned i = 0; i < tensors[n].n_dims; i++)
			elements *= tensors[n].shape[i];
		uint64_t len = sl_dtype_bytes(tensors[n].dtype, elements);
		pieces[n] = (struct sl_piece){ .len = len, .run = len, .stride = len, .count = 1, .op = SL_OP_ZERO };
		loaded[n] = (struct sl_loaded){ .name = tensors[n].name,
						.shape = tensors[n].shape,
						.dtype = tensors[n].dtype,
						.n_dims = tensors[n].n_dims,
						.len = len,
						.pieces = &pieces[n],
						.n_pieces = 1 };
	}
	return n;
}

static int make(const char *name, const struct tensor *tensors, const struct sl_post_facts *facts, struct sl_error *err)
{
	static struct sl_model model;
	const struct sl_recipe *recipe = sl_recipe_find(name);
	struct sl_loaded loaded[TENSORS];
	struct sl_piece pieces[TENSORS];
	struct sl_view view = { .model = &model };
	struct sl_plan plan = { .view = &view, .model = &model, .err = err };
	struct sl_post post = { .plan = &plan, .prefix = "m.", .loaded = loaded, .facts = *facts };

	cr_assert(recipe, "no recipe %s", name);
	sl_arena_init(&view.arena);
	post.n_loaded = load(tensors, loaded, pieces);
	int ret = recipe->make(&post);
	sl_plan_release(&plan);
	sl_arena_release(&view.arena);
	return ret;
}

static void expect_refused(const struct refusal *r)
{
	struct sl_error err = SL_ERROR_INIT;
	int ret = make(r->recipe, r->tensors, &r->facts, &err);

	cr_assert_eq(ret, -EINVAL, "%s gives %d, not '%s'", r->recipe, ret, r->message);
	cr_assert_str_eq(err.text, r->message, "%s says '%s', not '%s'", r->recipe, err.text, r->message);
}

static void expect_all_refused(const struct refusal *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		expect_refused(&list[i]);
}

/* clang-format off */
/* ---- linear layers ---- */

Test(post, nvfp4)
{
	static const struct refusal list[] = {
		{ "nvfp4_global_ct", { T("other", F32, 3) }, NO_FACTS, "m. has no 'weight_global_scale'" },
		{ "nvfp4_global_ct", { T("weight_global_scale", F32, 3), T("input_global_scale", BF16, 3) }, NO_FACTS, "m.: 'input_global_scale' is no F32 scale" },
		{ "nvfp4_global_ct", { T("weight_global_scale", BF16, 3) }, NO_FACTS, "m.: 'weight_global_scale' is no F32 scale" },
		{ "nvfp4_global_modelopt", { T("weight_scale_2", F32, 0) }, NO_FACTS, "m.: 'weight_scale_2' is no F32 scale" },
		{ "swizzle_nvfp4", { T("scale", F32, 8, 8) }, NO_FACTS, "m. has no 'scale' of bytes in 2 or 3 dimensions" },
		{ "swizzle_mxfp8", { T("scale", U8, 8) }, NO_FACTS, "m. has no 'scale' of bytes in 2 or 3 dimensions" },
		{ "swizzle_mxfp4", { T("other", U8, 8, 8) }, NO_FACTS, "m. has no 'scale' of bytes in 2 or 3 dimensions" },
		{ "nvfp4_pad", { T("weight", F8_E4M3, 8, 8) }, { .align = 32 }, "m.: 'weight' of F8_E4M3, padded to multiples of 32" },
		{ "nvfp4_pad", { T("weight", U8, 8, 8) }, { .align = 33 }, "m.: 'weight' of U8, padded to multiples of 33" },
		{ "nvfp4_moe_alphas", { T("w13_scale_2", F32, 4), T("a13_scale", F32, 4), T("w2_scale_2", F32, 3) }, NO_FACTS, "m.w2_scale_2: 3 numbers for 4 experts" },
		{ "nvfp4_moe_alphas", { T("w13_scale_2", BF16, 4) }, NO_FACTS, "m.w13_scale_2 is not one F32 number an expert" },
		{ "nvfp4_moe_alphas", { T("w13_scale_2", F32, 4) }, NO_FACTS, "m. has no 'a13_scale'" },
		{ "online_moe_block", { T("w13", BF16, 2, 384, 128), T("w2", BF16, 2, 128, 192) }, { .block = { 128, 128 } }, "m.w13: 384 x 128 are no whole blocks of 128 x 128, to which vLLM pads them" },
	};

	expect_all_refused(list, LEN(list));
}

Test(post, humming)
{
	static const struct refusal list[] = {
		{ "humming_fp8", { T("weight", F8_E4M3, 64, 64) }, { .dtype = SL_BF16 }, "m. has no 'weight_scale'" },
		{ "humming_fp8", { T("weight", F8_E4M3, 64, 64), T("weight_scale", F32, 3) }, { .dtype = SL_BF16 }, "m.weight_scale: 3 scales for 64 rows" },
		{ "humming_fp8", { T("weight", F8_E4M3, 0, 64), T("weight_scale", F32, 3) }, { .dtype = SL_BF16 }, "m.weight: 64 rows of 1 x 0 columns: nothing to pack" },
		{ "humming_mxfp8", { T("weight", F8_E4M3, 64, 48) }, { .dtype = SL_BF16 }, "m.weight: groups of 32 do not divide 48 columns" },
		{ "humming_mxfp8", { T("weight", F8_E4M3, 64, 64) }, { .dtype = SL_F16 }, "m.weight: in F16 all of the scales are moved by what the least and the largest are: add -marlin to the layout" },
		{ "humming_moe_mxfp8", { T("w13", F8_E4M3, 0, 64, 64) }, { .dtype = SL_BF16 }, "m.w13: no experts" },
		{ "humming_moe_mxfp8", { T("w13_bias", BF16, 1, 64) }, { .dtype = SL_BF16 }, "m.: experts with a bias have not been compared with Humming's yet: add -marlin to the layout" },
		{ "humming_moe_wna16", { T("w13", I32, 1, 64, 8) }, { .dtype = SL_BF16, .bits = 8 }, "m.w13: elements of 8 bits, not 4" },
		{ "humming_moe_wna16", { T("w13", I32, 1, 64, 0), T("w13_scale", BF16, 1, 64, 0) }, { .dtype = SL_BF16, .bits = 4, .group = 32 }, "m.: 'map' of 1 x 64 x 0 bytes" },
	};

	expect_all_refused(list, LEN(list));
}

Test(post, scales)
{
	static const struct refusal list[] = {
		{ "e8m0_to_f32", { T("scale", F32, 8) }, NO_FACTS, "m. has no 'scale' of F8_E8M0" },
		{ "deepgemm_sf", { T("scale", F32, 2, 5) }, { .align = 128 }, "m.: 'scale' is F32 2x5 for 0 rows in groups of 128" },
		{ "deepgemm_sf", { T("scale", F32, 2, 5) }, { .rows = 257 }, "m.: 'scale' is F32 2x5 for 257 rows in groups of 128" },
		{ "deepgemm_sf", { T("scale", U8, 2, 5) }, { .rows = 2, .align = 1 }, "m.: 'scale' is U8 2x5 for 2 rows in groups of 1" },
		{ "moe_scale_refine", { T("w1_scale", F32, 5, 2) }, { .ranks = 4, .refine = { 2, 2 } }, "m.: 'w1_scale' 5x2 cannot be divided among 4 ranks" },
		{ "moe_scale_refine", { T("w1_scale", F32, 6, 2) }, { .ranks = 4 }, "m.: 'w1_scale' 6x2 cannot be divided among 4 ranks" },
		{ "moe_scale_refine", { T("w1_scale", BF16, 6, 2) }, { .ranks = 4, .refine = { 2, 2 } }, "m.: 'w1_scale' 6x2 cannot be divided among 4 ranks" },
		{ "moe_scale_refine", { T("w1_scale", F32, 6, 2) }, { .ranks = 4, .refine = { 2, 2 } }, "m.: 'w1_scale' is not stored in one piece" },
		{ "moe_tp_padded", { T("w1", F8_E4M3, 64, 64) }, { .inter = 64, .hidden = 64, .block = { 48, 48 }, .ranks = 2 }, "m.: experts of 64, 64 for 2 ranks in blocks of 48" },
		{ "moe_tp_padded", { T("w1", F8_E4M3, 64, 32) }, { .inter = 64, .hidden = 64, .block = { 32, 32 }, .ranks = 2 }, "m.: 'w1' 64x32 cannot be divided among 2 ranks" },
		{ "moe_tp_padded", { T("w1", F8_E4M3, 64, 64), T("w2", F8_E4M3, 64, 64), T("w3", F8_E4M3, 64, 64), T("w1_scale", F32, 2, 2), T("w2_scale", F32, 2, 2), T("w3_scale", F32, 1, 2) },
		  { .inter = 64, .hidden = 64, .block = { 32, 32 }, .ranks = 2 }, "m.: 'w3_scale' 1x2 cannot be divided among 2 ranks" },
	};

	expect_all_refused(list, LEN(list));
}

/* ---- experts ---- */

Test(post, experts)
{
	static const struct refusal list[] = {
		{ "moe_w31", { T("w13", BF16, 2, 33, 16) }, GATED(), "m.: 'w13' has 33 rows, this kernel wants a multiple of 2" },
		{ "moe_fp8_tensor", { T("w13", F8_E4M3, 2, 32, 32), T("w13_scale", F32, 2, 3) }, GATED(), "m.: 'w13_scale' is 2x3 for 2 experts of 2 parts" },
		{ "moe_fp8_tensor", { T("w13", F8_E4M3, 2, 32, 32), T("w13_scale", F32, 2, 2) }, NO_FACTS, "m.: 'w13_scale' is 2x2 for 2 experts of 1 parts" },
		{ "moe_fp8_tensor", { T("w13", BF16, 2, 32, 32), T("w13_scale", F32, 2, 2) }, GATED(), "m.: 'w13' is BF16, this kernel takes FP8" },
		{ "moe_fp8_input", { T("w13_input_scale", F32, 5) }, GATED(), "m. has no 'w2_input_scale'" },
		{ "moe_fp8_input", { T("w13_input_scale", BF16, 5) }, GATED(), "m.: 'w13_input_scale' is BF16 of 10 bytes for 1 scales" },
		{ "moe_fp8_fi_cutlass", { T("w13", F8_E4M3, 2, 32, 32), T("w2", F8_E4M3, 2, 32, 16) }, NO_FACTS, "m.: this kernel's experts have a gate, these have none" },
		{ "moe_fp8_fi_cutlass", { T("w13", F8_E4M3, 2, 32, 32), T("w2", F8_E4M3, 2, 32, 24) }, GATED(), "m.: 'w13' 2x32x32 and 'w2' 2x32x24 do not agree" },
		{ "moe_fp8_fi_cutlass", { T("w13", F8_E4M3, 2, 33, 32), T("w2", F8_E4M3, 2, 32, 16) }, GATED(), "m.: 'w13' 2x33x32 and 'w2' 2x32x16 do not agree" },
		{ "moe_fp8_fi_cutlass", { T("w13", F8_E4M3, 2, 32, 32), T("w2", F8_E4M3, 2, 32, 16), T("w13_scale", F32, 2, 1, 1) }, GATED(.block = { 128, 128 }), "m.: 'w13_scale' of F32 with 1 rows" },
		{ "moe_fp8_fi_cutlass", { T("w13", F8_E4M3, 2, 32, 32), T("w2", F8_E4M3, 2, 32, 16), T("w13_scale", F32, 2, 2) }, GATED(), "m.: 'w13_scale' has 2 dimensions, not 1" },
	};

	expect_all_refused(list, LEN(list));
}

#define W13 T("w13", U8, 2, 128, 64)
#define W2 T("w2", U8, 2, 128, 32)
#define S13 T("w13_scale", F8_E4M3, 2, 128, 8)
#define S2 T("w2_scale", F8_E4M3, 2, 128, 4)

Test(post, experts_of_4_bits)
{
	static const struct refusal list[] = {
		{ "nvfp4_moe", { W13, T("w2", U8, 2, 128, 33), S13, S2 }, GATED(), "m.: 'w13' 2x128x64 and 'w2' 2x128x33 do not agree" },
		{ "nvfp4_moe", { T("w13", F8_E4M3, 2, 128, 64), T("w2", F8_E4M3, 2, 128, 32), S13, S2 }, GATED(), "m.: 'w13' 2x128x64 and 'w2' 2x128x32 do not agree" },
		{ "nvfp4_moe", { W13, W2, T("w13_scale", F8_E4M3, 2, 128, 4), S2 }, GATED(), "m.: 'w13' 2x128x64 and 'w13_scale' 2x128x4 do not agree" },
		{ "nvfp4_moe", { W13, W2, S13, T("w2_scale", F32, 2, 128, 4) }, GATED(), "m.: 'w2' 2x128x32 and 'w2_scale' 2x128x4 do not agree" },
		{ "nvfp4_moe", { W13, W2, S13, S2, T("w13_scale_2", F32, 3) }, GATED(), "m.: 'w13_scale_2' has 3 elements for 2 experts" },
		{ "nvfp4_moe", { W13, W2, S13, S2, T("w13_scale_2", F32, 2), T("w2_scale_2", F32, 2), T("a13_scale", F32, 3) }, GATED(.backend = "VLLM_CUTLASS"), "m.: 'a13_scale' is F32 of 12 bytes for 2 scales" },
		{ "nvfp4_moe", { W13, W2, S13, S2 }, GATED(.backend = "TRITON"), "m.: no kernel 'TRITON' for NVFP4 experts" },
		{ "nvfp4_moe_cutedsl", { W13, W2, S13, S2 }, NO_FACTS, "m.: this kernel's experts have a gate, these have none" },
		{ "nvfp4_moe_cutedsl", { W13, W2, S13, S2 }, GATED(), "m. has no 'a13_scale'" },
		{ "gpt_oss_fi_cutlass", { W13, W2, S13, S2 }, GATED(), "m.: 'w13' 2x128x64 and 'w13_scale' 2x128x8 do not agree" },
		{ "gpt_oss_fi_cutlass", { W13, W2, T("w13_scale", U8, 2, 128, 4), T("w2_scale", U8, 2, 128, 2), T("w13_bias", F32, 2, 128) }, GATED(), "m.: 'w13_bias' is F32 2x128 for 2 experts of 128 rows" },
	};

	expect_all_refused(list, LEN(list));
}

Test(post, experts_of_tensorrt_llm)
{
	static const struct refusal list[] = {
		{ "trtllm_bf16", { T("w13", F16, 2, 128, 128), T("w2", F16, 2, 128, 64) }, GATED(), "m.: 'w13' is F16, this kernel takes BF16" },
		{ "trtllm_bf16", { T("w13", BF16, 2, 48, 128), T("w2", BF16, 2, 128, 24) }, GATED(), "m.: 'w13' has 48 rows, this kernel wants a multiple of 32" },
		{ "trtllm_bf16", { T("w13", BF16, 2, 64, 144), T("w2", BF16, 2, 144, 32) }, GATED(), "m.: 'w2' has 144 rows, this kernel wants a multiple of 32" },
		{ "trtllm_bf16", { T("w13", BF16, 2, 64, 128), T("w2", BF16, 2, 128, 32) }, GATED(), "m.: 'w2' has 64 bytes in a row, this kernel wants a multiple of 128" },
		{ "trtllm_fp8", { T("w13", BF16, 2, 64, 128), T("w2", BF16, 2, 128, 32) }, GATED(), "m.: 'w13' is BF16, this kernel takes FP8" },
		{ "trtllm_fp8", { T("w13", F8_E4M3, 2, 64, 80), T("w2", F8_E4M3, 2, 80, 32) }, GATED(), "m.: 'w2' has 80 rows, this kernel wants a multiple of 32" },
		{ "trtllm_fp8", { T("w13", F8_E4M3, 2, 64, 96), T("w2", F8_E4M3, 2, 96, 32) }, GATED(.block = { 128, 128 }), "m.: 'w13' has 96 bytes in a row, this kernel wants a multiple of 128" },
		{ "trtllm_nvfp4", { W13, W2, S13, T("w2_scale", F8_E4M3, 2, 128, 2) }, GATED(), "m.: 'w2' 2x128x32 and 'w2_scale' 2x128x2 do not agree" },
		{ "trtllm_nvfp4", { T("w13", U8, 1, 4, 0), T("w2", U8, 1, 0, 1) }, GATED(), "m. has no 'w13_scale'" },
		{ "trtllm_mxfp8", { T("w13", BF16, 2, 256, 128), T("w2", BF16, 2, 128, 128) }, GATED(), "m.: 'w13' is BF16, this kernel takes FP8" },
		{ "trtllm_mxfp8", { T("w13", F8_E4M3, 1, 256, 160), T("w2", F8_E4M3, 1, 160, 128) }, GATED(), "m.: 'w2' has 160 rows, this kernel wants a multiple of 128" },
		{ "trtllm_mxfp8", { T("w13", F8_E4M3, 1, 128, 128), T("w2", F8_E4M3, 1, 128, 64) }, GATED(), "m.: 'w2' has 64 columns, this kernel wants a multiple of 128" },
		{ "trtllm_gpt_oss", { T("w13", U8, 1, 48, 16), T("w2", U8, 1, 32, 12), T("w13_scale", U8, 1, 48, 1), T("w2_scale", U8, 1, 32, 1) }, GATED(), "m. has no 'w13_bias'" },
		{ "trtllm_gpt_oss", { T("w13", U8, 1, 80, 64), T("w2", U8, 1, 128, 20), T("w13_bias", BF16, 1, 80), T("w2_bias", BF16, 1, 128) }, GATED(), "m. has no 'w13_scale'" },
		{ "trtllm_gpt_oss", { T("w13", U8, 1, 80, 64), T("w2", U8, 1, 128, 20), T("w13_bias", BF16, 1, 80), T("w2_bias", BF16, 1, 128), T("w13_scale", U8, 1, 80, 4), T("w2_scale", U8, 1, 128, 1) },
		  GATED(), "m.: 'w2' 1x128x20 and 'w2_scale' 1x128x1 do not agree" },
	};

	expect_all_refused(list, LEN(list));
}
