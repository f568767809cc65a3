/*
 * test_npy.c - one tensor as a .npy file, its header as numpy.lib.format describes it.
 */
#include "checkpoint.h"
#include "family.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(npy, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 60);

static void expect(const struct sl_view *view, const char *name, const char *dictionary)
{
	const struct sl_output *out = sl_view_find(view, name);
	struct sl_error err = SL_ERROR_INIT;
	struct sl_arena arena;
	struct sl_file file;

	cr_assert(out != NULL, "%s", name);
	sl_arena_init(&arena);
	cr_assert_eq(sl_view_npy(view, out, &arena, &file, &err), 0, "%s", err.text);
	unsigned char *bytes = checkpoint_read_file(&file), *data = checkpoint_read(view, out);
	size_t head = 10u + bytes[8] + bytes[9] * 256u;
	cr_assert(memcmp(bytes, "\x93NUMPY\x01\x00", 8) == 0);
	cr_assert_eq(head % 64, 0);
	cr_assert(memcmp(bytes + 10, dictionary, strlen(dictionary)) == 0, "%.*s", (int)head - 10, (char *)bytes + 10);
	for (size_t i = 10 + strlen(dictionary); i < head - 1; i++)
		cr_assert_eq(bytes[i], ' ');
	cr_assert_eq(bytes[head - 1], '\n');
	cr_assert_eq(file.size, head + out->len);
	cr_assert(memcmp(bytes + head, data, out->len) == 0);
	free(bytes);
	free(data);
	sl_arena_release(&arena);
}

Test(npy, shapes_and_dtypes)
{
	struct sl_model *model = family_open(family_find("llama"), "BF16", "bfloat16", false);
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);

	expect(view, "model.layers.0.self_attn.attn._k_scale", "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
	expect(view, "model.norm.weight", "{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }");
	expect(view, "model.layers.2.self_attn.qkv_proj.weight", "{'descr': '<u2', 'fortran_order': False, 'shape': (48, 40), }");
	expect(view, "lm_head.weight", "{'descr': '<u2', 'fortran_order': False, 'shape': (64, 40), }");
	sl_view_close(view);
	view = checkpoint_view(model, "vllm/tp2-f16", 0, 0);
	expect(view, "model.layers.1.self_attn.o_proj.weight", "{'descr': '<f2', 'fortran_order': False, 'shape': (40, 32), }");
	sl_view_close(view);
	sl_model_close(model);
}

Test(npy, as_stored)
{
	struct sl_model *model = family_open(family_find("gpt2"), "F32", "float32", true);
	struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);

	expect(view, "transformer.h.0.attn.bias", "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 1, 5, 5), }");
	expect(view, "transformer.h.1.attn.c_attn.weight", "{'descr': '<f4', 'fortran_order': False, 'shape': (40, 120), }");
	sl_view_close(view);
	sl_model_close(model);
}
