/*
 * json.c - three passes, each linear in the text whatever it holds.
 *
 *      scan     every byte once: UTF-8, escapes, control characters, depth; counts the tokens
 *      jsmn     finds them, in memory allocated once
 *      verify   between tokens: white space, the one comma or colon that belongs there, and nothing else
 *
 * Depth comes first because jsmn walks up from the last token to find what a bracket closes: without a bound on depth
 * that is quadratic. What jsmn lets through (missing or trailing commas, "01", a second document) fails in the last pass,
 * which takes nothing from jsmn but the tokens' places.
 */
#include "slicer/json.h"

#include "slicer/scan.h"
#include "slicer/utf8.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#include <jsmn.h>

enum { DEPTH_MAX = 64 };

/* ---- escapes ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number in "\uXXXX" at `at`, or -1. */
static long unicode_unit(const char *at, size_t left)
{
	long unit = 0;

	if (left < 6 || at[0] != '\\' || at[1] != 'u')
		return -1;
	for (int i = 2; i < 6; i++) {
		int digit = hex_digit(at[i]);
		if (digit < 0)
			return -1;
		unit = unit * 16 + digit;
	}
	return unit;
}

/* Bytes of the escape at `at` and the character it means; 0 when it is malformed, half a surrogate pair included. */
static size_t escape_read(const char *at, size_t left, long *character)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	const char *letter = left > 1 && at[1] ? strchr(letters, at[1]) : NULL;

	if (letter) {
		*character = meanings[letter - letters];
		return 2;
	}
	long high = unicode_unit(at, left);
	*character = high;
	if (high < 0xD800 || high > 0xDFFF)
		return high < 0 ? 0 : 6;
	long low = unicode_unit(at + 6, left - 6);
	if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
		return 0;
	*character = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
	return 12;
}

static size_t utf8_write(char *dst, long c)
{
	static const unsigned char lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n; i-- > 1; c >>= 6)
		dst[i] = (char)(0x80 | (c & 0x3F));
	dst[0] = (char)(lead[n] | c);
	return n;
}

/* ---- scan ---- */

struct scan {
	const char *text;
	size_t len, pos;
	unsigned depth, max_depth;
	size_t n_tokens; /* exact for a valid document */
	struct sl_error *err;
};

static int scan_fail(const struct scan *scan, const char *what)
{
	return sl_fail(scan->err, EINVAL, "JSON: byte %zu (0x%02x) %s", scan->pos, (unsigned char)scan->text[scan->pos],
		       what);
}

static int scan_wide(struct scan *scan)
{
	size_t n = sl_utf8_char((const unsigned char *)scan->text + scan->pos, scan->len - scan->pos);

	if (n == 0)
		return scan_fail(scan, "is not UTF-8");
	scan->pos += n;
	return 0;
}

static int scan_special(struct scan *scan)
{
	long character;

	if ((unsigned char)scan->text[scan->pos] >= 0x80)
		return scan_wide(scan);
	if (scan->text[scan->pos] != '\\')
		return scan_fail(scan, "is a control character in a string");
	size_t n = escape_read(scan->text + scan->pos, scan->len - scan->pos, &character);
	if (n == 0)
		return scan_fail(scan, "begins a malformed escape");
	scan->pos += n;
	return 0;
}

/* From a quote past its partner. */
static int scan_string(struct scan *scan)
{
	size_t quote = scan->pos++;

	for (;;) {
		scan->pos = (size_t)(sl_skip_plain(scan->text + scan->pos, scan->text + scan->len) - scan->text);
		if (scan->pos == scan->len)
			break;
		if (scan->text[scan->pos] == '"') {
			scan->pos++;
			return 0;
		}
		int ret = scan_special(scan);
		if (ret)
			return ret;
	}
	scan->pos = quote;
	return scan_fail(scan, "begins a string that does not end");
}

/* Does `c` end a number or a word? */
static bool is_delimiter(char c)
{
	switch (c) {
	case ' ':
	case '\t':
	case '\r':
	case '\n':
	case ',':
	case ':':
	case '"':
	case '{':
	case '}':
	case '[':
	case ']':
		return true;
	default:
		return false;
	}
}

/* A number, a word, or what else stands outside strings. */
static int scan_primitive(struct scan *scan)
{
	scan->n_tokens++;
	while (scan->pos < scan->len && !is_delimiter(scan->text[scan->pos])) {
		if (scan->text[scan->pos] == '\0')
			return scan_fail(scan, "is a NUL");
		if ((unsigned char)scan->text[scan->pos] < 0x80) {
			scan->pos++;
			continue;
		}
		int ret = scan_wide(scan);
		if (ret)
			return ret;
	}
	return 0;
}

static int scan_one(struct scan *scan)
{
	switch (scan->text[scan->pos]) {
	case '"':
		scan->n_tokens++;
		return scan_string(scan);
	case '{':
	case '[':
		if (scan->depth++ == scan->max_depth)
			return scan_fail(scan, "is nested too deeply");
		scan->n_tokens++;
		break;
	case '}':
	case ']':
		if (scan->depth-- == 0)
			return scan_fail(scan, "closes what was never opened");
		break;
	case ',':
	case ':':
	case ' ':
	case '\t':
	case '\r':
	case '\n':
		break;
	default:
		return scan_primitive(scan);
	}
	scan->pos++;
	return 0;
}

static int scan_text(struct scan *scan)
{
	while (scan->pos < scan->len) {
		int ret = scan_one(scan);
		if (ret)
			return ret;
	}
	if (scan->depth)
		return sl_fail(scan->err, EINVAL, "JSON: ends at byte %zu with %u brackets open", scan->len,
			       scan->depth);
	return 0;
}

/* ---- verify ---- */

struct verify {
	const jsmntok_t *in;
	struct sl_json *json;
	size_t pos;		   /* all bytes before it are accounted for */
	uint32_t stack[DEPTH_MAX]; /* the open containers */
	unsigned depth;
	struct sl_error *err;
};

static int verify_fail(const struct verify *v, const char *what)
{
	if (v->pos >= v->json->len)
		return sl_fail(v->err, EINVAL, "JSON: ends at byte %zu, where %s belongs", v->pos, what);
	return sl_fail(v->err, EINVAL, "JSON: byte %zu (0x%02x) stands where %s belongs", v->pos,
		       (unsigned char)v->json->text[v->pos], what);
}

static void skip_space(struct verify *v)
{
	const char *text = v->json->text;

	while (v->pos < v->json->len &&
	       (text[v->pos] == ' ' || text[v->pos] == '\n' || text[v->pos] == '\r' || text[v->pos] == '\t'))
		v->pos++;
}

static const char *skip_digits(const char *at, const char *end)
{
	while (at < end && *at >= '0' && *at <= '9')
		at++;
	return at;
}

/* RFC 8259, section 6. */
static bool is_number(const char *at, const char *end)
{
	at += at < end && *at == '-';
	const char *digits = at;
	at = skip_digits(at, end);
	if (at == digits || (*digits == '0' && at - digits > 1))
		return false;
	if (at < end && *at == '.') {
		digits = ++at;
		at = skip_digits(at, end);
		if (at == digits)
			return false;
	}
	if (at < end && (*at == 'e' || *at == 'E')) {
		at++;
		at += at < end && (*at == '+' || *at == '-');
		digits = at;
		at = skip_digits(at, end);
		if (at == digits)
			return false;
	}
	return at == end;
}

/* The type of what stands unquoted at [at, at + len), or 0. */
static uint8_t primitive_type(const char *at, size_t len)
{
	static const struct {
		const char *word;
		uint8_t type;
	} words[] = { { "true", SL_JSON_TRUE }, { "false", SL_JSON_FALSE }, { "null", SL_JSON_NULL } };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (len == strlen(words[i].word) && memcmp(at, words[i].word, len) == 0)
			return words[i].type;
	}
	return is_number(at, at + len) ? SL_JSON_NUMBER : 0;
}

/* Close the containers that end before byte `start`, where token `i` begins. */
static int close_before(struct verify *v, uint32_t i, size_t start)
{
	while (v->depth > 0) {
		struct sl_json_token *open = &v->json->tokens[v->stack[v->depth - 1]];
		if (open->end > start)
			break;
		bool object = open->type == SL_JSON_OBJECT;
		skip_space(v);
		if (object && open->n % 2)
			return verify_fail(v, "a member's value");
		if (v->pos != open->end - 1)
			return verify_fail(v, object ? "a member or '}'" : "an element or ']'");
		if (object)
			open->n /= 2;
		open->next = i;
		v->pos++;
		v->depth--;
	}
	return 0;
}

/* The comma or colon before token `i`, if any belongs there; marks keys by n = 1. */
static int separator(struct verify *v, uint32_t i)
{
	struct sl_json_token *token = &v->json->tokens[i], *parent = &v->json->tokens[v->stack[v->depth - 1]];
	bool object = parent->type == SL_JSON_OBJECT, value = object && parent->n % 2;
	char belongs = value ? ':' : parent->n ? ',' : '\0';

	if (object && !value) {
		if (token->type != SL_JSON_STRING)
			return verify_fail(v, "a member's name");
		token->n = 1;
	}
	parent->n++;
	if (belongs) {
		if (v->pos >= v->json->len || v->json->text[v->pos] != belongs)
			return verify_fail(v, value ? "':'" : "','");
		v->pos++;
		skip_space(v);
	}
	return 0;
}

static int fill_token(struct verify *v, uint32_t i)
{
	static const uint8_t types[] = {
		[JSMN_OBJECT] = SL_JSON_OBJECT, [JSMN_ARRAY] = SL_JSON_ARRAY, [JSMN_STRING] = SL_JSON_STRING
	};
	const jsmntok_t *in = &v->in[i];
	struct sl_json_token *out = &v->json->tokens[i];

	*out = (struct sl_json_token){ .start = (uint32_t)in->start, .end = (uint32_t)in->end, .next = i + 1 };
	if (in->type == JSMN_PRIMITIVE)
		out->type = primitive_type(v->json->text + in->start, (size_t)(in->end - in->start));
	else
		out->type = types[in->type];
	if (!out->type)
		return sl_fail(v->err, EINVAL, "JSON: byte %d begins neither a number nor true, false or null",
			       in->start);
	return 0;
}

static int verify_token(struct verify *v, uint32_t i)
{
	struct sl_json_token *token = &v->json->tokens[i];
	int ret = fill_token(v, i);
	size_t quotes = token->type == SL_JSON_STRING, start = token->start - quotes;

	if (!ret)
		ret = close_before(v, i, start);
	skip_space(v);
	if (!ret && i > 0)
		ret = v->depth ? separator(v, i) : verify_fail(v, "the end of the document");
	if (ret)
		return ret;
	if (v->pos != start)
		return verify_fail(v, "a value");
	v->pos = token->end + quotes;
	if (token->type == SL_JSON_OBJECT || token->type == SL_JSON_ARRAY) {
		v->stack[v->depth++] = i;
		v->pos = start + 1;
	}
	return 0;
}

static int verify_all(struct verify *v)
{
	struct sl_json *json = v->json;

	for (uint32_t i = 0; i < json->n; i++) {
		int ret = verify_token(v, i);
		if (ret)
			return ret;
	}
	int ret = close_before(v, json->n, json->len);
	if (ret)
		return ret;
	skip_space(v);
	if (v->pos != json->len)
		return verify_fail(v, "the end of the document");
	/* A key's subtree is its value's too. */
	for (uint32_t i = json->n; i-- > 0;) {
		if (json->tokens[i].type == SL_JSON_STRING && json->tokens[i].n)
			json->tokens[i].next = json->tokens[i + 1].next;
	}
	return 0;
}

/* ---- the three passes ---- */

static int find_tokens(const struct scan *scan, jsmntok_t **tokens, uint32_t *n)
{
	jsmn_parser parser;

	*tokens = malloc(scan->n_tokens * sizeof(**tokens));
	if (!*tokens)
		return sl_fail(scan->err, ENOMEM, "JSON: no memory for %zu tokens", scan->n_tokens);
	jsmn_init(&parser);
	int found = jsmn_parse(&parser, scan->text, scan->len, *tokens, (unsigned)scan->n_tokens);
	if (found > 0) {
		*n = (uint32_t)found;
		return 0;
	}
	free(*tokens);
	return sl_fail(scan->err, EINVAL, "JSON: unexpected text at byte %u", parser.pos);
}

static int verify_tokens(struct sl_json *json, const jsmntok_t *in, struct sl_error *err)
{
	struct verify v = { .in = in, .json = json, .err = err };

	json->tokens = malloc(json->n * sizeof(*json->tokens));
	if (!json->tokens)
		return sl_fail(err, ENOMEM, "JSON: no memory for %u tokens", json->n);
	int ret = verify_all(&v);
	if (ret)
		sl_json_release(json);
	return ret;
}

/* jsmn's strict mode has no document that is a bare number or word, and neither has anything we read. */
static int check_root(const char *text, size_t len, struct sl_error *err)
{
	size_t space = 0;

	while (space < len && strchr(" \t\r\n", text[space]) && text[space])
		space++;
	if (space == len)
		return sl_fail(err, EINVAL, "JSON: nothing but white space in %zu bytes", len);
	if (text[space] != '{' && text[space] != '[')
		return sl_fail(err, EINVAL, "JSON: begins neither with '{' nor with '[' but with byte 0x%02x at %zu",
			       (unsigned char)text[space], space);
	return 0;
}

int sl_json_parse(struct sl_json *json, const char *text, size_t len, unsigned max_depth, struct sl_error *err)
{
	struct scan scan = { .text = text, .len = len, .err = err };
	jsmntok_t *found;

	*json = (struct sl_json){ .text = text, .len = len };
	scan.max_depth = max_depth < DEPTH_MAX ? max_depth : DEPTH_MAX;
	if (len > INT_MAX) /* jsmn's offsets are ints */
		return sl_fail(err, EINVAL, "JSON: %zu bytes, more than the %d that are accepted", len, INT_MAX);
	int ret = scan_text(&scan);
	if (!ret)
		ret = check_root(text, len, err);
	if (!ret)
		ret = find_tokens(&scan, &found, &json->n);
	if (ret)
		return ret;
	ret = verify_tokens(json, found, err);
	free(found);
	return ret;
}

void sl_json_release(struct sl_json *json)
{
	free(json->tokens);
	*json = (struct sl_json){ 0 };
}

/* ---- what a token holds ---- */

uint32_t sl_json_member(const struct sl_json *json, uint32_t obj, const char *key)
{
	uint32_t at = sl_json_first(json, obj);

	if (json->tokens[obj].type != SL_JSON_OBJECT)
		return 0;
	for (uint32_t i = 0; i < json->tokens[obj].n; i++, at = sl_json_next(json, at)) {
		if (sl_json_equal(json, at, key))
			return at + 1;
	}
	return 0;
}

/* The next character of a string token as `n` bytes in `out`; returns the bytes of text it took. */
static size_t next_char(const char *at, size_t left, char out[4], size_t *n)
{
	long character;

	if (*at != '\\') {
		out[0] = *at;
		*n = 1;
		return 1;
	}
	size_t used = escape_read(at, left, &character);
	*n = utf8_write(out, character);
	return used;
}

bool sl_json_equal(const struct sl_json *json, uint32_t at, const char *text)
{
	const char *from = json->text + json->tokens[at].start, *end = json->text + json->tokens[at].end;

	if (from < end && *from != *text && *from != '\\')
		return false;
	size_t left = strlen(text);
	/* An escape is always longer than what it means. */
	if ((size_t)(end - from) <= left || !memchr(from, '\\', (size_t)(end - from)))
		return (size_t)(end - from) == left && memcmp(from, text, left) == 0 && !memchr(from, '\\', left);
	while (from < end) {
		char out[4];
		size_t n;
		from += next_char(from, (size_t)(end - from), out, &n);
		if (n > left || memcmp(out, text, n) != 0)
			return false;
		text += n;
		left -= n;
	}
	return left == 0;
}

char *sl_json_string(const struct sl_json *json, uint32_t at, struct sl_arena *arena, size_t *len)
{
	const char *from = json->text + json->tokens[at].start, *end = json->text + json->tokens[at].end;
	char *string = sl_arena_strndup(arena, from, (size_t)(end - from));

	*len = (size_t)(end - from);
	if (!string || !memchr(from, '\\', *len))
		return string;
	/* An escape is always longer than what it means. */
	char *to = string;
	while (from < end) {
		char out[4];
		size_t n;
		from += next_char(from, (size_t)(end - from), out, &n);
		memcpy(to, out, n);
		to += n;
	}
	*to = '\0';
	*len = (size_t)(to - string);
	return string;
}

int sl_json_u64(const struct sl_json *json, uint32_t at, uint64_t *value)
{
	const struct sl_json_token *token = &json->tokens[at];
	const char *from = json->text + token->start, *end = json->text + token->end;

	if (token->type != SL_JSON_NUMBER || skip_digits(from, end) != end)
		return -EINVAL;
	*value = 0;
	for (; from < end; from++) {
		if (__builtin_mul_overflow(*value, 10u, value) || __builtin_add_overflow(*value, *from - '0', value))
			return -EINVAL;
	}
	return 0;
}
