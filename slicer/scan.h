/*
 * scan.h - a cursor over JSON whose shape is known beforehand.
 *
 * Headers and indexes are megabytes of the same few words, which nearly all writers spell alike. What reads them along
 * that shape takes a quarter of the time of finding tokens first, and gives up on anything else: json.h reads that, and
 * says what is wrong with it. So a scan accepts less than json.h does, never more, and has no messages.
 */
#ifndef SLICER_SCAN_H
#define SLICER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sl_scan {
	const char *at, *end;
};

/* Does any of eight bytes need a look: a quote, a backslash, below 0x20, or 0x80 and above? The classic tests for a
 * zero byte and for a byte below n; a borrow may report a neighbour too, but never hides one. */
static inline bool sl_any_special(uint64_t word)
{
	const uint64_t ones = 0x0101010101010101, high = 0x80 * ones;
	uint64_t quote = word ^ ('"' * ones), backslash = word ^ ('\\' * ones);

	return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - 0x20 * ones) & ~word) | word) &
	       high;
}

/* Does a byte stand for itself in a string? */
static inline bool sl_is_plain(char c)
{
	return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* The first byte that does not simply stand for itself in a string. */
static inline const char *sl_skip_plain(const char *at, const char *end)
{
	while (end - at >= 8) {
		uint64_t word;
		memcpy(&word, at, sizeof(word));
		if (sl_any_special(word))
			break;
		at += 8;
	}
	while (at < end && sl_is_plain(*at))
		at++;
	return at;
}

/* Bytes that two texts of at least `n` begin with in common. */
static inline size_t sl_in_common(const char *a, const char *b, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t x, y;
		memcpy(&x, a + i, sizeof(x));
		memcpy(&y, b + i, sizeof(y));
		if (x != y)
			break;
	}
	while (i < n && a[i] == b[i])
		i++;
	return i;
}

static inline void sl_scan_space(struct sl_scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
		s->at++;
}

/* Past that character, if it comes next. */
static inline bool sl_scan_char(struct sl_scan *s, char c)
{
	sl_scan_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* Past that text, quotes included, if it comes next. */
static inline bool sl_scan_text(struct sl_scan *s, const char *text, size_t len)
{
	sl_scan_space(s);
	if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0)
		return false;
	s->at += len;
	return true;
}

/* A string without escapes, of ASCII. */
static inline bool sl_scan_string(struct sl_scan *s, const char **text, size_t *len)
{
	if (!sl_scan_char(s, '"'))
		return false;
	*text = s->at;
	s->at = sl_skip_plain(s->at, s->end);
	*len = (size_t)(s->at - *text);
	if (s->at == s->end || *s->at != '"')
		return false;
	s->at++;
	return true;
}

/* A number of at most 19 digits, which cannot overflow. */
static inline bool sl_scan_u64(struct sl_scan *s, uint64_t *value)
{
	sl_scan_space(s);
	const char *first = s->at;
	for (*value = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - first < 20; s->at++)
		*value = *value * 10 + (uint64_t)(*s->at - '0');
	return s->at > first && s->at - first < 20 && (*first != '0' || s->at - first == 1);
}

#endif
