/*
 * values.c - decoding one element of each dtype, and what is counted over many.
 *
 * Small floats are all decoded by one function from the widths of their fields; what differs between them is which
 * patterns stand for infinity and NaN (OCP 8-bit floating point specification; for FNUZ, arXiv 2206.02915).
 */
#include "fs/values.h"
#include "slicer/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIXED(name, type)                                    \
	static double decode_##name(const unsigned char *at) \
	{                                                    \
		type value;                                  \
                                                             \
		memcpy(&value, at, sizeof(value));           \
		return (double)value;                        \
	}

FIXED(u8, uint8_t)
FIXED(i8, int8_t)
FIXED(u16, uint16_t)
FIXED(i16, int16_t)
FIXED(u32, uint32_t)
FIXED(i32, int32_t)
FIXED(u64, uint64_t)
FIXED(i64, int64_t)
FIXED(f32, float)
FIXED(f64, double)

static double decode_bf16(const unsigned char *at)
{
	uint32_t bits = (uint32_t)at[1] << 24 | (uint32_t)at[0] << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* A sign, `exponent_bits`, `mantissa_bits`; the exponent's bias; subnormal numbers; no special pattern. */
static double decode_small(unsigned bits, int exponent_bits, int mantissa_bits, int bias)
{
	int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
	int mantissa = (int)bits & ((1 << mantissa_bits) - 1);
	double value;

	if (exponent == 0)
		value = ldexp(mantissa, 1 - bias - mantissa_bits);
	else
		value = ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
	return bits >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

/* As IEEE 754: the largest exponent is infinity and NaN. */
static double decode_ieee(unsigned bits, int exponent_bits, int mantissa_bits)
{
	unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
	unsigned special = ((1u << exponent_bits) - 1) << mantissa_bits;

	if ((bits & special) == special) {
		if (mantissa)
			return NAN;
		return bits >> (exponent_bits + mantissa_bits) & 1 ? -INFINITY : INFINITY;
	}
	return decode_small(bits, exponent_bits, mantissa_bits, (1 << (exponent_bits - 1)) - 1);
}

static double decode_f16(const unsigned char *at)
{
	return decode_ieee((unsigned)at[1] << 8 | at[0], 5, 10);
}

static double decode_f8_e5m2(const unsigned char *at)
{
	return decode_ieee(*at, 5, 2);
}

static double decode_f8_e4m3(const unsigned char *at)
{
	return (*at & 0x7F) == 0x7F ? NAN : decode_small(*at, 4, 3, 7);
}

static double decode_f8_e5m2fnuz(const unsigned char *at)
{
	return *at == 0x80 ? NAN : decode_small(*at, 5, 2, 16);
}

static double decode_f8_e4m3fnuz(const unsigned char *at)
{
	return *at == 0x80 ? NAN : decode_small(*at, 4, 3, 8);
}

static double decode_f8_e8m0(const unsigned char *at)
{
	return *at == 0xFF ? NAN : ldexp(1, *at - 127);
}

typedef double decode_fn(const unsigned char *at);

/* clang-format off */
/* To add a dtype: its decoder here. NULL: elements that have no byte, or no one number, of their own. */
static decode_fn *const decoders[SL_N_DTYPES] = {
	[SL_BOOL]        = decode_u8,
	[SL_U8]          = decode_u8,
	[SL_I8]          = decode_i8,
	[SL_F8_E5M2]     = decode_f8_e5m2,
	[SL_F8_E4M3]     = decode_f8_e4m3,
	[SL_F8_E8M0]     = decode_f8_e8m0,
	[SL_F8_E4M3FNUZ] = decode_f8_e4m3fnuz,
	[SL_F8_E5M2FNUZ] = decode_f8_e5m2fnuz,
	[SL_I16]         = decode_i16,
	[SL_U16]         = decode_u16,
	[SL_F16]         = decode_f16,
	[SL_BF16]        = decode_bf16,
	[SL_I32]         = decode_i32,
	[SL_U32]         = decode_u32,
	[SL_F32]         = decode_f32,
	[SL_F64]         = decode_f64,
	[SL_I64]         = decode_i64,
	[SL_U64]         = decode_u64,
};
/* clang-format on */

bool values_known(uint8_t dtype)
{
	return decoders[dtype];
}

void values_init(struct values *values)
{
	*values = (struct values){ .min = INFINITY, .max = -INFINITY };
}

static void add(struct values *values, double value)
{
	if (values->n_first < VALUES_FIRST)
		values->first[values->n_first++] = value;
	values->n++;
	if (isfinite(value)) {
		values->min = value < values->min ? value : values->min;
		values->max = value > values->max ? value : values->max;
		values->sum += value;
	} else if (isnan(value)) {
		values->n_nan++;
	} else {
		values->n_inf++;
	}
}

/* Elements of one byte have 256 values, decoded once. */
static void add_bytes(struct values *values, decode_fn *decode, const unsigned char *bytes, size_t len)
{
	double decoded[256];

	for (unsigned i = 0; i < 256; i++)
		decoded[i] = decode(&(const unsigned char){ (unsigned char)i });
	for (size_t i = 0; i < len; i++)
		add(values, decoded[bytes[i]]);
}

void values_add(struct values *values, uint8_t dtype, const unsigned char *bytes, size_t len)
{
	decode_fn *decode = decoders[dtype];
	size_t size = sl_dtypes[dtype].bits / 8;

	if (size == 1) {
		add_bytes(values, decode, bytes, len);
		return;
	}
	for (const unsigned char *at = bytes; at < bytes + len; at += size)
		add(values, decode(at));
}

/* Does element i equal first + i * step for all? */
static bool is_series(uint8_t dtype, const unsigned char *bytes, size_t len, double step)
{
	size_t size = sl_dtypes[dtype].bits / 8;
	double first = decoders[dtype](bytes);

	for (size_t i = 1; i * size < len; i++) {
		if (decoders[dtype](bytes + i * size) != first + (double)i * step)
			return false;
	}
	return true;
}

bool values_constant(uint8_t dtype, const unsigned char *bytes, size_t len, char *text, size_t size)
{
	size_t element = sl_dtypes[dtype].bits / 8;
	double first;

	if (!values_known(dtype) || len < element || len % element)
		return false;
	first = decoders[dtype](bytes);
	if (first == 0 && len > element && is_series(dtype, bytes, len, 1)) {
		snprintf(text, size, "0, 1, …, %zu", len / element - 1);
		return true;
	}
	if (!is_series(dtype, bytes, len, 0))
		return false;
	if (first == 0)
		snprintf(text, size, "zeros");
	else
		snprintf(text, size, fabs(first) < 1e9 && first == (double)(int64_t)first ? "all %.1f" : "all %.9g",
			 first);
	return true;
}
