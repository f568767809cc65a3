/*
 * checkpoint.c - see checkpoint.h.
 */
#include "checkpoint.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { TENSORS_MAX = 1024 };

static struct checkpoint_tensor tensors[TENSORS_MAX];
static unsigned n_tensors;

static void forget(void)
{
	while (n_tensors > 0)
		free(tensors[--n_tensors].bytes);
}

void checkpoint_setup(void)
{
	fixture_open();
}

void checkpoint_teardown(void)
{
	forget();
	fixture_close();
}

void checkpoint_begin(const char *config)
{
	forget();
	if (config)
		fixture_text("config.json", config);
}

/* ---- tensors ---- */

/* Four bytes that are a float of a middling size; their upper half is a BF16. */
static uint32_t float_bits(const char *name, uint64_t i)
{
	uint32_t bits = 0, exponent;

	for (unsigned b = 0; b < 4; b++)
		bits = bits << 8 | fixture_byte(name, 4 * i + b);
	exponent = 120 + (bits >> 23 & 15);
	return (bits & 0x807FFFFF) | exponent << 23;
}

static void fill(struct checkpoint_tensor *t)
{
	size_t size = sl_dtypes[t->dtype].bits / 8;

	for (uint64_t i = 0; i < t->len; i++)
		t->bytes[i] = fixture_byte(t->name, i);
	for (uint64_t i = 0; i < t->n; i++) {
		uint32_t bits = float_bits(t->name, i);
		uint16_t upper = (uint16_t)(bits >> 16), f16 = (uint16_t)(bits & 0xBFFF);
		double f64;
		float f32;
		memcpy(&f32, &bits, sizeof(f32));
		f64 = (double)f32 / 3;
		if (t->dtype == SL_F32)
			memcpy(t->bytes + i * size, &bits, size);
		else if (t->dtype == SL_BF16)
			memcpy(t->bytes + i * size, &upper, size);
		else if (t->dtype == SL_F16)
			memcpy(t->bytes + i * size, &f16, size);
		else if (t->dtype == SL_F64)
			memcpy(t->bytes + i * size, &f64, size);
	}
}

static void give(struct checkpoint_tensor *t, const char *dtype, const char *shape)
{
	char *end;

	t->dtype = sl_dtype_find(dtype, strlen(dtype));
	cr_assert_geq(t->dtype, 0, "%s", dtype);
	t->n = 1;
	for (t->n_dims = 0; *shape; shape = end + (*end == ' ')) {
		cr_assert_lt(t->n_dims, 4, "%s", t->name);
		t->shape[t->n_dims] = strtoull(shape, &end, 10);
		cr_assert(end > shape, "'%s' is no shape", shape);
		t->n *= t->shape[t->n_dims++];
	}
	t->len = sl_dtype_bytes((enum sl_dtype)t->dtype, t->n);
	t->bytes = malloc(t->len + 1);
	fill(t);
}

void checkpoint_add(const char *dtype, const char *shape, const char *fmt, ...)
{
	cr_assert_lt(n_tensors, TENSORS_MAX);
	struct checkpoint_tensor *t = &tensors[n_tensors];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->name, sizeof(t->name), fmt, ap);
	va_end(ap);
	give(t, dtype, shape);
	n_tensors++;
}

struct checkpoint_tensor *checkpoint_at(unsigned i)
{
	return i < n_tensors ? &tensors[i] : NULL;
}

struct checkpoint_tensor *checkpoint_find(const char *name)
{
	for (unsigned i = 0; i < n_tensors; i++) {
		if (strcmp(tensors[i].name, name) == 0)
			return &tensors[i];
	}
	return NULL;
}

static struct checkpoint_tensor *need(const char *name)
{
	struct checkpoint_tensor *t = checkpoint_find(name);

	cr_assert(t != NULL, "the checkpoint has no '%s'", name);
	return t;
}

void checkpoint_drop(const char *name)
{
	struct checkpoint_tensor *t = need(name);

	free(t->bytes);
	*t = tensors[--n_tensors];
}

void checkpoint_replace(const char *dtype, const char *shape, const char *name)
{
	struct checkpoint_tensor *t = need(name);

	free(t->bytes);
	give(t, dtype, shape);
}

void checkpoint_zero(const char *name)
{
	struct checkpoint_tensor *t = need(name);

	memset(t->bytes, 0, t->len);
}

uint32_t checkpoint_number(void)
{
	uint32_t number = 1000;

	for (unsigned t = 0; t < n_tensors; t++) {
		for (uint64_t i = 0; tensors[t].dtype == SL_F32 && i < tensors[t].n; i++) {
			float value = (float)number++;
			memcpy(tensors[t].bytes + 4 * i, &value, sizeof(value));
		}
	}
	cr_assert_lt(number, 1u << 24, "a float cannot number that many elements");
	return number;
}

/* ---- files ---- */

/* Every `step`-th tensor from `first` on. */
static void write_some(const char *file, unsigned first, unsigned step)
{
	static struct fixture_tensor some[TENSORS_MAX];
	unsigned n = 0;

	for (unsigned i = first; i < n_tensors; i += step) {
		const struct checkpoint_tensor *t = &tensors[i];
		some[n] = (struct fixture_tensor){
			.name = t->name, .dtype = sl_dtypes[t->dtype].name, .n_dims = t->n_dims, .bytes = t->bytes
		};
		memcpy(some[n++].shape, t->shape, sizeof(t->shape));
	}
	fixture_tensors(file, some, n);
}

void checkpoint_write_file(const char *file)
{
	write_some(file, 0, 1);
}

void checkpoint_write(unsigned n_shards)
{
	char file[64], *text;
	size_t len;

	if (n_shards <= 1) {
		checkpoint_write_file("model.safetensors");
		return;
	}
	FILE *index = open_memstream(&text, &len);
	fputs("{\"weight_map\":{", index);
	for (unsigned s = 0; s < n_shards; s++) {
		snprintf(file, sizeof(file), "model-%05u-of-%05u.safetensors", s + 1, n_shards);
		write_some(file, s, n_shards);
		for (unsigned i = s; i < n_tensors; i += n_shards)
			fprintf(index, "%s\"%s\":\"%s\"", i ? "," : "", tensors[i].name, file);
	}
	fputs("}}", index);
	fclose(index);
	fixture_file("model.safetensors.index.json", text, len);
	free(text);
}

/* ---- opening ---- */

struct sl_model *checkpoint_open(void)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_model *model;
	int ret = sl_model_open(&model, fixture_dir(), NULL, &err);

	cr_assert_eq(ret, 0, "%s", err.text);
	return model;
}

/* All parts, up to NULL, are in the sentence, which is one line. */
static void expect_parts(const struct sl_error *err, const char *part, va_list ap)
{
	for (; part; part = va_arg(ap, const char *))
		cr_assert(strstr(err->text, part), "'%s' lacks '%s'", err->text, part);
	cr_assert(!strchr(err->text, '\n'), "'%s' is more than a line", err->text);
}

void checkpoint_refused(const char *part, ...)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_model *model;
	int ret = sl_model_open(&model, fixture_dir(), NULL, &err);
	va_list ap;

	cr_assert_eq(ret, -EINVAL, "%d (%s), expected '%s'", ret, err.text, part);
	cr_assert(model == NULL);
	va_start(ap, part);
	expect_parts(&err, part, ap);
	va_end(ap);
}

static int open_view(struct sl_view **view, const struct sl_model *model, const char *path, unsigned stage,
		     unsigned rank, struct sl_error *err)
{
	struct sl_layout layout = SL_LAYOUT_WHOLE;
	const struct sl_engine *engine = sl_engine_find(path);
	char name[16];

	if (!engine) {
		cr_assert_eq(sscanf(path, "%15[^/]", name), 1);
		engine = sl_engine_find(name);
		cr_assert(engine, "%s", path);
		cr_assert_eq(sl_layout_parse(&layout, engine, strchr(path, '/') + 1), 0, "%s", path);
	}
	return sl_view_open(view, model, engine, &layout, stage, rank, NULL, err);
}

struct sl_view *checkpoint_view(const struct sl_model *model, const char *path, unsigned stage, unsigned rank)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_view *view;
	int ret = open_view(&view, model, path, stage, rank, &err);

	cr_assert_eq(ret, 0, "%s: %s", path, err.text);
	return view;
}

void checkpoint_view_refused(const struct sl_model *model, const char *path, const char *part, ...)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_view *view;
	int ret = open_view(&view, model, path, 0, 0, &err);
	va_list ap;

	cr_assert_eq(ret, -EINVAL, "%s: %d (%s), expected '%s'", path, ret, err.text, part);
	cr_assert(view == NULL);
	va_start(ap, part);
	expect_parts(&err, part, ap);
	va_end(ap);
}

/* ---- reading ---- */

static unsigned char *read_range(const struct sl_file *file, uint64_t off, uint64_t len)
{
	struct sl_error err = SL_ERROR_INIT;
	unsigned char *bytes = malloc(len + 1);
	ssize_t n = sl_file_read(file, bytes, off, len, &err);

	cr_assert_eq(n, (ssize_t)len, "%s: %zd of %llu: %s", file->name, n, (unsigned long long)len, err.text);
	return bytes;
}

unsigned char *checkpoint_read(const struct sl_view *view, const struct sl_output *tensor)
{
	return read_range(&view->files[tensor->file], tensor->off, tensor->len);
}

unsigned char *checkpoint_read_file(const struct sl_file *file)
{
	unsigned char *bytes = read_range(file, 0, file->size);

	bytes[file->size] = '\0';
	return bytes;
}

const struct sl_file *checkpoint_file(const struct sl_view *view, const char *name)
{
	for (uint32_t i = 0; i < view->n_files; i++) {
		if (strcmp(view->files[i].name, name) == 0)
			return &view->files[i];
	}
	return NULL;
}

/* ---- random reads ---- */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* Some of them small and around borders of pieces, some anywhere, some beyond the end. */
static void read_randomly(const struct sl_file *file, const unsigned char *whole, unsigned n, uint64_t *state)
{
	static const size_t lengths[] = { 1, 2, 3, 7, 64, 513, 4096, 131073 };
	static unsigned char buf[131073];
	struct sl_error err = SL_ERROR_INIT;

	for (unsigned i = 0; i < n; i++) {
		size_t len = lengths[next_random(state) % LEN(lengths)];
		uint64_t off = next_random(state) % (file->size + 2);
		if (i % 2) {
			const struct sl_piece *piece = &file->pieces[next_random(state) % file->n_pieces];
			off = piece->off - (piece->off > 3 ? next_random(state) % 4 : 0);
		}
		size_t want = off >= file->size ? 0 : file->size - off < len ? file->size - off : len;
		ssize_t got = sl_file_read(file, buf, off, len, &err);
		cr_assert_eq(got, (ssize_t)want, "%s: %zd of %zu at %llu: %s", file->name, got, want,
			     (unsigned long long)off, err.text);
		cr_assert(memcmp(buf, whole + off, want) == 0, "%s: %zu bytes at %llu", file->name, want,
			  (unsigned long long)off);
	}
}

void checkpoint_read_randomly(const struct sl_view *view, unsigned n, uint64_t *state)
{
	for (uint32_t f = 0; f < view->n_files; f++) {
		unsigned char *whole = checkpoint_read_file(&view->files[f]);
		read_randomly(&view->files[f], whole, n, state);
		free(whole);
	}
}

/* ---- what an output is made of ---- */

/* Rows [first, end) and columns [left, right) of a stored tensor. */
struct part {
	char name[160];
	unsigned first, end, left, right;
};

static uint64_t width_of(const struct checkpoint_tensor *t)
{
	return t->n_dims > 1 ? t->n / t->shape[0] : 1;
}

static struct part parse_part(const char *text)
{
	struct part p = { "", 0, 0, 0, 0 };
	const struct checkpoint_tensor *t;

	sscanf(text, "%159[^[]", p.name);
	const char *slice = strchr(text, '[');
	if (strcmp(p.name, "zeros") == 0) {
		p.end = (unsigned)strtoul(slice + 1, NULL, 10);
		return p;
	}
	t = need(p.name);
	p.end = (unsigned)t->shape[0];
	p.right = (unsigned)width_of(t);
	if (slice && sscanf(slice, "[:,%u:%u]", &p.left, &p.right) != 2)
		cr_assert_eq(sscanf(slice, "[%u:%u]", &p.first, &p.end), 2, "%s", text);
	return p;
}

static void expect_part(const struct part *p, const struct sl_output *out, const unsigned char *bytes, uint64_t *at)
{
	const struct checkpoint_tensor *t = checkpoint_find(p->name);
	uint64_t size = sl_dtypes[out->dtype].bits / 8, width = out->n_dims > 1 ? out->shape[1] : 1;
	uint64_t run = size * (t ? p->right - p->left : width);
	unsigned char *zeros = calloc(1, run);

	cr_assert(!t || t->dtype == out->dtype, "%s: dtype", out->name);
	for (unsigned row = p->first; row < p->end; row++, *at += run) {
		const unsigned char *want = t ? t->bytes + (row * width_of(t) + p->left) * size : zeros;
		cr_assert_leq(*at + run, out->len, "%s is too short for %s", out->name, p->name);
		cr_assert(memcmp(bytes + *at, want, run) == 0, "%s: byte %llu is not row %u of %s", out->name,
			  (unsigned long long)*at, row, p->name);
	}
	free(zeros);
}

void checkpoint_expect(const struct sl_view *view, const char *output, const char *parts)
{
	const struct sl_output *out = sl_view_find(view, output);
	char *copy = strdup(parts), *rest;
	uint64_t at = 0;

	cr_assert(out != NULL, "there is no '%s'", output);
	unsigned char *bytes = checkpoint_read(view, out);
	for (char *text = strtok_r(copy, " ", &rest); text; text = strtok_r(NULL, " ", &rest)) {
		struct part p = parse_part(text);
		expect_part(&p, out, bytes, &at);
	}
	cr_assert_eq(at, out->len, "%s has %llu bytes, not %llu", output, (unsigned long long)out->len,
		     (unsigned long long)at);
	free(bytes);
	free(copy);
}

int checkpoint_has_note(const struct sl_model *model, const char *part)
{
	for (const struct sl_note *note = model->notes; note; note = note->next) {
		if (strstr(note->text, part))
			return 1;
	}
	return 0;
}
