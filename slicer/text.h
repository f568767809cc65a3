/*
 * text.h - text that grows: headers, JSON. A lack of memory is remembered, not reported at each step.
 */
#ifndef SLICER_TEXT_H
#define SLICER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sl_text {
	char *bytes; /* malloc'ed, NUL-terminated when len > 0 */
	size_t len, room;
	bool failed; /* no memory: what was added since is lost */
};

#define SL_TEXT_INIT              \
	{                         \
		NULL, 0, 0, false \
	}

/* Make room for `more` bytes and a NUL; false without memory. */
bool sl_text_reserve(struct sl_text *text, size_t more);

static inline void sl_text_add(struct sl_text *text, const char *bytes,
			       size_t len) /* `bytes` may be NULL when len is 0 */
{
	if (len == 0 || (text->room - text->len <= len && !sl_text_reserve(text, len)) || text->failed)
		return;
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	text->bytes[text->len] = '\0';
}

/* The same of a text that ends with a NUL. */
static inline void sl_text_put(struct sl_text *text, const char *string)
{
	sl_text_add(text, string, strlen(string));
}

void sl_text_u64(struct sl_text *text, uint64_t value); /* in decimal */
void sl_text_printf(struct sl_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; `string` is valid UTF-8. */
void sl_text_json_string(struct sl_text *text, const char *string);

void sl_text_release(struct sl_text *text);

#endif
