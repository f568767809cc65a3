/*
 * test_convert.c - every 16-bit pattern and millions of floats, against the arithmetic of the definition (twin.h).
 */
#include "slicer/convert.h"

#include "twin.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(convert, .timeout = 120);

static double decode16(int dtype, uint32_t bits)
{
	uint16_t half = (uint16_t)bits;
	unsigned char bytes[4];

	memcpy(bytes, &half, sizeof(half));
	return twin_decode(dtype, bytes);
}

static int same(float value, double want)
{
	return isnan(want) ? isnan(value) : (double)value == want && !signbit(value) == !signbit(want);
}

Test(convert, every_F16_and_BF16_to_F32)
{
	for (uint32_t bits = 0; bits < 65536; bits++) {
		cr_assert(same(sl_f16_to_f32((uint16_t)bits), decode16(SL_F16, bits)), "F16 %04x", bits);
		cr_assert(same(sl_bf16_to_f32((uint16_t)bits), decode16(SL_BF16, bits)), "BF16 %04x", bits);
	}
}

/* What F32 holds exactly comes back; NaN becomes the quiet one. */
Test(convert, every_F16_and_BF16_there_and_back)
{
	for (uint32_t bits = 0; bits < 65536; bits++) {
		uint16_t half = (uint16_t)bits;
		uint16_t f16 = (half & 0x7FFF) > 0x7C00 ? (half & 0x8000) | 0x7E00 : half,
			 bf16 = (half & 0x7FFF) > 0x7F80 ? 0x7FC0 : half;
		cr_assert_eq(sl_f32_to_f16(sl_f16_to_f32(half)), f16, "F16 %04x", bits);
		cr_assert_eq(sl_f32_to_bf16(sl_bf16_to_f32(half)), bf16, "BF16 %04x", bits);
	}
}

static void check_f32(uint32_t bits)
{
	float value = sl_f32_from_bits(bits);

	if (isnan(value)) {
		cr_assert_eq(sl_f32_to_f16(value), (bits >> 16 & 0x8000) | 0x7E00);
		cr_assert_eq(sl_f32_to_bf16(value), 0x7FC0);
		return;
	}
	if (sl_f32_to_f16(value) != twin_encode(SL_F16, (double)value))
		cr_assert_fail("%08x to F16: %04x, not %04x", bits, sl_f32_to_f16(value),
			       twin_encode(SL_F16, (double)value));
	if (sl_f32_to_bf16(value) != twin_encode(SL_BF16, (double)value))
		cr_assert_fail("%08x to BF16: %04x, not %04x", bits, sl_f32_to_bf16(value),
			       twin_encode(SL_BF16, (double)value));
}

/* Each 16-bit number, the middle between it and the next, and what is around both: where rounding turns. */
Test(convert, F32_around_every_tie)
{
	static const int around[] = { -1, 0, 1 };

	for (uint32_t half = 0; half < 65536; half++) {
		uint32_t f16 = sl_f32_bits(sl_f16_to_f32((uint16_t)half)), bf16 = half << 16;
		for (size_t i = 0; i < LEN(around); i++) {
			check_f32(f16 + (uint32_t)around[i]);
			check_f32(f16 + 0x1000 + (uint32_t)around[i]);
			check_f32(bf16 + (uint32_t)around[i]);
			check_f32(bf16 + 0x8000 + (uint32_t)around[i]);
		}
	}
}

/* F16's subnormals are further apart than the F32s that round to them: the middles between them, exactly. */
Test(convert, F32_around_subnormal_F16)
{
	for (uint32_t n = 0; n < 1024; n++) {
		uint32_t middle = sl_f32_bits(((float)n + 0.5f) * 0x1p-24f);
		check_f32(middle - 1);
		check_f32(middle);
		check_f32(middle + 1);
		check_f32(middle | 0x80000000);
	}
	check_f32(sl_f32_bits(65519.996f));
	check_f32(sl_f32_bits(65520.0f));
	check_f32(sl_f32_bits(-65504.0f));
}

Test(convert, random_F32)
{
	uint64_t state = 1234567;

	for (unsigned i = 0; i < 1000000; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		check_f32((uint32_t)(state >> 32));
		check_f32((uint32_t)(state >> 32 & 0x8FFFFFFF) | 0x30000000); /* F16's range */
	}
}

static double decode8(unsigned bits)
{
	int exponent = (int)(bits >> 3 & 15), mantissa = (int)(bits & 7);
	double sign = bits & 0x80 ? -1 : 1;

	if ((bits & 0x7F) == 0x7F)
		return (double)NAN;
	return exponent ? sign * ldexp(8 + mantissa, exponent - 10) : sign * ldexp(mantissa, -9);
}

Test(convert, every_F8_E4M3)
{
	for (unsigned bits = 0; bits < 256; bits++) {
		float value = sl_f8_e4m3_to_f32((uint8_t)bits);
		cr_assert(same(value, decode8(bits)), "%02x", bits);
		cr_assert_eq(sl_f32_to_f8_e4m3(value), bits);
	}
}

Test(convert, every_F8_E8M0)
{
	for (int bits = 0; bits < 255; bits++)
		cr_assert_eq((double)sl_f8_e8m0_to_f32((uint8_t)bits), ldexp(1, bits - 127), "%02x", (unsigned)bits);
	cr_assert(isnan((double)sl_f8_e8m0_to_f32(0xFF)));
	/* Back: powers as they are, what lies between to the nearer one, from the middle upwards. */
	for (unsigned bits = 0; bits < 256; bits++)
		cr_assert_eq(sl_f32_to_f8_e8m0(sl_f8_e8m0_to_f32((uint8_t)bits)), bits, "%02x", bits);
	for (unsigned bits = 1; bits < 254; bits++) {
		float power = sl_f8_e8m0_to_f32((uint8_t)bits);
		cr_assert_eq(sl_f32_to_f8_e8m0(power * 1.25F), bits, "%02x", bits);
		cr_assert_eq(sl_f32_to_f8_e8m0(power * 1.5F), bits + 1, "%02x", bits);
	}
	cr_assert_eq(sl_f32_to_f8_e8m0(0x1p-133F), 0);
	cr_assert_eq(sl_f32_to_f8_e8m0(0), 0);
	cr_assert_eq(sl_f32_to_f8_e8m0(HUGE_VALF), 0xFF);
}

/* To the nearest of all that there are, from the middle to the even one; what would be rounded to 480 is NaN. */
Test(convert, F32_to_F8_E4M3)
{
	for (uint32_t bits = 0; bits < 0x7F800000; bits += 0x4000) {
		float value = sl_f32_from_bits(bits);
		unsigned got = sl_f32_to_f8_e4m3(value), below = 0;
		while (below < 0x7E && decode8(below + 1) <= (double)value)
			below++;
		double next = below == 0x7E ? 480 : decode8(below + 1);
		double down = (double)value - decode8(below), up = next - (double)value;
		unsigned want = down < up || (down == up && below % 2 == 0) ? below : below + 1;
		cr_assert_eq(got, want, "%08x: %02x, not %02x", bits, got, want);
		cr_assert_eq(sl_f32_to_f8_e4m3(-value), (want | 0x80));
	}
}

/* Blocks: the same as one by one, for any number of elements and any alignment, and nothing beyond the last. */
Test(convert, blocks)
{
	static const enum sl_dtype from[] = { SL_F16, SL_BF16, SL_F32, SL_F64 }, to[] = { SL_F16, SL_BF16, SL_F32 };
	static const size_t counts[] = { 0, 1, 2, 511, 512, 513, 1025, 2000 };
	static unsigned char in[2000 * 8 + 1], out[2000 * 4 + 2], one[4];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)(i * 131 + i / 256 * 7);
	for (size_t i = 0; i < LEN(from) * LEN(to) * LEN(counts); i++) {
		enum sl_dtype f = from[i % 4], t = to[i / 4 % 3];
		size_t n = counts[i / 12], in_size = sl_dtypes[f].bits / 8, out_size = sl_dtypes[t].bits / 8;
		cr_assert(sl_can_convert(f, t));
		memset(out, 0xEE, sizeof(out));
		sl_convert(out + 1, t, in + 1, f, n);
		for (size_t e = 0; e < n; e++) {
			sl_convert(one, t, in + 1 + e * in_size, f, 1);
			cr_assert(memcmp(one, out + 1 + e * out_size, out_size) == 0);
		}
		cr_assert(out[0] == 0xEE && out[1 + n * out_size] == 0xEE);
	}
}

Test(convert, F64_goes_through_F32)
{
	/* Above the middle of two BF16s by less than F32 sees: torch rounds twice, and so do we. */
	double value = 1.0 + 0x1p-8 + 0x1p-40;
	uint16_t bf16;

	sl_convert(&bf16, SL_BF16, &value, SL_F64, 1);
	cr_assert_eq(bf16, 0x3F80);
}

Test(convert, equal_dtypes_are_copied)
{
	const uint16_t nan[] = { 0x7FA1, 0xFFFF, 0x7C01 };
	uint16_t copy[3];

	sl_convert(copy, SL_BF16, nan, SL_BF16, 3);
	cr_assert(memcmp(copy, nan, sizeof(nan)) == 0, "payloads stay");
}

Test(convert, pairs_that_do_not)
{
	static const enum sl_dtype none[] = { SL_BOOL, SL_U8, SL_I8, SL_F4, SL_U16, SL_C64 };

	for (size_t i = 0; i < LEN(none); i++) {
		cr_assert(!sl_can_convert(none[i], SL_F32) && !sl_can_convert(SL_F32, none[i]), "%s",
			  sl_dtypes[none[i]].name);
		cr_assert(sl_can_convert(none[i], none[i]));
	}
	cr_assert(!sl_can_convert(SL_F32, SL_F64) && !sl_can_convert(SL_F32, SL_I32) &&
		  !sl_can_convert(SL_F32, SL_I64));
}

/* Not through F32, which has no odd numbers beyond 2^24. What does not fit is cut. */
Test(convert, integers)
{
	const int64_t in[] = { 0, 1, -1, 16777217, -16777217, INT32_MAX, INT32_MIN, INT64_C(0x100000005) };
	const int32_t want[] = { 0, 1, -1, 16777217, -16777217, INT32_MAX, INT32_MIN, 5 };
	int32_t narrow[LEN(in)];
	int64_t wide[LEN(in)];

	cr_assert(sl_can_convert(SL_I64, SL_I32) && sl_can_convert(SL_I32, SL_I64));
	sl_convert(narrow, SL_I32, in, SL_I64, LEN(in));
	cr_assert_arr_eq(narrow, want, sizeof(want));
	sl_convert(wide, SL_I64, narrow, SL_I32, LEN(in));
	cr_assert_arr_eq(wide, in, sizeof(in) - sizeof(in[0]));
}
