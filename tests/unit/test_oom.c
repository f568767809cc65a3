/*
 * test_oom.c - the n-th allocation fails, for n = 1, 2, … until none does: -ENOMEM each time, and nothing is left
 * behind (the sanitizer's report would say).
 */
#include "checkpoint.h"
#include "family.h"
#include "linear.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

TestSuite(oom, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 120);

static unsigned open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void open_model(void)
{
	unsigned files = open_files(), n = 0;
	struct sl_model *model;
	int ret;

	do {
		struct sl_error err = SL_ERROR_INIT;
		sl_arena_fail_after(++n);
		ret = sl_model_open(&model, fixture_dir(), NULL, &err);
		sl_arena_fail_after(0);
		if (ret) {
			cr_assert_eq(ret, -ENOMEM, "allocation %u: %d (%s)", n, ret, err.text);
			cr_assert(model == NULL && strstr(err.text, "memory"), "%s", err.text);
			cr_assert_eq(open_files(), files, "allocation %u: a file is left open", n);
		}
	} while (ret);
	cr_assert_gt(n, 10, "only %u allocations", n);
	sl_model_close(model);
	cr_assert_eq(open_files(), files);
}

static void open_view(const struct sl_model *model, enum sl_engine_id engine, const char *name)
{
	const struct sl_view_options options = { .part_bytes = 4000 };
	struct sl_layout layout;
	struct sl_view *view;
	unsigned n = 0;
	int ret;

	if (sl_engines[engine].ranks)
		cr_assert_eq(sl_layout_parse(&layout, &sl_engines[engine], name), 0);
	else
		layout = SL_LAYOUT_WHOLE;
	do {
		struct sl_error err = SL_ERROR_INIT;
		sl_arena_fail_after(++n);
		ret = sl_view_open(&view, model, &sl_engines[engine], &layout, layout.pp - 1, layout.tp - 1, &options,
				   &err);
		sl_arena_fail_after(0);
		if (ret) {
			cr_assert_eq(ret, -ENOMEM, "allocation %u: %d (%s)", n, ret, err.text);
			cr_assert(view == NULL && strstr(err.text, "memory"), "%s", err.text);
		}
	} while (ret);
	cr_assert_gt(n, 10, "only %u allocations", n);
	sl_view_close(view);
}

Test(oom, model)
{
	static const char *const names[] = { "llama", "mistral", "gpt2", "falcon-rw", "bert" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct family *f = family_find(names[i]);
		family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"model_type\":\"x\",\"text_config\":{}");
		checkpoint_write_file(f->file);
		open_model();
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(oom, model_in_shards)
{
	const struct family *f = family_find("llama");

	family_build(f, &f->sizes, "BF16", "bfloat16", false, ",\"tie_word_embeddings\":true");
	checkpoint_write(3);
	open_model();
}

Test(oom, view)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", NULL, false);

	open_view(model, SL_VLLM, "tp2-pp2");
	open_view(model, SL_HF, "tp2");
	open_view(model, SL_AIRLLM, "");
	open_view(model, SL_DCP, "tp2");
	open_view(model, SL_SERVERLESSLLM, "tp2");
	open_view(model, SL_KERNEL, "tp2-fp8-kn");
	sl_model_close(model);
}

/* Recipes for linear layers and for experts, one after another. */
Test(oom, processed)
{
	struct family f = *family_find("qwen3-moe");

	f.sizes = (struct sizes){ 2, 128, 8, 2, 16, 128, 64, 0 };
	f.more.E = 3;
	f.more.J = 128;
	family_build(&f, &f.sizes, "BF16", NULL, false, format_find("fp8-tensor")->config);
	linear_quantise(format_find("fp8-tensor"), "_proj.weight");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	open_view(model, SL_KERNEL, "tp2");
	open_view(model, SL_KERNEL, "tp2-sm80");
	sl_model_close(model);
}

Test(oom, views_of_other_containers)
{
	static const char tokenizer[] =
		"{\"x\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?"
		"[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\","
		"\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}}";
	const struct sizes sizes = { 1, 16, 4, 2, 4, 24, 64, 0 };

	family_build(family_find("llama"), &sizes, "BF16", NULL, false, "");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	open_view(model, SL_META, "mp2");
	fixture_text("tokenizer.json", tokenizer);
	open_view(model, SL_GGUF, "");
	sl_model_close(model);
}

Test(oom, view_with_positions)
{
	const struct family *f = family_find("bert");

	family_build(f, &f->sizes, "BF16", NULL, false, "");
	checkpoint_drop("embeddings.position_ids");
	checkpoint_write(1);
	struct sl_model *model = checkpoint_open();
	open_view(model, SL_VLLM, "tp2");
	sl_model_close(model);
}

/* Experts, blocks, stacks that are padded, columns side by side, a list of modules in config.json. */
Test(oom, quantised_experts)
{
	static const char *const names[] = { "fp8-block", "gptq", "fp8-tensor" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct family f = *family_find("qwen3-moe");
		f.sizes = (struct sizes){ 3, 128, 8, 2, 16, 128, 64, 0 };
		f.more.E = 3;
		f.more.J = 128;
		family_build(&f, &f.sizes, "BF16", NULL, false, format_find(names[i])->config);
		linear_quantise(format_find(names[i]), "_proj.weight");
		checkpoint_write(1);
		open_model();
		struct sl_model *model = checkpoint_open();
		open_view(model, SL_VLLM, "tp2-ep");
		open_view(model, SL_VLLM, "tp2-pp2");
		open_view(model, SL_HF, "tp2");
		sl_model_close(model);
		checkpoint_teardown();
		checkpoint_setup();
	}
}

Test(oom, npy)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	struct sl_arena arena;
	struct sl_file file;

	sl_arena_init(&arena);
	for (unsigned n = 1; n <= 2; n++) {
		struct sl_error err = SL_ERROR_INIT;
		sl_arena_fail_after(n);
		cr_assert_eq(sl_view_npy(view, &view->tensors[0], &arena, &file, &err), -ENOMEM);
		sl_arena_fail_after(0);
	}
	sl_arena_release(&arena);
	sl_view_close(view);
	sl_model_close(model);
}
