/*
 * transform.c - reading what a transform makes: a range of bytes is cut in two, and those again, until it is blocks of whole
 * granules of which the inputs fit into scratch on the stack. Each is made from the rectangles of the inputs that it needs, where
 * it is wanted. Where a range begins or ends inside a granule, the granule is made whole and the rest of it dropped.
 */
#include "slicer/transform.h"

#include "slicer/model.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <sched.h>
#include <string.h>

#define DECLARE(ID, name) extern const struct sl_transform_row sl_transform_##name;
#define ROW(ID, name)	  [SL_T_##ID] = &sl_transform_##name,

SL_TRANSFORMS(DECLARE)
const struct sl_transform_row *const sl_transforms[SL_N_TRANSFORMS] = { SL_TRANSFORMS(ROW) };

enum {
	ALIGN = 64,    /* of each input of a block */
	RUN = 1 << 10, /* bytes that could be read in the time that it takes to ask for more */
	BLOCK_IN = 256
		   << 10, /* of inputs that are held at once if a granule does not need more: they are to stay cached */
};

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

static uint64_t n_learned;

/* Learned once; who comes meanwhile waits. If it fails, the next one tries again. */
static int learn(const struct sl_model *model, const struct sl_transform *t, struct sl_error *err)
{
	unsigned unknown = 0;

	while (!__atomic_compare_exchange_n(&t->facts->state, &unknown, 1, true, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		if (unknown == 2)
			return 0;
		if (unknown == 1)
			sched_yield();
		unknown = 0;
	}
	int ret = sl_transforms[t->id]->learn(model, t, t->facts->bytes, err);
	if (ret && t->module)
		sl_error_prefix(err, "%s", SL_ESC(t->module));
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

/* The two parts of a range of whole granules, cut near its middle where the cut is a multiple of many of them: orders of rows
 * mix those of aligned groups, which are not to be read twice. */
static void cut_range(uint64_t at, uint64_t n, uint64_t granule, uint64_t *first)
{
	uint64_t from = at / granule, granules = (n + granule - 1) / granule, middle = granules / 2, unit = 1;

	while (unit * 2 <= middle)
		unit *= 2;
	*first = ((from + middle + unit / 2) / unit * unit - from) * granule;
}

/* Cut a block along rows or bytes; false when it has one granule of them. */
static bool cut_along(const struct sl_transform *t, bool rows, const struct sl_rect *rect, struct sl_rect part[2])
{
	uint64_t granule[2], first, n = rows ? rect->n_rows : rect->n_cols;

	sl_transforms[t->id]->granule(&t->args, &granule[0], &granule[1]);
	if (n <= granule[!rows])
		return false;
	cut_range(rows ? rect->row : rect->col, n, granule[!rows], &first);
	part[0] = part[1] = *rect;
	if (rows) {
		part[0].n_rows = first;
		part[1].row += first;
		part[1].n_rows -= first;
	} else {
		part[0].n_cols = first;
		part[1].col += first;
		part[1].n_cols -= first;
	}
	return true;
}

/* What it takes to read what two blocks need and to write them, in bytes. Rows that are not whole are read and written one by one. */
static uint64_t cost(const struct sl_transform *t, const struct sl_rect part[2])
{
	struct sl_rect in[SL_INPUTS_MAX];
	uint64_t bytes = 0;

	for (unsigned half = 0; half < 2; half++) {
		bytes += bytes_needed(t, &part[half], in);
		for (unsigned i = 0; i < t->n_inputs; i++)
			bytes += RUN * (in[i].n_cols < t->in[i].pitch ? in[i].n_rows : 1);
		bytes += RUN * (part[half].n_cols < t->args.row_bytes ? part[half].n_rows : 1);
	}
	return bytes;
}

/* Cut a block in two, along the axis that leaves less to do; false when it is one granule. */
static bool cut(const struct sl_transform *t, const struct sl_rect *rect, struct sl_rect part[2])
{
	struct sl_rect by_bytes[2];
	bool rows = cut_along(t, true, rect, part), bytes = cut_along(t, false, rect, by_bytes);

	if (bytes && (!rows || cost(t, by_bytes) < cost(t, part)))
		memcpy(part, by_bytes, sizeof(by_bytes));
	return rows || bytes;
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
	unsigned char *in; /* for what a block needs: in_max bytes */
	uint64_t in_max;
	uint64_t in_wanted, out_wanted; /* a block is cut in two above these, as long as it has several granules */
};

static int check_inputs(const struct sl_transform *t, const struct sl_block *block, struct sl_error *err)
{
	int ret = t->args.strict && sl_transforms[t->id]->check ? sl_transforms[t->id]->check(&t->args, block, err) : 0;

	return ret && t->module ? sl_error_prefix(err, "%s", SL_ESC(t->module)) : ret;
}

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
	int ret = check_inputs(t, &block, err);
	return ret ? ret : backend_of(maker->model)->run(maker->model->backend_state, t->id, &t->args, &block, err);
}

/* Whole granules, straight to where they are wanted: what is too much to hold is cut in two. */
static int make_rect(const struct maker *maker, const struct sl_rect *rect, unsigned char *dst, struct sl_error *err)
{
	const struct sl_transform *t = maker->t;
	struct sl_rect in[SL_INPUTS_MAX], part[2];

	if ((bytes_needed(t, rect, in) <= maker->in_wanted && rect->n_rows * rect->n_cols <= maker->out_wanted) ||
	    !cut(t, rect, part))
		return make_block(maker, rect, dst, t->args.row_bytes, err);
	int ret = make_rect(maker, &part[0], dst, err);
	dst += (part[1].row - rect->row) * t->args.row_bytes + (part[1].col - rect->col);
	return ret ? ret : make_rect(maker, &part[1], dst, err);
}

static __attribute__((noinline)) int make_rect_on_stack(struct maker *maker, const struct sl_rect *rect,
							unsigned char *dst, struct sl_error *err)
{
	unsigned char in[SL_BLOCK_IN_MAX] __attribute__((aligned(ALIGN)));

	maker->in = in;
	maker->in_max = sizeof(in);
	maker->in_wanted = BLOCK_IN;
	return make_rect(maker, rect, dst, err);
}

/* The same, in memory of the backend if it lends some. */
static int make_whole(const struct sl_model *model, const struct sl_transform *t, uint64_t member,
		      const struct sl_rect *rect, unsigned char *dst, struct sl_error *err)
{
	const struct sl_backend *backend = backend_of(model);
	struct maker maker = { model, t, member, NULL, backend->in_max, backend->in_max, backend->out_max };
	int ret;

	if (!backend->out_max)
		maker.out_wanted = UINT64_MAX;
	maker.in = backend->lease ? backend->lease(model->backend_state, rect->n_rows * rect->n_cols) : NULL;
	if (!maker.in)
		return make_rect_on_stack(&maker, rect, dst, err);
	ret = make_rect(&maker, rect, dst, err);
	backend->give_back(model->backend_state, maker.in);
	return ret;
}

/* Bytes [from, to) of a member, to dst. */
struct wanted {
	uint64_t member, from, to;
	unsigned char *dst;
};

/* Does a block have any of them? */
static bool touches(const struct sl_args *args, const struct sl_rect *rect, const struct wanted *w)
{
	uint64_t first = w->from / args->row_bytes, last = (w->to - 1) / args->row_bytes;

	if (first != last)
		return true;
	return rect->col < w->to - first * args->row_bytes &&
	       w->from - first * args->row_bytes < rect->col + rect->n_cols;
}

/* Make a block aside, and take what is wanted of it. */
static __attribute__((noinline)) int make_aside(const struct sl_model *model, const struct sl_transform *t,
						const struct sl_rect *rect, const struct wanted *w,
						struct sl_error *err)
{
	unsigned char made[SL_BLOCK_OUT_MAX], in[SL_BLOCK_IN_MAX] __attribute__((aligned(ALIGN)));
	const struct maker maker = { model, t, w->member, in, sizeof(in), sizeof(in), sizeof(made) };

	if (rect->n_rows * rect->n_cols > sizeof(made))
		return sl_fail(err, EINVAL, "a granule of '%s' has more than %zu bytes", sl_transforms[t->id]->name,
			       sizeof(made));
	int ret = make_block(&maker, rect, made, rect->n_cols, err);
	for (uint64_t r = 0; r < rect->n_rows && !ret; r++) {
		uint64_t start = (rect->row + r) * t->args.row_bytes + rect->col;
		uint64_t low = max(start, w->from), high = min(start + rect->n_cols, w->to);
		if (low < high)
			memcpy(w->dst + (low - w->from), made + r * rect->n_cols + (low - start), high - low);
	}
	return ret;
}

/* What is wanted of whole granules. */
static int make_some(const struct sl_model *model, const struct sl_transform *t, const struct sl_rect *rect,
		     const struct wanted *w, struct sl_error *err)
{
	struct sl_rect in[SL_INPUTS_MAX], part[2];

	if (!touches(&t->args, rect, w))
		return 0;
	if ((bytes_needed(t, rect, in) <= BLOCK_IN && rect->n_rows * rect->n_cols <= SL_BLOCK_OUT_MAX) ||
	    !cut(t, rect, part))
		return make_aside(model, t, rect, w, err);
	int ret = make_some(model, t, &part[0], w, err);
	return ret ? ret : make_some(model, t, &part[1], w, err);
}

/* Of one row, when a granule has no more: a granule of which only the end is wanted, whole ones, one of which the beginning is. */
static int make_row(const struct sl_model *model, const struct sl_transform *t, uint64_t row, uint64_t granule,
		    const struct wanted *w, struct sl_error *err)
{
	uint64_t width = t->args.row_bytes, from = w->from - row * width, to = w->to - row * width;
	uint64_t low = up(from, granule), high = to == width ? to : to / granule * granule;
	struct sl_rect rect = { row, 1, from / granule * granule, 0 };
	int ret = 0;

	if (low >= high) {
		rect.n_cols = min(up(to, granule), width) - rect.col;
		return make_some(model, t, &rect, w, err);
	}
	if (from < low) {
		rect.n_cols = low - rect.col;
		ret = make_some(model, t, &rect, w, err);
	}
	rect = (struct sl_rect){ row, 1, low, high - low };
	if (!ret)
		ret = make_whole(model, t, w->member, &rect, w->dst + (low - from), err);
	rect = (struct sl_rect){ row, 1, high, min(granule, width - high) };
	return ret || high == to ? ret : make_some(model, t, &rect, w, err);
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
		struct sl_rect rect = { row, last - row, 0, row_bytes };
		if (from == row * row_bytes && last > row) {
			now = rect.n_rows * row_bytes;
			ret = make_whole(model, t, member, &rect, dst, err);
			continue;
		}
		rect.n_rows = min(rows, t->args.rows - row);
		to = min(to, (row + rect.n_rows) * row_bytes);
		now = to - from;
		const struct wanted wanted = { member, from, to, dst };
		ret = rect.n_rows == 1 ? make_row(model, t, row, bytes, &wanted, err)
				       : make_some(model, t, &rect, &wanted, err);
	}
	return ret;
}

int sl_transform_scales(const unsigned char *scales, uint64_t n, struct sl_error *err)
{
	for (uint64_t i = 0; i < n; i++) {
		float scale;
		memcpy(&scale, scales + i * sizeof(scale), sizeof(scale));
		if (!(scale > 0) || isinf(scale))
			return sl_fail(err, EINVAL,
				       "a scale is %g: neither positive nor finite, and engines differ in what follows",
				       (double)scale);
	}
	return 0;
}

int sl_transform_scale(float scale, struct sl_error *err)
{
	return scale == -FLT_MAX ? 0 : sl_transform_scales((const unsigned char *)&scale, 1, err);
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
