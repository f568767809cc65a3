/*
 * map.c - making tables, and the loop over bytes.
 */
#include "slicer/transforms/map.h"

#include "slicer/convert.h"
#include "slicer/transform.h"
#include "slicer/transforms/lookup.h"

#include <math.h>

/* ---- tables ---- */

static float fnuz_value(uint8_t code)
{
	uint32_t exponent = (code >> 3) & 15, mantissa = code & 7;
	float value = exponent ? ldexpf((float)(8 + mantissa), (int)exponent - 11) : (float)mantissa * 0x1p-10f;

	return code & 0x80 ? -value : value;
}

/* To E4M3FNUZ, whose steps are half as large; what rounds to zero has no sign. `value` is within +-240. */
static uint8_t to_fnuz(float value)
{
	uint8_t code = sl_f32_to_f8_e4m3(value * 2);

	return code & 0x7F ? code : 0;
}

/* One code's value in a part whose scale is `scale` to the code of the same value at `largest` (vLLM 0.32; csrc, fp8/common.cuh:
 * the quotient is a product with the inverse, clamped, NaN to the largest). On a GPU the product of an F16 tensor and a scale
 * without dimension is of F16, the scale rounded first. */
static uint8_t requantise(enum sl_map_kind kind, float value, float scale, float largest)
{
	float by = kind == SL_MAP_REQUANT_CPU ? scale : sl_f16_to_f32(sl_f32_to_f16(scale));
	float dequantised = sl_f16_to_f32(sl_f32_to_f16(value * by)), x = dequantised * (1.0f / largest);
	float top = kind == SL_MAP_REQUANT_FNUZ ? 224.0f : 448.0f;

	if (isnan(x))
		x = top;
	x = fmaxf(-top, fminf(x, top));
	return kind == SL_MAP_REQUANT_FNUZ ? to_fnuz(x) : sl_f32_to_f8_e4m3(x);
}

static float largest_of(const float *scales, unsigned n)
{
	float largest = scales[0];

	for (unsigned i = 1; i < n; i++)
		largest = scales[i] > largest ? scales[i] : largest;
	return largest;
}

static bool are_equal(const float *scales, unsigned n)
{
	for (unsigned i = 1; i < n; i++) {
		if (scales[i] != scales[0])
			return false;
	}
	return true;
}

static uint8_t through_f16(uint8_t code)
{
	return code < 103 ? 0 : code > 142 ? 255 : code;
}

/* Do the scales ask for nothing? */
static bool is_identity(enum sl_map_kind kind, const float *scales, unsigned n)
{
	if (kind == SL_MAP_REQUANT_UNLIKE && are_equal(scales, n))
		return true;
	return kind != SL_MAP_REQUANT_ALWAYS && scales[n - 1] <= -448.0f;
}

static unsigned signed_4(unsigned code)
{
	return code < 8 ? 8 | (8 - code) : code - 8;
}

/* One code through a table that needs no scales. */
static uint8_t plain(enum sl_map_kind kind, uint8_t code)
{
	if (kind == SL_MAP_FNUZ)
		return code == 0x80 ? 0 : code;
	if (kind == SL_MAP_E8M0_F16)
		return through_f16(code);
	if (kind == SL_MAP_SIGNED_4)
		return (uint8_t)(signed_4(code & 15) | signed_4(code >> 4) << 4);
	return code >= 254 ? 254 : (uint8_t)(code + 1); /* SL_MAP_E8M0_TWICE */
}

/* One code of a part with scales. AMD's kind has other values, and scales twice as large. */
static uint8_t scaled(enum sl_map_kind kind, uint8_t code, float scale, float largest)
{
	if (kind != SL_MAP_REQUANT_FNUZ)
		return requantise(kind, sl_f8_e4m3_to_f32(code), scale, largest);
	return requantise(kind, fnuz_value(code == 0x80 ? 0 : code), 2 * scale, 2 * largest);
}

void sl_map_make(enum sl_map_kind kind, const float *scales, unsigned n, unsigned i, unsigned char table[256])
{
	bool identity = n && is_identity(kind, scales, n);
	float largest = n ? largest_of(scales, n) : 0;

	for (unsigned c = 0; c < 256; c++) {
		uint8_t code = (uint8_t)c;
		if (n == 0)
			table[c] = plain(kind, code);
		else if (identity)
			table[c] = kind == SL_MAP_REQUANT_FNUZ ? plain(SL_MAP_FNUZ, code) : code;
		else
			table[c] = scaled(kind, code, scales[i], largest);
	}
}

static uint64_t facts_len(const struct sl_args *args)
{
	return 256 * args->batch * args->p[SL_MAP_N];
}

/* Is one of two codes in any of n bytes 0? */
static bool has_zero_4(const unsigned char *bytes, uint64_t n)
{
	bool any = false;

	for (uint64_t i = 0; i < n; i++)
		any |= (bytes[i] & 0x0F) == 0 || (bytes[i] & 0xF0) == 0;
	return any;
}

/* In the whole of input 0? */
static int find_zero_4(const struct sl_model *model, const struct sl_transform *t, bool *found, struct sl_error *err)
{
	enum { CHUNK = 64 << 10 };
	uint64_t rows = t->args.in[0].rows, width = t->args.in[0].row_bytes, n_cols, n_rows;
	unsigned char bytes[CHUNK];
	int ret = 0;

	*found = false;
	for (uint64_t m = 0; m < t->args.batch; m++) {
		for (uint64_t r = 0; r < rows; r += n_rows) {
			n_rows = width < CHUNK ? CHUNK / width : 1;
			n_rows = n_rows < rows - r ? n_rows : rows - r;
			for (uint64_t c = 0; c < width && !ret && !*found; c += n_cols) {
				n_cols = width - c < CHUNK ? width - c : CHUNK;
				struct sl_rect rect = { r, n_rows, c, n_cols };
				ret = sl_transform_input(model, t, 0, m, &rect, bytes, err);
				*found = !ret && has_zero_4(bytes, n_rows * n_cols);
			}
		}
	}
	return ret;
}

/* One table for all. */
static int learn_signed_4(const struct sl_model *model, const struct sl_transform *t, unsigned char *facts,
			  struct sl_error *err)
{
	bool found;
	int ret = find_zero_4(model, t, &found, err);

	for (uint64_t i = 0; i < facts_len(&t->args) && !ret; i++)
		facts[i] = found ? (unsigned char)i : plain(SL_MAP_SIGNED_4, (unsigned char)i);
	return ret;
}

static int learn(const struct sl_model *model, const struct sl_transform *t, unsigned char *facts, struct sl_error *err)
{
	unsigned n = (unsigned)t->args.p[SL_MAP_N], n_scales = t->n_inputs > 1 ? n : 0;
	const struct sl_rect rect = { 0, 1, 0, n_scales * sizeof(float) };
	float scales[SL_MAP_RANGES_MAX];
	int ret = 0;

	if (t->args.p[SL_MAP_KIND] == SL_MAP_SIGNED_4)
		return learn_signed_4(model, t, facts, err);
	for (uint64_t m = 0; m < t->args.batch && !ret; m++) {
		if (n_scales)
			ret = sl_transform_input(model, t, 1, m, &rect, (unsigned char *)scales, err);
		if (!ret && t->args.strict)
			ret = sl_transform_scales((const unsigned char *)scales, n_scales, err);
		for (unsigned i = 0; i < n && !ret; i++)
			sl_map_make((enum sl_map_kind)t->args.p[SL_MAP_KIND], scales, n_scales, i,
				    facts + 256 * (m * n + i));
	}
	return ret;
}

/* ---- bytes ---- */

static void granule(const struct sl_args *args, uint64_t *rows, uint64_t *bytes)
{
	(void)args;
	*rows = *bytes = 1;
}

static void need(const struct sl_args *args, unsigned input, const struct sl_rect *out, struct sl_rect *in)
{
	(void)args;
	if (input == 0)
		*in = *out;
}

/* Rows of one range lie one after another: they are one run where the destination has no gaps. */
static void run(const struct sl_args *args, const struct sl_block *block)
{
	uint64_t width = block->out.n_cols, rows = block->out.n_rows, n;
	struct sl_lookup lookup;

	for (uint64_t r = 0; r < rows; r += n) {
		const unsigned char *table = sl_map_table(args, block, r);
		for (n = 1; r + n < rows && block->stride == width && sl_map_table(args, block, r + n) == table;)
			n++;
		sl_lookup_make(&lookup, table);
		sl_lookup_run(&lookup, block->bytes[0] + r * width, n * width, block->dst + r * block->stride);
	}
}

const struct sl_transform_row sl_transform_map = {
	"map", granule, need, facts_len, learn, run, sl_map_units, sl_map_unit, NULL,
};
