/*
 * fill.c - cutting pieces into units, and the two kinds of unit: a window of the source, scattered; a stretch of one piece,
 * made by the slicer.
 *
 * A window is mapped just for its copying: page tables of a whole model would take a 512th of its size. The copying itself
 * faults its pages in: to populate the mapping first walks all of them once more, and MAP_POPULATE tries for ever to read one
 * that cannot be read.
 */
#include "fs/fill.h"
#include "fs/guard.h"
#include "fs/window.h"
#include "slicer/backend.h"
#include "slicer/series.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define WINDOW	   (4 * WINDOW_BLOCK)	/* source bytes of a unit */
#define SEAM	   (UINT64_C(64) << 10) /* source bytes that may lie between two runs of one stretch */
#define ALONE	   (UINT64_C(4) << 20)	/* output bytes of a unit that the slicer makes */
#define ALONE_MAX  (UINT64_C(16) << 20) /* the same of long rows, each of a few bytes of every source row */
#define ALONE_ROWS 16			/* of those that are made at once if they are not too long */
#define STREAM_MIN (16u << 10)		/* bytes of a run from which on stores go past the caches */

/* A copied piece: `count` runs of the source, one after another at dst. */
struct job {
	uint64_t src, end; /* source bytes from the first run to the last */
	uint64_t run, stride, count;
	uint32_t shard;
	unsigned char *dst;
};

struct unit {
	uint64_t start, end;	      /* of the source; of the piece's output */
	const struct sl_piece *piece; /* made by the slicer; NULL: a window */
	unsigned char *dst;	      /* of the piece */
	uint32_t first, n;	      /* jobs of the window, and maybe some that end before it */
	bool large;		      /* what lies behind the window is wanted as well, or is not there */
};

struct fill {
	const struct sl_model *model;
	struct fill_target *targets;
	size_t n_targets;
	struct job *jobs;
	size_t n_jobs, room_jobs;
	struct unit *units;
	size_t n_units, room_units;
	struct guard_range *ranges; /* of the targets */
};

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- cutting the work ---- */

static int no_memory(struct sl_error *err)
{
	return sl_fail(err, ENOMEM, "no memory to plan the filling of a file");
}

/* `array` with room for an element after `n`; NULL without memory. */
static void *grown(void *array, size_t n, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 64;

	if (n < *room)
		return array;
	array = reallocarray(array, more, size);
	if (array)
		*room = more;
	return array;
}

static int add_unit(struct fill *fill, const struct unit *unit, struct sl_error *err)
{
	struct unit *units = grown(fill->units, fill->n_units, &fill->room_units, sizeof(*units));

	if (!units)
		return no_memory(err);
	fill->units = units;
	fill->units[fill->n_units++] = *unit;
	return 0;
}

static int add_alone(struct fill *fill, const struct sl_piece *piece, unsigned char *dst, struct sl_error *err)
{
	uint64_t len = piece->op == SL_OP_TRANSFORM ? min(piece->run * ALONE_ROWS, ALONE_MAX) : 0;
	int rc = 0;

	len = len > ALONE ? len : ALONE;
	for (uint64_t at = 0; !rc && at < piece->len; at += len)
		rc = add_unit(fill, &(struct unit){ at, min(at + len, piece->len), piece, dst, 0, 0, false }, err);
	return rc;
}

static int add_job(struct fill *fill, const struct sl_piece *p, unsigned char *dst, struct sl_error *err)
{
	struct job *jobs = grown(fill->jobs, fill->n_jobs, &fill->room_jobs, sizeof(*jobs)), *job;

	if (!jobs)
		return no_memory(err);
	fill->jobs = jobs;
	job = &jobs[fill->n_jobs++];
	*job = (struct job){
		.src = p->src, .run = p->run, .stride = p->stride, .count = p->count, .shard = p->shard, .dst = dst
	};
	if (p->count == 1 || p->run == p->stride) {
		job->run = job->stride = p->len;
		job->count = 1;
	}
	job->end = job->src + (job->count - 1) * job->stride + job->run;
	return 0;
}

/* Runs that lie far apart are worth reading in windows only when other targets want what lies between. */
static bool is_scattered(const struct fill *fill, const struct sl_piece *p)
{
	uint64_t gap = p->count > 1 ? p->stride - p->run : 0;

	return gap > SEAM && (fill->n_targets == 1 || gap / p->run >= 2 * fill->n_targets);
}

/* Does all of it lie in its shard, as it was planned? */
static bool is_inside(const struct sl_shard *shard, const struct sl_piece *p)
{
	uint64_t span, end, len;

	return p->count && p->run <= p->stride && !__builtin_mul_overflow(p->count - 1u, p->stride, &span) &&
	       !__builtin_add_overflow(span, p->run, &span) && !__builtin_add_overflow(p->src, span, &end) &&
	       end <= shard->size && !__builtin_mul_overflow(p->count, p->run, &len) && len == p->len;
}

/* Is it copied with its neighbours, in windows of the source? */
static bool is_job(const struct fill *fill, const struct sl_piece *p)
{
	return p->op == SL_OP_COPY && !is_scattered(fill, p) && is_inside(&fill->model->shards.shards[p->shard], p);
}

static int add_piece(struct fill *fill, const struct sl_piece *p, unsigned char *dst, struct sl_error *err)
{
	return is_job(fill, p) ? add_job(fill, p, dst, err) : add_alone(fill, p, dst, err);
}

/* Pieces of a series that are copied become jobs of their own; the others are ranges of the series. */
static int add_series(struct fill *fill, const struct sl_piece *series, unsigned char *dst, struct sl_error *err)
{
	struct sl_made_piece made;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < sl_piece_count(series); i++) {
		const struct sl_piece *p = sl_piece_at(fill->model, series, i, &made);
		uint64_t begin = p->off - series->off, end = begin + p->len;

		if (is_job(fill, p)) {
			rc = add_job(fill, p, dst + begin, err);
			continue;
		}
		for (uint64_t at = begin; !rc && at < end; at += ALONE)
			rc = add_unit(fill, &(struct unit){ at, min(at + ALONE, end), series, dst, 0, 0, false }, err);
	}
	return rc;
}

static int add_target(struct fill *fill, const struct fill_target *target, struct sl_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < target->file->n_pieces; i++) {
		const struct sl_piece *p = &target->file->pieces[i];

		rc = (p->op == SL_OP_SERIES ? add_series : add_piece)(fill, p, target->bytes + p->off, err);
	}
	return rc;
}

static int source_order(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return (x->src > y->src) - (x->src < y->src);
}

/* Jobs from `first` on that are one stretch: its end, and how many. */
static uint64_t find_stretch(const struct fill *fill, size_t first, size_t *n)
{
	const struct job *jobs = fill->jobs;
	uint64_t end = jobs[first].end;
	size_t i = first + 1;

	while (i < fill->n_jobs && jobs[i].shard == jobs[first].shard && jobs[i].src <= end + SEAM)
		end = max(end, jobs[i++].end);
	*n = i - first;
	return end;
}

/* The window that starts at `at` of a stretch that ends at `end`, and has no job before `first`. */
static struct unit window_of(const struct fill *fill, size_t first, uint64_t at, uint64_t end)
{
	const struct job *jobs = fill->jobs;
	struct unit unit = { .start = at,
			     .end = min((at & ~(WINDOW_BLOCK - 1)) + WINDOW, end),
			     .first = (uint32_t)first };
	size_t i = first;

	while (i < fill->n_jobs && jobs[i].shard == jobs[first].shard && jobs[i].src < unit.end)
		i++;
	unit.n = (uint32_t)(i - first);
	unit.large = unit.end + WINDOW_BEYOND <= end || end == fill->model->shards.shards[jobs[first].shard].size;
	return unit;
}

static int add_windows(struct fill *fill, struct sl_error *err)
{
	int rc = 0;

	for (size_t first = 0, n; !rc && first < fill->n_jobs; first += n) {
		uint64_t end = find_stretch(fill, first, &n), at = fill->jobs[first].src & ~(window_page() - 1);
		size_t job = first;

		while (!rc && at < end) {
			struct unit unit;

			while (fill->jobs[job].end <= at)
				job++;
			unit = window_of(fill, job, at, end);
			rc = add_unit(fill, &unit, err);
			at = unit.end;
		}
	}
	return rc;
}

static int cut(struct fill *fill, struct sl_error *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < fill->n_targets; i++)
		rc = add_target(fill, &fill->targets[i], err);
	if (rc)
		return rc;
	if (fill->n_jobs)
		qsort(fill->jobs, fill->n_jobs, sizeof(*fill->jobs), source_order);
	return add_windows(fill, err);
}

/* Copy the targets. */
static void take_targets(struct fill *fill, const struct fill_target *targets)
{
	memcpy(fill->targets, targets, fill->n_targets * sizeof(*targets));
	for (size_t i = 0; i < fill->n_targets; i++)
		fill->ranges[i] = (struct guard_range){ targets[i].bytes, targets[i].file->size };
}

int fill_open(struct fill **out, const struct sl_model *model, const struct fill_target *targets, size_t n,
	      struct sl_error *err)
{
	struct fill *fill = calloc(1, sizeof(*fill));
	int rc;

	*out = NULL;
	if (!fill)
		return no_memory(err);
	fill->model = model;
	fill->n_targets = n;
	fill->targets = calloc(n, sizeof(*targets));
	fill->ranges = calloc(n, sizeof(*fill->ranges));
	if (fill->targets && fill->ranges) {
		take_targets(fill, targets);
		rc = cut(fill, err);
	} else {
		rc = no_memory(err);
	}
	if (rc)
		fill_close(fill);
	else
		*out = fill;
	return rc;
}

void fill_close(struct fill *fill)
{
	if (!fill)
		return;
	free(fill->targets);
	free(fill->jobs);
	free(fill->units);
	free(fill->ranges);
	free(fill);
}

size_t fill_n_units(const struct fill *fill)
{
	return fill->n_units;
}

/* ---- copying ---- */

/* What is written here is read by another processor, much later: it need not push out what the caches hold. */
static void copy(unsigned char *dst, const unsigned char *src, size_t len)
{
#ifdef __x86_64__
	if (len >= STREAM_MIN) {
		size_t head = -(uintptr_t)dst & 15, n;

		memcpy(dst, src, head);
		for (n = head; n + 64 <= len; n += 64) {
			const __m128i *from = (const void *)(src + n);
			__m128i *to = (void *)(dst + n);
			__m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
			__m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);

			_mm_stream_si128(to, a);
			_mm_stream_si128(to + 1, b);
			_mm_stream_si128(to + 2, c);
			_mm_stream_si128(to + 3, d);
		}
		dst += n;
		src += n;
		len -= n;
	}
#endif
	memcpy(dst, src, len);
}

/* What of a job lies in a window. */
static void copy_job(const struct job *job, const struct window *window)
{
	uint64_t start = window->start, end = start + window->len;
	uint64_t from = start > job->src ? start - job->src : 0, to = min(end, job->end) - job->src;

	for (uint64_t i = from / job->stride; i < job->count && i * job->stride < to; i++) {
		uint64_t run = i * job->stride, low = max(from, run), high = min(to, run + job->run);

		if (low < high)
			copy(job->dst + i * job->run + (low - run), window->bytes + (job->src + low - start),
			     high - low);
	}
}

/* ---- a unit ---- */

struct work {
	const struct fill *fill;
	const struct unit *unit;
	struct window window; /* of the source; of no length: made by the slicer */
	struct sl_error *err;
};

static const struct sl_shard *shard_of(const struct fill *fill, const struct unit *unit)
{
	return &fill->model->shards.shards[fill->jobs[unit->first].shard];
}

static int copy_window(void *context)
{
	const struct work *work = context;
	const struct unit *unit = work->unit;
	const struct job *jobs = work->fill->jobs + unit->first;

	for (uint32_t i = 0; i < unit->n; i++)
		if (jobs[i].end > unit->start)
			copy_job(&jobs[i], &work->window);
#ifdef __x86_64__
	_mm_sfence();
#endif
	return 0;
}

static int make_alone(void *context)
{
	const struct work *work = context;
	const struct unit *unit = work->unit;

	return sl_piece_read(work->fill->model, unit->piece, unit->start, unit->end - unit->start,
			     unit->dst + unit->start, work->err);
}

static int run_guarded(struct work *work, guard_fn *fn)
{
	struct guard_range window = { work->window.bytes, work->window.len };

	return guard_run(work->fill->ranges, work->fill->n_targets, window, fn, work);
}

/* A mapping has failed: that the source changed would explain it. */
static int explain(const struct sl_shard *shard, struct sl_error *err)
{
	int rc = sl_shard_read(shard, NULL, 0, 0, err);

	return rc ? rc : sl_fail(err, EIO, "%s: cannot be read, or there is no memory to hold it", SL_ESC(shard->name));
}

static int open_window(struct window *window, const struct fill *fill, const struct unit *unit)
{
	return window_open(window, shard_of(fill, unit)->fd, unit->start, unit->end);
}

static int scatter(struct work *work)
{
	const struct sl_shard *shard = shard_of(work->fill, work->unit);
	int rc = open_window(&work->window, work->fill, work->unit);

	if (rc)
		return sl_fail(work->err, -rc, "%s: cannot be mapped: %s", SL_ESC(shard->name), strerror(-rc));
	rc = run_guarded(work, copy_window);
	window_close(&work->window);
	return rc == -EFAULT ? explain(shard, work->err) : rc;
}

/* This thread was cut off while a backend worked for it. */
static void abandon(const struct sl_model *model)
{
	if (model->backend && model->backend->abandon)
		model->backend->abandon(model->backend_state);
}

bool fill_must_read(const struct fill *fill, size_t unit)
{
	const struct unit *u = &fill->units[unit];

	return !u->piece && !window_is_cached(shard_of(fill, u)->fd, u->start, u->end);
}

void fill_read(const struct fill *fill, size_t unit)
{
	struct window window;

	if (fill->units[unit].piece || open_window(&window, fill, &fill->units[unit]))
		return;
	window_read(&window, fill->units[unit].large);
	window_close(&window);
}

int fill_unit(struct fill *fill, size_t unit, struct sl_error *err)
{
	struct work work = { .fill = fill, .unit = &fill->units[unit], .err = err };
	int rc;

	if (!work.unit->piece)
		return scatter(&work);
	rc = run_guarded(&work, make_alone);
	if (rc == -EFAULT)
		abandon(fill->model);
	return rc == -EFAULT ? sl_fail(err, EIO, "there is no memory to hold a staged file") : rc;
}

/* Reading nothing of a shard still looks whether it has changed. */
static int verify_shard(const struct fill *fill, uint32_t shard, struct sl_error *err)
{
	return sl_shard_read(&fill->model->shards.shards[shard], NULL, 0, 0, err);
}

/* Pieces that the slicer made were verified as they were read. */
int fill_verify(const struct fill *fill, struct sl_error *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < fill->n_jobs; i++)
		if (i == 0 || fill->jobs[i].shard != fill->jobs[i - 1].shard)
			rc = verify_shard(fill, fill->jobs[i].shard, err);
	return rc;
}
