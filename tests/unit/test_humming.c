/*
 * test_humming.c - what only Humming's weights need: codes in sign and magnitude, a scale that is inverted twice.
 */
#include "transforms.h"

#include "slicer/transforms/map.h"
#include "slicer/transforms/scalars.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(humming, .timeout = 60);

/* ---- codes of 4 bits ---- */

static unsigned char sign_and_magnitude(unsigned code)
{
	int value = (int)code - 8;

	return (unsigned char)(value < 0 ? 8 - value : value);
}

/* Bytes without a code 0, but for the one at `zero`. */
static void check_signed(uint64_t batch, uint64_t rows, uint64_t width, int64_t zero, unsigned char with)
{
	struct sl_transform t = { .id = SL_T_MAP, .args = { .batch = batch, .rows = rows, .row_bytes = width } };
	uint64_t len = batch * rows * width;
	unsigned char *codes = malloc(len), *want = malloc(len);

	for (uint64_t i = 0; i < len; i++) {
		unsigned low = 1 + (unsigned)random_below(15), high = 1 + (unsigned)random_below(15);
		codes[i] = (unsigned char)(low | high << 4);
		want[i] = (unsigned char)(sign_and_magnitude(low) | sign_and_magnitude(high) << 4);
	}
	if (zero >= 0) {
		codes[zero] &= with;
		memcpy(want, codes, len);
	}
	t.args.p[SL_MAP_KIND] = SL_MAP_SIGNED_4;
	t.args.p[SL_MAP_N] = 1;
	t.args.p[SL_MAP_ENDS] = rows;
	transform_input(&t, codes, rows, width);
	transform_check(&t, want, "sign and magnitude");
	free(codes);
	free(want);
}

Test(humming, codes_without_a_zero)
{
	check_signed(1, 1, 1, -1, 0);
	check_signed(3, 7, 129, -1, 0);
	check_signed(2, 40, 2048, -1, 0);
	check_signed(1, 3, (64 << 10) + 5, -1, 0);
}

/* One of all, the last one of the last matrix too, and either of a byte. */
Test(humming, codes_with_a_zero)
{
	check_signed(1, 1, 1, 0, 0x0F);
	check_signed(3, 7, 129, 0, 0xF0);
	check_signed(3, 7, 129, 3 * 7 * 129 - 1, 0xF0);
	check_signed(2, 40, 2048, 2 * 40 * 2048 - 1, 0x0F);
	check_signed(1, 3, (64 << 10) + 5, 3 * ((64 << 10) + 5) - 1, 0xF0);
}

/* ---- a scale for all ---- */

Test(humming, an_inverse_of_an_inverse)
{
	unsigned changed = 0;

	for (unsigned i = 0; i < 1000; i++) {
		struct sl_transform t = { .id = SL_T_SCALARS, .args = { .batch = 1, .rows = 1, .row_bytes = 4 } };
		float scale = (1 + (float)random_below(1 << 23) * 0x1p-23f) * 0x1p-9f;
		volatile float inverse = 1 / scale, again = 1 / inverse;
		float want = again;
		t.args.p[SL_SCALARS_KIND] = SL_SCALAR_TWICE_INVERTED;
		transform_input(&t, &scale, 1, sizeof(scale));
		transform_check(&t, (unsigned char *)&want, "twice inverted");
		changed += want != scale;
	}
	cr_expect_gt(changed, 0);
}
