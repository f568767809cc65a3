/*
 * convert.c - blocks of elements to F32 and on to the other dtype: one loader and one storer per dtype, not one loop per
 * pair of dtypes.
 */
#include "slicer/convert.h"

enum { BLOCK = 512 };

#define LOADER(name, type, expression)                                         \
	static void name(float *out, const unsigned char *in, size_t n)        \
	{                                                                      \
		for (size_t i = 0; i < n; i++) {                               \
			type value;                                            \
			memcpy(&value, in + i * sizeof(value), sizeof(value)); \
			out[i] = expression;                                   \
		}                                                              \
	}

#define STORER(name, type, expression)                                          \
	static void name(unsigned char *out, const float *in, size_t n)         \
	{                                                                       \
		for (size_t i = 0; i < n; i++) {                                \
			type value = expression;                                \
			memcpy(out + i * sizeof(value), &value, sizeof(value)); \
		}                                                               \
	}

LOADER(load_f16, uint16_t, sl_f16_to_f32(value))
LOADER(load_bf16, uint16_t, sl_bf16_to_f32(value))
LOADER(load_f32, float, value)
LOADER(load_f64, double, (float)value)
LOADER(load_i32, int32_t, (float)value)
LOADER(load_i64, int64_t, (float)value)
LOADER(load_f8_e4m3, uint8_t, sl_f8_e4m3_to_f32(value))
LOADER(load_f8_e8m0, uint8_t, sl_f8_e8m0_to_f32(value))
STORER(store_f16, uint16_t, sl_f32_to_f16(in[i]))
STORER(store_bf16, uint16_t, sl_f32_to_bf16(in[i]))
STORER(store_f32, float, in[i])
STORER(store_f8_e4m3, uint8_t, sl_f32_to_f8_e4m3(in[i]))

/* To add a dtype that converts: a row. */
static const struct {
	void (*load)(float *out, const unsigned char *in, size_t n);
	void (*store)(unsigned char *out, const float *in, size_t n); /* NULL: nothing is converted to it */
} converters[SL_N_DTYPES] = {
	[SL_F16] = { load_f16, store_f16 },
	[SL_BF16] = { load_bf16, store_bf16 },
	[SL_F32] = { load_f32, store_f32 },
	[SL_F64] = { load_f64, NULL },
	[SL_I32] = { load_i32, NULL },
	[SL_I64] = { load_i64, NULL },
	[SL_F8_E4M3] = { load_f8_e4m3, store_f8_e4m3 },
	[SL_F8_E8M0] = { load_f8_e8m0, NULL },
};

/* Integers become integers through int64: none is rounded, and what does not fit is cut as torch cuts it. */
#define WIDEN(name, type)                                                      \
	static void name(int64_t *out, const unsigned char *in, size_t n)      \
	{                                                                      \
		for (size_t i = 0; i < n; i++) {                               \
			type value;                                            \
			memcpy(&value, in + i * sizeof(value), sizeof(value)); \
			out[i] = value;                                        \
		}                                                              \
	}

#define NARROW(name, type)                                                      \
	static void name(unsigned char *out, const int64_t *in, size_t n)       \
	{                                                                       \
		for (size_t i = 0; i < n; i++) {                                \
			type value = (type)in[i];                               \
			memcpy(out + i * sizeof(value), &value, sizeof(value)); \
		}                                                               \
	}

WIDEN(widen_i32, int32_t)
WIDEN(widen_i64, int64_t)
NARROW(narrow_i32, int32_t)
NARROW(narrow_i64, int64_t)

/* To add an integer that converts: a row. */
static const struct {
	void (*load)(int64_t *out, const unsigned char *in, size_t n);
	void (*store)(unsigned char *out, const int64_t *in, size_t n);
} integers[SL_N_DTYPES] = {
	[SL_I32] = { widen_i32, narrow_i32 },
	[SL_I64] = { widen_i64, narrow_i64 },
};

static bool are_integers(enum sl_dtype from, enum sl_dtype to)
{
	return integers[from].load && integers[to].store;
}

bool sl_can_convert(enum sl_dtype from, enum sl_dtype to)
{
	return from == to || are_integers(from, to) || (converters[from].load && converters[to].store);
}

void sl_convert(void *dst, enum sl_dtype to, const void *src, enum sl_dtype from, size_t n)
{
	size_t in_size = sl_dtypes[from].bits / 8, out_size = sl_dtypes[to].bits / 8;
	const unsigned char *in = src;
	unsigned char *out = dst;
	union {
		float floats[BLOCK];
		int64_t integers[BLOCK];
	} block;

	if (from == to) {
		memcpy(out, in, n * in_size);
		return;
	}
	for (size_t done = 0; done < n; done += BLOCK) {
		size_t now = n - done < BLOCK ? n - done : BLOCK;
		if (are_integers(from, to)) {
			integers[from].load(block.integers, in + done * in_size, now);
			integers[to].store(out + done * out_size, block.integers, now);
		} else {
			converters[from].load(block.floats, in + done * in_size, now);
			converters[to].store(out + done * out_size, block.floats, now);
		}
	}
}
