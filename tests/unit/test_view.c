/*
 * test_view.c - what each rank of each engine holds, against a twin that computes it element by element; and that the
 * ranks put back together are the source.
 *
 * The names B65 to B177 are those of public bug reports against other loaders, restated as the smallest input that
 * shows the same fault.
 */
#include "checkpoint.h"
#include "twin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(view, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 300);

/* A Llama of the given sizes, written. */
static struct sl_model *llama(struct sizes sizes, const char *members)
{
	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, members);
	checkpoint_write(1);
	return checkpoint_open();
}

/* One rank of a layout holds an output made of those parts. */
static void expect(const struct sl_model *model, const char *path, unsigned rank, const char *output, const char *parts)
{
	struct sl_view *view = checkpoint_view(model, path, 0, rank);

	checkpoint_expect(view, output, parts);
	sl_view_close(view);
}

/* ---- every family, every layout, element by element ---- */

static void compare_layout(const struct family *f, const struct sl_model *model, bool tied, const char *path)
{
	struct sl_layout layout;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], strchr(path, '/') + 1), 0);
	for (unsigned stage = 0; stage < layout.pp; stage++) {
		for (unsigned rank = 0; rank < layout.tp; rank++) {
			struct sl_view *view = checkpoint_view(model, path, stage, rank);
			twin_compare(f, view, tied);
			sl_view_close(view);
		}
	}
}

/* Can the test's family be had without a stored head, or with one that config.json does not tie? */
static bool has_variant(const struct family *f, bool tied)
{
	if (strcmp(f->name, "gemma2") == 0)
		return tied;
	return !tied || (!f->untied && strcmp(f->name, "bert") != 0);
}

static void compare_all(const char *dtype, const char *torch_dtype, bool tied, const char *const *paths)
{
	for (unsigned i = 0; i < n_families; i++) {
		const struct family *f = &families[i];
		if (!has_variant(f, tied))
			continue;
		struct sl_model *model = family_open(f, dtype, torch_dtype, tied);
		for (const char *const *path = paths; *path; path++) {
			bool sliced = strncmp(*path, "hf/", 3) == 0 && !strstr(*path, "tp1");
			if ((sliced && !f->slices_as_hf) || (strstr(*path, "pp") && !f->stages))
				continue;
			compare_layout(f, model, tied, *path);
		}
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

static const char *const all_tp[] = { "vllm/tp1", "vllm/tp2", "vllm/tp4", "vllm/tp8", "hf/tp1",
				      "hf/tp2",	  "hf/tp4",   "hf/tp8",	  NULL };
static const char *const some_tp[] = { "vllm/tp1", "vllm/tp4", "hf/tp1", "hf/tp2", NULL };

Test(view, every_family_untied)
{
	compare_all("BF16", "bfloat16", false, all_tp);
}

Test(view, every_family_tied)
{
	compare_all("BF16", "bfloat16", true, all_tp);
}

Test(view, every_family_in_stages)
{
	static const char *const paths[] = { "vllm/tp1-pp2", "vllm/tp2-pp2", NULL };

	compare_all("F16", "bfloat16", false, paths);
	compare_all("BF16", "bfloat16", true, paths);
}

Test(view, every_family_from_F32)
{
	compare_all("F32", "float32", false, some_tp);
}

Test(view, every_family_from_F16_to_BF16)
{
	compare_all("F16", "bfloat16", false, some_tp);
}

Test(view, every_family_as_the_layout_asks)
{
	static const char *const to_f32[] = { "vllm/tp2-f32", "hf/tp1-f32", "hf/tp2-f32", "hf/tp2-bf16", NULL };

	compare_all("BF16", "bfloat16", true, to_f32);
	compare_all("F32", "bfloat16", false, to_f32);
}

Test(view, F32_to_F16)
{
	static const char *const names[] = { "llama", "gpt2", "falcon-new", "mistral" };

	for (unsigned i = 0; i < LEN(names); i++) {
		const struct family *f = family_find(names[i]);
		struct sl_model *model = family_open(f, "F32", "float16", false);
		cr_assert_eq(model->dtype, SL_F16);
		compare_layout(f, model, false, "vllm/tp2");
		compare_layout(f, model, false, "vllm/tp2-f16");
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

/* ---- random reads ---- */

/* 10,000 reads, against files that twin_compare() has found right when read from end to end. */
Test(view, B161_reads_across_borders)
{
	static const struct {
		const char *path;
		unsigned rank;
	} ranks[] = { { "vllm/tp2", 1 }, { "vllm/tp4-f32", 1 }, { "vllm/tp8", 3 }, { "hf/tp1", 0 } };
	uint64_t state = 88172645463325252u;

	for (unsigned i = 0; i < n_families; i++) {
		struct sl_model *model = family_open(&families[i], i % 2 ? "F16" : "BF16", "bfloat16", true);
		for (unsigned r = 0; r < LEN(ranks); r++) {
			struct sl_view *view = checkpoint_view(model, ranks[r].path, 0, ranks[r].rank);
			checkpoint_read_randomly(view, 40, &state);
			sl_view_close(view);
		}
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

/* ---- the ranks put back together ---- */

/* How often each number of checkpoint_number() was seen. */
static void count_numbers(const struct sl_view *view, unsigned *counts, uint32_t n, unsigned *zeros)
{
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		const struct sl_output *out = &view->tensors[i];
		if (out->dtype != SL_F32 || out->n_dims == 0)
			continue;
		float *values = (float *)(void *)checkpoint_read(view, out);
		for (uint64_t e = 0; e < out->len / 4; e++) {
			uint32_t number = (uint32_t)values[e];
			cr_assert((float)number == values[e] && number < n && (number == 0 || number >= 1000), "%s",
				  out->name);
			if (number)
				counts[number]++;
			else
				++*zeros;
		}
		free(values);
	}
}

/* On how many of `tp` ranks an element of the row's tensor is. */
static unsigned copies(const struct family *f, const struct family_row *row, unsigned tp, bool fused, bool is_kv,
		       uint64_t n_rows)
{
	bool vision_whole = row->kind == VISION && !fused;

	if (fused && !row->vllm)
		return 0;
	if (row->share == WHOLE || vision_whole)
		return tp;
	if (is_kv)
		return tp > f->sizes.M ? tp / f->sizes.M : 1;
	if (!fused && (row->share == PADDED || (row->share == VOCAB && n_rows % tp)))
		return tp;
	return 1;
}

/* Is element `e` of the tensor part of a key or a value? */
static bool is_of_kv(const struct family *f, const struct family_row *row, const struct checkpoint_tensor *t,
		     uint64_t e)
{
	uint64_t width = t->n_dims > 1 ? t->shape[1] : 1, line = row->stored == TURNED ? e % width : e / width;
	unsigned per = f->sizes.N / f->sizes.M;

	if (row->share == KV_ROWS)
		return true;
	if (row->share != QKV_ROWS)
		return false;
	if (row->stored == GROUPS)
		return line / f->sizes.D % (per + 2) >= per;
	return line >= f->sizes.N * f->sizes.D;
}

/* Every element of one stored tensor is there as often as its row says. */
static void check_tensor_counts(const struct family *f, const struct family_row *row, const char *name, unsigned tp,
				bool fused, const unsigned *counts)
{
	const struct checkpoint_tensor *t = checkpoint_find(name);
	float first;

	if (!t || t->dtype != SL_F32)
		return;
	memcpy(&first, t->bytes, sizeof(first));
	for (uint64_t e = 0; e < t->n; e++) {
		unsigned want = copies(f, row, tp, fused, is_of_kv(f, row, t, e), t->shape[0]);
		unsigned got = counts[(uint32_t)first + e];
		cr_assert_eq(got, want, "%s tp%u: element %u of %s is there %u times, not %u", f->name, tp, (unsigned)e,
			     name, got, want);
	}
}

static void check_counts(const struct family *f, unsigned tp, bool fused, const unsigned *counts)
{
	char name[200];

	for (unsigned r = 0; r < f->n_rows; r++) {
		const struct family_row *row = &f->rows[r];
		for (unsigned l = 0; l < family_layers(f, row); l++) {
			for (unsigned e = 0; e < family_experts(f, row); e++)
				check_tensor_counts(f, row, family_expert_name(row->name, l, e, name), tp, fused,
						    counts);
		}
	}
}

static unsigned padding_of(const struct family *f, bool fused)
{
	unsigned zeros = 0;

	for (unsigned r = 0; r < f->n_rows && fused; r++) {
		const struct checkpoint_tensor *t = checkpoint_find(f->rows[r].name);
		if (t && (f->rows[r].share == VOCAB || f->rows[r].share == PADDED))
			zeros += (unsigned)((64 - t->shape[0] % 64) % 64 * t->shape[1]);
	}
	return zeros;
}

static void put_together(const struct family *f, const struct sl_model *model, const char *engine, unsigned tp,
			 uint32_t n)
{
	bool fused = strcmp(engine, "vllm") == 0;
	unsigned *counts = calloc(n, sizeof(*counts)), zeros = 0;
	char path[32];

	snprintf(path, sizeof(path), "%s/tp%u-f32", engine, tp);
	for (unsigned rank = 0; rank < tp; rank++) {
		struct sl_view *view = checkpoint_view(model, path, 0, rank);
		count_numbers(view, counts, n, &zeros);
		sl_view_close(view);
	}
	check_counts(f, tp, fused, counts);
	cr_assert_eq(zeros, padding_of(f, fused), "%s %s: %u zeros of padding", f->name, path, zeros);
	free(counts);
}

/* Every element of the source has a number: all ranks together have each as often as the role says, and nothing else
 * but zeros of padding. That they are in their places is what the twin says. */
Test(view, B66_ranks_put_back_together)
{
	for (unsigned i = 0; i < n_families; i++) {
		const struct family *f = &families[i];
		family_build(f, &f->sizes, "F32", "bfloat16", strcmp(f->name, "gemma2") == 0, "");
		uint32_t n = checkpoint_number();
		checkpoint_write_file(f->file);
		struct sl_model *model = checkpoint_open();
		for (unsigned tp = 1; tp <= 8; tp *= 2) {
			put_together(f, model, "vllm", tp, n);
			if (tp == 1 || f->slices_as_hf)
				put_together(f, model, "hf", tp, n);
		}
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

/* An engine without the fused matrices has each part under its own name. */
Test(view, B66_B153_each_of_the_fused_parts)
{
	static const char *const modules[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
					       "mlp.gate_proj", "mlp.up_proj" };
	struct sl_model *model = llama((struct sizes){ 1, 16, 4, 4, 4, 24, 64, 0 }, "");
	char parts[400], name[80];

	for (unsigned r = 0; r < 4; r++) {
		snprintf(parts, sizeof(parts),
			 "model.layers.0.self_attn.q_proj.weight[%u:%u] model.layers.0.self_attn.k_proj.weight[%u:%u] "
			 "model.layers.0.self_attn.v_proj.weight[%u:%u]",
			 4 * r, 4 * r + 4, 4 * r, 4 * r + 4, 4 * r, 4 * r + 4);
		expect(model, "vllm/tp4", r, "model.layers.0.self_attn.qkv_proj.weight", parts);
		snprintf(parts, sizeof(parts),
			 "model.layers.0.mlp.gate_proj.weight[%u:%u] model.layers.0.mlp.up_proj.weight[%u:%u]", 6 * r,
			 6 * r + 6, 6 * r, 6 * r + 6);
		expect(model, "vllm/tp4", r, "model.layers.0.mlp.gate_up_proj.weight", parts);
		for (unsigned m = 0; m < LEN(modules); m++) {
			unsigned rows = m < 3 ? 4 : 6;
			snprintf(name, sizeof(name), "model.layers.0.%s.weight", modules[m]);
			snprintf(parts, sizeof(parts), "%s[%u:%u]", name, rows * r, rows * r + rows);
			expect(model, "hf/tp4", r, name, parts);
		}
	}
	sl_model_close(model);
}

/* ---- cases ---- */

Test(view, B65_head_dim_from_config)
{
	struct sl_model *model = llama((struct sizes){ 1, 20, 4, 2, 8, 24, 64, 0 }, "");

	expect(model, "vllm/tp2", 1, "model.layers.0.self_attn.qkv_proj.weight",
	       "model.layers.0.self_attn.q_proj.weight[16:32] model.layers.0.self_attn.k_proj.weight[8:16] "
	       "model.layers.0.self_attn.v_proj.weight[8:16]");
	expect(model, "vllm/tp2", 1, "model.layers.0.self_attn.o_proj.weight",
	       "model.layers.0.self_attn.o_proj.weight[:,16:32]");
	sl_model_close(model);
}

Test(view, B65_head_dim_from_shapes)
{
	struct sizes sizes = { 1, 20, 4, 2, 8, 24, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"head_dim\":null");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert_eq(model->config.dims[SL_TEXT].head_dim, 8);
	expect(model, "vllm/tp2", 0, "model.layers.0.self_attn.qkv_proj.weight",
	       "model.layers.0.self_attn.q_proj.weight[0:16] model.layers.0.self_attn.k_proj.weight[0:8] "
	       "model.layers.0.self_attn.v_proj.weight[0:8]");
	sl_model_close(model);
}

Test(view, B67_fused_qkv_on_disk)
{
	struct sizes sizes = { 1, 16, 4, 2, 8, 4, 64, 0 };
	const char *name = "model.layers.0.self_attn.qkv_proj.weight";

	family_build(family_find("phi3"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	expect(model, "vllm/tp2", 0, name,
	       "model.layers.0.self_attn.qkv_proj.weight[0:16] "
	       "model.layers.0.self_attn.qkv_proj.weight[32:40] model.layers.0.self_attn.qkv_proj.weight[48:56]");
	expect(model, "vllm/tp2", 1, name,
	       "model.layers.0.self_attn.qkv_proj.weight[16:32] "
	       "model.layers.0.self_attn.qkv_proj.weight[40:48] model.layers.0.self_attn.qkv_proj.weight[56:64]");
	sl_model_close(model);
}

Test(view, B69_fused_gate_up_on_disk)
{
	struct sizes sizes = { 1, 16, 4, 2, 8, 4, 64, 0 };
	const char *name = "model.layers.0.mlp.gate_up_proj.weight";

	family_build(family_find("phi3"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	expect(model, "hf/tp2", 0, name,
	       "model.layers.0.mlp.gate_up_proj.weight[0:2] model.layers.0.mlp.gate_up_proj.weight[4:6]");
	expect(model, "vllm/tp2", 1, name,
	       "model.layers.0.mlp.gate_up_proj.weight[2:4] model.layers.0.mlp.gate_up_proj.weight[6:8]");
	sl_model_close(model);
}

Test(view, B71_row_parallel_bias_is_whole_everywhere)
{
	const struct family *f = family_find("llama-bias");
	struct sl_model *model = family_open(f, "BF16", "bfloat16", false);

	for (unsigned r = 0; r < 2; r++) {
		expect(model, "vllm/tp2", r, "model.layers.0.self_attn.o_proj.bias",
		       "model.layers.0.self_attn.o_proj.bias");
		expect(model, "vllm/tp2", r, "model.layers.0.mlp.down_proj.bias", "model.layers.0.mlp.down_proj.bias");
	}
	sl_model_close(model);
}

Test(view, B73_norms_per_head_are_whole)
{
	struct sl_model *model = family_open(family_find("qwen3"), "BF16", "bfloat16", false);

	for (unsigned r = 0; r < 4; r++)
		expect(model, "vllm/tp4", r, "model.layers.0.self_attn.k_norm.weight",
		       "model.layers.0.self_attn.k_norm.weight");
	sl_model_close(model);
}

/* A norm over all heads is no row of a family that we know: it must not be taken for one per head. */
Test(view, B73_norm_over_all_heads_is_refused)
{
	const struct family *f = family_find("qwen3");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	checkpoint_replace("BF16", "64", "model.layers.0.self_attn.q_norm.weight");
	checkpoint_write(1);
	checkpoint_refused("model.safetensors", "'model.layers.0.self_attn.q_norm.weight'", "64 rows", "8 (head_dim)",
			   NULL);
}

Test(view, B76_square_matrix_is_cut_by_its_role)
{
	struct sl_model *model = llama((struct sizes){ 1, 16, 4, 4, 4, 16, 64, 0 }, "");

	expect(model, "vllm/tp2", 1, "model.layers.0.self_attn.o_proj.weight",
	       "model.layers.0.self_attn.o_proj.weight[:,8:16]");
	expect(model, "vllm/tp2", 1, "model.layers.0.mlp.down_proj.weight",
	       "model.layers.0.mlp.down_proj.weight[:,8:16]");
	sl_model_close(model);
}

Test(view, B77_kv_heads_are_replicated_in_blocks)
{
	struct sl_model *model = llama((struct sizes){ 1, 32, 8, 2, 4, 16, 64, 0 }, "");
	char parts[300];

	for (unsigned r = 0; r < 8; r++) {
		unsigned kv = r / 4 * 4;
		snprintf(parts, sizeof(parts),
			 "model.layers.0.self_attn.q_proj.weight[%u:%u] model.layers.0.self_attn.k_proj.weight[%u:%u] "
			 "model.layers.0.self_attn.v_proj.weight[%u:%u]",
			 4 * r, 4 * r + 4, kv, kv + 4, kv, kv + 4);
		expect(model, "vllm/tp8", r, "model.layers.0.self_attn.qkv_proj.weight", parts);
	}
	sl_model_close(model);
}

Test(view, B79_kv_heads_differ_between_layers)
{
	struct sizes sizes = { 2, 32, 8, 4, 4, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":[4,2]");
	checkpoint_replace("BF16", "8 32", "model.layers.1.self_attn.k_proj.weight");
	checkpoint_replace("BF16", "8 32", "model.layers.1.self_attn.v_proj.weight");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	expect(model, "vllm/tp4", 3, "model.layers.0.self_attn.qkv_proj.weight",
	       "model.layers.0.self_attn.q_proj.weight[24:32] model.layers.0.self_attn.k_proj.weight[12:16] "
	       "model.layers.0.self_attn.v_proj.weight[12:16]");
	expect(model, "vllm/tp4", 3, "model.layers.1.self_attn.qkv_proj.weight",
	       "model.layers.1.self_attn.q_proj.weight[24:32] model.layers.1.self_attn.k_proj.weight[4:8] "
	       "model.layers.1.self_attn.v_proj.weight[4:8]");
	checkpoint_view_refused(model, "hf/tp2", "kv heads differ between layers", NULL);
	sl_model_close(model);
}

Test(view, B80_kv_bias_is_replicated_with_the_weight)
{
	struct sizes sizes = { 1, 32, 8, 2, 4, 16, 64, 0 };

	family_build(family_find("qwen2"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	expect(model, "vllm/tp8", 5, "model.layers.0.self_attn.qkv_proj.bias",
	       "model.layers.0.self_attn.q_proj.bias[20:24] model.layers.0.self_attn.k_proj.bias[4:8] "
	       "model.layers.0.self_attn.v_proj.bias[4:8]");
	sl_model_close(model);
}

Test(view, B82_one_kv_head)
{
	struct sl_model *model = llama((struct sizes){ 1, 16, 4, 1, 4, 16, 64, 0 }, "");

	for (unsigned r = 0; r < 4; r++) {
		struct sl_view *view = checkpoint_view(model, "hf/tp4", 0, r);
		checkpoint_expect(view, "model.layers.0.self_attn.k_proj.weight",
				  "model.layers.0.self_attn.k_proj.weight");
		sl_view_close(view);
	}
	sl_model_close(model);
}

Test(view, B82_absent_kv_heads_are_all_heads)
{
	struct sizes sizes = { 1, 16, 4, 4, 4, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":null");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert_eq(model->config.dims[SL_TEXT].kv_heads, 4);
	sl_model_close(model);
}

Test(view, B84_vocabulary_is_padded_to_64)
{
	struct sl_model *model = llama((struct sizes){ 1, 16, 8, 4, 4, 16, 67, 0 }, "");

	expect(model, "vllm/tp2", 0, "lm_head.weight", "lm_head.weight[0:64]");
	expect(model, "vllm/tp2", 1, "lm_head.weight", "lm_head.weight[64:67] zeros[61]");
	expect(model, "vllm/tp8", 5, "model.embed_tokens.weight", "zeros[16]");
	sl_model_close(model);
}

/* Without a unit of padding the vocabulary is divided where it divides, and left whole where it does not. */
Test(view, B87_padding_is_the_engines_own)
{
	struct sl_model *model = llama((struct sizes){ 1, 16, 4, 4, 4, 16, 66, 0 }, "");

	expect(model, "hf/tp2", 1, "lm_head.weight", "lm_head.weight[33:66]");
	expect(model, "hf/tp4", 1, "lm_head.weight", "lm_head.weight");
	sl_model_close(model);
}

Test(view, B90_B154_tied_head_of_the_last_stage)
{
	struct sizes sizes = { 4, 16, 4, 4, 4, 16, 10, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", true, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	for (unsigned r = 0; r < 2; r++) {
		const char *parts = r ? "zeros[32]" : "model.embed_tokens.weight zeros[22]";
		struct sl_view *first = checkpoint_view(model, "vllm/tp2-pp2", 0, r),
			       *last = checkpoint_view(model, "vllm/tp2-pp2", 1, r);
		checkpoint_expect(first, "model.embed_tokens.weight", parts);
		cr_assert(!sl_view_find(first, "lm_head.weight"));
		checkpoint_expect(last, "lm_head.weight", parts);
		cr_assert(!sl_view_find(last, "model.embed_tokens.weight"));
		sl_view_close(first);
		sl_view_close(last);
	}
	sl_model_close(model);
}

/* Families that vLLM gives a head of their own whatever config.json says: it holds both, and the head is the embedding. */
Test(view, B90_tied_in_families_with_a_head_of_their_own)
{
	for (unsigned i = 0; i < n_families; i++) {
		const struct family *f = &families[i];
		if (!f->untied)
			continue;
		struct sl_model *model = family_open(f, "BF16", "bfloat16", true);
		cr_assert(checkpoint_has_note(model, "a head of its own"), "%s", f->name);
		struct sl_view *only = checkpoint_view(model, "vllm/tp2", 0, 1),
			       *first = checkpoint_view(model, "vllm/tp2-pp2", 0, 1),
			       *last = checkpoint_view(model, "vllm/tp2-pp2", 1, 1),
			       *hf = checkpoint_view(model, "hf/tp1", 0, 0);
		checkpoint_expect(only, "model.embed_tokens.weight", "model.embed_tokens.weight[64:67] zeros[61]");
		checkpoint_expect(only, "lm_head.weight", "model.embed_tokens.weight[64:67] zeros[61]");
		checkpoint_expect(first, "model.embed_tokens.weight", "model.embed_tokens.weight[64:67] zeros[61]");
		checkpoint_expect(last, "lm_head.weight", "model.embed_tokens.weight[64:67] zeros[61]");
		cr_assert(!sl_view_find(first, "lm_head.weight") && !sl_view_find(last, "model.embed_tokens.weight"));
		cr_assert(!sl_view_find(hf, "lm_head.weight"), "hf/ has what is stored");
		sl_view_close(only);
		sl_view_close(first);
		sl_view_close(last);
		sl_view_close(hf);
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(view, B108_missing_on_one_stage_is_missing_for_all)
{
	struct sizes sizes = { 4, 16, 4, 4, 4, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, "");
	checkpoint_drop("model.layers.3.input_layernorm.weight");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'model.layers.3.input_layernorm.weight'", NULL);
}

Test(view, B155_order_of_files_and_tensors_does_not_matter)
{
	const struct family *f = family_find("llama");
	static const unsigned shards[] = { 1, 2, 5 };

	for (unsigned i = 0; i < LEN(shards); i++) {
		family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
		for (unsigned t = 0; checkpoint_at(t + 1) && i; t += 2) { /* some other order */
			struct checkpoint_tensor swap = *checkpoint_at(t);
			*checkpoint_at(t) = *checkpoint_at(t + 1);
			*checkpoint_at(t + 1) = swap;
		}
		checkpoint_write(shards[i]);
		struct sl_model *model = checkpoint_open();
		compare_layout(f, model, false, "vllm/tp2");
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

/* vLLM casts to the model's dtype when it loads; files that are for everybody keep what is stored. */
Test(view, B156_dtype_of_a_single_tensor)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	checkpoint_replace("F32", "40", "model.norm.weight");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	cr_assert_eq(sl_view_find(view, "model.norm.weight")->dtype, SL_BF16);
	twin_compare(f, view, false);
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp2", 0, 0);
	cr_assert_eq(sl_view_find(view, "model.norm.weight")->dtype, SL_F32);
	twin_compare(f, view, false);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- a worked example, its header byte for byte ---- */

static const char example_header[] =
	"{\"model.layers.0.self_attn.attn._k_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
	"\"model.layers.0.self_attn.attn._prob_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
	"\"model.layers.0.self_attn.attn._q_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
	"\"model.layers.0.self_attn.attn._v_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
	"\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":[128],\"data_offsets\":[16,272]},"
	"\"model.layers.0.mlp.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[128,128],\"data_offsets\":[272,33040]},"
	"\"model.layers.0.mlp.gate_up_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[256,128],\"data_offsets\":[33040,"
	"98576]},"
	"\"model.layers.0.post_attention_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":[128],"
	"\"data_offsets\":[98576,98832]},"
	"\"model.layers.0.self_attn.o_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[128,64],\"data_offsets\":[98832,"
	"115216]},"
	"\"model.layers.0.self_attn.qkv_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[128,128],"
	"\"data_offsets\":[115216,147984]}}";

Test(view, worked_example)
{
	struct sl_model *model = llama((struct sizes){ 1, 128, 4, 2, 32, 256, 1000, 0 }, "");
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	const struct sl_file *file = checkpoint_file(view, "model-rank-1-part-1.safetensors");
	size_t json = strlen(example_header), padded = (json + 7) / 8 * 8;

	cr_assert(file != NULL);
	unsigned char *bytes = checkpoint_read_file(file);
	cr_assert(bytes[0] == (padded & 255) && bytes[1] == padded >> 8 && bytes[2] == 0);
	cr_assert(memcmp(bytes + 8, example_header, json) == 0, "%.*s", (int)padded, (char *)bytes + 8);
	for (size_t i = json; i < padded; i++)
		cr_assert_eq(bytes[8 + i], ' ');
	cr_assert(memcmp(bytes + 8 + padded, "\0\0\x80?\0\0\x80?\0\0\x80?\0\0\x80?", 16) == 0);
	cr_assert_eq(file->size, 8 + padded + 147984);
	free(bytes);
	checkpoint_expect(view, "lm_head.weight", "lm_head.weight[512:1000] zeros[24]");
	sl_view_close(view);
	expect(model, "vllm/tp4", 3, "model.embed_tokens.weight", "model.embed_tokens.weight[768:1000] zeros[24]");
	expect(model, "vllm/tp4", 3, "model.layers.0.self_attn.qkv_proj.weight",
	       "model.layers.0.self_attn.q_proj.weight[96:128] model.layers.0.self_attn.k_proj.weight[32:64] "
	       "model.layers.0.self_attn.v_proj.weight[32:64]");
	sl_model_close(model);
}

/* ---- parts ---- */

static struct sl_view *view_in_parts(const struct sl_model *model, uint64_t part_bytes)
{
	const struct sl_view_options options = { .part_bytes = part_bytes };
	struct sl_layout layout = { .tp = 2, .pp = 1, .dtype = -1 };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_view *view;
	int ret = sl_view_open(&view, model, &sl_engines[SL_VLLM], &layout, 0, 0, &options, &err);

	cr_assert_eq(ret, 0, "%s", err.text);
	return view;
}

Test(view, a_part_per_layer)
{
	const struct family *f = family_find("llama");
	struct sl_model *model = family_open(f, "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	char name[64];

	/* Before the layers, each layer, after them. */
	cr_assert_eq(view->n_weights, f->sizes.L + 2);
	for (uint32_t i = 0; i < view->n_weights; i++) {
		snprintf(name, sizeof(name), "model-rank-1-part-%u.safetensors", i);
		cr_assert_str_eq(view->files[i].name, name);
		cr_assert_eq(view->files[i].section, i);
	}
	cr_assert_eq(sl_view_find(view, "model.embed_tokens.weight")->file, 0);
	cr_assert_eq(sl_view_find(view, "model.layers.1.mlp.down_proj.weight")->file, 2);
	cr_assert_eq(sl_view_find(view, "lm_head.weight")->file, 4);
	sl_view_close(view);
	sl_model_close(model);
}

Test(view, names_of_parts)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2-pp3", 2, 1);

	cr_assert(checkpoint_file(view, "model-pp-2-tp-1-part-0.safetensors") != NULL);
	/* Layer numbers stay those of the whole model. */
	cr_assert(sl_view_find(view, "model.layers.2.input_layernorm.weight") != NULL);
	cr_assert(sl_view_find(view, "model.layers.0.input_layernorm.weight") == NULL);
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp2", 0, 1);
	cr_assert(checkpoint_file(view, "model-00001-of-00005.safetensors") != NULL);
	cr_assert(checkpoint_file(view, "model-00005-of-00005.safetensors") != NULL);
	cr_assert(checkpoint_file(view, "model.safetensors.index.json") != NULL);
	sl_view_close(view);
	sl_model_close(model);
}

/* A part ends before the tensor that would exceed its size; a larger tensor has a part of its own. */
Test(view, parts_are_split_at_tensors)
{
	static const uint64_t sizes[] = { 1, 100, 4000, 10000, 1 << 20 };
	const struct family *f = family_find("llama");
	struct sl_model *model = family_open(f, "BF16", "bfloat16", false);

	for (unsigned s = 0; s < LEN(sizes); s++) {
		struct sl_view *view = view_in_parts(model, sizes[s]);
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < view->n_tensors; i++) {
			const struct sl_output *t = &view->tensors[i];
			bool first = i == 0 || t[-1].file != t->file;
			cr_assert(i == 0 || t->file == t[-1].file || t->file == t[-1].file + 1);
			cr_assert(first || t->section == t[-1].section);
			bytes = (first ? 0 : bytes) + t->len;
			cr_assert(first || bytes <= sizes[s]);
			if (first && i > 0 && t->section == t[-1].section)
				cr_assert_gt(t[-1].len + t->len, 0);
		}
		twin_compare(f, view, false);
		sl_view_close(view);
	}
	sl_model_close(model);
}

Test(view, one_tensor_a_part_at_most)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = view_in_parts(model, 1);

	cr_assert_eq(view->n_weights, view->n_tensors);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- what else there is ---- */

Test(view, position_ids_that_are_not_stored)
{
	const struct family *f = family_find("bert");

	family_build(f, &f->sizes, "F32", "float32", false, "");
	checkpoint_drop("embeddings.position_ids");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert_eq(model->dtype, SL_F16, "an embedding model");
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	const struct sl_output *ids = sl_view_find(view, "model.embeddings.position_ids");
	cr_assert(ids && ids->dtype == SL_I64 && ids->n_dims == 2 && ids->shape[0] == 1 && ids->shape[1] == 70);
	int64_t *values = (int64_t *)(void *)checkpoint_read(view, ids);
	for (int64_t i = 0; i < 70; i++)
		cr_assert_eq(values[i], i);
	free(values);
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp1", 0, 0);
	cr_assert(!sl_view_find(view, "embeddings.position_ids"));
	sl_view_close(view);
	sl_model_close(model);
}

/* What nobody loads may have any dtype, also one of half a byte; files for everybody keep it. */
Test(view, elements_below_a_byte)
{
	const struct family *f = family_find("gpt2");
	const char *name = "transformer.h.0.attn.bias";

	family_build(f, &f->sizes, "BF16", "bfloat16", true, "");
	checkpoint_replace("F4", "3 2", name);
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);
	const struct sl_output *mask = sl_view_find(view, name);
	cr_assert(mask && mask->dtype == SL_F4 && mask->len == 3);
	unsigned char *bytes = checkpoint_read(view, mask);
	cr_assert(memcmp(bytes, checkpoint_find(name)->bytes, 3) == 0);
	free(bytes);
	sl_view_close(view);
	sl_model_close(model);
}

Test(view, there_is_no_such_rank)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	const struct sl_layout layout = { .tp = 2, .pp = 1, .dtype = -1 };
	struct sl_error err = SL_ERROR_INIT;
	struct sl_view *view;

	cr_assert_lt(sl_view_open(&view, model, &sl_engines[SL_VLLM], &layout, 0, 2, NULL, &err), 0);
	cr_assert(view == NULL && strstr(err.text, "rank 2 of 2"), "%s", err.text);
	err = (struct sl_error)SL_ERROR_INIT;
	cr_assert_lt(sl_view_open(&view, model, &sl_engines[SL_VLLM], &layout, 1, 0, NULL, &err), 0);
	cr_assert(strstr(err.text, "stage 1 of 1"), "%s", err.text);
	sl_model_close(model);
}

Test(view, reading_past_the_end)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	const struct sl_file *file = &view->files[0];
	unsigned char bytes[16];

	cr_assert_eq(sl_file_read(file, bytes, file->size, 16, NULL), 0);
	cr_assert_eq(sl_file_read(file, bytes, UINT64_MAX, 16, NULL), 0);
	cr_assert_eq(sl_file_read(file, bytes, file->size - 3, 16, NULL), 3);
	cr_assert_eq(sl_file_read(file, bytes, 5, 0, NULL), 0);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- what no file must show ---- */

Test(view, files_that_pass)
{
	static const char *const yes[] = {
		"config.json", "tokenizer.json",      "generation_config.json", "modeling_x.py",
		"README.md",   "chat_template.jinja", "tokenizer.model",	"1_Pooling/config.json"
	};
	static const char *const no[] = { "model.safetensors",
					  "a/b.safetensors",
					  "pytorch_model.bin",
					  "MODEL.SAFETENSORS",
					  "model.safetensors.index.json",
					  "pytorch_model.bin.index.json",
					  "model.gguf",
					  ".gitattributes",
					  "a/.hidden",
					  "x.tmp",
					  "x~",
					  "._config.json",
					  "x.incomplete",
					  "consolidated.00.pth" };

	for (unsigned i = 0; i < LEN(yes); i++)
		cr_assert(sl_view_passes(yes[i]), "%s", yes[i]);
	for (unsigned i = 0; i < LEN(no); i++)
		cr_assert(!sl_view_passes(no[i]), "%s", no[i]);
}
