/*
 * origin.c - pieces read back into slices. A piece is bytes; which tensor they belong to follows from their place,
 * and rows and columns from that tensor's shape. Nothing here is used for reading, so an odd piece can at worst be
 * described by its elements ("t.flat[3:9]").
 */
#include "fs/origin.h"
#include "fs/print.h"
#include "fs/values.h"
#include "slicer/series.h"
#include "slicer/transform.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LANES = 8, MIN_REPEATS = 4 };

struct origins {
	const struct sl_model *model;
	size_t n;
	const struct sl_tensor *by_place[]; /* tensors that have bytes, by shard and offset */
};

static int compare_places(const void *a, const void *b)
{
	const struct sl_tensor *x = *(const struct sl_tensor *const *)a, *y = *(const struct sl_tensor *const *)b;

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

int origins_open(struct origins **out, const struct sl_model *model, struct sl_error *err)
{
	const struct sl_shards *shards = &model->shards;
	struct origins *origins;

	*out = NULL;
	origins = malloc(sizeof(*origins) + shards->n_tensors * sizeof(origins->by_place[0]));
	if (!origins)
		return sl_fail(err, ENOMEM, "no memory for an index of %u tensors", shards->n_tensors);
	origins->model = model;
	origins->n = 0;
	for (uint32_t i = 0; i < shards->n_tensors; i++) {
		if (shards->tensors[i].len > 0)
			origins->by_place[origins->n++] = &shards->tensors[i];
	}
	qsort(origins->by_place, origins->n, sizeof(origins->by_place[0]), compare_places);
	*out = origins;
	return 0;
}

void origins_close(struct origins *origins)
{
	free(origins);
}

const struct sl_tensor *origins_find(const struct origins *origins, uint32_t shard, uint64_t off)
{
	size_t low = 0, high = origins->n;
	const struct sl_tensor *t;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		t = origins->by_place[mid];
		if (t->shard < shard || (t->shard == shard && t->off <= off))
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0)
		return NULL;
	t = origins->by_place[low - 1];
	return t->shard == shard && off - t->off < t->len ? t : NULL;
}

static bool is_compound(const struct sl_piece *piece)
{
	return sl_piece_parts(piece).list != piece;
}

static bool is_contiguous(const struct sl_piece *piece)
{
	return sl_piece_reads(piece) && piece->op != SL_OP_TRANSPOSE &&
	       (piece->count == 1 || piece->run == piece->stride);
}

/* What a piece does to its elements, to compare pieces of one lane. */
static bool same_kind(const struct sl_piece *a, const struct sl_piece *b)
{
	return a->op == b->op && a->len == b->len &&
	       (!sl_piece_reads(a) || (a->shard == b->shard && a->from == b->from && a->to == b->to &&
				       a->run == b->run && a->count == 1 && b->count == 1));
}

/* Does lane `a` go on with `b` and then `c`, each time the same distance further? */
static bool same_step(const struct sl_piece *a, const struct sl_piece *b, const struct sl_piece *c)
{
	return same_kind(b, c) && (!sl_piece_reads(a) || (b->src > a->src && c->src - b->src == b->src - a->src));
}

/* How often the `lanes` pieces at `pieces` repeat, each lane within one source tensor. */
static uint32_t count_repeats(const struct origins *origins, const struct sl_piece *pieces, uint32_t left,
			      uint32_t lanes)
{
	uint32_t repeats = left / lanes;

	for (uint32_t lane = 0; lane < lanes && repeats >= MIN_REPEATS; lane++) {
		const struct sl_piece *p = pieces + lane;
		const struct sl_tensor *t = sl_piece_reads(p) ? origins_find(origins, p->shard, p->src) : NULL;
		uint32_t n = 1;

		if (p->op == SL_OP_DATA || is_compound(p) || (sl_piece_reads(p) && !t) || !same_kind(p, p + lanes))
			return 0;
		for (n = 2; n < repeats && same_step(p + (n - 2) * lanes, p + (n - 1) * lanes, p + n * lanes); n++) {
			if (t && p[n * lanes].src - t->off >= t->len)
				break;
		}
		repeats = n < repeats ? n : repeats;
	}
	return repeats >= MIN_REPEATS ? repeats : 0;
}

int origin_walk_init(struct origin_walk *walk, const struct origins *origins, const struct sl_output *output)
{
	*walk = (struct origin_walk){ .origins = origins, .output = output, .cast = -1 };
	sl_arena_init(&walk->arena);
	walk->pieces =
		sl_pieces_spread(origins->model, output->pieces, output->n_pieces, &walk->arena, &walk->n_pieces);
	return walk->pieces || output->n_pieces == 0 ? 0 : -ENOMEM;
}

void origin_walk_release(struct origin_walk *walk)
{
	sl_arena_release(&walk->arena);
}

/* Pieces that continue each other without a gap, in the source tensor as in the output. */
static uint32_t count_merged(const struct origins *origins, const struct sl_piece *pieces, uint32_t left)
{
	const struct sl_tensor *t = is_contiguous(pieces) ? origins_find(origins, pieces->shard, pieces->src) : NULL;
	uint64_t end = t ? pieces->src + pieces->run * pieces->count : 0;
	uint32_t n;

	for (n = 1; t && n < left && end - t->off < t->len; n++) {
		const struct sl_piece *p = pieces + n;

		if (!is_contiguous(p) || p->shard != t->shard || p->src != end || p->op != pieces->op ||
		    p->to != pieces->to)
			break;
		end += p->run * p->count;
	}
	return n;
}

static void find_group(const struct origin_walk *walk, struct origin_term *term)
{
	uint32_t left = walk->n_pieces - walk->next;
	uint64_t best = 1;

	for (uint32_t lanes = 1; lanes <= MAX_LANES; lanes++) {
		uint32_t repeats = count_repeats(walk->origins, term->pieces, left, lanes);

		if ((uint64_t)repeats * lanes > best) {
			best = (uint64_t)repeats * lanes;
			term->n_lanes = lanes;
			term->repeats = repeats;
		}
	}
}

bool origin_walk_next(struct origin_walk *walk, struct origin_term *term)
{
	const struct sl_piece *pieces = walk->pieces + walk->next, *last;
	uint32_t left = walk->n_pieces - walk->next;

	if (left == 0)
		return false;
	*term = (struct origin_term){ .pieces = pieces, .n_lanes = 1, .repeats = 1, .merged = 1 };
	term->merged = count_merged(walk->origins, pieces, left);
	if (term->merged == 1)
		find_group(walk, term);
	walk->next += term->merged * term->n_lanes * term->repeats;
	last = walk->pieces + walk->next - 1;
	term->off = pieces->off - walk->output->off;
	term->len = last->off + last->len - pieces->off;
	return true;
}

/* A tensor's shape as a matrix, in bits: rows over all leading dimensions, columns in the last one. */
struct matrix {
	uint64_t rows, row_bits, element_bits;
};

static struct matrix matrix_of(const uint64_t *shape, unsigned n_dims, uint8_t dtype)
{
	struct matrix m = { .rows = 1, .element_bits = sl_dtypes[dtype].bits };

	for (unsigned d = 0; d + 1 < n_dims; d++)
		m.rows *= shape[d];
	m.row_bits = m.element_bits;
	if (n_dims == 1)
		m.rows = shape[0];
	else if (n_dims > 1)
		m.row_bits *= shape[n_dims - 1];
	return m;
}

/* A strided run of a tensor, in bits from the tensor's start. */
struct slice {
	uint64_t from, run, stride, count;
};

static void print_rows(FILE *out, const struct matrix *m, const struct slice *s)
{
	uint64_t row = s->from / m->row_bits, rows = s->run / m->row_bits, step = s->stride / m->row_bits;

	if (s->count == 1 || step == rows)
		fprintf(out, "[%" PRIu64 ":%" PRIu64 "]", row, row + s->count * rows);
	else if (rows == 1)
		fprintf(out, "[%" PRIu64 ":%" PRIu64 ":%" PRIu64 "]", row, row + (s->count - 1) * step + 1, step);
	else
		fprintf(out, "[%" PRIu64 ":%" PRIu64 " every %" PRIu64 ", %" PRIu64 " times]", row, row + rows, step,
			s->count);
}

static void print_columns(FILE *out, const struct matrix *m, const struct slice *s)
{
	uint64_t row = s->from / m->row_bits, column = s->from % m->row_bits / m->element_bits;
	uint64_t step = s->count == 1 ? 1 : s->stride / m->row_bits;

	fprintf(out, "[%" PRIu64 ":%" PRIu64, row, row + (s->count - 1) * step + 1);
	if (step > 1)
		fprintf(out, ":%" PRIu64, step);
	fprintf(out, ", %" PRIu64 ":%" PRIu64 "]", column, column + s->run / m->element_bits);
}

/* A slice of the second of three dimensions, such as the rows of each of several experts. */
static bool print_box(FILE *out, const struct sl_tensor *t, const struct matrix *m, const struct slice *s)
{
	uint64_t slab = t->n_dims == 3 ? t->shape[1] * m->row_bits : 0, first, row;

	if (slab == 0 || s->count == 1 || s->stride != slab || s->from % m->row_bits || s->run % m->row_bits)
		return false;
	first = s->from / slab;
	row = s->from % slab / m->row_bits;
	fprintf(out, "[%" PRIu64 ":%" PRIu64 ", %" PRIu64 ":%" PRIu64 ", :]", first, first + s->count, row,
		row + s->run / m->row_bits);
	return true;
}

static void print_slice(FILE *out, const struct sl_tensor *t, const struct slice *s)
{
	struct matrix m = matrix_of(t->shape, t->n_dims, t->dtype);
	bool whole_stride = s->count == 1 || s->stride % m.row_bits == 0;

	print_escaped(out, t->name);
	if (s->count == 1 && s->run == t->len * 8)
		return;
	if (print_box(out, t, &m, s))
		return;
	if (whole_stride && s->from % m.row_bits == 0 && s->run % m.row_bits == 0)
		print_rows(out, &m, s);
	else if (whole_stride && s->from % m.row_bits + s->run <= m.row_bits)
		print_columns(out, &m, s);
	else if (s->count == 1)
		fprintf(out, ".flat[%" PRIu64 ":%" PRIu64 "]", s->from / m.element_bits,
			(s->from + s->run) / m.element_bits);
	else
		fprintf(out, ".flat[%" PRIu64 ":%" PRIu64 " every %" PRIu64 ", %" PRIu64 " times]",
			s->from / m.element_bits, (s->from + s->run) / m.element_bits, s->stride / m.element_bits,
			s->count);
}

/* Of a matrix the slice is that of the transposed one, as a Python programmer would write it. */
static void print_transposed(FILE *out, const struct sl_tensor *t, const struct slice *s)
{
	struct matrix m = matrix_of(t->shape, t->n_dims, t->dtype);
	uint64_t row = s->from / m.row_bits, column = s->from % m.row_bits / m.element_bits;
	uint64_t columns = s->run / m.element_bits;

	if (t->n_dims != 2 || (s->count > 1 && s->stride != m.row_bits)) {
		print_slice(out, t, s);
		fputs(".T", out);
		return;
	}
	print_escaped(out, t->name);
	fputs(".T", out);
	if (s->count != m.rows)
		fprintf(out, "[%" PRIu64 ":%" PRIu64 ", %" PRIu64 ":%" PRIu64 "]", column, column + columns, row,
			row + s->count);
	else if (s->run != m.row_bits)
		fprintf(out, "[%" PRIu64 ":%" PRIu64 "]", column, column + columns);
}

static void print_source(FILE *out, const struct origin_walk *walk, const struct sl_piece *piece, const struct slice *s)
{
	const struct sl_tensor *t = origins_find(walk->origins, piece->shard, piece->src);
	const struct sl_shard *shard = &walk->origins->model->shards.shards[piece->shard];
	struct slice in_tensor = *s;

	if (!t) {
		fprintf(out, "%s bytes %" PRIu64 "…", SL_ESC(shard->name), piece->src);
		return;
	}
	in_tensor.from = (piece->src - t->off) * 8;
	if (piece->op == SL_OP_TRANSPOSE)
		print_transposed(out, t, &in_tensor);
	else
		print_slice(out, t, &in_tensor);
}

static void print_zeros(FILE *out, const struct origin_walk *walk, uint64_t len, bool columns)
{
	const struct sl_output *o = walk->output;
	struct matrix m = matrix_of(o->shape, o->n_dims, o->dtype);
	uint64_t bits = len * 8, unit = columns ? m.element_bits : m.row_bits;
	const char *what = columns ? "column" : o->n_dims > 1 ? "row" : "element";

	if (len == o->len)
		fputs("zeros", out);
	else if (bits % unit == 0)
		fprintf(out, "%" PRIu64 " zero %s%s", bits / unit, what, bits == unit ? "" : "s");
	else
		fprintf(out, "%" PRIu64 " zero bytes", len);
}

static void print_data(FILE *out, const struct origin_walk *walk, const struct sl_piece *piece)
{
	char text[64];

	if (values_constant(walk->output->dtype, piece->data, piece->len, text, sizeof(text)))
		fputs(text, out);
	else
		fprintf(out, "%" PRIu64 " constant bytes", piece->len);
}

/* One lane of a term: a piece, repeated `repeats` times with that many bytes of source in between. */
static void print_lane(FILE *out, const struct origin_walk *walk, const struct origin_term *term, uint32_t lane);

/* Of what a transform works on, experts have too much to name. */
enum { PARTS_SHOWN = 8 };

/* Parts side by side, what is scaled and by what, what is enlarged, or what is computed from. */
static void print_compound(FILE *out, const struct origin_walk *walk, const struct sl_piece *p)
{
	const struct sl_compound *c = p->compound;
	const char *between = p->op == SL_OP_COLUMNS ? " ++ " : p->op == SL_OP_TRANSFORM ? ", " : " x ";
	uint32_t shown = p->op == SL_OP_TRANSFORM && c->n > PARTS_SHOWN ? PARTS_SHOWN : c->n;

	if (p->op == SL_OP_TRANSFORM)
		fputs(sl_transforms[c->transform->id]->name, out);
	fputs(p->op == SL_OP_COLUMNS ? "(by columns: " : "(", out);
	for (uint32_t i = 0; i < shown; i++) {
		const struct origin_term part = {
			.len = c->parts[i].len, .pieces = &c->parts[i], .n_lanes = 1, .repeats = 1, .merged = 1
		};
		fputs(i ? between : "", out);
		if (p->op == SL_OP_COLUMNS && c->parts[i].op == SL_OP_ZERO)
			print_zeros(out, walk, c->parts[i].len / c->parts[i].count, true);
		else
			print_lane(out, walk, &part, 0);
	}
	if (shown < c->n)
		fprintf(out, ", and %" PRIu32 " more", c->n - shown);
	if (p->op == SL_OP_SCALE)
		fprintf(out, " a block of %u x %u", c->block[0], c->block[1]);
	else if (p->op == SL_OP_REPEAT)
		fprintf(out, ", each element %u x %u times", c->block[0], c->block[1]);
	else if (p->op == SL_OP_REGROUP)
		fprintf(out, " a group of a row, as FP8 with a scale for a block of %u x %u", c->block[0], c->block[1]);
	else if (p->op == SL_OP_REGROUPED)
		fprintf(out, ", one / 64 for a block of %u x %u: the greatest", c->block[0], c->block[1]);
	fputc(')', out);
}

static void print_lane(FILE *out, const struct origin_walk *walk, const struct origin_term *term, uint32_t lane)
{
	const struct sl_piece *p = term->pieces + lane, *last = p + term->merged - 1;
	struct slice slice = { .run = p->run * 8, .stride = p->stride * 8, .count = p->count };

	if (p->op == SL_OP_ZERO) {
		print_zeros(out, walk, term->n_lanes == 1 ? term->len : p->len, term->n_lanes > 1);
		return;
	}
	if (p->op == SL_OP_DATA) {
		print_data(out, walk, p);
		return;
	}
	if (is_compound(p)) {
		print_compound(out, walk, p);
		return;
	}
	if (p->op != SL_OP_COPY && p->from != p->to && p->to != walk->cast)
		fprintf(out, "cast(%s) ", sl_dtypes[p->to].name);
	if (is_contiguous(p)) {
		slice.run = (last->src + last->run * last->count - p->src) * 8;
		slice.count = 1;
	}
	if (term->repeats > 1) {
		slice.count = term->repeats;
		slice.stride = (p[term->n_lanes].src - p->src) * 8;
	}
	print_source(out, walk, p, &slice);
}

void origin_print_term(FILE *out, const struct origin_walk *walk, const struct origin_term *term)
{
	const struct sl_output *o = walk->output;
	struct matrix m = matrix_of(o->shape, o->n_dims, o->dtype);
	bool whole = term->len == o->len;
	uint64_t len = 0;

	if (term->n_lanes == 1) {
		print_lane(out, walk, term, 0);
		return;
	}
	for (uint32_t lane = 0; lane < term->n_lanes; lane++)
		len += term->pieces[lane].len;
	fprintf(out, "%s%s: ", whole ? "" : "(", len * 8 == m.row_bits ? "by columns" : "in turns");
	for (uint32_t lane = 0; lane < term->n_lanes; lane++) {
		fputs(lane ? " ++ " : "", out);
		print_lane(out, walk, term, lane);
	}
	fputs(whole ? "" : ")", out);
}

/* The dtype that every source piece is converted to, or -1. */
static int common_cast(const struct origin_walk *walk)
{
	int cast = -1;

	for (uint32_t i = 0; i < walk->n_pieces; i++) {
		const struct sl_piece *p = walk->pieces + i;

		if (!sl_piece_reads(p))
			continue;
		if (p->op == SL_OP_COPY || p->from == p->to || (cast >= 0 && cast != p->to))
			return -1;
		cast = p->to;
	}
	return cast;
}

int origin_print(FILE *out, const struct origins *origins, const struct sl_output *output)
{
	struct origin_walk walk;
	struct origin_term term;
	const char *between = "";
	int rc = origin_walk_init(&walk, origins, output);

	if (rc == 0 && output->n_pieces == 0)
		fputs("empty", out);
	walk.cast = rc ? -1 : common_cast(&walk);
	if (walk.cast >= 0)
		fprintf(out, "cast(%s): ", sl_dtypes[walk.cast].name);
	for (; rc == 0 && origin_walk_next(&walk, &term); between = " ++ ") {
		fputs(between, out);
		origin_print_term(out, &walk, &term);
	}
	origin_walk_release(&walk);
	return rc;
}

void origin_print_shape(FILE *out, const uint64_t *shape, unsigned n_dims)
{
	fputc('[', out);
	for (unsigned d = 0; d < n_dims; d++)
		fprintf(out, "%s%" PRIu64, d ? ", " : "", shape[d]);
	fputc(']', out);
}
