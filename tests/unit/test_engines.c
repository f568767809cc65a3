/*
 * test_engines.c - engines with rules of their own: names, cuts, containers and what stands beside, on checkpoints small
 * enough to say it by hand. Whole files of real ones are compared in tests/oracle/engines.py.
 */
#include "checkpoint.h"
#include "family.h"

#include "slicer/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(engines, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

static struct sl_model *llama(const char *dtype, unsigned n_shards)
{
	const struct sizes sizes = { 2, 16, 4, 2, 4, 24, 64, 0 };

	family_build(family_find("llama"), &sizes, dtype, NULL, false, "");
	checkpoint_write(n_shards);
	return checkpoint_open();
}

static const char *text_of(const struct sl_view *view, const char *name)
{
	static char text[1 << 16];
	const struct sl_file *file = checkpoint_file(view, name);

	cr_assert(file, "there is no %s", name);
	cr_assert_lt(file->size, sizeof(text));
	unsigned char *bytes = checkpoint_read_file(file);
	memcpy(text, bytes, file->size);
	text[file->size] = '\0';
	free(bytes);
	return text;
}

/* The names of a view's files, with spaces between them. */
static const char *names_of(const struct sl_view *view)
{
	static char names[4096];
	size_t used = 0;

	for (uint32_t i = 0; i < view->n_files; i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? " " : "", view->files[i].name);
	return names;
}

/* ---- the table ---- */

Test(engines, rows_are_complete)
{
	for (int i = 0; i < SL_N_ENGINES; i++) {
		const struct sl_engine *e = &sl_engines[i];
		cr_expect(e->name && e->title && e->version && e->usage && e->check && e->container && e->file_name,
			  "row %d", i);
		cr_expect_eq(sl_engine_find(e->name), e);
		cr_expect(strstr(e->usage, "%s"), "%s: the usage names no directory", e->name);
		cr_expect_eq(e->ranks != NULL, e->layouts != NULL, "%s", e->name);
	}
}

Test(engines, each_has_its_word_for_ranks)
{
	const struct sl_engine *deepseek = sl_engine_find("deepseek"), *airllm = sl_engine_find("airllm");
	struct sl_layout layout;
	char text[SL_LAYOUT_PATH_MAX];

	cr_assert_eq(sl_layout_parse(&layout, deepseek, "mp4"), 0);
	cr_expect_eq(layout.tp, 4);
	cr_expect_str_eq(sl_layout_format(&layout, deepseek, text), "mp4");
	cr_expect_str_eq(sl_layout_path(&layout, deepseek, text), "deepseek/mp4");
	cr_expect_eq(sl_layout_parse(&layout, deepseek, "tp4"), -ENOENT);
	cr_expect_eq(sl_layout_parse(&layout, airllm, "tp4"), -ENOENT);
	cr_expect_eq(sl_layout_parse(&layout, airllm, ""), -ENOENT);
	cr_expect_str_eq(sl_layout_path(&SL_LAYOUT_WHOLE, airllm, text), "airllm");
}

/* ---- deepseek/ ---- */

static void add_mlp(const char *prefix, unsigned inter)
{
	char shape[32];

	snprintf(shape, sizeof(shape), "%u 8", inter);
	checkpoint_add("BF16", shape, "%s.gate_proj.weight", prefix);
	checkpoint_add("BF16", shape, "%s.up_proj.weight", prefix);
	snprintf(shape, sizeof(shape), "8 %u", inter);
	checkpoint_add("BF16", shape, "%s.down_proj.weight", prefix);
}

static void begin_deepseek(const char *architecture)
{
	char config[1024];

	snprintf(
		config, sizeof(config),
		"{\"architectures\":[\"%s\"],\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
		"\"num_key_value_heads\":2,\"intermediate_size\":12,\"moe_intermediate_size\":4,\"n_routed_experts\":2,"
		"\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"kv_lora_rank\":4,\"qk_nope_head_dim\":4,"
		"\"qk_rope_head_dim\":2,\"v_head_dim\":4,\"vocab_size\":16,\"torch_dtype\":\"bfloat16\"}",
		architecture);
	checkpoint_begin(config);
	checkpoint_add("BF16", "16 8", "model.embed_tokens.weight");
	for (unsigned l = 0; l < 2; l++) {
		checkpoint_add("BF16", "8", "model.layers.%u.input_layernorm.weight", l);
		checkpoint_add("BF16", "8", "model.layers.%u.post_attention_layernorm.weight", l);
		checkpoint_add("BF16", "12 8", "model.layers.%u.self_attn.q_proj.weight", l);
		checkpoint_add("BF16", "6 8", "model.layers.%u.self_attn.kv_a_proj_with_mqa.weight", l);
		checkpoint_add("BF16", "4", "model.layers.%u.self_attn.kv_a_layernorm.weight", l);
		checkpoint_add("BF16", "16 4", "model.layers.%u.self_attn.kv_b_proj.weight", l);
		checkpoint_add("BF16", "8 8", "model.layers.%u.self_attn.o_proj.weight", l);
	}
	add_mlp("model.layers.0.mlp", 12);
	checkpoint_add("BF16", "2 8", "model.layers.1.mlp.gate.weight");
	add_mlp("model.layers.1.mlp.experts.0", 4);
	add_mlp("model.layers.1.mlp.experts.1", 4);
	add_mlp("model.layers.1.mlp.shared_experts", 4);
	checkpoint_add("BF16", "8", "model.norm.weight");
	checkpoint_add("BF16", "16 8", "lm_head.weight");
}

Test(engines, deepseek_renames_and_cuts)
{
	static const struct {
		const char *held, *parts;
	} rows[] = {
		{ "embed.weight", "model.embed_tokens.weight[8:16]" },
		{ "layers.0.attn.wq.weight", "model.layers.0.self_attn.q_proj.weight[6:12]" },
		{ "layers.0.attn.wkv_a.weight", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight" },
		{ "layers.0.attn.wkv_b.weight", "model.layers.0.self_attn.kv_b_proj.weight[8:16]" },
		{ "layers.0.attn.kv_norm.weight", "model.layers.0.self_attn.kv_a_layernorm.weight" },
		{ "layers.0.attn.wo.weight", "model.layers.0.self_attn.o_proj.weight[:,4:8]" },
		{ "layers.0.attn_norm.weight", "model.layers.0.input_layernorm.weight" },
		{ "layers.0.ffn.w1.weight", "model.layers.0.mlp.gate_proj.weight[6:12]" },
		{ "layers.0.ffn.w2.weight", "model.layers.0.mlp.down_proj.weight[:,6:12]" },
		{ "layers.1.ffn.gate.weight", "model.layers.1.mlp.gate.weight" },
		{ "layers.1.ffn.experts.1.w3.weight", "model.layers.1.mlp.experts.1.up_proj.weight" },
		{ "layers.1.ffn.shared_experts.w3.weight", "model.layers.1.mlp.shared_experts.up_proj.weight[2:4]" },
		{ "norm.weight", "model.norm.weight" },
		{ "head.weight", "lm_head.weight[8:16]" },
	};

	begin_deepseek("DeepseekV2ForCausalLM");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "deepseek/mp2", 0, 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		checkpoint_expect(view, rows[i].held, rows[i].parts);
	cr_expect_null(sl_view_find(view, "layers.1.ffn.experts.0.w3.weight"), "an expert of the other rank");
	cr_expect_str_eq(names_of(view), "model1-mp2.safetensors");
	sl_view_close(view);
	sl_model_close(model);
}

Test(engines, deepseek_refuses)
{
	begin_deepseek("DeepseekV2ForCausalLM");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	checkpoint_view_refused(model, "deepseek/mp4", "2 experts do not divide by 4 ranks", "(mp 1, 2 work)", NULL);
	checkpoint_view_refused(model, "deepseek/mp2-ep", "as they are stored", "use mp2", NULL);
	checkpoint_view_refused(model, "deepseek/mp2-bf16", "as they are stored", NULL);
	checkpoint_view_refused(model, "deepseek/mp1-pp2", "no pipeline stages: use mp alone", NULL);
	checkpoint_view_refused(model, "deepseek/mp1-fp8",
				"only experts in F4 become FP8, and DeepseekV2ForCausalLM has none",
				"use the layout without -fp8", NULL);
	sl_model_close(model);
	model = llama("BF16", 1);
	checkpoint_view_refused(model, "deepseek/mp1", "runs DeepSeek V2", "not LlamaForCausalLM", NULL);
	sl_model_close(model);
}

/* ---- airllm/, hf/layers/ ---- */

Test(engines, airllm_splits_by_module)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "airllm", 0, 0);

	cr_expect_eq(view->n_weights, 5);
	cr_expect_str_eq(view->files[0].name, "splitted_model/model.embed_tokens.safetensors");
	cr_expect_str_eq(view->files[2].name, "splitted_model/model.layers.1.safetensors");
	cr_expect_str_eq(view->files[4].name, "splitted_model/lm_head.safetensors");
	cr_expect_str_eq(text_of(view, "splitted_model/model.norm.safetensors.done"), "");
	cr_expect(strstr(text_of(view, "model.safetensors.index.json"),
			 "\"model.norm.weight\": \"splitted_model/model.norm.safetensors\""));
	checkpoint_expect(view, "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight");
	sl_view_close(view);
	sl_model_close(model);
}

/* With a tensor per source file, the modules of one tensor are those files. */
Test(engines, airllm_links_a_module_that_is_alone_in_its_file)
{
	unsigned n = 0;

	sl_model_close(llama("BF16", 1));
	while (checkpoint_at(n))
		n++;
	checkpoint_write(n);
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "airllm", 0, 0);
	const struct sl_file *alone = checkpoint_file(view, "splitted_model/model.norm.safetensors");
	cr_assert(alone->identical);
	unsigned char *bytes = checkpoint_read_file(alone), *source = malloc(alone->size);
	struct sl_error err = SL_ERROR_INIT;
	cr_assert_eq(alone->size, model->shards.shards[alone->identical - 1].size);
	cr_assert_eq(sl_shard_read(&model->shards.shards[alone->identical - 1], source, 0, alone->size, &err), 0, "%s",
		     err.text);
	cr_expect_eq(memcmp(bytes, source, alone->size), 0);
	cr_expect_eq(checkpoint_file(view, "splitted_model/model.layers.0.safetensors")->identical, 0);
	checkpoint_expect(view, "model.norm.weight", "model.norm.weight");
	free(bytes);
	free(source);
	sl_view_close(view);
	sl_model_close(model);
}

Test(engines, airllm_refuses_what_it_would_lose)
{
	struct sl_model *model = family_open(family_find("gpt2"), "F32", NULL, true);

	checkpoint_view_refused(model, "airllm", "would lose tensor", NULL);
	sl_model_close(model);
}

Test(engines, layers_are_a_model_directory)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "hf/layers", 0, 0);

	cr_expect_str_eq(names_of(view), "model-00001-of-00004.safetensors model-00002-of-00004.safetensors "
					 "model-00003-of-00004.safetensors model-00004-of-00004.safetensors "
					 "model.safetensors.index.json");
	cr_expect_eq(sl_view_find(view, "model.layers.1.self_attn.q_proj.weight")->file, 2);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- dcp/ ---- */

/* The header of the view's first file with that tensor. */
static const char *header_of(const struct sl_view *view, const char *tensor)
{
	const struct sl_output *t = sl_view_find(view, tensor);

	cr_assert(t, "%s", tensor);
	return text_of(view, view->files[t->file].name) + 8;
}

Test(engines, dcp_says_where_blocks_begin)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "dcp/tp2", 0, 1);

	checkpoint_expect(view, "model.layers.0.self_attn.q_proj.weight",
			  "model.layers.0.self_attn.q_proj.weight[8:16]");
	checkpoint_expect(view, "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.down_proj.weight[:,12:24]");
	const char *header = header_of(view, "model.layers.0.mlp.down_proj.weight");
	cr_expect(strstr(header, "\\\"model.layers.0.mlp.down_proj.weight\\\": {\\\"saved_offsets\\\": [0, 12]}"), "%s",
		  header);
	cr_expect(strstr(header, "\\\"model.layers.0.self_attn.q_proj.weight\\\": {\\\"saved_offsets\\\": [8, 0]}"),
		  "%s", header);
	cr_expect(strstr(header, "\"DCP_VERSION\":\"1.0\",\"format\":\"pt\""));
	cr_expect_null(sl_view_find(view, "model.norm.weight"), "what is not cut is in the first rank's file");
	cr_expect(strncmp(view->files[0].name, "shard-00002-model-00001-of-", 27) == 0, "%s", view->files[0].name);
	sl_view_close(view);
	sl_model_close(model);
}

/* Two kv heads for four ranks: ranks 0 and 2 have them. */
Test(engines, dcp_has_each_block_once)
{
	static const char k[] = "model.layers.0.self_attn.k_proj.weight";
	struct sl_model *model = llama("BF16", 1);

	for (unsigned rank = 0; rank < 4; rank++) {
		struct sl_view *view = checkpoint_view(model, "dcp/tp4", 0, rank);
		cr_expect_eq(sl_view_find(view, k) != NULL, rank % 2 == 0, "rank %u", rank);
		if (rank == 2)
			checkpoint_expect(view, k, "model.layers.0.self_attn.k_proj.weight[4:8]");
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* ---- serverlessllm/ ---- */

Test(engines, serverlessllm_stores_bare_bytes)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "serverlessllm/tp2", 0, 1);
	const struct sl_output *k = sl_view_find(view, "model.layers.0.self_attn.attn._k_scale");
	const struct sl_output *v = sl_view_find(view, "model.layers.0.self_attn.attn._v_scale");
	const struct sl_output *norm = sl_view_find(view, "model.layers.0.input_layernorm.weight");

	cr_expect_str_eq(names_of(view), "rank_1/tensor.data_0 rank_1/tensor_index.json config.json");
	checkpoint_expect(view, "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.down_proj.weight[:,12:24]");
	cr_expect_eq(v->off, k->off + 8, "four bytes and four of padding");
	cr_expect_gt(norm->off, sl_view_find(view, "model.layers.0.mlp.down_proj.weight")->off,
		     "norms follow the modules");
	cr_expect(strstr(text_of(view, "rank_1/tensor_index.json"),
			 "{\"model.embed_tokens.weight\": [0, 1024, [32, 16], [16, 1], \"torch.bfloat16\"], "));
	cr_expect(strstr(text_of(view, "rank_1/tensor_index.json"), "_k_scale\": [1792, 4, [], [], \"torch.float32\"]"),
		  "%s", text_of(view, "rank_1/tensor_index.json"));
	sl_view_close(view);
	sl_model_close(model);
}

/* Offsets of the index count on from one data file to the next, and no tensor is in two. */
Test(engines, serverlessllm_goes_on_in_another_file)
{
	const struct sl_view_options options = { .part_bytes = 4096 };
	struct sl_model *model = llama("BF16", 1);
	struct sl_error err = SL_ERROR_INIT;
	struct sl_view *view;
	uint64_t before = 0;

	cr_assert_eq(
		sl_view_open(&view, model, sl_engine_find("serverlessllm"), &SL_LAYOUT_WHOLE, 0, 0, &options, &err), 0,
		"%s", err.text);
	const char *index = text_of(view, "rank_0/tensor_index.json");
	cr_assert_gt(view->n_weights, 3);
	for (uint32_t f = 0; f + 1 < view->n_weights; before += view->files[f++].size) {
		for (uint32_t i = 0; i < view->n_tensors; i++) {
			char entry[256];
			if (view->tensors[i].file != f)
				continue;
			snprintf(entry, sizeof(entry), "\"%s\": [%llu, ", view->tensors[i].name,
				 (unsigned long long)(before + view->tensors[i].off));
			cr_expect(strstr(index, entry), "no %s", entry);
			cr_expect_leq(view->tensors[i].off + view->tensors[i].len, view->files[f].size);
		}
	}
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- gpt-oss/ ---- */

Test(engines, gpt_oss_refuses_others)
{
	struct sl_model *model = llama("BF16", 1);

	checkpoint_view_refused(model, "gpt-oss", "gpt-oss: ", "not LlamaForCausalLM", NULL);
	sl_model_close(model);
}

/* ---- meta/ ---- */

Test(engines, meta_turns_halves_to_pairs)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "meta/mp2", 0, 1);

#define Q "model.layers.0.self_attn.q_proj.weight"
	checkpoint_expect(view, "layers.0.attention.wq.weight",
			  Q "[8:9] " Q "[10:11] " Q "[9:10] " Q "[11:12] " Q "[12:13] " Q "[14:15] " Q "[13:14] " Q
			    "[15:16]");
#undef Q
	checkpoint_expect(view, "layers.0.attention.wo.weight", "model.layers.0.self_attn.o_proj.weight[:,8:16]");
	checkpoint_expect(view, "tok_embeddings.weight", "model.embed_tokens.weight[:,8:16]");
	checkpoint_expect(view, "output.weight", "lm_head.weight[32:64]");
	cr_expect_str_eq(names_of(view), "consolidated.01.pth params.json");
	sl_view_close(view);
	sl_model_close(model);
}

static uint64_t number_at(const unsigned char *bytes, unsigned size)
{
	uint64_t value = 0;

	for (unsigned i = size; i-- > 0;)
		value = value << 8 | bytes[i];
	return value;
}

/* The directory names each entry where it is, and every tensor begins at a multiple of 64. */
Test(engines, meta_is_a_zip_archive)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "meta/mp2", 0, 0);
	const struct sl_file *file = &view->files[0];
	unsigned char *bytes = checkpoint_read_file(file), *end = bytes + file->size - 22;
	const unsigned char *entry = bytes + number_at(end + 16, 4);

	cr_assert_eq(number_at(end, 4), 0x06054b50);
	cr_assert_eq(number_at(end + 8, 2), view->n_tensors + 3);
	for (uint64_t i = 0; i < number_at(end + 8, 2); i++) {
		const unsigned char *local = bytes + number_at(entry + 42, 4);
		cr_assert_eq(number_at(entry, 4), 0x02014b50);
		cr_assert_eq(number_at(local, 4), 0x04034b50);
		cr_assert_eq(number_at(local + 18, 4), number_at(entry + 20, 4), "sizes");
		cr_assert_eq(memcmp(local + 30, entry + 46, number_at(local + 26, 2)), 0, "names");
		cr_assert_eq((local - bytes + 30 + number_at(local + 26, 2) + number_at(local + 28, 2)) % 64, 0);
		entry += 46 + number_at(entry + 28, 2) + number_at(entry + 30, 2);
	}
	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_expect_eq(view->tensors[i].off % 64, 0);
	free(bytes);
	sl_view_close(view);
	sl_model_close(model);
}

Test(engines, meta_says_the_size_of_the_feed_forward)
{
	struct sl_model *model = llama("BF16", 1);
	struct sl_view *view = checkpoint_view(model, "meta/mp1", 0, 0);
	const char *text = text_of(view, "params.json"), *multiple = strstr(text, "multiple_of\": "),
		   *factor = strstr(text, "multiplier\": ");
	uint64_t unit, size;

	cr_assert(multiple && factor, "%s", text);
	unit = strtoull(multiple + 14, NULL, 10);
	size = (uint64_t)(strtod(factor + 13, NULL) * (8 * 16 / 3));
	cr_expect_eq((size + unit - 1) / unit * unit, 24, "as Meta's code computes it: %s", text);
	sl_view_close(view);
	sl_model_close(model);
}

static struct sl_model *llama_that_says(const char *members)
{
	const struct sizes sizes = { 2, 16, 4, 2, 4, 24, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", NULL, false, members);
	checkpoint_write(1);
	return checkpoint_open();
}

/* config.json as transformers 4 and 5 write it. */
Test(engines, meta_scales_rotary_embeddings)
{
	static const struct {
		const char *members;
		bool scaled;
	} cases[] = {
		{ ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0},\"rope_theta\":500000.0", true },
		{ ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000.0}", true },
		{ ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0}", false },
		{ ",\"rope_scaling\":null,\"rope_theta\":500000.0", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_model *model = llama_that_says(cases[i].members);
		struct sl_view *view = checkpoint_view(model, "meta/mp1", 0, 0);
		const char *text = text_of(view, "params.json");
		cr_expect_eq(strstr(text, "\"use_scaled_rope\": true") != NULL, cases[i].scaled, "%s", text);
		cr_expect(strstr(text, "\"rope_theta\": 500000.0"), "%s", text);
		sl_view_close(view);
		sl_model_close(model);
	}
	struct sl_model *model = llama_that_says(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}");
	checkpoint_view_refused(model, "meta/mp1", "scales rotary embeddings as Llama 3.1 does", NULL);
	sl_model_close(model);
}

Test(engines, meta_refuses)
{
	const struct sizes sizes = { 2, 16, 4, 2, 8, 24, 64, 0 };
	struct sl_model *model = llama("BF16", 1);

	checkpoint_view_refused(model, "meta/mp4", "4 attention heads with 2 kv heads do not divide by 4 ranks",
				"(mp 1, 2 work)", NULL);
	sl_model_close(model);
	family_build(family_find("llama"), &sizes, "BF16", NULL, false, "");
	checkpoint_write(1);
	model = checkpoint_open();
	checkpoint_view_refused(model, "meta/mp1", "heads of hidden / heads = 16 / 4 elements", "not 8", NULL);
	sl_model_close(model);
	model = family_open(family_find("gpt2"), "F32", NULL, true);
	checkpoint_view_refused(model, "meta/mp1", "runs LlamaForCausalLM, not GPT2LMHeadModel", NULL);
	sl_model_close(model);
}

/* ---- gguf/ ---- */

#define PATTERN                                                                                                                        \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" \
	"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TOKENIZER(vocab, merges)                                                                                              \
	"{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"x\",\"special\":false}]," \
	"\"pre_tokenizer\":{\"pattern\":{\"Regex\":\"" PATTERN "\"}},\"model\":{\"vocab\":" vocab                             \
	",\"merges\":" merges "}}"
#define VOCAB "{\"a\":0,\"b\":1,\"ab\":2}"

static struct sl_model *llama_with(const char *tokenizer)
{
	if (tokenizer)
		fixture_text("tokenizer.json", tokenizer);
	return llama("BF16", 1);
}

/* Do the bytes of a file's beginning have this string, with its length in front as GGUF has it? */
static bool has_string(const unsigned char *bytes, size_t len, const char *string)
{
	unsigned char counted[64] = { (unsigned char)strlen(string) };

	memcpy(counted + 8, string, strlen(string));
	return memmem(bytes, len, counted, 8 + strlen(string));
}

Test(engines, gguf_has_tensors_and_tokenizer)
{
	struct sl_model *model = llama_with(TOKENIZER(VOCAB, "[\"a b\",[\"b\",\"a\"]]"));
	struct sl_view *view = checkpoint_view(model, "gguf", 0, 0);
	const struct sl_file *file = &view->files[0];
	unsigned char *bytes = checkpoint_read_file(file);
	static const char *const strings[] = { "general.architecture",
					       "llama",
					       "llama-bpe",
					       "a",
					       "ab",
					       "<s>",
					       "x",
					       "[PAD5]",
					       "[PAD63]",
					       "a b",
					       "b a",
					       "blk.1.ffn_down.weight",
					       "output.weight" };

	cr_expect_str_eq(names_of(view), "model.gguf");
	cr_assert_eq(memcmp(bytes, "GGUF", 4), 0);
	cr_expect_eq(number_at(bytes + 4, 4), 3);
	cr_expect_eq(number_at(bytes + 8, 8), view->n_tensors);
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		cr_expect(has_string(bytes, file->pieces[0].len, strings[i]), "no '%s'", strings[i]);
	for (uint32_t i = 0; i < view->n_tensors; i++)
		cr_expect_eq(view->tensors[i].off % 32, 0, "%s", view->tensors[i].name);
#define K "model.layers.1.self_attn.k_proj.weight"
	checkpoint_expect(view, "blk.1.attn_k.weight",
			  K "[0:1] " K "[2:3] " K "[1:2] " K "[3:4] " K "[4:5] " K "[6:7] " K "[5:6] " K "[7:8]");
#undef K
	checkpoint_expect(view, "blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight");
	cr_expect_eq(sl_view_find(view, "output_norm.weight")->dtype, SL_F32);
	free(bytes);
	sl_view_close(view);
	sl_model_close(model);
}

/* The value behind a key, NULL when the key is not there. */
static const unsigned char *value_of(const unsigned char *bytes, size_t len, const char *key)
{
	unsigned char counted[64] = { (unsigned char)strlen(key) };

	memcpy(counted + 8, key, strlen(key));
	const unsigned char *at = memmem(bytes, len, counted, 8 + strlen(key));
	return at ? at + 8 + strlen(key) + 4 : NULL;
}

/* -1: not there. */
static long number_of(const struct sl_view *view, const char *key, unsigned size)
{
	const struct sl_piece *header = view->files[0].pieces;
	const unsigned char *value = value_of(header->data, header->len, key);

	return value ? (long)number_at(value, size) : -1;
}

/* Names of tokenizer_config.json before numbers of config.json, the template's before both; and flags of either file. */
Test(engines, gguf_says_which_tokens_are_special)
{
#define BEGIN "{\"SpecialToken\":{\"id\":\"<s>\"}}"
#define END   "{\"SpecialToken\":{\"id\":\"x\"}}"
#define TEXT  "{\"Sequence\":{\"id\":\"A\"}}"
	static const struct {
		const char *tokenizer, *config;
		long bos, eos, pad, add_bos, add_eos;
	} cases[] = {
		{ "null", NULL, -1, 7, 9, -1, -1 },
		{ "null", "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"x\"},\"pad_token\":null}", 3, 4, 9, -1,
		  -1 },
		{ "null", "{\"bos_token\":\"nowhere\",\"add_bos_token\":true,\"add_eos_token\":1}", -1, 7, 9, 1, -1 },
		{ "{\"type\":\"ByteLevel\"}", "{\"add_bos_token\":true}", -1, 7, 9, 0, 0 },
		{ "{\"type\":\"TemplateProcessing\",\"single\":[" BEGIN "," TEXT "]}", "{}", 3, 7, 9, 1, -1 },
		{ "{\"type\":\"TemplateProcessing\",\"single\":[" BEGIN "," TEXT "]}", "{\"bos_token\":\"x\"}", 4, 7, 9,
		  0, -1 },
		{ "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":[" BEGIN
		  "," TEXT "," END "]}]}",
		  "{\"bos_token\":\"<s>\",\"eos_token\":\"<s>\"}", 3, 4, 9, 1, 1 },
		{ "{\"type\":\"TemplateProcessing\",\"single\":[" TEXT "]}", NULL, -1, 7, 9, -1, -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[2048];
		snprintf(text, sizeof(text), "{\"post_processor\":%s,%s", cases[i].tokenizer,
			 &TOKENIZER(VOCAB, "[]")[1]);
		fixture_text("tokenizer.json", text);
		fixture_text("tokenizer_config.json", cases[i].config ? cases[i].config : "no JSON");
		struct sl_model *model =
			llama_that_says(",\"eos_token_id\":7,\"bos_token_id\":[1,2],\"pad_token_id\":9");
		struct sl_view *view = checkpoint_view(model, "gguf", 0, 0);
		cr_expect_eq(number_of(view, "tokenizer.ggml.bos_token_id", 4), cases[i].bos, "bos of %zu", i);
		cr_expect_eq(number_of(view, "tokenizer.ggml.eos_token_id", 4), cases[i].eos, "eos of %zu", i);
		cr_expect_eq(number_of(view, "tokenizer.ggml.padding_token_id", 4), cases[i].pad, "pad of %zu", i);
		cr_expect_eq(number_of(view, "tokenizer.ggml.add_bos_token", 1), cases[i].add_bos, "add_bos of %zu", i);
		cr_expect_eq(number_of(view, "tokenizer.ggml.add_eos_token", 1), cases[i].add_eos, "add_eos of %zu", i);
		sl_view_close(view);
		sl_model_close(model);
	}
}

static bool says_template(const char *config, const char *text)
{
	fixture_text("tokenizer_config.json", config);
	struct sl_model *model = llama_with(TOKENIZER(VOCAB, "[]"));
	struct sl_view *view = checkpoint_view(model, "gguf", 0, 0);
	const struct sl_piece *header = view->files[0].pieces;
	const unsigned char *value = value_of(header->data, header->len, "tokenizer.chat_template");
	bool same = text ? value && number_at(value, 8) == strlen(text) && memcmp(value + 8, text, strlen(text)) == 0
			 : !value;
	sl_view_close(view);
	sl_model_close(model);
	return same;
}

Test(engines, gguf_takes_a_template_from_where_it_is)
{
	cr_expect(says_template("{}", NULL));
	cr_expect(says_template("{\"chat_template\":\"a\\nb\"}", "a\nb"));
	cr_expect(says_template(
		"{\"chat_template\":[{\"name\":\"x\",\"template\":\"no\"},{\"name\":\"default\",\"template\":"
		"\"yes\"}]}",
		"yes"));
	cr_expect(says_template("{\"chat_template\":[]}", NULL));
	fixture_text("chat_template.jinja", "of a file");
	cr_expect(says_template("{}", "of a file"));
	cr_expect(says_template("{\"chat_template\":\"first\"}", "first"));
}

/* Tokens that only look special; spaces and what ends a C string in merges. */
Test(engines, gguf_keeps_tokens_as_the_converter_does)
{
	static const char tokenizer[] =
		"{\"added_tokens\":[{\"id\":3,\"content\":\"<unused7>\"},{\"id\":4,\"content\":\"\\u2581a\\u2581\"},"
		"{\"id\":5,\"content\":\"<|a\"},{\"id\":6,\"content\":\"<pad>\"},{\"id\":7,\"content\":\"<pad>s\"}],\"model\":{\"vocab\":" VOCAB
		",\"merges\":[[\"a b\",\"c\"],[\"a\\u0000b\",\"c\"],\"d e\"]},\"x\":\"" PATTERN "\"}";
	static const struct {
		const char *text;
		size_t len;
	} merges[] = { { "a\xC4\xA0"
			 "b c",
			 6 },
		       { "a\0b c", 5 },
		       { "d e", 3 } };
	static const unsigned char types[] = { 1, 1, 1, 3, 4, 4, 3, 4, 5 };
	struct sl_model *model = llama_with(tokenizer);
	struct sl_view *view = checkpoint_view(model, "gguf", 0, 0);
	const struct sl_piece *header = view->files[0].pieces;
	const unsigned char *value = value_of(header->data, header->len, "tokenizer.ggml.token_type") + 12;

	for (size_t i = 0; i < sizeof(types); i++)
		cr_expect_eq(number_at(value + 4 * i, 4), types[i], "token %zu is of type %llu", i,
			     (unsigned long long)number_at(value + 4 * i, 4));
	cr_expect(has_string(header->data, header->len, " a "));
	value = value_of(header->data, header->len, "tokenizer.ggml.merges") + 12;
	for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++) {
		cr_assert_eq(number_at(value, 8), merges[i].len, "merge %zu", i);
		cr_expect_eq(memcmp(value + 8, merges[i].text, merges[i].len), 0, "merge %zu", i);
		value += 8 + merges[i].len;
	}
	sl_view_close(view);
	sl_model_close(model);
}

Test(engines, gguf_refuses)
{
	static const struct {
		const char *tokenizer, *why;
	} cases[] = {
		{ NULL, "the source's tokenizer.json does not exist" },
		{ "{}", "by none of the patterns that have a name in llama.cpp" },
		{ TOKENIZER(VOCAB, "[]") "}", "tokenizer.json: " },
		{ TOKENIZER("{\"a\":64}", "[]"), "token number 64, but config.json has a vocabulary of 64" },
		{ TOKENIZER("{\"a\":\"0\"}", "[]"), "a token is no text with a number" },
		{ TOKENIZER("[]", "[]"), "model.vocab is no object" },
		{ TOKENIZER(VOCAB, "{}"), "model.merges is no list" },
		{ TOKENIZER(VOCAB, "[[\"a\"]]"), "merge 0 is no pair" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_model *model = llama_with(cases[i].tokenizer);
		checkpoint_view_refused(model, "gguf", cases[i].why, NULL);
		sl_model_close(model);
	}
	struct sl_model *model = family_open(family_find("gpt2"), "F32", NULL, true);
	checkpoint_view_refused(model, "gguf", "not for GPT2LMHeadModel", NULL);
	sl_model_close(model);
}
