/*
 * twin.c - see twin.h. Every rule is a loop over rows; nothing here is fast, clever, or shared with the slicer.
 */
#include "twin.h"

#include "checkpoint.h"

#include "slicer/header.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1024 };
#define ZERO UINT64_MAX

/* ---- elements ---- */

/* A float of `exponent_bits` and `mantissa_bits`, from its definition. */
static double decode(uint32_t bits, int exponent_bits, int mantissa_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
	uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
	double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;

	if (exponent == (1 << exponent_bits) - 1)
		return mantissa ? (double)NAN : sign * HUGE_VAL;
	if (exponent == 0)
		return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
	return sign * ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - bias);
}

/* E4M3 without infinities: only the greatest code is no number. */
static double decode_f8(uint8_t bits)
{
	double sign = bits & 0x80 ? -1 : 1;

	if ((bits & 0x7F) == 0x7F)
		return (double)NAN;
	return (bits & 0x78) == 0x78 ? sign * ldexp(8 + (bits & 7), 5) : decode(bits, 4, 3);
}

static uint32_t encode(double value, int exponent_bits, int mantissa_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1, exponent;
	uint32_t sign = signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
	uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;

	if (isinf(value))
		return sign | infinity;
	frexp(value, &exponent); /* |value| = [0.5, 1) x 2^exponent */
	if (value == 0 || exponent - 1 < 1 - bias)
		exponent = 2 - bias;
	/* In units of the last place; to the nearest, from the middle to the even one. */
	double units = ldexp(fabs(value), mantissa_bits - (exponent - 1));
	uint32_t whole = (uint32_t)units, one = 1u << mantissa_bits;
	if (units - whole > 0.5 || (units - whole == 0.5 && whole % 2))
		whole++;
	if (exponent - 1 == 1 - bias && whole < one)
		return sign | whole;
	uint32_t biased = (uint32_t)(exponent - 1 + bias);
	if (biased > infinity >> mantissa_bits)
		return sign | infinity;
	uint32_t bits = (biased << mantissa_bits) + (whole - one);
	return sign | (bits > infinity ? infinity : bits);
}

double twin_decode(int dtype, const unsigned char *at)
{
	uint16_t half;
	uint32_t word;

	if (dtype == SL_F8_E4M3)
		return decode_f8(at[0]);
	memcpy(&half, at, sizeof(half));
	if (dtype == SL_F16)
		return decode(half, 5, 10);
	if (dtype == SL_BF16)
		return decode(half, 8, 7);
	cr_assert_eq(dtype, SL_F32);
	memcpy(&word, at, sizeof(word));
	return decode(word, 8, 23);
}

uint32_t twin_encode(int dtype, double value)
{
	if (dtype == SL_F16)
		return encode(value, 5, 10);
	return dtype == SL_BF16 ? encode(value, 8, 7) : encode(value, 8, 23);
}

/* ---- which rows and columns a rank has ---- */

struct rank {
	unsigned tp, rank;
	bool fused; /* vLLM */
};

/* Rows in the order in which the rank holds them. */
struct rows {
	uint64_t at[ROWS_MAX];
	unsigned n;
};

static void put(struct rows *rows, uint64_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		rows->at[rows->n++] = first + i;
}

static void put_evenly(struct rows *rows, uint64_t first, uint64_t n, const struct rank *r)
{
	put(rows, first + n / r->tp * r->rank, n / r->tp);
}

/* The rank's kv heads of `heads` that begin at row `first`. */
static void put_kv(struct rows *rows, uint64_t first, const struct sizes *s, const struct rank *r)
{
	for (unsigned head = 0; head < s->M; head++) {
		bool mine = r->tp >= s->M ? head == r->rank / (r->tp / s->M) : head / (s->M / r->tp) == r->rank;
		if (mine)
			put(rows, first + head * s->D, s->D);
	}
}

static void put_padded(struct rows *rows, uint64_t n, const struct rank *r)
{
	uint64_t padded = n;

	while (padded % 64)
		padded++;
	for (uint64_t i = 0; i < padded / r->tp; i++) {
		uint64_t row = padded / r->tp * r->rank + i;
		rows->at[rows->n++] = row < n ? row : ZERO;
	}
}

static void put_share(struct rows *rows, enum share share, uint64_t n, const struct sizes *s, const struct rank *r)
{
	uint64_t q = s->N * s->D, k = s->M * s->D;

	switch (share) {
	case WHOLE:
	case COLUMNS:
		put(rows, 0, n);
		return;
	case ROWS:
		put_evenly(rows, 0, n, r);
		return;
	case KV_ROWS:
		put_kv(rows, 0, s, r);
		return;
	case QKV_ROWS:
		put_evenly(rows, 0, q, r);
		put_kv(rows, q, s, r);
		put_kv(rows, q + k, s, r);
		return;
	case HALVES:
		put_evenly(rows, 0, n / 2, r);
		put_evenly(rows, n / 2, n / 2, r);
		return;
	case PADDED:
	case VOCAB:
		if (r->fused)
			put_padded(rows, n, r);
		else if (share == VOCAB && n % r->tp == 0)
			put_evenly(rows, 0, n, r);
		else
			put(rows, 0, n);
		return;
	}
}

/* Where the engine's row lies in the stored tensor. */
static uint64_t stored_row(enum stored stored, uint64_t row, const struct sizes *s)
{
	unsigned per = s->N / s->M, d = s->D;
	uint64_t at = 0;

	if (stored == PAIRS) /* half j, place i of a head is its row 2i + j */
		return row / d * d + row % d % (d / 2) * 2 + row % d / (d / 2);
	if (stored != GROUPS)
		return row;
	for (unsigned group = 0; group < s->M; group++) {
		for (unsigned head = 0; head < per + 2; head++) {
			uint64_t first = head < per    ? group * per + head
					 : head == per ? s->N + group
						       : s->N + s->M + group;
			for (unsigned i = 0; i < d; i++, at++) {
				if (first * d + i == row)
					return at;
			}
		}
	}
	cr_assert_fail("there is no row %u", (unsigned)row);
	return 0;
}

/* ---- one tensor ---- */

/* A tensor that grows row by row. */
struct made {
	unsigned char *bytes;
	uint64_t rows, cols, len;
	int dtype;
};

static void add_element(struct made *made, int dtype, const unsigned char *at)
{
	size_t size = sl_dtypes[made->dtype].bits / 8;
	uint32_t bits;

	if (!at) {
		memset(made->bytes + made->len, 0, size);
	} else if (dtype == made->dtype) {
		memcpy(made->bytes + made->len, at, size);
	} else {
		bits = twin_encode(made->dtype, twin_decode(dtype, at));
		memcpy(made->bytes + made->len, &bits, size);
	}
	made->len += size;
}

static void add_tensor(struct made *made, const struct family_row *row, const struct checkpoint_tensor *t,
		       const struct sizes *s, const struct rank *r)
{
	uint64_t n = t->shape[0], width = t->n_dims > 1 ? t->n / t->shape[0] : 1, size = sl_dtypes[t->dtype].bits / 8;
	uint64_t stride = width, step = 1;
	struct rows rows = { .n = 0 };

	if (row->stored == TURNED) {
		uint64_t turned = n;
		n = width, width = turned, stride = 1, step = n;
	}
	put_share(&rows, row->share, n, s, r);
	uint64_t cols = row->share == COLUMNS ? width / r->tp : width,
		 left = row->share == COLUMNS ? cols * r->rank : 0;
	made->bytes = realloc(made->bytes, made->len + rows.n * cols * 8 + 1);
	for (unsigned i = 0; i < rows.n; i++) {
		uint64_t from = rows.at[i] == ZERO ? ZERO : stored_row(row->stored, rows.at[i], s);
		for (uint64_t c = left; c < left + cols; c++)
			add_element(made, t->dtype, from == ZERO ? NULL : t->bytes + (from * stride + c * step) * size);
	}
	made->rows += rows.n;
	made->cols = cols;
}

/* Does the rank hold that expert: all of them in order, or its own? vLLM, expert_map_manager.py: the first E % tp ranks have
 * one more. */
static bool has_expert(const struct family *f, const struct family_row *row, const struct sl_view *view,
		       unsigned expert)
{
	unsigned tp = view->layout.tp, owner = 0, first = 0;

	if (!strstr(row->name, "%e") || view->layout.experts == SL_EXPERTS_SLICED)
		return true;
	if (view->layout.experts == SL_EXPERTS_ROUND_ROBIN)
		return expert % tp == view->rank;
	for (; owner < tp; owner++) {
		unsigned n = f->more.E / tp + (owner < f->more.E % tp);
		if (expert >= first && expert < first + n)
			break;
		first += n;
	}
	return owner == view->rank;
}

static bool is_here(const struct family_row *row, const struct sl_view *view)
{
	if (row->place == FIRST)
		return view->stage == 0;
	return row->place != LAST || view->stage + 1 == view->layout.pp;
}

static bool layer_is_here(const struct family *f, const struct family_row *row, const struct sl_view *view,
			  unsigned layer)
{
	unsigned pp = view->layout.pp, first = 0;

	if (!strstr(row->name, "%u") || row->kind == VISION)
		return true;
	for (unsigned stage = 0; stage < pp; stage++) {
		unsigned rest = f->sizes.L % pp, n = f->sizes.L / pp;
		for (unsigned extra = 0; extra < rest; extra++)
			n += stage == pp - 2 - extra;
		if (layer >= first && layer < first + n)
			return stage == view->stage;
		first += n;
	}
	return false;
}

/* The name of the output that holds a row's tensor of a layer on this rank; NULL: none. */
static const char *output_of(const struct family *f, const struct family_row *row, const struct sl_view *view,
			     bool tied, unsigned layer, unsigned expert, char name[200])
{
	bool fused = view->engine == &sl_engines[SL_VLLM], last = view->stage + 1 == view->layout.pp;

	if ((tied && row->kind == HEAD) || !layer_is_here(f, row, view, layer) || !family_has(f, row, layer) ||
	    !has_expert(f, row, view, expert))
		return NULL;
	if (!fused)
		return family_expert_name(row->hf ? row->hf : row->name, layer, expert, name);
	if (tied && row->kind == EMBED && f->tied_head && (last || row->place == FIRST)) {
		if (last)
			return f->tied_head;
		return is_here(row, view) ? family_name(row->vllm[0] ? row->vllm : row->name, layer, name) : NULL;
	}
	/* A family whose every stage has everything computes its logits from that on every stage, too. */
	if (tied && row->kind == EMBED && f->tied_head)
		return f->tied_head;
	if (!row->vllm || !is_here(row, view))
		return NULL;
	return family_name(row->vllm[0] ? row->vllm : row->name, layer, name);
}

static int dtype_of(const struct sl_view *view, const struct family_row *row, const struct checkpoint_tensor *t)
{
	if (t->dtype != SL_F32 && t->dtype != SL_F16 && t->dtype != SL_BF16)
		return t->dtype;
	if (row->in_f32 && view->engine == &sl_engines[SL_VLLM])
		return SL_F32;
	if (view->layout.dtype >= 0)
		return view->layout.dtype;
	return view->engine == &sl_engines[SL_VLLM] ? (int)view->model->dtype : t->dtype;
}

static unsigned char *scale(const struct family *f, const struct sl_view *view, const char *name, unsigned *n_dims)
{
	static const char *const tails[] = { "._k_scale", "._v_scale", "._q_scale", "._prob_scale" };
	static const struct family_row any_layer = { .name = "%u" };
	char module[200], whole[240];
	float one = 1;

	for (unsigned l = 0; l < f->sizes.L; l++) {
		for (unsigned i = 0; i < 4; i++) {
			snprintf(whole, sizeof(whole), "%s%s", family_name(f->attn, l, module), tails[i]);
			if (strcmp(whole, name) == 0 && layer_is_here(f, &any_layer, view, l)) {
				*n_dims = 0;
				return memcpy(malloc(sizeof(one)), &one, sizeof(one));
			}
		}
	}
	return NULL;
}

/* What is held as it is stored keeps its shape; `experts` of them are one tensor. */
static void set_shape(const struct made *made, const struct checkpoint_tensor *t, unsigned experts, uint64_t shape[4],
		      unsigned *n_dims)
{
	*n_dims = t->n_dims;
	memcpy(shape, t->shape, sizeof(t->shape));
	if (experts) {
		*n_dims = 3;
		shape[0] = experts, shape[1] = made->rows / experts, shape[2] = made->cols;
	} else if (t->n_dims <= 2) {
		shape[0] = made->rows;
		shape[1] = made->cols;
	}
}

/* How this rank takes part in a row's tensor. */
static struct rank rank_of(const struct family_row *row, const struct sl_view *view)
{
	bool fused = view->engine == &sl_engines[SL_VLLM], apart = row->kind == VISION && !fused;

	if (strstr(row->name, "%e") && view->layout.experts != SL_EXPERTS_SLICED)
		apart = true;
	return (struct rank){ apart ? 1 : view->layout.tp, apart ? 0 : view->rank, fused };
}

/* What the rows give to the tensor of that name, of one expert. */
static const struct checkpoint_tensor *add_expert(struct made *made, const struct family *f, const struct sl_view *view,
						  bool tied, unsigned expert, const char *name)
{
	bool fused = view->engine == &sl_engines[SL_VLLM];
	const struct checkpoint_tensor *last = NULL;
	char out[200], stored[200];

	for (unsigned r = 0; r < f->n_rows; r++) {
		struct family_row plain = f->rows[r];
		struct rank rank = rank_of(&plain, view);
		if (!fused && (plain.stored == TURNED || plain.stored == GROUPS))
			plain.share = WHOLE, plain.stored = AS_IS; /* only at tp 1 */
		for (unsigned l = 0; expert < family_experts(f, &plain) && l < family_layers(f, &plain); l++) {
			const char *here = output_of(f, &plain, view, tied, l, expert, out);
			if (!here || strcmp(here, name) != 0)
				continue;
			last = checkpoint_find(family_expert_name(plain.name, l, expert, stored));
			made->dtype = dtype_of(view, &plain, last);
			add_tensor(made, &plain, last, &f->sizes, &rank);
		}
	}
	return last;
}

unsigned char *twin_tensor(const struct family *f, const struct sl_view *view, bool tied, const char *name,
			   uint64_t shape[4], unsigned *n_dims)
{
	const struct checkpoint_tensor *t, *last = NULL;
	struct made made = { .bytes = NULL };
	bool fused = view->engine == &sl_engines[SL_VLLM];
	unsigned n = 0;

	for (unsigned e = 0; e == 0 || e < f->more.E; e++) {
		t = add_expert(&made, f, view, tied, e, name);
		n += t && fused && strstr(name, "routed_experts.w");
		last = t ? t : last;
	}
	if (last)
		set_shape(&made, last, n, shape, n_dims);
	if (!made.bytes && fused)
		return scale(f, view, name, n_dims);
	return made.bytes;
}

/* Rows that begin an output: the first of those that are merged. */
static bool begins(const struct family *f, unsigned r, const struct sl_view *view)
{
	const struct family_row *row = &f->rows[r];

	for (unsigned before = 0; before < r && row->vllm && row->vllm[0] && view->engine == &sl_engines[SL_VLLM];
	     before++) {
		if (f->rows[before].vllm && strcmp(f->rows[before].vllm, row->vllm) == 0)
			return false;
	}
	return true;
}

/* Outputs that a row begins: one for each layer, in engines that hold experts apart for each expert. */
static unsigned count_row(const struct family *f, const struct family_row *row, const struct sl_view *view, bool tied)
{
	unsigned n = 0;
	char out[200];

	for (unsigned l = 0; l < family_layers(f, row); l++) {
		unsigned here = 0;
		for (unsigned e = 0; e < family_experts(f, row); e++)
			here += output_of(f, row, view, tied, l, e, out) != NULL;
		n += view->engine == &sl_engines[SL_VLLM] ? here > 0 : here;
	}
	return n;
}

static unsigned count_all(const struct family *f, const struct sl_view *view, bool tied)
{
	static const struct family_row any_layer = { .name = "%u" };
	unsigned n = 0;

	for (unsigned r = 0; r < f->n_rows; r++)
		n += begins(f, r, view) ? count_row(f, &f->rows[r], view, tied) : 0;
	for (unsigned l = 0; l < f->sizes.L && view->engine == &sl_engines[SL_VLLM]; l++)
		n += 4 * layer_is_here(f, &any_layer, view, l);
	return n;
}

/* ---- a whole view ---- */

static void compare_tensor(const struct family *f, const struct sl_view *view, bool tied, const struct sl_output *out)
{
	uint64_t shape[4], n = 1;
	unsigned n_dims;
	unsigned char *want = twin_tensor(f, view, tied, out->name, shape, &n_dims), *got = checkpoint_read(view, out);

	cr_assert(want != NULL, "%s: rank %u should have no '%s'", f->name, view->rank, out->name);
	cr_assert_eq(n_dims, out->n_dims, "%s: %s: %u dimensions, not %u", f->name, out->name, out->n_dims, n_dims);
	for (unsigned d = 0; d < n_dims; d++) {
		cr_assert_eq(shape[d], out->shape[d], "%s: %s: %u, not %u", f->name, out->name, (unsigned)out->shape[d],
			     (unsigned)shape[d]);
		n *= shape[d];
	}
	cr_assert_eq(out->len, sl_dtype_bytes(out->dtype, n));
	cr_assert(memcmp(want, got, out->len) == 0, "%s: %s tp%u rank %u stage %u: '%s' holds other bytes", f->name,
		  view->engine->name, view->layout.tp, view->rank, view->stage, out->name);
	free(want);
	free(got);
}

/* Every file, its header parsed again, has the tensors that the view says; all of them once. */
static void compare_files(const struct sl_view *view)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_tensor *tensors;
	struct sl_arena arena;
	uint32_t n, seen = 0;

	sl_arena_init(&arena);
	for (uint32_t f = 0; f < view->n_weights; f++) {
		unsigned char *bytes = checkpoint_read_file(&view->files[f]);
		int ret =
			sl_header_parse(bytes, view->files[f].size, view->files[f].size, f, &arena, &tensors, &n, &err);
		cr_assert_eq(ret, 0, "%s: %s", view->files[f].name, err.text);
		for (uint32_t i = 0; i < n; i++, seen++) {
			const struct sl_output *out = sl_view_find(view, tensors[i].name);
			cr_assert(out && out->file == f && out->off == tensors[i].off && out->len == tensors[i].len,
				  "%s", tensors[i].name);
			cr_assert(out->dtype == tensors[i].dtype && out->n_dims == tensors[i].n_dims);
			for (unsigned d = 0; d < out->n_dims; d++)
				cr_assert_eq(out->shape[d], tensors[i].shape[d]);
			bool sorted = i == 0 || tensors[i].dtype < tensors[i - 1].dtype ||
				      (tensors[i].dtype == tensors[i - 1].dtype &&
				       strcmp(tensors[i - 1].name, tensors[i].name) < 0);
			cr_assert(sorted, "%s is in another place than its writer would put it", tensors[i].name);
		}
		free(bytes);
	}
	cr_assert_eq(seen, view->n_tensors);
	sl_arena_release(&arena);
}

/* Pieces are in order, without gap or overlap, and end with the file. */
static void check_pieces(const struct sl_view *view)
{
	for (uint32_t f = 0; f < view->n_files; f++) {
		const struct sl_file *file = &view->files[f];
		uint64_t off = 0;
		for (uint32_t p = 0; p < file->n_pieces; off += file->pieces[p++].len)
			cr_assert(file->pieces[p].off == off && file->pieces[p].len > 0);
		cr_assert_eq(off, file->size, "%s", file->name);
	}
}

void twin_compare(const struct family *f, const struct sl_view *view, bool tied)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < view->n_tensors; i++) {
		compare_tensor(f, view, tied, &view->tensors[i]);
		bytes += view->tensors[i].len;
	}
	cr_assert_eq(view->n_tensors, count_all(f, view, tied), "%s: %u tensors, not %u", f->name, view->n_tensors,
		     count_all(f, view, tied));
	cr_assert_eq(view->bytes, bytes);
	compare_files(view);
	check_pieces(view);
}
