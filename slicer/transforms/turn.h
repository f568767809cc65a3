/*
 * turn.h - small matrices turned in vectors of 16 bytes, which every processor that we know of has, by the compiler's own names.
 *
 * Interleaving the upper half of the rows with the lower half rotates the bits of an element's place by one: after log2(rows)
 * times, rows are columns.
 */
#ifndef SLICER_TRANSFORMS_TURN_H
#define SLICER_TRANSFORMS_TURN_H

#include <stdint.h>
#include <string.h>

typedef uint16_t sl_v8 __attribute__((vector_size(16)));
typedef uint8_t sl_v16 __attribute__((vector_size(16)));

#ifdef __clang__
#define SL_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SL_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){ __VA_ARGS__ })
#endif

/* 8 x 8 elements of 16 bits. */
static inline void sl_turn_8(sl_v8 v[8])
{
	sl_v8 t[8];

#pragma GCC unroll 4
	for (int round = 0; round < 3; round++) {
#pragma GCC unroll 8
		for (int i = 0; i < 4; i++) {
			t[2 * i] = SL_SHUFFLE(sl_v8, v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
			t[2 * i + 1] = SL_SHUFFLE(sl_v8, v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
		}
		memcpy(v, t, sizeof(t));
	}
}

/* 16 x 16 bytes. */
static inline void sl_turn_16(sl_v16 v[16])
{
	sl_v16 t[16];

#pragma GCC unroll 4
	for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
		for (int i = 0; i < 8; i++) {
			t[2 * i] = SL_SHUFFLE(sl_v16, v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
					      7, 23);
			t[2 * i + 1] = SL_SHUFFLE(sl_v16, v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
						  14, 30, 15, 31);
		}
		memcpy(v, t, sizeof(t));
	}
}

/* 8 x 8 nibbles, the lowest first: nibble j of word i becomes nibble i of word j. */
static inline void sl_turn_nibbles(uint32_t w[8])
{
	static const uint32_t masks[3] = { 0x0000FFFF, 0x00FF00FF, 0x0F0F0F0F };

#pragma GCC unroll 3
	for (unsigned round = 0, by = 4; round < 3; round++, by /= 2) {
#pragma GCC unroll 8
		for (unsigned i = 0; i < 8; i++) {
			if (i & by)
				continue;
			uint32_t low = w[i], high = w[i + by];
			w[i] = (low & masks[round]) | (high & masks[round]) << (4 * by);
			w[i + by] = (low >> (4 * by) & masks[round]) | (high & ~masks[round]);
		}
	}
}

#endif
