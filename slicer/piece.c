/*
 * piece.c - reading pieces. A piece's runs are one stream of source bytes; COPY gives the stream, CONVERT its elements
 * converted, TRANSPOSE the matrix of its runs turned. Scratch is on the stack: the read path takes no memory.
 */
#include "slicer/piece.h"

#include "slicer/convert.h"
#include "slicer/model.h"
#include "slicer/transform.h"
#include "slicer/series.h"

#include <errno.h>
#include <string.h>

enum {
	SPAN = 128 << 10,  /* source bytes that are read at once to pick short runs from */
	GAP_MAX = 8 << 10, /* between runs; above it every run is read by itself */
	CHUNK = 32 << 10,  /* source bytes converted at once */
	TILE = 1024,	   /* elements of a source row that are turned at once */
};

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Short runs that lie close together: read what spans them, pick them out. Starts at a run. */
static int read_span(const struct sl_shard *shard, const struct sl_piece *p, uint64_t first, uint64_t n,
		     unsigned char *dst, struct sl_error *err)
{
	unsigned char span[SPAN];
	uint64_t per_span = 1 + (SPAN - p->run) / p->stride;

	while (n > 0) {
		uint64_t now = min(n, per_span);
		int ret = sl_shard_read(shard, span, p->src + first * p->stride, (now - 1) * p->stride + p->run, err);
		if (ret)
			return ret;
		for (uint64_t i = 0; i < now; i++)
			memcpy(dst + i * p->run, span + i * p->stride, p->run);
		dst += now * p->run;
		first += now;
		n -= now;
	}
	return 0;
}

static bool is_close(const struct sl_piece *p)
{
	return p->run <= SPAN / 2 && p->stride - p->run <= GAP_MAX && p->stride <= SPAN / 2;
}

/* Bytes [skip, skip + len) of the stream of runs. */
static int read_runs(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
		     unsigned char *dst, struct sl_error *err)
{
	const struct sl_shard *shard = &model->shards.shards[p->shard];

	if (p->count == 1 || p->run == p->stride)
		return sl_shard_read(shard, dst, p->src + skip, len, err);
	while (len > 0) {
		uint64_t first = skip / p->run, inside = skip % p->run, whole = inside ? 0 : len / p->run, now;
		int ret;
		if (whole > 1 && is_close(p)) {
			now = whole * p->run;
			ret = read_span(shard, p, first, whole, dst, err);
		} else {
			now = min(len, p->run - inside);
			ret = sl_shard_read(shard, dst, p->src + first * p->stride + inside, now, err);
		}
		if (ret)
			return ret;
		skip += now;
		dst += now;
		len -= now;
	}
	return 0;
}

static int read_zero(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
		     unsigned char *dst, struct sl_error *err)
{
	(void)model, (void)p, (void)skip, (void)err;
	memset(dst, 0, len);
	return 0;
}

static int read_data(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
		     unsigned char *dst, struct sl_error *err)
{
	(void)model, (void)err;
	memcpy(dst, p->data + skip, len);
	return 0;
}

/* Elements [first, first + n) of the stream, converted. */
static int convert_elements(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
			    unsigned char *dst, struct sl_error *err)
{
	unsigned char chunk[CHUNK];
	uint64_t in = sl_dtypes[p->from].bits / 8, out = sl_dtypes[p->to].bits / 8;

	while (n > 0) {
		uint64_t now = min(n, CHUNK / in);
		int ret = read_runs(model, p, first * in, now * in, chunk, err);
		if (ret)
			return ret;
		sl_convert(dst, p->to, chunk, p->from, now);
		dst += now * out;
		first += now;
		n -= now;
	}
	return 0;
}

/* Columns [col, col + n_cols) of rows [row, row + n_rows), written column by column; `dst` is where the first of them goes
 * and a column takes p->count elements. */
static int turn(const struct sl_model *model, const struct sl_piece *p, uint64_t row, uint64_t n_rows, uint64_t col,
		uint64_t n_cols, unsigned char *dst, struct sl_error *err)
{
	unsigned char tile[TILE * 8], converted[TILE * 8];
	uint64_t in = sl_dtypes[p->from].bits / 8, out = sl_dtypes[p->to].bits / 8;

	for (uint64_t r = row; r < row + n_rows; r++) {
		int ret = sl_shard_read(&model->shards.shards[p->shard], tile, p->src + r * p->stride + col * in,
					n_cols * in, err);
		if (ret)
			return ret;
		sl_convert(converted, p->to, tile, p->from, n_cols);
		for (uint64_t c = 0; c < n_cols; c++)
			memcpy(dst + (c * p->count + r - row) * out, converted + c * out, out);
	}
	return 0;
}

/* Elements [first, first + n) of the turned matrix: a part of a column, whole columns in tiles, a part of a column. */
static int transpose_elements(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
			      unsigned char *dst, struct sl_error *err)
{
	uint64_t out = sl_dtypes[p->to].bits / 8;

	while (n > 0) {
		uint64_t col = first / p->count, row = first % p->count, n_cols = 1, n_rows = min(n, p->count - row);
		if (row == 0 && n >= p->count)
			n_cols = min(n / p->count, TILE);
		int ret = turn(model, p, row, n_rows, col, n_cols, dst, err);
		if (ret)
			return ret;
		dst += n_cols * n_rows * out;
		first += n_cols * n_rows;
		n -= n_cols * n_rows;
	}
	return 0;
}

/* Bytes of one output row that one part makes: [from, to) of the row, as far as the part has them. */
static int read_row_part(const struct sl_model *model, const struct sl_piece *part, uint64_t row, uint64_t from,
			 uint64_t to, unsigned char *dst, struct sl_error *err)
{
	uint64_t width = part->len / part->count, first = from > part->off ? from : part->off;
	uint64_t last = to < part->off + width ? to : part->off + width;

	if (first >= last)
		return 0;
	return sl_piece_read(model, part, row * width + first - part->off, last - first, dst + (first - from), err);
}

/* Whole rows: each part's run of all of them is read at once and spread. */
static int read_rows(const struct sl_model *model, const struct sl_piece *p, uint64_t row, uint64_t n,
		     unsigned char *dst, struct sl_error *err)
{
	unsigned char block[SPAN];

	for (uint32_t i = 0; i < p->compound->n; i++) {
		const struct sl_piece *part = &p->compound->parts[i];
		uint64_t width = part->len / part->count, at_once = SPAN / width;
		for (uint64_t done = 0, now; done < n; done += now) {
			now = min(n - done, at_once);
			int ret = sl_piece_read(model, part, (row + done) * width, now * width, block, err);
			if (ret)
				return ret;
			for (uint64_t r = 0; r < now; r++)
				memcpy(dst + (done + r) * p->run + part->off, block + r * width, width);
		}
	}
	return 0;
}

static bool has_short_rows(const struct sl_piece *p)
{
	return p->run <= SPAN;
}

static int read_columns(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
			unsigned char *dst, struct sl_error *err)
{
	while (len > 0) {
		uint64_t row = skip / p->run, inside = skip % p->run, now = min(len, p->run - inside);
		int ret = 0;
		if (inside == 0 && len >= 2 * p->run && has_short_rows(p)) {
			now = len / p->run * p->run;
			ret = read_rows(model, p, row, now / p->run, dst, err);
		} else {
			for (uint32_t i = 0; i < p->compound->n && !ret; i++)
				ret = read_row_part(model, &p->compound->parts[i], row, inside, inside + now, dst, err);
		}
		if (ret)
			return ret;
		skip += now;
		dst += now;
		len -= now;
	}
	return 0;
}

/* One stretch of elements of one row that share a scale: value times scale in F32, rounded once (vLLM, deepseek_v2.py). */
static int scale_stretch(const struct sl_model *model, const struct sl_piece *p, uint64_t row, uint64_t col, uint64_t n,
			 unsigned char *dst, struct sl_error *err)
{
	const struct sl_piece *values = &p->compound->parts[0], *scales = &p->compound->parts[1];
	uint64_t in = sl_dtypes[values->to].bits / 8, scale_cols = scales->len / scales->count / sizeof(float);
	unsigned char stored[TILE * 8];
	float block[TILE], scale;

	int ret = sl_piece_read(model, values, (row * (p->run * 8 / sl_dtypes[p->to].bits) + col) * in, n * in, stored,
				err);
	if (!ret)
		ret = sl_piece_read(model, scales,
				    (row / p->compound->block[0] * scale_cols + col / p->compound->block[1]) *
					    sizeof(float),
				    sizeof(scale), &scale, err);
	if (ret)
		return ret;
	sl_convert(block, SL_F32, stored, values->to, n);
	for (uint64_t i = 0; i < n; i++)
		block[i] *= scale;
	sl_convert(dst, p->to, block, SL_F32, n);
	return 0;
}

/* Elements [first, first + n), row-major. */
static int scale_elements(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
			  unsigned char *dst, struct sl_error *err)
{
	uint64_t size = sl_dtypes[p->to].bits / 8, cols = p->run / size, block_cols = p->compound->block[1];

	while (n > 0) {
		uint64_t row = first / cols, col = first % cols,
			 now = min(min(n, cols - col), block_cols - col % block_cols);
		now = min(now, TILE);
		int ret = scale_stretch(model, p, row, col, now, dst, err);
		if (ret)
			return ret;
		dst += now * size;
		first += now;
		n -= now;
	}
	return 0;
}

/* Elements [first, first + n) of the enlarged matrix, row-major: a stretch of one row at a time. */
static int repeat_elements(const struct sl_model *model, const struct sl_piece *p, uint64_t first, uint64_t n,
			   unsigned char *dst, struct sl_error *err)
{
	const struct sl_compound *c = p->compound;
	uint64_t size = sl_dtypes[p->to].bits / 8, cols = p->run / size, width = c->parts[0].len / c->parts[0].count;
	unsigned char stored[TILE * 8];

	while (n > 0) {
		uint64_t row = first / cols, col = first % cols, now = min(min(n, cols - col), TILE);
		uint64_t from = (c->first[1] + col) / c->block[1], to = (c->first[1] + col + now - 1) / c->block[1] + 1;
		int ret = sl_piece_read(model, &c->parts[0], (c->first[0] + row) / c->block[0] * width + from * size,
					(to - from) * size, stored, err);
		if (ret)
			return ret;
		for (uint64_t i = 0; i < now; i++)
			memcpy(dst + i * size, stored + ((c->first[1] + col + i) / c->block[1] - from) * size, size);
		dst += now * size;
		first += now;
		n -= now;
	}
	return 0;
}

static int read_transform(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
			  unsigned char *dst, struct sl_error *err)
{
	return sl_transform_read(model, p->compound->transform, skip, len, dst, err);
}

typedef int bytes_fn(const struct sl_model *, const struct sl_piece *, uint64_t skip, uint64_t len, unsigned char *dst,
		     struct sl_error *);

/* To add an op: an id in piece.h and a row; `elements` for ops that make whole elements of dtype `to`, else `bytes`. */
static const struct {
	const char *name;
	bytes_fn *bytes, *elements;
} ops[SL_N_OPS] = {
	[SL_OP_COPY] = { "copy", read_runs, NULL },
	[SL_OP_ZERO] = { "zero", read_zero, NULL },
	[SL_OP_DATA] = { "data", read_data, NULL },
	[SL_OP_CONVERT] = { "convert", NULL, convert_elements },
	[SL_OP_TRANSPOSE] = { "transpose", NULL, transpose_elements },
	[SL_OP_SERIES] = { "series", sl_series_read, NULL },
	[SL_OP_COLUMNS] = { "columns", read_columns, NULL },
	[SL_OP_SCALE] = { "scale", NULL, scale_elements },
	[SL_OP_REPEAT] = { "repeat", NULL, repeat_elements },
	[SL_OP_TRANSFORM] = { "transform", read_transform, NULL },
	[SL_OP_REGROUP] = { "regroup", NULL, sl_regroup_values },
	[SL_OP_REGROUPED] = { "regrouped", NULL, sl_regroup_scales },
};

const char *sl_op_name(enum sl_op op)
{
	return ops[op].name;
}

/* Bytes of an op that makes elements: the range may begin and end inside one. */
static int read_elements(const struct sl_model *model, const struct sl_piece *p, uint64_t skip, uint64_t len,
			 unsigned char *dst, struct sl_error *err)
{
	uint64_t size = sl_dtypes[p->to].bits / 8;
	unsigned char one[8];

	while (len > 0) {
		uint64_t element = skip / size, inside = skip % size, whole = inside ? 0 : len / size,
			 now = whole * size;
		int ret = ops[p->op].elements(model, p, element, whole ? whole : 1, whole ? dst : one, err);
		if (ret)
			return ret;
		if (!whole) {
			now = min(len, size - inside);
			memcpy(dst, one + inside, now);
		}
		skip += now;
		dst += now;
		len -= now;
	}
	return 0;
}

int sl_piece_read(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, size_t len, void *dst,
		  struct sl_error *err)
{
	if (skip > piece->len || len > piece->len - skip)
		return sl_fail(err, EIO, "bytes %llu + %zu are outside a piece of %llu", (unsigned long long)skip, len,
			       (unsigned long long)piece->len);
	if (ops[piece->op].elements)
		return read_elements(model, piece, skip, len, dst, err);
	return ops[piece->op].bytes(model, piece, skip, len, dst, err);
}

/* Runs of a copied piece's runs are runs of the source. */
static bool are_runs(const struct sl_piece *p, uint64_t skip, uint64_t pitch, uint64_t n, struct sl_piece *runs)
{
	uint64_t run = p->count == 1 || p->run == p->stride ? p->len : p->run;

	if (p->op != SL_OP_COPY || (run != p->len && (pitch % run || skip % run + n > run)))
		return false;
	*runs = *p;
	runs->src = p->src + skip / run * p->stride + skip % run;
	runs->run = n;
	runs->stride = run == p->len ? pitch : pitch / run * p->stride;
	return true;
}

int sl_piece_read_rows(const struct sl_model *model, const struct sl_piece *piece, uint64_t skip, uint64_t pitch,
		       uint64_t n_rows, uint64_t n, unsigned char *dst, struct sl_error *err)
{
	struct sl_piece runs;
	int ret = 0;

	if (n_rows == 1 || n == pitch)
		return sl_piece_read(model, piece, skip, n_rows * n, dst, err);
	if (n_rows <= UINT32_MAX && skip + (n_rows - 1) * pitch + n <= piece->len &&
	    are_runs(piece, skip, pitch, n, &runs)) {
		runs.count = (uint32_t)n_rows;
		runs.len = n_rows * n;
		return read_runs(model, &runs, 0, runs.len, dst, err);
	}
	for (uint64_t r = 0; r < n_rows && !ret; r++)
		ret = sl_piece_read(model, piece, skip + r * pitch, n, dst + r * n, err);
	return ret;
}
