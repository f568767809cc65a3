/*
 * test_served.c - the files beside the weights: config.json, only as different as it must be, and the index of a
 * rank's own directory.
 */
#include "checkpoint.h"
#include "family.h"

#include "slicer/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(served, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

#define LLAMA                                                                                          \
	"{\"architectures\":[\"LlamaForCausalLM\"],\n  \"num_hidden_layers\" : 1, \"hidden_size\":40," \
	"\"num_attention_heads\":8,\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":72,\"head_dim\":8"

static struct sl_model *model;

/* A Llama, tied by its config or not, with a head or not. */
static void given(const char *config, bool head)
{
	const struct sizes sizes = { 1, 40, 8, 2, 8, 48, 72, 0 };

	family_build(family_find("llama"), &sizes, "BF16", NULL, !head, "");
	fixture_text("config.json", config);
	checkpoint_write(1);
	model = checkpoint_open();
}

/* The served text; "": the source's own. */
static void expect_text(const char *path, const char *want)
{
	struct sl_view *view = checkpoint_view(model, path, 0, 0);
	const struct sl_file *file = checkpoint_file(view, "config.json");

	if (!want[0]) {
		cr_assert(file == NULL, "%s has a config.json of its own", path);
	} else {
		cr_assert(file != NULL, "%s has the source's config.json", path);
		unsigned char *text = checkpoint_read_file(file);
		cr_assert_str_eq((char *)text, want);
		free(text);
	}
	sl_view_close(view);
}

static void done(void)
{
	sl_model_close(model);
}

Test(served, unchanged)
{
	given(LLAMA ",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":false}", true);
	expect_text("vllm/tp2", "");
	expect_text("hf/tp1", "");
	done();
	given(LLAMA ",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":true}", false);
	expect_text("vllm/tp2", "");
	done();
}

Test(served, tied_with_a_stored_head)
{
	given(LLAMA ",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\": true }", true);
	expect_text("vllm/tp2", LLAMA ",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\": false }");
	expect_text("hf/tp1", "");
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
	cr_assert(sl_view_find(view, "lm_head.weight") && sl_view_find(view, "model.embed_tokens.weight"));
	sl_view_close(view);
	cr_assert(checkpoint_has_note(model, "'lm_head.weight' is stored and differs"));
	done();
	given(LLAMA
	      ",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":true}}",
	      true);
	expect_text(
		"vllm/tp2", LLAMA
		",\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":false}}");
	done();
}

/* Falcon ties when config.json says nothing. */
Test(served, tied_by_the_familys_default)
{
	const struct family *f = family_find("falcon-new");
	const char *text =
		"{\"architectures\":[\"FalconForCausalLM\"],\"new_decoder_architecture\":true,\"num_hidden_layers\":2,"
		"\"hidden_size\":64,\"num_attention_heads\":16,\"num_kv_heads\":4,\"vocab_size\":67,"
		"\"torch_dtype\":\"bfloat16\"}";
	char want[600];

	family_build(f, &f->sizes, "BF16", NULL, false, "");
	fixture_text("config.json", text);
	checkpoint_write(1);
	model = checkpoint_open();
	cr_assert(model->tied);
	snprintf(want, sizeof(want), "{\n  \"tie_word_embeddings\": false,%s", text + 1);
	expect_text("vllm/tp2", want);
	done();
}

/* Gemma 2 in vLLM has no head at all: a stored one is not loaded. */
Test(served, family_without_a_head)
{
	const struct family *f = family_find("gemma2");

	family_build(f, &f->sizes, "BF16", "bfloat16", true, "");
	checkpoint_add("BF16", "128 40", "lm_head.weight");
	checkpoint_write(1);
	model = checkpoint_open();
	expect_text("vllm/tp2", "");
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
	cr_assert(!sl_view_find(view, "lm_head.weight") && sl_view_find(view, "model.embed_tokens.weight"));
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp1", 0, 0);
	checkpoint_expect(view, "lm_head.weight", "lm_head.weight");
	sl_view_close(view);
	done();
}

Test(served, missing_dtype)
{
	char want[400];

	given(LLAMA "}", true);
	snprintf(want, sizeof(want), "{\n  \"dtype\": \"bfloat16\",%s", &LLAMA "}"[1]);
	expect_text("vllm/tp2", want);
	expect_text("hf/tp1", "");
	done();
}

Test(served, dtype_that_is_null)
{
	given(LLAMA ",\"torch_dtype\":null}", true);
	expect_text("vllm/tp2", LLAMA ",\"torch_dtype\":\"bfloat16\"}");
	done();
}

Test(served, dtype_that_is_asked_for)
{
	given(LLAMA ",\"torch_dtype\":\"bfloat16\"}", true);
	expect_text("vllm/tp2-f16", LLAMA ",\"torch_dtype\":\"float16\"}");
	expect_text("vllm/tp1-f32", LLAMA ",\"torch_dtype\":\"float32\"}");
	expect_text("hf/tp1-f16", LLAMA ",\"torch_dtype\":\"float16\"}");
	done();
}

Test(served, head_dim_that_only_the_shapes_say)
{
	given("{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":40,"
	      "\"num_attention_heads\":8,"
	      "\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":72,\"dtype\":\"bfloat16\"}",
	      true);
	cr_assert_eq(model->config.dims[SL_TEXT].head_dim, 8);
	expect_text("vllm/tp2",
		    "{\n  \"head_dim\": 8,\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,"
		    "\"hidden_size\":40,"
		    "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"intermediate_size\":48,\"vocab_size\":72,"
		    "\"dtype\":\"bfloat16\"}");
	done();
}

/* A rank's directory is a model of its own. */
Test(served, sizes_of_a_slice)
{
	given(LLAMA ",\"dtype\":\"bfloat16\"}", true);
	expect_text("hf/tp4",
		    "{\"architectures\":[\"LlamaForCausalLM\"],\n  \"num_hidden_layers\" : 1, \"hidden_size\":40,"
		    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":12,\"vocab_size\":18,"
		    "\"head_dim\":8,\"dtype\":\"bfloat16\"}");
	done();
}

/* A null in the place of a size is replaced: beside it, a second member would not be read. */
Test(served, sizes_that_are_null)
{
	const struct sizes sizes = { 1, 32, 8, 8, 4, 48, 67, 0 };

	family_build(family_find("llama"), &sizes, "BF16", NULL, false, "");
	fixture_text("config.json",
		     "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":32,"
		     "\"num_attention_heads\":8,"
		     "\"num_key_value_heads\":null,\"intermediate_size\":48,\"vocab_size\":67,\"head_dim\":null}");
	checkpoint_write(1);
	model = checkpoint_open();
	expect_text("hf/tp2", "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":32,"
			      "\"num_attention_heads\":4,"
			      "\"num_key_value_heads\":4,\"intermediate_size\":24,\"vocab_size\":67,\"head_dim\":4}");
	done();
}

Test(served, sizes_in_the_text_section)
{
	const struct family *f = family_find("gemma3-mm");

	family_build(f, &f->sizes, "BF16", "bfloat16", true, "");
	checkpoint_write(1);
	model = checkpoint_open();
	expect_text("hf/tp2",
		    "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{\"num_hidden_layers\":2,"
		    "\"hidden_size\":40,\"num_attention_heads\":4,\"num_key_value_heads\":1,\"intermediate_size\":24,"
		    "\"vocab_size\":33,\"head_dim\":8},\"vision_config\":{\"num_hidden_layers\":2,\"hidden_size\":32,"
		    "\"num_attention_heads\":8,"
		    "\"intermediate_size\":24},\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}");
	done();
}

/* Every tensor is in the index, with the file that has it. */
Test(served, index_of_a_slice)
{
	given(LLAMA ",\"dtype\":\"bfloat16\"}", true);
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1);
	const struct sl_file *file = checkpoint_file(view, "model.safetensors.index.json");
	struct sl_error err = SL_ERROR_INIT;
	struct sl_json json;
	uint64_t total;

	cr_assert(file != NULL);
	unsigned char *text = checkpoint_read_file(file);
	cr_assert_eq(sl_json_parse(&json, (char *)text, file->size, 8, &err), 0, "%s", err.text);
	uint32_t map = sl_json_member(&json, 0, "weight_map"), metadata = sl_json_member(&json, 0, "metadata");
	cr_assert_eq(json.tokens[map].n, view->n_tensors);
	for (uint32_t i = 0; i < view->n_tensors; i++) {
		uint32_t at = sl_json_member(&json, map, view->tensors[i].name);
		cr_assert(at && sl_json_equal(&json, at, view->files[view->tensors[i].file].name), "%s",
			  view->tensors[i].name);
	}
	cr_assert_eq(sl_json_u64(&json, sl_json_member(&json, metadata, "total_size"), &total), 0);
	cr_assert_eq(total, view->bytes);
	sl_json_release(&json);
	free(text);
	sl_view_close(view);
	done();
}

Test(served, no_index_where_none_is_wanted)
{
	given(LLAMA ",\"dtype\":\"bfloat16\"}", true);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	cr_assert(checkpoint_file(view, "model.safetensors.index.json") == NULL);
	sl_view_close(view);
	done();
}
