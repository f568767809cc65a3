/*
 * marlin_scales.c - what of a source a block needs, the tables, and the loop over 64 columns.
 */
#include "slicer/transforms/marlin_scales.h"

#include "slicer/transform.h"
#include "slicer/transforms/turn.h"

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	*rows = 1;
	*bytes = sl_scales_width(args) * sl_scales_size_out(args);
}

/* Columns of the source, padding left out, below a column of the output. */
static uint64_t real_below(const struct sl_args *args, uint64_t c)
{
	uint64_t half = args->p[SL_SCALES_HALF], real = args->p[SL_SCALES_REAL];

	return c / half * real + (c % half < real ? c % half : real);
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	uint64_t size = sl_scales_size(args), out_size = sl_scales_size_out(args);
	uint64_t first = real_below(args, out->col / out_size),
		 end = real_below(args, (out->col + out->n_cols) / out_size);

	if (input > 0 || first == end)
		return;
	first = sl_scales_element(args, first);
	end = sl_scales_element(args, end - 1) + 1;
	if (args->p[SL_SCALES_TURNED])
		*in = (struct sl_rect){ first, end - first, out->row * size, out->n_rows * size };
	else
		*in = (struct sl_rect){ out->row, out->n_rows, first * size, (end - first) * size };
}

/* ---- facts ---- */

/* A power of two between 1 and what is possible so that the largest scale stays within E4M3. `largest` is its code, 0: none. */
static float factor_for(uint8_t largest)
{
	float factor = 1, value = sl_f8_e4m3_to_f32(largest);

	while (largest && value * factor * 2 <= 448.0f)
		factor *= 2;
	return factor;
}

/* The code of the largest positive scale in them; NaN is none. */
static uint8_t largest_code(const unsigned char *codes, uint64_t n, uint8_t largest)
{
	for (uint64_t i = 0; i < n; i++)
		largest = codes[i] < 0x7F && codes[i] > largest ? codes[i] : largest;
	return largest;
}

static int learn_factor(const struct sl_model *model, const struct sl_transform *t, float *factor, struct sl_error *err)
{
	enum { CHUNK = 64 << 10 };
	unsigned input = t->n_inputs - 1;
	uint64_t rows = t->args.in[input].rows, width = t->args.in[input].row_bytes;
	unsigned char codes[CHUNK];
	uint8_t largest = 0;
	int ret = 0;

	for (uint64_t m = 0; m < t->args.batch; m++) {
		uint64_t n_cols = width < CHUNK ? width : CHUNK, n_rows = CHUNK / n_cols;
		for (uint64_t r = 0; r < rows; r += n_rows) {
			for (uint64_t c = 0; c < width && !ret; c += n_cols) {
				struct sl_rect rect = { r, n_rows, c, n_cols }; /* zeros beyond the end */
				ret = sl_transform_input(model, t, input, m, &rect, codes, err);
				largest = ret ? 0 : largest_code(codes, n_rows * n_cols, largest);
			}
		}
	}
	*factor = factor_for(largest);
	return ret;
}

static uint8_t through_f16(uint8_t code)
{
	return code < 103 ? 0 : code > 142 ? 255 : code;
}

/* 128 times a scale in F16, without sign, lowest exponents and most of the mantissa. */
static uint8_t to_s0e5m3(uint8_t code, float factor)
{
	uint16_t scaled = sl_f32_to_f16(sl_f8_e4m3_to_f32(code) * factor);
	float value = sl_f16_to_f32(scaled) * 128;

	return value < 2 ? 0 : (uint8_t)(sl_f32_to_f16(value) >> 7);
}

static bool is_nvfp4(const struct sl_args *args)
{
	return args->p[SL_SCALES_KIND] == SL_SCALE_NVFP4 || args->p[SL_SCALES_KIND] == SL_SCALE_NVFP4_GLOBAL;
}

static uint64_t facts_len(const struct sl_args *args)
{
	(void)args;
	return sizeof(float) + 256;
}

static int learn(const struct sl_model *model, const struct sl_transform *t, unsigned char *facts, struct sl_error *err)
{
	float factor = 1;
	int ret = 0;

	if (is_nvfp4(&t->args) && t->args.p[SL_SCALES_TO] == SL_BF16)
		ret = learn_factor(model, t, &factor, err);
	memcpy(facts, &factor, sizeof(factor));
	for (unsigned c = 0; c < 256; c++) {
		uint8_t code = (uint8_t)c;
		if (is_nvfp4(&t->args))
			code = to_s0e5m3(code, factor);
		else if (t->args.p[SL_SCALES_KIND] == SL_SCALE_E8M0 && t->args.p[SL_SCALES_TO] == SL_F16)
			code = through_f16(code);
		facts[sizeof(factor) + c] = code;
	}
	return ret;
}

/* ---- blocks ---- */

/* Some columns of a block, those that change places with each other: where the source of each is, 64 or 32. */
struct columns {
	unsigned char order[64];
	int64_t at[64];
	unsigned n;
	bool padded;
	const unsigned char *from;
	uint64_t pitch; /* to the next row */
	unsigned char *to;
};

static void set_order(const struct sl_args *args, const struct sl_block *block, struct columns *x)
{
	x->n = (unsigned)sl_scales_width(args);
	x->from = block->bytes[0];
	x->pitch = sl_scales_pitch(args, block);
	for (unsigned i = 0; i < x->n; i++)
		x->order[i] = (unsigned char)sl_scales_ordered(args, i);
}

/* From column c of the block on. A half has whole ones of them. */
static void find(const struct sl_args *args, const struct sl_block *block, uint64_t c, struct columns *x)
{
	uint64_t size = sl_scales_size_out(args), n = block->out.col / size + c, real = args->p[SL_SCALES_REAL];
	uint64_t half = n / args->p[SL_SCALES_HALF], within = n % args->p[SL_SCALES_HALF];
	bool plain = args->p[SL_SCALES_N_RANGES] == 0 && args->p[SL_SCALES_REPEAT] == 1;
	const struct sl_rect *in = &block->in[0];
	int64_t step = args->p[SL_SCALES_TURNED] ? (int64_t)in->n_cols : (int64_t)sl_scales_size(args),
		start = args->p[SL_SCALES_TURNED] ? -(int64_t)(in->row * in->n_cols) : -(int64_t)in->col;

	x->padded = within + x->n > real;
	x->to = block->dst + c * size;
	for (unsigned i = 0; i < x->n; i++) {
		uint64_t from = half * real + within + x->order[i];
		x->at[i] = start + (int64_t)(plain ? from : sl_scales_element(args, from)) * step;
		if (x->padded && within + x->order[i] >= real)
			x->at[i] = -1;
	}
}

/* Some columns of a row, one element at a time. */
static void bytes_of(const struct sl_args *args, const struct columns *x, const unsigned char *from, unsigned char *to,
		     const unsigned char *table)
{
	for (unsigned i = 0; i < x->n; i++)
		to[i] = x->at[i] < 0 ? (unsigned char)args->p[SL_SCALES_PAD] : table[from[x->at[i]]];
}

static void halves_of(const struct columns *x, const unsigned char *from, unsigned char *to)
{
	for (unsigned i = 0; i < x->n; i++, to += 2) {
		uint16_t half = 0;
		if (x->at[i] >= 0)
			memcpy(&half, from + x->at[i], sizeof(half));
		memcpy(to, &half, sizeof(half));
	}
}

static void rounded_of(const struct sl_args *args, const struct columns *x, const unsigned char *from,
		       unsigned char *to)
{
	int64_t last = -1;
	uint16_t half = 0;

	for (unsigned i = 0; i < x->n; i++, to += 2) {
		if (x->at[i] != last)
			half = x->at[i] < 0 ? 0 : sl_scales_rounded(args, from + x->at[i]);
		last = x->at[i];
		memcpy(to, &half, sizeof(half));
	}
}

static void each(const struct sl_args *args, const struct sl_block *block, const struct columns *x, uint64_t row,
		 uint64_t n)
{
	for (uint64_t r = row; r < row + n; r++) {
		const unsigned char *from = x->from + r * x->pitch;
		unsigned char *to = x->to + r * block->stride;
		if (sl_scales_beyond(args, block, r))
			memset(to, (int)args->p[SL_SCALES_PAD], x->n * sl_scales_size_out(args));
		else if (args->p[SL_SCALES_KIND] == SL_SCALE_KEEP)
			halves_of(x, from, to);
		else if (sl_scales_rounds(args))
			rounded_of(args, x, from, to);
		else
			bytes_of(args, x, from, to, sl_scales_table(block));
	}
}

/* 64 columns of a row: 8 x 8 turned. */
static void row_of_2(const unsigned char *from, unsigned char *to)
{
	sl_v8 v[8];

	memcpy(v, from, sizeof(v));
	sl_turn_8(v);
	memcpy(to, v, sizeof(v));
}

/* Eight rows of eight columns, of a source that is turned. */
static void eight_of_2(const struct columns *x, unsigned c, uint64_t row, unsigned char *to, uint64_t stride)
{
	sl_v8 v[8];

	for (unsigned i = 0; i < 8; i++)
		memcpy(&v[i], x->from + x->at[c + i] + row * 2, sizeof(v[i]));
	sl_turn_8(v);
	for (unsigned i = 0; i < 8; i++)
		memcpy(to + i * stride, &v[i], sizeof(v[i]));
}

/* Sixteen rows of sixteen columns of bytes. */
static void sixteen_of_1(const struct columns *x, unsigned c, uint64_t row, unsigned char *to, uint64_t stride)
{
	sl_v16 v[16];

	for (unsigned i = 0; i < 16; i++)
		memcpy(&v[i], x->from + x->at[c + i] + row, sizeof(v[i]));
	sl_turn_16(v);
	for (unsigned i = 0; i < 16; i++)
		memcpy(to + i * stride, &v[i], sizeof(v[i]));
}

static bool is_identity(const struct sl_args *args)
{
	return args->p[SL_SCALES_KIND] == SL_SCALE_BYTES ||
	       (args->p[SL_SCALES_KIND] == SL_SCALE_E8M0 && args->p[SL_SCALES_TO] != SL_F16);
}

/* Most tables add the same to every code from LOW on, which are the normal numbers, up to the largest that there is: how many. */
enum { LOW = 8 };

static unsigned char same_sums(const unsigned char *table)
{
	unsigned char n = 0;

	while (n < 255 - LOW && table[LOW + n] == (unsigned char)(table[LOW] + n))
		n++;
	return n;
}

/* 16 codes. */
static void look_up(unsigned char *codes, const unsigned char *table, unsigned char n_sums)
{
	sl_v16 v, beyond;
	uint64_t any[2];

	memcpy(&v, codes, sizeof(v));
	beyond = (sl_v16)(v - (unsigned char)LOW >= n_sums);
	memcpy(any, &beyond, sizeof(any));
	if (!(any[0] | any[1])) {
		v += (unsigned char)(table[LOW] - LOW);
		memcpy(codes, &v, sizeof(v));
		return;
	}
	for (unsigned i = 0; i < 16; i++)
		codes[i] = table[codes[i]];
}

/* Columns of a source that is turned; how many rows are done: whole vectors of them. They are made near and put down in whole
 * lines: rows of the output lie far apart, often by a power of two. */
static uint64_t turned(const struct sl_args *args, const struct sl_block *block, const struct columns *x, bool more)
{
	uint64_t size = sl_scales_size_out(args), at_once = 16 / size, row = 0, width = x->n * size;
	bool same = size > 1 || is_identity(args);
	unsigned char n_sums = same ? 0 : same_sums(sl_scales_table(block));
	unsigned char lines[16 * 64];

	for (; row + at_once <= block->out.n_rows; row += at_once) {
		for (unsigned c = 0; c < x->n; c += (unsigned)at_once) {
			if (size == 1)
				sixteen_of_1(x, c, row, lines + c, width);
			else
				eight_of_2(x, c, row, lines + 2 * c, width);
		}
		for (unsigned i = 0; i < at_once; i++) {
			for (uint64_t at = 0; !same && at < width; at += 16)
				look_up(lines + i * width + at, sl_scales_table(block), n_sums);
			unsigned char *to = x->to + (row + i) * block->stride;
			for (uint64_t at = 0; more && at < width; at += 64)
				__builtin_prefetch(to + width + at, 1);
			for (uint64_t at = 0; at < width; at += 32)
				memcpy(to + at, lines + i * width + at, 32);
		}
	}
	return row;
}

static uint64_t rows_of_2(const struct sl_block *block, const struct columns *x)
{
	for (uint64_t r = 0; r < block->out.n_rows; r++)
		row_of_2(x->from + x->at[0] + r * x->pitch, x->to + r * block->stride);
	return block->out.n_rows;
}

/* Are they one after another in the source, in the order of 64? */
static bool is_row(const struct sl_args *args, const struct columns *x)
{
	return args->p[SL_SCALES_ORDER] == SL_SCALES_IN_64 && !args->p[SL_SCALES_SWAP] &&
	       args->p[SL_SCALES_REPEAT] == 1 && args->p[SL_SCALES_N_RANGES] == 0 && x->at[63] == x->at[0] + 126;
}

static void run(const struct sl_args *args, const struct sl_block *block)
{
	unsigned width = (unsigned)sl_scales_width(args);
	uint64_t n = block->out.n_cols / sl_scales_size_out(args), kind = args->p[SL_SCALES_KIND];
	bool padded_below = args->p[SL_SCALES_PAD] && sl_scales_beyond(args, block, block->out.n_rows - 1);
	struct columns x;

	set_order(args, block, &x);
	for (uint64_t i = 0; width == 1 && i < n; i++)
		sl_marlin_scales_unit(args, block, i);
	for (uint64_t c = 0; width > 1 && c < n; c += width) {
		uint64_t done = 0;
		find(args, block, c, &x);
		if (!x.padded && !padded_below && !sl_scales_rounds(args) && args->p[SL_SCALES_TURNED])
			done = turned(args, block, &x, c + width < n);
		else if (!x.padded && kind == SL_SCALE_KEEP && is_row(args, &x))
			done = rows_of_2(block, &x);
		each(args, block, &x, done, block->out.n_rows - done);
	}
}

/* Scales of FP8 weights, those of the source: rows and columns beyond it are zeros. */
static int check(const struct sl_args *args, const struct sl_block *block, struct sl_error *err)
{
	const struct sl_rect *in = &block->in[0];
	uint64_t size = sl_scales_size(args), rows = args->in[0].rows, bytes = args->in[0].row_bytes;
	int ret = 0;

	if (!sl_scales_rounds(args))
		return 0;
	for (uint64_t r = 0; r < in->n_rows && in->row + r < rows; r++) {
		for (uint64_t at = 0; at < in->n_cols && in->col + at < bytes && !ret; at += size)
			ret = sl_transform_scale(sl_scales_stored(args, block->bytes[0] + r * in->n_cols + at), err);
	}
	return ret;
}

const struct sl_transform_row sl_transform_marlin_scales = {
	"marlin_scales", granule, need, facts_len, learn, run, sl_marlin_scales_units, sl_marlin_scales_unit, check,
};
