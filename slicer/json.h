/*
 * json.h - strict JSON over jsmn's tokens.
 *
 * jsmn finds tokens but forgives much. sl_json_parse() adds what RFC 8259 demands and jsmn lets through: commas and
 * colons where they belong and nowhere else, no trailing text, well-formed numbers and escapes, valid UTF-8, no NUL,
 * no duplicate-tolerant shortcuts, and a depth limit. After it returns 0, walking the tokens needs no more checks.
 *
 * Tokens are an array in document order: a container's children follow it; a key token has exactly one child, its
 * value. `next` skips a whole subtree in O(1).
 */
#ifndef SLICER_JSON_H
#define SLICER_JSON_H

#include "slicer/arena.h"
#include "slicer/error.h"
#include <stdbool.h>
#include <stdint.h>

enum sl_json_type {
	SL_JSON_OBJECT = 1,
	SL_JSON_ARRAY,
	SL_JSON_STRING,
	SL_JSON_NUMBER,
	SL_JSON_TRUE,
	SL_JSON_FALSE,
	SL_JSON_NULL
};

struct sl_json_token {
	uint32_t start, end; /* bytes of the text; a string's without its quotes */
	uint32_t next;	     /* index of the token after this one's subtree */
	uint32_t n;	     /* children: members of an object, elements of an array */
	uint8_t type;	     /* enum sl_json_type */
};

struct sl_json {
	const char *text;
	size_t len;
	struct sl_json_token *tokens; /* malloc'ed; [0] is the root */
	uint32_t n;
};

/* Parse `len` bytes (at most 4 GiB - 1), which must outlive `json`. White space around the document is allowed.
 * Errors name the byte offset. sl_json_release() after success only. */
int sl_json_parse(struct sl_json *json, const char *text, size_t len, unsigned max_depth,
		  struct sl_error *err) SL_MUST_CHECK;
void sl_json_release(struct sl_json *json);

/* The value token of `key` in object `obj`, or 0 (the root is nobody's member). The first one if the key is there twice. */
uint32_t sl_json_member(const struct sl_json *json, uint32_t obj, const char *key);

/* Walk the members of an object: for (uint32_t k = sl_json_first(j, obj), i = 0; i < j->tokens[obj].n; i++, k = sl_json_next_member(j, k))
 * k is a key token, k + 1 its value. For arrays, elements are first, tokens[first].next, … */
static inline uint32_t sl_json_first(const struct sl_json *json, uint32_t at)
{
	(void)json;
	return at + 1;
}
static inline uint32_t sl_json_next(const struct sl_json *json, uint32_t at)
{
	return json->tokens[at].next;
}

/* Does the string token, unescaped, equal `text`? */
bool sl_json_equal(const struct sl_json *json, uint32_t at, const char *text);

/* The string token unescaped into the arena, NUL-terminated; *len its bytes (a \u0000 in it shows as len > strlen).
 * NULL without memory. */
char *sl_json_string(const struct sl_json *json, uint32_t at, struct sl_arena *arena, size_t *len);

/* A number token that is plain digits (no sign, point, exponent or leading zero) and fits: 0, else -EINVAL. */
int sl_json_u64(const struct sl_json *json, uint32_t at, uint64_t *value) SL_MUST_CHECK;

#endif
