/*
 * text.c - see text.h.
 */
#include "slicer/text.h"

#include "slicer/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sl_text_reserve(struct sl_text *text, size_t more)
{
	size_t need = text->len + more + 1, room = text->room ? text->room : 256;

	if (text->failed)
		return false;
	while (room < need)
		room *= 2;
	if (room != text->room) {
		char *grown = realloc(text->bytes, room);
		if (!grown) {
			text->failed = true;
			return false;
		}
		sl_use_huge_pages(grown, room);
		text->bytes = grown;
		text->room = room;
	}
	return true;
}

/* Format into the room that is there; only what does not fit is formatted twice. */
void sl_text_printf(struct sl_text *text, const char *fmt, ...)
{
	va_list ap, again;

	if (!sl_text_reserve(text, strlen(fmt)))
		return;
	va_start(ap, fmt);
	va_copy(again, ap);
	size_t left = text->room - text->len;
	int len = vsnprintf(text->bytes + text->len, left, fmt, ap);
	if (len >= 0 && (size_t)len >= left && sl_text_reserve(text, (size_t)len))
		vsnprintf(text->bytes + text->len, (size_t)len + 1, fmt, again);
	if (len >= 0 && !text->failed)
		text->len += (size_t)len;
	va_end(again);
	va_end(ap);
}

void sl_text_u64(struct sl_text *text, uint64_t value)
{
	static const char pairs[] =
		"0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546"
		"4748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293"
		"949596979899";
	char digits[20];
	size_t at = sizeof(digits);

	for (; value >= 100; value /= 100) {
		at -= 2;
		memcpy(digits + at, pairs + value % 100 * 2, 2);
	}
	if (value >= 10)
		digits[--at] = pairs[value * 2 + 1];
	digits[--at] = value >= 10 ? pairs[value * 2] : (char)('0' + value);
	sl_text_add(text, digits + at, sizeof(digits) - at);
}

/* Does this character need an escape in a JSON string? */
static bool is_special(char c)
{
	return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

/* Is one of eight characters special? (A byte is zero where its highest bit is set by subtracting one, and was not before.) */
static bool has_special(const char *string)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
	uint64_t word;

	memcpy(&word, string, sizeof(word));
	uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
	return (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & highs;
}

static size_t plain_len(const char *string, size_t len)
{
	size_t plain = 0;

	while (len - plain >= 8 && !has_special(string + plain))
		plain += 8;
	while (plain < len && !is_special(string[plain]))
		plain++;
	return plain;
}

void sl_text_json_string(struct sl_text *text, const char *string)
{
	size_t len = strlen(string), plain;

	sl_text_add(text, "\"", 1);
	for (;; string++, len--) {
		plain = plain_len(string, len);
		sl_text_add(text, string, plain);
		string += plain;
		len -= plain;
		if (len == 0)
			break;
		if (*string == '"' || *string == '\\')
			sl_text_add(text, (const char[]){ '\\', *string }, 2);
		else
			sl_text_printf(text, "\\u%04x", (unsigned char)*string);
	}
	sl_text_add(text, "\"", 1);
}

void sl_text_release(struct sl_text *text)
{
	free(text->bytes);
	*text = (struct sl_text)SL_TEXT_INIT;
}
