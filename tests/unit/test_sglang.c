/*
 * test_sglang.c - where what SGLang holds differs from what vLLM does, on checkpoints small enough to say it by hand, and what its
 * loader could not carry. Whole states of it are compared in tests/oracle/check.py.
 */
#include "checkpoint.h"
#include "family.h"
#include "linear.h"
#include "twin.h"

#include "slicer/plan.h"
#include "slicer/post.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTN	"model.layers.0.self_attn."
#define EXPERTS "model.layers.1.mlp.experts."
#define SHARED	"model.layers.1.mlp.shared_experts."
#define GROUPS(more)                                                                                                     \
	",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"targets\":" \
	"[\"Linear\"],\"weights\":{\"num_bits\":8}" more "}}"
#define W8A8 GROUPS(",\"input_activations\":{\"num_bits\":8}")

TestSuite(sglang, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

static struct sl_model *model;

/* A family in its own sizes; not yet written. */
static void given(const char *family, const char *dtype, const char *torch_dtype, bool tied, const char *members)
{
	const struct family *f = family_find(family);

	family_build(f, &f->sizes, dtype, torch_dtype, tied, members);
}

/* Sizes that suit every format: 8 heads of 16. */
static void given_format(const char *family, const char *format, const char *config)
{
	static const struct sizes sizes = { 1, 128, 8, 8, 16, 128, 64, 0 };

	family_build(family_find(family), &sizes, "BF16", "bfloat16", false,
		     config ? config : format_find(format)->config);
	linear_quantise(format_find(format), "_proj.weight");
}

static void opened(void)
{
	checkpoint_write(1);
	model = checkpoint_open();
}

static void expect(const char *path, unsigned rank, const char *output, const char *parts)
{
	struct sl_view *view = checkpoint_view(model, path, 0, rank);

	checkpoint_expect(view, output, parts);
	sl_view_close(view);
}

static bool holds(const char *path, unsigned stage, const char *name)
{
	struct sl_view *view = checkpoint_view(model, path, stage, 0);
	bool found = sl_view_find(view, name) != NULL;

	sl_view_close(view);
	return found;
}

static void refused(const char *path, const char *says)
{
	checkpoint_view_refused(model, path, says, NULL);
	sl_model_close(model);
}

/* One number without dimensions. */
static void expect_number(const struct sl_view *view, const char *name, int dtype, double value)
{
	const struct sl_output *out = sl_view_find(view, name);

	cr_assert(out != NULL, "there is no '%s'", name);
	cr_expect_eq(out->dtype, dtype, "%s", name);
	cr_expect_eq(out->n_dims, 0, "%s", name);
	unsigned char *bytes = checkpoint_read(view, out);
	cr_expect_float_eq(twin_decode(dtype, bytes), value, 0, "%s", name);
	free(bytes);
}

/* ---- layouts ---- */

Test(sglang, words_about_kernels_are_none_of_its_own)
{
	static const char *const names[] = { "tp2-marlin", "tp2-cutlass", "tp2-fp8", "tp2-kn", "tp2-sm90" };
	struct sl_layout layout;

	for (size_t i = 0; i < SL_COUNT(names); i++) {
		cr_expect_eq(sl_layout_parse(&layout, &sl_engines[SL_SGLANG], names[i]), -ENOENT, "%s", names[i]);
		cr_expect_eq(sl_layout_parse(&layout, &sl_engines[SL_KERNEL], names[i]), 0, "%s", names[i]);
	}
}

/* One layer more to the last stages, until none is left. */
Test(sglang, layers_of_stages)
{
	for (uint64_t layers = 1; layers < 40; layers++) {
		for (unsigned stages = 1; stages <= layers; stages++) {
			uint64_t n[40], first = 0;
			for (unsigned s = 0; s < stages; s++)
				n[s] = layers / stages;
			for (uint64_t rest = layers % stages, s = stages; rest > 0; rest--)
				n[--s]++;
			for (unsigned s = 0; s < stages; first += n[s++]) {
				struct sl_range range = sl_sglang_layers(layers, stages, s);
				cr_expect(range.first == first && range.n == n[s] && !range.zero, "%u/%u: stage %u",
					  (unsigned)layers, stages, s);
			}
		}
	}
}

Test(sglang, stages_of_llama)
{
	given("llama", "BF16", "bfloat16", false, "");
	opened();
	for (unsigned stage = 0; stage < 2; stage++) {
		cr_expect_eq(holds("sglang/tp1-pp2", stage, "model.embed_tokens.weight"), stage == 0);
		cr_expect_eq(holds("sglang/tp1-pp2", stage, "model.norm.weight"), stage == 1);
		cr_expect_eq(holds("sglang/tp1-pp2", stage, ATTN "o_proj.weight"), stage == 0);
		cr_expect_eq(holds("sglang/tp1-pp2", stage, "model.layers.1.mlp.down_proj.weight"), stage == 1);
		cr_expect(holds("sglang/tp1-pp2", stage, "lm_head.weight"));
	}
	sl_model_close(model);
}

Test(sglang, stages_of_a_tied_llama)
{
	given("llama", "BF16", "bfloat16", true, "");
	opened();
	cr_expect(holds("sglang/tp1-pp2", 0, "lm_head.weight"));
	cr_expect_not(holds("sglang/tp1-pp2", 1, "lm_head.weight"));
	for (unsigned stage = 0; stage < 2; stage++)
		cr_expect_not(holds("sglang/tp1-pp2", stage, "model.embed_tokens.weight"));
	sl_model_close(model);
}

Test(sglang, stages_of_others)
{
	given("qwen3", "BF16", "bfloat16", false, "");
	opened();
	refused("sglang/tp1-pp2", "what SGLang's pipeline stages hold of Qwen3ForCausalLM has not been compared");
}

Test(sglang, experts_round_robin)
{
	given("glm4-moe", "BF16", "bfloat16", false, ",\"n_group\":2");
	opened();
	refused("sglang/tp2-eprr", "SGLang spreads experts in blocks only: use -ep");
}

Test(sglang, experts_that_do_not_divide)
{
	given("glm4-moe", "BF16", "bfloat16", false, "");
	opened();
	refused("sglang/tp2-ep", "5 experts do not divide by tp 2");
}

Test(sglang, vision_heads_that_do_not_divide)
{
	given("gemma3-mm", "BF16", "bfloat16", true, "");
	opened();
	refused("sglang/tp3", "8 heads of the vision tower do not divide by tp 3");
}

/* ---- families ---- */

Test(sglang, families_that_nobody_has_compared)
{
	given("falcon-7b", "BF16", "bfloat16", false, "");
	opened();
	refused("sglang/tp1", "SGLang has no FalconForCausalLM");
}

Test(sglang, the_shared_expert_is_the_last_routed_one)
{
	given("glm4-moe", "BF16", "bfloat16", false, "");
	opened();
	expect("sglang/tp2", 1, EXPERTS "w13_weight",
	       EXPERTS
	       "0.gate_proj.weight[8:16] " EXPERTS "0.up_proj.weight[8:16] " EXPERTS "1.gate_proj.weight[8:16] " EXPERTS
	       "1.up_proj.weight[8:16] " EXPERTS "2.gate_proj.weight[8:16] " EXPERTS "2.up_proj.weight[8:16] " EXPERTS
	       "3.gate_proj.weight[8:16] " EXPERTS "3.up_proj.weight[8:16] " EXPERTS "4.gate_proj.weight[8:16] " EXPERTS
	       "4.up_proj.weight[8:16] " SHARED "gate_proj.weight[8:16] " SHARED "up_proj.weight[8:16]");
	cr_expect_not(holds("sglang/tp2", 0, SHARED "gate_up_proj.weight"));
	cr_expect_not(holds("sglang/tp1-ep", 0, SHARED "gate_up_proj.weight"));
	sl_model_close(model);
}

/* Each rank would have it. */
Test(sglang, the_shared_expert_of_spread_ones_is_apart)
{
	struct family f = *family_find("glm4-moe");

	f.more.E = 4;
	family_build(&f, &f.sizes, "BF16", "bfloat16", false, "");
	opened();
	expect("sglang/tp4-ep", 3, EXPERTS "w13_weight", EXPERTS "3.gate_proj.weight " EXPERTS "3.up_proj.weight");
	expect("sglang/tp4-ep", 3, SHARED "down_proj.weight", SHARED "down_proj.weight[:,12:16]");
	sl_model_close(model);
}

/* Not of two, nor of a DeepSeek with another number of routed ones. */
Test(sglang, shared_experts_that_stay_apart)
{
	given("deepseek", "BF16", "bfloat16", false, "");
	opened();
	expect("sglang/tp2", 1, SHARED "gate_up_proj.weight",
	       SHARED "gate_proj.weight[16:32] " SHARED "up_proj.weight[16:32]");
	expect("sglang/tp2", 0, EXPERTS "w2_weight",
	       EXPERTS "0.down_proj.weight[:,0:8] " EXPERTS "1.down_proj.weight[:,0:8] " EXPERTS
		       "2.down_proj.weight[:,0:8] " EXPERTS "3.down_proj.weight[:,0:8]");
	sl_model_close(model);
}

Test(sglang, a_shared_expert_that_is_stored_differently)
{
	given("glm4-moe", "BF16", "bfloat16", false, format_find("fp8-block")->config);
	linear_quantise(format_find("fp8-block"), "mlp.experts.");
	opened();
	refused("sglang/tp1",
		"'mlp.shared_experts.gate_proj' of layer 1 is to be the last of the routed experts, but is stored");
}

Test(sglang, gemma_2_has_its_factor)
{
	given("gemma2", "BF16", "bfloat16", true, "");
	opened();
	struct sl_view *view = checkpoint_view(model, "sglang/tp2", 0, 1);
	const uint32_t bits = twin_encode(SL_BF16, sqrt(40));
	const unsigned char rounded[] = { (unsigned char)bits, (unsigned char)(bits >> 8) };
	expect_number(view, "model.normalizer", SL_BF16, twin_decode(SL_BF16, rounded));
	sl_view_close(view);
	sl_model_close(model);
}

Test(sglang, gemma_3_divides_positions_and_no_words)
{
	given("gemma3-mm", "BF16", "bfloat16", true, "");
	opened();
	expect("sglang/tp2", 1, "language_model.lm_head.weight", "language_model.model.embed_tokens.weight");
	expect("sglang/tp2", 0, "vision_tower.vision_model.embeddings.position_embedding.weight",
	       "vision_tower.vision_model.embeddings.position_embedding.weight zeros[23]");
	expect("sglang/tp2", 1, "vision_tower.vision_model.encoder.layers.0.self_attn.proj.weight",
	       "vision_tower.vision_model.encoder.layers.0.self_attn.out_proj.weight[:,16:32]");
	sl_model_close(model);
}

/* ---- dtypes ---- */

static void expect_dtype(const char *family, const char *stored, const char *torch_dtype, int dtype)
{
	given(family, stored, torch_dtype, true, "");
	opened();
	struct sl_view *view = checkpoint_view(model, "sglang/tp1", 0, 0);
	cr_expect_eq(sl_view_find(view, "model.norm.weight")->dtype, dtype, "%s %s", family, torch_dtype);
	sl_view_close(view);
	sl_model_close(model);
	checkpoint_teardown();
	checkpoint_setup();
}

Test(sglang, F32_becomes_F16_but_for_Gemma)
{
	expect_dtype("llama", "F32", "float32", SL_F16);
	expect_dtype("llama", "F32", "bfloat16", SL_BF16);
	expect_dtype("gemma2", "F32", "float32", SL_BF16);
	expect_dtype("gemma2", "F16", "float16", SL_F16);
}

/* ---- formats ---- */

Test(sglang, FP8_is_stored_in_by_out)
{
	given_format("llama", "ct-channel", W8A8 "}");
	opened();
	struct sl_view *view = checkpoint_view(model, "sglang/tp2", 0, 1);
	const struct checkpoint_tensor *stored = checkpoint_find(ATTN "o_proj.weight");
	const struct sl_output *out = sl_view_find(view, ATTN "o_proj.weight");
	uint64_t n = stored->shape[0], k = stored->shape[1];
	unsigned char *bytes = checkpoint_read(view, out);

	cr_assert(out->n_dims == 2 && out->shape[0] == k / 2 && out->shape[1] == n);
	for (uint64_t i = 0; i < k / 2; i++) {
		for (uint64_t j = 0; j < n; j++)
			cr_assert_eq(bytes[i * n + j], stored->bytes[j * k + k / 2 + i], "%u, %u", (unsigned)i,
				     (unsigned)j);
	}
	free(bytes);
	sl_view_close(view);
	sl_model_close(model);
}

Test(sglang, the_scales_of_its_cache_are_1)
{
	given_format("llama", "fp8-block", NULL);
	opened();
	struct sl_view *view = checkpoint_view(model, "sglang/tp1", 0, 0);
	expect_number(view, ATTN "attn.k_scale", SL_F32, 1);
	expect_number(view, ATTN "attn.v_scale", SL_F32, 1);
	cr_expect_null(sl_view_find(view, ATTN "attn.q_scale"));
	sl_view_close(view);
	sl_model_close(model);
}

/* Qwen 3 gives its attention no format. */
Test(sglang, attention_without_scales)
{
	given_format("qwen3", "fp8-block", NULL);
	opened();
	cr_expect_not(holds("sglang/tp1", 0, ATTN "attn.k_scale"));
	sl_model_close(model);
}

Test(sglang, scales_of_a_cache_that_would_be_lost)
{
	given_format("llama", "fp8-block", NULL);
	checkpoint_add("F32", "", ATTN "k_scale");
	opened();
	refused("sglang/tp1", "'" ATTN "k_scale': SGLang's sharded_state would compute with 1");
}

Test(sglang, a_kv_cache_scheme_that_would_be_lost)
{
	given_format("llama", "ct-channel", W8A8 ",\"kv_cache_scheme\":{\"num_bits\":8}}");
	opened();
	refused("sglang/tp1", "kv_cache_scheme: SGLang's sharded_state would compute with 1");
}

static void refused_format(const char *format, const char *says)
{
	given_format("llama", format, NULL);
	opened();
	refused("sglang/tp1", says);
	checkpoint_teardown();
	checkpoint_setup();
}

Test(sglang, formats_that_it_takes_otherwise)
{
	refused_format("fp8-modelopt", "SGLang loads ModelOpt's checkpoints with a loader of their own");
	refused_format("nvfp4-modelopt", "SGLang loads ModelOpt's checkpoints with a loader of their own");
	refused_format("nvfp4", "SGLang takes it only where fused matrices share a weight_global_scale");
	refused_format("fp8-tensor", "FP8 per tensor for sm90: what SGLang 0.5.23 holds of it");
	refused_format("ct-channel", "FP8 per channel for sm90: what SGLang 0.5.23 holds of it");
	refused_format("mxfp8", "MXFP8 for sm90: what SGLang 0.5.23 holds of it");
}

Test(sglang, integers_that_its_marlin_does_not_take)
{
	refused_format("awq", "SGLang's Marlin takes groups of 32, 64, 128");
	refused_format("w4a16", "SGLang's Marlin takes groups of 32, 64, 128");
}

#define GPTQ_8 \
	",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":false,\"sym\":true}"

Test(sglang, GPTQ_without_zeros_and_groups)
{
	given_format("llama", "gptq-8", GPTQ_8);
	opened();
	struct sl_view *view = checkpoint_view(model, "sglang/tp1", 0, 0);
	const struct sl_output *out = sl_view_find(view, ATTN "qkv_proj.qweight");
	cr_assert(out && out->done && strcmp(out->done->recipe->name, "marlin_gptq") == 0);
	cr_expect(out->n_dims == 2 && out->shape[0] == 8 && out->shape[1] == 384 * 4);
	cr_expect_null(sl_view_find(view, ATTN "qkv_proj.qzeros"));
	cr_expect_null(sl_view_find(view, ATTN "qkv_proj.g_idx"));
	sl_view_close(view);
	sl_model_close(model);
}

/* k and v have 32 rows each; with q they are 192. */
Test(sglang, rows_of_fused_matrices_count_together)
{
	static const struct sizes sizes = { 1, 128, 8, 2, 16, 128, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, GPTQ_8);
	linear_quantise(format_find("gptq-8"), "_proj.weight");
	opened();
	cr_expect(holds("sglang/tp1", 0, ATTN "qkv_proj.qweight"));
	sl_model_close(model);
}

/* Two ranks have 64 columns of o_proj each. */
Test(sglang, GPTQ_of_too_few_columns)
{
	given_format("llama", "gptq-8", GPTQ_8);
	opened();
	refused("sglang/tp2", "self_attn.o_proj: GPTQ for sm90: SGLang's Marlin takes groups of 32");
}

Test(sglang, a_tied_head_where_vLLM_has_one_of_its_own)
{
	given("glm4-moe", "BF16", "bfloat16", false, ",\"tie_word_embeddings\":true");
	opened();
	refused("sglang/tp1", "config.json ties the head: what SGLang holds of a Glm4MoeForCausalLM with that");
}

Test(sglang, experts_on_a_GPU_that_nobody_has_compared)
{
	given("mixtral", "BF16", "bfloat16", false, "");
	opened();
	model->gpu = 1 + SL_SM100;
	refused("sglang/tp1", "plain for sm100: what SGLang 0.5.23 holds of it");
}
