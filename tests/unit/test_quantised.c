/*
 * test_quantised.c - quantised checkpoints: every component of every format on every rank, element by element; and the
 * sentences about scales that are missing, of another shape, or would be cut in two.
 *
 * The names B59 to B161 are those of public bug reports against other loaders, restated as the smallest input that
 * shows the same fault.
 */
#include "checkpoint.h"
#include "family.h"
#include "linear.h"

#include "slicer/scales.h"
#include "slicer/split.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a)	       (sizeof(a) / sizeof((a)[0]))
#define ATTN	       "model.layers.0.self_attn."
#define MLP	       "model.layers.0.mlp."
#define MOE	       "model.layers.1.mlp.experts."
#define HELD	       MOE "routed_experts."
#define QUANT(members) ",\"quantization_config\":{" members "}"

TestSuite(quantised, .init = checkpoint_setup, .fini = checkpoint_teardown, .timeout = 300);

static struct sl_model *model;

/* Sizes of which every format's groups and words divide on 4 ranks. */
static const struct sizes even = { 1, 64, 8, 2, 16, 128, 64, 0 };
enum { EXPERTS = 5, EXPERT_ROWS = 128 };

/* A family in those sizes; experts have EXPERT_ROWS rows. */
static struct family sized(const char *name)
{
	struct family f = *family_find(name);

	f.sizes = even;
	if (f.more.E) {
		f.sizes.L = 2;
		f.sizes.H = EXPERT_ROWS;
		f.more.E = EXPERTS;
		f.more.J = EXPERT_ROWS;
	}
	return f;
}

/* Its checkpoint with all projections in a format, not yet written. */
static void given(const char *family, const struct format *format, const char *config)
{
	struct family f = sized(family);

	family_build(&f, &f.sizes, "BF16", "bfloat16", false, config);
	if (format)
		linear_quantise(format, "_proj.weight");
}

static void opened(void)
{
	checkpoint_write(1);
	model = checkpoint_open();
}

static void again(void)
{
	sl_model_close(model);
	checkpoint_teardown();
	checkpoint_setup();
}

/* "name" of the attention's or MLP's module, with its suffix. */
static void append(char *parts, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void append(char *parts, const char *fmt, ...)
{
	size_t len = strlen(parts);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(parts + len, 4000 - len, fmt, ap);
	va_end(ap);
}

/* ---- every format, every rank ---- */

/* First row of the rank's kv heads, and their number of rows. */
static unsigned kv_first(unsigned tp, unsigned rank, unsigned *n)
{
	unsigned rows = even.M * even.D;

	*n = tp > even.M ? even.D : rows / tp;
	return tp > even.M ? rank / (tp / even.M) * even.D : rows / tp * rank;
}

static void expect_attention(const struct sl_view *view, const struct format *f, unsigned layer)
{
	unsigned tp = view->layout.tp, q = even.N * even.D / tp, n, kv = kv_first(tp, view->rank, &n), r = view->rank;
	char attn[64], output[100], parts[4000] = "";

	snprintf(attn, sizeof(attn), "model.layers.%u.self_attn.", layer);
	append(parts, "%sq_proj[%u:%u] %sk_proj[%u:%u] %sv_proj[%u:%u]", attn, r * q, r * q + q, attn, kv, kv + n, attn,
	       kv, kv + n);
	snprintf(output, sizeof(output), "%sqkv_proj", attn);
	linear_expect(view, f, output, '.', parts);
	snprintf(output, sizeof(output), "%so_proj", attn);
	snprintf(parts, sizeof(parts), "%so_proj[:,%u:%u]", attn, r * q, r * q + q);
	linear_expect(view, f, output, '.', parts);
}

static void expect_mlp(const struct sl_view *view, const struct format *f)
{
	unsigned n = even.I / view->layout.tp, a = n * view->rank, z = a + n;
	char parts[4000] = "";

	append(parts, MLP "gate_proj[%u:%u] " MLP "up_proj[%u:%u]", a, z, a, z);
	linear_expect(view, f, MLP "gate_up_proj", '.', parts);
	snprintf(parts, sizeof(parts), MLP "down_proj[:,%u:%u]", a, z);
	linear_expect(view, f, MLP "down_proj", '.', parts);
}

static bool has_expert(const struct sl_view *view, unsigned e)
{
	unsigned tp = view->layout.tp, more = EXPERTS % tp, each = EXPERTS / tp;
	unsigned first = view->rank * each + (view->rank < more ? view->rank : more);

	if (view->layout.experts == SL_EXPERTS_SLICED)
		return true;
	if (view->layout.experts == SL_EXPERTS_ROUND_ROBIN)
		return e % tp == view->rank;
	return e >= first && e < first + each + (view->rank < more);
}

static void expect_experts(const struct sl_view *view, const struct format *f)
{
	bool cut = view->layout.experts == SL_EXPERTS_SLICED;
	unsigned n = cut ? EXPERT_ROWS / view->layout.tp : EXPERT_ROWS, a = cut ? n * view->rank : 0, z = a + n;
	char w13[4000] = "", w2[4000] = "";

	for (unsigned e = 0; e < EXPERTS; e++) {
		if (!has_expert(view, e))
			continue;
		append(w13, "%s" MOE "%u.gate_proj[%u:%u] " MOE "%u.up_proj[%u:%u]", w13[0] ? " | " : "", e, a, z, e, a,
		       z);
		append(w2, "%s" MOE "%u.down_proj[:,%u:%u]", w2[0] ? " | " : "", e, a, z);
	}
	linear_expect(view, f, HELD "w13", '_', w13);
	linear_expect(view, f, HELD "w2", '_', w2);
}

/* A bias of zeros for each row of each of the rank's experts. */
static void expect_expert_bias(const struct sl_view *view, const char *name, unsigned rows)
{
	const struct sl_output *out = sl_view_find(view, name);
	uint64_t experts = 0;

	for (unsigned e = 0; e < EXPERTS; e++)
		experts += has_expert(view, e);
	cr_assert(out && out->dtype == SL_BF16 && out->n_dims == 2, "%s", name);
	cr_assert(out->shape[0] == experts && out->shape[1] == rows, "%s", name);
	unsigned char *bytes = checkpoint_read(view, out);
	for (uint64_t i = 0; i < out->len; i++)
		cr_assert_eq(bytes[i], 0);
	free(bytes);
}

/* Nothing but the components, the layers' norms, the attentions' scales, and what is outside the layers. */
static void expect_llama(const struct format *f, const char *path)
{
	struct sl_layout layout;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], strchr(path, '/') + 1), 0);
	for (unsigned rank = 0; rank < layout.tp; rank++) {
		struct sl_view *view = checkpoint_view(model, path, 0, rank);
		expect_attention(view, f, 0);
		expect_mlp(view, f);
		cr_assert_eq(view->n_tensors, 4 * f->n_components + 2 + 4 + f->n_cache_scales + 3);
		sl_view_close(view);
	}
}

Test(quantised, every_format_on_every_rank)
{
	static const char *const paths[] = { "vllm/tp1", "vllm/tp2", "vllm/tp4" };

	for (unsigned i = 0; i < n_formats; i++) {
		given("llama", &formats[i], formats[i].config);
		opened();
		for (size_t p = 0; p < LEN(paths); p++)
			expect_llama(&formats[i], paths[p]);
		again();
	}
}

static void expect_qwen3_moe(const struct format *f, const char *path)
{
	struct sl_layout layout;

	cr_assert_eq(sl_layout_parse(&layout, &sl_engines[SL_VLLM], strchr(path, '/') + 1), 0);
	for (unsigned rank = 0; rank < layout.tp; rank++) {
		struct sl_view *view = checkpoint_view(model, path, 0, rank);
		expect_attention(view, f, 0);
		expect_mlp(view, f);
		expect_attention(view, f, 1);
		expect_experts(view, f);
		checkpoint_expect(view, MOE "gate.weight", "model.layers.1.mlp.gate.weight");
		if (f->biased_experts) {
			unsigned cut = layout.experts == SL_EXPERTS_SLICED ? layout.tp : 1;
			expect_expert_bias(view, HELD "w13_bias", 2 * EXPERT_ROWS / cut);
			expect_expert_bias(view, HELD "w2_bias", EXPERT_ROWS);
		}
		cr_assert_eq(view->n_tensors,
			     8 * f->n_components + 2 * (4 + 4 + f->n_cache_scales) + 1 + 3 + 2 * f->biased_experts);
		sl_view_close(view);
	}
}

Test(quantised, every_format_of_experts)
{
	static const char *const paths[] = { "vllm/tp1", "vllm/tp2", "vllm/tp4", "vllm/tp2-ep", "vllm/tp4-ep" };

	for (unsigned i = 0; i < n_formats; i++) {
		if (formats[i].no_experts)
			continue;
		given("qwen3-moe", &formats[i], formats[i].config);
		opened();
		for (size_t p = 0; p < LEN(paths); p++)
			expect_qwen3_moe(&formats[i], paths[p]);
		again();
	}
}

/* Formats whose scales become the model's dtype follow the layout's. */
Test(quantised, scales_in_the_dtype_of_the_layout)
{
	const struct format *f = format_find("awq");

	given("llama", f, f->config);
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2-f32", 0, 1);
	const struct sl_output *out = sl_view_find(view, MLP "down_proj.scales");
	cr_assert(out && out->dtype == SL_F32);
	sl_view_close(view);
	view = checkpoint_view(model, "vllm/tp2-f16", 0, 1);
	checkpoint_expect(view, MLP "down_proj.scales", MLP "down_proj.scales[4:8]");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B161_reads_across_borders)
{
	static const char *const paths[] = { "vllm/tp4", "vllm/tp2-ep", "hf/tp2" };
	uint64_t state = 521288629;

	for (unsigned i = 0; i < n_formats; i++) {
		if (formats[i].no_experts)
			continue;
		given("qwen3-moe", &formats[i], formats[i].config);
		opened();
		for (size_t p = 0; p < LEN(paths); p++) {
			struct sl_view *view = checkpoint_view(model, paths[p], 0, 1);
			checkpoint_read_randomly(view, 50, &state);
			sl_view_close(view);
		}
		again();
	}
}

/* The order in which names, files and halves of a layer come is nobody's business. */
Test(quantised, B117_B155_weights_and_scales_in_other_shards)
{
	for (unsigned shards = 2; shards <= 5; shards++) {
		for (unsigned i = 0; i < n_formats; i += 3) {
			given("llama", &formats[i], formats[i].config);
			checkpoint_write(shards);
			model = checkpoint_open();
			expect_llama(&formats[i], "vllm/tp2");
			again();
		}
	}
}

/* ---- hf/ ---- */

/* One rank of one: every stored tensor, byte for byte, and none beside. */
static void expect_source(const struct sl_view *view)
{
	const struct checkpoint_tensor *t;
	unsigned n = 0;

	for (; (t = checkpoint_at(n)); n++) {
		const struct sl_output *out = sl_view_find(view, t->name);
		cr_assert(out && out->dtype == t->dtype && out->n_dims == t->n_dims && out->len == t->len, "%s",
			  t->name);
		cr_assert(memcmp(out->shape, t->shape, t->n_dims * sizeof(t->shape[0])) == 0, "%s", t->name);
		unsigned char *got = checkpoint_read(view, out);
		cr_assert(memcmp(got, t->bytes, t->len) == 0, "%s", t->name);
		free(got);
	}
	cr_assert_eq(view->n_tensors, n);
}

Test(quantised, hf_of_one_rank_is_the_source)
{
	static const char *const families_of[] = { "llama", "qwen3-moe" };

	for (unsigned i = 0; i < 2 * n_formats; i++) {
		const struct format *f = &formats[i / 2];
		if (i % 2 && f->no_experts)
			continue;
		given(families_of[i % 2], f, f->config);
		if (f->n_cache_scales) {
			checkpoint_add("F32", "", ATTN "k_proj.k_scale");
			checkpoint_add("BF16", "1", ATTN "v_proj.v_scale");
		}
		opened();
		struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);
		expect_source(view);
		sl_view_close(view);
		again();
	}
}

Test(quantised, hf_slices_keep_names_and_dtypes)
{
	for (unsigned i = 0; i < n_formats; i++) {
		const struct format *f = &formats[i];
		if (f->no_experts)
			continue;
		given("qwen3-moe", f, f->config);
		opened();
		struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1);
		linear_expect_stored(view, f, ATTN "q_proj", ATTN "q_proj[64:128]");
		linear_expect_stored(view, f, ATTN "k_proj", ATTN "k_proj[16:32]");
		linear_expect_stored(view, f, ATTN "o_proj", ATTN "o_proj[:,64:128]");
		linear_expect_stored(view, f, MOE "3.up_proj", MOE "3.up_proj[64:128]");
		linear_expect_stored(view, f, MOE "4.down_proj", MOE "4.down_proj[:,64:128]");
		sl_view_close(view);
		again();
	}
}

/* ---- the ranks put back together ---- */

/* Bytes [part of axis `axis` of rank `rank`] of the stored tensor against the rank's own. */
static void compare_part(const struct checkpoint_tensor *t, const struct sl_output *out, const unsigned char *got,
			 unsigned axis, uint64_t first)
{
	uint64_t before = 1, after = sl_dtypes[t->dtype].bits / 8;

	for (unsigned d = 0; d < axis; d++)
		before *= t->shape[d];
	for (unsigned d = axis + 1; d < t->n_dims; d++)
		after *= t->shape[d];
	uint64_t run = out->shape[axis] * after;
	for (uint64_t i = 0; i < before; i++)
		cr_assert(memcmp(got + i * run, t->bytes + (i * t->shape[axis] + first) * after, run) == 0, "%s",
			  t->name);
}

/* The axis in which the ranks have less than the source; the tensor's own when they have all of it. */
static unsigned cut_axis(const struct checkpoint_tensor *t, const struct sl_output *out)
{
	unsigned axis = 0;

	while (axis < t->n_dims && out->shape[axis] == t->shape[axis])
		axis++;
	return axis;
}

/* The parts of all ranks, one after another along one axis, are the source; or every rank that has it has all. */
static void rejoin(struct sl_view *const *views, unsigned tp, const struct checkpoint_tensor *t)
{
	uint64_t first = 0;
	unsigned n = 0;

	for (unsigned r = 0; r < tp; r++) {
		const struct sl_output *out = sl_view_find(views[r], t->name);
		if (!out)
			continue;
		unsigned axis = cut_axis(t, out);
		unsigned char *got = checkpoint_read(views[r], out);
		if (axis == t->n_dims) {
			cr_assert(memcmp(got, t->bytes, t->len) == 0, "%s", t->name);
		} else {
			compare_part(t, out, got, axis, first);
			first += out->shape[axis];
			cr_assert(r + 1 < tp || first == t->shape[axis], "%s: %u", t->name, (unsigned)first);
		}
		free(got);
		n++;
	}
	bool spread = strstr(t->name, "experts.") && views[0]->layout.experts != SL_EXPERTS_SLICED;
	cr_assert_eq(n, spread ? 1 : tp, "%s is on %u ranks", t->name, n);
}

Test(quantised, B66_ranks_put_back_together)
{
	static const char *const paths[] = { "hf/tp2", "hf/tp2-ep", "hf/tp2-eprr" };
	struct sl_view *views[2];
	const struct checkpoint_tensor *t;

	for (unsigned i = 0; i < n_formats; i++) {
		if (formats[i].no_experts)
			continue;
		given("qwen3-moe", &formats[i], formats[i].config);
		opened();
		for (size_t p = 0; p < LEN(paths); p++) {
			for (unsigned r = 0; r < 2; r++)
				views[r] = checkpoint_view(model, paths[p], 0, r);
			for (unsigned n = 0; (t = checkpoint_at(n)); n++)
				rejoin(views, 2, t);
			for (unsigned r = 0; r < 2; r++)
				sl_view_close(views[r]);
		}
		again();
	}
}

/* ---- scales of another form ---- */

static void given_fp8(const char *format)
{
	given("llama", format_find(format), format_find(format)->config);
}

static void refused_after_replacing(const char *format, const char *dtype, const char *shape, const char *name,
				    const char *says, const char *also)
{
	char quoted[160];

	given_fp8(format);
	checkpoint_replace(dtype, shape, name);
	checkpoint_write(1);
	snprintf(quoted, sizeof(quoted), "'%s'", name);
	checkpoint_refused(quoted, says, also, NULL);
}

Test(quantised, B114_channel_scales_with_and_without_an_axis)
{
	given_fp8("ct-channel");
	checkpoint_replace("F32", "128", ATTN "q_proj.weight_scale");
	checkpoint_replace("F32", "32", ATTN "k_proj.weight_scale");
	checkpoint_replace("F32", "32", ATTN "v_proj.weight_scale");
	checkpoint_replace("F32", "64", ATTN "o_proj.weight_scale");
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	checkpoint_expect(view, ATTN "qkv_proj.weight_scale",
			  ATTN "q_proj.weight_scale[64:128] " ATTN "k_proj.weight_scale[16:32] " ATTN
			       "v_proj.weight_scale[16:32]");
	checkpoint_expect(view, ATTN "o_proj.weight_scale", ATTN "o_proj.weight_scale");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B114_channel_scales_of_another_length)
{
	static const char name[] = ATTN "q_proj.weight_scale";

	refused_after_replacing("ct-channel", "F32", "127 1", name, "[127, 1]", "needs [128, 1]");
	refused_after_replacing("ct-channel", "F32", "129", name, "[129, 1]", "needs [128, 1]");
	refused_after_replacing("ct-channel", "F32", "2", name, "[2, 1]", "needs [128, 1]");
	refused_after_replacing("ct-channel", "F32", "128 2", name, "[128, 2]", "needs [128, 1]");
	refused_after_replacing("ct-channel", "F32", "1 128", name, "[1, 128]", "needs [128, 1]");
}

/* Fused on disk with a scale for each part is no scale of the whole. */
Test(quantised, B112_three_scales_of_one_matrix)
{
	refused_after_replacing("ct-tensor", "F32", "3", ATTN "q_proj.weight_scale", "[3, 1]", "needs [128, 1]");
	given_fp8("fp8-tensor");
	checkpoint_replace("F32", "3", ATTN "q_proj.weight_scale");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "q_proj.weight' is F8_E4M3", "scales are of another form", NULL);
}

/* A scalar with and without its axis is the same; so is one of one element. */
Test(quantised, B111_one_scale)
{
	static const char *const shapes[] = { "", "1", "1 1" };

	for (size_t i = 0; i < LEN(shapes); i++) {
		given_fp8("fp8-tensor");
		checkpoint_replace("F32", shapes[i], MLP "gate_proj.weight_scale");
		checkpoint_replace("F32", shapes[i], MLP "down_proj.weight_scale");
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
		const struct sl_output *out = sl_view_find(view, MLP "gate_up_proj.weight_scale");
		cr_assert(out && out->n_dims == 1 && out->shape[0] == 2);
		out = sl_view_find(view, MLP "down_proj.weight_scale");
		cr_assert(out && out->n_dims == 1 && out->shape[0] == 1);
		unsigned char *got = checkpoint_read(view, out);
		cr_assert(memcmp(got, checkpoint_find(MLP "down_proj.weight_scale")->bytes, 4) == 0);
		free(got);
		sl_view_close(view);
		again();
	}
}

Test(quantised, scales_of_no_number)
{
	refused_after_replacing("ct-channel", "I32", "128 1", ATTN "q_proj.weight_scale", "I32", "compressed-tensors");
	refused_after_replacing("fp8-block", "U8", "32 8", ATTN "q_proj.weight_scale_inv", "U8", "'fp8'");
	refused_after_replacing("awq", "I32", "4 128", ATTN "q_proj.scales", "I32", "'awq'");
}

Test(quantised, scales_without_columns)
{
	refused_after_replacing("w4a16", "BF16", "128 0", ATTN "q_proj.weight_scale", "0 columns of scales",
				"64 columns");
	refused_after_replacing("gptq", "F16", "0 128", ATTN "q_proj.scales", "0 columns of scales", "64 columns");
	refused_after_replacing("nvfp4", "F8_E4M3", "128 0", ATTN "q_proj.weight_scale", "0 columns of scales",
				"64 columns");
	refused_after_replacing("fp8-block", "F32", "0 0", ATTN "q_proj.weight_scale_inv", "[0, 0]", "needs [32, 8]");
}

/* Static activations: a scale and a zero point of inputs, which parts of one matrix have in common; the last loaded counts. */
Test(quantised, int8_static_inputs)
{
	static const char *const modules[] = { ATTN "q_proj",	ATTN "k_proj", ATTN "v_proj",  ATTN "o_proj",
					       MLP "gate_proj", MLP "up_proj", MLP "down_proj" };

	given("llama", format_find("int8-channel"), format_find("int8-channel")->config);
	for (size_t i = 0; i < LEN(modules); i++) {
		checkpoint_add("F32", "1", "%s.input_scale", modules[i]);
		checkpoint_add("I8", "1", "%s.input_zero_point", modules[i]);
	}
	opened();
	for (unsigned rank = 0; rank < 2; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, rank);
		checkpoint_expect(view, ATTN "qkv_proj.input_scale", ATTN "v_proj.input_scale");
		checkpoint_expect(view, ATTN "qkv_proj.input_zero_point", ATTN "v_proj.input_zero_point");
		checkpoint_expect(view, MLP "gate_up_proj.input_scale", MLP "up_proj.input_scale");
		checkpoint_expect(view, MLP "down_proj.input_scale", MLP "down_proj.input_scale");
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* Bytes of weights in FP8, and scales in it, are never decoded: NaNs keep their payload, -0 its sign, whatever the scales. */
Test(quantised, B110_B119_B120_B122_B148_codes_are_never_recomputed)
{
	static const char *const weights[] = { ATTN "q_proj.weight", ATTN "k_proj.weight", MLP "gate_proj.weight" };
	static const float far_apart[] = { 0.25f, 1024, 0.0009765625f };

	for (int equal = 0; equal < 2; equal++) {
		given_fp8("fp8-tensor");
		for (size_t i = 0; i < LEN(weights); i++) {
			struct checkpoint_tensor *t = checkpoint_find(weights[i]);
			for (uint64_t b = 0; b < t->len; b++)
				t->bytes[b] = (unsigned char)b;
		}
		checkpoint_replace("F32", "1", ATTN "q_proj.weight_scale");
		checkpoint_replace("F32", "1", ATTN "k_proj.weight_scale");
		checkpoint_replace("F32", "1", ATTN "v_proj.weight_scale");
		memcpy(checkpoint_find(ATTN "q_proj.weight_scale")->bytes, &far_apart[0], 4);
		memcpy(checkpoint_find(ATTN "k_proj.weight_scale")->bytes, &far_apart[equal ? 0 : 1], 4);
		memcpy(checkpoint_find(ATTN "v_proj.weight_scale")->bytes, &far_apart[equal ? 0 : 2], 4);
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
		checkpoint_expect(view, ATTN "qkv_proj.weight",
				  ATTN "q_proj.weight[64:128] " ATTN "k_proj.weight[16:32] " ATTN
				       "v_proj.weight[16:32]");
		checkpoint_expect(view, ATTN "qkv_proj.weight_scale",
				  ATTN "q_proj.weight_scale " ATTN "k_proj.weight_scale " ATTN "v_proj.weight_scale");
		sl_view_close(view);
		again();
	}
	given_fp8("nvfp4");
	struct checkpoint_tensor *t = checkpoint_find(MLP "down_proj.weight_scale");
	for (uint64_t b = 0; b < t->len; b++)
		t->bytes[b] = (unsigned char)b;
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	checkpoint_expect(view, MLP "down_proj.weight_scale", MLP "down_proj.weight_scale[:,4:8]");
	sl_view_close(view);
	sl_model_close(model);
}

/* The checkpoints' noise has both signs, which scales have not. */
static void make_scales_positive(void)
{
	struct checkpoint_tensor *t;

	for (unsigned n = 0; (t = checkpoint_at(n)); n++) {
		uint64_t size = t->n ? t->len / t->n : 0;
		for (uint64_t i = 0; strstr(t->name, "scale") && size && i < t->n; i++)
			t->bytes[i * size + size - 1] &= 0x7F;
	}
}

/* `rankfs check` reads the scales: one that is no number, or none to multiply with, is an error in no engine. */
Test(quantised, B119_scales_that_scale_nothing)
{
	static const struct {
		const char *format, *name;
		float value;
		bool fits;
	} cases[] = {
		{ "fp8-tensor", ATTN "k_proj.weight_scale", 0, false },
		{ "fp8-tensor", ATTN "k_proj.weight_scale", -1, false },
		{ "fp8-tensor", MLP "up_proj.input_scale", 0, true },
		{ "fp8-tensor", MLP "up_proj.input_scale", -0.5f, false },
		{ "fp8-block", MLP "down_proj.weight_scale_inv", __builtin_inff(), false },
		{ "fp8-block", MLP "down_proj.weight_scale_inv", __builtin_nanf(""), false },
		{ "ct-channel", MLP "down_proj.weight_scale", 0, false },
		{ "int8-channel", ATTN "o_proj.weight_scale", 0, false },
		{ "nvfp4", ATTN "o_proj.weight_global_scale", 0, false },
		{ "gptq", ATTN "o_proj.scales", 0, true }, /* of groups: not read */
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		struct sl_error err = SL_ERROR_INIT;
		given_fp8(cases[i].format);
		make_scales_positive();
		struct checkpoint_tensor *t = checkpoint_find(cases[i].name);
		uint64_t size = t->len / t->n, last = t->n - 1;
		if (size == 4)
			memcpy(t->bytes + last * size, &cases[i].value, 4);
		else
			memset(t->bytes + last * size, 0, size);
		opened();
		int ret = sl_check_scales(model, &err);
		cr_assert_eq(ret, cases[i].fits ? 0 : -EINVAL, "%s: %s", cases[i].name, err.text);
		char want[200];
		snprintf(want, sizeof(want), "'%s': element %u is ", cases[i].name, (unsigned)last);
		cr_assert(cases[i].fits || strstr(err.text, want), "'%s' lacks '%s'", err.text, want);
		again();
	}
}

/* More ranks than kv heads: rows of scales are replicated with the blocks that they scale. */
Test(quantised, B81_blocks_of_replicated_heads)
{
	static const char scale[] = "_proj.weight_scale_inv";
	char parts[600];

	given_fp8("fp8-block");
	opened();
	for (unsigned r = 0; r < 8; r++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp8", 0, r);
		snprintf(parts, sizeof(parts), ATTN "q%s[%u:%u] " ATTN "k%s[%u:%u] " ATTN "v%s[%u:%u]", scale, 4 * r,
			 4 * r + 4, scale, r / 4 * 4, r / 4 * 4 + 4, scale, r / 4 * 4, r / 4 * 4 + 4);
		checkpoint_expect(view, ATTN "qkv_proj.weight_scale_inv", parts);
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* Of a matrix of which ranks share the columns: scales of channels are whole everywhere, those of groups are cut with them. */
Test(quantised, B115_B140_scales_of_shared_columns)
{
	given_fp8("ct-channel");
	opened();
	for (unsigned r = 0; r < 2; r++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, r);
		const struct sl_output *out = sl_view_find(view, ATTN "o_proj.weight_scale");
		cr_assert(out && out->n_dims == 2 && out->shape[0] == 64 && out->shape[1] == 1);
		sl_view_close(view);
	}
	again();
	given("qwen3-moe", format_find("w4a16"), format_find("w4a16")->config);
	opened();
	for (unsigned tp = 1; tp <= 4; tp *= 2) {
		char path[16];
		snprintf(path, sizeof(path), "vllm/tp%u", tp);
		struct sl_view *view = checkpoint_view(model, path, 0, tp - 1);
		const struct sl_output *words = sl_view_find(view, HELD "w2_weight_packed"),
				       *scales = sl_view_find(view, HELD "w2_weight_scale");
		cr_assert(words && scales);
		cr_assert_eq(words->shape[2] * 8 / 8, scales->shape[2], "8 to a word, 8 to a group");
		cr_assert_eq(scales->shape[2], EXPERT_ROWS / 8 / tp);
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* ---- some parts only ---- */

Test(quantised, B116_one_part_is_plain)
{
	given_fp8("fp8-block");
	checkpoint_drop(ATTN "k_proj.weight_scale_inv");
	checkpoint_replace("BF16", "32 64", ATTN "k_proj.weight");
	opened();
	checkpoint_view_refused(model, "vllm/tp1", "self_attn.q_proj", "self_attn.k_proj", "layer 0",
				"stored differently", "FP8 blocks", "plain", NULL);
	/* Before any view is opened: no listing shows a layout that then fails. */
	for (unsigned tp = 1; tp <= 8; tp *= 2) {
		struct sl_layout layout = { .tp = tp, .pp = 1, .dtype = -1 };
		cr_assert_eq(sl_layout_check(model, &sl_engines[SL_VLLM], &layout, NULL), -EINVAL);
	}
	/* Where nothing is joined, each is what it is. */
	struct sl_view *view = checkpoint_view(model, "hf/tp2", 0, 1);
	checkpoint_expect(view, ATTN "k_proj.weight", ATTN "k_proj.weight[16:32]");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B116_one_expert_is_plain)
{
	given("qwen3-moe", format_find("fp8-block"), format_find("fp8-block")->config);
	checkpoint_drop(MOE "3.up_proj.weight_scale_inv");
	checkpoint_replace("BF16", "128 64", MOE "3.up_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("'" MOE "3.up_proj.weight'", "plain", "FP8 blocks", NULL);
}

Test(quantised, B113_input_scales_of_some_parts)
{
	static const char *const dropped[] = { ATTN "q_proj.input_scale", ATTN "v_proj.input_scale" };

	for (size_t i = 0; i < LEN(dropped); i++) {
		given_fp8("fp8-tensor");
		checkpoint_drop(dropped[i]);
		opened();
		checkpoint_view_refused(model, "vllm/tp2", i ? "'self_attn.v_proj'" : "'self_attn.q_proj'",
					"only one has a '.input_scale'", NULL);
		again();
	}
	given("qwen3-moe", format_find("fp8-tensor"), format_find("fp8-tensor")->config);
	checkpoint_drop(MOE "2.down_proj.input_scale");
	checkpoint_write(1);
	checkpoint_refused("only one of '" MOE "2.down_proj.weight'", "'.input_scale'", NULL);
}

/* Without any the engine has none either. */
Test(quantised, B113_no_input_scales)
{
	given("llama", format_find("ct-tensor"), format_find("fp8-tensor")->config);
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	cr_assert(!sl_view_find(view, ATTN "qkv_proj.input_scale") && sl_view_find(view, ATTN "qkv_proj.weight_scale"));
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- configurations that the tensors contradict ---- */

Test(quantised, B121_weights_converted_back)
{
	static const char *const members[] = {
		"\"quant_method\":\"fp8\"",	 "\"quant_method\":\"compressed-tensors\"",
		"\"quant_method\":\"modelopt\"", GPTQ_MEMBERS("4", "128"),
		AWQ_MEMBERS("4", "128"),	 "\"quant_method\":\"mxfp8\""
	};

	for (size_t i = 0; i < LEN(members); i++) {
		char config[200];
		snprintf(config, sizeof(config), QUANT("%s"), members[i]);
		given("llama", NULL, config);
		checkpoint_write(1);
		checkpoint_refused("config.json says the weights are quantised", "none is", "no scale", NULL);
	}
	given("llama", NULL, "");
	fixture_text("hf_quant_config.json", "{}");
	checkpoint_write(1);
	checkpoint_refused("own configuration says the weights are quantised", "modelopt", NULL);
}

/* Only the KV cache may be quantised. */
Test(quantised, B121_scales_of_the_cache_alone)
{
	given("llama", NULL, QUANT("\"quant_method\":\"compressed-tensors\",\"kv_cache_scheme\":{}"));
	checkpoint_add("F32", "1", ATTN "k_scale");
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
	checkpoint_expect(view, ATTN "attn.k_scale", ATTN "k_scale");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, scales_without_a_configuration)
{
	given_fp8("fp8-block");
	fixture_text("config.json",
		     "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":64,"
		     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":16,"
		     "\"intermediate_size\":128,\"vocab_size\":64}");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "q_proj.weight' is F8_E4M3", "no quantization_config", NULL);
}

/* What an ignore list excepts, and what no list does: the tensors say what is stored, and no scale is asked for. */
Test(quantised, B131_B132_excepted_layers)
{
	static const char *const lists[] = {
		"\"ignored_layers\":[\"model.layers.0.mlp.down_proj\"]",
		"\"modules_to_not_convert\":[\"mlp.gate_up_proj\",\"model.layers.0.mlp.down_proj\"]",
		"\"ignore\":[\"re:.*mlp.*\",\"lm_head\"]",
	};

	for (size_t i = 0; i < LEN(lists); i++) {
		char config[200];
		snprintf(config, sizeof(config), QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[4,8],%s"),
			 lists[i]);
		given("llama", NULL, config);
		linear_quantise(format_find("fp8-block"), "self_attn.");
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
		expect_attention(view, format_find("fp8-block"), 0);
		checkpoint_expect(view, MLP "down_proj.weight", MLP "down_proj.weight[:,64:128]");
		checkpoint_expect(view, MLP "gate_up_proj.weight",
				  MLP "gate_proj.weight[64:128] " MLP "up_proj.weight[64:128]");
		cr_assert(!sl_view_find(view, MLP "down_proj.weight_scale_inv"));
		sl_view_close(view);
		again();
	}
}

/* ---- blocks ---- */

static const struct component blocks_of_4_by_8[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale_inv", "weight_scale_inv", "F32", .out = 4, .in = 8 },
};
static const struct format block_format = { "blocks", "", blocks_of_4_by_8, 2, .n_cache_scales = 4 };

/* An MLA family: its two down projections are one matrix, whole; `latent` rows are the second's. */
static void given_latent(unsigned q_rank, unsigned kv_rank)
{
	struct family f = *family_find("deepseek");

	f.more.A = q_rank;
	f.more.C = kv_rank;
	family_build(&f, &f.sizes, "BF16", "bfloat16", false,
		     QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[4,8]"));
	linear_quantise(&block_format, "a_proj");
}

/* 576 rows in blocks of 128 are 5 blocks; here 23 in blocks of 4 are 6, behind 12 rows that are 3. */
Test(quantised, B125_last_block_of_fewer_rows)
{
	given_latent(12, 19);
	opened();
	for (unsigned rank = 0; rank < 2; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, rank);
		linear_expect(view, &block_format, ATTN "fused_qkv_a_proj", '.',
			      ATTN "q_a_proj " ATTN "kv_a_proj_with_mqa");
		cr_assert_eq(sl_view_find(view, ATTN "fused_qkv_a_proj.weight_scale_inv")->shape[0], 9);
		sl_view_close(view);
	}
	sl_model_close(model);
}

/* The first of two may not end inside a block: the second one's scales would be for other rows. */
Test(quantised, B129_block_of_two_matrices)
{
	given_latent(10, 20);
	opened();
	checkpoint_view_refused(model, "vllm/tp1", ATTN "q_a_proj.weight", "10 rows", "blocks of 4", NULL);
	struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);
	expect_source(view);
	sl_view_close(view);
	sl_model_close(model);
}

static void given_blocks(unsigned inter, const char *config)
{
	struct sizes sizes = even;

	sizes.I = inter;
	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, config);
	linear_quantise(&block_format, "mlp.");
}

#define BLOCKS_4_8 QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[4,8]")

Test(quantised, B127_cut_inside_a_block_of_rows)
{
	given_blocks(24, BLOCKS_4_8);
	opened();
	checkpoint_view_refused(model, "vllm/tp4", "vllm/tp4", MLP "gate_proj.weight", "6 rows", "blocks of 4",
				"(tp 1 works)", NULL);
	sl_model_close(model);
}

Test(quantised, B127_cut_inside_a_block_of_columns)
{
	given_blocks(24, BLOCKS_4_8);
	opened();
	checkpoint_view_refused(model, "hf/tp2", "hf/tp2", MLP "down_proj.weight", "12 columns", "blocks of 8", NULL);
	sl_model_close(model);
}

Test(quantised, B127_part_that_ends_inside_a_block)
{
	given_blocks(22, BLOCKS_4_8);
	opened();
	checkpoint_view_refused(model, "vllm/tp1", MLP "gate_proj.weight", "22 rows", "blocks of 4", NULL);
	struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);
	expect_source(view);
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B130_block_sizes_that_are_none)
{
	static const char *const sizes[] = {
		"",
		",\"weight_block_size\":null",
		",\"weight_block_size\":\"4x8\"",
		",\"weight_block_size\":[\"4\",\"8\"]",
		",\"weight_block_size\":[4]",
		",\"weight_block_size\":[4,8,1]",
		",\"weight_block_size\":[0,8]",
		",\"weight_block_size\":[4,0]",
		",\"weight_block_size\":[-4,-8]",
		",\"weight_block_size\":[4.5,8]",
		",\"weight_block_size\":{\"a\":4,\"b\":8}",
		",\"weight_block_size\":[[4,8],[4,8]]",
		",\"weight_block_size\":[4294967296,8]",
		",\"weight_block_size\":[18446744073709551615,18446744073709551615]",
		",\"weight_block_size\":[99999999999999999999,8]",
	};

	for (size_t i = 0; i < LEN(sizes); i++) {
		char config[200];
		snprintf(config, sizeof(config), QUANT("\"quant_method\":\"fp8\"%s"), sizes[i]);
		given_blocks(24, config);
		checkpoint_write(1);
		checkpoint_refused("'" MLP, "weight_scale_inv' scales blocks", "no weight_block_size", NULL);
	}
}

Test(quantised, B130_scales_of_other_blocks)
{
	static const struct {
		const char *block, *shape;
	} cases[] = {
		{ "[4,8]", "5 8" },  { "[4,8]", "6 7" }, { "[4,8]", "7 8" }, { "[8,8]", "6 8" },
		{ "[4,16]", "6 8" }, { "[1,8]", "6 8" }, { "[8,4]", "6 8" }, { "[128,128]", "6 8" },
	};

	for (size_t i = 0; i < LEN(cases); i++) {
		char config[200], rows[20];
		snprintf(config, sizeof(config), QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":%s"),
			 cases[i].block);
		given_blocks(24, config);
		checkpoint_replace("F32", cases[i].shape, MLP "gate_proj.weight_scale_inv");
		checkpoint_write(1);
		snprintf(rows, sizeof(rows), "[%c, %c]", cases[i].shape[0], cases[i].shape[2]);
		checkpoint_refused("'" MLP "gate_proj.weight_scale_inv'", rows, "its weight [24, 64] needs", NULL);
	}
}

/* Blocks of the shapes that configurations have, on a matrix of which the last ones are cut by its end. */
Test(quantised, B130_block_sizes)
{
	static const struct {
		const char *block, *shape;
	} cases[] = { { "[128,128]", "1 1" },
		      { "[1,128]", "24 1" },
		      { "[64,64]", "1 1" },
		      { "[24,1]", "1 64" },
		      { "[1073741824,1073741824]", "1 1" } };

	for (size_t i = 0; i < LEN(cases); i++) {
		char config[200];
		snprintf(config, sizeof(config), QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":%s"),
			 cases[i].block);
		given("llama", NULL, config);
		checkpoint_replace("F8_E4M3", "64 128", MLP "down_proj.weight");
		const char *down[] = { "1 1", "64 1", "1 2", "3 128", "1 1" };
		checkpoint_add("F32", down[i], MLP "down_proj.weight_scale_inv");
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
		checkpoint_expect(view, MLP "down_proj.weight_scale_inv", MLP "down_proj.weight_scale_inv");
		sl_view_close(view);
		again();
	}
}

/* ---- groups ---- */

static void given_groups(const char *format, unsigned inter, const char *config)
{
	struct sizes sizes = even;
	const struct format *f = format_find(format);

	sizes.I = inter;
	family_build(family_find("llama"), &sizes, "BF16", "bfloat16", false, config ? config : f->config);
	linear_quantise(f, "_proj.weight");
}

Test(quantised, B133_cut_inside_a_group)
{
	static const struct {
		const char *format, *name, *blocks;
		unsigned inter;
	} cases[] = { { "gptq", MLP "down_proj.qweight", "blocks of 32", 96 },
		      { "awq", MLP "down_proj.qweight", "blocks of 16", 48 },
		      { "w4a16-zeros", MLP "down_proj.weight_packed", "blocks of 16", 48 },
		      { "nvfp4", MLP "down_proj.weight_packed", "blocks of 16", 48 },
		      { "nvfp4-modelopt", MLP "down_proj.weight", "blocks of 16", 48 } };

	for (size_t i = 0; i < LEN(cases); i++) {
		char columns[40];
		snprintf(columns, sizeof(columns), "%u columns", cases[i].inter / 2);
		given_groups(cases[i].format, cases[i].inter, NULL);
		opened();
		checkpoint_view_refused(model, "vllm/tp2", "vllm/tp2", cases[i].name, columns, cases[i].blocks,
					"(tp 1 works)", NULL);
		checkpoint_view_refused(model, "hf/tp2", cases[i].name, columns, cases[i].blocks, NULL);
		again();
	}
}

/* One group of all columns has no border to cut; one of group_size columns has, when there happen to be as many. */
Test(quantised, B135_one_group)
{
	const struct format *f = format_find("gptq-8");

	given_groups("gptq-8", 128, NULL);
	opened();
	for (unsigned rank = 0; rank < 4; rank++) {
		struct sl_view *view = checkpoint_view(model, "vllm/tp4", 0, rank);
		checkpoint_expect(view, MLP "down_proj.scales", MLP "down_proj.scales");
		checkpoint_expect(view, MLP "down_proj.qzeros", MLP "down_proj.qzeros");
		sl_view_close(view);
	}
	expect_llama(f, "vllm/tp2");
	again();
	given("llama", NULL, QUANT(GPTQ_MEMBERS("8", "128")));
	linear_quantise(f, "down_proj");
	opened();
	checkpoint_view_refused(model, "vllm/tp2", MLP "down_proj.qweight", "64 columns", "blocks of 128", NULL);
	sl_model_close(model);
}

Test(quantised, B135_group_size_that_the_scales_contradict)
{
	static const char *const sizes[] = { "8", "32", "64", "17" };

	for (size_t i = 0; i < LEN(sizes); i++) {
		char config[200], want[40];
		snprintf(config, sizeof(config), QUANT(AWQ_MEMBERS("4", "%s")), sizes[i]);
		given_groups("awq", 128, config);
		checkpoint_write(1);
		snprintf(want, sizeof(want), "should have %s (group_size)", sizes[i]);
		checkpoint_refused("groups of 16 columns", want, NULL);
	}
	given_groups("nvfp4", 128, NULL);
	checkpoint_replace("F8_E4M3", "64 4", MLP "down_proj.weight_scale");
	checkpoint_write(1);
	checkpoint_refused("'" MLP "down_proj.weight_scale' has groups of 32", "should have 16 (NVFP4)", NULL);
}

/* A group_size that says nothing leaves it to the shapes. */
Test(quantised, group_sizes_that_say_nothing)
{
	static const char *const sizes[] = { "0", "\"x\"", "-1", "99999999999999999999" };

	for (size_t i = 0; i < LEN(sizes); i++) {
		char config[200];
		snprintf(config, sizeof(config), QUANT(AWQ_MEMBERS("4", "%s")), sizes[i]);
		given_groups("awq", 128, config);
		opened();
		expect_llama(format_find("awq"), "vllm/tp2");
		again();
	}
}

/* Words of AWQ hold 8 rows of one column, those of GPTQ 8 columns of one row. */
Test(quantised, B137_words_along_other_axes)
{
	given_fp8("awq");
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	checkpoint_expect(view, MLP "down_proj.qweight", MLP "down_proj.qweight[64:128]");
	checkpoint_expect(view, MLP "down_proj.qzeros", MLP "down_proj.qzeros[4:8]");
	sl_view_close(view);
	again();
	given_fp8("gptq");
	opened();
	view = checkpoint_view(model, "vllm/tp2", 0, 1);
	checkpoint_expect(view, MLP "down_proj.qweight", MLP "down_proj.qweight[8:16]");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B137_cut_inside_a_word)
{
	given_groups("awq", 80, NULL);
	opened();
	checkpoint_view_refused(model, "vllm/tp4", MLP "gate_proj.qweight", "20 rows", "blocks of 8", NULL);
	sl_model_close(model);
}

/* The same shapes in the other packing are caught by config.json: AWQ's words would be 8 times as many rows. */
Test(quantised, B137_the_other_packing)
{
	given("llama", format_find("awq"), format_find("gptq")->config);
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "q_proj.qweight'", "16 rows", "128 (heads x head_dim)", NULL);
	given("llama", format_find("gptq"), format_find("awq")->config);
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "q_proj.qweight'", "1024 rows", "128 (heads x head_dim)", NULL);
}

/* Zero points are never computed with: v1's 0x77777777 stays what it is. */
Test(quantised, B136_B138_zero_points)
{
	given_fp8("gptq");
	memset(checkpoint_find(MLP "down_proj.qzeros")->bytes, 0x77, checkpoint_find(MLP "down_proj.qzeros")->len);
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
	checkpoint_expect(view, MLP "down_proj.qzeros", MLP "down_proj.qzeros[0:2]");
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B142_zero_points_that_are_not_packed)
{
	refused_after_replacing("gptq", "I32", "2 128", ATTN "q_proj.qzeros", "[128, 2]", "needs [16, 2]");
	refused_after_replacing("w4a16-zeros", "I32", "128 4", ATTN "q_proj.weight_zero_point", "[128, 4]",
				"needs [16, 4]");
}

/* Which row a group belongs to is dropped where groups are in order. */
Test(quantised, B136_g_idx_is_dropped)
{
	given_fp8("gptq");
	checkpoint_add("I32", "64", ATTN "q_proj.g_idx");
	checkpoint_add("I32", "128", MLP "down_proj.g_idx");
	opened();
	expect_llama(format_find("gptq"), "vllm/tp2");
	struct sl_view *view = checkpoint_view(model, "hf/tp1", 0, 0);
	expect_source(view);
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, B143_zero_biases_of_quantisers)
{
	given_fp8("gptq");
	checkpoint_add("F16", "128", ATTN "q_proj.bias");
	checkpoint_add("F16", "64", MLP "down_proj.bias");
	checkpoint_zero(ATTN "q_proj.bias");
	checkpoint_zero(MLP "down_proj.bias");
	opened();
	cr_assert_eq(model->n_ignored, 2);
	cr_assert(checkpoint_has_note(model, "2 all-zero biases"));
	expect_llama(format_find("gptq"), "vllm/tp2");
	again();
	given_fp8("gptq");
	checkpoint_add("F16", "128", ATTN "q_proj.bias");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is unexpected", "'" ATTN "q_proj.bias'", NULL);
}

/* 48 rows on two ranks, each half filled up to 256 by itself: the kernel takes gate and up apart. */
Test(quantised, B147_each_half_is_padded)
{
	static const struct component mxfp4[] = {
		{ ".weight_packed", "weight", "U8", .out = 1, .in = 2 },
		{ ".weight_scale", "weight_scale", "U8", .out = 1, .in = 32 },
	};
	static const struct format format = { "mxfp4", "", mxfp4, 2, .n_cache_scales = 6 };
	struct family f = sized("qwen3-moe");

	f.sizes.H = 64;
	f.more.E = 2;
	f.more.J = 96;
	family_build(
		&f, &f.sizes, "BF16", "bfloat16", false,
		QUANT("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,"
		      "\"group_size\":32}}}"));
	linear_quantise(&format, "mlp.experts.");
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp1", 0, 0);
	const struct sl_output *out = sl_view_find(view, HELD "w13_weight");
	cr_assert(out && out->n_dims == 3 && out->shape[1] == 512 && out->shape[2] == 128);
	unsigned char *got = checkpoint_read(view, out);
	for (unsigned i = 0; i < 2 * 512; i++) {
		char name[100];
		unsigned row = i % 256;
		snprintf(name, sizeof(name), MOE "%u.%s_proj.weight_packed", i / 512, i % 512 < 256 ? "gate" : "up");
		for (unsigned c = 0; c < 128; c++)
			cr_assert_eq(got[i * 128 + c],
				     row < 96 && c < 32 ? checkpoint_find(name)->bytes[row * 32 + c] : 0);
	}
	free(got);
	out = sl_view_find(view, HELD "w2_weight_scale");
	cr_assert(out && out->shape[1] == 256 && out->shape[2] == 8);
	got = checkpoint_read(view, out);
	for (unsigned i = 0; i < 512 * 8; i++) {
		char name[100];
		unsigned row = i / 8 % 256, c = i % 8;
		snprintf(name, sizeof(name), MOE "%u.down_proj.weight_scale", i / 2048);
		cr_assert_eq(got[i], row < 64 && c < 3 ? checkpoint_find(name)->bytes[row * 3 + c] : 0);
	}
	free(got);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- missing ---- */

/* Every component that a format needs, of every format, named exactly. */
Test(quantised, B150_each_component_is_needed)
{
	for (unsigned i = 0; i < n_formats; i++) {
		const struct format *f = &formats[i];
		for (unsigned c = 0; c < f->n_components; c++) {
			char name[100], quoted[110];
			if (strstr(f->components[c].stored, "input_") || strstr(f->components[c].stored, "zero_point"))
				continue; /* static activations, asymmetric weights */
			given("llama", f, f->config);
			snprintf(name, sizeof(name), MLP "down_proj%s", f->components[c].stored);
			checkpoint_drop(name);
			checkpoint_write(1);
			snprintf(quoted, sizeof(quoted), "'%s'", c ? name : MLP "down_proj.weight");
			checkpoint_refused("1 tensor is missing", quoted, NULL);
		}
	}
}

Test(quantised, B150_one_expert_without_its_scale)
{
	given("qwen3-moe", format_find("nvfp4"), format_find("nvfp4")->config);
	checkpoint_drop(MOE "4.down_proj.weight_global_scale");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'" MOE "4.down_proj.weight_global_scale'", NULL);
}

/* ---- scales of KV caches ---- */

static void expect_number(const struct sl_view *view, const char *output, enum sl_dtype dtype, unsigned n_dims,
			  double value)
{
	const struct sl_output *out = sl_view_find(view, output);
	uint32_t bits = 0;

	cr_assert(out != NULL, "there is no '%s'", output);
	cr_assert(out->dtype == dtype && out->n_dims == n_dims, "%s is %s with %u dimensions", output,
		  sl_dtypes[out->dtype].name, out->n_dims);
	unsigned char *got = checkpoint_read(view, out);
	float want = (float)value, have;
	memcpy((char *)&bits + (4 - out->len), got, out->len);
	memcpy(&have, &bits, sizeof(have));
	cr_assert(have == want, "%s is %g, not %g", output, (double)have, value);
	free(got);
}

static void add_number(const char *name, const char *shape, float value)
{
	checkpoint_add("F32", shape, "%s", name);
	memcpy(checkpoint_find(name)->bytes, &value, sizeof(value));
}

/* All spellings that quantisers have had for them arrive. */
Test(quantised, B59_spellings_of_cache_scales)
{
	static const char *const names[][2] = {
		{ "k_proj.k_scale", "v_proj.v_scale" },
		{ "qkv_proj.k_scale", "qkv_proj.v_scale" },
		{ "k_scale", "v_scale" },
		{ "attn.k_scale", "attn.v_scale" },
		{ "k_proj.output_scale", "v_proj.output_scale" },
		{ "k_cache.scale", "v_cache.scale" },
	};

	for (size_t i = 0; i < LEN(names); i++) {
		char name[100];
		given_fp8("fp8-block");
		for (unsigned n = 0; n < 2; n++) {
			snprintf(name, sizeof(name), ATTN "%s", names[i][n]);
			add_number(name, i % 2 ? "1" : "", n ? 0.25f : 0.5f);
		}
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
		expect_number(view, ATTN "attn.k_scale", SL_BF16, 0, 0.5);
		expect_number(view, ATTN "attn.v_scale", SL_BF16, 0, 0.25);
		expect_number(view, ATTN "attn.q_scale", SL_BF16, 0, -1);
		expect_number(view, ATTN "attn.prob_scale", SL_BF16, 0, -1);
		expect_number(view, ATTN "attn._k_scale", SL_F32, 0, 1);
		sl_view_close(view);
		again();
	}
}

Test(quantised, B59_kv_scale_is_for_both)
{
	given_fp8("fp8-modelopt");
	add_number(ATTN "kv_scale", "", 0.125f);
	add_number(ATTN "q_proj.output_scale", "", 2);
	add_number(ATTN "prob_output_scale", "1", 4);
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	expect_number(view, ATTN "attn.k_scale", SL_BF16, 0, 0.125);
	expect_number(view, ATTN "attn.v_scale", SL_BF16, 0, 0.125);
	expect_number(view, ATTN "attn.q_scale", SL_BF16, 0, 2);
	expect_number(view, ATTN "attn.prob_scale", SL_BF16, 0, 4);
	sl_view_close(view);
	sl_model_close(model);
}

Test(quantised, scales_and_zero_points_of_compressed_tensors)
{
	given_fp8("ct-channel");
	add_number(ATTN "k_scale", "1", 0.5f);
	add_number(ATTN "v_zero_point", "1", 3);
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	expect_number(view, ATTN "attn.k_scale", SL_F32, 1, 0.5);
	expect_number(view, ATTN "attn.v_scale", SL_F32, 1, 1);
	expect_number(view, ATTN "attn.q_scale", SL_F32, 1, 1);
	expect_number(view, ATTN "attn.k_zero_point", SL_BF16, 1, 0);
	expect_number(view, ATTN "attn.v_zero_point", SL_BF16, 1, 3);
	expect_number(view, ATTN "attn.q_zero_point", SL_BF16, 1, 0);
	cr_assert(!sl_view_find(view, ATTN "attn.prob_scale"));
	sl_view_close(view);
	sl_model_close(model);
}

/* One for each head is another thing; an integer that would be taken for its value is, too. */
Test(quantised, cache_scales_of_another_form)
{
	given_fp8("ct-channel");
	checkpoint_add("F32", "2", ATTN "k_scale");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "k_scale' has 2 elements of F32", "one number", NULL);
	given_fp8("ct-channel");
	checkpoint_add("I8", "1", ATTN "k_zero_point");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "k_zero_point' has 1 elements of I8", "one number", NULL);
	given_fp8("ct-channel");
	checkpoint_add("F32", "0", ATTN "v_scale");
	checkpoint_write(1);
	checkpoint_refused("'" ATTN "v_scale' has 0 elements", "one number", NULL);
}

/* FP8 gives latent attention none, ModelOpt does. */
Test(quantised, cache_scales_of_latent_attention)
{
	static const struct {
		const char *format;
		bool held;
	} cases[] = { { "fp8-tensor", false }, { "fp8-modelopt", true } };

	for (size_t i = 0; i < LEN(cases); i++) {
		const struct format *f = format_find(cases[i].format);
		struct family deepseek = *family_find("deepseek");
		family_build(&deepseek, &deepseek.sizes, "BF16", "bfloat16", false, f->config);
		linear_quantise(f, "o_proj");
		opened();
		struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 0);
		cr_assert_eq(sl_view_find(view, ATTN "mla_attn.mla_attn.k_scale") != NULL, cases[i].held);
		expect_number(view, ATTN "mla_attn.mla_attn._k_scale", SL_F32, 0, 1);
		sl_view_close(view);
		again();
	}
}

/* ---- fbgemm ---- */

static const struct component fbgemm[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "F32", .out = 1 },
};
static const struct format fbgemm_format = { "fbgemm", "", fbgemm, 2, .n_cache_scales = 0 };

#define FBGEMM(more) QUANT("\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.0" more)

Test(quantised, fbgemm_has_an_upper_bound)
{
	given("llama", &fbgemm_format, FBGEMM(",\"modules_to_not_convert\":[\"lm_head\"]"));
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	expect_attention(view, &fbgemm_format, 0);
	expect_mlp(view, &fbgemm_format);
	expect_number(view, ATTN "qkv_proj.input_scale_ub", SL_F32, 0, 1200);
	expect_number(view, MLP "down_proj.input_scale_ub", SL_F32, 0, 1200);
	checkpoint_expect(view, "lm_head.weight", "lm_head.weight[32:64]");
	sl_view_close(view);
	view = checkpoint_view(model, "hf/tp1", 0, 0);
	expect_source(view);
	sl_view_close(view);
	sl_model_close(model);
}

/* What no list excepts is converted, and its scales are what they are until they are loaded; both spellings of a list's
 * entry, a module and what is above it, except. */
Test(quantised, fbgemm_converts_what_no_list_excepts)
{
	given("llama", NULL, FBGEMM(",\"modules_to_not_convert\":[\"model.layers.0.self_attn\",\"" MLP "down_proj\"]"));
	linear_quantise(&fbgemm_format, "mlp.gate_proj");
	opened();
	checkpoint_view_refused(model, "vllm/tp2", "only one has a '.weight_scale'", NULL);
	again();
	given("llama", NULL, FBGEMM(",\"modules_to_not_convert\":[\"model.layers.0.self_attn\",\"" MLP "down_proj\"]"));
	opened();
	struct sl_view *view = checkpoint_view(model, "vllm/tp2", 0, 1);
	checkpoint_expect(view, ATTN "o_proj.weight", ATTN "o_proj.weight[:,64:128]");
	checkpoint_expect(view, MLP "down_proj.weight", MLP "down_proj.weight[:,64:128]");
	cr_assert(!sl_view_find(view, ATTN "o_proj.weight_scale") && !sl_view_find(view, MLP "down_proj.weight_scale"));
	const struct sl_output *out = sl_view_find(view, MLP "gate_up_proj.weight");
	cr_assert(out && out->dtype == SL_F8_E4M3 && out->shape[0] == 128 && out->shape[1] == 64);
	out = sl_view_find(view, MLP "gate_up_proj.weight_scale");
	cr_assert(out && out->dtype == SL_F32 && out->n_dims == 2 && out->shape[0] == 128 && out->shape[1] == 1);
	float *scales = (float *)(void *)checkpoint_read(view, out);
	for (unsigned i = 0; i < 128; i++)
		cr_assert(scales[i] == -3.4028234663852886e38f);
	free(scales);
	sl_view_close(view);
	sl_model_close(model);
}

/* ---- the served config.json of GPTQ ---- */

static char *served_config(const char *path)
{
	struct sl_view *view = checkpoint_view(model, path, 0, 0);
	const struct sl_file *file = checkpoint_file(view, "config.json");
	char *text = file ? (char *)checkpoint_read_file(file) : NULL;

	sl_view_close(view);
	return text;
}

static void expect_modules(const char *path, const char *want)
{
	char *text = served_config(path);

	cr_assert(text && strstr(text, want), "'%s' is not in %s", want, text);
	free(text);
}

Test(quantised, gptq_lists_its_modules)
{
	given_fp8("gptq");
	opened();
	expect_modules("vllm/tp2",
		       "\"modules_in_block_to_quantize\": [[\"self_attn.q_proj\", \"self_attn.k_proj\", "
		       "\"self_attn.v_proj\"], [\"self_attn.o_proj\"], [\"mlp.gate_proj\", \"mlp.up_proj\"], "
		       "[\"mlp.down_proj\"]]");
	cr_assert(served_config("hf/tp1") == NULL);
	sl_model_close(model);
}

Test(quantised, gptq_that_lists_them_already)
{
	given("llama", format_find("gptq"),
	      QUANT(GPTQ_MEMBERS("4", "32") ",\"modules_in_block_to_quantize\":[[\"x\"]]"));
	opened();
	cr_assert(served_config("vllm/tp2") == NULL);
	sl_model_close(model);
}

/* Modules that only some layers have are listed too: experts, by the module above them. */
Test(quantised, gptq_of_experts)
{
	given("qwen3-moe", NULL, format_find("gptq")->config);
	linear_quantise(format_find("gptq"), "mlp.");
	opened();
	expect_modules("vllm/tp1", "\"modules_in_block_to_quantize\": [[\"mlp.gate_proj\", \"mlp.up_proj\"], "
				   "[\"mlp.down_proj\"], ");
	expect_modules("vllm/tp2-ep", "\"mlp.experts");
	sl_model_close(model);
}

Test(quantised, other_schemes_leave_config_json_alone)
{
	static const char *const names[] = { "awq", "fp8-block", "nvfp4" };

	for (size_t i = 0; i < LEN(names); i++) {
		given_fp8(names[i]);
		opened();
		cr_assert(served_config("vllm/tp2") == NULL);
		again();
	}
}

/* ---- refused ---- */

/* Sizes and groups of which vLLM holds experts in bytes instead of words; whoever joins nothing has them as they are. */
Test(quantised, experts_in_another_layout)
{
	struct family f = sized("qwen3-moe");

	given("qwen3-moe", format_find("awq"), format_find("awq")->config);
	opened();
	checkpoint_view_refused(model, "vllm/tp1", "groups have 16 columns", "32, 64 or 128", NULL);
	sl_view_close(checkpoint_view(model, "hf/tp2", 0, 1));
	again();
	f.sizes.H = 64;
	family_build(&f, &f.sizes, "BF16", "bfloat16", false, format_find("gptq")->config);
	linear_quantise(format_find("gptq"), "mlp.experts.");
	opened();
	checkpoint_view_refused(model, "vllm/tp2-ep", "hidden size, 64", "no multiple of 128", NULL);
	again();
	/* Older releases have more beside them. */
	given("qwen3-moe", format_find("gptq"), format_find("gptq")->config);
	opened();
	checkpoint_view_refused(model, "vllm@0.28/tp1", "how it holds experts of GPTQ is not known: use vllm/", NULL);
	sl_model_close(model);
}

Test(quantised, int8_experts_that_vllm_does_not_have)
{
	given("qwen3-moe", format_find("int8-tensor"), format_find("int8-tensor")->config);
	checkpoint_write(1);
	checkpoint_refused("is of an expert, stored as INT8 per tensor", "scale per channel", NULL);
}

Test(quantised, B149_packers_that_are_known_and_refused)
{
	static const char *const methods[] = { "bitsandbytes", "torchao", "gguf", "qserve", "exl2",
					       "exl3",	       "hqq",	  "aqlm", "quark" };

	for (size_t i = 0; i < LEN(methods); i++) {
		char config[100], quoted[40];
		snprintf(config, sizeof(config), QUANT("\"quant_method\":\"%s\""), methods[i]);
		given("llama", NULL, config);
		checkpoint_add("F32", "64", ATTN "q_proj.weight.absmax");
		checkpoint_add("U8", "64 1", ATTN "q_proj.weight.quant_map");
		checkpoint_write(1);
		snprintf(quoted, sizeof(quoted), "'%s'", methods[i]);
		checkpoint_refused("config.json: quantisation", quoted, "refused", NULL);
	}
}

Test(quantised, dtypes_that_no_format_has)
{
	given_fp8("ct-tensor");
	checkpoint_replace("U8", "64 128", MLP "down_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("'" MLP "down_proj.weight' is U8", "'compressed-tensors'", NULL);
	given_fp8("fp8-block");
	checkpoint_replace("F8_E5M2", "64 128", MLP "down_proj.weight");
	checkpoint_write(1);
	checkpoint_refused("'" MLP "down_proj.weight' is F8_E5M2", "'fp8'", NULL);
}

/* A quantised embedding or head is no format of vLLM's. */
Test(quantised, B89_heads_are_never_quantised)
{
	given_fp8("awq");
	linear_quantise(format_find("awq"), "lm_head");
	checkpoint_write(1);
	checkpoint_refused("1 tensor is missing", "'lm_head.weight'", NULL);
}
