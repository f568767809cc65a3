/*
 * test_process.c - the lists of what engines do to modules: every recipe that they name is there, every row can be reached, and
 * what is refused says why; and vLLM takes the same kernels. What they come to is compared in tests/kernel/view.py and engine.py,
 * and in tests/oracle.
 */
#include "slicer/engine.h"
#include "slicer/post.h"
#include "slicer/process.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(process, .timeout = 60);

static void check_steps(const struct sl_choice *choice)
{
	for (unsigned i = 0; i < SL_STEPS_MAX && choice->steps[i].recipe; i++)
		cr_expect(sl_recipe_find(choice->steps[i].recipe), "%s: no recipe %s", choice->storage,
			  choice->steps[i].recipe);
	cr_expect(!choice->refused || !choice->steps[0].recipe, "%s is refused and has steps", choice->storage);
	cr_expect(choice->refused || choice->says, "%s: which kernel?", choice->storage);
}

/* Is all that a row takes taken by an earlier one? */
static bool is_hidden(const struct sl_choice *earlier, const struct sl_choice *row)
{
	return !earlier->when && strcmp(earlier->storage, row->storage) == 0 && earlier->kind == row->kind &&
	       (earlier->gpus & row->gpus) == row->gpus && (earlier->kernels & row->kernels) == row->kernels &&
	       earlier->online == row->online;
}

Test(process, choices)
{
	unsigned lists = 0;

	for (int e = 0; e < SL_N_ENGINES; e++) {
		const struct sl_choice *choices = sl_engines[e].choices;
		lists += choices != NULL;
		for (const struct sl_choice *c = choices; c && c->storage; c++) {
			check_steps(c);
			for (const struct sl_choice *earlier = choices; earlier < c; earlier++)
				cr_expect_not(is_hidden(earlier, c), "%s: row %d of %s is never reached", c->storage,
					      (int)(c - choices), sl_engines[e].name);
		}
	}
	cr_assert_eq(lists, 2);
}

/* Every format that a scheme has is in the list of vLLM's kernels, done or refused, as a linear layer or as experts. */
Test(process, formats)
{
	for (const struct sl_scheme *const *scheme = sl_schemes; *scheme; scheme++) {
		for (const struct sl_storage *const *storage = (*scheme)->storages; *storage; storage++) {
			const struct sl_choice *c = sl_engines[SL_KERNEL].choices;
			while (c->storage && strcmp(c->storage, (*storage)->name) != 0)
				c++;
			cr_expect(c->storage, "%s of %s", (*storage)->name, (*scheme)->method);
		}
	}
}

/* ---- choices.tsv: the kernels that vLLM itself takes (tests/kernel/choices.py) ---- */

/* What it calls them, and what we say. */
static const struct {
	const char *theirs, *ours;
} kernels[] = {
	{ "CutlassFP8ScaledMMLinearKernel", "CUTLASS" },
	{ "CutlassFp8BlockScaledMMKernel", "CUTLASS" },
	{ "CutlassInt8ScaledMMLinearKernel", "CUTLASS" },
	{ "CutlassNvFp4LinearKernel", "CUTLASS or FlashInfer" },
	{ "FlashInferCuteDslNvFp4LinearKernel", "CUTLASS or FlashInfer" },
	{ "FlashInferCutlassNvFp4LinearKernel", "CUTLASS or FlashInfer" },
	{ "DeepGemmFp8BlockScaledMMKernel", "DeepGEMM" },
	{ "FlashInferCutedslMxfp8LinearKernel", "FlashInfer CuTe-DSL" },
	{ "FlashInferCutlassMxfp8LinearKernel", "FlashInfer CUTLASS" },
	{ "FlashInferFP8ScaledMMLinearKernel", "FlashInfer" },
	{ "FlashInferFp8DeepGEMMDynamicBlockScaledKernel", "DeepGEMM" },
	{ "HummingFP8ScaledMMLinearKernel", "Humming" },
	{ "HummingMxfp8LinearKernel", "Humming" },
	{ "HummingNvFp4LinearKernel", "Humming" },
	{ "MarlinFP8ScaledMMLinearKernel", "Marlin" },
	{ "MarlinLinearKernel", "Marlin" },
	{ "MarlinMxFp4LinearKernel", "Marlin" },
	{ "MarlinMxfp8LinearKernel", "Marlin" },
	{ "MarlinNvFp4LinearKernel", "Marlin" },
	{ "TritonFp8BlockScaledMMKernel", "Triton" },
	{ "FLASHINFER_CUTLASS", "FlashInfer CUTLASS" },
	{ "FLASHINFER_TRTLLM", "FlashInfer TRT-LLM" },
	{ "FLASHINFER_TRTLLM_MXFP4_BF16", "FlashInfer TRT-LLM" },
	{ "HUMMING", "Humming" },
	{ "MARLIN", "Marlin" },
	{ "TRITON", "Triton" },
	{ "VLLM_CUTLASS", "CUTLASS" },
};

enum { GPU, FORMAT, KIND, ONLINE, DTYPE, ROWS, COLS, MARKS, KERNELS, N_FIELDS = KERNELS + 6 };

static const enum sl_kernels words[] = { SL_KERNELS_AUTO,   SL_KERNELS_MARLIN,	   SL_KERNELS_CUTLASS,
					 SL_KERNELS_TRITON, SL_KERNELS_FLASHINFER, SL_KERNELS_TRTLLM };

static bool has_mark(const char *marks, const char *mark)
{
	size_t len = strlen(mark);

	for (const char *at = strstr(marks, mark); at; at = strstr(at + 1, mark)) {
		if ((at == marks || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	}
	return false;
}

/* Of a scheme that has the format: the first one, or compressed-tensors. */
static const struct sl_storage *find_storage(const char *name, bool compressed, struct sl_quant *quant)
{
	for (const struct sl_scheme *const *scheme = sl_schemes; *scheme; scheme++) {
		for (const struct sl_storage *const *s = (*scheme)->storages; *s; s++) {
			quant->scheme = *scheme;
			if (strcmp((*s)->name, name) == 0 &&
			    (!compressed || strcmp((*scheme)->method, "compressed-tensors") == 0))
				return *s;
		}
	}
	cr_assert_fail("no format '%s'", name);
	return NULL;
}

static enum sl_online online_of(const char *name)
{
	return !*name			   ? SL_ONLINE_NONE
	       : strcmp(name, "fp8") == 0  ? SL_ONLINE_TENSOR
	       : strcmp(name, "fp8c") == 0 ? SL_ONLINE_CHANNEL
					   : SL_ONLINE_BLOCK;
}

/* The choice for a line and a word. */
static const struct sl_choice *choose(char *const *field, enum sl_kernels word)
{
	static const struct sl_weight linear = { .name = "mlp.up_proj" }, expert = { .name = "mlp.experts.%e.up_proj" };
	const char *marks = field[MARKS];
	struct sl_quant quant = { .weight_only = has_mark(marks, "weight_only"),
				  .bits = has_mark(marks, "bits8") ? 8 : 4,
				  .asymmetric = has_mark(marks, "asymmetric") };
	struct sl_module module = { .row = strcmp(field[KIND], "linear") == 0 ? &linear : &expert,
				    .quant = &quant,
				    .finer = has_mark(marks, "finer") ? 2 : 1,
				    .fixed = has_mark(marks, "fixed") };
	int gpu = sl_gpu_find(field[GPU], strlen(field[GPU]));

	cr_assert_geq(gpu, 0, "%s", field[GPU]);
	module.storage = find_storage(field[FORMAT], has_mark(marks, "compressed"), &quant);
	return sl_choose(sl_engines[SL_KERNEL].choices,
			 &(struct sl_asked){ .module = &module,
					     .gpu = (enum sl_gpu)gpu,
					     .kernels = word,
					     .online = online_of(field[ONLINE]),
					     .spread = has_mark(marks, "ep"),
					     .normalises = !has_mark(marks, "unnormalised"),
					     .dtype = strcmp(field[DTYPE], "F16") == 0 ? SL_F16 : SL_BF16,
					     .n = strtoull(field[ROWS], NULL, 10),
					     .k = strtoull(field[COLS], NULL, 10) });
}

static bool is_said(const char *theirs, const char *ours)
{
	for (unsigned i = 0; i < SL_COUNT(kernels); i++) {
		if (strcmp(kernels[i].theirs, theirs) == 0)
			return strcmp(kernels[i].ours, ours) == 0;
	}
	return false;
}

/* A kernel of vLLM's that is not served is refused; what is served is the one that it takes. Plain linear layers are the same
 * for all kernels, and what vLLM does not start with makes no difference where nothing is done to weights. */
static void check_line(char *const *field, unsigned *served)
{
	for (unsigned w = 0; w < SL_COUNT(words); w++) {
		const struct sl_choice *choice = choose(field, words[w]);
		if (!choice || choice->refused)
			continue;
		*served += 1;
		cr_expect(is_said(field[KERNELS + w], choice->says),
			  "%s %s %s %s %s %sx%s [%s], word %u: vLLM takes %s, we %s", field[GPU], field[FORMAT],
			  field[KIND], field[ONLINE], field[DTYPE], field[ROWS], field[COLS], field[MARKS], w,
			  field[KERNELS + w], choice->says);
	}
}

Test(process, the_engine_takes_the_same_kernels)
{
	const char *root = getenv("RANKFS_TEST_DATA");
	char path[PATH_MAX], line[512], *field[N_FIELDS];
	unsigned lines = 0, served = 0;

	snprintf(path, sizeof(path), "%s/choices.tsv", root ? root : "tests/unit/data");
	FILE *file = fopen(path, "r");
	cr_assert(file, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		char *rest = line;
		line[strcspn(line, "\n")] = '\0';
		for (unsigned i = 0; i < N_FIELDS; i++)
			cr_assert(field[i] = strsep(&rest, "\t"), "line %u has %u fields", lines + 1, i);
		check_line(field, &served);
		lines++;
	}
	fclose(file);
	cr_expect_gt(lines, 1000);
	cr_expect_gt(served, 2500, "of %u lines only %u kernels are served", lines, served);
}
