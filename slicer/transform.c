/*
 * transform.c - reading what a transform makes: a range of bytes is cut into blocks of whole granules that fit into scratch on
 * the stack, each made from the rectangles of the inputs that it needs. Where a range begins or ends inside a granule, the
 * granule is made whole and the rest of it dropped.
 */
#include "slicer/transform.h"

#include "slicer/model.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#define DECLARE(ID, name) extern const struct sl_transform_row sl_transform_##name;
#define ROW(ID, name)	  [SL_T_##ID] = &sl_transform_##name,

SL_TRANSFORMS(DECLARE)
const struct sl_transform_row *const sl_transforms[SL_N_TRANSFORMS] = { SL_TRANSFORMS(ROW) };

enum { ALIGN = 64 }; /* of each input of a block */

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* ---- inputs ---- */

/* The piece that has byte `at`. */
static const struct sl_piece *piece_at(const struct sl_stream *stream, uint64_t at)
{
	uint32_t low = 0, high = stream->n;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (stream->pieces[middle].off <= at)
			low = middle;
		else
			high = middle;
	}
	return &stream->pieces[low];
}

/* Bytes [at, at + len) of a stream. */
static int read_stream(const struct sl_model *model, const struct sl_stream *stream, uint64_t at, uint64_t len,
		       unsigned char *dst, struct sl_error *err)
{
	for (uint64_t now; len > 0; at += now, dst += now, len -= now) {
		const struct sl_piece *piece = piece_at(stream, at);
		now = min(len, piece->off + piece->len - at);
		int ret = sl_piece_read(model, piece, at - piece->off, now, dst, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* Rows of a stream: as many as lie in one piece are read at once. */
static int read_rows(const struct sl_model *model, const struct sl_stream *stream, uint64_t at, uint64_t n_rows,
		     uint64_t n, unsigned char *dst, struct sl_error *err)
{
	while (n_rows > 0) {
		const struct sl_piece *piece = piece_at(stream, at);
		uint64_t left = piece->off + piece->len - at, now = left < n ? 0 : 1 + (left - n) / stream->pitch;
		int ret;
		now = min(now, n_rows);
		if (now)
			ret = sl_piece_read_rows(model, piece, at - piece->off, stream->pitch, now, n, dst, err);
		else
			ret = read_stream(model, stream, at, n, dst, err);
		if (ret)
			return ret;
		now = max(now, 1);
		at += now * stream->pitch;
		dst += now * n;
		n_rows -= now;
	}
	return 0;
}

/* Rows of `n` bytes become rows of `width` bytes, the rest zeros; from the last one on, in place. */
static void widen(unsigned char *dst, uint64_t n_rows, uint64_t n, uint64_t width)
{
	for (uint64_t r = n_rows; r-- > 0;) {
		memmove(dst + r * width, dst + r * n, n);
		memset(dst + r * width + n, 0, width - n);
	}
}

int sl_transform_input(const struct sl_model *model, const struct sl_transform *t, unsigned input, uint64_t member,
		       const struct sl_rect *rect, unsigned char *dst, struct sl_error *err)
{
	const struct sl_stream *stream = &t->in[input];
	uint64_t rows = t->args.in[input].rows, row_bytes = t->args.in[input].row_bytes;
	uint64_t n_rows = rect->row < rows ? min(rect->n_rows, rows - rect->row) : 0;
	uint64_t n = rect->col < row_bytes ? min(rect->n_cols, row_bytes - rect->col) : 0;
	int ret = 0;

	if (n_rows && n)
		ret = read_rows(model, stream,
				stream->off + member * stream->stride + rect->row * stream->pitch + rect->col, n_rows,
				n, dst, err);
	else
		n_rows = 0;
	if (!ret && n < rect->n_cols)
		widen(dst, n_rows, n, rect->n_cols);
	if (!ret)
		memset(dst + n_rows * rect->n_cols, 0, (rect->n_rows - n_rows) * rect->n_cols);
	return ret;
}

/* ---- facts ---- */

/* Learned once; who comes meanwhile waits. If it fails, the next one tries again. */
static int learn(const struct sl_model *model, const struct sl_transform *t, struct sl_error *err)
{
	unsigned unknown = 0;

	while (!atomic_compare_exchange_weak(&t->facts->state, &unknown, 1)) {
		if (unknown == 2)
			return 0;
		if (unknown == 1)
			sched_yield();
		unknown = 0;
	}
	int ret = sl_transforms[t->id]->learn(model, t, t->facts->bytes, err);
	if (ret && t->module)
		sl_error_prefix(err, "%s", SL_ESC(t->module));
	atomic_store(&t->facts->state, ret ? 0 : 2);
	return ret;
}

/* ---- blocks ---- */

static uint64_t bytes_needed(const struct sl_transform *t, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < t->n_inputs; i++) {
		in[i] = (struct sl_rect){ 0, 0, 0, 0 };
		sl_transforms[t->id]->need(&t->args, i, out, &in[i]);
		bytes += up(in[i].n_rows * in[i].n_cols, ALIGN);
	}
	return bytes;
}

/* Halve a block along rows or bytes, in whole granules; false when there is nothing to halve. */
static bool halve(struct sl_rect *rect, bool rows, uint64_t granule_rows, uint64_t granule_bytes)
{
	uint64_t *n = rows ? &rect->n_rows : &rect->n_cols, granule = rows ? granule_rows : granule_bytes;

	if (*n <= granule)
		return false;
	*n = up((*n + 1) / 2, granule);
	return true;
}

/* Make the block smaller: along the axis that leaves the longer runs to read. */
static bool shrink(const struct sl_transform *t, struct sl_rect *rect, uint64_t granule_rows, uint64_t granule_bytes)
{
	struct sl_rect by_rows = *rect, by_bytes = *rect, in_rows[SL_INPUTS_MAX], in_bytes[SL_INPUTS_MAX];
	bool can_rows = halve(&by_rows, true, granule_rows, granule_bytes),
	     can_bytes = halve(&by_bytes, false, granule_rows, granule_bytes);

	if (!can_rows && !can_bytes)
		return false;
	if (can_rows && can_bytes) {
		bytes_needed(t, &by_rows, in_rows);
		bytes_needed(t, &by_bytes, in_bytes);
		can_rows = in_rows[0].n_cols >= in_bytes[0].n_cols;
	}
	*rect = can_rows ? by_rows : by_bytes;
	return true;
}

static void fit(const struct sl_transform *t, struct sl_rect *rect, uint64_t out_max)
{
	struct sl_rect in[SL_INPUTS_MAX];
	uint64_t rows, bytes;

	sl_transforms[t->id]->granule(&t->args, &rows, &bytes);
	while (bytes_needed(t, rect, in) > SL_BLOCK_IN_MAX || rect->n_rows * rect->n_cols > out_max) {
		if (!shrink(t, rect, rows, bytes))
			break;
	}
}

static int make_block(const struct sl_model *model, const struct sl_transform *t, uint64_t member,
		      const struct sl_rect *rect, unsigned char *dst, uint64_t stride, struct sl_error *err)
{
	unsigned char in[SL_BLOCK_IN_MAX] __attribute__((aligned(ALIGN)));
	struct sl_block block = { .member = member, .out = *rect, .dst = dst, .stride = stride };
	uint64_t used = 0;

	if (bytes_needed(t, rect, block.in) > sizeof(in))
		return sl_fail(err, EINVAL, "a block of '%s' needs more than %zu bytes", sl_transforms[t->id]->name,
			       sizeof(in));
	block.facts = t->facts ? t->facts->bytes : NULL;
	for (unsigned i = 0; i < t->n_inputs; i++) {
		int ret = sl_transform_input(model, t, i, member, &block.in[i], in + used, err);
		if (ret)
			return ret;
		block.bytes[i] = in + used;
		used += up(block.in[i].n_rows * block.in[i].n_cols, ALIGN);
	}
	int ret = t->args.strict && sl_transforms[t->id]->check ? sl_transforms[t->id]->check(&t->args, &block, err) : 0;
	if (ret)
		return t->module ? sl_error_prefix(err, "%s", SL_ESC(t->module)) : ret;
	const struct sl_backend *backend = model->backend ? model->backend : &sl_backend_cpu;
	return backend->run(model->backend_state, t->id, &t->args, &block, err);
}

/* Whole rows, whole granules of them, straight to where they are wanted. */
static int make_rows(const struct sl_model *model, const struct sl_transform *t, uint64_t member, uint64_t row,
		     uint64_t n_rows, unsigned char *dst, struct sl_error *err)
{
	struct sl_rect rect = { row, n_rows, 0, t->args.row_bytes };
	int ret = 0;

	fit(t, &rect, UINT64_MAX);
	const uint64_t rows = rect.n_rows, bytes = rect.n_cols;
	for (uint64_t r = 0; r < n_rows; r += rows) {
		for (uint64_t c = 0; c < t->args.row_bytes && !ret; c += bytes) {
			rect = (struct sl_rect){ row + r, min(rows, n_rows - r), c, min(bytes, t->args.row_bytes - c) };
			ret = make_block(model, t, member, &rect, dst + r * t->args.row_bytes + c, t->args.row_bytes,
					 err);
		}
	}
	return ret;
}

/* What of a made block lies in bytes [from, to) of the member. */
static void take(const struct sl_args *args, const struct sl_rect *rect, const unsigned char *made, uint64_t from,
		 uint64_t to, unsigned char *dst)
{
	for (uint64_t r = 0; r < rect->n_rows; r++) {
		uint64_t start = (rect->row + r) * args->row_bytes + rect->col, end = start + rect->n_cols;
		uint64_t low = max(start, from), high = min(end, to);
		if (low < high)
			memcpy(dst + (low - from), made + r * rect->n_cols + (low - start), high - low);
	}
}

/* Does it have any of bytes [from, to)? */
static bool touches(const struct sl_args *args, const struct sl_rect *rect, uint64_t from, uint64_t to)
{
	uint64_t first = from / args->row_bytes, last = (to - 1) / args->row_bytes;

	if (first != last)
		return true;
	return rect->col < to - first * args->row_bytes && from - first * args->row_bytes < rect->col + rect->n_cols;
}

/* Bytes [from, to) of a member that lie in the granules' rows [row, row + n_rows). */
static int make_some(const struct sl_model *model, const struct sl_transform *t, uint64_t member, uint64_t row,
		     uint64_t n_rows, uint64_t from, uint64_t to, unsigned char *dst, struct sl_error *err)
{
	unsigned char made[SL_BLOCK_OUT_MAX];
	struct sl_rect rect = { row, n_rows, 0, t->args.row_bytes };
	uint64_t rows, granule;
	int ret = 0;

	sl_transforms[t->id]->granule(&t->args, &rows, &granule);
	if (from / t->args.row_bytes == (to - 1) / t->args.row_bytes) { /* of one row: no wider than what is wanted */
		rect.col = from % t->args.row_bytes / granule * granule;
		rect.n_cols = min(up((to - 1) % t->args.row_bytes + 1, granule), t->args.row_bytes) - rect.col;
	}
	const uint64_t end = rect.col + rect.n_cols;
	fit(t, &rect, sizeof(made));
	const uint64_t bytes = rect.n_cols;
	if (rect.n_rows != n_rows || n_rows * bytes > sizeof(made))
		return sl_fail(err, EINVAL, "a granule of '%s' has more than %zu bytes", sl_transforms[t->id]->name,
			       sizeof(made));
	for (; rect.col < end && !ret; rect.col += bytes) {
		rect.n_cols = min(bytes, end - rect.col);
		if (!touches(&t->args, &rect, from, to))
			continue;
		ret = make_block(model, t, member, &rect, made, rect.n_cols, err);
		if (!ret)
			take(&t->args, &rect, made, from, to, dst);
	}
	return ret;
}

int sl_transform_read(const struct sl_model *model, const struct sl_transform *t, uint64_t skip, uint64_t len,
		      unsigned char *dst, struct sl_error *err)
{
	uint64_t rows, bytes, size = sl_transform_member(&t->args), row_bytes = t->args.row_bytes;
	int ret = t->facts && atomic_load(&t->facts->state) != 2 ? learn(model, t, err) : 0;

	sl_transforms[t->id]->granule(&t->args, &rows, &bytes);
	for (uint64_t now; len > 0 && !ret; skip += now, dst += now, len -= now) {
		uint64_t member = skip / size, from = skip % size, row = from / row_bytes / rows * rows;
		uint64_t to = min(from + len, size), last = to == size ? t->args.rows : to / row_bytes / rows * rows;
		if (from == row * row_bytes && last > row) {
			now = (last - row) * row_bytes;
			ret = make_rows(model, t, member, row, last - row, dst, err);
			continue;
		}
		last = min(row + rows, t->args.rows);
		to = min(to, last * row_bytes);
		now = to - from;
		ret = make_some(model, t, member, row, last - row, from, to, dst, err);
	}
	return ret;
}

int sl_transform_scales(const unsigned char *scales, uint64_t n, struct sl_error *err)
{
	for (uint64_t i = 0; i < n; i++) {
		float scale;
		memcpy(&scale, scales + i * sizeof(scale), sizeof(scale));
		if (!(scale > 0) || isinf(scale))
			return sl_fail(err, EINVAL, "a scale is %g: neither positive nor finite, and engines differ in what follows",
				       (double)scale);
	}
	return 0;
}

/* ---- before it is planned ---- */

/* Bytes that a stream has from its first one on. */
static uint64_t stream_len(const struct sl_stream *stream)
{
	const struct sl_piece *last = &stream->pieces[stream->n - 1];

	return last->off + last->len - stream->off;
}

static bool reaches(const struct sl_transform *t, unsigned i)
{
	const struct sl_stream *s = &t->in[i];
	uint64_t rows = t->args.in[i].rows, members, within, end;

	if (rows == 0 || t->args.in[i].row_bytes == 0 || t->args.batch == 0)
		return true;
	return s->n && s->off >= s->pieces[0].off && !__builtin_mul_overflow(t->args.batch - 1, s->stride, &members) &&
	       !__builtin_mul_overflow(rows - 1, s->pitch, &within) && !__builtin_add_overflow(members, within, &end) &&
	       !__builtin_add_overflow(end, t->args.in[i].row_bytes, &end) && end <= stream_len(s);
}

int sl_transform_check(const struct sl_transform *t, struct sl_error *err)
{
	const char *name = sl_transforms[t->id]->name;
	struct sl_rect rect = { 0, t->args.rows, 0, t->args.row_bytes }, in[SL_INPUTS_MAX];
	uint64_t rows, bytes, size;

	if (__builtin_mul_overflow(t->args.rows, t->args.row_bytes, &size) ||
	    __builtin_mul_overflow(t->args.batch, size, &size) || size == 0)
		return sl_fail(err, EINVAL, "'%s' of %llu x %llu x %llu bytes", name, (unsigned long long)t->args.batch,
			       (unsigned long long)t->args.rows, (unsigned long long)t->args.row_bytes);
	for (unsigned i = 0; i < t->n_inputs; i++) {
		if (!reaches(t, i))
			return sl_fail(err, EINVAL, "'%s': input %u is shorter than %llu rows of %llu bytes", name, i,
				       (unsigned long long)t->args.in[i].rows,
				       (unsigned long long)t->args.in[i].row_bytes);
	}
	sl_transforms[t->id]->granule(&t->args, &rows, &bytes);
	rect.n_rows = min(rows, rect.n_rows);
	rect.n_cols = min(bytes, rect.n_cols);
	if (bytes_needed(t, &rect, in) > SL_BLOCK_IN_MAX || rect.n_rows * rect.n_cols > SL_BLOCK_OUT_MAX)
		return sl_fail(err, EINVAL, "'%s' of rows of %llu bytes: more than %u must be held at once", name,
			       (unsigned long long)t->args.row_bytes, SL_BLOCK_IN_MAX);
	return 0;
}

/* ---- the processor ---- */

static int run_cpu(void *state, unsigned id, const struct sl_args *args, const struct sl_block *block,
		   struct sl_error *err)
{
	(void)state, (void)err;
	sl_transforms[id]->run(args, block);
	return 0;
}

static int open_cpu(void **state, int device, struct sl_error *err)
{
	(void)device, (void)err;
	*state = NULL;
	return 0;
}

static void close_cpu(void *state)
{
	(void)state;
}

const struct sl_backend sl_backend_cpu = { "cpu", open_cpu, run_cpu, close_cpu };
