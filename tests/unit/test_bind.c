/*
 * test_bind.c - every tensor accounted for: spellings of names, what is missing, what is unexpected, and shapes that
 * contradict config.json.
 */
#include "checkpoint.h"
#include "family.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(bind, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

/* A family's checkpoint, not yet written. */
static void given(const char *family)
{
	const struct family *f = family_find(family);

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
}

static void accepted(uint64_t n_ignored)
{
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert_eq(model->n_ignored, n_ignored);
	sl_model_close(model);
}

/* ---- spellings ---- */

/* Stored names with `from` in front spelled with `to`. */
static void respell(const char *from, const char *to)
{
	struct checkpoint_tensor *t;

	for (unsigned i = 0; (t = checkpoint_at(i)); i++) {
		char name[sizeof(t->name)];
		if (strncmp(t->name, from, strlen(from)) != 0)
			continue;
		cr_assert_lt(snprintf(name, sizeof(name), "%s%s", to, t->name + strlen(from)), (int)sizeof(name));
		strcpy(t->name, name);
	}
}

Test(bind, B61_spellings_of_names)
{
	static const struct {
		const char *family, *from, *to;
	} cases[] = {
		{ "llama", "model.", "" },
		{ "llama", "", "_orig_mod." },
		{ "llama", "", "module." },
		{ "qwen2", "", "base_model.model." },
		{ "qwen3", "model.", "model.language_model." },
		{ "phi3", "", "language_model." },
		{ "gpt2", "transformer.", "" },
		{ "opt", "model.decoder.", "decoder." },
		{ "falcon-new", "transformer.", "" },
		{ "bert", "", "bert." },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		given(cases[i].family);
		respell(cases[i].from, cases[i].to);
		checkpoint_write(1);
		struct sl_model *model = checkpoint_open();
		struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
		cr_assert(!strstr(view->tensors[0].name, "_orig_mod"), "outputs have the engine's names");
		sl_view_close(view);
		sl_model_close(model);
	}
}

Test(bind, B61_names_of_outputs_do_not_depend_on_it)
{
	given("llama");
	respell("", "_orig_mod.");
	respell("_orig_mod.model.", "_orig_mod.");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 0);
	checkpoint_expect(view, "model.layers.0.self_attn.o_proj.weight",
			  "_orig_mod.layers.0.self_attn.o_proj.weight[:,0:32]");
	sl_view_close(view);
	sl_model_close(model);
}

/* One sentence instead of a list of everything. */
Test(bind, B61_unknown_prefix)
{
	given("llama");
	respell("model.", "thinker.model.");
	checkpoint_write(1);
	checkpoint_refused("prefix mismatch", "'thinker.model.embed_tokens.weight'", "'model.embed_tokens.weight'",
			   NULL);
}

Test(bind, no_embedding_at_all)
{
	given("llama");
	checkpoint_drop("model.embed_tokens.weight");
	checkpoint_write(1);
	checkpoint_refused("'model.embed_tokens.weight' is missing", "LlamaForCausalLM", NULL);
}

/* ---- missing ---- */

Test(bind, B57_renamed_module)
{
	given("llama");
	respell("model.layers.1.mlp.up_proj", "model.layers.1.mlp.upward_proj");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "LlamaForCausalLM", "'model.layers.1.mlp.up_proj.weight'", NULL);
}

Test(bind, B83_no_v_proj)
{
	given("llama");
	checkpoint_drop("model.layers.0.self_attn.v_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'model.layers.0.self_attn.v_proj.weight'", NULL);
}

Test(bind, B151_many_are_one_sentence)
{
	given("llama");
	for (unsigned l = 0; l < 3; l++) {
		char name[80];
		snprintf(name, sizeof(name), "model.layers.%u.mlp.up_proj.weight", l);
		checkpoint_drop(name);
		snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", l);
		checkpoint_drop(name);
	}
	checkpoint_write(1);
	checkpoint_refused("6 tensors are missing", "'model.layers.0.mlp.up_proj.weight'", "and 3 more", NULL);
}

/* Every tensor of every family is needed: without it the checkpoint is refused, and it is named. */
Test(bind, B150_each_tensor_is_needed)
{
	for (unsigned i = 0; i < n_families; i++) {
		const struct family *f = &families[i];
		for (unsigned r = 0; r < f->n_rows; r++) {
			char name[200], quoted[210];
			family_name(f->rows[r].name, f->rows[r].layers == DENSE ? 0 : 1, name);
			if (!f->rows[r].vllm || f->rows[r].kind == HEAD || f->rows[r].kind == EMBED || f->rows[r].dtype)
				continue;
			family_build(f, &f->sizes, "BF16", "bfloat16", true, "");
			checkpoint_drop(name);
			checkpoint_write_file(f->file);
			snprintf(quoted, sizeof(quoted), "'%s'", name);
			checkpoint_refused("1 tensor is missing", quoted, NULL);
		}
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(bind, B92_untied_without_a_head)
{
	given("llama");
	checkpoint_drop("lm_head.weight");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'lm_head.weight'", NULL);
}

Test(bind, layers_that_config_json_has_more_of)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"num_hidden_layers\":4");
	checkpoint_write(1);
	checkpoint_refused("9 tensors are missing", "'model.layers.3.input_layernorm.weight'", "and 6 more", NULL);
	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"num_hidden_layers\":2000000000");
	checkpoint_refused("2000000000 layers", "30 tensors", NULL);
}

/* ---- unexpected ---- */

Test(bind, layers_that_config_json_has_fewer_of)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"num_hidden_layers\":2");
	checkpoint_write(1);
	checkpoint_refused("9 tensors are unexpected", "LlamaForCausalLM", "with 2 layers",
			   "'model.layers.2.input_layernorm.weight'", NULL);
}

Test(bind, unexpected_tensor)
{
	given("llama");
	checkpoint_add("BF16", "40", "model.layers.0.self_attn.sinks");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is unexpected", "'model.layers.0.self_attn.sinks'", NULL);
}

/* What is in a name stays out of the terminal. */
Test(bind, unexpected_name_is_escaped)
{
	given("llama");
	checkpoint_add("BF16", "40", "model.\\u001b[2J\\nx");
	checkpoint_write(1);
	checkpoint_refused("'model.\\x1b[2J\\x0ax'", NULL);
}

Test(bind, bias_that_config_json_does_not_announce)
{
	given("llama");
	checkpoint_add("BF16", "64", "model.layers.0.self_attn.q_proj.bias");
	checkpoint_write(1);
	checkpoint_refused("unexpected", "'model.layers.0.self_attn.q_proj.bias'", NULL);
}

Test(bind, B64_buffers_that_engines_compute)
{
	given("llama");
	checkpoint_add("F32", "4", "model.layers.0.self_attn.rotary_emb.inv_freq");
	checkpoint_add("F32", "4", "model.layers.1.self_attn.rotary_emb.inv_freq");
	accepted(2);
}

/* GPT-2's masks are known, but nobody loads them; files for everybody keep them. */
Test(bind, B64_masks)
{
	given("gpt2");
	checkpoint_add("BF16", "", "transformer.h.0.attn.masked_bias");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	cr_assert(!sl_view_find(view, "transformer.h.0.attn.bias") &&
		  !sl_view_find(view, "transformer.h.0.attn.masked_bias"));
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp1", 0, 0);
	checkpoint_expect(view, "transformer.h.0.attn.bias", "transformer.h.0.attn.bias");
	cr_assert(sl_view_find(view, "transformer.h.0.attn.masked_bias"));
	sl_view_close(view);
	sl_model_close(model);
}

Test(bind, B143_zero_biases)
{
	given("llama");
	checkpoint_add("BF16", "5000", "model.layers.0.self_attn.q_proj.bias");
	checkpoint_zero("model.layers.0.self_attn.q_proj.bias");
	checkpoint_add("BF16", "40", "model.layers.1.mlp.down_proj.bias");
	checkpoint_zero("model.layers.1.mlp.down_proj.bias");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert_eq(model->n_ignored, 2);
	cr_assert(checkpoint_has_note(model, "2 all-zero biases"));
	sl_model_close(model);
	/* The last byte is enough. */
	struct checkpoint_tensor *bias = checkpoint_find("model.layers.0.self_attn.q_proj.bias");
	bias->bytes[bias->len - 1] = 0x80;
	checkpoint_write(1);
	checkpoint_refused("1 tensor is unexpected", "'model.layers.0.self_attn.q_proj.bias'", NULL);
}

/* ---- shapes ---- */

Test(bind, B88_vocabulary_differs)
{
	given("llama");
	checkpoint_replace("BF16", "66 40", "model.embed_tokens.weight");
	checkpoint_write(1);
	checkpoint_refused("model.safetensors", "'model.embed_tokens.weight'", "66 rows",
			   "config.json makes them 67 (vocab_size)", NULL);
	given("llama");
	checkpoint_replace("BF16", "128 40", "lm_head.weight");
	checkpoint_write(1);
	checkpoint_refused("'lm_head.weight'", "128 rows", "67", NULL);
}

Test(bind, wrong_shapes)
{
	static const struct {
		const char *name, *shape, *says, *wants;
	} cases[] = {
		{ "model.layers.1.self_attn.q_proj.weight", "56 40", "56 rows", "64 (heads x head_dim)" },
		{ "model.layers.1.self_attn.k_proj.weight", "64 40", "64 rows", "16 (kv heads x head_dim)" },
		{ "model.layers.2.self_attn.o_proj.weight", "40 40", "40 columns", "64 (heads x head_dim)" },
		{ "model.layers.0.mlp.down_proj.weight", "48 40", "48 rows", "40 (hidden size)" },
		{ "model.layers.0.mlp.gate_proj.weight", "47 40", "47 rows", "48 (intermediate size)" },
		{ "model.norm.weight", "41", "41 rows", "40 (hidden size)" },
		{ "model.norm.weight", "1 40", "2 dimensions", "expected 1" },
		{ "model.norm.weight", "", "0 dimensions", "expected 1" },
		{ "model.layers.0.mlp.up_proj.weight", "1920", "1 dimensions", "expected 2" },
		{ "model.layers.0.mlp.up_proj.weight", "48 8 5", "3 dimensions", "expected 2" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		char quoted[100];
		given("llama");
		checkpoint_replace("BF16", cases[i].shape, cases[i].name);
		checkpoint_write(1);
		snprintf(quoted, sizeof(quoted), "'%s'", cases[i].name);
		checkpoint_refused("model.safetensors: tensor ", quoted, cases[i].says, cases[i].wants, NULL);
	}
}

Test(bind, bias_of_another_length)
{
	given("qwen2");
	checkpoint_replace("BF16", "60", "model.layers.0.self_attn.q_proj.bias");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.0.self_attn.q_proj.bias'", "60 elements", "64 rows", NULL);
}

/* The file in the message is the one that has the tensor. */
Test(bind, wrong_shape_in_a_shard)
{
	given("llama");
	checkpoint_replace("BF16", "9 9", "lm_head.weight");
	checkpoint_write(2);
	checkpoint_refused("model-00001-of-00002.safetensors: tensor 'lm_head.weight'", NULL);
}

Test(bind, B79_rows_that_are_no_heads)
{
	struct sizes sizes = { 2, 32, 8, 4, 4, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":[4,2]");
	checkpoint_replace("BF16", "6 32", "model.layers.1.self_attn.k_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.1.self_attn.k_proj.weight'", "6 rows", "head_dim 4", NULL);
}

/* A list of kv heads is held to what is stored, layer by layer; so is its length. */
Test(bind, B79_kv_heads_that_the_list_contradicts)
{
	struct sizes sizes = { 2, 32, 8, 4, 4, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":[4,2]");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.1.self_attn.k_proj.weight' has 4 kv heads", "list 2 for layer 1", NULL);
	family_build(family_find("phi3"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":[4,8]");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.1.self_attn.qkv_proj.weight' has 4 kv heads", "list 8 for layer 1", NULL);
	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"num_key_value_heads\":[4]");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.1.self_attn.k_proj.weight' has 4 kv heads", "list 0 for layer 1", NULL);
}

Test(bind, B65_head_dim_that_shapes_contradict)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"head_dim\":5");
	checkpoint_write(1);
	checkpoint_refused("self_attn.q_proj.weight'", "64 rows", "40 (heads x head_dim)", NULL);
}

Test(bind, head_dim_that_nothing_says)
{
	const struct sizes sizes = { 1, 20, 3, 3, 8, 16, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, ",\"head_dim\":null");
	checkpoint_replace("BF16", "25 20", "model.layers.0.self_attn.q_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("no head_dim", "hidden size 20", "3 heads", NULL);
}

/* ---- dtypes ---- */

Test(bind, dtypes_that_only_quantisation_would_explain)
{
	static const char *const dtypes[] = { "F8_E4M3", "I8", "U8", "I32", "F8_E5M2" };

	for (size_t i = 0; i < LEN(dtypes); i++) {
		given("llama");
		checkpoint_replace(dtypes[i], "64 40", "model.layers.0.self_attn.q_proj.weight");
		checkpoint_write(1);
		checkpoint_refused("'model.layers.0.self_attn.q_proj.weight'", dtypes[i], "quantization_config", NULL);
	}
	given("qwen2");
	checkpoint_replace("I32", "64", "model.layers.0.self_attn.q_proj.bias");
	checkpoint_write(1);
	checkpoint_refused("'model.layers.0.self_attn.q_proj.bias'", "I32", NULL);
}
