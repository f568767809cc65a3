/*
 * gguf_special.c - what a tokenizer's special tokens are, whether a text begins and ends with them, and the chat template
 * (gguf-py, vocab.py, SpecialVocab). Several files may say it:
 *
 *      tokenizer.json           the token that a template puts in front of or behind a text: then it is added
 *      tokenizer_config.json    names of tokens, add_bos_token, chat_template
 *      chat_template.jinja      the template, where tokenizer_config.json has none
 *      config.json              numbers of tokens that have no name there
 */
#include "slicer/gguf.h"

#include "slicer/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOS, EOS, N_SPECIAL = 6 };

/* clang-format off */
/* To add a special token: what Hugging Face's files and llama.cpp's keys call it, and whether texts may have it added. */
static const struct {
	const char *name, *key;
	bool added;
} rows[N_SPECIAL] = {
	[BOS] = { "bos", "tokenizer.ggml.bos_token_id", true },
	[EOS] = { "eos", "tokenizer.ggml.eos_token_id", true },
	{ "unk", "tokenizer.ggml.unknown_token_id", false },
	{ "sep", "tokenizer.ggml.seperator_token_id", false },
	{ "pad", "tokenizer.ggml.padding_token_id", false },
	{ "mask", "tokenizer.ggml.mask_token_id", false },
};
/* clang-format on */

struct special {
	const char *text; /* of the token, decoded; NULL: no file names it */
	enum { UNSAID, NO, YES } add;
};

struct specials {
	const struct sl_json *tokenizer, *config; /* tokenizer_config.json; NULL: none */
	struct sl_arena *arena;			  /* of the texts */
	bool failed;				  /* no memory */
	struct special list[N_SPECIAL];
};

static uint32_t member(const struct sl_json *json, uint32_t object, const char *key)
{
	return json->tokens[object].type == SL_JSON_OBJECT ? sl_json_member(json, object, key) : 0;
}

/* A member of an array or object by its place: 0 when there are not as many. */
static uint32_t element(const struct sl_json *json, uint32_t array, uint32_t i)
{
	uint32_t at = array + 1;

	if (!array || json->tokens[array].type != SL_JSON_ARRAY || i >= json->tokens[array].n)
		return 0;
	while (i-- > 0)
		at = sl_json_next(json, at);
	return at;
}

/* A string; NULL when the value is none. */
static const char *text_at(struct specials *s, const struct sl_json *json, uint32_t at)
{
	const char *text;
	size_t len;

	if (!at || json->tokens[at].type != SL_JSON_STRING)
		return NULL;
	text = sl_json_string(json, at, s->arena, &len);
	s->failed |= !text;
	return text;
}

/* "bos_token" of tokenizer_config.json, which is a string or an object that has it. */
static const char *named_token(struct specials *s, const char *name)
{
	char key[32];

	snprintf(key, sizeof(key), "%s_token", name);
	uint32_t at = s->config ? member(s->config, 0, key) : 0;
	if (at && s->config->tokens[at].type == SL_JSON_OBJECT)
		at = member(s->config, at, "content");
	return at ? text_at(s, s->config, at) : NULL;
}

/* The token that a template has at that end. */
static const char *template_token(struct specials *s, uint32_t processor, bool last)
{
	const struct sl_json *json = s->tokenizer;
	uint32_t single = member(json, processor, "single");
	uint32_t n = single && json->tokens[single].type == SL_JSON_ARRAY ? json->tokens[single].n : 0;
	uint32_t item = n > 1 ? element(json, single, last ? n - 1 : 0) : 0;
	uint32_t special = item ? member(json, item, "SpecialToken") : 0,
		 id = special ? member(json, special, "id") : 0;

	return id ? text_at(s, json, id) : NULL;
}

/* A template's token is added where it is the one that the files name, or they name none. Another at the end takes its place. */
static void heed_template(struct specials *s, uint32_t processor)
{
	const char *first = template_token(s, processor, false), *last = template_token(s, processor, true);
	struct special *bos = &s->list[BOS], *eos = &s->list[EOS];

	if (first && !bos->text && s->config)
		bos->text = first;
	if (first)
		bos->add = !bos->text || strcmp(first, bos->text) == 0 ? YES : NO;
	if (last && s->config)
		eos->text = last;
	if (last)
		eos->add = YES;
}

static void heed_processor(struct specials *s, uint32_t processor)
{
	uint32_t type = member(s->tokenizer, processor, "type");

	if (!type || s->tokenizer->tokens[type].type != SL_JSON_STRING)
		return;
	if (sl_json_equal(s->tokenizer, type, "TemplateProcessing"))
		heed_template(s, processor);
	for (int i = BOS; i <= EOS && sl_json_equal(s->tokenizer, type, "ByteLevel"); i++) {
		if (s->list[i].add == UNSAID)
			s->list[i].add = NO;
	}
}

static void heed_processors(struct specials *s)
{
	uint32_t processor = member(s->tokenizer, 0, "post_processor"),
		 list = processor ? member(s->tokenizer, processor, "processors") : 0;

	if (processor && !list)
		heed_processor(s, processor);
	if (!list || s->tokenizer->tokens[list].type != SL_JSON_ARRAY)
		return;
	uint32_t at = list + 1;
	for (uint32_t i = 0; i < s->tokenizer->tokens[list].n; i++, at = sl_json_next(s->tokenizer, at))
		heed_processor(s, at);
}

/* "add_bos_token", where the template says nothing. */
static void heed_flag(struct specials *s, unsigned i)
{
	char key[32];

	snprintf(key, sizeof(key), "add_%s_token", rows[i].name);
	uint32_t at = s->config ? member(s->config, 0, key) : 0;
	uint8_t type = at ? s->config->tokens[at].type : 0;
	if (s->list[i].add == UNSAID && (type == SL_JSON_TRUE || type == SL_JSON_FALSE))
		s->list[i].add = type == SL_JSON_TRUE ? YES : NO;
}

/* The number of an added token. */
static bool find_added(const struct specials *s, const char *text, uint64_t *id)
{
	const struct sl_json *json = s->tokenizer;
	uint32_t list = member(json, 0, "added_tokens"), at = list + 1;

	for (uint32_t i = 0; list && json->tokens[list].type == SL_JSON_ARRAY && i < json->tokens[list].n;
	     i++, at = sl_json_next(json, at)) {
		uint32_t content = member(json, at, "content"), number = member(json, at, "id");
		if (content && number && json->tokens[content].type == SL_JSON_STRING &&
		    json->tokens[number].type == SL_JSON_NUMBER && sl_json_equal(json, content, text))
			return sl_json_u64(json, number, id) == 0;
	}
	return false;
}

/* A list of numbers is none. */
static bool find_in_config(const struct sl_config *config, const char *name, uint64_t *id)
{
	char key[32];

	snprintf(key, sizeof(key), "%s_token_id", name);
	uint32_t at = sl_config_find(config, SL_TEXT, key);
	return at && config->json.tokens[at].type == SL_JSON_NUMBER && sl_json_u64(&config->json, at, id) == 0;
}

static void add_special(struct sl_gguf *gguf, const struct specials *s, const struct sl_config *config, unsigned i)
{
	const struct special *special = &s->list[i];
	char key[64];
	uint64_t id;

	if ((s->config && special->text && find_added(s, special->text, &id)) ||
	    find_in_config(config, rows[i].name, &id))
		sl_gguf_u32(gguf, rows[i].key, id);
	snprintf(key, sizeof(key), "tokenizer.ggml.add_%s_token", rows[i].name);
	if (rows[i].added && special->add != UNSAID)
		sl_gguf_bool(gguf, key, special->add == YES);
}

/* ---- the chat template ---- */

/* Of several, the one that is called so. */
static uint32_t default_template(const struct sl_json *json, uint32_t list)
{
	uint32_t at = list + 1;

	for (uint32_t i = 0; i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
		uint32_t name = member(json, at, "name");
		if (name && json->tokens[name].type == SL_JSON_STRING && sl_json_equal(json, name, "default"))
			return member(json, at, "template");
	}
	return 0;
}

static void add_template_file(struct sl_gguf *gguf, const struct sl_model *model)
{
	struct sl_error unused = SL_ERROR_INIT;
	char *text;
	size_t len;

	if (sl_gguf_read_text(model, "chat_template.jinja", &text, &len, &unused))
		return;
	sl_gguf_string(gguf, "tokenizer.chat_template", text, len);
	free(text);
}

/* A template is advice: without one there is none. */
static void add_template(struct sl_gguf *gguf, const struct sl_model *model, const struct specials *s)
{
	uint32_t at = member(s->config, 0, "chat_template");
	size_t len;

	if (!at) {
		add_template_file(gguf, model);
		return;
	}
	if (s->config->tokens[at].type == SL_JSON_ARRAY)
		at = default_template(s->config, at);
	if (!at || s->config->tokens[at].type != SL_JSON_STRING)
		return;
	const char *text = sl_json_string(s->config, at, s->arena, &len);
	if (text)
		sl_gguf_string(gguf, "tokenizer.chat_template", text, len);
	gguf->text.failed |= !text;
}

/* ---- all of it ---- */

static void add_specials(struct sl_gguf *gguf, const struct sl_model *model, const struct sl_json *tokenizer,
			 const struct sl_json *config)
{
	struct sl_arena arena;
	struct specials s = { .tokenizer = tokenizer, .config = config, .arena = &arena };

	sl_arena_init(&arena);
	for (unsigned i = 0; i < N_SPECIAL; i++)
		s.list[i].text = named_token(&s, rows[i].name);
	heed_processors(&s);
	for (unsigned i = 0; i < N_SPECIAL; i++) {
		heed_flag(&s, i);
		add_special(gguf, &s, &model->config, i);
	}
	if (config)
		add_template(gguf, model, &s);
	gguf->text.failed |= s.failed;
	sl_arena_release(&arena);
}

void sl_gguf_add_special(struct sl_gguf *gguf, const struct sl_model *model, const struct sl_json *tokenizer)
{
	struct sl_error unused = SL_ERROR_INIT;
	struct sl_gguf_document config;

	if (sl_gguf_read(model, "tokenizer_config.json", &config, &unused)) {
		add_specials(gguf, model, tokenizer, NULL);
		return;
	}
	add_specials(gguf, model, tokenizer, &config.json);
	sl_gguf_release(&config);
}
