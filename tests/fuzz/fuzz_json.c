/*
 * fuzz_json.c - any bytes as JSON: what is accepted must walk, unescape and compare without a step outside.
 */
#include "slicer/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every token is in place, and its subtree ends where its parent's does or before. */
static void check_tokens(const struct sl_json *json, struct sl_arena *arena)
{
	uint64_t number;
	size_t len;

	for (uint32_t i = 0; i < json->n; i++) {
		const struct sl_json_token *token = &json->tokens[i];
		if (token->start > token->end || token->end > json->len || token->next <= i || token->next > json->n)
			abort();
		if (token->type == SL_JSON_STRING) {
			char *text = sl_json_string(json, i, arena, &len);
			if (!text || len > token->end - token->start)
				abort();
			if (sl_json_equal(json, i, text) != (strlen(text) == len))
				abort();
		}
		if (token->type == SL_JSON_NUMBER)
			(void)!sl_json_u64(json, i, &number);
	}
}

static void check_walk(const struct sl_json *json, uint32_t at)
{
	const struct sl_json_token *token = &json->tokens[at];
	uint32_t child = sl_json_first(json, at);

	if (token->type != SL_JSON_OBJECT && token->type != SL_JSON_ARRAY)
		return;
	for (uint32_t i = 0; i < token->n; i++, child = sl_json_next(json, child)) {
		if (token->type == SL_JSON_OBJECT && json->tokens[child].type != SL_JSON_STRING)
			abort();
		check_walk(json, token->type == SL_JSON_OBJECT ? child + 1 : child);
	}
	if (child != token->next)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_error err = SL_ERROR_INIT;
	struct sl_arena arena;
	struct sl_json json;

	if (sl_json_parse(&json, (const char *)data, size, 16, &err)) {
		if (!err.errnum || !err.text[0])
			abort();
		return 0;
	}
	sl_arena_init(&arena);
	check_tokens(&json, &arena);
	check_walk(&json, 0);
	if (json.tokens[0].next != json.n)
		abort();
	sl_arena_release(&arena);
	sl_json_release(&json);
	return 0;
}
