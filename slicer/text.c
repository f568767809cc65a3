/*
 * text.c - see text.h.
 */
#include "slicer/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct sl_text *text, size_t more)
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
		text->bytes = grown;
		text->room = room;
	}
	return true;
}

void sl_text_add(struct sl_text *text, const char *bytes, size_t len)
{
	if (len == 0 || !reserve(text, len))
		return;
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	text->bytes[text->len] = '\0';
}

/* Format into the room that is there; only what does not fit is formatted twice. */
void sl_text_printf(struct sl_text *text, const char *fmt, ...)
{
	va_list ap, again;

	if (!reserve(text, strlen(fmt)))
		return;
	va_start(ap, fmt);
	va_copy(again, ap);
	size_t left = text->room - text->len;
	int len = vsnprintf(text->bytes + text->len, left, fmt, ap);
	if (len >= 0 && (size_t)len >= left && reserve(text, (size_t)len))
		vsnprintf(text->bytes + text->len, (size_t)len + 1, fmt, again);
	if (len >= 0 && !text->failed)
		text->len += (size_t)len;
	va_end(again);
	va_end(ap);
}

void sl_text_u64(struct sl_text *text, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	sl_text_add(text, digits + at, sizeof(digits) - at);
}

/* Does this character need an escape in a JSON string? */
static bool is_special(char c)
{
	return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

void sl_text_json_string(struct sl_text *text, const char *string)
{
	sl_text_add(text, "\"", 1);
	for (;;) {
		size_t plain = 0;
		while (!is_special(string[plain]))
			plain++;
		sl_text_add(text, string, plain);
		string += plain;
		if (*string == '\0')
			break;
		sl_text_printf(text, *string == '"' || *string == '\\' ? "\\%c" : "\\u%04x", (unsigned char)*string);
		string++;
	}
	sl_text_add(text, "\"", 1);
}

void sl_text_release(struct sl_text *text)
{
	free(text->bytes);
	*text = (struct sl_text)SL_TEXT_INIT;
}
