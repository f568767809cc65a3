/*
 * transform.c - reading what a transform makes: a range of bytes is cut into blocks of whole granules that fit into scratch on
 * the stack, each made from the rectangles of the inputs that it needs. Where a range begins or ends inside a granule, the
 * granule is made whole and the rest of it dropped.
 */
#include "slicer/transform.h"

#include "slicer/model.h"

#include <errno.h>
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
	static uint64_t n_learned;
	unsigned unknown = 0;

	while (!__atomic_compare_exchange_n(&t->facts->state, &unknown, 1, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (unknown == 2)
			return 0;
		if (unknown == 1)
			sched_yield();
		unknown = 0;
	}
	int ret = sl_transforms[t->id]->learn(model, t, t->facts->bytes, err);
	t->facts->serial = __atomic_add_fetch(&n_learned, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&t->facts->state, ret ? 0 : 2, __ATOMIC_RELEASE);
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

static void fit(const struct sl_transform *t, struct sl_rect *rect, uint64_t in_max, uint64_t out_max)
{
	struct sl_rect in[SL_INPUTS_MAX];
	uint64_t rows, bytes;

	sl_transforms[t->id]->granule(&t->args, &rows, &bytes);
	while (bytes_needed(t, rect, in) > in_max || rect->n_rows * rect->n_cols > out_max) {
		if (!shrink(t, rect, rows, bytes))
			break;
	}
}

static const struct sl_backend *backend_of(const struct sl_model *model)
{
	return model->backend ? model->backend : &sl_backend_cpu;
}

/* Who makes blocks of one member, and in which memory. */
struct maker {
	const struct sl_model *model;
	const struct sl_transform *t;
	uint64_t member;
	unsigned char *in; /* for what a block needs */
	uint64_t in_max, out_max;
};

static int make_block(const struct maker *maker, const struct sl_rect *rect, unsigned char *dst, uint64_t stride,
		      struct sl_error *err)
{
	const struct sl_transform *t = maker->t;
	struct sl_block block = { .member = maker->member, .out = *rect, .dst = dst, .stride = stride };
	uint64_t used = 0;

	if (bytes_needed(t, rect, block.in) > maker->in_max)
		return sl_fail(err, EINVAL, "a block of '%s' needs more than %llu bytes", sl_transforms[t->id]->name,
			       (unsigned long long)maker->in_max);
	block.facts = t->facts ? t->facts->bytes : NULL;
	block.facts_serial = t->facts ? t->facts->serial : 0;
	for (unsigned i = 0; i < t->n_inputs; i++) {
		int ret = sl_transform_input(maker->model, t, i, maker->member, &block.in[i], maker->in + used, err);
		if (ret)
			return ret;
		block.bytes[i] = maker->in + used;
		used += up(block.in[i].n_rows * block.in[i].n_cols, ALIGN);
	}
	return backend_of(maker->model)->run(maker->model->backend_state, t->id, &t->args, &block, err);
}

/* A rectangle, straight to where it is wanted: in blocks that fit, and smaller ones where one of them needs more than the
 * first. */
static int make_rect(const struct maker *maker, const struct sl_rect *rect, unsigned char *dst, struct sl_error *err)
{
	struct sl_rect part = *rect, now;
	uint64_t row_bytes = maker->t->args.row_bytes;
	int ret = 0;

	fit(maker->t, &part, maker->in_max, maker->out_max);
	if (part.n_rows == rect->n_rows && part.n_cols == rect->n_cols)
		return make_block(maker, rect, dst, row_bytes, err);
	for (uint64_t r = 0; r < rect->n_rows && !ret; r += part.n_rows) {
		for (uint64_t c = 0; c < rect->n_cols && !ret; c += part.n_cols) {
			now = (struct sl_rect){ rect->row + r, min(part.n_rows, rect->n_rows - r), rect->col + c,
						min(part.n_cols, rect->n_cols - c) };
			ret = make_rect(maker, &now, dst + r * row_bytes + c, err);
		}
	}
	return ret;
}

static int make_rect_on_stack(struct maker *maker, const struct sl_rect *rect, unsigned char *dst, struct sl_error *err)
{
	unsigned char in[SL_BLOCK_IN_MAX] __attribute__((aligned(ALIGN)));

	maker->in = in;
	maker->in_max = sizeof(in);
	return make_rect(maker, rect, dst, err);
}

/* Whole rows, whole granules of them; in memory of the backend if it lends some. */
static int make_rows(const struct sl_model *model, const struct sl_transform *t, uint64_t member, uint64_t row,
		     uint64_t n_rows, unsigned char *dst, struct sl_error *err)
{
	const struct sl_backend *backend = backend_of(model);
	const struct sl_rect rect = { row, n_rows, 0, t->args.row_bytes };
	struct maker maker = { .model = model, .t = t, .member = member, .in_max = backend->in_max };
	int ret;

	maker.out_max = backend->out_max ? backend->out_max : UINT64_MAX;
	maker.in = backend->lease ? backend->lease(model->backend_state, n_rows * t->args.row_bytes) : NULL;
	if (!maker.in)
		return make_rect_on_stack(&maker, &rect, dst, err);
	ret = make_rect(&maker, &rect, dst, err);
	backend->give_back(model->backend_state, maker.in);
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
	unsigned char made[SL_BLOCK_OUT_MAX], in[SL_BLOCK_IN_MAX] __attribute__((aligned(ALIGN)));
	const struct maker maker = { model, t, member, in, sizeof(in), sizeof(made) };
	struct sl_rect rect = { row, n_rows, 0, t->args.row_bytes };
	uint64_t rows, granule;
	int ret = 0;

	sl_transforms[t->id]->granule(&t->args, &rows, &granule);
	if (from / t->args.row_bytes == (to - 1) / t->args.row_bytes) { /* of one row: no wider than what is wanted */
		rect.col = from % t->args.row_bytes / granule * granule;
		rect.n_cols = min(up((to - 1) % t->args.row_bytes + 1, granule), t->args.row_bytes) - rect.col;
	}
	const uint64_t end = rect.col + rect.n_cols;
	fit(t, &rect, sizeof(in), sizeof(made));
	const uint64_t bytes = rect.n_cols;
	if (rect.n_rows != n_rows || n_rows * bytes > sizeof(made))
		return sl_fail(err, EINVAL, "a granule of '%s' has more than %zu bytes", sl_transforms[t->id]->name,
			       sizeof(made));
	for (; rect.col < end && !ret; rect.col += bytes) {
		rect.n_cols = min(bytes, end - rect.col);
		if (!touches(&t->args, &rect, from, to))
			continue;
		ret = make_block(&maker, &rect, made, rect.n_cols, err);
		if (!ret)
			take(&t->args, &rect, made, from, to, dst);
	}
	return ret;
}

int sl_transform_read(const struct sl_model *model, const struct sl_transform *t, uint64_t skip, uint64_t len,
		      unsigned char *dst, struct sl_error *err)
{
	uint64_t rows, bytes, size = sl_transform_member(&t->args), row_bytes = t->args.row_bytes;
	int ret = t->facts && __atomic_load_n(&t->facts->state, __ATOMIC_ACQUIRE) != 2 ? learn(model, t, err) : 0;

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

const struct sl_backend sl_backend_cpu = { .name = "cpu", .open = open_cpu, .run = run_cpu, .close = close_cpu };
