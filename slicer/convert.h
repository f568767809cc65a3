/*
 * convert.h - elements from one dtype to another, as torch's copy_ does: through F32, rounding to nearest, ties to even; too
 * large becomes infinity; a NaN becomes the quiet one. Integers become integers exactly.
 *
 * The arithmetic of one element is inline and branch-poor, so that loops over it vectorise, on a processor and on a GPU.
 */
#ifndef SLICER_CONVERT_H
#define SLICER_CONVERT_H

#include "slicer/backend.h"
#include "slicer/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

SL_DEVICE uint32_t sl_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

SL_DEVICE float sl_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

SL_DEVICE float sl_bf16_to_f32(uint16_t bits)
{
	return sl_f32_from_bits((uint32_t)bits << 16);
}

SL_DEVICE uint16_t sl_f32_to_bf16(float value)
{
	uint32_t bits = sl_f32_bits(value);

	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return 0x7FC0;
	return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

SL_DEVICE float sl_f16_to_f32(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, mantissa = bits & 0x3FF;

	if (exponent == 31)
		return sl_f32_from_bits(sign | 0x7F800000 | mantissa << 13);
	if (exponent == 0) {
		float subnormal = (float)mantissa * 0x1p-24f;
		return sign ? -subnormal : subnormal;
	}
	return sl_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

SL_DEVICE uint16_t sl_f32_to_f16(float value)
{
	uint32_t bits = sl_f32_bits(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7FFFFFFF;

	if (size >= 0x47800000) /* 65536 and more */
		return (uint16_t)(sign | (size > 0x7F800000 ? 0x7E00 : 0x7C00));
	if (size < 0x38800000) { /* below 2^-14: at 0.5 the unit in the last place is 2^-24, that of F16's subnormals */
		uint32_t rounded = sl_f32_bits(sl_f32_from_bits(size) + 0.5f);
		return (uint16_t)(sign | (rounded - 0x3F000000));
	}
	uint32_t rounded = size + 0xFFF + ((size >> 13) & 1);
	return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

/* F8_E8M0: a power of two alone, or NaN. */
SL_DEVICE float sl_f8_e8m0_to_f32(uint8_t bits)
{
	if (bits == 0xFF)
		return sl_f32_from_bits(0x7FC00000);
	return bits ? sl_f32_from_bits((uint32_t)bits << 23) : 0x1p-127f;
}

/* To the nearer power of two, from the middle upwards; below 2^-127 to that (torch, Float8_e8m0fnu.h). Signs are lost. */
static inline uint8_t sl_f32_to_f8_e8m0(float value)
{
	uint32_t bits = sl_f32_bits(value), exponent = (bits >> 23) & 0xFF, rest = bits & 0x7FFFFF;

	if (exponent == 0xFF)
		return 0xFF;
	return (uint8_t)(exponent + (rest > 0x400000 || (rest == 0x400000 && exponent > 0)));
}

/* F8_E4M3 ("fn"): no infinity; above 448 + half a step becomes NaN (torch, Float8_e4m3fn.h). */
SL_DEVICE float sl_f8_e4m3_to_f32(uint8_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x80) << 24, exponent = (bits >> 3) & 15, mantissa = bits & 7;

	if ((bits & 0x7F) == 0x7F)
		return sl_f32_from_bits(sign | 0x7FC00000);
	if (exponent == 0) {
		float subnormal = (float)mantissa * 0x1p-9f;
		return sign ? -subnormal : subnormal;
	}
	return sl_f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

SL_DEVICE uint8_t sl_f32_to_f8_e4m3(float value)
{
	uint32_t bits = sl_f32_bits(value), sign = (bits >> 24) & 0x80, size = bits & 0x7FFFFFFF;

	if (size >= 0x43F00000) /* 480: past the middle between 448 and what would be 512, and NaN */
		return (uint8_t)(sign | 0x7F);
	if (size < 0x3C800000) { /* below 2^-6: at 2^14 the unit in the last place is 2^-9, that of the subnormals */
		uint32_t rounded = sl_f32_bits(sl_f32_from_bits(size) + 0x1p14f);
		return (uint8_t)(sign | (rounded - 0x46800000));
	}
	uint32_t rounded = size + 0x7FFFF + ((size >> 20) & 1);
	return (uint8_t)(sign | (rounded - 0x3C000000) >> 20);
}

/* Can elements of `from` become elements of `to`? Equal dtypes always can. */
bool sl_can_convert(enum sl_dtype from, enum sl_dtype to);

/* Convert `n` elements; buffers need no alignment and must not overlap. The pair must be convertible. */
void sl_convert(void *dst, enum sl_dtype to, const void *src, enum sl_dtype from, size_t n);

#endif
