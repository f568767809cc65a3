/*
 * gguf_tokenizer.c - a byte-pair tokenizer as GGUF's key-value pairs (llama.cpp, convert_hf_to_gguf.py, get_vocab_base;
 * gguf-py, vocab.py).
 *
 * llama.cpp splits text by rules that it has built in, and a file says which by name. That name follows from the pattern in
 * tokenizer.json; where the pattern has no name here the model is refused, since other rules would give other tokens.
 */
#include "slicer/gguf.h"

#include "slicer/arch.h"
#include "slicer/json.h"
#include "slicer/regular.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENIZER_MAX = 100000000, DEPTH = 32, TOKENS_MAX = 1 << 24 };
enum token_type { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
#define REST  "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

/* To add a pattern: as it stands in the JSON, and what llama.cpp calls it. */
static const struct {
	const char *pattern, *name;
} patterns[] = {
	{ WORDS "\\\\p{N}{1,3}" REST, "llama-bpe" },
	{ WORDS "\\\\p{N}" REST, "qwen2" },
};

struct token {
	char *text;
	size_t len;
	enum token_type type; /* 0: no token has this number */
};

/* ---- reading ---- */

int sl_gguf_read_text(const struct sl_model *model, const char *name, char **text, size_t *len, struct sl_error *err)
{
	struct stat st;
	int fd, ret = sl_regular_open(model->shards.dirfd, name, &fd, &st, err);

	if (ret)
		return ret;
	*len = (size_t)st.st_size;
	*text = NULL;
	if (st.st_size > TOKENIZER_MAX)
		ret = sl_fail(err, EINVAL, "has %lld bytes, more than %d", (long long)st.st_size, TOKENIZER_MAX);
	else if (!(*text = malloc(*len + 1)))
		ret = sl_fail(err, ENOMEM, "out of memory");
	else
		ret = sl_regular_read(fd, *text, 0, *len, err);
	close(fd);
	if (ret)
		free(*text);
	return ret;
}

int sl_gguf_read(const struct sl_model *model, const char *name, struct sl_gguf_document *doc, struct sl_error *err)
{
	int ret = sl_gguf_read_text(model, name, &doc->text, &doc->len, err);

	if (!ret) {
		ret = sl_json_parse(&doc->json, doc->text, doc->len, DEPTH, err);
		if (ret)
			free(doc->text);
	}
	return ret ? sl_error_prefix(err, "%s", name) : 0;
}

void sl_gguf_release(struct sl_gguf_document *doc)
{
	sl_json_release(&doc->json);
	free(doc->text);
}

/* What llama.cpp calls the pattern by which text is split; NULL when it is none of those above. */
static const char *find_pattern(const char *text, size_t len)
{
	for (size_t i = 0; i < SL_COUNT(patterns); i++) {
		if (memmem(text, len, patterns[i].pattern, strlen(patterns[i].pattern)))
			return patterns[i].name;
	}
	return NULL;
}

int sl_gguf_check_tokenizer(const struct sl_model *model, struct sl_error *err)
{
	struct sl_error why = SL_ERROR_INIT;
	char *text;
	size_t len;
	int ret = sl_gguf_read_text(model, "tokenizer.json", &text, &len, &why);

	if (ret)
		return sl_fail(err, EINVAL,
			       "llama.cpp wants the tokenizer inside the file, and the source's tokenizer.json %s",
			       why.text);
	if (!find_pattern(text, len))
		ret = sl_fail(
			err, EINVAL,
			"tokenizer.json: it splits text by none of the patterns that have a name in llama.cpp here");
	free(text);
	return ret;
}

/* ---- tokens ---- */

static uint32_t member(const struct sl_json *json, uint32_t object, const char *key, enum sl_json_type type)
{
	uint32_t at = json->tokens[object].type == SL_JSON_OBJECT ? sl_json_member(json, object, key) : 0;

	return at && json->tokens[at].type == type ? at : 0;
}

static int set_token(struct token *tokens, uint64_t n, const struct sl_json *json, uint32_t text, uint32_t number,
		     enum token_type type, struct sl_arena *arena, uint64_t *set, struct sl_error *err)
{
	struct token t = { .type = type };
	uint64_t id;

	if (json->tokens[text].type != SL_JSON_STRING || json->tokens[number].type != SL_JSON_NUMBER ||
	    sl_json_u64(json, number, &id))
		return sl_fail(err, EINVAL, "tokenizer.json: a token is no text with a number (byte %u)",
			       json->tokens[text].start);
	if (id >= n)
		return sl_fail(err, EINVAL,
			       "tokenizer.json: token number %llu, but config.json has a vocabulary of %llu",
			       (unsigned long long)id, (unsigned long long)n);
	t.text = sl_json_string(json, text, arena, &t.len);
	if (!t.text)
		return sl_fail(err, ENOMEM, "out of memory");
	tokens[id] = t;
	*set = id;
	return 0;
}

static int add_vocabulary(struct token *tokens, uint64_t n, const struct sl_json *json, struct sl_arena *arena,
			  struct sl_error *err)
{
	uint32_t model = member(json, 0, "model", SL_JSON_OBJECT);
	uint32_t vocab = model ? member(json, model, "vocab", SL_JSON_OBJECT) : 0, key = vocab + 1;
	uint64_t id;
	int ret = vocab ? 0 : sl_fail(err, EINVAL, "tokenizer.json: model.vocab is no object");

	for (uint32_t i = 0; !ret && i < json->tokens[vocab].n; i++, key = sl_json_next(json, key))
		ret = set_token(tokens, n, json, key, key + 1, NORMAL, arena, &id, err);
	return ret;
}

/* clang-format off */
/* To add a way in which tokens look that mark something, though the tokenizer does not say so: how they begin and end. */
static const struct {
	const char *begin, *end;
} marks[] = {
	{ "<|", "|>" },			      /* Qwen's "<|fim_prefix|>" */
	{ "<\xEF\xBD\x9C", "\xEF\xBD\x9C>" }, /* the same with wide bars */
	{ "<unused", ">" },
	{ "<pad>", "" }, { "<mask>", "" }, { "<2mass>", "" }, { "[@BOS@]", "" }, /* whole */
};
/* clang-format on */

static bool looks_special(const struct token *t)
{
	for (size_t i = 0; i < SL_COUNT(marks); i++) {
		size_t begin = strlen(marks[i].begin), end = strlen(marks[i].end);
		if (t->len >= begin + end && (end > 0 || t->len == begin) &&
		    memcmp(t->text, marks[i].begin, begin) == 0 &&
		    memcmp(t->text + t->len - end, marks[i].end, end) == 0)
			return true;
	}
	return false;
}

/* SentencePiece's mark for a space is one, in tokens that stand for themselves. In place: the text gets shorter. */
static void unmark_spaces(struct token *t)
{
	static const char mark[] = "\xE2\x96\x81";
	char *out = t->text;

	for (const char *at = t->text, *end = at + t->len; at < end;) {
		bool marked = end - at >= 3 && memcmp(at, mark, 3) == 0;
		*out++ = marked ? ' ' : *at;
		at += marked ? 3 : 1;
	}
	t->len = (size_t)(out - t->text);
}

static int add_added(struct token *tokens, uint64_t n, const struct sl_json *json, struct sl_arena *arena,
		     struct sl_error *err)
{
	uint32_t list = member(json, 0, "added_tokens", SL_JSON_ARRAY), at = list + 1;
	int ret = 0;

	for (uint32_t i = 0; list && !ret && i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
		uint32_t content = member(json, at, "content", SL_JSON_STRING),
			 id = member(json, at, "id", SL_JSON_NUMBER);
		uint32_t special = member(json, at, "special", SL_JSON_TRUE);
		if (!content || !id)
			return sl_fail(err, EINVAL, "tokenizer.json: added token %u has no content or no id", i);
		uint64_t set;
		ret = set_token(tokens, n, json, content, id, CONTROL, arena, &set, err);
		if (ret || special || looks_special(&tokens[set]))
			continue;
		tokens[set].type = USER_DEFINED;
		unmark_spaces(&tokens[set]);
	}
	return ret;
}

static void write_tokens(struct sl_gguf *gguf, const struct token *tokens, uint64_t n)
{
	char text[32];

	sl_gguf_array(gguf, "tokenizer.ggml.tokens", SL_GGUF_STRING, n);
	for (uint64_t i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "[PAD%llu]", (unsigned long long)i);
		sl_gguf_put_string(&gguf->text, tokens[i].type ? tokens[i].text : text,
				   tokens[i].type ? tokens[i].len : strlen(text));
	}
	sl_gguf_array(gguf, "tokenizer.ggml.token_type", SL_GGUF_I32, n);
	for (uint64_t i = 0; i < n; i++)
		sl_gguf_put(&gguf->text, tokens[i].type ? tokens[i].type : UNUSED, 4);
}

static int add_tokens(struct sl_gguf *gguf, const struct sl_model *model, const struct sl_json *json,
		      struct sl_error *err)
{
	uint64_t n = model->config.dims[SL_TEXT].vocab;
	struct token *tokens = n <= TOKENS_MAX ? calloc(n + 1, sizeof(*tokens)) : NULL;
	struct sl_arena arena;
	int ret = tokens ? 0 : sl_fail(err, ENOMEM, "no memory for %llu tokens", (unsigned long long)n);

	sl_arena_init(&arena);
	if (!ret)
		ret = add_vocabulary(tokens, n, json, &arena, err);
	if (!ret)
		ret = add_added(tokens, n, json, &arena, err);
	if (!ret)
		write_tokens(gguf, tokens, n);
	sl_arena_release(&arena);
	free(tokens);
	return ret;
}

static bool is_pair(const struct sl_json *json, uint32_t at)
{
	return json->tokens[at].type == SL_JSON_ARRAY && json->tokens[at].n == 2 &&
	       json->tokens[at + 1].type == SL_JSON_STRING && json->tokens[at + 2].type == SL_JSON_STRING;
}

/* A part of a merge at `out`; a space in it as byte-pair tokens have it, for it is what stands between the parts. */
static char *put_part(char *out, const char *part, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (part[i] == ' ') {
			memcpy(out, "\xC4\xA0", 2);
			out += 2;
		} else {
			*out++ = part[i];
		}
	}
	return out;
}

/* "a b", which newer files have as ["a", "b"]. NULL without memory. */
static const char *merge_of(const struct sl_json *json, uint32_t at, struct sl_arena *arena, size_t *len)
{
	size_t a_len, b_len;

	if (!is_pair(json, at))
		return sl_json_string(json, at, arena, len);
	const char *a = sl_json_string(json, at + 1, arena, &a_len), *b = sl_json_string(json, at + 2, arena, &b_len);
	char *text = a && b ? sl_arena_array(arena, a_len + b_len + 1, 2) : NULL, *end;
	if (!text)
		return NULL;
	end = put_part(text, a, a_len);
	*end++ = ' ';
	*len = (size_t)(put_part(end, b, b_len) - text);
	return text;
}

static int add_merges(struct sl_gguf *gguf, const struct sl_json *json, struct sl_error *err)
{
	uint32_t model = member(json, 0, "model", SL_JSON_OBJECT),
		 list = model ? member(json, model, "merges", SL_JSON_ARRAY) : 0;
	uint32_t at = list + 1;
	struct sl_arena arena;
	int ret = list ? 0
		       : sl_fail(err, EINVAL, "tokenizer.json: model.merges is no list: it is no byte-pair tokenizer");

	sl_arena_init(&arena);
	if (!ret)
		sl_gguf_array(gguf, "tokenizer.ggml.merges", SL_GGUF_STRING, json->tokens[list].n);
	for (uint32_t i = 0; !ret && i < json->tokens[list].n; i++, at = sl_json_next(json, at)) {
		size_t len;
		if (json->tokens[at].type != SL_JSON_STRING && !is_pair(json, at)) {
			ret = sl_fail(err, EINVAL, "tokenizer.json: merge %u is no pair", i);
			break;
		}
		const char *text = merge_of(json, at, &arena, &len);
		if (text)
			sl_gguf_put_string(&gguf->text, text, len);
		else
			ret = sl_fail(err, ENOMEM, "out of memory");
	}
	sl_arena_release(&arena);
	return ret;
}

/* ---- all of it ---- */

int sl_gguf_add_tokenizer(struct sl_gguf *gguf, const struct sl_model *model, struct sl_error *err)
{
	struct sl_gguf_document doc;
	int ret = sl_gguf_read(model, "tokenizer.json", &doc, err);

	if (ret)
		return ret;
	const char *pattern = find_pattern(doc.text, doc.len);
	sl_gguf_string(gguf, "tokenizer.ggml.model", "gpt2", 4);
	if (pattern)
		sl_gguf_string(gguf, "tokenizer.ggml.pre", pattern, strlen(pattern));
	else
		ret = sl_fail(err, EINVAL, "tokenizer.json changed while it was read");
	if (!ret)
		ret = add_tokens(gguf, model, &doc.json, err);
	if (!ret)
		ret = add_merges(gguf, &doc.json, err);
	if (!ret)
		sl_gguf_add_special(gguf, model, &doc.json);
	sl_gguf_release(&doc);
	return ret;
}
