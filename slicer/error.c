/*
 * error.c - one sentence, first error wins; and the escaping that keeps untrusted names out of terminals and logs.
 */
#include "slicer/error.h"

#include "slicer/utf8.h"

#include <stdio.h>
#include <string.h>

/* Cut `text` at `len` bytes, or before the character that would lose its end. */
static void cut(char *text, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)text;
	size_t start = len;

	text[len] = '\0';
	while (start > 0 && (bytes[start - 1] & 0xC0) == 0x80)
		start--;
	if (start > 0 && bytes[start - 1] >= 0xC0 && !sl_utf8_char(bytes + start - 1, len - start + 1))
		text[start - 1] = '\0';
}

int sl_vfail(struct sl_error *err, int errnum, const char *fmt, va_list ap)
{
	if (!err)
		return -errnum;
	if (err->errnum)
		return -err->errnum;
	err->errnum = errnum;
	int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	if (n >= (int)sizeof(err->text))
		cut(err->text, sizeof(err->text) - 1);
	return -errnum;
}

int sl_fail(struct sl_error *err, int errnum, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int ret = sl_vfail(err, errnum, fmt, ap);
	va_end(ap);
	return ret;
}

int sl_error_prefix(struct sl_error *err, const char *fmt, ...)
{
	char front[sizeof(err->text)];
	va_list ap;

	if (!err || !err->errnum)
		return err ? -err->errnum : -1;
	va_start(ap, fmt);
	int n = vsnprintf(front, sizeof(front) - 2, fmt, ap);
	va_end(ap);
	size_t len = n < 0 ? 0 : (size_t)n;
	if (len > sizeof(front) - 3) {
		cut(front, sizeof(front) - 3);
		len = strlen(front);
	}
	memcpy(front + len, ": ", 3);
	len += 2;
	size_t room = sizeof(err->text) - 1 - len, rest = strlen(err->text);
	if (rest > room) {
		cut(err->text, room);
		rest = strlen(err->text);
	}
	memmove(err->text + len, err->text, rest + 1);
	memcpy(err->text, front, len);
	return -err->errnum;
}

/* How one character is shown: itself, or \xNN for its first byte. Returns the bytes of input used. */
static size_t escape_one(const unsigned char *at, size_t left, char out[5], size_t *n_out)
{
	size_t n = sl_utf8_char(at, left);

	if (n == 0 || at[0] < 0x20 || at[0] == 0x7F || at[0] == '\\' || at[0] == '\'' || at[0] == '"' ||
	    (at[0] == 0xC2 && at[1] < 0xA0)) {
		*n_out = (size_t)snprintf(out, 5, "\\x%02x", at[0]);
		return 1;
	}
	memcpy(out, at, n);
	*n_out = n;
	return n;
}

const char *sl_escape(char *dst, size_t cap, const char *text, size_t len)
{
	static const char dots[] = "…";
	size_t fill = 0, keep = 0;

	for (size_t i = 0; i < len;) {
		char one[5];
		size_t n, used = escape_one((const unsigned char *)text + i, len - i, one, &n);
		if (fill + n + 1 > cap) {
			memcpy(dst + keep, dots, sizeof(dots));
			return dst;
		}
		memcpy(dst + fill, one, n);
		fill += n;
		i += used;
		if (fill + sizeof(dots) <= cap)
			keep = fill;
	}
	dst[fill] = '\0';
	return dst;
}
