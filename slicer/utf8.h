/*
 * utf8.h - what is a character, strictly (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF.
 */
#ifndef SLICER_UTF8_H
#define SLICER_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed character at the start of `text`, of which `left` bytes are there; 0 when it is none. */
static inline size_t sl_utf8_char(const unsigned char *text, size_t left)
{
	/* The second byte's range is what excludes overlong forms and surrogates (Unicode, table 3-7). */
	unsigned char first = left ? text[0] : 0xFF, low = 0x80, high = 0xBF;
	size_t n = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;

	if (n < 2)
		return n;
	if (first == 0xE0)
		low = 0xA0;
	else if (first == 0xED)
		high = 0x9F;
	else if (first == 0xF0)
		low = 0x90;
	else if (first == 0xF4)
		high = 0x8F;
	if (left < n || text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++) {
		if ((text[i] & 0xC0) != 0x80)
			return 0;
	}
	return n;
}

#endif
