/*
 * test_model.c - which checkpoints are models that we know, and a source that changes while it is open.
 */
#include "checkpoint.h"
#include "family.h"

#include "slicer/arch.h"
#include "slicer/scheme.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(model, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

static void given(const char *members)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, members);
	checkpoint_write(1);
}

/* ---- refused ---- */

Test(model, unknown_architecture)
{
	given(",\"architectures\":[\"Strange\\u001bModel\"]");
	checkpoint_refused("config.json", "'Strange\\x1bModel' is unknown", "--list", NULL);
	given(",\"architectures\":[]");
	checkpoint_refused("config.json", "'architectures' names none", NULL);
	given(",\"architectures\":null");
	checkpoint_refused("'architectures' names none", NULL);
}

/* Known, and why not. */
Test(model, refused_architectures)
{
	char members[120];

	for (unsigned i = 0; i < sl_n_refused_archs; i++) {
		snprintf(members, sizeof(members), ",\"architectures\":[\"%s\"]", sl_refused_archs[i].architecture);
		given(members);
		checkpoint_refused("config.json", sl_refused_archs[i].architecture, sl_refused_archs[i].why,
				   "is refused", NULL);
	}
}

/* No name is in two lists, or twice in one. */
Test(model, names_of_architectures_are_unique)
{
	for (const struct sl_arch *const *at = sl_archs; *at; at++) {
		cr_assert((*at)->family && (*at)->n_stacks <= SL_STACKS_MAX);
		for (const char *const *name = (*at)->architectures; *name; name++) {
			for (unsigned i = 0; i < sl_n_refused_archs; i++)
				cr_assert_str_neq(*name, sl_refused_archs[i].architecture);
		}
	}
}

Test(model, naming_that_the_family_does_not_have)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	checkpoint_write_file("consolidated.safetensors");
	checkpoint_refused("LlamaForCausalLM is not supported in Mistral's consolidated naming", NULL);
}

Test(model, quantised)
{
	static const char *const cases[][3] = {
		{ ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}", "'bitsandbytes'",
		  "no slice of a matrix" },
		{ ",\"quantization_config\":{\"quant_method\":\"new\\u0007\"}", "'new", "unknown" },
		{ ",\"quantization_config\":{\"bits\":4}", "quantization_config", "no quant_method" },
		{ ",\"text_config\":{\"quantization_config\":{\"quant_method\":\"hqq\"}}", "'hqq'", "vLLM dropped it" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		given(cases[i][0]);
		checkpoint_refused("config.json", cases[i][1], cases[i][2], NULL);
	}
	given(",\"quantization_config\":null");
	sl_model_close(checkpoint_open());
}

/* Schemes that are known and refused say why. */
Test(model, refused_schemes)
{
	char members[120];

	for (const struct sl_scheme *const *at = sl_schemes; *at; at++) {
		if (!(*at)->refused)
			continue;
		snprintf(members, sizeof(members), ",\"quantization_config\":{\"quant_method\":\"%s\"}", (*at)->method);
		given(members);
		checkpoint_refused("config.json: quantisation", (*at)->method, (*at)->refused, NULL);
	}
}

/* An FP8 module is its weight and its scale: without the scale it is the scale that is missing. */
Test(model, B150_missing_scale)
{
	static const char fp8[] = ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}";
	const char *name = "model.layers.1.mlp.down_proj.weight";

	given(fp8);
	checkpoint_replace("F8_E4M3", "40 48", name);
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'model.layers.1.mlp.down_proj.weight_scale_inv'", NULL);
	checkpoint_replace("F8_E5M2", "40 48", name);
	checkpoint_write(1);
	checkpoint_refused("model.safetensors: tensor 'model.layers.1.mlp.down_proj.weight' is F8_E5M2", "'fp8'", NULL);
}

Test(model, B88_B176_sizes_that_are_absent)
{
	static const char *const keys[] = { "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size" };
	char members[80], says[80];

	for (size_t i = 0; i < LEN(keys); i++) {
		snprintf(members, sizeof(members), ",\"%s\":null", keys[i]);
		snprintf(says, sizeof(says), "%s is absent", keys[i]);
		given(members);
		checkpoint_refused("config.json", says, NULL);
	}
}

Test(model, B176_no_config)
{
	given("");
	unlink(fixture_path("config.json"));
	checkpoint_refused("config.json", "there is none", NULL);
}

/* A bad header refuses the model for every rank, also for those that need nothing of it. */
Test(model, B177_bad_shard_refuses_all)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(3);
	cr_assert_eq(truncate(fixture_path("model-00003-of-00003.safetensors"), 3000), 0);
	checkpoint_refused("model-00003-of-00003.safetensors", NULL);
}

Test(model, falcon_kv_heads)
{
	const struct family *f = family_find("falcon-new");

	family_build(f, &f->sizes, "BF16", "bfloat16", true, ",\"num_kv_heads\":3");
	checkpoint_write(1);
	checkpoint_refused("16 attention heads do not group over 3 kv heads", NULL);
	family_build(f, &f->sizes, "BF16", "bfloat16", true, ",\"num_key_value_heads\":[4,4]");
	checkpoint_refused("config.json", "Falcon", "kv heads", NULL);
}

/* ---- ties ---- */

static bool tied(const char *members)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, members);
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	bool is = model->tied;
	cr_assert(model->head_stored);
	sl_model_close(model);
	return is;
}

Test(model, B93_nested_tie_wins)
{
	cr_assert(tied(",\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":true}"));
	cr_assert(!tied(",\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}"));
	cr_assert(tied(",\"tie_word_embeddings\":true,\"text_config\":{}"));
	cr_assert(!tied(",\"tie_word_embeddings\":null"), "a Llama is not tied by default");
}

Test(model, B93_disagreement_is_told)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"text_config\":{\"tie_word_embeddings\":true}");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert(checkpoint_has_note(model, "tie_word_embeddings is true in the text model's section and false"));
	sl_model_close(model);
}

Test(model, B92_tied_head_that_is_equal_needs_no_warning)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"tie_word_embeddings\":true");
	memcpy(checkpoint_find("lm_head.weight")->bytes, checkpoint_find("model.embed_tokens.weight")->bytes,
	       checkpoint_find("lm_head.weight")->len);
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	cr_assert(!checkpoint_has_note(model, "differs"));
	sl_model_close(model);
}

Test(model, untied_family_without_a_head)
{
	const struct family *f = family_find("gemma2");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, "");
	checkpoint_write(1);
	checkpoint_refused("tie_word_embeddings is false", "Gemma2ForCausalLM has no head", NULL);
}

/* ---- dtype ---- */

static enum sl_dtype dtype_of(const char *family, const char *stored, const char *torch_dtype)
{
	struct sl_model *model = family_open(family_find(family), stored, torch_dtype, strcmp(family, "gemma2") == 0);
	enum sl_dtype dtype = model->dtype;

	sl_model_close(model);
	return dtype;
}

Test(model, dtype_of_auto)
{
	cr_assert_eq(dtype_of("llama", "BF16", "bfloat16"), SL_BF16);
	cr_assert_eq(dtype_of("llama", "BF16", "float16"), SL_F16);
	cr_assert_eq(dtype_of("llama", "F32", "float32"), SL_BF16);
	cr_assert_eq(dtype_of("llama", "F16", NULL), SL_F16);
	cr_assert_eq(dtype_of("llama", "BF16", NULL), SL_BF16);
	cr_assert_eq(dtype_of("llama", "F32", NULL), SL_BF16);
	cr_assert_eq(dtype_of("llama", "BF16", "float64"), SL_BF16);
	cr_assert_eq(dtype_of("gemma2", "F16", "float16"), SL_BF16, "not stable in F16");
	cr_assert_eq(dtype_of("bert", "F32", "float32"), SL_F16, "an embedding model");
	cr_assert_eq(dtype_of("bert", "BF16", "bfloat16"), SL_BF16);
}

Test(model, dtype_that_is_none)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "fp8", false, "");
	checkpoint_write(1);
	checkpoint_refused("config.json", "torch_dtype", "fp8", NULL);
}

Test(model, bytes_are_summed)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	uint64_t bytes = 0;

	for (unsigned i = 0; checkpoint_at(i); i++)
		bytes += checkpoint_at(i)->len;
	cr_assert_eq(model->total_bytes, bytes);
	sl_model_close(model);
}

/* ---- a source that changes ---- */

/* Read all weight files: 0, or the first failure. */
static ssize_t read_all(const struct sl_view *view, struct sl_error *err)
{
	for (uint32_t f = 0; f < view->n_weights; f++) {
		unsigned char *bytes = malloc(view->files[f].size);
		ssize_t n = sl_file_read(&view->files[f], bytes, 0, view->files[f].size, err);
		free(bytes);
		if (n < 0)
			return n;
	}
	return 0;
}

/* Open, change the source, read. */
static ssize_t read_after(void (*change)(void), struct sl_error *err)
{
	struct sl_model *model = family_open(family_find("llama"), "F16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);

	cr_assert_eq(read_all(view, err), 0, "%s", err->text);
	change();
	ssize_t ret = read_all(view, err);
	sl_view_close(view);
	sl_model_close(model);
	return ret;
}

static void cut_short(void)
{
	cr_assert_eq(truncate(fixture_path("model.safetensors"), 5000), 0);
}

Test(model, B163_truncated_in_place)
{
	struct sl_error err = SL_ERROR_INIT;
	ssize_t ret = read_after(cut_short, &err);

	cr_assert(ret == -EIO || ret == -ESTALE, "%zd", ret);
	cr_assert(strstr(err.text, "model-rank-1-part-0.safetensors: model.safetensors") && strstr(err.text, "5000"),
		  "%s", err.text);
}

static void rewrite(void)
{
	struct timespec times[2] = { { 1000000000, 1 }, { 1000000000, 1 } };

	checkpoint_find("model.norm.weight")->bytes[0] ^= 1;
	checkpoint_write(1);
	cr_assert_eq(utimensat(AT_FDCWD, fixture_path("model.safetensors"), times, 0), 0);
}

Test(model, B164_rewritten_in_place)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(read_after(rewrite, &err), -ESTALE);
	cr_assert(strstr(err.text, "model.safetensors") && strstr(err.text, "changed while mounted"), "%s", err.text);
}

static void make_longer(void)
{
	struct stat st;

	cr_assert_eq(stat(fixture_path("model.safetensors"), &st), 0);
	cr_assert_eq(truncate(fixture_path("model.safetensors"), st.st_size + 1), 0);
}

Test(model, appended_to)
{
	struct sl_error err = SL_ERROR_INIT;

	cr_assert_eq(read_after(make_longer, &err), -ESTALE);
}

/* A download that replaces the file does so by renaming: what was opened stays what it was. */
Test(model, B164_replaced_by_rename)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);

	fixture_text("other", "this is no model");
	cr_assert_eq(rename(fixture_path("other"), fixture_path("model.safetensors")), 0);
	checkpoint_expect(view, "lm_head.weight", "lm_head.weight zeros[61]");
	sl_view_close(view);
	sl_model_close(model);
}

Test(model, B164_removed)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);

	checkpoint_teardown();
	struct sl_error err = SL_ERROR_INIT;
	cr_assert_eq(read_all(view, &err), 0, "%s", err.text);
	sl_view_close(view);
	sl_model_close(model);
	checkpoint_setup();
}

/* ---- a large one ---- */

enum { WIDTH = 4096, WORDS = 400000 };

/* A shard with a hole in place of an embedding of 3.3 GB, behind it a head of the same size; marks at some offsets. */
static void write_sparse(const uint64_t *marks, size_t n)
{
	char header[800], *at = header + 8;
	uint64_t bytes = (uint64_t)WORDS * WIDTH * 2;
	size_t len;

	at += sprintf(
		at, "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],\"data_offsets\":[0,%llu]},",
		WORDS, WIDTH, (unsigned long long)bytes);
	at += sprintf(at, "\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],\"data_offsets\":[%llu,%llu]}}",
		      WORDS, WIDTH, (unsigned long long)bytes, (unsigned long long)(2 * bytes));
	len = (size_t)(at - header);
	memset(header, 0, 8);
	header[0] = (char)((len - 8) & 255);
	header[1] = (char)((len - 8) >> 8);
	fixture_file("model-00002-of-00002.safetensors", header, len);
	int fd = open(fixture_path("model-00002-of-00002.safetensors"), O_WRONLY);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)(len + 2 * bytes)) == 0);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(pwrite(fd, &i, 1, (off_t)(len + marks[i])), 1);
	close(fd);
}

/* Offsets beyond 2^31 and 2^32, without the memory or the disk for them. */
Test(model, B166_files_above_4_GiB)
{
	const uint64_t half = (uint64_t)WORDS * WIDTH * 2;
	const uint64_t marks[] = { 0, (1u << 31) - 1, 1u << 31, half - 1, half, UINT64_C(1) << 32, 2 * half - 1 };
	const struct sizes sizes = { 1, WIDTH, 4, 4, 4, 8, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", true,
		     ",\"tie_word_embeddings\":false,\"vocab_size\":400000");
	checkpoint_drop("model.embed_tokens.weight");
	checkpoint_write_file("model-00001-of-00002.safetensors");
	write_sparse(marks, LEN(marks));
	struct sl_model *model = checkpoint_open();
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1), *whole = checkpoint_view(model, "hf/tp1", 0, 0);
	struct sl_error err = SL_ERROR_INIT;
	unsigned char byte;
	for (size_t i = 1; i < LEN(marks); i++) {
		const struct sl_output *t = sl_view_find(whole, i < 4 ? "model.embed_tokens.weight" : "lm_head.weight");
		uint64_t inside = i < 4 ? marks[i] : marks[i] - half;
		cr_assert_eq(sl_file_read(&whole->files[t->file], &byte, t->off + inside, 1, &err), 1, "%s", err.text);
		cr_assert_eq(byte, i);
	}
	const struct sl_output *head = sl_view_find(view, "lm_head.weight");
	cr_assert_eq(head->len, half / 2);
	cr_assert_eq(sl_file_read(&view->files[head->file], &byte, head->off + head->len - 1, 1, &err), 1, "%s",
		     err.text);
	cr_assert_eq(byte, LEN(marks) - 1);
	cr_assert_lt(view->arena.bytes + model->arena.bytes, 1 << 20, "B168: memory does not grow with the model");
	sl_view_close(view);
	sl_view_close(whole);
	sl_model_close(model);
}
