/*
 * linear.c - see linear.h. Every element is found by itself: there is no notion of a run of bytes.
 */
#include "linear.h"

#include "checkpoint.h"
#include "twin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a)	     (sizeof(a) / sizeof((a)[0]))
#define PARTS_OF(of) .components = of, .n_components = LEN(of)

enum { PARTS_MAX = 4, EXPERTS_MAX = 16 };

/* clang-format off */
static const struct component fp8_block[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale_inv", "weight_scale_inv", "F32", .out = 4, .in = 8 },
};
static const struct component fp8_block_bf16[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale_inv", "weight_scale_inv", "BF16", "F32", .out = 4, .in = 8 },
};
static const struct component fp8_tensor[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "BF16", "F32", .form = ONE_NUMBER },
	{ ".input_scale", "input_scale", "F32", .form = ONE_NUMBER },
};
static const struct component fp8_dynamic[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "F32", .form = ONE_NUMBER },
};
static const struct component fp8_channel[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "BF16", "F32", .out = 1 },
};
static const struct component w4a16[] = {
	{ ".weight_packed", "weight_packed", "I32", .out = 1, .in = 8 },
	{ ".weight_scale", "weight_scale", "F16", "", .out = 1, .in = 8 },
	{ ".weight_shape", "weight_shape", "I64", .form = UNSLICED },
};
static const struct component w4a16_zeros[] = {
	{ ".weight_packed", "weight_packed", "I32", .out = 1, .in = 8 },
	{ ".weight_scale", "weight_scale", "BF16", "", .out = 1, .in = 16 },
	{ ".weight_zero_point", "weight_zero_point", "I32", .out = 8, .in = 16 },
	{ ".weight_shape", "weight_shape", "I64", .form = UNSLICED },
};
static const struct component w8a16_channel[] = {
	{ ".weight_packed", "weight_packed", "I32", .out = 1, .in = 4 },
	{ ".weight_scale", "weight_scale", "BF16", "", .out = 1 },
	{ ".weight_shape", "weight_shape", "I64", .form = UNSLICED },
};
static const struct component nvfp4[] = {
	{ ".weight_packed", "weight_packed", "U8", .out = 1, .in = 2 },
	{ ".weight_scale", "weight_scale", "F8_E4M3", .out = 1, .in = 16 },
	{ ".weight_global_scale", "weight_global_scale", "F32", .form = ONE_NUMBER },
	{ ".input_global_scale", "input_global_scale", "F32", .form = ONE_NUMBER },
};
static const struct component nvfp4_modelopt[] = {
	{ ".weight", "weight", "U8", .out = 1, .in = 2 },
	{ ".weight_scale", "weight_scale", "F8_E4M3", .out = 1, .in = 16 },
	{ ".weight_scale_2", "weight_scale_2", "F32", .form = ONE_NUMBER },
	{ ".input_scale", "input_scale", "F32", .form = ONE_NUMBER },
};
static const struct component mxfp8[] = {
	{ ".weight", "weight", "F8_E4M3", .out = 1, .in = 1 },
	{ ".weight_scale_inv", "weight_scale", "U8", .out = 1, .in = 32 },
};
static const struct component awq[] = {
	{ ".qweight", "qweight", "I32", .out = 8, .in = 1, .turned = true },
	{ ".qzeros", "qzeros", "I32", .out = 8, .in = 16, .turned = true },
	{ ".scales", "scales", "F16", "", .out = 1, .in = 16, .turned = true },
};
static const struct component awq_32[] = {
	{ ".qweight", "qweight", "I32", .out = 8, .in = 1, .turned = true },
	{ ".qzeros", "qzeros", "I32", .out = 8, .in = 32, .turned = true },
	{ ".scales", "scales", "BF16", "", .out = 1, .in = 32, .turned = true },
};
static const struct component int8_channel[] = {
	{ ".weight", "weight", "I8", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "BF16", "F32", .out = 1 },
};
static const struct component int8_tensor[] = {
	{ ".weight", "weight", "I8", .out = 1, .in = 1 },
	{ ".weight_scale", "weight_scale", "F32", .form = ONE_NUMBER },
};
static const struct component gptq[] = {
	{ ".qweight", "qweight", "I32", .out = 1, .in = 8, .turned = true },
	{ ".qzeros", "qzeros", "I32", .out = 8, .in = 32, .turned = true },
	{ ".scales", "scales", "F16", "", .out = 1, .in = 32, .turned = true },
};
static const struct component gptq_8[] = {
	{ ".qweight", "qweight", "I32", .out = 1, .in = 4, .turned = true },
	{ ".qzeros", "qzeros", "I32", .out = 4, .turned = true },
	{ ".scales", "scales", "BF16", "", .out = 1, .turned = true },
};

#define QUANT(members) ",\"quantization_config\":{" members "}"
#define GROUPS(weights) QUANT("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"]," \
		"\"weights\":{" weights "}}}")

/* To add a format: its components above and a row here. */
const struct format formats[] = {
	{ "fp8-block", QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[4,8]"), PARTS_OF(fp8_block), .n_cache_scales = 4 },
	{ "fp8-block-bf16", QUANT("\"quant_method\":\"fp8\",\"weight_block_size\":[4, 8]"), PARTS_OF(fp8_block_bf16),
		.n_cache_scales = 4 },
	{ "fp8-tensor", QUANT("\"quant_method\":\"fp8\",\"activation_scheme\":\"static\""), PARTS_OF(fp8_tensor),
		.n_cache_scales = 4 },
	{ "ct-tensor", GROUPS("\"num_bits\":8,\"type\":\"float\",\"group_size\":null"), PARTS_OF(fp8_dynamic),
		.n_cache_scales = 6 },
	{ "ct-channel", GROUPS("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\""), PARTS_OF(fp8_channel),
		.n_cache_scales = 6 },
	{ "w4a16", GROUPS("\"num_bits\":4,\"group_size\":8"), PARTS_OF(w4a16), .n_cache_scales = 6 },
	{ "w4a16-zeros", GROUPS("\"num_bits\":4,\"group_size\":16,\"symmetric\":false"), PARTS_OF(w4a16_zeros),
		.n_cache_scales = 6 },
	{ "w8a16-channel", GROUPS("\"num_bits\":8,\"strategy\":\"channel\",\"group_size\":-1"), PARTS_OF(w8a16_channel),
		.n_cache_scales = 6 },
	{ "nvfp4", GROUPS("\"num_bits\":4,\"type\":\"float\",\"group_size\":16"), PARTS_OF(nvfp4), .n_cache_scales = 6 },
	{ "nvfp4-modelopt", QUANT("\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\""), PARTS_OF(nvfp4_modelopt),
		.n_cache_scales = 4 },
	{ "fp8-modelopt", QUANT("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\""), PARTS_OF(fp8_tensor),
		.n_cache_scales = 4 },
	{ "mxfp8", QUANT("\"quant_method\":\"mxfp8\""), PARTS_OF(mxfp8), .n_cache_scales = 4 },
	{ "int8-channel", GROUPS("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""), PARTS_OF(int8_channel),
		.n_cache_scales = 6 },
	{ "int8-tensor", GROUPS("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"tensor\""), PARTS_OF(int8_tensor),
		.n_cache_scales = 6, .no_experts = true },
	{ "awq", QUANT(AWQ_MEMBERS("4", "16")), PARTS_OF(awq), .no_experts = true },
	{ "awq-32", QUANT(AWQ_MEMBERS("4", "32")), PARTS_OF(awq_32) },
	{ "gptq", QUANT(GPTQ_MEMBERS("4", "32")), PARTS_OF(gptq), .biased_experts = true },
	{ "gptq-8", QUANT("\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":true,\"sym\":true"),
		PARTS_OF(gptq_8), .biased_experts = true },
};
/* clang-format on */
const unsigned n_formats = LEN(formats);

const struct format *format_find(const char *name)
{
	for (unsigned i = 0; i < n_formats; i++) {
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	}
	cr_assert_fail("there is no format '%s'", name);
	return NULL;
}

/* ---- quantising ---- */

static uint64_t units(uint64_t n, unsigned unit)
{
	return unit ? (n + unit - 1) / unit : 1;
}

static void add_component(const struct component *c, const char *module, const char *dtype, uint64_t rows,
			  uint64_t cols)
{
	unsigned long long out = units(rows, c->out), in = units(cols, c->in);
	int64_t shape[] = { (int64_t)rows, (int64_t)cols };
	char text[64], name[200];

	snprintf(text, sizeof(text), "%llu %llu", c->turned ? in : out, c->turned ? out : in);
	if (c->form != MATRIX_OF)
		snprintf(text, sizeof(text), c->form == UNSLICED ? "2" : rows % 2 ? "1" : "");
	checkpoint_add(c->dtype[0] ? c->dtype : dtype, text, "%s%s", module, c->stored);
	snprintf(name, sizeof(name), "%s%s", module, c->stored);
	if (c->form == UNSLICED)
		memcpy(checkpoint_find(name)->bytes, shape, sizeof(shape));
}

static void quantise(const struct format *f, const char *weight)
{
	const struct checkpoint_tensor *t = checkpoint_find(weight);
	const char *dtype = sl_dtypes[t->dtype].name;
	uint64_t rows = t->shape[0], cols = t->shape[1];
	char module[160];

	snprintf(module, sizeof(module), "%.*s", (int)(strlen(weight) - strlen(".weight")), weight);
	checkpoint_drop(weight);
	for (unsigned i = 0; i < f->n_components; i++)
		add_component(&f->components[i], module, dtype, rows, cols);
}

void linear_quantise(const struct format *f, const char *needle)
{
	const struct checkpoint_tensor *t;
	char *names[512];
	unsigned n = 0;

	for (unsigned i = 0; (t = checkpoint_at(i)); i++) {
		if (t->n_dims == 2 && strstr(t->name, needle) && strstr(t->name, ".weight") && n < LEN(names))
			names[n++] = strdup(t->name);
	}
	cr_assert(n > 0 && n < LEN(names), "%u tensors with '%s'", n, needle);
	for (unsigned i = 0; i < n; i++) {
		quantise(f, names[i]);
		free(names[i]);
	}
}

/* ---- what an output must hold ---- */

/* A part of a matrix, for one component. */
struct part {
	const struct checkpoint_tensor *tensor;
	uint64_t row, end_row, col, end_col; /* in the component's own elements */
};

struct expected {
	const struct component *c;
	struct part parts[EXPERTS_MAX][PARTS_MAX];
	unsigned n_parts, n_experts;
	unsigned char *bytes;
	uint64_t len, room;
	int dtype; /* of the output */
};

static const struct checkpoint_tensor *stored(const char *module, size_t len, const char *suffix)
{
	char name[200];

	snprintf(name, sizeof(name), "%.*s%s", (int)len, module, suffix);
	const struct checkpoint_tensor *t = checkpoint_find(name);
	cr_assert(t != NULL, "the checkpoint has no '%s'", name);
	return t;
}

static void cut(uint64_t *first, uint64_t *end, unsigned unit)
{
	*first = unit ? *first / unit : 0;
	*end = unit ? (*end + unit - 1) / unit : 1;
}

static struct part parse_part(const char *text, const struct component *c)
{
	size_t len = strcspn(text, "[");
	unsigned first, end;
	struct part p = { .tensor = stored(text, len, c->stored) };

	if (c->form != MATRIX_OF)
		return p;
	p.end_row = p.tensor->shape[c->turned];
	p.end_col = p.tensor->shape[!c->turned];
	if (sscanf(text + len, "[:,%u:%u]", &first, &end) == 2) {
		p.col = first, p.end_col = end;
		cut(&p.col, &p.end_col, c->in);
	} else if (text[len]) {
		cr_assert_eq(sscanf(text + len, "[%u:%u]", &first, &end), 2, "%s", text);
		p.row = first, p.end_row = end;
		cut(&p.row, &p.end_row, c->out);
	}
	return p;
}

static void parse_parts(struct expected *e, const char *text)
{
	char *copy = strdup(text), *rest;

	e->n_experts = 1;
	for (char *at = strtok_r(copy, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
		if (strcmp(at, "|") == 0) {
			e->n_experts++, e->n_parts = 0;
			continue;
		}
		cr_assert(e->n_experts <= EXPERTS_MAX && e->n_parts < PARTS_MAX, "%s", text);
		e->parts[e->n_experts - 1][e->n_parts++] = parse_part(at, e->c);
	}
	free(copy);
}

static double number_of(const struct checkpoint_tensor *t, uint64_t i)
{
	int64_t whole;

	if (t->dtype != SL_I64)
		return twin_decode(t->dtype, t->bytes + i * sl_dtypes[t->dtype].bits / 8);
	memcpy(&whole, t->bytes + 8 * i, sizeof(whole));
	return (double)whole;
}

static void put(struct expected *e, const struct checkpoint_tensor *t, uint64_t i)
{
	size_t size = sl_dtypes[e->dtype].bits / 8;
	uint32_t bits;

	cr_assert(i < t->n && e->len + size <= e->room, "%s: more elements than there are", t->name);
	if (t->dtype == e->dtype) {
		memcpy(e->bytes + e->len, t->bytes + i * size, size);
	} else {
		bits = twin_encode(e->dtype, number_of(t, i));
		memcpy(e->bytes + e->len, &bits, size);
	}
	e->len += size;
}

static void put_rows(struct expected *e, const struct part *parts)
{
	for (unsigned p = 0; p < e->n_parts; p++) {
		for (uint64_t row = parts[p].row; row < parts[p].end_row; row++) {
			for (uint64_t col = parts[p].col; col < parts[p].end_col; col++)
				put(e, parts[p].tensor, row * parts[p].tensor->shape[1] + col);
		}
	}
}

/* [in, out]: the parts lie side by side. */
static void put_turned(struct expected *e, const struct part *parts)
{
	for (uint64_t col = parts->col; col < parts->end_col; col++) {
		for (unsigned p = 0; p < e->n_parts; p++) {
			for (uint64_t row = parts[p].row; row < parts[p].end_row; row++)
				put(e, parts[p].tensor, col * parts[p].tensor->shape[1] + row);
		}
	}
}

/* The one whose name is the greatest is loaded last. */
static void put_last(struct expected *e, const struct part *parts)
{
	const struct checkpoint_tensor *last = parts[0].tensor;

	for (unsigned p = 1; p < e->n_parts; p++)
		last = strcmp(parts[p].tensor->name, last->name) > 0 ? parts[p].tensor : last;
	for (uint64_t i = 0; i < last->n; i++)
		put(e, last, i);
}

static void put_expert(struct expected *e, const struct part *parts)
{
	if (e->c->form == UNSLICED) {
		put_last(e, parts);
	} else if (e->c->form == ONE_NUMBER) {
		for (unsigned p = 0; p < e->n_parts; p++)
			put(e, parts[p].tensor, 0);
	} else if (e->c->turned) {
		put_turned(e, parts);
	} else {
		put_rows(e, parts);
	}
}

static unsigned shape_of(const struct expected *e, bool stacked, uint64_t shape[3])
{
	const struct part *parts = e->parts[0];
	uint64_t rows = 0, cols = parts->end_col - parts->col;
	unsigned n = 0;

	if (stacked)
		shape[n++] = e->n_experts;
	for (unsigned p = 0; p < e->n_parts; p++)
		rows += parts[p].end_row - parts[p].row;
	if (e->c->form == MATRIX_OF) {
		shape[n++] = e->c->turned ? cols : rows;
		shape[n++] = e->c->turned ? rows : cols;
	} else if (e->c->form == UNSLICED) {
		shape[n++] = 2;
	} else if (!stacked || e->n_parts > 1) {
		shape[n++] = e->n_parts;
	}
	return n;
}

static void check_shape(const struct sl_output *out, const uint64_t *shape, unsigned n)
{
	cr_assert_eq(out->n_dims, n, "%s: %u dimensions, not %u", out->name, out->n_dims, n);
	for (unsigned d = 0; d < n; d++)
		cr_assert_eq(out->shape[d], shape[d], "%s: axis %u is %u, not %u", out->name, d,
			     (unsigned)out->shape[d], (unsigned)shape[d]);
}

static void check_bytes(struct expected *e, const struct sl_view *view, const struct sl_output *out)
{
	e->bytes = malloc(out->len + 1);
	e->room = out->len;
	for (unsigned x = 0; x < e->n_experts; x++)
		put_expert(e, e->parts[x]);
	cr_assert_eq(e->len, out->len, "%s: %u bytes, not %u", out->name, (unsigned)out->len, (unsigned)e->len);
	unsigned char *got = checkpoint_read(view, out);
	cr_assert(memcmp(got, e->bytes, e->len) == 0, "%s tp%u rank %u: '%s' holds other bytes", view->engine->name,
		  view->layout.tp, view->rank, out->name);
	free(got);
	free(e->bytes);
}

static const struct sl_output *find_output(const struct sl_view *view, const char *name)
{
	const struct sl_output *out = sl_view_find(view, name);

	cr_assert(out != NULL, "rank %u has no '%s'", view->rank, name);
	return out;
}

/* The dtype in which vLLM holds a component; of experts, what is not sliced is in the model's. */
static int held_dtype(const struct sl_view *view, const struct component *c, int own, bool stacked)
{
	if (c->form == UNSLICED && stacked)
		return view->model->dtype;
	return !c->as ? own : c->as[0] ? sl_dtype_find(c->as, strlen(c->as)) : (int)view->model->dtype;
}

void linear_expect(const struct sl_view *view, const struct format *f, const char *output, char separator,
		   const char *parts)
{
	bool stacked = separator == '_';
	uint64_t shape[3];
	char name[200];

	for (unsigned i = 0; i < f->n_components; i++) {
		struct expected e = { .c = &f->components[i] };
		snprintf(name, sizeof(name), "%s%c%s", output, separator, e.c->held);
		const struct sl_output *out = find_output(view, name);
		parse_parts(&e, parts);
		e.dtype = held_dtype(view, e.c, e.parts[0][0].tensor->dtype, stacked);
		cr_assert_eq(out->dtype, e.dtype, "%s is %s", name, sl_dtypes[out->dtype].name);
		unsigned n = shape_of(&e, stacked, shape);
		check_shape(out, shape, n);
		check_bytes(&e, view, out);
	}
}

void linear_expect_stored(const struct sl_view *view, const struct format *f, const char *output, const char *part)
{
	uint64_t shape[3];
	char name[200];

	for (unsigned i = 0; i < f->n_components; i++) {
		struct expected e = { .c = &f->components[i] };
		snprintf(name, sizeof(name), "%s%s", output, e.c->stored);
		const struct sl_output *out = find_output(view, name);
		parse_parts(&e, part);
		const struct checkpoint_tensor *t = e.parts[0][0].tensor;
		e.dtype = t->dtype;
		cr_assert_eq(out->dtype, e.dtype, "%s is %s", name, sl_dtypes[out->dtype].name);
		if (e.c->form == MATRIX_OF)
			check_shape(out, shape, shape_of(&e, false, shape));
		else
			check_shape(out, t->shape, t->n_dims);
		check_bytes(&e, view, out);
	}
}
