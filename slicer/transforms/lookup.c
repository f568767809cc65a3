/*
 * lookup.c - see lookup.h.
 */
#include "slicer/transforms/lookup.h"

#include "slicer/transforms/fast.h"

static void look_up(const unsigned char *table, const unsigned char *from, unsigned char *to, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = table[from[i]];
}

void sl_lookup_make(struct sl_lookup *lookup, const unsigned char *table)
{
	bool keeps_zero = table[0x80] == (table[0] | 0x80), is_identity = table[127] == 127;
	bool keeps_sign = !(table[127] & 0x80) && (table[0x80] == 0 || keeps_zero);

	for (unsigned c = 0; c < 127; c++) {
		keeps_sign &= !(table[c] & 0x80) && (c == 0 || table[c + 128] == (table[c] | 0x80));
		is_identity &= table[c] == c;
	}
	lookup->table = table;
	lookup->keeps_sign = keeps_sign;
	lookup->keeps_zero = keeps_zero;
	lookup->is_identity = is_identity;
	for (unsigned c = 0; c < 128; c++)
		lookup->parts[c / 16][c % 16] = c < 16 ? table[c] : table[c] ^ table[c - 16];
}

#ifdef __x86_64__
/* From the parts: a code adds up all parts up to its own, since one that belongs to an earlier part is negative by then, for which a
 * shuffle gives 0. */
SL_WIDE static inline __m256i find_32(const __m256i tables[8], __m256i codes)
{
	__m256i found = _mm256_shuffle_epi8(tables[0], codes);

#pragma GCC unroll 8
	for (int t = 1; t < 8; t++) {
		codes = _mm256_sub_epi8(codes, _mm256_set1_epi8(16));
		found = _mm256_xor_si256(found, _mm256_shuffle_epi8(tables[t], codes));
	}
	return found;
}

/* Vectors with a negative NaN, where that is not the positive one with a sign, are looked up byte by byte. Returns how many bytes
 * were done: all but the last few. */
SL_WIDE static uint64_t look_up_wide(const struct sl_lookup *lookup, const unsigned char *from, uint64_t n,
				     unsigned char *to)
{
	const __m256i sign = _mm256_set1_epi8((char)0x80), nan = _mm256_set1_epi8(-1);
	const __m256i zero = lookup->keeps_zero ? nan : sign; /* a code that becomes 0 */
	const unsigned char *table = lookup->table;
	bool nan_moves = table[255] != (table[127] | 0x80);
	__m256i tables[8];
	uint64_t i = 0;

	for (unsigned t = 0; t < 8; t++)
		tables[t] =
			_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)lookup->parts[t]));
	for (; i + 32 <= n; i += 32) {
		__m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(from + i)), found;
		if (nan_moves && _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, nan))) {
			look_up(table, from + i, to + i, 32);
			continue;
		}
		found = lookup->is_identity ? codes
					    : _mm256_or_si256(_mm256_and_si256(codes, sign),
							      find_32(tables, _mm256_andnot_si256(sign, codes)));
		if (!lookup->keeps_zero)
			found = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, zero), found);
		_mm256_storeu_si256((__m256i *)(void *)(to + i), found);
	}
	return i;
}
#else
static uint64_t look_up_wide(const struct sl_lookup *lookup, const unsigned char *from, uint64_t n, unsigned char *to)
{
	(void)lookup, (void)from, (void)n, (void)to;
	return 0;
}
#endif

void sl_lookup_run(const struct sl_lookup *lookup, const unsigned char *from, uint64_t n, unsigned char *to)
{
	uint64_t done = lookup->keeps_sign && sl_has_wide() ? look_up_wide(lookup, from, n, to) : 0;

	look_up(lookup->table, from + done, to + done, n - done);
}
