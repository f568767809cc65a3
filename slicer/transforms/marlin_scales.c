/*
 * marlin_scales.c - what of a source a block needs, the tables, and the loop over 64 columns.
 */
#include "slicer/transforms/marlin_scales.h"

#include "slicer/transform.h"

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
		else if (t->args.p[SL_SCALES_TO] == SL_F16)
			code = through_f16(code);
		facts[sizeof(factor) + c] = code;
	}
	return ret;
}

/* ---- blocks ---- */

static void run(const struct sl_args *args, const struct sl_block *block)
{
	for (uint64_t i = 0; i < sl_marlin_scales_units(args, block); i++)
		sl_marlin_scales_unit(args, block, i);
}

const struct sl_transform_row sl_transform_marlin_scales = {
	"marlin_scales", granule, need, facts_len, learn, run, sl_marlin_scales_units, sl_marlin_scales_unit, NULL,
};
