/*
 * test_experts.c - routed experts: their order, their stacking, whole ones spread over ranks, the tensors beside them,
 * and what is wrong when their number or one of their matrices is. What every family with experts holds at every tp is
 * in test_view.c, by the same twin.
 *
 * The names B63 to B150 are those of public bug reports against other loaders, restated as the smallest input that
 * shows the same fault.
 */
#include "checkpoint.h"
#include "twin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a)	  (sizeof(a) / sizeof((a)[0]))
#define EXPERTS	  "model.layers.0.block_sparse_moe.experts."
#define HELD	  EXPERTS "routed_experts."
#define QWEN	  "model.layers.1.mlp.experts."
#define QWEN_HELD QWEN "routed_experts."

TestSuite(experts, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 120);

static struct sl_model *model;

/* A family in its own sizes but for the number of experts and the rows of one; not yet written. */
static struct family given(const char *name, unsigned experts, unsigned rows, const char *members)
{
	struct family f = *family_find(name);

	f.more.E = experts;
	f.more.J = rows;
	if (f.sizes.I == 16)
		f.sizes.I = rows; /* families whose intermediate_size is that of an expert */
	family_build(&f, &f.sizes, "BF16", "bfloat16", false, members);
	return f;
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

static const struct sl_output *find(const struct sl_view *view, const char *name)
{
	const struct sl_output *out = sl_view_find(view, name);

	cr_assert(out != NULL, "rank %u has no '%s'", view->rank, name);
	return out;
}

/* ---- order and stacking ---- */

Test(experts, B63_w1_then_w3_and_w2_apart)
{
	given("mixtral", 2, 16, "");
	opened();
	expect("vllm/tp1", 0, HELD "w13_weight",
	       EXPERTS "0.w1.weight " EXPERTS "0.w3.weight " EXPERTS "1.w1.weight " EXPERTS "1.w3.weight");
	sl_model_close(model);
}

Test(experts, B63_halves_of_a_rank)
{
	given("mixtral", 2, 16, "");
	opened();
	expect("vllm/tp2", 1, HELD "w13_weight",
	       EXPERTS "0.w1.weight[8:16] " EXPERTS "0.w3.weight[8:16] " EXPERTS "1.w1.weight[8:16] " EXPERTS
		       "1.w3.weight[8:16]");
	sl_model_close(model);
}

/* Columns of a stack are as wide as the shape's last axis: compared by hand, expert by expert. */
Test(experts, B101_columns_of_w2)
{
	given("mixtral", 2, 16, "");
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	const struct sl_output *out = find(view, HELD "w2_weight");
	unsigned char *got = checkpoint_read(view, out);

	cr_assert(out->n_dims == 3 && out->shape[0] == 2 && out->shape[1] == 40 && out->shape[2] == 8);
	for (unsigned e = 0; e < 2; e++) {
		char name[100];
		snprintf(name, sizeof(name), EXPERTS "%u.w2.weight", e);
		for (unsigned row = 0; row < 40; row++)
			cr_assert(memcmp(got + (e * 40 + row) * 16, checkpoint_find(name)->bytes + row * 32 + 16, 16) ==
				  0);
	}
	free(got);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- whole experts, spread ---- */

static void compare_spread(const struct family *f, const char *path)
{
	struct sl_layout layout;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], strchr(path, '/') + 1), 0);
	for (unsigned stage = 0; stage < layout.pp; stage++) {
		for (unsigned rank = 0; rank < layout.tp; rank++) {
			struct sl_view *view = checkpoint_view(model, path, stage, rank);
			twin_compare(f, view, false);
			sl_view_close(view);
		}
	}
}

/* Router whole, shared experts cut, routed ones whole: all by the twin. */
Test(experts, B99_B101_every_family_spread)
{
	static const char *const paths[] = { "vllm/tp2-ep", "vllm/tp4-ep", "hf/tp2-eprr", "vllm/tp2-pp2-ep",
					     "hf/tp2-ep",   "hf/tp4-eprr", "vllm/tp1-ep", "vllm/tp2-ep-f32" };

	for (unsigned i = 0; i < n_families; i++) {
		const struct family *f = &families[i];
		if (!f->more.E)
			continue;
		model = family_open(f, i % 2 ? "F32" : "BF16", "bfloat16", false);
		for (size_t p = 0; p < LEN(paths); p++)
			compare_spread(f, paths[p]);
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(experts, B161_reads_across_borders)
{
	static const char *const paths[] = { "vllm/tp2-ep", "hf/tp4-eprr", "vllm/tp4-f32", "hf/tp2-ep" };
	uint64_t state = 88172645463325252u;

	for (unsigned i = 0; i < n_families; i++) {
		if (!families[i].more.E)
			continue;
		model = family_open(&families[i], "BF16", "bfloat16", false);
		for (size_t p = 0; p < LEN(paths); p++) {
			struct sl_view *view = checkpoint_view(model, paths[p], 0, 1);
			checkpoint_read_randomly(view, 60, &state);
			sl_view_close(view);
		}
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

/* 10 on 4 ranks: 3, 3, 2, 2, one after another. */
Test(experts, uneven_numbers)
{
	static const unsigned first[] = { 0, 3, 6, 8 }, n[] = { 3, 3, 2, 2 };

	struct family f = given("qwen3-moe", 10, 24, "");
	opened();
	compare_spread(&f, "vllm/tp4-ep");
	for (unsigned r = 0; r < 4; r++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp4-ep", 0, r);
		char parts[600] = "";
		for (unsigned e = first[r]; e < first[r] + n[r]; e++)
			snprintf(parts + strlen(parts), sizeof(parts) - strlen(parts),
				 QWEN "%u.gate_proj.weight " QWEN "%u.up_proj.weight ", e, e);
		cr_assert_eq(find(view, QWEN_HELD "w13_weight")->shape[0], n[r]);
		checkpoint_expect(view, QWEN_HELD "w13_weight", parts);
		sl_view_close(view);
	}
	sl_model_close(model);
}

Test(experts, round_robin)
{
	struct family f = given("deepseek", 5, 24, ",\"n_group\":5");
	opened();
	compare_spread(&f, "vllm/tp2-eprr");
	compare_spread(&f, "vllm/tp4-eprr");
	expect("vllm/tp2-eprr", 0, QWEN_HELD "w2_weight",
	       QWEN "0.down_proj.weight " QWEN "2.down_proj.weight " QWEN "4.down_proj.weight");
	expect("vllm/tp2-eprr", 1, QWEN_HELD "w2_weight", QWEN "1.down_proj.weight " QWEN "3.down_proj.weight");
	sl_model_close(model);
}

/* vLLM would take blocks, whatever it is told. */
Test(experts, round_robin_without_groups)
{
	static const char *const groups[] = { "", ",\"n_group\":1", ",\"n_group\":null" };

	for (size_t i = 0; i < LEN(groups); i++) {
		given("deepseek", 4, 24, groups[i]);
		opened();
		checkpoint_view_refused(model, "vllm/tp2-eprr", "round robin", "n_group", "use -ep", NULL);
		sl_view_close(checkpoint_view(model, "vllm/tp1-eprr", 0, 0));
		sl_view_close(checkpoint_view(model, "hf/tp2-eprr", 0, 0));
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
	given("qwen3-moe", 4, 24, ",\"n_group\":4");
	opened();
	checkpoint_view_refused(model, "vllm/tp2-eprr", "round robin", NULL);
	sl_model_close(model);
}

/* Each expert is on one rank, whole, under its own name. */
Test(experts, B99_hf_keeps_names_and_whole_experts)
{
	given("qwen3-moe", 5, 24, "");
	opened();
	for (unsigned r = 0; r < 2; r++) {
		struct sl_view *view = checkpoint_view(model, "hf/tp2-ep", 0, r);
		for (unsigned e = 0; e < 5; e++) {
			char name[100];
			snprintf(name, sizeof(name), QWEN "%u.up_proj.weight", e);
			cr_assert_eq(sl_view_find(view, name) != NULL, e < 3 ? r == 0 : r == 1, "%s", name);
			if (sl_view_find(view, name))
				checkpoint_expect(view, name, name);
		}
		checkpoint_expect(view, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.weight");
		sl_view_close(view);
	}
	sl_model_close(model);
}

Test(experts, more_ranks_than_experts)
{
	given("mixtral", 3, 16, "");
	opened();
	checkpoint_view_refused(model, "vllm/tp4-ep", "vllm/tp4-ep", "3 experts", "4 ranks", NULL);
	checkpoint_view_refused(model, "hf/tp8-eprr", "3 experts", "8 ranks", NULL);
	sl_model_close(model);
}

Test(experts, spread_where_there_are_none)
{
	model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	checkpoint_view_refused(model, "vllm/tp2-ep", "LlamaForCausalLM", "no experts", NULL);
	sl_model_close(model);
}

/* What does not divide when experts are cut does when they are whole. */
Test(experts, fewer_than_ranks_that_cut_them)
{
	given("qwen3-moe", 2, 24, "");
	opened();
	checkpoint_view_refused(model, "vllm/tp4", "vllm/tp4: 2 experts are fewer than 4 ranks",
				"Qwen3MoeForCausalLM raises an error", NULL);
	sl_view_close(checkpoint_view(model, "vllm/tp2", 0, 0));
	sl_view_close(checkpoint_view(model, "hf/tp4", 0, 0));
	sl_model_close(model);
	checkpoint_teardown();
	checkpoint_setup();
	given("mixtral", 2, 16, "");
	opened();
	sl_view_close(checkpoint_view(model, "vllm/tp4", 0, 0));
	sl_model_close(model);
}

/* Layer 0 is dense. Another family's class only warns. */
Test(experts, a_stage_without)
{
	model = family_open(family_find("qwen3-moe"), "BF16", "bfloat16", false);
	checkpoint_view_refused(model, "vllm/tp1-pp3", "vllm/tp1-pp3: no layer of 0 to 0 has experts",
				"Qwen3MoeForCausalLM raises an error in a pipeline stage without", NULL);
	checkpoint_view_refused(model, "vllm@0.28/tp1-pp3", "no layer of 0 to 0 has experts", NULL);
	sl_view_close(checkpoint_view(model, "vllm/tp1-pp2", 0, 0));
	sl_view_close(checkpoint_view(model, "sglang/tp1", 0, 0));
	sl_model_close(model);
	model = family_open(family_find("deepseek"), "BF16", "bfloat16", false);
	sl_view_close(checkpoint_view(model, "vllm/tp1-pp2", 0, 0));
	sl_model_close(model);
}

Test(experts, tp_that_does_not_divide_an_expert)
{
	struct family f = given("qwen3-moe", 4, 6, "");

	opened();
	checkpoint_view_refused(model, "vllm/tp4", "vllm/tp4", "experts.0.gate_proj.weight", "6 intermediate rows",
				"tp 4", "(tp 1, 2 work)", NULL);
	compare_spread(&f, "vllm/tp4-ep");
	sl_model_close(model);
}

/* ---- beside the experts ---- */

/* 238 values between 6.817 and 7.063 would be 8 in BF16. */
Test(experts, B97_router_bias_stays_F32)
{
	static const struct {
		const char *family, *stored, *held;
	} cases[] = {
		{ "deepseek", "model.layers.1.mlp.gate.e_score_correction_bias",
		  "model.layers.1.mlp.experts.gate.e_score_correction_bias" },
		{ "glm4-moe", "model.layers.1.mlp.gate.e_score_correction_bias",
		  "model.layers.1.mlp.experts.routed_experts.e_score_correction_bias" },
		{ "minimax-m2", "model.layers.1.block_sparse_moe.e_score_correction_bias",
		  "model.layers.1.block_sparse_moe.e_score_correction_bias" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		given(cases[i].family, 4, 16, "");
		checkpoint_replace("F32", "4", cases[i].stored);
		float *values = (float *)(void *)checkpoint_find(cases[i].stored)->bytes;
		for (unsigned e = 0; e < 4; e++)
			values[e] = 6.817f + 0.001f * (float)e;
		opened();
		expect("vllm/tp2", 1, cases[i].held, cases[i].stored);
		expect("vllm/tp2-ep-f16", 1, cases[i].held, cases[i].stored);
		expect("hf/tp2", 1, cases[i].stored, cases[i].stored);
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(experts, drafts_are_left_out)
{
	given("deepseek", 4, 16, "");
	checkpoint_add("BF16", "40", "model.layers.2.enorm.weight");
	checkpoint_add("BF16", "40 80", "model.layers.2.eh_proj.weight");
	checkpoint_add("BF16", "16 40", "model.layers.2.mlp.experts.0.gate_proj.weight");
	opened();
	cr_assert_eq(model->n_drafts, 3);
	cr_assert(checkpoint_has_note(model, "3 tensors of next-n"));
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_assert(!strstr(view->tensors[i].name, "layers.2."), "%s", view->tensors[i].name);
	sl_view_close(view);
	sl_model_close(model);
}

/* A family that has no drafts does not excuse a layer too many. */
Test(experts, a_layer_too_many)
{
	given("mixtral", 2, 16, "");
	checkpoint_add("BF16", "40", "model.layers.2.input_layernorm.weight");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is unexpected", "'model.layers.2.input_layernorm.weight'", NULL);
}

/* ---- latent attention ---- */

Test(experts, latent_attention)
{
	model = family_open(family_find("deepseek"), "BF16", "bfloat16", false);
	expect("vllm/tp4", 2, "model.layers.0.self_attn.fused_qkv_a_proj.weight",
	       "model.layers.0.self_attn.q_a_proj.weight model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
	expect("vllm/tp4", 2, "model.layers.0.self_attn.mla_attn.q_b_proj.weight",
	       "model.layers.0.self_attn.q_b_proj.weight[40:60]");
	expect("vllm/tp4", 2, "model.layers.0.self_attn.mla_attn.o_proj.weight",
	       "model.layers.0.self_attn.o_proj.weight[:,28:42]");
	sl_model_close(model);
}

Test(experts, latent_attention_by_whole_heads)
{
	given("deepseek", 4, 48, "");
	checkpoint_replace("BF16", "84 12", "model.layers.1.self_attn.q_b_proj.weight");
	opened();
	checkpoint_view_refused(model, "vllm/tp2", "q_b_proj", "84 rows", "attention heads", NULL);
	sl_model_close(model);
}

/* V3.2's indexer: of two matrices that are one in the model's dtype, the first may be FP8. Element by element: code times
 * the scale of its block, in F32, rounded once. */
static void check_indexer(const struct sl_view *view, unsigned rows, unsigned cols)
{
	const struct checkpoint_tensor *wk = checkpoint_find("model.layers.0.self_attn.indexer.wk.weight");
	const struct checkpoint_tensor *scale = checkpoint_find("model.layers.0.self_attn.indexer.wk.weight_scale_inv");
	const struct sl_output *out = find(view, "model.layers.0.self_attn.indexer.wk_weights_proj.weight");
	unsigned char *got = checkpoint_read(view, out);

	cr_assert(out->dtype == SL_BF16 && out->n_dims == 2 && out->shape[0] == rows + 8 && out->shape[1] == cols);
	for (unsigned i = 0; i < rows * cols; i++) {
		float s;
		uint16_t have;
		memcpy(&s, scale->bytes + 4 * (i / cols / 8 * scale->shape[1] + i % cols / 16), sizeof(s));
		memcpy(&have, got + 2 * i, sizeof(have));
		float product = (float)(twin_decode(SL_F8_E4M3, wk->bytes + i) * (double)s);
		cr_assert_eq(have, twin_encode(SL_BF16, (double)product), "element %u", i);
	}
	cr_assert(memcmp(got + 2 * rows * cols,
			 checkpoint_find("model.layers.0.self_attn.indexer.weights_proj.weight")->bytes,
			 16 * cols) == 0);
	free(got);
}

/* 20 rows are two blocks of 8 and a half, 40 columns two of 16 and a half. */
Test(experts, B125_indexer_in_the_models_dtype)
{
	struct family f = *family_find("deepseek");

	f.sizes.L = 1;
	family_build(
		&f, &f.sizes, "BF16", "bfloat16", false,
		",\"index_topk\":16,\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[8,16]}");
	checkpoint_add("BF16", "24 12", "model.layers.0.self_attn.indexer.wq_b.weight");
	checkpoint_add("F8_E4M3", "20 40", "model.layers.0.self_attn.indexer.wk.weight");
	checkpoint_add("F32", "3 3", "model.layers.0.self_attn.indexer.wk.weight_scale_inv");
	checkpoint_add("BF16", "8 40", "model.layers.0.self_attn.indexer.weights_proj.weight");
	checkpoint_add("BF16", "20", "model.layers.0.self_attn.indexer.k_norm.weight");
	checkpoint_add("BF16", "20", "model.layers.0.self_attn.indexer.k_norm.bias");
	for (unsigned i = 0; i < 800; i++) /* no NaN: its bits are the library's */
		checkpoint_find("model.layers.0.self_attn.indexer.wk.weight")->bytes[i] &= 0xBF;
	opened();
	for (unsigned rank = 0; rank < 2; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, rank);
		uint64_t state = 2463534242u;
		check_indexer(view, 20, 40);
		checkpoint_read_randomly(view, 200, &state);
		cr_assert_eq(find(view, "model.layers.0.self_attn.indexer.k_norm.bias")->dtype, SL_F32);
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* ---- what is missing or too much ---- */

Test(experts, B96_one_matrix_of_one_expert)
{
	given("qwen3-moe", 8, 24, "");
	checkpoint_drop(QWEN "7.down_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "Qwen3MoeForCausalLM", "'" QWEN "7.down_proj.weight'", NULL);
}

/* Experts without a gate would leave half of what the engine holds of them without a source. */
Test(experts, B98_experts_without_a_gate)
{
	const struct family *f = family_find("qwen3-moe");
	char name[200];

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	for (unsigned e = 0; e < f->more.E; e++)
		checkpoint_drop(family_expert_name("model.layers.%u.mlp.experts.%e.gate_proj.weight", 1, e, name));
	checkpoint_write(1);
	checkpoint_refused("9 tensors are missing", "'model.layers.1.mlp.experts.0.gate_proj.weight'", "and 6 more",
			   NULL);
}

/* What the engine stacks has no suffix of the modules that it is made of. */
Test(experts, B58_names_of_stacks)
{
	for (unsigned i = 0; i < n_families; i++) {
		model = family_open(&families[i], "BF16", "bfloat16", strcmp(families[i].name, "gemma2") == 0);
		struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
		for (uint32_t t = 0; t < view->n_tensors; t++) {
			const char *name = view->tensors[t].name;
			cr_assert(!strstr(name, "_weight.weight") && !strstr(name, ".weight."), "%s", name);
			cr_assert_eq(!strstr(name, "routed_experts.w"),
				     !strstr(name, "w13_weight") && !strstr(name, "w2_weight"), "%s", name);
		}
		sl_view_close(view);
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(experts, more_of_them_in_config_json)
{
	given("mixtral", 2, 16, ",\"num_local_experts\":3");
	checkpoint_write(1);
	checkpoint_refused("6 tensors are missing", "'" EXPERTS "2.w1.weight'", "and 3 more", NULL);
	given("mixtral", 2, 16, ",\"num_local_experts\":2147483648");
	checkpoint_write(1);
	checkpoint_refused("2147483648 experts", "tensors", NULL);
	given("mixtral", 2, 16, ",\"num_local_experts\":2147483649");
	checkpoint_write(1);
	checkpoint_refused("config.json", "2147483649", NULL);
}

Test(experts, fewer_of_them_in_config_json)
{
	given("mixtral", 2, 16, ",\"num_local_experts\":1");
	checkpoint_write(1);
	checkpoint_refused("6 tensors are unexpected", "'" EXPERTS "1.w1.weight'", NULL);
	given("mixtral", 2, 16, ",\"num_local_experts\":null");
	checkpoint_write(1);
	checkpoint_refused("'" EXPERTS "0.w1.weight' is of an expert", "no number of them", NULL);
}

/* Without experts in config.json all layers are dense; nothing is looked for, or read, beyond the table's rows. */
Test(experts, none_in_config_json_nor_stored)
{
	static const char *const rows[][2] = { { "gate_proj", "48 40" },
					       { "up_proj", "48 40" },
					       { "down_proj", "40 48" } };

	given("qwen3-moe", 1, 24, ",\"num_experts\":null");
	for (unsigned i = 0; checkpoint_at(i);) {
		if (strstr(checkpoint_at(i)->name, ".mlp.") && !strstr(checkpoint_at(i)->name, "layers.0."))
			checkpoint_drop(checkpoint_at(i)->name);
		else
			i++;
	}
	for (unsigned i = 0; i < 2 * LEN(rows); i++) {
		checkpoint_add("BF16", rows[i % 3][1], "model.layers.%u.mlp.%s.weight", 1 + i / 3, rows[i % 3][0]);
	}
	opened();
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1);
	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_assert(!strstr(view->tensors[i].name, "experts"), "%s", view->tensors[i].name);
	sl_view_close(view);
	checkpoint_view_refused(model, "vllm/tp2", "no layer of 0 to 2 has experts", NULL);
	checkpoint_view_refused(model, "vllm/tp2-ep", "no experts", NULL);
	sl_model_close(model);
}

Test(experts, one_of_another_shape)
{
	given("deepseek", 4, 16, "");
	checkpoint_replace("BF16", "16 32", "model.layers.1.mlp.experts.2.up_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("model.safetensors", "'model.layers.1.mlp.experts.2.up_proj.weight'", "[16, 32]", "[16, 40]",
			   NULL);
	given("mixtral", 2, 16, "");
	checkpoint_replace("BF16", "15 40", EXPERTS "1.w3.weight");
	checkpoint_write(1);
	checkpoint_refused("'" EXPERTS "1.w3.weight'", "15 rows", "16 (moe intermediate size)", NULL);
}

Test(experts, one_of_another_dtype)
{
	given("mixtral", 2, 16, "");
	checkpoint_replace("F32", "16 40", EXPERTS "1.w3.weight");
	checkpoint_write(1);
	checkpoint_refused("'" EXPERTS "1.w3.weight'", "F32", "BF16", NULL);
}

/* ---- gpt-oss: all experts in one tensor of blocks, gate and up in alternate rows ---- */

enum { OSS_E = 3, OSS_H = 64 };

#define OSS "model.layers.0.mlp.experts."

static void gpt_oss(unsigned inter)
{
	static const char *const qkv[] = { "q", "k", "v" };
	char text[600], shape[40];

	snprintf(text, sizeof(text),
		 "{\"architectures\":[\"GptOssForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":64,"
		 "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":%u,"
		 "\"vocab_size\":64,\"num_local_experts\":3,\"torch_dtype\":\"bfloat16\","
		 "\"quantization_config\":{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"lm_head\"]}}",
		 inter);
	checkpoint_begin(text);
	checkpoint_add("BF16", "64 64", "model.embed_tokens.weight");
	checkpoint_add("BF16", "64 64", "lm_head.weight");
	checkpoint_add("BF16", "64", "model.norm.weight");
	checkpoint_add("BF16", "64", "model.layers.0.input_layernorm.weight");
	checkpoint_add("BF16", "64", "model.layers.0.post_attention_layernorm.weight");
	for (size_t i = 0; i < LEN(qkv); i++) {
		checkpoint_add("BF16", i ? "16 64" : "64 64", "model.layers.0.self_attn.%s_proj.weight", qkv[i]);
		checkpoint_add("BF16", i ? "16" : "64", "model.layers.0.self_attn.%s_proj.bias", qkv[i]);
	}
	checkpoint_add("BF16", "64 64", "model.layers.0.self_attn.o_proj.weight");
	checkpoint_add("BF16", "64", "model.layers.0.self_attn.o_proj.bias");
	checkpoint_add("BF16", "8", "model.layers.0.self_attn.sinks");
	checkpoint_add("BF16", "3 64", "model.layers.0.mlp.router.weight");
	checkpoint_add("BF16", "3", "model.layers.0.mlp.router.bias");
	snprintf(shape, sizeof(shape), "3 %u 2 16", 2 * inter);
	checkpoint_add("U8", shape, OSS "gate_up_proj_blocks");
	snprintf(shape, sizeof(shape), "3 %u 2", 2 * inter);
	checkpoint_add("U8", shape, OSS "gate_up_proj_scales");
	snprintf(shape, sizeof(shape), "3 %u", 2 * inter);
	checkpoint_add("BF16", shape, OSS "gate_up_proj_bias");
	snprintf(shape, sizeof(shape), "3 64 %u 16", inter / 32);
	checkpoint_add("U8", shape, OSS "down_proj_blocks");
	snprintf(shape, sizeof(shape), "3 64 %u", inter / 32);
	checkpoint_add("U8", shape, OSS "down_proj_scales");
	checkpoint_add("BF16", "3 64", OSS "down_proj_bias");
}

/* Rows and columns of each expert that a rank has of a tensor, and to what they are filled up with zeros. */
struct window {
	unsigned rows, cols;		   /* of the stored tensor, in bytes */
	unsigned row, n_rows, col, n_cols; /* those that are here */
	unsigned all_rows, all_cols;
};

static void check_window(const struct sl_view *view, const char *held, const char *stored, struct window w,
			 unsigned first, unsigned n)
{
	const struct checkpoint_tensor *t = checkpoint_find(stored);
	const struct sl_output *out = find(view, held);

	cr_assert_eq(out->len, (uint64_t)n * w.all_rows * w.all_cols, "%s: %u bytes, not %u x %u x %u", held,
		     (unsigned)out->len, n, w.all_rows, w.all_cols);
	cr_assert_eq(out->shape[0], n);
	cr_assert_eq(out->shape[1], w.all_rows);
	unsigned char *got = checkpoint_read(view, out), *at = got;
	for (unsigned e = first; e < first + n; e++) {
		for (unsigned r = 0; r < w.all_rows; r++) {
			for (unsigned c = 0; c < w.all_cols; c++, at++) {
				bool here = r < w.n_rows && c < w.n_cols;
				unsigned char want = here ? t->bytes[(e * w.rows + w.row + r) * w.cols + w.col + c] : 0;
				cr_assert_eq(*at, want, "rank %u: %s: expert %u, row %u, byte %u", view->rank, held, e,
					     r, c);
			}
		}
	}
	free(got);
}

static unsigned up_to(unsigned n, unsigned unit)
{
	return (n + unit - 1) / unit * unit;
}

/* By vLLM's own loop, gpt_oss.py: whole blocks of 32 to each rank, the last may have fewer, all filled up to what the
 * kernel wants of an even share. */
static void check_oss(const struct sl_view *view, unsigned inter, unsigned tp, unsigned unit, unsigned hidden_unit,
		      unsigned first, unsigned n)
{
	unsigned share = (inter / 32 + tp - 1) / tp * 32, rank = tp > 1 ? view->rank : 0;
	unsigned a = share * rank < inter ? share * rank : inter, end = a + share < inter ? a + share : inter;
	unsigned all = up_to((inter + tp - 1) / tp, unit), here = end - a, hidden = up_to(OSS_H, hidden_unit);
	struct window blocks = { 2 * inter, OSS_H / 2, 2 * a, 2 * here, 0, OSS_H / 2, 2 * all, hidden / 2 };
	struct window scales = { 2 * inter, OSS_H / 32, 2 * a, 2 * here, 0, OSS_H / 32, 2 * all, hidden / 32 };
	struct window bias = { 2 * inter, 2, 2 * a, 2 * here, 0, 2, 2 * all, 2 };

	check_window(view, OSS "routed_experts.w13_weight", OSS "gate_up_proj_blocks", blocks, first, n);
	check_window(view, OSS "routed_experts.w13_weight_scale", OSS "gate_up_proj_scales", scales, first, n);
	check_window(view, OSS "routed_experts.w13_bias", OSS "gate_up_proj_bias", bias, first, n);
	blocks = (struct window){ OSS_H, inter / 2, 0, OSS_H, a / 2, here / 2, hidden, all / 2 };
	scales = (struct window){ OSS_H, inter / 32, 0, OSS_H, a / 32, here / 32, hidden, all / 32 };
	bias = (struct window){ OSS_H, 2, 0, rank ? 0 : OSS_H, 0, 2, hidden, 2 };
	check_window(view, OSS "routed_experts.w2_weight", OSS "down_proj_blocks", blocks, first, n);
	check_window(view, OSS "routed_experts.w2_weight_scale", OSS "down_proj_scales", scales, first, n);
	check_window(view, OSS "routed_experts.w2_bias", OSS "down_proj_bias", bias, first, n);
}

static struct sl_view *view_for(const char *path, unsigned rank, enum sl_gpu gpu)
{
	const struct sl_view_options options = { .gpu = 1 + (int)gpu };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_layout layout;
	struct sl_view *view;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], path), 0);
	cr_assert_eq(sl_view_open(&view, model, &sl_engines[SL_VLLM], &layout, 0, rank, &options, &err), 0, "%s",
		     err.text);
	return view;
}

/* 5 blocks on 2, 4 and 8 ranks: 3 and 2; 2, 2, 1 and none; one each, and three ranks with none. */
Test(experts, B144_B145_whole_blocks)
{
	static const unsigned units[SL_N_GPUS][2] = {
		{ 128, 256 }, { 128, 256 }, { 64, 1 }, { 128, 256 }, { 256, 256 }
	};
	char path[16];

	gpt_oss(160);
	opened();
	for (unsigned tp = 1; tp <= 8; tp *= 2) {
		snprintf(path, sizeof(path), "tp%u", tp);
		for (unsigned gpu = 0; gpu < SL_N_GPUS; gpu++) {
			for (unsigned rank = 0; rank < tp; rank++) {
				struct sl_view *view = view_for(path, rank, (enum sl_gpu)gpu);
				check_oss(view, 160, tp, units[gpu][0], units[gpu][1], 0, OSS_E);
				sl_view_close(view);
			}
		}
	}
	sl_model_close(model);
}

/* What a rank's config.json says. */
static void expect_inter(const char *path, unsigned rank, unsigned inter)
{
	struct sl_view *view = checkpoint_view(model, path, 0, rank);
	const struct sl_file *file = checkpoint_file(view, "config.json");
	char want[64];

	cr_assert(file != NULL);
	unsigned char *text = checkpoint_read_file(file);
	snprintf(want, sizeof(want), "\"intermediate_size\":%u,", inter);
	cr_assert(memmem(text, file->size, want, strlen(want)) != NULL, "%s rank %u: no %s", path, rank, want);
	free(text);
	sl_view_close(view);
}

Test(experts, B144_numbers_of_the_real_one)
{
	static const unsigned rows[] = { 736, 736, 736, 672 };

	gpt_oss(2880);
	opened();
	for (unsigned rank = 0; rank < 4; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp4", 0, rank);
		check_oss(view, 2880, 4, 64, 1, 0, OSS_E);
		const struct sl_output *out = find(view, OSS "routed_experts.w2_weight_scale");
		unsigned char *got = checkpoint_read(view, out);
		for (unsigned c = 0; c < 24; c++)
			cr_assert(c < rows[rank] / 32 || got[c] == 0);
		free(got);
		sl_view_close(view);
		expect_inter("hf/tp4", rank, rows[rank]);
	}
	sl_model_close(model);
}

Test(experts, B101_whole_blocks_of_whole_experts)
{
	gpt_oss(160);
	opened();
	for (unsigned rank = 0; rank < 2; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp2-ep", 0, rank);
		check_oss(view, 160, 1, 64, 1, rank ? 2 : 0, rank ? 1 : 2);
		sl_view_close(view);
	}
	sl_model_close(model);
}

Test(experts, B95_blocks_scales_and_biases_from_the_same_rows)
{
	gpt_oss(160);
	opened();
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1);
	struct window blocks = { 320, 32, 192, 128, 0, 32, 128, 32 }, scales = { 320, 2, 192, 128, 0, 2, 128, 2 },
		      bias = { 64, 2, 0, 64, 0, 2, 64, 2 };

	check_window(view, OSS "gate_up_proj_blocks", OSS "gate_up_proj_blocks", blocks, 0, OSS_E);
	check_window(view, OSS "gate_up_proj_scales", OSS "gate_up_proj_scales", scales, 0, OSS_E);
	check_window(view, OSS "down_proj_bias", OSS "down_proj_bias", bias, 0, OSS_E);
	cr_assert_eq(find(view, OSS "gate_up_proj_blocks")->n_dims, 4);
	sl_view_close(view);
	sl_model_close(model);
}

/* Sinks by head; nothing of experts in the names of biases. */
Test(experts, B72_sinks_and_biases_of_heads)
{
	gpt_oss(160);
	opened();
	expect("vllm/tp4", 3, "model.layers.0.attn.sinks", "model.layers.0.self_attn.sinks[6:8]");
	expect("vllm/tp4", 3, "model.layers.0.attn.qkv_proj.bias",
	       "model.layers.0.self_attn.q_proj.bias[48:64] model.layers.0.self_attn.k_proj.bias[8:16] "
	       "model.layers.0.self_attn.v_proj.bias[8:16]");
	expect("vllm/tp4", 3, "model.layers.0.attn.o_proj.bias", "model.layers.0.self_attn.o_proj.bias");
	expect("vllm/tp4", 3, "model.embedding.weight", "model.embed_tokens.weight[48:64]");
	sl_model_close(model);
}

Test(experts, gpt_oss_that_does_not_fit)
{
	static const struct {
		const char *name, *dtype, *shape, *says, *also;
	} cases[] = {
		{ OSS "gate_up_proj_blocks", "U8", "2 320 2 16", "2 experts", "config.json 3" },
		{ OSS "gate_up_proj_blocks", "U8", "3 318 2 16", "318 rows", "320 (2 x moe intermediate size)" },
		{ OSS "down_proj_blocks", "U8", "3 64 4 16", "128 columns", "160 (moe intermediate size)" },
		{ OSS "down_proj_scales", "U8", "3 64 4", "groups of 40", "32 (MXFP4" },
		{ OSS "down_proj_scales", "U8", "3 64 0", "0 columns of scales", "160 columns" },
		{ OSS "down_proj_scales", "U8", "3 64 7", "7 columns of scales", "160 columns" },
		{ OSS "down_proj_scales", "U8", "3 60 5", "[60, 5]", "[64, 5]" },
		{ OSS "down_proj_bias", "BF16", "3 63", "[63, 1]", "[64, 1]" },
		{ OSS "down_proj_bias", "I32", "3 64", "'" OSS "down_proj_bias' is I32", "'mxfp4'" },
		{ OSS "down_proj_scales", "BF16", "3 64 5", "'" OSS "down_proj_scales' is BF16", "'mxfp4'" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		gpt_oss(160);
		checkpoint_replace(cases[i].dtype, cases[i].shape, cases[i].name);
		checkpoint_write(1);
		checkpoint_refused(cases[i].says, cases[i].also, NULL);
	}
}

/* Each component of a stack by its exact name. */
Test(experts, B150_a_component_of_all_experts)
{
	static const char *const names[] = { OSS "gate_up_proj_scales", OSS "gate_up_proj_bias", OSS "down_proj_scales",
					     OSS "down_proj_bias" };

	for (size_t i = 0; i < LEN(names); i++) {
		char quoted[100];
		gpt_oss(160);
		checkpoint_drop(names[i]);
		checkpoint_write(1);
		snprintf(quoted, sizeof(quoted), "'%s'", names[i]);
		checkpoint_refused("1 tensor is missing", quoted, NULL);
	}
}

/* ---- config.json of a slice ---- */

static void expect_served(const char *path, const char *part, bool there)
{
	struct sl_view *view = checkpoint_view(model, path, 0, 0);
	const struct sl_file *file = checkpoint_file(view, "config.json");

	cr_assert(file != NULL, "%s", path);
	unsigned char *text = checkpoint_read_file(file);
	cr_assert_eq(strstr((char *)text, part) != NULL, there, "%s: '%s' in %s", path, part, text);
	free(text);
	sl_view_close(view);
}

Test(experts, config_of_a_slice)
{
	given("qwen3-moe", 4, 24, "");
	opened();
	expect_served("hf/tp2", "\"moe_intermediate_size\":12,", true);
	expect_served("hf/tp2-ep", "\"moe_intermediate_size\":24,", true);
	expect_served("hf/tp2-ep", "\"intermediate_size\":24,", true);
	sl_model_close(model);
	given("mixtral", 4, 16, "");
	opened();
	expect_served("hf/tp2", "\"intermediate_size\":8,", true);
	expect_served("hf/tp2-ep", "\"intermediate_size\":16,", true);
	sl_model_close(model);
}

/* Heads of latent attention have other sizes than head_dim, which its configuration would take for the rotary part. */
Test(experts, config_of_latent_attention)
{
	given("deepseek", 4, 16, "");
	opened();
	expect_served("hf/tp2", "\"num_attention_heads\":4,", true);
	expect_served("hf/tp2", "head_dim", false);
	sl_model_close(model);
}
